//! Two releases side by side behind one Service, forward and back (a rolling upgrade, and its rollback): both answer webhooks and conversion with the
//! same certificate authority, one leads, and nothing is lost when either ends.
//!
//! The older release is the same program with older feature gates: its reasons differ, so they show which replica decides.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Request;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::client::Body;
use kube::{Client, Config};
use serde_json::{Value, json};
use sluice_testkit::wait::{Progress, eventually, progress};
use sluice_testkit::{Balancer, ControlPlane, Manager, Setup, chart, crds, workloads};
use sluice_tests::place::{DEADLINE, Place, job};

/// Reasons as they were before the gate.
const OLDER: &str = "--feature-gates=UnadmittedWorkloadsObservability=false";
/// How long a client tries a write again that a dying replica has refused.
const PATIENCE: Duration = DEADLINE;

/// A certificate authority from the Secret that all replicas share, as a file.
async fn authority(plane: &ControlPlane) -> PathBuf {
    let secrets: Api<Secret> = Api::namespaced(plane.client().await.unwrap(), chart::NAMESPACE);
    let secret = secrets.get("kueue-webhook-server-cert").await.unwrap();
    let file = plane.folder().join("webhook-ca.crt");
    std::fs::write(&file, &secret.data.unwrap()["ca.crt"].0).unwrap();
    file
}

/// Asks one replica, trusting only that authority.
async fn ask(port: u16, authority: &Path, path: &str, body: &Value) -> Value {
    let mut config = Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
    config.default_retry = false;
    config.root_cert_file = Some(authority.to_owned());
    let client = Client::try_from(config).unwrap();
    let request = Request::post(path).header("content-type", "application/json");
    let request = request.body(Body::from(body.to_string().into_bytes())).unwrap();
    let answer = client.send(request).await.unwrap_or_else(|error| panic!("{port}{path}: {error}"));
    assert_eq!(answer.status(), 200, "{port}{path}");
    let bytes = answer.into_body().collect_bytes().await.unwrap();
    serde_json::from_slice::<Value>(&bytes).unwrap()["response"].clone()
}

/// Whether a replica converts and judges.
async fn answers(port: u16, authority: &Path) {
    let queue = |spec: Value| json!({"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "q"}, "spec": spec});
    let review = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": {
        "uid": "u", "desiredAPIVersion": "kueue.x-k8s.io/v1beta2", "objects": [queue(json!({"cohort": "team"}))],
    }});
    let answer = ask(port, authority, "/convert", &review).await;
    assert_eq!(answer["convertedObjects"][0]["spec"]["cohortName"], "team", "{port}: {answer}");
    let mut alone = queue(json!({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [
        {"name": "f", "resources": [{"name": "cpu", "nominalQuota": 1, "lendingLimit": 1}]},
    ]}]}));
    alone["apiVersion"] = "kueue.x-k8s.io/v1beta2".into();
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "CREATE", "name": "q", "object": alone, "userInfo": {},
        "kind": {"group": "kueue.x-k8s.io", "version": "v1beta2", "kind": "ClusterQueue"},
        "resource": {"group": "kueue.x-k8s.io", "version": "v1beta2", "resource": "clusterqueues"},
    }});
    let answer = ask(port, authority, "/validate-kueue-x-k8s-io-v1beta2-clusterqueue", &review).await;
    assert_eq!(answer["allowed"], false, "{port}: {answer}");
    assert!(answer["status"]["message"].as_str().unwrap().contains("lendingLimit"), "{port}: {answer}");
}

async fn holder(client: &Client) -> String {
    let leases: Api<Lease> = Api::namespaced(client.clone(), chart::NAMESPACE);
    let lease = leases.get_opt("c1f6bfd2.kueue.x-k8s.io").await.unwrap().and_then(|lease| lease.spec);
    lease.and_then(|spec| spec.holder_identity).unwrap_or_default()
}

async fn wait_for_another_leader(client: &Client, before: &str) -> String {
    eventually("a leader that is not the last one", DEADLINE, || async {
        let now = holder(client).await;
        let other = !now.is_empty() && now != before;
        Ok(if other { Progress::Done(now) } else { Progress::NotYet(now) })
    })
    .await
    .unwrap()
}

/// Users and older tools that continue working all the while: Jobs, queues in v1beta1, lists in v1beta1. Tries again what fails. How many Jobs it made.
async fn keep_working(client: Client, namespace: String, until: Arc<AtomicBool>) -> u32 {
    let older = |kind: &str, plural: &str| {
        let kind = GroupVersionKind::gvk("kueue.x-k8s.io", "v1beta1", kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &resource)
    };
    let (queues, all) = (older("LocalQueue", "localqueues"), older("Workload", "workloads"));
    let jobs: Api<Job> = Api::namespaced(client.clone(), &namespace);
    let mut made = 0;
    let mut pace = tokio::time::interval(Duration::from_secs(1));
    while !until.load(Ordering::Relaxed) {
        pace.tick().await;
        let name = format!("busy-{made}");
        let queue = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue", "metadata": {"name": name},
            "spec": {"clusterQueue": "wide"},
        });
        let queue: DynamicObject = serde_json::from_value(queue).unwrap();
        let work: Job = serde_json::from_value(job(&name, &name, 1, 1, 3_600)).unwrap();
        let params = PostParams::default();
        patiently("a queue in v1beta1", || already(queues.create(&params, &queue))).await;
        patiently("a Job", || already(jobs.create(&params, &work))).await;
        patiently("a list in v1beta1", || async { all.list(&ListParams::default()).await.map(drop) }).await;
        made += 1;
    }
    made
}

