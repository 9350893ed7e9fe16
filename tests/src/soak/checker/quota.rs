//! The limits of queues and cohorts, computed from the objects alone and in the simplest way: this shares no code with the tested program.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::Value;

use super::objects::Workload;
use crate::amounts::{Amounts, amount};

/// A resource of a flavor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FlavorResource {
    pub flavor: String,
    pub resource: String,
}

/// How much of what, in thousandths.
pub(super) type Usage = BTreeMap<FlavorResource, i128>;

#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    nominal: i128,
    borrowing: Option<i128>,
    lending: Option<i128>,
}

/// A ClusterQueue or a Cohort.
#[derive(Clone, Debug, Default)]
struct Node {
    parent: Option<String>,
    limits: BTreeMap<FlavorResource, Limits>,
    /// The queue starts its Workloads in their order.
    strict: bool,
}

impl Node {
    fn read(object: &Value, parent: &str) -> Result<Self> {
        let spec = &object["spec"];
        let parent = spec[parent].as_str().filter(|name| !name.is_empty()).map(str::to_owned);
        let mut limits = BTreeMap::new();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        for group in list(&spec["resourceGroups"]) {
            for flavor in list(&group["flavors"]) {
                for resource in list(&flavor["resources"]) {
                    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                    let key =
                        FlavorResource { flavor: text(&flavor["name"]), resource: text(&resource["name"]) };
                    let optional = |value: &Value| (!value.is_null()).then(|| amount(value)).transpose();
                    let (borrowing, lending) =
                        (optional(&resource["borrowingLimit"])?, optional(&resource["lendingLimit"])?);
                    let nominal = amount(&resource["nominalQuota"])?;
                    limits.insert(key, Limits { nominal, borrowing, lending });
                }
            }
        }
        Ok(Self { parent, limits, strict: spec["queueingStrategy"] == "StrictFIFO" })
    }
}

/// The quota and the usage of one part of the tree for a resource.
#[derive(Clone, Copy, Debug)]
struct Sum {
    /// Its own quota and what is lent to it from below.
    quota: i128,
    /// The quota that its parent may not use.
    kept: i128,
    used: i128,
}

/// The queues and cohorts, and the usage of each queue.
#[derive(Clone, Debug, Default)]
pub(super) struct Quotas {
    queues: BTreeMap<String, Node>,
    cohorts: BTreeMap<String, Node>,
    used: BTreeMap<String, Usage>,
}

impl Quotas {
    pub fn set_queue(&mut self, name: &str, object: Option<&Value>) -> Result<()> {
        Self::set(&mut self.queues, name, object, "cohortName")
    }

    pub fn set_cohort(&mut self, name: &str, object: Option<&Value>) -> Result<()> {
        Self::set(&mut self.cohorts, name, object, "parentName")
    }

    fn set(
        nodes: &mut BTreeMap<String, Node>,
        name: &str,
        object: Option<&Value>,
        parent: &str,
    ) -> Result<()> {
        match object {
            Some(object) => drop(nodes.insert(name.to_owned(), Node::read(object, parent)?)),
            None => drop(nodes.remove(name)),
        }
        Ok(())
    }

    /// A node: its capacity is the limit of a queue of its own ([`node_queue`]). A deleted node keeps its limits: earlier assignments count there
    /// until they are replaced.
    pub fn set_node(&mut self, name: &str, object: Option<&Value>) -> Result<()> {
        let queue = node_queue(name);
        let Some(object) = object else { return Ok(()) };
        let mut node = Node::default();
        for (resource, has) in object["status"]["allocatable"].as_object().into_iter().flatten() {
            let limits = Limits { nominal: amount(has)?, ..Limits::default() };
            node.limits.insert(of_node(resource), limits);
        }
        self.queues.insert(queue, node);
        Ok(())
    }

    /// Adds or subtracts the usage of a Workload.
    pub fn charge(&mut self, workload: &Workload, sign: i128) {
        for (queue, usage) in workload.charges() {
            self.add(&queue, usage, sign);
        }
    }

    /// Adds or subtracts a Workload's usage of a queue.
    pub fn add(&mut self, queue: &str, usage: &Usage, sign: i128) {
        let used = self.used.entry(queue.to_owned()).or_default();
        for (key, amount) in usage {
            *used.entry(key.clone()).or_default() += sign * amount;
        }
    }

