//! Usage over time by namespaces and queues, from the lines of a journal.
//!
//! A reservation counts from its beginning to its end, with its amounts over time. Lines may come from several replicas, in any order: a reservation
//! is identified by UID and beginning. Without a line of its end, it ends when the same Workload reserves quota again.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sluice_quantity::{Amount, Quantity, amount_of};

use super::{Event, Line, Outcome, QuotaLine, Usage, WorkloadLine};

/// Amounts (thousandths of a processor, bytes, or pieces) times milliseconds.
pub type AmountTime = i128;
/// Milliseconds of an hour.
const HOUR: f64 = 3_600_000.0;

/// The hours of an amount over time, in the resource's own unit: processors, bytes, pieces.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
pub fn hours(resource: &str, time: AmountTime) -> f64 {
    let unit = if resource == sluice_quantity::CPU { 1000.0 } else { 1.0 };
    time as f64 / HOUR / unit
}

/// Whose use it is, and of what.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account {
    /// The namespace.
    pub namespace: String,
    /// The LocalQueue.
    pub local_queue: String,
    /// The ClusterQueue.
    pub cluster_queue: String,
    /// The flavor.
    pub flavor: String,
    /// The resource.
    pub resource: String,
}

/// How much that was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// All of it.
    pub total: AmountTime,
    /// The part of it above the ClusterQueue's own quota: what the queue borrowed at a time is divided among its users, in proportion.
    pub borrowed: AmountTime,
    /// By reservations that ended by an eviction: what the jobs had done may be lost.
    pub evicted: AmountTime,
    /// By jobs that failed.
    pub failed: AmountTime,
}

/// A ClusterQueue's share of a flavor's resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    /// Its usage.
    pub used: AmountTime,
    /// Its usage above its own quota.
    pub borrowed: AmountTime,
    /// Its own quota, over the whole time.
    pub nominal: AmountTime,
}

/// A ClusterQueue, a flavor and a resource.
pub type QuotaSlot = (String, String, String);

/// A namespace and its LocalQueue.
type Team<'a> = (&'a str, &'a str);

/// When the use of a place changes, by how much, and whose.
type Move<'a> = (Timestamp, i128, Option<Team<'a>>);

/// The result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// By account.
    pub accounts: BTreeMap<Account, Used>,
    /// By place. Only what was used or has quota.
    pub places: BTreeMap<QuotaSlot, Shared>,
    /// Lines that are missing.
    pub lost: u64,
    /// The time of the earliest line.
    pub earliest: Option<Timestamp>,
}

/// A reservation.
#[derive(Clone, Debug, Default)]
struct Reservation {
    namespace: String,
    local_queue: String,
    cluster_queue: String,
    since: Timestamp,
    /// The amount at its beginning, by the earliest line that has it, and that line's time.
    first: Option<(Timestamp, Usage)>,
    /// Later amounts, by the time of their beginning.
    later: BTreeMap<Timestamp, Usage>,
    end: Option<(Timestamp, Outcome)>,
}

/// Collects lines.
#[derive(Clone, Debug, Default)]
pub struct Collector {
    reservations: BTreeMap<(String, Timestamp), Reservation>,
    quotas: BTreeMap<String, BTreeMap<Timestamp, QuotaLine>>,
    lost: u64,
    earliest: Option<Timestamp>,
}

impl Collector {
    /// Takes a line.
    pub fn take(&mut self, line: Line) {
        self.earliest = Some(self.earliest.map_or(line.at(), |earliest| earliest.min(line.at())));
        match line {
            Line::Workload(line) => self.workload(*line),
            Line::Quota(line) => {
                self.quotas.entry(line.cluster_queue.clone()).or_default().insert(line.at, line);
            }
            Line::Lost(line) => self.lost = self.lost.saturating_add(line.lost),
            Line::LocalQueue(_) | Line::Missed(_) => {}
        }
    }

