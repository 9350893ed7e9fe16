//! The part of a pod template that admission changes: merging additions, and the patch from one state to another.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Affinity;
use serde_json::{Map, Value, json};
use sluice_api::job::{JobPodSet, JobView, PodScheduling, PodSetInfo};
use sluice_api::labels;

use crate::affinity::with_nodes;

/// Why a job cannot be started. Every variant is permanent: trying again cannot help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// An addition of admission contradicts the template.
    #[error(
        "pod set {pod_set:?}: conflict for {field}: conflict for key={key}, value1={has}, value2={wanted}"
    )]
    Conflict {
        /// The pod set.
        pod_set: String,
        /// `nodeSelector`, `labels` or `annotations`.
        field: &'static str,
        /// The key that both have.
        key: String,
        /// The template's value.
        has: String,
        /// The value to add.
        wanted: String,
    },
    /// The admission's pod sets are not the job's.
    #[error("the admission has the pod sets {admitted:?}, but the job has {job:?}")]
    PodSets {
        /// Names in the admission.
        admitted: Vec<String>,
        /// Names in the job.
        job: Vec<String>,
    },
    /// The job's kind has no place for what admission adds.
    #[error("pod set {pod_set:?}: the declaration of the kind has no place for {field}")]
    NoPlace {
        /// The pod set.
        pod_set: String,
        /// The field of a pod template.
        field: &'static str,
    },
    /// The admission has another number of pods, and the job's kind or the job does not allow it.
    #[error("pod set {pod_set:?}: {admitted} pods are admitted, but the job needs {needed}")]
    Count {
        /// The pod set.
        pod_set: String,
        /// Admitted pods.
        admitted: i32,
        /// The job's pods.
        needed: i32,
    },
}

/// The infos in the order of the job's pod sets; both must have the same names.
pub(crate) fn paired<'a>(
    view: &'a JobView,
    infos: &'a [PodSetInfo],
) -> Result<Vec<(&'a JobPodSet, &'a PodSetInfo)>, StartError> {
    let pairs: Option<Vec<_>> = view
        .pod_sets
        .iter()
        .map(|pod_set| infos.iter().find(|info| info.name == pod_set.name).map(|info| (pod_set, info)))
        .collect();
    pairs.filter(|pairs| pairs.len() == infos.len()).ok_or_else(|| StartError::PodSets {
        admitted: infos.iter().map(|info| info.name.clone()).collect(),
        job: view.pod_sets.iter().map(|pod_set| pod_set.name.clone()).collect(),
    })
}

/// Pods of a pod set that may still be created: ended pods without a replacement need no admission.
pub(crate) fn still_needed(view: &JobView, pod_set: &JobPodSet) -> i32 {
    let ended =
        view.reclaimable.iter().find(|(name, _)| *name == pod_set.name).map_or(0, |(_, ended)| *ended);
    pod_set.count.saturating_sub(ended).max(0)
}

/// Whether the pods of a start wait for a slice with room for them: then it is no matter how many the job asks for.
pub(crate) fn holds_pods_back(info: &PodSetInfo) -> bool {
    info.scheduling.scheduling_gates.iter().any(|gate| gate.name == labels::ELASTIC_JOB_SCHEDULING_GATE)
}

