//! The admission checks of a Workload: what each says, and its consequence.

use jiff::Timestamp;
use serde_json::Value;
use sluice_engine::{Kind, ObjectRef};

use super::MOST_LISTED;
use super::advice::Advice;
use super::finding::{Check, Code, Finding, Help, State};
use super::view::View;
use crate::duration::show;
use crate::json::text;

/// Findings for checks that are not ready: Retry and Rejected in every state of the Workload, the others while it has quota and is not admitted.
pub(super) fn findings(view: &View<'_>, workload: &Value, state: State, now: Timestamp) -> Vec<Finding> {
    let requeue = &workload["status"]["requeueState"];
    let reported = |check: &Check| match check.state.as_str() {
        "Ready" => None,
        "Retry" => Some(retry(check, state, requeue, now)),
        "Rejected" => Some(rejected(check, workload, state)),
        _ => (state == State::Checking).then(|| waits_for(check)),
    };
    checks(view, workload).iter().filter_map(reported).collect()
}

/// Whether a check is in Retry or Rejected: the Workload cannot be admitted until this check has another state.
pub(super) fn any_failed(workload: &Value) -> bool {
    let mut all = workload["status"]["admissionChecks"].as_array().into_iter().flatten();
    all.any(|check| ["Retry", "Rejected"].contains(&text(&check["state"])))
}

/// The admission checks of a Workload.
pub(super) fn checks(view: &View<'_>, workload: &Value) -> Vec<Check> {
    let all = workload["status"]["admissionChecks"].as_array().into_iter().flatten();
    all.map(|check| {
        let name = text(&check["name"]).to_owned();
        let object = view.cluster(Kind::AdmissionCheck, &name);
        Check {
            provider: provider(view, workload, &name),
            state: text(&check["state"]).to_owned(),
            message: text(&check["message"]).to_owned(),
            retries: check["retryCount"].as_i64().unwrap_or(0),
            retry_after_seconds: check["requeueAfterSeconds"].as_i64(),
            controller: object.map(|o| text(&o["spec"]["controllerName"]).to_owned()),
            name,
        }
    })
    .collect()
}

/// The provider's messages in the conditions of the Workload's ProvisioningRequest for a check.
fn provider(view: &View<'_>, workload: &Value, check: &str) -> Vec<String> {
    let own = crate::object::reference(Kind::Workload, workload);
    let prefix = format!("{}-{check}-", own.name);
    let requests = view.of_kind(Kind::ProvisioningRequest);
    let number = |r: &ObjectRef| r.name.strip_prefix(&*prefix).and_then(|n| n.parse::<u64>().ok());
    let of = requests.into_iter().filter(|(r, _)| r.namespace == own.namespace);
    let last = of.filter_map(|(r, v)| Some((number(r)?, r, v))).max_by_key(|(n, _, _)| *n);
    let Some((_, reference, request)) = last else { return Vec::new() };
    let conditions = request["status"]["conditions"].as_array().into_iter().flatten();
    let line = |c: &Value| {
        let (kind, status) = (text(&c["type"]), text(&c["status"]));
        let (reason, message) = (text(&c["reason"]), text(&c["message"]));
        format!("ProvisioningRequest {}: {kind}={status} ({reason}) {message}", reference.name)
    };
    conditions.take(MOST_LISTED).map(line).collect()
}

/// The message of a check, the number of tries, and the messages of the provider.
fn about(code: Code, check: &Check, what: &str) -> Finding {
    let said = if check.message.is_empty() { "it says nothing more" } else { &check.message };
    let mut finding = Finding::new(code, format!("{what}: {said}"));
    if check.retries > 0 {
        finding = finding.detail(format!("it asked for {} retries so far", check.retries));
    }
    if let Some(seconds) = check.retry_after_seconds {
        finding = finding.detail(format!("it asks for a retry after {seconds} s"));
    }
    finding.details.extend(check.provider.iter().cloned());
    finding
}

fn waits_for(check: &Check) -> Finding {
    let what = format!("it has quota, and the admission check {} is {}", check.name, check.state);
    let name = &check.name;
    let help = match &check.controller {
        Some(controller) => Help::words(
            Advice::AwaitCheck,
            format!(
                "wait for the controller {controller} to set the check {name} to Ready; if it does not, look at its logs"
            ),
        ),
        None => Help::words(
            Advice::CreateCheck,
            format!("create the AdmissionCheck {name} again, or take it out of the ClusterQueue"),
        ),
    };
    about(Code::CheckPending, check, &what).with(help)
}

fn retry(check: &Check, state: State, requeue: &Value, now: Timestamp) -> Finding {
    let what = format!("the admission check {} asks for another attempt (Retry)", check.name);
    let at: Option<Timestamp> = text(&requeue["requeueAt"]).parse().ok().filter(|at| *at > now);
    let when = match (at, check.retry_after_seconds) {
        (Some(at), _) => {
            let left = at.as_second().saturating_sub(now.as_second());
            format!("at {at}, in {}", show(left.saturating_mul(1000)))
        }
        (None, Some(seconds)) if seconds > 0 => format!("{seconds} s after the check said so"),
        _ => "at once".to_owned(),
    };
    let then = match state {
        State::Waiting | State::Deactivated => format!("it gave its quota back, and is queued again {when}"),
        _ => format!("it gives its quota back once its pods are gone, and is queued again {when}"),
    };
    let help = format!("wait: {then}; its checks start again when it next gets quota");
    about(Code::CheckRetry, check, &what).detail(then).with(Help::words(Advice::AwaitRetry, help))
}

fn rejected(check: &Check, workload: &Value, state: State) -> Finding {
    let what = format!("the admission check {} rejects it (Rejected)", check.name);
    let inactive = workload["spec"]["active"] == false;
    let then = match (inactive, state) {
        (true, State::Stopping) => "it is deactivated, and gives its quota back once its pods are gone",
        (true, _) => "it is deactivated; it is not retried until you activate it",
        (false, _) => "the manager deactivates it; it is not retried until you activate it",
    };
    let help = format!(
        "correct what the check {} reports, and activate the Workload then: its checks start again when it next gets quota",
        check.name
    );
    about(Code::CheckRejected, check, &what).detail(then).with(Help::words(Advice::CorrectCheck, help))
}
