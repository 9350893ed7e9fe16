//! Queues, quotas, topologies and their flavors over time.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use sluice_engine::{Kind, ObjectRef};
use sluice_quantity::{Quantity, amount_of};

use super::{Holding, LocalStop, QuotaChange, Record, SeenLocalQueue};
use crate::json::text;

impl Record {
    /// A queue, its quota, a topology or a flavor with one has changed.
    pub(crate) fn configured(&mut self, now: Timestamp, reference: &ObjectRef, value: &Value) {
        match reference.kind {
            Kind::LocalQueue => {
                let target = self.text(text(&value["spec"]["clusterQueue"]));
                let (at, stopped) = (self.millis(now), is_stopped(value));
                let key = (Arc::clone(&reference.namespace), Arc::clone(&reference.name));
                let seen = SeenLocalQueue { cluster_queue: Arc::clone(&target), stopped };
                let before = self.local_queues.insert(key, seen);
                if before.is_some_and(|before| before.stopped) != stopped {
                    let queue = self.text(&format!("{}/{}", reference.namespace, reference.name));
                    self.local_stops.push(LocalStop { at, queue, cluster_queue: target, stopped });
                }
            }
            Kind::ClusterQueue | Kind::Cohort => {
                let is_queue = reference.kind == Kind::ClusterQueue;
                let above = if is_queue { "cohortName" } else { "parentName" };
                let cohort = value["spec"][above].as_str().filter(|c| !c.is_empty()).map(Arc::from);
                let change = QuotaChange {
                    at: self.millis(now),
                    node: Arc::clone(&reference.name),
                    is_queue,
                    cohort,
                    nominal: nominal(&value["spec"]),
                    stopped: is_stopped(value),
                    deleted: false,
                };
                self.quotas.push(change);
            }
            Kind::Topology => {
                let levels = value["spec"]["levels"].as_array().into_iter().flatten();
                let levels = levels.map(|level| text(&level["nodeLabel"]).to_owned()).collect();
                self.topologies.insert(Arc::clone(&reference.name), levels);
            }
            Kind::ResourceFlavor => {
                let topology = text(&value["spec"]["topologyName"]);
                if !topology.is_empty() {
                    let labels = value["spec"]["nodeLabels"].as_object().into_iter().flatten();
                    let labels = labels.map(|(key, value)| (key.clone(), text(value).to_owned())).collect();
                    self.placed_flavors.insert(Arc::clone(&reference.name), (topology.into(), labels));
                }
            }
            _ => {}
        }
    }

    /// A queue or a Cohort is gone: it has no quota, and is not stopped any more.
    pub(super) fn unconfigured(&mut self, now: Timestamp, reference: &ObjectRef) {
        let at = self.millis(now);
        match reference.kind {
            Kind::LocalQueue => {
                let key = (Arc::clone(&reference.namespace), Arc::clone(&reference.name));
                let Some(seen) = self.local_queues.get_mut(&key).filter(|seen| seen.stopped) else { return };
                seen.stopped = false;
                let cluster_queue = Arc::clone(&seen.cluster_queue);
                let queue = self.text(&format!("{}/{}", reference.namespace, reference.name));
                self.local_stops.push(LocalStop { at, queue, cluster_queue, stopped: false });
            }
            Kind::ClusterQueue | Kind::Cohort => {
                let is_queue = reference.kind == Kind::ClusterQueue;
                let own = |of: &&QuotaChange| of.node == reference.name && of.is_queue == is_queue;
                let Some(last) = self.quotas.iter().rev().find(own).cloned() else { return };
                let nominal = Vec::new();
                self.quotas.push(QuotaChange { at, nominal, stopped: false, deleted: true, ..last });
            }
            _ => {}
        }
    }
}

/// Whether the stop policy of a queue holds new work back.
fn is_stopped(queue: &Value) -> bool {
    !["", "None"].contains(&text(&queue["spec"]["stopPolicy"]))
}

/// The quota in the spec of a ClusterQueue or Cohort.
fn nominal(spec: &Value) -> Vec<Holding> {
    let groups = spec["resourceGroups"].as_array().into_iter().flatten();
    let flavors = groups.flat_map(|g| g["flavors"].as_array().into_iter().flatten());
    let of = |flavor: &Value| {
        let resources = flavor["resources"].as_array().cloned().unwrap_or_default();
        let name: Arc<str> = text(&flavor["name"]).into();
        resources.into_iter().map(move |resource| {
            let quota = match &resource["nominalQuota"] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            let kind = text(&resource["name"]);
            let amount = Quantity::parse(&quota).map_or(0, |q| amount_of(kind, &q).get());
            Holding { flavor: Arc::clone(&name), resource: kind.into(), amount }
        })
    };
    flavors.flat_map(of).collect()
}
