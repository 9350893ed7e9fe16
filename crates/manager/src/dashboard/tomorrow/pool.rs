//! A node pool that does not exist yet: nodes of a flavor, and the quota that comes with them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use sluice_engine::input::Kind;
use sluice_quantity::Quantity;
use sluice_sim::{Manifest, Source};

/// The label by which topologies identify a node.
pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";
/// Resources that a node has at most.
const MOST_RESOURCES: usize = 16;
/// The number of pods of a node, unless it is given: a kubelet's default.
const PODS: (&str, &str) = ("pods", "110");

/// The properties of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pool {
    /// The flavor of its nodes, which have its labels and taints.
    pub flavor: String,
    /// How many nodes.
    pub count: u32,
    /// The amount of each resource per node.
    pub capacity: BTreeMap<String, String>,
    /// The ClusterQueue that gets the quota for them, if one is given.
    #[serde(default)]
    pub cluster_queue: Option<String>,
}

impl Pool {
    /// The names in it.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.capacity
            .iter()
            .flat_map(|(name, value)| [name, value])
            .chain([&self.flavor])
            .chain(&self.cluster_queue)
    }

    /// Why what a node has cannot be.
    pub fn wrong(&self) -> Option<&'static str> {
        let is_amount = |text: &String| {
            Quantity::parse(text).is_ok_and(|quantity| !quantity.is_negative() && quantity.milli_value() != 0)
        };
        if self.capacity.is_empty() || self.capacity.len() > MOST_RESOURCES {
            Some("changes: capacity: expected 1 to 16 resources")
        } else if self.capacity.values().all(is_amount) {
            None
        } else {
            Some("changes: capacity: expected quantities above zero, such as 8 or 64Gi")
        }
    }

    /// One of its nodes, for the change with this index.
    ///
    /// # Errors
    ///
    /// If there is no such flavor.
    pub fn node(&self, objects: &[Manifest], change: usize) -> Result<Manifest, String> {
        let named = |kind: Kind, name: &Value| {
            let mut all = objects.iter().filter(|m| m.kind == kind).map(|m| &m.object);
            all.find(|object| object["metadata"]["name"] == *name)
        };
        let flavor = named(Kind::ResourceFlavor, &json!(self.flavor));
        let spec = &flavor.ok_or_else(|| format!("there is no ResourceFlavor {:?}", self.flavor))?["spec"];
        let mut labels = spec["nodeLabels"].as_object().cloned().unwrap_or_default();
        labels.insert(HOSTNAME.to_owned(), json!(""));
        // At each level it is in a domain with no other node.
        let levels = named(Kind::Topology, &spec["topologyName"]).map(|topology| &topology["spec"]["levels"]);
        for level in levels.and_then(Value::as_array).into_iter().flatten() {
            if let Some(level) = level["nodeLabel"].as_str() {
                labels.entry(level).or_insert_with(|| json!(name(&self.flavor, change)));
            }
        }
        let (pods, usual) = PODS;
        let mut has: Map<String, Value> = [(pods.to_owned(), json!(usual))].into_iter().collect();
        has.extend(self.capacity.iter().map(|(name, value)| (name.clone(), json!(value))));
        let object = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "", "labels": labels},
            "spec": {"taints": spec["nodeTaints"]},
            "status": {"allocatable": has, "capacity": has, "conditions": [{"type": "Ready", "status": "True"}]},
        });
        let source = Source { file: "nodes".to_owned(), document: 1 };
        Ok(Manifest { source, kind: Kind::Node, object })
    }

    /// Adds the nodes' resources to a ClusterQueue's nominal quota, for each resource that the queue has in the flavor.
    ///
    /// # Errors
    ///
    /// If it has none of them, or a quantity cannot be read.
    pub fn give_quota(&self, queue: &mut Value) -> Result<(), String> {
        let mut given = false;
        let groups = queue["spec"]["resourceGroups"].as_array_mut().into_iter().flatten();
        let flavors = groups.flat_map(|group| group["flavors"].as_array_mut().into_iter().flatten());
        let own = flavors.filter(|own| own["name"] == self.flavor.as_str());
        for resource in own.flat_map(|own| own["resources"].as_array_mut().into_iter().flatten()) {
            let Some(each) = resource["name"].as_str().and_then(|name| self.capacity.get(name)) else {
                continue;
            };
            let nominal = match &resource["nominalQuota"] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let unread = |text: &str| format!("{text:?} is no quantity");
            let (before, each) = (
                Quantity::parse(&nominal).map_err(|_| unread(&nominal))?,
                Quantity::parse(each).map_err(|_| unread(each))?,
            );
            let more = each.saturating_mul(i64::from(self.count));
            resource["nominalQuota"] = json!(before.saturating_add(more).to_string());
            given = true;
        }
        let why = || {
            format!(
                "the ClusterQueue {:?} has no quota of these resources in the flavor {:?}",
                self.cluster_queue.as_deref().unwrap_or_default(),
                self.flavor
            )
        };
        given.then_some(()).ok_or_else(why)
    }
}

