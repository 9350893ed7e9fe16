//! Sets up a simulation from manifests and scenarios.

use std::collections::BTreeMap;

use sluice_engine::Kind;

use crate::manifest::{Manifest, ManifestError, Manifests, Source};
use crate::object;
use crate::observed::{Observed, RunTimes};
use crate::options::Options;
use crate::parts::PartNamespaces;
use crate::replay::Sink;
use crate::scenario::Scenario;
use crate::simulation::{SimError, Simulation};

/// Takes over what the scenarios say about the run as a whole, where the caller left it open.
pub fn settings(options: &mut Options, scenarios: &[(Source, Scenario)], seed_given: bool) {
    for (_, scenario) in scenarios {
        let spec = &scenario.spec;
        options.start = spec.start.unwrap_or(options.start);
        options.until = options.until.or(spec.until);
        if !seed_given {
            options.seed = spec.seed.unwrap_or(options.seed);
        }
    }
}

/// The file that a scenario means by a name: relative to its own.
fn beside(scenario: &Source, name: &str) -> String {
    match scenario.file.rsplit_once('/') {
        Some((folder, _)) => format!("{folder}/{name}"),
        None => name.to_owned(),
    }
}

/// The position of a kind in the order of applying: queues before jobs, jobs in the order of the files.
pub(crate) fn rank(kind: Kind) -> usize {
    let others = || object::kinds().filter(|k| !matches!(k, Kind::Job(_)));
    match kind {
        Kind::Job(_) => others().count(),
        // Pods of a cluster.
        Kind::Pod => others().count() + 1,
        kind => others().position(|k| k == kind).unwrap_or_else(|| others().count()),
    }
}

/// A simulation with these objects and scenarios, begun but not run. `files` has the files that scenarios apply, by path.
///
/// A file that an event of a scenario applies is not applied at the beginning, even if its folder was read.
///
/// # Errors
///
/// Every object that an API server or the webhooks would refuse (unless it was read from a cluster), and every error of a scenario; or only that the
/// simulation was cancelled.
pub fn prepare(
    manifests: &Manifests,
    files: &BTreeMap<String, String>,
    options: Options,
) -> Result<Simulation, Vec<ManifestError>> {
    prepare_with_log(manifests, files, options, None)
}

/// As [`prepare`], with a decision log that goes to `log`.
///
/// # Errors
///
/// As [`prepare`].
pub fn prepare_with_log(
    manifests: &Manifests,
    files: &BTreeMap<String, String>,
    options: Options,
    log: Option<Box<Sink>>,
) -> Result<Simulation, Vec<ManifestError>> {
    prepare_part(manifests, files, options, log, None)
}

/// As [`prepare_with_log`], of the part of a world that has only these namespaces.
pub(crate) fn prepare_part(
    manifests: &Manifests,
    files: &BTreeMap<String, String>,
    options: Options,
    log: Option<Box<Sink>>,
    only: Option<PartNamespaces>,
) -> Result<Simulation, Vec<ManifestError>> {
    let mut simulation = Simulation::with_log(options, log);
    simulation.play.only = only;
    let here: Vec<_> = manifests.objects.iter().filter_map(|m| Observed::of(m.kind, &m.object)).collect();
    simulation.pods.observed = RunTimes::new(here.iter().chain(&manifests.observed));
    let mut errors = Vec::new();
    let later: Vec<String> = manifests
        .scenarios
        .iter()
        .flat_map(|(source, scenario)| scenario.files().map(|name| beside(source, name)).collect::<Vec<_>>())
        .collect();
    let mut objects: Vec<&Manifest> =
        manifests.objects.iter().filter(|m| !later.contains(&m.source.file)).collect();
    objects.sort_by_key(|m| rank(m.kind));
    for manifest in objects {
        if let Err(error) = simulation.check_cancelled() {
            return Err(vec![manifest_error(&manifest.source, error)]);
        }
        errors.extend(simulation.take_first(manifest.clone()));
    }
    for (source, scenario) in &manifests.scenarios {
        let own: BTreeMap<String, String> = scenario
            .files()
            .filter_map(|name| Some((name.to_owned(), files.get(&beside(source, name))?.clone())))
            .collect();
        if let Err(wrong) = simulation.play(source, scenario.clone(), &own) {
            errors.extend(wrong);
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    simulation.begin();
    Ok(simulation)
}

pub(crate) fn manifest_error(source: &Source, error: SimError) -> ManifestError {
    let (path, message) = match error {
        SimError::Refused { object, path, message } if path.is_empty() => (object, message),
        SimError::Refused { object, path, message } => (format!("{object}: {path}"), message),
        other => (String::new(), other.to_string()),
    };
    ManifestError { at: source.clone(), path, message }
}
