//! The webhooks of plain pods (docs/reference/07-integrations.md 7.3).

use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize as _;
use serde_json::{Value, json};
use sluice_api::config::selector_matches;
use sluice_api::gates::Gate;
use sluice_api::job::JobKind;
use sluice_api::{labels, names};

use super::additions::Additions;
use super::topology;
use super::validate::{admission_gates, always, on_update};
use crate::bulk::{Bulk, STARTED};
use crate::object::string_map;
use crate::patch::Patch;
use crate::pods::{Parent, group_name, prebuilt_name, total_count};
use crate::review::{Context, Denied, Gatherer, Meta, Violations, annotation_path, label_path};

/// Which pods are managed, besides what holds for every kind: `integrations.podOptions` of older configurations.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodSelectors<'a> {
    /// Labels of their namespaces.
    pub namespaces: Option<&'a LabelSelector>,
    /// Their own labels.
    pub pods: Option<&'a LabelSelector>,
    /// Only pods that another object suspends, because nothing else lists their kind (docs/reference/07-integrations.md 7.1 "Implied").
    pub implied: bool,
}

const LABELS: &str = "/metadata/labels";
const ANNOTATIONS: &str = "/metadata/annotations";
const FINALIZERS: &str = "/metadata/finalizers";
const GATES: &str = "/spec/schedulingGates";

/// The JSON patch of a new pod, if it has to be queued: the marks of a managed pod, and the gates that keep it from being scheduled.
///
/// Unlike a job, a pod is managed only in the namespaces that `managedJobsNamespaceSelector` selects, even with a queue name. A pod of an object that
/// suspends its pods itself is gated in every namespace: that object's rules decided it.
pub fn mutate_plain_pod(pod: &Value, context: &Context<'_>, selectors: &PodSelectors<'_>) -> Patch {
    let mut patch = Additions::to(pod);
    let by_parent = suspending_parent(pod).is_some();
    if !pod["spec"].is_object() || (!by_parent && !is_managed(pod, context, selectors)) {
        return Patch::Json(Vec::new());
    }
    if !by_parent {
        if Meta::read(pod, false).queue_name().is_none() && context.default_local_queue {
            patch.set(LABELS, labels::QUEUE_NAME, labels::DEFAULT_LOCAL_QUEUE);
        }
        patch.push(FINALIZERS, &json!(labels::MANAGED_FINALIZER));
    }
    // Also where a user wrote the annotation: the pod is queued like any other.
    patch.set(LABELS, labels::MANAGED, "true");
    if let Some(parent) = Parent::of(&pod["metadata"])
        && let Some(uid) = parent.uid.as_deref().or(context.gatherer.map(|gatherer| gatherer.uid))
    {
        if let Some(gatherer) = context.gatherer.filter(|_| parent.group.is_some()) {
            mark_member(pod, parent.kind, &gatherer, &mut patch);
        }
        // The names hold its UID, so no template can have them. Labels may be too short for them.
        let workload = parent.workload_name(uid, context.gates.enabled(Gate::ShortWorkloadNames));
        let names = context.gates.enabled(Gate::WorkloadIdentifierAnnotations);
        let map = if names { ANNOTATIONS } else { LABELS };
        for key in [labels::POD_GROUP_NAME, labels::PREBUILT_WORKLOAD_NAME] {
            patch.set(map, key, &workload);
        }
    }
    patch.push(GATES, &json!({"name": labels::ADMISSION_SCHEDULING_GATE}));
    if context.gates.enabled(Gate::TopologyAwareScheduling) {
        let metadata = &pod["metadata"];
        let label = metadata["annotations"][labels::POD_GROUP_POD_INDEX_LABEL].as_str();
        if let Some(index) = label.and_then(|label| metadata["labels"][label].as_str()) {
            patch.set(LABELS, labels::POD_GROUP_POD_INDEX, index);
        }
        patch.push(GATES, &json!({"name": labels::TOPOLOGY_SCHEDULING_GATE}));
    }
    let has_role = pod["metadata"]["annotations"][labels::ROLE_HASH].is_string();
    if !has_role && let Ok(spec) = PodSpec::deserialize(&pod["spec"]) {
        patch.set(ANNOTATIONS, labels::ROLE_HASH, &names::role_hash(&spec));
    }
    Patch::Json(patch.operations())
}

/// The additions from its object to the pod of a group: the templates do not have them.
fn mark_member(pod: &Value, kind: JobKind, gatherer: &Gatherer<'_>, patch: &mut Additions<'_>) {
    let said = [(labels::QUEUE_NAME, gatherer.queue_name), (labels::PRIORITY_CLASS, gatherer.priority_class)];
    for (key, value) in said {
        if let Some(value) = value {
            patch.set(LABELS, key, value);
        }
    }
    let size = kind.integration().group_size.and_then(|key| pod["metadata"]["annotations"][key].as_str());
    let size = size.and_then(|size| size.parse::<i32>().ok()).unwrap_or(1).max(1).to_string();
    patch.set(ANNOTATIONS, labels::POD_GROUP_TOTAL_COUNT, &size);
}

