//! The Workload of a job, as it is created or brought up to date (docs/reference/06-algorithm.md 6.19 and 6.20).

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use sluice_api::conditions::WorkloadCondition as Type;
use sluice_api::gates::Gate;
use sluice_api::job::JobView;
use sluice_api::names::{MAX_SHORT_WORKLOAD_NAME, MAX_WORKLOAD_NAME, workload_name};
use sluice_api::{labels, slim, v1beta2};
use sluice_core::{Name, WorkloadKey};

use super::infos::workload_labels;
use super::places::topology_request;
use super::priority::Priority;
use super::slices::{first_slice, usable};
use crate::effect::{EffectId, Level, Purpose, SeenVersion, UpdatedSpec, WorkloadUpdate, Write};
use crate::engine::Engine;
use crate::ingest::workload::is;
use crate::input::{Kind, ObjectRef};
use crate::metrics;
use crate::outbox::{normal, observe_with};
use crate::world::{JobKey, workload_ref};

/// Whether a Workload gets the annotation of its job with this key.
pub(crate) fn is_inherited(key: &str, copied: &[String]) -> bool {
    key.starts_with(labels::PROVISIONING_REQUEST_PREFIX) || copied.iter().any(|copied| copied == key)
}

/// The annotations of a Workload that come from its job.
fn inherited_annotations(view: &JobView, gated: bool, keys: &[String]) -> BTreeMap<String, String> {
    let mut annotations: BTreeMap<_, _> = view
        .annotations
        .iter()
        .filter(|(key, _)| is_inherited(key, keys))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if let Some(gates) = view.admission_gated_by.as_ref().filter(|g| gated && !g.is_empty()) {
        annotations.insert(labels::ADMISSION_GATED_BY.to_owned(), gates.clone());
    }
    annotations
}

