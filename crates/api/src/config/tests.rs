//! Tests of the configuration file.

use std::fmt::Write as _;

use super::*;
use crate::gates::{GateWarning, Gates};

/// Every field of v1beta2 at its default, as Kueue would print it.
const FULL_V1BETA2: &str = include_str!("../../tests/data/config/v1beta2.yaml");

/// The fields of v1beta1 at their defaults, with many frameworks, as Kueue's users have it.
const FULL_V1BETA1: &str = include_str!("../../tests/data/config/v1beta1.yaml");

fn environment() -> Environment {
    Environment { certificate_folder: "/certs".to_owned(), ..Environment::default() }
}

fn parse(text: &str) -> Result<(Configuration, Vec<Warning>), ConfigErrors> {
    Configuration::parse_in(text, &environment())
}

/// A v1beta2 file with these fields.
fn v1beta2(fields: &str) -> Result<(Configuration, Vec<Warning>), ConfigErrors> {
    parse(&format!("apiVersion: {GROUP}/v1beta2\nkind: Configuration\n{fields}\n"))
}

fn v1beta1(fields: &str) -> Result<(Configuration, Vec<Warning>), ConfigErrors> {
    parse(&format!("apiVersion: {GROUP}/v1beta1\nkind: Configuration\n{fields}\n"))
}

fn texts(warnings: &[Warning]) -> Vec<String> {
    let gate = |warning: &&Warning| !matches!(warning, Warning::Gate(GateWarning::NotBuilt(_)));
    warnings.iter().filter(gate).map(ToString::to_string).collect()
}

#[test]
fn a_fully_defaulted_v1beta2_file_is_the_default() {
    let (configuration, warnings) = parse(FULL_V1BETA2).unwrap();
    let (mut expected, _) = Configuration::defaults_in(&environment()).unwrap();
    expected.controller = configuration.controller.clone();
    assert!(expected.client_connection.qps < 0.0, "no limit without a setting");
    expected.client_connection = ClientConnection { qps: 300.0, burst: 500 };
    assert_eq!(configuration, expected);
    assert_eq!(
        texts(&warnings),
        [
            "controller.groupKindConcurrency has no effect: Sluice decides on one thread and writes from one pool"
        ]
    );
}

#[test]
fn a_fully_defaulted_v1beta1_file_is_accepted_and_says_what_it_cannot_do() {
    let (configuration, warnings) = parse(FULL_V1BETA1).unwrap();
    assert_eq!(configuration.wait_for_pods_ready, None);
    assert_eq!(configuration.fair_sharing, None);
    let kinds: Vec<_> = configuration.job_kinds().iter().map(|kind| kind.kind()).collect();
    let built = ["Job", "JobSet", "MPIJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob"];
    assert_eq!(kinds, [&built[..], &["RayCluster", "RayJob"]].concat(), "all that it lists");
    assert_eq!(configuration.client_connection, ClientConnection { qps: 50.0, burst: 100 });
    insta::assert_snapshot!(texts(&warnings).join("\n"));
}

#[test]
fn the_effective_configuration_is_a_snapshot() {
    let (configuration, _) = Configuration::defaults_in(&environment()).unwrap();
    insta::assert_snapshot!(configuration.effective_yaml());
}

#[test]
fn the_effective_configuration_reads_back_as_itself() {
    let everything = "
manageJobsWithoutQueueName: true
namespace: sluice
tls: {minVersion: VersionTLS12, cipherSuites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256], curvePreferences: [CurveP256, X25519]}
integrations: {frameworks: [jobset.x-k8s.io/jobset, batch/job], labelKeysToCopy: [team]}
fairSharing: {preemptionStrategies: [LessThanInitialShare]}
admissionFairSharing: {usageHalfLifeTime: 1h30m, usageSamplingInterval: 10s, resourceWeights: {cpu: 0.5}}
metrics: {localQueueMetrics: {enable: false, localQueueSelector: {matchLabels: {team: a}}}}
resources:
  quotaCheckStrategy: IgnoreUndeclared
  transformations:
  - {input: nvidia.com/mig-4g.5gb, strategy: Replace, multiplyBy: cpu, outputs: {example.com/memory: 5Gi, example.com/gpc: 4}}
