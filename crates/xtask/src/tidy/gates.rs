//! Feature gates that are documented as without effect have no effect.

use std::collections::BTreeMap;

use sluice_api::gates::Gate;

use super::kinds::{shipped, ships};

/// Gates without their capability that something asks for all the same, and why.
const ASKED: [(&str, &str); 2] = [
    ("ConcurrentAdmission", "a field is refused without the gate, as in Kueue"),
    ("KueueDRAIntegration", "pods with resource claims are refused without the gate, as in Kueue"),
];

/// A finding for each gate that is documented as without effect and has one, and for outdated exceptions.
pub fn check(files: &BTreeMap<String, String>) -> Vec<String> {
    let code = files.iter().filter(|(path, _)| ships(path) && !path.starts_with("crates/api/src/gates"));
    let code: Vec<_> = code.map(|(path, text)| (path, shipped(text))).collect();
    let asks = |gate: Gate| {
        let name = format!("Gate::{}", gate.name());
        let is_named = |text: &str| {
            text.match_indices(&name).any(|(at, _)| {
                !text[at + name.len()..].starts_with(|next: char| next.is_alphanumeric() || next == '_')
            })
        };
        code.iter().find(|(_, text)| is_named(text)).map(|(path, _)| *path)
    };
    let mut findings = Vec::new();
    for gate in Gate::ALL.iter().filter(|gate| !gate.built()) {
        let is_excepted = ASKED.iter().any(|(name, _)| *name == gate.name());
        match asks(*gate) {
            Some(path) if !is_excepted => findings.push(format!(
                "{path}: the gate {} has an effect here; take it off the list of those without one (Gate::built)",
                gate.name()
            )),
            None if is_excepted => {
                findings.push(format!("{} is no exception any more; take it off the list in tidy/gates.rs", gate.name()));
            }
            _ => {}
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_without_effect_that_code_asks_for_is_found_and_a_longer_name_is_another() {
        let file = |text: &str| {
            let asked = "on(Gate::ConcurrentAdmission) on(Gate::KueueDRAIntegration)";
            BTreeMap::from([("crates/engine/src/x.rs".to_owned(), format!("{asked} {text}"))])
        };
        assert_eq!(
            check(&file("on(Gate::MultiKueueClusterProfileX)\n// Gate::MultiKueue")),
            Vec::<String>::new()
        );
        let found = check(&file("on(Gate::MultiKueue)"));
        assert!(found.len() == 1 && found[0].contains("the gate MultiKueue has an effect here"), "{found:?}");
        assert_eq!(check(&BTreeMap::new()).len(), 2, "the exceptions are none");
    }
}
