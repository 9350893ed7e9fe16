//! The engine is dropped after each write, and a new one continues from the API objects alone: the end is the same.

mod model;

use model::build::job;
use model::{Cluster, condition, reported};
use serde_json::{Value, json};
use sluice_api::job::JobView;
use sluice_engine::{Kind, ObjectRef, Purpose, WriteError};

/// What users do, one after the other: two jobs, the second of which preempts the first; the first runs again when the second is done.
const PLAY: [fn(&mut Cluster); 3] = [
    |c| c.api.add_job(of_class("low")),
    |c| c.api.add_job(of_class("high")),
    |c| c.api.finish_job("high", true),
];

/// A job of the class of the same name, which takes all quota.
fn of_class(name: &str) -> JobView {
    let mut view = job("team-a", name, "lq", 3, "1");
    view.workload_priority_class = Some(name.to_owned());
    view
}

/// Plays the rest of the play.
fn play(c: &mut Cluster, rest: &[fn(&mut Cluster)]) {
    for act in rest {
        act(c);
        c.settle();
    }
    c.advance(400);
}

/// An engine has nothing that outlives it but its writes, so a cut of this play begins with a copy of what the API server had then, and the play
/// before it is played once for all of them.
#[test]
fn a_cut_after_any_write_leads_to_the_same_end() {
    let mut whole = Cluster::plain();
    whole.api.priority_class("low", 100);
    whole.api.priority_class("high", 1000);
    whole.api.simple("3", &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}));
    let mut cuts = Vec::new();
    let mut played = |acts: usize, act: &dyn Fn(&mut Cluster)| {
        whole.before_writes = Some(Vec::new());
        act(&mut whole);
        cuts.extend(whole.before_writes.take().into_iter().flatten().map(|api| (api, acts)));
    };
    for (before, act) in PLAY.iter().enumerate() {
        played(before + 1, &|c| {
            act(c);
            c.settle();
        });
    }
    played(PLAY.len(), &|c| c.advance(400));
    cuts.push((whole.api.clone(), PLAY.len()));
    assert!(cuts.len() > 13, "the play is long enough to be cut: {}", cuts.len());
    assert_eq!(whole.writes.len(), cuts.len() - 1, "it is cut at each write");
    for (cut, (api, played)) in cuts.into_iter().enumerate() {
        let mut c = Cluster::of(whole.config.clone(), api);
        c.settle();
        play(&mut c, &PLAY[played..]);
        assert_eq!(condition(&c.workload("high"), "Finished"), "True", "cut after {cut}");
        let low = c.workload("low");
        assert_eq!(condition(&low, "Admitted"), "True", "cut after {cut}");
        assert_ne!(condition(&low, "Evicted"), "True", "cut after {cut}");
        assert!(!c.api.job("low").view.suspended, "cut after {cut}");
        assert_eq!(c.api.workloads().len(), 2, "cut after {cut}");
    }
}

#[test]
fn a_list_that_is_older_than_our_own_writes_takes_nothing_away() {
    let mut c = Cluster::plain();
    c.api.simple("1", &json!({}));
    let before = c.api.revision();
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    assert_eq!(condition(&c.workload("a"), "Admitted"), "True");
    let writes = c.writes.len();
    c.list(Kind::Workload, Vec::new(), before);
    c.api.add_job(job("team-a", "b", "lq", 1, "1"));
    c.settle();
    assert_eq!(c.written(Purpose::CreateWorkload), 2, "one of each: {:?}", &c.writes[writes..]);
    assert!(c.api.job("b").view.suspended, "the quota is not free");
}

#[test]
fn what_a_list_lacks_is_gone_if_it_does_not_exist() {
    for newer in [true, false] {
        let mut c = Cluster::plain();
        c.api.simple("0", &json!({}));
        c.api.add_job(job("team-a", "a", "lq", 1, "1"));
        c.settle();
        let workload = c.api.names(Kind::Workload).swap_remove(0);
        c.api.vanish(&workload);
        let revision = if newer { c.api.revision() } else { 0 };
        c.list(Kind::Workload, Vec::new(), revision);
        c.settle();
        assert_eq!(c.written(Purpose::CreateWorkload), 2, "it is made again");
    }
}