objectRetentionPolicies: {workloads: {afterFinished: 0s}}
waitForPodsReady: {timeout: 1m, recoveryTimeout: 0s, requeuingStrategy: {timestamp: Creation, backoffLimitCount: 3}}
featureGates: {PriorityBoost: true, PartialAdmission: false}";
    for text in [v1beta2("").unwrap().0, v1beta2(everything).unwrap().0, parse(FULL_V1BETA1).unwrap().0] {
        let yaml = text.effective_yaml();
        let (again, _) = parse(&yaml).unwrap_or_else(|errors| panic!("{errors}\n{yaml}"));
        assert_eq!(again.effective_yaml(), yaml);
        assert_eq!(again.wait_for_pods_ready, text.wait_for_pods_ready);
        assert_eq!(again.resources, text.resources);
        assert_eq!(again.admission_fair_sharing, text.admission_fair_sharing);
    }
}

#[test]
fn waiting_for_pods_is_on_by_default_in_v1beta2_only() {
    let default = v1beta2("").unwrap().0.wait_for_pods_ready.unwrap();
    assert_eq!(default.timeout, Duration::from_secs(1800));
    assert_eq!(default.recovery_timeout, default.timeout);
    assert!(!default.block_admission);
    assert_eq!(v1beta1("").unwrap().0.wait_for_pods_ready, None);
    let old = v1beta1("waitForPodsReady: {enable: true}").unwrap().0.wait_for_pods_ready.unwrap();
    assert_eq!((old.timeout, old.block_admission), (Duration::from_secs(300), true));
    let gated = v1beta2("featureGates: {DisableWaitForPodsReady: true}").unwrap().0;
    assert_eq!(gated.wait_for_pods_ready, None);
    let unlimited = v1beta2("waitForPodsReady: {timeout: 1m, recoveryTimeout: 0s}").unwrap().0;
    assert_eq!(unlimited.wait_for_pods_ready.unwrap().recovery_timeout, Duration::ZERO);
}

#[test]
fn waiting_for_caches_is_limited_only_by_a_time_above_zero() {
    let limit = |fields| v1beta2(fields).unwrap().0.controller.cache_sync_timeout();
    assert_eq!(limit(""), None);
    assert_eq!(limit("controller: {cacheSyncTimeout: 0}"), None);
    let set = limit("controller: {cacheSyncTimeout: 120000000000}");
    assert_eq!(set, Some(std::time::Duration::from_mins(2)));
}

#[test]
fn fair_sharing_of_v1beta1_has_both_strategies_by_default() {
    let old = v1beta1("fairSharing: {enable: true}").unwrap().0.fair_sharing.unwrap();
    assert_eq!(
        old.preemption_strategies,
        [PreemptionStrategy::LessThanOrEqualToFinalShare, PreemptionStrategy::LessThanInitialShare]
    );
}

#[test]
fn the_flag_sets_gates_and_excludes_the_file_s() {
    let flag = |flag: &str, text: &str| {
        let environment = Environment { feature_gates: Some(flag.to_owned()), ..environment() };
        Configuration::parse_in(
            &format!("apiVersion: {GROUP}/v1beta2\nkind: Configuration\n{text}"),
            &environment,
        )
    };
    let gates = flag("PriorityBoost=true", "").unwrap().0.gates;
    assert_eq!(gates, Gates::default().with(Gate::PriorityBoost, true));
    let both = flag("PriorityBoost=true", "featureGates: {PriorityBoost: true}").unwrap_err();
    assert_eq!(
        both.to_string(),
        "featureGates: feature gates for CLI and configuration cannot both specified"
    );
    assert_eq!(
        flag("Bogus=1", "").unwrap_err().to_string(),
        "--feature-gates: unrecognized feature gate: Bogus"
    );
}

