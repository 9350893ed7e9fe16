//! How many pods of a Job may be deleted before its controller fails it.

use serde_json::Value;

use crate::object;

/// The default of `backoffLimit`.
const BACKOFF_LIMIT: i64 = 6;
/// The exit codes of containers that receive SIGTERM: killed by the signal, or a program that exits because of it.
const STOPPED: [i64; 4] = [1, 130, 137, 143];
/// The condition of a pod that is deleted because of a disruption.
const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// How the controller counts a deleted pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// It is only replaced.
    Ignored,
    /// It counts as failed.
    Counted,
    /// The Job, or its index, fails with it.
    Fatal,
}

/// How many running pods may be deleted, with the condition `DisruptionTarget`, before the Job fails; none if another controller than that of
/// Kubernetes decides about it.
pub(super) fn failures(spec: &Value, status: &Value) -> Option<u32> {
    if spec["managedBy"].as_str().is_some_and(|by| by != "kubernetes.io/job-controller") {
        return None;
    }
    Some(match loss(&spec["podFailurePolicy"]["rules"]) {
        Loss::Ignored => u32::MAX,
        // Each index has failures of its own, and how many is not in the status.
        Loss::Counted if spec["backoffLimitPerIndex"].is_null() => {
            let limit = spec["backoffLimit"].as_i64().unwrap_or(BACKOFF_LIMIT);
            let uncounted = status["uncountedTerminatedPods"]["failed"].as_array().map_or(0, Vec::len);
            let failed = i64::from(object::int(&status["failed"]).unwrap_or(0))
                .saturating_add(i64::try_from(uncounted).unwrap_or(i64::MAX));
            u32::try_from(limit.saturating_sub(failed).max(0)).unwrap_or(u32::MAX)
        }
        Loss::Counted | Loss::Fatal => 0,
    })
}

/// The effect of the first rule that may match a deleted pod.
fn loss(rules: &Value) -> Loss {
    let matching = rules.as_array().into_iter().flatten().find(|rule| may_match(rule));
    match matching.map(|rule| rule["action"].as_str().unwrap_or_default()) {
        Some("Ignore") => Loss::Ignored,
        Some("Count") | None => Loss::Counted,
        Some(_) => Loss::Fatal,
    }
}

fn may_match(rule: &Value) -> bool {
    let conditions = rule["onPodConditions"].as_array().into_iter().flatten();
    let mut conditions = conditions
        .filter(|one| one["type"] == DISRUPTION_TARGET && one["status"].as_str().unwrap_or("True") == "True");
    let codes = &rule["onExitCodes"];
    let listed = |code: &i64| {
        codes["values"].as_array().into_iter().flatten().any(|value| value.as_i64() == Some(*code))
    };
    let by_code = match codes["operator"].as_str() {
        Some("In") => STOPPED.iter().any(listed),
        Some(_) => true,
        None => false,
    };
    // Where a code alone lets a pod be ignored, it is not known whether it ends by that.
    conditions.next().is_some() || by_code && rule["action"] != "Ignore"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(spec: &Value, failed: i64) -> Option<u32> {
        failures(spec, &json!({"failed": failed, "uncountedTerminatedPods": {"failed": ["u1"]}}))
    }

    #[test]
    fn failures_count_up_to_the_limit() {
        assert_eq!(failures(&json!({}), &json!({})), Some(6));
        assert_eq!(of(&json!({"backoffLimit": 9}), 2), Some(6));
        assert_eq!(of(&json!({"backoffLimit": 1}), 2), Some(0));
        assert_eq!(of(&json!({"backoffLimit": 9, "backoffLimitPerIndex": 1}), 0), Some(0));
        assert_eq!(of(&json!({"managedBy": "example.com/other"}), 0), None);
        assert_eq!(of(&json!({"managedBy": "kubernetes.io/job-controller"}), 0), Some(5));
    }

    #[test]
    fn the_first_rule_that_may_match_a_deleted_pod_decides() {
        let rule = |action: &str, more: Value| {
            let mut rule = more;
            rule["action"] = json!(action);
            rule
        };
        let disrupted = || json!({"onPodConditions": [{"type": "DisruptionTarget"}]});
        let codes =
            |operator: &str, values: &[i64]| json!({"onExitCodes": {"operator": operator, "values": values}});
        let other = || json!({"onPodConditions": [{"type": "ConfigIssue", "status": "True"}]});
        let refuted = || json!({"onPodConditions": [{"type": "DisruptionTarget", "status": "False"}]});
        for (rules, left) in [
            (vec![rule("Ignore", disrupted())], u32::MAX),
            (vec![rule("FailJob", codes("In", &[42])), rule("Ignore", disrupted())], u32::MAX),
            (vec![rule("FailJob", codes("In", &[143])), rule("Ignore", disrupted())], 0),
            (vec![rule("FailJob", codes("In", &[1])), rule("Ignore", disrupted())], 0),
            (vec![rule("FailJob", codes("NotIn", &[42])), rule("Ignore", disrupted())], 0),
            (vec![rule("Count", codes("NotIn", &[42])), rule("Ignore", disrupted())], 6),
            (vec![rule("Ignore", codes("In", &[143]))], 6),
            (vec![rule("FailJob", other()), rule("Ignore", disrupted())], u32::MAX),
            (vec![rule("FailIndex", disrupted())], 0),
            (vec![rule("Ignore", refuted())], 6),
        ] {
            let spec = json!({"podFailurePolicy": {"rules": rules}});
            assert_eq!(failures(&spec, &json!({})), Some(left), "{spec}");
        }
    }
}
