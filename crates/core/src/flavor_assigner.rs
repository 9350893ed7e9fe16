//! Flavor assignment: which flavor each resource of each pod set gets, and what stands in the way (reference 06, 6.6).

use smallvec::SmallVec;

use crate::Amount;
use crate::intern::{FlavorId, FrId, Names, ResourceId, ShapeId, SlotId};
use crate::plan::{Plan, PlanBlock, PlanFlavor, PlanGroup};
use crate::preemption;
use crate::quota::exact;
use crate::reason::{PodSetRefusal, PreemptionOutlook, Reason, Refusal};
use crate::report::{Considered, ConsideredFlavor, FlavorMode};
use crate::spec::{Fungibility, FungibilityPolicy, FungibilityPreference, PreemptionPolicy, WhenCanPreempt};
use crate::view::{Demand, Head, View};
use crate::{Config, Name};

/// What an assignment came to as a whole: the worst over its pod sets, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum Mode {
    /// Not now.
    #[default]
    NoFit,
    /// After a preemption, which may or may not have candidates.
    Preempt,
    /// When victims of earlier heads are gone.
    DeferredFit,
    /// At once.
    Fit,
}

/// The flavor that one resource of one pod set got.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pick {
    pub(crate) pod_set: usize,
    pub(crate) resource: ResourceId,
    pub(crate) flavor: FlavorId,
    pub(crate) pair: FrId,
    /// The pod set's total.
    pub(crate) amount: i64,
    pub(crate) mode: FlavorMode,
    /// Place of the flavor tried last; −1 when the scan reached the end.
    tried: i32,
}

/// One flavor that was looked at and does not plainly fit without borrowing.
#[derive(Debug, Clone, PartialEq)]
struct Attempt {
    /// The place of the group of pod sets in the plan, and of the resource group in that.
    group: usize,
    block: usize,
    flavor: Option<FlavorId>,
    mode: FlavorMode,
    height: u32,
    refusals: SmallVec<[Refusal; 1]>,
    reason: Reason,
    /// Counts as something in the way: the search of this resource group did not end in a fit.
    counts: bool,
}

/// The outcome of the search for one workload.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Assignment {
    pub(crate) mode: Mode,
    /// The highest borrowing.
    pub(crate) borrow: u32,
    /// Sorted by pod set, then by the resource's name.
    pub(crate) picks: SmallVec<[Pick; 2]>,
    /// The totals per (flavor, resource).
    pub(crate) demands: SmallVec<[Demand; 2]>,
    /// How many pods of each pod set.
    pub(crate) counts: SmallVec<[i64; 2]>,
    attempts: Vec<Attempt>,
}

/// Where a flavor scan stopped (`LastAssignment`).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Progress {
    /// (pod set, resource, place of the flavor tried last or −1).
    tried: Vec<(usize, ResourceId, i32)>,
    shape: ShapeId,
    cycle: u64,
    generation: u64,
}

impl Progress {
    /// Some resource group has flavors left to try.
    pub(crate) fn is_pending(&self) -> bool {
        self.tried.iter().any(|&(_, _, tried)| tried != -1)
    }

    /// It no longer says anything about now: another shape, or capacity changed meanwhile. With the gate, capacity that
    /// changed since the last cycle only does not count.
    pub(crate) fn is_outdated(&self, config: &Config, shape: ShapeId, cycle: u64, generation: u64) -> bool {
        let advanced = generation > self.generation;
        let old = cycle > self.cycle + 1;
        self.shape != shape || (advanced && (old || !config.gates.flavor_fungibility_preserve_scan_progress))
    }

    fn start(&self, pod_set: usize, resource: ResourceId) -> usize {
        self.tried
            .iter()
            .find(|&&(set, res, _)| set == pod_set && res == resource)
            .map_or(0, |&(_, _, tried)| usize::try_from(tried.saturating_add(1)).unwrap_or(0))
    }
}

/// Mode and borrowing height of a flavor, or of one resource of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Granular {
    mode: FlavorMode,
    height: u32,
}

impl Granular {
    const WORST: Granular = Granular { mode: FlavorMode::NoFit, height: 0 };
    const BEST: Granular = Granular { mode: FlavorMode::Fit, height: 0 };

