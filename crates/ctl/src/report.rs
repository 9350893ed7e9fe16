//! `kubectl kueue report`: a past period from the journal (docs/tasks/journal.md), shown as a simulation is.

mod wanted;

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use jiff::Timestamp;
use sluice_api::journal::Line;
use sluice_sim::{Kind, Recorded, Report};

use crate::complete;
use crate::connection::ClusterArgs;
use crate::html::Subject;
use crate::print::{print, say};
use crate::simulate::Output;
use crate::usage::source::{self, Sink as _};
use crate::usage::time;
use crate::{html, table};
use wanted::Wanted;

/// `kubectl kueue report`.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "The page and the JSON are those of kubectl kueue simulate: the dashboard's view Report shows the JSON.\n\nExamples:\n  \
                        kubectl kueue report --since 1d -o html > day.html\n  \
                        kubectl kueue report --since 2026-03-01 --until 2026-03-02 -o json > day.json\n  \
                        kubectl kueue report --journal /var/lib/sluice/journal -o html > all.html"
)]
pub struct ReportArgs {
    /// Start time: a duration before now, a date, or an RFC 3339 time (default: one day ago; for files, their first line)
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// End time, in the same form (default: now; for files, their last line)
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Only this ClusterQueue
    #[arg(long, short, value_name = "NAME", add = complete::names(Kind::ClusterQueue))]
    pub clusterqueue: Option<String>,
    /// Read these files or folders instead of asking the manager
    #[arg(long, value_name = "PATH")]
    pub journal: Vec<PathBuf>,
    /// How to write it
    #[arg(long, short, value_enum, default_value_t)]
    pub output: Output,
    /// Print the whole timeline, without a limit
    #[arg(long)]
    pub timeline: bool,
}

impl ReportArgs {
    /// The beginning and the end from the flags.
    fn given(&self, now: Timestamp) -> anyhow::Result<[Option<Timestamp>; 2]> {
        let given = |flag: &str, text: &Option<String>| {
            let parse = |text: &String| time(text, now).with_context(|| format!("--{flag} {text}"));
            text.as_ref().map(parse).transpose()
        };
        Ok([given("since", &self.since)?, given("until", &self.until)?])
    }

    /// From when until when; `span` has the first and the last line of files, if files are read.
    fn window(
        &self,
        now: Timestamp,
        span: Option<(Timestamp, Timestamp)>,
    ) -> anyhow::Result<(Timestamp, Timestamp)> {
        let [since, until] = self.given(now)?;
        let since = match since.or(span.map(|(first, _)| first)) {
            Some(since) => since,
            None => time("1d", now)?,
        };
        let until = until.or(span.map(|(_, last)| last)).map_or(now, |until| until.min(now));
        if since >= until {
            bail!("--since has to be before --until, and before now");
        }
        Ok((since, until))
    }

    /// Whether a line is about what is asked for. Quota is that of whole queues.
    fn wants(&self, namespace: Option<&str>, line: &Line) -> bool {
        let queue =
            |wanted: &str| line.cluster_queue().is_none_or(|queue| queue.is_empty() || queue == wanted);
        let of_namespace = |wanted: &str| match line {
            Line::Workload(line) => line.namespace == wanted,
            Line::LocalQueue(line) => line.namespace == wanted,
            Line::Quota(_) | Line::Lost(_) | Line::Missed(_) => true,
        };
        self.clusterqueue.as_deref().is_none_or(queue) && namespace.is_none_or(of_namespace)
    }

    /// The output.
    fn shown(&self, lines: Vec<Line>, (since, until): (Timestamp, Timestamp)) -> anyhow::Result<String> {
        let Recorded { record, end, lost } = Recorded::new(lines, since, until);
        if lost > 0 {
            say(&format!("warning: {lost} lines of the journal are missing: they could not be written"));
        }
        let report = Report::new(&record, end, 0, Vec::new());
        Ok(match self.output {
            Output::Table => table::recorded(&report, self.timeline.then_some(true)),
            Output::Json => serde_json::to_string_pretty(&report)? + "\n",
            Output::Yaml => serde_saphyr::to_string(&report)?,
            Output::Html => html::page(Subject::Recorded, &record, &report, end)?,
        })
    }
}

