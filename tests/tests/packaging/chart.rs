//! The chart as helm renders it: its content, and its refusals.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod book;
mod configuration;
mod dashboard;
mod declared;
mod definitions;
mod journal;
mod kinds;
mod reviewed;
mod services;
mod tracing;
mod visibility;

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::{Value, json};
use sluice_testkit::assets::{self, Tool};

const NAMESPACE: &str = "kueue-system";
/// Values for a manager that runs outside the cluster.
const OUTSIDE: [&str; 3] = [
    "controllerManager.replicas=0",
    "webhooks.urlBase=https://127.0.0.1:9443/",
    "visibility.externalName=manager.example.com",
];

/// What `helm template` prints with these values (`@FILE`: those of a file), or what it says against them.
fn render_whole(values: &[&str]) -> Result<String, String> {
    let mut command = Command::new(assets::path(Tool::Helm).unwrap());
    let chart = assets::workspace().join("charts/sluice");
    // It ends within a second: to collect its garbage would take a third of that.
    command.env("GOGC", "400").args(["template", "sluice", "--namespace", NAMESPACE]).arg(chart);
    for value in values {
        match value.strip_prefix('@') {
            Some(file) => command.arg("--values").arg(assets::workspace().join(file)),
            None => command.args(["--set", value]),
        };
    }
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

/// The same without the definitions: they are three quarters of the text, and take most of the time.
fn render(values: &[&str]) -> Result<String, String> {
    render_whole(&[&["crds.enabled=false"], values].concat())
}

/// The rendered objects without the definitions, by kind and name.
pub fn objects(values: &[&str]) -> BTreeMap<String, Value> {
    read(&render(values).unwrap())
}

/// All rendered objects, by kind and name.
fn whole(values: &[&str]) -> BTreeMap<String, Value> {
    read(&render_whole(values).unwrap())
}

fn read(rendered: &str) -> BTreeMap<String, Value> {
    let documents =
        rendered.split("\n---\n").filter(|text| text.lines().any(|line| line.starts_with("kind:")));
    documents
        .map(|text| {
            let object: Value = serde_saphyr::from_str(text.trim_start_matches("---")).unwrap();
            let name = format!("{}/{}", object["kind"], object["metadata"]["name"]).replace('"', "");
            (name, object)
        })
        .collect()
}

fn webhook_configurations(objects: &BTreeMap<String, Value>) -> Vec<&Value> {
    ["Mutating", "Validating"]
        .map(|kind| {
            let name = format!("kueue-{}-webhook-configuration", kind.to_lowercase());
            &objects[&format!("{kind}WebhookConfiguration/{name}")]
        })
        .to_vec()
}

pub fn webhooks(objects: &BTreeMap<String, Value>) -> Vec<&Value> {
    webhook_configurations(objects)
        .into_iter()
        .flat_map(|configuration| configuration["webhooks"].as_array().unwrap())
        .collect()
}

#[test]
fn the_default_rendering_is_the_known_one() {
    insta::assert_snapshot!(render(&["crds.enabled=false"]).unwrap());
}

#[test]
fn for_a_manager_outside_every_call_goes_to_the_url() {
    let objects = whole(&OUTSIDE);
    for webhook in webhooks(&objects) {
        let url = webhook["clientConfig"]["url"].as_str().unwrap();
        assert!(
            url.starts_with("https://127.0.0.1:9443/mutate-")
                || url.starts_with("https://127.0.0.1:9443/validate-"),
            "{url}"
        );
        assert!(webhook["clientConfig"].get("service").is_none());
    }
    let conversions =
        objects.values().filter_map(|object| object.pointer("/spec/conversion/webhook/clientConfig"));
    let urls: Vec<&Value> = conversions.map(|config| &config["url"]).collect();
    assert_eq!(urls, vec!["https://127.0.0.1:9443/convert"; 5]);
    assert_eq!(objects["Deployment/kueue-controller-manager"]["spec"]["replicas"], 0);
    assert!(!objects.contains_key("PodDisruptionBudget/kueue-controller-manager"));
}

#[test]
fn the_kinds_webhooks_are_those_that_the_manager_answers() {
    let objects = objects(&OUTSIDE);
    let rendered: BTreeMap<String, Value> = webhooks(&objects)
        .into_iter()
        .filter(|webhook| webhook["rules"][0]["apiGroups"][0] == "kueue.x-k8s.io")
        .map(|webhook| {
            let url = webhook["clientConfig"]["url"].as_str().unwrap();
            let rule = &webhook["rules"][0];
            let path = url.trim_start_matches("https://127.0.0.1:9443").to_owned();
            (path, json!([webhook["name"], rule["operations"], rule["resources"]]))
        })
        .collect();
    let answered = sluice_api::webhooks::WEBHOOKS
        .iter()
        .map(|webhook| {
            (webhook.path.to_owned(), json!([webhook.name, webhook.operations, webhook.resources]))
        })
        .collect();
    assert_eq!(rendered, answered);
}

#[test]
fn where_only_jobsets_are_managed_their_jobs_may_be_read_removed_and_asked_and_nothing_else() {
    let config = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                  integrations: {frameworks: [jobset.x-k8s.io/jobset]}\n";
    let objects = objects(&[&format!("managerConfig.controllerManagerConfigYaml={config}")]);
    let rules = objects["ClusterRole/kueue-manager-role"]["rules"].as_array().unwrap();
    let of_jobs: Vec<_> = rules.iter().filter(|rule| rule["apiGroups"] == json!(["batch"])).collect();
    assert_eq!(
        of_jobs,
        [
            &json!({"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["delete", "list", "watch"]}),
            &json!({"apiGroups": ["batch"], "resources": ["jobs/status"], "verbs": ["patch"]}),
        ]
    );
}

#[test]
fn the_pods_of_the_system_and_our_own_are_never_looked_at_whatever_namespaces_are_selected() {
    let config = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                  managedJobsNamespaceSelector: {matchLabels: {team: ml}}\nintegrations: {frameworks: [pod]}\n";
    let objects =
        objects(&[&format!("managerConfig.controllerManagerConfigYaml={}", config.replace(',', "\\,"))]);
    let of_pods: Vec<_> = webhooks(&objects)
        .into_iter()
        .filter(|webhook| webhook["rules"][0]["resources"] == json!(["pods"]))
        .collect();
    assert_eq!(of_pods.len(), 4);
    let ours = json!({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", "kueue-system"]});
    for webhook in of_pods {
        assert_eq!(
            webhook["namespaceSelector"],
            json!({"matchLabels": {"team": "ml"}, "matchExpressions": [ours]})
        );
        assert_eq!(webhook["rules"][0]["apiGroups"], json!([""]));
    }
    let rules = objects["ClusterRole/kueue-manager-role"]["rules"].as_array().unwrap();
    let of_pods =
        rules.iter().filter(|rule| rule["apiGroups"] == json!([""]) && rule["resources"] == json!(["pods"]));
    let verbs: Vec<_> = of_pods.flat_map(|rule| rule["verbs"].as_array().unwrap()).collect();
    assert!(["delete", "patch"].iter().all(|verb| verbs.contains(&&json!(verb))), "{verbs:?}");
    let editor = &objects["ClusterRole/kueue-pod-editor-role"]["rules"][0];
    assert_eq!((&editor["apiGroups"], &editor["resources"]), (&json!([""]), &json!(["pods"])));
}

/// Such a pod may not name its queue: its object does.
#[test]
fn no_pod_that_another_object_suspends_is_made_while_no_webhook_answers() {
    for (framework, entries) in [("pod", 2), ("leaderworkerset.x-k8s.io/leaderworkerset", 2)] {
        let config = format!(
            "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations: {{frameworks: [{framework}]}}\n"
        );
        let objects = objects(&[&format!("managerConfig.controllerManagerConfigYaml={config}")]);
        let of_pods = webhooks(&objects);
        let of_pods = of_pods.iter().filter(|webhook| webhook["rules"][0]["resources"] == json!(["pods"]));
        let must: Vec<_> = of_pods.filter(|webhook| webhook["failurePolicy"] == "Fail").collect();
        assert_eq!(must.len(), entries, "{framework}");
        for webhook in must {
            let condition = webhook["matchConditions"][0]["expression"].as_str().unwrap();
            assert!(condition.contains("'kueue.x-k8s.io/pod-suspending-parent' in object"), "{condition}");
        }
    }
}

#[test]
fn where_only_mpijobs_are_managed_the_jobs_of_their_launchers_may_be_changed_too() {
    let config = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                  integrations: {frameworks: [kubeflow.org/mpijob]}\n";
    let objects = objects(&[&format!("managerConfig.controllerManagerConfigYaml={config}")]);
    let rules = objects["ClusterRole/kueue-manager-role"]["rules"].as_array().unwrap();
    let of_jobs = rules.iter().filter(|rule| rule["apiGroups"] == json!(["batch"]));
    let of_jobs: Vec<_> = of_jobs.map(|rule| json!([rule["resources"][0], rule["verbs"]])).collect();
    assert_eq!(
        of_jobs,
        [
            json!(["jobs", ["delete", "list", "watch"]]),
            json!(["jobs", ["get", "patch"]]),
            json!(["jobs/status", ["patch"]]),
        ]
    );
}

#[test]
fn where_only_rayservices_are_managed_their_clusters_may_be_stopped_too() {
    let config = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                  integrations: {frameworks: [ray.io/rayservice]}\n";
    let objects = objects(&[&format!("managerConfig.controllerManagerConfigYaml={config}")]);
    let rules = objects["ClusterRole/kueue-manager-role"]["rules"].as_array().unwrap();
    let of_clusters = rules.iter().filter(|rule| rule["resources"] == json!(["rayclusters"]));
    let verbs: Vec<_> = of_clusters.map(|rule| rule["verbs"].clone()).collect();
    assert_eq!(verbs, [json!(["delete", "list", "watch"]), json!(["get", "patch"])]);
}

#[test]
fn the_webhook_port_and_gates_have_values_of_their_own() {
    let objects = objects(&[
        "webhooks.port=10250",
        "controllerManager.featureGates[0].name=PartialAdmission",
        "controllerManager.featureGates[0].enabled=false",
    ]);
    let text =
        objects["ConfigMap/kueue-manager-config"]["data"]["controller_manager_config.yaml"].as_str().unwrap();
    let config: Value = serde_saphyr::from_str(text).unwrap();
    assert_eq!(config["webhook"]["port"], 10250);
    assert_eq!(config["featureGates"], json!({ "PartialAdmission": false }));
    assert_eq!(config["namespace"], NAMESPACE);
    sluice_api::config::Configuration::parse(text).unwrap();
}

#[test]
fn pods_that_are_not_queued_may_be_changed_only_with_the_gates_for_it() {
    let config = "managerConfig.controllerManagerConfigYaml=apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                  integrations: {frameworks: [batch/job]}\n";
    let rights = |set: &[&str]| -> Vec<Value> {
        let all = objects(&[&[config], set].concat())["ClusterRole/kueue-manager-role"]["rules"]
            .as_array()
            .unwrap()
            .clone();
        let of_pods = |rule: &Value| rule["resources"].to_string().contains("\"pods");
        all.into_iter().filter(of_pods).map(|rule| json!([rule["resources"][0], rule["verbs"]])).collect()
    };
    // Those of a stopped job that its controller leaves running are deleted, of any kind.
    let seen = json!(["pods", ["delete", "list", "watch"]]);
    // Of elastic Jobs, and of pods with a place in a topology: their gate is taken off, and some of the latter are failed.
    let (ungated, failed) = (json!(["pods", ["patch"]]), json!(["pods/status", ["patch"]]));
    assert_eq!(json!(rights(&[])), json!([seen, ungated, failed]));
    let set = |gate: usize, name: &str, on: bool| {
        let gate = format!("controllerManager.featureGates[{gate}]");
        [format!("{gate}.name={name}"), format!("{gate}.enabled={on}")]
    };
    let with = |gates: &[[String; 2]]| {
        let all: Vec<&str> = gates.iter().flatten().map(String::as_str).collect();
        json!(rights(&all))
    };
    let recovery = |on| set(0, "FailureRecoveryPolicy", on);
    assert_eq!(with(&[recovery(true)]), json!([seen, ungated, failed, failed]));
    assert_eq!(with(&[recovery(false)]), json!([seen, ungated, failed]));
    assert_eq!(with(&[set(0, "HotswapSlices", false)]), json!([seen, ungated, failed]));
    let topology = set(1, "TopologyAwareScheduling", false);
    assert_eq!(with(&[recovery(false), topology.clone()]), json!([seen, ungated]));
    let elastic = set(2, "ElasticJobsViaWorkloadSlices", false);
    assert_eq!(with(&[recovery(true), topology, elastic]), json!([seen, failed]));
}

#[test]
fn another_prefix_renames_everything_consistently() {
    let objects = whole(&["nameOverride=sluice"]);
    let stray: Vec<&String> = objects
        .keys()
        .filter(|name| !name.contains("/sluice-"))
        // Their names follow from what they serve.
        .filter(|name| {
            !["CustomResourceDefinition/", "APIService/"].iter().any(|kind| name.starts_with(kind))
        })
        .collect();
    assert!(stray.is_empty(), "{stray:?}");
    let crd = &objects["CustomResourceDefinition/workloads.kueue.x-k8s.io"];
    assert_eq!(
        crd["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["name"],
        "sluice-webhook-service"
    );
    let role = objects["ClusterRole/sluice-manager-role"]["rules"].to_string();
    assert!(role.contains("sluice-mutating-webhook-configuration"), "{role}");
}

#[test]
fn secrets_crds_and_webhook_configurations_are_limited_by_name() {
    let objects = objects(&["enablePrometheus=true"]);
    let limited = [
        "secrets",
        "customresourcedefinitions",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    ];
    let roles = objects
        .iter()
        .filter(|(name, _)| name.starts_with("ClusterRole/kueue-m") || name.starts_with("Role/"));
    let mut seen = 0;
    for (name, role) in roles {
        for rule in role["rules"].as_array().unwrap() {
            let resources = rule["resources"].as_array().cloned().unwrap_or_default();
            assert!(!rule["verbs"].as_array().unwrap().contains(&json!("*")), "{name}: {rule}");
            if resources.iter().any(|resource| limited.contains(&resource.as_str().unwrap())) {
                seen += 1;
                assert!(!rule["resourceNames"].as_array().unwrap().is_empty(), "{name}: {rule}");
                assert_eq!(rule["verbs"], json!(["get", "patch"]), "{name}");
            }
        }
    }
    assert_eq!(seen, 4);
}

#[test]
fn the_pods_are_locked_down() {
    let objects = objects(&[]);
    let pod = &objects["Deployment/kueue-controller-manager"]["spec"]["template"]["spec"];
    assert_eq!(
        pod["securityContext"],
        json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}})
    );
    assert_eq!(
        pod["containers"][0]["securityContext"],
        json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}})
    );
}

