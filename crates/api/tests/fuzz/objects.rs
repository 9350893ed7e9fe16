//! Arbitrary objects for conversion and validation: each byte string makes one from the schemas, valid or not. Used by the fuzz targets
//! `api_conversion` and `api_validation`, and by an ordinary test with fixed inputs.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use sluice_api::conversion::{ConversionRequest, ConversionReview, Version, answer_review, convert};
use sluice_api::crds::{crds, document as crd_document};
use sluice_api::gates::Gates;
use sluice_api::webhooks::{AdmissionRequest, AdmissionReview, WEBHOOKS, review};

static DEFINITIONS: LazyLock<Vec<Value>> = LazyLock::new(|| crds().iter().map(crd_document).collect());

/// The input: bytes that become choices. When they are used up every choice is the first.
struct Choices<'a>(&'a [u8]);

/// Texts that are parsed somewhere: names, quantities, times, values of enumerations, and what none of them may be.
const TEXTS: [&str; 28] = [
    "a",
    "n1",
    "",
    "kubernetes.io/hostname",
    "example.com/card",
    "cpu",
    "memory",
    "pods",
    "100m",
    "1.5Gi",
    "-1",
    "+5e3",
    "9223372036854775807",
    "1e30",
    "0.000000000001",
    "1Ki1",
    "2026-01-02T03:04:05Z",
    "2026-13-99T99:99:99Z",
    "True",
    "TryNextFlavor",
    "Borrow",
    "kueue.x-k8s.io",
    "Ready",
    "NoSchedule",
    "In",
    "Not A Name_",
    "äöü\u{0}\u{1f600}",
    "~1/~0",
];

const NUMBERS: [i64; 9] = [0, 1, 2, -1, 2_147_483_647, -2_147_483_648, 2_147_483_648, i64::MAX, i64::MIN];

impl Choices<'_> {
    fn byte(&mut self) -> u8 {
        match self.0 {
            [first, rest @ ..] => {
                self.0 = rest;
                *first
            }
            [] => 0,
        }
    }

    fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n
    }

    fn text(&mut self) -> Value {
        match self.byte() {
            255 => "x".repeat(70_000).into(),
            at => TEXTS[usize::from(at) % TEXTS.len()].into(),
        }
    }

    fn number(&mut self) -> Value {
        NUMBERS[self.below(NUMBERS.len())].into()
    }

    /// A value of another type than it should be.
    fn wrong(&mut self) -> Value {
        match self.below(6) {
            0 => Value::Null,
            1 => json!([]),
            2 => json!({}),
            3 => json!([null, 1, "x", {}]),
            4 => self.number(),
            _ => self.text(),
        }
    }

    /// A value of a schema; with `hostile`, sometimes not.
    fn value(&mut self, schema: &Value, hostile: bool, depth: usize) -> Value {
        if hostile && self.byte() > 250 {
            return self.wrong();
        }
        if let Some(names) = schema["enum"].as_array().filter(|names| !names.is_empty()) {
            return names[self.below(names.len())].clone();
        }
        if schema["x-kubernetes-int-or-string"] == true {
            return if self.byte() & 1 == 0 { self.text() } else { self.number() };
        }
        match schema["type"].as_str() {
            Some("boolean") => (self.byte() & 1 == 1).into(),
            Some("integer" | "number") => self.number(),
            Some("string") if schema["format"] == "date-time" && !hostile => TEXTS[16].into(),
            Some("string") => self.text(),
            Some("array") => {
                let count = if depth > 12 { 0 } else { self.below(4) };
                (0..count).map(|_| self.value(&schema["items"], hostile, depth + 1)).collect()
            }
            _ if depth > 12 => json!({}),
            _ => self.object(schema, hostile, depth),
        }
    }

    fn object(&mut self, schema: &Value, hostile: bool, depth: usize) -> Value {
        let mut object = Map::new();
        if schema["additionalProperties"].is_object() {
            for _ in 0..self.below(3) {
                if let Value::String(name) = self.text() {
                    object.insert(name, self.value(&schema["additionalProperties"], hostile, depth + 1));
                }
            }
        }
        let required = |name: &str| {
            schema["required"].as_array().is_some_and(|names| names.iter().any(|other| other == name))
        };
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            // What has a default is always there: the API server fills it in before it converts.
            let always = required(name) || !property["default"].is_null();
            let left_out = hostile && self.byte() > 250;
            if !left_out && (always || self.byte() > 150) {
                object.insert(name.clone(), self.value(property, hostile, depth + 1));
            }
        }
        object.into()
    }

    /// An object of a kind in a version.
    fn document(&mut self, definition: &Value, version: &str, hostile: bool) -> Value {
        let versions = definition["spec"]["versions"].as_array().expect("a CRD has versions");
        let schema = versions.iter().find(|entry| entry["name"] == version);
        let schema = schema.map_or(&Value::Null, |entry| &entry["schema"]["openAPIV3Schema"]);
        let mut object = Map::new();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            if name == "spec" || name == "status" {
                object.insert(name.clone(), self.value(property, hostile, 0));
            }
        }
        object.insert("apiVersion".into(), format!("kueue.x-k8s.io/{version}").into());
        object.insert("kind".into(), definition["spec"]["names"]["kind"].clone());
        object.insert("metadata".into(), json!({"name": "x", "namespace": "ns"}));
        object.into()
    }
}

