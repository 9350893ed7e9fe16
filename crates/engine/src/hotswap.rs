//! Hotswap (not in Kueue; gate `Hotswap`): jobs leave failing nodes. If no room is free, Workloads of lower priority are evicted for them.
//!
//! It acts for the flavors in [`scope`]. The [`health`] of their nodes decides their [`capacity`], which admissions need besides quota. A JobSet
//! whose nodes fail is [`displaced`]: it is evicted and admitted again if the healthy nodes have room for it, or would have after preemption of lower
//! priority, which the core decides ([`sluice_core::DisplacedSearch`]). The [`brake`] holds when most nodes look bad, and nothing is decided before all
//! nodes and pods were seen. Between two looks at everything, pods that come and go are added to the [`kept_capacity`].
//!
//! It keeps no state that matters for long: everything follows from Nodes, Pods, and the conditions and `unhealthyNodes` of Workloads. Only the node
//! that a pod left is kept until the next look, which writes it there.

pub(crate) mod asked;
pub(crate) mod asks;
pub(crate) mod brake;
pub(crate) mod capacity;
pub(crate) mod decide;
pub(crate) mod displaced;
pub(crate) mod exclusive;
pub(crate) mod facts;
pub(crate) mod free_capacity;
pub(crate) mod group_index;
pub(crate) mod health;
pub(crate) mod kept_capacity;
pub(crate) mod matching;
pub(crate) mod moves;
pub(crate) mod needs;
pub(crate) mod node_groups;
pub(crate) mod nodes_to_avoid;
pub(crate) mod planned;
pub(crate) mod pod;
pub(crate) mod pods;
pub(crate) mod report;
pub(crate) mod scope;
pub(crate) mod snapshot;
pub(crate) mod state;
pub(crate) mod watched;

use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_api::gates::Gate;
use sluice_api::slim;
use sluice_core::{Name, WorkloadKey};

use crate::engine::{Alarm, Engine};
use crate::hotswap::group_index::Said;
use crate::hotswap::matching::ChangedLabel;
use crate::hotswap::pod::Allocatable;

/// Pods and Workloads change in swarms, and a look goes through all of them: their changes cause a look at most this often, except for changes that
/// limits and moves depend on.
const SWARM_INTERVAL: SignedDuration = SignedDuration::from_secs(1);
/// Many nodes fail and come at once: the first is looked at in its cycle, and those that follow within this time after a look together. See
/// [`nodes_interval`].
const NODES_INTERVAL: SignedDuration = SignedDuration::from_millis(100);
/// For this many nodes and pods, looks are a millisecond apart.
const PASSED_PER_MILLISECOND: usize = 100;

/// How far apart looks for changes of nodes are where a look passes over this many nodes and pods: beyond 10,000 in proportion to them, so that looks
/// do not take a larger part of the time.
fn nodes_interval(passed: usize) -> SignedDuration {
    let apart = i64::try_from(passed / PASSED_PER_MILLISECOND).unwrap_or(i64::MAX);
    SignedDuration::from_millis(apart).max(NODES_INTERVAL)
}

/// What is another way with a node than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeChange {
    /// Nothing that the last look read: labels of other software, and without displaced pods taints and resources of no queue.
    Other,
    /// What the last look read to find nodes for displaced pods.
    Search,
    /// What it has for pods.
    Amounts,
    /// Something that matters to work that starts, too: see [`Engine::says_otherwise_what_to_avoid`].
    Avoid,
}

impl Engine {
    /// Flavors, queues or checks changed, or time passed that matters.
    pub(crate) fn hotswap_stale(&mut self) {
        self.hotswap.nodes_to_avoid.take();
        self.hotswap.outdated = None;
        self.hotswap_again();
    }

