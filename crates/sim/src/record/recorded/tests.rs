use super::*;
use crate::Report;
use serde_json::{Value, json};

const START: &str = "2026-01-01T00:00:00Z";

/// A line of the Workload `team/NAME`, `at` seconds after the beginning.
fn line(at: i64, name: &str, what: &Value) -> Line {
    let mut line = json!({
        "at": time(at).to_string(), "namespace": "team", "workload": name, "uid": format!("uid-{name}"), "localQueue": "main",
        "clusterQueue": "cq", "priority": 7,
    });
    line.as_object_mut().unwrap().extend(what.as_object().unwrap().clone());
    serde_json::from_value(line).unwrap()
}

fn time(at: i64) -> Timestamp {
    START.parse::<Timestamp>().unwrap() + jiff::SignedDuration::from_secs(at)
}

fn quota(at: i64, cpu: &str) -> Line {
    serde_json::from_value(json!({"at": time(at).to_string(), "clusterQueue": "cq", "cohort": "all", "nominal": {"spot": {"cpu": cpu}}})).unwrap()
}

/// The same, with a stop policy, and the one that it had until then.
fn stop(at: i64, policy: &str, before: &str) -> Line {
    let cpu = json!({"spot": {"cpu": "4"}});
    serde_json::from_value(json!({
        "at": time(at).to_string(), "clusterQueue": "cq", "cohort": "all", "nominal": cpu, "before": cpu,
        "stopPolicy": policy, "stopPolicyBefore": before,
    }))
    .unwrap()
}

fn usage(cpu: &str) -> Value {
    json!({"spot": {"cpu": cpu}})
}

fn recorded(lines: Vec<Line>) -> Recorded {
    Recorded::new(lines, time(0), time(1000))
}

/// The timeline: seconds, job, word and details.
fn reported(recorded: &Recorded) -> Vec<String> {
    let jobs = &recorded.record.jobs;
    let of = |entry: &crate::TimelineEntry| {
        let job = entry.job.map_or("-", |at| &*jobs[at].name);
        format!("{} {job} {} {}", entry.at / 1000, entry.what.word(), entry.what.details())
            .trim_end()
            .to_owned()
    };
    recorded.record.entries.iter().map(of).collect()
}

fn life() -> Vec<Line> {
    vec![
        quota(0, "4"),
        line(10, "low", &json!({"what": "Pending", "reason": "Pending", "message": "3 more needed"})),
        line(20, "low", &json!({"what": "QuotaReserved", "usage": usage("2")})),
        line(25, "low", &json!({"what": "Admitted"})),
        line(30, "high", &json!({"what": "Pending", "reason": "Pending", "message": ""})),
        line(
            125,
            "low",
            &json!({"what": "Evicted", "reason": "Preempted/InClusterQueue", "message": "Preempted to accommodate a workload (UID: uid-high, JobUID: j) due to prioritization"}),
        ),
        line(
            130,
            "low",
            &json!({"what": "Released", "since": time(20).to_string(), "outcome": "Evicted", "reason": "Preempted/InClusterQueue", "usage": usage("2")}),
        ),
        line(130, "high", &json!({"what": "QuotaReserved", "usage": usage("4")})),
        line(130, "high", &json!({"what": "Admitted"})),
        quota(300, "8"),
        line(
            430,
            "high",
            &json!({"what": "Released", "since": time(130).to_string(), "outcome": "Failed", "reason": "Failed", "usage": usage("4")}),
        ),
        line(430, "high", &json!({"what": "Finished", "reason": "Failed", "message": "no"})),
        line(500, "low", &json!({"what": "QuotaReserved", "usage": usage("2")})),
        line(500, "low", &json!({"what": "Admitted"})),
        line(700, "low", &json!({"what": "Evicted", "reason": "NodeFailures", "message": "node n1"})),
    ]
}

