//! Which nodes new work avoids: nodes whose announced maintenance begins before the work ends, and groups of nodes in which some are unhealthy, where
//! only a part of a slice would fit.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PreferredSchedulingTerm,
};
use sluice_api::gates::Gate;
use sluice_api::job::JobView;
use sluice_api::slim;
use sluice_core::{Name, NodeGroups};

use super::group_index::{Group, Said, begins};
use super::health::{self, Health};
use super::matching::{ChangedLabel, has_labels};
use super::snapshot::{SeenNode, Snapshot};
use super::state::{Nodes, NodesToAvoid, Outdated};
use crate::engine::Engine;
use crate::ingest::workload;
use crate::world::World;

/// The highest number of groups of nodes that are named in a pod template.
const MOST_GROUPS: usize = 64;
/// The weight of a preference that outweighs all others.
const MOST_WEIGHT: i32 = 100;

impl NodesToAvoid {
    /// What the nodes of these flavors show; `labels` are those by which work of a flavor takes whole groups.
    pub fn of(
        world: &World,
        snapshot: &Snapshot<'_>,
        flavors: impl Iterator<Item = Name>,
        labels: &BTreeMap<Name, BTreeSet<String>>,
        groups: &[NodeGroups<'_>],
        announced: &str,
    ) -> Self {
        let mut nodes_to_avoid = Self::default();
        for flavor in flavors {
            let Some(object) = world.flavors.get(&flavor) else { continue };
            let mut nodes = Nodes::default();
            let labels = labels.get(&flavor);
            let groups: Vec<_> =
                groups.iter().filter(|of| labels.is_some_and(|labels| labels.contains(&of.label))).collect();
            // Only the first node of each broken group needs a look.
            let mut known: Vec<_> = groups.iter().map(|of| vec![false; of.all.len()]).collect();
            for node in snapshot.of_flavor(&flavor, &object.spec.node_labels).iter() {
                let begins = begins(snapshot.nodes[*node].node, announced);
                nodes.first = [nodes.first, begins].into_iter().flatten().min();
                for (of, known) in groups.iter().zip(&mut known) {
                    let Some(at) = of.of[*node] else { continue };
                    let group = &of.all[at];
                    if !group.whole && !std::mem::replace(&mut known[at], true) {
                        nodes.broken.entry(of.label.clone()).or_default().insert(group.value.to_owned());
                    }
                    if let Some(begins) = begins {
                        let groups = nodes.announced.entry(of.label.clone()).or_default();
                        let first = groups.entry(group.value.to_owned()).or_insert(begins);
                        *first = begins.min(*first);
                    }
                }
            }
            nodes_to_avoid.flavors.insert(flavor, nodes);
        }
        let wavers = |seen: &SeenNode<'_>| match seen.health {
            Health::Wavering { until, .. } => Some(until),
            _ => None,
        };
        nodes_to_avoid.until = snapshot.nodes.iter().filter_map(wavers).min();
        nodes_to_avoid
    }

    /// The affinity that keeps work on these flavors, which ends at `end` (Unix seconds; `None`: unknown), off unsuitable nodes; `groups` is the
    /// label by which it takes whole groups.
    fn affinity(
        &self,
        flavors: &BTreeSet<&str>,
        end: Option<i64>,
        groups: Option<&str>,
        announced: &str,
    ) -> Option<NodeAffinity> {
        let nodes: Vec<&Nodes> = flavors.iter().filter_map(|flavor| self.flavors.get(*flavor)).collect();
        let comes_first = |begins: i64| end.is_none_or(|end| begins < end);
        let mut preferred = Vec::new();
        if nodes.iter().filter_map(|nodes| nodes.first).any(comes_first) {
            preferred.push(prefer(requirement(announced, "DoesNotExist", Vec::new())));
            // At most one of the two holds.
            let late = end.map(|end| requirement(announced, "Gt", vec![end.saturating_sub(1).to_string()]));
            preferred.extend(late.map(prefer));
        }
        let mut required = None;
        if let Some(key) = groups {
            let soon = nodes.iter().filter_map(|nodes| nodes.announced.get(key)).flatten();
            let soon: BTreeSet<&String> =
                soon.filter(|(_, begins)| comes_first(**begins)).map(|(group, _)| group).collect();
            if !soon.is_empty() {
                preferred.push(prefer(none_of(key, &soon)));
            }
            let broken: BTreeSet<&String> =
                nodes.iter().filter_map(|nodes| nodes.broken.get(key)).flatten().collect();
            if !broken.is_empty() {
                required = Some(NodeSelector { node_selector_terms: vec![term(none_of(key, &broken))] });
            }
        }
        let affinity = NodeAffinity {
            preferred_during_scheduling_ignored_during_execution: Some(preferred).filter(|p| !p.is_empty()),
            required_during_scheduling_ignored_during_execution: required,
        };
        (affinity != NodeAffinity::default()).then_some(affinity)
    }
}

