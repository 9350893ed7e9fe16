//! The process's end, with all parts but the servers running on a stand-in for the API server.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Bytes;
use axum::http::{Method, Uri};
use axum::response::Response;
use rustls::RootCertStore;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use sluice_api::config::Environment;
use sluice_engine::effect::{EffectId, Purpose, Write, WriteRequest};
use sluice_engine::input::{Kind, ObjectRef};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::TlsConnector;

use super::ending::Ending;
use super::*;
use crate::certs::material::{Material, Renewal, renew};
use crate::fake_api::{self, failed, found, list};
use crate::roots;
use crate::watch::pods::Pods;

/// What the stand-in has: a lease, and a request on which the part that sends it panics.
struct Server {
    lease: watch::Sender<Value>,
    poisonous: &'static str,
    poisoned: Notify,
    /// A write came on a ClusterQueue: none of those is answered.
    written: Notify,
    /// How many writes came on Workloads: each takes a moment.
    workloads: AtomicU64,
}

impl Server {
    fn new(poisonous: &'static str) -> Arc<Self> {
        let (lease, poisoned, written) = (watch::Sender::new(Value::Null), Notify::new(), Notify::new());
        Arc::new(Self { lease, poisonous, poisoned, written, workloads: AtomicU64::new(0) })
    }

    fn client(self: &Arc<Self>) -> Client {
        let server = Arc::clone(self);
        fake_api::client(move |method, uri, body| Arc::clone(&server).answer(method, uri, body))
    }

    async fn answer(self: Arc<Self>, method: Method, uri: Uri, body: Bytes) -> Response {
        if uri.path() == self.poisonous {
            self.poisoned.notified().await;
            panic!("a bug at {}", uri.path());
        }
        if uri.path().contains("/leases") {
            if method != Method::GET {
                let mut lease: Value = serde_json::from_slice(&body).unwrap();
                lease["metadata"]["resourceVersion"] = json!("1");
                self.lease.send_replace(lease);
            }
            let lease = self.lease.borrow();
            return if lease.is_null() { failed(404, "NotFound") } else { found(&lease) };
        }
        if uri.query().is_some_and(|query| query.contains("watch=")) {
            pending::<()>().await;
        }
        if uri.path().contains("/clusterqueues") && method != Method::GET {
            self.written.notify_one();
            pending::<()>().await;
        }
        if uri.path().contains("/workloads/") && method != Method::GET {
            self.workloads.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(20)).await;
            return failed(404, "NotFound");
        }
        if uri.path() == "/apis/kueue.x-k8s.io/v1beta2" {
            return found(&json!({"resources": []}));
        }
        found(&list("1", &[]))
    }

    fn holder(&self) -> String {
        self.lease.borrow()["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    async fn is_held(&self) {
        self.lease
            .subscribe()
            .wait_for(|lease| {
                lease["spec"]["holderIdentity"].as_str().is_some_and(|holder| !holder.is_empty())
            })
            .await
            .unwrap();
    }
}

/// A configuration without health and metrics.
fn silent() -> Configuration {
    let (mut configuration, _) = Configuration::defaults_in(&Environment::default()).unwrap();
    configuration.health.health_probe_bind_address.clear();
    configuration.metrics.bind_address.clear();
    configuration
}

fn start(server: &Arc<Server>) -> (Running, Stopper) {
    start_with(server, silent(), "*,-webhooks,-certificates")
}

fn start_with(server: &Arc<Server>, configuration: Configuration, controllers: &str) -> (Running, Stopper) {
    let controllers = Controllers::parse(controllers).unwrap();
    let (stopper, stop) = pair();
    let (client, shares) = (server.client(), descriptors::shares());
    let pauses = Pauses::default();
    let parts = Parts {
        configuration,
        controllers,
        client,
        requests: Requests::default(),
        stop,
        inject_panics: false,
        record: None,
        shares,
        pauses,
    };
    assert_eq!(parts.pods(), Pods::ForQueues);
    (parts.start(server.client()).unwrap(), stopper)
}

/// Why the process ends, once it leads, and whether the part that panicked was reported.
async fn end(poisonous: &'static str) -> (Running, Arc<Server>, Ending) {
    let server = Server::new(poisonous);
    let (mut running, _stopper) = start(&server);
    let panics = async {
        server.is_held().await;
        server.poisoned.notify_one();
    };
    let (ending, ()) = tokio::join!(running.ending(), panics);
    (running, server, ending.unwrap())
}

#[tokio::test]
async fn a_panic_in_a_watch_ends_the_process_with_its_reason_and_gives_the_lease_back() {
    let (running, server, ending) = end("/api/v1/nodes").await;
    assert_eq!(ending, Ending::Fatal("the task nodes panicked: a bug at /api/v1/nodes".to_owned()));
    assert!(!server.holder().is_empty());
    running.give_up().await;
    assert_eq!(server.holder(), "", "the next leader need not wait until the lease expires");
}

