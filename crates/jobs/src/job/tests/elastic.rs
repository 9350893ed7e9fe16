//! Jobs that change their size while they run: the gate of their pods, what they cannot be combined with, their start.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodSchedulingGate;
use serde_json::{Value, json};
use sluice_api::config::Configuration;
use sluice_api::gates::{Gate, Gates};
use sluice_api::job::{JobKind, PodScheduling, PodSetInfo};
use sluice_jobs::webhook::{Context, Operation, validate};
use sluice_jobs::{observe, start};

use crate::testing::{apply, job, mutate_object};

const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";

fn elastic() -> Value {
    let mut job = job();
    job["metadata"]["annotations"][ELASTIC] = json!("true");
    job
}

fn with_context<T>(gates: Gates, use_it: impl FnOnce(&Context<'_>) -> T) -> T {
    let configuration = Configuration::default();
    let labels = BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), "team-a".to_owned())]);
    use_it(&Context {
        manage_jobs_without_queue_name: false,
        managed_jobs_namespace_selector: &configuration.managed_jobs_namespace_selector,
        namespace_labels: &labels,
        default_local_queue: false,
        default_priority_class: false,
        managed_owner: false,
        gatherer: None,
        gates,
    })
}

fn created(job: &Value, gates: Gates) -> Value {
    with_context(gates, |context| apply(job, &mutate_object(Operation::Create, job, context)).unwrap())
}

#[test]
fn the_pods_of_a_new_elastic_job_get_their_gate_once_beside_others() {
    let gate = json!({"name": ELASTIC});
    let gates = |job: &Value| job["spec"]["template"]["spec"]["schedulingGates"].clone();
    assert_eq!(gates(&created(&elastic(), Gates::default())), json!([gate]));
    let mut with_others = elastic();
    with_others["spec"]["template"]["spec"]["schedulingGates"] = json!([{"name": "other"}]);
    let twice = created(&created(&with_others, Gates::default()), Gates::default());
    assert_eq!(gates(&twice), json!([{"name": "other"}, gate]));
    assert!(gates(&created(&job(), Gates::default())).is_null());
    let off = Gates::default().with(Gate::ElasticJobsViaWorkloadSlices, false);
    assert!(gates(&created(&elastic(), off)).is_null());
    let mut odd = elastic();
    odd["spec"]["template"] = json!("odd");
    assert_eq!(created(&odd, Gates::default())["spec"]["template"], "odd");
}

#[test]
fn a_job_that_names_its_workload_has_no_gate_that_only_slices_remove() {
    let name = "kueue.x-k8s.io/prebuilt-workload-name";
    let of = |map: &str| {
        let mut named = elastic();
        named["metadata"][map][name] = json!("w");
        named
    };
    for named in ["labels", "annotations"].map(of) {
        let made = created(&named, Gates::default());
        assert!(made["spec"]["template"]["spec"]["schedulingGates"].is_null());
        let sliced = created(&elastic(), Gates::default());
        with_context(Gates::default(), |context| {
            for (new, old) in [(&named, &sliced), (&elastic(), &made)] {
                let why = validate(JobKind::JOB, new, Some(old), context).unwrap_err().to_string();
                assert!(why.contains("prebuilt-workload-name]: Invalid value"), "{why}");
            }
        });
    }
}

/// Without the gate the annotation names no Workload: the pods have the gate that only slices remove.
#[test]
fn a_label_beside_an_annotation_that_does_not_count_names_another_workload() {
    let name = "kueue.x-k8s.io/prebuilt-workload-name";
    let off = Gates::default().with(Gate::WorkloadIdentifierAnnotations, false);
    let mut annotated = elastic();
    annotated["metadata"]["annotations"][name] = json!("w");
    let made = created(&annotated, off);
    assert_eq!(made["spec"]["template"]["spec"]["schedulingGates"], json!([{"name": ELASTIC}]));
    let changed = |map: &str, value: &str| {
        let mut job = made.clone();
        job["metadata"][map][name] = json!(value);
        with_context(off, |context| validate(JobKind::JOB, &job, Some(&made), context))
    };
    let why = changed("labels", "x").unwrap_err().to_string();
    assert!(why.contains("prebuilt-workload-name]: Invalid value: \"x\""), "{why}");
    assert_eq!(changed("annotations", "x"), Ok(()));
}

#[test]
fn partial_admission_and_topologies_are_refused() {
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut job = elastic();
        job["spec"]["suspend"] = json!(true);
        change(&mut job);
        let gates = Gates::default().with(Gate::TopologyAwareScheduling, true);
        let result = with_context(gates, |context| validate(JobKind::JOB, &job, None, context));
        result.err().map(|denied| denied.to_string()).unwrap_or_default()
    };
    assert_eq!(refused(&|_| {}), "");
    let least =
        refused(&|job| job["metadata"]["annotations"]["kueue.x-k8s.io/job-min-parallelism"] = json!("1"));
    assert!(
        least.contains("cannot be used together with the annotation kueue.x-k8s.io/elastic-job"),
        "{least}"
    );
    for key in ["podset-required-topology", "podset-preferred-topology"] {
        let key = format!("kueue.x-k8s.io/{key}");
        let topology = refused(&|job| {
            job["spec"]["template"]["metadata"]["annotations"] = json!({&key: "kubernetes.io/hostname"});
        });
        assert!(topology.contains("cannot be used together"), "{topology}");
    }
}

#[test]
fn a_job_whose_pods_wait_starts_with_fewer_than_it_asks_for_and_keeps_its_number() {
    let mut job = elastic();
    job["spec"]["suspend"] = json!(true);
    let view = observe(JobKind::JOB, &job);
    let info = |count, gated: bool| {
        let gate = PodSchedulingGate { name: ELASTIC.to_owned() };
        let scheduling = PodScheduling {
            scheduling_gates: if gated { vec![gate] } else { Vec::new() },
            ..PodScheduling::default()
        };
        PodSetInfo { name: "main".to_owned(), count, scheduling }
    };
    let count = view.pod_sets[0].count;
    let started = apply(&job, &start(&view, &[info(count - 1, true)]).unwrap()).unwrap();
    assert_eq!(started["spec"]["parallelism"], job["spec"]["parallelism"]);
    assert_eq!(started["spec"]["template"]["spec"]["schedulingGates"], json!([{"name": ELASTIC}]));
    assert!(start(&view, &[info(count - 1, false)]).is_err(), "nothing would hold the others back");
    assert!(start(&view, &[info(count + 1, true)]).is_err());
}
