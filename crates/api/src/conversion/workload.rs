//! Workload: the priority class, the misspelt field, the topology assignment (docs/reference/01-api.md 1.4).

use serde::ser::{Error as _, SerializeMap};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use super::error::ConversionError;
use super::object::{Object, part, rename, text};
use super::topology::{self, TopologyError};
use crate::{v1beta1, v1beta2};

/// The names of a priority class's kind: v1beta1's, and v1beta2's group and kind.
const CLASS_SOURCES: [(&str, &str, &str); 2] = [
    ("kueue.x-k8s.io/workloadpriorityclass", "kueue.x-k8s.io", "WorkloadPriorityClass"),
    ("scheduling.k8s.io/priorityclass", "scheduling.k8s.io", "PriorityClass"),
];

const TIME: &str = "accumulatedPastExecutionTimeSeconds";
/// The misspelling is the wire's.
const TIME_V1BETA1: &str = "accumulatedPastExexcutionTimeSeconds";

pub(super) fn convert(root: &mut Object, to: To) -> Result<(), ConversionError> {
    let up = to == To::V1beta2;
    if let Some(spec) = part(root, "spec") {
        if up {
            class_up(spec);
        } else {
            class_down(spec);
            spec.remove("preemptionGates");
            constraints_down(spec);
        }
        mandatory(spec, "podSets", &json!([]), up);
    }
    let Some(status) = part(root, "status") else { return Ok(()) };
    if up {
        rename(status, TIME_V1BETA1, TIME);
    } else {
        rename(status, TIME, TIME_V1BETA1);
        status.remove("preemptionGates");
    }
    if let Some(admission) = part(status, "admission") {
        mandatory(admission, "clusterQueue", &json!(""), up);
        mandatory(admission, "podSetAssignments", &json!([]), up);
    }
    assignments(status, to)
}

/// A field that v1beta1 must have and v1beta2 may leave out.
fn mandatory(object: &mut Object, field: &str, empty: &Value, up: bool) {
    if !up {
        object.entry(field).or_insert_with(|| empty.clone());
    } else if object.get(field) == Some(empty) {
        object.remove(field);
    }
}

/// A name without a known source is lost: nothing says which kind of class it names.
fn class_up(spec: &mut Object) {
    let source = spec.remove("priorityClassSource");
    let name = spec.remove("priorityClassName");
    let known = CLASS_SOURCES.iter().find(|(known, ..)| source.as_ref().is_some_and(|s| s == known));
    if let (Some((_, group, kind)), Some(Value::String(name))) = (known, name)
        && !name.is_empty()
    {
        spec.insert("priorityClassRef".to_owned(), json!({"group": group, "kind": kind, "name": name}));
    }
}

fn class_down(spec: &mut Object) {
    let mut source = "";
    if let Some(Value::Object(reference)) = spec.remove("priorityClassRef") {
        let known = CLASS_SOURCES.iter().find(|(_, group, kind)| {
            text(&reference, "group") == Some(group) && text(&reference, "kind") == Some(kind)
        });
        if let (Some((known, ..)), Some(name)) = (known, reference.get("name")) {
            source = known;
            spec.insert("priorityClassName".to_owned(), name.clone());
        }
    }
    // The schema's default: what a client of v1beta1 wrote, it finds again.
    spec.insert("priorityClassSource".to_owned(), source.into());
}

fn constraints_down(spec: &mut Object) {
    let pod_sets = spec.get_mut("podSets").and_then(Value::as_array_mut);
    for pod_set in pod_sets.into_iter().flatten().filter_map(Value::as_object_mut) {
        if let Some(request) = part(pod_set, "topologyRequest") {
            request.remove("podsetSliceRequiredTopologyConstraints");
        }
    }
}

/// The target version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum To {
    V1beta1,
    /// As [`To::V1beta1`], but assignments are left to be expanded when they are written.
    CompressedV1beta1,
    V1beta2,
}

fn assignments(status: &mut Object, to: To) -> Result<(), ConversionError> {
    let list = part(status, "admission")
        .and_then(|admission| admission.get_mut("podSetAssignments"))
        .and_then(Value::as_array_mut);
    let mut left = topology::MAX_DOMAINS;
    for (index, assignment) in list.into_iter().flatten().enumerate() {
        let Some(found) = assignment.get_mut("topologyAssignment") else { continue };
        if found.is_null() {
            continue;
        }
        let failed = |source| ConversionError::Topology { index, source };
        match to {
            To::V1beta2 => *found = assignment_up(found.take(), &mut left).map_err(failed)?,
            To::V1beta1 => *found = assignment_down(found, &mut left).map_err(failed)?,
            To::CompressedV1beta1 => {
                columns(found).and_then(|columns| topology::count(&columns, &mut left)).map_err(failed)?;
            }
        }
    }
    Ok(())
}

fn assignment_up(value: Value, left: &mut usize) -> Result<Value, TopologyError> {
    let rows: v1beta1::TopologyAssignment = parse(value)?;
    *left = left.checked_sub(rows.domains.len()).ok_or(TopologyError::TooLarge)?;
    Ok(document(&topology::encode(&rows, true)?))
}

fn assignment_down(value: &Value, left: &mut usize) -> Result<Value, TopologyError> {
    let columns = columns(value)?;
    topology::count(&columns, left)?;
    Ok(document(&topology::Expanded(&columns)))
}

fn columns(value: &Value) -> Result<v1beta2::TopologyAssignment, TopologyError> {
    parse(value)
}

/// Writes a Workload whose topology assignments are still in v1beta2's form with the assignments in v1beta1's.
pub(super) struct Expanding<'a> {
    value: &'a Value,
    /// Where the assignments are, from here.
    path: &'static [&'static str],
}

impl<'a> Expanding<'a> {
    pub(super) fn new(workload: &'a Value) -> Self {
        Self { value: workload, path: &["status", "admission", "podSetAssignments", "topologyAssignment"] }
    }
}

impl Serialize for Expanding<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some((next, rest)) = self.path.split_first() else {
            if self.value.is_null() {
                return serializer.serialize_unit();
            }
            let columns = columns(self.value).map_err(S::Error::custom)?;
            return topology::Expanded(&columns).serialize(serializer);
        };
        match self.value {
            Value::Object(fields) => {
                let mut object = serializer.serialize_map(Some(fields.len()))?;
                for (name, value) in fields {
                    if name == next {
                        object.serialize_entry(name, &Expanding { value, path: rest })?;
                    } else {
                        object.serialize_entry(name, value)?;
                    }
                }
                object.end()
            }
            // The only list on the path is that of the assignments.
            Value::Array(items) if rest.is_empty() => {
                serializer.collect_seq(items.iter().map(|value| Expanding { value, path: self.path }))
            }
            other => other.serialize(serializer),
        }
    }
}

fn parse<'a, T: Deserialize<'a>>(
    value: impl Deserializer<'a, Error = serde_json::Error>,
) -> Result<T, TopologyError> {
    T::deserialize(value).map_err(|error| TopologyError::Malformed(error.to_string()))
}

fn document<T: Serialize>(assignment: &T) -> Value {
    serde_json::to_value(assignment).expect("an assignment is strings and integers under fixed names")
}
