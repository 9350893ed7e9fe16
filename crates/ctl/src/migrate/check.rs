//! `sluice migrate check`: reads everything, changes nothing.

use super::definitions::{Definition, Found, definitions};
use super::error::{MigrateError, api_message};
use super::objects::{Tally, look_at_all};
use super::report::{KindLine, Report};
use super::surroundings::{self, Place};

/// The version that Sluice's definitions store.
const STORAGE: &str = "v1beta2";
/// The versions that they know.
const KNOWN: [&str; 2] = ["v1beta1", STORAGE];

/// What the cluster has, what would change, and what is not supported.
///
/// # Errors
///
/// If the API server cannot be reached, or refuses to show the manager, its configuration, lease and webhooks, or the definitions. Objects that
/// cannot be read are part of the report.
pub async fn check(place: &Place) -> Result<Report, MigrateError> {
    let mut report = Report::default();
    let configuration = surroundings::look(place, &mut report).await?.unwrap_or_default();
    let mut tally = Tally::new(configuration.gates).with_external(configuration.external_kinds());
    for definition in definitions(&place.client).await? {
        let line = kind(place, &definition, &mut tally, &mut report).await;
        report.kinds.push(line);
    }
    report.unsupported.extend(tally.unsupported());
    let broken = tally
        .broken()
        .into_iter()
        .map(|line| format!("breaks a rule, and a change of it may be refused: {line}"));
    report.notes.extend(broken);
    report.notes.extend(tally.running().lines(&place.client).await);
    Ok(report)
}

async fn kind(place: &Place, definition: &Definition, tally: &mut Tally, report: &mut Report) -> KindLine {
    let plural = definition.plural.clone();
    let Some(found) = &definition.found else {
        let (stored, change) = ("nothing".to_owned(), "the definition is added".to_owned());
        return KindLine { plural, objects: Some(0), stored, change };
    };
    let strange: Vec<_> = found.stored.iter().filter(|version| !KNOWN.contains(&version.as_str())).collect();
    for version in strange {
        report.obstacles.push(format!(
            "{plural} may be stored in {version}, which Sluice's definition does not know: run `sluice migrate storage` \
             while the present definition is in force"
        ));
    }
    let objects = match look_at_all(&place.client, definition, found, tally).await {
        Ok(count) => Some(count),
        Err(error) => {
            report.obstacles.push(format!("{plural} cannot be read: {}", api_message(&error)));
            None
        }
    };
    KindLine { plural, objects, stored: found.stored.join(", "), change: change(found) }
}

/// What changes for the objects when Sluice's definition is installed over this one.
fn change(found: &Found) -> String {
    if found.storage != STORAGE {
        format!("written in {STORAGE} from then on; then `sluice migrate storage`")
    } else if found.is_clean() {
        "none".to_owned()
    } else {
        "none; `sluice migrate storage` cleans up".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_depends_on_what_is_stored() {
        let found = |storage: &str, stored: &[&str]| Found {
            storage: storage.to_owned(),
            stored: stored.iter().map(|&version| version.to_owned()).collect(),
            served: Vec::new(),
            resource_version: String::new(),
        };
        assert!(change(&found("v1beta1", &["v1beta1"])).starts_with("written in v1beta2"));
        assert!(change(&found("v1beta2", &["v1beta1", "v1beta2"])).contains("cleans up"));
        assert_eq!(change(&found("v1beta2", &["v1beta2"])), "none");
    }
}
