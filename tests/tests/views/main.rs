//! The user interfaces: the simulator's page and the dashboard in a browser, and the alerts and dashboards in Prometheus and with Grafana's types.

mod axe;
mod browser;
mod dashboard;
mod grafana;
mod labels;
mod prometheus;
mod rules;
mod smooth;
