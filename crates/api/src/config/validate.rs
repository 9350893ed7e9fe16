//! Rules that concern several fields, and values that Sluice cannot honour (docs/reference/01-api.md 1.12).

use std::collections::{BTreeMap, BTreeSet};

use super::decode::{KUBE_SYSTEM, USUAL_BURST};
use super::endpoints;
use super::frameworks;
use super::reader::{Errors, report};
use super::types::{
    Configuration, CustomLabel, Integrations, LeaderElection, MultiKueue, QuotaCheckStrategy, SourceKind, Tls,
};
use super::warning::Warning;
use super::{DeclaredKind, Duration, declared, selector};
use crate::gates::Gate;
use crate::job::{JobKind, parse_external};
use crate::labels;
use crate::names::qualified_name_error;

/// Checks what was read.
pub(super) fn check(configuration: &Configuration, errors: &Errors, warnings: &mut Vec<Warning>) {
    managed_namespaces(configuration, errors);
    endpoints::check(configuration, errors);
    leader_election(&configuration.leader_election, errors);
    integrations(configuration, errors);
    declared::check(&configuration.integrations.declared, errors);
    custom_labels(configuration, errors, warnings);
    if let Some(tls) = &configuration.tls {
        check_tls(tls, errors, warnings);
    }
    let resources = &configuration.resources;
    if resources.quota_check_strategy == QuotaCheckStrategy::IgnoreUndeclared {
        const PATH: &str = "resources.quotaCheckStrategy";
        if !configuration.gates.enabled(Gate::QuotaCheckStrategy) {
            warnings.push(Warning::no_effect(PATH, "the feature gate QuotaCheckStrategy is off"));
        } else if !resources.exclude_resource_prefixes.is_empty() {
            let message = "\"IgnoreUndeclared\" cannot be used with excludeResourcePrefixes";
            report(errors, PATH, message);
        }
    }
    if configuration.client_connection.burst < 0 {
        report(errors, "clientConnection.burst", "must be greater than or equal to 0");
    }
    multi_kueue(&configuration.multi_kueue, errors);
    without_effect(configuration, errors, warnings);
}

fn managed_namespaces(configuration: &Configuration, errors: &Errors) {
    for name in [KUBE_SYSTEM, configuration.namespace.as_str()] {
        let namespace = BTreeMap::from([(labels::NAMESPACE_NAME_LABEL.to_owned(), name.to_owned())]);
        if selector::matches(&configuration.managed_jobs_namespace_selector, &namespace) {
            let message = format!("should not match the {name:?} namespace");
            report(errors, "managedJobsNamespaceSelector", message);
        }
    }
}

fn leader_election(election: &LeaderElection, errors: &Errors) {
    if !election.leader_elect {
        return;
    }
    if election.resource_lock != "leases" {
        report(errors, "leaderElection.resourceLock", "unsupported value: supported values: \"leases\"");
    }
    if election.lease_duration <= election.renew_deadline {
        report(errors, "leaderElection.leaseDuration", "must be greater than renewDeadline");
    }
    if election.renew_deadline <= election.retry_period {
        report(errors, "leaderElection.renewDeadline", "must be greater than retryPeriod");
    }
    if election.retry_period <= Duration::ZERO {
        report(errors, "leaderElection.retryPeriod", "must be greater than 0");
    }
}

fn integrations(configuration: &Configuration, errors: &Errors) {
    let integrations = &configuration.integrations;
    let mut seen = BTreeSet::new();
    for (index, name) in integrations.frameworks.iter().enumerate() {
        let path = format!("integrations.frameworks[{index}]");
        if !seen.insert(name) {
            report(errors, &path, format!("duplicate value {name:?}"));
        }
        let Some(kind) = frameworks::find(name) else {
            report(errors, &path, format!("unsupported value {name:?}: {}", frameworks::supported()));
            continue;
        };
        let off = kind.integration().gate.filter(|gate| !configuration.gates.enabled(*gate));
        if let Some(gate) = off {
            let message = format!("{name:?} is an alpha feature: it needs the feature gate {}", gate.name());
            report(errors, &path, message);
        }
    }
    external_frameworks(integrations, errors);
    for (index, key) in integrations.label_keys_to_copy.iter().enumerate() {
        if let Some(error) = qualified_name_error(key) {
            let path = format!("integrations.labelKeysToCopy[{index}]");
            report(errors, &path, format!("invalid value {key:?}: {error}"));
        }
    }
}

