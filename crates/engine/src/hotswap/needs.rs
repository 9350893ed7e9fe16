//! What the pods of a Workload need of nodes: how much, which nodes, and whether they need whole groups of nodes.

use std::collections::BTreeMap;

use serde_json::json;
use sluice_api::slim;
use sluice_core::{Amount, FlavorChoice, Name, SetNeeds};

use super::matching::{has_affinity, has_labels, tolerates};
use super::scope::Scope;
use super::snapshot::{NodeTerms, SeenWorkload, Snapshot};
use crate::engine::Engine;
use crate::ingest::scheduling::affinity;
use crate::ingest::workload::effective_count;
use crate::world::WorkloadEntry;

/// By pod set: its flavor, if it is in scope.
pub(crate) type Flavors = Vec<Option<Name>>;

/// What the pods of a Workload need of nodes.
#[derive(Debug)]
pub(super) struct Needs<'a> {
    /// By pod set, if it has pods on a flavor in scope.
    pub sets: Vec<SetNeeds<'a>>,
    /// Whether any node takes the pods of each, healthy or not.
    pub possible: bool,
}

impl Engine {
    /// The flavors in scope that a Workload could have, in the order in which they are tried: those that it was given, then those of its queue that
    /// its pods can use and whose quota could ever hold it. What it was given may be more than its queue has now: `within_quota` leaves that out.
    pub(super) fn options<'a>(
        &'a self,
        workload: &SeenWorkload<'a>,
        (queue, within_quota): (&str, bool),
        scope: &Scope,
        snapshot: &Snapshot<'a>,
    ) -> Vec<FlavorChoice<'a>> {
        let given = given(workload.entry, scope);
        if given.as_ref().is_some_and(|given| given.iter().all(Option::is_none)) {
            return Vec::new();
        }
        let groups = self.world.cluster_queues.get(queue).map(|q| &q.spec.resource_groups);
        let flavors = groups.into_iter().flatten().flat_map(|group| &group.flavors);
        let in_scope = flavors.filter_map(|f| Some(scope.flavors.get_key_value(f.name.as_str())?.0));
        let sets = workload.entry.object.spec.pod_sets.len();
        let all_on = |flavor: &Name| vec![Some(Name::clone(flavor)); sets];
        let mut seen: Vec<Flavors> = Vec::new();
        let mut choices = Vec::new();
        for (first, flavors) in
            given.map(|g| (true, g)).into_iter().chain(in_scope.map(|f| (false, all_on(f))))
        {
            if flavors.is_empty() || seen.contains(&flavors) {
                continue;
            }
            let claim = self.claim(workload, &flavors, scope, snapshot);
            let Needs { sets: needs, possible } = self.needs(workload, &flavors, snapshot);
            let fits_quota = self.scheduler.could_ever_hold(queue, &claim);
            let usable = possible && !claim.is_empty() && fits_quota;
            seen.push(flavors.clone());
            if usable || first && (fits_quota || !within_quota) {
                choices.push(FlavorChoice { flavors, needs, claim });
            }
        }
        choices
    }

    /// What a Workload's pods that have not ended need of the nodes of these flavors.
    pub(super) fn needs<'a>(
        &'a self,
        workload: &SeenWorkload<'a>,
        flavors: &[Option<Name>],
        snapshot: &Snapshot<'a>,
    ) -> Needs<'a> {
        let entry = workload.entry;
        let mut possible = true;
        let sets = entry.object.spec.pod_sets.iter().zip(&self.asks(workload, snapshot).0);
        let sets = sets.zip(flavors).enumerate();
        let sets = sets.filter_map(|(pod_set, ((set, asks), flavor))| {
            let count = effective_count(set, entry.status(), &self.config);
            if count <= 0 {
                return None;
            }
            let (name, flavor) = self.world.flavors.get_key_value(flavor.as_ref()?)?;
            let template = &set.template;
            let usable = || {
                let around = self.world.around(&workload.key.namespace, &self.config);
                let class = around.class_of(template).map(|class| &class.node_selector);
                let mut tolerations = asks.tolerations.clone();
                tolerations.extend(flavor.spec.tolerations.iter().cloned());
                let terms = affinity(template.node_affinity());
                NodeTerms {
                    selection: json!([template.node_selector, class, template.node_affinity()]).to_string(),
                    labels: selected_by(template, class),
                    selects: move |node: &slim::Node| {
                        has_labels(node, &template.node_selector)
                            && class.is_none_or(|labels| has_labels(node, labels))
                            && has_affinity(node, &terms)
                    },
                    tolerates: move |node: &slim::Node| tolerates(node, &tolerations, &asks.of_node),
                }
            };
            // Many pod sets look for the same nodes.
            let usable = snapshot.usable((name, &flavor.spec.node_labels), &asks.shape, usable);
            possible &= usable.any;
            let exclusive = workload
                .jobset
                .and_then(|view| view.pod_sets.iter().find(|p| p.name == set.name))
                .and_then(|p| p.exclusive_topology.as_ref())
                .map(|e| (e.key.as_str(), i64::from(e.replicas.max(1))));
            // Either all pods of a replica have ended, or none.
            let exclusive = exclusive.map(|(label, replicas)| {
                let each = (i64::from(set.count) + replicas - 1) / replicas;
                (label, replicas.min((count + each - 1) / each.max(1)).max(1))
            });
            let assigned =
                (self.places_pods() && self.scheduler.assigns_nodes(name)).then(|| Name::clone(name));
            let nodes = usable.healthy;
            Some(SetNeeds { pod_set, assigned, count, per_pod: &asks.of_node, nodes, exclusive })
        });
        Needs { sets: sets.collect(), possible }
    }

    /// What a Workload uses of the quota and the capacity of these flavors.
    pub(super) fn claim(
        &self,
        workload: &SeenWorkload<'_>,
        flavors: &[Option<Name>],
        scope: &Scope,
        snapshot: &Snapshot<'_>,
    ) -> Vec<(Name, Name, Amount)> {
        let entry = workload.entry;
        let mut claim = Vec::new();
        let sets = entry.object.spec.pod_sets.iter().zip(&self.asks(workload, snapshot).0).zip(flavors);
        for ((set, asks), flavor) in sets {
            let Some(flavor) = flavor else { continue };
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

/// The keys of the labels by which pods select nodes: `class` are those of their RuntimeClass.
fn selected_by(template: &slim::PodTemplate, class: Option<&BTreeMap<String, String>>) -> Vec<String> {
    let own = template.node_selector.keys().chain(class.into_iter().flat_map(BTreeMap::keys));
    let terms = template.node_affinity().iter().flat_map(|term| &term.match_expressions).flatten();
    own.chain(terms.map(|expression| &expression.key)).cloned().collect()
}

/// The flavor in scope that each pod set was given.
pub(super) fn given(entry: &WorkloadEntry, scope: &Scope) -> Option<Flavors> {
    let admission = entry.status().admission.as_ref()?;
    let assignments = admission.pod_set_assignments.iter().map(Some).chain(std::iter::repeat(None));
    let sets = entry.object.spec.pod_sets.iter().zip(assignments);
    let given = sets.map(|(_, assignment)| {
        let mut flavors = assignment?.flavors.values().map(String::as_str);
        flavors.find_map(|f| scope.flavors.get_key_value(f).map(|(name, _)| Name::clone(name)))
    });
    Some(given.collect())
}
