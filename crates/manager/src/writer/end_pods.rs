//! Has the pods of a stopped or ended job go that its controller lets run on. They are looked for when that is needed, among all of the job's namespace: the engine
//! knows few pods, and their labels are what their users write.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::http::Method;
use serde::Deserialize;
use serde_json::json;
use sluice_engine::EndPods;
use sluice_engine::input::{Kind, ObjectRef, WriteError};

use super::request::{collection, decode, uri};
use super::{Sending, persist};
use crate::api_call::{Call, Content};

/// Pods that have not ended, in pages of so many.
const LIVE: &str = "fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed&limit=500";
/// So many pages at most: 100,000 pods.
const PAGES: usize = 200;
/// So many pods are deleted at most, before it is looked again: other writes wait for a place meanwhile.
const MOST: usize = 200;

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    metadata: ListMetadata,
    #[serde(default)]
    items: Vec<Item>,
}

#[derive(Default, Deserialize)]
struct ListMetadata {
    #[serde(default, rename = "continue")]
    next: String,
}

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    uid: String,
    #[serde(default)]
    owner_references: Vec<Owner>,
    deletion_timestamp: Option<String>,
}

#[derive(Deserialize)]
struct Owner {
    uid: String,
    #[serde(default)]
    controller: bool,
}

/// A pod that another object controls.
struct Pod {
    name: String,
    uid: String,
    controller: String,
    leaves: bool,
}

impl Pod {
    fn of(item: Item) -> Option<Self> {
        let Metadata { name, uid, owner_references, deletion_timestamp } = item.metadata;
        let controller = owner_references.into_iter().find(|owner| owner.controller)?.uid;
        Some(Self { name, uid, controller, leaves: deletion_timestamp.is_some() })
    }
}

/// Looks for the pods below these UIDs and does with those that go on what is wanted. Nothing if there are none.
pub async fn end(
    sending: &Sending,
    job: &ObjectRef,
    version: &str,
    of: &[Arc<str>],
    then: &EndPods,
) -> Result<(), WriteError> {
    let all = below(pods(sending, job).await?, of);
    let leaving = all.iter().filter(|pod| pod.leaves).count();
    let going_on: Vec<_> = all.into_iter().filter(|pod| !pod.leaves).collect();
    match then {
        EndPods::Touch(patch) if !going_on.is_empty() => {
            let call = Call::with_body(Method::PATCH, uri(job, version, None), Content::MergePatch, patch);
            persist(sending, &call).await?;
        }
        EndPods::Delete => {
            for pod in going_on.iter().take(MOST) {
                delete(sending, job, pod).await?;
            }
        }
        EndPods::Look | EndPods::Touch(_) => {}
    }
    if going_on.is_empty() && leaving == 0 {
        return Ok(());
    }
    let count = |pods: usize| u32::try_from(pods).unwrap_or(u32::MAX);
    Err(WriteError::PodsLeft { going_on: count(going_on.len()), leaving: count(leaving) })
}

/// The pods of the job's namespace that another object controls.
async fn pods(sending: &Sending, job: &ObjectRef) -> Result<Vec<Pod>, WriteError> {
    let all = ObjectRef::namespaced(Kind::Pod, Arc::clone(&job.namespace), "");
    let list = format!("{}?{LIVE}", collection(&all, Kind::Pod.version()));
    let (mut found, mut page) = (Vec::new(), list.clone());
    for _ in 0..PAGES {
        let answer = persist(sending, &Call::get(page).list_of_metadata()).await?;
        let List { metadata, items } = decode(&answer)?;
        found.extend(items.into_iter().filter_map(Pod::of));
        if metadata.next.is_empty() {
            return Ok(found);
        }
        page = format!("{list}&continue={}", metadata.next);
    }
    Err(WriteError::Transient(format!("there are too many pods in {}", job.namespace)))
}

/// Those that one of these UIDs controls, or a pod does that one of them controls.
fn below(pods: Vec<Pod>, of: &[Arc<str>]) -> Vec<Pod> {
    let mut owners: BTreeSet<String> = of.iter().map(ToString::to_string).collect();
    let (mut found, mut rest) = (Vec::new(), pods);
    loop {
        let (more, others): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|pod| owners.contains(&pod.controller));
        if more.is_empty() {
            return found;
        }
        owners.extend(more.iter().map(|pod| pod.uid.clone()));
        found.extend(more);
        rest = others;
    }
}

