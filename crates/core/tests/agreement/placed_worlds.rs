//! Random worlds of several ClusterQueues and Workloads of one or two pod sets, with nodes that get taints and foreign pods. In all of them no node
//! has more pods than its capacity, and no pod is on a node whose taint it does not tolerate (docs/reference/06-algorithm.md 6.11 to 6.15).

use std::collections::BTreeMap;

use sluice_core::fixtures::{Job, cohort, cq, flavor, job, key, lq, n, node, q, topology};
use sluice_core::{
    Admission, Amount, Config, HOSTNAME, NodeSpec, Outcome, PreemptionPolicy, RequestedLevel, Scheduler,
    SharedAssignment, Taint, TaintEffect, Time, TopologyRequest, TopologyState, WorkloadSpec, WorkloadState,
};

use crate::oracle::random::Random;

const RACK: &str = "rack";
const RESOURCES: [&str; 2] = ["cpu", "memory"];

/// A Workload that holds quota.
struct Holder {
    admission: Admission,
    /// Other nodes for it are decided on, and not written yet.
    next: Option<Admission>,
    evicted: bool,
    unhealthy: Vec<sluice_core::Name>,
}

/// What the API server would have, and the core that follows it.
struct World {
    random: Random,
    core: Scheduler,
    now: i64,
    nodes: Vec<NodeSpec>,
    /// What pods of others take of a node.
    others: BTreeMap<(String, &'static str), i64>,
    workloads: BTreeMap<String, WorkloadSpec>,
    holders: BTreeMap<String, Holder>,
    made: usize,
    placed: usize,
    replaced: usize,
    evicted: usize,
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random::new(seed);
        let mut config = Config::default();
        config.gates.tas_failed_node_replacement_fail_fast = random.chance(50);
        config.gates.admit_only_free_quota = true;
        config.gates.tas_balanced_placement = random.chance(20);
        config.gates.tas_keep_whole_domains = random.chance(20);
        let mut core = Scheduler::new(config);
        core.set_topology(&topology("t", &[RACK, HOSTNAME]));
        let mut placed = flavor("f");
        placed.topology = Some(n("t"));
        core.set_flavor(placed);
        core.set_cohort(cohort("all").0);
        let policies = [PreemptionPolicy::Never, PreemptionPolicy::LowerPriority, PreemptionPolicy::Any];
        for queue in ["a", "b"] {
            let quota = q(i64::try_from(8 + random.below(40)).expect("small"));
            let spec = cq(queue).cohort("all").flavor("f", &[("cpu", quota), ("memory", q(1_000))]);
            let spec = spec.within(*random.pick(&policies[..2])).reclaim(*random.pick(&policies));
            core.set_cluster_queue(spec.0);
            core.set_local_queue(lq(queue, queue));
        }
        core.set_namespace(&n(sluice_core::fixtures::NS), Vec::new());
        let mut nodes = Vec::new();
        for at in 0..=random.below(5) {
            let rack = if at < 2 { "r0" } else { "r1" };
            let cpu = i64::try_from(2 + random.below(11)).expect("small");
            nodes.push(node(&format!("h{at}"), &[(RACK, rack)], &[("cpu", cpu), ("memory", 40)]));
        }
        for node in &nodes {
            core.set_node(node);
        }
        World {
            random,
            core,
            now: 0,
            nodes,
            others: BTreeMap::new(),
            workloads: BTreeMap::new(),
            holders: BTreeMap::new(),
            made: 0,
            placed: 0,
            replaced: 0,
            evicted: 0,
        }
    }

    fn time(&self) -> Time {
        Time::from_seconds(self.now)
    }

    fn submit(&mut self) {
        self.made += 1;
        let name = format!("w{}", self.made);
        let queue = *self.random.pick(&["a", "b"]);
        let mut asks = job(&name, queue).priority(*self.random.pick(&[0, 0, 1, 2]));
        let equal = self.random.chance(50);
        let cpu = 1 + self.random.below(3);
        for set in 0..=self.random.below(2) {
            if set > 0 {
                asks = asks.pod_set("second");
            }
            let cpu = if equal { cpu } else { 1 + self.random.below(3) };
            asks = self.pods(asks, cpu);
        }
        let second = i64::try_from(self.made).expect("small");
        let asks = asks.with(|spec| {
            spec.created = Time::from_seconds(second);
            spec.queue_order = spec.created;
        });
        let spec = asks.spec;
        self.core.set_workload(spec.clone(), self.time());
        self.workloads.insert(name, spec);
    }

