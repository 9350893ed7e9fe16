//! The topologies of the view Nodes: how much of each domain is used, by which jobs, level by level.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use sluice_engine::{LargestFit, LargestFits, Name, ShapeFit, WorkloadKey};

use crate::dashboard::amounts::{Amounts, add, shown, units};
use crate::dashboard::placed::{HOSTNAME, Placed};
use crate::dashboard::query::Page;
use crate::dashboard::rows::{FlavorRow, NodeRow};
use crate::dashboard::snapshot::Snapshot;
use crate::dashboard::viewer::Viewer;

/// Workloads of a domain that are named.
const MOST_NAMED: usize = 20;

/// For each flavor, how many pods of each size, and of each shape that waits, fit into one domain of each level now.
pub type Fits = Vec<(Name, LargestFits)>;

/// The contents of one domain.
#[derive(Debug, Default)]
struct Domain<'a> {
    nodes: usize,
    healthy: usize,
    used: Amounts,
    capacity: Amounts,
    pods: BTreeMap<&'a WorkloadKey, i64>,
}

/// All topologies, with the largest jobs that fit, if that is known.
pub fn topologies(snapshot: &Snapshot, viewer: &Viewer, fits: Option<&Fits>) -> Value {
    let of = |(name, levels): (&Name, &std::sync::Arc<Vec<String>>)| {
        let flavors: Vec<&Name> = flavors(snapshot, name).map(|(flavor, _)| flavor).collect();
        let of_flavors = |fits: &Fits| -> Fits {
            fits.iter().filter(|(flavor, _)| flavors.contains(&flavor)).cloned().collect()
        };
        let own = fits.map(of_flavors);
        let sizes = own.as_ref().map(|own| {
            let each =
                own.iter().flat_map(|(flavor, fits)| fits.sizes.iter().map(move |fit| size(flavor, fit)));
            each.collect::<Vec<_>>()
        });
        // What waits is of all namespaces.
        let shapes = own.as_ref().filter(|_| viewer.all).map(|own| {
            let each =
                own.iter().flat_map(|(flavor, fits)| fits.shapes.iter().map(move |fit| shape(flavor, fit)));
            each.collect::<Vec<_>>()
        });
        json!({"name": name, "levels": **levels, "flavors": flavors, "fits": sizes, "shapes": shapes})
    };
    let all: Vec<Value> = snapshot.topologies.iter().map(of).collect();
    json!({"topologies": all, "hidden": !viewer.nodes})
}

fn size(flavor: &Name, fit: &LargestFit) -> Value {
    json!({"flavor": flavor, "level": fit.level, "resource": fit.resource, "perPod": fit.per_pod, "pods": fit.pods})
}

fn shape(flavor: &Name, fit: &ShapeFit) -> Value {
    json!({"flavor": flavor, "level": fit.level, "shape": fit.shape, "pods": fit.pods})
}

/// The flavors of a topology.
fn flavors<'a>(
    snapshot: &'a Snapshot,
    topology: &'a Name,
) -> impl Iterator<Item = (&'a Name, &'a FlavorRow)> {
    let all = snapshot.flavors.iter().map(|(name, row)| (name, &**row));
    all.filter(move |(_, row)| row.topology.as_ref() == Some(topology))
}

/// The domains directly below the one at a path of values; an empty path means the whole topology. `None` if there is no such topology, or it has
/// fewer levels.
pub fn domains(
    snapshot: &Snapshot,
    viewer: &Viewer,
    (name, path): (&str, &[String]),
    page: Page,
) -> Option<Value> {
    let (topology, levels) = snapshot.topologies.get_key_value(name)?;
    levels.get(path.len())?;
    if !viewer.nodes {
        return Some(
            json!({"name": name, "levels": **levels, "path": [], "total": 0, "domains": [], "hidden": true}),
        );
    }
    let found = found(snapshot, topology, levels, path);
    let shown = found.iter().skip(page.offset).take(page.limit);
    let domains: Vec<Value> = shown.map(|(name, domain)| self::domain(name, domain, viewer)).collect();
    Some(
        json!({"name": name, "levels": **levels, "path": path, "total": found.len(), "domains": domains, "hidden": false}),
    )
}

