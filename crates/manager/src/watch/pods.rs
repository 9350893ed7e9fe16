//! Pods are many, and watched only once they are needed: for a flavor with a topology, whose nodes they use; for a ClusterQueue with
//! `preemption.reclaimOutOfCohort.enable`; or, after a node was lost, for a Job with only terminating pods, or with more pods than it asks for
//! because some terminate: these may be on the lost node, and hold its quota for good. The gate `FailureRecoveryPolicy`, off by default, needs them
//! from the start. The pods of jobs are watched once there is an elastic job, or a flavor with a topology.

use std::sync::Arc;

use kube::Client;
use sluice_api::{labels, slim};
use sluice_engine::input::{Input, Kind, Object};
use tokio::sync::watch;

use super::pump::{Feed, Shared, Sink, pump};
use crate::intake::Slot;

/// The features that may need pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pods {
    /// Jobs that wait for some to end.
    ForJobs,
    /// They, and ClusterQueues that reclaim out of their cohort.
    ForQueues,
    /// The part that removes stuck pods: all bound ones are watched from the start.
    All,
}

/// What was seen that needs pods.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not one state")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// A queue that reclaims out of its cohort.
    reclaims: bool,
    /// A Job that waits for pods to end.
    waits: bool,
    /// A node that is not ready, or was deleted.
    lost: bool,
    /// A job that changes its size while it runs.
    elastic: bool,
    /// A flavor whose pods get places in a topology.
    topology: bool,
    /// All queues, and all flavors.
    queues: bool,
    flavors: bool,
}

/// Which needs count, as gates and configuration have it.
#[derive(Clone, Copy, Debug)]
pub struct Noted {
    /// Needed by ClusterQueues.
    pub queues: bool,
    /// Needed by elastic jobs.
    pub elastic: bool,
    /// Needed by flavors with a topology.
    pub topology: bool,
}

impl Need {
    /// Whether the pods of jobs are needed.
    fn needs_pods_of_jobs(self) -> bool {
        self.elastic || self.topology
    }

    fn is_needed(self) -> bool {
        self.reclaims || self.topology || (self.waits && self.lost)
    }

    /// Whether the kinds that may need pods were listed.
    fn is_listed(self) -> bool {
        self.queues && self.flavors
    }

    /// The effect of an input.
    fn of(input: &Input, noted: Noted) -> Self {
        let mut seen = Self::default();
        match input {
            Input::Applied(Object::ClusterQueue(queue)) => {
                let reclaim = queue.spec.preemption.reclaim_out_of_cohort.as_ref();
                seen.reclaims = noted.queues && reclaim.is_some_and(|reclaim| reclaim.enable);
            }
            Input::Applied(Object::Job(job)) => {
                let beside_others =
                    || i64::from(job.active_pods) + i64::from(job.terminating) > job.total_count();
                seen.waits = job.terminating > 0 && (!job.active || beside_others());
                seen.elastic = noted.elastic
                    && sluice_jobs::supports_slices(job.job.kind)
                    && job.annotations.get(labels::ELASTIC_JOB).is_some_and(|value| value == "true");
            }
            Input::Applied(Object::ResourceFlavor(flavor)) => {
                seen.topology = noted.topology && flavor.spec.topology_name.is_some();
            }
            Input::Applied(Object::Node(node)) => seen.lost = node.ready == Some(false),
            Input::Deleted { object, .. } => seen.lost = object.kind == Kind::Node,
            Input::Listed { kind, .. } => {
                seen.queues = *kind == Kind::ClusterQueue;
                seen.flavors = *kind == Kind::ResourceFlavor;
            }
            _ => {}
        }
        seen
    }

    fn and(self, more: Self) -> Self {
        Self {
            reclaims: self.reclaims || more.reclaims,
            waits: self.waits || more.waits,
            lost: self.lost || more.lost,
            elastic: self.elastic || more.elastic,
            topology: self.topology || more.topology,
            queues: self.queues || more.queues,
            flavors: self.flavors || more.flavors,
        }
    }
}

