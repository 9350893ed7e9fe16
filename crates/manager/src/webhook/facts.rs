//! What job webhooks need to know, from the same watches that feed the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use sluice_api::job::{JobKind, Wrapped};
use sluice_engine::input::{Input, Kind, Object, ObjectRef};
use sluice_jobs::PodMarks;

use super::owners::{Admitted, Maker};

/// The name of the LocalQueue and of the WorkloadPriorityClass that apply by default (docs/reference/04-labels-annotations.md 4.1).
const DEFAULT: &str = "default";

/// A snapshot.
#[derive(Debug, Default, PartialEq)]
pub struct Facts {
    /// The labels of each namespace.
    pub namespaces: BTreeMap<String, BTreeMap<String, String>>,
    /// The namespaces with a LocalQueue named `default`.
    pub default_queues: BTreeSet<String>,
    /// Whether a WorkloadPriorityClass named `default` exists.
    pub default_priority_class: bool,
    /// Jobs of kinds that make others, objects that others manage, or, where pods are queued themselves, of all kinds: by kind, namespace and name.
    pub owners: BTreeMap<(JobKind, String, String), Owner>,
    /// Jobs with an admitted Workload, where pods are queued themselves.
    pub admitted: Admitted,
    /// Pods that make others, by namespace and name, where these are labelled with their jobs.
    pub makers: BTreeMap<(String, String), Maker>,
}

/// A job that may own others.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a job")]
pub struct Owner {
    /// Its UID: an owner reference with another UID does not point to it.
    pub uid: Arc<str>,
    /// Whether it has a queue name: then its child Jobs are its to start and stop.
    pub queued: bool,
    /// Whether it is not managed whatever queue it names, and although all jobs are: it has no pods of its own.
    pub skipped: bool,
    /// Its LocalQueue.
    pub queue_name: Option<String>,
    /// Its WorkloadPriorityClass.
    pub priority_class: Option<String>,
    /// The parts that it names, where its controller thinks of their names; or the pod that makes the others.
    pub part_names: Vec<String>,
    /// Its pod sets, and in how many parts each is, where its controller calls jobs after them.
    pub parts: Vec<(String, i32)>,
    /// The objects that it wraps, which its controller makes.
    pub wraps: Vec<Arc<Wrapped>>,
    /// How its pods are identified.
    pub pods: PodMarks,
    /// Whether it is being deleted, and its controller may make a job that cleans up after it, which it waits for.
    pub cleaned_up: bool,
    /// Whether it may clean up after another job that is being deleted, by its own name and its pods.
    pub may_clean_up: bool,
    /// Whether it is being deleted, and its controller, which may lag behind, makes jobs: these have no quota any more.
    pub leaves: bool,
    /// Kind, name and UID of the job that controls it.
    pub above: Option<(JobKind, String, String)>,
}

/// The current facts. They are changed where they are: what an event costs does not depend on how many there are.
#[derive(Debug, Default)]
pub struct FactStore {
    current: RwLock<Facts>,
    /// Pods are queued themselves: every job may own some, and it matters which are admitted.
    pods: bool,
    /// Kinds that others manage: their objects may own jobs.
    external: BTreeSet<JobKind>,
}

impl FactStore {
    /// Without facts. `kinds` are queued; other controllers manage the `external` ones.
    pub fn of(kinds: &[JobKind], external: BTreeSet<JobKind>) -> Self {
        let pods = kinds.iter().any(|kind| kind.integration().of_pods);
        Self { current: RwLock::default(), pods, external }
    }

    /// Takes in a pod that makes others, or that it is gone.
    pub fn note_maker(&self, namespace: &str, name: &str, maker: Option<Maker>) {
        let mut facts = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let key = (namespace.to_owned(), name.to_owned());
        match maker {
            Some(maker) => drop(facts.makers.insert(key, maker)),
            None => drop(facts.makers.remove(&key)),
        }
    }

    /// All pods that make others have been listed: those that are not in the list are gone.
    pub fn keep_makers(&self, present: &BTreeSet<(String, String)>) {
        let mut facts = self.current.write().unwrap_or_else(PoisonError::into_inner);
        facts.makers.retain(|key, _| present.contains(key));
    }

    /// The facts now.
    pub fn now(&self) -> RwLockReadGuard<'_, Facts> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what a watch delivered.
    pub fn note(&self, input: &Input) {
        if !self.concerns(input) {
            return;
        }
        self.current.write().unwrap_or_else(PoisonError::into_inner).take_in(input, &self.external);
    }

