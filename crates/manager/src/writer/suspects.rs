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

    /// The values of all groups of a kind.
    fn of(&self, kind: Kind) -> impl Iterator<Item = &V> {
        let from = (kind, Arc::from(""));
        let all = self.0.range(from..).take_while(move |((other, _), _)| *other == kind);
        all.map(|(_, (_, value))| value)
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
    /// Whether the last request was answered, though only after long.
    slow: bool,
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
    /// The last of these times of all groups of Workloads.
    last_answered: Option<Instant>,
    /// When the last write of a Workload was sent that was noticed to hang.
    last_hung: Option<Instant>,
}

impl Suspects {
    /// Whether writes of any group hang.
    pub fn any(&self) -> bool {
        !self.hanging.0.is_empty()
    }

    /// Whether writes of a group hang. If those of a kind of jobs hang in several namespaces, and are answered soon in none, that kind's own webhook
    /// is dead. If those of Workloads do, the server or Sluice's webhook is slow: then no tenant needs protection from another one.
    pub fn contains(&self, group: &Group) -> bool {
        let (kind, _) = *group;
        if !self.any() || self.are_slow_everywhere(kind) {
            return false;
        }
        let is_dead = || {
            matches!(kind, Kind::Job(_))
                && self.hanging.of(kind).nth(1).is_some()
                && self.answered.of(kind).next().is_none()
        };
        self.hanging.get(group).is_some() || is_dead()
    }

    /// Whether none of the namespaces whose Workloads were written since the last one began to hang had a soon answer and does not hang itself.
    fn are_slow_everywhere(&self, kind: Kind) -> bool {
        kind == Kind::Workload && self.last_hung.is_some() && self.last_answered <= self.last_hung
    }

    /// Whether requests of a group are answered, though only after long: then several may be under way.
    pub fn is_slow(&self, group: &Group) -> bool {
        self.hanging.get(group).is_some_and(|suspect| suspect.slow)
    }

    /// How long a request of a group may take if it is sent now.
    pub fn patience(&self, group: &Group, now: Instant) -> Patience {
        let known = self.hanging.get(group).filter(|_| !self.are_slow_everywhere(group.0));
        match known.filter(|suspect| suspect.failures > 0) {
            None => Patience::Usual,
            Some(suspect) if now < suspect.until => Patience::Little,
            Some(_) => Patience::Again,
        }
    }

    /// When the last request of a group was sent that was answered soon; `None` if one has hung since.
    pub fn answered(&self, group: &Group) -> Option<Instant> {
        self.answered.get(group).copied()
    }

    /// A request of the group has been in progress for long since it was `sent`, and a later one was answered soon. `reads`: whether it only reads.
    pub fn notice(&mut self, group: &Group, reads: bool, sent: Instant, now: Instant) {
        if group.0 == Kind::Workload && !reads {
            self.last_hung = self.last_hung.max(Some(sent));
        }
        self.suspect(group, reads, now);
    }

    fn suspect(&mut self, group: &Group, reads: bool, now: Instant) -> &mut Suspect {
        let answered = self.answered.0.remove(group).map(|(_, sent)| sent);
        if group.0 == Kind::Workload && answered.is_some() && answered == self.last_answered {
            self.last_answered = self.answered.of(Kind::Workload).max().copied();
        }
        let suspect = self.hanging.touch(group, now, || {
            let (failures, writes, slow) = (0, false, false);
            Suspect { failures, until: now, writes, slow }
        });
        suspect.writes |= !reads;
        suspect
    }

