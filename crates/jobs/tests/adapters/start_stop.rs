//! The patches that start, stop and suspend jobs.

use std::collections::BTreeMap;

use crate::support::{job, jobset};
use crate::testing::{apply, prune};
use k8s_openapi::api::core::v1::{Affinity, PodSchedulingGate, Toleration};
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_api::job::{JobKind, JobView, PodScheduling, PodSetInfo};
use sluice_jobs::{StartError, Step};

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn toleration(key: &str) -> Toleration {
    Toleration { key: Some(key.to_owned()), operator: Some("Exists".to_owned()), ..Toleration::default() }
}

/// What admission adds to a pod set.
fn addition(name: &str, count: i32) -> PodSetInfo {
    PodSetInfo {
        name: name.to_owned(),
        count,
        scheduling: PodScheduling {
            labels: map(&[("kueue.x-k8s.io/podset", name)]),
            node_selector: map(&[("cloud.google.com/gke-nodepool", "pool-a")]),
            tolerations: vec![toleration("google.com/tpu"), toleration("a")],
            ..PodScheduling::default()
        },
    }
}

/// What the engine restores: the Workload's templates, which lack the labels that the Job controller generates.
fn originals(view: &JobView) -> Vec<PodSetInfo> {
    let original = |set: &sluice_api::job::JobPodSet| {
        let mut scheduling = set.scheduling.clone();
        let generated = ["job-name", "controller-uid", "batch.kubernetes.io/controller-uid"];
        scheduling.labels.retain(|key, _| !generated.contains(&key.as_str()));
        PodSetInfo { name: set.name.clone(), count: set.count, scheduling }
    };
    view.pod_sets.iter().map(original).collect()
}

fn steps(steps: &[Step]) -> Value {
    json!(
        steps
            .iter()
            .map(|step| json!({"subresource": step.subresource, "type": step.patch.content_type(),
        "body": step.patch.body()}))
            .collect::<Vec<_>>()
    )
}

#[test]
fn a_template_copied_from_a_running_job_names_its_own_workload() {
    let mut job = job();
    let key = "kueue.x-k8s.io/workload";
    job["spec"]["template"]["metadata"]["annotations"] = json!({key: "job-of-another"});
    let view = sluice_jobs::observe(JobKind::JOB, &job);
    let mut addition = addition("main", 3);
    addition.scheduling.annotations.insert(key.to_owned(), "job-sample".to_owned());
    let patch = sluice_jobs::start(&view, &[addition]).unwrap();
    assert_eq!(patch.body()["spec"]["template"]["metadata"]["annotations"], json!({key: "job-sample"}));
}

#[test]
fn a_job_starts_with_one_merge_patch() {
    let view = sluice_jobs::observe(JobKind::JOB, &job());
    insta::assert_json_snapshot!(sluice_jobs::start(&view, &[addition("main", 3)]).unwrap().body());
}

#[test]
fn a_job_with_nothing_to_add_is_only_unsuspended() {
    let view = sluice_jobs::observe(JobKind::JOB, &job());
    let nothing = PodSetInfo { name: "main".to_owned(), count: 3, ..PodSetInfo::default() };
    let patch = sluice_jobs::start(&view, &[nothing]).unwrap();
    assert_eq!(patch.body(), json!({"metadata": {"resourceVersion": "7"}, "spec": {"suspend": false}}));
}

#[test]
fn partial_admission_starts_fewer_pods() {
    let mut object = job();
    object["metadata"]["annotations"]["kueue.x-k8s.io/job-min-parallelism"] = json!("2");
    let view = sluice_jobs::observe(JobKind::JOB, &object);
    let info = |count| PodSetInfo { name: "main".to_owned(), count, ..PodSetInfo::default() };
    let spec =
        |view: &JobView, count| sluice_jobs::start(view, &[info(count)]).unwrap().body()["spec"].clone();
    assert_eq!(spec(&view, 2), json!({"suspend": false, "parallelism": 2}));
    assert_eq!(spec(&view, 3), json!({"suspend": false}));
    for count in [1, 4] {
        assert_eq!(
            sluice_jobs::start(&view, &[info(count)]),
            Err(StartError::Count { pod_set: "main".to_owned(), admitted: count, needed: 3 })
        );
    }
    object["metadata"]["annotations"]["kueue.x-k8s.io/job-completions-equal-parallelism"] = json!("true");
    let view = sluice_jobs::observe(JobKind::JOB, &object);
    assert_eq!(spec(&view, 2), json!({"suspend": false, "parallelism": 2, "completions": 2}));
}

