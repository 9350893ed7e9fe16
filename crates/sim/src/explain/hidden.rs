//! Removes names of nodes from texts of other programs (conditions, events, scheduler messages): only users who may list nodes may see them.

use std::collections::BTreeSet;
use std::ops::Range;

use serde_json::Value;
use sluice_engine::Account;

use super::subject::Subject;
use crate::json::text;

/// Replaces the name of a node.
const A_NODE: &str = "(a node)";
/// Fields of objects and answers that hold such texts.
const TEXTS: [&str; 3] = ["message", "note", "whyNot"];

/// The words before node names in Sluice's own messages: these nodes may no longer exist.
const OURS: &str = "unhealthy node(s)";

/// Where in a text nodes are named that our own messages say to be lost.
fn lost(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices(OURS) {
        let mut rest = &text[at + OURS.len()..];
        rest = rest.strip_prefix(':').unwrap_or(rest);
        rest = rest.strip_prefix(' ').unwrap_or_default();
        loop {
            let word = &rest[..rest.find(|c| !of_name(c)).unwrap_or(rest.len())];
            let begin = text.len() - rest.len();
            found.push(begin..begin + word.len());
            rest = &rest[word.len()..];
            // Only a comma, with or without a space, separates the names.
            let Some(next) = rest.strip_prefix(", ").or_else(|| rest.strip_prefix(',')) else { break };
            rest = next;
        }
    }
    found
}

fn of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '.'
}

/// The text without the names of nodes, if it has any. A name ends where a DNS name ends: `node gpu-1.` names `gpu-1`. Names after Sluice's own words
/// `unhealthy node(s)` are removed even if no such node exists any more.
pub fn without_nodes(text: &str, is_node: &dyn Fn(&str) -> bool) -> Option<String> {
    let lost = lost(text);
    let mut shown = String::new();
    let (mut rest, mut any) = (text, false);
    while let Some(begin) = rest.find(of_name) {
        let (before, from) = rest.split_at(begin);
        let (word, after) = from.split_at(from.find(|c| !of_name(c)).unwrap_or(from.len()));
        let name = word.trim_matches(['.', '-']);
        shown.push_str(before);
        let at = text.len() - from.len();
        if !name.is_empty() && (is_node(name) || lost.iter().any(|place| place.contains(&at))) {
            any = true;
            shown.push_str(&word.replacen(name, A_NODE, 1));
        } else {
            shown.push_str(word);
        }
        rest = after;
    }
    shown.push_str(rest);
    any.then_some(shown)
}

