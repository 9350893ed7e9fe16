//! The manager as a process: it starts, leads, runs Jobs, hands over, waits for what is missing, and stops.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::cell::Cell;
use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use sluice_testkit::kubectl::{apply, kubectl};
use sluice_testkit::wait::{consistently, eventually, progress};
use sluice_testkit::{ControlPlane, Manager, Setup, crds};
use sluice_tests::place::DEADLINE;
use sluice_tests::queues;

use crate::bare::{LEASE, NAMESPACE, plane, turn};

/// Without webhooks in this plane, the test suspends the Job as they would.
async fn make_job(plane: &ControlPlane, name: &str) -> Api<Job> {
    let jobs: Api<Job> = Api::default_namespaced(plane.client().await.unwrap());
    let job = json!({
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "lq"}},
        "spec": {"suspend": true, "template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        }}},
    });
    jobs.create(&PostParams::default(), &serde_json::from_value(job).unwrap()).await.unwrap();
    jobs
}

async fn suspended(jobs: &Api<Job>, name: &str) -> anyhow::Result<bool> {
    Ok(jobs.get(name).await?.spec.and_then(|spec| spec.suspend).unwrap_or(false))
}

async fn wait_until_started(jobs: &Api<Job>, name: &str) {
    eventually(&format!("{name} to be started"), DEADLINE, || async {
        let suspended = suspended(jobs, name).await?;
        Ok(progress(!suspended, format!("suspended: {suspended}")))
    })
    .await
    .unwrap();
}

async fn holder(plane: &ControlPlane) -> String {
    let leases: Api<Lease> = Api::namespaced(plane.client().await.unwrap(), NAMESPACE);
    let lease = leases.get_opt(LEASE).await.unwrap().and_then(|lease| lease.spec);
    lease.and_then(|spec| spec.holder_identity).unwrap_or_default()
}

#[tokio::test]
async fn jobs_take_turns_and_the_manager_is_small_and_ends_soon() {
    let (_turn, plane) = (turn().await, plane().await);
    let manager = Manager::start(plane, Setup::new(plane).unwrap()).await.unwrap();
    apply(plane, &queues::one(1)).await.unwrap();
    let jobs = make_job(plane, "first").await;
    wait_until_started(&jobs, "first").await;
    make_job(plane, "second").await;
    eventually("second to say why it waits", DEADLINE, || async {
        let all = kubectl(plane, &["get", "workloads", "-o", "json"]).await?;
        Ok(progress(all.contains("insufficient unused quota"), all))
    })
    .await
    .unwrap();
    assert!(suspended(&jobs, "second").await.unwrap());
    jobs.delete("first", &kube::api::DeleteParams::background()).await.unwrap();
    // No garbage collector here: the Workload goes when its owner's deletion is played.
    let owned = kubectl(plane, &["get", "workloads", "-o", "name"]).await.unwrap();
    let first = owned.lines().find(|line| line.contains("job-first-")).unwrap();
    let _ = kubectl(plane, &["delete", "--wait=false", first]).await;
    wait_until_started(&jobs, "second").await;
    let memory = manager.resident_memory().unwrap();
    println!("the manager's resident memory: {} KiB", memory >> 10);
    // The release binary has 30 MiB; the code of one that is not optimised is larger.
    assert!(memory < 100 << 20, "{memory} bytes");
    ends_soon_and_releases_the_lease(plane, manager).await;
}

