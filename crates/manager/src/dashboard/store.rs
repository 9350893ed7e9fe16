//! The shown columns of all objects, from the watches.
//!
//! A watch holds the lock for one row; a view holds it while it copies what changed, at most once in [`STALE`].

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sluice_engine::input::{Input, Kind, Object, ObjectRef};
use sluice_engine::{Name, WorkloadKey};
use tokio::sync::watch;

use super::happening::Latest;
use super::rows::{CohortRow, FlavorRow, NodeRow, QueueRow, WorkloadRow};
use super::snapshot::Snapshot;
use super::texts::Texts;
use super::tracked::Tracked;

/// An answer may be as old as this.
const STALE: Duration = Duration::from_millis(250);

/// How often what the views show has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Revisions {
    /// All changes.
    pub all: u64,
    /// The latest one of queues or Workloads.
    pub queues: u64,
    /// The latest one of flavors or nodes.
    pub nodes: u64,
    /// Of what time everything is, if the cluster cannot be read now.
    pub old: Option<Timestamp>,
}

#[derive(Debug, Default)]
struct Rows {
    workloads: Tracked<WorkloadKey, Arc<WorkloadRow>>,
    cluster_queues: Tracked<Name, Arc<QueueRow>>,
    cohorts: Tracked<Name, Arc<CohortRow>>,
    local_queues: Tracked<(Name, Name), Name>,
    flavors: Tracked<Name, Arc<FlavorRow>>,
    topologies: Tracked<Name, Arc<Vec<String>>>,
    nodes: Tracked<Name, Arc<NodeRow>>,
    latest: Latest,
    texts: Texts,
    synced: bool,
    partial: bool,
    /// When the cluster was read last.
    read: Option<Timestamp>,
}

/// The last snapshot.
#[derive(Debug, Default)]
struct Made {
    /// Since when it may be shown without a look at what changed.
    at: Option<Instant>,
    snapshot: Arc<Snapshot>,
}

