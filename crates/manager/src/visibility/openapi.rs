//! The OpenAPI documents, version 2 and 3, for clients and for the API server's own documents.

use serde_json::{Map, Value, json};
use sluice_api::visibility::{DEFAULT_LIMIT, MAX_LIMIT, SUMMARY};

use super::discovery::{EXPLANATION, JOURNAL, Resource, WHAT_IF, resources};
use super::route::versions;
use crate::journal::MOST_LINES;

/// The name of a definition: the group's parts turned round, as Kubernetes' generators have it.
fn definition(group: &str, version: &str, kind: &str) -> String {
    let turned: Vec<_> = group.split('.').rev().collect();
    format!("{}.{version}.{kind}", turned.join("."))
}

fn schemas((group, version): (&str, &str), prefix: &str, journal: bool) -> Map<String, Value> {
    let tag = |kind: &str| json!([{"group": group, "kind": kind, "version": version}]);
    let text = || json!({"type": "string"});
    let place = |of: &str| json!({"type": "integer", "format": "int32", "description": format!("Place in the {of}, from 0.")});
    let item = definition(group, version, "PendingWorkload");
    let mut all = Map::new();
    for resource in resources(group, journal) {
        let name = definition(group, version, resource.kind);
        let described = match resource.kind {
            EXPLANATION => Some("Why a Workload waits, and what would let it start."),
            WHAT_IF => Some("What a change of a job would do, compared with the job as it is."),
            JOURNAL => Some("Lines of the journal: what was decided, and why."),
            _ => None,
        };
        if let Some(description) = described {
            let kind = tag(resource.kind);
            let schema = json!({"type": "object", "description": description, "x-kubernetes-group-version-kind": kind});
            all.insert(name, schema);
            continue;
        }
        all.insert(
            name,
            json!({
                "type": "object",
                "description": "The Workloads that wait in a queue, in its order.",
                "properties": {
                    "apiVersion": text(), "kind": text(), "metadata": {"type": "object"},
                    "items": {"type": "array", "items": {"$ref": format!("{prefix}{item}")}},
                },
                "required": ["items"],
                "x-kubernetes-group-version-kind": tag(SUMMARY),
            }),
        );
        all.insert(
            item.clone(),
            json!({
                "type": "object",
                "description": "A Workload that waits.",
                "properties": {
                    "metadata": {"type": "object"},
                    "priority": {"type": "integer", "format": "int32"},
                    "localQueueName": text(),
                    "positionInClusterQueue": place("ClusterQueue"),
                    "positionInLocalQueue": place("LocalQueue"),
                },
                "required": ["priority", "localQueueName", "positionInClusterQueue", "positionInLocalQueue"],
            }),
        );
    }
    all
}

fn path(group: &str, version: &str, resource: &Resource) -> String {
    let namespace = if resource.namespaced { "namespaces/{namespace}/" } else { "" };
    format!("/apis/{group}/{version}/{namespace}{}/{{name}}/{}", resource.parent, resource.name)
}

fn operation_id(group: &str, version: &str, resource: &Resource) -> String {
    let words = [group, version, resource.parent, resource.name];
    let mut id = "read".to_owned();
    for word in words.iter().flat_map(|word| word.split(['.', '-'])) {
        let (first, rest) = word.split_at(word.len().min(1));
        id.push_str(&first.to_ascii_uppercase());
        id.push_str(rest);
    }
    id
}

/// A parameter of a path.
struct Parameter {
    /// `path` or `query`.
    place: &'static str,
    name: &'static str,
    /// Its type.
    kind: &'static str,
    /// Its description.
    description: String,
}

impl Parameter {
    fn of_path(name: &'static str, description: String) -> Self {
        Self { place: "path", name, kind: "string", description }
    }

    fn of_query(name: &'static str, kind: &'static str, description: &str) -> Self {
        Self { place: "query", name, kind, description: description.to_owned() }
    }

    fn is_required(&self) -> bool {
        self.place == "path" || self.name == "change"
    }
}

/// The parameters of a path.
fn parameters(resource: &Resource) -> Vec<Parameter> {
    let mut all = vec![Parameter::of_path("name", format!("Name of the object in {}.", resource.parent))];
    if resource.namespaced {
        all.push(Parameter::of_path("namespace", "Its namespace.".to_owned()));
    }
    let query = Parameter::of_query;
    match resource.kind {
        SUMMARY => {
            let most =
                format!("The maximum number to return (default {DEFAULT_LIMIT}, at most {MAX_LIMIT}).");
            all.extend([
                query("offset", "integer", "The number to skip (default 0)."),
                query("limit", "integer", &most),
            ]);
        }
        JOURNAL => {
            let most = format!("The maximum number of lines to return (default and at most {MOST_LINES}).");
            all.extend([
                query("since", "string", "Lines from this time on, as in RFC 3339; all."),
                query("limit", "integer", &most),
                query("continue", "string", "Where the page before ended: its metadata.continue."),
            ]);
        }
        _ => {
            all.extend([
                query(
                    "kind",
                    "string",
                    "The kind of the name: workload or a job kind; without it a Workload is preferred.",
                ),
                query("output", "string", "json, text or both (json)."),
                query(
                    "all",
                    "boolean",
                    "Whether names of other namespaces are shown, to those who may ask everywhere (false).",
                ),
            ]);
            if resource.kind == WHAT_IF {
                let what = "A JSON merge patch of the job's spec, labels or annotations.";
                all.push(query("change", "string", what));
            }
        }
    }
    all
}

