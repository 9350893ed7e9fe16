//! A **stand-in** for JobSet's controller, which is not to be had as a module: it behaves like JobSet where Sluice and its users
//! can see it, and is for tests and the demo only.
//!
//! Children `<jobset>-<replicatedJob>-<index>` are made suspended with the JobSet, resumed with its templates and suspended
//! again; conditions, `replicatedJobsStatus`, restarts by `failurePolicy`, success, startup order and exclusive node groups
//! are kept up. Left out because nothing here looks at it: the headless Service, the coordinator, volume claims, and
//! restarting single Jobs.

pub mod children;
mod controller;
mod exclusive;
mod status;
mod types;

use std::path::Path;
use std::thread::JoinHandle;

use anyhow::{Context as _, Result, anyhow};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use tokio::sync::oneshot;

pub use exclusive::ANNOTATION as EXCLUSIVE_TOPOLOGY;
pub use types::{
    DependsOn, FailurePolicy, FailureRule, JobSet, JobSetSpec, JobSetStatus, ReplicatedJob,
    ReplicatedJobStatus, StartupPolicy, SuccessPolicy,
};

use crate::plane::client_of;

const CRD: &str = include_str!("../../../../tests/control-plane/jobset-crd.yaml");

/// The stand-in's CustomResourceDefinition.
pub fn crd() -> Result<CustomResourceDefinition> {
    serde_saphyr::from_str(CRD).context("reading the stand-in's CRD of JobSet")
}

/// Installs the stand-in's CRD and waits until it is served.
pub async fn install_crd(client: &Client) -> Result<()> {
    crate::crds::apply(client, &[crd()?]).await
}

/// The running stand-in, on a thread and runtime of its own so that tests with different runtimes can share it. It stops
/// when this is dropped.
#[derive(Debug)]
pub struct StandIn {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl StandIn {
    /// Installs the CRD and starts the stand-in with the rights of this kubeconfig.
    pub async fn start(kubeconfig: &Path) -> Result<Self> {
        install_crd(&client_of(kubeconfig).await?).await?;
        Self::start_without_crd(kubeconfig)
    }

    /// Starts the stand-in, which waits for the CRD to appear.
    pub fn start_without_crd(kubeconfig: &Path) -> Result<Self> {
        let kubeconfig = kubeconfig.to_path_buf();
        let (stop, stopped) = oneshot::channel();
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("making a runtime")?;
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("jobset-stand-in".to_owned()).spawn(move || {
            runtime.block_on(async move {
                match client_of(&kubeconfig).await {
                    Ok(client) => {
                        // The other side waits for this.
                        let _ = tell.send(Ok(()));
                        controller::run(client, stopped).await;
                    }
                    Err(error) => drop(tell.send(Err(error))),
                }
            });
        });
        let thread = thread.context("starting the JobSet stand-in")?;
        told.recv().map_err(|_| anyhow!("the JobSet stand-in ended at its start"))??;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        // Dropping the sender is the signal.
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A stand-in that panicked has failed its test already.
            let _ = thread.join();
        }
    }
}
