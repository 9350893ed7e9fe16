//! The sections with rules of their own (docs/reference/01-api.md 1.12).

use std::collections::BTreeSet;

use serde_json::Value;
use sluice_quantity::Quantity;

use super::environment::FileVersion;
use super::reader::{Reader, at_least, field, not_negative};
use super::types::{
    AdmissionFairSharing, CustomLabel, FairSharing, Integrations, LocalQueueMetrics, Metrics, MultiKueue,
    PodOptions, PreemptionStrategy, QuotaCheckStrategy, RequeuingStrategy, RequeuingTimestamp, Resources,
    SourceKind, Transformation, TransformationStrategy, WaitForPodsReady,
};
use super::{Duration, selector};
use crate::gates::{Gate, Gates};
use crate::labels;

pub(super) fn metrics(mut reader: Option<Reader<'_>>) -> Metrics {
    let reader = &mut reader;
    let mut queues = field(reader, |r| r.object("localQueueMetrics"));
    let queues = &mut queues;
    Metrics {
        bind_address: field(reader, |r| r.string("bindAddress"))
            .filter(|address| !address.is_empty())
            .unwrap_or_else(|| ":8443".to_owned()),
        enable_cluster_queue_resources: field(reader, |r| r.bool("enableClusterQueueResources"))
            .unwrap_or(false),
        custom_labels: field(reader, |r| r.objects("customLabels"))
            .unwrap_or_default()
            .into_iter()
            .map(custom_label)
            .collect(),
        local_queue_metrics: LocalQueueMetrics {
            enable: field(queues, |r| r.bool("enable")).unwrap_or(true),
            local_queue_selector: field(queues, |r| r.object("localQueueSelector")).map(selector::read),
        },
    }
}

fn custom_label(mut reader: Reader<'_>) -> CustomLabel {
    let kinds = [
        ("Cohort", SourceKind::Cohort),
        ("LocalQueue", SourceKind::LocalQueue),
        ("ClusterQueue", SourceKind::ClusterQueue),
        ("Workload", SourceKind::Workload),
    ];
    CustomLabel {
        name: reader.string("name").unwrap_or_default(),
        source_label_key: reader.string("sourceLabelKey").filter(|key| !key.is_empty()),
        source_annotation_key: reader.string("sourceAnnotationKey").filter(|key| !key.is_empty()),
        source_kind: reader.one_of("sourceKind", &kinds).unwrap_or_default(),
        tracked_values: reader.strings("trackedValues").unwrap_or_default(),
    }
}

/// v1beta2 waits for pods even if the section is absent; v1beta1 only with `enable: true` (docs/reference/10-traps.md 11).
pub(super) fn wait_for_pods_ready(
    file: &mut Reader<'_>,
    version: FileVersion,
    gates: Gates,
) -> Option<WaitForPodsReady> {
    let mut section = file.object("waitForPodsReady");
    let section = &mut section;
    let old = version == FileVersion::V1beta1;
    let enabled = !old || field(section, |r| r.bool("enable")).unwrap_or(false);
    let timeout = field(section, |r| not_negative(r, "timeout")).filter(|timeout| *timeout != Duration::ZERO);
    let timeout = timeout.unwrap_or(Duration::from_secs(if old { 5 * 60 } else { 30 * 60 }));
    let recovery = field(section, |r| not_negative(r, "recoveryTimeout"));
    let mut strategy = field(section, |r| r.object("requeuingStrategy"));
    let strategy = &mut strategy;
    let timestamps = [("Creation", RequeuingTimestamp::Creation), ("Eviction", RequeuingTimestamp::Eviction)];
    let settings = WaitForPodsReady {
        timeout,
        block_admission: field(section, |r| r.bool("blockAdmission")).unwrap_or(old),
        recovery_timeout: recovery.unwrap_or(timeout),
        requeuing_strategy: RequeuingStrategy {
            timestamp: field(strategy, |r| r.one_of("timestamp", &timestamps))
                .unwrap_or(RequeuingTimestamp::Eviction),
            backoff_limit_count: field(strategy, |r| at_least(r, "backoffLimitCount", 0)),
            backoff_base_seconds: field(strategy, |r| at_least(r, "backoffBaseSeconds", 0)).unwrap_or(60),
            backoff_max_seconds: field(strategy, |r| at_least(r, "backoffMaxSeconds", 0)).unwrap_or(3600),
        },
    };
    (enabled && !gates.enabled(Gate::DisableWaitForPodsReady)).then_some(settings)
}

