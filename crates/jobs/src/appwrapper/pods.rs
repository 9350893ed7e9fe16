//! Where the pods of an AppWrapper are: declared in its components, or known from the kinds that it wraps.

use std::collections::BTreeMap;

use serde_json::Value;
use sluice_api::job::JobKind;

use super::path::find;
use crate::object::{int, saturated, string_map};

/// On a pod set of a component: the label of a pod with its index.
const POD_INDEX_LABEL: &str = "workload.codeflare.dev.appwrapper/tas-pod-index-label";
/// The label of a pod with the index of its group.
const SUB_GROUP_INDEX_LABEL: &str = "workload.codeflare.dev.appwrapper/tas-sub-group-index-label";
/// How many groups there are.
const SUB_GROUP_COUNT: &str = "workload.codeflare.dev.appwrapper/tas-sub-group-count";

/// The pods of one template of a component.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pods {
    /// Where the template is, in the component.
    pub path: String,
    /// How many pods it has.
    pub count: i32,
    /// The label of a pod with its index.
    pub index_label: Option<String>,
    /// The label of a pod with the index of its group.
    pub group_label: Option<String>,
    /// How many groups there are.
    pub groups: Option<i32>,
}

impl Pods {
    fn new(path: impl Into<String>, count: i32) -> Self {
        Self { path: path.into(), count: count.max(0), ..Self::default() }
    }

    /// As an AppWrapper writes them.
    fn read(declared: &Value) -> Self {
        let annotations = string_map(&declared["annotations"]);
        let count = int(&declared["replicas"]).unwrap_or(1);
        Self {
            index_label: annotations.get(POD_INDEX_LABEL).cloned(),
            group_label: annotations.get(SUB_GROUP_INDEX_LABEL).cloned(),
            groups: annotations.get(SUB_GROUP_COUNT).and_then(|text| text.parse().ok()),
            ..Self::new(declared["path"].as_str().unwrap_or_default(), count)
        }
    }
}

/// The pods of a component, in its controller's order. `status` is the controller's record of it.
///
/// The record counts, as the controller makes the pods. It may know more kinds than this crate; but if it had fewer pods than the component requests,
/// pods would run without quota.
pub(super) fn of(component: &Value, status: Option<&Value>) -> Result<Vec<Pods>, String> {
    let list =
        |value: &Value| -> Vec<Pods> { value.as_array().into_iter().flatten().map(Pods::read).collect() };
    let (declared, known) = (list(&component["podSets"]), of_known_kind(&component["template"])?);
    let mut paths = BTreeMap::new();
    for pods in &declared {
        if paths.insert(pods.path.as_str(), pods.count).is_some() {
            return Err(format!("podSets: {:?} is listed twice", pods.path));
        }
    }
    if !declared.is_empty() && !known.is_empty() {
        let same = known.iter().all(|pods| paths.get(pods.path.as_str()) == Some(&pods.count));
        if !same || known.len() != declared.len() {
            return Err(format!("podSets do not match the template: {}", reported(&known)));
        }
    }
    let wanted = if declared.is_empty() { known } else { declared };
    let Some(written) = status.map(|status| list(&status["podSets"])) else { return Ok(wanted) };
    let mut most = BTreeMap::new();
    for one in &written {
        let most = most.entry(one.path.as_str()).or_insert(one.count);
        *most = one.count.max(*most);
    }
    let has = |pods: &Pods| most.get(pods.path.as_str()).is_some_and(|most| *most >= pods.count);
    match wanted.iter().find(|pods| !has(pods)) {
        None => Ok(written),
        Some(changed) => Err(format!("{} changed after its controller read it", changed.path)),
    }
}

/// Whether AppWrapper's library knows the kind of an object, and with it where its pods are.
pub(super) fn are_known(object: &Value) -> bool {
    of_known_kind(object).is_ok_and(|pods| !pods.is_empty())
}

