//! Changes that the API server refuses, for example because of an administrator's policy: they are repeated less and less often until the object or the
//! certificate is another one, and the object says why.

use std::collections::BTreeMap;
use std::time::Instant;

use axum::http::Method;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use serde_json::Value;
use sluice_engine::Backoff;

use crate::api_call::{Call, CallError, Content};
use crate::events::{NOTE_BYTES, WORD_BYTES, cut, event_name};

/// The pause before what was refused is tried again: short at first, as the API server may just not know of our rights yet.
const PAUSES: Backoff = Backoff::seconds(1, 300);
/// The reason of an event about a change that is refused.
const REASON: &str = "FailedUpdate";

/// A change of one object is refused, or was and is not tried again yet.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{object} cannot be changed: {why}")]
pub struct Refused {
    /// Where the object is.
    pub object: String,
    /// The answer.
    pub why: String,
}

#[derive(Debug)]
struct Refusal {
    /// What was tried: another object, or another change, is tried at once.
    asked: Value,
    failures: u32,
    next: Instant,
    why: String,
}

/// What was refused, by the object's URI.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    known: BTreeMap<String, Refusal>,
    /// What is not reported yet.
    unreported: Vec<(ObjectReference, String)>,
}

/// Whether the API server refuses what is tried, and not just for a moment or because something else was meanwhile faster.
pub(super) fn is_refusal(error: &CallError) -> bool {
    error.code().is_some_and(|code| (400..500).contains(&code) && ![401, 404, 408, 409, 429].contains(&code))
}

impl Refusals {
    /// Why the change is not tried now.
    pub fn pauses(&self, uri: &str, asked: &Value, now: Instant) -> Option<Refused> {
        let known = self.known.get(uri).filter(|known| known.asked == *asked && known.next > now)?;
        Some(Refused { object: uri.to_owned(), why: known.why.clone() })
    }

    /// A change was refused: `about` is the object that says so, if it exists.
    pub fn note(
        &mut self,
        uri: &str,
        asked: Value,
        error: &CallError,
        about: Option<ObjectReference>,
        now: Instant,
    ) -> Refused {
        let why = error.to_string();
        let before = self.known.remove(uri);
        if before.as_ref().is_none_or(|before| before.why != why) {
            self.unreported.extend(about.map(|object| (object, why.clone())));
        }
        let failures = before.filter(|before| before.asked == asked).map_or(0, |before| before.failures);
        let next = now + PAUSES.pause(failures);
        let failures = failures.saturating_add(1);
        self.known.insert(uri.to_owned(), Refusal { asked, failures, next, why: why.clone() });
        Refused { object: uri.to_owned(), why }
    }

    /// An object is as it should be, or gone.
    pub fn forget(&mut self, uri: &str) {
        self.known.remove(uri);
    }

    /// The events that say why objects are not changed, each text once.
    pub fn take_events(&mut self, instance: &str) -> Vec<Call> {
        let now = Timestamp::now();
        self.unreported.drain(..).map(|(object, why)| event(object, &why, instance, now)).collect()
    }
}

/// An event on an object of any kind; cluster-scoped objects have theirs in `default`.
fn event(object: ObjectReference, why: &str, instance: &str, now: Timestamp) -> Call {
    let namespace = object.namespace.clone().unwrap_or_else(|| "default".to_owned());
    let uri = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    let body = Event {
        metadata: ObjectMeta {
            name: Some(event_name(object.name.as_deref().unwrap_or_default())),
            namespace: Some(namespace),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(now)),
        type_: Some("Warning".to_owned()),
        reason: Some(REASON.to_owned()),
        action: Some(REASON.to_owned()),
        note: Some(cut(&format!("Sluice cannot keep its certificate here: {why}"), NOTE_BYTES)),
        reporting_controller: Some("kueue-workload-controller".to_owned()),
        reporting_instance: Some(cut(instance, WORD_BYTES)),
        regarding: Some(object),
        ..Event::default()
    };
    Call::with_body(Method::POST, uri, Content::Json, &body).unread()
}

/// How an event names an object.
pub(super) fn reference(api_version: &str, kind: &str, metadata: &ObjectMeta) -> ObjectReference {
    ObjectReference {
        api_version: Some(api_version.to_owned()),
        kind: Some(kind.to_owned()),
        name: metadata.name.clone(),
        namespace: metadata.namespace.clone(),
        uid: metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn refused(message: &str) -> CallError {
        CallError::Status {
            method: Method::PATCH,
            uri: "/x".to_owned(),
            code: 403,
            reason: "Forbidden".to_owned(),
            message: message.to_owned(),
            retry_after: None,
        }
    }

    #[test]
    fn what_is_refused_is_tried_less_and_less_often_until_it_is_another_change() {
        let (mut refusals, mut now) = (Refusals::default(), Instant::now());
        let (asked, mut tries) = (json!("a"), 0);
        let end = now + Duration::from_hours(1);
        while now < end {
            if refusals.pauses("/x", &asked, now).is_none() {
                refusals.note("/x", asked.clone(), &refused("no"), None, now);
                tries += 1;
            }
            now += Duration::from_secs(10);
        }
        assert!((10..=20).contains(&tries), "{tries} in an hour");
        assert!(refusals.pauses("/x", &asked, now).is_some());
        assert!(refusals.pauses("/x", &json!("b"), now).is_none());
        assert!(refusals.pauses("/y", &asked, now).is_none());
        refusals.forget("/x");
        assert!(refusals.pauses("/x", &asked, now).is_none());
    }

    #[test]
    fn an_object_says_each_reason_once() {
        let mut refusals = Refusals::default();
        let metadata = ObjectMeta {
            name: Some("workloads".to_owned()),
            uid: Some("u".to_owned()),
            ..ObjectMeta::default()
        };
        let object = || Some(reference("apiextensions.k8s.io/v1", "CustomResourceDefinition", &metadata));
        let mut about = |why: &str| {
            refusals.note("/x", json!(1), &refused(why), object(), Instant::now());
            refusals.take_events("sluice-0")
        };
        let events = about("no");
        assert_eq!(events[0].uri, "/apis/events.k8s.io/v1/namespaces/default/events");
        let body: Value = serde_json::from_slice(&events[0].body).unwrap();
        assert_eq!(body["regarding"]["uid"], "u");
        assert_eq!(body["note"], "Sluice cannot keep its certificate here: PATCH /x: no (403 Forbidden)");
        assert_eq!(about("no").len(), 0);
        assert_eq!(about("for another reason").len(), 1);
    }

    #[test]
    fn only_refusals_count() {
        let is = |code| {
            let CallError::Status { method, uri, reason, message, retry_after, .. } = refused("no") else {
                unreachable!()
            };
            is_refusal(&CallError::Status { method, uri, code, reason, message, retry_after })
        };
        assert!([400, 403, 413, 422].into_iter().all(is));
        assert!(![404, 409, 429, 500, 503].into_iter().any(is));
    }
}
