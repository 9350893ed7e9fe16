//! The shipped declarations over statuses as the controllers of their kinds write them: with a wrong `active`, quota that is in use would be given to
//! others, or be held by what has ended. And what a user lets a job run with.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};
use sluice_api::job::{JobFinished, JobKind, PodSetInfo};
use sluice_jobs::webhook::{Operation, suspend};
use sluice_jobs::{Step, observe, start, stop};

use crate::shipped::{declared, read, shipped, unknown};
use crate::testing::{World, apply};

const KEPT: &str = "/metadata/annotations/sluice.dev~1running-value";

/// A status, and what it means.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    what: String,
    status: Value,
    active: bool,
    #[serde(default)]
    ready: bool,
    finished: Option<Ended>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ended {
    success: bool,
    message: String,
}

#[test]
fn each_status_of_a_shipped_kind_means_what_its_controller_means() {
    for (name, folder, fields) in shipped() {
        let declaration = declared(&read(&folder.join("declaration.yaml")));
        let kind = JobKind::named(&declaration.framework()).unwrap();
        let file = format!("tests/declared/statuses/{name}.yaml");
        let cases = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file));
        let cases: Vec<Case> = serde_json::from_value(cases).unwrap();
        assert!(cases.len() > 5, "{name}");
        let mut object = read(&folder.join("object.yaml"));
        if kind.gathers_pods() {
            object["metadata"]["resourceVersion"] = json!("1");
            object = World::default().written(kind, Operation::Create, &object);
        }
        for case in cases {
            let what = format!("{name}: {}", case.what);
            let mut found = Vec::new();
            unknown(&fields["status"], &case.status, "status", &mut found);
            assert!(found.is_empty(), "{what}: {found:?}");
            object["status"] = case.status;
            let view = observe(kind, &object);
            assert_eq!((view.invalid, view.active), (None, case.active), "{what}");
            if declaration.ready.is_some() {
                assert_eq!(view.pods_ready, case.ready, "{what}");
            }
            let finished =
                case.finished.map(|end| JobFinished { success: end.success, message: end.message });
            assert_eq!(view.finished, finished, "{what}");
        }
    }
}

/// The shipped VirtualMachine as its user made it, and its kind.
fn machine(strategy: &str) -> (JobKind, Value) {
    let (_, folder, _) = shipped().into_iter().find(|(name, ..)| name == "virtualmachine").unwrap();
    let kind = JobKind::named(&declared(&read(&folder.join("declaration.yaml"))).framework()).unwrap();
    let mut object = read(&folder.join("object.yaml"));
    object["metadata"]["resourceVersion"] = json!("1");
    object["spec"]["runStrategy"] = json!(strategy);
    (kind, object)
}

fn strategy(object: &Value) -> &str {
    object["spec"]["runStrategy"].as_str().unwrap()
}

fn kept(object: &Value) -> Option<&str> {
    object.pointer(KEPT).and_then(Value::as_str)
}

fn started(kind: JobKind, object: &Value) -> Value {
    let view = observe(kind, object);
    let info = PodSetInfo { name: "main".to_owned(), count: 1, ..PodSetInfo::default() };
    apply(object, &start(&view, &[info]).unwrap()).unwrap()
}

fn after(object: &Value, steps: Vec<Step>) -> Value {
    steps.into_iter().fold(object.clone(), |object, step| apply(&object, &step.patch).unwrap())
}

#[test]
fn a_machine_starts_with_the_strategy_that_its_user_gave_it() {
    let world = World::default();
    for (own, runs) in
        [("Halted", "Always"), ("Always", "Always"), ("RerunOnFailure", "RerunOnFailure"), ("Once", "Once")]
    {
        let (kind, object) = machine(own);
        let waiting = world.written(kind, Operation::Create, &object);
        assert_eq!(strategy(&waiting), "Halted", "{own}");
        let text = (own == runs && own != "Always").then(|| format!("{own:?}"));
        assert_eq!(kept(&waiting), text.as_deref(), "{own}");
        // The same where another manager holds the objects that it makes.
        let held = apply(&object, &suspend(kind, &object)).unwrap();
        assert_eq!((strategy(&held), kept(&held)), ("Halted", text.as_deref()), "{own}");
        let mut now = waiting.clone();
        for _ in 0..2 {
            now = started(kind, &now);
            assert_eq!(strategy(&now), runs, "{own}");
            let view = observe(kind, &now);
            let suspended = after(&now, vec![sluice_jobs::suspend(&view)]);
            now = after(&now, stop(&view, &[]));
            assert_eq!(now, suspended, "{own}");
            assert_eq!((strategy(&now), kept(&now)), ("Halted", text.as_deref()), "{own}");
        }
    }
}

#[test]
fn a_strategy_that_its_user_changes_is_that_of_the_next_start() {
    let world = World::default();
    let (kind, object) = machine("RerunOnFailure");
    let running = started(kind, &world.written(kind, Operation::Create, &object));
    for (changed, next, text) in [("Once", "Once", Some("\"Once\"")), ("Always", "Always", None)] {
        let mut now = running.clone();
        now["spec"]["runStrategy"] = json!(changed);
        now = after(&now, stop(&observe(kind, &now), &[]));
        assert_eq!(kept(&now), text, "{changed}");
        assert_eq!(strategy(&started(kind, &now)), next, "{changed}");
    }
    // Anyone may write the annotation.
    for text in ["\"Halted\"", "Once", "{}", "null", "5", "true", ""] {
        let mut now = world.written(kind, Operation::Create, &machine("Halted").1);
        now["metadata"]["annotations"] = json!({"sluice.dev/running-value": text});
        assert_eq!(strategy(&started(kind, &now)), "Always", "{text}");
    }
}

#[test]
fn an_annotation_that_was_copied_with_a_machine_does_not_decide_how_the_copy_runs() {
    let (kind, mut copy) = machine("Always");
    copy["metadata"]["annotations"] = json!({"sluice.dev/running-value": "\"Manual\""});
    let waiting = World::default().written(kind, Operation::Create, &copy);
    assert_eq!((strategy(&waiting), kept(&waiting)), ("Halted", None));
    assert_eq!(strategy(&started(kind, &waiting)), "Always");
}
