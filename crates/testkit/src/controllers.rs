//! Real controllers of job kinds: each a process of the plane, with its CustomResourceDefinitions, built from pinned Go modules.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;

use crate::assets::{self, Tool};
use crate::certs::WEBHOOK;
use crate::plane::ControlPlane;
use crate::plane_parts::program;
use crate::ports::free_ports;
use crate::process::Program;
use crate::wait::{Progress, eventually};

/// The programs that have controllers of job kinds, besides that of JobSets, which every complete plane has.
pub const TOOLS: [Tool; 6] = [
    Tool::KubeflowControllers,
    Tool::KubeRayOperator,
    Tool::AppWrapperController,
    Tool::SparkOperator,
    Tool::TrainerControllers,
    Tool::LwsControllers,
];

/// How long it may take until they are at work.
const START_DEADLINE: Duration = Duration::from_mins(3);

/// The CustomResourceDefinitions of a program's kinds. They are beside the program.
///
/// # Errors
///
/// When the program is missing: what needs it asks first, by [`needs!`](crate::needs!).
pub async fn crds(tool: Tool) -> Result<Vec<CustomResourceDefinition>> {
    if !assets::is_there(tool) {
        bail!("{} is missing: make control-plane builds it", tool.name());
    }
    let paths = tokio::task::spawn_blocking(move || assets::crds(tool))
        .await
        .with_context(|| format!("building {}", tool.name()))??;
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        serde_saphyr::from_str(&text).with_context(|| format!("reading {}", path.display()))
    };
    paths.iter().map(read).collect()
}

/// Installs those CustomResourceDefinitions of a program's kinds that are not there, and waits until they are served.
///
/// # Errors
///
/// If the program is missing (see [`crds`]), or its definitions are refused or not served in time (see [`crate::crds::apply`]).
pub async fn install_crds(client: &Client, tool: Tool) -> Result<()> {
    let crds = crds(tool).await?;
    let missing = crate::crds::missing(client, &crds).await?;
    crate::crds::apply(client, &missing).await?;
    crate::crds::wait_until_served(client, &crds).await
}

/// Makes a folder of the plane that has the certificate and the key of webhooks as controllers look for them.
pub(crate) fn certificate_folder(plane: &ControlPlane, name: &str) -> Result<PathBuf> {
    let folder = plane.folder().join(name);
    fs::create_dir_all(&folder).with_context(|| format!("making the folder {name}"))?;
    for (file, name) in [("crt", "tls.crt"), ("key", "tls.key")] {
        fs::copy(plane.cert(&format!("{WEBHOOK}.{file}")), folder.join(name))
            .context("copying the webhooks' certificate")?;
    }
    Ok(folder)
}

/// The progress of webhooks that must refuse an object. Until the API server knows the webhooks, it accepts the object.
pub(crate) fn refused_by<T>(webhook: &str, made: kube::Result<T>) -> Result<Progress<()>> {
    match made {
        Ok(_) => Ok(Progress::NotYet("what it must refuse is made".to_owned())),
        Err(kube::Error::Api(status)) if status.message.contains(&format!("{webhook:?} denied")) => {
            Ok(Progress::Done(()))
        }
        Err(error) => Err(error.into()),
    }
}

/// Running controllers. They are killed when this is dropped, and their webhooks answer no more.
#[derive(Debug)]
pub struct Controllers {
    program: Program,
}

impl Controllers {
    /// Installs the CustomResourceDefinitions and starts the program with the administrator's rights.
    ///
    /// # Errors
    ///
    /// As [`install_crds`]; and if the program cannot be started, or its log file not be opened.
    pub async fn start(plane: &ControlPlane, tool: Tool, arguments: &[&str]) -> Result<Self> {
        Self::start_with(plane, tool, arguments, &[]).await
    }

    /// The same for a program with a flag for the folder of its webhooks' certificate, and a port for them. Returns the port.
    pub(crate) async fn start_with_webhooks(
        plane: &ControlPlane,
        tool: Tool,
        folder: &str,
    ) -> Result<(Self, u16)> {
        let folder = certificate_folder(plane, folder)?.display().to_string();
        let port = free_ports(1)?[0];
        let arguments = ["--cert-dir", &folder, "--webhook-port", &port.to_string()];
        Ok((Self::start(plane, tool, &arguments).await?, port))
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

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_webhook_works_once_it_has_refused_what_it_must() {
        let denied = |by: &str| {
            let message = format!("admission webhook \"{by}\" denied the request: no");
            Err::<(), _>(kube::Error::Api(Status { code: 403, message, ..Status::default() }.boxed()))
        };
        assert!(matches!(refused_by("a.example.com", denied("a.example.com")), Ok(Progress::Done(()))));
        assert!(refused_by("a.example.com", denied("b.example.com")).is_err());
        assert!(matches!(refused_by("a.example.com", Ok(())), Ok(Progress::NotYet(_))));
    }
}
