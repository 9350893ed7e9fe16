//! SparkApplications, run by the real Spark operator: queued, admitted, moved to another flavor, ended and deleted.
//!
//! The pods are those that Spark would make; no Spark runs in them. See `sluice_testkit::spark`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::time::{Duration, Instant};

use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_testkit::assets::Tool;
use sluice_testkit::spark::{self, Operator};
use sluice_testkit::wait::{Progress, eventually, progress};
use sluice_testkit::{chart, needs};
use sluice_tests::place::{DEADLINE, Place, QUEUE_NAME, reported};
use tokio::sync::OnceCell;

use crate::bed::bed;
use crate::flavors::{flavors, set_quota, two_flavors};
use crate::marks::{expected, of_pod, while_marking};

const KIND: JobKind = JobKind::SPARK_APPLICATION;
/// The label that the operator gives to all pods of an application.
const NAME: &str = "sparkoperator.k8s.io/app-name";
/// A driver and two executors, each of which asks for one processor.
const PODS: usize = 3;

static OPERATOR: OnceCell<Operator> = OnceCell::const_new();

async fn place(name: &'static str, quota: [u32; 2]) -> Place<'static> {
    OPERATOR.get_or_try_init(|| async { spark::start(bed().await.plane).await }).await.unwrap();
    two_flavors(name, quota).await
}

fn application(name: &str) -> Value {
    let pod = json!({"coreRequest": "1", "memory": "512m", "annotations": {"sluice.dev/run-seconds": "600"},
        "terminationGracePeriodSeconds": 0});
    let mut executor = pod.clone();
    executor["instances"] = json!(2);
    json!({
        "apiVersion": KIND.api_version(), "kind": KIND.kind(),
        "metadata": {"name": name, "labels": {QUEUE_NAME: "lq"}},
        "spec": {"type": "Python", "mode": "cluster", "sparkVersion": "4.0.0", "image": "none",
            "mainApplicationFile": "local:///none.py", "driver": pod, "executor": executor},
    })
}

fn api(place: &Place<'_>) -> Api<DynamicObject> {
    let gvk = GroupVersionKind::gvk(KIND.group(), KIND.version(), KIND.kind());
    let resource = ApiResource::from_gvk_with_plural(&gvk, KIND.plural());
    Api::namespaced_with(place.client.clone(), &place.name, &resource)
}

async fn make(place: &Place<'_>, name: &str) {
    let object = serde_json::from_value(application(name)).unwrap();
    api(place).create(&PostParams::default(), &object).await.unwrap();
}

async fn get(place: &Place<'_>, name: &str) -> Value {
    serde_json::to_value(api(place).get(name).await.unwrap()).unwrap()
}

async fn pods(place: &Place<'_>, name: &str) -> Vec<Value> {
    place.pods_with(&format!("{NAME}={name}")).await.unwrap()
}

/// Waits until driver and executors run, none of them but on the nodes of this flavor.
async fn wait_until_it_runs_on(place: &Place<'_>, name: &str, flavor: &str) {
    let marked = expected(place, Some(flavor)).await;
    eventually(&format!("{}/{name} to run on {flavor}", place.name), DEADLINE, || async {
        let pods = pods(place, name).await;
        let right = |pod: &&Value| pod["status"]["phase"] == "Running" && of_pod(pod) == marked;
        let of =
            |pod: &Value| format!("{} {} {}", pod["metadata"]["name"], pod["status"]["phase"], of_pod(pod));
        let all = pods.iter().filter(right).count() == PODS && pods.len() == PODS;
        let object = get(place, name).await;
        let view = sluice_jobs::observe(KIND, &object);
        let reported = format!("{:?} {}", pods.iter().map(of).collect::<Vec<_>>(), object["status"]);
        Ok(progress(all && view.active && view.pods_ready, reported))
    })
    .await
    .unwrap();
    let object = get(place, name).await;
    assert_eq!(object["spec"]["suspend"], false);
    for group in sluice_jobs::pod_groups(KIND, &object) {
        assert_eq!(of_pod(&group.template), marked, "{}", group.path());
    }
}

/// Waits until it is suspended and has no pods.
async fn wait_until_it_waits(place: &Place<'_>, name: &str) {
    eventually(&format!("{}/{name} to wait", place.name), DEADLINE, || async {
        let object = get(place, name).await;
        let left = pods(place, name).await.len();
        let state = &object["status"]["applicationState"]["state"];
        let waits = object["spec"]["suspend"] == true && state == "SUSPENDED";
        Ok(progress(waits && left == 0, format!("{left} pods, {}", object["status"])))
    })
    .await
    .unwrap();
    let object = get(place, name).await;
    for group in sluice_jobs::pod_groups(KIND, &object) {
        assert_eq!(of_pod(&group.template), expected(place, None).await, "{}", group.path());
    }
}

/// There are no processes in pods: the test says that the driver ended. The operator goes by it.
async fn end(place: &Place<'_>, name: &str) {
    for pod in pods(place, name).await {
        if pod["metadata"]["labels"]["spark-role"] == "driver" {
            let status = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
            let name = pod["metadata"]["name"].as_str().unwrap();
            place.pods().patch_status(name, &PatchParams::default(), &status).await.unwrap();
        }
    }
    place.wait_for_condition(name, "Finished", "True/Succeeded").await.unwrap();
}

#[tokio::test]
async fn a_sparkapplication_lives_through_everything_that_can_become_of_it() {
    needs!(Tool::SparkOperator);
    let place = place("spark", [0, 0]).await;
    while_marking(&place, live(&place)).await;
}

async fn live(place: &Place<'_>) {
    let [old, new] = flavors("spark");
    let most = u32::try_from(PODS).unwrap();
    // Pods without a queue are queued here themselves, but not drivers and executors of what is queued.
    place.local_queue("default", "spark").await.unwrap();

    make(place, "first").await;
    wait_until_it_waits(place, "first").await;
    let admitted = reported(&place.workload("first").await.unwrap(), "Admitted");
    assert!(!admitted.starts_with("True"), "{admitted}");
    set_quota(place, [most, 0]).await;
    wait_until_it_runs_on(place, "first", &old).await;

    // One that waits is deleted.
    make(place, "second").await;
    wait_until_it_waits(place, "second").await;
    place.wait_for_counts([1, 1, 1]).await.unwrap();
    api(place).delete("second", &DeleteParams::background()).await.unwrap();
    place.wait_for_counts([0, 1, 1]).await.unwrap();

    // A job that matters more takes its place; then there is room on the other flavor.
    place.make_urgent("spark", most).await.unwrap();
    place.wait_for_condition("first", "Evicted", "True/Preempted").await.unwrap();
    wait_until_it_waits(place, "first").await;
    place.wait_until("urgent", true).await.unwrap();
    set_quota(place, [most, most]).await;
    wait_until_it_runs_on(place, "first", &new).await;
    end(place, "first").await;
    place.wait_for_counts([0, 1, 1]).await.unwrap();

    // What ended is not run again by a change.
    let more = Patch::Merge(json!({"spec": {"executor": {"instances": 9}}}));
    let refused = api(place).patch("first", &PatchParams::default(), &more).await.unwrap_err().to_string();
    assert!(refused.contains("the operator would run it again"), "{refused}");

    // One that runs is deleted.
    make(place, "third").await;
    wait_until_it_runs_on(place, "third", &new).await;
    api(place).delete("third", &DeleteParams::background()).await.unwrap();
    place.delete_job("urgent").await.unwrap();
    place.wait_for_counts([0, 0, 0]).await.unwrap();
}

/// Its owner makes it run, makes it larger than anything, or larger while it runs.
#[tokio::test]
async fn a_sparkapplication_runs_nothing_that_was_not_admitted() {
    needs!(Tool::SparkOperator);
    let place = &place("spark-foe", [0, 0]).await;
    let [old, _] = flavors("spark-foe");
    let most = u32::try_from(PODS).unwrap();
    let apply = async |name: &str, spec: Value| {
        let patch = Patch::Merge(json!({"spec": spec}));
        api(place).patch(name, &PatchParams::default(), &patch).await
    };

    for (spec, reported) in [
        (json!({"mode": "client"}), "only Cluster mode"),
        (json!({"dynamicAllocation": {"enabled": true}}), "can use dynamicAllocation only when"),
        (
            json!({"sparkConf": {"spark.dynamicAllocation.enabled": "true"}}),
            "can use dynamicAllocation only when",
        ),
        (json!({"executor": {"coreRequest": "-5"}}), "must not be negative"),
        (json!({"driver": {"memory": "much"}}), "is not a quantity"),
        (json!({"executor": {"labels": {NAME: "other"}}}), "the label is the operator's"),
    ] {
        let mut object = application("refused");
        json_patch::merge(&mut object["spec"], &spec);
        let object = serde_json::from_value(object).unwrap();
        let refused = api(place).create(&PostParams::default(), &object).await.unwrap_err().to_string();
        assert!(refused.contains(reported), "{refused}");
    }

    // More than there is of anything.
    let mut object = application("huge");
    object["spec"]["executor"]["instances"] = json!(i32::MAX);
    object["spec"]["executor"]["memory"] = json!("9000000000g");
    object["spec"]["memoryOverheadFactor"] = json!("1e300");
    let object = serde_json::from_value(object).unwrap();
    api(place).create(&PostParams::default(), &object).await.unwrap();
    wait_until_it_waits(place, "huge").await;
    let workload = place.workload("huge").await.unwrap();
    let executors = &workload["spec"]["podSets"][1];
    assert_eq!(executors["count"], i32::MAX);
    let requests = &executors["template"]["spec"]["containers"][0]["resources"]["requests"];
    assert_eq!(*requests, json!({"cpu": "1", "memory": "9000000000Gi"}));

    // It is made running, at its creation and later.
    let mut object = application("forged");
    object["spec"]["suspend"] = json!(false);
    let object = serde_json::from_value(object).unwrap();
    api(place).create(&PostParams::default(), &object).await.unwrap();
    wait_until_it_waits(place, "forged").await;
    apply("forged", json!({"suspend": false})).await.unwrap();
    wait_until_it_waits(place, "forged").await;
    place.wait_for_counts([2, 0, 0]).await.unwrap();
    set_quota(place, [most, 0]).await;
    wait_until_it_runs_on(place, "forged", &old).await;

    // It asks for more while it runs, and for as much as before.
    apply("forged", json!({"executor": {"instances": PODS}})).await.unwrap();
    wait_until_it_waits(place, "forged").await;
    place.wait_for_counts([2, 0, 0]).await.unwrap();
    apply("forged", json!({"executor": {"instances": PODS - 1}})).await.unwrap();
    wait_until_it_runs_on(place, "forged", &old).await;
    place.wait_for_counts([1, 1, 1]).await.unwrap();
    for name in ["forged", "huge"] {
        api(place).delete(name, &DeleteParams::background()).await.unwrap();
    }
    place.wait_for_counts([0, 0, 0]).await.unwrap();
}

/// The processors that all containers of a pod or of a template ask for.
fn processors(pod: &Value) -> u32 {
    let containers = pod["spec"]["containers"].as_array().unwrap().iter();
    let of = |one: &Value| one["resources"]["requests"]["cpu"].as_str().map_or(0, |cpu| cpu.parse().unwrap());
    containers.map(of).sum()
}

#[tokio::test]
async fn a_driver_that_needs_more_than_an_executor_gets_quota_for_all_of_its_containers() {
    needs!(Tool::SparkOperator);
    let place = &place("spark-driver", [4, 0]).await;
    let [old, _] = flavors("spark-driver");
    let mut object = application("pi");
    let driver = &mut object["spec"]["driver"];
    driver["coreRequest"] = json!("2");
    driver["sidecars"] =
        json!([{"name": "log", "image": "none", "resources": {"requests": {"cpu": "1", "memory": "64Mi"}}}]);
    driver["tolerations"] = json!([{"key": "drivers", "operator": "Exists"}]);
    api(place).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    // The driver needs three processors, and its two executors one each.
    wait_until_it_waits(place, "pi").await;
    place.wait_for_counts([1, 0, 0]).await.unwrap();
    set_quota(place, [5, 0]).await;
    wait_until_it_runs_on(place, "pi", &old).await;

    let workload = place.workload("pi").await.unwrap();
    let assigned = &workload["status"]["admission"]["podSetAssignments"];
    assert_eq!([&assigned[0]["resourceUsage"]["cpu"], &assigned[1]["resourceUsage"]["cpu"]], ["3", "2"]);
    let templates: Vec<_> = (0..2).map(|at| workload["spec"]["podSets"][at]["template"].clone()).collect();
    for pod in pods(place, "pi").await {
        let is_driver = pod["metadata"]["labels"]["spark-role"] == "driver";
        let counted = &templates[usize::from(!is_driver)];
        assert_eq!(processors(&pod), processors(counted), "{}", pod["metadata"]["name"]);
        let tolerations = pod["spec"]["tolerations"].as_array().unwrap();
        assert_eq!(tolerations.iter().any(|one| one["key"] == "drivers"), is_driver);
    }
    api(place).delete("pi", &DeleteParams::background()).await.unwrap();
    place.wait_for_counts([0, 0, 0]).await.unwrap();
}

/// An answer within that time is the webhook's: the API server lets a pod without a queue pass if there is none for a second longer.
const IN_TIME: Duration = chart::LONG_WAIT.saturating_sub(Duration::from_secs(1));

/// Makes a pod with the operator's label, and no queue; how many gates hold it.
async fn look_alike(place: &Place<'_>, application: &str, name: &str, owners: &Value) -> usize {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {NAME: application, "spark-role": "driver"}, "ownerReferences": owners},
        "spec": {"containers": [{"name": "main", "image": "none"}], "terminationGracePeriodSeconds": 0},
    });
    let pod = serde_json::from_value(pod).unwrap();
    eventually(&format!("the webhook to answer for {name}"), DEADLINE, || async {
        let asked = Instant::now();
        let made = place.pods().create(&PostParams::default(), &pod).await?;
        if asked.elapsed() < IN_TIME {
            return Ok(Progress::Done(made.spec.unwrap().scheduling_gates.unwrap_or_default().len()));
        }
        place.pods().delete(name, &DeleteParams::default().grace_period(0)).await?;
        Ok(Progress::NotYet(format!("it took {:?}", asked.elapsed())))
    })
    .await
    .unwrap()
}

