//! The dashboard's page in a real headless browser, with a server that simulates a cluster of 1,000 queues and 20,000 workloads: it stays small and
//! smooth, can be used by keyboard, is readable, and shows names as text. With `SLUICE_SCREENSHOTS` set to a folder, screenshots are stored there.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod data;
mod guarded;
mod large;
mod live;
mod mock;
mod reserved;

use std::fs;
use std::path::PathBuf;

use data::{HOSTILE, MESSAGE, QUEUES, WORKLOADS};
use mock::{Fault, TOKEN, serve};
use serde_json::Value;
use sluice_testkit::assets;
use sluice_testkit::browser::{Page, Scheme};

use crate::axe::{is_accessible, is_accessible_but_for_contrast};
use crate::browser::marks::{DAY, DRAWN, all_is_marked, day_is_drawn, recorded};
use crate::browser::simulate;

const PROBE: &str = include_str!("dashboard/probe.js");
/// The most elements of a view, however much there is to see.
const MOST_ELEMENTS: u64 = 2600;
/// Each view with the words that show that its data is there.
const VIEWS: [(&str, &str); 6] = [
    ("now", "1000 queues"),
    ("queue/team-1", "2000 workloads"),
    ("workload", "20000 workloads"),
    ("workload/team-3/x", "Admission checks"),
    ("nodes", "3000 nodes"),
    ("report", "side by side"),
];

/// Waits until the page has that text.
async fn shows(page: &mut Page, text: &str) {
    page.wait_for_text(text).await.unwrap();
}

async fn go(page: &mut Page, view: &str, text: &str) {
    page.run(&format!("location.hash = '/{view}'")).await.unwrap();
    shows(page, text).await;
}

/// A page that shows the view Now.
async fn opened(url: &str, width: u32, scheme: Scheme) -> Page {
    let mut page = Page::start().await.unwrap();
    page.look(width, 900, scheme).await.unwrap();
    page.visit(&format!("{url}/#key={TOKEN}")).await.unwrap();
    shows(&mut page, "1000 queues").await;
    page
}

/// What is shown, of which nothing is wrong: axe says so, too.
async fn probed(page: &mut Page, name: &str) -> Value {
    let seen = looks_right(page, name).await;
    is_accessible(page, name).await;
    seen
}

/// The probe finds nothing wrong with what is shown, nor with the contrast of its texts.
async fn looks_right(page: &mut Page, name: &str) -> Value {
    let seen = page.run(PROBE).await.unwrap();
    if let Some(folder) = std::env::var_os("SLUICE_SCREENSHOTS") {
        let file = format!("dashboard-{}.png", name.replace(['/', ' ', ','], "-"));
        fs::write(PathBuf::from(folder).join(file), page.screenshot().await.unwrap()).unwrap();
    }
    assert_eq!(seen["wrong"], Value::Array(Vec::new()), "{name}");
    assert!(seen["elements"].as_u64().unwrap() < MOST_ELEMENTS, "{name}: {} elements", seen["elements"]);
    assert!(page.troubles().is_empty(), "{name}: {:?}", page.troubles());
    seen
}

/// Plays the future with a change, so that two schedules are seen.
async fn play(page: &mut Page, jobs: usize) {
    go(page, "tomorrow", "Simulate").await;
    let script = "(() => {
        const form = document.querySelector('form[aria-label=\"Change a priority\"]');
        const fields = form.querySelectorAll('input');
        ['team-1', 'job', '5'].forEach((text, at) => { fields[at].value = text; });
        form.requestSubmit();
        [...document.querySelectorAll('button')].find((button) => button.textContent === 'Simulate').click();
    })()";
    page.run(script).await.unwrap();
    shows(page, "What the changes bring").await;
    shows(page, &format!("{jobs} jobs")).await;
}

