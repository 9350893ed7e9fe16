//! States of which only the cluster's objects are known.

use super::table::HOSTS;
use super::waiting::finding;
use super::*;

const NAMESPACE: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: kube-system, labels: {kubernetes.io/metadata.name: kube-system}}
";

/// A Workload of a real cluster, of which only its objects are known.
pub(super) fn of_a_cluster(workload: Value, more: Subject) -> Explained {
    let mut manifests = read(&[FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE].concat());
    manifests.subject = Some(Subject { workload: Some(workload), ..more });
    ask(&manifests, options())
}

/// The same for one who may list nodes.
fn named(workload: Value, more: Subject) -> Explained {
    let mut manifests = read(&[FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE].concat());
    manifests.subject = Some(Subject { workload: Some(workload), ..more });
    Question { names_nodes: true, ..question(&manifests, "mine") }.answer().unwrap()
}

pub(super) fn workload(conditions: &Value, more: &Value) -> Value {
    let mut value = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": "job-mine", "namespace": "a", "uid": "w", "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "mine", "uid": "j", "controller": true}]},
        "spec": {"queueName": "main", "active": true, "podSets": []},
        "status": {"conditions": conditions},
    });
    for (key, part) in more.as_object().into_iter().flatten() {
        for (field, content) in part.as_object().into_iter().flatten() {
            value[key][field] = content.clone();
        }
    }
    value
}

pub(super) fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    let at = "2026-01-01T00:00:00Z";
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at})
}

#[test]
fn a_workload_that_waits_for_a_check_is_not_said_to_start_soon() {
    let reserved = [
        condition("QuotaReserved", "True", "QuotaReserved", ""),
        condition("Admitted", "False", "UnsatisfiedAdmissionChecks", "not all checks are ready"),
    ];
    let checks = json!({"status": {"admissionChecks": [
        {"name": "dws", "state": "Pending", "message": "waits for capacity: ETA 14:05", "retryCount": 2},
        {"name": "fine", "state": "Ready", "message": ""}]}});
    let explained = of_a_cluster(workload(&json!(reserved), &checks), Subject::default());
    let text = explained.text();
    assert_eq!(explained.state, State::Checking, "{text}");
    assert_eq!(codes(&explained), [Code::CheckPending], "{text}");
    assert!(text.contains("the admission check dws is Pending: waits for capacity: ETA 14:05"), "{text}");
    assert!(text.contains("it asked for 2 retries so far"), "{text}");
    assert!(explained.forecast.is_none() && !text.contains("0s"), "{text}");
    assert!(text.contains("estimated start: not known: how long the checks take is not known"), "{text}");
    let document: Value = serde_json::from_str(&explained.json()).unwrap();
    assert_eq!(document["state"], "checking");
    assert_eq!(
        (&document["checks"][0]["retries"], &document["checks"][1]["state"]),
        (&json!(2), &json!("Ready"))
    );
    assert_eq!(document["findings"][0]["code"], "CheckPending");
    assert_eq!(document["remedies"][0]["effect"], "untried");
}

#[test]
fn an_admitted_job_names_its_pods_that_have_no_node() {
    let admitted =
        [condition("QuotaReserved", "True", "x", ""), condition("Admitted", "True", "Admitted", "")];
    let said = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.";
    let pod = json!({"metadata": {"name": "mine-0", "ownerReferences": [{"uid": "j"}]}, "spec": {},
        "status": {"conditions": [condition("PodScheduled", "False", "Unschedulable", said)]}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "mine", "namespace": "a", "uid": "j"}});
    let subject = Subject { job: Some(job), pods: vec![pod], ..Subject::default() };
    let explained = of_a_cluster(workload(&json!(admitted), &json!({})), subject);
    let text = explained.text();
    assert_eq!((explained.state, explained.pending_pod_count), (State::Admitted, 1), "{text}");
    assert!(text.contains(&format!("mine-0: Unschedulable: {said}")), "{text}");
    assert!(text.contains("add nodes: the quota of the flavor"), "{text}");
    assert!(explained.forecast.is_none() && explained.no_forecast.is_none(), "{text}");
}

