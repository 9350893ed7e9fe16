//! Workloads that the manager refuses for a reason that a virtual cluster does not know: they would start in it at once, so they are left out.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_engine::WorkloadKey;
use sluice_sim::explain::AsRead;
use sluice_sim::{Kind, Manifest, Manifests, Packed};

use crate::dashboard::viewer::Viewer;

/// The highest number of names in the answer.
const MOST_NAMED: usize = 20;

/// Workloads that the manager refuses: those that nevertheless start at once in the virtual cluster are refused for a reason that is not known there.
pub fn candidates(manifests: &Manifests, now: Timestamp) -> Vec<WorkloadKey> {
    let read = AsRead::new(manifests, now);
    let workloads = manifests.objects.iter().filter(|manifest| manifest.kind == Kind::Workload);
    let keys = workloads.map(|manifest| key(&manifest.object));
    keys.filter(|key| read.refused(key).is_some()).collect()
}

fn key(workload: &Value) -> WorkloadKey {
    let text = |field: &str| workload["metadata"][field].as_str().unwrap_or_default().into();
    WorkloadKey { namespace: text("namespace"), name: text("name") }
}

/// Takes them and their jobs out of a world.
pub fn leave_out(world: &mut Packed, refused: &BTreeSet<WorkloadKey>) {
    let is_refused =
        |manifest: &Manifest| manifest.kind == Kind::Workload && refused.contains(&key(&manifest.object));
    let mut jobs: BTreeSet<String> = BTreeSet::new();
    for manifest in world.iter().filter(is_refused) {
        let owners = manifest.object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        jobs.extend(
            owners.filter_map(|owner| owner["uid"].as_str()).filter(|uid| !uid.is_empty()).map(str::to_owned),
        );
    }
    world.retain(|manifest| {
        let uid = manifest.object["metadata"]["uid"].as_str().unwrap_or_default();
        let is_job = matches!(manifest.kind, Kind::Job(_)) && jobs.contains(uid);
        !is_job && !is_refused(manifest)
    });
}

/// How many are left out, and the names of those that the viewer may know.
pub fn reported(refused: &BTreeSet<WorkloadKey>, viewer: &Viewer) -> Value {
    let own = refused.iter().filter(|key| viewer.sees(&key.namespace)).take(MOST_NAMED);
    let names: Vec<String> = own.map(|key| format!("{}/{}", key.namespace, key.name)).collect();
    json!({"count": refused.len(), "names": names})
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_sim::Source;

    fn manifest(kind: Kind, object: Value) -> Manifest {
        Manifest { source: Source { file: String::new(), document: 1 }, kind, object }
    }

    #[test]
    fn a_workload_goes_with_its_jobs_and_names_are_for_those_who_may_see_them() {
        let job = Kind::Job(sluice_api::job::JobKind::JOB);
        let named = |name: &str, uid: &str, owner: &str| json!({"metadata": {"name": name, "namespace": "a", "uid": uid, "ownerReferences": [{"uid": owner}]}});
        let objects = vec![
            manifest(Kind::Workload, named("w", "1", "2")),
            manifest(job, named("w", "2", "")),
            manifest(Kind::Workload, named("v", "3", "")),
            manifest(job, named("v", "4", "9")),
        ];
        let refused = BTreeSet::from([WorkloadKey { namespace: "a".into(), name: "w".into() }]);
        let mut world = Packed::new(Manifests { objects, ..Manifests::default() });
        leave_out(&mut world, &refused);
        let left: Vec<_> = world.iter().map(|manifest| manifest.object["metadata"]["uid"].clone()).collect();
        assert_eq!(left, ["3", "4"]);
        let viewer = |namespace: &str| Viewer { namespaces: [namespace.into()].into(), ..Viewer::default() };
        assert_eq!(reported(&refused, &viewer("a")), json!({"count": 1, "names": ["a/w"]}));
        assert_eq!(reported(&refused, &viewer("b")), json!({"count": 1, "names": []}));
    }
}
