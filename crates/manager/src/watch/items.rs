//! Cuts the text of a list into its items while it is received: memory holds one item and one read.

use std::collections::VecDeque;

/// The limit of what surrounds the items: the list's metadata.
const AROUND: usize = 1 << 20;

/// A list that comes in.
#[derive(Debug, Default)]
pub struct Items {
    /// The text without the items.
    around: Vec<u8>,
    /// The incomplete item.
    item: Vec<u8>,
    /// Complete items.
    complete: VecDeque<Vec<u8>>,
    /// The last text at the top: the key of what follows.
    key: Vec<u8>,
    /// Brackets and braces that are open.
    depth: usize,
    /// In a text, and behind a backslash in it.
    text: bool,
    escaped: bool,
    /// Among the items.
    within: bool,
}

impl Items {
    /// Takes in a piece of the text.
    pub fn take_in(&mut self, piece: &[u8]) {
        for byte in piece {
            self.take(*byte);
        }
    }

    /// The next complete item.
    pub fn next(&mut self) -> Option<Vec<u8>> {
        self.complete.pop_front()
    }

    /// The list without its items, when all of it has come in.
    pub fn around(&self) -> &[u8] {
        &self.around
    }

    fn take(&mut self, byte: u8) {
        let (began, depth) = (self.within, self.depth);
        if self.text {
            self.in_text(byte);
        } else {
            match byte {
                b'"' => {
                    self.text = true;
                    if depth == 1 {
                        self.key.clear();
                    }
                }
                b'{' | b'[' => {
                    self.within |= byte == b'[' && depth == 1 && self.key == b"items";
                    self.depth += 1;
                }
                b'}' | b']' => {
                    self.depth = depth.saturating_sub(1);
                    self.within &= self.depth > 1;
                }
                _ => {}
            }
        }
        if !(began && self.within) {
            if self.around.len() < AROUND {
                self.around.push(byte);
            }
        } else if depth > 2 || self.depth > 2 {
            self.item.push(byte);
            if self.depth == 2 {
                self.complete.push_back(std::mem::take(&mut self.item));
            }
        }
    }

    fn in_text(&mut self, byte: u8) {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' => self.escaped = true,
            b'"' => self.text = false,
            _ if self.depth == 1 && self.key.len() < AROUND => self.key.push(byte),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn cut(pieces: &[&[u8]]) -> (Vec<Value>, Value) {
        let mut items = Items::default();
        let mut found = Vec::new();
        for piece in pieces {
            items.take_in(piece);
            while let Some(item) = items.next() {
                found.push(serde_json::from_slice(&item).unwrap());
            }
        }
        (found, serde_json::from_slice(items.around()).unwrap())
    }

    #[test]
    fn a_list_is_cut_the_same_wherever_its_text_is_cut() {
        let odd =
            json!({"items": [1, {"items": [[]]}], "text": "]}\\\"{[,\"items\":[", "metadata": {"items": []}});
        let items = [odd.clone(), json!({}), json!({"a": {"b": [odd]}})];
        let around =
            json!({"items": [], "kind": "items", "metadata": {"continue": "\"items\":[{", "items": [{}]}});
        let inner = items.iter().map(Value::to_string).collect::<Vec<_>>().join(" ,\n");
        let first = format!(r#"{{"items" : [ {inner} ],"kind":"items","metadata":{}}}"#, around["metadata"]);
        let last = format!(r#"{{"kind":"items","metadata":{},"items":[{inner}]}}"#, around["metadata"]);
        for text in [first, last] {
            for at in 0..text.len() {
                let (before, after) = text.as_bytes().split_at(at);
                assert_eq!(cut(&[before, after]), (items.to_vec(), around.clone()), "cut at {at}");
            }
        }
    }

    #[test]
    fn a_list_may_be_empty_or_null() {
        let empty = br#"{"items":[],"metadata":{}}"#;
        assert_eq!(cut(&[empty]).0, Vec::<Value>::new());
        let (items, around) = cut(&[br#"{"items":null,"metadata":{"resourceVersion":"1"}}"#]);
        assert_eq!((items, around["metadata"]["resourceVersion"].as_str()), (Vec::new(), Some("1")));
    }

    #[test]
    fn memory_is_that_of_one_item() {
        let item = json!({"a": "x".repeat(100_000)}).to_string();
        let text = format!(r#"{{"items":[{}]}}"#, vec![item; 100].join(","));
        let cost = allocation_counter::measure(|| {
            let mut items = Items::default();
            let mut found = 0;
            for piece in text.as_bytes().chunks(4096) {
                items.take_in(piece);
                while items.next().is_some() {
                    found += 1;
                }
            }
            assert_eq!(found, 100);
        });
        assert!(cost.bytes_max < 500_000, "{cost:?}");
    }
}
