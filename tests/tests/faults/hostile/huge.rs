//! Objects as large as the API server accepts.

use std::time::{Duration, Instant};

use futures::future::join_all;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use sluice_testkit::chart;
use sluice_testkit::wait::{eventually, progress};
use sluice_tests::place::{DEADLINE, QUEUE_NAME};

use super::bed::{OWN, SHARED, Tenant, attack, refused, set, tenant};

/// How many heavy reviews there are at once: more than the manager works on.
const HEAVY: usize = 20;
/// How long the webhooks are flooded: small jobs may be refused in a flood in which the machine has no five seconds for the manager's answers.
const FLOODED: Duration = DEADLINE;
/// The API server waits a second longer for the webhook of a job without a queue. A job that passes sooner was not reviewed as it should be.
const PATIENCE: Duration = chart::LONG_WAIT.saturating_sub(Duration::from_secs(1));

fn container(job: &mut Value) -> &mut Value {
    &mut job["spec"]["template"]["spec"]["containers"][0]
}

/// `count` variables.
fn variables(count: usize) -> Value {
    (0..count).map(|n| json!({"name": format!("VARIABLE_{n}"), "value": "x".repeat(40)})).collect()
}

/// A Job that names no queue.
fn unqueued(name: &str) -> Value {
    let mut job = attack(name, SHARED);
    job["metadata"]["labels"] = json!({});
    job
}

/// Makes the job `most` with nearly as many variables as a job may have. How many.
async fn most_variables(tenant: &Tenant) -> usize {
    let (mut least, mut most) = (0, 60_000);
    while most - least > 500 {
        let middle = usize::midpoint(least, most);
        let mut job = attack("most", SHARED);
        container(&mut job)["env"] = (0..middle).map(|n| json!({"name": format!("V{n}")})).collect();
        if tenant.dry_run(&job).await.is_err() { most = middle } else { least = middle }
    }
    let mut job = attack("most", SHARED);
    container(&mut job)["env"] = (0..least).map(|n| json!({"name": format!("V{n}")})).collect();
    tenant.make(&job).await.unwrap();
    least
}

