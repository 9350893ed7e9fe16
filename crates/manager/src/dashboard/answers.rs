//! What every answer has in common: its headers.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::Value;

/// No script, style or picture from elsewhere, none inside of the page, no frame around it.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; \
                          base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HEADERS: [(header::HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Adds the headers that every answer has, refusals included.
pub fn guarded(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// A document.
pub fn document(value: &Value) -> Response {
    text(value.to_string())
}

/// An answer from a document that is already text.
pub fn text(document: String) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], document).into_response()
}
