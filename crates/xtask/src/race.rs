//! `cargo xtask race`: how many writes a manager needs for thousands of Workloads, how long they wait, and what it all costs.
//!
//! Counts have budgets, and more than the budget is a failure. Times are of this machine: printed, and never a failure.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use serde::Deserialize;
use sluice_testkit::race::{Figures, Race, run as play};

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

/// What a race may take at most, in `tests/performance/budgets.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Status writes per Workload, without those of evictions and the way back.
    status_writes: f64,
    /// Status writes of all queues, per second.
    queue_writes_per_second: f64,
    /// Events per Workload, without those.
    events: f64,
    /// Writes that were refused as conflicts, per Workload.
    conflicts: f64,
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
    let (budgets, _) = crate::bench::budgets()?;
    let Some(budget) = budgets.race.get(args.size.name()) else { return Ok(ExitCode::SUCCESS) };
    let failures = budget.exceeded(&figures);
    for failure in &failures {
        println!("over the budget: {failure}");
    }
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Budget {
    fn exceeded(&self, figures: &Figures) -> Vec<String> {
        // An eviction is a write and three events (Preempted, Evicted, PreemptedWorkload), and the way back another admission.
        let status = figures.status_writes.saturating_sub(2 * figures.evictions);
        let events = figures.events.saturating_sub(5 * figures.evictions);
        let per_second = figures.per_workload(figures.queue_writes)
            * f64::from(u32::try_from(figures.workloads).unwrap_or(u32::MAX))
            / (figures.wall.as_secs_f64() + 1.0);
        [
            ("status writes per Workload", figures.per_workload(status), self.status_writes),
            ("status writes of queues per second", per_second, self.queue_writes_per_second),
            ("events per Workload", figures.per_workload(events), self.events),
            ("conflicts per Workload", figures.per_workload(figures.conflicts), self.conflicts),
        ]
        .into_iter()
        .filter(|(_, count, most)| count > most)
        .map(|(what, count, most)| format!("{count:.2} {what}, at most {most}"))
        .collect()
    }
}
