//! The space of small worlds: at most three queues, four workloads, two flavors, quotas and requests of 1 to 3. How the
//! world is built (tree, policies, limits, weights, arrivals) is a row of a three-wise covering array; quotas and
//! workloads are enumerated in full. Every world has a number.

use crate::covering::three_wise;
use crate::oracle::world::{
    BorrowWithinCohort, Cohort, FairStrategy, Flavor, Fungibility, Group, PodSet, Policy, PreemptionPolicies,
    Queue, Quota, Strategy, Time, Workload, World, name,
};
use sluice_quantity::Amount;
use std::collections::BTreeMap;

/// Queues (by the cohort they are in) and cohorts (by their parent).
struct Tree {
    queues: &'static [Option<&'static str>],
    cohorts: &'static [(&'static str, Option<&'static str>)],
    /// The last two queues may be exchanged: they have the same place and, unlike the first, the same policies.
    symmetric: bool,
}

const TREES: [Tree; 7] = [
    Tree { queues: &[None], cohorts: &[], symmetric: false },
    Tree { queues: &[Some("r"), Some("r")], cohorts: &[], symmetric: false },
    Tree { queues: &[Some("a"), Some("r")], cohorts: &[("a", Some("r"))], symmetric: false },
    Tree { queues: &[Some("r"), Some("r"), Some("r")], cohorts: &[], symmetric: true },
    Tree { queues: &[Some("r"), Some("a"), Some("a")], cohorts: &[("a", Some("r"))], symmetric: true },
    Tree { queues: &[Some("a"), Some("a"), Some("r")], cohorts: &[("a", Some("r"))], symmetric: false },
    Tree {
        queues: &[Some("b"), Some("b"), Some("c")],
        cohorts: &[("a", Some("r")), ("b", Some("a")), ("c", Some("r"))],
        symmetric: false,
    },
];

/// Levels per factor, in the order of the fields of [`Row`].
const LEVELS: [usize; 16] = [TREES.len(), 2, 3, 3, 3, 3, 2, 2, 2, 4, 3, 3, 3, 2, 3, 2];

/// How a world is built.
struct Row {
    tree: &'static Tree,
    strategy: Strategy,
    within: Policy,
    /// Of the first queue, and of the others.
    reclaim: [Policy; 2],
    borrow_within: Option<BorrowWithinCohort>,
    fungibility: Fungibility,
    fair: Option<Vec<FairStrategy>>,
    borrowing_limit: Option<Amount>,
    lending_limit: Option<Amount>,
    /// Of the first queue; the others have weight 1.
    weight: f64,
    /// A request of n is n pods, of which one is enough.
    partial: bool,
    /// How many arrive before anything is scheduled, and at a time later.
    arrivals: usize,
    /// The gate `AdmitOnlyFreeQuota`.
    only_free: bool,
}

impl Row {
    fn new(levels: &[usize]) -> Row {
        let up_to = |threshold| Some(BorrowWithinCohort { threshold });
        let reclaim = |level: usize| [Policy::Any, Policy::LowerPriority, Policy::Never][level];
        let limit = |level: usize| [None, Some(Amount(0)), Some(Amount(1))][level];
        let both = vec![FairStrategy::LessThanOrEqualToFinalShare, FairStrategy::LessThanInitialShare];
        Row {
            tree: &TREES[levels[0]],
            strategy: [Strategy::BestEffortFifo, Strategy::StrictFifo][levels[1]],
            within: [Policy::Never, Policy::LowerPriority, Policy::LowerOrNewerEqualPriority][levels[2]],
            reclaim: [reclaim(levels[3]), reclaim(levels[4])],
            borrow_within: [None, up_to(None), up_to(Some(0))][levels[5]],
            fungibility: Fungibility {
                try_next_when_borrowing: levels[6] == 1,
                try_next_when_preempting: levels[7] == 1,
                preemption_over_borrowing: levels[8] == 1,
            },
            fair: [None, Some(both.clone()), Some(both[..1].to_vec()), Some(both[1..].to_vec())][levels[9]]
                .clone(),
            borrowing_limit: limit(levels[10]),
            lending_limit: limit(levels[11]),
            weight: [1.0, 2.0, 0.0][levels[12]],
            partial: levels[13] == 1,
            arrivals: [usize::MAX, 1, 2][levels[14]],
            only_free: levels[15] == 1,
        }
    }

    fn queues(&self) -> u64 {
        self.tree.queues.len() as u64
    }

    /// Ways to fill the quotas: the first flavor per queue, the second one for all queues alike.
    fn quotas(&self) -> u64 {
        3u64.pow(u32::try_from(self.queues()).expect("at most three") + 1)
    }

    /// Ways to choose one workload: queue, request, priority.
    fn kinds(&self) -> u64 {
        self.queues() * 3 * 2
    }

    /// Ways to choose one to four workloads in order.
    fn sequences(&self) -> u64 {
        (1..=4).map(|length| self.kinds().pow(length)).sum()
    }
}

/// One workload of a small world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    queue: u64,
    request: i64,
    priority: i32,
}

/// A world, its workloads in order of creation, how many of them arrive at a time, and a gate.
pub struct SmallWorld {
    pub world: World,
    pub workloads: Vec<Workload>,
    pub arrivals: usize,
    /// The gate `AdmitOnlyFreeQuota`.
    pub only_free: bool,
}

