//! Has the pods of a stopped or ended job go that its controller lets run on. They are looked for when that is needed, among all of the job's namespace: the engine
//! knows few pods, and their labels are what their users write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::http::Method;
use serde::Deserialize;
use serde_json::json;
use sluice_api::labels;
use sluice_engine::input::{Kind, ObjectRef, WriteError};
use sluice_engine::{EndPods, LeftPods};

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
    /// Of a list of metadata that is empty, the API server writes `null`.
    items: Option<Vec<Item>>,
}

#[derive(Default, Deserialize)]
struct ListMetadata {
    #[serde(default, rename = "continue")]
    next: String,
}

#[derive(Deserialize)]
struct Item {
    metadata: Metadata,
    /// Only in a list of whole pods.
    #[serde(default)]
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(default)]
    node_name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    uid: String,
    #[serde(default)]
    owner_references: Vec<Owner>,
    deletion_timestamp: Option<String>,
    deletion_grace_period_seconds: Option<i64>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
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

/// The labels by which Kubernetes' own controller of Jobs knows their pods.
const OF_JOB: [&str; 2] = ["batch.kubernetes.io/controller-uid", "controller-uid"];

impl Pod {
    fn of(item: Item) -> Option<Self> {
        let Metadata { name, uid, owner_references, deletion_timestamp, .. } = item.metadata;
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
    if let EndPods::LookForLeft { left, lost } = then {
        return look(sending, &job.name, left, lost).await;
    }
    let items = list(sending, &job.namespace, false).await?;
    let all = below(items.into_iter().filter_map(Pod::of).collect(), of);
    let leaving = all.iter().filter(|pod| pod.leaves).count();
    let going_on: Vec<_> = all.into_iter().filter(|pod| !pod.leaves).collect();
    match then {
        EndPods::Touch(patch) if !going_on.is_empty() => {
            let call = Call::with_body(Method::PATCH, uri(job, version, None), Content::MergePatch, patch);
            persist(sending, &call).await?;
        }
        EndPods::Delete => {
            for pod in going_on.iter().take(MOST) {
                delete(sending, &job.namespace, (&pod.name, &pod.uid), None).await?;
            }
        }
        EndPods::Look | EndPods::Touch(_) | EndPods::LookForLeft { .. } => {}
    }
    if going_on.is_empty() && leaving == 0 {
        return Ok(());
    }
    let count = |pods: usize| u32::try_from(pods).unwrap_or(u32::MAX);
    Err(WriteError::PodsLeft { going_on: count(going_on.len()), leaving: count(leaving) })
}

/// Looks in a namespace for what is left of jobs that are gone.
async fn look(
    sending: &Sending,
    namespace: &Arc<str>,
    left: &[LeftPods],
    lost: &[Arc<str>],
) -> Result<(), WriteError> {
    let whole = !lost.is_empty() || left.iter().any(|left| left.ends_within.is_some());
    let mut items = list(sending, namespace, whole).await?;
    // One that is deleted before it got a node never runs, whatever holds it.
    let never_ends = |node: &str| node.is_empty() || lost.iter().any(|lost| **lost == *node);
    items.retain(|item| {
        !whole || item.metadata.deletion_timestamp.is_none() || !never_ends(&item.spec.node_name)
    });
    let owners = whose(&items, left);
    let mut deleted = 0;
    for (item, of) in items.iter().zip(&owners) {
        let within = of.iter().filter_map(|at| left.get(*at)?.ends_within).max().filter(|_| deleted < MOST);
        let Metadata { name, uid, deletion_timestamp, deletion_grace_period_seconds, .. } = &item.metadata;
        let in_time = |within: &u32| {
            deletion_timestamp.is_some()
                && deletion_grace_period_seconds.is_none_or(|seconds| seconds <= i64::from(*within))
        };
        if let Some(within) = within.filter(|within| !in_time(within)) {
            deleted += 1;
            delete(sending, namespace, (name, uid), Some(within)).await?;
        }
    }
    let all: BTreeSet<_> = owners.into_iter().flatten().collect();
    let remain = all.into_iter().filter_map(|at| left.get(at));
    let remain: Vec<_> = remain.map(|left| Arc::clone(&left.workload)).collect();
    if remain.is_empty() { Ok(()) } else { Err(WriteError::PodsRemain(remain)) }
}

/// The positions of those to which each of these pods belongs.
fn whose(items: &[Item], left: &[LeftPods]) -> Vec<BTreeSet<usize>> {
    let by_workload: BTreeMap<&str, usize> =
        left.iter().enumerate().map(|(at, left)| (&*left.workload, at)).collect();
    let mut by_uid = BTreeMap::<&str, BTreeSet<usize>>::new();
    for (at, left) in left.iter().enumerate() {
        for uid in &left.of {
            by_uid.entry(uid).or_default().insert(at);
        }
    }
    let mut found: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); items.len()];
    // Pods that pods made are found by those.
    loop {
        let mut more = false;
        for (Item { metadata, .. }, of) in items.iter().zip(&mut found) {
            let before = of.len();
            of.extend(
                metadata.annotations.get(labels::WORKLOAD).and_then(|name| by_workload.get(name.as_str())),
            );
            let controller = metadata.owner_references.iter().find(|owner| owner.controller);
            let labels = || OF_JOB.iter().filter_map(|key| metadata.labels.get(*key));
            let released = labels().filter(|_| controller.is_none());
            let uids = released.chain(controller.map(|owner| &owner.uid)).chain([&metadata.uid]);
            of.extend(uids.filter_map(|uid| by_uid.get(uid.as_str())).flatten());
            if of.len() > before {
                by_uid.entry(&metadata.uid).or_default().extend(of.iter());
                more = true;
            }
        }
        if !more {
            return found;
        }
    }
}

