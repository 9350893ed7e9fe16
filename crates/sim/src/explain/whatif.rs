//! What a change of a job would do: tried in the engine, next to what happens without it.

use jiff::SignedDuration;
use serde::Serialize;
use serde_json::Value;
use sluice_engine::{Kind, ObjectRef};

use super::explained::is_none;
use super::facts::holds_quota;
use super::finding::State;
use super::patch::{Patch, patch_of};
use super::remedy::{NOW, Tried};
use super::view::View;
use super::{ExplainError, Forecast, Question, deleted, known, lifecycle, unqueued};
use crate::record::{HoldEnd, JobRecord};
use crate::simulation::{SimError, Simulation};

/// A change of a job in a question, in bytes at most.
pub const MOST_CHANGE: usize = 64 << 10;

/// A change, and what it would do.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WhatIf {
    /// `namespace/name` of the job.
    pub job: String,
    /// The merge patch that was tried; of a group of pods, that of the first of them.
    pub change: Patch,
    /// The patches of the other pods of the group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<Patch>,
    /// Without it.
    pub before: Course,
    /// With it.
    pub after: Course,
    /// Objects around it that cannot be simulated, and are left out.
    #[serde(skip_serializing_if = "is_none")]
    pub not_played: usize,
    /// Whether time ran out before everything was tried.
    pub incomplete: bool,
}

/// How a job fares.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Course {
    /// How far it has come, and that this stays so; absent for a job that waits.
    pub state: Option<State>,
    /// Whether it is stopped first.
    pub stops: bool,
    /// Whether it starts at once.
    pub starts_now: bool,
    /// Whether it gets quota at once, and waits for admission checks then: these are not tried.
    pub gets_quota: bool,
    /// Jobs that are preempted for that.
    pub preempts: Vec<String>,
    /// When it starts, if not at once; absent if unknown.
    pub forecast: Option<Forecast>,
    /// Why it is not known when it starts.
    pub no_forecast: Option<String>,
    /// Why the change is refused, if it is.
    pub refused: Option<String>,
}

impl Course {
    /// The job stays in its state.
    fn stays(state: State) -> Self {
        Self { state: Some(state), ..Self::default() }
    }

    /// The job waits, and its start is not known for this reason.
    fn unknown(why: impl Into<String>) -> Self {
        Self { no_forecast: Some(why.into()), ..Self::default() }
    }

    /// The change of the job is refused for this reason.
    fn refused(why: String) -> Self {
        Self { refused: Some(why), ..Self::default() }
    }
}

/// Why a merge patch may not be tried: it changes a field that a user may not change of a job.
///
/// # Errors
/// With the problem, in words.
pub fn check_change(change: &Value) -> Result<(), String> {
    let form = "expected a merge patch of spec, metadata.labels or metadata.annotations, for example {\"spec\":{\"parallelism\":2}}";
    let fields = change.as_object().filter(|fields| !fields.is_empty()).ok_or(form)?;
    let in_metadata = |field: &String| ["labels", "annotations"].contains(&field.as_str());
    let good = fields.iter().all(|(field, value)| match (field.as_str(), value.as_object()) {
        ("spec", Some(_)) => true,
        ("metadata", Some(metadata)) => metadata.keys().all(in_metadata),
        _ => false,
    });
    if good { Ok(()) } else { Err(form.to_owned()) }
}

/// What is known of a waiting job before anything is tried.
#[derive(Default)]
struct Waiting {
    /// What a person or program has to do first.
    blocked: Option<String>,
    /// The manager refuses it for what cannot be tried here.
    refused: Option<String>,
}

