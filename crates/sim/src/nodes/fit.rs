//! Which nodes take a pod, and which of them it likes best: node selector, node affinity, taints.

use std::collections::BTreeMap;

use serde_json::Value;

use sluice_quantity::is_extended;
use sluice_selector::Operator;

use super::template::Amounts;
use crate::json::text;

/// Labels of a node.
pub(crate) type Labels = BTreeMap<String, String>;

/// Whether a node with these labels and taints is one that a pod may be on, which asks for `requests`.
pub(crate) fn allowed(pod: &Value, requests: &Amounts, labels: &Labels, taints: &[Value]) -> bool {
    let selector = pod["nodeSelector"].as_object();
    selector.into_iter().flatten().all(|(key, value)| labels.get(key).is_some_and(|is| is == text(value)))
        && required(pod, labels)
        && taints.iter().all(|taint| tolerated(pod, requests, taint))
}

/// Whether a pod puts up with a taint. As with the admission plugin `ExtendedResourceToleration`, which GKE's API servers run,
/// a pod tolerates `NoSchedule` taints named after the devices that it asks for.
pub(crate) fn tolerated(pod: &Value, requests: &Amounts, taint: &Value) -> bool {
    let key = text(&taint["key"]);
    match text(&taint["effect"]) {
        "PreferNoSchedule" => return true,
        "NoSchedule" if is_extended(key) && requests.contains_key(key) => return true,
        _ => {}
    }
    pod["tolerations"].as_array().into_iter().flatten().any(|t| {
        let key = text(&t["key"]);
        let effect = text(&t["effect"]);
        let exists = t["operator"] == "Exists";
        (key == text(&taint["key"]) || (key.is_empty() && exists))
            && (effect.is_empty() || effect == text(&taint["effect"]))
            && (exists || text(&t["value"]) == text(&taint["value"]))
    })
}

/// Whether one of the terms of the required node affinity holds; `matchFields` are not looked at.
fn required(pod: &Value, labels: &Labels) -> bool {
    let nodes = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let Some(terms) = nodes["nodeSelectorTerms"].as_array() else { return true };
    terms.iter().any(|term| matches(term, labels))
}

/// How much a pod likes a node: the weights of the preferred terms that hold.
pub(crate) fn score(pod: &Value, labels: &Labels) -> i64 {
    let terms = &pod["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
    let terms = terms.as_array().into_iter().flatten();
    terms.filter(|t| matches(&t["preference"], labels)).map(|t| t["weight"].as_i64().unwrap_or(0)).sum()
}

/// Whether all expressions of a term hold; a term without any selects nothing.
fn matches(term: &Value, labels: &Labels) -> bool {
    let Some(expressions) = term["matchExpressions"].as_array().filter(|all| !all.is_empty()) else {
        return false;
    };
    expressions.iter().all(|expression| {
        let label = labels.get(text(&expression["key"])).map(String::as_str);
        let values = expression["values"].as_array().into_iter().flatten().map(text);
        let operator = Operator::of_nodes(text(&expression["operator"]));
        operator.is_some_and(|operator| operator.holds(label, values))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn labels(pool: &str) -> Labels {
        [("pool".to_owned(), pool.to_owned())].into()
    }

    #[test]
    fn taints_need_tolerations() {
        let taint = json!({"key": "gpu", "value": "yes", "effect": "NoSchedule"});
        let tolerated = |pod: Value, taint: &Value| tolerated(&pod, &Amounts::new(), taint);
        assert!(!tolerated(json!({}), &taint));
        assert!(tolerated(json!({"tolerations": [{"key": "gpu", "operator": "Exists"}]}), &taint));
        assert!(tolerated(json!({"tolerations": [{"key": "gpu", "value": "yes"}]}), &taint));
        assert!(!tolerated(json!({"tolerations": [{"key": "gpu", "value": "no"}]}), &taint));
    }

    #[test]
    fn a_device_that_a_pod_asks_for_brings_its_toleration() {
        let taint = |effect: &str| json!({"key": "google.com/tpu", "value": "present", "effect": effect});
        let requests = |resource: &str| Amounts::from([(resource.to_owned(), 4)]);
        assert!(tolerated(&json!({}), &requests("google.com/tpu"), &taint("NoSchedule")));
        assert!(!tolerated(&json!({}), &requests("google.com/tpu"), &taint("NoExecute")));
        assert!(!tolerated(&json!({}), &requests("nvidia.com/gpu"), &taint("NoSchedule")));
    }

    #[test]
    fn one_term_of_the_required_affinity_must_hold() {
        let pod = |terms: Value| {
            let required = json!({"nodeSelectorTerms": terms});
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
        };
        let not_in =
            json!([{"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["a", "b"]}]}]);
        assert!(!allowed(&pod(not_in.clone()), &Amounts::new(), &labels("a"), &[]));
        assert!(allowed(&pod(not_in), &Amounts::new(), &labels("c"), &[]));
        assert!(
            !allowed(&pod(json!([{}])), &Amounts::new(), &labels("a"), &[]),
            "a term that says nothing selects nothing"
        );
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
        assert_eq!((score(&pod, &labels("a")), score(&pod, &labels("b"))), (12, 107));
    }
}