async fn uid_of(place: &Place<'_>, pod: &str) -> String {
    place.pods().get(pod).await.unwrap().metadata.uid.unwrap()
}

#[tokio::test]
async fn what_only_looks_like_a_driver_or_an_executor_is_queued() {
    needs!(Tool::SparkOperator);
    let place = &place("spark-forged", [0, 0]).await;
    let [old, _] = flavors("spark-forged");
    place.local_queue("default", "spark-forged").await.unwrap();
    make(place, "pi").await;
    wait_until_it_waits(place, "pi").await;
    let of = |uid: &str| json!([{"apiVersion": "v1", "kind": "Pod", "name": "pi-driver", "uid": uid, "controller": true}]);

    // While the application waits, nothing is its driver, and nothing that one makes its executor.
    assert_ne!(look_alike(place, "pi", "pi-driver", &Value::Null).await, 0);
    assert_ne!(look_alike(place, "pi", "forged-1", &of(&uid_of(place, "pi-driver").await)).await, 0);
    for name in ["forged-1", "pi-driver"] {
        place.pods().delete(name, &DeleteParams::default()).await.unwrap();
    }
    eventually("the pods to be gone", DEADLINE, || async {
        let left = pods(place, "pi").await.len();
        Ok(progress(left == 0, left))
    })
    .await
    .unwrap();

    let most = u32::try_from(PODS).unwrap();
    set_quota(place, [most, 0]).await;
    wait_until_it_runs_on(place, "pi", &old).await;
    for (name, owners) in
        [("forged-2", Value::Null), ("forged-3", of("00000000-0000-0000-0000-000000000000"))]
    {
        assert_ne!(look_alike(place, "pi", name, &owners).await, 0, "{name}");
    }
    assert_eq!(look_alike(place, "pi", "executor", &of(&uid_of(place, "pi-driver").await)).await, 0);
}
