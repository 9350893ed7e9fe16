//! Taking in what was seen: objects, deletions, complete lists, objects that are set aside.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sluice_api::job::JobView;
use sluice_api::slim;
use sluice_core::{Name, WorkloadKey};

use crate::effect::{EventType, Level};
use crate::engine::Engine;
use crate::hotswap::scene::holds;
use crate::ingest::limits::LimitSummary;
use crate::ingest::scheduling::pairs;
use crate::ingest::{self, queues};
use crate::input::{Kind, Object, ObjectRef};
use crate::outbox::{event, log};
use crate::world::JobKey;

/// The annotation (of jobs: label) that makes the engine panic, where the configuration allows it.
const INJECT_PANIC: &str = "sluice.dev/inject-panic";

/// How a version that was seen relates to the one that is known. Versions are opaque, but grow where they are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Older,
    Same,
    Newer,
}

fn compare(known: Option<&str>, seen: Option<&str>) -> Seen {
    let (Some(known), Some(seen)) = (known, seen) else { return Seen::Newer };
    if known == seen {
        return Seen::Same;
    }
    match (known.parse::<u64>(), seen.parse::<u64>()) {
        (Ok(known), Ok(seen)) if seen < known => Seen::Older,
        _ => Seen::Newer,
    }
}

/// Whether a version tells nothing new.
pub(crate) fn is_stale(known: Option<&str>, seen: Option<&str>) -> bool {
    compare(known, seen) != Seen::Newer
}

/// Whether an answer about an object is older than what is known of it: it was overtaken by what a watch told.
pub(crate) fn is_overtaken(known: Option<&ObjectMeta>, answer: &ObjectMeta) -> bool {
    let known = known.and_then(|metadata| metadata.resource_version.as_deref());
    compare(known, answer.resource_version.as_deref()) == Seen::Older
}

impl Engine {
    /// Takes in an object as it is now.
    pub(crate) fn observe_object(&mut self, object: Object) {
        let reference = object.object_ref();
        if self.is_aside(&reference, &object) {
            return;
        }
        self.working_on = Some(reference.clone());
        self.inject_panic(&object);
        let name = Arc::clone(&reference.name);
        match object {
            Object::Workload(workload) => self.observe_workload(*workload),
            Object::Job(view) => self.observe_job(*view),
            Object::ResourceFlavor(flavor) => {
                let spec = self.flavor_spec(&flavor);
                let known = self.world.flavors.get(&name);
                let changed = known.is_none_or(|old| self.flavor_spec(old) != spec);
                if changed && let Some(old) = known {
                    self.changes.note(self.now, &reference, &old.spec, &flavor.spec);
                }
                self.world.flavors.insert(name, flavor);
                if changed {
                    self.scheduler.set_flavor(spec);
                    self.quota_changed();
                }
                self.dirty.objects.insert(reference);
            }
            Object::ClusterQueue(queue) => self.observe_cluster_queue(&name, queue),
            Object::LocalQueue(queue) => self.observe_local_queue(reference, queue),
            Object::Cohort(cohort) => {
                let spec = queues::cohort(&cohort);
                let known = self.world.cohorts.get(&name);
                let changed = known.is_none_or(|old| queues::cohort(old) != spec);
                if changed && let Some(old) = known {
                    self.changes.note(self.now, &reference, &old.spec, &cohort.spec);
                }
                self.world.cohorts.insert(name, cohort);
                if changed {
                    self.scheduler.set_cohort(spec);
                    self.quota_changed();
                }
                self.dirty.objects.insert(reference);
            }
            Object::AdmissionCheck(check) => {
                self.scheduler.set_check(&name, queues::check(&check));
                self.world.checks.insert(name, check);
                self.quota_changed();
                self.mark_checked_workloads();
                self.dirty.objects.insert(reference);
            }
            Object::Topology(topology) => self.observe_topology(reference, topology),
            Object::WorkloadPriorityClass(class) => {
                if self.world.workload_priority_classes.insert(name, class.value) != Some(class.value) {
                    self.priority_classes_changed();
                }
            }
            Object::PriorityClass(class) => {
                self.world.priority_classes.insert(name, (class.value, class.global_default));
                self.untold_jobs();
            }
            Object::Namespace(namespace) => {
                let labels = namespace.metadata.labels.clone().unwrap_or_default();
                let known = self.world.namespaces.get(&name).and_then(|n| n.metadata.labels.clone());
                let changed = known.is_none_or(|old| old != labels);
                self.world.namespaces.insert(Arc::clone(&name), namespace);
                if changed {
                    self.scheduler.set_namespace(&name, pairs(&labels));
                    self.stir();
                    self.mark_jobs_in(&name);
                    self.mark_pending_workloads(Some(&name));
                    self.hotswap_stale();
                }
            }
            Object::Node(node) => {
                let same = |old: &slim::Node| {
                    let mut old = old.clone();
                    old.metadata.resource_version.clone_from(&node.metadata.resource_version);
                    old == *node
                };
                // Nodes say every few seconds that they are there.
                let changed = !self.world.nodes.get(&name).is_some_and(|old| same(old));
                self.world.nodes.insert(Arc::clone(&name), node);
                if changed {
                    self.hotswap_stale();
                    self.terminating_node_changed(&name);
                    self.mark_stuck_on(&name);
                }
            }
            Object::Pod(pod) => self.observe_pod(&reference, &pod),
            Object::LimitRange(range) => {
                let namespace = Arc::clone(&reference.namespace);
                self.world.limit_ranges.entry(Arc::clone(&namespace)).or_default().insert(name, *range);
                self.limits_changed(&namespace);
            }
            Object::RuntimeClass(class) => {
                self.world.runtime_classes.insert(name, *class);
                self.mark_pending_workloads(None);
            }
            Object::ProvisioningRequestConfig(config) => {
                self.world.provisioning_configs.insert(name, config);
                self.configs_changed();
            }
            Object::ProvisioningRequest(request) => self.observe_request(&reference, request),
        }
        self.working_on = None;
    }

