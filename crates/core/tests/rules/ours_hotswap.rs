//! Hotswap's decision (ours): which displaced workloads move, what is preempted for them, and what the healthy nodes of a flavor have.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::world::{DEFAULT, World, cq, job, key, n, q};
use sluice_core::{
    Amount, Candidate, CapacityFacts, CapacityNode, Displaced, DisplacedOutcome, DisplacedSearch,
    DisplacedWorkload, FlavorChoice, FlavorNodes, FreeCapacity, HotswapDecisions, HotswapFacts, Name,
    NodeGroup, NodeGroups, NotMoved, PodOnNode, SearchResults, SearchSteps, SetNeeds, Time, WorkloadKey,
    capacity_of_flavors,
};

type Requests = Vec<(Name, Amount)>;

/// A workload of one pod with four GPUs, on the host of its number.
struct Running {
    key: WorkloadKey,
    queue: &'static str,
    priority: i32,
}

/// Hosts of four GPUs with workloads on the first of them.
struct Bed {
    w: World,
    hosts: BTreeMap<String, BTreeMap<Name, i128>>,
    running: Vec<Running>,
    per_pod: Requests,
    /// The numbers of the hosts on which pods can start.
    healthy: BTreeSet<usize>,
    brake: bool,
    results: SearchResults,
}

/// Each workload is in the queue of its name's first letter; the two queues are in one cohort.
fn bed(hosts: usize, quotas: [i64; 2], running: &[(&str, i32)]) -> Bed {
    let mut w = World::new();
    for (queue, quota) in ["a", "b"].into_iter().zip(quotas) {
        w.cq(cq(queue).cohort("co").quota(q(quota)));
    }
    let running = running.iter().map(|(name, priority)| {
        let queue = if name.starts_with('a') { "a" } else { "b" };
        w.running(job(name, queue).gpu(4).priority(*priority), DEFAULT);
        Running { key: key(name), queue, priority: *priority }
    });
    let running = running.collect();
    let host = |number: usize| (format!("h{number}"), BTreeMap::from([(n("gpu"), 4), (n("pods"), 110)]));
    Bed {
        hosts: (0..hosts).map(host).collect(),
        running,
        per_pod: vec![(n("gpu"), Amount(4)), (n("pods"), Amount(1))],
        healthy: (0..hosts).collect(),
        brake: false,
        results: SearchResults::default(),
        w,
    }
}

fn claim() -> Vec<(Name, Name, Amount)> {
    vec![(n(DEFAULT), n("gpu"), Amount(4))]
}

impl Bed {
    /// The same where these hosts have failed.
    fn failed(mut self, hosts: &[usize]) -> Bed {
        self.healthy.retain(|host| !hosts.contains(host));
        self
    }

    /// A workload as a displaced one.
    fn displaced(&self, at: usize) -> DisplacedWorkload<'_> {
        let nodes = Rc::new(self.healthy.iter().copied().collect());
        let needs =
            SetNeeds { pod_set: 0, assigned: None, count: 1, per_pod: &self.per_pod, nodes, exclusive: None };
        let choice = FlavorChoice { flavors: vec![Some(n(DEFAULT))], needs: vec![needs], claim: claim() };
        let Running { key, queue, priority } = &self.running[at];
        DisplacedWorkload {
            at,
            key,
            priority: *priority,
            queue: n(queue),
            beyond_nominal: false,
            is_evicted: false,
            choices: vec![choice],
            barred: None,
        }
    }

    /// A search of so many steps, while these workloads leave their nodes.
    fn search<'a>(
        &'a self,
        displaced: &[DisplacedWorkload<'a>],
        leaving: &[usize],
        limit: u64,
    ) -> HotswapDecisions {
        let nodes = self.hosts.iter().map(|(name, allocatable)| CapacityNode { name, allocatable });
        let mut free = FreeCapacity::new(&self.w.core, nodes, &[]);
        for (host, one) in self.running.iter().enumerate() {
            let pods = [(host, self.per_pod.as_slice())];
            free.add_workload(&one.key, pods.into_iter(), &BTreeSet::new());
        }
        for at in leaving {
            free.release(*at);
        }
        free.keep();
        let steps = SearchSteps { limit, earlier: 0, taken: 0 };
        DisplacedSearch::new(&Facts(self), (free, leaving), steps, &self.results).run(displaced)
    }

    /// What happens to these workloads, which all run.
    fn outcomes(&self, displaced: &[usize]) -> Vec<(usize, DisplacedOutcome)> {
        let displaced: Vec<_> = displaced.iter().map(|at| self.displaced(*at)).collect();
        self.search(&displaced, &[], 20_000).outcomes
    }
}

