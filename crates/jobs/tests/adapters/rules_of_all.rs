//! The webhook's rules that hold for every kind (docs/reference/07-integrations.md 7.1): the same cases for each, and the differences.

#![expect(clippy::disallowed_methods, reason = "a test reads its files")]

use jiff::Timestamp;
use serde_json::{Value, json};
use sluice_api::gates::{Gate, Gates};
use sluice_api::job::JobKind;
use sluice_jobs::webhook::{Operation, PodSelectors, mutate, mutate_plain_pod, validate, validate_plain_pod};
use sluice_jobs::{
    Patch, State, is_suspended, pod_groups, status, supports_slices, suspend_path, suspended_value,
};

use crate::testing::{World, apply};

pub const PREFIX: &str = "kueue.x-k8s.io/";
const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const CLASS: &str = "kueue.x-k8s.io/priority-class";

/// A valid object of a kind, as small as it can be, that waits in the queue `main`.
pub fn waiting(kind: JobKind) -> Value {
    let name = format!("{}.yaml", kind.integration().controller);
    let folders = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap();
    let mut files = folders.map(|folder| folder.unwrap().path().join(&name));
    let text = files.find_map(|file| std::fs::read_to_string(file).ok()).unwrap();
    let mut object: Value = serde_saphyr::from_str(&text).unwrap();
    let metadata = &mut object["metadata"];
    metadata["namespace"] = json!("team-a");
    (metadata["uid"], metadata["resourceVersion"]) = (json!("u1"), json!("1"));
    suspend(kind, &mut object, true);
    object
}

/// The same while it runs.
pub fn running(kind: JobKind) -> Value {
    let mut object = waiting(kind);
    suspend(kind, &mut object, false);
    let since = Timestamp::UNIX_EPOCH;
    if kind.integration().suspends_pods {
        object["status"] = status(kind, &object, State::Running { since, ready: true });
    }
    assert!(!is_suspended(kind, &object), "{kind:?}");
    object
}

fn suspend(kind: JobKind, object: &mut Value, suspended: bool) {
    if kind.integration().suspends_pods {
        return;
    }
    let value = if kind.integration().of_pods {
        json!(if suspended { vec![json!({"name": "kueue.x-k8s.io/admission"})] } else { Vec::new() })
    } else if suspended {
        suspended_value(kind)
    } else {
        json!(false)
    };
    let mut field = object;
    for name in suspend_path(kind) {
        field = &mut field[*name];
    }
    *field = value;
}

/// What the webhook says of an object.
pub fn says(world: &World, kind: JobKind, object: &Value, old: Option<&Value>) -> String {
    if !kind.integration().of_pods {
        return world.refusals(kind, object, old);
    }
    world.with(|context| match validate_plain_pod(object, old, context) {
        Ok(()) => String::new(),
        Err(denied) => denied.to_string(),
    })
}

/// An object with a label or an annotation, or without it.
pub fn with(mut object: Value, map: &str, key: &str, value: Option<&str>) -> Value {
    object["metadata"][map][format!("{PREFIX}{key}")] = json!(value);
    if value.is_none() {
        object["metadata"][map].as_object_mut().unwrap().remove(&format!("{PREFIX}{key}"));
    }
    object
}

