//! The page with 1,000 queues and 20,000 Workloads, compared with the same page with few: it stays small and smooth.

use sluice_testkit::browser::{Page, Scheme};

use super::data::WORKLOADS;
use super::mock::{FEW, Fault, TOKEN, serve};
use super::{MOST_ELEMENTS, go, play, shows};
use crate::smooth::{Pace, TABLE, first_paint, is_painted_as_soon, is_soon, scrolled, tries_again};

/// The most megabytes that scripts hold after a garbage collection, two schedules of 20,000 jobs included.
const MOST_MEGABYTES: f64 = 60.0;
/// The table of the work that lost its nodes.
const DISPLACED: &str = "[aria-label='Displaced work'] .grid-body";
/// Each view whose table is scrolled, with the words that show that its data is there: much of it, and little.
const TABLES: [(&str, [&str; 2], &str); 4] = [
    ("now", ["1000 queues", "10 queues"], TABLE),
    ("workload", ["20000 workloads", "100 workloads"], TABLE),
    ("queue/team-1", ["2000 workloads", "10 workloads"], TABLE),
    ("nodes", ["700 workloads lost their nodes", "30 workloads lost their nodes"], DISPLACED),
];

/// The page as it is opened first, once for each try, and when it was drawn; the last one goes on. It is tried more often while it is drawn late beside
/// the page with `little`, if that is known.
async fn opened(fault: Fault, little: Option<&[f64]>) -> (Page, Vec<f64>) {
    let url = serve(fault).await;
    let queues = TABLES[0].1[usize::from(fault == Fault::Few)];
    let (mut last, mut paints) = (None, Vec::new());
    while tries_again(paints.len(), little.is_none_or(|little| is_soon(&paints, little))) {
        let mut page = Page::start().await.unwrap();
        page.look(1280, 900, Scheme::Light).await.unwrap();
        page.visit(&format!("{url}/#key={TOKEN}")).await.unwrap();
        shows(&mut page, queues).await;
        paints.push(first_paint(&mut page).await);
        last = Some(page);
    }
    (last.unwrap(), paints)
}

/// How smooth each table is, and two schedules below each other; compared with the same of the page with `little`, if that is known.
async fn paces(page: &mut Page, fault: Fault, little: Option<&[Pace]>) -> Vec<Pace> {
    let (at, jobs) = if fault == Fault::Few { (1, FEW) } else { (0, WORKLOADS) };
    let mut found = Vec::new();
    for (view, texts, table) in TABLES {
        go(page, view, texts[at]).await;
        let beside = little.map(|little| little[found.len()]);
        found.push(scrolled(page, view, table, beside).await);
    }
    play(page, jobs).await;
    let beside = little.map(|little| little[found.len()]);
    found.push(scrolled(page, "two schedules", TABLE, beside).await);
    found
}

#[tokio::test]
async fn thousands_of_queues_and_workloads_stay_smooth() {
    let (mut page, little_paint) = opened(Fault::Few, None).await;
    let little = paces(&mut page, Fault::Few, None).await;
    drop(page);
    let (mut page, paint) = opened(Fault::None, Some(&little_paint)).await;
    is_painted_as_soon(&paint, &little_paint, "dashboard");
    let much = paces(&mut page, Fault::None, Some(&little)).await;
    let names = TABLES.iter().map(|table| table.0).chain(["two schedules"]);
    for (name, (much, little)) in names.zip(much.into_iter().zip(little)) {
        much.is_as_smooth_as(little, name);
    }
    let elements = page.run("document.querySelectorAll('*').length").await.unwrap();
    let megabytes = page.figure("JSHeapUsedSize").await.unwrap() / 1e6;
    println!("two schedules of {WORKLOADS} jobs: {elements} elements, {megabytes:.0} MB of scripts' memory");
    assert!(
        elements.as_u64().unwrap() < MOST_ELEMENTS && megabytes < MOST_MEGABYTES,
        "{elements}, {megabytes}"
    );
    // What was shown is dropped.
    for _ in 0..3 {
        go(&mut page, "report", "side by side").await;
        go(&mut page, "now", "1000 queues").await;
    }
    let after = page.figure("JSHeapUsedSize").await.unwrap() / 1e6;
    println!("after leaving them: {after:.0} MB");
    assert!(after < megabytes / 2.0, "{after} of {megabytes} MB are left");
}