/// A write that was carried out although its answer was lost is done.
async fn already<T>(write: impl Future<Output = kube::Result<T>>) -> kube::Result<()> {
    match write.await {
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => Ok(()),
        other => other.map(drop),
    }
}

async fn patiently<F: Future<Output = kube::Result<()>>>(what: &str, attempt: impl Fn() -> F) {
    eventually(what, PATIENCE, || async {
        Ok(match attempt().await {
            Ok(()) => Progress::Done(()),
            Err(error) => Progress::NotYet(error.to_string()),
        })
    })
    .await
    .unwrap();
}

/// The Workloads of the Jobs that run since the beginning, by name and UID: they must stay what they are.
async fn running(here: &Place<'_>, jobs: &[&str]) -> Vec<(String, String)> {
    let mut seen = Vec::new();
    for job in jobs {
        here.wait_until(job, true).await.unwrap();
        let workload = here.workload(job).await.unwrap();
        assert!(workloads::condition(&workload, "Evicted").is_none(), "{job}: {workload:#}");
        let text = |field: &str| workload["metadata"][field].as_str().unwrap().to_owned();
        seen.push((text("name"), text("uid")));
    }
    seen
}

/// Waits until a Job runs in place of one that was deleted: the garbage collector has to come by first, which takes its time on a busy machine.
async fn takes_over(here: &Place<'_>, job: &str) {
    eventually(&format!("{job} to run"), Duration::from_mins(3), || async {
        let suspended = here.suspended(job).await?;
        Ok(progress(!suspended, "it is suspended"))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn an_upgrade_and_its_rollback_lose_nothing_and_keep_webhooks_answering() {
    let plane = ControlPlane::builder().controller_manager(true).start().await.unwrap();
    let client = plane.client().await.unwrap();
    // The older one has to lead until it is killed, also on a machine that stands still for a while.
    let times =
        json!({"leaderElection": {"leaseDuration": "30s", "renewDeadline": "25s", "retryPeriod": "1s"}});
    let first = Setup::new(&plane).unwrap().with(&times);
    let second = first.replica().unwrap();
    let balancer = Balancer::start(&[first.webhook, second.webhook]).await.unwrap();
    let values = json!({"webhooks": {"urlBase": balancer.url()}});
    let first = chart::install(&plane, first, &values).await.unwrap();
    let second = second.acting_as(first.kubeconfig.clone());
    let older = Manager::start(&plane, first.arg(OLDER)).await.unwrap();
    crds::wait_until_converting(&client).await.unwrap();

    let here = Place::new(&plane, "rolling", 2).await.unwrap();
    here.cluster_queue("wide", 1_000, &json!({})).await.unwrap();
    let leader = wait_for_another_leader(&client, "").await;
    for name in ["a", "b", "c", "d"] {
        here.job(name, "lq", 1).await.unwrap();
        // In seconds of their own, so that it is known which waits, and for which.
        here.wait_for_another_second(name).await.unwrap();
    }
    let stay = running(&here, &["a"]).await;
    here.wait_until("b", true).await.unwrap();
    here.wait_for_condition("c", "QuotaReserved", "False/Pending: ").await.unwrap();

    // The new release joins: both answer, with the same authority, and the old one leads on.
    let newer = Manager::start(&plane, second.clone()).await.unwrap();
    let authority = authority(&plane).await;
    for manager in [&older, &newer] {
        answers(manager.setup().webhook, &authority).await;
    }
    assert_eq!(holder(&client).await, leader);
    let over = Arc::new(AtomicBool::new(false));
    let busy = tokio::spawn(keep_working(client.clone(), here.name.clone(), Arc::clone(&over)));

    // The old one is killed in the middle of it all.
    let first = older.kill();
    let leader = wait_for_another_leader(&client, &leader).await;
    here.delete_job("b").await.unwrap();
    takes_over(&here, "c").await;
    here.wait_for_condition("d", "QuotaReserved", "False/WaitingForQuota: ").await.unwrap();
    assert_eq!(running(&here, &["a"]).await, stay);
    assert!(balancer.served()[1] > 0, "{:?}", balancer.served());

    // Back again: the old release joins, the new one ends as a rollout ends it.
    let older = Manager::start(&plane, first).await.unwrap();
    answers(older.setup().webhook, &authority).await;
    let served = balancer.served()[0];
    let (_, status) = newer.stop().await.unwrap();
    assert!(status.success(), "{status}");
    wait_for_another_leader(&client, &leader).await;
    here.wait_for_condition("d", "QuotaReserved", "False/Pending: ").await.unwrap();
    here.delete_job("c").await.unwrap();
    takes_over(&here, "d").await;
    assert_eq!(running(&here, &["a"]).await, stay);
    assert!(balancer.served()[0] > served, "{:?}", balancer.served());

    // Whatever was accepted meanwhile is there, once, and runs.
    over.store(true, Ordering::Relaxed);
    let made = busy.await.unwrap();
    assert!(made > 0);
    for n in 0..made {
        here.wait_until(&format!("busy-{n}"), true).await.unwrap();
    }
    let all = workloads::list(&client, &here.name).await.unwrap();
    let owners = |name: &str| {
        let owned = |w: &&Value| w["metadata"]["ownerReferences"][0]["name"] == name;
        all.iter().filter(owned).count()
    };
    for n in 0..made {
        assert_eq!(owners(&format!("busy-{n}")), 1, "busy-{n}");
    }
    eventually("the counts of the other queue", DEADLINE, || async {
        let status = here.cluster_queues().get("wide").await?.data["status"].clone();
        Ok(progress(status["admittedWorkloads"] == made && status["pendingWorkloads"] == 0, status))
    })
    .await
    .unwrap();
    older.stop().await.unwrap();
    plane.stop();
}
