use serde_json::{Value, json};
use sluice_api::config::{Configuration, DeclaredKind};
use sluice_api::job::{JobKind, JobView, PodScheduling, PodSetInfo};

use super::*;
use crate::adapter::Adapter;
use crate::patch::Patch;
use crate::registry;

fn kinds(yaml: &str) -> Vec<DeclaredKind> {
    let text = format!(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations:\n  declared:\n{yaml}"
    );
    Configuration::parse(&text).unwrap_or_else(|error| panic!("{error}")).0.integrations.declared
}

fn declared(yaml: &str) -> &'static Declared {
    let kinds = kinds(yaml);
    declare_kinds(&kinds).unwrap_or_else(|error| panic!("{error}"));
    let kind = JobKind::named(&kinds[0].framework()).unwrap();
    of(kind).unwrap()
}

/// PyTorchJob as a declaration, in another group.
const PYTORCH: &str = include_str!("../../tests/declared/pytorchjob.yaml");

fn template() -> Value {
    json!({
        "metadata": {"labels": {"app": "x"}},
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
            "tolerations": [{"key": "own", "operator": "Exists"}],
            "nodeSelector": {"zone": "a"},
        },
    })
}

fn pytorch(status: &Value) -> Value {
    json!({
        "metadata": {
            "name": "x", "namespace": "ns", "uid": "u", "resourceVersion": "7", "generation": 1,
            "creationTimestamp": "2026-01-05T00:00:00Z", "labels": {"kueue.x-k8s.io/queue-name": "q"},
        },
        "spec": {
            "runPolicy": {"suspend": true},
            "pytorchReplicaSpecs": {
                "Worker": {"replicas": 3, "template": template()},
                "Master": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
            },
        },
        "status": status,
    })
}

fn info(name: &str, count: i32) -> PodSetInfo {
    let scheduling = PodScheduling {
        node_selector: [("flavor".to_owned(), "spot".to_owned())].into(),
        labels: [("kueue.x-k8s.io/podset".to_owned(), name.to_owned())].into(),
        annotations: [("kueue.x-k8s.io/workload".to_owned(), "w".to_owned())].into(),
        tolerations: vec![serde_json::from_value(json!({"key": "spot", "operator": "Exists"})).unwrap()],
        ..PodScheduling::default()
    };
    PodSetInfo { name: name.to_owned(), count, scheduling }
}

#[test]
fn a_built_in_kind_that_is_declared_makes_the_same_workload_and_patches() {
    let declared: &dyn Adapter = declared(PYTORCH);
    let built_in = registry::of(JobKind::PYTORCH_JOB);
    let condition = |type_: &str| json!([{"type": type_, "status": "True", "message": "why", "lastTransitionTime": "2026-01-05T00:00:00Z"}]);
    for status in [
        Value::Null,
        json!({}),
        json!({"replicaStatuses": {"Master": {}, "Worker": {"active": 2}}}),
        json!({"replicaStatuses": {"Worker": {"active": 3}}, "conditions": condition("Running")}),
        json!({"conditions": condition("Succeeded"), "replicaStatuses": {"Worker": {"succeeded": 3}}}),
        json!({"conditions": condition("Failed")}),
    ] {
        let object = pytorch(&status);
        let ours = declared.observe(&object);
        let theirs = built_in.observe(&object);
        assert_eq!(ours.pod_sets, theirs.pod_sets);
        let mut same = JobView { job: theirs.job.clone(), ..ours.clone() };
        // What the condition Suspended says is not declared.
        same.suspended_condition = theirs.suspended_condition;
        // Nor which pods continue after the end.
        same.leaves_pods = theirs.leaves_pods;
        assert_eq!(same, theirs, "{status}");
        let infos = [info("master", 1), info("worker", 3)];
        let (started, expected) = (declared.start(&ours, &infos), built_in.start(&theirs, &infos));
        assert_eq!(started, expected);
        let running = apply(&object, &started.unwrap());
        assert!(!declared.is_suspended(&running));
        let (ours, theirs) = (declared.observe(&running), built_in.observe(&running));
        let original = [original(&object, "master"), original(&object, "worker")];
        let (stopped, expected) = (declared.stop(&ours, &original), built_in.stop(&theirs, &original));
        assert_eq!(stopped, expected);
        let restored = apply(&running, &stopped[0].patch);
        assert_eq!(declared.observe(&restored).pod_sets[1], declared.observe(&object).pod_sets[1]);
        assert_eq!(restored["spec"]["runPolicy"], object["spec"]["runPolicy"]);
        assert_eq!(
            restored["spec"]["pytorchReplicaSpecs"]["Worker"],
            object["spec"]["pytorchReplicaSpecs"]["Worker"]
        );
        assert_eq!(declared.stop(&ours, &[]), built_in.stop(&theirs, &[]));
    }
}

