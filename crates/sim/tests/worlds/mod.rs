//! The scenarios of `examples/simulate`, for the tests of the simulator and of its output.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use sluice_sim::{File, Manifests, Options, Report, Simulation, prepare, settings};

/// Where the scenarios are.
pub fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/simulate")
}

/// The default options, with the scenarios' settings, and the books checked in every step.
pub fn options(manifests: &Manifests) -> Options {
    let mut options = Options::new(Options::default_configuration());
    settings(&mut options, &manifests.scenarios, false);
    options.audit = true;
    options
}

/// A scenario, and the files that it applies.
pub fn example(name: &str) -> (Manifests, BTreeMap<String, String>) {
    let text = fs::read_to_string(folder().join(name)).unwrap();
    let manifests = Manifests::read(&[File { name: name.to_owned(), text, named: true }]).unwrap();
    let files =
        manifests.scenarios.iter().flat_map(|(_, s)| s.files().map(str::to_owned).collect::<Vec<_>>());
    let files = files.map(|name| (name.clone(), fs::read_to_string(folder().join(&name)).unwrap())).collect();
    (manifests, files)
}

/// A scenario, played to its end.
pub fn run(name: &str) -> Simulation {
    let (manifests, files) = example(name);
    let mut simulation = prepare(&manifests, &files, options(&manifests)).unwrap();
    simulation.run(|_| {}).unwrap();
    simulation
}

/// What is reported of a simulation.
pub fn report(simulation: &Simulation) -> Report {
    Report::new(simulation.record(), simulation.lasted(), 0, Vec::new())
}
