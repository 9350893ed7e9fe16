use super::*;

fn refused(flavor: &str) -> Vec<PodSetRefusal> {
    vec![PodSetRefusal {
        name: "main".into(),
        refusals: vec![Refusal::NodeAffinity { flavor: flavor.into() }],
    }]
}

fn told(reason: Reason, detail: Detail) -> Unadmitted {
    Unadmitted { reason, detail, requests: Arc::from([]) }
}

#[test]
fn a_search_that_goes_on_still_tells_which_preemption_is_held_back() {
    let victim = crate::WorkloadKey::new("ns", "victim");
    let held_back = Detail::PreemptionLoop { victim, kind: LoopKind::Repeated, pod_sets: refused("a") };
    let held_back = told(Reason::WaitingForQuota, held_back);
    let flavors = Detail::Flavors { pod_sets: refused("b"), pending_preemptions: 0 };
    let flavors = told(Reason::NoMatchingFlavor, flavors);
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
