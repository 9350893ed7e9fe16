//! Handles what was seen: objects, and deletions.

mod local_queue;
mod slim_job;

use std::sync::Arc;

use sluice_api::gates::Gate;
use sluice_api::job::JobView;
use sluice_api::v1beta2::{AdmissionCheck, ClusterQueue};
use sluice_api::{labels, slim};
use sluice_core::{Name, WorkloadKey};

use crate::engine::Engine;
use crate::hotswap::snapshot::{released, takes_the_same};
use crate::ingest::scheduling::pairs;
use crate::ingest::{self, queues};
use crate::input::{Kind, Object, ObjectRef};
use crate::lifecycle::seen_by_controller::SeenByController;
use crate::version::{Seen, compare};
use crate::world::JobKey;

/// The annotation (of jobs: label) that makes the engine panic, where the configuration allows it.
const INJECT_PANIC: &str = "sluice.dev/inject-panic";

impl Engine {
    /// Takes the current version of an object.
    pub(crate) fn observe_object(&mut self, object: Object) {
        let reference = object.object_ref();
        let Some(object) = self.unless_aside(&reference, object) else { return };
        self.working_on = Some(reference.clone());
        self.inject_panic(&object);
        let name = Arc::clone(&reference.name);
        match object {
            Object::Workload(workload) => self.observe_workload(*workload),
            Object::Job(view) => self.observe_job(*view),
            Object::Template(template) => self.observe_template(*template),
            Object::QueuedPod(member) => self.observe_member(*member),
            Object::ResourceFlavor(flavor) => {
                let spec = self.flavor_spec(&flavor);
                let known = self.world.flavors.get(&name);
                let changed = known.is_none_or(|old| self.flavor_spec(old) != spec);
                if changed && let Some(old) = known {
                    self.changes.note(self.now, &reference, &old.spec, &flavor.spec);
                }
                let topology = flavor.spec.topology_name.clone();
                self.note_flavor_labels(&name, Some(&flavor));
                let old = self.world.flavors.insert(name, flavor);
                if changed {
                    self.mark_topology(topology.as_deref());
                    self.mark_topology(old.as_ref().and_then(|old| old.spec.topology_name.as_deref()));
                    self.scheduler.set_flavor(spec);
                    self.topology_may_be_used();
                    self.quota_changed();
                }
                self.dirty.statuses.insert(reference);
            }
            Object::ClusterQueue(queue) => self.observe_cluster_queue(&name, queue),
            Object::LocalQueue(queue) => self.observe_local_queue(reference, queue),
            Object::Cohort(cohort) => {
                self.observe_custom_labels(&reference, &cohort.metadata);
                self.deleted_cohorts.remove(&name);
                let spec = queues::cohort(&cohort);
                let known = self.world.cohorts.get(&name);
                let changed = known.is_none_or(|old| queues::cohort(old) != spec);
                if changed && let Some(old) = known {
                    self.changes.note(self.now, &reference, &old.spec, &cohort.spec);
                }
                let parent = cohort.spec.parent_name.as_deref();
                if known.is_none_or(|old| old.spec.parent_name.as_deref() != parent) {
                    self.deleted_cohorts.remove(parent.unwrap_or_default());
                }
                if changed {
                    self.mark_flavors_of(&cohort.spec.resource_groups);
                }
                let old = self.world.cohorts.insert(name, cohort);
                if changed {
                    self.mark_flavors_of(old.as_ref().map_or(&[], |old| &old.spec.resource_groups));
                    self.scheduler.set_cohort(spec);
                    self.quota_changed();
                }
                self.dirty.statuses.insert(reference);
            }
            Object::AdmissionCheck(check) => {
                self.scheduler.set_check(&name, queues::check(&check));
                let same = |old: &AdmissionCheck| old.spec == check.spec && old.status == check.status;
                let changed = !self.world.checks.get(&name).is_some_and(|old| same(old));
                self.world.checks.insert(Arc::clone(&name), check);
                if changed {
                    self.quota_changed();
                    self.mark_checked_workloads(&name);
                }
                self.dirty.statuses.insert(reference);
            }
            Object::Topology(topology) => self.observe_topology(reference, topology),
            Object::WorkloadPriorityClass(class) => {
                let old = self.world.workload_priority_classes.insert(Arc::clone(&name), class.value);
                if old != Some(class.value) {
                    self.priority_class_changed(&name);
                }
            }
            Object::PriorityClass(class) => {
                let value = (class.value, class.global_default);
                if self.world.priority_classes.insert(name, value) != Some(value) {
                    self.recheck_reported_jobs();
                }
            }
            Object::Namespace(namespace) => {
                let labels = namespace.metadata.labels.clone().unwrap_or_default();
                let known = self.world.namespaces.get(&name);
                let changed =
                    known.is_none_or(|old| old.metadata.labels.clone().unwrap_or_default() != labels);
                self.world.namespaces.insert(Arc::clone(&name), namespace);
                if changed {
                    self.scheduler.set_namespace(&name, pairs(&labels));
                    self.request_cycle();
                    self.mark_jobs_in(&name);
                    self.mark_pending_workloads(&name);
                    self.hotswap_stale();
                }
            }
            Object::Node(node) => self.observe_node(&name, node),
            Object::Pod(pod) => self.observe_pod(&reference, &pod),
            Object::JobPod(pod) => self.observe_job_pod(&reference, &pod),
            Object::LimitRange(range) => {
                let namespace = Arc::clone(&reference.namespace);
                self.world.limit_ranges.entry(Arc::clone(&namespace)).or_default().insert(name, *range);
                self.limits_changed(&namespace);
            }
            Object::RuntimeClass(class) => self.observe_runtime_class(&name, *class),
            Object::ProvisioningRequestConfig(config) => {
                let known = self.world.provisioning_configs.get(&name);
                let changed = known.is_none_or(|known| known.spec != config.spec);
                self.world.provisioning_configs.insert(Arc::clone(&name), config);
                if changed {
                    self.config_changed(&name);
                }
            }
            Object::ProvisioningRequest(request) => self.observe_request(&reference, request),
        }
        self.working_on = None;
    }

