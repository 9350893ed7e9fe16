//! Whether the manager has the rights that the configured job kinds need. Without the right to watch or to stop jobs of a kind it would let them run
//! without quota: it exits with a message that names the missing rights and the chart's value that grants them.
//!
//! A kind whose CRD is not installed is looked for again until it is (docs/reference/07-integrations.md 7.1); its rights are needed from the start.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use axum::http::Method;
use futures::stream::{StreamExt as _, TryStreamExt as _, iter};
use kube::Client;
use serde::Deserialize;
use serde_json::json;
use sluice_api::job::{Integration, JobKind};
use sluice_client::error_chain::Chain;
use tracing::{debug, info, warn};

use crate::api_call::{Call, CallError, Content};
use crate::shutdown::Stop;
use crate::supervise::Supervisor;

const TIMEOUT: Duration = Duration::from_secs(5);
/// After an answer that says nothing.
const RETRY: Duration = if cfg!(test) { Duration::from_millis(2) } else { Duration::from_secs(2) };
/// The pause between two checks of a missing right: it may have been granted a moment ago.
const AGAIN: Duration = if cfg!(test) { Duration::from_millis(1) } else { Duration::from_secs(1) };
/// How often a missing right is checked: for 15 s, in which an API server that has just started learns of rights. Until then it denies all of them.
const LOOKS: u32 = 16;
/// Questions at a time.
const AT_ONCE: usize = 8;

/// A right in the whole cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Right {
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
    verb: &'static str,
}

impl fmt::Display for Right {
    /// As in `patch jobsets.jobset.x-k8s.io/status`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        for (separator, part) in [(".", self.group), ("/", self.subresource)] {
            if !part.is_empty() {
                write!(f, "{separator}{part}")?;
            }
        }
        Ok(())
    }
}

/// The rights that an entry of the configuration needs.
#[derive(Clone, Debug)]
pub struct Need {
    /// The entry.
    entry: String,
    /// The value of the chart that grants it.
    granted_by: &'static str,
    rights: BTreeSet<Right>,
}

/// The rights that the configured job kinds need.
pub fn needs(jobs: &[JobKind]) -> Vec<Need> {
    jobs.iter().map(|kind| of_jobs(*kind)).collect()
}

fn of_jobs(kind: JobKind) -> Need {
    let mut rights = BTreeSet::new();
    let mut add = |(group, resource): (&'static str, &'static str), subresource, verbs: &[&'static str]| {
        rights.extend(verbs.iter().map(|&verb| Right { group, resource, subresource, verb }));
    };
    let named = |kind: JobKind| (kind.group(), kind.plural());
    add(named(kind), "", &["delete", "get", "list", "patch", "watch"]);
    add(named(kind), "status", &["patch"]);
    for template in kind.templates() {
        add((template.group(), template.plural()), "", &["get", "list", "watch"]);
    }
    for part in kind.descendants() {
        add(named(part), "", &["delete", "list", "watch"]);
        if kind.changes_parts() {
            add(named(part), "", &["get", "patch"]);
        }
        if part.integration().confirms_stops {
            add(named(part), "status", &["patch"]);
        }
    }
    let Integration { of_pods, suspends_pods, enforces_stops, .. } = *kind.integration();
    if !(of_pods || suspends_pods || enforces_stops) {
        // To delete the pods of a stopped job that its controller leaves running.
        add(("", "pods"), "", &["delete", "list"]);
    }
    let (list, granted_by) = if kind.is_declared() {
        ("integrations.declared", "managerConfig.declaredKinds")
    } else {
        ("integrations.frameworks", "managerConfig.controllerManagerConfigYaml")
    };
    Need { entry: format!("{list} {:?}", kind.framework()), granted_by, rights }
}

/// The rights that a kind needs that another controller manages.
pub fn of_external(kind: JobKind) -> Need {
    let (group, resource) = (kind.group(), kind.plural());
    let entry = format!("{}.{}.{group}", kind.kind(), kind.version());
    Need {
        entry: format!("integrations.externalFrameworks {entry:?}"),
        granted_by: "managerConfig.controllerManagerConfigYaml, with managerConfig.externalPlurals",
        rights: ["list", "watch"].map(|verb| Right { group, resource, subresource: "", verb }).into(),
    }
}

