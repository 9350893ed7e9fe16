//! The longest page of each answer that is made page by page, in a world with nodes: the gauges of a scrape, an explanation, `/debug/state`, and what
//! the dashboard asks the engine.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_api::job::JobKind;
use sluice_engine::metrics::{SCRAPE_PAGE, Scrape};
use sluice_engine::{Accounting, FitSearch, Kind, Name, State};

use crate::beds::Bed;
use crate::case::stopwatch;

/// The CPU time of a page: a goal, not a budget.
const GOAL_MS: f64 = 5.0;
/// The size of a page of an explanation and of `/debug/state`, as the manager requests it.
const PAGE: usize = 250;
/// Names of nodes that an explanation requests at a time.
const NAMES: usize = 2_000;
/// Workloads of the world: one page, and another one that is short of one, so that an explanation still passes over the nodes in it.
const WORKLOADS: usize = 2 * PAGE - 1;
/// Shapes of pods that no node is large enough for, and the chips of a node. The gauges and the dashboard pass over the nodes for each shape.
const SHAPES: i32 = 8;
const CHIPS: i32 = 4;

/// The answers, in the order in which they are printed.
type Pages = [(&'static str, (Duration, usize)); 5];

/// Measures the longest page of each answer, and notes what is over its budget, and what has none. The JobSet `large` waits in the world.
pub fn table(world: &str, bed: &mut Bed, budgets: &BTreeMap<String, usize>, failures: &mut Vec<String>) {
    add_work(bed);
    let pages = longest_pages(bed);
    let without = budgets.keys().filter(|name| !pages.iter().any(|(page, _)| *page == name.as_str()));
    failures.extend(without.map(|name| format!("events {world}: there is no page {name}")));
    for (page, (time, looks)) in pages {
        let Some(&most) = budgets.get(page) else {
            failures.push(format!("events {world}: the page {page} has no budget"));
            continue;
        };
        let ms = time.as_secs_f64() * 1e3;
        let late = if ms > GOAL_MS { "*" } else { "" };
        println!("  longest page: {page:<22} {ms:>7.1} ms{late:<1} {looks} looks ({most})");
        if looks > most {
            failures.push(format!("events {world}: the page {page}: {looks} looks, at most {most}"));
        }
    }
}

/// Work that waits for larger nodes, and so much that runs that an answer has several pages.
fn add_work(bed: &mut Bed) {
    for more in 1..=SHAPES {
        bed.placed_jobset(&format!("wide{more}"), "low", 1, CHIPS + more);
    }
    bed.c.settle();
    for number in bed.c.engine.workloads().count()..WORKLOADS {
        bed.placed_jobset(&format!("small{number}"), "high", 1, 1);
    }
    bed.c.settle();
    bed.c.advance(5);
}

/// The longest page of each answer: its time, and its units of work.
fn longest_pages(bed: &Bed) -> Pages {
    let engine = &bed.c.engine;
    let mut scrape = Scrape::default();
    let gauges = longest(|| engine.scrape(&mut scrape, SCRAPE_PAGE));
    let mut accounting = Accounting::new(Some(Kind::Job(JobKind::JOB_SET)), "team-a", "large");
    let account = longest(|| engine.account_page(&mut accounting, PAGE));
    let (mut last, mut most) = (None::<Name>, 0);
    let names = longest(|| {
        let names = engine.node_names(last.as_ref(), NAMES);
        most = most.max(names.len());
        last = names.last().cloned();
        names.len() < NAMES
    });
    let mut state = State::default();
    let debug = longest(|| engine.state_page(&mut state, PAGE));
    let mut search = FitSearch::new("tpu".into());
    let fits = longest(|| engine.search_fits(&mut search));
    [
        ("gauges", (gauges, scrape.largest_page())),
        ("explain", (account, accounting.largest_page())),
        ("explain, names of nodes", (names, most)),
        ("/debug/state", (debug, state.largest_page())),
        ("dashboard", (fits, search.largest_step())),
    ]
}

/// Turns pages until the last; how long the longest took.
fn longest(mut page: impl FnMut() -> bool) -> Duration {
    let (mut longest, mut done) = (Duration::ZERO, false);
    while !done {
        let began = stopwatch::now();
        done = page();
        longest = longest.max(stopwatch::now().saturating_sub(began));
    }
    longest
}
