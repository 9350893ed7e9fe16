//! Job kinds that Kueue's default configuration lists and this build does not queue: their objects that name a queue must be refused, as
//! they would run without quota. A ValidatingAdmissionPolicy of the chart does that; without it the manager ends.

use std::time::Duration;

use axum::http::StatusCode;
use kube::Client;
use serde::de::IgnoredAny;
use sluice_api::config::Configuration;
use sluice_client::error_chain::Chain;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::api_call::{Call, CallError};
use crate::certs::inject::prefix_of;
use crate::shutdown::Stop;

const TIMEOUT: Duration = Duration::from_secs(5);
/// Between two looks at a policy that is there.
const AGAIN: Duration = Duration::from_mins(1);
/// After an answer that says nothing.
const RETRY: Duration = Duration::from_secs(2);

/// The policy that a configuration needs, if it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The name of the policy and of its binding.
    name: String,
    /// The frameworks.
    frameworks: Vec<String>,
}

impl Policy {
    /// What a configuration needs.
    pub fn of(configuration: &Configuration) -> Option<Self> {
        let frameworks: Vec<_> = configuration.refused_frameworks().into_iter().map(str::to_owned).collect();
        let prefix = prefix_of(&configuration.internal_cert_management.webhook_service_name);
        let name = format!("{prefix}-frameworks-not-built");
        (!frameworks.is_empty()).then_some(Self { name, frameworks })
    }

    /// Whether it is in force.
    async fn is_there(&self, client: &Client) -> Result<bool, CallError> {
        for kind in ["validatingadmissionpolicies", "validatingadmissionpolicybindings"] {
            let uri = format!("/apis/admissionregistration.k8s.io/v1/{kind}/{}", self.name);
            match Call::get(uri).metadata_only().send_as::<IgnoredAny>(client, TIMEOUT).await {
                Ok(_) => {}
                Err(error) if is_missing(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn missing(&self) -> String {
        format!(
            "integrations.frameworks lists what this build of Sluice does not queue ({}), and nothing refuses their objects that name a \
             queue: the ValidatingAdmissionPolicy {} or its binding is missing. Install the chart with this configuration, which \
             renders it, or leave these frameworks out",
            self.frameworks.join(", "),
            self.name
        )
    }

    /// Ends the process when the policy is not, or no longer, in force.
    pub async fn guard(self, client: Client, fatal: mpsc::UnboundedSender<String>, mut stop: Stop) {
        let mut seen = false;
        loop {
            let pause = match self.is_there(&client).await {
                Ok(true) => {
                    if !seen {
                        info!(
                            policy = self.name,
                            "objects of frameworks that are not built are refused if they name a queue"
                        );
                    }
                    seen = true;
                    AGAIN
                }
                Ok(false) => {
                    // The receiver lives as long as the process is meant to.
                    let _ = fatal.send(self.missing());
                    return;
                }
                Err(error) => {
                    warn!(error = %Chain(&error), policy = self.name, "an admission policy could not be read");
                    RETRY
                }
            };
            tokio::select! {
                () = sleep(pause) => {}
                () = stop.stopped() => return,
            }
        }
    }
}

/// Whether the answer means that there is none, or none that we may know of: the chart gives the right together with the policy.
fn is_missing(error: &CallError) -> bool {
    let is = |status: StatusCode| error.code() == Some(status.as_u16());
    is(StatusCode::NOT_FOUND) || is(StatusCode::FORBIDDEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(frameworks: &str) -> Option<Policy> {
        let text = format!(
            "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nintegrations: {{frameworks: [{frameworks}]}}\n\
             internalCertManagement: {{webhookServiceName: sluice-webhook-service}}\n"
        );
        Policy::of(&Configuration::parse(&text).unwrap().0)
    }

    #[test]
    fn a_policy_is_needed_where_a_listed_framework_is_not_built() {
        assert_eq!(policy("batch/job, jobset.x-k8s.io/jobset"), None);
        let kueues = "batch/job, kubeflow.org/mpijob, ray.io/rayjob, ray.io/raycluster, jobset.x-k8s.io/jobset, \
                      kubeflow.org/paddlejob, kubeflow.org/pytorchjob, kubeflow.org/tfjob, kubeflow.org/xgboostjob, \
                      workload.codeflare.dev/appwrapper, kubeflow.org/jaxjob, trainer.kubeflow.org/trainjob, pod, \
                      deployment, statefulset, leaderworkerset.x-k8s.io/leaderworkerset";
        let needed = policy(kueues).unwrap();
        assert_eq!(needed.name, "sluice-frameworks-not-built");
        let last = ["leaderworkerset.x-k8s.io/leaderworkerset"];
        assert!(needed.frameworks.ends_with(&last.map(str::to_owned)), "{:?}", needed.frameworks);
        let told = needed.missing();
        assert!(told.contains(&last.join(", ")) && told.contains(&needed.name), "{told}");
    }
}
