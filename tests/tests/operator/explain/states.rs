//! The page's answers in states in which nothing can be tried, on real objects; and that its advice lets the job start.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, Secret};
use kube::api::{Api, DynamicObject};
use sluice_testkit::workloads;

use super::*;

const WORLD: &str = r"
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: budget}
spec: {controllerName: example.com/budget}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: cq}
spec:
  namespaceSelector: {matchLabels: {team: blue}}
  stopPolicy: Hold
  admissionChecksStrategy: {admissionChecks: [{name: budget}]}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: default, resources: [{name: cpu, nominalQuota: 4}]}]
";
const LOCAL_QUEUE: &str = r"
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: lq, namespace: default}
spec: {clusterQueue: cq}
";

/// The page of a Job, once it says all of this.
pub async fn says(manager: &Manager, namespace: &str, job: &str, parts: &[&str]) -> String {
    let path = format!("/debug/explain/{namespace}/{job}?kind=job");
    let found = std::sync::Mutex::new(String::new());
    eventually(&format!("the page of {job} to say {parts:?}"), DEADLINE, || async {
        let (_, page) = manager.health(&path).await?;
        let all = parts.iter().all(|part| page.contains(part));
        found.lock().unwrap().clone_from(&page);
        Ok(progress(all, page))
    })
    .await
    .unwrap();
    found.into_inner().unwrap()
}

/// The controller of the check says that it is there.
pub async fn serve_the_check(client: &Client) {
    let checks: Api<DynamicObject> = workloads::all(client, "AdmissionCheck", "admissionchecks");
    let active = json!({
        "type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": "2030-01-01T00:00:00Z",
    });
    let status = Patch::Merge(json!({"status": {"conditions": [active]}}));
    checks.patch_status("budget", &PatchParams::default(), &status).await.unwrap();
}