#[test]
pub fn evicted_lost_finished_deactivated_and_delayed_workloads_say_so() {
    let reserved = condition("QuotaReserved", "True", "QuotaReserved", "");
    let admitted = condition("Admitted", "True", "Admitted", "");
    let evicted = condition("Evicted", "True", "Preempted", "by a more important one");
    let since = |explained: &Explained| (explained.state, codes(explained));
    let of = |conditions: &[&Value], more: Value| {
        of_a_cluster(workload(&json!(conditions), &more), Subject::default())
    };
    let explained = of(&[&reserved, &admitted, &evicted], json!({}));
    assert_eq!(since(&explained), (State::Stopping, vec![Code::EvictedBefore]));
    assert!(
        explained
            .text()
            .contains("keeps its quota until its pods are gone (Preempted): by a more important one")
    );
    let explained = of(&[&condition("Finished", "True", "Failed", "exit 1")], json!({}));
    assert_eq!(since(&explained), (State::Finished, vec![Code::Ended]));
    assert!(explained.text().contains("it is over (Failed): exit 1"), "{}", explained.text());
    let nodes: Vec<Value> = (0..8).map(|n| json!({"name": format!("n{n}")})).collect();
    let explained = of(&[&reserved, &admitted], json!({"status": {"unhealthyNodes": nodes}}));
    assert_eq!(since(&explained), (State::Admitted, vec![Code::NodesLost]));
    assert!(explained.text().contains("it lost 8 node(s)\n"), "{}", explained.text());
    let lost = workload(&json!([reserved, admitted]), &json!({"status": {"unhealthyNodes": nodes}}));
    let text = named(lost, Subject::default()).text();
    assert!(text.contains("it lost 8 node(s): n0, n1, n2, n3, n4 and 3 more"), "{text}");
    let target = condition("DeactivationTarget", "True", "RequeuingLimitExceeded", "tried 3 times");
    let explained = of(&[&target], json!({"spec": {"active": false}}));
    assert_eq!(since(&explained), (State::Deactivated, vec![Code::Inactive]));
    let text = explained.text();
    assert!(
        text.contains("it is deactivated by the manager (RequeuingLimitExceeded): tried 3 times"),
        "{text}"
    );
    assert!(text.contains("kubectl kueue resume workload job-mine -n a"), "{text}");
    let evicted_for = |why: &str| {
        let evicted = condition("Evicted", "True", why, "The workload is deactivated");
        of(&[&evicted], json!({"spec": {"active": false}})).text()
    };
    let text = evicted_for("Deactivated");
    assert!(text.contains("it is deactivated by a user or another program"), "{text}");
    let text = evicted_for("DeactivatedDueToAdmissionCheck");
    assert!(text.contains("it is deactivated by the manager (DeactivatedDueToAdmissionCheck)"), "{text}");
    let at = options().start.checked_add(SignedDuration::from_secs(120)).unwrap().to_string();
    let explained = of(&[], json!({"status": {"requeueState": {"count": 2, "requeueAt": at}}}));
    assert_eq!(since(&explained), (State::Waiting, vec![Code::BackingOff]));
    assert!(explained.text().contains("it was requeued 2 time(s)"), "{}", explained.text());
    let replaced = condition("WaitingForReplacementPods", "True", "Preempted", "by a more important one");
    let explained = of(&[&evicted, &replaced], json!({}));
    assert_eq!(since(&explained), (State::Waiting, vec![Code::EvictedBefore, Code::PodGroupIncomplete]));
    let text = explained.text();
    assert!(text.contains("it is queued again when they have been replaced"), "{text}");
    assert!(text.contains("create the missing pods of the group again"), "{text}");
    let replaced = condition("WaitingForReplacementPods", "False", "PodsReady", "No pods need replacement");
    assert_eq!(codes(&of(&[&evicted, &replaced], json!({}))), [Code::EvictedBefore]);
    let unready = condition("PodsReady", "False", "WaitForStart", "2 of 4");
    let explained = of(&[&reserved, &admitted, &unready], json!({}));
    assert_eq!(since(&explained), (State::Admitted, vec![Code::PodsNotReady]));
}

#[test]
pub fn a_deactivated_workload_starts_when_it_is_activated_as_it_is_said() {
    let before = cluster(&world());
    let name = before.objects(Kind::Workload).next().unwrap().0.name.to_string();
    let event = format!(
        "apiVersion: sluice.dev/v1alpha1\nkind: Scenario\nspec:\n  events:\n  - at: 4s\n    patch: {{kind: workload, namespace: a, name: {name}, \
         merge: {{spec: {{active: false}}}}}}\n"
    );
    let world = format!("{}{event}", world());
    let explained = ask(&read(&world), options());
    assert!(codes(&explained).contains(&Code::Inactive), "{}", explained.text());
    let mut simulation = cluster(&world);
    assert!(!runs(&simulation), "{}", explained.text());
    act(&mut simulation, &explained, &Act::Follow("activate the Workload again"));
    assert!(runs(&simulation), "{}", explained.text());
}

