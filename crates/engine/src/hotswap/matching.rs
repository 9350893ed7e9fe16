//! Which nodes take which pods: node selector, required node affinity, taints.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;
use sluice_api::slim;
use sluice_core::{AffinityTerm, Amount, Expression, Name};
use sluice_quantity::is_extended;
use sluice_selector::{Term, TolerationOperator, any_term_holds, is_tolerated, labels_hold};

/// The value of a label of a node.
pub(crate) fn label<'a>(node: &'a slim::Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// Whether a node has these labels.
pub(crate) fn has_labels(node: &slim::Node, wanted: &BTreeMap<String, String>) -> bool {
    let wanted = wanted.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    labels_hold(wanted, |key| label(node, key))
}

/// A label that has changed, by its key, and its value after that, if it has one.
pub(crate) type ChangedLabel<'a> = (&'a str, Option<&'a str>);

/// The labels of a node that have changed, in order.
pub(crate) fn changed_labels<'a>(before: &'a slim::Node, after: &'a slim::Node) -> Vec<ChangedLabel<'a>> {
    let labels = |node: &'a slim::Node| node.metadata.labels.iter().flatten().peekable();
    let (mut old, mut new) = (labels(before), labels(after));
    let mut changed = Vec::new();
    while let Some(key) = [old.peek(), new.peek()].into_iter().flatten().map(|(key, _)| *key).min() {
        let had = old.next_if(|(other, _)| *other == key).map(|(_, value)| value);
        let has = new.next_if(|(other, _)| *other == key).map(|(_, value)| value);
        if had != has {
            changed.push((key.as_str(), has.map(String::as_str)));
        }
    }
    changed
}

/// Whether a required node affinity with these terms holds.
pub(crate) fn has_affinity(node: &slim::Node, terms: &[AffinityTerm]) -> bool {
    any_term_holds(terms, |term| {
        let labels = term.expressions.iter().map(Expression::requirement);
        let term = Term { labels, fields: term.fields.iter().map(Expression::requirement) };
        term.holds(node.metadata.name.as_deref(), |key| label(node, key))
    })
}

fn text(text: Option<&String>) -> &str {
    text.map(String::as_str).unwrap_or_default()
}

/// Whether pods with these tolerations, which use `requests` of a node, may run on it.
pub(crate) fn tolerates(node: &slim::Node, tolerations: &[Toleration], requests: &[(Name, Amount)]) -> bool {
    let asked = |key: &str| is_extended(key) && requests.iter().any(|(resource, _)| **resource == *key);
    let tolerations = tolerations.iter().map(|one| sluice_selector::Toleration {
        key: text(one.key.as_ref()),
        operator: TolerationOperator::named(text(one.operator.as_ref())),
        value: text(one.value.as_ref()),
        effect: text(one.effect.as_ref()),
    });
    node.taints.iter().all(|taint| {
        let taint = sluice_selector::Taint {
            key: &taint.key,
            value: text(taint.value.as_ref()),
            effect: &taint.effect,
        };
        is_tolerated(&taint, tolerations.clone(), asked)
    })
}

#[cfg(test)]
mod tests;
