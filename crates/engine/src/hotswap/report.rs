//! What is written and reported: evictions with their reasons, and the lists of lost nodes.

use sluice_api::conditions::reason;
use sluice_api::v1beta2::UnhealthyNode;
use sluice_core::{Name, NotMoved, WorkloadKey};

use super::decide::Action;
use super::planned::Move;
use super::snapshot::leaves;
use crate::account::WhyNotMoved;
use crate::effect::{Effect, Level, Purpose};
use crate::engine::Engine;
use crate::lifecycle::decisions::priorities;
use crate::lifecycle::transition::Eviction;
use crate::metrics;
use crate::outbox::{About, normal, observe, warning};
use crate::world::{Decision, WorkloadEntry};

/// The reason of the condition Preempted of Workloads that are evicted to make room for displaced ones.
const OUT_OF_COHORT_RECLAMATION: &str = "OutOfCohortReclamation";
/// The reason of the event that says why nothing is done.
const NOT_MOVED: &str = "HotswapNotPossible";
/// The highest number of unhealthy nodes in a status (docs/reference/01-api.md 1.5).
pub(crate) const MOST_LISTED: usize = 8;
/// The longest name of an unhealthy node in a status, in characters. Names of Nodes may be longer.
const LONGEST_LISTED: usize = 63;

/// Whether an eviction is for lost nodes: of a Workload on them, or of one that makes room for such a Workload.
pub(crate) fn is_for_nodes(eviction: &Eviction) -> bool {
    eviction.reason == reason::NODE_FAILURES || eviction.preemption == Some(OUT_OF_COHORT_RECLAMATION)
}

/// The first few names of many.
pub(crate) fn shown<T: AsRef<str>>(nodes: &[T]) -> String {
    let first: Vec<&str> = nodes.iter().take(MOST_LISTED).map(AsRef::as_ref).collect();
    match nodes.len().checked_sub(MOST_LISTED) {
        Some(more @ 1..) => format!("{} and {more} more", first.join(", ")),
        _ => first.join(", "),
    }
}

impl Engine {
    /// Carries out the result of an evaluation.
    pub(super) fn act(&mut self, action: Action) {
        match action {
            Action::Move(Move { key, nodes, victims }) => {
                // Victims first: after a crash in between, the next leader finds their room free, and the move still to be made.
                for victim in &victims {
                    self.preempt_for(&key, victim);
                }
                self.leave_nodes(&key, &nodes, victims.len());
            }
            Action::List { key, nodes, why } => self.list_nodes(&key, &nodes, why),
        }
    }

    /// Evicts a victim.
    pub(crate) fn preempt_for(&mut self, by: &WorkloadKey, victim: &WorkloadKey) {
        let Some(entry) = self.world.workloads.get(victim) else { return };
        let Some(preemptor) = self.world.workloads.get(by) else { return };
        let known = |uid: Option<Name>| uid.filter(|u| !u.is_empty()).unwrap_or_else(|| "UNKNOWN".into());
        let queue = |key, entry| self.queue_for(key, entry).unwrap_or_else(|| "".into());
        let (own, other) = (queue(by, preemptor), queue(victim, entry));
        let message = format!(
            "Preempted to accommodate a workload (UID: {}, JobUID: {}) due to reclamation out of the cohort for work on \
             failing nodes; preemptor path: {}; preemptee path: {}",
            known(Some(preemptor.uid())),
            known(preemptor.controller_uid().map(Name::from)),
            self.path_of(&own),
            self.path_of(&other),
        );
        let who = format!(
            "{}; {}",
            priorities("preemptor", preemptor, &self.config),
            priorities("preemptee", entry, &self.config)
        );
        let note =
            format!("Preempted workload {victim} (UID: {}) in ClusterQueue {other}; {who}", entry.uid());
        let reported = |of: &WorkloadKey, entry: &WorkloadEntry, why: &str, note: &str| {
            normal(About::admission(of, &entry.uid()), why, note)
        };
        let more = vec![
            reported(victim, entry, reason::PREEMPTED, &format!("{message}; {who}")),
            reported(by, preemptor, "PreemptedWorkload", &note),
            observe(metrics::PREEMPTED_WORKLOADS_TOTAL, &[&own, OUT_OF_COHORT_RECLAMATION], 1.0),
        ];
        let eviction = Eviction {
            reason: reason::PREEMPTED,
            cause: String::new(),
            message,
            preemption: Some(OUT_OF_COHORT_RECLAMATION),
        };
        self.decide(victim, Decision::Evict(eviction, more));
        self.touch_workload(victim);
    }

