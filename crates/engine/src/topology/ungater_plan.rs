//! Assigns the pods of a pod set to the domains of its topology assignment (docs/reference/06-algorithm.md 6.13).
//!
//! Domains are in the order of the assignment, and each has a number of pods. The pods with the first ranks belong in the first domain, and so on. If
//! ranks contradict one another, or the running pods, each domain is filled in order instead. Either way no domain gets more pods than its number.

/// How the pods of a pod set are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ranks {
    /// Pods of the pod set.
    pub size: u32,
    /// What is subtracted from an index.
    pub offset: u32,
    /// How many groups the pods are in, if they are.
    pub groups: Option<u32>,
}

impl Ranks {
    /// The rank of a pod, by its index and that of its group; nothing where these are none, or not of this pod set.
    pub fn of(self, index: Option<u32>, group: Option<u32>) -> Option<usize> {
        let index = index?;
        let rank = match self.groups {
            None => index,
            Some(groups) => {
                let in_group = self.size.checked_div(groups)?;
                let group = group.filter(|group| *group < groups)?;
                let index = Some(index).filter(|index| *index < in_group)?;
                group.checked_mul(in_group)?.checked_add(index)?
            }
        };
        let rank = rank.checked_sub(self.offset).filter(|rank| *rank < self.size)?;
        usize::try_from(rank).ok()
    }
}

/// One domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FreeDomain {
    /// How many pods it has.
    pub pods: usize,
    /// Whether it takes no pods now.
    pub closed: bool,
}

/// A pod that may run: it is ungated, or is being ungated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    /// Its domain. None if it is elsewhere.
    pub domain: Option<usize>,
    /// Its rank.
    pub rank: Option<usize>,
    /// Whether it is being deleted: it uses its place until it ended, but its rank is another pod's.
    pub leaves: bool,
}

/// A pod that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Its rank.
    pub rank: Option<usize>,
    /// The domain that it may have been let into: it is not known whether it was.
    pub uncertain: Option<usize>,
}

/// The domain of each waiting pod; `None` for pods that continue waiting. `ranked` says whether the pods are numbered.
pub(super) fn plan(
    rooms: &[FreeDomain],
    placed: &[Placed],
    waiting: &[Waiting],
    ranked: bool,
) -> Vec<Option<usize>> {
    let mut free: Vec<usize> = rooms.iter().map(|room| room.pods).collect();
    let uncertain = waiting.iter().filter_map(|pod| pod.uncertain);
    for domain in placed.iter().filter_map(|pod| pod.domain).chain(uncertain) {
        if let Some(free) = free.get_mut(domain) {
            *free = free.saturating_sub(1);
        }
    }
    let is_open = |domain: &usize| rooms.get(*domain).is_some_and(|room| !room.closed);
    let mut order: Vec<usize> = (0..waiting.len()).filter(|at| waiting[*at].uncertain.is_none()).collect();
    order.sort_by_key(|at| waiting[*at].rank.unwrap_or(usize::MAX));
    // A pod that is written again keeps its place.
    let mut domains: Vec<Option<usize>> = waiting.iter().map(|pod| pod.uncertain.filter(is_open)).collect();
    if let Some(of_rank) =
        ranked.then(|| domains_of_ranks(rooms)).filter(|of| are_consistent(of, placed, waiting))
    {
        for at in order {
            let domain = waiting[at].rank.map(|rank| of_rank[rank]).filter(is_open);
            if let Some(domain) = domain.filter(|domain| free[*domain] > 0) {
                free[domain] -= 1;
                domains[at] = Some(domain);
            }
        }
        return domains;
    }
    let mut order = order.into_iter();
    for domain in (0..rooms.len()).filter(is_open) {
        for at in order.by_ref().take(free[domain]) {
            domains[at] = Some(domain);
        }
    }
    domains
}

/// The domain of each rank.
pub(super) fn domains_of_ranks(rooms: &[FreeDomain]) -> Vec<usize> {
    let domains = rooms.iter().enumerate();
    domains.flat_map(|(domain, room)| std::iter::repeat_n(domain, room.pods)).collect()
}

