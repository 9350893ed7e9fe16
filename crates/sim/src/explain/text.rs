//! The explanation as plain text.

use std::fmt::Write as _;

use super::{Explained, Forecast, Refused};
use crate::duration::show;

impl Explained {
    /// The explanation as text.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing into a String does not fail.
        let _ = writeln!(
            text,
            "{} (Workload {}, priority {}): {}",
            self.job, self.workload, self.priority, self.state
        );
        if let Some(position) = self.position {
            let queue = self.cluster_queue.as_deref().unwrap_or("its queue");
            let _ = writeln!(text, "place {position} in ClusterQueue {queue}");
        }
        for who in &self.ahead {
            let _ = writeln!(text, "  ahead: {who}");
        }
        if let (Some(reason), Some(message)) = (&self.reason, &self.message) {
            let _ = writeln!(text, "why: {reason}: {message}");
        }
        for refused in &self.flavors {
            refusal(&mut text, refused);
        }
        if !self.history.is_empty() {
            text.push_str("so far:\n");
            for line in &self.history {
                let _ = writeln!(text, "  {line}");
            }
        }
        if !self.changes.is_empty() {
            text.push_str("changed since it was submitted:\n");
            for line in &self.changes {
                let _ = writeln!(text, "  {line}");
            }
        }
        if !self.remedies.is_empty() {
            text.push_str("what would help (each was tried in the engine):\n");
            for remedy in &self.remedies {
                let victims = match &remedy.preempts[..] {
                    [] => String::new(),
                    jobs => format!("; preempts {}", jobs.join(", ")),
                };
                let _ = writeln!(text, "  * {}{victims}", remedy.text);
            }
        }
        if let Some(forecast) = &self.forecast {
            start(&mut text, forecast);
        }
        if self.incomplete {
            text.push_str("time ran out: not everything was tried\n");
        }
        text
    }
}

fn refusal(text: &mut String, refused: &Refused) {
    let _ = writeln!(text, "  pod set {}: {}", refused.pod_set, refused.why);
    if let (Some(needed), Some(free)) = (&refused.needed, &refused.free) {
        let _ = writeln!(text, "    needs {needed}, can have {free}");
    }
    if !refused.held_by.is_empty() {
        let _ = writeln!(text, "    held by {}", refused.held_by.join(", "));
    }
    if let Some(preemption) = &refused.preemption {
        let _ = writeln!(text, "    preemption: {preemption}");
    }
    for spared in &refused.spared {
        let _ = writeln!(text, "      {spared}");
    }
}

fn start(text: &mut String, forecast: &Forecast) {
    let time = |seconds: i64| show(seconds.saturating_mul(1000));
    match (forecast.p50, forecast.p90) {
        (Some(p50), Some(p90)) if p50 == p90 => {
            let _ = writeln!(text, "estimated start: in {}", time(p50));
        }
        (Some(p50), Some(p90)) => {
            let _ = writeln!(text, "estimated start: in {} (p50), {} (p90)", time(p50), time(p90));
        }
        (Some(p50), None) => {
            let _ = writeln!(text, "estimated start: in {} (p50); in some futures not at all", time(p50));
        }
        (None, _) => {
            let _ = writeln!(text, "estimated start: none; nothing that is known to come lets it start");
        }
    }
    let _ = writeln!(
        text,
        "  an estimate from {} simulated future(s), it starts in {}; {}",
        forecast.futures, forecast.starts, forecast.basis
    );
}
