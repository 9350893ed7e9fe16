//! Invariants after each step, whatever went wrong: checked from the objects alone, as an auditor of the cluster would.
//!
//! * No admission exceeds the quota tree, a borrowing limit, or a lending limit. An admission that a former leader wrote and that arrived
//!   under the next one counts when its job starts: until then it can still be revoked.
//! * No job has two Workloads with quota; no pods without an admission; no quota is released while there are pods.
//! * In a StrictFIFO queue no Workload is admitted before an older one of at least the same priority.
//! * A victim of preemption is allowed by the preemptor's policies, for the reported reason.
//! * The usage in the ClusterQueues' statuses is that of their Workloads; this is checked when nothing is in flight
//!   ([`super::alive`]).
//!
//! A manager decides on what it has seen: for a while after an administrator changed quotas or policies, the former ones are allowed, too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_engine::Kind;
use sluice_quantity::Amount;
use sluice_sim::Simulation;
use sluice_sim::faults::PerFault;

use super::objects::{self, Seen, is_true};
use super::oracle::preemption::Preemptor;
use super::oracle::quota::{Node, Tree};
use super::oracle::snapshot::{Snapshot, queue};
use super::oracle::world::{FairStrategy, Name, Policy, Reservation, Strategy, Usage, Workload, World};

/// How long a watch lags at most on a bad day, also one that is broken. Who leads lists what there is first.
const LAG: SignedDuration = SignedDuration::from_secs(40);
/// How old what a manager knows may be on a bad day: a watch that lags, then a slow write, and another replica in between.
const STALE: SignedDuration = SignedDuration::from_secs(100);
/// How long what is to be undone may last on a bad day: a failed write is tried again after a minute at most, several may fail in
/// a row, and another manager may lead meanwhile.
const BACKOFF: SignedDuration = SignedDuration::from_mins(5);

/// How much was judged.
#[derive(Debug, Default)]
pub struct Judged {
    /// Workloads that got quota.
    pub admissions: AtomicUsize,
    /// Workloads that were preempted.
    pub victims: AtomicUsize,
    /// Admissions in StrictFIFO queues in which others waited that were known to be first.
    pub waits: AtomicUsize,
    /// The most chips that were assigned at once on nodes with a topology.
    pub assigned: AtomicUsize,
}

/// What an administrator configured, and until when: a manager may not have seen what came after it.
struct Configured {
    world: World,
    until: Timestamp,
}

/// What is remembered from step to step.
pub struct Safety {
    fair: Option<Vec<FairStrategy>>,
    stale: SignedDuration,
    /// How long a watch lags at most.
    lag: SignedDuration,
    generations: Vec<i64>,
    /// The last one is in force.
    worlds: Vec<Configured>,
    judged: Arc<Judged>,
    seen: BTreeMap<Name, Seen>,
    /// Since when a Workload could be admitted as far as it goes.
    waits_since: BTreeMap<Name, Timestamp>,
    /// When a queue or cohort last used more than its own.
    borrowed_at: BTreeMap<Node, Timestamp>,
}

impl Safety {
    pub fn new(fair: Option<Vec<FairStrategy>>, rates: PerFault, judged: Arc<Judged>) -> Self {
        let quiet = rates == PerFault::NONE;
        Self {
            fair,
            stale: if quiet { SignedDuration::ZERO } else { STALE },
            lag: if quiet { SignedDuration::ZERO } else { LAG },
            generations: Vec::new(),
            worlds: Vec::new(),
            judged,
            seen: BTreeMap::new(),
            waits_since: BTreeMap::new(),
            borrowed_at: BTreeMap::new(),
        }
    }

