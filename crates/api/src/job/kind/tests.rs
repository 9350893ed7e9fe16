use super::*;

#[test]
fn kinds_are_told_apart_and_in_the_order_of_their_names() {
    assert!(JobKind::ALL.is_sorted());
    for (at, kind) in JobKind::ALL.into_iter().enumerate() {
        assert_eq!(JobKind::named(kind.framework()), Some(kind));
        let api_version = format!("{}/{}", kind.group(), kind.version());
        assert_eq!(kind.api_version(), api_version.trim_start_matches('/'));
        assert_eq!(JobKind::from_owner(&format!("{}/v9", kind.group()), kind.kind()), Some(kind));
        assert!(JobKind::ALL[..at].iter().all(|other| *other != kind));
        let Integration { kind: name, plural, version, controller, about, reporter, parts, .. } =
            kind.integration();
        assert!([name, plural, version, controller, about, reporter].iter().all(|it| !it.is_empty()));
        // docs/reference/03-conditions-events.md 3.6.
        let reports = reporter.strip_suffix("-kueue-controller").unwrap();
        assert_eq!(kind.framework(), reports, "{kind:?}");
        assert_eq!(parts.len(), kind.parts().count(), "{kind:?}: its parts are of known kinds");
    }
    assert_eq!(JobKind::from_owner("other/v1", "Job"), None);
}
