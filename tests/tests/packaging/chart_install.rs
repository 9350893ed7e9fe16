//! The chart and the plain manifests on a real API server, without a manager behind them: what is blocked then, the rights of users, and what an
//! upgrade leaves unchanged.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use serde_json::{Value, json};
use sluice_testkit::assets::workspace;
use sluice_testkit::kubectl::{self, Output, kubectl, try_kubectl};
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::{ControlPlane, Setup, chart, crds as definitions, jobset};
use sluice_tests::book::{blocks, typed};
use sluice_tests::place::DEADLINE;
use tokio::sync::OnceCell;

const SECRET: [&str; 6] = ["-n", chart::NAMESPACE, "get", "secret", "kueue-webhook-server-cert", "-ojson"];

struct Installed {
    plane: ControlPlane,
    setup: Setup,
}

static INSTALLED: OnceCell<Installed> = OnceCell::const_new();

/// One plane with JobSet's CRD and the chart for a manager outside that never runs. The tests that share it use names of their own.
async fn installed() -> &'static Installed {
    let start = || async {
        let plane = ControlPlane::builder().controller_manager(true).start().await.unwrap();
        jobset::install_crd(&plane.client().await.unwrap()).await.unwrap();
        let setup = chart::install(&plane, Setup::new(&plane).unwrap(), &json!({})).await.unwrap();
        Installed { plane, setup }
    };
    INSTALLED.get_or_init(start).await
}

async fn create(plane: &ControlPlane, object: &Value) -> Output {
    try_kubectl(&plane.kubeconfig_path(), &["create", "-f", "-"], Some(&object.to_string())).await.unwrap()
}

fn job(namespace: &str, name: &str, metadata: &Value) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": { "name": name, "namespace": namespace },
        "spec": { "template": { "spec": {
            "restartPolicy": "Never", "containers": [{ "name": "main", "image": "busybox" }],
        } } },
    });
    for (key, value) in metadata.as_object().unwrap() {
        job["metadata"][key] = value.clone();
    }
    job
}

#[tokio::test]
async fn with_the_manager_down_only_queued_jobs_are_refused() {
    let plane = &installed().await.plane;
    plane.make_namespace("down").await.unwrap();
    let queue = json!({ "kueue.x-k8s.io/queue-name": "queue" });
    let (label, annotation) = (json!({ "labels": queue }), json!({ "annotations": queue }));

    for (name, metadata) in [("by-label", &label), ("by-annotation", &annotation)] {
        let refused = create(plane, &job("down", name, metadata)).await;
        assert!(!refused.success && refused.stderr.contains("failed calling webhook"), "{name}: {refused:?}");
    }
    let free = create(plane, &job("down", "free", &json!({}))).await;
    assert!(free.success, "{free:?}");
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "free", "namespace": "down" },
        "spec": { "containers": [{ "name": "main", "image": "busybox" }] },
    });
    let pod = create(plane, &pod).await;
    assert!(pod.success, "{pod:?}");
    // An administrator of the cluster can always repair it.
    for namespace in ["kube-system", chart::NAMESPACE] {
        let system = create(plane, &job(namespace, "system", &label)).await;
        assert!(system.success, "{namespace}: {system:?}");
    }
    // A queue name can be neither given nor taken away behind the manager's back.
    let kubeconfig = plane.kubeconfig_path();
    let args = ["-n", "down", "label", "job", "free", "kueue.x-k8s.io/queue-name=queue"];
    let given = try_kubectl(&kubeconfig, &args, None).await.unwrap();
    assert!(!given.success && given.stderr.contains("failed calling webhook"), "{given:?}");
}

#[tokio::test]
async fn with_the_manager_down_reading_works_in_the_stored_version() {
    let plane = &installed().await.plane;
    kubectl(plane, &["get", "clusterqueues.v1beta2.kueue.x-k8s.io"]).await.unwrap();
    kubectl(plane, &["get", "workloads", "-A"]).await.unwrap();
}

