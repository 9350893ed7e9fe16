//! Pods are many, and few ask for them: Hotswap once a ClusterQueue with `preemption.reclaimOutOfCohort.enable` was seen, and the gate
//! `FailureRecoveryPolicy`, which is off by default.

use std::sync::Arc;

use kube::{Api, Client};
use sluice_api::slim;
use sluice_engine::input::{Input, Kind, Object};
use tokio::sync::watch;

use super::document::Documented;
use super::pump::{Feed, Shared, Sink, pump};

/// Who asks for pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pods {
    /// Nobody.
    Unwatched,
    /// Those that are bound and have not ended, as soon as a ClusterQueue needs them.
    Running,
    /// All that are bound, from the start.
    Bound,
}

/// What is known of whether pods are needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// A queue needs them.
    needed: bool,
    /// All queues were seen.
    listed: bool,
}

/// Bound pods that have not ended.
const RUNNING: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";
/// Bound pods.
const BOUND: &str = "spec.nodeName!=";

fn asks(input: &Input) -> bool {
    let Input::Applied(Object::ClusterQueue(queue)) = input else { return false };
    queue.spec.preemption.reclaim_out_of_cohort.as_ref().is_some_and(|reclaim| reclaim.enable)
}

/// A sink that notes on the way whether pods are needed.
pub fn noting(sink: Sink) -> (Sink, watch::Receiver<Need>) {
    let (sender, receiver) = watch::channel(Need::default());
    let noting = move |feed: Feed| {
        let (needed, listed) = match &feed {
            Feed::Input(input, _) if asks(input) => (true, false),
            Feed::Input(Input::Listed { kind: Kind::ClusterQueue, .. }, _) => (false, true),
            _ => (false, false),
        };
        // The queues come first: the pods are waited for only where somebody needs them.
        sink(feed);
        if needed || listed {
            sender.send_if_modified(|need| {
                let before = *need;
                need.needed |= needed;
                need.listed |= listed;
                *need != before
            });
        }
    };
    (Arc::new(noting), receiver)
}

/// Watches pods from the moment when they are needed.
pub async fn watch(client: Client, asked: Pods, mut need: watch::Receiver<Need>, mut shared: Shared) {
    shared.fields = Some(if asked == Pods::Bound { BOUND } else { RUNNING });
    loop {
        let now = *need.borrow_and_update();
        if now.needed || asked == Pods::Bound {
            pump(Api::<Documented<slim::Pod>>::all(client), Kind::Pod, false, shared).await;
            return;
        }
        if now.listed {
            let epoch = *shared.epoch.borrow();
            if shared.sync.absent(Kind::Pod) {
                (shared.sink)(Feed::Synced(epoch));
            }
        }
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

    use sluice_api::v1beta2::ClusterQueue;

    fn queue(enable: bool) -> Feed {
        let spec = serde_json::json!({"preemption": {"reclaimOutOfCohort": {"enable": enable}}});
        let value = serde_json::json!({"metadata": {"name": "q"}, "spec": spec});
        let queue: ClusterQueue = serde_json::from_value(value).unwrap();
        Feed::Input(Input::Applied(Object::ClusterQueue(Box::new(queue))), None)
    }

    #[test]
    fn a_queue_that_reclaims_out_of_its_cohort_asks_for_pods_and_everything_is_passed_on() {
        let passed = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&passed);
        let (sink, need) = noting(Arc::new(move |_| *counted.lock().unwrap() += 1));
        sink(queue(false));
        assert_eq!(*need.borrow(), Need::default());
        sink(Feed::Input(Input::Listed { kind: Kind::ClusterQueue, present: Vec::new(), as_of: None }, None));
        assert_eq!(*need.borrow(), Need { needed: false, listed: true });
        sink(queue(true));
        assert!(need.borrow().needed);
        sink(queue(false));
        assert!(need.borrow().needed, "once needed, they stay");
        assert_eq!(*passed.lock().unwrap(), 4);
    }
}
