//! The page of `kubectl kueue simulate --output html` in a real headless browser: it shows the values of the JSON output, is readable in light and
//! dark, and loads nothing from outside. With `SLUICE_SCREENSHOTS` set to a folder, screenshots are stored there.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod large;
pub mod marks;
mod outcome;
mod view;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use marks::{DAY, DRAWN, all_is_marked, day_is_drawn, recorded};
use outcome::{Outcome, amount};
use serde_json::Value;
use sluice_testkit::assets;
use sluice_testkit::browser::{Page, Scheme};
use tempfile::TempDir;
use view::{Mark, Picture, View};

use crate::axe::{is_accessible, is_accessible_but_for_contrast};

const PROBE: &str = include_str!("browser/probe.js");
const LOOKS: [(u32, Scheme); 6] = [
    (390, Scheme::Dark),
    (390, Scheme::Light),
    (800, Scheme::Dark),
    (800, Scheme::Light),
    (1280, Scheme::Dark),
    (1280, Scheme::Light),
];
/// Those at which axe looks at the contrast of texts: the narrowest and the widest, each in its own colours. The probe looks at it every time.
const CONTRAST: [(u32, Scheme); 2] = [(390, Scheme::Dark), (1280, Scheme::Light)];
/// The height of a usage chart in pixels.
const CURVE: f64 = 90.0;

