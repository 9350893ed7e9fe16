//! Leader election by a Lease, the same that Kueue uses: Sluice never leads while Kueue renews it.

pub mod deadline;
pub mod evaluate;

use std::time::{Duration, Instant};

use axum::http::Method;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use sluice_client::error_chain::Chain;
use tokio::sync::{mpsc, oneshot, watch};
use tracing::{debug, info, warn};

use crate::api_call::{Call, CallError, Content};
use crate::shutdown::Stop;
use deadline::Until;
use evaluate::{Action, Observed, Record, Rival, evaluate};

/// Whether this replica leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It does not lead (yet).
    Waiting {
        /// The current holder, if there is one.
        rival: Option<Rival>,
        /// Why, as text.
        detail: String,
    },
    /// It leads.
    Leading,
}

/// Leadership is lost, with the reason. The election continues only when this is answered, or dropped: by then nothing may be written any more.
pub type Loss = (String, oneshot::Sender<()>);

/// The parameters of an election.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// Our holder identity; starts with `sluice_`.
    pub identity: String,
    /// How long others wait for a holder that stopped renewing.
    pub lease_duration: Duration,
    /// How long the leader tries to renew before it gives up.
    pub renew_deadline: Duration,
    /// The pause between attempts.
    pub retry_period: Duration,
}

/// The holder identity of this process.
pub fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = std::env::var("POD_NAME").unwrap_or_else(|_| host.trim().to_owned());
    sluice_client::lease::identity(&host, crate::random::uuid())
}

/// One replica's part in the election.
pub struct Election {
    client: Client,
    settings: Settings,
    standing: watch::Sender<Standing>,
    /// Until when this process may write.
    until: watch::Sender<Until>,
    started: Instant,
    observed: Observed,
    /// The lease as the server last gave it to us.
    known: Option<Lease>,
    leading: bool,
    last_renewed: Instant,
}

impl Election {
    /// Prepares an election. `client` should be the election's own; `until` receives the time until which this process may write.
    pub fn new(
        client: Client,
        settings: Settings,
        until: watch::Sender<Until>,
    ) -> (Self, watch::Receiver<Standing>) {
        let (standing, receiver) = watch::channel(Standing::Waiting {
            rival: None,
            detail: "the lease was not read yet".to_owned(),
        });
        let now = Instant::now();
        let election = Self {
            client,
            settings,
            standing,
            until,
            started: now,
            observed: Observed::default(),
            known: None,
            leading: false,
            last_renewed: now,
        };
        (election, receiver)
    }

    /// Runs until `stop` is given, then releases the lease. When it is lost, `losses` receives that, and the election continues from
    /// the beginning once that was answered.
    pub async fn run(mut self, mut stop: Stop, losses: mpsc::Sender<Loss>) {
        loop {
            if let Some(why) = self.step().await {
                self.until.send_replace(Until::Past);
                self.leading = false;
                self.known = None;
                self.observed = Observed::default();
                self.say(None, format!("leadership was lost: {why}"));
                let (answer, answered) = oneshot::channel();
                // The receiver lives as long as the process.
                let _ = losses.send((why, answer)).await;
                let _ = answered.await;
            }
            if !stop.sleep(self.settings.retry_period).await {
                self.release().await;
                return;
            }
        }
    }

    /// Leads without holding a lease (`leaderElect: false`), but not while Kueue renews its own: Kueue's lease is only read.
    pub async fn stand_alone(mut self, mut stop: Stop) {
        loop {
            if !self.leading {
                match self.read().await {
                    Ok(lease) => self.try_to_lead_alone(lease.as_ref()),
                    // Without the right to read leases there is no other leader to wait for.
                    Err(error) if error.code() == Some(403) => self.try_to_lead_alone(None),
                    Err(error) => self.say(None, format!("the lease cannot be read: {}", Chain(&error))),
                }
            }
            if !stop.sleep(self.settings.retry_period).await {
                return;
            }
        }
    }