    /// Whether an object is a part of the facts.
    pub fn follows(&self, object: &Object) -> bool {
        match object {
            Object::Namespace(_) | Object::WorkloadPriorityClass(_) => true,
            Object::LocalQueue(queue) => queue.metadata.name.as_deref() == Some(DEFAULT),
            Object::Job(view) => self.may_own(Kind::Job(view.job.kind)),
            Object::Workload(_) => self.pods,
            _ => false,
        }
    }

    /// Cheap sorting out: most inputs are about jobs, Workloads and nodes.
    fn concerns(&self, input: &Input) -> bool {
        match input {
            Input::Applied(object) => self.follows(object),
            Input::Deleted { object: ObjectRef { kind, .. }, .. } | Input::Listed { kind, .. } => {
                matches!(kind, Kind::Namespace | Kind::WorkloadPriorityClass | Kind::LocalQueue)
                    || self.may_own(*kind)
                    || self.pods && *kind == Kind::Workload
            }
            _ => false,
        }
    }

    /// Whether jobs of a kind may own objects that the webhooks review.
    fn may_own(&self, kind: Kind) -> bool {
        let Kind::Job(kind) = kind else { return false };
        // It is not known what the controllers of declared kinds make.
        let makes_jobs = kind.makes_jobs() || kind.is_declared() || self.external.contains(&kind);
        let cleaned_up = kind.integration().cleaned_up_by.is_some();
        makes_jobs || cleaned_up || self.pods && !kind.integration().of_pods
    }
}

impl Facts {
    /// Whether anything changed.
    fn take_in(&mut self, input: &Input, external: &BTreeSet<JobKind>) -> bool {
        match input {
            Input::Applied(object) => self.applied(object, external),
            Input::Deleted { object, .. } => self.remove(object),
            Input::Listed { kind, present, .. } => {
                let present: BTreeSet<_> = present.iter().collect();
                let gone: Vec<_> = self.known(*kind).into_iter().filter(|o| !present.contains(o)).collect();
                gone.iter().fold(false, |changed, object| self.remove(object) | changed)
            }
            _ => false,
        }
    }

    fn applied(&mut self, object: &Object, external: &BTreeSet<JobKind>) -> bool {
        match object {
            Object::Namespace(namespace) => {
                let labels = namespace.metadata.labels.clone().unwrap_or_default();
                let name = namespace.metadata.name.clone().unwrap_or_default();
                self.namespaces.get(&name) != Some(&labels) && {
                    self.namespaces.insert(name, labels);
                    true
                }
            }
            Object::LocalQueue(queue) => {
                self.default_queues.insert(queue.metadata.namespace.clone().unwrap_or_default())
            }
            Object::WorkloadPriorityClass(class) => {
                let is_default = class.metadata.name.as_deref() == Some(DEFAULT);
                is_default && !std::mem::replace(&mut self.default_priority_class, true)
            }
            Object::Workload(workload) => self.admitted.note(workload),
            Object::Job(view) => {
                let key = (view.job.kind, view.job.namespace.to_string(), view.job.name.to_string());
                let above = view.controller.as_ref().and_then(|owner| {
                    let kind = JobKind::from_owner_or(external, &owner.api_version, &owner.kind)?;
                    Some((kind, owner.name.clone(), owner.uid.clone()))
                });
                let names_them = view.job.kind.parts_called_after_pod_sets();
                let sets = view.pod_sets.iter().filter(|_| names_them);
                let owner = Owner {
                    parts: sets.map(|set| (set.name.clone(), set.parts)).collect(),
                    uid: Arc::clone(&view.job.uid),
                    queue_name: view.queue_name.clone(),
                    priority_class: view.workload_priority_class.clone(),
                    queued: view.queue_name.is_some() && !view.skipped,
                    skipped: view.skipped,
                    part_names: view.part_names.clone(),
                    wraps: view.pod_sets.iter().filter_map(|set| set.wrapped.clone()).collect(),
                    pods: PodMarks::of(view),
                    cleaned_up: view.deleting && view.job.kind.integration().cleaned_up_by.is_some(),
                    may_clean_up: view.may_clean_up,
                    leaves: view.deleting && view.job.kind.makes_jobs(),
                    above,
                };
                self.owners.get(&key) != Some(&owner) && {
                    self.owners.insert(key, owner);
                    true
                }
            }
            _ => false,
        }
    }

    fn remove(&mut self, object: &ObjectRef) -> bool {
        let ObjectRef { kind, namespace, name } = object;
        match kind {
            Kind::Namespace => self.namespaces.remove(&**name).is_some(),
            Kind::LocalQueue => &**name == DEFAULT && self.default_queues.remove(&**namespace),
            Kind::WorkloadPriorityClass => {
                &**name == DEFAULT && std::mem::replace(&mut self.default_priority_class, false)
            }
            Kind::Workload => self.admitted.remove(&(namespace.to_string(), name.to_string())),
            Kind::Job(job) => self.owners.remove(&(*job, namespace.to_string(), name.to_string())).is_some(),
            _ => false,
        }
    }

