//! LeaderWorkerSets: each group of pods is a job.

use serde_json::{Value, json};
use sluice_api::gates::{Gate, Gates};
use sluice_api::job::{JobKind, MAX_GROUPS};
use sluice_api::names::{MAX_WORKLOAD_NAME, workload_name};
use sluice_jobs::pods::{Member, Parent};
use sluice_jobs::webhook::{
    Gatherer, Operation, PodSelectors, mutate, mutate_plain_pod, validate, validate_plain_pod,
};
use sluice_jobs::{Patch, observe};

use crate::testing::{World, apply};

const KIND: JobKind = JobKind::LEADER_WORKER_SET;
const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const CLASS: &str = "kueue.x-k8s.io/priority-class";
const PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";

fn template(cpu: &str) -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}})
}

/// Groups of `size`, with a leader of its own kind.
fn set(replicas: i64, size: i64) -> Value {
    json!({
        "apiVersion": KIND.api_version(), "kind": KIND.kind(),
        "metadata": {"name": "web", "namespace": "team-a", "uid": "u1", "resourceVersion": "3",
            "labels": {QUEUE: "lq", CLASS: "high"}},
        "spec": {
            "replicas": replicas,
            "leaderWorkerTemplate": {
                "size": size, "leaderTemplate": template("1"), "workerTemplate": template("2"),
            },
        },
    })
}

fn alone(replicas: i64, size: i64) -> Value {
    let mut set = set(replicas, size);
    set["spec"]["leaderWorkerTemplate"].as_object_mut().unwrap().remove("leaderTemplate");
    set
}

fn made(object: &Value) -> Value {
    World::default().written(KIND, Operation::Create, object)
}

fn changed(object: &Value, pointer: &str, value: Value) -> Value {
    let mut object = object.clone();
    *object.pointer_mut(pointer).unwrap() = value;
    object
}

#[test]
fn a_group_has_a_leader_and_workers_or_pods_of_one_kind() {
    let sets = |object: &Value| {
        let view = observe(KIND, object);
        assert_eq!(view.invalid, None);
        let of = |set: &sluice_api::job::JobPodSet| {
            let index = set.topology_request.as_ref().unwrap().pod_index_label.clone();
            assert!(set.template.as_ref().unwrap().metadata.is_none());
            (set.name.clone(), set.count, index.unwrap_or_default())
        };
        (view.groups, view.pod_sets.iter().map(of).collect::<Vec<_>>())
    };
    let index = || "leaderworkerset.sigs.k8s.io/worker-index".to_owned();
    let leader = || ("leader".to_owned(), 1, String::new());
    assert_eq!(sets(&set(3, 4)), (Some(3), vec![leader(), ("worker".to_owned(), 3, index())]));
    assert_eq!(sets(&set(0, 1)), (Some(0), vec![leader(), ("worker".to_owned(), 0, index())]));
    assert_eq!(sets(&alone(1, 4)), (Some(1), vec![("main".to_owned(), 4, index())]));
    // What is left out is one.
    let mut bare = alone(1, 1);
    bare["spec"].as_object_mut().unwrap().remove("replicas");
    bare["spec"]["leaderWorkerTemplate"].as_object_mut().unwrap().remove("size");
    assert_eq!(sets(&bare), (Some(1), vec![("main".to_owned(), 1, index())]));
}