/// The reference that makes a job the controller of its Workload.
pub(crate) fn owner_reference(view: &JobView) -> OwnerReference {
    OwnerReference {
        api_version: view.job.kind.api_version().to_owned(),
        kind: view.job.kind.kind().to_owned(),
        name: view.job.name.to_string(),
        uid: view.job.object_uid().to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// Takes what a start added to a template away again.
fn restore(template: &mut PodTemplateSpec, known: &slim::PodTemplate) {
    let some = |map: &BTreeMap<String, String>| Some(map.clone()).filter(|map| !map.is_empty());
    let metadata = template.metadata.get_or_insert_default();
    metadata.labels = some(&known.labels);
    metadata.annotations = some(&known.annotations);
    if *metadata == ObjectMeta::default() {
        template.metadata = None;
    }
    if let Some(spec) = &mut template.spec {
        spec.node_selector = some(&known.node_selector);
        spec.tolerations = Some(known.tolerations.clone()).filter(|list| !list.is_empty());
        spec.scheduling_gates = Some(known.scheduling_gates.clone()).filter(|list| !list.is_empty());
        spec.affinity = known.affinity.as_deref().cloned();
    }
}

impl Engine {
    /// The pod sets of a job's Workload, or `None` while a template is missing.
    fn workload_pod_sets(&self, view: &JobView) -> Option<Vec<v1beta2::PodSet>> {
        let partial = self.config.on(Gate::PartialAdmission) && !self.is_elastic(view);
        view.pod_sets
            .iter()
            .map(|set| {
                Some(v1beta2::PodSet {
                    name: set.name.clone(),
                    // A Workload that is still to be written is small: those of all groups of an object have one template.
                    template: Arc::clone(set.template.as_ref()?),
                    count: set.count,
                    min_count: set.min_count.filter(|_| partial),
                    topology_request: topology_request(set, &self.config),
                })
            })
            .collect()
    }

    /// The annotations of a slice of an elastic job. The pod sets of a slice that replaces another lack what the start of the job has added to them,
    /// and pods that will not come any more.
    fn annotate_slice(
        &self,
        view: &JobView,
        workload: &mut v1beta2::Workload,
        replaces: Option<&WorkloadKey>,
        sets: &mut [v1beta2::PodSet],
    ) {
        let mut first = workload.metadata.name.clone().unwrap_or_default();
        let annotations = workload.metadata.annotations.get_or_insert_default();
        if let Some((old, entry)) = replaces.and_then(|old| Some((old, self.world.workloads.get(old)?))) {
            first = first_slice(&old.name, entry);
            annotations.insert(labels::WORKLOAD_SLICE_REPLACEMENT_FOR.to_owned(), old.to_string());
            for (set, known) in sets.iter_mut().zip(&entry.object.spec.pod_sets) {
                restore(Arc::make_mut(&mut set.template), &known.template);
                set.topology_request = known.topology_request.as_deref().cloned();
            }
            for (set, of_job) in sets.iter_mut().zip(&view.pod_sets) {
                set.count = usable(view, of_job);
            }
        }
        annotations.insert(labels::ELASTIC_JOB.to_owned(), "true".to_owned());
        annotations.insert(labels::WORKLOAD_SLICE_NAME.to_owned(), first);
    }

    /// The name of a new slice: not that of an unfinished one. A part that is made again begins its generations again.
    fn free_slice_name(
        &self,
        key: &JobKey,
        view: &JobView,
        named: impl Fn(Option<&str>) -> String,
    ) -> String {
        let generation = self.slice_generation(key, view);
        let is_taken = |name: &String| {
            let key = WorkloadKey::new(Arc::clone(&view.job.namespace), name.as_str());
            self.world.workloads.get(&key).is_some_and(|entry| {
                entry.controller_uid() != Some(&*view.job.uid) || !is(entry.status(), Type::Finished)
            })
        };
        let more = (1_u32..).map(|number| format!("{generation}.{number}"));
        let mut all = std::iter::once(generation.clone()).chain(more).map(|extra| named(Some(&extra)));
        all.find(|name| !is_taken(name)).expect("there is no end of numbers")
    }

    /// Creates the Workload of a job; of an elastic job the slice that replaces another, if one is given.
    pub(crate) fn create_workload(
        &mut self,
        key: &JobKey,
        view: &JobView,
        priority: Priority,
        replaces: Option<&WorkloadKey>,
    ) {
        let Some(mut pod_sets) = self.workload_pod_sets(view) else {
            self.read_job(key);
            return;
        };
        let elastic = self.is_elastic(view);
        let longest = if self.config.on(Gate::ShortWorkloadNames) {
            MAX_SHORT_WORKLOAD_NAME
        } else {
            MAX_WORKLOAD_NAME
        };
        let kind = view.job.kind;
        let (gated, keys) = (self.config.on(Gate::AdmissionGatedBy), &self.config.annotation_keys_to_copy);
        let mut annotations = inherited_annotations(view, gated, keys);
        let mut owners = vec![owner_reference(view)];
        let named = |extra: Option<&str>| {
            workload_name(
                kind.kind(),
                kind.group(),
                &view.job.full_name(),
                view.job.object_uid(),
                extra,
                longest,
            )
        };
        let mut name = if elastic { self.free_slice_name(key, view, named) } else { named(None) };
        if kind.gathers_pods() {
            let of = [
                (labels::IS_GROUP_WORKLOAD, "true".to_owned()),
                (labels::JOB_OWNER_GVK, format!("{}, Kind={}", kind.api_version(), kind.kind())),
                (labels::JOB_OWNER_NAME, view.job.name.to_string()),
            ];
            annotations.extend(of.map(|(key, value)| (key.to_owned(), value)));
            let index = view.job.group.map(|group| group.to_string());
            annotations.extend(index.map(|index| (labels::COMPONENT_WORKLOAD_INDEX.to_owned(), index)));
            for owner in &mut owners {
                (owner.controller, owner.block_owner_deletion) = (None, None);
            }
        }
        if let Some((group, pods)) = self.group_of(key).zip(self.group_owners(key)) {
            (name, owners) = (group.to_string(), pods);
            annotations.insert(labels::IS_GROUP_WORKLOAD.to_owned(), "true".to_owned());
        }
        // A finished slice of that name is deleted.
        let known = WorkloadKey::new(Arc::clone(&view.job.namespace), name.as_str());
        if elastic && self.world.workloads.contains_key(&known) {
            self.delete_workload(&known, Vec::new());
            return;
        }
        let mut workload = v1beta2::Workload {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(view.job.namespace.to_string()),
                labels: Some(workload_labels(
                    &view.labels,
                    view.job.object_uid(),
                    &self.config.label_keys_to_copy,
                )),
                annotations: Some(annotations).filter(|a| !a.is_empty()),
                finalizers: Some(vec![labels::RESOURCE_IN_USE_FINALIZER.to_owned()]),
                owner_references: Some(owners),
                ..ObjectMeta::default()
            },
            spec: v1beta2::WorkloadSpec {
                pod_sets: Vec::new(),
                queue_name: view.queue_name.clone(),
                priority_class_ref: priority.class,
                priority: Some(priority.value),
                active: Some(true),
                maximum_execution_time_seconds: view.maximum_execution_time_seconds,
                preemption_gates: Vec::new(),
            },
            status: None,
        };
        if elastic {
            self.annotate_slice(view, &mut workload, replaces, &mut pod_sets);
        }
        workload.spec.pod_sets = pod_sets;
        let workload_key = WorkloadKey::new(Arc::clone(&view.job.namespace), name);
        let note = format!("Created Workload: {workload_key}");
        let mut then = vec![
            normal(self.about_job(key, view), "CreatedWorkload", note),
            self.log(Level::Info, "workload created", &[("workload", &workload_key), ("job", &key.object())]),
        ];
        if view.generation == 1 && self.config.on(Gate::MetricForWorkloadCreationLatency) {
            let latency = metrics::seconds_between(view.created, self.now);
            let queue =
                (Arc::clone(&view.job.namespace), Name::from(view.queue_name.as_deref().unwrap_or_default()));
            let custom = self.custom.of(&ObjectRef::namespaced(Kind::LocalQueue, queue.0, queue.1));
            then.push(observe_with(metrics::WORKLOAD_CREATION_LATENCY, &[kind.kind()], latency, custom));
        }
        let write = Write::CreateWorkload(Box::new(workload));
        let id = self.outbox.write(workload_ref(&workload_key), Purpose::CreateWorkload, write, then);
        self.outbox.amend(id, |open| open.job = Some(key.clone()));
        self.outbox.finds(id);
        if let Some(entry) = self.world.jobs.get_mut(key) {
            entry.open = Some(id);
        }
    }

    /// Brings a Workload that holds no quota up to date with its job (docs/reference/06-algorithm.md 6.20).
    pub(crate) fn update_workload(&mut self, key: &JobKey, view: &JobView, workload: &WorkloadKey) {
        let Some(pod_sets) = self.workload_pod_sets(view) else {
            self.read_job(key);
            return;
        };
        let Some(entry) = self.world.workloads.get(workload) else { return };
        let ObjectMeta { uid, resource_version, .. } = &entry.object.metadata;
        let update = WorkloadUpdate {
            metadata: SeenVersion { uid: uid.clone(), resource_version: resource_version.clone() },
            spec: UpdatedSpec {
                pod_sets,
                maximum_execution_time_seconds: view.maximum_execution_time_seconds,
            },
        };
        let note = format!("Updated not matching Workload for suspended job: {workload}");
        let reported = normal(self.about_job(key, view), "UpdatedWorkload", note);
        let write = Write::UpdateWorkload(Box::new(update));
        self.write_workload(workload, Purpose::UpdateWorkload, write, vec![reported]);
    }

    /// Asks for a job in full: its templates were dropped when its Workload existed.
    pub(crate) fn read_job(&mut self, key: &JobKey) {
        if key.group.is_some() {
            return self.renew_group(key);
        }
        if self.world.pod_jobs.get(key).is_some_and(|job| job.shape.is_of_members_alone()) {
            return self.read_pod_templates(key);
        }
        let id = self.outbox.write(key.object(), Purpose::Read, Write::Read, Vec::new());
        if let Some(entry) = self.world.jobs.get_mut(key) {
            entry.open = Some(id);
        }
    }

    /// A Workload is seen that was not known: whatever kept its job from making it, it waits no longer.
    pub(crate) fn workload_is_there(&mut self, key: &WorkloadKey) {
        let job = self.world.workloads.get(key).and_then(|entry| self.world.job_of(entry));
        if let Some(entry) = job.and_then(|job| self.world.jobs.get_mut(&job)) {
            entry.retry.succeeded(Purpose::CreateWorkload);
        }
    }

    /// Requests an object that no watch shows completely.
    pub(crate) fn read_again(&mut self, object: &ObjectRef) -> EffectId {
        self.outbox.write(object.clone(), Purpose::Read, Write::Read, Vec::new())
    }

    /// Drops the templates of a job whose Workload exists.
    pub(crate) fn drop_templates(&mut self, key: &JobKey) {
        if key.group.is_some() {
            return;
        }
        self.world.drop_pod_templates(key);
        if let Some(entry) = self.world.jobs.get_mut(key)
            && entry.view.pod_sets.iter().any(|p| p.template.is_some())
        {
            for set in &mut Arc::make_mut(&mut entry.view).pod_sets {
                set.template = None;
            }
        }
    }
}
