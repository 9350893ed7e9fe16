//! Jobs without a Workload of their own: the answer's advice lets them run, on a real control plane.

use k8s_openapi::api::batch::v1::Job;
use sluice_testkit::jobset::JobSet;
use sluice_tests::place::{Place, QUEUE_NAME, create, job, patch};

use super::advice::{follow, found, remedy, wait_for_pods};
use super::*;
use crate::bed::bed;

const PREBUILT: &str = "kueue.x-k8s.io/prebuilt-workload-name";

#[tokio::test(flavor = "multi_thread")]
async fn a_question_about_a_job_of_a_jobset_leads_to_what_lets_it_run() {
    let place = Place::new(bed().await.plane, "explain-part", 4).await.unwrap();
    patch(&place.local_queues(), "lq", json!({"spec": {"stopPolicy": "Hold"}})).await.unwrap();
    let workers = json!({"name": "workers", "template": {"spec": job("none", "lq", 1, 1, 3_600)["spec"]}});
    let set = json!({
        "metadata": {"name": "set", "labels": {QUEUE_NAME: "lq"}}, "spec": {"replicatedJobs": [workers]},
    });
    let jobsets: Api<JobSet> = Api::namespaced(place.client.clone(), &place.name);
    jobsets.create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await.unwrap();
    place.wait_for_condition("set", "QuotaReserved", "False").await.unwrap();
    // Its controller makes the Job, which waits with it. A queue of its own, which it does not name, is not asked for.
    let part = found(&place, "set-workers-0", &["PartOfAnother"]).await;
    let whole = follow(&place, remedy(&part, "ask about the jobset set")).await;
    let whole: Value = serde_json::from_str(&whole).unwrap();
    assert_eq!(
        (&whole["job"], &whole["findings"][0]["code"]),
        (&json!("explain-part/set"), &json!("LocalQueueStopped"))
    );
    follow(&place, remedy(&whole, "starts now: resume the LocalQueue lq")).await;
    wait_for_pods(&place, "set-workers-0", 1).await;
}

fn of_workload(name: &str, workload: &str) -> Value {
    let mut job = job(name, "lq", 1, 1, 3_600);
    job["metadata"]["labels"][PREBUILT] = json!(workload);
    job
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_wait_for_a_workload_of_a_name_are_led_to_one() {
    let place = Place::new(bed().await.plane, "explain-prebuilt", 4).await.unwrap();
    place.make_job(&of_workload("first", "ready-made")).await.unwrap();
    let answer = found(&place, "first", &["WithoutWorkload"]).await;
    remedy(&answer, &format!("create the Workload ready-made, or create the job again without {PREBUILT}"));
    // The same pods as the Job's, as the API server keeps them.
    let first = serde_json::to_value(place.jobs().get("first").await.unwrap()).unwrap();
    let template = json!({"spec": first["spec"]["template"]["spec"]});
    let set = json!({"name": "main", "count": 1, "template": template});
    let made = json!({"metadata": {"name": "ready-made"}, "spec": {"queueName": "lq", "podSets": [set]}});
    create(&place.workloads(), made).await.unwrap();
    place.wait_until("first", true).await.unwrap();

    // Another wants the same: only its events say that it cannot.
    place.make_job(&of_workload("second", "ready-made")).await.unwrap();
    let trouble = "The prebuilt workload explain-prebuilt/ready-made belongs to another job";
    place.wait_for_event("Job/second", "ErrWorkloadCompose", trouble).await.unwrap();
    let answer = found(&place, "second", &["WithoutWorkload"]).await;
    let described = follow(&place, remedy(&answer, "read its events")).await;
    assert!(described.contains(trouble), "{described}");
    place.delete_job("second").await.unwrap();
    let jobs: Api<Job> = place.jobs();
    eventually("the second Job to go", DEADLINE, || async {
        Ok(progress(jobs.get_opt("second").await?.is_none(), "it is there"))
    })
    .await
    .unwrap();
    place.make_job(&job("second", "lq", 1, 1, 3_600)).await.unwrap();
    place.wait_until("second", true).await.unwrap();
    found(&place, "second", &[]).await;
}
