//! `KEEP=1`: the cluster outlives the demo. A process in the background takes it over: it runs the stand-in for the cluster autoscaler, and stops
//! everything on command.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use sluice_testkit::assets::{self, Tool};
use sluice_testkit::autoscaler;
use sluice_testkit::process::Watchdog;
use sluice_testkit::wait::{eventually, progress};
use tokio::signal::unix::{SignalKind, signal};

use super::Stage;

/// Keep a demo's cluster running (started by `demo --keep`).
#[derive(Parser)]
pub struct Args {
    /// The cluster's folder.
    folder: PathBuf,
    /// Ids of the programs to stop at the end.
    programs: Vec<u32>,
}

fn ready_file(folder: &Path) -> PathBuf {
    folder.join("kept")
}

/// Starts the runner, waits until it is in charge, and releases everything here.
pub async fn hand_over(stage: Stage) -> Result<()> {
    let Stage { manager, jobset, autoscaler, plane } = stage;
    let folder = plane.folder().to_path_buf();
    let mut programs = plane.program_ids();
    programs.extend([manager.id(), jobset.id()]);
    let log = File::create(folder.join("logs/runner.log")).context("opening the runner's log")?;
    let mut command = Command::new(std::env::current_exe().context("asking for the running program")?);
    command.arg("demo-runner").arg(&folder).args(programs.iter().map(u32::to_string));
    let outputs = log.try_clone().context("opening the runner's log")?;
    let runner = command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(outputs)
        .spawn()
        .context("starting the runner")?;
    drop(autoscaler);
    let ready = ready_file(&folder);
    eventually("the runner to take over", Duration::from_secs(20), || async {
        Ok(progress(ready.exists(), "it is not in charge yet"))
    })
    .await?;
    let logs = folder.join("logs");
    let kubeconfig = plane.kubeconfig_path();
    manager.hand_over();
    jobset.hand_over();
    plane.hand_over();
    println!(
        "The cluster runs on. To use it (kubectl of the same version: {}):\n",
        assets::path(Tool::Kubectl)?.display()
    );
    println!("    export KUBECONFIG={}\n", kubeconfig.display());
    println!(
        "Logs are in {}. To stop it and remove everything:\n\n    kill {}\n",
        logs.display(),
        runner.id()
    );
    Ok(())
}

/// Keeps the cluster until SIGTERM or SIGINT.
pub fn run(args: &Args) -> Result<ExitCode> {
    // From here on they stop with this process, however it ends.
    let watchdog = Watchdog::start(&args.folder)?;
    args.programs.iter().for_each(|program| watchdog.adopt(*program));
    let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
        let kubeconfig = args.folder.join("admin.kubeconfig");
        let autoscaler = autoscaler::StandIn::start(&kubeconfig, autoscaler::Served::Both).await?;
        fs::write(ready_file(&args.folder), "").context("cannot report that the runner is in charge")?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        drop(autoscaler);
        anyhow::Ok(())
    })?;
    drop(watchdog);
    Ok(ExitCode::SUCCESS)
}
