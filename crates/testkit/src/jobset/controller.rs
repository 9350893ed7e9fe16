//! The real JobSet controller as a process of the plane, with its webhooks.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::types::JobSet;
use crate::assets::{self, Tool};
use crate::controllers::certificate_folder;
use crate::plane::ControlPlane;
use crate::plane_parts::program;
use crate::ports::free_ports;
use crate::process::Program;
use crate::vital::VITALS;
use crate::wait::{Progress, eventually, progress};

/// The controller's account, as in JobSet's own manifests.
const NAMESPACE: &str = "jobset-system";
const ACCOUNT: &str = "jobset-controller-manager";

/// How long it may take until it answers as a webhook.
const START_DEADLINE: Duration = Duration::from_mins(3);

/// The CustomResourceDefinition of JobSets; builds the controller first where it is missing.
///
/// # Errors
///
/// If the controller is missing and cannot be built (see [`assets::path`]), or the file beside it cannot be read or is no CustomResourceDefinition.
pub async fn crd() -> Result<CustomResourceDefinition> {
    let path =
        tokio::task::spawn_blocking(assets::jobset_crd).await.context("building the JobSet controller")??;
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    serde_saphyr::from_str(&text).with_context(|| format!("reading {}", path.display()))
}

/// Installs the CustomResourceDefinition of JobSets and waits until it is served.
///
/// # Errors
///
/// As [`crd`]; and if the API server refuses the definition or does not serve it in time (see [`crate::crds::apply`]).
pub async fn install_crd(client: &Client) -> Result<()> {
    crate::crds::apply(client, &[crd().await?]).await
}

/// The running JobSet controller. It is killed when this is dropped, and its webhooks with it: JobSets and their pods
/// cannot be made then.
#[derive(Debug)]
pub struct Controller {
    program: Program,
}

impl Controller {
    /// Installs the CustomResourceDefinition, the webhooks, and the account of the controller with the rights that it has in a cluster; starts it, and
    /// waits until a JobSet can be made.
    ///
    /// # Errors
    ///
    /// As [`install_crd`]; and if no ports are free, a file of the controller cannot be written, its account or its webhooks are refused, or it ends
    /// or its webhooks do not fill in a JobSet within three minutes.
    pub async fn start(plane: &ControlPlane) -> Result<Self> {
        let client = plane.client().await?;
        install_crd(&client).await?;
        install_account(&client).await?;
        let kubeconfig = plane.kubeconfig_for_service_account(NAMESPACE, ACCOUNT).await?;
        let folder = certificate_folder(plane, "jobset")?;
        let ports = free_ports(2)?;
        let config = folder.join("config.yaml");
        let text = configuration(ports[0], ports[1], &folder.display().to_string());
        fs::write(&config, format!("{text:#}")).context("writing the JobSet controller's configuration")?;
        let mut command: Command = program(Tool::JobSetController)?;
        command.arg("--config").arg(&config).arg("--kubeconfig").arg(kubeconfig);
        let mut controller = Self { program: plane.spawn("jobset-controller", command)? };
        install_webhooks(&client, ports[0], &fs::read(plane.ca_path()).context("reading the plane's CA")?)
            .await?;
        controller.wait_until_it_answers(&client).await?;
        Ok(controller)
    }

    /// Tries a JobSet without making it until the webhook fills fields in: before the API server knows of the webhooks, it makes JobSets without
    /// them.
    async fn wait_until_it_answers(&mut self, client: &Client) -> Result<()> {
        let jobsets: Api<JobSet> = Api::namespaced(client.clone(), "default");
        let params = PostParams { dry_run: true, ..PostParams::default() };
        let probe: JobSet = serde_json::from_value(probe()).context("making a JobSet to try")?;
        let program = std::sync::Mutex::new(&mut self.program);
        let answered = eventually("the JobSet controller's webhooks", START_DEADLINE, || async {
            if let Ok(mut program) = program.lock()
                && let Err(error) = program.check()
            {
                return Ok(Progress::Never(format!("{error:#}")));
            }
            let made = jobsets.create(&params, &probe).await?;
            let filled_in = &made.spec.others.get("successPolicy").cloned().unwrap_or_default();
            Ok(progress(filled_in["operator"] == "All", filled_in))
        });
        if let Err(error) = answered.await {
            bail!("{error:#}\nthe JobSet controller's log ends:\n{}", self.program.log_tail(20));
        }
        Ok(())
    }

    /// From now on every wait of this process fails at once, with the end of the log, when the controller has ended.
    pub fn must_not_end(&self) {
        VITALS.add(self.program.id(), self.program.name(), self.program.log());
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.program.id()
    }

    /// Leaves it running when this process ends (see [`ControlPlane::hand_over`]); its process id.
    pub fn hand_over(mut self) -> u32 {
        self.program.detach();
        self.program.id()
    }
}