/// What `kubectl kueue simulate` prints of a world.
pub fn simulate(world: &Path, output: &str) -> String {
    let mut command = Command::new(sluice_testkit::plugin().unwrap());
    command.args(["simulate", "--quiet", "--output", output]).arg(world);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Writes a world's page into the folder.
fn write_page(world: &Path, folder: &TempDir) -> PathBuf {
    let file = folder.path().join("page.html");
    let page = simulate(world, "html");
    assert!(page.len() < 10_000_000, "{} bytes", page.len());
    fs::write(&file, page).unwrap();
    file
}

async fn view(page: &mut Page) -> View {
    serde_json::from_value(page.run(PROBE).await.unwrap()).unwrap()
}

/// What must hold of every page, however it is looked at. The last look is returned.
async fn can_be_read(page: &mut Page, file: &Path, name: &str) -> View {
    can_be_read_in(&LOOKS, page, file, name).await
}

async fn can_be_read_in(looks: &[(u32, Scheme)], page: &mut Page, file: &Path, name: &str) -> View {
    let mut last = None;
    for &(width, scheme) in looks {
        page.look(width, 900, scheme).await.unwrap();
        page.open(file).await.unwrap();
        let seen = view(page).await;
        if let Some(folder) = std::env::var_os("SLUICE_SCREENSHOTS") {
            let file = PathBuf::from(folder).join(format!("{name}-{width}-{scheme:?}.png").to_lowercase());
            fs::write(file, page.screenshot().await.unwrap()).unwrap();
        }
        let look = format!("{name} at {width} pixels, {scheme:?}");
        assert!(seen.faint.is_empty() && seen.texts > 30, "{look}: {:?}", seen.faint);
        assert!(seen.scrolling.is_empty(), "{look}: {:?}", seen.scrolling);
        assert!(seen.outside.is_empty(), "{look}: {:?}", seen.outside);
        assert!(seen.overlaps.is_empty(), "{look}: {:?}", seen.overlaps);
        assert!(seen.cut.is_empty(), "{look}: {:?}", seen.cut);
        if CONTRAST.contains(&(width, scheme)) {
            is_accessible(page, &look).await;
        } else {
            is_accessible_but_for_contrast(page, &look).await;
        }
        assert_eq!(page.requests(), [format!("file://{}", file.display())], "{look}");
        assert!(page.troubles().is_empty(), "{look}: {:?}", page.troubles());
        let before = last.replace((scheme, seen));
        if let Some((other, before)) = before.filter(|(other, _)| *other != scheme) {
            let seen = &last.as_ref().unwrap().1;
            assert_ne!(before.page, seen.page, "{other:?} and {scheme:?} look the same");
        }
    }
    last.unwrap().1
}

/// Whether a mark is where these times are.
fn stands_at(mark: &Mark, picture: &Picture, outcome: &Outcome, from: f64, to: f64) -> bool {
    let x = |at: f64| picture.plot.left + picture.plot.width * at / outcome.end;
    // A job holds its quota until its pods have ended, which takes a second; whole units of a thousandth are drawn, and edges.
    let slack = x(1.0) - x(0.0) + picture.plot.width / 1000.0 + 1.0;
    (mark.left - x(from)).abs() <= slack && (mark.right - x(to)).abs() <= slack + 1.0
}

/// Each hold of each job is a bar in the colour of its flavor, each preemption a cross.
fn bars_are_right(seen: &View, outcome: &Outcome) {
    let mut crosses = 0;
    for queue in outcome.queues() {
        let picture = seen.picture(queue, "Jobs");
        let mut bars = 0;
        for (name, job) in outcome.jobs_of(queue) {
            let own: Vec<_> =
                picture.bars.iter().filter(|b| b.tip.starts_with(&format!("{name} (prio"))).collect();
            assert_eq!(own.len(), job.holds.len(), "{name}: {own:?}");
            bars += own.len();
            for (bar, hold) in own.iter().zip(&job.holds) {
                assert!(stands_at(bar, picture, outcome, hold.from, hold.to), "{name}: {bar:?} {hold:?}");
                assert_eq!(bar.fill, seen.legend[&hold.got[0].1], "{name}");
            }
            for hold in job.holds.iter().filter(|hold| hold.preempted) {
                let cross =
                    picture.crosses.iter().find(|cross| cross.tip.starts_with(&format!("{name}\npreempted")));
                let cross = cross.unwrap_or_else(|| unreachable!("no cross for {name}"));
                let x = picture.plot.left + picture.plot.width * hold.to / outcome.end;
                assert!((cross.left.midpoint(cross.right) - x).abs() < 2.0, "{cross:?} is not at {x}");
                crosses += 1;
            }
        }
        assert_eq!(picture.bars.len(), bars);
    }
    assert_eq!(crosses, outcome.report["totals"]["preemptions"].as_u64().unwrap());
}

/// At a time when nothing happens each picture of usage shows what is used, borrowed and there.
fn usage_is_right(seen: &View, outcome: &Outcome, at: f64) {
    let mut pictures = 0;
    for picture in seen.pictures.iter().filter(|picture| picture.title.contains(" of ")) {
        let (resource, flavor) = picture.title.split_once(" of ").unwrap();
        let (by_queue, unit) = outcome.usage(resource, flavor, at);
        let has_quota =
            |queue: &&str| seen.pictures.iter().any(|p| p.queue == *queue && p.title == picture.title);
        let queues: Vec<&str> = match picture.queue.as_str() {
            "" => outcome.queues().into_iter().filter(has_quota).collect(),
            queue => vec![queue],
        };
        let mut sums = (0, 0, 0);
        for queue in queues {
            let (used, nominal) =
                (by_queue.get(queue).copied().unwrap_or(0), outcome.nominal(queue, resource, flavor));
            sums = (sums.0 + used, sums.1 + nominal, sums.2 + (used - nominal).max(0));
        }
        let (used, nominal, borrowed) = sums;
        let x = picture.plot.left + picture.plot.width * at / outcome.end;
        let over = |marks: &[Mark]| marks.iter().find(|mark| (mark.left..mark.right).contains(&x)).cloned();
        let (own, lent) = (over(&picture.used), over(&picture.borrowed));
        let most = amount(&picture.labels[0]).0;
        #[expect(clippy::cast_precision_loss, reason = "small numbers")]
        let high = |amount: i64| amount as f64 * CURVE / most as f64;
        let heights = [&own, &lent].map(|mark| mark.as_ref().map_or(0.0, |mark| mark.height));
        let expected = [high(used - borrowed), high(borrowed)];
        let close = heights.iter().zip(expected).all(|(height, expected)| (height - expected).abs() <= 1.5);
        assert!(close, "{} {}: {heights:?} is not {expected:?}", picture.queue, picture.title);
        let line = picture.nominal[0].bottom - picture.plot.top;
        assert!((line - (8.0 + CURVE - high(nominal))).abs() <= 2.0, "{}: {line}", picture.title);
        for mark in own.iter().chain(&lent) {
            assert!(
                mark.tip.contains(&format!("\nused {used}{unit} of nominal {nominal}{unit}")),
                "{}",
                mark.tip
            );
            assert_eq!(mark.tip.contains("borrowed"), borrowed > 0, "{}", mark.tip);
            assert!(borrowed == 0 || mark.tip.ends_with(&format!(" {borrowed}{unit}")), "{}", mark.tip);
            assert_eq!(mark.fill, seen.legend[flavor]);
        }
        assert!(lent.is_none_or(|lent| lent.opacity != "1"), "what is borrowed is pale");
        pictures += 1;
    }
    assert!(pictures >= 2);
}

fn depth_is_right(seen: &View, outcome: &Outcome, at: f64) {
    for queue in outcome.queues() {
        let picture = seen.picture(queue, "Queue depth");
        let x = picture.plot.left + picture.plot.width * at / outcome.end;
        let shown = picture.depth.iter().find(|mark| (mark.left..mark.right).contains(&x));
        let says = shown.map(|mark| mark.tip.rsplit('\n').next().unwrap().to_owned());
        let waiting = outcome.depth(queue, at);
        assert_eq!(says, (waiting > 0).then(|| format!("{waiting} waiting")), "{queue} at {at} s");
    }
}

/// Shows all rows of the schedule at once, in the colours of flavors or of priorities.
async fn unrolled(page: &mut Page, colours: &str) -> View {
    let script = format!(
        "(async () => {{ for (const rows of document.querySelectorAll('.gantt .rows')) rows.style.maxHeight = 'none';
           const select = document.querySelector('.gantt select');
           select.value = {colours:?};
           select.dispatchEvent(new Event('change'));
           // The schedule hears of its new size with the next picture, and draws with the one after it.
           for (const frame of [1, 2, 3]) await new Promise(requestAnimationFrame); }})()"
    );
    page.run(&script).await.unwrap();
    is_accessible(page, "all rows").await;
    view(page).await
}

