//! `cargo xtask race`: how many writes a manager needs for thousands of Workloads, how long they wait, and what it all costs.
//!
//! Counts have budgets, and more than the budget is a failure. Times are of this machine: printed, and never a failure.

pub mod budget;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use budget::Budget;
use sluice_testkit::race::{Race, run as play};

/// Let a manager admit Workloads of three classes in 30 queues, and count its writes.
#[derive(clap::Args)]
pub struct Args {
    /// How many Workloads.
    #[arg(long, value_enum, default_value = "small")]
    size: Size,
    /// Another manager: a command for `sh`, with KUBECONFIG and RACE_CONFIG in its environment (then counts have no budget).
    #[arg(long)]
    manager_cmd: Option<String>,
    /// How many minutes it may take.
    #[arg(long, default_value_t = 15)]
    minutes: u64,
}

/// How many Workloads there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Size {
    /// 300
    Tiny,
    /// 1,500
    Small,
    /// 15,000
    Baseline,
}

impl Size {
    const fn per_queue(self) -> usize {
        match self {
            Self::Tiny => 10,
            Self::Small => 50,
            Self::Baseline => 500,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Small => "small",
            Self::Baseline => "baseline",
        }
    }
}

/// Runs the race.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let race = Race {
        per_queue: args.size.per_queue(),
        manager: args.manager_cmd.clone(),
        limit: Duration::from_mins(args.minutes),
    };
    let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
    let figures = runtime.block_on(play(&race))?;
    println!("{figures}");
    if race.manager.is_some() {
        return Ok(ExitCode::SUCCESS);
    }
    let budget = Budget::of(args.size.name())?;
    let failures = budget.exceeded(&figures);
    for failure in &failures {
        println!("over the budget: {failure}");
    }
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