    fn try_to_lead_alone(&mut self, lease: Option<&Lease>) {
        let record = lease.map(record);
        let unchanged = self.observed.note(record.as_ref(), self.started.elapsed());
        let Settings { identity, lease_duration, .. } = &self.settings;
        let action = evaluate(record.as_ref(), identity, false, unchanged, *lease_duration);
        if let Action::Wait { rival: rival @ Rival::Kueue, holder, .. } = action {
            self.wait(rival, &holder);
        } else {
            self.leading = true;
            self.until.send_replace(Until::Always);
            info!("leading without leader election");
            self.standing.send_replace(Standing::Leading);
        }
    }

    fn uri(&self, name: &str) -> String {
        let base = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", self.settings.namespace);
        if name.is_empty() { base } else { format!("{base}/{name}") }
    }

    /// A request may never outlive the deadline by which the lease must have been renewed.
    fn timeout(&self) -> Duration {
        let left = if self.leading {
            self.settings.renew_deadline.saturating_sub(self.last_renewed.elapsed())
        } else {
            self.settings.renew_deadline
        };
        left.min(self.settings.renew_deadline / 2).max(Duration::from_millis(100))
    }

    /// One attempt. Returns the reason if leadership is lost.
    async fn step(&mut self) -> Option<String> {
        match self.attempt().await {
            Ok(None) => None,
            Ok(Some(lost)) => Some(lost),
            Err(error) => {
                // What we know may be stale: read the lease again next time.
                self.known = None;
                if !self.leading {
                    debug!(error = %Chain(&error), "the lease could not be read or taken");
                    if error.code() != Some(409) {
                        self.say(None, format!("the lease cannot be read or taken: {}", Chain(&error)));
                    }
                    return None;
                }
                let silent = self.last_renewed.elapsed();
                warn!(error = %Chain(&error), seconds = silent.as_secs(), "the lease could not be renewed");
                (silent >= self.settings.renew_deadline)
                    .then(|| format!("not renewed for {} s: {}", silent.as_secs(), Chain(&error)))
            }
        }
    }

    async fn attempt(&mut self) -> Result<Option<String>, CallError> {
        let known = match self.known.take().filter(|_| self.leading) {
            Some(lease) => Some(lease),
            None => self.read().await?,
        };
        let record = known.as_ref().map(record);
        let unchanged = self.observed.note(record.as_ref(), self.started.elapsed());
        let action = evaluate(
            record.as_ref(),
            &self.settings.identity,
            self.leading,
            unchanged,
            self.settings.lease_duration,
        );
        match action {
            Action::Create => self.write(Method::POST, None).await?,
            Action::Take | Action::Renew => self.write(Method::PUT, known).await?,
            Action::Wait { rival, holder, .. } => self.wait(rival, &holder),
            Action::Lost { holder } if holder.is_empty() => return Ok(Some("the lease is gone".to_owned())),
            Action::Lost { holder } => return Ok(Some(format!("{holder} holds the lease"))),
        }
        Ok(None)
    }