#[derive(Deserialize)]
struct Review {
    status: ReviewStatus,
}

#[derive(Deserialize)]
struct ReviewStatus {
    #[serde(default)]
    allowed: bool,
}

/// Ends the process if anything is missing. Asks until there is an answer.
pub async fn guard(client: Client, needs: Vec<Need>, supervisor: Supervisor, mut stop: Stop) {
    let mut looks = 0;
    let mut complained = false;
    loop {
        let pause = match missing(&client, &needs).await {
            Ok(missing) if missing.is_empty() => {
                debug!(entries = needs.len(), "the manager has the rights that its job kinds need");
                return;
            }
            Ok(missing) => {
                looks += 1;
                if looks >= LOOKS {
                    return supervisor.fatal(reported(&missing));
                }
                if looks == 1 {
                    info!(missing = missing.len(), "rights are missing: checking again");
                }
                AGAIN
            }
            Err(error) => {
                if !std::mem::replace(&mut complained, true) {
                    warn!(error = %Chain(&error), "it is not known whether the manager has the rights that it needs");
                }
                RETRY
            }
        };
        if !stop.sleep(pause).await {
            return;
        }
    }
}

/// The needs, each with its missing rights; without those that miss none.
async fn missing(client: &Client, needs: &[Need]) -> Result<Vec<Need>, CallError> {
    let all: BTreeSet<Right> = needs.iter().flat_map(|need| &need.rights).copied().collect();
    let answers = iter(all).map(|right| async move { may(client, right).await.map(|may| (right, may)) });
    let answers: Vec<_> = answers.buffered(AT_ONCE).try_collect().await?;
    let lacking: BTreeSet<_> = answers.into_iter().filter(|(_, may)| !may).map(|(right, _)| right).collect();
    let cut = needs
        .iter()
        .map(|need| Need { rights: need.rights.intersection(&lacking).copied().collect(), ..need.clone() });
    Ok(cut.filter(|need| !need.rights.is_empty()).collect())
}

async fn may(client: &Client, right: Right) -> Result<bool, CallError> {
    let Right { group, resource, subresource, verb } = right;
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "group": group, "resource": resource, "subresource": subresource, "verb": verb,
        }},
    });
    let uri = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let call = Call::with_body(Method::POST, uri, Content::Json, &review);
    Ok(call.send_as::<Review>(client, TIMEOUT).await?.status.allowed)
}

