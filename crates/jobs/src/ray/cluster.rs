//! The spec of a cluster: a head, and groups of workers.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use sluice_api::job::PodsAt;
use sluice_api::{labels, names};
use sluice_quantity::Quantity;

use super::worker;
use crate::object::int;
use crate::pod_group::path_of;

/// The pod set of the head.
pub(super) const HEAD: &str = "head";
/// The container that hands the work of a RayJob to its cluster.
const SUBMITTER: &str = "ray-job-submitter";
/// The annotation that makes the head keep the cluster's state in Redis.
const FAULT_TOLERANT: &str = "ray.io/ft-enabled";

/// Pods of a cluster, or of what hands work to it, that share a template.
pub(super) struct Group<'a> {
    /// The name of their pod set, as the object has it.
    pub name: &'a str,
    /// Where the template is: a JSON pointer.
    pub pointer: String,
    /// The template, with what KubeRay adds that needs quota.
    pub template: Cow<'a, Value>,
    /// How many there are.
    pub count: i32,
    /// Whether the object has the template; otherwise KubeRay has a default.
    pub written: bool,
    /// The template as Kueue counts it, where that is another.
    pub of_kueue: Option<Cow<'a, Value>>,
}

/// The spec of a cluster in an object.
#[derive(Clone, Copy)]
pub(super) struct Cluster<'a> {
    /// The spec.
    pub spec: &'a Value,
    /// Where it is: a JSON pointer.
    pub pointer: &'static str,
    /// The locations of its head's pod, and of those of its groups of workers.
    pub pods: &'static [PodsAt],
    /// The annotations of the object: KubeRay gives them to the cluster.
    pub annotations: &'a Value,
    /// Whether work is handed to it by a container of the head.
    pub submits_from_head: bool,
}

impl<'a> Cluster<'a> {
    /// The head and the groups of workers, in this order.
    pub fn groups(self) -> Vec<Group<'a>> {
        let head = Group {
            name: HEAD,
            pointer: template_at(self.pods, 0),
            template: self.head(),
            count: 1,
            written: true,
            of_kueue: self.head_of_kueue(),
        };
        let count = |group: &Value| {
            // Pods beyond the requested ones wait, and need quota nevertheless.
            let least = if self.is_elastic() { desired(group) } else { 0 };
            replicas(group).max(least).max(0).saturating_mul(hosts(group))
        };
        let worker = |(index, group): (usize, &'a Value)| {
            let template = worker::waiting(&group["template"]);
            Group {
                name: group["groupName"].as_str().unwrap_or_default(),
                pointer: template_at(self.pods, index + 1),
                of_kueue: matches!(template, Cow::Owned(_)).then(|| Cow::Borrowed(&group["template"])),
                template,
                count: count(group),
                written: true,
            }
        };
        std::iter::once(head).chain(self.workers().iter().enumerate().map(worker)).collect()
    }

    /// The groups of workers.
    pub fn workers(self) -> &'a [Value] {
        self.spec["workerGroupSpecs"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Whether Ray itself changes the number of workers.
    pub fn scales_itself(self) -> bool {
        self.spec["enableInTreeAutoscaling"] == true
    }

    /// Whether workload slices are made of it while it changes its size.
    pub fn is_elastic(self) -> bool {
        self.annotations[labels::ELASTIC_JOB] == "true"
    }

    /// The template of the head's pod, with the containers that KubeRay adds, and with room for the Job that cleans Redis up after it.
    pub fn head(self) -> Cow<'a, Value> {
        self.head_with(true)
    }

    /// The same as Kueue has it, where that is another: it does not count what is requested by limits alone.
    fn head_of_kueue(self) -> Option<Cow<'a, Value>> {
        let theirs = self.is_fault_tolerant().then(|| self.head_with(false))?;
        (theirs != self.head()).then_some(theirs)
    }

    /// `limits`: whether a limit replaces a missing request.
    fn head_with(self, limits: bool) -> Cow<'a, Value> {
        let template = &self.spec["headGroupSpec"]["template"];
        let cleans_up = self.is_fault_tolerant();
        if !(self.scales_itself() || cleans_up || self.submits_from_head) {
            return Cow::Borrowed(template);
        }
        let mut template = template.clone();
        let image = image(&template);
        let Some(containers) = template.pointer_mut("/spec/containers").and_then(Value::as_array_mut) else {
            return Cow::Owned(template);
        };
        if cleans_up && let Some(head) = containers.first_mut() {
            ask_at_least(head, &[("cpu", "200m"), ("memory", "256Mi")], limits);
        }
        if self.scales_itself() {
            containers.push(self.autoscaler(image.as_deref()));
        }
        if self.submits_from_head {
            containers.push(submitter_container(image.as_deref()));
        }
        Cow::Owned(template)
    }

    /// Whether the state of the head outlives it, in Redis.
    fn is_fault_tolerant(self) -> bool {
        let annotated = self.annotations[FAULT_TOLERANT].as_str();
        annotated.is_some_and(|text| text.eq_ignore_ascii_case("true"))
            || self.spec["gcsFaultToleranceOptions"].is_object()
    }

    /// The container of Ray's autoscaler.
    fn autoscaler(self, image: Option<&str>) -> Value {
        let own = &self.spec["autoscalerOptions"]["resources"];
        let resources = if own.is_object() {
            own.clone()
        } else {
            let amounts = json!({"cpu": "500m", "memory": "512Mi"});
            json!({"requests": amounts, "limits": amounts})
        };
        container("autoscaler", image, &resources)
    }

    /// The template of the Job that hands work to the cluster, where the user says none.
    pub fn default_submitter(self) -> Value {
        let image = image(&self.spec["headGroupSpec"]["template"]);
        let container = submitter_container(image.as_deref());
        json!({"spec": {"containers": [container], "restartPolicy": "Never"}})
    }

    /// What keeps the cluster from becoming pod sets, or would run pods that are in none.
    pub fn trouble(self) -> Option<String> {
        let path = path_of(self.pointer);
        if !self.spec.is_object() {
            return Some(format!("{path}: required"));
        }
        if self.scales_itself() && !self.is_elastic() {
            return Some(format!("{path}.enableInTreeAutoscaling: {ONLY_ELASTIC}"));
        }
        let mut names = BTreeSet::from([HEAD.to_owned()]);
        for (index, group) in self.workers().iter().enumerate() {
            let path = format!("{path}.workerGroupSpecs[{index}]");
            let name = group["groupName"].as_str().unwrap_or_default().to_ascii_lowercase();
            if name == HEAD {
                return Some(format!("{path}.groupName: {RESERVED}"));
            }
            let is_name = names::dns1123_subdomain_error(&name).is_none();
            if !is_name || name.contains('.') || name.len() > MAX_NAME {
                return Some(format!("{path}.groupName: {name:?} cannot be the name of a pod set"));
            }
            if !names.insert(name.clone()) {
                return Some(format!("{path}.groupName: {name:?} is the name of another group"));
            }
            for field in ["replicas", "numOfHosts"] {
                if int(&group[field]).is_some_and(|number| number < 0) {
                    return Some(format!("{path}.{field}: {}: must not be negative", group[field]));
                }
            }
            if desired(group) > replicas(group) && !self.is_elastic() {
                let (made, counted) = (desired(group), replicas(group));
                let of = ["minReplicas", "maxReplicas"].map(|field| format!("{field} {}", group[field]));
                return Some(format!(
                    "{path}.replicas: {counted}: KubeRay would make {made} for {}, {}",
                    of[0], of[1]
                ));
            }
        }
        None
    }
}

