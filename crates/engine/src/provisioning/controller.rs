//! What a Workload's provisioning checks need next (docs/reference/06-algorithm.md 6.23).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use sluice_api::conditions::{self, MAX_MESSAGE_BYTES, WorkloadCondition as Type, whole_seconds};
use sluice_api::gates::Gate;
use sluice_api::slim;
use sluice_api::v1beta2::{AdmissionCheckState, CheckState};
use sluice_core::{Name, WorkloadKey};

use super::REPORTER;
use super::names::{attempt_of, request_name, template_name};
use super::plan::Plan;
use super::seen::request_ref;
use super::template::TemplateSource;
use super::verdict::{self, Case, Step, Verdict};
use crate::effect::{Effect, Event, EventType, Level, Purpose, Write};
use crate::engine::{Alarm, Engine};
use crate::ingest::workload::{is, reserved};
use crate::input::{Kind, ObjectRef, WriteError};
use crate::outbox::{About, Open, normal};
use crate::retry::{REFUSALS, Retry};
use crate::world::workload_ref;

/// An attempt to be made.
struct Attempt {
    plan: Plan,
    name: String,
}

/// The outcome for one check.
struct CheckOutcome {
    /// The new state of the check.
    verdict: Option<Verdict>,
    /// The request to make.
    attempt: Option<Attempt>,
    /// The requests that stay.
    keep: Vec<(Name, Name)>,
}

impl Engine {
    /// Takes away what was asked for when the Workload is finished or evicted, or lost its reservation otherwise: the next one may be in another
    /// queue, on another flavor, or of another size.
    pub(crate) fn sweep_requests(&mut self, key: &WorkloadKey) {
        if !self.config.provisioning {
            return;
        }
        let entry = &self.world.workloads[key];
        let status = entry.status();
        let (finished, evicted) = (is(status, Type::Finished), is(status, Type::Evicted));
        if !finished && !evicted && reserved(status) {
            return;
        }
        if self.made.refused.is_empty() && self.world.requests_by_owner.is_empty() {
            return;
        }
        let uid = entry.uid();
        // What was refused for this reservation may be taken for the next one.
        for object in self.made.refused.remove(key).into_iter().flat_map(BTreeMap::into_keys) {
            if let Some(entry) = self.statuses.get_mut(&object) {
                entry.retry = Retry::default();
            }
        }
        if finished || !evicted || self.config.on(Gate::CleanupProvisioningRequestsOnEviction) {
            self.remove_requests(key, &uid, &BTreeSet::new());
        }
    }

    /// Does what the provisioning checks of a Workload with quota need; says whether it wrote to the Workload.
    pub(crate) fn reconcile_provisioning(&mut self, key: &WorkloadKey) -> bool {
        let entry = &self.world.workloads[key];
        let checks = &entry.status().admission_checks;
        if !checks.iter().any(|c| self.provisions(&c.name)) {
            return false;
        }
        let uid = entry.uid();
        let mut next = entry.status().clone();
        let (mut keep, mut attempts, mut then) = (BTreeSet::new(), Vec::new(), Vec::new());
        for check in &mut next.admission_checks {
            if !self.provisions(&check.name) {
                continue;
            }
            let outcome = self.look_at(key, check);
            keep.extend(outcome.keep);
            attempts.extend(outcome.attempt);
            if let Some(verdict) = outcome.verdict {
                then.extend(self.say(key, check, verdict));
            }
        }
        self.remove_requests(key, &uid, &keep);
        for request in &keep {
            self.hand_over_templates(key, request);
        }
        for attempt in attempts {
            self.make(key, &attempt);
        }
        if next.admission_checks == self.world.workloads[key].status().admission_checks {
            return false;
        }
        self.write_checks(key, next, then);
        true
    }

