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
fn a_quota_that_is_reported_late_holds_from_the_beginning() {
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
    let lines = [reserved(1, "a", "4"), reserved(5, "a", "4"), released(6, "a", 5, Outcome::Finished, "4")];
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
    let first = || [reserved(1, "a", "4"), released(1, "a", 1, Outcome::Evicted, "4"), reserved(1, "a", "4")];
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