/// The heat map of the view Nodes: blocks first, then what is in them, by keys alone.
async fn domains(page: &mut Page, width: u32) {
    probed(page, &format!("nodes {width}")).await;
    page.run("document.querySelector('.heat button').focus()").await.unwrap();
    let focus = "document.activeElement.dataset.name";
    page.press("ArrowRight").await.unwrap();
    assert_eq!(page.run(focus).await.unwrap(), "block-1");
    let tip = page.run("getComputedStyle(document.getElementById('tip')).display + document.getElementById('tip').textContent").await.unwrap();
    let tip = tip.as_str().unwrap().to_owned();
    assert!(tip.starts_with("blockblock-1: 7 of 320 nvidia.com/gpu used (2 %)"), "{tip}");
    assert!(tip.contains(&format!("team-3/{HOSTILE}: 8 pods")) && tip.contains("2 of others"), "{tip}");
    page.press("Enter").await.unwrap();
    shows(page, "1 to 240 of 900 domains").await;
    probed(page, &format!("racks {width}")).await;
    page.click("later").await.unwrap();
    shows(page, "241 to 480 of 900 domains").await;
    page.click("all").await.unwrap();
    shows(page, "40 domains").await;
    for name in ["block-2", "rack-3", "host-4"] {
        page.run(&format!("[...document.querySelectorAll('.heat button')].find((one) => one.dataset.name === '{name}').click()")).await.unwrap();
        let next = match name {
            "block-2" => "20 domains",
            "rack-3" => "16 domains",
            _ => "and 2 more",
        };
        shows(page, next).await;
    }
    shows(page, "Pods that fit into one domain now").await;
    shows(page, "cpu=4,memory=16Gi of spot").await;
    probed(page, &format!("hosts {width}")).await;
}

/// A row of the table Now, by its first cell: the texts of its cells, without those of bars.
async fn row_of(page: &mut Page, name: &str) -> Value {
    let script = format!(
        "(() => {{
            const rows = [...document.querySelectorAll('[role=treegrid] .line-row')];
            const row = rows.find((one) => one.querySelector('.who .text')?.textContent === {name:?});
            return row ? [...row.children].slice(2).map((cell) => cell.textContent) : null;
        }})()"
    );
    page.run(&script).await.unwrap()
}

#[tokio::test]
async fn cohorts_show_their_own_quota_and_queues_what_they_borrow_and_lend() {
    let mut page = opened(&serve(Fault::None).await, 1280, Scheme::Light).await;
    let heads =
        "[...document.querySelectorAll('[role=treegrid] [role=columnheader]')].map((one) => one.textContent)";
    let heads = page.run(heads).await.unwrap();
    assert_eq!(heads.as_array().unwrap()[2..5], ["Used", "Borrowed", "Lent, may lend"]);
    let own = row_of(&mut page, "cpu of spot, the cohort's own").await;
    assert_eq!(own.as_array().unwrap()[..3], ["3 of 16", "", "2 cpu lent, may lend 14 cpu more"], "{own}");
    page.run("document.querySelector('input[type=search]').value = 'team-400'; document.querySelector('input[type=search]').dispatchEvent(new Event('input'))").await.unwrap();
    shows(&mut page, "cohort-0 (1)").await;
    // What is used of the cohort's own quota is used by a queue: it is not counted twice.
    let bars = page
        .run("document.querySelector('.line-row.cohort .bar-cell').getAttribute('aria-label')")
        .await
        .unwrap();
    assert!(bars.as_str().unwrap().contains("cpu of spot: 6 used of 32, 2 lent"), "{bars}");
    page.run("[...document.querySelectorAll('[role=treegrid] .line-row')].find((one) => one.textContent.includes('team-400')).click()").await.unwrap();
    shows(&mut page, "cpu of on-demand").await;
    let lends = row_of(&mut page, "cpu of spot").await;
    assert_eq!(lends.as_array().unwrap()[..3], ["6 of 16", "", "may lend 10 cpu"], "{lends}");
}

