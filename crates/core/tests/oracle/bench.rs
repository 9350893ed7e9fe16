//! Engine cases of the format `kueue-core-bench/v1`, run on the oracle.

use super::cycle::{Oracle, Outcome};
use super::queues::Place;
use super::world::{
    Admitted, Cohort, FairStrategy, Flavor, Fungibility, Group, Name, PodSet, Policy, PreemptionPolicies,
    Queue, Quota, Strategy, Time, Workload, World, name,
};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use sluice_quantity::{Amount, Quantity, amount_of};
use std::collections::{BTreeMap, BTreeSet};

const CREATION: Time = 1_767_225_600; // 2026-01-01T00:00:00Z
const CLOCK: Time = 1_780_272_000; // 2026-06-01T00:00:00Z

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Case {
    #[serde(default)]
    fair_sharing: bool,
    #[serde(default)]
    flavor: String,
    cohorts: Cohorts,
    cluster_queues: ClusterQueues,
    workloads: Vec<Class>,
    max_cycles: i64,
    pub expected: Expected,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cohorts {
    #[serde(default)]
    tree: Vec<usize>,
    #[serde(default)]
    fair_weights: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClusterQueues {
    per_cohort: usize,
    #[serde(default)]
    quota: BTreeMap<String, CaseQuota>,
    /// Instead of `quota`.
    #[serde(default)]
    resource_groups: Vec<CaseGroup>,
    #[serde(default)]
    flavor_fungibility: CaseFungibility,
    reclaim_within_cohort: String,
    within_cluster_queue: String,
    borrow_within_cohort: Option<BorrowWithinCohort>,
    queueing_strategy: String,
    #[serde(default)]
    fair_weights: Vec<String>,
}

#[derive(Deserialize)]
struct CaseGroup {
    flavors: Vec<CaseFlavor>,
}

#[derive(Deserialize)]
struct CaseFlavor {
    name: String,
    quota: BTreeMap<String, CaseQuota>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct CaseFungibility {
    when_can_borrow: Option<String>,
    when_can_preempt: Option<String>,
    preference: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BorrowWithinCohort {
    policy: String,
    max_priority_threshold: Option<i32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CaseQuota {
    nominal: String,
    borrowing_limit: Option<String>,
    lending_limit: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Class {
    #[serde(rename = "class")]
    name: String,
    #[serde(rename = "countPerCQ")]
    count_per_queue: usize,
    priority: i32,
    pods: i64,
    /// `minCount` of the pod set.
    min_pods: Option<i64>,
    request: BTreeMap<String, String>,
    #[serde(default)]
    runtime_cycles: i64,
    #[serde(default)]
    preadmitted: bool,
    #[serde(default)]
    arrival_cycle: i64,
    #[serde(rename = "cqFilter")]
    filter: Option<Filter>,
}

#[derive(Deserialize)]
struct Filter {
    #[serde(rename = "mod")]
    modulus: usize,
    eq: usize,
}

/// Counts and digests of a run.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Expected {
    pub cycles: usize,
    pub idle_cycles: usize,
    pub admissions: usize,
    pub distinct_admitted: usize,
    pub evictions: usize,
    pub finished: usize,
    pub holding_at_end: usize,
    pub pending_active: usize,
    pub pending_inadmissible: usize,
    pub end: String,
    pub digest: BTreeMap<String, String>,
}

/// A run's outcome, and its events to find the first difference.
pub struct Run {
    pub outcome: Expected,
    pub sequence: Vec<String>,
    pub evictions: Vec<String>,
}

fn amount(resource: &str, text: &str) -> Amount {
    amount_of(resource, &Quantity::parse(text).expect("a quantity"))
}

fn policy(text: &str) -> Policy {
    match text {
        "LowerPriority" => Policy::LowerPriority,
        "LowerOrNewerEqualPriority" => Policy::LowerOrNewerEqualPriority,
        "Any" => Policy::Any,
        _ => Policy::Never,
    }
}

fn cycled(weights: &[String], index: usize) -> f64 {
    if weights.is_empty() { 1.0 } else { weights[index % weights.len()].parse().expect("a weight") }
}

impl Case {
    pub fn parse(text: &str) -> Case {
        serde_saphyr::from_str(text).expect("a case")
    }

    /// Cohorts depth-first; returns the leaves.
    fn grow(
        tree: &[usize],
        parent: Option<&str>,
        cohorts: &mut Vec<(String, Option<String>)>,
    ) -> Vec<String> {
        let Some((fan_out, below)) = tree.split_first() else {
            return parent.map(str::to_owned).into_iter().collect();
        };
        let mut leaves = Vec::new();
        for index in 0..*fan_out {
            let name =
                parent.map_or_else(|| format!("co{index:03}"), |parent| format!("{parent}-{index:03}"));
            cohorts.push((name.clone(), parent.map(str::to_owned)));
            leaves.extend(Case::grow(below, Some(&name), cohorts));
        }
        leaves
    }

    fn groups(&self) -> Vec<Group> {
        let quota = |(resource, quota): (&String, &CaseQuota)| {
            let limit = |limit: &Option<String>| limit.as_ref().map(|limit| amount(resource, limit));
            let quota = Quota {
                nominal: amount(resource, &quota.nominal),
                borrowing_limit: limit(&quota.borrowing_limit),
                lending_limit: limit(&quota.lending_limit),
            };
            (name(resource), quota)
        };
        let group = |flavors: Vec<(&String, &BTreeMap<String, CaseQuota>)>| Group {
            covered: flavors[0].1.keys().map(|resource| name(resource)).collect(),
            flavors: flavors
                .into_iter()
                .map(|(flavor, quotas)| (name(flavor), quotas.iter().map(quota).collect()))
                .collect(),
        };
        let spec = &self.cluster_queues;
        if spec.resource_groups.is_empty() {
            return vec![group(vec![(&self.flavor, &spec.quota)])];
        }
        let groups = spec.resource_groups.iter();
        groups
            .map(|of| group(of.flavors.iter().map(|flavor| (&flavor.name, &flavor.quota)).collect()))
            .collect()
    }

    fn fungibility(&self) -> Fungibility {
        let spec = &self.cluster_queues.flavor_fungibility;
        Fungibility {
            try_next_when_borrowing: spec.when_can_borrow.as_deref() == Some("TryNextFlavor"),
            try_next_when_preempting: spec.when_can_preempt.as_deref() != Some("MayStopSearch"),
            preemption_over_borrowing: spec.preference.as_deref() == Some("PreemptionOverBorrowing"),
        }
    }

    fn world(&self) -> (World, Vec<(Name, usize)>) {
        let mut cohorts = Vec::new();
        let leaves = Case::grow(&self.cohorts.tree, None, &mut cohorts);
        let mut world = World {
            flavors: self
                .groups()
                .into_iter()
                .flat_map(|group| group.flavors)
                .map(|(flavor, _)| (flavor, Flavor::default()))
                .collect(),
            fair: self
                .fair_sharing
                .then(|| vec![FairStrategy::LessThanOrEqualToFinalShare, FairStrategy::LessThanInitialShare]),
            ..World::default()
        };
        for (index, (cohort, parent)) in cohorts.into_iter().enumerate() {
            let weight = cycled(&self.cohorts.fair_weights, index);
            let spec = Cohort { parent: parent.as_deref().map(name), groups: Vec::new(), weight };
            world.cohorts.insert(name(&cohort), spec);
        }
        let parents: Vec<Option<Name>> =
            if leaves.is_empty() { vec![None] } else { leaves.iter().map(|leaf| Some(name(leaf))).collect() };
        let spec = &self.cluster_queues;
        let mut order = Vec::new();
        for cohort in parents {
            for in_cohort in 0..spec.per_cohort {
                let queue = Queue {
                    cohort: cohort.clone(),
                    groups: self.groups(),
                    strategy: match spec.queueing_strategy.as_str() {
                        "StrictFIFO" => Strategy::StrictFifo,
                        _ => Strategy::BestEffortFifo,
                    },
                    preemption: PreemptionPolicies {
                        within_cluster_queue: policy(&spec.within_cluster_queue),
                        reclaim_within_cohort: policy(&spec.reclaim_within_cohort),
                        borrow_within_cohort: spec
                            .borrow_within_cohort
                            .as_ref()
                            .filter(|borrow| borrow.policy == "LowerPriority")
                            .map(|borrow| super::world::BorrowWithinCohort {
                                threshold: borrow.max_priority_threshold,
                            }),
                    },
                    fungibility: self.fungibility(),
                    weight: cycled(&spec.fair_weights, order.len()),
                    active: true,
                };
                let key = name(&format!("cq{:05}", order.len()));
                world.queues.insert(key.clone(), queue);
                order.push((key, in_cohort));
            }
        }
        (world, order)
    }

    /// All workloads in emission order, with the index of their class.
    fn workloads(&self, queues: &[(Name, usize)]) -> Vec<(usize, Workload)> {
        let mut out: Vec<(usize, Workload)> = Vec::new();
        let most = self.workloads.iter().map(|class| class.count_per_queue).max().unwrap_or(0);
        for number in 0..most {
            for (queue, in_cohort) in queues {
                for (index, class) in self.workloads.iter().enumerate() {
                    let filtered =
                        class.filter.as_ref().is_some_and(|filter| in_cohort % filter.modulus != filter.eq);
                    if number >= class.count_per_queue || filtered {
                        continue;
                    }
                    let seq = out.len();
                    let requests = class.request.iter().map(|(r, q)| (name(r), amount(r, q))).collect();
                    let workload = Workload {
                        key: name(&format!("{queue}/{}-{number:05}", class.name)),
                        uid: name(&format!("u{seq:08}")),
                        queue: queue.clone(),
                        priority: class.priority,
                        created: CREATION + Time::try_from(seq).expect("small"),
                        pod_sets: vec![PodSet {
                            name: name("main"),
                            count: class.pods,
                            min_count: class.min_pods,
                            requests,
                            ..PodSet::default()
                        }],
                        gated: false,
                        replaces: None,
                    };
                    out.push((index, workload));
                }
            }
        }
        out
    }

    fn admitted(&self, workload: &Workload) -> Admitted {
        let groups = self.groups();
        let first = |resource: &Name| {
            let group = groups.iter().find(|group| group.covered.contains(resource))?;
            Some((resource.clone(), group.flavors.first()?.0.clone()))
        };
        let of = |pod_set: &PodSet| {
            let flavors = pod_set.requests.keys().filter_map(first).collect();
            (pod_set.name.clone(), pod_set.count, flavors)
        };
        Admitted { pod_sets: workload.pod_sets.iter().map(of).collect() }
    }

    /// Runs the loop of the format.
    pub fn run(&self) -> Run {
        let (world, queues) = self.world();
        let mut runner = Runner::new(self, Oracle::new(world), self.workloads(&queues));
        let end = runner.run();
        runner.finish(end)
    }
}

struct Runner<'a> {
    case: &'a Case,
    oracle: Oracle,
    class: BTreeMap<Name, usize>,
    arrivals: BTreeMap<i64, Vec<Workload>>,
    /// When what holds quota finishes.
    finishes: BTreeMap<Name, i64>,
    /// Queues whose tree is to be flushed.
    flagged: BTreeSet<Name>,
    outcome: Expected,
    sequence: Vec<String>,
    distinct: BTreeSet<String>,
    evictions: Vec<String>,
}

impl<'a> Runner<'a> {
    fn new(case: &'a Case, mut oracle: Oracle, workloads: Vec<(usize, Workload)>) -> Self {
        let mut arrivals: BTreeMap<i64, Vec<Workload>> = BTreeMap::new();
        let mut class_of = BTreeMap::new();
        for (index, workload) in workloads {
            let class = &case.workloads[index];
            class_of.insert(workload.key.clone(), index);
            if class.preadmitted {
                let (admitted, at) = (case.admitted(&workload), workload.created);
                oracle.hold(workload, admitted, at);
            } else {
                arrivals.entry(class.arrival_cycle.max(1)).or_default().push(workload);
            }
        }
        Runner {
            case,
            oracle,
            class: class_of,
            arrivals,
            finishes: BTreeMap::new(),
            flagged: BTreeSet::new(),
            outcome: Expected::default(),
            sequence: Vec::new(),
            distinct: BTreeSet::new(),
            evictions: Vec::new(),
        }
    }

    fn run(&mut self) -> &'static str {
        let mut quiet = 0;
        for n in 1..=self.case.max_cycles {
            for workload in self.arrivals.remove(&n).unwrap_or_default() {
                self.oracle.submit(workload);
            }
            let outstanding = !self.finishes.is_empty() || !self.arrivals.is_empty();
            let mut events = 0;
            let idle = !self.oracle.has_heads();
            if idle {
                if !outstanding {
                    return "drained";
                }
                self.outcome.idle_cycles += 1;
            } else {
                self.outcome.cycles += 1;
                events += self.cycle(n);
            }
            events += self.finish_due(n);
            for queue in std::mem::take(&mut self.flagged) {
                self.oracle.flush(&queue);
            }
            if events > 0 {
                quiet = 0;
            } else if !idle {
                quiet += 1;
            }
            if quiet >= 200 && self.finishes.is_empty() && self.arrivals.is_empty() {
                return "stalled";
            }
        }
        "maxCycles"
    }

    fn cycle(&mut self, n: i64) -> usize {
        let mut victims = BTreeSet::new();
        let mut events = 0;
        for entry in self.oracle.cycle(CLOCK + n) {
            match entry.outcome {
                Outcome::Admitted(_) => {
                    events += 1;
                    self.sequence.push(format!("{n} {}", entry.key));
                    self.distinct.insert(entry.key.to_string());
                    let runtime = self.case.workloads[self.class[&entry.key]].runtime_cycles;
                    if runtime > 0 {
                        self.finishes.insert(entry.key, n + runtime - 1);
                    }
                }
                Outcome::Preempting(targets) => {
                    for (key, _) in targets {
                        victims.insert((self.oracle.held[&key].workload.uid.clone(), key));
                    }
                }
                _ => {}
            }
        }
        for (_, key) in victims {
            events += 1;
            self.evictions.push(format!("{n} {key}"));
            self.finishes.remove(&key);
            let workload = self.oracle.release(&key).expect("victims hold quota");
            self.flagged.insert(workload.queue.clone());
            self.oracle.submit(workload);
        }
        events
    }

    fn finish_due(&mut self, n: i64) -> usize {
        let due: Vec<Name> =
            self.finishes.iter().filter(|(_, at)| **at <= n).map(|(key, _)| key.clone()).collect();
        for key in &due {
            self.finishes.remove(key);
            let workload = self.oracle.release(key).expect("what runs holds quota");
            self.flagged.insert(workload.queue);
            self.outcome.finished += 1;
        }
        due.len()
    }

    fn finish(mut self, end: &str) -> Run {
        let holding: Vec<String> = self.oracle.held.keys().map(ToString::to_string).collect();
        let distinct: Vec<String> = self.distinct.iter().cloned().collect();
        self.outcome.admissions = self.sequence.len();
        self.outcome.distinct_admitted = distinct.len();
        self.outcome.evictions = self.evictions.len();
        self.outcome.holding_at_end = holding.len();
        self.outcome.pending_active = self.oracle.count(Place::Heap);
        self.outcome.pending_inadmissible = self.oracle.count(Place::Inadmissible);
        end.clone_into(&mut self.outcome.end);
        for (digest, lines) in [
            ("sequence", &self.sequence),
            ("distinct", &distinct),
            ("holding", &holding),
            ("evictions", &self.evictions),
        ] {
            self.outcome.digest.insert(digest.to_owned(), sha256_of(lines));
        }
        Run { outcome: self.outcome, sequence: self.sequence, evictions: self.evictions }
    }
}

fn sha256_of(lines: &[String]) -> String {
    let mut sorted: Vec<&String> = lines.iter().collect();
    sorted.sort();
    let mut hash = Sha256::new();
    for line in sorted {
        hash.update(line);
        hash.update("\n");
    }
    hash.finalize().iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}