    fn workload(&mut self, line: WorkloadLine) {
        let WorkloadLine { at, namespace, uid, local_queue, cluster_queue, event, .. } = line;
        let since = match &event {
            Event::QuotaReserved { .. } => at,
            Event::Holding { since, .. } | Event::Resized { since, .. } | Event::Released { since, .. } => {
                *since
            }
            _ => return,
        };
        let known = self.reservations.entry((uid, since)).or_default();
        (known.namespace, known.local_queue, known.cluster_queue) = (namespace, local_queue, cluster_queue);
        known.since = since;
        let (first, later) = match event {
            Event::QuotaReserved { held } => (held, None),
            Event::Holding { held, .. } => (held.clone(), Some(held)),
            Event::Resized { before, held, .. } => (Usage { usage: before }, Some(held)),
            Event::Released { outcome, held, .. } => {
                let end = (at, outcome);
                known.end = Some(known.end.map_or(end, |other| end_of_two(since, end, other)));
                (held, None)
            }
            _ => return,
        };
        if known.first.as_ref().is_none_or(|(by, _)| at < *by) {
            known.first = Some((at, first));
        }
        if let Some(later) = later {
            known.later.insert(at, later);
        }
    }

    /// The usage from `since` to `until`. A reservation without an end counts until then.
    pub fn ledger(&self, since: Timestamp, until: Timestamp) -> Ledger {
        let mut ledger = Ledger { lost: self.lost, earliest: self.earliest, ..Ledger::default() };
        let mut moves: BTreeMap<QuotaSlot, Vec<Move<'_>>> = BTreeMap::new();
        let mut all = self.reservations.iter().peekable();
        while let Some(((uid, _), reservation)) = all.next() {
            let next = all.peek().filter(|((of, _), _)| of == uid).map(|((_, since), _)| *since);
            let end = reservation.end_before(next);
            reservation.add_to(&mut ledger.accounts, &mut moves, end, (since, until));
        }
        for queue in self.quotas.values() {
            for line in queue.values() {
                for (flavor, resource, _) in
                    amounts(&line.nominal).chain(line.before.iter().flat_map(amounts))
                {
                    moves.entry((line.cluster_queue.clone(), flavor, resource)).or_default();
                }
            }
        }
        for (place, moves) in moves {
            let (shared, borrowed) = self.shared(&place, moves, since, until);
            for ((namespace, local_queue), time) in borrowed {
                let (cluster_queue, flavor, resource) = place.clone();
                let (namespace, local_queue) = (namespace.to_owned(), local_queue.to_owned());
                let account = Account { namespace, local_queue, cluster_queue, flavor, resource };
                ledger.accounts.entry(account).or_default().borrowed += time;
            }
            if shared != Shared::default() {
                ledger.places.insert(place, shared);
            }
        }
        ledger
    }

    /// The usage of a place's reservations beside its quota, and each team's borrowed part.
    fn shared<'a>(
        &self,
        place: &QuotaSlot,
        mut moves: Vec<Move<'a>>,
        since: Timestamp,
        until: Timestamp,
    ) -> (Shared, BTreeMap<Team<'a>, AmountTime>) {
        let quotas = self.quotas.get(&place.0);
        let nominal_at = |at: Timestamp| {
            let lines = quotas?;
            let nominal = match lines.range(..=at).next_back() {
                Some((_, line)) => &line.nominal,
                None => lines.first_key_value()?.1.earlier(at)?,
            };
            Some(amount(&place.2, nominal.get(&place.1)?.get(&place.2)?))
        };
        let made = quotas.and_then(|lines| lines.first_key_value()?.1.created);
        let changes = quotas.into_iter().flat_map(BTreeMap::keys).chain(&made);
        moves.extend(changes.filter(|at| **at > since && **at < until).map(|at| (*at, 0, None)));
        moves.push((until, 0, None));
        moves.sort_unstable();
        let (mut shared, mut used, mut from) = (Shared::default(), 0, since);
        let (mut held, mut borrowed) = (BTreeMap::<Team<'a>, i128>::new(), BTreeMap::new());
        for (at, change, team) in moves {
            let time = millis(from, at);
            let nominal = nominal_at(from).unwrap_or(0);
            let above = (used - nominal).max(0) * time;
            shared.used += used * time;
            shared.borrowed += above;
            shared.nominal += nominal * time;
            divide(above, used, &held, &mut borrowed);
            used += change;
            if let Some(team) = team {
                let own = held.entry(team).or_default();
                *own += change;
                if *own == 0 {
                    held.remove(&team);
                }
            }
            from = from.max(at);
        }
        (shared, borrowed)
    }
}

