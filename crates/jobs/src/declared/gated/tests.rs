//! Declared kinds whose pods wait for admission themselves.

use serde_json::{Value, json};
use sluice_api::config::Configuration;
use sluice_api::gates::Gates;
use sluice_api::job::JobKind;
use sluice_jobs::pods::{Member, Parent};
use sluice_jobs::webhook::{Operation, PodSelectors, mutate_plain_pod};
use sluice_jobs::{Patch, declare, made_pod, observe, start, stop};

use crate::testing::{World, apply};

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const MANAGED: &str = "kueue.x-k8s.io/managed";
const PARENT: &str = "kueue.x-k8s.io/pod-suspending-parent";

/// Makes a kind known; or says why not.
fn declared(declaration: &Value) -> Result<JobKind, String> {
    let configuration = json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
        "integrations": {"declared": [declaration]},
    });
    let (configuration, _) =
        Configuration::parse(&configuration.to_string()).map_err(|why| why.to_string())?;
    declare(&configuration).map_err(|why| why.to_string())?;
    assert!(configuration.integrations.implies_pods());
    let name = configuration.integrations.declared[0].framework();
    assert!(configuration.integrations.job_kinds().contains(&JobKind::POD));
    JobKind::named(&name).ok_or_else(|| "not known".to_owned())
}

/// A kind with a template for a coordinator, and one for workers.
fn declaration(group: &str) -> Value {
    json!({
        "group": group, "version": "v1", "kind": "Crew",
        "suspend": {"gatesPods": true},
        "podSets": [
            {"name": "coordinator", "template": "spec.coordinator"},
            {"name": "worker", "template": "spec.worker", "countPath": "spec.workers"},
        ],
        "active": "self.status.running > 0",
        "finished": "self.status.phase == 'Done'",
    })
}

fn crew(group: &str, workers: i32) -> Value {
    let template = |cpu: &str| {
        json!({"metadata": {"labels": {"app": "crew"}}, "spec": {"containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}},
        ]}})
    };
    json!({
        "apiVersion": format!("{group}/v1"), "kind": "Crew",
        "metadata": {"name": "a", "namespace": "team-a", "uid": "u1", "resourceVersion": "3", "labels": {QUEUE: "lq"}},
        "spec": {"workers": workers, "coordinator": template("1"), "worker": template("2")},
        "status": {"running": 0},
    })
}

#[test]
fn its_templates_mark_the_pods_and_nothing_else_of_it_is_written() {
    const GROUP: &str = "marks.gated.example.com";
    let (world, kind) = (World::default(), declared(&declaration(GROUP)).unwrap());
    assert!(kind.gathers_pods() && kind.integration().ends);
    let made = world.written(kind, Operation::Create, &crew(GROUP, 3));
    for (name, at) in [("coordinator", "coordinator"), ("worker", "worker")] {
        let metadata = &made["spec"][at]["metadata"];
        assert_eq!(metadata["labels"], json!({"app": "crew", MANAGED: "true", QUEUE: "lq"}));
        assert_eq!(
            metadata["annotations"],
            json!({
                PARENT: "marks.gated.example.com/crew",
                "kueue.x-k8s.io/pod-group-fast-admission": "true",
                "kueue.x-k8s.io/pod-group-serving": "true",
                "kueue.x-k8s.io/pod-group-total-count": "4",
                "kueue.x-k8s.io/role-hash": name,
            })
        );
    }
    assert_eq!(world.written(kind, Operation::Update, &made)["spec"], made["spec"], "nothing is left to do");
    let view = observe(kind, &made);
    let sets: Vec<_> = view.pod_sets.iter().map(|set| (&*set.name, set.count)).collect();
    assert_eq!(sets, [("coordinator", 1), ("worker", 3)]);
    assert_eq!((view.invalid.as_deref(), view.on_hold), (None, Some(false)));
    assert!(view.pod_sets.iter().all(|set| set.template.as_ref().unwrap().metadata.is_none()));
    // Its pods are started and stopped.
    assert_eq!(start(&view, &[]).unwrap(), Patch::Json(Vec::new()).pinned(&view.resource_version));
    assert!(stop(&view, &[]).is_empty());
}

