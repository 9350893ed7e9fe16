use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ThreadId;
use std::time::Instant;

use axum::http::Request;
use futures::future::BoxFuture;
use kube::Client;
use kube::client::Body as ClientBody;
use sluice_api::config::Configuration;
use sluice_api::slim;
use sluice_engine::WorkloadKey;
use sluice_engine::input::Object;
use sluice_sim::live::{Extent, Live};

use super::*;
use crate::dashboard::answers::POLICY;
use crate::dashboard::callers::Tokens;
use crate::dashboard::source::{Begin, Finder, Found};
use crate::dashboard::store::tests::{condition, many, workload as a_workload, world};
use crate::dashboard::views::items::Order;
use crate::dashboard::views::topology::Fits;
use crate::fake_api::{self, found};
use crate::memory::Reservation;

/// An API server that knows tokens of the form `NAME-token`: `alice` may get Workloads in `a`, `root` in all namespaces, `carol` in none.
fn api_server() -> Client {
    fake_api::client(move |_: Method, uri: Uri, body: axum::body::Bytes| async move {
        let review: Value = serde_json::from_slice(&body).unwrap();
        if uri.path().ends_with("/tokenreviews") {
            let name = review["spec"]["token"]
                .as_str()
                .unwrap()
                .strip_suffix("-token")
                .unwrap_or_default()
                .to_owned();
            let known = ["alice", "root", "carol", "dave"].contains(&name.as_str());
            return found(&json!({"status": {"authenticated": known, "user": {"username": name}}}));
        }
        let (user, object) = (&review["spec"]["user"], &review["spec"]["resourceAttributes"]);
        let readable = object["resource"] == "workloads" || object["resource"] == "events";
        let own = *user == "alice" && object["namespace"] == "a" && readable;
        // Dave may see Workloads and ClusterQueues everywhere, and have explanations nowhere.
        let listed = object["resource"] == "workloads" || object["resource"] == "clusterqueues";
        let sees = *user == "dave" && listed && object["subresource"] != "explain";
        found(&json!({"status": {"allowed": own || sees || *user == "root"}}))
    })
}

/// Knows the order of `cq`, and the Workloads of the world; counts what it is asked for of one Workload.
#[derive(Default)]
struct Fixed {
    reads: Arc<AtomicUsize>,
    /// The threads on which places were looked up, one for each queue.
    places: Arc<Mutex<Vec<ThreadId>>>,
}

impl Source for Fixed {
    fn missing(&self, view: View) -> Option<String> {
        (view == View::Nodes).then(|| "the nodes may not be listed".to_owned())
    }

    fn order<'a>(&'a self, _queue: &'a str) -> BoxFuture<'a, Order> {
        let key =
            |namespace: &str, name: &str| WorkloadKey { namespace: namespace.into(), name: name.into() };
        let script = "<script>alert(1)</script>";
        let order = vec![key("secret-ns", &format!("secret-{script}")), key("a", script)];
        Box::pin(async move { Some(Arc::new(order.into_iter().enumerate().collect())) })
    }

    fn finder<'a>(&'a self, queue: &'a str) -> BoxFuture<'a, Finder> {
        let threads = Arc::clone(&self.places);
        Box::pin(async move {
            let order = self.order(queue).await.unwrap_or_default();
            let find = move |keys: &[WorkloadKey]| {
                threads.lock().unwrap().push(std::thread::current().id());
                let own = order.iter().filter(|(_, key)| keys.contains(key));
                own.map(|(at, key)| (key.clone(), *at)).collect()
            };
            Box::new(find) as Finder
        })
    }

