//! Changes of what ClusterQueues and LocalQueues refer to: flavors, checks, topologies, namespaces.

use std::collections::BTreeSet;

use super::Scheduler;
use crate::Name;
use crate::intern::{FlavorId, QueueId};
use crate::spec::{CheckSpec, FlavorSpec};

impl Scheduler {
    /// Adds or replaces a ResourceFlavor.
    pub fn set_flavor(&mut self, spec: FlavorSpec) {
        self.sweep_if_due();
        let id = self.world.names.flavor(&spec.name);
        if self.world.flavors.len() <= id.at() {
            self.world.flavors.resize(id.at() + 1, None);
        }
        if self.world.flavors[id.at()].as_ref() == Some(&spec) {
            return;
        }
        self.world.topology.set_flavor(&mut self.books.nodes, id, Some(&spec));
        self.world.flavors[id.at()] = Some(spec);
        self.flavor_changed(id);
    }

    /// Removes a ResourceFlavor.
    pub fn remove_flavor(&mut self, name: &str) {
        let Some(id) = self.world.names.find_flavor(name) else { return };
        if self.world.flavors.get_mut(id.at()).and_then(Option::take).is_some() {
            self.world.topology.set_flavor(&mut self.books.nodes, id, None);
            self.sweeps.removed();
            self.flavor_changed(id);
        }
    }

    fn flavor_changed(&mut self, flavor: FlavorId) {
        self.touch_queues(self.world.referring_queues.of_flavor(flavor).collect());
    }

    /// Adds an AdmissionCheck or changes whether it is active.
    pub fn set_check(&mut self, name: &Name, check: impl Into<CheckSpec>) {
        let check = check.into();
        if self.world.checks.insert(name.clone(), check) != Some(check) {
            self.check_changed(name);
        }
    }

    /// Removes an AdmissionCheck.
    pub fn remove_check(&mut self, name: &str) {
        if self.world.checks.remove(name).is_some() {
            self.check_changed(name);
        }
    }

    fn check_changed(&mut self, name: &str) {
        self.touch_queues(self.world.referring_queues.of_check(name).collect());
    }

    /// Brings the queues that something concerns up to date with it.
    pub(crate) fn touch_queues(&mut self, concerned: BTreeSet<QueueId>) {
        self.outside_change_anywhere();
        for id in concerned {
            self.world.queues[id.at()].version += 1;
            self.update_activity(id);
            self.agenda.flush_later.insert(id);
        }
    }

    /// Adds a namespace or replaces its labels.
    pub fn set_namespace(&mut self, name: &Name, labels: Vec<(Name, Name)>) {
        if self.world.namespaces.insert(name.clone(), labels.clone()) != Some(labels) {
            self.namespace_changed(name);
        }
    }

    /// Removes a namespace.
    pub fn remove_namespace(&mut self, name: &str) {
        if self.world.namespaces.swap_remove(name).is_some() {
            self.namespace_changed(name);
        }
    }

    /// Workloads that were held because of their namespace are tried again.
    fn namespace_changed(&mut self, name: &str) {
        self.outside_change_anywhere();
        for id in self.world.namespace_locals.get(name).cloned().unwrap_or_default() {
            self.requeue_members(id);
        }
    }
}
