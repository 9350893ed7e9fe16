//! The shipped files: the chart, the plain manifests, the files around the code; and the migration from Kueue and back.
//!
//! Installing and removing are cluster-wide, so each of these tests has its own plane; tests that only read an installed chart share one.

mod chart;
mod chart_install;
mod chart_limits;
mod chart_serving;
mod chart_uninstall;
mod files;
mod migrate;
mod migrate_readme;
mod rbac;