    /// Whether this is preferred to the other. Not to fit is worst, no candidates is next; between the others, and
    /// between equals of those, the preference decides what is compared first. [quirk] `BorrowingOverPreemption`
    /// compares the mode first, which prefers to borrow; the API's description reads the other way round.
    fn preferred_to(self, other: Granular, fungibility: Fungibility) -> bool {
        let class = |granular: Granular| granular.mode.min(FlavorMode::Preempt);
        if class(self) != class(other) {
            return class(self) > class(other);
        }
        match fungibility.preference {
            Some(FungibilityPreference::PreemptionOverBorrowing) => {
                (other.height, self.mode) > (self.height, other.mode)
            }
            _ => (self.mode, other.height) > (other.mode, self.height),
        }
    }

    /// Whether to look at the next flavor although this one could do.
    fn try_next(self, fungibility: Fungibility) -> bool {
        match self.mode {
            FlavorMode::NoFit | FlavorMode::NoPreemptionCandidates => true,
            FlavorMode::Preempt | FlavorMode::Reclaim
                if fungibility.when_can_preempt == WhenCanPreempt::TryNextFlavor =>
            {
                true
            }
            _ => self.height > 0 && fungibility.when_can_borrow == FungibilityPolicy::TryNextFlavor,
        }
    }
}

/// What to search with.
pub(crate) struct Request<'a> {
    pub(crate) head: &'a Head,
    pub(crate) plan: &'a Plan,
    /// How many pods of each pod set.
    pub(crate) counts: &'a [i64],
    /// Where the scan resumes.
    pub(crate) from: Option<&'a Progress>,
    /// Only flavors that this assignment has.
    pub(crate) only: Option<&'a Assignment>,
}

/// Searches flavors for all pod sets; stops at the first that gets none.
pub(crate) fn assign(view: &mut View<'_>, request: &Request<'_>) -> Assignment {
    view.stats.evaluations += 1;
    let mut assignment =
        Assignment { mode: Mode::Fit, counts: request.counts.into(), ..Assignment::default() };
    for (at, group) in request.plan.groups.iter().enumerate() {
        if !assign_group(view, request, at, group, &mut assignment) {
            assignment.mode = Mode::NoFit;
            break;
        }
    }
    assignment
}

/// Searches for one group of pod sets; false if it gets nothing.
fn assign_group(
    view: &mut View<'_>,
    request: &Request<'_>,
    at: usize,
    group: &PlanGroup,
    assignment: &mut Assignment,
) -> bool {
    for uncovered in &group.uncovered {
        let total = uncovered.total(&group.members, request.counts);
        if total > 0 {
            let resource = view.names.resource_name(uncovered.resource).clone();
            assignment.attempts.push(Attempt {
                group: at,
                block: usize::MAX,
                flavor: None,
                mode: FlavorMode::NoFit,
                height: 0,
                refusals: SmallVec::from_iter([Refusal::ResourceUnavailable {
                    resource,
                    needed: Amount(total),
                }]),
                reason: Reason::NoMatchingFlavor,
                counts: true,
            });
            return false;
        }
    }
    let first_pick = assignment.picks.len();
    for (place, block) in group.blocks.iter().enumerate() {
        let found = search_block(view, request, (at, place), group, block, assignment);
        let Some((index, modes, tried)) = found else {
            // A pod set that fails leaves nothing behind, nor where its scan stopped.
            assignment.picks.truncate(first_pick);
            return false;
        };
        take(request, group, block, index, &modes, tried, assignment);
        // The preference decides which flavor is taken; what it comes to is the worst over its resources.
        for granular in &modes {
            assignment.borrow = assignment.borrow.max(granular.height);
            if granular.mode != FlavorMode::Fit {
                assignment.mode = assignment.mode.min(Mode::Preempt);
            }
        }
    }
    // Usage counts for later groups only when the whole group has its flavors.
    let names = view.names;
    assignment.picks[first_pick..].sort_by(|a, b| {
        (a.pod_set, names.resource_name(a.resource)).cmp(&(b.pod_set, names.resource_name(b.resource)))
    });
    let node = view.forest.node(request.head.node);
    for at in first_pick..assignment.picks.len() {
        let (pair, amount) = (assignment.picks[at].pair, i128::from(assignment.picks[at].amount));
        match assignment.demands.iter_mut().find(|demand| demand.pair == pair) {
            Some(demand) => demand.amount += amount,
            None => {
                if let Some(slot) = node.slot(pair) {
                    assignment.demands.push(Demand { pair, slot, amount });
                }
            }
        }
    }
    true
}

