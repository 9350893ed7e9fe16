//! How many pods a group may have: all of them own its Workload, which etcd must store. Nothing runs here; an API server stores what the manager
//! would write.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Error;
use kube::api::{Api, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_jobs::pods::{Group, MAX_OWNER_BYTES, Member, owner_bytes, owner_reference};
use sluice_testkit::workloads;

use crate::bed::definitions;

/// What etcd takes at most (`--max-request-bytes`, by default). It has a margin above that, which is not counted on.
const ETCD: usize = 1_572_864;

/// The references to the pods of a group of `pods`, and the pods' names.
fn owners(pods: usize, length: usize) -> Vec<OwnerReference> {
    let pod = |at: usize| {
        let name = format!("{at:a>length$}");
        let uid = format!("00000000-0000-4000-8000-{at:012}");
        let total = pods.to_string();
        let read = json!({
            "metadata": {
                "namespace": "default", "name": name, "uid": uid, "finalizers": ["kueue.x-k8s.io/managed"],
                "labels": {"kueue.x-k8s.io/pod-group-name": "g", "kueue.x-k8s.io/managed": "true"},
                "annotations": {"kueue.x-k8s.io/pod-group-total-count": total, "kueue.x-k8s.io/role-hash": "main"},
            },
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        });
        Member::observe(&read, &sluice_api::gates::Gates::default())
    };
    let mut group = Group::new(&[]);
    for at in 0..pods {
        group.insert(pod(at));
    }
    let refused = group.compose("g").err().map(|why| why.to_string());
    assert_eq!(refused, None, "{pods} pods with names of {length} characters");
    group.members().map(owner_reference).collect()
}

fn workload(name: &str, pods: usize, owners: Vec<OwnerReference>) -> DynamicObject {
    let mut object: DynamicObject = serde_json::from_value(json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {},
        "spec": {
            "queueName": "lq",
            "podSets": [{
                "name": "main", "count": pods,
                "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}},
            }],
        },
    }))
    .unwrap();
    object.metadata =
        ObjectMeta { name: Some(name.to_owned()), owner_references: Some(owners), ..ObjectMeta::default() };
    object
}

/// An admission of pods that are on as many nodes, with names that have nothing in common and are as long as they may be.
fn admission(pods: usize) -> Value {
    let roots: Vec<_> = (0..pods).map(|at| format!("{at:0<63}")).collect();
    let assignment = json!({
        "levels": ["kubernetes.io/hostname"],
        "slices": [{
            "domainCount": pods, "podCounts": {"universal": 1},
            "valuesPerLevel": [{"individual": {"roots": roots}}],
        }],
    });
    json!({"status": {"admission": {
        "clusterQueue": "cq",
        "podSetAssignments": [{"name": "main", "count": pods, "topologyAssignment": assignment}],
    }}})
}

fn size(object: &DynamicObject) -> usize {
    serde_json::to_vec(object).unwrap().len()
}

#[tokio::test]
async fn the_workload_of_a_group_that_is_not_refused_can_be_stored_with_a_node_for_each_pod() {
    let client = definitions().await.client().await.unwrap();
    let api: Api<DynamicObject> = workloads::namespaced(&client, "default", "Workload", "workloads");
    let params = PostParams::default();
    // Names as most pods have them, as long as those of other objects may be, and as long as those of pods.
    for length in [20, 63, 253] {
        let name = format!("owned-{length}");
        let pods = MAX_OWNER_BYTES / (owner_bytes("") + length);
        let owners = owners(pods, length);
        let bytes: usize = owners.iter().map(|owner| owner_bytes(&owner.name)).sum();
        let bare = api.create(&params, &workload(&format!("bare-{length}"), pods, Vec::new())).await.unwrap();
        let made = api.create(&params, &workload(&name, pods, owners)).await.unwrap();
        // What is stored of the owners is as large as was worked out, but for the brackets and names of the two lists.
        let grown = size(&made) - size(&bare);
        assert!(grown.abs_diff(bytes) < 100, "{length}: {grown} bytes, not {bytes}");
        let change = Patch::Merge(admission(pods));
        let full = api.patch_status(&name, &PatchParams::default(), &change).await.unwrap();
        assert!((MAX_OWNER_BYTES..ETCD).contains(&size(&full)), "{length}: {} bytes", size(&full));
        assert_eq!(full.metadata.owner_references.map(|owners| owners.len()), Some(pods));
    }
}

#[tokio::test]
async fn ten_thousand_owners_with_long_names_would_not_be_stored() {
    let client = definitions().await.client().await.unwrap();
    let api: Api<DynamicObject> = workloads::namespaced(&client, "default", "Workload", "workloads");
    let owner = |at: usize| OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: format!("{at:a>180}"),
        uid: format!("00000000-0000-4000-8000-{at:012}"),
        controller: None,
        block_owner_deletion: None,
    };
    let object = workload("too-large", 10_000, (0..10_000).map(owner).collect());
    let answer = api.create(&PostParams::default(), &object).await;
    let Err(Error::Api(status)) = answer else { unreachable!("they were stored") };
    let too_large = ["too large", "larger than max"].iter().any(|why| status.message.contains(why));
    assert!(too_large, "{status:?}");
}
