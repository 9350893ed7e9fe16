//! Which write may be sent next, with a simulated clock.

use std::sync::Arc;

use futures::FutureExt as _;
use sluice_api::job::JobKind;
use sluice_engine::input::Kind;
use tokio::sync::watch;

use super::super::sending::{LONG, Outcome, Progress, Request};
use super::super::traffic::Numbers;
use super::*;

const JOB: Kind = Kind::Job(JobKind::JOB);
const JOB_SETS: Kind = Kind::Job(JobKind::JOB_SET);
const SHORT: Duration = Duration::from_secs(2);

fn object(kind: Kind, namespace: &str, at: usize) -> ObjectRef {
    ObjectRef::namespaced(kind, namespace, format!("o{at}").as_str())
}

/// Numbers of writes that are under way, by kind and namespace; and when they were sent.
fn pending(of: &[(Kind, &str, usize)]) -> (PendingWrites, Instant) {
    let (mut writes, began) = (PendingWrites::default(), Instant::now());
    for (kind, namespace, count) in of {
        for at in 0..*count {
            begin(&mut writes, object(*kind, namespace, at), began);
        }
    }
    (writes, began)
}

fn begin(writes: &mut PendingWrites, object: ObjectRef, began: Instant) {
    let progress = watch::channel(Progress { since: Some(began), ..Progress::default() }).1;
    let under_way = UnderWay { progress, given_up: watch::Sender::new(None) };
    writes.insert(object, Class::Jobs, Patience::Usual, under_way);
}

/// A write in a namespace without a dead webhook was answered soon.
fn answered(writes: &mut PendingWrites, traffic: &Traffic, kind: Kind, sent: Instant) {
    traffic.answered(kind, false, sent, Duration::ZERO);
    let request = Request { sent, outcome: Outcome::Soon, reads: false };
    writes.suspects.learn(&object(kind, "live", 0).group(), request, Patience::Usual, sent);
}

/// Whether a write of a group may go, if it is the only one.
fn may_go(writes: &PendingWrites, free: &FreePlaces, kind: Kind, namespace: &str) -> bool {
    may_go_on(writes, free, object(kind, namespace, 99))
}

fn may_go_on(writes: &PendingWrites, free: &FreePlaces, object: ObjectRef) -> bool {
    let mut lanes = Lanes::default();
    lanes.push(object, Class::Jobs, ());
    let mut free = FreePlaces {
        suspects: free.suspects,
        passed_over: free.passed_over.clone(),
        finds_out: free.finds_out,
        ..FreePlaces::default()
    };
    writes.next(&mut free, &mut lanes, (Instant::now(), Duration::ZERO), Class::Reports).is_some()
}

#[test]
fn a_server_that_is_slow_for_all_gets_no_more_than_a_quarter_beyond_the_limit() {
    let traffic = Traffic::default();
    for (count, places) in [(7, 1), (8, 1), (9, 1), (10, 0)] {
        let (mut writes, began) = pending(&[(Kind::Workload, "a", count)]);
        let free = writes.free_places(began + LONG, 0, &traffic);
        assert_eq!((free.places, free.sent, free.hanging), (places, count, 0));
        let probes = (8..10).contains(&count);
        assert_eq!(!may_go(&writes, &free, Kind::Workload, "a"), probes, "others show more");
        assert!(may_go(&writes, &free, Kind::Workload, "b"));
    }
    let (mut writes, began) = pending(&[(Kind::Workload, "a", 8)]);
    let free = writes.free_places(began, 0, &traffic);
    assert_eq!((free.places, free.again), (0, Some(began + LONG)));
}

#[test]
fn what_hangs_shares_a_quarter_of_the_places_and_gets_no_more() {
    let traffic = Traffic::default();
    let (mut writes, began) = pending(&[(Kind::Workload, "dead", 6), (JOB_SETS, "a", 1), (JOB_SETS, "b", 1)]);
    for kind in [Kind::Workload, JOB] {
        answered(&mut writes, &traffic, kind, began + Duration::from_millis(1));
    }
    let free = writes.free_places(began + LONG, 0, &traffic);
    assert_eq!((free.places, free.sent, free.hanging), (6, 8, 6), "2 of 8 are left to them");
    assert_eq!(free.again, Some(began + SHORT), "then the others are given up");
    assert!(!may_go(&writes, &free, Kind::Workload, "dead"));
    assert!(may_go(&writes, &free, Kind::Workload, "a"), "their tenant's webhook hangs");
    assert!(!may_go(&writes, &free, JOB_SETS, "c"), "that of their kind hangs");
    assert!(may_go(&writes, &free, Kind::Job(JobKind::JOB), "a"));
}

