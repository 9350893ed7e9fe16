//! Real controllers of job kinds: each a process of the plane, with its CustomResourceDefinitions, built from pinned Go modules.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;

use crate::assets::{self, Tool};
use crate::plane::ControlPlane;
use crate::plane_parts::program;
use crate::process::Program;
use crate::wait::{Progress, eventually};

/// How long it may take until they are at work.
const START_DEADLINE: Duration = Duration::from_mins(1);

/// The CustomResourceDefinitions of a program's kinds; builds it first where it is missing.
pub async fn crds(tool: Tool) -> Result<Vec<CustomResourceDefinition>> {
    let paths = tokio::task::spawn_blocking(move || assets::crds(tool))
        .await
        .with_context(|| format!("building {}", tool.name()))??;
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        serde_saphyr::from_str(&text).with_context(|| format!("reading {}", path.display()))
    };
    paths.iter().map(read).collect()
}

/// Installs the CustomResourceDefinitions of a program's kinds and waits until they are served.
pub async fn install_crds(client: &Client, tool: Tool) -> Result<()> {
    crate::crds::apply(client, &crds(tool).await?).await
}

/// Running controllers. They are killed when this is dropped, and their webhooks answer no more.
#[derive(Debug)]
pub struct Controllers {
    program: Program,
}

impl Controllers {
    /// Installs the CustomResourceDefinitions and starts the program with the administrator's rights.
    pub async fn start(plane: &ControlPlane, tool: Tool, arguments: &[&str]) -> Result<Self> {
        Self::start_with(plane, tool, arguments, &[]).await
    }

    /// The same with these variables in the program's environment.
    pub(crate) async fn start_with(
        plane: &ControlPlane,
        tool: Tool,
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<Self> {
        install_crds(&plane.client().await?, tool).await?;
        let mut command = program(tool)?;
        command.arg("--kubeconfig").arg(plane.kubeconfig_path()).args(arguments);
        command.envs(variables.iter().copied());
        Ok(Self { program: plane.spawn(tool.name(), command)? })
    }

    /// Waits until a look shows that they are at work. They never will be if the program has ended.
    pub(crate) async fn wait_until<F>(&mut self, what: &str, mut look: impl FnMut() -> F) -> Result<()>
    where
        F: Future<Output = Result<Progress<()>>>,
    {
        let program = &mut self.program;
        let seen = eventually(what, START_DEADLINE, || {
            let ended = program.check().err();
            let look = look();
            async move {
                match ended {
                    Some(error) => Ok(Progress::Never(format!("{error:#}"))),
                    None => look.await,
                }
            }
        });
        if let Err(error) = seen.await {
            bail!("{error:#}\ntheir log ends:\n{}", self.program.log_tail(20));
        }
        Ok(())
    }
}
