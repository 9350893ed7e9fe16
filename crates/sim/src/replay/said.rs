//! Effects as text: all their content, one line each, in words that do not change when a type gets a field.

use std::fmt::Write as _;

use serde::Serialize;
use sluice_engine::{Effect, Write, WriteRequest};

/// An effect as the log has it.
pub(super) fn said(effect: &Effect) -> String {
    match effect {
        Effect::Write(request) => write(request),
        Effect::Withdraw(id) => format!("withdraw #{}", id.0),
        Effect::Event(event) => {
            let kind = event.type_.as_str();
            let (object, uid, reporter) = (&event.object, &event.uid, event.reporter);
            let action =
                if event.action == event.reason { String::new() } else { format!(" ({})", event.action) };
            format!("event {kind} {}{action} of {object} ({uid}) by {reporter}: {}", event.reason, event.note)
        }
        Effect::Observe(seen) => format!("metric {}{:?} {}", seen.metric, seen.labels, seen.value),
        Effect::SeriesGone(object) => format!("series of {object} gone"),
        Effect::Journal(line) => format!("journal {line:?}"),
        Effect::Attempt(step) => format!("attempt {step:?}"),
        Effect::Log(line) => format!("log {:?} {} {:?}", line.level, line.message, line.fields),
    }
}

fn write(request: &WriteRequest) -> String {
    let mut text = format!("write {} #{} {:?}: ", request.object, request.id.0, request.purpose);
    // Writing into a String does not fail.
    let _ = match &request.write {
        Write::CreateWorkload(workload) => write!(text, "POST {}", json(workload)),
        Write::UpdateWorkload(update) => {
            // With its fields in order, as in older decision logs.
            let body = serde_json::to_value(update).map_or_else(|e| e.to_string(), |body| json(&body));
            write!(text, "PATCH {body}")
        }
        Write::Create(object) => write!(text, "POST {}", json(object)),
        Write::CreatePodTemplate(source) => write!(text, "POST {source:?}"),
        Write::MergePatch { subresource, body } => {
            write!(text, "PATCH {}{}", subresource.map(|s| format!("{s} ")).unwrap_or_default(), json(body))
        }
        Write::Apply { subresource, field_manager, body } => {
            let subresource = subresource.map(|s| format!("{s} ")).unwrap_or_default();
            // As above.
            let body = body.value().map_or_else(|_| body.as_str().to_owned(), |body| json(&body));
            write!(text, "APPLY {subresource}as {field_manager} {body}")
        }
        Write::Delete { uid, grace_period_seconds, foreground } => {
            let grace =
                grace_period_seconds.map(|seconds| format!(" within {seconds} s")).unwrap_or_default();
            let after = if *foreground { " after all that was made of it" } else { "" };
            write!(text, "DELETE {}{grace}{after}", uid.as_deref().unwrap_or_default())
        }
        Write::StartJob { view, infos } => {
            write!(text, "start as of {} with {infos:?}", view.resource_version)
        }
        Write::StopJob { view, infos } => write!(text, "stop as of {} with {infos:?}", view.resource_version),
        Write::SuspendJob { view } => write!(text, "suspend as of {}", view.resource_version),
        Write::AskController { view, .. } => {
            write!(text, "ask the controller as of {}", view.resource_version)
        }
        Write::EndPods { of, then } => {
            let label = of.label.as_ref().map(|(key, value)| format!(" {key}={value}")).unwrap_or_default();
            let (uids, makers) = (of.uids.join(" "), of.makers.join(" "));
            let by = if makers.is_empty() { "" } else { ", made by " };
            write!(text, "pods of {uids}{label}{by}{makers}: {then:?}")
        }
        Write::Patch(patch) => write!(text, "PATCH {}", json(&patch.body())),
        Write::Pod(steps) => write!(text, "{steps:?}"),
        Write::Read => write!(text, "GET"),
    };
    text
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("objects of the API have string keys and finite numbers")
}

/// The lines that only one of two lists has, for each list. Metrics are left out if anything else differs, since they follow from it.
pub(super) fn difference(recorded: &[String], replayed: &[String]) -> (Vec<String>, Vec<String>) {
    let only = |these: &[String], those: &[String]| {
        let mut rest = those.to_vec();
        let mut only = Vec::new();
        for line in these {
            match rest.iter().position(|other| other == line) {
                Some(at) => drop(rest.swap_remove(at)),
                None => only.push(line.clone()),
            }
        }
        only
    };
    let (mut before, mut after) = (only(recorded, replayed), only(replayed, recorded));
    let counts = |line: &String| line.starts_with("metric ");
    if before.iter().chain(&after).any(|line| !counts(line)) {
        before.retain(|line| !counts(line));
        after.retain(|line| !counts(line));
    }
    (before, after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_both_have_is_left_out_and_so_are_metrics_that_only_follow() {
        let lines = |all: &[&str]| all.iter().map(|l| (*l).to_owned()).collect::<Vec<_>>();
        let (before, after) = difference(
            &lines(&["write a", "event x", "event x", "metric m 1"]),
            &lines(&["event x", "write b", "metric m 2"]),
        );
        assert_eq!((before, after), (lines(&["write a", "event x"]), lines(&["write b"])));
        let (before, after) = difference(&lines(&["metric m 1"]), &lines(&["metric m 2"]));
        assert_eq!((before, after), (lines(&["metric m 1"]), lines(&["metric m 2"])));
        // The same lines in another order differ, but no single line shows it.
        assert_eq!(difference(&lines(&["a", "b"]), &lines(&["b", "a"])), (Vec::new(), Vec::new()));
    }
}