/// The framework whose object suspends a pod, as the pod says.
pub fn suspending_parent(pod: &Value) -> Option<&str> {
    pod["metadata"]["annotations"][labels::POD_SUSPENDING_PARENT].as_str()
}

/// Whether a new pod has to be queued by itself or in a group.
fn is_managed(pod: &Value, context: &Context<'_>, selectors: &PodSelectors<'_>) -> bool {
    let own = string_map(&pod["metadata"]["labels"]);
    let queued = Meta::read(pod, false).queue_name().is_some();
    !selectors.implied
        && context.namespace_is_managed()
        && selectors.pods.is_none_or(|selector| selector_matches(selector, &own))
        && selectors.namespaces.is_none_or(|selector| selector_matches(selector, context.namespace_labels))
        && !context.managed_owner
        && (queued || context.default_local_queue || context.manage_jobs_without_queue_name)
}

/// Checks a new pod (`old` is `None`) or a changed one.
///
/// Of a changed pod only the changes are checked. For a pod that is being deleted only changes that hide it while it runs are refused.
///
/// # Errors
///
/// The violated rules: an invalid name or number in a label or annotation, an incomplete group, a topology request that is not allowed, a change of
/// an immutable field, such as the group.
pub fn validate_plain_pod(pod: &Value, old: Option<&Value>, context: &Context<'_>) -> Result<(), Denied> {
    let meta = Meta::read(pod, is_suspended(pod));
    let before = old.map(|old| Meta::read(old, is_suspended(old)));
    let mut violations = Violations::default();
    if pod["metadata"]["deletionTimestamp"].is_string() {
        // Its containers may run on until its grace period is over. Its finalizers may be removed.
        if let Some(old) = old {
            managed_label(pod, before.as_ref(), &meta, &mut violations);
            parent(pod, Some(old), &mut violations);
            workload(pod, Some(old), &mut violations);
            if !is_suspended(old) {
                group_on_update(pod, old, &mut violations, context);
            }
        }
        return if violations.0.is_empty() { Ok(()) } else { Err(Denied(violations.0)) };
    }
    always(("Pod", false), before.as_ref(), &meta, &mut violations, context);
    managed_label(pod, before.as_ref(), &meta, &mut violations);
    parent(pod, old, &mut violations);
    workload(pod, old, &mut violations);
    group(pod, old, &mut violations, context);
    if old.is_none() && meta.label(labels::MANAGED) == Some("true") {
        // A pod of an object has what its template has, and what is added to pods.
        let owned = pod["metadata"]["ownerReferences"].as_array().is_some_and(|owners| !owners.is_empty());
        let times = if owned || suspending_parent(pod).is_some() { STARTED } else { 1 };
        if let Some(why) = Bulk::of(pod).excess(times, Bulk::default()) {
            violations.add("spec", why);
        }
    }
    if let (Some(old), Some(before)) = (old, &before) {
        on_update(before, &meta, &mut violations, context);
        group_on_update(pod, old, &mut violations, context);
    } else if context.gates.enabled(Gate::AdmissionGatedBy) {
        admission_gates(&meta, &mut violations);
    }
    // The pod of a job is one of many that its template is for; their number was checked with the job.
    let of_itself =
        pod["metadata"]["labels"][labels::MANAGED].is_string() || suspending_parent(pod).is_some();
    let count = of_itself.then(|| total_count(&pod["metadata"]).unwrap_or(1));
    topology::check_pod((pod, count), old, &mut violations, context);
    if violations.0.is_empty() { Ok(()) } else { Err(Denied(violations.0)) }
}

/// Whether a pod waits for admission or ended.
fn is_suspended(pod: &Value) -> bool {
    is_gated(pod) || has_ended(pod)
}

fn is_gated(pod: &Value) -> bool {
    let mut gates = pod["spec"]["schedulingGates"].as_array().into_iter().flatten();
    gates.any(|gate| gate["name"] == labels::ADMISSION_SCHEDULING_GATE)
}

fn annotation<'a>(pod: &'a Value, key: &str) -> Option<&'a str> {
    pod["metadata"]["annotations"][key].as_str().filter(|value| !value.is_empty())
}

