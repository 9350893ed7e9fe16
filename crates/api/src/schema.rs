//! Pieces of OpenAPI schema that several kinds share: name patterns, and the schemas of embedded Kubernetes types with
//! the constraints that Kueue's CRDs carry (docs/reference/01-api.md, and the tables in `tests/data`).

use k8s_openapi::api::core::v1::{Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// A DNS-1123 subdomain: names of queues, cohorts, flavors, topologies, classes.
pub(crate) const SUBDOMAIN: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$";
/// A DNS-1123 label: names of pod sets and of an admission check's parameters.
pub(crate) const LABEL: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// A qualified name: label keys and condition types.
pub(crate) const QUALIFIED_NAME: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
/// A kind's name, in any case.
pub(crate) const KIND_NAME: &str = r"^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$";
/// The reason of a condition.
const REASON: &str = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";

/// The key under which a field names its default: serde's own defaults, which schemars puts under `default`, are how Rust
/// fills absent fields and not promises of the API. `crds` renames it.
pub(crate) const DEFAULT: &str = "x-default";

/// One CEL rule.
pub(crate) fn rule(rule: &str, message: &str) -> Value {
    json!({"rule": rule, "message": message})
}

/// CEL: the condition is true in this object (`self` or `oldSelf`).
pub(crate) fn while_true(object: &str, condition: &str) -> String {
    format!(
        "has({object}.status) && has({object}.status.conditions) && {object}.status.conditions.exists(c, c.type == '{condition}' && c.status == 'True')"
    )
}

/// CEL: the test holds, if the condition was and is true.
pub(crate) fn while_both(condition: &str, test: &str) -> String {
    format!("!({}) || !({}) || {test}", while_true("oldSelf", condition), while_true("self", condition))
}

/// CEL: an optional field is as it was, or absent as it was.
pub(crate) fn unchanged(field: &str) -> String {
    format!(
        "(has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field}))"
    )
}

/// `status.conditions`, without a bound on their number (v1beta1).
pub(crate) fn conditions_unbounded(generator: &mut SchemaGenerator) -> Schema {
    let mut item = generator.subschema_for::<Condition>();
    let constraints = [
        ("message", json!({"maxLength": 32768})),
        ("observedGeneration", json!({"minimum": 0})),
        ("reason", json!({"minLength": 1, "maxLength": 1024, "pattern": REASON})),
        ("status", json!({"enum": ["True", "False", "Unknown"]})),
        ("type", json!({"maxLength": 316, "pattern": QUALIFIED_NAME})),
    ];
    for (property, constraint) in constraints {
        let pointer = format!("/properties/{property}");
        if let (Some(Value::Object(target)), Value::Object(extra)) = (item.pointer_mut(&pointer), constraint)
        {
            target.extend(extra);
        }
    }
    json_schema!({
        "type": "array",
        "items": item,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}

/// `status.conditions`: at most 16.
pub(crate) fn conditions(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = conditions_unbounded(generator);
    schema.insert("maxItems".into(), 16.into());
    schema
}

/// A label selector that is owned as a whole.
pub(crate) fn label_selector(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = generator.subschema_for::<LabelSelector>();
    schema.insert("x-kubernetes-map-type".into(), "atomic".into());
    for pointer in ["/properties/matchExpressions", "/properties/matchExpressions/items/properties/values"] {
        if let Some(Value::Object(list)) = schema.pointer_mut(pointer) {
            list.insert("x-kubernetes-list-type".into(), "atomic".into());
        }
    }
    schema
}

/// At most 8 taints with known effects.
pub(crate) fn taints(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = taints_without_rule(generator);
    let rule = rule(
        "self.all(t, t.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])",
        "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'",
    );
    schema.insert("x-kubernetes-validations".into(), json!([rule]));
    schema
}

/// At most 8 taints, as v1beta1 has them in a status.
pub(crate) fn taints_without_rule(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": generator.subschema_for::<Taint>(),
        "maxItems": 8,
        "x-kubernetes-list-type": "atomic",
    })
}

/// At most 8 tolerations of the forms that the API server's own pod validation accepts.
pub(crate) fn tolerations(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = tolerations_not_atomic(generator);
    schema.insert("x-kubernetes-list-type".into(), "atomic".into());
    schema
}

/// The same for v1beta1's admission checks: without a list type.
pub(crate) fn tolerations_not_atomic(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": generator.subschema_for::<Toleration>(),
        "maxItems": 8,
        "x-kubernetes-validations": [
            {
                "rule": "self.all(t, (has(t.key) && t.key != '') || (has(t.operator) && t.operator == 'Exists'))",
                "message": "operator must be Exists when 'key' is empty, which means 'match all values and all keys'",
            },
            {
                "rule": "self.all(t, !has(t.tolerationSeconds) || (has(t.effect) && t.effect == 'NoExecute'))",
                "message": "effect must be 'NoExecute' when 'tolerationSeconds' is set",
            },
            {
                "rule": "self.all(t, !has(t.operator) || t.operator in ['Equal', 'Exists'])",
                "message": "supported toleration values: 'Equal'(default), 'Exists'",
            },
            {
                "rule": "self.all(t, !has(t.operator) || t.operator != 'Exists' || !has(t.value) || t.value == '')",
                "message": "a value must be empty when 'operator' is 'Exists'",
            },
            {
                "rule": "self.all(t, !has(t.effect) || t.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])",
                "message": "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'",
            },
        ],
    })
}
