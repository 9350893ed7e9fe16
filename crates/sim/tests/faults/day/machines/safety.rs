//! What must hold after each step of a bad day for machines, looked up in the objects alone:
//!
//! * a victim of Hotswap has strictly lower priority than who takes its place, which is not evicted for anything but failing nodes;
//! * nobody is evicted for failing nodes while most nodes look bad;
//! * where Hotswap acts, on a day on which nothing else goes wrong, who is admitted finds room: what holds quota, but for pods on nodes that are lost, is at most what the healthy nodes have.
//!
//! A manager decides on what it has seen: on a bad day, what was so a while ago counts, too. Then the last writes of a former leader may
//! come late, and take room that the next one gives to others: the third is not asked of such a day.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use sluice_engine::{Kind, ObjectRef};
use sluice_sim::Simulation;
use sluice_sim::faults::PerFault;

use super::drawn::TPU;

/// How old what a manager knows may be on a bad day, with the time until a write that failed is tried again by a clock that jumps.
const STALE: SignedDuration = SignedDuration::from_mins(7);
/// For so long a node may be not ready before that counts.
const WAVERS: SignedDuration = SignedDuration::from_secs(30);
/// With more of the nodes looking bad nothing is evicted, in percent.
const BRAKE: usize = 55;

/// What is remembered of a Workload.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    uid: String,
    name: String,
    priority: i64,
    holds: bool,
    chips: i64,
    /// When it was evicted, why, and for whom.
    evicted: Option<(String, String, String)>,
}

/// What is remembered from step to step.
pub struct Safety {
    stale: SignedDuration,
    quiet: bool,
    seen: BTreeMap<ObjectRef, Seen>,
    /// Capacities, newest last, each with the time since when it was so.
    capacities: Vec<(Timestamp, i64)>,
    /// When the brake last did not hold.
    free: Option<Timestamp>,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn condition<'a>(workload: &'a Value, type_: &str) -> Option<&'a Value> {
    list(&workload["status"]["conditions"]).find(|c| c["type"] == type_ && c["status"] == "True")
}

fn chips(workload: &Value) -> i64 {
    let of = |set: &Value| text(&set["resourceUsage"][TPU]).parse::<i64>().unwrap_or(0);
    list(&workload["status"]["admission"]["podSetAssignments"]).map(of).sum()
}

fn seen(workload: &Value) -> Seen {
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
        holds: condition(workload, "QuotaReserved").is_some() && condition(workload, "Finished").is_none(),
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

fn is_lost(node: &Value, now: Timestamp) -> bool {
    departs(node) || not_ready(node).is_some_and(|since| now.duration_since(since) >= WAVERS)
}

impl Safety {
    pub fn new(rates: PerFault) -> Self {
        let quiet = rates == PerFault::NONE;
        let stale = if quiet { SignedDuration::from_secs(2) } else { STALE };
        Self { stale, quiet, seen: BTreeMap::new(), capacities: Vec::new(), free: None }
    }

    /// Everything that is and must not be, in words.
    pub fn check(&mut self, simulation: &Simulation) -> Vec<String> {
        let now = simulation.now();
        self.look_at_nodes(simulation, now);
        let all: BTreeMap<_, _> =
            simulation.objects(Kind::Workload).map(|(r, value)| (r.clone(), seen(value))).collect();
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
        if self.quiet && acts && !admitted.is_empty() {
            wrong.extend(self.beyond_capacity(simulation, &all, now, &admitted.join(", ")));
        }
        self.seen = all;
        wrong
    }

    fn look_at_nodes(&mut self, simulation: &Simulation, now: Timestamp) {
        let (mut total, mut bad, mut capacity) = (0, 0, 0);
        for (_, node) in simulation.objects(Kind::Node) {
            total += 1;
            bad += usize::from(departs(node) || not_ready(node).is_some());
            if !is_lost(node, now) && node["spec"]["unschedulable"] != true {
                capacity += text(&node["status"]["allocatable"][TPU]).parse::<i64>().unwrap_or(0);
            }
        }
        if bad * 100 <= total * BRAKE {
            self.free = Some(now);
        }
        if self.capacities.last().is_none_or(|(_, last)| *last != capacity) {
            self.capacities.push((now, capacity));
        }
    }

    /// Why an eviction is none that Hotswap may make.
    fn unjustified(&self, who: &Seen, all: &BTreeMap<ObjectRef, Seen>, now: Timestamp) -> Option<String> {
        let (_, reason, message) = who.evicted.as_ref()?;
        match reason.as_str() {
            "NodeFailures" => {
                let free = self.free.is_some_and(|at| now.duration_since(at) <= self.stale);
                (!free).then(|| format!("{} was evicted although most nodes look bad", who.name))
            }
            "OutOfCohortReclamation" => {
                let uid = message.split_once("(UID: ")?.1.split_once(',')?.0;
                let by = all.values().chain(self.seen.values()).find(|one| one.uid == uid)?;
                (by.priority <= who.priority)
                    .then(|| format!("{} made way for {}, which is no more important", who.name, by.name))
            }
            _ => None,
        }
    }

    /// Who holds quota beyond what the healthy nodes have.
    fn beyond_capacity(
        &self,
        simulation: &Simulation,
        all: &BTreeMap<ObjectRef, Seen>,
        now: Timestamp,
        admitted: &str,
    ) -> Option<String> {
        let lost = simulation.objects(Kind::Pod).filter(|(_, pod)| {
            let node = ObjectRef::cluster(Kind::Node, text(&pod["spec"]["nodeName"]));
            let node = simulation.object(&node);
            let closed = |node: &Value| node["spec"]["unschedulable"] == true;
            node.is_none_or(|node| is_lost(node, now) || closed(node))
        });
        // Each pod takes what a node has.
        let lost: i64 = lost
            .map(|(_, pod)| &pod["spec"]["containers"][0]["resources"]["requests"][TPU])
            .map(|chips| text(chips).parse::<i64>().unwrap_or(0))
            .sum();
        let held: i64 = all.values().filter(|one| one.holds).map(|one| one.chips).sum();
        let mut most = 0;
        for (index, (_, capacity)) in self.capacities.iter().enumerate() {
            let until = self.capacities.get(index + 1).map_or(now, |(at, _)| *at);
            if now.duration_since(until) <= self.stale {
                most = most.max(*capacity);
            }
        }
        let over = held - lost > most;
        over.then(|| {
            format!(
                "{admitted} admitted: {held} chips are held, {lost} on lost nodes, and the others have {most}"
            )
        })
    }
}
