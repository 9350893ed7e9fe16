//! The metrics store: counters and histograms grow as the engine observes, gauges are set again at each scrape, and series
//! of objects that no longer exist are removed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use prometheus::{
    Counter, CounterVec, Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, HistogramVec, Opts, TextEncoder,
};
use sluice_engine::input::{Kind, ObjectRef};

/// The name of the label that says what this replica does.
const ROLE: &str = "replica_role";

/// What this replica does (docs/reference/05-metrics.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Leads.
    Leader,
    /// Waits, with a warm engine.
    Follower,
    /// Runs without leader election.
    Standalone,
}

impl Role {
    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Follower => "follower",
            Self::Standalone => "standalone",
        }
    }
}

/// The type of a metric.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Only grows.
    Counter,
    /// Is set.
    Gauge,
    /// Observes values; with the upper bounds of its buckets, in seconds.
    Histogram(Vec<f64>),
}

/// One metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// Its name.
    pub name: &'static str,
    /// What it means.
    pub help: String,
    /// Its type.
    pub shape: Shape,
    /// Its labels, without `replica_role` and custom ones.
    pub labels: Vec<&'static str>,
    /// Its custom labels: their values come after those.
    pub custom: Vec<String>,
    /// Whether it carries `replica_role`.
    pub role: bool,
}

/// One value with its labels, in the order of the definition.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The metric.
    pub metric: &'static str,
    /// Label values.
    pub labels: Vec<Arc<str>>,
    /// The value.
    pub value: f64,
}

impl Sample {
    /// A value with these labels.
    pub fn of(metric: &'static str, labels: &[&str], value: f64) -> Self {
        Self { metric, labels: labels.iter().map(|label| Arc::from(*label)).collect(), value }
    }
}

/// The queues and Cohorts that exist, with their custom labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Existing(pub BTreeMap<ObjectRef, Vec<Arc<str>>>);

/// Queues and Cohorts that were asked about, with their custom labels; `None` for those that do not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdicts(pub BTreeMap<ObjectRef, Option<Vec<Arc<str>>>>);

#[derive(Debug)]
enum Vector {
    Counter(CounterVec),
    Gauge(GaugeVec),
    Histogram(HistogramVec),
}

#[derive(Debug)]
struct Family {
    definition: Definition,
    vector: Vector,
    /// By the values of its labels: an existing series is found without building a text.
    series: Mutex<HashMap<Vec<Arc<str>>, Series>>,
}

/// One series.
#[derive(Debug)]
enum Series {
    Counter(Counter),
    Gauge(Gauge),
    Histogram(Histogram),
}

impl Series {
    fn record(&self, value: f64) {
        match self {
            Self::Counter(counter) => counter.inc_by(value.max(0.0)),
            Self::Gauge(gauge) => gauge.set(value),
            Self::Histogram(histogram) => histogram.observe(value),
        }
    }
}

/// All metrics of the process.
#[derive(Debug)]
pub struct Registry {
    store: prometheus::Registry,
    families: BTreeMap<&'static str, Family>,
    role: RwLock<Role>,
    /// The values of the label of the role.
    roles: [Arc<str>; 3],
}

impl Registry {
    /// A registry of these metrics.
    ///
    /// # Errors
    ///
    /// If a metric or a label has a name that Prometheus does not allow, a metric has no help or is defined twice, or a label is.
    pub fn new(definitions: Vec<Definition>, role: Role) -> Result<Self, prometheus::Error> {
        let registry = prometheus::Registry::new();
        let mut families = BTreeMap::new();
        for definition in definitions {
            let mut labels = definition.labels.clone();
            labels.extend(definition.custom.iter().map(String::as_str));
            if definition.role {
                labels.push(ROLE);
            }
            let options = Opts::new(definition.name, definition.help.as_str());
            let vector = match &definition.shape {
                Shape::Counter => {
                    let vector = CounterVec::new(options, &labels)?;
                    registry.register(Box::new(vector.clone()))?;
                    Vector::Counter(vector)
                }
                Shape::Gauge => {
                    let vector = GaugeVec::new(options, &labels)?;
                    registry.register(Box::new(vector.clone()))?;
                    Vector::Gauge(vector)
                }
                Shape::Histogram(buckets) => {
                    let options = HistogramOpts::from(options).buckets(buckets.clone());
                    let vector = HistogramVec::new(options, &labels)?;
                    registry.register(Box::new(vector.clone()))?;
                    Vector::Histogram(vector)
                }
            };
            families.insert(definition.name, Family { definition, vector, series: Mutex::default() });
        }
        let roles = [Role::Leader, Role::Follower, Role::Standalone].map(|role| Arc::from(role.as_str()));
        Ok(Self { store: registry, families, role: RwLock::new(role), roles })
    }

