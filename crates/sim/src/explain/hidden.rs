//! Names of nodes in texts that others wrote: conditions, events, what a scheduler says. They are for those who may list nodes.

use std::collections::BTreeSet;

use serde_json::Value;
use sluice_engine::Account;

use super::subject::Subject;
use crate::json::text;

/// What stands for the name of a node.
const A_NODE: &str = "(a node)";
/// Fields of objects and answers that hold such texts.
const TEXTS: [&str; 3] = ["message", "note", "whyNot"];

/// The text without the names of nodes, if it has any. Names are told apart as DNS names are: `node gpu-1.` names `gpu-1`.
pub fn without_nodes(text: &str, is_node: &dyn Fn(&str) -> bool) -> Option<String> {
    let of_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let mut shown = String::new();
    let (mut rest, mut any) = (text, false);
    while let Some(begin) = rest.find(of_name) {
        let (before, from) = rest.split_at(begin);
        let (word, after) = from.split_at(from.find(|c| !of_name(c)).unwrap_or(from.len()));
        let name = word.trim_matches(['.', '-']);
        shown.push_str(before);
        if is_node(name) {
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
    /// Takes the names of nodes out of what its objects say, also those that only its own objects name.
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

    /// The nodes of its pods, and those that the Workload lost: they may be gone by now.
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
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
