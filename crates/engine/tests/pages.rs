//! Questions about the whole world are answered page by page: no page grows with the world, and all pages together equal a single answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_api::config::{CustomLabel, SourceKind};
use sluice_engine::metrics::{GaugeValue, SCRAPE_PAGE, Scrape};
use sluice_engine::{Accounting, Engine, EngineConfig, Input, Kind, Object, ObjectRef, State};

mod big;

use big::Size;

/// Looks for one page.
const PAGE: usize = SCRAPE_PAGE;

fn config() -> EngineConfig {
    let label = |kind: SourceKind| CustomLabel {
        name: "team".to_owned(),
        source_label_key: None,
        source_annotation_key: None,
        source_kind: kind,
        tracked_values: Vec::new(),
    };
    EngineConfig {
        cluster_queue_resource_metrics: true,
        custom_labels: vec![label(SourceKind::Workload), label(SourceKind::ClusterQueue)],
        ..EngineConfig::default()
    }
}

fn world(queues: usize, workloads: usize) -> Engine {
    let mut engine = Engine::new(config());
    engine.apply(big::now(), Input::Leader(true));
    for input in big::start(big::objects(Size { queues, workloads, admitted: 2 })) {
        engine.apply(big::now(), input);
    }
    rest(&mut engine);
    engine
}

fn rest(engine: &mut Engine) {
    engine.cycle(big::now());
    while engine.has_work() {
        engine.cycle(big::now());
    }
}

fn by_series(values: impl IntoIterator<Item = GaugeValue>) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    for value in values {
        let series = format!("{} {:?}", value.metric, value.labels);
        assert_eq!(found.insert(series, value.value), None, "{} {:?} twice", value.metric, value.labels);
    }
    found
}

/// A whole scrape; what happens after some pages, and the most that a page looked at.
fn scrape(
    engine: &mut Engine,
    mut between: impl FnMut(&mut Engine, usize),
) -> (BTreeMap<String, f64>, usize, usize) {
    let (mut scrape, mut pages) = (Scrape::default(), 1);
    while !engine.scrape(&mut scrape, PAGE) {
        between(engine, pages);
        pages += 1;
    }
    assert!(scrape.is_complete());
    let largest = scrape.largest_page();
    (by_series(scrape.into_values()), pages, largest)
}

#[test]
fn no_page_of_a_scrape_grows_with_the_world_and_all_say_what_one_would() {
    for (queues, workloads) in [(100, 6), (400, 6), (10, 600)] {
        let mut engine = world(queues, workloads);
        let whole = by_series(engine.metrics_snapshot());
        let (parts, pages, largest) = scrape(&mut engine, |_, _| {});
        assert_eq!(parts, whole);
        // An object ends its page: the queue with the most series, or the top of the tree.
        assert!(largest <= PAGE + 40 + queues / 32, "{largest} looks for a page of {queues} queues");
        assert!(pages >= (whole.len() + queues * workloads) / (PAGE + 40), "{pages} pages");
    }
}

#[test]
fn what_happens_between_two_pages_of_a_scrape_is_in_it_or_not_but_never_twice() {
    let mut engine = world(100, 6);
    let finished = by_series(engine.metrics_snapshot()).len();
    let (series, _, _) = scrape(&mut engine, |engine, page| {
        let queue = page * 7 % 100;
        let goes = match page % 3 {
            0 => ObjectRef::cluster(Kind::Cohort, format!("cohort-{}", page % 5)),
            1 => big::workload(queue, page % 6, false).object().object_ref(),
            _ => big::local_queue(queue).object().object_ref(),
        };
        engine.apply(big::now(), Input::Deleted { object: goes, uid: None });
        engine.apply(big::now(), Input::Applied(big::workload(queue, 50 + page, false).object()));
        engine.apply(big::now(), Input::Applied(big::cluster_queue(100 + page, 3).object()));
        engine.cycle(big::now());
    });
    assert!(series.len() > finished / 2, "{} of {finished} series", series.len());
    rest(&mut engine);
    engine.audit().expect("the engine is in order");
}