#[tokio::test]
async fn work_that_lost_its_nodes_is_listed_with_queue_priority_time_and_nodes() {
    let mut page = opened(&serve(Fault::None).await, 1280, Scheme::Light).await;
    go(&mut page, "nodes", "700 workloads lost their nodes and wait for others").await;
    let cells = |name: &str| {
        format!(
            "(() => {{
                const table = document.querySelector('[role=grid][aria-label=\"Displaced work\"]');
                const row = [...table.querySelectorAll('.line-row')].find((one) => one.firstElementChild.textContent === '{name}');
                return row ? [...row.children].slice(1).map((cell) => cell.textContent) : null;
            }})()"
        )
    };
    let stays = page.run(&cells(&format!("team-3/{HOSTILE}"))).await.unwrap();
    let stays = stays.as_array().unwrap();
    assert_eq!(stays[..3], ["team-3", "300", "admitted"]);
    assert!(stays[3].as_str().unwrap().starts_with("2026-11-01 19:26:43 ("), "{stays:?}");
    assert_eq!(stays[4], format!("node-3, {HOSTILE}"));
    let evicted = page.run(&cells("team-4/job-train-model-4")).await.unwrap();
    assert_eq!(evicted, serde_json::json!(["team-4", "400", "pending", "–", MESSAGE]));
    let others = page.run(&cells("a workload of others")).await.unwrap();
    assert_eq!(others[4], "", "what others lost is not named: {others}");
    let link = page
        .run("document.querySelector('[aria-label=\"Displaced work\"] a').getAttribute('href')")
        .await
        .unwrap();
    assert_eq!(link, "#/workload/team-0/job-train-model-0");
    page.run("(() => { const body = document.querySelector('[role=grid][aria-label=\"Displaced work\"] .grid-body'); body.scrollTop = body.scrollHeight; })()").await.unwrap();
    shows(&mut page, "job-train-model-699").await;
    probed(&mut page, "displaced 1280").await;
}

/// A script that opens a report as a file in the view Report.
fn open_file(report: &Value) -> String {
    open(&format!("JSON.stringify({report})"), "day.json")
}

/// A script that opens what a script gives as a file with this name.
fn open(content: &str, name: &str) -> String {
    format!(
        "(() => {{
            const files = new DataTransfer();
            files.items.add(new File([{content}], '{name}'));
            const input = document.querySelector('input[type=file]');
            input.files = files.files;
            input.dispatchEvent(new Event('change'));
        }})()"
    )
}

/// The heat map below a schedule: a moment of the day, the jobs of a cell beside the pointer, and down to a host by keys.
async fn places_over_time(page: &mut Page, width: u32) {
    let at = |moment: u64| {
        format!(
            "(() => {{ const time = document.querySelector('.places .time'); time.value = '{moment}'; time.dispatchEvent(new Event('input'));
                return time.getAttribute('aria-valuetext'); }})()"
        )
    };
    let tips = "[...document.querySelectorAll('.places .heat')][0].querySelectorAll('button')";
    // The first jobs: the one that is not named has two pods.
    let said = page.run(&at(172_000)).await.unwrap();
    assert_eq!(said, "2m52s (2026-11-01 00:02:52 UTC)");
    // The same topology in another schedule is shown at the same moment.
    let moments = "[...new Set([...document.querySelectorAll('.places .time')].map((time) => time.getAttribute('aria-valuetext')))]";
    assert_eq!(page.run(moments).await.unwrap(), Value::from(vec![said]));
    let blocks = page.run(&format!("[...{tips}].map((one) => one.dataset.t).join('; ')")).await.unwrap();
    let blocks = blocks.as_str().unwrap();
    assert!(blocks.starts_with("block-0: 4 of 64 nvidia.com/gpu used (6 %)\n8 nodes\n"), "{blocks}");
    assert!(blocks.contains("block-1: 4 of 64 nvidia.com/gpu used (6 %)\n8 nodes\n2 of others"), "{blocks}");
    assert!(blocks.contains(&format!("{HOSTILE}: 1 pod")), "{blocks}");
    // A scroll hides what is beside the pointer: first it has to be over.
    let cell = format!(
        "(async () => {{
            const cell = {tips}[1];
            cell.scrollIntoView({{ block: 'center' }});
            for (let picture = 0; picture < 3; picture += 1) await new Promise(requestAnimationFrame);
            const {{ x, y }} = cell.getBoundingClientRect();
            return [x + 9, y + 9];
        }})()"
    );
    let cell = page.run(&cell).await.unwrap();
    page.move_mouse(cell[0].as_f64().unwrap(), cell[1].as_f64().unwrap()).await.unwrap();
    let tip = "getComputedStyle(document.getElementById('tip')).display + document.getElementById('tip').textContent";
    let tip = page.run(tip).await.unwrap();
    assert!(
        tip.as_str().unwrap().starts_with("blockblock-1: ") && tip.as_str().unwrap().ends_with("2 of others"),
        "{tip}"
    );
    // In the afternoon a host is lost.
    page.run(&at(50_000_000)).await.unwrap();
    let lost = page.run(&format!("{tips}[0].dataset.t")).await.unwrap();
    assert!(lost.as_str().unwrap().contains("8 nodes, 1 not healthy"), "{lost}");
    page.run(&format!("{tips}[0].focus()")).await.unwrap();
    for wanted in ["rack-0", "host-0"] {
        page.press("Enter").await.unwrap();
        let first = page.run(&format!("{tips}[0].dataset.name")).await.unwrap();
        assert_eq!(first, wanted);
    }
    page.press("Enter").await.unwrap();
    shows(page, "Pods that fit into one domain at this time").await;
    assert_eq!(page.run("document.querySelector('.places h4').textContent").await.unwrap(), "host-0");
    probed(page, &format!("places {width}")).await;
}

