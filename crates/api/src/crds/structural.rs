//! Converts a JSON schema to Kubernetes' structural schema.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::schema::DEFAULT;

/// The API server's pattern for quantities.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// The marker of a field that embeds a pod template.
const POD_TEMPLATE: &str = "x-pod-template";

/// Kubernetes' own extensions that two schemas may both carry: the rules add up.
const RULES: &str = "x-kubernetes-validations";

/// The structural schema of a kind's root object.
pub(super) fn schema_of<T: JsonSchema>() -> Value {
    let generator = SchemaSettings::openapi3()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    normalize(&mut schema, false);
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.insert(
            "apiVersion".into(),
            json!({"type": "string", "description": "The version of the object's schema."}),
        );
        properties.insert("kind".into(), json!({"type": "string", "description": "The kind of the object."}));
        properties.insert("metadata".into(), json!({"type": "object"}));
    }
    schema
}

/// Rewrites one schema and its subschemas. Descriptions in pod templates are removed: with them a definition would be larger than the annotation in
/// which `kubectl apply` stores the applied object.
fn normalize(schema: &mut Value, in_template: bool) {
    let Value::Object(map) = schema else { return };
    let embeds_pods = map.remove(POD_TEMPLATE).is_some();
    remove_null(map);
    enumerate(map);
    for noise in ["title", "default", "examples", "nullable"] {
        map.remove(noise);
    }
    if let Some(default) = map.remove(DEFAULT) {
        map.insert("default".into(), default);
    }
    if in_template {
        map.remove("description");
    }
    if map.get("x-kubernetes-int-or-string") == Some(&true.into()) {
        map.remove("type");
        map.insert("anyOf".into(), json!([{"type": "integer"}, {"type": "string"}]));
        map.insert("pattern".into(), QUANTITY.into());
    }
    if map.get("required").is_some_and(|required| required == &json!([])) {
        map.remove("required");
    }
    let below = in_template || embeds_pods;
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        for (name, property) in &mut *properties {
            normalize(property, below);
            // Of what pods have as integer or string, only ports are not quantities.
            if below && name == "port" && property.get("x-kubernetes-int-or-string").is_some() {
                remove_pattern(property);
            }
        }
        if below {
            embedded(properties);
        }
    }
    for child in ["items", "additionalProperties"] {
        if let Some(child) = map.get_mut(child) {
            normalize(child, below);
        }
    }
    if embeds_pods && let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.insert("metadata".into(), template_metadata());
    }
}

fn remove_pattern(schema: &mut Value) {
    if let Value::Object(map) = schema {
        map.remove("pattern");
    }
}

/// Takes null out of the alternatives: an optional field is absent, not null.
fn remove_null(map: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = map.get_mut("type") {
        types.retain(|t| t != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            map.insert("type".into(), only);
        }
    }
    let Some(Value::Array(alternatives)) = map.get_mut("anyOf") else {
        return;
    };
    alternatives.retain(|a| a.get("type") != Some(&"null".into()) && a.get("enum") != Some(&json!([null])));
    let [Value::Object(only)] = alternatives.as_slice() else {
        return;
    };
    let only = only.clone();
    map.remove("anyOf");
    for (key, value) in only {
        match (map.get_mut(&key), value) {
            (Some(Value::Array(rules)), Value::Array(more)) if key == RULES => rules.extend(more),
            (Some(_), _) => {}
            (None, value) => {
                map.insert(key, value);
            }
        }
    }
}

/// Writes an enum with documented variants, which schemars lists as alternatives, as a list of strings.
fn enumerate(map: &mut Map<String, Value>) {
    let Some(Value::Array(alternatives)) = map.get("oneOf") else {
        return;
    };
    let mut names = Vec::new();
    for alternative in alternatives {
        match (alternative.get("const"), alternative.get("enum")) {
            (Some(name), _) => names.push(name.clone()),
            (None, Some(Value::Array(several))) => names.extend(several.iter().cloned()),
            _ => return,
        }
    }
    map.remove("oneOf");
    map.insert("type".into(), "string".into());
    map.insert("enum".into(), names.into());
}

/// The API server's default for pods, which it would not apply to embedded pods: a port without protocol is TCP.
fn embedded(properties: &mut Map<String, Value>) {
    if properties.contains_key("containerPort")
        && let Some(Value::Object(protocol)) = properties.get_mut("protocol")
    {
        protocol.insert("default".into(), "TCP".into());
    }
}

/// Of a template's metadata only labels and annotations are kept.
fn template_metadata() -> Value {
    let strings = json!({"type": "object", "additionalProperties": {"type": "string"}});
    json!({
        "type": "object",
        "properties": {"labels": strings, "annotations": strings},
    })
}
