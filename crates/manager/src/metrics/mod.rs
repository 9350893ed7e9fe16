//! Prometheus metrics (reference 05).

pub mod access;
pub mod process;
pub mod registry;
pub mod scrape;
pub mod server;

use registry::{Definition, Shape};

/// Objects that made the engine fail, by kind.
pub const SET_ASIDE: &str = "sluice_objects_set_aside_total";
/// Events that were dropped because too many waited.
pub const EVENTS_DROPPED: &str = "sluice_events_dropped";
/// Whether this replica leads, by lease (controller-runtime's name).
pub const MASTER: &str = "leader_election_master_status";
/// What this build is.
pub const BUILD_INFO: &str = "kueue_build_info";

/// Every metric.
pub fn definitions() -> Vec<Definition> {
    let mut definitions = scrape::engine_definitions();
    definitions.extend(own_definitions());
    definitions
}

/// The metrics that the manager itself keeps.
fn own_definitions() -> Vec<Definition> {
    let define = |name, help: &str, shape, labels: &[&'static str]| Definition {
        name,
        help: help.to_owned(),
        shape,
        labels: labels.to_vec(),
        role: false,
    };
    let mut definitions = vec![
        define(SET_ASIDE, "Objects that made the engine fail and were set aside.", Shape::Counter, &["kind"]),
        define(EVENTS_DROPPED, "Events dropped because too many waited.", Shape::Gauge, &[]),
        define(MASTER, "Whether this replica leads: 1 if so.", Shape::Gauge, &["name"]),
        define(
            BUILD_INFO,
            "What this build is; always 1.",
            Shape::Gauge,
            &["git_version", "git_commit", "build_date", "go_version", "compiler", "platform"],
        ),
    ];
    definitions.extend(process::definitions());
    definitions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alert_rules_and_dashboard_use_metrics_that_exist() {
        let texts = [
            include_str!("../../../../charts/sluice/files/dashboard.json"),
            include_str!("../../../../charts/sluice/templates/prometheus/rules.yaml"),
        ];
        let known: Vec<_> = definitions().into_iter().map(|d| d.name).collect();
        for text in texts {
            let words = text.split(|c: char| !(c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit()));
            let used = words.filter(|w| w.starts_with("kueue_") || w.starts_with("leader_election_"));
            let mut count = 0;
            for name in used {
                assert!(known.contains(&name.trim_end_matches("_bucket")), "{name}");
                count += 1;
            }
            assert!(count > 5, "{count}");
        }
    }
}
