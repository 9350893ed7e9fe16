//! The book's tables that are generated from code. They stand between `<!-- generated: NAME -->` and `<!-- end of generated -->`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use sluice_api::config::Configuration;
use sluice_api::crds::{crds, document};
use sluice_api::gates::{Gate, REMOVED};
use sluice_api::job::JobKind;
use sluice_engine::metrics::{METRICS, MetricKind};

use super::{config_fields, pods_of_kinds};

const BEGIN: &str = "<!-- generated: ";
const END: &str = "<!-- end of generated -->";

/// Pages with generated tables.
const PAGES: [&str; 7] = [
    "docs/manual/api.md",
    "docs/manual/annotations.md",
    "docs/manual/command-line.md",
    "docs/manual/configuration.md",
    "docs/manual/gates.md",
    "docs/manual/metrics.md",
    "docs/manual/support.md",
];

/// The version whose fields are listed.
const VERSION: &str = "v1beta2";

/// The pages whose tables are not what the code says, each with the text that it should have.
pub fn drift(root: &Path) -> Result<BTreeMap<String, String>> {
    let tables = tables(root)?;
    let mut drift = BTreeMap::new();
    for page in PAGES {
        let text = fs::read_to_string(root.join(page)).with_context(|| page.to_owned())?;
        let wanted = filled(&text, &tables).with_context(|| page.to_owned())?;
        if wanted != text {
            drift.insert(page.to_owned(), wanted);
        }
    }
    Ok(drift)
}

fn tables(root: &Path) -> Result<BTreeMap<&'static str, String>> {
    let read = |path: &str| fs::read_to_string(root.join(path)).with_context(|| path.to_owned());
    let sources =
        ["types", "hotswap", "journal", "journal_store", "tracing", "declared", "dashboard", "scheduler"]
            .map(|name| read(&format!("crates/api/src/config/{name}.rs")));
    let types: String = sources.into_iter().collect::<Result<_>>()?;
    Ok(BTreeMap::from([
        ("api", api()),
        ("configuration", config_fields::table(&types)?),
        (
            "configuration-defaults",
            format!("```yaml\n{}\n```\n", Configuration::default().effective_yaml().trim_end()),
        ),
        ("job-controllers", job_controllers()),
        ("frameworks", frameworks()),
        ("gates", gates(true)),
        ("gates-not-built", gates(false)),
        ("gates-removed", format!("{}.\n", REMOVED.map_code())),
        ("labels", labels(&read("crates/api/src/labels.rs")?)?),
        ("pods-of-kinds", pods_of_kinds::table()),
        ("metrics", metrics()),
        ("metrics-not-there", metrics_not_there(&read("crates/manager/src/metrics/reference.tsv")?)),
    ]))
}

/// A page with its tables filled in.
fn filled(page: &str, tables: &BTreeMap<&str, String>) -> Result<String> {
    let mut text = String::new();
    let mut rest = page;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        let (name, after) = after.split_once(" -->\n").context("a mark is not closed")?;
        let (_, after) = after.split_once(END).with_context(|| format!("{name} has no end"))?;
        let table = tables.get(name).with_context(|| format!("nothing generates {name}"))?;
        let _ = write!(text, "{before}{BEGIN}{name} -->\n{table}{END}");
        rest = after;
    }
    if text.is_empty() {
        bail!("has no generated table");
    }
    Ok(text + rest)
}

/// A list of names as code.
trait MapCode {
    fn map_code(&self) -> String;
}

impl MapCode for [&str] {
    fn map_code(&self) -> String {
        self.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    }
}

/// The parts of the manager that look after jobs.
fn job_controllers() -> String {
    let names: Vec<&str> = JobKind::jobs().map(|kind| kind.integration().controller).collect();
    format!("{}.\n", names.map_code())
}

