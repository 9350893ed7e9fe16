//! Scraping a manager as Prometheus does: over TLS, with the token of an account that may read `/metrics`.

use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::{Client, Config};
use tokio::sync::OnceCell;

use crate::kubectl;
use crate::manager::Manager;
use crate::plane::ControlPlane;
use crate::wait::{eventually, progress};

/// Until the API server knows a right, on a busy machine.
const DEADLINE: Duration = Duration::from_mins(3);

/// The account that scrapes, and its right.
const READER: &str = r"
apiVersion: v1
kind: ServiceAccount
metadata: {name: test-metrics-reader, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: test-metrics-reader}
rules:
- {nonResourceURLs: [/metrics], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-metrics-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: test-metrics-reader}
subjects:
- {kind: ServiceAccount, namespace: kube-system, name: test-metrics-reader}
";

/// Reads the metrics of managers of one plane.
#[derive(Debug)]
pub struct Scraper<'a> {
    plane: &'a ControlPlane,
    token: OnceCell<String>,
}

impl<'a> Scraper<'a> {
    /// A scraper for the managers of this plane; it makes its account when it first scrapes.
    pub fn new(plane: &'a ControlPlane) -> Self {
        Self { plane, token: OnceCell::new() }
    }

    async fn token(&self) -> Result<&str> {
        let token = self.token.get_or_try_init(|| async {
            kubectl::apply(self.plane, READER).await?;
            wait_until_allowed(self.plane, "kube-system", "test-metrics-reader").await?;
            self.plane.token_of_service_account("kube-system", "test-metrics-reader").await
        });
        Ok(token.await?)
    }

    /// The text of one scrape.
    ///
    /// # Errors
    ///
    /// If the account or its token cannot be made, the manager's metrics port cannot be reached, or it refuses the request.
    pub async fn scrape(&self, manager: &Manager) -> Result<String> {
        let address = format!("https://127.0.0.1:{}", manager.setup().metrics);
        let mut config = Config::new(address.parse().context("reading the metrics address")?);
        config.default_retry = false;
        // The manager makes its own certificate, for the name of its Service.
        config.accept_invalid_certs = true;
        config.auth_info.token = Some(self.token().await?.to_owned().into());
        let client = Client::try_from(config).context("making the scraper's client")?;
        let request = http::Request::get("/metrics").body(Vec::new()).context("making the scrape")?;
        client.request_text(request).await.context("scraping /metrics")
    }
}

/// Waits until a service account may read `/metrics`: the API server learns of its role from a watch, and a manager remembers for a while that it
/// refused someone.
///
/// # Errors
///
/// If the API server does not allow it within three minutes.
pub async fn wait_until_allowed(plane: &ControlPlane, namespace: &str, account: &str) -> Result<()> {
    let user = format!("--as=system:serviceaccount:{namespace}:{account}");
    eventually(&format!("{account} to be allowed to read /metrics"), DEADLINE, || async {
        let said = kubectl::kubectl(plane, &["auth", "can-i", "get", "/metrics", &user]).await?;
        Ok(progress(said.trim() == "yes", said))
    })
    .await
}

/// The sum of the samples of a metric whose labels contain all of `labels` (as in `cluster_queue="a"`); `None` without any.
pub fn sum(text: &str, name: &str, labels: &[&str]) -> Option<f64> {
    let mut found = None;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let (metric, rest) = series.split_once('{').unwrap_or((series, ""));
        if metric == name && labels.iter().all(|label| has_label(rest, label)) {
            *found.get_or_insert(0.0) += value.parse::<f64>().unwrap_or(f64::NAN);
        }
    }
    found
}

fn has_label(labels: &str, wanted: &str) -> bool {
    labels.match_indices(wanted).any(|(at, _)| {
        let before = labels[..at].chars().next_back();
        let after = labels[at + wanted.len()..].chars().next();
        matches!(before, None | Some(',')) && matches!(after, Some(',' | '}'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP kueue_pending_workloads x\n\
        kueue_pending_workloads{cluster_queue=\"a\",status=\"active\"} 2\n\
        kueue_pending_workloads{cluster_queue=\"a\",status=\"inadmissible\"} 3\n\
        kueue_pending_workloads{cluster_queue=\"ab\",status=\"active\"} 7\n\
        up 1\n";

    #[test]
    fn samples_are_picked_by_whole_labels_and_summed() {
        assert_eq!(sum(TEXT, "kueue_pending_workloads", &["cluster_queue=\"a\""]), Some(5.0));
        let active = ["status=\"active\"", "cluster_queue=\"ab\""];
        assert_eq!(sum(TEXT, "kueue_pending_workloads", &active), Some(7.0));
        assert_eq!(sum(TEXT, "kueue_pending_workloads", &["queue=\"a\""]), None);
        assert_eq!(sum(TEXT, "up", &[]), Some(1.0));
    }
}
