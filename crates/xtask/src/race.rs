//! `cargo xtask race`: how many writes a manager needs for thousands of Workloads, how long these wait, and the resources that it uses.
//!
//! Counts have budgets, and exceeding one is a failure. Times and memory depend on the machine: they are printed, beside their goals if there are any,
//! and never a failure.

pub mod budget;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use budget::Budget;
use sluice_testkit::race::{CLASSES, FREED, PREEMPTING, Race, STEADY, Work, forms, run as play};

/// Let a manager admit Workloads or Jobs of several classes in many queues, and count its writes.
#[derive(clap::Args)]
pub struct Args {
    /// How many Workloads, in which queues.
    #[arg(long, value_enum, default_value = "small")]
    size: Size,
    /// Jobs instead of Workloads; the race plays their controller, so there are no pods.
    #[arg(long)]
    jobs: bool,
    /// No race: what the API server spends on a status write, by its form.
    #[arg(long, conflicts_with_all = ["jobs", "manager_cmd"])]
    forms: bool,
    /// Another manager: a command for `sh`, with KUBECONFIG and RACE_CONFIG in its environment (then counts have no budget).
    #[arg(long)]
    manager_cmd: Option<String>,
    /// How many minutes it may take [default: 30; huge: 90].
    #[arg(long)]
    minutes: Option<u64>,
}

/// How many Workloads there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Size {
    /// 300 in 30 queues
    Tiny,
    /// 1,500 in 30 queues
    Small,
    /// 15,000 in 30 queues
    Baseline,
    /// 50,000 in 1,000 queues
    Large,
    /// 100,000 in 1,000 queues
    Huge,
    /// 3,000 in 30 queues, most of which take their place from others
    Preemption,
    /// 100 a second for ten minutes in 30 queues that always have room
    Steady,
    /// 800 in 4 full queues, some 30 a second: how soon the next one starts when one ends, while the API server has little to do
    Freed,
}

impl Size {
    fn race(self) -> Race {
        let of = |per_queue| Race { per_queue, classes: &CLASSES, ..Race::default() };
        match self {
            Self::Tiny => of(10),
            Self::Small => of(50),
            Self::Baseline => of(500),
            Self::Large => Race { cohorts: 10, queues_per_cohort: 100, ..of(50) },
            Self::Huge => Race { cohorts: 10, queues_per_cohort: 100, ..of(100) },
            Self::Preemption => Race { classes: &PREEMPTING, ..of(100) },
            // A tenth of a queue's quota is enough at that pace, if its writes take no time.
            Self::Steady => Race { classes: &STEADY, quota: 2_000, ..of(2_000) },
            // A queue that can borrow would take the quota that the end of another queue's job frees.
            Self::Freed => Race { cohorts: 4, queues_per_cohort: 1, quota: 4, classes: &FREED, ..of(200) },
        }
    }

    /// How many minutes it may take.
    const fn minutes(self) -> u64 {
        if matches!(self, Self::Huge) { 90 } else { 30 }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Tiny => "tiny",
            Self::Small => "small",
            Self::Baseline => "baseline",
            Self::Large => "large",
            Self::Huge => "huge",
            Self::Preemption => "preemption",
            Self::Steady => "steady",
            Self::Freed => "freed",
        }
    }

    /// The name of its budget.
    fn budget(self, of_jobs: bool) -> String {
        format!("{}{}", self.name(), if of_jobs { "-jobs" } else { "" })
    }
}

/// Runs the race.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let work = if args.jobs { Work::Jobs } else { Work::Workloads };
    let limit = Duration::from_mins(args.minutes.unwrap_or(args.size.minutes()));
    let race = Race { work, manager: args.manager_cmd.clone(), limit, ..args.size.race() };
    let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
    if args.forms {
        println!("{}", runtime.block_on(forms::run())?);
        return Ok(ExitCode::SUCCESS);
    }
    let figures = runtime.block_on(play(&race))?;
    println!("{figures}");
    if race.manager.is_some() {
        return Ok(ExitCode::SUCCESS);
    }
    let budget = Budget::of(&args.size.budget(args.jobs))?;
    for goal in budget.goals(&figures) {
        println!("{goal}");
    }
    let failures = budget.exceeded(&figures);
    for failure in &failures {
        println!("over the budget: {failure}");
    }
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn a_huge_race_has_a_hundred_thousand_workloads_in_a_thousand_queues() {
        let race = Size::Huge.race();
        assert_eq!((race.cohorts, race.queues_per_cohort, race.total()), (10, 100, 100_000));
    }

    #[test]
    fn each_size_has_a_budget_for_workloads_and_for_jobs() {
        for size in Size::value_variants() {
            for of_jobs in [false, true] {
                let name = size.budget(of_jobs);
                assert!(Budget::of(&name).is_ok(), "{name}");
            }
        }
    }
}