    /// All usage as text; empty if there is none.
    pub fn in_use(&self) -> Vec<String> {
        let each = self.used.iter().flat_map(|(queue, used)| used.iter().map(move |one| (queue, one)));
        each.filter(|(_, (_, amount))| **amount != 0)
            .map(|(queue, (key, amount))| {
                format!("{queue}: {amount} thousandths of {} {}", key.flavor, key.resource)
            })
            .collect()
    }

    /// The limit of this resource that is exceeded now, on the path from a queue to its root.
    pub fn above(&self, queue: &str, key: &FlavorResource) -> Option<String> {
        let Some(node) = self.queues.get(queue) else {
            return Some(format!("the ClusterQueue {queue} is not there, and gives"));
        };
        let own = self.queue(queue, key);
        if let Some(text) = exceeds("ClusterQueue", queue, node, key, own) {
            return Some(text);
        }
        let implicit = Node::default();
        let mut parent = node.parent.as_ref();
        while let Some(name) = parent {
            let node = self.cohorts.get(name).unwrap_or(&implicit);
            if let Some(text) = exceeds("Cohort", name, node, key, self.cohort(name, key)) {
                return Some(text);
            }
            parent = node.parent.as_ref();
        }
        None
    }

    /// Whether a queue is StrictFIFO.
    pub fn is_strict(&self, queue: &str) -> bool {
        self.queues.get(queue).is_some_and(|node| node.strict)
    }

    /// The flavors of a queue.
    pub fn flavors(&self, queue: &str) -> Vec<String> {
        let limits = self.queues.get(queue).into_iter().flat_map(|node| node.limits.keys());
        let flavors: std::collections::BTreeSet<_> = limits.map(|key| key.flavor.clone()).collect();
        flavors.into_iter().collect()
    }

    /// How many pods that need `each` have room on a node, beside what is in use there and `taken`.
    pub fn room(&self, node: &str, each: &Amounts, taken: Option<&Usage>) -> usize {
        let queue = node_queue(node);
        let Some(limits) = self.queues.get(&queue).map(|node| &node.limits) else { return 0 };
        let needs = each.iter().map(|(resource, each)| (of_node(resource), *each));
        let needs = needs.chain([(of_node("pods"), 1_000)]).filter(|(_, each)| *each > 0);
        let rooms = needs.map(|(key, each)| {
            let used = self.used.get(&queue).and_then(|used| used.get(&key)).copied().unwrap_or_default();
            let taken = taken.and_then(|taken| taken.get(&key)).copied().unwrap_or_default();
            let has = limits.get(&key).map_or(0, |limits| limits.nominal);
            usize::try_from(((has - used - taken) / each).max(0)).unwrap_or(usize::MAX)
        });
        rooms.min().unwrap_or_default()
    }

    fn queue(&self, name: &str, key: &FlavorResource) -> Sum {
        let limits = self.queues[name].limits.get(key).copied().unwrap_or_default();
        let used = self.used.get(name).and_then(|used| used.get(key)).copied().unwrap_or_default();
        Sum { quota: limits.nominal, kept: kept(limits, limits.nominal), used }
    }

    fn cohort(&self, name: &str, key: &FlavorResource) -> Sum {
        let limits = self.cohorts.get(name).and_then(|node| node.limits.get(key)).copied();
        let limits = limits.unwrap_or_default();
        let under = |node: &&Node| node.parent.as_deref() == Some(name);
        let queues =
            self.queues.iter().filter(|(_, node)| under(node)).map(|(name, _)| self.queue(name, key));
        let cohorts =
            self.cohorts.iter().filter(|(_, node)| under(node)).map(|(name, _)| self.cohort(name, key));
        let mut sum = Sum { quota: limits.nominal, kept: 0, used: 0 };
        for child in queues.chain(cohorts) {
            sum.quota += child.quota - child.kept;
            sum.used += (child.used - child.kept).max(0);
        }
        sum.kept = kept(limits, sum.quota);
        sum
    }
}

/// The queue that stands for a node.
pub(super) fn node_queue(node: &str) -> String {
    format!("of node {node}")
}

/// A resource of a node.
pub(super) fn of_node(resource: &str) -> FlavorResource {
    FlavorResource { flavor: String::new(), resource: resource.to_owned() }
}