    fn pods(&mut self, asks: Job, cpu: usize) -> Job {
        let small = |number: usize| i64::try_from(number).expect("small");
        let level = match self.random.below(5) {
            0 => Some(RequestedLevel::Required(n(HOSTNAME))),
            1 => Some(RequestedLevel::Required(n(RACK))),
            2 => Some(RequestedLevel::Preferred(n(RACK))),
            3 => Some(RequestedLevel::Unconstrained),
            _ => None,
        };
        let count = small(1 + self.random.below(4));
        let memory = small(self.random.below(3));
        asks.req("cpu", small(cpu)).req("memory", memory).count(count).pod(|pod_set| {
            pod_set.topology = level.map(|level| TopologyRequest { level, slices: Vec::new() });
        })
    }

    /// Gives the core what the API server has of a Workload.
    fn give(&mut self, name: &str) {
        let mut spec = self.workloads[name].clone();
        if let Some(holder) = self.holders.get(name) {
            spec.state = WorkloadState::Reserved {
                admission: holder.admission.clone(),
                reserved_at: Time::from_seconds(1),
                admitted: true,
                evicted: holder.evicted,
                pods_ready: true,
                topology: TopologyState {
                    checks_ready: true,
                    unhealthy_nodes: holder.unhealthy.clone(),
                    ..TopologyState::default()
                },
            };
        }
        self.core.set_workload(spec, self.time());
    }

    fn any_holder(&mut self, which: impl Fn(&Holder) -> bool) -> Option<String> {
        let names: Vec<_> =
            self.holders.iter().filter(|(_, holder)| which(holder)).map(|(name, _)| name.clone()).collect();
        (!names.is_empty()).then(|| self.random.pick(&names).clone())
    }

    fn step(&mut self) {
        self.now += 1;
        match self.random.below(20) {
            0..4 => self.submit(),
            4 => {
                if let Some(name) = self.any_holder(|holder| !holder.evicted) {
                    self.holders.remove(&name);
                    self.workloads.remove(&name);
                    self.core.remove_workload(&key(&name), self.time());
                }
            }
            5..7 => {
                if let Some(name) = self.any_holder(|holder| holder.evicted) {
                    self.holders.remove(&name);
                    self.give(&name);
                }
            }
            7 => self.flip(),
            8 => {
                if let Some(name) = self.any_holder(|holder| !holder.evicted && holder.next.is_none()) {
                    self.evict(&name);
                }
            }
            9 => self.complete_a_pod(),
            10 | 11 => self.answer_move(),
            12 => self.taint(),
            13 => self.others_come_and_go(),
            _ => self.cycle(),
        }
        assert_eq!(self.core.audit(), Ok(()));
    }

    /// A pod of a Workload succeeds: it needs no quota any more, and keeps its place.
    fn complete_a_pod(&mut self) {
        let Some(name) = self.any_holder(|holder| holder.next.is_none()) else { return };
        let spec = self.workloads.get_mut(&name).expect("it is there");
        let holder = self.holders.get_mut(&name).expect("it is one");
        let at = self.random.below(spec.pod_sets.len());
        let (asks, set) = (&mut spec.pod_sets[at], &mut holder.admission.pod_sets[at]);
        if asks.count == 0 || set.count == 0 {
            return;
        }
        (asks.count, set.count) = (asks.count - 1, set.count - 1);
        for (resource, amount) in &mut set.usage {
            let each = asks.requests.iter().find(|(asked, _)| asked == resource);
            *amount = amount.sub(each.map_or(Amount(0), |(_, each)| *each));
        }
        self.give(&name);
    }

