//! The journal and the traces on a real control plane: every replica writes the journal, the API returns it to authorized users, and `kubectl kueue
//! usage` sums it up; the leading replica sends traces, whose ids are those in explain and events.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod page;

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_testkit::assets::Tool;
use sluice_testkit::kubectl::{apply, kubectl};
use sluice_testkit::wait::{Progress, eventually, progress};
use sluice_testkit::{ControlPlane, Manager, Setup, chart, crds, needs, plugin};
use sluice_tests::place::{DEADLINE, Place};

use crate::bucket::{Bucket, WRONG, said, wait_for_failure};
use crate::collector::Collector;

/// Alice may do what researchers may; the journal names all namespaces. Dora may do what administrators of queues may.
const ALICE: &str = r"
apiVersion: v1
kind: ServiceAccount
metadata: {name: alice, namespace: used}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: alice}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: kueue-batch-user-role}
subjects: [{kind: ServiceAccount, name: alice, namespace: used}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: dora, namespace: used}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: dora}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: kueue-batch-admin-role}
subjects: [{kind: ServiceAccount, name: dora, namespace: used}]
";

fn usage(kubeconfig: &Path, args: &[&str]) -> Output {
    let config = format!("--kubeconfig={}", kubeconfig.display());
    Command::new(plugin().unwrap())
        .args(["usage", "--since", "1h", "-o", "json"])
        .args(args)
        .arg(config)
        .env_remove("KUBECONFIG")
        .output()
        .unwrap()
}

/// What `kubectl kueue report` says about a job.
struct Reported {
    /// Its events except for reasons to wait.
    events: Vec<String>,
    /// The job that preempted it.
    by: String,
    /// Why it waited: reasons with their messages.
    waits: Vec<String>,
}

fn reported(kubeconfig: &Path, args: &[&str], job: &str) -> Reported {
    let mut command = Command::new(plugin().unwrap());
    command.args(["report", "--since", "1h", "-o", "json"]).args(args);
    let output =
        command.arg(format!("--kubeconfig={}", kubeconfig.display())).env_remove("KUBECONFIG").output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let of = |line: &&Value| {
        line["job"].as_str().is_some_and(|name| name.starts_with(&format!("used/job-{job}-")))
    };
    let lines: Vec<_> = report["timeline"].as_array().unwrap().iter().filter(of).collect();
    let (waits, others): (Vec<_>, Vec<_>) = lines.into_iter().partition(|line| line["event"] == "waiting");
    Reported {
        events: others.iter().map(|line| line["event"].as_str().unwrap().to_owned()).collect(),
        by: others.iter().find_map(|line| line["by"].as_str()).unwrap_or_default().to_owned(),
        waits: waits.iter().map(|line| why(line)).collect(),
    }
}

/// The reason and the message of a line of a report, or of a condition.
fn why(of: &Value) -> String {
    format!("{}: {}", of["reason"].as_str().unwrap(), of["message"].as_str().unwrap())
}

/// Waits until a report has the ends of these jobs: their Workloads are deleted one by one, some time after them.
async fn wait_until_deleted(kubeconfig: &Path, args: &[&str], jobs: [&str; 3]) {
    eventually(&format!("a report of {args:?} to say that all are deleted"), DEADLINE, || async {
        let events = jobs.map(|job| reported(kubeconfig, args, job).events);
        let deleted = |events: &Vec<String>| events.last().is_some_and(|last| last == "deleted");
        Ok(progress(events.iter().all(deleted), format!("{events:?}")))
    })
    .await
    .unwrap();
}

