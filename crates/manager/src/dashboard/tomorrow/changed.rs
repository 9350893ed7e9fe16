//! The changes that a caller can try: a quota, a priority, more nodes, a new node pool.

use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use sluice_client::bounded::weight;
use sluice_engine::input::Kind;
use sluice_quantity::Quantity;
use sluice_sim::Manifest;

use super::pool::{self, HOSTNAME, Pool};
use crate::dashboard::seen_queues::SeenQueues;
use crate::dashboard::viewer::Viewer;
use crate::visibility::status::Refusal;

/// Nodes that are added at most.
const MOST_NODES: u32 = 1000;
/// The longest name, in bytes: more than any object's.
const LONGEST: usize = 512;
/// The label by which a job names its priority class.
const CLASS: &str = "kueue.x-k8s.io/priority-class";

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Change {
    /// The nominal quota of a ClusterQueue.
    Quota {
        /// The ClusterQueue.
        cluster_queue: String,
        /// The flavor.
        flavor: String,
        /// The resource.
        resource: String,
        /// The quota from now on.
        value: String,
    },
    /// The priority of a Workload.
    Priority {
        /// Its namespace.
        namespace: String,
        /// Its name.
        workload: String,
        /// The priority from now on.
        value: i32,
    },
    /// More nodes.
    Nodes {
        /// The node that they are like.
        like: String,
        /// How many.
        count: u32,
    },
    /// A node pool that does not exist yet.
    Pool(Pool),
}

impl Change {
    /// Checks that it is within bounds, and about objects that the viewer may see.
    ///
    /// # Errors
    ///
    /// If a name is too long, a quota is not a quantity or is negative, nodes are not 1 to 1000, their resources are not quantities above zero, or
    /// the viewer may not see Workloads of the namespace, may not list nodes, or may not know the ClusterQueue, which is then reported as missing.
    pub fn check(&self, viewer: &Viewer, queues: &SeenQueues<'_>) -> Result<(), Refusal> {
        let wrong = |why: &str| Err(Refusal::BadRequest(why.to_owned()));
        let names: Vec<&String> = match self {
            Self::Quota { cluster_queue, flavor, resource, value } => {
                vec![cluster_queue, flavor, resource, value]
            }
            Self::Priority { namespace, workload, .. } => vec![namespace, workload],
            Self::Nodes { like, .. } => vec![like],
            Self::Pool(pool) => pool.names().collect(),
        };
        if names.iter().any(|name| name.len() > LONGEST) {
            return wrong("changes: a name is too long");
        }
        match self {
            Self::Quota { cluster_queue, value, .. } => match Quantity::parse(value) {
                Ok(quantity) if !quantity.is_negative() && queues.queue(cluster_queue) => Ok(()),
                Ok(quantity) if !quantity.is_negative() => {
                    Err(Refusal::BadRequest(format!("changes: {}", no_queue(cluster_queue))))
                }
                _ => wrong("changes: value: expected a quantity that is not negative, such as 10 or 64Gi"),
            },
            Self::Priority { namespace, .. } if !viewer.sees(namespace) => {
                let user = &viewer.user;
                Err(Refusal::Forbidden(format!(
                    "User {user:?} cannot get Workloads in the namespace {namespace:?}"
                )))
            }
            Self::Nodes { .. } | Self::Pool(_) if !viewer.nodes => {
                let user = &viewer.user;
                Err(Refusal::Forbidden(format!("User {user:?} cannot list nodes")))
            }
            Self::Nodes { count, .. } | Self::Pool(Pool { count, .. })
                if !(1..=MOST_NODES).contains(count) =>
            {
                wrong("changes: count: expected a number from 1 to 1000")
            }
            Self::Pool(pool) => match (pool.wrong(), &pool.cluster_queue) {
                (Some(why), _) => wrong(why),
                (None, Some(queue)) if !queues.queue(queue) => {
                    Err(Refusal::BadRequest(format!("changes: {}", no_queue(queue))))
                }
                (None, _) => Ok(()),
            },
            Self::Priority { .. } | Self::Nodes { .. } => Ok(()),
        }
    }
}

/// Applies changes to the objects of a cluster, and returns how many bytes are then left for documents.
///
/// # Errors
///
/// If there is no such ClusterQueue, quota, Workload or node among the objects, or the added nodes take more memory than is `left` for documents, in
/// bytes. The changes before that one are applied then.
pub fn apply(objects: &mut Vec<Manifest>, changes: &[Change], left: usize) -> Result<usize, Refusal> {
    let mut left = left;
    for (at, change) in changes.iter().enumerate() {
        let applied = match change {
            Change::Quota { cluster_queue, flavor, resource, value } => {
                quota(objects, cluster_queue, (flavor, resource), value)
            }
            Change::Priority { namespace, workload, value } => priority(objects, namespace, workload, *value),
            Change::Nodes { like, count } => match model(objects, like) {
                Ok(model) => {
                    left = room_for(&model, *count, left)?;
                    nodes(objects, &model, &format!("{like}-more-{}", at + 1), *count);
                    Ok(())
                }
                Err(why) => Err(why),
            },
            Change::Pool(new) => match new.node(objects, at) {
                Ok(model) => {
                    left = room_for(&model, new.count, left)?;
                    nodes(objects, &model, &pool::name(&new.flavor, at), new.count);
                    let queue = new.cluster_queue.as_deref();
                    queue.map_or(Ok(()), |queue| new.give_quota(queue_of(objects, queue)?))
                }
                Err(why) => Err(why),
            },
        };
        applied.map_err(|why| Refusal::BadRequest(format!("changes: {why}")))?;
    }
    Ok(left)
}

