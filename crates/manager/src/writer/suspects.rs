//! Where writes hang repeatedly: namespaces of kinds whose webhook is dead. A write that hung is remembered until it is answered soon, so that very
//! many of them together take a few slots, however often they are sent.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_engine::Backoff;
use sluice_engine::input::{Kind, ObjectRef};

use super::lanes::Key;
use super::sending::{Outcome, Request};

/// The highest number of entries. The one that was updated least recently is dropped first.
const MOST: usize = 4096;
/// For how long after a failure requests are given up soon: doubled with each further failure.
const CAUTION: Backoff = Backoff::seconds(15, 300);

/// The objects of a kind in a namespace: the objects that a tenant's webhook reviews. Operations on a namespace itself, such as on pods that jobs left
/// behind, are that tenant's, too.
pub type Group = (Kind, Arc<str>);

impl Key for ObjectRef {
    type Group = Group;

    fn group(&self) -> Group {
        let of = if self.kind == Kind::Namespace { &self.name } else { &self.namespace };
        (self.kind, Arc::clone(of))
    }
}

/// A map that forgets what was not touched for longest.
#[derive(Debug)]
struct Recent<V>(BTreeMap<Group, (Instant, V)>);

impl<V> Default for Recent<V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<V> Recent<V> {
    fn get(&self, group: &Group) -> Option<&V> {
        self.0.get(group).map(|(_, value)| value)
    }

    /// The value of a group, made first if there is none.
    fn touch(&mut self, group: &Group, now: Instant, first: impl FnOnce() -> V) -> &mut V {
        if self.0.len() >= MOST && !self.0.contains_key(group) {
            let oldest = self.0.iter().min_by_key(|(_, (at, _))| *at).map(|(group, _)| group.clone());
            oldest.and_then(|oldest| self.0.remove(&oldest));
        }
        let (at, value) = self.0.entry(group.clone()).or_insert_with(|| (now, first()));
        *at = now;
        value
    }

    /// The number of groups of a kind, up to `most`.
    fn of_kind(&self, kind: Kind, most: usize) -> usize {
        let from = (kind, Arc::from(""));
        self.0.range(from..).take_while(|((other, _), _)| *other == kind).take(most).count()
    }
}

/// What is known of a group whose writes hang.
#[derive(Debug)]
struct Suspect {
    /// How many requests in a row failed, not counting those that were given up soon meanwhile.
    failures: u32,
    /// Until then its requests are given up soon.
    until: Instant,
    /// Whether writes hang, and not only reads.
    writes: bool,
}

/// How long a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// The usual time.
    Usual,
    /// The same, although earlier ones failed.
    Again,
    /// It is given up soon.
    Little,
}

/// The groups whose writes hang, and those whose writes do not.
#[derive(Debug, Default)]
pub struct Suspects {
    hanging: Recent<Suspect>,
    /// When the last request was sent that was answered soon.
    answered: Recent<Instant>,
}

impl Suspects {
    /// Whether writes of a group hang. If those of a kind of jobs hang in several namespaces, and are answered soon in none, that kind's own webhook
    /// is dead.
    pub fn contains(&self, group: &Group) -> bool {
        let (kind, _) = *group;
        let is_dead = || {
            matches!(kind, Kind::Job(_))
                && self.hanging.of_kind(kind, 2) == 2
                && self.answered.of_kind(kind, 1) == 0
        };
        self.hanging.get(group).is_some() || is_dead()
    }

    /// How long a request of a group may take if it is sent now.
    pub fn patience(&self, group: &Group, now: Instant) -> Patience {
        match self.hanging.get(group).filter(|suspect| suspect.failures > 0) {
            None => Patience::Usual,
            Some(suspect) if now < suspect.until => Patience::Little,
            Some(_) => Patience::Again,
        }
    }

    /// When the last request of a group was sent that was answered soon; `None` if one has hung since.
    pub fn answered(&self, group: &Group) -> Option<Instant> {
        self.answered.get(group).copied()
    }

    /// A request of the group has been in progress for long, and a later one was answered soon. `reads`: whether it only reads.
    pub fn notice(&mut self, group: &Group, reads: bool, now: Instant) {
        self.suspect(group, reads, now);
    }

    fn suspect(&mut self, group: &Group, reads: bool, now: Instant) -> &mut Suspect {
        self.answered.0.remove(group);
        let suspect = self.hanging.touch(group, now, || Suspect { failures: 0, until: now, writes: false });
        suspect.writes |= !reads;
        suspect
    }

