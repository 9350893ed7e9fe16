//! Flavor assignment: which flavor each resource of each pod set gets, and what prevents others (docs/reference/06-algorithm.md 6.6).

mod assignment;
mod granular;
mod topology;

use smallvec::SmallVec;

use crate::intern::{FrId, ResourceId, SlotId};
use crate::last_assignment::LastAssignment;
use crate::plan::{Plan, PlanBlock, PlanFlavor, PlanGroup};
use crate::preemption;
use crate::quota::exact;
use crate::reason::{PreemptionPossibility, Reason, Refusal};
use crate::report::FlavorMode;
use crate::spec::PreemptionPolicy;
use crate::view::{FlavorResourceQuantity, Head, View};
use crate::workload::ReplacedSlice;
use crate::{Amount, Name};

pub(crate) use assignment::{Assignment, Mode};
use assignment::{FlavorAssignment, FlavorAttempt};
use granular::GranularMode;
pub(crate) use topology::to_place;

/// The inputs of a search.
pub(crate) struct Request<'a> {
    pub(crate) head: &'a Head,
    pub(crate) plan: &'a Plan,
    /// How many pods of each pod set.
    pub(crate) counts: &'a [i64],
    /// Where the scan resumes.
    pub(crate) from: Option<&'a LastAssignment>,
    /// Only flavors that this assignment has.
    pub(crate) only: Option<&'a Assignment>,
    /// The slice that the head takes over from: only its flavors.
    pub(crate) replaces: Option<&'a ReplacedSlice>,
}

/// Searches flavors for all pod sets; stops at the first pod set without a flavor. The result is added to an empty assignment.
pub(crate) fn assign(view: &mut View<'_>, request: &Request<'_>, assignment: &mut Assignment) {
    view.stats.evaluations += 1;
    debug_assert_eq!(*assignment, Assignment::default(), "a search begins with nothing");
    assignment.mode = Mode::Fit;
    assignment.counts.extend_from_slice(request.counts);
    for (at, group) in request.plan.groups.iter().enumerate() {
        if !assign_group(view, request, at, group, assignment) {
            assignment.mode = Mode::NoFit;
            break;
        }
    }
    topology::place(view, request.head, request.plan, assignment);
}