    /// A request of the group that was given `patience` is over.
    pub fn learn(&mut self, group: &Group, request: Request, patience: Patience, now: Instant) {
        let reads = request.reads;
        match request.outcome {
            // The webhooks in which writes hang are not called for reads.
            Outcome::Soon | Outcome::Late if reads => {
                if self.hanging.get(group).is_some_and(|suspect| !suspect.writes) {
                    self.hanging.0.remove(group);
                }
            }
            Outcome::Soon => {
                self.hanging.0.remove(group);
                let sent = self.answered.touch(group, now, || request.sent);
                *sent = request.sent.max(*sent);
                if group.0 == Kind::Workload {
                    self.last_answered = self.last_answered.max(Some(*sent));
                }
            }
            Outcome::Late => {
                self.hanging.0.remove(group);
            }
            Outcome::Slow => {
                let suspect = self.suspect(group, reads, now);
                // It is slow and not dead: it gets the time that it needs.
                (suspect.failures, suspect.until, suspect.slow) = (0, now, true);
            }
            Outcome::Hung => {
                let suspect = self.suspect(group, reads, now);
                suspect.slow &= patience == Patience::Little;
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
        suspects.notice(&a, true, now, now);
        assert!(suspects.contains(&a));
        suspects.learn(&a, read(Outcome::Soon), Patience::Usual, now);
        assert_eq!((suspects.contains(&a), suspects.answered(&a)), (false, None), "but where reading hung");
        suspects.learn(&a, request(now, Outcome::Hung), Patience::Usual, now);
        for outcome in [Outcome::Soon, Outcome::Late] {
            suspects.learn(&a, read(outcome), Patience::Little, now);
            assert!(suspects.contains(&a));
        }
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
            suspects.notice(&group(kind, "a"), false, now, now);
            assert!(!suspects.contains(&other));
            suspects.notice(&group(kind, "b"), false, now, now);
            assert_eq!(suspects.contains(&other), dead);
            assert!(!suspects.contains(&group(Kind::Job(JobKind::JOB), "other")));
            suspects.learn(&group(kind, "c"), request(now, Outcome::Soon), Patience::Usual, now);
            assert!(!suspects.contains(&other));
        }
    }

    #[test]
    fn an_answer_that_was_late_is_no_loss_for_others() {
        let (mut suspects, a, now) = (Suspects::default(), group(JOB_SETS, "a"), Instant::now());
        suspects.notice(&a, false, now, now);
        suspects.learn(&a, request(now, Outcome::Late), Patience::Usual, now);
        assert_eq!((suspects.contains(&a), suspects.answered(&a)), (false, None));
    }

    #[test]
    fn workloads_that_are_slow_in_all_namespaces_wait_for_no_tenants_webhook() {
        let (mut suspects, began) = (Suspects::default(), Instant::now());
        let [a, b, idle] = ["a", "b", "idle"].map(|namespace| group(Kind::Workload, namespace));
        let at = |seconds| began + SECOND * seconds;
        let soon = |suspects: &mut Suspects, group: &Group, sent: u32| {
            suspects.learn(group, request(at(sent), Outcome::Soon), Patience::Usual, at(sent));
        };
        soon(&mut suspects, &idle, 0);
        soon(&mut suspects, &b, 2);
        suspects.notice(&a, false, at(1), at(3));
        suspects.learn(&a, request(at(1), Outcome::Hung), Patience::Usual, at(3));
        assert!(suspects.contains(&a), "those of b were answered meanwhile");
        assert_eq!(suspects.patience(&a, at(3)), Patience::Little);
        suspects.notice(&b, false, at(2), at(4));
        assert!(!suspects.contains(&a) && !suspects.contains(&b), "none were since");
        assert_eq!(suspects.patience(&a, at(4)), Patience::Usual);
        soon(&mut suspects, &idle, 3);
        assert!(suspects.contains(&a) && suspects.contains(&b));
        assert_eq!(suspects.patience(&a, at(4)), Patience::Little);
        soon(&mut suspects, &b, 4);
        assert!(suspects.contains(&a) && !suspects.contains(&b));
    }

    #[test]
    fn the_number_known_is_limited_and_the_latest_stay() {
        let (mut suspects, now) = (Suspects::default(), Instant::now());
        for at in 0..MOST + 10 {
            suspects.notice(&group(JOB_SETS, "kept"), false, now, now + SECOND);
            suspects.notice(&group(JOB_SETS, &at.to_string()), false, now, now);
        }
        assert_eq!(suspects.hanging.0.len(), MOST);
        assert!(suspects.contains(&group(JOB_SETS, "kept")));
    }
}