/// Waits until the Workload of a job says that it is refused for its quota, and returns what it says.
async fn refusal_of(plane: &ControlPlane, job: &str) -> String {
    eventually(&format!("the refusal of {job}"), DEADLINE, || async {
        let all = kubectl(plane, &["get", "workloads", "-n", "used", "-o", "json"]).await?;
        let all: Value = serde_json::from_str(&all)?;
        let own = |one: &&Value| {
            one["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(&format!("job-{job}-")))
        };
        let own = all["items"].as_array().into_iter().flatten().find(own);
        let mut conditions = own.and_then(|own| own["status"]["conditions"].as_array()).into_iter().flatten();
        let refused = conditions.find(|one| one["type"] == "QuotaReserved" && one["status"] == "False");
        let refusal = refused.map(why).filter(|why| why.contains("insufficient quota"));
        Ok(refusal.map_or_else(|| Progress::NotYet(all.to_string()), Progress::Done))
    })
    .await
    .unwrap()
}

/// Hours, hours that were evicted, and hours that are borrowed, or what is wrong.
fn figures(output: &Output) -> Result<[f64; 3], String> {
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let sum = |list: &str, key: &str| -> f64 {
        document[list].as_array().unwrap().iter().map(|row| row[key].as_f64().unwrap()).sum()
    };
    Ok([sum("usage", "hours"), sum("usage", "evictedHours"), sum("clusterQueues", "borrowedHours")])
}

async fn wait_for(what: &str, kubeconfig: &Path, args: &[&str], good: impl Fn([f64; 3]) -> bool) -> [f64; 3] {
    let mut last = [0.0; 3];
    eventually(what, DEADLINE, || {
        let found = figures(&usage(kubeconfig, args));
        let is_good = found.as_ref().is_ok_and(|figures| good(*figures));
        if let Ok(figures) = found {
            last = figures;
        }
        async move {
            Ok(match found {
                Ok(figures) => progress(is_good, format!("{figures:?}")),
                Err(why) => Progress::NotYet(why),
            })
        }
    })
    .await
    .unwrap();
    last
}

/// The sizes of the journal's files, in bytes.
fn sizes(folder: &str) -> Vec<u64> {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|end| end == "jsonl"));
    files.map(|path| path.metadata().unwrap().len()).collect()
}

/// Every line of every file is whole, but for the last one of a process that was killed.
fn all_lines_are_whole(folder: &str) {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    for path in files.filter(|path| path.extension().is_some_and(|end| end == "jsonl")) {
        let text = std::fs::read_to_string(&path).unwrap();
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        for line in whole {
            let parsed: Result<Value, _> = serde_json::from_str(line);
            assert!(parsed.is_ok(), "{}: {line}", path.display());
        }
    }
}

/// The id of the trace of a job's Workload, as explain says it on the replica that leads.
async fn trace_of(one: &Manager, other: &Manager, job: &str) -> String {
    let path = format!("/debug/explain/used/{job}");
    eventually(&format!("the trace of {job} to be explained"), DEADLINE, || async {
        let leader = if leads(one).await? { one } else { other };
        let (_, page) = leader.health(&path).await?;
        let (_, document) = leader.health(&format!("{path}?output=json")).await?;
        let explained: Value = serde_json::from_str(&document)?;
        let id = explained["trace"].as_str().unwrap_or_default().to_owned();
        let is_said = id.len() == 32 && page.contains(&format!("trace: {id}\n"));
        Ok(if is_said { Progress::Done(id) } else { Progress::NotYet(format!("{id}: {page}")) })
    })
    .await
    .unwrap()
}

/// Whether a replica leads.
async fn leads(replica: &Manager) -> anyhow::Result<bool> {
    Ok(replica.health("/readyz").await?.1.contains("leadership ok (leading)"))
}

/// How often the lease has changed hands.
async fn takeovers(plane: &ControlPlane) -> String {
    let lease = [
        "get",
        "lease",
        "c1f6bfd2.kueue.x-k8s.io",
        "-n",
        chart::NAMESPACE,
        "-o",
        "jsonpath={.spec.leaseTransitions}",
    ];
    kubectl(plane, &lease).await.unwrap()
}

/// The spans of a trace but for the cycle, which only the replica knows that led in it.
fn but_for_the_cycle(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).filter(|name| *name != "cycle").collect()
}

/// Waits until the events of a Workload say this trace.
async fn wait_for_events_of(plane: &ControlPlane, job: &str, trace: &str) {
    eventually("events to say their trace", DEADLINE, || async {
        let all = kubectl(plane, &["get", "events", "-n", "used", "-o", "json"]).await?;
        let all: Value = serde_json::from_str(&all)?;
        let says = |event: &Value| {
            let about = event["involvedObject"]["name"].as_str().unwrap_or_default();
            about.starts_with(&format!("job-{job}-"))
                && event["metadata"]["annotations"]["sluice.dev/trace-id"] == trace
        };
        let count = all["items"].as_array().into_iter().flatten().filter(|event| says(event)).count();
        Ok(progress(count >= 1, all.to_string()))
    })
    .await
    .unwrap();
}

