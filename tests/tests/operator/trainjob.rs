//! TrainJobs, run by the real trainer and the real JobSet controller: queued, admitted, moved to another flavor, ended and deleted; and what users
//! may try.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use serde_json::{Value, json};
use sluice_api::job::{JobKind, TemplateKind};
use sluice_testkit::assets::Tool;
use sluice_testkit::controllers::Controllers;
use sluice_testkit::needs;
use sluice_testkit::trainer;
use sluice_testkit::wait::{Progress, consistently, eventually, progress};
use sluice_tests::place::{DEADLINE, Place, QUEUE_NAME, reported};
use tokio::sync::OnceCell;

use crate::bed::bed;
use crate::flavors::{flavors, set_quota, two_flavors};
use crate::marks::{expected, of_pod, while_marking};

const KIND: JobKind = JobKind::TRAIN_JOB;
/// The pods of a TrainJob of these tests: two nodes, and one that watches.
const PODS: usize = 3;

static TRAINER: OnceCell<Controllers> = OnceCell::const_new();

/// Starts the trainer, once.
pub async fn start() {
    TRAINER.get_or_try_init(|| async { trainer::start(bed().await.plane).await }).await.unwrap();
}

pub async fn place(name: &'static str, quota: [u32; 2]) -> Place<'static> {
    start().await;
    two_flavors(name, quota).await
}

fn api(place: &Place<'_>, group: &str, version: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
    Api::namespaced_with(place.client.clone(), &place.name, &resource)
}

pub fn trainjobs(place: &Place<'_>) -> Api<DynamicObject> {
    api(place, KIND.group(), KIND.version(), KIND.kind(), KIND.plural())
}

fn jobsets(place: &Place<'_>) -> Api<DynamicObject> {
    let kind = JobKind::JOB_SET;
    api(place, kind.group(), kind.version(), kind.kind(), kind.plural())
}

fn runtimes(place: &Place<'_>) -> Api<DynamicObject> {
    let kind = TemplateKind::TRAINING_RUNTIME;
    api(place, kind.group(), kind.version(), kind.kind(), kind.plural())
}

async fn make(api: &Api<DynamicObject>, object: &Value) {
    let object = serde_json::from_value(object.clone()).unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// Makes a runtime, and waits until the trainer's webhook, which reads from a cache, knows it.
pub async fn make_runtime(place: &Place<'_>, name: &str) {
    make(&runtimes(place), &runtime(name)).await;
    let probe: DynamicObject = serde_json::from_value(trainjob("probe", name)).unwrap();
    let params = PostParams { dry_run: true, ..PostParams::default() };
    eventually(&format!("the trainer to know the runtime {name}"), DEADLINE, || async {
        match trainjobs(place).create(&params, &probe).await {
            Err(kube::Error::Api(status)) if status.message.contains("must be created before") => {
                Ok(Progress::NotYet(status.message))
            }
            tried => Ok(Progress::Done(tried.map(drop)?)),
        }
    })
    .await
    .unwrap();
}

async fn change(api: &Api<DynamicObject>, name: &str, patch: Value) {
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

pub async fn get(api: &Api<DynamicObject>, name: &str) -> Value {
    serde_json::to_value(api.get(name).await.unwrap()).unwrap()
}

/// A pod template whose containers ask for one processor each and run until they receive SIGTERM.
fn template(container: &str) -> Value {
    json!({
        "metadata": {"annotations": {"sluice.dev/run-seconds": "3600"}},
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
            "containers": [{"name": container, "image": "none", "resources": {"requests": {"cpu": "1"}}}],
        },
    })
}

/// A runtime for torch, with nodes and one more Job.
fn runtime(name: &str) -> Value {
    let step = json!({"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}});
    let node = json!({"name": "node", "template": {"metadata": step, "spec": {"backoffLimit": 0, "template": template("node")}}});
    let side =
        json!({"name": "watcher", "template": {"spec": {"backoffLimit": 0, "template": template("main")}}});
    json!({
        "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainingRuntime", "metadata": {"name": name},
        "spec": {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": [node, side]}}},
    })
}

pub fn trainjob(name: &str, runtime: &str) -> Value {
    json!({
        "apiVersion": KIND.api_version(), "kind": KIND.kind(),
        "metadata": {"name": name, "labels": {QUEUE_NAME: "lq"}},
        "spec": {
            "runtimeRef": {"kind": "TrainingRuntime", "name": runtime},
            "trainer": {"numNodes": 2, "image": "none", "env": [{"name": "A", "value": "b"}]},
        },
    })
}

pub async fn pods(place: &Place<'_>, name: &str) -> Vec<Value> {
    place.pods_with(&format!("jobset.sigs.k8s.io/jobset-name={name}")).await.unwrap()
}

/// Waits until all its pods run on the nodes of this flavor, and nothing that was made of it names another.
async fn wait_until_it_runs_on(place: &Place<'_>, name: &str, flavor: &str) {
    let marked = expected(place, Some(flavor)).await;
    eventually(&format!("{}/{name} to run on {flavor}", place.name), DEADLINE, || async {
        let pods = pods(place, name).await;
        let right = |pod: &&Value| pod["status"]["phase"] == "Running" && of_pod(pod) == marked;
        let object = get(&trainjobs(place), name).await;
        let all = pods.iter().filter(right).count() == PODS && pods.len() == PODS;
        let of = |pod: &Value| format!("{} {}", pod["status"]["phase"], of_pod(pod));
        let reported: Vec<_> = pods.iter().map(of).collect();
        let runs = sluice_jobs::observe(KIND, &object).active;
        Ok(progress(all && runs, format!("{reported:?} {} {}", object["spec"], object["status"])))
    })
    .await
    .unwrap();
    let jobset = get(&jobsets(place), name).await;
    for group in sluice_jobs::pod_groups(JobKind::JOB_SET, &jobset) {
        assert_eq!(of_pod(&group.template), marked, "{}", group.path());
    }
    let jobs: Api<Job> = Api::namespaced(place.client.clone(), &place.name);
    let list = ListParams::default().labels(&format!("jobset.sigs.k8s.io/jobset-name={name}"));
    for job in jobs.list(&list).await.unwrap() {
        assert_eq!(of_pod(job.spec.unwrap().template), marked, "{:?}", job.metadata.name);
    }
}

/// Waits until it is suspended, and its controllers have removed all pods.
async fn wait_until_it_waits(place: &Place<'_>, name: &str) {
    let unmarked = expected(place, None).await;
    eventually(&format!("{}/{name} to wait", place.name), DEADLINE, || async {
        let object = get(&trainjobs(place), name).await;
        let left = pods(place, name).await.len();
        let waits = object["spec"]["suspend"] == true && sluice_jobs::observe(KIND, &object).suspended;
        // The trainer takes everything of the admission out of its JobSet.
        let jobset = jobsets(place).get_opt(name).await?.map(|jobset| json!(jobset));
        let groups = jobset.iter().flat_map(|jobset| sluice_jobs::pod_groups(JobKind::JOB_SET, jobset));
        let templates: Vec<_> = groups.map(|group| of_pod(&group.template)).collect();
        let also = jobset.as_ref().is_none_or(|jobset| jobset["spec"]["suspend"] == true)
            && templates.iter().all(|template| *template == unmarked);
        Ok(progress(
            waits && also && left == 0,
            format!("{left} pods, {} {} {templates:?}", object["spec"], object["status"]),
        ))
    })
    .await
    .unwrap();
    let object = get(&trainjobs(place), name).await;
    for entry in object["spec"]["runtimePatches"].as_array().into_iter().flatten() {
        assert_eq!(entry.get("trainingRuntimeSpec"), None, "nothing of an admission is left");
    }
}

/// There are no processes in pods: the test says that they ended.
async fn end(place: &Place<'_>, name: &str) {
    for pod in pods(place, name).await {
        let status = json!({"status": {"phase": "Succeeded"}});
        let name = pod["metadata"]["name"].as_str().unwrap();
        place.pods().patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    }
    place.wait_for_condition(name, "Finished", "True/Succeeded").await.unwrap();
}

/// The pods that the trainer's JobSet has are those of our Workload: names, numbers, containers.
async fn compare(place: &Place<'_>, name: &str) {
    let ours = place.workload(name).await.unwrap();
    let theirs = sluice_jobs::observe(JobKind::JOB_SET, &get(&jobsets(place), name).await);
    let ours = ours["spec"]["podSets"].as_array().unwrap();
    assert_eq!(ours.len(), theirs.pod_sets.len());
    for (own, set) in ours.iter().zip(&theirs.pod_sets) {
        assert_eq!((own["name"].as_str(), own["count"].as_i64()), (Some(&*set.name), Some(set.count.into())));
        let spec = serde_json::from_value(own["template"]["spec"].clone()).unwrap();
        let reported = format!("{} and {:?}", own["template"], set.template);
        assert_eq!(sluice_api::names::containers_hash(&spec), set.containers_hash, "{reported}");
        assert_eq!(sluice_api::names::requests_hash(&spec), set.requests_hash, "{reported}");
    }
}

#[tokio::test]
async fn a_trainjob_lives_through_everything_that_can_become_of_it() {
    needs!(Tool::TrainerControllers);
    let place = place("trained", [0, 0]).await;
    while_marking(&place, live(&place)).await;
}

async fn live(place: &Place<'_>) {
    let [old, new] = flavors("trained");
    let most = u32::try_from(PODS).unwrap();
    make_runtime(place, "torch").await;

    make(&trainjobs(place), &trainjob("first", "torch")).await;
    wait_until_it_waits(place, "first").await;
    let admitted = reported(&place.workload("first").await.unwrap(), "Admitted");
    assert!(!admitted.starts_with("True"), "{admitted}");
    eventually("the trainer's JobSet", DEADLINE, || async {
        Ok(progress(jobsets(place).get_opt("first").await?.is_some(), "none"))
    })
    .await
    .unwrap();
    compare(place, "first").await;
    set_quota(place, [most, 0]).await;
    wait_until_it_runs_on(place, "first", &old).await;

    // A later change of its runtime does not disturb it.
    let more = json!({"spec": {"mlPolicy": {"numNodes": 1}, "podGroupPolicy": null, "template": {"metadata": {"labels": {"a": "b"}}}}});
    change(&runtimes(place), "torch", more).await;
    let mut other = runtime("torch")["spec"]["template"]["spec"]["replicatedJobs"].clone();
    other[1]["template"]["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] =
        json!("2");
    change(&runtimes(place), "torch", json!({"spec": {"template": {"spec": {"replicatedJobs": other}}}}))
        .await;

    // One that waits follows the runtime, and is deleted.
    make(&trainjobs(place), &trainjob("second", "torch")).await;
    wait_until_it_waits(place, "second").await;
    place.wait_for_counts([1, 1, 1]).await.unwrap();
    eventually("the second to ask for what the runtime says by now", DEADLINE, || async {
        let template = place.workload("second").await?["spec"]["podSets"][1]["template"].take();
        let asks = &template["spec"]["containers"][0]["resources"]["requests"]["cpu"];
        Ok(progress(asks == "2", asks))
    })
    .await
    .unwrap();
    trainjobs(place).delete("second", &DeleteParams::background()).await.unwrap();
    place.wait_for_counts([0, 1, 1]).await.unwrap();
    wait_until_it_runs_on(place, "first", &old).await;
    let before = runtime("torch")["spec"]["template"]["spec"]["replicatedJobs"].clone();
    change(&runtimes(place), "torch", json!({"spec": {"template": {"spec": {"replicatedJobs": before}}}}))
        .await;

    // A job that matters more takes its place; then there is room on the other flavor.
    place.make_urgent("trained", most).await.unwrap();
    place.wait_for_condition("first", "Evicted", "True/Preempted").await.unwrap();
    wait_until_it_waits(place, "first").await;
    place.wait_until("urgent", true).await.unwrap();
    set_quota(place, [most, most]).await;
    wait_until_it_runs_on(place, "first", &new).await;
    end(place, "first").await;
    place.wait_for_counts([0, 1, 1]).await.unwrap();

    // One that runs is deleted.
    make(&trainjobs(place), &trainjob("third", "torch")).await;
    wait_until_it_runs_on(place, "third", &new).await;
    trainjobs(place).delete("third", &DeleteParams::background()).await.unwrap();
    place.delete_job("urgent").await.unwrap();
    place.wait_for_counts([0, 0, 0]).await.unwrap();
}

#[tokio::test]
async fn a_trainjob_whose_runtime_is_missing_says_so_and_is_taken_in_when_it_comes() {
    needs!(Tool::TrainerControllers);
    let place = &place("untrained", [0, 0]).await;
    // The trainer's webhook refuses a TrainJob without its runtime. A runtime may go later, if its finalizer is taken off.
    make_runtime(place, "later").await;
    make(&trainjobs(place), &trainjob("early", "later")).await;
    place.wait_for_counts([1, 0, 0]).await.unwrap();
    runtimes(place).delete("later", &DeleteParams::background()).await.unwrap();
    eventually("the runtime to go", DEADLINE, || async {
        let left = runtimes(place).get_opt("later").await?;
        if left.is_some() {
            let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            let _ = runtimes(place).patch("later", &PatchParams::default(), &patch).await;
        }
        Ok(progress(left.is_none(), "there"))
    })
    .await
    .unwrap();
    place
        .wait_for_event(
            "TrainJob/early",
            "ErrWorkloadCompose",
            "TrainingRuntime untrained/later does not exist",
        )
        .await
        .unwrap();
    place.wait_for_counts([0, 0, 0]).await.unwrap();
    assert_eq!(get(&trainjobs(place), "early").await["spec"]["suspend"], true);
    // Others go on, and it waits.
    make_runtime(place, "torch").await;
    make(&trainjobs(place), &trainjob("good", "torch")).await;
    set_quota(place, [6, 0]).await;
    wait_until_it_runs_on(place, "good", &flavors("untrained")[0]).await;
    assert_eq!(get(&trainjobs(place), "early").await["spec"]["suspend"], true);
    make(&runtimes(place), &runtime("later")).await;
    wait_until_it_runs_on(place, "early", &flavors("untrained")[0]).await;
}

#[tokio::test]
async fn a_jobset_in_the_name_of_a_trainjob_runs_no_more_than_was_admitted() {
    needs!(Tool::TrainerControllers);
    let place = &place("forged", [3, 0]).await;
    make_runtime(place, "torch").await;
    let mut object = trainjob("fit", "torch");
    object["spec"]["trainer"]["numNodes"] = json!(7);
    make(&trainjobs(place), &object).await;
    place.wait_for_counts([1, 0, 0]).await.unwrap();
    let uid = get(&trainjobs(place), "fit").await["metadata"]["uid"].clone();
    // In place of the trainer's own, one that runs, with more pods than the TrainJob asks for.
    let forged = |cpu: &str, pods: u32| {
        let mut pod = template("main");
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
        let job = json!({"name": "node", "template": {"spec": {"parallelism": pods, "completions": pods, "template": pod}}});
        let owner = json!({"apiVersion": KIND.api_version(), "kind": KIND.kind(), "name": "fit", "uid": uid, "controller": true});
        json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
            "metadata": {"name": "fit", "ownerReferences": [owner]},
            "spec": {"suspend": false, "replicatedJobs": [job]},
        })
    };
    eventually("a JobSet in the TrainJob's name", DEADLINE, || async {
        // The trainer makes its own again: the faster one wins.
        let mut reported = String::new();
        for _ in 0..20 {
            let _ = jobsets(place).delete("fit", &DeleteParams::background()).await;
            let made = serde_json::from_value(forged("1", 20)).unwrap();
            match jobsets(place).create(&PostParams::default(), &made).await {
                Ok(_) => return Ok(progress(true, reported)),
                Err(error) => reported = error.to_string(),
            }
        }
        Ok(progress(false, reported))
    })
    .await
    .unwrap();
    wait_for_no_pods(place, "fit").await;
    // Admitted, too, it runs no other pods than those of the TrainJob: the trainer makes its JobSet again,
    // with seven nodes and the watcher of the runtime.
    set_quota(place, [16, 0]).await;
    eventually("the pods of the TrainJob", DEADLINE, || async {
        let running = pods(place, "fit").await.len();
        assert!(running <= 8, "{running} pods");
        Ok(progress(running == 8, format!("{running} pods")))
    })
    .await
    .unwrap();
}

/// Waits until the JobSet is suspended without pods, and that lasts: controllers that are behind may make a pod of what they saw last.
async fn wait_for_no_pods(place: &Place<'_>, name: &str) {
    let held = || async {
        let left = pods(place, name).await.len();
        let jobset = get(&jobsets(place), name).await;
        let held = jobset["spec"]["suspend"] == true && left == 0;
        Ok(progress(held, format!("{left} pods, suspend {}", jobset["spec"]["suspend"])))
    };
    let what = format!("{}/{name} without pods", place.name);
    eventually(&what, DEADLINE, || async {
        let lasts = consistently(&what, Duration::from_secs(5), held).await;
        Ok(progress(lasts.is_ok(), format!("{lasts:?}")))
    })
    .await
    .unwrap();
}
