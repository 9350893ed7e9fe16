//! Which nodes accept a pod, and which of them it prefers: node selector, node affinity, taints.

use std::collections::BTreeMap;

use serde_json::Value;

use sluice_quantity::is_extended;
use sluice_selector::{
    Operator, Requirement, Taint, Term, Toleration, TolerationOperator, any_term_holds, is_tolerated,
    labels_hold,
};

use super::template::Amounts;
use crate::json::text;

/// Labels of a node.
pub(crate) type Labels = BTreeMap<String, String>;

/// A node, as far as it decides which pods may be on it.
#[derive(Clone, Copy)]
pub(crate) struct Ground<'a> {
    pub(crate) name: &'a str,
    pub(crate) labels: &'a Labels,
    pub(crate) taints: &'a [Value],
}

/// Whether a node accepts a pod with these `requests`.
pub(crate) fn allowed(pod: &Value, requests: &Amounts, node: Ground<'_>) -> bool {
    let selector = pod["nodeSelector"].as_object().into_iter().flatten();
    let wanted = selector.map(|(key, value)| (key.as_str(), text(value)));
    labels_hold(wanted, |key| node.labels.get(key).map(String::as_str))
        && required(pod, node)
        && node.taints.iter().all(|taint| {
            let tolerations = pod["tolerations"].as_array().into_iter().flatten();
            tolerated(tolerations, requests, taint)
        })
}

/// Whether a pod with these tolerations and `requests` tolerates a taint.
pub(crate) fn tolerated<'a>(
    tolerations: impl IntoIterator<Item = &'a Value>,
    requests: &Amounts,
    taint: &Value,
) -> bool {
    let tolerations = tolerations.into_iter().map(|one| Toleration {
        key: text(&one["key"]),
        operator: TolerationOperator::named(text(&one["operator"])),
        value: text(&one["value"]),
        effect: text(&one["effect"]),
    });
    let taint =
        Taint { key: text(&taint["key"]), value: text(&taint["value"]), effect: text(&taint["effect"]) };
    is_tolerated(&taint, tolerations, |key| is_extended(key) && requests.contains_key(key))
}

/// Whether one of the terms of the required node affinity holds.
fn required(pod: &Value, node: Ground<'_>) -> bool {
    let nodes = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let terms = nodes["nodeSelectorTerms"].as_array().into_iter().flatten();
    any_term_holds(terms, |term| matches(term, node))
}

/// How much a pod likes a node: the weights of the preferred terms that hold.
pub(crate) fn score(pod: &Value, node: Ground<'_>) -> i64 {
    let terms = &pod["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
    let terms = terms.as_array().into_iter().flatten();
    terms.filter(|t| matches(&t["preference"], node)).map(|t| t["weight"].as_i64().unwrap_or(0)).sum()
}

/// Whether a term holds.
fn matches(term: &Value, node: Ground<'_>) -> bool {
    let requirements = |field: &str| {
        term[field].as_array().into_iter().flatten().map(|one| Requirement {
            key: text(&one["key"]),
            operator: Operator::of_nodes(text(&one["operator"])),
            values: one["values"].as_array().into_iter().flatten().map(text),
        })
    };
    let term = Term { labels: requirements("matchExpressions"), fields: requirements("matchFields") };
    term.holds(Some(node.name), |key| node.labels.get(key).map(String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pods_may_be_where_the_table_says() {
        let cases: Value = serde_json::from_str(include_str!("../../../selector/cases.json")).unwrap();
        for case in cases.as_array().unwrap() {
            let terms = &case["terms"];
            let mut pod = json!({"nodeSelector": case["selector"], "tolerations": case["tolerations"]});
            if terms.is_array() {
                let required = json!({"nodeSelectorTerms": terms});
                pod["affinity"] =
                    json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
            }
            let asks = case["asks"].as_array().into_iter().flatten().map(|name| (text(name).to_owned(), 1));
            let labels = serde_json::from_value(case["labels"].clone()).unwrap();
            let taints = case["taints"].as_array().cloned().unwrap_or_default();
            let node = Ground { name: "n1", labels: &labels, taints: &taints };
            assert_eq!(allowed(&pod, &asks.collect(), node), case["allowed"], "{}", case["why"]);
        }
    }

    #[test]
    fn preferences_add_up() {
        let preference = |operator: &str, weight: i64| {
            let expression = json!({"key": "pool", "operator": operator, "values": ["a"]});
            json!({"weight": weight, "preference": {"matchExpressions": [expression]}})
        };
        let terms = json!([preference("In", 5), preference("Exists", 7), preference("NotIn", 100)]);
        let pod =
            json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}});
        let score = |pool: &str| {
            let labels = [("pool".to_owned(), pool.to_owned())].into();
            score(&pod, Ground { name: "n1", labels: &labels, taints: &[] })
        };
        assert_eq!((score("a"), score("b")), (12, 107));
    }
}
