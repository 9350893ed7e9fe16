//! Queues that borrow, lend and reclaim.

use anyhow::Result;
use kube::Client;
use kube::api::{DeleteParams, ListParams, ObjectMeta};
use serde_json::{Value, json};
use sluice_testkit::{ControlPlane, nodes, workloads};

use crate::place::create;

/// Where users work.
pub(super) const NAMESPACES: [&str; 2] = ["team-a", "team-b"];
/// The ClusterQueues; each has a LocalQueue of its name in each namespace.
pub(super) const QUEUES: [&str; 6] = ["research-a", "research-b", "production", "batch", "alone", PLACED];
/// The queue whose pods get nodes by topology: two racks of two nodes, each for three processors.
pub(super) const PLACED: &str = "placed";
/// Its nodes.
pub(super) const PLACED_NODES: [&str; 4] = ["rack-1-0", "rack-1-1", "rack-2-0", "rack-2-1"];
/// The label of racks.
pub(super) const RACK: &str = "example.com/rack";
/// The priority classes.
pub(super) const PRIORITIES: [(&str, i32); 3] = [("low", -10), ("high", 100), ("urgent", 1_000)];
/// The label of nodes that flavors choose.
const KIND: &str = "example.com/kind";

/// The kinds of objects of the queue world, in the order in which they are deleted: those that others use come first, so that
/// finalizers hold them until their users are gone.
const KINDS: [(&str, &str); 7] = [
    ("Topology", "topologies"),
    ("ResourceFlavor", "resourceflavors"),
    ("Cohort", "cohorts"),
    ("ClusterQueue", "clusterqueues"),
    ("LocalQueue", "localqueues"),
    ("WorkloadPriorityClass", "workloadpriorityclasses"),
    ("AdmissionCheck", "admissionchecks"),
];

/// Deletes all queues and what they use.
pub(super) async fn delete(client: &Client) -> Result<()> {
    for (kind, plural) in KINDS {
        let api = workloads::all(client, kind, plural);
        for object in api.list(&ListParams::default()).await? {
            let name = object.metadata.name.unwrap_or_default();
            match object.metadata.namespace {
                Some(namespace) => workloads::namespaced(client, &namespace, kind, plural),
                None => api.clone(),
            }
            .delete(&name, &DeleteParams::default())
            .await?;
        }
    }
    Ok(())
}

/// What of them is there, by kind and name, and the finalizers that hold it.
pub(super) async fn left(client: &Client) -> Result<Vec<(String, String)>> {
    let mut left = Vec::new();
    for (kind, plural) in KINDS {
        for object in workloads::all(client, kind, plural).list(&ListParams::default()).await? {
            let ObjectMeta { name, finalizers, .. } = object.metadata;
            let finalizers = finalizers.unwrap_or_default().join(", ");
            left.push((format!("{kind}/{}", name.unwrap_or_default()), finalizers));
        }
    }
    Ok(left)
}

fn resources(scale: u32, cpu: u32, more: &Value) -> Value {
    let one = |name: &str, amount: Value| {
        let mut resource = json!({"name": name, "nominalQuota": amount});
        if name == "cpu" {
            for (key, value) in more.as_object().into_iter().flatten() {
                resource[key] = json!(value.as_u64().unwrap_or_default() * u64::from(scale));
            }
        }
        resource
    };
    json!([one("cpu", json!(cpu * scale)), one("memory", json!("64Gi"))])
}

fn group(scale: u32, flavors: &[(&str, u32, Value)]) -> Value {
    let flavors: Vec<_> = flavors
        .iter()
        .map(|(name, cpu, more)| json!({"name": name, "resources": resources(scale, *cpu, more)}))
        .collect();
    json!([{"coveredResources": ["cpu", "memory"], "flavors": flavors}])
}