/// Takes the names of nodes out of the messages of a document, wherever they are in it.
pub fn hide_nodes(document: &mut Value, is_node: &dyn Fn(&str) -> bool) {
    match document {
        Value::Object(fields) => {
            for (field, value) in fields {
                match value {
                    Value::String(said) if TEXTS.contains(&field.as_str()) => {
                        if let Some(shown) = without_nodes(said, is_node) {
                            *said = shown;
                        }
                    }
                    other => hide_nodes(other, is_node),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|one| hide_nodes(one, is_node)),
        _ => {}
    }
}

impl Subject {
    /// Removes the names of nodes from the texts of the job's objects, including nodes that only these objects name.
    pub fn hide_nodes(&mut self, is_node: &dyn Fn(&str) -> bool) {
        let own = self.own_nodes();
        let is_node = |name: &str| own.contains(name) || is_node(name);
        for object in self.workload.iter_mut().chain(&mut self.job).chain(&mut self.pods) {
            if let Some(status) = object.get_mut("status") {
                hide_nodes(status, &is_node);
            }
        }
        self.events.iter_mut().for_each(|event| hide_nodes(event, &is_node));
    }

    /// The nodes of the job's pods, and the failed nodes of its Workload: they may no longer exist.
    fn own_nodes(&self) -> BTreeSet<String> {
        let pods = self.pods.iter().map(|pod| &pod["spec"]["nodeName"]);
        let lost =
            self.workload.iter().filter_map(|workload| workload["status"]["unhealthyNodes"].as_array());
        let lost = lost.flatten().map(|node| &node["name"]);
        pods.chain(lost).map(|name| text(name).to_owned()).filter(|name| !name.is_empty()).collect()
    }
}

/// Takes the names of nodes out of what an engine's account says as others wrote it.
pub fn hide_nodes_of(account: &mut Account, is_node: &dyn Fn(&str) -> bool) {
    if let Some(why) = &mut account.not_moved
        && let Some(shown) = without_nodes(&why.text, is_node)
    {
        why.text = shown;
    }
    // After an eviction it waits with the message of that.
    if let Some((_, message)) = &mut account.condition
        && let Some(shown) = without_nodes(message, is_node)
    {
        *message = shown;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_engine::{Kind, ObjectRef, Stage};

    use super::*;

    fn is_node(name: &str) -> bool {
        ["gpu-1", "ip-10-0-0-1.ec2.internal"].contains(&name)
    }

    #[test]
    fn names_of_nodes_are_found_as_whole_names() {
        let shown = |text: &str| without_nodes(text, &is_node);
        let same = |text: &str| assert_eq!(shown(text), None, "{text}");
        assert_eq!(shown("node gpu-1.").as_deref(), Some("node (a node)."));
        assert_eq!(shown("gpu-1,gpu-2/gpu-1:10250").as_deref(), Some("(a node),gpu-2/(a node):10250"));
        assert_eq!(shown("\"ip-10-0-0-1.ec2.internal\" é").as_deref(), Some("\"(a node)\" é"));
        assert_eq!(shown("...gpu-1--").as_deref(), Some("...(a node)--"));
        for text in [
            "",
            "é",
            "gpu-10",
            "gpu-1.example.com",
            "my-gpu-1",
            "0/5 nodes are available: 5 Insufficient cpu.",
        ] {
            same(text);
        }
    }

    #[test]
    fn nodes_that_are_gone_are_hidden_where_our_own_messages_name_them() {
        for (text, shown) in [
            (
                "Workload was evicted to leave unhealthy node(s): gone-1, gone-2 and 3 more",
                "unhealthy node(s): (a node), (a node) and 3 more",
            ),
            (
                "no replacement for unhealthy node(s): gone-1,gone.2; the slice",
                "unhealthy node(s): (a node),(a node); the slice",
            ),
            ("Pods are on unhealthy node(s) gone-1: no room", "unhealthy node(s) (a node): no room"),
        ] {
            let found = without_nodes(text, &is_node).unwrap();
            assert!(found.ends_with(shown) && !found.contains("gone"), "{found}");
        }
        for text in [
            "unhealthy node(s)",
            "unhealthy node(s):",
            "3 node(s) had untolerated taint",
            "unhealthy node(s): , ",
        ] {
            assert_eq!(without_nodes(text, &is_node), None, "{text}");
        }
    }

    #[test]
    fn an_account_names_no_node_in_what_its_workload_waits_for() {
        let said = "Workload was evicted to leave unhealthy node(s): gpu-1, gone-1".to_owned();
        let mut account = Account {
            workload: ObjectRef::namespaced(Kind::Workload, "a", "w"),
            uid: "u".into(),
            attempt: None,
            local_queue: "lq".to_owned(),
            stage: Stage::Waiting,
            condition: Some(("PendingEvaluation".to_owned(), said)),
            position: None,
            ahead: Vec::new(),
            decision: None,
            changes: Vec::new(),
            fits: Vec::new(),
            not_moved: None,
        };
        hide_nodes_of(&mut account, &is_node);
        let shown = "Workload was evicted to leave unhealthy node(s): (a node), (a node)".to_owned();
        assert_eq!(account.condition, Some(("PendingEvaluation".to_owned(), shown)));
    }

    #[test]
    fn only_messages_are_changed() {
        let mut document = json!({
            "name": "gpu-1", "conditions": [{"message": "on gpu-1", "reason": "gpu-1"}], "note": "gpu-1", "message": {"message": "gpu-1"},
        });
        hide_nodes(&mut document, &is_node);
        assert_eq!(
            document,
            json!({
                "name": "gpu-1", "conditions": [{"message": "on (a node)", "reason": "gpu-1"}], "note": "(a node)",
                "message": {"message": "(a node)"},
            })
        );
    }

    #[test]
    fn a_subject_says_no_node_of_its_own_either() {
        let said = |message: &str| json!({"status": {"conditions": [{"message": message}]}, "spec": {"nodeName": "own"}});
        let mut workload = said("lost gone-1 and gpu-1");
        workload["status"]["unhealthyNodes"] = json!([{"name": "gone-1"}]);
        let mut subject = Subject {
            workload: Some(workload),
            pods: vec![said("on own")],
            events: vec![json!({"message": "left gone-1", "metadata": {"name": "gpu-1"}})],
            ..Subject::default()
        };
        subject.hide_nodes(&is_node);
        let message = |object: &Value| object["status"]["conditions"][0]["message"].clone();
        assert_eq!(message(subject.workload.as_ref().unwrap()), "lost (a node) and (a node)");
        assert_eq!(message(&subject.pods[0]), "on (a node)");
        assert_eq!(subject.events[0], json!({"message": "left (a node)", "metadata": {"name": "gpu-1"}}));
    }
}
