//! Plays the machines: nodes that fail, are removed and return, and what happens to their pods.
//!
//! With Hotswap, pods are objects, as a manager watches them then: they stay for five minutes on a node that does not answer, and the job on it does
//! not progress unless it is moved. Without Hotswap no manager looks at pods: a job whose node fails restarts at once if there is capacity. Pods that
//! a topology assigns to nodes are replaced once their Workload is assigned other nodes (docs/reference/06-algorithm.md 6.14).

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_api::gates::Gate;
use sluice_engine::{Kind, ObjectRef};
use sluice_jobs::State;

use super::Simulation;
use crate::agenda::{Action, after};
use crate::json::text;
use crate::machines::{PODS_COLLECTED, PODS_STAY};
use crate::manifest::Manifest;
use crate::nodes::{Turn, groups};
use crate::object::reference;
use crate::pods::Phase;
use crate::record::shorten;
use crate::scenario::NodeSet;
use crate::world::seconds;

/// A node whose Ready condition says this.
fn with_ready(node: &mut Value, status: &str, now: Timestamp) {
    let (reason, message) = match status {
        "True" => ("KubeletReady", "kubelet is posting ready status"),
        _ => ("NodeStatusUnknown", "Kubelet stopped posting node status."),
    };
    let condition = json!({
        "type": "Ready", "status": status, "reason": reason, "message": message, "lastTransitionTime": seconds(now),
    });
    if !node["status"]["conditions"].is_array() {
        node["status"]["conditions"] = json!([]);
    }
    let Some(all) = node["status"]["conditions"].as_array_mut() else { return };
    match all.iter_mut().find(|c| c["type"] == "Ready") {
        Some(known) if known["status"] == status => {}
        Some(known) => *known = condition,
        None => all.push(condition),
    }
}

impl Simulation {
    /// Makes pods objects once a manager would watch them, and there are nodes.
    pub(super) fn show_pods_if_asked_for(&mut self, asked_for: bool) {
        let machines = &mut self.machines;
        machines.asked_for |= asked_for;
        let acts = self.options.configuration.gates.enabled(Gate::Hotswap);
        if machines.shown || !machines.asked_for || machines.nodes.is_empty() || !acts {
            return;
        }
        machines.shown = true;
        for job in self.pods.jobs() {
            self.show_pods(&job);
        }
    }

    /// Makes objects of a job's pods, where pods are objects.
    pub(super) fn show_pods(&mut self, job: &ObjectRef) {
        let (true, Kind::Job(kind)) = (self.machines.shown, job.kind) else { return };
        if self.machines.pods.contains_key(job) {
            // They were read from a cluster.
            return;
        }
        let Some(run) = self.pods.run(job) else { return };
        if !self.assigned(job).is_empty() {
            // The engine knows where they are.
            return;
        }
        let Some(value) = self.world.get(job) else { return };
        let documents = self.machines.documents(job, kind, value, run.attempt);
        let mut shown = Vec::with_capacity(documents.len());
        for ((node, pod), document) in documents {
            self.world.create(&pod, document);
            shown.push((node, pod));
        }
        if !shown.is_empty() {
            self.machines.pods.insert(job.clone(), shown);
        }
    }

    /// Removes all pods of a job, with their places and objects, except pods on nodes that do not answer: those can never end.
    pub(super) fn end_pods(&mut self, job: &ObjectRef) {
        let now = self.now;
        self.pods.end(job);
        self.machines.nodes.release(job);
        for (node, pod) in self.machines.pods.remove(job).unwrap_or_default() {
            if self.machines.failed.contains_key(&node) {
                self.world.edit(&pod, |pod| pod["metadata"]["deletionTimestamp"] = json!(seconds(now)));
                self.machines.stuck.entry(job.clone()).or_default().push((node, pod));
            } else {
                self.world.delete(&pod);
            }
        }
    }

    /// A node is new or different, and what follows for pods.
    pub(super) fn node_changed(&mut self, reference: &ObjectRef) {
        let turn = self.note_node(reference);
        self.nodes_turned(&[(Arc::clone(&reference.name), turn)]);
        self.show_pods_if_asked_for(false);
    }