fn requirement(key: &str, operator: &str, values: Vec<String>) -> NodeSelectorRequirement {
    NodeSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: Some(values).filter(|values| !values.is_empty()),
    }
}

/// None of these groups, up to the number that a template may name.
fn none_of(key: &str, groups: &BTreeSet<&String>) -> NodeSelectorRequirement {
    requirement(key, "NotIn", groups.iter().take(MOST_GROUPS).map(|group| (*group).clone()).collect())
}

fn term(requirement: NodeSelectorRequirement) -> NodeSelectorTerm {
    NodeSelectorTerm { match_expressions: Some(vec![requirement]), match_fields: None }
}

fn prefer(requirement: NodeSelectorRequirement) -> PreferredSchedulingTerm {
    PreferredSchedulingTerm { preference: term(requirement), weight: MOST_WEIGHT }
}

/// When a job that starts now has ended for sure, in Unix seconds, if anything says so.
fn end(now: Timestamp, object: &slim::Workload, view: &JobView) -> Option<i64> {
    let past = object.status.accumulated_past_execution_time_seconds.unwrap_or(0);
    let most = object.spec.maximum_execution_time_seconds.map(|most| i64::from(most) - i64::from(past));
    let seconds = [most, view.active_deadline_seconds].into_iter().flatten().min()?;
    Some(now.as_second().saturating_add(seconds))
}