/// Another engine leads while the former one's reservation for `late` is still under way, of a queue with quota for one. Both have given
/// `late` the same reason before, so that nothing but that reservation changes it.
fn reservation_under_way(queue: &Value) -> Cluster {
    let mut c = Cluster::plain();
    c.api.priority_class("high", 1000);
    c.api.simple("1", queue);
    for name in ["first", "late"] {
        c.api.add_job(job("team-a", name, "lq", 1, "1"));
        c.settle();
    }
    c.slow = Some(Purpose::ReserveQuota);
    c.api.finish_job("first", true);
    c.settle();
    c
}

/// A job goes before `late` with the next engine.
fn go_before(c: &mut Cluster, name: &str, cpu: &str) {
    let mut view = job("team-a", name, "lq", 1, cpu);
    view.workload_priority_class = Some("high".to_owned());
    c.api.add_job(view);
    c.settle();
    c.slow = None;
    c.restart();
    c.settle();
}

#[test]
fn a_late_reservation_of_a_former_leader_is_taken_back_if_its_quota_was_given_away() {
    let mut c = reservation_under_way(&json!({}));
    go_before(&mut c, "other", "1");
    assert_eq!(condition(&c.workload("other"), "Admitted"), "True");
    c.arrive();
    assert_eq!(condition(&c.workload("late"), "Admitted"), "True", "both hold the same quota");
    c.settle();
    let late = c.workload("late");
    assert!(
        reported(&late, "QuotaReserved").starts_with("False/WaitingForQuota: "),
        "{}",
        reported(&late, "QuotaReserved")
    );
    assert_eq!(condition(&late, "Admitted"), "False");
    assert!(c.api.job("late").view.suspended);
    assert!(!c.api.job("other").view.suspended);
    let started =
        |c: &Cluster| c.writes.iter().filter(|(o, p)| &*o.name == "late" && *p == Purpose::StartJob).count();
    assert_eq!(started(&c), 0, "it was taken back before it ran");

    c.api.finish_job("other", true);
    c.settle();
    assert_eq!(condition(&c.workload("late"), "Admitted"), "True");
    assert_eq!(started(&c), 1);
}

#[test]
fn a_late_reservation_of_our_own_is_taken_back_if_its_quota_was_given_away() {
    let mut c = reservation_under_way(&json!({}));
    let mut other = job("team-a", "other", "lq", 1, "1");
    other.workload_priority_class = Some("high".to_owned());
    c.api.add_job(other);
    c.settle();
    assert!(c.api.job("other").view.suspended, "it is not known what became of the reservation");
    // The API server has it still, and a read shows nothing of it yet.
    c.time_out();
    assert_eq!(condition(&c.workload("other"), "Admitted"), "True");
    c.arrive();
    assert_eq!(condition(&c.workload("late"), "Admitted"), "True", "both hold the same quota");
    c.settle();
    assert!(c.api.job("late").view.suspended && !c.api.job("other").view.suspended);
    // Its writes failed: the next one waits.
    c.advance(10);
    assert_eq!(condition(&c.workload("late"), "QuotaReserved"), "False");
    assert!(c.api.job("late").view.suspended);
}

#[test]
fn a_late_reservation_whose_taking_back_fails_does_not_start_its_job_meanwhile() {
    let mut c = reservation_under_way(&json!({}));
    go_before(&mut c, "other", "1");
    c.arrive();
    c.fail.push_back((Purpose::ReleaseQuota, WriteError::Transient("no answer came".to_owned())));
    c.settle();
    assert_eq!(condition(&c.workload("late"), "Admitted"), "True");
    assert!(c.api.job("late").view.suspended);
    c.advance(5);
    assert_eq!(condition(&c.workload("late"), "QuotaReserved"), "False");
    assert!(c.api.job("late").view.suspended);
}

#[test]
fn a_late_reservation_of_a_former_leader_that_fits_is_taken() {
    let mut c = reservation_under_way(&json!({"queueingStrategy": "StrictFIFO"}));
    go_before(&mut c, "too-big", "2");
    assert!(c.api.job("late").view.suspended, "it is not its turn");
    c.arrive();
    c.settle();
    assert_eq!(condition(&c.workload("late"), "Admitted"), "True");
    assert!(!c.api.job("late").view.suspended);
}

#[test]
fn what_holds_quota_when_a_leader_begins_keeps_it_though_quota_shrank() {
    let mut c = reservation_under_way(&json!({}));
    c.arrive();
    c.api.simple("0", &json!({}));
    c.restart();
    c.settle();
    assert_eq!(condition(&c.workload("late"), "Admitted"), "True");
    assert!(!c.api.job("late").view.suspended);
}

