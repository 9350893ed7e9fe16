#![expect(clippy::disallowed_methods, reason = "a test ends with its tasks")]

use std::net::SocketAddr;

use axum::body::Bytes;
use futures::future::BoxFuture;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use sluice_api::visibility::PendingWorkloadsSummary;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::*;
use crate::access::front_proxy::tests::Ca;
use crate::certs::Serving;
use crate::certs::server::TlsOptions;
use crate::explain::{Answer, Refused};
use crate::fake_api::{self, found};
use crate::serve::connections::Patience;
use crate::shutdown::{Stopper, pair};
use crate::visibility::board::tests::{Follower, cluster_queue, local_queue, workload};

/// Explains nothing; says what it was asked.
struct Echo;

impl Explains for Echo {
    fn explain_to(
        &self,
        namespace: String,
        name: String,
        asked: Asked,
        queues: bool,
    ) -> BoxFuture<'_, Answer> {
        Box::pin(async move {
            match name.as_str() {
                "missing" => Err(Refused(StatusCode::NOT_FOUND, "none".to_owned())),
                "slow" => std::future::pending().await,
                _ => {
                    let one = json!({
                        "of": format!("{namespace}/{name}"), "all": asked.all, "nodes": asked.nodes, "queues": queues,
                        "kind": asked.kind, "change": asked.change,
                    });
                    let both = asked.output == Format::Both;
                    Ok(if both { json!({"text": "words", "explanation": one}) } else { one }.to_string())
                }
            }
        })
    }
}

/// The server, and who may be its proxy.
struct Bed {
    address: SocketAddr,
    ca: Ca,
    /// Where its journal is.
    folder: tempfile::TempDir,
    /// Turns of its large answers, and of its pages of the journal.
    large: Arc<Semaphore>,
    journals: Arc<Semaphore>,
    _stopper: Stopper,
}

/// An API server that knows the token `good` as `bob`. `alice` may read queues of the namespace `a`, and explanations there; `root` everything.
fn api_server() -> kube::Client {
    fake_api::client(move |_: Method, uri: Uri, body: Bytes| {
        let review: Value = serde_json::from_slice(&body).unwrap();
        async move {
            if uri.path().ends_with("/tokenreviews") {
                let good = review["spec"]["token"] == "good";
                return found(&json!({"status": {"authenticated": good, "user": {"username": "bob"}}}));
            }
            let (user, object) = (&review["spec"]["user"], &review["spec"]["resourceAttributes"]);
            let listed = object["resource"] == "nodes"
                || (object["resource"] == "clusterqueues" && object["subresource"] == "");
            assert_eq!(object["verb"], if listed { "list" } else { "get" });
            let own = *user == "alice" && object["namespace"] == "a" && object["resource"] != "clusterqueues";
            found(&json!({"status": {"allowed": own || *user == "root"}}))
        }
    })
}

async fn bed(listed: bool) -> Bed {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let ca = Ca::new("front-proxy-ca");
    let published = Arc::<Published>::default();
    if listed {
        let mut follower = Follower::new();
        follower.see(cluster_queue("cq"));
        for namespace in ["a", "b"] {
            follower.see(local_queue(namespace, "lq", "cq", 1));
        }
        for (at, (namespace, name)) in [("b", "b0"), ("a", "a0"), ("a", "a1")].into_iter().enumerate() {
            follower.see(workload(namespace, name, "lq", 0, u32::try_from(at).unwrap()));
        }
        follower.follow();
        published.show(follower.board);
    }
    let proxy = ca.proxy();
    let serving = Serving::provisional_for(TlsOptions::default(), Some(Arc::new(proxy.clone()))).unwrap();
    let access = Access::new(api_server(), Duration::from_mins(1));
    let folder = tempfile::tempdir().unwrap();
    let journal = listed.then(|| journal::Reader::new(folder.path()));
    let server = Server::new(published, access, proxy, Arc::new(Echo), journal);
    let (large, journals) = (Arc::clone(&server.large), Arc::clone(&server.journals));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stopper, stop) = pair();
    let bounds = Bounds { connections: 20, patience: Patience::default() };
    tokio::spawn(serve(listener, serving.config, server, bounds, stop));
    Bed { address, ca, folder, large, journals, _stopper: stopper }
}