#[test]
fn groups_beyond_those_wanted_count_while_a_rollout_makes_them() {
    let groups = |surge: Value, status: Value| {
        let mut object = set(4, 2);
        object["spec"]["rolloutStrategy"] = json!({"rollingUpdateConfiguration": {"maxSurge": surge}});
        object["status"] = status;
        observe(KIND, &object).groups.unwrap()
    };
    let status = |replicas: i64, updated: i64| json!({"replicas": replicas, "updatedReplicas": updated});
    assert_eq!(groups(json!(1), status(5, 1)), 5);
    assert_eq!(groups(json!("30%"), status(6, 1)), 6, "rounded up");
    assert_eq!(groups(json!(1), status(9, 1)), 5, "no more than it may make");
    assert_eq!(groups(json!(9), status(9, 1)), 8, "nor more than are wanted");
    assert_eq!(groups(json!(2), status(4, 1)), 4, "they are not there yet");
    assert_eq!(groups(json!(1), status(6, 6)), 4, "it is scaled down");
    assert_eq!(groups(json!(0), status(6, 1)), 4);
    for odd in [json!("x%"), json!(-1), json!(null), json!({}), json!("-5%")] {
        assert_eq!(groups(odd.clone(), status(6, 1)), 4, "{odd}");
    }
    assert_eq!(groups(json!("99999999999%"), status(i64::MAX, -1)), 4);
    assert_eq!(observe(KIND, &set(i64::MAX, 2)).groups, Some(MAX_GROUPS));
    assert_eq!(observe(KIND, &set(-7, i64::MAX)).groups, Some(0));
}

#[test]
fn the_templates_mark_the_pods_of_groups_and_change_with_nothing_else() {
    let one = made(&set(2, 3));
    let annotations = |name: &str| &one["spec"]["leaderWorkerTemplate"][name]["metadata"]["annotations"];
    let marks = |role: &str| {
        json!({
            PARENT: KIND.framework(),
            "kueue.x-k8s.io/pod-group-fast-admission": "true",
            "kueue.x-k8s.io/pod-group-serving": "true",
            "kueue.x-k8s.io/pod-group-pod-index-label": "leaderworkerset.sigs.k8s.io/worker-index",
            "kueue.x-k8s.io/role-hash": role,
        })
    };
    assert_eq!(annotations("leaderTemplate"), &marks("leader"));
    let mut worker = marks("worker");
    worker["kueue.x-k8s.io/pod-index-offset"] = json!("1");
    assert_eq!(annotations("workerTemplate"), &worker);
    for name in ["leaderTemplate", "workerTemplate"] {
        let labels = &one["spec"]["leaderWorkerTemplate"][name]["metadata"]["labels"];
        assert_eq!(labels, &json!({"kueue.x-k8s.io/managed": "true"}));
    }
    // Another queue, class or number of groups replaces no group.
    for (pointer, value) in
        [("/metadata/labels", json!({QUEUE: "other", CLASS: "low"})), ("/spec/replicas", json!(7))]
    {
        let other = World::default().written(KIND, Operation::Update, &changed(&one, pointer, value));
        assert_eq!(other["spec"]["leaderWorkerTemplate"], one["spec"]["leaderWorkerTemplate"]);
    }
    let single = made(&alone(1, 3));
    assert_eq!(
        single["spec"]["leaderWorkerTemplate"],
        json!({"size": 3, "workerTemplate": {
            "metadata": {"labels": {"kueue.x-k8s.io/managed": "true"}, "annotations": marks("main")},
            "spec": template("2")["spec"],
        }})
    );
    // The pods of a pod set group are counted with their leader.
    let mut grouped = set(1, 3);
    let group =
        json!({"kueue.x-k8s.io/podset-group-name": "g", "kueue.x-k8s.io/podset-required-topology": "rack"});
    for name in ["leaderTemplate", "workerTemplate"] {
        grouped["spec"]["leaderWorkerTemplate"][name]["metadata"] = json!({"annotations": group});
    }
    let grouped = made(&grouped);
    let annotations = &grouped["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"]["annotations"];
    assert!(annotations["kueue.x-k8s.io/pod-index-offset"].is_null(), "{annotations}");
}

