//! The rest of the cluster: which manager runs, with which configuration, and what Kueue would leave behind.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::{GroupVersionKind, ObjectMeta};
use sluice_api::config::{Configuration, Environment};
use sluice_api::job::JobKind;
use sluice_api::webhooks::WEBHOOKS;
use sluice_client::lease::IDENTITY_PREFIX;

use super::error::{MigrateError, code};
use super::report::Report;
use crate::deployed::{Deployed, MANAGER_LABEL};

/// The Deployment, in Kueue's manifests and in Sluice's.
const DEPLOYMENT: &str = "kueue-controller-manager";
/// The suffix of the Deployment's name, after the name prefix.
const DEPLOYMENT_SUFFIX: &str = "-controller-manager";
/// The prefix, in the manifests.
const PREFIX: &str = "kueue";
const CONFIG_KEY: &str = "controller_manager_config.yaml";
/// The group of Kueue's aggregated API.
const VISIBILITY: &str = "visibility.kueue.x-k8s.io";
const MUTATING: &str = "mutatingwebhookconfiguration";
const VALIDATING: &str = "validatingwebhookconfiguration";
/// The label that names what an object belongs to.
const PART_OF: &str = "app.kubernetes.io/part-of";

/// Where the manager is, or would be.
#[derive(Clone)]
pub struct Place {
    /// The client.
    pub client: Client,
    /// The manager's namespace.
    pub namespace: String,
}

/// Looks at everything but the objects of Kueue's kinds. The configuration in force, as far as it can be read.
pub async fn look(place: &Place, report: &mut Report) -> Result<Option<Configuration>, MigrateError> {
    let manager = manager(place, report).await?;
    let kueue_runs = manager.kueue_runs;
    let configuration = configuration(place, manager, report).await?;
    lease(place, configuration.as_ref(), kueue_runs, report).await?;
    webhooks(place, report).await?;
    api_services(place, report).await?;
    Ok(configuration)
}

/// The manager that was found.
#[derive(Default)]
struct Manager {
    /// The value of its `--feature-gates`.
    feature_gates: Option<String>,
    /// The prefix of the names of its objects.
    prefix: Option<String>,
    /// Whether a Kueue exists that has pods or wants some.
    kueue_runs: bool,
}

/// The Deployments: the one with the usual name, else all with the label, whatever their release name.
async fn manager(place: &Place, report: &mut Report) -> Result<Manager, MigrateError> {
    let api: Api<Deployment> = Api::namespaced(place.client.clone(), &place.namespace);
    let what = format!("reading the deployment {}/{DEPLOYMENT}", place.namespace);
    let mut found: Vec<_> =
        api.get_opt(DEPLOYMENT).await.map_err(MigrateError::api(what))?.into_iter().collect();
    if found.is_empty() {
        let what = format!("listing the deployments of {} with the label {MANAGER_LABEL}", place.namespace);
        let labelled = ListParams::default().labels(MANAGER_LABEL);
        found = api.list(&labelled).await.map_err(MigrateError::api(what))?.items;
    }
    let mut manager = Manager::default();
    for deployment in found {
        describe(&deployment, &place.namespace, &mut manager, report);
    }
    if report.managers.is_empty() {
        report.managers.push(format!("no deployment {}/{DEPLOYMENT}", place.namespace));
    }
    Ok(manager)
}

/// Describes the manager of a Deployment; ignores the Deployment of another operator, which may have the label, too.
fn describe(deployment: &Deployment, namespace: &str, manager: &mut Manager, report: &mut Report) {
    let Some(Deployed { name, container, is_sluice }) = Deployed::of(deployment) else { return };
    let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let image = container.image.as_deref().unwrap_or("unknown");
    let who = if is_sluice { "Sluice" } else { "Kueue" };
    report.managers.push(format!("{who}: deployment {namespace}/{name}, image {image}, replicas {replicas}"));
    if !is_sluice && replicas > 0 {
        manager.kueue_runs = true;
        report.obstacles.push(format!(
            "stop Kueue, never run both: kubectl -n {namespace} scale deployment/{name} --replicas=0"
        ));
    }
    if manager.prefix.is_none() {
        manager.prefix = name.strip_suffix(DEPLOYMENT_SUFFIX).map(str::to_owned);
        if let Some(prefix) = manager.prefix.as_deref().filter(|prefix| !is_sluice && *prefix != PREFIX) {
            report.notes.push(format!(
                "the names of this Kueue begin with {prefix}: set fullnameOverride: {prefix} in the values of Sluice's chart, else RoleBindings \
                 refer to roles that are gone ({prefix}-batch-user-role, {prefix}-metrics-reader, …)"
            ));
        }
        let mut words = container.command.iter().chain(&container.args).flatten();
        let gates = words.find_map(|word| word.strip_prefix("--feature-gates="));
        manager.feature_gates = gates.map(str::to_owned);
    }
}

