//! Reads manifests: several documents, either API version, lists. Errors name file, document and field.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sluice_engine::Kind;
use sluice_jobs::JobMaker;

use crate::json::text;
use crate::object::kind_of;
use crate::observed::Observed;
use crate::scenario::Scenario;
use crate::schema;

/// A file as it was read.
#[derive(Clone, Debug)]
pub struct File {
    /// Its name, as messages show it and scenarios refer to it.
    pub name: String,
    /// Its text.
    pub text: String,
    /// Whether the user named it: then everything in it must be a Kubernetes object.
    pub named: bool,
}

/// Where a document is.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Source {
    /// The file.
    pub file: String,
    /// The document in it, from 1.
    pub document: usize,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {}", self.file, self.document)
    }
}

/// A mistake in a manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}{}{}: {message}", if path.is_empty() { "" } else { ": " }, path)]
pub struct ManifestError {
    /// Where.
    pub at: Source,
    /// The object and the field, as far as they are known.
    pub path: String,
    /// The problem, and what was expected.
    pub message: String,
}

/// An object of a simulated kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// Where it was read.
    pub source: Source,
    /// Its kind.
    pub kind: Kind,
    /// The document.
    pub object: Value,
}

/// A document of a kind that is not simulated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Where it is.
    pub source: Source,
    /// Its kind and name.
    pub what: String,
}

/// The content of the files.
#[derive(Clone, Debug, Default)]
pub struct Manifests {
    /// Objects, in the order read.
    pub objects: Vec<Manifest>,
    /// Scenarios.
    pub scenarios: Vec<(Source, Scenario)>,
    /// Documents that are left out.
    pub skipped: Vec<Skipped>,
    /// Jobs that have ended and are no objects here: how long they took.
    pub observed: Vec<Observed>,
    /// The object of the question, if a cluster was read for an explanation.
    pub subject: Option<crate::explain::Subject>,
    /// What could not be read from the cluster.
    pub unread: Vec<crate::unread::Unread>,
}

/// The text of each document of a YAML stream. A line that begins with `---` separates, wherever it stands.
fn documents(text: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    for line in text.lines() {
        if line == "---" || line.starts_with("--- ") {
            all.push(String::new());
            continue;
        }
        if let Some(last) = all.last_mut() {
            last.push_str(line);
            last.push('\n');
        }
    }
    let blank = |t: &str| t.lines().all(|l| l.trim().is_empty() || l.trim_start().starts_with('#'));
    all.retain(|text| !blank(text));
    all
}

impl Manifests {
    /// Reads files. Every mistake is collected. An object that is no job and has one made of it ([`JobMaker`]), such as a Flux MiniCluster, is read as
    /// that job, unless that is there, too.
    ///
    /// # Errors
    ///
    /// If a document is not YAML, is not an object although its file was named, has a field that its schema does not allow, or is a Scenario that
    /// cannot be read.
    pub fn read(files: &[File]) -> Result<Self, Vec<ManifestError>> {
        let mut reading = Reading::default();
        for file in files {
            for (index, text) in documents(&file.text).iter().enumerate() {
                let source = Source { file: file.name.clone(), document: index + 1 };
                match serde_saphyr::from_str::<Value>(text) {
                    Ok(Value::Null) => {}
                    Ok(value) => reading.add(&source, value, file.named),
                    Err(error) => reading.errors.push(ManifestError {
                        at: source,
                        path: String::new(),
                        message: format!("not valid YAML: {}", error.to_string().trim()),
                    }),
                }
            }
        }
        for (source, maker, object) in std::mem::take(&mut reading.makers) {
            reading.take_made(&source, maker, &object);
        }
        if reading.errors.is_empty() { Ok(reading.found) } else { Err(reading.errors) }
    }
}

/// What was read so far.
#[derive(Default)]
struct Reading {
    found: Manifests,
    errors: Vec<ManifestError>,
    /// Objects whose jobs are made of them: whether these are there is known at the end.
    makers: Vec<(Source, &'static JobMaker, Value)>,
}

impl Reading {
    /// Does what the API server does with a `generateName`, but without chance.
    fn generate_name(&self, source: &Source, value: &mut Value) {
        let metadata = &mut value["metadata"];
        let prefix = text(&metadata["generateName"]).to_owned();
        if !prefix.is_empty() && text(&metadata["name"]).is_empty() {
            let number = self.found.objects.len() + self.makers.len();
            metadata["name"] = Value::from(prefix + &suffix(source, number));
        }
    }

    fn add(&mut self, source: &Source, mut value: Value, strict: bool) {
        let (version, kind) = (text(&value["apiVersion"]).to_owned(), text(&value["kind"]).to_owned());
        if kind.is_empty() || version.is_empty() {
            let message = "expected a Kubernetes object with apiVersion and kind".to_owned();
            if strict {
                self.errors.push(ManifestError { at: source.clone(), path: String::new(), message });
            } else {
                let what = "not a Kubernetes object (no apiVersion and kind)".to_owned();
                self.found.skipped.push(Skipped { source: source.clone(), what });
            }
            return;
        }
        if kind.ends_with("List") && value["items"].is_array() {
            let item_kind = kind.trim_end_matches("List");
            for mut item in value["items"].as_array_mut().map(std::mem::take).unwrap_or_default() {
                if item["kind"].is_null() && item.is_object() && !item_kind.is_empty() {
                    item["kind"] = Value::from(item_kind);
                    item["apiVersion"] = Value::from(version.as_str());
                }
                self.add(source, item, strict);
            }
            return;
        }
        if version.starts_with("sluice.dev/") && kind == "Scenario" {
            match serde_path_to_error::deserialize::<_, Scenario>(&value) {
                Ok(scenario) => self.found.scenarios.push((source.clone(), scenario)),
                Err(error) => self.errors.push(ManifestError {
                    at: source.clone(),
                    path: format!("Scenario: {}", error.path()),
                    message: error.inner().to_string(),
                }),
            }
            return;
        }
        if let Some(maker) = JobMaker::of(&value) {
            self.generate_name(source, &mut value);
            self.makers.push((source.clone(), maker, value));
            return;
        }
        if let Some(kind) = kind_of(&version, &kind) {
            self.generate_name(source, &mut value);
            self.take(source, kind, value);
        } else {
            let what = format!("{version} {kind}");
            self.found.skipped.push(Skipped { source: source.clone(), what });
        }
    }

