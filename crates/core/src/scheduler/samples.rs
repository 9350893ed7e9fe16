//! When the usage of each LocalQueue is sampled, and its consumption (docs/reference/06-algorithm.md 6.9).

use std::collections::{BTreeMap, BTreeSet};

use super::Scheduler;
use crate::Name;
use crate::admission_fair_sharing::{Ledger, in_units};
use crate::config::AdmissionFairSharing;
use crate::intern::LocalId;
use crate::local_queue::LocalQueue;
use crate::spec::Time;

impl Scheduler {
    /// The configuration, if ledgers are kept: of every LocalQueue, whether its ClusterQueue is ordered by them or not
    /// (docs/reference/11-observed.md 11.1.18).
    pub(crate) fn keeps_ledgers(&self) -> Option<&AdmissionFairSharing> {
        let config = self.world.config.admission_fair_sharing.as_ref();
        config.filter(|_| self.world.config.gates.admission_fair_sharing)
    }

    /// Takes samples of a LocalQueue from now on.
    pub(crate) fn begin_samples(&mut self, id: LocalId) {
        if let Some(config) = self.keeps_ledgers() {
            let due = self.world.locals[id.at()].ledger.due(config);
            self.agenda.samples.insert((due, id));
        }
    }

    /// Takes no more samples of a LocalQueue, and forgets what it consumed.
    pub(crate) fn end_samples(&mut self, id: LocalId) {
        if let Some(config) = self.keeps_ledgers() {
            let due = self.world.locals[id.at()].ledger.due(config);
            self.agenda.samples.remove(&(due, id));
        }
        self.world.locals[id.at()].ledger = Ledger::default();
        self.usage_moved(id);
    }

    /// When the next sample is due.
    pub(crate) fn next_sample(&self) -> Option<Time> {
        self.agenda.samples.first().map(|&(due, _)| due)
    }

    /// Takes the samples that are due.
    pub(crate) fn sample(&mut self, now: Time) {
        let Some(config) = self.keeps_ledgers().cloned() else { return };
        while let Some(&(due, id)) = self.agenda.samples.first().filter(|&&(due, _)| due <= now) {
            self.agenda.samples.remove(&(due, id));
            let mut usage = BTreeMap::new();
            for (&pair, &(_, admitted)) in &self.world.locals[id.at()].usage {
                let (_, resource) = self.world.names.flavor_and_resource(pair);
                *usage.entry(resource).or_insert(0.0) += in_units(&self.world.names, resource, admitted);
            }
            if self.world.locals[id.at()].ledger.sample(&config, &usage, now) {
                self.changes.locals.mark(id.at());
                self.usage_moved(id);
            }
            self.agenda.samples.insert((self.world.locals[id.at()].ledger.due(&config), id));
        }
    }

    /// The consumption of a LocalQueue: for each resource of its ClusterQueue, zero for those that it never used; and for other resources that it
    /// used.
    pub(crate) fn consumed(&self, id: LocalId) -> Vec<(Name, f64)> {
        let local = &self.world.locals[id.at()];
        let mut consumed = local.ledger.consumed.clone();
        if self.keeps_ledgers().is_some_and(|config| config.half_life_seconds > 0) {
            let groups = local.queue.map(|queue| &self.world.queues[queue.at()].groups);
            for &resource in groups.into_iter().flatten().flat_map(|group| &group.covered) {
                consumed.entry(resource).or_insert(0.0);
            }
        }
        let named = consumed.into_iter().map(|(r, value)| (self.world.names.resource_name(r).clone(), value));
        named.collect()
    }

    /// Exactly the existing LocalQueues are sampled, each when it is due, and the known usages are right; for the audit.
    pub(crate) fn audit_samples(&self, found: &mut Vec<String>) {
        let config = self.keeps_ledgers();
        let exist = self.world.locals.iter().enumerate().filter(|(_, local)| local.spec.is_some());
        let due = |(at, local): (usize, &LocalQueue)| {
            config.map(|config| (local.ledger.due(config), LocalId::new(at)))
        };
        let samples: BTreeSet<_> = exist.filter_map(due).collect();
        if samples != self.agenda.samples {
            found.push("the samples of admission fair sharing are wrong".to_owned());
        }
        let all = (0..self.world.locals.len()).map(LocalId::new);
        for id in all.filter(|id| config.is_some() && !self.usages.stale.contains(id)) {
            let (known, is) = (self.usages.known.get(id.at()).copied().unwrap_or(0.0), self.fair_usage(id));
            if known.total_cmp(&is).is_ne() {
                found.push(format!("LocalQueue {}: a known usage of {known}, and it is {is}", id.at()));
            }
        }
    }

    /// The usage that orders a LocalQueue; zero without admission fair sharing.
    pub(crate) fn fair_usage(&self, id: LocalId) -> f64 {
        let local = &self.world.locals[id.at()];
        match (&self.world.config.admission_fair_sharing, &local.spec) {
            (Some(config), Some(spec)) => local.ledger.usage(config, &self.world.names, spec.fair_weight),
            _ => 0.0,
        }
    }
}
