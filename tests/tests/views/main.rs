//! What people look at: the simulator's page and the dashboard in a browser, and the alerts and the dashboards in a Prometheus and as Grafana reads them.

mod axe;
mod browser;
mod dashboard;
mod grafana;
mod labels;
mod prometheus;
mod rules;
mod smooth;