    /// An object of a simulated kind, with what is wrong with it.
    fn take(&mut self, source: &Source, kind: Kind, object: Value) {
        self.errors.extend(schema::check(kind, &object).into_iter().map(|wrong| ManifestError {
            at: source.clone(),
            path: format!("{} {}: {}", kind.as_str(), text(&object["metadata"]["name"]), wrong.path),
            message: wrong.message,
        }));
        self.found.objects.push(Manifest { source: source.clone(), kind, object });
    }

    /// The job that is made of an object.
    fn take_made(&mut self, source: &Source, maker: &JobMaker, object: &Value) {
        let Some(job) = maker.job_of(object) else { return };
        let Some(kind) = kind_of(text(&job["apiVersion"]), text(&job["kind"])) else { return };
        let named = |object: &Value| {
            let [name, namespace] = ["name", "namespace"].map(|field| text(&object["metadata"][field]));
            // As `kubectl apply` takes them.
            (name.to_owned(), if namespace.is_empty() { "default" } else { namespace }.to_owned())
        };
        let of_job = named(&job);
        let is_there = |one: &Manifest| one.kind == kind && named(&one.object) == of_job;
        if !self.found.objects.iter().any(is_there) {
            self.take(source, kind, job);
        }
    }
}

/// The last part of a generated name: the same for the same place.
fn suffix(source: &Source, number: usize) -> String {
    // The letters of Kubernetes' random names: no vowels, so no words.
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let digest = Sha256::digest(format!("{source}, {number}"));
    digest.iter().take(5).map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect()
}

/// Reads a template or an object written inside a scenario.
pub(crate) fn inline(object: &Value) -> Result<(Kind, Value), String> {
    if let Some(maker) = JobMaker::of(object) {
        let job =
            maker.job_of(object).ok_or_else(|| format!("expected a {} of at least one pod", maker.kind))?;
        return inline(&job);
    }
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let known = kind_of(version, kind)
        .ok_or_else(|| format!("expected an object of a simulated kind, found {version} {kind}"))?;
    match schema::check(known, object).first() {
        Some(wrong) => Err(format!("{}: {}", wrong.path, wrong.message)),
        None => Ok((known, object.clone())),
    }
}

/// Reads a value of a type from text, for files with one document.
///
/// # Errors
///
/// If the text is not YAML, or does not match the type.
pub fn one<T: for<'de> Deserialize<'de>>(file: &str, text: &str) -> Result<T, ManifestError> {
    serde_saphyr::from_str(text).map_err(|error| ManifestError {
        at: Source { file: file.to_owned(), document: 1 },
        path: String::new(),
        message: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Manifests, Vec<ManifestError>> {
        Manifests::read(&[File { name: "a.yaml".to_owned(), text: text.to_owned(), named: true }])
    }

    #[test]
    fn documents_lists_and_unknown_kinds_are_distinguished() {
        let found = read(
            "# nothing here\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n\
             apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Namespace, metadata: {name: b}}\n",
        )
        .unwrap();
        assert_eq!(found.objects.len(), 1);
        assert_eq!(found.objects[0].kind, Kind::Namespace);
        assert_eq!(found.skipped[0].what, "v1 ConfigMap");
    }

    #[test]
    fn generated_names_differ_and_stay() {
        let job = "apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: sample-}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: c}]}}}\n";
        let text = format!("{job}---\n{job}");
        let names = |found: Manifests| {
            found.objects.iter().map(|m| m.object["metadata"]["name"].clone()).collect::<Vec<_>>()
        };
        let first = names(read(&text).unwrap());
        assert!(
            first.iter().all(|name| name.as_str().is_some_and(|n| n.starts_with("sample-") && n.len() == 12))
        );
        assert_ne!(first[0], first[1]);
        assert_eq!(first, names(read(&text).unwrap()));
    }

    #[test]
    fn mistakes_name_file_and_document() {
        let errors =
            read("apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\na: [\n---\nb: 1\n").unwrap_err();
        assert_eq!(errors.len(), 2);
        assert!(errors[0].to_string().starts_with("a.yaml, document 2: not valid YAML"), "{}", errors[0]);
        assert_eq!(
            errors[1].to_string(),
            "a.yaml, document 3: expected a Kubernetes object with apiVersion and kind"
        );
    }

    #[test]
    fn a_scenario_names_the_field_that_is_wrong() {
        let errors =
            read("apiVersion: sluice.dev/v1alpha1\nkind: Scenario\nspec: {until: soon}\n").unwrap_err();
        assert!(errors[0].to_string().contains("spec.until"), "{}", errors[0]);
        assert!(errors[0].message.contains("90s"), "{}", errors[0]);
    }
}