#[tokio::test]
async fn every_view_can_be_read_and_names_stay_text() {
    let url = serve(Fault::None).await;
    for (width, scheme) in [(390, Scheme::Dark), (1280, Scheme::Light)] {
        let mut page = opened(&url, width, scheme).await;
        for (view, text) in VIEWS {
            go(&mut page, view, text).await;
            let seen = probed(&mut page, &format!("{view} {width}")).await;
            assert!(seen["texts"].as_u64().unwrap() > 10, "{view}");
        }
        let other = if scheme == Scheme::Dark { Scheme::Light } else { Scheme::Dark };
        page.look(width, 900, other).await.unwrap();
        for (view, text) in VIEWS {
            go(&mut page, view, text).await;
            // In these colours axe looks at the contrast at the other width.
            let name = format!("{view} {width} {other:?}");
            looks_right(&mut page, &name).await;
            is_accessible_but_for_contrast(&mut page, &name).await;
        }
        page.look(width, 900, scheme).await.unwrap();
        go(&mut page, "now", HOSTILE).await;
        go(&mut page, &format!("workload/team-3/{}", HOSTILE.replace('/', "%2F")), HOSTILE).await;
        shows(&mut page, MESSAGE).await;
        for button in ["Explain: why, and what helps", "Estimate the start"] {
            page.click(button).await.unwrap();
        }
        shows(&mut page, "waits.").await;
        shows(&mut page, "Expected start: about").await;
        probed(&mut page, &format!("explain {width}")).await;
        go(&mut page, "queue/team-1", "Estimate starts").await;
        page.click("Estimate starts").await.unwrap();
        shows(
            &mut page,
            "about 2026-11-02 01:15 (2026-11-02 01:00–2026-11-02 02:06); preempts team-9/low, 2 more",
        )
        .await;
        shows(&mut page, "for the first 100 of 20000").await;
        probed(&mut page, &format!("queue with starts {width}")).await;
        go(&mut page, "nodes", "40 domains").await;
        domains(&mut page, width).await;
        play(&mut page, WORKLOADS).await;
        shows(&mut page, &format!("{HOSTILE} starts 1m sooner.")).await;
        probed(&mut page, &format!("tomorrow {width}")).await;
        let maps = "document.querySelectorAll('.places').length";
        assert_eq!(page.run(maps).await.unwrap(), 2, "one of each schedule");
        places_over_time(&mut page, width).await;
        go(&mut page, "report", "side by side").await;
        page.run(&open_file(&data::report())).await.unwrap();
        shows(&mut page, "20000 jobs").await;
        assert_eq!(page.run(maps).await.unwrap(), 1);
        places_over_time(&mut page, width).await;
        let reached =
            page.requests().iter().all(|asked| asked.starts_with(&url) || asked.starts_with("data:"));
        assert!(reached, "{:?}", page.requests());
    }
}

