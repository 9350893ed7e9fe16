//! The rules that hold for every job kind (docs/reference/07-integrations.md 7.1 "Validation").

use std::collections::BTreeSet;

use serde_json::Value;
use sluice_api::gates::Gate;
use sluice_api::job::JobKind;
use sluice_api::{labels, names, text};

use super::{bounds, meta, topology};
use crate::adapter::Change;
use crate::registry;
use crate::review::{Context, Denied, Meta, Violations, annotation_path, label_path};

/// Checks a new job (`old` is `None`) or a changed one.
///
/// Of a changed job only the changes are checked: controllers must still be able to write an object that broke a rule before. A job that is being
/// deleted is never refused, so that Sluice does not block the deletion of a namespace.
///
/// # Errors
///
/// The violated rules: an invalid name or number in a label or annotation, a topology request or a field that its kind does not allow, too many
/// levels, too little room for the additions of a start, a change of an immutable field, such as the queue of a running job, or that a job without a queue is resumed
/// where a new one would get the LocalQueue `default`.
pub fn validate(
    kind: JobKind,
    object: &Value,
    old: Option<&Value>,
    context: &Context<'_>,
) -> Result<(), Denied> {
    if object["metadata"]["deletionTimestamp"].is_string() {
        return Ok(());
    }
    let meta = meta(kind, object);
    let before = old.map(|old| super::meta(kind, old));
    if before.as_ref().is_some_and(|before| evades(kind, object, (before, &meta), context)) {
        let mut violations = Violations::default();
        let queue = labels::DEFAULT_LOCAL_QUEUE;
        let message =
            format!("name a queue before the job is resumed: the namespace has the LocalQueue {queue:?}");
        violations.forbidden(&label_path(labels::QUEUE_NAME), &message);
        return Err(Denied(violations.0));
    }
    if before.as_ref().is_some_and(|before| !registry::of(kind).judges(before, &meta, context)) {
        return Ok(());
    }
    let mut violations = Violations::default();
    let elastic = registry::of(kind).is_elastic();
    always((kind.kind(), elastic), before.as_ref(), &meta, &mut violations, context);
    // Nothing is written to other jobs.
    let is_ours = |meta: &Meta| context.is_managed(meta) || context.managed_owner;
    if is_ours(&meta) {
        let was = old.filter(|_| before.as_ref().is_some_and(is_ours));
        bounds::check(kind, object, was, &mut violations);
        bounds::check_levels(object, was, &mut violations);
        bounds::check_whole(kind, object, was, &mut violations);
        bounds::check_values(kind, object, was, context.managed_owner, &mut violations);
    }
    if let Some(before) = &before {
        on_update(before, &meta, &mut violations, context);
    } else if context.gates.enabled(Gate::AdmissionGatedBy) {
        admission_gates(&meta, &mut violations);
    }
    let slices = super::is_elastic(kind, &meta, context);
    let is_part = context.managed_owner || super::owner_kind(object, &BTreeSet::new()).is_some();
    topology::check((kind, slices, is_part), object, old, &mut violations, context);
    let change = Change { object, meta: &meta, old: old.zip(before.as_ref()) };
    registry::of(kind).validate(&change, &mut violations, context);
    if violations.0.is_empty() { Ok(()) } else { Err(Denied(violations.0)) }
}

/// Whether a job is resumed without a queue where a new one would get the default one. It was a part of a job that is gone, or is older than that
/// queue. One that runs already is left alone.
fn evades(kind: JobKind, object: &Value, (old, new): (&Meta, &Meta), context: &Context<'_>) -> bool {
    let resumed = old.suspended && !new.suspended && !kind.integration().suspends_pods;
    let is_free = || !context.managed_owner && !context.is_managed(new) && !registry::of(kind).skips(object);
    resumed && context.default_local_queue && context.namespace_is_managed() && is_free()
}

/// `kind` is its name, and whether workload slices can be made of it.
pub(super) fn always(
    (kind, is_elastic): (&str, bool),
    old: Option<&Meta>,
    meta: &Meta,
    violations: &mut Violations,
    context: &Context<'_>,
) {
    let label = |key: &str| {
        let value = meta.labels.get(key);
        value.filter(|_| old.is_none_or(|old| old.labels.get(key) != value))
    };
    let annotation = |key: &str| {
        let value = meta.annotations.get(key);
        value.filter(|_| old.is_none_or(|old| old.annotations.get(key) != value))
    };
    for key in [labels::QUEUE_NAME, labels::PREBUILT_WORKLOAD_NAME] {
        for (path, name) in [(label_path(key), label(key)), (annotation_path(key), annotation(key))] {
            let Some(name) = name.filter(|name| !name.is_empty()) else { continue };
            if let Some(error) = names::dns1123_subdomain_error(name) {
                violations.invalid(&path, name, &error);
            }
        }
    }
    if let Some(text) = label(labels::MAX_EXEC_TIME_SECONDS) {
        let path = label_path(labels::MAX_EXEC_TIME_SECONDS);
        match text.parse::<i32>() {
            Err(_) => violations.invalid(&path, text, "must be an integer"),
            Ok(seconds) if seconds <= 0 => violations.invalid(&path, text, "should be greater than 0"),
            Ok(_) => {}
        }
    }
    let elastic = context.gates.enabled(Gate::ElasticJobsViaWorkloadSlices)
        && annotation(labels::ELASTIC_JOB).is_some_and(|text| text == "true");
    if elastic && !is_elastic {
        let message = format!("workload slices are not supported for {kind}");
        violations.forbidden(&annotation_path(labels::ELASTIC_JOB), &message);
    }
}