#[test]
fn what_was_answered_shows_that_others_hang_while_the_answer_waits_for_the_engine() {
    let traffic = Traffic::default();
    let (mut writes, began) = pending(&[(Kind::Workload, "dead", 6)]);
    let sent = began + Duration::from_millis(1);
    let last = Some(Request { sent, outcome: Outcome::Soon, reads: false });
    let progress = watch::channel(Progress { last, pauses: true, ..Progress::default() }).1;
    let under_way = UnderWay { progress, given_up: watch::Sender::new(None) };
    let live = object(Kind::Workload, "live", 0);
    writes.insert(live.clone(), Class::Jobs, Patience::Usual, under_way);
    traffic.answered(Kind::Workload, false, sent, Duration::ZERO);
    for paused in [1, 0] {
        let free = writes.free_places(began + LONG, paused, &traffic);
        assert_eq!((free.places, free.sent, free.hanging), (6, 6, 4));
        assert!(!may_go(&writes, &free, Kind::Workload, "dead"));
        assert!(may_go(&writes, &free, Kind::Workload, "live"));
        writes.remove(&live, began + LONG);
    }
}

#[test]
fn only_reports_that_pause_make_room_for_reports() {
    let (mut writes, _) = pending(&[]);
    for (at, class) in [Class::Ends, Class::Ends, Class::Reports].into_iter().enumerate() {
        let progress = watch::channel(Progress { pauses: true, ..Progress::default() }).1;
        let under_way = UnderWay { progress, given_up: watch::Sender::new(None) };
        writes.insert(object(JOB, "a", at), class, Patience::Usual, under_way);
    }
    assert_eq!(writes.free_places(Instant::now(), 3, &Traffic::default()).idle_reports, 1);
}

#[test]
fn one_that_hangs_keeps_only_those_of_its_namespace_and_kind_waiting() {
    let traffic = Traffic::default();
    let (mut writes, began) = pending(&[(JOB_SETS, "dead", 1)]);
    answered(&mut writes, &traffic, JOB, began + Duration::from_millis(1));
    let free = writes.free_places(began + LONG, 0, &traffic);
    assert_eq!((free.places, free.hanging, free.again), (7, 0, None));
    assert!(!may_go(&writes, &free, JOB_SETS, "dead"));
    assert!(may_go(&writes, &free, JOB_SETS, "a"));
    assert!(may_go(&writes, &free, Kind::Workload, "dead"));
}

#[test]
fn what_a_dead_webhook_holds_back_does_not_wait_for_the_api_server() {
    let traffic = Traffic::default();
    let (mut writes, began) = pending(&[(JOB_SETS, "dead", 2)]);
    begin(&mut writes, object(JOB, "live", 0), began + LONG);
    let holds = |writes: &PendingWrites, free: &FreePlaces| {
        [(JOB_SETS, "dead"), (JOB, "live")].map(|(kind, ns)| writes.holds(free, &object(kind, ns, 9).group()))
    };
    let free = writes.free_places(began + LONG, 0, &traffic);
    assert_eq!((free.at_work, holds(&writes, &free)), (3, [false, false]), "the server may be slow");
    answered(&mut writes, &traffic, JOB, began + Duration::from_millis(1));
    let free = writes.free_places(began + LONG, 0, &traffic);
    assert_eq!((free.at_work, holds(&writes, &free)), (1, [true, false]));
}

/// Pods that jobs left behind are looked for in a namespace, and deleted there: a webhook of its tenant's may be asked about that.
#[test]
fn what_hangs_in_one_namespace_keeps_none_in_another_waiting() {
    let traffic = Traffic::default();
    let (mut writes, began) = pending(&[]);
    begin(&mut writes, ObjectRef::cluster(Kind::Namespace, "dead"), began);
    answered(&mut writes, &traffic, JOB, began + Duration::from_millis(1));
    let free = writes.free_places(began + LONG, 0, &traffic);
    assert!(!may_go_on(&writes, &free, ObjectRef::cluster(Kind::Namespace, "dead")));
    assert!(may_go_on(&writes, &free, ObjectRef::cluster(Kind::Namespace, "a")));
}

/// The pool on a server on which some namespaces' webhooks are dead.
struct Pool {
    writes: PendingWrites,
    lanes: Lanes<ObjectRef, Instant>,
    traffic: Traffic,
    sent: Vec<Sent>,
    began: Instant,
    now: Instant,
    /// Names of new objects.
    number: usize,
    /// By namespace: how long the last write that was sent had waited, and when it was.
    waited: BTreeMap<Arc<str>, (Duration, Instant)>,
    most: usize,
    reads: BTreeSet<ObjectRef>,
    /// How many were answered after long.
    slow: usize,
    /// How many were given up for others.
    given_up: usize,
}