/// The rows, shared by the watches that deliver and the views that read.
#[derive(Debug)]
pub struct Store {
    rows: Mutex<Rows>,
    /// Locked before `rows`, which is not locked while the copy is made.
    made: Mutex<Made>,
    revisions: watch::Sender<Revisions>,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            rows: Mutex::default(),
            made: Mutex::default(),
            revisions: watch::Sender::new(Revisions::default()),
        }
    }
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

    /// Notifies followers that the state has changed.
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

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next snapshot is computed again.
    #[cfg(test)]
    pub(crate) fn expire(&self) {
        self.made().at = None;
    }

    /// The state now, whatever was made a moment ago.
    #[cfg(test)]
    pub(crate) fn fresh(&self) -> Arc<Snapshot> {
        self.expire();
        self.snapshot().expect("everything was seen once")
    }

    /// The state now, or a moment ago; nothing before everything was seen once.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        let mut made = self.made();
        let revision = self.revisions.borrow().all;
        let now = Instant::now();
        if let Some(at) = made.at
            && (made.snapshot.revision == revision || now.saturating_duration_since(at) < STALE)
        {
            return Some(Arc::clone(&made.snapshot));
        }
        let carry_changes_into = self.rows().take_changes(revision)?;
        // The watches continue from here. The one before is seldom in use by then.
        let mut next =
            Arc::try_unwrap(std::mem::take(&mut made.snapshot)).unwrap_or_else(|shown| shown.copy());
        carry_changes_into(&mut next);
        *made = Made { at: Some(now), snapshot: Arc::new(next) };
        Some(Arc::clone(&made.snapshot))
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
                self.cluster_queues.put(name(&queue.metadata), Arc::new(QueueRow::of(queue)))
            }
            Object::Cohort(cohort) => {
                self.cohorts.put(name(&cohort.metadata), Arc::new(CohortRow::of(cohort)))
            }
            Object::LocalQueue(queue) => {
                let namespace = queue.metadata.namespace.as_deref().unwrap_or_default().into();
                let target = queue.spec.cluster_queue.as_deref().unwrap_or_default().into();
                self.local_queues.put((namespace, name(&queue.metadata)), target)
            }
            Object::ResourceFlavor(flavor) => {
                self.flavors.put(name(&flavor.metadata), Arc::new(FlavorRow::of(flavor)))
            }
            Object::Topology(topology) => {
                let levels = topology.spec.levels.iter().map(|level| level.node_label.clone()).collect();
                self.topologies.put(name(&topology.metadata), Arc::new(levels))
            }
            Object::Node(node) => self.nodes.put(name(&node.metadata), Arc::new(NodeRow::of(node))),
            _ => false,
        }
    }

    fn workload(&mut self, mut row: WorkloadRow) -> bool {
        // A deleted Workload of the same name is a different one.
        let old = self.workloads.now().get(&row.key).filter(|old| old.uid == row.uid);
        if let Some(old) = old.filter(|_| !row.lost.is_empty()) {
            row.lost_since = if old.lost.is_empty() { Some(Timestamp::now()) } else { old.lost_since };
        }
        if old.is_some_and(|old| **old == row) {
            return false;
        }
        let local = (Name::clone(&row.key.namespace), Name::clone(&row.local_queue));
        let queue = row.holder.as_ref().or_else(|| self.local_queues.now().get(&local));
        self.latest.note(old.map(AsRef::as_ref), &row, queue);
        row.common_texts().for_each(|text| self.texts.share(text));
        self.workloads.put(row.key.clone(), Arc::new(row))
    }

    /// A late deletion takes no namesake away.
    fn remove(&mut self, object: &ObjectRef, uid: Option<&str>) -> bool {
        let name = &object.name;
        match object.kind {
            Kind::Workload => {
                let key = WorkloadKey { namespace: Name::clone(&object.namespace), name: Name::clone(name) };
                let is_other = |row: &Arc<WorkloadRow>| uid.is_some_and(|uid| *row.uid != *uid);
                !self.workloads.now().get(&key).is_some_and(is_other) && self.workloads.remove(&key)
            }
            Kind::ClusterQueue => self.cluster_queues.remove(name),
            Kind::Cohort => self.cohorts.remove(name),
            Kind::LocalQueue => {
                self.local_queues.remove(&(Name::clone(&object.namespace), Name::clone(name)))
            }
            Kind::ResourceFlavor => self.flavors.remove(name),
            Kind::Topology => self.topologies.remove(name),
            Kind::Node => self.nodes.remove(name),
            _ => false,
        }
    }

    /// Objects that are not among these are deleted.
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
                self.workloads.keep(|key| placed.contains(&place(key)))
            }
            Kind::LocalQueue => {
                let placed = placed();
                self.local_queues.keep(|key| placed.contains(key))
            }
            Kind::ClusterQueue => {
                let named = named();
                self.cluster_queues.keep(|key| named.contains(key))
            }
            Kind::Cohort => {
                let named = named();
                self.cohorts.keep(|key| named.contains(key))
            }
            Kind::ResourceFlavor => {
                let named = named();
                self.flavors.keep(|key| named.contains(key))
            }
            Kind::Topology => {
                let named = named();
                self.topologies.keep(|key| named.contains(key))
            }
            Kind::Node => {
                let named = named();
                self.nodes.keep(|key| named.contains(key))
            }
            _ => false,
        }
    }

    /// Takes what changed since the last call, and gives what brings a copy up to date with it; nothing before everything was seen once.
    fn take_changes(&mut self, revision: u64) -> Option<impl FnOnce(&mut Snapshot) + use<>> {
        let (complete, recent) = (!self.partial, self.synced.then(|| self.latest.list())?);
        let (workloads, cluster_queues) = (self.workloads.take_news(), self.cluster_queues.take_news());
        let (cohorts, local_queues) = (self.cohorts.take_news(), self.local_queues.take_news());
        let (flavors, topologies) = (self.flavors.take_news(), self.topologies.take_news());
        let nodes = self.nodes.take_news();
        Some(move |copy: &mut Snapshot| {
            (copy.revision, copy.complete, copy.recent) = (revision, complete, recent);
            workloads.carry_into(&mut copy.workloads);
            cluster_queues.carry_into(&mut copy.cluster_queues);
            cohorts.carry_into(&mut copy.cohorts);
            local_queues.carry_into(&mut copy.local_queues);
            flavors.carry_into(&mut copy.flavors);
            topologies.carry_into(&mut copy.topologies);
            nodes.carry_into(&mut copy.nodes);
            (copy.sums, copy.namespaces) = (OnceLock::new(), OnceLock::new());
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
