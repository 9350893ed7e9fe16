//! What the pods of a job ask of nodes, template by template.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_jobs::Patch;
use sluice_jobs::webhook::mutate_pod;
use sluice_quantity::{Quantity, amount_of};

use crate::json::{self, text};

/// Amounts by resource: cpu in milli-CPU, everything else in whole units.
pub(crate) type Amounts = BTreeMap<String, i64>;

/// Each replica has a group of nodes to itself: those with the same value of the label that it names.
const EXCLUSIVE_TOPOLOGY: &str = "alpha.jobset.sigs.k8s.io/exclusive-topology";
/// On the pods of a JobSet, how often it had restarted when they were made.
const RESTART_ATTEMPT: &str = "jobset.sigs.k8s.io/restart-attempt";

/// The pods of one template.
#[derive(Clone, Debug)]
pub(crate) struct PodGroup<'a> {
    /// The replicated Job; empty for a plain Job.
    pub name: &'a str,
    /// How many Jobs it makes.
    pub replicas: i64,
    /// How many pods each of those has at a time.
    pub each: i64,
    /// What one pod asks for.
    pub requests: Amounts,
    /// The pods' spec, with what the webhook of pods adds.
    pub spec: Cow<'a, Value>,
    /// The label that makes groups of nodes, of which each replica has one to itself.
    pub exclusive: Option<&'a str>,
    /// Whether they are pods of a JobSet: those keep off groups that another JobSet has to itself.
    pub jobset: bool,
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

/// What one pod of a template asks for: the sum of its containers, limits standing in for requests, and the pod itself.
pub(super) fn requests(spec: &Value) -> Amounts {
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
fn pod_spec(template: &Value, restarts: i64) -> Cow<'_, Value> {
    let annotations = template["metadata"]["annotations"].as_object();
    if !annotations.is_some_and(|all| all.contains_key(sluice_api::labels::NODE_AFFINITY)) {
        return Cow::Borrowed(&template["spec"]);
    }
    let mut pod = template.clone();
    pod["metadata"]["labels"][RESTART_ATTEMPT] = json!(restarts.to_string());
    // A template that is no pod's is left as it is.
    if let Patch::Json(operations) = mutate_pod(&pod)
        && json::apply(&mut pod, &operations).is_err()
    {
        return Cow::Borrowed(&template["spec"]);
    }
    Cow::Owned(pod["spec"].take())
}

fn pods_at_a_time(spec: &Value) -> i64 {
    let parallel = spec["parallelism"].as_i64().unwrap_or(1);
    spec["completions"].as_i64().map_or(parallel, |c| parallel.min(c)).max(0)
}

/// The label by which a replicated Job's pods take whole groups: the annotation of its template, else that of the JobSet.
fn exclusive<'a>(job: &'a Value, jobset: &'a Value) -> Option<&'a str> {
    let of = |metadata: &'a Value| metadata["annotations"][EXCLUSIVE_TOPOLOGY].as_str();
    of(&job["template"]["metadata"]).or_else(|| of(&jobset["metadata"]))
}

/// The pods of a job.
pub(crate) fn groups<'a>(kind: JobKind, value: &'a Value) -> Vec<PodGroup<'a>> {
    let restarts = value["status"]["restarts"].as_i64().unwrap_or(0);
    match kind {
        JobKind::Job => vec![group(&value["spec"], restarts)],
        JobKind::JobSet => {
            let jobs = value["spec"]["replicatedJobs"].as_array();
            let of = |job: &'a Value| PodGroup {
                name: text(&job["name"]),
                replicas: job["replicas"].as_i64().unwrap_or(1).max(0),
                exclusive: exclusive(job, value),
                jobset: true,
                ..group(&job["template"]["spec"], restarts)
            };
            jobs.into_iter().flatten().map(of).collect()
        }
    }
}

/// The pods of one Job.
fn group(job: &Value, restarts: i64) -> PodGroup<'_> {
    let spec = pod_spec(&job["template"], restarts);
    let requests = requests(&spec);
    let each = pods_at_a_time(job);
    PodGroup { name: "", replicas: 1, each, requests, spec, exclusive: None, jobset: false }
}