/// Takes any server for what it says it is: who the client is matters here.
#[derive(Debug)]
struct AnyServer;

impl rustls::client::danger::ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Status, head and body of an answer; nothing if the server ends the connection before.
struct Said {
    status: u16,
    head: String,
    body: String,
}

impl Said {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{}", self.body))
    }

    fn names(&self) -> Vec<String> {
        let summary: PendingWorkloadsSummary = serde_json::from_str(&self.body).unwrap();
        let item = |item: sluice_api::visibility::PendingWorkload| {
            format!(
                "{} {} {}",
                item.metadata.name, item.position_in_cluster_queue, item.position_in_local_queue
            )
        };
        summary.items.into_iter().map(item).collect()
    }
}

impl Bed {
    async fn send(&self, certificate: Option<(&Ca, &str)>, request: &str) -> Option<Said> {
        let builder =
            rustls::ClientConfig::builder().dangerous().with_custom_certificate_verifier(Arc::new(AnyServer));
        let config = match certificate {
            None => builder.with_no_client_auth(),
            Some((ca, name)) => {
                let (certificate, key) = ca.client(name);
                let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
                builder.with_client_auth_cert(vec![certificate], key).unwrap()
            }
        };
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.ok()?;
        let _ = stream.write_all(request.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some(Said { status, head: head.to_ascii_lowercase(), body: body.to_owned() })
    }

    /// As the API server's proxy sends a user's request on.
    async fn proxied(&self, user: &str, method: &str, path: &str, more: &str) -> Said {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nX-Remote-User: {user}\r\nX-Remote-Group: system:authenticated\r\n\
             {more}Connection: close\r\n\r\n"
        );
        self.send(Some((&self.ca, "front-proxy-client")), &request).await.unwrap()
    }

    async fn get(&self, user: &str, path: &str) -> Said {
        self.proxied(user, "GET", path, "").await
    }
}

const OF_CLUSTER: &str = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/cq/pendingworkloads";
const OF_A: &str = "/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/a/localqueues/lq/pendingworkloads";
const OF_B: &str = "/apis/visibility.kueue.x-k8s.io/v1beta1/namespaces/b/localqueues/lq/pendingworkloads";
const EXPLAIN: &str = "/apis/visibility.sluice.dev/v1alpha1/namespaces/a/workloads";

#[tokio::test]
async fn a_user_sees_what_he_may_and_nothing_else() {
    let bed = bed(true).await;
    let own = bed.get("alice", OF_A).await;
    assert_eq!((own.status, own.names()), (200, vec!["a0 1 0".to_owned(), "a1 2 1".to_owned()]));
    let first = &own.json()["items"][0];
    assert_eq!(own.json()["apiVersion"], "visibility.kueue.x-k8s.io/v1beta2");
    assert_eq!(first["localQueueName"], "lq");
    assert_eq!(first["metadata"]["creationTimestamp"], "1970-01-12T13:46:41Z");
    assert_eq!(first["metadata"]["ownerReferences"][0]["name"], "job-a0");
    for other in [OF_B, OF_CLUSTER] {
        let refused = bed.get("alice", other).await;
        assert_eq!((refused.status, &refused.json()["reason"]), (403, &json!("Forbidden")));
        assert!(!refused.body.contains("b0"));
        // Whether there is such a queue is not said, either.
        let missing =
            bed.get("alice", &other.replace("/lq/", "/missing/").replace("/cq/", "/missing/")).await;
        assert_eq!(missing.status, 403);
    }
    assert_eq!(bed.get("root", OF_CLUSTER).await.names(), ["b0 0 0", "a0 1 0", "a1 2 1"]);
    assert_eq!(bed.get("root", &format!("{OF_CLUSTER}?limit=1&offset=1")).await.names(), ["a0 1 0"]);
}

