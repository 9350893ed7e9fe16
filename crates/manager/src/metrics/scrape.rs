//! What a scrape says: gauges as the engine has them at this moment, counters and histograms as they grew.

use std::sync::Arc;
use std::time::SystemTime;

use futures::FutureExt;
use sluice_engine::Engine;
use sluice_engine::metrics::{METRICS, MetricKind};

use super::registry::{Definition, Existing, Registry, Role, Sample, Shape};
use super::server::Scrape;
use super::{BUILD_INFO, EVENTS_DROPPED, MASTER, process};
use crate::engine_thread::Handle;
use crate::events::EventSink;
use crate::version;

/// Reference 05: 1, 2.5, 5, 10, … doubling.
fn wait_buckets(bounds: usize) -> Vec<f64> {
    let doubling = std::iter::successors(Some(5.0), |bound| Some(bound * 2.0));
    [1.0, 2.5].into_iter().chain(doubling).take(bounds).collect()
}

/// Prometheus' default buckets, in seconds.
const DEFAULT_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The name in words.
fn help(name: &str) -> String {
    let words = name.trim_start_matches("kueue_").replace('_', " ");
    let mut letters = words.chars();
    letters.next().map(|first| format!("{}{}.", first.to_uppercase(), letters.as_str())).unwrap_or_default()
}

/// The definitions of the engine's metrics.
pub fn engine_definitions() -> Vec<Definition> {
    METRICS
        .iter()
        .map(|metric| Definition {
            name: metric.name,
            help: help(metric.name),
            shape: match metric.kind {
                MetricKind::Counter => Shape::Counter,
                MetricKind::Gauge => Shape::Gauge,
                MetricKind::HistogramDefault => Shape::Histogram(DEFAULT_BUCKETS.to_vec()),
                MetricKind::Histogram14 => Shape::Histogram(wait_buckets(14)),
                MetricKind::Histogram16 => Shape::Histogram(wait_buckets(16)),
                MetricKind::HistogramLatency => {
                    let doubling = std::iter::successors(Some(0.01), |bound| Some(bound * 2.0));
                    Shape::Histogram(doubling.take(11).collect())
                }
            },
            labels: metric.labels.to_vec(),
            role: true,
        })
        .collect()
}

/// Collects a scrape.
#[derive(Clone)]
pub struct Scraper {
    /// The engine.
    pub engine: Handle<Engine>,
    /// The store.
    pub registry: Arc<Registry>,
    /// The event sink, if events are recorded.
    pub events: Option<EventSink>,
    /// The lease's name.
    pub lease: String,
    /// When the process started.
    pub started: SystemTime,
}

impl Scraper {
    /// As the metrics server wants it.
    pub fn into_scrape(self) -> Scrape {
        Arc::new(move || {
            let scraper = self.clone();
            async move { scraper.scrape().await }.boxed()
        })
    }

    async fn scrape(&self) -> String {
        let gauges: Vec<_> = METRICS.iter().filter(|m| m.kind == MetricKind::Gauge).map(|m| m.name).collect();
        let ask = self.engine.ask(|engine| (engine.is_synced(), engine.metrics_snapshot()));
        if let Some((synced, values)) = ask.await {
            let samples: Vec<_> = values
                .into_iter()
                .map(|value| Sample {
                    metric: value.metric,
                    labels: value.labels.iter().map(ToString::to_string).collect(),
                    value: value.value,
                })
                .collect();
            // An engine that was built anew knows no queue before it is told of them again.
            if synced {
                self.registry.prune(&existing(&samples));
            }
            self.registry.replace_gauges(&gauges, &samples);
        }
        self.registry.replace_gauges(&process::NAMES, &process::samples(self.started));
        self.registry.replace_gauges(&[EVENTS_DROPPED, MASTER, BUILD_INFO], &self.own());
        self.registry.text()
    }

    fn own(&self) -> Vec<Sample> {
        let dropped = self.events.as_ref().map_or(0, EventSink::dropped);
        // Without leader election nobody else leads, and alerts must not miss a leader.
        let leads = if self.registry.role() == Role::Follower { 0.0 } else { 1.0 };
        let sample = |metric, labels: Vec<String>, value| Sample { metric, labels, value };
        vec![
            sample(EVENTS_DROPPED, Vec::new(), f64::from(u32::try_from(dropped).unwrap_or(u32::MAX))),
            sample(MASTER, vec![self.lease.clone()], leads),
            sample(
                BUILD_INFO,
                vec![
                    format!("v{}", version::VERSION),
                    version::COMMIT.to_owned(),
                    version::BUILD_DATE.to_owned(),
                    String::new(),
                    "rustc".to_owned(),
                    version::platform(),
                ],
                1.0,
            ),
        ]
    }
}

