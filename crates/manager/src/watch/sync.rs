//! Which kinds have been listed: decisions start when all of them have.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sluice_engine::input::Kind;

use crate::shutdown::Stop;
use crate::supervise::Supervisor;

/// How far one kind is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum KindState {
    Waiting,
    Failing(String),
    Listed,
    /// The kind does not exist in this cluster, and may.
    Absent,
}

/// The state of all watched kinds in the current epoch: all lists since the engine was built.
#[derive(Debug)]
pub struct SyncTracker(Mutex<(u64, BTreeMap<Kind, KindState>)>);

impl SyncTracker {
    /// All `kinds` are still to be listed; the epoch is 0.
    pub fn new(kinds: impl IntoIterator<Item = Kind>) -> Self {
        Self(Mutex::new((0, kinds.into_iter().map(|kind| (kind, KindState::Waiting)).collect())))
    }

    fn locked(&self) -> MutexGuard<'_, (u64, BTreeMap<Kind, KindState>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self, kind: Kind, epoch: u64, state: KindState) -> bool {
        let (current, kinds) = &mut *self.locked();
        let complete = |kinds: &BTreeMap<Kind, KindState>| {
            kinds.values().all(|s| matches!(s, KindState::Listed | KindState::Absent))
        };
        // A list that began before the engine was rebuilt says nothing about the new one.
        if epoch != *current {
            return false;
        }
        let before = complete(kinds);
        kinds.insert(kind, state);
        !before && complete(kinds)
    }

    /// The kind was listed in `epoch`; true if it was the last one.
    pub fn listed(&self, kind: Kind, epoch: u64) -> bool {
        self.settle(kind, epoch, KindState::Listed)
    }

    /// The kind does not exist; true if it was the last one that was waited for.
    pub fn absent(&self, kind: Kind) -> bool {
        let epoch = self.locked().0;
        self.settle(kind, epoch, KindState::Absent)
    }

    /// The engine was built anew: everything that exists must be listed again.
    pub fn restart(&self, epoch: u64) {
        let (current, kinds) = &mut *self.locked();
        *current = epoch;
        for state in kinds.values_mut().filter(|state| **state != KindState::Absent) {
            *state = KindState::Waiting;
        }
    }

    /// The first list of the kind fails. One that was listed stays so: its watch catches up by itself.
    pub fn failing(&self, kind: Kind, why: &str) {
        let (_, kinds) = &mut *self.locked();
        if let Some(state) = kinds.get_mut(&kind)
            && *state != KindState::Listed
        {
            *state = KindState::Failing(why.to_owned());
        }
    }

    /// What is not listed yet, with the reason if there is one; empty when all is.
    pub fn missing(&self) -> Vec<String> {
        let (_, kinds) = &*self.locked();
        kinds
            .iter()
            .filter_map(|(kind, state)| match state {
                KindState::Waiting => Some(kind.plural().to_owned()),
                KindState::Failing(why) => Some(format!("{} ({why})", kind.plural())),
                KindState::Listed | KindState::Absent => None,
            })
            .collect()
    }
}

/// `controller.cacheSyncTimeout`: a manager that has not seen everything by then ends, to be started again by its supervisor.
pub async fn end_unless_synced(
    sync: Arc<SyncTracker>,
    limit: Duration,
    supervisor: Supervisor,
    mut stop: Stop,
) {
    if !stop.sleep(limit).await {
        return;
    }
    let missing = sync.missing();
    if !missing.is_empty() {
        let why = format!(
            "controller.cacheSyncTimeout of {limit:?} is over, and not listed yet: {}",
            missing.join(", ")
        );
        supervisor.fatal(why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_kind_listed_completes_the_set_once() {
        let tracker = SyncTracker::new([Kind::Node, Kind::Workload]);
        assert!(!tracker.listed(Kind::Node, 0));
        tracker.failing(Kind::Workload, "refused");
        assert_eq!(tracker.missing(), ["workloads (refused)"]);
        assert!(tracker.listed(Kind::Workload, 0));
        assert!(!tracker.listed(Kind::Workload, 0));
        assert!(tracker.missing().is_empty());
    }

    #[test]
    fn a_kind_that_does_not_exist_is_not_waited_for() {
        let tracker = SyncTracker::new([Kind::Node, Kind::Workload]);
        assert!(!tracker.listed(Kind::Node, 0));
        assert!(tracker.absent(Kind::Workload));
        tracker.restart(1);
        assert_eq!(tracker.missing(), ["nodes"]);
        assert!(tracker.listed(Kind::Node, 1));
        assert!(!tracker.listed(Kind::Workload, 1));
        tracker.restart(2);
        assert_eq!(tracker.missing(), ["workloads", "nodes"]);
    }

    #[test]
    fn lists_of_an_earlier_epoch_do_not_count() {
        let tracker = SyncTracker::new([Kind::Node]);
        assert!(tracker.listed(Kind::Node, 0));
        tracker.failing(Kind::Node, "refused");
        assert!(tracker.missing().is_empty());
        tracker.restart(1);
        assert!(!tracker.listed(Kind::Node, 0));
        assert_eq!(tracker.missing(), ["nodes"]);
        assert!(tracker.listed(Kind::Node, 1));
    }
}