    /// This replica's role changes.
    pub fn set_role(&self, role: Role) {
        *self.role.write().unwrap_or_else(PoisonError::into_inner) = role;
    }

    /// This replica's role.
    pub fn role(&self) -> Role {
        *self.role.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds to a counter, observes into a histogram, sets a gauge. A metric that is not defined is left out.
    pub fn record(&self, sample: Sample) {
        let Sample { metric, labels: mut values, value } = sample;
        let Some(family) = self.families.get(metric) else { return };
        if family.definition.role {
            values.push(Arc::clone(&self.roles[self.role() as usize]));
        }
        family.record(values, value);
    }

    /// Sets the gauges, and the counters that are kept elsewhere, `names` to exactly these samples.
    pub fn replace(&self, names: &[&'static str], samples: Vec<Sample>) {
        for family in names.iter().filter_map(|name| self.families.get(name)) {
            match &family.vector {
                Vector::Gauge(gauge) => gauge.reset(),
                Vector::Counter(counter) => counter.reset(),
                Vector::Histogram(_) => continue,
            }
            family.series().clear();
        }
        for sample in samples {
            self.record(sample);
        }
    }

    /// Removes the series of queues and Cohorts that do not exist, or have other custom labels. Series of those that were not asked about are kept:
    /// one may have been made since.
    pub fn prune(&self, verdicts: &Verdicts) {
        for family in self.families.values() {
            family.retain(|labels| !verdicts.condemn(&family.definition, labels));
        }
    }

    /// Objects that counters and histograms are about and that do not exist, or have other custom labels.
    pub fn doubtful(&self, existing: &Existing) -> Vec<ObjectRef> {
        let mut found = BTreeSet::new();
        for family in self.families.values().filter(|family| !matches!(family.vector, Vector::Gauge(_))) {
            let series = family.series();
            let doubtful = series.keys().filter(|values| !existing.has(&family.definition, values));
            found.extend(doubtful.filter_map(|values| subject(&family.definition.labels, values)));
        }
        found.into_iter().collect()
    }

    /// Removes every series of one ClusterQueue, LocalQueue or Cohort.
    pub fn forget(&self, object: &ObjectRef) {
        for family in self.families.values() {
            family.retain(|labels| subject(&family.definition.labels, labels).as_ref() != Some(object));
        }
    }

    /// The text for Prometheus.
    pub fn text(&self) -> String {
        let mut text = Vec::new();
        // Writing into memory fails only for metrics without names, which `new` refuses.
        let encoded = TextEncoder::new().encode(&self.store.gather(), &mut text);
        if encoded.is_err() {
            text.clear();
        }
        String::from_utf8(text).unwrap_or_default()
    }
}

impl Family {
    fn series(&self) -> MutexGuard<'_, HashMap<Vec<Arc<str>>, Series>> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, values: Vec<Arc<str>>, value: f64) {
        let mut all = self.series();
        if let Some(series) = all.get(&values) {
            return series.record(value);
        }
        // Wrong numbers of label values are a bug that tests find; at run time the sample is left out.
        let made = match &self.vector {
            Vector::Counter(v) => v.get_metric_with_label_values(&values).map(Series::Counter),
            Vector::Gauge(v) => v.get_metric_with_label_values(&values).map(Series::Gauge),
            Vector::Histogram(v) => v.get_metric_with_label_values(&values).map(Series::Histogram),
        };
        if let Ok(series) = made {
            series.record(value);
            all.insert(values, series);
        }
    }

    fn retain(&self, keep: impl Fn(&[Arc<str>]) -> bool) {
        self.series().retain(|values, _| {
            if keep(values) {
                return true;
            }
            // Each listed series exists exactly once.
            let _ = match &self.vector {
                Vector::Counter(v) => v.remove_label_values(values),
                Vector::Gauge(v) => v.remove_label_values(values),
                Vector::Histogram(v) => v.remove_label_values(values),
            };
            false
        });
    }
}

impl Existing {
    /// Whether the queue or Cohort that a series is about exists, and has these custom labels. Series about nothing of the kind are kept.
    fn has(&self, definition: &Definition, values: &[Arc<str>]) -> bool {
        let Some(object) = subject(&definition.labels, values) else { return true };
        self.0.get(&object).is_some_and(|custom| is_labelled(definition, values, custom))
    }
}

impl Verdicts {
    /// Whether the queue or Cohort that a series is about does not exist, or has other custom labels.
    fn condemn(&self, definition: &Definition, values: &[Arc<str>]) -> bool {
        let object = subject(&definition.labels, values);
        let Some(verdict) = object.and_then(|object| self.0.get(&object)) else { return false };
        !verdict.as_ref().is_some_and(|custom| is_labelled(definition, values, custom))
    }
}

/// Whether a series has these custom labels. Those of Workloads may follow; a metric without Workload labels has fewer.
fn is_labelled(definition: &Definition, values: &[Arc<str>], custom: &[Arc<str>]) -> bool {
    let own = values.get(definition.labels.len()..).unwrap_or_default();
    own.iter().zip(custom).take(definition.custom.len()).all(|(a, b)| a == b)
}

/// The object of a series.
fn subject(names: &[&str], values: &[Arc<str>]) -> Option<ObjectRef> {
    let value =
        |name: &str| names.iter().position(|n| *n == name).and_then(|i| values.get(i)).map(Arc::clone);
    if let (Some(namespace), Some(name)) = (value("namespace"), value("name")) {
        return Some(ObjectRef::namespaced(Kind::LocalQueue, namespace, name));
    }
    if let Some(queue) = value("cluster_queue").or_else(|| value("preempting_cluster_queue")) {
        return Some(ObjectRef::cluster(Kind::ClusterQueue, queue));
    }
    value("cohort").map(|cohort| ObjectRef::cluster(Kind::Cohort, cohort))
}

#[cfg(test)]
pub(crate) mod tests {
    use prometheus::core::{Collector, Desc};
    use prometheus::proto::MetricFamily;

