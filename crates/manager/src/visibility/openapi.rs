//! What clients and the API server's own documents are generated from: OpenAPI, version 2 and 3.

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

fn schemas(group: &str, version: &str, prefix: &str) -> Map<String, Value> {
    let tag = |kind: &str| json!([{"group": group, "kind": kind, "version": version}]);
    let text = || json!({"type": "string"});
    let place = |of: &str| json!({"type": "integer", "format": "int32", "description": format!("Place in the {of}, from 0.")});
    let item = definition(group, version, "PendingWorkload");
    let mut all = Map::new();
    for resource in resources(group) {
        let name = definition(group, version, resource.kind);
        let described = match resource.kind {
            EXPLANATION => Some("Why a Workload waits, and what would let it start."),
            WHAT_IF => Some("What a change of a job would do, beside what happens without it."),
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

/// The parameters of a path: their place, their name, and what they mean; a number if a bound is given.
fn parameters(resource: &Resource) -> Vec<(&'static str, &'static str, String)> {
    let mut all = vec![("path", "name", format!("Name of the object in {}.", resource.parent))];
    if resource.namespaced {
        all.push(("path", "namespace", "Its namespace.".to_owned()));
    }
    if resource.kind == SUMMARY {
        all.push(("query", "offset", "How many to skip (0).".to_owned()));
        all.push((
            "query",
            "limit",
            format!("How many to return at most ({DEFAULT_LIMIT}; {MAX_LIMIT} and no more)."),
        ));
    }
    if resource.kind == JOURNAL {
        all.push(("query", "limit", format!("How many lines to return at most ({MOST_LINES}).")));
    }
    all
}

/// The document of version 2: of all groups.
pub(super) fn v2() -> Value {
    let (mut paths, mut definitions) = (Map::new(), Map::new());
    for (group, version) in versions() {
        definitions.extend(schemas(group, version, "#/definitions/"));
        for resource in resources(group) {
            let parameters: Vec<Value> = parameters(resource)
                .into_iter()
                .map(|(place, name, description)| {
                    let kind = if place == "path" { "string" } else { "integer" };
                    json!({"name": name, "in": place, "type": kind, "description": description,
                           "required": place == "path", "uniqueItems": true})
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
pub(super) fn v3(group: &str, version: &str) -> Value {
    let path_of = |resource: &Resource| {
        let parameters: Vec<Value> = parameters(resource)
            .into_iter()
            .map(|(place, name, description)| {
                let kind = if place == "path" { "string" } else { "integer" };
                json!({"name": name, "in": place, "description": description, "required": place == "path",
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
    let paths: Map<_, _> = resources(group).iter().map(path_of).collect();
    json!({
        "openapi": "3.0.0", "info": {"title": "Sluice", "version": "v1"}, "paths": paths,
        "components": {"schemas": schemas(group, version, "#/components/schemas/")},
    })
}

#[cfg(test)]
mod tests {
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
        let mut documents = vec![v2()];
        documents.extend(versions().map(|(group, version)| v3(group, version)));
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

    #[test]
    fn operations_have_names_of_their_own() {
        let document = v2();
        let paths = document["paths"].as_object().unwrap();
        let ids: std::collections::BTreeSet<_> =
            paths.values().map(|p| p["get"]["operationId"].to_string()).collect();
        assert_eq!((ids.len(), paths.len()), (7, 7));
        assert!(ids.contains("\"readVisibilityKueueXK8sIoV1beta2ClusterqueuesPendingworkloads\""), "{ids:?}");
        let index = v3_index("1");
        assert_eq!(index["paths"].as_object().unwrap().len(), 3);
    }
}