#[test]
fn an_object_without_the_marks_gets_the_reason_and_is_not_queued() {
    const GROUP: &str = "pruned.gated.example.com";
    let (world, kind) = (World::default(), declared(&declaration(GROUP)).unwrap());
    let mut pruned = world.written(kind, Operation::Create, &crew(GROUP, 3));
    pruned["spec"]["worker"].as_object_mut().unwrap().remove("metadata");
    let why = observe(kind, &pruned).invalid.unwrap();
    assert!(why.contains("spec.worker.metadata.labels and spec.worker.metadata.annotations"), "{why}");
    let mut plain = crew(GROUP, 3);
    plain["metadata"]["labels"] = json!({});
    assert_eq!(observe(kind, &plain).invalid, None, "it is none that is queued");
}

#[test]
fn a_pod_is_gated_in_the_place_of_its_controller() {
    const GROUP: &str = "pods.gated.example.com";
    let (world, kind) = (World::default(), declared(&declaration(GROUP)).unwrap());
    let made = world.written(kind, Operation::Create, &crew(GROUP, 2));
    let selectors = PodSelectors { implied: true, ..PodSelectors::default() };
    for (number, role) in [(0, "coordinator"), (1, "worker"), (2, "worker")] {
        let pod = made_pod(kind, &made, number).unwrap();
        let pod = world.with(|context| apply_new(&pod, &mutate_plain_pod(&pod, context, &selectors)));
        let parent = Parent::of(&pod["metadata"]).unwrap();
        assert_eq!((parent.kind, &*parent.name, parent.uid.as_deref()), (kind, "a", Some("u1")));
        let member = Member::observe(&pod, &Gates::default());
        assert!(member.gated && !member.held, "nothing keeps it");
        assert_eq!((&*member.role, &*member.pod_set.unwrap().name), (role, role));
        assert_eq!(member.total_count, Ok(3));
        assert!(member.group.unwrap().starts_with("crew-a-"));
    }
    assert_eq!(made_pod(kind, &made, 3), None);
    // What controls a pod is its object, or nothing is.
    let mut other = made_pod(kind, &made, 0).unwrap();
    other["metadata"]["ownerReferences"][0]["kind"] = json!("Other");
    assert_eq!(Parent::of(&other["metadata"]), None);
}

#[test]
fn marks_go_where_the_declaration_has_labels_and_annotations() {
    const GROUP: &str = "inject.gated.example.com";
    let declaration = json!({
        "group": GROUP, "version": "v1", "kind": "Crew",
        "suspend": {"gatesPods": true},
        "podSets": [{
            "name": "main",
            "templateExpression": "{'spec': {'containers': [{'name': 'c', 'resources': {'requests': {'cpu': self.spec.cpu}}}]}}",
            "inject": {"labels": "spec.podLabels", "annotations": "spec.podAnnotations"},
        }],
        "active": "self.status.phase == 'Running'",
    });
    let (world, kind) = (World::default(), declared(&declaration).unwrap());
    assert!(!kind.integration().ends);
    let object = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "Crew",
        "metadata": {"name": "a", "namespace": "team-a", "uid": "u1", "resourceVersion": "3", "labels": {QUEUE: "lq"}},
        "spec": {"cpu": "2", "podLabels": {"app": "x"}},
    });
    let made = world.written(kind, Operation::Create, &object);
    assert_eq!(made["spec"]["podLabels"], json!({"app": "x", MANAGED: "true", QUEUE: "lq"}));
    assert_eq!(made["spec"]["podAnnotations"][PARENT], "inject.gated.example.com/crew");
    assert_eq!(observe(kind, &made).invalid, None);
    let pod = made_pod(kind, &made, 0).unwrap();
    assert_eq!(pod["metadata"]["labels"][MANAGED], "true");
    assert_eq!(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"], "2");
}