/// A report as JSON is drawn with the marks that the simulator's own page has.
#[tokio::test]
async fn a_report_has_marks_of_stops_quota_capacity_and_evictions() {
    let world = assets::workspace().join("tests/tests/views/browser/marks.yaml");
    let report = serde_json::from_str(&simulate(&world, "json")).unwrap();
    let mut page = opened(&serve(Fault::None).await, 1280, Scheme::Light).await;
    go(&mut page, "report", "side by side").await;
    page.run(&open_file(&report)).await.unwrap();
    shows(&mut page, "7 changes of nodes, queues and quota").await;
    let drawn = page.run(DRAWN).await.unwrap();
    all_is_marked(&drawn, "\"nominalQuota\":8");
    assert!(page.troubles().is_empty(), "{:?}", page.troubles());
}

/// A recorded day is a report like a simulation's.
#[tokio::test]
async fn a_recorded_day_is_drawn_from_its_document() {
    let report = serde_json::from_str(&recorded("json")).unwrap();
    let mut page = opened(&serve(Fault::None).await, 1280, Scheme::Light).await;
    go(&mut page, "report", "side by side").await;
    page.run(&open_file(&report)).await.unwrap();
    shows(&mut page, "3 submitted, 1 finished, 1 running, 1 waiting, 1 preemptions").await;
    shows(&mut page, "3 changes of nodes, queues and quota").await;
    day_is_drawn(&page.run(DAY).await.unwrap());
    assert_eq!(page.run("window.ran ?? null").await.unwrap(), Value::Null, "a name ran");
    assert!(page.troubles().is_empty(), "{:?}", page.troubles());
}

/// The journal itself is drawn as what `kubectl kueue report` makes of it, within bounds.
#[tokio::test]
async fn a_journal_is_drawn_and_one_that_is_too_large_is_refused() {
    let day =
        std::fs::read_to_string(assets::workspace().join("tests/tests/views/browser/day.jsonl")).unwrap();
    let mut page = opened(&serve(Fault::None).await, 1280, Scheme::Light).await;
    go(&mut page, "report", "side by side").await;
    page.run(&open(&Value::from(day.clone()).to_string(), "pod.00000000.jsonl")).await.unwrap();
    shows(&mut page, "3 submitted, 1 finished, 1 running, 1 waiting, 1 preemptions").await;
    shows(&mut page, "3 changes of nodes, queues and quota").await;
    day_is_drawn(&page.run(DAY).await.unwrap());
    // What a manager was writing when it ended, and what is no line, is left out.
    let broken = Value::from(format!("[]\n{{}}\n{day}{{\"at\": \"2026-01-05T1"));
    page.run(&open(&broken.to_string(), "broken.jsonl")).await.unwrap();
    shows(&mut page, "broken.jsonl").await;
    shows(&mut page, "3 submitted, 1 finished, 1 running, 1 waiting, 1 preemptions").await;
    page.run(&open("'x'", "none.jsonl")).await.unwrap();
    shows(&mut page, "This file has no line of a journal.").await;
    page.run(&open("'x'.repeat(65e6)", "large.jsonl")).await.unwrap();
    shows(&mut page, "large.jsonl is too large: 65 MB of at most 64 MB.").await;
    assert_eq!(page.run("window.ran ?? null").await.unwrap(), Value::Null, "a name ran");
    assert!(page.troubles().is_empty(), "{:?}", page.troubles());
}

