//! Custom labels of metrics (`metrics.customLabels`): values come from labels and annotations of ClusterQueues, Cohorts, LocalQueues and
//! Workloads, and follow their changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use sluice_api::config::{CustomLabel, SourceKind};
use sluice_api::{labels, slim};

use super::definitions::names::{
    ADMITTED_ACTIVE_WORKLOADS, COHORT_SUBTREE_ADMITTED_ACTIVE_WORKLOADS,
    LOCAL_QUEUE_ADMISSION_WAIT_TIME_SECONDS, LOCAL_QUEUE_ADMITTED_ACTIVE_WORKLOADS,
    LOCAL_QUEUE_ADMITTED_WORKLOADS_TOTAL, PENDING_WORKLOADS, WORKLOAD_CREATION_LATENCY,
};
use super::definitions::{METRICS, Metric};
use crate::input::{Kind, ObjectRef};

/// Longer values, which only an annotation can have, are not distinguished.
const MAX_VALUE: usize = 253;

use SourceKind::{ClusterQueue, Cohort, LocalQueue, Workload};

impl Metric {
    /// The kinds whose custom labels it has, in the order of the labels.
    pub fn sources(&self) -> &'static [SourceKind] {
        match self.name {
            PENDING_WORKLOADS | ADMITTED_ACTIVE_WORKLOADS => &[ClusterQueue, Workload],
            LOCAL_QUEUE_ADMITTED_WORKLOADS_TOTAL
            | LOCAL_QUEUE_ADMISSION_WAIT_TIME_SECONDS
            | LOCAL_QUEUE_ADMITTED_ACTIVE_WORKLOADS => &[LocalQueue, Workload],
            COHORT_SUBTREE_ADMITTED_ACTIVE_WORKLOADS => &[ClusterQueue],
            WORKLOAD_CREATION_LATENCY => &[LocalQueue],
            _ if self.has("namespace") => &[LocalQueue],
            _ if self.has("cluster_queue") || self.has("preempting_cluster_queue") => &[ClusterQueue],
            _ if self.has("cohort") => &[Cohort],
            _ => &[],
        }
    }

    /// The names of its custom labels.
    pub fn custom_labels(&self, entries: &[CustomLabel]) -> Vec<String> {
        let of = |kind: &SourceKind| {
            let kind = *kind;
            entries.iter().filter(move |e| e.source_kind == kind).map(|e| format!("custom_{}", e.name))
        };
        self.sources().iter().flat_map(of).collect()
    }

    fn has(&self, label: &str) -> bool {
        self.labels.contains(&label)
    }

    /// The ClusterQueue, LocalQueue or Cohort that a series is about, as its labels say.
    pub(super) fn subject(&self, values: &[Arc<str>]) -> Option<ObjectRef> {
        let value = |label: &str| {
            let at = self.labels.iter().position(|name| *name == label)?;
            values.get(at).cloned()
        };
        if let (Some(namespace), Some(name)) = (value("namespace"), value("name")) {
            return Some(ObjectRef::namespaced(Kind::LocalQueue, namespace, name));
        }
        if let Some(queue) = value("cluster_queue").or_else(|| value("preempting_cluster_queue")) {
            return Some(ObjectRef::cluster(Kind::ClusterQueue, queue));
        }
        value("cohort").map(|cohort| ObjectRef::cluster(Kind::Cohort, cohort))
    }
}

/// The configured labels, and their latest values by object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Custom {
    entries: Vec<CustomLabel>,
    pub(super) metrics: BTreeMap<&'static str, &'static Metric>,
    pub(super) values: BTreeMap<ObjectRef, Vec<Arc<str>>>,
}

impl Custom {
    pub fn new(entries: &[CustomLabel]) -> Self {
        Self {
            entries: entries.to_vec(),
            metrics: METRICS.iter().map(|metric| (metric.name, metric)).collect(),
            values: BTreeMap::new(),
        }
    }

    /// Whether a kind has custom labels.
    pub fn reads(&self, kind: SourceKind) -> bool {
        self.entries.iter().any(|entry| entry.source_kind == kind)
    }