fn original(object: &Value, name: &str) -> PodSetInfo {
    let view = registry::of(JobKind::PYTORCH_JOB).observe(object);
    let pod_set = view.pod_sets.iter().find(|pod_set| pod_set.name == name).unwrap();
    PodSetInfo { name: name.to_owned(), count: pod_set.count, scheduling: pod_set.scheduling.clone() }
}

fn apply(object: &Value, patch: &Patch) -> Value {
    let mut object = object.clone();
    match patch {
        Patch::Merge(body) => json_patch::merge(&mut object, body),
        Patch::Json(operations) => {
            let operations: json_patch::Patch = serde_json::from_value(json!(operations)).unwrap();
            json_patch::patch(&mut object, &operations).unwrap();
        }
        Patch::Strategic(_) | Patch::Apply(..) => panic!("of no declared kind is known how its lists merge"),
    }
    object
}

/// No pod template, no boolean: what is injected goes to fields of their own.
const WITHOUT_TEMPLATE: &str = r#"
  - group: without.example.com
    version: v1
    kind: Flow
    suspend: {path: spec.state, suspended: Paused, running: null}
    podSets:
    - name: main
      templateExpression: "{'spec': {'containers': self.spec.steps.map(s, s.container), 'nodeSelector': {'ignored': 'x'}}}"
      count: "self.spec.?parallel.orValue(2)"
      reclaimable: "self.status.over"
      inject: {nodeSelector: spec.place.nodes, tolerations: spec.place.tolerations}
    active: "self.status.running > 0"
    finished: "self.status.phase in ['Done', 'Broken']"
    success: "self.status.phase == 'Done'"
    message: "'it is ' + self.status.phase"
"#;

fn flow(spec: &Value, status: &Value) -> Value {
    json!({"metadata": {"name": "x", "namespace": "ns", "resourceVersion": "1"}, "spec": spec, "status": status})
}

#[test]
fn what_has_no_template_gets_what_is_added_where_the_declaration_says() {
    let kind: &dyn Adapter = declared(WITHOUT_TEMPLATE);
    let steps =
        json!([{"container": {"name": "a", "image": "i"}}, {"container": {"name": "b", "image": "i"}}]);
    let object =
        flow(&json!({"state": "Paused", "steps": steps, "place": {"nodes": {"own": "1"}}}), &json!({}));
    let view = kind.observe(&object);
    assert_eq!(view.invalid, None);
    assert!(view.suspended && !view.active && view.finished.is_none());
    let pod_set = &view.pod_sets[0];
    assert_eq!((pod_set.count, pod_set.scheduling.node_selector.len()), (2, 1));
    let started = apply(&object, &kind.start(&view, &[info("main", 2)]).unwrap());
    assert_eq!(started["spec"].get("state"), None);
    assert_eq!(started["spec"]["place"]["nodes"], json!({"own": "1", "flavor": "spot"}));
    assert_eq!(started["spec"]["place"]["tolerations"][0]["key"], "spot");
    let running = kind.observe(&started);
    assert!(!running.suspended);
    let back = PodSetInfo { name: "main".to_owned(), count: 2, scheduling: pod_set.scheduling.clone() };
    assert_eq!(apply(&started, &kind.stop(&running, &[back])[0].patch), object);
    // A gate has no place, so that the job gets no flavor that needs one.
    assert_eq!(kind.kind().integration().ungated, ["main"]);
    let mut gated = info("main", 2);
    gated.scheduling.scheduling_gates = vec![serde_json::from_value(json!({"name": "g"})).unwrap()];
    let why = kind.start(&view, &[gated]).unwrap_err().to_string();
    assert_eq!(why, "pod set \"main\": the declaration of the kind has no place for schedulingGates");
    let done = kind.observe(&flow(&object["spec"], &json!({"phase": "Broken"}))).finished.unwrap();
    assert_eq!((done.success, done.message.as_str()), (false, "it is Broken"));
    let few = kind.start(&view, &[info("main", 1)]).unwrap_err().to_string();
    assert_eq!(few, "pod set \"main\": 1 pods are admitted, but the job needs 2");
    let partly = kind.observe(&flow(&object["spec"], &json!({"over": 1})));
    assert_eq!(partly.reclaimable, [("main".to_owned(), 1)]);
    assert!(kind.start(&partly, &[info("main", 1)]).is_ok());
    assert_eq!(
        kind.observe(&flow(&object["spec"], &json!({"over": 9}))).reclaimable,
        [("main".to_owned(), 2)]
    );
    assert!(kind.observe(&flow(&object["spec"], &json!({"over": -9}))).reclaimable.is_empty());
}

