//! The effect of a change in a cluster that was read: correct in every state, even if not all of it can be simulated.

use sluice_sim::explain::{Course, WhatIf};

use super::*;

const CHECK: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: budget}
spec: {controllerName: example.com/budget}
---
";

fn checked() -> String {
    let queue = CLUSTER_QUEUE.replace(
        "namespaceSelector: {}",
        "namespaceSelector: {}\n  admissionChecksStrategy: {admissionChecks: [{name: budget}]}",
    );
    [FLAVOR, CHECK, &queue, LOCAL_QUEUE].concat()
}

/// A Job of ours with `pods` pods.
fn job(name: &str, pods: u32) -> String {
    JOB.replace("name: mine", &format!("name: {name}"))
        .replace("parallelism: 4\n  completions: 4", &format!("parallelism: {pods}\n  completions: {pods}"))
}

/// Asks about a Job of a cluster as it was read, after a change of what was read and of what the engine says.
fn asking<T>(
    simulation: &Simulation,
    job: &str,
    change: impl FnOnce(&mut Manifests, Option<&mut Account>),
    ask: impl FnOnce(&Question<'_>) -> T,
) -> T {
    let (subject, mut account) = asked_about(simulation, job);
    let mut manifests = as_read(simulation);
    manifests.subject = Some(subject);
    change(&mut manifests, account.as_mut());
    let name = account.as_ref().map_or_else(|| job.into(), |account| account.workload.name.clone());
    let at = SignedDuration::ZERO;
    let options = Options { start: simulation.now(), ..options() };
    ask(&Question { at, options, live: account.as_ref(), decides: true, ..question(&manifests, &name) })
}

fn what_if(simulation: &Simulation, job: &str, merge: &Value) -> WhatIf {
    asking(simulation, job, |_, _| {}, |question| question.what_if(merge).unwrap())
}

fn fewer() -> Value {
    json!({"spec": {"parallelism": 2}})
}

#[test]
fn with_admission_checks_no_more_than_the_quota_is_promised() {
    let simulation = cluster(&(checked() + &job("first", 8) + &job("second", 4)));
    let changed = what_if(&simulation, "second", &fewer());
    let why = "its ClusterQueue has admission checks, and how long they take is not known";
    assert_eq!(changed.before, Course { no_forecast: Some(why.to_owned()), ..Course::default() });
    assert_eq!(changed.after, Course { gets_quota: true, ..Course::default() });
    let text = changed.text();
    assert!(text.contains(&format!("without the change: waits; its start is not known: {why}\n")), "{text}");
    assert!(text.contains("with the change: gets quota now, and its admission checks follow\n"), "{text}");
    let explained = asking(&simulation, "second", |_, _| {}, |question| question.answer().unwrap());
    let fewer = remedy(&explained, "gets quota now with parallelism 2 (its admission checks follow)");
    assert_eq!(fewer.effect, Effect::GetsQuota);
    assert!(explained.remedies.iter().all(|remedy| remedy.effect != Effect::Starts), "{}", explained.text());
    assert!(!explained.text().contains("starts now"), "{}", explained.text());
}

#[test]
fn of_a_job_that_has_quota_it_is_said_how_far_it_has_come_and_whether_it_continues() {
    let simulation =
        cluster(&[FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &job("first", 8), &job("second", 4)].concat());
    let admitted = Course { state: Some(State::Admitted), ..Course::default() };
    let noted =
        what_if(&simulation, "first", &json!({"metadata": {"annotations": {"example.com/note": "x"}}}));
    assert_eq!((&noted.before, &noted.after), (&admitted, &admitted), "{}", noted.text());
    assert!(noted.text().contains("without the change: admitted\n"), "{}", noted.text());
    // More pods than the quota has: it is stopped, and does not start again.
    let more = what_if(&simulation, "first", &json!({"spec": {"parallelism": 20, "completions": 20}}));
    assert_eq!(more.before, admitted);
    assert!(more.after.stops && !more.after.starts_now && more.after.state.is_none(), "{}", more.text());
    assert!(more.text().contains("with the change: it is stopped, then waits"), "{}", more.text());
    // The webhooks see a job that runs.
    let moved = json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "elsewhere"}}});
    let moved = what_if(&simulation, "first", &moved);
    assert!(moved.after.refused.unwrap().contains("field is immutable"));
}

#[test]
fn of_a_job_that_is_over_no_start_is_promised() {
    let simulation = cluster(&world());
    let finished = asking(
        &simulation,
        "mine",
        |manifests, _| {
            manifests.objects.retain(|m| m.kind != Kind::Workload && m.kind != Kind::Job(JobKind::JOB));
            let workload = manifests.subject.as_mut().unwrap().workload.as_mut().unwrap();
            workload["status"]["conditions"] =
                json!([{"type": "Finished", "status": "True", "reason": "Succeeded", "message": ""}]);
        },
        |question| question.what_if(&fewer()).unwrap(),
    );
    let over = Course { state: Some(State::Finished), ..Course::default() };
    assert_eq!((&finished.before, &finished.after), (&over, &over), "{}", finished.text());
}

