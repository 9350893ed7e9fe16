//! A tenant makes pods in the name of jobs, detaches pods and jobs from the owners that hold quota for them, and resizes pods in place, while a
//! LocalQueue `default` queues all pods. The controllers are the real ones.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::{ControlPlane, Limits, Manager, Setup, chart, client_of, crds, nodes};
use sluice_tests::place::{DEADLINE, Place, job};
use sluice_tests::rights::wait_until_allowed;

use crate::bed::bed;
use crate::pods::{make, pod, pods, states, workload};

const QUEUE: &str = "default";
const UID: &str = "batch.kubernetes.io/controller-uid";
const HOUR: u32 = 3_600;
/// More than any queue here has.
const LARGE: &str = "64";

async fn place(name: &'static str) -> Place<'static> {
    queued(bed().await.plane, name).await
}

/// A place with a queue.
async fn queued<'a>(plane: &'a ControlPlane, name: &str) -> Place<'a> {
    let here = Place::bare(plane, name).await.unwrap();
    here.flavor(name).await.unwrap();
    here.cluster_queue(name, 2, &json!({})).await.unwrap();
    here.local_queue(QUEUE, name).await.unwrap();
    here
}

/// The pods of a Job that its controller made.
async fn pods_of(place: &Place<'_>, job: &str) -> Vec<Value> {
    place.pods_with(&format!("batch.kubernetes.io/job-name={job}")).await.unwrap()
}

/// The one pod of a Job, once it runs.
async fn running_pod(place: &Place<'_>, job: &str) -> Value {
    eventually(&format!("a pod of {job} to run"), DEADLINE, || async {
        let all = pods_of(place, job).await;
        let runs = all.iter().all(|pod| pod["status"]["phase"] == "Running");
        Ok(progress(all.len() == 1 && runs, format!("{all:?}")))
    })
    .await
    .unwrap();
    pods_of(place, job).await.remove(0)
}

/// A pod that names a Job as its controller and asks for more than there is.
fn forged(name: &str, job: &str, uid: &str, label: Option<&str>) -> Value {
    let mut pod = pod(name, HOUR);
    pod["metadata"]["labels"] = label.map_or(json!({}), |uid| json!({UID: uid}));
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid, "controller": true}]);
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": LARGE}});
    pod
}

async fn uid(place: &Place<'_>, job: &str) -> String {
    place.jobs().get(job).await.unwrap().metadata.uid.unwrap()
}

fn is_refused<T: std::fmt::Debug>(answer: kube::Result<T>, says: &str) {
    match answer {
        Err(kube::Error::Api(status)) => assert!(status.message.contains(says), "{}", status.message),
        other => unreachable!("it is not refused: {other:?}"),
    }
}