/// Runs `kubectl kueue report`.
///
/// # Errors
/// When the journal cannot be read, or the flags make no sense.
pub async fn run(args: ReportArgs, cluster: &ClusterArgs) -> anyhow::Result<u8> {
    let now = Timestamp::now();
    let mut wanted = Wanted::new(&args, cluster.namespace.as_deref(), args.given(now)?);
    let window = if args.journal.is_empty() {
        let window = args.window(now, None)?;
        let person = cluster.connect().await?;
        let queue = args.clusterqueue.as_deref();
        source::online(&person.client, queue, window.0, now, &mut wanted).await?.warn(window.0);
        window
    } else {
        let ends = source::files(&args.journal, &mut |line| wanted.take(line))?;
        let window = args.window(now, wanted.span)?;
        source::warn_of_beginning(wanted.span.map(|(first, _)| first), window.0);
        wanted.take_lost(ends);
        window
    };
    print(&args.shown(wanted.into_lines(), window)?)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Command, Plugin};
    use clap::Parser as _;
    use serde_json::{Value, json};

    pub(super) fn args(line: &str) -> ReportArgs {
        let line = format!("kubectl-kueue report {line}");
        let plugin = Plugin::try_parse_from(line.split_whitespace()).unwrap();
        let Command::Report(args) = plugin.command else { unreachable!("the line says report") };
        args
    }

    pub(super) fn line(hour: u32, namespace: &str, more: &Value) -> Line {
        let mut line = json!({
            "at": format!("2026-01-01T{hour:02}:00:00Z"), "namespace": namespace, "workload": format!("w-{namespace}"), "uid": namespace,
            "localQueue": "main", "clusterQueue": "team",
        });
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(line).unwrap()
    }

    fn day() -> Vec<Line> {
        let usage = json!({"spot": {"cpu": "2"}});
        vec![
            serde_json::from_value(json!({"at": "2026-01-01T01:00:00Z", "clusterQueue": "team", "nominal": {"spot": {"cpu": "4"}}})).unwrap(),
            line(1, "a", &json!({"what": "Pending", "reason": "Pending", "message": "<b>no</b> quota"})),
            line(2, "a", &json!({"what": "QuotaReserved", "usage": usage})),
            line(2, "a", &json!({"what": "Admitted"})),
            line(4, "b", &json!({"what": "Holding", "since": "2026-01-01T03:00:00Z", "admitted": "2026-01-01T03:00:00Z", "usage": usage})),
            line(5, "a", &json!({"what": "Finished", "reason": "Succeeded"})),
        ]
    }

    /// The times of its first and its last line.
    fn span() -> (Timestamp, Timestamp) {
        let day = day();
        (day[0].at(), day[day.len() - 1].at())
    }

    #[test]
    fn of_files_all_is_shown_and_of_a_manager_the_last_day() {
        let now: Timestamp = "2026-03-08T12:00:00Z".parse().unwrap();
        let window = |line: &str, span: Option<(Timestamp, Timestamp)>| {
            let (since, until) = args(line).window(now, span)?;
            anyhow::Ok(format!("{since} {until}"))
        };
        let day = span();
        assert_eq!(window("", None).unwrap(), "2026-03-07T12:00:00Z 2026-03-08T12:00:00Z");
        assert_eq!(window("", Some(day)).unwrap(), "2026-01-01T01:00:00Z 2026-01-01T05:00:00Z");
        let since = window("--since 2026-01-01T02:00:00Z --until 2026-01-02", Some(day));
        assert_eq!(since.unwrap(), "2026-01-01T02:00:00Z 2026-01-02T00:00:00Z");
        assert!(window("--since 1d", Some(day)).is_err() && window("--since x", None).is_err());
    }

    #[test]
    fn a_recorded_day_is_a_page_and_a_document_like_those_of_a_simulation() {
        let of = |line: &str| {
            let args = args(line);
            let window = args.window(Timestamp::now(), Some(span())).unwrap();
            args.shown(day(), window).unwrap()
        };
        let page = of("-o html");
        assert!(page.contains("<h1>Recorded</h1><p>4h from 2026-01-01T01:00:00Z</p>"), "{page}");
        assert!(page.contains("<title>Sluice: recorded</title>") && page.contains("a/w-a"));
        assert!(!page.contains("<b>no</b>"), "a message became an element");
        let document: Value = serde_json::from_str(&of("-o json")).unwrap();
        let reported: Vec<_> = document["timeline"]
            .as_array()
            .unwrap()
            .iter()
            .map(|l| (l["at"].as_f64().unwrap(), l["event"].as_str().unwrap()))
            .collect();
        let expected = [
            (0.0, "submitted"),
            (0.0, "waiting"),
            (3600.0, "admitted"),
            (7200.0, "submitted"),
            (7200.0, "admitted"),
            (14400.0, "finished"),
        ];
        assert_eq!(reported, expected);
        assert_eq!(document["totals"]["running"], 1);
        assert!(of("").contains("team   -       2     2"), "{}", of(""));
    }

    /// Two reservations without an end in the files: a later manager found one of them.
    #[test]
    fn a_reservation_without_an_end_is_open_unless_a_later_manager_did_not_find_it() {
        let usage = json!({"spot": {"cpu": "2"}});
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, lines: &[Line]| {
            let text: String = lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect();
            std::fs::write(folder.path().join(name), text).unwrap();
        };
        let reserved = |hour, name| line(hour, name, &json!({"what": "QuotaReserved", "usage": usage}));
        write(
            "a.00000000.jsonl",
            &[reserved(1, "lost"), line(2, "lost", &json!({"what": "Admitted"})), reserved(1, "runs")],
        );
        let holding = json!({"what": "Holding", "since": "2026-01-01T01:00:00Z", "usage": usage});
        write(
            "b.00000000.jsonl",
            &[line(4, "runs", &holding), line(6, "new", &json!({"what": "Pending", "reason": "Pending"}))],
        );
        let of = |flags: &str| {
            let args = args(&format!("-o json {flags}"));
            let now = Timestamp::now();
            let mut wanted = Wanted::new(&args, None, args.given(now).unwrap());
            let ends = source::files(&[folder.path().to_owned()], &mut |line| wanted.take(line)).unwrap();
            let window = args.window(now, wanted.span).unwrap();
            wanted.take_lost(ends);
            let shown = args.shown(wanted.into_lines(), window).unwrap();
            let document: Value = serde_json::from_str(&shown).unwrap();
            let timeline = document["timeline"].as_array().unwrap();
            let lost = timeline.iter().rfind(|reported| reported["job"] == "lost/w-lost");
            let lost = lost.map(|reported| {
                (reported["at"].as_f64().unwrap(), reported["event"].as_str().unwrap().to_owned())
            });
            (lost, document["totals"]["running"].clone(), document["totals"]["waiting"].clone())
        };
        assert_eq!(of(""), (Some((3600.0, "deleted".to_owned())), json!(1), json!(1)));
        // Long after the last line, too; and of what ended before, nothing is shown.
        assert_eq!(of("--until 2026-01-03"), (Some((3600.0, "deleted".to_owned())), json!(1), json!(1)));
        assert_eq!(of("--since 2026-01-01T03:00:00Z"), (None, json!(1), json!(1)));
    }

    #[test]
    fn other_namespaces_and_queues_are_left_out() {
        let day = day();
        let kept = |line: &str, namespace: Option<&str>| {
            day.iter().filter(|one| args(line).wants(namespace, one)).count()
        };
        assert_eq!(
            (kept("", None), kept("", Some("b")), kept("-c team", None), kept("-c x", None)),
            (6, 2, 6, 0)
        );
    }
}