fn kept(limits: Limits, quota: i128) -> i128 {
    limits.lending.map_or(0, |lending| (quota - lending).max(0))
}

fn exceeds(kind: &str, name: &str, node: &Node, key: &FlavorResource, sum: Sum) -> Option<String> {
    let limits = node.limits.get(key).copied().unwrap_or_default();
    let most = match (&node.parent, limits.borrowing) {
        (None, _) => sum.quota,
        (Some(_), Some(borrowing)) => sum.quota + borrowing,
        // Its limit is what its parents have.
        (Some(_), None) => return None,
    };
    (sum.used > most).then(|| {
        let FlavorResource { flavor, resource } = key;
        format!(
            "the {kind} {name} is above its limit: {} of {most} thousandths of {flavor} {resource}",
            sum.used
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key() -> FlavorResource {
        FlavorResource { flavor: "f".to_owned(), resource: "cpu".to_owned() }
    }

    fn object(parent: (&str, &str), quota: Value) -> Value {
        let mut resource = quota;
        resource["name"] = json!("cpu");
        let flavors = json!([{"name": "f", "resources": [resource]}]);
        json!({"spec": {parent.0: parent.1, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]}})
    }

    /// Two queues of 4 in a cohort below a root that has 2 of its own; `left` lends 1, `right` borrows 3 at most.
    fn tree() -> Quotas {
        let mut quotas = Quotas::default();
        let left = object(("cohortName", "low"), json!({"nominalQuota": 4, "lendingLimit": 1}));
        let right = object(("cohortName", "low"), json!({"nominalQuota": "4", "borrowingLimit": 3}));
        quotas.set_queue("left", Some(&left)).unwrap();
        quotas.set_queue("right", Some(&right)).unwrap();
        quotas.set_queue("alone", Some(&object(("cohortName", ""), json!({"nominalQuota": 1})))).unwrap();
        quotas.set_cohort("low", Some(&json!({"spec": {"parentName": "root"}}))).unwrap();
        quotas.set_cohort("root", Some(&object(("parentName", ""), json!({"nominalQuota": 2})))).unwrap();
        quotas
    }

    fn above(uses: &[(&str, i128)]) -> Option<String> {
        let mut quotas = tree();
        for (queue, cpu) in uses {
            quotas.add(queue, &Usage::from([(key(), cpu * 1_000)]), 1);
        }
        uses.iter().find_map(|(queue, _)| quotas.above(queue, &key()))
    }

    #[test]
    fn what_is_lent_may_be_used() {
        assert_eq!(above(&[("right", 7), ("left", 3)]), None);
        assert_eq!(above(&[("left", 10)]), None, "four of its own, four of right, two of the root");
        assert_eq!(above(&[("alone", 1)]), None);
    }

    #[test]
    fn what_is_above_a_limit_is_named() {
        let text = |uses: &[(&str, i128)]| above(uses).unwrap_or_default();
        assert!(text(&[("alone", 2)]).contains("ClusterQueue alone is above its limit: 2000 of 1000"));
        assert!(text(&[("right", 8)]).contains("ClusterQueue right is above its limit: 8000 of 7000"));
        assert!(text(&[("left", 11)]).contains("Cohort root is above its limit"));
        assert!(text(&[("right", 7), ("left", 4)]).contains("Cohort root is above its limit: 8000 of 7000"));
        assert!(text(&[("nowhere", 1)]).contains("is not there"));
    }

    #[test]
    fn a_cohort_has_limits_of_its_own() {
        let mut quotas = tree();
        let low = object(("parentName", "root"), json!({"nominalQuota": 0, "borrowingLimit": 1}));
        quotas.set_cohort("low", Some(&low)).unwrap();
        quotas.add("left", &Usage::from([(key(), 10_000)]), 1);
        // Left keeps three of its four: seven reach the cohort, which has one of left's and four of right's.
        assert!(
            quotas.above("left", &key()).unwrap().contains("Cohort low is above its limit: 7000 of 6000")
        );
        quotas.add("left", &Usage::from([(key(), 1_000)]), -1);
        assert_eq!(quotas.above("left", &key()), None);
        assert_eq!(quotas.in_use(), ["left: 9000 thousandths of f cpu"]);
    }
}