fn external_frameworks(integrations: &Integrations, errors: &Errors) {
    let mut seen = BTreeSet::new();
    let declared = &integrations.declared;
    for (index, name) in integrations.external_frameworks.iter().enumerate() {
        let path = format!("integrations.externalFrameworks[{index}]");
        let Some([kind, version, group]) = parse_external(name) else {
            report(errors, &path, format!("invalid value {name:?}: must be of the form Kind.version.group"));
            continue;
        };
        let listed = |queued: &JobKind| {
            let same_kind = queued.kind().eq_ignore_ascii_case(kind);
            same_kind
                && [queued.version(), queued.group()] == [version, group]
                && integrations.frameworks.iter().any(|one| one == queued.framework())
        };
        // A kind is known by its name in lower case.
        let is_it =
            |declared: &DeclaredKind| declared.group == group && declared.kind.eq_ignore_ascii_case(kind);
        if !seen.insert(name) {
            report(errors, &path, format!("duplicate value {name:?}"));
        } else if let Some(queued) = JobKind::ALL.into_iter().find(listed) {
            let message =
                format!("duplicate value {name:?}: integrations.frameworks lists {:?}", queued.framework());
            report(errors, &path, message);
        } else if declared.iter().any(is_it) {
            report(errors, &path, format!("duplicate value {name:?}: integrations.declared has this kind"));
        }
    }
}

/// Custom labels in all.
const MAX_CUSTOM_LABELS: usize = 20;
/// The longest name of a custom label, without the prefix: the limit of label names.
const MAX_LABEL_NAME: usize = 63;
/// The longest tracked value of a custom label.
const MAX_LABEL_VALUE: usize = 253;

fn custom_labels(configuration: &Configuration, errors: &Errors, warnings: &mut Vec<Warning>) {
    const PATH: &str = "metrics.customLabels";
    let entries = &configuration.metrics.custom_labels;
    if !entries.is_empty() && !configuration.gates.enabled(Gate::CustomMetricLabels) {
        warnings.push(Warning::no_effect(PATH, "feature gate CustomMetricLabels is off"));
    }
    if entries.len() > MAX_CUSTOM_LABELS {
        let message = format!("too many: {}: must have at most {MAX_CUSTOM_LABELS} items", entries.len());
        report(errors, PATH, message);
    }
    let mut per_kind = BTreeMap::new();
    let mut names = BTreeSet::new();
    for (index, entry) in entries.iter().enumerate() {
        let path = format!("{PATH}[{index}]");
        *per_kind.entry(entry.source_kind).or_insert(0_usize) += 1;
        if !names.insert(&entry.name) {
            report(errors, &format!("{path}.name"), format!("duplicate value {:?}", entry.name));
        }
        custom_label(entry, &path, errors);
    }
    for (kind, count) in per_kind {
        let most = if kind == SourceKind::Workload { 2 } else { 6 };
        if count > most {
            let message =
                format!("too many custom labels for source kind {kind:?}: found {count}, expected <= {most}");
            report(errors, PATH, message);
        }
    }
}

fn custom_label(entry: &CustomLabel, path: &str, errors: &Errors) {
    let mut letters = entry.name.bytes();
    let starts = letters.next().is_some_and(|byte| byte.is_ascii_alphabetic());
    if !starts || !letters.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        let message = format!("invalid value {:?}: must match ^[a-zA-Z][a-zA-Z0-9_]*$", entry.name);
        report(errors, &format!("{path}.name"), message);
    }
    if entry.name.len() > MAX_LABEL_NAME {
        let message = format!("must be no more than {MAX_LABEL_NAME} bytes");
        report(errors, &format!("{path}.name"), message);
    }
    if entry.source_label_key.is_some() && entry.source_annotation_key.is_some() {
        report(errors, path, "sourceLabelKey and sourceAnnotationKey are mutually exclusive");
    }
    for (field, key) in
        [("sourceLabelKey", &entry.source_label_key), ("sourceAnnotationKey", &entry.source_annotation_key)]
    {
        if let Some(error) = key.as_deref().and_then(qualified_name_error) {
            report(errors, &format!("{path}.{field}"), error);
        }
    }
    let workload = entry.source_kind == SourceKind::Workload;
    let most = if workload { 12 } else { 16 };
    let (count, path) = (entry.tracked_values.len(), format!("{path}.trackedValues"));
    if workload && count == 0 {
        report(errors, &path, "must not be empty when sourceKind is 'Workload'");
    } else if workload && count > most {
        report(errors, &path, format!("must not be greater than {most} when sourceKind is 'Workload'"));
    } else if count > most {
        report(errors, &path, format!("too many: {count}: must have at most {most} items"));
    }
    if entry.tracked_values.iter().collect::<BTreeSet<_>>().len() < count {
        report(errors, &path, "must not contain duplicates");
    }
    if entry.tracked_values.iter().any(|value| value.len() > MAX_LABEL_VALUE) {
        report(errors, &path, format!("a value must be no more than {MAX_LABEL_VALUE} bytes"));
    }
}