/// The check as its controller sets it.
pub async fn set_check(client: &Client, namespace: &str, job: &str, state: &str, message: &str) {
    let workload = workloads::of_job(client, namespace, job).await.unwrap().unwrap();
    let name = workload["metadata"]["name"].as_str().unwrap();
    let api: Api<DynamicObject> = workloads::namespaced(client, namespace, "Workload", "workloads");
    let check = json!({
        "name": "budget", "state": state, "message": message, "lastTransitionTime": "2030-01-01T00:00:00Z", "podSetUpdates": [],
    });
    let status = json!({"status": {"admissionChecks": [check]}});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

/// A pod of the job that the scheduler has no node for.
async fn pending_pod(client: &Client, job: &str) {
    let jobs: Api<Job> = Api::namespaced(client.clone(), "default");
    let uid = jobs.get(job).await.unwrap().metadata.uid.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid, "controller": true});
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {
            "name": format!("{job}-0"), "ownerReferences": [owner], "labels": {"batch.kubernetes.io/job-name": job},
        },
        "spec": {
            "imagePullSecrets": [{"name": "registry"}],
            "containers": [{"name": "c", "image": "i", "envFrom": [{"configMapRef": {"name": "settings"}}]}],
        },
    }))
    .unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let scheduled = json!({
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient cpu.",
    });
    let status = json!({"status": {"phase": "Pending", "conditions": [scheduled]}});
    pods.patch_status(&format!("{job}-0"), &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn explain_is_true_from_a_missing_queue_to_pods_without_a_node() {
    let (_turn, plane, client, setup) = plane().await;
    let manager = Manager::start(plane, setup).await.unwrap();
    apply(plane, WORLD).await.unwrap();
    serve_the_check(&client).await;
    make_job(&client, "default", "mine", 6).await;

    let missing = "the LocalQueue lq does not exist in the namespace default";
    let page = says(&manager, "default", "mine", &[missing, "estimated start: not known"]).await;
    assert!(page.contains("kubectl kueue create localqueue lq -n default -c CLUSTERQUEUE"), "{page}");
    apply(plane, LOCAL_QUEUE).await.unwrap();

    // Both the stop and the selector are in the way; each is said, with the command that ends it.
    let stopped = "kubectl kueue resume clusterqueue cq";
    says(
        &manager,
        "default",
        "mine",
        &["it asks for team=blue", stopped, "kubectl label namespace default team=blue"],
    )
    .await;
    let resume = plugin_run(plane, &["resume", "clusterqueue", "cq"]).await;
    assert!(resume.status.success(), "{}", String::from_utf8_lossy(&resume.stderr));
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let label = Patch::Merge(json!({"metadata": {"labels": {"team": "blue"}}}));
    namespaces.patch("default", &PatchParams::default(), &label).await.unwrap();

    says(
        &manager,
        "default",
        "mine",
        &["can have at most 4 of flavor default", "ask for at most 4 pods of 1 cpu each"],
    )
    .await;
    let jobs: Api<Job> = Api::namespaced(client.clone(), "default");
    let fewer = Patch::Merge(json!({"spec": {"parallelism": 4}}));
    jobs.patch("mine", &PatchParams::default(), &fewer).await.unwrap();

    says(&manager, "default", "mine", &["the admission check budget is Pending"]).await;
    set_check(&client, "default", "mine", "Pending", "the budget office is asked\u{1b}[2J").await;
    let page = says(&manager, "default", "mine", &["the budget office is asked\\u{1b}[2J"]).await;
    assert!(page.contains("estimated start: not known: how long the checks take is not known"), "{page}");
    assert!(!page.contains("admitted\n") && !page.contains("in 0s"), "{page}");
    set_check(&client, "default", "mine", "Rejected", "too dear").await;
    let deactivated = ["it is deactivated by the manager (", "too dear", "estimated start: not known"];
    let page = says(&manager, "default", "mine", &deactivated).await;
    resume_as_said(plane, &page).await;
    says(&manager, "default", "mine", &["the admission check budget is Pending"]).await;
    set_check(&client, "default", "mine", "Ready", "").await;
    wait_until_started(&client, "default", "mine").await;

    // Here is no controller that makes pods.
    let page =
        says(&manager, "default", "mine", &["admitted with 4 pod(s), and 4 of them are not there"]).await;
    assert!(page.contains("kubectl describe job mine -n default"), "{page}");
    // What became of it before is in its events.
    assert!(page.contains("EvictedDueToDeactivated"), "{page}");
    pending_pod(&client, "mine").await;
    let missing = "admitted with 4 pod(s), and 3 of them are not there";
    let page = says(
        &manager,
        "default",
        "mine",
        &["1 of its pods are not scheduled", "3 Insufficient cpu.", missing],
    )
    .await;
    assert!(page.contains("add nodes: the quota of the flavor promises more"), "{page}");
    bind(&client, "mine").await;
    containers_run_when_what_is_advised_is_done(plane, &client, &manager, missing).await;
}

/// Runs the command of the page that activates the Workload.
async fn resume_as_said(plane: &ControlPlane, page: &str) {
    let command = page.lines().map(str::trim).find(|line| line.starts_with("kubectl kueue resume workload "));
    let words: Vec<&str> = command.unwrap_or_else(|| unreachable!("{page}")).split(' ').skip(2).collect();
    let resumed = plugin_run(plane, &words).await;
    assert!(resumed.status.success(), "{}", String::from_utf8_lossy(&resumed.stderr));
}

/// Each reason for which a container does not run is ended as the page says.
async fn containers_run_when_what_is_advised_is_done(
    plane: &ControlPlane,
    client: &Client,
    manager: &Manager,
    missing: &str,
) {
    kubelet(client, "mine").await;
    let page =
        says(manager, "default", "mine", &["mine-0: its node has not reported on it yet", missing]).await;
    let advice = "let an administrator see whether its node is ready: its kubelet has not taken the pod yet";
    assert!(page.contains(advice), "{page}");
    let described = as_said(plane, "kubectl describe node n0").await;
    assert!(described.contains("it is off"), "{described}");
    set_node(client, "True", "it is on").await;

    let waiting = json!({"waiting": {"reason": "ContainerCreating"}});
    set_container(client, "mine", "Pending", &waiting).await;
    let page = says(manager, "default", "mine", &["mine-0: container c: ContainerCreating"]).await;
    assert!(page.contains("wait: its node prepares it"), "{page}");

    kubelet(client, "mine").await;
    let waits = "mine-0: container c: ImagePullBackOff: no such image";
    let page =
        says(manager, "default", "mine", &["1 of its pods have a node and do not run yet", waits, missing])
            .await;
    assert!(!page.contains("not scheduled"), "{page}");
    let image = "kubectl set image pod/mine-0 c=IMAGE -n default";
    assert!(page.contains(&format!("correct the image of the container ({image}")), "{page}");
    let describe = "kubectl describe pod mine-0 -n default";
    assert!(page.contains(describe), "{page}");
    let described = as_said(plane, describe).await;
    assert!(described.contains("ImagePullBackOff"), "{described}");
    as_said(plane, &image.replace("IMAGE", GOOD_IMAGE)).await;

    // That image is there, and its registry wants a password.
    kubelet(client, "mine").await;
    let waits = "mine-0: container c: ErrImagePull: pull access denied";
    let page = says(manager, "default", "mine", &[waits]).await;
    assert!(page.contains("or let its nodes reach the registry (imagePullSecrets)"), "{page}");
    let secret = "kubectl create secret docker-registry registry -n default --docker-server=registry.example.com \
                  --docker-username=u --docker-password=p";
    as_said(plane, secret).await;

    kubelet(client, "mine").await;
    let waits = "mine-0: container c: CreateContainerConfigError: configmap \"settings\" not found";
    let page = says(manager, "default", "mine", &[waits]).await;
    assert!(page.contains("create the ConfigMap or Secret that the container names"), "{page}");
    as_said(plane, "kubectl create configmap settings -n default --from-literal=mode=half").await;

    kubelet(client, "mine").await;
    let waits = "mine-0: container c: PostStartHookError: the mode half is not known";
    let page = says(manager, "default", "mine", &[waits]).await;
    assert!(page.contains("change what the message of the container names"), "{page}");
    let described = as_said(plane, describe).await;
    assert!(described.contains("PostStartHookError"), "{described}");
    set_mode(plane, "wrong").await;

    kubelet(client, "mine").await;
    let page = says(manager, "default", "mine", &["mine-0: container c: CrashLoopBackOff"]).await;
    assert!(page.contains("find out why the container ends; it keeps being restarted"), "{page}");
    // There is no kubelet that has logs: what they would say is mended.
    assert!(page.contains("kubectl logs mine-0 -n default -c c --previous"), "{page}");
    set_mode(plane, "right").await;

    kubelet(client, "mine").await;
    let page = says(manager, "default", "mine", &[missing]).await;
    assert!(!page.contains("do not run yet"), "{page}");
}

async fn set_mode(plane: &ControlPlane, mode: &str) {
    let data = json!({"data": {"mode": mode}}).to_string();
    kubectl(plane, &["patch", "configmap", "settings", "-n", "default", "-p", &data]).await.unwrap();
}

/// Runs a command of the page.
async fn as_said(plane: &ControlPlane, command: &str) -> String {
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    kubectl(plane, &words).await.unwrap()
}

/// Whether the node of the pod is ready.
async fn set_node(client: &Client, ready: &str, message: &str) {
    let now = "2030-01-01T00:00:00Z";
    let ready = json!({
        "type": "Ready", "status": ready, "reason": "Kubelet", "message": message, "lastHeartbeatTime": now, "lastTransitionTime": now,
    });
    let status = Patch::Merge(json!({"status": {"conditions": [ready]}}));
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.patch_status("n0", &PatchParams::default(), &status).await.unwrap();
}

/// The pod of the job gets a node, which is not ready.
async fn bind(client: &Client, job: &str) {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = serde_json::from_value(json!({"metadata": {"name": "n0"}})).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    set_node(client, "False", "it is off").await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let name = format!("{job}-0");
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"apiVersion": "v1", "kind": "Node", "name": "n0"},
    });
    let _: Value = pods.create_subresource("binding", &name, &PostParams::default(), &binding).await.unwrap();
}

