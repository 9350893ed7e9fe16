//! The CustomResourceDefinitions, generated from the types of both versions.
//!
//! What cannot be read off a type is in the table [`KINDS`]: names, columns, which kinds convert by webhook
//! (docs/reference/01-api.md 1.0). What schemars writes and a structural schema must not say is taken out by [`structural`].

mod kinds;
mod structural;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Map, Value, json};

use crate::GROUP;
use kinds::{Column, KINDS, Kind};

/// The Service that the API server calls to convert objects between the versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConversionService {
    /// Name of the Service.
    pub name: String,
    /// Namespace of the Service.
    pub namespace: String,
}

impl Default for ConversionService {
    fn default() -> Self {
        Self { name: "kueue-webhook-service".to_owned(), namespace: "kueue-system".to_owned() }
    }
}

/// Path of the conversion webhook.
pub const CONVERSION_PATH: &str = "/convert";

/// The definitions of all eleven kinds, sorted by name, with the conversion webhook at its default Service. There is no
/// `caBundle` in them: the manager injects it.
pub fn crds() -> Vec<CustomResourceDefinition> {
    crds_with(&ConversionService::default())
}

/// The same with another Service for the conversion webhook. The names may be placeholders of a template.
pub fn crds_with(service: &ConversionService) -> Vec<CustomResourceDefinition> {
    KINDS
        .iter()
        .map(|kind| {
            serde_json::from_value(definition(kind, service))
                .expect("the document is built from the definition's own fields")
        })
        .collect()
}

/// A definition as a document in which whole numbers are integers: the types of Kubernetes' schema have floating-point bounds, and `minimum: 1.0` is
/// hard to read.
pub fn document(crd: &CustomResourceDefinition) -> Value {
    let mut document =
        serde_json::to_value(crd).expect("a definition has string keys and finite numbers only");
    whole_numbers(&mut document);
    document
}

fn whole_numbers(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        Value::Number(number) if number.is_f64() => {
            let text = number.to_string();
            if let Some(whole) = text.strip_suffix(".0").and_then(|n| n.parse::<i64>().ok()) {
                *value = whole.into();
            }
        }
        _ => {}
    }
}

fn definition(kind: &Kind, service: &ConversionService) -> Value {
    let mut names = json!({
        "kind": kind.name,
        "listKind": format!("{}List", kind.name),
        "plural": kind.plural,
        "singular": kind.name.to_ascii_lowercase(),
    });
    names["shortNames"] = kind.short_names.into();
    let mut spec = json!({
        "group": GROUP,
        "names": names,
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "versions": [version(kind, false), version(kind, true)],
    });
    if kind.converts {
        spec["conversion"] = json!({
            "strategy": "Webhook",
            "webhook": {
                "clientConfig": {"service": {
                    "name": service.name,
                    "namespace": service.namespace,
                    "path": CONVERSION_PATH,
                }},
                "conversionReviewVersions": ["v1"],
            },
        });
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{GROUP}", kind.plural)},
        "spec": spec,
    })
}

fn version(kind: &Kind, stored: bool) -> Value {
    let (name, schema, columns) = if stored {
        ("v1beta2", kind.v1beta2, kind.columns)
    } else {
        ("v1beta1", kind.v1beta1, kind.columns_v1beta1())
    };
    let mut version = Map::new();
    version.insert("name".into(), name.into());
    version.insert("served".into(), true.into());
    version.insert("storage".into(), stored.into());
    version.insert("schema".into(), json!({"openAPIV3Schema": schema()}));
    if !stored && kind.deprecated {
        version.insert("deprecated".into(), true.into());
        version
            .insert("deprecationWarning".into(), "This version is deprecated. Use v1beta2 instead.".into());
    }
    if !columns.is_empty() {
        let columns: Vec<Value> = columns.iter().map(Column::document).collect();
        version.insert("additionalPrinterColumns".into(), columns.into());
    }
    if kind.status {
        version.insert("subresources".into(), json!({"status": {}}));
    }
    if stored && !kind.selectable.is_empty() {
        let fields: Vec<Value> = kind.selectable.iter().map(|path| json!({"jsonPath": path})).collect();
        version.insert("selectableFields".into(), fields.into());
    }
    version.into()
}
