//! The pod sets of a Workload: its requests, and its admission. This shares no code with the tested program.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::quota::{FlavorResource, Usage, of_node};
use crate::amounts::{Amounts, amount, of_pod};

/// The share of one node that a Workload has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Assigned {
    pub pods: usize,
    pub usage: Usage,
}

/// The admission of a pod set.
#[derive(Clone, Debug, Default)]
pub(super) struct Gift {
    /// How many pods.
    pub pods: usize,
    /// Flavors by resource.
    pub flavors: BTreeMap<String, String>,
    /// The total charge according to the manager.
    pub charge: Amounts,
    /// The nodes with their numbers of pods, if it has a topology assignment.
    pub nodes: Option<Vec<(String, usize)>>,
}

/// A pod set.
#[derive(Clone, Debug, Default)]
pub(super) struct PodSet {
    pub name: String,
    /// How many pods it asks for.
    pub asked: usize,
    /// The needs of each pod, by the template.
    pub each: Amounts,
    /// The topology level of which its pods must share one domain.
    pub required: Option<String>,
    /// Whether it has any topology request.
    pub placed: bool,
    /// The number of its reclaimable pods.
    pub reclaimable: usize,
    /// Its admission.
    pub gift: Option<Gift>,
}

impl PodSet {
    /// How many of the admitted pods still need something. A Workload may have been admitted with fewer than it asks for, because some had
    /// completed before.
    pub fn left(&self) -> usize {
        let admitted = self.gift.as_ref().map_or(0, |gift| gift.pods);
        self.asked.saturating_sub(self.reclaimable).min(admitted)
    }

    /// Where the admission's charge is not what the pods need.
    fn mischarge(&self) -> Option<String> {
        let gift = self.gift.as_ref()?;
        let name = &self.name;
        for (resource, each) in self.each.iter().filter(|(_, each)| **each > 0) {
            let (needs, charged) = (each * gift.pods as i128, gift.charge.get(resource).copied());
            if !gift.flavors.contains_key(resource) {
                return Some(format!("the pod set {name} asks for {resource}, and no flavor gives it"));
            }
            if charged != Some(needs) {
                let charged = charged.unwrap_or_default();
                return Some(format!(
                    "{charged} thousandths of {resource} are charged for the pod set {name}, and it needs {needs}"
                ));
            }
        }
        let more = gift.charge.iter().find(|(resource, charged)| {
            **charged != 0 && resource.as_str() != "pods" && !self.each.contains_key(*resource)
        });
        more.map(|(resource, _)| format!("{resource} is charged for the pod set {name}, which asks for none"))
    }
}

/// Reads all pod sets of a Workload; those without a gift are not admitted.
pub(super) fn read(object: &Value) -> Result<Vec<PodSet>> {
    let count = |value: &Value, otherwise: u64| usize::try_from(value.as_u64().unwrap_or(otherwise));
    let mut sets = Vec::new();
    for set in object["spec"]["podSets"].as_array().into_iter().flatten() {
        let name = set["name"].as_str().unwrap_or("main").to_owned();
        let reclaimable = object["status"]["reclaimablePods"].as_array().into_iter().flatten();
        let reclaimable = reclaimable.filter(|one| one["name"] == name.as_str()).map(|one| &one["count"]);
        sets.push(PodSet {
            asked: count(&set["count"], 1)?,
            each: of_pod(&set["template"]["spec"])?,
            required: set["topologyRequest"]["required"].as_str().map(str::to_owned),
            placed: ["required", "preferred", "unconstrained"]
                .iter()
                .any(|one| !set["topologyRequest"][one].is_null()),
            reclaimable: reclaimable.map(|one| count(one, 0)).next().transpose()?.unwrap_or_default(),
            gift: None,
            name,
        });
    }
    for given in object["status"]["admission"]["podSetAssignments"].as_array().into_iter().flatten() {
        let name = given["name"].as_str().unwrap_or("main");
        let set = sets.iter_mut().find(|set| set.name == name);
        let set = set.with_context(|| format!("there is no pod set {name:?}"))?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let flavors = given["flavors"].as_object().into_iter().flatten();
        let flavors = flavors.map(|(resource, flavor)| (resource.clone(), text(flavor))).collect();
        let charge = given["resourceUsage"].as_object().into_iter().flatten();
        let charge = charge.map(|(resource, whole)| anyhow::Ok((resource.clone(), amount(whole)?)));
        let topology = &given["topologyAssignment"];
        set.gift = Some(Gift {
            pods: count(&given["count"], 1)?,
            flavors,
            charge: charge.collect::<Result<_>>()?,
            nodes: (!topology.is_null()).then(|| domains(topology)).transpose()?,
        });
    }
    Ok(sets)
}

/// The usage of an admission: for each pod set the share of the pods that are not reclaimable.
pub(super) fn usage(sets: &[PodSet]) -> Usage {
    let mut used = Usage::new();
    for (set, gift) in sets.iter().filter_map(|set| Some((set, set.gift.as_ref()?))) {
        for (resource, flavor) in &gift.flavors {
            let one = FlavorResource { flavor: flavor.clone(), resource: resource.clone() };
            let each = set.each.get(resource).copied().unwrap_or_default();
            *used.entry(one).or_default() += each * set.left() as i128;
        }
    }
    used
}

/// The usage of each node; none if no pod set has a topology assignment.
pub(super) fn assigned(sets: &[PodSet]) -> Option<BTreeMap<String, Assigned>> {
    let mut all = None;
    for set in sets {
        let Some(nodes) = set.gift.as_ref().and_then(|gift| gift.nodes.as_ref()) else { continue };
        let all: &mut BTreeMap<String, Assigned> = all.get_or_insert_default();
        for (node, pods) in nodes {
            let one = all.entry(node.clone()).or_default();
            one.pods += pods;
            for (resource, each) in &set.each {
                *one.usage.entry(of_node(resource)).or_default() += each * *pods as i128;
            }
            *one.usage.entry(of_node("pods")).or_default() += 1_000 * *pods as i128;
        }
    }
    all
}

/// Where the charge of an admission is not what the pods need.
pub(super) fn mischarge(sets: &[PodSet]) -> Option<String> {
    sets.iter().find_map(PodSet::mischarge)
}

/// The total needs of all admitted pods.
pub(super) fn needs(sets: &[PodSet]) -> Amounts {
    let mut needs = Amounts::new();
    for (set, gift) in sets.iter().filter_map(|set| Some((set, set.gift.as_ref()?))) {
        for (resource, each) in &set.each {
            *needs.entry(resource.clone()).or_default() += each * gift.pods as i128;
        }
    }
    needs
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