    /// The values of one object.
    pub(super) fn read(&self, kind: SourceKind, metadata: &ObjectMeta) -> Vec<Arc<str>> {
        let value = |entry: &CustomLabel| -> Arc<str> {
            let (of, key) = match (&entry.source_annotation_key, &entry.source_label_key) {
                (Some(key), _) => (&metadata.annotations, key),
                (None, Some(key)) => (&metadata.labels, key),
                (None, None) => (&metadata.labels, &entry.name),
            };
            let value = of.as_ref().and_then(|of| of.get(key)).map_or("", String::as_str);
            let tracked = entry.tracked_values.is_empty() || entry.tracked_values.iter().any(|t| t == value);
            Arc::from(if tracked && value.len() <= MAX_VALUE { value } else { labels::UNTRACKED_VALUE })
        };
        self.entries.iter().filter(|entry| entry.source_kind == kind).map(value).collect()
    }

    /// The values of a Workload.
    pub fn of_workload(&self, object: &slim::Workload) -> Vec<Arc<str>> {
        if self.entries.is_empty() { Vec::new() } else { self.read(Workload, &object.metadata) }
    }

    /// The values of a ClusterQueue, LocalQueue or Cohort; empty values for an object that was not seen.
    pub fn of(&self, object: &ObjectRef) -> Vec<Arc<str>> {
        let kind = match object.kind {
            Kind::ClusterQueue => ClusterQueue,
            Kind::LocalQueue => LocalQueue,
            _ => Cohort,
        };
        self.values.get(object).cloned().unwrap_or_else(|| self.read(kind, &ObjectMeta::default()))
    }

    /// Appends the custom labels of a series: those of the object that its labels name, or from `given` if they name none; then those of the
    /// Workload, from `given`.
    pub fn complete(&self, metric: &str, values: &mut Vec<Arc<str>>, given: &[Arc<str>]) {
        if self.entries.is_empty() {
            return;
        }
        let Some(metric) = self.metrics.get(metric) else { return };
        let named =
            !matches!(metric.name, COHORT_SUBTREE_ADMITTED_ACTIVE_WORKLOADS | WORKLOAD_CREATION_LATENCY);
        if named
            && !metric.sources().is_empty()
            && let Some(subject) = metric.subject(values)
        {
            values.extend(self.of(&subject));
        }
        values.extend(given.iter().cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_label_of_a_metric_looks_like_a_custom_one() {
        let labels = METRICS.iter().flat_map(|metric| metric.labels);
        assert!(
            labels.clone().all(|label| !label.starts_with("custom_")),
            "{:?}",
            labels.collect::<Vec<_>>()
        );
    }

    #[test]
    fn labels_of_workloads_are_on_five_metrics_alone() {
        let with: Vec<_> =
            METRICS.iter().filter(|m| m.sources().contains(&Workload)).map(|m| m.name).collect();
        assert_eq!(
            with,
            [
                "kueue_local_queue_admitted_workloads_total",
                "kueue_local_queue_admission_wait_time_seconds",
                "kueue_pending_workloads",
                "kueue_admitted_active_workloads",
                "kueue_local_queue_admitted_active_workloads",
            ]
        );
    }

    #[test]
    fn what_is_not_tracked_and_what_is_too_long_is_one_value() {
        let entry = |name: &str, annotation: Option<&str>, tracked: &[&str]| CustomLabel {
            name: name.to_owned(),
            source_label_key: None,
            source_annotation_key: annotation.map(str::to_owned),
            source_kind: ClusterQueue,
            tracked_values: tracked.iter().map(ToString::to_string).collect(),
        };
        let custom = Custom::new(&[
            entry("team", None, &["a", "b"]),
            entry("room", Some("example.com/room"), &[]),
            entry("none", None, &[]),
        ]);
        let read = |team: &str, room: &str| {
            let metadata = ObjectMeta {
                labels: Some(BTreeMap::from([("team".to_owned(), team.to_owned())])),
                annotations: Some(BTreeMap::from([("example.com/room".to_owned(), room.to_owned())])),
                ..ObjectMeta::default()
            };
            custom.read(ClusterQueue, &metadata).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(read("a", "12"), ["a", "12", ""]);
        assert_eq!(read("c", &"x".repeat(254)), [labels::UNTRACKED_VALUE, labels::UNTRACKED_VALUE, ""]);
    }
}