/// Each row: what is wrong, and the fields that have it.
const MISTAKES: &[(&str, &str)] = &[
    ("unknown field", "webhok: {}"),
    ("unknown nested field", "waitForPodsReady: {enable: true}"),
    ("v1beta1 fields", "queueVisibility: {}\nintegrations: {podOptions: {}}\nfairSharing: {enable: true}"),
    ("wrong types", "webhook: {port: 70000, host: 5}\nmetrics: 7\nmanageJobsWithoutQueueName: \"yes\""),
    (
        "durations",
        "leaderElection: {leaseDuration: 15}\nwaitForPodsReady: {timeout: -5m, recoveryTimeout: soon}",
    ),
    (
        "lease times",
        "leaderElection: {leaseDuration: 5s, renewDeadline: 6s, retryPeriod: 7s, resourceLock: endpoints}",
    ),
    (
        "requeuing",
        "waitForPodsReady: {requeuingStrategy: {timestamp: Never, backoffLimitCount: -1, backoffBaseSeconds: -1}}",
    ),
    ("frameworks", "integrations: {frameworks: [batch/jobs, batch/job, batch/job]}"),
    ("a framework whose gate is off", "integrations: {frameworks: [sparkoperator.k8s.io/sparkapplication]}"),
    (
        "external frameworks",
        "integrations: {externalFrameworks: [Foo, Foo.v1.example.com, Foo.v1.example.com, Job.v1.batch, Job.v2.batch, Foo.v1.a/b]}",
    ),
    ("label keys", "integrations: {labelKeysToCopy: [\"a b\", ok]}"),
    ("selector matches a system namespace", "managedJobsNamespaceSelector: {}"),
    (
        "selector syntax",
        "managedJobsNamespaceSelector: {matchExpressions: [{key: a, operator: Is}, {operator: In}]}",
    ),
    ("fair sharing without strategies", "fairSharing: {}"),
    (
        "fair sharing in a wrong order",
        "fairSharing: {preemptionStrategies: [LessThanInitialShare, LessThanOrEqualToFinalShare]}",
    ),
    (
        "admission fair sharing",
        "admissionFairSharing: {usageHalfLifeTime: -1s, resourceWeights: {cpu: -1, memory: x}}",
    ),
    (
        "transformations",
        "resources: {transformations: [{input: a}, {input: a}, {strategy: Keep, outputs: {b: -1, c: x}}]}",
    ),
    (
        "undeclared with prefixes",
        "resources: {quotaCheckStrategy: IgnoreUndeclared, excludeResourcePrefixes: [x]}",
    ),
    (
        "device classes",
        "resources: {deviceClassMappings: [{name: gpu, deviceClassNames: [gpu.example.com]}]}",
    ),
    (
        "MultiKueue",
        "multiKueue: {gcInterval: 5m, origin: x, dispatcherName: y, incrementalDispatcherConfig: {stepSize: 5}, externalFrameworks: [{name: a.v1.b}]}",
    ),
    ("profiling", "pprofBindAddress: \":8083\""),
    (
        "TLS",
        "tls: {minVersion: VersionTLS13, cipherSuites: [TLS_RSA_WITH_AES_128_CBC_SHA], curvePreferences: [CurveP521]}",
    ),
    ("TLS version", "tls: {minVersion: TLS12}"),
    (
        "custom labels",
        "featureGates: {CustomMetricLabels: true}\nmetrics: {customLabels: [{name: 1a, sourceLabelKey: a, sourceAnnotationKey: b}, {name: w, sourceKind: Workload}, {name: w, sourceKind: Workload, trackedValues: [a]}, {name: x, sourceKind: Workload, trackedValues: [a]}, {name: w, sourceLabelKey: a b}, {name: two, trackedValues: [a, a]}, {name: many, sourceKind: Workload, trackedValues: [a, b, c, d, e, f, g, h, i, j, k, l, m]}]}",
    ),
    ("gates", "featureGates: {Bogus: true, PartialAdmission: maybe, TLSOptions: false}"),
    ("concurrency", "controller: {groupKindConcurrency: {Pod: 0}, cacheSyncTimeout: -1}"),
    (
        "selector of LocalQueues",
        "metrics: {localQueueMetrics: {localQueueSelector: {matchExpressions: [{key: a, operator: In}]}}}",
    ),
    ("endpoints that are one", "health: {readinessEndpointName: /ok, livenessEndpointName: ok}"),
    (
        "endpoints that are taken or odd",
        "health: {readinessEndpointName: debug/state, livenessEndpointName: \"{a}\"}",
    ),
    (
        "servers on one port",
        "health: {healthProbeBindAddress: \":9443\"}\nmetrics: {bindAddress: \"127.0.0.1:9443\"}\nwebhook: {port: 9443}",
    ),
    (
        "names in addresses",
        "leaderElection: {resourceName: \"a/?\", resourceNamespace: \"../b\", leaseDuration: 100h}\ninternalCertManagement: {webhookServiceName: \"a b\", webhookSecretName: A}",
    ),
    ("rates beyond sense", "clientConnection: {qps: 1.0e+308, burst: 2000000}"),
    ("rates below sense", "clientConnection: {qps: 1.0e-308}"),
    ("retention", "objectRetentionPolicies: {workloads: {afterFinished: -1s, afterwards: 1s}}"),
];

