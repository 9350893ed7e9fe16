//! Derives the history of a job from the engine's writes: what its Workloads hold, and how it ends.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use sluice_api::conditions::{WorkloadCondition as Type, find, is_true};
use sluice_api::v1beta2::Admission;
use sluice_api::{labels, slim};
use sluice_engine::{Kind, ObjectRef, is_superseded};
use sluice_quantity::{Quantity, amount_of};

use super::{Hold, HoldEnd, Holding, Record, Seen, TimelineEvent, show_holdings};

impl Record {
    /// Processes a Workload after the engine's last write. Returns whether its pods must move to other nodes.
    pub(crate) fn observe(&mut self, now: Timestamp, workload: &slim::Workload) -> bool {
        let metadata = &workload.metadata;
        let reference = ObjectRef::namespaced(
            Kind::Workload,
            metadata.namespace.as_deref().unwrap_or_default(),
            metadata.name.as_deref().unwrap_or_default(),
        );
        if !self.seen.contains_key(&reference) {
            let Some(job) = self.job_of(&reference, workload) else { return false };
            if let Some(uid) = metadata.uid.as_deref() {
                self.by_uid.insert(uid.into(), job);
            }
            self.jobs[job].managed = true;
            self.seen.insert(reference.clone(), Seen { job, ..Seen::default() });
        }
        let Some(mut seen) = self.seen.remove(&reference) else { return false };
        self.jobs[seen.job].priority = workload.spec.priority.unwrap_or(0);
        let moves = self.transitions(now, workload, &mut seen);
        self.seen.insert(reference, seen);
        moves
    }

    /// The place of a Workload's job among [`Record::jobs`].
    pub(crate) fn job_of(&self, reference: &ObjectRef, workload: &slim::Workload) -> Option<usize> {
        let owners = workload.metadata.owner_references.as_deref().unwrap_or_default();
        let controller = owners.iter().find(|o| o.controller == Some(true));
        // Several pods may own a Workload.
        let mut of = controller.map_or(owners, std::slice::from_ref).iter();
        // If its job is not simulated, the Workload stands for itself.
        if let Some(own) = self.by_ref.get(reference) {
            return Some(*own);
        }
        // The object that groups these pods is not their controller.
        if let Some(index) = owners.iter().find_map(|owner| self.component_of(&owner.uid, workload)) {
            return Some(index);
        }
        of.find_map(|owner| self.by_uid.get(owner.uid.as_str()).copied())
    }

    /// Whether pods move.
    fn transitions(&mut self, now: Timestamp, workload: &slim::Workload, seen: &mut Seen) -> bool {
        let at = self.millis(now);
        let status = &workload.status;
        let conditions = &status.conditions;
        let is = |type_: Type| is_true(conditions, type_.as_str());
        let (reserved, admitted) = (is(Type::QuotaReserved), is(Type::Admitted));
        let (evicted, finished) = (is(Type::Evicted), is(Type::Finished));
        let index = seen.job;
        if reserved
            && !seen.reserved
            && let Some(admission) = &status.admission
        {
            seen.hold = Some(self.open_hold(index, at, workload, admission));
            if !admitted {
                self.reserve(now, index);
            }
        }
        if let Some(admission) = status.admission.as_ref().filter(|_| reserved && is_elastic(workload)) {
            self.resize((index, at), workload, admission, &mut seen.hold);
        }
        let mut moves = false;
        if !reserved {
            seen.placed.clear();
        } else if let Some(message) = self.place(at, index, workload, &mut seen.placed) {
            let message = self.text(&message);
            self.push(now, Some(index), TimelineEvent::Moved { message });
            moves = true;
        }
        if admitted && !seen.admitted {
            self.admit(now, index, seen.hold);
        }
        if evicted && !seen.evicted {
            self.evict(now, index, seen.hold, workload);
        }
        if seen.reserved && !reserved {
            self.close(index, seen.hold.take(), at);
        }
        self.jobs[index].deactivated = !workload.spec.active;
        if finished && !seen.finished && is_superseded(workload) {
            // The job continues with another slice.
            if let Some(hold) = self.hold(index, seen.hold.take()) {
                hold.to = Some(at);
            }
        } else if finished && !seen.finished {
            if let Some(hold) = self.hold(index, seen.hold.take()) {
                hold.to = Some(at);
                hold.end = HoldEnd::Finished;
            }
            let success = find(conditions, Type::Finished.as_str()).is_some_and(|c| c.reason == "Succeeded");
            let job = &mut self.jobs[index];
            job.finished = Some(at);
            job.success = success;
            self.push(now, Some(index), TimelineEvent::Finished { success });
        }
        if !reserved
            && !finished
            && let Some(why) = find(conditions, Type::QuotaReserved.as_str())
        {
            self.wait(now, index, &why.reason, &why.message);
        }
        (seen.reserved, seen.admitted, seen.evicted, seen.finished) = (reserved, admitted, evicted, finished);
        moves
    }

