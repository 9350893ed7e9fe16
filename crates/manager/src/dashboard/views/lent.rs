//! What queues and Cohorts lend to others.
//!
//! No object says which queue lends to which: borrowed quota comes from what a whole cohort does not use. This rule divides it, for each flavor and
//! resource:
//!
//! * A queue borrows what it uses beyond its nominal quota. It can lend what it does not use of it, at most its lending limit.
//! * What the members of a Cohort borrow is taken from the Cohort's own quota first, which no queue has. The rest is taken from the members
//!   that can lend, each in proportion to what it can lend; an indivisible remainder comes from the first of them, Cohorts before queues and by name.
//! * What the members cannot lend each other is borrowed from the Cohort above in the same way, and the rest can be lent to it, at
//!   most the Cohort's lending limit.
//!
//! So the sum of all lent quota is the sum of all borrowed quota, up to what is used beyond every quota. Queues below Cohorts in a cycle lend
//! nothing, as they admit nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::dashboard::rows::{QueueRow, Quota};
use crate::dashboard::snapshot::{QueueSums, Snapshot};

/// A queue or Cohort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum QuotaOwner<'a> {
    Queue(&'a str),
    Cohort(&'a str),
}

/// Flavor and resource.
type Slot<'a> = (&'a str, &'a str);

/// What each owner lends.
#[derive(Debug, Default)]
pub struct Lent<'a>(BTreeMap<(QuotaOwner<'a>, Slot<'a>), i64>);

/// A queue or Cohort in the tree of one slot.
#[derive(Debug)]
struct Member<'a> {
    owner: QuotaOwner<'a>,
    /// The place of the Cohort above, which is before it.
    above: Option<usize>,
    /// Of a Cohort: its own quota that can be lent.
    own: i64,
    /// What it borrows from the Cohort above; for a Cohort, what its members cannot lend each other.
    borrows: i64,
    /// What it can lend to the Cohort above.
    lends: i64,
    /// Of a Cohort: what its members, without its own quota, can lend.
    members: i64,
    /// For a Cohort: what its members lend each other, including its own quota.
    inside: i64,
}

/// What a queue uses of a quota: the sum over its Workloads, if it is known, else the value in its status.
pub fn used(row: &QueueRow, sums: Option<&QueueSums>, quota: &Quota) -> i64 {
    let used = match sums {
        Some(sums) => sums.used.get(&quota.flavor).and_then(|used| used.get(&quota.resource)).copied(),
        None => {
            row.held.iter().find(|held| held.0 == quota.flavor && held.1 == quota.resource).map(|held| held.2)
        }
    };
    used.unwrap_or(0)
}

impl<'a> Lent<'a> {
    /// What is lent now.
    pub fn of(snapshot: &'a Snapshot) -> Self {
        let order = cohorts_from_above(snapshot);
        let mut places = vec![None; order.len()];
        let mut all = BTreeMap::new();
        for (slot, held) in by_slot(snapshot, &order) {
            for (owner, lent) in settle(&mut members(&held, &order, &mut places)) {
                all.insert((owner, slot), lent);
            }
        }
        Self(all)
    }

    /// What a queue lends of a quota.
    pub fn by_queue(&self, name: &str, quota: &Quota) -> i64 {
        self.get(QuotaOwner::Queue(name), quota)
    }

    /// What others use of a Cohort's own quota.
    pub fn by_cohort(&self, name: &str, quota: &Quota) -> i64 {
        self.get(QuotaOwner::Cohort(name), quota)
    }

    fn get(&self, owner: QuotaOwner<'_>, quota: &Quota) -> i64 {
        self.0.get(&(owner, (&*quota.flavor, &*quota.resource))).copied().unwrap_or(0)
    }
}

/// Of a queue without Workloads.
static NO_SUMS: QueueSums =
    QueueSums { pending: 0, reserving: 0, admitted: 0, used: BTreeMap::new(), members: Vec::new() };

/// The Cohorts, each after the one above it, with the position of that. Cohorts in cycles, and what is below them, are left out.
fn cohorts_from_above(snapshot: &Snapshot) -> Vec<(&str, Option<usize>)> {
    let parent = |name: &str| snapshot.cohorts.get(name).and_then(|row| row.parent.as_deref());
    let named = snapshot.cluster_queues.values().filter_map(|row| row.cohort.as_deref());
    let above = snapshot.cohorts.values().filter_map(|row| row.parent.as_deref());
    let all: BTreeSet<&str> = snapshot.cohorts.keys().map(|name| &**name).chain(above).chain(named).collect();
    let mut below: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in &all {
        if let Some(parent) = parent(name) {
            below.entry(parent).or_default().push(name);
        }
    }
    let mut order: Vec<(&str, Option<usize>)> =
        all.iter().filter(|name| parent(name).is_none()).map(|name| (*name, None)).collect();
    let mut at = 0;
    while let Some((name, _)) = order.get(at) {
        order.extend(below.remove(name).into_iter().flatten().map(|child| (child, Some(at))));
        at += 1;
    }
    order
}