    fn look_at(&self, key: &WorkloadKey, check: &AdmissionCheckState) -> CheckOutcome {
        let entry = &self.world.workloads[key];
        let Some(config) = self.provisioning_config(&check.name) else {
            return self.without_config(key, check);
        };
        let admitted = is(entry.status(), Type::Admitted);
        let Some(plan) = Plan::of(&entry.object, entry.status(), config) else {
            let keep = if admitted { self.requests_of_check(key, check) } else { Vec::new() };
            return CheckOutcome { verdict: Some(not_needed()), attempt: None, keep };
        };
        let retries = check.retry_count.unwrap_or(0);
        let pending = check.state == CheckState::Pending;
        let attempt = |n: i32, plan: Plan, keep: Vec<_>| {
            if pending && admitted {
                // It runs already, and would use no node that comes now.
                return CheckOutcome { verdict: Some(not_needed()), attempt: None, keep };
            }
            let name = request_name(&key.name, &check.name, n);
            // One that the API server does not take has failed.
            let refusal = self.refusal(key, &name, &plan).filter(|_| pending);
            if let Some(text) = refusal {
                let uid = entry.uid();
                let verdict = verdict::failed(config, n, retries, &uid, verdict::AFTER_FAILURE, text);
                return CheckOutcome { verdict: Some(verdict), attempt: None, keep };
            }
            CheckOutcome { verdict: None, attempt: pending.then_some(Attempt { plan, name }), keep }
        };
        let Some((number, request_key, request)) = self.current(key, check, &plan) else {
            return attempt(retries.saturating_add(1), plan, Vec::new());
        };
        let case = Case {
            request,
            attempt: number,
            plan: &plan,
            config,
            state: check.state,
            retries,
            admitted,
            active: entry.object.spec.active,
            uid: &entry.uid(),
            old_annotations: self.config.old_provisioning_annotations,
        };
        let keep = vec![request_key];
        match case.step() {
            Step::Wait => CheckOutcome { verdict: None, attempt: None, keep },
            Step::Say(verdict) => CheckOutcome { verdict: Some(verdict), attempt: None, keep },
            Step::NextAttempt => attempt(number.saturating_add(1), plan, keep),
        }
    }

    /// Why an attempt cannot be made: the API server has refused it, or a template of it, too often in a row, and not for want of rights.
    fn refusal(&self, key: &WorkloadKey, request: &str, plan: &Plan) -> Option<&str> {
        let refused = self.made.refused.get(key)?;
        let templates: Vec<_> =
            plan.groups.iter().map(|group| template_name(request, &group.pod_sets[0])).collect();
        let belongs = |object: &ObjectRef| match object.kind {
            Kind::PodTemplate => templates.iter().any(|name| **name == *object.name),
            _ => *object.name == *request,
        };
        let found = refused.iter().find(|(object, refused)| belongs(object) && refused.count >= REFUSALS);
        found.map(|(_, refused)| &*refused.text)
    }

    /// A check whose configuration does not exist: requests that it did not get are not wanted any more (docs/reference/11-observed.md 11.1.16);
    /// decisions stay, and so does what pods run on.
    fn without_config(&self, key: &WorkloadKey, check: &AdmissionCheckState) -> CheckOutcome {
        let pending = check.state == CheckState::Pending;
        let verdict = pending.then(|| Verdict::plain(CheckState::Pending, "the check is not active"));
        let gone = self.listed.contains(&Kind::ProvisioningRequestConfig);
        let admitted = is(self.world.workloads[key].status(), Type::Admitted);
        let keep = if pending && gone && !admitted { Vec::new() } else { self.requests_of_check(key, check) };
        CheckOutcome { verdict, attempt: None, keep }
    }

    /// The requests of all attempts for a check.
    fn requests_of_check(&self, key: &WorkloadKey, check: &AdmissionCheckState) -> Vec<(Name, Name)> {
        let mut all = self.world.requests_of(&self.world.workloads[key].uid());
        all.retain(|(_, name)| attempt_of(name, &key.name, &check.name).is_some());
        all
    }

    /// The latest attempt that requests what is wanted. One that has its nodes stays whatever is wanted now, and so does what pods run on.
    fn current(
        &self,
        key: &WorkloadKey,
        check: &AdmissionCheckState,
        plan: &Plan,
    ) -> Option<(i32, (Name, Name), &slim::ProvisioningRequest)> {
        let entry = &self.world.workloads[key];
        let stays = check.state == CheckState::Ready || is(entry.status(), Type::Admitted);
        let owned = self.world.requests_of(&entry.uid()).into_iter().filter_map(|request_key| {
            let request = self.world.provisioning_requests.get(&request_key)?;
            let wanted = stays || plan.matches(request);
            let usable = wanted
                && request.metadata.deletion_timestamp.is_none()
                && !self.is_being_deleted(&request_key);
            let number = attempt_of(&request_key.1, &key.name, &check.name).filter(|_| usable)?;
            Some((number, request_key, &**request))
        });
        owned.max_by_key(|(number, ..)| *number)
    }

    /// Whether the deletion of a request was not answered yet.
    fn is_being_deleted(&self, request_key: &(Name, Name)) -> bool {
        let open = self.statuses.get(&request_ref(request_key)).and_then(|entry| entry.open);
        open.is_some_and(|id| self.outbox.purpose(id) == Some(Purpose::DeleteRequest))
    }

