//! Patches of jobs: the only way in which this crate changes anything.

use serde_json::{Map, Value, json};

/// A patch and how to send it.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// `application/merge-patch+json` (RFC 7386).
    Merge(Value),
    /// `application/json-patch+json` (RFC 6902): an array of operations.
    Json(Vec<Value>),
    /// `application/strategic-merge-patch+json`: for kinds of Kubernetes itself, whose lists of conditions it merges by type.
    Strategic(Value),
    /// Server-side apply by this field manager, which takes over what others own: for lists that a CRD merges by key.
    Apply(&'static str, Value),
}

/// The query of a server-side apply that takes over what others own.
pub fn applied_by(field_manager: &str) -> String {
    format!("?fieldManager={field_manager}&force=true")
}

impl Patch {
    /// The value of the `Content-Type` header.
    pub const fn content_type(&self) -> &'static str {
        match self {
            Self::Merge(_) => "application/merge-patch+json",
            Self::Json(_) => "application/json-patch+json",
            Self::Strategic(_) => "application/strategic-merge-patch+json",
            // Every JSON document is YAML.
            Self::Apply(..) => "application/apply-patch+yaml",
        }
    }

    /// The request's body.
    pub fn body(&self) -> Value {
        match self {
            Self::Merge(body) | Self::Strategic(body) | Self::Apply(_, body) => body.clone(),
            Self::Json(operations) => Value::Array(operations.clone()),
        }
    }

    /// The query of its request: the field manager of a server-side apply.
    pub fn query(&self) -> String {
        match self {
            Self::Apply(field_manager, _) => applied_by(field_manager),
            Self::Merge(_) | Self::Json(_) | Self::Strategic(_) => String::new(),
        }
    }

    /// The resource version that the patch is valid for, if it names one.
    pub fn version(&self) -> Option<String> {
        let version = match self {
            Self::Merge(body) | Self::Strategic(body) | Self::Apply(_, body) => {
                body.pointer("/metadata/resourceVersion")
            }
            Self::Json(operations) => {
                let named = operations.iter().find(|o| o["path"] == "/metadata/resourceVersion");
                named.map(|operation| &operation["value"])
            }
        };
        version?.as_str().map(str::to_owned)
    }

    /// Makes the API server refuse the patch (409 Conflict) unless the object still has this resource version.
    ///
    /// The version is *written*, not tested: a failed `test` of RFC 6902 would be answered with 422 Invalid, which
    /// could not be distinguished from a patch that can never succeed.
    #[must_use]
    pub fn pinned(self, resource_version: &str) -> Self {
        match self {
            Self::Merge(mut body) => {
                set(&mut body, &["metadata", "resourceVersion"], Value::from(resource_version));
                Self::Merge(body)
            }
            Self::Strategic(mut body) => {
                set(&mut body, &["metadata", "resourceVersion"], Value::from(resource_version));
                Self::Strategic(body)
            }
            Self::Apply(manager, mut body) => {
                set(&mut body, &["metadata", "resourceVersion"], Value::from(resource_version));
                Self::Apply(manager, body)
            }
            Self::Json(mut operations) => {
                let path = "/metadata/resourceVersion";
                operations.retain(|operation| operation["path"] != path);
                operations.insert(0, json!({"op": "replace", "path": path, "value": resource_version}));
                Self::Json(operations)
            }
        }
    }
}

/// One of several API writes that must be made in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// `status`, or the object itself.
    pub subresource: Option<&'static str>,
    /// What to send.
    pub patch: Patch,
}

impl Step {
    /// The same step, valid only for this resource version: for the steps after the first, that in the answer to the step before.
    #[must_use]
    pub fn pinned(self, resource_version: &str) -> Self {
        Self { subresource: self.subresource, patch: self.patch.pinned(resource_version) }
    }
}

/// Sets a value deep inside an object, making the objects on the way.
pub(crate) fn set(target: &mut Value, path: &[&str], value: Value) {
    let mut at = target;
    for key in path {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = at.as_object_mut().expect("made an object above").entry(*key).or_insert(Value::Null);
    }
    *at = value;
}

/// A nested object with one value.
pub(crate) fn nested(path: &[&str], value: Value) -> Value {
    let mut body = Value::Null;
    set(&mut body, path, value);
    body
}

/// A key as a part of a JSON pointer (RFC 6901).
pub(crate) fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinning_names_the_version_once() {
        let merge = Patch::Merge(json!({"spec": {"suspend": true}})).pinned("1").pinned("2");
        assert_eq!(merge.body(), json!({"metadata": {"resourceVersion": "2"}, "spec": {"suspend": true}}));
        assert_eq!(merge.version().as_deref(), Some("2"));
        let operation = json!({"op": "add", "path": "/spec/suspend", "value": true});
        let json = Patch::Json(vec![operation.clone()]);
        assert_eq!(json.version(), None);
        let json = json.pinned("1").pinned("2");
        assert_eq!(json.version().as_deref(), Some("2"));
        assert_eq!(
            json.body(),
            json!([{"op": "replace", "path": "/metadata/resourceVersion", "value": "2"}, operation])
        );
    }
}
