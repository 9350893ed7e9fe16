//! Selectors, affinity, taints and tolerations.

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use sluice_core::{
    AffinityTerm, Expression, Name, PreferredTerm, Selector, Taint, TaintEffect, Toleration,
    TolerationOperator,
};
use sluice_selector::Operator;
use std::collections::BTreeMap;

use super::name;

/// Pairs of a label map, in the map's order.
pub(crate) fn pairs(map: &BTreeMap<String, String>) -> Vec<(Name, Name)> {
    map.iter().map(|(k, v)| (name(k), name(v))).collect()
}

fn names(values: Option<&Vec<String>>) -> Vec<Name> {
    values.into_iter().flatten().map(|v| name(v)).collect()
}

/// A label selector; one with an unknown operator selects nothing.
pub(crate) fn selector(api: &LabelSelector) -> Option<Selector> {
    let expressions: Option<Vec<_>> = api
        .match_expressions
        .iter()
        .flatten()
        .map(|e| {
            let op = Operator::of_labels(&e.operator)?;
            Some(Expression::new(name(&e.key), op, names(e.values.as_ref())))
        })
        .collect();
    Some(Selector {
        match_labels: api.match_labels.as_ref().map(pairs).unwrap_or_default(),
        expressions: expressions?,
    })
}

/// The terms of a required node affinity. A term with an unknown operator matches no node: it becomes `In` without values.
pub(crate) fn affinity(terms: &[api::NodeSelectorTerm]) -> Vec<AffinityTerm> {
    terms.iter().map(term).collect()
}

/// The terms of a preferred node affinity that can make a difference.
pub(crate) fn preferred_affinity(affinity: Option<&api::Affinity>) -> Vec<PreferredTerm> {
    let nodes = affinity.and_then(|affinity| affinity.node_affinity.as_ref());
    let terms = nodes.and_then(|nodes| nodes.preferred_during_scheduling_ignored_during_execution.as_ref());
    let weighted = |one: &api::PreferredSchedulingTerm| PreferredTerm {
        weight: one.weight,
        term: term(&one.preference),
    };
    terms.into_iter().flatten().filter(|one| one.weight != 0).map(weighted).collect()
}

fn term(api: &api::NodeSelectorTerm) -> AffinityTerm {
    let expression = |e: &api::NodeSelectorRequirement| match Operator::of_nodes(&e.operator) {
        Some(op) => Expression::new(name(&e.key), op, names(e.values.as_ref())),
        None => Expression::new(name(&e.key), Operator::In, Vec::new()),
    };
    AffinityTerm {
        expressions: api.match_expressions.iter().flatten().map(expression).collect(),
        fields: api.match_fields.iter().flatten().map(expression).collect(),
    }
}

fn effect(text: &str) -> Option<TaintEffect> {
    match text {
        "NoSchedule" => Some(TaintEffect::NoSchedule),
        "PreferNoSchedule" => Some(TaintEffect::PreferNoSchedule),
        "NoExecute" => Some(TaintEffect::NoExecute),
        _ => None,
    }
}

/// Taints; those with an unknown effect are left out.
pub(crate) fn taints(api: &[api::Taint]) -> Vec<Taint> {
    api.iter()
        .filter_map(|t| {
            Some(Taint {
                key: name(&t.key),
                value: name(t.value.as_deref().unwrap_or_default()),
                effect: effect(&t.effect)?,
            })
        })
        .collect()
}

/// Tolerations; those with an unknown effect or operator tolerate nothing, and are left out.
pub(crate) fn tolerations(api: &[api::Toleration]) -> Vec<Toleration> {
    api.iter()
        .filter_map(|t| {
            let wanted = match t.effect.as_deref() {
                None | Some("") => None,
                Some(text) => Some(effect(text)?),
            };
            Some(Toleration {
                key: t.key.as_deref().filter(|k| !k.is_empty()).map(name),
                operator: TolerationOperator::named(t.operator.as_deref().unwrap_or_default())?,
                value: name(t.value.as_deref().unwrap_or_default()),
                effect: wanted,
            })
        })
        .collect()
}