pub(super) fn integrations(mut reader: Option<Reader<'_>>) -> Integrations {
    let reader = &mut reader;
    let mut pod_options = PodOptions::default();
    // This includes files of the newer version, which has no such field: an older file is printed as a newer one.
    if let Some(mut options) = field(reader, |r| r.object("podOptions")) {
        pod_options.namespace_selector = options.object("namespaceSelector").map(selector::read);
        pod_options.pod_selector = options.object("podSelector").map(selector::read);
    }
    let frameworks = field(reader, |r| r.strings("frameworks")).unwrap_or_default();
    Integrations {
        frameworks: if frameworks.is_empty() { vec!["batch/job".to_owned()] } else { frameworks },
        external_frameworks: field(reader, |r| r.strings("externalFrameworks")).unwrap_or_default(),
        label_keys_to_copy: field(reader, |r| r.strings("labelKeysToCopy")).unwrap_or_default(),
        pod_options,
        declared: field(reader, super::declared::declared).unwrap_or_default(),
    }
}

pub(super) fn multi_kueue(mut reader: Option<Reader<'_>>, version: FileVersion) -> MultiKueue {
    let reader = &mut reader;
    let (mut step_size, mut providers) = (None, false);
    if version == FileVersion::V1beta2 {
        let mut step = field(reader, |r| r.object("incrementalDispatcherConfig"));
        step_size = field(&mut step, |r| at_least(r, "stepSize", 1));
        if let Some(mut profile) = field(reader, |r| r.object("clusterProfile")) {
            for key in ["accessProviders", "credentialsProviders"] {
                for mut provider in profile.objects(key).unwrap_or_default() {
                    provider.string("name");
                    provider.value("execConfig");
                    providers = true;
                }
            }
        }
    }
    let frameworks = field(reader, |r| r.objects("externalFrameworks")).unwrap_or_default();
    let text = |text: Option<String>, default: &str| {
        text.filter(|text| !text.is_empty()).unwrap_or_else(|| default.to_owned())
    };
    MultiKueue {
        gc_interval: field(reader, |r| not_negative(r, "gcInterval")).unwrap_or(Duration::from_secs(60)),
        origin: text(field(reader, |r| r.string("origin")), "multikueue"),
        worker_lost_timeout: field(reader, |r| not_negative(r, "workerLostTimeout"))
            .unwrap_or(Duration::from_secs(15 * 60)),
        dispatcher_name: text(field(reader, |r| r.string("dispatcherName")), labels::DISPATCHER_ALL_AT_ONCE),
        incremental_step_size: step_size,
        external_frameworks: frameworks.into_iter().filter_map(|mut entry| entry.string("name")).collect(),
        access_providers: providers,
    }
}

const STRATEGIES: [(&str, PreemptionStrategy); 2] = [
    ("LessThanOrEqualToFinalShare", PreemptionStrategy::LessThanOrEqualToFinalShare),
    ("LessThanInitialShare", PreemptionStrategy::LessThanInitialShare),
];