async fn patch_pod(place: &Place<'_>, name: &str, patch: Value) -> kube::Result<Pod> {
    pods(place).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_names_a_job_gains_no_quota_by_that() {
    let place = place("hostile-pods").await;
    place.make_job(&job("runs", QUEUE, 1, 1, HOUR)).await.unwrap();
    place.make_job(&job("waits", QUEUE, 64, 1, HOUR)).await.unwrap();
    let real = running_pod(&place, "runs").await;
    assert_eq!(real["metadata"]["labels"].get("kueue.x-k8s.io/managed"), None, "{real}");
    place.wait_for_condition("waits", "QuotaReserved", "False").await.unwrap();
    let (runs, waits) = (uid(&place, "runs").await, uid(&place, "waits").await);
    let made = [
        forged("f-edited", "waits", &waits, Some(&waits)),
        forged("f-other", "runs", &runs, Some("another")),
        forged("f-unmarked", "runs", &runs, None),
        forged("f-waiting", "waits", &waits, Some(&waits)),
    ];
    let edit = json!({"spec": {"parallelism": 2}});
    for (number, pod) in made.into_iter().enumerate() {
        if number == 0 {
            place.patch_job("waits", edit.clone()).await.unwrap();
        }
        let made = make(&place, pod).await.unwrap();
        let gates = made.spec.unwrap().scheduling_gates.unwrap_or_default();
        assert!(gates.iter().any(|gate| gate.name == "kueue.x-k8s.io/admission"), "{:?}", made.metadata.name);
    }
    // One that has all that its job's pods have would take their place: only the Job controller makes it, or makes another pod one.
    let tenant = tenant(&place).await;
    let only = "only the Job controller makes pods of the Job";
    for (name, label) in [("runs", runs.as_str()), ("waits", waits.as_str())] {
        let counted = forged("f-counted", name, label, Some(label));
        is_refused(tenant.create(&PostParams::default(), &read(counted)).await, only);
        let mut adopted = forged("f-adopted", name, label, Some(label));
        adopted["metadata"]["ownerReferences"] = Value::Null;
        is_refused(tenant.create(&PostParams::default(), &read(adopted)).await, only);
    }
    let mut relabelled = forged("f-relabelled", "runs", &runs, None);
    relabelled["metadata"]["ownerReferences"] = Value::Null;
    tenant.create(&PostParams::default(), &read(relabelled)).await.unwrap();
    let label = Patch::Merge(json!({"metadata": {"labels": {UID: runs}}}));
    is_refused(tenant.patch("f-relabelled", &PatchParams::default(), &label).await, only);
    // The controller makes a new one for one that is gone.
    tenant
        .delete(real["metadata"]["name"].as_str().unwrap(), &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    eventually("the Job controller to make another pod", DEADLINE, || async {
        let (milli, names) = place.live_cpu().await?;
        Ok(progress(milli == 1_000, format!("{milli}m of {names:?}")))
    })
    .await
    .unwrap();
    let states = states(&place).await.unwrap();
    let mut forged = states.iter().filter(|(name, _)| name.starts_with("f-"));
    assert!(forged.all(|(_, state)| matches!(*state, "waits" | "leaves")), "{states:?}");
    assert!(workload(&place, "pod-runs-").await.unwrap().is_none(), "the quota of the job is enough");
}

fn read(pod: Value) -> Pod {
    serde_json::from_value(pod).unwrap()
}

/// The pods of a place with the rights of a tenant.
async fn tenant(place: &Place<'_>) -> Api<Pod> {
    let bindings: Api<RoleBinding> = Api::namespaced(place.client.clone(), &place.name);
    let binding = json!({
        "metadata": {"name": "editor"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "ServiceAccount", "namespace": place.name, "name": "default"}],
    });
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
    let kubeconfig = place.plane.kubeconfig_for_service_account(&place.name, "default").await.unwrap();
    let user = client_of(&kubeconfig).await.unwrap();
    wait_until_allowed(&user, Some(&place.name), "create", ("", "pods")).await.unwrap();
    Api::namespaced(user, &place.name)
}

/// A pod of an admitted job stays known as one: without the marks it could grow.
async fn keeps_its_marks(place: &Place<'_>, name: &str) {
    for pod_set in [json!(null), json!("other")] {
        let other = json!({"metadata": {"labels": {"kueue.x-k8s.io/podset": pod_set}}});
        is_refused(patch_pod(place, name, other).await, "keeps the labels kueue.x-k8s.io/podset");
    }
    for workload in [json!(null), json!("other")] {
        let other = json!({"metadata": {"annotations": {"kueue.x-k8s.io/workload": workload}}});
        is_refused(patch_pod(place, name, other).await, "keeps the annotation kueue.x-k8s.io/workload");
    }
    let none = json!({"metadata": {"labels": null, "annotations": null}});
    is_refused(patch_pod(place, name, none).await, "keeps the labels kueue.x-k8s.io/podset");
    let another = json!({"metadata": {"labels": {"example.com/note": "x"}}});
    patch_pod(place, name, another).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_keeps_its_marks_where_pods_have_no_webhook_and_while_no_manager_runs() {
    // Its own: the manager does not take pods, and is stopped.
    let plane = ControlPlane::builder().complete().start().await.unwrap();
    let client = plane.client().await.unwrap();
    nodes::pool("plain", 1).make(&client).await.unwrap();
    let jobs = json!({"integrations": {"frameworks": ["batch/job"]}});
    let setup = Setup::new(&plane).unwrap().with(&jobs).limited(Limits::CHART);
    let setup = chart::install(&plane, setup, &json!({})).await.unwrap();
    let manager = Manager::start(&plane, setup).await.unwrap();
    manager.must_be_limited();
    crds::wait_until_converting(&client).await.unwrap();
    let here = queued(&plane, "hostile-marks").await;
    here.make_job(&job("runs", QUEUE, 1, 1, HOUR)).await.unwrap();
    let real = running_pod(&here, "runs").await;
    let name = real["metadata"]["name"].as_str().unwrap();
    keeps_its_marks(&here, name).await;
    manager.stop().await.unwrap();
    keeps_its_marks(&here, name).await;
    // Of one that has ended they may be taken off: it has no quota any more.
    let over = Patch::Strategic(json!({"status": {"phase": "Succeeded"}}));
    pods(&here).patch_status(name, &PatchParams::default(), &over).await.unwrap();
    let unmarked = json!({"metadata": {"labels": {"kueue.x-k8s.io/podset": null}}});
    patch_pod(&here, name, unmarked).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_on_the_quota_of_a_job_stays_below_it_and_does_not_grow() {
    let place = place("hostile-leavers").await;
    place.make_job(&job("runs", QUEUE, 1, 1, HOUR)).await.unwrap();
    let real = running_pod(&place, "runs").await;
    let name = real["metadata"]["name"].as_str().unwrap();
    let stays = "it runs on the quota of its controller, the Job \"runs\"";
    is_refused(patch_pod(&place, name, json!({"metadata": {"ownerReferences": null}})).await, stays);
    is_refused(patch_pod(&place, name, json!({"metadata": {"labels": {UID: null}}})).await, stays);
    keeps_its_marks(&place, name).await;
    // The kubelet that can do it says what containers have.
    let container =
        json!({"name": real["spec"]["containers"][0]["name"], "resources": {"requests": {"cpu": "1"}}});
    let status = Patch::Strategic(json!({"status": {"containerStatuses": [container]}}));
    pods(&place).patch_status(name, &PatchParams::default(), &status).await.unwrap();
    let resize = |cpu: &str| {
        let container =
            json!({"name": real["spec"]["containers"][0]["name"], "resources": {"requests": {"cpu": cpu}}});
        json!({"spec": {"containers": [container]}})
    };
    let resized = |cpu: &'static str| {
        let body = Patch::Strategic(resize(cpu));
        let (pods, name) = (pods(&place), name.to_owned());
        async move { pods.patch_subresource("resize", &name, &PatchParams::default(), &body).await }
    };
    is_refused(resized("2").await, "does not get more than its Workload has quota for");
    is_refused(resized("1001m").await, "does not get more than its Workload has quota for");
    resized("500m").await.unwrap();
    // To compare them costs more than a policy may.
    let many = (0..500)
        .map(|n| json!({"name": format!("c{n}"), "image": "i", "resources": {"requests": {"cpu": "1m"}}}));
    let mut crowd = job("crowd", QUEUE, 1, 1, HOUR);
    crowd["spec"]["template"]["spec"]["containers"] = many.collect();
    place.make_job(&crowd).await.unwrap();
    let crowded = running_pod(&place, "crowd").await;
    let crowded = crowded["metadata"]["name"].as_str().unwrap();
    let first = |cpu: &str| json!({"name": "c0", "resources": {"requests": {"cpu": cpu}}});
    let status = Patch::Strategic(json!({"status": {"containerStatuses": [first("1m")]}}));
    pods(&place).patch_status(crowded, &PatchParams::default(), &status).await.unwrap();
    let larger = Patch::Strategic(json!({"spec": {"containers": [first("8")]}}));
    let answer = pods(&place).patch_subresource("resize", crowded, &PatchParams::default(), &larger).await;
    is_refused(answer, "does not get more than its Workload has quota for");
    place.delete_job("crowd").await.unwrap();

    let template = job("t", QUEUE, 1, 1, HOUR)["spec"].clone();
    let set = json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": "set", "labels": {"kueue.x-k8s.io/queue-name": QUEUE}},
        "spec": {"replicatedJobs": [{"name": "main", "replicas": 1, "template": {"spec": template}}]},
    });
    let kind = GroupVersionKind::gvk("jobset.x-k8s.io", "v1alpha2", "JobSet");
    let sets = ApiResource::from_gvk_with_plural(&kind, "jobsets");
    let sets: Api<DynamicObject> = Api::namespaced_with(place.client.clone(), &place.name, &sets);
    sets.create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await.unwrap();
    place.wait_until("set-main-0", true).await.unwrap();
    let detached = json!({"metadata": {"ownerReferences": null}});
    let answer = place.patch_job("set-main-0", detached.clone()).await;
    is_refused(answer, "it runs on the quota of ");
    // No webhook looks at what the manager itself writes: the API server alone refuses it, as it does while no manager runs.
    let manager = place.plane.kubeconfig_for_service_account(chart::NAMESPACE, chart::SERVICE_ACCOUNT).await;
    let jobs: Api<Job> = Api::namespaced(client_of(&manager.unwrap()).await.unwrap(), &place.name);
    let refused = async |patch: Value, says: &str| {
        is_refused(jobs.patch("set-main-0", &PatchParams::default(), &Patch::Merge(patch)).await, says);
    };
    let alone = "a job that another one made stays below it";
    refused(detached, alone).await;
    let mut others =
        serde_json::to_value(jobs.get("set-main-0").await.unwrap()).unwrap()["metadata"]["ownerReferences"]
            .clone();
    others[0]["uid"] = json!("another");
    refused(json!({"metadata": {"ownerReferences": others}}), alone).await;
    let mut no_controller = others;
    no_controller[0]["controller"] = json!(false);
    refused(json!({"metadata": {"ownerReferences": no_controller}}), alone).await;
    let other = json!({"metadata": {"annotations": {"example.com/note": "x"}}});
    jobs.patch("set-main-0", &PatchParams::default(), &Patch::Merge(other)).await.unwrap();
}
