//! Deletes the pods of a stopped or ended job that its controller leaves running. They are looked for on demand, among all pods of the job's
//! namespace: the engine knows few pods, and their labels are written by users.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use axum::http::Method;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::json;
use sluice_api::labels;
use sluice_engine::input::{Kind, ObjectRef, WriteError};
use sluice_engine::{EndPods, LeftPods, PodsOf};
use tracing::warn;

use super::pods_below::PodsBelow;
use super::request::{collection, decode, uri};
use super::traffic::Many;
use super::{Sending, persist};
use crate::api_call::{Call, Content};
use crate::random;

/// Selects pods that have not ended, in pages of limited size: a page is in memory as a whole, and users may write a quarter of a megabyte into the
/// annotations of each pod.
const LIVE: &str = "fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed&limit=100";
/// The same for whole pods, which may have a megabyte and a half each.
const WHOLE: &str = "fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed&limit=25";
/// The highest number of pods, and of pages, whatever their content.
const MOST_PODS: usize = 100_000;
const PAGES: usize = MOST_PODS / 25;
/// How many pods are deleted before the next look: other writes wait for a slot meanwhile.
const MOST: usize = 200;
/// After this number of failures other than refusals the API server has a problem: it is left alone until the next look.
const UNANSWERED: usize = 3;

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    metadata: ListMetadata,
    /// For an empty list of metadata, the API server writes `null`.
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

/// The fields that are read. Nothing else is kept: there may be very many pods, and users write what they like into theirs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    uid: String,
    /// The UID of the object that controls it.
    #[serde(default, rename = "ownerReferences", deserialize_with = "controller")]
    controller: Option<String>,
    deletion_timestamp: Option<String>,
    deletion_grace_period_seconds: Option<i64>,
    #[serde(default)]
    labels: Labels,
    #[serde(default)]
    annotations: Annotations,
}

/// The labels by which Kubernetes' own Job controller identifies pods.
#[derive(Default, Deserialize)]
struct Labels {
    #[serde(rename = "batch.kubernetes.io/controller-uid")]
    job: Option<String>,
    /// The same before Kubernetes 1.27.
    #[serde(rename = "controller-uid")]
    legacy_job: Option<String>,
}

#[derive(Default, Deserialize)]
struct Annotations {
    /// The name in [`sluice_api::labels::WORKLOAD`].
    #[serde(rename = "kueue.x-k8s.io/workload")]
    workload: Option<String>,
}

/// Reads the UID of the controller alone from owner references.
fn controller<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    struct OwnerReference {
        uid: String,
        #[serde(default)]
        controller: bool,
    }
    struct Owners;
    impl<'de> Visitor<'de> for Owners {
        type Value = Option<String>;

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            to.write_str("owner references")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut owners: A) -> Result<Self::Value, A::Error> {
            let mut found = None;
            while let Some(OwnerReference { uid, controller }) = owners.next_element()? {
                found = found.or_else(|| controller.then_some(uid));
            }
            Ok(found)
        }
    }
    deserializer.deserialize_any(Owners)
}

/// The gates that only the manager takes off.
const GATES: [&str; 3] = [
    labels::ADMISSION_SCHEDULING_GATE,
    labels::TOPOLOGY_SCHEDULING_GATE,
    labels::ELASTIC_JOB_SCHEDULING_GATE,
];

