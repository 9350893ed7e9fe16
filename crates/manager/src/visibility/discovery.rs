//! The discovery documents: groups, versions and resources.
//!
//! Only subresources are served. The objects that they belong to are not listed: `kubectl get clusterqueues` must not come here.

use serde_json::{Value, json};
use sluice_api::visibility::{GROUP, SUMMARY};

use super::route::{EXPLAIN_GROUP, GROUPS, versions};

/// The kind of an explanation.
pub(super) const EXPLANATION: &str = "Explanation";

/// The kind of an answer about a change.
pub(super) const WHAT_IF: &str = "WhatIf";

/// The kind of a page of the journal.
pub(super) const JOURNAL: &str = "JournalPage";

/// A subresource that can be read.
pub(super) struct Resource {
    /// The plural name of the kind that it belongs to.
    pub parent: &'static str,
    /// Its own name.
    pub name: &'static str,
    pub namespaced: bool,
    /// The kind of the answer.
    pub kind: &'static str,
}

/// The resources of a group; that of the journal only if the manager keeps one.
pub(super) fn resources(group: &str, journal: bool) -> impl Iterator<Item = &'static Resource> {
    const OF_KUEUE: &[Resource] = &[
        Resource { parent: "clusterqueues", name: "pendingworkloads", namespaced: false, kind: SUMMARY },
        Resource { parent: "localqueues", name: "pendingworkloads", namespaced: true, kind: SUMMARY },
    ];
    const OF_SLUICE: &[Resource] = &[
        Resource { parent: "workloads", name: "explain", namespaced: true, kind: EXPLANATION },
        Resource { parent: "workloads", name: "whatif", namespaced: true, kind: WHAT_IF },
        Resource { parent: "clusterqueues", name: "journal", namespaced: false, kind: JOURNAL },
    ];
    let all = match group {
        GROUP => OF_KUEUE,
        EXPLAIN_GROUP => OF_SLUICE,
        _ => &[],
    };
    all.iter().filter(move |resource| journal || resource.kind != JOURNAL)
}

/// An `APIGroup`.
pub(super) fn group(name: &str) -> Value {
    let version = |(group, version): (&str, &str)| json!({"groupVersion": format!("{group}/{version}"), "version": version});
    let all: Vec<Value> = versions().filter(|(group, _)| *group == name).map(version).collect();
    json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": name,
        "preferredVersion": all.first(), "versions": all,
    })
}

/// The `APIGroupList`.
pub(super) fn groups() -> Value {
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": GROUPS.map(group)})
}

/// An `APIResourceList`.
pub(super) fn list(group: &str, version: &str, journal: bool) -> Value {
    let resource = |resource: &Resource| {
        json!({
            "name": format!("{}/{}", resource.parent, resource.name), "singularName": "",
            "namespaced": resource.namespaced, "kind": resource.kind, "verbs": ["get"],
        })
    };
    let resources: Vec<Value> = resources(group, journal).map(resource).collect();
    json!({
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": format!("{group}/{version}"),
        "resources": resources,
    })
}

/// The `APIGroupDiscoveryList`: all of the above in one document.
pub(super) fn aggregated(of: &str, journal: bool) -> Value {
    let resource = |group: &str, version: &str, resource: &Resource| {
        let kind = json!({"group": group, "version": version, "kind": resource.kind});
        json!({
            "resource": resource.parent, "singularResource": "", "verbs": [],
            "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
            "subresources": [{"subresource": resource.name, "responseKind": kind, "verbs": ["get"]}],
        })
    };
    let version = |(group, version): (&str, &str)| {
        let resources: Vec<Value> =
            resources(group, journal).map(|one| resource(group, version, one)).collect();
        json!({"version": version, "resources": resources, "freshness": "Current"})
    };
    let item = |name: &str| {
        let all: Vec<Value> = versions().filter(|(group, _)| *group == name).map(version).collect();
        json!({"metadata": {"name": name}, "versions": all})
    };
    json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": format!("apidiscovery.k8s.io/{of}"),
        "metadata": {}, "items": GROUPS.map(item),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newer_version_is_preferred_and_only_subresources_are_listed() {
        let group = group(GROUP);
        assert_eq!(group["preferredVersion"]["groupVersion"], "visibility.kueue.x-k8s.io/v1beta2");
        assert_eq!(group["versions"].as_array().unwrap().len(), 2);
        let resources = list(GROUP, "v1beta1", true);
        let names: Vec<_> =
            resources["resources"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["clusterqueues/pendingworkloads", "localqueues/pendingworkloads"]);
    }

    #[test]
    fn the_one_document_says_the_same_as_the_many() {
        for journal in [false, true] {
            says_the_same(journal);
        }
        let named = |journal| aggregated("v2", journal).to_string().contains("\"journal\"");
        assert_eq!([false, true].map(named), [false, true]);
    }

    fn says_the_same(journal: bool) {
        let all = aggregated("v2", journal);
        assert_eq!(all["items"].as_array().unwrap().len(), groups()["groups"].as_array().unwrap().len());
        for item in all["items"].as_array().unwrap() {
            let name = item["metadata"]["name"].as_str().unwrap();
            for version in item["versions"].as_array().unwrap() {
                let reported = list(name, version["version"].as_str().unwrap(), journal);
                let names = |list: &Value| list["resources"].as_array().unwrap().len();
                assert_eq!(names(version), names(&reported));
            }
        }
    }
}