    /// Sets the state of a check; returns the effects that report it.
    fn say(&self, key: &WorkloadKey, check: &mut AdmissionCheckState, verdict: Verdict) -> Option<Effect> {
        let message = conditions::truncate(&verdict.message, MAX_MESSAGE_BYTES);
        let before = check.state;
        if before == verdict.state && (before == CheckState::Ready || check.message == message) {
            return None;
        }
        message.clone_into(&mut check.message);
        if before == verdict.state {
            return None;
        }
        check.state = verdict.state;
        check.last_transition_time = Time(whole_seconds(self.now));
        check.requeue_after_seconds = verdict.requeue_after_seconds;
        check.pod_set_updates = verdict.updates;
        let mut note =
            format!("Admission check {} updated state from {before:?} to {:?}", check.name, check.state);
        if !message.is_empty() {
            note = format!("{note} with message: {message}");
        }
        let uid = self.world.workloads[key].uid();
        Some(normal(About::new(&workload_ref(key), &uid, REPORTER), "AdmissionCheckUpdated", note))
    }

    /// Deletes the requests of a Workload that are not among `keep`.
    fn remove_requests(&mut self, key: &WorkloadKey, uid: &str, keep: &BTreeSet<(Name, Name)>) {
        for request_key in self.world.requests_of(uid) {
            let Some(request) = self.world.provisioning_requests.get(&request_key) else { continue };
            if keep.contains(&request_key) || request.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let write = Write::Delete {
                uid: request.metadata.uid.as_deref().map(Arc::from),
                grace_period_seconds: None,
                foreground: false,
            };
            // Templates that are not its own yet would stay behind.
            let templates = templates_of(request, &request_key.0);
            self.hand_over_templates(key, &request_key);
            if !templates.iter().all(|template| self.is_handed_over(template)) {
                continue;
            }
            let object = request_ref(&request_key);
            let then = vec![self.log(
                Level::Info,
                "provisioning request deleted",
                &[("workload", key), ("request", &object)],
            )];
            self.write_for(key, &object, Purpose::DeleteRequest, write, then);
        }
    }

    /// Sends a write on an object that was created for a Workload, unless one is open or must wait.
    fn write_for(
        &mut self,
        key: &WorkloadKey,
        object: &ObjectRef,
        purpose: Purpose,
        write: Write,
        then: Vec<Effect>,
    ) {
        self.made.owners.insert(object.clone(), key.clone());
        let entry = self.statuses.entry(object.clone()).or_default();
        if entry.open.is_some() {
            return;
        }
        if let Some(until) = entry.retry.until().filter(|until| *until > self.now) {
            return self.wake_at(until, Alarm::Object(object.clone()));
        }
        entry.open = Some(self.outbox.write(object.clone(), purpose, write, then));
    }

    /// Makes an attempt: first the templates, then the request that names them.
    fn make(&mut self, key: &WorkloadKey, attempt: &Attempt) {
        let object = ObjectRef::namespaced(
            Kind::ProvisioningRequest,
            Arc::clone(&key.namespace),
            attempt.name.as_str(),
        );
        // An object of that name that is being deleted must be gone first.
        let taken = (Arc::clone(&object.namespace), Arc::clone(&object.name));
        if self.world.provisioning_requests.contains_key(&taken) {
            return;
        }
        let mut complete = true;
        for group in &attempt.plan.groups {
            let source = self.template_source(key, &attempt.name, &group.pod_sets[0]);
            let template =
                ObjectRef::namespaced(Kind::PodTemplate, Arc::clone(&key.namespace), source.name.as_str());
            // A template left from an attempt whose request was never made may be for other flavors.
            let added = source.added().into_boxed_str();
            let before = self.made.added.insert(template.clone(), added.clone());
            if before.is_some_and(|before| before != added) {
                self.made.templates.remove(&template);
            }
            if !self.made.templates.contains(&template) {
                complete = false;
                let write = Write::CreatePodTemplate(Box::new(source));
                self.write_for(key, &template, Purpose::CreateTemplate, write, Vec::new());
            }
        }
        if !complete {
            return;
        }
        let entry = &self.world.workloads[key];
        let write = Write::Create(Box::new(attempt.plan.request(&attempt.name, &entry.object)));
        let reported = Effect::Event(Event {
            object: workload_ref(key),
            uid: entry.uid(),
            type_: EventType::Normal,
            reason: "ProvisioningRequestCreated".to_owned(),
            action: "Created".to_owned(),
            note: format!("Created ProvisioningRequest: {:?}", attempt.name),
            reporter: REPORTER,
            attempt: None,
        });
        let logged = self.log(
            Level::Info,
            "provisioning request created",
            &[("workload", key), ("request", &attempt.name), ("class", &attempt.plan.class)],
        );
        self.write_for(key, &object, Purpose::CreateRequest, write, vec![reported, logged]);
    }