#[tokio::test]
async fn an_upgrade_leaves_the_manager_s_certificates_alone() {
    let Installed { plane, setup } = installed().await;
    // What the manager does once it runs.
    let bundle = "Q0E=";
    for kind in ["mutating", "validating"] {
        let name = format!("kueue-{kind}-webhook-configuration");
        let patch = json!([{ "op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": bundle }]);
        let resource = format!("{kind}webhookconfiguration");
        kubectl(plane, &["patch", &resource, &name, "--type=json", "-p", &patch.to_string()]).await.unwrap();
    }
    let secret = json!({ "data": { "tls.crt": "Y2VydA==" } }).to_string();
    let args = ["-n", chart::NAMESPACE, "patch", "secret", "kueue-webhook-server-cert", "-p", &secret];
    kubectl(plane, &args).await.unwrap();

    chart::install(plane, setup.clone(), &json!({ "commonLabels": { "upgraded": "yes" } })).await.unwrap();

    let secret: Value = serde_json::from_str(&kubectl(plane, &SECRET).await.unwrap()).unwrap();
    assert_eq!(secret["metadata"]["labels"]["upgraded"], "yes");
    assert_eq!(secret["data"]["tls.crt"], "Y2VydA==");
    for kind in ["mutating", "validating"] {
        let (resource, name) =
            (format!("{kind}webhookconfiguration"), format!("kueue-{kind}-webhook-configuration"));
        let got = kubectl(plane, &["get", &resource, &name, "-ojson"]).await.unwrap();
        let got: Value = serde_json::from_str(&got).unwrap();
        assert_eq!(got["webhooks"][0]["clientConfig"]["caBundle"], bundle, "{kind}");
    }
}

async fn can(plane: &ControlPlane, who: &[&str], what: &[&str]) -> bool {
    let args: Vec<&str> = ["auth", "can-i"].iter().chain(what).chain(who).copied().collect();
    let output = try_kubectl(&plane.kubeconfig_path(), &args, None).await.unwrap();
    output.stdout.trim() == "yes"
}

/// A user has these rights, and the others not. What is allowed comes first: the controller that aggregates roles, and the API server, take notice of
/// a role or a binding a moment later.
async fn has_rights(plane: &ControlPlane, user: &str, rights: &[(String, bool)]) {
    let asked = async |what: &str| {
        let words: Vec<&str> = what.split(' ').collect();
        can(plane, &["--as", user], &words).await
    };
    for (what, _) in rights.iter().filter(|(_, allowed)| *allowed) {
        eventually(&format!("{user} may {what}"), DEADLINE, || async {
            Ok(progress(asked(what).await, "not allowed"))
        })
        .await
        .unwrap();
    }
    for (what, _) in rights.iter().filter(|(_, allowed)| !*allowed) {
        assert!(!asked(what).await, "{user} may {what}");
    }
}

#[tokio::test]
async fn people_have_the_rights_of_their_roles_and_none_may_admit_itself() {
    let plane = &installed().await.plane;
    plane.make_namespace("people").await.unwrap();
    for (role, user) in
        [("kueue-batch-admin-role", "alice"), ("kueue-batch-user-role", "bob"), ("view", "carol")]
    {
        let binding = format!("people-{user}");
        let args = ["create", "clusterrolebinding", &binding, "--clusterrole", role, "--user", user];
        kubectl(plane, &args).await.unwrap();
    }
    let expected = [
        ("alice", "create clusterqueues", true),
        ("alice", "delete resourceflavors", true),
        ("alice", "create localqueues", true),
        ("alice", "patch workloads", true),
        ("alice", "update workloads --subresource=status", false),
        ("alice", "create jobs", true),
        ("bob", "create jobs", true),
        ("bob", "create jobsets.jobset.x-k8s.io", true),
        ("bob", "list localqueues", true),
        ("bob", "get workloads", true),
        ("bob", "create clusterqueues", false),
        ("bob", "create localqueues", false),
        ("bob", "patch workloads", false),
        ("bob", "update workloads --subresource=status", false),
        ("bob", "patch workloads --subresource=status", false),
        ("carol", "get workloads", true),
        ("carol", "create jobs", false),
        ("carol", "get clusterqueues", false),
    ];
    for user in ["alice", "bob", "carol"] {
        let rights = expected.iter().filter(|(who, ..)| *who == user);
        let rights = rights.map(|(_, what, allowed)| (format!("{what} -n people"), *allowed));
        has_rights(plane, user, &rights.collect::<Vec<_>>()).await;
    }
}

