//! The status of queues and cohorts (docs/reference/03-conditions-events.md 3.2; docs/reference/01-api.md 1.2–1.7), and when they and finalizers
//! are written.
//!
//! A status is computed when something changed and written when it differs, at most once per interval and object. The writes of numbers share one
//! budget for all queues.

pub(crate) mod budget;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use serde_json::{Value, json};
use sluice_api::conditions::{self, Wanted, reason};
use sluice_api::v1beta2;
use sluice_core::{self as core, LocalQueueInactive, Name};
use sluice_quantity::quantity_of;

use crate::config::Part;
use crate::effect::{Purpose, Write};
use crate::engine::{Alarm, Engine};
use crate::ingest;
use crate::input::{Kind, ObjectRef};

/// The highest number of flavors in a status (docs/reference/01-api.md 1.2): a queue may have more, and with one entry too many the whole status
/// would be refused.
const MOST_FLAVORS: usize = 64;

/// A count as the API has it.
fn count(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

fn quantity(resource: &str, amount: core::Amount) -> Text {
    Text(quantity_of(resource, amount).to_string())
}

fn cluster_usage(usage: &core::FlavorUsage, in_cohort: bool) -> Vec<v1beta2::FlavorUsage> {
    let resource = |r: &core::ResourceUsage| v1beta2::ResourceUsage {
        name: r.name.to_string(),
        total: quantity(&r.name, r.total),
        borrowed: quantity(&r.name, if in_cohort { r.borrowed } else { core::Amount::ZERO }),
    };
    usage
        .iter()
        .take(MOST_FLAVORS)
        .map(|(flavor, resources)| v1beta2::FlavorUsage {
            name: flavor.to_string(),
            resources: resources.iter().map(resource).collect(),
        })
        .collect()
}

fn local_usage(usage: &core::FlavorUsage) -> Vec<v1beta2::LocalQueueFlavorUsage> {
    let resource = |r: &core::ResourceUsage| v1beta2::LocalQueueResourceUsage {
        name: r.name.to_string(),
        total: quantity(&r.name, r.total),
    };
    usage
        .iter()
        .take(MOST_FLAVORS)
        .map(|(flavor, resources)| v1beta2::LocalQueueFlavorUsage {
            name: flavor.to_string(),
            resources: resources.iter().map(resource).collect(),
        })
        .collect()
}

/// The reason and message of a ClusterQueue's condition Active (docs/reference/03-conditions-events.md 3.2).
pub(crate) fn cluster_queue_active(causes: &[core::InactiveCause]) -> (bool, &'static str, String) {
    match causes {
        [] => (true, reason::READY, "Can admit new workloads".to_owned()),
        [core::InactiveCause::Terminating, ..] => {
            (false, reason::TERMINATING, "Can't admit new workloads; clusterQueue is terminating".to_owned())
        }
        causes => {
            let parts: Vec<_> = causes.iter().map(core::InactiveCause::message).collect();
            (false, causes[0].reason(), format!("Can't admit new workloads: {}.", parts.join(", ")))
        }
    }
}

/// The reason and message of a LocalQueue's condition Active.
const fn local_queue_active(cause: Option<LocalQueueInactive>) -> (bool, &'static str, &'static str) {
    const NOT_SUBMIT: &str = "Can't submit new workloads to clusterQueue";
    match cause {
        None => (true, reason::READY, "Can submit new workloads to localQueue"),
        Some(LocalQueueInactive::Stopped) => (false, reason::STOPPED, "LocalQueue is stopped"),
        Some(LocalQueueInactive::ClusterQueueDoesNotExist) => {
            (false, reason::CLUSTER_QUEUE_DOES_NOT_EXIST, NOT_SUBMIT)
        }
        Some(LocalQueueInactive::ClusterQueueIsInactive) => {
            (false, reason::CLUSTER_QUEUE_IS_INACTIVE, NOT_SUBMIT)
        }
    }
}

/// A merge patch to the new status: fields that it lacks are removed.
fn status_patch(metadata: &ObjectMeta, status: Value, fields: &[&str]) -> Value {
    let mut status = status;
    for field in fields {
        if status.get(field).is_none() {
            status[field] = Value::Null;
        }
    }
    json!({
        "metadata": {"resourceVersion": metadata.resource_version, "uid": metadata.uid},
        "status": status,
    })
}

impl Engine {
    /// Marks every queue, cohort, flavor, topology and check.
    pub(crate) fn mark_all_statuses(&mut self) {
        let (world, statuses) = (&self.world, &mut self.dirty.statuses);
        let cluster = |kind, name: &Name| ObjectRef::cluster(kind, Arc::clone(name));
        statuses.extend(world.cluster_queues.keys().map(|n| cluster(Kind::ClusterQueue, n)));
        statuses.extend(world.cohorts.keys().map(|n| cluster(Kind::Cohort, n)));
        statuses.extend(world.flavors.keys().map(|n| cluster(Kind::ResourceFlavor, n)));
        statuses.extend(world.topologies.keys().map(|n| cluster(Kind::Topology, n)));
        statuses.extend(world.checks.keys().map(|n| cluster(Kind::AdmissionCheck, n)));
        let local =
            |(ns, n): &(Name, Name)| ObjectRef::namespaced(Kind::LocalQueue, Arc::clone(ns), Arc::clone(n));
        statuses.extend(world.local_queues.keys().map(local));
    }

    /// Marks the queues whose numbers the core has changed, and the dependents of queues that have become active or inactive.
    pub(crate) fn collect_queue_changes(&mut self) {
        let changed = self.scheduler.take_changed();
        for name in changed.cluster_queues {
            let active = self.scheduler.is_active(&name);
            if self.active.insert(Arc::clone(&name), active) != Some(active) {
                self.mark_workloads_of_cluster_queue(&name);
                self.hotswap_stale();
            }
            self.dirty.statuses.insert(ObjectRef::cluster(Kind::ClusterQueue, name));
        }
        let cohorts = changed.cohorts.into_iter().map(|name| ObjectRef::cluster(Kind::Cohort, name));
        self.dirty.statuses.extend(cohorts);
        let local = |(ns, n)| ObjectRef::namespaced(Kind::LocalQueue, ns, n);
        self.dirty.statuses.extend(changed.local_queues.into_iter().map(local));
    }

    /// Looks at the statuses that may have changed, each once: a replica that does not lead writes none.
    pub(crate) fn write_statuses(&mut self) {
        let marked = std::mem::take(&mut self.dirty.statuses);
        if !self.decides() {
            return;
        }
        for object in marked {
            self.working_on = Some(object.clone());
            self.reconcile_status(&object);
            self.working_on = None;
        }
    }

    /// Handles an object that is neither a Workload nor a job and has no status written by Sluice.
    pub(crate) fn reconcile_other(&mut self, object: &ObjectRef) {
        if !self.decides() {
            return;
        }
        if object.kind == Kind::Pod {
            self.end_terminating(object);
        } else {
            self.mark_maker(object);
        }
    }

    /// Writes the status of one object if it differs, and its finalizer.
    fn reconcile_status(&mut self, object: &ObjectRef) {
        if !self.world.has(object) {
            // It was deleted after it was marked.
            self.statuses.remove(object);
            return;
        }
        let part = Part::of(object.kind);
        let runs = part.is_none_or(|part| self.config.runs(part));
        // Whether a check of ours works is the provisioning part's to say.
        if !runs && object.kind != Kind::AdmissionCheck {
            return;
        }
        if self.statuses.get(object).is_some_and(|entry| entry.open.is_some()) {
            return;
        }
        let finalizers = if runs { self.finalizer_patch(object) } else { None };
        let entry = self.statuses.entry(object.clone()).or_default();
        let pause = SignedDuration::from_millis(self.config.status_interval_ms);
        // What is no longer used goes without a pause, which is for figures.
        let rested = entry.written_at.filter(|_| finalizers.is_none());
        let rested = rested.and_then(|at| at.checked_add(pause).ok());
        let until = entry.retry.until().max(rested).filter(|until| *until > self.now);
        if let Some(until) = until {
            return self.wake_at(until, Alarm::Object(object.clone()));
        }
        let slot = entry.slot;
        if finalizers.is_none() && slot.is_some_and(|at| at > self.now) && self.is_active_as_known(object) {
            // Its alarm is set.
            return;
        }
        self.work.statuses += 1;
        if runs && finalizers.is_none() {
            // What uses it ends one after the other: the number is reported as seldom as other figures are written.
            self.report_holders(object);
        }
        let write = finalizers.map(|body| (Purpose::Finalizer, None, body)).or_else(|| {
            let body = match object.kind {
                Kind::ClusterQueue => self.cluster_queue_patch(&object.name),
                Kind::LocalQueue => self.local_queue_patch(object),
                Kind::Cohort => self.cohort_patch(&object.name),
                Kind::AdmissionCheck => self.check_patch(&object.name),
                _ => None,
            };
            body.map(|body| (Purpose::QueueStatus, Some("status"), body))
        });
        let Some((purpose, subresource, body)) = write else {
            self.statuses.entry(object.clone()).or_default().slot = None;
            return;
        };
        if purpose == Purpose::QueueStatus && slot.is_none() {
            let slot = self.status_budget.take(self.now, self.config.statuses_per_second, self.backlog.all);
            if slot > self.now && self.is_active_as_known(object) {
                self.statuses.entry(object.clone()).or_default().slot = Some(slot);
                return self.wake_at(slot, Alarm::Object(object.clone()));
            }
        }
        let id =
            self.outbox.write(object.clone(), purpose, Write::MergePatch { subresource, body }, Vec::new());
        let now = self.now;
        let entry = self.statuses.entry(object.clone()).or_default();
        entry.open = Some(id);
        if purpose == Purpose::QueueStatus {
            entry.written_at = Some(now);
            entry.slot = None;
        }
    }

    /// Whether the status of a queue or Cohort says already whether it is active, so that only figures can be new.
    fn is_active_as_known(&self, object: &ObjectRef) -> bool {
        let is_active = |queue: &str| self.active.get(queue) == Some(&true);
        let (conditions, active, generation) = match object.kind {
            Kind::ClusterQueue => {
                let Some(queue) = self.world.cluster_queues.get(&object.name) else { return false };
                let status = queue.status.as_ref().map(|status| &status.conditions);
                (status, is_active(&object.name), queue.metadata.generation)
            }
            Kind::LocalQueue => {
                let key = (Arc::clone(&object.namespace), Arc::clone(&object.name));
                let Some(queue) = self.world.local_queues.get(&key) else { return false };
                let status = queue.status.as_ref().map(|status| &status.conditions);
                let cluster_queue = queue.spec.cluster_queue.as_deref().unwrap_or_default();
                let open = queue.spec.stop_policy == v1beta2::StopPolicy::None;
                (status, open && is_active(cluster_queue), queue.metadata.generation)
            }
            Kind::Cohort => return true,
            _ => return false,
        };
        let known = conditions.and_then(|known| conditions::find(known, conditions::ACTIVE));
        known.is_some_and(|known| {
            (known.status == "True") == active && known.observed_generation == generation
        })
    }

    fn active_condition(
        &self,
        known: &[Condition],
        active: (bool, &str, &str),
        generation: i64,
    ) -> Vec<Condition> {
        let mut next = known.to_vec();
        let wanted = Wanted { status: active.0, reason: active.1, message: active.2 };
        conditions::set(&mut next, conditions::ACTIVE, wanted, generation, self.now);
        next
    }

    fn cluster_queue_patch(&self, name: &str) -> Option<Value> {
        let queue = self.world.cluster_queues.get(name)?;
        let figures = self.scheduler.cluster_queue_status(name)?;
        let known = queue.status.clone().unwrap_or_default();
        let in_cohort = queue.spec.cohort_name.as_ref().is_some_and(|c| !c.is_empty());
        let (active, why, message) = cluster_queue_active(&figures.inactive);
        let generation = queue.metadata.generation.unwrap_or(0);
        let next = v1beta2::ClusterQueueStatus {
            conditions: self.active_condition(&known.conditions, (active, why, &message), generation),
            flavors_reservation: cluster_usage(&figures.reservation, in_cohort),
            flavors_usage: cluster_usage(&figures.usage, in_cohort),
            pending_workloads: count(figures.pending_active + figures.pending_inadmissible),
            reserving_workloads: count(figures.reserving),
            admitted_workloads: count(figures.admitted),
            fair_sharing: self
                .config
                .fair_sharing
                .as_ref()
                .map(|_| v1beta2::FairSharingStatus { weighted_share: figures.weighted_share }),
        };
        if queue.status.is_some() && next == known {
            return None;
        }
        let status = serde_json::to_value(next).expect("a status consists of plain data");
        Some(status_patch(&queue.metadata, status, &["flavorsReservation", "flavorsUsage", "fairSharing"]))
    }

    fn local_queue_patch(&self, object: &ObjectRef) -> Option<Value> {
        let (namespace, name) = (&object.namespace, &object.name);
        let queue = self.world.local_queues.get(&(Arc::clone(namespace), Arc::clone(name)))?;
        let figures = self.scheduler.local_queue_status(namespace, name)?;
        let known = queue.status.clone().unwrap_or_default();
        let generation = queue.metadata.generation.unwrap_or(0);
        let next = v1beta2::LocalQueueStatus {
            conditions: self.active_condition(
                &known.conditions,
                local_queue_active(figures.inactive),
                generation,
            ),
            pending_workloads: count(figures.pending),
            reserving_workloads: count(figures.reserving),
            admitted_workloads: count(figures.admitted),
            flavors_reservation: local_usage(&figures.reservation),
            flavors_usage: local_usage(&figures.usage),
            fair_sharing: self
                .config
                .shares_admission()
                .then(|| fair_status(&figures, known.fair_sharing.as_ref())),
        };
        if queue.status.is_some() && next == known {
            return None;
        }
        let mut status = serde_json::to_value(next).expect("a status consists of plain data");
        let consumed = status.pointer_mut("/fairSharing/admissionFairSharingStatus/consumedResources");
        if let Some(consumed) = consumed.and_then(Value::as_object_mut) {
            // A merge keeps what it does not name.
            let before = known.fair_sharing.and_then(|fair| fair.admission_fair_sharing_status);
            for resource in before.into_iter().flat_map(|before| before.consumed_resources.into_keys()) {
                consumed.entry(resource).or_insert(Value::Null);
            }
        }
        Some(status_patch(&queue.metadata, status, &["flavorsReservation", "flavorsUsage", "fairSharing"]))
    }

    /// Whether a check of ours works. Only a change of that is written: the message alone may lag (docs/reference/03-conditions-events.md 3.2).
    fn check_patch(&self, name: &str) -> Option<Value> {
        let check = self.world.checks.get(name)?;
        let (active, why, message) = self.check_active(check)?;
        let known = check.status.clone().unwrap_or_default().conditions;
        let reported = conditions::find(&known, conditions::ACTIVE);
        if reported.is_some_and(|c| (c.status == "True") == active && c.status != "Unknown") {
            return None;
        }
        let generation = check.metadata.generation.unwrap_or(0);
        let next = self.active_condition(&known, (active, why, &message), generation);
        Some(status_patch(&check.metadata, json!({"conditions": next}), &[]))
    }

    fn cohort_patch(&self, name: &str) -> Option<Value> {
        let cohort = self.world.cohorts.get(name)?;
        let known = cohort.status.as_ref().and_then(|s| s.fair_sharing.as_ref());
        let shares = self.config.fair_sharing.is_some();
        if !shares && known.is_none() {
            return None;
        }
        let figures = self.scheduler.cohort_status(name)?;
        // Without fair sharing, what an earlier configuration left is removed.
        let fair = shares.then_some(v1beta2::FairSharingStatus { weighted_share: figures.weighted_share });
        if known == fair.as_ref() {
            return None;
        }
        Some(status_patch(&cohort.metadata, json!({"fairSharing": fair}), &[]))
    }
}

/// The past usage of a LocalQueue for admission fair sharing. A newer sample time alone is no reason to write.
fn fair_status(
    figures: &core::LocalQueueStatus,
    known: Option<&v1beta2::LocalQueueFairSharingStatus>,
) -> v1beta2::LocalQueueFairSharingStatus {
    let consumed = figures.consumed.iter().map(|(name, units)| (name.to_string(), from_units(*units)));
    let consumed_resources: BTreeMap<_, _> = consumed.collect();
    let known = known
        .and_then(|fair| fair.admission_fair_sharing_status.as_ref())
        .filter(|known| known.consumed_resources == consumed_resources);
    let sampled = figures.consumed_at.map(|at| v1beta2::AdmissionFairSharingStatus {
        consumed_resources,
        last_update: Time(conditions::whole_seconds(ingest::timestamp(at))),
    });
    v1beta2::LocalQueueFairSharingStatus {
        weighted_share: whole(figures.fair_usage),
        admission_fair_sharing_status: known.cloned().or(sampled),
    }
}

/// A number, rounded up to an integer; infinity is the largest integer.
#[expect(clippy::cast_possible_truncation, reason = "the cast saturates, which is what is asked for")]
fn whole(value: f64) -> i64 {
    if value.is_finite() { value.ceil() as i64 } else { i64::MAX }
}

/// Units with a fraction as a quantity, exact to a thousandth.
#[expect(clippy::cast_possible_truncation, reason = "the cast saturates, which is what is asked for")]
fn from_units(units: f64) -> Text {
    let milli = (units * 1_000.0).round() as i64;
    Text(sluice_quantity::Quantity::from_milli(milli, sluice_quantity::Format::DecimalSi).to_string())
}
