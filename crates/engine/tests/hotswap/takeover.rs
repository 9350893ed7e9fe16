//! A replica that takes over while its watch of Workloads lags: it first learns the last admissions of its predecessor.

use jiff::SignedDuration;
use serde_json::json;
use sluice_api::job::JobKind;
use sluice_engine::{Effect, Engine, Input, Kind, ObjectRef, Purpose};

use crate::bed::Bed;
use crate::model::KINDS;

/// Gives an engine every object of one kind.
fn list(bed: &Bed, engine: &mut Engine, kind: Kind) {
    let present = bed.c.api.names(kind);
    for object in &present {
        engine.apply(bed.now(), Input::Applied(bed.c.api.seen(object)));
    }
    engine.apply(bed.now(), Input::Listed { kind, present, as_of: Some(bed.c.api.revision()) });
}

/// What an engine that leads from now on writes for a purpose. No write is answered.
fn writes(bed: &Bed, mut engine: Engine, purpose: Purpose) -> Vec<ObjectRef> {
    engine.apply(bed.now(), Input::Leader(true));
    let mut written = Vec::new();
    loop {
        for effect in engine.cycle(bed.now()) {
            if let Effect::Write(request) = effect
                && request.purpose == purpose
            {
                written.push(request.object);
            }
        }
        if !engine.has_work() {
            return written;
        }
    }
}

/// What an engine admits that leads from now on.
fn admits(bed: &Bed, engine: Engine) -> Vec<ObjectRef> {
    writes(bed, engine, Purpose::ReserveQuota)
}

/// A replica that has seen all that is there.
fn standby(bed: &Bed) -> Engine {
    let mut standby = Engine::new(bed.c.config.clone());
    for kind in KINDS {
        list(bed, &mut standby, kind);
    }
    standby.apply(bed.now(), Input::Synced);
    standby
}

/// One pool, and two queues with quota for it each; `low` waits because the pool is not well.
fn one_pool() -> Bed {
    let mut bed = Bed::new();
    for queue in ["one", "two"] {
        bed.queue(queue, 16, &json!({"enable": true}), &json!({}));
    }
    bed.pools(&["a"], 4);
    bed.fail(&["a"]);
    bed.pass(31);
    bed.jobset("low", "two", "low", 1);
    bed.settle();
    assert!(bed.reported("low", "QuotaReserved").starts_with("False/WaitingForCapacity"));
    bed
}

#[test]
fn nodes_are_not_given_away_twice_when_the_next_leader_has_not_yet_seen_the_first_admission() {
    let mut bed = one_pool();
    let mut standby = standby(&bed);

    // From here on the other replica hears of nodes only.
    bed.jobset("high", "one", "high", 1);
    bed.settle();
    bed.come_back(&["a"]);
    bed.c.advance(1);
    assert!(bed.reported("high", "Admitted").starts_with("True"));
    list(&bed, &mut standby, Kind::Node);

    let low = crate::model::Api::workload_ref(&bed.c.workload("low"));
    assert_eq!(admits(&bed, standby.clone()), [low], "with what it has seen, the pool is free");
    list(&bed, &mut standby, Kind::Workload);
    assert_eq!(admits(&bed, standby), [], "the replica that wins the lease lists Workloads before it leads");
}

/// `one` has left pool A for pool B. The other replica has seen it on pool A, then these kinds.
fn moved(seen: &[Kind]) -> (Bed, Engine) {
    let mut bed = Bed::new();
    bed.page_queue(64);
    bed.pools(&["a", "b", "c", "d"], 4);
    bed.jobset("one", "q", "high", 1);
    bed.pass(3);
    let mut standby = standby(&bed);
    bed.fail(&["a"]);
    bed.pass(40);
    assert!(bed.runs("one") && bed.pools_of("one") == ["b"]);
    for kind in seen {
        list(&bed, &mut standby, *kind);
    }
    (bed, standby)
}

#[test]
fn pods_of_an_admission_whose_end_the_next_leader_has_not_seen_are_not_those_of_the_next_admission() {
    let (bed, standby) = moved(&[Kind::Node, Kind::Workload, Kind::Job(JobKind::JOB_SET)]);
    assert_eq!(writes(&bed, standby, Purpose::Evict), [], "it still sees pods on pool A");
}

#[test]
fn pods_of_an_admission_that_the_next_leader_has_seen_before_it_are_its_own() {
    let (mut bed, mut standby) = moved(&[Kind::Pod, Kind::Workload, Kind::Job(JobKind::JOB_SET)]);
    bed.fail(&["b"]);
    list(&bed, &mut standby, Kind::Node);
    bed.c.now = bed.now().checked_add(SignedDuration::from_secs(40)).unwrap();
    let one = crate::model::Api::workload_ref(&bed.c.workload("one"));
    assert_eq!(writes(&bed, standby, Purpose::Evict), [one]);
}
