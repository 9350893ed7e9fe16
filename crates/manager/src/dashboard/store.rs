//! The columns of all objects that are shown, as the watches deliver them.
//!
//! A watch that delivers holds the lock for one row; a view that reads holds it for a copy of pointers, at most once in [`STALE`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sluice_engine::input::{Input, Kind, Object, ObjectRef};
use sluice_engine::{Name, WorkloadKey};
use tokio::sync::watch;

use super::happening::Latest;
use super::rows::{CohortRow, FlavorRow, NodeRow, QueueRow, WorkloadRow};
use super::snapshot::Snapshot;

/// An answer may be as old as this.
const STALE: Duration = Duration::from_millis(250);

/// How often what the views show has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revisions {
    /// All changes.
    pub all: u64,
    /// The last one of queues or Workloads.
    pub queues: u64,
    /// The last one of flavors or nodes.
    pub nodes: u64,
    /// Of what time everything is, if the cluster cannot be read now.
    pub old: Option<Timestamp>,
}

#[derive(Debug, Default)]
struct Rows {
    workloads: BTreeMap<WorkloadKey, Arc<WorkloadRow>>,
    cluster_queues: BTreeMap<Name, Arc<QueueRow>>,
    cohorts: BTreeMap<Name, Arc<CohortRow>>,
    local_queues: BTreeMap<(Name, Name), Name>,
    flavors: BTreeMap<Name, Arc<FlavorRow>>,
    topologies: BTreeMap<Name, Arc<Vec<String>>>,
    nodes: BTreeMap<Name, Arc<NodeRow>>,
    latest: Latest,
    synced: bool,
    partial: bool,
    /// When the cluster was read last.
    read: Option<Timestamp>,
    made: Option<(Instant, Arc<Snapshot>)>,
}

/// The rows, shared by the watches that deliver and the views that read.
#[derive(Debug)]
pub struct Store {
    rows: Mutex<Rows>,
    revisions: watch::Sender<Revisions>,
}

impl Default for Store {
    fn default() -> Self {
        Self { rows: Mutex::default(), revisions: watch::Sender::new(Revisions::default()) }
    }
}

/// Puts a row in; whether it is another one than before.
fn put<K: Ord, V: PartialEq>(map: &mut BTreeMap<K, V>, key: K, value: V) -> bool {
    let same = map.get(&key).is_some_and(|known| *known == value);
    if !same {
        map.insert(key, value);
    }
    !same
}

/// Leaves what is still there; whether anything went.
fn keep<K: Ord, V>(map: &mut BTreeMap<K, V>, is_there: impl Fn(&K) -> bool) -> bool {
    let before = map.len();
    map.retain(|key, _| is_there(key));
    map.len() != before
}

impl Store {
    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something was seen.
    pub fn note(&self, input: &Input) {
        let mut rows = self.rows();
        let changed = match input {
            Input::Applied(object) => rows.apply(object).then(|| object.object_ref().kind),
            Input::Deleted { object, uid } => rows.remove(object, uid.as_deref()).then_some(object.kind),
            Input::Listed { kind, present, .. } => rows.only(*kind, present).then_some(*kind),
            _ => None,
        };
        drop(rows);
        if let Some(kind) = changed {
            self.changed(kind);
        }
    }

    fn changed(&self, kind: Kind) {
        self.revisions.send_modify(|revisions| {
            revisions.all += 1;
            let of_nodes = matches!(kind, Kind::Node | Kind::ResourceFlavor | Kind::Topology);
            if of_nodes {
                revisions.nodes = revisions.all;
            }
            if !of_nodes || kind == Kind::ResourceFlavor {
                revisions.queues = revisions.all;
            }
        });
    }

    /// Everything has been seen once.
    pub fn synced(&self) {
        self.rows().synced = true;
    }

    /// The cluster was read, as it was at this time.
    pub fn alive(&self, at: Timestamp) {
        self.rows().read = Some(at);
        self.turn(None);
    }

    /// The cluster cannot be read: what is known is of the time when it was read last.
    pub fn cut_off(&self) {
        let read = self.rows().read;
        self.turn(Some(read.unwrap_or_else(Timestamp::now)));
    }

    /// The cluster cannot be read since this time.
    pub fn cut_off_since(&self, at: Timestamp) {
        self.rows().read = Some(at);
        self.cut_off();
    }

    /// Tells those who follow that it is otherwise than before.
    fn turn(&self, old: Option<Timestamp>) {
        self.revisions.send_if_modified(|revisions| {
            let turns = revisions.old.is_some() != old.is_some();
            if turns {
                revisions.old = old;
            }
            turns
        });
    }

    /// Of what time everything is, if the cluster cannot be read now.
    pub fn old(&self) -> Option<Timestamp> {
        self.revisions.borrow().old
    }

    /// Only Workloads of some namespaces will be seen.
    pub fn partial(&self, partial: bool) {
        self.rows().partial = partial;
    }

    /// Follows what changes.
    pub fn revisions(&self) -> watch::Receiver<Revisions> {
        self.revisions.subscribe()
    }

    /// How many Workloads there are.
    pub fn workloads(&self) -> usize {
        self.rows().workloads.len()
    }

    /// The state now, whatever was made a moment ago.
    #[cfg(test)]
    pub(crate) fn fresh(&self) -> Arc<Snapshot> {
        self.rows().made = None;
        self.snapshot().expect("everything was seen once")
    }

