//! What answers about a large cluster cost, as counts: allocations, and bytes of the document.

use serde_json::{Value, json};
use sluice_engine::input::{Input, Object};
use sluice_sim::explain::hide_nodes;

use super::{displaced, items, now};
use crate::dashboard::query::Page;
use crate::dashboard::snapshot::Snapshot;
use crate::dashboard::store::Store;
use crate::dashboard::store::tests::{condition, many, node, workload};
use crate::dashboard::viewer::Viewer;

/// Displaced Workloads, beside those that wait.
const DISPLACED: usize = 300;
/// A page of a list.
const PAGE: Page = Page { offset: 100, limit: 100 };
/// What each answer may cost at most. A search looks at every Workload, and takes two allocations for each.
const MOST: [(&str, Cost); 5] = [
    ("now", (165_000, 450_000)),
    ("queue", (2_500, 8_000)),
    ("workloads", (62_000, 31_000)),
    ("displaced", (8_800, 40_000)),
    ("without nodes", (1_200, 41_000)),
];

/// Allocations and bytes.
type Cost = (u64, usize);

/// The cost of an answer.
fn cost(make: impl FnOnce() -> Value) -> Cost {
    let mut answer = Value::Null;
    let measured = allocation_counter::measure(|| answer = make());
    (measured.count_total, answer.to_string().len())
}

/// Queues and Workloads that wait in them, nodes, and Workloads that lost theirs.
fn large(queues: usize, workloads: usize) -> Store {
    let store = many(queues, workloads);
    let evicted = [condition("Evicted", "True", "NodeFailures", 1)];
    for number in 0..DISPLACED {
        let name = format!("n-{number}");
        store.note(&Input::Applied(node(&name, false)));
        let Object::Workload(mut lost) = workload("a", &format!("lost-{number}"), &evicted) else {
            unreachable!()
        };
        lost.status.conditions[0].message = format!("unhealthy node(s): {name}");
        lost.status.unhealthy_nodes = serde_json::from_value(json!([{"name": name}])).unwrap();
        store.note(&Input::Applied(Object::Workload(lost)));
    }
    store
}

/// What each answer costs, by its name.
fn costs(snapshot: &Snapshot) -> [(&'static str, Cost); 5] {
    let root = Viewer { user: "root".to_owned(), all: true, nodes: true, queues: true, ..Viewer::default() };
    // Sums are made once for a state of the cluster.
    snapshot.sums();
    let queue = || items::queue(snapshot, &root, "cq-7", &None, (None, Page { offset: 0, ..PAGE })).unwrap();
    let search = items::Search { text: Some("w-0".to_owned()), ..items::Search::default() };
    let search = || items::search(snapshot, &root, &search, PAGE).shown(&root, &items::Places::new());
    let displaced = || displaced::displaced(snapshot, &root, PAGE);
    let mut shown = displaced();
    let hidden = || {
        hide_nodes(&mut shown, &|name| snapshot.nodes.contains_key(name));
        shown
    };
    [
        ("now", cost(|| now::now(snapshot, &root, None))),
        ("queue", cost(queue)),
        ("workloads", cost(search)),
        ("displaced", cost(displaced)),
        ("without nodes", cost(hidden)),
    ]
}

/// A page of a list costs what it shows, not what there is; all queues are shown, and cost as many times as much as there are.
#[test]
fn answers_about_twenty_thousand_workloads_in_a_thousand_queues_cost_what_they_show() {
    let (small, large) = (costs(&large(100, 2_000).fresh()), costs(&large(1_000, 20_000).fresh()));
    println!("{small:?}\n{large:?}");
    for ((name, cost), (of, most)) in large.into_iter().zip(MOST) {
        assert!(name == of && cost.0 <= most.0 && cost.1 <= most.1, "{name}: {cost:?} of {most:?}");
    }
    let [now, queue, _, displaced, hidden] = [0, 1, 2, 3, 4].map(|at| (small[at].1, large[at].1));
    assert!(now.1.0 <= 11 * now.0.0 && now.1.1 <= 11 * now.0.1, "{now:?}");
    // Twenty Workloads each.
    assert!(queue.0.0.abs_diff(queue.1.0) <= 20 && queue.0.1.abs_diff(queue.1.1) <= 200, "{queue:?}");
    assert_eq!((displaced.0, hidden.0), (displaced.1, hidden.1));
}
