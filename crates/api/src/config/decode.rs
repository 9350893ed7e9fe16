//! Converts the file's fields to the configuration, with defaults (docs/reference/01-api.md 1.12). Rules about a single field are checked here; those
//! about several fields, in `validate`.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

use super::environment::{Environment, FileVersion};
use super::reader::{Reader, field, not_negative};
use super::warning::Warning;
use super::{Duration, features, sections};
use super::{
    selector,
    types::{
        ClientConnection, Configuration, Controller, Health, InternalCertManagement, LeaderElection,
        ObjectRetentionPolicies, ProvisioningRequests, Tls, VisibilityServer, Webhook,
        WorkloadRetentionPolicy,
    },
};
use crate::labels;

/// Namespace that system components run in; never managed.
pub(super) const KUBE_SYSTEM: &str = "kube-system";
/// `clientConnection.burst` where the file has none.
pub(super) const USUAL_BURST: i32 = 500;

/// Reads every section. Mistakes are collected by the reader.
pub(super) fn configuration(
    file: &mut Reader<'_>,
    version: FileVersion,
    environment: &Environment,
    warnings: &mut Vec<Warning>,
) -> Configuration {
    let namespace = file
        .string("namespace")
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| environment.namespace.clone());
    let managed_jobs_namespace_selector = match file.object("managedJobsNamespaceSelector") {
        Some(reader) => selector::read(reader),
        None => not_in_system_namespaces(&namespace),
    };
    let (feature_gates, gates) = features::read(file, environment, warnings);
    Configuration {
        webhook: webhook(file.object("webhook"), environment),
        metrics: sections::metrics(file.object("metrics")),
        health: health(file.object("health")),
        pprof_bind_address: file.string("pprofBindAddress").unwrap_or_default(),
        leader_election: leader_election(file.object("leaderElection")),
        controller: controller(file.object("controller")),
        tls: file.object("tls").map(tls),
        manage_jobs_without_queue_name: file.bool("manageJobsWithoutQueueName").unwrap_or(false),
        internal_cert_management: internal_cert_management(file.object("internalCertManagement")),
        wait_for_pods_ready: sections::wait_for_pods_ready(file, version, gates),
        client_connection: client_connection(file.object("clientConnection")),
        integrations: sections::integrations(file.object("integrations")),
        multi_kueue: sections::multi_kueue(file.object("multiKueue"), version),
        fair_sharing: sections::fair_sharing(file.object("fairSharing"), version),
        admission_fair_sharing: file.object("admissionFairSharing").map(sections::admission_fair_sharing),
        resources: sections::resources(file.object("resources"), version),
        object_retention_policies: object_retention(file.object("objectRetentionPolicies")),
        provisioning_requests: provisioning_requests(file.object("provisioningRequests")),
        hotswap: super::hotswap::hotswap(file.object("hotswap")),
        scheduler: super::scheduler::scheduler(file.object("scheduler")),
        journal: super::journal::journal(file.object("journal")),
        tracing: super::tracing::tracing(file.object("tracing")),
        dashboard: super::dashboard::dashboard(file.object("dashboard")),
        visibility_server: visibility(file, version, warnings),
        namespace,
        managed_jobs_namespace_selector,
        feature_gates,
        gates,
    }
}

/// The default for the namespaces in which jobs are managed.
fn not_in_system_namespaces(namespace: &str) -> LabelSelector {
    LabelSelector {
        match_labels: None,
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: labels::NAMESPACE_NAME_LABEL.to_owned(),
            operator: "NotIn".to_owned(),
            values: Some(vec![KUBE_SYSTEM.to_owned(), namespace.to_owned()]),
        }]),
    }
}

fn webhook(mut reader: Option<Reader<'_>>, environment: &Environment) -> Webhook {
    let reader = &mut reader;
    Webhook {
        port: field(reader, |r| r.port("port")).unwrap_or(9443),
        host: field(reader, |r| r.string("host")).unwrap_or_default(),
        cert_dir: field(reader, |r| r.string("certDir"))
            .filter(|folder| !folder.is_empty())
            .unwrap_or_else(|| environment.certificate_folder.clone()),
    }
}

fn health(mut reader: Option<Reader<'_>>) -> Health {
    let reader = &mut reader;
    let name = |name: Option<String>, default: &str| {
        name.filter(|name| !name.is_empty()).unwrap_or_else(|| default.to_owned())
    };
    Health {
        health_probe_bind_address: name(field(reader, |r| r.string("healthProbeBindAddress")), ":8081"),
        readiness_endpoint_name: name(field(reader, |r| r.string("readinessEndpointName")), "readyz"),
        liveness_endpoint_name: name(field(reader, |r| r.string("livenessEndpointName")), "healthz"),
    }
}

