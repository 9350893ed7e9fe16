//! What one event of a node or a pod costs where thousands of nodes have a topology and Hotswap acts: it touches that node alone.
//!
//! Lowest domains that are counted, domains that are put in order, queues that are notified, pods that are read, hosts of which it is asked whether they
//! have failed, and passes over everything have budgets; the CPU time in which the engine takes the event in is reported.
//!
//! And the longest page of what is asked page by page there.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use sluice_engine::{Kind, ObjectRef};

use crate::beds::{Bed, TPU};
use crate::case::stopwatch;

mod pages;

/// The CPU time in which an event is taken in: a goal, not a budget.
const GOAL_US: f64 = 10.0;
/// How often each event happens. The median of the times is shown, and the largest counts.
const ROUNDS: usize = 9;
/// Nodes of a rack.
const RACK: usize = 50;

/// What the events of one world may cost at most, in `tests/performance/budgets.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The number of racks of 50 nodes.
    racks: usize,
    /// What the longest page looks at, by the answer.
    page: BTreeMap<String, usize>,
    /// By what happens.
    event: BTreeMap<String, Counts>,
}

/// What one event costs.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counts {
    /// Lowest domains that were counted.
    leaves: u64,
    /// Domains that were put in order of their capacity; without a budget it is only reported.
    ordered: Option<u64>,
    /// Queues that were notified.
    queues: u64,
    /// Pods that were looked at.
    pods: u64,
    /// Looks at all nodes and displaced work.
    looks: u64,
    /// Hosts with assigned pods of which it was asked whether they have failed; without a budget it is only reported.
    hosts: Option<u64>,
}

impl Counts {
    fn named(self) -> [(&'static str, u64); 6] {
        [
            ("leaves", self.leaves),
            ("ordered", self.ordered.unwrap_or(u64::MAX)),
            ("queues", self.queues),
            ("pods", self.pods),
            ("looks", self.looks),
            ("hosts", self.hosts.unwrap_or(u64::MAX)),
        ]
    }

    fn max(self, other: Self) -> Self {
        Self {
            leaves: self.leaves.max(other.leaves),
            ordered: self.ordered.max(other.ordered),
            queues: self.queues.max(other.queues),
            pods: self.pods.max(other.pods),
            looks: self.looks.max(other.looks),
            hosts: self.hosts.max(other.hosts),
        }
    }
}

/// Measures the events of the worlds of the budgets, and notes what is over its budget.
pub fn table(budgets: &BTreeMap<String, Budget>, failures: &mut Vec<String>) {
    for (name, budget) in budgets {
        let mut bed = world(budget.racks);
        println!(
            "events, {name}: CPU time to take one in (goal {GOAL_US} µs), and what all that follows at once counts (budget)"
        );
        for (what, (time, counts)) in measured(&mut bed) {
            let Some(most) = budget.event.get(what) else {
                failures.push(format!("events {name}: {what} has no budget"));
                continue;
            };
            let us = time.as_secs_f64() * 1e6;
            let late = if us > GOAL_US { "*" } else { "" };
            let counted = counts.named().into_iter().zip(most.named()).map(|((of, count), (_, most))| {
                if count > most {
                    failures.push(format!("events {name}: {what}: {count} {of}, at most {most}"));
                }
                let most = if most == u64::MAX { "no budget".to_owned() } else { most.to_string() };
                format!("{count} {of} ({most})")
            });
            let counted: Vec<String> = counted.collect();
            println!("  {what:<36} {us:>7.1} µs{late:<1} {}", counted.join(", "));
        }
        pages::table(name, &mut bed, &budget.page, failures);
    }
}

/// JobSets of four pods in one rack each that run, and one that no rack is large enough for, also with the nodes that join, in a world of `racks` racks.
fn world(racks: usize) -> Bed {
    let mut bed = Bed::new();
    bed.c.checked = false;
    bed.topology();
    let names: Vec<String> = (0..racks).map(|rack| format!("p{rack:04}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    bed.pools(&names, RACK);
    bed.page_queue(1_000_000);
    for job in 0..8 {
        bed.placed_jobset(&format!("j{job}"), "high", 4, 4);
    }
    bed.placed_jobset("large", "low", i32::try_from(2 * RACK).unwrap_or(i32::MAX), 4);
    bed.settle();
    bed.c.advance(5);
    assert!(bed.runs("j7") && !bed.runs("large"), "jobs that run, and one that waits");
    show_places(&mut bed, "j2");
    bed.settle();
    bed.c.advance(5);
    bed.c.meter = |work| {
        let began = stopwatch::now();
        work();
        (stopwatch::now().saturating_sub(began), 0)
    };
    bed
}

/// The other watch of pods shows those of a JobSet, with the place that each was assigned.
fn show_places(bed: &mut Bed, jobset: &str) {
    let scheduling = bed.c.api.job(jobset).view.pod_sets[0].scheduling.clone();
    for (_, _, pod) in bed.pods().into_iter().filter(|(of, _, _)| of == jobset) {
        let Some(mut shown) = bed.c.api.json(&pod).cloned() else { continue };
        shown["metadata"]["labels"] = json!(scheduling.labels);
        shown["metadata"]["annotations"] = json!(scheduling.annotations);
        bed.c.api.put(Kind::JobPod, shown);
    }
}

type Measured = (Duration, Counts);

/// What happens, once in each round.
type Happens = Box<dyn Fn(&mut Bed, usize)>;

fn events(bed: &Bed) -> Vec<(&'static str, Happens)> {
    let busy = ObjectRef::cluster(Kind::Node, bed.assigned("j1")[0].0.as_str());
    let free = bed.nodes_of(&["p0020"]).remove(0);
    let placed = bed.c.api.names(Kind::JobPod).remove(0);
    let label = |object: &ObjectRef| -> Happens {
        let object = object.clone();
        Box::new(move |bed, round| {
            bed.c.api.edit(&object, &json!({"metadata": {"labels": {"seen": round.to_string()}}}));
        })
    };
    let ready = |status: &'static str| -> Happens {
        let node = free.clone();
        Box::new(move |bed, _| bed.ready(&node, status))
    };
    let cordon = |unschedulable: bool| -> Happens {
        let node = free.clone();
        Box::new(move |bed, _| bed.c.api.edit(&node, &json!({"spec": {"unschedulable": unschedulable}})))
    };
    let pod = |jobset: Option<&'static str>, chips: i64, node: &ObjectRef| -> Happens {
        let node = node.name.to_string();
        Box::new(move |bed, _| drop(bed.bind(jobset.unwrap_or("other"), jobset, &node, chips)))
    };
    let gone = |name: &'static str| -> Happens {
        Box::new(move |bed, _| bed.c.api.delete(&ObjectRef::namespaced(Kind::Pod, "team-a", name)))
    };
    vec![
        ("a label of a node with pods", label(&busy)),
        ("a label of a free node", label(&free)),
        ("a node that is not ready", ready("Unknown")),
        ("a node that is ready again", ready("True")),
        ("a node that is cordoned", cordon(true)),
        ("a node that is uncordoned", cordon(false)),
        ("a pod of another kind", pod(None, 1, &free)),
        ("its end", gone("other")),
        ("a pod of a Workload", pod(Some("j1"), 4, &busy)),
        ("its end, too", gone("j1")),
        ("a placed pod that changes", label(&placed)),
        ("a node that joins", Box::new(|bed, round| join(bed, "p0007", round))),
        ("a node that leaves", Box::new(|bed, round| remove_rack(bed, "p0007", round))),
        ("the first node of a rack", Box::new(|bed, round| join(bed, "p0007-more", round))),
        ("the last node of a rack that leaves", Box::new(|bed, round| remove_rack(bed, "p0007-more", round))),
    ]
}

