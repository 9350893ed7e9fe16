//! Rewriting stored objects.
//!
//! An empty change, guarded by the resourceVersion, makes the API server write an object again in the current storage version. An object that is in
//! that version already is not written, so the step can be interrupted and repeated at any time: finished objects cost a read. The older versions are
//! removed from `status.storedVersions` only after a whole pass over a kind, and only if its definition has not changed since.

use futures::StreamExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::core::{ObjectMeta, PartialObjectMeta};
use serde_json::json;

use super::definitions::{Definition, Found};
use super::error::{MigrateError, api_message, code};

/// Writes under way at the same time.
const IN_FLIGHT: usize = 8;
/// How often a list may expire before the step gives up.
const EXPIRATIONS: u32 = 5;
/// How often the definition's status is tried when another client writes it.
const ATTEMPTS: u32 = 5;

/// The result for one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The cluster does not know the kind.
    Unknown,
    /// Every object was in the right version already.
    Clean,
    /// The number of rewritten objects; `status.storedVersions` has only this version.
    Done {
        /// How many objects there were.
        objects: usize,
        /// The stored version.
        version: String,
    },
    /// Some objects could not be rewritten; `status.storedVersions` stays as it was.
    Refused {
        /// How many were rewritten.
        objects: usize,
        /// Which were not, and why.
        failures: Vec<String>,
    },
    /// The definition changed meanwhile: the step has to be repeated.
    Changed,
}

/// Rewrites the objects of one kind. `progress` receives the number of finished objects, page by page.
///
/// # Errors
///
/// If the objects cannot be listed, their list expires more than five times, or the definition cannot be read or its status cannot be written.
/// Objects that cannot be rewritten are no error: see [`Outcome::Refused`].
pub async fn migrate_storage(
    client: &Client,
    definition: &mut Definition,
    page: u32,
    progress: impl Fn(usize),
) -> Result<Outcome, MigrateError> {
    let Some(found) = definition.found.clone() else { return Ok(Outcome::Unknown) };
    if found.is_clean() {
        return Ok(Outcome::Clean);
    }
    let (objects, failures) = rewrite_all(client, definition, &found.storage, page, progress).await?;
    if !failures.is_empty() {
        return Ok(Outcome::Refused { objects, failures });
    }
    if clean_up(client, definition, &found).await? {
        Ok(Outcome::Done { objects, version: found.storage })
    } else {
        Ok(Outcome::Changed)
    }
}

async fn rewrite_all(
    client: &Client,
    definition: &Definition,
    version: &str,
    page: u32,
    progress: impl Fn(usize),
) -> Result<(usize, Vec<String>), MigrateError> {
    let api = definition.objects(client, version);
    let (mut done, mut failures, mut expired) = (0, Vec::new(), 0);
    let mut params = ListParams::default().limit(page);
    loop {
        let list = match api.list_metadata(&params).await {
            Ok(list) => list,
            Err(error) if code(&error) == Some(410) && expired < EXPIRATIONS => {
                // Rewritten objects cost only a read the second time.
                (expired, done, params) = (expired + 1, 0, ListParams::default().limit(page));
                failures.clear();
                continue;
            }
            Err(error) if code(&error) == Some(410) => {
                return Err(MigrateError::Expired { plural: definition.plural.clone(), times: expired });
            }
            Err(error) => return Err(MigrateError::api(format!("listing {}", definition.plural))(error)),
        };
        let next = list.metadata.continue_.clone().filter(|token| !token.is_empty());
        let writes = list
            .items
            .into_iter()
            .map(|object: PartialObjectMeta<_>| rewrite(client, definition, version, object.metadata));
        let answers: Vec<_> = futures::stream::iter(writes).buffer_unordered(IN_FLIGHT).collect().await;
        done += answers.iter().filter(|answer| answer.is_ok()).count();
        failures.extend(answers.into_iter().filter_map(Result::err));
        progress(done);
        match next {
            Some(token) => params = ListParams::default().limit(page).continue_token(&token),
            None => return Ok((done, failures)),
        }
    }
}

/// Makes the API server write one object again; the error names it.
async fn rewrite(
    client: &Client,
    definition: &Definition,
    version: &str,
    metadata: ObjectMeta,
) -> Result<(), String> {
    let name = metadata.name.unwrap_or_default();
    let namespace = metadata.namespace.as_deref();
    let api = definition.objects_in(client, version, namespace);
    let patch = json!({"metadata": {"resourceVersion": metadata.resource_version, "uid": metadata.uid}});
    match api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        // Another client has written or removed it since it was listed: that serves as well.
        Err(error) if matches!(code(&error), Some(404 | 409)) => Ok(()),
        Err(error) => {
            let place = namespace.map(|namespace| format!("{namespace}/")).unwrap_or_default();
            Err(format!("{} {place}{name}: {}", definition.plural, api_message(&error)))
        }
    }
}

/// Leaves only the stored version in the definition's status. False if the definition stores another version by now.
async fn clean_up(client: &Client, definition: &mut Definition, began: &Found) -> Result<bool, MigrateError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = definition.name();
    for _ in 0..ATTEMPTS {
        definition.refresh(client).await?;
        let Some(now) = definition.found.as_ref().filter(|now| now.storage == began.storage) else {
            return Ok(false);
        };
        let patch = json!({
            "metadata": {"resourceVersion": now.resource_version},
            "status": {"storedVersions": [began.storage]},
        });
        match api.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => {
                definition.refresh(client).await?;
                return Ok(true);
            }
            Err(error) if code(&error) == Some(409) => {}
            Err(error) => {
                return Err(MigrateError::api(format!("writing storedVersions of the definition {name}"))(
                    error,
                ));
            }
        }
    }
    Ok(false)
}
