//! The content of a scrape: gauges with the engine's current values, and the counters and histograms.

use std::sync::Arc;
use std::time::SystemTime;

use futures::FutureExt;
use sluice_api::config::CustomLabel;
use sluice_client::requests::Requests;
use sluice_client::version;
use sluice_engine::Engine;
use sluice_engine::input::{Kind, ObjectRef};
use sluice_engine::metrics::names::{CLUSTER_QUEUE_STATUS, COHORT_INFO, LOCAL_QUEUE_STATUS};
use sluice_engine::metrics::{GaugeValue, METRICS, MetricKind, SCRAPE_PAGE, Scrape as EngineScrape};
use tokio::sync::Mutex;
use tokio::task::JoinError;

use super::registry::{Definition, Existing, Registry, Role, Sample, Shape, Verdicts};
use super::server::Scrape;
use super::{
    BUILD_INFO, EVENTS_DROPPED, MASTER, REQUESTS, WRITES_IN_FLIGHT, WRITES_LIMIT, WRITES_WAITING, process,
};
use crate::engine_thread::{Handle, PAGE};
use crate::events::EventSink;
use crate::supervise::blocking;
use crate::writer::class::Class;
use crate::writer::traffic::Traffic;

/// docs/reference/05-metrics.md: 1, 2.5, 5, 10, … doubling.
fn wait_buckets(bounds: usize) -> Vec<f64> {
    let doubling = std::iter::successors(Some(5.0), |bound| Some(bound * 2.0));
    [1.0, 2.5].into_iter().chain(doubling).take(bounds).collect()
}

/// The name of work that takes long in a large world, and is therefore not done on the threads that serve.
const SCRAPE: &str = "a scrape";

