//! The page during changes: the focus stays, open parts stay open, and outdated data are not called live.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use sluice_testkit::browser::{PATIENCE, PAUSE, Page, Scheme};
use sluice_testkit::wait::{eventually, progress};
use sluice_tests::place::DEADLINE;

use super::mock::{Fault, State, start};
use super::{go, opened, shows};

/// Waits until a script gives true.
async fn until(page: &mut Page, script: &str) {
    let patience = PATIENCE.as_millis();
    let wait = format!(
        "(async () => {{
            const until = performance.now() + {patience};
            while (!({script})) {{
                if (performance.now() > until) return document.body.innerText.slice(0, 2000);
                await {PAUSE};
            }}
            return true;
        }})()"
    );
    assert_eq!(page.run(&wait).await.unwrap(), true, "{script}");
}

/// Something changes.
fn news(state: &State) {
    state.news.send_modify(|news| *news += 1);
}

/// Waits until `wanted` streams are open at the server.
async fn streams(state: &Arc<State>, wanted: usize) {
    eventually(&format!("{wanted} open streams"), DEADLINE, || async {
        let open = state.open.load(Ordering::Relaxed);
        Ok(progress(open == wanted, open))
    })
    .await
    .unwrap();
}

/// A script that hides the page, or shows it.
fn hide(hidden: bool) -> String {
    format!(
        "Object.defineProperty(document, 'hidden', {{ configurable: true, get: () => {hidden} }});
         document.dispatchEvent(new Event('visibilitychange'))"
    )
}

const STATE: &str = "document.getElementById('state').textContent";

#[tokio::test]
async fn a_page_that_is_hidden_gives_its_connection_back_until_it_is_seen() {
    let (url, state) = start(Fault::None).await;
    let mut page = opened(&url, 1280, Scheme::Light).await;
    streams(&state, 1).await;
    page.run(&hide(true)).await.unwrap();
    streams(&state, 0).await;
    news(&state);
    until(&mut page, &format!("{STATE} === 'not live while the page is hidden'")).await;
    page.run(&hide(false)).await.unwrap();
    streams(&state, 1).await;
    shows(&mut page, "team-1/new-0").await;
    until(&mut page, &format!("{STATE} === 'live'")).await;
}

#[tokio::test]
async fn what_the_server_refuses_is_said_in_its_words() {
    let (url, _) = start(Fault::Full).await;
    let mut page = opened(&url, 1280, Scheme::Light).await;
    let said = "not live: too many pages follow the changes: close one";
    until(&mut page, &format!("{STATE} === {}", Value::from(said))).await;
}

#[tokio::test]
async fn what_is_old_is_called_by_its_time() {
    let (url, state) = start(Fault::None).await;
    let mut page = opened(&url, 1280, Scheme::Light).await;
    until(&mut page, &format!("{STATE} === 'live'")).await;
    *state.old.lock().unwrap() = Some("2026-01-01T10:03:00Z".to_owned());
    news(&state);
    let said = "not live: the server cannot read the cluster; this is as of 2026-01-01 10:03:00 UTC";
    until(&mut page, &format!("{STATE} === {}", Value::from(said))).await;
    *state.old.lock().unwrap() = None;
    news(&state);
    until(&mut page, &format!("{STATE} === 'live'")).await;
}

#[tokio::test]
async fn the_focus_stays_in_what_just_happened_when_more_happens() {
    let (url, state) = start(Fault::None).await;
    let mut page = opened(&url, 1280, Scheme::Light).await;
    let focus = "(() => {
        const link = document.querySelectorAll('ol.events li')[3].querySelector('a');
        link.focus();
        link.mine = true;
        return link.textContent;
    })()";
    let focused = page.run(focus).await.unwrap();
    news(&state);
    shows(&mut page, "team-1/new-0").await;
    let now =
        page.run("[document.activeElement.mine ?? false, document.activeElement.textContent]").await.unwrap();
    assert_eq!(now, json!([true, focused]));
    let lines = page.run("document.querySelectorAll('ol.events li').length").await.unwrap();
    assert_eq!(lines, 200);
}

#[tokio::test]
async fn the_focus_stays_in_a_workload_when_it_is_read_again() {
    let (url, state) = start(Fault::None).await;
    let mut page = opened(&url, 1280, Scheme::Light).await;
    go(&mut page, "workload/team-3/x", "Admission checks").await;
    page.run("(() => { const link = document.querySelector('dd a'); link.focus(); link.mine = true; })()")
        .await
        .unwrap();
    reads(&mut page, &state, "/api/workloads/team-3/x").await;
    assert_eq!(page.run("document.activeElement.mine ?? false").await.unwrap(), true);
}

