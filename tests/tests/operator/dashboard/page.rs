//! The page in a real browser with the manager: all views show the cluster's content and its changes, and nothing is loaded from elsewhere. The
//! simulated answers in `views/dashboard.rs` have the same form.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use sluice_testkit::browser::{Page, Scheme};
use sluice_testkit::wait::{Progress, eventually};
use sluice_testkit::{ControlPlane, nodes};
use sluice_tests::place::{DEADLINE, Place, create, job};

use super::shape::{differences, shape};
use super::{Caller, data};

const PROBE: &str = include_str!("../../views/dashboard/probe.js");
const RACK: &str = "example.com/rack";
/// What a controller says of its check. As HTML it would run.
const MESSAGE: &str = "<img src=x onerror=\"window.ran = 1\"><script>window.ran = 2</script> in 3 minutes";

/// Two racks with a node each, a queue for them with an admission check, and a job that waits for the check.
pub async fn a_job_on_racks(on: &ControlPlane) -> Place<'_> {
    let place = Place::bare(on, "dash-c").await.unwrap();
    for rack in ["r1", "r2"] {
        let pool = nodes::gpu_pool(&format!("dash-{rack}"), 1, 8, "nvidia-l4");
        pool.label("pool", "dash-c").label(RACK, rack).make(&place.client).await.unwrap();
    }
    // For what asks for no device.
    nodes::pool("dash-plain", 1).make(&place.client).await.unwrap();
    let levels = json!([{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]);
    let topologies = place.global("Topology", "topologies");
    create(&topologies, json!({"metadata": {"name": "dash-c"}, "spec": {"levels": levels}})).await.unwrap();
    let flavor = json!({"nodeLabels": {"pool": "dash-c"}, "topologyName": "dash-c"});
    let flavors = place.global("ResourceFlavor", "resourceflavors");
    create(&flavors, json!({"metadata": {"name": "dash-c"}, "spec": flavor})).await.unwrap();
    let checks = place.global("AdmissionCheck", "admissionchecks");
    let check = json!({"metadata": {"name": "dash-c"}, "spec": {"controllerName": "example.com/checker"}});
    create(&checks, check).await.unwrap();
    let active = json!({"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let active = Patch::Merge(json!({"status": {"conditions": [active]}}));
    checks.patch_status("dash-c", &PatchParams::default(), &active).await.unwrap();
    let strategy = json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "dash-c"}]}});
    place.cluster_queue("dash-c", 8, &strategy).await.unwrap();
    place.local_queue("lq", "dash-c").await.unwrap();
    let mut placed = job("placed", "lq", 2, 2, 3_600);
    placed["spec"]["template"]["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"] =
        json!(RACK);
    // It asks for no device, and may run beside those that do.
    placed["spec"]["template"]["spec"]["tolerations"] =
        json!([{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]);
    place.make_job(&placed).await.unwrap();
    place.wait_for_condition("placed", "QuotaReserved", "True/QuotaReserved").await.unwrap();
    answer(&place, "Pending").await;
    place
}

