//! Ray's kinds that change their size while they run: what is read, what a user may write, and how they start and stop.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PodSchedulingGate;
use serde_json::{Value, json};
use sluice_api::config::Configuration;
use sluice_api::gates::{Gate, Gates};
use sluice_api::job::{JobKind, JobPodSet, JobView, PodSetInfo};
use sluice_jobs::webhook::{Context, Operation, mutate, validate};
use sluice_jobs::{StartError, observe, start, stop};

use crate::testing::ray::{KINDS, originals, place, ray};
use crate::testing::{apply, prune};

const ELASTIC: &str = "kueue.x-k8s.io/elastic-job";
const POD_SET: &str = "kueue.x-k8s.io/podset";

fn elastic(kind: JobKind) -> Value {
    let mut object = ray(kind);
    object["metadata"]["annotations"] = json!({ELASTIC: "true"});
    object
}

/// It, with Ray's own autoscaler.
fn autoscaled(kind: JobKind) -> Value {
    let mut object = elastic(kind);
    object.pointer_mut(place(kind)).unwrap()["enableInTreeAutoscaling"] = json!(true);
    object
}

fn with_context<T>(gates: Gates, use_it: impl FnOnce(&Context<'_>) -> T) -> T {
    let selector = Configuration::default().managed_jobs_namespace_selector;
    use_it(&Context {
        manage_jobs_without_queue_name: false,
        managed_jobs_namespace_selector: &selector,
        namespace_labels: &BTreeMap::new(),
        default_local_queue: false,
        default_priority_class: false,
        managed_owner: false,
        gatherer: None,
        gates,
    })
}

fn created(kind: JobKind, object: &Value) -> Value {
    with_context(Gates::default(), |context| {
        apply(object, &mutate(kind, Operation::Create, object, context)).unwrap()
    })
}

fn refused(kind: JobKind, object: &Value, old: Option<&Value>, gates: Gates) -> String {
    let result = with_context(gates, |context| validate(kind, object, old, context));
    result.err().map(|denied| denied.to_string()).unwrap_or_default()
}

/// What the start of an elastic job adds, with `small` pods of the second pod set.
fn additions(view: &JobView, small: i32) -> Vec<PodSetInfo> {
    let info = |set: &JobPodSet| {
        let mut info = PodSetInfo { name: set.name.clone(), count: set.count, ..PodSetInfo::default() };
        info.scheduling.labels.insert(POD_SET.to_owned(), set.name.clone());
        info.scheduling.scheduling_gates.push(PodSchedulingGate { name: ELASTIC.to_owned() });
        info
    };
    let mut infos: Vec<_> = view.pod_sets.iter().map(info).collect();
    infos[1].count = small;
    infos
}

#[test]
fn only_an_elastic_cluster_scales_itself() {
    let off = Gates::default().with(Gate::ElasticJobsViaWorkloadSlices, false);
    for (kind, _) in KINDS {
        let view = observe(kind, &autoscaled(kind));
        assert_eq!((view.invalid, view.autoscaled), (None, true), "{kind:?}");
        assert!(!observe(kind, &elastic(kind)).autoscaled);
        assert_eq!(refused(kind, &autoscaled(kind), None, Gates::default()), "", "{kind:?}");
        let reported = refused(kind, &autoscaled(kind), None, off);
        assert!(reported.contains("enableInTreeAutoscaling: Invalid value: true"), "{kind:?}: {reported}");
        for value in ["false", ""] {
            let mut rigid = autoscaled(kind);
            rigid["metadata"]["annotations"][ELASTIC] = json!(value);
            let why = observe(kind, &rigid).invalid.unwrap();
            assert!(why.contains("should only use autoscaling when workload slicing is enabled"), "{why}");
            assert!(refused(kind, &rigid, None, Gates::default()).contains("enableInTreeAutoscaling"));
        }
    }
}

#[test]
fn the_annotation_and_topologies_are_kept_apart_and_as_they_are() {
    let gates = Gates::default().with(Gate::TopologyAwareScheduling, true);
    for (kind, place) in KINDS {
        let reported = refused(kind, &elastic(kind), Some(&ray(kind)), gates);
        assert!(reported.contains("field is immutable"), "{kind:?}: {reported}");
        for key in ["podset-required-topology", "podset-preferred-topology"] {
            let mut object = elastic(kind);
            let key = format!("kueue.x-k8s.io/{key}");
            let template = object.pointer_mut(&format!("{place}/workerGroupSpecs/1/template")).unwrap();
            template["metadata"]["annotations"] = json!({&key: "kubernetes.io/hostname"});
            let reported = refused(kind, &object, None, gates);
            assert!(
                reported.contains("workerGroupSpecs[1].template.metadata.annotations"),
                "{kind:?}: {reported}"
            );
            assert!(reported.contains("cannot be used together with the annotation"), "{kind:?}: {reported}");
        }
    }
}

#[test]
fn pods_beyond_the_bounds_of_an_elastic_group_are_asked_for_as_kuberay_makes_them() {
    let counts = |change: &dyn Fn(&mut Value)| {
        let mut object = elastic(JobKind::RAY_CLUSTER);
        change(&mut object["spec"]["workerGroupSpecs"]);
        let view = observe(JobKind::RAY_CLUSTER, &object);
        assert_eq!(view.invalid, None);
        view.pod_sets.iter().map(|set| set.count).collect::<Vec<_>>()
    };
    assert_eq!(counts(&|_| {}), [1, 2, 6]);
    assert_eq!(counts(&|groups| groups[0]["minReplicas"] = json!(4)), [1, 4, 6]);
    assert_eq!(counts(&|groups| groups[0]["replicas"] = json!(0)), [1, 0, 6]);
    assert_eq!(counts(&|groups| groups[1]["minReplicas"] = json!(i64::MAX)), [1, 2, i32::MAX]);
}

#[test]
fn all_templates_of_a_new_elastic_job_get_the_gate() {
    for (kind, _) in KINDS {
        let made = created(kind, &autoscaled(kind));
        let view = observe(kind, &made);
        let gates = |set: &JobPodSet| set.scheduling.scheduling_gates.iter().any(|gate| gate.name == ELASTIC);
        // What KubeRay has itself of a submitter is written down by the start.
        assert!(view.pod_sets.iter().all(|set| gates(set) || set.unwritten.is_some()), "{kind:?}");
        assert_eq!(made, created(kind, &made), "once");
        assert!(!observe(kind, &created(kind, &ray(kind))).pod_sets.iter().any(gates), "{kind:?}");
    }
}

#[test]
fn one_whose_pods_wait_starts_with_fewer_and_gives_back_what_it_got() {
    for (kind, _) in KINDS {
        let object = created(kind, &autoscaled(kind));
        let view = observe(kind, &object);
        for small in [0, 1, 2] {
            let started = apply(&object, &start(&view, &additions(&view, small)).unwrap()).unwrap();
            let running = observe(kind, &started);
            assert!(
                !running.suspended && running.pod_sets.iter().all(JobPodSet::holds_pods_back),
                "{kind:?}"
            );
            assert_eq!(running.pod_sets[1].count, 2, "{kind:?}: it asks for what it asked for");
            let steps = stop(&running, &originals(&view));
            let mut stopped = apply(&started, &steps[0].patch).unwrap();
            let mut before = object.clone();
            for one in [&mut stopped, &mut before] {
                one["metadata"]["resourceVersion"] = Value::Null;
                prune(one);
            }
            assert_eq!(stopped, before, "{kind:?}");
        }
        assert!(matches!(start(&view, &additions(&view, 3)), Err(StartError::Count { .. })), "{kind:?}");
        let mut free = additions(&view, 1);
        free[1].scheduling.scheduling_gates.clear();
        assert!(matches!(start(&view, &free), Err(StartError::Count { .. })), "{kind:?}: nothing holds them");
    }
}

#[test]
fn a_cluster_that_cannot_be_read_exceeds_its_job() {
    for kind in [JobKind::RAY_JOB, JobKind::RAY_SERVICE] {
        let above = observe(kind, &ray(kind));
        let changes: [fn(&mut Value); 5] = [
            |spec| spec["enableInTreeAutoscaling"] = json!(true),
            |spec| spec["workerGroupSpecs"][0]["minReplicas"] = json!(99),
            |spec| spec["workerGroupSpecs"][0]["groupName"] = json!("HEAD"),
            |spec| spec["workerGroupSpecs"][0]["template"]["spec"]["containers"] = json!("odd"),
            |spec| *spec = json!(null),
        ];
        for (case, change) in changes.into_iter().enumerate() {
            let mut part = ray(JobKind::RAY_CLUSTER);
            part["spec"] = ray(kind).pointer(place(kind)).unwrap().clone();
            assert!(!above.is_exceeded_by(&observe(JobKind::RAY_CLUSTER, &part), false), "{kind:?}");
            change(&mut part["spec"]);
            let part = observe(JobKind::RAY_CLUSTER, &part);
            assert!(part.invalid.is_some(), "{kind:?} {case}");
            for held_back in [false, true] {
                assert!(above.is_exceeded_by(&part, held_back), "{kind:?} {case}");
            }
        }
        // Other jobs look at no part of a kind that they do not name.
        let mut odd = observe(JobKind::JOB, &json!({}));
        odd.invalid = Some("odd".to_owned());
        assert!(!above.is_exceeded_by(&odd, false), "{kind:?}");
    }
}

#[test]
fn a_cluster_that_holds_its_pods_back_may_have_any_number_of_them() {
    let kind = JobKind::RAY_JOB;
    let job = created(kind, &autoscaled(kind));
    let view = observe(kind, &job);
    let job = apply(&job, &start(&view, &additions(&view, 2)).unwrap()).unwrap();
    let above = observe(kind, &job);
    let mut cluster = autoscaled(JobKind::RAY_CLUSTER);
    cluster["spec"] = job["spec"]["rayClusterSpec"].clone();
    let exceeds = |change: &dyn Fn(&mut Value), held_back| {
        let mut cluster = cluster.clone();
        change(&mut cluster["spec"]["workerGroupSpecs"]);
        above.is_exceeded_by(&observe(JobKind::RAY_CLUSTER, &cluster), held_back)
    };
    assert!(!exceeds(&|groups| groups[0]["replicas"] = json!(4), true));
    assert!(exceeds(&|groups| groups[0]["replicas"] = json!(4), false));
    assert!(exceeds(&|groups| groups[0]["template"]["spec"]["schedulingGates"] = json!([]), true));
    assert!(exceeds(&|groups| groups[0]["template"]["metadata"]["labels"] = json!({POD_SET: "hosts"}), true));
    assert!(exceeds(&|groups| groups[0]["template"]["spec"]["containers"][0]["image"] = json!("x"), true));
}
