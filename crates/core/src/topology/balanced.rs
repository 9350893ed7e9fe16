//! Balanced placement: pods spread evenly over as few domains as possible (docs/reference/06-algorithm.md 6.12 "Balanced placement").

use std::cmp::Ordering;
use std::ops::Range;

use crate::topology::counts::Counts;
use crate::topology::fewest::Choice;
use crate::topology::search::Search;

/// The result of a greedy choice of domains.
#[derive(Debug, Clone, Copy)]
struct Greedy {
    /// How many domains it takes.
    domains: i64,
    /// The domain with the leader.
    led: Option<usize>,
    /// The last domain without.
    last: Option<usize>,
}

/// Siblings that everything fits into.
#[derive(Debug, Clone)]
struct Siblings {
    /// How many slices each chosen domain gets at least.
    threshold: i64,
    /// How many domains of the requested level it takes.
    domains: i64,
    /// The siblings, at the requested level.
    range: Range<usize>,
}

/// Places pods evenly: the leaves that got any. `None`: it does not work, and the counts are as they were.
pub(crate) fn balanced(search: &mut Search<'_>) -> Option<Vec<usize>> {
    let placed = attempt(search);
    if placed.is_none() {
        search.counts.revert();
    }
    placed
}

fn attempt(search: &mut Search<'_>) -> Option<Vec<usize>> {
    let best = best_siblings(search)?;
    let mut level = search.ask.level;
    let mut domains: Vec<usize> = best.range.collect();
    if level < search.ask.slice_level {
        domains.sort_by(|&a, &b| by_capacity_and_entropy(search, level, a, b));
        let chosen = fewest(search, level, &domains)?;
        domains = chosen.into_iter().flat_map(|at| search.layout.children(level, at)).collect();
        level += 1;
    }
    domains.sort_unstable();
    let chosen = fewest(search, level, &domains)?;
    let spread = spread(search, level, chosen, best.threshold)?;
    search.descend(level, spread, true).ok()
}

/// The set of siblings of the requested level with the highest threshold, then with the fewest domains.
fn best_siblings(search: &mut Search<'_>) -> Option<Siblings> {
    let level = search.ask.level;
    let above = level.checked_sub(1);
    let number = above.map_or(1, |above| search.layout.len(above));
    let siblings = |search: &Search<'_>, at: usize| match above {
        Some(above) => search.layout.children(above, at),
        None => 0..search.layout.len(0),
    };
    let mut best: Option<Siblings> = None;
    for at in 0..number {
        let range = siblings(search, at);
        let least = best.as_ref().map_or(0, |best| best.threshold);
        let Some((threshold, domains)) = consider(search, &range, least) else { continue };
        let fewer = best.as_ref().is_some_and(|best| domains < best.domains);
        if threshold > least || (threshold == least && fewer) {
            best = Some(Siblings { threshold, domains, range });
        }
    }
    best
}

/// The threshold of a set of siblings and how many of them it takes, if everything fits with at least the threshold `least`. Domains
/// that hold less than the threshold end without counts.
fn consider(search: &mut Search<'_>, range: &Range<usize>, least: i64) -> Option<(i64, i64)> {
    let level = search.ask.level;
    let (lower, domains): (usize, Vec<usize>) = if level < search.ask.slice_level {
        (level + 1, range.clone().flat_map(|at| search.layout.children(level, at)).collect())
    } else {
        (level, range.clone().collect())
    };
    let found = greedy(search, lower, &domains)?;
    let mut threshold = search.ask.slices().checked_div(found.domains)?;
    if let Some(at) = found.led {
        threshold = threshold.min(search.at(lower, at).slices_led);
    }
    let mut with_leader = threshold;
    if let Some(at) = found.last {
        threshold = threshold.min(search.at(lower, at).slices);
        let led = if search.ask.leaders > 0 { search.at(lower, at).slices_led } else { threshold };
        with_leader = threshold.min(led);
    } else {
        with_leader = with_leader.min(threshold);
    }
    if threshold < least {
        return None;
    }
    let before = search.counts.mark();
    if let Some(domains) = pruned(search, range, threshold) {
        return Some((threshold, domains));
    }
    // Once more, with room for the leader in every domain.
    if with_leader >= threshold || with_leader <= 0 || with_leader < least {
        return None;
    }
    search.counts.revert_to(before);
    pruned(search, range, with_leader).map(|domains| (with_leader, domains))
}

