//! `-o` and related flags: objects as names, documents, or results of a template.

use anyhow::{Context as _, bail};
use clap::Args;
use serde::Serialize as _;
use serde_json::{Value, json};
use sluice_sim::Kind;
use sluice_sim::explain::plain;

use crate::cluster::shown;
use crate::complete;
use crate::jsonpath::Template;

/// Formats that only kubectl writes.
const OF_KUBECTL: [&str; 6] =
    ["go-template", "go-template-file", "template", "templatefile", "custom-columns", "custom-columns-file"];

/// What is said of a template that does not fit the document.
const UNFIT: &str = "error executing jsonpath";

/// How objects are printed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Args)]
pub struct OutputArgs {
    /// Print the objects: name, json, yaml, jsonpath=TEMPLATE, jsonpath-as-json=TEMPLATE or jsonpath-file=FILE
    #[arg(long, short, value_name = "FORMAT", add = complete::formats())]
    pub output: Option<String>,
    /// The template of -o jsonpath or -o go-template
    #[arg(long, value_name = "TEMPLATE")]
    pub template: Option<String>,
    /// Keep metadata.managedFields in the objects that are printed
    #[arg(long)]
    pub show_managed_fields: bool,
}

/// What `-o` says.
#[derive(Clone, Debug, PartialEq)]
pub enum Format {
    /// The table, with more columns where there are more.
    Wide,
    /// Kind and name of each.
    Name,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// The result of a template.
    JsonPath(Template),
    /// The result of a template, as JSON.
    JsonPathAsJson(Template),
    /// A format that only kubectl writes.
    OfKubectl,
}

impl OutputArgs {
    /// The format of the flags; nothing without any.
    ///
    /// # Errors
    /// If the format does not exist, a template is missing or invalid, or its file cannot be read.
    pub fn format(&self) -> anyhow::Result<Option<Format>> {
        let Some(output) = &self.output else {
            return Ok(self.template.is_some().then_some(Format::OfKubectl));
        };
        let (word, value) = output.split_once('=').map_or((output.as_str(), None), |(w, v)| (w, Some(v)));
        let value = value.or(self.template.as_deref());
        let given = || {
            value.with_context(|| {
                format!("-o {word} needs a template, for example -o '{word}={{.metadata.name}}'")
            })
        };
        Ok(Some(match (word, output.contains('=')) {
            ("wide", false) => Format::Wide,
            ("name", false) => Format::Name,
            ("json", false) => Format::Json,
            ("yaml", false) => Format::Yaml,
            ("jsonpath", _) => Format::JsonPath(Template::parse(given()?)?),
            ("jsonpath-as-json", _) => Format::JsonPathAsJson(Template::parse(given()?)?),
            ("jsonpath-file", _) => {
                let file = given()?;
                let text = std::fs::read_to_string(file).with_context(|| format!("reading {file}"))?;
                Format::JsonPath(Template::parse(&text)?)
            }
            (word, _) if OF_KUBECTL.contains(&word) => Format::OfKubectl,
            _ => bail!(
                "-o {output}: expected name, json, yaml, jsonpath=TEMPLATE, jsonpath-as-json=TEMPLATE or jsonpath-file=FILE"
            ),
        }))
    }

    /// The same flags for kubectl.
    pub fn flags(&self) -> Vec<String> {
        let output = self.output.iter().map(|output| format!("--output={output}"));
        let template = self.template.iter().map(|template| format!("--template={template}"));
        let fields = self.show_managed_fields.then(|| "--show-managed-fields".to_owned());
        output.chain(template).chain(fields).collect()
    }

    /// Objects of a kind as text: a single document with `one`, else a list.
    ///
    /// # Errors
    /// If the format is not for objects, or an object cannot be written in it.
    pub fn render(
        &self,
        format: &Format,
        kind: Kind,
        mut found: Vec<Value>,
        one: bool,
    ) -> anyhow::Result<String> {
        if *format == Format::Name {
            let name =
                |object: &Value| shown(kind, object["metadata"]["name"].as_str().unwrap_or_default()) + "\n";
            return Ok(found.iter().map(name).collect());
        }
        for object in &mut found {
            // Lists have it once for all.
            object["apiVersion"] = json!(kind.api_version());
            object["kind"] = json!(kind.as_str());
        }
        self.documents(format, found, one)
    }

    /// Drops the managed fields of an object, unless they are to be printed.
    pub fn drop_managed_fields(&self, object: &mut Value) {
        if let Some(metadata) = object["metadata"].as_object_mut().filter(|_| !self.show_managed_fields) {
            metadata.remove("managedFields");
        }
    }

