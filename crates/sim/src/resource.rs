//! Kinds of commands' arguments, by their names and Kueue's short names.

use sluice_api::job::JobKind;
use sluice_engine::Kind;

/// The group of Kueue's kinds.
const GROUP: &str = "kueue.x-k8s.io";

/// The kind that a word names: `wl`, `workloads`, `workloads.kueue.x-k8s.io`, `workloads.v1beta2.kueue.x-k8s.io`.
pub fn named(word: &str) -> Option<Kind> {
    let word = word.to_ascii_lowercase();
    let word = match word.split_once('.') {
        Some((word, group)) if group == GROUP || group.split_once('.').is_some_and(|(_, g)| g == GROUP) => {
            word
        }
        Some(_) => return None,
        None => &word,
    };
    Some(match word {
        "clusterqueue" | "clusterqueues" | "cq" => Kind::ClusterQueue,
        "localqueue" | "localqueues" | "lq" | "queue" | "queues" => Kind::LocalQueue,
        "resourceflavor" | "resourceflavors" | "rf" | "flavor" | "flavors" => Kind::ResourceFlavor,
        "workload" | "workloads" | "wl" | "kwl" | "kueueworkload" | "kueueworkloads" => Kind::Workload,
        "cohort" | "cohorts" | "co" => Kind::Cohort,
        "topology" | "topologies" | "topo" => Kind::Topology,
        "admissioncheck" | "admissionchecks" | "ac" => Kind::AdmissionCheck,
        "provisioningrequestconfig" | "provisioningrequestconfigs" | "prc" => Kind::ProvisioningRequestConfig,
        "workloadpriorityclass" | "workloadpriorityclasses" | "wpc" => Kind::WorkloadPriorityClass,
        _ => return None,
    })
}

/// The kind of jobs, or of objects whose pods are jobs, that a word names, as kubectl takes it: `job`, `jobs`, `jobs.batch`, `jobs.v1.batch`; `sts`.
pub fn job_kind(word: &str) -> Option<JobKind> {
    let word = word.to_ascii_lowercase();
    let (name, group) = word.split_once('.').map_or((&*word, None), |(name, group)| (name, Some(group)));
    let is = |kind: &JobKind| {
        let own = kind.group();
        let versioned = |group: &str| group.split_once('.').is_some_and(|(_, group)| group == own);
        kind.goes_by(name) && group.is_none_or(|group| group == own || versioned(group))
    };
    JobKind::all().iter().copied().find(is)
}

/// The kind of a word, if it can be explained: a Workload, or what [`job_kind`] knows.
pub fn explained(word: &str) -> Option<Kind> {
    job_kind(word).map(Kind::Job).or_else(|| named(word).filter(|kind| *kind == Kind::Workload))
}

/// How that begins which is said of a word that names no kind that is explained.
pub const NOT_EXPLAINED: &str = "expected workload or a kind of jobs";

/// What is said of a word that names no kind that is explained.
pub fn not_explained(word: &str) -> String {
    let kinds: Vec<_> = JobKind::all().iter().map(|kind| kind.kind().to_ascii_lowercase()).collect();
    let kinds = kinds.join(", ");
    format!("{NOT_EXPLAINED} ({kinds}), found {word}: if it makes a job, ask for that job")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_go_by_all_their_names() {
        for (words, kind) in [
            ("cq ClusterQueues clusterqueue.kueue.x-k8s.io", Kind::ClusterQueue),
            ("lq queue queues localqueues.v1beta1.kueue.x-k8s.io", Kind::LocalQueue),
            ("rf flavor flavors resourceflavor", Kind::ResourceFlavor),
            ("wl kwl kueueworkload kueueworkloads workload workloads.kueue.x-k8s.io", Kind::Workload),
            ("co cohorts", Kind::Cohort),
            ("topo topology", Kind::Topology),
            ("wpc", Kind::WorkloadPriorityClass),
        ] {
            for word in words.split_whitespace() {
                assert_eq!(named(word), Some(kind), "{word}");
            }
        }
        assert_eq!((named("pods"), named("workloads.example.com")), (None, None));
        for word in ["job", "Jobs", "jobs.batch", "job.v1.batch"] {
            assert_eq!(explained(word), Some(Kind::Job(JobKind::JOB)), "{word}");
        }
        assert_eq!(explained("wl"), Some(Kind::Workload));
        assert_eq!(explained("workloads.kueue.x-k8s.io"), Some(Kind::Workload));
        assert_eq!((explained("jobs.example.com"), explained("node"), explained("")), (None, None, None));
        for word in ["deployments.apps", "deploy", "Deploy.apps", "deploy.v1.apps"] {
            assert_eq!(explained(word), Some(Kind::Job(JobKind::DEPLOYMENT)), "{word}");
        }
        let short = ["po", "sts", "lws", "sparkapp", "deploy.example.com"].map(job_kind);
        let kinds =
            [JobKind::POD, JobKind::STATEFUL_SET, JobKind::LEADER_WORKER_SET, JobKind::SPARK_APPLICATION];
        assert_eq!(short, [Some(kinds[0]), Some(kinds[1]), Some(kinds[2]), Some(kinds[3]), None]);
        assert!(not_explained("node").contains(" jobset, "), "{}", not_explained("node"));
    }

    /// The definitions that the chart installs say which short names there are.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test reads its files")]
    fn every_short_name_of_the_definitions_is_known() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/sluice/files/crds");
        let mut seen = 0;
        for file in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
            let names: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
            let names = &names["spec"]["names"];
            let kind = names["kind"].as_str().unwrap();
            // They are only stored: no command is about them.
            if kind.starts_with("MultiKueue") {
                continue;
            }
            for short in names["shortNames"].as_array().into_iter().flatten() {
                let short = short.as_str().unwrap();
                assert_eq!(named(short).map(Kind::as_str), Some(kind), "{short}");
                seen += 1;
            }
        }
        assert!(seen > 5, "{seen}");
    }
}