#[test]
fn rates_that_nothing_can_keep_are_refused() {
    for qps in ["1.0e+30", "1000000.5"] {
        let error = v1beta2(&format!("clientConnection: {{qps: {qps}}}")).unwrap_err().to_string();
        assert!(error.contains("clientConnection.qps"), "{qps}: {error}");
    }
    for qps in [".inf", ".nan"] {
        let error = v1beta2(&format!("clientConnection: {{qps: {qps}}}")).unwrap_err().to_string();
        assert!(error.contains("qps") && error.contains("non-finite"), "{qps}: {error}");
    }
}

#[test]
fn every_mistake_is_named_with_its_path() {
    let mut text = String::new();
    for (what, fields) in MISTAKES {
        let errors = v1beta2(fields).expect_err(what);
        writeln!(text, "# {what}\n{errors}\n").unwrap();
    }
    insta::assert_snapshot!(text);
}

/// People who come from Kueue find there what they have to leave out.
#[test]
fn what_kueue_accepts_and_sluice_refuses_is_on_the_page_about_coming_from_it() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tasks/from-kueue.md");
    let page = std::fs::read_to_string(page).unwrap();
    let refused = MISTAKES.iter().map(|(what, fields)| v1beta2(fields).expect_err(what).to_string());
    let refused: Vec<_> =
        refused.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    let ours =
        ["not built", "not offered by Sluice", "must be at most", "must be between", "values: \"leases\""];
    let mut fields = 0;
    for line in refused.iter().filter(|line| ours.iter().any(|words| line.contains(words))) {
        let field = line.split([':', '[']).next().unwrap();
        let section = field.split('.').next().unwrap();
        let burst = field == "clientConnection.burst";
        let named = [field, section].iter().any(|name| page.contains(&format!("`{name}`")));
        assert!(named || burst && page.contains("`clientConnection.qps` or `burst`"), "{line}");
        fields += 1;
    }
    assert!(fields >= 10, "{refused:?}");
}

/// Kueue's Configuration as its chart has it.
const KUEUES_DEFAULT: &str = include_str!("../../tests/data/config/kueue-default.yaml");

#[test]
fn kueues_default_configuration_is_accepted_as_it_is() {
    let (file, _) = parse(KUEUES_DEFAULT).unwrap();
    let kinds: Vec<_> = file.job_kinds().iter().map(|kind| kind.framework()).collect();
    let extensions = [JobKind::RAY_SERVICE, JobKind::SPARK_APPLICATION];
    let built = JobKind::ALL.into_iter().filter(|kind| !extensions.contains(kind));
    let built: Vec<_> = built.map(JobKind::framework).collect();
    assert_eq!(kinds, built, "Kueue's list has all that are built but extensions");
}

#[test]
fn a_framework_behind_a_gate_is_served_where_that_is_on() {
    let spark = "integrations: {frameworks: [sparkoperator.k8s.io/sparkapplication]}\n";
    let on = v1beta2(&format!("{spark}featureGates: {{SparkApplicationIntegration: true}}")).unwrap().0;
    assert_eq!(Vec::from_iter(on.job_kinds()), [JobKind::SPARK_APPLICATION]);
    let off = v1beta2(&format!("{spark}featureGates: {{SparkApplicationIntegration: false}}")).unwrap_err();
    assert!(off.to_string().contains("it needs the feature gate SparkApplicationIntegration"), "{off}");
}

#[test]
fn a_kind_that_suspends_its_pods_implies_them_and_them_alone() {
    let read = |list: &str| v1beta2(&format!("integrations: {{frameworks: [{list}]}}")).unwrap().0;
    for (list, kinds, implied) in [
        ("batch/job", vec![JobKind::JOB], false),
        ("pod", vec![JobKind::POD], false),
        ("deployment", vec![JobKind::DEPLOYMENT, JobKind::POD], true),
        ("statefulset", vec![JobKind::POD, JobKind::STATEFUL_SET], true),
        ("leaderworkerset.x-k8s.io/leaderworkerset", vec![JobKind::LEADER_WORKER_SET, JobKind::POD], true),
        ("deployment, pod", vec![JobKind::DEPLOYMENT, JobKind::POD], false),
    ] {
        let file = read(list);
        assert_eq!((file.job_kinds(), file.integrations.implies_pods()), (kinds, implied), "{list}");
    }
}