#[tokio::test]
async fn the_manager_reaches_its_own_objects_and_no_secrets_of_others() {
    let plane = &installed().await.plane;
    let account = format!("system:serviceaccount:{}:{}", chart::NAMESPACE, chart::SERVICE_ACCOUNT);
    let expected = [
        ("patch workloads --subresource=status -n default", true),
        ("create workloads -n default", true),
        ("patch jobs -n default", true),
        ("patch jobsets.jobset.x-k8s.io -n default", true),
        ("create jobs -n default", false),
        ("create pods -n default", false),
        ("patch clusterqueues", true),
        ("create clusterqueues", false),
        ("get secrets/kueue-webhook-server-cert -n kueue-system", true),
        ("get secrets/other -n kueue-system", false),
        ("create secrets -n kueue-system", false),
        ("get secrets -n default", false),
        ("patch customresourcedefinitions/workloads.kueue.x-k8s.io", true),
        ("patch customresourcedefinitions/jobsets.jobset.x-k8s.io", false),
        ("create customresourcedefinitions", false),
        ("patch validatingwebhookconfigurations/kueue-validating-webhook-configuration", true),
        ("patch validatingwebhookconfigurations/other", false),
        ("update leases/c1f6bfd2.kueue.x-k8s.io -n kueue-system", true),
        ("update leases/other -n kueue-system", false),
        ("create tokenreviews", true),
        ("create subjectaccessreviews", true),
        ("escalate clusterroles", false),
    ];
    let rights = expected.map(|(what, allowed)| (what.to_owned(), allowed));
    has_rights(plane, &account, &rights).await;
}

#[tokio::test]
async fn plain_manifests_apply_by_kubectl_and_again_without_losing_the_certificates() {
    let plane = ControlPlane::builder().start().await.unwrap();
    let folder = workspace().join("config/default").display().to_string();
    // Plainly, from the client: the CRDs fit into the annotation that this takes.
    kubectl(&plane, &["apply", "-k", &folder]).await.unwrap();
    let patch = json!({ "data": { "ca.crt": "Y2E=" } }).to_string();
    let args = ["-n", chart::NAMESPACE, "patch", "secret", "kueue-webhook-server-cert", "-p", &patch];
    kubectl(&plane, &args).await.unwrap();
    kubectl(&plane, &["apply", "-k", &folder]).await.unwrap();
    let secret: Value = serde_json::from_str(&kubectl(&plane, &SECRET).await.unwrap()).unwrap();
    assert_eq!(secret["data"]["ca.crt"], "Y2E=");
    let conversion = "jsonpath={.spec.conversion.webhook.clientConfig.service.name}";
    let crd = ["get", "crd", "workloads.kueue.x-k8s.io", "-o", conversion];
    assert_eq!(kubectl(&plane, &crd).await.unwrap(), "kueue-webhook-service");
    they_are_upgraded_and_removed_as_the_page_says(&plane).await;
}

/// The page's blocks for those who have no helm.
async fn they_are_upgraded_and_removed_as_the_page_says(plane: &ControlPlane) {
    let page = blocks("docs/tasks/upgrade-uninstall.md", "sh").unwrap();
    let [.., remove, upgrade] = &page[..] else { unreachable!("{page:?}") };
    typed(plane, &workspace(), upgrade).await.unwrap();
    let of_the_deployment =
        ["-n", chart::NAMESPACE, "get", "deployment", "kueue-controller-manager", "-ojson"];
    let found: Value = serde_json::from_str(&kubectl(plane, &of_the_deployment).await.unwrap()).unwrap();
    let annotations = &found["spec"]["template"]["metadata"]["annotations"];
    assert!(annotations["kubectl.kubernetes.io/restartedAt"].is_string(), "new pods are made: {annotations}");
    let secret: Value = serde_json::from_str(&kubectl(plane, &SECRET).await.unwrap()).unwrap();
    assert_eq!(secret["data"]["ca.crt"], "Y2E=");

    typed(plane, &workspace(), remove).await.unwrap();
    let kinds = "deployments,services,roles,rolebindings,clusterroles,clusterrolebindings,apiservices,\
                 mutatingwebhookconfigurations,validatingwebhookconfigurations";
    let left = kubectl(plane, &["get", kinds, "-A", "-oname"]).await.unwrap();
    // The API server makes an APIService of each version of a CRD itself.
    let of_crds = ["v1beta1.kueue.x-k8s.io", "v1beta2.kueue.x-k8s.io"];
    let ours = left.lines().filter(|name| name.contains("kueue") || name.contains("sluice"));
    let ours = ours.filter(|name| !of_crds.contains(&name.rsplit('/').next().unwrap_or_default()));
    assert_eq!(ours.collect::<Vec<_>>(), [""; 0], "nothing of the manager is left");
    let kept = kubectl(plane, &["get", "namespace,crd", "-oname"]).await.unwrap();
    for name in
        ["namespace/kueue-system", "customresourcedefinition.apiextensions.k8s.io/workloads.kueue.x-k8s.io"]
    {
        assert!(kept.lines().any(|line| line == name), "{name} is kept: {kept}");
    }
}