    fn observe_cluster_queue(&mut self, name: &Name, queue: Box<sluice_api::v1beta2::ClusterQueue>) {
        let spec = queues::cluster_queue(&queue);
        let known = self.world.cluster_queues.get(name);
        let changed = known.is_none_or(|old| queues::cluster_queue(old) != spec);
        let reference = ObjectRef::cluster(Kind::ClusterQueue, Arc::clone(name));
        if changed && let Some(old) = known {
            self.changes.note(self.now, &reference, &old.spec, &queue.spec);
        }
        self.world.cluster_queues.insert(Arc::clone(name), queue);
        self.dirty.objects.insert(reference);
        if changed {
            self.scheduler.set_cluster_queue(spec);
            self.quota_changed();
            self.mark_workloads_of_cluster_queue(name);
        }
    }

    fn observe_local_queue(&mut self, reference: ObjectRef, queue: Box<sluice_api::v1beta2::LocalQueue>) {
        let key = (Arc::clone(&reference.namespace), Arc::clone(&reference.name));
        let spec = queues::local_queue(&queue);
        let same_but_for_usage = |old: &sluice_api::v1beta2::LocalQueue| {
            let mut old = queues::local_queue(old);
            old.consumed.clone_from(&spec.consumed);
            old == spec
        };
        let known = self.world.local_queues.get(&key);
        let changed = known.is_none_or(|old| !same_but_for_usage(old));
        if changed && let Some(old) = known {
            self.changes.note(self.now, &reference, &old.spec, &queue.spec);
        }
        self.world.local_queues.insert(key.clone(), queue);
        self.dirty.objects.insert(reference);
        if changed {
            self.scheduler.set_local_queue(spec);
            self.stir();
            self.hotswap_stale();
            self.mark_workloads_of_queue(&key);
        }
    }

