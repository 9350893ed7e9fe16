//! Histories that break each rule, and one that breaks none.

use serde_json::{Value, json};

use super::*;

mod admissions;
mod excess;
mod faults;
mod freed;
mod places;
mod strays;
mod waiting;

/// A history that is written as the API server would.
#[derive(Default)]
struct History(Vec<Change>);

const JOB: &str = "/registry/jobs/ns/j";
const WORKLOAD: &str = "/registry/kueue.x-k8s.io/workloads/ns/w";
const OTHER: &str = "/registry/kueue.x-k8s.io/workloads/ns/x";
const QUEUE: &str = "/registry/kueue.x-k8s.io/clusterqueues/cq";
const LOCAL: &str = "/registry/kueue.x-k8s.io/localqueues/ns/lq";
const POD: &str = "/registry/pods/ns/p";
const ADMITTED: &[&str] = &["QuotaReserved", "Admitted"];
const EVICTED: &[&str] = &["QuotaReserved", "Admitted", "Evicted"];

fn conditions(held: &[&str]) -> Value {
    held.iter().map(|kind| json!({"type": kind, "status": "True"})).collect()
}

/// A pod that asks for a processor.
fn template() -> Value {
    json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}})
}

impl History {
    /// With a ClusterQueue of two processors.
    fn new() -> Self {
        let flavors = json!([{"name": "f", "resources": [{"name": "cpu", "nominalQuota": 2}]}]);
        let spec = json!({"resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]});
        let local = json!({"spec": {"clusterQueue": "cq"}});
        Self::default().put(QUEUE, json!({"spec": spec})).put(LOCAL, local)
    }

    /// The last object as it is changed.
    fn with(mut self, change: impl FnOnce(&mut Value)) -> Self {
        change(self.0.last_mut().and_then(|change| change.object.as_mut()).unwrap());
        self
    }

    fn put(mut self, key: &str, object: Value) -> Self {
        let revision = self.0.len() as u64 + 1;
        self.0.push(Change { revision, key: key.to_owned(), object: Some(object) });
        self
    }

    fn delete(mut self, key: &str) -> Self {
        let revision = self.0.len() as u64 + 1;
        self.0.push(Change { revision, key: key.to_owned(), object: None });
        self
    }

    fn job(self, suspend: bool, held: &[&str]) -> Self {
        let labels = json!({"kueue.x-k8s.io/queue-name": "lq"});
        let metadata = json!({"uid": "j", "labels": labels});
        self.put(
            JOB,
            json!({"metadata": metadata, "spec": {"suspend": suspend}, "status": {"conditions": conditions(held)}}),
        )
    }

    fn workload(self, key: &str, held: &[&str], pods: u32) -> Self {
        self.workload_with(key, held, pods, 0)
    }

    /// One that asks for two pods or more, with an admission of a processor for each of `pods`.
    fn workload_with(self, key: &str, held: &[&str], pods: u32, reclaimable: u32) -> Self {
        let asked = pods.max(2);
        let set = json!({
            "name": "main", "count": pods, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": pods.to_string()},
        });
        let admission = json!({"clusterQueue": "cq", "podSetAssignments": [set]});
        let mut status = json!({"conditions": conditions(held)});
        if held.contains(&"QuotaReserved") {
            status["admission"] = admission;
        }
        if reclaimable > 0 {
            status["reclaimablePods"] = json!([{"name": "main", "count": reclaimable}]);
        }
        let owners = json!([{"uid": "j", "controller": true}]);
        let set = json!({"name": "main", "count": asked, "template": template()});
        let spec = json!({"podSets": [set], "queueName": "lq"});
        let metadata = json!({"uid": key, "ownerReferences": owners});
        self.put(key, json!({"metadata": metadata, "spec": spec, "status": status}))
    }

    /// The Workload of another job, for two processors.
    fn late(mut self, held: &[&str]) -> Self {
        self = self.workload(OTHER, held, 2);
        let object = self.0.last_mut().and_then(|change| change.object.as_mut()).unwrap();
        object["metadata"]["ownerReferences"][0]["uid"] = json!("k");
        self
    }

    /// The job of that one.
    fn late_job(self, suspend: bool) -> Self {
        let metadata = json!({"uid": "k", "labels": {"kueue.x-k8s.io/queue-name": "lq"}});
        self.put("/registry/jobs/ns/k", json!({"metadata": metadata, "spec": {"suspend": suspend}}))
    }

    /// A node of two processors, and a Workload with two pods of one each: `here` of them on that node, the others on another one.
    fn placed(mut self, key: &str, held: &[&str], here: u32) -> Self {
        let allocatable = json!({"cpu": "2", "pods": "110"});
        for node in ["n-1", "n-2"] {
            let status = json!({"status": {"allocatable": allocatable.clone()}});
            self = self.put(&format!("/registry/minions/{node}"), status);
        }
        self = self.workload(key, held, 2);
        let object = self.0.last_mut().and_then(|change| change.object.as_mut()).unwrap();
        object["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] = json!({
            "levels": ["rack", "kubernetes.io/hostname"],
            "slices": [{
                "domainCount": 2,
                "valuesPerLevel": [{"universal": "r"}, {"individual": {"prefix": "n-", "roots": ["1", "2"]}}],
                "podCounts": {"individual": [here, 2 - here]},
            }],
        });
        self
    }

    fn pod_on(self, name: &str, node: &str) -> Self {
        let owners = json!([{"uid": "j", "controller": true}]);
        let metadata = json!({"uid": name, "ownerReferences": owners});
        let mut pod = template();
        pod["metadata"] = metadata;
        pod["spec"]["nodeName"] = json!(node);
        pod["status"] = json!({"phase": "Running"});
        self.put(&format!("/registry/pods/ns/{name}"), pod)
    }

    fn pod(self, phase: &str) -> Self {
        let owners = json!([{"uid": "j", "controller": true}]);
        self.put(
            POD,
            json!({"metadata": {"uid": "p", "ownerReferences": owners}, "status": {"phase": phase}}),
        )
    }

    fn play(&self, checker: &mut Checker) {
        self.0.iter().for_each(|change| checker.observe(change).unwrap());
    }

    fn checked(self) -> Checker {
        let mut checker = Checker::default();
        self.play(&mut checker);
        checker
    }

    /// The same while a fault of this kind lasts.
    fn beside(&self, fault: &str) -> Checker {
        let mut checker = Checker::default();
        checker.fault_begins(0, fault);
        self.play(&mut checker);
        checker
    }

    /// The rules that are broken, with the texts.
    fn broken(self) -> Vec<(Rule, String)> {
        let mut checker = self.checked();
        checker.end_excesses();
        checker.violations().iter().map(|one| (one.rule, one.text.clone())).collect()
    }
}

#[track_caller]
fn assert_broken(history: History, rule: Rule, text: &str) {
    let broken = history.broken();
    assert!(broken.iter().any(|(which, reported)| *which == rule && reported.contains(text)), "{broken:?}");
}

/// A Job that is preempted once, with one of its pods done, and completes.
fn quiet_life() -> History {
    History::new()
        .job(true, &[])
        .workload(WORKLOAD, &[], 2)
        .workload(WORKLOAD, ADMITTED, 2)
        .job(false, &[])
        .pod("Running")
        .workload_with(WORKLOAD, ADMITTED, 2, 1)
        .workload_with(WORKLOAD, EVICTED, 2, 1)
        .job(true, &[])
        .delete(POD)
        .workload_with(WORKLOAD, &["Evicted"], 2, 1)
        .workload_with(WORKLOAD, ADMITTED, 1, 1)
        .job(false, &[])
        .pod("Succeeded")
        .job(false, &["Complete"])
        .workload(WORKLOAD, &["QuotaReserved", "Admitted", "Finished"], 1)
}

#[test]
fn a_quiet_life_breaks_nothing_and_is_accounted_for() {
    let mut checker = quiet_life().checked();
    checker.rest();
    assert_eq!(checker.violations().len(), 0, "{:?}", checker.violations());
    let account = checker.account();
    assert_eq!((account.jobs, account.finished, account.deleted), (1, 1, 0));
    assert_eq!((account.started, account.admissions, account.evictions), (2, 2, 1));
    assert_eq!(account.evictions_of_partly_completed, 1);
    let end = History::default().delete(JOB).delete(WORKLOAD).delete(POD);
    end.play(&mut checker);
    checker.nothing_left();
    assert_eq!(checker.violations().len(), 0, "{:?}", checker.violations());
}

#[test]
fn a_job_that_holds_quota_twice_is_noticed() {
    let twice = History::new().job(true, &[]).workload(WORKLOAD, ADMITTED, 1).workload(OTHER, ADMITTED, 1);
    assert_broken(twice, Rule::AdmittedTwice, "holds quota by");
    let again = History::new().workload(WORKLOAD, ADMITTED, 1).workload(WORKLOAD, ADMITTED, 2);
    assert_broken(again, Rule::AdmittedTwice, "changes without an eviction");
    let finished = ["QuotaReserved", "Admitted", "Finished"];
    let late = History::new().workload(WORKLOAD, &["Finished"], 1).workload(WORKLOAD, &finished, 1);
    assert_broken(late, Rule::AdmittedTwice, "after it finished");
}

#[test]
fn pods_get_another_place_without_an_eviction_only_if_their_node_went() {
    let placed = |history: History, here| history.placed(WORKLOAD, ADMITTED, here);
    let moved = placed(placed(History::new(), 1), 2);
    assert_broken(moved, Rule::AdmittedTwice, "changes without an eviction");
    let lost = placed(History::new(), 1).delete("/registry/minions/n-2");
    assert_eq!(placed(lost, 2).checked().violations().len(), 0);
    // So is one that fails, also if it is well again by then.
    for failing in [
        json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}),
        json!({"spec": {"taints": [{"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}]}}),
    ] {
        let failed = placed(History::new(), 1).put("/registry/minions/n-2", failing);
        let well = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let again = failed.put("/registry/minions/n-2", well);
        assert_eq!(placed(again, 2).checked().violations().len(), 0);
    }
    // So is one of whose loss the manager learns once it has given it away.
    let mut late = History::new();
    for change in placed(History::new(), 1).0 {
        if change.key == WORKLOAD {
            late = late.delete("/registry/minions/n-2");
        }
        late = late.put(&change.key, change.object.unwrap());
    }
    assert_eq!(placed(late, 2).checked().violations().len(), 0);
    let avoided = json!({"spec": {"taints": [{"key": "a", "effect": "PreferNoSchedule"}]}});
    let avoided = placed(History::new(), 1).put("/registry/minions/n-2", avoided);
    assert_broken(placed(avoided, 2), Rule::AdmittedTwice, "changes without an eviction");
    // Another node, or one that went before; and a lost node is no reason for other quota.
    let other = placed(History::new(), 1).delete("/registry/minions/n-3");
    assert_broken(placed(other, 2), Rule::AdmittedTwice, "changes without an eviction");
    let before = placed(History::new().delete("/registry/minions/n-2"), 1);
    assert_broken(placed(before, 2), Rule::AdmittedTwice, "changes without an eviction");
    let lost = placed(History::new(), 1).delete("/registry/minions/n-2");
    assert_broken(lost.workload(WORKLOAD, ADMITTED, 1), Rule::AdmittedTwice, "changes without an eviction");
}

#[test]
fn a_queue_above_its_quota_is_noticed_and_reclaimable_pods_do_not_count() {
    assert_broken(History::new().workload(WORKLOAD, ADMITTED, 3), Rule::AboveQuota, "3000 of 2000");
    let both = History::new().workload_with(WORKLOAD, ADMITTED, 2, 1);
    assert_broken(both.workload(OTHER, &["QuotaReserved"], 2), Rule::AboveQuota, "3000 of 2000");
    let other_job = |history: History| {
        let mut history = history.workload(OTHER, &["QuotaReserved"], 1);
        let object = history.0.last_mut().and_then(|change| change.object.as_mut()).unwrap();
        object["metadata"]["ownerReferences"][0]["uid"] = json!("k");
        history
    };
    let shared = other_job(History::new().workload_with(WORKLOAD, ADMITTED, 2, 1));
    assert_eq!(shared.broken(), []);
    // Admitted for the one pod that is left, it uses that one's share.
    let left = other_job(History::new().workload_with(WORKLOAD, ADMITTED, 1, 1));
    assert_eq!(left.checked().in_use(), ["cq: 2000 thousandths of f cpu"]);
    // A pod that is needed again counts again.
    let back = other_job(History::new().workload_with(WORKLOAD, ADMITTED, 2, 1));
    assert_broken(back.workload(WORKLOAD, ADMITTED, 2), Rule::AboveQuota, "3000 of 2000");
}

#[test]
fn a_deactivated_workload_counts_until_its_job_is_gone() {
    let admitted = |history: History, uid: &str, active: bool, key: &str| {
        let mut history = history.workload(key, EVICTED, 1);
        let object = history.0.last_mut().and_then(|change| change.object.as_mut()).unwrap();
        object["metadata"]["ownerReferences"][0]["uid"] = json!(uid);
        object["spec"]["active"] = json!(active);
        history
    };
    let next = |history: History| history.workload_with(OTHER, ADMITTED, 2, 0);
    let held = admitted(History::new().job(true, &[]), "j", false, WORKLOAD);
    let text = "3000 of 2000";
    assert_broken(next(held), Rule::AboveQuota, text);
    assert_broken(next(admitted(History::new(), "gone", true, WORKLOAD)), Rule::AboveQuota, text);
    let orphan = next(admitted(History::new(), "gone", false, WORKLOAD)).broken();
    assert!(orphan.iter().all(|(rule, _)| *rule != Rule::AboveQuota), "{orphan:?}");
}

#[test]
fn a_job_that_runs_unadmitted_is_noticed() {
    let begins = "it begins to run";
    assert_broken(History::new().job(false, &[]), Rule::RunsUnadmitted, begins);
    let reserved = History::new().workload(WORKLOAD, &["QuotaReserved"], 1).job(false, &[]);
    assert_broken(reserved, Rule::RunsUnadmitted, begins);
    let evicted = History::new().workload(WORKLOAD, EVICTED, 1).job(false, &[]);
    assert_broken(evicted, Rule::RunsUnadmitted, begins);
    let running = || History::new().workload(WORKLOAD, ADMITTED, 1).job(false, &[]);
    assert_broken(running().workload(WORKLOAD, &["Evicted"], 1), Rule::RunsUnadmitted, "admitted no more");
    assert_broken(running().delete(WORKLOAD), Rule::RunsUnadmitted, "admitted no more");
    let finished = running().workload(WORKLOAD, &["QuotaReserved", "Admitted", "Finished"], 1);
    assert_broken(finished, Rule::RunsUnadmitted, "admitted no more");
    // Another job's Workload covers nothing.
    let mut others = History::new().workload(WORKLOAD, ADMITTED, 1);
    let object = others.0.last_mut().and_then(|change| change.object.as_mut()).unwrap();
    object["metadata"]["ownerReferences"][0]["uid"] = json!("k");
    assert_broken(others.job(false, &[]), Rule::RunsUnadmitted, begins);
    assert_eq!(running().workload(WORKLOAD, EVICTED, 1).broken(), [], "it is about to be stopped");
}

#[test]
fn a_job_that_does_not_end_is_lost() {
    let mut checker = History::new().job(true, &[]).workload(WORKLOAD, ADMITTED, 1).checked();
    checker.rest();
    let broken: Vec<_> = checker.violations().iter().map(|one| one.rule).collect();
    assert_eq!(broken, [Rule::Lost, Rule::LeftBehind], "{:?}", checker.violations());
    assert_broken(History::new().job(true, &[]).delete(JOB), Rule::Lost, "has not ended");
    let mut wanted = Checker::default();
    wanted.expect_deletion(JOB);
    History::new().job(true, &[]).delete(JOB).play(&mut wanted);
    wanted.rest();
    assert!(wanted.violations().is_empty() && wanted.account().deleted == 1);
}

#[test]
fn what_is_left_of_deleted_jobs_is_noticed() {
    let mut checker = quiet_life().delete(JOB).checked();
    checker.nothing_left();
    let left: Vec<_> = checker.violations().iter().map(|one| one.key.as_str()).collect();
    assert_eq!(left, [WORKLOAD, POD]);
}

#[test]
fn a_node_that_is_given_away_twice_is_noticed() {
    let two = |first: u32, second: u32| {
        let history = History::new().placed(WORKLOAD, ADMITTED, first).placed(OTHER, ADMITTED, second);
        history
            .broken()
            .into_iter()
            .map(|(_, text)| text)
            .filter(|text| text.contains("of node"))
            .collect::<Vec<_>>()
    };
    assert!(two(1, 1).is_empty());
    assert!(two(2, 0).is_empty());
    assert!(two(2, 1)[0].contains("of node n-1 is above its limit: 3000 of 2000"), "{:?}", two(2, 1));
    assert!(two(0, 1)[0].contains("of node n-2 is above its limit: 3000 of 2000"), "{:?}", two(0, 1));
}

#[test]
fn a_pod_on_a_node_that_its_job_does_not_have_is_noticed() {
    let begun = |here| History::new().job(true, &[]).placed(WORKLOAD, ADMITTED, here).job(false, &[]);
    let mut checker = begun(1).pod_on("p", "n-1").pod_on("q", "n-2").checked();
    assert_eq!(checker.violations().len(), 0, "{:?}", checker.violations());
    assert_eq!(checker.account().placed, 2);
    // A pod that is seen again is no other one.
    History::default().pod_on("q", "n-2").play(&mut checker);
    assert_eq!((checker.violations().len(), checker.account().placed), (0, 2));
    let text = "2 pods of its job are on n-1, and 1 are assigned to it";
    assert_broken(begun(1).pod_on("p", "n-1").pod_on("q", "n-1"), Rule::Misplaced, text);
    assert_broken(begun(2).pod_on("p", "n-2"), Rule::Misplaced, "and 0 are assigned to it");
    assert_broken(begun(2).pod_on("p", "n-3"), Rule::Misplaced, "and 0 are assigned to it");
}

/// A JobSet with a Job of its own, which runs or not.
fn set_and_part(suspended: bool, said: bool, part_runs: bool) -> History {
    let labels = json!({"kueue.x-k8s.io/queue-name": "lq"});
    let said = json!([{"type": "Suspended", "status": if said { "True" } else { "False" }}]);
    let set = json!({"metadata": {"uid": "j", "labels": labels}, "spec": {"suspend": suspended}, "status": {"conditions": said}});
    let owners = json!([{"uid": "j", "controller": true}]);
    let part =
        json!({"metadata": {"uid": "part", "ownerReferences": owners}, "spec": {"suspend": !part_runs}});
    History::new().put("/registry/jobset.x-k8s.io/jobsets/ns/j", set).put("/registry/jobs/ns/j-part", part)
}

#[test]
fn a_job_of_a_jobset_may_not_begin_once_the_controller_has_seen_the_stop() {
    let broken = |history: History| {
        let violations = history.checked().violations().to_vec();
        violations.iter().filter(|violation| violation.key == "/registry/jobs/ns/j-part").count()
    };
    assert_eq!(broken(set_and_part(true, true, true)), 1);
    assert_eq!(broken(set_and_part(true, true, false)), 0);
    assert_eq!(broken(set_and_part(true, false, true)), 0);
    let admitted = set_and_part(true, true, false).workload(WORKLOAD, ADMITTED, 2);
    let runs = json!({"metadata": {"uid": "part", "ownerReferences": [{"uid": "j", "controller": true}]},
        "spec": {"suspend": false}});
    assert_eq!(broken(admitted.put("/registry/jobs/ns/j-part", runs)), 0);
    // What it said before the start says nothing of the stop.
    let set = |suspended, said| set_and_part(suspended, said, false).0.remove(2);
    let stopped = |while_it_ran| {
        let mut history = set_and_part(true, true, false).workload(WORKLOAD, ADMITTED, 2);
        history.0.extend([while_it_ran, set(true, true)]);
        history = history.workload(WORKLOAD, &["Evicted"], 2);
        history.0.extend(set_and_part(true, true, true).0.pop());
        broken(history)
    };
    assert_eq!(stopped(set(false, true)), 0, "it has not heard of the start");
    assert_eq!(stopped(set(false, false)), 1);
}

#[test]
fn a_job_that_fails_although_no_pod_of_it_was_made_to_is_lost() {
    let failed = |fails: bool| {
        let mut history = History::new().job(true, &[]).job(true, &["Failed"]);
        if fails {
            let object = history.0.last_mut().and_then(|change| change.object.as_mut()).unwrap();
            object["spec"]["template"]["metadata"]["annotations"][FAILS] = json!("1");
        }
        history
    };
    assert_broken(failed(false), Rule::Lost, "no pod of it was made to fail");
    assert_eq!(failed(true).broken(), []);
}

#[test]
fn what_waits_while_nothing_runs_is_distinguished() {
    assert!(!History::new().job(true, &[]).checked().something_runs());
    assert!(History::new().job(false, &[]).checked().something_runs());
}
