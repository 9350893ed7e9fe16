//! `sluice replay`: gives a decision log to the engine again and compares.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use sluice_sim::replay::{Mismatch, Replay};

use crate::print::line;

/// Characters of an effect that are shown.
const MOST_CHARACTERS: usize = 400;

/// `sluice replay`.
#[derive(Clone, Debug, Args)]
pub struct ReplayArgs {
    /// A decision log, as `sluice manager --record` and `sluice simulate --record` write it
    pub file: PathBuf,
    /// Show the differences of all cycles, not only of the first that differs
    #[arg(long)]
    pub diff: bool,
}

/// Runs `sluice replay`: 0 if every cycle came out as it was recorded, else 1.
///
/// # Errors
///
/// If the file cannot be read, a line of it cannot be replayed, or standard output cannot be written.
pub fn run(args: &ReplayArgs) -> anyhow::Result<u8> {
    let name = args.file.display();
    let file = std::fs::File::open(&args.file).with_context(|| format!("opening {name}"))?;
    let mut replay = Replay::default();
    for recorded in BufReader::new(file).lines() {
        let recorded = recorded.with_context(|| format!("reading {name}"))?;
        replay.line(&recorded).with_context(|| format!("replaying {name}"))?;
    }
    let outcome = replay.finish();
    line(&format!(
        "{} inputs, {} cycles, {} effects recorded by version {}",
        outcome.inputs, outcome.cycles, outcome.effects, outcome.version
    ))?;
    if outcome.rebuilt > 0 {
        line(&format!("the engine was rebuilt {} times", outcome.rebuilt))?;
    }
    match &outcome.ended {
        Some(why) => line(&format!("the recording ended: {why}"))?,
        None => line("the recording does not say why it ended: its last moments may be missing")?,
    }
    let shown = if args.diff { outcome.mismatches.len() } else { 1 };
    for mismatch in outcome.mismatches.iter().take(shown) {
        show(mismatch)?;
    }
    if outcome.mismatches.is_empty() {
        line("every cycle came out as it was recorded")?;
        return Ok(0);
    }
    line(&format!("{} cycles came out differently", outcome.mismatches.len()))?;
    Ok(1)
}

fn show(mismatch: &Mismatch) -> std::io::Result<()> {
    line(&format!("line {}, {}:", mismatch.line, mismatch.at))?;
    for (sign, effects) in [('-', &mismatch.recorded), ('+', &mismatch.replayed)] {
        for effect in effects {
            line(&format!("{sign} {}", shortened(effect)))?;
        }
    }
    if mismatch.recorded.is_empty() && mismatch.replayed.is_empty() {
        line("  the same in another order")?;
    }
    Ok(())
}

/// A line that a terminal bears: whole objects are longer.
fn shortened(effect: &str) -> String {
    match effect.char_indices().nth(MOST_CHARACTERS) {
        Some((end, _)) => format!("{}…", &effect[..end]),
        None => effect.to_owned(),
    }
}
