//! Calls of a webhook, and tables of cases for one kind.

use std::fmt::Write as _;

use json_patch::merge;
use serde_json::{Value, json};
use sluice_api::gates::{Gate, Gates};
use sluice_api::webhooks::{AdmissionRequest, AdmissionResponse, AdmissionReview, review};

pub fn ask(
    path: &str,
    operation: &str,
    object: Value,
    old: Option<Value>,
    gates: Gates,
) -> AdmissionResponse {
    let request = AdmissionRequest {
        uid: "u1".into(),
        operation: operation.into(),
        sub_resource: None,
        object: Some(object),
        old_object: old,
    };
    let sent = AdmissionReview {
        api_version: "admission.k8s.io/v1".into(),
        kind: "AdmissionReview".into(),
        request: Some(request),
        response: None,
    };
    let answered = review(path, sent, gates).expect("one of our paths");
    assert_eq!(answered.kind, "AdmissionReview");
    let response = answered.response.unwrap();
    assert_eq!(response.uid, "u1");
    response
}

/// Cases of one kind: a valid object, and what each case changes in it (RFC 7386).
pub struct Table {
    kind: &'static str,
    base: Value,
    pub gates: Gates,
    pub report: String,
}

impl Table {
    pub fn new(kind: &'static str, base: Value) -> Self {
        let mut base = base;
        base["apiVersion"] = "kueue.x-k8s.io/v1beta2".into();
        base["kind"] = kind.into();
        base["metadata"]["name"] = "x".into();
        let mut table = Self { kind, base, gates: Gates::default(), report: String::new() };
        assert_eq!(table.validate(&json!({}), None), None, "the base is valid");
        table
    }

    fn merged(&self, change: &Value) -> Value {
        let mut object = self.base.clone();
        merge(&mut object, change);
        object
    }

    pub fn validate(&mut self, new: &Value, old: Option<&Value>) -> Option<String> {
        let path = format!("/validate-kueue-x-k8s-io-v1beta2-{}", self.kind.to_lowercase());
        let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
        let old = old.map(|old| self.merged(old));
        let response = ask(&path, operation, self.merged(new), old, self.gates);
        if response.allowed {
            assert!(response.status.is_none());
            return None;
        }
        let status = response.status.unwrap();
        assert_eq!((status.code, status.reason.as_str()), (403, "Forbidden"), "{}", status.message);
        Some(status.message)
    }

    pub fn create(&mut self, rule: &str, accepted: Value, refused: Value) {
        assert_eq!(self.validate(&accepted, None), None, "{rule}: should be accepted");
        self.refuse(rule, refused, None);
    }

    pub fn update(&mut self, rule: &str, old: Value, accepted: Value, refused: Value) {
        assert_eq!(self.validate(&accepted, Some(&old)), None, "{rule}: should be accepted");
        self.refuse(rule, refused, Some(old));
    }

    pub fn refuse(&mut self, rule: &str, refused: Value, old: Option<Value>) {
        let message = self.validate(&refused, old.as_ref());
        let message = message.unwrap_or_else(|| panic!("{rule}: should be refused"));
        writeln!(self.report, "{rule}\n    {message}").unwrap();
    }

    /// A rule that holds only with a gate, or only without one.
    pub fn gated(&mut self, gate: Gate, holds_when: bool, rule: &str, refused: Value, old: Option<Value>) {
        self.gates = Gates::default().with(gate, !holds_when);
        let lenient = self.validate(&refused, old.as_ref());
        assert_eq!(lenient, None, "{rule}: should be accepted with {}={}", gate.name(), !holds_when);
        self.gates = Gates::default().with(gate, holds_when);
        self.refuse(&format!("{rule} ({}={holds_when})", gate.name()), refused, old);
        self.gates = Gates::default();
    }
}