/// The prefix of the names of a change's nodes.
pub(super) fn name(flavor: &str, change: usize) -> String {
    format!("{flavor}-new-{}", change + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(capacity: &[(&str, &str)]) -> Pool {
        let capacity = capacity.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Pool {
            flavor: "spot".to_owned(),
            count: 3,
            capacity: capacity.collect(),
            cluster_queue: Some("cq".to_owned()),
        }
    }

    fn manifest(kind: Kind, object: Value) -> Manifest {
        Manifest { source: Source { file: "x".to_owned(), document: 1 }, kind, object }
    }

    #[test]
    fn a_node_of_a_pool_is_what_its_flavor_says_and_in_domains_of_its_own() {
        let taints = json!([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]);
        let spec =
            json!({"nodeLabels": {"pool": "spot", "block": "b1"}, "nodeTaints": taints, "topologyName": "t"});
        let levels = json!([{"nodeLabel": "block"}, {"nodeLabel": "rack"}, {"nodeLabel": HOSTNAME}]);
        let objects = [
            manifest(Kind::ResourceFlavor, json!({"metadata": {"name": "spot"}, "spec": spec})),
            manifest(Kind::Topology, json!({"metadata": {"name": "t"}, "spec": {"levels": levels}})),
        ];
        let node = pool(&[("cpu", "8"), ("example.com/gpu", "4")]).node(&objects, 1).unwrap().object;
        let labels = json!({"pool": "spot", "block": "b1", "rack": "spot-new-2", HOSTNAME: ""});
        assert_eq!(node["metadata"]["labels"], labels);
        assert_eq!(node["spec"]["taints"], taints);
        assert_eq!(node["status"]["allocatable"], json!({"cpu": "8", "example.com/gpu": "4", "pods": "110"}));
        assert_eq!(pool(&[("cpu", "8")]).node(&[], 0).unwrap_err(), "there is no ResourceFlavor \"spot\"");
    }

    #[test]
    fn its_quota_is_added_to_what_the_queue_has_in_the_flavor() {
        let resources =
            json!([{"name": "cpu", "nominalQuota": 2}, {"name": "memory", "nominalQuota": "1Gi"}]);
        let flavors =
            json!([{"name": "other", "resources": resources}, {"name": "spot", "resources": resources}]);
        let mut queue = json!({"spec": {"resourceGroups": [{"flavors": flavors}]}});
        pool(&[("cpu", "500m"), ("memory", "1Gi"), ("example.com/gpu", "4")]).give_quota(&mut queue).unwrap();
        let after = &queue["spec"]["resourceGroups"][0]["flavors"];
        assert_eq!(after[0]["resources"], resources);
        let more =
            json!([{"name": "cpu", "nominalQuota": "3500m"}, {"name": "memory", "nominalQuota": "4Gi"}]);
        assert_eq!(after[1]["resources"], more);
        let why = pool(&[("example.com/gpu", "4")]).give_quota(&mut queue).unwrap_err();
        assert_eq!(why, "the ClusterQueue \"cq\" has no quota of these resources in the flavor \"spot\"");
    }

    #[test]
    fn what_a_node_has_are_amounts_above_zero() {
        assert_eq!(pool(&[("cpu", "8")]).wrong(), None);
        for capacity in [&[][..], &[("cpu", "-1")], &[("cpu", "0")], &[("cpu", "much")]] {
            assert!(pool(capacity).wrong().is_some(), "{capacity:?}");
        }
        let many: Vec<_> = (0..=MOST_RESOURCES).map(|number| number.to_string()).collect();
        let many: Vec<_> = many.iter().map(|name| (name.as_str(), "1")).collect();
        assert!(pool(&many).wrong().is_some());
    }
}