/// The configuration that Sluice would take over, if it accepts it.
async fn configuration(
    place: &Place,
    manager: Manager,
    report: &mut Report,
) -> Result<Option<Configuration>, MigrateError> {
    let feature_gates = manager.feature_gates;
    let name = format!("{}-manager-config", manager.prefix.as_deref().unwrap_or(PREFIX));
    let api: Api<ConfigMap> = Api::namespaced(place.client.clone(), &place.namespace);
    let what = format!("reading the ConfigMap {}/{name}", place.namespace);
    let map = api.get_opt(&name).await.map_err(MigrateError::api(what))?;
    let Some(text) = map.and_then(|map| map.data).and_then(|mut data| data.remove(CONFIG_KEY)) else {
        report
            .notes
            .push(format!("no ConfigMap {}/{name}: the configuration is not checked", place.namespace));
        return Ok(None);
    };
    let environment =
        Environment { namespace: place.namespace.clone(), feature_gates, ..Environment::default() };
    let read = Configuration::parse_in(&text, &environment)
        .and_then(|read| sluice_jobs::declare(&read.0).map(|()| read));
    match read {
        Ok((configuration, warnings)) => {
            for warning in warnings {
                report.notes.push(format!("configuration: {warning}"));
            }
            Ok(Some(configuration))
        }
        Err(errors) => {
            let lines = errors.0.iter().map(|error| format!("configuration refused: {error}"));
            report.obstacles.extend(lines);
            Ok(None)
        }
    }
}

/// The holder of the lease.
async fn lease(
    place: &Place,
    configuration: Option<&Configuration>,
    kueue_runs: bool,
    report: &mut Report,
) -> Result<(), MigrateError> {
    let default = Configuration::default();
    let section = &configuration.unwrap_or(&default).leader_election;
    let namespace =
        if section.resource_namespace.is_empty() { &place.namespace } else { &section.resource_namespace };
    let api: Api<Lease> = Api::namespaced(place.client.clone(), namespace);
    let name = format!("{namespace}/{}", section.resource_name);
    let lease = api.get_opt(&section.resource_name).await;
    let lease = lease.map_err(MigrateError::api(format!("reading the lease {name}")))?;
    let spec = lease.and_then(|lease| lease.spec).unwrap_or_default();
    holder(&name, &spec, Timestamp::now(), kueue_runs, report);
    Ok(())
}

/// The holder of a lease. A foreign holder that renews it is a running manager, possibly elsewhere; a `known` running one is already reported.
fn holder(name: &str, spec: &LeaseSpec, now: Timestamp, known: bool, report: &mut Report) {
    let Some(holder) = spec.holder_identity.as_deref().filter(|holder| !holder.is_empty()) else {
        return report.managers.push(format!("no manager holds the lease {name}"));
    };
    if holder.starts_with(IDENTITY_PREFIX) {
        return report.managers.push(format!("the lease is held by Sluice ({holder})"));
    }
    let lasts = spec.lease_duration_seconds.unwrap_or_default();
    let renewed = spec.renew_time.as_ref().map(|time| time.0);
    let until = renewed.and_then(|time| time.checked_add(SignedDuration::from_secs(lasts.into())).ok());
    if until.is_none_or(|until| until <= now) {
        return report.managers.push(format!("the lease was last held by Kueue ({holder})"));
    }
    report.managers.push(format!("the lease is held by Kueue ({holder})"));
    if !known {
        report.obstacles.push(format!(
            "stop Kueue, never run both: {holder} holds the lease {name}, which it renewed less than {lasts} s ago; its deployment may have \
             another name, or be in another namespace (--namespace)"
        ));
    }
}