#[test]
fn what_contradicts_the_template_is_refused_by_name() {
    let view = sluice_jobs::observe(JobKind::JOB, &job());
    let conflicting = |scheduling| vec![PodSetInfo { name: "main".to_owned(), count: 3, scheduling }];
    let scheduling = PodScheduling { node_selector: map(&[("disk", "hdd")]), ..PodScheduling::default() };
    let error = sluice_jobs::start(&view, &conflicting(scheduling)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "pod set \"main\": conflict for nodeSelector: conflict for key=disk, value1=ssd, value2=hdd"
    );
    let scheduling = PodScheduling { labels: map(&[("app", "y")]), ..PodScheduling::default() };
    assert!(matches!(
        sluice_jobs::start(&view, &conflicting(scheduling)),
        Err(StartError::Conflict { field: "labels", .. })
    ));
    let same = PodScheduling { node_selector: map(&[("disk", "ssd")]), ..PodScheduling::default() };
    assert!(sluice_jobs::start(&view, &conflicting(same)).is_ok());
}

#[test]
fn the_admission_must_have_the_job_s_pod_sets() {
    let view = sluice_jobs::observe(JobKind::JOB_SET, &jobset());
    for infos in [
        vec![],
        vec![addition("slice", 4)],
        vec![addition("slice", 4), addition("other", 1)],
        vec![addition("slice", 4), addition("driver", 1), addition("other", 1)],
    ] {
        assert!(matches!(sluice_jobs::start(&view, &infos), Err(StartError::PodSets { .. })), "{infos:?}");
    }
    assert!(matches!(
        sluice_jobs::start(&view, &[addition("slice", 3), addition("driver", 1)]),
        Err(StartError::Count { admitted: 3, needed: 4, .. })
    ));
}

#[test]
fn a_jobset_starts_with_one_json_patch() {
    let view = sluice_jobs::observe(JobKind::JOB_SET, &jobset());
    let patch = sluice_jobs::start(&view, &[addition("driver", 1), addition("slice", 4)]).unwrap();
    insta::assert_json_snapshot!(patch.body());
}