fn is(object: &Value, namespace: Option<&str>, name: &str) -> bool {
    let metadata = &object["metadata"];
    metadata["name"] == name && namespace.is_none_or(|namespace| metadata["namespace"] == namespace)
}

fn no_queue(name: &str) -> String {
    format!("there is no ClusterQueue {name:?}")
}

fn queue_of<'a>(objects: &'a mut [Manifest], name: &str) -> Result<&'a mut Value, String> {
    let queues = objects.iter_mut().filter(|m| m.kind == Kind::ClusterQueue);
    queues.map(|m| &mut m.object).find(|object| is(object, None, name)).ok_or_else(|| no_queue(name))
}

fn quota(
    objects: &mut [Manifest],
    queue: &str,
    (flavor, resource): (&str, &str),
    value: &str,
) -> Result<(), String> {
    let object = queue_of(objects, queue)?;
    let groups = object["spec"]["resourceGroups"].as_array_mut().into_iter().flatten();
    let flavors = groups.flat_map(|group| group["flavors"].as_array_mut().into_iter().flatten());
    let mut quotas = flavors
        .filter(|own| own["name"] == flavor)
        .flat_map(|own| own["resources"].as_array_mut().into_iter().flatten())
        .filter(|own| own["name"] == resource);
    let missing =
        || format!("the ClusterQueue {queue:?} has no quota of {resource:?} in the flavor {flavor:?}");
    quotas.next().ok_or_else(missing)?["nominalQuota"] = Value::from(value);
    Ok(())
}

/// The class is removed from the Workload and its job: it would set the priority again.
fn priority(objects: &mut [Manifest], namespace: &str, name: &str, value: i32) -> Result<(), String> {
    let workloads = objects.iter_mut().filter(|m| m.kind == Kind::Workload);
    let found = workloads.map(|m| &mut m.object).find(|object| is(object, Some(namespace), name));
    let workload = found.ok_or_else(|| format!("no Workload {namespace}/{name} waits or runs"))?;
    workload["spec"]["priority"] = Value::from(value);
    if let Some(spec) = workload["spec"].as_object_mut() {
        spec.remove("priorityClassRef");
    }
    let owners = workload["metadata"]["ownerReferences"].clone();
    let owners: Vec<&Value> = owners.as_array().into_iter().flatten().map(|owner| &owner["uid"]).collect();
    let jobs = objects.iter_mut().filter(|m| matches!(m.kind, Kind::Job(_)));
    for job in jobs.filter(|m| owners.contains(&&m.object["metadata"]["uid"])) {
        if let Some(labels) = job.object["metadata"]["labels"].as_object_mut() {
            labels.remove(CLASS);
        }
    }
    Ok(())
}

/// The node that others are copies of.
fn model(objects: &[Manifest], like: &str) -> Result<Manifest, String> {
    let found = objects.iter().find(|m| m.kind == Kind::Node && is(&m.object, None, like));
    found.cloned().ok_or_else(|| format!("there is no node {like:?}"))
}

/// The memory of a document in bytes, counted as when documents are read.
fn memory(document: &Manifest) -> usize {
    size_of::<Manifest>() + weight(&document.object)
}

/// The bytes left for documents after this number of nodes.
fn room_for(model: &Manifest, count: u32, left: usize) -> Result<usize, Refusal> {
    let more = usize::try_from(count).ok().and_then(|count| count.checked_mul(memory(model)));
    more.and_then(|more| left.checked_sub(more)).ok_or_else(too_many)
}

fn too_many() -> Refusal {
    let why = "changes: the new nodes take more memory than is free for a simulation: ask for fewer nodes, give the program \
               more memory, or use kubectl kueue simulate --from-cluster";
    Refusal::Other(StatusCode::PAYLOAD_TOO_LARGE, why.to_owned())
}

fn nodes(objects: &mut Vec<Manifest>, model: &Manifest, named: &str, count: u32) {
    for number in 1..=count {
        let mut node = model.clone();
        let name = format!("{named}-{number}");
        let metadata = &mut node.object["metadata"];
        metadata["name"] = Value::from(name.as_str());
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.remove("uid");
            metadata.remove("resourceVersion");
        }
        if metadata["labels"][HOSTNAME].is_string() {
            metadata["labels"][HOSTNAME] = Value::from(name);
        }
        objects.push(node);
    }
}