    fn observe_workload(&mut self, workload: slim::Workload) {
        let key = ingest::workload::key(&workload);
        let held = self.world.workloads.get(&key).is_some_and(holds);
        let foreign = self.is_foreign_reservation(&key, &workload);
        if let Some(entry) = self.world.workloads.get_mut(&key) {
            let same = entry.object.metadata.uid == workload.metadata.uid;
            let known = entry.object.metadata.resource_version.as_deref();
            match compare(known, workload.metadata.resource_version.as_deref()) {
                Seen::Same | Seen::Older if same => return,
                Seen::Older => return,
                _ if !same => self.drop_workload(&key),
                _ => entry.retry.seen_newer(),
            }
        }
        self.world.put_workload(&key, workload);
        if foreign && let Some(entry) = self.world.workloads.get_mut(&key) {
            entry.unchecked = true;
        }
        if held && !self.world.workloads.get(&key).is_some_and(holds) {
            self.hotswap_released(&key);
        }
        self.touch_workload(&key);
        self.hotswap_workload_changed(&key);
    }

    fn observe_job(&mut self, view: JobView) {
        let key = JobKey::of(&view.job);
        if !self.config.frameworks.contains(&view.job.kind) && !self.is_child(&view) {
            return self.drop_job(&key);
        }
        if let Some(entry) = self.world.jobs.get_mut(&key) {
            let same = entry.view.job.uid == view.job.uid;
            let has_more = view.pod_sets.iter().any(|p| p.template.is_some());
            match compare(Some(&entry.view.resource_version), Some(&view.resource_version)) {
                Seen::Older => return,
                Seen::Same if same && !has_more => return,
                _ if !same => self.drop_job(&key),
                _ => entry.retry.seen_newer(),
            }
        }
        self.mark_parent(&key, Some(&view));
        let uid = Arc::clone(&view.job.uid);
        self.world.put_job(Arc::new(view));
        self.dirty.jobs.extend(self.world.children.get(&uid).into_iter().flatten().cloned());
        self.dirty.jobs.insert(key);
    }

    /// Takes in that an object is gone.
    pub(crate) fn forget_object(&mut self, object: &ObjectRef, uid: Option<&str>) {
        if !self.may_forget(object, uid) {
            return;
        }
        let name = &object.name;
        self.aside.remove(object);
        self.statuses.remove(object);
        if matches!(object.kind, Kind::ClusterQueue | Kind::LocalQueue | Kind::Cohort | Kind::ResourceFlavor)
        {
            self.changes.note_deletion(self.now, object);
        }
        match object.kind {
            Kind::Workload => {
                let key = WorkloadKey::new(Arc::clone(&object.namespace), Arc::clone(name));
                let same = |e: &crate::world::WorkloadEntry| uid.is_none_or(|u| *e.uid() == *u);
                if self.world.workloads.get(&key).is_some_and(same) {
                    self.drop_workload(&key);
                }
            }
            Kind::Job(kind) => {
                let key = JobKey { kind, namespace: Arc::clone(&object.namespace), name: Arc::clone(name) };
                let same = |e: &crate::world::JobEntry| uid.is_none_or(|u| *e.view.job.uid == *u);
                if self.world.jobs.get(&key).is_some_and(same) {
                    self.drop_job(&key);
                }
            }
            Kind::ResourceFlavor => {
                self.world.flavors.remove(name);
                self.scheduler.remove_flavor(name);
                self.quota_changed();
            }
            Kind::ClusterQueue => {
                self.world.cluster_queues.remove(name);
                self.scheduler.remove_cluster_queue(name);
                self.active.remove(name);
                self.quota_changed();
                self.mark_workloads_of_cluster_queue(name);
            }
            Kind::LocalQueue => {
                let key = (Arc::clone(&object.namespace), Arc::clone(name));
                self.world.local_queues.remove(&key);
                self.scheduler.remove_local_queue(&key.0, &key.1);
                self.stir();
                self.hotswap_stale();
                self.mark_workloads_of_queue(&key);
            }
            Kind::Cohort => {
                self.world.cohorts.remove(name);
                self.scheduler.remove_cohort(name);
                self.quota_changed();
            }
            Kind::AdmissionCheck => {
                self.world.checks.remove(name);
                self.scheduler.remove_check(name);
                self.quota_changed();
            }
            Kind::Topology => self.forget_topology(name),
            Kind::WorkloadPriorityClass => {
                self.world.workload_priority_classes.remove(name);
            }
            Kind::PriorityClass => {
                self.world.priority_classes.remove(name);
            }
            Kind::Namespace => {
                self.world.namespaces.remove(name);
                self.scheduler.remove_namespace(name);
            }
            Kind::Node => {
                self.world.nodes.remove(name);
                self.hotswap_stale();
                self.mark_stuck_on(name);
            }
            Kind::Pod => self.forget_pod(object, uid),
            Kind::LimitRange => {
                if let Some(ranges) = self.world.limit_ranges.get_mut(&object.namespace) {
                    ranges.remove(name);
                }
                self.limits_changed(&object.namespace);
            }
            Kind::RuntimeClass => {
                self.world.runtime_classes.remove(name);
                self.mark_pending_workloads(None);
            }
            Kind::ProvisioningRequestConfig => {
                self.world.provisioning_configs.remove(name);
                self.configs_changed();
            }
            Kind::ProvisioningRequest => self.forget_request(object),
            // Never watched.
            Kind::PodTemplate => {}
        }
    }

