//! The webhook's answers and changes for jobs of any kind, in the order of docs/reference/07-integrations.md 7.1, and its rules for each pod
//! template.

use serde_json::{Value, json};
use sluice_api::gates::{Gate, Gates};
use sluice_api::job::JobKind;
use sluice_jobs::webhook::validate;
use sluice_jobs::{Patch, pod_groups, supports_slices, suspend_path};

use crate::rules_of_all::{PREFIX, must_say, running, says, waiting, with, written};
use crate::testing::World;

/// The texts follow one another in what was said.
fn in_order(said: &str, texts: &[String], what: &str) {
    let mut rest = said;
    for text in texts {
        let found = rest.split_once(text.as_str());
        assert!(found.is_some(), "{what}: not {text:?} in its place of {said:?}");
        rest = found.map_or("", |(_, after)| after);
    }
}

/// The templates of an object that are written down as such, with how many pods each has.
fn templates(kind: JobKind, object: &Value) -> Vec<(String, i64)> {
    let groups = pod_groups(kind, object).into_iter();
    let written = groups.filter(|group| {
        object.pointer(&group.pointer).is_some_and(|template| template["spec"]["containers"].is_array())
    });
    written.map(|group| (group.pointer.clone(), i64::from(group.count()))).collect()
}

/// Puts annotations into a template.
fn annotate(object: &mut Value, pointer: &str, entries: &[(&str, &str)]) {
    let template = object.pointer_mut(pointer).unwrap();
    for (key, value) in entries {
        template["metadata"]["annotations"][format!("{PREFIX}podset-{key}")] = json!(value);
    }
}

#[test]
fn all_that_is_wrong_with_a_new_object_is_said_in_the_order_of_the_contract() {
    for kind in JobKind::ALL {
        let mut object = waiting(kind);
        for (map, key, value) in [
            ("annotations", "admission-gated-by", "gate"),
            ("annotations", "elastic-job", "true"),
            ("labels", "max-exec-time-seconds", "-1"),
            ("labels", "prebuilt-workload-name", "_"),
            ("labels", "queue-name", "Q"),
        ] {
            object = with(object, map, key, Some(value));
        }
        let mut wanted = vec![
            "metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: \"Q\": a lowercase RFC 1123 subdomain".to_owned(),
            "metadata.labels[kueue.x-k8s.io/prebuilt-workload-name]: Invalid value: \"_\": a lowercase RFC 1123 subdomain".to_owned(),
            "metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]: Invalid value: \"-1\": should be greater than 0".to_owned(),
        ];
        if !supports_slices(kind) {
            wanted.push(format!(
                "metadata.annotations[kueue.x-k8s.io/elastic-job]: Forbidden: workload slices are not supported for {}",
                kind.kind()
            ));
        }
        wanted.push(
            "metadata.annotations[kueue.x-k8s.io/admission-gated-by]: Invalid value: \"gate\": must be a domain-prefixed path"
                .to_owned(),
        );
        if let Some((pointer, _)) = templates(kind, &object).first() {
            annotate(&mut object, pointer, &[("unconstrained-topology", "x")]);
            wanted.push(
                "[kueue.x-k8s.io/podset-unconstrained-topology]: Invalid value: \"x\": must be true or false"
                    .to_owned(),
            );
        }
        in_order(&says(&World::default(), kind, &object, None), &wanted, &format!("{kind:?}"));
    }
}

