//! The addresses on which the manager listens, and the names and rates of its requests to the API server.

use super::Duration;
use super::reader::{Errors, report};
use super::types::{Configuration, Health, LeaderElection};
use crate::gates::Gate;
use crate::names::dns1123_subdomain_error;

/// The longest time of a lease: more than this is a mistake, and a dead leader would be waited for as long.
const LONGEST_LEASE: Duration = Duration::from_secs(24 * 60 * 60);
/// The most writes per second, and at once: beyond what any API server takes.
const MOST_QPS: f64 = 1_000_000.0;
/// The fewest: with less, a write would wait longer than any client does.
const FEWEST_QPS: f64 = 0.01;

pub(super) fn check(configuration: &Configuration, errors: &Errors) {
    health(&configuration.health, errors);
    ports(configuration, errors);
    lease(&configuration.leader_election, errors);
    let connection = &configuration.client_connection;
    let (qps, path) = (connection.qps, "clientConnection.qps");
    if !qps.is_finite() || qps > MOST_QPS || (qps > 0.0 && qps < FEWEST_QPS) {
        let message = format!("must be between {FEWEST_QPS} and {MOST_QPS}, or not above 0 for no limit");
        report(errors, path, message);
    }
    if f64::from(connection.burst) > MOST_QPS {
        report(errors, "clientConnection.burst", format!("must be at most {MOST_QPS}"));
    }
    let certs = &configuration.internal_cert_management;
    if certs.enable {
        name("internalCertManagement.webhookServiceName", &certs.webhook_service_name, errors);
        name("internalCertManagement.webhookSecretName", &certs.webhook_secret_name, errors);
    }
    name("namespace", &configuration.namespace, errors);
}

fn name(path: &str, name: &str, errors: &Errors) {
    if let Some(error) = dns1123_subdomain_error(name) {
        report(errors, path, format!("invalid value {name:?}: {error}"));
    }
}

fn health(health: &Health, errors: &Errors) {
    let endpoints = [
        ("health.readinessEndpointName", &health.readiness_endpoint_name),
        ("health.livenessEndpointName", &health.liveness_endpoint_name),
    ];
    let bare = |name: &str| name.trim_start_matches('/').to_owned();
    for (path, name) in endpoints {
        let usual = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
        let bare = bare(name);
        if bare.is_empty() || !bare.chars().all(usual) {
            report(
                errors,
                path,
                format!("invalid value {name:?}: must consist of letters, digits, '-', '_', '.' and '/'"),
            );
        }
        if bare == "debug" || bare.starts_with("debug/") {
            report(errors, path, format!("invalid value {name:?}: /debug is taken"));
        }
    }
    if bare(endpoints[0].1) == bare(endpoints[1].1) {
        report(errors, endpoints[1].0, "must not be equal to readinessEndpointName");
    }
}

/// Two servers cannot share a port, unless each has an address of its own.
fn ports(configuration: &Configuration, errors: &Errors) {
    let webhook = format!("{}:{}", configuration.webhook.host, configuration.webhook.port);
    let pages = &configuration.dashboard;
    let dashboard = format!("{}:{}", pages.bind_address, pages.port);
    let places = &configuration.visibility_server;
    let served = configuration.gates.enabled(Gate::VisibilityOnDemand);
    let visibility =
        if served { format!("{}:{}", places.bind_address, places.bind_port) } else { String::new() };
    let servers = [
        ("webhook.port", webhook.as_str()),
        ("health.healthProbeBindAddress", configuration.health.health_probe_bind_address.as_str()),
        ("metrics.bindAddress", configuration.metrics.bind_address.as_str()),
        ("dashboard.port", dashboard.as_str()),
        ("visibilityServer.bindPort", visibility.as_str()),
    ];
    let listened: Vec<_> = servers
        .into_iter()
        .filter_map(|(path, address)| {
            let (host, port) = address.rsplit_once(':')?;
            let port: u16 = port.parse().ok().filter(|port| *port != 0)?;
            let host = host.trim_start_matches('[').trim_end_matches(']');
            let everywhere = matches!(host, "" | "0.0.0.0" | "::");
            Some((path, host, port, everywhere))
        })
        .collect();
    for (at, (path, host, port, everywhere)) in listened.iter().enumerate() {
        let taken = listened[..at]
            .iter()
            .find(|(_, other, taken, all)| taken == port && (*everywhere || *all || host == other));
        if let Some((other, ..)) = taken {
            report(errors, path, format!("port {port} is that of {other}"));
        }
    }
}

fn lease(election: &LeaderElection, errors: &Errors) {
    name("leaderElection.resourceName", &election.resource_name, errors);
    if !election.resource_namespace.is_empty() {
        name("leaderElection.resourceNamespace", &election.resource_namespace, errors);
    }
    if election.lease_duration > LONGEST_LEASE {
        report(errors, "leaderElection.leaseDuration", "must be at most 24h");
    }
}