/// Waits for a trace with this outcome, and gives the names of its spans.
async fn wait_for_trace(collector: &Collector, id: &str, outcome: &str) -> Vec<String> {
    let found = std::sync::Mutex::new(Vec::new());
    eventually(&format!("the trace {id}, {outcome}"), DEADLINE, || async {
        let all = collector.traces();
        let own = all.iter().find(|(of, how, _)| of == id && how == outcome);
        *found.lock().unwrap() = own.map(|(.., names)| names.clone()).unwrap_or_default();
        Ok(progress(own.is_some(), format!("{all:?}")))
    })
    .await
    .unwrap();
    found.into_inner().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_teams_used_is_added_up_from_lines_of_any_writer() {
    needs!(Tool::S3Gateway);
    // Its own: managers with a journal are started and stopped.
    let plane = ControlPlane::builder().controller_manager(true).start().await.unwrap();
    let setup = Setup::new(&plane).unwrap().brief_leases();
    let values = json!({"visibility": {"apiServices": true}, "journal": {"enabled": true}});
    let setup = chart::install(&plane, setup, &values).await.unwrap();
    let folder = plane.folder().join("journal");
    let collector = Collector::start().await;
    let mut bucket = Bucket::start(&plane, folder.clone()).await;
    let setup = bucket.for_manager(&plane, setup.with(&json!({"tracing": {"endpoint": collector.url}})));
    let follower = setup.replica().unwrap();
    let leader = Manager::start(&plane, setup).await.unwrap();
    let follower = Manager::start(&plane, follower).await.unwrap();
    crds::wait_until_converting(&plane.client().await.unwrap()).await.unwrap();
    let team = Place::bare(&plane, "used").await.unwrap();
    team.flavor("used").await.unwrap();
    let preempts = json!({"preemption": {"withinClusterQueue": "LowerPriority"}});
    team.cluster_queue("used", 2, &preempts).await.unwrap();
    team.local_queue("lq", "used").await.unwrap();
    apply(&plane, ALICE).await.unwrap();
    let (admin, folder) = (plane.kubeconfig_path(), folder.display().to_string());

    team.job("first", "lq", 2).await.unwrap();
    team.wait_until("first", true).await.unwrap();
    let first = trace_of(&leader, &follower, "first").await;
    wait_for_events_of(&plane, "first", &first).await;
    page::finds_a_trace(&plane, "first", &first).await;
    let grows = wait_for("hours of what runs", &admin, &[], |[hours, ..]| hours > 0.0).await[0];
    wait_for("more hours", &admin, &[], |[hours, evicted, _]| hours > grows && evicted == 0.0).await;

    eventually("both replicas to have written", DEADLINE, || async {
        let sizes = sizes(&folder);
        Ok(progress(sizes.iter().all(|size| *size > 0), format!("{sizes:?}")))
    })
    .await
    .unwrap();
    bucket.wait_for_processes(2).await;
    let leads = leads(&leader).await.unwrap();
    let [leader, follower] = if leads { [leader, follower] } else { [follower, leader] };
    // The store stands still, and the leader is killed; what it wrote stays, the other one goes on, and it comes back.
    bucket.gateway.pause().unwrap();
    let leader = leader.restart(&plane).await.unwrap();
    team.make_urgent("urgent", 2).await.unwrap();
    let evicted = |[hours, evicted, borrowed]: [f64; 3]| evicted > 0.0 && hours >= evicted && borrowed == 0.0;
    wait_for("hours that were evicted", &admin, &["-n", "used"], evicted).await;
    all_lines_are_whole(&folder);
    // The replica that leads now sends what the one before has begun, by the same id.
    let names = wait_for_trace(&collector, &first, "Evicted").await;
    assert_eq!(but_for_the_cycle(&names), ["admission", "queued", "reserved", "started"]);

    assert_eq!(leader.health("/healthz").await.unwrap().0, 200);
    bucket.gateway.resume().unwrap();

    team.wait_until("urgent", true).await.unwrap();
    let before = takeovers(&plane).await;
    let urgent = trace_of(&leader, &follower, "urgent").await;

    team.job("large", "lq", 3).await.unwrap();
    let refusal = refusal_of(&plane, "large").await;
    assert!(refusal.contains("insufficient quota for cpu in flavor used"), "{refusal}");

    // All jobs go: nothing runs, and files and API have the same hours.
    kubectl(&plane, &["delete", "jobs", "--all", "-n", "used"]).await.unwrap();
    team.wait_until_empty().await.unwrap();
    let names = wait_for_trace(&collector, &urgent, "Deleted").await;
    assert_eq!(but_for_the_cycle(&names), ["admission", "queued", "reserved", "started"]);
    let is_whole = names.get(2).is_some_and(|name| name == "cycle");
    assert!(is_whole || takeovers(&plane).await != before, "{names:?}");
    let files = ["--journal", folder.as_str()];
    let as_in_files = |found: [f64; 3]| {
        let files = figures(&usage(&admin, &files)).unwrap();
        (found[0] - files[0]).abs() < 1e-9 && (found[1] - files[1]).abs() < 1e-9
    };
    wait_for("files and API to have the same", &admin, &[], as_in_files).await;

    // The day is reported once, from the API as from the files of both replicas.
    for source in [&[][..], &files] {
        wait_until_deleted(&admin, source, ["first", "urgent", "large"]).await;
        let first = reported(&admin, source, "first");
        assert_eq!(first.events, ["submitted", "admitted", "preempted", "deleted"], "{source:?}");
        assert!(first.by.starts_with("used/job-urgent-"), "{}", first.by);
        let urgent = reported(&admin, source, "urgent").events;
        assert_eq!(urgent, ["submitted", "admitted", "deleted"], "{source:?}");
        let large = reported(&admin, source, "large");
        assert_eq!(large.events, ["submitted", "deleted"], "{source:?}");
        assert_eq!(large.waits.last(), Some(&refusal), "{source:?}: {:?}", large.waits);
    }
    let alice = plane.kubeconfig_for_service_account("used", "alice").await.unwrap();
    let why = figures(&usage(&alice, &[])).unwrap_err();
    assert!(why.contains("clusterqueues/journal"), "{why}");
    let dora = plane.kubeconfig_for_service_account("used", "dora").await.unwrap();
    wait_for("the role of administrators to read the journal", &dora, &[], as_in_files).await;
    // All files of the three processes are in the bucket; a copy of it has the hours that the API has.
    bucket.wait_for_everything().await;
    assert_eq!(bucket.processes(), 3);
    let copy = plane.folder().join("copy");
    bucket.copy(&copy);
    let copied = figures(&usage(&admin, &["--journal", &copy.display().to_string()])).unwrap();
    wait_for("a copy of the bucket and API to have the same", &admin, &[], |found| {
        (0..3).all(|figure| (found[figure] - copied[figure]).abs() < 1e-9)
    })
    .await;
    page::works_as_it_is_typed(&plane, &bucket).await;
    sending_ends_and_begins_again(&plane, &bucket, &team, [leader, follower]).await;
}

/// A manager that ends sends what it has; one with a wrong key is refused, and continues; what it could not send is sent by the next one.
async fn sending_ends_and_begins_again(
    plane: &ControlPlane,
    bucket: &Bucket,
    team: &Place<'_>,
    managers: [Manager; 2],
) {
    let right = managers[0].setup().clone();
    let mut took = Duration::ZERO;
    for manager in managers {
        took = took.max(manager.stop().await.unwrap().0);
    }
    // It has two seconds for that, which may be too little for a busy object store: then the same is done again.
    let began = Instant::now();
    while !bucket.missing().is_empty() {
        let is_late = took >= Duration::from_secs(2) && began.elapsed() < DEADLINE;
        assert!(is_late, "a manager that ends sends what it has, but for {:?}", bucket.missing());
        let manager = Manager::start(plane, right.clone()).await.unwrap();
        bucket.wait_for_everything().await;
        team.job("again", "lq", 1).await.unwrap();
        team.wait_until("again", true).await.unwrap();
        team.delete_job("again").await.unwrap();
        team.wait_until_empty().await.unwrap();
        took = manager.stop().await.unwrap().0;
    }
    let wrong = Manager::start(plane, right.clone().env("AWS_SECRET_ACCESS_KEY", WRONG)).await.unwrap();
    team.job("last", "lq", 1).await.unwrap();
    team.wait_until("last", true).await.unwrap();
    wait_for_failure(plane, &wrong, "refused").await;
    assert_eq!(wrong.health("/healthz").await.unwrap().0, 200);
    // Once, and again only after a failure of another kind.
    let most = 1 + said(&wrong, "cannot be sent to the object store");
    let often = said(&wrong, "403 SignatureDoesNotMatch");
    assert!((1..=most).contains(&often), "{often} times, and {most} at most");
    let (took, status) = wrong.stop().await.unwrap();
    assert!(status.success(), "{status} after {took:?}");
    assert!(!bucket.missing().is_empty());
    let right = Manager::start(plane, right).await.unwrap();
    bucket.wait_for_everything().await;
    assert!(bucket.processes() >= 4);
    right.stop().await.unwrap();
}