/// Searches for one group of pod sets; false if no flavor fits.
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
            let resource = view.world.names.resource_name(uncovered.resource).clone();
            assignment.attempts.push(FlavorAttempt {
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
    let first = assignment.flavors.len();
    for (place, block) in group.blocks.iter().enumerate() {
        let found = search_block(view, request, (at, place), group, block, assignment);
        let Some((index, modes, tried)) = found else {
            // A pod set that fails leaves nothing behind, nor where its scan stopped.
            assignment.flavors.truncate(first);
            return false;
        };
        take(request, group, block, index, &modes, tried, assignment);
        // The preference decides which flavor is chosen; its mode is the worst over its resources.
        for granular in &modes {
            assignment.borrow = assignment.borrow.max(granular.height);
            if granular.mode != FlavorMode::Fit {
                assignment.mode = assignment.mode.min(Mode::Preempt);
            }
        }
    }
    // Usage counts for later groups only when the whole group has its flavors.
    let names = &view.world.names;
    assignment.flavors[first..].sort_by(|a, b| {
        (a.pod_set, names.resource_name(a.resource)).cmp(&(b.pod_set, names.resource_name(b.resource)))
    });
    let node = view.world.forest.node(request.head.node);
    for at in first..assignment.flavors.len() {
        let (pair, amount) = (assignment.flavors[at].pair, i128::from(assignment.flavors[at].amount));
        match assignment.usage.iter_mut().find(|quantity| quantity.pair == pair) {
            Some(quantity) => quantity.amount += amount,
            None => {
                if let Some(slot) = node.slot(pair) {
                    assignment.usage.push(FlavorResourceQuantity { pair, slot, amount });
                }
            }
        }
    }
    true
}

/// The mode of each resource of a flavor.
type GranularModes = SmallVec<[GranularMode; 2]>;

/// Tries the flavors of one resource group in order. Returns the position of the best, the modes of its resources, and where the scan stopped.
fn search_block(
    view: &mut View<'_>,
    request: &Request<'_>,
    place: (usize, usize),
    group: &PlanGroup,
    block: &PlanBlock,
    assignment: &mut Assignment,
) -> Option<(usize, GranularModes, i32)> {
    let queue = view.queue(request.head.queue);
    let fungibility = queue.spec.as_ref().map(|spec| spec.fungibility).unwrap_or_default();
    let gate = view.world.config.gates.flavor_fungibility;
    let first_attempt = assignment.attempts.len();
    let resource = block.requests.first()?.resource;
    let start = request.from.map_or(0, |from| from.start(group.members[0], resource));
    let start = if start < block.flavors.len() { start } else { 0 };
    let mut best: Option<(usize, GranularMode, GranularModes)> = None;
    let mut last = start;
    let kept = kept_flavor(view, request, group, resource);
    for (index, flavor) in block.flavors.iter().enumerate().skip(start) {
        last = index;
        if request.only.is_some_and(|only| !only.has(group.members[0], resource, flavor.flavor)) {
            continue;
        }
        if let Some(kept) = kept.filter(|kept| *kept != view.world.names.flavor_name(flavor.flavor)) {
            assignment.attempts.push(other_flavor(view, place, flavor, kept));
            continue;
        }
        let (granular, modes, attempt) = try_flavor(view, request, place, group, block, flavor, assignment);
        if let Some(attempt) = attempt {
            assignment.attempts.push(attempt);
        }
        let known = best.as_ref().map_or(GranularMode::WORST, |best| best.1);
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
    // If preemption is preferred to borrowing, the worst of several resources may be one that fits, next to one that does not.
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

/// The flavor that a resource of these pod sets must have, as the slice that the head takes over from has it.
fn kept_flavor<'a>(
    view: &View<'_>,
    request: &Request<'a>,
    group: &PlanGroup,
    resource: ResourceId,
) -> Option<&'a Name> {
    let replaces = request.replaces?;
    let (pod_set, _) = request.plan.requests.get(*group.members.first()?)?;
    replaces.flavor_of(pod_set, view.world.names.resource_name(resource))
}

/// A flavor other than that of the slice which the head replaces.
fn other_flavor(view: &View<'_>, place: (usize, usize), flavor: &PlanFlavor, kept: &Name) -> FlavorAttempt {
    let refusal = Refusal::OtherFlavor {
        flavor: view.world.names.flavor_name(flavor.flavor).clone(),
        assigned: Name::clone(kept),
    };
    FlavorAttempt {
        group: place.0,
        block: place.1,
        flavor: Some(flavor.flavor),
        mode: FlavorMode::NoFit,
        height: 0,
        refusals: SmallVec::from_iter([refusal]),
        reason: Reason::NoMatchingFlavor,
        counts: true,
    }
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
) -> (GranularMode, GranularModes, Option<FlavorAttempt>) {
    let attempt = |granular: GranularMode, refusals, reason| FlavorAttempt {
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
        let worst = GranularMode { mode: FlavorMode::NoFit, height: 0 };
        let refusals = SmallVec::from_iter([refusal.clone()]);
        return (worst, GranularModes::new(), Some(attempt(worst, refusals, Reason::NoMatchingFlavor)));
    }
    let queue = view.queue(request.head.queue);
    let fungibility = queue.spec.as_ref().map(|spec| spec.fungibility).unwrap_or_default();
    let mut worst = GranularMode::BEST;
    let mut modes = GranularModes::new();
    let mut refusals: SmallVec<[Refusal; 1]> = SmallVec::new();
    let mut reason: Option<Reason> = None;
    for (wanted, &(pair, slot)) in block.requests.iter().zip(&flavor.slots) {
        let amount = wanted.total(&group.members, request.counts);
        let earlier = assignment
            .usage
            .iter()
            .find(|quantity| quantity.pair == pair)
            .map_or(0, |quantity| quantity.amount);
        // All resources that do not fit are reported. Once the flavor does not fit, no victims are searched for.
        let preempt = worst.mode != FlavorMode::NoFit;
        let wanted = ResourceRequest { pair, slot, amount, earlier, preempt };
        let (granular, refusal) = fits_quota(view, request.head, &wanted);
        if let Some(refusal) = refusal {
            let this = match refusal {
                Refusal::ExceedsMaxQuota { .. } => Reason::ExceedsMaxQuota,
                Refusal::InsufficientCapacity { .. } => Reason::WaitingForCapacity,
                _ => Reason::WaitingForQuota,
            };
            reason = Some(reason.map_or(this, |known| known.or_worse(this)));
            refusals.push(refusal);
        }
        if worst.preferred_to(granular, fungibility) {
            worst = granular;
        }
        modes.push(granular);
    }
    let plain = worst == GranularMode::BEST && refusals.is_empty();
    let attempt = (!plain).then(|| {
        let height = modes.iter().map(|of| of.height).max().unwrap_or(0);
        attempt(GranularMode { height, ..worst }, refusals, reason.unwrap_or(Reason::WaitingForQuota))
    });
    (worst, modes, attempt)
}

/// The request for one resource of one flavor.
struct ResourceRequest {
    pair: FrId,
    slot: SlotId,
    amount: i64,
    /// The requests of earlier pod sets of the workload.
    earlier: i128,
    /// Whether a preemption may help.
    preempt: bool,
}

/// Whether one resource fits in one flavor: now, after preemption, or not at all (docs/reference/06-algorithm.md 6.6 "Per resource").
fn fits_quota(view: &mut View<'_>, head: &Head, wanted: &ResourceRequest) -> (GranularMode, Option<Refusal>) {
    let &ResourceRequest { pair, slot, amount, earlier, preempt } = wanted;
    let forest = &view.world.forest;
    let quota = &forest.quota;
    let wanted = earlier + i128::from(amount);
    let potential_available = quota.potential_available(slot);
    let (flavor, resource) = view.world.names.flavor_and_resource(pair);
    let names = &view.world.names;
    if wanted > exact(potential_available) {
        let refusal = Refusal::ExceedsMaxQuota {
            flavor: names.flavor_name(flavor).clone(),
            resource: names.resource_name(resource).clone(),
            previous: crate::quota::clamp(earlier),
            needed: Amount(amount),
            max: potential_available,
        };
        return (GranularMode { mode: FlavorMode::NoFit, height: 0 }, Some(refusal));
    }
    let (height, reclaimable) = forest.borrowing_height(view.usage, head.node, slot, wanted);
    let available = quota.available(view.usage, slot);
    if wanted <= exact(available) {
        // Preemption cannot provide physical capacity that does not exist.
        let freed = view.replaced.map_or(0, |slice| view.usage_of_pair(slice, pair));
        let lack = view.lacks_capacity(head.workload, pair, wanted, freed);
        let mode = if lack.is_some() { FlavorMode::NoFit } else { FlavorMode::Fit };
        return (GranularMode { mode, height }, lack);
    }
    let nominal = quota.nominal(slot);
    let possible = exact(nominal) >= wanted || reclaimable || may_preempt_while_borrowing(view, head);
    let (granular, preemption) = if possible && !preempt {
        (GranularMode { mode: FlavorMode::NoFit, height }, PreemptionPossibility::NotConsidered)
    } else if possible {
        let quantity = FlavorResourceQuantity { pair, slot, amount: wanted };
        let (mode, height) = preemption::simulate(view, head, quantity);
        let possibility = match mode {
            FlavorMode::Reclaim => PreemptionPossibility::Reclaim,
            FlavorMode::Preempt => PreemptionPossibility::Preempt,
            _ => PreemptionPossibility::NoCandidates,
        };
        (GranularMode { mode, height }, possibility)
    } else {
        (GranularMode { mode: FlavorMode::NoFit, height }, PreemptionPossibility::NotAllowed)
    };
    let refusal = Refusal::InsufficientQuota {
        flavor: names.flavor_name(flavor).clone(),
        resource: names.resource_name(resource).clone(),
        needed: crate::quota::clamp(wanted),
        free: available,
        missing: crate::quota::clamp(wanted - i128::from(available.get())),
        nominal,
        borrowable: potential_available.sub(nominal).max(Amount::ZERO),
        preemption,
    };
    (granular, Some(refusal))
}

fn may_preempt_while_borrowing(view: &View<'_>, head: &Head) -> bool {
    let Some(spec) = &view.queue(head.queue).spec else { return false };
    spec.preemption.borrow_within_cohort.is_some()
        || (view.world.config.fair_sharing.is_some()
            && spec.preemption.reclaim_within_cohort != PreemptionPolicy::Never)
}

/// Records the flavor of a block for each pod set of the group.
fn take(
    request: &Request<'_>,
    group: &PlanGroup,
    block: &PlanBlock,
    index: usize,
    modes: &GranularModes,
    tried: i32,
    assignment: &mut Assignment,
) {
    let flavor = &block.flavors[index];
    for (place, &member) in group.members.iter().enumerate() {
        let count = request.counts.get(member).copied().unwrap_or(0);
        for ((wanted, &(pair, _)), granular) in block.requests.iter().zip(&flavor.slots).zip(modes) {
            assignment.flavors.push(FlavorAssignment {
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
