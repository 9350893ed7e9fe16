//! What the provider's answer means for the check (docs/reference/06-algorithm.md 6.23 "State mapping").

use sluice_api::labels;
use sluice_api::slim::ProvisioningRequest;
use sluice_api::v1beta2::{CheckState, PodSetUpdate, ProvisioningRequestConfigSpec};

use super::plan::Plan;
use crate::backoff::{Backoff, jittered};

/// The older names of the two annotations, which page 003 of the provider's guide shows.
const OLD_CONSUME: &str = "cluster-autoscaler.kubernetes.io/consume-provisioning-request";
const OLD_CLASS: &str = "cluster-autoscaler.kubernetes.io/provisioning-class-name";

/// The new state of a check.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Verdict {
    /// The state.
    pub state: CheckState,
    /// The text.
    pub message: String,
    /// With Retry: after how many seconds.
    pub requeue_after_seconds: Option<i32>,
    /// With Ready: what the pods get.
    pub updates: Vec<PodSetUpdate>,
}

impl Verdict {
    /// A state with a message and nothing else.
    pub fn plain(state: CheckState, message: impl Into<String>) -> Self {
        Self { state, message: message.into(), requeue_after_seconds: None, updates: Vec::new() }
    }
}

/// What to do about a check.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Nothing.
    Wait,
    /// Set the check to this.
    Say(Verdict),
    /// This attempt is used up: make the next one.
    NextAttempt,
}

/// Before the text of an attempt that failed.
pub(crate) const AFTER_FAILURE: &str = "Retrying after failure";

/// An attempt that failed: it is retried after a while, as often as the configuration allows.
pub(crate) fn failed(
    config: &ProvisioningRequestConfigSpec,
    attempt: i32,
    retries: i32,
    uid: &str,
    why: &str,
    text: &str,
) -> Verdict {
    let strategy = &config.retry_strategy;
    if attempt > strategy.backoff_limit_count {
        return Verdict::plain(CheckState::Rejected, text);
    }
    let backoff =
        Backoff::seconds(i64::from(strategy.backoff_base_seconds), i64::from(strategy.backoff_max_seconds));
    let seconds = jittered(backoff, retries, uid).as_secs();
    let mut verdict = Verdict::plain(CheckState::Retry, format!("{why}: {text}"));
    verdict.requeue_after_seconds = Some(i32::try_from(seconds).unwrap_or(i32::MAX));
    verdict
}

/// The inputs of a verdict.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case<'a> {
    /// The request of the current attempt.
    pub request: &'a ProvisioningRequest,
    /// Which attempt it is.
    pub attempt: i32,
    /// The request.
    pub plan: &'a Plan,
    /// The check's configuration.
    pub config: &'a ProvisioningRequestConfigSpec,
    /// The current state of the check.
    pub state: CheckState,
    /// How often it asked for a retry.
    pub retries: i32,
    /// Whether the workload is admitted.
    pub admitted: bool,
    /// Whether the workload may run at all.
    pub active: bool,
    /// The workload's UID, from which jitter follows.
    pub uid: &'a str,
    /// Whether pods also get the older pair of annotations.
    pub old_annotations: bool,
}

