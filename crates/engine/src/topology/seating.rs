//! Which bound pods are those that an assignment has in a domain: as many as it says, and no more. Any user can write the name of a Workload into a
//! pod; pods beyond the number count as usage of the node like any other pod, and so does what a pod requests beyond what the assignment has for it.
//!
//! If there are too many, the assignment gets the pods that are not terminating, the smallest first, so that the usage of the rest is overestimated
//! rather than underestimated.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use sluice_core::{Amount, HOSTNAME, Name, SharedAssignment, WorkloadKey};

use crate::hotswap::pod::{PODS, Pod, PodKey};
use crate::index_map::IndexMap;

/// A domain: the value of each level. A node is known by its hostname alone.
pub(super) type Domain = Vec<(Name, Name)>;
/// The pods of a pod set, by the name with which they refer to their Workload.
pub(super) type SetKey = (WorkloadKey, Name);

/// The order of a pod among those of a domain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    leaves: bool,
    size: i64,
    name: Name,
}

impl Rank {
    pub(super) fn of((_, name): &PodKey, pod: &Pod) -> Self {
        let size = pod.requests.iter().fold(0_i64, |sum, (_, amount)| sum.saturating_add(amount.get()));
        Self { leaves: pod.leaving, size, name: Name::clone(name) }
    }
}

/// The pods that claim to belong to an assignment in one domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seats {
    seated: BTreeSet<Rank>,
    standing: BTreeSet<Rank>,
}

impl Seats {
    /// Adds a pod; returns the pod that loses its seat, which may be the same one.
    fn enter(&mut self, rank: Rank, seats: usize) -> Option<Name> {
        self.seated.insert(rank);
        if self.seated.len() <= seats {
            return None;
        }
        let last = self.seated.pop_last()?;
        let name = Name::clone(&last.name);
        self.standing.insert(last);
        Some(name)
    }

    /// Removes a pod; returns the pod that gets its seat.
    fn vacate(&mut self, rank: &Rank) -> Option<Name> {
        if self.standing.remove(rank) || !self.seated.remove(rank) {
            return None;
        }
        let next = self.standing.pop_first()?;
        let name = Name::clone(&next.name);
        self.seated.insert(next);
        Some(name)
    }

    fn is_empty(&self) -> bool {
        self.seated.is_empty() && self.standing.is_empty()
    }
}

/// What the assignments have for a pod set.
#[derive(Clone, Debug, Default)]
pub(super) struct Rooms {
    /// How many pods, by domain.
    pub(super) pods: BTreeMap<Domain, usize>,
    /// What each pod takes, without `pods`: of several assignments the least.
    each: Option<Vec<(Name, Amount)>>,
}

/// The seats of all pod sets with an assignment, and which pods have them.
#[derive(Clone, Debug, Default)]
pub(super) struct Seating {
    /// What the assignments have for each pod set.
    pub(super) rooms: BTreeMap<SetKey, Rooms>,
    /// The labels by which their domains are named: nodes with other values of these are in other domains. Some may not matter any more.
    pub(super) levels: BTreeSet<Name>,
    pub(super) seats: BTreeMap<SetKey, BTreeMap<Domain, Seats>>,
    /// Where each pod is.
    pub(super) of: IndexMap<PodKey, (SetKey, Domain, Rank)>,
}

impl Seating {
    /// What the assignments have for the pod set of a pod that has its node by one of them.
    fn seated_in(&self, pod: &PodKey) -> Option<&Rooms> {
        let (set, domain, rank) = self.of.get(pod)?;
        let seats = self.seats.get(set)?.get(domain)?;
        self.rooms.get(set).filter(|_| seats.seated.contains(rank))
    }

    /// What a pod requests that no assignment has for it: everything, unless it has its node by one.
    pub(super) fn beyond<'a>(
        &self,
        pod: &PodKey,
        requests: &'a [(Name, Amount)],
    ) -> Cow<'a, [(Name, Amount)]> {
        let Some(rooms) = self.seated_in(pod) else { return Cow::Borrowed(requests) };
        let more = |(resource, amount): &(Name, Amount)| {
            let more = amount.sub(rooms.each_of(resource));
            (more > Amount::ZERO).then(|| (Name::clone(resource), more))
        };
        Cow::Owned(requests.iter().filter_map(more).collect())
    }

    /// Removes a pod; returns the pod that gets its seat.
    pub(super) fn take(&mut self, pod: &PodKey) -> Option<PodKey> {
        let (set, domain, rank) = self.of.swap_remove(pod)?;
        let domains = self.seats.get_mut(&set)?;
        let seats = domains.get_mut(&domain)?;
        let next = seats.vacate(&rank);
        if seats.is_empty() {
            domains.remove(&domain);
        }
        if domains.is_empty() {
            self.seats.remove(&set);
        }
        next.map(|name| (Name::clone(&pod.0), name))
    }

    /// Adds a pod; returns the pod that loses its seat.
    pub(super) fn put(&mut self, pod: &PodKey, set: SetKey, domain: Domain, rank: Rank) -> Option<PodKey> {
        let room = self.rooms.get(&set).and_then(|rooms| rooms.pods.get(&domain)).copied().unwrap_or(0);
        let seats = self.seats.entry(set.clone()).or_default().entry(domain.clone()).or_default();
        let last = seats.enter(rank.clone(), room);
        self.of.insert(pod.clone(), (set, domain, rank));
        last.map(|name| (Name::clone(&pod.0), name))
    }

    /// Whether the pods are those of another one.
    pub(super) fn has_the_pods_of(&self, other: &Self) -> bool {
        (&self.seats, &self.of) == (&other.seats, &other.of)
    }

    /// Forgets all pods.
    pub(super) fn clear(&mut self) {
        self.seats.clear();
        self.of.clear();
    }

    /// The pods that say to be of a Workload.
    pub(super) fn pods_of(&self, home: &WorkloadKey) -> Vec<PodKey> {
        let sets = self.seats.range((home.clone(), Name::from(""))..).take_while(|((key, _), _)| key == home);
        let ranks = sets
            .flat_map(|(_, domains)| domains.values())
            .flat_map(|seats| seats.seated.iter().chain(&seats.standing));
        ranks.map(|rank| (Name::clone(&home.namespace), Name::clone(&rank.name))).collect()
    }
}

