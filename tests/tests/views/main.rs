//! What people look at: the simulator's page and the dashboard in a browser, and the alerts and the dashboards in a Prometheus.

mod browser;
mod dashboard;
mod labels;
mod prometheus;