impl Item {
    fn leaves(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Whether it uses no quota, now or later: it waits behind a gate of Sluice, or was deleted before it got a node or on a lost node.
    fn uses_nothing(&self, lost: &[Arc<str>]) -> bool {
        let node = &*self.spec.node_name;
        let never_ends = node.is_empty() || lost.iter().any(|lost| **lost == *node);
        self.leaves() && never_ends
            || self.spec.scheduling_gates.iter().any(|gate| GATES.contains(&&*gate.name))
    }
}

/// Pods by their controllers.
fn by_controller(items: &[Item]) -> PodsBelow<&str> {
    PodsBelow::new(items.iter().map(|item| (&*item.metadata.uid, item.metadata.controller.as_deref())))
}

/// Looks for the pods of these, and those below them, and does with those that continue what is wanted. Nothing if there are none.
pub async fn end(
    sending: &Sending,
    job: &ObjectRef,
    version: &str,
    of: &PodsOf,
    then: &EndPods,
) -> Result<(), WriteError> {
    let mut many = sending.many();
    if let EndPods::LookForLeft { left, lost } = then {
        return look(sending, &mut many, &job.name, left, lost).await;
    }
    let items = list(sending, &mut many, &job.namespace, LIVE).await?;
    let labelled = match &of.label {
        Some((key, value)) => list(sending, &mut many, &job.namespace, &with_label(key, value)).await?,
        None => Vec::new(),
    };
    let makers = makers(sending, &mut many, &job.namespace, of).await?;
    // What carries the label is one of them, also if its own controller is not known; and so are those that it made.
    let labelled: BTreeSet<_> = labelled.iter().map(|pod| &*pod.metadata.uid).collect();
    let makers = makers.iter().map(|pod| &*pod.metadata.uid);
    let uids = of.uids.iter().map(|uid| &**uid).chain(labelled.iter().copied()).chain(makers);
    let below = by_controller(&items).below(uids);
    let own = items.iter().zip(below).filter(|(pod, below)| *below || labelled.contains(&*pod.metadata.uid));
    let all = own.map(|(pod, _)| pod);
    let (leaving, going_on): (Vec<_>, Vec<_>) = all.partition(|pod| pod.leaves());
    let leaving = leaving.len();
    match then {
        EndPods::Touch(patch) if !going_on.is_empty() => {
            let call = Call::with_body(Method::PATCH, uri(job, version, None), Content::MergePatch, patch);
            persist(sending, &call).await?;
        }
        EndPods::Delete => {
            let all: Vec<_> =
                going_on.iter().map(|pod| (&*pod.metadata.name, &*pod.metadata.uid, None)).collect();
            if let Some((_, error)) = delete_each(sending, &mut many, &job.namespace, &all).await {
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

/// The pods that make others, if they are its own; also those that have ended.
async fn makers(
    sending: &Sending,
    many: &mut Many,
    namespace: &Arc<str>,
    of: &PodsOf,
) -> Result<Vec<Item>, WriteError> {
    let mut own = Vec::new();
    for name in of.makers.iter().filter(|name| may_be_name(name)) {
        let query = format!("fieldSelector=metadata.name%3D{name}&limit=1");
        let mut named = list(sending, many, namespace, &query).await?;
        named.retain(|pod| of.uids.iter().any(|uid| pod.metadata.controller.as_deref() == Some(&**uid)));
        own.extend(named);
    }
    Ok(own)
}

/// Whether a pod may have this name. It is its user's, and is written into a query.
fn may_be_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-' || c == b'.')
}

/// Looks in a namespace for what is left of jobs that are gone.
async fn look(
    sending: &Sending,
    many: &mut Many,
    namespace: &Arc<str>,
    left: &[LeftPods],
    lost: &[Arc<str>],
) -> Result<(), WriteError> {
    let whole = !lost.is_empty() || left.iter().any(|left| left.ends_within.is_some());
    let mut items = list(sending, many, namespace, if whole { WHOLE } else { LIVE }).await?;
    items.retain(|item| !whole || !item.uses_nothing(lost));
    let owners = whose(&items, left);
    let own: Vec<_> =
        owners.iter().map(|of| of.iter().filter_map(|at| left.get(*at)?.ends_within).max()).collect();
    // Pods that other pods made have the same time as those.
    let ends_within = by_controller(&items).greatest(&own);
    let overdue = items.iter().zip(ends_within).filter_map(|(item, within)| {
        let within = within?;
        let Metadata { name, uid, deletion_grace_period_seconds: grace, .. } = &item.metadata;
        let in_time = item.leaves() && grace.is_none_or(|seconds| seconds <= i64::from(within));
        (!in_time).then_some((&**name, &**uid, Some(within)))
    });
    let overdue: Vec<_> = overdue.collect();
    // What remains is known whatever the outcome.
    if let Some((pod, error)) = delete_each(sending, many, namespace, &overdue).await {
        warn!(%namespace, pod, %error, "a pod that has had long enough cannot be deleted");
    }
    let all: BTreeSet<_> = owners.into_iter().flatten().collect();
    let remain = all.into_iter().filter_map(|at| left.get(at));
    let remain: Vec<_> = remain.map(|left| Arc::clone(&left.workload)).collect();
    if remain.is_empty() { Ok(()) } else { Err(WriteError::PodsRemain(remain)) }
}

/// The positions in `left` that each of these pods belongs to. A pod that another pod made belongs to the same ones as that pod.
fn whose(items: &[Item], left: &[LeftPods]) -> Vec<BTreeSet<usize>> {
    let goes = left.iter().enumerate().filter(|(_, left)| left.by_name);
    let by_workload: BTreeMap<&str, usize> = goes.map(|(at, left)| (&*left.workload, at)).collect();
    let mut by_uid = BTreeMap::<&str, BTreeSet<usize>>::new();
    for (at, left) in left.iter().enumerate() {
        for uid in &left.of {
            by_uid.entry(uid).or_default().insert(at);
        }
    }
    let belongs = |Item { metadata, .. }: &Item| {
        let Metadata { uid, controller, labels, annotations, .. } = metadata;
        let released = [&labels.job, &labels.legacy_job].into_iter().filter(|_| controller.is_none());
        let uids = released.flatten().chain(controller).chain([uid]);
        let by_uid = uids.filter_map(|uid| by_uid.get(uid.as_str())).flatten();
        by_uid
            .chain(annotations.workload.as_deref().and_then(|name| by_workload.get(name)))
            .copied()
            .collect()
    };
    items.iter().map(belongs).collect()
}

/// The query for those with a label.
fn with_label(key: &str, value: &str) -> String {
    format!("{LIVE}&labelSelector={}%3D{value}", key.replace('/', "%2F"))
}

/// The pods of a namespace that have not ended: by this query what is known of all objects, or whole ones.
async fn list(
    sending: &Sending,
    many: &mut Many,
    namespace: &Arc<str>,
    query: &str,
) -> Result<Vec<Item>, WriteError> {
    let all = ObjectRef::namespaced(Kind::Pod, Arc::clone(namespace), "");
    let whole = query == WHOLE;
    let list = format!("{}?{query}", collection(&all, Kind::Pod.version()));
    let (mut found, mut page) = (Vec::new(), list.clone());
    // Whole lists take turns, not their pages: each is over soon, and what is in memory must not wait for others to end.
    sending.turn_of(many).await?;
    let _in_memory = sending.large_answer().await?;
    for _ in 0..PAGES {
        let call = Call::get(page);
        let call = if whole { call } else { call.list_of_metadata() };
        let answer = persist(sending, &call).await?;
        let List { metadata, items } = decode(&answer)?;
        drop(answer);
        found.extend(items.into_iter().flatten());
        if metadata.next.is_empty() {
            return Ok(found);
        }
        if found.len() >= MOST_PODS {
            break;
        }
        page = format!("{list}&continue={}", metadata.next);
    }
    Err(WriteError::Transient(format!("there are too many pods in {namespace}")))
}

/// Deletes pods: name, UID, and their seconds to end. Returns one that could not be deleted, and why: the others are deleted nevertheless. Each call
/// begins with another pod, so that failing ones do not block the same others for good.
async fn delete_each<'a>(
    sending: &Sending,
    many: &mut Many,
    namespace: &Arc<str>,
    pods: &[(&'a str, &'a str, Option<u32>)],
) -> Option<(&'a str, WriteError)> {
    let first = usize::try_from(random::bits()).unwrap_or(0).checked_rem(pods.len())?;
    let (mut unanswered, mut failed) = (0, None);
    for (name, uid, within) in pods.iter().cycle().skip(first).take(pods.len().min(MOST)) {
        if let Err(error) = sending.turn_of(many).await {
            return Some((*name, error));
        }
        let Err(error) = delete(sending, namespace, (name, uid), *within).await else { continue };
        unanswered += usize::from(!matches!(error, WriteError::Refused(_)));
        failed.get_or_insert((*name, error));
        if unanswered == UNANSWERED {
            break;
        }
    }
    failed
}

/// Deletes a pod, and not another pod of its name; in the background, with its own grace period, or with this number of seconds.
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
