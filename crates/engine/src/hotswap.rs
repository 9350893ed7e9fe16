//! Hotswap (ours, gate `Hotswap`): jobs leave failing nodes, with room made by evicting Workloads of lower priority if no room is free.
//!
//! It acts for the flavors in [`scope`]. What [`health`] says of their nodes makes their [`capacity`], which admissions need
//! besides quota. A JobSet whose nodes fail is [`displaced`]: it is evicted and admitted again if the healthy nodes have
//! room for it, or would have without [`victims`] of lower priority. The [`brake`] holds when most nodes look bad, and nothing
//! is decided before all nodes and pods were seen.
//!
//! It has no memory that matters for long: everything follows from Nodes, Pods, and the conditions and `unhealthyNodes` of
//! Workloads; only which node a pod left is kept in mind until the next look, which writes it there.

pub(crate) mod brake;
pub(crate) mod capacity;
pub(crate) mod decide;
pub(crate) mod displaced;
pub(crate) mod free_capacity;
pub(crate) mod health;
pub(crate) mod needs;
pub(crate) mod nodes_to_avoid;
pub(crate) mod pods;
pub(crate) mod quota;
pub(crate) mod report;
pub(crate) mod scope;
pub(crate) mod search;
pub(crate) mod snapshot;
pub(crate) mod victims;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice_api::gates::Gate;
use sluice_core::{Name, WorkloadKey};

use crate::engine::{Alarm, Engine};

/// Pods and Workloads come and go in swarms, and a look goes through all of them: what they change is worked out at most this often,
/// but for what limits and moves depend on.
const SWARM_INTERVAL: SignedDuration = SignedDuration::from_secs(1);

/// Names that nothing uses any more are forgotten once there are so many more than twice those in use.
const MOST_UNUSED: usize = 64;

/// What is kept between two looks.
#[expect(clippy::struct_excessive_bools, reason = "independent facts, not one state")]
#[derive(Clone, Debug, Default)]
pub(crate) struct HotswapState {
    /// Something changed that decisions depend on.
    stale: bool,
    /// When it was last looked.
    evaluated_at: Option<Timestamp>,
    /// How often it was.
    evaluations: u64,
    /// The last look did not reach all displaced Workloads: it goes on in the next cycle.
    resumes: bool,
    /// The look that is due goes on with the last one, and nothing else has changed.
    resuming: bool,
    /// The Workloads for which the looks since then found nothing.
    tried: BTreeSet<WorkloadKey>,
    /// Something changed meanwhile: once all had their turn, all have it again.
    again: bool,
    /// What the searches of this cycle have looked at.
    steps: u64,
    /// A look is due because of a swarm, and will be woken.
    due: bool,
    /// Some node of a flavor in scope is not healthy, or a Workload is displaced: changes of Workloads matter, too.
    degraded: bool,
    /// The Workloads whose every change matters at once: the displaced ones, those that make room for them, and those with pods on nodes that do
    /// not count.
    concerned: BTreeSet<WorkloadKey>,
    /// The flavors in scope at the last look.
    flavors: BTreeSet<Name>,
    /// What was known about nodes at the last look.
    nodes_to_avoid: nodes_to_avoid::NodesToAvoid,
    /// The ClusterQueues with JobSets that take whole groups of nodes, and the labels that make those, as of the last look.
    users: BTreeSet<(Name, String)>,
    /// The nodes that pods left while their Workload ran, until as many run again or the node is healthy.
    left: BTreeMap<WorkloadKey, BTreeSet<Name>>,
    /// Why each Workload that stays on lost nodes does so, as its last event said.
    reported: BTreeMap<WorkloadKey, decide::NotMoved>,
    /// The names of nodes and resources that pods use, shared.
    names: BTreeSet<Name>,
    /// How many of them were in use when that was last counted.
    names_used: usize,
}

