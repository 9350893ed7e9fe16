//! The form of a JSON document: which fields it has, and of which types.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Objects whose keys are data: resources, labels, flavors.
const BY_NAME: [&str; 5] = ["requests", "labels", "levels", "used", "capacity"];

/// By path, the types that are there. Items of a list have one path, and those of a timeline one for each kind of event.
pub type Shape = BTreeMap<String, BTreeSet<&'static str>>;

/// The form of a document.
pub fn shape(value: &Value) -> Shape {
    let mut found = Shape::new();
    note("", "", value, &mut found);
    found
}

fn note(path: &str, name: &str, value: &Value, found: &mut Shape) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    };
    found.entry(path.to_owned()).or_default().insert(kind);
    match value {
        Value::Array(items) => {
            for item in items {
                let event = item["event"].as_str().unwrap_or_default();
                note(&format!("{path}[{event}]"), "", item, found);
            }
        }
        Value::Object(fields) => {
            for (field, value) in fields {
                let by_name = BY_NAME.contains(&name) || path.ends_with("podSets[].flavors");
                let shown = if by_name { "*" } else { field };
                note(&format!("{path}.{shown}"), field, value, found);
            }
        }
        _ => {}
    }
}

/// What one has and the other has not, though it has what that is in; and where they have different types.
pub fn differences(one: &Shape, other: &Shape) -> Vec<String> {
    let mut differences = Vec::new();
    for (has, lacks, whose) in [(one, other, "first"), (other, one, "second")] {
        for path in has.keys().filter(|path| !lacks.contains_key(*path)) {
            let above = path.rfind(['.', '[']).map_or("", |at| &path[..at]);
            // Of an empty list, or of nothing, nothing is known.
            if path.ends_with(']')
                || path.ends_with(".*")
                || !lacks.get(above).is_some_and(|kinds| kinds.contains("object"))
            {
                continue;
            }
            differences.push(format!("only the {whose} has {path}"));
        }
    }
    for (path, kinds) in one {
        let Some(others) = other.get(path) else { continue };
        let known = |kinds: &BTreeSet<&'static str>| {
            kinds.iter().copied().filter(|kind| *kind != "null").collect::<BTreeSet<_>>()
        };
        let (kinds, others) = (known(kinds), known(others));
        if !kinds.is_empty() && !others.is_empty() && kinds.is_disjoint(&others) {
            differences.push(format!("{path} is {kinds:?} and {others:?}"));
        }
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_that_are_missing_or_of_another_type_differ_and_names_do_not() {
        let one = shape(
            &json!({"items": [{"a": 1, "requests": {"cpu": "1"}}, {"a": null, "b": {"c": 1}}], "none": null, "empty": []}),
        );
        let same = shape(
            &json!({"items": [{"a": 2, "b": null, "requests": {"gpu": "8"}}], "none": {"x": 1}, "empty": [{"y": 1}]}),
        );
        assert_eq!(differences(&one, &same), Vec::<String>::new());
        let other = shape(&json!({"items": [{"a": "2", "requests": {}}], "none": null, "more": 1}));
        assert_eq!(
            differences(&one, &other),
            [
                "only the first has .empty",
                "only the first has .items[].b",
                "only the second has .more",
                ".items[].a is {\"number\"} and {\"string\"}",
            ]
        );
    }
}
