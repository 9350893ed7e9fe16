//! Flavor assignment with fungibility, and partial admission (6.6).

use super::preemption::{Preemptor, targets};
use super::snapshot::{Snapshot, queue};
use super::world::{Admitted, Flavor, Fr, Fungibility, Group, Name, PodSet, Policy, Target, Usage, Workload};
use sluice_quantity::Amount;
use std::collections::{BTreeMap, BTreeSet};

/// How well a flavor takes a request, from worst to best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    NoFit,
    NoCandidates,
    Preempt,
    Reclaim,
    Fit,
}

/// A mode with the height of the subtree that is borrowed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Granular {
    mode: Mode,
    height: u32,
}

const NO_FIT: Granular = Granular { mode: Mode::NoFit, height: 0 };

impl Granular {
    fn is_better_than(self, other: Granular, fungibility: Fungibility) -> bool {
        // NoFit is worst and NoCandidates next, whatever the preference.
        let class = |granular: Granular| granular.mode.min(Mode::Preempt);
        if class(self) != class(other) {
            return class(self) > class(other);
        }
        if fungibility.preemption_over_borrowing {
            self.height < other.height || (self.height == other.height && self.mode > other.mode)
        } else {
            self.mode > other.mode || (self.mode == other.mode && self.height < other.height)
        }
    }

    fn tries_next(self, fungibility: Fungibility) -> bool {
        matches!(self.mode, Mode::NoFit | Mode::NoCandidates)
            || (matches!(self.mode, Mode::Preempt | Mode::Reclaim) && fungibility.try_next_when_preempting)
            || (self.height > 0 && fungibility.try_next_when_borrowing)
    }
}

/// The flavor chosen for one resource of a pod set.
#[derive(Clone, Debug)]
struct Choice {
    flavor: Name,
    granular: Granular,
    /// The flavor index to resume after, or −1 to start over.
    tried: i64,
}

#[derive(Clone, Debug)]
struct PodSetChoice {
    name: Name,
    count: i64,
    choices: BTreeMap<Name, Choice>,
    fails: bool,
}

/// How far the scan over flavors went, per pod set and resource.
pub type Tried = BTreeMap<Name, BTreeMap<Name, i64>>;

/// The flavors a recomputation may use, per pod set and resource.
pub type Nominated = BTreeMap<Name, BTreeMap<Name, Name>>;

/// A possible admission.
#[derive(Clone, Debug)]
pub struct Assignment {
    pod_sets: Vec<PodSetChoice>,
    pub usage: Usage,
}

/// The mode that leaves the assigner: a preemption without candidates is one, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    NoFit,
    Preempt,
    Fit,
}

impl Assignment {
    pub fn verdict(&self) -> Verdict {
        let of = |choice: &Choice| match choice.granular.mode {
            Mode::NoFit => Verdict::NoFit,
            Mode::NoCandidates | Mode::Preempt | Mode::Reclaim => Verdict::Preempt,
            Mode::Fit => Verdict::Fit,
        };
        if self.pod_sets.iter().any(|pod_set| pod_set.fails) {
            return Verdict::NoFit;
        }
        let choices = self.pod_sets.iter().flat_map(|pod_set| pod_set.choices.values());
        choices.map(of).min().unwrap_or(Verdict::Fit)
    }

    pub fn borrowing_height(&self) -> u32 {
        let choices = self.pod_sets.iter().flat_map(|pod_set| pod_set.choices.values());
        choices.map(|choice| choice.granular.height).max().unwrap_or(0)
    }

    pub fn tried(&self) -> Tried {
        let of = |pod_set: &PodSetChoice| {
            pod_set.choices.iter().map(|(resource, choice)| (resource.clone(), choice.tried)).collect()
        };
        self.pod_sets.iter().map(|pod_set| (pod_set.name.clone(), of(pod_set))).collect()
    }