#[tokio::test]
async fn an_end_without_a_request_is_exit_code_1() {
    let server = Server::new("/apis/kueue.x-k8s.io/v1beta2");
    let (running, stopper) = start(&server);
    let panics = async {
        server.is_held().await;
        server.poisoned.notify_one();
    };
    let (code, ()) = tokio::join!(running.until_the_end(stopper), panics);
    assert_eq!((code.unwrap(), server.holder().as_str()), (1, ""));
}

#[tokio::test]
async fn a_panic_in_the_election_is_the_reason_and_not_that_it_ended() {
    // Either may be noticed first.
    for _ in 0..8 {
        let server = Server::new(
            "/apis/coordination.k8s.io/v1/namespaces/kueue-system/leases/c1f6bfd2.kueue.x-k8s.io",
        );
        let (mut running, _stopper) = start(&server);
        server.poisoned.notify_one();
        let Ending::Fatal(why) = running.ending().await.unwrap() else { panic!("it was not asked to end") };
        assert!(why.starts_with("the task lease panicked: a bug at "), "{why}");
        running.give_up().await;
    }
}

#[tokio::test]
async fn the_metrics_answer_before_there_is_a_certificate_and_then_with_that_of_the_webhooks() {
    const SERVICE: &str = "kueue-controller-manager-metrics-service.kueue-system.svc";
    let names = BTreeSet::from([SERVICE.to_owned()]);
    let made = renew(&Material::default(), Renewal::RenewAll, &names, Timestamp::now()).unwrap();
    let mut trusted = RootCertStore::empty();
    assert!(roots::add(&mut trusted, made.ca_bundle.as_bytes()));
    let connector = TlsConnector::from(roots::client(trusted).unwrap());
    for certified in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        if certified {
            std::fs::write(folder.path().join("tls.crt"), &made.cert).unwrap();
            std::fs::write(folder.path().join("tls.key"), &made.key).unwrap();
        }
        // Free again once its number is known.
        let metrics = bind("a free port", "127.0.0.1:0".parse().unwrap()).unwrap().local_addr().unwrap();
        let mut configuration = silent();
        configuration.metrics.bind_address = metrics.to_string();
        configuration.webhook.host = "127.0.0.1".to_owned();
        configuration.webhook.port = 0;
        configuration.webhook.cert_dir = folder.path().display().to_string();
        configuration.visibility_server.bind_port = 0;
        configuration.internal_cert_management.enable = false;
        let (running, _stopper) = start_with(&Server::new(""), configuration, "*,-certificates");
        let scraped = async || {
            let stream = TcpStream::connect(metrics).await.unwrap();
            connector.connect(ServerName::try_from(SERVICE).unwrap(), stream).await
        };
        if certified {
            let verified = async { while scraped().await.is_err() {} };
            tokio::time::timeout(Duration::from_mins(1), verified).await.unwrap();
        } else {
            let refused = scraped().await.unwrap_err().to_string();
            assert!(refused.contains("UnknownIssuer"), "it has a provisional certificate: {refused}");
        }
        running.give_up().await;
    }
}

/// A process that leads, and waits for the answer of a write.
async fn writing() -> (Running, Stopper, Arc<Server>) {
    let server = Server::new("");
    let (running, stopper) = start(&server);
    server.is_held().await;
    let write = Write::MergePatch { subresource: Some("status"), body: json!({"status": {}}) };
    let object = ObjectRef::cluster(Kind::ClusterQueue, "q");
    running.writer.write(0, WriteRequest { id: EffectId(1), object, purpose: Purpose::QueueStatus, write });
    server.written.notified().await;
    (running, stopper, server)
}

#[tokio::test]
async fn a_write_without_an_answer_keeps_the_lease_until_it_expires() {
    let (running, stopper, server) = writing().await;
    running.stop_gracefully(stopper).await;
    assert!(!server.holder().is_empty(), "the write may still come, and the next leader must know of it");
    let (running, _stopper, server) = writing().await;
    running.give_up().await;
    assert!(!server.holder().is_empty(), "nor does it matter why the process ends");
}

#[tokio::test]
async fn what_was_not_sent_yet_does_not_keep_the_lease() {
    const QUEUED: u64 = 5_000;
    for asked in [true, false] {
        let server = Server::new("");
        let (mut running, stopper) = start(&server);
        // A slow machine may need long for so many.
        running.patience = Duration::from_mins(1);
        server.is_held().await;
        for id in 1..=QUEUED {
            let object = ObjectRef::namespaced(Kind::Workload, "ns", format!("w-{id}"));
            let write = Write::MergePatch { subresource: Some("status"), body: json!({"status": {}}) };
            let purpose = Purpose::Pend;
            running.writer.write(0, WriteRequest { id: EffectId(id), object, purpose, write });
        }
        if asked {
            running.stop_gracefully(stopper).await;
        } else {
            running.give_up().await;
        }
        assert_eq!(server.holder(), "", "the next leader need not wait until the lease expires");
        assert!(server.workloads.load(Ordering::Relaxed) < QUEUED, "it decides the rest again");
    }
}
