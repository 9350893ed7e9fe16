//! The objects as they were seen last, and the indexes over them.

mod claims;
mod few;
pub(crate) mod kept;
pub(crate) mod nodes;
mod owners;
mod pod_index;
mod pods;
mod present;
mod slice_index;
mod watched;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use crate::index_map::IndexMap;
use jiff::Timestamp;
use sluice_api::job::{JobKind, JobView, TemplateRef};
use sluice_api::{slim, v1beta2};
use sluice_core::{Admission, Name, SharedAssignment, WorkloadKey};

use crate::boxed_map::BoxedMap;
use crate::effect::EffectId;
use crate::external::parents::ExternalParents;
use crate::hotswap::asks::Asks;
use crate::hotswap::pod::{Pod, PodKey};
use crate::hotswap::watched::Watched;
use crate::ingest::limits::LimitSummary;
use crate::ingest::requests::Surroundings;
use crate::ingest::topology;
use crate::input::{Kind, ObjectRef};
pub(crate) use crate::keys::{JobKey, job_key};
use crate::lifecycle::seen_by_controller::SeenByController;
use crate::lifecycle::transition::Eviction;
use crate::lost_answer::LostAnswer;
use crate::pod_jobs::index::PodJob;
use crate::retry::Retry;
use crate::templates::kept::Templates;
use crate::topology::{ungater_index::PlacedPods, ungater_names::Names};
use crate::trouble::Trouble;
use crate::unheeded::Unheeded;
use crate::unreported::ReasonReport;
use crate::unstoppable::Restores;
use few::Few;
use nodes::Nodes;
pub(crate) use owners::{controller, is_of_group};

/// The reference to a Workload's object.
pub(crate) fn workload_ref(key: &WorkloadKey) -> ObjectRef {
    ObjectRef::namespaced(Kind::Workload, Arc::clone(&key.namespace), Arc::clone(&key.name))
}

/// A decision about a workload that is still to be written.
#[derive(Clone, Debug)]
pub(crate) enum Decision {
    /// To reserve quota, as the core assumes.
    Reserve {
        /// Its admission.
        admission: Admission,
        /// The checks that apply.
        required_checks: Vec<Name>,
        /// The suffix of the event.
        considered: String,
    },
    /// To assign these nodes to pod sets, as the core assumes: pod sets that waited for nodes, and those that lost one. With the effects that report
    /// it.
    Place(Vec<(Name, SharedAssignment)>, Vec<crate::effect::Effect>),
    /// To evict, as the core assumes.
    Evict(Eviction, Vec<crate::effect::Effect>),
}

/// A Workload and what is under way with it.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a Workload")]
pub(crate) struct WorkloadEntry {
    /// As it was seen last.
    pub object: slim::Workload,
    /// The UID of the job that it belongs to: see [`owners::job_uid`]. All pods of a group own its Workload, and are not gone through each time.
    pub owner: Option<Name>,
    /// The position of the owner reference of its controller.
    pub controller: Option<usize>,
    /// What its pods ask of nodes, computed on demand.
    pub asks: OnceLock<Box<Asks>>,
    /// The nodes of its pod sets, by position, as the object has them.
    pub nodes: Vec<Option<SharedAssignment>>,
    /// Why its nodes cannot be read, if so.
    pub wrong_nodes: Option<String>,
    /// The status in the write that has not been answered.
    pub assumed: Option<Box<v1beta2::WorkloadStatus>>,
    /// The write that has not been answered.
    pub open: Option<EffectId>,
    /// A write that was not answered, and what it reports.
    pub lost_answer: Option<Box<LostAnswer>>,
    /// The decision that is written as soon as that is possible.
    pub decision: Option<Box<Decision>>,
    /// Whether it is not known if quota was reserved: the write failed, and may have been carried out. It is held until then.
    pub uncertain: bool,
    /// Its reservation may not be ours: it appeared while we led, and whether it fits has not been checked yet.
    pub unchecked: bool,
    /// It was admitted before we led, and nothing was written to or read of it since: a late write of the former leader may have evicted it.
    pub inherited: bool,
    /// Its deletion was accepted, and has not been seen yet.
    pub deleted: bool,
    /// When we reserved the quota that it holds.
    pub reserved_by_us: Option<Timestamp>,
    /// How its writes fare, but for those that only report: decisions do not wait for these.
    pub retry: Retry,
    /// How those fare.
    pub reports: Retry,
    /// What is known of the reports why it waits, while there is anything.
    pub reason: Option<Box<ReasonReport>>,
}

