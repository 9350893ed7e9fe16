//! The JobSet that the trainer makes from a TrainJob and its runtime: the part that determines the pods and their requests.
//!
//! As of trainer v2.2.0, in its order: patches of others, the number of nodes, what a policy adds, the TrainJob's settings of its initializers and
//! its trainer, labels for gang scheduling.

use serde_json::{Map, Value, json};

use super::env::upsert;
use super::merge::merge;
use super::patches::is_ours;
use super::policy;
use crate::object::int;
use crate::patch::set;

/// The label of a Job's template with the step of the TrainJob that it is for.
const ANCESTOR: &str = "trainer.kubeflow.org/trainjob-ancestor-step";
/// The step that trains.
pub(super) const TRAINER: &str = "trainer";
/// The container, and the replicated Job, of a node that trains.
pub(super) const NODE: &str = "node";
/// The steps that fetch what training needs, and their containers, and where the TrainJob speaks of them.
const INITIALIZERS: [(&str, &str); 2] = [("dataset-initializer", "dataset"), ("model-initializer", "model")];
/// Most replicated Jobs of a runtime.
const MOST: usize = 100;

/// A JobSet in the making.
pub(super) struct Draft<'a> {
    /// The TrainJob, or its outline.
    pub trainjob: &'a Value,
    /// `spec.mlPolicy` of the runtime.
    pub policy: &'a Value,
    /// The replicated Jobs.
    pub jobs: Vec<Value>,
    /// How many pods each has.
    pub counts: Vec<i32>,
}