#[tokio::test]
async fn who_may_see_all_queues_sees_a_hundred_at_once_and_a_team_all_of_its_own() {
    let bed = bed(true).await;
    for number in 0..100 {
        for user in ["root", "alice"] {
            // There is no queue of that name: what counts is that the user may ask.
            let path = OF_A.replace("/lq/", &format!("/lq{number}/"));
            assert_eq!(bed.get(user, &path).await.status, 404, "{user} {number}");
        }
        assert_eq!(bed.get("alice", OF_B).await.status, 403);
    }
}

#[tokio::test]
async fn names_in_headers_count_only_from_the_proxy() {
    let bed = bed(true).await;
    let forged = format!(
        "GET {OF_CLUSTER} HTTP/1.1\r\nHost: x\r\nX-Remote-User: root\r\nX-Remote-Group: system:masters\r\nConnection: close\r\n"
    );
    let plain = format!("{forged}\r\n");
    let unknown = bed.send(None, &plain.replace("Connection: close\r\n", "")).await.unwrap();
    assert_eq!(unknown.status, 401, "without a certificate");
    assert!(unknown.head.contains("connection: close"), "the next connection may have one");
    assert_eq!(bed.send(Some((&bed.ca, "mallory")), &plain).await.unwrap().status, 401, "of another name");
    let other = Ca::new("front-proxy-ca");
    assert!(bed.send(Some((&other, "front-proxy-client")), &plain).await.is_none(), "of another CA");
    // A token is what counts then.
    let bob = format!("{forged}Authorization: Bearer good\r\n\r\n");
    let refused = bed.send(None, &bob).await.unwrap();
    assert_eq!(refused.status, 403);
    assert!(refused.body.contains("\\\"bob\\\""), "{}", refused.body);
    let bad = format!("{forged}Authorization: Bearer bad\r\n\r\n");
    assert_eq!(bed.send(None, &bad).await.unwrap().json()["reason"], "Unauthorized");
    let health = "GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    assert_eq!(bed.send(None, health).await.unwrap().body, "ok");
}

#[tokio::test]
async fn odd_requests_are_answered_as_api_servers_do() {
    let bed = bed(true).await;
    let status =
        async |method: &str, path: &str, more: &str| bed.proxied("root", method, path, more).await.status;
    for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        assert_eq!(status(method, OF_CLUSTER, "Content-Length: 0\r\n").await, 405, "{method}");
    }
    assert_eq!(status("GET", &format!("{OF_CLUSTER}?limit=x"), "").await, 400);
    assert_eq!(status("GET", &format!("{OF_CLUSTER}?watch=true&limit=99999999&offset=-5"), "").await, 200);
    assert_eq!(status("GET", OF_CLUSTER, "Accept: application/vnd.kubernetes.protobuf\r\n").await, 406);
    assert_eq!(
        status("GET", OF_CLUSTER, "Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n").await,
        406
    );
    assert_eq!(status("GET", OF_CLUSTER, "Accept: application/vnd.kubernetes.protobuf, */*\r\n").await, 200);
    assert_eq!(status("GET", "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues", "").await, 404);
    let missing = bed.get("root", &OF_CLUSTER.replace("/cq/", "/a%22b%2f/")).await;
    assert_eq!((missing.status, &missing.json()["details"]["name"]), (404, &json!("a\"b/")));
    let head = bed.proxied("root", "HEAD", OF_CLUSTER, "").await;
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    let yaml = bed.proxied("root", "GET", OF_CLUSTER, "Accept: application/yaml\r\n").await;
    assert!(yaml.head.contains("content-type: application/yaml"), "{}", yaml.head);
}