/// All small worlds, numbered.
pub struct Space {
    rows: Vec<Row>,
    /// The number of the first world after each row.
    ends: Vec<u64>,
}

impl Space {
    pub fn new() -> Space {
        let rows: Vec<Row> = three_wise(&LEVELS).iter().map(|levels| Row::new(levels)).collect();
        let sizes = rows.iter().map(|row| row.quotas() * row.sequences());
        let ends = sizes.scan(0, |sum, size| {
            *sum += size;
            Some(*sum)
        });
        Space { ends: ends.collect(), rows }
    }

    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// The number of worlds, symmetric ones included.
    pub fn size(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The world with this number, unless another one is the same but for the names of queues or priorities.
    pub fn world(&self, number: u64) -> Option<SmallWorld> {
        let at = self.ends.partition_point(|end| *end <= number);
        let row = &self.rows[at];
        let within = number - if at == 0 { 0 } else { self.ends[at - 1] };
        let (mut quotas, mut sequence) = (within % row.quotas(), within / row.quotas());
        let mut digit = || {
            let digit = quotas % 3;
            quotas /= 3;
            i64::try_from(digit).expect("a digit") + 1
        };
        let second = digit();
        let first: Vec<i64> = (0..row.queues()).map(|_| digit()).collect();

        let mut length = 1;
        while sequence >= row.kinds().pow(length) {
            sequence -= row.kinds().pow(length);
            length += 1;
        }
        let mut kinds = Vec::new();
        for _ in 0..length {
            let kind = sequence % row.kinds();
            sequence /= row.kinds();
            kinds.push(Kind {
                queue: kind % row.queues(),
                request: i64::try_from(kind / row.queues() % 3).expect("a digit") + 1,
                priority: i32::try_from(kind / row.queues() / 3).expect("a digit"),
            });
        }
        if is_redundant(row, &first, &kinds) {
            return None;
        }
        Some(build(row, second, &first, &kinds))
    }
}

/// Whether a smaller world says the same.
fn is_redundant(row: &Row, first: &[i64], kinds: &[Kind]) -> bool {
    // Without a threshold only the order of priorities matters.
    if row.borrow_within.is_none_or(|borrow| borrow.threshold.is_none())
        && kinds.iter().all(|kind| kind.priority == 1)
    {
        return true;
    }
    if !row.tree.symmetric {
        return false;
    }
    let exchange = |queue: u64| [0, 2, 1][usize::try_from(queue).expect("at most three")];
    let other: Vec<Kind> = kinds.iter().map(|kind| Kind { queue: exchange(kind.queue), ..*kind }).collect();
    (&[first[0], first[2], first[1]][..], &other[..]) < (first, kinds)
}

fn build(row: &Row, second: i64, first: &[i64], kinds: &[Kind]) -> SmallWorld {
    let resource = name("gpu");
    let mut world = World { fair: row.fair.clone(), ..World::default() };
    for flavor in ["x", "y"] {
        world.flavors.insert(name(flavor), Flavor::default());
    }
    for (cohort, parent) in row.tree.cohorts {
        let spec = Cohort { parent: parent.map(name), groups: Vec::new(), weight: 1.0 };
        world.cohorts.insert(name(cohort), spec);
    }
    for (index, cohort) in row.tree.queues.iter().enumerate() {
        let in_cohort = |limit: Option<Amount>| limit.filter(|_| cohort.is_some());
        let quota = |nominal: i64| Quota {
            nominal: Amount(nominal),
            borrowing_limit: in_cohort(row.borrowing_limit),
            lending_limit: in_cohort(row.lending_limit),
        };
        let flavors = [("x", first[index]), ("y", second)];
        let flavors = flavors
            .map(|(flavor, nominal)| (name(flavor), BTreeMap::from([(resource.clone(), quota(nominal))])));
        let reclaim = row.reclaim[usize::from(index > 0)];
        let queue = Queue {
            cohort: cohort.map(name),
            groups: vec![Group { covered: vec![resource.clone()], flavors: flavors.to_vec() }],
            strategy: row.strategy,
            preemption: PreemptionPolicies {
                within_cluster_queue: row.within,
                reclaim_within_cohort: reclaim,
                borrow_within_cohort: row.borrow_within.filter(|_| reclaim != Policy::Never),
            },
            fungibility: row.fungibility,
            weight: if index == 0 { row.weight } else { 1.0 },
            active: true,
        };
        world.queues.insert(name(&format!("q{index}")), queue);
    }
    let workload = |(number, kind): (usize, &Kind)| {
        let (count, request) = if row.partial { (kind.request, 1) } else { (1, kind.request) };
        Workload {
            key: name(&format!("q{}/w{number}", kind.queue)),
            uid: name(&format!("u{number}")),
            queue: name(&format!("q{}", kind.queue)),
            priority: kind.priority,
            created: 1000 + Time::try_from(number).expect("small"),
            pod_sets: vec![PodSet {
                name: name("main"),
                count,
                min_count: row.partial.then_some(1),
                requests: BTreeMap::from([(resource.clone(), Amount(request))]),
                ..PodSet::default()
            }],
            gated: false,
            replaces: None,
        }
    };
    let workloads = kinds.iter().enumerate().map(workload).collect();
    SmallWorld { world, workloads, arrivals: row.arrivals, only_free: row.only_free }
}
