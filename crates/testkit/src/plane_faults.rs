//! Faults of a running plane: programs that stop for a while, and restarts.

use anyhow::{Context as _, Result};
use rustix::process::Signal;

use crate::plane::{ControlPlane, START_DEADLINE};
use crate::plane_parts as parts;
use crate::wait::{eventually, progress};

/// A program of the plane that a test may stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The store.
    Etcd,
    /// The API server.
    ApiServer,
}

impl ControlPlane {
    /// Where etcd listens.
    pub fn etcd_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[0])
    }

    /// Makes a program stand still (SIGSTOP), until [`ControlPlane::resume`].
    ///
    /// # Errors
    ///
    /// If the program was killed and not started again, or the signal cannot be sent.
    pub fn pause(&self, part: Part) -> Result<()> {
        self.signal(part, Signal::STOP)
    }

    /// Lets a program continue (SIGCONT).
    ///
    /// # Errors
    ///
    /// If the program was killed and not started again, or the signal cannot be sent.
    pub fn resume(&self, part: Part) -> Result<()> {
        self.signal(part, Signal::CONT)
    }

    /// Makes the controllers of Kubernetes stand still, until [`ControlPlane::resume_controllers`].
    ///
    /// # Errors
    ///
    /// If the plane has no kube-controller-manager, or the signal cannot be sent.
    pub fn pause_controllers(&self) -> Result<()> {
        self.signal_controllers(Signal::STOP)
    }

    /// Lets them continue.
    ///
    /// # Errors
    ///
    /// If the plane has no kube-controller-manager, or the signal cannot be sent.
    pub fn resume_controllers(&self) -> Result<()> {
        self.signal_controllers(Signal::CONT)
    }

    fn signal_controllers(&self, signal: Signal) -> Result<()> {
        let mut programs = self.programs();
        let program = programs.others.iter_mut().find(|program| program.name() == "kube-controller-manager");
        program.context("it does not run")?.signal(signal)
    }

    fn signal(&self, part: Part, signal: Signal) -> Result<()> {
        let mut programs = self.programs();
        let program = match part {
            Part::Etcd => programs.etcd.as_mut(),
            Part::ApiServer => programs.api_server.as_mut(),
        };
        program.context("it does not run")?.signal(signal)
    }

    /// Kills etcd and starts it again on the same data, and waits until the API server has found it.
    ///
    /// # Errors
    ///
    /// If etcd cannot be started, or the API server is not ready again within five minutes.
    pub async fn restart_etcd(&self) -> Result<()> {
        // Killed on drop.
        drop(self.programs().etcd.take());
        let etcd = self.spawn("etcd", parts::etcd(self.folder(), self.ports[0], self.ports[1])?)?;
        self.programs().etcd = Some(etcd);
        let client = self.client().await?;
        eventually("the API server to find etcd", START_DEADLINE, || async {
            let request = http::Request::get("/readyz").body(Vec::new())?;
            let answer = client.request_text(request).await?;
            Ok(progress(answer == "ok", answer))
        })
        .await
    }
}