fn new(rack: &str, round: usize) -> String {
    format!("{rack}-new{round}")
}

fn remove_rack(bed: &mut Bed, rack: &str, round: usize) {
    bed.c.api.delete(&ObjectRef::cluster(Kind::Node, new(rack, round).as_str()));
}

/// A node comes into a rack, which may be there.
fn join(bed: &mut Bed, rack: &str, round: usize) {
    let name = new(rack, round);
    let labels = json!({"accelerator": "v6e", crate::beds::POOL: rack, "kubernetes.io/hostname": name});
    let ready = json!([{"type": "Ready", "status": "True"}]);
    bed.c.api.put(
        Kind::Node,
        json!({"metadata": {"name": name, "labels": labels},
            "spec": {"taints": [{"key": TPU, "value": "present", "effect": "NoSchedule"}]},
            "status": {"allocatable": {TPU: "4", "pods": "110"}, "conditions": ready}}),
    );
}

fn measured(bed: &mut Bed) -> Vec<(&'static str, Measured)> {
    let events = events(bed);
    let mut all: Vec<(Vec<Duration>, Counts)> = vec![(Vec::new(), Counts::default()); events.len()];
    // Whatever the first of each costs is not counted.
    for round in 0..=ROUNDS {
        for ((_, happens), (times, counts)) in events.iter().zip(&mut all) {
            let (time, cost) = cost(bed, |bed| happens(bed, round));
            if round > 0 {
                times.push(time);
                *counts = counts.max(cost);
            }
        }
    }
    let median = |(mut times, counts): (Vec<Duration>, Counts)| {
        times.sort_unstable();
        (times[times.len() / 2], counts)
    };
    events.iter().map(|(what, _)| *what).zip(all.into_iter().map(median)).collect()
}

/// What something costs at once. Then time passes: what comes later is looked at by itself.
fn cost(bed: &mut Bed, happens: impl FnOnce(&mut Bed)) -> Measured {
    let before = bed.c.engine.work();
    bed.c.taking_in = Duration::ZERO;
    happens(bed);
    bed.c.settle();
    let after = bed.c.engine.work();
    let counts = Counts {
        leaves: after.counted_domains - before.counted_domains,
        ordered: Some(after.ordered_domains - before.ordered_domains),
        queues: after.freed_queues - before.freed_queues,
        pods: after.counted_pods - before.counted_pods,
        looks: after.hotswap_looks - before.hotswap_looks,
        hosts: Some(after.asked_hosts - before.asked_hosts),
    };
    let time = bed.c.taking_in;
    bed.c.advance(5);
    (time, counts)
}
