#![expect(clippy::disallowed_methods, reason = "a test ends with its tasks")]

use sluice_engine::EngineConfig;
use sluice_engine::effect::Effect;
use sluice_engine::input::{Input, ObjectRef};

use super::super::board::Page;
use super::super::board::tests::{cluster_queue, local_queue, workload};
use super::*;
use crate::engine_thread::{Outlet, start};
use crate::shutdown::pair;
use crate::supervise::tests::supervisor;

const DEADLINE: Duration = Duration::from_mins(1);

/// Passes on the news, and nothing else.
struct News(Arc<Notify>);

impl Outlet for News {
    fn emit(&mut self, _: Vec<Effect>, _: bool, _: u64, _: Duration) {}
    fn set_aside(&mut self, _: &ObjectRef, _: &str) {}
    fn rebuilt(&mut self, _: u64) {}
    fn give_up(&mut self, _: &str) {}
    fn moved(&mut self) {
        self.0.notify_one();
    }
}

fn names(published: &Published, queue: &str) -> Found<Vec<String>> {
    let all = Page { offset: 0, limit: 10 };
    match published.cluster_queue(queue) {
        Found::Found(order) => {
            Found::Found(order.page(all).map(|place| place.waiting.standing.key().name.to_string()).collect())
        }
        Found::Nothing => Found::Nothing,
        Found::NotYet => Found::NotYet,
    }
}

/// Looks again and again until it is so.
async fn until(published: &Published, queue: &str, wanted: impl Fn(&Found<Vec<String>>) -> bool) {
    let looking = async {
        while !wanted(&names(published, queue)) {
            tokio::task::yield_now().await;
        }
    };
    let seen = tokio::time::timeout(DEADLINE, looking).await;
    assert!(seen.is_ok(), "{:?}", names(published, queue));
}

fn is(wanted: &'static [&'static str]) -> impl Fn(&Found<Vec<String>>) -> bool {
    move |found| matches!(found, Found::Found(names) if names == wanted)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_known_is_shown_until_an_engine_that_was_rebuilt_has_seen_everything() {
    let (supervisor, _fatal, _guarding) = supervisor();
    let news = Arc::<Notify>::default();
    let build = || {
        let mut engine = Engine::new(EngineConfig::default());
        engine.follow_positions();
        engine
    };
    let (engine, thread) = start(&supervisor, build, News(Arc::clone(&news)), None).unwrap();
    let published = Arc::<Published>::default();
    let (_stopper, stop) = pair();
    let publishing = tokio::spawn(publish(engine.clone(), news, Arc::clone(&published), stop));
    let see = |name: &str, second| engine.input(Input::Applied(workload("a", name, "lq", 0, second)));
    let queues = || {
        engine.input(Input::Applied(cluster_queue("cq")));
        engine.input(Input::Applied(local_queue("a", "lq", "cq", 1)));
    };
    queues();
    see("first", 1);
    engine.ask(|_| ()).await.unwrap();
    assert!(matches!(names(&published, "cq"), Found::NotYet), "not everything was seen");
    engine.synced(0);
    until(&published, "cq", is(&["first"])).await;
    see("second", 2);
    until(&published, "cq", is(&["first", "second"])).await;

    engine.step_down();
    queues();
    see("second", 2);
    // Some of what the new engine has seen has been published by then, and is not shown.
    while engine.ask(|engine| engine.has_moves()).await.unwrap() {
        tokio::task::yield_now().await;
    }
    assert!(is(&["first", "second"])(&names(&published, "cq")), "{:?}", names(&published, "cq"));
    engine.synced(1);
    until(&published, "cq", is(&["second"])).await;
    engine.stop();
    publishing.abort();
    thread.join().unwrap();
}