    fn drop_workload(&mut self, key: &WorkloadKey) {
        let Some(entry) = self.world.take_workload(key) else { return };
        if let Some(job) = self.world.job_of(&entry) {
            self.dirty.jobs.insert(job);
        }
        self.dirty.jobs.extend(self.world.awaiting.get(key).into_iter().flatten().cloned());
        self.made.forget(key);
        self.hotswap_workload_changed(key);
        self.scheduler.remove_workload(key, ingest::time(self.now));
        self.stir();
    }

    fn drop_job(&mut self, key: &JobKey) {
        self.mark_parent(key, None);
        let Some(entry) = self.world.take_job(key) else { return };
        let uid = &entry.view.job.uid;
        self.dirty.workloads.extend(self.world.owned(uid));
        self.dirty.jobs.extend(self.world.children.get(uid).into_iter().flatten().cloned());
    }

    /// Leaves an object out until it changes.
    pub(crate) fn set_aside(&mut self, object: &ObjectRef, why: String) {
        let version = match object.kind {
            Kind::Workload => {
                let key = WorkloadKey::new(Arc::clone(&object.namespace), Arc::clone(&object.name));
                self.world.workloads.get(&key).and_then(|e| e.object.metadata.resource_version.clone())
            }
            Kind::Job(kind) => {
                let (namespace, name) = (Arc::clone(&object.namespace), Arc::clone(&object.name));
                let entry = self.world.jobs.get(&JobKey { kind, namespace, name });
                entry.map(|e| e.view.resource_version.clone())
            }
            _ => None,
        };
        self.forget_object(object, None);
        let note = format!("Set aside until it changes, because it could not be handled: {why}");
        let uid: Arc<str> = "".into();
        self.outbox.push(event(object, &uid, EventType::Warning, "SetAside", note, crate::REPORTER_WORKLOAD));
        self.outbox.push(log(Level::Error, "object set aside", &[("object", object), ("why", &why)]));
        self.aside.insert(object.clone(), (version, why));
    }

    /// Whether the object is set aside, and is still the version that was.
    fn is_aside(&mut self, reference: &ObjectRef, object: &Object) -> bool {
        let Some((version, _)) = self.aside.get_mut(reference) else { return false };
        let seen = match object {
            Object::Job(view) => Some(view.resource_version.clone()),
            Object::Workload(workload) => workload.metadata.resource_version.clone(),
            _ => None,
        };
        match version {
            None => {
                *version = seen;
                true
            }
            Some(_) if *version == seen => true,
            Some(_) => {
                self.aside.remove(reference);
                false
            }
        }
    }