#[test]
fn what_its_quota_is_for_stays_while_it_has_pods() {
    const GROUP: &str = "fixed.gated.example.com";
    let mut one = declaration(GROUP);
    one["podSets"].as_array_mut().unwrap().remove(0);
    let more = json!({"name": "helper", "template": "spec.coordinator", "optional": true});
    one["podSets"].as_array_mut().unwrap().push(more);
    let (world, kind) = (World::default(), declared(&one).unwrap());
    let with = |workers: i32, running: i32| {
        let mut crew = crew(GROUP, workers);
        crew["spec"].as_object_mut().unwrap().remove("coordinator");
        let mut made = world.written(kind, Operation::Create, &crew);
        made["status"]["running"] = json!(running);
        made
    };
    let refused = |old: &Value, new: &Value| world.refusals(kind, new, Some(old));
    assert_eq!(refused(&with(2, 0), &with(2, 2)), "");
    assert!(refused(&with(2, 2), &with(3, 2)).contains("spec: Forbidden: the numbers of its pods"));
    assert_eq!(refused(&with(2, 2), &with(0, 2)), "");
    assert_eq!(refused(&with(0, 0), &with(3, 0)), "");
    assert_eq!(observe(kind, &with(0, 0)).on_hold, Some(true));
    let mut helped = with(2, 2);
    helped["spec"]["coordinator"] = crew(GROUP, 1)["spec"]["coordinator"].clone();
    let helped = world.written(kind, Operation::Update, &helped);
    assert!(refused(&with(2, 2), &helped).contains("spec: Forbidden: the numbers of its pods"));
    let mut larger = with(2, 2);
    larger["spec"]["worker"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("9");
    assert!(
        refused(&with(2, 2), &larger).contains("spec.worker.spec: Forbidden: requests, ports and scheduling")
    );
    let mut image = with(2, 2);
    image["spec"]["worker"]["spec"]["containers"][0]["image"] = json!("newer");
    assert_eq!(refused(&with(2, 2), &image), "");
    // The queue is fixed as soon as a pod may run, and cannot be taken off at all.
    let (mut moved, mut bare) = (with(2, 2), with(2, 0));
    moved["metadata"]["labels"][QUEUE] = json!("other");
    bare["metadata"]["labels"] = json!({});
    assert!(refused(&with(2, 2), &moved).contains("field is immutable"));
    assert!(refused(&with(2, 0), &bare).contains("field is immutable"));
    let mut waits = moved;
    waits["status"]["running"] = json!(0);
    assert_eq!(refused(&with(2, 0), &waits), "");
}

#[test]
fn no_queued_object_becomes_one_that_cannot_be_read() {
    const GROUP: &str = "unread.gated.example.com";
    let declaration = json!({
        "group": GROUP, "version": "v1", "kind": "Crew",
        "suspend": {"gatesPods": true},
        "podSets": [{
            "name": "main",
            "templateExpression": "{'spec': {'containers': [{'name': 'c', 'resources': {'requests': {'cpu': self.spec.cpu}}}]}}",
            "count": "self.spec.size == 'large' ? 9 : self.spec.workers",
            "inject": {"labels": "spec.podLabels", "annotations": "spec.podAnnotations"},
        }],
        "active": "self.status.phase == 'Running'",
    });
    let (world, kind) = (World::default(), declared(&declaration).unwrap());
    let object = |cpu: &Value, workers: &Value, queue: &Value| {
        let object = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "Crew",
            "metadata": {"name": "a", "namespace": "team-a", "uid": "u1", "resourceVersion": "3", "labels": queue},
            "spec": {"cpu": cpu, "workers": workers, "size": "small"},
        });
        world.written(kind, Operation::Create, &object)
    };
    let queue = json!({QUEUE: "lq"});
    let refused = |old: Option<&Value>, new: &Value| world.refusals(kind, new, old);
    let sound = object(&json!("2"), &json!(2), &queue);
    let larger = object(&json!("2"), &json!(3), &queue);
    let unread = object(&json!("2"), &json!("two"), &queue);
    let without_template = object(&json!({"no": "number"}), &json!(2), &queue);
    assert_eq!(refused(None, &sound), "");
    assert!(refused(Some(&sound), &larger).contains("the numbers of its pods"));
    // Neither of the two steps by which the size could be changed is let in, and what could not be marked is not made.
    for broken in [&unread, &without_template] {
        for old in [None, Some(&sound)] {
            let reported = refused(old, broken);
            assert!(
                reported.contains("spec: Forbidden: the pods of a queued object must be known: "),
                "{reported}"
            );
        }
    }
    let reported = refused(Some(&sound), &unread);
    assert!(reported.contains("declared podSets[0].count: must be an integer, but is \"two\""), "{reported}");
    // Controllers write what was there before; and what no queue is named for is left alone.
    assert_eq!(refused(Some(&unread), &unread), "");
    assert_eq!(refused(Some(&unread), &larger), "");
    let unqueued = object(&json!("2"), &json!("two"), &json!({}));
    assert_eq!(refused(None, &unqueued), "");
    assert!(refused(Some(&unqueued), &unread).contains("must be known"));
    let everything = World { manage_all: true, ..World::default() };
    assert!(everything.refusals(kind, &unqueued, None).contains("must be known"));
    let owned = World { manage_all: true, managed_owner: true, ..World::default() };
    assert_eq!(owned.refusals(kind, &unqueued, None), "");
}