impl Reservation {
    /// Its end, if it has one; the Workload's next reservation begins at `next`.
    fn end_before(&self, next: Option<Timestamp>) -> Option<(Timestamp, Outcome)> {
        let last = self.later.last_key_value().map(|(at, _)| *at);
        // It ended in its first second and held quota after that: quota was reserved again in that second.
        let again = |end: Timestamp| end <= self.since && last.is_some_and(|last| millis(end, last) >= 2000);
        let end = self.end.filter(|(at, _)| !again(*at));
        match (end, next) {
            (Some((at, outcome)), Some(next)) => Some((at.min(next), outcome)),
            (None, Some(next)) => Some((next, Outcome::Evicted)),
            (end, None) => end,
        }
    }

    fn add_to<'a>(
        &'a self,
        accounts: &mut BTreeMap<Account, Used>,
        moves: &mut BTreeMap<QuotaSlot, Vec<Move<'a>>>,
        ended: Option<(Timestamp, Outcome)>,
        (since, until): (Timestamp, Timestamp),
    ) {
        // A reservation that has not ended counts until now.
        let end = ended.map_or(until, |(at, _)| at);
        let first = self.first.iter().map(|(_, held)| (self.since, held));
        let held = first.chain(self.later.iter().map(|(from, held)| (*from, held)));
        let next = self.later.keys().copied().chain([end]);
        for ((from, held), to) in held.zip(next) {
            let (from, to) = (from.max(self.since).max(since), to.min(end).min(until));
            if from >= to {
                continue;
            }
            for (flavor, resource, amount) in amounts(&held.usage) {
                let place = (self.cluster_queue.clone(), flavor.clone(), resource.clone());
                let team = Some((&*self.namespace, &*self.local_queue));
                moves.entry(place).or_default().extend([(from, amount, team), (to, -amount, team)]);
                let account = Account {
                    namespace: self.namespace.clone(),
                    local_queue: self.local_queue.clone(),
                    cluster_queue: self.cluster_queue.clone(),
                    flavor,
                    resource,
                };
                let time = amount * millis(from, to);
                let used = accounts.entry(account).or_default();
                used.total += time;
                match ended.map(|(_, outcome)| outcome) {
                    Some(Outcome::Evicted) => used.evicted += time,
                    Some(Outcome::Failed) => used.failed += time,
                    _ => {}
                }
            }
        }
    }
}

/// Divides what was borrowed for a time among the users who held `used` together, in proportion. The remainder, less than a unit for each, goes to
/// the last one, so that the sum is exact.
fn divide<'a>(
    borrowed: AmountTime,
    used: i128,
    held: &BTreeMap<Team<'a>, i128>,
    by: &mut BTreeMap<Team<'a>, AmountTime>,
) {
    if borrowed == 0 {
        return;
    }
    // Divided before it is multiplied, since both are large. The product overflows only for amounts that no cluster has.
    let (whole, rest) = (borrowed / used, borrowed % used);
    let part = |amount: i128| whole * amount + rest.checked_mul(amount).map_or(0, |product| product / used);
    let (mut left, mut teams) = (borrowed, held.iter().peekable());
    while let Some((team, amount)) = teams.next() {
        let own = if teams.peek().is_some() { part(*amount) } else { left };
        *by.entry(*team).or_default() += own;
        left -= own;
    }
}

/// Which of two ends of a reservation that began at `since` counts.
fn end_of_two(
    since: Timestamp,
    one: (Timestamp, Outcome),
    other: (Timestamp, Outcome),
) -> (Timestamp, Outcome) {
    if one.0 > since && other.0 > since {
        // The later one is from a replica that noticed the end late, as a deletion.
        one.min(other)
    } else {
        // Times are those of conditions, in whole seconds. Quota that was released and reserved again within a second gives two reservations with the
        // same beginning: both end at the later end.
        one.max(other)
    }
}

/// Milliseconds from one time to another; 0 if it is not later.
fn millis(from: Timestamp, to: Timestamp) -> i128 {
    i128::from((to.as_millisecond() - from.as_millisecond()).max(0))
}

/// An unreadable amount counts as zero.
fn amount(resource: &str, text: &str) -> i128 {
    let amount = Quantity::parse(text).map_or(Amount::ZERO, |quantity| amount_of(resource, &quantity));
    i128::from(amount.get().max(0))
}

fn amounts(
    usage: &BTreeMap<String, BTreeMap<String, String>>,
) -> impl Iterator<Item = (String, String, i128)> + '_ {
    usage.iter().flat_map(|(flavor, resources)| {
        resources
            .iter()
            .map(move |(resource, text)| (flavor.clone(), resource.clone(), amount(resource, text)))
    })
}

#[cfg(test)]
mod tests;