#[test]
fn bad_values_are_refused_with_what_is_wrong() {
    let refused = [
        ("controllerManager.replica=3", "additional properties 'replica' not allowed"),
        ("controllerManager.replicas=-1", "minimum"),
        ("controllerManager.replicas=0", "needs webhooks.urlBase"),
        (
            "controllerManager.replicas=0,webhooks.urlBase=https://127.0.0.1:9443",
            "needs visibility.externalName, the host of the manager, or visibility.apiServices: false",
        ),
        ("controllerManager.terminationGracePeriodSeconds=5", "minimum"),
        ("controllerManager.manager.image.digest=latest", "digest"),
        ("controllerManager.featureGates[0].name=X", "missing property 'enabled'"),
        ("webhooks.urlBase=http://example.org", "urlBase"),
        ("webhooks.port=70000", "maximum"),
        ("webhooks.timeoutSeconds=60", "maximum"),
        ("mutatingWebhook.reinvocationPolicy=Always", "reinvocationPolicy"),
        ("managerConfig.controllerManagerConfigYaml=kind: Pod", "must be of kind Configuration"),
        ("managerConfig.controllerManagerConfigYaml=a: [", "is not YAML"),
        ("enableCertManager=true", "makes and rotates its own certificates"),
        ("enableKueueViz=true", "set dashboard.enabled"),
        ("nameOverride=Upper", "nameOverride"),
        ("controllerManager.manager.image.repository=registry.k8s.io/kueue/kueue", "is the image of Kueue"),
        ("controllerManager.manager.image.repository=gcr.io/k8s-staging-kueue/kueue", "Name Sluice's"),
        ("webhookService.ports[0].port=8443", "webhookService.ports supports only port 443"),
        ("metricsService.ports[0].port=443", "metricsService.ports supports only port 8443"),
        ("metrics.prometheusRule.freeQuotaPercent=0", "minimum"),
        (
            "managerConfig.controllerManagerConfigYaml=kind: Configuration\ninternalCertManagement: {webhookServiceName: sluice-webhook-service}",
            "kueue-webhook-service, by whose name the manager finds its webhooks: leave it out. For names with another prefix, set fullnameOverride",
        ),
        (
            "managerConfig.controllerManagerConfigYaml=kind: Configuration\nnamespace: elsewhere",
            "is not that of the release",
        ),
        (
            "managerConfig.controllerManagerConfigYaml=kind: Configuration\nhealth: {healthProbeBindAddress: \"0\"}",
            "the probes of the Deployment ask there",
        ),
        (
            "managerConfig.controllerManagerConfigYaml=kind: Configuration\nleaderElection: {leaderElect: false}",
            "would give the same quota twice",
        ),
    ];
    for (value, says) in refused {
        let error = render(&[value]).expect_err(value);
        assert!(error.contains(says), "{value}: {error}");
    }
}