/// A JobSet that is valid and has no effect.
fn probe() -> Value {
    let pod =
        json!({ "restartPolicy": "Never", "containers": [{ "name": "main", "image": "example.com/none" }] });
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": { "name": "probe" },
        "spec": {
            "suspend": true,
            "replicatedJobs": [{ "name": "none", "template": { "spec": { "template": { "spec": pod } } } }],
        },
    })
}

fn configuration(webhook: u16, health: u16, certificates: &str) -> Value {
    json!({
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "webhook": { "host": "127.0.0.1", "port": webhook, "certDir": certificates },
        "health": { "healthProbeBindAddress": format!("127.0.0.1:{health}") },
        "metrics": { "bindAddress": "0" },
        "leaderElection": { "leaderElect": false },
        // Its own rotation wants a Service in the cluster.
        "internalCertManagement": { "enable": false },
    })
}

/// The rights as JobSet's own manifests give them (`config/components/rbac/role.yaml`).
fn rights() -> Value {
    let all = ["create", "delete", "get", "list", "patch", "update", "watch"];
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({ "apiGroups": [group], "resources": resources, "verbs": verbs });
    json!([
        rule("", &["events"], &["create", "patch", "update", "watch"]),
        rule("", &["nodes"], &["get", "list", "watch"]),
        rule("", &["pods", "services"], &all),
        rule("", &["secrets"], &["get", "list", "update", "watch"]),
        rule(
            "admissionregistration.k8s.io",
            &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
            &["get", "list", "update", "watch"],
        ),
        rule("batch", &["jobs"], &all),
        rule("batch", &["jobs/status"], &["get", "patch", "update"]),
        rule("jobset.x-k8s.io", &["jobsets"], &all),
        rule("jobset.x-k8s.io", &["jobsets/finalizers"], &["update"]),
        rule("jobset.x-k8s.io", &["jobsets/status"], &["get", "patch", "update"]),
    ])
}

/// The controller's account and its rights.
async fn install_account(client: &Client) -> Result<()> {
    let params = PatchParams::apply("sluice-testkit").force();
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces.patch(NAMESPACE, &params, &Patch::Apply(&namespace)).await.context("making its namespace")?;
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": ACCOUNT, "namespace": NAMESPACE },
    });
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    accounts.patch(ACCOUNT, &params, &Patch::Apply(&account)).await.context("making JobSet's account")?;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "jobset-manager-role" }, "rules": rights(),
    });
    let roles: Api<ClusterRole> = Api::all(client.clone());
    roles
        .patch("jobset-manager-role", &params, &Patch::Apply(&role))
        .await
        .context("making JobSet's role")?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "jobset-manager-rolebinding" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "jobset-manager-role" },
        "subjects": [{ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE }],
    });
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let name = "jobset-manager-rolebinding";
    bindings.patch(name, &params, &Patch::Apply(&binding)).await.context("giving JobSet its rights")?;
    Ok(())
}

/// The webhooks as JobSet's own manifests have them, at an address on this machine.
async fn install_webhooks(client: &Client, port: u16, authority: &[u8]) -> Result<()> {
    let rule = |group: &str, version: &str, resource: &str, operations: &[&str]| json!([{ "apiGroups": [group], "apiVersions": [version], "resources": [resource], "operations": operations }]);
    let webhook = |name: &str, path: &str, rules: Value, selector: Value| {
        json!({
            "name": name,
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "clientConfig": {
                "url": format!("https://127.0.0.1:{port}/{path}"),
                "caBundle": ByteString(authority.to_vec()),
            },
            "rules": rules,
            "objectSelector": selector,
        })
    };
    let jobsets = |operations: &[&str]| rule("jobset.x-k8s.io", "v1alpha2", "jobsets", operations);
    let pods = || rule("", "v1", "pods", &["CREATE"]);
    let of_jobsets =
        json!({ "matchExpressions": [{ "key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists" }] });
    let mutating = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": "jobset-mutating-webhook-configuration" },
        "webhooks": [
            webhook("mjobset.kb.io", "mutate-jobset-x-k8s-io-v1alpha2-jobset", jobsets(&["CREATE"]), json!({})),
            webhook("mpod.kb.io", "mutate--v1-pod", pods(), of_jobsets.clone()),
        ],
    });
    let validating = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": "jobset-validating-webhook-configuration" },
        "webhooks": [
            webhook("vjobset.kb.io", "validate-jobset-x-k8s-io-v1alpha2-jobset", jobsets(&["CREATE", "UPDATE"]), json!({})),
            webhook("vpod.kb.io", "validate--v1-pod", pods(), of_jobsets),
        ],
    });
    let params = PatchParams::apply("sluice-testkit").force();
    let all: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    all.patch("jobset-mutating-webhook-configuration", &params, &Patch::Apply(&mutating))
        .await
        .context("installing JobSet's mutating webhooks")?;
    let all: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    all.patch("jobset-validating-webhook-configuration", &params, &Patch::Apply(&validating))
        .await
        .context("installing JobSet's validating webhooks")?;
    Ok(())
}