/// Kueue's webhooks that no server will answer: as long as they exist, objects of whole kinds cannot be created.
async fn webhooks(place: &Place, report: &mut Report) -> Result<(), MigrateError> {
    let what = "listing webhook configurations";
    let all = ListParams::default();
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(place.client.clone());
    for found in mutating.list(&all).await.map_err(MigrateError::api(what))?.items {
        let entries = found.webhooks.unwrap_or_default();
        let entries = entries.iter().map(|entry| (entry.name.as_str(), &entry.client_config));
        foreign_entries(MUTATING, &found.metadata, entries, &place.namespace, report);
    }
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(place.client.clone());
    for found in validating.list(&all).await.map_err(MigrateError::api(what))?.items {
        let entries = found.webhooks.unwrap_or_default();
        let entries = entries.iter().map(|entry| (entry.name.as_str(), &entry.client_config));
        foreign_entries(VALIDATING, &found.metadata, entries, &place.namespace, report);
    }
    Ok(())
}

/// Entries of a configuration that remain when Sluice's chart is installed and have no server then. The chart replaces the configurations with its
/// own names; those of a release with another name remain completely.
fn foreign_entries<'a>(
    kind: &str,
    metadata: &ObjectMeta,
    entries: impl Iterator<Item = (&'a str, &'a WebhookClientConfig)>,
    namespace: &str,
    report: &mut Report,
) {
    let here = |config: &WebhookClientConfig| {
        config.service.as_ref().is_some_and(|service| service.namespace == namespace)
    };
    let own = metadata.name.as_deref().unwrap_or_default();
    let replaced = is_ours(metadata) || own.strip_prefix(PREFIX) == Some(suffix_of(kind));
    let stays = |name: &str| !replaced || !is_served(name);
    let names: Vec<_> =
        entries.filter(|(name, config)| here(config) && stays(name)).map(|(name, _)| name).collect();
    if !names.is_empty() {
        report.obstacles.push(format!(
            "remove Kueue's webhooks: no server answers them any more ({}): kubectl delete {kind} {own}",
            names.join(", "),
        ));
    }
}

/// The suffix of a configuration's name, after the name prefix.
fn suffix_of(kind: &str) -> &'static str {
    if kind == MUTATING { "-mutating-webhook-configuration" } else { "-validating-webhook-configuration" }
}

/// Whether Sluice answers a webhook of this name.
fn is_served(name: &str) -> bool {
    let mut jobs = JobKind::all().iter().map(|kind| {
        let name = kind.kind().to_lowercase();
        // Declared kinds of different groups may have the same name.
        if kind.is_declared() { format!("{name}-{}", kind.group().replace('.', "-")) } else { name }
    });
    let of_job = |kind: &String| {
        ["m", "v"].iter().any(|verb| {
            name == format!("{verb}{kind}.kb.io") || name == format!("{verb}{kind}-without-queue.kb.io")
        })
    };
    WEBHOOKS.iter().any(|webhook| webhook.name == name) || jobs.any(|kind| of_job(&kind))
}

fn is_ours(metadata: &ObjectMeta) -> bool {
    let part_of = metadata.labels.as_ref().and_then(|labels| labels.get(PART_OF));
    part_of.is_some_and(|whole| whole == "sluice")
}

