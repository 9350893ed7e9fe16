//! The flags of `create resourceflavor`, and the resulting spec.

use anyhow::Context as _;
use clap::Args;
use serde_json::{Map, Value, json};

use super::Making;

/// `kubectl kueue create resourceflavor`.
#[derive(Clone, Debug, Default, Args)]
pub struct FlavorArgs {
    /// Which.
    #[command(flatten)]
    pub making: Making,
    /// Labels of the flavor's nodes: k=v,…
    #[arg(long, value_name = "LABELS", value_delimiter = ',')]
    pub node_labels: Vec<String>,
    /// Taints of the flavor's nodes, which jobs must tolerate: k=v:Effect,…
    #[arg(long, value_name = "TAINTS", value_delimiter = ',')]
    pub node_taints: Vec<String>,
    /// Tolerations that jobs in this flavor get: k=v:Effect or k:Effect,…; without an effect they tolerate all effects
    #[arg(long, value_name = "TOLERATIONS", value_delimiter = ',')]
    pub tolerations: Vec<String>,
}

impl FlavorArgs {
    /// The spec that the flags stand for.
    ///
    /// # Errors
    ///
    /// If a node label has no `=`, or a node taint has no `:` before an effect.
    pub fn spec(&self) -> anyhow::Result<Value> {
        let mut labels = Map::new();
        for pair in &self.node_labels {
            let wrong = || format!("--node-labels: expected KEY=VALUE, found {pair}");
            let (key, value) = pair.split_once('=').with_context(wrong)?;
            labels.insert(key.to_owned(), json!(value));
        }
        let taints: Vec<Value> = self.node_taints.iter().map(|text| taint(text)).collect::<Result<_, _>>()?;
        let tolerations: Vec<Value> = self.tolerations.iter().map(|text| toleration(text)).collect();
        let parts = [
            ("nodeLabels", Value::Object(labels)),
            ("nodeTaints", Value::Array(taints)),
            ("tolerations", Value::Array(tolerations)),
        ];
        let said = |value: &Value| {
            value.as_object().is_some_and(|m| !m.is_empty())
                || value.as_array().is_some_and(|a| !a.is_empty())
        };
        Ok(parts.into_iter().filter(|(_, v)| said(v)).map(|(k, v)| (k.to_owned(), v)).collect())
    }
}

fn taint(text: &str) -> anyhow::Result<Value> {
    let wrong = || format!("--node-taints: expected KEY=VALUE:EFFECT, found {text}");
    let (rest, effect) = text.rsplit_once(':').with_context(wrong)?;
    let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
    Ok(json!({"key": key, "value": value, "effect": effect}))
}

fn toleration(text: &str) -> Value {
    let (rest, effect) = match text.rsplit_once(':') {
        Some((rest, effect)) => (rest, Some(effect)),
        None => (text, None),
    };
    let mut toleration = match rest.split_once('=') {
        Some((key, value)) => json!({"key": key, "operator": "Equal", "value": value}),
        None => json!({"key": rest, "operator": "Exists"}),
    };
    if let Some(effect) = effect {
        toleration["effect"] = json!(effect);
    }
    toleration
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_become_labels_taints_and_tolerations() {
        let args = FlavorArgs {
            node_labels: vec!["a=b".to_owned()],
            node_taints: vec!["spot=true:NoSchedule".to_owned()],
            tolerations: vec!["spot=true:NoSchedule".to_owned(), "gpu".to_owned()],
            ..FlavorArgs::default()
        };
        let wanted = json!({
            "nodeLabels": {"a": "b"},
            "nodeTaints": [{"key": "spot", "value": "true", "effect": "NoSchedule"}],
            "tolerations": [
                {"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"},
                {"key": "gpu", "operator": "Exists"},
            ],
        });
        assert_eq!(args.spec().unwrap(), wanted);
        assert_eq!(FlavorArgs::default().spec().unwrap(), json!({}));
        let wrong = FlavorArgs { node_taints: vec!["spot".to_owned()], ..FlavorArgs::default() };
        assert!(wrong.spec().unwrap_err().to_string().starts_with("--node-taints: "));
    }
}
