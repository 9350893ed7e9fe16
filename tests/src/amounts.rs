//! Amounts of resources and requests of pods, read in the simplest way: this shares no code with the tested program.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::Value;

/// How much of each resource, in thousandths.
pub type Amounts = BTreeMap<String, i128>;

/// An amount in thousandths, exactly.
///
/// # Errors
///
/// If it is not a whole number with a known unit.
pub fn amount(text: &Value) -> Result<i128> {
    let text = text.as_str().map_or_else(|| text.to_string(), str::to_owned);
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: i128 = digits.parse().with_context(|| format!("reading the amount {text}"))?;
    let unit = match &text[digits.len()..] {
        "m" => 1,
        "" => 1_000,
        "k" => 1_000_000,
        "M" => 1_000_000_000,
        "G" => 1_000_000_000_000,
        "Ki" => 1_000 << 10,
        "Mi" => 1_000 << 20,
        "Gi" => 1_000 << 30,
        other => anyhow::bail!("reading the amount {text}: the unit {other} is not known"),
    };
    Ok(number * unit)
}

/// What one pod of this spec asks for: the sum of its containers, and at least what each init container does.
///
/// # Errors
///
/// As [`amount`].
pub fn of_pod(spec: &Value) -> Result<Amounts> {
    let mut asks = Amounts::new();
    for container in spec["containers"].as_array().into_iter().flatten() {
        for (resource, text) in container["resources"]["requests"].as_object().into_iter().flatten() {
            *asks.entry(resource.clone()).or_default() += amount(text)?;
        }
    }
    for container in spec["initContainers"].as_array().into_iter().flatten() {
        for (resource, text) in container["resources"]["requests"].as_object().into_iter().flatten() {
            let most = asks.entry(resource.clone()).or_default();
            *most = amount(text)?.max(*most);
        }
    }
    Ok(asks)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn amounts_are_read_exactly() {
        let read = |value: Value| amount(&value).unwrap();
        assert_eq!(read(json!("1500m")), 1_500);
        assert_eq!(read(json!(2)), 2_000);
        assert_eq!(read(json!("3Gi")), 3_000 * (1 << 30));
        assert!(amount(&json!("1.5")).is_err() && amount(&json!("1Zi")).is_err());
    }

    #[test]
    fn a_pod_asks_for_what_its_containers_do_together() {
        let one = |cpu: &str| json!({"resources": {"requests": {"cpu": cpu}}});
        let spec = json!({"containers": [one("1"), one("500m")], "initContainers": [one("1200m")]});
        assert_eq!(of_pod(&spec).unwrap(), Amounts::from([("cpu".to_owned(), 1_500)]));
        let spec = json!({"containers": [one("1")], "initContainers": [one("2")]});
        assert_eq!(of_pod(&spec).unwrap(), Amounts::from([("cpu".to_owned(), 2_000)]));
    }
}
