//! Jobs whose pods have to be close together, on nodes in racks, run by the real controllers and bound by the real scheduler.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use sluice_testkit::jobset::JobSet;
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::{ControlPlane, nodes};
use sluice_tests::place::{DEADLINE, Place, QUEUE_NAME, create, job, patch, quota, reported};

use crate::bed::bed;
use crate::flavors::POOL;

pub const RACK: &str = "test-rack";
const HOSTNAME: &str = "kubernetes.io/hostname";
const GATE: &str = "kueue.x-k8s.io/topology";
const REQUIRED: &str = "kueue.x-k8s.io/podset-required-topology";
pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";
pub const JOB_NAME: &str = "batch.kubernetes.io/job-name";

/// A place with racks of nodes of 4 processors each, which no other pod can use, and a queue with enough quota for all of them.
/// The nodes of rack `a` are called `<place>-a-0` and so on.
async fn racks(name: &'static str, racks: &[(&str, u32)]) -> Place<'static> {
    let preemption = json!({"withinClusterQueue": "LowerPriority"});
    racks_on(bed().await.plane, name, racks, &preemption).await
}

/// The same on a plane, with a queue that preempts so.
pub async fn racks_on(
    plane: &'static ControlPlane,
    name: &'static str,
    racks: &[(&str, u32)],
    preemption: &Value,
) -> Place<'static> {
    let team = Place::bare(plane, name).await.unwrap();
    for (rack, nodes) in racks {
        add(&team, rack, *nodes).await;
    }
    let levels = json!([{"nodeLabel": RACK}, {"nodeLabel": HOSTNAME}]);
    let topologies = team.global("Topology", "topologies");
    create(&topologies, json!({"metadata": {"name": name}, "spec": {"levels": levels}})).await.unwrap();
    let tolerations = json!([{"key": POOL, "operator": "Exists"}]);
    let spec = json!({"nodeLabels": {POOL: name}, "tolerations": tolerations, "topologyName": name});
    let flavors = team.global("ResourceFlavor", "resourceflavors");
    create(&flavors, json!({"metadata": {"name": name}, "spec": spec})).await.unwrap();
    let spec = json!({
        "namespaceSelector": {},
        "preemption": preemption,
        "resourceGroups": [quota(name, 1_000)],
    });
    create(&team.cluster_queues(), json!({"metadata": {"name": name}, "spec": spec})).await.unwrap();
    team.local_queue("lq", name).await.unwrap();
    // Nodes, pods and jobs come by watches of their own: the jobs of a test come once all nodes are seen.
    take_all(&team, racks.iter().map(|(_, nodes)| nodes).sum()).await;
    team
}

/// Lets a Workload without pods take whole nodes, and go again.
async fn take_all(place: &Place<'_>, nodes: u32) {
    let workloads = place.workloads();
    create(&workloads, whole_nodes(nodes)).await.unwrap();
    eventually(&format!("{nodes} nodes of {} to be taken", place.name), DEADLINE, || async {
        let status = reported(&serde_json::to_value(workloads.get("whole").await?)?, "Admitted");
        Ok(progress(status.starts_with("True"), status))
    })
    .await
    .unwrap();
    workloads.delete("whole", &DeleteParams::default()).await.unwrap();
}

/// A Workload that takes `count` whole nodes, wherever they are.
fn whole_nodes(count: u32) -> Value {
    let container = json!({"name": "main", "image": "none", "resources": {"requests": {"cpu": "4"}}});
    let unconstrained = json!({"unconstrained": true});
    let set = json!({
        "name": "main", "count": count, "topologyRequest": unconstrained,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    });
    json!({"metadata": {"name": "whole"}, "spec": {"queueName": "lq", "podSets": [set]}})
}

/// Adds a rack.
async fn add(place: &Place<'_>, rack: &str, nodes: u32) {
    let name = format!("{}-{rack}", place.name);
    let pool = nodes::pool(&name, nodes).label(POOL, &place.name).label(RACK, &name).allocatable("cpu", "4");
    pool.taint(POOL, &place.name, "NoSchedule").make(&place.client).await.unwrap();
}