#[test]
fn what_the_manager_refuses_for_what_cannot_be_tried_is_not_said_to_start() {
    let simulation =
        cluster(&[FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &job("first", 8), &job("second", 4)].concat());
    // What holds the quota is not in the world that is tried.
    let refused = asking(
        &simulation,
        "second",
        |manifests, account| {
            let name = |m: &Manifest| m.object["metadata"]["name"].as_str().unwrap().to_owned();
            manifests.objects.retain(|m| !name(m).contains("first"));
            assert!(account.unwrap().decision.is_some());
        },
        |question| question.what_if(&fewer()).unwrap(),
    );
    for course in [&refused.before, &refused.after] {
        assert!(!course.starts_now && course.forecast.is_none(), "{}", refused.text());
        assert!(course.no_forecast.is_some(), "{}", refused.text());
    }
}

#[test]
fn a_job_that_names_no_queue_is_tried_with_the_one_that_the_change_names() {
    let nameless = JOB.replace("  labels: {kueue.x-k8s.io/queue-name: main}\n", "");
    let simulation = cluster(&[FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &nameless].concat());
    let queue = |name: &str| json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": name}}});
    let named = what_if(&simulation, "mine", &queue("main"));
    assert_eq!(named.before.state, Some(State::NotQueued), "{}", named.text());
    assert!(named.before.no_forecast.as_ref().unwrap().starts_with("it names no queue"), "{}", named.text());
    assert_eq!(named.after, Course { starts_now: true, ..Course::default() }, "{}", named.text());
    let elsewhere = what_if(&simulation, "mine", &queue("none"));
    assert!(!elsewhere.after.starts_now, "{}", elsewhere.text());
    // Another change leaves it without a queue.
    let other = what_if(&simulation, "mine", &fewer());
    assert_eq!(other.after.state, Some(State::NotQueued), "{}", other.text());
    // One that runs may not be queued any more.
    let running = cluster(
        &[FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &nameless.replace("suspend: true", "suspend: false")].concat(),
    );
    let late = what_if(&running, "mine", &queue("main"));
    assert!(late.after.refused.as_ref().unwrap().contains("immutable"), "{}", late.text());
}

/// A Job that uses all processors and whose pods have run for the time `ran`, and a waiting one. Without an annotation a run takes ten minutes.
fn beside(first: &str, ran: SignedDuration) -> (Explained, WhatIf) {
    let plain = |job: String| job.replace("  annotations: {sluice.dev/run-seconds: \"3600\"}\n", first);
    let simulation =
        cluster(&[FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &plain(job("first", 10)), &job("second", 4)].concat());
    let began = simulation.now().checked_sub(ran).unwrap().to_string();
    let ran_on = |manifests: &mut Manifests, _: Option<&mut Account>| {
        for job in manifests.objects.iter_mut().filter(|m| m.kind == Kind::Job(JobKind::JOB)) {
            if job.object["metadata"]["name"] == "first" {
                assert_eq!(job.object["status"]["active"], 10);
                job.object["status"]["startTime"] = json!(began);
            }
        }
    };
    let note = json!({"metadata": {"annotations": {"example.com/note": "x"}}});
    let explained = asking(&simulation, "second", ran_on, |question| question.answer().unwrap());
    let changed = asking(&simulation, "second", ran_on, |question| question.what_if(&note).unwrap());
    (explained, changed)
}

fn seconds(course: &Course) -> Option<i64> {
    course.forecast.as_ref().and_then(|forecast| forecast.p50)
}

#[test]
fn a_job_that_has_run_for_longer_than_was_thought_is_not_taken_to_end_at_once() {
    let (explained, changed) = beside("", SignedDuration::from_hours(3));
    // Only what gives it quota lets it start now.
    let untrue = explained.remedies.iter().find(|remedy| {
        remedy.effect == Effect::Starts
            && !remedy.patches.is_empty()
            && !remedy.text.contains("nominal quota")
    });
    assert_eq!(untrue, None, "{}", explained.text());
    assert_eq!(explained.forecast.as_ref().and_then(|f| f.p50), Some(3 * 3600), "{}", explained.text());
    for course in [&changed.before, &changed.after] {
        assert_eq!((seconds(course), course.starts_now), (Some(3 * 3600), false), "{}", changed.text());
        assert_eq!(course.no_forecast, None);
    }
}

#[test]
fn what_starts_soon_by_itself_is_said_to_start_then_and_no_change_is_offered() {
    let first = "  annotations: {sluice.dev/run-seconds: \"3600\"}\n";
    let (explained, changed) = beside(first, SignedDuration::from_secs(3540));
    let forecast = explained.forecast.as_ref().and_then(|f| f.p50);
    assert!(forecast.is_some_and(|seconds| (50..=70).contains(&seconds)), "{}", explained.text());
    assert!(explained.remedies.iter().all(|remedy| remedy.patches.is_empty()), "{}", explained.text());
    remedy(&explained, "starts when a/first finishes");
    for course in [&changed.before, &changed.after] {
        assert_eq!((seconds(course), course.starts_now), (forecast, false), "{}", changed.text());
    }
}
