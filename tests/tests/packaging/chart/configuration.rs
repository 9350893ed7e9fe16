//! The parts of the Configuration's text that the templates use.

use serde_json::{Value, json};

use super::{objects, render, webhooks};

#[test]
fn the_configuration_is_the_one_place_for_ports_frameworks_and_namespaces() {
    let config = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmetrics: {bindAddress: \":18443\"}\n\
                  health: {healthProbeBindAddress: \":18081\"}\nwebhook: {port: 19443}\nvisibilityServer: {bindPort: 18082}\n\
                  managedJobsNamespaceSelector: {matchLabels: {team: ml}}\nintegrations: {frameworks: [batch/job]}\n";
    let config = format!("managerConfig.controllerManagerConfigYaml={}", config.replace(',', "\\,"));
    let objects = objects(&[&config]);
    let container =
        &objects["Deployment/kueue-controller-manager"]["spec"]["template"]["spec"]["containers"][0];
    let ports: Vec<_> =
        container["ports"].as_array().unwrap().iter().map(|port| &port["containerPort"]).collect();
    assert_eq!(ports, [18081, 18443, 18082, 19443]);
    let jobs: Vec<&Value> =
        webhooks(&objects).into_iter().filter(|webhook| webhook.get("matchConditions").is_some()).collect();
    assert!(jobs.iter().all(|webhook| webhook["rules"][0]["resources"] == json!(["jobs"])));
    // What names a queue is suspended from its creation wherever it is; the selector is about what names none.
    let anywhere = json!({"matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "kueue-system"]}]});
    let of = |part: &str| -> Vec<&Value> {
        let has = |webhook: &&&Value| webhook["matchConditions"][0]["name"] == part;
        jobs.iter().filter(has).map(|webhook| &webhook["namespaceSelector"]).collect()
    };
    assert_eq!(of("has-queue-name"), [&anywhere; 2]);
    assert_eq!(of("has-no-queue-name"), [&json!({"matchLabels": {"team": "ml"}}); 2]);
    let rules = objects["ClusterRole/kueue-manager-role"]["rules"].as_array().unwrap();
    assert!(!rules.iter().any(|rule| rule["apiGroups"] == json!(["jobset.x-k8s.io"])));
}

#[test]
fn a_stage_of_gates_gives_the_rights_that_its_gates_need() {
    let reasons_to_fail_pods = |gates: &str| {
        let config = format!(
            "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nfeatureGates: {{{gates}}}\n"
        );
        let config = format!("managerConfig.controllerManagerConfigYaml={}", config.replace(',', "\\,"));
        let role = &objects(&[&config])["ClusterRole/kueue-manager-role"]["rules"];
        let of_pods =
            role.as_array().unwrap().iter().filter(|rule| rule["resources"] == json!(["pods/status"]));
        of_pods.count()
    };
    // By the gates TopologyAwareScheduling, of stage beta, and FailureRecoveryPolicy, of stage alpha.
    for (gates, expected) in [
        ("", 1),
        ("AllAlpha: true", 2),
        ("AllAlpha: true, FailureRecoveryPolicy: false", 1),
        ("AllBeta: false", 0),
        ("AllBeta: false, TopologyAwareScheduling: true", 1),
    ] {
        assert_eq!(reasons_to_fail_pods(gates), expected, "{gates}");
    }
}

#[test]
fn an_empty_address_is_the_default_one() {
    let rendered = |sections: &str| {
        let config = format!("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{sections}");
        let config = format!("managerConfig.controllerManagerConfigYaml={}", config.replace(',', "\\,"));
        let objects = objects(&[&config]);
        let manager =
            &objects["Deployment/kueue-controller-manager"]["spec"]["template"]["spec"]["containers"][0];
        (manager["ports"].clone(), objects["NetworkPolicy/kueue-controller-manager"]["spec"].clone())
    };
    let empty = "health: {healthProbeBindAddress: \"\"}\nmetrics: {bindAddress: \"\"}\n";
    assert_eq!(rendered(empty), rendered(""));
}

#[test]
fn an_empty_section_of_the_configuration_is_one_that_is_left_out() {
    let rendered = |sections: &str| {
        let config = format!("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{sections}");
        render(&[&format!("managerConfig.controllerManagerConfigYaml={config}")]).unwrap()
    };
    let empty = "namespace:\nmetrics:\nintegrations:\nfeatureGates:\nhealth:\nwebhook:\n  port:\nleaderElection:\n  leaderElect:\n\
                 visibilityServer:\ndashboard:\ninternalCertManagement:\n  enable:\n";
    assert_eq!(rendered(empty), rendered("leaderElection: {}\n"));
}

#[test]
fn the_alert_of_a_missing_leader_is_about_the_lease_of_the_configuration() {
    let expression = |more: &[&str]| {
        let objects = objects(&[&["metrics.prometheusRule.enabled=true"], more].concat());
        let alerts = objects["PrometheusRule/kueue-alerts"]["spec"]["groups"][0]["rules"].clone();
        let alert = alerts.as_array().unwrap().iter().find(|rule| rule["alert"] == "SluiceLeaderMissing");
        alert.unwrap()["expr"].as_str().unwrap().to_owned()
    };
    let of =
        |lease: &str| format!("(sum(leader_election_master_status{{name=\"{lease}\"}}) or vector(0)) == 0");
    let config = "managerConfig.controllerManagerConfigYaml=apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n";
    let mine = format!("{config}leaderElection: {{resourceName: my-lease}}\n");
    assert_eq!(expression(&[&mine]), of("my-lease"));
    assert_eq!(expression(&[config]), of("c1f6bfd2.kueue.x-k8s.io"));
    assert_eq!(expression(&[&mine, "metrics.prometheusRule.leaseName=other"]), of("other"));
    // Without metrics it would never end.
    let without = format!("{config}metrics: {{bindAddress: \"0\"}}\n");
    let refused = render(&["metrics.prometheusRule.enabled=true", &without]).unwrap_err();
    assert!(refused.contains("metrics.prometheusRule.enabled: true needs the metrics"), "{refused}");
}
