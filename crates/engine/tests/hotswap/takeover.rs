//! A replica that takes over while its watch of Workloads lags: it learns first what its predecessor has just given away.

use serde_json::json;
use sluice_engine::{Effect, Engine, Input, Kind, ObjectRef, Purpose};

use crate::bed::Bed;
use crate::model::KINDS;

/// Tells an engine of everything that is there of one kind.
fn list(bed: &Bed, engine: &mut Engine, kind: Kind) {
    let present = bed.c.api.names(kind);
    for object in &present {
        engine.apply(bed.now(), Input::Applied(bed.c.api.seen(object)));
    }
    engine.apply(bed.now(), Input::Listed { kind, present, as_of: Some(bed.c.api.revision()) });
}

/// Whom an engine admits that leads from now on.
fn admits(bed: &Bed, mut engine: Engine) -> Vec<ObjectRef> {
    engine.apply(bed.now(), Input::Leader(true));
    let mut admitted = Vec::new();
    loop {
        for effect in engine.cycle(bed.now()) {
            if let Effect::Write(request) = effect
                && request.purpose == Purpose::ReserveQuota
            {
                admitted.push(request.object);
            }
        }
        if !engine.has_work() {
            return admitted;
        }
    }
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
    assert!(bed.told("low", "QuotaReserved").starts_with("False/WaitingForCapacity"));
    bed
}

#[test]
fn nodes_are_not_given_away_twice_when_the_next_leader_has_not_yet_seen_the_first_admission() {
    let mut bed = one_pool();
    let mut standby = Engine::new(bed.c.config.clone());
    for kind in KINDS {
        list(&bed, &mut standby, kind);
    }
    standby.apply(bed.now(), Input::Synced);

    // From here on the other replica hears of nodes only.
    bed.jobset("high", "one", "high", 1);
    bed.settle();
    bed.come_back(&["a"]);
    bed.c.settle();
    assert!(bed.told("high", "Admitted").starts_with("True"));
    list(&bed, &mut standby, Kind::Node);

    let low = crate::model::Api::workload_ref(&bed.c.workload("low"));
    assert_eq!(admits(&bed, standby.clone()), [low], "with what it has seen, the pool is free");
    list(&bed, &mut standby, Kind::Workload);
    assert_eq!(admits(&bed, standby), [], "the replica that wins the lease lists Workloads before it leads");
}
