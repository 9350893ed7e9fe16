//! The adapter of workload.codeflare.dev/v1beta2 AppWrapper (docs/reference/07-integrations.md 7.1 and 7.2).
//!
//! An AppWrapper wraps whole objects, its components. Its controller makes them when it is started, and adds the content of `podSetInfos` to their
//! pod templates; it deletes them when it is stopped. The templates themselves never change.

#[cfg(rustfmt)]
mod descriptor;
mod own;
mod path;
mod pods;
mod template;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_api::conditions::whole_seconds;
use sluice_api::job::{
    JobFinished, JobKind, JobPodSet, JobView, PodScheduling, PodSetInfo, Wrapped, WrappedPods,
};
use sluice_api::labels;
use sluice_api::names::dns1123_label_error;

use self::own::OwnPods;
use self::pods::Pods;
use crate::adapter::{Adapter, Change, Schema, State};
use crate::object;
use crate::patch::{Patch, Step};
use crate::pod_group::PodGroup;
use crate::review::{Context, Violations};
use crate::scheduling::{StartError, merged, paired};
use crate::topology;

/// The adapter of AppWrappers.
pub(crate) struct AppWrapper;

impl Adapter for AppWrapper {
    fn kind(&self) -> JobKind {
        JobKind::APP_WRAPPER
    }

    fn observe(&self, object: &Value) -> JobView {
        let status = &object["status"];
        let mut view = object::from_metadata(self.kind(), object);
        view.suspended = object["spec"]["suspend"] == true;
        view.active = is_true(status, self.kind().integration().active);
        view.suspended_condition = suspended_condition(status, view.created);
        view.finished = self.finished(object);
        view.pods_ready = is_true(status, self.kind().integration().ready);
        object::set_pod_sets(&mut view, pod_sets(object));
        view
    }

    /// The additions of admission are kept beside the templates: the controller adds them to what it makes of these.
    fn start(&self, view: &JobView, infos: &[PodSetInfo]) -> Result<Patch, StartError> {
        let mut components: Vec<(usize, Vec<Value>)> = Vec::new();
        for (pod_set, info) in paired(view, infos)? {
            if info.count != pod_set.count {
                let (pod_set, needed) = (pod_set.name.clone(), pod_set.count);
                return Err(StartError::Count { pod_set, admitted: info.count, needed });
            }
            // The controller declares an AppWrapper failed whose template contradicts what is added.
            merged(pod_set, info)?;
            keeps_workload(pod_set, info)?;
            let at = index(pod_set);
            match components.last_mut().filter(|(last, _)| *last == at) {
                Some((_, infos)) => infos.push(addition(&info.scheduling)),
                None => components.push((at, vec![addition(&info.scheduling)])),
            }
        }
        let put = |(at, infos)| json!({"op": "add", "path": infos_of(at), "value": Value::Array(infos)});
        let mut operations: Vec<_> = components.into_iter().map(put).collect();
        operations.push(suspend_operation(false));
        Ok(Patch::Json(operations).pinned(&view.resource_version))
    }

    /// Only the additions of admission have to be removed, whatever the Workload's templates are.
    fn stop(&self, view: &JobView, _infos: &[PodSetInfo]) -> Vec<Step> {
        let mut operations = vec![suspend_operation(true)];
        let mut components: Vec<_> = view.pod_sets.iter().map(index).collect();
        components.dedup();
        for at in components {
            // A removed value has to exist: it is added first.
            operations.push(json!({"op": "add", "path": infos_of(at), "value": []}));
            operations.push(json!({"op": "remove", "path": infos_of(at)}));
        }
        let step = Step { subresource: None, patch: Patch::Json(operations) };
        vec![step.pinned(&view.resource_version)]
    }