#[test]
fn custom_labels_are_bounded_in_number_name_and_value() {
    let file = |entries: &[String]| {
        let entries = entries.join(", ");
        let text =
            format!("featureGates: {{CustomMetricLabels: true}}\nmetrics: {{customLabels: [{entries}]}}");
        v1beta2(&text).map(|(file, _)| file.metrics.custom_labels.len()).map_err(|errors| errors.to_string())
    };
    let of = |kind: &str, from: usize, count: usize| -> Vec<String> {
        (from..from + count)
            .map(|n| format!("{{name: l{n}, sourceKind: {kind}, trackedValues: [a]}}"))
            .collect()
    };
    let full = [of("ClusterQueue", 0, 6), of("LocalQueue", 6, 6), of("Cohort", 12, 6), of("Workload", 18, 2)];
    assert_eq!(file(&full.concat()), Ok(20));
    let more = [full.concat(), of("ClusterQueue", 20, 1)].concat();
    let refused = file(&more).unwrap_err();
    assert!(refused.contains("metrics.customLabels: too many: 21: must have at most 20 items"), "{refused}");
    let kind = "too many custom labels for source kind ClusterQueue: found 7, expected <= 6";
    assert!(refused.contains(kind), "{refused}");
    let name = |length: usize| file(&[format!("{{name: {}, sourceLabelKey: a}}", "n".repeat(length))]);
    assert_eq!(name(63), Ok(1));
    assert!(name(64).unwrap_err().contains("metrics.customLabels[0].name: must be no more than 63 bytes"));
    let value = |length: usize| file(&[format!("{{name: a, trackedValues: [{}]}}", "v".repeat(length))]);
    assert_eq!(value(253), Ok(1));
    assert!(value(254).unwrap_err().contains("metrics.customLabels[0].trackedValues: a value must be"));
}

#[test]
fn custom_labels_without_their_gate_are_accepted_and_named_in_a_warning() {
    let (file, warnings) = v1beta2("metrics: {customLabels: [{name: team}]}").unwrap();
    assert_eq!(file.metrics.custom_labels.len(), 1);
    let said = "metrics.customLabels has no effect: feature gate CustomMetricLabels is off";
    assert!(texts(&warnings).iter().any(|text| text == said), "{warnings:?}");
    let (_, warnings) =
        v1beta2("featureGates: {CustomMetricLabels: true}\nmetrics: {customLabels: [{name: team}]}").unwrap();
    assert!(texts(&warnings).iter().all(|text| !text.contains("ustom")), "{warnings:?}");
}

#[test]
fn fields_of_v1beta2_are_unknown_in_v1beta1() {
    let errors = v1beta1(
        "visibilityServer: {}\nmultiKueue: {clusterProfile: {}, incrementalDispatcherConfig: {}}\n\
         resources: {quotaCheckStrategy: BlockUndeclared}",
    )
    .unwrap_err();
    let mut paths: Vec<_> = errors.0.iter().map(|error| error.path.as_str()).collect();
    paths.sort_unstable();
    assert_eq!(
        paths,
        [
            "multiKueue.clusterProfile",
            "multiKueue.incrementalDispatcherConfig",
            "resources.quotaCheckStrategy",
            "visibilityServer"
        ]
    );
}

#[test]
fn files_of_other_kinds_and_broken_files_are_refused() {
    for (text, expected) in [
        ("[]", "expected an object, found a list"),
        ("apiVersion: config.kueue.x-k8s.io/v1\nkind: Configuration", "apiVersion: expected"),
        ("apiVersion: v1\nkind: Configuration", "apiVersion: expected"),
        (
            "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Config",
            "kind: expected \"Configuration\", found \"Config\"",
        ),
        ("a: [", "not valid YAML"),
        ("a: 1\na: 2", "not valid YAML"),
    ] {
        let errors = parse(text).unwrap_err().to_string();
        assert!(errors.contains(expected), "{text}: {errors}");
    }
    assert!(parse(&"#".repeat(MAX_BYTES + 1)).unwrap_err().to_string().contains("larger"));
}

#[test]
fn a_file_that_grows_when_it_is_read_is_refused() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..20 {
        let inner = format!("*a{}", level - 1);
        writeln!(bomb, "a{level}: &a{level} [{}]", [inner.as_str(); 9].join(", ")).unwrap();
    }
    assert!(parse(&bomb).unwrap_err().to_string().starts_with("not valid YAML: "));
}