    /// What is another way with a node that was there before, with what it had and has for pods, and its labels that have changed.
    pub(crate) fn node_change(
        &self,
        (before, had): (&slim::Node, &Allocatable),
        (after, has): (&slim::Node, &Allocatable),
        labels: &[ChangedLabel<'_>],
    ) -> NodeChange {
        if self.says_otherwise_what_to_avoid(before, after, labels) {
            return NodeChange::Avoid;
        }
        let differs = |resource: &Name| had.get(resource) != has.get(resource);
        let other_amounts = had != has;
        if other_amounts && self.hotswap.flavors.values().flatten().any(differs) {
            return NodeChange::Amounts;
        }
        let Some(read) = &self.hotswap.selected_by else { return NodeChange::Other };
        let is_read = before.taints != after.taints
            || other_amounts
            || labels.iter().any(|(key, _)| read.contains(*key));
        if is_read { NodeChange::Search } else { NodeChange::Other }
    }

    /// A node, which had said this, came, changed or went.
    pub(crate) fn hotswap_node_changed(&mut self, name: &Name, said: Said, change: NodeChange) {
        if change == NodeChange::Avoid {
            self.node_to_avoid_changed(name, said);
        }
        if change == NodeChange::Other && self.hotswap.evaluated_at.is_some() {
            return;
        }
        if self.hotswap.planned.is_pending() {
            // The plan may be wrong by now.
            return self.hotswap_again();
        }
        self.hotswap_for_nodes();
    }

    /// The result of the last look may be out of date.
    fn hotswap_again(&mut self) {
        self.hotswap.stale = true;
        self.hotswap.resuming = false;
    }

    /// A cycle begins: what the last one had no time for continues.
    pub(crate) fn hotswap_goes_on(&mut self) {
        self.hotswap.steps = 0;
        self.hotswap.planned.begin_cycle();
        if self.hotswap.planned.is_pending() {
            return;
        }
        if std::mem::take(&mut self.hotswap.resumes) && !self.hotswap.stale {
            self.hotswap.stale = true;
            self.hotswap.resuming = true;
        }
    }

    /// Whether a look, or its plan, continues in the next cycle.
    pub(crate) fn hotswap_resumes(&self) -> bool {
        self.hotswap.resumes || self.hotswap.planned.is_pending()
    }

    /// A Workload came, changed or went; `same_room`: it takes the same as before.
    pub(crate) fn hotswap_workload_changed(&mut self, key: &WorkloadKey, same_room: bool) {
        if self.takes_groups_again(key) {
            self.hotswap_stale();
        } else if self.hotswap.planned.expects(key) {
            // There is a look when all moves are made.
        } else if self.hotswap.concerned.contains(key) && !same_room {
            self.hotswap_again();
        } else if self.hotswap.concerned.contains(key) {
            // Of many that are on the move, each is written several times.
            self.hotswap_for_nodes();
        } else if self.hotswap.degraded || !same_room && self.has_pods(key) {
            // What is there of its pods counts as quota from now on, or no longer does.
            self.hotswap_soon();
        }
    }

    /// A Workload is going to be evicted for its nodes: the room of a JobSet is kept from then on.
    pub(crate) fn hotswap_keeps_room(&mut self, key: &WorkloadKey) {
        let jobset = || self.world.workloads.get(key).and_then(|entry| self.world.jobset_of(key, entry));
        if !self.hotswap.flavors.is_empty() && jobset().is_some() {
            self.hotswap_again();
        }
    }

    /// Whether a Workload takes whole groups of nodes that no Workload in its queue took at the last look: they count for capacity
    /// only while they are whole.
    fn takes_groups_again(&self, key: &WorkloadKey) -> bool {
        if self.hotswap.flavors.is_empty() {
            return false;
        }
        let Some(entry) = self.world.workloads.get(key) else { return false };
        self.exclusive_use(key, entry).iter().any(|label| !self.hotswap.users.contains(label))
    }

    /// A pod of a node came, changed or went, and a look may find something else; or it runs for another job than was known.
    pub(crate) fn hotswap_pods_changed(&mut self) {
        if !self.hotswap.flavors.is_empty() {
            self.hotswap_soon();
        }
    }

    /// The next look is made as soon as the interval for swarms allows it.
    fn hotswap_soon(&mut self) {
        self.hotswap_within(SWARM_INTERVAL.max(self.nodes_interval()));
    }

    /// The same for the interval for nodes.
    fn hotswap_for_nodes(&mut self) {
        self.hotswap_within(self.nodes_interval());
    }

    fn nodes_interval(&self) -> SignedDuration {
        nodes_interval(self.world.nodes.len() + self.world.pods.len())
    }

    /// The next look is made once this interval has passed since the last one.
    fn hotswap_within(&mut self, interval: SignedDuration) {
        if self.hotswap.stale {
            self.hotswap.resuming = false;
            return;
        }
        let next = self.hotswap.evaluated_at.and_then(|at| at.checked_add(interval).ok());
        match next.filter(|next| *next > self.now) {
            Some(next) if self.hotswap.due.is_none_or(|due| next < due) => {
                self.hotswap.due = Some(next);
                self.wake_at(next, Alarm::Hotswap);
            }
            Some(_) => {}
            None => self.hotswap.stale = true,
        }
    }

    /// A summary of the state, for debugging.
    pub(crate) fn hotswap_state(&self) -> Value {
        let state = &self.hotswap;
        json!({
            "flavors": state.flavors.keys().map(|flavor| &**flavor).collect::<Vec<_>>(),
            "looks": state.evaluations,
            "goesOn": self.hotswap_resumes(),
            "lastLook": state.evaluated_at.map(|at| at.to_string()),
            "degraded": state.degraded,
            "concerned": state.concerned.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    }

    /// Looks at nodes and displaced work if something changed, or continues with what was planned; says whether it did.
    pub(crate) fn hotswap(&mut self) -> bool {
        if !self.decides() {
            return false;
        }
        if !self.hotswap.stale {
            // It may find that a look is due.
            self.set_changed_capacity();
        }
        if !self.hotswap.stale {
            return self.go_on_moving();
        }
        // If something has changed since the last look, its result may be out of date.
        let goes_on = std::mem::take(&mut self.hotswap.resuming) && self.hotswap.due.is_none();
        self.hotswap.again |= !goes_on && self.hotswap.results.has_tried();
        if !goes_on {
            self.hotswap.results.restart_cut();
        }
        self.hotswap.planned.drop_moves();
        self.hotswap.stale = false;
        self.hotswap.due = None;
        self.hotswap.evaluated_at = Some(self.now);
        self.hotswap.evaluations += 1;
        self.work.hotswap_looks += 1;
        if self.config.on(Gate::Hotswap) && self.config.scheduling {
            self.evaluate_nodes();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_further_apart_in_worlds_of_more_than_ten_thousand_nodes_and_pods() {
        let apart = |passed| nodes_interval(passed).as_millis();
        assert_eq!([0, 9_999, 10_000, 25_000, 150_000].map(apart), [100, 100, 100, 250, 1_500]);
        assert!(nodes_interval(usize::MAX) > SWARM_INTERVAL);
    }
}
