//! `cargo xtask sim`: seeded worlds on bad days, with what must hold checked after each step.

#[expect(dead_code, reason = "the tests look at more of a day")]
#[path = "../../sim/tests/faults/day/mod.rs"]
mod day;

use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Context as _;
use sluice_sim::faults::PerFault;
use sluice_sim::{Simulation, table};

/// Play seeded worlds on bad days: watches that lag and break, writes that fail, managers that crash, clocks that jump.
#[derive(clap::Args)]
pub struct Args {
    /// The seed of the first world; without it the time.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How many worlds, each with the next seed. One world is shown step by step.
    #[arg(long, value_name = "K", default_value_t = 1)]
    worlds: u64,
    /// Let nothing go wrong.
    #[arg(long)]
    quiet: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).context("reading the clock")?;
    let first = args.seed.unwrap_or(now.as_secs());
    let rates = if args.quiet { PerFault::NONE } else { PerFault::BAD };
    if args.worlds == 1 {
        return show(first, rates);
    }
    let mut failed = 0;
    for seed in first..first.saturating_add(args.worlds) {
        if let Err(why) = day::play(seed, rates) {
            println!("{why}");
            failed += 1;
        }
    }
    println!("{} worlds from seed {first} on: {failed} failed", args.worlds);
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Plays a day and prints its timeline.
fn show(seed: u64, rates: PerFault) -> anyhow::Result<ExitCode> {
    let mut simulation = day::begin(seed, rates).map_err(anyhow::Error::msg)?;
    let outcome = day::end(seed, &mut simulation);
    print_day(&simulation);
    Ok(match outcome {
        Ok(()) => {
            println!("seed {seed}: safe and alive");
            ExitCode::SUCCESS
        }
        Err(why) => {
            println!("seed {seed}: {why}");
            ExitCode::FAILURE
        }
    })
}

fn print_day(simulation: &Simulation) {
    let record = simulation.record();
    for entry in &record.entries {
        println!("{}", table::line(&record.line(entry)));
    }
    println!("{} steps; {:?}", simulation.steps(), simulation.faults());
}