/// A quota of a slot, and what is used of it.
#[derive(Debug)]
struct OfSlot<'a> {
    owner: QuotaOwner<'a>,
    /// The place of the Cohort itself, or of the one above the queue.
    place: usize,
    quota: &'a Quota,
    used: i64,
}

/// The quotas of each slot: of Cohorts, and of queues below them.
fn by_slot<'a>(
    snapshot: &'a Snapshot,
    order: &[(&'a str, Option<usize>)],
) -> BTreeMap<Slot<'a>, Vec<OfSlot<'a>>> {
    let mut slots: BTreeMap<Slot<'a>, Vec<OfSlot<'a>>> = BTreeMap::new();
    let mut put = |held: OfSlot<'a>| {
        slots.entry((&*held.quota.flavor, &*held.quota.resource)).or_default().push(held);
    };
    for (place, (name, _)) in order.iter().enumerate() {
        for quota in snapshot.cohorts.get(*name).iter().flat_map(|row| &row.quotas) {
            put(OfSlot { owner: QuotaOwner::Cohort(name), place, quota, used: 0 });
        }
    }
    let places: BTreeMap<&str, usize> =
        order.iter().enumerate().map(|(place, (name, _))| (*name, place)).collect();
    for (name, row) in &snapshot.cluster_queues {
        let Some(place) = row.cohort.as_deref().and_then(|cohort| places.get(cohort)) else { continue };
        let sums = snapshot.complete.then(|| snapshot.sums().get(name)).map(|sums| sums.unwrap_or(&NO_SUMS));
        for quota in &row.quotas {
            let used = used(row, sums, quota);
            put(OfSlot { owner: QuotaOwner::Queue(name), place: *place, quota, used });
        }
    }
    slots
}

/// The Cohorts that have to do with a slot, each after the one above it, and then the queues: there may be many slots, and many Cohorts. `places`
/// has room for the place of each Cohort among them; it is left as it was.
fn members<'a>(
    held: &[OfSlot<'a>],
    order: &[(&'a str, Option<usize>)],
    places: &mut [Option<usize>],
) -> Vec<Member<'a>> {
    let mut cohorts = Vec::new();
    for one in held {
        let mut next = Some(one.place);
        while let Some(place) = next.filter(|&place| places[place].is_none()) {
            places[place] = Some(0);
            cohorts.push(place);
            next = order[place].1;
        }
    }
    cohorts.sort_unstable();
    let mut all: Vec<Member<'a>> = Vec::with_capacity(cohorts.len() + held.len());
    for &place in &cohorts {
        let (name, above) = order[place];
        places[place] = Some(all.len());
        all.push(Member {
            owner: QuotaOwner::Cohort(name),
            above: above.and_then(|above| places[above]),
            own: 0,
            borrows: 0,
            lends: i64::MAX,
            members: 0,
            inside: 0,
        });
    }
    for OfSlot { owner, place, quota, used } in held {
        let limit = quota.lending_limit.unwrap_or(i64::MAX);
        match (owner, places[*place]) {
            (QuotaOwner::Cohort(_), Some(at)) => {
                all[at].own = quota.nominal.max(0);
                all[at].lends = limit;
            }
            (_, above) => all.push(Member {
                owner: *owner,
                above,
                own: 0,
                borrows: used.saturating_sub(quota.nominal).max(0),
                lends: quota.nominal.saturating_sub(*used).max(0).min(limit),
                members: 0,
                inside: 0,
            }),
        }
    }
    for place in cohorts {
        places[place] = None;
    }
    all
}

/// How much each lends. What is above a member is before it.
fn settle<'a>(all: &mut [Member<'a>]) -> Vec<(QuotaOwner<'a>, i64)> {
    // Bottom up: what members lend each other, and what is left or missing. Until then `lends` of a Cohort is its limit.
    for at in (0..all.len()).rev() {
        if matches!(all[at].owner, QuotaOwner::Cohort(_)) {
            let member = &mut all[at];
            let can = member.own.saturating_add(member.members);
            member.inside = member.borrows.min(can);
            member.borrows -= member.inside;
            member.lends = member.lends.min(can - member.inside);
        }
        if let Some(above) = all[at].above {
            let (borrows, lends) = (all[at].borrows, all[at].lends);
            all[above].borrows = all[above].borrows.saturating_add(borrows);
            all[above].members = all[above].members.saturating_add(lends);
        }
    }
    // Top down: what each member gives, a Cohort's own quota first.
    let mut asked = vec![0_i64; all.len()];
    let mut rest: Vec<(i64, i64)> = vec![(0, 0); all.len()];
    let mut lent = Vec::new();
    for at in 0..all.len() {
        let member = &all[at];
        if let Some(above) = member.above {
            // Its part of what is still to be given by the members that can lend, rounded up.
            let (wanted, can) = rest[above];
            let part = portion(wanted, member.lends, can);
            asked[at] = part;
            rest[above] = (wanted - part, can.saturating_sub(member.lends));
        }
        let given = match member.owner {
            QuotaOwner::Queue(_) => asked[at],
            QuotaOwner::Cohort(_) => {
                let total = member.inside.saturating_add(asked[at]);
                let own = total.min(member.own);
                rest[at] = (total - own, member.members);
                own
            }
        };
        if given > 0 {
            lent.push((member.owner, given));
        }
    }
    lent
}

