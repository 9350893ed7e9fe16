//! The state of the running manager for the health endpoints and the metrics.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use sluice_engine::{Engine, State};
use tokio::sync::watch;

use crate::certs::CertsState;
use crate::engine_thread::{Handle, PAGE};
use crate::explain::{Answer, Asked, Explainer, Explains as _};
use crate::health::{Check, Probe};
use crate::lease::Standing;
use crate::supervise::blocking;
use crate::watch::sync::SyncTracker;
use crate::watches::Crds;

/// The engine answers within this time, or counts as dead.
const ALIVE: Duration = Duration::from_secs(10);

/// Up to this number of objects an audit needs no confirmation: it compares all of them at one moment, while the engine waits.
const AUDITED: usize = 250;

/// The sources of the state.
pub struct Status {
    /// Which CRDs are missing.
    pub crds: Arc<Crds>,
    /// Which caches are filled.
    pub sync: Arc<SyncTracker>,
    /// How far the certificates are; nothing when there are no webhooks.
    pub certs: Option<watch::Receiver<CertsState>>,
    /// Which replica leads.
    pub standing: watch::Receiver<Standing>,
    /// The engine.
    pub engine: Handle<Engine>,
    /// Makes explanations.
    pub explainer: Arc<Explainer>,
}

impl Probe for Status {
    fn checks(&self) -> Vec<Check> {
        let missing = self.sync.missing();
        let caches = (!missing.is_empty()).then(|| format!("not listed yet: {}", missing.join(", ")));
        let mut checks = vec![
            Check { name: "crds", problem: self.crds.problem(), detail: None },
            Check { name: "caches", problem: caches, detail: None },
        ];
        if let Some(certs) = &self.certs {
            let problem = match &*certs.borrow() {
                CertsState::Pending(why) => Some(why.clone()),
                CertsState::Ready => None,
            };
            checks.push(Check { name: "certificates", problem, detail: None });
        }
        // A replica that waits is ready: it answers webhooks and can take over at once.
        let detail = match &*self.standing.borrow() {
            Standing::Leading => "leading".to_owned(),
            Standing::Waiting { detail, .. } => detail.clone(),
        };
        checks.push(Check { name: "leadership", problem: None, detail: Some(detail) });
        checks
    }

    fn alive(&self) -> BoxFuture<'_, bool> {
        Box::pin(async {
            let answer = tokio::time::timeout(ALIVE, self.engine.ask(|_| ())).await;
            matches!(answer, Ok(Some(())))
        })
    }

    fn state(&self) -> BoxFuture<'_, Option<String>> {
        Box::pin(async {
            let pages = self
                .engine
                .pages(State::default(), |state, engine: &mut Engine| engine.state_page(state, PAGE));
            let state = pages.await?;
            blocking("the state", move || format!("{:#}\n", state.into_value())).await.ok()
        })
    }

    fn audit(&self, pause: bool) -> BoxFuture<'_, Option<String>> {
        Box::pin(self.engine.ask(move |engine| {
            if let Some(refusal) = audit_refused(engine.audited(), pause) {
                return refusal;
            }
            match engine.audit() {
                Ok(()) => "no differences\n".to_owned(),
                Err(differences) => differences.join("\n") + "\n",
            }
        }))
    }

    fn explain(&self, namespace: String, name: String, asked: Asked) -> BoxFuture<'_, Answer> {
        self.explainer.explain(namespace, name, asked)
    }
}

/// Why an audit of this number of objects is refused, if its caller has not accepted the pause.
fn audit_refused(objects: usize, pause: bool) -> Option<String> {
    (objects > AUDITED && !pause).then(|| {
        format!(
            "not audited: comparing {objects} objects would stop the engine for a while (up to {AUDITED} are compared at once); \
             /debug/audit?pause=true does it anyway\n"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_audit_that_would_stop_the_engine_has_to_be_asked_for() {
        assert_eq!(audit_refused(AUDITED, false), None);
        assert_eq!(audit_refused(AUDITED + 1, true), None);
        let refusal = audit_refused(AUDITED + 1, false).unwrap();
        assert!(refusal.starts_with("not audited: comparing 251 objects would stop the engine"), "{refusal}");
        assert!(refusal.ends_with("/debug/audit?pause=true does it anyway\n"), "{refusal}");
    }
}
