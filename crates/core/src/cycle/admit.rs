//! An entry gets its quota (docs/reference/06-algorithm.md 6.5 "Admit"); whether a reservation that was made elsewhere fits.

use super::entry::{CycleState, Entry};
use crate::admission_fair_sharing::in_units;
use crate::books::Basis;
use crate::plan::Plan;
use crate::report::Outcome;
use crate::scheduler::Scheduler;
use crate::spec::Time;
use crate::view::FlavorResourceQuantity;
use crate::workload::{Admission, PodSetAssignment, TopologyState, WorkloadKey};
use crate::workloads::{QuotaReservation, ReservedUsage, TopologyReservation};
use crate::{Amount, Name};

impl Scheduler {
    /// Whether the usage of a workload would be free if neither it nor `without` held anything; true for a workload without usage.
    pub fn fits_its_reservation(&mut self, key: &WorkloadKey, without: &[WorkloadKey]) -> bool {
        self.refresh();
        let Some(id) = self.world.workloads.find(key) else { return true };
        let usage = self.world.workloads.usage_of(id).iter().filter(|usage| usage.2 > 0);
        let quantities: Vec<FlavorResourceQuantity> =
            usage.map(|&(pair, slot, amount)| FlavorResourceQuantity { pair, slot, amount }).collect();
        let others =
            without.iter().filter_map(|key| self.world.workloads.find(key)).filter(|other| *other != id);
        let gone: Vec<_> = others.chain([id]).collect();
        let mut view = self.view(Basis::Now, &[]);
        let mark = view.mark();
        for &id in &gone {
            view.remove(id);
        }
        let fits = view.fits(&quantities, true)
            && view.first_lack(id, &quantities, &gone).is_none()
            && view.nodes.fits(view.world.workloads.pods_of(id));
        view.rollback(&mark);
        fits
    }

    /// Lets the entry hold what it was assigned.
    pub(super) fn admit(&mut self, entry: &Entry, now: Time, state: &mut CycleState) {
        let id = entry.head.workload;
        let plan = entry.plan.as_deref().expect("only an entry with a plan is admitted");
        let admission = self.admission(entry, plan);
        let required_checks = self.required_checks(entry);
        let considered = entry.assignment.considered(&self.world.names, plan);
        let usage: ReservedUsage = entry
            .assignment
            .usage
            .iter()
            .map(|quantity| (quantity.pair, quantity.slot, quantity.amount))
            .collect();
        for &(pair, slot, amount) in &usage {
            self.add_to_overlay(entry, slot, self.beyond_replaced(entry, pair, amount), state);
        }
        self.take_over(entry, &usage);
        self.moved(id);
        self.world.queues[entry.head.queue.at()].pending.forget_preemptor(id);
        self.agenda.kept_out.replace(id, &[]);
        self.left_class(entry.head.queue, entry.class);
        let workload = self.world.workloads.get_mut(id);
        workload.last_assignment = None;
        workload.decision = None;
        workload.preempted = false;
        workload.taken_in_cycle = self.cycle;
        let local = workload.local;
        self.world.locals[local.at()].pending.remove(&id);
        let root = self.world.forest.node(entry.head.node).root;
        self.agenda.loops.admitted(root, id);
        self.charge(entry);
        let admitted = required_checks.is_empty();
        let reservation = QuotaReservation {
            queue: entry.head.queue,
            usage,
            reserved_at: now,
            admitted,
            evicted: false,
            pods_ready: false,
            topology: if entry.assignment.nodes.is_empty() {
                None
            } else {
                TopologyReservation::of(entry.assignment.nodes.clone(), TopologyState::default())
            },
        };
        self.reserve_quota(id, reservation);
        state.report.progress = true;
        let outcome = Outcome::Admitted { admission, required_checks, considered };
        state.report.entries.push(self.report(entry, outcome));
    }

    /// Charges the LocalQueue for what was let in until it counts as usage (docs/reference/06-algorithm.md 6.9).
    fn charge(&mut self, entry: &Entry) {
        if !self.orders_by_usage(&self.world.queues[entry.head.queue.at()]) {
            return;
        }
        let Some(config) = &self.world.config.admission_fair_sharing else { return };
        let names = &self.world.names;
        let requests = entry.assignment.flavors.iter().map(|assigned| {
            (assigned.resource, in_units(names, assigned.resource, i128::from(assigned.amount)))
        });
        let local = self.world.workloads.get(entry.head.workload).local;
        self.world.locals[local.at()].ledger.charge(config, entry.head.workload, requests);
        self.usage_moved(local);
    }

    fn admission(&self, entry: &Entry, plan: &Plan) -> Admission {
        let assignment = &entry.assignment;
        let nodes = |at| assignment.nodes.iter().find(|nodes| nodes.pod_set == at);
        let pod_sets = plan
            .requests
            .iter()
            .zip(&assignment.counts)
            .enumerate()
            .map(|(at, ((name, _), &count))| {
                let assigned = assignment.of_pod_set(at);
                let resource = |id| self.world.names.resource_name(id).clone();
                let flavor = |id| self.world.names.flavor_name(id).clone();
                PodSetAssignment {
                    name: name.clone(),
                    flavors: assigned.iter().map(|of| (resource(of.resource), flavor(of.flavor))).collect(),
                    usage: assigned.iter().map(|of| (resource(of.resource), Amount(of.amount))).collect(),
                    count,
                    topology: nodes(at).and_then(|nodes| nodes.assignment.clone()),
                    topology_delayed: nodes(at).is_some_and(|nodes| nodes.assignment.is_none()),
                }
            })
            .collect();
        Admission { cluster_queue: self.world.queues[entry.head.queue.at()].name.clone(), pod_sets }
    }

    /// The checks that apply to the assigned flavors (docs/reference/06-algorithm.md 6.10).
    fn required_checks(&self, entry: &Entry) -> Vec<Name> {
        let Some(spec) = &self.world.queues[entry.head.queue.at()].spec else { return Vec::new() };
        if spec.admission_checks.is_empty() {
            return Vec::new();
        }
        let mut checks: Vec<Name> = spec
            .admission_checks
            .iter()
            .filter(|rule| {
                let mut assigned = entry.assignment.flavors.iter();
                rule.on_flavors.is_empty()
                    || assigned.any(|of| rule.on_flavors.contains(self.world.names.flavor_name(of.flavor)))
            })
            .map(|rule| rule.name.clone())
            .collect();
        checks.sort();
        checks.dedup();
        checks
    }
}