/// The values of Kueue's chart as it comes.
const KUEUES_VALUES: &str = "@tests/data/kueue-values.yaml";
const IMAGE: [&str; 2] = [
    "controllerManager.manager.image.repository=registry.example/sluice",
    "controllerManager.manager.image.tag=",
];

#[test]
fn the_values_of_kueues_chart_are_accepted_as_they_are_but_for_the_image() {
    let refused = render(&[KUEUES_VALUES]).unwrap_err();
    let reported = "us-central1-docker.pkg.dev/k8s-staging-images/kueue/kueue is the image of Kueue";
    assert!(refused.contains(reported) && refused.contains("`make image`"), "{refused}");
    let objects = whole(&[KUEUES_VALUES, IMAGE[0], IMAGE[1]]);
    assert!(!objects.contains_key("PodDisruptionBudget/kueue-controller-manager"));
    let deployment = &objects["Deployment/kueue-controller-manager"]["spec"];
    assert_eq!(deployment["template"]["spec"]["containers"][0]["image"], "registry.example/sluice:0.1.0");
    assert!(!objects.keys().any(|name| name.contains("kueueviz")));
    let text =
        objects["ConfigMap/kueue-manager-config"]["data"]["controller_manager_config.yaml"].as_str().unwrap();
    sluice_api::config::Configuration::parse(text).unwrap();
    for viz in ["enableKueueViz=true", "enableCertManager=true"] {
        assert!(render(&[KUEUES_VALUES, IMAGE[0], viz]).is_err(), "{viz}");
    }
}

