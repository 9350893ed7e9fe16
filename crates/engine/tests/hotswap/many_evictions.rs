//! More evictions than one cycle makes: the moved and the evicted jobs equal those of a naive search in one pass.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use jiff::Timestamp;
use sluice_engine::EngineConfig;

use crate::bed::Bed;

/// Pools that fail, each under a JobSet.
const FAILING: usize = 80;
/// JobSets on healthy pools, of lower priorities but for the last ones.
const OTHERS: usize = 80;
const KEPT: usize = 20;
/// Healthy pools without one.
const FREE: usize = 5;

/// What a naive search has to know of a JobSet.
struct Known {
    job: String,
    priority: i32,
    created: Timestamp,
    reserved: Timestamp,
    uid: String,
}

fn class(job: usize) -> &'static str {
    match job {
        _ if job >= FAILING + OTHERS - KEPT => "high",
        _ if job < FAILING => ["high", "mid", "high"][job % 3],
        _ => ["low", "mid", "low", "low"][job % 4],
    }
}

fn known(bed: &Bed, job: &str) -> Known {
    let workload = bed.c.workload(job);
    let status = workload.status.unwrap();
    let reserved = status.conditions.iter().find(|condition| condition.type_ == "QuotaReserved").unwrap();
    Known {
        job: job.to_owned(),
        priority: workload.spec.priority.unwrap(),
        created: workload.metadata.creation_timestamp.unwrap().0,
        reserved: reserved.last_transition_time.0,
        uid: workload.metadata.uid.unwrap(),
    }
}

/// For each displaced JobSet in turn a free pool, or the first other JobSet that has a lower priority: what moves, and what makes room.
fn naive(mut displaced: Vec<Known>, mut others: Vec<Known>) -> (BTreeSet<String>, BTreeSet<String>) {
    displaced.sort_by_key(|one| (Reverse(one.priority), one.created, one.uid.clone()));
    others.sort_by_key(|one| (one.priority, Reverse(one.reserved), one.uid.clone()));
    let (mut moved, mut victims) = (BTreeSet::new(), BTreeSet::new());
    let mut free = FREE;
    for one in displaced {
        if free > 0 {
            free -= 1;
        } else if let Some(at) = others.iter().position(|other| other.priority < one.priority) {
            victims.insert(others.remove(at).job);
        } else {
            continue;
        }
        moved.insert(one.job);
    }
    (moved, victims)
}

#[test]
fn more_evictions_than_one_cycle_makes_are_those_of_a_search_in_one_go() {
    let mut bed = Bed::with(EngineConfig { status_interval_ms: 0, ..EngineConfig::default() });
    bed.c.checked = false;
    bed.c.api.priority_class("mid", 1_500_000);
    bed.page_queue(i64::try_from((FAILING + OTHERS) * 8).unwrap());
    let pools: Vec<String> = (0..FAILING + OTHERS + FREE).map(|pool| format!("p{pool:03}")).collect();
    let pools: Vec<&str> = pools.iter().map(String::as_str).collect();
    bed.pools(&pools, 2);
    let jobs: Vec<String> = (0..FAILING + OTHERS).map(|job| format!("j{job:03}")).collect();
    for some in (0..jobs.len()).collect::<Vec<_>>().chunks(40) {
        for job in some {
            bed.sized_jobset(&jobs[*job], "q", class(*job), 1, 2);
        }
        bed.settle();
        bed.pass(1);
    }
    assert!(jobs.iter().zip(&pools).all(|(job, pool)| bed.pools_of(job) == [*pool]));
    let of = |jobs: &[String]| jobs.iter().map(|job| known(&bed, job)).collect::<Vec<_>>();
    let (moved, victims) = naive(of(&jobs[..FAILING]), of(&jobs[FAILING..]));
    assert!(victims.len() + moved.len() > 64, "one cycle is not enough");
    assert!(moved.len() < FAILING, "not all of them find room");
    assert!(victims.iter().any(|job| class(job[1..].parse().unwrap()) == "mid"));
    bed.fail(&pools[..FAILING]);
    bed.pass(50);
    let evicted = |reason: &str| -> BTreeSet<String> {
        let by = |job: &&String| bed.evictions(job) == [(reason.to_owned(), 1)];
        jobs.iter().filter(by).cloned().collect()
    };
    assert_eq!(evicted("NodeFailures"), moved);
    assert_eq!(evicted("Preempted"), victims);
    assert!(moved.iter().all(|job| bed.runs(job)));
    assert!(victims.iter().all(|job| !bed.runs(job)));
}