    /// The state now, or a moment ago; nothing before everything was seen once.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        let revision = self.revisions.borrow().all;
        let mut rows = self.rows();
        if !rows.synced {
            return None;
        }
        let now = Instant::now();
        if let Some((at, made)) = &rows.made
            && (made.revision == revision || now.saturating_duration_since(*at) < STALE)
        {
            return Some(Arc::clone(made));
        }
        let snapshot = Arc::new(rows.snapshot(revision));
        rows.made = Some((now, Arc::clone(&snapshot)));
        Some(snapshot)
    }
}

impl Rows {
    fn apply(&mut self, object: &Object) -> bool {
        let name = |metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta| {
            Name::from(metadata.name.as_deref().unwrap_or_default())
        };
        match object {
            Object::Workload(workload) => self.workload(WorkloadRow::of(workload)),
            Object::ClusterQueue(queue) => {
                put(&mut self.cluster_queues, name(&queue.metadata), Arc::new(QueueRow::of(queue)))
            }
            Object::Cohort(cohort) => {
                put(&mut self.cohorts, name(&cohort.metadata), Arc::new(CohortRow::of(cohort)))
            }
            Object::LocalQueue(queue) => {
                let namespace = queue.metadata.namespace.as_deref().unwrap_or_default().into();
                let target = queue.spec.cluster_queue.as_deref().unwrap_or_default().into();
                put(&mut self.local_queues, (namespace, name(&queue.metadata)), target)
            }
            Object::ResourceFlavor(flavor) => {
                put(&mut self.flavors, name(&flavor.metadata), Arc::new(FlavorRow::of(flavor)))
            }
            Object::Topology(topology) => {
                let levels = topology.spec.levels.iter().map(|level| level.node_label.clone()).collect();
                put(&mut self.topologies, name(&topology.metadata), Arc::new(levels))
            }
            Object::Node(node) => put(&mut self.nodes, name(&node.metadata), Arc::new(NodeRow::of(node))),
            _ => false,
        }
    }

    fn workload(&mut self, mut row: WorkloadRow) -> bool {
        // One of the same name that was deleted before is another.
        let old = self.workloads.get(&row.key).filter(|old| old.uid == row.uid);
        if let Some(old) = old.filter(|_| !row.lost.is_empty()) {
            row.lost_since = if old.lost.is_empty() { Some(Timestamp::now()) } else { old.lost_since };
        }
        if old.is_some_and(|old| **old == row) {
            return false;
        }
        let local = (Name::clone(&row.key.namespace), Name::clone(&row.local_queue));
        let queue = row.holder.as_ref().or_else(|| self.local_queues.get(&local));
        self.latest.note(old.map(AsRef::as_ref), &row, queue);
        self.workloads.insert(row.key.clone(), Arc::new(row));
        true
    }

    /// A late deletion takes no namesake away.
    fn remove(&mut self, object: &ObjectRef, uid: Option<&str>) -> bool {
        let name = &object.name;
        match object.kind {
            Kind::Workload => {
                let key = WorkloadKey { namespace: Name::clone(&object.namespace), name: Name::clone(name) };
                let is_other = |row: &Arc<WorkloadRow>| uid.is_some_and(|uid| *row.uid != *uid);
                !self.workloads.get(&key).is_some_and(is_other) && self.workloads.remove(&key).is_some()
            }
            Kind::ClusterQueue => self.cluster_queues.remove(name).is_some(),
            Kind::Cohort => self.cohorts.remove(name).is_some(),
            Kind::LocalQueue => {
                self.local_queues.remove(&(Name::clone(&object.namespace), Name::clone(name))).is_some()
            }
            Kind::ResourceFlavor => self.flavors.remove(name).is_some(),
            Kind::Topology => self.topologies.remove(name).is_some(),
            Kind::Node => self.nodes.remove(name).is_some(),
            _ => false,
        }
    }

    /// What is not among these is gone.
    fn only(&mut self, kind: Kind, present: &[ObjectRef]) -> bool {
        let named = || present.iter().map(|object| Name::clone(&object.name)).collect::<BTreeSet<_>>();
        let placed = || {
            let place = |object: &ObjectRef| (Name::clone(&object.namespace), Name::clone(&object.name));
            present.iter().map(place).collect::<BTreeSet<_>>()
        };
        match kind {
            Kind::Workload => {
                let placed = placed();
                let place = |key: &WorkloadKey| (Name::clone(&key.namespace), Name::clone(&key.name));
                keep(&mut self.workloads, |key| placed.contains(&place(key)))
            }
            Kind::LocalQueue => {
                let placed = placed();
                keep(&mut self.local_queues, |key| placed.contains(key))
            }
            Kind::ClusterQueue => {
                let named = named();
                keep(&mut self.cluster_queues, |key| named.contains(key))
            }
            Kind::Cohort => {
                let named = named();
                keep(&mut self.cohorts, |key| named.contains(key))
            }
            Kind::ResourceFlavor => {
                let named = named();
                keep(&mut self.flavors, |key| named.contains(key))
            }
            Kind::Topology => {
                let named = named();
                keep(&mut self.topologies, |key| named.contains(key))
            }
            Kind::Node => {
                let named = named();
                keep(&mut self.nodes, |key| named.contains(key))
            }
            _ => false,
        }
    }

    fn snapshot(&self, revision: u64) -> Snapshot {
        Snapshot {
            revision,
            complete: !self.partial,
            workloads: self.workloads.clone(),
            cluster_queues: self.cluster_queues.clone(),
            cohorts: self.cohorts.clone(),
            local_queues: self.local_queues.clone(),
            flavors: self.flavors.clone(),
            topologies: self.topologies.clone(),
            nodes: self.nodes.clone(),
            recent: self.latest.list(),
            sums: OnceLock::new(),
            namespaces: OnceLock::new(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