    fn observe_cluster_queue(&mut self, name: &Name, queue: Box<ClusterQueue>) {
        let spec = queues::cluster_queue(&queue);
        let known = self.world.cluster_queues.get(name);
        let changed = known.is_none_or(|old| queues::cluster_queue(old) != spec);
        let reference = ObjectRef::cluster(Kind::ClusterQueue, Arc::clone(name));
        if changed && let Some(old) = known {
            self.changes.note(self.now, &reference, &old.spec, &queue.spec);
        }
        let cohort = queue.spec.cohort_name.as_deref();
        if known.is_none_or(|old| old.spec.cohort_name.as_deref() != cohort) {
            self.deleted_cohorts.remove(cohort.unwrap_or_default());
        }
        let reclaims = |of: &ClusterQueue| of.spec.preemption.reclaim_out_of_cohort.clone();
        let acts_otherwise = known.is_some_and(|old| reclaims(old) != reclaims(&queue));
        self.observe_custom_labels(&reference, &queue.metadata);
        if changed {
            self.journal_quota(name, Some(&queue));
            self.mark_named_by(&queue.spec);
        }
        let old = self.world.cluster_queues.insert(Arc::clone(name), queue);
        self.dirty.statuses.insert(reference.clone());
        if changed {
            self.queue_moved(&reference);
            if let Some(old) = old {
                self.mark_named_by(&old.spec);
            }
            self.scheduler.set_cluster_queue(spec);
            self.quota_changed();
            self.mark_workloads_of_cluster_queue(name);
        } else if acts_otherwise {
            self.hotswap_stale();
            self.mark_workloads_of_cluster_queue(name);
        }
    }