/// Names as Go's `crypto/tls` has them. What Go knows and Sluice's TLS library does not offer is an error that says so.
fn check_tls(tls: &Tls, errors: &Errors, warnings: &mut Vec<Warning>) {
    match tls.min_version.as_str() {
        "" | "VersionTLS12" => {}
        "VersionTLS13" => {
            if !tls.cipher_suites.is_empty() {
                report(
                    errors,
                    "tls.cipherSuites",
                    "may not be specified when minVersion is \"VersionTLS13\"",
                );
            }
        }
        "VersionTLS10" | "VersionTLS11" => {
            warnings.push(Warning::no_effect("tls.minVersion", "Sluice never offers less than TLS 1.2"));
        }
        other => report(
            errors,
            "tls.minVersion",
            format!("unsupported value {other:?}: supported values: \"VersionTLS12\", \"VersionTLS13\""),
        ),
    }
    names_among(&tls.cipher_suites, "tls.cipherSuites", &CIPHER_SUITES, errors);
    names_among(&tls.curve_preferences, "tls.curvePreferences", &CURVES, errors);
}

const CURVES: [&str; 3] = ["X25519", "CurveP256", "CurveP384"];

const CIPHER_SUITES: [&str; 6] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
];

fn names_among(given: &[String], path: &str, offered: &[&str], errors: &Errors) {
    for (index, name) in given.iter().enumerate() {
        if !offered.contains(&name.as_str()) {
            let message = format!("{name:?} is not offered by Sluice: use some of {}", offered.join(", "));
            report(errors, &format!("{path}[{index}]"), message);
        }
    }
}

/// MultiKueue is not built: what differs from its defaults would switch something on.
fn multi_kueue(section: &MultiKueue, errors: &Errors) {
    let differs = [
        ("gcInterval", section.gc_interval != Duration::from_secs(60)),
        ("origin", section.origin != "multikueue"),
        ("workerLostTimeout", section.worker_lost_timeout != Duration::from_secs(15 * 60)),
        ("dispatcherName", section.dispatcher_name != labels::DISPATCHER_ALL_AT_ONCE),
        ("incrementalDispatcherConfig.stepSize", section.incremental_step_size.is_some_and(|size| size != 3)),
        ("externalFrameworks", !section.external_frameworks.is_empty()),
        ("clusterProfile", section.access_providers),
    ];
    for (field, _) in differs.iter().filter(|(_, differs)| *differs) {
        let message = "not built yet: Sluice has no MultiKueue; leave it at its default";
        report(errors, &format!("multiKueue.{field}"), message);
    }
}

/// Values that are read but change nothing here.
fn without_effect(configuration: &Configuration, errors: &Errors, warnings: &mut Vec<Warning>) {
    if !matches!(configuration.pprof_bind_address.as_str(), "" | "0") {
        report(errors, "pprofBindAddress", "not built: pprof belongs to the Go runtime; leave it empty");
    }
    if !configuration.controller.group_kind_concurrency.is_empty() {
        warnings.push(Warning::no_effect(
            "controller.groupKindConcurrency",
            "Sluice decides on one thread and writes from one pool",
        ));
    }
    let connection = &configuration.client_connection;
    if connection.qps <= 0.0 && connection.burst != USUAL_BURST {
        warnings.push(Warning::no_effect(
            "clientConnection.burst",
            "without clientConnection.qps, which Kueue sets to 300, no rate limits writes",
        ));
    }
}
