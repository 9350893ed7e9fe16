//! `sluice dashboard`, the program on a laptop: its answers, and all views of its page in a real browser.

use std::path::Path;
use std::process::Stdio;

use http::Request;
use kube::client::Body;
use serde_json::{Value, json};
use sluice_testkit::browser::{PAUSE, Page, Scheme};
use sluice_testkit::kubectl::kubectl;
use sluice_testkit::wait::{Progress, eventually};
use sluice_testkit::{ControlPlane, binary};
use sluice_tests::book::{blocks, typed};
use sluice_tests::place::{DEADLINE, Place};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::page::{go, is_own_and_quiet, open_report, placed_in, play};
use super::{Caller, data};

/// The commands of the page in its blocks about a laptop.
fn commands_of_the_page() -> [String; 3] {
    let page = blocks("docs/tasks/dashboard.md", "sh").unwrap();
    let commands: Vec<_> = page[..2].iter().flat_map(|block| block.lines()).map(str::to_owned).collect();
    commands.try_into().unwrap()
}

/// The program as a line of the page starts it, without a browser, and the address that it prints.
async fn start(plane: &ControlPlane, kubeconfig: &Path, line: &str) -> (Child, String) {
    let mut command = Command::new(binary().unwrap());
    command.args(line.strip_prefix("sluice ").unwrap().split(' ')).arg("--no-open");
    command.arg("--kubeconfig").arg(kubeconfig).env_remove("KUBECONFIG").current_dir(plane.folder());
    let mut program = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let first = lines.next_line().await.unwrap().unwrap();
    let url = first.split_whitespace().last().unwrap().to_owned();
    (program, url)
}

/// With an administrator's kubeconfig, and with one of a team's user. `theirs` has a job that is deleted meanwhile.
pub async fn look(plane: &ControlPlane, (ours, theirs, racks): (&Place<'_>, &Place<'_>, &Place<'_>)) {
    let [plain, ..] = commands_of_the_page();
    let (mut program, url) = start(plane, &plane.kubeconfig_path(), &plain).await;
    let (address, key) = url.split_once("/#key=").unwrap();
    let owner = Caller::new(address, Some(key));
    who_may_ask(&owner, address).await;
    every_header(&owner).await;
    which_configuration_is_simulated(plane, &owner).await;
    let mut page = in_a_browser(&url, (ours, racks)).await;
    of_a_team(plane, &owner, ours).await;
    theirs.delete_job("secret").await.unwrap();
    eventually("the deletion to be shown", DEADLINE, || async {
        let all = owner.json("/api/workloads").await;
        Ok(if all["total"] == 3 { Progress::Done(()) } else { Progress::NotYet(all.to_string()) })
    })
    .await
    .unwrap();
    let left = kubectl(plane, &["get", "workloads", "-A", "-o", "name"]).await.unwrap();
    assert_eq!(left.lines().count(), 3, "{left}");
    // The page hears of it without being touched.
    page.wait_for_text("3 workloads").await.unwrap();
    is_own_and_quiet(&page, address);
    no_script_of_others_runs(&mut page).await;
    program.kill().await.unwrap();
    page.wait_for_text("not live: the server cannot be reached").await.unwrap();
}

async fn who_may_ask(owner: &Caller, address: &str) {
    assert_eq!(Caller::new(address, None).get("/api/who").await.0, 401);
    assert_eq!(Caller::new(address, Some("0123")).get("/api/who").await.0, 401);
    assert_eq!(owner.json("/api/who").await["all"], true);
    assert_eq!(owner.json("/api/workloads").await["total"], 4);
    let foreign = Request::get("/").header("host", "evil.example").body(Body::empty()).unwrap();
    assert_eq!(owner.send(foreign).await.0, 403);
}

/// Of the page, of its files, of answers and of refusals.
async fn every_header(owner: &Caller) {
    for path in ["/", "/app.js", "/theme.css", "/api/now", "/api/none", "/none"] {
        let answer = owner.0.send(Request::get(path).body(Body::empty()).unwrap()).await.unwrap();
        for (name, value) in [
            ("content-security-policy", data::POLICY),
            ("x-frame-options", "DENY"),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cache-control", "no-store"),
        ] {
            let found = answer.headers().get(name).map(|value| value.to_str().unwrap());
            assert_eq!(found, Some(value), "{name} of {path}");
        }
    }
}

/// The default one is said to be that; a file's is the manager's.
async fn which_configuration_is_simulated(plane: &ControlPlane, owner: &Caller) {
    let assumed = async |caller: &Caller| {
        let (status, text) = caller.tomorrow(&json!({"for": "1h", "changes": []})).await;
        assert_eq!(status, 200, "{text}");
        serde_json::from_str::<Value>(&text).unwrap()["defaultConfiguration"].clone()
    };
    assert_eq!(assumed(owner).await, true);
    let [_, save, with_file] = commands_of_the_page();
    typed(plane, plane.folder(), &save).await.unwrap();
    let (mut program, url) = start(plane, &plane.kubeconfig_path(), &with_file).await;
    let (address, key) = url.split_once("/#key=").unwrap();
    assert_eq!(assumed(&Caller::new(address, Some(key))).await, false);
    program.kill().await.unwrap();
}

/// Every view, wide and light, and on a phone in the dark. The page is left at the list of workloads.
async fn in_a_browser(url: &str, (ours, racks): (&Place<'_>, &Place<'_>)) -> Page {
    let (address, key) = url.split_once("/#key=").unwrap();
    let name = |object: Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    let waits = name(ours.workload("waits").await.unwrap());
    let placed = name(racks.workload("placed").await.unwrap());
    let mut page = Page::start().await.unwrap();
    page.look(1280, 900, Scheme::Light).await.unwrap();
    page.visit(url).await.unwrap();
    page.wait_for_text("live").await.unwrap();
    let kept = "JSON.stringify([{...sessionStorage}, {...localStorage}, document.cookie, location.href])";
    let kept = page.run(kept).await.unwrap();
    assert!(!kept.as_str().unwrap().contains(key), "{kept}");

    let detail = format!("workload/dash-a/{waits}");
    let on_racks = format!("workload/dash-c/{placed}");
    let views: [(&str, &[&str]); 8] = [
        ("now", &["What just happened", "Flavors, over all queues"]),
        ("queue/dash-a", &["dash-a/job-waits", "dash-b/job-secret", "3 workloads"]),
        (&detail, &["pending", "queued"]),
        (&on_racks, &["admitted", "Admission checks"]),
        ("nodes", &["3 nodes", "2 domains"]),
        ("tomorrow", &["Simulate"]),
        ("report", &["side by side"]),
        ("workload", &["4 workloads"]),
    ];
    for (width, scheme) in [(390, Scheme::Dark), (1280, Scheme::Light)] {
        page.look(width, 900, scheme).await.unwrap();
        for (view, texts) in views {
            go(&mut page, view, texts).await;
        }
    }
    // The program asks the cluster's manager for an explanation, and plays the future itself.
    go(&mut page, &detail, &["pending"]).await;
    page.click("Explain: why, and what helps").await.unwrap();
    page.wait_for_text("estimated start: in ").await.unwrap();
    page.click("Estimate the start").await.unwrap();
    page.wait_for_text("Expected start: about").await.unwrap();
    go(&mut page, "queue/dash-a", &["Estimate starts"]).await;
    page.click("Estimate starts").await.unwrap();
    page.wait_for_text("Estimated at").await.unwrap();
    play(&mut page, ("dash-a", "3")).await;
    page.wait_for_text("this is simulated with the default one").await.unwrap();
    placed_in(&mut page, 2).await;
    open_report(&mut page, &data::report()).await;
    go(&mut page, "workload", &["4 workloads"]).await;
    is_own_and_quiet(&page, address);
    page
}

/// The policy holds in the browser: neither an inline script nor one from elsewhere runs, and no page of others is shown in this one.
async fn no_script_of_others_runs(page: &mut Page) {
    let blocked = "(async () => {
        const blocked = [];
        document.addEventListener('securitypolicyviolation', (event) => blocked.push(event.effectiveDirective));
        const add = (name, attributes) => document.body.append(Object.assign(document.createElement(name), attributes));
        add('script', { textContent: 'window.ran = 1' });
        add('script', { src: 'data:text/javascript,window.ran=2' });
        add('iframe', { src: 'data:text/html,x' });
        const until = performance.now() + 180000;
        while (blocked.length < 3 && performance.now() < until) await PAUSE;
        return [...blocked.sort(), window.ran ?? null];
    })()";
    let seen = page.run(&blocked.replace("PAUSE", PAUSE)).await.unwrap();
    assert_eq!(seen, json!(["frame-src", "script-src-elem", "script-src-elem", null]));
}