fn leader_election(mut reader: Option<Reader<'_>>) -> LeaderElection {
    let reader = &mut reader;
    let duration = |value: Option<Duration>, default| {
        value.filter(|d| *d != Duration::ZERO).unwrap_or(Duration::from_secs(default))
    };
    let text = |value: Option<String>, default: &str| {
        value.filter(|text| !text.is_empty()).unwrap_or_else(|| default.to_owned())
    };
    LeaderElection {
        leader_elect: field(reader, |r| r.bool("leaderElect")).unwrap_or(true),
        lease_duration: duration(field(reader, |r| r.duration("leaseDuration")), 15),
        renew_deadline: duration(field(reader, |r| r.duration("renewDeadline")), 10),
        retry_period: duration(field(reader, |r| r.duration("retryPeriod")), 2),
        resource_lock: text(field(reader, |r| r.string("resourceLock")), "leases"),
        resource_name: text(field(reader, |r| r.string("resourceName")), labels::LEADER_LEASE),
        resource_namespace: field(reader, |r| r.string("resourceNamespace")).unwrap_or_default(),
    }
}

fn controller(reader: Option<Reader<'_>>) -> Controller {
    let Some(mut reader) = reader else { return Controller::default() };
    let concurrency = reader.map_of("groupKindConcurrency", "an integer of at least 1", |value| {
        value.as_i64().and_then(|number| i32::try_from(number).ok()).filter(|number| *number > 0)
    });
    let cache_sync_timeout = reader.i64("cacheSyncTimeout");
    if cache_sync_timeout.is_some_and(|nanos| nanos < 0) {
        reader.error("cacheSyncTimeout", "must not be negative (nanoseconds)");
    }
    Controller { group_kind_concurrency: concurrency.unwrap_or_default(), cache_sync_timeout }
}

fn tls(mut reader: Reader<'_>) -> Tls {
    Tls {
        min_version: reader.string("minVersion").unwrap_or_default(),
        cipher_suites: reader.strings("cipherSuites").unwrap_or_default(),
        curve_preferences: reader.strings("curvePreferences").unwrap_or_default(),
    }
}

fn internal_cert_management(mut reader: Option<Reader<'_>>) -> InternalCertManagement {
    let reader = &mut reader;
    InternalCertManagement {
        enable: field(reader, |r| r.bool("enable")).unwrap_or(true),
        webhook_service_name: field(reader, |r| r.string("webhookServiceName"))
            .unwrap_or_else(|| "kueue-webhook-service".to_owned()),
        webhook_secret_name: field(reader, |r| r.string("webhookSecretName"))
            .unwrap_or_else(|| "kueue-webhook-server-cert".to_owned()),
    }
}

fn client_connection(mut reader: Option<Reader<'_>>) -> ClientConnection {
    let reader = &mut reader;
    ClientConnection {
        qps: field(reader, |r| r.f64("qps")).unwrap_or(-1.0),
        burst: field(reader, |r| r.i32("burst")).unwrap_or(USUAL_BURST),
    }
}

fn object_retention(reader: Option<Reader<'_>>) -> ObjectRetentionPolicies {
    let workloads = reader.and_then(|mut reader| reader.object("workloads"));
    ObjectRetentionPolicies {
        workloads: workloads.map(|mut reader| WorkloadRetentionPolicy {
            after_finished: not_negative(&mut reader, "afterFinished"),
            after_deactivated_by_kueue: not_negative(&mut reader, "afterDeactivatedByKueue"),
        }),
    }
}

fn provisioning_requests(mut reader: Option<Reader<'_>>) -> ProvisioningRequests {
    let reader = &mut reader;
    ProvisioningRequests {
        old_pod_annotations: field(reader, |r| r.bool("oldPodAnnotations")).unwrap_or(false),
    }
}

fn visibility(file: &mut Reader<'_>, version: FileVersion, warnings: &mut Vec<Warning>) -> VisibilityServer {
    let mut reader = match version {
        FileVersion::V1beta2 => file.object("visibilityServer"),
        FileVersion::V1beta1 => {
            queue_visibility(file.object("queueVisibility"), warnings);
            None
        }
    };
    let reader = &mut reader;
    VisibilityServer {
        bind_address: field(reader, |r| r.string("bindAddress")).unwrap_or_else(|| "0.0.0.0".to_owned()),
        bind_port: field(reader, |r| r.port("bindPort")).unwrap_or(8082),
    }
}

/// `queueVisibility` has had no effect since Kueue 0.14: it is read, so that mistakes show, and reported.
fn queue_visibility(reader: Option<Reader<'_>>, warnings: &mut Vec<Warning>) {
    let Some(mut reader) = reader else { return };
    reader.i32("updateIntervalSeconds");
    if let Some(mut queues) = reader.object("clusterQueues") {
        queues.i32("maxCount");
    }
    warnings.push(Warning::no_effect("queueVisibility", "Kueue has removed what it configured"));
}