/// The check's answer.
async fn answer(place: &Place<'_>, state: &str) {
    let workload = place.workload("placed").await.unwrap();
    let name = workload["metadata"]["name"].as_str().unwrap();
    let check = json!({"name": "dash-c", "state": state, "message": MESSAGE, "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let patch = Patch::Merge(json!({"status": {"admissionChecks": [check]}}));
    place.workloads().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Opens a view, which shows these texts and has nothing wrong.
pub async fn go(page: &mut Page, view: &str, texts: &[&str]) {
    page.run(&format!("location.hash = '/{view}'")).await.unwrap();
    for text in texts {
        page.wait_for_text(text).await.unwrap();
    }
    let seen = page.run(PROBE).await.unwrap();
    assert_eq!(seen["wrong"], json!([]), "{view}");
    assert!(page.troubles().is_empty(), "{view}: {:?}", page.troubles());
}

/// An administrator looks at every view.
pub async fn in_a_browser(
    address: &str,
    (root, token): (&Caller, &str),
    ours: &Place<'_>,
    racks: &Place<'_>,
) {
    let mut page = Page::start().await.unwrap();
    page.take_any_certificate().await.unwrap();
    page.look(1280, 900, Scheme::Light).await.unwrap();
    page.visit(&format!("{address}/#key={token}")).await.unwrap();
    page.wait_for_text("live").await.unwrap();
    go(&mut page, "now", &["dash-a", "What just happened", "1 of 1 cpu"]).await;
    go(&mut page, "queue/dash-a", &["dash-a/job-waits", "dash-b/job-secret", "3 workloads"]).await;
    page.click("Estimate starts").await.unwrap();
    page.wait_for_text("Estimated at").await.unwrap();
    page.wait_for_text("about ").await.unwrap();
    go(&mut page, "workload", &["4 workloads"]).await;
    let name = |object: Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    let waits = name(ours.workload("waits").await.unwrap());
    go(&mut page, &format!("workload/dash-a/{waits}"), &["pending", "queued"]).await;
    page.click("Estimate the start").await.unwrap();
    page.wait_for_text("Expected start: about").await.unwrap();
    page.click("Explain: why, and what helps").await.unwrap();
    page.wait_for_text("place ").await.unwrap();
    let placed = name(racks.workload("placed").await.unwrap());
    go(&mut page, &format!("workload/dash-c/{placed}"), &[MESSAGE, "reserved"]).await;
    go(
        &mut page,
        "nodes",
        &["3 nodes", "2 domains", "Pods that fit into one domain now", "8 nvidia.com/gpu of dash-c"],
    )
    .await;
    let used = "(() => { const what = document.querySelector('select[aria-label^=resource]'); what.value = 'cpu'; what.dispatchEvent(new Event('change'));
        return [...document.querySelectorAll('.heat button')].map((one) => one.dataset.t).join(); })()";
    let used = page.run(used).await.unwrap();
    assert!(
        used.as_str().unwrap().contains(&format!("4 of 64 cpu used (6 %)\n1 node\ndash-c/{placed}: 2 pods")),
        "{used}"
    );
    what_comes(&mut page, root, &waits).await;
    // The page hears of an admission without being touched.
    go(&mut page, "now", &["reserved dash-c/"]).await;
    assert!(
        !page
            .run("document.querySelector('.events').innerText")
            .await
            .unwrap()
            .as_str()
            .unwrap()
            .contains("admitted dash-c/")
    );
    answer(racks, "Ready").await;
    page.wait_for_text("admitted dash-c/").await.unwrap();
    assert_eq!(page.run("window.ran ?? null").await.unwrap(), Value::Null, "a message ran");
    is_own_and_quiet(&page, address);
}

/// All nodes are lost: the job that is placed on them is listed, with the nodes, for those that may see it.
pub async fn work_that_lost_its_nodes(
    address: &str,
    (root, token): (&Caller, &str),
    (alice, alices_token): (&Caller, &str),
    racks: &Place<'_>,
) {
    let all: Api<Node> = Api::all(racks.client.clone());
    for node in all.list(&ListParams::default().labels("pool=dash-c")).await.unwrap() {
        all.delete(node.metadata.name.as_deref().unwrap(), &DeleteParams::default()).await.unwrap();
    }
    let real = eventually("the job to be displaced", DEADLINE, || async {
        let real = root.json("/api/displaced").await;
        Ok(if real["total"] == 1 { Progress::Done(real) } else { Progress::NotYet(real.to_string()) })
    })
    .await
    .unwrap();
    let item = &real["items"][0];
    assert_eq!((&item["job"], &item["clusterQueue"]), (&json!("placed"), &json!("dash-c")), "{real}");
    assert!(item["since"].is_string() && item["lost"].to_string().contains("dash-r"), "{real}");
    assert_eq!(differences(&shape(&real), &shape(&data::displaced(0, 9))), Vec::<String>::new());
    let hidden = alice.json("/api/displaced").await;
    assert_eq!(hidden["total"], 1, "{hidden}");
    let text = hidden.to_string();
    assert!(!text.contains("placed") && !text.contains("dash-r"), "{text}");
    let mut page = Page::start().await.unwrap();
    page.take_any_certificate().await.unwrap();
    page.look(1280, 900, Scheme::Light).await.unwrap();
    page.visit(&format!("{address}/#key={token}")).await.unwrap();
    page.wait_for_text("live").await.unwrap();
    go(&mut page, "nodes", &["1 workload lost its nodes and waits for others", "dash-c/"]).await;
    is_own_and_quiet(&page, address);
    hides_nodes_and_others(address, alices_token).await;
}

/// What a team's user sees in the browser names neither nodes nor others' jobs.
async fn hides_nodes_and_others(address: &str, token: &str) {
    let mut page = Page::start().await.unwrap();
    page.take_any_certificate().await.unwrap();
    page.look(1280, 900, Scheme::Light).await.unwrap();
    page.visit(&format!("{address}/#key={token}")).await.unwrap();
    page.wait_for_text("live").await.unwrap();
    for (view, says) in [
        ("nodes", "1 workload lost its nodes and waits for others"),
        ("queue/dash-a", "dash-a/job-waits"),
        ("now", "What just happened"),
    ] {
        go(&mut page, view, &[says]).await;
        let texts = "[document.body.innerText, ...[...document.querySelectorAll('[data-t]')].map((one) => one.dataset.t)]";
        let seen = page.run(texts).await.unwrap().to_string();
        for hidden in ["dash-r", "dash-c/", "job-secret", "job-placed"] {
            assert!(!seen.contains(hidden), "{hidden} in the view {view}: {seen}");
        }
    }
    is_own_and_quiet(&page, address);
}

/// Nothing was asked for elsewhere, and nothing is on the console.
pub fn is_own_and_quiet(page: &Page, address: &str) {
    let requests = page.requests();
    let own = |asked: &&&str| asked.starts_with(address) || asked.starts_with("data:");
    let foreign: Vec<_> = requests.iter().filter(|asked| !own(asked)).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    assert!(page.troubles().is_empty(), "{:?}", page.troubles());
}

/// An answer to a question that is a user's turn only now and then.
async fn in_turn(ask: impl AsyncFn() -> (u16, String)) -> Value {
    eventually("a turn to ask", DEADLINE, || async {
        let (status, text) = ask().await;
        Ok(match status {
            200 => Progress::Done(serde_json::from_str(&text)?),
            429 => Progress::NotYet(text),
            _ => Progress::Never(text),
        })
    })
    .await
    .unwrap()
}

/// Tomorrow with a change, and what it says as a file in the view Report: each with the racks, and the job that is placed on one.
async fn what_comes(page: &mut Page, root: &Caller, waits: &str) {
    go(page, "tomorrow", &["Simulate"]).await;
    submit(page, "Change a priority", &["dash-a", waits, "7"]).await;
    submit(page, "Add nodes", &["dash-r1-0", "2"]).await;
    submit(page, "Add a node pool", &["dash-a", "2", "cpu=4, memory=8Gi", ""]).await;
    play(page, ("dash-a", "3")).await;
    let pool = "2 new nodes of dash-a, each with 4 cpu, 8Gi memory".to_owned();
    for change in [format!("dash-a/{waits}"), "dash-r1-0".to_owned(), pool] {
        let listed = page.run("document.querySelector('ul.changes').textContent").await.unwrap();
        assert!(listed.as_str().unwrap().contains(&change), "{change}: {listed}");
    }
    placed_in(page, 2).await;
    let report =
        in_turn(async || root.tomorrow(&json!({"for": "24h", "changes": []})).await).await["base"].clone();
    open_report(page, &report).await;
    page.wait_for_text("dash-a/runs").await.unwrap();
    placed_in(page, 1).await;
}

/// `schedules` schedules are shown with the topology below, and the job in one of the racks at the busiest moment.
pub async fn placed_in(page: &mut Page, schedules: usize) {
    let racks = "[...document.querySelectorAll('.places .heat')].map((map) => [...map.querySelectorAll('button')].map((one) => one.dataset.t.split('\\n').pop()))";
    let seen = page.run(racks).await.unwrap();
    let maps = seen.as_array().unwrap();
    let holds = |map: &Value| map.as_array().unwrap().contains(&json!("dash-c/placed: 2 pods"));
    assert!(maps.len() == schedules && maps.iter().all(holds), "{seen}");
}

/// Fills in a form of the view Tomorrow, and submits it.
async fn submit(page: &mut Page, form: &str, values: &[&str]) {
    let script = format!(
        "(() => {{
            const form = document.querySelector('form[aria-label=\"{form}\"]');
            const fields = form.querySelectorAll('input');
            {}.forEach((text, at) => {{ fields[at].value = text; }});
            form.requestSubmit();
        }})()",
        serde_json::to_string(values).unwrap()
    );
    page.run(&script).await.unwrap();
}

