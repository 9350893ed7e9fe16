//! The faults of the run, and what each of them may excuse. The causes of what is excused are outside the manager, or no version protects a write from
//! them; without such a fault at that time it is a violation.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Checker;

/// How long the clients of Kubernetes' own controllers wait at most before they list again what they could not watch (client-go's reflectors).
const LISTS_AGAIN: Duration = Duration::from_secs(30);
/// How long after it was stored an answer may be on its way: etcd gives a request up after five seconds and twice its election timeout, a second.
pub(super) const ANSWER: Duration = Duration::from_secs(7);
/// The kind of a time in which the machine stands still, or has no time for any process. Whatever is late then is late by that, and no fault is played.
pub(in crate::soak) const STALL: &str = "Stall";

/// What a fault may be the cause of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excuse {
    /// The controller of a job has not looked at it yet.
    Unseen,
    /// The leader learned late that a right had ended, or its write was carried out late.
    LateAdmission,
    /// The answer to the request that made a pod did not arrive, and the controller of its Job made another.
    Surplus,
    /// The controller of a job has missed something, or a fake node has.
    Oversight,
}

impl Excuse {
    /// Whether a fault of this kind can be the cause.
    pub fn fits(self, kind: &str) -> bool {
        let outage = ["Freeze ApiServer", "Freeze Etcd", "Replace ApiServer", "Replace Etcd"];
        if kind == STALL {
            return true;
        }
        match self {
            Self::Unseen => outage.contains(&kind),
            // Nodes have no part in these, and a replica that does not lead admits nothing.
            Self::LateAdmission => {
                let of_leader = ["Kill Leader", "Kill Both", "Restart Leader", "FreezeLeader", "CutLeader"];
                let of_requests = kind == "DropConnections" || kind.starts_with("Disrupt ");
                outage.contains(&kind) || of_leader.contains(&kind) || of_requests
            }
            // An API server that stands still answers later; etcd says after some seconds that a request took too long, and stores it.
            Self::Surplus => outage[1..].contains(&kind),
            Self::Oversight => outage.contains(&kind) || kind == "LoseNode",
        }
    }

    /// For how long after its end a fault that was played still has this effect.
    pub fn lasts(self) -> Duration {
        match self {
            Self::LateAdmission => super::rights::LATE,
            Self::Unseen | Self::Surplus | Self::Oversight => LISTS_AGAIN,
        }
    }
}

/// A fault that was played, or a time in which the machine stood still.
#[derive(Clone, Debug)]
struct Fault {
    kind: String,
    from: Duration,
    /// None: it lasts.
    until: Option<Duration>,
}

/// All faults until now, by number.
#[derive(Debug, Default)]
pub(super) struct Faults(BTreeMap<usize, Fault>);

impl Faults {
    /// Whether a fitting fault overlaps this time, or has ended shortly before.
    pub fn overlap(&self, excuse: Excuse, from: Duration, until: Duration) -> bool {
        self.0.values().any(|fault| {
            // No watch breaks because the machine stands still: all continue at once.
            let lasts = if fault.kind == STALL { Duration::ZERO } else { excuse.lasts() };
            let over = fault.until.map(|end| end + lasts);
            excuse.fits(&fault.kind) && fault.from <= until && over.is_none_or(|over| from <= over)
        })
    }
}

impl Checker {
    /// A fault of this kind begins now.
    pub fn fault_begins(&mut self, number: usize, kind: &str) {
        let fault = Fault { kind: kind.to_owned(), from: self.now, until: None };
        self.faults.0.insert(number, fault);
    }

    /// This fault is over now.
    pub fn fault_ends(&mut self, number: usize) {
        if let Some(fault) = self.faults.0.get_mut(&number) {
            fault.until = Some(self.now);
        }
    }
}
