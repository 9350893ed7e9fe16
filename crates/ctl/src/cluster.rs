//! The requests that several commands make of a cluster.

use std::fmt::Write as _;

use anyhow::{Context as _, bail};
use kube::Client;
use serde_json::Value;
use sluice_api::names::dns1123_subdomain_error;
use sluice_api::slim::AnyJson;
use sluice_client::list::{self, Pages};
use sluice_client::patience;
use sluice_sim::Kind;

/// Objects in one answer, unless the environment says otherwise (docs/reference/08-tooling.md 8.1).
const PAGE: usize = 100;
/// The variable that says otherwise.
const PAGE_VARIABLE: &str = "KUEUECTL_LIST_REQUEST_LIMIT";
/// The name under which the plugin writes.
pub const FIELD_MANAGER: &str = "kubectl-kueue";

/// The path of a kind's objects, in one namespace or in all.
pub fn collection(kind: Kind, namespace: Option<&str>) -> String {
    kind.collection(kind.version(), namespace)
}

/// Where an object is, in the collection of its kind.
///
/// # Errors
/// When no object can have this name: it would be another path, or another query.
pub fn object(collection: &str, name: &str) -> anyhow::Result<String> {
    if let Some(why) = dns1123_subdomain_error(name) {
        bail!("{name:?} is not a name of an object: {why}");
    }
    Ok(format!("{collection}/{name}"))
}

/// `clusterqueue.kueue.x-k8s.io/NAME`, as kubectl names what it touched.
pub fn shown(kind: Kind, name: &str) -> String {
    let word = kind.as_str().to_ascii_lowercase();
    match kind.group() {
        "" => format!("{word}/{name}"),
        group => format!("{word}.{group}/{name}"),
    }
}

/// A request that answers with a document. A read is repeated if the API server says when.
///
/// # Errors
///
/// If the API server cannot be reached, refuses the request, or answers with what is not JSON.
pub async fn ask(client: &Client, request: http::Request<Vec<u8>>) -> anyhow::Result<Value> {
    let what = format!("{} {}", request.method(), request.uri().path());
    let answer = match *request.method() {
        http::Method::GET => patience::get(client, request).await,
        _ => client.request(request).await.map(|AnyJson(document)| document),
    };
    match answer {
        // The API server's message names its subject itself.
        Err(error @ kube::Error::Api(_)) => Err(error.into()),
        answer => answer.with_context(|| what),
    }
}

/// Reads a document.
///
/// # Errors
///
/// If `uri` cannot stand in a request; and as [`ask`].
pub async fn get(client: &Client, uri: &str) -> anyhow::Result<Value> {
    ask(client, http::Request::get(uri).body(Vec::new()).context("making a request")?).await
}

/// The API server's refusal, if it answered: the HTTP status and its message.
pub fn refusal(error: &anyhow::Error) -> Option<&kube::core::Status> {
    match error.downcast_ref() {
        Some(kube::Error::Api(status)) => Some(status),
        _ => None,
    }
}

/// Sends a document.
///
/// # Errors
///
/// If `uri` or `media` cannot stand in a request; and as [`ask`].
pub async fn send(
    client: &Client,
    method: http::Method,
    uri: &str,
    media: &str,
    body: &Value,
) -> anyhow::Result<Value> {
    let request = http::Request::builder().method(method).uri(uri).header("content-type", media);
    let request = request.body(serde_json::to_vec(body)?).context("making a request")?;
    ask(client, request).await
}

/// Every object of a collection. `query` has the selectors, each with a leading `&`; of each object, what `keep` makes of it is kept, page by
/// page.
///
/// # Errors
///
/// If the collection or the query cannot stand in a URL, or a page cannot be read: see [`ask`].
pub async fn list<T>(
    client: &Client,
    collection: &str,
    query: &str,
    keep: impl Fn(Value) -> Option<T>,
) -> anyhow::Result<Vec<T>> {
    let mut all = Vec::new();
    let page = async |uri: String| get(client, &uri).await;
    each_page(collection, query, page, |answer| {
        all.extend(list::items(answer).into_iter().filter_map(&keep));
    })
    .await?;
    Ok(all)
}

/// Of an object the fields at these JSON pointers, where it has them.
pub fn only(mut object: Value, fields: &[&str]) -> Value {
    let mut kept = Value::Object(serde_json::Map::new());
    for field in fields {
        let Some(value) = object.pointer_mut(field).map(Value::take) else { continue };
        let mut place = &mut kept;
        for key in field.split('/').skip(1) {
            place = &mut place[key];
        }
        *place = value;
    }
    kept
}

/// Passes the answers with a collection's pages to `take`; `ask` requests one.
///
/// # Errors
///
/// The error of `ask` for the first page that fails.
pub async fn each_page(
    collection: &str,
    query: &str,
    ask: impl AsyncFn(String) -> anyhow::Result<Value>,
    mut take: impl FnMut(Value),
) -> anyhow::Result<()> {
    let page = std::env::var(PAGE_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(PAGE);
    let mut pages = Pages::new(collection, query, page);
    while let Some(uri) = pages.uri() {
        let answer = ask(uri).await?;
        pages.answered(&answer);
        take(answer);
    }
    Ok(())
}

/// A selector as a part of a query.
pub fn selector(parameter: &str, text: Option<&str>) -> String {
    let Some(text) = text else { return String::new() };
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing into a String does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    format!("&{parameter}={encoded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collections_are_where_the_api_has_them() {
        assert_eq!(
            collection(Kind::Workload, Some("a")),
            "/apis/kueue.x-k8s.io/v1beta2/namespaces/a/workloads"
        );
        assert_eq!(collection(Kind::Workload, None), "/apis/kueue.x-k8s.io/v1beta2/workloads");
        assert_eq!(collection(Kind::ClusterQueue, Some("a")), "/apis/kueue.x-k8s.io/v1beta2/clusterqueues");
        assert_eq!(shown(Kind::ClusterQueue, "x"), "clusterqueue.kueue.x-k8s.io/x");
        assert_eq!(shown(Kind::Pod, "x"), "pod/x");
    }

    #[test]
    fn of_an_object_only_the_fields_are_kept_that_are_used() {
        let object = serde_json::json!({"metadata": {"name": "a", "managedFields": [1]}, "spec": {"a": 1}});
        let kept = only(object, &["/metadata/name", "/metadata/uid", "/spec"]);
        assert_eq!(kept, serde_json::json!({"metadata": {"name": "a"}, "spec": {"a": 1}}));
    }

    #[test]
    fn a_name_is_no_path_and_no_query() {
        assert_eq!(object("/c", "a.b-1").unwrap(), "/c/a.b-1");
        for wrong in
            ["", ".", "..", "a/../b", "a,metadata.namespace=x", "%2e", "%2e%2e", "a?b", "a#b", "A", "a b"]
        {
            assert!(object("/c", wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn selectors_are_encoded() {
        assert_eq!(selector("labelSelector", Some("a in (b,c)")), "&labelSelector=a%20in%20%28b%2Cc%29");
        assert_eq!(selector("labelSelector", None), "");
    }
}
