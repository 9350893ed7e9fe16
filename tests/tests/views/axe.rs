//! axe-core (version 4.14.1, unchanged, under the Mozilla Public License 2.0: see `axe/LICENSE`) checks the accessibility of a page as it is shown.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use serde_json::Value;
use sluice_testkit::browser::Page;

const AXE: &str = include_str!("axe/axe.min.js");
/// All rules of WCAG 2.2, levels A and AA, and those that axe holds for good practice.
const RUN: &str = "axe.run(document, {resultTypes: ['violations']}).then((seen) => seen.violations.map((rule) =>
    `${rule.id}: ${rule.help}: ` + rule.nodes.slice(0, 5).map((node) =>
        `${node.target.join(' ')} ${node.html.slice(0, 200)} (${node.failureSummary.slice(0, 200)})`).join('; ')))";

/// Axe finds nothing wrong with what is shown.
pub async fn is_accessible(page: &mut Page, name: &str) {
    if page.run("typeof axe").await.unwrap() == "undefined" {
        page.run(AXE).await.unwrap();
    }
    assert_eq!(page.run(RUN).await.unwrap(), Value::Array(Vec::new()), "{name}");
}