    fn pod_groups<'a>(&self, object: &'a Value) -> Vec<PodGroup<'a>> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let found = templates(object).unwrap_or_default().into_iter().enumerate();
        let of = |(number, found): (usize, Found<'a>)| PodGroup {
            name: Cow::Owned(format!("{name}-{number}")),
            template: if found.info.is_null() {
                found.template
            } else {
                Cow::Owned(template::with(&found.template, found.info))
            },
            replicas: 1,
            parallel: found.pods.count,
            completions: found.pods.count,
            exclusive: None,
            pointer: found.pointer,
        };
        found.map(of).collect()
    }

    fn status(&self, object: &Value, state: State) -> Value {
        let condition = |type_: &str, value: &str, reason: &str, at: Option<Timestamp>| {
            json!({"type": type_, "status": value, "reason": reason, "message": "",
                "lastTransitionTime": at.map(whole_seconds)})
        };
        let since = |type_: &str| time_of(&object["status"], type_);
        match state {
            State::Running { since, ready } => json!({"phase": "Running", "conditions": [
                condition("QuotaReserved", "True", "Resuming", Some(since)),
                condition("ResourcesDeployed", "True", "Resuming", Some(since)),
                condition("PodsReady", if ready { "True" } else { "False" }, "SufficientPodsReady", Some(since)),
            ]}),
            State::Idle => json!({"phase": "Suspended", "conditions": [
                condition("QuotaReserved", "False", "Suspended", None),
                condition("ResourcesDeployed", "False", "Suspended", None),
            ]}),
            State::Ended { at, success: true } => json!({"phase": "Succeeded", "conditions": [
                condition("QuotaReserved", "False", "Succeeded", Some(at)),
                condition("ResourcesDeployed", "True", "Succeeded", since("ResourcesDeployed")),
                condition("PodsReady", "True", "SufficientPodsReady", since("PodsReady")),
            ]}),
            State::Ended { at, success: false } => json!({"phase": "Failed", "conditions": [
                condition("QuotaReserved", "False", "Failed", Some(at)),
                condition("ResourcesDeployed", "False", "Failed", Some(at)),
            ]}),
        }
    }

    /// Its controller sets phases, and keeps the objects of a failed one for as long as its user wants.
    fn finished(&self, object: &Value) -> Option<JobFinished> {
        let status = &object["status"];
        match status["phase"].as_str()? {
            "Succeeded" => {
                Some(JobFinished { success: true, message: "AppWrapper finished successfully".to_owned() })
            }
            "Failed" if !is_true(status, "ResourcesDeployed") => {
                Some(JobFinished { success: false, message: "AppWrapper failed".to_owned() })
            }
            _ => None,
        }
    }

    fn ran(&self, object: &Value) -> Option<(Timestamp, Timestamp)> {
        self.finished(object).filter(|finished| finished.success)?;
        let time = |type_| time_of(&object["status"], type_);
        Some((time("ResourcesDeployed")?, time("QuotaReserved")?))
    }

    /// A wrapped Pod is more than a template.
    fn schemas(&self, object: &Value) -> Vec<(String, Schema)> {
        let found = templates(object).unwrap_or_default().into_iter();
        let inner = found.filter(|found| found.pods.path != "template");
        inner.map(|found| (found.pointer, Schema::PodTemplate)).collect()
    }

    /// Objects that would run without quota are refused.
    fn validate(&self, change: &Change<'_>, violations: &mut Violations, context: &Context<'_>) {
        if !context.manage_jobs_without_queue_name && change.meta.queue_name().is_none() {
            return;
        }
        let known = change.old.map(|(old, _)| beyond_declared(old)).unwrap_or_default();
        let known: BTreeSet<_> = known.into_iter().collect();
        for (path, why) in beyond_declared(change.object).into_iter().filter(|one| !known.contains(one)) {
            violations.add(&path, why);
        }
    }
}

/// A pod template in an AppWrapper.
struct Found<'a> {
    pods: Pods,
    /// With what the controller of the wrapped object adds.
    template: Cow<'a, Value>,
    /// The template as the wrapped object has it.
    bare: &'a Value,
    /// Where it is, from the AppWrapper on.
    pointer: String,
    /// The additions of admission; null if it is not admitted.
    info: &'a Value,
    wrapped: Arc<Wrapped>,
}