    /// Everything that is and must not be, in words.
    pub fn check(&mut self, simulation: &Simulation) -> Vec<String> {
        let now = simulation.now();
        let generations = objects::generations(simulation);
        if generations != self.generations {
            self.generations = generations;
            if let Some(last) = self.worlds.last_mut() {
                last.until = now;
            }
            let world = objects::world(simulation, self.fair.clone());
            self.worlds.push(Configured { world, until: Timestamp::MAX });
        }
        self.worlds.retain(|one| one.until == Timestamp::MAX || now.duration_since(one.until) <= self.stale);
        let seen = objects::workloads(simulation);
        let mut wrong = Vec::new();
        self.note_borrowers(&seen, now);
        self.admissions(&seen, now, &mut wrong);
        self.victims(&seen, now, &mut wrong);
        jobs(simulation, self.patience(), &mut wrong);
        self.waits_since.retain(|key, _| seen.get(key).is_some_and(waits));
        for (key, _) in seen.iter().filter(|(_, seen)| waits(seen)) {
            self.waits_since.entry(key.clone()).or_insert(now);
        }
        self.seen = seen;
        wrong
    }

    /// Notes the queues that use more than their own. A Workload that waits for its own victims counts as if it had been admitted already
    /// (docs/reference/06-algorithm.md 6.5 "processEntry"), and
    /// so does a Workload to which the manager gave quota with a write that is under way, or that failed: it was used when the manager decided on others.
    fn note_borrowers(&mut self, seen: &BTreeMap<Name, Seen>, now: Timestamp) {
        for Configured { world, .. } in &self.worlds {
            let tree = Tree::of(world);
            let snapshot = Snapshot::new(world, &tree, holders(world, seen));
            for node in tree.nodes() {
                if tree.subtree_frs(node).any(|fr| snapshot.borrowing_with(node, fr, Amount::ZERO)) {
                    self.borrowed_at.insert(node.clone(), now);
                }
            }
        }
        let preemptors: BTreeSet<&str> =
            seen.values().filter_map(|seen| seen.preempted.as_ref()).map(|(_, uid)| uid.as_str()).collect();
        let says_so = |one: &Seen| {
            one.waits_for.as_ref().is_some_and(|(_, message)| message.contains("Pending the preemption"))
        };
        let assumed = |one: &Seen| {
            one.decided.as_ref().is_some_and(|decided| now.duration_since(decided.until) <= self.stale)
        };
        let comes = |one: &&Seen| {
            one.held.is_none() && (preemptors.contains(&*one.plain.uid) || says_so(one) || assumed(one))
        };
        for one in seen.values().filter(comes) {
            let own = queue(&one.plain.queue);
            for Configured { world, .. } in &self.worlds {
                let tree = Tree::of(world);
                for node in std::iter::once(&own).chain(tree.ancestors(&own)) {
                    self.borrowed_at.insert(node.clone(), now);
                }
            }
        }
    }

    /// What is wrong by all that a manager may have seen of what was configured, as it is by the last of it. What knows nothing of a queue says
    /// nothing of it.
    fn wrong_by_all(&self, queue: &Name, judge: impl Fn(&World) -> Option<String>) -> Option<String> {
        let all = self.worlds.iter().map(|one| &one.world).filter(|world| world.queues.contains_key(queue));
        all.map(judge).reduce(Option::and).flatten()
    }

    /// Workloads that hold quota since the last step.
    fn admissions(&self, seen: &BTreeMap<Name, Seen>, now: Timestamp, wrong: &mut Vec<String>) {
        let counted = |seen: &Seen| seen.held.is_some() && !seen.late;
        let new =
            seen.iter().filter(|(key, seen)| counted(seen) && !self.seen.get(*key).is_some_and(counted));
        for (key, held) in new.filter_map(|(key, seen)| Some((key, seen.held.as_ref()?))) {
            self.judged.admissions.fetch_add(1, Ordering::Relaxed);
            let over = self.wrong_by_all(&held.workload.queue, |world| {
                let tree = Tree::of(world);
                let in_time = holders(world, seen).filter(|held| !seen[&held.workload.key].late);
                over_limit(&tree, &Snapshot::new(world, &tree, in_time), &held.workload.queue, &held.usage)
            });
            wrong.extend(over.map(|what| format!("{key} was admitted {what}")));
            wrong.extend(self.overtaken(&held.workload, seen, now));
        }
    }