    use super::*;

    /// A metric that cannot be read.
    struct Broken;

    impl Collector for Broken {
        fn desc(&self) -> Vec<&Desc> {
            Vec::new()
        }

        fn collect(&self) -> Vec<MetricFamily> {
            panic!("a bug")
        }
    }

    /// A registry of all metrics whose text cannot be written.
    pub(crate) fn broken() -> Registry {
        let registry = Registry::new(crate::metrics::definitions(&[]), Role::Leader).unwrap();
        registry.store.register(Box::new(Broken)).unwrap();
        registry
    }

    fn define(name: &'static str, shape: Shape, labels: &[&'static str]) -> Definition {
        Definition {
            name,
            help: "Help.".to_owned(),
            shape,
            labels: labels.to_vec(),
            custom: Vec::new(),
            role: true,
        }
    }

    fn registry() -> Registry {
        let definitions = vec![
            define("kueue_admitted_workloads_total", Shape::Counter, &["cluster_queue", "priority_class"]),
            define("kueue_pending_workloads", Shape::Gauge, &["cluster_queue", "status"]),
            define("kueue_execution_time_seconds", Shape::Histogram(vec![1.0, 2.5]), &["cluster_queue"]),
            define("kueue_local_queue_admitted_workloads_total", Shape::Counter, &["name", "namespace"]),
        ];
        Registry::new(definitions, Role::Follower).unwrap()
    }

    fn sample(metric: &'static str, labels: &[&str], value: f64) -> Sample {
        Sample::of(metric, labels, value)
    }

