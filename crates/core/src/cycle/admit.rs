//! An entry gets its quota (reference 06, 6.5 "Admit"); whether what somebody else gave a workload fits.

use super::{Entry, Progress};
use crate::admission_fair_sharing::in_units;
use crate::plan::Plan;
use crate::report::Outcome;
use crate::scheduler::Scheduler;
use crate::spec::Time;
use crate::view::{Demand, View};
use crate::workload::{Admission, PodSetAssignment, WorkloadKey};
use crate::workloads::{Held, Hold};
use crate::{Amount, Name};

impl Scheduler {
    /// Whether what a workload holds would be free for it if it did not hold it yet; that of one that holds nothing is.
    pub fn fits_what_it_holds(&mut self, key: &WorkloadKey) -> bool {
        self.refresh();
        let Some(id) = self.workloads.find(key) else { return true };
        let held = self.workloads.usage_of(id).iter().filter(|held| held.2 > 0);
        let demands: Vec<Demand> = held.map(|&(pair, slot, amount)| Demand { pair, slot, amount }).collect();
        let mark = self.tree.usage.mark();
        let mut view = view!(self, &[]);
        view.remove(id);
        let fits = view.fits(&demands, true) && view.first_lack(id, &demands, &[id]).is_none();
        self.tree.usage.rollback(&mark);
        fits
    }

    /// Lets the entry hold what it was assigned.
    pub(super) fn admit(&mut self, entry: &Entry, now: Time, progress: &mut Progress) {
        let id = entry.head.workload;
        let plan = entry.plan.as_deref().expect("only an entry with a plan is admitted");
        let admission = self.admission(entry, plan);
        let required_checks = self.required_checks(entry);
        let considered = entry.assignment.considered(&self.names, plan);
        let usage: Held =
            entry.assignment.demands.iter().map(|demand| (demand.pair, demand.slot, demand.amount)).collect();
        for &(_, slot, amount) in &usage {
            self.add_to_overlay(entry, slot, amount, progress);
        }
        let queue = &mut self.queues[entry.head.queue.at()];
        queue.pending.forget_preemptor(id);
        queue.pending.drop_if_empty(entry.lane);
        self.sync_ready(entry.head.queue);
        let workload = self.workloads.get_mut(id);
        workload.progress = None;
        workload.decision = None;
        workload.preempted = false;
        workload.settled = self.cycle;
        let local = workload.local;
        self.locals[local.at()].pending.remove(&id);
        let root = self.tree.forest.node(entry.head.node).root;
        self.loops.admitted(root, id);
        self.charge(entry);
        let admitted = required_checks.is_empty();
        let hold = Hold {
            queue: entry.head.queue,
            usage,
            reserved_at: now,
            admitted,
            evicted: false,
            pods_ready: false,
        };
        self.hold(id, hold);
        progress.report.progress = true;
        let outcome = Outcome::Admitted { admission, required_checks, considered };
        progress.report.entries.push(self.report(entry, outcome));
    }

    /// Charges the LocalQueue for what was let in until it counts as usage (reference 06, 6.9).
    fn charge(&mut self, entry: &Entry) {
        if !self.orders_by_usage(&self.queues[entry.head.queue.at()]) {
            return;
        }
        let Some(config) = &self.config.admission_fair_sharing else { return };
        let names = &self.names;
        let requests = entry
            .assignment
            .picks
            .iter()
            .map(|pick| (pick.resource, in_units(names, pick.resource, i128::from(pick.amount))));
        let local = self.workloads.get(entry.head.workload).local;
        self.locals[local.at()].ledger.charge(config, entry.head.workload, requests);
    }

    fn admission(&self, entry: &Entry, plan: &Plan) -> Admission {
        let assignment = &entry.assignment;
        let pod_sets = plan
            .requests
            .iter()
            .zip(&assignment.counts)
            .enumerate()
            .map(|(at, ((name, _), &count))| {
                let picks = || assignment.picks.iter().filter(move |pick| pick.pod_set == at);
                let resource = |id| self.names.resource_name(id).clone();
                PodSetAssignment {
                    name: name.clone(),
                    flavors: picks()
                        .map(|pick| (resource(pick.resource), self.names.flavor_name(pick.flavor).clone()))
                        .collect(),
                    usage: picks().map(|pick| (resource(pick.resource), Amount(pick.amount))).collect(),
                    count,
                }
            })
            .collect();
        Admission { cluster_queue: self.queues[entry.head.queue.at()].name.clone(), pod_sets }
    }

    /// The checks that apply to the assigned flavors (reference 06, 6.10).
    fn required_checks(&self, entry: &Entry) -> Vec<Name> {
        let Some(spec) = &self.queues[entry.head.queue.at()].spec else { return Vec::new() };
        let mut checks: Vec<Name> = spec
            .admission_checks
            .iter()
            .filter(|rule| {
                entry.assignment.picks.iter().any(|pick| {
                    rule.on_flavors.is_empty()
                        || rule.on_flavors.contains(self.names.flavor_name(pick.flavor))
                })
            })
            .map(|rule| rule.name.clone())
            .collect();
        checks.sort();
        checks.dedup();
        checks
    }
}
