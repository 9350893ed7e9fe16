//! Which kinds the API server serves.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::Client;
use serde::Deserialize;

use crate::api_call::{Call, CallError};

const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
struct ResourceList {
    resources: Vec<ApiResource>,
}

#[derive(Deserialize)]
struct ApiResource {
    name: String,
}

/// The plurals that a group and version has; none when the group itself is unknown.
pub async fn served(client: &Client, group: &str, version: &str) -> Result<BTreeSet<String>, CallError> {
    let call = Call::get(format!("/apis/{group}/{version}"));
    match call.send_as::<ResourceList>(client, TIMEOUT).await {
        Ok(list) => Ok(list.resources.into_iter().map(|resource| resource.name).collect()),
        Err(error) if error.code() == Some(404) => Ok(BTreeSet::new()),
        Err(error) => Err(error),
    }
}

/// Which of `wanted` are missing among those that are served, as CRD names.
pub fn missing(served: &BTreeSet<String>, wanted: &[&str], group: &str) -> Vec<String> {
    wanted
        .iter()
        .filter(|&&plural| !served.contains(plural))
        .map(|plural| format!("{plural}.{group}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_crds_are_named_in_full() {
        let served = BTreeSet::from(["workloads".to_owned(), "workloads/status".to_owned()]);
        assert_eq!(missing(&served, &["cohorts", "workloads"], "kueue.x-k8s.io"), ["cohorts.kueue.x-k8s.io"]);
    }
}
