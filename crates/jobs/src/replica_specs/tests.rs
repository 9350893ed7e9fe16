//! Kubeflow's jobs: their states, how they start, stop and end, and what a user may write.

use std::collections::BTreeMap;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_api::config::Configuration;
use sluice_api::gates::Gates;
use sluice_api::job::{JobKind, JobView, PodScheduling, PodSetInfo};
use sluice_jobs::webhook::{Context, Operation, mutate};
use sluice_jobs::{Schema, StartError, State, observe, pod_groups, start, stop};

use crate::testing::kubeflow::{KINDS, job};
use crate::testing::{World, apply, prune, pruned};

fn pytorch(change: impl FnOnce(&mut Value)) -> JobView {
    let mut object = job(KINDS[3]);
    change(&mut object);
    observe(JobKind::PYTORCH_JOB, &object)
}

#[test]
fn each_replica_type_is_a_pod_set_in_the_order_of_the_kind() {
    for (kind, field, types) in KINDS {
        let view = observe(kind, &job((kind, field, types)));
        assert_eq!(view.invalid, None);
        let found: Vec<_> = view.pod_sets.iter().map(|set| (set.name.clone(), set.count)).collect();
        let wanted = types.iter().zip(1..).map(|(name, count)| (name.to_lowercase(), count));
        assert_eq!(found, wanted.collect::<Vec<_>>(), "{kind:?}");
        for set in &view.pod_sets {
            let request = set.topology_request.as_deref().unwrap();
            assert_eq!(request.pod_index_label.as_deref(), Some("training.kubeflow.org/replica-index"));
            assert_eq!((request.sub_group_index_label.as_ref(), request.sub_group_count), (None, None));
            assert_eq!(set.min_count, None, "no partial admission");
        }
        let object = job((kind, field, types));
        let groups = pod_groups(kind, &object);
        assert_eq!(groups[0].path(), format!("spec.{field}.{}.template", types[0]));
        assert_eq!(groups.iter().map(sluice_jobs::PodGroup::count).collect::<Vec<_>>()[0], 1);
        let schemas = sluice_jobs::schemas(kind, &object);
        assert!(schemas.iter().all(|(_, schema)| *schema == Schema::PodTemplate));
        assert!(schemas.iter().all(|(at, _)| object.pointer(at).is_some()), "{schemas:?}");
    }
}

#[test]
fn a_replica_type_has_one_pod_unless_it_says_how_many() {
    let count = |replicas: Value| {
        pytorch(|job| job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = replicas).pod_sets[1].count
    };
    let counts = [json!(null), json!(4), json!(-4), json!(i64::MAX), json!("4")].map(count);
    assert_eq!(counts, [1, 4, 0, i32::MAX, 1]);
}

#[test]
fn only_the_types_that_are_there_have_pod_sets() {
    let view = pytorch(|job| {
        job["spec"]["pytorchReplicaSpecs"].as_object_mut().unwrap().remove("Master");
    });
    assert_eq!(view.pod_sets.iter().map(|set| set.name.as_str()).collect::<Vec<_>>(), ["worker"]);
    let infos = [PodSetInfo { name: "worker".to_owned(), count: 2, ..PodSetInfo::default() }];
    assert!(start(&view, &infos).is_ok());
}

