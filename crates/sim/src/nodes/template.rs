//! The requirements of a job's pods for nodes, by template.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_jobs::Patch;
use sluice_jobs::webhook::mutate_pod;
use sluice_quantity::{Quantity, amount_of};

use crate::json;

/// Amounts by resource: cpu in milli-CPU, everything else in whole units.
pub(crate) type Amounts = BTreeMap<String, i64>;

/// The pods of one template.
#[derive(Clone, Debug)]
pub(crate) struct PodGroup<'a> {
    /// The name of its pod set, as the object has it.
    pub name: Cow<'a, str>,
    /// How many parts the job's controller makes of it.
    pub replicas: i64,
    /// How many pods each of those has at a time.
    pub each: i64,
    /// The requests of one pod.
    pub requests: Amounts,
    /// The pods' spec, with what the webhook of pods adds.
    pub spec: Cow<'a, Value>,
    /// The label of node groups of which each replica gets one exclusively.
    pub exclusive: Option<&'a str>,
    /// Whether they keep off groups that another job has to itself.
    pub apart: bool,
}

fn amount(resource: &str, value: &Value) -> i64 {
    let quantity = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    Quantity::parse(&quantity).map_or(0, |q| amount_of(resource, &q).get())
}

/// The amounts of a list of resources.
pub(crate) fn amounts(value: &Value) -> Amounts {
    value.as_object().into_iter().flatten().map(|(k, v)| (k.clone(), amount(k, v))).collect()
}

impl PodGroup<'_> {
    /// Whether it has no pods.
    pub fn is_empty(&self) -> bool {
        self.replicas <= 0 || self.each <= 0
    }
}

/// The requests of one pod of a template: the sum over its containers (limits replace missing requests) and of the pod itself.
pub(crate) fn requests(spec: &Value) -> Amounts {
    let mut sum = Amounts::new();
    for container in spec["containers"].as_array().into_iter().flatten() {
        let resources = &container["resources"];
        let mut own = amounts(&resources["limits"]);
        own.extend(amounts(&resources["requests"]));
        for (resource, amount) in own {
            *sum.entry(resource).or_default() += amount;
        }
    }
    sum.insert("pods".to_owned(), 1);
    sum
}

/// The spec of a template's pods: what its annotations ask for is granted as on a cluster.
fn pod_spec(template: Cow<'_, Value>, kind: JobKind, restarts: i64) -> Cow<'_, Value> {
    let annotations = template["metadata"]["annotations"].as_object();
    if !annotations.is_some_and(|all| all.contains_key(sluice_api::labels::NODE_AFFINITY)) {
        return spec_of(template);
    }
    let mut pod = template.clone().into_owned();
    if let Some(label) = kind.integration().restart_label {
        pod["metadata"]["labels"][label] = json!(restarts.to_string());
    }
    // An invalid pod template is left unchanged.
    if let Patch::Json(operations) = mutate_pod(&pod)
        && json::apply(&mut pod, &operations).is_err()
    {
        return spec_of(template);
    }
    Cow::Owned(pod["spec"].take())
}

fn spec_of(template: Cow<'_, Value>) -> Cow<'_, Value> {
    match template {
        Cow::Borrowed(template) => Cow::Borrowed(&template["spec"]),
        Cow::Owned(mut template) => Cow::Owned(template["spec"].take()),
    }
}

/// The pods of a job.
pub(crate) fn groups(kind: JobKind, value: &Value) -> Vec<PodGroup<'_>> {
    let restarts = value["status"]["restarts"].as_i64().unwrap_or(0);
    let groups = sluice_jobs::pod_groups(kind, value).into_iter();
    groups.map(|group| of(group, kind, restarts)).collect()
}

fn of(group: sluice_jobs::PodGroup<'_>, kind: JobKind, restarts: i64) -> PodGroup<'_> {
    let spec = pod_spec(group.template, kind, restarts);
    PodGroup {
        name: group.name,
        replicas: group.replicas.into(),
        each: group.parallel.into(),
        requests: requests(&spec),
        spec,
        exclusive: group.exclusive,
        apart: keeps_apart(kind),
    }
}

/// Whether pods of such jobs avoid node groups that another job uses exclusively.
pub(super) fn keeps_apart(kind: JobKind) -> bool {
    kind.integration().exclusive_topology.is_some()
}
