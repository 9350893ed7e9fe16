//! The chart's objects for declared kinds.

use serde_json::{Value, json};

use super::{objects, render, webhooks};

#[test]
fn a_declared_kind_gets_the_configuration_rights_and_webhooks_that_it_needs() {
    let objects = objects(&["@tests/tests/packaging/declared-kinds.yaml"]);
    let text =
        objects["ConfigMap/kueue-manager-config"]["data"]["controller_manager_config.yaml"].as_str().unwrap();
    let (configuration, _) = sluice_api::config::Configuration::parse(text).unwrap();
    let declared = &configuration.integrations.declared;
    assert_eq!(declared.len(), 2);
    assert_eq!((&declared[0].suspend.running, &*declared[0].plural), (&Value::Null, "errands"));
    let of_kind = |value: &Value| value.to_string().contains("example.com");
    let rules = objects["ClusterRole/kueue-manager-role"]["rules"].as_array().unwrap();
    let hooks: Vec<_> = webhooks(&objects).into_iter().filter(|hook| of_kind(&hook["rules"])).collect();
    let names: Vec<_> = hooks.iter().map(|hook| hook["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "merrand-errands-example-com.kb.io",
            "merrand-errands-example-com-without-queue.kb.io",
            "merrand-other-example-com.kb.io",
            "merrand-other-example-com-without-queue.kb.io",
            "verrand-errands-example-com.kb.io",
            "verrand-errands-example-com-without-queue.kb.io",
            "verrand-other-example-com.kb.io",
            "verrand-other-example-com-without-queue.kb.io",
        ]
    );
    assert_eq!(hooks[0]["clientConfig"]["service"]["path"], "/mutate-errands-example-com-v1alpha1-errand");
    assert_eq!(
        hooks[2]["rules"],
        json!([{"apiGroups": ["other.example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["errandz"]}])
    );
    let rule = |group: &str, resource: &str, verbs: &[&str]| json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
    let rights = |group: &str, resource: &str| {
        [
            rule(group, resource, &["delete", "get", "list", "patch", "watch"]),
            rule(group, &format!("{resource}/status"), &["patch"]),
            rule(group, &format!("{resource}/finalizers"), &["update"]),
        ]
    };
    let own: Vec<_> = rules.iter().filter(|rule| of_kind(rule)).cloned().collect();
    let wanted = [rights("errands.example.com", "errands"), rights("other.example.com", "errandz")];
    assert_eq!(own, wanted.concat());
    // Users may do with it what they may do with jobs, each by their own role.
    let (edits, views) = (
        json!(["create", "delete", "get", "list", "patch", "update", "watch"]),
        json!(["get", "list", "watch"]),
    );
    for (kind, group, resource) in [
        ("errand-errands-example-com", "errands.example.com", "errands"),
        ("errand-other-example-com", "other.example.com", "errandz"),
    ] {
        for (role, verbs) in [("editor", &edits), ("viewer", &views)] {
            let object = &objects[&*format!("ClusterRole/kueue-{kind}-{role}-role")];
            let wanted = json!([
                {"apiGroups": [group], "resources": [resource], "verbs": verbs},
                {"apiGroups": [group], "resources": [format!("{resource}/status")], "verbs": ["get"]},
            ]);
            assert_eq!(object["rules"], wanted, "{kind} {role}");
            let gathered = |label: &str| object["metadata"]["labels"][label] == "true";
            for who in ["batch-admin", "batch-user"] {
                assert!(gathered(&format!("rbac.kueue.x-k8s.io/{who}")), "{kind} {role} {who}");
            }
            let to_view = gathered("rbac.authorization.k8s.io/aggregate-to-view");
            assert_eq!(to_view, role == "viewer", "{kind} {role}");
        }
    }
}

#[test]
fn a_declared_kind_without_what_it_needs_is_refused() {
    let error = render(&["managerConfig.declaredKinds[0].group=x.example.com"]).unwrap_err();
    assert!(error.contains("podSets"), "{error}");
}

#[test]
fn a_declared_kind_that_gates_its_pods_brings_the_webhooks_and_rights_for_pods() {
    let objects = objects(&["@tests/tests/packaging/gated-kinds.yaml"]);
    let hooks = webhooks(&objects);
    let hook =
        |name: &str| hooks.iter().find(|hook| hook["name"] == name).unwrap_or_else(|| panic!("{name}"));
    // Its templates are marked, and the marks kept.
    let marks = &hook("mcrew-crews-example-com.kb.io")["rules"][0];
    assert_eq!(marks["operations"], json!(["CREATE", "UPDATE"]));
    // Only pods that it suspends are looked at.
    for name in ["mpod.kb.io", "vpod.kb.io"] {
        let conditions = hook(name)["matchConditions"].as_array().unwrap();
        let implied = conditions.iter().any(|condition| condition["name"] == "is-suspended-by-its-parent");
        assert!(implied && hook(name)["failurePolicy"] == "Fail", "{name}: {conditions:?}");
    }
    assert!(!hooks.iter().any(|hook| hook["name"] == "mpod-without-queue.kb.io"));
    let rules = objects["ClusterRole/kueue-manager-role"]["rules"].as_array().unwrap();
    let may = |verb: &str| {
        let of_pods =
            |rule: &&Value| rule["apiGroups"] == json!([""]) && rule["resources"] == json!(["pods"]);
        rules.iter().filter(of_pods).any(|rule| rule["verbs"].as_array().unwrap().contains(&json!(verb)))
    };
    assert!(may("patch") && may("delete"));
    // Those of users are not queued.
    assert!(objects.contains_key("ClusterRole/kueue-crew-crews-example-com-editor-role"));
    assert!(!objects.contains_key("ClusterRole/kueue-pod-editor-role"));
}