impl Rooms {
    /// Adds an assignment whose pods take so much each, without `pods`.
    pub(super) fn add(&mut self, assignment: &SharedAssignment, each: &[(Name, Amount)]) {
        let by_host = assignment.levels.last().is_some_and(|level| &**level == HOSTNAME);
        let skipped = if by_host { assignment.levels.len().saturating_sub(1) } else { 0 };
        for domain in &assignment.domains {
            let values = assignment.levels.iter().zip(&domain.values).skip(skipped);
            let place = values.map(|(level, value)| (Name::clone(level), Name::clone(value))).collect();
            let room: &mut usize = self.pods.entry(place).or_default();
            *room = room.saturating_add(usize::try_from(domain.count).unwrap_or(0));
        }
        for (resource, least) in self.each.get_or_insert_with(|| each.to_vec()) {
            *least = (*least).min(amount_of(each, resource));
        }
    }

    /// What each pod takes of a resource.
    fn each_of(&self, resource: &str) -> Amount {
        if *resource == *PODS {
            Amount(1)
        } else {
            amount_of(self.each.as_deref().unwrap_or_default(), resource)
        }
    }
}

fn amount_of(amounts: &[(Name, Amount)], resource: &str) -> Amount {
    amounts.iter().find(|(name, _)| **name == *resource).map_or(Amount::ZERO, |(_, amount)| *amount)
}

#[cfg(test)]
mod tests {
    use sluice_core::{AssignedDomain, TopologyAssignment};

    use super::*;

    fn rank(size: i64, name: &str) -> Rank {
        Rank { leaves: false, size, name: name.into() }
    }

    fn amounts(of: &[(&str, i64)]) -> Vec<(Name, Amount)> {
        of.iter().map(|(name, amount)| (Name::from(*name), Amount(*amount))).collect()
    }

    #[test]
    fn a_pod_with_a_seat_takes_what_it_requests_beyond_the_least_that_assignments_have_for_it() {
        let node: Vec<Name> = vec!["n".into()];
        let domains = vec![AssignedDomain { values: node.clone(), count: 1 }];
        let assignment = TopologyAssignment { levels: vec![HOSTNAME.into()], domains }.into();
        let mut rooms = Rooms::default();
        rooms.add(&assignment, &amounts(&[("cpu", 4), ("gpu", 1)]));
        rooms.add(&assignment, &amounts(&[("cpu", 2), ("gpu", 1)]));
        let set: SetKey = (WorkloadKey::new("ns", "w"), "main".into());
        let domain: Domain = vec![(HOSTNAME.into(), node[0].clone())];
        let mut seating = Seating::default();
        seating.rooms.insert(set.clone(), rooms);
        let [small, large, third] =
            ["small", "large", "third"].map(|name| (Name::from("ns"), Name::from(name)));
        for (pod, size) in [(&small, 4), (&large, 9), (&third, 10)] {
            seating.put(pod, set.clone(), domain.clone(), rank(size, &pod.1));
        }
        let beyond = |pod: &PodKey, of: &[(&str, i64)]| seating.beyond(pod, &amounts(of)).into_owned();
        assert!(beyond(&small, &[("cpu", 2), ("gpu", 1), ("pods", 1)]).is_empty());
        let requests = [("cpu", 3), ("gpu", 0), ("memory", 5), ("pods", 1)];
        assert_eq!(beyond(&large, &requests), amounts(&[("cpu", 1), ("memory", 5)]));
        assert_eq!(beyond(&third, &requests), amounts(&requests), "there are two seats");
    }

    #[test]
    fn the_smallest_have_the_seats_in_whatever_order_they_come() {
        let ranks = [rank(1, "a"), rank(1, "b"), rank(2, "c"), rank(9, "d")];
        let mut expected = Seats::default();
        for one in &ranks {
            expected.enter(one.clone(), 2);
        }
        assert_eq!(expected.seated.iter().map(|one| &*one.name).collect::<Vec<_>>(), ["a", "b"]);
        let mut seats = Seats::default();
        for one in ranks.iter().rev() {
            seats.enter(one.clone(), 2);
        }
        assert_eq!(seats, expected);
        assert_eq!(seats.vacate(&ranks[0]).as_deref(), Some("c"));
        assert_eq!(seats.vacate(&ranks[3]), None);
        assert_eq!(seats.enter(ranks[0].clone(), 2).as_deref(), Some("c"));
        assert_eq!(Seats::default().enter(rank(1, "a"), 0).as_deref(), Some("a"));
        let leaving = Rank { leaves: true, ..rank(0, "e") };
        assert_eq!(seats.enter(leaving, 2).as_deref(), Some("e"));
    }
}
