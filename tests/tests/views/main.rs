//! What people look at: the simulator's page in a browser, and the alerts and the dashboards in a Prometheus.

mod browser;
mod labels;
mod prometheus;
