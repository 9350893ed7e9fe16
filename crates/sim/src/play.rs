//! Plays the scenario: events, streams of arrivals, nodes.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_engine::{Kind, ObjectRef};

use crate::agenda::{Action, after};
use crate::json::text;
use crate::manifest::{self, File, Manifest, ManifestError, Manifests, Source};
use crate::object::kind_named;
use crate::parts::PartNamespaces;
use crate::random::Stream;
use crate::record::JobRecord;
use crate::scenario::{After, Arrivals, JobState, Scenario, ScenarioEvent};
use crate::simulation::Simulation;

/// A stream of arrivals under way.
#[derive(Clone, Debug)]
struct Arriving {
    spec: Arrivals,
    kind: Kind,
    stream: Stream,
    made: u64,
}

/// An event that waits for something.
#[derive(Clone, Debug)]
struct Waiting {
    index: usize,
    after: Vec<After>,
    delay: SignedDuration,
}

/// The scenario as far as it has come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Play {
    /// The namespaces that take part; all if it says nothing.
    pub only: Option<PartNamespaces>,
    events: Vec<(ScenarioEvent, Vec<Manifest>)>,
    waiting: Vec<Waiting>,
    arrivals: Vec<Arriving>,
}

impl Arriving {
    /// The namespace of a job of the stream, and its LocalQueue if the stream says which.
    fn queue(&self, number: u64) -> (&str, Option<&str>) {
        let queues = &self.spec.queues;
        if queues.is_empty() {
            let own = text(&self.spec.template["metadata"]["namespace"]);
            return (if own.is_empty() { "default" } else { own }, None);
        }
        let queue = &queues[usize::try_from(number).unwrap_or(0) % queues.len()];
        (&queue.namespace, Some(&queue.queue))
    }

    /// The next job, if there is one.
    fn object(&self, number: u64) -> Value {
        let mut object = self.spec.template.clone();
        object["metadata"]["name"] = json!(format!("{}-{number}", self.spec.name));
        if let (namespace, Some(queue)) = self.queue(number) {
            object["metadata"]["namespace"] = json!(namespace);
            match self.kind {
                Kind::Workload => object["spec"]["queueName"] = json!(queue),
                _ => object["metadata"]["labels"][sluice_api::labels::QUEUE_NAME] = json!(queue),
            }
        }
        object
    }
}

impl Play {
    /// Whether a job of a stream belongs to this part of the world.
    fn is_mine(&self, arriving: &Arriving, number: u64) -> bool {
        self.only.as_ref().is_none_or(|only| only.has(arriving.queue(number).0))
    }
}

