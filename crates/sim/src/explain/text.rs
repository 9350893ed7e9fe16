//! The explanation as plain text.

use super::{Course, Effect, Explained, Forecast, Refused, Remedy, WhatIf};
use crate::duration::show;

impl Explained {
    /// The explanation as text: no value of a user's moves a cursor or begins a line.
    pub fn text(&self) -> String {
        let mut lines = Lines::default();
        let workload = match self.workload.as_str() {
            "" => "no Workload".to_owned(),
            name => format!("Workload {name}, priority {}", self.priority),
        };
        lines.add(format!("{} ({workload}): {}", self.job, self.state.words()));
        if let Some(position) = self.position {
            let queue = self.cluster_queue.as_deref().unwrap_or("its queue");
            lines.add(format!("place {position} in ClusterQueue {queue}"));
        }
        for who in &self.ahead {
            lines.add(format!("  ahead: {who}"));
        }
        if let (Some(reason), Some(message)) = (&self.reason, &self.message) {
            lines.add(format!("why: {reason}: {message}"));
        }
        if let Some(trace) = &self.trace {
            lines.add(format!("trace: {trace}"));
        }
        for finding in &self.findings {
            lines.add(format!("* {}", finding.text));
            for detail in &finding.details {
                lines.add(format!("    {detail}"));
            }
        }
        for refused in &self.flavors {
            refusal(&mut lines, refused);
        }
        lines.section("so far:", &self.history);
        lines.section("changed since it was submitted:", &self.changes);
        self.help(&mut lines);
        if let Some(forecast) = &self.forecast {
            start(&mut lines, forecast);
        }
        if let Some(why) = &self.no_forecast {
            lines.add(format!("estimated start: not known: {why}"));
        }
        left_out(&mut lines, self.not_played);
        if self.incomplete {
            lines.add(
                "some remedies were not tried: time ran out, or objects around the job cannot be simulated",
            );
        }
        lines.0
    }

    /// The explanation as a JSON document that is safe to print on a terminal.
    ///
    /// # Panics
    /// Never: it consists of plain data with string keys.
    pub fn json(&self) -> String {
        let document = serde_json::to_string_pretty(self);
        super::plain::json(&document.expect("an explanation consists of plain data with string keys")) + "\n"
    }

    fn help(&self, lines: &mut Lines) {
        let of = |effects: &[Effect]| -> Vec<&Remedy> {
            self.remedies.iter().filter(|remedy| effects.contains(&remedy.effect)).collect()
        };
        for (title, remedies) in [
            (
                "what would help (each was tried in the engine):",
                of(&[Effect::Starts, Effect::GetsQuota, Effect::NotEnough]),
            ),
            ("what may help (not tried: time was over):", of(&[Effect::TimeOver])),
            ("what to do (not tried: only people or other programs can do it):", of(&[Effect::Untried])),
        ] {
            if !remedies.is_empty() {
                lines.add(title);
            }
            for remedy in remedies {
                let victims = match &remedy.preempts[..] {
                    [] => String::new(),
                    jobs => format!("; preempts {}", jobs.join(", ")),
                };
                lines.add(format!("  * {}{victims}", remedy.text));
                if let Some(command) = &remedy.command {
                    lines.add(format!("      {command}"));
                }
            }
        }
    }
}

impl WhatIf {
    /// Both courses as text: no value of a user's moves a cursor or begins a line.
    pub fn text(&self) -> String {
        let mut lines = Lines::default();
        lines.add(format!("{} with {}", self.job, self.change.merge));
        course(&mut lines, "without the change", &self.before);
        course(&mut lines, "with the change", &self.after);
        left_out(&mut lines, self.not_played);
        if self.incomplete {
            lines.add("not everything was tried: time ran out");
        }
        lines.0
    }

    /// The answer as a JSON document that is safe to print on a terminal.
    ///
    /// # Panics
    /// Never: it consists of plain data with string keys.
    pub fn json(&self) -> String {
        let document = serde_json::to_string_pretty(self);
        super::plain::json(&document.expect("an answer consists of plain data with string keys")) + "\n"
    }
}

fn course(lines: &mut Lines, title: &str, course: &Course) {
    let victims = match &course.preempts[..] {
        [] => String::new(),
        jobs => format!("; preempts {}", jobs.join(", ")),
    };
    let why = course.no_forecast.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    let begins = if course.stops { format!("{title}: it is stopped, then") } else { format!("{title}:") };
    lines.add(match (&course.refused, course.state) {
        (Some(why), _) => format!("{title}: refused: {why}"),
        (None, Some(state)) => format!("{title}: {}{why}", state.words()),
        (None, None) if course.starts_now => format!("{begins} starts now{victims}"),
        (None, None) if course.gets_quota => {
            format!("{begins} gets quota now, and its admission checks follow{victims}")
        }
        (None, None) if course.forecast.is_some() => format!("{begins} waits"),
        (None, None) => format!("{begins} waits; its start is not known{why}"),
    });
    if let Some(forecast) = &course.forecast {
        start(lines, forecast);
    }
}

/// Says how many objects are left out, not which: they may belong to other users.
fn left_out(lines: &mut Lines, count: usize) {
    if count > 0 {
        lines.add(format!("{count} object(s) around the job cannot be simulated, and are left out"));
    }
}

/// Lines that are safe to print.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, line: impl AsRef<str>) {
        self.0.push_str(&super::plain::line(line.as_ref()));
        self.0.push('\n');
    }

    fn section(&mut self, title: &str, lines: &[String]) {
        if !lines.is_empty() {
            self.add(title);
        }
        for line in lines {
            self.add(format!("  {line}"));
        }
    }
}

fn refusal(lines: &mut Lines, refused: &Refused) {
    lines.add(format!("  pod set {}: {}", refused.pod_set, refused.why));
    if let (Some(needed), Some(free)) = (&refused.needed, &refused.free) {
        lines.add(format!("    needs {needed}, can have {free}"));
    }
    if !refused.held_by.is_empty() {
        lines.add(format!("    held by {}", refused.held_by.join(", ")));
    }
    if let Some(preemption) = &refused.preemption {
        lines.add(format!("    preemption: {preemption}"));
    }
    for spared in &refused.spared {
        lines.add(format!("      {spared}"));
    }
}

fn start(lines: &mut Lines, forecast: &Forecast) {
    let time = |seconds: i64| show(seconds.saturating_mul(1000));
    lines.add(match (forecast.p50, forecast.p90) {
        (Some(p50), Some(p90)) if p50 == p90 => format!("estimated start: in {}", time(p50)),
        (Some(p50), Some(p90)) => format!("estimated start: in {} (p50), {} (p90)", time(p50), time(p90)),
        (Some(p50), None) => {
            format!("estimated start: in {} (p50); in some futures not at all", time(p50))
        }
        (None, _) => "estimated start: none: no known future event lets it start".to_owned(),
    });
    lines.add(format!(
        "  estimated from {} simulated future(s); it starts in {} of them; {}",
        forecast.futures, forecast.starts, forecast.basis
    ));
}