    fn observe_workload(&mut self, workload: slim::Workload) {
        let key = ingest::workload::key(&workload);
        let known = self.world.workloads.get(&key).map(|entry| &entry.object.metadata);
        let seen = compare(
            known.and_then(|known| known.resource_version.as_deref()),
            workload.metadata.resource_version.as_deref(),
        );
        let another = known.is_some_and(|known| known.uid != workload.metadata.uid);
        if seen == Seen::Older || seen == Seen::Same && !another {
            return;
        }
        // By what was written: the watch may show a release before our own write of it is answered, which we assume until then.
        let before = self.world.workloads.get(&key).map(|entry| &entry.object.status);
        let released = before.is_some_and(|before| released(before, &workload.status));
        let known = self.world.workloads.get(&key).map(|entry| &entry.object);
        let same_room = known.is_some_and(|known| takes_the_same(known, &workload));
        self.note_other_looks(&key, &workload);
        let foreign = self.is_foreign_reservation(&key, &workload);
        if another {
            self.drop_workload(&key);
        } else if let Some(entry) = self.world.workloads.get_mut(&key) {
            entry.seen_newer();
        }
        self.measure_change(&key, &workload);
        self.journal_seen(&key, &workload);
        self.attempt_seen(&key, &workload);
        self.forget_outdated_decision(&key, &workload);
        let wrong = self.world.workloads.get(&key).and_then(|entry| entry.wrong_nodes.clone());
        let is_new = !self.world.workloads.contains_key(&key);
        self.world.put_workload(&key, workload);
        if is_new {
            self.workload_is_there(&key);
        }
        self.settle_lost_answer(&key);
        self.report_wrong_nodes(&key, wrong.as_deref());
        if foreign && let Some(entry) = self.world.workloads.get_mut(&key) {
            entry.unchecked = true;
        }
        if released {
            self.hotswap_released(&key);
        }
        self.touch_workload(&key);
        self.hotswap_workload_changed(&key, same_room);
    }

    fn observe_job(&mut self, view: JobView) {
        let mut view = self.with_template(view);
        // Some kinds name none, whatever their labels are.
        if view.prebuilt_workload.is_some() && !self.config.on(Gate::WorkloadIdentifierAnnotations) {
            // Only the label counts.
            let label = view.labels.get(labels::PREBUILT_WORKLOAD_NAME).filter(|name| !name.is_empty());
            view.prebuilt_workload = label.cloned();
        }
        self.slim_job(&mut view);
        let key = JobKey::of(&view.job);
        if self.config.external.contains(&key.kind) {
            self.observe_external(&view);
        }
        if !self.config.frameworks.contains(&view.job.kind) && !self.is_child(&view) {
            return self.drop_job(&key);
        }
        if key.kind.has_groups() {
            return self.observe_set(view);
        }
        if let Some(entry) = self.world.jobs.get_mut(&key) {
            let same = entry.view.job.uid == view.job.uid;
            let has_more = entry.view.slim || view.pod_sets.iter().any(|p| p.template.is_some());
            match compare(Some(&entry.view.resource_version), Some(&view.resource_version)) {
                Seen::Older => return,
                Seen::Same if same && !has_more => return,
                _ if !same => self.drop_job(&key),
                _ => entry.retry.seen_newer(),
            }
        }
        self.mark_parent(&key, Some(&view));
        let uid = Arc::clone(&view.job.uid);
        let before = self.world.jobs.get(&key).map(|entry| (entry.seen, &*entry.view));
        let is_new = before.is_none();
        let spares_others = before.is_some_and(|(_, old)| old.spare_failures != view.spare_failures);
        let seen = SeenByController::next(before, &view, self.now);
        if key.kind.gathers_pods() {
            self.look_at_leaving(&key);
            self.world.put_parent(&key, Arc::new(view));
            self.refresh_pod_job(&key);
        } else {
            self.world.put_job(Arc::new(view));
        }
        if let Some(entry) = self.world.jobs.get_mut(&key) {
            entry.seen = seen;
        }
        if is_new {
            self.hotswap_job_came(&key);
        }
        if spares_others {
            self.spare_failures_changed(&uid);
        }
        self.dirty.jobs.extend(self.world.children.get(&uid).into_iter().flatten().cloned());
        self.dirty.jobs.insert(key);
    }