#[test]
fn before_everything_was_seen_a_scrape_has_no_queues_and_says_so() {
    let mut engine = Engine::new(config());
    for object in big::objects(Size { queues: 10, workloads: 2, admitted: 1 }) {
        engine.apply(big::now(), Input::Applied(object));
    }
    let mut scrape = Scrape::default();
    assert!(engine.scrape(&mut scrape, 10));
    assert!(!scrape.is_complete());
    let left: Vec<_> = scrape.into_values().map(|value| value.metric).collect();
    assert_eq!(left, ["sluice_objects_set_aside"]);
}

#[test]
fn the_state_and_an_account_come_in_pages_too() {
    let engine = world(40, 20);
    let (mut state, mut pages) = (State::default(), 1);
    while !engine.state_page(&mut state, PAGE) {
        pages += 1;
    }
    let looks = 800 + 40 + engine.open_writes();
    assert!((looks / PAGE..=looks / PAGE + 1).contains(&pages), "{pages} pages for {looks} objects");
    assert_eq!(state.largest_page(), PAGE);
    let state = state.into_value();
    assert_eq!(state, engine.state());
    assert_eq!(state["clusterQueues"].as_array().map(Vec::len), Some(40));

    let waits = big::workload(13, 19, false).object().object_ref();
    let (mut accounting, mut pages) =
        (Accounting::new(Some(Kind::Workload), &waits.namespace, &waits.name), 1);
    while !engine.account_page(&mut accounting, PAGE) {
        pages += 1;
    }
    assert_eq!((pages, accounting.largest_page()), (800 / PAGE, PAGE));
    let account = accounting.into_account(3).expect("it is there");
    assert_eq!(Some(&account), engine.account(None, &waits.namespace, &waits.name, 3).as_ref());
    let place = account.position.expect("it waits");
    let all = engine.pending_workloads("cq-13").expect("the queue is there");
    assert_eq!(all[place.in_cluster_queue], place);
    assert_eq!(account.ahead.len(), 3.min(place.in_cluster_queue));
    assert!(all.iter().zip(&account.ahead).all(|(one, ahead)| one.key == *ahead));
}

#[test]
fn a_workload_that_goes_while_its_account_is_made_has_none() {
    let mut engine = world(10, 20);
    let waits = big::workload(3, 19, false).object().object_ref();
    let mut accounting = Accounting::new(None, &waits.namespace, &waits.name);
    assert!(!engine.account_page(&mut accounting, PAGE));
    engine.apply(big::now(), Input::Deleted { object: waits, uid: None });
    assert!(engine.account_page(&mut accounting, PAGE));
    assert_eq!(accounting.into_account(3), None);
}

/// A world of one queue with many Workloads of as many shapes: each is a class of its own.
#[test]
fn one_queue_of_very_many_is_no_longer_page() {
    let mut engine = world(1, 2);
    for number in 0..1_000 {
        let mut object = big::workload(0, 10 + number, false).object();
        if let Object::Workload(workload) = &mut object {
            let priority = i32::try_from(number).expect("a small number");
            Arc::make_mut(&mut workload.spec).priority = Some(priority);
        }
        engine.apply(big::now(), Input::Applied(object));
    }
    rest(&mut engine);
    let (_, _, largest) = scrape(&mut engine, |_, _| {});
    assert!(largest <= PAGE + 40 + 1_000 / 32, "{largest} looks for a page");
}

#[test]
fn names_of_nodes_are_given_page_by_page() {
    let mut engine = Engine::new(EngineConfig::default());
    let names: Vec<String> = (0..25).map(|number| format!("node-{number:02}")).collect();
    for name in &names {
        let node = serde_json::from_value(serde_json::json!({"metadata": {"name": name}})).unwrap();
        engine.apply(big::now(), Input::Applied(Object::Node(Box::new(node))));
    }
    let (mut all, mut last) = (Vec::new(), None);
    loop {
        let page = engine.node_names(last.as_ref(), 10);
        assert!(page.len() <= 10);
        let Some(end) = page.last().cloned() else { break };
        last = Some(end);
        all.extend(page.iter().map(ToString::to_string));
    }
    assert_eq!(all, names);
}
