use sluice_engine::EngineConfig;
use sluice_engine::effect::Effect;
use sluice_engine::input::ObjectRef;
use sluice_sim::Options;

use super::*;
use crate::engine_thread::{Outlet, start};
use crate::explain::Answer;
use crate::fake_api::{client, failed};
use crate::supervise::tests::supervisor;
use crate::visibility::board::tests::{Follower, cluster_queue, local_queue, workload};

/// Where nothing goes.
struct Nowhere;

impl Outlet for Nowhere {
    fn emit(&mut self, _: Vec<Effect>, _: bool, _: u64, _: Duration) {}
    fn set_aside(&mut self, _: &ObjectRef, _: &str) {}
    fn rebuilt(&mut self, _: u64) {}
    fn give_up(&mut self, _: &str) {}
}

/// Explains nothing.
struct Silent;

impl Explains for Silent {
    fn explain_to(&self, _: String, _: String, _: Asked, _: bool) -> BoxFuture<'_, Answer> {
        unreachable!("places need no explanation")
    }
}

/// A manager that has this to show.
fn manager(published: Published) -> InManager {
    let build = || Engine::new(EngineConfig::default());
    let (engine, _) = start(&supervisor().0, build, Nowhere, None).unwrap();
    InManager {
        published: Arc::new(published),
        orders: Orders::default(),
        client: client(|_, _, _| async { failed(500, "places are read from nowhere") }),
        explains: Arc::new(Silent),
        engine,
        fits: LatelyFit::default(),
        configuration: Options::default_configuration(),
        memory: Memory::default(),
        past: None,
    }
}

fn key(namespace: &str, name: &str) -> WorkloadKey {
    WorkloadKey { namespace: namespace.into(), name: name.into() }
}

#[tokio::test]
async fn places_are_found_of_those_that_are_asked_about_and_wait_in_the_queue() {
    let mut follower = Follower::new();
    for queue in ["cq", "other"] {
        follower.see(cluster_queue(queue));
    }
    follower.see(local_queue("a", "lq", "cq", 1));
    follower.see(local_queue("b", "lq", "cq", 1));
    follower.see(local_queue("c", "lq", "other", 1));
    for (namespace, name, priority, second) in
        [("a", "late", 0, 3), ("b", "first", 9, 4), ("a", "early", 0, 1), ("c", "elsewhere", 0, 2)]
    {
        follower.see(workload(namespace, name, "lq", priority, second));
    }
    follower.follow();
    let published = Published::default();
    published.show(follower.board);
    let manager = manager(published);
    let asked =
        [key("a", "late"), key("b", "first"), key("c", "elsewhere"), key("b", "late"), key("a", "none")];
    let find = manager.finder("cq").await;
    assert_eq!(find(&asked), Places::from([(key("b", "first"), 0), (key("a", "late"), 2)]));
    let find = manager.finder("other").await;
    assert_eq!(find(&asked), Places::from([(key("c", "elsewhere"), 0)]));
    let find = manager.finder("none").await;
    assert_eq!(find(&asked), Places::new());
    // All of it, as the whole order says it.
    let order = manager.order("cq").await.unwrap();
    assert_eq!(*order, [(0, key("b", "first")), (1, key("a", "early")), (2, key("a", "late"))]);
}

#[tokio::test]
async fn no_place_is_found_before_everything_was_seen() {
    let manager = manager(Published::default());
    let find = manager.finder("cq").await;
    assert_eq!(find(&[key("a", "w")]), Places::new());
    assert!(manager.order("cq").await.is_none());
}