/// What each resource of a flavor came to.
type Modes = SmallVec<[Granular; 2]>;

/// Tries the flavors of one resource group in order. Returns the place of the best, what each resource came to there,
/// and where the scan stopped.
fn search_block(
    view: &mut View<'_>,
    request: &Request<'_>,
    place: (usize, usize),
    group: &PlanGroup,
    block: &PlanBlock,
    assignment: &mut Assignment,
) -> Option<(usize, Modes, i32)> {
    let queue = view.queue(request.head.queue);
    let fungibility = queue.spec.as_ref().map(|spec| spec.fungibility).unwrap_or_default();
    let gate = view.config.gates.flavor_fungibility;
    let first_attempt = assignment.attempts.len();
    let resource = block.requests.first()?.resource;
    let start = request.from.map_or(0, |from| from.start(group.members[0], resource));
    let start = if start < block.flavors.len() { start } else { 0 };
    let mut best: Option<(usize, Granular, Modes)> = None;
    let mut last = start;
    for (index, flavor) in block.flavors.iter().enumerate().skip(start) {
        last = index;
        if request.only.is_some_and(|only| !only.has(group.members[0], resource, flavor.flavor)) {
            continue;
        }
        let (granular, modes, attempt) = try_flavor(view, request, place, group, block, flavor, assignment);
        if let Some(attempt) = attempt {
            assignment.attempts.push(attempt);
        }
        let known = best.as_ref().map_or(Granular::WORST, |best| best.1);
        if gate {
            if !granular.try_next(fungibility) {
                best = Some((index, granular, modes));
                break;
            }
            if granular.preferred_to(known, fungibility) {
                best = Some((index, granular, modes));
            }
        } else if granular.mode > known.mode {
            best = Some((index, granular, modes));
            if granular.mode == FlavorMode::Fit {
                break;
            }
        }
    }
    let fit = best.as_ref().is_some_and(|best| best.1.mode == FlavorMode::Fit);
    for attempt in &mut assignment.attempts[first_attempt..] {
        attempt.counts = !fit;
    }
    let tried = if !gate || last + 1 >= block.flavors.len() { -1 } else { i32::try_from(last).unwrap_or(-1) };
    best.map(|(index, _, modes)| (index, modes, tried))
}

/// Tries one flavor for all resources of the group of pod sets.
fn try_flavor(
    view: &mut View<'_>,
    request: &Request<'_>,
    place: (usize, usize),
    group: &PlanGroup,
    block: &PlanBlock,
    flavor: &PlanFlavor,
    assignment: &Assignment,
) -> (Granular, Modes, Option<Attempt>) {
    let attempt = |granular: Granular, refusals, reason| Attempt {
        group: place.0,
        block: place.1,
        flavor: Some(flavor.flavor),
        mode: granular.mode,
        height: granular.height,
        refusals,
        reason,
        counts: true,
    };
    if let Some(refusal) = &flavor.refusal {
        let worst = Granular { mode: FlavorMode::NoFit, height: 0 };
        let refusals = SmallVec::from_iter([refusal.clone()]);
        return (worst, Modes::new(), Some(attempt(worst, refusals, Reason::NoMatchingFlavor)));
    }
    let queue = view.queue(request.head.queue);
    let fungibility = queue.spec.as_ref().map(|spec| spec.fungibility).unwrap_or_default();
    let mut worst = Granular::BEST;
    let mut modes = Modes::new();
    let mut refusals: SmallVec<[Refusal; 1]> = SmallVec::new();
    let mut reason = Reason::WaitingForQuota;
    for (wanted, &(pair, slot)) in block.requests.iter().zip(&flavor.slots) {
        let amount = wanted.total(&group.members, request.counts);
        let earlier =
            assignment.demands.iter().find(|demand| demand.pair == pair).map_or(0, |demand| demand.amount);
        let (granular, refusal) = fits_quota(view, request.head, (pair, slot), amount, earlier);
        if let Some(refusal) = refusal {
            if matches!(refusal, Refusal::ExceedsMaxQuota { .. }) {
                reason = Reason::ExceedsMaxQuota;
            }
            refusals.push(refusal);
        }
        if worst.preferred_to(granular, fungibility) {
            worst = granular;
        }
        modes.push(granular);
        if worst.mode == FlavorMode::NoFit {
            break;
        }
    }
    let plain = worst == Granular::BEST && refusals.is_empty();
    let attempt = (!plain).then(|| attempt(worst, refusals, reason));
    (worst, modes, attempt)
}

