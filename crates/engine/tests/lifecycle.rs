//! From a job with a queue name to a finished Workload.

mod model;

use model::build::job;
use model::{Cluster, condition, reported};
use serde_json::json;
use sluice_engine::{Kind, ObjectRef, Purpose};

#[test]
fn a_job_is_created_admitted_and_started_with_three_writes() {
    let mut c = Cluster::plain();
    c.api.simple("10", &json!({}));
    c.settle();
    c.writes.clear();
    c.api.add_job(job("team-a", "a", "lq", 2, "1"));
    c.settle();
    let about_job: Vec<_> = c.writes.iter().map(|(_, p)| *p).filter(|p| *p != Purpose::QueueStatus).collect();
    assert_eq!(about_job, [Purpose::CreateWorkload, Purpose::ReserveQuota, Purpose::StartJob]);

    let workload = c.workload("a");
    assert_eq!(reported(&workload, "QuotaReserved"), "True/QuotaReserved: Quota reserved in ClusterQueue cq");
    assert_eq!(reported(&workload, "Admitted"), "True/Admitted: The workload is admitted");
    let admission = workload.status.unwrap().admission.unwrap();
    assert_eq!(admission.pod_set_assignments[0].flavors["cpu"], "default");
    assert_eq!(admission.pod_set_assignments[0].resource_usage["cpu"].0, "2");
    assert_eq!(admission.pod_set_assignments[0].count, Some(2));
    let metadata = workload.metadata;
    assert_eq!(metadata.finalizers.unwrap(), ["kueue.x-k8s.io/resource-in-use"]);
    let state = c.api.job("a");
    assert_eq!(metadata.labels.unwrap()["kueue.x-k8s.io/job-uid"], *state.view.job.uid);
    assert!(!state.view.suspended);
    let scheduling = &state.view.pod_sets[0].scheduling;
    assert_eq!(scheduling.node_selector["pool"], "default");
    assert_eq!(scheduling.labels["kueue.x-k8s.io/local-queue-name"], "lq");
    assert_eq!(scheduling.labels["kueue.x-k8s.io/cluster-queue-name"], "cq");
    assert_eq!(scheduling.labels["kueue.x-k8s.io/podset"], "main");
    assert_eq!(c.notes("Started"), ["Job/a: Admitted by clusterQueue cq"]);
    // One event says both, as one write does.
    assert!(c.notes("QuotaReserved").is_empty());
    let admitted = "Workload/job-a: Admitted by ClusterQueue cq, wait time since reservation was 0s; \
                    Quota reserved in ClusterQueue cq, wait time since queued was 0s";
    assert_eq!(c.notes("Admitted"), [admitted]);
}

#[test]
fn what_does_not_fit_waits_with_the_reason_and_runs_when_quota_is_free() {
    let mut c = Cluster::plain();
    c.api.simple("3", &json!({}));
    c.api.add_job(job("team-a", "a", "lq", 2, "1"));
    c.settle();
    c.api.add_job(job("team-a", "b", "lq", 2, "1"));
    c.settle();
    let waiting = c.workload("b");
    assert_eq!(
        reported(&waiting, "QuotaReserved"),
        "False/WaitingForQuota: couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor \
         default, 1 more needed"
    );
    assert_eq!(waiting.status.unwrap().resource_requests[0].resources["cpu"].0, "2");
    assert!(c.api.job("b").view.suspended);
    c.api.finish_job("a", true);
    c.settle();
    assert_eq!(reported(&c.workload("a"), "Finished"), "True/Succeeded: Job finished");
    assert!(!c.api.job("b").view.suspended);
    assert_eq!(c.notes("FinishedWorkload").len(), 1);
    assert_eq!(c.notes("WaitingForQuota").len(), 1);
}

#[test]
fn why_it_waits_is_reported_although_another_message_was_on_its_way() {
    let mut c = Cluster::plain();
    let selector = json!({"namespaceSelector": {"matchLabels": {"team": "b"}}});
    c.api.simple("3", &selector);
    for name in ["a", "b"] {
        c.api.add_job(job("team-a", name, "lq", 3, "1"));
    }
    c.settle();
    assert!(reported(&c.workload("b"), "QuotaReserved").starts_with("False/Misconfigured"));
    // The reason is cleared on both Workloads while the first is admitted and the second refused.
    let cq = ObjectRef::cluster(Kind::ClusterQueue, "cq");
    c.api.edit(&cq, &json!({"spec": {"namespaceSelector": {"matchLabels": {"team": "a"}}}}));
    c.settle();
    assert_eq!(condition(&c.workload("a"), "Admitted"), "True");
    assert_eq!(
        reported(&c.workload("b"), "QuotaReserved"),
        "False/WaitingForQuota: couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor \
         default, 3 more needed"
    );
}