/// The longest entry of `admission-gated-by`, in bytes.
const LONGEST_GATE: usize = 63;

/// The entries of `admission-gated-by` are unique paths below a domain.
pub(super) fn admission_gates(meta: &Meta, violations: &mut Violations) {
    let Some(text) = meta.annotation(labels::ADMISSION_GATED_BY) else { return };
    let path = annotation_path(labels::ADMISSION_GATED_BY);
    let mut seen = BTreeSet::new();
    for gate in text::listed(text) {
        if let Some(error) = names::domain_path_error(gate) {
            violations.invalid(&path, gate, &error);
        } else if !seen.insert(gate) {
            violations.add(&path, format!("Duplicate value: {gate:?}"));
        } else if gate.len() > LONGEST_GATE {
            violations.add(&path, format!("Too long: may not be more than {LONGEST_GATE} bytes"));
        }
    }
}

pub(super) fn on_update(old: &Meta, new: &Meta, violations: &mut Violations, context: &Context<'_>) {
    queue_name(old, new, violations, context);
    let [prebuilt_before, prebuilt] = [old, new].map(|meta| meta.prebuilt_workload(context.gates));
    // The pods of an elastic job have a gate that only slices remove.
    let sliced = context.gates.enabled(Gate::ElasticJobsViaWorkloadSlices)
        && new.annotation(labels::ELASTIC_JOB).is_some_and(|text| text == "true");
    if (sliced || !new.suspended) && prebuilt_before != prebuilt {
        let path = label_path(labels::PREBUILT_WORKLOAD_NAME);
        violations.immutable(&path, prebuilt.unwrap_or_default());
    }
    let seconds = |meta: &Meta| meta.label(labels::MAX_EXEC_TIME_SECONDS).map(str::to_owned);
    if !(old.suspended && new.suspended) && seconds(old) != seconds(new) {
        violations.immutable(&label_path(labels::MAX_EXEC_TIME_SECONDS), &seconds(new).unwrap_or_default());
    }
    priority_class(old, new, violations);
    if context.gates.enabled(Gate::ElasticJobsViaWorkloadSlices) {
        let elastic = |meta: &Meta| meta.annotation(labels::ELASTIC_JOB).map(str::to_owned);
        if elastic(old) != elastic(new) {
            violations.immutable(&annotation_path(labels::ELASTIC_JOB), &elastic(new).unwrap_or_default());
        }
    }
    if context.gates.enabled(Gate::AdmissionGatedBy) {
        let entries = |meta: &Meta| -> BTreeSet<String> {
            let text = meta.annotation(labels::ADMISSION_GATED_BY).unwrap_or_default();
            text::listed(text).filter(|gate| !gate.is_empty()).map(str::to_owned).collect()
        };
        let (before, after) = (entries(old), entries(new));
        for gate in after.difference(&before) {
            let message = format!("admission gate {gate:?} cannot be added after creation");
            violations.forbidden(&annotation_path(labels::ADMISSION_GATED_BY), &message);
        }
    }
}

fn queue_name(old: &Meta, new: &Meta, violations: &mut Violations, context: &Context<'_>) {
    let path = label_path(labels::QUEUE_NAME);
    let (before, after) = (old.queue_name(), new.queue_name());
    if !new.suspended && before != after {
        violations.immutable(&path, after.unwrap_or_default());
    } else if before.is_some()
        && after.is_none()
        && context.default_local_queue
        && context.namespace_is_managed()
    {
        let message =
            format!("cannot be removed: the namespace has the LocalQueue {:?}", labels::DEFAULT_LOCAL_QUEUE);
        violations.forbidden(&path, &message);
    }
}

/// The class may be changed at any time; it cannot be removed, and a running job cannot get its first one.
fn priority_class(old: &Meta, new: &Meta, violations: &mut Violations) {
    let path = label_path(labels::PRIORITY_CLASS);
    match (old.label(labels::PRIORITY_CLASS), new.label(labels::PRIORITY_CLASS)) {
        (Some(_), None) => violations.forbidden(&path, "workload priority class cannot be removed"),
        (None, Some(_)) if !new.suspended => {
            violations.forbidden(&path, "workload priority class cannot be added to a running job");
        }
        _ => {}
    }
}