    pub fn nominated(&self) -> Nominated {
        self.admitted().pod_sets.into_iter().map(|(name, _, flavors)| (name, flavors)).collect()
    }

    pub fn admitted(&self) -> Admitted {
        let flavors = |pod_set: &PodSetChoice| {
            pod_set
                .choices
                .iter()
                .map(|(resource, choice)| (resource.clone(), choice.flavor.clone()))
                .collect()
        };
        let of = |pod_set: &PodSetChoice| (pod_set.name.clone(), pod_set.count, flavors(pod_set));
        Admitted { pod_sets: self.pod_sets.iter().map(of).collect() }
    }

    /// The (flavor, resource) pairs for which something must be preempted.
    fn needing_preemption(&self) -> BTreeSet<Fr> {
        let choices = self.pod_sets.iter().flat_map(|pod_set| &pod_set.choices);
        choices
            .filter(|(_, choice)| choice.granular.mode != Mode::Fit)
            .map(|(resource, choice)| Fr { flavor: choice.flavor.clone(), resource: resource.clone() })
            .collect()
    }
}

/// Where the scan over flavors starts and what it may use.
#[derive(Clone, Copy, Default)]
pub struct Scan<'a> {
    pub tried: Option<&'a Tried>,
    pub nominated: Option<&'a Nominated>,
}

fn total_requests(
    snapshot: &Snapshot<'_>,
    workload: &Workload,
    pod_set: &PodSet,
    count: i64,
) -> BTreeMap<Name, Amount> {
    let mut totals: BTreeMap<Name, Amount> = pod_set
        .requests
        .iter()
        .map(|(resource, amount)| (resource.clone(), (*amount).max(Amount::ZERO).saturating_mul(count)))
        .collect();
    let groups = &snapshot.world.queues[&workload.queue].groups;
    if let Some(pods) = groups.iter().flat_map(|group| &group.covered).find(|resource| &***resource == "pods")
    {
        totals.insert(pods.clone(), Amount(count));
    }
    totals
}

/// Only keys that are labels of this flavor restrict; `NoSchedule` taints must be tolerated.
fn admits(flavor: &Flavor, pod_set: &PodSet) -> bool {
    let selects = |(key, value): (&Name, &Name)| flavor.labels.get(key).is_none_or(|label| label == value);
    flavor.taints.is_subset(&pod_set.tolerated) && pod_set.node_selector.iter().all(selects)
}

/// How the flavor takes `amount` of the resource.
fn granular(snapshot: &mut Snapshot<'_>, workload: &Workload, fr: &Fr, amount: Amount) -> Granular {
    let node = queue(&workload.queue);
    let spec = &snapshot.world.queues[&workload.queue];
    if amount > snapshot.tree.potential_available(&node, fr) {
        return NO_FIT;
    }
    let (height, reclaimable_in_smaller_subtree) = snapshot.borrowing_height(&workload.queue, fr, amount);
    if amount <= snapshot.available(&workload.queue, fr) {
        return Granular { mode: Mode::Fit, height };
    }
    let may_preempt_while_borrowing = spec.preemption.borrow_within_cohort.is_some()
        || (snapshot.world.fair.is_some() && spec.preemption.reclaim_within_cohort != Policy::Never);
    let within_nominal = amount <= snapshot.tree.quota(&node, fr).nominal;
    if !within_nominal && !reclaimable_in_smaller_subtree && !may_preempt_while_borrowing {
        return NO_FIT;
    }
    let requests = Usage::from([(fr.clone(), amount)]);
    let preemptor = Preemptor { workload, needed: BTreeSet::from([fr.clone()]), requests };
    let victims = targets(snapshot, &preemptor);
    let held: Vec<_> = victims
        .iter()
        .map(|(key, _)| *snapshot.held.values().find_map(|held| held.get(key)).expect("victims hold quota"))
        .collect();
    for held in &held {
        snapshot.remove_workload(held);
    }
    let (height, _) = snapshot.borrowing_height(&workload.queue, fr, amount);
    for held in &held {
        snapshot.add_workload(held);
    }
    let mode = if held.is_empty() {
        Mode::NoCandidates
    } else if held.iter().any(|held| held.workload.queue == workload.queue) {
        Mode::Preempt
    } else {
        Mode::Reclaim
    };
    Granular { mode, height }
}

