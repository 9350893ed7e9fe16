//! AppWrappers, run by their real controller: queued, admitted, moved to another flavor, ended and deleted.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_testkit::assets::Tool;
use sluice_testkit::controllers::Controllers;
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::{needs, workloads};
use sluice_tests::place::{DEADLINE, Place, QUEUE_NAME, reported};
use tokio::sync::OnceCell;

use crate::bed::bed;
use crate::flavors::{flavors, set_quota, two_flavors};
use crate::marks::{expected, of_pod, while_marking};

const KIND: JobKind = JobKind::APP_WRAPPER;
/// The label that the controller gives to all pods of an AppWrapper.
const NAME: &str = "workload.codeflare.dev/appwrapper";
/// The pods of the AppWrapper of these tests.
const PODS: usize = 4;

static CONTROLLERS: OnceCell<Controllers> = OnceCell::const_new();

pub async fn place(name: &'static str, quota: [u32; 2]) -> Place<'static> {
    let start = || async { Controllers::start(bed().await.plane, Tool::AppWrapperController, &[]).await };
    CONTROLLERS.get_or_try_init(start).await.unwrap();
    two_flavors(name, quota).await
}

/// A ConfigMap, a Job that names the queue itself, a JobSet, and a Pod; each pod asks for one processor and runs until it receives SIGTERM.
pub fn wrapper(name: &str) -> Value {
    let metadata = json!({"annotations": {"sluice.dev/run-seconds": "600"}});
    let container = json!({"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}});
    let spec =
        json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]});
    let template = json!({"metadata": metadata, "spec": spec});
    let of = |api_version: &str, kind: &str, spec: Value, more: Value| {
        let mut metadata = json!({"name": format!("{name}-{}", kind.to_lowercase())});
        json_patch::merge(&mut metadata, &more);
        let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata});
        if !spec.is_null() {
            object["spec"] = spec;
        }
        json!({"template": object})
    };
    let job = json!({"parallelism": 2, "completions": 2, "template": template});
    let part = json!({"name": "a", "replicas": 1, "template": {"spec": {"parallelism": 1, "completions": 1, "template": template}}});
    json!({
        "apiVersion": KIND.api_version(), "kind": KIND.kind(),
        "metadata": {"name": name, "labels": {QUEUE_NAME: "lq"}},
        "spec": {"components": [
            of("v1", "ConfigMap", Value::Null, json!({})),
            of("batch/v1", "Job", job, json!({"labels": {QUEUE_NAME: "lq"}})),
            of("jobset.x-k8s.io/v1alpha2", "JobSet", json!({"replicatedJobs": [part]}), json!({})),
            of("v1", "Pod", spec, metadata),
        ]},
    })
}

fn api(place: &Place<'_>) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk(KIND.group(), KIND.version(), KIND.kind());
    let resource = ApiResource::from_gvk_with_plural(&gvk, KIND.plural());
    Api::namespaced_with(place.client.clone(), &place.name, &resource)
}

async fn make(place: &Place<'_>, object: &Value) {
    let object = serde_json::from_value(object.clone()).unwrap();
    api(place).create(&PostParams::default(), &object).await.unwrap();
}

async fn get(place: &Place<'_>, name: &str) -> Value {
    serde_json::to_value(api(place).get(name).await.unwrap()).unwrap()
}

async fn pods(place: &Place<'_>, name: &str) -> Vec<Value> {
    place.pods_with(&format!("{NAME}={name}")).await.unwrap()
}

