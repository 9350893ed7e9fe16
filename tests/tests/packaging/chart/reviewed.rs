//! Which writes on jobs and pods are reviewed.

use serde_json::{Value, json};

use super::{NAMESPACE, objects, webhooks};

#[test]
fn a_webhook_for_jobs_or_pods_either_needs_a_queue_name_or_cannot_block() {
    let objects = objects(&[]);
    let jobs: Vec<&Value> = webhooks(&objects)
        .into_iter()
        .filter(|webhook| webhook["rules"][0]["apiGroups"][0] != "kueue.x-k8s.io")
        .collect();
    assert_eq!(jobs.len(), 69, "seventeen kinds, mutating and validating, with and without queue name; pods");
    for webhook in jobs {
        let condition = &webhook["matchConditions"][0]["name"];
        match webhook["failurePolicy"].as_str().unwrap() {
            "Fail" => assert_eq!(condition, "has-queue-name"),
            policy => {
                let asks = webhook["name"] == "mpod-node-affinity.kb.io";
                let wanted = if asks { "asks-for-node-affinity" } else { "has-no-queue-name" };
                assert_eq!((policy, condition), ("Ignore", &json!(wanted)));
                assert_eq!(webhook["timeoutSeconds"], 2);
            }
        }
        let own = webhook["matchConditions"].as_array().unwrap().iter().filter(|condition| {
            let manager = format!(
                "request.userInfo.username != 'system:serviceaccount:{NAMESPACE}:kueue-controller-manager'"
            );
            condition["expression"] == manager
        });
        let asked = usize::from(webhook["name"] != "mpod-node-affinity.kb.io");
        assert_eq!(own.count(), asked, "{}: what the manager writes is not reviewed", webhook["name"]);
        let selector = &webhook["namespaceSelector"]["matchExpressions"][0];
        assert_eq!(selector["values"], json!(["kube-system", NAMESPACE]));
    }
}

#[test]
fn the_api_server_keeps_queued_jobs_from_being_deleted_without_their_pods_by_default() {
    let by_default = objects(&[]);
    let policy = &by_default["ValidatingAdmissionPolicy/kueue-no-orphans"]["spec"];
    let rules = policy["matchConstraints"]["resourceRules"].as_array().unwrap();
    let kinds: Vec<_> = rules.iter().filter_map(|rule| rule["resources"][0].as_str()).collect();
    assert!(
        kinds.contains(&"jobs") && kinds.contains(&"jobsets") && kinds.contains(&"rayclusters"),
        "{kinds:?}"
    );
    let alone = ["pods", "deployments", "statefulsets", "leaderworkersets"];
    assert!(!kinds.iter().any(|kind| alone.contains(kind)), "their pods have their own gates: {kinds:?}");
    let binding = &by_default["ValidatingAdmissionPolicyBinding/kueue-no-orphans"]["spec"];
    assert_eq!(binding["policyName"], "kueue-no-orphans");
    assert_eq!(binding["validationActions"], json!(["Deny"]));
    let selector = &binding["matchResources"]["namespaceSelector"]["matchExpressions"][0];
    assert_eq!(selector["values"], json!(["kube-system", NAMESPACE]));
    let off = objects(&["webhooks.refuseOrphans=false"]);
    assert!(!off.keys().any(|name| name.contains("no-orphans")));
}

#[test]
fn the_api_server_keeps_pods_of_admitted_jobs_from_growing_in_place_by_default() {
    let by_default = objects(&[]);
    let policy = &by_default["ValidatingAdmissionPolicy/kueue-no-resize"]["spec"];
    let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods/resize"]});
    assert_eq!(policy["matchConstraints"]["resourceRules"], json!([rule]));
    assert_eq!(
        policy["validations"].as_array().unwrap().len(),
        3,
        "containers, init containers, the pod itself"
    );
    let binding = &by_default["ValidatingAdmissionPolicyBinding/kueue-no-resize"]["spec"];
    assert_eq!(binding["policyName"], "kueue-no-resize");
    assert_eq!(binding["validationActions"], json!(["Deny"]));
    let selector = &binding["matchResources"]["namespaceSelector"]["matchExpressions"][0];
    assert_eq!(selector["values"], json!(["kube-system", NAMESPACE]));
    // Nor do they lose the marks by which it knows them.
    let marks = &by_default["ValidatingAdmissionPolicy/kueue-no-unmarking"]["spec"];
    assert_eq!(marks["matchConditions"][0], policy["matchConditions"][0]);
    let rule =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]});
    assert_eq!(marks["matchConstraints"]["resourceRules"], json!([rule]));
    assert_eq!(marks["failurePolicy"], "Fail");
    let spared = marks["matchConditions"][2]["expression"].as_str().unwrap();
    assert!(
        spared.contains(&format!("'system:serviceaccount:{NAMESPACE}:kueue-controller-manager'")),
        "{spared}"
    );
    let binding = &by_default["ValidatingAdmissionPolicyBinding/kueue-no-unmarking"]["spec"];
    assert_eq!(
        (&binding["policyName"], &binding["validationActions"]),
        (&json!("kueue-no-unmarking"), &json!(["Deny"]))
    );
    assert_eq!(&binding["matchResources"]["namespaceSelector"]["matchExpressions"][0], selector);
    let off = objects(&["webhooks.refuseResize=false"]);
    assert!(!off.keys().any(|name| name.contains("no-resize") || name.contains("no-unmarking")));
}