#[test]
fn a_day_is_reported_from_queued_to_the_end_with_reasons() {
    let day = recorded(life());
    let expected = [
        "10 low submitted",
        "10 low waiting Pending: 3 more needed",
        "20 low reserved by cq: cpu=spot (2)",
        "25 low admitted by cq: cpu=spot (2)",
        "30 high submitted",
        "30 high waiting Pending:",
        "125 low preempted by team/high: InClusterQueue;",
        "130 high admitted by cq: cpu=spot (4)",
        "300 - scenario patch ClusterQueue cq: nominalQuota 8 cpu of spot",
        "430 high failed",
        "500 low admitted by cq: cpu=spot (2)",
        "700 low evicted NodeFailures: node n1",
    ];
    assert_eq!(reported(&day), expected);
    let [low, high] = &day.record.jobs[..] else { panic!("{:?}", day.record.jobs) };
    let holds = |job: &JobRecord| {
        let of = |hold: &Hold| {
            (
                hold.from / 1000,
                hold.admitted.map(|at| at / 1000),
                hold.evicted.map(|at| at / 1000),
                hold.to.map(|at| at / 1000),
                hold.end,
            )
        };
        job.holds.iter().map(of).collect::<Vec<_>>()
    };
    let evicted = HoldEnd::Evicted;
    assert_eq!(
        holds(low),
        [
            (20, Some(25), Some(125), Some(130), HoldEnd::Preempted),
            (500, Some(500), Some(700), None, evicted)
        ]
    );
    assert_eq!(holds(high), [(130, Some(130), None, Some(430), HoldEnd::Finished)]);
    assert_eq!((low.preempted, high.preempts, low.lost, high.lost), (1, 1, 300_000, 300_000));
    assert_eq!((low.priority, high.success, day.end), (7, false, 1_000_000));
    let report = Report::new(&day.record, day.end, 0, Vec::new());
    let queue = &report.queues[0];
    assert_eq!((queue.cohort.as_deref(), queue.jobs, queue.running), (Some("all"), 2, 1));
    // 110 s of 2, 300 s of 4, 500 s of 2, of 300 s of 4 and 700 s of 8.
    assert_eq!(queue.usage[0].utilisation, Some(35.6));
}

#[test]
fn lines_of_two_replicas_and_in_any_order_are_reported_once() {
    let one = recorded(life());
    let mut twice = life();
    twice.extend(life());
    assert_eq!(reported(&recorded(twice)), reported(&one));
    // What has no time of its own is seen by one a moment later than by the other.
    let gone = |at: i64| line(at, "low", &json!({"what": "Deleted"}));
    let ended = |at: i64| {
        line(
            at,
            "low",
            &json!({"what": "Released", "since": time(500).to_string(), "outcome": "Evicted", "reason": "NodeFailures", "usage": usage("2")}),
        )
    };
    let with = |more: Vec<Line>| recorded(life().into_iter().chain(more).collect());
    let late = line(701, "low", &json!({"what": "Evicted", "reason": "NodeFailures", "message": "node n1"}));
    let both = with(vec![late, ended(710), gone(711), ended(712), gone(713)]);
    assert_eq!(reported(&both), reported(&with(vec![ended(710), gone(711)])));
    assert_eq!(both.record.jobs[0].holds.len(), 2);
    // The first line of a job that never waited comes after that of what it preempted.
    let at_once = recorded(life().into_iter().filter(|line| line.at() != time(30)).collect());
    assert!(
        reported(&at_once).contains(&"125 low preempted by team/high: InClusterQueue;".to_owned()),
        "{:?}",
        reported(&at_once)
    );
    assert_eq!(at_once.record.jobs[1].preempts, 1);
    // Files are read one after the other.
    let mut turned = life();
    turned.rotate_left(6);
    assert_eq!(reported(&recorded(turned)), reported(&one));
}

