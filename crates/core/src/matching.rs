//! Which flavors a pod set may use: taints, node selector and affinity, namespace selectors (docs/reference/06-algorithm.md 6.6).

use crate::Name;
use crate::reason::Refusal;
use crate::spec::{Expression, FlavorSpec, Selector, Taint, TaintEffect, Toleration};
use crate::workload::PodSetSpec;

/// Why the pod set may not use the flavor, if so.
pub(crate) fn refuse_flavor(flavor: &FlavorSpec, pod_set: &PodSetSpec) -> Option<Refusal> {
    let tolerated = |taint: &Taint| {
        pod_set.tolerations.iter().chain(&flavor.tolerations).any(|one| tolerates(one, taint))
    };
    if let Some(taint) = untolerated(&flavor.taints, tolerated) {
        return Some(Refusal::UntoleratedTaint { flavor: flavor.name.clone(), taint: taint.clone() });
    }
    if !matches_labels(flavor, pod_set) {
        return Some(Refusal::NodeAffinity { flavor: flavor.name.clone() });
    }
    None
}

/// The first taint that keeps pods away and is not tolerated. `PreferNoSchedule` does not count.
pub(crate) fn untolerated(taints: &[Taint], tolerated: impl Fn(&Taint) -> bool) -> Option<&Taint> {
    taints
        .iter()
        .filter(|taint| taint.effect != TaintEffect::PreferNoSchedule)
        .find(|taint| !tolerated(taint))
}

/// Whether a toleration tolerates a taint.
pub(crate) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let key = toleration.key.as_deref().unwrap_or("");
    let effect_matches = toleration.effect.is_none_or(|effect| effect == taint.effect);
    let key_matches = key.is_empty() || key == &*taint.key;
    effect_matches && key_matches && (toleration.exists || toleration.value == taint.value)
}

/// Node selector and required node affinity against the flavor's labels. Only keys that are labels of this flavor
/// count, not those of other flavors of its resource group; a term of which nothing is left makes the whole affinity
/// count for nothing.
fn matches_labels(flavor: &FlavorSpec, pod_set: &PodSetSpec) -> bool {
    let labels = &flavor.node_labels;
    let selected = pod_set
        .node_selector
        .iter()
        .all(|(key, value)| label(labels, key).is_none_or(|label| label == &**value));
    if !selected || pod_set.affinity.is_empty() {
        return selected;
    }
    let mut any = false;
    for term in &pod_set.affinity {
        let mut counted =
            term.expressions.iter().filter(|expression| label(labels, &expression.key).is_some()).peekable();
        if counted.peek().is_none() {
            return true;
        }
        any |= counted.all(|expression| holds(expression, labels));
    }
    any
}

/// Whether a node has all labels that the pod set's node selector names.
pub(crate) fn selects_node(pod_set: &PodSetSpec, labels: &[(Name, Name)]) -> bool {
    pod_set.node_selector.iter().all(|(key, value)| label(labels, key) == Some(&**value))
}

/// Whether a node's labels match the pod set's required node affinity, if it has one: all expressions of one term. A term
/// without expressions matches nothing.
pub(crate) fn affinity_holds(pod_set: &PodSetSpec, labels: &[(Name, Name)]) -> bool {
    let matches = |expressions: &[Expression]| {
        !expressions.is_empty() && expressions.iter().all(|expression| holds(expression, labels))
    };
    pod_set.affinity.is_empty() || pod_set.affinity.iter().any(|term| matches(&term.expressions))
}

/// Whether labels are selected.
pub(crate) fn selects(selector: &Selector, labels: &[(Name, Name)]) -> bool {
    selector.match_labels.iter().all(|(key, value)| label(labels, key) == Some(value))
        && selector.expressions.iter().all(|expression| holds(expression, labels))
}

/// The value of a label.
pub(crate) fn label<'a>(labels: &'a [(Name, Name)], key: &str) -> Option<&'a str> {
    labels.iter().find(|(other, _)| &**other == key).map(|(_, value)| &**value)
}

fn holds(expression: &Expression, labels: &[(Name, Name)]) -> bool {
    expression.op.holds(label(labels, &expression.key), expression.values.iter().map(|value| &**value))
}
