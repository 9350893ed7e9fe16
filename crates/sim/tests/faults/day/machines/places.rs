//! Nodes with a topology: the assignments of a node never exceed its capacity.

use std::collections::BTreeMap;

use serde_json::Value;
use sluice_api::conversion::topology::decode;
use sluice_engine::Kind;
use sluice_sim::Simulation;

use super::drawn::TPU;
use super::safety::{condition, text};

/// The chips that Workloads with quota were assigned, by node.
fn assigned(simulation: &Simulation) -> BTreeMap<String, i64> {
    let mut chips = BTreeMap::new();
    for (reference, workload) in simulation.objects(Kind::Workload) {
        // What a former leader's late write gave counts when the job starts: until then it can still be taken back.
        let holds =
            condition(workload, "QuotaReserved").is_some() && condition(workload, "Finished").is_none();
        if !holds || simulation.late_since(reference).is_some() {
            continue;
        }
        let sets = workload["status"]["admission"]["podSetAssignments"].as_array();
        for set in sets.into_iter().flatten() {
            let (count, all) = (set["count"].as_i64().unwrap_or(0), text(&set["resourceUsage"][TPU]));
            let per_pod = all.parse::<i64>().unwrap_or(0).checked_div(count).unwrap_or(0);
            let assignment = serde_json::from_value(set["topologyAssignment"].clone()).ok();
            let domains = assignment.and_then(|columns| decode(&columns).ok()).map(|rows| rows.domains);
            for domain in domains.into_iter().flatten() {
                let node = domain.values.last().cloned().unwrap_or_default();
                *chips.entry(node).or_default() += per_pod * i64::from(domain.count);
            }
        }
    }
    chips
}

/// The nodes to which more is assigned than they have, and how many chips are assigned in all.
pub fn overfull(simulation: &Simulation) -> (Vec<String>, i64) {
    let assigned = assigned(simulation);
    let has: BTreeMap<&str, i64> = simulation
        .objects(Kind::Node)
        .map(|(reference, node)| {
            let chips: &Value = &node["status"]["allocatable"][TPU];
            (&*reference.name, text(chips).parse().unwrap_or(0))
        })
        .collect();
    let wrong = assigned.iter().filter_map(|(node, chips)| {
        let has = has.get(node.as_str()).filter(|has| chips > *has)?;
        Some(format!("{chips} chips of {node} are assigned, which has {has}"))
    });
    (wrong.collect(), assigned.values().sum())
}
