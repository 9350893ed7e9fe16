//! The fewest domains that hold a number of pods, with the least to spare (docs/reference/06-algorithm.md 6.12 "Balanced placement").

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::topology::counts::Counts;

/// A choice is given up after so many steps.
const MOST_STEPS: u64 = 1 << 18;

/// What is left to place: leaders before pods.
type Left = (i64, i64);

/// The domains to choose from, and how many.
#[derive(Debug)]
pub(crate) struct Choice<'a> {
    /// The counts of all domains of the level.
    pub(crate) counts: &'a [Counts],
    /// The domains that may be chosen; earlier ones are preferred.
    pub(crate) domains: &'a [usize],
    /// How many are chosen.
    pub(crate) number: usize,
    /// What they have to hold: leaders, pods.
    pub(crate) all: Left,
}

/// Domains that are in the best choice, and those that may be, in their order.
#[derive(Debug, Default)]
struct Settled {
    sure: Vec<usize>,
    open: Vec<usize>,
}

/// One more domain of a choice.
#[derive(Debug, Clone, Copy)]
struct Link {
    domain: usize,
    /// The link before it.
    before: Option<usize>,
}

impl Choice<'_> {
    /// The domains that hold everything with the least to spare; earlier ones are preferred. `None`: there are none, or it takes too many steps to
    /// find them. Adds the steps to `steps`.
    pub(crate) fn best(&self, steps: &mut u64) -> Option<Vec<usize>> {
        let Some(Settled { mut sure, open }) = self.settled() else { return self.tried(steps) };
        let held: i64 = sure.iter().map(|&at| self.counts[at].pods).sum();
        let (number, all) = (self.number - sure.len(), (0, self.all.1 - held));
        let rest = Choice { counts: self.counts, domains: &open, number, all };
        sure.extend(rest.tried(steps)?);
        Some(sure)
    }

    /// Most domains need no search if the largest ones hold everything and one less of them do not. What these can spare is what all others of a choice
    /// can lack: it leaves out few that are larger than the smallest of these, and takes few that are smaller. Of equal ones it takes the first.
    fn settled(&self) -> Option<Settled> {
        if self.all.0 > 0 {
            return None;
        }
        let usable = || self.domains.iter().copied().filter(|&at| self.counts[at].slices > 0);
        let mut sizes: Vec<i64> = usable().map(|at| self.counts[at].pods).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let largest = sizes.get(..self.number)?;
        let smallest = *largest.last()?;
        let spare = largest.iter().sum::<i64>() - self.all.1;
        if !(0..smallest).contains(&spare) {
            return None;
        }
        let wide = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let mut numbers: BTreeMap<i64, i64> = BTreeMap::new();
        for size in &sizes {
            *numbers.entry(*size).or_default() += 1;
        }
        let of_last = wide(largest.iter().filter(|size| **size == smallest).count());
        let mut settled = Settled::default();
        let mut seen: BTreeMap<i64, i64> = BTreeMap::new();
        for at in usable() {
            let size = self.counts[at].pods;
            let seen = seen.entry(size).or_default();
            // The first `least` of this size are taken, and none after the first `most`.
            let (least, most) = match size.cmp(&smallest) {
                Ordering::Greater => (numbers[&size] - spare / (size - smallest), i64::MAX),
                Ordering::Equal => (of_last - spare, of_last + spare),
                Ordering::Less => (0, spare / (smallest - size)),
            };
            if *seen < least {
                settled.sure.push(at);
            } else if *seen < most {
                settled.open.push(at);
            }
            *seen += 1;
        }
        Some(settled)
    }

    /// Tries all choices, domain by domain: of those with as many domains and as much left, the first one counts.
    fn tried(&self, steps: &mut u64) -> Option<Vec<usize>> {
        let mut links: Vec<Link> = Vec::new();
        let mut reached: Vec<BTreeMap<Left, Option<usize>>> = vec![BTreeMap::new(); self.number + 1];
        reached[0].insert(self.all, None);
        let mut tried = 0;
        for &domain in self.domains {
            let counts = &self.counts[domain];
            for taken in (0..self.number).rev() {
                let (before, after) = reached.split_at_mut(taken + 1);
                let unmet = before[taken].iter().filter(|(left, _)| left.0 > 0 || left.1 > 0);
                for (&(leaders, pods), &before) in unmet {
                    tried += 1;
                    let mut reach = |left: Left| {
                        after[0].entry(left).or_insert_with(|| {
                            links.push(Link { domain, before });
                            Some(links.len() - 1)
                        });
                    };
                    if leaders > 0 && counts.leaders > 0 {
                        reach((leaders - counts.leaders, pods - counts.pods_led));
                    }
                    if counts.slices > 0 {
                        reach((leaders, pods - counts.pods));
                    }
                }
            }
            if tried > MOST_STEPS {
                break;
            }
        }
        *steps += tried;
        if tried > MOST_STEPS {
            return None;
        }
        let last = reached.pop()?;
        let fits = |((leaders, pods), link)| (leaders == 0 && pods <= 0).then_some((pods, link));
        let (_, link) = last.into_iter().filter_map(fits).max_by_key(|(pods, _)| *pods)?;
        let mut chosen = Vec::with_capacity(self.number);
        let mut next: Option<usize> = link;
        while let Some(Link { domain, before }) = next.map(|at| links[at]) {
            chosen.push(domain);
            next = before;
        }
        chosen.reverse();
        Some(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sizes: impl Iterator<Item = i64>) -> Vec<Counts> {
        sizes.map(|pods| Counts { pods, slices: pods, ..Counts::default() }).collect()
    }

    /// The smallest number of domains that hold so many pods.
    fn fewest(counts: &[Counts], pods: i64) -> Option<usize> {
        let mut sizes: Vec<i64> = counts.iter().map(|one| one.pods).collect();
        sizes.sort_unstable_by_key(|size| -size);
        (1..=sizes.len()).find(|number| sizes[..*number].iter().sum::<i64>() >= pods)
    }

    #[test]
    fn what_is_settled_is_what_trying_all_choices_gives() {
        let mut less = 0;
        for seed in 0..60_i64 {
            let of_size = |at: i64| (at * at * (seed + 3) + at * 7 + seed) % (2 + seed % 6);
            let counts = of((0..8 + seed % 7).map(of_size));
            let domains: Vec<usize> = (0..counts.len()).collect();
            let room: i64 = counts.iter().map(|one| one.pods).sum();
            for pods in 1..=room {
                let number = fewest(&counts, pods).expect("it fits");
                let choice = Choice { counts: &counts, domains: &domains, number, all: (0, pods) };
                let (mut steps, mut all) = (0, 0);
                let mut best = choice.best(&mut steps).expect("it fits");
                best.sort_unstable();
                assert_eq!(Some(best), choice.tried(&mut all), "seed {seed}, {pods} pods");
                assert!(steps <= all);
                less += u32::from(steps < all);
            }
        }
        assert!(less > 300, "{less}");
    }

    #[test]
    fn a_choice_with_too_many_steps_is_given_up() {
        let counts = of((0..2_000).map(|at| 1 + at * 7919 % 997));
        let domains: Vec<usize> = (0..counts.len()).collect();
        let choice = Choice { counts: &counts, domains: &domains, number: 900, all: (0, 300_000) };
        let mut steps = 0;
        assert_eq!(choice.tried(&mut steps), None);
        assert!(steps < 4 * MOST_STEPS, "{steps}");
    }
}
