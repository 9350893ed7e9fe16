//! The dashboards of the chart as Grafana's own types read them (`tests/control-plane/grafana`): Grafana itself is not to be had as a package that
//! may be used here.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::fs;
use std::process::Command;

use serde_json::Value;
use sluice_testkit::assets;

use super::prometheus::rendered;

/// Whether Grafana reads these dashboards, and what is said of them.
fn checked(boards: &[(String, String)]) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("go");
    command.current_dir(assets::workspace().join("tests/control-plane/grafana"));
    command.args(["run", "-mod=readonly", "."]).env("GOWORK", "off").env("CGO_ENABLED", "0");
    for (name, text) in boards {
        let file = folder.path().join(name);
        fs::write(&file, text).unwrap();
        command.arg(file);
    }
    let output = command.output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn grafana_s_own_types_read_the_dashboards_and_refuse_what_they_do_not_know() {
    let objects = rendered(&[]);
    let maps = objects["ConfigMap"].iter().filter_map(|map| map["data"].as_object()).flatten();
    let text = |(name, text): (&String, &Value)| (name.clone(), text.as_str().unwrap().to_owned());
    let boards: Vec<_> = maps.filter(|(name, _)| name.starts_with("sluice")).map(text).collect();
    assert_eq!(boards.len(), 2, "{:?}", objects["ConfigMap"]);
    let (fine, said) = checked(&boards);
    assert!(fine && said.contains("16 panels") && said.contains("11 panels"), "{said}");
    let wrong = [
        ("legendFormat", "legend_format"),
        ("fieldConfig", "fieldconfig"),
        ("schemaVersion\": 39", "schemaVersion\": \"39\""),
    ];
    for (word, other) in wrong {
        let broken = (boards[0].0.clone(), boards[0].1.replace(word, other));
        assert_ne!(broken.1, boards[0].1, "{word}");
        let (fine, said) = checked(&[broken]);
        assert!(
            !fine && (said.contains("unexpected field") || said.contains("cannot unmarshal")),
            "{other}: {said}"
        );
    }
}