/// Chooses one flavor of the group for all resources of the pod set that it covers.
fn choose(
    snapshot: &mut Snapshot<'_>,
    workload: &Workload,
    (pod_set, requests): (&PodSet, &BTreeMap<Name, Amount>),
    (group, first): (&Group, &Name),
    assumed: &Usage,
    scan: Scan<'_>,
) -> BTreeMap<Name, Choice> {
    let fungibility = snapshot.world.queues[&workload.queue].fungibility;
    let resume =
        scan.tried.and_then(|tried| tried.get(&pod_set.name)?.get(first)).map_or(0, |index| index + 1);
    let mut best: BTreeMap<Name, Choice> = BTreeMap::new();
    let mut best_granular = NO_FIT;
    let mut attempted = 0;
    for (index, (name, _)) in
        (0i64..).zip(&group.flavors).skip(usize::try_from(resume).expect("−1 resumes at 0"))
    {
        attempted = index;
        if let Some(nominated) = scan.nominated
            && nominated.get(&pod_set.name).and_then(|flavors| flavors.get(first)) != Some(name)
        {
            continue;
        }
        let kept = workload.replaces.as_ref().and_then(|slice| slice.flavors.get(&pod_set.name)?.get(first));
        if kept.is_some_and(|kept| kept != name) {
            continue;
        }
        if !snapshot.world.flavors.get(name).is_some_and(|flavor| admits(flavor, pod_set)) {
            continue;
        }
        let mut worst = Granular { mode: Mode::Fit, height: 0 };
        let mut choices = BTreeMap::new();
        for (resource, request) in requests.iter().filter(|(resource, _)| group.covered.contains(resource)) {
            let fr = Fr { flavor: name.clone(), resource: resource.clone() };
            let amount = request.add(assumed.get(&fr).copied().unwrap_or_default());
            let granular = granular(snapshot, workload, &fr, amount);
            if worst.is_better_than(granular, fungibility) {
                worst = granular;
            }
            choices.insert(resource.clone(), Choice { flavor: name.clone(), granular, tried: 0 });
        }
        let stop = !worst.tries_next(fungibility);
        if stop || worst.is_better_than(best_granular, fungibility) {
            (best, best_granular) = (choices, worst);
        }
        if stop {
            break;
        }
    }
    let last = attempted == i64::try_from(group.flavors.len()).expect("few flavors") - 1;
    for choice in best.values_mut() {
        choice.tried = if last { -1 } else { attempted };
    }
    best
}

/// Assigns flavors to all pod sets with these counts; stops at the first pod set that cannot get any.
fn assign(snapshot: &mut Snapshot<'_>, workload: &Workload, counts: &[i64], scan: Scan<'_>) -> Assignment {
    let mut assignment = Assignment { pod_sets: Vec::new(), usage: Usage::new() };
    let groups = &snapshot.world.queues[&workload.queue].groups;
    for (pod_set, count) in workload.pod_sets.iter().zip(counts) {
        let requests = total_requests(snapshot, workload, pod_set, *count);
        let mut choices: BTreeMap<Name, Choice> = BTreeMap::new();
        let mut fails = false;
        for (resource, amount) in &requests {
            if choices.contains_key(resource) {
                continue;
            }
            let Some(group) = groups.iter().find(|group| group.covered.contains(resource)) else {
                if amount.is_zero() {
                    continue;
                }
                fails = true;
                break;
            };
            let found =
                choose(snapshot, workload, (pod_set, &requests), (group, resource), &assignment.usage, scan);
            if found.is_empty() {
                fails = true;
                break;
            }
            choices.extend(found);
        }
        if fails {
            choices.clear();
        }
        for (resource, choice) in &choices {
            let fr = Fr { flavor: choice.flavor.clone(), resource: resource.clone() };
            let sum = assignment.usage.entry(fr).or_default();
            *sum = sum.add(requests[resource]);
        }
        assignment.pod_sets.push(PodSetChoice { name: pod_set.name.clone(), count: *count, choices, fails });
        if fails {
            break;
        }
    }
    assignment
}