impl Draft<'_> {
    /// `spec.trainer` of the TrainJob.
    pub fn trainer(&self) -> &Value {
        &self.trainjob["spec"]["trainer"]
    }

    /// The first replicated Job of a step.
    pub fn of_step(&self, step: &str) -> Option<usize> {
        self.jobs.iter().position(|job| ancestor(job) == Some(step))
    }

    /// The TrainJob's name.
    pub fn name(&self) -> &str {
        self.trainjob["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// The containers of a replicated Job that have this name.
    pub fn containers(&mut self, job: usize, name: &str) -> impl Iterator<Item = &mut Value> {
        let found =
            self.jobs.get_mut(job).and_then(|job| job.pointer_mut("/template/spec/template/spec/containers"));
        let containers = found.and_then(Value::as_array_mut).into_iter().flatten();
        containers.filter(move |container| container["name"] == name)
    }
}

/// The step that a replicated Job is for.
fn ancestor(job: &Value) -> Option<&str> {
    job["template"]["metadata"]["labels"][ANCESTOR].as_str()
}

/// The JobSet, or why there is none.
pub(super) fn jobset(trainjob: &Value, runtime: &Value) -> Result<Value, String> {
    let template = &runtime["spec"]["template"];
    let mut spec = template["spec"].clone();
    let jobs = match spec.get_mut("replicatedJobs").map(Value::take).unwrap_or_default() {
        Value::Array(jobs) if jobs.len() > MOST => {
            return Err(format!("the runtime has too many replicated Jobs: {}, at most {MOST}", jobs.len()));
        }
        Value::Array(jobs) if !jobs.is_empty() => jobs,
        _ => return Err("the runtime has no spec.template.spec.replicatedJobs".to_owned()),
    };
    let policy = &runtime["spec"]["mlPolicy"];
    let mut draft = Draft { trainjob, policy, jobs, counts: Vec::new() };
    let patches = trainjob["spec"]["runtimePatches"].as_array().map_or(&[][..], Vec::as_slice);
    let patches: Vec<_> = patches
        .iter()
        .filter(|entry| !is_ours(entry))
        .map(|entry| &entry["trainingRuntimeSpec"]["template"])
        .collect();
    for patch in &patches {
        apply(&mut draft.jobs, patch);
    }
    draft.counts = draft.jobs.iter().map(|job| count(job, policy)).collect();
    policy::enforce(&mut draft)?;
    for (step, field) in INITIALIZERS {
        initialize(&mut draft, step, field);
    }
    train(&mut draft);
    label_for_gangs(&mut draft, &runtime["spec"]["podGroupPolicy"]);
    let Draft { mut jobs, counts, .. } = draft;
    for (job, count) in jobs.iter_mut().zip(counts) {
        for field in ["parallelism", "completions"] {
            set(job, &["template", "spec", field], json!(count.max(0)));
        }
    }
    set(&mut spec, &["replicatedJobs"], Value::Array(jobs));
    let metadata = |field| metadata(field, std::iter::once(template).chain(patches.iter().copied()));
    Ok(json!({
        "metadata": {"name": trainjob["metadata"]["name"], "labels": metadata("labels"), "annotations": metadata("annotations")},
        "spec": spec,
    }))
}

/// Labels or annotations of the JobSet: the runtime's, then those of the patches.
fn metadata<'a>(field: &str, of: impl Iterator<Item = &'a Value>) -> Map<String, Value> {
    let maps = of.filter_map(|template| template["metadata"][field].as_object());
    maps.flatten().map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Merges what a patch says of each replicated Job.
fn apply(jobs: &mut [Value], patch: &Value) {
    for patched in patch["spec"]["replicatedJobs"].as_array().into_iter().flatten() {
        if !patched["template"].is_object() {
            continue;
        }
        for job in jobs.iter_mut().filter(|job| job["name"] == patched["name"]) {
            if !job["template"].is_object() {
                set(job, &["template"], json!({}));
            }
            if let Some(template) = job.get_mut("template") {
                merge(template, &patched["template"]);
            }
        }
    }
}

/// How many pods a replicated Job has, before the TrainJob has a say.
fn count(job: &Value, policy: &Value) -> i32 {
    let of_template = int(&job["template"]["spec"]["parallelism"]).unwrap_or(1);
    let trains = ancestor(job) == Some(TRAINER) && policy.is_object();
    let count = if trains { int(&policy["numNodes"]).unwrap_or(1) } else { of_template };
    count.max(1)
}

/// The TrainJob's settings of an initializer.
fn initialize(draft: &mut Draft<'_>, step: &str, field: &str) {
    let said = draft.trainjob["spec"]["initializer"][field].clone();
    for at in 0..draft.jobs.len() {
        if ancestor(&draft.jobs[at]) != Some(step) {
            continue;
        }
        set(&mut draft.jobs[at], &["replicas"], json!(1));
        if !said.is_object() {
            continue;
        }
        for container in draft.containers(at, step) {
            if let Some(from) = said["storageUri"].as_str() {
                upsert(container, "env", &json!({"name": "STORAGE_URI", "value": from}));
            }
            for variable in said["env"].as_array().into_iter().flatten() {
                upsert(container, "env", variable);
            }
            if let Some(secret) = said["secretRef"]["name"].as_str() {
                let source = json!({"secretRef": {"name": secret}});
                match container["envFrom"].as_array_mut() {
                    Some(sources) => sources.push(source),
                    None => set(container, &["envFrom"], json!([source])),
                }
            }
        }
    }
}

/// The TrainJob's settings of its trainer.
fn train(draft: &mut Draft<'_>) {
    let said = draft.trainer().clone();
    let launcher_trains = policy::launcher_is_node(draft.policy);
    for at in 0..draft.jobs.len() {
        let trains = ancestor(&draft.jobs[at]) == Some(TRAINER);
        if trains {
            set(&mut draft.jobs[at], &["replicas"], json!(1));
        }
        if !said.is_object() || !(trains || launcher_trains && draft.jobs[at]["name"] == NODE) {
            continue;
        }
        for container in draft.containers(at, NODE) {
            for field in ["image", "command", "args"] {
                if trains && !said[field].is_null() {
                    container[field] = said[field].clone();
                }
            }
            let mut resources = Map::new();
            for field in ["limits", "requests"] {
                let amounts = &said["resourcesPerNode"][field];
                if amounts.is_object() {
                    resources.insert(field.to_owned(), amounts.clone());
                }
            }
            if !resources.is_empty() {
                container["resources"] = Value::Object(resources);
            }
            for variable in said["env"].as_array().into_iter().flatten() {
                upsert(container, "env", variable);
            }
        }
    }
}

/// The label, or annotation, by which a scheduler identifies the pods of a TrainJob.
fn label_for_gangs(draft: &mut Draft<'_>, policy: &Value) {
    let name = draft.name().to_owned();
    for (of, field, key) in [
        ("coscheduling", "labels", "scheduling.x-k8s.io/pod-group"),
        ("volcano", "annotations", "scheduling.k8s.io/group-name"),
    ] {
        if policy[of].is_object() {
            for job in &mut draft.jobs {
                set(job, &["template", "spec", "template", "metadata", field, key], json!(name));
            }
        }
    }
}
