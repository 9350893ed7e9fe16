//! Kinds whose pods wait for admission in their place.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};
use sluice_api::config::Configuration;
use sluice_api::gates::Gates;
use sluice_api::job::JobKind;
use sluice_jobs::webhook::{
    Context, Operation, PodSelectors, mutate, mutate_plain_pod, validate, validate_plain_pod,
};
use sluice_jobs::{Patch, observe};

use crate::support::apply;

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const CLASS: &str = "kueue.x-k8s.io/priority-class";
const MANAGED: &str = "kueue.x-k8s.io/managed";
const PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";

pub fn deployment(labels: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "team-a", "uid": "u1", "resourceVersion": "3", "labels": labels},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
            },
        },
    })
}

/// What a cluster answers.
#[derive(Default)]
pub struct World {
    pub default_local_queue: bool,
    pub default_priority_class: bool,
    pub manage_all: bool,
    pub managed_owner: bool,
    pub system: bool,
}

impl World {
    pub fn with<T>(&self, ask: impl FnOnce(&Context<'_>) -> T) -> T {
        let name = if self.system { "kube-system" } else { "team-a" };
        let labels = BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), name.to_owned())]);
        let selector: LabelSelector = Configuration::default().managed_jobs_namespace_selector;
        let gate = sluice_api::gates::Gate::WorkloadPriorityClassDefaulting;
        ask(&Context {
            manage_jobs_without_queue_name: self.manage_all,
            managed_jobs_namespace_selector: &selector,
            namespace_labels: &labels,
            default_local_queue: self.default_local_queue,
            default_priority_class: self.default_priority_class,
            managed_owner: self.managed_owner,
            gates: Gates::default().with(gate, true),
        })
    }

    pub fn written(&self, kind: JobKind, operation: Operation, object: &Value) -> Value {
        apply(object, &self.with(|context| mutate(kind, operation, object, context))).unwrap()
    }

    pub fn refusals(&self, kind: JobKind, object: &Value, old: Option<&Value>) -> String {
        self.with(|context| match validate(kind, object, old, context) {
            Ok(()) => String::new(),
            Err(denied) => denied.to_string(),
        })
    }
}

fn changed(object: &Value, pointer: &str, value: Value) -> Value {
    let mut object = object.clone();
    *object.pointer_mut(pointer).unwrap() = value;
    object
}

#[test]
fn the_template_of_a_queued_deployment_marks_its_pods() {
    let (world, kind) = (World::default(), JobKind::DEPLOYMENT);
    let made = world.written(kind, Operation::Create, &deployment(&json!({QUEUE: "lq", CLASS: "high"})));
    let metadata = &made["spec"]["template"]["metadata"];
    assert_eq!(metadata["labels"], json!({"app": "web", MANAGED: "true", QUEUE: "lq", CLASS: "high"}));
    assert_eq!(metadata["annotations"], json!({PARENT: "deployment"}));
    assert_eq!(world.written(kind, Operation::Update, &made)["spec"], made["spec"], "nothing is left to do");
    // Nobody takes the marks off.
    let mut bare = deployment(&json!({QUEUE: "other"}));
    bare["spec"]["template"].as_object_mut().unwrap().remove("metadata");
    let back = world.written(kind, Operation::Update, &bare);
    assert_eq!(back["spec"]["template"]["metadata"]["labels"], json!({MANAGED: "true", QUEUE: "other"}));
    assert_eq!(back["spec"]["template"]["metadata"]["annotations"], json!({PARENT: "deployment"}));
    // The older annotation is a queue name, too.
    let mut old = deployment(&json!({}));
    old["metadata"]["annotations"] = json!({QUEUE: "lq"});
    let made = world.written(kind, Operation::Create, &old);
    assert_eq!(made["spec"]["template"]["metadata"]["labels"][QUEUE], "lq");
}

#[test]
fn only_what_is_managed_is_marked() {
    let kind = JobKind::DEPLOYMENT;
    let plain = deployment(&json!({}));
    let marked = |world: &World, operation| {
        let made = world.written(kind, operation, &plain);
        made["spec"]["template"]["metadata"]["annotations"][PARENT].is_string()
    };
    assert!(!marked(&World::default(), Operation::Create));
    let all = || World { manage_all: true, ..World::default() };
    assert!(marked(&all(), Operation::Create) && marked(&all(), Operation::Update));
    assert!(!marked(&World { system: true, ..all() }, Operation::Create));
    assert!(!marked(&World { managed_owner: true, ..all() }, Operation::Create));
    let defaults = World { default_local_queue: true, default_priority_class: true, ..World::default() };
    assert!(marked(&defaults, Operation::Create));
    assert!(!marked(&defaults, Operation::Update), "one that runs unqueued can still be changed");
    let made = defaults.written(kind, Operation::Create, &plain);
    assert_eq!(made["metadata"]["labels"], json!({QUEUE: "default", CLASS: "default"}));
    assert_eq!(made["spec"]["template"]["metadata"]["labels"][QUEUE], "default");
    let mut leaving = deployment(&json!({QUEUE: "lq"}));
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let kept = World::default().written(kind, Operation::Update, &leaving);
    assert_eq!(kept["spec"], leaving["spec"]);
}