/// Upstream's `visibility-apf.yaml`: what upstream's users apply beside the rest.
#[tokio::test]
async fn flow_control_of_the_visibility_api_applies_and_takes_its_requests() {
    // The chart is installed there without flow control.
    let plane = &installed().await.plane;
    let folder = workspace().join("config/visibility-apf").display().to_string();
    kubectl(plane, &["apply", "-k", &folder]).await.unwrap();
    let get = async |kind: &str| -> Value {
        serde_json::from_str(&kubectl(plane, &["get", kind, "visibility", "-o", "json"]).await.unwrap())
            .unwrap()
    };
    let level = get("prioritylevelconfiguration").await;
    let limited = &level["spec"]["limited"];
    assert_eq!((&limited["nominalConcurrencyShares"], &limited["lendablePercent"]), (&json!(10), &json!(90)));
    let queuing = json!({"queues": 16, "handSize": 4, "queueLengthLimit": 50});
    assert_eq!(limited["limitResponse"]["queuing"], queuing, "{level}");
    let schema = get("flowschema").await;
    assert_eq!(
        (&schema["spec"]["matchingPrecedence"], &schema["spec"]["distinguisherMethod"]["type"]),
        (&json!(9000), &json!("ByUser"))
    );
    // The API server says of a request to the visibility API that this schema took it, and of others that another did.
    let uid = schema["metadata"]["uid"].as_str().unwrap();
    let taken = async |path: &str| {
        let args = ["--as", "alice", "--as-group", "system:authenticated", "get", "--raw", path, "-v=8"];
        let said = try_kubectl(&plane.kubeconfig_path(), &args, None).await.unwrap();
        assert!(said.stderr.to_lowercase().contains("pf-flowschema-uid"), "{}", said.stderr);
        said.stderr.contains(uid)
    };
    let asked = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/cq/pendingworkloads";
    eventually("the flow control to be in force", DEADLINE, || async {
        Ok(progress(taken(asked).await, "another schema takes the request"))
    })
    .await
    .unwrap();
    assert!(taken("/apis/visibility.sluice.dev/v1alpha1/namespaces/a/workloads/w/explain").await);
    assert!(!taken("/apis/batch/v1/namespaces/a/jobs").await);
}

#[tokio::test]
async fn helm_adopts_crds_and_objects_that_are_there_already() {
    let plane = ControlPlane::builder().start().await.unwrap();
    let crds = workspace().join("config/crd").display().to_string();
    kubectl(&plane, &["apply", "--server-side", "-k", &crds]).await.unwrap();
    definitions::wait_until_served(&plane.client().await.unwrap(), definitions::own()).await.unwrap();
    let flavor = "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ResourceFlavor\nmetadata: {name: before}\n";
    kubectl::apply(&plane, flavor).await.unwrap();

    let chart_folder = workspace().join("charts/sluice").display().to_string();
    let install = ["install", chart::RELEASE, &chart_folder, "-n", chart::NAMESPACE, "--create-namespace"];
    let refused = chart::helm(&plane, &install).await.unwrap_err().to_string();
    assert!(
        refused.contains("invalid ownership metadata") || refused.contains("cannot be imported"),
        "{refused}"
    );
    let args: Vec<&str> = install.iter().chain(&["--take-ownership", "--force-conflicts"]).copied().collect();
    chart::helm(&plane, &args).await.unwrap();
    chart::helm(&plane, &["uninstall", chart::RELEASE, "-n", chart::NAMESPACE]).await.unwrap();
    let flavors = kubectl(&plane, &["get", "resourceflavors", "-o", "name"]).await.unwrap();
    assert_eq!(flavors.trim(), "resourceflavor.kueue.x-k8s.io/before");
}