/// The template after adding what admission asks for (docs/reference/07-integrations.md 7.1 "Run").
pub(crate) fn merged(pod_set: &JobPodSet, info: &PodSetInfo) -> Result<PodScheduling, StartError> {
    let conflict = |field| {
        move |(key, has, wanted)| StartError::Conflict {
            pod_set: pod_set.name.clone(),
            field,
            key,
            has,
            wanted,
        }
    };
    let (has, adds) = (&pod_set.scheduling, &info.scheduling);
    let mut result = has.clone();
    add_keys(&mut result.node_selector, &adds.node_selector).map_err(conflict("nodeSelector"))?;
    add_keys(&mut result.labels, &adds.labels).map_err(conflict("labels"))?;
    if adds.annotations.contains_key(labels::WORKLOAD) {
        // A template that was copied from a running job still names that job's Workload.
        result.annotations.remove(labels::WORKLOAD);
    }
    if adds.annotations.contains_key(labels::WORKLOAD_SLICE_NAME) {
        result.annotations.remove(labels::WORKLOAD_SLICE_NAME);
    }
    add_keys(&mut result.annotations, &adds.annotations).map_err(conflict("annotations"))?;
    for toleration in &adds.tolerations {
        if !result.tolerations.contains(toleration) {
            result.tolerations.push(toleration.clone());
        }
    }
    for gate in &adds.scheduling_gates {
        if !result.scheduling_gates.contains(gate) {
            result.scheduling_gates.push(gate.clone());
        }
    }
    if let Some(nodes) = adds.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref()) {
        result.affinity = Some(Box::new(with_nodes(has.affinity.as_deref(), nodes)));
    }
    Ok(result)
}

fn add_keys(
    map: &mut BTreeMap<String, String>,
    adds: &BTreeMap<String, String>,
) -> Result<(), (String, String, String)> {
    for (key, wanted) in adds {
        match map.get(key) {
            Some(has) if has != wanted => return Err((key.clone(), has.clone(), wanted.clone())),
            Some(_) => {}
            None => {
                map.insert(key.clone(), wanted.clone());
            }
        }
    }
    Ok(())
}

/// The original template's scheduling with the current values of keys that the job controller owns: these are in no Workload, and must survive
/// (docs/reference/07-integrations.md 7.2).
pub(crate) fn restored(pod_set: &JobPodSet, info: &PodSetInfo, generated_labels: &[&str]) -> PodScheduling {
    let mut target = info.scheduling.clone();
    for key in generated_labels {
        if let Some(value) = pod_set.scheduling.labels.get(*key) {
            target.labels.insert((*key).to_owned(), value.clone());
        }
    }
    target
}

/// The merge patch of a pod template that leads from one state to another; `None` when they are equal.
pub(crate) fn template_merge(from: &PodScheduling, to: &PodScheduling) -> Option<Value> {
    let mut metadata = Map::new();
    put_map(&mut metadata, "labels", &from.labels, &to.labels);
    put_map(&mut metadata, "annotations", &from.annotations, &to.annotations);
    let mut spec = Map::new();
    put_map(&mut spec, "nodeSelector", &from.node_selector, &to.node_selector);
    put_list(&mut spec, "tolerations", &from.tolerations, &to.tolerations);
    put_list(&mut spec, "schedulingGates", &from.scheduling_gates, &to.scheduling_gates);
    put_node_affinity(&mut spec, from.affinity.as_deref(), to.affinity.as_deref());
    let mut template = Map::new();
    for (key, part) in [("metadata", metadata), ("spec", spec)] {
        if !part.is_empty() {
            template.insert(key.to_owned(), Value::Object(part));
        }
    }
    (!template.is_empty()).then_some(Value::Object(template))
}

/// Only the affinity to nodes of a suspended Job's template may change.
fn put_node_affinity(spec: &mut Map<String, Value>, from: Option<&Affinity>, to: Option<&Affinity>) {
    let nodes = |affinity: Option<&Affinity>| affinity.and_then(|affinity| affinity.node_affinity.clone());
    let only_nodes =
        |affinity: &Affinity| affinity.pod_affinity.is_none() && affinity.pod_anti_affinity.is_none();
    if to.is_none() && from.is_some_and(only_nodes) {
        spec.insert("affinity".to_owned(), Value::Null);
        return;
    }
    if nodes(from) == nodes(to) {
        return;
    }
    let mut target = nodes(to).map_or(Value::Null, |nodes| json!(nodes));
    if let Value::Object(fields) = &mut target {
        // A merge patch removes only what it names.
        for field in [
            "preferredDuringSchedulingIgnoredDuringExecution",
            "requiredDuringSchedulingIgnoredDuringExecution",
        ] {
            fields.entry(field).or_insert(Value::Null);
        }
    }
    spec.insert("affinity".to_owned(), json!({"nodeAffinity": target}));
}