#[test]
fn a_part_and_an_incomplete_group_say_what_is_asked_instead() {
    let asked = |job: Value, whole: Option<sluice_engine::Whole>| {
        let mut manifests = read(&[FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, NAMESPACE].concat());
        manifests.subject = Some(Subject { job: Some(job), whole, ..Subject::default() });
        ask(&manifests, options())
    };
    let unqueued = |job: Value| asked(job, None);
    let set = sluice_engine::Whole { kind: JobKind::JOB_SET, name: "set".into(), workload: None };
    let part = asked(
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "mine", "namespace": "a",
        "labels": {"kueue.x-k8s.io/queue-name": "main"}, "ownerReferences": [
        {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "set", "uid": "s", "controller": true}]}}),
        Some(set),
    );
    assert_eq!(codes(&part), [Code::PartOfAnother], "{}", part.text());
    assert!(part.text().contains("kubectl kueue explain jobset set -n a"), "{}", part.text());
    let unmanaged = unqueued(
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "mine", "namespace": "kube-system",
        "labels": {"kueue.x-k8s.io/queue-name": "main"}}}),
    );
    assert_eq!(codes(&unmanaged), [Code::NamespaceNotManaged], "{}", unmanaged.text());
    let odd = unqueued(
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "mine", "namespace": "a",
        "labels": {"kueue.x-k8s.io/queue-name": "main"}}, "spec": {"suspend": true, "template": {"spec": {"containers": []}}}}),
    );
    assert_eq!(codes(&odd), [Code::WithoutWorkload], "{}", odd.text());
}

#[test]
fn what_users_write_stays_text_and_short() {
    let hostile = format!("\u{1b}[31m\nestimated start: in 0s\u{9b}2J{}", "x".repeat(100_000));
    let conditions = json!([condition("Finished", "True", "Failed", &hostile)]);
    let explained = of_a_cluster(workload(&conditions, &json!({})), Subject::default());
    let text = explained.text();
    assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("estimated start")), "{text}");
    assert!(text.len() < 5_000, "{}", text.len());
    assert!(!explained.json().chars().any(|c| c.is_control() && c != '\n'));
}

#[test]
fn a_topology_that_was_missing_and_is_there_by_now_is_said_to_be_tried_again() {
    use sluice_core::{Detail, PodSetRefusal, Reason, Refusal, Unadmitted};
    let simulation = cluster(&world());
    let (reference, workload) = simulation.objects(Kind::Workload).next().unwrap();
    let mut workload = workload.clone();
    // It waits.
    workload["status"] = json!({});
    let account = simulation.engine().account(Some(Kind::Workload), "a", &reference.name, 5).unwrap();
    for (refusal, was) in [
        (
            Refusal::TopologyUnknown { flavor: "default".into() },
            "the topology hosts of flavor default did not exist; it does now",
        ),
        (
            Refusal::LevelMissing { flavor: "default".into() },
            "flavor default did not have every level that pod set main asks for; it does now",
        ),
    ] {
        let pod_sets = vec![PodSetRefusal { name: "main".into(), refusals: vec![refusal] }];
        let detail = Detail::Flavors { pod_sets, pending_preemptions: 0 };
        let decision =
            Unadmitted { reason: Reason::WaitingForQuota, detail, requests: std::sync::Arc::from([]) };
        let account = Account { decision: Some(decision), ..account.clone() };
        let explained = reported_in(HOSTS, workload.clone(), &account);
        assert_eq!(finding(&explained, Code::TriedAgain), format!("when it was last tried, {was}"));
        remedy(&explained, "wait: it is tried again");
    }
}