struct Sent {
    object: ObjectRef,
    at: Instant,
    timeout: Duration,
    progress: watch::Sender<Progress>,
    given_up: watch::Receiver<Option<Instant>>,
}

const STEP: Duration = Duration::from_millis(50);
const TIMEOUT: Duration = Duration::from_secs(15);

impl Pool {
    fn new() -> Self {
        let now = Instant::now();
        Self {
            writes: PendingWrites::default(),
            lanes: Lanes::default(),
            traffic: Traffic::default(),
            sent: Vec::new(),
            began: now,
            now,
            number: 0,
            waited: BTreeMap::new(),
            most: 0,
            reads: BTreeSet::new(),
            slow: 0,
            given_up: 0,
        }
    }

    fn write(&mut self, kind: Kind, namespace: &str) {
        self.write_of(Class::Jobs, kind, namespace);
    }

    fn write_of(&mut self, class: Class, kind: Kind, namespace: &str) {
        self.number += 1;
        self.lanes.push(object(kind, namespace, self.number), class, self.now);
    }

    /// Something is read that a webhook is not asked about.
    fn read(&mut self, kind: Kind, namespace: &str) {
        self.write(kind, namespace);
        self.reads.insert(object(kind, namespace, self.number));
    }

    /// One step of time; the objects whose writes are over.
    fn step(&mut self, hangs: impl Fn(&ObjectRef) -> bool) -> Vec<ObjectRef> {
        self.step_with(|object| (!hangs(object)).then_some(Duration::ZERO))
    }

    /// The same, on a server that answers a write after so long, or never.
    fn step_with(&mut self, answers: impl Fn(&ObjectRef) -> Option<Duration>) -> Vec<ObjectRef> {
        self.now += STEP;
        let (now, mut over) = (self.now, Vec::new());
        self.sent.retain(|one| {
            let (age, reads) = (now - one.at, self.reads.contains(&one.object));
            let for_others = *one.given_up.borrow() == Some(one.at);
            let kind = one.object.kind;
            let after = if reads { Some(Duration::ZERO) } else { answers(&one.object) };
            let outcome = match after {
                Some(after) if age >= after => {
                    let alone = one.timeout < TIMEOUT || self.traffic.is_overtaken(kind, one.at);
                    Outcome::of_answer(age, self.traffic.long(), alone)
                }
                _ if for_others || age >= one.timeout => Some(Outcome::Hung),
                _ => return true,
            };
            match outcome {
                None | Some(Outcome::Soon) => self.traffic.answered(kind, reads, one.at, age),
                Some(Outcome::Late | Outcome::Slow) => self.traffic.heard(now),
                Some(Outcome::Hung) => self.given_up += usize::from(for_others),
            }
            self.slow += usize::from(outcome == Some(Outcome::Slow));
            let last = outcome.map(|outcome| Request { sent: one.at, outcome, reads });
            one.progress.send_replace(Progress { last, ..Progress::default() });
            self.writes.remove(&one.object, now);
            self.lanes.done(&one.object);
            over.push(one.object.clone());
            false
        });
        let mut free = self.writes.free_places(now, 0, &self.traffic);
        while free.places > 0 {
            let at = (now, now - self.began);
            let next = self.writes.next(&mut free, &mut self.lanes, at, Class::Reports);
            let Some(Next { object, class, item: since, patience }) = next else { break };
            let timeout = if patience == Patience::Little { self.traffic.short() } else { TIMEOUT };
            let (progress, given_up) = (
                watch::Sender::new(Progress { since: Some(now), ..Progress::default() }),
                watch::Sender::new(None),
            );
            let under_way = UnderWay { progress: progress.subscribe(), given_up: given_up.clone() };
            self.writes.insert(object.clone(), class, patience, under_way);
            self.waited.insert(Arc::clone(&object.namespace), (now - since, now));
            self.sent.push(Sent { object, at: now, timeout, progress, given_up: given_up.subscribe() });
        }
        self.traffic.set(&Numbers {
            in_flight: free.sent,
            hanging: free.hanging,
            waiting: self.lanes.waiting(),
            ..Numbers::default()
        });
        self.most = self.most.max(self.sent.len());
        over
    }
}