/// A manager that is stopped releases its lease. If the API server takes longer than the manager waits for that, the lease expires, and the next one
/// that leads is stopped.
async fn ends_soon_and_releases_the_lease(plane: &ControlPlane, mut manager: Manager) {
    const RELEASE: Duration = Duration::from_secs(2);
    let began = Instant::now();
    loop {
        let setup = manager.setup().clone();
        let log = manager.log().unwrap();
        let (took, status) = manager.stop().await.unwrap();
        assert!(status.success() && took < Duration::from_secs(10), "{status} after {took:?}: {log}");
        let before = holder(plane).await;
        if before.is_empty() {
            return;
        }
        assert!(took >= RELEASE && began.elapsed() < DEADLINE, "the lease is not released after {took:?}");
        manager = Manager::start(plane, setup).await.unwrap();
        eventually("the next manager to lead", DEADLINE, || async {
            let holder = holder(plane).await;
            Ok(progress(!holder.is_empty() && holder != before, holder))
        })
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn the_other_replica_takes_over_when_the_leader_is_killed() {
    let (_turn, plane) = (turn().await, plane().await);
    let setup = Setup::new(plane).unwrap();
    let second = setup.replica().unwrap();
    let leader = Manager::start(plane, setup).await.unwrap();
    eventually("the first to lead", DEADLINE, || async {
        let holder = holder(plane).await;
        Ok(progress(holder.starts_with("sluice_"), holder))
    })
    .await
    .unwrap();
    let before = holder(plane).await;
    let follower = Manager::start(plane, second).await.unwrap();
    eventually("the second to say that the first leads", DEADLINE, || async {
        let (_, text) = follower.health("/readyz").await?;
        Ok(progress(text.contains("leads"), text))
    })
    .await
    .unwrap();
    leader.kill();
    eventually("the second to lead", DEADLINE, || async {
        let holder = holder(plane).await;
        Ok(progress(holder != before && holder.starts_with("sluice_"), holder))
    })
    .await
    .unwrap();
    apply(plane, &queues::one(1)).await.unwrap();
    let jobs = make_job(plane, "after").await;
    wait_until_started(&jobs, "after").await;
    follower.stop().await.unwrap();
}

#[tokio::test]
async fn it_does_not_lead_while_kueue_renews_the_lease_and_says_so() {
    let (_turn, plane) = (turn().await, plane().await);
    let setup = Setup::new(plane).unwrap().brief_leases();
    let leases: Api<Lease> = Api::namespaced(plane.client().await.unwrap(), NAMESPACE);
    let kueue = |renewed: u32| {
        let time = format!("2026-01-01T00:00:00.{renewed:06}Z");
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEASE}, "spec": {
            "holderIdentity": "kueue-controller-manager-0_1", "leaseDurationSeconds": 20, "renewTime": time,
        }})
    };
    let params = PatchParams::apply("kueue").force();
    leases.patch(LEASE, &params, &Patch::Apply(kueue(0))).await.unwrap();
    let manager = Manager::start(plane, setup).await.unwrap();
    let renewed = Cell::new(0);
    let renew = async || {
        renewed.set(renewed.get() + 1);
        // It would take the lease away from Sluice, too.
        let before = holder(plane).await;
        leases.patch(LEASE, &params, &Patch::Apply(kueue(renewed.get()))).await?;
        let (status, text) = manager.health("/readyz").await?;
        let is_left = before.starts_with("kueue") && status == 200 && text.contains("Kueue leads");
        anyhow::Ok(progress(is_left, format!("{before} leads; {status} {text}")))
    };
    eventually("the manager to say that Kueue leads", DEADLINE, &renew).await.unwrap();
    consistently("Kueue to keep its lease", Duration::from_secs(5), &renew).await.unwrap();
    // Kueue stops renewing: the lease expires, and Sluice leads.
    eventually("Sluice to lead", DEADLINE, || async {
        let holder = holder(plane).await;
        Ok(progress(holder.starts_with("sluice_"), holder))
    })
    .await
    .unwrap();
    manager.stop().await.unwrap();
}

#[tokio::test]
async fn it_names_missing_crds_waits_for_them_and_replaces_a_spoilt_certificate_without_a_restart() {
    // Its own: the definitions come later, and are converted by this manager.
    let plane = ControlPlane::builder().start().await.unwrap();
    plane.make_namespace(NAMESPACE).await.unwrap();
    let client = plane.client().await.unwrap();
    let setup = Setup::new(&plane).unwrap();
    let url = setup.webhook_url();
    let mut manager = Manager::launch(&plane, setup).await.unwrap();
    eventually("the missing CRDs to be named", DEADLINE, || async {
        let (status, text) = manager.health("/readyz").await?;
        Ok(progress(status == 503 && text.contains("clusterqueues.kueue.x-k8s.io"), text))
    })
    .await
    .unwrap();
    crds::install(&client, Some(&url)).await.unwrap();
    manager.wait_until_ready().await.unwrap();
    crds::wait_until_converting(&client).await.unwrap();
    a_spoilt_certificate_is_replaced(&plane).await;
    manager.stop().await.unwrap();
    plane.stop();
}

async fn a_spoilt_certificate_is_replaced(plane: &ControlPlane) {
    let secrets: Api<Secret> = Api::namespaced(plane.client().await.unwrap(), NAMESPACE);
    let read = async || -> Value {
        let secret = secrets.get("kueue-webhook-server-cert").await.unwrap();
        serde_json::to_value(secret.data.unwrap()["tls.crt"].clone()).unwrap()
    };
    let before = read().await;
    let spoilt = json!({"data": {"tls.crt": "c3BvaWx0"}});
    secrets.patch("kueue-webhook-server-cert", &PatchParams::default(), &Patch::Merge(spoilt)).await.unwrap();
    eventually("a new certificate", DEADLINE, || async {
        let now = read().await;
        Ok(progress(now != before && now != "c3BvaWx0", now))
    })
    .await
    .unwrap();
    eventually("conversion to work again", DEADLINE, || async {
        let flavors = kubectl(plane, &["get", "clusterqueues.v1beta1.kueue.x-k8s.io"]).await?;
        Ok(progress(true, flavors))
    })
    .await
    .unwrap();
}
