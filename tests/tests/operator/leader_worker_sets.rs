//! LeaderWorkerSets, with their real controllers: each group is queued, admitted, replaced, preempted and deleted by itself; and what users may try.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_testkit::assets::Tool;
use sluice_testkit::controllers::Controllers;
use sluice_testkit::lws;
use sluice_testkit::needs;
use sluice_testkit::wait::{consistently, eventually, progress};
use sluice_tests::place::{DEADLINE, Place, QUEUE_NAME, create};
use tokio::sync::OnceCell;

use crate::bed::bed;
use crate::flavors::{flavors, set_quota, two_flavors};
use crate::marks::{expected, of_pod, while_marking};
use crate::pods::{delete, make, pods, states, urgent, wait_for_workload, wait_until_gone};
use crate::serving::wait_for_pods;

const KIND: JobKind = JobKind::LEADER_WORKER_SET;
/// A rollout takes group after group.
const ROLLOUT: Duration = Duration::from_mins(3);

static CONTROLLERS: OnceCell<Controllers> = OnceCell::const_new();

/// A place with a priority class of its name, and with LeaderWorkerSets.
pub async fn place(name: &'static str, quota: [u32; 2]) -> Place<'static> {
    CONTROLLERS.get_or_try_init(|| async { lws::start(bed().await.plane).await }).await.unwrap();
    let place = two_flavors(name, quota).await;
    let class = json!({"metadata": {"name": name}, "value": 1_000});
    create(&place.global("WorkloadPriorityClass", "workloadpriorityclasses"), class).await.unwrap();
    place
}

fn sets(place: &Place<'_>) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk(KIND.group(), KIND.version(), KIND.kind());
    let resource = ApiResource::from_gvk_with_plural(&kind, KIND.plural());
    Api::namespaced_with(place.client.clone(), &place.name, &resource)
}

/// A pod template that asks for one processor.
pub fn template(image: &str) -> Value {
    json!({
        "metadata": {"annotations": {"sluice.dev/run-seconds": "3600"}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": image, "resources": {"requests": {"cpu": "1"}}}],
        },
    })
}

/// Groups of a leader and a worker, with templates of their own.
pub fn set(name: &str, replicas: i32) -> Value {
    json!({
        "apiVersion": KIND.api_version(), "kind": KIND.kind(),
        "metadata": {"name": name, "labels": {QUEUE_NAME: "lq"}},
        "spec": {
            "replicas": replicas,
            "leaderWorkerTemplate": {
                "size": 2, "leaderTemplate": template("none"), "workerTemplate": template("none"),
            },
        },
    })
}

async fn apply(place: &Place<'_>, object: Value) {
    sets(place).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

async fn change(place: &Place<'_>, name: &str, patch: Value) -> kube::Result<DynamicObject> {
    sets(place).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
}

async fn scale(place: &Place<'_>, name: &str, replicas: i32) {
    change(place, name, json!({"spec": {"replicas": replicas}})).await.unwrap();
}

async fn remove(place: &Place<'_>, name: &str) {
    sets(place).delete(name, &DeleteParams::background()).await.unwrap();
}

/// Name and UID of each Workload here by its group, all of which are of LeaderWorkerSets.
async fn workloads(place: &Place<'_>) -> BTreeMap<String, (String, String)> {
    let all = place.workloads().list(&ListParams::default()).await.unwrap().items;
    let of = |workload: DynamicObject| {
        let metadata = workload.metadata;
        let (name, annotations) = (metadata.name.unwrap(), metadata.annotations.unwrap());
        assert!(name.starts_with("leaderworkerset-"), "no StatefulSet is queued: {name}");
        let group = format!(
            "{}/{}",
            annotations["kueue.x-k8s.io/job-owner-name"],
            annotations["kueue.x-k8s.io/component-workload-index"]
        );
        (group, (name, metadata.uid.unwrap()))
    };
    all.into_iter().map(of).collect()
}

async fn wait_for_groups(place: &Place<'_>, wanted: &[&str]) {
    eventually(&format!("the Workloads of {} to be {wanted:?}", place.name), DEADLINE, || async {
        let groups: Vec<_> = workloads(place).await.into_keys().collect();
        Ok(progress(groups == wanted, format!("{groups:?}")))
    })
    .await
    .unwrap();
}

async fn objects(place: &Place<'_>) -> Vec<Pod> {
    pods(place).list(&ListParams::default()).await.unwrap().items
}

/// All pods are on the nodes of this flavor, and nothing that was made of the object names any.
async fn assert_on(place: &Place<'_>, flavor: &str) {
    let marked = expected(place, Some(flavor)).await;
    for pod in objects(place).await.into_iter().filter(|pod| pod.metadata.name.as_deref() != Some("urgent")) {
        assert_eq!(of_pod(&pod), marked, "{:?}", pod.metadata.name);
    }
    let unmarked = expected(place, None).await;
    let made: Api<StatefulSet> = Api::namespaced(place.client.clone(), &place.name);
    for made in made.list(&ListParams::default()).await.unwrap() {
        assert_eq!(of_pod(made.spec.unwrap().template), unmarked, "{:?}", made.metadata.name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_group_is_admitted_replaced_and_removed_by_itself() {
    needs!(Tool::LwsControllers);
    let place = &place("lws", [5, 0]).await;
    apply(place, set("web", 2)).await;
    wait_for_pods(place, "web-", 4, 0).await;
    wait_for_groups(place, &["web/0", "web/1"]).await;
    let made = workloads(place).await;
    for name in ["web-1", "web-1-1"] {
        let pod = pods(place).get(name).await.unwrap();
        let (labels, annotations) = (pod.metadata.labels.unwrap(), pod.metadata.annotations.unwrap());
        assert_eq!((&*labels[QUEUE_NAME], &*labels["kueue.x-k8s.io/managed"]), ("lq", "true"));
        let role = if name == "web-1" { "leader" } else { "worker" };
        for (key, value) in [
            ("pod-suspending-parent", KIND.framework()),
            ("pod-group-total-count", "2"),
            ("pod-group-serving", "true"),
            ("role-hash", role),
            ("pod-group-name", &*made["web/1"].0),
            ("prebuilt-workload-name", &*made["web/1"].0),
        ] {
            assert_eq!(annotations[&format!("kueue.x-k8s.io/{key}")], value, "{key} of {name}");
        }
        assert!(pod.metadata.finalizers.is_none(), "nothing keeps it");
    }
    // What quota is for does not change.
    let larger = json!([{"name": "main", "image": "none", "resources": {"requests": {"cpu": "2"}}}]);
    for patch in [
        json!({"spec": {"leaderWorkerTemplate": {"size": 3}}}),
        json!({"spec": {"leaderWorkerTemplate": {"workerTemplate": {"spec": {"containers": larger}}}}}),
        json!({"spec": {"leaderWorkerTemplate": {"leaderTemplate": null}}}),
        json!({"metadata": {"labels": {QUEUE_NAME: "other"}}}),
        json!({"metadata": {"labels": {QUEUE_NAME: null}}}),
        json!({"spec": {"replicas": 5_001}}),
    ] {
        let refused = change(place, "web", patch.clone()).await.unwrap_err().to_string();
        let reported = ["immutable", "cannot be added or removed", "less than or equal to 5000"];
        assert!(reported.iter().any(|reported| refused.contains(reported)), "{patch}: {refused}");
    }
    // A group that does not fit waits; the others continue.
    scale(place, "web", 3).await;
    wait_for_groups(place, &["web/0", "web/1", "web/2"]).await;
    wait_for_pods(place, "web-", 4, 2).await;
    scale(place, "web", 2).await;
    wait_for_pods(place, "web-", 4, 0).await;
    wait_for_groups(place, &["web/0", "web/1"]).await;
    // Another image is rolled out group by group, on the quota that each has.
    let newer = json!({"leaderTemplate": template("newer"), "workerTemplate": template("newer")});
    change(place, "web", json!({"spec": {"leaderWorkerTemplate": newer}})).await.unwrap();
    eventually("all pods to have the new image", ROLLOUT, || async {
        let image = |pod: &Pod| pod.spec.clone().unwrap().containers[0].image.clone().unwrap();
        let images: Vec<_> = objects(place).await.iter().map(image).collect();
        Ok(progress(images == ["newer"; 4], format!("{images:?}")))
    })
    .await
    .unwrap();
    wait_for_pods(place, "web-", 4, 0).await;
    assert_eq!(workloads(place).await, made);
    // Without groups nothing is left; others may have the quota.
    scale(place, "web", 0).await;
    wait_until_gone(place).await;
    scale(place, "web", 1).await;
    wait_for_pods(place, "web-", 2, 0).await;
    wait_for_groups(place, &["web/0"]).await;
    // Deleted while groups run and others wait.
    scale(place, "web", 4).await;
    wait_for_pods(place, "web-", 4, 4).await;
    remove(place, "web").await;
    wait_until_gone(place).await;
    place.wait_for_counts([0, 0, 0]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_preempted_as_a_whole_and_comes_back_on_another_flavor() {
    needs!(Tool::LwsControllers);
    let place = place("lws-moves", [2, 0]).await;
    while_marking(&place, moves(&place)).await;
}

async fn moves(place: &Place<'_>) {
    let [old, new] = flavors("lws-moves");
    apply(place, set("web", 1)).await;
    wait_for_pods(place, "web-", 2, 0).await;
    assert_on(place, &old).await;
    let mut large = urgent(place, "urgent");
    large["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
    make(place, large).await.unwrap();
    wait_for_workload(place, "leaderworkerset-web-0-", "Evicted", "True/Preempted").await;
    wait_for_pods(place, "urgent", 1, 0).await;
    wait_for_pods(place, "web-", 0, 2).await;
    set_quota(place, [2, 2]).await;
    wait_for_pods(place, "web-", 2, 0).await;
    assert_on(place, &new).await;
    // A pod of it that is lost comes back on the same quota, and takes its group with it, as its restart policy has it.
    // Its controller must see it go: a pod that is gone before the controller reads it restarts no group.
    let before = pods(place).get("web-0").await.unwrap().metadata.uid;
    let finalizers = async |finalizers: Value| {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
        pods(place).patch("web-0-1", &PatchParams::default(), &patch).await.unwrap();
    };
    finalizers(json!(["example.com/hold"])).await;
    delete(place, "web-0-1").await;
    eventually("the leader to be deleted", DEADLINE, || async {
        let leader = pods(place).get_opt("web-0").await?.map(|pod| pod.metadata).unwrap_or_default();
        let left = leader.deletion_timestamp.is_some() || leader.uid != before;
        Ok(progress(left, format!("{leader:?}")))
    })
    .await
    .unwrap();
    finalizers(json!([])).await;
    eventually("the group to be made again", DEADLINE, || async {
        let leader = pods(place).get_opt("web-0").await?.and_then(|pod| pod.metadata.uid);
        Ok(progress(leader.is_some() && leader != before, format!("{leader:?}")))
    })
    .await
    .unwrap();
    wait_for_pods(place, "web-", 2, 0).await;
    assert_on(place, &new).await;
    remove(place, "web").await;
    delete(place, "urgent").await;
    wait_until_gone(place).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_template_serves_all_pods_and_one_that_waits_changes_its_queue_and_goes() {
    needs!(Tool::LwsControllers);
    let place = &place("lws-waits", [2, 0]).await;
    // Workers come when their leader is ready: the quota for them is there by then.
    let mut late = set("late", 1);
    late["spec"]["startupPolicy"] = json!("LeaderReady");
    late["spec"]["leaderWorkerTemplate"].as_object_mut().unwrap().remove("leaderTemplate");
    late["metadata"]["labels"][QUEUE_NAME] = json!("nowhere");
    apply(place, late).await;
    wait_for_workload(place, "leaderworkerset-late-0-", "QuotaReserved", "False/Misconfigured").await;
    wait_for_pods(place, "late-", 0, 1).await;
    change(place, "late", json!({"metadata": {"labels": {QUEUE_NAME: "lq"}}})).await.unwrap();
    wait_for_pods(place, "late-", 2, 0).await;
    let workload = crate::pods::workload(place, "leaderworkerset-late-0-").await.unwrap().unwrap();
    let pod_sets = &workload.data["spec"]["podSets"];
    assert_eq!((&pod_sets[0]["name"], &pod_sets[0]["count"]), (&json!("main"), &json!(2)));
    // One that waits is deleted.
    apply(place, set("web", 2)).await;
    wait_for_groups(place, &["late/0", "web/0", "web/1"]).await;
    wait_for_pods(place, "web-", 0, 4).await;
    remove(place, "web").await;
    wait_for_pods(place, "web-", 0, 0).await;
    wait_for_groups(place, &["late/0"]).await;
    wait_for_pods(place, "late-", 2, 0).await;
    remove(place, "late").await;
    wait_until_gone(place).await;
}

/// A pod with the marks of this pod of `web`, under another name, which claims to be one of the same StatefulSet.
async fn claimed(place: &Place<'_>, of: &str, name: &str, group: &str) -> Value {
    let metadata = serde_json::to_value(pods(place).get(of).await.unwrap().metadata).unwrap();
    let mut pod = urgent(place, name);
    for field in ["labels", "annotations", "ownerReferences"] {
        pod["metadata"][field] = metadata[field].clone();
    }
    pod["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/group-index"] = json!(group);
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_runs_that_only_claims_to_be_of_a_group() {
    needs!(Tool::LwsControllers);
    let place = &place("lws-forged", [3, 0]).await;
    apply(place, set("web", 1)).await;
    wait_for_pods(place, "web-", 2, 0).await;
    // Of a group that there is not, and of one that is full.
    for (of, name, group) in [("web-0", "web-7", "7"), ("web-0-1", "web-0-9", "0")] {
        let pod = claimed(place, of, name, group).await;
        let made = make(place, pod).await.unwrap();
        assert!(made.spec.unwrap().scheduling_gates.is_some_and(|gates| !gates.is_empty()), "{name}");
        // Its gates may be taken off by those who may change pods.
        let open = Patch::Merge(json!({"spec": {"schedulingGates": null}}));
        drop(pods(place).patch(name, &PatchParams::default(), &open).await);
    }
    eventually("no pod but those of the group to run", DEADLINE, || async {
        let states = states(place).await?;
        let own = ["web-0", "web-0-1"];
        let others = states.iter().filter(|(name, state)| !own.contains(&&**name) && *state != "waits");
        Ok(progress(others.count() == 0, format!("{states:?}")))
    })
    .await
    .unwrap();
    // A StatefulSet that says to be of a LeaderWorkerSet is not queued, and its pods do not run.
    let forged = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "forged", "labels": {QUEUE_NAME: "lq"}},
        "spec": {
            "replicas": 1, "serviceName": "forged", "selector": {"matchLabels": {"app": "forged"}},
            "template": {
                "metadata": {
                    "labels": {"app": "forged"},
                    "annotations": {"kueue.x-k8s.io/pod-suspending-parent": KIND.framework()},
                },
                "spec": template("none")["spec"],
            },
        },
    });
    let all: Api<StatefulSet> = Api::namespaced(place.client.clone(), &place.name);
    all.create(&PostParams::default(), &serde_json::from_value(forged).unwrap()).await.unwrap();
    wait_for_pods(place, "forged-", 0, 1).await;
    consistently("no pod but those of the group to run", Duration::from_secs(3), || async {
        let states = states(place).await?;
        let own = ["web-0", "web-0-1"];
        let others = states.iter().filter(|(name, state)| !own.contains(&&**name) && *state == "runs");
        Ok(progress(others.count() == 0, format!("{states:?}")))
    })
    .await
    .unwrap();
    // The controller of LeaderWorkerSets makes a group again when a pod with its marks ends.
    wait_for_pods(place, "web-", 2, 0).await;
    wait_for_groups(place, &["web/0"]).await;
    all.delete("forged", &DeleteParams::background()).await.unwrap();
    remove(place, "web").await;
    for name in ["web-7", "web-0-9"] {
        drop(pods(place).delete(name, &DeleteParams::default()).await);
    }
    wait_until_gone(place).await;
}
