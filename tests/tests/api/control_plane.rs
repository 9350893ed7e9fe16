//! Tests of the test control planes themselves, on which the other suites rely.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, ListParams, PostParams};
use serde_json::json;
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::{ControlPlane, nodes, shared};
use sluice_tests::place::DEADLINE;

fn job(name: &str, pods: u32, annotations: &serde_json::Value) -> Job {
    let job = json!({
        "metadata": { "name": name },
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "backoffLimit": 0,
            "template": {
                "metadata": { "annotations": annotations },
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{
                        "name": "main",
                        "image": "example.com/none",
                        "resources": { "requests": { "cpu": "1" } },
                    }],
                },
            },
        },
    });
    serde_json::from_value(job).unwrap()
}

fn condition(job: &Job, kind: &str) -> bool {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|one| one.type_ == kind && one.status == "True"))
}

#[tokio::test]
async fn a_job_with_three_pods_completes_on_a_fake_node_and_another_fails() {
    let plane = shared().await.unwrap();
    let client = plane.client().await.unwrap();
    nodes::pool("plain", 1).make(&client).await.unwrap();
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    let runs = json!({ "sluice.dev/run-seconds": "1" });
    jobs.create(&PostParams::default(), &job("three", 3, &runs)).await.unwrap();
    let fails = json!({ "sluice.dev/fail-after-seconds": "0.5" });
    jobs.create(&PostParams::default(), &job("failing", 1, &fails)).await.unwrap();
    for (name, kind) in [("three", "Complete"), ("failing", "Failed")] {
        eventually(&format!("{name} to be {kind}"), DEADLINE, || async {
            let job = jobs.get(name).await?;
            Ok(progress(condition(&job, kind), format!("{:?}", job.status)))
        })
        .await
        .unwrap();
    }
    assert_eq!(jobs.get_status("three").await.unwrap().status.unwrap().succeeded, Some(3));
    let pods: Api<Pod> = Api::default_namespaced(client);
    let all = pods.list(&ListParams::default().labels("job-name=three")).await.unwrap();
    for pod in all {
        let status = pod.status.unwrap();
        assert!(status.pod_ip.is_some());
        let kinds: Vec<&str> =
            status.conditions.as_ref().unwrap().iter().map(|one| one.type_.as_str()).collect();
        assert!(kinds.contains(&"PodScheduled") && kinds.contains(&"Ready"), "{kinds:?}");
    }
}

#[tokio::test]
async fn the_api_server_comes_back_with_its_data_and_everything_is_gone_at_the_end() {
    let plane = ControlPlane::builder().start().await.unwrap();
    plane.make_namespace("keeps").await.unwrap();
    plane.restart_api_server().await.unwrap();
    let namespaces: Api<Namespace> = Api::all(plane.client().await.unwrap());
    namespaces.get("keeps").await.unwrap();
    let (folder, programs) = (plane.folder().to_path_buf(), plane.program_ids());
    assert!(programs.len() == 2 && folder.exists());
    plane.stop();
    assert!(!folder.exists());
    for id in programs {
        assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
    }
}