/// The process that saw the admission was killed before it wrote that down, and the one after saw what held already.
#[test]
fn an_admission_whose_line_was_lost_is_in_the_line_of_a_later_process() {
    let holding = |at: i64| {
        let admitted = json!({"what": "Holding", "since": time(20).to_string(), "admitted": time(25).to_string(), "usage": usage("2")});
        line(at, "low", &admitted)
    };
    let is_lost = |line: &Line| line.at() == time(25);
    for at in [26, 125] {
        let mut lines: Vec<Line> = life().into_iter().filter(|line| !is_lost(line)).collect();
        lines.push(holding(at));
        let day = recorded(lines);
        assert_eq!(reported(&day), reported(&recorded(life())), "{at}");
        assert_eq!(day.record.jobs[0].lost, 300_000, "{at}");
        // Where nothing was lost it adds nothing.
        let all = recorded(life().into_iter().chain([holding(at)]).collect());
        assert_eq!((reported(&all), all.record.jobs[0].lost), (reported(&day), 300_000), "{at}");
    }
    let reserved = recorded(vec![holding(500)]);
    let expected =
        ["20 low submitted", "20 low reserved by cq: cpu=spot (2)", "25 low admitted by cq: cpu=spot (2)"];
    assert_eq!(reported(&reserved), expected);
}

#[test]
fn what_began_before_and_what_is_missing_is_reported_as_far_as_it_is_known() {
    let since = |at: i64| json!(time(at).to_string());
    let day = recorded(vec![
        line(-500, "gone", &json!({"what": "QuotaReserved", "usage": usage("1")})),
        line(
            -100,
            "gone",
            &json!({"what": "Released", "since": since(-500), "outcome": "Finished", "usage": usage("1")}),
        ),
        line(-100, "gone", &json!({"what": "Finished", "reason": "Succeeded"})),
        line(-300, "old", &json!({"what": "QuotaReserved", "usage": usage("1")})),
        line(-300, "old", &json!({"what": "Admitted"})),
        line(50, "old", &json!({"what": "Holding", "since": since(-300), "usage": usage("1")})),
        line(
            100,
            "old",
            &json!({"what": "Released", "since": since(-300), "outcome": "Finished", "usage": usage("1")}),
        ),
        line(
            60,
            "runs",
            &json!({"what": "Holding", "since": since(40), "admitted": since(40), "usage": usage("4")}),
        ),
        line(
            90,
            "runs",
            &json!({"what": "Resized", "since": since(40), "before": usage("4"), "usage": usage("2")}),
        ),
        line(
            200,
            "unseen",
            &json!({"what": "Released", "since": since(150), "outcome": "Evicted", "reason": "Preempted/x", "usage": usage("3")}),
        ),
        line(210, "unseen", &json!({"what": "Deleted"})),
        line(2000, "later", &json!({"what": "Pending", "reason": "Pending"})),
        serde_json::from_value(json!({"at": time(70).to_string(), "lost": 3})).unwrap(),
    ]);
    let expected = [
        "-300 old submitted",
        "-300 old admitted by cq: cpu=spot (1)",
        "40 runs submitted",
        "40 runs admitted by cq: cpu=spot (4)",
        "70 - scenario the journal lacks 3 lines before this",
        "150 unseen submitted",
        "150 unseen admitted by cq: cpu=spot (3)",
        "210 unseen deleted",
    ];
    assert_eq!(reported(&day), expected);
    assert_eq!(day.lost, 3);
    let of = |name: &str| {
        let job = day.record.jobs.iter().find(|job| *job.name == *name).unwrap();
        let hold =
            |hold: &Hold| (hold.from / 1000, hold.to.map(|at| at / 1000), hold.holdings[0].amount / 1000);
        job.holds.iter().map(hold).collect::<Vec<_>>()
    };
    assert_eq!((of("old"), of("unseen")), (vec![(-300, Some(100), 1)], vec![(150, Some(200), 3)]));
    assert_eq!(of("runs"), [(40, Some(90), 4), (90, None, 2)]);
}