#[test]
fn a_template_in_a_list_is_changed_by_operations_and_restored() {
    let kind: &dyn Adapter = declared(
        r#"
  - group: list.example.com
    version: v1
    kind: Tasks
    suspend: {path: spec.state, suspended: Paused, running: null}
    podSets: [{name: first, template: "spec.tasks[0].template", countPath: "spec.tasks[0].replicas"}]
    active: "self.status.active"
"#,
    );
    let spec = json!({"state": "Paused", "tasks": [{"replicas": 4, "template": {"spec": {"containers": [{"name": "c"}]}}}]});
    let object = flow(&spec, &json!({"active": false}));
    let view = kind.observe(&object);
    assert_eq!((view.invalid.as_deref(), view.pod_sets[0].count), (None, 4));
    assert!(kind.kind().integration().ungated.is_empty());
    let started = apply(&object, &kind.start(&view, &[info("first", 4)]).unwrap());
    assert_eq!(started["spec"].get("state"), None);
    let at = &started["spec"]["tasks"][0]["template"];
    assert_eq!(at["spec"]["nodeSelector"], json!({"flavor": "spot"}));
    let running = kind.observe(&started);
    let back = PodSetInfo { name: "first".to_owned(), count: 4, scheduling: PodScheduling::default() };
    let stopped = apply(&started, &kind.stop(&running, std::slice::from_ref(&back))[0].patch);
    assert_eq!(stopped["spec"]["state"], "Paused");
    assert_eq!(stopped["spec"]["tasks"][0]["template"]["spec"], spec["tasks"][0]["template"]["spec"]);
    // What its user lets it run with comes back with the next start.
    let mut other = started.clone();
    other["spec"]["state"] = json!("Fast");
    let steps = kind.stop(&kind.observe(&other), &[back]);
    let stopped = steps.iter().fold(other, |object, step| apply(&object, &step.patch));
    assert_eq!(stopped["spec"]["state"], "Paused");
    let again = apply(&stopped, &kind.start(&kind.observe(&stopped), &[info("first", 4)]).unwrap());
    assert_eq!(again["spec"]["state"], "Fast");
}

#[test]
fn what_cannot_be_read_is_said_and_the_job_has_no_pods_of_which_nothing_is_known() {
    let kind: &dyn Adapter = declared(WITHOUT_TEMPLATE);
    let steps = json!([{"container": {"name": "a", "image": "i"}}]);
    let many: Vec<_> = (0..100_000).map(|n| json!({"container": {"name": format!("c{n}")}})).collect();
    for (object, why) in [
        (
            flow(&json!({"state": "Paused"}), &json!({})),
            "podSets[0].templateExpression: no such key: self.spec.steps",
        ),
        (flow(&json!({"steps": "x"}), &json!({})), "podSets[0].templateExpression: "),
        (
            flow(&json!({"steps": many}), &json!({})),
            "podSets[0].templateExpression: evaluation exceeds the limit of",
        ),
        (
            flow(&json!({"steps": steps, "parallel": "x"}), &json!({})),
            "podSets[0].count: must be an integer, but is \"x\"",
        ),
        (flow(&json!({"steps": steps}), &json!({"running": "x"})), "declared active: "),
        (flow(&json!({"steps": steps}), &json!({"phase": {}})), ""),
        (flow(&json!({"steps": [{"container": 5}]}), &json!({})), "podSets[0].templateExpression: "),
        (flow(&json!(5), &json!(7)), "no such key"),
        (json!(null), "no such key"),
        (json!([1]), "no such key"),
    ] {
        let view = kind.observe(&object);
        let said = view.invalid.clone().unwrap_or_default();
        assert!(said.contains(why) && said.is_empty() == why.is_empty(), "{why:?}: {said:?}");
        assert!(said.len() < 400);
        // Nothing panics over it.
        kind.pod_groups(&object);
        kind.schemas(&object);
        kind.stop(&view, &[info("main", 2)]);
        let _ = kind.start(&view, &[info("main", 2)]);
        crate::suspend(&view);
    }
    // Quota of pods that may run is not given to others.
    let activity = |status: Value| {
        let view = kind.observe(&flow(&json!({"steps": steps}), &status));
        (view.active, view.activity_unknown)
    };
    assert_eq!(activity(json!({"running": "x"})), (true, true));
    assert_eq!(activity(json!({"running": 1})), (true, false));
    assert_eq!(activity(json!({})), (false, false));
    // What pods it has is known whatever its status says.
    let known = |spec: Value, status: Value| {
        let view = kind.observe(&flow(&spec, &status));
        (view.status_unread, view.pod_sets.len())
    };
    assert_eq!(known(json!({"steps": steps}), json!({"running": vec![1; 300_000]})), (true, 1));
    assert_eq!(known(json!({"steps": "x"}), json!({"running": "x"})), (false, 0));
    assert_eq!(known(json!({"steps": steps}), json!({"running": 1})), (false, 1));
}