/// The pod templates of an AppWrapper, in the order of its pod sets.
fn templates(object: &Value) -> Result<Vec<Found<'_>>, String> {
    let components: &[Value] = object["spec"]["components"].as_array().map_or(&[], Vec::as_slice);
    // The controller writes down all of them at once.
    let statuses = object["status"]["componentStatus"].as_array();
    let statuses = statuses.filter(|statuses| statuses.len() == components.len());
    let mut all = Vec::new();
    for (at, component) in components.iter().enumerate() {
        let status = statuses.and_then(|statuses| statuses.get(at));
        let found = of_component(at, component, status);
        all.extend(found.map_err(|why| format!("spec.components[{at}].{why}"))?);
    }
    Ok(all)
}

/// The pod sets of one component. `status` is the controller's record of it.
///
/// The number and the size of the pods are those of the wrapped object's own kind: for a kind that AppWrapper's library knows they are taken from
/// there, for others the same number has to be declared.
fn of_component<'a>(
    at: usize,
    component: &'a Value,
    status: Option<&Value>,
) -> Result<Vec<Found<'a>>, String> {
    let object = &component["template"];
    let pods = pods::of(component, status)?;
    let own = own::of(object)?;
    if let Some((path, why)) = own.as_ref().and_then(|own| own::beyond(object, &pods, own)) {
        return Err(format!("{path}: {why}"));
    }
    let sizes = own.as_ref().map(|own| own.iter().map(|own| own.pods.clone()).collect());
    let wrapped = Arc::new(wrapped(at, object, status, sizes));
    // The first of those at a place; each is taken once.
    let own = own.unwrap_or_default().into_iter().rev();
    let mut own: BTreeMap<String, OwnPods<'_>> = own.map(|own| (own.pointer.clone(), own)).collect();
    let mut all = Vec::new();
    for (number, mut pods) in pods.into_iter().enumerate() {
        let (bare, pointer) =
            path::find(object, &pods.path).map_err(|why| format!("podSets[{number}]: {why}"))?;
        let mut template = Cow::Borrowed(bare);
        if let Some(same) = own.remove(&pointer) {
            pods.count = same.pods.count.max(pods.count);
            template = same.template;
        }
        all.push(Found {
            template,
            bare,
            pointer: format!("/spec/components/{at}/template{pointer}"),
            info: &component["podSetInfos"][number],
            wrapped: Arc::clone(&wrapped),
            pods,
        });
    }
    Ok(all)
}

/// What the components of an AppWrapper request beyond their declarations: where, and what is wrong.
fn beyond_declared(object: &Value) -> Vec<(String, String)> {
    let components = object["spec"]["components"].as_array().into_iter().flatten().enumerate();
    let of = |(at, component): (usize, &Value)| {
        let (path, why) = own::beyond_declared(component)?;
        Some((format!("spec.components[{at}].{path}"), why))
    };
    components.filter_map(of).collect()
}

fn wrapped(index: usize, object: &Value, status: Option<&Value>, sizes: Option<Vec<WrappedPods>>) -> Wrapped {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let [named, prefix] = ["name", "generateName"].map(|key| text(&object["metadata"][key]));
    // The controller records the whole name once the object exists.
    let made = status.filter(|status| is_true(status, "ResourcesDeployed"));
    let made = made.map(|status| text(&status["name"])).filter(|name| named.is_empty() && !name.is_empty());
    let named = made.unwrap_or(named);
    let generates_name = named.is_empty() && !prefix.is_empty();
    Wrapped {
        index,
        api_version: text(&object["apiVersion"]),
        kind: text(&object["kind"]),
        name: if generates_name { prefix } else { named },
        generates_name,
        sizes,
    }
}