#[test]
fn the_queue_of_a_deployment_is_fixed_once_a_replica_is_ready() {
    let (world, kind) = (World::default(), JobKind::DEPLOYMENT);
    let queued = deployment(&json!({QUEUE: "lq"}));
    let other = changed(&queued, "/metadata/labels", json!({QUEUE: "other"}));
    let none = changed(&queued, "/metadata/labels", json!({}));
    assert_eq!(world.refusals(kind, &queued, None), "");
    assert_eq!(world.refusals(kind, &other, Some(&queued)), "");
    assert!(world.refusals(kind, &none, Some(&queued)).contains("field is immutable"));
    let ready = |object: &Value| {
        let mut object = object.clone();
        object["status"] = json!({"readyReplicas": 1});
        object
    };
    for (old, new) in [(&queued, &other), (&queued, &none), (&none, &queued)] {
        let said = world.refusals(kind, &ready(new), Some(&ready(old)));
        assert_eq!(said.matches("field is immutable").count(), 1, "{said}");
        assert!(said.contains("metadata.labels[kueue.x-k8s.io/queue-name]"), "{said}");
    }
    let scaled = changed(&ready(&queued), "/spec/replicas", json!(30));
    assert_eq!(world.refusals(kind, &scaled, Some(&ready(&queued))), "");
    let bad = world.refusals(kind, &deployment(&json!({QUEUE: "A_b"})), None);
    assert!(bad.contains("A_b"), "{bad}");
    let classed = deployment(&json!({QUEUE: "lq", CLASS: "high"}));
    assert!(world.refusals(kind, &queued, Some(&classed)).contains("cannot be removed"));
}

/// A pod as its ReplicaSet makes it.
fn replica(labels: &Value, parent: Option<&str>) -> Value {
    let annotations = parent.map(|parent| json!({PARENT: parent}));
    json!({
        "metadata": {"name": "web-1", "namespace": "team-a", "resourceVersion": "1", "labels": labels,
            "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    })
}

fn made(world: &World, pod: &Value, implied: bool) -> Value {
    let selectors = PodSelectors { implied, ..PodSelectors::default() };
    apply(pod, &world.with(|context| mutate_plain_pod(pod, context, &selectors))).unwrap()
}

#[test]
fn a_pod_that_says_its_parent_suspends_it_waits_whoever_wrote_that() {
    let gated = |pod: &Value| pod["spec"]["schedulingGates"][0]["name"] == "kueue.x-k8s.io/admission";
    for world in [World::default(), World { system: true, ..World::default() }] {
        for implied in [true, false] {
            // With the marks of a template, and forged without any.
            for labels in
                [json!({QUEUE: "lq", MANAGED: "true"}), json!({QUEUE: "lq"}), json!({}), json!(null)]
            {
                for parent in ["deployment", "statefulset", "made-up", ""] {
                    let pod = made(&world, &replica(&labels, Some(parent)), implied);
                    assert!(gated(&pod), "{pod}");
                    assert_eq!(pod["metadata"]["labels"][MANAGED], "true", "it is seen: {pod}");
                    assert!(pod["metadata"]["finalizers"].is_null(), "its parent makes another: {pod}");
                }
            }
        }
    }
    // Pods that nothing suspends are looked after only where their own kind is listed.
    let plain = replica(&json!({QUEUE: "lq"}), None);
    assert!(gated(&made(&World::default(), &plain, false)));
    assert_eq!(made(&World::default(), &plain, true), plain);
}

#[test]
fn what_suspends_a_pod_does_so_until_it_has_ended() {
    let world = World::default();
    let said = |old: &Value, new: &Value| {
        world.with(|context| match validate_plain_pod(new, Some(old), context) {
            Ok(()) => String::new(),
            Err(denied) => denied.to_string(),
        })
    };
    let labels = json!({QUEUE: "lq", MANAGED: "true"});
    let [plain, ours, other] =
        [None, Some("deployment"), Some("statefulset")].map(|parent| replica(&labels, parent));
    for (old, new) in [(&ours, &plain), (&plain, &ours), (&ours, &other)] {
        assert!(said(old, new).contains("metadata.annotations[kueue.x-k8s.io/pod-suspending-parent]"));
        let mut ended = new.clone();
        ended["status"] = json!({"phase": "Succeeded"});
        assert_eq!(said(old, &ended), "");
    }
    assert_eq!(said(&ours, &ours), "");
}

#[test]
fn no_object_makes_a_serving_kind_panic() {
    let (world, kind) = (World::default(), JobKind::DEPLOYMENT);
    let queued = deployment(&json!({QUEUE: "lq"}));
    let places = ["/metadata/labels", "/spec/replicas", "/spec/template", "/spec/template/metadata", "/spec"];
    for place in places {
        for value in [Value::Null, json!(true), json!(-1), json!("x"), json!([null, 1]), json!({"labels": 1})]
        {
            let odd = changed(&queued, place, value);
            let view = observe(kind, &odd);
            let _ = (sluice_jobs::start(&view, &[]), sluice_jobs::stop(&view, &[]));
            for operation in [Operation::Create, Operation::Update] {
                let Patch::Json(_) = world.with(|context| mutate(kind, operation, &odd, context)) else {
                    panic!("a webhook takes JSON patches")
                };
            }
            let _ = (world.refusals(kind, &odd, Some(&queued)), world.refusals(kind, &queued, Some(&odd)));
        }
    }
}