/// Stops a Job as the engine does, which asks for the next steps when it has seen what the last ones did.
fn stop_all(job: &Value, infos: &[PodSetInfo]) -> (Value, Vec<Step>) {
    let (mut now, mut sent) = (job.clone(), Vec::new());
    while !sluice_jobs::observe(JobKind::JOB, &now).suspended {
        for step in sluice_jobs::stop(&sluice_jobs::observe(JobKind::JOB, &now), infos) {
            let version = now["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
            now = apply(&now, &step.clone().pinned(&version).patch).unwrap();
            sent.push(step);
        }
    }
    (now, sent)
}

#[test]
fn a_job_stops_in_three_steps() {
    let original = sluice_jobs::observe(JobKind::JOB, &job());
    let mut started = apply(&job(), &sluice_jobs::start(&original, &[addition("main", 3)]).unwrap()).unwrap();
    started["status"]["startTime"] = json!("2026-01-02T04:00:00Z");
    insta::assert_json_snapshot!(steps(&stop_all(&started, &originals(&original)).1));
}

#[test]
fn a_jobset_stops_in_one_step() {
    let original = sluice_jobs::observe(JobKind::JOB_SET, &jobset());
    let infos = [addition("slice", 4), addition("driver", 1)];
    let started = apply(&jobset(), &sluice_jobs::start(&original, &infos).unwrap()).unwrap();
    let view = sluice_jobs::observe(JobKind::JOB_SET, &started);
    insta::assert_json_snapshot!(steps(&sluice_jobs::stop(&view, &originals(&original))));
}

#[test]
fn a_job_is_stopped_even_if_nothing_is_known_to_restore() {
    let mut running = job();
    running["spec"]["suspend"] = json!(false);
    let (stopped, sent) = stop_all(&running, &[]);
    assert_eq!(sent.len(), 2, "{sent:#?}");
    assert!(sluice_jobs::observe(JobKind::JOB, &stopped).suspended);
}

#[test]
fn asking_the_controller_takes_back_one_condition_of_the_version_that_was_seen() {
    let view = sluice_jobs::observe(JobKind::JOB, &json!({"metadata": {"resourceVersion": "7"}}));
    let step = sluice_jobs::ask_controller(&view, "2026-01-02T03:04:05.6Z".parse().unwrap());
    assert_eq!(step.subresource, Some("status"));
    assert_eq!(step.patch.content_type(), "application/strategic-merge-patch+json");
    let body = step.patch.body();
    assert_eq!(body["metadata"], json!({"resourceVersion": "7"}));
    let condition = &body["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("Suspended"), &json!("False")));
    assert_eq!(condition["lastTransitionTime"], "2026-01-02T03:04:05Z");
}

#[test]
fn suspending_writes_one_field() {
    for (kind, object) in [(JobKind::JOB, job()), (JobKind::JOB_SET, jobset())] {
        let step = sluice_jobs::suspend(&sluice_jobs::observe(kind, &object));
        assert_eq!(step.subresource, None);
        assert_eq!(
            step.patch.body(),
            json!({"metadata": {"resourceVersion": object["metadata"]["resourceVersion"]}, "spec": {"suspend": true}})
        );
    }
}

#[test]
fn no_patch_acts_on_an_object_that_was_not_seen() {
    for (kind, object) in [(JobKind::JOB, job()), (JobKind::JOB_SET, jobset())] {
        let view = sluice_jobs::observe(kind, &object);
        let mut newer = object.clone();
        newer["metadata"]["resourceVersion"] = json!("99");
        let start = sluice_jobs::start(&view, &originals(&view)).unwrap();
        assert_eq!(apply(&newer, &start), Err("409 Conflict".to_owned()));
        let stop = sluice_jobs::stop(&view, &originals(&view)).remove(0);
        assert_eq!(apply(&newer, &stop.patch), Err("409 Conflict".to_owned()));
        assert_eq!(apply(&newer, &sluice_jobs::suspend(&view).patch), Err("409 Conflict".to_owned()));
        assert!(apply(&newer, &start.pinned("99")).is_ok());
    }
}

fn keys(prefix: &'static str) -> impl Strategy<Value = BTreeMap<String, String>> {
    prop::collection::btree_map((0..4_u8).prop_map(move |n| format!("{prefix}/{n}~")), "[ab]", 0..3)
}

fn scheduling(prefix: &'static str) -> impl Strategy<Value = PodScheduling> {
    let tolerations = prop::collection::vec(prop::sample::select(vec!["x", "y", "z"]), 0..3);
    let gates = prop::collection::vec(prop::sample::select(vec!["g", "h"]), 0..2);
    (keys(prefix), keys(prefix), keys(prefix), tolerations, gates, affinity(prefix)).prop_map(
        |(labels, annotations, node_selector, t, g, affinity)| PodScheduling {
            labels,
            annotations,
            node_selector,
            tolerations: t.into_iter().map(toleration).collect(),
            scheduling_gates: g.into_iter().map(|name| PodSchedulingGate { name: name.to_owned() }).collect(),
            affinity,
        },
    )
}

/// An affinity with each of its parts there or not.
fn affinity(key: &'static str) -> impl Strategy<Value = Option<Box<Affinity>>> {
    (0..32_u8).prop_map(move |parts| {
        let has = |part: u8| parts & part != 0;
        let term = json!({"matchExpressions": [{"key": key, "operator": "Exists"}]});
        let mut affinity = json!({});
        if has(2) {
            affinity["nodeAffinity"] = json!({});
        }
        if has(4) {
            affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                json!({"nodeSelectorTerms": [term]});
        }
        if has(8) {
            affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] =
                json!([{"weight": 1, "preference": term}]);
        }
        if has(16) {
            affinity["podAntiAffinity"] =
                json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key}]});
        }
        has(1).then(|| serde_json::from_value(affinity).unwrap())
    })
}

