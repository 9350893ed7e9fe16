//! One run with faults, drawn from a seed: a random world with jobs and an administrator, faults around the engine, and the invariants that must
//! hold.
//!
//! * [`drawn`]: the world, as manifests and a scenario. Queues and workloads are those of the core's oracle.
//! * [`objects`]: the conversion from objects to the oracle's plain types.
//! * [`machines`]: other worlds, with failing nodes and Hotswap.
//! * [`safety`]: invariants after each step, checked from the objects alone, as an auditor of the cluster would.
//! * [`alive`]: invariants after the faults: each waiting Workload has a reason.

pub mod alive;
pub mod drawn;
pub mod machines;
pub mod objects;
pub mod safety;

#[expect(dead_code, reason = "of the oracle, only what a day needs")]
#[path = "../../../../core/tests/oracle/mod.rs"]
mod oracle;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use sluice_sim::faults::PerFault;
use sluice_sim::{Options, Simulation, prepare};

use drawn::Drawn;
use safety::{Judged, Safety};

/// How long things go wrong, in simulated time.
const BAD: SignedDuration = SignedDuration::from_mins(7);
/// How long after that everything that can run must run: what one manager wrote, a clock that is two minutes ahead at most may have said, and the next
/// one waits for that time; failed writes are tried again after a minute at most, and backoffs of statuses and messages are shorter.
const RECOVERY: SignedDuration = SignedDuration::from_mins(4);

/// It is so from then on: how often that is judged, and how long after the time before.
const MOMENTS: u32 = 4;
const APART: SignedDuration = SignedDuration::from_mins(1);

/// How often, and with which pauses, it is looked again whether it is so.
const LOOKS: u32 = 10;
const PAUSE: SignedDuration = SignedDuration::from_secs(2);

/// A day that ended well.
pub struct Day {
    pub simulation: Simulation,
    /// How much of it was judged.
    pub judged: Arc<Judged>,
}

/// Plays the day of a seed; on failure, what is wrong, with seed and step.
pub fn play(seed: u64, rates: PerFault) -> Result<Day, String> {
    let (mut simulation, judged) = begin(seed, rates)?;
    match end(seed, &mut simulation) {
        Ok(()) => Ok(Day { simulation, judged }),
        Err(why) => Err(format!("seed {seed}: {why}\n(cargo xtask sim --seed {seed} shows the day)")),
    }
}

/// The world of a seed, at the beginning of its day, and how much of that will have been judged.
pub fn begin(seed: u64, rates: PerFault) -> Result<(Simulation, Arc<Judged>), String> {
    let drawn = Drawn::new(seed);
    let options = Options { audit: true, seed, ..Options::new(drawn.configuration()) };
    let all = |errors: Vec<sluice_sim::ManifestError>| {
        let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
        format!("seed {seed}: {}", texts.join("; "))
    };
    let manifests = drawn.manifests().map_err(all)?;
    let mut simulation = prepare(&manifests, &BTreeMap::new(), options).map_err(all)?;
    let judged = Arc::default();
    let mut safety = Safety::new(drawn.world.fair.clone(), rates, Arc::clone(&judged));
    simulation.play_faults(seed, rates, BAD, Box::new(move |simulation| safety.check(simulation)));
    Ok((simulation, judged))
}

/// Plays to the end of the day, and checks that every job that can run runs, while long jobs still do, and when all have ended.
pub fn end(seed: u64, simulation: &mut Simulation) -> Result<(), String> {
    let fair = Drawn::new(seed).world.fair;
    let said = |error: sluice_sim::SimError| error.to_string();
    for moment in 0..MOMENTS {
        simulation.advance(if moment == 0 { BAD + RECOVERY } else { APART }).map_err(said)?;
        // What happened a moment ago may still be under way: a status that is written at most once a second, victims that have to stop.
        let mut looks = 0;
        while let Err(why) = alive::check(simulation, fair.clone()) {
            if looks == LOOKS {
                return Err(format!("at {}: {why}", simulation.now()));
            }
            looks += 1;
            simulation.advance(PAUSE).map_err(said)?;
        }
    }
    simulation.run(|_| {}).map_err(said)?;
    alive::check(simulation, fair).map_err(|why| format!("at the end: {why}"))
}