/// The JSON pointer of a group's template, by the descriptor of the kind. The first group is the head.
pub(super) fn template_at(pods: &[PodsAt], group: usize) -> String {
    let pods = pods.get(group.min(1));
    pods.map_or_else(String::new, |pods| pods.template_at(group.saturating_sub(1)))
}

/// Longest name of a pod set.
const MAX_NAME: usize = 63;
/// Why a cluster must not scale itself.
pub(super) const ONLY_ELASTIC: &str =
    "a kueue managed job should only use autoscaling when workload slicing is enabled";
/// Why a group of workers may not have this name.
pub(super) const RESERVED: &str = "\"head\" is reserved for the head group";

/// How many replicas of a group count.
fn replicas(group: &Value) -> i32 {
    int(&group["replicas"]).unwrap_or(1)
}

/// How many replicas of a group KubeRay makes: within the bounds of the group. If the bounds contradict one another its releases follow one or the
/// other.
fn desired(group: &Value) -> i32 {
    let least = int(&group["minReplicas"]).unwrap_or(0);
    let most = int(&group["maxReplicas"]).unwrap_or(i32::MAX);
    replicas(group).max(least).min(most.max(least))
}

/// Pods of one replica.
fn hosts(group: &Value) -> i32 {
    int(&group["numOfHosts"]).unwrap_or(1).max(1)
}

/// The image of the container in which Ray runs: the first one.
pub(super) fn image(template: &Value) -> Option<String> {
    template["spec"]["containers"][0]["image"].as_str().map(str::to_owned)
}

/// The container that hands work to a cluster, as KubeRay has it.
fn submitter_container(image: Option<&str>) -> Value {
    let requests = json!({"cpu": "500m", "memory": "200Mi"});
    let resources = json!({"requests": requests, "limits": {"cpu": "1", "memory": "1Gi"}});
    container(SUBMITTER, image, &resources)
}

/// A container that KubeRay adds.
pub(super) fn container(name: &str, image: Option<&str>, resources: &Value) -> Value {
    let mut container = json!({"name": name, "resources": resources});
    if let (Some(image), Some(fields)) = (image, container.as_object_mut()) {
        fields.insert("image".to_owned(), json!(image));
    }
    container
}

/// An amount of a resource, if it is one.
pub(super) fn amount(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    }
}

/// Raises what a container requests, or would by its `limits`, to these amounts.
fn ask_at_least(container: &mut Value, amounts: &[(&str, &str)], limits: bool) {
    let resources = container["resources"].clone();
    let mut requests = resources["requests"].as_object().cloned().unwrap_or_default();
    for (resource, least) in amounts {
        let by_limit = if limits { &resources["limits"][*resource] } else { &Value::Null };
        let asked = requests.get(*resource).unwrap_or(by_limit);
        let enough = |asked: Quantity| Quantity::parse(least).is_ok_and(|least| asked >= least);
        if !amount(asked).is_some_and(enough) {
            requests.insert((*resource).to_owned(), json!(least));
        }
    }
    let Some(fields) = container.as_object_mut() else { return };
    let resources = fields.entry("resources").or_insert_with(|| Value::Object(Map::new()));
    if !resources.is_object() {
        *resources = Value::Object(Map::new());
    }
    resources["requests"] = Value::Object(requests);
}