#[test]
fn all_that_may_not_change_while_an_object_runs_is_said_in_the_order_of_the_contract() {
    for kind in JobKind::ALL {
        let old = running(kind);
        let mut new = old.clone();
        for (map, key, value) in [
            ("annotations", "admission-gated-by", "x.y/a"),
            ("annotations", "elastic-job", "no"),
            ("labels", "priority-class", "high"),
            ("labels", "max-exec-time-seconds", "9"),
            ("labels", "prebuilt-workload-name", "w"),
            ("labels", "queue-name", "other"),
        ] {
            new = with(new, map, key, Some(value));
        }
        let wanted = [
            "labels[kueue.x-k8s.io/queue-name]: Invalid value: \"other\": field is immutable",
            "labels[kueue.x-k8s.io/prebuilt-workload-name]: Invalid value: \"w\": field is immutable",
            "labels[kueue.x-k8s.io/max-exec-time-seconds]: Invalid value: \"9\": field is immutable",
            "labels[kueue.x-k8s.io/priority-class]: Forbidden: workload priority class cannot be added to a running job",
            "annotations[kueue.x-k8s.io/elastic-job]: Invalid value: \"no\": field is immutable",
            "annotations[kueue.x-k8s.io/admission-gated-by]: Forbidden: admission gate \"x.y/a\" cannot be added after creation",
        ];
        let wanted = wanted.map(|text| format!("metadata.{text}"));
        in_order(&says(&World::default(), kind, &new, Some(&old)), &wanted, &format!("{kind:?}"));
    }
}

/// Its queue, its class, and then that it is suspended: by the field of its kind, or by the marks of its pods.
#[test]
fn what_is_filled_in_is_written_in_the_order_of_the_contract() {
    let world = World { default_local_queue: true, default_priority_class: true, ..World::default() };
    for kind in JobKind::ALL {
        let mut object = with(running(kind), "labels", "queue-name", None);
        // The marks are those of a new object.
        object.as_object_mut().unwrap().remove("status");
        let Patch::Json(operations) = written(&world, kind, &object) else { panic!("{kind:?}") };
        let paths: Vec<_> = operations.iter().map(|operation| operation["path"].as_str().unwrap()).collect();
        let of = |end: &str| paths.iter().position(|path| path.ends_with(end));
        let queue = of("/kueue.x-k8s.io~1queue-name").unwrap_or_else(|| panic!("{kind:?}: {paths:?}"));
        let class = of("/kueue.x-k8s.io~1priority-class");
        let held = if kind.integration().suspends_pods {
            pod_groups(kind, &object).first().map(|group| group.pointer.clone()).unwrap()
        } else {
            format!("/{}", suspend_path(kind).join("/"))
        };
        let held = paths.iter().position(|path| path.starts_with(&held));
        let held = held.unwrap_or_else(|| panic!("{kind:?}: {paths:?}"));
        assert!(queue < held, "{kind:?}: {paths:?}");
        // A pod gets no class: its group, or its object, has one.
        assert_eq!(class.is_some(), !kind.integration().of_pods, "{kind:?}: {paths:?}");
        assert!(class.is_none_or(|class| queue < class && class < held), "{kind:?}: {paths:?}");
    }
}

/// Annotations of a template, and what is said of them; `N` is one more than the pods that it has.
type Topology = (&'static [(&'static str, &'static str)], &'static str);

