//! The load: Workloads or Jobs are created class by class in every queue, run once they are admitted, and end.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures::TryStreamExt as _;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::objects::{self, Seen};
use super::plan::{Class, Race, Work};
use crate::{ControlPlane, patient_client_of};

/// The load's own writes, so that they are not counted as the manager's.
#[derive(Clone, Debug, Default)]
pub struct Load {
    /// How many were made.
    pub made: usize,
    /// The waiting times of each class until the first admission.
    pub waited: BTreeMap<&'static str, Vec<Duration>>,
    /// Status writes of its own.
    pub status_writes: u64,
    /// Of these, refused as conflicts.
    pub conflicts: u64,
    /// The number of evictions.
    pub evictions: u64,
    /// From the end of one in a queue with waiting ones to the next admission or start that is seen there.
    pub next: Vec<Duration>,
    ended: usize,
}

/// A Workload or Job of the load.
struct Entry {
    class: &'static Class,
    queue: Arc<str>,
    made: Instant,
    /// When the admission was made that it runs on, as the object says.
    runs_since: Option<String>,
    /// How often it has started: two runs within a second have the same time.
    starts: usize,
    /// Whether its end is written, or being written.
    over: bool,
    /// Whether it is evicted.
    leaves: bool,
    /// Whether its quota is being given back.
    leaving: bool,
}

impl Entry {
    fn new(class: &'static Class, queue: Arc<str>, made: Instant) -> Self {
        let (runs_since, starts) = (None, 0);
        Self { class, queue, made, runs_since, starts, over: false, leaves: false, leaving: false }
    }

    /// The number of the run that begins with that admission, unless it is the one that continues.
    fn starts_at(&mut self, admitted: &str) -> Option<usize> {
        if self.runs_since.is_some() {
            return None;
        }
        self.runs_since = Some(admitted.to_owned());
        self.starts += 1;
        Some(self.starts)
    }

    /// The queue of one whose run of that number ends; nothing if another run continues, or none.
    fn ends(&mut self, start: usize) -> Option<Arc<str>> {
        let goes_on = self.runs_since.is_some() && self.starts == start;
        (goes_on && !std::mem::replace(&mut self.over, true)).then(|| Arc::clone(&self.queue))
    }
}

/// What is known of a queue. Times are those of any one clock.
#[derive(Default)]
pub(super) struct Queue {
    /// How many wait.
    waiting: usize,
    /// When the first one ended since the last admission.
    freed: Option<Duration>,
}

impl Queue {
    /// A Workload or Job waits, for the first time or again.
    pub(super) const fn waits(&mut self) {
        self.waiting += 1;
    }

    /// A Workload or Job has ended. The delay counts only if another one waits.
    pub(super) fn ended(&mut self, now: Duration) {
        if self.waiting > 0 {
            self.freed.get_or_insert(now);
        }
    }

    /// A Workload or Job is admitted or started: the time since the first end before it, if it waited then.
    pub(super) fn runs(&mut self, now: Duration) -> Option<Duration> {
        self.waiting = self.waiting.saturating_sub(1);
        self.freed.take().map(|freed| now.saturating_sub(freed))
    }
}

struct State {
    load: Load,
    entries: HashMap<String, Entry>,
    queues: HashMap<Arc<str>, Queue>,
    began: Instant,
}

impl Default for State {
    fn default() -> Self {
        let (load, entries, queues) = (Load::default(), HashMap::new(), HashMap::new());
        Self { load, entries, queues, began: Instant::now() }
    }
}

impl State {
    /// A Workload or Job waits, for the first time or again.
    fn waits(&mut self, queue: &Arc<str>) {
        self.queues.entry(Arc::clone(queue)).or_default().waits();
    }

    /// A Workload or Job has ended.
    fn ended(&mut self, queue: &str) {
        let now = self.began.elapsed();
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.ended(now);
        }
    }

    /// A Workload or Job was seen admitted or running.
    fn runs(&mut self, queue: &str) {
        let now = self.began.elapsed();
        self.load.next.extend(self.queues.get_mut(queue).and_then(|queue| queue.runs(now)));
    }
}

/// The shared state of the tasks.
#[derive(Clone)]
struct Shared {
    api: Api<DynamicObject>,
    work: Work,
    state: Arc<Mutex<State>>,
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the Workloads or Jobs of a class in a queue, one after the other.
    async fn generate(self, class: &'static Class, queue: String, count: usize) -> Result<()> {
        let mut pace = tokio::time::interval(class.interval);
        pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let queue: Arc<str> = queue.into();
        for number in 0..count {
            pace.tick().await;
            let name = format!("{queue}-{}-{number}", class.name);
            let made = Instant::now();
            let entry = Entry::new(class, Arc::clone(&queue), made);
            {
                let mut state = self.locked();
                state.waits(&entry.queue);
                state.entries.insert(name.clone(), entry);
            }
            let object = serde_json::from_value(objects::of(self.work, &name, &queue, class))?;
            self.api.create(&PostParams::default(), &object).await.context("making one")?;
        }
        Ok(())
    }

