//! Node affinity that admission adds (not in Kueue).
//!
//! A batch Job's template gets it at start and loses it at stop. The affinity in a JobSet's templates cannot change after creation, but annotations
//! can: so its templates carry the wish ([`Wish`]), and the webhook of pods applies it.

use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorTerm, PreferredSchedulingTerm,
};
use serde::{Deserialize, Serialize};

/// The weight of a preference that outweighs all others.
const MOST: i32 = 100;

/// The content of the annotation `sluice.dev/node-affinity` of a pod template.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Wish {
    /// How often the JobSet had restarted when it was started.
    pub restarts: i32,
    /// What to add.
    pub node_affinity: NodeAffinity,
}

impl Wish {
    /// The affinity that a pod gets. A requirement at the start is only a preference after a restart: by then other nodes may be better.
    pub fn granted(self, restarts: i32) -> NodeAffinity {
        let mut adds = self.node_affinity;
        if restarts == self.restarts {
            return adds;
        }
        let once = adds.required_during_scheduling_ignored_during_execution.take();
        let preferred = adds.preferred_during_scheduling_ignored_during_execution.get_or_insert_default();
        let terms = once.into_iter().flat_map(|required| required.node_selector_terms);
        preferred.extend(terms.map(|preference| PreferredSchedulingTerm { preference, weight: MOST }));
        adds
    }
}

/// A node affinity with more terms: all of what is required, and both preferences.
pub(crate) fn joined(base: Option<&NodeAffinity>, adds: &NodeAffinity) -> NodeAffinity {
    let mut joined = base.cloned().unwrap_or_default();
    if let Some(more) = &adds.required_during_scheduling_ignored_during_execution {
        let own = joined.required_during_scheduling_ignored_during_execution.take();
        joined.required_during_scheduling_ignored_during_execution = Some(both(own, more));
    }
    if let Some(more) = &adds.preferred_during_scheduling_ignored_during_execution {
        let own = joined.preferred_during_scheduling_ignored_during_execution.get_or_insert_default();
        own.extend(more.iter().filter(|term| !own.contains(term)).cloned().collect::<Vec<_>>());
    }
    joined
}

/// Terms are alternatives: each term of one with each of the other. An empty term selects no node, and stays so.
fn both(own: Option<NodeSelector>, more: &NodeSelector) -> NodeSelector {
    let Some(own) = own else { return more.clone() };
    let empty = |term: &NodeSelectorTerm| term.match_expressions.is_none() && term.match_fields.is_none();
    let join = |a: &NodeSelectorTerm, b: &NodeSelectorTerm| {
        if empty(a) || empty(b) {
            return NodeSelectorTerm::default();
        }
        let mut term = a.clone();
        term.match_expressions.get_or_insert_default().extend(b.match_expressions.iter().flatten().cloned());
        term.match_fields = match (term.match_fields, &b.match_fields) {
            (Some(fields), more) => Some(fields.into_iter().chain(more.iter().flatten().cloned()).collect()),
            (None, more) => more.clone(),
        };
        term
    };
    let pairs =
        own.node_selector_terms.iter().flat_map(|a| more.node_selector_terms.iter().map(move |b| (a, b)));
    NodeSelector { node_selector_terms: pairs.map(|(a, b)| join(a, b)).collect() }
}

/// An affinity with more terms for nodes.
pub(crate) fn with_nodes(base: Option<&Affinity>, adds: &NodeAffinity) -> Affinity {
    let mut affinity = base.cloned().unwrap_or_default();
    affinity.node_affinity = Some(joined(affinity.node_affinity.as_ref(), adds));
    affinity
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn affinity(value: &Value) -> NodeAffinity {
        serde_json::from_value(value.clone()).unwrap()
    }

    fn required(keys: &[&str]) -> Value {
        let terms: Vec<_> = keys
            .iter()
            .map(|key| json!({"matchExpressions": [{"key": key, "operator": "Exists"}]}))
            .collect();
        json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}})
    }

    #[test]
    fn what_is_required_holds_in_each_alternative() {
        let joined = joined(Some(&affinity(&required(&["a", "b"]))), &affinity(&required(&["c"])));
        let terms =
            json!(joined)["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"].clone();
        let keys: Vec<Vec<&str>> = terms
            .as_array()
            .unwrap()
            .iter()
            .map(|t| {
                t["matchExpressions"].as_array().unwrap().iter().map(|e| e["key"].as_str().unwrap()).collect()
            })
            .collect();
        assert_eq!(keys, [["a", "c"], ["b", "c"]]);
    }

    #[test]
    fn a_term_that_selects_nothing_still_does() {
        let nothing = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}});
        let joined = joined(Some(&affinity(&nothing)), &affinity(&required(&["c"])));
        assert_eq!(json!(joined), nothing);
    }

    #[test]
    fn what_was_required_at_the_start_is_preferred_after_a_restart() {
        let wish = Wish { restarts: 2, node_affinity: affinity(&required(&["a"])) };
        assert_eq!(json!(wish.clone().granted(2)), required(&["a"]));
        let later = json!({"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 100, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}]});
        assert_eq!(json!(wish.granted(3)), later);
    }
}
