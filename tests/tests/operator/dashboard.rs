//! The dashboard on a real control plane: tokens of the API server, the chart's roles, and the program on a laptop.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[path = "../views/dashboard/data.rs"]
mod data;
mod laptop;
mod lives;
mod page;
mod shape;

use http::Request;
use kube::client::Body;
use kube::{Client, Config};
use serde_json::{Value, json};
use sluice_testkit::kubectl::apply;
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::{ControlPlane, Manager, Setup, chart, crds, free_ports};
use sluice_tests::book::{blocks, typed};
use sluice_tests::place::{DEADLINE, Place};

/// A team's user and an administrator.
const ACCOUNTS: &str = r"
apiVersion: v1
kind: ServiceAccount
metadata: {name: alice, namespace: dash-a}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: alice, namespace: dash-a}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: kueue-batch-user-role}
subjects: [{kind: ServiceAccount, name: alice, namespace: dash-a}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: root, namespace: dash-a}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: dash-root}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: root, namespace: dash-a}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: stranger, namespace: dash-a}
";

/// A caller of a server.
struct Caller(Client);

impl Caller {
    fn new(address: &str, token: Option<&str>) -> Self {
        let mut config = Config::new(address.parse().unwrap());
        config.default_retry = false;
        // The manager makes its own certificate.
        config.accept_invalid_certs = true;
        config.auth_info.token = token.map(|token| token.to_owned().into());
        Self(Client::try_from(config).unwrap())
    }

