//! Places that pods may have: by the labels of nodes, the topology, and the health of nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::lost::is_well;
use super::objects::{Pod, Workload};
use super::pod_sets::PodSet;
use super::{Checker, Rule};

/// How long ago a node must have been healthy to be assigned: its loss is not known at once, and a write may be late.
pub(super) const RECENT: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
struct Node {
    labels: BTreeMap<String, String>,
    well: bool,
    /// When it was last seen well, if it is not now.
    until: Option<Duration>,
}

/// The nodes and the labels that flavors ask for.
#[derive(Debug, Default)]
pub(super) struct Places {
    nodes: BTreeMap<String, Node>,
    flavors: BTreeMap<String, BTreeMap<String, String>>,
}

fn texts(object: &Value) -> BTreeMap<String, String> {
    let texts = object.as_object().into_iter().flatten();
    texts.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}

impl Places {
    /// A removed node keeps its labels.
    pub fn set_node(&mut self, name: &str, object: Option<&Value>, now: Duration) {
        let node = self.nodes.entry(name.to_owned()).or_default();
        let well = object.is_some_and(is_well);
        if node.well && !well {
            node.until = Some(now);
        }
        node.well = well;
        if let Some(object) = object {
            node.labels = texts(&object["metadata"]["labels"]);
        }
    }

    pub fn set_flavor(&mut self, name: &str, object: Option<&Value>) {
        match object {
            Some(object) => drop(self.flavors.insert(name.to_owned(), texts(&object["spec"]["nodeLabels"]))),
            None => drop(self.flavors.remove(name)),
        }
    }

    /// The nodes that are well and that a flavor chooses, by their value of a level.
    pub fn domains(&self, flavor: &str, level: &str) -> BTreeMap<&str, Vec<&str>> {
        let mut domains: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, node) in self.nodes.iter().filter(|(_, node)| node.well) {
            if self.flavors.get(flavor).is_some_and(|labels| !is_within(labels, &node.labels)) {
                continue;
            }
            let domain = node.labels.get(level).map_or("", String::as_str);
            domains.entry(domain).or_default().push(name);
        }
        domains
    }

    /// A label that a flavor of a pod set asks for and a node does not have.
    fn missing(&self, set: &PodSet, node: &str) -> Option<String> {
        let empty = BTreeMap::new();
        let labels = self.nodes.get(node).map_or(&empty, |node| &node.labels);
        let flavors: BTreeSet<_> = set.gift.iter().flat_map(|gift| gift.flavors.values()).collect();
        let mut wanted = flavors.into_iter().filter_map(|flavor| Some((flavor, self.flavors.get(flavor)?)));
        let missing = wanted.find(|(_, wanted)| !is_within(wanted, labels));
        missing.map(|(flavor, wanted)| format!("{node} has not the labels {wanted:?} of the flavor {flavor}"))
    }

    /// The problem of a pod set's places; `before` are its former places.
    fn wrong(&self, set: &PodSet, before: &BTreeSet<&str>, now: Duration) -> Option<String> {
        let nodes = set.gift.as_ref()?.nodes.as_ref()?;
        for (name, _) in nodes.iter().filter(|(name, pods)| *pods > 0 && !before.contains(name.as_str())) {
            let Some(node) = self.nodes.get(name) else { return Some(format!("{name} was never there")) };
            let recent = node.well || node.until.is_some_and(|until| now <= until + RECENT);
            if !recent {
                return Some(format!("{name} was not well for longer than {} s", RECENT.as_secs()));
            }
            if let Some(text) = self.missing(set, name) {
                return Some(text);
            }
        }
        let level = set.required.as_ref()?;
        let value = |name: &String| self.nodes.get(name).and_then(|node| node.labels.get(level));
        let domains: BTreeSet<_> = nodes.iter().map(|(name, _)| value(name)).collect();
        (domains.len() > 1 || domains.contains(&None))
            .then(|| format!("its pod set {} must be in one {level}, and is in {domains:?}", set.name))
    }
}

fn is_within(wanted: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

impl Checker {
    /// Checks that the nodes of a new topology assignment are allowed for the pods.
    pub(super) fn judge_places(&mut self, key: &str, before: &Workload, now: &Workload) {
        if !now.reserved || now.finished {
            return;
        }
        let mut wrong = Vec::new();
        for set in &now.sets {
            let had = before.sets.iter().filter(|one| before.reserved && one.name == set.name);
            let had = had.filter_map(|one| one.gift.as_ref()?.nodes.as_ref()).flatten();
            let had = had.map(|(name, _)| name.as_str()).collect();
            wrong.extend(self.places.wrong(set, &had, self.now));
        }
        for text in wrong {
            self.note(Rule::Misplaced, key, text);
        }
    }

    /// Checks that the labels of a pod's node are those of its flavors.
    pub(super) fn judge_labels(&mut self, key: &str, pod: &Pod, node: &str, covering: &Workload) {
        let mine = |set: &&PodSet| covering.sets.len() == 1 || pod.set.as_deref() == Some(&*set.name);
        let missing = covering.sets.iter().find(mine).and_then(|set| self.places.missing(set, node));
        if let Some(text) = missing {
            self.note(Rule::Misplaced, key, text);
        }
    }
}
