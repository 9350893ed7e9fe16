//! What else is in the cluster: what manages it now, with which configuration, and what Kueue would leave behind.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
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

/// The Deployment, in Kueue's manifests and in Sluice's.
const DEPLOYMENT: &str = "kueue-controller-manager";
/// The ConfigMap with the configuration, in both.
const CONFIG_MAP: &str = "kueue-manager-config";
const CONFIG_KEY: &str = "controller_manager_config.yaml";
/// The group of Kueue's aggregated API.
const VISIBILITY: &str = "visibility.kueue.x-k8s.io";
/// The label that tells what an object belongs to.
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
    let gates = manager(place, report).await?;
    let configuration = configuration(place, gates, report).await?;
    lease(place, configuration.as_ref(), report).await?;
    webhooks(place, report).await?;
    api_services(place, report).await?;
    Ok(configuration)
}

/// The Deployment; the value of its `--feature-gates`.
async fn manager(place: &Place, report: &mut Report) -> Result<Option<String>, MigrateError> {
    let api: Api<Deployment> = Api::namespaced(place.client.clone(), &place.namespace);
    let what = format!("reading the deployment {}/{DEPLOYMENT}", place.namespace);
    let Some(deployment) = api.get_opt(DEPLOYMENT).await.map_err(MigrateError::api(what))? else {
        report.managers.push(format!("no deployment {}/{DEPLOYMENT}", place.namespace));
        return Ok(None);
    };
    let spec = deployment.spec.unwrap_or_default();
    let replicas = spec.replicas.unwrap_or(1);
    let containers = spec.template.spec.unwrap_or_default().containers;
    let manager = containers.iter().find(|c| c.name == "manager").or(containers.first());
    let Some(manager) = manager else { return Ok(None) };
    let words: Vec<&String> = manager.command.iter().chain(&manager.args).flatten().collect();
    // Kueue's binary is /manager; Sluice's takes `manager` as its first word.
    let is_sluice = words.iter().any(|word| *word == "manager");
    let who = if is_sluice { "Sluice" } else { "Kueue" };
    let image = manager.image.as_deref().unwrap_or("unknown");
    report.managers.push(format!(
        "{who}: deployment {}/{DEPLOYMENT}, image {image}, replicas {replicas}",
        place.namespace
    ));
    if !is_sluice && replicas > 0 {
        report.obstacles.push(format!(
            "stop Kueue, never run both: kubectl -n {} scale deployment/{DEPLOYMENT} --replicas=0",
            place.namespace
        ));
    }
    Ok(words.iter().find_map(|word| word.strip_prefix("--feature-gates=")).map(str::to_owned))
}

/// The configuration that Sluice would take over, if it accepts it.
async fn configuration(
    place: &Place,
    feature_gates: Option<String>,
    report: &mut Report,
) -> Result<Option<Configuration>, MigrateError> {
    let api: Api<ConfigMap> = Api::namespaced(place.client.clone(), &place.namespace);
    let what = format!("reading the ConfigMap {}/{CONFIG_MAP}", place.namespace);
    let map = api.get_opt(CONFIG_MAP).await.map_err(MigrateError::api(what))?;
    let Some(text) = map.and_then(|map| map.data).and_then(|mut data| data.remove(CONFIG_KEY)) else {
        report
            .notes
            .push(format!("no ConfigMap {}/{CONFIG_MAP}: the configuration is not checked", place.namespace));
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
    report: &mut Report,
) -> Result<(), MigrateError> {
    let default = Configuration::default();
    let section = &configuration.unwrap_or(&default).leader_election;
    let namespace =
        if section.resource_namespace.is_empty() { &place.namespace } else { &section.resource_namespace };
    let api: Api<Lease> = Api::namespaced(place.client.clone(), namespace);
    let what = format!("reading the lease {namespace}/{}", section.resource_name);
    let lease = api.get_opt(&section.resource_name).await.map_err(MigrateError::api(what))?;
    let holder = lease.and_then(|lease| lease.spec).and_then(|spec| spec.holder_identity);
    let line = match holder.filter(|holder| !holder.is_empty()) {
        None => format!("no manager holds the lease {namespace}/{}", section.resource_name),
        Some(holder) if holder.starts_with(IDENTITY_PREFIX) => {
            format!("the lease is held by Sluice ({holder})")
        }
        Some(holder) => format!("the lease was last held by Kueue ({holder})"),
    };
    report.managers.push(line);
    Ok(())
}

/// Webhooks of Kueue that no server answers any more: with them in the cluster, whole kinds could not be created any more.
async fn webhooks(place: &Place, report: &mut Report) -> Result<(), MigrateError> {
    let what = "listing webhook configurations";
    let all = ListParams::default();
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(place.client.clone());
    for found in mutating.list(&all).await.map_err(MigrateError::api(what))?.items {
        let entries = found.webhooks.unwrap_or_default();
        let entries = entries.iter().map(|entry| (entry.name.as_str(), &entry.client_config));
        foreign_entries("mutatingwebhookconfiguration", &found.metadata, entries, &place.namespace, report);
    }
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(place.client.clone());
    for found in validating.list(&all).await.map_err(MigrateError::api(what))?.items {
        let entries = found.webhooks.unwrap_or_default();
        let entries = entries.iter().map(|entry| (entry.name.as_str(), &entry.client_config));
        foreign_entries("validatingwebhookconfiguration", &found.metadata, entries, &place.namespace, report);
    }
    Ok(())
}

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
    let names: Vec<_> =
        entries.filter(|(name, config)| here(config) && !is_served(name)).map(|(name, _)| name).collect();
    if !names.is_empty() {
        report.obstacles.push(format!(
            "remove Kueue's webhooks: no server answers them any more ({}): kubectl delete {kind} {}",
            names.join(", "),
            metadata.name.as_deref().unwrap_or_default()
        ));
    }
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
                    "remove Kueue's aggregated API, which Sluice's chart makes anew: kubectl delete apiservice {name}"
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

    #[test]
    fn webhooks_that_no_server_answers_are_told_and_no_others() {
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
        let metadata = ObjectMeta { name: Some("hooks".to_owned()), ..ObjectMeta::default() };
        let mut report = Report::default();
        foreign_entries(
            "mutatingwebhookconfiguration",
            &metadata,
            entries.into_iter(),
            "kueue-system",
            &mut report,
        );
        assert_eq!(
            report.obstacles,
            ["remove Kueue's webhooks: no server answers them any more (mother.kb.io): \
              kubectl delete mutatingwebhookconfiguration hooks"]
        );
    }
}