impl HotswapState {
    /// The shared copy of a name.
    fn intern(&mut self, name: &str) -> Name {
        if let Some(known) = self.names.get(name) {
            return Name::clone(known);
        }
        // Those of pods and nodes that are gone are forgotten from time to time.
        if self.names.len() > 2 * self.names_used + MOST_UNUSED {
            self.names.retain(|name| Arc::strong_count(name) > 1);
            self.names_used = self.names.len();
        }
        let name = Name::from(name);
        self.names.insert(Name::clone(&name));
        name
    }
}

impl Engine {
    /// Nodes, flavors, queues or checks changed, or time passed that matters.
    pub(crate) fn hotswap_stale(&mut self) {
        self.hotswap.stale = true;
        self.hotswap.resuming = false;
    }

    /// A cycle begins: what the last one had no time for goes on.
    pub(crate) fn hotswap_goes_on(&mut self) {
        self.hotswap.steps = 0;
        if std::mem::take(&mut self.hotswap.resumes) && !self.hotswap.stale {
            self.hotswap.stale = true;
            self.hotswap.resuming = true;
        }
    }

    /// Whether a look is to go on in the next cycle.
    pub(crate) fn hotswap_resumes(&self) -> bool {
        self.hotswap.resumes
    }

    /// A Workload came, changed or went.
    pub(crate) fn hotswap_workload_changed(&mut self, key: &WorkloadKey) {
        if self.hotswap.concerned.contains(key) || self.takes_groups_anew(key) {
            self.hotswap_stale();
        } else if self.hotswap.degraded {
            self.hotswap_soon();
        }
    }

    /// Whether a Workload takes whole groups of nodes that no Workload in its queue took at the last look: they count for capacity
    /// only while they are whole.
    fn takes_groups_anew(&self, key: &WorkloadKey) -> bool {
        if self.hotswap.flavors.is_empty() {
            return false;
        }
        let Some(entry) = self.world.workloads.get(key) else { return false };
        self.exclusive_use(key, entry).iter().any(|label| !self.hotswap.users.contains(label))
    }

    /// A pod of a node came or went.
    pub(crate) fn hotswap_pods_changed(&mut self) {
        if !self.hotswap.flavors.is_empty() {
            self.hotswap_soon();
        }
    }

    /// The next look is made as soon as swarms may have one.
    fn hotswap_soon(&mut self) {
        if self.hotswap.stale {
            self.hotswap.resuming = false;
            return;
        }
        let next = self.hotswap.evaluated_at.and_then(|at| at.checked_add(SWARM_INTERVAL).ok());
        match next.filter(|next| *next > self.now) {
            Some(next) if !self.hotswap.due => {
                self.hotswap.due = true;
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
            "flavors": state.flavors.iter().map(|flavor| &**flavor).collect::<Vec<_>>(),
            "looks": state.evaluations,
            "goesOn": state.resumes,
            "lastLook": state.evaluated_at.map(|at| at.to_string()),
            "degraded": state.degraded,
            "concerned": state.concerned.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    }

    /// Looks at nodes and displaced work if something changed; says whether it did.
    pub(crate) fn hotswap(&mut self) -> bool {
        if !self.hotswap.stale || !self.decides() {
            return false;
        }
        let goes_on = std::mem::take(&mut self.hotswap.resuming);
        self.hotswap.again |= !goes_on && !self.hotswap.tried.is_empty();
        self.hotswap.stale = false;
        self.hotswap.due = false;
        self.hotswap.evaluated_at = Some(self.now);
        self.hotswap.evaluations += 1;
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
    fn names_that_nothing_uses_any_more_are_forgotten() {
        let mut state = HotswapState::default();
        let kept: Vec<Name> = (0..10).map(|n| state.intern(&format!("node-{n}"))).collect();
        for n in 0..100_000 {
            state.intern(&format!("gone-{n}"));
        }
        assert!(state.names.len() <= 2 * (kept.len() + MOST_UNUSED), "{}", state.names.len());
        assert!(Arc::ptr_eq(&kept[3], &state.intern("node-3")), "those in use are shared still");
    }
}
