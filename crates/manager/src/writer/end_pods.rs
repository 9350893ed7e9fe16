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
use tracing::warn;

use super::request::{collection, decode, uri};
use super::{Sending, persist};
use crate::api_call::{Call, Content};
use crate::random;

/// Pods that have not ended, in pages of so many.
const LIVE: &str = "fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed&limit=500";
/// So many pages at most: 100,000 pods.
const PAGES: usize = 200;
/// So many pods are deleted at most, before it is looked again: other writes wait for a place meanwhile.
const MOST: usize = 200;
/// So many that fail otherwise than by a refusal are the API server's trouble: it is left alone until the next look.
const UNANSWERED: usize = 3;

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
    #[serde(default)]
    scheduling_gates: Vec<Gate>,
}

#[derive(Deserialize)]
struct Gate {
    name: String,
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

/// The gates that only the manager takes off.
const GATES: [&str; 3] = [
    labels::ADMISSION_SCHEDULING_GATE,
    labels::TOPOLOGY_SCHEDULING_GATE,
    labels::ELASTIC_JOB_SCHEDULING_GATE,
];

impl Item {
    /// Whether it uses no quota, nor will: it waits behind a gate of ours, or was deleted before it got a node or on one that is lost.
    fn uses_nothing(&self, lost: &[Arc<str>]) -> bool {
        let node = &*self.spec.node_name;
        let never_ends = node.is_empty() || lost.iter().any(|lost| **lost == *node);
        let leaves = self.metadata.deletion_timestamp.is_some();
        leaves && never_ends || self.spec.scheduling_gates.iter().any(|gate| GATES.contains(&&*gate.name))
    }
}

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
            let all: Vec<_> = going_on.iter().map(|pod| (&*pod.name, &*pod.uid, None)).collect();
            if let Some((_, error)) = delete_each(sending, &job.namespace, &all).await {
                return Err(error);
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
    items.retain(|item| !whole || !item.uses_nothing(lost));
    let owners = whose(&items, left);
    let overdue = items.iter().zip(&owners).filter_map(|(item, of)| {
        let within = of.iter().filter_map(|at| left.get(*at)?.ends_within).max()?;
        let Metadata { name, uid, deletion_timestamp, deletion_grace_period_seconds: grace, .. } =
            &item.metadata;
        let in_time =
            deletion_timestamp.is_some() && grace.is_none_or(|seconds| seconds <= i64::from(within));
        (!in_time).then_some((&**name, &**uid, Some(within)))
    });
    let overdue: Vec<_> = overdue.collect();
    // What remains is known whatever comes of that.
    if let Some((pod, error)) = delete_each(sending, namespace, &overdue).await {
        warn!(%namespace, pod, %error, "a pod that has had long enough cannot be deleted");
    }
    let all: BTreeSet<_> = owners.into_iter().flatten().collect();
    let remain = all.into_iter().filter_map(|at| left.get(at));
    let remain: Vec<_> = remain.map(|left| Arc::clone(&left.workload)).collect();
    if remain.is_empty() { Ok(()) } else { Err(WriteError::PodsRemain(remain)) }
}

/// The positions of those to which each of these pods belongs.
fn whose(items: &[Item], left: &[LeftPods]) -> Vec<BTreeSet<usize>> {
    let by_workload: BTreeMap<&str, usize> = left
        .iter()
        .enumerate()
        .filter(|(_, left)| left.by_name)
        .map(|(at, left)| (&*left.workload, at))
        .collect();
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

/// Deletes pods: name, UID, and how many seconds they have. Gives one that could not be deleted, and why: that keeps none of the others. Each time
/// it begins with another one, so that those are not in the way of the same ones for good.
async fn delete_each<'a>(
    sending: &Sending,
    namespace: &Arc<str>,
    pods: &[(&'a str, &'a str, Option<u32>)],
) -> Option<(&'a str, WriteError)> {
    let first = usize::try_from(random::bits()).unwrap_or(0).checked_rem(pods.len())?;
    let (mut unanswered, mut failed) = (0, None);
    for (name, uid, within) in pods.iter().cycle().skip(first).take(pods.len().min(MOST)) {
        let Err(error) = delete(sending, namespace, (name, uid), *within).await else { continue };
        unanswered += usize::from(!matches!(error, WriteError::Refused(_)));
        failed.get_or_insert((*name, error));
        if unanswered == UNANSWERED {
            break;
        }
    }
    failed
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
mod tests;