impl WorkloadEntry {
    /// Whether no operation in progress reads or changes its status.
    fn is_at_rest(&self) -> bool {
        self.open.is_none() && self.decision.is_none() && self.lost_answer.is_none() && !self.uncertain
    }

    /// The status that decisions are made on: as seen, or as the open write will make it.
    pub fn status(&self) -> &v1beta2::WorkloadStatus {
        self.assumed.as_deref().unwrap_or(&self.object.status)
    }

    /// Its UID.
    pub fn uid(&self) -> Name {
        self.object.metadata.uid.as_deref().unwrap_or_default().into()
    }

    /// The UID of the job that controls it.
    pub fn controller_uid(&self) -> Option<&str> {
        let owners = self.object.metadata.owner_references.as_ref()?;
        owners.get(self.controller?).map(|owner| owner.uid.as_str())
    }
}

/// A job and what is under way with it.
#[derive(Clone, Debug)]
pub(crate) struct JobEntry {
    /// As it was seen last.
    pub view: Arc<JobView>,
    /// The write that has not been answered: on the job, or the creation of its Workload.
    pub open: Option<EffectId>,
    /// It may have been started: the answer was lost. Nothing is decided about it before it was read again.
    pub uncertain: bool,
    /// How its writes fare.
    pub retry: Retry,
    /// Problems of it or its parts; few jobs ever need it.
    pub trouble: Option<Box<Trouble>>,
    /// Set if it was stopped and nothing shows that its controller has carried that out; few jobs ever need it.
    pub unheeded: Option<Box<Unheeded>>,
    /// Whether the last failed write was to stop it: only then is a stop delayed, too.
    pub stop_failed: bool,
    /// What its stop restores.
    pub restores: Restores,
    /// The trouble that was last reported as an event, so that it is reported once.
    pub reported: Option<String>,
    /// The messages of the pending checks when they were last reported.
    pub reported_checks: String,
    /// Whether the status of the job that controls it has named it. It stays that job's part when another takes its place there.
    pub named: bool,
    /// Whether its own controller has seen its last start and stop.
    pub seen: SeenByController,
}

