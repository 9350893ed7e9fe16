//! Reviews that are not decoded, because they are too large or too many come at once. If the API server ignores a failure of the webhook, a job
//! without a queue would be admitted although it should be queued, or be detached from the job on whose quota it runs. So these reviews are answered
//! from their head, which costs next to nothing, however large the review is: the user, and the metadata of the object.

use serde_json::{Map, Value, json};
use sluice_api::labels;

use super::{JobHook, Reviewers, detached};
use crate::webhook::bounds::Refusal;
use crate::webhook::review::{Request, Verdict, answer};

/// The bytes of a part of the metadata that is read. A larger part counts as missing.
const PART: usize = 64 << 10;
/// The parts of the metadata by which jobs are recognized.
const PARTS: [&str; 6] =
    ["name", "generateName", "labels", "annotations", "ownerReferences", "deletionTimestamp"];

/// The answer to a review that is not decoded; `None` if the failure of the webhook is answer enough.
pub(super) fn turned_away(
    reviewers: &Reviewers,
    hook: JobHook,
    head: &[u8],
    why: Refusal,
) -> Option<Vec<u8>> {
    let (JobHook::Mutate(kind) | JobHook::Validate(kind)) = hook;
    if why == Refusal::Incomplete || !reviewers.kinds.contains(&kind) {
        return None;
    }
    let request = request(head)?;
    let facts = reviewers.facts.now();
    let is_needed = match (hook, request.operation.as_str()) {
        (JobHook::Mutate(_), "CREATE") => match reviewers.verdict(hook, &request, &facts) {
            Verdict::Patched(operations) => !operations.is_empty(),
            Verdict::Denied(_) => true,
            Verdict::Allowed | Verdict::TurnedAway(_) => false,
        },
        (JobHook::Validate(_), "UPDATE") if has_many_owners(head) => {
            // It is not known whether its controller is still one of them: they stay unchanged.
            let [old, new] = owners(head);
            let deleted = request.object["metadata"]["deletionTimestamp"].is_string();
            old != new && !deleted && !detached::may_detach(kind, &request.user_info)
        }
        (JobHook::Validate(_), "UPDATE") => {
            let rules = reviewers.rules(&request.namespace, &facts);
            detached::refusal(kind, &request, &facts, rules).is_some()
        }
        _ => false,
    };
    is_needed.then(|| answer(&request.uid, Verdict::TurnedAway(why)).ok()).flatten()
}

/// The texts of the old and the new owner references of an object.
fn owners(head: &[u8]) -> [Option<&[u8]>; 2] {
    ["oldObject", "object"].map(|field| {
        let metadata = text_at_or_begun(head, &["request", field, "metadata"])?;
        text_at(metadata, &["ownerReferences"])
    })
}

/// Whether there are, or were, more references to owners than are read.
fn has_many_owners(head: &[u8]) -> bool {
    owners(head).into_iter().flatten().any(|text| text.len() > PART)
}

/// The request in the head of a review, with objects of metadata only.
fn request(head: &[u8]) -> Option<Request> {
    let text = |path: &[&str]| serde_json::from_slice::<String>(text_at(head, path)?).ok();
    let object = |field: &str| -> Option<Value> {
        let metadata = text_at_or_begun(head, &["request", field, "metadata"])?;
        let part = |name: &&str| {
            let text = text_at(metadata, &[name]).filter(|text| text.len() <= PART)?;
            Some(((*name).to_owned(), serde_json::from_slice(text).ok()?))
        };
        let mut metadata: Map<_, _> = PARTS.iter().filter_map(part).collect();
        // Which nodes a pod would rather have is no reason to keep it away.
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(labels::NODE_AFFINITY);
        }
        Some(json!({"metadata": metadata, "spec": {}}))
    };
    let user = text_at(head, &["request", "userInfo"]).filter(|text| text.len() <= PART);
    Some(Request {
        uid: text(&["request", "uid"])?,
        operation: text(&["request", "operation"])?,
        namespace: text(&["request", "namespace"])?,
        sub_resource: String::new(),
        user_info: user.and_then(|user| serde_json::from_slice(user).ok()).unwrap_or_default(),
        object: object("object").unwrap_or_else(|| json!({"metadata": {}, "spec": {}})),
        old_object: object("oldObject").unwrap_or_default(),
    })
}