#[test]
fn what_is_read_where_writes_hang_gives_these_no_more_places() {
    let mut pool = Pool::new();
    pool.write(Kind::Workload, "live");
    for _ in 0..40 {
        pool.write(Kind::Workload, "dead");
    }
    let hangs = |object: &ObjectRef| &*object.namespace == "dead";
    for step in 0..Duration::from_mins(5).as_millis() / STEP.as_millis() {
        for over in pool.step(hangs) {
            let reads = pool.reads.remove(&over);
            match &*over.namespace {
                // What came to nothing is read, and asked for again.
                "dead" if !reads => pool.read(Kind::Workload, "dead"),
                namespace => pool.write(Kind::Workload, namespace),
            }
        }
        let hanging = pool.sent.iter().filter(|one| hangs(&one.object)).count();
        // The first ones keep their share of the places for as long as a request may take.
        let is_over = STEP * u32::try_from(step).unwrap() > TIMEOUT + SHORT;
        assert!(!is_over || hanging <= 1, "{hanging} in step {step}");
    }
}

#[test]
fn a_webhook_that_is_slow_has_its_time_beside_a_dead_one_even_with_few_places() {
    let mut pool = Pool::new();
    pool.traffic.refused(pool.now);
    assert_eq!(pool.traffic.limit() / 4, 1);
    pool.write(Kind::Workload, "live");
    pool.step(|_| false);
    for _ in 0..40 {
        pool.write(Kind::Workload, "dead");
    }
    pool.write(Kind::Workload, "slow");
    let answers = |object: &ObjectRef| match &*object.namespace {
        "dead" => None,
        "slow" => Some(Duration::from_secs(3)),
        // Nothing says that more could go at once.
        _ => Some(STEP),
    };
    pool.write(Kind::Workload, "live");
    for _ in 0..Duration::from_mins(10).as_millis() / STEP.as_millis() {
        // What came to nothing is asked for again, and the live one continues.
        for over in pool.step_with(answers) {
            pool.write(Kind::Workload, &over.namespace);
        }
        assert!(pool.traffic.limit() / 4 <= 1);
    }
    assert!(pool.slow > 0, "it was never written");
}

/// Sluice's own webhook is slow, or the machine is busy: that is no dead webhook of a tenant's, whatever else is answered soon.
#[test]
fn workloads_that_are_slow_in_all_namespaces_have_the_places_of_others() {
    let (slow, soon) = (STEP * 24, STEP);
    for some_are_soon in [false, true] {
        let mut pool = Pool::new();
        for second in 0..2 {
            pool.traffic.refused(pool.now + LONG * second);
        }
        let limit = pool.traffic.limit();
        assert_eq!(limit, 4);
        for _ in 0..200 {
            for namespace in ["a", "b"] {
                pool.write_of(Class::Admissions, Kind::Workload, namespace);
            }
        }
        // Its status is written all the time, and no webhook is asked about that.
        pool.write(Kind::LocalQueue, "a");
        let answers = |object: &ObjectRef| match object.kind {
            Kind::LocalQueue => Some(soon),
            _ if some_are_soon && object.name.ends_with('7') => Some(soon),
            _ => Some(slow),
        };
        let (time, mut written) = (Duration::from_secs(30), 0);
        for _ in 0..time.as_millis() / STEP.as_millis() {
            for over in pool.step_with(answers) {
                match over.kind {
                    Kind::LocalQueue => pool.write(Kind::LocalQueue, "a"),
                    _ => written += 1,
                }
            }
        }
        let least = time.as_millis() / slow.as_millis() * u128::try_from(limit - 1).unwrap();
        assert!(written >= least, "{written} of at least {least} were written, some soon: {some_are_soon}");
        assert_eq!(pool.given_up, 0, "some soon: {some_are_soon}");
    }
}

#[test]
fn a_webhook_that_is_slow_on_all_jobs_has_the_share_of_those_that_hang() {
    let mut pool = Pool::new();
    for _ in 0..400 {
        pool.write(JOB_SETS, "a");
    }
    pool.write(Kind::Workload, "a");
    let slow = LONG * 3;
    let answers = |object: &ObjectRef| Some(if object.kind == Kind::Workload { STEP } else { slow });
    let time = Duration::from_mins(2);
    for _ in 0..time.as_millis() / STEP.as_millis() {
        for over in pool.step_with(answers) {
            if over.kind == Kind::Workload {
                pool.write(Kind::Workload, "a");
            }
        }
    }
    // After the first ones, which are given up before it is known that they would be answered.
    let one_at_a_time = time.as_millis() / slow.as_millis();
    let written = u128::try_from(pool.slow).unwrap();
    assert!(written > one_at_a_time + one_at_a_time / 4, "{written}, one at a time {one_at_a_time}");
}

