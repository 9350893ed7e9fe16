//! The patches that start and stop a Job.

use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_api::job::{JobKind, JobView, PodScheduling, PodSetInfo};
use sluice_jobs::{StartError, Step};

use crate::testing::starts::{addition, avoiding, map, originals, scheduling, steps, template};
use crate::testing::{apply, job, pruned};

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
    json_patch::merge(&mut object["spec"], &json!({"completionMode": "Indexed", "completions": 3}));
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
        // The manager dies after `crash` steps; its successor observes again and continues.
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