/// Puts the mouse on something; what the page shows.
async fn pointed_at(page: &mut Page, selector: &str, begins: &str) -> View {
    let script = format!(
        "(async () => {{ const all = [...document.querySelectorAll({selector:?})];
           const mark = all.find((one) => one.closest('[data-t]')?.dataset.t.startsWith({begins:?}));
           mark.scrollIntoView({{ block: 'center' }});
           // The page hears of the scrolling with its next picture.
           for (const frame of [1, 2]) await new Promise(requestAnimationFrame);
           const {{ left, top, width, height }} = mark.getBoundingClientRect();
           return [left + width / 2, top + height / 2]; }})()"
    );
    let place = page.run(&script).await.unwrap();
    page.move_mouse(place[0].as_f64().unwrap(), place[1].as_f64().unwrap()).await.unwrap();
    view(page).await
}

/// Pointing at each job that waited for a reason shows that reason.
async fn pointing_shows_why(page: &mut Page, outcome: &Outcome, name: &str) {
    let (_, reason, message) = outcome.jobs[name].reasons.last().unwrap();
    let seen = pointed_at(page, "rect.hit", &format!("{name} (priority")).await;
    assert!(seen.tip.shown && seen.tip.text.contains(&format!("{reason}: {message}")), "{:?}", seen.tip);
    assert!(seen.tip.left >= 0.0 && seen.tip.right <= 1280.0 && seen.tip.bottom <= 900.0, "{:?}", seen.tip);
    assert!(seen.faint.is_empty(), "{:?}", seen.faint);
}