    /// How long what is known may be left undone.
    fn patience(&self) -> SignedDuration {
        if self.stale.is_zero() { self.stale } else { self.stale + BACKOFF }
    }

    /// What waited in a StrictFIFO queue and was overtaken: it was first, and the manager knew it when it decided. What became known to it while that was
    /// being written came too late.
    fn overtaken(&self, admitted: &Workload, seen: &BTreeMap<Name, Seen>, now: Timestamp) -> Option<String> {
        let is_strict = |world: &World| {
            world.queues.get(&admitted.queue).is_some_and(|q| q.strategy == Strategy::StrictFifo)
        };
        if !self.worlds.iter().all(|one| is_strict(&one.world)) {
            return None;
        }
        let rank = |workload: &Workload| (std::cmp::Reverse(workload.priority), workload.created);
        let decided = seen[&admitted.key].decided.as_ref();
        let at = decided.map_or(now, |decided| decided.at);
        let mut known = 0;
        let before = self.waits_since.iter().find_map(|(key, since)| {
            let other = seen.get(key).filter(|seen| waits(seen))?;
            // Its turn had come, and it was not known yet that this could not be written.
            let had_its_turn = decided.is_some_and(|decided| decided.beside.contains(key));
            let first = other.plain.queue == admitted.queue && rank(&other.plain) < rank(admitted);
            let is_known = at.duration_since(*since) > self.lag && !had_its_turn && *key != admitted.key;
            known += usize::from(is_known && other.plain.queue == admitted.queue);
            (is_known && first).then_some(key)
        });
        self.judged.waits.fetch_add(known.min(1), Ordering::Relaxed);
        before.map(|key| format!("{} overtook {key}", admitted.key))
    }

    /// Workloads whose status says since the last step that another one preempts them.
    fn victims(&self, seen: &BTreeMap<Name, Seen>, now: Timestamp, wrong: &mut Vec<String>) {
        for (key, victim) in seen {
            let Some((reason, uid)) = &victim.preempted else { continue };
            if self.seen.get(key).is_some_and(|before| before.preempted == victim.preempted) {
                continue;
            }
            // One that is gone by now cannot be asked.
            let Some(preemptor) = seen.values().find(|seen| *seen.plain.uid == **uid) else { continue };
            let Some(held) = victim.held.as_ref() else { continue };
            self.judged.victims.fetch_add(1, Ordering::Relaxed);
            let unjustified = |world: &World| {
                self.unjustified(world, &preemptor.plain, held, reason, now).map(str::to_owned)
            };
            if let Some(why) = self.wrong_by_all(&preemptor.plain.queue, unjustified) {
                wrong.push(format!("{} preempted {key} for {reason}, but {why}", preemptor.plain.key));
            }
        }
    }

    /// Why the policies do not allow a preemption.
    fn unjustified(
        &self,
        world: &World,
        by: &Workload,
        victim: &Reservation,
        reason: &str,
        now: Timestamp,
    ) -> Option<&'static str> {
        let own = world.queues.get(&by.queue)?;
        let preemptor = Preemptor { workload: by, needed: BTreeSet::new(), requests: Usage::new() };
        let allows = |policy: Policy| preemptor.satisfies(policy, &victim.workload);
        let policies = &own.preemption;
        let same_queue = by.queue == victim.workload.queue;
        let lower = victim.workload.priority < by.priority;
        let ok = match reason {
            "InClusterQueue" => same_queue && allows(policies.within_cluster_queue),
            "InCohortReclamation" => !same_queue && allows(policies.reclaim_within_cohort),
            "InCohortFairSharing" => {
                !same_queue && world.fair.is_some() && allows(policies.reclaim_within_cohort)
            }
            "InCohortReclaimWhileBorrowing" => {
                let below = |threshold: i32| victim.workload.priority <= threshold;
                let borrow = policies.borrow_within_cohort;
                !same_queue && lower && borrow.is_some_and(|b| b.threshold.is_none_or(below))
            }
            _ => return Some("there is no such reason"),
        };
        if !ok {
            return Some("no policy of its queue allows that");
        }
        if same_queue {
            return None;
        }
        self.not_a_borrower(world, &by.queue, &victim.workload.queue, now)
    }

    /// Victims in other queues are where more is used than is their own, up to where the two queues meet.
    fn not_a_borrower(&self, world: &World, by: &Name, of: &Name, now: Timestamp) -> Option<&'static str> {
        let tree = Tree::of(world);
        let (by, of) = (queue(by), queue(of));
        let own: BTreeSet<&Node> = tree.ancestors(&by).collect();
        if !tree.ancestors(&of).any(|node| own.contains(node)) {
            return Some("they share no cohort");
        }
        let path = std::iter::once(&of).chain(tree.ancestors(&of)).take_while(|node| !own.contains(node));
        let borrowed =
            |node: &Node| self.borrowed_at.get(node).is_some_and(|at| now.duration_since(*at) <= self.stale);
        path.into_iter().any(|node| !borrowed(node)).then_some("its queue used no more than its own")
    }
}

