//! OpenTelemetry's own collector, built from pinned Go modules: it accepts OTLP over HTTP with TLS, and prints the received spans.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::assets::Tool;
use crate::certs::WEBHOOK;
use crate::plane::ControlPlane;
use crate::plane_parts::program;
use crate::ports::free_ports;
use crate::process::Program;
use crate::wait::{Progress, eventually};

/// How long it may take until it is at work.
const START_DEADLINE: Duration = Duration::from_mins(3);

/// A running collector. It is killed when this is dropped.
#[derive(Debug)]
pub struct Collector {
    program: Program,
    port: u16,
}

/// A span as the collector prints it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The id of its trace, in hexadecimal digits.
    pub trace: String,
    /// The id of the span that it is a part of; empty for the first of a trace.
    pub parent: String,
    /// Its name.
    pub name: String,
    /// Its attributes, as in `kueue.workload.name: Str(one)`.
    pub attributes: Vec<String>,
}

impl Collector {
    /// Starts it and waits until it listens. Its certificate is that of the plane's webhooks, for 127.0.0.1.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn start(plane: &ControlPlane) -> Result<Self> {
        let port = free_ports(1)?[0];
        let certificate = |file: &str| plane.cert(&format!("{WEBHOOK}.{file}")).display().to_string();
        let tls = json!({"cert_file": certificate("crt"), "key_file": certificate("key")});
        let http = json!({"endpoint": format!("127.0.0.1:{port}"), "tls": tls});
        let config = json!({
            "receivers": {"otlp": {"protocols": {"http": http}}},
            "exporters": {"debug": {"verbosity": "detailed", "use_internal_logger": false}},
            "service": {"pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["debug"]}}},
        });
        let file = plane.folder().join("otel-collector.yaml");
        fs::write(&file, config.to_string()).context("writing the collector's configuration")?;
        let mut command = program(Tool::OtelCollector)?;
        command.arg("--config").arg(file);
        let mut collector = Self { program: plane.spawn(Tool::OtelCollector.name(), command)?, port };
        let (log, program) = (collector.log(), &mut collector.program);
        eventually("the collector to be ready", START_DEADLINE, || {
            let ended = program.check().err();
            let log = fs::read_to_string(&log);
            async move {
                let log = log?;
                Ok(match ended {
                    Some(error) => Progress::Never(format!("{error:#}")),
                    None if log.contains("Everything is ready") => Progress::Done(()),
                    None => Progress::NotYet(log),
                })
            }
        })
        .await?;
        Ok(collector)
    }

    /// Where it takes spans.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The output of the collector.
    pub fn log(&self) -> PathBuf {
        self.program.log().to_owned()
    }

    /// The spans that came.
    ///
    /// # Errors
    /// Its log cannot be read.
    pub fn spans(&self) -> Result<Vec<Span>> {
        Ok(spans(&fs::read_to_string(self.log()).context("reading the collector's log")?))
    }
}

/// The spans of a log.
fn spans(log: &str) -> Vec<Span> {
    let mut found: Vec<Span> = Vec::new();
    for line in log.lines() {
        if line.starts_with("Span #") {
            found.push(Span::default());
        }
        let Some(span) = found.last_mut() else { continue };
        if let Some(attribute) = line.trim_start().strip_prefix("-> ") {
            span.attributes.push(attribute.to_owned());
        }
        let Some((field, value)) = line.split_once(" : ").or_else(|| line.split_once(" :")) else { continue };
        let field = match field.trim() {
            "Trace ID" => &mut span.trace,
            "Parent ID" => &mut span.parent,
            "Name" => &mut span.name,
            _ => continue,
        };
        if field.is_empty() {
            value.trim().clone_into(field);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_read_as_they_are_printed() {
        let log = "{\"level\":\"info\"}\nSpan #0\n    Trace ID       : 5b8e\n    Parent ID      : \n    ID             : ee\n    \
                   Name           : admission\n    Kind           : Internal\nAttributes:\n     -> a: Str(b : c)\nSpan #1\n    \
                   Trace ID       : 5b8e\n    Parent ID      : ee\n    Name           : queued\n";
        let text = |text: &str| text.to_owned();
        let first = Span {
            trace: text("5b8e"),
            parent: text(""),
            name: text("admission"),
            attributes: vec![text("a: Str(b : c)")],
        };
        let second =
            Span { trace: text("5b8e"), parent: text("ee"), name: text("queued"), attributes: vec![] };
        assert_eq!(spans(log), [first, second]);
    }
}
