//! Dependencies: which Workloads, jobs and statuses are looked at again when something else changed.
//!
//! Until the initial state is complete, Workloads and jobs are not marked: all of them are looked at then.

use std::sync::Arc;

use sluice_api::conditions::WorkloadCondition as Type;
use sluice_api::slim::RuntimeClass;
use sluice_api::v1beta2::{ClusterQueueSpec, ResourceGroup};
use sluice_core::{Name, WorkloadKey};

use crate::engine::Engine;
use crate::ingest::limits::LimitSummary;
use crate::ingest::workload::is;
use crate::input::{Kind, ObjectRef};

/// Whether the API server adds the same to the pods of one RuntimeClass as to those of another.
fn adds_the_same(one: &RuntimeClass, other: &RuntimeClass) -> bool {
    one.overhead == other.overhead
        && one.node_selector == other.node_selector
        && one.tolerations == other.tolerations
}

impl Engine {
    /// Marks a Workload, and the job that it belongs to.
    pub(crate) fn touch_workload(&mut self, key: &WorkloadKey) {
        if let Some(entry) = self.world.workloads.get(key) {
            self.dirty.jobs.extend(self.world.job_of(entry));
            if let Some(parent) = self.external_owner(&entry.object) {
                self.mark_below(&parent);
            }
        }
        self.dirty.jobs.extend(self.world.awaiting.get(key).into_iter().flatten().cloned());
        self.dirty.workloads.insert(key.clone());
    }

    /// Quota, flavors or checks changed. Whose figures that changes the core says.
    pub(crate) fn quota_changed(&mut self) {
        self.request_cycle();
        self.hotswap_stale();
    }

    /// Marks the objects that a ClusterQueue names: their finalizers depend on whether they are in use.
    pub(crate) fn mark_named_by(&mut self, spec: &ClusterQueueSpec) {
        self.mark_flavors_of(&spec.resource_groups);
        for rule in spec.admission_checks_strategy.iter().flat_map(|strategy| &strategy.admission_checks) {
            self.mark_if_there(Kind::AdmissionCheck, &rule.name);
        }
    }

    /// Marks the flavors that a ClusterQueue or Cohort names.
    pub(crate) fn mark_flavors_of(&mut self, groups: &[ResourceGroup]) {
        for flavor in groups.iter().flat_map(|group| &group.flavors) {
            self.mark_if_there(Kind::ResourceFlavor, &flavor.name);
        }
    }

    /// Marks the Topology that a flavor names.
    pub(crate) fn mark_topology(&mut self, name: Option<&str>) {
        if let Some(name) = name {
            self.mark_if_there(Kind::Topology, name);
        }
    }

    fn mark_if_there(&mut self, kind: Kind, name: &str) {
        let object = ObjectRef::cluster(kind, name);
        if self.world.has(&object) {
            self.dirty.statuses.insert(object);
        }
    }

    /// A LimitRange of a namespace was created, changed or deleted. The Workloads that wait there are looked at again if that changes the limits.
    pub(crate) fn limits_changed(&mut self, namespace: &Name) {
        let ranges = self.world.limit_ranges.get(namespace).into_iter().flatten().map(|(_, r)| r);
        let summary = LimitSummary::of(ranges);
        if *self.world.around(namespace, &self.config).limits == summary {
            return;
        }
        self.world.limits.insert(Arc::clone(namespace), summary);
        self.world.measure_pods_again();
        self.mark_pending_workloads(namespace);
        self.hotswap_stale();
    }

    /// Takes in a RuntimeClass. A change of its metadata alone concerns no Workload.
    pub(crate) fn observe_runtime_class(&mut self, name: &Name, class: RuntimeClass) {
        let known = self.world.runtime_classes.get(name);
        let changed = known.is_none_or(|known| !adds_the_same(known, &class));
        self.world.runtime_classes.insert(Arc::clone(name), class);
        if changed {
            self.runtime_class_changed(name);
        }
    }

    /// A RuntimeClass was created, changed or deleted: Workloads whose pods name it are looked at again. Those that wait may have other requests, and
    /// those that have nodes may need others.
    pub(crate) fn runtime_class_changed(&mut self, name: &Name) {
        self.world.measure_pods_again();
        self.hotswap_stale();
        if !self.synced {
            return;
        }
        let concerned = |entry: &crate::world::WorkloadEntry| {
            let class =
                |set: &sluice_api::slim::PodSet| set.template.runtime_class_name.as_deref() == Some(name);
            !is(entry.status(), Type::Finished) && entry.object.spec.pod_sets.iter().any(class)
        };
        let concerned = self.world.workloads.iter().filter(|(_, entry)| concerned(entry));
        self.dirty.workloads.extend(concerned.map(|(key, _)| key.clone()));
    }

    /// Marks the Workloads of a namespace that wait.
    pub(crate) fn mark_pending_workloads(&mut self, namespace: &Name) {
        if !self.synced {
            return;
        }
        let all = self.world.workloads_in(namespace);
        let waiting = all.filter(|(_, entry)| entry.status().admission.is_none());
        self.dirty.workloads.extend(waiting.map(|(key, _)| key.clone()));
    }

    /// Marks one LocalQueue and its Workloads.
    pub(crate) fn mark_workloads_of_queue(&mut self, queue: &(Name, Name)) {
        if !self.synced {
            return;
        }
        self.dirty.workloads.extend(self.world.by_queue.get(queue).into_iter().flatten().cloned());
        let reference = ObjectRef::namespaced(Kind::LocalQueue, Arc::clone(&queue.0), Arc::clone(&queue.1));
        self.dirty.statuses.insert(reference);
    }

    /// Marks all LocalQueues of a ClusterQueue, and their Workloads; and the Workloads that hold its quota although their LocalQueue was deleted, or
    /// replaced by another of that name.
    pub(crate) fn mark_workloads_of_cluster_queue(&mut self, name: &Name) {
        if !self.synced {
            return;
        }
        let queues: Vec<_> = self.world.queues_into(name).cloned().collect();
        for queue in queues {
            self.mark_workloads_of_queue(&queue);
        }
        self.dirty.workloads.extend(self.scheduler.holders(name).cloned());
    }

    /// Marks the jobs of a namespace.
    pub(crate) fn mark_jobs_in(&mut self, namespace: &Name) {
        if self.synced {
            self.dirty.jobs.extend(self.world.jobs_in(namespace).cloned());
        }
    }

    /// A WorkloadPriorityClass changed.
    pub(crate) fn priority_class_changed(&mut self, name: &str) {
        if !self.synced {
            return;
        }
        let refers = |entry: &crate::world::WorkloadEntry| {
            entry.object.spec.priority_class_ref.as_ref().is_some_and(|class| class.name == name)
        };
        let referring = self.world.workloads.iter().filter(|(_, entry)| refers(entry));
        self.dirty.workloads.extend(referring.map(|(key, _)| key.clone()));
        self.recheck_reported_jobs();
    }

    /// Marks the jobs that something kept from getting a Workload.
    pub(crate) fn recheck_reported_jobs(&mut self) {
        if !self.synced {
            return;
        }
        let troubled = self.world.jobs.iter().filter(|(_, e)| e.reported.is_some());
        self.dirty.jobs.extend(troubled.map(|(key, _)| key.clone()));
    }
}