/// A change of an object's metadata.
type Entry = (&'static str, &'static str, Option<&'static str>);

/// What is done to an object of any kind, and the answer: part of it, or nothing if it is accepted.
const NEW: [(Entry, &str); 13] = [
    (("labels", "queue-name", Some("main")), ""),
    (
        ("labels", "queue-name", Some("User_Queue")),
        "metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: \"User_Queue\"",
    ),
    (
        ("annotations", "prebuilt-workload-name", Some("-")),
        "metadata.annotations[kueue.x-k8s.io/prebuilt-workload-name]: Invalid value: \"-\"",
    ),
    (("labels", "max-exec-time-seconds", Some("30")), ""),
    (
        ("labels", "max-exec-time-seconds", Some("1h")),
        "max-exec-time-seconds]: Invalid value: \"1h\": must be an integer",
    ),
    (
        ("labels", "max-exec-time-seconds", Some("0")),
        "max-exec-time-seconds]: Invalid value: \"0\": should be greater than 0",
    ),
    (("annotations", "admission-gated-by", Some("example.com/a")), ""),
    (
        ("annotations", "admission-gated-by", Some("a")),
        "admission-gated-by]: Invalid value: \"a\": must be a domain-prefixed path",
    ),
    (("annotations", "admission-gated-by", Some("example.com/a, example.com/team/b")), ""),
    (("annotations", "admission-gated-by", Some(" ")), ""),
    (
        ("annotations", "admission-gated-by", Some("a.io/x,,b.io/y")),
        "admission-gated-by]: Invalid value: \"\": must be a domain-prefixed path",
    ),
    (
        ("annotations", "admission-gated-by", Some("a.io/x, a.io/x")),
        "admission-gated-by]: Duplicate value: \"a.io/x\"",
    ),
    (
        ("annotations", "admission-gated-by", Some(LONG_GATE)),
        "admission-gated-by]: Too long: may not be more than 63 bytes",
    ),
];
const LONG_GATE: &str = "example.com/0123456789-0123456789-0123456789-0123456789-01234567";

/// Changes of an object that waits, and of one that runs.
const CHANGED: [(Entry, Entry, [&str; 2]); 13] = [
    (
        NOTHING,
        ("labels", "queue-name", Some("other")),
        ["", "queue-name]: Invalid value: \"other\": field is immutable"],
    ),
    (NOTHING, ("labels", "queue-name", None), ["", "queue-name]: Invalid value: \"\": field is immutable"]),
    (
        NOTHING,
        ("annotations", "prebuilt-workload-name", Some("w")),
        ["", "prebuilt-workload-name]: Invalid value: \"w\": field is immutable"],
    ),
    (
        NOTHING,
        ("labels", "max-exec-time-seconds", Some("9")),
        ["", "max-exec-time-seconds]: Invalid value: \"9\": field is immutable"],
    ),
    (
        ("labels", "max-exec-time-seconds", Some("9")),
        ("labels", "max-exec-time-seconds", None),
        ["", "max-exec-time-seconds]: Invalid value: \"\": field is immutable"],
    ),
    (
        NOTHING,
        ("labels", "priority-class", Some("high")),
        ["", "priority-class]: Forbidden: workload priority class cannot be added to a running job"],
    ),
    (("labels", "priority-class", Some("low")), ("labels", "priority-class", Some("high")), ["", ""]),
    (
        ("labels", "priority-class", Some("low")),
        ("labels", "priority-class", None),
        ["priority-class]: Forbidden: workload priority class cannot be removed"; 2],
    ),
    (
        NOTHING,
        ("annotations", "elastic-job", Some("false")),
        ["elastic-job]: Invalid value: \"false\": field is immutable"; 2],
    ),
    (
        ("annotations", "admission-gated-by", Some("x.y/a,x.y/b")),
        ("annotations", "admission-gated-by", Some("x.y/b")),
        ["", ""],
    ),
    (
        ("annotations", "admission-gated-by", Some("x.y/a, x.y/b")),
        ("annotations", "admission-gated-by", Some("x.y/b")),
        ["", ""],
    ),
    (
        ("annotations", "admission-gated-by", Some("x.y/a")),
        ("annotations", "admission-gated-by", Some("x.y/a,x.y/b")),
        ["admission-gated-by]: Forbidden: admission gate \"x.y/b\" cannot be added after creation"; 2],
    ),
    (
        NOTHING,
        ("annotations", "admission-gated-by", Some("x.y/a")),
        ["admission-gated-by]: Forbidden: admission gate \"x.y/a\" cannot be added after creation"; 2],
    ),
];
const NOTHING: Entry = ("labels", "nothing", None);

/// What a kind says to a change of an object that waits, where others accept it: what serves stays queued.
fn differs(kind: JobKind, entry: Entry) -> Option<&'static str> {
    let leaves = entry == ("labels", "queue-name", None) && kind.integration().suspends_pods;
    leaves.then_some("queue-name]: Invalid value: \"\": field is immutable")
}

pub fn must_say(said: &str, wanted: &str, what: &str) {
    let right = if wanted.is_empty() { said.is_empty() } else { said.contains(wanted) };
    assert!(right, "{what}: {said:?} instead of {wanted:?}");
}