#[test]
fn what_cannot_be_a_workload_is_said() {
    let invalid = |change: fn(&mut Value)| pytorch(change).invalid.unwrap_or_default();
    assert_eq!(
        invalid(|job| job["spec"]["pytorchReplicaSpecs"]["Ps"] = json!({})),
        "spec.pytorchReplicaSpecs.Ps: unknown replica type, known are: Master, Worker"
    );
    // Its controller takes any case; there it would have pods, here it would have no quota.
    assert_eq!(
        invalid(|job| job["spec"]["pytorchReplicaSpecs"]["worker"] = json!({})),
        "spec.pytorchReplicaSpecs.worker: unknown replica type, known are: Master, Worker"
    );
    assert_eq!(
        invalid(|job| job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"] = json!({})),
        "spec.pytorchReplicaSpecs.Worker.template.spec: required"
    );
    let unreadable = invalid(|job| {
        job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"] = json!("x");
    });
    assert!(unreadable.starts_with("spec.pytorchReplicaSpecs.Master.template: invalid type"), "{unreadable}");
    for nothing in [json!(null), json!({}), json!([1]), json!("x")] {
        let view = pytorch(|job| job["spec"]["pytorchReplicaSpecs"] = nothing);
        assert_eq!(view.invalid.as_deref(), Some("spec.pytorchReplicaSpecs: no replica type"));
    }
    let many = pytorch(|job| {
        let specs = job["spec"]["pytorchReplicaSpecs"].as_object_mut().unwrap();
        specs.extend((0..40).map(|n| (format!("T{n}"), json!({}))));
    });
    assert!(many.invalid.is_some() && many.pod_sets.is_empty());
}

#[test]
fn it_is_active_while_a_replica_type_has_running_pods() {
    let active = |statuses: Value| pytorch(|job| job["status"]["replicaStatuses"] = statuses).active;
    assert!(!active(json!(null)));
    assert!(!active(json!({"Master": {}, "Worker": {"active": 0, "failed": 1, "succeeded": 3}})));
    assert!(active(json!({"Master": {}, "Worker": {"active": 1}})));
    assert!(!active(json!([1, "x"])));
}

fn with_condition(name: &str, status: &str) -> JobView {
    pytorch(|job| {
        job["status"]["conditions"] = json!([
            {"type": "Created", "status": "True"},
            {"type": name, "status": status, "message": "m", "lastTransitionTime": "2026-01-02T03:04:05Z"},
        ]);
    })
}

#[test]
fn conditions_say_whether_it_runs_ended_or_was_suspended() {
    assert!(with_condition("Running", "True").pods_ready);
    assert!(!with_condition("Running", "False").pods_ready);
    assert!(!with_condition("Restarting", "True").pods_ready);
    for (name, success) in [("Succeeded", true), ("Failed", false)] {
        let finished = with_condition(name, "True").finished.unwrap();
        assert_eq!((finished.success, finished.message.as_str()), (success, "m"));
        assert_eq!(with_condition(name, "False").finished, None);
    }
    let since = "2026-01-02T03:04:05Z".parse().unwrap();
    assert_eq!(with_condition("Suspended", "True").suspended_condition, Some((true, since)));
    assert_eq!(with_condition("Suspended", "False").suspended_condition, Some((false, since)));
    assert_eq!(with_condition("Running", "True").suspended_condition, None);
}

#[test]
fn the_run_policy_says_which_controller_looks_after_it_and_how_long_it_may_run() {
    let view = pytorch(|job| {
        job["spec"]["runPolicy"]["managedBy"] = json!("kueue.x-k8s.io/multikueue");
        job["spec"]["runPolicy"]["activeDeadlineSeconds"] = json!(60);
        job["spec"]["managedBy"] = json!("not here");
    });
    assert_eq!(view.managed_by.as_deref(), Some("kueue.x-k8s.io/multikueue"));
    assert_eq!(view.active_deadline_seconds, Some(60));
    assert_eq!(pytorch(|_| {}).managed_by, None);
    for (suspend, suspended) in [(json!(true), true), (json!(false), false), (json!(null), false)] {
        assert_eq!(pytorch(|job| job["spec"]["runPolicy"]["suspend"] = suspend).suspended, suspended);
    }
    assert!(!pytorch(|job| job["spec"]["runPolicy"] = json!("x")).suspended);
}

#[test]
fn its_controller_leaves_pods_that_run_unless_the_run_policy_says_otherwise() {
    let leaves =
        |policy: Value| pytorch(|job| job["spec"]["runPolicy"]["cleanPodPolicy"] = policy).leaves_pods;
    let policies = [json!(null), json!(""), json!("None"), json!("Running"), json!("All")];
    assert_eq!(policies.map(leaves), [true, true, true, false, false]);
}

#[test]
fn its_priority_is_that_of_the_scheduling_policy_else_of_the_first_template_that_has_one() {
    let class = |policy: Value, master: Value, worker: Value| {
        let view = pytorch(|job| {
            job["spec"]["runPolicy"]["schedulingPolicy"] = json!({"priorityClass": policy});
            let specs = &mut job["spec"]["pytorchReplicaSpecs"];
            specs["Master"]["template"]["spec"]["priorityClassName"] = master;
            specs["Worker"]["template"]["spec"]["priorityClassName"] = worker;
        });
        view.pod_priority_class.unwrap_or_default()
    };
    let null = || Value::Null;
    assert_eq!(class(json!("policy"), json!("master"), json!("worker")), "policy");
    assert_eq!(class(json!(""), json!("master"), json!("worker")), "master");
    assert_eq!(class(null(), null(), json!("worker")), "worker");
    assert_eq!(class(null(), null(), null()), "");
}

#[test]
fn it_reads_the_states_that_it_writes() {
    let at = Timestamp::UNIX_EPOCH;
    for (kind, field, types) in KINDS {
        let mut object = job((kind, field, types));
        let mut view = |state: State| {
            object["status"] = sluice_jobs::status(kind, &object, state);
            observe(kind, &object)
        };
        let starting = view(State::Running { since: at, ready: false });
        assert!(starting.active && !starting.pods_ready);
        let ready = view(State::Running { since: at, ready: true });
        assert!(ready.active && ready.pods_ready);
        let idle = view(State::Idle);
        assert!(!idle.active && !idle.pods_ready && idle.finished.is_none());
        for success in [true, false] {
            let ended = view(State::Ended { at, success });
            assert!(!ended.active);
            assert_eq!(ended.finished.unwrap().success, success);
        }
    }
}

/// What admission adds to each pod set.
fn additions(view: &JobView, flavor: &str) -> Vec<PodSetInfo> {
    let info = |set: &sluice_api::job::JobPodSet| PodSetInfo {
        name: set.name.clone(),
        count: set.count,
        scheduling: PodScheduling {
            labels: BTreeMap::from([("kueue.x-k8s.io/podset".to_owned(), set.name.clone())]),
            node_selector: BTreeMap::from([("flavor".to_owned(), flavor.to_owned())]),
            ..PodScheduling::default()
        },
    };
    view.pod_sets.iter().map(info).collect()
}

fn originals(view: &JobView) -> Vec<PodSetInfo> {
    let info = |set: &sluice_api::job::JobPodSet| PodSetInfo {
        name: set.name.clone(),
        count: set.count,
        scheduling: set.scheduling.clone(),
    };
    view.pod_sets.iter().map(info).collect()
}

#[test]
fn a_start_and_a_stop_are_one_patch_each() {
    let object = job(KINDS[1]);
    let view = observe(JobKind::MPI_JOB, &object);
    let patch = start(&view, &additions(&view, "a")).unwrap();
    let template = |name: &str| {
        let metadata = json!({"labels": {"kueue.x-k8s.io/podset": name}});
        json!({"template": {"metadata": metadata, "spec": {"nodeSelector": {"flavor": "a"}}}})
    };
    assert_eq!(
        patch.body(),
        json!({"metadata": {"resourceVersion": "7"}, "spec": {
            "runPolicy": {"suspend": false},
            "mpiReplicaSpecs": {"Launcher": template("launcher"), "Worker": template("worker")},
        }})
    );
    let started = apply(&object, &patch).unwrap();
    let template =
        json!({"template": {"metadata": {"labels": null}, "spec": {"nodeSelector": {"flavor": null}}}});
    let steps = stop(&observe(JobKind::MPI_JOB, &started), &originals(&view));
    assert_eq!(steps.len(), 1);
    assert_eq!(
        steps[0].patch.body(),
        json!({"metadata": {"resourceVersion": "8"}, "spec": {
            "runPolicy": {"suspend": true}, "mpiReplicaSpecs": {"Launcher": template, "Worker": template},
        }})
    );
}

#[test]
fn it_starts_with_all_of_its_pods_or_not_at_all() {
    let view = pytorch(|_| {});
    for admitted in [1, 3] {
        let mut infos = additions(&view, "a");
        infos[1].count = admitted;
        assert_eq!(
            start(&view, &infos),
            Err(StartError::Count { pod_set: "worker".to_owned(), admitted, needed: 2 })
        );
    }
    assert!(matches!(start(&view, &additions(&view, "a")[..1]), Err(StartError::PodSets { .. })));
    let mut infos = additions(&view, "a");
    infos[0].scheduling.node_selector.insert("type".to_owned(), "other".to_owned());
    assert!(matches!(start(&view, &infos), Err(StartError::Conflict { field: "nodeSelector", .. })));
}

#[test]
fn no_patch_acts_on_an_object_that_was_not_seen() {
    for (kind, field, types) in KINDS {
        let object = job((kind, field, types));
        let view = observe(kind, &object);
        let mut newer = object.clone();
        newer["metadata"]["resourceVersion"] = json!("99");
        let patches = [
            start(&view, &originals(&view)).unwrap(),
            stop(&view, &originals(&view)).remove(0).patch,
            sluice_jobs::suspend(&view).patch,
        ];
        for patch in patches {
            assert_eq!(apply(&newer, &patch), Err("409 Conflict".to_owned()));
        }
        let suspended = apply(&object, &sluice_jobs::suspend(&view).patch).unwrap();
        assert_eq!(suspended["spec"], object["spec"], "it is suspended already");
    }
}

#[test]
fn a_job_with_a_queue_name_is_suspended_at_creation() {
    let selector = Configuration::default().managed_jobs_namespace_selector;
    let labels = BTreeMap::new();
    let context = Context {
        manage_jobs_without_queue_name: false,
        managed_jobs_namespace_selector: &selector,
        namespace_labels: &labels,
        default_local_queue: false,
        default_priority_class: false,
        managed_owner: false,
        gatherer: None,
        gates: Gates::default(),
    };
    for (kind, field, types) in KINDS {
        for policy in [json!(null), json!({}), json!({"suspend": false, "backoffLimit": 2})] {
            let mut object = job((kind, field, types));
            object["spec"]["runPolicy"] = policy.clone();
            if policy.is_null() {
                object["spec"].as_object_mut().unwrap().remove("runPolicy");
            }
            let made = apply(&object, &mutate(kind, Operation::Create, &object, &context)).unwrap();
            assert_eq!(made["spec"]["runPolicy"]["suspend"], true);
            assert_eq!(
                made["spec"]["runPolicy"]["backoffLimit"], policy["backoffLimit"],
                "what it says stays"
            );
        }
    }
}

/// Its controller would leave a job that runs as it is, and with it all pods that it has.
#[test]
fn what_its_controller_does_not_act_on_is_refused() {
    let world = World::default();
    let of = |kind: usize, change: &dyn Fn(&mut Value)| {
        let mut object = job(KINDS[kind]);
        change(&mut object);
        object
    };
    for (number, (kind, field, types)) in KINDS.into_iter().enumerate() {
        let role = types.last().unwrap();
        let sound = of(number, &|_| {});
        assert_eq!(world.refusals(kind, &sound, None), "", "{kind:?}");
        let negative = of(number, &|object| object["spec"][field][role]["replicas"] = json!(-1));
        let said = format!(
            "spec.{field}.{role}.replicas: Invalid value: \"-1\": must be greater than or equal to 0"
        );
        assert!(world.refusals(kind, &negative, None).contains(&said), "{kind:?}");
        assert!(world.refusals(kind, &negative, Some(&sound)).contains(&said), "{kind:?}");
        // What was so before does not keep its user from another change.
        assert_eq!(world.refusals(kind, &negative, Some(&negative)), "", "{kind:?}");
        let mut free = negative.clone();
        free["metadata"]["labels"] = json!({});
        assert_eq!(world.refusals(kind, &free, None), "", "{kind:?} that is not queued");
    }
}

fn keys(prefix: &'static str) -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map((0..4_u8).prop_map(move |n| format!("{prefix}/{n}~")), "[ab]", 0..3)
}

fn scheduling(prefix: &'static str) -> impl Strategy<Value = PodScheduling> {
    (keys(prefix), keys(prefix), keys(prefix)).prop_map(|(labels, annotations, node_selector)| {
        PodScheduling { labels, annotations, node_selector, ..PodScheduling::default() }
    })
}

const PATHS: &[&str] = &[
    "",
    "/metadata",
    "/spec",
    "/spec/runPolicy",
    "/spec/runPolicy/suspend",
    "/spec/runPolicy/schedulingPolicy",
    "/spec/FIELD",
    "/spec/FIELD/Worker",
    "/spec/FIELD/Worker/replicas",
    "/spec/FIELD/Worker/template",
    "/spec/FIELD/Worker/template/spec",
    "/spec/FIELD/Worker/template/spec/containers",
    "/status",
    "/status/conditions",
    "/status/replicaStatuses",
];

fn junk() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        Value::Null,
        json!(true),
        json!(-1),
        json!(i64::MAX),
        json!("x"),
        json!([null, 1, {"type": 5}]),
        json!({}),
        json!({"Worker": null, "Other": []}),
        json!({"Worker": {"template": 1, "active": "x"}}),
    ])
}