    fn note_node(&mut self, reference: &ObjectRef) -> Turn {
        let Some(value) = self.world.get(reference) else { return Turn::Same };
        let turn = self.machines.nodes.set(&reference.name, value);
        if self.machines.nodes.is_ready(&reference.name) {
            self.machines.failed.remove(&reference.name);
        } else {
            self.machines.failed.entry(Arc::clone(&reference.name)).or_insert(self.now);
        }
        turn
    }

    /// Changes nodes, all of them before anything follows from it.
    fn change_nodes(&mut self, names: &[String], change: impl Fn(&mut Value)) {
        let mut turns = Vec::new();
        for name in names {
            let reference = ObjectRef::cluster(Kind::Node, name.as_str());
            self.world.edit(&reference, &change);
            turns.push((Arc::clone(&reference.name), self.note_node(&reference)));
        }
        self.nodes_turned(&turns);
    }

    fn nodes_turned(&mut self, turns: &[(Arc<str>, Turn)]) {
        let failed: Vec<_> = turns.iter().filter(|(_, turn)| *turn == Turn::Failed).collect();
        for (name, _) in &failed {
            let action = Action::PodsLeave(Arc::clone(name), self.now);
            self.agenda.put(after(self.now, PODS_STAY), action);
        }
        self.machines_lost(failed.iter().map(|(name, _)| &**name));
        let better: Vec<_> = turns.iter().filter(|(_, turn)| *turn == Turn::Better).collect();
        if better.is_empty() {
            return;
        }
        for (name, _) in better {
            let answers = self.machines.nodes.is_ready(name);
            if answers {
                self.end_stuck(name);
            }
        }
        self.resume_broken();
        self.start_waiting();
    }

