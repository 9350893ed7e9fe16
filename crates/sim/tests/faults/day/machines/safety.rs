//! Invariants after each step with faults of machines, checked from the objects alone:
//!
//! * a victim of Hotswap has a strictly lower priority than the preempting Workload, which itself is only evicted for failing nodes;
//! * no Workload is evicted for failing nodes while most nodes look bad, except a Workload with assigned nodes that lost the nodes that its
//!   eviction names (docs/reference/06-algorithm.md 6.14);
//! * where Hotswap acts, admitted Workloads have capacity: all quota, however admitted, is at most the capacity of the healthy nodes plus
//!   the pods on lost ones as long as they stay there.
//!
//! A manager decides on what it has seen, so with faults a recent earlier state counts, too. For the third invariant: with the nodes of some moment
//! and the pods of some moment within the time that a watch may lag and a write may take, there was capacity for all that hold quota now. So an
//! admission that was decided while a node was healthy may be carried out after it failed; but the admissions of two leaders must have had capacity
//! at the same time, and a leader must know what was admitted before it led. By a clock that is two minutes behind, a node that is not ready counts
//! for two minutes longer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use sluice_engine::{Kind, ObjectRef};
use sluice_sim::Simulation;
use sluice_sim::faults::PerFault;

use super::super::safety::Judged;
use super::drawn::TPU;
use super::places::overfull;

/// How old a manager's knowledge may be in a run with faults, including the minute until a failed write is retried.
const STALE: SignedDuration = SignedDuration::from_secs(160);
/// How old a manager's knowledge of nodes may be when its admission is carried out in a run with faults: a lagging watch, then a slow write.
const NODES_STALE: SignedDuration = SignedDuration::from_secs(100);
/// How far clocks are behind in a run with faults.
const BEHIND: SignedDuration = SignedDuration::from_mins(2);
/// How long a node may be not ready before that counts.
const WAVERS: SignedDuration = SignedDuration::from_secs(30);
/// The percentage of bad-looking nodes above which nothing is evicted.
const BRAKE: usize = 55;

/// The recorded state of a Workload.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    uid: String,
    name: String,
    priority: i64,
    holds: bool,
    chips: i64,
    /// When it was evicted, why, and for which Workload.
    evicted: Option<(String, String, String)>,
}

/// The nodes that are well, and the chips that they have.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Well {
    nodes: BTreeSet<String>,
    /// Those of which nothing is bad: ready at this moment, and open.
    sound: BTreeSet<String>,
    chips: i64,
}

/// The chips that pods have, by node.
type OnNodes = BTreeMap<String, i64>;

/// The recorded state between steps.
pub struct Safety {
    stale: SignedDuration,
    nodes_stale: SignedDuration,
    /// How long a manager may treat a node as ready that is not.
    wavers: SignedDuration,
    seen: BTreeMap<ObjectRef, Seen>,
    /// The nodes, newest last, each with the time since when it was so.
    nodes: Vec<(Timestamp, Well)>,
    /// The pods, likewise: each kind is seen by a watch of its own.
    pods: Vec<(Timestamp, OnNodes)>,
    /// When the brake last did not hold.
    free: Option<Timestamp>,
    judged: Arc<Judged>,
}

pub fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub fn condition<'a>(workload: &'a Value, type_: &str) -> Option<&'a Value> {
    list(&workload["status"]["conditions"]).find(|c| c["type"] == type_ && c["status"] == "True")
}

fn chips(workload: &Value) -> i64 {
    let of = |set: &Value| text(&set["resourceUsage"][TPU]).parse::<i64>().unwrap_or(0);
    list(&workload["status"]["admission"]["podSetAssignments"]).map(of).sum()
}