proptest! {
    /// Also after an eviction from one flavor and a start in another.
    #[test]
    fn stopping_a_started_job_restores_it(
        which in 0..KINDS.len(), before in scheduling("own"), adds in scheduling("new"), later in scheduling("later"),
    ) {
        let (kind, field, types) = KINDS[which];
        let mut object = job(KINDS[which]);
        for name in types {
            let template = &mut object["spec"][field][name]["template"];
            template["metadata"] = json!({"labels": before.labels, "annotations": before.annotations});
            template["spec"]["nodeSelector"] = json!(before.node_selector);
        }
        prune(&mut object);
        let original = observe(kind, &object);
        let mut now = object.clone();
        for adds in [adds, later] {
            let view = observe(kind, &now);
            let infos: Vec<_> = view.pod_sets.iter()
                .map(|set| PodSetInfo { name: set.name.clone(), count: set.count, scheduling: adds.clone() }).collect();
            now = apply(&now, &start(&view, &infos).unwrap()).unwrap();
            let started = observe(kind, &now);
            prop_assert!(!started.suspended);
            for set in &started.pod_sets {
                let wanted: BTreeMap<_, _> =
                    before.node_selector.clone().into_iter().chain(adds.node_selector.clone()).collect();
                prop_assert_eq!(&set.scheduling.node_selector, &wanted);
            }
            now = apply(&now, &stop(&started, &originals(&original))[0].patch).unwrap();
            prop_assert_eq!(pruned(now.clone()), pruned(object.clone()));
        }
    }

    #[test]
    fn no_object_makes_it_panic(which in 0..KINDS.len(), path in prop::sample::select(PATHS.to_vec()), value in junk()) {
        let (kind, field, _) = KINDS[which];
        let mut object = job(KINDS[which]);
        object["status"] = json!({"conditions": [], "replicaStatuses": {"Worker": {"active": 1}}});
        if let Some(place) = object.pointer_mut(&path.replace("FIELD", field)) {
            *place = value;
        }
        let view = observe(kind, &object);
        let _ = start(&view, &originals(&view));
        let _ = stop(&view, &originals(&view));
        let _ = (pod_groups(kind, &object), sluice_jobs::schemas(kind, &object));
        let at = Timestamp::UNIX_EPOCH;
        for state in [State::Idle, State::Running { since: at, ready: true }, State::Ended { at, success: true }] {
            let _ = sluice_jobs::status(kind, &object, state);
        }
    }
}
