//! `cargo xtask sim`: seeded worlds with faults, with invariants checked after each step.

#[expect(dead_code, reason = "the tests look at more of a day")]
#[path = "../../sim/tests/faults/day/mod.rs"]
mod day;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context as _;
use sluice_ctl::table;
use sluice_sim::Simulation;
use sluice_sim::faults::PerFault;

/// Play seeded worlds on bad days: watches that lag and break, writes that fail, managers that crash, clocks that jump.
#[derive(clap::Args)]
pub struct Args {
    /// The seed of the first world; without it the time.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How many worlds, each with the next seed. One world is shown step by step.
    #[arg(long, value_name = "K", default_value_t = 1)]
    worlds: u64,
    /// Worlds with nodes that fail, and Hotswap.
    #[arg(long)]
    machines: bool,
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
        return show(first, rates, args.machines);
    }
    let mut failed = 0;
    for seed in first..first.saturating_add(args.worlds) {
        let played = if args.machines { day::machines::play(seed, rates) } else { day::play(seed, rates) };
        if let Err(why) = played {
            println!("{why}");
            failed += 1;
        }
    }
    println!("{} worlds from seed {first} on: {failed} failed", args.worlds);
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The world of a seed.
type Begin = fn(u64, PerFault) -> Result<(Simulation, Arc<day::safety::Judged>), String>;
/// Its day.
type End = fn(u64, &mut Simulation) -> Result<(), String>;

/// Plays a day and prints its timeline.
fn show(seed: u64, rates: PerFault, machines: bool) -> anyhow::Result<ExitCode> {
    let (begin, end): (Begin, End) =
        if machines { (day::machines::begin, day::machines::end) } else { (day::begin, day::end) };
    let (mut simulation, _) = begin(seed, rates).map_err(anyhow::Error::msg)?;
    let outcome = end(seed, &mut simulation);
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