/// The frameworks that the configuration may list.
fn frameworks() -> String {
    let mut text = "| framework | queues | needs the gate |\n|---|---|---|\n".to_owned();
    for kind in JobKind::ALL {
        let integration = kind.integration();
        let gate = integration.gate.map(|gate| format!("`{}`", gate.name())).unwrap_or_default();
        // Writing into a String does not fail.
        let _ = writeln!(text, "| `{}` | {} | {gate} |", integration.framework, integration.about);
    }
    text
}

/// A text that may stand in a cell.
pub fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

fn gates(built: bool) -> String {
    let mut text = "| gate | default | stage | what it switches |\n|---|---|---|---|\n".to_owned();
    for gate in Gate::ALL.iter().filter(|gate| gate.built() == built) {
        let default = if gate.default_on() { "on" } else { "off" };
        let parents: Vec<&str> = gate.parents().iter().map(|parent| parent.name()).collect();
        let needs =
            if parents.is_empty() { String::new() } else { format!(" (needs {})", parents.map_code()) };
        let (name, stage, purpose) = (gate.name(), gate.stage().as_str(), cell(gate.purpose()));
        // Writing into a String does not fail.
        let _ = writeln!(text, "| `{name}` | {default} | {stage} | {purpose}{needs} |");
    }
    text
}

fn metrics() -> String {
    let mut text = "| metric | type | labels | what it says |\n|---|---|---|---|\n".to_owned();
    for metric in METRICS {
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            _ => "histogram",
        };
        let _ = writeln!(
            text,
            "| `{}` | {kind} | {} | {} |",
            metric.name,
            metric.labels.map_code(),
            cell(metric.help)
        );
    }
    text
}

fn metrics_not_there(table: &str) -> String {
    let mut text = "| metric of Kueue | why |\n|---|---|\n".to_owned();
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        let cells: Vec<&str> = line.split('\t').collect();
        if let (Some(name), Some(why)) = (cells.first(), cells.get(4)) {
            let _ = writeln!(text, "| `{name}` | {} |", cell(why));
        }
    }
    text
}

/// The keys in `labels.rs`, by its sections, with their doc comments.
fn labels(source: &str) -> Result<String> {
    let mut text = String::new();
    let mut doc = String::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        if let Some(title) = line.strip_prefix("// ---- ") {
            let title = title.split(" (").next().unwrap_or_default();
            let _ =
                write!(text, "\n### {}\n\n| key | means |\n|---|---|\n", title.trim_end_matches([' ', '-']));
        } else if let Some(words) = line.strip_prefix("/// ") {
            doc = format!("{doc} {words}");
        } else if line.starts_with("pub const ") {
            let value = match line.split('"').nth(1) {
                Some(value) => value,
                None => {
                    lines.next().and_then(|next| next.split('"').nth(1)).with_context(|| line.to_owned())?
                }
            };
            // Text before the first section does not belong to a key.
            if !text.is_empty() {
                let _ = writeln!(text, "| `{value}` | {} |", cell(&without_citations(&doc)));
            }
            doc.clear();
        }
    }
    Ok(text.trim_start().to_owned() + "\n")
}

/// The text without "(docs/reference/06-algorithm.md 6.5)": the book cites the contract by links.
pub fn without_citations(text: &str) -> String {
    let mut text = text.replace("(ours: ", "(not in Kueue: ").replace("Ours: ", "Not in Kueue: ");
    while let Some(at) = text.find(" (docs/reference/") {
        let Some(end) = text[at..].find(')') else { break };
        text.replace_range(at..=at + end, "");
    }
    text
}

/// The fields of every kind.
fn api() -> String {
    let mut text = String::new();
    for crd in crds() {
        let crd = document(&crd);
        let versions = crd["spec"]["versions"].as_array();
        let Some(version) = versions.and_then(|all| all.iter().find(|v| v["name"] == VERSION)) else {
            continue;
        };
        let schema = &version["schema"]["openAPIV3Schema"];
        let scope = crd["spec"]["scope"].as_str().unwrap_or_default();
        let kind = crd["spec"]["names"]["kind"].as_str().unwrap_or_default();
        let about = schema["description"].as_str().unwrap_or_default();
        let _ = write!(text, "## {kind}\n\n{}\n\nScope: {scope}.\n\n", without_citations(about));
        text.push_str("| field | type | meaning |\n|---|---|---|\n");
        fields(schema, "", &mut text);
        text.push('\n');
    }
    text
}

