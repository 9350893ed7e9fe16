//! The binary `sluice`.

use std::process::ExitCode;

use sluice_cli::{Cli, Command, ConfigCheckArgs, ConfigCommand, InCluster, gates};
use sluice_client::error_chain::Chain;
use sluice_client::{settings, version};
use sluice_ctl::explain::{self, ExplainArgs};
use sluice_ctl::integration;
use sluice_ctl::migrate::command::{self as migrate, MigrateCommand};
use sluice_ctl::print::{line, print, say};
use sluice_ctl::replay;
use sluice_ctl::simulate::{self, SimulateArgs};
use sluice_manager::args::ManagerArgs;
use sluice_manager::dashboard::local::{self as dashboard, DashboardArgs};
use sluice_manager::logging::LogFormat;
use sluice_manager::{logging, run};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // Exactly one TLS provider, before anything else can choose another.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let outcome = match Cli::read(std::env::args_os()).unwrap_or_else(|error| error.exit()).command {
        Command::Manager(args) => manager(args),
        Command::Config { command: ConfigCommand::Check(args) } => config_check(&args),
        Command::Integration { command } => integration::run(&command),
        Command::Migrate { command } => migrate_command(command),
        Command::Simulate(args) => run_simulation(args),
        Command::Dashboard(args) => show_dashboard(&args),
        Command::Explain(args) => run_explanation(args),
        Command::Replay(args) => replay::run(&args),
        Command::Gates => print(&gates()).map(|()| 0).map_err(Into::into),
        Command::Version => {
            let text = format!("sluice {} ({}, {})", version::VERSION, version::COMMIT, version::platform());
            line(&text).map(|()| 0).map_err(Into::into)
        }
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            say(&format!("sluice: {}", Chain(error.as_ref())));
            ExitCode::FAILURE
        }
    }
}

fn manager(args: ManagerArgs) -> anyhow::Result<u8> {
    logging::init(&args.log_level, args.log_format)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(16)
        .enable_all()
        .build()?;
    let code = runtime.block_on(run::run(args));
    // Tasks that still run have been asked to stop and waited for.
    runtime.shutdown_background();
    code
}

fn migrate_command(command: MigrateCommand) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(migrate::run(command))
}

fn run_simulation(command: InCluster<SimulateArgs>) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(simulate::run(command.args, &command.cluster))
}

fn run_explanation(command: InCluster<ExplainArgs>) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(explain::run(command.args, &command.cluster))
}

fn show_dashboard(command: &InCluster<DashboardArgs>) -> anyhow::Result<u8> {
    logging::init("warn", LogFormat::Text)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let code = runtime.block_on(async {
        let person = command.cluster.connect().await?;
        dashboard::run(&command.args, person.client, person.namespace, line).await
    });
    // A simulation may still be running.
    runtime.shutdown_background();
    code
}

fn config_check(args: &ConfigCheckArgs) -> anyhow::Result<u8> {
    let environment = settings::environment(args.feature_gates.clone());
    let (configuration, warnings) = settings::load(Some(&args.file), &environment)?;
    for warning in warnings {
        say(&format!("warning: {warning}"));
    }
    line(configuration.effective_yaml().trim_end())?;
    for kind in &configuration.integrations.declared {
        let pod_sets: Vec<_> = kind.pod_sets.iter().map(|pod_set| pod_set.name.as_str()).collect();
        let stopped = if kind.suspend.gates_pods {
            "whose pods wait behind a gate".to_owned()
        } else {
            format!("suspended by {}", kind.suspend.path)
        };
        line(&format!(
            "# declared: {}: {}.{} of version {}, {stopped}, with the pod sets {}",
            kind.framework(),
            kind.plural,
            kind.group,
            kind.version,
            pod_sets.join(", ")
        ))?;
    }
    Ok(0)
}
