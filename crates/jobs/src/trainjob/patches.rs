//! The entry of `spec.runtimePatches` with the additions of admission.

use serde_json::{Map, Value, json};
use sluice_api::job::{JobPodSet, PodScheduling};

use crate::patch::set;

/// The manager of the entry (docs/reference/07-integrations.md 7.2).
pub(super) const MANAGER: &str = "kueue.x-k8s.io/manager";

/// Whether an entry has the additions of admission.
pub(super) fn is_ours(entry: &Value) -> bool {
    entry["manager"] == MANAGER
}

/// The entries with the additions of admission to each pod set. Ours is the last: no other one overrides it.
pub(super) fn with(entries: &[Value], added: &[(&JobPodSet, PodScheduling)]) -> Vec<Value> {
    let jobs: Vec<_> = added.iter().filter_map(|(pod_set, to)| of_job(pod_set, to)).collect();
    let mut entry = json!({"manager": MANAGER});
    if !jobs.is_empty() {
        set(&mut entry, &["trainingRuntimeSpec", "template", "spec", "replicatedJobs"], Value::Array(jobs));
    }
    let time = entries.iter().find(|entry| is_ours(entry)).map(|entry| &entry["time"]);
    if let Some(time) = time.filter(|time| !time.is_null()) {
        set(&mut entry, &["time"], time.clone());
    }
    entries.iter().filter(|entry| !is_ours(entry)).cloned().chain([entry]).collect()
}

/// The entries without what admission added.
pub(super) fn without(entries: &[Value]) -> Vec<Value> {
    let cleared = |entry: &Value| {
        let mut entry = entry.clone();
        if is_ours(&entry)
            && let Some(fields) = entry.as_object_mut()
        {
            fields.remove("trainingRuntimeSpec");
        }
        entry
    };
    entries.iter().map(cleared).collect()
}

/// The patch that leads the template of a pod set to this state. Keys of maps are merged; lists are replaced, except that of gates.
fn of_job(pod_set: &JobPodSet, to: &PodScheduling) -> Option<Value> {
    let from = &pod_set.scheduling;
    let more = |from: &std::collections::BTreeMap<String, String>,
                to: &std::collections::BTreeMap<String, String>| {
        let new = to.iter().filter(|(key, value)| from.get(*key) != Some(*value));
        new.map(|(key, value)| (key.clone(), Value::from(value.as_str()))).collect::<Map<_, _>>()
    };
    let mut template = json!({});
    for (path, map) in [
        (["metadata", "labels"], more(&from.labels, &to.labels)),
        (["metadata", "annotations"], more(&from.annotations, &to.annotations)),
        (["spec", "nodeSelector"], more(&from.node_selector, &to.node_selector)),
    ] {
        if !map.is_empty() {
            set(&mut template, &path, Value::Object(map));
        }
    }
    if from.tolerations != to.tolerations {
        set(&mut template, &["spec", "tolerations"], json!(to.tolerations));
    }
    if from.affinity != to.affinity {
        set(&mut template, &["spec", "affinity"], json!(to.affinity));
    }
    let gates: Vec<_> =
        to.scheduling_gates.iter().filter(|gate| !from.scheduling_gates.contains(gate)).collect();
    if !gates.is_empty() {
        set(&mut template, &["spec", "schedulingGates"], json!(gates));
    }
    let changes = template.as_object().is_some_and(|template| !template.is_empty());
    // The names of pod sets are lower case, and so are those of replicated Jobs.
    changes.then(|| json!({"name": pod_set.name, "template": {"spec": {"template": template}}}))
}
