//! kubectl's JSONPath templates: text with paths in braces, `{.items[*].metadata.name}`, and `{range …}{end}`.

mod path;

use serde_json::Value;

use path::{Path, Reader};

/// Why a text is not a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a JSONPath template, at character {at}: expected {expected}")]
pub struct JsonPathError {
    /// Characters before the mistake.
    pub at: usize,
    /// What was expected here.
    pub expected: &'static str,
}

/// A template.
#[derive(Clone, Debug, PartialEq)]
pub struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq)]
enum Part {
    /// As it stands.
    Text(String),
    /// The results of a path.
    Found(Path),
    /// The template repeated for each result of a path.
    Each(Path, Vec<Self>),
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// If braces, brackets or quotes are not closed, or a path is invalid.
    pub fn parse(text: &str) -> Result<Self, JsonPathError> {
        let mut reader = Reader::new(text);
        let parts = parts(&mut reader, false)?;
        Ok(Self(parts))
    }

    /// The template with what it finds in a document. What a path does not find is left out, as kubectl does.
    pub fn render(&self, document: &Value) -> String {
        let mut text = String::new();
        render(&self.0, document, &mut text);
        text
    }

    /// All that the paths find in a document, for `-o jsonpath-as-json`.
    pub fn found(&self, document: &Value) -> Vec<Value> {
        let mut all = Vec::new();
        collect(&self.0, document, &mut all);
        all
    }
}

/// The parts up to the end of the text, or of the `range`.
fn parts(reader: &mut Reader<'_>, within: bool) -> Result<Vec<Part>, JsonPathError> {
    let mut parts = Vec::new();
    loop {
        let text = reader.take_until('{');
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        if !reader.eat("{") {
            return if within { Err(reader.wrong("{end}")) } else { Ok(parts) };
        }
        reader.skip_blanks();
        if reader.eat("end") {
            reader.close()?;
            return if within { Ok(parts) } else { Err(reader.wrong("{range} before {end}")) };
        }
        if reader.eat("range ") {
            reader.skip_blanks();
            let path = reader.path()?;
            reader.close()?;
            parts.push(Part::Each(path, self::parts(reader, true)?));
            continue;
        }
        // `{.a}{.b}` and `{.a .b}` are the same.
        while !reader.eat("}") {
            match reader.quoted()? {
                Some(text) => parts.push(Part::Text(text)),
                None => parts.push(Part::Found(reader.path()?)),
            }
            reader.skip_blanks();
        }
    }
}

fn render(parts: &[Part], value: &Value, text: &mut String) {
    for part in parts {
        match part {
            Part::Text(own) => text.push_str(own),
            Part::Found(path) => {
                let shown: Vec<_> = path.find(value).iter().map(shown).collect();
                text.push_str(&shown.join(" "));
            }
            Part::Each(path, parts) => {
                for each in path.find(value) {
                    render(parts, &each, text);
                }
            }
        }
    }
}

fn collect(parts: &[Part], value: &Value, all: &mut Vec<Value>) {
    for part in parts {
        match part {
            Part::Text(_) => {}
            Part::Found(path) => all.extend(path.find(value)),
            Part::Each(path, parts) => {
                for each in path.find(value) {
                    collect(parts, &each, all);
                }
            }
        }
    }
}

/// A text without its quotes; the rest as JSON.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn world() -> Value {
        json!({"kind": "List", "items": [
            {"metadata": {"name": "a", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
             "spec": {"active": true, "priority": 5},
             "status": {"conditions": [{"type": "Admitted", "status": "True"}, {"type": "Evicted", "status": "False"}]}},
            {"metadata": {"name": "b"}, "spec": {"active": false, "priority": 10}, "status": {"conditions": []}},
        ]})
    }

    fn rendered(template: &str) -> String {
        Template::parse(template).unwrap().render(&world())
    }

    /// The expected texts are what kubectl prints for the same document.
    #[test]
    fn templates_say_what_kubectl_says() {
        for (template, expected) in [
            ("{.kind}", "List"),
            ("{$.kind}", "List"),
            ("{.items[*].metadata.name}", "a b"),
            ("{.items..name}", "a b"),
            ("{.items[0].metadata.name}/{.items[-1].metadata.name}", "a/b"),
            ("{.items[0:1].metadata.name}", "a"),
            ("{.items[1:].metadata.name}", "b"),
            ("{.items[0,1].metadata.name}", "a b"),
            ("{.items[*]['metadata.name','spec.active']}", "a b true false"),
            ("{range .items[*]}{.metadata.name}{\"\\t\"}{.spec.priority}{\"\\n\"}{end}", "a\t5\nb\t10\n"),
            (
                "{range .items[*]}{.metadata.name}{': '}{range .status.conditions[*]}{.type},{end};{end}",
                "a: Admitted,Evicted,;b: ;",
            ),
            ("{.items[?(@.metadata.name==\"b\")].spec.priority}", "10"),
            ("{.items[?(@.spec.priority > 5)].metadata.name}", "b"),
            ("{.items[?(@.spec.active!=true)].metadata.name}", "b"),
            ("{.items[?(@.metadata.labels)].metadata.name}", "a"),
            ("{.items[0].status.conditions[?(@.type=='Admitted')].status}", "True"),
            ("{.items[0].metadata.labels.kueue\\.x-k8s\\.io/queue-name}", "main"),
            ("{.items[0].metadata.labels['kueue\\.x-k8s\\.io/queue-name']}", "main"),
            ("{.items[0].spec}", "{\"active\":true,\"priority\":5}"),
            ("{.items[0].spec.*}", "true 5"),
            ("{.items[1].status.conditions}", "[]"),
            ("{.items[0].metadata.nothing}{.items[7].metadata.name}", ""),
            ("no braces", "no braces"),
        ] {
            assert_eq!(rendered(template), expected, "{template}");
        }
    }

    #[test]
    fn found_values_keep_their_types() {
        let template = Template::parse("{.items[*].spec.priority}").unwrap();
        assert_eq!(template.found(&world()), [json!(5), json!(10)]);
    }

    #[test]
    fn mistakes_are_reported_with_their_place() {
        for (template, at, expected) in [
            ("{.a", 3, "}"),
            ("{range .items[*]}{.a}", 21, "{end}"),
            ("x{end}", 6, "{range} before {end}"),
            ("{.a[}", 4, "a number, *, a quoted name or ?(…)"),
            ("{.a[?(@.b==)]}", 11, "@, a quoted text, a number, true or false"),
            ("{\"a}", 4, "a closing quote"),
            ("{a}", 1, "a path, which begins with a dot"),
        ] {
            assert_eq!(Template::parse(template), Err(JsonPathError { at, expected }), "{template}");
        }
    }
}
