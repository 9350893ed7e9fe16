//! Reviews of the largest objects of each kind.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::Client;
use kube::api::{Api, ListParams};

use crate::strangers::{PERIOD, post, stranger};

/// How many reviews are sent at a time.
const WORKERS: usize = 16;

/// A path of the webhooks for objects, and the group, version and kind that are reviewed there.
#[derive(Clone, Debug)]
pub struct Hook {
    pub path: String,
    kind: [String; 3],
}

/// The webhooks of all kinds, as they are registered with the API server.
pub async fn hooks(client: &Client) -> Vec<Hook> {
    let list = ListParams::default();
    let mutating = Api::<MutatingWebhookConfiguration>::all(client.clone()).list(&list).await.unwrap();
    let validating = Api::<ValidatingWebhookConfiguration>::all(client.clone()).list(&list).await.unwrap();
    let mutating = mutating.items.into_iter().flat_map(|all| all.webhooks.unwrap_or_default());
    let mutating = mutating.map(|hook| (hook.client_config, hook.rules));
    let validating = validating.items.into_iter().flat_map(|all| all.webhooks.unwrap_or_default());
    let validating = validating.map(|hook| (hook.client_config, hook.rules));
    let mut hooks: Vec<_> = mutating
        .chain(validating)
        .map(|(at, rules)| {
            let path = format!("/{}", at.url.unwrap().splitn(4, '/').nth(3).unwrap());
            let rule = rules.unwrap_or_default().remove(0);
            let one = |all: Option<Vec<String>>| all.unwrap_or_default().remove(0);
            let kind = path.rsplit('-').next().unwrap().to_owned();
            Hook { kind: [one(rule.api_groups), one(rule.api_versions), kind], path }
        })
        .collect();
    hooks.sort_by(|one, other| one.path.cmp(&other.path));
    hooks.dedup_by(|one, other| one.path == other.path);
    hooks
}

/// A change of an object of the size that etcd stores: the review has it twice, as it was and as it shall be. Either it is one text, or many
/// small values.
fn review(hook: &Hook, is_dense: bool) -> Vec<u8> {
    const STORED: usize = 3 << 19;
    let content = if is_dense {
        let one = r#"{"name":"V1234567"}"#;
        vec![one; STORED / (one.len() + 1)].join(",")
    } else {
        format!(r#"{{"name":"V","value":"{}"}}"#, "x".repeat(STORED))
    };
    let [group, version, kind] = &hook.kind;
    let object = format!(
        r#"{{"apiVersion":"{group}/{version}","kind":"{kind}","metadata":{{"name":"w","namespace":"honest","labels":{{"kueue.x-k8s.io/queue-name":"lq"}}}},
        "spec":{{"suspend":true,"template":{{"spec":{{"containers":[{{"name":"c","image":"i","env":[{content}]}}]}}}}}}}}"#
    );
    let kind = format!(r#"{{"group":"{group}","version":"{version}","kind":"{kind}"}}"#);
    let request = format!(
        r#""uid":"u","kind":{kind},"requestKind":{kind},"operation":"UPDATE","name":"w","namespace":"honest","userInfo":{{"username":"u"}}"#
    );
    let review = r#""apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview""#;
    format!(r#"{{{review},"request":{{{request},"object":{object},"oldObject":{object},"dryRun":false}}}}"#)
        .into_bytes()
}

/// Each kind has its turn, however slow the machine is. How many reviews there were.
pub async fn flood_of_reviews(port: u16, hooks: &Arc<Vec<Hook>>) -> usize {
    let until = Instant::now() + PERIOD;
    let answered = Arc::new(Mutex::new(BTreeSet::new()));
    let one = async |worker: usize, hooks: Arc<Vec<Hook>>, answered: Arc<Mutex<BTreeSet<String>>>| {
        let client = stranger(port);
        let mut sent = 0;
        for at in (worker..).step_by(WORKERS) {
            if Instant::now() > until && at >= 2 * hooks.len() {
                break;
            }
            let hook = &hooks[at / 2 % hooks.len()];
            let status = post(&client, &hook.path, review(hook, at.is_multiple_of(2))).await;
            assert_ne!(status, Some(404), "{} is no path", hook.path);
            if status == Some(200) {
                answered.lock().unwrap().insert(hook.path.clone());
            }
            sent += 1;
        }
        sent
    };
    let tasks = (0..WORKERS).map(|worker| one(worker, Arc::clone(hooks), Arc::clone(&answered)));
    let sent: usize = futures::future::join_all(tasks).await.into_iter().sum();
    let answered = answered.lock().unwrap();
    assert!(!answered.is_empty(), "no review was answered");
    println!("{} of {} paths answered such reviews", answered.len(), hooks.len());
    sent
}