/// Deletes a pod, and no namesake of it; in the background, with the grace that it asks for.
async fn delete(sending: &Sending, job: &ObjectRef, pod: &Pod) -> Result<(), WriteError> {
    let object = ObjectRef::namespaced(Kind::Pod, Arc::clone(&job.namespace), pod.name.as_str());
    let options = json!({"propagationPolicy": "Background", "preconditions": {"uid": pod.uid}});
    let call =
        Call::with_body(Method::DELETE, uri(&object, Kind::Pod.version(), None), Content::Json, &options);
    match persist(sending, &call).await {
        Ok(_) | Err(WriteError::NotFound(_) | WriteError::Conflict(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use axum::body::Bytes;
    use axum::http::Uri;
    use serde_json::Value;
    use sluice_api::job::JobKind;

    use super::*;
    use crate::fake_api::{self, failed, found};
    use crate::lease::deadline::Deadline;
    use crate::writer::Server;
    use crate::writer::traffic::Traffic;

    fn pod(name: &str, controller: &str, leaves: bool) -> Value {
        let owners = json!([{"uid": "other"}, {"uid": controller, "controller": true}]);
        let mut metadata = json!({"name": name, "uid": format!("u-{name}"), "ownerReferences": owners});
        if leaves {
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        json!({ "metadata": metadata })
    }

    /// What comes of a look at these pages, and what was sent.
    async fn looked(
        pages: Vec<Vec<Value>>,
        then: EndPods,
    ) -> (Result<(), WriteError>, Vec<(Method, String, String)>) {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let (noted, pages) = (Arc::clone(&sent), Arc::new(pages));
        let client = fake_api::client(move |method: Method, uri: Uri, body: Bytes| {
            let (text, body) = (uri.to_string(), String::from_utf8_lossy(&body).into_owned());
            let answer = match &method {
                &Method::GET => {
                    let at = text.split("continue=p").nth(1).map_or(0, |page| page.parse().unwrap());
                    let next = if at + 1 < pages.len() { format!("p{}", at + 1) } else { String::new() };
                    let items: &[Value] = pages.get(at).map_or(&[], |page| page);
                    found(&json!({"metadata": {"continue": next}, "items": items}))
                }
                _ if text.ends_with("gone") => failed(404, "NotFound"),
                _ if text.ends_with("namesake") => failed(409, "Conflict"),
                _ => found(&json!({})),
            };
            noted.lock().unwrap().push((method, text, body));
            async move { answer }
        });
        let server = Server::new(client, Deadline::never(), Traffic::default());
        let sending = Sending::alone(server);
        let job = ObjectRef::namespaced(Kind::Job(JobKind::MPI_JOB), "ns", "job");
        let result = end(&sending, &job, "v2beta1", &["a".into(), "b".into()], &then).await;
        let sent = sent.lock().unwrap().clone();
        (result, sent)
    }

    const PODS: &str = "/api/v1/namespaces/ns/pods";

    fn touch() -> EndPods {
        EndPods::Touch(json!({"metadata": {"uid": "a"}}))
    }

    #[tokio::test]
    async fn a_job_without_pods_is_left_alone() {
        for then in [touch(), EndPods::Delete] {
            let others =
                vec![vec![pod("theirs", "c", false), json!({"metadata": {"name": "x", "uid": "a"}})]];
            let (result, sent) = looked(others, then).await;
            assert_eq!((result, sent.len()), (Ok(()), 1));
            assert_eq!(sent[0].1, format!("{PODS}?{LIVE}"));
        }
    }

    #[tokio::test]
    async fn a_job_with_pods_is_touched_and_one_whose_pods_leave_is_not() {
        let (result, sent) = looked(vec![vec![pod("p", "a", false), pod("q", "b", true)]], touch()).await;
        assert_eq!(result, Err(WriteError::PodsLeft { going_on: 1, leaving: 1 }));
        let uri = "/apis/kubeflow.org/v2beta1/namespaces/ns/mpijobs/job";
        assert_eq!(
            sent[1..],
            [(Method::PATCH, uri.to_owned(), json!({"metadata": {"uid": "a"}}).to_string())]
        );
        let (result, sent) = looked(vec![vec![pod("q", "b", true)]], touch()).await;
        assert_eq!(result, Err(WriteError::PodsLeft { going_on: 0, leaving: 1 }));
        assert_eq!(sent.len(), 1);
    }

    #[tokio::test]
    async fn all_pods_are_deleted_and_those_that_they_made_on_whatever_page() {
        let pages = vec![
            vec![pod("executor", "u-driver", false), pod("theirs", "c", false), pod("gone", "a", false)],
            vec![pod("driver", "b", false), pod("leaving", "a", true), pod("namesake", "a", false)],
        ];
        let (result, sent) = looked(pages, EndPods::Delete).await;
        assert_eq!(result, Err(WriteError::PodsLeft { going_on: 4, leaving: 1 }));
        let mut deleted: Vec<_> =
            sent[2..].iter().map(|(method, uri, _)| (method.as_str(), &**uri)).collect();
        deleted.sort_unstable();
        let names = ["driver", "executor", "gone", "namesake"].map(|name| format!("{PODS}/{name}"));
        assert_eq!(deleted, names.each_ref().map(|uri| ("DELETE", &**uri)));
        let options =
            sent.iter().find(|(_, uri, _)| uri.ends_with("driver")).map(|(_, _, body)| body.clone());
        assert!(options.unwrap().contains("u-driver"), "no namesake");
    }

    #[tokio::test]
    async fn so_many_are_deleted_at_a_time() {
        let many = (0..MOST + 50).map(|n| pod(&format!("p{n}"), "a", false)).collect();
        let (result, sent) = looked(vec![many], EndPods::Delete).await;
        assert_eq!(result, Err(WriteError::PodsLeft { going_on: 250, leaving: 0 }));
        assert_eq!(sent.len(), 1 + MOST);
    }
}