/// Whether the versions of an object may differ in whether pods are needed.
pub fn may_need(object: &Object) -> bool {
    match object {
        Object::Job(job) => job.terminating > 0 || job.annotations.contains_key(labels::ELASTIC_JOB),
        Object::Workload(_) => false,
        _ => true,
    }
}

/// Bound pods that have not ended.
const RUNNING: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";
/// Bound pods.
const BOUND: &str = "spec.nodeName!=";
/// Selects the pods of elastic jobs and those with a topology assignment: all have the name of their pod set.
const OF_POD_SETS: &str = "kueue.x-k8s.io/podset";

/// A sink that notes on the way whether pods are needed.
pub fn noting(sink: Sink, noted: Noted) -> (Sink, watch::Receiver<Need>) {
    let (sender, receiver) = watch::channel(Need::default());
    let noting = move |feed: Feed, place: Slot| {
        let seen = match &feed {
            Feed::Input(input, _) => Need::of(input, noted),
            Feed::Poison(..) | Feed::Synced(_) => Need::default(),
        };
        // The queues come first: the pods are waited for only if they are needed.
        sink(feed, place);
        sender.send_if_modified(|need| {
            let before = std::mem::replace(need, need.and(seen));
            *need != before
        });
    };
    (Arc::new(noting), receiver)
}

/// Watches pods from the moment when they are needed.
pub async fn watch(client: Client, asked: Pods, mut need: watch::Receiver<Need>, mut shared: Shared) {
    shared.selector.fields = Some(if asked == Pods::All { BOUND } else { RUNNING });
    loop {
        let now = *need.borrow_and_update();
        if now.is_needed() || asked == Pods::All {
            pump::<slim::Pod>(client, Kind::Pod, false, shared).await;
            return;
        }
        say_absent(Kind::Pod, now, &shared);
        tokio::select! {
            changed = need.changed() => if changed.is_err() { return },
            () = shared.stop.stopped() => return,
        }
    }
}

/// Says that pods are not waited for, once it is known that nothing needs them.
fn say_absent(kind: Kind, now: Need, shared: &Shared) {
    if now.is_listed() {
        let epoch = *shared.epoch.borrow();
        if shared.sync.absent(kind) {
            (shared.sink)(Feed::Synced(epoch), Slot::default());
        }
    }
}

