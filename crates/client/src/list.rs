//! Lists of objects, page by page.

use kube::Client;
use serde_json::Value;

use crate::patience;

/// Objects per answer.
const PAGE: usize = 500;
/// The annotation in which kubectl stores the applied document.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Why objects could not be listed.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// The path is not a valid URI.
    #[error("making a request")]
    Request(#[from] http::Error),
    /// The API server refused or did not answer.
    #[error("reading {path}")]
    Read {
        /// Where the objects are.
        path: String,
        /// Why not.
        source: Box<kube::Error>,
    },
}

/// Every object of a collection, without the managed fields, which are its largest part; none if the cluster does not have the
/// kind. `query` has the selectors, each with a leading `&`; of each object, what `keep` makes of it is kept, page by page.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn objects(
    client: &Client,
    collection: &str,
    query: &str,
    keep: impl Fn(Value) -> Option<Value>,
) -> Result<Vec<Value>, ListError> {
    let mut all = Vec::new();
    let mut pages = Pages::new(collection, query, PAGE);
    while let Some(uri) = pages.uri() {
        let request = http::Request::get(uri).body(Vec::new())?;
        let page: Value = match patience::get(client, request).await {
            Ok(page) => page,
            Err(kube::Error::Api(status)) if status.code == 404 => break,
            Err(source) => {
                return Err(ListError::Read { path: collection.to_owned(), source: Box::new(source) });
            }
        };
        pages.answered(&page);
        all.extend(items(page).into_iter().map(without_clutter).filter_map(&keep));
    }
    Ok(all)
}

/// An object without its managed fields and without its own text as kubectl keeps it: nothing is made of them.
pub fn without_clutter(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
        }
    }
    object
}

/// The requests for a list, page by page.
#[derive(Clone, Debug)]
pub struct Pages {
    first: String,
    /// The answer's token, empty at the beginning; `None` after the last page.
    token: Option<String>,
}

impl Pages {
    /// A collection in pages of at most `size` objects. `query` has the selectors, each with a leading `&`.
    pub fn new(collection: &str, query: &str, size: usize) -> Self {
        Self { first: format!("{collection}?limit={size}{query}"), token: Some(String::new()) }
    }

    /// The URI of the next page; `None` after the last one.
    pub fn uri(&self) -> Option<String> {
        let token = self.token.as_deref()?;
        let first = &self.first;
        Some(if token.is_empty() { first.clone() } else { format!("{first}&continue={token}") })
    }

    /// Takes what the API server answered, which says whether there is more.
    pub fn answered(&mut self, answer: &Value) {
        self.go_on(answer["metadata"]["continue"].as_str().map(str::to_owned));
    }

    /// Continues with the token of an answer; a missing or empty one means the last page.
    pub(crate) fn go_on(&mut self, token: Option<String>) {
        self.token = token.filter(|token| !token.is_empty());
    }

    /// Continues in pages of at most `size` objects.
    pub(crate) fn resize(&mut self, collection: &str, query: &str, size: usize) {
        self.first = Self::new(collection, query, size).first;
    }
}

/// The objects of one answer.
pub fn items(mut answer: Value) -> Vec<Value> {
    match answer["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pages_are_asked_for_until_no_token_is_left() {
        let mut pages = Pages::new("/api/v1/pods", "&labelSelector=a", 2);
        assert_eq!(pages.uri().as_deref(), Some("/api/v1/pods?limit=2&labelSelector=a"));
        pages.answered(&json!({"metadata": {"continue": "t"}, "items": [1, 2]}));
        assert_eq!(pages.uri().as_deref(), Some("/api/v1/pods?limit=2&labelSelector=a&continue=t"));
        pages.answered(&json!({"metadata": {"continue": ""}, "items": [3]}));
        assert_eq!(pages.uri(), None);
    }

    #[test]
    fn an_answer_may_have_no_objects() {
        assert_eq!(items(json!({"items": [1]})), [1]);
        assert!(items(json!({"items": null})).is_empty() && items(Value::Null).is_empty());
    }
}