    fn workload<'a>(&'a self, namespace: &'a str, name: &'a str) -> Found<'a, slim::Workload> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let conditions = [
                condition("QuotaReserved", "True", "QuotaReserved", 1),
                condition("PodsReady", "True", "Started", 2),
            ];
            let Object::Workload(workload) = a_workload(namespace, name, &conditions) else { unreachable!() };
            Ok(*workload)
        })
    }

    fn events<'a>(&'a self, namespace: &'a str, _uid: &'a str) -> BoxFuture<'a, Option<Vec<Value>>> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let evicted = json!({
            "reason": "EvictedDueToPreempted", "message": "for another on n2", "eventTime": "2026-01-01T00:00:30.000000Z",
        });
        // What is so of it now is said once, and of another one nothing.
        let reserved =
            json!({"reason": "QuotaReserved", "message": "", "eventTime": "2026-01-01T00:01:02.000000Z"});
        let other = json!({"reason": "PreemptedWorkload", "message": "secret", "eventTime": "2026-01-01T00:00:40.000000Z"});
        let found = vec![reserved, other, evicted];
        Box::pin(async move { (namespace == "a").then_some(found) })
    }

    fn explain<'a>(&'a self, viewer: &'a Viewer, namespace: &'a str, name: &'a str) -> Found<'a, Value> {
        Box::pin(async move {
            Ok(json!({"text": format!("{} asks for {namespace}/{name}, all: {}", viewer.user, viewer.all)}))
        })
    }

    fn fits<'a>(&'a self, _snapshot: &'a Snapshot) -> BoxFuture<'a, Option<Fits>> {
        Box::pin(async { None })
    }

    fn reserve(&self) -> Option<Reservation> {
        // Not enough for anything.
        None
    }

    fn begin<'a>(&'a self, _extent: Extent<'a>, _bytes: usize) -> Found<'a, Begin> {
        Box::pin(async {
            let (configuration, _) =
                Configuration::parse("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration")
                    .unwrap();
            Ok(Begin { live: Live::default(), configuration, assumed: false, left: 0 })
        })
    }
}

fn dashboard() -> Dashboard {
    of(&Arc::new(world()), Fixed::default())
}

fn of(store: &Arc<Store>, source: Fixed) -> Dashboard {
    let callers = Arc::new(Tokens::new(api_server(), Arc::clone(store)));
    Dashboard::new(Arc::clone(store), callers, Arc::new(source), 2)
}

struct Said {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Said {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{}", self.body))
    }
}

async fn say(client: &Client, request: axum::http::request::Builder, body: &str) -> Said {
    let request = request.body(ClientBody::from(body.as_bytes().to_vec())).unwrap();
    let response = client.send(request).await.unwrap();
    let (head, body) = response.into_parts();
    let bytes = to_bytes(Body::new(body), 1 << 20).await.unwrap();
    Said {
        status: head.status.as_u16(),
        headers: head.headers,
        body: String::from_utf8(bytes.to_vec()).unwrap(),
    }
}

/// GET as the owner of a token.
async fn get(client: &Client, user: &str, path: &str) -> Said {
    say(client, Request::get(path).header("authorization", format!("Bearer {user}-token")), "").await
}

fn client() -> Client {
    Client::new(dashboard().router(), "default")
}

const VIEWS: [&str; 9] = [
    "/api/who",
    "/api/now",
    "/api/displaced",
    "/api/queues/cq",
    "/api/queues/cq?state=pending",
    "/api/workloads",
    "/api/workloads?search=secret",
    "/api/workloads?namespace=secret-ns",
    "/api/workloads?search=script&limit=1000",
];

#[tokio::test]
async fn without_a_token_that_the_api_server_knows_nothing_is_answered() {
    let client = client();
    for path in VIEWS.into_iter().chain(["/api/changes", "/api/nonsense", "/api/workloads/a/runs"]) {
        assert_eq!(say(&client, Request::get(path), "").await.status, 401, "{path}");
        let said = get(&client, "stranger", path).await;
        assert_eq!((said.status, &said.json()["reason"]), (401, &json!("Unauthorized")), "{path}");
    }
}

#[tokio::test]
async fn a_user_who_may_get_no_workloads_anywhere_learns_only_that() {
    let client = client();
    let who = get(&client, "carol", "/api/who").await;
    assert_eq!(who.json(), json!({"user": "carol", "all": false, "namespaces": [], "unasked": 0}));
    for path in VIEWS.into_iter().skip(1).chain(["/api/changes", "/api/nodes"]) {
        let said = get(&client, "carol", path).await;
        assert_eq!((said.status, &said.json()["reason"]), (403, &json!("Forbidden")), "{path}");
    }
}

