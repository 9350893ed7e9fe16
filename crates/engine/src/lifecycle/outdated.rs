//! A decision of the core is about a Workload as it was then. If what it depends on is another before the decision is written, nothing of it is, and
//! the core decides again.

use sluice_api::slim;
use sluice_core::WorkloadKey;

use crate::config::EngineConfig;
use crate::engine::Engine;
use crate::hotswap::report::is_for_nodes;
use crate::hotswap::snapshot::released;
use crate::ingest::workload::{admission_gates, priority_boost};
use crate::world::Decision;

/// Whether a decision about a Workload as it was `before` is none about it as it is `now`.
fn is_outdated(
    decision: &Decision,
    before: &slim::Workload,
    now: &slim::Workload,
    config: &EngineConfig,
) -> bool {
    let (was, is) = (&before.status, &now.status);
    match decision {
        // Its queue, its pods or its priority are others, or it is gated: the API server, which takes the write for the version that was seen last,
        // does not notice that.
        Decision::Reserve { .. } => {
            let by_annotations = |object| (priority_boost(object), admission_gates(object, config));
            before.spec != now.spec
                || was.reclaimable_pods != is.reclaimable_pods
                || by_annotations(before) != by_annotations(now)
        }
        // A node that is back keeps its pods.
        Decision::Place(..) => was.admission != is.admission || was.unhealthy_nodes != is.unhealthy_nodes,
        // What it would take the quota from has given that back.
        Decision::Evict(..) => released(was, is),
    }
}

impl Engine {
    /// Drops what was decided about a Workload and is not written yet, if it is about another state than is `seen` now.
    pub(crate) fn forget_outdated_decision(&mut self, key: &WorkloadKey, seen: &slim::Workload) {
        let Some(entry) = self.world.workloads.get_mut(key) else { return };
        let known = &entry.object;
        let config = &self.config;
        let outdated = entry.decision.take_if(|decision| is_outdated(decision, known, seen, config));
        if matches!(outdated.as_deref(), Some(Decision::Reserve { .. })) {
            self.reservation_failed(key);
            self.request_cycle();
        }
    }

    /// Drops a reservation that is not written yet: the core decides again.
    pub(super) fn forget_reservation(&mut self, key: &WorkloadKey) {
        let Some(entry) = self.world.workloads.get_mut(key) else { return };
        let is_reservation = |decision: &mut Box<Decision>| matches!(**decision, Decision::Reserve { .. });
        if entry.decision.take_if(is_reservation).is_some() {
            self.reservation_failed(key);
            self.request_cycle();
        }
    }

    /// Drops a decision about nodes whose write failed, once the pause after that is over: the nodes may be back since, and nodes that the API server
    /// refuses do not hold up everything else for good. What still applies is decided again.
    pub(super) fn forget_failed_decision(&mut self, key: &WorkloadKey) {
        let Some(entry) = self.world.workloads.get_mut(key).filter(|entry| entry.retry.until().is_some())
        else {
            return;
        };
        let refused = entry.retry.is_refused();
        let dropped = entry.decision.take_if(|decision| match &**decision {
            Decision::Reserve { .. } => false,
            Decision::Place(..) => refused,
            Decision::Evict(eviction, _) => is_for_nodes(eviction),
        });
        if dropped.is_some() {
            self.sync_core(key);
            self.hotswap_stale();
        }
    }
}
