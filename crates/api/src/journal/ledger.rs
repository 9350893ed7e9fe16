//! What was used for how long, by which namespaces and queues, from the lines of a journal.
//!
//! A reservation counts from its beginning to its end, with what it took at each time. Lines of several replicas may be given, in any order:
//! a reservation is one UID and one beginning. Where the line of its end is missing, it ends when the same Workload reserves quota again.

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
    /// What of it was above the ClusterQueue's own quota: what the queue borrowed at a time is divided among those who used it, in proportion.
    pub borrowed: AmountTime,
    /// By reservations that ended by an eviction: what the jobs had done may be lost.
    pub evicted: AmountTime,
    /// By jobs that failed.
    pub failed: AmountTime,
}

/// What a ClusterQueue had of a flavor's resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    /// What it used.
    pub used: AmountTime,
    /// What it used above its own quota.
    pub borrowed: AmountTime,
    /// Its own quota, over the whole time.
    pub nominal: AmountTime,
}

/// A ClusterQueue, a flavor and a resource.
pub type Place = (String, String, String);

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
    pub places: BTreeMap<Place, Shared>,
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
    /// What it took at its beginning, by the earliest line that says so, and that line's time.
    first: Option<(Timestamp, Usage)>,
    /// What it took later, and since when.
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
            Line::Missed(_) => {}
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

    /// What was used from `since` until `until`. What has no end yet is used until then.
    pub fn ledger(&self, since: Timestamp, until: Timestamp) -> Ledger {
        let mut ledger = Ledger { lost: self.lost, earliest: self.earliest, ..Ledger::default() };
        let mut moves: BTreeMap<Place, Vec<Move<'_>>> = BTreeMap::new();
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

    /// What a place's reservations came to, beside its quota, and what of that each team borrowed.
    fn shared<'a>(
        &self,
        place: &Place,
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
    /// Its end, if it has one, and the Workload's next reservation is from `next` on.
    fn end_before(&self, next: Option<Timestamp>) -> Option<(Timestamp, Outcome)> {
        let last = self.later.last_key_value().map(|(at, _)| *at);
        // It ended in its first second, and held quota after that: it was reserved again in that second.
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
        moves: &mut BTreeMap<Place, Vec<Move<'a>>>,
        ended: Option<(Timestamp, Outcome)>,
        (since, until): (Timestamp, Timestamp),
    ) {
        // What is not over is held until now.
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

/// Divides what was borrowed for a time among those who held `used` together, in proportion. What is left over, less than a unit for each, is the
/// last one's, so that the sum is all of it.
fn divide<'a>(
    borrowed: AmountTime,
    used: i128,
    held: &BTreeMap<Team<'a>, i128>,
    by: &mut BTreeMap<Team<'a>, AmountTime>,
) {
    if borrowed == 0 {
        return;
    }
    // Not multiplied before it is divided: both are large. A product that is too large for the rest is of amounts that no cluster has.
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
        // The later one is that of a replica that saw it late, as a deletion by then.
        one.min(other)
    } else {
        // Times are those of conditions, in whole seconds. Quota that was given back and taken again within a second gives two reservations
        // with the same beginning: the later end is that of both.
        one.max(other)
    }
}

/// Milliseconds from one time to another; none if it is not later.
fn millis(from: Timestamp, to: Timestamp) -> i128 {
    i128::from((to.as_millisecond() - from.as_millisecond()).max(0))
}

/// What cannot be read counts as nothing.
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
mod tests {
    use super::*;

    fn at(hours: i64) -> Timestamp {
        Timestamp::from_second(hours * 3600).unwrap()
    }

    fn usage(cpu: &str) -> BTreeMap<String, BTreeMap<String, String>> {
        BTreeMap::from([("spot".to_owned(), BTreeMap::from([("cpu".to_owned(), cpu.to_owned())]))])
    }

    fn held(cpu: &str) -> Usage {
        Usage { usage: usage(cpu) }
    }

    fn line(hour: i64, uid: &str, event: Event) -> Line {
        Line::Workload(Box::new(WorkloadLine {
            at: at(hour),
            namespace: "ns".to_owned(),
            workload: format!("w-{uid}"),
            uid: uid.to_owned(),
            local_queue: "lq".to_owned(),
            cluster_queue: "team".to_owned(),
            priority: 0,
            event,
        }))
    }

    fn reserved(hour: i64, uid: &str, cpu: &str) -> Line {
        line(hour, uid, Event::QuotaReserved { held: held(cpu) })
    }

