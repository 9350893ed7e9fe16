//! The book's pages about queues, as an administrator follows them: manifests are applied and every command is typed, page after page.

use std::fs;

use sluice_testkit::ControlPlane;
use sluice_testkit::kubectl::{apply, kubectl, try_kubectl};
use sluice_testkit::wait::{eventually, progress};
use sluice_tests::book;
use sluice_tests::place::DEADLINE;

/// What pages take for granted: the job and the queues that their commands name.
const NAMED: &str = r"
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: gpus}
spec: {namespaceSelector: {}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: other, namespace: team-a}
spec: {clusterQueue: gpus}
---
apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: team-a, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  parallelism: 4
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: busybox, resources: {requests: {cpu: 100, memory: 1Gi}}}]
";

/// The fenced blocks of a page in a language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    book::blocks(page, language).unwrap()
}

/// Types a script; what it printed.
async fn typed(plane: &ControlPlane, script: &str) -> String {
    book::typed(plane, plane.folder(), script).await.unwrap()
}

pub async fn its_pages_work_as_they_are_typed(plane: &ControlPlane) {
    the_first_job_runs(plane).await;
    let quotas = "docs/tasks/team-quotas.md";
    let commands = blocks(quotas, "sh");
    typed(plane, &commands[0]).await;
    for manifest in blocks(quotas, "yaml") {
        apply(plane, &manifest).await.unwrap();
    }
    for stop in commands[1..].iter().chain(&blocks("docs/tasks/maintenance.md", "sh")) {
        typed(plane, stop).await;
    }
    let policy = kubectl(plane, &["get", "clusterqueue", "team-a", "-o", "jsonpath={.spec.stopPolicy}"]);
    assert_eq!(policy.await.unwrap(), "None", "the queue continues");
    for roles in blocks("docs/tasks/rbac.md", "sh") {
        typed(plane, &roles).await;
    }
    let may = ["auth", "can-i", "create", "jobs", "-n", "team-a", "--as", "alice", "--as-group", "team-a"];
    eventually("the role to be known", DEADLINE, || async {
        let answer = try_kubectl(&plane.kubeconfig_path(), &may, None).await?;
        Ok(progress(answer.stdout.trim() == "yes", answer.stdout))
    })
    .await
    .unwrap();
    apply(plane, NAMED).await.unwrap();
    let waits =
        ["get", "workloads", "-n", "team-a", "-o", "jsonpath={.items[*].status.conditions[*].reason}"];
    eventually("the job to wait", DEADLINE, || async {
        let reasons = kubectl(plane, &waits).await?;
        Ok(progress(reasons.contains("ExceedsMaxQuota"), reasons))
    })
    .await
    .unwrap();
    let mut printed = String::new();
    for page in ["docs/tasks/visibility.md", "docs/troubleshooting/symptoms.md"] {
        for commands in blocks(page, "sh") {
            printed += &typed(plane, &commands).await;
        }
    }
    for said in ["POSITION IN QUEUE", "PendingWorkloadsSummary", "team-a/train"] {
        assert!(printed.contains(said), "{said:?} is missing:\n{printed}");
    }
}

/// The page of the first five minutes on a cluster, from its queues on.
async fn the_first_job_runs(plane: &ControlPlane) {
    let page = "docs/start/cluster.md";
    let manifests = blocks(page, "yaml");
    assert_eq!(manifests.len(), 2, "queues and a job: {manifests:?}");
    apply(plane, &manifests[0]).await.unwrap();
    let folder = plane.folder().join("book");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("job.yaml"), &manifests[1]).unwrap();
    let job = format!("{}/job.yaml", folder.display());
    let made = kubectl(plane, &["create", "-f", &job, "-o", "name"]).await.unwrap();
    let name = made.trim().rsplit('/').next().unwrap();
    let suspended = ["get", "job", name, "-o", "jsonpath={.spec.suspend}"];
    eventually("the job to start", DEADLINE, || async {
        let suspended = kubectl(plane, &suspended).await?;
        Ok(progress(suspended == "false", suspended))
    })
    .await
    .unwrap();
    let watch = blocks(page, "sh").pop().unwrap();
    assert!(watch.contains("hello-abcde"), "{watch}");
    let printed = typed(plane, &watch.replace("hello-abcde", name)).await;
    assert!(printed.contains("team-a") && printed.contains(name), "{printed}");
    for object in ["localqueue/main", "clusterqueue/team-a", "resourceflavor/default-flavor"] {
        kubectl(plane, &["delete", object, "--wait=false"]).await.unwrap();
    }
    kubectl(plane, &["delete", "job", name]).await.unwrap();
    eventually("the queue to be gone", DEADLINE, || async {
        let found = kubectl(plane, &["get", "clusterqueues", "-o", "name"]).await?;
        Ok(progress(!found.contains("/team-a"), found))
    })
    .await
    .unwrap();
}
