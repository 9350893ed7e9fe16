//! The changes in etcd, one by one: unlike the API server's, etcd's watch loses nothing when an API server restarts, and has all kinds in one order.
//! The API server must store JSON ([`STORE_JSON`]).

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use http::Request;
use http_body_util::BodyExt as _;
use k8s_openapi::ByteString;
use kube::client::Body;
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::plane::ControlPlane;

/// The flag of kube-apiserver that makes what it stores readable here.
pub const STORE_JSON: &str = "--storage-media-type=application/json";

/// How long etcd may take to answer a question.
const ANSWER: Duration = Duration::from_mins(1);

/// One change of one key.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The revision of etcd, which is the resource version of the object.
    pub revision: u64,
    /// As in `/registry/jobs/default/pi`.
    pub key: String,
    /// The object from now on; none when it was deleted.
    pub object: Option<Value>,
}

/// A client for the etcd of one plane.
#[derive(Clone)]
pub struct Etcd(Client);

impl Etcd {
    /// Of a plane; etcd need not answer now.
    ///
    /// # Errors
    ///
    /// If this machine has no root certificates: the HTTP client is not made without them, also where it does not use TLS.
    pub fn of(plane: &ControlPlane) -> Result<Self> {
        let mut config = Config::new(plane.etcd_url().parse().context("reading etcd's address")?);
        config.default_retry = false;
        Ok(Self(Client::try_from(config).context("making a client of etcd")?))
    }

    async fn post(&self, path: &str, body: &Value) -> Result<http::Response<Body>> {
        let request =
            Request::post(path).body(Body::from(body.to_string().into_bytes())).context("asking etcd")?;
        let answer = self.0.send(request).await.context("asking etcd")?;
        if !answer.status().is_success() {
            bail!("etcd answers {}", answer.status());
        }
        Ok(answer)
    }

    /// Stores a value outside the API server's objects; returns its revision.
    ///
    /// # Errors
    ///
    /// If etcd cannot be reached, answers with an error, or does not answer within a minute.
    pub async fn put(&self, key: &str, value: &Value) -> Result<u64> {
        let asked = async {
            let (key, value) =
                (ByteString(key.as_bytes().to_vec()), ByteString(value.to_string().into_bytes()));
            let answer = self.post("/v3/kv/put", &json!({ "key": key, "value": value })).await?;
            let bytes = answer.into_body().collect().await.context("reading etcd's answer")?.to_bytes();
            let answer: Value = serde_json::from_slice(&bytes).context("reading etcd's answer")?;
            number(&answer["header"]["revision"])
        };
        tokio::time::timeout(ANSWER, asked).await.context("etcd does not answer")?
    }

    /// Passes every change of the API server's objects from a revision on to `sink`, in order and grouped by answer, until the connection is closed.
    /// Keys for which `wanted` is false are skipped.
    ///
    /// # Errors
    ///
    /// If etcd cannot be reached or ends the watch, as it does for a compacted revision; if the connection breaks, a wanted object is not JSON, or
    /// `sink` returns an error.
    pub async fn follow(
        &self,
        from: u64,
        wanted: impl Fn(&str) -> bool,
        mut sink: impl FnMut(Change) -> Result<()>,
    ) -> Result<()> {
        let (key, end) = (ByteString(b"/registry/".to_vec()), ByteString(b"/registry0".to_vec()));
        let create = json!({ "create_request": { "key": key, "range_end": end, "start_revision": from } });
        let mut body = self.post("/v3/watch", &create).await?.into_body();
        let mut pending = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.context("reading etcd's changes")?;
            let Ok(data) = frame.into_data() else { continue };
            pending.extend_from_slice(&data);
            // One answer per line.
            while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = pending.drain(..=end).collect();
                for change in changes(&line, &wanted)? {
                    sink(change)?;
                }
            }
        }
        Ok(())
    }
}

fn number(value: &Value) -> Result<u64> {
    // The gateway writes 64 bits as text.
    value.as_str().context("a number is missing")?.parse().context("reading a number")
}

fn bytes(value: &Value) -> Result<Vec<u8>> {
    let ByteString(bytes) = serde_json::from_value(value.clone()).context("reading bytes")?;
    Ok(bytes)
}

/// The changes in one answer of a watch.
fn changes(line: &[u8], wanted: impl Fn(&str) -> bool) -> Result<Vec<Change>> {
    let answer: Value = serde_json::from_slice(line).context("reading etcd's changes")?;
    let result = &answer["result"];
    if answer["error"].is_object() || result["canceled"] == true {
        bail!("etcd ends the watch: {answer}");
    }
    let mut found = Vec::new();
    for event in result["events"].as_array().into_iter().flatten() {
        let pair = &event["kv"];
        let key = String::from_utf8(bytes(&pair["key"])?).context("reading a key")?;
        if !wanted(&key) {
            continue;
        }
        let revision = number(&pair["mod_revision"])?;
        let object = if event["type"] == "DELETE" {
            None
        } else {
            let text = bytes(&pair["value"])?;
            let object = serde_json::from_slice(&text).with_context(|| format!("{key} is not JSON"))?;
            Some(object)
        };
        found.push(Change { revision, key, object });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_a_watch_are_read() {
        let text = |text: &str| json!(ByteString(text.as_bytes().to_vec()));
        let answer = json!({ "result": { "header": { "revision": "9" }, "events": [
            { "kv": { "key": text("/registry/jobs/a/b"), "mod_revision": "7", "value": text("{\"x\":1}") } },
            { "type": "DELETE", "kv": { "key": text("/registry/jobs/a/b"), "mod_revision": "8" } },
            { "kv": { "key": text("/registry/events/a/b"), "mod_revision": "9", "value": text("k8s") } },
        ] } });
        let read = changes(answer.to_string().as_bytes(), |key| key.starts_with("/registry/jobs/")).unwrap();
        let key = "/registry/jobs/a/b".to_owned();
        let made = Change { revision: 7, key: key.clone(), object: Some(json!({ "x": 1 })) };
        assert_eq!(read, [made, Change { revision: 8, key, object: None }]);
        let binary = changes(answer.to_string().as_bytes(), |_| true).unwrap_err();
        assert!(binary.to_string().contains("/registry/events/a/b is not JSON"), "{binary}");
    }

    #[test]
    fn a_watch_that_etcd_ends_is_an_error() {
        let compacted = r#"{"result":{"canceled":true,"compact_revision":"5"}}"#;
        assert!(changes(compacted.as_bytes(), |_| true).is_err());
    }
}