fn pod_sets(object: &Value) -> Result<Vec<JobPodSet>, String> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let of = |(number, found): (usize, Found<'_>)| {
        let path = crate::pod_group::path_of(&found.pointer);
        if !found.template["spec"].is_object() {
            return Err(format!("{path}.spec: required"));
        }
        let name = format!("{name}-{number}");
        if let Some(error) = dns1123_label_error(&name) {
            return Err(format!(
                "metadata.name: pod sets are named after it, and {name:?} is not a valid pod set name: {error}"
            ));
        }
        let template = template::reduced(&found.template);
        let mut pod_set = object::pod_set(&name, found.pods.count, &template, &path, &[])?;
        let theirs = template::of_kueue(found.bare);
        if theirs != template {
            let theirs = object::pod_set(&name, found.pods.count, &theirs, &path, &[])?;
            pod_set.kueues_hash = Some(Box::new([theirs.containers_hash, theirs.requests_hash]));
        }
        topology::number(&mut pod_set, found.pods.index_label.as_deref());
        topology::number_groups(&mut pod_set, found.pods.group_label.as_deref(), found.pods.groups);
        pod_set.wrapped = Some(found.wrapped);
        Ok(pod_set)
    };
    let pod_sets: Vec<_> = templates(object)?.into_iter().enumerate().map(of).collect::<Result<_, _>>()?;
    if pod_sets.is_empty() {
        return Err("spec.components: no pods: declare the pods of unknown kinds in podSets".to_owned());
    }
    Ok(pod_sets)
}

/// Which component has the pods of a pod set.
fn index(pod_set: &JobPodSet) -> usize {
    pod_set.wrapped.as_ref().map_or(0, |wrapped| wrapped.index)
}

fn infos_of(component: usize) -> String {
    format!("/spec/components/{component}/podSetInfos")
}

/// The additions of admission to a template, in AppWrapper's form. It has no field for affinity, which is only a preference.
fn addition(adds: &PodScheduling) -> Value {
    let fields = [
        ("labels", json!(adds.labels)),
        ("annotations", json!(adds.annotations)),
        ("nodeSelector", json!(adds.node_selector)),
        ("tolerations", json!(adds.tolerations)),
        ("schedulingGates", json!(adds.scheduling_gates)),
    ];
    let is_empty = |value: &Value| *value == json!({}) || *value == json!([]);
    let given = fields.into_iter().filter(|(_, value)| !is_empty(value));
    Value::Object(given.map(|(key, value)| (key.to_owned(), value)).collect())
}

/// A template that was copied from a running job names that job's Workload, and nothing removes that here.
fn keeps_workload(pod_set: &JobPodSet, info: &PodSetInfo) -> Result<(), StartError> {
    let (has, wanted) = [&pod_set.scheduling, &info.scheduling]
        .map(|scheduling| scheduling.annotations.get(labels::WORKLOAD))
        .into();
    match (has, wanted) {
        (Some(has), Some(wanted)) if has != wanted => Err(StartError::Conflict {
            pod_set: pod_set.name.clone(),
            field: "annotations",
            key: labels::WORKLOAD.to_owned(),
            has: has.clone(),
            wanted: wanted.clone(),
        }),
        _ => Ok(()),
    }
}

fn condition<'a>(status: &'a Value, type_: &str) -> Option<&'a Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == type_)
}

fn is_true(status: &Value, type_: &str) -> bool {
    condition(status, type_).is_some_and(|condition| condition["status"] == "True")
}

fn time_of(status: &Value, type_: &str) -> Option<Timestamp> {
    condition(status, type_)?["lastTransitionTime"].as_str()?.parse().ok()
}

/// Whether the controller reports it suspended: that it holds no quota. Before the first start it reports nothing of that.
fn suspended_condition(status: &Value, created: Timestamp) -> Option<(bool, Timestamp)> {
    match condition(status, "QuotaReserved") {
        Some(condition) => Some((condition["status"] != "True", time_of(status, "QuotaReserved")?)),
        None => status["phase"].is_string().then_some((true, created)),
    }
}

/// `add` also replaces a field that exists.
fn suspend_operation(suspend: bool) -> Value {
    json!({"op": "add", "path": "/spec/suspend", "value": suspend})
}

#[cfg(test)]
mod tests;