/// Waits until all its pods run on the nodes of this flavor, and nothing that was made of it names another.
async fn wait_until_it_runs_on(place: &Place<'_>, name: &str, flavor: &str) {
    let marked = expected(place, Some(flavor)).await;
    eventually(&format!("{}/{name} to run on {flavor}", place.name), DEADLINE, || async {
        let pods = pods(place, name).await;
        let right = |pod: &&Value| pod["status"]["phase"] == "Running" && of_pod(pod) == marked;
        let view = sluice_jobs::observe(KIND, &serde_json::to_value(api(place).get(name).await?)?);
        let runs = view.active && view.pods_ready && pods.iter().filter(right).count() == PODS;
        let of = |pod: &Value| format!("{} {}", pod["status"]["phase"], of_pod(pod));
        let reported: Vec<_> = pods.iter().map(of).collect();
        let status = api(place).get(name).await?.data["status"].to_string();
        Ok(progress(runs && pods.len() == PODS, format!("{reported:?} {status}")))
    })
    .await
    .unwrap();
    for job in place.jobs().list(&ListParams::default()).await.unwrap() {
        let template = job.spec.unwrap().template;
        let labels = template.metadata.as_ref().and_then(|metadata| metadata.labels.clone());
        if labels.unwrap_or_default().get(NAME).is_some_and(|of| of == name) {
            assert_eq!(of_pod(template), marked, "{:?}", job.metadata.name);
        }
    }
    let owned = workloads::list(&place.client, &place.name).await.unwrap();
    let of_parts: Vec<_> = owned.iter().map(|w| w["metadata"]["name"].to_string()).collect();
    assert!(of_parts.iter().all(|name| !name.contains("jobset") && !name.contains("-job-")), "{of_parts:?}");
}

