//! One of two replicas hangs: it accepts connections and does not answer. Objects that must be reviewed wait or are refused, others are created, and
//! the leader continues.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::time::{Duration, Instant};

use futures::future::join_all;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use sluice_testkit::wait::{Progress, eventually, progress};
use sluice_testkit::{Balancer, ControlPlane, Manager, Setup, chart, crds};
use sluice_tests::place::{DEADLINE, Place, job};

/// How many Jobs are made at once: some go to each replica.
const JOBS: usize = 16;
/// A Job that took so long met the replica that hangs.
const HUNG: Duration = Duration::from_secs(1);
/// How long a Job may take that no webhook must review: the API server waits two seconds for each of two, and the machine does other things.
const UNREVIEWED: Duration = Duration::from_secs(20);

/// How many seconds the API server waits for each webhook of jobs without a queue.
async fn waits_without_queue(client: &Client) -> Vec<Option<i32>> {
    let list = ListParams::default();
    let mutating = Api::<MutatingWebhookConfiguration>::all(client.clone()).list(&list).await.unwrap();
    let validating = Api::<ValidatingWebhookConfiguration>::all(client.clone()).list(&list).await.unwrap();
    let mutating = mutating.items.into_iter().flat_map(|all| all.webhooks.unwrap_or_default());
    let mutating = mutating.map(|hook| (hook.name, hook.timeout_seconds));
    let validating = validating.items.into_iter().flat_map(|all| all.webhooks.unwrap_or_default());
    let validating = validating.map(|hook| (hook.name, hook.timeout_seconds));
    let all = mutating.chain(validating).filter(|(name, _)| name.contains("-without-queue"));
    all.map(|(_, seconds)| seconds).collect()
}

/// Makes requests until the API server has connections to both replicas. It keeps those that it has, and makes none to a replica that hangs.
async fn connect_to_both(here: &Place<'_>, balancer: &Balancer) {
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let dry_run = async |number: usize| {
        let work = serde_json::from_value(job(&format!("dry-{number}"), "lq", 1, 1, 3_600))?;
        here.jobs().create(&params, &work).await.map_err(anyhow::Error::from)
    };
    let before = balancer.served()[1];
    eventually("connections to both", DEADLINE, || async {
        let made = join_all((0..JOBS).map(dry_run)).await;
        made.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        Ok(progress(balancer.served()[1] > before + 1, format!("{:?}", balancer.served())))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_replica_that_hangs_lets_nothing_run_and_stops_nothing_else() {
    let plane = ControlPlane::builder().controller_manager(true).start().await.unwrap();
    let client = plane.client().await.unwrap();
    let first = Setup::new(&plane).unwrap();
    let second = first.replica().unwrap();
    let balancer = Balancer::start(&[first.webhook, second.webhook]).await.unwrap();
    let values = json!({"webhooks": {"urlBase": balancer.url()}});
    let first = chart::install(&plane, first, &values).await.unwrap();
    let second = second.acting_as(first.kubeconfig.clone());
    let leader = Manager::start(&plane, first).await.unwrap();
    let mut follower = Manager::start(&plane, second).await.unwrap();
    crds::wait_until_converting(&client).await.unwrap();
    let here = Place::new(&plane, "hanging", 1).await.unwrap();
    let elsewhere = Place::bare(&plane, "elsewhere").await.unwrap();
    here.job("runs", "lq", 1).await.unwrap();
    here.wait_until("runs", true).await.unwrap();
    here.job("waits", "lq", 1).await.unwrap();
    here.wait_for_condition("waits", "QuotaReserved", "False").await.unwrap();
    // The Jobs that come later are behind it.
    here.wait_for_another_second("waits").await.unwrap();
    let waits = waits_without_queue(&client).await;
    assert!(!waits.is_empty() && waits.iter().all(|seconds| *seconds == Some(2)), "{waits:?}");

    connect_to_both(&here, &balancer).await;
    follower.pause().unwrap();
    // All quota is in use: none of these may run, whether they are let in or not.
    let queued = async |number: usize| {
        let name = format!("queued-{number}");
        let made = here.make_job_once(&job(&name, "lq", 1, 1, 3_600)).await;
        (name, made.map_err(|why| format!("{why:#}")))
    };
    let unqueued = async |number: usize| {
        let mut job = job(&format!("unqueued-{number}"), "", 1, 1, 3_600);
        job["metadata"]["labels"] = json!({});
        let began = Instant::now();
        elsewhere.make_job_once(&job).await.unwrap();
        began.elapsed()
    };
    let stopped = async || {
        let patch = Patch::Merge(json!({"spec": {"suspend": false}}));
        eventually("waits to be resumed by hand", DEADLINE, || async {
            Ok(match here.jobs().patch("waits", &PatchParams::default(), &patch).await {
                Ok(_) => Progress::Done(()),
                Err(why) => Progress::NotYet(why.to_string()),
            })
        })
        .await
        .unwrap();
        here.wait_until("waits", false).await.unwrap();
    };
    let began = Instant::now();
    // Until one of them meets the replica that hangs, and no other is kept waiting by the machine.
    for first in (0..).step_by(JOBS) {
        let numbers = || first..first + JOBS;
        let (made, took, ()) =
            tokio::join!(join_all(numbers().map(queued)), join_all(numbers().map(unqueued)), stopped());
        let slowest = took.into_iter().max().unwrap();
        let refused: Vec<_> = made.iter().filter_map(|(_, made)| made.as_ref().err()).collect();
        println!("{} of {JOBS} were refused, others took {slowest:?}", refused.len());
        assert!(refused.iter().all(|why| why.contains("failed calling webhook")), "{refused:?}");
        for (name, made) in &made {
            assert!(made.is_err() || here.suspended(name).await.unwrap(), "{name} runs");
        }
        let met = !refused.is_empty() || slowest > HUNG;
        if met && slowest < UNREVIEWED {
            break;
        }
        assert!(began.elapsed() < DEADLINE, "one met the replica that hangs: {met}; others took {slowest:?}");
    }

    follower.resume().unwrap();
    here.delete_job("runs").await.unwrap();
    here.wait_until("waits", true).await.unwrap();
    eventually("a Job to be made at once", DEADLINE, || async {
        let (began, name) = (Instant::now(), format!("after-{}", jiff::Timestamp::now().as_nanosecond()));
        here.job(&name, "lq", 1).await?;
        let took = began.elapsed();
        Ok(progress(took < Duration::from_secs(1), format!("{took:?}")))
    })
    .await
    .unwrap();
    leader.stop().await.unwrap();
    follower.stop().await.unwrap();
    plane.stop();
}