    /// The last hold of a job, if it is open.
    pub(super) fn open(&mut self, index: usize) -> Option<&mut Hold> {
        let last = self.last_hold(index);
        self.hold(index, last)
    }

    /// The place of the last hold of a job, open or not.
    pub(super) fn last_hold(&self, index: usize) -> Option<usize> {
        self.jobs[index].holds.len().checked_sub(1)
    }

    /// One of a job's holds, if it is open.
    fn hold(&mut self, index: usize, at: Option<usize>) -> Option<&mut Hold> {
        self.jobs[index].holds.get_mut(at?).filter(|hold| hold.to.is_none())
    }

    /// Quota is given back.
    pub(super) fn close(&mut self, index: usize, hold: Option<usize>, at: i64) {
        if let Some(hold) = self.hold(index, hold) {
            hold.to = Some(at);
            if hold.end == HoldEnd::Open {
                hold.end = HoldEnd::Evicted;
            }
        }
    }

    /// The amounts of an admission; each list is stored once.
    fn shared_holdings(&mut self, workload: &slim::Workload, admission: &Admission) -> Arc<[Holding]> {
        let found = holdings(workload, admission);
        if let Some(known) = self.holdings.get(&found[..]) {
            return Arc::clone(known);
        }
        let new: Arc<[Holding]> = found.into();
        self.holdings.insert(Arc::clone(&new));
        new
    }

    /// A slice with reclaimed pods holds less from now on: a new hold begins where the old one ends.
    fn resize(
        &mut self,
        (index, at): (usize, i64),
        workload: &slim::Workload,
        admission: &Admission,
        place: &mut Option<usize>,
    ) {
        let holdings = self.shared_holdings(workload, admission);
        let Some(hold) = self.hold(index, *place).filter(|hold| hold.holdings != holdings) else { return };
        if hold.from >= at {
            hold.holdings = holdings;
            return;
        }
        let next = Hold { from: at, holdings, ..hold.clone() };
        hold.to = Some(at);
        let holds = &mut self.jobs[index].holds;
        *place = Some(holds.len());
        holds.push(next);
    }

    /// Gives the place of the hold.
    fn open_hold(
        &mut self,
        index: usize,
        at: i64,
        workload: &slim::Workload,
        admission: &Admission,
    ) -> usize {
        let queue = self.text(&admission.cluster_queue);
        let holdings = self.shared_holdings(workload, admission);
        let job = &mut self.jobs[index];
        job.cluster_queue = Some(Arc::clone(&queue));
        let (admitted, evicted, to) = (None, None, None);
        job.holds.push(Hold { from: at, admitted, evicted, to, end: HoldEnd::Open, queue, holdings });
        job.holds.len() - 1
    }

    /// The Workload has quota and is not admitted yet.
    fn reserve(&mut self, now: Timestamp, index: usize) {
        let Some(hold) = self.jobs[index].holds.last() else { return };
        let (queue, flavors) = self.got(&hold.clone());
        self.push(now, Some(index), TimelineEvent::Reserved { queue, flavors });
    }

    /// Where a hold is, and what of.
    pub(super) fn got(&mut self, hold: &Hold) -> (Arc<str>, Arc<str>) {
        let flavors = self.text(&show_holdings(&hold.holdings));
        (Arc::clone(&hold.queue), flavors)
    }

    /// Its hold at that place is of an admission from now on.
    pub(super) fn admit(&mut self, now: Timestamp, index: usize, hold: Option<usize>) {
        let at = self.millis(now);
        let Some(hold) = self.hold(index, hold) else { return };
        hold.admitted = Some(at);
        let hold = hold.clone();
        let (queue, flavors) = self.got(&hold);
        let job = &mut self.jobs[index];
        job.admitted.get_or_insert(at);
        job.waits_for = None;
        self.push(now, Some(index), TimelineEvent::Admitted { queue, flavors });
    }

