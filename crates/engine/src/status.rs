//! The status of queues and cohorts (reference 03, 3.2; 01, 1.2–1.7), and when they and finalizers are written.
//!
//! A status is computed when something changed and written when it differs, at most once per interval and object.

use std::sync::Arc;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use serde_json::{Value, json};
use sluice_api::conditions::{self, Wanted, reason};
use sluice_api::v1beta2;
use sluice_core::{self as core, LocalQueueInactive, Name};
use sluice_quantity::quantity_of;

use crate::effect::{Purpose, Write};
use crate::engine::{Alarm, Engine};
use crate::ingest;
use crate::input::{Kind, ObjectRef};

/// So many flavors are listed in a status at most (reference 01, 1.2): a queue may have more, and one entry too many would be refused
/// with all the rest.
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

/// The reason and message of a ClusterQueue's condition Active (reference 03, 3.2).
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

/// A merge patch that makes the status what it is to be: what is absent in it goes.
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
    /// Marks every queue, cohort, flavor, topology and check, and looks at which ClusterQueues are active.
    pub(crate) fn mark_all_statuses(&mut self) {
        self.activity_stale = true;
        let world = &self.world;
        let cluster = |kind, name: &Name| ObjectRef::cluster(kind, Arc::clone(name));
        self.dirty.objects.extend(world.cluster_queues.keys().map(|n| cluster(Kind::ClusterQueue, n)));
        self.dirty.objects.extend(world.cohorts.keys().map(|n| cluster(Kind::Cohort, n)));
        self.dirty.objects.extend(world.flavors.keys().map(|n| cluster(Kind::ResourceFlavor, n)));
        self.dirty.objects.extend(world.topologies.keys().map(|n| cluster(Kind::Topology, n)));
        self.dirty.objects.extend(world.checks.keys().map(|n| cluster(Kind::AdmissionCheck, n)));
        let local =
            |(ns, n): &(Name, Name)| ObjectRef::namespaced(Kind::LocalQueue, Arc::clone(ns), Arc::clone(n));
        self.dirty.objects.extend(world.local_queues.keys().map(local));
    }

    /// Marks the queues whose figures the core says have changed.
    pub(crate) fn collect_queue_changes(&mut self) {
        let changed = self.scheduler.take_changed();
        let cluster = |kind, name| ObjectRef::cluster(kind, name);
        self.dirty.objects.extend(changed.cluster_queues.into_iter().map(|n| cluster(Kind::ClusterQueue, n)));
        self.dirty.objects.extend(changed.cohorts.into_iter().map(|n| cluster(Kind::Cohort, n)));
        let local = |(ns, n)| ObjectRef::namespaced(Kind::LocalQueue, ns, n);
        self.dirty.objects.extend(changed.local_queues.into_iter().map(local));
        if std::mem::take(&mut self.activity_stale) {
            self.refresh_activity();
        }
    }

    /// Notes which ClusterQueues are active, and marks what hangs on those that changed.
    fn refresh_activity(&mut self) {
        let names: Vec<_> = self.world.cluster_queues.keys().cloned().collect();
        for name in names {
            let active = self.scheduler.cluster_queue_status(&name).is_some_and(|s| s.inactive.is_empty());
            if self.active.insert(Arc::clone(&name), active) != Some(active) {
                self.mark_workloads_of_cluster_queue(&name);
                self.hotswap_stale();
            }
        }
    }

    /// Writes the status of one object if it differs, and its finalizer.
    pub(crate) fn reconcile_status(&mut self, object: &ObjectRef) {
        if !self.decides() {
            return;
        }
        if matches!(object.kind, Kind::ProvisioningRequest | Kind::PodTemplate) {
            return self.mark_maker(object);
        }
        if object.kind == Kind::Pod {
            return self.end_terminating(object);
        }
        let entry = self.statuses.entry(object.clone()).or_default();
        if entry.open.is_some() {
            return;
        }
        let pause = SignedDuration::from_millis(self.config.status_interval_ms);
        let rested = entry.written_at.and_then(|at| at.checked_add(pause).ok());
        let until = entry.retry.until.max(rested).filter(|until| *until > self.now);
        if let Some(until) = until {
            return self.wake_at(until, Alarm::Object(object.clone()));
        }
        let write = self.finalizer_patch(object).map(|body| (Purpose::Finalizer, None, body)).or_else(|| {
            let body = match object.kind {
                Kind::ClusterQueue => self.cluster_queue_patch(&object.name),
                Kind::LocalQueue => self.local_queue_patch(object),
                Kind::Cohort => self.cohort_patch(&object.name),
                Kind::AdmissionCheck => self.check_patch(&object.name),
                _ => None,
            };
            body.map(|body| (Purpose::QueueStatus, Some("status"), body))
        });
        let Some((purpose, subresource, body)) = write else { return };
        let id =
            self.outbox.write(object.clone(), purpose, Write::MergePatch { subresource, body }, Vec::new());
        let now = self.now;
        let entry = self.statuses.entry(object.clone()).or_default();
        entry.open = Some(id);
        if purpose == Purpose::QueueStatus {
            entry.written_at = Some(now);
        }
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

    fn local_queue_patch(&mut self, object: &ObjectRef) -> Option<Value> {
        let (namespace, name) = (&object.namespace, &object.name);
        let queue = self.world.local_queues.get(&(Arc::clone(namespace), Arc::clone(name)))?;
        let figures = self.scheduler.local_queue_status(namespace, name)?;
        let known = queue.status.clone().unwrap_or_default();
        let generation = queue.metadata.generation.unwrap_or(0);
        let fair = self.config.admission_fair_sharing.as_ref().filter(|_| self.usage_based(queue));
        let interval = fair.map(|f| f.sampling_interval_seconds);
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
            fair_sharing: fair.map(|_| fair_status(&figures)),
        };
        let patch = (queue.status.is_none() || next != known).then(|| {
            let status = serde_json::to_value(next).expect("a status consists of plain data");
            status_patch(&queue.metadata, status, &["flavorsReservation", "flavorsUsage", "fairSharing"])
        });
        if let Some(seconds) = interval {
            let next = crate::lifecycle::workload::later(conditions::whole_seconds(self.now), seconds.max(1));
            self.wake_at(next, Alarm::Object(object.clone()));
        }
        patch
    }

    /// Whether a LocalQueue's ClusterQueue orders by usage.
    fn usage_based(&self, queue: &v1beta2::LocalQueue) -> bool {
        let cluster = queue.spec.cluster_queue.as_deref().and_then(|n| self.world.cluster_queues.get(n));
        cluster
            .and_then(|c| c.spec.admission_scope.as_ref())
            .is_some_and(|s| s.admission_mode == v1beta2::AdmissionMode::UsageBasedAdmissionFairSharing)
    }

    /// Whether a check of ours works. Only a change of that is written: the text alone may lag (reference 03, 3.2).
    fn check_patch(&self, name: &str) -> Option<Value> {
        let check = self.world.checks.get(name)?;
        let (active, why, message) = self.check_active(check)?;
        let known = check.status.clone().unwrap_or_default().conditions;
        let told = conditions::find(&known, conditions::ACTIVE);
        if told.is_some_and(|c| (c.status == "True") == active && c.status != "Unknown") {
            return None;
        }
        let generation = check.metadata.generation.unwrap_or(0);
        let next = self.active_condition(&known, (active, why, &message), generation);
        Some(status_patch(&check.metadata, json!({"conditions": next}), &[]))
    }

    fn cohort_patch(&self, name: &str) -> Option<Value> {
        self.config.fair_sharing.as_ref()?;
        let cohort = self.world.cohorts.get(name)?;
        let figures = self.scheduler.cohort_status(name)?;
        let fair = v1beta2::FairSharingStatus { weighted_share: figures.weighted_share };
        if cohort.status.as_ref().and_then(|s| s.fair_sharing.as_ref()) == Some(&fair) {
            return None;
        }
        let status = json!({"fairSharing": fair});
        Some(status_patch(&cohort.metadata, status, &[]))
    }
}

/// What admission fair sharing remembers of a LocalQueue.
fn fair_status(figures: &core::LocalQueueStatus) -> v1beta2::LocalQueueFairSharingStatus {
    let consumed = figures.consumed.iter().map(|(name, units)| (name.to_string(), from_units(*units)));
    v1beta2::LocalQueueFairSharingStatus {
        weighted_share: whole(figures.fair_usage),
        admission_fair_sharing_status: figures.consumed_at.map(|at| v1beta2::AdmissionFairSharingStatus {
            consumed_resources: consumed.collect(),
            last_update: Time(conditions::whole_seconds(ingest::timestamp(at))),
        }),
    }
}

/// A number, rounded up to a whole one; what is infinite is the largest.
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