/// An aggregated API without a server breaks discovery and the deletion of namespaces.
async fn api_services(place: &Place, report: &mut Report) -> Result<(), MigrateError> {
    let kind = GroupVersionKind::gvk("apiregistration.k8s.io", "v1", "APIService");
    let resource = ApiResource::from_gvk_with_plural(&kind, "apiservices");
    let api: Api<DynamicObject> = Api::all_with(place.client.clone(), &resource);
    for version in ["v1beta1", "v1beta2"] {
        let name = format!("{version}.{VISIBILITY}");
        match api.get(&name).await {
            Ok(found) if is_ours(&found.metadata) => {}
            Ok(_) => {
                report.obstacles.push(format!(
                    "remove Kueue's aggregated API; Sluice's chart creates it again: kubectl delete apiservice {name}"
                ));
            }
            Err(error) if code(&error) == Some(404) => {}
            Err(error) => return Err(MigrateError::api(format!("reading the apiservice {name}"))(error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::admissionregistration::v1::ServiceReference;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
    use serde_json::{Value, json};

    #[test]
    fn a_foreign_holder_that_renews_the_lease_is_in_the_way_whatever_its_deployment_is() {
        let renewed: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let spec = |holder: &str| LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            renew_time: Some(MicroTime(renewed)),
            ..LeaseSpec::default()
        };
        let obstacles = |holder_: &str, seconds: i64, known: bool| {
            let mut report = Report::default();
            holder(
                "ns/lease",
                &spec(holder_),
                renewed + SignedDuration::from_secs(seconds),
                known,
                &mut report,
            );
            report.obstacles
        };
        let [obstacle] = &obstacles("other-0_1", 14, false)[..] else { panic!("one obstacle") };
        assert!(
            obstacle.starts_with("stop Kueue, never run both: other-0_1 holds the lease ns/lease"),
            "{obstacle}"
        );
        assert!(obstacles("other-0_1", 14, true).is_empty(), "its deployment is one");
        assert!(obstacles("other-0_1", 15, false).is_empty(), "it stopped");
        assert!(obstacles("sluice_pod_1", 14, false).is_empty());
        let mut report = Report::default();
        holder("ns/lease", &LeaseSpec { renew_time: None, ..spec("other-0_1") }, renewed, false, &mut report);
        assert!(report.is_clear());
    }

    #[test]
    fn a_deployment_of_another_release_is_known_and_another_operators_is_not() {
        let described = |name: &str, image: &str| {
            let deployment = json!({
                "metadata": {"name": name},
                "spec": {"selector": {}, "template": {"spec": {"containers": [
                    {"name": "manager", "image": image, "command": ["/manager"], "args": ["--feature-gates=A=true"]},
                ]}}},
            });
            let (mut manager, mut report) = (Manager::default(), Report::default());
            describe(&serde_json::from_value(deployment).unwrap(), "ns", &mut manager, &mut report);
            (manager.prefix, manager.feature_gates, report.obstacles, report.notes)
        };
        let (prefix, gates, obstacles, notes) =
            described("team-controller-manager", "registry.k8s.io/kueue/kueue:v0.14.4");
        assert_eq!((prefix.as_deref(), gates.as_deref()), (Some("team"), Some("A=true")));
        assert_eq!(
            obstacles,
            [
                "stop Kueue, never run both: kubectl -n ns scale deployment/team-controller-manager --replicas=0"
            ]
        );
        let [note] = &notes[..] else { panic!("one note") };
        assert!(
            note.contains("set fullnameOverride: team") && note.contains("team-batch-user-role"),
            "{note}"
        );
        let (.., notes) = described("kueue-controller-manager", "registry.k8s.io/kueue/kueue:v0.14.4");
        assert!(notes.is_empty(), "its roles keep their names: {notes:?}");
        let other = described("jobset-controller-manager", "registry.k8s.io/jobset/jobset:v0.10.1");
        assert_eq!(other, (None, None, Vec::new(), Vec::new()));
    }

    #[test]
    fn webhooks_that_no_server_answers_are_reported_and_no_others() {
        let config = |namespace: &str| WebhookClientConfig {
            service: Some(ServiceReference {
                namespace: namespace.to_owned(),
                ..ServiceReference::default()
            }),
            ..WebhookClientConfig::default()
        };
        let (ours, theirs) = (config("kueue-system"), config("elsewhere"));
        let entries = [
            ("mclusterqueue.kb.io", &ours),
            ("mjob.kb.io", &ours),
            ("mjobset-without-queue.kb.io", &ours),
            ("mpod.kb.io", &ours),
            ("mother.kb.io", &ours),
            ("mpod.kb.io", &theirs),
        ];
        let reported = |name: &str, labels: Value| {
            let labels = serde_json::from_value(labels).unwrap();
            let metadata = ObjectMeta { name: Some(name.to_owned()), labels, ..ObjectMeta::default() };
            let mut report = Report::default();
            foreign_entries(MUTATING, &metadata, entries.into_iter(), "kueue-system", &mut report);
            report.obstacles
        };
        let usual = "kueue-mutating-webhook-configuration";
        let obstacle = |names: &str, of: &str| {
            format!(
                "remove Kueue's webhooks: no server answers them any more ({names}): kubectl delete mutatingwebhookconfiguration {of}"
            )
        };
        assert_eq!(reported(usual, json!({})), [obstacle("mother.kb.io", usual)]);
        // The chart does not replace a configuration with another name: all of it remains, and refers to a Service that is gone.
        let all = "mclusterqueue.kb.io, mjob.kb.io, mjobset-without-queue.kb.io, mpod.kb.io, mother.kb.io";
        for other in ["team-mutating-webhook-configuration", "kueue-validating-webhook-configuration"] {
            assert_eq!(reported(other, json!({})), [obstacle(all, other)]);
        }
        // A Sluice of another name answers its own.
        let sluice = json!({"app.kubernetes.io/part-of": "sluice"});
        let own = "team-mutating-webhook-configuration";
        assert_eq!(reported(own, sluice), [obstacle("mother.kb.io", own)]);
    }
}
