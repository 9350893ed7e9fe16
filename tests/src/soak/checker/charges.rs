//! Compares the charged amounts with the requests of pods: by their templates, and as they are on nodes.

use super::objects::Workload;
use super::{Checker, Rule, pod_sets};

impl Checker {
    /// A new admission charges what the pods of the Workload need by its own spec.
    pub(super) fn judge_charge(&mut self, key: &str, before: &Workload, now: &Workload) {
        let is_new = !before.reserved || before.admission != now.admission;
        if !now.reserved || now.finished || !is_new {
            return;
        }
        if let Some(text) = pod_sets::mischarge(&now.sets) {
            self.note(Rule::Mischarged, key, text);
        }
    }

    /// The pods of this job that are on nodes, not more than it is admitted with: together they ask for no more than is charged.
    pub(super) fn judge_asks(&mut self, key: &str, live: &[String], covering: &Workload) {
        let needs = pod_sets::needs(&covering.sets);
        let mut asks = crate::amounts::Amounts::new();
        for (resource, amount) in live.iter().flat_map(|key| &self.pods[key].asks) {
            *asks.entry(resource.clone()).or_default() += amount;
        }
        let above = asks.iter().find(|(resource, asks)| **asks > needs.get(*resource).copied().unwrap_or(0));
        if let Some((resource, asks)) = above {
            let charged = needs.get(resource).copied().unwrap_or_default();
            let text = format!(
                "{live:?} ask for {asks} thousandths of {resource}, and its job is charged {charged}"
            );
            self.note(Rule::Mischarged, key, text);
        }
    }
}
