//! Where jobs of each kind have their pod templates, and how many pods there are of each, according to the descriptors.

use std::fmt::Write as _;

use sluice_api::job::{CountAt, JobKind, PodPlace, PodsAt};
use sluice_jobs::path_of;

/// The table.
pub fn table() -> String {
    let mut text = "| kind | pod sets | templates | pods of each |\n|---|---|---|---|\n".to_owned();
    for kind in JobKind::ALL {
        let facts = kind.integration();
        let name = kind.kind();
        for pods in facts.pods {
            let [sets, template, count] = row(pods);
            // Writing into a String does not fail.
            let _ = writeln!(text, "| {name} | {sets} | {template} | {count} |");
        }
        if let Some(why) = facts.pods_by_adapter {
            let _ = writeln!(text, "| {name} | | | by its adapter: {} |", super::tables::cell(why));
        }
    }
    text
}

/// The pod sets, their templates, and the number of their pods.
fn row(pods: &PodsAt) -> [String; 3] {
    let (sets, key) = match pods.place {
        PodPlace::Object(name) => (format!("`{name}`"), ""),
        PodPlace::Types { types, .. } => {
            let types: Vec<_> = types.iter().map(|name| format!("`{}`", name.to_lowercase())).collect();
            (types.join(", "), "TYPE")
        }
        PodPlace::Items { name, .. } => (format!("one of each item, called by its `{name}`"), "N"),
    };
    let at = |pointer: &str| path_of(&(pods.at(key) + pointer));
    let template = match at(pods.template) {
        path if path.is_empty() => "itself".to_owned(),
        path => format!("`{path}`"),
    };
    let count = match pods.count {
        CountAt::One => "1".to_owned(),
        CountAt::Field(field) => format!("`{}`, or 1", at(field)),
        CountAt::OfJob(spec) => {
            let of = |field: &str| at(&format!("{spec}/{field}"));
            format!("`{}`, or 1; no more than `{}`", of("parallelism"), of("completions"))
        }
        CountAt::ByAdapter => "by its adapter".to_owned(),
    };
    let parts = pods.parts.map(|parts| format!(", in each of `{}`, or 1, parts", at(parts.count)));
    [sets, template, count + &parts.unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_where_templates_are_and_what_says_how_many_pods_they_have() {
        let table = table();
        for row in [
            "| Job | `main` | `spec.template` | `spec.parallelism`, or 1; no more than `spec.completions` |",
            "| Pod | `main` | itself | 1 |",
            "| PyTorchJob | `master`, `worker` | `spec.pytorchReplicaSpecs.TYPE.template` | `spec.pytorchReplicaSpecs.TYPE.replicas`, or 1 |",
            "| RayCluster | one of each item, called by its `groupName` | `spec.workerGroupSpecs.N.template` | by its adapter |",
            "| TrainJob | | | by its adapter: the runtime that it names has them |",
        ] {
            assert!(table.contains(row), "{row} is not in\n{table}");
        }
    }
}
