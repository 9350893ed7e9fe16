//! Traces as OpenTelemetry's own collector takes them, over TLS. What they say is checked with the journal, on a stand-in.

use std::collections::BTreeSet;
use std::fs;

use kube::api::{Api, DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use sluice_testkit::assets::Tool;
use sluice_testkit::kubectl::apply;
use sluice_testkit::otel::{Collector, Span};
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::{Manager, needs, workloads};
use sluice_tests::place::DEADLINE;
use sluice_tests::queues;

use crate::explain::{make_job, plane, wait_until_started};

/// A plane of its own: the manager has a configuration that others do not have.
#[tokio::test(flavor = "multi_thread")]
async fn opentelemetry_s_own_collector_takes_the_traces() {
    needs!(Tool::OtelCollector);
    let (plane, client, setup) = plane().await;
    let collector = Collector::start(&plane).await.unwrap();
    let tracing = json!({"tracing": {"endpoint": collector.url(), "caFile": plane.ca_path()}});
    let manager = Manager::start(&plane, setup.with(&tracing)).await.unwrap();
    apply(&plane, &queues::one(4)).await.unwrap();
    make_job(&client, "default", "one", 1).await;
    wait_until_started(&client, "default", "one").await;
    let (_, page) = manager.health("/debug/explain/default/one?kind=job&output=json").await.unwrap();
    let explained: Value = serde_json::from_str(&page).unwrap();
    let trace = explained["trace"].as_str().unwrap().to_owned();

    // Its pods never get ready here: the eviction ends the trace.
    let workload = workloads::of_job(&client, "default", "one").await.unwrap().unwrap();
    let name = workload["metadata"]["name"].as_str().unwrap();
    let api: Api<DynamicObject> = workloads::namespaced(&client, "default", "Workload", "workloads");
    let stop = Patch::Merge(json!({"spec": {"active": false}}));
    api.patch(name, &PatchParams::default(), &stop).await.unwrap();
    let names = BTreeSet::from(["admission", "queued", "cycle", "reserved", "started"]);
    eventually(&format!("the collector to have the trace {trace}"), DEADLINE, || async {
        let all = collector.spans()?;
        let own: Vec<&Span> = all.iter().filter(|span| span.trace == trace).collect();
        let whole =
            own.len() == names.len() && own.iter().map(|span| &*span.name).collect::<BTreeSet<_>>() == names;
        Ok(progress(whole, format!("{all:?}")))
    })
    .await
    .unwrap();
    let spans = collector.spans().unwrap();
    let roots: Vec<&Span> =
        spans.iter().filter(|span| span.trace == trace && span.parent.is_empty()).collect();
    assert!(roots.len() == 1 && roots[0].name == "admission", "{spans:?}");
    for says in [
        "kueue.admission.outcome: Str(Evicted)".to_owned(),
        format!("kueue.workload.name: Str({name})"),
        "kueue.cluster_queue.name: Str(cq)".to_owned(),
    ] {
        assert!(roots[0].attributes.contains(&says), "{says}: {:?}", roots[0]);
    }
    let log = fs::read_to_string(collector.log()).unwrap();
    for level in ["warn", "error"] {
        assert!(!log.contains(&format!("\"level\":\"{level}\"")), "{log}");
    }
    plane.stop();
}
