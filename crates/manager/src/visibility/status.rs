//! Errors as a `Status`, as every Kubernetes API server returns them.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Why a request is not answered with what it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No credentials, or invalid ones.
    Unauthorized,
    /// The user has no right to it: what would be needed.
    Forbidden(String),
    /// There is no such path.
    NoPath,
    /// There is no such object: its resource, its group, its name.
    NoObject(&'static str, &'static str, String),
    /// The path does not support the method.
    Method,
    /// No supported form of answer is acceptable.
    Accept,
    /// The query cannot be read.
    BadRequest(String),
    /// Too many questions.
    TooMany(String),
    /// There is no answer now: why.
    Unavailable(String),
    /// Another error, with its status.
    Other(StatusCode, String),
}

impl Refusal {
    fn code(&self) -> StatusCode {
        match self {
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::NoPath | Self::NoObject(..) => StatusCode::NOT_FOUND,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Accept => StatusCode::NOT_ACCEPTABLE,
            Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Other(code, _) => *code,
        }
    }

    /// The `reason` by which clients distinguish errors.
    fn reason(&self) -> &'static str {
        match self.code().as_u16() {
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            405 => "MethodNotAllowed",
            406 => "NotAcceptable",
            409 => "Conflict",
            429 => "TooManyRequests",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "InternalError",
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Unauthorized => "Unauthorized".to_owned(),
            Self::NoPath => "the server could not find the requested resource".to_owned(),
            Self::NoObject(resource, group, name) => format!("{resource}.{group} {name:?} not found"),
            Self::Method => "the server does not allow this method on the requested resource".to_owned(),
            Self::Accept => {
                "only the following media types are accepted: application/json, application/yaml".to_owned()
            }
            Self::Forbidden(why)
            | Self::BadRequest(why)
            | Self::TooMany(why)
            | Self::Unavailable(why)
            | Self::Other(_, why) => why.clone(),
        }
    }

    fn body(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message(),
            "reason": self.reason(),
            "code": self.code().as_u16(),
        });
        match self {
            Self::NoObject(resource, group, name) => {
                status["details"] = json!({"name": name, "group": group, "kind": resource});
            }
            Self::TooMany(_) | Self::Unavailable(_) => status["details"] = json!({"retryAfterSeconds": 1}),
            _ => {}
        }
        status
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = self.body().to_string();
        let mut response = (self.code(), [(header::CONTENT_TYPE, "application/json")], body).into_response();
        if matches!(self, Self::TooMany(_) | Self::Unavailable(_)) {
            response.headers_mut().insert(header::RETRY_AFTER, axum::http::HeaderValue::from_static("1"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_object_is_reported_as_by_an_api_server() {
        let refusal = Refusal::NoObject("clusterqueue", "visibility.kueue.x-k8s.io", "a\"b".to_owned());
        assert_eq!(
            refusal.body(),
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404,
                "reason": "NotFound",
                "message": "clusterqueue.visibility.kueue.x-k8s.io \"a\\\"b\" not found",
                "details": {"name": "a\"b", "group": "visibility.kueue.x-k8s.io", "kind": "clusterqueue"},
            })
        );
    }

    #[test]
    fn an_answer_to_try_again_says_when() {
        let response = Refusal::TooMany("slowly".to_owned()).into_response();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["retry-after"]),
            (429, &"1".parse().unwrap())
        );
        assert!(!Refusal::Unauthorized.into_response().headers().contains_key("retry-after"));
    }
}