/// What could be smuggled into the page may fetch nothing and run nothing.
async fn nothing_gets_out(page: &mut Page) {
    let script = "new Promise((done) => {
        document.addEventListener('securitypolicyviolation', (event) => {
            if (event.effectiveDirective === 'img-src') done(event.blockedURI);
        });
        document.body.insertAdjacentHTML('beforeend', '<img src=\"https://sluice.invalid/\" onerror=\"window.ran = 9\">');
    })";
    assert_eq!(page.run(script).await.unwrap(), "https://sluice.invalid/");
    let inline = "(() => { const script = document.createElement('script');
        script.textContent = 'window.ran = 8'; document.body.append(script); return window.ran ?? null; })()";
    assert_eq!(page.run(inline).await.unwrap(), Value::Null);
}

async fn shows_its_outcome(world: &Path, name: &str) -> (Page, Outcome, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let outcome = Outcome::new(serde_json::from_str(&simulate(world, "json")).unwrap());
    let file = write_page(world, &folder);
    let mut page = Page::start().await.unwrap();
    let seen = can_be_read(&mut page, &file, name).await;
    assert_eq!(seen.ran, Value::Null, "a script of the input ran");
    let flavors: Vec<&str> = seen.legend.keys().map(String::as_str).collect();
    assert_eq!(flavors, outcome.flavors().into_iter().collect::<Vec<_>>());
    let colours: std::collections::BTreeSet<_> = seen.legend.values().collect();
    assert_eq!(colours.len(), flavors.len(), "{:?}", seen.legend);
    bars_are_right(&unrolled(&mut page, "flavor").await, &outcome);
    let total = |at: f64| outcome.queues().iter().map(|queue| outcome.depth(queue, at)).sum::<usize>();
    for at in [outcome.calm(|_| true), outcome.calm(|at| total(at) > 0)] {
        usage_is_right(&seen, &outcome, at);
        depth_is_right(&seen, &outcome, at);
    }
    (page, outcome, folder)
}

#[tokio::test]
async fn a_preemption_is_seen_as_it_happened() {
    let world = assets::workspace().join("examples/simulate/tpu-preemption.yaml");
    let (mut page, outcome, _folder) = shows_its_outcome(&world, "preemption").await;
    assert_eq!(outcome.report["totals"]["preemptions"], 1);
    pointing_shows_why(&mut page, &outcome, "default/low-priority").await;
    let seen = unrolled(&mut page, "priority").await;
    let fills: std::collections::BTreeSet<_> =
        seen.picture(outcome.queues()[0], "Jobs").bars.iter().map(|bar| &bar.fill).collect();
    assert_eq!(fills.len(), 2, "a colour for each of the two priorities");
    let seen = pointed_at(&mut page, ".row .mark", "default/low-priority\npreempted").await;
    assert!(seen.tip.text.contains("by default/high-priority: InClusterQueue"), "{:?}", seen.tip);
    nothing_gets_out(&mut page).await;
}

/// Node failures, stopped queues and changed quota are marked, also what is evicted for another reason than preemption.
#[tokio::test]
async fn what_happens_to_nodes_and_queues_is_marked() {
    let folder = tempfile::tempdir().unwrap();
    let world = assets::workspace().join("examples/simulate/hotswap-pool-fails.yaml");
    let file = write_page(&world, &folder);
    let mut page = Page::start().await.unwrap();
    let seen = can_be_read(&mut page, &file, "nodes").await;
    let nodes: Vec<_> = seen.moments.iter().filter(|moment| moment.kind == "nodes").collect();
    assert_eq!(nodes.len(), 2, "{:?}", seen.moments);
    assert!(nodes[0].tip.contains("nodes depart: v6e-pool-1-0"), "{:?}", nodes[0]);
    assert!(nodes[1].tip.contains("nodes recover"), "{:?}", nodes[1]);
    let seen = pointed_at(&mut page, ".row .sign.evicted", "default/high-jax-trillium\nevicted").await;
    assert!(seen.tip.text.contains("NodeFailures"), "{:?}", seen.tip);
}

