//! The body of `…/pendingworkloads`, written straight from the order of a queue: an answer may have a hundred thousand items.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use serde::Serialize;
use serde_json::json;
use sluice_api::visibility::{GROUP, SUMMARY};

use super::board::Place;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Item<'a> {
    metadata: Metadata<'a>,
    priority: i32,
    local_queue_name: &'a str,
    position_in_cluster_queue: u32,
    position_in_local_queue: u32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    name: &'a str,
    namespace: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    creation_timestamp: Option<&'a Time>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    owner_references: &'a [OwnerReference],
}

impl<'a> From<Place<'a>> for Item<'a> {
    fn from(place: Place<'a>) -> Self {
        let waiting = place.waiting;
        let key = waiting.standing.key();
        Self {
            metadata: Metadata {
                name: &key.name,
                namespace: &key.namespace,
                creation_timestamp: waiting.created.as_ref(),
                owner_references: &waiting.owners,
            },
            priority: waiting.priority,
            local_queue_name: waiting.standing.local_queue(),
            position_in_cluster_queue: place.in_cluster_queue,
            position_in_local_queue: place.in_local_queue,
        }
    }
}

/// The body for a version of the group.
pub(super) fn summary<'a>(version: &str, places: impl Iterator<Item = Place<'a>>) -> Vec<u8> {
    let head = json!({"kind": SUMMARY, "apiVersion": format!("{GROUP}/{version}"), "metadata": {}});
    let mut body = head.to_string().into_bytes();
    // In place of the brace that closes the head.
    body.pop();
    body.extend_from_slice(b",\"items\":[");
    for (at, place) in places.enumerate() {
        if at > 0 {
            body.push(b',');
        }
        serde_json::to_writer(&mut body, &Item::from(place)).expect("names and numbers, into memory");
    }
    body.extend_from_slice(b"]}");
    body
}
