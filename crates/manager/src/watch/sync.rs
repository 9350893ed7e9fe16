//! Which kinds have been listed: decisions start when all of them have.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sluice_engine::input::Kind;

use crate::shutdown::Stop;
use crate::supervise::Supervisor;

/// The progress of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
enum KindState {
    Waiting,
    Failing(String),
    Listed,
    /// The kind does not exist in this cluster, and may.
    Absent,
}

/// After this silence a watch is dead: the API server ends each one before, and it begins again.
const SILENT: Duration = Duration::from_secs(330);
/// A sign of life within this time of the one before says nothing new.
const OFTEN: Duration = Duration::from_secs(1);
/// How long a failed watch may take to be back.
const GRACE: Duration = Duration::from_secs(5);

/// A time: how long ago it is, however the machine's clock is set, and what that clock showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Of the clock that cannot be set.
    pub at: Instant,
    /// What is shown of it.
    pub shown: Timestamp,
}

impl Moment {
    /// This one.
    pub fn now() -> Self {
        Self { at: Instant::now(), shown: Timestamp::now() }
    }
}

/// What was heard of a watch.
#[derive(Clone, Copy, Debug)]
struct Sign {
    last: Moment,
    /// When it failed first since then.
    lost: Option<Instant>,
}

/// The state of all watched kinds in the current epoch: all lists since the engine was built; when each watch was last heard from; and in which epoch
/// the engine learned of kinds that do not exist.
#[derive(Debug)]
pub struct SyncTracker(
    Mutex<(u64, BTreeMap<Kind, KindState>)>,
    Mutex<BTreeMap<Kind, Sign>>,
    Mutex<BTreeMap<Kind, u64>>,
);

impl SyncTracker {
    /// All `kinds` are still to be listed; the epoch is 0.
    pub fn new(kinds: impl IntoIterator<Item = Kind>) -> Self {
        let kinds = kinds.into_iter().map(|kind| (kind, KindState::Waiting)).collect();
        Self(Mutex::new((0, kinds)), Mutex::default(), Mutex::default())
    }