    /// Processes the new state of a Workload or Job.
    fn saw(&self, object: &DynamicObject, tasks: &mut JoinSet<Result<()>>) {
        let Some(name) = object.metadata.name.clone() else { return };
        let Seen { runs_since, evicted, holds, finished } = objects::seen(self.work, object);
        let mut state = self.locked();
        let State { load, entries, .. } = &mut *state;
        let Some(entry) = entries.get_mut(&name) else { return };
        let queue = Arc::clone(&entry.queue);
        // A Job says nothing of its eviction: it is suspended after it ran.
        let evicted = evicted || self.work == Work::Jobs && entry.starts > 0 && runs_since.is_none();
        let left = std::mem::replace(&mut entry.leaves, evicted);
        load.evictions += u64::from(evicted && !left && !finished);
        if holds && !finished && !std::mem::replace(&mut entry.leaving, true) {
            tasks.spawn(self.clone().end_later(name.clone()));
        }
        let Some(admitted) = runs_since.filter(|_| !finished && !evicted) else {
            if entry.runs_since.take().is_some() && !finished {
                state.waits(&queue);
            }
            return;
        };
        if entry.starts == 0 {
            load.waited.entry(entry.class.name).or_default().push(entry.made.elapsed());
        }
        if let Some(start) = entry.starts_at(&admitted) {
            tasks.spawn(self.clone().end_after(name, entry.class.run, start, admitted));
            state.runs(&queue);
        }
    }

    /// Starts one, and says that it has finished, unless it was evicted meanwhile.
    async fn end_after(self, name: String, run: Duration, start: usize, since: String) -> Result<()> {
        tokio::time::sleep(run).await;
        let queue = self.locked().entries.get_mut(&name).and_then(|entry| entry.ends(start));
        let Some(queue) = queue else { return Ok(()) };
        let status = objects::end(self.work, &name, &since);
        let by = PatchParams::apply("race").force();
        self.api.patch_status(&name, &by, &Patch::Apply(status)).await.context("ending one")?;
        let mut state = self.locked();
        state.load.status_writes += 1;
        state.load.ended += 1;
        state.ended(&queue);
        Ok(())
    }

    /// Reports that an evicted Workload or Job no longer runs.
    async fn end_later(self, name: String) -> Result<()> {
        let done = match self.work {
            Work::Workloads => self.release(&name).await,
            Work::Jobs => {
                let by = PatchParams::apply("race").force();
                let status = Patch::Apply(objects::stopped(&name));
                self.locked().load.status_writes += 1;
                self.api.patch_status(&name, &by, &status).await.map(drop).context("answering a stop")
            }
        };
        if let Some(entry) = self.locked().entries.get_mut(&name) {
            entry.leaving = false;
        }
        done
    }

    /// Gives the quota of a Workload back.
    async fn release(&self, name: &str) -> Result<()> {
        loop {
            let object = self.api.get(name).await.context("reading a Workload")?;
            let mut conditions = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
            if conditions.iter().any(|condition| condition["type"] == "Finished") {
                return Ok(());
            }
            for condition in &mut conditions {
                if condition["type"] == "QuotaReserved" || condition["type"] == "Admitted" {
                    condition["status"] = json!("False");
                    condition["reason"] = json!("Pending");
                    condition["message"] = json!("By the race");
                }
            }
            let patch = json!({
                "metadata": {"resourceVersion": object.metadata.resource_version},
                "status": {"admission": Value::Null, "conditions": conditions},
            });
            let answer = self.api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await;
            self.locked().load.status_writes += 1;
            match answer {
                Ok(_) => return Ok(()),
                Err(kube::Error::Api(status)) if status.code == 409 => self.locked().load.conflicts += 1,
                Err(error) => return Err(error).context("giving the quota of a Workload back"),
            }
        }
    }
}

/// Plays the load until all have ended.
pub async fn play(plane: &ControlPlane, race: &Race) -> Result<Load> {
    let client: Client = patient_client_of(&plane.kubeconfig_path()).await?;
    let api = objects::api(race.work, &client);
    let shared = Shared { api: api.clone(), work: race.work, state: Arc::default() };
    let mut tasks = JoinSet::new();
    for (_, queue) in race.queues() {
        for class in race.classes {
            tasks.spawn(shared.clone().generate(class, queue.clone(), class.count(race.per_queue)));
        }
    }
    let made = race.total();
    shared.locked().load.made = made;
    let until = tokio::time::Instant::now() + race.limit;
    let mut seen = Box::pin(watcher(api, watcher::Config::default()));
    loop {
        if shared.locked().load.ended == made {
            let load = shared.locked().load.clone();
            return Ok(load);
        }
        tokio::select! {
            event = seen.try_next() => match event.context("watching what was made")? {
                Some(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => shared.saw(&object, &mut tasks),
                Some(_) => {}
                None => bail!("the watch ended"),
            },
            Some(done) = tasks.join_next() => done.context("a task of the load")??,
            () = tokio::time::sleep_until(until) => {
                bail!("{} of {made} ended within {:?}", shared.locked().load.ended, race.limit)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::race::plan::CLASSES;

    #[test]
    fn of_two_runs_within_a_second_only_the_second_ends_and_once() {
        let mut entry = Entry::new(&CLASSES[0], Arc::from("q"), Instant::now());
        let first = entry.starts_at("15:00:00").unwrap();
        assert_eq!(entry.starts_at("15:00:00"), None, "it continues");
        entry.runs_since = None;
        assert_eq!(entry.ends(first), None, "it was evicted");
        let second = entry.starts_at("15:00:00").unwrap();
        assert_eq!(entry.ends(first), None, "it is another run");
        assert!(entry.ends(second).is_some());
        assert_eq!(entry.ends(second), None, "it is over");
    }

    #[test]
    fn the_next_one_is_measured_from_the_first_end_while_others_wait() {
        let (mut queue, at) = (Queue::default(), Duration::from_millis);
        for _ in 0..3 {
            queue.waits();
        }
        assert_eq!(queue.runs(at(0)), None);
        queue.ended(at(10));
        queue.ended(at(12));
        assert_eq!(queue.runs(at(15)), Some(at(5)));
        assert_eq!(queue.runs(at(16)), None);
        queue.ended(at(20));
        queue.waits();
        assert_eq!(queue.runs(at(30)), None, "none waited");
    }
}