#[tokio::test]
async fn before_everything_was_listed_it_is_not_said_what_a_caller_may_not_see() {
    let store = Arc::<Store>::default();
    let client = Client::new(of(&store, Fixed::default()).router(), "default");
    for user in ["alice", "root"] {
        assert_eq!(get(&client, user, "/api/now").await.status, 503, "{user}");
    }
    store.synced();
    assert_eq!(get(&client, "root", "/api/now").await.status, 200);
}

#[tokio::test]
async fn names_of_other_tenants_are_in_no_answer_and_amounts_are() {
    let client = client();
    assert_eq!(get(&client, "alice", "/api/who").await.json()["namespaces"], json!(["a"]));
    for path in VIEWS {
        let said = get(&client, "alice", path).await;
        assert_eq!(said.status, 200, "{path}: {}", said.body);
        // A user's own messages may say it: they are what the user's objects say.
        let others = said.body.replace("because of secret-message", "");
        assert!(!others.contains("secret"), "{path}: {others}");
    }
    let now = get(&client, "alice", "/api/now").await.json();
    let queue = &now["clusterQueues"][0];
    let counts = [&queue["pending"], &queue["reserving"], &queue["admitted"]];
    assert_eq!(counts, [&json!(2), &json!(2), &json!(2)]);
    let cpu = &queue["flavors"][0]["resources"][0];
    assert_eq!(
        (&cpu["used"], &cpu["borrowed"], &cpu["shown"]["used"]),
        (&json!(6.0), &json!(2.0), &json!("6"))
    );
    let hidden = now["recent"].as_array().unwrap().iter().filter(|one| one["namespace"].is_null());
    for one in hidden {
        let queue = &one["clusterQueue"];
        assert!(
            one["workload"].is_null() && one["message"].is_null() && (queue == "cq" || queue.is_null()),
            "{one}"
        );
    }
    assert_eq!(now["cohorts"], json!([{"name": "all", "parent": null, "flavors": []}]));
}

#[tokio::test]
async fn the_queue_of_another_tenant_is_for_those_who_may_list_cluster_queues() {
    let client = client();
    let json = || Request::post("/api/tomorrow").header("content-type", "application/json");
    let quota = json!({"kind": "quota", "clusterQueue": "secret-team", "flavor": "spot", "resource": "cpu", "value": "1"});
    let body = json!({"changes": [quota]}).to_string();
    for (user, sees) in [("alice", false), ("dave", true)] {
        let now = get(&client, user, "/api/now").await.json();
        assert_eq!(now["clusterQueues"].to_string().contains("secret-team"), sees, "{user}: {now}");
        assert_eq!(now["cohorts"].to_string().contains("secret-cohort"), sees, "{user}: {now}");
        assert_eq!(now["others"]["queues"], if sees { json!(null) } else { json!(1) }, "{user}");
        let queue = get(&client, user, "/api/queues/secret-team").await;
        assert_eq!(queue.status, if sees { 200 } else { 404 }, "{user}: {}", queue.body);
        let starts = get(&client, user, "/api/queues/secret-team/starts").await;
        assert_eq!(starts.status == 404, !sees, "{user}: {}", starts.body);
        let tried = say(&client, json().header("authorization", format!("Bearer {user}-token")), &body).await;
        let none = tried.status == 400 && tried.body.contains("there is no ClusterQueue");
        assert_eq!(none, !sees, "{user}: {}", tried.body);
    }
}

