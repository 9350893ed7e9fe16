//! The pod sets for which flavors are searched together: one alone, or all of a pod set group.

use serde_json::Value;
use sluice_api::config::Configuration;
use sluice_api::gates::Gate;
use sluice_core::{Amount, Name, PodSetRefusal, Refusal, Unadmitted};

use super::decided::pod_set;
use crate::json::text;

/// A pod set, and what it requests.
pub(super) struct PodSet<'a> {
    pub name: &'a str,
    /// How many of its pods need quota; at least one.
    pub count: i64,
    /// Of all its pods, in each resource's unit.
    requests: &'a [(Name, Amount)],
}

/// Pod sets that get their flavors together, and why they get none.
pub(super) struct Searched<'a> {
    pub sets: Vec<PodSet<'a>>,
    /// The same for each of them: amounts are those of all together.
    pub refusals: &'a [Refusal],
    /// How many other pod sets of the job request anything.
    pub others: usize,
}

/// The pod sets of a decision, those of a pod set group together.
pub(super) fn searched<'a>(
    workload: &'a Value,
    decision: &'a Unadmitted,
    pod_sets: &'a [PodSetRefusal],
    configuration: &Configuration,
) -> Vec<Searched<'a>> {
    let mut all: Vec<(Option<&str>, Searched<'a>)> = Vec::new();
    for refused in pod_sets {
        let spec = pod_set(workload, &refused.name);
        let requests = decision.requests.iter().find(|(set, _)| *set == refused.name);
        let set = PodSet {
            name: &refused.name,
            count: pods_left(workload, spec, configuration).max(1),
            requests: requests.map(|(_, requests)| requests.as_slice()).unwrap_or_default(),
        };
        let group = spec["topologyRequest"]["podSetGroupName"].as_str();
        match all.iter_mut().find(|(known, _)| group.is_some() && *known == group) {
            Some((_, searched)) => searched.sets.push(set),
            None => all.push((group, Searched { sets: vec![set], refusals: &refused.refusals, others: 0 })),
        }
    }
    let mut all: Vec<_> = all.into_iter().map(|(_, searched)| searched).collect();
    for of in &mut all {
        let others = decision.requests.iter().filter(|(name, requests)| {
            let is_own = of.sets.iter().any(|set| *set.name == **name);
            !is_own && requests.iter().any(|(_, amount)| amount.get() > 0)
        });
        of.others = others.count();
    }
    all
}

/// How many pods of a pod set need quota: with the gate `ReclaimablePods`, all but those that are over.
pub(super) fn pods_left(workload: &Value, spec: &Value, configuration: &Configuration) -> i64 {
    let count = spec["count"].as_i64().unwrap_or(1);
    if !configuration.gates.enabled(Gate::ReclaimablePods) {
        return count;
    }
    let mut over = workload["status"]["reclaimablePods"].as_array().into_iter().flatten();
    let over = over.find(|over| text(&over["name"]) == text(&spec["name"]));
    count.saturating_sub(over.and_then(|over| over["count"].as_i64()).unwrap_or(0)).max(0)
}

impl PodSet<'_> {
    fn request(&self, resource: &str) -> i64 {
        self.requests.iter().find(|(name, _)| **name == *resource).map_or(0, |(_, amount)| amount.get())
    }
}

impl Searched<'_> {
    /// In words.
    pub fn words(&self) -> String {
        let names: Vec<&str> = self.sets.iter().map(|set| set.name).collect();
        let several = if names.len() > 1 { "s" } else { "" };
        format!("pod set{several} {}", names.join(" and "))
    }

    /// In words, with the verb that follows: `pod set main asks`.
    pub fn who(&self, verb: &str) -> String {
        let third_person = if self.sets.len() > 1 { "" } else { "s" };
        format!("{} {verb}{third_person}", self.words())
    }

    /// Whether it is one pod set, and all that takes anything of what the job needs.
    pub fn is_all(&self) -> bool {
        self.sets.len() == 1 && self.others == 0
    }

    /// How many pods they have.
    pub fn count(&self) -> i64 {
        self.sets.iter().fold(0, |sum: i64, set| sum.saturating_add(set.count))
    }

    /// How much of a resource they request together.
    pub fn request(&self, resource: &str) -> i64 {
        self.sets.iter().fold(0, |sum: i64, set| sum.saturating_add(set.request(resource)))
    }

    /// How much of a resource the largest of their pods requests.
    pub fn largest_pod(&self, resource: &str) -> i64 {
        self.sets.iter().map(|set| set.request(resource) / set.count).max().unwrap_or(0)
    }

    /// The resources that they request.
    pub fn resources(&self) -> impl Iterator<Item = &str> {
        let all = self.sets.iter().flat_map(|set| set.requests);
        all.filter(|(_, amount)| amount.get() > 0).map(|(name, _)| &**name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Options;

    #[test]
    fn pods_that_are_over_need_quota_where_the_gate_is_off() {
        let workload = json!({
            "spec": {"podSets": [{"name": "main", "count": 12}]},
            "status": {"reclaimablePods": [{"name": "main", "count": 6}]},
        });
        let left = |configuration: &Configuration| {
            pods_left(&workload, &workload["spec"]["podSets"][0], configuration)
        };
        let mut configuration = Options::default_configuration();
        assert_eq!(left(&configuration), 6);
        configuration.gates = configuration.gates.with(Gate::ReclaimablePods, false);
        assert_eq!(left(&configuration), 12);
    }
}
