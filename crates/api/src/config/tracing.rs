//! `tracing`: a section that Kueue does not have; where traces of admissions are sent.

use serde::Serialize;

use super::reader::{Reader, at_least};
use super::url::{absolute_path, wrong_url};

/// Traces that may wait, at most: each has some kilobytes.
const MOST_WAITING: i32 = 65_536;

/// `tracing`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Tracing {
    /// URL of an OpenTelemetry collector that takes OTLP over HTTP; without a path, `/v1/traces` is added. Absent: there are no traces.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// File with the certificates (PEM) that the collector's is checked against, read again when it changes. Absent: those of the system.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ca_file: String,
    /// File with headers to send, one `name: value` a line, for example an `Authorization`; read again when it changes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub headers_file: String,
    /// Which part of the traces is made, from 0 to 1. 1.
    pub sample_ratio: f64,
    /// How many traces may wait to be sent; more are dropped and counted. 2048.
    pub max_queue_size: i32,
}

impl Default for Tracing {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            ca_file: String::new(),
            headers_file: String::new(),
            sample_ratio: 1.0,
            max_queue_size: 2048,
        }
    }
}

impl Tracing {
    /// Whether everything is as by default.
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Reads the section.
pub(super) fn tracing(reader: Option<Reader<'_>>) -> Tracing {
    let default = Tracing::default();
    let Some(mut reader) = reader else { return default };
    let endpoint = reader.string("endpoint").unwrap_or_default();
    if let Some(why) = wrong_url(&endpoint, "headersFile is for those").filter(|_| !endpoint.is_empty()) {
        reader.error("endpoint", why);
    }
    let ca_file = absolute_path(&mut reader, "caFile");
    if !ca_file.is_empty() && endpoint.starts_with("http://") {
        reader.error("caFile", "cannot be used: endpoint begins with http://");
    }
    let headers_file = absolute_path(&mut reader, "headersFile");
    let sample_ratio = reader.f64("sampleRatio").unwrap_or(default.sample_ratio);
    if !(0.0..=1.0).contains(&sample_ratio) {
        reader.error("sampleRatio", format!("expected a number from 0 to 1, found {sample_ratio}"));
    }
    let max_queue_size = at_least(&mut reader, "maxQueueSize", 1).unwrap_or(default.max_queue_size);
    if max_queue_size > MOST_WAITING {
        reader.error("maxQueueSize", format!("must be less than or equal to {MOST_WAITING}"));
    }
    Tracing { endpoint, ca_file, headers_file, sample_ratio, max_queue_size }
}

#[cfg(test)]
mod tests {
    use crate::config::Configuration;

    fn parsed(section: &str) -> Result<Configuration, String> {
        let file = format!("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{section}");
        Configuration::parse(&file).map(|(configuration, _)| configuration).map_err(|why| why.to_string())
    }

    #[test]
    fn without_an_endpoint_there_are_no_traces() {
        let file = parsed("").unwrap();
        assert_eq!(file.tracing, super::Tracing::default());
        assert!(!file.effective_yaml().contains("tracing"));
        let file = parsed("tracing: {endpoint: \"http://collector.o11y:4318\"}").unwrap();
        assert_eq!(file.tracing.endpoint, "http://collector.o11y:4318");
        assert_eq!((file.tracing.sample_ratio, file.tracing.max_queue_size), (1.0, 2048));
        assert!(file.effective_yaml().contains("sampleRatio: 1"), "{}", file.effective_yaml());
    }

    #[test]
    fn urls_of_every_form_are_taken() {
        for url in [
            "http://a",
            "https://a.b-c.example:443/otlp/v1/traces",
            "http://[::1]:4318",
            "https://[2001:db8::1]/",
            "http://127.0.0.1:4318",
        ] {
            assert_eq!(parsed(&format!("tracing: {{endpoint: \"{url}\"}}")).unwrap().tracing.endpoint, url);
        }
    }

    #[test]
    fn what_is_wrong_is_refused_with_its_place() {
        for (section, place) in [
            ("endpoint: collector:4318", "tracing.endpoint: invalid value"),
            ("endpoint: \"grpc://a:4317\"", "tracing.endpoint"),
            ("endpoint: \"http://\"", "expected a host"),
            ("endpoint: \"http:///v1/traces\"", "expected a host"),
            ("endpoint: \"http://a:0\"", "expected a port"),
            ("endpoint: \"http://a:65536\"", "expected a port"),
            ("endpoint: \"http://a:+80\"", "expected a port"),
            ("endpoint: \"http://u:p@a\"", "headersFile is for those"),
            ("endpoint: \"http://a b\"", "visible ASCII"),
            ("endpoint: \"http://a?x=y\"", "neither query nor fragment"),
            ("endpoint: \"http://[::1\"", "expected a"),
            (
                "endpoint: \"http://a\", sampleRatio: 1.5",
                "tracing.sampleRatio: expected a number from 0 to 1",
            ),
            ("endpoint: \"http://a\", sampleRatio: -0.1", "tracing.sampleRatio"),
            ("endpoint: \"http://a\", sampleRatio: half", "tracing.sampleRatio"),
            ("endpoint: \"http://a\", maxQueueSize: 0", "tracing.maxQueueSize"),
            ("endpoint: \"http://a\", maxQueueSize: 100000", "tracing.maxQueueSize"),
            ("endpoint: \"https://a\", caFile: ca.crt", "tracing.caFile: expected an absolute path"),
            ("endpoint: \"http://a\", caFile: /ca.crt", "tracing.caFile: cannot be used"),
            ("endpoint: \"http://a\", headersFile: h", "tracing.headersFile: expected an absolute path"),
            ("url: \"http://a\"", "tracing.url: unknown field"),
        ] {
            let why = parsed(&format!("tracing: {{{section}}}")).unwrap_err();
            assert!(why.contains(place), "{section}: {why}");
        }
    }
}
