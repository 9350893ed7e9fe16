//! axe-core (version 4.14.1, unchanged, under the Mozilla Public License 2.0: see `axe/LICENSE`) checks the accessibility of a page as it is shown.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use serde_json::Value;
use sluice_testkit::browser::Page;

const AXE: &str = include_str!("axe/axe.min.js");
/// All rules of WCAG 2.2, levels A and AA, and those that axe holds for good practice. Selectors are worked out only if something is wrong: axe takes
/// a fifth of its time to find one for each element, right or wrong.
const RUN: &str = "(async (rules) => {
    const wanted = {resultTypes: ['violations'], rules};
    const found = (await axe.run(document, {...wanted, selectors: false})).violations;
    if (found.length === 0) return [];
    const named = (await axe.run(document, wanted)).violations;
    return (named.length === 0 ? found : named).map((rule) => `${rule.id}: ${rule.help}: ` + rule.nodes.slice(0, 5).map((node) =>
        `${(node.target ?? []).join(' ')} ${node.html.slice(0, 200)} (${node.failureSummary.slice(0, 200)})`).join('; '));
})";
/// The rule that takes three quarters of axe's time on a large page: for each text it asks what is behind it.
const WITHOUT_CONTRAST: &str = "{'color-contrast': {enabled: false}}";

/// Axe finds nothing wrong with what is shown.
pub async fn is_accessible(page: &mut Page, name: &str) {
    finds_nothing(page, name, "{}").await;
}

/// The same without the contrast of texts, which axe looks at once in these colours, at another width.
pub async fn is_accessible_but_for_contrast(page: &mut Page, name: &str) {
    finds_nothing(page, name, WITHOUT_CONTRAST).await;
}

/// `rules` are axe's options by the names of rules.
async fn finds_nothing(page: &mut Page, name: &str, rules: &str) {
    if page.run("typeof axe").await.unwrap() == "undefined" {
        page.run(AXE).await.unwrap();
    }
    let found = page.run(&format!("{RUN}({rules})")).await.unwrap();
    assert_eq!(found, Value::Array(Vec::new()), "{name}");
}
