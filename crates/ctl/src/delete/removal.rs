//! The deletion of namespaced objects, each only if it is still the same object.

use std::fmt;

use anyhow::Context as _;
use http::Method;
use kube::Client;
use serde_json::{Value, json};

use super::target::Target;
use crate::cluster::{get, refusal, send};
use crate::print::say;
use crate::write::DryRun;

/// An object to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Doomed {
    /// Which.
    pub target: Target,
    /// Its path in the API.
    pub place: String,
}

impl fmt::Display for Doomed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.target.fmt(f)
    }
}

impl Doomed {
    /// The object, if it still exists; else reports that it does not.
    ///
    /// # Errors
    /// If the API server does not answer, or refuses.
    pub(super) async fn look(&self, client: &Client) -> anyhow::Result<Option<Value>> {
        match get(client, &self.place).await {
            Ok(found) if found["metadata"]["uid"] == *self.target.uid => return Ok(Some(found)),
            Ok(_) => {
                say(&format!("{self} was replaced by another of its name, which stays"));
            }
            Err(error) if is(&error, 404) => self.is_gone(),
            Err(error) => return Err(error).with_context(|| format!("reading {self}")),
        }
        Ok(None)
    }

    fn is_gone(&self) {
        say(&format!("{self} is gone"));
    }

    /// Deletes it, with what it owns, and does not wait; whether it was there.
    ///
    /// # Errors
    /// When the API server does not answer, or refuses.
    pub(super) async fn remove(&self, client: &Client, dry_run: DryRun) -> anyhow::Result<bool> {
        let dry = match dry_run {
            DryRun::Client => return Ok(self.look(client).await?.is_some()),
            DryRun::Server => vec!["All"],
            DryRun::None => Vec::new(),
        };
        let options = json!({
            "preconditions": {"uid": self.target.uid}, "propagationPolicy": "Background", "dryRun": dry,
        });
        let sent = send(client, Method::DELETE, &self.place, "application/json", &options).await;
        let Err(error) = sent else { return Ok(true) };
        if is(&error, 404) {
            self.is_gone();
            return Ok(false);
        }
        // The precondition on the UID fails for another object of this name.
        if is(&error, 409) && self.look(client).await?.is_none() {
            return Ok(false);
        }
        Err(error).with_context(|| format!("deleting {self}"))
    }
}

fn is(error: &anyhow::Error, code: u16) -> bool {
    refusal(error).is_some_and(|status| status.code == code)
}