#[test]
fn what_the_quota_of_a_group_is_for_is_fixed() {
    let world = World::default();
    let said = |old: &Value, new: &Value| world.refusals(KIND, new, Some(old));
    let one = made(&set(2, 3));
    let at = "/spec/leaderWorkerTemplate";
    assert_eq!(said(&one, &changed(&one, "/spec/replicas", json!(9))), "");
    assert_eq!(said(&one, &changed(&one, "/spec/replicas", json!(0))), "");
    let larger = changed(&one, &format!("{at}/size"), json!(4));
    assert!(
        said(&one, &larger)
            .contains("spec.leaderWorkerTemplate.size: Invalid value: \"4\": field is immutable")
    );
    let none = changed(&one, "/spec/replicas", json!(0));
    assert!(said(&none, &changed(&none, &format!("{at}/size"), json!(4))).contains("field is immutable"));
    let off = Gates::default().with(Gate::LWSImmutableGroupSize, false);
    let allowed = world.with_gates(off, |context| validate(KIND, &larger, Some(&one), context));
    assert!(allowed.is_ok(), "{allowed:?}");
    for name in ["leaderTemplate", "workerTemplate"] {
        let container = format!("{at}/{name}/spec/containers/0");
        assert_eq!(said(&one, &changed(&one, &format!("{container}/image"), json!("newer"))), "");
        let cpu = format!("{container}/resources/requests/cpu");
        let path = format!("spec.leaderWorkerTemplate.{name}.spec: Forbidden");
        assert!(said(&one, &changed(&one, &cpu, json!("9"))).contains(&path), "{path}");
        assert_eq!(said(&none, &changed(&none, &cpu, json!("9"))), "", "without groups");
        let mut limited = one.clone();
        limited.pointer_mut(&container).unwrap()["resources"]["limits"] = json!({"example.com/gpu": "1"});
        assert!(said(&one, &limited).contains(&path), "a limit counts where there is no request");
    }
    let without = made(&alone(2, 3));
    for (old, new) in [(&one, &without), (&without, &one)] {
        let path = "spec.leaderWorkerTemplate.leaderTemplate: Forbidden: cannot be added or removed";
        assert!(said(old, new).contains(path), "{}", said(old, new));
    }
    // Its queue is fixed once a group is ready, and never taken away.
    let other = changed(&one, "/metadata/labels", json!({QUEUE: "other", CLASS: "high"}));
    let none = changed(&one, "/metadata/labels", json!({CLASS: "high"}));
    assert_eq!(said(&one, &other), "");
    let ready = |object: &Value| {
        let mut object = object.clone();
        object["status"] = json!({"readyReplicas": 1});
        object
    };
    assert!(said(&ready(&one), &ready(&other)).contains("field is immutable"));
    assert!(said(&one, &none).contains("field is immutable"));
    // More groups than can be queued.
    let many = changed(&one, "/spec/replicas", json!(5_001));
    for old in [None, Some(&one)] {
        let said = world.refusals(KIND, &many, old);
        assert!(said.contains("spec.replicas: Invalid value: \"5001\": must be less than or equal to 5000"));
    }
    // What is not queued may change in any way.
    let plain = |size| changed(&set(6_000, size), "/metadata/labels", json!({}));
    assert_eq!(said(&plain(2), &plain(3)), "");
}

/// A pod of `web` as its StatefulSet makes it: the leader of a group, or a worker.
fn pod(name: &str, owner: &str) -> Value {
    let templates = made(&set(1, 3));
    let name_of = if owner == "web" { "leaderTemplate" } else { "workerTemplate" };
    let mut pod = templates["spec"]["leaderWorkerTemplate"][name_of].clone();
    let metadata = &mut pod["metadata"];
    metadata["name"] = json!(name);
    metadata["namespace"] = json!("team-a");
    metadata["resourceVersion"] = json!("1");
    metadata["labels"]["leaderworkerset.sigs.k8s.io/name"] = json!("web");
    metadata["annotations"]["leaderworkerset.sigs.k8s.io/size"] = json!("3");
    metadata["ownerReferences"] = json!([
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": owner, "uid": "s", "controller": true},
    ]);
    pod
}

const KNOWN: Gatherer<'_> = Gatherer { uid: "u1", queue_name: Some("lq"), priority_class: Some("high") };

fn pod_patch(pod: &Value, gatherer: Option<Gatherer<'_>>) -> Patch {
    World::default().with(|context| {
        let context = sluice_jobs::webhook::Context { gatherer, ..*context };
        mutate_plain_pod(pod, &context, &PodSelectors { implied: true, ..PodSelectors::default() })
    })
}

fn made_pod(pod: &Value, gatherer: Option<Gatherer<'_>>) -> Value {
    apply(pod, &pod_patch(pod, gatherer)).unwrap()
}