/// Plays the future with another quota of cpu of a queue, whose flavor has its name: a job starts sooner.
pub async fn play(page: &mut Page, (queue, quota): (&str, &str)) {
    go(page, "tomorrow", &["Simulate"]).await;
    submit(page, "Change a quota", &[queue, queue, "cpu", quota]).await;
    page.click("Simulate").await.unwrap();
    page.wait_for_text("What the changes bring").await.unwrap();
    page.wait_for_text("sooner").await.unwrap();
}

/// Opens a report as a file in the view Report.
pub async fn open_report(page: &mut Page, report: &Value) {
    go(page, "report", &["side by side"]).await;
    let script = format!(
        "(() => {{ const files = new DataTransfer();
            files.items.add(new File([{}], 'day.json'));
            const input = document.querySelector('input[type=file]');
            input.files = files.files;
            input.dispatchEvent(new Event('change')); }})()",
        Value::from(report.to_string())
    );
    page.run(&script).await.unwrap();
    page.wait_for_text("day.json").await.unwrap();
}

/// The server that the other tests of the page make up has answers of the same form as the real one.
pub async fn made_up_answers_have_the_form_of_real_ones(root: &Caller, ours: &Place<'_>, racks: &Place<'_>) {
    let name = |object: Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    let (waits, placed) =
        (name(ours.workload("waits").await.unwrap()), name(racks.workload("placed").await.unwrap()));
    let list = |items: Vec<Value>| json!({"total": 1, "items": items});
    let mut queue = list((0..20).map(data::item).collect());
    queue["name"] = "q".into();
    let made_up = [
        ("/api/who".to_owned(), data::who()),
        ("/api/now".to_owned(), data::now(0)),
        ("/api/queues/dash-a".to_owned(), queue),
        ("/api/queues/dash-a/starts".to_owned(), data::starts(&[1, 4, 7])),
        ("/api/workloads".to_owned(), list((0..20).map(data::found).collect())),
        (format!("/api/workloads/dash-c/{placed}"), data::workload("a", "b")),
        (format!("/api/workloads/dash-a/{waits}/start"), data::starts(&[4])),
        ("/api/nodes".to_owned(), data::nodes(0, 9)),
        ("/api/displaced".to_owned(), data::displaced(0, 9)),
        ("/api/topologies".to_owned(), data::topologies()),
        ("/api/topologies/dash-c".to_owned(), data::domains(&[], 0, 9)),
        ("/api/topologies/dash-c/r1".to_owned(), data::domains(&["block-2"], 0, 9)),
    ];
    for (path, made_up) in made_up {
        let real = in_turn(async || root.get(&path).await).await;
        assert_eq!(differences(&shape(&real), &shape(&made_up)), Vec::<String>::new(), "{path}: {real}");
    }
    assert_eq!(root.policy().await, data::POLICY);
    let (_, refused) = root.get("/api/none").await;
    let refused: Value = serde_json::from_str(&refused).unwrap();
    assert_eq!(differences(&shape(&refused), &shape(&data::refusal(404, "none"))), Vec::<String>::new());
    let future = in_turn(async || root.tomorrow(&json!({"for": "24h", "changes": []})).await).await;
    let mut report = data::report();
    // No queue is stopped here.
    report.as_object_mut().unwrap().remove("stops");
    for field in ["hidden", "cut", "partial"] {
        report[field] = false.into();
    }
    assert_eq!(differences(&shape(&future["base"]), &shape(&report)), Vec::<String>::new());
}