impl Question<'_> {
    /// What a merge patch of the job would do.
    ///
    /// # Errors
    /// If there is no such job, or its world cannot be simulated.
    pub fn what_if(&self, change: &Value) -> Result<WhatIf, ExplainError> {
        if let Some(why) = self.why_not_tried() {
            return Err(ExplainError::Unread(why));
        }
        let simulation = self.world()?;
        let alone = |job: &ObjectRef| vec![patch_of(job, change.clone())];
        let (job, mut patches, courses) = if let Some((job, over)) = self.over() {
            let patches = alone(&job);
            (job, patches, (over.clone(), over))
        } else if let Some((job, why)) = self.own_left_out(&simulation) {
            let (patches, course) = (alone(&job), Course::unknown(why));
            (job, patches, (course.clone(), course))
        } else if let Ok(target) = self.find(&simulation) {
            let patches = target.patches(change);
            let courses = self.courses(&simulation, &patches, &target.job)?;
            (target.job, patches, courses)
        } else {
            let job = self.job_without_workload(&simulation).ok_or_else(|| self.not_found())?;
            let patches = alone(&job);
            let courses = self.not_queued_yet(&simulation, &patches, &job)?;
            (job, patches, courses)
        };
        let (before, after) = courses;
        let also = patches.split_off(1);
        let change = patches.pop().unwrap_or_else(|| patch_of(&job, change.clone()));
        Ok(WhatIf {
            job: self.shown(&job.namespace, &job.name),
            change,
            also,
            before,
            after,
            not_played: simulation.left_out().count,
            incomplete: self.patience.is_over(),
        })
    }

    /// The job whose Workload has ended or is about to be deleted, so that no change lets it start.
    fn over(&self) -> Option<(ObjectRef, Course)> {
        let subject = self.manifests.subject.as_ref()?;
        let workload = subject.workload.as_ref()?;
        let own = || crate::object::reference(Kind::Workload, workload);
        let job = known::job_of(workload).unwrap_or_else(own);
        if lifecycle::state(workload) == State::Finished {
            return Some((job, Course::stays(State::Finished)));
        }
        let goes = deleted::own(workload).or_else(|| subject.job.as_ref().and_then(deleted::own))?;
        Some((job, Course::unknown(goes.text)))
    }

    /// The courses of a job that has a Workload.
    fn courses(
        &self,
        present: &Simulation,
        patches: &[Patch],
        job: &ObjectRef,
    ) -> Result<(Course, Course), ExplainError> {
        let state = self.state_of(present, job);
        if !matches!(state, State::Waiting | State::Deactivated) {
            let after = match self.patched(present, patches) {
                Err(why) => Course::refused(why),
                Ok(changed) => self.goes_on(present, changed, job, state)?,
            };
            return Ok((Course::stays(state), after));
        }
        let known = self.waiting(present);
        let tried = self.starts_with(present, job, &[])?;
        let at_once = is_at_once(&tried);
        let blocked = known.blocked.clone();
        // Here, where it starts at once, the manager's reason does not exist.
        let not_here = known.blocked.or(known.refused).filter(|_| at_once);
        let before = match not_here.as_ref().or(blocked.as_ref()) {
            Some(why) => Course::unknown(why),
            None => self.course(present, job, tried, None)?,
        };
        let after = match self.patched(present, patches) {
            Err(why) => Course::refused(why),
            Ok(changed) => {
                let tried = self.starts_with(present, job, patches)?;
                match not_here {
                    // That it starts with the change proves nothing, either.
                    Some(why) if matches!(tried, Tried::Starts(..)) => Course::unknown(why),
                    _ => self.course(&changed, job, tried, blocked)?,
                }
            }
        };
        Ok((before, after))
    }

    /// Its state: in the cluster that was read, else in the virtual one.
    fn state_of(&self, simulation: &Simulation, job: &ObjectRef) -> State {
        let subject = self.manifests.subject.as_ref();
        if let Some(workload) = subject.and_then(|subject| subject.workload.as_ref()) {
            return lifecycle::state(workload);
        }
        match simulation.record().job(job) {
            Some(record) if record.finished.is_some() => State::Finished,
            Some(record) if holds_quota(record) => match record.holds.last() {
                Some(hold) if hold.admitted.is_none() => State::Checking,
                _ => State::Admitted,
            },
            _ => State::Waiting,
        }
    }

    /// The manager's reason for a waiting job, if a cluster was read.
    fn waiting(&self, present: &Simulation) -> Waiting {
        let subject = self.manifests.subject.as_ref();
        let Some(workload) = subject.and_then(|subject| subject.workload.as_ref()) else {
            return Waiting::default();
        };
        let view = View::read(self.manifests);
        let explained = self.of_workload(&view, workload, self.live, present.now());
        let mut findings = explained.findings.into_iter();
        let blocked = findings.find(|finding| finding.code.waits_for_action()).map(|finding| finding.text);
        let refused = self
            .refused_live(workload)
            .map(|(reason, _)| format!("the manager refuses it ({reason}); this cannot be simulated"));
        Waiting { blocked, refused }
    }

    /// The virtual cluster with patches, before any effect of them.
    ///
    /// # Errors
    /// In words, why the API server or the webhooks of jobs refuse one of them.
    pub(super) fn patched(&self, present: &Simulation, patches: &[Patch]) -> Result<Simulation, String> {
        let subject = self.manifests.subject.as_ref();
        let read = subject.and_then(|subject| subject.job.as_ref());
        let mut simulation = present.fork();
        simulation.options.until = None;
        for Patch { kind, namespace, name, merge } in patches {
            let namespace = Some(namespace.as_str()).filter(|namespace| !namespace.is_empty());
            let Some(object) = crate::play::reference(kind, namespace, name) else {
                return Err(format!("{kind} {name} is not simulated"));
            };
            // The webhooks see the job of the cluster; in the virtual one it may have started by now.
            let is_read = |job: &&Value| known::job_read(job).as_ref() == Some(&object);
            let old = read.filter(is_read).or_else(|| simulation.object(&object));
            if let (Kind::Job(kind), Some(old)) = (object.kind, old)
                && let Some(why) = simulation.refuses_change(kind, old, merge)
            {
                return Err(why);
            }
            let refused = |wrong| SimError::refused(kind, name, wrong).to_string();
            simulation.patch_judged(&object, merge).map_err(refused)?;
        }
        Ok(simulation)
    }

    /// How a job fares that waits, from what came of trying. `blocked`: what kept it before.
    fn course(
        &self,
        simulation: &Simulation,
        job: &ObjectRef,
        tried: Tried,
        blocked: Option<String>,
    ) -> Result<Course, ExplainError> {
        let queue = queue_of(simulation, job)?;
        let checks = queue.and_then(|queue| self.unknown_checks(simulation, &queue));
        let tried = if is_at_once(&tried) { tried } else { Tried::Waits };
        Ok(match (tried, checks) {
            (Tried::Starts(preempts, _), None) => Course { starts_now: true, preempts, ..Course::default() },
            (Tried::Starts(preempts, _), Some(_)) => {
                Course { gets_quota: true, preempts, ..Course::default() }
            }
            (_, Some(why)) => Course::unknown(blocked.unwrap_or(why)),
            (_, None) => match blocked {
                Some(why) => Course::unknown(why),
                None => self.waits(simulation, job)?,
            },
        })
    }

    /// When a job starts that waits.
    fn waits(&self, simulation: &Simulation, job: &ObjectRef) -> Result<Course, ExplainError> {
        let waits = |j: &JobRecord| j.finished.is_none() && !holds_quota(j);
        let forecast = if simulation.record().job(job).is_some_and(waits) {
            self.forecast(simulation, job)?
        } else {
            None
        };
        Ok(Course { forecast, ..Course::default() })
    }

    /// How a job fares with a change that has quota without it.
    fn goes_on(
        &self,
        present: &Simulation,
        mut changed: Simulation,
        job: &ObjectRef,
        state: State,
    ) -> Result<Course, ExplainError> {
        let Some(index) = present.record().index(job) else { return Ok(Course::stays(state)) };
        let before = present.record().jobs[index].holds.len();
        let preempted: Vec<_> = present.record().jobs.iter().map(|j| j.preempted).collect();
        changed.advance_while(NOW, || !self.patience.is_over())?;
        let record = changed.record();
        let own = &record.jobs[index];
        let goes_on = own.holds.last().is_none_or(|hold| hold.to.is_none() || hold.end == HoldEnd::Finished);
        if goes_on && own.holds.len() <= before {
            return Ok(Course::stays(state));
        }
        let stopped = |course: Course| Ok(Course { stops: true, ..course });
        let queue = own.cluster_queue.clone();
        let checks = queue.and_then(|queue| self.unknown_checks(&changed, &queue));
        if goes_on && own.holds.last().is_some_and(|hold| hold.admitted.is_some()) {
            let victims = record.jobs.iter().zip(&preempted).filter(|(j, n)| j.preempted > **n);
            let preempts = victims.map(|(j, _)| self.shown(&j.namespace, &j.name)).collect();
            let (starts_now, gets_quota) = (checks.is_none(), checks.is_some());
            return stopped(Course { starts_now, gets_quota, preempts, ..Course::default() });
        }
        if let Some(why) = checks {
            return stopped(Course::unknown(why));
        }
        let mut course = self.waits(&changed, job)?;
        if let Some(forecast) = &mut course.forecast {
            let later = |seconds: i64| seconds.saturating_add(NOW.as_secs());
            (forecast.p50, forecast.p90) = (forecast.p50.map(later), forecast.p90.map(later));
        }
        stopped(course)
    }

    /// The job of the question, if it has no Workload: from the cluster that was read, or from a world of files.
    fn job_without_workload(&self, simulation: &Simulation) -> Option<ObjectRef> {
        match &self.manifests.subject {
            Some(subject) => subject.job.as_ref().and_then(known::job_read),
            None => self.unqueued(simulation),
        }
    }

    /// The courses of a job that has no Workload: the change may give it one.
    fn not_queued_yet(
        &self,
        present: &Simulation,
        patches: &[Patch],
        job: &ObjectRef,
    ) -> Result<(Course, Course), ExplainError> {
        let subject = self.manifests.subject.as_ref();
        let read = subject.and_then(|subject| subject.job.as_ref());
        let not_queued = |simulation: &Simulation, value: Option<&Value>| {
            let view = View::Played(simulation);
            let value = value.or_else(|| simulation.object(job));
            let found = value.map(|value| {
                let whole = self.whole_of(&view, job);
                let configuration = &self.options.configuration;
                unqueued::findings(&view, configuration, (job, value), whole.as_ref()).into_iter().next()
            });
            let no_forecast = found.flatten().map(|finding| finding.text);
            Course { state: Some(State::NotQueued), no_forecast, ..Course::default() }
        };
        let before = not_queued(present, read);
        if present.object(job).is_none() {
            let why = "it has ended, is being deleted, or cannot be simulated, so the effect of a change is unknown";
            return Ok((
                before,
                Course { no_forecast: Some(why.to_owned()), ..Course::stays(State::NotQueued) },
            ));
        }
        let changed = match self.patched(present, patches) {
            Err(why) => return Ok((before, Course::refused(why))),
            Ok(changed) => changed,
        };
        let mut seen = changed.fork();
        seen.advance(SignedDuration::ZERO)?;
        let uid = seen.object(job).map(|job| job["metadata"]["uid"].as_str().unwrap_or_default().to_owned());
        if seen.workloads_of(&uid.unwrap_or_default()).next().is_none() {
            return Ok((before, not_queued(&seen, None)));
        }
        let tried = self.starts_with(present, job, patches)?;
        let after = self.course(&changed, job, tried, None)?;
        Ok((before, after))
    }
}

/// Whether a job starts without that time has to pass: nothing has to end before, but what it preempts.
fn is_at_once(tried: &Tried) -> bool {
    matches!(tried, Tried::Starts(preempts, wait) if *wait <= 0 || !preempts.is_empty())
}

/// The ClusterQueue of a job, once what was changed is seen.
fn queue_of(simulation: &Simulation, job: &ObjectRef) -> Result<Option<String>, ExplainError> {
    let mut seen = simulation.fork();
    seen.advance(SignedDuration::ZERO)?;
    Ok(seen.record().job(job).and_then(|record| record.cluster_queue.as_deref().map(str::to_owned)))
}
