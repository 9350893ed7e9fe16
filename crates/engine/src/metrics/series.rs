//! The series of queues and Cohorts: which custom labels they have, and when they are removed.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sluice_api::config::SourceKind;

use crate::effect::{Effect, Observation};
use crate::engine::Engine;
use crate::input::{Kind, ObjectRef};

use SourceKind::{ClusterQueue, Cohort, LocalQueue};

impl Engine {
    /// Takes the labels of a ClusterQueue, LocalQueue or Cohort. When they change, the series with the old ones are removed.
    pub(crate) fn observe_custom_labels(&mut self, object: &ObjectRef, metadata: &ObjectMeta) {
        let kind = match object.kind {
            Kind::ClusterQueue => ClusterQueue,
            Kind::LocalQueue => LocalQueue,
            _ => Cohort,
        };
        if !self.custom.reads(kind) {
            return;
        }
        let values = self.custom.read(kind, metadata);
        let before = self.custom.values.insert(object.clone(), values.clone());
        let changed = before.map_or_else(
            // A Cohort that was only named has series; a new engine does not know yet which series exist.
            || self.synced && values.iter().any(|value| !value.is_empty()),
            |before| before != values,
        );
        if changed {
            self.outbox.push(Effect::SeriesGone(object.clone()));
        }
    }

    /// The custom labels of the series of a ClusterQueue, LocalQueue or Cohort; nothing if it has no series.
    pub fn series_labels(&self, object: &ObjectRef) -> Option<Vec<Arc<str>>> {
        let exists = match object.kind {
            Kind::LocalQueue => {
                let key = (Arc::clone(&object.namespace), Arc::clone(&object.name));
                self.world
                    .local_queues
                    .get(&key)
                    .is_some_and(|queue| self.config.local_queue_metrics.enable && self.is_measured(queue))
            }
            Kind::ClusterQueue => self.world.cluster_queues.contains_key(&object.name),
            // Cohorts that are only named have series, too.
            _ => !self.deleted_cohorts.contains(&object.name) && self.scheduler.has_cohort(&object.name),
        };
        exists.then(|| self.custom.of(object))
    }

    /// A ClusterQueue, LocalQueue or Cohort was deleted: its series are removed at once. A new object of that name begins at 0.
    pub(crate) fn forget_series(&mut self, object: &ObjectRef) {
        let known = match object.kind {
            Kind::ClusterQueue => self.world.cluster_queues.contains_key(&object.name),
            Kind::LocalQueue => {
                let key = (Arc::clone(&object.namespace), Arc::clone(&object.name));
                self.world.local_queues.contains_key(&key)
            }
            Kind::Cohort => self.world.cohorts.contains_key(&object.name),
            _ => false,
        };
        if !known {
            return;
        }
        self.custom.values.remove(object);
        self.outbox.push(Effect::SeriesGone(object.clone()));
    }

    /// Returns all effects since the last call; observations get their custom labels. Observations of a queue that was deleted meanwhile, or of a
    /// Cohort whose object was deleted, are left out: they would count for the next object of that name.
    pub(crate) fn hand_out(&mut self) -> Vec<Effect> {
        let mut effects = self.outbox.take();
        self.note_uids(&effects);
        effects.retain_mut(|effect| match effect {
            Effect::Event(event) => {
                event.attempt = self.attempt_of(&event.object, &event.uid);
                true
            }
            Effect::Observe(seen) => {
                let exists = self.is_about_something(seen);
                let given = std::mem::take(&mut seen.custom);
                self.custom.complete(seen.metric, &mut seen.labels, &given);
                exists
            }
            _ => true,
        });
        effects
    }

    fn is_about_something(&self, seen: &Observation) -> bool {
        let Some(subject) = self.custom.metrics.get(seen.metric).and_then(|m| m.subject(&seen.labels)) else {
            return true;
        };
        match subject.kind {
            Kind::ClusterQueue => self.world.cluster_queues.contains_key(&subject.name),
            Kind::LocalQueue => self.world.local_queues.contains_key(&(subject.namespace, subject.name)),
            _ => !self.deleted_cohorts.contains(&subject.name),
        }
    }
}