/// Waits until it is suspended, and its controller has removed all that it made.
async fn wait_until_it_waits(place: &Place<'_>, name: &str) {
    eventually(&format!("{}/{name} to wait", place.name), DEADLINE, || async {
        let object = serde_json::to_value(api(place).get(name).await?)?;
        let left = pods(place, name).await.len();
        let waits = object["spec"]["suspend"] == true && object["status"]["phase"] == "Suspended";
        Ok(progress(waits && left == 0, format!("{left} pods, {}", object["status"])))
    })
    .await
    .unwrap();
    let object = get(place, name).await;
    for component in object["spec"]["components"].as_array().unwrap() {
        assert_eq!(component.get("podSetInfos"), None, "nothing of an admission is left");
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

#[tokio::test]
async fn an_appwrapper_lives_through_everything_that_can_become_of_it() {
    needs!(Tool::AppWrapperController);
    let place = place("wrapped", [0, 0]).await;
    while_marking(&place, live(&place)).await;
}

async fn live(place: &Place<'_>) {
    let [old, new] = flavors("wrapped");
    let most = u32::try_from(PODS).unwrap();

    make(place, &wrapper("first")).await;
    wait_until_it_waits(place, "first").await;
    let admitted = reported(&place.workload("first").await.unwrap(), "Admitted");
    assert!(!admitted.starts_with("True"), "{admitted}");
    set_quota(place, [most, 0]).await;
    wait_until_it_runs_on(place, "first", &old).await;

    // One that waits is deleted.
    make(place, &wrapper("second")).await;
    wait_until_it_waits(place, "second").await;
    place.wait_for_counts([1, 1, 1]).await.unwrap();
    api(place).delete("second", &DeleteParams::background()).await.unwrap();
    place.wait_for_counts([0, 1, 1]).await.unwrap();

    // A job that matters more takes its place; then there is room on the other flavor.
    place.make_urgent("wrapped", most).await.unwrap();
    place.wait_for_condition("first", "Evicted", "True/Preempted").await.unwrap();
    wait_until_it_waits(place, "first").await;
    place.wait_until("urgent", true).await.unwrap();
    set_quota(place, [most, most]).await;
    wait_until_it_runs_on(place, "first", &new).await;
    end(place, "first").await;
    place.wait_for_counts([0, 1, 1]).await.unwrap();

    // One that runs is deleted.
    make(place, &wrapper("third")).await;
    wait_until_it_runs_on(place, "third", &new).await;
    api(place).delete("third", &DeleteParams::background()).await.unwrap();
    place.delete_job("urgent").await.unwrap();
    place.wait_for_counts([0, 0, 0]).await.unwrap();
}

/// What makes its pods is a ReplicaSet, of which the manager knows nothing: it finds them by the label.
#[tokio::test]
async fn the_pods_of_a_deployment_in_an_appwrapper_have_its_label_and_go_with_it() {
    needs!(Tool::AppWrapperController);
    let place = place("wrapped-set", [1, 0]).await;
    let labels = json!({"app": "first"});
    let container = json!({"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "serves"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    });
    let mut object = wrapper("first");
    object["spec"]["components"] = json!([{"template": deployment}]);
    make(&place, &object).await;
    eventually("the pod of the ReplicaSet", DEADLINE, || async {
        let pods = pods(&place, "first").await;
        let runs = |pod: &Value| {
            pod["status"]["phase"] == "Running"
                && pod["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet"
        };
        Ok(progress(pods.len() == 1 && runs(&pods[0]), format!("{pods:?}")))
    })
    .await
    .unwrap();
    place.make_urgent("wrapped-set", 1).await.unwrap();
    place.wait_for_condition("first", "Evicted", "True/Preempted").await.unwrap();
    wait_until_it_waits(&place, "first").await;
    place.wait_until("urgent", true).await.unwrap();
    api(&place).delete("first", &DeleteParams::background()).await.unwrap();
    place.delete_job("urgent").await.unwrap();
    place.wait_for_counts([0, 0, 0]).await.unwrap();
}

#[tokio::test]
async fn an_appwrapper_that_cannot_be_queued_says_why_and_stays_suspended() {
    needs!(Tool::AppWrapperController);
    let place = &place("unwrapped", [4, 0]).await;
    let path = "template.spec.template";
    let declared = |pods: Value| {
        let mut object = wrapper("bad");
        object["spec"]["components"][1]["podSets"] = pods;
        object
    };
    let many: Vec<_> = (0..19).map(|_| wrapper("x")["spec"]["components"][3].clone()).collect();
    for (name, object, why) in [
        ("fewer", declared(json!([{"replicas": 1, "path": path}])), "podSets do not match the template"),
        ("negative", declared(json!([{"replicas": -5, "path": path}])), "podSets do not match the template"),
        (
            "nowhere",
            declared(json!([{"replicas": 2, "path": "template.nowhere"}])),
            "podSets do not match the template",
        ),
        (
            "many",
            {
                let mut one = wrapper("bad");
                one["spec"]["components"] = json!(many);
                one
            },
            "too many pod sets: 19",
        ),
    ] {
        let mut object = object;
        object["metadata"]["name"] = json!(name);
        make(place, &object).await;
        place.wait_for_event(&format!("AppWrapper/{name}"), "ErrWorkloadCompose", why).await.unwrap();
        assert_eq!(get(place, name).await["spec"]["suspend"], true, "{name}");
    }
    // Others continue.
    make(place, &wrapper("good")).await;
    wait_until_it_runs_on(place, "good", &flavors("unwrapped")[0]).await;
}

#[tokio::test]
async fn an_appwrapper_is_evicted_when_what_it_wraps_grows_and_runs_again_as_declared() {
    needs!(Tool::AppWrapperController);
    let place = &place("grown", [8, 0]).await;
    let mut object = wrapper("first");
    object["spec"]["components"][1]["template"]["spec"]["completions"] = json!(6);
    make(place, &object).await;
    let [flavor, _] = flavors("grown");
    wait_until_it_runs_on(place, "first", &flavor).await;
    let more = Patch::Merge(json!({"spec": {"parallelism": 3}}));
    place.jobs().patch("first-job", &PatchParams::default(), &more).await.unwrap();
    let why =
        "True/OutOfSync: spec.components[1]: Job \"first-job\" has 3 pods of \"main\", and 2 were declared";
    place.wait_for_condition("first", "Evicted", why).await.unwrap();
    wait_until_it_waits(place, "first").await;
    wait_until_it_runs_on(place, "first", &flavor).await;
}