/// The only image that there is.
const GOOD_IMAGE: &str = "good";

/// Says of the container what its node's kubelet would, by what there is; nothing while the node is not ready.
async fn kubelet(client: &Client, job: &str) {
    let nodes: Api<Node> = Api::all(client.clone());
    let conditions = nodes.get("n0").await.unwrap().status.and_then(|status| status.conditions);
    if conditions.into_iter().flatten().all(|condition| condition.status != "True") {
        return;
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let pod = pods.get(&format!("{job}-0")).await.unwrap();
    let image = pod.spec.unwrap().containers[0].image.clone();
    let settings: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let settings = settings.get_opt("settings").await.unwrap().map(|found| found.data.unwrap_or_default());
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
    let may_pull = secrets.get_opt("registry").await.unwrap().is_some();
    let waiting = |reason: &str, message: &str| json!({"waiting": {"reason": reason, "message": message}});
    let (phase, state) = match (image.as_deref(), settings) {
        (Some(GOOD_IMAGE), _) if !may_pull => ("Pending", waiting("ErrImagePull", "pull access denied")),
        (Some(GOOD_IMAGE), None) => {
            ("Pending", waiting("CreateContainerConfigError", "configmap \"settings\" not found"))
        }
        (Some(GOOD_IMAGE), Some(settings)) if settings["mode"] == "half" => {
            ("Running", waiting("PostStartHookError", "the mode half is not known"))
        }
        (Some(GOOD_IMAGE), Some(settings)) if settings["mode"] == "wrong" => {
            ("Running", waiting("CrashLoopBackOff", "back-off 10s restarting failed container"))
        }
        (Some(GOOD_IMAGE), Some(_)) => ("Running", json!({"running": {"startedAt": "2030-01-01T00:00:00Z"}})),
        _ => ("Pending", waiting("ImagePullBackOff", "no such image")),
    };
    set_container(client, job, phase, &state).await;
}

/// As the kubelet says it.
async fn set_container(client: &Client, job: &str, phase: &str, state: &Value) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let container = json!({
        "name": "c", "image": "i", "imageID": "", "ready": state["running"].is_object(), "restartCount": 0, "state": state,
    });
    let status = Patch::Merge(json!({"status": {"phase": phase, "containerStatuses": [container]}}));
    pods.patch_status(&format!("{job}-0"), &PatchParams::default(), &status).await.unwrap();
}

async fn plugin_run(plane: &ControlPlane, args: &[&str]) -> Output {
    let kubeconfig = plane.kubeconfig_path().display().to_string();
    let mut args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    args.extend(["--kubeconfig".to_owned(), kubeconfig]);
    let ran = tokio::task::spawn_blocking(move || {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        run(&plugin().unwrap(), &args)
    });
    ran.await.unwrap()
}
