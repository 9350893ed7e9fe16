//! The engine continues when the machine's clock is set back.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use sluice_engine::effect::{EffectId, Purpose};
use sluice_engine::{Engine, EngineConfig, Gather};

use super::clock::tests::Wall;
use super::*;
use crate::supervise::tests::supervisor;
use crate::visibility::board::tests::{cluster_queue, local_queue, workload};

/// Hands the writes of the engine on.
struct Writes(Sender<(EffectId, Purpose)>);

impl Outlet for Writes {
    fn emit(&mut self, effects: Vec<Effect>, _: bool, _: u64, _: Duration) {
        for effect in effects {
            if let Effect::Write(request) = effect {
                let _ = self.0.send((request.id, request.purpose));
            }
        }
    }

    fn set_aside(&mut self, _: &ObjectRef, _: &str) {}
    fn rebuilt(&mut self, _: u64) {}
    fn give_up(&mut self, _: &str) {}
}

/// The next write of that purpose. It is far from the two hours after which the machine's clock has caught up.
fn next(writes: &Receiver<(EffectId, Purpose)>, wanted: Purpose) -> EffectId {
    loop {
        let (id, purpose) = writes.recv_timeout(Duration::from_mins(1)).unwrap();
        if purpose == wanted {
            return id;
        }
    }
}

fn named<T: Default>(name: &str, metadata: impl FnOnce(&mut T) -> &mut Option<String>) -> T {
    let mut object = T::default();
    *metadata(&mut object) = Some(name.to_owned());
    object
}

#[test]
fn what_comes_after_the_clock_was_set_back_is_admitted_and_what_failed_is_tried_again() {
    let right = Timestamp::from_second(1_800_000_000).unwrap();
    let wall = Wall::at(right + Duration::from_hours(2));
    let config =
        EngineConfig { gather: Gather::of(jiff::SignedDuration::from_millis(3)), ..EngineConfig::default() };
    let (sender, writes) = channel();
    let build = move || Engine::new(config.clone());
    let supervisor = supervisor().0;
    let (handle, thread) = start_by(wall.clock(), &supervisor, build, Writes(sender), None).unwrap();
    let see = |object| handle.input(Input::Applied(object));
    see(Object::Namespace(Box::new(named("a", |n: &mut sluice_api::slim::Namespace| &mut n.metadata.name))));
    see(Object::ResourceFlavor(Box::new(named("default", |f: &mut sluice_api::v1beta2::ResourceFlavor| {
        &mut f.metadata.name
    }))));
    for (cluster, local) in [("cq-1", "lq-1"), ("cq-2", "lq-2")] {
        see(cluster_queue(cluster));
        see(local_queue("a", local, cluster, 1));
    }
    handle.synced(0);
    handle.input(Input::Leader(true));
    see(workload("a", "before", "lq-1", 0, 1));
    next(&writes, Purpose::ReserveQuota);

    wall.set(right);
    see(workload("a", "after", "lq-2", 0, 2));
    let failed = next(&writes, Purpose::ReserveQuota);
    let conflict = Err(WriteError::Conflict("a newer version".to_owned()));
    handle.written(0, failed, conflict, None, Slot::default());
    let read = next(&writes, Purpose::Read);
    handle.written(0, read, Ok(None), None, Slot::default());
    next(&writes, Purpose::ReserveQuota);
    handle.stop();
    thread.join().unwrap();
}
