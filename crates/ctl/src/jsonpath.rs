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

/// Why a template does not fit a document, in kubectl's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A list is shorter.
    #[error("array index out of bounds: index {index}, length {length}")]
    OutOfBounds {
        /// The first index that is not there; negative if it is in front of the list.
        index: i64,
        /// The number of elements.
        length: i64,
    },
    /// A slice ends before it begins.
    #[error("starting index {from} is greater than ending index {to}")]
    Backwards {
        /// The first index.
        from: i64,
        /// The index after the last.
        to: i64,
    },
    /// A slice has no step forward.
    #[error("step must be > 0")]
    NoStep,
    /// A value of another type is indexed.
    #[error("{0} is not array or slice")]
    NoList(&'static str),
    /// A value of another type is filtered.
    #[error("{0} is not array or slice and cannot be filtered")]
    NotFiltered(&'static str),
    /// A path in a comparison finds several values.
    #[error("can only compare one element at a time")]
    SeveralCompared,
    /// Values of two types are compared.
    #[error("incompatible types for comparison")]
    Incompatible,
    /// Values of a type without such a comparison are compared.
    #[error("invalid type for comparison")]
    NotComparable,
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

    /// The template with what it finds in a document. Members that are missing are left out, as kubectl does.
    ///
    /// # Errors
    /// If the template does not fit the document.
    pub fn render(&self, document: &Value) -> Result<String, TemplateError> {
        let mut text = String::new();
        render(&self.0, document, &mut text)?;
        Ok(text)
    }

    /// All that the paths find in a document, for `-o jsonpath-as-json`.
    ///
    /// # Errors
    /// If the template does not fit the document.
    pub fn found(&self, document: &Value) -> Result<Vec<Value>, TemplateError> {
        let mut all = Vec::new();
        collect(&self.0, document, &mut all)?;
        Ok(all)
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

fn render(parts: &[Part], value: &Value, text: &mut String) -> Result<(), TemplateError> {
    for part in parts {
        match part {
            Part::Text(own) => text.push_str(own),
            Part::Found(path) => {
                let shown: Vec<_> = path.find(value)?.iter().map(shown).collect();
                text.push_str(&shown.join(" "));
            }
            Part::Each(path, parts) => {
                for each in path.find(value)? {
                    render(parts, &each, text)?;
                }
            }
        }
    }
    Ok(())
}

fn collect(parts: &[Part], value: &Value, all: &mut Vec<Value>) -> Result<(), TemplateError> {
    for part in parts {
        match part {
            Part::Text(_) => {}
            Part::Found(path) => all.extend(path.find(value)?),
            Part::Each(path, parts) => {
                for each in path.find(value)? {
                    collect(parts, &each, all)?;
                }
            }
        }
    }
    Ok(())
}

/// A text without its quotes; the rest as the JSON that Go writes.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        // In JSON these characters are in texts alone.
        value => value.to_string().replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026"),
    }
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
        Template::parse(template).unwrap().render(&world()).unwrap()
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
            ("{.items[0].metadata.nothing}{.items[0].nothing[7]}", ""),
            ("{.items[7:7]}{.items[?(@.spec.nothing=='a')]}{.items[?(@.spec[0])]}", ""),
            ("{.items[0:2:2].metadata.name} {.items[-2:-1].metadata.name}", "a a"),
            ("{\"\\u0041\"}", "A"),
            ("no braces", "no braces"),
        ] {
            assert_eq!(rendered(template), expected, "{template}");
        }
    }

    #[test]
    fn found_values_keep_their_types() {
        let template = Template::parse("{.items[*].spec.priority}").unwrap();
        assert_eq!(template.found(&world()).unwrap(), [json!(5), json!(10)]);
    }

    #[test]
    fn maps_are_shown_as_go_writes_json() {
        let shown = Template::parse("{.a}").unwrap().render(&json!({"a": {"b": "<x> & y"}})).unwrap();
        assert_eq!(shown, r#"{"b":"\u003cx\u003e \u0026 y"}"#);
    }

    /// The expected texts are those of kubectl's JSONPath.
    #[test]
    fn a_template_that_does_not_fit_the_document_is_refused_as_by_kubectl() {
        for (template, expected) in [
            ("{.items[7].metadata.name}", "array index out of bounds: index 7, length 2"),
            ("{.items[-3].metadata.name}", "array index out of bounds: index -1, length 2"),
            ("{.items[1].status.conditions[0].type}", "array index out of bounds: index 0, length 0"),
            ("{.items[5:]}", "array index out of bounds: index 5, length 2"),
            ("{.items[0:3]}", "array index out of bounds: index 2, length 2"),
            ("{.items[1:0]}", "starting index 1 is greater than ending index 0"),
            ("{.items[0:2:0]}", "step must be > 0"),
            ("{.kind[0]}", "string is not array or slice"),
            ("{.items[0].spec[0]}", "map[string]interface {} is not array or slice"),
            ("{.kind[?(@.a)]}", "string is not array or slice and cannot be filtered"),
            (
                "{.items[?(@.status.conditions[*].type=='Admitted')]}",
                "can only compare one element at a time",
            ),
            ("{.items[?(@.metadata.name!=1)]}", "incompatible types for comparison"),
            ("{.items[?(@.spec.priority>5.5)]}", "incompatible types for comparison"),
            ("{.items[?(@.spec.active<true)]}", "invalid type for comparison"),
            ("{.items[?(@.spec==1)]}", "invalid type for comparison"),
            ("{range .items[*]}{.metadata.name[0]}{end}", "string is not array or slice"),
        ] {
            let template = Template::parse(template).unwrap();
            assert_eq!(template.render(&world()).unwrap_err().to_string(), expected, "{template:?}");
            assert_eq!(template.found(&world()).unwrap_err().to_string(), expected, "{template:?}");
        }
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