    /// Objects with their own kinds as text: a single document with `one`, else a list.
    ///
    /// # Errors
    /// If the format is not one for documents, or an object cannot be written in it.
    pub fn documents(&self, format: &Format, mut found: Vec<Value>, one: bool) -> anyhow::Result<String> {
        for object in &mut found {
            self.drop_managed_fields(object);
        }
        let document = match found.pop() {
            Some(only) if one && found.is_empty() => only,
            last => {
                found.extend(last);
                json!({"apiVersion": "v1", "items": found, "kind": "List", "metadata": {"resourceVersion": ""}})
            }
        };
        Ok(match format {
            Format::Json => pretty(&document)?,
            Format::Yaml => serde_saphyr::to_string(&document)?,
            Format::JsonPath(template) => template.render(&document).context(UNFIT)?,
            Format::JsonPathAsJson(template) => {
                pretty(&Value::Array(template.found(&document).context(UNFIT)?))?
            }
            Format::Name | Format::Wide | Format::OfKubectl => bail!(
                "-o {}: this command prints name, json, yaml, jsonpath=TEMPLATE, jsonpath-as-json=TEMPLATE or jsonpath-file=FILE",
                self.output.as_deref().unwrap_or("go-template")
            ),
        })
    }
}

/// JSON as kubectl indents it, with escapes for what would act on a terminal.
fn pretty(document: &Value) -> anyhow::Result<String> {
    let mut text = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    document.serialize(&mut serde_json::Serializer::with_formatter(&mut text, formatter))?;
    Ok(plain::json(&String::from_utf8(text)?) + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(output: &str) -> OutputArgs {
        OutputArgs { output: Some(output.to_owned()), ..OutputArgs::default() }
    }

    fn rendered(args: &OutputArgs, names: &[&str], one: bool) -> String {
        let queue = |name: &&str| json!({"metadata": {"name": name, "managedFields": []}});
        let found = names.iter().map(queue).collect();
        let format = args.format().unwrap().unwrap();
        args.render(&format, Kind::ClusterQueue, found, one).unwrap()
    }

    #[test]
    fn one_document_stands_alone_and_several_are_a_list() {
        let json = args("json");
        assert!(
            rendered(&json, &["a"], true).starts_with("{\n    \"apiVersion\": \"kueue.x-k8s.io/v1beta2\"")
        );
        assert!(rendered(&json, &["a"], false).contains("\"kind\": \"List\""));
        assert!(!rendered(&json, &["a"], false).contains("managedFields"));
        let all = OutputArgs { show_managed_fields: true, ..json };
        assert!(rendered(&all, &["a"], true).contains("managedFields"));
        assert_eq!(
            rendered(&args("name"), &["a", "b"], false),
            "clusterqueue.kueue.x-k8s.io/a\nclusterqueue.kueue.x-k8s.io/b\n"
        );
    }

    #[test]
    fn templates_come_from_the_flag_another_flag_or_a_file() {
        let names = "{.items[*].metadata.name}";
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("template");
        std::fs::write(&file, names).unwrap();
        let by_flag =
            OutputArgs { output: Some("jsonpath".to_owned()), template: Some(names.to_owned()), ..args("") };
        let by_file = args(&format!("jsonpath-file={}", file.display()));
        for args in [args(&format!("jsonpath={names}")), by_flag, by_file] {
            assert_eq!(rendered(&args, &["a", "b"], false), "a b");
        }
        let as_json = args(&format!("jsonpath-as-json={names}"));
        assert_eq!(rendered(&as_json, &["a"], false), "[\n    \"a\"\n]\n");
    }

    #[test]
    fn what_is_no_format_is_refused_and_what_only_kubectl_writes_is_known() {
        for (output, expected) in [
            ("xml", "expected name, json, yaml"),
            ("json=x", "expected name, json, yaml"),
            ("jsonpath", "needs a template"),
            ("jsonpath={.a", "not a JSONPath template, at character 3"),
            ("jsonpath-file=/nowhere/t", "/nowhere/t"),
        ] {
            let error = format!("{:#}", args(output).format().unwrap_err());
            assert!(error.contains(expected), "{output}: {error}");
        }
        for output in ["go-template={{.kind}}", "custom-columns=A:.b", "templatefile=x"] {
            assert_eq!(args(output).format().unwrap(), Some(Format::OfKubectl), "{output}");
        }
        let template = OutputArgs { template: Some("{{.kind}}".to_owned()), ..OutputArgs::default() };
        assert_eq!(template.format().unwrap(), Some(Format::OfKubectl));
        let refused = args("wide").render(&Format::Wide, Kind::ClusterQueue, vec![], false);
        assert!(refused.unwrap_err().to_string().starts_with("-o wide: "));
    }
}