#[tokio::test]
async fn every_user_may_discover_what_there_is() {
    let bed = bed(false).await;
    for path in [
        "/apis",
        "/apis/visibility.kueue.x-k8s.io",
        "/apis/visibility.sluice.dev/v1alpha1",
        "/openapi/v2",
        "/openapi/v3",
    ] {
        assert_eq!(bed.get("unknown", path).await.status, 200, "{path}");
    }
    let accept =
        "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json\r\n";
    let all = bed.proxied("unknown", "GET", "/apis", accept).await;
    assert_eq!(all.json()["kind"], "APIGroupDiscoveryList");
    assert!(
        all.head
            .contains("content-type: application/json;g=apidiscovery.k8s.io;v=v2;as=apigroupdiscoverylist")
    );
    // Places are not known before everything was seen.
    let early = bed.get("root", OF_CLUSTER).await;
    assert_eq!((early.status, &early.json()["reason"]), (503, &json!("ServiceUnavailable")));
}

#[tokio::test]
async fn explanations_show_other_namespaces_only_to_those_who_may_ask_everywhere() {
    let bed = bed(true).await;
    let of =
        async |user: &str, query: &str| bed.get(user, &format!("{EXPLAIN}/w/explain{query}")).await.json();
    let alice = of("alice", "?all=true&kind=job").await;
    assert_eq!(
        alice["explanation"],
        json!({"of": "a/w", "all": false, "nodes": false, "queues": false, "kind": "job", "change": null})
    );
    assert_eq!(alice["kind"], "Explanation");
    assert_eq!(of("root", "?all=true").await["explanation"]["all"], true);
    // Nodes and ClusterQueues of others are for those who may list them, whatever is asked for.
    let root = of("root", "?nodes=false").await;
    assert_eq!((&root["explanation"]["nodes"], &root["explanation"]["queues"]), (&json!(true), &json!(true)));
    assert_eq!(of("alice", "?all=true&nodes=true").await["explanation"]["nodes"], false);
    assert_eq!(of("root", "").await["explanation"]["all"], false);
    assert!(of("root", "?output=text").await["text"].is_string());
    let both = of("root", "?output=both").await;
    assert_eq!((&both["text"], &both["explanation"]["of"]), (&json!("words"), &json!("a/w")), "{both}");
    assert_eq!(bed.get("bob", &format!("{EXPLAIN}/w/explain")).await.status, 403);
    assert_eq!(bed.get("alice", &format!("{EXPLAIN}/w/explain?output=xml")).await.status, 400);
    assert_eq!(bed.get("alice", &format!("{EXPLAIN}/missing/explain")).await.json()["reason"], "NotFound");
}

