//! Passes the engine's effects from its thread to the writer, the event sink, the metrics and the log.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use sluice_engine::effect::{Effect, Level, LogLine, Observation};
use sluice_engine::input::ObjectRef;
use sluice_engine::metrics::names::{ADMISSION_ATTEMPT_DURATION_SECONDS, ADMISSION_ATTEMPTS_TOTAL};
use tokio::sync::{Notify, mpsc, watch};
use tracing::{debug, enabled, error, info, warn};

use crate::engine_thread::Outlet;
use crate::events::{EventSink, of_manager};
use crate::journal::Journal;
use crate::metrics::registry::{Registry, Sample};
use crate::traces::Traces;
use crate::watch::known::Known;
use crate::watch::sync::SyncTracker;
use crate::writer::Writer;

/// Where effects go.
pub struct Effects {
    /// Writes.
    pub writer: Writer,
    /// Events; none when they are left out.
    pub events: Option<EventSink>,
    /// Counters and histograms.
    pub registry: Arc<Registry>,
    /// The kinds to list again when the engine was rebuilt.
    pub sync: Arc<SyncTracker>,
    /// The versions that the engine has.
    pub known: Arc<Known>,
    /// Restarts the watches.
    pub epoch: watch::Sender<u64>,
    /// Makes the process end.
    pub fatal: mpsc::Sender<String>,
    /// Wakes the part that follows the places of waiting Workloads.
    pub moved: Arc<Notify>,
    /// Where decisions are written down.
    pub journal: Option<Journal>,
    /// Where attempts to admit become traces.
    pub traces: Option<Traces>,
}

impl Outlet for Effects {
    fn emit(&mut self, effects: Vec<Effect>, leading: bool, generation: u64, took: Duration) {
        for effect in effects {
            match effect {
                Effect::Write(request) if !leading => {
                    // The engine decides nothing unless it leads: what comes here was decided before it stopped leading.
                    debug!(object = %request.object, purpose = ?request.purpose, "not written: not leading");
                }
                Effect::Write(request) => self.writer.write(generation, request),
                Effect::Withdraw(id) => self.writer.withdraw(generation, id),
                Effect::Event(event) => {
                    if let Some(events) = self.events.as_ref().filter(|_| leading) {
                        events.record(event);
                    }
                }
                Effect::Observe(observation) => self.observe(observation, took),
                Effect::SeriesGone(object) => self.registry.forget(&object),
                Effect::Log(line) => log(&line),
                Effect::Journal(line) => {
                    if let Some(journal) = &self.journal {
                        journal.put(*line);
                    }
                }
                Effect::Attempt(step) => {
                    if let Some(traces) = &self.traces {
                        traces.put(step, took, leading);
                    }
                }
            }
        }
    }

    fn set_aside(&mut self, object: &ObjectRef, why: &str) {
        self.registry.record(super::metrics::SET_ASIDE.sample([object.kind.as_str()], 1.0));
        if let Some(events) = &self.events {
            let note = format!("Sluice failed on this object and leaves it out until it changes: {why}");
            events.record(of_manager(object.clone(), "".into(), "SetAside", note));
        }
    }

    fn taken(&mut self, uid: &str, version: &str) {
        self.known.taken(uid, version);
    }

    fn rebuilt(&mut self, generation: u64) {
        // Before everything is listed again: what a watch drops until then, the lists have.
        self.known.rebuilt();
        self.sync.restart(generation);
        let epoch = self.epoch.clone();
        // Writes in progress may change what the lists show.
        self.writer.rebuilt(generation, move || {
            epoch.send_replace(generation);
        });
    }

    fn give_up(&mut self, why: &str) {
        // The receiver lives as long as the process is meant to.
        let _ = self.fatal.try_send(format!("the engine fails again and again: {why}"));
    }

    fn moved(&mut self) {
        self.moved.notify_one();
    }
}

impl Effects {
    fn observe(&self, observation: Observation, took: Duration) {
        let Observation { metric, labels, value, .. } = observation;
        if metric == ADMISSION_ATTEMPTS_TOTAL {
            // The engine has no clock: how long the attempt took is known here.
            let (metric, labels) = (ADMISSION_ATTEMPT_DURATION_SECONDS, labels.clone());
            self.registry.record(Sample { metric, labels, value: took.as_secs_f64() });
        }
        self.registry.record(Sample { metric, labels, value });
    }
}

/// The least important level that is on: the engine formats nothing below it.
pub fn wanted_level() -> Level {
    Level::ALL.into_iter().find(|level| is_on(*level)).unwrap_or(Level::Error)
}

