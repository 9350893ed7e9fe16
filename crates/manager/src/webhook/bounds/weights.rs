//! The memory that a review takes once it is read, from its text.

/// The least memory of a JSON object: a node of its map; or the Rust struct that is read from it.
pub(super) const OBJECT: usize = 960;
/// The memory of any other value.
pub(super) const VALUE: usize = 64;
/// How many copies of a text exist while a review is worked on, beside its body: decoded, converted, and in the buffer of the answer, which grows by
/// doubling.
pub(super) const COPIES: usize = 4;
/// The field that is longer after a conversion than before.
const GROWS: &[u8] = b"topologyAssignment";

/// The memory that parts of a review take once they are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weights {
    /// All of it.
    pub all: usize,
    /// `request.object`.
    pub object: usize,
    /// `request.oldObject`.
    pub old: usize,
    /// Whether it may have a topology assignment: nothing else becomes longer when it is converted.
    pub grows: bool,
}

impl Weights {
    /// The memory of the review, if its answer may have `most` bytes in case it grows.
    pub fn with_answer(&self, most: usize) -> usize {
        self.all.saturating_add(if self.grows { most } else { 0 })
    }
}

/// The memory that a JSON text takes once it is read, at most, without reading it. A few bytes of text can stand for a hundred times
/// as much.
pub(super) fn weights(json: &[u8]) -> Weights {
    let mut weights = Weights::default();
    // The last text, and the position of the scan: in which field of the request, and how deep.
    let (mut last, mut field, mut depth) = (&json[..0], &json[..0], 0_usize);
    // Whether the last text may be the name of the field that grows. Found once for each text: anything may be posted, also one long text and very
    // many colons.
    let mut may_grow = false;
    let mut at = 0;
    while let Some(byte) = json.get(at) {
        let (mut next, mut weight) = (at + 1, 0);
        match byte {
            b'"' => {
                next = end_of_text(json, next);
                last = json.get(at + 1..next.saturating_sub(1)).unwrap_or_default();
                // An escape could stand for any letter of the name.
                may_grow = last == GROWS || last.windows(2).any(|two| two == b"\\u");
            }
            b'{' => (depth, weight) = (depth + 1, OBJECT),
            b'[' => (depth, weight) = (depth + 1, VALUE),
            b'}' | b']' => depth = depth.saturating_sub(1),
            b',' | b':' => weight = VALUE,
            _ => {}
        }
        weight += (next - at).saturating_mul(COPIES);
        weights.all += weight;
        match field {
            b"object" => weights.object += weight,
            b"oldObject" => weights.old += weight,
            _ => {}
        }
        weights.grows |= *byte == b':' && may_grow;
        match (depth, byte) {
            (2, b':') => field = last,
            (2, b',') | (0..2, _) => field = &json[..0],
            _ => {}
        }
        at = next;
    }
    weights
}

/// The position after the text that begins at `at`, after its first quotation mark.
fn end_of_text(json: &[u8], mut at: usize) -> usize {
    while let Some(byte) = json.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn small_texts_that_become_large_weigh_what_they_become() {
        let weight = |json: &[u8]| weights(json).all;
        assert_eq!(weight(b"{}"), 2 * COPIES + OBJECT);
        assert_eq!(weight(br#"["{,:[\"{","x"]"#), 15 * COPIES + 2 * VALUE, "nothing inside of a text counts");
        assert_eq!((weight(b"\"\\"), weight(b"]]\"")), (2 * COPIES, 3 * COPIES), "whatever is no JSON");
        let objects = format!("[{}]", vec![r#"{"":0}"#; 1000].join(","));
        assert!(weight(objects.as_bytes()) > 700 * 1000);
        let lists = format!("[{}]", vec!["[]"; 1000].join(","));
        assert!(weight(lists.as_bytes()) > 2 * VALUE * 1000 - VALUE);
    }

    #[test]
    fn one_long_text_before_many_colons_is_searched_once() {
        // Searched at each colon, it would take hours.
        let body = format!("\"{}\"{}", "a".repeat(1 << 22), ":".repeat(1 << 22));
        let weight = (1 << 22) * (COPIES + VALUE + COPIES) + 2 * COPIES;
        assert_eq!(weights(body.as_bytes()).all, weight);
    }

    #[test]
    fn the_objects_of_a_review_weigh_what_they_weigh_alone() {
        let object = json!({"object": {"oldObject": [{"object": 1}, "a:b"]}, "spec": [[], {}]});
        let old = json!({"object": "request", "spec": {"x": [1, 2, 3]}});
        let request = json!({"uid": "object", "object": object, "oldObject": old, "options": {"object": {}}});
        let review = json!({"kind": "oldObject", "request": request}).to_string();
        let alone = |value: &Value| weights(value.to_string().as_bytes()).all;
        // The colon before it is the field's, the comma or brace after it counts as its own.
        let end = COPIES + VALUE;
        let seen = weights(review.as_bytes());
        assert_eq!((seen.object, seen.old), (alone(&object) + end, alone(&old) + end));
        assert!(seen.all > seen.object + seen.old);
        assert_eq!(weights(br#"{"request":{"objects":[{},{}]}}"#).object, 0);
    }

    #[test]
    fn only_what_may_have_a_topology_assignment_grows() {
        let grows = |json: &[u8]| weights(json).grows;
        assert!(grows(br#"{"status":{"topologyAssignment" : {}}}"#));
        assert!(grows(br#"{"topology\u0041ssignment":{}}"#));
        assert!(!grows(br#"{"topologyAssignments":"topologyAssignment","f:{\"a\"}":"\u0041"}"#));
    }
}
