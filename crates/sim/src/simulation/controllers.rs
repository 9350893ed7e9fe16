//! Plays the controllers of jobs and of admission checks, and the owners of Workloads without a job.

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_api::gates::Gates;
use sluice_api::job::JobKind;
use sluice_api::{conditions, slim};
use sluice_engine::{Kind, ObjectRef, is_superseded};
use sluice_jobs::State;
use sluice_jobs::pods::Member;

use super::Simulation;
use crate::agenda::{Action, after};
use crate::json::text;
use crate::nodes::{Assigned, Domain, Share, assigned};
use crate::object::looks_at_nodes;
use crate::pods::{Phase, deadline};

/// The message of the condition PodsReady (docs/reference/03-conditions-events.md).
const READY: &str = "All pods reached readiness and the workload is running";
const NOT_READY: &str = "Not all pods are ready or succeeded";

impl Simulation {
    /// Does what the job controller and the kubelets do for a job in its current state.
    pub(super) fn sync_job(&mut self, reference: &ObjectRef, kind: JobKind) {
        let Some(value) = self.world.get(reference) else { return };
        if sluice_jobs::finished(kind, value).is_some() {
            return;
        }
        match (!sluice_jobs::is_suspended(kind, value), self.pods.run(reference).map(|r| r.phase)) {
            (true, None) => self.start_pods(reference, kind),
            (false, Some(phase @ (Phase::Running { .. } | Phase::Broken))) => {
                let attempt = self.pods.run(reference).map_or(0, |r| r.attempt);
                self.pods.stop(reference);
                if let Phase::Running { since } = phase {
                    self.record.lost(reference, self.now.as_millisecond() - since.as_millisecond());
                }
                let at = after(self.now, self.pods.termination);
                self.agenda.put(at, Action::Gone(reference.clone(), attempt));
            }
            // After a restart its pods have nothing to do with the old ones.
            (false, None) => {
                self.machines.restarting.remove(reference);
                self.count_terminating(reference);
                self.world.answer_stop(reference, self.now);
            }
            // Pods that an elastic job no longer wants are ended.
            (true, Some(Phase::Running { since })) => {
                let before = &value["status"];
                let ready = before["ready"] == before["active"];
                let status = sluice_jobs::status(kind, value, State::Running { since, ready });
                if status["active"].as_i64() < before["active"].as_i64() {
                    self.set_job_status(reference, status);
                }
            }
            _ => {}
        }
    }

    fn start_pods(&mut self, reference: &ObjectRef, kind: JobKind) {
        if self.waits_for_old_pods(reference) {
            return;
        }
        // A job that was read from a cluster has run for a while.
        let known = self.known_start(reference);
        let share = self.share_of(reference, kind);
        let assigned = match &share {
            Some((share, domains, rank)) => self.machines.nodes.place_in_share(share, domains, *rank),
            None => self.assigned(reference),
        };
        let Some(value) = self.world.get(reference) else { return };
        if !self.machines.nodes.place(reference, kind, value, &assigned) {
            if known.is_none() && self.needs_room(reference, &assigned) {
                // Its pods wait for room on the nodes.
                return;
            }
            self.machines.nodes.wait_no_more(reference);
        }
        if let Some((share, ..)) = share {
            self.machines.nodes.share(reference, share);
        }
        self.begin_run(reference, kind, known.unwrap_or(self.now));
        self.show_pods(reference);
    }

    /// Where the topology assignment of a job's Workload puts its pods.
    pub(super) fn assigned(&self, job: &ObjectRef) -> Assigned {
        self.admitted(job).map(assigned).unwrap_or_default()
    }

    /// Whether a job runs only on existing nodes. For a cluster whose nodes were read, the nodes that a cluster autoscaler would add are not known.
    /// So this applies only where the engine itself looks at nodes: with a topology or Hotswap.
    fn needs_room(&self, job: &ObjectRef, assigned: &Assigned) -> bool {
        if !self.read_nodes || !assigned.is_empty() {
            return true;
        }
        let queue =
            self.admitted(job).map_or("", |workload| text(&workload["status"]["admission"]["clusterQueue"]));
        let queue = self.world.get(&ObjectRef::cluster(Kind::ClusterQueue, queue));
        queue.is_some_and(looks_at_nodes)
    }

    /// The Workload of a job that holds quota.
    pub(super) fn admitted(&self, job: &ObjectRef) -> Option<&Value> {
        let uid = text(&self.world.get(job)?["metadata"]["uid"]);
        self.workloads_of(uid).find(|workload| !workload["status"]["admission"].is_null())
    }

    /// The pod set of a pod that is an object of its own, with its assigned domains and its rank.
    fn share_of(&self, pod: &ObjectRef, kind: JobKind) -> Option<(Share, Vec<Domain>, Option<i64>)> {
        if !kind.integration().of_pods {
            return None;
        }
        let workload = self.admitted(pod)?;
        let member = Member::observe(self.world.get(pod)?, &Gates::default());
        let name = member.pod_set.ok()?.name;
        let domains = assigned(workload).remove(&name)?;
        let rank = member.index.and_then(|index| index.parse().ok());
        Some(((crate::object::reference(Kind::Workload, workload), name), domains, rank))
    }

