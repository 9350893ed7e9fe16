//! What is known of a job without trying anything: from its objects, and from the engine's account.

use jiff::Timestamp;
use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_engine::{Account, Kind, ObjectRef};

use super::advice::Advice;
use super::finding::{Code, Help, State, condition};
use super::view::View;
use super::{
    Event, Explained, MOST_LISTED, Question, capacity, checks, decided, deleted, lifecycle, pods, queues,
    started, topology, unqueued, unread,
};
use crate::json::text;
use crate::simulation::Simulation;

/// The job that controls a Workload.
pub(super) fn job_of(workload: &Value) -> Option<ObjectRef> {
    let mut owners = workload["metadata"]["ownerReferences"].as_array()?.iter();
    let owner = owners.find(|owner| owner["controller"] == true)?;
    let kind = JobKind::from_owner(text(&owner["apiVersion"]), text(&owner["kind"]))?;
    let namespace = text(&workload["metadata"]["namespace"]);
    Some(ObjectRef::namespaced(Kind::Job(kind), namespace, text(&owner["name"])))
}

/// The job that was read.
pub(super) fn job_read(job: &Value) -> Option<ObjectRef> {
    let kind = crate::object::kind_of(text(&job["apiVersion"]), text(&job["kind"]))?;
    Some(crate::object::reference(kind, job))
}

impl Explained {
    /// Takes in what an account says of the decision about a Workload that waits.
    pub(super) fn decided(
        &mut self,
        question: &Question<'_>,
        view: &View<'_>,
        workload: &Value,
        account: &Account,
    ) {
        self.findings.extend(question.decided(view, workload, account));
        self.topology = topology::fits(workload, &account.fits, question.names_nodes);
    }

    fn blank(job: &ObjectRef, workload: &str, state: State) -> Self {
        Self {
            job: format!("{}/{}", job.namespace, job.name),
            workload: workload.to_owned(),
            state,
            trace: None,
            priority: 0,
            cluster_queue: None,
            position: None,
            ahead: Vec::new(),
            findings: Vec::new(),
            checks: Vec::new(),
            pending_pods: Vec::new(),
            pending_pod_count: 0,
            topology: Vec::new(),
            reason: None,
            message: None,
            flavors: Vec::new(),
            history: Vec::new(),
            changes: Vec::new(),
            remedies: Vec::new(),
            forecast: None,
            no_forecast: None,
            not_played: 0,
            incomplete: false,
        }
    }

    /// Takes the remedies of the findings without trying them.
    pub(super) fn untried(mut self) -> Self {
        self.remedies =
            self.findings.iter().flat_map(|f| &f.helps).map(super::finding::Help::untried).collect();
        self
    }
}