/// What a job held: from when until when, and since when it was admitted.
fn holds(day: &Recorded, name: &str) -> Vec<(i64, Option<i64>, Option<i64>)> {
    let job = day.record.jobs.iter().find(|job| *job.name == *name).unwrap();
    let second = |at: i64| at / 1000;
    job.holds.iter().map(|hold| (second(hold.from), hold.admitted.map(second), hold.to.map(second))).collect()
}

fn released(at: i64, name: &str, since: i64, outcome: &str) -> Line {
    let since = time(since).to_string();
    line(at, name, &json!({"what": "Released", "since": since, "outcome": outcome, "usage": usage("2")}))
}

fn resized(at: i64, to: &str) -> Line {
    let since = time(20).to_string();
    line(at, "low", &json!({"what": "Resized", "since": since, "before": usage("2"), "usage": usage(to)}))
}

/// Reserved and admitted at 20.
fn begun() -> [Line; 2] {
    [
        line(20, "low", &json!({"what": "QuotaReserved", "usage": usage("2")})),
        line(20, "low", &json!({"what": "Admitted"})),
    ]
}

#[test]
fn what_is_lost_by_an_eviction_counts_from_the_admission_and_not_from_when_the_job_was_resized() {
    let evicted = line(100, "low", &json!({"what": "Evicted", "reason": "NodeFailures", "message": ""}));
    let more = [resized(90, "1"), evicted, resized(105, "3"), released(110, "low", 20, "Evicted")];
    let day = recorded(begun().into_iter().chain(more.clone()).collect());
    assert_eq!(day.record.jobs[0].lost, 80_000);
    let parts = [(20, Some(20), Some(90)), (90, Some(20), Some(105)), (105, Some(20), Some(110))];
    assert_eq!(holds(&day, "low"), parts);
    for (end, lost) in [(95, 0), (100, 80_000), (200, 80_000)] {
        let mut cut = day.record.clone();
        cut.jobs[0].lost += 7;
        cut.cut(end * 1000);
        assert_eq!(cut.jobs[0].lost, lost + 7, "{end}");
    }
    // The line of the admission was lost, and the `Holding` line of a manager that began later reports it.
    let since = time(20).to_string();
    let holding =
        json!({"what": "Holding", "since": since, "admitted": time(30).to_string(), "usage": usage("1")});
    let [reserved, _] = begun();
    let [smaller, evicted, ..] = more;
    let day = recorded(vec![reserved, smaller, line(95, "low", &holding), evicted]);
    assert_eq!(day.record.jobs[0].lost, 70_000);
    assert_eq!(holds(&day, "low"), [(20, Some(30), Some(90)), (90, Some(30), None)]);
    // So does a job that fails.
    let failed = released(120, "low", 20, "Failed");
    let day = recorded(begun().into_iter().chain([resized(90, "1"), failed]).collect());
    assert_eq!(day.record.jobs[0].lost, 100_000);
}

#[test]
fn the_end_of_an_earlier_reservation_that_is_reported_late_does_not_end_the_present_one() {
    let again = line(500, "low", &json!({"what": "QuotaReserved", "usage": usage("2")}));
    let late = [again, released(600, "low", 20, "Deleted")];
    let mut lines: Vec<Line> = begun().into_iter().chain(late).collect();
    assert_eq!(holds(&recorded(lines.clone()), "low"), [(20, Some(20), Some(500)), (500, None, None)]);
    lines.push(released(700, "low", 500, "Finished"));
    let ended = recorded(lines);
    assert_eq!(holds(&ended, "low"), [(20, Some(20), Some(500)), (500, None, Some(700))]);
    assert!(ended.record.jobs[0].success);
}

#[test]
fn a_job_that_succeeded_stays_so_when_it_is_deleted() {
    let more = [
        released(430, "low", 20, "Finished"),
        line(430, "low", &json!({"what": "Finished", "reason": "Succeeded"})),
        released(440, "low", 20, "Deleted"),
        line(440, "low", &json!({"what": "Deleted"})),
    ];
    let day = recorded(begun().into_iter().chain(more).collect());
    let job = &day.record.jobs[0];
    assert!(job.success, "{job:?}");
    assert_eq!(holds(&day, "low"), [(20, Some(20), Some(430))]);
}