fn seen(simulation: &Simulation, reference: &ObjectRef, workload: &Value) -> Seen {
    let evicted = condition(workload, "Evicted").map(|why| {
        // Of a preemption, the reason is in the other condition.
        let preempted = condition(workload, "Preempted").filter(|_| why["reason"] == "Preempted");
        let reason = text(&preempted.unwrap_or(why)["reason"]).to_owned();
        (text(&why["lastTransitionTime"]).to_owned(), reason, text(&why["message"]).to_owned())
    });
    Seen {
        uid: text(&workload["metadata"]["uid"]).to_owned(),
        name: text(&workload["metadata"]["name"]).to_owned(),
        priority: workload["spec"]["priority"].as_i64().unwrap_or(0),
        // What a former leader's late write gave counts when the job starts: until then it can still be taken back.
        holds: condition(workload, "QuotaReserved").is_some()
            && condition(workload, "Finished").is_none()
            && simulation.late_since(reference).is_none(),
        chips: chips(workload),
        evicted,
    }
}

/// Whether a node says that it is about to go.
fn departs(node: &Value) -> bool {
    node["metadata"]["labels"]["cloud.google.com/active-node-maintenance"] == "true"
        || list(&node["spec"]["taints"]).any(|t| t["key"] == "cloud.google.com/impending-node-termination")
}

/// Since when a node is not ready.
fn not_ready(node: &Value) -> Option<Timestamp> {
    let ready = list(&node["status"]["conditions"]).find(|c| c["type"] == "Ready")?;
    let since = text(&ready["lastTransitionTime"]).parse().ok();
    (ready["status"] != "True").then_some(since.unwrap_or(Timestamp::MIN))
}

/// Whether a node takes work: open, and not lost; one that is not ready is not lost yet.
fn is_well(node: &Value, now: Timestamp, wavers: SignedDuration) -> bool {
    node["spec"]["unschedulable"] != true
        && !departs(node)
        && not_ready(node).is_none_or(|since| now.duration_since(since) < wavers)
}

/// What was so at some moment that is no longer ago.
fn known<T>(history: &[(Timestamp, T)], now: Timestamp, ago: SignedDuration) -> impl Iterator<Item = &T> {
    let ended = move |index: usize| history.get(index + 1).map_or(now, |(at, _)| *at);
    let recent =
        history.iter().enumerate().filter(move |(index, _)| now.duration_since(ended(*index)) <= ago);
    recent.map(|(_, (_, was))| was)
}

/// The nodes for which a Workload with assigned nodes was evicted; none if the message is another one's.
fn not_replaced(message: &str) -> Option<impl Iterator<Item = &str>> {
    let (_, rest) = ["no replacement for unhealthy node(s): ", "node failures, including: "]
        .iter()
        .find_map(|before| message.split_once(before))?;
    let names = rest.split(';').next().unwrap_or(rest);
    Some(names.split(',').map(str::trim))
}

impl Safety {
    pub fn new(rates: PerFault, judged: Arc<Judged>) -> Self {
        let quiet = rates == PerFault::NONE;
        let prompt = SignedDuration::from_secs(2);
        let (stale, nodes_stale) = if quiet { (prompt, prompt) } else { (STALE, NODES_STALE) };
        let wavers = if quiet { WAVERS } else { WAVERS + BEHIND };
        Self {
            stale,
            nodes_stale,
            wavers,
            seen: BTreeMap::new(),
            nodes: Vec::new(),
            pods: Vec::new(),
            free: None,
            judged,
        }
    }

    /// Everything that is and must not be, in words.
    pub fn check(&mut self, simulation: &Simulation) -> Vec<String> {
        let now = simulation.now();
        self.look_at_nodes(simulation, now);
        let workloads = simulation.objects(Kind::Workload);
        let all: BTreeMap<_, _> =
            workloads.map(|(r, value)| (r.clone(), seen(simulation, r, value))).collect();
        let mut wrong = Vec::new();
        let enabled = |queue: &Value| queue["spec"]["preemption"]["reclaimOutOfCohort"]["enable"] == true;
        let acts = simulation.objects(Kind::ClusterQueue).any(|(_, queue)| enabled(queue));
        for (reference, now_seen) in &all {
            let before = self.seen.get(reference);
            if now_seen.evicted.is_some() && before.is_none_or(|b| b.evicted != now_seen.evicted) {
                wrong.extend(self.unjustified(now_seen, &all, now));
            }
        }
        let admitted = all.iter().filter(|(r, one)| one.holds && !self.seen.get(*r).is_some_and(|b| b.holds));
        let admitted: Vec<_> = admitted.map(|(_, one)| one.name.clone()).collect();
        if acts && !admitted.is_empty() {
            wrong.extend(self.beyond_capacity(&all, now, &admitted.join(", ")));
        }
        self.seen = all;
        let (full, assigned) = overfull(simulation);
        wrong.extend(full);
        self.judged.assigned.fetch_max(usize::try_from(assigned).unwrap_or(0), Ordering::Relaxed);
        wrong
    }