#[tokio::test]
async fn keys_alone_lead_through_the_page() {
    let url = serve(Fault::None).await;
    let mut page = opened(&url, 1280, Scheme::Light).await;
    let focus = "(document.activeElement.id || document.activeElement.className || document.activeElement.textContent).slice(0, 40)";
    let mut path = Vec::new();
    for _ in 0..9 {
        page.press("Tab").await.unwrap();
        path.push(page.run(focus).await.unwrap().as_str().unwrap().to_owned());
    }
    assert_eq!(
        path[..7],
        ["skip", "Now", "Queue", "Workload", "Nodes", "Tomorrow", "Report"].map(String::from)
    );
    // After the views comes the search, then one row of the table.
    assert!(path[8].starts_with("line-row"), "{path:?}");
    let row = "[...document.querySelectorAll('.line-row')].indexOf(document.activeElement) < 0 ? -1 : Number(document.activeElement.dataset.at)";
    page.press("ArrowDown").await.unwrap();
    assert_eq!(page.run(row).await.unwrap(), 1);
    page.press("End").await.unwrap();
    let last = page.run(row).await.unwrap().as_u64().unwrap();
    assert!(last >= u64::try_from(QUEUES).unwrap(), "{last}");
    page.press("Home").await.unwrap();
    let rows = "Number(document.querySelector('[role=treegrid]').getAttribute('aria-rowcount'))";
    let before = page.run(rows).await.unwrap().as_u64().unwrap();
    page.press("Enter").await.unwrap();
    let after = page.run(rows).await.unwrap().as_u64().unwrap();
    assert!(after < before, "a cohort is not folded: {before} rows, then {after}");
    assert_eq!(page.run(row).await.unwrap(), 0, "the focus is lost");
}

#[tokio::test]
async fn a_user_without_a_token_is_asked_for_one() {
    let url = serve(Fault::None).await;
    let mut page = Page::start().await.unwrap();
    page.look(1280, 900, Scheme::Light).await.unwrap();
    page.visit(&url).await.unwrap();
    shows(&mut page, "Who are you?").await;
    is_accessible(&mut page, "sign in").await;
    let enter = |token: &str| {
        format!(
            "document.querySelector('textarea').value = {token:?}; document.querySelector('form').requestSubmit();"
        )
    };
    page.run(&enter("wrong")).await.unwrap();
    shows(&mut page, "who are you?").await;
    is_accessible(&mut page, "a token that is refused").await;
    page.run(&enter(TOKEN)).await.unwrap();
    shows(&mut page, "1000 queues").await;
    let kept = page
        .run("JSON.stringify([{...sessionStorage}, {...localStorage}, document.cookie, location.href])")
        .await;
    assert!(!kept.unwrap().as_str().unwrap().contains(TOKEN));
    let mut page = opened(&url, 1280, Scheme::Light).await;
    let kept = page.run("location.href + history.length").await.unwrap();
    assert!(!kept.as_str().unwrap().contains(TOKEN), "{kept}");
}

#[tokio::test]
async fn what_a_server_lacks_or_breaks_is_said_in_a_sentence() {
    let mut page = opened(&serve(Fault::Less).await, 1280, Scheme::Light).await;
    go(&mut page, "nodes", "This server does not show nodes.").await;
    go(&mut page, "tomorrow", "Simulate").await;
    page.click("Simulate").await.unwrap();
    shows(&mut page, "This server does not simulate the future.").await;
    is_accessible(&mut page, "what a server lacks").await;
    let url = serve(Fault::Broken).await;
    page.visit(&format!("{url}/#key={TOKEN}")).await.unwrap();
    shows(&mut page, "is not JSON").await;
    is_accessible(&mut page, "what a server breaks").await;
    go(&mut page, "workload", "is not JSON").await;
    go(&mut page, "report", "side by side").await;
    page.run(&open_file(&serde_json::json!({"timeline": 7}))).await.unwrap();
    shows(&mut page, "This is not a simulation's report as JSON.").await;
}

#[tokio::test]
async fn broken_reports_cohorts_in_circles_and_cut_streams_do_no_harm() {
    let mut page = opened(&serve(Fault::None).await, 1280, Scheme::Light).await;
    let trouble = page.run(include_str!("dashboard/hostile.js")).await.unwrap();
    assert_eq!(trouble, Value::Array(Vec::new()));
    assert!(page.troubles().is_empty(), "{:?}", page.troubles());
}
