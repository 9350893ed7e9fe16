use super::*;

#[test]
fn kinds_are_distinguished_and_in_the_order_of_their_names() {
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

#[test]
fn one_kind_is_that_of_pods() {
    let of_pods: Vec<_> = JobKind::ALL.into_iter().filter(|kind| kind.integration().of_pods).collect();
    assert_eq!(of_pods, [JobKind::of_pods()]);
}

#[test]
fn facts_that_belong_together_are_there_together() {
    for kind in JobKind::ALL {
        let facts = kind.integration();
        assert_eq!(facts.restart_label.is_some(), facts.restarts_whole, "{kind:?}");
        for of_groups in [facts.group_index, facts.group_size, facts.group_owner] {
            assert_eq!(of_groups.is_some(), kind.has_groups(), "{kind:?}");
        }
        assert!(facts.generates.iter().all(|key| key.split('/').count() <= 2), "{kind:?}");
    }
}
