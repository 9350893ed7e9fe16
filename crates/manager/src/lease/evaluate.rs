//! Leader election as a pure function: what to do about the lease that was just read.
//!
//! A record counts as expired when it did not *change* for its duration, measured on this process's monotonic clock since
//! the change was first seen: clocks of different machines are never compared.

use std::time::Duration;

use sluice_client::lease::IDENTITY_PREFIX;

/// The relevant fields of a Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// `spec.holderIdentity`; empty when released.
    pub holder: String,
    /// `spec.leaseDurationSeconds`, as the holder promised it.
    pub duration: Option<Duration>,
    /// `spec.renewTime`, compared for equality only.
    pub renewed: Option<String>,
    /// `spec.leaseTransitions`.
    pub transitions: i32,
}

/// The holder of the lease while we wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rival {
    /// Another replica of Sluice.
    Sluice,
    /// Not Sluice: Kueue's own manager.
    Kueue,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// No lease exists: create it in our name.
    Create,
    /// The lease is free or expired: take it.
    Take,
    /// It is ours: renew it.
    Renew,
    /// Another holder renews it: wait.
    Wait {
        /// The holder.
        rival: Rival,
        /// The holder's identity.
        holder: String,
        /// When the record expires if nothing changes.
        expires_in: Duration,
    },
    /// We led, and the lease is no longer ours: stop leading at once.
    Lost {
        /// The holder now; empty if there is none.
        holder: String,
    },
}

/// Decides. `unchanged_for` is how long `lease` has been seen unchanged; `default_duration` replaces the duration of a record without one.
pub fn evaluate(
    lease: Option<&Record>,
    me: &str,
    leading: bool,
    unchanged_for: Duration,
    default_duration: Duration,
) -> Action {
    let Some(lease) = lease else {
        return if leading { Action::Lost { holder: String::new() } } else { Action::Create };
    };
    if lease.holder == me {
        return Action::Renew;
    }
    if leading {
        return Action::Lost { holder: lease.holder.clone() };
    }
    if lease.holder.is_empty() {
        return Action::Take;
    }
    let duration = lease.duration.filter(|d| !d.is_zero()).unwrap_or(default_duration);
    if unchanged_for >= duration {
        return Action::Take;
    }
    let rival = if lease.holder.starts_with(IDENTITY_PREFIX) { Rival::Sluice } else { Rival::Kueue };
    Action::Wait { rival, holder: lease.holder.clone(), expires_in: duration.saturating_sub(unchanged_for) }
}

/// Remembers since when a record is unchanged.
#[derive(Debug, Default)]
pub struct Observed {
    last: Option<(Option<Record>, Duration)>,
}

impl Observed {
    /// Notes what was read at monotonic time `now`; says for how long it has not changed.
    pub fn note(&mut self, record: Option<&Record>, now: Duration) -> Duration {
        match &self.last {
            Some((last, since)) if last.as_ref() == record => now.saturating_sub(*since),
            _ => {
                self.last = Some((record.cloned(), now));
                Duration::ZERO
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: &str = "sluice_a_1";
    const FIFTEEN: Duration = Duration::from_secs(15);

    fn held_by(holder: &str) -> Record {
        Record {
            holder: holder.to_owned(),
            duration: Some(FIFTEEN),
            renewed: Some("2026-01-01T00:00:00.000000Z".to_owned()),
            transitions: 1,
        }
    }

    fn decide(lease: Option<&Record>, leading: bool, unchanged_s: u64) -> Action {
        evaluate(lease, ME, leading, Duration::from_secs(unchanged_s), FIFTEEN)
    }

    #[test]
    fn without_a_lease_one_is_created() {
        assert_eq!(decide(None, false, 0), Action::Create);
    }

    #[test]
    fn our_own_lease_is_renewed_whether_or_not_we_knew_that_we_lead() {
        assert_eq!(decide(Some(&held_by(ME)), true, 100), Action::Renew);
        assert_eq!(decide(Some(&held_by(ME)), false, 0), Action::Renew);
    }

    #[test]
    fn a_released_lease_is_taken_at_once() {
        assert_eq!(decide(Some(&held_by("")), false, 0), Action::Take);
    }

    #[test]
    fn a_live_rival_is_waited_for_and_named() {
        assert_eq!(
            decide(Some(&held_by("sluice_b_2")), false, 5),
            Action::Wait {
                rival: Rival::Sluice,
                holder: "sluice_b_2".to_owned(),
                expires_in: Duration::from_secs(10)
            }
        );
        let Action::Wait { rival, .. } = decide(Some(&held_by("kueue-controller-manager-abc_1")), false, 0)
        else {
            unreachable!("a live holder is waited for")
        };
        assert_eq!(rival, Rival::Kueue);
    }

    #[test]
    fn a_record_that_did_not_change_for_its_duration_is_taken() {
        assert_eq!(decide(Some(&held_by("sluice_b_2")), false, 15), Action::Take);
        let mut promised_longer = held_by("sluice_b_2");
        promised_longer.duration = Some(Duration::from_mins(1));
        assert!(matches!(decide(Some(&promised_longer), false, 15), Action::Wait { .. }));
        let mut without = held_by("sluice_b_2");
        without.duration = None;
        assert_eq!(decide(Some(&without), false, 15), Action::Take);
    }

    #[test]
    fn a_leader_whose_lease_is_gone_or_anothers_has_lost_it() {
        assert_eq!(decide(None, true, 0), Action::Lost { holder: String::new() });
        assert_eq!(
            decide(Some(&held_by("sluice_b_2")), true, 0),
            Action::Lost { holder: "sluice_b_2".to_owned() }
        );
        assert_eq!(decide(Some(&held_by("")), true, 0), Action::Lost { holder: String::new() });
    }

    #[test]
    fn any_change_of_the_record_starts_the_clock_again() {
        let mut observed = Observed::default();
        let at = Duration::from_secs;
        let mut record = held_by("sluice_b_2");
        assert_eq!(observed.note(Some(&record), at(100)), at(0));
        assert_eq!(observed.note(Some(&record), at(110)), at(10));
        record.renewed = Some("2026-01-01T00:00:10.000000Z".to_owned());
        assert_eq!(observed.note(Some(&record), at(111)), at(0));
        assert_eq!(observed.note(Some(&record), at(126)), at(15));
        assert_eq!(observed.note(None, at(127)), at(0));
    }
}
