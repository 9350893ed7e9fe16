//! Label selectors: reading, checking and matching.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use sluice_selector::Operator;

use super::reader::Reader;

/// Whether labels satisfy a selector. An empty selector matches everything; an unknown operator matches nothing.
pub fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    equal && selector.match_expressions.iter().flatten().all(|requirement| satisfies(requirement, labels))
}

fn satisfies(requirement: &LabelSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let label = labels.get(&requirement.key).map(String::as_str);
    let values = requirement.values.iter().flatten().map(String::as_str);
    Operator::of_labels(&requirement.operator).is_some_and(|operator| operator.holds(label, values))
}

/// Reads a selector of the configuration file.
pub(super) fn read(mut reader: Reader<'_>) -> LabelSelector {
    let match_labels = reader.map_of("matchLabels", "a string", |value| value.as_str().map(str::to_owned));
    let mut match_expressions = Vec::new();
    for mut requirement in reader.objects("matchExpressions").unwrap_or_default() {
        let key = requirement.string("key").unwrap_or_default();
        if key.is_empty() {
            requirement.error("key", "required");
        }
        let choices = ["In", "NotIn", "Exists", "DoesNotExist"].map(|name| (name, name));
        let operator = requirement.one_of("operator", &choices);
        if !requirement.has("operator") {
            requirement.error("operator", "required");
        }
        let values = requirement.strings("values").unwrap_or_default();
        match operator {
            Some("In" | "NotIn") if values.is_empty() => {
                requirement.error("values", "must be specified when operator is \"In\" or \"NotIn\"");
            }
            Some("Exists" | "DoesNotExist") if !values.is_empty() => {
                requirement
                    .error("values", "may not be specified when operator is \"Exists\" or \"DoesNotExist\"");
            }
            _ => {}
        }
        match_expressions.push(LabelSelectorRequirement {
            key,
            operator: operator.unwrap_or_default().to_owned(),
            values: (!values.is_empty()).then_some(values),
        });
    }
    LabelSelector {
        match_labels: match_labels.filter(|labels| !labels.is_empty()),
        match_expressions: (!match_expressions.is_empty()).then_some(match_expressions),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selectors_match_as_in_kubernetes() {
        let labels = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
        for (selector, expected) in [
            (json!({}), true),
            (json!({"matchLabels": {"team": "a"}}), true),
            (json!({"matchLabels": {"team": "b"}}), false),
            (json!({"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]}), true),
            (json!({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}), false),
            (json!({"matchExpressions": [{"key": "other", "operator": "NotIn", "values": ["a"]}]}), true),
            (json!({"matchExpressions": [{"key": "other", "operator": "In", "values": ["a"]}]}), false),
            (json!({"matchExpressions": [{"key": "team", "operator": "Exists"}]}), true),
            (json!({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}), false),
            (json!({"matchExpressions": [{"key": "team", "operator": "Bogus"}]}), false),
        ] {
            let parsed: LabelSelector = serde_json::from_value(selector.clone()).unwrap();
            assert_eq!(matches(&parsed, &labels), expected, "{selector}");
        }
    }
}