/// The document of version 2: of all groups; with `journal`, as for [`resources`].
pub(super) fn v2(journal: bool) -> Value {
    let (mut paths, mut definitions) = (Map::new(), Map::new());
    for (group, version) in versions() {
        definitions.extend(schemas((group, version), "#/definitions/", journal));
        for resource in resources(group, journal) {
            let parameters: Vec<Value> = parameters(resource)
                .into_iter()
                .map(|of| {
                    let required = of.is_required();
                    let Parameter { place, name, kind, description } = of;
                    json!({"name": name, "in": place, "type": kind, "description": description,
                           "required": required, "uniqueItems": true})
                })
                .collect();
            let answer = format!("#/definitions/{}", definition(group, version, resource.kind));
            paths.insert(
                path(group, version, resource),
                json!({"get": {
                    "operationId": operation_id(group, version, resource),
                    "produces": ["application/json", "application/yaml"],
                    "parameters": parameters,
                    "responses": {"200": {"description": "OK", "schema": {"$ref": answer}}},
                    "x-kubernetes-action": "get",
                    "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": resource.kind},
                }}),
            );
        }
    }
    json!({
        "swagger": "2.0", "info": {"title": "Sluice", "version": "v1"},
        "paths": paths, "definitions": definitions,
    })
}

/// Which documents of version 3 there are. `hash` changes with what is in them.
pub(super) fn v3_index(hash: &str) -> Value {
    let entry = |(group, version): (&str, &str)| {
        let place = format!("apis/{group}/{version}");
        let url = json!({"serverRelativeURL": format!("/openapi/v3/{place}?hash={hash}")});
        (place, url)
    };
    json!({"paths": versions().map(entry).collect::<Map<_, _>>()})
}

/// The document of version 3 of a group's version.
pub(super) fn v3(group: &str, version: &str, journal: bool) -> Value {
    let path_of = |resource: &Resource| {
        let parameters: Vec<Value> = parameters(resource)
            .into_iter()
            .map(|of| {
                let required = of.is_required();
                let Parameter { place, name, kind, description } = of;
                json!({"name": name, "in": place, "description": description, "required": required,
                       "schema": {"type": kind, "uniqueItems": true}})
            })
            .collect();
        let answer = format!("#/components/schemas/{}", definition(group, version, resource.kind));
        let content = json!({"application/json": {"schema": {"$ref": answer}}});
        let operation = json!({"get": {
            "operationId": operation_id(group, version, resource),
            "parameters": parameters,
            "responses": {"200": {"description": "OK", "content": content}},
            "x-kubernetes-action": "get",
            "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": resource.kind},
        }});
        (path(group, version, resource), operation)
    };
    let paths: Map<_, _> = resources(group, journal).map(path_of).collect();
    json!({
        "openapi": "3.0.0", "info": {"title": "Sluice", "version": "v1"}, "paths": paths,
        "components": {"schemas": schemas((group, version), "#/components/schemas/", journal)},
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use sluice_api::visibility::{GROUP, VERSIONS};

    use super::super::route::tests::read_by;
    use super::super::route::{self, EXPLAIN_GROUP, EXPLAIN_VERSION};
    use super::*;

    /// Every reference in a document.
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(items) => items.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_to_a_schema() {
        let mut documents = vec![v2(true)];
        documents.extend(versions().map(|(group, version)| v3(group, version, true)));
        for document in documents {
            let mut found = Vec::new();
            references(&document, &mut found);
            assert!(!found.is_empty());
            for reference in found {
                let pointer = reference.trim_start_matches('#');
                assert!(document.pointer(pointer).is_some(), "{reference}");
            }
        }
    }

    /// The parameters of queries that a document has for a subresource.
    fn queries(document: &Value, subresource: &str) -> BTreeSet<String> {
        let paths = document["paths"].as_object().unwrap();
        let (_, path) = paths.iter().find(|(path, _)| path.ends_with(subresource)).unwrap();
        let all = path["get"]["parameters"].as_array().unwrap();
        let of_query = all.iter().filter(|parameter| parameter["in"] == "query");
        of_query.map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_parameters_are_those_that_are_read() {
        let pages = read_by(|| drop(route::page("")));
        let lines = read_by(|| drop(route::asked("")));
        let explain = read_by(|| drop(route::wishes("")));
        let what_if = read_by(|| drop((route::change(""), route::wishes(""))));
        for document in [v2(true), v3(GROUP, VERSIONS[0], true)] {
            assert_eq!(queries(&document, "/pendingworkloads"), pages);
        }
        for document in [v2(true), v3(EXPLAIN_GROUP, EXPLAIN_VERSION, true)] {
            assert_eq!(queries(&document, "/journal"), lines);
            assert_eq!(queries(&document, "/explain"), explain);
            assert_eq!(queries(&document, "/whatif"), what_if);
        }
    }

    #[test]
    fn operations_have_names_of_their_own() {
        let document = v2(true);
        let paths = document["paths"].as_object().unwrap();
        let ids: std::collections::BTreeSet<_> =
            paths.values().map(|p| p["get"]["operationId"].to_string()).collect();
        assert_eq!((ids.len(), paths.len()), (7, 7));
        assert!(ids.contains("\"readVisibilityKueueXK8sIoV1beta2ClusterqueuesPendingworkloads\""), "{ids:?}");
        let index = v3_index("1");
        assert_eq!(index["paths"].as_object().unwrap().len(), 3);
    }
}