    fn known(&self, kind: Kind) -> Vec<ObjectRef> {
        match kind {
            Kind::Namespace => {
                self.namespaces.keys().map(|name| ObjectRef::cluster(kind, name.as_str())).collect()
            }
            Kind::LocalQueue => {
                let queues = self.default_queues.iter();
                queues.map(|namespace| ObjectRef::namespaced(kind, namespace.as_str(), DEFAULT)).collect()
            }
            Kind::WorkloadPriorityClass if self.default_priority_class => {
                vec![ObjectRef::cluster(kind, DEFAULT)]
            }
            Kind::Workload => {
                let all = self.admitted.workloads();
                all.map(|(ns, name)| ObjectRef::namespaced(kind, ns.as_str(), name.as_str())).collect()
            }
            Kind::Job(job) => {
                let of_kind = self.owners.keys().filter(|(of, ..)| *of == job);
                of_kind.map(|(_, ns, name)| ObjectRef::namespaced(kind, ns.as_str(), name.as_str())).collect()
            }
            _ => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use sluice_api::{slim, v1beta2};

    fn queue(namespace: &str, name: &str) -> Input {
        let mut queue = v1beta2::LocalQueue::default();
        queue.metadata.namespace = Some(namespace.to_owned());
        queue.metadata.name = Some(name.to_owned());
        Input::Applied(Object::LocalQueue(Box::new(queue)))
    }

    fn job_set(queue: Option<&str>) -> Input {
        let labels = queue.map(|queue| json!({"kueue.x-k8s.io/queue-name": queue}));
        let object = json!({"metadata": {"name": "a", "namespace": "ns", "labels": labels}, "spec": {}});
        Input::Applied(Object::Job(Box::new(sluice_jobs::observe(JobKind::JOB_SET, &object))))
    }

    #[test]
    fn only_queues_named_default_count_and_a_list_removes_what_is_gone() {
        let store = FactStore::default();
        store.note(&queue("a", "default"));
        store.note(&queue("b", "default"));
        store.note(&queue("c", "other"));
        assert_eq!(store.now().default_queues, ["a", "b"].map(str::to_owned).into());
        let present = vec![ObjectRef::namespaced(Kind::LocalQueue, "b", "default")];
        store.note(&Input::Listed { kind: Kind::LocalQueue, present, as_of: None });
        assert_eq!(store.now().default_queues, ["b".to_owned()].into());
        let object = ObjectRef::namespaced(Kind::LocalQueue, "b", "default");
        store.note(&Input::Deleted { object, uid: None });
        assert!(store.now().default_queues.is_empty());
    }

    #[test]
    fn namespaces_are_known_by_their_labels() {
        let store = FactStore::default();
        let mut namespace = slim::Namespace::default();
        namespace.metadata.name = Some("a".to_owned());
        namespace.metadata.labels = Some([("team".to_owned(), "x".to_owned())].into());
        store.note(&Input::Applied(Object::Namespace(Box::new(namespace))));
        assert_eq!(store.now().namespaces["a"]["team"], "x");
    }

    #[test]
    fn a_job_set_that_loses_its_queue_is_no_longer_ours() {
        let store = FactStore::default();
        store.note(&job_set(Some("q")));
        let key = (JobKind::JOB_SET, "ns".to_owned(), "a".to_owned());
        assert!(store.now().owners[&key].queued);
        store.note(&job_set(None));
        assert!(!store.now().owners[&key].queued);
        store.note(&Input::Listed { kind: Kind::Job(JobKind::JOB_SET), present: Vec::new(), as_of: None });
        assert!(store.now().owners.is_empty());
    }

    #[test]
    fn what_an_event_costs_does_not_depend_on_how_many_facts_there_are() {
        let store = FactStore::default();
        let set = |name: String, queue: &str| {
            let labels = json!({"kueue.x-k8s.io/queue-name": queue});
            let object = json!({"metadata": {"name": name, "namespace": "ns", "labels": labels}, "spec": {}});
            Input::Applied(Object::Job(Box::new(sluice_jobs::observe(JobKind::JOB_SET, &object))))
        };
        for number in 0..5_000 {
            store.note(&set(format!("a-{number}"), "q"));
        }
        let event = set("a-7".to_owned(), "other");
        let cost = allocation_counter::measure(|| store.note(&event));
        assert!(cost.count_total < 10, "{cost:?}");
        let event = Input::Listed { kind: Kind::Node, present: Vec::new(), as_of: None };
        let cost = allocation_counter::measure(|| store.note(&event));
        assert_eq!(cost.count_total, 0, "nodes do not concern the webhooks");
    }
}