    async fn read(&self) -> Result<Option<Lease>, CallError> {
        match Call::get(self.uri(&self.settings.name)).send_as(&self.client, self.timeout()).await {
            Ok(lease) => Ok(Some(lease)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn write(&mut self, method: Method, known: Option<Lease>) -> Result<(), CallError> {
        let began = Instant::now();
        let lease = held(known, &self.settings, Timestamp::now());
        let uri = if method == Method::POST { self.uri("") } else { self.uri(&self.settings.name) };
        let call = Call::with_body(method, uri, Content::Json, &lease);
        self.known = Some(call.send_as(&self.client, self.timeout()).await?);
        self.last_renewed = began;
        self.until.send_replace(Until::At(began + self.settings.renew_deadline));
        if !self.leading {
            self.leading = true;
            info!(identity = %self.settings.identity, lease = %self.settings.name, "leading");
            self.standing.send_replace(Standing::Leading);
        }
        Ok(())
    }

    fn wait(&self, rival: Rival, holder: &str) {
        let Settings { namespace, name, .. } = &self.settings;
        let detail = match rival {
            Rival::Sluice => format!("{holder} leads"),
            Rival::Kueue => format!(
                "Kueue leads: the lease {namespace}/{name} is renewed by {holder}, which is not Sluice; two \
                 admission controllers would admit twice, so this one waits until it is stopped"
            ),
        };
        self.say(Some(rival), detail);
    }

    fn say(&self, rival: Option<Rival>, detail: String) {
        let next = Standing::Waiting { rival, detail };
        self.standing.send_if_modified(|standing| {
            if *standing == next {
                return false;
            }
            if let Standing::Waiting { rival, detail } = &next {
                match rival {
                    Some(Rival::Sluice) => info!(%detail, "following"),
                    Some(Rival::Kueue) | None => warn!(%detail, "not leading"),
                }
            }
            *standing = next;
            true
        });
    }

    async fn release(&mut self) {
        if !self.leading {
            return;
        }
        self.until.send_replace(Until::Past);
        let lease = match self.known.take() {
            Some(lease) => Some(lease),
            None => self.read().await.ok().flatten(),
        };
        let Some(mut lease) = lease.filter(|l| record(l).holder == self.settings.identity) else { return };
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = Some(String::new());
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        let call = Call::with_body(Method::PUT, self.uri(&self.settings.name), Content::Json, &lease);
        match call.send(&self.client, Duration::from_secs(2)).await {
            Ok(_) => info!("lease released"),
            Err(error) => {
                warn!(error = %Chain(&error), "the lease could not be released; it expires by itself");
            }
        }
    }
}

/// The lease with us as its holder from `now`.
fn held(known: Option<Lease>, settings: &Settings, now: Timestamp) -> Lease {
    let mut lease = known.unwrap_or_else(|| Lease {
        metadata: ObjectMeta {
            name: Some(settings.name.clone()),
            namespace: Some(settings.namespace.clone()),
            ..ObjectMeta::default()
        },
        spec: None,
    });
    let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
    let seconds = i32::try_from(
        settings.lease_duration.as_secs() + u64::from(settings.lease_duration.subsec_nanos() > 0),
    )
    .unwrap_or(i32::MAX)
    .max(1);
    spec.lease_duration_seconds = Some(seconds);
    spec.renew_time = Some(MicroTime(now));
    if spec.holder_identity.as_deref() != Some(&settings.identity) {
        // The first holder of a new lease is no transition.
        spec.lease_transitions = Some(spec.lease_transitions.map_or(0, |n| n.saturating_add(1)));
        spec.acquire_time = Some(MicroTime(now));
        spec.holder_identity = Some(settings.identity.clone());
    }
    lease
}

fn record(lease: &Lease) -> Record {
    let spec = lease.spec.clone().unwrap_or_default();
    Record {
        holder: spec.holder_identity.unwrap_or_default(),
        duration: spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok()).map(Duration::from_secs),
        renewed: spec.renew_time.map(|t| t.0.to_string()),
        transitions: spec.lease_transitions.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings {
            namespace: "kueue-system".to_owned(),
            name: "c1f6bfd2.kueue.x-k8s.io".to_owned(),
            identity: "sluice_a_1".to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    #[test]
    fn taking_over_counts_a_transition_and_renewing_does_not() {
        let now = Timestamp::UNIX_EPOCH;
        let created = held(None, &settings(), now);
        assert_eq!(created.spec.as_ref().unwrap().lease_transitions, Some(0));
        let renewed = held(Some(created.clone()), &settings(), now);
        assert_eq!(renewed.spec.as_ref().unwrap().lease_transitions, Some(0));
        let other = Settings { identity: "sluice_b_2".to_owned(), ..settings() };
        let taken = held(Some(renewed), &other, now);
        assert_eq!(taken.spec.as_ref().unwrap().lease_transitions, Some(1));
        assert_eq!(record(&taken).holder, "sluice_b_2");
        assert_eq!(record(&taken).duration, Some(Duration::from_secs(15)));
    }

    #[test]
    fn no_other_replica_takes_over_before_the_whole_duration_is_over() {
        let settings = Settings { lease_duration: Duration::from_millis(1_900), ..settings() };
        let held = held(None, &settings, Timestamp::UNIX_EPOCH);
        assert_eq!(record(&held).duration, Some(Duration::from_secs(2)));
    }

    #[test]
    fn identities_are_recognisable_and_unique() {
        let (one, two) = (identity(), identity());
        assert!(one.starts_with("sluice_"));
        assert_ne!(one, two);
    }
}