    /// A request of the group that was given `patience` is over.
    pub fn learn(&mut self, group: &Group, request: Request, patience: Patience, now: Instant) {
        let reads = request.reads;
        match request.outcome {
            // The webhooks in which writes hang are not called for reads.
            Outcome::Soon if reads => {
                if self.hanging.get(group).is_some_and(|suspect| !suspect.writes) {
                    self.hanging.0.remove(group);
                }
            }
            Outcome::Soon => {
                self.hanging.0.remove(group);
                let sent = self.answered.touch(group, now, || request.sent);
                *sent = request.sent.max(*sent);
            }
            Outcome::Slow => {
                let suspect = self.suspect(group, reads, now);
                // It is slow and not dead: it gets the time that it needs.
                (suspect.failures, suspect.until) = (0, now);
            }
            Outcome::Hung => {
                let suspect = self.suspect(group, reads, now);
                // A request that was given up soon did not have its time.
                if now >= suspect.until && patience != Patience::Little {
                    let caution = u64::try_from(CAUTION.doubled(suspect.failures)).unwrap_or_default();
                    suspect.failures = suspect.failures.saturating_add(1);
                    suspect.until = now + Duration::from_millis(caution);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sluice_api::job::JobKind;

    use super::*;

    const JOB_SETS: Kind = Kind::Job(JobKind::JOB_SET);
    const SECOND: Duration = Duration::from_secs(1);

    fn group(kind: Kind, namespace: &str) -> Group {
        (kind, Arc::from(namespace))
    }

    fn request(sent: Instant, outcome: Outcome) -> Request {
        Request { sent, outcome, reads: false }
    }

    #[test]
    fn what_was_read_soon_says_nothing_of_webhooks() {
        let (mut suspects, a, now) = (Suspects::default(), group(Kind::Workload, "a"), Instant::now());
        let read = |outcome| Request { reads: true, ..request(now, outcome) };
        suspects.notice(&a, true, now);
        assert!(suspects.contains(&a));
        suspects.learn(&a, read(Outcome::Soon), Patience::Usual, now);
        assert_eq!((suspects.contains(&a), suspects.answered(&a)), (false, None), "but where reading hung");
        suspects.learn(&a, request(now, Outcome::Hung), Patience::Usual, now);
        suspects.learn(&a, read(Outcome::Soon), Patience::Little, now);
        assert!(suspects.contains(&a));
        assert_eq!(suspects.patience(&a, now), Patience::Little);
        suspects.learn(&a, request(now, Outcome::Soon), Patience::Little, now);
        assert!(!suspects.contains(&a));
    }

    #[test]
    fn requests_are_given_up_soon_for_longer_with_each_failure_until_one_is_answered() {
        let (mut suspects, a, mut now) = (Suspects::default(), group(Kind::Workload, "a"), Instant::now());
        for seconds in [15, 30, 60, 120, 240, 300, 300] {
            for patience in [Patience::Little, Patience::Again, Patience::Again, Patience::Little] {
                suspects.learn(&a, request(now, Outcome::Hung), patience, now + SECOND);
            }
            now += SECOND;
            let end = now + SECOND * seconds;
            assert_eq!(
                suspects.patience(&a, end.checked_sub(Duration::from_nanos(1)).unwrap()),
                Patience::Little
            );
            assert_eq!(suspects.patience(&a, end), Patience::Again);
            assert!(suspects.contains(&a) && suspects.answered(&a).is_none());
            now += SECOND * seconds;
        }
        suspects.learn(&a, request(now, Outcome::Soon), Patience::Again, now);
        assert_eq!((suspects.contains(&a), suspects.answered(&a)), (false, Some(now)));
        suspects.learn(&a, request(now, Outcome::Hung), Patience::Usual, now);
        assert_eq!(suspects.patience(&a, now + SECOND * 15), Patience::Again, "it begins again");
    }

    #[test]
    fn what_is_slow_and_answered_has_the_time_that_it_needs() {
        let (mut suspects, a, now) = (Suspects::default(), group(Kind::Workload, "a"), Instant::now());
        for (outcome, patience) in [(Outcome::Hung, Patience::Little), (Outcome::Slow, Patience::Usual)] {
            suspects.learn(&a, request(now, outcome), Patience::Usual, now);
            assert!(suspects.contains(&a));
            assert_eq!(suspects.patience(&a, now), patience);
        }
    }

    #[test]
    fn a_kind_of_jobs_is_dead_if_it_hangs_in_several_namespaces_and_is_answered_in_none() {
        for (kind, dead) in [(JOB_SETS, true), (Kind::Workload, false)] {
            let (mut suspects, now) = (Suspects::default(), Instant::now());
            let other = group(kind, "other");
            suspects.notice(&group(kind, "a"), false, now);
            assert!(!suspects.contains(&other));
            suspects.notice(&group(kind, "b"), false, now);
            assert_eq!(suspects.contains(&other), dead);
            assert!(!suspects.contains(&group(Kind::Job(JobKind::JOB), "other")));
            suspects.learn(&group(kind, "c"), request(now, Outcome::Soon), Patience::Usual, now);
            assert!(!suspects.contains(&other));
        }
    }

    #[test]
    fn the_number_known_is_limited_and_the_latest_stay() {
        let (mut suspects, now) = (Suspects::default(), Instant::now());
        for at in 0..MOST + 10 {
            suspects.notice(&group(Kind::Workload, "kept"), false, now + SECOND);
            suspects.notice(&group(Kind::Workload, &at.to_string()), false, now);
        }
        assert_eq!(suspects.hanging.0.len(), MOST);
        assert!(suspects.contains(&group(Kind::Workload, "kept")));
    }
}