pub(super) fn fair_sharing(reader: Option<Reader<'_>>, version: FileVersion) -> Option<FairSharing> {
    use PreemptionStrategy::{LessThanInitialShare, LessThanOrEqualToFinalShare};
    let mut reader = reader?;
    let old = version == FileVersion::V1beta1;
    let enabled = !old || reader.bool("enable").unwrap_or(false);
    let given = reader.some_of("preemptionStrategies", &STRATEGIES).unwrap_or_default();
    let strategies = if old && enabled && given.is_empty() {
        vec![LessThanOrEqualToFinalShare, LessThanInitialShare]
    } else {
        given
    };
    let allowed: [&[_]; 3] = [
        &[LessThanOrEqualToFinalShare],
        &[LessThanInitialShare],
        &[LessThanOrEqualToFinalShare, LessThanInitialShare],
    ];
    if enabled && !allowed.contains(&strategies.as_slice()) {
        reader.error(
            "preemptionStrategies",
            "must be [LessThanOrEqualToFinalShare], [LessThanInitialShare] or \
             [LessThanOrEqualToFinalShare, LessThanInitialShare]",
        );
    }
    enabled.then_some(FairSharing { preemption_strategies: strategies })
}

pub(super) fn admission_fair_sharing(mut reader: Reader<'_>) -> AdmissionFairSharing {
    let half_life = not_negative(&mut reader, "usageHalfLifeTime").unwrap_or_default();
    let interval = not_negative(&mut reader, "usageSamplingInterval").filter(|time| *time != Duration::ZERO);
    let weights = reader.map_of("resourceWeights", "a number of at least 0", |value| {
        value.as_f64().filter(|weight| *weight >= 0.0)
    });
    AdmissionFairSharing {
        usage_half_life_time: half_life,
        usage_sampling_interval: interval.unwrap_or(Duration::from_secs(5 * 60)),
        resource_weights: weights.unwrap_or_default(),
    }
}

pub(super) fn resources(reader: Option<Reader<'_>>, version: FileVersion) -> Resources {
    let Some(mut reader) = reader else { return Resources::default() };
    let strategies = [
        ("BlockUndeclared", QuotaCheckStrategy::BlockUndeclared),
        ("IgnoreUndeclared", QuotaCheckStrategy::IgnoreUndeclared),
    ];
    let new = version == FileVersion::V1beta2;
    let strategy = if new { reader.one_of("quotaCheckStrategy", &strategies) } else { None };
    if reader
        .value("deviceClassMappings")
        .is_some_and(|value| value.as_array().is_none_or(|list| !list.is_empty()))
    {
        reader.error(
            "deviceClassMappings",
            "not built yet: Sluice does not do quota for dynamic resource allocation; leave it out",
        );
    }
    let mut seen = BTreeSet::new();
    let mut transformations = Vec::new();
    for entry in reader.objects("transformations").unwrap_or_default() {
        transformations.push(transformation(entry, &mut seen));
    }
    Resources {
        exclude_resource_prefixes: reader.strings("excludeResourcePrefixes").unwrap_or_default(),
        quota_check_strategy: strategy.unwrap_or_default(),
        transformations,
    }
}

fn transformation(mut reader: Reader<'_>, seen: &mut BTreeSet<String>) -> Transformation {
    let strategies =
        [("Retain", TransformationStrategy::Retain), ("Replace", TransformationStrategy::Replace)];
    let input = reader.string("input").unwrap_or_default();
    if input.is_empty() {
        reader.error("input", "required");
    } else if !seen.insert(input.clone()) {
        reader.error("input", format!("duplicate value {input:?}"));
    }
    let outputs = reader.map_of("outputs", "a quantity of at least 0", quantity).unwrap_or_default();
    Transformation {
        input,
        strategy: reader.one_of("strategy", &strategies).unwrap_or_default(),
        multiply_by: reader.string("multiplyBy").filter(|name| !name.is_empty()),
        outputs,
    }
}

/// A non-negative quantity, written as text or number.
fn quantity(value: &Value) -> Option<Quantity> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    Quantity::parse(&text).ok().filter(|quantity| !quantity.is_negative())
}