/// A ClusterQueue `x` with all the quota, and `y` that borrows from it.
fn lender_and_borrower() -> Cluster {
    let mut c = Cluster::plain();
    c.api.priority_class("low", 100);
    c.api.priority_class("high", 1000);
    c.api.priority_class("highest", 2000);
    c.api.simple("3", &json!({"cohortName": "co", "preemption": {"withinClusterQueue": "LowerPriority"}}));
    c.api.cluster_queue("borrower", "default", "0", &json!({"cohortName": "co"}));
    c.api.local_queue("team-a", "borrows", "borrower");
    c
}

fn of_class(mut view: sluice_api::job::JobView, class: &str) -> sluice_api::job::JobView {
    view.workload_priority_class = Some(class.to_owned());
    view
}

const ONE_MORE: &str = "False/WaitingForQuota: couldn't assign flavors to pod set main: insufficient unused quota for cpu \
                        in flavor default, 1 more needed";

#[test]
fn that_another_workload_was_first_is_not_reported_if_the_next_cycle_ends_it() {
    let mut c = lender_and_borrower();
    c.api.add_job(job("team-a", "runs", "lq", 3, "1"));
    c.settle();
    c.api.add_job(job("team-a", "next", "lq", 3, "1"));
    c.api.add_job(job("team-a", "waits", "borrows", 1, "1"));
    c.settle();
    assert_eq!(reported(&c.workload("waits"), "QuotaReserved"), ONE_MORE);
    let before = c.workload("waits").metadata.resource_version;
    c.api.finish_job("runs", true);
    c.settle();
    assert!(!c.api.job("next").view.suspended, "it was first");
    c.advance(3600);
    assert_eq!(reported(&c.workload("waits"), "QuotaReserved"), ONE_MORE);
    assert_eq!(c.workload("waits").metadata.resource_version, before, "nothing was written");
}

#[test]
fn that_another_workload_was_first_is_reported_if_it_stays_so() {
    let mut c = lender_and_borrower();
    c.pods_vanish = false;
    c.api.add_job(of_class(job("team-a", "victim", "lq", 2, "1"), "low"));
    c.api.add_job(of_class(job("team-a", "ends", "lq", 1, "1"), "highest"));
    c.settle();
    c.api.add_job(job("team-a", "waits", "borrows", 1, "1"));
    c.api.add_job(of_class(job("team-a", "preempts", "lq", 3, "1"), "high"));
    c.settle();
    assert_eq!(reported(&c.workload("waits"), "QuotaReserved"), ONE_MORE);
    c.api.finish_job("ends", true);
    c.settle();
    assert_eq!(condition(&c.workload("victim"), "Evicted"), "True");
    assert_eq!(reported(&c.workload("waits"), "QuotaReserved"), ONE_MORE, "held back");
    c.advance(299);
    assert_eq!(reported(&c.workload("waits"), "QuotaReserved"), ONE_MORE, "still");
    c.advance(2);
    assert_eq!(
        reported(&c.workload("waits"), "QuotaReserved"),
        "False/WaitingForQuota: Workload no longer fits after processing another workload"
    );
}

#[test]
fn a_victim_stops_before_its_quota_is_given_on() {
    let mut c = Cluster::plain();
    c.pods_vanish = false;
    c.api.priority_class("low", 100);
    c.api.priority_class("high", 1000);
    c.api.simple("3", &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}));
    let mut low = job("team-a", "low", "lq", 3, "1");
    low.workload_priority_class = Some("low".to_owned());
    c.api.add_job(low);
    c.settle();
    let mut high = job("team-a", "high", "lq", 3, "1");
    high.workload_priority_class = Some("high".to_owned());
    c.api.add_job(high);
    c.settle();
    let victim = c.workload("low");
    let high_uid = c.workload("high").metadata.uid.unwrap();
    let message = format!(
        "Preempted to accommodate a workload (UID: {high_uid}, JobUID: {}) due to prioritization in the ClusterQueue; \
         preemptor path: /cq; preemptee path: /cq",
        c.api.job("high").view.job.uid
    );
    assert_eq!(reported(&victim, "Evicted"), format!("True/Preempted: {message}"));
    assert_eq!(reported(&victim, "Preempted"), format!("True/InClusterQueue: {message}"));
    assert!(c.api.job("low").view.suspended, "the victim was asked to stop");
    assert_eq!(condition(&victim, "QuotaReserved"), "True", "its pods still use the quota");
    assert!(c.api.job("high").view.suspended);
    assert!(
        reported(&c.workload("high"), "QuotaReserved").contains("Pending the preemption of 1 workload(s)")
    );

    assert!(c.api.pods_vanish());
    c.settle();
    let victim = c.workload("low");
    assert_eq!(condition(&victim, "QuotaReserved"), "False");
    assert_eq!(reported(&victim, "Requeued"), format!("True/Preempted: {message}"));
    assert_eq!(reported(&victim, "Admitted"), "False/NoReservation: The workload has no reservation");
    assert!(!c.api.job("high").view.suspended);
    let restored = c.api.job("low");
    assert_eq!(restored.original[0], restored.view.pod_sets[0].scheduling, "templates are restored");
    assert_eq!(c.written(Purpose::Evict), 1);

    c.api.finish_job("high", true);
    c.settle();
    let again = c.workload("low");
    assert_eq!(condition(&again, "Admitted"), "True");
    assert_eq!(reported(&again, "Evicted"), format!("False/QuotaReserved: Previously: {message}"));
    assert!(!c.api.job("low").view.suspended);
}

