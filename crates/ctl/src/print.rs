//! What commands print.

use std::io::Write as _;

use clap::ValueEnum;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sluice_engine::Kind;

use crate::cluster::shown;

/// How documents are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Documents {
    /// For programs
    Json,
    /// For programs and people
    Yaml,
    /// Only kinds and names
    Name,
}

/// Writes to standard output. Whoever reads may have seen enough.
pub fn print(text: &str) -> std::io::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Documents of a kind as text: one by itself, several as a list.
pub fn documents(kind: Kind, mut found: Vec<Value>, one: bool, how: Documents) -> anyhow::Result<String> {
    for object in &mut found {
        object["apiVersion"] = json!(kind.api_version());
        object["kind"] = json!(kind.as_str());
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
    }
    if how == Documents::Name {
        let name =
            |object: &Value| shown(kind, object["metadata"]["name"].as_str().unwrap_or_default()) + "\n";
        return Ok(found.iter().map(name).collect());
    }
    let document = match found.pop() {
        Some(only) if one && found.is_empty() => only,
        last => {
            found.extend(last);
            json!({"apiVersion": "v1", "kind": "List", "items": found})
        }
    };
    Ok(match how {
        Documents::Yaml => serde_saphyr::to_string(&document)?,
        _ => serde_json::to_string_pretty(&document)? + "\n",
    })
}

/// How long ago a time of the API was, as kubectl shows ages; `<unknown>` without one.
pub fn age(time: &Value, now: Timestamp) -> String {
    match time.as_str().and_then(|text| text.parse::<Timestamp>().ok()) {
        Some(time) => lasted(now.duration_since(time)),
        None => "<unknown>".to_owned(),
    }
}

/// A duration as kubectl shows ages: `45s`, `3m20s`, `25m`, `5h10m`, `30h`, `3d4h`, `40d`.
pub fn lasted(duration: SignedDuration) -> String {
    let s = duration.as_secs().max(0);
    let (m, h, d) = (s / 60, s / 3600, s / 86_400);
    let two = |a: i64, unit: &str, b: i64, small: &str| {
        if b == 0 { format!("{a}{unit}") } else { format!("{a}{unit}{b}{small}") }
    };
    match s {
        ..120 => format!("{s}s"),
        120..600 => two(m, "m", s % 60, "s"),
        600..10_800 => format!("{m}m"),
        10_800..28_800 => two(h, "h", m % 60, "m"),
        28_800..172_800 => format!("{h}h"),
        172_800..691_200 => two(d, "d", h % 24, "h"),
        _ => format!("{d}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_kubectl_writes_them() {
        let shown = |seconds| lasted(SignedDuration::from_secs(seconds));
        let all: Vec<_> = [-1, 119, 200, 1500, 18_600, 108_000, 273_600, 3_456_000].map(shown).into();
        assert_eq!(all, ["0s", "119s", "3m20s", "25m", "5h10m", "30h", "3d4h", "40d"]);
    }

    #[test]
    fn one_document_stands_alone_and_several_are_a_list() {
        let queue = |name: &str| json!({"metadata": {"name": name, "managedFields": []}});
        let json = |found, one| documents(Kind::ClusterQueue, found, one, Documents::Json).unwrap();
        assert!(json(vec![queue("a")], true).starts_with("{\n  \"apiVersion\": \"kueue.x-k8s.io/v1beta2\""));
        assert!(json(vec![queue("a")], false).contains("\"kind\": \"List\""));
        assert!(!json(vec![queue("a")], false).contains("managedFields"));
        let names =
            documents(Kind::ClusterQueue, vec![queue("a"), queue("b")], false, Documents::Name).unwrap();
        assert_eq!(names, "clusterqueue.kueue.x-k8s.io/a\nclusterqueue.kueue.x-k8s.io/b\n");
    }
}
