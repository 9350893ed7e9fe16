//! Disabled parts: the others work as usual, and the disabled ones write and report nothing.

use serde_json::{Value, json};
use sluice_core::FairSharing;
use sluice_engine::{Kind, ObjectRef, Part, Purpose};

use crate::contract::{cq, submit};
use crate::model::build::job;
use crate::model::{Api, Cluster, condition};
use crate::parity::{admission, says};

/// A queue of one processor whose objects have no finalizers yet.
fn without(part: Option<Part>) -> Cluster {
    let mut c = Cluster::plain();
    c.config.fair_sharing = Some(FairSharing::default());
    c.config.without = part.into_iter().collect();
    c.restart();
    c.api.put(Kind::ResourceFlavor, json!({"metadata": {"name": "default"}, "spec": {}}));
    c.api.put(Kind::ResourceFlavor, json!({"metadata": {"name": "placed"}, "spec": {"topologyName": "t"}}));
    c.api.put(Kind::Topology, json!({"metadata": {"name": "t"}, "spec": {"levels": [{"nodeLabel": "l"}]}}));
    c.api.put(
        Kind::AdmissionCheck,
        json!({"metadata": {"name": "ok"}, "spec": {"controllerName": "x.com/y"}}),
    );
    c.api.put(Kind::Cohort, json!({"metadata": {"name": "co"}, "spec": {}}));
    let quota = json!([{"coveredResources": ["cpu"], "flavors": [
        {"name": "default", "resources": [{"name": "cpu", "nominalQuota": "1"}]},
        {"name": "placed", "resources": [{"name": "cpu", "nominalQuota": "0"}]}]}]);
    let spec = json!({"namespaceSelector": {}, "cohortName": "co", "resourceGroups": quota});
    c.api.put(Kind::ClusterQueue, json!({"metadata": {"name": "cq"}, "spec": spec}));
    c.api.local_queue("team-a", "lq", "cq");
    submit(&mut c, "a", "lq", 1, |_| {});
    c
}

/// The kinds on whose status or finalizers something was written.
fn written(c: &Cluster) -> Vec<Kind> {
    let ours = |purpose: &Purpose| matches!(purpose, Purpose::QueueStatus | Purpose::Finalizer);
    let mut kinds: Vec<_> = c.writes.iter().filter(|(_, p)| ours(p)).map(|(o, _)| o.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

#[test]
fn what_keeps_queues_and_flavors_can_be_left_out_one_by_one() {
    let all = written(&without(None));
    let parts = [
        (Part::ClusterQueue, Kind::ClusterQueue),
        (Part::LocalQueue, Kind::LocalQueue),
        (Part::Cohort, Kind::Cohort),
        (Part::ResourceFlavor, Kind::ResourceFlavor),
        (Part::AdmissionCheck, Kind::AdmissionCheck),
        (Part::Topology, Kind::Topology),
    ];
    for (part, kind) in parts {
        assert!(all.contains(&kind), "{kind:?} not among {all:?}");
        let c = without(Some(part));
        let rest: Vec<_> = all.iter().copied().filter(|k| *k != kind).collect();
        assert_eq!(written(&c), rest, "{part:?}");
        assert!(!c.api.job("a").view.suspended, "the rest continues, and the state is kept");
    }
}

#[test]
fn without_the_workload_part_the_scheduler_and_the_jobs_continue() {
    let mut c = without(Some(Part::Workload));
    assert!(!c.api.job("a").view.suspended);
    submit(&mut c, "b", "lq", 1, |_| {});
    assert_eq!(condition(&c.workload("b"), "QuotaReserved"), "False", "the scheduler says why it waits");
    let workload = Api::workload_ref(&c.workload("a"));
    c.api.edit(&workload, &json!({"spec": {"active": false}}));
    c.advance(60);
    assert_eq!(condition(&c.workload("a"), "Evicted"), "", "that is the workload part's to say");
    c.api.edit_status(&workload, |status| {
        status["conditions"].as_array_mut().unwrap().push(says("Evicted", "True", "Deactivated"));
    });
    c.settle();
    assert!(c.api.job("a").view.suspended, "which others do, and its job follows");
    assert!(!c.api.job("b").view.suspended);
    submit(&mut c, "d", "nowhere", 1, |_| {});
    c.advance(60);
    assert_eq!(condition(&c.workload("d"), "QuotaReserved"), "");
    assert_eq!(c.notes("Misconfigured"), [""; 0]);
}

#[test]
fn an_admission_that_others_write_starts_a_job_while_both_are_left_out() {
    let mut c = without(Some(Part::Workload));
    c.config.scheduling = false;
    c.restart();
    c.api.add_job(job("team-a", "b", "lq", 1, "1"));
    c.settle();
    let workload = Api::workload_ref(&c.workload("b"));
    let admit = |status: &mut Value| {
        *status = json!({"admission": admission("cq", "main", "1"), "conditions": [
            says("QuotaReserved", "True", "QuotaReserved"), says("Admitted", "True", "Admitted")]});
    };
    c.api.edit_status(&workload, admit);
    c.settle();
    assert!(!c.api.job("b").view.suspended);
    assert_eq!(c.api.json(&cq()).unwrap()["status"]["admittedWorkloads"], 2, "and it is counted");
    assert!(c.api.json(&ObjectRef::cluster(Kind::Cohort, "co")).is_some());
}