#[test]
fn the_chart_knows_the_gates_that_the_manager_knows() {
    use sluice_api::gates::{Gate, REMOVED};

    let known = include_str!("../../../charts/sluice/files/feature-gates.txt").lines();
    let mut gates: Vec<_> = Gate::ALL.iter().map(|gate| gate.name()).chain(REMOVED.iter().copied()).collect();
    gates.sort_unstable();
    assert_eq!(known.collect::<Vec<_>>(), gates);
    let set = |name: &str| {
        let name = format!("controllerManager.featureGates[0].name={name}");
        render(&[&name, "controllerManager.featureGates[0].enabled=true"])
    };
    let configured = |name: &str| {
        let text = format!(
            "managerConfig.controllerManagerConfigYaml=apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
             featureGates: {{{name}: true}}\n"
        );
        render(&[&text])
    };
    for name in ["PartialAdmission", "LocalQueueDefaulting", "AllAlpha", "AllBeta"] {
        let both = [set(name), configured(name)];
        assert!(both.iter().all(Result::is_ok), "{name}: {both:?}");
    }
    for refused in [set("PartialAdmision"), configured("PartialAdmision")] {
        let why = refused.unwrap_err();
        assert!(why.contains("there is no feature gate \"PartialAdmision\""), "{why}");
    }
}

