//! How queues, Cohorts and flavors changed while the engine watched: for explanations of why Workloads wait. No decision depends on it.

use std::collections::VecDeque;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::input::ObjectRef;

/// Changes that are remembered, of all objects together.
const MOST_KEPT: usize = 512;
/// The highest number of fields that are named for one change.
const MOST_FIELDS: usize = 5;

/// A change of the spec of a ClusterQueue, LocalQueue, Cohort or ResourceFlavor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// When the engine saw it.
    pub at: Timestamp,
    /// The object.
    pub object: ObjectRef,
    /// What changed, as `path: before -> after`; or that it was deleted.
    pub what: Vec<String>,
}

/// The latest changes, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes(VecDeque<Change>);

impl Changes {
    /// Remembers what differs between two specs of an object.
    pub(crate) fn note(
        &mut self,
        at: Timestamp,
        object: &ObjectRef,
        old: &impl Serialize,
        new: &impl Serialize,
    ) {
        let (Ok(old), Ok(new)) = (serde_json::to_value(old), serde_json::to_value(new)) else { return };
        let mut what = Vec::new();
        compare("", &old, &new, &mut what);
        let more = what.len().saturating_sub(MOST_FIELDS);
        what.truncate(MOST_FIELDS);
        if more > 0 {
            what.push(format!("and {more} more"));
        }
        if !what.is_empty() {
            self.push(Change { at, object: object.clone(), what });
        }
    }

    /// Remembers that an object is gone.
    pub(crate) fn note_deletion(&mut self, at: Timestamp, object: &ObjectRef) {
        self.push(Change { at, object: object.clone(), what: vec!["deleted".to_owned()] });
    }

    /// The changes of these objects since a time.
    pub(crate) fn since(&self, since: Timestamp, objects: &[ObjectRef]) -> Vec<Change> {
        let of = |change: &&Change| change.at >= since && objects.contains(&change.object);
        self.0.iter().filter(of).cloned().collect()
    }

    fn push(&mut self, change: Change) {
        if self.0.len() == MOST_KEPT {
            self.0.pop_front();
        }
        self.0.push_back(change);
    }
}

/// Adds a line for each field that differs. Items of lists are identified by their names if they have any.
fn compare(path: &str, old: &Value, new: &Value, lines: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => {
            let added = b.keys().filter(|key| !a.contains_key(*key));
            for key in a.keys().chain(added) {
                let inner = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                compare(&inner, &old[key], &new[key], lines);
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            let named = |items: &[Value]| items.iter().all(|item| item["name"].is_string());
            if named(a) && named(b) {
                let with = |items: &[Value], name: &Value| items.iter().find(|i| i["name"] == *name).cloned();
                let added = b.iter().filter(|item| with(a, &item["name"]).is_none());
                for item in a.iter().chain(added) {
                    let name = &item["name"];
                    let inner = format!("{path}[{}]", name.as_str().unwrap_or_default());
                    let (old, new) = (with(a, name).unwrap_or_default(), with(b, name).unwrap_or_default());
                    compare(&inner, &old, &new, lines);
                }
                return;
            }
            for at in 0..a.len().max(b.len()) {
                compare(&format!("{path}[{at}]"), &old[at], &new[at], lines);
            }
        }
        _ if old == new => {}
        _ => lines.push(format!("{path}: {} -> {}", shown(old), shown(new))),
    }
}

/// A value in a line: without quotation marks, and no longer than a line bears.
fn shown(value: &Value) -> String {
    let text = match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if text.chars().count() <= 40 { text } else { text.chars().take(39).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::input::Kind;

    #[test]
    fn changed_fields_are_named_by_the_names_in_lists() {
        let old = json!({"groups": [{"flavors": [{"name": "spot", "quota": 4}, {"name": "gone", "quota": 1}]}], "stop": null});
        let new = json!({"groups": [{"flavors": [{"name": "new", "quota": 2}, {"name": "spot", "quota": "8"}]}], "stop": "Hold"});
        let mut lines = Vec::new();
        compare("", &old, &new, &mut lines);
        lines.sort();
        assert_eq!(
            lines,
            [
                "groups[0].flavors[gone]: {\"name\":\"gone\",\"quota\":1} -> none",
                "groups[0].flavors[new]: none -> {\"name\":\"new\",\"quota\":2}",
                "groups[0].flavors[spot].quota: 4 -> 8",
                "stop: none -> Hold",
            ]
        );
    }

    #[test]
    fn the_oldest_changes_are_forgotten() {
        let mut changes = Changes::default();
        for number in 0..=MOST_KEPT {
            let object = ObjectRef::cluster(Kind::Cohort, format!("c{number}"));
            changes.push(Change { at: Timestamp::UNIX_EPOCH, object, what: Vec::new() });
        }
        assert_eq!((changes.0.len(), &*changes.0[0].object.name), (MOST_KEPT, "c1"));
    }
}