fn has_ended(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

fn managed_label(pod: &Value, old: Option<&Meta>, meta: &Meta, violations: &mut Violations) {
    let value = |meta: &Meta| meta.labels.get(labels::MANAGED).cloned();
    let given = value(meta).filter(|given| given != "true");
    if given.is_some() && old.is_none_or(|old| value(old) != given) {
        violations.forbidden(&label_path(labels::MANAGED), "managed label value can only be 'true'");
    }
    // Pods without it are not watched: a running one would keep its nodes without quota.
    let is_managed = |meta: &Meta| value(meta).is_some_and(|value| value == "true");
    if value(meta).is_none() && !has_ended(pod) && old.is_some_and(is_managed) {
        violations.forbidden(
            &label_path(labels::MANAGED),
            "managed label can't be removed before the pod has ended",
        );
    }
}

/// The suspending parent may not change until the pod has ended: which controller looks after the pod depends on it.
fn parent(pod: &Value, old: Option<&Value>, violations: &mut Violations) {
    let after = suspending_parent(pod);
    if !has_ended(pod) && old.is_some_and(|old| suspending_parent(old) != after) {
        violations.immutable(&annotation_path(labels::POD_SUSPENDING_PARENT), after.unwrap_or_default());
    }
}

/// The pods of an admitted job say which Workload has quota for them until they have ended: by that the API server knows which are not to grow.
fn workload(pod: &Value, old: Option<&Value>, violations: &mut Violations) {
    let [before, after] = [old.unwrap_or(&Value::Null), pod].map(|pod| annotation(pod, labels::WORKLOAD));
    if before.is_some() && before != after && !has_ended(pod) {
        violations.immutable(&annotation_path(labels::WORKLOAD), after.unwrap_or_default());
    }
}

/// The group annotations and labels of a pod.
fn group(pod: &Value, old: Option<&Value>, violations: &mut Violations, context: &Context<'_>) {
    let said = |pod: &Value| {
        let metadata = &pod["metadata"];
        let count = metadata["annotations"][labels::POD_GROUP_TOTAL_COUNT].as_str().map(str::to_owned);
        let name = group_name(metadata, &context.gates).map(str::to_owned);
        (name, count, prebuilt_name(metadata, &context.gates).map(str::to_owned))
    };
    let now = said(pod);
    if old.is_some_and(|old| said(old) == now) {
        return;
    }
    let (name, count, prebuilt) = now;
    let both = || {
        let (count, name) = (labels::POD_GROUP_TOTAL_COUNT, labels::POD_GROUP_NAME);
        format!("Required value: both the '{count}' annotation and the '{name}' label should be set")
    };
    let name_path = label_path(labels::POD_GROUP_NAME);
    let count_path = annotation_path(labels::POD_GROUP_TOTAL_COUNT);
    if let Some(name) = &name
        && let Some(error) = names::dns1123_subdomain_error(name)
    {
        violations.invalid(&name_path, name, &error);
    }
    match (&name, &count) {
        (None, Some(_)) => violations.add(&name_path, both()),
        (Some(_), None) => violations.add(&count_path, both()),
        (Some(_), Some(text)) => {
            if let Err(why) = total_count(&pod["metadata"]) {
                violations.invalid(&count_path, text, &why);
            }
        }
        (None, None) => {}
    }
    if let (Some(name), Some(prebuilt)) = (name, prebuilt)
        && name != prebuilt
    {
        let message = "prebuilt workload and pod group should be equal";
        violations.invalid(&label_path(labels::PREBUILT_WORKLOAD_NAME), &prebuilt, message);
    }
}

/// A pod stays in its group and in its role there, and what makes a group end stays, too.
fn group_on_update(pod: &Value, old: &Value, violations: &mut Violations, context: &Context<'_>) {
    let name = |pod: &Value| group_name(&pod["metadata"], &context.gates).map(str::to_owned);
    let (before, after) = (name(old), name(pod));
    if before.is_some() && before != after {
        violations.immutable(&label_path(labels::POD_GROUP_NAME), &after.clone().unwrap_or_default());
    }
    if after.is_some() {
        // A mistake may be corrected; and the number of pods may change, as long as the pod waits.
        let [known, role] = [old, pod].map(|pod| annotation(pod, labels::ROLE_HASH));
        if known.is_some() && known != role {
            violations.immutable(&annotation_path(labels::ROLE_HASH), role.unwrap_or_default());
        }
        let [known, count] = [old, pod].map(|pod| total_count(&pod["metadata"]).ok());
        let waits = [old, pod].into_iter().all(is_gated);
        if !waits && known.is_some() && known != count {
            let said = annotation(pod, labels::POD_GROUP_TOTAL_COUNT).unwrap_or_default();
            violations.immutable(&annotation_path(labels::POD_GROUP_TOTAL_COUNT), said);
        }
    }
    let unretriable = |pod: &Value| pod["metadata"]["annotations"][labels::RETRIABLE_IN_GROUP] == "false";
    if after.is_some() && unretriable(old) && !unretriable(pod) {
        let message = "unretriable pod group can't be converted to retriable";
        violations.forbidden(&annotation_path(labels::RETRIABLE_IN_GROUP), message);
    }
}
