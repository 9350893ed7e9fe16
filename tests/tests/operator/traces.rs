//! Traces as received by OpenTelemetry's own collector, over TLS. Their content is checked with the journal, on a stand-in.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeSet;
use std::fs;

use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use sluice_testkit::assets::Tool;
use sluice_testkit::kubectl::apply;
use sluice_testkit::otel::{Collector, Span};
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::{ControlPlane, Manager, needs, workloads};
use sluice_tests::place::DEADLINE;
use sluice_tests::queues;

use crate::explain::states::{says, serve_the_check, set_check};
use crate::explain::{make_job, plane, wait_until_started};

/// The queue takes what a check has agreed to.
const CHECKED: &str = r"
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: budget}
spec: {controllerName: example.com/budget}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: checked}
spec:
  namespaceSelector: {}
  admissionChecksStrategy: {admissionChecks: [{name: budget}]}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: default, resources: [{name: cpu, nominalQuota: 4}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: checked}
spec: {clusterQueue: checked}
";

/// The trace of a started job.
async fn trace_of(manager: &Manager, namespace: &str, job: &str) -> String {
    let page = format!("/debug/explain/{namespace}/{job}?kind=job&output=json");
    let (_, page) = manager.health(&page).await.unwrap();
    let explained: Value = serde_json::from_str(&page).unwrap();
    explained["trace"].as_str().unwrap_or_else(|| unreachable!("no trace: {explained}")).to_owned()
}

/// Its pods never get ready here: the eviction ends the trace. The name of its Workload.
async fn evict(client: &Client, namespace: &str, job: &str) -> String {
    let workload = workloads::of_job(client, namespace, job).await.unwrap().unwrap();
    let name = workload["metadata"]["name"].as_str().unwrap().to_owned();
    let api: Api<DynamicObject> = workloads::namespaced(client, namespace, "Workload", "workloads");
    let stop = Patch::Merge(json!({"spec": {"active": false}}));
    api.patch(&name, &PatchParams::default(), &stop).await.unwrap();
    name
}

/// The spans of a trace, once they are these and no others.
async fn arrived(collector: &Collector, trace: &str, names: &[&str]) -> Vec<Span> {
    let names: BTreeSet<&str> = names.iter().copied().collect();
    let own = || {
        let all = collector.spans()?;
        anyhow::Ok(all.into_iter().filter(|span| span.trace == trace).collect::<Vec<_>>())
    };
    eventually(&format!("the collector to have the trace {trace}"), DEADLINE, || async {
        let own = own()?;
        let whole =
            own.len() == names.len() && own.iter().map(|span| &*span.name).collect::<BTreeSet<_>>() == names;
        Ok(progress(whole, format!("{own:?}")))
    })
    .await
    .unwrap();
    own().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn opentelemetry_s_own_collector_takes_the_traces() {
    needs!(Tool::OtelCollector);
    let (_turn, plane, client, setup) = plane().await;
    let collector = Collector::start(plane).await.unwrap();
    let tracing = json!({"tracing": {"endpoint": collector.url(), "caFile": plane.ca_path()}});
    let manager = Manager::start(plane, setup.with(&tracing)).await.unwrap();
    apply(plane, &queues::one(4)).await.unwrap();
    make_job(&client, "default", "one", 1).await;
    wait_until_started(&client, "default", "one").await;
    let trace = trace_of(&manager, "default", "one").await;
    let name = evict(&client, "default", "one").await;
    let spans = arrived(&collector, &trace, &["admission", "queued", "cycle", "reserved", "started"]).await;
    let roots: Vec<&Span> = spans.iter().filter(|span| span.parent.is_empty()).collect();
    assert!(roots.len() == 1 && roots[0].name == "admission", "{spans:?}");
    for says in [
        "kueue.admission.outcome: Str(Evicted)".to_owned(),
        format!("kueue.workload.name: Str({name})"),
        "kueue.cluster_queue.name: Str(cq)".to_owned(),
    ] {
        assert!(roots[0].attributes.contains(&says), "{says}: {:?}", roots[0]);
    }
    checks_are_spans(plane, &client, &manager, &collector).await;
    let log = fs::read_to_string(collector.log()).unwrap();
    for level in ["warn", "error"] {
        assert!(!log.contains(&format!("\"level\":\"{level}\"")), "{log}");
    }
}

/// What an admission waits for is a span with the name and the state of the check.
async fn checks_are_spans(plane: &ControlPlane, client: &Client, manager: &Manager, collector: &Collector) {
    plane.make_namespace("checked").await.unwrap();
    apply(plane, CHECKED).await.unwrap();
    serve_the_check(client).await;
    make_job(client, "checked", "two", 1).await;
    says(manager, "checked", "two", &["the admission check budget is Pending"]).await;
    set_check(client, "checked", "two", "Ready", "").await;
    wait_until_started(client, "checked", "two").await;
    let trace = trace_of(manager, "checked", "two").await;
    evict(client, "checked", "two").await;
    let names = ["admission", "queued", "cycle", "reserved", "check", "started"];
    let spans = arrived(collector, &trace, &names).await;
    let check = spans.iter().find(|span| span.name == "check").unwrap();
    assert!(!check.parent.is_empty(), "{check:?}");
    for says in ["kueue.admission_check.name: Str(budget)", "kueue.admission_check.state: Str(Ready)"] {
        assert!(check.attributes.iter().any(|one| one == says), "{says}: {check:?}");
    }
}
