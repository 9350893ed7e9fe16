//! Which flavors a pod set may use: taints, node selector and affinity, namespace selectors (docs/reference/06-algorithm.md 6.6).

use sluice_quantity::is_extended;
use sluice_selector::{Term, any_term_holds, labels_hold};

use crate::Name;
use crate::reason::Refusal;
use crate::spec::{Expression, FlavorSpec, Selector, Taint, TaintEffect, Toleration};
use crate::workload::{AffinityTerm, PodSetSpec, PreferredTerm};

/// Why the pod set may not use the flavor, if so. A taint of an extended resource that its pods ask for is no reason: the API server lets them
/// tolerate it (admission plugin `ExtendedResourceToleration`), as on the nodes themselves.
pub(crate) fn refuse_flavor(flavor: &FlavorSpec, pod_set: &PodSetSpec) -> Option<Refusal> {
    let requests = pod_set.node_requests.as_ref().unwrap_or(&pod_set.requests);
    let asked = |key: &str| is_extended(key) && requests.iter().any(|(name, _)| **name == *key);
    let tolerated =
        |taint: &Taint| is_tolerated(taint, pod_set.tolerations.iter().chain(&flavor.tolerations), asked);
    if let Some(taint) = flavor.taints.iter().find(|taint| !tolerated(taint)) {
        return Some(Refusal::UntoleratedTaint { flavor: flavor.name.clone(), taint: taint.clone() });
    }
    if !matches_labels(flavor, pod_set) {
        return Some(Refusal::NodeAffinity { flavor: flavor.name.clone() });
    }
    None
}

/// Whether pods with these tolerations may run on a node with a taint; `asked` returns whether they request an extended resource of a name.
pub(crate) fn is_tolerated<'a>(
    taint: &Taint,
    tolerations: impl IntoIterator<Item = &'a Toleration>,
    asked: impl FnOnce(&str) -> bool,
) -> bool {
    let taint =
        sluice_selector::Taint { key: &taint.key, value: &taint.value, effect: taint.effect.as_str() };
    let tolerations = tolerations.into_iter().map(|one| sluice_selector::Toleration {
        key: one.key.as_deref().unwrap_or_default(),
        operator: Some(one.operator),
        value: &one.value,
        effect: one.effect.map(TaintEffect::as_str).unwrap_or_default(),
    });
    sluice_selector::is_tolerated(&taint, tolerations, asked)
}

/// Node selector and required node affinity against the flavor's labels. Only keys that are labels of this flavor count, not those of other flavors
/// of its resource group; a term without such keys makes the whole affinity irrelevant.
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
            term.expressions.iter().filter(|expression| label(labels, expression.key()).is_some()).peekable();
        if counted.peek().is_none() {
            return true;
        }
        any |= counted.all(|expression| holds(expression, labels));
    }
    any
}

/// Whether a node has all labels that the pod set's node selector names.
pub(crate) fn selects_node(pod_set: &PodSetSpec, labels: &[(Name, Name)]) -> bool {
    let wanted = pod_set.node_selector.iter().map(|(key, value)| (&**key, &**value));
    labels_hold(wanted, |key| label(labels, key))
}

/// Whether a node with this name and these labels matches the pod set's required node affinity, if it has one.
pub(crate) fn affinity_holds(pod_set: &PodSetSpec, name: Option<&str>, labels: &[(Name, Name)]) -> bool {
    any_term_holds(&pod_set.affinity, |term| term_holds(term, name, labels))
}

/// The score of a node with this name and these labels by preferred node affinity: the sum of the weights of matching terms.
pub(crate) fn affinity_score(terms: &[PreferredTerm], name: Option<&str>, labels: &[(Name, Name)]) -> i64 {
    let holds = |one: &&PreferredTerm| term_holds(&one.term, name, labels);
    terms.iter().filter(holds).fold(0, |score, one| score.saturating_add(i64::from(one.weight)))
}

fn term_holds(term: &AffinityTerm, name: Option<&str>, labels: &[(Name, Name)]) -> bool {
    let term = Term {
        labels: term.expressions.iter().map(Expression::requirement),
        fields: term.fields.iter().map(Expression::requirement),
    };
    term.holds(name, |key| label(labels, key))
}

