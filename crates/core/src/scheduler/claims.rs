//! What Hotswap asks of quotas and Cohorts (not in Kueue), outside of a cycle: above all whether quotas have room for the usage of a workload.

use super::Scheduler;
use super::snapshot::Snapshot;
use crate::intern::NodeId;
use crate::{Amount, Name};

/// The usage of a workload: flavor, resource, amount; duplicates are added.
pub type Claim = [(Name, Name, Amount)];

/// All that a claim takes of a pair.
fn taken(claim: &Claim, flavor: &Name, resource: &Name) -> i128 {
    claim.iter().filter(|one| (&one.0, &one.1) == (flavor, resource)).map(|one| exact(one.2)).sum()
}

impl Scheduler {
    /// Whether a ClusterQueue could ever hold a claim, with all that it could borrow.
    pub fn could_ever_hold(&self, queue: &str, claim: &Claim) -> bool {
        claim.iter().all(|(flavor, resource, _)| {
            let most = self.potential_available(queue, flavor, resource);
            most.is_some_and(|most| taken(claim, flavor, resource) <= exact(most))
        })
    }

    /// The Cohort at the top of those above a ClusterQueue, as the specs name them; in a circle of Cohorts, the last one before it closes.
    pub(crate) fn top_cohort(&self, queue: &str) -> Option<NodeId> {
        let mut at = self.world.queues[self.world.queue_index.get(queue)?.at()].node;
        let mut above = Vec::new();
        while let Some(parent) = self.world.forest.node(at).declared
            && !above.contains(&parent)
        {
            above.push(parent);
            at = parent;
        }
        above.pop()
    }
}

impl Snapshot {
    /// Whether a ClusterQueue is within its nominal quota of all that a claim takes, with the claim added to what it uses in this snapshot of
    /// the scheduler.
    pub fn is_within_nominal(&self, scheduler: &Scheduler, queue: &str, claim: &Claim) -> bool {
        claim.iter().all(|(flavor, resource, _)| {
            let used = self.used(scheduler, queue, flavor, resource);
            let nominal = scheduler.nominal(queue, flavor, resource);
            used.zip(nominal)
                .is_some_and(|(used, nominal)| exact(used) + taken(claim, flavor, resource) <= exact(nominal))
        })
    }

    /// Whether a ClusterQueue has quota for a claim in this snapshot of the scheduler, with what it can borrow.
    pub fn has_quota_for(&self, scheduler: &Scheduler, queue: &str, claim: &Claim) -> bool {
        claim.iter().all(|(flavor, resource, _)| {
            let free = self.available(scheduler, queue, flavor, resource);
            free.is_some_and(|free| taken(claim, flavor, resource) <= exact(free))
        })
    }
}

/// An amount as a number: without a limit it is the largest possible one.
pub(crate) fn exact(amount: Amount) -> i128 {
    i128::from(amount.get())
}

#[cfg(test)]
mod tests {
    use crate::fixtures::{cohort, cq};
    use crate::{Config, Name, Scheduler};

    #[test]
    fn the_top_cohort_is_the_highest_one_or_the_last_one_before_a_cycle_begins_again() {
        let mut core = Scheduler::new(Config::default());
        for queue in [cq("a").cohort("low"), cq("b").cohort("x"), cq("c").cohort("y"), cq("alone")] {
            core.set_cluster_queue(queue.0);
        }
        for one in [cohort("low").parent("top"), cohort("x").parent("y"), cohort("y").parent("x")] {
            core.set_cohort(one.0);
        }
        let top = |queue| core.top_cohort(queue).map(|id| Name::clone(&core.world.forest.node(id).name));
        let tops = ["a", "b", "c", "alone", "missing"].map(top);
        let expected = [Some("top"), Some("y"), Some("x"), None, None];
        assert_eq!(tops, expected.map(|name| name.map(Name::from)));
    }
}
