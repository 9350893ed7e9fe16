//! The command lines of the control plane's programs.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::assets::{self, Tool};
use crate::certs::Certs;

fn flag(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

/// How much a Go program's memory grows until its garbage is collected, in percent: less of it is than Go does by itself. With 400, an API server's
/// collections took an eighth of its CPU time; twice that halves them, for some 200 MiB more of each.
pub(crate) const COLLECTING: (&str, &str) = ("GOGC", "800");

/// How much memory such a program uses before it collects its garbage without a pause. It must be well above what the program needs: huge objects
/// bring an API server to 1 GiB, where a limit of 1 GiB let it answer nothing for minutes on a busy machine.
const MEMORY: (&str, &str) = ("GOMEMLIMIT", "3GiB");

/// One of the plane's programs. They live for minutes in a few hundred MiB, so their garbage is collected less often.
/// A day of thousands of jobs needs more, and gives its own GOMEMLIMIT.
pub(crate) fn program(tool: Tool) -> Result<Command> {
    let mut command = Command::new(assets::path(tool)?);
    command.env(COLLECTING.0, COLLECTING.1);
    if std::env::var_os(MEMORY.0).is_none() {
        command.env(MEMORY.0, MEMORY.1);
    }
    Ok(command)
}

pub(crate) fn etcd(folder: &Path, client: u16, peer: u16) -> Result<Command> {
    let mut command = program(Tool::Etcd)?;
    let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
    command.arg(flag("data-dir", &folder.join("etcd"))).args([
        "--name=test".to_owned(),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=test={peer}"),
        // The data need not outlive the test, so fsync is off: it is much faster.
        "--unsafe-no-fsync".to_owned(),
        // A long day keeps every revision, as the API server is replaced too often to compact them: etcd's 2 GiB hold 9,000 jobs.
        format!("--quota-backend-bytes={}", 8_u64 << 30),
        "--log-level=warn".to_owned(),
    ]);
    Ok(command)
}

pub(crate) fn api_server(
    folder: &Path,
    certs: &Certs,
    port: u16,
    etcd: u16,
    service_accounts: bool,
    extra: &[String],
) -> Result<Command> {
    let mut command = program(Tool::KubeApiserver)?;
    command
        .args([
            format!("--etcd-servers=http://127.0.0.1:{etcd}"),
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".to_owned(),
            // A loopback address may not be an endpoint of the `kubernetes` Service, and no test needs it.
            "--endpoint-reconciler-type=none".to_owned(),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            "--authorization-mode=RBAC".to_owned(),
            // Multislice manifests of standard clusters have privileged containers.
            "--allow-privileged=true".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            "--api-audiences=https://kubernetes.default.svc".to_owned(),
            "--profiling=false".to_owned(),
            // As on GKE, where nodes with devices are tainted with the resource's name.
            "--enable-admission-plugins=ExtendedResourceToleration".to_owned(),
            "--requestheader-allowed-names=front-proxy-client".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        ])
        .arg(flag("cert-dir", &folder.join("certs")))
        .arg(flag("client-ca-file", &certs.path("ca.crt")))
        .arg(flag("tls-cert-file", &certs.path("apiserver.crt")))
        .arg(flag("tls-private-key-file", &certs.path("apiserver.key")))
        .arg(flag("service-account-key-file", &certs.path("service-account.pub")))
        .arg(flag("service-account-signing-key-file", &certs.path("service-account.key")))
        .arg(flag("requestheader-client-ca-file", &certs.path("ca.crt")))
        .arg(flag("proxy-client-cert-file", &certs.path("front-proxy.crt")))
        .arg(flag("proxy-client-key-file", &certs.path("front-proxy.key")));
    if !service_accounts {
        // Without the controller-manager the account `default` does not exist, and every pod would be refused.
        command.arg("--disable-admission-plugins=ServiceAccount");
    }
    command.args(extra);
    Ok(command)
}

/// Controllers that would only cost time. Fake pods cannot be reached, mount no volumes, claim no devices and read no authority; nothing asks for
/// certificates, nothing is scaled by metrics, and no test reads what the types in admission policies are: to find them, all schemas are read.
const UNUSED: [&str; 15] = [
    "device-taint-eviction-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
    "certificatesigningrequest-signing-controller",
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "horizontal-pod-autoscaler-controller",
    "legacy-serviceaccount-token-cleaner-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-expander-controller",
    "resourceclaim-controller",
    "root-ca-certificate-publisher-controller",
    "ttl-controller",
    "validatingadmissionpolicy-status-controller",
];

pub(crate) fn controller_manager(certs: &Certs, kubeconfig: &Path, port: u16) -> Result<Command> {
    let mut command = program(Tool::KubeControllerManager)?;
    command
        .args([
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
            // As on every real cluster: each controller has a name and rights of its own, on which rules of Sluice depend.
            "--use-service-account-credentials=true",
        ])
        .arg(format!("--controllers=*,-{}", UNUSED.join(",-")))
        .arg(format!("--secure-port={port}"))
        .arg(flag("kubeconfig", kubeconfig))
        .arg(flag("authentication-kubeconfig", kubeconfig))
        .arg(flag("authorization-kubeconfig", kubeconfig))
        .arg(flag("root-ca-file", &certs.path("ca.crt")))
        .arg(flag("service-account-private-key-file", &certs.path("service-account.key")));
    Ok(command)
}

pub(crate) fn scheduler(kubeconfig: &Path, port: u16) -> Result<Command> {
    let mut command = program(Tool::KubeScheduler)?;
    command
        .args([
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            "--kube-api-qps=200",
            "--kube-api-burst=400",
        ])
        .arg(format!("--secure-port={port}"))
        .arg(flag("kubeconfig", kubeconfig))
        .arg(flag("authentication-kubeconfig", kubeconfig))
        .arg(flag("authorization-kubeconfig", kubeconfig));
    Ok(command)
}

pub(crate) fn kwok(kubeconfig: &Path, stages: &Path) -> Result<Command> {
    let mut command = program(Tool::Kwok)?;
    command
        .args([
            "--manage-all-nodes=true",
            "--node-ip=10.1.0.1",
            "--cidr=10.2.0.1/16",
            "--node-lease-duration-seconds=40",
        ])
        .arg(flag("kubeconfig", kubeconfig))
        .arg(flag("config", stages));
    Ok(command)
}