fn put_map(
    patch: &mut Map<String, Value>,
    field: &str,
    from: &BTreeMap<String, String>,
    to: &BTreeMap<String, String>,
) {
    if from == to {
        return;
    }
    if to.is_empty() {
        patch.insert(field.to_owned(), Value::Null);
        return;
    }
    let gone = from.keys().filter(|key| !to.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = to.iter().filter(|(key, value)| from.get(*key) != Some(*value));
    let changed = changed.map(|(key, value)| (key.clone(), Value::from(value.as_str())));
    patch.insert(field.to_owned(), Value::Object(gone.chain(changed).collect()));
}

fn put_list<T: PartialEq + serde::Serialize>(
    patch: &mut Map<String, Value>,
    field: &str,
    from: &[T],
    to: &[T],
) {
    if from != to {
        patch.insert(field.to_owned(), if to.is_empty() { Value::Null } else { json!(to) });
    }
}

/// The JSON patch operations that lead the pod template at `template` (a JSON pointer) from one state to another.
pub(crate) fn template_operations(
    template: &str,
    has_metadata: bool,
    from: &PodScheduling,
    to: &PodScheduling,
) -> Vec<Value> {
    let mut operations = Vec::new();
    let metadata = format!("{template}/metadata");
    let needs_metadata = !to.labels.is_empty() || !to.annotations.is_empty();
    if needs_metadata && !has_metadata {
        operations.push(json!({"op": "add", "path": metadata, "value": {}}));
    }
    let spec = format!("{template}/spec");
    let fields = [
        (&metadata, "labels", json!(from.labels), json!(to.labels)),
        (&metadata, "annotations", json!(from.annotations), json!(to.annotations)),
        (&spec, "nodeSelector", json!(from.node_selector), json!(to.node_selector)),
        (&spec, "tolerations", json!(from.tolerations), json!(to.tolerations)),
        (&spec, "schedulingGates", json!(from.scheduling_gates), json!(to.scheduling_gates)),
    ];
    for (parent, field, from, to) in fields {
        let path = format!("{parent}/{field}");
        if from == to {
        } else if is_empty(&to) {
            operations.push(json!({"op": "remove", "path": path}));
        } else {
            // `add` replaces a field that exists.
            operations.push(json!({"op": "add", "path": path, "value": to}));
        }
    }
    if from.affinity != to.affinity {
        let path = format!("{spec}/affinity");
        operations.push(match &to.affinity {
            Some(affinity) => json!({"op": "add", "path": path, "value": affinity}),
            None => json!({"op": "remove", "path": path}),
        });
    }
    operations
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The affinity that the merge patch has to restore after a preference for nodes was added.
    fn restored_affinity(original: &Value) -> Value {
        let read = |value: &Value| PodScheduling {
            affinity: serde_json::from_value(value.clone()).unwrap(),
            ..PodScheduling::default()
        };
        let mut changed = if original.is_null() { json!({}) } else { original.clone() };
        changed["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
            json!([{"weight": 100, "preference": {}}]);
        let patch = template_merge(&read(&changed), &read(original)).unwrap();
        let mut template = json!({"spec": {"affinity": changed}});
        json_patch::merge(&mut template, &patch);
        template["spec"]["affinity"].take()
    }

    #[test]
    fn an_affinity_is_restored_to_the_letter() {
        let pods = json!({"podAffinity": {}});
        for original in [
            Value::Null,
            json!({}),
            json!({"nodeAffinity": {}}),
            json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}),
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}),
            pods.clone(),
        ] {
            assert_eq!(restored_affinity(&original), original);
        }
    }
}