#[tokio::test]
async fn a_change_is_tried_for_those_who_may_ask_and_only_of_what_users_change() {
    let bed = bed(true).await;
    let path = |change: &str| format!("{EXPLAIN}/w/whatif?kind=job&change={change}");
    let good = path("%7B%22spec%22%3A%7B%22parallelism%22%3A2%7D%7D");
    let answer = bed.get("alice", &good).await.json();
    assert_eq!(answer["kind"], "WhatIf");
    assert_eq!(answer["whatIf"]["change"], json!({"spec": {"parallelism": 2}}));
    assert_eq!(bed.get("bob", &good).await.status, 403);
    let long = format!("%7B%22spec%22%3A%7B%22x%22%3A%22{}%22%7D%7D", "x".repeat(7 << 10));
    assert_eq!(bed.get("alice", &path(&long)).await.status, 200);
    for wrong in [
        "",
        "x",
        "%7B%7D",
        "%7B%22status%22%3A%7B%7D%7D",
        "%7B%22metadata%22%3A%7B%22name%22%3A%22y%22%7D%7D",
    ] {
        assert_eq!(bed.get("alice", &path(wrong)).await.status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn the_journal_is_for_those_who_may_read_it_and_is_given_page_by_page() {
    const JOURNAL: &str = "/apis/visibility.sluice.dev/v1alpha1/clusterqueues";
    let bed = bed(true).await;
    let line = |minute: u32, queue: &str| {
        format!(
            "{{\"at\":\"2026-01-01T00:{minute:02}:00Z\",\"clusterQueue\":\"{queue}\",\"nominal\":{{}}}}\n"
        )
    };
    let text = line(1, "cq") + &line(2, "other") + &line(3, "cq");
    std::fs::write(bed.folder.path().join("pod.00000000.jsonl"), text).unwrap();
    let minutes = |answer: &Value| -> Vec<String> {
        let lines = answer["lines"].as_array().unwrap().iter();
        lines.map(|line| line["at"].as_str().unwrap()[14..16].to_owned()).collect()
    };
    let get = async |path: &str| bed.get("root", &format!("{JOURNAL}/{path}")).await;
    let all = get("-/journal").await.json();
    assert_eq!(
        (minutes(&all), &all["kind"]),
        (vec!["01".into(), "02".into(), "03".into()], &json!("JournalPage"))
    );
    assert_eq!(minutes(&get("cq/journal").await.json()), ["01", "03"]);
    assert_eq!(minutes(&get("cq/journal?since=2026-01-01T00:02:00Z").await.json()), ["03"]);
    let first = get("-/journal?limit=2").await.json();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let token = token.replace('/', "%2F").replace('@', "%40");
    assert_eq!(minutes(&first), ["01", "02"]);
    assert_eq!(minutes(&get(&format!("-/journal?limit=2&continue={token}")).await.json()), ["03"]);
    for wrong in ["since=yesterday", "limit=x", "limit=-1", "continue=..%2Fa.jsonl@0", "continue=x"] {
        assert_eq!(get(&format!("-/journal?{wrong}")).await.status, 400, "{wrong}");
    }
    for path in ["-/journal", "cq/journal"] {
        assert_eq!(bed.get("alice", &format!("{JOURNAL}/{path}")).await.status, 403);
    }
}

#[tokio::test]
async fn pages_of_the_journal_and_of_long_queues_do_not_wait_for_each_other() {
    const JOURNAL: &str = "/apis/visibility.sluice.dev/v1alpha1/clusterqueues/-/journal";
    let bed = bed(true).await;
    let journals = bed.journals.acquire_many(2).await.unwrap();
    assert_eq!(bed.get("root", &format!("{OF_CLUSTER}?limit=6000")).await.status, 200);
    drop(journals);
    let _large = bed.large.acquire_many(2).await.unwrap();
    assert_eq!(bed.get("root", JOURNAL).await.status, 200);
}

#[tokio::test]
async fn without_a_journal_there_is_no_such_path() {
    let path = "/apis/visibility.sluice.dev/v1alpha1/clusterqueues/-/journal";
    assert_eq!(bed(false).await.get("root", path).await.status, 404);
    for journal in [false, true] {
        let bed = bed(journal).await;
        for path in [
            "/apis/visibility.sluice.dev/v1alpha1",
            "/openapi/v2",
            "/openapi/v3/apis/visibility.sluice.dev/v1alpha1",
        ] {
            let listed = bed.get("root", path).await.json().to_string().contains("/journal\"");
            assert_eq!(listed, journal, "{path}");
        }
    }
}

#[tokio::test]
async fn a_user_waits_for_one_explanation_at_a_time_and_others_are_not_held_up() {
    let bed = Arc::new(bed(true).await);
    let other = Arc::clone(&bed);
    let slow =
        tokio::spawn(async move { other.get("alice", &format!("{EXPLAIN}/slow/explain")).await.status });
    let refused = loop {
        let status = bed.get("alice", &format!("{EXPLAIN}/w/explain")).await.status;
        if status != 200 {
            break status;
        }
    };
    assert_eq!(refused, 429);
    assert_eq!(bed.get("root", &format!("{EXPLAIN}/w/explain")).await.status, 200);
    slow.abort();
}

#[tokio::test]
async fn an_answer_that_is_being_made_keeps_its_turn_when_its_caller_is_gone() {
    let turns = Arc::new(Semaphore::new(1));
    let (end, ended) = std::sync::mpsc::channel::<()>();
    {
        let turn = turn(&turns).await.unwrap();
        let making = made(&turn, move || ended.recv().is_err());
        // The caller goes while the answer is made.
        assert!(tokio::time::timeout(Duration::ZERO, making).await.is_err());
    }
    assert_eq!(turns.available_permits(), 0);
    drop(end);
    assert!(turns.acquire().await.is_ok(), "the turn is free when it is made");
}
