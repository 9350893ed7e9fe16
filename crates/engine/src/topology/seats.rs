//! Updates seats ([`super::seating`]) with the events of pods, nodes and assignments.

use std::collections::BTreeMap;

use sluice_core::{HOSTNAME, Name, WorkloadKey};

use super::seating::{Domain, Rank, Rooms, Seating, SetKey};
use crate::engine::Engine;
use crate::hotswap::pod::PodKey;

impl Engine {
    /// The assignments that pods know by a name are others.
    pub(super) fn rooms_changed(&mut self, home: &WorkloadKey) {
        let mut rooms: BTreeMap<SetKey, Rooms> = BTreeMap::new();
        for key in self.topology.holding.get(home).into_iter().flatten() {
            let Some(entry) = self.world.workloads.get(key) else { continue };
            for (at, assignment) in self.assigned.of.get(key).into_iter().flatten() {
                let Some(set) = entry.object.spec.pod_sets.get(*at) else { continue };
                let set = (home.clone(), Name::from(set.name.as_str()));
                rooms.entry(set).or_default().add(assignment, self.topology.each_of(key, *at));
            }
        }
        let seating = &mut self.topology.seating;
        let before = seating.pods_of(home);
        for pod in &before {
            seating.take(pod);
        }
        let known = seating.rooms.range((home.clone(), Name::from(""))..);
        let known = known.take_while(|((key, _), _)| key == home).map(|(set, _)| set.clone());
        for set in known.collect::<Vec<_>>() {
            seating.rooms.remove(&set);
        }
        // Pods are looked for by the levels of the first.
        let domains = rooms.values().filter_map(|rooms| rooms.pods.keys().next());
        for (level, _) in domains.flatten() {
            if !seating.levels.contains(level) {
                seating.levels.insert(Name::clone(level));
            }
        }
        seating.rooms.extend(rooms);
        for pod in before {
            self.count_pod(&pod);
        }
    }

    /// A node came, went, or is in another domain: so are its pods.
    pub(super) fn node_moved(&mut self, node: &Name) {
        if !self.topology.used || self.topology.seating.rooms.is_empty() {
            return;
        }
        for pod in self.world.pods_on(node).cloned().collect::<Vec<_>>() {
            self.count_pod(&pod);
        }
    }

    /// The domain that a pod is in of its Workload's assignment, if it names a Workload that holds its node.
    fn seat_of(&self, key: &PodKey) -> Option<(SetKey, Domain)> {
        let pod = self.world.job_pods.get(key)?;
        let place = pod.place.as_ref()?;
        let home = WorkloadKey::new(Name::clone(&key.0), Name::clone(&place.workload));
        let set = (home, Name::clone(pod.pod_set.as_ref()?));
        let rooms = self.topology.seating.rooms.get(&set)?;
        let node = place.node.as_ref()?;
        let host = self.topology.host_of(node).unwrap_or(node);
        let by_host: Domain = vec![(Name::from(HOSTNAME), Name::clone(host))];
        if rooms.pods.contains_key(&by_host) {
            return Some((set, by_host));
        }
        let labels = self.world.nodes.get(node)?.metadata.labels.as_ref()?;
        let levels = rooms.pods.keys().next()?;
        let value = |level: &Name| labels.get(&**level).map(|value| Name::from(value.as_str()));
        let own: Option<Domain> =
            levels.iter().map(|(level, _)| Some((Name::clone(level), value(level)?))).collect();
        own.filter(|own| rooms.pods.contains_key(own)).map(|own| (set, own))
    }

    /// Seats a pod that came or changed, or takes it out. Gives the pods that thereby have got a seat, or lost theirs.
    pub(super) fn seat(&mut self, key: &PodKey) -> Vec<PodKey> {
        let known = self.world.pods.get(key);
        let wanted = known.and_then(|pod| {
            let (set, domain) = self.seat_of(key)?;
            Some((set, domain, Rank::of(key, pod)))
        });
        let seating = &mut self.topology.seating;
        if seating.of.get(key) == wanted.as_ref() {
            return Vec::new();
        }
        let mut changes = Vec::new();
        changes.extend(seating.take(key));
        if let Some((set, domain, rank)) = wanted {
            let last = seating.put(key, set, domain, rank);
            changes.extend(last.filter(|last| last != key));
        }
        changes
    }

    /// The differences between the seats and the objects.
    pub(super) fn audit_seats(&self) -> Option<String> {
        let mut fresh = Seating { rooms: self.topology.seating.rooms.clone(), ..Seating::default() };
        for (key, pod) in self.world.pods.iter().filter(|_| self.topology.used) {
            if let Some((set, domain)) = self.seat_of(key) {
                fresh.put(key, set, domain, Rank::of(key, pod));
            }
        }
        let known = &self.topology.seating;
        (!fresh.has_the_pods_of(known))
            .then(|| "the pods that are where they were assigned differ from the objects".to_owned())
    }
}
