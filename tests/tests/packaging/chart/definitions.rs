//! The definitions of the kinds, which are most of what the chart renders.

use serde_json::Value;

use super::{OUTSIDE, render_whole, whole};

#[test]
fn the_chart_never_sets_a_ca_bundle() {
    // It would fight the manager, which injects its own, at each upgrade.
    for values in [&[][..], &OUTSIDE] {
        assert!(!render_whole(values).unwrap().contains("caBundle"));
    }
}

#[test]
fn all_eleven_crds_are_kept_on_uninstall_and_switched_off_together() {
    let with = whole(&[]);
    let crds: Vec<&Value> = with
        .iter()
        .filter(|(name, _)| name.starts_with("CustomResourceDefinition/"))
        .map(|(_, crd)| crd)
        .collect();
    assert_eq!(crds.len(), 11);
    for crd in crds {
        assert_eq!(
            crd["metadata"]["annotations"]["helm.sh/resource-policy"], "keep",
            "{}",
            crd["metadata"]["name"]
        );
    }
    let without = whole(&["crds.enabled=false"]);
    assert!(!without.keys().any(|name| name.starts_with("CustomResourceDefinition/")));
}
