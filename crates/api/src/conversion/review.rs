//! The conversion webhook's request and response.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::{Version, convert};

/// What the API server posts, and what it gets back. (`kube` has this type too, but reads it through a buffer: half as fast.)
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversionReview {
    /// `apiextensions.k8s.io/v1`.
    #[serde(default)]
    pub api_version: String,
    /// `ConversionReview`.
    #[serde(default)]
    pub kind: String,
    /// What to convert.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<ConversionRequest>,
    /// What came of it. Not read: the API server posts an empty response, with nulls, beside its request.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub response: Option<ConversionResponse>,
}

/// What to convert.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversionRequest {
    /// Names the request.
    pub uid: String,
    /// The `apiVersion` to convert to.
    #[serde(rename = "desiredAPIVersion")]
    pub desired_api_version: String,
    /// The objects, of one kind or several.
    #[serde(default)]
    pub objects: Vec<Value>,
}

/// What came of it: all objects in their order, or none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversionResponse {
    /// The request's.
    pub uid: String,
    /// The objects.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub converted_objects: Vec<Value>,
    /// Success, or what is wrong with which object.
    pub result: ConversionStatus,
}

/// The outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversionStatus {
    /// `Success` or `Failure`.
    #[serde(default)]
    pub status: String,
    /// What is wrong.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The API server sends a response along with its request, with null for the list.
fn null_is_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Value>, D::Error> {
    Ok(Option::<Vec<Value>>::deserialize(deserializer)?.unwrap_or_default())
}

/// Answers the API server. One object that cannot be converted fails the whole request, as the protocol demands; the message
/// names it.
pub fn convert_review(review: ConversionReview) -> ConversionReview {
    let ConversionReview { api_version, kind, request, .. } = review;
    let response = match request {
        Some(request) => answer(request),
        None => failure(String::new(), "the review has no request".to_owned()),
    };
    ConversionReview { api_version, kind, request: None, response: Some(response) }
}

fn answer(request: ConversionRequest) -> ConversionResponse {
    let ConversionRequest { uid, desired_api_version, mut objects } = request;
    let Some(to) = Version::parse(&desired_api_version) else {
        return failure(uid, format!("cannot convert to {desired_api_version:?}"));
    };
    for (index, object) in objects.iter_mut().enumerate() {
        if let Err(error) = convert(object, to) {
            let message = format!("cannot convert {} to {to}: {error}", describe(object, index));
            return failure(uid, message);
        }
    }
    let result = ConversionStatus { status: "Success".to_owned(), message: String::new() };
    ConversionResponse { uid, converted_objects: objects, result }
}

fn failure(uid: String, message: String) -> ConversionResponse {
    let result = ConversionStatus { status: "Failure".to_owned(), message };
    ConversionResponse { uid, converted_objects: Vec::new(), result }
}

/// Kind, namespace and name, as far as the object has them.
fn describe(object: &Value, index: usize) -> String {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str);
    let kind = text("/kind").unwrap_or("object");
    match (text("/metadata/namespace"), text("/metadata/name")) {
        (Some(namespace), Some(name)) => format!("{kind} {namespace}/{name}"),
        (None, Some(name)) => format!("{kind} {name}"),
        _ => format!("{kind} number {index} of the request"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_response_that_the_api_server_posts_along_is_not_read() {
        let posted = r#"{
            "kind": "ConversionReview",
            "apiVersion": "apiextensions.k8s.io/v1",
            "request": {"uid": "u", "desiredAPIVersion": "kueue.x-k8s.io/v1beta2", "objects": []},
            "response": {"uid": "", "convertedObjects": null, "result": {"metadata": {}}}
        }"#;
        let answer = convert_review(serde_json::from_str(posted).unwrap()).response.unwrap();
        assert_eq!((answer.uid.as_str(), answer.result.status.as_str()), ("u", "Success"));
    }
}