    fn look_at_nodes(&mut self, simulation: &Simulation, now: Timestamp) {
        let (mut total, mut bad) = (0, 0);
        let mut well = Well { nodes: BTreeSet::new(), sound: BTreeSet::new(), chips: 0 };
        for (reference, node) in simulation.objects(Kind::Node) {
            total += 1;
            bad += usize::from(departs(node) || not_ready(node).is_some());
            if is_well(node, now, SignedDuration::ZERO) {
                well.sound.insert(reference.name.to_string());
            }
            if is_well(node, now, self.wavers) {
                well.nodes.insert(reference.name.to_string());
                well.chips += text(&node["status"]["allocatable"][TPU]).parse::<i64>().unwrap_or(0);
            }
        }
        if bad * 100 <= total * BRAKE {
            self.free = Some(now);
        }
        // A flavor without any node is not limited by nodes: an autoscaler may begin with none.
        if total == 0 {
            well.chips = i64::from(i32::MAX);
        }
        let mut on = OnNodes::new();
        for (_, pod) in simulation.objects(Kind::Pod) {
            let chips = text(&pod["spec"]["containers"][0]["resources"]["requests"][TPU]);
            *on.entry(text(&pod["spec"]["nodeName"]).to_owned()).or_default() +=
                chips.parse::<i64>().unwrap_or(0);
        }
        if self.nodes.last().is_none_or(|(_, last)| *last != well) {
            self.nodes.push((now, well));
        }
        if self.pods.last().is_none_or(|(_, last)| *last != on) {
            self.pods.push((now, on));
        }
    }

    /// Why Hotswap may not make an eviction.
    fn unjustified(&self, who: &Seen, all: &BTreeMap<ObjectRef, Seen>, now: Timestamp) -> Option<String> {
        let (_, reason, message) = who.evicted.as_ref()?;
        match reason.as_str() {
            "NodeFailures" => {
                if let Some(mut lost) = not_replaced(message) {
                    let sound = lost.find(|node| {
                        known(&self.nodes, now, self.stale).all(|well| well.sound.contains(*node))
                    });
                    return sound.map(|node| format!("{} was evicted for {node}, which is well", who.name));
                }
                let free = self.free.is_some_and(|at| now.duration_since(at) <= self.stale);
                (!free).then(|| format!("{} was evicted although most nodes look bad", who.name))
            }
            "OutOfCohortReclamation" => {
                let uid = message.split_once("(UID: ")?.1.split_once(',')?.0;
                let by = all.values().chain(self.seen.values()).find(|one| one.uid == uid)?;
                (by.priority <= who.priority)
                    .then(|| format!("{} was preempted by {}, which is no more important", who.name, by.name))
            }
            _ => None,
        }
    }

    /// What holds quota beyond what there was room for.
    fn beyond_capacity(
        &self,
        all: &BTreeMap<ObjectRef, Seen>,
        now: Timestamp,
        admitted: &str,
    ) -> Option<String> {
        let held: i64 = all.values().filter(|one| one.holds).map(|one| one.chips).sum();
        // Each pod takes what a node has.
        let rooms = known(&self.nodes, now, self.nodes_stale).flat_map(|well| {
            known(&self.pods, now, self.nodes_stale).map(|on| {
                let others = on.iter().filter(|(node, _)| !well.nodes.contains(*node));
                (well.chips, others.map(|(_, chips)| chips).sum::<i64>())
            })
        });
        let (healthy, lost) = rooms.max_by_key(|(healthy, lost)| healthy + lost)?;
        (held > healthy + lost).then(|| {
            format!(
                "{admitted} admitted: {held} chips are held, but the healthy nodes had {healthy} at most, with {lost} on the others"
            )
        })
    }
}
