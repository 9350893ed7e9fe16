//! What the pods of a Workload need of nodes: how much, which nodes, and whether whole groups.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use sluice_api::slim;
use sluice_core::{Amount, Name, WorkloadKey};

use super::matching::{has_affinity, has_labels, tolerates};
use super::scope::Scope;
use super::snapshot::Snapshot;
use crate::engine::Engine;
use crate::ingest::workload::effective_count;
use crate::world::WorkloadEntry;

/// The pods of one pod set.
#[derive(Clone, Debug)]
pub(crate) struct SetNeeds<'a> {
    /// The place of the pod set in its Workload.
    pub pod_set: usize,
    /// The flavor, if the core assigns its nodes.
    pub assigned: Option<Name>,
    /// How many; at least one.
    pub count: i64,
    /// What each takes.
    pub per_pod: Vec<(Name, Amount)>,
    /// The nodes that they may be on, regardless of their free capacity.
    pub nodes: Rc<BTreeSet<&'a str>>,
    /// Whether any node takes them, healthy or not.
    pub possible: bool,
    /// The label that makes groups of nodes, and how many replicas take one each.
    pub exclusive: Option<(String, i64)>,
}

/// One way to give a Workload flavors.
#[derive(Clone, Debug)]
pub(crate) struct Choice<'a> {
    /// The flavor of each pod set.
    pub flavors: BTreeMap<Name, Name>,
    /// What its pods need of the nodes of those.
    pub needs: Vec<SetNeeds<'a>>,
    /// What it takes of their quota and capacity.
    pub claim: Vec<(Name, Name, Amount)>,
    /// Whether the quota of its queue could ever hold that: its assignment may be more than the queue has now.
    pub within_quota: bool,
}

impl Engine {
    /// The flavors in scope that a Workload could have, in the order in which they are tried: what it was given, then those of its
    /// queue that pods of it can use and whose quota could ever hold it.
    pub(super) fn options<'a>(
        &self,
        key: &WorkloadKey,
        entry: &WorkloadEntry,
        queue: &str,
        scope: &Scope,
        snapshot: &Snapshot<'a>,
    ) -> Vec<Choice<'a>> {
        let given = given(entry, scope);
        if given.as_ref().is_some_and(BTreeMap::is_empty) {
            return Vec::new();
        }
        let groups = self.world.cluster_queues.get(queue).map(|q| &q.spec.resource_groups);
        let flavors = groups.into_iter().flatten().flat_map(|group| &group.flavors);
        let in_scope = flavors.filter_map(|f| Some(scope.flavors.get_key_value(f.name.as_str())?.0));
        let sets = &entry.object.spec.pod_sets;
        let all_on = |f: &Name| sets.iter().map(|s| (Name::from(s.name.as_str()), Name::clone(f))).collect();
        let mut seen: Vec<BTreeMap<Name, Name>> = Vec::new();
        let mut choices = Vec::new();
        for (first, flavors) in
            given.map(|g| (true, g)).into_iter().chain(in_scope.map(|f| (false, all_on(f))))
        {
            if flavors.is_empty() || seen.contains(&flavors) {
                continue;
            }
            let claim = self.claim(key, entry, &flavors, scope);
            let needs = self.needs(key, entry, &flavors, snapshot);
            let within_quota = self.could_ever_hold(queue, &claim);
            let usable = needs.iter().all(|set| set.possible) && !claim.is_empty() && within_quota;
            if first || usable {
                choices.push(Choice { flavors: flavors.clone(), needs, claim, within_quota });
            }
            seen.push(flavors);
        }
        choices
    }

    /// What those of a Workload's pods that are not over need of the nodes of these flavors.
    pub(super) fn needs<'a>(
        &self,
        key: &WorkloadKey,
        entry: &WorkloadEntry,
        flavors: &BTreeMap<Name, Name>,
        snapshot: &Snapshot<'a>,
    ) -> Vec<SetNeeds<'a>> {
        let view = snapshot.jobsets.get(key);
        let sets = entry.object.spec.pod_sets.iter().zip(&self.asks(key, entry).0).enumerate();
        sets.filter_map(|(pod_set, (set, asks))| {
            let (name, flavor) = self.world.flavors.get_key_value(flavors.get(set.name.as_str())?)?;
            let template = &set.template;
            let usable = || {
                let class = template.runtime_class_name.as_deref();
                let class = class.and_then(|name| self.world.runtime_classes.get(name));
                let mut tolerations = asks.tolerations.clone();
                tolerations.extend(flavor.spec.tolerations.iter().cloned());
                move |node: &slim::Node| {
                    has_labels(node, &flavor.spec.node_labels)
                        && has_labels(node, &template.node_selector)
                        && class.is_none_or(|class| has_labels(node, &class.node_selector))
                        && has_affinity(node, &template.node_affinity)
                        && tolerates(node, &tolerations, &asks.of_node)
                }
            };
            // Many pod sets look for the same nodes.
            let usable = snapshot.usable(name, &asks.shape, usable);
            let count = effective_count(set, entry.status(), &self.config);
            let exclusive = view
                .and_then(|view| view.pod_sets.iter().find(|p| p.name == set.name))
                .and_then(|p| p.exclusive_topology.as_ref())
                .map(|e| (e.key.clone(), i64::from(e.replicas.max(1))));
            // Whole replicas are over, or none of their pods.
            let exclusive = exclusive.map(|(label, replicas)| {
                let each = (i64::from(set.count) + replicas - 1) / replicas;
                (label, replicas.min((count + each - 1) / each.max(1)).max(1))
            });
            let per_pod = asks.of_node.clone();
            let assigned =
                (self.places_pods() && self.scheduler.assigns_nodes(name)).then(|| Name::clone(name));
            let (nodes, possible) = (usable.healthy, usable.any);
            Some(SetNeeds { pod_set, assigned, count, per_pod, nodes, possible, exclusive })
        })
        .filter(|set| set.count > 0)
        .collect()
    }

    /// What a Workload takes of the quota and the capacity of these flavors.
    pub(super) fn claim(
        &self,
        key: &WorkloadKey,
        entry: &WorkloadEntry,
        flavors: &BTreeMap<Name, Name>,
        scope: &Scope,
    ) -> Vec<(Name, Name, Amount)> {
        let mut claim = Vec::new();
        for (set, asks) in entry.object.spec.pod_sets.iter().zip(&self.asks(key, entry).0) {
            let Some(flavor) = flavors.get(set.name.as_str()) else { continue };
            let Some(resources) = scope.flavors.get(flavor) else { continue };
            let count = effective_count(set, entry.status(), &self.config);
            let counted = asks.of_quota.iter().filter(|(resource, _)| resources.contains(resource));
            claim.extend(counted.map(|(resource, amount)| {
                (Name::clone(flavor), Name::clone(resource), amount.saturating_mul(count))
            }));
        }
        claim
    }
}

/// The flavor in scope that each pod set was given.
pub(super) fn given(entry: &WorkloadEntry, scope: &Scope) -> Option<BTreeMap<Name, Name>> {
    let admission = entry.status().admission.as_ref()?;
    let sets = admission.pod_set_assignments.iter().zip(&entry.object.spec.pod_sets);
    let given = sets.filter_map(|(set, spec)| {
        let mut flavors = set.flavors.values().map(String::as_str);
        let flavor = flavors.find_map(|f| scope.flavors.get_key_value(f).map(|(name, _)| name))?;
        Some((Name::from(spec.name.as_str()), Name::clone(flavor)))
    });
    Some(given.collect())
}
