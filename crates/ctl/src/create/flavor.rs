//! The flags of `create resourceflavor`, and the resulting spec.

use anyhow::Context as _;
use clap::Args;
use serde_json::{Map, Value, json};

use super::Making;

/// The effects that kueuectl takes.
const EFFECTS: [&str; 2] = ["NoSchedule", "NoExecute"];

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
    /// Tolerations that jobs in this flavor get: k=v:Effect or k:Effect,…; without an effect they tolerate all effects, :Effect all taints of it
    #[arg(long, value_name = "TOLERATIONS", value_delimiter = ',')]
    pub tolerations: Vec<String>,
}

impl FlavorArgs {
    /// The spec that the flags stand for.
    ///
    /// # Errors
    ///
    /// If a node label has no `=`, a node taint has no key or no effect, a toleration has neither, or an effect is none of kueuectl's.
    pub fn spec(&self) -> anyhow::Result<Value> {
        let mut labels = Map::new();
        for pair in &self.node_labels {
            let wrong = || format!("--node-labels: expected KEY=VALUE, found {pair}");
            let (key, value) = pair.split_once('=').with_context(wrong)?;
            labels.insert(key.to_owned(), json!(value));
        }
        let taints: Vec<Value> = self.node_taints.iter().map(|text| taint(text)).collect::<Result<_, _>>()?;
        let tolerations: Vec<Value> =
            self.tolerations.iter().map(|text| toleration(text)).collect::<Result<_, _>>()?;
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

/// The key, the value and the effect of `KEY[=VALUE][:EFFECT]`; nothing if the text has another form.
fn parts(text: &str) -> Option<(&str, Option<&str>, Option<&str>)> {
    let (rest, effect) = text.split_once(':').map_or((text, None), |(rest, effect)| (rest, Some(effect)));
    let (key, value) = rest.split_once('=').map_or((rest, None), |(key, value)| (key, Some(value)));
    let known = effect.is_none_or(|effect| EFFECTS.contains(&effect));
    (known && !value.is_some_and(|value| value.contains('='))).then_some((key, value, effect))
}

fn taint(text: &str) -> anyhow::Result<Value> {
    let found = parts(text).and_then(|(key, value, effect)| Some((key, value, effect?)));
    let wrong =
        || format!("--node-taints: expected KEY=VALUE:EFFECT with the effect {}, found {text:?}", either());
    let (key, value, effect) = found.filter(|(key, ..)| !key.is_empty()).with_context(wrong)?;
    Ok(json!({"key": key, "value": value.unwrap_or_default(), "effect": effect}))
}

fn toleration(text: &str) -> anyhow::Result<Value> {
    // Without a key all taints are tolerated. Only `:EFFECT` asks for that, not what a stray comma or an empty variable leaves.
    let is_meant = |(key, value, effect): &(&str, Option<&str>, Option<&str>)| {
        !key.is_empty() || value.is_none() && effect.is_some()
    };
    let wrong = || {
        format!(
            "--tolerations: expected KEY[=VALUE][:EFFECT] or :EFFECT with the effect {}, found {text:?}",
            either()
        )
    };
    let (key, value, effect) = parts(text).filter(is_meant).with_context(wrong)?;
    let mut toleration = match value {
        Some(value) => json!({"key": key, "operator": "Equal", "value": value}),
        None => json!({"key": key, "operator": "Exists"}),
    };
    if let Some(effect) = effect {
        toleration["effect"] = json!(effect);
    }
    Ok(toleration)
}

fn either() -> String {
    EFFECTS.join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches as _;

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

    #[test]
    fn a_stray_comma_or_an_empty_variable_makes_no_toleration_of_all_taints() {
        let read = |line: &str| {
            let command = FlavorArgs::augment_args(clap::Command::new("x"));
            let matches = command.try_get_matches_from(["x", "spot", "--tolerations", line]).unwrap();
            FlavorArgs::from_arg_matches(&matches).unwrap().spec()
        };
        for wrong in [
            "",
            "a:NoSchedule,",
            "a,,b",
            ":",
            "a:",
            "=b:NoSchedule",
            "=b",
            "a=b=c",
            "a:b:NoSchedule",
            "a:Never",
        ] {
            let error = read(wrong).unwrap_err().to_string();
            assert!(error.starts_with("--tolerations: "), "{wrong}: {error}");
        }
        let all = json!([{"key": "", "operator": "Exists", "effect": "NoExecute"}]);
        assert_eq!(read(":NoExecute").unwrap()["tolerations"], all);
    }

    #[test]
    fn a_node_taint_has_a_key_and_one_known_effect() {
        for wrong in
            ["", "a", ":NoSchedule", "=b:NoSchedule", "a:", "a=b=c:NoSchedule", "a:b:NoSchedule", "a:Never"]
        {
            assert!(taint(wrong).is_err(), "{wrong}");
        }
        let plain = json!({"key": "a", "value": "", "effect": "NoExecute"});
        assert_eq!(taint("a:NoExecute").unwrap(), plain);
    }
}
