//! `sluice replay`: gives a decision log to the engine again and compares.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use sluice_sim::replay::{Mismatch, Replay};

/// Characters of an effect that are shown.
const MOST_CHARACTERS: usize = 400;

/// `sluice replay`.
#[derive(Clone, Debug, Args)]
pub struct ReplayArgs {
    /// A decision log, as `sluice manager --record` and `sluice simulate --record` write it
    pub file: PathBuf,
    /// Show all that this version decides differently, not only in the first cycle that differs
    #[arg(long)]
    pub diff: bool,
}

/// Runs `sluice replay`: 0 if every cycle came out as it was recorded, else 1.
pub fn run(args: &ReplayArgs) -> anyhow::Result<u8> {
    let name = args.file.display();
    let file = std::fs::File::open(&args.file).with_context(|| format!("opening {name}"))?;
    let mut replay = Replay::default();
    for line in BufReader::new(file).lines() {
        let line = line.with_context(|| format!("reading {name}"))?;
        replay.line(&line).with_context(|| format!("replaying {name}"))?;
    }
    let outcome = replay.finish();
    println!(
        "{} inputs, {} cycles, {} effects recorded by version {}",
        outcome.inputs, outcome.cycles, outcome.effects, outcome.version
    );
    if outcome.rebuilt > 0 {
        println!("the engine was built anew {} times", outcome.rebuilt);
    }
    match &outcome.ended {
        Some(why) => println!("the recording ended: {why}"),
        None => println!("the recording does not say why it ended: its last moments may be missing"),
    }
    let shown = if args.diff { outcome.mismatches.len() } else { 1 };
    for mismatch in outcome.mismatches.iter().take(shown) {
        show(mismatch);
    }
    if outcome.mismatches.is_empty() {
        println!("every cycle came out as it was recorded");
        return Ok(0);
    }
    println!("{} cycles came out differently", outcome.mismatches.len());
    Ok(1)
}

fn show(mismatch: &Mismatch) {
    println!("line {}, {}:", mismatch.line, mismatch.at);
    for (sign, effects) in [('-', &mismatch.recorded), ('+', &mismatch.replayed)] {
        for effect in effects {
            println!("{sign} {}", shortened(effect));
        }
    }
    if mismatch.recorded.is_empty() && mismatch.replayed.is_empty() {
        println!("  the same in another order");
    }
}

/// A line that a terminal bears: whole objects are longer.
fn shortened(effect: &str) -> String {
    match effect.char_indices().nth(MOST_CHARACTERS) {
        Some((end, _)) => format!("{}…", &effect[..end]),
        None => effect.to_owned(),
    }
}