/// What no virtual cluster comes to by itself: each decision of the engine has its finding, with something to do.
#[test]
pub fn whatever_the_engine_decides_there_is_a_finding_for_it() {
    use sluice_core::{Detail, LoopKind, PodSetRefusal, Reason, Refusal, Unadmitted, WorkloadKey};
    let simulation = cluster(&world());
    let (reference, workload) = simulation.objects(Kind::Workload).next().unwrap();
    let mut workload = workload.clone();
    // It waits.
    workload["status"] = json!({});
    let account = simulation.engine().account(Some(Kind::Workload), "a", &reference.name, 5).unwrap();
    let decided = |detail: Detail, workload: &Value| {
        let decision =
            Unadmitted { reason: Reason::WaitingForQuota, detail, requests: std::sync::Arc::from([]) };
        reported(workload.clone(), &Account { decision: Some(decision), ..account.clone() })
    };
    let refused = |refusal: Refusal| {
        let pod_sets = vec![PodSetRefusal { name: "main".into(), refusals: vec![refusal] }];
        decided(Detail::Flavors { pod_sets, pending_preemptions: 0 }, &workload)
    };
    let flavor = || "default".into();
    for (refusal, code, says) in [
        (
            Refusal::FlavorNotFound { flavor: "other".into() },
            Code::ClusterQueueIncomplete,
            "the ResourceFlavor other",
        ),
        (Refusal::FlavorNotFound { flavor: flavor() }, Code::TriedAgain, "did not exist; it does now"),
        (
            Refusal::TopologyUnknown { flavor: flavor() },
            Code::TopologyMismatch,
            "of flavor default does not exist",
        ),
        (
            Refusal::LevelMissing { flavor: flavor() },
            Code::TopologyMismatch,
            "of flavor default does not exist",
        ),
        (
            Refusal::SeveralTopologies { flavors: vec![flavor(), "b".into()] },
            Code::TopologyMismatch,
            "topology: default, b",
        ),
        (
            Refusal::NoTopology,
            Code::TopologyMismatch,
            "no resource that it requests has a flavor with a topology",
        ),
    ] {
        let explained = refused(refusal);
        assert_eq!(codes(&explained), [code], "{}", explained.text());
        assert!(explained.text().contains(says), "{}", explained.text());
        assert!(!explained.remedies.is_empty(), "{}", explained.text());
    }
    let explained = refused(Refusal::OtherFlavor { flavor: "b".into(), assigned: flavor() });
    assert_eq!(codes(&explained), [Code::FlavorMismatch], "{}", explained.text());
    assert!(
        explained.text().contains("the job runs on the flavor default, and does not grow onto the flavor b")
    );

    let (victim, kind) = (WorkloadKey::new("a", "victim"), LoopKind::InReturn);
    for (elsewhere, named) in [(false, "a/victim"), (true, "a workload of another namespace")] {
        let victim = victim.clone();
        let held = Detail::PreemptionLoop { victim, elsewhere, kind, pod_sets: Vec::new() };
        let explained = decided(held, &workload);
        assert_eq!(codes(&explained), [Code::PreemptionHeldBack]);
        let why = format!(
            "preemption is held back: it would evict {named}, which preempted this workload, and nothing changed since"
        );
        assert_eq!(explained.findings[0].text, why);
    }
    for detail in [
        Detail::NoLongerFits,
        Detail::OverlappingTargets,
        Detail::DeferredFit,
        Detail::Bypassed,
        Detail::NamespaceMismatch,
        Detail::FailedChecks,
        Detail::QueueInactive("cq".into()),
        Detail::QueueMissing("cq".into()),
    ] {
        let explained = decided(detail.clone(), &workload);
        assert_eq!(codes(&explained), [Code::TriedAgain], "{detail:?}");
        assert!(explained.remedies[0].text.starts_with("wait: "), "{}", explained.text());
    }
    let mut checked = workload.clone();
    checked["status"]["admissionChecks"] = json!([{"name": "budget", "state": "Retry", "message": "later"}]);
    let explained = decided(Detail::FailedChecks, &checked);
    assert_eq!(codes(&explained), [Code::CheckRetry], "{}", explained.text());
    assert!(
        explained.text().contains("it gave its quota back, and is queued again at once"),
        "{}",
        explained.text()
    );
}