    /// Takes in that an object is gone.
    pub(crate) fn forget_object(&mut self, object: &ObjectRef, uid: Option<&str>) {
        if !self.may_forget(object, uid) {
            return;
        }
        let name = &object.name;
        self.aside_gone(object);
        self.statuses.remove(object);
        if matches!(object.kind, Kind::ClusterQueue | Kind::LocalQueue | Kind::Cohort | Kind::ResourceFlavor)
        {
            self.changes.note_deletion(self.now, object);
        }
        self.forget_series(object);
        match object.kind {
            Kind::Workload => {
                let key = WorkloadKey::new(Arc::clone(&object.namespace), Arc::clone(name));
                let same = |e: &crate::world::WorkloadEntry| uid.is_none_or(|u| *e.uid() == *u);
                if self.world.workloads.get(&key).is_some_and(same) {
                    self.outbox.gone(object);
                    self.drop_workload(&key);
                }
            }
            Kind::Job(kind) if kind.integration().of_pods => self.forget_member(object, uid),
            Kind::Job(kind) if kind.has_groups() => self.forget_set(object, uid),
            Kind::Job(_) => self.forget_job(object, uid),
            Kind::ResourceFlavor => {
                self.note_flavor_labels(name, None);
                let old = self.world.flavors.remove(name);
                self.mark_topology(old.as_ref().and_then(|old| old.spec.topology_name.as_deref()));
                self.scheduler.remove_flavor(name);
                self.topology_may_be_used();
                self.quota_changed();
            }
            Kind::ClusterQueue => {
                self.journal_quota(&object.name, None);
                if let Some(old) = self.world.cluster_queues.remove(name) {
                    self.mark_named_by(&old.spec);
                }
                self.queue_moved(object);
                self.scheduler.remove_cluster_queue(name);
                self.active.remove(name);
                self.quota_changed();
                self.mark_workloads_of_cluster_queue(name);
            }
            Kind::LocalQueue => self.forget_local_queue(object),
            Kind::Cohort => {
                if let Some(old) = self.world.cohorts.remove(name) {
                    self.mark_flavors_of(&old.spec.resource_groups);
                }
                self.note_deleted_cohort(name);
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
            Kind::Node => self.forget_node(name),
            Kind::Pod => self.forget_pod(object, uid),
            Kind::JobPod => self.forget_job_pod(object, uid),
            Kind::LimitRange => {
                if let Some(ranges) = self.world.limit_ranges.get_mut(&object.namespace) {
                    ranges.remove(name);
                }
                self.limits_changed(&object.namespace);
            }
            Kind::RuntimeClass => {
                if self.world.runtime_classes.remove(name).is_some() {
                    self.runtime_class_changed(name);
                }
            }
            Kind::ProvisioningRequestConfig => {
                self.world.provisioning_configs.remove(name);
                self.config_changed(name);
            }
            Kind::ProvisioningRequest => self.forget_request(object),
            Kind::Template(_) => {
                if let Some(template) = object.template() {
                    self.forget_template(&template);
                }
            }
            // Never watched.
            Kind::PodTemplate => {}
        }
    }

    fn drop_workload(&mut self, key: &WorkloadKey) {
        self.journal_deleted(key);
        self.attempt_deleted(key);
        self.mark_aside(key);
        let Some(entry) = self.world.take_workload(key) else { return };
        if let Some(parent) = self.external_owner(&entry.object) {
            self.mark_below(&parent);
        }
        self.forget_waiting(key, &entry);
        if let Some(job) = self.world.job_of(&entry) {
            self.mark_slices(&entry);
            self.world.own_nothing(&job);
            self.dirty.jobs.insert(job);
        } else {
            // It blocked a group of that name.
            self.dirty.jobs.extend(self.world.group_named(key));
        }
        self.dirty.jobs.extend(self.world.awaiting.get(key).into_iter().flatten().cloned());
        self.made.forget(key);
        self.left.forget(key);
        self.hotswap_workload_changed(key, false);
        self.scheduler.remove_workload(key, ingest::time(self.now));
        self.nodes_of_workload_changed(key);
        self.request_cycle();
    }

    /// Lets a test make one object fail.
    fn inject_panic(&self, object: &Object) {
        if !self.config.inject_panics {
            return;
        }
        let poisonous = match object {
            Object::Job(view) => {
                view.labels.contains_key(INJECT_PANIC) || view.annotations.contains_key(INJECT_PANIC)
            }
            Object::QueuedPod(member) => member.pod_set.as_ref().is_ok_and(|pod_set| {
                pod_set.scheduling.labels.contains_key(INJECT_PANIC)
                    || pod_set.scheduling.annotations.contains_key(INJECT_PANIC)
            }),
            Object::Workload(w) => {
                w.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(INJECT_PANIC))
            }
            _ => false,
        };
        assert!(!poisonous, "a panic was injected by {INJECT_PANIC}");
    }
}