fn reported(pods: &[Pods]) -> String {
    let one = |pods: &Pods| format!("{} with {}", pods.path, pods.count);
    pods.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The pods of an object whose kind is known.
fn of_known_kind(object: &Value) -> Result<Vec<Pods>, String> {
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    match (text("apiVersion"), text("kind")) {
        ("v1", "Pod") => Ok(vec![Pods::new("template", 1)]),
        ("apps/v1", "Deployment" | "StatefulSet") => Ok(some(object, "template.spec")?.into_iter().collect()),
        ("batch/v1", "Job") => {
            let [index_label, _] = index_labels(object);
            let count = pods_of_job(&object["spec"]);
            Ok(vec![Pods { index_label, ..Pods::new("template.spec.template", count) }])
        }
        ("jobset.x-k8s.io/v1alpha2", "JobSet") => Ok(of_jobset(object)),
        ("kubeflow.org/v1", "PyTorchJob") => {
            let [index_label, _] = index_labels(object);
            let types = ["Master", "Worker"].into_iter();
            let of = |name| some(object, &format!("template.spec.pytorchReplicaSpecs.{name}"));
            let found = types.filter_map(|name| of(name).transpose());
            found.map(|pods| Ok(Pods { index_label: index_label.clone(), ..pods? })).collect()
        }
        ("ray.io/v1", "RayCluster") => of_ray_cluster(object, "template.spec"),
        ("ray.io/v1", "RayJob") => of_ray_cluster(object, "template.spec.rayClusterSpec"),
        _ => Ok(Vec::new()),
    }
}

/// The labels by which an object's own controller numbers its pods: the label with the number of a pod, and the label with the number of its part.
fn index_labels(object: &Value) -> [Option<String>; 2] {
    let text = |key: &str| object[key].as_str().unwrap_or_default();
    let kind = JobKind::from_owner(text("apiVersion"), text("kind"));
    let pods = kind.and_then(|kind| kind.integration().pods.first());
    let labels = pods.map(|pods| [pods.index, pods.parts.map(|parts| parts.index)]);
    labels.unwrap_or_default().map(|label| label.map(str::to_owned))
}

/// The pods whose `template` and `replicas` are in the object at a path, if there is a template.
fn some(object: &Value, path: &str) -> Result<Option<Pods>, String> {
    let template = format!("{path}.template");
    if find(object, &template).is_err() {
        return Ok(None);
    }
    let replicas = find(object, &format!("{path}.replicas")).map_or(&Value::Null, |(replicas, _)| replicas);
    let count = match replicas {
        Value::Null => 1,
        value => int(value).ok_or_else(|| format!("{path}.replicas: {value} is not a number of pods"))?,
    };
    Ok(Some(Pods::new(template, count)))
}

/// Pods that run at the same time.
fn pods_of_job(spec: &Value) -> i32 {
    let parallel = int(&spec["parallelism"]).unwrap_or(1);
    int(&spec["completions"]).map_or(parallel, |completions| parallel.min(completions))
}

fn of_jobset(object: &Value) -> Vec<Pods> {
    let jobs = object["spec"]["replicatedJobs"].as_array().into_iter().flatten().enumerate();
    let with_template = jobs.filter(|(_, job)| job.get("template").is_some());
    let [index_label, group_label] = index_labels(object);
    let of = |(at, job): (usize, &Value)| {
        let replicas = int(&job["replicas"]).unwrap_or(1);
        let count = i64::from(replicas) * i64::from(pods_of_job(&job["template"]["spec"]));
        let path = format!("template.spec.replicatedJobs[{at}].template.spec.template");
        Pods {
            index_label: index_label.clone(),
            group_label: group_label.clone(),
            groups: Some(replicas),
            ..Pods::new(path, saturated(count))
        }
    };
    with_template.map(of).collect()
}

fn of_ray_cluster(object: &Value, path: &str) -> Result<Vec<Pods>, String> {
    let mut all = vec![Pods::new(format!("{path}.headGroupSpec.template"), 1)];
    let workers =
        find(object, &format!("{path}.workerGroupSpecs")).map_or(&Value::Null, |(groups, _)| groups);
    for at in 0..workers.as_array().map_or(0, Vec::len) {
        all.extend(some(object, &format!("{path}.workerGroupSpecs[{at}]"))?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests;
