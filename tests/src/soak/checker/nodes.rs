//! The nodes that a Workload has, read from its topology assignment in the simplest way: no code is shared with what is tested.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::objects::amount;
use super::quota::{Usage, of_node};

/// What a Workload has of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Assigned {
    pub pods: usize,
    pub usage: Usage,
}

/// By node; none if no pod set has a topology assignment.
pub(super) fn assigned(pod_sets: &Value) -> Result<Option<BTreeMap<String, Assigned>>> {
    let mut all = None;
    for set in pod_sets.as_array().into_iter().flatten() {
        let assignment = &set["topologyAssignment"];
        if assignment.is_null() {
            continue;
        }
        let all: &mut BTreeMap<String, Assigned> = all.get_or_insert_default();
        let of_set = i128::from(set["count"].as_i64().unwrap_or(1)).max(1);
        for (node, pods) in domains(assignment)? {
            let one = all.entry(node).or_default();
            one.pods += pods;
            let pods = i128::try_from(pods)?;
            for (resource, whole) in set["resourceUsage"].as_object().into_iter().flatten() {
                *one.usage.entry(of_node(resource)).or_default() += amount(whole)? * pods / of_set;
            }
            *one.usage.entry(of_node("pods")).or_default() += 1_000 * pods;
        }
    }
    Ok(all)
}

/// The nodes of an assignment with their numbers of pods.
fn domains(assignment: &Value) -> Result<Vec<(String, usize)>> {
    let levels = assignment["levels"].as_array().context("an assignment has levels")?;
    ensure!(
        levels.last().is_some_and(|level| level == "kubernetes.io/hostname"),
        "the lowest level is that of nodes"
    );
    let mut domains = Vec::new();
    for slice in assignment["slices"].as_array().into_iter().flatten() {
        let values = slice["valuesPerLevel"].as_array().and_then(|all| all.last());
        let values = values.context("a slice has values")?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let many = usize::try_from(slice["domainCount"].as_u64().context("a slice has domains")?)?;
        for at in 0..many {
            let individual = &values["individual"];
            let name = values["universal"].as_str().map_or_else(
                || {
                    format!(
                        "{}{}{}",
                        text(&individual["prefix"]),
                        text(&individual["roots"][at]),
                        text(&individual["suffix"])
                    )
                },
                str::to_owned,
            );
            let counts = &slice["podCounts"];
            let pods = counts["universal"].as_u64().or_else(|| counts["individual"][at].as_u64());
            domains.push((name, usize::try_from(pods.context("a domain has pods")?)?));
        }
    }
    Ok(domains)
}