    /// A node fails, or is well again.
    fn flip(&mut self) {
        let at = self.random.below(self.nodes.len());
        let usable = !self.nodes[at].usable;
        self.nodes[at].usable = usable;
        let host = self.nodes[at].name.clone();
        self.core.set_node(&self.nodes[at]);
        let names: Vec<_> = self.holders.keys().cloned().collect();
        for name in names {
            let holder = self.holders.get_mut(&name).expect("it is one");
            let there = holder.admission.pod_sets.iter().any(|set| {
                set.topology.as_ref().is_some_and(|nodes| {
                    nodes.domains.iter().any(|domain| domain.values.last() == Some(&host))
                })
            });
            let before = holder.unhealthy.clone();
            holder.unhealthy.retain(|node| *node != host);
            if there && !usable && !holder.evicted && holder.next.is_none() {
                holder.unhealthy = vec![host.clone()];
            }
            if holder.unhealthy != before {
                self.give(&name);
            }
        }
    }

    /// A node gets a taint that keeps pods off it, or loses it.
    fn taint(&mut self) {
        let at = self.random.below(self.nodes.len());
        let taints = &mut self.nodes[at].taints;
        if taints.pop().is_none() && self.random.chance(50) {
            taints.push(Taint { key: n("kept"), value: n(""), effect: TaintEffect::NoSchedule });
        }
        self.core.set_node(&self.nodes[at]);
    }

    /// Pods of others take some of what is left of a node, or all of them end.
    fn others_come_and_go(&mut self) {
        let at = self.random.below(self.nodes.len());
        let host = self.nodes[at].name.to_string();
        let come = self.random.chance(60);
        let mut taken = Vec::new();
        for resource in RESOURCES {
            let what = (host.clone(), resource);
            let has = self.nodes[at].allocatable.iter().find(|(name, _)| **name == *resource);
            let (_, has) = has.expect("it has");
            let free = has.get() - self.taken(&what);
            let more = usize::try_from(free).map_or(0, |free| self.random.below(free / 2 + 1));
            let others = self.others.entry(what).or_default();
            *others = if come { *others + i64::try_from(more).expect("small") } else { 0 };
            taken.push((n(resource), Amount(*others)));
        }
        self.core.set_other_usage(&n(&host), &taken);
    }

