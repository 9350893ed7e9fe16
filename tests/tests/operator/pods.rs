//! Plain pods and groups of pods: queued, admitted, replaced, preempted, deleted, and not touched by a stopped manager.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use anyhow::Result;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_testkit::metrics::{Scraper, sum};
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::{ControlPlane, Manager, Setup, chart, crds, nodes};
use sluice_tests::place::{DEADLINE, Place, QUEUE_NAME, create, job, reported};
use sluice_tests::reviewed::reviewed;

use crate::bed::bed;

/// A pod that asks for one processor and runs until it is deleted, or ends after `seconds` seconds.
pub fn pod(name: &str, seconds: u32) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {QUEUE_NAME: "lq"},
            "annotations": {"sluice.dev/run-seconds": seconds.to_string()},
        },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}],
        },
    })
}

/// The same in the group `g` of `total`.
fn member(name: &str, total: usize, seconds: u32) -> Value {
    let mut pod = pod(name, seconds);
    pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = json!("g");
    pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = json!(total.to_string());
    pod
}

pub fn pods(place: &Place<'_>) -> Api<Pod> {
    Api::namespaced(place.client.clone(), &place.name)
}

pub async fn make(place: &Place<'_>, pod: Value) -> kube::Result<Pod> {
    let (pods, params, pod) = (pods(place), PostParams::default(), serde_json::from_value(pod).unwrap());
    reviewed("making a pod", || pods.create(&params, &pod)).await
}

pub async fn delete(place: &Place<'_>, name: &str) {
    pods(place).delete(name, &DeleteParams::default()).await.unwrap();
}

/// How each pod stands: `waits`, `runs`, `ended`, `leaves`.
pub async fn states(place: &Place<'_>) -> Result<Vec<(String, &'static str)>> {
    let all = pods(place).list(&ListParams::default()).await?;
    let state = |pod: &Pod| {
        let gates = pod.spec.as_ref().and_then(|spec| spec.scheduling_gates.as_ref());
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if matches!(phase, Some("Succeeded" | "Failed")) {
            "ended"
        } else if pod.metadata.deletion_timestamp.is_some() {
            "leaves"
        } else if gates.is_some_and(|gates| !gates.is_empty()) {
            "waits"
        } else if phase == Some("Running") {
            "runs"
        } else {
            "may run"
        }
    };
    Ok(all.items.iter().map(|pod| (pod.metadata.name.clone().unwrap(), state(pod))).collect())
}

async fn wait_for(place: &Place<'_>, wanted: &[(&str, &str)]) {
    let wanted: Vec<_> = wanted.iter().map(|(name, state)| ((*name).to_owned(), *state)).collect();
    eventually(&format!("pods of {} to be {wanted:?}", place.name), DEADLINE, || async {
        let states: Vec<(String, &str)> = states(place).await?;
        Ok(progress(states == wanted, format!("{states:?}")))
    })
    .await
    .unwrap();
}

pub async fn workload(place: &Place<'_>, begins: &str) -> Result<Option<DynamicObject>> {
    let all = place.workloads().list(&ListParams::default()).await?;
    Ok(all.items.into_iter().find(|w| w.metadata.name.as_deref().unwrap_or_default().starts_with(begins)))
}

pub async fn wait_for_workload(place: &Place<'_>, begins: &str, condition: &str, says: &str) {
    eventually(&format!("{begins} to say {condition}={says}"), DEADLINE, || async {
        let found = workload(place, begins).await?.map(serde_json::to_value).transpose()?;
        let reported = found.map(|w| reported(&w, condition)).unwrap_or_default();
        Ok(progress(reported.starts_with(says), reported))
    })
    .await
    .unwrap();
}

pub async fn wait_until_gone(place: &Place<'_>) {
    eventually(&format!("{} to be empty", place.name), DEADLINE, || async {
        let (pods, workloads) = (states(place).await?, place.workloads().list(&ListParams::default()).await?);
        let none = pods.is_empty() && workloads.items.is_empty();
        Ok(progress(none, format!("{pods:?}, {} Workloads", workloads.items.len())))
    })
    .await
    .unwrap();
}