#[tokio::test]
async fn a_queue_is_shown_in_its_order_with_the_names_that_the_caller_may_see() {
    let client = client();
    let queue = get(&client, "alice", "/api/queues/cq?state=pending").await.json();
    let items = queue["items"].as_array().unwrap();
    assert_eq!((&queue["total"], items.len()), (&json!(2), 2));
    assert_eq!(
        (&items[0]["position"], &items[0]["workload"], &items[0]["localQueue"]),
        (&json!(0), &json!(null), &json!(null))
    );
    assert_eq!((&items[0]["requests"], &items[0]["job"]), (&json!({"cpu": "3"}), &json!(null)));
    let script = "<script>alert(1)</script>";
    assert_eq!((&items[1]["position"], &items[1]["workload"]), (&json!(1), &json!(script)));
    assert_eq!(items[1]["job"], json!(format!("job-{script}")));
    let all = get(&client, "root", "/api/queues/cq?offset=2&limit=1").await.json();
    assert_eq!((&all["total"], &all["items"][0]["namespace"]), (&json!(4), &json!("secret-ns")));
    assert_eq!(get(&client, "root", "/api/queues/none").await.status, 404);
    assert_eq!(get(&client, "root", "/api/queues/cq?limit=-1").await.status, 400);
}

#[tokio::test]
async fn one_workload_is_for_those_who_may_get_it_whether_it_is_there_or_not() {
    let client = client();
    let own = get(&client, "alice", "/api/workloads/a/runs").await.json();
    assert_eq!((&own["item"]["state"], &own["job"]["name"]), (&json!("reserved"), &json!("job-runs")));
    let life = |own: &Value| -> Vec<String> {
        own["life"].as_array().unwrap().iter().map(|e| e["what"].as_str().unwrap().to_owned()).collect()
    };
    let attempts = ["queued", "preempted", "reserved", "admitted", "started"];
    assert_eq!(life(&own), attempts, "also what only its events say");
    assert!(!own.to_string().contains("PreemptedWorkload"), "{own}");
    let other = get(&client, "root", "/api/workloads/secret-ns/secret-runs").await.json();
    assert_eq!(life(&other), ["queued", "reserved", "admitted", "started"], "events that cannot be read");
    assert_eq!((&own["podSets"][0]["nodes"], &own["podSets"][0]["nodeCount"]), (&json!(null), &json!(1)));
    // The right to see a Workload is none to read events.
    let without = get(&client, "dave", "/api/workloads/a/runs").await.json();
    assert_eq!(life(&without), ["queued", "reserved", "admitted", "started"]);
    assert!(!without.to_string().contains("for another"), "{without}");
    // Texts of others name nodes to those who may list them.
    let said = |own: &Value| own["life"][1]["message"].as_str().unwrap().to_owned();
    assert_eq!(said(&own), "for another on (a node)");
    let named = get(&client, "root", "/api/workloads/a/runs").await.json();
    assert_eq!(said(&named), "for another on n2");
    assert_eq!(named["podSets"][0]["nodes"], json!(["n1"]));
    for path in [
        "/api/workloads/secret-ns/secret-runs",
        "/api/workloads/secret-ns/none",
        "/api/workloads/secret-ns/secret-runs/explain",
        "/api/workloads/secret%2Dns/x",
    ] {
        let said = get(&client, "alice", path).await;
        assert_eq!(said.status, 403, "{path}");
        assert!(!said.body.contains("runs"), "{}", said.body);
    }
    let explained = get(&client, "alice", "/api/workloads/a/runs/explain").await.json();
    assert_eq!(explained["text"], "alice asks for a/runs, all: false");
    let explained = get(&client, "root", "/api/workloads/a/runs/explain").await.json();
    assert_eq!(explained["text"], "root asks for a/runs, all: true");
    // The right to see a Workload is none to have it explained.
    assert_eq!(get(&client, "dave", "/api/workloads/a/runs").await.status, 200);
    let said = get(&client, "dave", "/api/workloads/a/runs/explain").await;
    assert!(said.status == 403 && said.body.contains("workloads/explain"), "{}", said.body);
}

