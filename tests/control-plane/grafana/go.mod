// Grafana's own types of dashboards, to check those of the chart with. Never linked into Sluice.
module sluice.test/control-plane/grafana

go 1.26.0

require github.com/grafana/grafana-foundation-sdk/go v0.0.22
