//! What cannot be simulated: in files it is an error, in a cluster it is left out and reported.

use std::path::Path;

use anyhow::bail;
use sluice_api::job::JobKind;
use sluice_sim::{Kind, LeftOut, ManifestError, Manifests, Skipped, Source};

/// Refuses a kind whose controller's status fields are not known: its jobs would start, but never be seen running.
///
/// # Errors
/// If it is such a kind.
pub(crate) fn only_simulated_kind(kind: JobKind) -> anyhow::Result<()> {
    if sluice_jobs::is_simulated(kind) { Ok(()) } else { bail!("{}", no_states(kind)) }
}

/// Refuses jobs of such kinds.
///
/// # Errors
/// If there is one.
pub(super) fn only_simulated(manifests: &Manifests) -> anyhow::Result<()> {
    for manifest in &manifests.objects {
        if let Kind::Job(kind) = manifest.kind
            && !sluice_jobs::is_simulated(kind)
        {
            bail!("{}: {}", manifest.source, no_states(kind));
        }
    }
    Ok(())
}

/// The kinds whose jobs are read from a cluster, and the report of those that are left out: anyone may create a job of them. The configuration in
/// this file declares them.
pub(super) fn kinds_of_cluster(kinds: Vec<JobKind>, declared_in: &Path) -> (Vec<JobKind>, Vec<Skipped>) {
    let (read, left): (Vec<_>, Vec<_>) = kinds.into_iter().partition(|kind| sluice_jobs::is_simulated(*kind));
    let source = Source { file: declared_in.display().to_string(), document: 1 };
    let report = |kind| Skipped { source: source.clone(), what: no_states(kind) };
    (read, left.into_iter().map(report).collect())
}

fn no_states(kind: JobKind) -> String {
    format!("the declaration of {} has no states, without which it is not simulated", kind.framework())
}

/// Objects that are left out because they cannot be simulated: reasons for the first few, and the number of the others.
pub(super) fn not_played(left_out: &LeftOut) -> Vec<Skipped> {
    let why = |wrong: &ManifestError| {
        let separator = if wrong.path.is_empty() { "" } else { ": " };
        let what = format!("it cannot be simulated: {}{separator}{}", wrong.path, wrong.message);
        Skipped { source: wrong.at.clone(), what }
    };
    let mut all: Vec<Skipped> = left_out.first.iter().map(why).collect();
    let more = left_out.count - all.len();
    if let Some(last) = all.last_mut().filter(|_| more > 0) {
        last.what = format!("{}; and {more} more objects cannot be simulated", last.what);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_api::config::Configuration;
    use sluice_sim::File;

    #[test]
    fn a_declared_kind_without_states_is_an_error_in_files_and_left_out_of_a_cluster() {
        let text = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations:\n  frameworks: [batch/job]\n  declared:\n  \
                    - {group: shop.example.com, version: v1, kind: Bale, active: self.status.on, podSets: [{name: main, template: spec.template}]}\n";
        let (configuration, _) = Configuration::parse(text).unwrap();
        sluice_jobs::declare(&configuration).unwrap();
        let why = "the declaration of shop.example.com/bale has no states, without which it is not simulated";

        let (read, report) = kinds_of_cluster(configuration.job_kinds(), Path::new("manager.yaml"));
        assert!(read.contains(&JobKind::JOB) && read.iter().all(|kind| !kind.is_declared()), "{read:?}");
        let report: Vec<_> = report.iter().map(|left| format!("{} ({})", left.what, left.source)).collect();
        assert_eq!(report, [format!("{why} (manager.yaml, document 1)")]);

        let bale = "{apiVersion: shop.example.com/v1, kind: Bale, metadata: {name: a}}";
        let file = File { name: "bales.yaml".to_owned(), text: bale.to_owned(), named: true };
        let error = only_simulated(&Manifests::read(&[file]).unwrap()).unwrap_err();
        assert_eq!(error.to_string(), format!("bales.yaml, document 1: {why}"));
        let kind = JobKind::named("shop.example.com/bale").unwrap();
        assert_eq!(only_simulated_kind(kind).unwrap_err().to_string(), why);
        assert!(only_simulated_kind(JobKind::JOB).is_ok());
    }
}