#[test]
fn our_own_reservation_is_not_taken_back_because_its_answer_was_lost_and_quota_shrank() {
    let mut c = Cluster::plain();
    c.api.simple("1", &json!({}));
    c.lost = Some(Purpose::ReserveQuota);
    c.fail.push_back((Purpose::Read, WriteError::Transient("not reached".to_owned())));
    c.api.add_job(job("team-a", "a", "lq", 1, "1"));
    c.settle();
    assert!(c.api.job("a").view.suspended, "it is not known yet that it was carried out");
    c.api.simple("0", &json!({}));
    c.advance(10);
    assert_eq!(condition(&c.workload("a"), "Admitted"), "True");
    assert!(!c.api.job("a").view.suspended);
}

#[test]
fn a_job_that_a_former_leader_starts_late_is_stopped_if_its_quota_was_given_away() {
    let mut c = Cluster::plain();
    c.api.priority_class("high", 1000);
    c.api.simple("1", &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}));
    c.slow = Some(Purpose::StartJob);
    c.api.add_job(job("team-a", "late", "lq", 1, "1"));
    c.settle();
    // The next leader does not get to start it, and preempts it.
    c.fail.push_back((Purpose::StartJob, WriteError::Refused("not now".to_owned())));
    go_before(&mut c, "other", "1");
    c.advance(10);
    assert_eq!(condition(&c.workload("other"), "Admitted"), "True");
    c.arrive();
    assert!(!c.api.job("late").view.suspended, "two jobs run with the quota of one");
    c.settle();
    assert!(c.api.job("late").view.suspended);
    assert!(!c.api.job("other").view.suspended);
    assert_eq!(c.notes("Started").len(), 1, "no event reports a start that was none");

    c.api.finish_job("other", true);
    c.advance(400);
    assert!(!c.api.job("late").view.suspended);
    assert_eq!(c.notes("Started").len(), 2);
}

/// A job that is admitted and not started yet, and its eviction by a former leader that is still under way when the next one has listed.
fn eviction_under_way() -> Cluster {
    let mut c = Cluster::plain();
    c.api.priority_class("high", 1000);
    c.api.simple("1", &json!({"preemption": {"withinClusterQueue": "LowerPriority"}}));
    c.fail.push_back((Purpose::StartJob, WriteError::Refused("not now".to_owned())));
    c.api.add_job(job("team-a", "low", "lq", 1, "1"));
    c.settle();
    assert_eq!(condition(&c.workload("low"), "Admitted"), "True");
    c.slow = Some(Purpose::Evict);
    let mut high = job("team-a", "high", "lq", 1, "1");
    high.workload_priority_class = Some("high".to_owned());
    c.api.add_job(high);
    c.settle();
    c.slow = None;
    c.restart();
    c
}

#[test]
fn a_job_that_a_former_leader_evicts_late_is_not_started() {
    let mut c = eviction_under_way();
    let starts = |c: &Cluster| {
        let of_low = |(object, purpose): &&(ObjectRef, Purpose)| {
            &*object.name == "low" && *purpose == Purpose::StartJob
        };
        c.writes.iter().filter(of_low).count()
    };
    let before = starts(&c);
    c.arrive();
    // Its watch shows the eviction later.
    c.blind = Some(Kind::Workload);
    c.settle();
    assert_eq!(starts(&c), before);
    assert!(c.api.job("low").view.suspended);
    assert!(!c.api.job("high").view.suspended, "its quota is given to the other");
}

#[test]
fn a_job_that_a_former_leader_admitted_starts_once_its_workload_can_be_read() {
    for error in [WriteError::Transient("not reached".to_owned()), WriteError::NotFound("it went".to_owned())]
    {
        let mut c = Cluster::plain();
        c.api.simple("1", &json!({}));
        c.fail.push_back((Purpose::StartJob, WriteError::Refused("not now".to_owned())));
        c.api.add_job(job("team-a", "a", "lq", 1, "1"));
        c.settle();
        c.restart();
        c.fail.push_back((Purpose::Read, error.clone()));
        c.settle();
        assert!(c.api.job("a").view.suspended, "{error:?}");
        c.advance(10);
        if matches!(error, WriteError::Transient(_)) {
            assert!(!c.api.job("a").view.suspended);
        }
    }
}
