//! Managed jobs that were deleted a short while ago. The controller that makes jobs below them may lag behind and make more: these have no quota, and
//! no job above them shows that.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use sluice_core::Name;

/// How long a controller may lag behind.
const KEPT: SignedDuration = SignedDuration::from_mins(10);
/// The highest number of jobs that are kept: the last ones.
const MOST: usize = 10_000;

/// The UIDs of such jobs.
#[derive(Clone, Debug, Default)]
pub(crate) struct GoneJobs {
    since: BTreeMap<Name, Timestamp>,
    /// The oldest first.
    order: VecDeque<(Timestamp, Name)>,
}

impl GoneJobs {
    /// A job was deleted at `now`.
    pub fn note(&mut self, uid: &Name, now: Timestamp) {
        self.since.insert(uid.clone(), now);
        self.order.push_back((now, uid.clone()));
        let is_over = |since: Timestamp| since.checked_add(KEPT).is_ok_and(|until| until < now);
        while self.order.len() > MOST || self.order.front().is_some_and(|(since, _)| is_over(*since)) {
            let Some((since, uid)) = self.order.pop_front() else { break };
            if self.since.get(&uid) == Some(&since) {
                self.since.remove(&uid);
            }
        }
    }

    /// Since when it is.
    pub fn since(&self, uid: &str) -> Option<Timestamp> {
        self.since.get(uid).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_last_ones_are_known_for_ten_minutes() {
        let mut gone = GoneJobs::default();
        gone.note(&"a".into(), at(0));
        gone.note(&"b".into(), at(600));
        assert_eq!((gone.since("a"), gone.since("b")), (Some(at(0)), Some(at(600))));
        gone.note(&"c".into(), at(601));
        assert_eq!((gone.since("a"), gone.since("b")), (None, Some(at(600))));
        for number in 0..MOST {
            gone.note(&number.to_string().as_str().into(), at(602));
        }
        assert_eq!((gone.since("c"), gone.since("0")), (None, Some(at(602))));
        assert_eq!((gone.since.len(), gone.order.len()), (MOST, MOST));
    }
}