/// Whether a workload could be admitted as far as it goes.
fn waits(seen: &Seen) -> bool {
    seen.may_run && seen.held.is_none() && !seen.finished
}

/// The workloads that hold quota in queues that exist.
fn holders<'s>(world: &World, seen: &'s BTreeMap<Name, Seen>) -> impl Iterator<Item = &'s Reservation> {
    let held = seen.values().filter_map(|seen| seen.held.as_ref());
    held.filter(|held| world.queues.contains_key(&held.workload.queue))
}

/// Which limit a queue is over, of those that its usage counts against.
fn over_limit(tree: &Tree, snapshot: &Snapshot<'_>, of: &Name, usage: &Usage) -> Option<String> {
    let own = queue(of);
    for (fr, _) in usage.iter().filter(|(_, amount)| **amount > Amount::ZERO) {
        for node in std::iter::once(&own).chain(tree.ancestors(&own)) {
            let (used, subtree) = (snapshot.usage(node, fr), tree.subtree_quota(node, fr));
            let limit = match tree.parent(node) {
                None => Some(subtree),
                Some(_) => tree.quota(node, fr).borrowing_limit.map(|limit| subtree.add(limit)),
            };
            if let Some(limit) = limit.filter(|limit| used > *limit) {
                return Some(format!("beyond what {node:?} may use of {fr:?}: {used} of {limit}"));
            }
            // What a lending limit keeps for the node reaches no node above.
            if used <= tree.local_quota(node, fr) {
                break;
            }
        }
    }
    None
}