#[test]
fn what_kubernetes_refuses_while_pods_are_active_is_sent_when_they_are_gone_and_not_before() {
    let mut c = Cluster::plain();
    c.api.simple("2", &json!({}));
    c.api.add_job(job("team-a", "a", "lq", 2, "1"));
    c.settle();
    c.api.edit_job("a", |job| (job.view.stopping, job.view.stop_waits) = (true, true));
    let cq = ObjectRef::cluster(Kind::ClusterQueue, "cq");
    c.api.edit(&cq, &json!({"spec": {"stopPolicy": "HoldAndDrain"}}));
    c.settle();
    assert_eq!(condition(&c.workload("a"), "Evicted"), "True");
    c.api.edit_job("a", |job| job.view.pods_ready = true);
    c.advance(10);
    assert_eq!(c.written(Purpose::StopJob), 0, "nothing would come of it");
    c.api.edit_job("a", |job| job.view.stop_waits = false);
    c.settle();
    assert_eq!(c.written(Purpose::StopJob), 1);
    assert_eq!(condition(&c.workload("a"), "QuotaReserved"), "False");
}

#[test]
fn a_job_that_finishes_while_evicted_is_finished() {
    let mut c = Cluster::plain();
    c.pods_vanish = false;
    c.api.simple("3", &json!({}));
    c.api.add_job(job("team-a", "a", "lq", 3, "1"));
    c.settle();
    let cq = ObjectRef::cluster(Kind::ClusterQueue, "cq");
    c.api.edit(&cq, &json!({"spec": {"stopPolicy": "HoldAndDrain"}}));
    c.settle();
    assert_eq!(
        reported(&c.workload("a"), "Evicted"),
        "True/ClusterQueueStopped: The ClusterQueue is stopped"
    );
    c.api.finish_job("a", true);
    c.settle();
    assert_eq!(condition(&c.workload("a"), "Finished"), "True");
    assert_eq!(c.written(Purpose::ReleaseQuota), 0);
}

#[test]
fn the_workload_follows_when_its_job_is_deleted() {
    let mut c = Cluster::plain();
    c.api.simple("3", &json!({}));
    c.api.add_job(job("team-a", "a", "lq", 3, "1"));
    c.api.add_job(job("team-a", "b", "lq", 3, "1"));
    c.settle();
    c.api.delete_job("a");
    c.settle();
    assert_eq!(c.api.workloads().len(), 1);
    assert!(!c.api.job("b").view.suspended, "the quota is free again");
}

#[test]
fn priorities_come_from_the_class_and_follow_it() {
    let mut c = Cluster::plain();
    c.api.simple("0", &json!({}));
    let mut view = job("team-a", "a", "lq", 1, "1");
    view.workload_priority_class = Some("urgent".to_owned());
    c.api.add_job(view);
    c.settle();
    assert!(c.api.workloads().is_empty());
    assert_eq!(
        c.notes("WorkloadPriorityClassNotFound"),
        ["Job/a: WorkloadPriorityClass \"urgent\" not found"]
    );
    c.api.priority_class("urgent", 7);
    c.settle();
    let workload = c.workload("a");
    assert_eq!(workload.spec.priority, Some(7));
    assert_eq!(workload.spec.priority_class_ref.unwrap().name, "urgent");
    c.api.priority_class("urgent", 8);
    c.settle();
    assert_eq!(c.workload("a").spec.priority, Some(8));
    c.api.edit_job("a", |job| job.view.workload_priority_class = Some("typo".to_owned()));
    c.settle();
    assert_eq!(c.workload("a").spec.priority, Some(8), "the old class stays");
    assert_eq!(
        c.notes("WorkloadPriorityClassNotFound")[1..],
        ["Job/a: WorkloadPriorityClass \"typo\" not found"]
    );
    c.api.priority_class("typo", 9);
    c.settle();
    assert_eq!(c.workload("a").spec.priority, Some(9));
}