/// `wanted` × `of` / `all`, rounded up, and at most `of`.
fn portion(wanted: i64, of: i64, all: i64) -> i64 {
    if wanted <= 0 || all <= 0 {
        return 0;
    }
    let part = (i128::from(wanted) * i128::from(of)).div_euclid(i128::from(all));
    let exact = part * i128::from(all) == i128::from(wanted) * i128::from(of);
    i64::try_from(part + i128::from(!exact)).map_or(of, |part| part.min(of).min(wanted))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sluice_engine::Name;

    use super::*;
    use crate::dashboard::rows::CohortRow;

    fn quota(nominal: i64, lending_limit: Option<i64>) -> Quota {
        Quota { flavor: "spot".into(), resource: "gpu".into(), nominal, borrowing_limit: None, lending_limit }
    }

    /// Queues: name, Cohort, nominal quota, lending limit, use. Cohorts: name, the Cohort above, own quota, lending limit.
    fn snapshot(
        queues: &[(&str, &str, i64, Option<i64>, i64)],
        cohorts: &[(&str, &str, i64, Option<i64>)],
    ) -> Snapshot {
        let name = |text: &str| (!text.is_empty()).then(|| Name::from(text));
        let mut snapshot = Snapshot::default();
        for (queue, cohort, nominal, limit, used) in queues {
            let row = QueueRow {
                cohort: name(cohort),
                stopped: false,
                active: true,
                reason: "".into(),
                message: "".into(),
                quotas: vec![quota(*nominal, *limit)],
                counts: [0; 3],
                held: vec![("spot".into(), "gpu".into(), *used)],
            };
            snapshot.cluster_queues.insert((*queue).into(), Arc::new(row));
        }
        for (cohort, parent, own, limit) in cohorts {
            let quotas = if *own > 0 || limit.is_some() { vec![quota(*own, *limit)] } else { Vec::new() };
            snapshot.cohorts.insert((*cohort).into(), Arc::new(CohortRow { parent: name(parent), quotas }));
        }
        snapshot
    }

    /// The lenders: queues, and Cohorts from their own quota.
    fn lent(snapshot: &Snapshot) -> Vec<(&str, i64)> {
        let lent = Lent::of(snapshot);
        let queues =
            snapshot.cluster_queues.keys().map(|name| (&**name, lent.by_queue(name, &quota(0, None))));
        let cohorts = snapshot.cohorts.keys().map(|name| (&**name, lent.by_cohort(name, &quota(0, None))));
        queues.chain(cohorts).filter(|(_, lent)| *lent > 0).collect()
    }

    #[test]
    fn idle_quota_is_lent_in_proportion_and_within_its_limit() {
        let queues = [
            ("a", "all", 4, None, 9),
            ("b", "all", 4, Some(1), 0),
            ("c", "all", 4, None, 1),
            ("d", "all", 4, Some(0), 0),
            // Two of its three are its own: of what it may lend, one is used.
            ("e", "all", 4, Some(2), 3),
            ("f", "", 4, None, 0),
        ];
        assert_eq!(lent(&snapshot(&queues, &[])), [("b", 1), ("c", 3), ("e", 1)]);
        // Of two of the five that could be lent, each lends its part as far as that can be divided.
        let less = [("a", "all", 4, None, 6), queues[1], queues[2], queues[3], queues[4], queues[5]];
        assert_eq!(lent(&snapshot(&less, &[])), [("b", 1), ("c", 1)]);
    }

    #[test]
    fn a_cohort_s_own_quota_goes_first_and_then_what_is_near() {
        let queues = [
            ("a", "left", 4, None, 9),
            ("b", "left", 2, None, 0),
            ("c", "right", 4, None, 0),
            ("d", "right", 4, None, 2),
        ];
        let cohorts = [("left", "top", 1, None), ("right", "top", 0, Some(3)), ("top", "", 1, None)];
        // Of the five, one is left's own, two are b's; one is top's own, and one comes from right.
        assert_eq!(lent(&snapshot(&queues, &cohorts)), [("b", 2), ("c", 1), ("left", 1), ("top", 1)]);
        // What right may lend is limited, and nothing else is left.
        let more = [("a", "left", 4, None, 14), queues[1], queues[2], queues[3]];
        assert_eq!(lent(&snapshot(&more, &cohorts)), [("b", 2), ("c", 2), ("d", 1), ("left", 1), ("top", 1)]);
    }

    #[test]
    fn cohorts_in_a_circle_lend_nothing_and_deep_ones_are_no_trouble() {
        let queues = [("a", "x", 4, None, 8), ("b", "y", 4, None, 0), ("c", "below", 4, None, 0)];
        let cohorts = [("x", "y", 9, None), ("y", "x", 9, None), ("below", "x", 9, None)];
        assert_eq!(lent(&snapshot(&queues, &cohorts)), []);
        let names: Vec<String> = (0..20_000).map(|at| format!("c{at}")).collect();
        let deep: Vec<_> = names.windows(2).map(|pair| (&*pair[0], &*pair[1], 0, None)).collect();
        let queues = [("a", &*names[0], 4, None, 8), ("b", &*names[19_999], 4, None, 0)];
        assert_eq!(lent(&snapshot(&queues, &deep)), [("b", 4)]);
    }

    #[test]
    fn each_of_many_flavors_takes_memory_for_its_own_cohorts_only() {
        let names: Vec<String> = (0..300).map(|at| format!("n{at:03}")).collect();
        let queues: Vec<_> = names.iter().map(|name| (&**name, &**name, 4, None, 5)).collect();
        let mut all = snapshot(&queues, &[]);
        for (name, row) in &mut all.cluster_queues {
            let row = Arc::make_mut(row);
            row.quotas[0].flavor = Name::clone(name);
            row.held[0].0 = Name::clone(name);
        }
        let taken = allocation_counter::measure(|| drop(Lent::of(&all))).bytes_max;
        assert!(taken < 300 * 1024, "{taken}");
    }

    #[test]
    fn all_that_is_lent_is_all_that_is_borrowed() {
        let mut random = 7_u64;
        let mut below = |most: i64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            i64::try_from(random >> 40).unwrap() % most
        };
        let names: Vec<String> = (0..12).map(|at| format!("n{at}")).collect();
        for _ in 0..500 {
            let cohorts: Vec<_> = (0..4)
                .map(|at| {
                    (
                        &*names[at],
                        if at == 0 {
                            ""
                        } else {
                            &*names[usize::try_from(below(i64::try_from(at).unwrap())).unwrap()]
                        },
                        below(4),
                        None,
                    )
                })
                .collect();
            let queues: Vec<_> = (4..12)
                .map(|at| {
                    (&*names[at], &*names[usize::try_from(below(4)).unwrap()], below(9), None, below(9))
                })
                .collect();
            let snapshot = snapshot(&queues, &cohorts);
            let borrowed: i64 = queues.iter().map(|(_, _, nominal, _, used)| (used - nominal).max(0)).sum();
            let idle: i64 = queues.iter().map(|(_, _, nominal, _, used)| (nominal - used).max(0)).sum();
            let own: i64 = cohorts.iter().map(|(_, _, own, _)| own).sum();
            let lent = lent(&snapshot);
            assert_eq!(
                lent.iter().map(|(_, lent)| lent).sum::<i64>(),
                borrowed.min(idle + own),
                "{queues:?} {cohorts:?}"
            );
            for (queue, _, nominal, _, used) in &queues {
                let given = lent.iter().find(|(name, _)| name == queue).map_or(0, |(_, lent)| *lent);
                assert!(given <= (nominal - used).max(0), "{queue} of {queues:?} {cohorts:?}");
            }
        }
    }
}
