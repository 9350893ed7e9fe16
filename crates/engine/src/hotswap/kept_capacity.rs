//! The capacity of flavors between two looks: most pods that hold no quota come and go without anything else that a look would find, and are added to
//! the sums of the last one.
//!
//! Workloads that wait are tried again where a limit rises: limits are set at most once in the interval for swarms, as looks would set them.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sluice_core::{Amount, CapacitySums, Name, capacity_of_flavors};

use super::SWARM_INTERVAL;
use super::capacity::SeenCapacity;
use super::scope::Scope;
use super::snapshot::Snapshot;
use crate::engine::{Alarm, Engine};

/// What a pod takes of the capacity of a flavor, in the units of [`CapacitySums`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// The flavor, which its node is of.
    pub flavor: Name,
    /// The resource.
    pub resource: Name,
    /// How much.
    pub amount: i128,
}

impl Engine {
    /// Takes in what a look has summed up. It is kept only if no Workload needs room and everything was listed: otherwise each pod is looked at.
    pub(super) fn set_capacity(&mut self, sums: BTreeMap<Name, CapacitySums>, all_listed: bool) {
        for (flavor, sums) in &sums {
            let mut limits = sums.limits();
            if !all_listed {
                // No Workload is admitted to these nodes before all of them and their pods were seen.
                for (_, limit) in &mut limits {
                    *limit = Amount::ZERO;
                }
            }
            if self.scheduler.set_capacity(flavor, &limits) {
                self.request_cycle();
            }
        }
        self.hotswap.capacity = Some(sums).filter(|_| all_listed && !self.hotswap.needs_room);
        self.hotswap.changed_capacity.clear();
    }

    /// Whether the sums of the last look, with the pods since, are those of now.
    fn keeps_capacity(&self) -> bool {
        let state = &self.hotswap;
        let is_due = state.stale || state.due.is_some() || self.hotswap_resumes();
        state.capacity.is_some() && !is_due && self.world.claims_are_as_seen
    }

    /// A pod came, changed or went, which took and takes these shares; none: a look is to find out what follows.
    pub(super) fn hotswap_pod_changed(&mut self, shares: Option<(Vec<Share>, Vec<Share>)>) {
        let Some((before, after)) = shares else { return self.hotswap_pods_changed() };
        if before == after {
            return;
        }
        if !self.keeps_capacity() {
            return self.hotswap_pods_changed();
        }
        let state = &mut self.hotswap;
        let given_back = before.into_iter().map(|share| (share.amount, share));
        let taken = after.into_iter().map(|share| (-share.amount, share));
        for (amount, Share { flavor, resource, .. }) in given_back.chain(taken) {
            let sums = state.capacity.as_mut().and_then(|all| all.get_mut(&flavor));
            if sums.is_some_and(|sums| sums.add(&resource, amount)) {
                state.changed_capacity.insert(flavor);
            }
        }
        if self.hotswap.changed_capacity.is_empty() {
            return;
        }
        if let Some(next) = self.limits_wait_until() {
            self.wake_at(next, Alarm::Capacity);
        }
    }

    /// Until when no limits are set for pods alone.
    fn limits_wait_until(&self) -> Option<Timestamp> {
        let last = self.hotswap.evaluated_at.max(self.hotswap.limited_at)?;
        last.checked_add(SWARM_INTERVAL).ok().filter(|next| *next > self.now)
    }

    /// Sets the limits that pods alone have changed, once that is due. If more has changed since, a look sets them.
    pub(super) fn set_changed_capacity(&mut self) {
        if self.hotswap.changed_capacity.is_empty() || self.limits_wait_until().is_some() {
            return;
        }
        let changed = std::mem::take(&mut self.hotswap.changed_capacity);
        if !self.keeps_capacity() {
            return self.hotswap_pods_changed();
        }
        self.hotswap.limited_at = Some(self.now);
        for flavor in changed {
            let limits = self.hotswap.capacity.as_ref().and_then(|all| Some(all.get(&flavor)?.limits()));
            if limits.is_some_and(|limits| self.scheduler.set_capacity(&flavor, &limits)) {
                self.request_cycle();
            }
        }
    }

    /// The difference between the sums that are kept and those of all nodes and pods. The health of nodes is that of the last look: until the time
    /// at which it turns into another, which causes a look, it is that of now.
    pub(crate) fn audit_capacity(&self) -> Option<String> {
        let kept = self.hotswap.capacity.as_ref().filter(|_| self.keeps_capacity())?;
        let scope = Scope::of(&self.world, &self.config);
        let snapshot = Snapshot::of(self, self.hotswap.evaluated_at?);
        let users = self.users_seen(&snapshot);
        if users != self.hotswap.users {
            // A Workload with whole groups is over, which is still to be written: a look follows if a group is not whole.
            return None;
        }
        let labels = self.exclusive_labels(&scope, &users);
        let groups = self.groups(&labels, &snapshot);
        let (names, flavors) = self.flavor_nodes(&scope, &snapshot, &labels, &groups);
        let moves = vec![false; snapshot.workloads.len()];
        let seen = SeenCapacity { snapshot: &snapshot, flavors: &names, moves: &moves };
        let capacities = capacity_of_flavors(&seen, &flavors).into_iter().map(|capacity| capacity.sums);
        let again: BTreeMap<Name, CapacitySums> = names.into_iter().cloned().zip(capacities).collect();
        (again != *kept).then(|| format!("the capacity of flavors is {kept:?}, should be {again:?}"))
    }
}