#[test]
fn a_mistake_is_refused_with_its_place() {
    let yaml = r#"
  - group: mistakes.example.com
    version: v1
    kind: Wrong
    podSets:
    - {name: a, template: spec.a}
    - {name: b, template: spec.b, count: "self.spec.b +", reclaimable: "nothing"}
    active: "self.status.lower()"
    ready: "("
    states: {running: {}}
"#;
    let errors = declare_kinds(&kinds(yaml)).unwrap_err().to_string();
    for place in [
        "podSets[1].count: column",
        "podSets[1].reclaimable: there is no variable",
        "active: there is no function",
        "ready: column",
    ] {
        assert!(errors.contains(&format!("integrations.declared[0].{place}")), "{place}: {errors}");
    }
    assert_eq!(JobKind::named("mistakes.example.com/wrong"), None);
    let twice = r#"
  - {group: twice.example.com, version: v1, kind: One, podSets: [{name: a, template: spec.a}], active: "true", finished: "self.status.x == 1", states: {running: {x: 2}, succeeded: {x: 2}, failed: {x: 1}}}
"#;
    let errors = declare_kinds(&kinds(twice)).unwrap_err().to_string();
    assert_eq!(errors, "integrations.declared[0].states.succeeded: finished is not true in this state");
    let right = twice.replace("succeeded: {x: 2}", "succeeded: {x: 1}");
    declare_kinds(&kinds(&right)).unwrap();
    declare_kinds(&kinds(&right)).unwrap();
    let errors =
        declare_kinds(&kinds(&right.replace("\"true\"", "\"false || true\""))).unwrap_err().to_string();
    assert!(errors.contains("was declared before, with other contents"), "{errors}");
}

#[test]
fn what_is_declared_is_a_kind_like_all_others() {
    let kind = declared(WITHOUT_TEMPLATE).of;
    assert!(JobKind::all().is_sorted() && JobKind::all().contains(&kind) && !JobKind::ALL.contains(&kind));
    assert_eq!(JobKind::from_owner("without.example.com/v7", "Flow"), Some(kind));
    assert_eq!(crate::suspend(&crate::observe(kind, &json!({}))).patch.body()["spec"]["state"], "Paused");
}

/// A declaration in which one line is replaced by another.
fn refused(line: &str, by: &str) -> String {
    let right = r#"
  - group: form.example.com
    version: v1
    kind: Form
    plural: forms
    suspend: {path: spec.suspend}
    podSets:
    - name: main
      template: spec.template
    - name: other
      template: spec.other
    active: "true"
"#;
    assert!(right.contains(line) && kinds(right).len() == 1);
    let text = format!(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations:\n  declared:\n{}",
        right.replacen(line, by, 1)
    );
    Configuration::parse(&text).map(drop).unwrap_err().to_string()
}

