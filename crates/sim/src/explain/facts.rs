//! What is known of a job before anything is tried: from the engine of a running manager, else from the virtual one.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use sluice_api::slim::Workload;
use sluice_core::{Unadmitted, WorkloadKey};
use sluice_engine::{Account, Kind, ObjectRef, Stage};

use super::Question;
use super::events::{self, Reported};
use crate::duration::show;
use crate::record::JobRecord;
use crate::simulation::Simulation;

/// Lines of history that are shown.
const MOST_LINES: usize = 12;

/// Lines about what was before that are shown.
const MOST_PAST: usize = 20;

/// The facts from an engine.
pub(super) struct JobFacts {
    pub stage: Stage,
    pub ahead: Vec<WorkloadKey>,
    /// Why it was not admitted, if it waits.
    pub decision: Option<Unadmitted>,
    /// Reason and message of its condition, if it waits.
    condition: Option<(String, String)>,
    /// How its queues, Cohorts and flavors changed since it was made.
    pub changes: Vec<sluice_engine::Change>,
}

impl JobFacts {
    /// Why it waits, for programs.
    pub fn reason(&self) -> Option<String> {
        let decided = || self.decision.as_ref().map(|d| d.reason.as_str().to_owned());
        self.condition.as_ref().map(|(reason, _)| reason.clone()).or_else(decided)
    }

    /// Why it waits, for people.
    pub fn message(&self) -> Option<String> {
        let decided = || self.decision.as_ref().map(Unadmitted::message);
        self.condition.as_ref().map(|(_, message)| message.clone()).or_else(decided)
    }
}

impl Question<'_> {
    /// The facts about a job: from the manager if it leads, else from the virtual cluster, whose account is `account`.
    pub(super) fn facts(&self, account: Option<&Account>, record: &JobRecord) -> JobFacts {
        let mut facts = if let Some(account) = self.live.filter(|_| self.decides) {
            JobFacts {
                stage: account.stage,
                ahead: account.ahead.clone(),
                decision: account.decision.clone(),
                condition: account.condition.clone(),
                changes: account.changes.clone(),
            }
        } else {
            let stage = match (record.finished, holds_quota(record)) {
                (Some(_), _) => Stage::Finished,
                (None, true) => Stage::Admitted,
                (None, false) => Stage::Waiting,
            };
            let (ahead, decision, changes) =
                account.cloned().map(|a| (a.ahead, a.decision, a.changes)).unwrap_or_default();
            let condition = record.waits_for.as_ref().map(|(r, m)| (r.to_string(), m.to_string()));
            let mut facts = JobFacts { stage, ahead, decision, condition, changes };
            // What a manager knows that does not lead.
            if let Some(live) = self.live {
                facts.changes.clone_from(&live.changes);
                facts.condition = live.condition.clone().or(facts.condition);
            }
            facts
        };
        if facts.stage != Stage::Waiting {
            (facts.decision, facts.condition) = (None, None);
        }
        facts
    }

    /// The Workloads ahead of it, with their priority, and whether they came later.
    pub(super) fn ahead(
        &self,
        simulation: &Simulation,
        ahead: &[WorkloadKey],
        own: &ObjectRef,
    ) -> Vec<String> {
        let all = simulation.engine().workloads();
        let known: BTreeMap<ObjectRef, &Workload> = all
            .filter(|(r, _)| r == own || ahead.iter().any(|k| k.namespace == r.namespace && k.name == r.name))
            .collect();
        let made = |w: &&Workload| w.metadata.creation_timestamp.as_ref().map(|t| t.0);
        let own_made = known.get(own).and_then(made);
        let line = |key: &WorkloadKey| {
            let who = self.shown(&key.namespace, &key.name);
            let reference = ObjectRef::namespaced(Kind::Workload, key.namespace.clone(), key.name.clone());
            let Some(workload) = known.get(&reference) else { return who };
            let priority = workload.spec.priority.unwrap_or(0);
            let later = made(workload).zip(own_made).map(|(its, own)| its.as_second() - own.as_second());
            match later.filter(|seconds| *seconds > 0) {
                Some(later) => {
                    format!("{who} (priority {priority}, came {} later)", show(later.saturating_mul(1000)))
                }
                None => format!("{who} (priority {priority})"),
            }
        };
        ahead.iter().map(line).collect()
    }

    /// The changes as lines. Their times count from the beginning of a simulation; with a manager they are clock times.
    pub(super) fn changes(&self, simulation: &Simulation, changes: &[sluice_engine::Change]) -> Vec<String> {
        let record = simulation.record();
        let line = |change: &sluice_engine::Change| {
            let at = if self.live.is_some() { change.at.to_string() } else { show(record.millis(change.at)) };
            format!("{at} {} {}: {}", change.object.kind.as_str(), change.object.name, change.what.join(", "))
        };
        let lines: Vec<_> = changes.iter().map(line).collect();
        lines[lines.len().saturating_sub(MOST_LINES)..].to_vec()
    }

    /// The history of a job: from its conditions before the simulation began, then from the simulation.
    pub(super) fn history(
        &self,
        simulation: &Simulation,
        job: &ObjectRef,
        workload: &ObjectRef,
    ) -> Vec<String> {
        let mut lines = self.past(workload);
        let record = simulation.record();
        let own = |e: &&crate::TimelineEntry| {
            e.job.is_some_and(|i| {
                let j = &record.jobs[i];
                j.kind == job.kind && j.namespace == job.namespace && j.name == job.name
            })
        };
        // A job from a cluster was not submitted in the simulation.
        let begun = lines.is_empty();
        let own = record.entries.iter().filter(own).filter(|e| begun || e.what.word() != "submitted");
        lines.extend(own.map(|e| {
            let text = format!("{} {} {}", crate::duration::show(e.at), e.what.word(), e.what.details());
            text.trim_end().to_owned()
        }));
        lines.split_off(lines.len().saturating_sub(MOST_LINES))
    }

    /// The conditions that a Workload had when it was read, and the events that they no longer cover, oldest first.
    pub(super) fn past(&self, workload: &ObjectRef) -> Vec<String> {
        let subject = self.manifests.subject.as_ref().and_then(|subject| subject.workload.as_ref());
        let of = |m: &&crate::Manifest| {
            m.kind == Kind::Workload && crate::object::reference(m.kind, &m.object) == *workload
        };
        let read = || self.manifests.objects.iter().find(of).map(|manifest| &manifest.object);
        let Some(object) = subject.or_else(read) else { return Vec::new() };
        let status = &object["status"]["conditions"];
        let all: Vec<Condition> = serde_json::from_value(status.clone()).unwrap_or_default();
        let subject = self.manifests.subject.as_ref();
        let events = subject.map(|subject| subject.events.as_slice()).unwrap_or_default();
        let mut lines = events::lines(events, &all, self.all_namespaces);
        lines.extend(all.iter().map(Reported::condition));
        Reported::in_order(&mut lines);
        let unread = subject.is_some_and(|subject| subject.no_events);
        let note = unread.then(|| "the events about it could not be read".to_owned());
        let last = lines.split_off(lines.len().saturating_sub(MOST_PAST));
        note.into_iter().chain(last.into_iter().map(|last| last.line)).collect()
    }
}

/// Whether a job has quota now.
pub(super) fn holds_quota(record: &JobRecord) -> bool {
    record.holds.last().is_some_and(|hold| hold.to.is_none())
}
