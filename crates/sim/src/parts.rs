//! Splits worlds into parts: trees of Cohorts that share no quota are independent of each other, so each is simulated by itself, on as many threads
//! as there are, and the records are joined.
//!
//! A part decides as the whole would: the draws of one job do not depend on others (see [`crate::random`]), and objects are created in the same order
//! within a part. A world is not split if anything could reach across its parts: nodes, events of a scenario, admission that waits for the pods of
//! all jobs. The split does not depend on the machine.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sluice_engine::Kind;

use crate::json::text;
use crate::left_out::LeftOut;
use crate::manifest::{Manifest, ManifestError, Manifests};
use crate::options::Options;
use crate::record::Record;
use crate::setup::prepare_part;
use crate::simulation::{SimError, Simulation};

/// The most parts of a world.
const MOST_PARTS: usize = 64;
/// Smaller worlds are done before there is anything to win.
const FEWEST_QUEUES: usize = 16;

/// Which namespaces belong to a part. Namespaces without a queue belong to the first part.
#[derive(Clone, Debug)]
pub(crate) struct PartNamespaces {
    part: usize,
    of: Arc<BTreeMap<String, usize>>,
}

impl PartNamespaces {
    /// Whether a namespace belongs to this part.
    pub(crate) fn has(&self, namespace: &str) -> bool {
        self.of.get(namespace).copied().unwrap_or(0) == self.part
    }
}

/// How far the parts of a world are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Parts that came to their end.
    pub done: usize,
    /// Parts in all.
    pub parts: usize,
    /// Jobs submitted so far.
    pub jobs: usize,
    /// Simulated time of the part that reported last, in milliseconds from the beginning.
    pub at: i64,
}

impl Progress {
    /// The progress of a simulation of a whole world.
    pub fn of(simulation: &Simulation) -> Self {
        let record = simulation.record();
        Self { done: 0, parts: 1, jobs: record.jobs.len(), at: record.millis(simulation.now()) }
    }
}

/// A world that was simulated to its end.
#[derive(Debug)]
pub struct Played {
    /// What happened.
    pub record: Record,
    /// How long it lasted, in milliseconds.
    pub lasted: i64,
    /// Writes of the engine.
    pub writes: u64,
    /// Objects that were read from a cluster and cannot be simulated.
    pub left_out: LeftOut,
}

/// Why a world cannot be simulated to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlayError {
    /// Its manifests are wrong.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Manifests(Vec<ManifestError>),
    /// The simulation broke off.
    #[error(transparent)]
    Sim(#[from] SimError),
}

/// Simulates a world to its end, in parts where it has parts. `progress` hears of every step, from several threads.
///
/// # Errors
///
/// If an object or a scenario is refused, or a part of the world cannot continue: see [`SimError`].
pub fn play(
    manifests: &Manifests,
    files: &BTreeMap<String, String>,
    options: &Options,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Played, PlayError> {
    let parts = split(manifests, options);
    let count = parts.as_ref().map_or(1, Vec::len);
    let (next, done, jobs) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let at = AtomicI64::new(0);
    let results: Vec<Mutex<Option<Result<Played, PlayError>>>> =
        (0..count).map(|_| Mutex::new(None)).collect();
    let worker = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = results.get(number) else { return };
            let (own, only) = match &parts {
                Some(parts) => (&parts[number].0, Some(parts[number].1.clone())),
                None => (manifests, None),
            };
            let mut known = 0;
            let result = play_part(own, files, options, only, &mut |simulation: &Simulation| {
                let record = simulation.record();
                jobs.fetch_add(record.jobs.len() - known, Ordering::Relaxed);
                known = record.jobs.len();
                at.store(record.millis(simulation.now()), Ordering::Relaxed);
                progress(Progress {
                    done: done.load(Ordering::Relaxed),
                    parts: count,
                    jobs: jobs.load(Ordering::Relaxed),
                    at: at.load(Ordering::Relaxed),
                });
            });
            done.fetch_add(1, Ordering::Relaxed);
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(count);
    #[expect(
        clippy::disallowed_methods,
        reason = "each part's result has a place of its own, in whatever order they end"
    )]
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(worker);
        }
        worker();
    });
    let results =
        results.into_iter().filter_map(|slot| slot.into_inner().unwrap_or_else(PoisonError::into_inner));
    Ok(join(results.collect::<Result<Vec<_>, _>>()?, options))
}

/// Simulates one part, or a world that is not split.
fn play_part(
    manifests: &Manifests,
    files: &BTreeMap<String, String>,
    options: &Options,
    only: Option<PartNamespaces>,
    progress: &mut dyn FnMut(&Simulation),
) -> Result<Played, PlayError> {
    let mut simulation =
        prepare_part(manifests, files, options.clone(), None, only).map_err(PlayError::Manifests)?;
    simulation.run(progress)?;
    let (lasted, writes) = (simulation.lasted(), simulation.writes());
    let left_out = simulation.left_out().clone();
    Ok(Played { record: simulation.into_record(), lasted, writes, left_out })
}

/// Puts the records of the parts together.
fn join(mut played: Vec<Played>, options: &Options) -> Played {
    let lasted = played.iter().map(|part| part.lasted).max().unwrap_or(0);
    let writes = played.iter().map(|part| part.writes).sum();
    let mut left_out = LeftOut::default();
    for part in &mut played {
        left_out.join(std::mem::take(&mut part.left_out));
    }
    let record = match played.len() {
        1 => played.remove(0).record,
        _ => Record::join(options.start, played.into_iter().map(|part| part.record).collect()),
    };
    Played { record, lasted, writes, left_out }
}