pub fn hosts(place: &Place<'_>) -> Api<Node> {
    Api::all(place.client.clone())
}

/// An indexed Job of pods of `cpu` processors, which have to be in one rack.
fn in_one_rack(name: &str, cpu: u32, pods: u32) -> Value {
    let mut job = job(name, "lq", cpu, pods, 3_600);
    job["spec"]["completionMode"] = json!("Indexed");
    job["spec"]["template"]["metadata"]["annotations"][REQUIRED] = json!(RACK);
    job
}

/// Where the running pods of a Job are: the node, without the place's name, of each index.
async fn whereabouts(place: &Place<'_>, job: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let pods = place.pods_with(&format!("{JOB_NAME}={job}")).await?;
    let runs = pods
        .iter()
        .filter(|pod| pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null());
    Ok(runs
        .map(|pod| {
            let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
            let index = pod["metadata"]["labels"][INDEX].as_str().unwrap_or_default();
            (index.to_owned(), node.trim_start_matches(&format!("{}-", place.name)).to_owned())
        })
        .collect())
}

/// Waits until the pods of a Job run on these nodes, in the order of their indices.
pub async fn wait_for_nodes(place: &Place<'_>, job: &str, wanted: &[&str]) {
    eventually(&format!("the pods of {}/{job} to be on {wanted:?}", place.name), DEADLINE, || async {
        let on = whereabouts(place, job).await?;
        Ok(progress(on.values().eq(wanted), format!("{on:?}")))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn neighbours_in_rank_are_neighbours_in_the_topology_and_nothing_is_left_after_a_stop() {
    let place = Box::pin(racks("tas-ranks", &[("a", 2), ("b", 3)])).await;
    let before = in_one_rack("train", 2, 6);
    place.make_job(&before).await.unwrap();
    wait_for_nodes(&place, "train", &["b-0", "b-0", "b-1", "b-1", "b-2", "b-2"]).await;

    let workload = place.workload("train").await.unwrap();
    let name = workload["metadata"]["name"].as_str().unwrap();
    let assignment = &workload["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"];
    assert_eq!(assignment["levels"], json!([HOSTNAME]));
    for pod in place.pods_with(&format!("{JOB_NAME}=train")).await.unwrap() {
        assert!(pod["spec"]["schedulingGates"].is_null(), "{pod}");
        assert_eq!(pod["spec"]["nodeSelector"][HOSTNAME], pod["spec"]["nodeName"]);
        assert_eq!(pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"], name);
    }

    patch(&place.workloads(), name, json!({"spec": {"active": false}})).await.unwrap();
    eventually("the template to be as it was", DEADLINE, || async {
        let after = serde_json::to_value(place.jobs().get("train").await?)?;
        let template = &after["spec"]["template"];
        let none = |value: &Value| value.as_object().is_none_or(serde_json::Map::is_empty);
        let restored = template["spec"]["schedulingGates"].is_null()
            && none(&template["spec"]["nodeSelector"])
            && template["metadata"]["labels"]["kueue.x-k8s.io/podset"].is_null();
        Ok(progress(after["spec"]["suspend"] == true && restored, template.to_string()))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_job_waits_for_a_rack_that_is_wide_enough_and_says_so() {
    let place = Box::pin(racks("tas-waits", &[("a", 2), ("b", 2)])).await;
    place.make_job(&in_one_rack("wide", 4, 3)).await.unwrap();
    let text = "False/TopologyPlacementFailed: couldn't assign flavors to pod set main: topology \"tas-waits\" allows to \
                fit only 2 out of 3 pod(s)";
    place.wait_for_condition("wide", "QuotaReserved", text).await.unwrap();
    place.make_job(&in_one_rack("narrow", 4, 2)).await.unwrap();
    wait_for_nodes(&place, "narrow", &["a-0", "a-1"]).await;
    assert!(place.suspended("wide").await.unwrap());
    add(&place, "c", 3).await;
    wait_for_nodes(&place, "wide", &["c-0", "c-1", "c-2"]).await;
}

#[tokio::test]
async fn what_other_pods_take_is_not_given_away() {
    let place = Box::pin(racks("tas-others", &[("a", 1), ("b", 1)])).await;
    let other = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "daemon"},
        "spec": {
            "nodeName": "tas-others-a-0",
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}],
        },
    });
    place.pods().create(&PostParams::default(), &serde_json::from_value(other).unwrap()).await.unwrap();
    eventually("the pod to be seen", DEADLINE, || async {
        let workloads = place.workloads();
        create(&workloads, whole_nodes(2)).await?;
        let status = eventually("an answer", DEADLINE, || async {
            let workload = serde_json::to_value(workloads.get("whole").await?)?;
            let (fits, waits) = (reported(&workload, "Admitted"), reported(&workload, "QuotaReserved"));
            Ok(progress(
                fits.starts_with("True") || waits.starts_with("False/TopologyPlacementFailed"),
                waits,
            ))
        });
        status.await?;
        let waits = reported(&serde_json::to_value(workloads.get("whole").await?)?, "QuotaReserved");
        workloads.delete("whole", &DeleteParams::default()).await?;
        Ok(progress(waits.starts_with("False"), waits))
    })
    .await
    .unwrap();
    place.make_job(&in_one_rack("first", 4, 1)).await.unwrap();
    wait_for_nodes(&place, "first", &["b-0"]).await;
    place.make_job(&in_one_rack("second", 4, 1)).await.unwrap();
    place.wait_for_condition("second", "QuotaReserved", "False/TopologyPlacementFailed").await.unwrap();
    place.pods().delete("daemon", &DeleteParams::default().grace_period(0)).await.unwrap();
    wait_for_nodes(&place, "second", &["a-0"]).await;
}

#[tokio::test]
async fn the_pods_of_a_node_that_is_gone_get_another_one_and_the_others_stay() {
    let place = Box::pin(racks("tas-replace", &[("a", 3)])).await;
    place.make_job(&in_one_rack("train", 4, 2)).await.unwrap();
    wait_for_nodes(&place, "train", &["a-0", "a-1"]).await;
    let stays = place.pods_with(&format!("{JOB_NAME}=train,{INDEX}=1")).await.unwrap().remove(0);
    hosts(&place).delete("tas-replace-a-0", &DeleteParams::default()).await.unwrap();
    eventually("another node to be assigned", DEADLINE, || async {
        let workload = place.workload("train").await?;
        let assignment = &workload["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"];
        let unhealthy = &workload["status"]["unhealthyNodes"];
        let done =
            assignment.to_string().contains("\"1\",\"2\"") && unhealthy.as_array().is_none_or(Vec::is_empty);
        Ok(progress(done, format!("{assignment} {unhealthy}")))
    })
    .await
    .unwrap();
    // The garbage collector of pods takes a minute to notice that the node is gone.
    let lost = place.pods_with(&format!("{JOB_NAME}=train,{INDEX}=0")).await.unwrap().remove(0);
    let name = lost["metadata"]["name"].as_str().unwrap();
    place.pods().delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    wait_for_nodes(&place, "train", &["a-2", "a-1"]).await;
    let still = place.pods_with(&format!("{JOB_NAME}=train,{INDEX}=1")).await.unwrap().remove(0);
    assert_eq!(stays["metadata"]["uid"], still["metadata"]["uid"]);
    place.wait_for_condition("train", "Admitted", "True/").await.unwrap();
    let workload = place.workload("train").await.unwrap();
    assert!(workload["status"]["unhealthyNodes"].as_array().is_none_or(Vec::is_empty), "{workload}");
}

#[tokio::test]
async fn a_job_without_another_node_is_evicted_and_comes_back_elsewhere() {
    let place = Box::pin(racks("tas-evicted", &[("a", 2)])).await;
    place.make_job(&in_one_rack("train", 4, 2)).await.unwrap();
    wait_for_nodes(&place, "train", &["a-0", "a-1"]).await;
    hosts(&place).delete("tas-evicted-a-1", &DeleteParams::default()).await.unwrap();
    place.wait_for_condition("train", "Evicted", "True/NodeFailures").await.unwrap();
    place.wait_for_condition("train", "QuotaReserved", "False/").await.unwrap();
    add(&place, "b", 2).await;
    wait_for_nodes(&place, "train", &["b-0", "b-1"]).await;
}

#[tokio::test]
async fn urgent_work_takes_the_nodes_of_one_that_matters_less_although_quota_is_free() {
    let place = Box::pin(racks("tas-preempts", &[("a", 1), ("b", 1)])).await;
    for (name, node) in [("one", "a-0"), ("two", "b-0")] {
        place.make_job(&in_one_rack(name, 4, 1)).await.unwrap();
        wait_for_nodes(&place, name, &[node]).await;
    }
    place.make_urgent("tas-urgent", 4).await.unwrap();
    place.wait_until("urgent", true).await.unwrap();
    place.wait_for_counts([1, 2, 2]).await.unwrap();
}

/// Makes a JobSet of two Jobs of two pods, each of them a slice that takes a rack of two nodes.
pub async fn make_sliced_jobset(place: &Place<'_>) {
    let annotations = json!({
        "kueue.x-k8s.io/podset-slice-required-topology": RACK,
        "kueue.x-k8s.io/podset-slice-size": "2",
        "sluice.dev/run-seconds": "3600",
    });
    let container = json!({"name": "main", "image": "none", "resources": {"requests": {"cpu": "4"}}});
    let template = json!({
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]},
    });
    let of_two = json!({"spec": {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": template}});
    let jobset: JobSet = serde_json::from_value(json!({
        "metadata": {"name": "train", "labels": {QUEUE_NAME: "lq"}},
        "spec": {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": of_two}]},
    }))
    .unwrap();
    let jobsets: Api<JobSet> = Api::namespaced(place.client.clone(), &place.name);
    jobsets.create(&PostParams::default(), &jobset).await.unwrap();
}

#[tokio::test]
async fn the_jobs_of_a_jobset_have_racks_of_their_own() {
    let place = Box::pin(racks("tas-slices", &[("a", 2), ("b", 2), ("c", 1)])).await;
    make_sliced_jobset(&place).await;
    wait_for_nodes(&place, "train-workers-0", &["a-0", "a-1"]).await;
    wait_for_nodes(&place, "train-workers-1", &["b-0", "b-1"]).await;
}

/// A pod that only says that it is of a Workload gets no place from that.
#[tokio::test]
async fn a_pod_with_the_marks_of_another_workload_takes_no_place_of_its_pods() {
    let place = Box::pin(racks("tas-forged", &[("a", 2)])).await;
    place.make_job(&in_one_rack("train", 4, 2)).await.unwrap();
    wait_for_nodes(&place, "train", &["a-0", "a-1"]).await;
    let workload = place.workload("train").await.unwrap();
    let forged = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "forged",
            "labels": {"kueue.x-k8s.io/podset": "main", INDEX: "0"},
            "annotations": {"kueue.x-k8s.io/workload": workload["metadata"]["name"]},
        },
        "spec": {
            "schedulingGates": [{"name": GATE}],
            "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "4"}}}],
        },
    });
    place.pods().create(&PostParams::default(), &serde_json::from_value(forged).unwrap()).await.unwrap();
    // The pod that is made again gets the place, not the forged one.
    let first = place.pods_with(&format!("{JOB_NAME}=train,{INDEX}=0")).await.unwrap().remove(0);
    let name = first["metadata"]["name"].as_str().unwrap();
    place.pods().delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    wait_for_nodes(&place, "train", &["a-0", "a-1"]).await;
    let forged = serde_json::to_value(place.pods().get("forged").await.unwrap()).unwrap();
    assert_eq!(forged["spec"]["schedulingGates"][0]["name"], GATE);
}