/// Prometheus' default buckets, in seconds.
const DEFAULT_BUCKETS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The definitions of the engine's metrics.
pub fn engine_definitions(custom: &[CustomLabel]) -> Vec<Definition> {
    METRICS
        .iter()
        .map(|metric| Definition {
            name: metric.name,
            help: metric.help.to_owned(),
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
            custom: metric.custom_labels(custom),
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
    /// The writes in flight.
    pub traffic: Traffic,
    /// The requests so far.
    pub requests: Requests,
    /// The lease's name.
    pub lease: String,
    /// When the process started.
    pub started: SystemTime,
    /// Locked by the scrape in progress.
    pub turn: Arc<Mutex<()>>,
}

impl Scraper {
    /// As the metrics server wants it.
    pub fn into_scrape(self) -> Scrape {
        Arc::new(move || {
            let scraper = self.clone();
            async move { scraper.scrape().await }.boxed()
        })
    }

    async fn scrape(&self) -> Result<String, JoinError> {
        // Gauges are replaced: one scrape at a time.
        let _turn = self.turn.lock().await;
        let pages = self
            .engine
            .pages(EngineScrape::default(), |scrape, engine: &mut Engine| engine.scrape(scrape, SCRAPE_PAGE));
        if let Some(scrape) = pages.await {
            let complete = scrape.is_complete();
            let samples = blocking(SCRAPE, move || samples(scrape)).await?;
            // An engine that was just rebuilt knows no queue before it has seen the queues again.
            if complete {
                let doubtful = self.registry.doubtful(&existing(&samples));
                self.prune(doubtful).await;
            }
            let registry = Arc::clone(&self.registry);
            blocking(SCRAPE, move || registry.replace(&gauges(), samples)).await?;
        }
        self.registry.replace(&process::NAMES, process::samples(self.started));
        self.registry.replace(
            &[
                EVENTS_DROPPED.name,
                MASTER.name,
                REQUESTS.name,
                BUILD_INFO.name,
                WRITES_LIMIT.name,
                WRITES_IN_FLIGHT.name,
                WRITES_WAITING.name,
            ],
            self.own(),
        );
        let registry = Arc::clone(&self.registry);
        blocking(SCRAPE, move || registry.text()).await
    }

    /// Removes counters and histograms of deleted queues and Cohorts, among those that the scrape lacks. The engine is asked once more: the object
    /// may have been created, or got other labels, after the scrape had passed it.
    async fn prune(&self, doubtful: Vec<ObjectRef>) {
        let mut verdicts = Verdicts::default();
        for some in doubtful.chunks(PAGE) {
            let some = some.to_vec();
            let ask = self.engine.ask(move |engine| {
                let labels = some.iter().map(|object| engine.series_labels(object)).collect::<Vec<_>>();
                some.into_iter().zip(labels).collect::<Vec<_>>()
            });
            let Some(answers) = ask.await else { return };
            verdicts.0.extend(answers);
        }
        self.registry.prune(&verdicts);
    }

    fn own(&self) -> Vec<Sample> {
        let dropped = self.events.as_ref().map_or(0, EventSink::dropped);
        // Without leader election no other replica leads, and alerts must not miss a leader.
        let leads = if self.registry.role() == Role::Follower { 0.0 } else { 1.0 };
        let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        let waiting =
            Class::ALL.map(|lane| WRITES_WAITING.sample([lane.as_str()], number(self.traffic.waiting(lane))));
        let build = [
            format!("v{}", version::VERSION),
            version::COMMIT.to_owned(),
            version::BUILD_DATE.to_owned(),
            String::new(),
            "rustc".to_owned(),
            version::platform(),
        ];
        let mut own = vec![
            WRITES_LIMIT.sample([], number(self.traffic.limit())),
            WRITES_IN_FLIGHT.sample([], number(self.traffic.in_flight())),
            EVENTS_DROPPED.sample([], f64::from(u32::try_from(dropped).unwrap_or(u32::MAX))),
            MASTER.sample([&self.lease], leads),
            BUILD_INFO.sample(build.each_ref().map(String::as_str), 1.0),
        ];
        own.extend(waiting);
        own.extend(self.requests.totals().into_iter().map(|((code, method), total)| {
            let code = code.map_or_else(|| "<error>".to_owned(), |code| code.to_string());
            REQUESTS.sample([&code, &method, self.requests.host()], total)
        }));
        own
    }
}

/// The gauges of the engine.
fn gauges() -> Vec<&'static str> {
    METRICS.iter().filter(|m| m.kind == MetricKind::Gauge).map(|m| m.name).collect()
}

fn samples(scrape: EngineScrape) -> Vec<Sample> {
    let sample = |GaugeValue { metric, labels, value }| Sample { metric, labels, value };
    scrape.into_values().map(sample).collect()
}

/// The queues and Cohorts that exist, with their custom labels, from gauges that every one of them has.
fn existing(samples: &[Sample]) -> Existing {
    let mut existing = Existing::default();
    for sample in samples {
        let (object, custom) = match (sample.metric, sample.labels.as_slice()) {
            (CLUSTER_QUEUE_STATUS, [queue, _, custom @ ..]) => {
                (ObjectRef::cluster(Kind::ClusterQueue, Arc::clone(queue)), custom)
            }
            (LOCAL_QUEUE_STATUS, [name, namespace, _, custom @ ..]) => {
                (ObjectRef::namespaced(Kind::LocalQueue, Arc::clone(namespace), Arc::clone(name)), custom)
            }
            (COHORT_INFO, [cohort, _, _, custom @ ..]) => {
                (ObjectRef::cluster(Kind::Cohort, Arc::clone(cohort)), custom)
            }
            _ => continue,
        };
        existing.0.insert(object, custom.to_vec());
    }
    existing
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::http::{Method, StatusCode};
    use kube::Config;
    use serde_json::json;
    use sluice_engine::input::{Input, Object};
    use sluice_engine::metrics::names::FINISHED_WORKLOADS_TOTAL;
    use sluice_engine::{Effect, EngineConfig};

    use super::*;
    use crate::engine_thread::{self, Outlet};
    use crate::metrics::registry::tests::broken;
    use crate::supervise::tests::supervisor;

    #[test]
    fn bucket_families_are_the_references() {
        let fourteen = wait_buckets(14);
        assert_eq!(fourteen[..4], [1.0, 2.5, 5.0, 10.0]);
        assert_eq!(fourteen.last(), Some(&10240.0));
        assert_eq!(wait_buckets(16).last(), Some(&40960.0));
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
            engine: engine_thread::start(&supervisor().0, build, Drain, None).unwrap().0,
            registry: Arc::new(Registry::new(super::super::definitions(&[]), role).unwrap()),
            events: None,
            traffic: Traffic::default(),
            requests: Requests::of(&Config::new("https://10.0.0.1:443".parse().unwrap())),
            lease: "lease".to_owned(),
            started: SystemTime::now(),
            turn: Arc::default(),
        }
    }

    #[tokio::test]
    async fn counters_outlive_an_engine_that_is_rebuilt_until_it_knows_that_their_queue_is_gone() {
        let scraper = scraper(Role::Leader);
        let queue = json!({"metadata": {"name": "cq"}, "spec": {"resourceGroups": []}});
        let queue = Object::ClusterQueue(Box::new(serde_json::from_value(queue).unwrap()));
        scraper.engine.input(Input::Applied(queue));
        scraper.engine.input(Input::Synced);
        scraper.registry.record(Sample::of(FINISHED_WORKLOADS_TOTAL, &["cq", ""], 7.0));
        let kept =
            r#"kueue_finished_workloads_total{cluster_queue="cq",priority_class="",replica_role="leader"} 7"#;
        assert!(scraper.scrape().await.unwrap().contains(kept));
        scraper.engine.step_down();
        assert!(scraper.scrape().await.unwrap().contains(kept), "it lists everything again");
        scraper.engine.synced(1);
        assert!(!scraper.scrape().await.unwrap().contains(FINISHED_WORKLOADS_TOTAL), "the queue is gone");
        scraper.engine.stop();
    }

    #[tokio::test]
    async fn what_a_scrape_has_passed_before_it_came_is_not_pruned() {
        let scraper = scraper(Role::Leader);
        let queue = json!({"metadata": {"name": "new"}, "spec": {"resourceGroups": []}});
        let queue = Object::ClusterQueue(Box::new(serde_json::from_value(queue).unwrap()));
        scraper.engine.input(Input::Applied(queue));
        scraper.engine.input(Input::Synced);
        for name in ["gone", "new", "went"] {
            scraper.registry.record(Sample::of(FINISHED_WORKLOADS_TOTAL, &[name, ""], 1.0));
        }
        // The scrape has one that was deleted meanwhile, too.
        let went = ObjectRef::cluster(Kind::ClusterQueue, "went");
        let doubtful = scraper.registry.doubtful(&Existing([(went, Vec::new())].into()));
        // Something is counted for the first time in a queue while the engine is asked about others.
        scraper.registry.record(Sample::of(FINISHED_WORKLOADS_TOTAL, &["newest", ""], 1.0));
        scraper.prune(doubtful).await;
        let text = scraper.registry.text();
        assert!(text.contains(r#"cluster_queue="new""#) && !text.contains("gone"), "{text}");
        assert!(text.contains(r#"cluster_queue="newest""#), "{text}");
        // The next scrape does not have it.
        let text = scraper.scrape().await.unwrap();
        assert!(text.contains(r#"cluster_queue="new""#) && !text.contains("went"), "{text}");
        scraper.engine.stop();
    }

    #[tokio::test]
    async fn two_scrapes_at_once_both_say_everything() {
        let scraper = scraper(Role::Leader);
        for number in 0..50 {
            let queue = json!({"metadata": {"name": format!("cq-{number}")}, "spec": {"resourceGroups": []}});
            let queue = Object::ClusterQueue(Box::new(serde_json::from_value(queue).unwrap()));
            scraper.engine.input(Input::Applied(queue));
        }
        scraper.engine.input(Input::Synced);
        let texts = futures::future::join_all((0..4).map(|_| scraper.scrape())).await;
        for text in texts {
            let text = text.unwrap();
            let series = text.lines().filter(|line| line.starts_with("kueue_cluster_queue_status{"));
            assert_eq!(series.count(), 150);
        }
        scraper.engine.stop();
    }

    #[tokio::test]
    async fn a_replica_without_leader_election_leads() {
        for (role, leads) in [(Role::Leader, 1), (Role::Standalone, 1), (Role::Follower, 0)] {
            let scraper = scraper(role);
            let line = format!(r#"leader_election_master_status{{name="lease"}} {leads}"#);
            let text = scraper.scrape().await.unwrap();
            assert!(text.contains(&line), "{role:?}: {text}");
            scraper.engine.stop();
        }
    }

    #[tokio::test]
    async fn requests_are_named_and_labelled_as_client_go_does() {
        let scraper = scraper(Role::Leader);
        for code in [Some(StatusCode::OK), Some(StatusCode::OK), None] {
            scraper.requests.count(&Method::GET, code);
        }
        for _ in 0..2 {
            let text = scraper.scrape().await.unwrap();
            for (code, total) in [("200", 2), ("<error>", 1)] {
                let labels = format!(r#"{{code="{code}",host="10.0.0.1:443",method="GET"}}"#);
                let line = format!("rest_client_requests_total{labels} {total}\n");
                assert!(text.contains(&line), "{text}");
            }
        }
        scraper.engine.stop();
    }

    #[tokio::test]
    async fn a_panic_while_a_scrape_is_written_is_an_error_and_not_an_empty_text() {
        let scraper = Scraper { registry: Arc::new(broken()), ..scraper(Role::Leader) };
        assert!(scraper.scrape().await.unwrap_err().is_panic());
        scraper.engine.stop();
    }

    #[test]
    fn all_definitions_make_a_registry_and_every_gauge_of_an_empty_engine_fits() {
        let registry = Registry::new(super::super::definitions(&[]), Role::Follower).unwrap();
        registry.replace(&[], process::samples(SystemTime::now()));
        assert!(registry.text().contains("process_resident_memory_bytes"));
    }
}