/// Groups of names, of which any two may be joined.
#[derive(Default)]
struct Groups {
    index: BTreeMap<(&'static str, String), usize>,
    parent: Vec<usize>,
}

impl Groups {
    fn id(&mut self, kind: &'static str, name: &str) -> usize {
        let next = self.parent.len();
        let id = *self.index.entry((kind, name.to_owned())).or_insert(next);
        if id == next {
            self.parent.push(id);
        }
        id
    }

    fn root(&self, mut id: usize) -> usize {
        while self.parent[id] != id {
            id = self.parent[id];
        }
        id
    }

    /// Joins two groups; the older one names both.
    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.root(a), self.root(b));
        self.parent[a.max(b)] = a.min(b);
    }
}

/// The group of an object: its own, joined with those of the objects that it refers to.
fn place(groups: &mut Groups, manifest: &Manifest) -> Option<usize> {
    let (metadata, spec) = (&manifest.object["metadata"], &manifest.object["spec"]);
    let named =
        |keys: [&str; 2]| keys.iter().map(|key| text(&spec[*key]).to_owned()).find(|name| !name.is_empty());
    let own = |groups: &mut Groups, kind| groups.id(kind, text(&metadata["name"]));
    let (id, above) = match manifest.kind {
        Kind::ClusterQueue => {
            (own(groups, "queue"), named(["cohortName", "cohort"]).map(|name| ("cohort", name)))
        }
        Kind::Cohort => (own(groups, "cohort"), named(["parentName", "parent"]).map(|name| ("cohort", name))),
        Kind::Namespace => (own(groups, "namespace"), None),
        Kind::LocalQueue => {
            let queue = text(&spec["clusterQueue"]).to_owned();
            (groups.id("namespace", namespace_of(manifest)), Some(("queue", queue)))
        }
        Kind::Job(_) | Kind::Workload | Kind::LimitRange => {
            (groups.id("namespace", namespace_of(manifest)), None)
        }
        _ => return None,
    };
    if let Some((kind, name)) = above {
        let above = groups.id(kind, &name);
        groups.join(id, above);
    }
    Some(id)
}

fn namespace_of(manifest: &Manifest) -> &str {
    match text(&manifest.object["metadata"]["namespace"]) {
        "" => "default",
        namespace => namespace,
    }
}

/// Whether something may reach across the parts of a world.
fn is_whole(manifests: &Manifests, options: &Options) -> bool {
    let apart = |kind: Kind| {
        matches!(
            kind,
            Kind::Namespace
                | Kind::Topology
                | Kind::ResourceFlavor
                | Kind::AdmissionCheck
                | Kind::Cohort
                | Kind::ClusterQueue
                | Kind::LocalQueue
                | Kind::WorkloadPriorityClass
                | Kind::PriorityClass
                | Kind::LimitRange
                | Kind::RuntimeClass
                | Kind::Workload
                | Kind::Job(_)
        )
    };
    let queues = manifests.objects.iter().filter(|m| m.kind == Kind::ClusterQueue).count();
    queues < FEWEST_QUEUES
        || options.configuration.wait_for_pods_ready.as_ref().is_some_and(|wait| wait.block_admission)
        || manifests.objects.iter().any(|manifest| !apart(manifest.kind))
        || manifests.scenarios.iter().any(|(_, scenario)| !scenario.spec.events.is_empty())
}

/// The parts of a world, each with its own objects and the objects of all parts; nothing if the world cannot be split.
fn split(manifests: &Manifests, options: &Options) -> Option<Vec<(Manifests, PartNamespaces)>> {
    if is_whole(manifests, options) {
        return None;
    }
    let mut groups = Groups::default();
    let places: Vec<Option<usize>> =
        manifests.objects.iter().map(|manifest| place(&mut groups, manifest)).collect();
    // Components in the order of their first object, with how many ClusterQueues each has.
    let mut weights: BTreeMap<usize, usize> = BTreeMap::new();
    for (manifest, place) in manifests.objects.iter().zip(&places) {
        let Some(place) = place else { continue };
        *weights.entry(groups.root(*place)).or_default() += usize::from(manifest.kind == Kind::ClusterQueue);
    }
    let total: usize = weights.values().sum();
    let share = total.div_ceil(MOST_PARTS);
    let mut part_of: BTreeMap<usize, usize> = BTreeMap::new();
    let (mut part, mut filled) = (0, 0);
    for (&component, &weight) in &weights {
        if filled >= share {
            (part, filled) = (part + 1, 0);
        }
        part_of.insert(component, part);
        filled += weight;
    }
    if part == 0 {
        return None;
    }
    let of = namespaces(&groups, &part_of);
    let parts = (0..=part).map(|number| {
        let mine = |place: &Option<usize>| place.is_none_or(|id| part_of[&groups.root(id)] == number);
        let objects = manifests.objects.iter().zip(&places).filter(|(_, place)| mine(place));
        let own = Manifests {
            objects: objects.map(|(manifest, _)| manifest.clone()).collect(),
            scenarios: manifests.scenarios.clone(),
            skipped: Vec::new(),
            observed: manifests.observed.clone(),
            subject: None,
            unread: Vec::new(),
        };
        (own, PartNamespaces { part: number, of: Arc::clone(&of) })
    });
    Some(parts.collect())
}

/// The part of each namespace.
fn namespaces(groups: &Groups, part_of: &BTreeMap<usize, usize>) -> Arc<BTreeMap<String, usize>> {
    let named = groups.index.iter().filter(|((kind, _), _)| *kind == "namespace");
    let part = |id: usize| part_of.get(&groups.root(id)).copied().unwrap_or(0);
    Arc::new(named.map(|((_, name), &id)| (name.clone(), part(id))).collect())
}