/// What the webhooks of jobs review says nothing of Workloads.
#[test]
fn what_shows_whether_workloads_hang_is_sent_before_what_does_not() {
    let traffic = Traffic::default();
    let (mut writes, began) = pending(&[(Kind::Workload, "dead", 8)]);
    answered(&mut writes, &traffic, JOB, began + Duration::from_millis(1));
    let mut free = writes.free_places(began + LONG, 0, &traffic);
    assert_eq!((free.places, free.hanging), (1, 0), "it is not known");
    let mut lanes = Lanes::default();
    for (kind, class) in [(JOB, Class::Jobs), (Kind::Workload, Class::Admissions)] {
        lanes.push(object(kind, "live", 1), class, ());
    }
    let next = writes.next(&mut free, &mut lanes, (began + LONG, LONG), Class::Reports).unwrap();
    assert_eq!(next.object.kind, Kind::Workload);
    answered(&mut writes, &traffic, Kind::Workload, began + LONG);
    let free = writes.free_places(began + LONG, 0, &traffic);
    assert_eq!((free.places, free.hanging), (6, 6), "now it is");
}

#[test]
fn two_hundred_namespaces_that_hang_keep_one_that_does_not_waiting_for_two_seconds_at_most() {
    for (kind, live, all_were_well) in [
        (Kind::Workload, Kind::Workload, false),
        (Kind::Workload, Kind::Workload, true),
        (JOB_SETS, JOB_SETS, false),
        (JOB_SETS, JOB_SETS, true),
        // The webhook of the only kind of job in use is dead, or that of all pods.
        (JOB_SETS, Kind::Workload, false),
        (JOB_SETS, Kind::Workload, true),
        (Kind::Pod, Kind::Workload, false),
        (Kind::Pod, Kind::Workload, true),
    ] {
        let mut pool = Pool::new();
        let dead: Vec<String> = (0..200).map(|at| format!("dead-{at}")).collect();
        pool.write(live, "live");
        if all_were_well {
            for namespace in &dead {
                pool.write(kind, namespace);
            }
        }
        while !pool.lanes.is_idle() {
            pool.step(|_| false);
        }
        pool.write(live, "live");
        pool.step(|_| false);
        for namespace in &dead {
            for _ in 0..3 {
                pool.write(kind, namespace);
            }
        }
        let hangs = |object: &ObjectRef| &*object.namespace != "live";
        let (mut longest, mut answered) = (Duration::ZERO, 0);
        for _ in 0..Duration::from_mins(10).as_millis() / STEP.as_millis() {
            for over in pool.step(hangs) {
                // What came to nothing is asked for again, and the others continue.
                answered += usize::from(!hangs(&over));
                pool.write(over.kind, &over.namespace);
            }
            longest = longest.max(pool.waited["live"].0);
        }
        assert!(
            longest <= Duration::from_secs(2),
            "{kind:?} {live:?} {all_were_well}: it waited for {longest:?}"
        );
        assert!(answered > 5_000, "{kind:?} {live:?} {all_were_well}: {answered} writes in ten minutes");
        let asked = dead.iter().filter(|namespace| {
            let last = pool.waited.get(namespace.as_str());
            last.is_some_and(|(_, at)| pool.now - *at < Duration::from_mins(8))
        });
        // A kind's own dead webhook is asked about any of its namespaces.
        if kind != JOB_SETS || live == kind {
            assert_eq!(asked.count(), 200, "{kind:?} {live:?} {all_were_well}: each is asked now and then");
        }
        assert!(pool.most <= 128, "{} were under way", pool.most);

        for _ in 0..Duration::from_secs(10).as_millis() / STEP.as_millis() {
            pool.step(|_| false);
        }
        assert!(pool.lanes.is_idle(), "{kind:?} {live:?} {all_were_well}: once they are well, all goes soon");
    }
}

#[test]
fn new_writes_leave_the_next_places_to_those_that_pause_no_more() {
    let (mut writes, began) = pending(&[(JOB, "a", 6)]);
    let traffic = Traffic::default();
    let mut pausing = traffic.pause();
    traffic.set(&Numbers { begun: 9, in_flight: 8, ..Numbers::default() });
    let mut back = Box::pin(pausing.finds_slot());
    assert_eq!(back.as_mut().now_or_never(), None, "8 may be in flight");
    assert_eq!(writes.free_places(began, 0, &traffic).places, 1);
    drop(back);
    assert_eq!(writes.free_places(began, 0, &traffic).places, 2);
}