#[tokio::test]
async fn stops_quota_capacity_and_evictions_that_are_no_preemptions_are_marked() {
    let folder = tempfile::tempdir().unwrap();
    let world = assets::workspace().join("tests/tests/views/browser/marks.yaml");
    let file = write_page(&world, &folder);
    let mut page = Page::start().await.unwrap();
    can_be_read(&mut page, &file, "marks").await;
    let drawn = page.run(DRAWN).await.unwrap();
    all_is_marked(&drawn, "ClusterQueue team: 4 → 8 cpu of spot");
    let listed = "[...document.querySelectorAll('.marks li')].map((line) => line.textContent).join('; ')";
    let listed = page.run(listed).await.unwrap();
    assert!(listed.as_str().unwrap().contains("10m (08:10 UTC): ClusterQueue team stops; "), "{listed}");
    let seen = pointed_at(&mut page, ".row .sign.evicted", "default/train\nevicted").await;
    assert!(seen.tip.shown && seen.tip.text.contains("ClusterQueueStopped"), "{:?}", seen.tip);
}

/// A day out of the journal is on the same page: each Workload from queued over admitted to evicted or finished, with the reasons.
#[tokio::test]
async fn a_recorded_day_is_seen_as_a_simulation_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    fs::write(&file, recorded("html")).unwrap();
    let mut page = Page::start().await.unwrap();
    let seen = can_be_read(&mut page, &file, "recorded").await;
    assert_eq!(seen.ran, Value::Null, "a name ran");
    assert_eq!((seen.tiles["finished"].as_str(), seen.tiles["waiting at the end"].as_str()), ("1", "1"));
    day_is_drawn(&page.run(DAY).await.unwrap());
    let changes: Vec<_> = seen.moments.iter().map(|moment| moment.tip.as_str()).collect();
    let quota = "1h (09:00 UTC): ClusterQueue team: 4 → 8 cpu of spot";
    let stopped =
        ["1h40m (09:40 UTC): ClusterQueue team stops", "1h50m (09:50 UTC): ClusterQueue team continues"];
    assert_eq!(changes, [quota, stopped[0], stopped[1]]);
    let seen = pointed_at(&mut page, ".row .sign.preempted", "vision/low").await;
    assert!(seen.tip.text.contains("by vision/high: InClusterQueue"), "{:?}", seen.tip);
}

/// Blocks, sub-blocks and hosts over time: how much is used at a moment and by which job, and how large a job would fit.
#[tokio::test]
async fn domains_are_seen_over_time() {
    let folder = tempfile::tempdir().unwrap();
    let world = folder.path().join("world.yaml");
    let read = |name: &str| {
        fs::read_to_string(assets::workspace().join(format!("examples/topology/{name}.yaml"))).unwrap()
    };
    let parts = ["nodes", "queues", "1-together", "4-anywhere", "3-if-possible"].map(read);
    fs::write(&world, parts.join("\n---\n")).unwrap();
    let file = write_page(&world, &folder);
    let mut page = Page::start().await.unwrap();
    can_be_read(&mut page, &file, "topology").await;
    let tips = "[...document.querySelectorAll('.heat button')].map((one) => one.dataset.t).join('; ')";
    let text =
        async |page: &mut Page, script: &str| page.run(script).await.unwrap().as_str().unwrap().to_owned();
    // The page begins where most pods have a place: three machines and a GPU.
    let block = text(&mut page, tips).await;
    assert!(block.contains("25 of 32 nvidia.com/gpu used (78 %)\n4 nodes\ndefault/if-possible: 3 pods\ndefault/anywhere: 1 pod"), "{block}");
    let fits = "[...document.querySelectorAll('.places tbody tr')].map((row) => row.innerText.split(/\\s+/).join(' ')).join('; ')";
    let then = text(&mut page, fits).await;
    assert!(
        then.starts_with("1 nvidia.com/gpu 7 7 7; ") && then.ends_with("8 nvidia.com/gpu 0 0 0"),
        "{then}"
    );
    page.run("document.querySelector('.heat button').focus()").await.unwrap();
    page.press("Enter").await.unwrap();
    let later = "(() => { const time = document.querySelector('.time'); time.value = '10000'; time.dispatchEvent(new Event('input')); return time.getAttribute('aria-valuetext'); })()";
    assert!(text(&mut page, later).await.ends_with(" UTC)"));
    let blocks = text(&mut page, tips).await;
    assert!(
        blocks
            .starts_with("subblock-a: 1 of 16 nvidia.com/gpu used (6 %)\n2 nodes\ndefault/anywhere: 1 pod; "),
        "{blocks}"
    );
    assert!(
        blocks
            .ends_with("subblock-b: 16 of 16 nvidia.com/gpu used (100 %)\n2 nodes\ndefault/together: 2 pods"),
        "{blocks}"
    );
    let then = text(&mut page, fits).await;
    assert!(then.ends_with("8 nvidia.com/gpu 1 1 1"), "{then}");
    page.press("ArrowRight").await.unwrap();
    page.press("Enter").await.unwrap();
    let hosts = text(&mut page, tips).await;
    assert_eq!(hosts.matches("8 of 8 nvidia.com/gpu used").count(), 2, "{hosts}");
    page.press("ArrowRight").await.unwrap();
    page.press("Enter").await.unwrap();
    let named = text(&mut page, "document.querySelector('.places h4 + ul').innerText").await;
    assert_eq!(named, "default/together: 1 pod");
    assert!(page.troubles().is_empty(), "{:?}", page.troubles());
}

