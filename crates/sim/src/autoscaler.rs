//! What the stand-in for the cluster autoscaler makes of a request for nodes: a play of states, one after the other.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::SignedDuration;
use serde::Deserialize;

use crate::duration;

/// The states of a request without an annotation or scenario.
const DEFAULT_PLAY: &str = "Accepted,Provisioned";
/// The message of a provider whose quota is used up.
const QUOTA_EXCEEDED: &str = "Quota 'NVIDIA_P4_GPUS' exceeded. Limit: 1.0 in region europe-west4.";

/// How the stand-in for the cluster autoscaler behaves, as a scenario says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Provisioning {
    /// Between two states of a request, but for the first where that is `Accepted` or `Waiting`: those come at once. None.
    #[serde(default, deserialize_with = "duration::optional")]
    pub delay: Option<SignedDuration>,
    /// The states that an attempt goes through, separated by commas; attempts separated by semicolons, the last one for all that
    /// follow. A job's annotation `provreq.kueue.x-k8s.io/play` says it for that job. `Accepted,Provisioned`.
    #[serde(default)]
    pub play: Option<String>,
}

/// A state of a request for nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestState {
    Waiting,
    Accepted,
    Provisioned,
    QuotaExceeded,
    Failed,
    BookingExpired,
    CapacityRevoked,
}

impl RequestState {
    const ALL: [(&'static str, Self); 7] = [
        ("Waiting", Self::Waiting),
        ("Accepted", Self::Accepted),
        ("Provisioned", Self::Provisioned),
        ("QuotaExceeded", Self::QuotaExceeded),
        ("Failed", Self::Failed),
        ("BookingExpired", Self::BookingExpired),
        ("CapacityRevoked", Self::CapacityRevoked),
    ];

    /// Whether it comes at once where it is the first.
    fn is_prompt(self) -> bool {
        matches!(self, Self::Waiting | Self::Accepted)
    }

    /// The condition that it sets: type, status, reason, message.
    pub const fn condition(self) -> Option<[&'static str; 4]> {
        Some(match self {
            Self::Waiting => return None,
            Self::Accepted => ["Accepted", "True", "Accepted", "The request is accepted."],
            Self::Provisioned => ["Provisioned", "True", "Provisioned", "The nodes are ready."],
            Self::QuotaExceeded => ["Provisioned", "False", "QuotaExceeded", QUOTA_EXCEEDED],
            Self::Failed => ["Failed", "True", "Failed", "There are no machines of this kind."],
            Self::BookingExpired => {
                ["BookingExpired", "True", "BookingExpired", "The nodes were not used in time."]
            }
            Self::CapacityRevoked => {
                ["CapacityRevoked", "True", "CapacityRevoked", "The nodes were taken away."]
            }
        })
    }
}

/// The states of an attempt, the first of which has number 1.
pub(crate) fn states(play: &str, attempt: usize) -> Result<Vec<RequestState>, String> {
    let attempts: Vec<_> = play.split(';').collect();
    let states = attempts.get(attempt.saturating_sub(1)).or(attempts.last()).copied().unwrap_or_default();
    let named = |name: &str| {
        let found =
            RequestState::ALL.iter().find(|(known, _)| *known == name.trim()).map(|(_, state)| *state);
        let known = RequestState::ALL.map(|(known, _)| known).join(", ");
        found.ok_or_else(|| format!("expected one of {known}, found {name:?}"))
    };
    states.split(',').map(named).collect()
}

/// Whether every state of a scenario's play is one.
pub(crate) fn check(settings: &Provisioning) -> Result<(), String> {
    let play = settings.play.as_deref().unwrap_or(DEFAULT_PLAY);
    (1..=play.split(';').count()).try_for_each(|attempt| states(play, attempt).map(drop))
}

impl Provisioning {
    /// Takes over what another scenario says.
    pub(crate) fn take_over(&mut self, other: Self) {
        self.delay = other.delay.or(self.delay);
        self.play = other.play.or(self.play.take());
    }
}

/// The stand-in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Autoscaler {
    /// How it behaves.
    pub settings: Provisioning,
    /// The UIDs of requests that it has seen.
    pub seen: BTreeSet<Arc<str>>,
}

impl Autoscaler {
    /// The states of a request: as its own parameter says, else as the scenario does. The number at the end of its name counts
    /// attempts.
    pub fn states(&self, name: &str, own: Option<&str>) -> Result<Vec<RequestState>, String> {
        let play = own.or(self.settings.play.as_deref()).unwrap_or(DEFAULT_PLAY);
        let attempt = name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(1);
        states(play, attempt)
    }

    /// How long after the one before a state comes.
    pub fn wait(&self, number: usize, state: RequestState) -> SignedDuration {
        let delay = self.settings.delay.unwrap_or_default();
        if number == 0 && state.is_prompt() { SignedDuration::ZERO } else { delay }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_have_their_own_states_and_the_last_are_for_all_that_follow() {
        let play = "Failed;Accepted, Failed;Provisioned";
        assert_eq!(states(play, 1).unwrap(), [RequestState::Failed]);
        assert_eq!(states(play, 2).unwrap(), [RequestState::Accepted, RequestState::Failed]);
        assert_eq!(states(play, 9).unwrap(), [RequestState::Provisioned]);
        let error = states("Perhaps", 1).unwrap_err();
        assert!(error.ends_with("CapacityRevoked, found \"Perhaps\""), "{error}");
    }

    #[test]
    fn the_number_at_the_end_of_the_name_counts_attempts() {
        let standin = Autoscaler::default();
        let own = Some("Failed;Provisioned");
        assert_eq!(standin.states("job-a-12345-prov-2", own).unwrap(), [RequestState::Provisioned]);
        assert_eq!(
            standin.states("job-a-12345-prov-1", None).unwrap(),
            [RequestState::Accepted, RequestState::Provisioned]
        );
    }

    #[test]
    fn accepting_takes_no_time_and_everything_else_does() {
        let delay = SignedDuration::from_mins(2);
        let settings = Provisioning { delay: Some(delay), play: None };
        let standin = Autoscaler { settings, ..Autoscaler::default() };
        assert_eq!(standin.wait(0, RequestState::Accepted), SignedDuration::ZERO);
        assert_eq!(
            (standin.wait(0, RequestState::Failed), standin.wait(1, RequestState::Provisioned)),
            (delay, delay)
        );
    }
}
