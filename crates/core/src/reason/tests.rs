use super::*;

fn refused(flavor: &str) -> Vec<PodSetRefusal> {
    vec![PodSetRefusal {
        name: "main".into(),
        refusals: vec![Refusal::NodeAffinity { flavor: flavor.into() }],
    }]
}

fn reported(reason: Reason, detail: Detail) -> Unadmitted {
    Unadmitted { reason, detail, requests: Arc::from([]) }
}

#[test]
fn a_search_that_continues_still_reports_which_preemption_is_held_back() {
    let victim = crate::WorkloadKey::new("ns", "victim");
    let kind = LoopKind::Repeated;
    let held_back = Detail::PreemptionLoop { victim, elsewhere: false, kind, pod_sets: refused("a") };
    let held_back = reported(Reason::WaitingForQuota, held_back);
    let flavors = Detail::Flavors { pod_sets: refused("b"), pending_preemptions: 0 };
    let flavors = reported(Reason::NoMatchingFlavor, flavors);
    for single in [true, false] {
        for (now, before) in [(&flavors, &held_back), (&held_back, &flavors)] {
            let both = now.after(before, single).expect("both are about flavors");
            assert_eq!(both.reason, Reason::WaitingForQuota);
            let message = both.message();
            for part in ["flavor a", "flavor b", "Preemption is held back"] {
                assert!(message.contains(part), "{message}");
            }
        }
    }
}

#[test]
fn a_victim_of_another_namespace_is_not_named() {
    let victim = crate::WorkloadKey::new("ns", "victim");
    let said = |elsewhere: bool| {
        let victim = victim.clone();
        let detail =
            Detail::PreemptionLoop { victim, elsewhere, kind: LoopKind::InReturn, pod_sets: refused("a") };
        reported(Reason::WaitingForQuota, detail).message()
    };
    assert!(said(false).contains("it would evict ns/victim, which preempted"));
    let other = said(true);
    assert!(other.contains("evict a workload of another namespace, which preempted"), "{other}");
    assert!(!other.contains("victim"), "{other}");
}