/// The child of a path that a node's labels lead to, if it has a value for every level.
fn child<'a>(node: &'a NodeRow, levels: &[String], path: &[String]) -> Option<&'a str> {
    let values: Vec<&String> = levels.iter().map(|level| node.labels.get(level)).collect::<Option<_>>()?;
    let below = values.iter().zip(path).all(|(value, wanted)| *value == wanted);
    values.get(path.len()).filter(|_| below).map(|value| value.as_str())
}

fn found<'a>(
    snapshot: &'a Snapshot,
    topology: &Name,
    levels: &[String],
    path: &[String],
) -> BTreeMap<Name, Domain<'a>> {
    let flavors: BTreeMap<&Name, &FlavorRow> = flavors(snapshot, topology).collect();
    let mut found: BTreeMap<Name, Domain<'a>> = BTreeMap::new();
    // By host: the domain that it is in.
    let mut hosts: BTreeMap<&str, Name> = BTreeMap::new();
    for (name, node) in
        snapshot.nodes.iter().filter(|(_, node)| flavors.values().any(|flavor| flavor.has(node)))
    {
        let Some(child) = child(node, levels, path) else { continue };
        let child = Name::from(child);
        let domain = found.entry(Name::clone(&child)).or_default();
        domain.nodes += 1;
        domain.healthy += usize::from(node.why.is_none());
        add(&mut domain.capacity, &node.capacity, 1);
        hosts.insert(node.labels.get(HOSTNAME).map_or(&**name, String::as_str), child);
    }
    for row in snapshot.workloads.values() {
        for placed in row
            .placed
            .iter()
            .filter(|placed| placed.flavors.iter().any(|flavor| flavors.contains_key(flavor)))
        {
            for (child, pods) in within(placed, levels, path, &hosts) {
                let domain = found.entry(child).or_default();
                add(&mut domain.used, &placed.each, pods);
                *domain.pods.entry(&row.key).or_default() += pods;
            }
        }
    }
    found
}

/// The children of a path that a pod set has pods in.
fn within(
    placed: &Placed,
    levels: &[String],
    path: &[String],
    hosts: &BTreeMap<&str, Name>,
) -> Vec<(Name, i64)> {
    if placed.levels.len() < levels.len() {
        return placed.hosts().filter_map(|(host, pods)| Some((hosts.get(&**host)?.clone(), pods))).collect();
    }
    let below = |values: &[Name]| values.iter().zip(path).all(|(value, wanted)| **value == **wanted);
    let own = placed.domains.iter().filter(|(values, _)| below(values));
    own.filter_map(|(values, pods)| Some((values.get(path.len())?.clone(), *pods))).collect()
}

