//! Bounded lists: read page by page, with only a part of each object kept, and one memory budget for all lists of an answer.
//!
//! Tenants decide how many objects their namespaces have, and how large these are: the budget limits what one answer may hold of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::io::{AsyncRead, AsyncReadExt as _};
use kube::Client;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sluice_api::slim::Raw;

use crate::list::{Pages, without_clutter};

/// Objects per answer of the API server at first; fewer if they are large.
const PAGE: usize = 500;
/// The most bytes of one answer of the API server.
const PAGE_BYTES: usize = 8 << 20;
/// How many bytes may be read for each byte that may be kept.
const READ_PER_KEPT: usize = 4;
/// A map of up to `NODE_ENTRIES` entries uses `NODE` bytes.
const NODE_ENTRIES: usize = 6;
const NODE: usize = 640;
/// A value in a list, and the head of a text.
const VALUE: usize = 32;

/// The remaining budget of one answer's lists. Clones share it.
#[derive(Clone, Debug)]
pub struct Budget {
    most: usize,
    /// Memory, in bytes.
    kept: Arc<AtomicUsize>,
    /// The bytes that were read from the API server.
    read: Arc<AtomicUsize>,
}

impl Budget {
    /// A budget of this many bytes.
    pub fn new(most: usize) -> Self {
        let read = most.saturating_mul(READ_PER_KEPT);
        Self { most, kept: Arc::new(AtomicUsize::new(most)), read: Arc::new(AtomicUsize::new(read)) }
    }

    /// The bytes that may still be kept.
    pub fn left(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }

    fn take(left: &AtomicUsize, bytes: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes);
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    fn spent(&self) -> Unread {
        Unread::Spent(self.most >> 20)
    }
}

/// Why a list, or the rest of it, was not read.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// The budget is used up; it had this many MiB.
    #[error("the answer exceeds the limit of {0} MiB")]
    Spent(usize),
    /// The path is not a valid URI.
    #[error("making a request")]
    Request(#[from] http::Error),
    /// The API server refused or did not answer.
    #[error("reading {path}")]
    Api {
        /// Where the objects are.
        path: String,
        /// Why not.
        source: Box<kube::Error>,
    },
    /// The answer broke off.
    #[error("reading {path}")]
    Broken {
        /// Where the objects are.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The answer is no list.
    #[error("{path} is not a list")]
    Form {
        /// Where the objects are.
        path: String,
        /// The error.
        source: serde_json::Error,
    },
}

/// The part of a list that was read.
#[derive(Debug, Default)]
pub struct Part {
    /// The kept parts of its objects.
    pub found: Vec<Value>,
    /// Whether there are more than were wanted.
    pub more: bool,
    /// Why the rest was not read, if so.
    pub unread: Option<Unread>,
}

/// The objects of a collection of which `keep` keeps something, without managed fields: at most this many, and within the budget. `None` if the
/// cluster does not have the kind. `query` has the selectors, each with a leading `&`.
pub async fn objects(
    client: &Client,
    collection: &str,
    query: &str,
    most: usize,
    budget: &Budget,
    keep: impl Fn(Value) -> Option<Value>,
) -> Part {
    let mut part = Part::default();
    let mut size = most.clamp(1, PAGE);
    let mut pages = Pages::new(collection, query, size);
    while let Some(uri) = pages.uri() {
        let bytes = match page(client, &uri, collection, budget).await {
            Ok(Some(bytes)) => bytes,
            // Objects are large: fewer of them at a time.
            Ok(None) if size > 1 => {
                size /= 2;
                pages.resize(collection, query, size);
                continue;
            }
            Ok(None) => return Part { unread: Some(budget.spent()), ..part },
            Err(Unread::Api { source, .. }) if is_missing(&source) => break,
            Err(error) => return Part { unread: Some(error), ..part },
        };
        match take(&bytes, most, budget, &keep, &mut part) {
            Ok(token) => pages.go_on(token),
            Err(Stop::Form(source)) => {
                return Part { unread: Some(Unread::Form { path: collection.to_owned(), source }), ..part };
            }
            Err(Stop::Spent) => return Part { unread: Some(budget.spent()), ..part },
            Err(Stop::Most) => return Part { more: true, ..part },
        }
        if part.found.len() >= most {
            part.more = pages.uri().is_some();
            break;
        }
    }
    part
}

fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// One answer; nothing if it is too large.
async fn page(client: &Client, uri: &str, path: &str, budget: &Budget) -> Result<Option<Vec<u8>>, Unread> {
    let left = budget.read.load(Ordering::Relaxed);
    if left == 0 {
        return Err(budget.spent());
    }
    let request = http::Request::get(uri).body(Vec::new())?;
    let answer = client.request_stream(request).await;
    let answer = answer.map_err(|source| Unread::Api { path: path.to_owned(), source: Box::new(source) })?;
    let answer = std::pin::pin!(answer);
    let broken = |source| Unread::Broken { path: path.to_owned(), source };
    let bytes = at_most(answer, PAGE_BYTES.min(left)).await.map_err(broken)?;
    if Budget::take(&budget.read, bytes.len().min(left)) && bytes.len() <= PAGE_BYTES.min(left) {
        return Ok(Some(bytes));
    }
    if budget.read.load(Ordering::Relaxed) == 0 { Err(budget.spent()) } else { Ok(None) }
}

/// At most this many bytes, and one more if there is one.
async fn at_most(from: impl AsyncRead + Unpin, most: usize) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    from.take(limit).read_to_end(&mut bytes).await?;
    Ok(bytes)
}

/// Why no more is taken.
enum Stop {
    Form(serde_json::Error),
    Spent,
    Most,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: Metadata,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default, rename = "continue")]
    token: Option<String>,
}

/// Reads the objects of an answer one by one, so that only the kept parts are in memory besides its text; returns the token of the next page.
fn take(
    bytes: &[u8],
    most: usize,
    budget: &Budget,
    keep: impl Fn(Value) -> Option<Value>,
    part: &mut Part,
) -> Result<Option<String>, Stop> {
    let page: Page<'_> = serde_json::from_slice(bytes).map_err(Stop::Form)?;
    for item in page.items.into_iter().flatten() {
        let Raw(object) = serde_json::from_str(item.get()).map_err(Stop::Form)?;
        let Some(kept) = keep(without_clutter(object)) else { continue };
        if part.found.len() >= most {
            return Err(Stop::Most);
        }
        if !Budget::take(&budget.kept, VALUE + weight(&kept)) {
            return Err(Stop::Spent);
        }
        part.found.push(kept);
    }
    Ok(page.metadata.token)
}

/// About how many bytes of memory a value takes besides itself, rather too many than too few: small maps take many times their text.
pub fn weight(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => VALUE + text.len(),
        Value::Array(list) => list.iter().map(|one| VALUE + weight(one)).sum(),
        Value::Object(map) => {
            let nodes = map.len().div_ceil(NODE_ENTRIES) * NODE;
            map.iter().map(|(key, value)| key.len() + weight(value)).sum::<usize>() + nodes
        }
    }
}

#[cfg(test)]
mod tests;