/// Everything that was seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    pub flavors: BTreeMap<Name, Box<v1beta2::ResourceFlavor>>,
    /// When the node labels of a flavor were last seen to have changed, or when a flavor was first seen that may have changed before.
    pub relabeled: BTreeMap<Name, Timestamp>,
    pub cluster_queues: BTreeMap<Name, Box<v1beta2::ClusterQueue>>,
    pub local_queues: BTreeMap<(Name, Name), Box<v1beta2::LocalQueue>>,
    pub cohorts: BTreeMap<Name, Box<v1beta2::Cohort>>,
    pub checks: BTreeMap<Name, Box<v1beta2::AdmissionCheck>>,
    pub topologies: BTreeMap<Name, Box<v1beta2::Topology>>,
    pub workload_priority_classes: BTreeMap<Name, i32>,
    pub priority_classes: BTreeMap<Name, (i32, bool)>,
    pub namespaces: BTreeMap<Name, Box<slim::Namespace>>,
    pub nodes: Nodes,
    /// Pods that are bound and have not ended, by namespace and name.
    pub pods: BoxedMap<PodKey, Pod>,
    /// The same by node and by job.
    pub pod_index: pod_index::PodIndex,
    /// Pods of elastic jobs, and pods with a topology assignment, by namespace and name.
    pub job_pods: BoxedMap<PodKey, crate::job_pod::JobPod>,
    /// Pods of elastic jobs, by the UID of their controller.
    pub job_pods_of: BTreeMap<Name, BTreeSet<PodKey>>,
    /// Pods with a topology assignment, by their Workload, or the first slice of an elastic job.
    pub placed: BTreeMap<WorkloadKey, PlacedPods>,
    /// Texts that they have in common.
    pub names: Names,
    /// Pods of [`World::pods`] that are being deleted, by the UID of their controller.
    pub leaving: BTreeMap<Name, BTreeSet<PodKey>>,
    pub limit_ranges: BTreeMap<Name, BTreeMap<Name, slim::LimitRange>>,
    pub limits: BTreeMap<Name, LimitSummary>,
    pub runtime_classes: BTreeMap<Name, slim::RuntimeClass>,
    pub provisioning_configs: BTreeMap<Name, Box<v1beta2::ProvisioningRequestConfig>>,
    pub provisioning_requests: BTreeMap<(Name, Name), Box<slim::ProvisioningRequest>>,
    /// Requests by the UID of the controlling Workload.
    pub requests_by_owner: BTreeMap<Name, BTreeSet<(Name, Name)>>,
    pub workloads: BoxedMap<WorkloadKey, WorkloadEntry>,
    /// What Workloads that are over have in common.
    pub ended_specs: kept::Specs,
    pub jobs: BTreeMap<JobKey, JobEntry>,
    /// Objects above jobs that others manage.
    pub external: ExternalParents,
    /// Templates that jobs name.
    pub templates: Templates,
    /// Jobs by the template that they name.
    pub by_template: BTreeMap<TemplateRef, BTreeSet<JobKey>>,
    /// Objects whose groups of pods are jobs, as they were seen last.
    pub sets: BTreeMap<JobKey, Arc<JobView>>,
    /// The pods of jobs that are made of pods.
    pub pod_jobs: BTreeMap<JobKey, PodJob>,
    /// The job that each of these pods is in.
    pub pod_homes: BTreeMap<PodKey, JobKey>,
    /// Workloads by the UID of the job that they belong to.
    pub by_owner: IndexMap<Name, Few<WorkloadKey>>,
    /// Slices by the first slice that they name.
    pub slices: slice_index::SliceIndex,
    /// Workloads by their LocalQueue.
    pub by_queue: BTreeMap<(Name, Name), BTreeSet<WorkloadKey>>,
    /// LocalQueues by the ClusterQueue that they point to.
    pub by_cluster_queue: BTreeMap<Name, BTreeSet<(Name, Name)>>,
    /// Jobs by UID, for lookups of single ones.
    pub job_by_uid: IndexMap<Name, JobKey>,
    /// Jobs by the UID of their controller.
    pub children: BTreeMap<Name, BTreeSet<JobKey>>,
    /// Jobs by the prebuilt Workload that they name.
    pub awaiting: BTreeMap<WorkloadKey, BTreeSet<JobKey>>,
    /// The Workloads that looks at the nodes visit.
    pub watched: Watched,
    no_limits: LimitSummary,
    /// [`WorkloadEntry::asks`] may be out of date.
    pub asks_are_stale: bool,
    /// Whether all pods count as the quota of the same Workloads as at the last look at the nodes.
    pub claims_are_as_seen: bool,
}

/// The prebuilt Workload that a job names.
fn prebuilt_of(view: &JobView) -> Option<WorkloadKey> {
    let name = view.prebuilt_workload.as_deref()?;
    Some(WorkloadKey::new(Arc::clone(&view.job.namespace), name))
}

/// Adds to an index of sets.
fn index<K: Ord, V: Ord>(map: &mut BTreeMap<K, BTreeSet<V>>, key: K, value: V) {
    map.entry(key).or_default().insert(value);
}

/// Removes from an index of sets, and the set with its last entry.
fn unindex<K: Ord, V: Ord>(map: &mut BTreeMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(set) = map.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            map.remove(key);
        }
    }
}

/// The entries after a key, or all.
pub(crate) fn after<'a, K: Ord, V>(
    map: &'a BTreeMap<K, V>,
    key: Option<&K>,
) -> impl Iterator<Item = (&'a K, &'a V)> + use<'a, K, V> {
    map.range((key.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded))
}