fn is_on(level: Level) -> bool {
    match level {
        Level::Debug => enabled!(target: "sluice_engine", tracing::Level::DEBUG),
        Level::Info => enabled!(target: "sluice_engine", tracing::Level::INFO),
        Level::Warn => enabled!(target: "sluice_engine", tracing::Level::WARN),
        Level::Error => enabled!(target: "sluice_engine", tracing::Level::ERROR),
    }
}

/// One line per decision.
fn log(line: &LogLine) {
    if !is_on(line.level) {
        return;
    }
    let mut details = String::new();
    for (key, value) in &line.fields {
        if !details.is_empty() {
            details.push(' ');
        }
        details.push_str(key);
        details.push('=');
        if value.contains([' ', '"', '=']) || value.is_empty() {
            // Writing into a String does not fail.
            let _ = write!(details, "{value:?}");
        } else {
            details.push_str(value);
        }
    }
    match line.level {
        Level::Debug => debug!(target: "sluice_engine", %details, "{}", line.message),
        Level::Info => info!(target: "sluice_engine", %details, "{}", line.message),
        Level::Warn => warn!(target: "sluice_engine", %details, "{}", line.message),
        Level::Error => error!(target: "sluice_engine", %details, "{}", line.message),
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use axum::http::{Method, Uri};
    use serde_json::json;
    use sluice_engine::effect::{EffectId, Purpose, Write as Written, WriteRequest};
    use sluice_engine::input::{Kind, Object};
    use tokio::sync::Semaphore;

    use super::*;
    use crate::fake_api;
    use crate::intake::Intake;
    use crate::lease::deadline::Deadline;
    use crate::metrics::registry::Role;
    use crate::supervise::tests::supervisor;
    use crate::watch::versions::Versions;
    use crate::writer::traffic::Traffic;
    use crate::writer::{Answering, Server};

    #[tokio::test]
    async fn lists_for_an_engine_that_was_rebuilt_begin_when_nothing_of_the_one_before_is_under_way() {
        let (gate, sent) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (opened, noted) = (Arc::clone(&gate), Arc::clone(&sent));
        let client = fake_api::client(move |_: Method, _: Uri, _: Bytes| {
            noted.add_permits(1);
            let opened = Arc::clone(&opened);
            async move {
                opened.acquire().await.unwrap().forget();
                fake_api::found(&json!({"kind": "Status"}))
            }
        });
        let answering = Answering {
            backlog: Arc::new(|_| {}),
            meter: Arc::new(|_, _, _| {}),
            answers: Arc::new(|_, _, _, _, _| {}),
            poison: Arc::new(|_, _| {}),
            intake: Intake::default(),
        };
        let (supervisor, _fatals, _stopper) = supervisor();
        let server = Server::new(client, Deadline::never(), Traffic::default());
        let (epoch, mut epochs) = watch::channel(0);
        let sync = Arc::new(SyncTracker::new([Kind::Workload]));
        let known = Arc::new(Known::with(|_| false));
        let mut effects = Effects {
            writer: Writer::start(&supervisor, server, Versions::default(), 0.0, 0, answering),
            events: None,
            registry: Arc::new(Registry::new(crate::metrics::definitions(&[]), Role::Leader).unwrap()),
            sync: Arc::clone(&sync),
            known: Arc::clone(&known),
            epoch,
            fatal: mpsc::channel(1).0,
            moved: Arc::default(),
            journal: None,
            traces: None,
        };
        assert!(sync.listed(Kind::Workload, 0));
        let object = ObjectRef::namespaced(Kind::Workload, "ns", "old");
        let write = Written::MergePatch { subresource: None, body: json!({}) };
        let request = WriteRequest { id: EffectId(1), object, purpose: Purpose::UpdateWorkload, write };
        effects.emit(vec![Effect::Write(request)], true, 0, Duration::ZERO);
        sent.acquire().await.unwrap().forget();
        let answer = || {
            let metadata = json!({"metadata": {"uid": "u", "resourceVersion": "7"}});
            known.copy_of(&Object::Workload(serde_json::from_value(metadata).unwrap()));
        };
        answer();
        effects.taken("u", "7");
        assert!(known.is_echo("u", "7"));
        answer();
        effects.taken("u", "7");

        effects.rebuilt(1);
        assert!(!known.is_echo("u", "7"), "the new engine has nothing yet");
        assert!(!sync.listed(Kind::Workload, 0), "a list that began before says nothing about it");
        assert!(!effects.writer.clone().is_quiet(Duration::ZERO).await);
        assert!(!epochs.has_changed().unwrap(), "a request may change what the lists show");
        gate.add_permits(1);
        assert_eq!(*epochs.wait_for(|epoch| *epoch > 0).await.unwrap(), 1);
        assert!(sync.listed(Kind::Workload, 1));
    }
}