    fn locked(&self) -> MutexGuard<'_, (u64, BTreeMap<Kind, KindState>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self, kind: Kind, epoch: u64, state: KindState) -> bool {
        let (current, kinds) = &mut *self.locked();
        let complete = |kinds: &BTreeMap<Kind, KindState>| {
            kinds.values().all(|s| matches!(s, KindState::Listed | KindState::Absent))
        };
        // A list that began before the engine was rebuilt does not count for the new one.
        if epoch != *current {
            return false;
        }
        let before = complete(kinds);
        kinds.insert(kind, state);
        !before && complete(kinds)
    }

    /// The kind was listed in `epoch`; returns true if it was the last one.
    pub fn listed(&self, kind: Kind, epoch: u64) -> bool {
        self.settle(kind, epoch, KindState::Listed)
    }

    /// The kind does not exist; returns true if it was the last one that was waited for.
    pub fn absent(&self, kind: Kind) -> bool {
        let epoch = self.locked().0;
        self.settle(kind, epoch, KindState::Absent)
    }

    /// Whether the engine of this epoch still has to learn that a kind that does not exist has no objects. Returns true once.
    pub fn reports_absent(&self, kind: Kind) -> bool {
        let epoch = self.locked().0;
        let mut reported = self.2.lock().unwrap_or_else(PoisonError::into_inner);
        reported.insert(kind, epoch) != Some(epoch)
    }

    /// The kind exists: if it is gone later, the engine has to learn that again.
    pub fn exists(&self, kind: Kind) {
        self.2.lock().unwrap_or_else(PoisonError::into_inner).remove(&kind);
    }

    /// The engine was rebuilt: everything that exists must be listed again.
    pub fn restart(&self, epoch: u64) {
        let (current, kinds) = &mut *self.locked();
        *current = epoch;
        for state in kinds.values_mut().filter(|state| **state != KindState::Absent) {
            *state = KindState::Waiting;
        }
    }

    /// The first list of the kind fails. A kind that was listed before stays listed: its watch catches up by itself.
    pub fn failing(&self, kind: Kind, why: &str) {
        let (_, kinds) = &mut *self.locked();
        if let Some(state) = kinds.get_mut(&kind)
            && *state != KindState::Listed
        {
            *state = KindState::Failing(why.to_owned());
        }
    }

    /// The API server does not say whether the kind exists. A kind that was listed, or did not exist, stays so.
    pub fn unknown(&self, kind: Kind) {
        let (_, kinds) = &mut *self.locked();
        if let Some(state @ (KindState::Waiting | KindState::Failing(_))) = kinds.get_mut(&kind) {
            *state = KindState::Failing("the API server does not say whether it has them".to_owned());
        }
    }

    fn signs(&self) -> MutexGuard<'_, BTreeMap<Kind, Sign>> {
        self.1.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The watch of a kind gave a sign of life. Each line is one: they are noted once a second.
    pub fn heard(&self, kind: Kind) {
        self.heard_at(kind, Instant::now(), Timestamp::now);
    }

    fn heard_at(&self, kind: Kind, at: Instant, shown: impl FnOnce() -> Timestamp) {
        let mut signs = self.signs();
        let is_new = |sign: &Sign| sign.lost.is_some() || at.saturating_duration_since(sign.last.at) >= OFTEN;
        if signs.get(&kind).is_none_or(is_new) {
            signs.insert(kind, Sign { last: Moment { at, shown: shown() }, lost: None });
        }
    }

    /// The watch of a kind failed.
    pub fn lost(&self, kind: Kind) {
        self.lost_at(kind, Instant::now());
    }

    fn lost_at(&self, kind: Kind, now: Instant) {
        if let Some(sign) = self.signs().get_mut(&kind) {
            sign.lost.get_or_insert(now);
        }
    }

    /// A kind is watched no longer.
    pub fn forget(&self, kind: Kind) {
        self.signs().remove(&kind);
    }

    /// Of what time all of these kinds are known, if a watch of them is cut off.
    pub fn cut_off(&self, kinds: &[Kind], now: Instant) -> Option<Moment> {
        let signs = self.signs();
        let is_late = |sign: &&Sign| {
            let is_longer = |since: Instant, limit| now.saturating_duration_since(since) > limit;
            // A kind of which little happens was heard of long before it fails.
            sign.lost.is_some_and(|lost| is_longer(lost, GRACE)) || is_longer(sign.last.at, SILENT)
        };
        kinds.iter().filter_map(|kind| signs.get(kind)).filter(is_late).map(|sign| sign.last).min()
    }

    /// The kinds that are not listed yet, with the reason if there is one; empty when all are.
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

    fn heard(tracker: &SyncTracker, kind: Kind, last: Moment) {
        tracker.heard_at(kind, last.at, || last.shown);
    }

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
    fn a_watch_is_cut_off_when_it_fails_for_a_while_or_is_silent() {
        let (tracker, kinds, now) = (SyncTracker::new([]), [Kind::Node, Kind::Workload], Moment::now());
        let later = |seconds: u64| now.at + Duration::from_secs(seconds);
        assert_eq!(tracker.cut_off(&kinds, later(1000)), None, "nothing is there yet");
        heard(&tracker, Kind::Node, now);
        heard(&tracker, Kind::Pod, now);
        assert_eq!(tracker.cut_off(&kinds, later(300)), None);
        assert_eq!(tracker.cut_off(&kinds, later(400)), Some(now));
        tracker.lost_at(Kind::Node, now.at);
        assert_eq!(tracker.cut_off(&kinds, now.at), None, "most watches are back at once");
        assert_eq!(tracker.cut_off(&kinds, later(10)), Some(now));
        assert_eq!(tracker.cut_off(&[Kind::Workload], later(1000)), None);
        heard(&tracker, Kind::Node, now);
        assert_eq!(tracker.cut_off(&kinds, later(10)), None);
        tracker.forget(Kind::Node);
        assert_eq!(tracker.cut_off(&kinds, later(1000)), None);
    }

    #[test]
    fn signs_of_life_are_noted_once_a_second_and_at_once_after_a_failure() {
        let (tracker, kinds, first) = (SyncTracker::new([]), [Kind::Node], Moment::now());
        let after = |time: Duration| Moment { at: first.at + time, ..first };
        let noted = || tracker.signs()[&Kind::Node].last;
        heard(&tracker, Kind::Node, first);
        let soon = OFTEN / 2;
        let cost = allocation_counter::measure(|| {
            tracker.heard_at(Kind::Node, after(soon).at, || unreachable!("the clock is not read"));
        });
        assert_eq!((cost.count_total, noted()), (0, first));
        heard(&tracker, Kind::Node, after(OFTEN));
        assert_eq!(noted(), after(OFTEN));
        tracker.lost_at(Kind::Node, after(OFTEN).at);
        heard(&tracker, Kind::Node, after(OFTEN + soon));
        assert_eq!(noted(), after(OFTEN + soon));
        assert_eq!(tracker.cut_off(&kinds, after(OFTEN + GRACE * 2).at), None, "it is back");
    }

    #[test]
    fn a_quiet_watch_that_fails_has_its_grace_from_the_failure() {
        let (tracker, kinds, last) = (SyncTracker::new([]), [Kind::Node], Moment::now());
        let failed = last.at + Duration::from_mins(5);
        heard(&tracker, Kind::Node, last);
        tracker.lost_at(Kind::Node, failed);
        assert_eq!(tracker.cut_off(&kinds, failed), None);
        // Each attempt fails: that is one failure, which began with the first.
        let later = failed + Duration::from_secs(10);
        tracker.lost_at(Kind::Node, later);
        assert_eq!(tracker.cut_off(&kinds, later), Some(last));
    }

    #[test]
    fn a_clock_that_is_set_cuts_nothing_off() {
        let (tracker, kinds, now) = (SyncTracker::new([]), [Kind::Node], Moment::now());
        for (second, hour) in [(0, -1), (1, 1)] {
            let shown = now.shown.saturating_add(jiff::SignedDuration::from_hours(hour)).unwrap();
            heard(&tracker, Kind::Node, Moment { shown, at: now.at + OFTEN * second });
            assert_eq!(tracker.cut_off(&kinds, now.at + Duration::from_mins(1)), None);
        }
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
    fn a_kind_of_which_it_is_not_known_whether_it_exists_is_named_while_it_is_waited_for() {
        let tracker = SyncTracker::new([Kind::Node, Kind::Pod, Kind::Workload]);
        tracker.absent(Kind::Pod);
        tracker.listed(Kind::Node, 0);
        for kind in [Kind::Node, Kind::Pod, Kind::Workload] {
            tracker.unknown(kind);
        }
        assert_eq!(tracker.missing(), ["workloads (the API server does not say whether it has them)"]);
        assert!(tracker.absent(Kind::Workload));
        assert!(tracker.missing().is_empty());
    }

    #[test]
    fn each_engine_learns_once_of_a_kind_that_does_not_exist() {
        let tracker = SyncTracker::new([Kind::Node]);
        let reported = || [Kind::Node, Kind::Node, Kind::Workload].map(|kind| tracker.reports_absent(kind));
        assert_eq!(reported(), [true, false, true]);
        tracker.restart(1);
        assert_eq!(reported(), [true, false, true]);
        tracker.exists(Kind::Node);
        assert_eq!(reported(), [true, false, false], "it was there meanwhile");
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