    fn released(hour: i64, uid: &str, since: i64, outcome: Outcome, cpu: &str) -> Line {
        let event = Event::Released { since: at(since), outcome, reason: String::new(), held: held(cpu) };
        line(hour, uid, event)
    }

    fn quota(hour: i64, cpu: &str) -> Line {
        let (cluster_queue, cohort) = ("team".to_owned(), String::new());
        let nominal = usage(cpu);
        Line::Quota(QuotaLine { at: at(hour), cluster_queue, cohort, nominal, ..QuotaLine::default() })
    }

    /// One that says what the quota was until then.
    fn changed(hour: i64, before: &str, cpu: &str) -> Line {
        let Line::Quota(line) = quota(hour, cpu) else { panic!() };
        Line::Quota(QuotaLine { before: Some(usage(before)), ..line })
    }

    fn ledger(lines: impl IntoIterator<Item = Line>, since: i64, until: i64) -> Ledger {
        let mut collector = Collector::default();
        lines.into_iter().for_each(|line| collector.take(line));
        collector.ledger(at(since), at(until))
    }

    /// Whole hours of processors.
    fn whole(time: AmountTime) -> i128 {
        assert_eq!(time % (1000 * 3_600_000), 0);
        time / (1000 * 3_600_000)
    }

    /// Total, evicted and failed processor hours of the one account.
    fn only(ledger: &Ledger) -> [i128; 3] {
        assert_eq!(ledger.accounts.len(), 1, "{ledger:?}");
        let used = ledger.accounts.values().next().unwrap();
        [used.total, used.evicted, used.failed].map(whole)
    }

    fn share(ledger: &Ledger) -> [i128; 3] {
        let shared = ledger.places.values().next().unwrap();
        [shared.used, shared.borrowed, shared.nominal].map(whole)
    }

    #[test]
    fn a_reservation_counts_from_its_beginning_to_its_end() {
        let lines = [reserved(1, "a", "4"), released(3, "a", 1, Outcome::Finished, "4")];
        assert_eq!(only(&ledger(lines, 0, 24)), [8, 0, 0]);
    }

    #[test]
    fn the_end_alone_says_everything() {
        let lines = [released(3, "a", 1, Outcome::Evicted, "4")];
        assert_eq!(only(&ledger(lines, 0, 24)), [8, 8, 0]);
    }

    #[test]
    fn lines_of_two_replicas_count_once_in_any_order() {
        let lines = [
            released(3, "a", 1, Outcome::Failed, "4"),
            reserved(1, "a", "4"),
            reserved(1, "a", "4"),
            released(3, "a", 1, Outcome::Failed, "4"),
        ];
        assert_eq!(only(&ledger(lines, 0, 24)), [8, 0, 8]);
    }

    #[test]
    fn an_end_that_a_replica_saw_late_does_not_lengthen_a_reservation() {
        let mut lines = [
            reserved(1, "a", "4"),
            released(2, "a", 1, Outcome::Evicted, "4"),
            released(9, "a", 1, Outcome::Deleted, "4"),
        ];
        for _ in 0..2 {
            assert_eq!(only(&ledger(lines.clone(), 0, 24)), [4, 4, 0]);
            lines.reverse();
        }
    }

    #[test]
    fn only_the_time_that_is_asked_for_counts() {
        let lines = [reserved(1, "a", "4"), released(9, "a", 1, Outcome::Finished, "4")];
        assert_eq!(only(&ledger(lines.clone(), 2, 4)), [8, 0, 0]);
        assert!(ledger(lines, 10, 12).accounts.is_empty());
    }

    #[test]
    fn what_runs_counts_until_now_with_what_it_took_at_each_time() {
        let resized = line(3, "a", Event::Resized { since: at(1), before: usage("4"), held: held("1") });
        assert_eq!(only(&ledger([reserved(1, "a", "4"), resized], 0, 5)), [10, 0, 0]);
    }

    #[test]
    fn borrowed_is_what_is_used_above_the_quota_of_that_time() {
        let lines = [
            quota(0, "4"),
            reserved(1, "a", "4"),
            reserved(2, "b", "4"),
            // From now on it has the quota of its own.
            quota(4, "8"),
            released(5, "a", 1, Outcome::Finished, "4"),
            released(5, "b", 2, Outcome::Finished, "4"),
        ];
        // 4 × 4 h + 4 × 3 h; 4 above quota from 2 to 4; 4 × 4 h + 8 × 2 h of quota.
        assert_eq!(share(&ledger(lines, 0, 6)), [28, 8, 32]);
    }