#[tokio::test]
async fn every_answer_forbids_frames_scripts_of_others_and_copies() {
    let client = client();
    let paths =
        ["/", "/index.html", "/api/who", "/api/none", "/../etc/passwd", "/none.js", "/api/queues/%zz"];
    for path in paths {
        for user in ["root", "stranger"] {
            let said = get(&client, user, path).await;
            let header = |name: &str| said.headers[name].to_str().unwrap();
            assert_eq!(header("content-security-policy"), POLICY, "{path}");
            assert_eq!(header("x-content-type-options"), "nosniff");
            assert_eq!(header("referrer-policy"), "no-referrer");
            assert_eq!(header("cache-control"), "no-store");
            assert_eq!(header("x-frame-options"), "DENY");
        }
    }
    assert!(POLICY.contains("frame-ancestors 'none'") && !POLICY.contains("unsafe"));
    let page = say(&client, Request::get("/"), "").await;
    assert_eq!(
        (page.status, page.headers["content-type"].to_str().unwrap()),
        (200, "text/html; charset=utf-8")
    );
    assert!(!page.body.contains("<script>"), "scripts are files");
    assert_eq!(say(&client, Request::get("/../etc/passwd"), "").await.status, 404);
}

#[tokio::test]
async fn what_is_not_offered_says_why_and_methods_are_checked() {
    let client = client();
    let nodes = get(&client, "root", "/api/nodes").await;
    assert_eq!((nodes.status, &nodes.json()["message"]), (404, &json!("the nodes may not be listed")));
    let token = |request: axum::http::request::Builder| request.header("authorization", "Bearer root-token");
    assert_eq!(say(&client, token(Request::post("/api/now")), "").await.status, 405);
    assert_eq!(say(&client, token(Request::delete("/")), "").await.status, 405);
    assert_eq!(say(&client, token(Request::get("/api/tomorrow")), "").await.status, 405);
    assert_eq!(say(&client, token(Request::post("/api/tomorrow")), "{}").await.status, 415);
    let json = || token(Request::post("/api/tomorrow")).header("content-type", "application/json");
    assert_eq!(say(&client, json(), &" ".repeat(BODY + 1)).await.status, 413);
    let refused = say(&client, json(), "{}").await;
    assert_eq!(refused.status, 429, "there is no memory for it: {}", refused.body);
    assert!(refused.body.contains("too little memory is free for a simulation"), "{}", refused.body);
}

#[tokio::test]
async fn a_laptop_answers_only_to_its_own_name() {
    let only = dashboard().only_for(vec!["127.0.0.1:8001".to_owned()]);
    let client = Client::new(only.router(), "default");
    assert_eq!(say(&client, Request::get("/").header("host", "127.0.0.1:8001"), "").await.status, 200);
    for host in ["evil.example:8001", "127.0.0.1:8002", "127.0.0.1", ""] {
        assert_eq!(say(&client, Request::get("/").header("host", host), "").await.status, 403, "{host}");
    }
    let two = Request::get("/").header("host", "127.0.0.1:8001").header("host", "evil.example");
    assert_eq!(say(&client, two, "").await.status, 403);
    assert_eq!(say(&client, Request::get("/"), "").await.status, 403);
}

#[tokio::test]
async fn pages_that_follow_the_changes_are_bounded() {
    let client = client();
    let open = async || {
        let request = Request::get("/api/changes").header("authorization", "Bearer root-token");
        client.send(request.body(ClientBody::empty()).unwrap()).await.unwrap()
    };
    let (first, second) = (open().await, open().await);
    assert_eq!((first.status().as_u16(), second.status().as_u16()), (200, 200));
    assert_eq!(first.headers()["content-type"], "text/event-stream");
    assert_eq!(open().await.status().as_u16(), 429);
    drop(first);
    assert_eq!(open().await.status().as_u16(), 200);
}

#[tokio::test]
async fn a_list_of_workloads_has_their_places() {
    let client = client();
    let found = get(&client, "root", "/api/workloads?search=script").await.json();
    let places: Vec<_> =
        found["items"].as_array().unwrap().iter().map(|item| item["position"].as_u64()).collect();
    assert_eq!(places, [Some(1), Some(0)], "{found}");
    let found = get(&client, "root", "/api/workloads?search=runs").await.json();
    assert_eq!(
        (&found["total"], &found["items"][0]["position"]),
        (&json!(2), &json!(null)),
        "what runs has none"
    );
}