#[test]
fn a_new_object_of_any_kind_is_held_against_the_same_rules() {
    let world = World::default();
    for kind in JobKind::ALL {
        for ((map, key, value), wanted) in NEW {
            let object = with(waiting(kind), map, key, value);
            must_say(&says(&world, kind, &object, None), wanted, &format!("{kind:?} with {key} {value:?}"));
        }
        let elastic = with(waiting(kind), "annotations", "elastic-job", Some("true"));
        let wanted =
            format!("elastic-job]: Forbidden: workload slices are not supported for {}", kind.kind());
        let wanted = if supports_slices(kind) { "" } else { &wanted };
        let elastic = if supports_slices(kind) { gated(kind, elastic) } else { elastic };
        must_say(&says(&world, kind, &elastic, None), wanted, &format!("an elastic {kind:?}"));
    }
    let elastic: Vec<_> = JobKind::ALL.into_iter().filter(|kind| supports_slices(*kind)).collect();
    assert_eq!(elastic, [JobKind::JOB, JobKind::RAY_CLUSTER, JobKind::RAY_JOB, JobKind::RAY_SERVICE]);
}

/// An elastic object as the webhook leaves it: its pods have the gate that holds them back.
fn gated(kind: JobKind, mut object: Value) -> Value {
    suspend(kind, &mut object, false);
    World::default().written(kind, Operation::Create, &object)
}