struct Facts<'a>(&'a Bed);

impl<'a> HotswapFacts<'a> for Facts<'a> {
    fn brake_holds(&self, _: &Name) -> bool {
        self.0.brake
    }

    fn acts_for(&self, flavor: &str) -> bool {
        flavor == DEFAULT
    }

    fn candidates(&self, below: i32) -> Vec<Candidate<'a>> {
        let bed = self.0;
        let lower = bed.running.iter().enumerate().filter(|(_, one)| one.priority < below);
        let candidates = lower.map(|(at, one)| Candidate {
            at,
            key: &one.key,
            priority: one.priority,
            reserved_at: Time(0),
            uid: &one.key.name,
            queue: one.queue,
            flavors: vec![DEFAULT],
        });
        candidates.collect()
    }

    fn is_on(&self, workload: usize, is_one: impl Fn(usize) -> bool) -> bool {
        is_one(workload)
    }

    fn leaves_for_good(&self, _: usize) -> bool {
        false
    }
}

fn moves(victims: &[usize]) -> DisplacedOutcome {
    DisplacedOutcome::Moves(victims.to_vec())
}

fn stays(why: NotMoved) -> DisplacedOutcome {
    DisplacedOutcome::Stays(why)
}

#[test]
fn ours_hotswap_gives_each_free_node_to_one_displaced_workload() {
    let bed = bed(4, [100, 0], &[("a0", 10), ("a1", 10), ("a2", 10)]).failed(&[0, 1]);
    assert_eq!(bed.outcomes(&[0, 1]), [(0, moves(&[])), (1, stays(NotMoved::NoNodes(None)))]);
}

#[test]
fn ours_hotswap_preempts_the_lowest_priorities_and_each_victim_once() {
    let running = [("a0", 10), ("a1", 5), ("a2", 0), ("a3", 20), ("a4", 10)];
    let bed = bed(5, [100, 0], &running).failed(&[0, 4]);
    assert_eq!(bed.outcomes(&[0, 4]), [(0, moves(&[2])), (1, moves(&[1]))]);
    let displaced = [bed.displaced(0)];
    let decisions = bed.search(&displaced, &[], 20_000);
    assert_eq!(decisions.gone, BTreeSet::from([0, 2]));
    assert_eq!(decisions.displaced, [Displaced { key: key("a0"), needs: claim() }]);
}

#[test]
fn ours_hotswap_takes_from_other_queues_within_nominal_quota_or_if_it_may_take_more() {
    let running = [("a0", 10), ("b1", 0)];
    let within = bed(2, [4, 100], &running).failed(&[0]);
    assert_eq!(within.outcomes(&[0]), [(0, moves(&[1]))]);
    let above = bed(2, [3, 100], &running).failed(&[0]);
    assert_eq!(above.outcomes(&[0]), [(0, stays(NotMoved::NoNodes(None)))]);
    let more = [DisplacedWorkload { beyond_nominal: true, ..above.displaced(0) }];
    assert_eq!(above.search(&more, &[], 20_000).outcomes, [(0, moves(&[1]))]);
}

#[test]
fn ours_hotswap_evicts_nothing_for_work_that_would_not_come_back() {
    let running = [("a0", 10), ("a1", 0), ("a2", 20), ("a3", 20)];
    let mut bed = bed(5, [8, 0], &running).failed(&[0]);
    assert_eq!(bed.outcomes(&[0]), [(0, stays(NotMoved::NoQuota))]);
    let barred = || DisplacedWorkload { barred: Some("stopped".to_owned()), ..bed.displaced(0) };
    let outcomes = bed.search(&[barred()], &[], 20_000).outcomes;
    assert_eq!(outcomes, [(0, stays(NotMoved::Barred("stopped".to_owned())))]);
    bed.brake = true;
    assert_eq!(bed.outcomes(&[0]), [(0, stays(NotMoved::Brake))]);
}

#[test]
fn ours_hotswap_continues_with_a_search_that_was_cut() {
    let running = [("a0", 10), ("a1", 5), ("a2", 0)];
    let mut bed = bed(3, [100, 0], &running).failed(&[0]);
    for restarts in [false, true] {
        bed.results = SearchResults::default();
        let mut parts = 0;
        let outcomes = loop {
            let decisions = bed.search(&[bed.displaced(0)], &[], 0);
            parts += 1;
            if decisions.postponed.is_empty() {
                break decisions.outcomes;
            }
            assert!(decisions.searched && decisions.outcomes.is_empty());
            bed.results.replace(decisions.results, &decisions.postponed);
            if restarts {
                bed.results.restart_cut();
            }
        };
        let (last, outcome) = if restarts { (7, stays(NotMoved::TooLong)) } else { (2, moves(&[2])) };
        assert_eq!((parts, outcomes), (last, vec![(0, outcome)]));
    }
}