/// A team's user may not ask about the ClusterQueue: their LocalQueue says the place, which is the one that an administrator sees.
async fn places_in_the_queue(owner: &Caller, alice: &Caller) {
    let pending = "/api/queues/dash-a?state=pending";
    let place = |queue: &Value| {
        let items = queue["items"].as_array().unwrap().clone();
        let own = items.into_iter().find(|item| item["job"] == "waits" && item["position"].is_u64())?;
        Some((own["workload"].as_str()?.to_owned(), own["position"].clone()))
    };
    let (name, known) = place(&owner.json(pending).await).expect("an administrator sees the place");
    let queue = alice.json(pending).await;
    assert_eq!(place(&queue), Some((name.clone(), known.clone())), "{queue}");
    assert_eq!(queue["total"], 1, "the other tenant's is not read: {queue}");
    let workload = alice.json(&format!("/api/workloads/dash-a/{name}")).await;
    assert_eq!(workload["item"]["position"], known, "{workload}");
    assert_eq!(alice.get("/api/queues/none").await.0, 404);
}

/// With the rights of a team's user, other teams' jobs are not there, and what cannot be read is said in words.
async fn of_a_team(plane: &ControlPlane, owner: &Caller, ours: &Place<'_>) {
    let kubeconfig = plane.kubeconfig_for_service_account("dash-a", "alice").await.unwrap();
    let [plain, ..] = commands_of_the_page();
    let (mut program, url) = start(plane, &kubeconfig, &plain).await;
    let (address, key) = url.split_once("/#key=").unwrap();
    places_in_the_queue(owner, &Caller::new(address, Some(key))).await;
    let mut page = Page::start().await.unwrap();
    page.look(1280, 900, Scheme::Light).await.unwrap();
    page.visit(&url).await.unwrap();
    let waits = ours.workload("waits").await.unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    for (view, text) in [
        ("workload", "2 workloads"),
        (&*format!("workload/dash-a/{waits}"), "pending"),
        ("now", "the user of the kubeconfig may not list clusterqueues"),
        ("queue/dash-a", "2 workloads"),
        ("nodes", "It says: the user of the kubeconfig may not list "),
    ] {
        page.run(&format!("location.hash = '/{view}'")).await.unwrap();
        page.wait_for_text(text).await.unwrap();
        let shown = page.run("document.body.innerText").await.unwrap();
        assert!(!shown.as_str().unwrap().contains("dash-b"), "{view}: {shown}");
    }
    program.kill().await.unwrap();
}