#[test]
fn the_form_of_a_declaration_is_checked_when_it_is_read() {
    for (line, by, why) in [
        (
            "group: form.example.com",
            "group: batch",
            "group: invalid value \"batch\": must be the group of a custom resource",
        ),
        ("group: form.example.com", "group: kueue.x-k8s.io", "group: invalid value"),
        ("group: form.example.com", "group: Form_", "group: invalid value"),
        (
            "group: form.example.com\n    version: v1\n    kind: Form",
            "group: kubeflow.org\n    version: v9\n    kind: TFJob",
            "kind: \"TFJob\" of \"kubeflow.org\" is built in",
        ),
        ("version: v1", "version: ''", "version: invalid value"),
        ("kind: Form", "kind: form", "kind: invalid value \"form\""),
        ("plural: forms", "plural: a/b", "plural: invalid value"),
        ("plural: forms", "unknown: 1", "unknown: unknown field"),
        ("path: spec.suspend", "path: status.suspend", "suspend.path: must be a field of the spec"),
        ("path: spec.suspend", "path: 'spec.list[0]'", "suspend.path: must not lead through a list"),
        ("path: spec.suspend", "path: 'spec..x'", "suspend.path: invalid value"),
        ("path: spec.suspend", "path: 'spec.a[x]'", "\"x\" is not an index"),
        ("template: spec.other", "template: 'spec.a[01]'", "\"01\" is not an index"),
        ("template: spec.other", "template: 'spec.a[+1]'", "\"+1\" is not an index"),
        ("template: spec.other", "template: 'spec.a[65536]'", "\"65536\" is not an index"),
        ("{path: spec.suspend}", "{suspended: 5}", "suspend.suspended: must be a boolean or a string"),
        ("{path: spec.suspend}", "{running: true}", "suspend.running: must not be the value that suspends"),
        ("name: other", "name: main", "podSets[1].name: duplicate value \"main\""),
        ("name: other", "name: A", "podSets[1].name: invalid value"),
        (
            "template: spec.other",
            "template: spec.template.inner",
            "podSets[1].template: writes where podSets[0].template does",
        ),
        ("template: spec.other", "template: spec", "podSets[1].template: "),
        (
            "template: spec.other",
            "template: spec.suspend",
            "podSets[1].template: writes where suspend.path does",
        ),
        (
            "template: spec.other",
            "template: metadata.labels",
            "podSets[1].template: must be a field of the spec",
        ),
        (
            "template: spec.other",
            "templateExpression: '{}'",
            "podSets[1].inject.nodeSelector: required where no path leads to a template",
        ),
        (
            "template: spec.other",
            "optional: true",
            "podSets[1].template: give either template or templateExpression",
        ),
        ("active: \"true\"", "ready: \"true\"", "active: required"),
        (
            "active: \"true\"",
            "active: \"true\"\n    success: \"true\"",
            "success: has no effect without finished",
        ),
        (
            "active: \"true\"",
            "active: \"true\"\n    states: {running: 5}",
            "states.running: must be an object",
        ),
    ] {
        let found = refused(line, by);
        assert!(found.contains(why), "{by}: {found}");
    }
}

#[test]
fn what_is_in_force_reads_as_the_same_declaration() {
    for yaml in [PYTORCH, WITHOUT_TEMPLATE] {
        let declared = kinds(yaml);
        let configuration = Configuration {
            integrations: sluice_api::config::Integrations {
                declared: declared.clone(),
                ..Configuration::default().integrations
            },
            ..Configuration::default()
        };
        let (again, _) = Configuration::parse(&configuration.effective_yaml()).unwrap();
        assert_eq!(again.integrations.declared, declared);
    }
}

#[test]
fn a_declaration_with_paths_says_where_pods_are_as_descriptors_do() {
    let built_in = JobKind::PYTORCH_JOB.integration();
    let facts = declared(PYTORCH).of.integration();
    let object = pytorch(&json!({}));
    let places = |kind: JobKind| -> Vec<_> {
        let groups = crate::described::groups(kind, &object).into_iter();
        groups
            .map(|(group, pods)| {
                (group.name.to_lowercase(), group.pointer.clone(), group.count(), pods.index)
            })
            .collect()
    };
    assert_eq!(places(declared(PYTORCH).of), places(JobKind::PYTORCH_JOB));
    assert!(facts.pods_by_adapter.is_some(), "its pod sets may be missing");
    assert_eq!(built_in.pods_by_adapter, None);
}
