//! `dashboard`: a section that Kueue does not have; pages about the queues.

use serde::Serialize;

use super::reader::{Reader, field};

/// `dashboard`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Dashboard {
    /// Address that the dashboard binds to.
    pub bind_address: String,
    /// Its port; 0, as by default, switches the dashboard off.
    pub port: u16,
}

impl Default for Dashboard {
    fn default() -> Self {
        Self { bind_address: "0.0.0.0".to_owned(), port: 0 }
    }
}

impl Dashboard {
    /// Whether everything is as by default.
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Reads the section.
pub(super) fn dashboard(mut reader: Option<Reader<'_>>) -> Dashboard {
    let reader = &mut reader;
    let port = |r: &mut Reader<'_>| {
        let number = r.i32("port")?;
        let port = u16::try_from(number).ok();
        if port.is_none() {
            r.error("port", format!("expected a port from 1 to 65535, or 0 for none, found {number}"));
        }
        port
    };
    let default = Dashboard::default();
    Dashboard {
        bind_address: field(reader, |r| r.string("bindAddress")).unwrap_or(default.bind_address),
        port: field(reader, port).unwrap_or(default.port),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Configuration;

    fn parsed(section: &str) -> Result<Configuration, String> {
        let file = format!("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{section}");
        Configuration::parse(&file).map(|(configuration, _)| configuration).map_err(|why| why.to_string())
    }

    #[test]
    fn the_dashboard_is_off_unless_it_has_a_port() {
        let file = parsed("").unwrap();
        assert_eq!(file.dashboard.port, 0);
        assert!(!file.effective_yaml().contains("dashboard"));
        let file = parsed("dashboard: {port: 8090, bindAddress: \"::1\"}").unwrap();
        assert_eq!((file.dashboard.port, file.dashboard.bind_address.as_str()), (8090, "::1"));
        assert!(file.effective_yaml().contains("dashboard"));
        assert_eq!(parsed("dashboard: {port: 0}").unwrap().dashboard.port, 0);
    }

    #[test]
    fn a_wrong_port_and_an_unknown_field_are_named() {
        let why = parsed("dashboard: {port: 65536}").unwrap_err();
        assert!(
            why.contains("dashboard.port: expected a port from 1 to 65535, or 0 for none, found 65536"),
            "{why}"
        );
        let taken = parsed("dashboard: {port: 9443}").unwrap_err();
        assert!(taken.contains("dashboard.port: port 9443 is that of webhook.port"), "{taken}");
        let taken = parsed("visibilityServer: {bindPort: 9443}").unwrap_err();
        assert!(taken.contains("visibilityServer.bindPort: port 9443 is that of webhook.port"), "{taken}");
        assert!(
            parsed("featureGates: {VisibilityOnDemand: false}\nvisibilityServer: {bindPort: 9443}").is_ok()
        );
        assert!(parsed("dashboard: {port: -1}").unwrap_err().contains("dashboard.port"));
        assert!(parsed("dashboard: {bindPort: 80}").unwrap_err().contains("dashboard.bindPort"));
    }
}