fn preemption_targets(
    snapshot: &mut Snapshot<'_>,
    workload: &Workload,
    assignment: &Assignment,
) -> Vec<Target> {
    let needed = assignment.needing_preemption();
    // Requests of zero take no part, nor do pods that fit, borrowed or not.
    let counts = |(fr, amount): &(&Fr, &Amount)| {
        **amount > Amount::ZERO && (needed.contains(*fr) || &*fr.resource != "pods")
    };
    let requests = assignment.usage.iter().filter(counts).map(|(fr, amount)| (fr.clone(), *amount)).collect();
    let preemptor = Preemptor { workload, needed, requests };
    targets(snapshot, &preemptor)
}

/// An assignment that is possible now, or after preempting the targets.
fn possible(
    snapshot: &mut Snapshot<'_>,
    workload: &Workload,
    counts: &[i64],
    scan: Scan<'_>,
) -> (Assignment, Option<Vec<Target>>) {
    let assignment = assign(snapshot, workload, counts, scan);
    let found = match assignment.verdict() {
        Verdict::Fit => Some(Vec::new()),
        Verdict::Preempt => {
            Some(preemption_targets(snapshot, workload, &assignment)).filter(|targets| !targets.is_empty())
        }
        Verdict::NoFit => None,
    };
    (assignment, found)
}

/// The assignment of a head and its preemption targets, as if the slice that it takes over from were gone.
pub fn nominate(
    snapshot: &mut Snapshot<'_>,
    workload: &Workload,
    scan: Scan<'_>,
) -> (Assignment, Vec<Target>) {
    let replaced = snapshot.replaced(workload);
    if let Some(slice) = replaced {
        snapshot.remove_workload(slice);
    }
    let found = search(snapshot, workload, scan);
    if let Some(slice) = replaced {
        snapshot.add_workload(slice);
    }
    found
}

/// In full if possible, else with as few pods less as possible.
fn search(snapshot: &mut Snapshot<'_>, workload: &Workload, scan: Scan<'_>) -> (Assignment, Vec<Target>) {
    let full: Vec<i64> = workload.pod_sets.iter().map(|pod_set| pod_set.count).collect();
    let (assignment, found) = possible(snapshot, workload, &full, scan);
    if let Some(targets) = found {
        return (assignment, targets);
    }
    let delta = |pod_set: &PodSet| pod_set.min_count.map_or(0, |least| pod_set.count - least);
    let total: i64 = workload.pod_sets.iter().map(delta).sum();
    let counts = |step: i64| -> Vec<i64> {
        workload.pod_sets.iter().map(|pod_set| pod_set.count - delta(pod_set) * step / total).collect()
    };
    // Lower-bound search over 0..=total for the first step that is possible.
    let (mut low, mut high) = (0, if total > 0 { total + 1 } else { 0 });
    let mut last_success = None;
    while low < high {
        let middle = i64::midpoint(low, high);
        match possible(snapshot, workload, &counts(middle), scan) {
            (assignment, Some(targets)) => {
                last_success = Some((middle, assignment, targets));
                high = middle;
            }
            (_, None) => low = middle + 1,
        }
    }
    match last_success {
        Some((step, assignment, targets)) if step == low => (assignment, targets),
        _ => (assignment, Vec::new()),
    }
}
