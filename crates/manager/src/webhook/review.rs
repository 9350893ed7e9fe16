//! The AdmissionReview protocol (admission.k8s.io/v1), as far as webhooks of this project need it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use sluice_api::slim::AnyJson;

use super::bounds::Refusal;
use super::users::UserInfo;

/// The API server's request.
#[derive(Clone, Debug, Deserialize)]
pub struct Review {
    /// The request.
    pub request: Request,
}

/// One write to be reviewed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Request {
    /// Names the request.
    pub uid: String,
    /// `CREATE`, `UPDATE` or `DELETE`.
    pub operation: String,
    /// The namespace, empty for cluster-scoped objects.
    pub namespace: String,
    /// `status` for writes of the status.
    pub sub_resource: String,
    /// The user of the write.
    pub user_info: UserInfo,
    /// The object as it would be.
    #[serde(deserialize_with = "of_any_depth")]
    pub object: Value,
    /// The old object, for updates.
    #[serde(deserialize_with = "of_any_depth")]
    pub old_object: Value,
}

/// An object whose lowest levels are not read if it has very many.
fn of_any_depth<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    AnyJson::deserialize(deserializer).map(|AnyJson(object)| object)
}

/// The answer to the API server.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'a>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
struct Status {
    code: u16,
    reason: &'static str,
    message: String,
}

/// The judgement.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Let it pass.
    Allowed,
    /// Let it pass with these RFC 6902 operations applied.
    Patched(Vec<Value>),
    /// Refuse it (403, as upstream's webhooks answer).
    Denied(String),
    /// Refuse it, as it cannot be judged.
    TurnedAway(Refusal),
}

/// The body that goes back.
///
/// # Errors
///
/// If the patch or the answer cannot be written as JSON.
pub fn answer(uid: &str, verdict: Verdict) -> Result<Vec<u8>, serde_json::Error> {
    let mut response = Response { uid, allowed: true, status: None, patch_type: None, patch: None };
    match verdict {
        Verdict::Allowed => {}
        Verdict::Patched(operations) if operations.is_empty() => {}
        Verdict::Patched(operations) => {
            response.patch_type = Some("JSONPatch");
            response.patch = Some(STANDARD.encode(serde_json::to_vec(&operations)?));
        }
        Verdict::Denied(message) => {
            response.allowed = false;
            response.status = Some(Status { code: 403, reason: "Forbidden", message });
        }
        Verdict::TurnedAway(why) => {
            response.allowed = false;
            let (code, reason) = match why {
                Refusal::TooLong | Refusal::TooMany => (413, "RequestEntityTooLarge"),
                Refusal::Busy => (429, "TooManyRequests"),
                Refusal::Incomplete | Refusal::Unreadable => (400, "BadRequest"),
                Refusal::Failed => (500, "InternalError"),
            };
            let message = format!("{why}: it must be queued, and cannot be accepted without a review");
            response.status = Some(Status { code, reason, message });
        }
    }
    serde_json::to_vec(&Answer { api_version: "admission.k8s.io/v1", kind: "AdmissionReview", response })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn body(verdict: Verdict) -> Value {
        serde_json::from_slice(&answer("u1", verdict).unwrap()).unwrap()
    }

    #[test]
    fn a_refusal_is_a_403_with_its_message() {
        let answer = body(Verdict::Denied("spec.x: no".to_owned()));
        assert_eq!(answer["response"]["allowed"], false);
        let status = json!({"code": 403, "reason": "Forbidden", "message": "spec.x: no"});
        assert_eq!(answer["response"]["status"], status);
        assert_eq!(answer["response"]["uid"], "u1");
    }

    #[test]
    fn a_patch_is_base64_and_an_empty_one_is_left_out() {
        let operation = json!({"op": "add", "path": "/spec/suspend", "value": true});
        let answer = body(Verdict::Patched(vec![operation]));
        assert_eq!(answer["response"]["patchType"], "JSONPatch");
        assert!(answer["response"]["patch"].as_str().unwrap().starts_with("W3si"));
        let answer = body(Verdict::Patched(Vec::new()));
        assert!(answer["response"].get("patch").is_none());
        assert_eq!(answer["response"]["allowed"], true);
    }
}