/// The message with what is missing, and what to do.
fn reported(missing: &[Need]) -> String {
    let entries = missing.iter().map(|need| {
        let rights: Vec<_> = need.rights.iter().map(ToString::to_string).collect();
        format!("{} needs: {} (the chart grants it by {})", need.entry, rights.join(", "), need.granted_by)
    });
    format!(
        "the manager lacks rights that its configuration needs; jobs of these kinds would run without quota: {}. Install the chart with this \
         configuration, or leave the entry out",
        entries.collect::<Vec<_>>().join("; ")
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use axum::body::Bytes;
    use axum::http::Uri;
    use serde_json::Value;

    use super::*;
    use crate::fake_api::{self, failed, found};
    use crate::supervise::tests::supervisor;

    /// An API server that allows all but these rights, given as they are displayed.
    fn server(denied: &'static [&'static str]) -> (Client, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let questions = Arc::clone(&asked);
        let client = fake_api::client(move |_: Method, uri: Uri, body: Bytes| {
            assert_eq!(uri.path(), "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews");
            let review: Value = serde_json::from_slice(&body).unwrap();
            let asks = &review["spec"]["resourceAttributes"];
            let part = |name: &str, before: &str| {
                let text = asks[name].as_str().unwrap();
                if text.is_empty() { String::new() } else { format!("{before}{text}") }
            };
            let question = format!(
                "{} {}{}{}",
                asks["verb"].as_str().unwrap(),
                part("resource", ""),
                part("group", "."),
                part("subresource", "/")
            );
            let allowed = !denied.contains(&question.as_str());
            questions.lock().unwrap().push(question);
            async move { found(&json!({"status": {"allowed": allowed}})) }
        });
        (client, asked)
    }

    #[tokio::test]
    async fn what_is_missing_is_said_with_its_verb_its_resource_and_what_grants_it() {
        let (client, asked) =
            server(&["list jobsets.jobset.x-k8s.io", "patch jobsets.jobset.x-k8s.io/status"]);
        let lacking = missing(&client, &needs(&[JobKind::JOB, JobKind::JOB_SET])).await.unwrap();
        let text = reported(&lacking);
        assert!(
            text.contains(
                "integrations.frameworks \"jobset.x-k8s.io/jobset\" needs: list jobsets.jobset.x-k8s.io, \
                 patch jobsets.jobset.x-k8s.io/status (the chart grants it by managerConfig.controllerManagerConfigYaml)"
            ) && !text.contains("batch/job"),
            "{text}"
        );
        let asked = asked.lock().unwrap().clone();
        let once: BTreeSet<_> = asked.iter().collect();
        assert_eq!(once.len(), asked.len(), "nothing is asked twice");
        assert!(missing(&server(&[]).0, &needs(&JobKind::ALL)).await.unwrap().is_empty());
    }

    #[test]
    fn parts_and_templates_belong_to_what_a_kind_needs() {
        let texts = |need: Need| need.rights.iter().map(ToString::to_string).collect::<Vec<_>>();
        let train = texts(of_jobs(JobKind::TRAIN_JOB));
        for right in [
            "watch trainjobs.trainer.kubeflow.org",
            "list clustertrainingruntimes.trainer.kubeflow.org",
            "delete jobsets.jobset.x-k8s.io",
            "patch jobs.batch/status",
        ] {
            assert!(train.iter().any(|one| one == right), "{right}: {train:?}");
        }
        assert!(!train.contains(&"patch jobsets.jobset.x-k8s.io".to_owned()), "{train:?}");
        assert!(texts(of_jobs(JobKind::RAY_JOB)).contains(&"patch rayclusters.ray.io".to_owned()));
        for (kind, needed) in [(JobKind::POD, true), (JobKind::MPI_JOB, true), (JobKind::JOB, false)] {
            assert_eq!(texts(of_jobs(kind)).contains(&"delete pods".to_owned()), needed, "{kind:?}");
        }
        let external = of_external(JobKind::external("Errand.v1.rights.example.com").unwrap());
        assert_eq!(external.entry, "integrations.externalFrameworks \"Errand.v1.rights.example.com\"");
        assert_eq!(texts(external), ["list errands.rights.example.com", "watch errands.rights.example.com"]);
    }

    #[tokio::test]
    async fn a_right_that_stays_missing_ends_the_process_and_one_that_comes_does_not() {
        let (_stopper, stop) = crate::shutdown::pair();
        let (client, asked) = server(&["watch jobs.batch"]);
        let (guarded, mut fatal, _guarding) = supervisor();
        guard(client, needs(&[JobKind::JOB]), guarded, stop.clone()).await;
        let why = fatal.try_recv().unwrap();
        assert!(why.contains("watch jobs.batch"), "{why}");
        let looks = usize::try_from(LOOKS).unwrap();
        assert_eq!(asked.lock().unwrap().len(), 6 * looks, "a right may come for a while");

        // The API server does not answer at first, and then does not know of any grant for some seconds.
        let calls = Arc::new(AtomicUsize::new(0));
        let client = fake_api::client(move |_: Method, _: Uri, _: Bytes| {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            async move {
                match call {
                    0 | 1 => failed(503, "ServiceUnavailable"),
                    _ => found(&json!({"status": {"allowed": call > 2 * 10}})),
                }
            }
        });
        let late = of_external(JobKind::external("Late.v1.rights.example.com").unwrap());
        let (guarded, mut fatal, _guarding) = supervisor();
        guard(client, vec![late], guarded, stop).await;
        assert!(fatal.try_recv().is_err());
    }
}