    /// The pods of a job that are where they belong begin to run.
    pub(super) fn begin_run(&mut self, reference: &ObjectRef, kind: JobKind, since: Timestamp) {
        let Some(value) = self.world.get(reference) else { return };
        let ends = sluice_jobs::ends(kind, value) && self.serving.object_of(reference).is_none();
        let end = ends.then(|| self.end_of(reference, since));
        let attempt = self.pods.start(reference, since);
        let startup = self.pods.startup;
        if let Some(end) = end {
            self.agenda.put(end, Action::Finish(reference.clone(), attempt));
        }
        if !startup.is_zero() {
            self.agenda.put(after(self.now, startup), Action::Ready(reference.clone(), attempt));
        }
        let status = sluice_jobs::status(kind, value, State::Running { since, ready: startup.is_zero() });
        self.set_job_status(reference, status);
        self.made_pod_runs(reference, startup.is_zero());
    }

    /// A pod that is deleted while it runs loses its run time: pods are never restarted.
    pub(super) fn lost_with(&mut self, object: &ObjectRef) {
        let of_pods = matches!(object.kind, Kind::Job(kind) if kind.integration().of_pods);
        let serves = self.serving.object_of(object).is_some();
        if let Some(Phase::Running { since }) = self.pods.run(object).map(|run| run.phase)
            && of_pods
            && !serves
        {
            self.record.lost(object, self.now.as_millisecond() - since.as_millisecond());
        }
    }

    /// Replaces the status of a job, except for the number of its restarts.
    pub(super) fn set_job_status(&mut self, job: &ObjectRef, status: Value) {
        self.world.set_status(job, |old| {
            let restarts = old["restarts"].take();
            *old = status;
            if !restarts.is_null() && old["restarts"].is_null() {
                old["restarts"] = restarts;
            }
        });
    }

    /// Plays the controllers of admission checks, and the owner of a Workload that has no job.
    pub(super) fn workload_changed(&mut self, reference: &ObjectRef, workload: &slim::Workload) {
        if self.record.observe(self.now, workload) {
            self.places_changed(&jobs_of(reference, workload));
        }
        let status = &workload.status;
        let pending = |state| state == sluice_api::v1beta2::CheckState::Pending;
        let pending = status.admission_checks.iter().any(|c| pending(c.state) && !self.provisions(&c.name));
        if let Some(since) = conditions::true_since(&status.conditions, "QuotaReserved").filter(|_| pending) {
            self.agenda.put(after(self.now, self.check_delay), Action::Checks(reference.clone(), since));
        }
        let is = |type_: &str| conditions::is_true(&status.conditions, type_);
        if is("Finished") {
            if is_superseded(workload) {
                // Its job continues with another slice.
                return;
            }
            self.ended.extend(jobs_of(reference, workload));
            if self.record.job(reference).is_some() {
                self.ended.push(reference.clone());
            }
            return;
        }
        if self.record.job(reference).is_none() {
            return;
        }
        match (is("Admitted") && !is("Evicted"), self.pods.run(reference).map(|r| r.phase)) {
            // The pods of a Workload that is being deleted only end.
            (true, None) if workload.metadata.deletion_timestamp.is_none() => {
                let since = self.runs_since(workload);
                let end = self.end_of(reference, since);
                let attempt = self.pods.start(reference, since);
                let startup = self.pods.startup;
                self.agenda.put(end, Action::Finish(reference.clone(), attempt));
                self.agenda
                    .put(after(since, startup).max(self.now), Action::Ready(reference.clone(), attempt));
            }
            (false, Some(Phase::Running { since })) => {
                let attempt = self.pods.run(reference).map_or(0, |r| r.attempt);
                self.pods.stop(reference);
                self.record.lost(reference, self.now.as_millisecond() - since.as_millisecond());
                let at = after(self.now, self.pods.termination);
                self.agenda.put(at, Action::Gone(reference.clone(), attempt));
            }
            _ => {}
        }
    }

    /// The pods of a job, or of a Workload without one, have started.
    pub(super) fn pods_ready(&mut self, job: &ObjectRef, attempt: u64) {
        let Some(run) = self.pods.attempt(job, attempt) else { return };
        let Phase::Running { since } = run.phase else { return };
        let now = self.now;
        match (job.kind, self.world.get(job)) {
            (Kind::Job(kind), Some(value)) => {
                let status = sluice_jobs::status(kind, value, State::Running { since, ready: true });
                self.set_job_status(job, status);
                self.made_pod_runs(job, true);
            }
            // Only the owner of the Workload sets this condition: without it the Workload would be evicted for not starting.
            _ => self.world.set_status(job, |status| {
                set_condition(status, "PodsReady", true, "Started", READY, now);
            }),
        }
    }