    async fn send(&self, request: Request<Body>) -> (u16, String) {
        let answer = self.0.send(request).await.unwrap();
        let status = answer.status().as_u16();
        let body = answer.into_body().collect_bytes().await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    async fn policy(&self) -> String {
        let answer = self.0.send(Request::get("/").body(Body::empty()).unwrap()).await.unwrap();
        answer.headers()["content-security-policy"].to_str().unwrap().to_owned()
    }

    async fn get(&self, path: &str) -> (u16, String) {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    async fn json(&self, path: &str) -> Value {
        let (status, text) = self.get(path).await;
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    async fn tomorrow(&self, asked: &Value) -> (u16, String) {
        let request = Request::post("/api/tomorrow").header("content-type", "application/json");
        self.send(request.body(Body::from(asked.to_string().into_bytes())).unwrap()).await
    }
}

/// A plane of its own with the chart, a manager that serves the dashboard, and its address: all Workloads of the cluster are counted.
async fn plane(more: &Value) -> (ControlPlane, Manager, String) {
    let plane = ControlPlane::builder().controller_manager(true).kwok(true).start().await.unwrap();
    let port = free_ports(1).unwrap()[0];
    let section = json!({"dashboard": {"bindAddress": "127.0.0.1", "port": port}});
    let setup = Setup::new(&plane).unwrap().with(&section).with(more);
    let setup = chart::install(&plane, setup, &json!({"visibility": {"apiServices": true}})).await.unwrap();
    let manager = Manager::start(&plane, setup).await.unwrap();
    crds::wait_until_converting(&plane.client().await.unwrap()).await.unwrap();
    (plane, manager, format!("https://127.0.0.1:{port}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_team_sees_its_own_jobs_and_of_others_amounts_and_an_administrator_all() {
    let (plane, _manager, address) = plane(&json!({})).await;
    let ours = Place::new(&plane, "dash-a", 1).await.unwrap();
    let theirs = Place::bare(&plane, "dash-b").await.unwrap();
    theirs.local_queue("lq", "dash-a").await.unwrap();
    apply(&plane, ACCOUNTS).await.unwrap();
    ours.job("runs", "lq", 1).await.unwrap();
    ours.wait_until("runs", true).await.unwrap();
    for (place, name) in [(&theirs, "secret"), (&ours, "waits")] {
        place.job(name, "lq", 1).await.unwrap();
        place.workload(name).await.unwrap();
    }
    let racks = page::a_job_on_racks(&plane).await;
    let token = async |name: &str| plane.token_of_service_account("dash-a", name).await.unwrap();
    let tokens = [typed_token(&plane).await, token("root").await, token("stranger").await];
    let [alice, root, stranger] =
        [&tokens[0], &tokens[1], &tokens[2]].map(|token| Caller::new(&address, Some(token.as_str())));

    assert_eq!(Caller::new(&address, None).get("/api/now").await.0, 401);
    assert_eq!(Caller::new(&address, Some("made-up")).get("/api/now").await.0, 401);
    assert_eq!(stranger.get("/api/now").await.0, 403);
    assert_eq!(Caller::new(&address, None).get("/").await.0, 200, "the page asks for the token");
    for_a_team(&alice, &ours).await;
    for_an_administrator(&root).await;
    what_comes(&alice, &root).await;
    page::made_up_answers_have_the_form_of_real_ones(&root, &ours, &racks).await;
    page::in_a_browser(&address, (&root, &tokens[1]), &ours, &racks).await;
    laptop::look(&plane, (&ours, &theirs, &racks)).await;
    page::work_that_lost_its_nodes(&address, (&root, &tokens[1]), (&alice, &tokens[0]), &racks).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_life_of_a_job_that_was_preempted_has_its_first_attempt() {
    let (plane, _manager, address) =
        plane(&json!({"waitForPodsReady": {"timeout": "30m", "blockAdmission": false}})).await;
    plane.make_namespace("dash-a").await.unwrap();
    apply(&plane, ACCOUNTS).await.unwrap();
    let token = plane.token_of_service_account("dash-a", "root").await.unwrap();
    lives::an_attempt_that_is_over(&address, &token, &plane).await;
}

/// A token of the team's user, made as the page says.
async fn typed_token(plane: &ControlPlane) -> String {
    let page = blocks("docs/tasks/dashboard.md", "sh").unwrap();
    let command = page.last().unwrap();
    assert!(command.contains("create token alice"), "{command}");
    let printed = typed(plane, plane.folder(), &command.replace("team-a", "dash-a")).await.unwrap();
    printed.trim().to_owned()
}

async fn for_a_team(alice: &Caller, ours: &Place<'_>) {
    let who = alice.json("/api/who").await;
    assert_eq!((&who["all"], &who["namespaces"]), (&json!(false), &json!(["dash-a"])));
    eventually("both waiting jobs to be shown in their order", DEADLINE, || async {
        let queue = alice.json("/api/queues/dash-a?state=pending").await;
        let items = queue["items"].as_array().unwrap().clone();
        let places: Vec<_> = items.iter().map(|item| item["position"].as_u64()).collect();
        let waits = items.iter().filter(|item| item["namespace"] == "dash-a").count();
        Ok(progress(places == [Some(0), Some(1)] && waits == 1, format!("{queue}")))
    })
    .await
    .unwrap();
    for path in [
        "/api/now",
        "/api/queues/dash-a",
        "/api/queues/dash-a/starts",
        "/api/workloads",
        "/api/workloads?search=secret",
        "/api/nodes",
        "/api/topologies",
        "/api/topologies/dash-c",
    ] {
        let text = alice.json(path).await.to_string();
        assert!(
            !text.contains("secret") && !text.contains("dash-b") && !text.contains("dash-c/"),
            "{path}: {text}"
        );
    }
    let now = alice.json("/api/now").await;
    // The queue of another team is part of a sum.
    let [queue] = &now["clusterQueues"].as_array().unwrap()[..] else { unreachable!("{now}") };
    assert_eq!(
        (&queue["name"], now["others"]["queues"].as_u64() >= Some(1)),
        (&json!("dash-a"), true),
        "{now}"
    );
    assert_eq!(alice.get("/api/queues/dash-c").await.0, 404);
    assert_eq!((&queue["pending"], &queue["admitted"]), (&json!(2), &json!(1)), "{queue}");
    assert_eq!(queue["flavors"][0]["resources"][0]["used"], 1.0, "{queue}");
    let name = ours.workload("waits").await.unwrap()["metadata"]["name"].as_str().unwrap().to_owned();
    let own = alice.json(&format!("/api/workloads/dash-a/{name}")).await;
    assert_eq!((&own["job"]["name"], &own["item"]["state"]), (&json!("waits"), &json!("pending")), "{own}");
    let explained = alice.json(&format!("/api/workloads/dash-a/{name}/explain")).await;
    assert!(explained["text"].as_str().unwrap().contains("waits"), "{explained}");
    assert!(!explained.to_string().contains("secret"), "{explained}");
    let (status, text) = alice.get("/api/workloads/dash-b/none").await;
    assert_eq!(status, 403, "{text}");
}

async fn for_an_administrator(root: &Caller) {
    assert_eq!(root.json("/api/who").await["all"], true);
    let all = root.json("/api/workloads").await;
    assert_eq!(all["total"], 4, "{all}");
    assert!(root.json("/api/queues/dash-a").await.to_string().contains("secret"));
    assert!(root.json("/api/nodes").await["hidden"].is_null());
}

async fn what_comes(alice: &Caller, root: &Caller) {
    let quota = json!({"kind": "quota", "clusterQueue": "dash-a", "flavor": "dash-a", "resource": "cpu", "value": "3"});
    let asked = json!({"for": "24h", "changes": [quota]});
    let (status, text) = root.tomorrow(&asked).await;
    assert_eq!(status, 200, "{text}");
    assert!(text.contains("dash-b/secret") && text.contains("sooner"), "{text}");
    let (status, text) = alice.tomorrow(&asked).await;
    assert_eq!(status, 200, "{text}");
    assert!(text.contains("dash-a/waits") && !text.contains("secret"), "{text}");
    let future: Value = serde_json::from_str(&text).unwrap();
    assert!(future["base"]["places"].is_null(), "a team's user may not see nodes: {future}");
}