    /// Machines do not answer or are gone: what runs on them runs no more.
    fn machines_lost<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        let hit: BTreeSet<_> = names.flat_map(|name| self.machines.nodes.jobs_on(name)).collect();
        for job in hit {
            if self.machines.shown {
                self.interrupt(&job);
            } else {
                self.lose_pods(&job);
            }
        }
    }

    /// A job stands still, because some of its pods do not run.
    fn interrupt(&mut self, job: &ObjectRef) {
        let (Some(run), Kind::Job(kind)) = (self.pods.run(job), job.kind) else { return };
        let Phase::Running { since } = run.phase else { return };
        self.record.lost(job, self.now.as_millisecond() - since.as_millisecond());
        self.pods.interrupt(job);
        let Some(value) = self.world.get(job) else { return };
        let status = sluice_jobs::status(kind, value, State::Running { since, ready: false });
        self.set_job_status(job, status);
    }

    /// Jobs that stood still continue where all their machines are back: from the beginning.
    fn resume_broken(&mut self) {
        for job in self.pods.jobs() {
            let broken = self.pods.run(&job).is_some_and(|run| run.phase == Phase::Broken);
            let Kind::Job(kind) = job.kind else { continue };
            let pods = self.machines.nodes.pods_of(&job);
            if broken && pods.iter().all(|pod| self.machines.nodes.is_ready(&pod.node)) {
                self.begin_run(&job, kind, self.now);
            }
        }
    }

    /// Pods have been on a node that does not answer for as long as they tolerate: their jobs replace them. The pods themselves end when the node
    /// answers again, or is removed.
    pub(super) fn pods_leave(&mut self, node: &str, since: Timestamp) {
        if self.machines.failed.get(node) != Some(&since) || !self.machines.shown {
            return;
        }
        for job in self.machines.nodes.jobs_on(node) {
            self.lose_pods(&job);
        }
    }

    /// The pods of a removed node are garbage-collected.
    pub(super) fn collect_pods(&mut self, node: &str) {
        if self.world.get(&ObjectRef::cluster(Kind::Node, node)).is_some() {
            return;
        }
        self.end_stuck(node);
        for job in self.machines.nodes.jobs_on(node) {
            self.lose_pods(&job);
        }
        self.start_waiting();
    }

    /// The pods that could not end on a node end.
    fn end_stuck(&mut self, node: &str) {
        for (job, pod) in self.machines.take_stuck(node) {
            self.world.delete(&pod);
            self.count_terminating(&job);
        }
    }

    /// The status of a stopped Job counts the pods that cannot end; all others have ended.
    pub(super) fn count_terminating(&mut self, job: &ObjectRef) {
        let stuck = self.machines.stuck_of(job);
        let known =
            self.world.get(job).map_or(0, |value| value["status"]["terminating"].as_u64().unwrap_or(0));
        let counts = matches!(job.kind, Kind::Job(kind) if kind.integration().counts_terminating);
        if counts && usize::try_from(known) != Ok(stuck) {
            self.world.set_status(job, |status| status["terminating"] = json!(stuck));
        }
    }

    /// Nodes are gone.
    pub(super) fn nodes_gone(&mut self, names: &[Arc<str>]) {
        let mut gone = Vec::new();
        for name in names {
            if self.machines.nodes.remove(name) {
                self.machines.failed.remove(name);
                gone.push(Arc::clone(name));
            }
        }
        self.machines_lost(gone.iter().map(|name| &**name));
        for name in gone.into_iter().filter(|_| self.machines.shown) {
            self.agenda.put(after(self.now, PODS_COLLECTED), Action::PodsCollected(name));
        }
    }

    /// Loses the pods of a job: it starts again from the beginning, elsewhere if there is room.
    fn lose_pods(&mut self, job: &ObjectRef) {
        let (Some(run), Kind::Job(kind)) = (self.pods.run(job), job.kind) else { return };
        if self.serving.object_of(job).is_some() {
            // Its object makes another.
            self.world.delete(job);
            return;
        }
        match run.phase {
            Phase::Stopping => return,
            Phase::Running { since } => {
                self.record.lost(job, self.now.as_millisecond() - since.as_millisecond());
            }
            Phase::Broken => {}
        }
        self.end_pods(job);
        let Some(value) = self.world.get(job) else { return };
        let mut status = sluice_jobs::status(kind, value, State::Idle);
        if kind.integration().restarts_whole {
            status["restarts"] = json!(value["status"]["restarts"].as_i64().unwrap_or(0) + 1);
            self.machines.restarting.insert(job.clone());
        }
        self.set_job_status(job, status);
        self.sync_job(job, kind);
    }

    /// A Workload is assigned other nodes for some of its pods: jobs with pods outside of their assignment restart.
    pub(super) fn places_changed(&mut self, jobs: &[ObjectRef]) {
        for job in jobs {
            let (Some(value), Kind::Job(kind)) = (self.world.get(job), job.kind) else { continue };
            if kind.integration().of_pods {
                continue;
            }
            let strays = {
                let (groups, assigned) = (groups(kind, value), self.assigned(job));
                self.machines.nodes.pods_of(job).iter().any(|pod| {
                    let domains = groups.get(pod.group).and_then(|group| assigned.get(&*group.name));
                    domains.is_some_and(|domains| !self.machines.nodes.is_in_any(&pod.node, domains))
                })
            };
            if strays {
                self.lose_pods(job);
            }
        }
        self.start_waiting();
    }

    /// Whether a JobSet waits for its old pods before it makes new ones.
    pub(super) fn waits_for_old_pods(&mut self, job: &ObjectRef) -> bool {
        let waits = self.machines.restarting.contains(job) && self.machines.stuck_of(job) > 0;
        if waits {
            self.machines.nodes.wait(job);
        } else {
            self.machines.restarting.remove(job);
        }
        waits
    }

    fn nodes_of(&self, set: &NodeSet) -> Vec<String> {
        let nodes = self.world.of_kind(Kind::Node);
        nodes.filter(|(r, value)| set.has(&r.name, value)).map(|(r, _)| r.name.to_string()).collect()
    }

    /// Reports the nodes that these objects add. Nodes that exist from the beginning are not reported.
    pub(crate) fn note_new_nodes(&mut self, manifests: &[Manifest]) {
        if self.now <= self.options.start {
            return;
        }
        let nodes = manifests.iter().filter(|manifest| manifest.kind == Kind::Node);
        let all = nodes.map(|manifest| reference(manifest.kind, &manifest.object));
        let new = all.filter(|node| self.world.get(node).is_none());
        let names: Vec<String> = new.map(|node| node.name.to_string()).collect();
        if !names.is_empty() {
            self.note(&format!("nodes come: {}", shorten(&names)));
        }
    }

    /// Nodes stop to answer.
    pub(crate) fn fail_nodes(&mut self, set: &NodeSet) {
        let names = self.nodes_of(set);
        self.note(&format!("nodes fail: {}", shorten(&names)));
        let now = self.now;
        self.change_nodes(&names, |node| with_ready(node, "Unknown", now));
    }

    /// Nodes are cordoned, and their pods evicted.
    pub(crate) fn drain_nodes(&mut self, set: &NodeSet) {
        let names = self.nodes_of(set);
        self.note(&format!("nodes drain: {}", shorten(&names)));
        self.change_nodes(&names, |node| node["spec"]["unschedulable"] = json!(true));
        let hit: BTreeSet<_> = names.iter().flat_map(|name| self.machines.nodes.jobs_on(name)).collect();
        let now = self.now;
        for (_, pod) in hit.iter().filter_map(|job| self.machines.pods.get(job)).flatten() {
            self.world.edit(pod, |pod| pod["metadata"]["deletionTimestamp"] = json!(seconds(now)));
        }
        // Pods are marked for deletion before they are removed, and the engine sees both.
        self.deliver();
        for job in hit {
            self.lose_pods(&job);
        }
    }

    /// Nodes say that they are about to go, as the configuration knows it.
    pub(crate) fn depart_nodes(&mut self, set: &NodeSet) {
        let names = self.nodes_of(set);
        self.note(&format!("nodes depart: {}", shorten(&names)));
        let signals = self.options.configuration.hotswap.clone();
        self.change_nodes(&names, |node| {
            for (key, value) in &signals.departing_labels {
                node["metadata"]["labels"][key.as_str()] = json!(value);
            }
            if !node["spec"]["taints"].is_array() {
                node["spec"]["taints"] = json!([]);
            }
            let Some(taints) = node["spec"]["taints"].as_array_mut() else { return };
            let new = signals
                .departing_taints
                .iter()
                .filter(|key| !taints.iter().any(|t| t["key"] == key.as_str()));
            let new: Vec<_> = new.map(|key| json!({"key": key, "effect": "NoSchedule"})).collect();
            taints.extend(new);
        });
    }

    /// Maintenance of nodes is announced.
    pub(crate) fn announce_maintenance(&mut self, set: &NodeSet, at: Timestamp) {
        let names = self.nodes_of(set);
        self.note(&format!("maintenance at {}: {}", seconds(at), shorten(&names)));
        let label = self.options.configuration.hotswap.maintenance_time_label.clone();
        self.change_nodes(&names, |node| {
            node["metadata"]["labels"][label.as_str()] = json!(at.as_second().to_string());
        });
    }

    /// Nodes are deleted.
    pub(crate) fn delete_nodes(&mut self, set: &NodeSet) {
        let names = self.nodes_of(set);
        self.note(&format!("nodes go: {}", shorten(&names)));
        for name in &names {
            let reference = ObjectRef::cluster(Kind::Node, name.as_str());
            if let Some(value) = self.world.get(&reference) {
                self.machines.removed.insert(name.clone(), value.clone());
            }
            self.world.delete(&reference);
        }
        let names: Vec<Arc<str>> = names.iter().map(|name| name.as_str().into()).collect();
        self.nodes_gone(&names);
    }

    /// Nodes come back: ready, open, without any sign that they are about to go.
    pub(crate) fn recover_nodes(&mut self, set: &NodeSet) {
        let back = self.machines.removed.extract_if(.., |name, value| set.has(name, value));
        let back: Vec<_> = back.map(|(_, value)| value).collect();
        for mut value in back {
            if let Some(metadata) = value["metadata"].as_object_mut() {
                for key in ["uid", "resourceVersion", "creationTimestamp", "deletionTimestamp"] {
                    metadata.remove(key);
                }
            }
            let name = text(&value["metadata"]["name"]).to_owned();
            if let Err(error) = self.put(Kind::Node, value) {
                self.note_refused(&name, &error.to_string());
            }
        }
        let names = self.nodes_of(set);
        self.note(&format!("nodes recover: {}", shorten(&names)));
        let signals = self.options.configuration.hotswap.clone();
        let now = self.now;
        self.change_nodes(&names, |node| {
            with_ready(node, "True", now);
            if let Some(labels) = node["metadata"]["labels"].as_object_mut() {
                labels.remove(&signals.maintenance_time_label);
                labels.retain(|key, value| {
                    signals.departing_labels.get(key).is_none_or(|signal| value != signal.as_str())
                });
            }
            let Some(spec) = node["spec"].as_object_mut() else { return };
            spec.remove("unschedulable");
            if let Some(taints) = spec.get_mut("taints").and_then(Value::as_array_mut) {
                taints.retain(|t| !signals.departing_taints.iter().any(|key| t["key"] == key.as_str()));
            }
        });
    }
}