fn domain(name: &Name, domain: &Domain<'_>, viewer: &Viewer) -> Value {
    let mut own: Vec<_> = domain.pods.iter().filter(|(key, _)| viewer.sees(&key.namespace)).collect();
    own.sort_by_key(|(key, pods)| (-**pods, **key));
    let resources: BTreeSet<&Name> = domain.capacity.keys().chain(domain.used.keys()).collect();
    let amount = |resource: &Name| {
        let of = |amounts: &Amounts| amounts.get(resource).copied().unwrap_or(0);
        let (used, capacity) = (of(&domain.used), of(&domain.capacity));
        json!({
            "resource": resource, "used": units(resource, used), "capacity": units(resource, capacity),
            "shown": {"used": shown(resource, used), "capacity": shown(resource, capacity)},
        })
    };
    let job = |(key, pods): &(&&WorkloadKey, &i64)| json!({"namespace": key.namespace, "workload": key.name, "pods": pods});
    json!({
        "name": name,
        "nodes": domain.nodes,
        "healthy": domain.healthy,
        "resources": resources.into_iter().map(amount).collect::<Vec<_>>(),
        "jobs": own.iter().take(MOST_NAMED).map(job).collect::<Vec<_>>(),
        "more": own.len().saturating_sub(MOST_NAMED),
        "others": domain.pods.len() - own.len(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dashboard::store::Store;
    use serde_json::from_value;
    use sluice_engine::input::{Input, Object};

    fn page() -> Page {
        Page { offset: 0, limit: 1000 }
    }

    /// Two racks of two hosts with eight GPUs each; one host is not ready. A job of `a` has a host and a half, one of `secret-ns` a half.
    fn store() -> Store {
        let store = Store::default();
        let put = |object: Object| store.note(&Input::Applied(object));
        let flavor = json!({"metadata": {"name": "gpu"}, "spec": {"nodeLabels": {"pool": "gpu"}, "topologyName": "racks"}});
        put(Object::ResourceFlavor(from_value(flavor).unwrap()));
        let levels = json!({"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]});
        put(Object::Topology(from_value(json!({"metadata": {"name": "racks"}, "spec": levels})).unwrap()));
        for (number, rack) in [(1, "r1"), (2, "r1"), (3, "r2"), (4, "r2")] {
            let host = format!("n{number}");
            put(Object::Node(from_value(json!({
                "metadata": {"name": host, "labels": {"pool": "gpu", "rack": rack, "kubernetes.io/hostname": host}},
                "status": {"allocatable": {"nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": if number == 4 { "False" } else { "True" }}]},
            })).unwrap()));
        }
        // A node without a rack is in no domain.
        put(Object::Node(
            from_value(json!({"metadata": {"name": "n5", "labels": {"pool": "gpu"}}, "status": {}})).unwrap(),
        ));
        for (namespace, name, hosts, pods) in
            [("a", "own", vec!["1", "2"], vec![8, 4]), ("secret-ns", "secret", vec!["2"], vec![4])]
        {
            let slice = json!({"domainCount": hosts.len(), "valuesPerLevel": [{"individual": {"prefix": "n", "roots": hosts}}], "podCounts": {"individual": pods}});
            let assignment = json!({"levels": ["kubernetes.io/hostname"], "slices": [slice]});
            let requests = json!({"requests": {"nvidia.com/gpu": "1"}});
            put(Object::Workload(from_value(json!({
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": 12, "template": {"spec": {"containers": [{"name": "c", "resources": requests}]}}}]},
                "status": {
                    "conditions": [crate::dashboard::store::tests::condition("QuotaReserved", "True", "QuotaReserved", 1)],
                    "admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "flavors": {"nvidia.com/gpu": "gpu"}, "topologyAssignment": assignment}]},
                },
            })).unwrap()));
        }
        store.synced();
        store
    }

    fn viewer(all: bool) -> Viewer {
        Viewer { user: "eve".to_owned(), all, namespaces: ["a".into()].into(), nodes: true, queues: all }
    }

    #[test]
    fn each_domain_says_what_is_used_and_by_which_jobs() {
        let snapshot = store().snapshot().unwrap();
        let racks = domains(&snapshot, &viewer(true), ("racks", &[]), page()).unwrap();
        assert_eq!(
            (&racks["total"], &racks["domains"][0]["name"], &racks["domains"][1]["name"]),
            (&json!(2), &json!("r1"), &json!("r2"))
        );
        let first = &racks["domains"][0];
        assert_eq!(
            (&first["resources"][0]["used"], &first["resources"][0]["shown"]["capacity"]),
            (&json!(16.0), &json!("16")),
            "{first}"
        );
        assert_eq!(
            first["jobs"],
            json!([{"namespace": "a", "workload": "own", "pods": 12}, {"namespace": "secret-ns", "workload": "secret", "pods": 4}])
        );
        assert_eq!((&racks["domains"][1]["nodes"], &racks["domains"][1]["healthy"]), (&json!(2), &json!(1)));
        let hosts = domains(&snapshot, &viewer(true), ("racks", &["r1".to_owned()]), page()).unwrap();
        let used: Vec<_> = hosts["domains"]
            .as_array()
            .unwrap()
            .iter()
            .map(|host| (&host["name"], &host["resources"][0]["used"]))
            .collect();
        assert_eq!(used, [(&json!("n1"), &json!(8.0)), (&json!("n2"), &json!(8.0))]);
        let second = domains(&snapshot, &viewer(true), ("racks", &[]), Page { offset: 1, limit: 1 }).unwrap();
        assert_eq!((&second["total"], &second["domains"][0]["name"]), (&json!(2), &json!("r2")));
        let deeper = ["r1".to_owned(), "n1".to_owned()];
        assert!(domains(&snapshot, &viewer(true), ("racks", &deeper), page()).is_none());
        assert!(domains(&snapshot, &viewer(true), ("none", &[]), page()).is_none());
    }

    #[test]
    fn of_others_there_are_numbers_and_a_user_who_may_not_list_nodes_sees_no_domain() {
        let snapshot = store().snapshot().unwrap();
        let own = domains(&snapshot, &viewer(false), ("racks", &[]), page()).unwrap();
        assert!(!own.to_string().contains("secret"), "{own}");
        assert_eq!(
            (&own["domains"][0]["others"], &own["domains"][0]["jobs"][0]["workload"]),
            (&json!(1), &json!("own"))
        );
        let none =
            domains(&snapshot, &Viewer { nodes: false, ..viewer(true) }, ("racks", &[]), page()).unwrap();
        assert!(
            none["hidden"] == true && none["domains"] == json!([]) && !none.to_string().contains("r1"),
            "{none}"
        );
    }

    #[test]
    fn topologies_have_their_flavors_and_what_fits() {
        let snapshot = store().snapshot().unwrap();
        let fit = LargestFit { level: "rack".into(), resource: "nvidia.com/gpu".into(), per_pod: 8, pods: 1 };
        let waits = ShapeFit { level: "rack".into(), shape: "cpu=4,memory=16Gi".to_owned(), pods: 3 };
        let largest = LargestFits { sizes: vec![fit], shapes: vec![waits] };
        let fits = vec![("gpu".into(), largest.clone()), ("of-another".into(), largest)];
        let all = topologies(&snapshot, &viewer(true), Some(&fits));
        let sizes =
            json!([{"flavor": "gpu", "level": "rack", "resource": "nvidia.com/gpu", "perPod": 8, "pods": 1}]);
        assert_eq!(
            (&all["topologies"][0]["flavors"], &all["topologies"][0]["fits"]),
            (&json!(["gpu"]), &sizes)
        );
        let shapes = json!([{"flavor": "gpu", "level": "rack", "shape": "cpu=4,memory=16Gi", "pods": 3}]);
        assert_eq!(all["topologies"][0]["shapes"], shapes);
        let of_one = topologies(&snapshot, &viewer(false), Some(&fits));
        assert_eq!(of_one["topologies"][0]["shapes"], Value::Null, "what waits elsewhere is of others");
        assert_eq!(topologies(&snapshot, &viewer(true), None)["topologies"][0]["fits"], Value::Null);
    }

    #[test]
    fn a_placement_of_a_lowest_level_that_is_no_host_is_found_by_its_whole_path() {
        let levels = ["block", "rack"].map(str::to_owned);
        let domains = vec![(vec!["b1".into(), "r1".into()], 3), (vec!["b2".into(), "r1".into()], 5)];
        let placed = Placed {
            flavors: BTreeSet::new(),
            levels: levels.iter().map(|level| level.as_str().into()).collect(),
            each: Amounts::new(),
            domains,
        };
        let none = BTreeMap::new();
        assert_eq!(within(&placed, &levels, &[], &none), [("b1".into(), 3), ("b2".into(), 5)]);
        assert_eq!(within(&placed, &levels, &["b2".to_owned()], &none), [("r1".into(), 5)]);
    }
}