/// Watches the pods of jobs once there is an elastic one, or a flavor with a topology.
pub async fn watch_of_jobs(client: Client, mut need: watch::Receiver<Need>, mut shared: Shared) {
    shared.selector.labels = Some(OF_POD_SETS);
    loop {
        let now = *need.borrow_and_update();
        if now.needs_pods_of_jobs() {
            pump::<slim::JobPod>(client, Kind::JobPod, false, shared).await;
            return;
        }
        say_absent(Kind::JobPod, now, &shared);
        tokio::select! {
            changed = need.changed() => if changed.is_err() { return },
            () = shared.stop.stopped() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    use serde_json::json;
    use sluice_api::job::JobKind;
    use sluice_api::v1beta2::ClusterQueue;
    use sluice_engine::input::ObjectRef;

    const ALL: Noted = Noted { queues: true, elastic: true, topology: true };

    #[test]
    fn an_elastic_job_asks_for_the_pods_of_jobs() {
        let seen = |annotation: &str, noted| {
            let metadata = json!({"name": "j", "annotations": {"kueue.x-k8s.io/elastic-job": annotation}});
            let view = sluice_jobs::observe(JobKind::JOB, &json!({"metadata": metadata}));
            let (sink, need) = noting(Arc::new(|_, _| {}), noted);
            sink(Feed::Input(Input::Applied(Object::Job(Box::new(view))), None), Slot::default());
            need.borrow().needs_pods_of_jobs()
        };
        assert!(seen("true", ALL) && !seen("false", ALL) && !seen("true", Noted { elastic: false, ..ALL }));
    }

    #[test]
    fn a_flavor_with_a_topology_asks_for_the_pods_of_jobs() {
        let seen = |spec: serde_json::Value, noted| {
            let flavor = json!({"metadata": {"name": "f"}, "spec": spec});
            let flavor = Object::ResourceFlavor(Box::new(serde_json::from_value(flavor).unwrap()));
            let (sink, need) = noting(Arc::new(|_, _| {}), noted);
            sink(Feed::Input(Input::Applied(flavor), None), Slot::default());
            need.borrow().needs_pods_of_jobs()
        };
        let placed = json!({"topologyName": "t", "nodeLabels": {"a": "b"}});
        assert!(seen(placed.clone(), ALL) && !seen(json!({}), ALL));
        assert!(!seen(placed, Noted { topology: false, ..ALL }));
    }

    fn queue(enable: bool) -> Feed {
        let spec = json!({"preemption": {"reclaimOutOfCohort": {"enable": enable}}});
        let value = json!({"metadata": {"name": "q"}, "spec": spec});
        let queue: ClusterQueue = serde_json::from_value(value).unwrap();
        Feed::Input(Input::Applied(Object::ClusterQueue(Box::new(queue))), None)
    }

    fn job(active: i64, terminating: i64) -> Feed {
        let job =
            json!({"metadata": {"name": "j"}, "status": {"active": active, "terminating": terminating}});
        let view = sluice_jobs::observe(JobKind::JOB, &job);
        Feed::Input(Input::Applied(Object::Job(Box::new(view))), None)
    }

    fn node(ready: &str) -> Feed {
        let conditions = json!([{"type": "Ready", "status": ready}]);
        let node = json!({"metadata": {"name": "n"}, "status": {"conditions": conditions}});
        Feed::Input(Input::Applied(Object::Node(Box::new(serde_json::from_value(node).unwrap()))), None)
    }

    fn gone(kind: Kind) -> Feed {
        Feed::Input(Input::Deleted { object: ObjectRef::cluster(kind, "n"), uid: None }, None)
    }

    /// Whether pods are needed after each of these.
    fn needed(feeds: impl IntoIterator<Item = Feed>) -> Vec<bool> {
        let (sink, need) = noting(Arc::new(|_, _| {}), ALL);
        let reported = feeds.into_iter().map(|feed| {
            sink(feed, Slot::default());
            need.borrow().is_needed()
        });
        reported.collect()
    }

    #[test]
    fn a_queue_that_reclaims_out_of_its_cohort_asks_for_pods_and_everything_is_passed_on() {
        let passed = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&passed);
        let (sink, need) = noting(Arc::new(move |_, _| *counted.lock().unwrap() += 1), ALL);
        sink(queue(false), Slot::default());
        assert_eq!(*need.borrow(), Need::default());
        for kind in [Kind::ClusterQueue, Kind::ResourceFlavor] {
            assert!(!need.borrow().is_listed());
            let listed = Input::Listed { kind, present: Vec::new(), as_of: None };
            sink(Feed::Input(listed, None), Slot::default());
        }
        assert!(need.borrow().is_listed() && !need.borrow().is_needed());
        sink(queue(true), Slot::default());
        assert!(need.borrow().is_needed());
        sink(queue(false), Slot::default());
        assert!(need.borrow().is_needed(), "once needed, they stay");
        assert_eq!(*passed.lock().unwrap(), 5);
    }

    #[test]
    fn without_hotswap_queues_do_not_ask_for_pods() {
        let (sink, need) = noting(Arc::new(|_, _| {}), Noted { queues: false, ..ALL });
        sink(queue(true), Slot::default());
        assert!(!need.borrow().is_needed());
    }

    #[test]
    fn a_job_that_waits_for_pods_asks_for_them_once_a_node_was_lost() {
        assert_eq!(needed([job(0, 2), node("True"), node("Unknown")]), [false, false, true]);
        assert_eq!(needed([node("False"), job(2, 0), job(0, 0), job(0, 1)]), [false, false, false, true]);
        // A terminating pod that continues beside its replacement.
        assert_eq!(needed([node("False"), job(1, 0), job(1, 1)]), [false, false, true]);
        assert_eq!(needed([gone(Kind::Workload), job(0, 2), gone(Kind::Node)]), [false, false, true]);
    }
}