/// Searching, zooming and moving by keys alone; charts show the same time as the schedule.
#[tokio::test]
async fn the_schedule_is_a_tool() {
    let folder = tempfile::tempdir().unwrap();
    let world = assets::workspace().join("tests/tests/views/browser/several-flavors.yaml");
    let file = write_page(&world, &folder);
    let mut page = Page::start().await.unwrap();
    // So low that not all rows are seen.
    page.look(1280, 500, Scheme::Light).await.unwrap();
    page.open(&file).await.unwrap();
    let script = include_str!("browser/tool.js");
    let seen = page.run(script).await.unwrap();
    assert_eq!(seen["trouble"], Value::Array(Vec::new()), "{seen}");
    assert!(page.troubles().is_empty(), "{:?}", page.troubles());
}

/// A what-if: two schedules side by side over the same time, and the difference in words.
#[tokio::test]
async fn a_what_if_is_seen_side_by_side() {
    let folder = tempfile::tempdir().unwrap();
    let examples = assets::workspace().join("examples/simulate");
    let mut command = Command::new(sluice_testkit::plugin().unwrap());
    command.args(["simulate", "--quiet", "--output", "html", "--change"]);
    command.arg(examples.join("what-if/bigger-quota.yaml")).arg(examples.join("arrivals.yaml"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let file = folder.path().join("page.html");
    fs::write(&file, output.stdout).unwrap();
    let mut page = Page::start().await.unwrap();
    can_be_read(&mut page, &file, "what-if").await;
    let script = "(async () => {
        const gantts = [...document.querySelectorAll('.gantt')];
        gantts[0].querySelector('button[aria-label=\"zoom in\"]').click();
        for (const frame of [1, 2]) await new Promise(requestAnimationFrame);
        const [one, two] = gantts.map((gantt) => gantt.querySelector('.window').textContent);
        const boxes = gantts.map((gantt) => gantt.getBoundingClientRect());
        return { count: gantts.length, same: one === two, beside: boxes[0].right <= boxes[1].left,
            words: [...document.querySelectorAll('.words li')].map((li) => li.textContent) };
    })()";
    let seen = page.run(script).await.unwrap();
    assert_eq!(
        (&seen["count"], &seen["same"], &seen["beside"]),
        (&Value::from(2), &true.into(), &true.into())
    );
    assert!(seen["words"][0].as_str().unwrap().contains("sooner"), "{seen}");
}

#[tokio::test]
async fn flavors_of_a_cohort_are_distinguished_and_names_do_no_harm() {
    let world = assets::workspace().join("tests/tests/views/browser/several-flavors.yaml");
    let (mut page, outcome, _folder) = shows_its_outcome(&world, "flavors").await;
    assert_eq!(outcome.flavors().len(), 3);
    // Its reason holds a script.
    assert!(outcome.jobs["research/hostile"].reasons[0].2.contains("<script>"));
    pointing_shows_why(&mut page, &outcome, "research/hostile").await;
    nothing_gets_out(&mut page).await;
}