#[test]
fn ours_hotswap_gives_an_evicted_workload_the_nodes_again_that_were_found_for_it() {
    let mut bed = bed(3, [100, 0], &[("a0", 10), ("a1", 10)]).failed(&[0, 1]);
    let decisions = bed.search(&[bed.displaced(0)], &[], 20_000);
    assert!(decisions.searched);
    bed.results.replace(decisions.results, &decisions.postponed);
    let evicted = DisplacedWorkload { is_evicted: true, ..bed.displaced(0) };
    let displaced = [evicted, bed.displaced(1)];
    let decisions = bed.search(&displaced[..1], &[0], 20_000);
    assert!(!decisions.searched && decisions.outcomes.is_empty());
    assert_eq!(decisions.displaced, [Displaced { key: key("a0"), needs: claim() }]);
    let outcomes = bed.search(&displaced, &[0], 20_000).outcomes;
    assert_eq!(outcomes, [(1, stays(NotMoved::NoNodes(None)))], "its node is taken");
}

/// Nodes of four GPUs, by health; pods with their nodes and GPUs; workloads of one pod, of which each may hold quota, and all may move.
struct Seen {
    allocatable: BTreeMap<Name, i128>,
    healthy: Vec<bool>,
    others: Vec<(usize, Requests)>,
    workloads: Vec<(usize, Requests, bool)>,
    moves: bool,
}

fn pod(node: usize, requests: &[(Name, Amount)]) -> PodOnNode<'_> {
    PodOnNode { node: Some(node), leaving: false, requests }
}

impl CapacityFacts for Seen {
    fn nodes(&self) -> usize {
        self.healthy.len()
    }

    fn allocatable(&self, _: usize) -> &BTreeMap<Name, i128> {
        &self.allocatable
    }

    fn has_capacity(&self, node: usize) -> bool {
        self.healthy[node]
    }

    fn other_pods(&self) -> impl Iterator<Item = PodOnNode<'_>> {
        self.others.iter().map(|(node, requests)| pod(*node, requests))
    }

    fn workloads(&self) -> usize {
        self.workloads.len()
    }

    fn pods(&self, workload: usize) -> impl Iterator<Item = PodOnNode<'_>> {
        let (node, requests, _) = &self.workloads[workload];
        std::iter::once(pod(*node, requests))
    }

    fn flavors(&self, workload: usize) -> impl Iterator<Item = usize> {
        self.workloads[workload].2.then_some(0).into_iter()
    }

    fn holds(&self, workload: usize, _: usize, _: &Name) -> bool {
        self.workloads[workload].2
    }

    fn stays(&self, _: usize) -> bool {
        !self.moves
    }
}

#[test]
fn ours_hotswap_counts_healthy_nodes_without_pods_that_hold_no_quota() {
    let gpus = |gpus: i64| vec![(n("gpu"), Amount(gpus))];
    let mut seen = Seen {
        allocatable: BTreeMap::from([(n("gpu"), 4)]),
        healthy: vec![true, false, true],
        others: vec![(0, gpus(1)), (1, gpus(1))],
        workloads: vec![(1, gpus(2), true), (2, gpus(3), false), (2, gpus(1), true)],
        moves: false,
    };
    let resources = BTreeSet::from([n("gpu")]);
    let group = |value, nodes: &[usize], whole| NodeGroup { value, nodes: nodes.to_vec(), whole };
    let all = vec![group("r0", &[0], false), group("r1", &[1, 2], true)];
    let racks = NodeGroups { label: "rack".to_owned(), all, of: vec![Some(0), Some(1), Some(1)] };
    let capacity = |seen: &Seen, groups: &[&NodeGroups<'static>]| {
        let flavor = FlavorNodes { own: Rc::new([0, 1, 2]), resources: &resources, groups: groups.to_vec() };
        let one = capacity_of_flavors(seen, &[flavor]).remove(0);
        (one.sums.limits()[0].1.get(), one.elsewhere)
    };
    assert_eq!(capacity(&seen, &[]), (4 + 4 - 1 - 3 + 2, vec![0]), "what runs elsewhere is added");
    seen.moves = true;
    assert_eq!(capacity(&seen, &[]), (4 + 4 - 1 - 3, vec![]));
    assert_eq!(capacity(&seen, &[&racks]), (4 - 3, vec![]), "a group that is not whole does not count");
}