impl Simulation {
    /// Loads a scenario. `files` has the files that its events apply, by the names in the scenario.
    ///
    /// # Errors
    ///
    /// Every error of the scenario: a file that is missing in `files` or is invalid, an object or template of a kind that is not simulated, or an
    /// invalid name of a kind, job, policy or state.
    pub fn play(
        &mut self,
        source: &Source,
        scenario: Scenario,
        files: &BTreeMap<String, String>,
    ) -> Result<(), Vec<ManifestError>> {
        let mut errors = Vec::new();
        let spec = scenario.spec;
        self.pods.rules.extend(spec.run_times);
        if let Some(run_time) = spec.run_time.filter(|_| self.options.run_time.is_none()) {
            self.pods.default = run_time;
        }
        self.pods.termination = spec.pod_termination.unwrap_or(self.pods.termination);
        self.pods.startup = spec.pod_startup.unwrap_or(self.pods.startup);
        self.check_delay = spec.check_delay.unwrap_or(self.check_delay);
        if let Err(why) = crate::autoscaler::check(&spec.provisioning) {
            let path = "Scenario: spec.provisioning.play".to_owned();
            errors.push(ManifestError { at: source.clone(), path, message: why });
        }
        self.autoscaler.settings.take_over(spec.provisioning);
        let start = self.options.start;
        for (number, event) in spec.events.into_iter().enumerate() {
            let mut wrong = |message: String| {
                let path = format!("Scenario: spec.events[{number}]");
                errors.push(ManifestError { at: source.clone(), path, message });
            };
            let manifests = manifests_of(&event, source, files, &mut wrong);
            check_names(&event, &mut wrong);
            let index = self.play.events.len();
            let at = event.at.unwrap_or_default();
            if event.after.is_empty() {
                self.agenda.put(after(start, at), Action::Event(index));
            } else {
                self.play.waiting.push(Waiting { index, after: event.after.clone(), delay: at });
            }
            self.play.events.push((event, manifests));
        }
        for (number, arrivals) in spec.arrivals.into_iter().enumerate() {
            let from = after(start, arrivals.from.unwrap_or_default());
            let stream = Stream::new(self.options.seed, &format!("arrivals {}", arrivals.name));
            match manifest::inline(&arrivals.template) {
                Ok((kind @ (Kind::Job(_) | Kind::Workload), _)) => {
                    let index = self.play.arrivals.len();
                    self.agenda.put(from, Action::Arrival(index));
                    self.play.arrivals.push(Arriving { spec: arrivals, kind, stream, made: 0 });
                }
                other => errors.push(ManifestError {
                    at: source.clone(),
                    path: format!("Scenario: spec.arrivals[{number}].template"),
                    message: other.err().unwrap_or_else(|| "expected a Job, JobSet or Workload".to_owned()),
                }),
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// Lets events happen whose conditions are met now.
    pub(crate) fn play_events(&mut self) {
        loop {
            let met = |waiting: &Waiting| waiting.after.iter().all(|a| self.has_reached(a));
            let Some(at) = self.play.waiting.iter().position(met) else { return };
            let waiting = self.play.waiting.remove(at);
            // Creation times, which order queues, have whole seconds: a later job gets a later second.
            let delay = waiting.delay.max(SignedDuration::from_secs(1));
            self.agenda.put(after(self.now(), delay), Action::Event(waiting.index));
        }
    }

    /// Whether a job is in a state.
    fn has_reached(&self, after: &After) -> bool {
        let Some(job) = self.record().job_named(&after.job) else { return false };
        let held = |job: &JobRecord| job.holds.last().is_some_and(|h| h.to.is_none() && h.admitted.is_some());
        match after.is {
            JobState::Submitted => true,
            JobState::Waiting => job.waits_for.is_some(),
            JobState::Admitted => held(job),
            JobState::Evicted => job.holds.last().is_some_and(|h| h.evicted.is_some()),
            JobState::Finished => job.finished.is_some(),
        }
    }

    /// An event of the scenario.
    pub(crate) fn apply_event(&mut self, index: usize) {
        let Some((event, manifests)) = self.play.events.get(index).cloned() else { return };
        self.note_new_nodes(&manifests);
        for manifest in &manifests {
            if let Err(error) = self.apply(manifest) {
                self.note_refused(&manifest.source.to_string(), &error.to_string());
            }
        }
        if let Some(patch) = &event.patch {
            self.patch_named(&patch.kind, patch.namespace.as_deref(), &patch.name, &patch.merge);
        }
        if let Some(named) = &event.delete
            && let Some(reference) = reference(&named.kind, named.namespace.as_deref(), &named.name)
        {
            self.note(&format!("delete {reference}"));
            if !self.world.delete(&reference) {
                self.note_refused(&reference.to_string(), "there is no such object");
            }
        }
        if let Some(stop) = &event.stop {
            self.stop_queue(stop.cluster_queue.as_deref(), stop.local_queue.as_deref(), &stop.policy);
        }
        if let Some(queue) = &event.resume {
            self.stop_queue(queue.cluster_queue.as_deref(), queue.local_queue.as_deref(), "None");
        }
        self.apply_node_events(&event);
    }

    /// What an event of the scenario does to nodes.
    fn apply_node_events(&mut self, event: &ScenarioEvent) {
        if let Some(set) = &event.fail_nodes {
            self.fail_nodes(set);
        }
        if let Some(set) = &event.drain_nodes {
            self.drain_nodes(set);
        }
        if let Some(set) = &event.depart_nodes {
            self.depart_nodes(set);
        }
        if let Some(maintenance) = &event.announce_maintenance {
            self.announce_maintenance(&maintenance.nodes, after(self.now(), maintenance.in_));
        }
        if let Some(set) = &event.delete_nodes {
            self.delete_nodes(set);
        }
        if let Some(set) = &event.recover_nodes {
            self.recover_nodes(set);
        }
    }

    fn patch_named(&mut self, kind: &str, namespace: Option<&str>, name: &str, merge: &Value) {
        let Some(reference) = reference(kind, namespace, name) else { return };
        self.note(&format!("patch {reference}: {merge}"));
        if let Err(wrong) = self.patch_object(&reference, merge) {
            self.note_refused(&reference.to_string(), &wrong.message);
        }
    }

    fn stop_queue(&mut self, cluster: Option<&str>, local: Option<&str>, policy: &str) {
        let merge = json!({"spec": {"stopPolicy": policy}});
        if let Some(name) = cluster {
            self.patch_named("ClusterQueue", None, name, &merge);
        }
        if let Some((namespace, name)) = local.and_then(|l| l.split_once('/')) {
            self.patch_named("LocalQueue", Some(namespace), name, &merge);
        }
    }

    /// The next job of a stream arrives, and the one after it is put on the agenda.
    pub(crate) fn arrive(&mut self, index: usize) {
        let now = self.now();
        let start = self.options.start;
        let Some(source) = self.play.arrivals.get_mut(index) else { return };
        let over = source.spec.count.is_some_and(|count| source.made >= count)
            || source.spec.to.is_some_and(|to| now > after(start, to));
        if over {
            return;
        }
        let number = source.made;
        source.made += 1;
        let (kind, run_time) = (source.kind, source.spec.run_time);
        self.next_arrival(index);
        let source = &self.play.arrivals[index];
        if !self.play.is_mine(source, number) {
            return;
        }
        let object = source.object(number);
        match self.put(kind, object) {
            Ok(reference) => {
                if let Some(run_time) = run_time {
                    self.pods.drawn.insert(reference, run_time);
                }
            }
            Err(error) => self.note_refused("arrivals", &error.to_string()),
        }
    }
}

impl Simulation {
    /// Puts the next job of a stream on the agenda. Jobs of other parts of the world are drawn, too, so that later jobs arrive at the same time as in
    /// the whole world.
    fn next_arrival(&mut self, index: usize) {
        let start = self.options.start;
        let mut at = self.now();
        let source = &mut self.play.arrivals[index];
        let endless = source.spec.count.is_none() && source.spec.to.is_none() && self.options.until.is_none();
        let ends =
            [source.spec.to, self.options.until].into_iter().flatten().min().map(|end| after(start, end));
        loop {
            let source = &mut self.play.arrivals[index];
            if endless || source.spec.count.is_some_and(|count| source.made >= count) {
                return;
            }
            // Two jobs in the same instant are fine; an endless number is not.
            at = after(at, source.spec.every.draw(&mut source.stream).max(SignedDuration::from_millis(1)));
            if ends.is_some_and(|end| at > end) {
                return;
            }
            let source = &self.play.arrivals[index];
            if self.play.is_mine(source, source.made) {
                self.agenda.put(at, Action::Arrival(index));
                return;
            }
            self.play.arrivals[index].made += 1;
        }
    }
}

/// The objects that an event applies.
fn manifests_of(
    event: &ScenarioEvent,
    source: &Source,
    files: &BTreeMap<String, String>,
    wrong: &mut impl FnMut(String),
) -> Vec<Manifest> {
    let mut all = Vec::new();
    for name in &event.apply {
        let Some(text) = files.get(name) else {
            wrong(format!("there is no file {name}"));
            continue;
        };
        let file = File { name: name.clone(), text: text.clone(), named: true };
        match Manifests::read(&[file]) {
            Ok(found) => all.extend(found.objects),
            Err(errors) => errors.into_iter().for_each(|e| wrong(e.to_string())),
        }
    }
    for object in &event.objects {
        match manifest::inline(object) {
            Ok((kind, object)) => all.push(Manifest { source: source.clone(), kind, object }),
            Err(why) => wrong(why),
        }
    }
    all
}

fn check_names(event: &ScenarioEvent, wrong: &mut impl FnMut(String)) {
    let kinds = event.patch.iter().map(|p| &p.kind).chain(event.delete.iter().map(|d| &d.kind));
    for kind in kinds {
        if kind_named(kind).is_none() {
            wrong(format!("expected a simulated kind, found {kind}"));
        }
    }
    for after in &event.after {
        if !after.job.contains('/') {
            wrong(format!("after: expected namespace/name, found {}", after.job));
        }
    }
    if let Some(stop) = &event.stop
        && !["Hold", "HoldAndDrain"].contains(&stop.policy.as_str())
    {
        wrong(format!("stop.policy: expected Hold or HoldAndDrain, found {}", stop.policy));
    }
}

/// The object that a user names.
pub(crate) fn reference(kind: &str, namespace: Option<&str>, name: &str) -> Option<ObjectRef> {
    let kind = kind_named(kind)?;
    let namespace = if kind.namespaced() { namespace.unwrap_or("default") } else { "" };
    Some(ObjectRef { kind, namespace: namespace.into(), name: name.into() })
}