/// Jobs and their pods. What a late write of a former leader has started is stopped as soon as it is seen.
fn jobs(simulation: &Simulation, patience: SignedDuration, wrong: &mut Vec<String>) {
    let now = simulation.now();
    let excused = |job| simulation.late_since(job).is_some_and(|since| now.duration_since(since) <= patience);
    for kind in JobKind::jobs() {
        for (reference, value) in simulation.objects(Kind::Job(kind)).filter(|(job, _)| !excused(job)) {
            let uid = value["metadata"]["uid"].as_str().unwrap_or_default();
            let own: Vec<&Value> = simulation.workloads_of(uid).collect();
            let with =
                |type_: &str| own.iter().filter(|w| is_true(w, type_) && !is_true(w, "Finished")).count();
            if with("QuotaReserved") > 1 {
                wrong.push(format!("{reference} has {} Workloads that hold quota", with("QuotaReserved")));
            }
            let ended = own.iter().any(|w| is_true(w, "Finished"));
            if simulation.has_pods(reference) && !ended && with("QuotaReserved") == 0 {
                wrong.push(format!("{reference} has pods, and its quota is not held"));
            }
            if value["spec"]["suspend"] != true && !ended && with("Admitted") == 0 {
                wrong.push(format!("{reference} runs without an admission"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use sluice_sim::faults::PerFault;

    use super::super::oracle::world::{
        Admitted, Fr, Fungibility, Group, PreemptionPolicies, Queue, Quota, name,
    };
    use super::*;

    /// Two queues of a Cohort with one processor each: `a` may reclaim from `b`.
    fn world() -> World {
        let quota = Quota { nominal: Amount(1), ..Quota::default() };
        let group = Group {
            covered: vec![name("cpu")],
            flavors: vec![(name("default"), BTreeMap::from([(name("cpu"), quota)]))],
        };
        let queue = Queue {
            cohort: Some(name("co")),
            groups: vec![group],
            strategy: Strategy::BestEffortFifo,
            preemption: PreemptionPolicies {
                within_cluster_queue: Policy::Never,
                reclaim_within_cohort: Policy::Any,
                borrow_within_cohort: None,
            },
            fungibility: Fungibility::default(),
            weight: 1.0,
            active: true,
        };
        let queues = [(name("a"), queue.clone()), (name("b"), queue)];
        World { queues: BTreeMap::from(queues), ..World::default() }
    }

    /// A Workload that waits in a queue.
    fn waiting(own: &str, queue: &str) -> Seen {
        let plain = Workload {
            key: name(own),
            uid: name(&format!("uid-{own}")),
            queue: name(queue),
            priority: 0,
            created: 0,
            pod_sets: Vec::new(),
            gated: false,
            replaces: None,
        };
        Seen {
            plain,
            held: None,
            late: false,
            finished: false,
            decided: None,
            may_run: true,
            preempted: None,
            waits_for: None,
        }
    }

    /// One that holds a processor, and is preempted.
    fn victim(own: &str, queue: &str, reason: &str, by: &str) -> Seen {
        let mut seen = waiting(own, queue);
        let cpu = Fr { flavor: name("default"), resource: name("cpu") };
        seen.held = Some(Reservation {
            workload: seen.plain.clone(),
            admitted: Admitted { pod_sets: Vec::new() },
            usage: Usage::from([(cpu, Amount(1))]),
            reserved_at: 0,
            evicted: true,
        });
        seen.preempted = Some((reason.to_owned(), format!("uid-{by}")));
        seen
    }

    /// What the auditor says of a step in which `a`'s Workload takes the only processor that `b` uses, its own, beside these.
    fn reported(others: impl IntoIterator<Item = Seen>) -> Vec<String> {
        let mut safety = Safety::new(None, PerFault::BAD, Arc::default());
        safety.worlds = vec![Configured { world: world(), until: Timestamp::MAX }];
        let taken = victim("taken", "b", "InCohortReclamation", "reclaimer");
        let all = [taken, waiting("reclaimer", "a")].into_iter().chain(others);
        let seen = all.map(|one| (one.plain.key.clone(), one)).collect();
        let mut wrong = Vec::new();
        safety.note_borrowers(&seen, Timestamp::UNIX_EPOCH);
        safety.victims(&seen, Timestamp::UNIX_EPOCH, &mut wrong);
        wrong
    }

    /// The day on which a victim's queue was back at its nominal share when the preemption was reported: the preemptor had made it borrow.
    #[test]
    fn a_workload_that_waits_for_its_own_victims_counts_as_if_it_had_come() {
        let wrong =
            "reclaimer preempted taken for InCohortReclamation, but its queue used no more than its own";
        assert_eq!(reported([]), [wrong]);
        assert_eq!(reported([waiting("next", "b")]), [wrong], "one that merely waits does not count");
        let mut says_so = waiting("next", "b");
        let message = "couldn't assign flavors. Pending the preemption of 1 workload(s)";
        says_so.waits_for = Some(("Preempting".to_owned(), message.to_owned()));
        assert_eq!(reported([says_so]), [""; 0]);
        // Its own message may not have been written yet; its victim names it.
        let its_victim = victim("older", "a", "InCohortReclamation", "next");
        let named = reported([waiting("next", "b"), its_victim]);
        assert!(!named.iter().any(|line| line.contains("taken")), "{named:?}");
        let mut decided = waiting("next", "b");
        let at = Timestamp::UNIX_EPOCH;
        decided.decided = Some(objects::Decided { at, until: at, beside: BTreeSet::new() });
        assert_eq!(reported([decided]), [""; 0], "nor may what it was given");
    }
}