/// Whether one resource fits in one flavor: now, after a preemption, or not at all (reference 06, 6.6 "Per resource").
fn fits_quota(
    view: &mut View<'_>,
    head: &Head,
    (pair, slot): (FrId, SlotId),
    amount: i64,
    earlier: i128,
) -> (Granular, Option<Refusal>) {
    let forest = view.forest;
    let quota = &forest.quota;
    let wanted = earlier + i128::from(amount);
    let potential = quota.potential(slot);
    let (flavor, resource) = view.names.parts(pair);
    let names = view.names;
    if wanted > exact(potential) {
        let refusal = Refusal::ExceedsMaxQuota {
            flavor: names.flavor_name(flavor).clone(),
            resource: names.resource_name(resource).clone(),
            previous: crate::quota::clamp(earlier),
            needed: Amount(amount),
            max: potential,
        };
        return (Granular { mode: FlavorMode::NoFit, height: 0 }, Some(refusal));
    }
    let (height, reclaimable) = forest.borrowing_height(view.usage, head.node, slot, wanted);
    let available = quota.available(view.usage, slot);
    if wanted <= exact(available) {
        return (Granular { mode: FlavorMode::Fit, height }, None);
    }
    let nominal = quota.nominal(slot);
    let possible = exact(nominal) >= wanted || reclaimable || may_preempt_while_borrowing(view, head);
    let (granular, preemption) = if possible {
        let demand = Demand { pair, slot, amount: wanted };
        let (mode, height) = preemption::simulate(view, head, demand);
        let outlook = match mode {
            FlavorMode::Reclaim => PreemptionOutlook::Reclaim,
            FlavorMode::Preempt => PreemptionOutlook::Preempt,
            _ => PreemptionOutlook::NoCandidates,
        };
        (Granular { mode, height }, outlook)
    } else {
        (Granular { mode: FlavorMode::NoFit, height }, PreemptionOutlook::NotAllowed)
    };
    let refusal = Refusal::InsufficientQuota {
        flavor: names.flavor_name(flavor).clone(),
        resource: names.resource_name(resource).clone(),
        needed: crate::quota::clamp(wanted),
        free: available,
        missing: crate::quota::clamp(wanted - i128::from(available.get())),
        nominal,
        borrowable: potential.sub(nominal).max(Amount::ZERO),
        preemption,
    };
    (granular, Some(refusal))
}

fn may_preempt_while_borrowing(view: &View<'_>, head: &Head) -> bool {
    let Some(spec) = &view.queue(head.queue).spec else { return false };
    spec.preemption.borrow_within_cohort.is_some()
        || (view.config.fair_sharing.is_some()
            && spec.preemption.reclaim_within_cohort != PreemptionPolicy::Never)
}

/// Records the flavor of a block for each pod set of the group.
fn take(
    request: &Request<'_>,
    group: &PlanGroup,
    block: &PlanBlock,
    index: usize,
    modes: &Modes,
    tried: i32,
    assignment: &mut Assignment,
) {
    let flavor = &block.flavors[index];
    for (place, &member) in group.members.iter().enumerate() {
        let count = request.counts.get(member).copied().unwrap_or(0);
        for ((wanted, &(pair, _)), granular) in block.requests.iter().zip(&flavor.slots).zip(modes) {
            assignment.picks.push(Pick {
                pod_set: member,
                resource: wanted.resource,
                flavor: flavor.flavor,
                pair,
                amount: wanted.per_pod[place].saturating_mul(count),
                mode: granular.mode,
                tried,
            });
        }
    }
}

