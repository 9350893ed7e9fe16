//! Which pods of a group are kept, and what its pods agree on.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::member::Member;

/// The order of counted pods. The last are surplus: those without our finalizer, then gated ones, then the newest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Keep {
    released: bool,
    gated: bool,
    created: Timestamp,
    /// Its name.
    pub name: Arc<str>,
}

impl Keep {
    pub fn of(member: &Member) -> Self {
        Self {
            released: !member.held,
            gated: member.gated,
            created: member.created,
            name: Arc::clone(&member.name),
        }
    }
}

/// The order of pods that do not count. The last are replaced first: those without our finalizer, then those that were active longest ago, then the
/// newest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Leave {
    released: bool,
    last_active: Reverse<Timestamp>,
    created: Timestamp,
    /// Its name.
    pub name: Arc<str>,
}

impl Leave {
    /// Before all that our finalizer does not keep, and after the others.
    pub fn first_released() -> Self {
        let last_active = Reverse(Timestamp::MAX);
        Self { released: true, last_active, created: Timestamp::MIN, name: Arc::from("") }
    }

    pub fn of(member: &Member) -> Self {
        let ends = [member.failed_at, member.deleted_by];
        // A pod that has not ended was active last.
        let last_active = ends.into_iter().flatten().min().unwrap_or(Timestamp::MAX);
        Self {
            released: !member.held,
            last_active: Reverse(last_active),
            created: member.created,
            name: Arc::clone(&member.name),
        }
    }
}

/// A pod among those with the same value: the oldest is named in messages.
type Place = (Timestamp, Arc<str>);

/// The values of pods for something on which they should agree. Failed pods count only if there are no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Votes<T> {
    counted: BTreeMap<T, BTreeSet<Place>>,
    failed: BTreeMap<T, BTreeSet<Place>>,
}

impl<T> Default for Votes<T> {
    fn default() -> Self {
        Self { counted: BTreeMap::new(), failed: BTreeMap::new() }
    }
}

impl<T: Ord> Votes<T> {
    fn side(&mut self, member: &Member) -> &mut BTreeMap<T, BTreeSet<Place>> {
        if member.counts() { &mut self.counted } else { &mut self.failed }
    }

    pub fn add(&mut self, value: T, member: &Member) {
        let place = (member.created, Arc::clone(&member.name));
        self.side(member).entry(value).or_default().insert(place);
    }

    pub fn remove(&mut self, value: &T, member: &Member) {
        let side = self.side(member);
        if let Some(places) = side.get_mut(value) {
            places.remove(&(member.created, Arc::clone(&member.name)));
            if places.is_empty() {
                side.remove(value);
            }
        }
    }

    /// The values that count, in order.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.counted.keys()
    }

    /// The value of the pods, if they agree; else two pods that do not, each with its value.
    pub fn agreed(&self) -> Result<Option<&T>, [(&T, &str); 2]> {
        let side = if self.counted.is_empty() { &self.failed } else { &self.counted };
        let mut values = side.iter();
        let first = values.next();
        // Failed pods need not agree.
        match (first, values.next().filter(|_| !self.counted.is_empty())) {
            (Some(one), Some(other)) => {
                let named = |(value, places)| (value, eldest(places));
                Err([named(one), named(other)])
            }
            _ => Ok(first.map(|(value, _)| value)),
        }
    }
}

fn eldest(places: &BTreeSet<Place>) -> &str {
    places.first().map_or("", |(_, name)| name)
}