/// The queues and cohorts that exist, as the gauges that every one of them has say.
fn existing(samples: &[Sample]) -> Existing {
    let mut existing = Existing::default();
    for sample in samples {
        match (sample.metric, sample.labels.as_slice()) {
            ("kueue_cluster_queue_status", [queue, ..]) => {
                existing.cluster_queues.insert(queue.clone());
            }
            ("kueue_local_queue_status", [name, namespace, ..]) => {
                existing.local_queues.insert((namespace.clone(), name.clone()));
            }
            ("kueue_cohort_info", [cohort, ..]) => {
                existing.cohorts.insert(cohort.clone());
            }
            _ => {}
        }
    }
    existing
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;
    use sluice_engine::input::{Input, Object, ObjectRef};
    use sluice_engine::metrics::FINISHED_WORKLOADS_TOTAL;
    use sluice_engine::{Effect, EngineConfig};

    use super::*;
    use crate::engine_thread::{self, Outlet};

    #[test]
    fn bucket_families_are_the_references() {
        let fourteen = wait_buckets(14);
        assert_eq!(fourteen[..4], [1.0, 2.5, 5.0, 10.0]);
        assert_eq!(fourteen.last(), Some(&10240.0));
        assert_eq!(wait_buckets(16).last(), Some(&40960.0));
    }

    #[test]
    fn every_metric_has_a_help_text() {
        assert_eq!(help("kueue_pending_workloads"), "Pending workloads.");
    }

    /// Takes everything.
    struct Drain;

    impl Outlet for Drain {
        fn emit(&mut self, _: Vec<Effect>, _: bool, _: u64, _: Duration) {}
        fn set_aside(&mut self, _: &ObjectRef, _: &str) {}
        fn rebuilt(&mut self, _: u64) {}
        fn give_up(&mut self, _: &str) {}
    }

    fn scraper(role: Role) -> Scraper {
        let build = || Engine::new(EngineConfig::default());
        Scraper {
            engine: engine_thread::start(build, Drain, None).unwrap().0,
            registry: Arc::new(Registry::new(super::super::definitions(), role).unwrap()),
            events: None,
            lease: "lease".to_owned(),
            started: SystemTime::now(),
        }
    }

    #[tokio::test]
    async fn counters_outlive_an_engine_that_is_built_anew_until_it_knows_that_their_queue_is_gone() {
        let scraper = scraper(Role::Leader);
        let queue = json!({"metadata": {"name": "cq"}, "spec": {"resourceGroups": []}});
        let queue = Object::ClusterQueue(Box::new(serde_json::from_value(queue).unwrap()));
        scraper.engine.input(Input::Applied(queue));
        scraper.engine.input(Input::Synced);
        let labels = vec!["cq".to_owned(), String::new()];
        scraper.registry.record(&Sample { metric: FINISHED_WORKLOADS_TOTAL, labels, value: 7.0 });
        let kept =
            r#"kueue_finished_workloads_total{cluster_queue="cq",priority_class="",replica_role="leader"} 7"#;
        assert!(scraper.scrape().await.contains(kept));
        scraper.engine.step_down();
        assert!(scraper.scrape().await.contains(kept), "it lists everything again");
        scraper.engine.synced(1);
        assert!(!scraper.scrape().await.contains(FINISHED_WORKLOADS_TOTAL), "the queue is gone");
        scraper.engine.stop();
    }

    #[tokio::test]
    async fn a_replica_without_leader_election_leads() {
        for (role, leads) in [(Role::Leader, 1), (Role::Standalone, 1), (Role::Follower, 0)] {
            let scraper = scraper(role);
            let line = format!(r#"leader_election_master_status{{name="lease"}} {leads}"#);
            let text = scraper.scrape().await;
            assert!(text.contains(&line), "{role:?}: {text}");
            scraper.engine.stop();
        }
    }

    #[test]
    fn all_definitions_make_a_registry_and_every_gauge_of_an_empty_engine_fits() {
        let registry = Registry::new(super::super::definitions(), Role::Follower).unwrap();
        registry.replace_gauges(&[], &process::samples(SystemTime::now()));
        assert!(registry.text().contains("process_resident_memory_bytes"));
    }
}