pub async fn huge_objects_wait_like_others_or_are_refused() {
    let tenant = tenant("huge").await;
    let mut attacker = attack("variables", SHARED);
    container(&mut attacker)["env"] = variables(10_000);
    // A review of its next change would not fit into the manager's memory.
    let why = tenant.make(&attacker).await.unwrap_err().to_string();
    assert!(why.contains("the review has too many values"), "{why}");
    container(&mut attacker)["env"] = variables(3_000);
    let mut wide = attack("wide", SHARED);
    container(&mut wide)["args"] = json!(["x".repeat(950_000)]);
    let mut labelled = attack("labelled", SHARED);
    for n in 0..1_000 {
        let (key, value) = (format!("{}.example.com/{n:063}", "d".repeat(60)), "v".repeat(63));
        labelled["metadata"]["labels"][key.as_str()] = json!(value);
        labelled["spec"]["template"]["metadata"]["labels"][key.as_str()] = json!(value);
    }
    let mut annotated = attack("annotated", SHARED);
    annotated["metadata"]["annotations"] = json!({"example.com/much": "x".repeat(250_000)});
    let mut named = attack(&"n".repeat(63), SHARED);
    named["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = json!("p".repeat(63));
    let mut containers = attack("containers", SHARED);
    let many: Vec<_> = (0..500)
        .map(|n| json!({"name": format!("c{n}"), "image": "i", "resources": {"requests": {"cpu": "1m"}}}))
        .collect();
    containers["spec"]["template"]["spec"]["containers"] = json!(many);
    let sets = [set("nineteen", SHARED, 19), set("thirty", SHARED, 30), set("eight", SHARED, 8)];
    for object in [attacker, wide, labelled, annotated, named, containers].iter().chain(&sets) {
        let name = object["metadata"]["name"].as_str().unwrap();
        if !refused(tenant.make(object).await) && object["kind"] == "Job" {
            drop(tenant.patch(name, json!({"spec": {"suspend": false}})).await);
        }
    }
    // What would leave the manager no room for the mark of a stop, and what is queued only then.
    let mut full = attack("full", SHARED);
    full["metadata"]["annotations"] = json!({"a": "x".repeat((256 << 10) - 1)});
    let why = tenant.make(&full).await.unwrap_err().to_string();
    assert!(why.contains("may not be more than 258048 bytes"), "{why}");
    full["metadata"]["annotations"]["a"] = json!("x");
    tenant.make(&full).await.unwrap();
    let filled =
        json!({"metadata": {"annotations": {"a": "x".repeat((256 << 10) - 1)}}, "spec": {"suspend": false}});
    assert!(tenant.patch("full", filled).await.is_err());
    // What could be resumed by hand, and then not be stopped: etcd would not store the stop.
    let mut whole = attack("whole", SHARED);
    container(&mut whole)["args"] = json!(["x".repeat(1_400_000)]);
    let why = tenant.make(&whole).await.unwrap_err().to_string();
    assert!(why.contains("so that it can be started and stopped"), "{why}");
    // The same in two steps: it waits, grows, and is resumed. Its user has let it run before.
    tenant.place.wait_until("wide", false).await.unwrap();
    let filled = json!({"metadata": {"annotations": {"a": "x".repeat(250_000)}}});
    drop(tenant.patch("wide", filled).await.unwrap());
    let why = tenant.patch("wide", json!({"spec": {"suspend": false}})).await.unwrap_err().to_string();
    assert!(why.contains("may not have more than 1048576 bytes"), "{why}");
    // The same without a queue at first.
    whole["metadata"]["labels"] = json!({});
    whole["spec"]["suspend"] = json!(true);
    tenant.make(&whole).await.unwrap();
    let queue = json!({"metadata": {"labels": {QUEUE_NAME: SHARED}}});
    let why = tenant.patch("whole", queue).await.unwrap_err().to_string();
    assert!(why.contains("so that it can be started and stopped"), "{why}");
    // As many variables as are let in, and then more beside them, in one write that lets the job run.
    let most = most_variables(&tenant).await;
    let grown = json!({"metadata": {"annotations": {"a": "x".repeat(200_000)}}, "spec": {"suspend": false}});
    drop(tenant.patch("most", grown).await);
    drop(tenant.patch("most", json!({"spec": {"suspend": false}})).await);
    assert!(most > 1_000, "{most}");
    tenant.gained_nothing().await;
    tenant.others_go_on().await;
    // One that is large and fits runs.
    let mut large = attack("large", OWN);
    container(&mut large)["args"] = json!(["x".repeat(500_000)]);
    tenant.make(&large).await.unwrap();
    tenant.place.wait_until("large", true).await.unwrap();
    // And all of it goes.
    for name in ["large", "wide", "variables", "most"] {
        tenant.place.delete_job(name).await.unwrap();
        eventually(&format!("the Workload of {name} to be gone"), DEADLINE, || async {
            let found = sluice_testkit::workloads::of_job(&tenant.place.client, "huge", name).await?;
            Ok(progress(found.is_none(), "it is there"))
        })
        .await
        .unwrap();
    }
}

/// What became of a job that names no queue.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    /// The default queue took it.
    Taken,
    Refused(String),
    /// The API server let it pass, as the webhook had not answered in time.
    Passed,
}

/// Writes a job that names no queue.
async fn end_of(write: impl Future<Output = kube::Result<Value>>) -> End {
    let began = Instant::now();
    match write.await {
        Ok(object) if object["metadata"]["labels"][QUEUE_NAME] == "default" => End::Taken,
        Ok(_) => {
            let took = began.elapsed();
            assert!(took >= PATIENCE, "it is let in without a queue after {took:?}");
            End::Passed
        }
        Err(why) => End::Refused(why.to_string()),
    }
}

/// Why a job that names no queue is refused.
async fn refusal(tenant: &Tenant, job: &Value) -> String {
    let began = Instant::now();
    loop {
        match end_of(tenant.dry_run(job)).await {
            End::Refused(why) => return why,
            end if began.elapsed() > FLOODED => return format!("{end:?}"),
            _ => {}
        }
    }
}

/// Many heavy jobs at once and small ones beside them, none of which names a queue. What became of the heavy and of the small ones.
async fn flood(tenant: &Tenant, heavy: &Value, flood: usize) -> (Vec<End>, Vec<End>) {
    let heavy = join_all((0..HEAVY).map(|_| end_of(tenant.dry_run_once(heavy))));
    let small = async {
        let mut all = Vec::new();
        for number in 0..10 {
            let name = format!("small-{flood}-{number}");
            let end = end_of(tenant.make_once(&unqueued(&name))).await;
            if end == End::Passed {
                // It runs as any job does that is in no queue.
                tenant.delete("Job", &name, &DeleteParams::background()).await.unwrap();
            }
            all.push(end);
        }
        all
    };
    tokio::join!(heavy, small)
}

