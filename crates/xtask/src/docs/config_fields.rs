//! The fields of the configuration file, from its types and their doc comments.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};

use super::tables::{cell, without_citations};

/// A field of a struct.
struct Field {
    name: String,
    type_: String,
    doc: String,
}

/// The structs and enums of a source.
#[derive(Default)]
struct Types {
    structs: BTreeMap<String, Vec<Field>>,
    enums: BTreeMap<String, Vec<String>>,
}

/// A table of every field below `Configuration`.
pub fn table(source: &str) -> Result<String> {
    let types = parse(source);
    let mut text = "| field | type | meaning |\n|---|---|---|\n".to_owned();
    rows(&types, "Configuration", "", &mut text)?;
    Ok(text)
}

fn rows(types: &Types, name: &str, above: &str, text: &mut String) -> Result<()> {
    for field in types.structs.get(name).with_context(|| format!("there is no struct {name}"))? {
        let path = if above.is_empty() { field.name.clone() } else { format!("{above}.{}", field.name) };
        let inner = innermost(&field.type_);
        let mut doc = without_citations(&field.doc);
        if let Some(variants) = types.enums.get(inner) {
            let variants: Vec<String> = variants.iter().map(|variant| format!("`{variant}`")).collect();
            let _ = write!(doc, " One of {}.", variants.join(", "));
        }
        let shown = type_name(types, &field.type_).with_context(|| path.clone())?;
        let _ = writeln!(text, "| `{path}` | {shown} | {} |", cell(&doc));
        if types.structs.contains_key(inner) {
            let list = if field.type_.contains("Vec<") { "[]" } else { "" };
            rows(types, inner, &format!("{path}{list}"), text)?;
        }
    }
    Ok(())
}

/// The type inside of `Option`, `Vec` and the like.
fn innermost(type_: &str) -> &str {
    let inner = type_.rsplit(['<', ' ']).next().unwrap_or(type_).trim_end_matches('>');
    inner.rsplit("::").next().unwrap_or(inner)
}

fn type_name(types: &Types, text: &str) -> Result<String> {
    if let Some(inner) = text.strip_prefix("Option<").and_then(|inner| inner.strip_suffix('>')) {
        return type_name(types, inner);
    }
    if let Some(inner) = text.strip_prefix("Vec<").and_then(|inner| inner.strip_suffix('>')) {
        return Ok(format!("list of {}", type_name(types, inner)?));
    }
    Ok(match innermost(text) {
        _ if text.starts_with("BTreeMap<") => "map".to_owned(),
        "String" => "string".to_owned(),
        "bool" => "boolean".to_owned(),
        "Duration" => "duration".to_owned(),
        "LabelSelector" => "label selector".to_owned(),
        "f64" => "number".to_owned(),
        "Value" => "anything".to_owned(),
        "u16" | "i32" | "i64" => "integer".to_owned(),
        name if types.enums.contains_key(name) => "string".to_owned(),
        name if types.structs.contains_key(name) => "object".to_owned(),
        name => bail!("the type {name} is in none of the files that are read: its fields would be missing"),
    })
}

fn parse(source: &str) -> Types {
    let mut types = Types::default();
    let (mut doc, mut skipped) = (String::new(), false);
    let mut inside: Option<(String, bool)> = None;
    for line in source.lines() {
        let words = line.trim();
        if let Some(comment) = words.strip_prefix("/// ") {
            doc = format!("{doc} {comment}");
        } else if words.starts_with("#[") {
            skipped |= words == "#[serde(skip)]";
        } else if let Some(name) = words.strip_prefix("pub struct ").and_then(|rest| rest.strip_suffix(" {"))
        {
            inside = Some((name.to_owned(), true));
            types.structs.insert(name.to_owned(), Vec::new());
            doc.clear();
        } else if let Some(name) = words.strip_prefix("pub enum ").and_then(|rest| rest.strip_suffix(" {")) {
            inside = Some((name.to_owned(), false));
            types.enums.insert(name.to_owned(), Vec::new());
            doc.clear();
        } else if line == "}" {
            inside = None;
        } else if let Some((name, is_struct)) = &inside {
            let words = words.trim_end_matches(',');
            let field = words.strip_prefix("pub ").and_then(|rest| rest.split_once(": "));
            match (field, *is_struct) {
                (Some((field, of)), true) if !skipped => {
                    let field =
                        Field { name: camel_case(field), type_: of.to_owned(), doc: doc.trim().to_owned() };
                    types.structs.entry(name.clone()).or_default().push(field);
                }
                (None, false) if !words.is_empty() => {
                    types.enums.entry(name.clone()).or_default().push(words.to_owned());
                }
                _ => {}
            }
            doc.clear();
            skipped = false;
        } else {
            doc.clear();
            skipped = false;
        }
    }
    types
}

fn camel_case(name: &str) -> String {
    let mut parts = name.split('_');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text.extend(part.chars().next().map(|first| first.to_ascii_uppercase()));
        text.push_str(part.get(1..).unwrap_or_default());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_listed_with_path_type_and_meaning() {
        let source = "/// All.\n#[derive(Debug)]\npub struct Configuration {\n    /// The port.\n    pub port: u16,\n    #[serde(skip)]\n    pub \
                      gates: Gates,\n    /// Entries (docs/reference/01-api.md 1.12).\n    pub some_entries: Vec<Entry>,\n}\n\npub struct Entry {\n    /// How.\n    \
                      pub how: Option<super::How>,\n}\n\npub enum How {\n    /// First.\n    #[default]\n    First,\n    /// Second.\n    Second,\n}\n";
        let rows: Vec<String> = table(source).unwrap().lines().skip(2).map(str::to_owned).collect();
        assert_eq!(
            rows,
            [
                "| `port` | integer | The port. |",
                "| `someEntries` | list of object | Entries. |",
                "| `someEntries[].how` | string | How. One of `First`, `Second`. |",
            ]
        );
    }

    #[test]
    fn a_type_whose_fields_are_not_known_is_an_error() {
        let source = "pub struct Configuration {\n    pub dashboard: Dashboard,\n}\n";
        let why = format!("{:#}", table(source).unwrap_err());
        assert_eq!(
            why,
            "dashboard: the type Dashboard is in none of the files that are read: its fields would be missing"
        );
    }
}
