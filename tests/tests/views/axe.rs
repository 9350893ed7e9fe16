//! axe-core (version 4.14.1, unchanged, under the Mozilla Public License 2.0: see `axe/LICENSE`) checks the accessibility of a page as it is shown.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use serde_json::Value;
use sluice_testkit::browser::Page;

const AXE: &str = include_str!("axe/axe.min.js");
/// All rules of WCAG 2.2, levels A and AA, and those that axe holds for good practice. Selectors are worked out only if something is wrong: axe takes
/// a fifth of its time to find one for each element, right or wrong.
const RUN: &str = "(async () => {
    const wanted = {resultTypes: ['violations']};
    const found = (await axe.run(document, {...wanted, selectors: false})).violations;
    if (found.length === 0) return [];
    const named = (await axe.run(document, wanted)).violations;
    return (named.length === 0 ? found : named).map((rule) => `${rule.id}: ${rule.help}: ` + rule.nodes.slice(0, 5).map((node) =>
        `${(node.target ?? []).join(' ')} ${node.html.slice(0, 200)} (${node.failureSummary.slice(0, 200)})`).join('; '));
})()";

/// Axe finds nothing wrong with what is shown.
pub async fn is_accessible(page: &mut Page, name: &str) {
    if page.run("typeof axe").await.unwrap() == "undefined" {
        page.run(AXE).await.unwrap();
    }
    assert_eq!(page.run(RUN).await.unwrap(), Value::Array(Vec::new()), "{name}");
}
