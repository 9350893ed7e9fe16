//! What people look at: the simulator's page in a browser, and the alerts and the dashboard in a Prometheus.

mod browser;
mod prometheus;
