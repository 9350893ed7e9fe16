//! `kubectl kueue usage`: what teams used for how long, from the journal (docs/tasks/journal.md).

pub(crate) mod open;
mod running;
pub(crate) mod source;
mod table;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use jiff::{SignedDuration, Timestamp};
use sluice_api::journal::Line;
use sluice_api::journal::ledger::Collector;
use sluice_sim::{Kind, duration};
use std::path::PathBuf;

use crate::complete;
use crate::connection::ClusterArgs;
use crate::print::{print, say};

/// What amounts are added up by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum By {
    /// The namespace
    Namespace,
    /// The LocalQueue
    #[value(alias = "lq")]
    Localqueue,
    /// The ClusterQueue
    #[value(alias = "cq")]
    Clusterqueue,
    /// The ResourceFlavor
    #[value(alias = "rf")]
    Flavor,
}

/// How it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    #[default]
    Table,
    /// Both tables, in hours of the resource's unit
    Json,
    /// The first table
    Csv,
}

/// `kubectl kueue usage`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Hours are amounts times hours: 4 GPUs for 30 minutes are 2. BORROWED counts what of them was above \
                        the ClusterQueue's quota, divided among those who used it, EVICTED the hours of reservations that ended with an eviction, FAILED those of failed jobs.\n\nExamples:\n  kubectl kueue usage --since 7d\n  \
                        kubectl kueue usage --since 2026-03-01 --until 2026-04-01 --by namespace -o csv\n  \
                        kubectl kueue usage --journal /var/lib/sluice/journal --since 30d"
)]
pub struct UsageArgs {
    /// Start time: a duration before now, a date, or an RFC 3339 time
    #[arg(long, value_name = "TIME", default_value = "7d")]
    pub since: String,
    /// End time, in the same form (default: now)
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// What to add up by
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["namespace", "clusterqueue", "flavor"])]
    pub by: Vec<By>,
    /// Only this ClusterQueue
    #[arg(long, short, value_name = "NAME", add = complete::names(Kind::ClusterQueue))]
    pub clusterqueue: Option<String>,
    /// Read these files or folders instead of asking the manager
    #[arg(long, value_name = "PATH")]
    pub journal: Vec<PathBuf>,
    /// How to write it
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Output,
}

impl UsageArgs {
    /// From when until when.
    fn window(&self, now: Timestamp) -> anyhow::Result<(Timestamp, Timestamp)> {
        let since = time(&self.since, now).with_context(|| format!("--since {}", self.since))?;
        let until = match &self.until {
            Some(text) => time(text, now).with_context(|| format!("--until {text}"))?.min(now),
            None => now,
        };
        if since >= until {
            bail!("--since has to be before --until, and before now");
        }
        Ok((since, until))
    }
}

impl source::Sink for Collector {
    fn begin_again(&mut self) {
        *self = Self::default();
    }

    fn take(&mut self, line: Line) {
        Self::take(self, line);
    }
}

/// Runs `kubectl kueue usage`.
///
/// # Errors
/// When the journal cannot be read, or the flags make no sense.
pub async fn run(args: UsageArgs, cluster: &ClusterArgs) -> anyhow::Result<u8> {
    let now = Timestamp::now();
    let (since, until) = args.window(now)?;
    let mut collector = Collector::default();
    if args.journal.is_empty() {
        let person = cluster.connect().await?;
        let queue = args.clusterqueue.as_deref();
        source::online(&person.client, queue, since, now, &mut collector).await?.warn(since);
    } else {
        let ends = source::files(&args.journal, &mut |line| collector.take(line))?;
        ends.warn(until);
        ends.lines().for_each(|line| collector.take(line));
    }
    let mut ledger = collector.ledger(since, until);
    if !args.journal.is_empty() {
        source::warn_of_beginning(ledger.earliest, since);
    }
    let namespace = cluster.namespace.as_deref();
    let queue = args.clusterqueue.as_deref();
    ledger.accounts.retain(|account, _| {
        namespace.is_none_or(|wanted| account.namespace == wanted)
            && queue.is_none_or(|wanted| account.cluster_queue == wanted)
    });
    // The shares of a queue count all of its users, so they are dropped for a single namespace.
    ledger.places.retain(|place, _| namespace.is_none() && queue.is_none_or(|wanted| place.0 == wanted));
    if ledger.lost > 0 {
        say(&format!("warning: {} lines of the journal are missing: they could not be written", ledger.lost));
    }
    let shown = table::Usage::of(&ledger, &args.by, since, until);
    print(&match args.output {
        Output::Table => shown.text(),
        Output::Json => shown.json(),
        Output::Csv => shown.csv(),
    })?;
    Ok(0)
}

/// A duration before now, a date in UTC, or a time.
pub(crate) fn time(text: &str, now: Timestamp) -> anyhow::Result<Timestamp> {
    if let Ok(before) = duration::parse(text) {
        return now.checked_sub(before).context("that is too long ago");
    }
    if let Ok(date) = text.parse::<jiff::civil::Date>() {
        return Ok(date.to_zoned(jiff::tz::TimeZone::UTC)?.timestamp());
    }
    let form = "expected a duration like 7d, a date like 2026-03-01, or a time as in RFC 3339";
    let time: Timestamp = text.parse().context(form)?;
    // Times that no cluster knows would only overflow.
    let century = SignedDuration::from_hours(24 * 36_525);
    Ok(time.max(now.checked_sub(century).unwrap_or(Timestamp::MIN)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Command, Plugin};
    use clap::Parser as _;

    fn args(line: &str) -> UsageArgs {
        let line = format!("kubectl-kueue usage {line}");
        let plugin = Plugin::try_parse_from(line.split_whitespace()).unwrap();
        let Command::Usage(args) = plugin.command else { unreachable!("the line says usage") };
        args
    }

    #[test]
    fn times_are_durations_dates_or_times() {
        let now: Timestamp = "2026-03-08T12:00:00Z".parse().unwrap();
        let window = |line: &str| {
            let (since, until) = args(line).window(now)?;
            anyhow::Ok(format!("{since} {until}"))
        };
        assert_eq!(window("").unwrap(), "2026-03-01T12:00:00Z 2026-03-08T12:00:00Z");
        assert_eq!(window("--since 36h").unwrap(), "2026-03-07T00:00:00Z 2026-03-08T12:00:00Z");
        let days = "--since 2026-03-01 --until 2026-03-02";
        assert_eq!(window(days).unwrap(), "2026-03-01T00:00:00Z 2026-03-02T00:00:00Z");
        let ahead = "--since 2026-03-08T11:00:00Z --until 2027-01-01";
        assert_eq!(window(ahead).unwrap(), "2026-03-08T11:00:00Z 2026-03-08T12:00:00Z");
        for wrong in
            ["--since 0s", "--since x", "--since 1d --until 2d", "--since 9999-01-01", "--since 99999999999d"]
        {
            assert!(window(wrong).is_err(), "{wrong}");
        }
        assert!(window("--since 0001-01-01").is_ok());
    }

    #[test]
    fn amounts_are_added_up_by_what_is_asked_for() {
        assert_eq!(args("").by, [By::Namespace, By::Clusterqueue, By::Flavor]);
        assert_eq!(args("--by lq,flavor --by cq").by, [By::Localqueue, By::Flavor, By::Clusterqueue]);
    }
}