impl Assignment {
    fn has(&self, pod_set: usize, resource: ResourceId, flavor: FlavorId) -> bool {
        self.picks
            .iter()
            .any(|pick| pick.pod_set == pod_set && pick.resource == resource && pick.flavor == flavor)
    }

    /// The (flavor, resource) pairs that need a preemption.
    pub(crate) fn needing_preemption(&self) -> SmallVec<[FrId; 2]> {
        let mut pairs: SmallVec<[FrId; 2]> = SmallVec::new();
        for pick in &self.picks {
            if pick.mode != FlavorMode::Fit && !pairs.contains(&pick.pair) {
                pairs.push(pick.pair);
            }
        }
        pairs
    }

    /// Where the scan stopped, if there is something left to try.
    pub(crate) fn progress(&self, shape: ShapeId, cycle: u64, generation: u64) -> Option<Box<Progress>> {
        if self.picks.iter().all(|pick| pick.tried == -1) {
            return None;
        }
        let tried = self.picks.iter().map(|pick| (pick.pod_set, pick.resource, pick.tried)).collect();
        Some(Box::new(Progress { tried, shape, cycle, generation }))
    }

    /// The reason of the condition: per resource group the mildest attempt, over all the most severe one.
    pub(crate) fn reason(&self) -> Reason {
        let mut worst: Option<Reason> = None;
        let mut at = 0;
        let counted: SmallVec<[&Attempt; 4]> =
            self.attempts.iter().filter(|attempt| attempt.counts).collect();
        while at < counted.len() {
            let same = counted[at..]
                .iter()
                .take_while(|other| (other.group, other.block) == (counted[at].group, counted[at].block))
                .count();
            let mildest =
                counted[at..at + same].iter().map(|attempt| attempt.reason).min_by_key(|r| r.severity());
            worst = worst.max_by_severity(mildest);
            at += same;
        }
        worst.unwrap_or(Reason::NoMatchingFlavor)
    }

    /// What was in the way, per pod set.
    pub(crate) fn refusals(&self, plan: &Plan) -> Vec<PodSetRefusal> {
        let mut pod_sets = Vec::new();
        for (at, group) in plan.groups.iter().enumerate() {
            let refusals: Vec<Refusal> = self
                .attempts
                .iter()
                .filter(|attempt| attempt.counts && attempt.group == at)
                .flat_map(|attempt| attempt.refusals.iter().cloned())
                .collect();
            if refusals.is_empty() {
                continue;
            }
            for &member in &group.members {
                let name = plan.requests.get(member).map_or_else(|| Name::from(""), |(name, _)| name.clone());
                pod_sets.push(PodSetRefusal { name, refusals: refusals.clone() });
            }
        }
        pod_sets
    }

    /// What else was considered, for the event of the admission.
    pub(crate) fn considered(&self, names: &Names, plan: &Plan) -> Considered {
        let mut considered = Considered::default();
        for (at, group) in plan.groups.iter().enumerate() {
            let flavors: Vec<ConsideredFlavor> = self
                .attempts
                .iter()
                .filter(|attempt| attempt.group == at)
                .filter_map(|attempt| {
                    Some(ConsideredFlavor {
                        flavor: names.flavor_name(attempt.flavor?).clone(),
                        mode: attempt.mode,
                        borrow: attempt.height,
                        refusals: attempt.refusals.to_vec(),
                    })
                })
                .collect();
            if flavors.is_empty() {
                continue;
            }
            for &member in &group.members {
                if let Some((name, _)) = plan.requests.get(member) {
                    considered.pod_sets.push((name.clone(), flavors.clone()));
                }
            }
        }
        considered
    }
}

/// The more severe of two reasons.
trait MaxBySeverity {
    fn max_by_severity(self, other: Self) -> Self;
}

impl MaxBySeverity for Option<Reason> {
    fn max_by_severity(self, other: Self) -> Self {
        [self, other].into_iter().flatten().max_by_key(|reason| reason.severity())
    }
}