#[test]
fn a_job_that_ran_through_the_whole_day_is_known_from_the_lines_after_it() {
    let since = |at: i64| json!(time(at).to_string());
    let released =
        json!({"what": "Released", "since": since(-50), "outcome": "Finished", "usage": usage("3")});
    let resized = json!({"what": "Resized", "since": since(-40), "before": usage("2"), "usage": usage("1")});
    let day = recorded(vec![
        line(2000, "long", &released),
        line(2000, "shrunk", &resized),
        line(
            3000,
            "shrunk",
            &json!({"what": "Released", "since": since(-40), "outcome": "Finished", "usage": usage("1")}),
        ),
        line(
            4000,
            "checked",
            &json!({"what": "Holding", "since": since(900), "admitted": since(1500), "usage": usage("1")}),
        ),
        line(4000, "later", &json!({"what": "Holding", "since": since(1200), "usage": usage("1")})),
        quota(2500, "8"),
    ]);
    assert_eq!(holds(&day, "long"), [(-50, Some(-50), None)]);
    assert_eq!(holds(&day, "shrunk"), [(-40, Some(-40), None)]);
    assert_eq!(day.record.jobs[1].holds[0].holdings[0].amount, 2000);
    assert_eq!(holds(&day, "checked"), [(900, None, None)]);
    assert_eq!(day.record.jobs.len(), 3);
    let queue = &Report::new(&day.record, day.end, 0, Vec::new()).queues[0];
    // 3 and 2 of 8 through the day, and 1 for its last tenth.
    assert_eq!(queue.usage[0].utilisation, Some(63.8));
}

#[test]
fn what_waits_for_its_checks_did_not_run_although_it_held_quota() {
    let since = json!(time(20).to_string());
    let day = recorded(vec![
        line(500, "low", &json!({"what": "Holding", "since": since, "usage": usage("2")})),
        line(600, "low", &json!({"what": "Evicted", "reason": "AdmissionCheck", "message": "no"})),
        line(
            600,
            "low",
            &json!({"what": "Released", "since": since, "outcome": "Evicted", "reason": "AdmissionCheck", "usage": usage("2")}),
        ),
    ]);
    let lines =
        ["20 low submitted", "20 low reserved by cq: cpu=spot (2)", "600 low evicted AdmissionCheck: no"];
    assert_eq!(reported(&day), lines);
    assert_eq!((holds(&day, "low"), day.record.jobs[0].lost), (vec![(20, None, Some(600))], 0));
}

#[test]
fn the_quota_before_its_first_change_is_what_that_says() {
    let with = |line: Line, more: &Value| {
        let mut line = serde_json::to_value(line).unwrap();
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(line).unwrap()
    };
    let quotas = |lines: Vec<Line>| {
        let changes = recorded(lines).record.quotas;
        changes
            .iter()
            .map(|change| (change.at / 1000, change.nominal.first().map_or(0, |one| one.amount / 1000)))
            .collect::<Vec<_>>()
    };
    let changed = with(quota(300, "8"), &json!({"before": usage("4")}));
    assert_eq!(quotas(vec![changed]), [(0, 4), (300, 8)]);
    let made = with(quota(300, "8"), &json!({"before": {}, "created": time(300).to_string()}));
    assert_eq!(quotas(vec![made]), [(300, 8)]);
    let listed_later = with(quota(5000, "8"), &json!({"created": time(300).to_string()}));
    assert_eq!(quotas(vec![listed_later]), [(300, 8)]);
    let made_later = with(quota(5000, "8"), &json!({"created": time(4000).to_string()}));
    assert_eq!(quotas(vec![made_later]), []);
}