/// The webhook for jobs without a queue lets everything pass that it does not answer in time, so that it must answer.
pub async fn what_the_default_queue_takes_is_taken_however_large_and_under_any_load() {
    let tenant = tenant("huge-default").await;
    tenant.place.local_queue("default", "victim").await.unwrap();
    // The queue is known to the webhook a moment later.
    eventually("the default queue to take a job", DEADLINE, || async {
        let made = tenant.dry_run(&unqueued("first")).await?;
        let labels = &made["metadata"]["labels"];
        Ok(progress(labels[QUEUE_NAME] == "default", labels.to_string()))
    })
    .await
    .unwrap();
    let mut many = unqueued("many");
    container(&mut many)["env"] = variables(10_000);
    let why = refusal(&tenant, &many).await;
    assert!(why.contains("cannot be accepted without a review"), "{why}");
    // As JSON is written by the API server, each of these takes six bytes: more than the manager reads.
    let mut long = unqueued("long");
    container(&mut long)["args"] = json!(["<".repeat(1_400_000)]);
    let why = refusal(&tenant, &long).await;
    assert!(why.contains("the review is larger than 8 MiB"), "{why}");
    // Many that are just small enough: some may be refused, and the small ones beside them are not.
    let mut heavy = unqueued("heavy");
    container(&mut heavy)["env"] = variables(3_000);
    let began = Instant::now();
    for number in 1.. {
        let (heavy, small) = flood(&tenant, &heavy, number).await;
        if !heavy.contains(&End::Passed) && small.iter().all(|end| *end == End::Taken) {
            break;
        }
        let of = |end: &End| heavy.iter().filter(|other| *other == end).count();
        assert!(
            began.elapsed() < FLOODED,
            "flood {number}: {} of {HEAVY} heavy jobs passed, {} were taken; the small ones: {small:?}",
            of(&End::Passed),
            of(&End::Taken),
        );
    }
    tenant.gained_nothing().await;
}

/// As many values as fit into an object: what is kept of each may be a hundred times its text.
pub async fn jobs_of_many_values_take_little_memory() {
    const JOBS: usize = 20;
    // Each of the others costs the API server two seconds. A manager that keeps their values would need 20 MB for each with an affinity, which is too
    // much in all. It would need 6 MB for each with labels, which these few cannot show: `load/flood.rs` does, with more of them and nothing else.
    const LARGEST: usize = 8;
    let tenant = tenant("many-values").await;
    let affinity = |values: usize| {
        let terms =
            json!([{"matchExpressions": [{"key": "a", "operator": "NotIn", "values": vec!["b"; values]}]}]);
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}})
    };
    let affine = |name: &str, values: usize| {
        let mut job = attack(name, SHARED);
        job["spec"]["template"]["spec"]["affinity"] = affinity(values);
        job
    };
    let why = tenant.make(&affine("affine", 200_000)).await.unwrap_err().to_string();
    assert!(why.contains("Too long") || why.contains("too many values"), "{why}");
    let why = tenant.make(&affine("affine", 4_000)).await.unwrap_err().to_string();
    assert!(why.contains("may not have more than 4000 values that stay in memory"), "{why}");
    for number in 0..JOBS {
        tenant.make(&affine(&format!("affine-{number}"), 3_900)).await.unwrap();
    }
    for number in 0..LARGEST {
        // Those that name no queue may have any number.
        let mut labelled = unqueued(&format!("labelled-{number}"));
        labelled["spec"]["suspend"] = json!(true);
        labelled["metadata"]["labels"] = (0..20_000).map(|n| (format!("l{n}"), json!(""))).collect();
        tenant.make(&labelled).await.unwrap();
        let mut affine = affine(&format!("unqueued-{number}"), 200_000);
        affine["spec"]["suspend"] = json!(true);
        affine["metadata"]["labels"] = json!({});
        tenant.make(&affine).await.unwrap();
    }
    tenant.place.wait_for_condition("affine-0", "QuotaReserved", "False").await.unwrap();
    tenant.gained_nothing().await;
    tenant.others_go_on().await;
}