impl Question<'_> {
    /// The job of the question, if it has no Workload.
    pub(super) fn unqueued(&self, simulation: &Simulation) -> Option<ObjectRef> {
        let kinds = JobKind::all().iter().copied().map(Kind::Job);
        let mut references = kinds
            .filter(|kind| self.kind.is_none_or(|wanted| wanted == *kind))
            .map(|kind| ObjectRef::namespaced(kind, self.namespace, self.name));
        references.find(|reference| simulation.object(reference).is_some())
    }

    /// A job that has no Workload.
    pub(super) fn not_queued(&self, view: &View<'_>, reference: &ObjectRef, job: &Value) -> Explained {
        let mut explained = Explained::blank(reference, "", State::NotQueued);
        let whole = self.whole_of(view, reference);
        explained.findings =
            unqueued::findings(view, &self.options.configuration, (reference, job), whole.as_ref());
        explained.no_forecast = Some("it is not queued".to_owned());
        if let Some(deleted) = deleted::own(job) {
            explained.findings.insert(0, deleted);
        }
        let events = self.manifests.subject.as_ref().map(|subject| subject.events.as_slice());
        let events = Event::all(events.unwrap_or_default());
        let warnings = events.iter().rev().filter(|event| event.warns).take(MOST_LISTED);
        let warnings =
            warnings.map(|event| format!("{} {}: {}", event.second(), event.reason, event.message));
        if let Some(without) = explained.findings.iter_mut().find(|f| f.code == Code::WithoutWorkload) {
            without.details.extend(warnings);
        }
        explained.findings.extend(unread::findings(self.unread()));
        explained.untried()
    }

    /// A Workload, by its object and what the engine says.
    pub(super) fn of_workload(
        &self,
        view: &View<'_>,
        workload: &Value,
        account: Option<&Account>,
        now: Timestamp,
    ) -> Explained {
        let own = crate::object::reference(Kind::Workload, workload);
        let state = lifecycle::state(workload);
        let job = job_of(workload).unwrap_or_else(|| own.clone());
        let mut explained = Explained::blank(&job, &own.name, state);
        explained.priority =
            workload["spec"]["priority"].as_i64().and_then(|p| i32::try_from(p).ok()).unwrap_or(0);
        explained.checks = checks::checks(view, workload);
        let admitted_by = text(&workload["status"]["admission"]["clusterQueue"]);
        explained.cluster_queue = Some(admitted_by).filter(|name| !name.is_empty()).map(Into::into);
        if matches!(state, State::Waiting | State::Deactivated) {
            let local = text(&workload["spec"]["queueName"]);
            let (found, queue) = queues::findings(view, &own.namespace, local, self.names());
            explained.cluster_queue = queue.map(Into::into);
            explained.findings = found;
        }
        let read = self.manifests.subject.as_ref().and_then(|subject| subject.job.as_ref());
        let deleted = deleted::own(workload).or_else(|| read.and_then(deleted::own));
        explained.findings.extend(deleted);
        explained.findings.extend(lifecycle::findings(view, workload, state, now, self.names_nodes));
        let not_moved = account.and_then(|account| account.not_moved.as_ref());
        let lost = explained.findings.iter_mut().find(|f| f.code == Code::NodesLost);
        if let Some((lost, why)) = lost.zip(not_moved) {
            lost.details.push(format!("it was not moved: {}", why.text));
            if let Some(barred) = &why.barred {
                let help = format!("make its ClusterQueue able to admit it, so that it can move: {barred}");
                lost.helps.push(Help::words(Advice::LetQueueTakeItBack, help));
                let local = text(&workload["spec"]["queueName"]);
                explained.findings.extend(queues::findings(view, &own.namespace, local, self.names()).0);
            }
            if why.no_room {
                let read = self.manifests.subject.as_ref().and_then(|subject| subject.job.as_ref());
                let job = read.or_else(|| view.get(&job));
                explained.findings.extend(capacity::not_moved(self.around(view), workload, job));
            }
        }
        let waits = condition(workload, "QuotaReserved").filter(|_| state == State::Waiting);
        let unready = condition(workload, "Admitted").filter(|_| state == State::Checking);
        if let Some(condition) = waits.or(unready) {
            explained.reason = Some(text(&condition["reason"]).to_owned());
            explained.message = Some(text(&condition["message"]).to_owned());
        }
        let blocked = explained.findings.iter().any(|f| f.code.waits_for_action());
        if let Some(account) = account.filter(|_| state == State::Waiting) {
            explained.position = account.position.as_ref().map(|p| p.in_cluster_queue);
            if !blocked {
                explained.findings.extend(decided::behind(account));
                explained.decided(self, view, workload, account);
            }
        }
        if let Some(subject) = self.manifests.subject.as_ref() {
            explained.history = self.past(&own);
            if state == State::Admitted {
                let (pods, count) = pods::pending(subject, workload);
                explained.findings.extend(pods::finding(&own, &pods, count, subject.more_pods));
                (explained.pending_pods, explained.pending_pod_count) = (pods, count);
                explained.findings.extend(started::not_running(subject, workload, &own, self.names_nodes));
                explained.findings.extend(started::missing(subject, workload, &job));
            }
        }
        explained.findings.extend(unread::findings(self.unread()));
        if state == State::Checking {
            explained.no_forecast = Some("how long the checks take is not known".to_owned());
        }
        explained.untried()
    }
}