/// A template with this scheduling, in the form that a user may have written.
fn template(scheduling: &PodScheduling, with_metadata: bool) -> Value {
    let mut template = json!({
        "metadata": {"labels": scheduling.labels, "annotations": scheduling.annotations},
        "spec": {"nodeSelector": scheduling.node_selector, "tolerations": scheduling.tolerations,
            "schedulingGates": scheduling.scheduling_gates, "affinity": scheduling.affinity, "containers": [{"name": "c", "image": "i"}]}
    });
    if with_metadata {
        template["spec"].as_object_mut().unwrap().retain(|key, value| {
            *value != json!([]) && !value.is_null() && (*value != json!({}) || key == "affinity")
        });
        template["metadata"].as_object_mut().unwrap().retain(|_, value| *value != json!({}));
    } else {
        prune(&mut template);
    }
    template
}

fn pruned(mut object: Value) -> Value {
    prune(&mut object);
    object["metadata"]["resourceVersion"] = Value::Null;
    object
}

proptest! {
    #[test]
    fn stopping_a_started_job_restores_it(
        before in scheduling("own"), mut adds in scheduling("new"), metadata: bool, admitted in 1..4_i32, crash in 0..4_usize,
    ) {
        let mut object = job();
        object["spec"]["template"] = template(&before, metadata);
        object["metadata"]["annotations"] = json!({"kueue.x-k8s.io/job-min-parallelism": "1"});
        let original = sluice_jobs::observe(JobKind::JOB, &object);
        // Admission adds affinity to nodes only.
        adds.affinity.iter_mut().for_each(|affinity| affinity.pod_anti_affinity = None);
        let info = PodSetInfo { name: "main".to_owned(), count: admitted, scheduling: adds.clone() };
        let started = apply(&object, &sluice_jobs::start(&original, &[info]).unwrap()).unwrap();
        let view = sluice_jobs::observe(JobKind::JOB, &started);
        prop_assert!(!view.suspended);
        prop_assert_eq!(view.pod_sets[0].count, admitted);
        for (key, value) in &adds.node_selector {
            prop_assert_eq!(view.pod_sets[0].scheduling.node_selector.get(key), Some(value));
        }
        // The manager dies after `crash` steps; its successor observes again and goes on.
        let mut now = started;
        now["status"]["startTime"] = json!("2026-01-02T04:00:00Z");
        let mut left = crash;
        for _ in 0..2 {
            let view = sluice_jobs::observe(JobKind::JOB, &now);
            let steps = sluice_jobs::stop(&view, &originals(&original));
            for step in steps.into_iter().take(left) {
                left -= 1;
                prop_assert!(!sluice_jobs::observe(JobKind::JOB, &now).suspended);
                let version = now["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
                now = apply(&now, &step.pinned(&version).patch).unwrap();
            }
        }
        now = stop_all(&now, &originals(&original)).0;
        prop_assert!(sluice_jobs::observe(JobKind::JOB, &now).suspended);
        prop_assert_eq!(pruned(now), pruned(object));
    }

    #[test]
    fn stopping_a_started_jobset_restores_it(
        before in prop::collection::vec((scheduling("own"), any::<bool>()), 1..4), adds in scheduling("new"),
    ) {
        let mut object = jobset();
        object["spec"]["replicatedJobs"] = before.iter().enumerate().map(|(n, (before, metadata))| {
            json!({"name": format!("j{n}"), "replicas": 1,
                "template": {"spec": {"template": template(before, *metadata)}}})
        }).collect();
        let original = sluice_jobs::observe(JobKind::JOB_SET, &object);
        let infos: Vec<_> = original.pod_sets.iter()
            .map(|set| PodSetInfo { name: set.name.clone(), count: 1, scheduling: adds.clone() }).collect();
        let started = apply(&object, &sluice_jobs::start(&original, &infos).unwrap()).unwrap();
        let view = sluice_jobs::observe(JobKind::JOB_SET, &started);
        prop_assert!(!view.suspended);
        for set in &view.pod_sets {
            for (key, value) in &adds.labels {
                prop_assert_eq!(set.scheduling.labels.get(key), Some(value));
            }
        }
        let mut now = started;
        for step in sluice_jobs::stop(&view, &originals(&original)) {
            now = apply(&now, &step.patch).unwrap();
        }
        prop_assert_eq!(pruned(now), pruned(object));
    }
}

/// Asks for nodes without a label, as it is added at start.
fn avoiding() -> PodSetInfo {
    let term = json!([{"weight": 100,
        "preference": {"matchExpressions": [{"key": "maintenance", "operator": "DoesNotExist"}]}}]);
    let affinity = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": term}});
    let affinity = Some(Box::new(serde_json::from_value::<Affinity>(affinity).unwrap()));
    PodSetInfo {
        name: "main".to_owned(),
        count: 3,
        scheduling: PodScheduling { affinity, ..PodScheduling::default() },
    }
}

#[test]
fn a_preference_for_nodes_is_added_to_those_that_a_job_has() {
    let mut object = job();
    let own =
        json!({"weight": 1, "preference": {"matchExpressions": [{"key": "mine", "operator": "Exists"}]}});
    let pods = json!({"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]});
    object["spec"]["template"]["spec"]["affinity"] = json!({"podAffinity": pods,
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [own]}});
    let view = sluice_jobs::observe(JobKind::JOB, &object);
    let started = apply(&object, &sluice_jobs::start(&view, &[avoiding()]).unwrap()).unwrap();
    let affinity = &started["spec"]["template"]["spec"]["affinity"];
    assert_eq!(affinity["podAffinity"], pods);
    let preferred = &affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(preferred[0], own);
    assert_eq!(preferred[1]["preference"]["matchExpressions"][0]["key"], "maintenance");
}

#[test]
fn the_templates_of_a_jobset_carry_the_wish_and_its_pods_are_granted_it() {
    let mut object = jobset();
    object["spec"]["replicatedJobs"].as_array_mut().unwrap().truncate(1);
    object["status"] = json!({"restarts": 2});
    let view = sluice_jobs::observe(JobKind::JOB_SET, &object);
    let info = PodSetInfo { name: "slice".to_owned(), count: view.pod_sets[0].count, ..avoiding() };
    let started = apply(&object, &sluice_jobs::start(&view, &[info]).unwrap()).unwrap();
    let template = &started["spec"]["replicatedJobs"][0]["template"]["spec"]["template"];
    assert!(template["spec"]["affinity"].is_null(), "JobSet refuses a changed affinity");
    let annotations = &template["metadata"]["annotations"];
    for affinity in [json!(null), json!({"podAffinity": {}})] {
        let mut pod = json!({"metadata": {"annotations": annotations, "labels": {}},
            "spec": {"containers": []}});
        pod["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] = json!("2");
        pod["metadata"]["resourceVersion"] = json!("1");
        if !affinity.is_null() {
            pod["spec"]["affinity"] = affinity;
        }
        let made = apply(&pod, &sluice_jobs::webhook::mutate_pod(&pod)).unwrap();
        let nodes = &made["spec"]["affinity"]["nodeAffinity"];
        let preferred = &nodes["preferredDuringSchedulingIgnoredDuringExecution"];
        assert_eq!(preferred[0]["preference"]["matchExpressions"][0]["key"], "maintenance");
    }
    let now = sluice_jobs::stop(&sluice_jobs::observe(JobKind::JOB_SET, &started), &originals(&view));
    let stopped = apply(&started, &now[0].patch).unwrap();
    assert_eq!(
        pruned(stopped)["spec"]["replicatedJobs"][0]["template"],
        pruned(object)["spec"]["replicatedJobs"][0]["template"]
    );
}

#[test]
fn a_pod_whose_annotation_cannot_be_read_is_left_alone() {
    for annotation in ["", "{}", "{\"restarts\": \"x\"}", "nonsense"] {
        let pod = json!({"metadata": {"annotations": {"sluice.dev/node-affinity": annotation}}, "spec": {}});
        assert_eq!(
            sluice_jobs::webhook::mutate_pod(&pod),
            sluice_jobs::Patch::Json(Vec::new()),
            "{annotation}"
        );
    }
}
