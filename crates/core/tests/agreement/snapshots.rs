//! A snapshot does not change with later events.

use crate::loops::{queue, workload};
use crate::oracle::world::{Flavor, World, name};
use crate::pair::scheduler;
use crate::translate;
use sluice_core::{Amount, Gates, Snapshot, WorkloadState};

#[test]
fn a_snapshot_has_what_was_used_when_it_was_taken_and_nothing_of_what_came_later() {
    let mut world = World::default();
    world.flavors.insert(name("f"), Flavor::default());
    world.queues.insert(name("early"), queue("all", 3, 0));
    let mut core = scheduler(&world, Gates::default());
    let _ = core.take_changed();
    let before = core.snapshot();
    let late = translate::queue(&name("late"), &queue("all", 0, 0));
    core.set_cluster_queue(late);
    core.set_workload(
        translate::workload(&workload("early", 0, &["cpu"]), WorkloadState::PENDING),
        translate::time(1),
    );
    core.cycle(translate::time(2));
    let after = core.snapshot();
    let cpu = |snapshot: &Snapshot, queue: &str| {
        let used = snapshot.used(&core, queue, "f", "cpu").map(Amount::get);
        (used, snapshot.available(&core, queue, "f", "cpu").map(Amount::get))
    };
    assert_eq!((cpu(&before, "early"), cpu(&before, "late")), ((Some(0), Some(3)), (None, None)));
    assert_eq!((cpu(&after, "early"), cpu(&after, "late")), ((Some(1), Some(2)), (Some(0), Some(2))));
}