/// How many siblings a greedy choice takes once domains below a threshold are left out.
fn pruned(search: &mut Search<'_>, range: &Range<usize>, threshold: i64) -> Option<i64> {
    let level = search.ask.level;
    for at in range.clone() {
        for child in search.layout.children(level, at) {
            prune(search, level + 1, child, threshold);
        }
    }
    for at in range.clone() {
        search.counts.sum_up_below(search.layout, search.ask, level, at);
        prune(search, level, at, threshold);
    }
    let domains: Vec<usize> = range.clone().collect();
    greedy(search, level, &domains).map(|found| found.domains)
}

/// Excludes a domain that holds less than the threshold, and its leader if it holds less besides one.
fn prune(search: &mut Search<'_>, level: usize, at: usize, threshold: i64) {
    let counts = *search.at(level, at);
    if counts.slices < threshold {
        search.counts.change(search.layout, level, at, |counts| *counts = Counts::default());
    } else if search.ask.leaders > 0 && counts.leaders > 0 && counts.slices_led < threshold {
        search.counts.change(search.layout, level, at, |counts| {
            *counts = Counts { pods: counts.pods, slices: counts.slices, ..Counts::default() };
        });
    }
}

/// Takes the largest domains until everything fits, the leader first; `None` if it does not.
fn greedy(search: &Search<'_>, level: usize, domains: &[usize]) -> Option<Greedy> {
    let mut rest = domains.to_vec();
    let mut found = Greedy { domains: 0, led: None, last: None };
    let mut remaining = search.ask.slices();
    if search.ask.leaders > 0 {
        let first = (0..rest.len()).min_by_key(|&at| search.led_key(level, rest[at]))?;
        let at = rest.swap_remove(first);
        if search.at(level, at).leaders == 0 {
            return None;
        }
        found = Greedy { domains: 1, led: Some(at), last: None };
        remaining -= search.at(level, at).slices_led;
    }
    search.sort(&mut rest, |at| search.key(level, at));
    for at in rest {
        let slices = search.at(level, at).slices;
        if remaining <= 0 || slices == 0 {
            break;
        }
        found = Greedy { domains: found.domains + 1, last: Some(at), ..found };
        remaining -= slices;
    }
    (remaining <= 0).then_some(found)
}

/// The choice with the fewest domains and, of these, the least spare room; earlier domains of the list are preferred.
fn fewest(search: &mut Search<'_>, level: usize, domains: &[usize]) -> Option<Vec<usize>> {
    let number = usize::try_from(greedy(search, level, domains)?.domains).ok()?;
    let all = (search.ask.leaders, search.ask.pods());
    let choice = Choice { counts: search.counts.level(level), domains, number, all };
    choice.best(&mut search.compared)
}

/// Gives every domain the threshold, and the rest to the first ones. What a domain gets is stored as its counts.
fn spread(
    search: &mut Search<'_>,
    level: usize,
    mut domains: Vec<usize>,
    threshold: i64,
) -> Option<Vec<usize>> {
    search.sort(&mut domains, |at| search.led_key(level, at));
    let number = i64::try_from(domains.len()).ok()?;
    let mut extra = search.ask.slices() - number * threshold;
    if extra < 0 {
        return None;
    }
    let (mut leaders, size) = (search.ask.leaders, search.ask.size);
    for &at in &domains {
        let leads = i64::from(leaders > 0);
        leaders -= leads;
        let counts = search.at_mut(level, at);
        let room = if leads > 0 { counts.slices_led } else { counts.slices };
        let slices = threshold + (room - threshold).min(extra);
        extra -= slices - threshold;
        let pods = slices * size;
        *counts = Counts { pods, pods_led: pods - leads, slices, slices_led: slices, leaders: leads };
    }
    (extra == 0 && leaders == 0).then_some(domains)
}

fn by_capacity_and_entropy(search: &Search<'_>, level: usize, a: usize, b: usize) -> Ordering {
    let (left, right) = (search.at(level, a), search.at(level, b));
    let capacity = (right.leaders, right.slices_led).cmp(&(left.leaders, left.slices_led));
    let entropy = || entropy(search, level, b).total_cmp(&entropy(search, level, a));
    capacity.then_with(entropy).then(a.cmp(&b))
}

/// How evenly the pods that fit into a domain are spread over its children, in bits.
fn entropy(search: &Search<'_>, level: usize, at: usize) -> f64 {
    let pods = |child: usize| u32::try_from(search.at(level + 1, child).pods).map_or(f64::MAX, f64::from);
    let children = search.layout.children(level, at);
    let total: f64 = children.clone().map(pods).sum();
    let parts = children.map(|child| pods(child) / total).filter(|part| *part > 0.0);
    parts.map(|part| -part * libm::log2(part)).sum()
}
