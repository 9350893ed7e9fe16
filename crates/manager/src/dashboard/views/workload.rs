//! The view of one Workload: what it is, its pods, its checks, and its whole life.

use serde_json::{Value, json};
use sluice_api::journal::WorkloadLine;
use sluice_api::slim;
use sluice_api::v1beta2::PodSetAssignment;

use super::items::item;
use super::life::life;
use crate::dashboard::placed::lowest;
use crate::dashboard::rows::{WorkloadRow, controller};
use crate::dashboard::snapshot::Snapshot;
use crate::dashboard::viewer::Viewer;

/// Nodes of a pod set that are shown at most.
const MOST_NODES: usize = 1000;

/// The answer, for a viewer who may see the Workload. `past` has its events, if they may be read, and the journal's lines.
pub fn workload(
    snapshot: &Snapshot,
    viewer: &Viewer,
    workload: &slim::Workload,
    past: (Option<&[Value]>, &[WorkloadLine]),
    position: Option<usize>,
) -> Value {
    let row = WorkloadRow::of(workload);
    let mut item = item(&row, position, viewer);
    item["clusterQueue"] = json!(snapshot.queue_of(&row));
    json!({
        "item": item,
        "job": job(workload),
        "life": life(snapshot, &row, workload, past),
        "podSets": pod_sets(workload, viewer),
        "checks": checks(workload),
    })
}

fn job(workload: &slim::Workload) -> Value {
    let owner = controller(workload.metadata.owner_references.as_deref());
    owner.map_or(Value::Null, |owner| json!({"kind": owner.kind, "name": owner.name}))
}

/// Nodes are named to those who may list them, and counted for all.
fn pod_sets(workload: &slim::Workload, viewer: &Viewer) -> Vec<Value> {
    let admission = workload.status.admission.as_ref();
    let assigned = |name: &str| -> Option<&PodSetAssignment> {
        admission?.pod_set_assignments.iter().find(|assigned| assigned.name == name)
    };
    let shown = |pod_set: &slim::PodSet| {
        let assigned = assigned(&pod_set.name);
        let topology = assigned.and_then(|assigned| assigned.topology_assignment.as_ref());
        let named = topology.filter(|_| viewer.nodes);
        let nodes =
            named.map(|topology| lowest(topology).take(MOST_NODES).map(|(node, _)| node).collect::<Vec<_>>());
        json!({
            "name": pod_set.name,
            "count": assigned.and_then(|assigned| assigned.count).unwrap_or(pod_set.count),
            "flavors": assigned.map(|assigned| &assigned.flavors),
            "nodeCount": topology.map(|topology| lowest(topology).count()),
            "nodes": nodes,
        })
    };
    workload.spec.pod_sets.iter().map(shown).collect()
}

fn checks(workload: &slim::Workload) -> Vec<Value> {
    let shown = |check: &sluice_api::v1beta2::AdmissionCheckState| json!({"name": check.name, "state": check.state, "message": check.message});
    workload.status.admission_checks.iter().map(shown).collect()
}