#[test]
fn a_changed_object_of_any_kind_is_held_against_the_same_rules() {
    let world = World::default();
    for kind in JobKind::ALL {
        for (before, (map, key, value), wanted) in CHANGED {
            for (object, wanted) in [waiting(kind), running(kind)].into_iter().zip(wanted) {
                let waits = is_suspended(kind, &object);
                let old = with(object, before.0, before.1, before.2);
                let new = with(old.clone(), map, key, value);
                let wanted = differs(kind, (map, key, value)).filter(|_| waits).unwrap_or(wanted);
                let what = format!("{kind:?} that {}: {key} {value:?}", if waits { "waits" } else { "runs" });
                must_say(&says(&world, kind, &new, Some(&old)), wanted, &what);
            }
        }
        // With a default queue in the namespace it has a queue for good.
        let world = World { default_local_queue: true, ..World::default() };
        let (old, new) = (waiting(kind), with(waiting(kind), "labels", "queue-name", None));
        let wanted = "queue-name]: Forbidden: cannot be removed: the namespace has the LocalQueue";
        must_say(&says(&world, kind, &new, Some(&old)), wanted, &format!("{kind:?}"));
        // What was wrong before, or goes, is none of its writer's mistakes.
        let (mut old, mut new) = (waiting(kind), waiting(kind));
        for object in [&mut old, &mut new] {
            object["metadata"]["labels"][QUEUE] = json!("A b");
        }
        new["metadata"]["labels"]["x"] = json!("y");
        must_say(&says(&world, kind, &new, Some(&old)), "", &format!("{kind:?}, wrong before"));
        let mut leaves = with(running(kind), "labels", "queue-name", Some("A b"));
        leaves["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        must_say(&says(&world, kind, &leaves, Some(&running(kind))), "", &format!("{kind:?}, being deleted"));
    }
}

/// It was a part of a job that is gone, or is older than the queue.
#[test]
fn a_job_without_a_queue_is_not_resumed_where_there_is_a_default_queue() {
    let has_field = |kind: &JobKind| !(kind.integration().suspends_pods || kind.integration().of_pods);
    let with_queue = || World { default_local_queue: true, ..World::default() };
    for kind in JobKind::ALL.into_iter().filter(has_field) {
        let [waits, runs] =
            [waiting(kind), running(kind)].map(|object| with(object, "labels", "queue-name", None));
        let wanted = "queue-name]: Forbidden: name a queue before the job is resumed";
        must_say(&says(&with_queue(), kind, &runs, Some(&waits)), wanted, &format!("{kind:?}"));
        must_say(&says(&with_queue(), kind, &runs, Some(&runs)), "", &format!("{kind:?} that runs already"));
        for world in [
            World::default(),
            World { managed_owner: true, ..with_queue() },
            World { manage_all: true, ..with_queue() },
            World { system: true, ..with_queue() },
        ] {
            must_say(&says(&world, kind, &runs, Some(&waits)), "", &format!("{kind:?}, not concerned"));
        }
    }
}

#[test]
fn what_a_template_asks_of_the_topology_is_checked_in_every_kind_that_has_one() {
    let world = World::default();
    let mut without = Vec::new();
    for kind in JobKind::ALL {
        let object = waiting(kind);
        let pointer = pod_groups(kind, &object).first().map(|group| group.pointer.clone());
        let Some(pointer) = pointer.filter(|pointer| {
            object.pointer(pointer).is_some_and(|template| template["spec"]["containers"].is_array())
        }) else {
            without.push(kind);
            continue;
        };
        let refused = |entries: &[(&str, &str)]| {
            let mut object = object.clone();
            let template = object.pointer_mut(&pointer).unwrap();
            for (key, value) in entries {
                template["metadata"]["annotations"][format!("{PREFIX}podset-{key}")] = json!(value);
            }
            says(&world, kind, &object, None)
        };
        for (entries, wanted) in [
            (&[("required-topology", "cloud.com/block")][..], ""),
            (
                &[("required-topology", "a"), ("unconstrained-topology", "true")],
                "must not contain more than one topology annotation",
            ),
            (&[("preferred-topology", "a b")], "podset-preferred-topology]: Invalid value: \"a b\""),
            (
                &[("unconstrained-topology", "x")],
                "podset-unconstrained-topology]: Invalid value: \"x\": must be true or false",
            ),
            (&[("unconstrained-topology", "True")], ""),
            (&[("slice-required-topology", "r")], "a slice topology requires a slice size"),
            (&[("slice-size", "1")], "a slice size requires a slice topology"),
            (&[("slice-required-topology", "r"), ("slice-size", "0")], "must be greater than or equal to 1"),
            (
                &[("slice-required-topology-constraints", "{}")],
                "must be a JSON list of objects with topology and size",
            ),
        ] {
            must_say(&refused(entries), wanted, &format!("{kind:?} with {entries:?}"));
        }
    }
    // Pods of these are not written down as templates: their runtime or their operator makes them.
    assert_eq!(without, [JobKind::SPARK_APPLICATION, JobKind::TRAIN_JOB]);
}

/// What the webhook does with a new object.
pub fn written(world: &World, kind: JobKind, object: &Value) -> Patch {
    world.with(|context| {
        if kind.integration().of_pods {
            return mutate_plain_pod(object, context, &PodSelectors::default());
        }
        mutate(kind, Operation::Create, object, context)
    })
}

/// Whether its pods wait: it is suspended, or marks them.
fn is_held(kind: JobKind, object: &Value) -> bool {
    if !kind.integration().suspends_pods {
        return is_suspended(kind, object);
    }
    let groups = pod_groups(kind, object);
    let parent = |pointer: &str| {
        let template = object.pointer(pointer).unwrap();
        template["metadata"]["annotations"]["kueue.x-k8s.io/pod-suspending-parent"] == kind.framework()
    };
    !groups.is_empty() && groups.iter().all(|group| parent(&group.pointer))
}

#[test]
fn a_new_object_of_any_kind_is_held_if_it_is_managed() {
    for kind in JobKind::ALL {
        let mut queued = waiting(kind);
        suspend(kind, &mut queued, false);
        let plain = with(queued.clone(), "labels", "queue-name", None);
        let reported = |world: &World, object: &Value| {
            let made = apply(object, &written(world, kind, object)).unwrap();
            let metadata = &made["metadata"]["labels"];
            (is_held(kind, &made), metadata[QUEUE].clone(), metadata[CLASS].clone())
        };
        let (none, main) = (Value::Null, json!("main"));
        let world = World::default;
        assert_eq!(reported(&world(), &queued), (true, main.clone(), none.clone()), "{kind:?}");
        assert_eq!(reported(&world(), &plain), (false, none.clone(), none.clone()), "{kind:?}");
        let all = World { manage_all: true, ..world() };
        assert_eq!(reported(&all, &plain), (true, none.clone(), none.clone()), "{kind:?}");
        let defaults = World { default_local_queue: true, default_priority_class: true, ..world() };
        let (queue, class) = (json!("default"), json!("default"));
        // A pod gets no class: its group, or its object, has one.
        let class = if kind.integration().of_pods { none.clone() } else { class };
        assert_eq!(reported(&defaults, &plain), (true, queue, class.clone()), "{kind:?}");
        assert_eq!(reported(&defaults, &queued), (true, main.clone(), class), "{kind:?}");
        let owned = World { managed_owner: true, ..defaults };
        let unmade = |object: &Value| written(&owned, kind, object) == Patch::Json(Vec::new());
        assert!(unmade(&queued) && unmade(&plain), "{kind:?} of a managed owner");
        let system = World { system: true, default_local_queue: true, manage_all: true, ..world() };
        assert_eq!(reported(&system, &plain), (false, none.clone(), none.clone()), "{kind:?}");
        // Only pods are managed by their namespace, whatever queue they name.
        let pod = kind.integration().of_pods;
        assert_eq!(reported(&system, &queued), (!pod, main, none), "{kind:?}");
    }
}

#[test]
fn what_is_changed_is_not_stopped_by_the_webhook() {
    for kind in JobKind::ALL.into_iter().filter(|kind| !kind.integration().of_pods) {
        let object = running(kind);
        let patch = World::default()
            .with(|context| sluice_jobs::webhook::mutate(kind, Operation::Update, &object, context));
        let Patch::Json(operations) = patch else { panic!("{kind:?}") };
        // Marks of pods are kept in templates.
        assert_eq!(operations.is_empty(), !kind.integration().suspends_pods, "{kind:?}");
        assert!(!operations.iter().any(|operation| operation["path"] == "/spec/suspend"), "{kind:?}");
    }
}

/// Kinds of which only managed objects are held against rules when they change (gate `ValidateRayAndSparkJobUpdates`).
const RAY_AND_SPARK: [JobKind; 4] =
    [JobKind::RAY_CLUSTER, JobKind::RAY_JOB, JobKind::RAY_SERVICE, JobKind::SPARK_APPLICATION];

#[test]
fn a_job_of_ray_or_spark_does_not_leave_its_queue_while_it_runs_unless_a_gate_is_off() {
    let off = Gates::default().with(Gate::ValidateRayAndSparkJobUpdates, false);
    let reported = |gates: Gates, manage_all: bool, kind: JobKind, new: &Value, old: &Value| {
        let world = World { manage_all, default_local_queue: true, ..World::default() };
        world.with_gates(gates, |context| match validate(kind, new, Some(old), context) {
            Ok(()) => String::new(),
            Err(denied) => denied.to_string(),
        })
    };
    for kind in JobKind::ALL.into_iter().filter(|kind| !kind.integration().of_pods) {
        let old = running(kind);
        let bare = with(old.clone(), "labels", "queue-name", None);
        let refused = "queue-name]: Invalid value: \"\": field is immutable";
        must_say(&reported(Gates::default(), false, kind, &bare, &old), refused, &format!("{kind:?}"));
        let of_these = RAY_AND_SPARK.contains(&kind);
        let wanted = if of_these { "" } else { refused };
        must_say(&reported(off, false, kind, &bare, &old), wanted, &format!("{kind:?} without the gate"));
        must_say(&reported(off, true, kind, &bare, &old), refused, &format!("{kind:?}, all are managed"));
        // With a default queue in the namespace none leaves while it waits, either.
        let waits = waiting(kind);
        let free = with(waits.clone(), "labels", "queue-name", None);
        let kept = |said: &str| said.contains("cannot be removed: the namespace has the LocalQueue");
        assert!(kept(&reported(Gates::default(), false, kind, &free, &waits)), "{kind:?}");
        assert_eq!(kept(&reported(off, false, kind, &free, &waits)), !of_these, "{kind:?}");
        // One that never was managed is not looked at.
        let timed = with(bare.clone(), "labels", "max-exec-time-seconds", Some("9"));
        assert_eq!(reported(Gates::default(), false, kind, &timed, &bare).is_empty(), of_these, "{kind:?}");
        assert!(!reported(off, true, kind, &timed, &bare).is_empty(), "{kind:?}");
    }
}