    /// The controllers of admission checks set Ready for a Workload that has had its quota since then. Checks that request nodes are handled by the
    /// engine itself.
    pub(super) fn answer_checks(&mut self, workload: &ObjectRef, since: Timestamp) {
        let conditions = self.world.get(workload).and_then(|w| w["status"]["conditions"].as_array());
        let mut reserved = conditions.into_iter().flatten().filter(|c| c["type"] == "QuotaReserved");
        let is_same = |c: &Value| {
            c["status"] == "True" && text(&c["lastTransitionTime"]).parse::<Timestamp>().ok() == Some(since)
        };
        if !reserved.any(is_same) {
            // The Workload has lost this reservation; the checks answer a new one later.
            return;
        }
        let checks = self.world.get(workload).and_then(|w| w["status"]["admissionChecks"].as_array());
        let names = checks.into_iter().flatten().map(|check| text(&check["name"]).to_owned());
        let own: Vec<String> = names.filter(|name| self.provisions(name)).collect();
        self.world.set_status(workload, |status| {
            let checks = status.get_mut("admissionChecks").and_then(Value::as_array_mut);
            for check in checks.into_iter().flatten() {
                if check["state"] == "Pending" && !own.iter().any(|name| check["name"] == name.as_str()) {
                    check["state"] = json!("Ready");
                    check["message"] = json!("simulated");
                }
            }
        });
    }

    pub(super) fn finish(&mut self, job: &ObjectRef, attempt: u64) {
        let Some(run) = self.pods.attempt(job, attempt) else { return };
        let Phase::Running { since } = run.phase else { return };
        self.end_pods(job);
        let now = self.now;
        let Some(value) = self.world.get(job) else { return };
        // A job that has run longer than expected may also reach its deadline.
        let success = self.pods.run_time(job, value).1
            && deadline(job, value).is_none_or(|deadline| now < after(since, deadline));
        self.pods.drawn.remove(job);
        match job.kind {
            Kind::Job(kind) => {
                let status = sluice_jobs::status(kind, value, State::Ended { at: now, success });
                self.made_pods_end(job, success);
                self.set_job_status(job, status);
                self.record.ended(now, job, success);
                if self.record.job(job).is_some_and(|record| !record.managed) {
                    self.ended.push(job.clone());
                }
            }
            _ => self.world.set_status(job, |status| {
                set_condition(status, "Finished", true, "Succeeded", "Job finished successfully", now);
            }),
        }
        self.start_waiting();
    }

    pub(super) fn pods_gone(&mut self, job: &ObjectRef, attempt: u64) {
        if self.pods.attempt(job, attempt).is_none() {
            return;
        }
        self.end_pods(job);
        let now = self.now;
        let Some(value) = self.world.get(job) else { return };
        if let Kind::Job(kind) = job.kind {
            let status = sluice_jobs::status(kind, value, State::Idle);
            self.set_job_status(job, status);
        } else {
            self.world.set_status(job, |status| {
                set_condition(status, "QuotaReserved", false, "Pending", "The workload was evicted", now);
                set_condition(status, "PodsReady", false, "WaitForStart", NOT_READY, now);
                set_condition(
                    status,
                    "Admitted",
                    false,
                    "NoReservation",
                    "The workload has no reservation",
                    now,
                );
                let why = status["conditions"].as_array().into_iter().flatten();
                let why = why.filter(|c| c["type"] == "Evicted").map(|c| c["reason"].clone()).next();
                let why = why.unwrap_or_default();
                let requeued = why == "Preempted";
                set_condition(status, "Requeued", requeued, text(&why), "", now);
                if let Some(status) = status.as_object_mut() {
                    status.remove("admission");
                }
            });
        }
        self.start_waiting();
    }

    /// Tries to place the pods of started jobs that found no room.
    pub(super) fn start_waiting(&mut self) {
        for job in self.machines.nodes.take_waiting() {
            if let Kind::Job(kind) = job.kind {
                self.sync_job(&job, kind);
            }
        }
    }
}

/// The jobs of a Workload.
fn jobs_of(reference: &ObjectRef, workload: &slim::Workload) -> Vec<ObjectRef> {
    let owners = workload.metadata.owner_references.as_deref().unwrap_or_default();
    let controller = owners.iter().find(|owner| owner.controller == Some(true));
    // The pods of a group own its Workload together.
    let jobs = controller.map_or(owners, std::slice::from_ref).iter().filter_map(|owner| {
        let kind = JobKind::from_owner(&owner.api_version, &owner.kind)?;
        Some(ObjectRef::namespaced(Kind::Job(kind), reference.namespace.clone(), owner.name.as_str()))
    });
    jobs.collect()
}

/// Sets a condition of a status document.
pub(super) fn set_condition(
    status: &mut Value,
    type_: &str,
    yes: bool,
    reason: &str,
    message: &str,
    now: Timestamp,
) {
    let condition = json!({
        "type": type_, "status": if yes { "True" } else { "False" }, "reason": reason, "message": message,
        "lastTransitionTime": crate::world::seconds(now),
    });
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(list) = status["conditions"].as_array_mut() else { return };
    match list.iter_mut().find(|c| c["type"] == type_) {
        Some(known) => *known = condition,
        None => list.push(condition),
    }
}
