//! What a job's user lets it run with, where the field that suspends it has more values than two: a stop writes it into an annotation, from which the
//! next start takes it.

use std::mem::discriminant;

use serde_json::Value;
use sluice_api::config::DeclaredSuspend;
use sluice_api::job::JobView;
use sluice_api::labels::RUNNING_VALUE;

/// The value that lets an object run, as JSON: neither of the declared ones, and one that a start may write.
pub(super) fn running_value(suspend: &DeclaredSuspend, value: &Value) -> Option<String> {
    let is_written = discriminant(value) == discriminant(&suspend.suspended);
    (is_written && *value != suspend.suspended && *value != suspend.running).then(|| value.to_string())
}

/// Records in a view what the annotation of its object is after a stop; empty if the object must not have it any more.
pub(super) fn record(view: &mut JobView, suspend: &DeclaredSuspend, (value, kept): (&Value, &Value)) {
    let next = match running_value(suspend, value) {
        Some(next) => Some(next),
        None if view.suspended => kept.as_str().map(str::to_owned),
        None => kept.as_str().map(|_| String::new()),
    };
    if let Some(next) = next {
        view.annotations.insert(RUNNING_VALUE.to_owned(), next);
    }
}

/// The value with which a job starts.
pub(super) fn resumed(view: &JobView, suspend: &DeclaredSuspend) -> Value {
    let kept = view.annotations.get(RUNNING_VALUE).and_then(|text| serde_json::from_str(text).ok());
    let kept = kept.filter(|value| running_value(suspend, value).is_some());
    kept.unwrap_or_else(|| suspend.running.clone())
}

/// What a stop writes into the annotation, if anything.
pub(crate) fn remembered(view: &JobView) -> Option<Value> {
    let next = view.annotations.get(RUNNING_VALUE)?;
    Some(if next.is_empty() { Value::Null } else { Value::from(next.as_str()) })
}
