//! The Workloads that the API server keeps, and what is reported of them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_api::v1beta2;
use sluice_engine::{Event, Kind, WriteError};

use super::api::{Api, Stored, decode};

/// The UIDs of the owners that are an object's controller.
fn controllers(object: &Value) -> impl Iterator<Item = &str> {
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.filter(|owner| owner["controller"] == true).filter_map(|owner| owner["uid"].as_str())
}

/// Refuses a status as the stored schema does.
pub(super) fn check_status(status: &Value) -> Result<(), WriteError> {
    let nodes = status["unhealthyNodes"].as_array().into_iter().flatten();
    match nodes.filter_map(|node| node["name"].as_str()).find(|name| name.len() > 63) {
        Some(name) => Err(WriteError::Refused(format!("{name}: may not be more than 63 bytes"))),
        None => Ok(()),
    }
}

impl Api {
    pub fn workloads(&self) -> Vec<v1beta2::Workload> {
        self.kept_workloads().map(decode).collect()
    }

    /// As they are kept: to decode all of a large world for each question about one takes most of a test's time.
    pub(super) fn kept_workloads(&self) -> impl Iterator<Item = &Value> {
        self.of_kind(Kind::Workload).filter_map(|(_, stored)| match stored {
            Stored::Json(value) => Some(value),
            Stored::Job(_) => None,
        })
    }

    pub fn workloads_of(&self, uid: &str) -> Vec<v1beta2::Workload> {
        self.kept_workloads().filter(|w| controllers(w).any(|owner| owner == uid)).map(decode).collect()
    }

    /// Those of each controller, by its UID.
    pub(super) fn workloads_by_controller(&self) -> BTreeMap<&str, Vec<&Value>> {
        let mut all: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for workload in self.kept_workloads() {
            for uid in controllers(workload) {
                all.entry(uid).or_default().push(workload);
            }
        }
        all
    }
}

/// `True`, `False` or nothing.
pub fn condition(workload: &v1beta2::Workload, type_: &str) -> String {
    find(workload, type_).map(|c| c.status.clone()).unwrap_or_default()
}

/// `status/reason: message`, or nothing.
pub fn reported(workload: &v1beta2::Workload, type_: &str) -> String {
    find(workload, type_).map(|c| format!("{}/{}: {}", c.status, c.reason, c.message)).unwrap_or_default()
}

pub(super) fn find<'a>(
    workload: &'a v1beta2::Workload,
    type_: &str,
) -> Option<&'a k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition> {
    workload.status.as_ref()?.conditions.iter().find(|c| c.type_ == type_)
}

/// An event as `<kind>/<name>: <note>`. Of the names of Workloads the hash is left out.
pub(super) fn note(event: &Event) -> String {
    let object = &event.object;
    let hashed = object.name.rsplit_once('-').filter(|(_, hash)| {
        object.kind == Kind::Workload && hash.len() == 5 && hash.chars().all(|c| c.is_ascii_hexdigit())
    });
    format!("{}/{}: {}", object.kind.as_str(), hashed.map_or(&*object.name, |(name, _)| name), event.note)
}

/// Entries that another manager owns, too, stay although an apply leaves them out.
pub(super) fn keep_co_owned(status: &mut Value, before: &Value, co_owned: &[&str]) {
    for (list, key) in [("conditions", "type"), ("reclaimablePods", "name")] {
        for entry in before[list].as_array().into_iter().flatten() {
            let kept = co_owned.iter().any(|name| *name == list || entry[key] == **name);
            let there = |all: &Vec<Value>| all.iter().any(|one| one[key] == entry[key]);
            if !kept || status[list].as_array().is_some_and(there) {
                continue;
            }
            match status[list].as_array_mut() {
                Some(all) => all.push(entry.clone()),
                None => status[list] = json!([entry]),
            }
        }
    }
}
