//! What the core's search for displaced Workloads asks about objects: when the brake holds, and which Workloads could be preempted.

use std::collections::BTreeSet;

use sluice_api::conditions::{self, WorkloadCondition as Type};
use sluice_core::{Candidate, HotswapFacts, Name};

use super::brake;
use super::displaced::for_nodes;
use super::scope::Scope;
use super::snapshot::{Snapshot, uses};
use crate::engine::Engine;
use crate::ingest::time;
use crate::ingest::workload::effective_priority;

/// The objects of a look.
pub(super) struct Facts<'s, 'a> {
    /// The engine that has them.
    pub engine: &'a Engine,
    /// For which flavors and queues Hotswap acts.
    pub scope: &'s Scope,
    /// What the look has seen.
    pub snapshot: &'s Snapshot<'a>,
}

impl<'a> HotswapFacts<'a> for Facts<'_, 'a> {
    /// Those nodes of the flavor included that are gone from under their pods.
    fn brake_holds(&self, flavor: &Name) -> bool {
        let (engine, snapshot) = (self.engine, self.snapshot);
        let Some(object) = engine.world.flavors.get(flavor) else { return false };
        let (mut all, mut bad) = (0, 0);
        for node in snapshot.of_flavor(flavor, &object.spec.node_labels).iter() {
            all += 1;
            bad += usize::from(snapshot.nodes[*node].health.looks_bad());
        }
        let left = snapshot.workloads.iter().filter_map(|one| {
            let mut left = one.pods.iter().filter(|seen| seen.node.is_none()).peekable();
            left.peek()?;
            uses(one.entry, flavor).then_some(left)
        });
        let gone: BTreeSet<&str> = left.flatten().map(|seen| &*seen.pod.node).collect();
        brake::holds(bad + gone.len(), all + gone.len(), engine.config.hotswap.max_unhealthy_percent)
    }

    fn acts_for(&self, flavor: &str) -> bool {
        self.scope.flavors.contains_key(flavor)
    }

    fn candidates(&self, below: i32) -> Vec<Candidate<'a>> {
        (0..self.snapshot.workloads.len()).filter_map(|at| self.candidate(at, below)).collect()
    }

    fn is_on(&self, workload: usize, is_one: impl Fn(usize) -> bool) -> bool {
        self.snapshot.workloads[workload].pods.iter().any(|seen| seen.node.is_some_and(&is_one))
    }

    fn leaves_for_good(&self, workload: usize) -> bool {
        !for_nodes(self.snapshot.workloads[workload].entry)
    }
}

impl<'a> Facts<'_, 'a> {
    /// The Workload with this number, if it can be preempted for one of this priority.
    fn candidate(&self, at: usize, below: i32) -> Option<Candidate<'a>> {
        let engine = self.engine;
        let workload = &self.snapshot.workloads[at];
        if workload.pods.is_empty() || workload.leaves {
            return None;
        }
        let (key, entry) = (workload.key, workload.entry);
        let priority = effective_priority(&entry.object, &engine.config);
        if priority >= below {
            return None;
        }
        let sets = entry.status().admission.iter().flat_map(|a| &a.pod_set_assignments);
        let flavors: Vec<&str> = sets.flat_map(|set| set.flavors.values()).map(String::as_str).collect();
        if !flavors.iter().any(|flavor| self.acts_for(flavor)) {
            return None;
        }
        let queue = engine.queue_name_for(key, entry)?;
        let reserved = conditions::true_since(&entry.status().conditions, Type::QuotaReserved.as_str());
        Some(Candidate {
            at,
            key,
            priority,
            reserved_at: time(reserved.unwrap_or(engine.now)),
            uid: entry.object.metadata.uid.as_deref().unwrap_or_default(),
            queue,
            flavors,
        })
    }
}