impl World {
    /// What the request of a pod in a namespace depends on.
    pub fn around<'a>(
        &'a self,
        namespace: &str,
        config: &'a crate::config::EngineConfig,
    ) -> Surroundings<'a> {
        Surroundings {
            limits: self.limits.get(namespace).unwrap_or(&self.no_limits),
            runtime_classes: &self.runtime_classes,
            resources: &config.resources,
        }
    }

    /// The LocalQueue of a Workload.
    pub fn queue_of(key: &WorkloadKey, object: &slim::Workload) -> (Name, Name) {
        (Arc::clone(&key.namespace), Name::from(object.spec.queue_name.as_str()))
    }

    /// Stores a Workload, and keeps the operations in progress of the old version.
    pub fn put_workload(&mut self, key: &WorkloadKey, mut object: slim::Workload) {
        kept::fit(&mut object);
        if kept::is_over(&object) && self.workloads.get(key).is_none_or(WorkloadEntry::is_at_rest) {
            kept::reduce(&mut object);
            self.ended_specs.share(&mut object.spec);
        }
        let owner = owners::job_uid(&object).map(|uid| Name::from(&*uid));
        let controller = owners::controller_position(&object);
        self.claims_are_as_seen = self.claims_stay_with(key, &object, owner.as_ref());
        self.slices.update(key, self.workloads.get(key).map(|known| &known.object), Some(&object));
        if let Some(entry) = self.workloads.get_mut(key) {
            if entry.object.spec.queue_name != object.spec.queue_name {
                unindex(&mut self.by_queue, &Self::queue_of(key, &entry.object), key);
                index(&mut self.by_queue, Self::queue_of(key, &object), key.clone());
            }
            if entry.owner != owner {
                if let Some(old) = std::mem::replace(&mut entry.owner, owner.clone()) {
                    Few::unindex(&mut self.by_owner, &old, key);
                }
                if let Some(owner) = owner {
                    Few::index(&mut self.by_owner, owner, key.clone());
                }
            }
            if !topology::same_assignments(&entry.object, &object) {
                (entry.nodes, entry.wrong_nodes) = topology::assignments(&object);
            }
            (entry.object, entry.controller) = (object, controller);
            entry.asks = OnceLock::new();
        } else {
            index(&mut self.by_queue, Self::queue_of(key, &object), key.clone());
            if let Some(owner) = &owner {
                Few::index(&mut self.by_owner, Name::clone(owner), key.clone());
            }
            let (nodes, wrong_nodes) = topology::assignments(&object);
            let entry = WorkloadEntry {
                object,
                owner,
                controller,
                asks: OnceLock::new(),
                nodes,
                wrong_nodes,
                assumed: None,
                open: None,
                lost_answer: None,
                decision: None,
                uncertain: false,
                unchecked: false,
                inherited: false,
                deleted: false,
                reserved_by_us: None,
                retry: Retry::default(),
                reports: Retry::default(),
                reason: None,
            };
            self.workloads.insert(key.clone(), entry);
        }
        self.watch(key);
    }

    /// Takes a Workload out.
    pub fn take_workload(&mut self, key: &WorkloadKey) -> Option<WorkloadEntry> {
        self.claims_are_as_seen = self.claims_stay_without(key);
        let entry = self.workloads.remove(key)?;
        if let Some(owner) = &entry.owner {
            Few::unindex(&mut self.by_owner, owner, key);
        }
        unindex(&mut self.by_queue, &Self::queue_of(key, &entry.object), key);
        self.slices.update(key, Some(&entry.object), None);
        self.watch(key);
        Some(entry)
    }

    /// Puts a job in.
    pub fn put_job(&mut self, view: Arc<JobView>) {
        let key = JobKey::of(&view.job);
        let before = self.jobs.get(&key).map(|entry| Arc::clone(&entry.view));
        self.claims_are_as_seen = self.claims_stay_with_job(before.as_deref(), Some(&view));
        if let Some(old) = self.take_job_indexes(&key)
            && old != view.job.uid
        {
            self.jobs.remove(&key);
        }
        let after = Arc::clone(&view);
        self.job_by_uid.insert(Arc::clone(&view.job.uid), key.clone());
        if let Some(owner) = &view.controller {
            index(&mut self.children, Name::from(owner.uid.as_str()), key.clone());
        }
        if let Some(workload) = prebuilt_of(&view) {
            index(&mut self.awaiting, workload, key.clone());
        }
        if let Some(used) = &view.template {
            index(&mut self.by_template, used.object.clone(), key.clone());
        }
        if let Some(entry) = self.jobs.get_mut(&key) {
            entry.keep_readable(&view);
            entry.view = view;
            if entry.view.suspended {
                entry.suspend_is_not_refused();
            }
        } else {
            let entry = JobEntry {
                view,
                open: None,
                uncertain: false,
                retry: Retry::default(),
                trouble: None,
                unheeded: None,
                stop_failed: false,
                restores: Restores::default(),
                reported: None,
                reported_checks: String::new(),
                named: false,
                seen: SeenByController::default(),
            };
            self.jobs.insert(key, entry);
        }
        self.watch_job(before.as_deref(), Some(&after));
    }

    /// Removes a job from the indexes and gives its UID.
    fn take_job_indexes(&mut self, key: &JobKey) -> Option<Name> {
        let view = Arc::clone(&self.jobs.get(key)?.view);
        self.job_by_uid.swap_remove(&view.job.uid);
        if let Some(owner) = &view.controller {
            unindex(&mut self.children, &Name::from(owner.uid.as_str()), key);
        }
        if let Some(workload) = prebuilt_of(&view) {
            unindex(&mut self.awaiting, &workload, key);
        }
        if let Some(used) = &view.template {
            unindex(&mut self.by_template, &used.object, key);
        }
        Some(Arc::clone(&view.job.uid))
    }

    /// Takes a job out.
    pub fn take_job(&mut self, key: &JobKey) -> Option<JobEntry> {
        self.claims_are_as_seen = self.claims_stay_with_job(Some(&self.jobs.get(key)?.view), None);
        self.take_job_indexes(key)?;
        let entry = self.jobs.remove(key)?;
        self.watch_job(Some(&entry.view), None);
        Some(entry)
    }

    /// Workloads that a job controls, oldest first. Those in other namespaces only claim to be controlled.
    pub fn owned(&self, uid: &str) -> Vec<WorkloadKey> {
        let namespace = self.job_by_uid.get(uid).map(|job| &job.namespace);
        let own = |key: &&WorkloadKey| namespace.is_none_or(|namespace| *namespace == key.namespace);
        let mut keys: Vec<_> = self.by_owner.get(uid).into_iter().flatten().filter(own).cloned().collect();
        keys.sort_by_cached_key(|k| {
            self.workloads.get(k).map(|e| crate::ingest::workload::created(&e.object))
        });
        keys
    }

    /// The job that a Workload belongs to, if it exists. An owner in another namespace does not count.
    pub fn job_of(&self, entry: &WorkloadEntry) -> Option<JobKey> {
        let namespace = entry.object.metadata.namespace.as_deref().unwrap_or_default();
        self.job_by_uid.get(entry.owner.as_ref()?).filter(|job| *job.namespace == *namespace).cloned()
    }

    /// The ClusterQueue that a Workload's LocalQueue points to.
    pub fn cluster_queue_of(&self, key: &WorkloadKey, object: &slim::Workload) -> Option<Name> {
        self.cluster_queue_name_of(key, object).map(Name::from)
    }

    /// Its name.
    pub fn cluster_queue_name_of(&self, key: &WorkloadKey, object: &slim::Workload) -> Option<&str> {
        self.local_queues.get(&Self::queue_of(key, object))?.spec.cluster_queue.as_deref()
    }

    /// The LocalQueues that point to a ClusterQueue.
    pub fn queues_into(&self, cluster_queue: &str) -> impl Iterator<Item = &(Name, Name)> {
        self.by_cluster_queue.get(cluster_queue).into_iter().flatten()
    }

    /// Puts a LocalQueue in.
    pub fn put_local_queue(&mut self, key: (Name, Name), queue: Box<v1beta2::LocalQueue>) {
        self.take_local_queue(&key);
        if let Some(cluster) = queue.spec.cluster_queue.as_deref() {
            index(&mut self.by_cluster_queue, Name::from(cluster), key.clone());
        }
        self.local_queues.insert(key, queue);
    }

    /// Takes a LocalQueue out.
    pub fn take_local_queue(&mut self, key: &(Name, Name)) {
        let queue = self.local_queues.remove(key);
        if let Some(cluster) = queue.as_ref().and_then(|queue| queue.spec.cluster_queue.as_deref()) {
            unindex(&mut self.by_cluster_queue, &Name::from(cluster), key);
        }
    }

    /// The keys of a namespace's Workloads.
    pub fn workloads_in(&self, namespace: &Name) -> impl Iterator<Item = (&WorkloadKey, &WorkloadEntry)> {
        let first = WorkloadKey::new(Arc::clone(namespace), "");
        self.workloads.range(first..).take_while(move |(key, _)| key.namespace == *namespace)
    }

    /// The keys of a namespace's jobs.
    pub fn jobs_in(&self, namespace: &Name) -> impl Iterator<Item = &JobKey> {
        JobKind::all().iter().flat_map(move |&kind| {
            let first = JobKey { kind, namespace: Arc::clone(namespace), name: "".into(), group: None };
            let of_kind = self.jobs.range(first..).map(|(key, _)| key);
            of_kind.take_while(move |key| key.kind == kind && key.namespace == *namespace)
        })
    }
}