impl Engine {
    /// The current state of nodes: from the last look, or computed again if something that it depends on has changed since. Changes of Workloads do
    /// not count unless this Workload takes groups of nodes that none took.
    fn nodes_to_avoid(&self, object: &slim::Workload, takes_groups: bool) -> Cow<'_, NodesToAvoid> {
        let users = &self.hotswap.users;
        let known = self.hotswap.nodes_to_avoid.get_or_init(|| self.nodes_to_avoid_again());
        let in_time = known.is_in_time(self.now);
        let counts = || !takes_groups || self.is_among(object, &known.users);
        if !self.hotswap.stale || in_time && counts() {
            return Cow::Borrowed(known);
        }
        let key = workload::key(object);
        let own = self.world.workloads.get(&key).map(|entry| self.exclusive_use(&key, entry));
        Cow::Owned(self.nodes_to_avoid_now(users.iter().cloned().chain(own.into_iter().flatten()).collect()))
    }

    /// What a node says that this depends on, before it changes or goes.
    pub(crate) fn said_by(&self, node: &slim::Node) -> Said {
        self.hotswap.groups.said(node, &self.config.hotswap)
    }

    /// A node, which had said this, came, changed or went. What is known of other groups than its own stays.
    pub(super) fn node_to_avoid_changed(&mut self, name: &Name, said: Said) {
        let (state, config) = (&mut self.hotswap, &self.config.hotswap);
        let changed = state.groups.node_changed(name, said, &self.world.nodes, config);
        if let Some(known) = state.nodes_to_avoid.take() {
            state.outdated = Some(Outdated { known, groups: BTreeSet::new() });
        }
        let Some(mut outdated) = state.outdated.take() else { return };
        let Some(changed) = changed.filter(|_| outdated.known.is_in_time(self.now)) else { return };
        outdated.groups.extend(changed);
        let health = self.world.nodes.get(name).map(|node| health::of(node, self.now, config));
        if let Some(Health::Wavering { until, .. }) = health {
            let first = outdated.known.until.map_or(until, |known| known.min(until));
            outdated.known.until = Some(first);
        }
        state.outdated = Some(outdated);
    }

    /// The labels are known by which JobSets take whole groups of nodes.
    pub(super) fn index_groups(&mut self) {
        let state = &mut self.hotswap;
        let labels = state.users.iter().map(|(_, label)| label.as_str()).collect();
        state.groups.set_labels(&labels, &self.world.nodes, &self.config.hotswap);
    }

    /// What was known before some nodes have changed, with their groups as they are now; or what all nodes show.
    fn nodes_to_avoid_again(&self) -> NodesToAvoid {
        let outdated = self.hotswap.outdated.as_ref();
        match outdated.filter(|outdated| outdated.known.is_in_time(self.now)) {
            Some(outdated) => self.with_groups_of(outdated),
            None => self.nodes_to_avoid_now(self.hotswap.users.clone()),
        }
    }

    fn with_groups_of(&self, outdated: &Outdated) -> NodesToAvoid {
        let (nodes, index) = (&self.world.nodes, &self.hotswap.groups);
        let scope = super::scope::Scope::of(&self.world, &self.config);
        let labels = self.exclusive_labels(&scope, &outdated.known.users);
        let announced = &self.config.hotswap.maintenance_time_label;
        let mut known = outdated.known.clone();
        for (flavor, of) in &mut known.flavors {
            let Some(object) = self.world.flavors.get(flavor) else { continue };
            let has = |node: &slim::Node| has_labels(node, &object.spec.node_labels);
            let is_own = |name: &Name| nodes.get(name).is_some_and(has);
            of.first = index.announced().find(|(_, name)| is_own(name)).map(|(begins, _)| *begins);
            let taken = labels.get(flavor);
            for (label, value) in &outdated.groups {
                if taken.is_none_or(|taken| !taken.contains(label)) {
                    continue;
                }
                let group = index.group(label, value);
                let members = group.into_iter().flat_map(|(group, _)| &group.nodes);
                let own: Vec<&Name> = members.filter(|name| is_own(name)).collect();
                let whole = group.is_none_or(|(group, sized)| self.is_whole(group, sized));
                of.set_broken(label, value, !own.is_empty() && !whole);
                let begins = own.iter().filter_map(|name| begins(nodes.get(*name)?, announced));
                of.set_announced(label, value, begins.min());
            }
        }
        known
    }

    /// Whether all nodes of a group are there, and count for capacity.
    fn is_whole(&self, group: &Group, sized: bool) -> bool {
        let counts = |name: &Name| {
            let node = self.world.nodes.get(name);
            node.is_some_and(|node| health::of(node, self.now, &self.config.hotswap).has_capacity())
        };
        (!sized || group.nodes.len() >= group.wanted) && group.nodes.iter().all(counts)
    }

    /// The differences between what is known of nodes and what all nodes show.
    pub(crate) fn audit_nodes_to_avoid(&self) -> Vec<String> {
        let state = &self.hotswap;
        let mut differences = Vec::new();
        if state.groups != state.groups.afresh(&self.world.nodes, &self.config.hotswap) {
            differences.push("the groups of nodes differ from the objects".to_owned());
        }
        if state.nodes_to_avoid.get().is_none() && state.outdated.is_none() {
            return differences;
        }
        let known = state.nodes_to_avoid.get().cloned().unwrap_or_else(|| self.nodes_to_avoid_again());
        let again = self.nodes_to_avoid_now(state.users.clone());
        if known.is_in_time(self.now) && known.flavors != again.flavors {
            differences.push("the nodes to avoid differ from those that all nodes show".to_owned());
        }
        differences
    }

    /// Whether the groups of nodes that a Workload takes are among these.
    fn is_among(&self, object: &slim::Workload, users: &BTreeSet<(Name, String)>) -> bool {
        let key = workload::key(object);
        let entry = self.world.workloads.get(&key);
        entry.is_some_and(|entry| self.exclusive_use(&key, entry).iter().all(|one| users.contains(one)))
    }

    /// With these queues whose JobSets take whole groups of nodes. All nodes are gone through.
    fn nodes_to_avoid_now(&self, users: BTreeSet<(Name, String)>) -> NodesToAvoid {
        let scope = super::scope::Scope::of(&self.world, &self.config);
        if scope.flavors.is_empty() {
            return NodesToAvoid::default();
        }
        let snapshot = Snapshot::of_nodes(self, self.now);
        let labels = self.exclusive_labels(&scope, &users);
        let groups = self.groups(&labels, &snapshot);
        let announced = &self.config.hotswap.maintenance_time_label;
        let flavors = scope.flavors.into_keys();
        let found = NodesToAvoid::of(&self.world, &snapshot, flavors, &labels, &groups, announced);
        NodesToAvoid { users, ..found }
    }

    /// Whether a changed node may be one to avoid, or no longer: by its health, by the label with its maintenance time, by its flavor or group, or by
    /// the size of its slice.
    pub(crate) fn says_otherwise_what_to_avoid(
        &self,
        before: &slim::Node,
        after: &slim::Node,
        labels: &[ChangedLabel<'_>],
    ) -> bool {
        let config = &self.config.hotswap;
        let health = |node: &slim::Node| {
            let deleted = node.metadata.deletion_timestamp.is_some();
            (deleted, node.ready, node.ready_since, node.unschedulable)
        };
        let departs = |node: &slim::Node| -> Vec<bool> {
            let has = |key: &String| node.taints.iter().any(|taint| taint.key == *key);
            config.departing_taints.iter().map(has).collect()
        };
        let size = &config.slice_resource;
        health(before) != health(after)
            || before.taints != after.taints && departs(before) != departs(after)
            || before.allocatable.get(size) != after.allocatable.get(size)
            || labels.iter().any(|(key, _)| self.decides_what_to_avoid(key))
    }

    /// Whether such a thing depends on a label.
    fn decides_what_to_avoid(&self, key: &str) -> bool {
        let config = &self.config.hotswap;
        *key == *config.maintenance_time_label
            || *key == *config.slice_topology_label
            || config.departing_labels.contains_key(key)
            || self.world.flavors.values().any(|flavor| flavor.spec.node_labels.contains_key(key))
            || self.hotswap.users.iter().any(|(_, label)| *label == *key)
    }

    /// The affinity that keeps a pod set that starts now on these flavors off unsuitable nodes.
    pub(crate) fn nodes_to_prefer(
        &self,
        object: &slim::Workload,
        view: &JobView,
        pod_set: usize,
        flavors: &BTreeSet<&str>,
    ) -> Option<Box<Affinity>> {
        if !self.config.on(Gate::Hotswap) || !self.config.scheduling {
            return None;
        }
        let set = view.pod_sets.get(pod_set);
        let groups = set.and_then(|set| set.exclusive_topology.as_ref()).map(|groups| groups.key.as_str());
        let end = end(self.now, object, view);
        let announced = &self.config.hotswap.maintenance_time_label;
        let nodes_to_avoid = self.nodes_to_avoid(object, groups.is_some());
        let node_affinity = nodes_to_avoid.affinity(flavors, end, groups, announced)?;
        Some(Box::new(Affinity { node_affinity: Some(node_affinity), ..Affinity::default() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const TIME: &str = "maintenance-time";
    const POOL: &str = "pool";

    fn nodes_to_avoid(first: Option<i64>, broken: &[&str], announced: &[(&str, i64)]) -> NodesToAvoid {
        let of = |all: BTreeSet<String>| {
            if all.is_empty() { BTreeMap::new() } else { [(POOL.to_owned(), all)].into() }
        };
        let announced: BTreeMap<_, _> =
            announced.iter().map(|(group, at)| ((*group).to_owned(), *at)).collect();
        let nodes = Nodes {
            first,
            broken: of(broken.iter().map(|group| (*group).to_owned()).collect()),
            announced: [(POOL.to_owned(), announced)].into(),
        };
        NodesToAvoid { flavors: [(Name::from("tpu"), nodes)].into(), ..NodesToAvoid::default() }
    }

    fn affinity(nodes_to_avoid: &NodesToAvoid, end: Option<i64>, groups: Option<&str>) -> Value {
        json!(nodes_to_avoid.affinity(&["tpu"].into(), end, groups, TIME))
    }

    fn preferred(expression: &Value) -> Value {
        json!({"weight": 100, "preference": {"matchExpressions": [expression]}})
    }

    #[test]
    fn work_of_unknown_length_avoids_every_announced_maintenance() {
        let terms = [preferred(&json!({"key": TIME, "operator": "DoesNotExist"}))];
        let expected = json!({"preferredDuringSchedulingIgnoredDuringExecution": terms});
        assert_eq!(affinity(&nodes_to_avoid(Some(1_000), &[], &[]), None, None), expected);
    }

    #[test]
    fn work_that_ends_in_time_avoids_nothing_and_other_work_takes_nodes_whose_turn_is_later() {
        let known = nodes_to_avoid(Some(1_000), &[], &[]);
        assert_eq!(affinity(&known, Some(1_000), None), Value::Null);
        let terms = [
            preferred(&json!({"key": TIME, "operator": "DoesNotExist"})),
            preferred(&json!({"key": TIME, "operator": "Gt", "values": ["1000"]})),
        ];
        let expected = json!({"preferredDuringSchedulingIgnoredDuringExecution": terms});
        assert_eq!(affinity(&known, Some(1_001), None), expected);
        assert_eq!(affinity(&nodes_to_avoid(None, &[], &[]), None, None), Value::Null);
    }

    #[test]
    fn a_slice_keeps_off_groups_that_are_not_whole_and_off_those_with_a_node_that_goes_soon() {
        let known = nodes_to_avoid(Some(10), &["a"], &[("b", 10), ("c", 99)]);
        let found = affinity(&known, Some(50), Some(POOL));
        let not_in = |group: &str| json!({"key": POOL, "operator": "NotIn", "values": [group]});
        assert_eq!(found["preferredDuringSchedulingIgnoredDuringExecution"][2], preferred(&not_in("b")));
        let required = &found["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        assert_eq!(*required, json!([{"matchExpressions": [not_in("a")]}]));
        let plain = affinity(&known, Some(50), None);
        assert!(plain["requiredDuringSchedulingIgnoredDuringExecution"].is_null());
    }

    #[test]
    fn a_template_names_a_limited_number_of_groups() {
        let names: Vec<String> = (0..100).map(|n| format!("g{n:03}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let found = affinity(&nodes_to_avoid(None, &names, &[]), None, Some(POOL));
        let terms = &found["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"];
        assert_eq!(terms[0]["matchExpressions"][0]["values"].as_array().unwrap().len(), MOST_GROUPS);
    }
}