#[test]
fn pod_sets_of_which_none_is_left_cannot_come_back_larger() {
    const GROUP: &str = "vanish.gated.example.com";
    let mut one = declaration(GROUP);
    for set in one["podSets"].as_array_mut().unwrap() {
        set["optional"] = json!(true);
    }
    let (world, kind) = (World::default(), declared(&one).unwrap());
    let made = world.written(kind, Operation::Create, &crew(GROUP, 2));
    let mut bare = made.clone();
    for part in ["coordinator", "worker"] {
        bare["spec"].as_object_mut().unwrap().remove(part);
    }
    let reported = world.refusals(kind, &bare, Some(&made));
    assert!(reported.contains("the object has none of the declared pod sets"), "{reported}");
    bare["spec"]["coordinator"] = json!({"spec": {"containers": "none"}});
    let reported = world.refusals(kind, &bare, Some(&made));
    assert!(reported.contains("spec.coordinator"), "{reported}");
}

#[test]
fn sizes_of_pods_that_are_gated_are_said_by_the_spec_alone() {
    let with = |field: &str, value: &str| {
        let mut declaration = declaration("beside.gated.example.com");
        let worker = declaration["podSets"][1].as_object_mut().unwrap();
        worker.remove("countPath");
        worker.insert(field.to_owned(), json!(value));
        declared(&declaration)
    };
    for (field, value) in [
        ("count", "self.status.workers"),
        ("count", "has(self.status) ? 2 : 1"),
        ("count", "self.spec.workers + int(self.metadata.labels['more'])"),
        ("count", "size(self)"),
        ("countPath", "status.workers"),
        ("countPath", "metadata.generation"),
    ] {
        let reported = with(field, value).unwrap_err();
        let why = format!("podSets[1].{field}: must read nothing but the spec with suspend.gatesPods");
        assert!(reported.contains(&why), "{value}: {reported}");
    }
    let mut made = declaration("beside.gated.example.com");
    made["podSets"] = json!([{
        "name": "a", "templateExpression": "{'spec': self.status.podSpec}",
        "inject": {"labels": "spec.labels", "annotations": "spec.annotations"},
    }]);
    assert!(declared(&made).unwrap_err().contains("podSets[0].templateExpression: must read nothing but"));
    with("count", "self.spec.?workers.orValue(size(self.spec.names))").unwrap();
}

#[test]
fn what_means_nothing_for_pods_that_are_gated_is_refused() {
    let with = |pointer: &str, value: Value| {
        let mut declaration = declaration("wrong.gated.example.com");
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        declaration.pointer_mut(parent).unwrap()[field] = value;
        declared(&declaration).unwrap_err()
    };
    for (pointer, value, why) in [
        ("/suspend/path", json!("spec.suspend"), "suspend.path: has no effect with gatesPods"),
        ("/suspend/running", Value::Null, "suspend.running: has no effect with gatesPods"),
        (
            "/podSets/0/reclaimable",
            json!("1"),
            "podSets[0].reclaimable: has no effect with suspend.gatesPods",
        ),
        ("/ready", json!("true"), "ready: has no effect with suspend.gatesPods"),
        (
            "/podSets/0/inject",
            json!({"nodeSelector": "spec.nodes"}),
            "podSets[0].inject.nodeSelector: has no effect with suspend.gatesPods",
        ),
        (
            "/podSets/1/podIndexLabel",
            json!("index"),
            "podSets[1].podIndexLabel: must be the same in all pod sets",
        ),
    ] {
        let reported = with(pointer, value);
        assert!(reported.contains(why), "{pointer}: {reported}");
    }
    let mut made = declaration("wrong.gated.example.com");
    made["podSets"] = json!([{"name": "a", "templateExpression": "{}"}]);
    let reported = declared(&made).unwrap_err();
    assert!(reported.contains("podSets[0].inject.labels: required for the marks"), "{reported}");
}

/// A pod that is being made has no version yet.
fn apply_new(pod: &Value, patch: &Patch) -> Value {
    let mut pod = pod.clone();
    pod["metadata"]["resourceVersion"] = json!("1");
    apply(&pod, patch).unwrap()
}