    /// What Workloads and others take of a node.
    fn taken(&self, what: &(String, &'static str)) -> i64 {
        let workloads = self.holders.keys().filter_map(|name| self.used(name).get(what).copied());
        workloads.sum::<i64>() + self.others.get(what).copied().unwrap_or_default()
    }

    fn cycle(&mut self) {
        let report = self.core.cycle(self.time());
        let now = self.time();
        for entry in report.entries {
            let name = entry.key.name.to_string();
            match entry.outcome {
                Outcome::Admitted { admission, .. } => {
                    let holder = Holder { admission, next: None, evicted: false, unhealthy: Vec::new() };
                    self.holders.insert(name.clone(), holder);
                    self.check(&name, &[]);
                    if self.random.chance(10) {
                        self.holders.remove(&name);
                        self.core.admission_failed(&key(&name), now);
                    } else {
                        self.give(&name);
                        self.placed += 1;
                    }
                }
                Outcome::Preempting { victims, .. } | Outcome::SliceReclaims(victims) => {
                    for victim in victims {
                        let name = victim.key.name.to_string();
                        self.evict(&name);
                    }
                }
                Outcome::SecondPass(Ok(nodes)) => self.moved(&name, nodes),
                Outcome::SlicesMoved(moved) => self.moved(&name, moved.nodes),
                Outcome::NodesNotReplaced(..) => self.evict(&name),
                Outcome::Unadmitted(_) | Outcome::PreemptionGated(_) | Outcome::SecondPass(Err(_)) => {}
            }
        }
    }

    fn evict(&mut self, name: &str) {
        let holder = self.holders.get_mut(name).expect("victims hold quota");
        (holder.evicted, holder.unhealthy, holder.next) = (true, Vec::new(), None);
        self.evicted += 1;
        self.give(name);
    }

    fn moved(&mut self, name: &str, nodes: Vec<(sluice_core::Name, SharedAssignment)>) {
        let holder = self.holders.get_mut(name).expect("it holds quota");
        holder.unhealthy.clear();
        let mut next = holder.admission.clone();
        for (set, assignment) in nodes {
            let sets = next.pod_sets.iter_mut();
            sets.filter(|one| one.name == set).for_each(|one| one.topology = Some(assignment.clone()));
        }
        holder.next = Some(next);
        self.replaced += 1;
        let stay: Vec<_> = hosts(&holder.admission).collect();
        self.check(name, &stay);
    }

    /// The write of other nodes is answered, or fails.
    fn answer_move(&mut self) {
        let Some(name) = self.any_holder(|holder| holder.next.is_some()) else { return };
        let written = self.random.chance(80);
        let holder = self.holders.get_mut(&name).expect("it is one");
        let next = holder.next.take();
        holder.admission = next.filter(|_| written).unwrap_or_else(|| holder.admission.clone());
        self.give(&name);
    }

    /// The nodes that a Workload was just given have room for all that is on them, and no taint but for those on which it was before.
    fn check(&self, name: &str, stay: &[sluice_core::Name]) {
        for what in self.used(name).keys() {
            let all = self.taken(what);
            let node = self.nodes.iter().find(|node| *node.name == *what.0).expect("a node that there is");
            let (_, has) =
                node.allocatable.iter().find(|(resource, _)| **resource == *what.1).expect("it has");
            assert!(
                Amount(all) <= *has,
                "{name}: {what:?} has {has:?} for {all} ({:?})",
                self.holders[name].admission
            );
            assert!(node.taints.is_empty() || stay.contains(&node.name), "{name}: {what:?} has a taint");
        }
    }

    /// What it takes of each node: of those that its pods are about to leave, too.
    fn used(&self, name: &str) -> BTreeMap<(String, &'static str), i64> {
        let mut used = BTreeMap::new();
        let (spec, holder) = (&self.workloads[name], &self.holders[name]);
        for (at, asks) in spec.pod_sets.iter().enumerate() {
            let mut hosts: BTreeMap<String, i64> = BTreeMap::new();
            for admission in [Some(&holder.admission), holder.next.as_ref()].into_iter().flatten() {
                let Some(nodes) = &admission.pod_sets[at].topology else {
                    assert_eq!(asks.count, 0, "{name}: the only flavor has a topology");
                    continue;
                };
                let count: i64 = nodes.domains.iter().map(|domain| domain.count).sum();
                assert!(count >= asks.count, "{name}");
                for domain in &nodes.domains {
                    let host = domain.values.last().expect("a host").to_string();
                    let count = hosts.entry(host).or_default();
                    *count = domain.count.max(*count);
                }
            }
            for (host, count) in hosts {
                for resource in RESOURCES {
                    let each = asks.requests.iter().find(|(asked, _)| **asked == *resource);
                    let each = each.map_or(0, |(_, amount)| amount.get());
                    *used.entry((host.clone(), resource)).or_default() += each * count;
                }
            }
        }
        used
    }
}

/// The hosts that pods are assigned to.
fn hosts(admission: &Admission) -> impl Iterator<Item = sluice_core::Name> {
    let domains =
        admission.pod_sets.iter().filter_map(|set| set.topology.as_ref()).flat_map(|nodes| &nodes.domains);
    domains.filter_map(|domain| domain.values.last().cloned())
}

#[test]
fn no_node_gets_more_pods_than_it_has_room_for() {
    let (mut placed, mut replaced, mut evicted) = (0, 0, 0);
    for seed in 0..400 {
        let run = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            for _ in 0..200 {
                world.step();
            }
            (world.placed, world.replaced, world.evicted)
        });
        let counts = run.unwrap_or_else(|_| panic!("the world of seed {seed}"));
        (placed, replaced, evicted) = (placed + counts.0, replaced + counts.1, evicted + counts.2);
    }
    assert!(placed > 4_000 && replaced > 100 && evicted > 400, "{placed}, {replaced}, {evicted}");
}
