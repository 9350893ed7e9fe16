//! The admission webhook's request and response, as far as they are used.

use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Answer;

/// The API server's request, and the answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionReview {
    /// `admission.k8s.io/v1`.
    #[serde(default)]
    pub api_version: String,
    /// `AdmissionReview`.
    #[serde(default)]
    pub kind: String,
    /// The operation of a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<AdmissionRequest>,
    /// Whether it may be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<AdmissionResponse>,
}

/// The operation of a user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionRequest {
    /// Names the request.
    pub uid: String,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: String,
    /// The subresource, as `status`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_resource: Option<String>,
    /// The object as it shall be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<Value>,
    /// The old object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_object: Option<Value>,
}

/// Whether it may be done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmissionResponse {
    /// The request's.
    pub uid: String,
    /// The answer.
    pub allowed: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<AdmissionStatus>,
    /// `JSONPatch`, with a patch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch_type: Option<String>,
    /// The changes of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<ByteString>,
    /// Messages that clients such as kubectl print beside the answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Why something may not be done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmissionStatus {
    /// The HTTP status.
    pub code: u16,
    /// The reason in one word.
    pub reason: String,
    /// The reason in full.
    pub message: String,
}

impl AdmissionStatus {
    /// A rule says no: 403, as Kueue's webhooks have it.
    pub fn forbidden(message: String) -> Self {
        Self { code: 403, reason: "Forbidden".to_owned(), message }
    }

    /// The object cannot be read.
    pub fn bad_request(message: String) -> Self {
        Self { code: 400, reason: "BadRequest".to_owned(), message }
    }
}

impl AdmissionReview {
    /// The review with its answer.
    pub(super) fn answer(self, decide: impl FnOnce(AdmissionRequest) -> Answer) -> Self {
        let response = if let Some(request) = self.request {
            AdmissionResponse::new(request.uid.clone(), decide(request))
        } else {
            let problem = AdmissionStatus::bad_request("the review has no request".to_owned());
            AdmissionResponse::new(String::new(), Err(problem))
        };
        Self { api_version: self.api_version, kind: self.kind, request: None, response: Some(response) }
    }
}

impl AdmissionResponse {
    fn new(uid: String, answer: Answer) -> Self {
        let mut response =
            Self { uid, allowed: true, status: None, patch_type: None, patch: None, warnings: Vec::new() };
        match answer {
            Ok(approval) => {
                if !approval.patch.is_empty() {
                    let bytes = serde_json::to_vec(&approval.patch).expect("a patch has string keys only");
                    response.patch_type = Some("JSONPatch".to_owned());
                    response.patch = Some(ByteString(bytes));
                }
                response.warnings = approval.warnings;
            }
            Err(status) => {
                response.allowed = false;
                response.status = Some(status);
            }
        }
        response
    }
}