/// Rows for the properties of a schema, and below.
fn fields(schema: &Value, above: &str, text: &mut String) {
    let Some(properties) = schema["properties"].as_object() else { return };
    for (name, property) in properties {
        if above.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
            continue;
        }
        let path = if above.is_empty() { name.clone() } else { format!("{above}.{name}") };
        let required = schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name));
        let mut meaning = without_citations(property["description"].as_str().unwrap_or_default());
        if let Some(values) = property["enum"].as_array() {
            let values: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
            let _ = write!(meaning, " One of {}.", values.map_code());
        }
        if let Some(default) = property.get("default").filter(|default| !default.is_object()) {
            let _ = write!(meaning, " Default: `{default}`.");
        }
        let needed = if required { " (required)" } else { "" };
        let _ = writeln!(text, "| `{path}` | {}{needed} | {} |", type_of(property), cell(meaning.trim()));
        // Templates, selectors and conditions are Kubernetes' own.
        if !["template", "conditions", "matchExpressions"].contains(&name.as_str()) {
            fields(property, &path, text);
            fields(&property["items"], &format!("{path}[]"), text);
        }
    }
}

fn type_of(property: &Value) -> String {
    if property["x-kubernetes-int-or-string"] == true {
        return "quantity".to_owned();
    }
    match property["type"].as_str() {
        Some("array") => format!("list of {}", type_of(&property["items"])),
        Some("object") if property["additionalProperties"].is_object() => "map".to_owned(),
        Some(name) => name.to_owned(),
        None => "any".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_gets_its_tables_and_keeps_its_words() {
        let tables = BTreeMap::from([("a", "A\n".to_owned()), ("b", "B\n".to_owned())]);
        let page = "one\n<!-- generated: a -->\nold\n<!-- end of generated -->\ntwo\n<!-- generated: b -->\n<!-- end of generated -->\n";
        let wanted = "one\n<!-- generated: a -->\nA\n<!-- end of generated -->\ntwo\n<!-- generated: b -->\nB\n<!-- end of generated -->\n";
        assert_eq!(filled(page, &tables).unwrap(), wanted);
        assert_eq!(filled(wanted, &tables).unwrap(), wanted);
        assert!(filled("<!-- generated: c -->\n<!-- end of generated -->", &tables).is_err());
        assert!(filled("<!-- generated: a -->\n", &tables).is_err());
    }

    #[test]
    fn keys_come_with_their_meaning_by_section() {
        let source = "/// Prefix.\npub const P: &str = \"p/\";\n// ---- Labels (docs/reference/04-labels-annotations.md 4.1) ----\n/// The queue\n/// of a job (docs/reference/04-labels-annotations.md 4.1).\npub const \
                      A: &str = \"p/a\";\n/// Long.\npub const B: &str =\n    \"p/b\";\n";
        assert_eq!(
            labels(source).unwrap(),
            "### Labels\n\n| key | means |\n|---|---|\n| `p/a` | The queue of a job. |\n| `p/b` | Long. |\n\n"
        );
    }

    #[test]
    fn fields_come_with_type_values_and_default() {
        let schema = serde_json::json!({
            "required": ["policy"],
            "properties": {
                "kind": {"type": "string"},
                "policy": {"type": "string", "enum": ["A", "B"], "default": "A", "description": "Which (docs/reference/01-api.md)."},
                "list": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
            },
        });
        let mut text = String::new();
        fields(&schema, "", &mut text);
        let rows: Vec<&str> = text.lines().collect();
        assert!(
            rows.contains(&"| `policy` | string (required) | Which. One of `A`, `B`. Default: `\"A\"`. |"),
            "{text}"
        );
        assert!(rows.contains(&"| `list[].name` | string |  |"), "{text}");
        assert_eq!(rows.len(), 3);
    }
}
