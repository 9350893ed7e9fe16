//! Where the pods of a waiting job may run: its user may change that while it waits, and its Workload follows.

use k8s_openapi::api::core::v1::Affinity;
use serde_json::Value;
use sluice_api::gates::Gate;
use sluice_api::job::JobPodSet;
use sluice_api::v1beta2::PodSetTopologyRequest;
use sluice_api::{labels, slim};

use crate::config::EngineConfig;

/// The topology request of a Workload's pod set for a pod set of a job.
pub(super) fn topology_request(set: &JobPodSet, config: &EngineConfig) -> Option<PodSetTopologyRequest> {
    let topology = config.on(Gate::TopologyAwareScheduling);
    let mut request = set.topology_request.as_deref().filter(|_| topology)?.clone();
    if !config.on(Gate::TASMultiLayerTopology) {
        request.podset_slice_required_topology_constraints.clear();
    }
    Some(request)
}

/// Whether a pod set of a job and that of its Workload name the same nodes: by labels, by affinity, and by the topology.
pub(super) fn asks_for_the_same_places(set: &slim::PodSet, job: &JobPodSet, config: &EngineConfig) -> bool {
    let (known, own) = (&set.template, &job.scheduling);
    known.node_selector == own.node_selector
        && is_same_affinity(known.affinity.as_deref(), own.affinity.as_deref())
        && asked(set.topology_request.as_deref()) == asked(topology_request(job, config).as_ref())
}

/// A request that requests something. One that only has the labels of indices may be missing if another manager wrote the Workload.
fn asked(request: Option<&PodSetTopologyRequest>) -> Option<&PodSetTopologyRequest> {
    request.filter(|request| request.is_explicit())
}

/// Whether a template that waits still has what a start added: it was stopped past the manager, and not restored. What it says is then not its
/// user's word. A copy of a running job says the same as its Workload.
pub(super) fn is_as_started(set: &slim::PodSet, job: &JobPodSet) -> bool {
    let of = job.scheduling.annotations.get(labels::WORKLOAD);
    of.is_some() && of != set.template.annotations.get(labels::WORKLOAD)
}

/// Whether two affinities to nodes mean the same: Kueue's Workloads lack what is empty.
fn is_same_affinity(known: Option<&Affinity>, own: Option<&Affinity>) -> bool {
    let nodes = |affinity: Option<&Affinity>| affinity.and_then(|affinity| affinity.node_affinity.clone());
    let (known, own) = (nodes(known), nodes(own));
    known == own || filled(serde_json::json!(known)) == filled(serde_json::json!(own))
}

/// A value without empty fields. The items of a list stay: an empty term selects no node.
fn filled(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(key, value)| (key, filled(value)));
            let fields: serde_json::Map<_, _> = fields.filter(|(_, value)| !value.is_null()).collect();
            if fields.is_empty() { Value::Null } else { Value::Object(fields) }
        }
        Value::Array(items) if items.is_empty() => Value::Null,
        Value::Array(items) => Value::Array(items.into_iter().map(filled).collect()),
        Value::String(text) if text.is_empty() => Value::Null,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn same(known: Value, own: Value) -> bool {
        let affinity =
            |nodes: Value| serde_json::from_value::<Affinity>(json!({"nodeAffinity": nodes})).unwrap();
        is_same_affinity(Some(&affinity(known)), Some(&affinity(own)))
    }

    #[test]
    fn an_affinity_is_the_same_with_or_without_what_is_empty() {
        let required = |terms: Value| json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        let long = json!([{"matchExpressions": [{"key": "a", "operator": "Exists", "values": []}], "matchFields": []}]);
        let short = json!([{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]);
        assert!(same(required(long.clone()), required(short.clone())));
        assert!(same(json!({}), json!({"preferredDuringSchedulingIgnoredDuringExecution": []})));
        assert!(is_same_affinity(None, Some(&Affinity::default())));
        assert!(!same(required(short.clone()), json!({})));
        assert!(!same(
            required(short),
            required(json!([{"matchExpressions": [{"key": "b", "operator": "Exists"}]}]))
        ));
        // A term that says nothing selects nothing.
        assert!(!same(required(json!([{}])), json!({})));
        assert!(!same(required(json!([{}])), required(long)));
    }
}