    /// Evicts a displaced Workload, which is admitted again where there is room.
    fn leave_nodes(&mut self, key: &WorkloadKey, nodes: &[String], victims: usize) {
        let Some(entry) = self.world.workloads.get(key) else { return };
        if nodes.is_empty() || leaves(entry) {
            return;
        }
        let message = format!("Workload was evicted to leave unhealthy node(s): {}", shown(nodes));
        let more = vec![self.log(
            Level::Info,
            "hotswap",
            &[("workload", key), ("nodes", &shown(nodes)), ("victims", &victims)],
        )];
        let eviction =
            Eviction { reason: reason::NODE_FAILURES, cause: String::new(), message, preemption: None };
        self.decide(key, Decision::Evict(eviction, more));
        self.touch_workload(key);
    }

    /// `/root/…/queue`.
    fn path_of(&self, queue: &str) -> String {
        let above = self.cohorts_above(queue);
        let mut path = String::new();
        for name in above.iter().rev().map(|cohort| &**cohort).chain([queue]) {
            path.push('/');
            path.push_str(name);
        }
        path
    }

    /// Keeps the list of lost nodes in the status, and says why nothing is done when either is new.
    fn list_nodes(&mut self, key: &WorkloadKey, nodes: &[String], why: Option<NotMoved>) {
        let Some(entry) = self.world.workloads.get(key) else { return };
        let listed = nodes.iter().filter(|name| name.len() <= LONGEST_LISTED).take(MOST_LISTED);
        let same = entry.status().unhealthy_nodes.iter().map(|n| &n.name).eq(listed.clone())
            || self.replaces_nodes(key);
        let busy = entry.open.is_some() || entry.decision.is_some() || entry.retry.waits(self.now);
        let reported = self.hotswap.reported.get(key);
        let known = why.as_ref().is_none_or(|why| reported.is_some_and(|reported| reported.is_like(why)));
        let done = if same { known } else { busy };
        if done {
            // Later explanations have the latest numbers.
            if let Some(why) = why.filter(|_| known) {
                self.hotswap.reported.insert(key.clone(), why);
            }
            return;
        }
        let mut next = entry.status().clone();
        next.unhealthy_nodes = listed.map(|name| UnhealthyNode { name: name.clone() }).collect();
        let then = why.as_ref().map(|why| self.not_moved(key, entry, nodes, why)).unwrap_or_default();
        if let Some(why) = why {
            self.hotswap.reported.insert(key.clone(), why);
        }
        if same {
            for effect in then {
                self.outbox.push(effect);
            }
        } else {
            self.write_status(key, Purpose::UnhealthyNodes, next, then);
        }
    }

    /// Why a Workload was not moved away from the nodes that it lost, if that was decided.
    pub(crate) fn why_not_moved(&self, key: &WorkloadKey) -> Option<WhyNotMoved> {
        let why = self.hotswap.reported.get(key)?;
        let no_room = matches!(why, NotMoved::NoNodes(_));
        Some(WhyNotMoved {
            text: self.not_moved_words(why),
            barred: why.barred().map(str::to_owned),
            no_room,
        })
    }

    fn not_moved_words(&self, why: &NotMoved) -> String {
        match why {
            NotMoved::Brake => format!(
                "more than {} % of the flavor's nodes look unhealthy, so nothing is evicted",
                self.config.hotswap.max_unhealthy_percent
            ),
            NotMoved::NoNodes(placed) => {
                let placed = placed.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
                format!(
                    "no healthy nodes are free for it, even if all workloads of lower priority were evicted{placed}"
                )
            }
            NotMoved::TooLong => {
                "the search for healthy nodes, and for workloads of lower priority that could be preempted, was given up: it takes too many \
                 cycles, as there are too many of them"
                    .to_owned()
            }
            NotMoved::NoQuota | NotMoved::Barred(_) => {
                format!("it could not be admitted again: {}", why.barred().unwrap_or_default())
            }
        }
    }

    fn not_moved(
        &self,
        key: &WorkloadKey,
        entry: &WorkloadEntry,
        nodes: &[String],
        why: &NotMoved,
    ) -> Vec<Effect> {
        let nodes = shown(nodes);
        let why = self.not_moved_words(why);
        let note = format!("Pods are on unhealthy node(s) {nodes}: {why}");
        let reported = warning(About::workload(key, &entry.uid()), NOT_MOVED, &note);
        vec![reported, self.log(Level::Warn, "hotswap not possible", &[("workload", key), ("why", &note)])]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_eight_nodes_are_named() {
        let names = |n: usize| (1..=n).map(|i| i.to_string()).collect::<Vec<_>>();
        assert_eq!(shown(&names(2)), "1, 2");
        assert_eq!(shown(&names(8)), "1, 2, 3, 4, 5, 6, 7, 8");
        assert_eq!(shown(&names(9)), "1, 2, 3, 4, 5, 6, 7, 8 and 1 more");
    }
}
