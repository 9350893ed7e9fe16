//! Faults of machines: node pools that fail, are removed and return under JobSets that take whole pools, with Hotswap, and with all other faults.
//!
//! * [`drawn`]: the world, small enough that every job fits while all machines are healthy.
//! * [`safety`]: what must hold after each step.
//! * [`places`]: the invariants for nodes with a topology, which some runs have.

mod drawn;
mod places;
mod safety;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use sluice_sim::faults::PerFault;
use sluice_sim::{Options, Simulation, TimelineEvent, prepare};

use super::Day;
use super::safety::Judged;
use drawn::Drawn;
use safety::Safety;

/// The nodes of seeds from here on have a topology: pools, and hostnames.
pub const WITH_TOPOLOGY: u64 = 1 << 40;
/// How long things go wrong, in simulated time; by then all machines are back.
const BAD: SignedDuration = SignedDuration::from_mins(10);

/// Plays the day of a seed; on failure, what is wrong, with seed and step.
pub fn play(seed: u64, rates: PerFault) -> Result<Day, String> {
    let (mut simulation, judged) = begin(seed, rates)?;
    match end(seed, &mut simulation) {
        Ok(()) => Ok(Day { simulation, judged }),
        Err(why) => {
            Err(format!("machines {seed}: {why}\n(cargo xtask sim --machines --seed {seed} shows the day)"))
        }
    }
}

/// The world of a seed, at the beginning of its day, and how much of that will have been judged.
pub fn begin(seed: u64, rates: PerFault) -> Result<(Simulation, Arc<Judged>), String> {
    let drawn = Drawn::new(seed);
    let options = Options { audit: true, seed, ..Options::new(Options::default_configuration()) };
    let all = |errors: Vec<sluice_sim::ManifestError>| {
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        format!("machines {seed}: {}", texts.join("; "))
    };
    let manifests = drawn.manifests().map_err(all)?;
    let mut simulation = prepare(&manifests, &BTreeMap::new(), options).map_err(all)?;
    let judged = Arc::default();
    let mut safety = Safety::new(rates, Arc::clone(&judged));
    simulation.play_faults(seed, rates, BAD, Box::new(move |simulation| safety.check(simulation)));
    Ok((simulation, judged))
}

/// Plays to the end, at which every job must have run: each of them fits.
pub fn end(seed: u64, simulation: &mut Simulation) -> Result<(), String> {
    let failures = Drawn::new(seed).failures;
    simulation.run(|_| {}).map_err(|error| error.to_string())?;
    let record = simulation.record();
    for (index, job) in record.jobs.iter().enumerate() {
        if job.finished.is_none() {
            return Err(format!("at the end: {} never ran: {:?}", job.key(), job.waits_for));
        }
        let own = record.entries.iter().filter(|entry| entry.job == Some(index));
        let of_nodes = |what: &TimelineEvent| match what {
            TimelineEvent::Evicted { reason, .. } => **reason == *"NodeFailures",
            _ => false,
        };
        let moves = own.filter(|entry| of_nodes(&entry.what)).count();
        if moves > failures {
            return Err(format!("at the end: {} was moved {moves} times for {failures} failures", job.key()));
        }
    }
    Ok(())
}
