//! `kubectl kueue report`: a past period from the journal (docs/tasks/journal.md), shown as a simulation is.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use jiff::Timestamp;
use sluice_api::journal::Line;
use sluice_sim::{Kind, Recorded, Report};

use crate::complete;
use crate::connection::ClusterArgs;
use crate::html::Subject;
use crate::print::print;
use crate::simulate::Output;
use crate::usage::source::{self, Sink};
use crate::usage::time;
use crate::{html, table};

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
    /// Print the timeline however long it is
    #[arg(long)]
    pub timeline: bool,
}

impl ReportArgs {
    /// From when until when; `lines` are those of files, if files are read.
    fn window(&self, now: Timestamp, lines: Option<&[Line]>) -> anyhow::Result<(Timestamp, Timestamp)> {
        let given = |flag: &str, text: &Option<String>| {
            let parse = |text: &String| time(text, now).with_context(|| format!("--{flag} {text}"));
            text.as_ref().map(parse).transpose()
        };
        let times = || lines.into_iter().flatten().map(Line::at);
        let since = match (given("since", &self.since)?, times().min()) {
            (Some(since), _) => since,
            (None, Some(first)) => first,
            (None, None) => time("1d", now)?,
        };
        let until = match (given("until", &self.until)?, times().max()) {
            (Some(until), _) => until.min(now),
            (None, Some(last)) => last.min(now),
            (None, None) => now,
        };
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
            Line::Quota(_) | Line::Lost(_) => true,
        };
        self.clusterqueue.as_deref().is_none_or(queue) && namespace.is_none_or(of_namespace)
    }

    /// What is printed.
    fn shown(&self, lines: Vec<Line>, (since, until): (Timestamp, Timestamp)) -> anyhow::Result<String> {
        let Recorded { record, end, lost } = Recorded::new(lines, since, until);
        if lost > 0 {
            eprintln!("warning: {lost} lines of the journal are missing: they could not be written");
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

/// The lines that are asked for.
struct Wanted<'a> {
    args: &'a ReportArgs,
    namespace: Option<&'a str>,
    lines: Vec<Line>,
}

impl Sink for Wanted<'_> {
    fn begin_again(&mut self) {
        self.lines.clear();
    }

    fn take(&mut self, line: Line) {
        if self.args.wants(self.namespace, &line) {
            self.lines.push(line);
        }
    }
}

/// Runs `kubectl kueue report`.
///
/// # Errors
/// When the journal cannot be read, or the flags make no sense.
pub async fn run(args: ReportArgs, cluster: &ClusterArgs) -> anyhow::Result<u8> {
    let now = Timestamp::now();
    let namespace = cluster.namespace.as_deref();
    let mut wanted = Wanted { args: &args, namespace, lines: Vec::new() };
    let window = if args.journal.is_empty() {
        let window = args.window(now, None)?;
        let person = cluster.connect().await?;
        let queue = args.clusterqueue.as_deref();
        source::online(&person.client, queue, window.0, now, &mut wanted).await?.warn(window.0);
        window
    } else {
        source::files(&args.journal, &mut |line| wanted.take(line))?;
        let window = args.window(now, Some(&wanted.lines))?;
        source::warn_of_beginning(wanted.lines.iter().map(Line::at).min(), window.0);
        window
    };
    print(&args.shown(wanted.lines, window)?)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Command, Plugin};
    use clap::Parser as _;
    use serde_json::{Value, json};

    fn args(line: &str) -> ReportArgs {
        let line = format!("kubectl-kueue report {line}");
        let plugin = Plugin::try_parse_from(line.split_whitespace()).unwrap();
        let Command::Report(args) = plugin.command else { unreachable!("the line says report") };
        args
    }

    fn line(hour: u32, namespace: &str, more: &Value) -> Line {
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

    #[test]
    fn of_files_all_is_shown_and_of_a_manager_the_last_day() {
        let now: Timestamp = "2026-03-08T12:00:00Z".parse().unwrap();
        let window = |line: &str, lines: Option<&[Line]>| {
            let (since, until) = args(line).window(now, lines)?;
            anyhow::Ok(format!("{since} {until}"))
        };
        let day = day();
        assert_eq!(window("", None).unwrap(), "2026-03-07T12:00:00Z 2026-03-08T12:00:00Z");
        assert_eq!(window("", Some(&day)).unwrap(), "2026-01-01T01:00:00Z 2026-01-01T05:00:00Z");
        let since = window("--since 2026-01-01T02:00:00Z --until 2026-01-02", Some(&day));
        assert_eq!(since.unwrap(), "2026-01-01T02:00:00Z 2026-01-02T00:00:00Z");
        assert!(window("--since 1d", Some(&day)).is_err() && window("--since x", None).is_err());
    }

    #[test]
    fn a_recorded_day_is_a_page_and_a_document_like_those_of_a_simulation() {
        let of = |line: &str| {
            let args = args(line);
            let window = args.window(Timestamp::now(), Some(&day())).unwrap();
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
