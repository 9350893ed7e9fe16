//! The API server's answers about one user's rights, namespace by namespace, and which questions come next.
//!
//! A granted right counts for [`REMEMBER`] and is checked again before that; a refused one is checked seldom, because most users may see few of many
//! namespaces. Pure: the caller passes the time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use sluice_engine::Name;

use super::viewer::{Caller, Viewer};

/// How long a granted right counts.
pub const REMEMBER: Duration = Duration::from_secs(30);
/// From this age on it is checked again, a few namespaces at a time.
const SOON: Duration = Duration::from_secs(15);
/// A right that was refused is asked about again after this time; sooner if the namespace is named.
const SELDOM: Duration = Duration::from_mins(5);
/// Questions that need no immediate answer, for one request.
const SPREAD: usize = 100;

/// A right to check.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Workloads of all namespaces.
    All,
    /// The list of nodes.
    Nodes,
    /// The list of ClusterQueues.
    Queues,
    /// Workloads of one namespace.
    In(Name),
}

#[derive(Clone, Copy, Debug)]
struct KnownRight {
    may: bool,
    at: Instant,
}

impl KnownRight {
    fn age(self, now: Instant) -> Duration {
        now.saturating_duration_since(self.at)
    }

    fn is_worth_asking(self, now: Instant) -> bool {
        self.age(now) >= if self.may { SOON } else { SELDOM }
    }

    fn counts(self, now: Instant) -> bool {
        self.age(now) < REMEMBER
    }
}

/// The questions to ask.
#[derive(Debug, Default)]
pub struct Questions {
    /// Before there is an answer, the most urgent first.
    pub due: Vec<Right>,
    /// If there is time.
    pub soon: Vec<Right>,
}

/// The known rights of one user.
#[derive(Debug, Default)]
pub struct Rights(BTreeMap<Right, KnownRight>);

impl Rights {
    /// An answer of the API server.
    pub fn put(&mut self, right: Right, may: bool, now: Instant) {
        self.0.insert(right, KnownRight { may, at: now });
    }

    /// Whether a right is granted.
    pub fn may(&self, right: &Right, now: Instant) -> bool {
        self.0.get(right).is_some_and(|known| known.may && known.counts(now))
    }

    /// The questions about these namespaces and the named ones; the named ones come first.
    pub fn questions(&mut self, all: &BTreeSet<Name>, named: &[Name], now: Instant) -> Questions {
        // Namespaces that do not exist any more are dropped.
        self.0.retain(|right, _| match right {
            Right::All | Right::Nodes | Right::Queues => true,
            Right::In(namespace) => all.contains(namespace) || named.contains(namespace),
        });
        let mut questions = Questions::default();
        let old = |right: &Right| !self.0.get(right).is_some_and(|known| known.counts(now));
        questions.due.extend([Right::All, Right::Nodes, Right::Queues].into_iter().filter(old));
        // For a user who may see everything no questions about single namespaces are asked.
        if !questions.due.is_empty() || self.may(&Right::All, now) {
            return questions;
        }
        questions.due.extend(named.iter().cloned().map(Right::In).filter(old));
        let (mut lost, mut new, mut soon) = (Vec::new(), Vec::new(), Vec::new());
        for namespace in all.iter().filter(|namespace| !named.contains(namespace)) {
            let right = Right::In(Name::clone(namespace));
            match self.0.get(&right) {
                None => new.push(right),
                Some(known) if known.may && !known.counts(now) => lost.push(right),
                Some(known) if known.is_worth_asking(now) => {
                    soon.push((!known.may, known.at, right));
                }
                Some(_) => {}
            }
        }
        questions.due.extend(lost);
        questions.due.extend(new);
        soon.sort();
        questions.soon.extend(soon.into_iter().take(SPREAD).map(|(.., right)| right));
        questions
    }

    /// What the user may see.
    pub fn caller(&self, user: &str, all: &BTreeSet<Name>, now: Instant) -> Caller {
        let everything = self.may(&Right::All, now);
        let of = |(right, known): (&Right, &KnownRight)| match right {
            Right::In(namespace) if known.may && known.counts(now) => Some(Name::clone(namespace)),
            _ => None,
        };
        let is_new = |namespace: &&Name| !self.0.contains_key(&Right::In(Name::clone(namespace)));
        let viewer = Viewer {
            user: user.to_owned(),
            all: everything,
            namespaces: if everything { BTreeSet::new() } else { self.0.iter().filter_map(of).collect() },
            nodes: self.may(&Right::Nodes, now),
            queues: self.may(&Right::Queues, now),
        };
        let wide = usize::from(!self.0.get(&Right::All).is_some_and(|known| known.counts(now)));
        Caller { viewer, unasked: if everything { 0 } else { wide + all.iter().filter(is_new).count() } }
    }

    /// Whether a namespace is known to be the user's.
    pub fn sees_any(&self, now: Instant) -> bool {
        let of_namespaces = |right: &Right| matches!(right, Right::All | Right::In(_));
        self.0.iter().any(|(right, known)| of_namespaces(right) && known.may && known.counts(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<Name> {
        names.iter().map(|name| (*name).into()).collect()
    }

    #[test]
    fn what_is_granted_counts_for_a_while_and_what_is_refused_is_asked_about_seldom() {
        let all: BTreeSet<Name> = names(&["a", "b", "c"]).into_iter().collect();
        let (mut rights, now) = (Rights::default(), Instant::now());
        let at = |seconds: u64| now + Duration::from_secs(seconds);
        let of = |name: &str| Right::In(name.into());
        let wide = [Right::All, Right::Nodes, Right::Queues];
        assert_eq!(rights.questions(&all, &names(&["c"]), now).due, wide);
        for right in wide.clone() {
            rights.put(right, false, now);
        }
        let asked = rights.questions(&all, &names(&["c"]), now);
        assert_eq!(asked.due, [of("c"), of("a"), of("b")], "what is named comes first");
        rights.put(of("a"), true, now);
        rights.put(of("b"), false, now);
        let Caller { viewer, unasked } = rights.caller("eve", &all, now);
        assert_eq!((viewer.namespaces.len(), unasked, viewer.sees("a")), (1, 1, true));
        rights.put(of("c"), false, now);
        let later = rights.questions(&all, &[], at(20));
        assert_eq!((later.due, later.soon), (vec![], vec![of("a")]));
        assert_eq!(rights.questions(&all, &names(&["b"]), at(31)).due, wide);
        for right in wide.clone() {
            rights.put(right, false, at(31));
        }
        assert_eq!(rights.questions(&all, &names(&["b"]), at(31)).due, [of("b"), of("a")]);
        assert!(
            !rights.caller("eve", &all, at(30)).viewer.sees_any(),
            "a right that was withdrawn counts no longer"
        );
        for right in wide {
            rights.put(right, false, at(299));
        }
        assert_eq!(rights.questions(&all, &[], at(301)).soon, [of("b"), of("c")]);
        // A deleted namespace is dropped.
        rights.questions(&BTreeSet::new(), &[], at(301));
        assert_eq!(rights.0.len(), 3);
    }
}