/// Conversion answers whatever it is given, and what it made is stable: back and there again it stays the same.
pub fn conversion(input: &[u8]) {
    let mut c = Choices(input);
    let definition = &DEFINITIONS[c.below(DEFINITIONS.len())];
    let (from, to) = if c.byte() & 1 == 0 {
        (Version::V1beta1, Version::V1beta2)
    } else {
        (Version::V1beta2, Version::V1beta1)
    };
    let version = from.api_version().rsplit('/').next().unwrap_or_default();
    let hostile = c.byte() & 1 == 1;
    let original = c.document(definition, version, hostile);
    let mut there = original.clone();
    let converted = convert(&mut there, to);
    let request = ConversionRequest {
        uid: "u".to_owned(),
        desired_api_version: to.api_version().to_owned(),
        objects: vec![original.clone(), original],
    };
    let answer = answer_review(ConversionReview { request: Some(request), ..ConversionReview::default() });
    let answer: Value =
        serde_json::from_slice(&answer.expect("a review is answered")).expect("the answer is JSON");
    let response = &answer["response"];
    assert_eq!(response["uid"], "u");
    if converted.is_err() {
        assert_eq!(response["convertedObjects"], json!([]), "all or none");
        return;
    }
    assert_eq!(response["convertedObjects"], json!([there, there]));
    assert_eq!(there["apiVersion"], to.api_version());
    if hostile {
        return;
    }
    let lap = |object: &Value| {
        let mut object = object.clone();
        convert(&mut object, from).expect("what was converted can be converted back");
        convert(&mut object, to).expect("and again");
        object
    };
    // What means the same may be written in another way at first, as an empty list is left out; then nothing changes.
    let settled = lap(&there);
    assert_eq!(lap(&settled), settled);
}

/// The webhooks answer every request, with the request's UID and the same answer each time.
pub fn validation(input: &[u8]) {
    let mut c = Choices(input);
    let webhook = &WEBHOOKS[c.below(WEBHOOKS.len())];
    let plural = webhook.resources[0];
    let definition = DEFINITIONS
        .iter()
        .find(|entry| entry["spec"]["names"]["plural"] == plural)
        .expect("webhooks are for our kinds");
    let hostile = c.byte() & 1 == 1;
    let object = c.document(definition, "v1beta2", hostile);
    let old_object = match c.below(3) {
        0 => None,
        1 => Some(object.clone()),
        _ => Some(c.document(definition, "v1beta2", hostile)),
    };
    let request = AdmissionRequest {
        uid: "u".to_owned(),
        operation: ["CREATE", "UPDATE", "DELETE", ""][c.below(4)].to_owned(),
        sub_resource: (c.byte() > 170).then(|| "status".to_owned()),
        object: (c.byte() < 250).then_some(object),
        old_object,
    };
    let ask = || {
        let question = AdmissionReview { request: Some(request.clone()), ..AdmissionReview::default() };
        review(webhook.path, question, Gates::default()).expect("the path is ours").response
    };
    let answer = ask().expect("a review is answered");
    assert_eq!(answer.uid, "u");
    assert_eq!(ask(), Some(answer));
}