/// News come, and the page has read this again and shown it.
async fn reads(page: &mut Page, state: &State, path: &str) {
    let count = format!(
        "performance.getEntriesByType('resource').filter((one) => new URL(one.name).pathname === '{path}').length"
    );
    let before = page.run(&count).await.unwrap();
    news(state);
    until(page, &format!("{count} > {before}")).await;
    page.run(
        "new Promise(requestAnimationFrame).then(() => new Promise(requestAnimationFrame)).then(() => null)",
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn an_opened_domain_and_a_choice_stay_when_figures_change() {
    let (url, state) = start(Fault::None).await;
    let mut page = opened(&url, 1280, Scheme::Light).await;
    go(&mut page, "nodes", "40 domains").await;
    for (name, next) in [("block-2", "20 domains"), ("rack-3", "16 domains"), ("host-4", "and 2 more")] {
        let click = format!(
            "[...document.querySelectorAll('.heat button')].find((one) => one.dataset.name === '{name}').click()"
        );
        page.run(&click).await.unwrap();
        shows(&mut page, next).await;
    }
    let mark = "(() => {
        const choice = document.querySelector('select[aria-label=topology]');
        choice.focus();
        for (const one of [...choice.options, document.querySelector('[aria-live] h3'), document.querySelector('.way button')]) one.mine = true;
    })()";
    page.run(mark).await.unwrap();
    let path = "/api/topologies/default/block-2/rack-3";
    reads(&mut page, &state, path).await;
    let seen = "(() => {
        const choice = document.querySelector('select[aria-label=topology]');
        const title = document.querySelector('[aria-live] h3');
        return [document.activeElement === choice, [...choice.options].every((one) => one.mine), title?.textContent, title?.mine ?? false, document.querySelector('.way button').mine ?? false];
    })()";
    assert_eq!(page.run(seen).await.unwrap(), json!([true, true, "host-4", true, true]));
    // Elsewhere nothing is open.
    page.click("all").await.unwrap();
    shows(&mut page, "40 domains").await;
    assert_eq!(page.run("document.querySelector('[aria-live] h3')").await.unwrap(), Value::Null);
}

#[tokio::test]
async fn queues_are_suggested_after_a_refusal() {
    let (url, state) = start(Fault::None).await;
    let mut page = opened(&url, 1280, Scheme::Light).await;
    state.refuses.store(1, Ordering::Relaxed);
    go(&mut page, "queue/team-1", "2000 workloads").await;
    until(
        &mut page,
        "performance.getEntriesByType('resource').some((one) => one.name.includes('/api/queues/team-1'))",
    )
    .await;
    // Another read has them.
    news(&state);
    until(&mut page, "document.querySelectorAll('datalist option').length === 1000").await;
}

#[tokio::test]
async fn rows_are_read_again_after_a_refusal_when_they_are_seen_again() {
    let (url, state) = start(Fault::None).await;
    let mut page = opened(&url, 1280, Scheme::Light).await;
    go(&mut page, "queue/team-1", "2000 workloads").await;
    until(&mut page, &format!("{STATE} === 'live'")).await;
    state.refuses_rows.store(usize::MAX, Ordering::Relaxed);
    let to = |row: usize| format!("document.querySelector('.grid-body').scrollTop = 28 * {row}");
    let row = |row: usize| format!("document.querySelector('.line-row[data-at=\"{row}\"]')?.textContent");
    page.run(&to(300)).await.unwrap();
    shows(&mut page, "too many answers are being made: try again").await;
    assert_eq!(page.run(&row(300)).await.unwrap(), "…");
    state.refuses_rows.store(0, Ordering::Relaxed);
    page.run(&to(301)).await.unwrap();
    until(&mut page, &format!("{}?.length > 1", row(301))).await;
    until(&mut page, "!document.body.innerText.includes('too many answers')").await;
}

#[tokio::test]
async fn a_list_asks_for_a_token_as_soon_as_the_one_that_it_has_is_no_longer_accepted() {
    for (view, text) in
        [("queue/team-1", "2000 workloads"), ("workload", "20000 workloads"), ("nodes", "40 domains")]
    {
        let (url, state) = start(Fault::None).await;
        let mut page = opened(&url, 1280, Scheme::Light).await;
        go(&mut page, view, text).await;
        until(&mut page, &format!("{STATE} === 'live'")).await;
        state.expired.store(true, Ordering::Relaxed);
        news(&state);
        until(&mut page, "document.querySelector('form.ask') !== null").await;
    }
}

#[tokio::test]
async fn a_list_that_is_searched_or_scrolled_asks_for_a_token_when_it_is_no_longer_accepted() {
    let types = "document.querySelector('input[type=search]').dispatchEvent(new Event('input'))";
    let scrolls = "document.querySelector('.grid-body').scrollTop = 28 * 300";
    for does in [types, scrolls] {
        let (url, state) = start(Fault::None).await;
        let mut page = opened(&url, 1280, Scheme::Light).await;
        go(&mut page, "workload", "20000 workloads").await;
        until(&mut page, &format!("{STATE} === 'live'")).await;
        state.expired.store(true, Ordering::Relaxed);
        page.run(does).await.unwrap();
        until(&mut page, "document.querySelector('form.ask') !== null").await;
    }
}
