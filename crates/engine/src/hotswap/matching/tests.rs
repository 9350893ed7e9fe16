//! The table of cases, checked against this module and against the core with the same inputs.

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm};
use serde::Deserialize;
use sluice_core::{Name, Taint};
use sluice_selector::{Operator, Requirement, Sorted};

use super::*;
use crate::ingest::scheduling;

/// A case of the table.
#[derive(Deserialize)]
struct Case {
    why: String,
    labels: BTreeMap<String, String>,
    #[serde(default)]
    selector: BTreeMap<String, String>,
    #[serde(default)]
    terms: Vec<NodeSelectorTerm>,
    #[serde(default)]
    tolerations: Vec<Toleration>,
    #[serde(default)]
    taints: Vec<k8s_openapi::api::core::v1::Taint>,
    #[serde(default)]
    asks: Vec<String>,
    allowed: bool,
}

#[test]
fn pods_may_be_where_the_table_says() {
    let cases: Vec<Case> = serde_json::from_str(include_str!("../../../../selector/cases.json")).unwrap();
    for case in cases {
        let mut node = slim::Node { taints: case.taints.clone(), ..slim::Node::default() };
        node.metadata.name = Some("n1".to_owned());
        node.metadata.labels = Some(case.labels);
        let requests: Vec<_> = case.asks.iter().map(|name| (Name::from(name.as_str()), Amount(1))).collect();
        let may = has_labels(&node, &case.selector)
            && has_affinity(&node, &scheduling::affinity(&case.terms))
            && tolerates(&node, &case.tolerations, &requests);
        assert_eq!(may, case.allowed, "{}", case.why);
        // The core gets as many terms and taints as there are: what it makes of them it says itself, by the same table.
        assert_eq!(scheduling::affinity(&case.terms).len(), case.terms.len(), "{}", case.why);
        let taints: Vec<Taint> = scheduling::taints(&case.taints);
        assert_eq!(taints.len(), case.taints.len(), "{}", case.why);
    }
}

#[test]
fn the_core_gets_taints_that_nothing_tolerates_and_fields() {
    let toleration =
        |operator: &str| Toleration { operator: Some(operator.to_owned()), ..Toleration::default() };
    assert_eq!(scheduling::tolerations(&[toleration("Like"), toleration("Exists"), toleration("")]).len(), 2);
    let requirement = |operator: &str| NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: operator.to_owned(),
        values: Some(vec!["n1".to_owned()]),
    };
    let term = NodeSelectorTerm {
        match_fields: Some(vec![requirement("In"), requirement("Like")]),
        match_expressions: None,
    };
    let reported = scheduling::affinity(&[term]);
    let wanted = |at: usize| reported[0].fields[at].requirement();
    let (key, operator) = ("metadata.name", Some(Operator::In));
    assert_eq!(wanted(0), Requirement { key, operator, values: Sorted(&[Name::from("n1")]) });
    assert!(reported[0].expressions.is_empty());
    assert_eq!(
        wanted(1),
        Requirement { key, operator, values: Sorted(&[]) },
        "what does not exist holds for no value"
    );
}

#[test]
fn only_labels_that_have_changed_are_said_to_have() {
    let node = |labels: &[(&str, &str)]| {
        let mut node = slim::Node::default();
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        node.metadata.labels = Some(labels.collect());
        node
    };
    let before = node(&[("a", "1"), ("c", "3"), ("d", "4"), ("f", "6")]);
    let after = node(&[("b", "2"), ("c", "3"), ("d", "5"), ("e", "6"), ("f", "6")]);
    let expected = [("a", None), ("b", Some("2")), ("d", Some("5")), ("e", Some("6"))];
    assert_eq!(changed_labels(&before, &after), expected);
    let bare = slim::Node::default();
    assert!(changed_labels(&bare, &node(&[])).is_empty());
    assert_eq!(changed_labels(&bare, &node(&[("a", "1")])), [("a", Some("1"))]);
    assert_eq!(changed_labels(&node(&[("a", "1")]), &bare), [("a", None)]);
}