/// Whether every pod has a rank of its own, and the running pods are where their ranks belong.
fn are_consistent(of_rank: &[usize], placed: &[Placed], waiting: &[Waiting]) -> bool {
    let mut taken = vec![false; of_rank.len()];
    let mut take = |rank: Option<usize>, domain: Option<usize>, elsewhere: bool| {
        let Some(rank) = rank.filter(|rank| *rank < of_rank.len()) else { return false };
        let there = domain.map_or(!elsewhere, |domain| domain == of_rank[rank]);
        there && !std::mem::replace(&mut taken[rank], true)
    };
    placed.iter().filter(|pod| !pod.leaves).all(|pod| take(pod.rank, pod.domain, true))
        && waiting.iter().all(|pod| take(pod.rank, pod.uncertain, false))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rooms(pods: &[usize]) -> Vec<FreeDomain> {
        pods.iter().map(|pods| FreeDomain { pods: *pods, closed: false }).collect()
    }

    fn waits(rank: usize) -> Waiting {
        Waiting { rank: Some(rank), uncertain: None }
    }

    fn runs(rank: usize, domain: usize) -> Placed {
        Placed { domain: Some(domain), rank: Some(rank), leaves: false }
    }

    #[test]
    fn ranks_are_numbered_through_groups_and_begin_after_the_offset() {
        let plain = Ranks { size: 4, offset: 0, groups: None };
        assert_eq!(
            (plain.of(Some(3), None), plain.of(Some(4), None), plain.of(None, None)),
            (Some(3), None, None)
        );
        let workers = Ranks { size: 3, offset: 1, groups: None };
        assert_eq!(
            (
                workers.of(Some(1), None),
                workers.of(Some(3), None),
                workers.of(Some(0), None),
                workers.of(Some(4), None)
            ),
            (Some(0), Some(2), None, None)
        );
        let groups = Ranks { size: 6, offset: 0, groups: Some(3) };
        assert_eq!(groups.of(Some(1), Some(2)), Some(5));
        for (index, group) in [(2, Some(0)), (0, Some(3)), (0, None)] {
            assert_eq!(groups.of(Some(index), group), None);
        }
        assert_eq!(Ranks { groups: Some(0), ..groups }.of(Some(0), Some(0)), None);
        assert_eq!(Ranks { offset: u32::MAX, ..plain }.of(Some(3), None), None);
    }

    #[test]
    fn each_rank_gets_into_its_domain_whatever_came_first() {
        let planned = plan(&rooms(&[2, 1, 2]), &[runs(1, 0)], &[waits(4), waits(2), waits(0)], true);
        assert_eq!(planned, [Some(2), Some(1), Some(0)]);
    }

    #[test]
    fn where_ranks_contradict_domains_are_filled_in_order() {
        let two = rooms(&[1, 2]);
        let pods = [waits(2), waits(0), waits(1)];
        let filled = [Some(1), Some(0), Some(1)];
        assert_eq!(plan(&two, &[], &pods, false), filled, "not numbered");
        assert_eq!(plan(&two, &[], &[waits(0), waits(0)], true), [Some(0), Some(1)], "twice the same");
        assert_eq!(plan(&two, &[], &[waits(0), waits(7)], true), [Some(0), Some(1)], "out of range");
        let unnumbered = Waiting { rank: None, uncertain: None };
        assert_eq!(plan(&two, &[], &[unnumbered, waits(1)], true), [Some(1), Some(0)], "missing");
        // Rank 0 belongs in the first domain, where rank 1 runs: it gets the place that is left.
        assert_eq!(plan(&rooms(&[1, 1]), &[runs(1, 0)], &[waits(0)], true), [Some(1)], "it runs elsewhere");
    }

    #[test]
    fn a_pod_that_leaves_keeps_its_place_and_gives_its_rank_away() {
        let leaves = Placed { leaves: true, ..runs(1, 1) };
        let two = rooms(&[1, 1]);
        assert_eq!(plan(&two, &[leaves], &[waits(1), waits(0)], true), [None, Some(0)]);
        // Its node was replaced: the new one has room.
        let gone = Placed { domain: None, ..leaves };
        assert_eq!(plan(&two, &[gone], &[waits(1), waits(0)], true), [Some(1), Some(0)]);
    }

    #[test]
    fn a_closed_domain_takes_none_and_what_may_be_in_one_is_let_into_no_other() {
        let mut two = rooms(&[1, 1]);
        two[0].closed = true;
        assert_eq!(plan(&two, &[], &[waits(0), waits(1)], true), [None, Some(1)]);
        assert_eq!(plan(&two, &[], &[waits(0), waits(1)], false), [Some(1), None]);
        let lost = |uncertain| Waiting { rank: None, uncertain: Some(uncertain) };
        assert_eq!(plan(&two, &[], &[lost(0), lost(1)], false), [None, Some(1)]);
        assert_eq!(plan(&rooms(&[1, 1]), &[], &[waits(0), lost(0)], false), [Some(1), Some(0)]);
    }

    fn a_plan() -> impl Strategy<Value = (Vec<FreeDomain>, Vec<Placed>, Vec<Waiting>, bool)> {
        let room =
            (0_usize..4, prop::bool::weighted(0.2)).prop_map(|(pods, closed)| FreeDomain { pods, closed });
        let rank = || prop::option::weighted(0.9, 0_usize..12);
        let placed = (prop::option::of(0_usize..5), rank(), any::<bool>());
        let placed = placed.prop_map(|(domain, rank, leaves)| Placed { domain, rank, leaves });
        let waiting = (rank(), prop::option::weighted(0.1, 0_usize..5));
        let waiting = waiting.prop_map(|(rank, uncertain)| Waiting { rank, uncertain });
        (
            prop::collection::vec(room, 0..5),
            prop::collection::vec(placed, 0..6),
            prop::collection::vec(waiting, 0..12),
            any::<bool>(),
        )
    }

    proptest! {
        #[test]
        fn no_domain_gets_more_pods_than_it_has_and_none_is_left_out(
            (rooms, placed, waiting, ranked) in a_plan()
        ) {
            let planned = plan(&rooms, &placed, &waiting, ranked);
            prop_assert_eq!(planned.len(), waiting.len());
            let known = |domain: usize| placed.iter().filter(|pod| pod.domain == Some(domain)).count();
            let lost = |domain: usize| waiting.iter().filter(|pod| pod.uncertain == Some(domain)).count();
            let fresh = |domain: usize| {
                let pods = planned.iter().zip(&waiting);
                pods.filter(|(at, pod)| **at == Some(domain) && pod.uncertain.is_none()).count()
            };
            for (domain, room) in rooms.iter().enumerate() {
                let used = known(domain) + lost(domain);
                prop_assert!(fresh(domain) == 0 || used + fresh(domain) <= room.pods);
                prop_assert!(!room.closed || planned.iter().all(|at| *at != Some(domain)));
            }
            prop_assert!(planned.iter().flatten().all(|domain| *domain < rooms.len()));
            // Without ranks, no pod waits where there is room.
            let open = |domain: &usize| !rooms[*domain].closed;
            let room = (0..rooms.len()).filter(open).any(|d| known(d) + lost(d) + fresh(d) < rooms[d].pods);
            let left = planned.iter().zip(&waiting).any(|(at, pod)| at.is_none() && pod.uncertain.is_none());
            prop_assert!(ranked || !(room && left));
        }

        #[test]
        fn all_ranks_at_once_or_one_after_another_get_the_same_domains(
            pods in prop::collection::vec(0_usize..4, 1..5), order in any::<prop::sample::Index>()
        ) {
            let rooms = rooms(&pods);
            let total: usize = pods.iter().sum();
            let ranks: Vec<_> = (0..total).map(waits).collect();
            let together = plan(&rooms, &[], &ranks, true);
            prop_assert!(together.iter().all(Option::is_some));
            prop_assert!(together.is_sorted());
            let mut placed: Vec<Placed> = Vec::new();
            for step in 0..total {
                let rank = (step + order.index(total)) % total;
                let domain = plan(&rooms, &placed, &[waits(rank)], true)[0];
                prop_assert_eq!(domain, together[rank]);
                placed.push(Placed { domain, rank: Some(rank), leaves: false });
            }
        }
    }
}
