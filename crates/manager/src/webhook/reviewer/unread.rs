//! Reviews that are not decoded, because they are too large or too many come at once. If the API server ignores a failure of the webhook, a job
//! without a queue would be admitted although it should be queued, or be resumed, or be detached from the job on whose quota it runs. So these reviews
//! are answered from their head, which costs next to nothing, however large the review is: the user, the metadata of the object, and whether its spec
//! stays the same.

use serde_json::{Map, Value, json};
use sluice_api::job::JobKind;
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
    let Head { request, owners: [old, new], objects } = read(head)?;
    let many = [old, new].into_iter().flatten().any(|owners| owners.len() > PART);
    let is_needed = match (hook, request.operation.as_str()) {
        (JobHook::Mutate(_), "CREATE") => match reviewers.verdict(hook, &request) {
            Verdict::Patched(operations) => !operations.is_empty(),
            Verdict::Denied(_) => true,
            Verdict::Allowed | Verdict::TurnedAway(_) => false,
        },
        (JobHook::Validate(_), "UPDATE") if many => {
            // It is not known whether its controller is still one of them: they stay unchanged.
            old != new && !detached::may_detach(kind, &request.user_info)
                || may_evade(reviewers, kind, &request, objects)
        }
        (JobHook::Validate(_), "UPDATE") => {
            let rules = reviewers.rules(&request.namespace, &reviewers.facts.now());
            detached::refusal(kind, &request, &reviewers.facts, rules).is_some()
                || may_evade(reviewers, kind, &request, objects)
        }
        _ => false,
    };
    is_needed.then(|| answer(&request.uid, Verdict::TurnedAway(why)).ok()).flatten()
}

/// Whether a change may resume a job without a queue where a new one would get the default one. Only a change of its spec resumes it.
fn may_evade(reviewers: &Reviewers, kind: JobKind, request: &Request, objects: [Option<&[u8]>; 2]) -> bool {
    let integration = kind.integration();
    let user = &request.user_info;
    // Pods do not run before their gates are removed, and controllers of Kubernetes resume nothing.
    if integration.of_pods || integration.suspends_pods || user.collects() || user.is_of_kubernetes() {
        return false;
    }
    let leaves = request.object["metadata"]["deletionTimestamp"].is_string();
    if leaves || !reviewers.facts.now().default_queues.contains(&request.namespace) {
        return false;
    }
    let [old, new] = objects.map(|object| object.and_then(|object| whole(field(object, b"spec")?)));
    if old.is_some() && old == new {
        return false;
    }
    let created = Request { operation: "CREATE".to_owned(), old_object: Value::Null, ..request.clone() };
    let verdict = reviewers.verdict(JobHook::Mutate(kind), &created);
    matches!(verdict, Verdict::Patched(operations) if !operations.is_empty())
}

/// What is read of a review.
struct Head<'a> {
    /// The request, with objects of metadata only.
    request: Request,
    /// The texts of the owner references of the old and the new object.
    owners: [Option<&'a [u8]>; 2],
    /// The texts from the old and the new object on.
    objects: [Option<&'a [u8]>; 2],
}

/// Reads the head of a review: once from the beginning to the end, and the metadata once more. Many may come at once, with little time left for all of them.
fn read(head: &[u8]) -> Option<Head<'_>> {
    let (mut uid, mut operation, mut namespace, mut user) = (None, None, None, None);
    let (mut new, mut old) = (None, None);
    let mut objects = [None; 2];
    for (name, value) in Fields::of(field(head, b"request")?) {
        match name {
            b"uid" => uid = whole(value).and_then(text),
            b"operation" => operation = whole(value).and_then(text),
            b"namespace" => namespace = whole(value).and_then(text),
            b"userInfo" => user = whole(value).filter(|user| user.len() <= PART),
            b"object" => (objects[1], new) = (Some(value), field(value, b"metadata").map(metadata)),
            b"oldObject" => (objects[0], old) = (Some(value), field(value, b"metadata").map(metadata)),
            _ => {}
        }
        if name == b"object" && operation.as_deref() == Some("CREATE") {
            // There is no old one behind it.
            break;
        }
    }
    let object = |metadata: Map<_, _>| json!({"metadata": metadata, "spec": {}});
    let (old, old_owners) = old.unzip();
    let (new, new_owners) = new.unzip();
    let request = Request {
        uid: uid?,
        operation: operation?,
        namespace: namespace?,
        sub_resource: String::new(),
        user_info: user.and_then(|user| serde_json::from_slice(user).ok()).unwrap_or_default(),
        object: object(new.unwrap_or_default()),
        old_object: old.map(object).unwrap_or_default(),
    };
    Some(Head { request, owners: [old_owners.flatten(), new_owners.flatten()], objects })
}

/// The parts of an object's metadata, and the text of its owner references.
fn metadata(json: &[u8]) -> (Map<String, Value>, Option<&[u8]>) {
    let (mut parts, mut owners) = (Map::new(), None);
    for (name, value) in Fields::of(json) {
        let Some(part) = PARTS.into_iter().find(|part| part.as_bytes() == name) else { continue };
        let Some(value) = whole(value) else { break };
        if part == "ownerReferences" {
            owners = Some(value);
        }
        let read = Some(value).filter(|value| value.len() <= PART);
        if let Some(read) = read.and_then(|value| serde_json::from_slice(value).ok()) {
            parts.insert(part.to_owned(), read);
        }
    }
    // Which nodes a pod would rather have is no reason to keep it away.
    if let Some(annotations) = parts.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove(labels::NODE_AFFINITY);
    }
    (parts, owners)
}

fn text(json: &[u8]) -> Option<String> {
    serde_json::from_slice(json).ok()
}

/// The text of the value that begins a text, if it is whole.
fn whole(json: &[u8]) -> Option<&[u8]> {
    json.get(..end_of_value(json, 0)?)
}

/// The text from a field's value on.
fn field<'a>(json: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    Fields::of(json).find(|(of, _)| *of == name).map(|(_, value)| value)
}

/// The fields of the object that begins a text, up to where that breaks off: each name, and the text from its value on. Nothing in values is read.
struct Fields<'a> {
    json: &'a [u8],
    /// The position of the last value.
    at: usize,
    /// What comes before the next name.
    before: u8,
}

impl<'a> Fields<'a> {
    const fn of(json: &'a [u8]) -> Self {
        Self { json, at: 0, before: b'{' }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let Self { json, at, before } = *self;
        let end = if before == b'{' { 0 } else { end_of_value(json, at)? };
        let brace = after_space(json, end);
        let name = after_space(json, brace + 1);
        if json.get(brace) != Some(&before) || json.get(name) != Some(&b'"') {
            return None;
        }
        let end = end_of_text(json, name)?;
        let colon = after_space(json, end);
        if json.get(colon) != Some(&b':') {
            return None;
        }
        *self = Self { json, at: after_space(json, colon + 1), before: b',' };
        Some((json.get(name + 1..end - 1)?, json.get(self.at..)?))
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
        let request = |head| read(head).map(|head| head.request);
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