/// The text of the value at a path of field names, if it is whole. Nothing on the way to it is read.
fn text_at<'a>(json: &'a [u8], path: &[&str]) -> Option<&'a [u8]> {
    let begun = text_at_or_begun(json, path)?;
    let end = end_of_value(begun, 0)?;
    begun.get(..end)
}

/// The text from the value at a path of field names on.
fn text_at_or_begun<'a>(json: &'a [u8], path: &[&str]) -> Option<&'a [u8]> {
    let Some((field, path)) = path.split_first() else { return Some(json) };
    let mut at = after_space(json, 0);
    if json.get(at) != Some(&b'{') {
        return None;
    }
    loop {
        at = after_space(json, at + 1);
        let end = end_of_value(json, at)?;
        let name = json.get(at..end)?;
        at = after_space(json, end);
        if json.get(at) != Some(&b':') {
            return None;
        }
        at = after_space(json, at + 1);
        let is_it = name.len() == field.len() + 2 && name.get(1..=field.len()) == Some(field.as_bytes());
        if is_it {
            return text_at_or_begun(json.get(at..)?, path);
        }
        at = after_space(json, end_of_value(json, at)?);
        if json.get(at) != Some(&b',') {
            return None;
        }
    }
}

fn after_space(json: &[u8], at: usize) -> usize {
    let rest = json.get(at..).unwrap_or_default();
    at + rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}

/// The position after the value that begins at `at`, if it is whole.
fn end_of_value(json: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    loop {
        match json.get(at)? {
            b'"' => at = end_of_text(json, at)?,
            b'{' | b'[' => (depth, at) = (depth + 1, at + 1),
            b'}' | b']' => (depth, at) = (depth.checked_sub(1)?, at + 1),
            // Between values, or part of a number or a word.
            _ if depth > 0 => at += 1,
            _ => {
                let rest = json.get(at..)?;
                let end = rest.iter().position(|byte| matches!(byte, b',' | b'}' | b']' | b':'))?;
                return (end > 0).then_some(at + end);
            }
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

/// The position after the text that begins at `at` with its quotation mark, if it is whole.
fn end_of_text(json: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        match json.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_review_is_read_however_it_continues() {
        let review = json!({"apiVersion": "admission.k8s.io/v1", "request": {
            "uid": "u1", "kind": {"uid": "no", "list": [{"uid": "no"}, 1, "}"]}, "namespace": "n\"s", "operation": "CREATE",
            "userInfo": {"username": "me", "extra": {"a": ["\\"]}},
            "object": {"metadata": {"name": "a", "labels": {"b": "c"}, "ownerReferences": [{"uid": "o"}],
                "managedFields": [{"labels": {}}]}, "spec": {"name": "no"}},
            "oldObject": null}});
        // In the order of the API server: that of the fields of its structs.
        let order = ["uid", "kind", "namespace", "operation", "userInfo", "object", "oldObject"];
        let fields = order.map(|name| format!("{name:?} : {}", review["request"][name]));
        let text = format!("{{\"request\" :\n {{ {} }} }}", fields.join(" ,\n"));
        let metadata = json!({"name": "a", "labels": {"b": "c"}, "ownerReferences": [{"uid": "o"}]});
        let all = request(text.as_bytes()).unwrap();
        assert_eq!((&*all.uid, &*all.namespace, &*all.operation), ("u1", "n\"s", "CREATE"));
        assert_eq!(all.user_info.username, "me");
        assert_eq!((&all.object["metadata"], &all.old_object), (&metadata, &Value::Null));
        // Wherever it is cut off.
        let begin = text.find("\"object\"").unwrap();
        for end in 0..text.len() {
            let cut = request(&text.as_bytes()[..end]);
            let known = cut.map(|cut| cut.object["metadata"].clone()).unwrap_or_default();
            for (key, value) in known.as_object().into_iter().flatten() {
                assert_eq!(value, &metadata[key], "{end}");
            }
        }
        assert!(request(&text.as_bytes()[..begin]).is_some());
        assert_eq!(request(b"{}").map(drop), None);
    }
}
