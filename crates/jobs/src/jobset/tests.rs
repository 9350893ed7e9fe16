//! JobSets: what is read of them, how they start and stop.

use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_api::job::{JobFinished, JobKind, JobView, PodSetInfo};
use sluice_jobs::StartError;

use crate::testing::starts::{addition, avoiding, originals, scheduling, steps, template};
use crate::testing::{apply, jobset, pruned};

fn observe_jobset(change: impl FnOnce(&mut Value)) -> JobView {
    let mut object = jobset();
    change(&mut object);
    sluice_jobs::observe(JobKind::JOB_SET, &object)
}

#[test]
fn a_jobset_has_a_pod_set_per_replicated_job() {
    let view = observe_jobset(|_| {});
    let sets: Vec<_> =
        view.pod_sets.iter().map(|set| (set.name.as_str(), set.count, set.has_template_metadata)).collect();
    assert_eq!(sets, [("slice", 4, false), ("driver", 1, true)]);
    assert_eq!(view.pod_priority_class.as_deref(), Some("high"));
    assert_eq!(view.queue_name.as_deref(), Some("multislice-queue"));
    assert!(view.suspended);
    insta::assert_yaml_snapshot!(view.pod_sets.iter().map(|set| set.template.as_deref()).collect::<Vec<_>>());
}

#[test]
fn pods_of_a_jobset_are_numbered_by_replica_with_or_without_annotations() {
    let view = observe_jobset(|jobset| jobset["spec"]["replicatedJobs"][0]["replicas"] = json!(3));
    let request = view.pod_sets[0].topology_request.as_deref().unwrap();
    assert_eq!(
        json!(request),
        json!({
            "podIndexLabel": "batch.kubernetes.io/job-completion-index",
            "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index",
            "subGroupCount": 3,
        })
    );
    assert!(view.pod_sets.iter().all(|set| set.topology_request.is_some()));
}

#[test]
fn a_replicated_jobs_own_exclusive_topology_goes_before_the_jobsets() {
    let key = "alpha.jobset.sigs.k8s.io/exclusive-topology";
    let topologies = |view: JobView| {
        let sets = view.pod_sets.into_iter();
        sets.map(|set| set.exclusive_topology.map(|e| (e.key, e.replicas))).collect::<Vec<_>>()
    };
    let plain = |jobset: &mut Value| jobset["metadata"]["annotations"] = json!({});
    assert!(topologies(observe_jobset(plain)).iter().all(Option::is_none));
    let all = topologies(observe_jobset(|jobset| {
        jobset["metadata"]["annotations"] = json!({key: "pool"});
        jobset["spec"]["replicatedJobs"][0]["replicas"] = json!(3);
        jobset["spec"]["replicatedJobs"][0]["template"]["metadata"] = json!({"annotations": {key: "rack"}});
    }));
    assert_eq!(all[0], Some(("rack".to_owned(), 3)));
    assert!(all[1..].iter().all(|topology| topology.as_ref().is_some_and(|(key, _)| key == "pool")));
}

#[test]
fn the_state_of_a_jobset_is_the_sum_over_its_jobs() {
    let with = |status: Value| observe_jobset(|jobset| jobset["status"] = status);
    let view = with(json!({"replicatedJobsStatus": [
        {"name": "Slice", "active": 1, "ready": 1, "succeeded": 1}, {"name": "driver", "active": 0, "ready": 1}]}));
    assert!(view.active && view.pods_ready);
    assert_eq!(view.reclaimable, [("slice".to_owned(), 2)]);
    let view = with(
        json!({"replicatedJobsStatus": [{"name": "Slice", "ready": 1}, {"name": "driver", "ready": 1}]}),
    );
    assert!(!view.active && !view.pods_ready);
    let view =
        with(json!({"conditions": [{"type": "Completed", "status": "True", "message": "jobset completed"}]}));
    assert_eq!(view.finished, Some(JobFinished { success: true, message: "jobset completed".to_owned() }));
    let view = with(json!({"conditions": [{"type": "Failed", "status": "True"}]}));
    assert_eq!(view.finished, Some(JobFinished { success: false, message: String::new() }));
}

#[test]
fn what_cannot_become_a_workload_says_why() {
    let replicated = |n| json!({"name": format!("j{n}"), "template": {"spec": {"template": {"spec": {"containers": []}}}}});
    let many: Vec<_> = (0..19).map(replicated).collect();
    for (view, expected) in [
        (
            observe_jobset(|set| set["spec"]["replicatedJobs"][1]["template"] = Value::Null),
            "spec.replicatedJobs[1].template.spec.template",
        ),
        (
            observe_jobset(|set| set["spec"]["replicatedJobs"] = json!(many)),
            "too many pod sets: 19, at most 18",
        ),
    ] {
        let text = view.invalid.unwrap();
        assert!(view.pod_sets.is_empty() && text.starts_with(expected), "{text}");
    }
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

#[test]
fn a_jobset_stops_in_one_step() {
    let original = sluice_jobs::observe(JobKind::JOB_SET, &jobset());
    let infos = [addition("slice", 4), addition("driver", 1)];
    let started = apply(&jobset(), &sluice_jobs::start(&original, &infos).unwrap()).unwrap();
    let view = sluice_jobs::observe(JobKind::JOB_SET, &started);
    insta::assert_json_snapshot!(steps(&sluice_jobs::stop(&view, &originals(&original))));
}

proptest! {
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

#[test]
fn a_jobset_starts_again_with_the_replicas_that_have_not_succeeded() {
    let mut object = jobset();
    object["status"]["replicatedJobsStatus"] =
        json!([{"name": "Slice", "succeeded": 1}, {"name": "driver", "succeeded": 1}]);
    let view = sluice_jobs::observe(JobKind::JOB_SET, &object);
    let of = |slice, driver| {
        let named = |name: &str, count| PodSetInfo { name: name.to_owned(), count, ..PodSetInfo::default() };
        sluice_jobs::start(&view, &[named("slice", slice), named("driver", driver)])
    };
    assert!(of(2, 0).is_ok() && of(4, 1).is_ok());
    assert!(matches!(of(1, 0), Err(StartError::Count { admitted: 1, needed: 2, .. })));
}
