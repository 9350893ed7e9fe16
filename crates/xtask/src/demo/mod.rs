//! `make demo`: a whole cluster of fake nodes with Sluice, an example on it, and a live table of what happens.

mod rows;
mod runner;
mod table;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::builder::FalseyValueParser;
use clap::{ArgAction, Parser};
use serde_json::json;
use sluice_testkit::assets::{self, Tool};
use sluice_testkit::autoscaler;
use sluice_testkit::jobset::Controller;
use sluice_testkit::{ControlPlane, Manager, Setup, chart, crds, patient_client_of};
use sluice_tests::story;
use tokio::signal::unix::{SignalKind, signal};

pub use runner::{Args as RunnerArgs, run as keep};

/// Run an example on a cluster of fake nodes.
#[derive(Parser)]
pub struct Args {
    /// The folder below examples/ whose first scenario is played.
    #[arg(long, env = "EXAMPLE", default_value = "tpu-multislice")]
    example: String,
    /// Leave the cluster running, and print how to reach and to stop it.
    #[arg(long, env = "KEEP", action = ArgAction::SetTrue, value_parser = FalseyValueParser::new())]
    keep: bool,
}

/// Plays the demo until it ends or is interrupted. Nothing is left behind, unless the cluster must be kept.
pub fn run(args: &Args) -> Result<ExitCode> {
    let folder = assets::workspace().join("examples").join(&args.example);
    if !folder.is_dir() {
        bail!("there is no example {}; see examples/README.md", args.example);
    }
    let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
        tokio::select! {
            done = play(args, &folder) => done,
            // Dropping the future stops every program.
            _ = tokio::signal::ctrl_c() => Ok(interrupted()),
            _ = terminate.recv() => Ok(interrupted()),
        }
    })
}

fn interrupted() -> ExitCode {
    eprintln!("\ninterrupted: everything is stopped and removed");
    ExitCode::from(130)
}

/// Prints what happens, with the time since the start.
struct Narrator(Instant);

impl Narrator {
    fn say(&self, what: &str) {
        println!("[{:6.1} s] {what}", self.0.elapsed().as_secs_f32());
    }
}

/// The running parts. Dropped in this order: the manager first, so that it does not log complaints.
struct Stage {
    manager: Manager,
    jobset: Controller,
    autoscaler: autoscaler::StandIn,
    plane: ControlPlane,
}

async fn play(args: &Args, folder: &Path) -> Result<ExitCode> {
    let narrator = Narrator(Instant::now());
    let stage = set_up(&narrator).await?;
    let outcome = act(&narrator, &stage, folder).await;
    if let Err(error) = &outcome {
        eprintln!("\nthe demo did not go as its expected.yaml says: {error:#}");
        eprintln!("the manager's log ends:\n{}", stage.manager.log_tail(30));
    }
    if args.keep {
        runner::hand_over(stage).await?;
    } else {
        let Stage { manager, jobset, autoscaler, plane } = stage;
        let (took, _) = manager.stop().await?;
        drop(jobset);
        drop(autoscaler);
        plane.stop();
        narrator.say(&format!("the manager shut down in {took:.1?}; everything is stopped and removed"));
    }
    Ok(if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The programs that it starts: an example's jobs are Jobs and JobSets.
const PROGRAMS: [Tool; 8] = [
    Tool::Etcd,
    Tool::KubeApiserver,
    Tool::Kubectl,
    Tool::KubeControllerManager,
    Tool::KubeScheduler,
    Tool::Kwok,
    Tool::Helm,
    Tool::JobSetController,
];

async fn set_up(narrator: &Narrator) -> Result<Stage> {
    narrator.say("control plane: looking for its programs, building what is missing");
    tokio::task::spawn_blocking(|| assets::ensure(&PROGRAMS))
        .await
        .context("building the control plane")??;
    tokio::task::spawn_blocking(sluice_testkit::binary).await.context("building sluice")??;
    let plane = ControlPlane::builder().complete().start().await?;
    narrator.say(&format!("etcd, API server, controller-manager, scheduler and kwok run: {}", plane.url()));
    let jobset = Controller::start(&plane).await?;
    let autoscaler = autoscaler::StandIn::start(&plane.kubeconfig_path(), autoscaler::Served::Both).await?;
    narrator.say("JobSet's controller and a stand-in for the cluster autoscaler run");
    let setup = chart::install(&plane, Setup::new(&plane)?, &json!({})).await?;
    narrator.say("the chart is installed (no replica, webhooks by URL)");
    let manager = Manager::start(&plane, setup).await?;
    crds::wait_until_converting(&plane.client().await?).await?;
    narrator.say("sluice is ready, with the rights of the chart's ServiceAccount");
    Ok(Stage { manager, jobset, autoscaler, plane })
}

/// Plays the example's first scenario, or just applies its manifests where it has none, under a live table.
async fn act(narrator: &Narrator, stage: &Stage, folder: &Path) -> Result<()> {
    let client = patient_client_of(&stage.plane.kubeconfig_path()).await?;
    let scenario = story::scenarios(folder)?.into_iter().next().context("expected.yaml has no scenario")?;
    narrator.say(&format!("{}: {}\n", scenario.name, scenario.about));
    let mut table = table::Table::new(client.clone());
    let mut applied: Vec<PathBuf> = Vec::new();
    let outcome = tokio::select! {
        outcome = story::perform(&stage.plane, &client, folder, &scenario, &mut applied) => outcome,
        never = table.watch() => match never {},
    };
    table.look().await?;
    table.print_timeline();
    if outcome.is_ok() {
        narrator.say("all of it happened as expected.yaml says");
    }
    outcome
}