#[test]
fn alert_rules_and_the_dashboard_come_when_they_are_asked_for() {
    let plain = objects(&[]);
    assert!(!plain.keys().any(|name| name.starts_with("PrometheusRule/") || name.ends_with("-dashboard")));
    let asked = objects(&[
        "metrics.prometheusRule.enabled=true",
        "metrics.prometheusRule.labels.release=prometheus",
        "metrics.prometheusRule.pendingAgeSeconds=60",
        "metrics.prometheusRule.freeQuotaPercent=25",
        "metrics.grafanaDashboard.enabled=true",
    ]);
    let rules = &asked["PrometheusRule/kueue-alerts"];
    assert_eq!(rules["metadata"]["labels"]["release"], "prometheus");
    let alerts = rules["spec"]["groups"][0]["rules"].as_array().unwrap();
    let names: Vec<_> = alerts.iter().map(|alert| alert["alert"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "SluiceNothingAdmitted",
            "SluiceWorkloadsWaitLong",
            "SluiceLeaderMissing",
            "SluiceWebhookFailing",
            "SluiceQuotaExceeded",
            "SluiceCohortQuotaExceeded"
        ]
    );
    assert!(alerts[0]["expr"].as_str().unwrap().trim_end().ends_with(">= 25 / 100"));
    assert_eq!(alerts[1]["for"], "60s");
    let board = asked["ConfigMap/kueue-dashboard"]["data"]["sluice.json"].as_str().unwrap();
    let board: Value = serde_json::from_str(board).unwrap();
    assert!(board["panels"].as_array().unwrap().len() >= 8);
    assert_eq!(asked["ConfigMap/kueue-dashboard"]["metadata"]["labels"]["grafana_dashboard"], "1");
}