const TOPOLOGIES: [Topology; 11] = [
    (
        &[("required-topology", "a"), ("preferred-topology", "b")],
        "annotations: Invalid value: \"kueue.x-k8s.io/podset-required-topology, kueue.x-k8s.io/podset-preferred-topology\": must not contain more than one topology annotation",
    ),
    (&[("required-topology", "a b")], "[kueue.x-k8s.io/podset-required-topology]: Invalid value: \"a b\""),
    (
        &[("slice-required-topology", "r"), ("slice-size", "N")],
        "[kueue.x-k8s.io/podset-slice-size]: Invalid value: \"N\": must not be greater than pod set count",
    ),
    (
        &[("slice-required-topology", "r"), ("slice-size", "x")],
        "[kueue.x-k8s.io/podset-slice-size]: Invalid value: \"x\": must be an integer",
    ),
    (&[("slice-required-topology-constraints", "[]")], "must have 1 to 3 layers"),
    (
        &[(
            "slice-required-topology-constraints",
            r#"[{"topology":"a","size":4},{"topology":"b","size":4},{"topology":"c","size":2},{"topology":"d","size":1}]"#,
        )],
        "must have 1 to 3 layers",
    ),
    (
        &[(
            "slice-required-topology-constraints",
            r#"[{"topology":"a","size":4},{"topology":"a","size":2}]"#,
        )],
        "Invalid value: \"a\": must not be in more than one layer",
    ),
    (
        &[(
            "slice-required-topology-constraints",
            r#"[{"topology":"a","size":4},{"topology":"b","size":3}]"#,
        )],
        "Invalid value: \"3\": must divide the size of the layer before, 4",
    ),
    (
        &[("slice-required-topology-constraints", r#"[{"topology":"a","size":0}]"#)],
        "Invalid value: \"0\": must be greater than or equal to 1",
    ),
    (
        &[(
            "slice-required-topology-constraints",
            r#"[{"topology":"a","size":N},{"topology":"b","size":1}]"#,
        )],
        "[kueue.x-k8s.io/podset-slice-required-topology-constraints]: Invalid value: \"N\": must not be greater than pod set count",
    ),
    (
        &[
            ("slice-required-topology", "r"),
            ("slice-size", "1"),
            ("slice-required-topology-constraints", r#"[{"topology":"a","size":1}]"#),
        ],
        "Forbidden: may not be set when kueue.x-k8s.io/podset-slice-size is specified",
    ),
];

#[test]
fn each_template_of_any_kind_is_held_against_the_rules_of_topologies() {
    let world = World::default();
    for kind in JobKind::ALL {
        let mut object = waiting(kind);
        if kind.integration().of_pods {
            // A pod of its own, and not one of a job.
            object = with(object, "labels", "managed", Some("true"));
        }
        for (pointer, count) in templates(kind, &object) {
            // A violation names the template that it is in.
            let path = pointer.replace('/', ".");
            let path = path.trim_start_matches('.');
            let more = (count + 1).to_string();
            for (entries, wanted) in TOPOLOGIES {
                let entries: Vec<_> =
                    entries.iter().map(|(key, value)| (*key, value.replace('N', &more))).collect();
                let entries: Vec<_> = entries.iter().map(|(key, value)| (*key, value.as_str())).collect();
                let mut object = object.clone();
                annotate(&mut object, &pointer, &entries);
                let said = says(&world, kind, &object, None);
                let what = format!("{kind:?} with {entries:?} at {pointer}");
                must_say(&said, &wanted.replace("\"N\"", &format!("\"{more}\"")), &what);
                let digits = |text: &str| text.replace(['[', ']', '.'], "");
                assert!(digits(&said).contains(&digits(path)), "{what}: {said}");
                // What was so before is not held against another change.
                let changed = with(object.clone(), "labels", "x", Some("y"));
                must_say(&says(&world, kind, &changed, Some(&object)), "", &format!("{what}, as before"));
            }
        }
    }
}

/// A Job of a JobSet has one of its pod sets, or a replica of it: groups and slices are of the pods of all of them.
#[test]
fn a_part_of_a_job_has_some_of_the_pods_that_its_template_is_for() {
    let layers = r#"[{"topology":"block","size":1000},{"topology":"rack","size":10}]"#;
    let (group, level) = (("group-name", "g"), ("required-topology", "block"));
    for entries in [
        &[group, level, ("slice-required-topology", "rack"), ("slice-size", "1000")][..],
        &[group, level, ("slice-required-topology-constraints", layers)],
    ] {
        let mut part = waiting(JobKind::JOB);
        annotate(&mut part, "/spec/template", entries);
        let of_a_job = World { managed_owner: true, ..World::default() };
        must_say(&says(&of_a_job, JobKind::JOB, &part, None), "", &format!("{entries:?}"));
        let alone = says(&World::default(), JobKind::JOB, &part, None);
        part["metadata"]["ownerReferences"] = json!([{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
            "name": "o", "uid": "u2", "controller": true}]);
        let not_queued = says(&World::default(), JobKind::JOB, &part, None);
        must_say(&not_queued, "", &format!("{entries:?} of a job that is not queued"));
        for wanted in
            ["must not be greater than pod set count", "can only define groups of exactly 2 pod sets"]
        {
            must_say(&alone, wanted, &format!("{entries:?}"));
        }
    }
}

#[test]
fn layers_of_slices_are_refused_without_their_gate_except_to_the_parts_of_older_jobs() {
    let gates = Gates::default().with(Gate::TASMultiLayerTopology, false);
    let mut object = waiting(JobKind::JOB);
    let layers = r#"[{"topology":"rack","size":1}]"#;
    annotate(&mut object, "/spec/template", &[("slice-required-topology-constraints", layers)]);
    let wanted = "constraints]: Forbidden: the feature gate TASMultiLayerTopology must be enabled to use this annotation";
    for (managed_owner, wanted) in [(false, wanted), (true, "")] {
        let world = World { managed_owner, ..World::default() };
        let answer = world.with_gates(gates, |context| validate(JobKind::JOB, &object, None, context));
        let said = answer.err().map(|denied| denied.to_string()).unwrap_or_default();
        must_say(&said, wanted, &format!("a managed owner: {managed_owner}"));
    }
    let changed = with(object.clone(), "labels", "x", Some("y"));
    let answer = World::default()
        .with_gates(gates, |context| validate(JobKind::JOB, &changed, Some(&object), context));
    assert_eq!(answer, Ok(()), "as before");
}

#[test]
fn pod_sets_of_any_kind_are_grouped_by_twos() {
    let world = World::default();
    let mut grouped = Vec::new();
    for kind in JobKind::ALL {
        let object = waiting(kind);
        let all = templates(kind, &object);
        let [(first, _), (second, _), rest @ ..] = &all[..] else { continue };
        grouped.push(kind);
        let refused = |entries: &[(&str, &str, &str)]| {
            let mut object = object.clone();
            for (pointer, name, level) in entries {
                let mut annotations = vec![("group-name", *name)];
                annotations
                    .extend(Some(("required-topology", *level)).filter(|(_, level)| !level.is_empty()));
                annotate(&mut object, pointer, &annotations);
            }
            says(&world, kind, &object, None)
        };
        let two = |names: [&str; 2], levels: [&str; 2]| {
            refused(&[(first, names[0], levels[0]), (second, names[1], levels[1])])
        };
        let what = |case: &str| format!("{kind:?}: {case}");
        must_say(&two(["g", "g"], ["r", "r"]), "", &what("a leader and its worker"));
        must_say(
            &two(["g", "h"], ["r", "r"]),
            "Invalid value: \"g\": can only define groups of exactly 2 pod sets, got: 1",
            &what("two groups of one"),
        );
        must_say(
            &two(["g", "g"], ["r", "s"]),
            "Invalid value: \"g\": pod sets of a group must have the same topology request",
            &what("two requests"),
        );
        must_say(
            &two(["7", "7"], ["r", "r"]),
            "Invalid value: \"7\": must not be a number",
            &what("a number"),
        );
        must_say(
            &two(["g", "g"], ["", ""]),
            "Forbidden: requires podset-required-topology or podset-preferred-topology",
            &what("no request"),
        );
        if let [(third, _), ..] = rest {
            let three = refused(&[(first, "g", "r"), (second, "g", "r"), (third, "g", "r")]);
            must_say(&three, "can only define groups of exactly 2 pod sets, got: 3", &what("three"));
        }
    }
    let several = [
        JobKind::MPI_JOB,
        JobKind::PADDLE_JOB,
        JobKind::PYTORCH_JOB,
        JobKind::TF_JOB,
        JobKind::XGBOOST_JOB,
        JobKind::RAY_CLUSTER,
        JobKind::RAY_JOB,
        JobKind::RAY_SERVICE,
    ];
    assert_eq!(grouped, several, "the examples of these have more than one");
}