#[test]
fn a_pod_gets_the_names_of_its_group_from_its_object() {
    for (name, owner, role) in [("web-7", "web", "leader"), ("web-7-2", "web-7", "worker")] {
        let made = made_pod(&pod(name, owner), Some(KNOWN));
        let workload = workload_name(
            "LeaderWorkerSet",
            "leaderworkerset.x-k8s.io",
            "web-7",
            "u1",
            None,
            MAX_WORKLOAD_NAME,
        );
        let (labels, annotations) = (&made["metadata"]["labels"], &made["metadata"]["annotations"]);
        assert_eq!((&labels[QUEUE], &labels[CLASS]), (&json!("lq"), &json!("high")));
        for (key, value) in [
            ("pod-group-name", &*workload),
            ("prebuilt-workload-name", &*workload),
            ("pod-group-total-count", "3"),
            ("role-hash", role),
        ] {
            assert_eq!(annotations[format!("kueue.x-k8s.io/{key}")], value, "{key}");
        }
        assert_eq!(made["spec"]["schedulingGates"][0]["name"], "kueue.x-k8s.io/admission");
        let allowed = World::default().with(|context| validate_plain_pod(&made, None, context));
        assert!(allowed.is_ok(), "{allowed:?}");
        // One whose object was not seen yet waits, too.
        let early = made_pod(&pod(name, owner), None);
        assert_eq!(early["spec"]["schedulingGates"], made["spec"]["schedulingGates"]);
        assert!(early["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-name"].is_null());
        let allowed = World::default().with(|context| validate_plain_pod(&early, None, context));
        assert!(allowed.is_ok(), "{allowed:?}");
        for pod in [made, early] {
            let member = Member::observe(&pod, &Gates::default());
            let parent = member.parent.unwrap();
            assert_eq!((parent.kind, &*parent.name, parent.group, parent.uid), (KIND, "web", Some(7), None));
            assert_eq!((&*member.role, &*member.pod_set.unwrap().name), (role, role));
        }
    }
}

#[test]
fn a_pod_is_of_a_group_only_if_it_is_made_as_such_pods_are() {
    let parent = |pod: &Value| Parent::of(&pod["metadata"]);
    assert_eq!(parent(&pod("web-0", "web")).unwrap().group, Some(0));
    for (name, owner) in [
        ("web", "web"),
        ("web-", "web"),
        ("web-01", "web"),
        ("web-+1", "web"),
        ("web--1", "web"),
        ("x-1", "web"),
    ] {
        assert_eq!(parent(&pod(name, owner)), None, "{name}");
    }
    for owner in ["other", "web-x", "web-99999999999", "web-1-1", ""] {
        assert_eq!(parent(&pod("web-0-1", owner)), None, "{owner}");
    }
    for (field, value) in [
        ("/metadata/ownerReferences", json!(null)),
        ("/metadata/ownerReferences/0/controller", json!(false)),
        ("/metadata/ownerReferences/0/kind", json!("ReplicaSet")),
        ("/metadata/ownerReferences/0/apiVersion", json!("example.com/v1")),
        ("/metadata/labels", json!({})),
    ] {
        let other = changed(&pod("web-0", "web"), field, value);
        assert_eq!(parent(&other), None, "{field}");
        assert!(made_pod(&other, Some(KNOWN))["spec"]["schedulingGates"].is_array(), "it waits all the same");
    }
}