    fn template_source(&self, key: &WorkloadKey, request: &str, pod_set: &str) -> TemplateSource {
        let entry = &self.world.workloads[key];
        let admission = entry.status().admission.as_ref();
        let at = entry.object.spec.pod_sets.iter().position(|set| set.name == pod_set);
        let assignment = at.and_then(|at| admission?.pod_set_assignments.get(at));
        let mut flavors: Vec<_> = assignment.into_iter().flat_map(|a| a.flavors.values()).collect();
        flavors.sort_unstable();
        flavors.dedup();
        let (mut node_selector, mut tolerations) = (Vec::new(), Vec::new());
        for flavor in flavors.into_iter().filter_map(|f| self.world.flavors.get(f.as_str())) {
            node_selector.extend(flavor.spec.node_labels.clone());
            tolerations.extend(flavor.spec.tolerations.iter().cloned());
        }
        TemplateSource {
            workload: workload_ref(key),
            uid: entry.uid().to_string(),
            pod_set: pod_set.to_owned(),
            name: template_name(request, pod_set),
            node_selector,
            tolerations,
        }
    }

    /// Makes the templates of a request its own, so that they go with it.
    fn hand_over_templates(&mut self, key: &WorkloadKey, request_key: &(Name, Name)) {
        let Some(request) = self.world.provisioning_requests.get(request_key) else { return };
        let api_version = match request.api_version.as_str() {
            "" => Kind::ProvisioningRequest.api_version(),
            served => served.to_owned(),
        };
        let owner = json!({
            "apiVersion": api_version,
            "kind": Kind::ProvisioningRequest.as_str(),
            "name": request.metadata.name,
            "uid": request.metadata.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        });
        for template in templates_of(request, &request_key.0) {
            if !self.made.moved.contains(&template) {
                let body = json!({"metadata": {"ownerReferences": [owner.clone()]}});
                let write = Write::MergePatch { subresource: None, body };
                self.write_for(key, &template, Purpose::MoveTemplate, write, Vec::new());
            }
        }
    }

    /// Whether a template belongs to its request, or cannot be made to: that must not keep what the request holds.
    fn is_handed_over(&self, template: &ObjectRef) -> bool {
        let failed = || self.statuses.get(template).is_some_and(|entry| entry.retry.until().is_some());
        self.made.moved.contains(template) || failed()
    }

    /// Something that was made for a Workload was written.
    pub(crate) fn made_for_workload(&mut self, open: &Open) {
        self.made.forget_refusals(&open.object);
        match open.purpose {
            Purpose::CreateTemplate => {
                self.made.templates.insert(open.object.clone());
            }
            Purpose::MoveTemplate => {
                self.made.moved.insert(open.object.clone());
            }
            Purpose::DeleteRequest => self.forget_object(&open.object, None),
            _ => {}
        }
    }

    /// Something could not be made for a Workload, or handed over.
    pub(crate) fn not_made(&mut self, open: &Open, error: &WriteError) {
        if open.purpose == Purpose::MoveTemplate && matches!(error, WriteError::NotFound(_)) {
            // Nothing is left to hand over.
            self.made.moved.insert(open.object.clone());
        }
        if !matches!(open.purpose, Purpose::CreateTemplate | Purpose::CreateRequest) {
            return;
        }
        let WriteError::Refused(why) = error else {
            return self.made.forget_refusals(&open.object);
        };
        let (kind, name) = (open.object.kind.as_str(), &open.object.name);
        // Rights are for an administrator to give, and another attempt would fare no better.
        let counts = !error.is_of_rights();
        self.made.count_refusal(&open.object, counts, format!("{kind} {name:?} is refused: {why}"));
    }
}

/// A Workload without a request of its own, which it can do without.
fn not_needed() -> Verdict {
    Verdict::plain(CheckState::Ready, "the provisioning request is not needed")
}

/// The templates that a request names.
fn templates_of(request: &slim::ProvisioningRequest, namespace: &Name) -> Vec<ObjectRef> {
    let names = request.spec.pod_sets.iter().map(|set| set.pod_template_ref.name.as_str());
    let names = names.filter(|name| !name.is_empty());
    names.map(|name| ObjectRef::namespaced(Kind::PodTemplate, Arc::clone(namespace), name)).collect()
}
