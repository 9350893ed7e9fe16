//! The pods of jobs that are made of pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use sluice_api::job::{JobKind, JobView};
use sluice_core::{Name, WorkloadKey};
use sluice_jobs::composite;
use sluice_jobs::pods::{Composite, Group, Member, PlainPods};

use crate::effect::EffectId;
use crate::hotswap::pod::PodKey;
use crate::input::{Kind, ObjectRef};
pub(crate) use crate::keys::pod_group_uid as group_uid;
use crate::retry::Retry;
use crate::world::{JobKey, World, job_key};

/// A group with more pods is large.
const MANY: usize = 100;
/// The time between two writes that make pods of a large group owners of its Workload.
const OWNERS_PERIOD: SignedDuration = SignedDuration::from_secs(1);

/// A pod alone, a group, or the pods of an object that gathers them.
#[derive(Clone, Debug)]
pub(crate) struct PodJob {
    /// How its kind composes a job from its pods.
    pub shape: &'static dyn Composite,
    /// The object whose pods these are, as it was seen last, if it was. Its Workload is made of it.
    pub parent: Option<Arc<JobView>>,
    /// Whether that object, or this group of its pods, does not exist any more, or never did.
    pub left_over: bool,
    /// Workloads that are being deleted, of the object that left these pods behind: they hold their quota.
    pub leaving: BTreeSet<WorkloadKey>,
    /// The name of the group, if it is a group.
    pub group: Option<Name>,
    /// Its pods.
    pub pods: Group,
    /// The writes on its pods that have not been answered.
    pub open: BTreeMap<Name, EffectId>,
    /// How many of them let a pod run.
    pub starting: usize,
    /// The retry state of pods on which a write failed.
    pub fares: BTreeMap<Name, Fare>,
    /// Pods that may not own the group's Workload yet.
    pub unowned: BTreeSet<Name>,
    /// When pods were last made owners of the group's Workload.
    pub owned_at: Option<Timestamp>,
    /// The version of the Workload whose owners were looked at last.
    pub owners_of: Option<String>,
    /// The version of its object's Workload for which pods were set back as too large.
    pub measured_against: Option<String>,
    /// Whether its Workload exists, so that templates are dropped.
    pub slim: bool,
}

/// How writes on a pod fare.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fare {
    pub retry: Retry,
    /// It may be running: the answer to its start was lost. It is read before anything depends on that.
    pub uncertain: bool,
}

impl PodJob {
    fn new(kind: JobKind, group: Option<Name>, copied_labels: &[String]) -> Self {
        Self {
            shape: composite(kind).unwrap_or(&PlainPods),
            parent: None,
            left_over: false,
            leaving: BTreeSet::new(),
            group,
            pods: Group::new(copied_labels),
            open: BTreeMap::new(),
            starting: 0,
            fares: BTreeMap::new(),
            unowned: BTreeSet::new(),
            owned_at: None,
            owners_of: None,
            measured_against: None,
            slim: false,
        }
    }

    /// Whether its pods have roles: together they are the pod sets of one Workload.
    pub fn has_roles(&self) -> bool {
        self.group.is_some() || self.parent.is_some()
    }

    /// Whether a write on a pod is not to be tried again yet, and until when.
    pub fn waits(&self, pod: &str, now: Timestamp) -> Option<Timestamp> {
        self.fares.get(pod)?.retry.until().filter(|until| *until > now)
    }

    /// When new pods may be made owners of the group's Workload, if not now. That write contains all owners: in a large group there is at most one a
    /// second.
    pub fn owners_wait(&self, now: Timestamp) -> Option<Timestamp> {
        let last = self.owned_at.filter(|_| self.pods.len() > MANY)?;
        last.checked_add(OWNERS_PERIOD).ok().filter(|until| *until > now)
    }

    /// Whether it is not known of some pod if it was started.
    pub fn is_uncertain(&self) -> bool {
        self.fares.values().any(|fare| fare.uncertain)
    }
}

/// The kind of pods.
pub(crate) const PODS: JobKind = JobKind::of_pods();

/// The job that a pod is in, where objects of these kinds are. No pod has a name like that of a group's key.
pub(crate) fn job_of(kinds: &BTreeSet<JobKind>, member: &Member) -> JobKey {
    let kind = PODS;
    if let Some(parent) = member.parent.as_ref().filter(|parent| kinds.contains(&parent.kind)) {
        let (namespace, name) = (Arc::clone(&member.namespace), Arc::clone(&parent.name));
        return JobKey { kind: parent.kind, namespace, name, group: parent.group };
    }
    let name = match &member.group {
        Some(group) => Arc::from(format!("group/{group}")),
        None => Arc::clone(&member.name),
    };
    JobKey { kind, namespace: Arc::clone(&member.namespace), name, group: None }
}

/// The key of a pod that is written to as a job, or as a part of one.
pub(crate) fn pod_key(object: &ObjectRef) -> Option<PodKey> {
    let Kind::Job(kind) = object.kind else { return None };
    kind.integration().of_pods.then(|| (Arc::clone(&object.namespace), Arc::clone(&object.name)))
}