    fn evict(&mut self, now: Timestamp, index: usize, hold: Option<usize>, workload: &slim::Workload) {
        let at = self.millis(now);
        let conditions = &workload.status.conditions;
        let Some(why) = find(conditions, Type::Evicted.as_str()) else { return };
        let preempted = why.reason == "Preempted";
        if let Some(hold) = self.hold(index, hold) {
            hold.end = if preempted { HoldEnd::Preempted } else { HoldEnd::Evicted };
            hold.evicted = Some(at);
        }
        let (reason, message) = (self.text(&why.reason), self.text(&why.message));
        if !preempted {
            return self.push(now, Some(index), TimelineEvent::Evicted { reason, message });
        }
        let by = self.preempted_by(index, &why.message);
        let reason = match find(conditions, Type::Preempted.as_str()) {
            Some(preempted) => self.text(&preempted.reason),
            None => reason,
        };
        self.push(now, Some(index), TimelineEvent::Preempted { by, reason, message });
    }

    /// Counts a preemption; returns the preempting job, if it is known.
    pub(super) fn preempted_by(&mut self, index: usize, message: &str) -> Option<Arc<str>> {
        // The message names the preemptor by UID (docs/reference/03-conditions-events.md 3.1); people want its name.
        self.jobs[index].preempted += 1;
        self.preemptor(message)
    }

    /// Counts that a job preempted another; returns it, if it is known.
    pub(super) fn preemptor(&mut self, message: &str) -> Option<Arc<str>> {
        let uid = message.split_once("(UID: ").and_then(|(_, rest)| rest.split_once(',')).map(|(u, _)| u)?;
        let preemptor = self.by_uid.get(uid).copied()?;
        self.jobs[preemptor].preempts += 1;
        let key = self.jobs[preemptor].key();
        Some(self.text(&key))
    }

    pub(super) fn wait(&mut self, now: Timestamp, index: usize, reason: &str, message: &str) {
        let known = self.jobs[index].waits_for.as_ref();
        let same = known.is_some_and(|(r, m)| **r == *reason && sluice_engine::same_words(m, message));
        // A Workload without an evaluation has no reason yet, and is evaluated in the same instant.
        if same || reason == "PendingEvaluation" {
            return;
        }
        let (reason, message) = (self.text(reason), self.text(message));
        self.jobs[index].waits_for = Some((Arc::clone(&reason), Arc::clone(&message)));
        self.push(now, Some(index), TimelineEvent::Waiting { reason, message });
    }
}

/// Whether a Workload is a slice of a job that may change its size while it runs.
fn is_elastic(workload: &slim::Workload) -> bool {
    let annotations = workload.metadata.annotations.as_ref();
    annotations.is_some_and(|all| all.get(labels::ELASTIC_JOB).is_some_and(|value| value == "true"))
}

/// The amounts of an admission, by flavor and resource, reduced for a slice that has fewer pods than it was admitted with.
fn holdings(workload: &slim::Workload, admission: &Admission) -> Vec<Holding> {
    let mut sums: BTreeMap<(&str, &str), i64> = BTreeMap::new();
    let elastic = is_elastic(workload);
    for set in &admission.pod_set_assignments {
        let of_spec = workload.spec.pod_sets.iter().find(|own| *own.name == *set.name).filter(|_| elastic);
        let (had, has) = (set.count.unwrap_or(0), of_spec.map(|own| own.count));
        let part = |amount: i64| match has.filter(|has| (0..had).contains(has)) {
            Some(has) => amount / i64::from(had) * i64::from(has),
            None => amount,
        };
        for (resource, quantity) in &set.resource_usage {
            let Some(flavor) = set.flavors.get(resource) else { continue };
            let amount = Quantity::parse(&quantity.0).map_or(0, |q| amount_of(resource, &q).get());
            let sum = sums.entry((flavor, resource)).or_default();
            *sum = sum.saturating_add(part(amount));
        }
    }
    let holding = |((flavor, resource), amount): ((&str, &str), i64)| Holding {
        flavor: flavor.into(),
        resource: resource.into(),
        amount,
    };
    sums.into_iter().map(holding).collect()
}