impl Case<'_> {
    /// The text of a condition of that type with that status.
    fn text(&self, type_: &str, status: &str) -> Option<&str> {
        let conditions = &self.request.status.conditions;
        let found = conditions.iter().find(|c| c.type_ == type_ && c.status == status)?;
        Some(&found.message)
    }

    /// What to do.
    pub fn step(&self) -> Step {
        // The core evicts or deactivates first.
        if matches!(self.state, CheckState::Retry | CheckState::Rejected) {
            return Step::Wait;
        }
        if let Some(text) = self.text("Failed", "True") {
            return self.failed(AFTER_FAILURE, text);
        }
        if let Some(text) = self.text("CapacityRevoked", "True") {
            let rejected = Verdict::plain(CheckState::Rejected, text);
            return if self.active { Step::Say(rejected) } else { Step::Wait };
        }
        if let Some(text) = self.text("BookingExpired", "True") {
            // Pods that run use what was booked.
            return if self.admitted {
                Step::Wait
            } else {
                self.failed("Retrying after booking expired", text)
            };
        }
        if let Some(text) = self.text("Provisioned", "True") {
            let ready = Verdict { updates: self.updates(), ..Verdict::plain(CheckState::Ready, text) };
            return Step::Say(ready);
        }
        Step::Say(Verdict::plain(CheckState::Pending, self.waiting().unwrap_or_default()))
    }

    /// What a waiting user should know: when nodes come, or that the provider's quota stands in the way.
    fn waiting(&self) -> Option<&str> {
        let accepted = self.text("Accepted", "True").is_some();
        let provisioned = self.request.status.conditions.iter().find(|c| c.type_ == "Provisioned")?;
        (accepted || provisioned.reason == "QuotaExceeded").then_some(provisioned.message.as_str())
    }

    fn failed(&self, why: &str, text: &str) -> Step {
        if self.retries >= self.attempt {
            return Step::NextAttempt;
        }
        Step::Say(failed(self.config, self.attempt, self.retries, self.uid, why, text))
    }

    /// The additions to the pods: which request they consume, and where its nodes are.
    fn updates(&self) -> Vec<PodSetUpdate> {
        let name = self.request.metadata.name.clone().unwrap_or_default();
        let class = self.request.spec.provisioning_class_name.clone();
        let mut annotations = vec![
            (labels::CONSUME_PROVISIONING_REQUEST.to_owned(), name.clone()),
            (labels::PROVISIONING_CLASS_NAME.to_owned(), class.clone()),
        ];
        if self.old_annotations {
            annotations.extend([(OLD_CONSUME.to_owned(), name), (OLD_CLASS.to_owned(), class)]);
        }
        let details = &self.request.status.provisioning_class_details;
        let selectors = self.config.pod_set_updates.iter().flat_map(|u| &u.node_selector);
        let node_selector: Vec<_> = selectors
            .filter_map(|s| {
                Some((s.key.clone(), details.get(&s.value_from_provisioning_class_detail)?.clone()))
            })
            .collect();
        let update = |pod_set: &String| PodSetUpdate {
            name: pod_set.clone(),
            annotations: annotations.iter().cloned().collect(),
            node_selector: node_selector.iter().cloned().collect(),
            ..PodSetUpdate::default()
        };
        self.plan.groups.iter().flat_map(|g| &g.pod_sets).map(update).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn step(conditions: &Value, change: impl FnOnce(&mut Case<'_>)) -> Step {
        let request: ProvisioningRequest = serde_json::from_value(json!({
            "metadata": {"name": "w-prov-1"},
            "spec": {"provisioningClassName": "queued"},
            "status": {"conditions": conditions, "provisioningClassDetails": {"Zone": "z1"}},
        }))
        .unwrap();
        let config: ProvisioningRequestConfigSpec = serde_json::from_value(json!({
            "provisioningClassName": "queued",
            "podSetUpdates": {"nodeSelector": [
                {"key": "zone", "valueFromProvisioningClassDetail": "Zone"},
                {"key": "rack", "valueFromProvisioningClassDetail": "Rack"}]},
        }))
        .unwrap();
        let group = super::super::plan::Group { pod_sets: vec!["a".to_owned(), "b".to_owned()], count: 2 };
        let plan = Plan { class: "queued".to_owned(), parameters: [].into(), groups: vec![group] };
        let mut case = Case {
            request: &request,
            attempt: 1,
            plan: &plan,
            config: &config,
            state: CheckState::Pending,
            retries: 0,
            admitted: false,
            active: true,
            uid: "u",
            old_annotations: false,
        };
        change(&mut case);
        case.step()
    }

    fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({"type": type_, "status": status, "reason": reason, "message": message})
    }

    fn said(state: CheckState, message: &str, seconds: Option<i32>) -> Step {
        Step::Say(Verdict { requeue_after_seconds: seconds, ..Verdict::plain(state, message) })
    }

    #[test]
    fn nothing_said_is_pending_without_a_text() {
        assert_eq!(step(&json!([]), |_| {}), said(CheckState::Pending, "", None));
        let not_yet = json!([condition("Provisioned", "False", "NotProvisioned", "not yet")]);
        assert_eq!(step(&not_yet, |_| {}), said(CheckState::Pending, "", None));
    }

    #[test]
    fn an_accepted_request_says_when_its_nodes_come() {
        let accepted =
            json!([condition("Accepted", "True", "", "ok"), condition("Provisioned", "False", "x", "in 5m")]);
        assert_eq!(step(&accepted, |_| {}), said(CheckState::Pending, "in 5m", None));
    }

    #[test]
    fn an_exceeded_quota_is_reported_even_before_the_request_is_accepted() {
        let text = "Quota 'NVIDIA_P4_GPUS' exceeded. Limit: 1.0 in region europe-west4.";
        let exceeded = json!([condition("Provisioned", "False", "QuotaExceeded", text)]);
        assert_eq!(step(&exceeded, |_| {}), said(CheckState::Pending, text, None));
    }

    #[test]
    fn provisioned_nodes_make_it_ready_with_what_the_pods_need() {
        let provisioned = json!([condition("Provisioned", "True", "", "there")]);
        let Step::Say(verdict) = step(&provisioned, |c| c.old_annotations = true) else { unreachable!() };
        assert_eq!((verdict.state, verdict.message.as_str()), (CheckState::Ready, "there"));
        let names: Vec<_> = verdict.updates.iter().map(|u| u.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        let update = &verdict.updates[0];
        assert_eq!(update.node_selector, [("zone".to_owned(), "z1".to_owned())].into());
        let expected = [
            ("autoscaling.x-k8s.io/consume-provisioning-request", "w-prov-1"),
            ("autoscaling.x-k8s.io/provisioning-class-name", "queued"),
            ("cluster-autoscaler.kubernetes.io/consume-provisioning-request", "w-prov-1"),
            ("cluster-autoscaler.kubernetes.io/provisioning-class-name", "queued"),
        ];
        assert_eq!(update.annotations, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    }

    #[test]
    fn a_failure_is_retried_with_growing_waits_up_to_the_limit() {
        let failed = json!([condition("Failed", "True", "", "no stock")]);
        let text = "Retrying after failure: no stock";
        assert_eq!(step(&failed, |_| {}), said(CheckState::Retry, text, Some(60)));
        let at = |attempt, retries| step(&failed, |c| (c.attempt, c.retries) = (attempt, retries));
        assert_eq!(at(3, 2), said(CheckState::Retry, text, Some(240)));
        assert_eq!(at(4, 3), said(CheckState::Rejected, "no stock", None));
        assert_eq!(at(1, 1), Step::NextAttempt);
        assert_eq!(step(&failed, |c| c.state = CheckState::Retry), Step::Wait);
    }

    #[test]
    fn an_expired_booking_counts_only_while_nothing_runs_on_it() {
        let expired = json!([
            condition("Provisioned", "True", "", "there"),
            condition("BookingExpired", "True", "", "ten minutes are over")
        ]);
        let text = "Retrying after booking expired: ten minutes are over";
        assert_eq!(step(&expired, |_| {}), said(CheckState::Retry, text, Some(60)));
        assert_eq!(step(&expired, |c| c.admitted = true), Step::Wait);
    }

    #[test]
    fn revoked_capacity_rejects_even_what_runs() {
        let revoked = json!([
            condition("Provisioned", "True", "", "there"),
            condition("CapacityRevoked", "True", "", "taken")
        ]);
        let admitted = |c: &mut Case<'_>| (c.admitted, c.state) = (true, CheckState::Ready);
        assert_eq!(step(&revoked, admitted), said(CheckState::Rejected, "taken", None));
        assert_eq!(step(&revoked, |c| c.active = false), Step::Wait);
    }
}