pub async fn place(name: &'static str, cpu: u32) -> Place<'static> {
    let place = Place::bare(bed().await.plane, name).await.unwrap();
    place.flavor(name).await.unwrap();
    let more = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    place.cluster_queue(name, cpu, &more).await.unwrap();
    place.local_queue("lq", name).await.unwrap();
    let class = json!({"metadata": {"name": name}, "value": 1000});
    create(&place.global("WorkloadPriorityClass", "workloadpriorityclasses"), class).await.unwrap();
    place
}

/// A pod that goes before all others of its place.
pub fn urgent(place: &Place<'_>, name: &str) -> Value {
    let mut pod = pod(name, 3_600);
    pod["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!(place.name);
    pod
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_waits_for_quota_runs_and_is_released() {
    let place = place("pods-alone", 1).await;
    make(&place, pod("first", 2)).await.unwrap();
    wait_for_workload(&place, "pod-first-", "Admitted", "True").await;
    make(&place, pod("second", 3_600)).await.unwrap();
    wait_for_workload(&place, "pod-first-", "Finished", "True/Succeeded").await;
    wait_for(&place, &[("first", "ended"), ("second", "runs")]).await;
    eventually("the finalizer of the first to go", DEADLINE, || async {
        let left = pods(&place).get("first").await?.metadata.finalizers.unwrap_or_default();
        Ok(progress(left.is_empty(), format!("{left:?}")))
    })
    .await
    .unwrap();
    // One that goes before it takes its place: it is deleted, and says why.
    make(&place, urgent(&place, "urgent")).await.unwrap();
    wait_for(&place, &[("first", "ended"), ("urgent", "runs")]).await;
    make(&place, pod("waits", 3_600)).await.unwrap();
    wait_for(&place, &[("first", "ended"), ("urgent", "runs"), ("waits", "waits")]).await;
    // Three pods were ungated after their Workloads were admitted.
    let scraper = Scraper::new(place.plane);
    let labels =
        [r#"name="kueue.x-k8s.io/admission""#, r#"cluster_queue="pods-alone""#, r#"is_group="false""#];
    eventually("the gates that came off to be counted", DEADLINE, || async {
        let text = scraper.scrape(&bed().await.manager).await?;
        let count = sum(&text, "kueue_pod_scheduling_gate_removal_seconds_count", &labels);
        Ok(progress(count == Some(3.0), format!("{count:?}")))
    })
    .await
    .unwrap();
    for name in ["first", "waits", "urgent"] {
        delete(&place, name).await;
    }
    wait_until_gone(&place).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_runs_as_a_whole_and_is_made_whole_again() {
    let place = place("pods-group", 3).await;
    for name in ["a", "b"] {
        make(&place, member(name, 3, 3_600)).await.unwrap();
    }
    place.wait_for_event("Pod/a", "ErrWorkloadCompose", "fewer runnable pods").await.unwrap();
    wait_for(&place, &[("a", "waits"), ("b", "waits")]).await;
    make(&place, member("c", 3, 3_600)).await.unwrap();
    wait_for(&place, &[("a", "runs"), ("b", "runs"), ("c", "runs")]).await;
    // One too many goes; one that failed is replaced.
    make(&place, member("d", 3, 3_600)).await.unwrap();
    place.wait_for_event("Pod/d", "ExcessPodDeleted", "").await.unwrap();
    wait_for(&place, &[("a", "runs"), ("b", "runs"), ("c", "runs")]).await;
    delete(&place, "a").await;
    wait_for_workload(&place, "g", "WaitingForReplacementPods", "True").await;
    make(&place, member("e", 3, 3_600)).await.unwrap();
    wait_for(&place, &[("b", "runs"), ("c", "runs"), ("e", "runs")]).await;
    wait_for_workload(&place, "g", "WaitingForReplacementPods", "False").await;
    // It is preempted as a whole, and returns with new pods.
    make(&place, urgent(&place, "urgent")).await.unwrap();
    wait_for_workload(&place, "g", "WaitingForReplacementPods", "True/Preempted").await;
    for name in ["x", "y", "z"] {
        make(&place, member(name, 3, 3_600)).await.unwrap();
    }
    wait_for(&place, &[("urgent", "runs"), ("x", "waits"), ("y", "waits"), ("z", "waits")]).await;
    delete(&place, "urgent").await;
    wait_for(&place, &[("x", "runs"), ("y", "runs"), ("z", "runs")]).await;
    // All of it is deleted while it runs.
    for name in ["x", "y", "z"] {
        delete(&place, name).await;
    }
    wait_until_gone(&place).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_waits_can_be_deleted_and_one_that_runs_goes_with_its_workload() {
    let place = place("pods-deleted", 2).await;
    for name in ["a", "b", "c"] {
        make(&place, member(name, 3, 3_600)).await.unwrap();
    }
    wait_for_workload(&place, "g", "QuotaReserved", "False").await;
    for name in ["a", "b", "c"] {
        delete(&place, name).await;
    }
    wait_until_gone(&place).await;
    for name in ["a", "b"] {
        make(&place, member(name, 2, 3_600)).await.unwrap();
    }
    wait_for(&place, &[("a", "runs"), ("b", "runs")]).await;
    place.workloads().delete("g", &DeleteParams::default()).await.unwrap();
    wait_until_gone(&place).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_manager_blocks_no_pod_that_names_no_queue_and_none_outside_the_selected_namespaces() {
    // Its own: the manager selects other namespaces, and is stopped.
    let plane = ControlPlane::builder().complete().start().await.unwrap();
    let client = plane.client().await.unwrap();
    nodes::pool("plain", 1).make(&client).await.unwrap();
    let selector = json!({"matchLabels": {"queued": "yes"}});
    let configuration = json!({"integrations": {"frameworks": ["batch/job", "pod"]}, "managedJobsNamespaceSelector": selector});
    let setup = Setup::new(&plane).unwrap().with(&configuration);
    let setup = chart::install(&plane, setup, &json!({})).await.unwrap();
    let manager = Manager::start(&plane, setup).await.unwrap();
    crds::wait_until_converting(&client).await.unwrap();
    let selected = Place::bare(&plane, "selected").await.unwrap();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let labelled = Patch::Merge(json!({"metadata": {"labels": {"queued": "yes"}}}));
    namespaces.patch("selected", &PatchParams::default(), &labelled).await.unwrap();
    let other = Place::bare(&plane, "other").await.unwrap();
    eventually("a pod to be gated", DEADLINE, || async {
        pods(&selected).delete("gated", &DeleteParams::default().grace_period(0)).await.ok();
        make(&selected, pod("gated", 3_600)).await?;
        let states = states(&selected).await?;
        Ok(progress(states == [("gated".to_owned(), "waits")], format!("{states:?}")))
    })
    .await
    .unwrap();
    // A Job with a queue is suspended there from its creation, whatever its user does, and gets no Workload: of Jobs with a queue the selector frees none.
    let mut job = job("queued", "lq", 1, 1, 3_600);
    job["spec"]["suspend"] = json!(false);
    let job = serde_json::from_value(job).unwrap();
    let made = other.jobs().create(&PostParams::default(), &job).await.unwrap();
    assert_eq!(made.spec.unwrap().suspend, Some(true));
    for _ in 0..2 {
        other.wait_until("queued", false).await.unwrap();
        let suspend = Patch::Merge(json!({"spec": {"suspend": false}}));
        drop(other.jobs().patch("queued", &PatchParams::default(), &suspend).await);
    }
    other.wait_until("queued", false).await.unwrap();
    assert!(other.workloads().list(&ListParams::default()).await.unwrap().items.is_empty());
    manager.stop().await.unwrap();
    let unqueued = |name: &str| {
        let mut pod = pod(name, 3_600);
        pod["metadata"]["labels"] = json!({});
        pod
    };
    let blocked = serde_json::from_value(pod("blocked", 3_600)).unwrap();
    let made = pods(&selected).create(&PostParams::default(), &blocked).await;
    assert!(made.is_err(), "it would run without quota");
    make(&selected, unqueued("plain")).await.unwrap();
    make(&other, pod("queued-elsewhere", 3_600)).await.unwrap();
    let system = Place { name: "kube-system".to_owned(), ..other };
    make(&system, pod("of-the-system", 3_600)).await.unwrap();
}