#[tokio::test]
async fn places_are_looked_up_in_a_few_queues_and_not_on_the_threads_that_serve() {
    let source = Fixed::default();
    let threads = Arc::clone(&source.places);
    let client = Client::new(of(&Arc::new(many(40, 40)), source).router(), "default");
    let found = get(&client, "root", "/api/workloads?state=pending&limit=40").await.json();
    assert_eq!((&found["total"], found["items"].as_array().unwrap().len()), (&json!(40), 40));
    let asked = std::mem::take(&mut *threads.lock().unwrap());
    assert_eq!(asked.len(), MOST_ORDERS);
    assert!(!asked.contains(&std::thread::current().id()), "this thread serves");
}

#[tokio::test]
async fn answers_about_twenty_thousand_workloads_and_a_thousand_queues_have_bounds() {
    let client = Client::new(of(&Arc::new(many(1_000, 20_000)), Fixed::default()).router(), "default");
    let now = get(&client, "root", "/api/now").await;
    assert_eq!(now.json()["clusterQueues"].as_array().unwrap().len(), 1_000);
    assert!(now.body.len() < 1_000 * 600, "{} bytes", now.body.len());
    let page = get(&client, "root", "/api/workloads?search=job&limit=100").await;
    assert_eq!(
        (&page.json()["total"], page.json()["items"].as_array().unwrap().len()),
        (&json!(20_000), 100)
    );
    assert!(page.body.len() < 100 * 600, "{} bytes", page.body.len());
}

#[tokio::test]
async fn however_often_a_user_looks_at_workloads_the_api_server_is_seldom_asked() {
    let source = Fixed::default();
    let reads = Arc::clone(&source.reads);
    let client = Client::new(of(&Arc::new(world()), source).router(), "default");
    // Tokens that are not known yet are looked up one after the other, and not many of them.
    for user in ["alice", "root"] {
        assert_eq!(get(&client, user, "/api/who").await.status, 200);
    }
    let look = async |user: &str, path: &dyn Fn(usize) -> String| {
        let began = Instant::now();
        let paths: Vec<_> = (0..200).map(path).collect();
        let all = futures::future::join_all(paths.iter().map(|path| get(&client, user, path))).await;
        let codes: Vec<_> = all.iter().map(|said| said.status).collect();
        assert!(codes.iter().all(|code| [200, 429].contains(code)) && codes.contains(&200), "{codes:?}");
        (reads.swap(0, Ordering::Relaxed), usize::try_from(began.elapsed().as_secs()).unwrap() + 1)
    };
    // The object and its events, once a second.
    let (reads, seconds) = look("alice", &|_| "/api/workloads/a/runs".to_owned()).await;
    assert!(reads <= 2 * (seconds + 1), "{reads} in {seconds} s");
    let (reads, seconds) = look("root", &|number| format!("/api/workloads/a/other-{number}")).await;
    assert!(reads <= 2 * (60 + 10 * seconds), "{reads} in {seconds} s");
}

#[tokio::test]
async fn what_is_old_is_not_called_live() {
    let store = Arc::new(world());
    let client = Client::new(of(&store, Fixed::default()).router(), "default");
    let read: jiff::Timestamp = "2026-01-01T10:03:00Z".parse().unwrap();
    store.alive(read);
    assert_eq!(get(&client, "root", "/api/now").await.json()["live"], true);
    store.cut_off();
    let now = get(&client, "root", "/api/now").await.json();
    assert_eq!((&now["live"], &now["at"]), (&json!(false), &json!("2026-01-01T10:03:00Z")));
    store.alive(jiff::Timestamp::now());
    assert_eq!(get(&client, "root", "/api/now").await.json()["live"], true);
}

#[test]
fn while_rights_are_asked_about_it_is_not_said_that_there_are_none() {
    assert!(matches!(sees_none("eve", 3), Refusal::Unavailable(_)));
    assert!(matches!(sees_none("eve", 0), Refusal::Forbidden(_)));
}