    /// A test's way to make one object poisonous.
    fn inject_panic(&self, object: &Object) {
        if !self.config.inject_panics {
            return;
        }
        let poisonous = match object {
            Object::Job(view) => {
                view.labels.contains_key(INJECT_PANIC) || view.annotations.contains_key(INJECT_PANIC)
            }
            Object::Workload(w) => {
                w.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(INJECT_PANIC))
            }
            _ => false,
        };
        assert!(!poisonous, "a panic was injected by {INJECT_PANIC}");
    }

    /// Marks a Workload, and the job that it belongs to.
    pub(crate) fn touch_workload(&mut self, key: &WorkloadKey) {
        if let Some(job) = self.world.workloads.get(key).and_then(|e| self.world.job_of(e)) {
            self.dirty.jobs.insert(job);
        }
        self.dirty.jobs.extend(self.world.awaiting.get(key).into_iter().flatten().cloned());
        self.dirty.workloads.insert(key.clone());
    }

    /// Quota, flavors or checks changed: any queue's status may have.
    pub(crate) fn quota_changed(&mut self) {
        self.stir();
        self.hotswap_stale();
        self.mark_all_statuses();
    }

    fn limits_changed(&mut self, namespace: &Name) {
        let ranges = self.world.limit_ranges.get(namespace).into_iter().flatten().map(|(_, r)| r);
        let summary = LimitSummary::of(ranges);
        self.world.limits.insert(Arc::clone(namespace), summary);
        self.mark_pending_workloads(Some(namespace));
        self.hotswap_stale();
    }

    /// Marks the Workloads that wait, in one namespace or all.
    fn mark_pending_workloads(&mut self, namespace: Option<&Name>) {
        let waiting = self.world.workloads.iter().filter(|(key, entry)| {
            namespace.is_none_or(|ns| key.namespace == *ns) && entry.status().admission.is_none()
        });
        self.dirty.workloads.extend(waiting.map(|(key, _)| key.clone()));
    }

    /// Marks the Workloads of one LocalQueue.
    pub(crate) fn mark_workloads_of_queue(&mut self, queue: &(Name, Name)) {
        self.dirty.workloads.extend(self.world.by_queue.get(queue).into_iter().flatten().cloned());
        let reference = ObjectRef::namespaced(Kind::LocalQueue, Arc::clone(&queue.0), Arc::clone(&queue.1));
        self.dirty.objects.insert(reference);
    }

    /// Marks the Workloads of all LocalQueues that point to a ClusterQueue.
    pub(crate) fn mark_workloads_of_cluster_queue(&mut self, name: &Name) {
        for queue in self.world.queues_into(name) {
            self.mark_workloads_of_queue(&queue);
        }
    }

    fn mark_jobs_in(&mut self, namespace: &Name) {
        let jobs = self.world.jobs.keys().filter(|k| k.namespace == *namespace);
        self.dirty.jobs.extend(jobs.cloned());
    }

    fn priority_classes_changed(&mut self) {
        let referring =
            self.world.workloads.iter().filter(|(_, e)| e.object.spec.priority_class_ref.is_some());
        self.dirty.workloads.extend(referring.map(|(key, _)| key.clone()));
        self.untold_jobs();
    }

    /// Marks the jobs that something kept from getting a Workload.
    fn untold_jobs(&mut self) {
        let troubled = self.world.jobs.iter().filter(|(_, e)| e.told.is_some());
        self.dirty.jobs.extend(troubled.map(|(key, _)| key.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_grow_where_they_are_numbers() {
        assert_eq!(compare(Some("9"), Some("10")), Seen::Newer);
        assert_eq!(compare(Some("10"), Some("9")), Seen::Older);
        assert_eq!(compare(Some("a"), Some("b")), Seen::Newer);
        assert_eq!(compare(Some("a"), Some("a")), Seen::Same);
    }
}
