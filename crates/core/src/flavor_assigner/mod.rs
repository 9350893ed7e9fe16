//! Flavor assignment: which flavor each resource of each pod set gets, and what stands in the way (reference 06, 6.6).

mod assignment;
mod granular;
mod progress;

use smallvec::SmallVec;

use crate::Amount;
use crate::intern::{FrId, SlotId};
use crate::plan::{Plan, PlanBlock, PlanFlavor, PlanGroup};
use crate::preemption;
use crate::quota::exact;
use crate::reason::{PreemptionOutlook, Reason, Refusal};
use crate::report::FlavorMode;
use crate::spec::PreemptionPolicy;
use crate::view::{Demand, Head, View};

pub(crate) use assignment::{Assignment, Mode};
use assignment::{Attempt, Pick};
use granular::Granular;
pub(crate) use progress::Progress;

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
    // Where preemption is preferred to borrowing, the worst of several resources may be one that fits, next to one that does not.
    let fit = best.as_ref().is_some_and(|(_, _, modes)| modes.iter().all(|of| of.mode == FlavorMode::Fit));
    for attempt in &mut assignment.attempts[first_attempt..] {
        attempt.counts = !fit;
    }
    let tried = if !gate || last + 1 >= block.flavors.len() {
        -1
    } else {
        i32::try_from(last).expect("a queue has few flavors")
    };
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
            match refusal {
                Refusal::ExceedsMaxQuota { .. } => reason = Reason::ExceedsMaxQuota,
                Refusal::InsufficientCapacity { .. } => reason = Reason::WaitingForCapacity,
                _ => {}
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
        // What is missing of the machines themselves is not to be had by preemption.
        let lack = view.lacks_capacity(head.workload, pair, wanted, 0);
        let mode = if lack.is_some() { FlavorMode::NoFit } else { FlavorMode::Fit };
        return (Granular { mode, height }, lack);
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