impl World {
    /// The job that a reference names, or the job of the pod that it names.
    pub fn job_key(&self, object: &ObjectRef) -> Option<JobKey> {
        match pod_key(object) {
            Some(pod) => self.pod_homes.get(&pod).cloned(),
            None => job_key(object),
        }
    }

    /// The job that a pod is in, and the pod.
    pub fn member(&self, object: &ObjectRef) -> Option<(&PodJob, &Member)> {
        let job = self.pod_jobs.get(self.pod_homes.get(&pod_key(object)?)?)?;
        Some((job, job.pods.get(&object.name)?))
    }

    /// Whether a pod belongs to a group, or to pods that are admitted together in the place of an object.
    pub fn is_of_group(&self, pod: &PodKey) -> bool {
        self.pod_homes.get(pod).and_then(|home| self.pod_jobs.get(home)).is_some_and(PodJob::has_roles)
    }

    /// Whether writes on the pods of a job have not been answered.
    pub fn is_writing_pods(&self, key: &JobKey) -> bool {
        self.pod_jobs.get(key).is_some_and(|job| !job.open.is_empty())
    }

    /// Puts a pod in.
    pub fn put_member(&mut self, key: &JobKey, mut member: Member, copied_labels: &[String]) {
        // The pods of an object are not asked for templates.
        let gathered = key.kind.gathers_pods();
        let group = member.group.clone().filter(|_| !gathered);
        let job =
            self.pod_jobs.entry(key.clone()).or_insert_with(|| PodJob::new(key.kind, group, copied_labels));
        job.slim |= gathered;
        let name = Arc::clone(&member.name);
        if job.group.is_some() && job.pods.get(&name).is_none() {
            job.unowned.insert(Arc::clone(&name));
        }
        if job.slim {
            member.drop_template();
        }
        self.pod_homes.insert((Arc::clone(&member.namespace), Arc::clone(&name)), key.clone());
        job.pods.insert(member);
        if job.group.is_some() {
            job.pods.drop_needless_templates(&name);
        }
    }

    /// Removes a pod, and its job with the last one. Returns the job, and the open write on the pod, whose answer does not matter any more.
    pub fn take_member(&mut self, pod: &PodKey) -> Option<(JobKey, Option<EffectId>)> {
        let key = self.pod_homes.remove(pod)?;
        let job = self.pod_jobs.get_mut(&key)?;
        let (_, name) = pod;
        job.pods.remove(name);
        job.fares.remove(name);
        job.unowned.remove(name);
        let open = job.open.remove(name);
        if job.pods.is_empty() && job.parent.is_none() {
            self.pod_jobs.remove(&key);
        }
        Some((key, open))
    }

    /// Puts an object in whose pods make its job.
    pub fn put_parent(&mut self, key: &JobKey, parent: Arc<JobView>) {
        let job = self.pod_jobs.entry(key.clone()).or_insert_with(|| PodJob::new(key.kind, None, &[]));
        job.slim = true;
        job.left_over = false;
        job.parent = Some(parent);
    }

    /// The requests of pods are computed in another way than before.
    pub fn measure_pods_again(&mut self) {
        self.asks_are_stale = true;
        for job in self.pod_jobs.values_mut() {
            job.measured_against = None;
        }
    }

    /// Removes such an object. Pods that it leaves behind wait for another object of its name.
    pub fn take_parent(&mut self, key: &JobKey) {
        let Some(job) = self.pod_jobs.get_mut(key).filter(|job| job.parent.is_some()) else { return };
        job.parent = None;
        if job.pods.is_empty() {
            self.pod_jobs.remove(key);
        }
    }

    /// The group that a Workload of this name would be of.
    pub fn group_named(&self, workload: &WorkloadKey) -> Option<JobKey> {
        let job = self.job_by_uid.get(&*group_uid(&workload.namespace, &workload.name))?;
        Some(job.clone())
    }

    /// The Workload of a job was deleted: none of its pods owns another one yet.
    pub fn own_nothing(&mut self, key: &JobKey) {
        if let Some(job) = self.pod_jobs.get_mut(key).filter(|job| job.group.is_some()) {
            job.unowned = job.pods.members().map(|member| Arc::clone(&member.name)).collect();
        }
    }

    /// Drops the templates of a job whose Workload exists.
    pub fn drop_pod_templates(&mut self, key: &JobKey) {
        // Groups share their object's templates.
        let Some(job) = self.pod_jobs.get_mut(key).filter(|_| key.group.is_none()) else { return };
        if !job.slim {
            job.slim = true;
            job.pods.drop_templates();
        }
        if let Some(parent) = &mut job.parent
            && parent.pod_sets.iter().any(|set| set.template.is_some())
        {
            for set in &mut Arc::make_mut(parent).pod_sets {
                set.template = None;
            }
        }
    }
}