    #[test]
    fn the_text_has_names_labels_roles_and_buckets() {
        let registry = registry();
        registry.set_role(Role::Leader);
        registry.record(sample("kueue_admitted_workloads_total", &["cq", "high"], 1.0));
        registry.record(sample("kueue_execution_time_seconds", &["cq"], 2.0));
        insta::assert_snapshot!(registry.text(), @r#"
        # HELP kueue_admitted_workloads_total Help.
        # TYPE kueue_admitted_workloads_total counter
        kueue_admitted_workloads_total{cluster_queue="cq",priority_class="high",replica_role="leader"} 1
        # HELP kueue_execution_time_seconds Help.
        # TYPE kueue_execution_time_seconds histogram
        kueue_execution_time_seconds_bucket{cluster_queue="cq",replica_role="leader",le="1"} 0
        kueue_execution_time_seconds_bucket{cluster_queue="cq",replica_role="leader",le="2.5"} 1
        kueue_execution_time_seconds_bucket{cluster_queue="cq",replica_role="leader",le="+Inf"} 1
        kueue_execution_time_seconds_sum{cluster_queue="cq",replica_role="leader"} 2
        kueue_execution_time_seconds_count{cluster_queue="cq",replica_role="leader"} 1
        "#);
    }

    #[test]
    fn gauges_are_exactly_what_the_last_scrape_says_under_the_role_of_then() {
        let registry = registry();
        let names = ["kueue_pending_workloads"];
        registry.replace(&names, vec![sample(names[0], &["old", "active"], 3.0)]);
        registry.set_role(Role::Leader);
        registry.replace(&names, vec![sample(names[0], &["cq", "active"], 2.0)]);
        let text = registry.text();
        assert!(text.contains(r#"{cluster_queue="cq",replica_role="leader",status="active"} 2"#), "{text}");
        assert!(!text.contains("old") && !text.contains("follower"), "{text}");
    }

    #[test]
    fn series_of_deleted_queues_are_removed_when_the_engine_says_so_or_no_longer_knows_them() {
        let cluster_queue = |name: &str| ObjectRef::cluster(Kind::ClusterQueue, name);
        let local_queue = |name: &str| ObjectRef::namespaced(Kind::LocalQueue, "ns", name);
        let (reported, pruned) = (registry(), registry());
        for registry in [&reported, &pruned] {
            for queue in ["gone", "there"] {
                registry.record(sample("kueue_admitted_workloads_total", &[queue, ""], 1.0));
                registry.record(sample("kueue_execution_time_seconds", &[queue], 1.0));
                registry.record(sample("kueue_local_queue_admitted_workloads_total", &[queue, "ns"], 1.0));
            }
        }
        reported.forget(&cluster_queue("gone"));
        reported.forget(&local_queue("gone"));
        let left = [cluster_queue("there"), local_queue("there")].map(|object| (object, Vec::new()));
        let doubtful = pruned.doubtful(&Existing(BTreeMap::from(left)));
        assert_eq!(doubtful, [cluster_queue("gone"), local_queue("gone")]);
        pruned.prune(&Verdicts(doubtful.into_iter().map(|object| (object, None)).collect()));
        for registry in [reported, pruned] {
            let text = registry.text();
            assert!(!text.contains("gone"), "{text}");
            assert_eq!(text.matches("there").count(), 2 + 5, "{text}");
            // Created again under its old name, it begins at 0.
            registry.record(sample("kueue_execution_time_seconds", &["gone"], 1.0));
            assert!(registry.text().contains(r#"_count{cluster_queue="gone",replica_role="follower"} 1"#));
        }
    }

    #[test]
    fn custom_labels_come_after_the_others_and_series_with_old_ones_are_removed() {
        let metric = "kueue_local_queue_admitted_workloads_total";
        let mut definition = define(metric, Shape::Counter, &["name", "namespace"]);
        // The first is the queue's, the second its Workloads'.
        definition.custom = vec!["custom_stage".to_owned(), "custom_class".to_owned()];
        let registry = Registry::new(vec![definition], Role::Leader).unwrap();
        for labels in [["lq", "ns", "old", "a"], ["lq", "ns", "new", "a"], ["lq", "ns", "new", "b"]] {
            registry.record(sample(metric, &labels, 1.0));
        }
        let queue = ObjectRef::namespaced(Kind::LocalQueue, "ns", "lq");
        let labels = vec![Arc::from("new")];
        let existing = Existing(BTreeMap::from([(queue.clone(), labels.clone())]));
        let doubtful = registry.doubtful(&existing);
        assert_eq!(doubtful, std::slice::from_ref(&queue), "for the series with the old label");
        registry.prune(&Verdicts(BTreeMap::from([(queue.clone(), Some(labels))])));
        let text = registry.text();
        assert!(!text.contains("old"), "{text}");
        let line =
            r#"{custom_class="b",custom_stage="new",name="lq",namespace="ns",replica_role="leader"} 1"#;
        assert!(text.contains(line), "{text}");
        registry.forget(&queue);
        assert_eq!(registry.text(), "");
    }

    #[test]
    fn a_series_that_is_there_is_found_without_a_text() {
        let registry = registry();
        let next = || sample("kueue_execution_time_seconds", &["cq"], 1.0);
        registry.record(next());
        let seen = next();
        let cost = allocation_counter::measure(|| registry.record(seen));
        assert!(cost.count_total <= 1, "{cost:?}: room for the role");
        assert!(registry.text().contains(r#"_count{cluster_queue="cq",replica_role="follower"} 2"#));
    }

    #[test]
    fn unknown_metrics_and_wrong_labels_are_left_out() {
        let registry = registry();
        registry.record(sample("nope", &[], 1.0));
        registry.record(sample("kueue_pending_workloads", &["cq"], 1.0));
        assert_eq!(registry.text(), "");
    }
}