    #[test]
    fn what_a_queue_borrows_is_borrowed_by_those_who_use_it_in_proportion() {
        let of = |namespace: &str, line: Line| {
            let Line::Workload(line) = line else { panic!() };
            Line::Workload(Box::new(WorkloadLine { namespace: namespace.to_owned(), ..*line }))
        };
        let lines = [
            quota(0, "2"),
            of("blue", reserved(1, "a", "3")),
            of("red", reserved(2, "b", "4")),
            of("blue", released(4, "a", 1, Outcome::Finished, "3")),
            of("red", released(6, "b", 2, Outcome::Finished, "4")),
        ];
        let ledger = ledger(lines, 0, 8);
        let borrowed = |namespace: &str| {
            let mut of = ledger.accounts.iter().filter(|(account, _)| account.namespace == namespace);
            of.next().unwrap().1.borrowed
        };
        // One until 2; of five until 4 three sevenths; the rest is that of `red`, with what is left over of the sevenths.
        let hour = 1000 * 3_600_000;
        assert_eq!(borrowed("blue"), hour + 10 * hour * 3 / 7);
        assert_eq!(borrowed("blue") + borrowed("red"), 15 * hour);
        assert_eq!(share(&ledger)[1], 15);
    }

    #[test]
    fn a_quota_that_is_told_late_holds_from_the_beginning() {
        let lines = [quota(5, "2"), reserved(0, "a", "4")];
        assert_eq!(share(&ledger(lines, 0, 2)), [8, 4, 4]);
    }

    #[test]
    fn what_the_quota_was_before_its_first_change_is_known_from_that() {
        // 8 used of 10 until 3, and of 20 from then on; the window begins after the line that said 10.
        let lines = || [changed(3, "10", "20"), reserved(0, "a", "12")];
        assert_eq!(share(&ledger(lines(), 0, 4)), [48, 6, 50]);
        // A line of a queue that was made at 2, and is listed at 6.
        let Line::Quota(line) = quota(6, "4") else { panic!() };
        let made = Line::Quota(QuotaLine { created: Some(at(2)), ..line });
        assert_eq!(share(&ledger([made, reserved(2, "a", "4")], 0, 6)), [16, 0, 16]);
    }

    #[test]
    fn an_end_that_was_lost_is_at_the_next_reservation_at_the_latest() {
        let lines =
            [reserved(1, "a", "4"), reserved(5, "a", "4"), released(6, "a", 5, Outcome::Finished, "4")];
        assert_eq!(only(&ledger(lines, 0, 24)), [20, 16, 0]);
        // An end that was seen late does not reach into the next one.
        let late = [
            reserved(1, "a", "4"),
            released(7, "a", 1, Outcome::Evicted, "4"),
            reserved(5, "a", "4"),
            released(6, "a", 5, Outcome::Finished, "4"),
        ];
        assert_eq!(only(&ledger(late, 0, 24)), [20, 16, 0]);
    }

    #[test]
    fn quota_taken_again_in_the_second_in_which_it_was_given_back_counts_to_its_end() {
        let first =
            || [reserved(1, "a", "4"), released(1, "a", 1, Outcome::Evicted, "4"), reserved(1, "a", "4")];
        let ended = released(3, "a", 1, Outcome::Finished, "4");
        assert_eq!(only(&ledger(first().into_iter().chain([ended]), 0, 24)), [8, 0, 0]);
        let runs = line(5, "a", Event::Holding { since: at(1), admitted: None, held: held("4") });
        assert_eq!(only(&ledger(first().into_iter().chain([runs]), 0, 6)), [20, 0, 0]);
        // One that ended at once is over.
        assert!(ledger(first(), 0, 6).accounts.is_empty());
    }

    #[test]
    fn odd_amounts_count_as_nothing_and_huge_ones_do_not_overflow() {
        let odd = [reserved(0, "a", "many"), reserved(0, "b", "-4")];
        assert_eq!(only(&ledger(odd, 0, 2)), [0, 0, 0]);
        let huge = (0..1000).map(|n| reserved(0, &n.to_string(), "9223372036854775807"));
        let ledger = ledger(huge, 0, 1_000_000);
        assert!(ledger.accounts.values().all(|used| used.total > 0), "{ledger:?}");
        let borrowed: i128 = ledger.accounts.values().map(|used| used.borrowed).sum();
        assert_eq!(borrowed, ledger.places.values().map(|shared| shared.borrowed).sum());
    }
}