/// The pods of a namespace that have not ended: what is known of all objects, or `whole`.
async fn list(sending: &Sending, namespace: &Arc<str>, whole: bool) -> Result<Vec<Item>, WriteError> {
    let all = ObjectRef::namespaced(Kind::Pod, Arc::clone(namespace), "");
    let list = format!("{}?{LIVE}", collection(&all, Kind::Pod.version()));
    let (mut found, mut page) = (Vec::new(), list.clone());
    for _ in 0..PAGES {
        let call = Call::get(page);
        let call = if whole { call } else { call.list_of_metadata() };
        let answer = persist(sending, &call).await?;
        let List { metadata, items } = decode(&answer)?;
        found.extend(items.into_iter().flatten());
        if metadata.next.is_empty() {
            return Ok(found);
        }
        page = format!("{list}&continue={}", metadata.next);
    }
    Err(WriteError::Transient(format!("there are too many pods in {namespace}")))
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

/// Deletes a pod, and no namesake of it; in the background, with the grace that it asks for, or so many seconds.
async fn delete(
    sending: &Sending,
    namespace: &Arc<str>,
    (name, uid): (&str, &str),
    within: Option<u32>,
) -> Result<(), WriteError> {
    let object = ObjectRef::namespaced(Kind::Pod, Arc::clone(namespace), name);
    let mut options = json!({"propagationPolicy": "Background", "preconditions": {"uid": uid}});
    if let Some(seconds) = within {
        options["gracePeriodSeconds"] = json!(seconds);
    }
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
                    // As the API server says it of nothing.
                    let items = pages.get(at).filter(|page| !page.is_empty());
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
        let job = if matches!(then, EndPods::LookForLeft { .. }) {
            ObjectRef::cluster(Kind::Namespace, "ns")
        } else {
            ObjectRef::namespaced(Kind::Job(JobKind::MPI_JOB), "ns", "job")
        };
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
    async fn what_is_left_of_jobs_that_are_gone_is_found_by_uid_workload_and_label() {
        let left = |workload: &str, of: &[&str]| LeftPods {
            workload: workload.into(),
            of: of.iter().map(|uid| Arc::from(*uid)).collect(),
            ends_within: None,
        };
        let look = |lost: &[&str]| EndPods::LookForLeft {
            left: vec![
                left("w1", &["a", "child"]),
                left("w2", &["b"]),
                left("w3", &["x"]),
                left("w4", &["y"]),
            ],
            lost: lost.iter().map(|node| Arc::from(*node)).collect(),
        };
        let with = |mut pod: Value, key: &str, name: &str, value: &str| {
            pod["metadata"][key] = json!({ name: value });
            pod
        };
        let orphan = |mut pod: Value| {
            pod["metadata"]["ownerReferences"] = json!([]);
            pod
        };
        let on = |mut pod: Value, node: &str| {
            pod["spec"] = json!({"nodeName": node});
            pod
        };
        let remain = |pods: Vec<Value>, lost: &'static [&'static str]| async move {
            let (result, sent) = looked(vec![Vec::new(), pods], look(lost)).await;
            assert_eq!(sent.len(), 2, "it only looks");
            match result {
                Ok(()) => Vec::new(),
                Err(WriteError::PodsRemain(workloads)) => workloads.iter().map(ToString::to_string).collect(),
                Err(other) => unreachable!("{other}"),
            }
        };
        assert_eq!(remain(vec![pod("theirs", "c", false)], &[]).await, [""; 0]);
        let executor = pod("executor", "u-driver", false);
        assert_eq!(remain(vec![executor, pod("driver", "child", true)], &[]).await, ["w1"]);
        let carries = with(pod("p", "gone", false), "annotations", "kueue.x-k8s.io/workload", "w2");
        assert_eq!(remain(vec![carries, pod("q", "x", true)], &[]).await, ["w2", "w3"]);
        let labelled = with(pod("p", "other", false), "labels", "batch.kubernetes.io/controller-uid", "y");
        assert_eq!(remain(vec![labelled.clone()], &[]).await, [""; 0], "it is another's");
        assert_eq!(remain(vec![orphan(labelled)], &[]).await, ["w4"], "nothing owns it any more");
        let on_lost = || {
            vec![on(pod("p", "a", true), "n1"), on(pod("q", "b", true), "n2"), on(pod("r", "x", false), "n1")]
        };
        assert_eq!(remain(on_lost(), &["n1"]).await, ["w2", "w3"], "no pod ends on a lost node");
        assert_eq!(remain(on_lost(), &[]).await, ["w1", "w2", "w3"]);
    }

    #[tokio::test]
    async fn pods_that_have_had_long_enough_are_given_less_time() {
        let left = |workload: &str, uid: &str, ends_within| LeftPods {
            workload: workload.into(),
            of: vec![uid.into()],
            ends_within,
        };
        let look = EndPods::LookForLeft {
            left: vec![left("w1", "a", Some(30)), left("w2", "b", None)],
            lost: Vec::new(),
        };
        let leaves = |name: &str, controller: &str, seconds: i64| {
            let mut pod = pod(name, controller, true);
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(seconds);
            pod["spec"] = json!({"nodeName": "n1"});
            pod
        };
        let mut no_node = leaves("no-node", "b", 1);
        no_node["spec"] = json!({});
        let pods = vec![
            leaves("long", "a", 31_536_000),
            leaves("short", "a", 30),
            pod("runs", "a", false),
            leaves("of-another", "b", 31_536_000),
        ];
        let (result, _) = looked(vec![vec![no_node]], look.clone()).await;
        assert_eq!(result, Ok(()), "it will not run");
        let (result, sent) = looked(vec![pods], look).await;
        assert_eq!(result, Err(WriteError::PodsRemain(vec!["w1".into(), "w2".into()])));
        let deleted: Vec<_> = sent[1..]
            .iter()
            .map(|(_, uri, body)| (&**uri, body.contains("\"gracePeriodSeconds\":30")))
            .collect();
        assert_eq!(deleted, [(&*format!("{PODS}/long"), true), (&*format!("{PODS}/runs"), true)]);
    }

    #[tokio::test]
    async fn so_many_are_deleted_at_a_time() {
        let many = (0..MOST + 50).map(|n| pod(&format!("p{n}"), "a", false)).collect();
        let (result, sent) = looked(vec![many], EndPods::Delete).await;
        assert_eq!(result, Err(WriteError::PodsLeft { going_on: 250, leaving: 0 }));
        assert_eq!(sent.len(), 1 + MOST);
    }
}