#[test]
fn a_record_that_is_cut_is_that_of_a_shorter_day() {
    let whole = recorded(life());
    for end in [5, 10, 22, 27, 126, 130, 250, 430, 500, 700, 1000] {
        let mut cut = whole.record.clone();
        cut.cut(end * 1000);
        let shorter = Recorded::new(life(), time(0), time(end)).record;
        let of = |record: &Record| {
            let jobs = record.jobs.iter().map(|job| {
                let waits = job.waits_for.clone().filter(|_| job.admitted.is_none());
                format!(
                    "{:?}",
                    (
                        job.key(),
                        job.submitted,
                        job.admitted,
                        job.finished,
                        job.success,
                        &job.holds,
                        job.preempted,
                        job.preempts,
                        job.lost,
                        waits
                    )
                )
            });
            (
                jobs.collect::<Vec<_>>(),
                record.entries.clone(),
                record.quotas.iter().map(|change| change.at).collect::<Vec<_>>(),
            )
        };
        assert_eq!(of(&cut), of(&shorter), "{end}");
    }
}

#[test]
fn what_was_preempted_and_lost_before_the_beginning_does_not_count() {
    let since = |second: i64| {
        let day = Recorded::new(life(), time(second), time(1000));
        let jobs = day.record.jobs.iter();
        let reported_day =
            jobs.map(|job| (job.name.to_string(), job.preempted, job.preempts, job.lost / 1000)).collect();
        let reported_day: Vec<(String, u32, u32, i64)> = reported_day;
        (reported_day, Report::new(&day.record, day.end, 0, Vec::new()).totals.preemptions)
    };
    let of = |name: &str, preempted, preempts, lost| (name.to_owned(), preempted, preempts, lost);
    // The one is preempted after 125 s and evicted after 700 s, and the other one fails after 430 s.
    assert_eq!(since(100), (vec![of("low", 1, 0, 100 + 200), of("high", 0, 1, 300)], 1));
    assert_eq!(since(200), (vec![of("low", 0, 0, 200), of("high", 0, 0, 300)], 0));
    assert_eq!(since(500), (vec![of("low", 0, 0, 200)], 0));
}

#[test]
fn what_was_deactivated_does_not_count_as_waiting_until_it_is_active_again() {
    let pending =
        |at: i64, reason: &str| line(at, "w", &json!({"what": "Pending", "reason": reason, "message": ""}));
    let waiting = |lines: &[Line]| {
        Report::new(&recorded(lines.to_vec()).record, 1_000_000, 0, Vec::new()).totals.waiting
    };
    let lines = [pending(10, "Pending"), pending(20, "Deactivated"), pending(30, "Pending")];
    assert_eq!([1, 2, 3].map(|count| waiting(&lines[..count])), [1, 0, 1]);
}

#[test]
fn a_queue_is_stopped_as_long_as_the_journal_says() {
    let stops = |lines: Vec<Line>| {
        let day = recorded(lines);
        let reported_day = reported(&day);
        let changes = day.record.quotas.iter().map(|change| (change.at / 1000, change.stopped));
        (changes.collect::<Vec<_>>(), reported_day)
    };
    let said = |at: i64, policy: &str| {
        format!("{at} - scenario patch ClusterQueue cq: {{\"spec\":{{\"stopPolicy\":\"{policy}\"}}}}")
    };
    let (hold, none) = ("Hold", "None");
    // It continues with the policy None; a policy that stops it in another way is no new stop.
    let lines =
        vec![quota(0, "4"), stop(100, hold, none), stop(150, "HoldAndDrain", hold), stop(200, none, hold)];
    assert_eq!(
        stops(lines),
        (vec![(0, false), (100, true), (200, false)], vec![said(100, hold), said(200, none)])
    );
    // What it was before the first line, and before a line of later, is in those.
    assert_eq!(stops(vec![stop(300, none, hold)]), (vec![(0, true), (300, false)], vec![said(300, none)]));
    assert_eq!(stops(vec![stop(2000, none, hold)]), (vec![(0, true)], vec![]));
    assert_eq!(stops(vec![stop(2000, hold, none)]), (vec![(0, false)], vec![]));
}