#[test]
fn a_strategy_for_undeclared_resources_is_ignored_while_its_gate_is_off() {
    let (_, warnings) = v1beta2(
        "resources: {quotaCheckStrategy: IgnoreUndeclared, excludeResourcePrefixes: [x]}\n\
         featureGates: {QuotaCheckStrategy: false}",
    )
    .unwrap();
    assert_eq!(
        texts(&warnings),
        ["resources.quotaCheckStrategy has no effect: the feature gate QuotaCheckStrategy is off"]
    );
}

#[test]
fn what_is_not_built_is_warned_of() {
    let (_, warnings) = v1beta2(
        "tls: {minVersion: VersionTLS10}\nfeatureGates: {LendingLimit: true}\nclientConnection: {burst: 9}",
    )
    .unwrap();
    insta::assert_snapshot!(texts(&warnings).join("\n"));
    assert!(warnings.iter().any(|warning| matches!(warning, Warning::Gate(GateWarning::NotBuilt(_)))));
}

#[test]
fn kinds_that_others_manage_are_those_that_are_not_served_each_in_the_version_that_comes_first() {
    let (file, _) = v1beta2(
        "integrations: {externalFrameworks: [B.v2.external.example.com, B.v1.external.example.com, Job.v2.batch, \
         JobSet.v1alpha2.jobset.x-k8s.io]}",
    )
    .unwrap();
    let kinds: Vec<_> = file.external_kinds().iter().map(|kind| (kind.kind(), kind.version())).collect();
    assert_eq!(kinds, [("B", "v2"), ("JobSet", "v1alpha2")], "jobs are served");
    assert_eq!(file.job_kinds(), [JobKind::JOB]);
}

#[test]
fn a_kind_that_others_manage_is_not_queued_too_under_a_name_in_other_case() {
    let refused = |fields: &str| v1beta2(&format!("integrations: {{{fields}}}")).unwrap_err().to_string();
    let built_in = refused("externalFrameworks: [JOB.v1.batch]");
    assert!(built_in.contains("\"JOB.v1.batch\": integrations.frameworks lists \"batch/job\""), "{built_in}");
    let declared = refused(
        "externalFrameworks: [Errand.v1.external.example.com], declared: [{group: external.example.com, \
         version: v1, kind: ERRAND, podSets: [{name: a, template: spec.t}], active: \"true\"}]",
    );
    let why = "\"Errand.v1.external.example.com\": integrations.declared has this kind";
    assert!(declared.contains(why), "{declared}");
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in ".{0,200}") {
        let _ = parse(&text);
    }

    #[test]
    fn no_value_of_a_field_makes_it_panic(
        field in proptest::sample::select(vec!["webhook", "metrics", "waitForPodsReady", "integrations", "resources"]),
        value in "[-{}\\[\\]a-z0-9:, \"]{0,40}",
    ) {
        let _ = v1beta2(&format!("{field}: {value}"));
    }
}

#[test]
fn what_counts_as_a_failing_node_is_a_section_of_ours() {
    let (plain, _) = v1beta2("").unwrap();
    assert_eq!(plain.hotswap, Hotswap::default());
    assert!(!serde_json::to_string(&plain).unwrap().contains("hotswap"));
    let text = "hotswap: {notReadyAfter: 1m, maxUnhealthyPercent: 20, departingLabels: {x: z}, departingTaints: [going], \
                maintenanceTimeLabel: when}";
    let (asked, _) = v1beta2(text).unwrap();
    assert_eq!(asked.hotswap.not_ready_after, Duration::from_secs(60));
    assert_eq!(asked.hotswap.max_unhealthy_percent, 20);
    assert_eq!(asked.hotswap.departing_labels["x"], "z");
    assert_eq!(asked.hotswap.departing_taints, ["going"]);
    assert_eq!(asked.hotswap.maintenance_time_label, "when");
    for wrong in ["maxUnhealthyPercent: 101", "notReadyAfter: -1s", "departingTaints: {}", "unknown: 1"] {
        assert!(v1beta2(&format!("hotswap: {{{wrong}}}")).is_err(), "{wrong}");
    }
}

#[test]
fn the_older_annotations_are_a_field_of_ours() {
    let (plain, _) = v1beta2("").unwrap();
    assert!(!plain.provisioning_requests.old_pod_annotations);
    let (asked, warnings) = v1beta2("provisioningRequests: {oldPodAnnotations: true}").unwrap();
    assert!(asked.provisioning_requests.old_pod_annotations);
    assert!(!warnings.iter().any(|w| w.to_string().contains("provisioningRequests")));
    assert!(v1beta2("provisioningRequests: {annotations: true}").is_err());
}
