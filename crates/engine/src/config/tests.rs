//! The configuration as the core receives it.

use std::collections::BTreeMap;

use sluice_api::gates::Gate;

use super::EngineConfig;

/// The core's switches by name, without underscores.
fn switches(config: &EngineConfig) -> BTreeMap<String, bool> {
    let shown = format!("{:?}", config.core().gates);
    let fields = shown.trim_start_matches("Gates { ").trim_end_matches(" }").split(", ");
    let read = |field: &str| {
        let (name, on) = field.split_once(": ").unwrap();
        (name.replace('_', ""), on.parse().unwrap())
    };
    fields.map(read).collect()
}

#[test]
fn each_gate_switches_the_rule_of_the_core_that_has_its_name_and_no_other() {
    let all_on = |config: EngineConfig, gate: &Gate| {
        let gates = config.gates.with(*gate, true);
        EngineConfig { gates, ..config }
    };
    let config = Gate::ALL.iter().fold(EngineConfig::default(), all_on);
    let before = switches(&config);
    assert!(before.len() > 20 && before.values().all(|on| *on), "{before:?}");
    let mut switched = 0;
    for gate in Gate::ALL {
        let gates = config.gates.with(*gate, false);
        let after = switches(&EngineConfig { gates, ..config.clone() });
        let off: Vec<&str> = after.iter().filter(|(_, on)| !**on).map(|(name, _)| name.as_str()).collect();
        let own = gate.name().to_lowercase();
        let expected: Vec<&str> = before.get(&own).map(|_| own.as_str()).into_iter().collect();
        assert_eq!(off, expected, "{}", gate.name());
        switched += expected.len();
    }
    assert_eq!(switched, before.len(), "each rule has a gate");
}