#[test]
fn the_stateful_sets_that_it_makes_are_not_queued() {
    let kind = JobKind::STATEFUL_SET;
    let worlds = [World::default(), World { manage_all: true, ..World::default() }];
    let worker = made(&set(1, 3))["spec"]["leaderWorkerTemplate"]["workerTemplate"].clone();
    let stateful = |labels: Value, template: &Value| {
        json!({"metadata": {"name": "web-0", "namespace": "team-a", "resourceVersion": "1", "labels": labels},
            "spec": {"replicas": 2, "template": template}})
    };
    for world in worlds {
        for labels in [json!({}), json!({QUEUE: "lq"})] {
            let own = stateful(labels, &worker);
            for operation in [Operation::Create, Operation::Update] {
                assert_eq!(world.written(kind, operation, &own)["spec"], own["spec"]);
            }
            assert!(observe(kind, &own).skipped);
        }
        // It changes as its LeaderWorkerSet does.
        let own = stateful(json!({}), &worker);
        let larger =
            stateful(json!({}), &changed(&worker, "/spec/containers/0/resources/requests/cpu", json!("9")));
        assert_eq!(world.refusals(kind, &changed(&larger, "/spec/replicas", json!(5)), Some(&own)), "");
    }
    let plain = stateful(json!({QUEUE: "lq"}), &template("1"));
    assert!(!observe(kind, &plain).skipped);
    assert_ne!(World::default().written(kind, Operation::Create, &plain)["spec"], plain["spec"]);
}

#[test]
fn the_annotations_that_each_workload_gets_are_bounded() {
    let annotated = |bytes: usize| {
        let mut set = set(2, 3);
        set["metadata"]["annotations"] = json!({"provreq.kueue.x-k8s.io/note": "x".repeat(bytes)});
        made(&set)
    };
    let (few, many) = (annotated(4_000), annotated(5_000));
    let world = World::default();
    assert_eq!((world.refusals(KIND, &few, None), observe(KIND, &few).invalid), (String::new(), None));
    let said = world.refusals(KIND, &many, None);
    assert!(said.contains("metadata.annotations: Too long"), "{said}");
    // An object may keep what it has; it is not queued with it.
    assert_eq!(world.refusals(KIND, &changed(&many, "/spec/replicas", json!(3)), Some(&many)), "");
    let view = observe(KIND, &many);
    assert!(view.annotations.is_empty() && view.invalid.unwrap().contains("4096 bytes"));
}

#[test]
fn no_priority_class_has_a_longer_name_than_the_api_server_takes() {
    let of = |bytes: usize| {
        let mut set = alone(1, 1);
        set["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["priorityClassName"] =
            json!("x".repeat(bytes));
        observe(KIND, &set)
    };
    let (short, long) = (of(253), of(254));
    assert_eq!((short.pod_priority_class, short.invalid), (Some("x".repeat(253)), None));
    assert_eq!(long.pod_priority_class, None);
    assert!(long.invalid.unwrap().starts_with("priorityClassName: "));
}

#[test]
fn no_object_makes_it_panic() {
    let one = made(&set(2, 3));
    let places = [
        "/metadata/labels",
        "/spec/replicas",
        "/spec/leaderWorkerTemplate",
        "/spec/leaderWorkerTemplate/size",
        "/spec/leaderWorkerTemplate/leaderTemplate",
        "/spec/leaderWorkerTemplate/workerTemplate",
        "/spec/leaderWorkerTemplate/workerTemplate/metadata",
        "/spec/leaderWorkerTemplate/workerTemplate/spec",
        "/spec",
    ];
    for place in places {
        for value in [Value::Null, json!(true), json!(-1), json!("x"), json!([null, 1]), json!({"labels": 1})]
        {
            let odd = changed(&one, place, value);
            let view = observe(KIND, &odd);
            let _ = (sluice_jobs::start(&view, &[]), sluice_jobs::stop(&view, &[]));
            for operation in [Operation::Create, Operation::Update] {
                let patch = World::default().with(|context| mutate(KIND, operation, &odd, context));
                assert!(matches!(patch, Patch::Json(_)), "a webhook takes JSON patches");
            }
            let world = World::default();
            let _ = (world.refusals(KIND, &odd, Some(&one)), world.refusals(KIND, &one, Some(&odd)));
        }
    }
    for field in
        ["/metadata/name", "/metadata/labels", "/metadata/ownerReferences", "/metadata/annotations", "/spec"]
    {
        for value in [Value::Null, json!(1), json!([1]), json!({"a": 1})] {
            let odd = changed(&pod("web-0", "web"), field, value);
            let _ = (pod_patch(&odd, Some(KNOWN)), Member::observe(&odd, &Gates::default()));
        }
    }
}