/// Makes the nodes and everything of Kueue's. All quotas and limits are `scale` times as large as the smallest job that fills a queue needs.
pub(super) async fn make(plane: &ControlPlane, client: &Client, scale: u32) -> Result<()> {
    for kind in ["reserved", "spot"] {
        nodes::pool(kind, 4).label(KIND, kind).make(client).await?;
        let spec = json!({"nodeLabels": {KIND: kind}});
        let flavor = json!({"metadata": {"name": kind}, "spec": spec});
        create(&workloads::all(client, "ResourceFlavor", "resourceflavors"), flavor).await?;
    }
    racks(client, scale).await?;
    let classes = workloads::all(client, "WorkloadPriorityClass", "workloadpriorityclasses");
    for (name, value) in PRIORITIES {
        create(&classes, json!({"metadata": {"name": name}, "value": value})).await?;
    }
    cohorts(client, scale).await?;
    queues(client, scale).await?;
    for namespace in NAMESPACES {
        plane.make_namespace(namespace).await?;
        let local = workloads::namespaced(client, namespace, "LocalQueue", "localqueues");
        for queue in QUEUES {
            let spec = json!({"clusterQueue": queue});
            create(&local, json!({"metadata": {"name": queue}, "spec": spec})).await?;
        }
    }
    Ok(())
}

/// The nodes with a topology. There is more quota than a rack has room for, and less than all of them.
pub(super) async fn placed_nodes(client: &Client, scale: u32) -> Result<()> {
    for rack in ["rack-1", "rack-2"] {
        let nodes = nodes::pool(rack, 2).label(KIND, PLACED).label(RACK, rack);
        nodes.allocatable("cpu", &(3 * scale).to_string()).make(client).await?;
    }
    Ok(())
}

/// The nodes with a topology, and their flavor.
async fn racks(client: &Client, scale: u32) -> Result<()> {
    placed_nodes(client, scale).await?;
    let levels = json!([{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]);
    let topology = json!({"metadata": {"name": "racks"}, "spec": {"levels": levels}});
    create(&workloads::all(client, "Topology", "topologies"), topology).await?;
    let spec = json!({"nodeLabels": {KIND: PLACED}, "topologyName": "racks"});
    let flavor = json!({"metadata": {"name": PLACED}, "spec": spec});
    create(&workloads::all(client, "ResourceFlavor", "resourceflavors"), flavor).await
}

async fn cohorts(client: &Client, scale: u32) -> Result<()> {
    let cohorts = workloads::all(client, "Cohort", "cohorts");
    let none = json!({});
    let group = |flavors: &[_]| group(scale, flavors);
    let own = group(&[("reserved", 1, none.clone())]);
    create(&cohorts, json!({"metadata": {"name": "company"}, "spec": {"resourceGroups": own}})).await?;
    let limited = group(&[("reserved", 0, json!({"borrowingLimit": 3}))]);
    let research = json!({"parentName": "company", "resourceGroups": limited});
    create(&cohorts, json!({"metadata": {"name": "research"}, "spec": research})).await
}

async fn queues(client: &Client, scale: u32) -> Result<()> {
    let none = json!({});
    let group = |flavors: &[_]| group(scale, flavors);
    let all = [
        (
            "research-a",
            json!({
                "cohortName": "research",
                "resourceGroups": group(&[("reserved", 3, none.clone())]),
                "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
            }),
        ),
        (
            "research-b",
            json!({
                "cohortName": "research",
                "resourceGroups": group(&[("reserved", 3, json!({"borrowingLimit": 2, "lendingLimit": 2}))]),
                "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "LowerPriority"},
            }),
        ),
        (
            "production",
            json!({
                "cohortName": "company",
                "resourceGroups": group(&[("reserved", 3, none.clone()), ("spot", 3, none.clone())]),
                "preemption": {
                    "withinClusterQueue": "LowerPriority",
                    "reclaimWithinCohort": "Any",
                    "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 0},
                },
            }),
        ),
        ("batch", json!({"cohortName": "company", "resourceGroups": group(&[("spot", 3, none.clone())])})),
        (
            "alone",
            json!({
                "resourceGroups": group(&[("spot", 4, none)]),
                "preemption": {"withinClusterQueue": "LowerOrNewerEqualPriority"},
                "queueingStrategy": "StrictFIFO",
            }),
        ),
        (
            PLACED,
            json!({
                "resourceGroups": group(&[(PLACED, 9, json!({}))]),
                "preemption": {"withinClusterQueue": "LowerPriority"},
            }),
        ),
    ];
    let queues = workloads::all(client, "ClusterQueue", "clusterqueues");
    for (name, mut spec) in all {
        spec["namespaceSelector"] = json!({});
        create(&queues, json!({"metadata": {"name": name}, "spec": spec})).await?;
    }
    Ok(())
}