#[test]
pub fn an_admitted_job_names_its_pods_that_do_not_run_and_counts_those_that_are_missing() {
    let admitted =
        [condition("QuotaReserved", "True", "x", ""), condition("Admitted", "True", "Admitted", "")];
    let waits = json!([{"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}]);
    let pod = json!({"metadata": {"name": "mine-0", "ownerReferences": [{"uid": "j"}]}, "spec": {"nodeName": "n0"},
        "status": {"phase": "Pending", "containerStatuses": waits}});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "mine", "namespace": "a", "uid": "j"}});
    let subject = Subject { job: Some(job), pods: vec![pod], all_pods: true, ..Subject::default() };
    let admission = json!({"status": {"admission": {"podSetAssignments": [{"name": "main", "count": 3}]}}});
    let explained = of_a_cluster(workload(&json!(admitted), &admission), subject.clone());
    let text = explained.text();
    assert_eq!(codes(&explained), [Code::PodsNotRunning, Code::PodsMissing], "{text}");
    assert!(
        text.contains("mine-0: container c: ImagePullBackOff: no such image") && !text.contains("n0"),
        "{text}"
    );
    let text = named(workload(&json!(admitted), &admission), subject).text();
    assert!(text.contains("mine-0 on n0: container c: ImagePullBackOff: no such image"), "{text}");
    assert!(text.contains("the job is admitted with 3 pod(s), and 2 of them are not there"), "{text}");
    assert!(text.contains("kubectl describe job mine -n a"), "{text}");
}

#[test]
fn what_its_conditions_do_not_say_any_more_is_read_from_its_events() {
    let admitted =
        [condition("QuotaReserved", "True", "x", ""), condition("Admitted", "True", "Admitted", "")];
    let event = |reason: &str, at: &str| json!({"reason": reason, "message": "by another", "eventTime": at});
    let events = vec![
        event("EvictedDueToPreempted", "2025-12-31T23:00:00Z"),
        event("Admitted", "2026-01-01T00:00:01Z"),
    ];
    let subject = Subject { events, ..Subject::default() };
    let explained = of_a_cluster(workload(&json!(admitted), &json!({})), subject);
    assert_eq!(explained.history.len(), 3, "{:?}", explained.history);
    assert_eq!(explained.history[0], "2025-12-31T23:00:00Z EvictedDueToPreempted: by another");
    let subject = Subject { no_events: true, ..Subject::default() };
    let explained = of_a_cluster(workload(&json!(admitted), &json!({})), subject);
    assert_eq!(explained.history[0], "the events about it could not be read");
    // Of a job without a Workload they say what is wrong with it.
    let mut manifests = read(&[FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE].concat());
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "mine", "namespace": "a", "uid": "j",
        "labels": {"kueue.x-k8s.io/queue-name": "main"}}, "spec": {"suspend": true, "template": {"spec": {"containers": []}}}});
    let mut trouble = event("ErrWorkloadCompose", "2026-01-01T00:00:01Z");
    trouble["type"] = json!("Warning");
    manifests.subject = Some(Subject { job: Some(job), events: vec![trouble], ..Subject::default() });
    let explained = ask(&manifests, options());
    assert_eq!(codes(&explained), [Code::WithoutWorkload], "{}", explained.text());
    assert_eq!(explained.findings[0].details, ["2026-01-01T00:00:01Z ErrWorkloadCompose: by another"]);
}

/// A replica that does not lead has decided nothing: the virtual cluster says what would be decided, and the answer is the same.
#[test]
fn a_replica_that_does_not_lead_finds_what_the_leader_finds() {
    let large = JOB.replace("parallelism: 4\n  completions: 4", "parallelism: 40\n  completions: 40");
    let picky = JOB.replace("containers:", "nodeSelector: {zone: elsewhere}\n      containers:");
    let zoned = FLAVOR.replace("{name: default}", "{name: default}\nspec: {nodeLabels: {zone: here}}");
    for (flavor, job, code) in [(FLAVOR, &large, Code::TooLarge), (&*zoned, &picky, Code::FlavorMismatch)] {
        let world = [flavor, CLUSTER_QUEUE, LOCAL_QUEUE, job].concat();
        let simulation = cluster(&world);
        let (reference, _) = simulation.engine().workloads().next().unwrap();
        let mut manifests = read(&world);
        let workload = simulation.object(&reference).cloned();
        manifests.subject = Some(Subject { workload, ..Subject::default() });
        let account = simulation.engine().account(Some(Kind::Workload), "a", &reference.name, 5).unwrap();
        assert!(account.decision.is_some());
        let blank = Account { decision: None, fits: Vec::new(), ..account.clone() };
        let [leader, other] = [(&account, true), (&blank, false)].map(|(account, decides)| {
            Question { live: Some(account), decides, ..question(&manifests, &reference.name) }
                .answer()
                .unwrap()
        });
        assert_eq!(codes(&leader), [code], "{}", leader.text());
        assert_eq!(other.json(), leader.json());
    }
}