/// The keys of the node labels that a node selector, required and preferred node affinity read, some several times.
pub(crate) fn label_keys<'a>(
    selector: &'a [(Name, Name)],
    affinity: &'a [AffinityTerm],
    preferred: &'a [PreferredTerm],
) -> impl Iterator<Item = &'a str> {
    let terms = affinity.iter().chain(preferred.iter().map(|one| &one.term));
    let expressions = terms.flat_map(|term| &term.expressions).map(Expression::key);
    selector.iter().map(|(key, _)| &**key).chain(expressions)
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
    expression.requirement().holds(label(labels, expression.key()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Deserialize;
    use sluice_selector::{Operator, TolerationOperator};

    use super::*;

    /// A requirement of the table.
    #[derive(Deserialize)]
    struct Wanted {
        key: String,
        operator: String,
        #[serde(default)]
        values: Vec<String>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct WantedTerm {
        #[serde(default)]
        match_expressions: Vec<Wanted>,
        #[serde(default)]
        match_fields: Vec<Wanted>,
    }

    /// A taint or a toleration.
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Tainted {
        key: String,
        operator: String,
        value: String,
        effect: String,
    }

    #[derive(Deserialize)]
    struct Case {
        why: String,
        labels: BTreeMap<String, String>,
        #[serde(default)]
        selector: BTreeMap<String, String>,
        #[serde(default)]
        terms: Vec<WantedTerm>,
        #[serde(default)]
        tolerations: Vec<Tainted>,
        #[serde(default)]
        taints: Vec<Tainted>,
        #[serde(default)]
        asks: Vec<String>,
        allowed: bool,
    }

    fn pairs(map: &BTreeMap<String, String>) -> Vec<(Name, Name)> {
        map.iter().map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect()
    }

    /// Requirements as the core receives them: one with an unknown operator has no value that it holds for.
    fn expressions(all: &[Wanted]) -> Vec<Expression> {
        let values = |one: &Wanted| one.values.iter().map(|value| value.as_str().into()).collect();
        let reported = |one: &Wanted| match Operator::of_nodes(&one.operator) {
            Some(op) => Expression::new(one.key.as_str().into(), op, values(one)),
            None => Expression::new(one.key.as_str().into(), Operator::In, Vec::new()),
        };
        all.iter().map(reported).collect()
    }

    fn effect(text: &str) -> Option<TaintEffect> {
        let all = [TaintEffect::NoSchedule, TaintEffect::PreferNoSchedule, TaintEffect::NoExecute];
        all.into_iter().find(|effect| effect.as_str() == text)
    }

    #[test]
    fn pods_may_be_where_the_table_says() {
        let cases: Vec<Case> = serde_saphyr::from_str(include_str!("../../selector/cases.json")).unwrap();
        for case in cases {
            let terms = case.terms.iter().map(|term| AffinityTerm {
                expressions: expressions(&term.match_expressions),
                fields: expressions(&term.match_fields),
            });
            let tolerations = case.tolerations.iter().filter_map(|one| {
                Some(Toleration {
                    key: Some(one.key.as_str()).filter(|key| !key.is_empty()).map(Name::from),
                    operator: TolerationOperator::named(&one.operator)?,
                    value: one.value.as_str().into(),
                    effect: effect(&one.effect),
                })
            });
            let pod_set = PodSetSpec {
                node_selector: pairs(&case.selector),
                affinity: terms.collect(),
                tolerations: tolerations.collect(),
                ..crate::fixtures::pods("main")
            };
            let labels = pairs(&case.labels);
            let asked = |key: &str| is_extended(key) && case.asks.iter().any(|name| name == key);
            let tolerated = case.taints.iter().all(|one| {
                let effect = effect(&one.effect).unwrap();
                let taint = Taint { key: one.key.as_str().into(), value: one.value.as_str().into(), effect };
                is_tolerated(&taint, &pod_set.tolerations, asked)
            });
            let may =
                selects_node(&pod_set, &labels) && affinity_holds(&pod_set, Some("n1"), &labels) && tolerated;
            assert_eq!(may, case.allowed, "{}", case.why);
        }
    }
}
