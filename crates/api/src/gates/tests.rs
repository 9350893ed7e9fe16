//! Tests of the selection of gates.

use super::*;

fn errors(text: &str) -> Vec<String> {
    Gates::parse(text).unwrap_err().iter().map(ToString::to_string).collect()
}

fn warnings(text: &str) -> Vec<String> {
    Gates::parse(text).unwrap().1.iter().map(ToString::to_string).collect()
}

#[test]
fn the_table_fits_the_set_and_has_parents_before_children() {
    assert!(Gate::ALL.len() <= 128);
    for (index, gate) in Gate::ALL.iter().enumerate() {
        assert_eq!(Gate::from_name(gate.name()), Some(*gate));
        for parent in gate.parents() {
            assert!(Gate::ALL.iter().position(|g| g == parent).unwrap() < index, "{}", gate.name());
            assert!(!gate.default_on() || parent.default_on(), "{} is on without its parent", gate.name());
        }
    }
}

/// Gates that are ours: there are none of them in Kueue.
const OURS: &[Gate] = &[
    Gate::PreemptionLoopGuard,
    Gate::AdmitOnlyFreeQuota,
    Gate::RequeueReclaimersOnBorrowing,
    Gate::Hotswap,
    Gate::HotswapSlices,
    Gate::TASKeepWholeDomains,
];

#[test]
fn gates_are_those_of_the_reference_with_their_stages_and_defaults() {
    let table = include_str!("../../tests/data/gates.tsv");
    let mut expected: Vec<String> = table.lines().skip(1).map(str::to_owned).collect();
    let row = |gate: &Gate| {
        let stage = format!("{:?}", gate.stage()).replace("Locked", "GA");
        format!("{}\t{}\t{stage}\t{}", gate.name(), gate.default_on(), gate.since())
    };
    let mut known: Vec<String> = Gate::ALL.iter().filter(|gate| !OURS.contains(gate)).map(row).collect();
    expected.sort();
    known.sort();
    assert_eq!(known, expected);
    let gates = Gates::default();
    assert!(Gate::ALL.iter().all(|gate| gates.enabled(*gate) == gate.default_on()));
    assert_eq!(gates.overrides().count(), 0);
}

#[test]
fn a_flag_sets_gates_and_the_last_entry_wins() {
    let (gates, warnings) =
        Gates::parse("PriorityBoost=true, PartialAdmission=false,PriorityBoost=F,").unwrap();
    assert!(!gates.enabled(Gate::PartialAdmission));
    assert!(!gates.enabled(Gate::PriorityBoost));
    assert_eq!(gates, Gates::default().with(Gate::PartialAdmission, false));
    assert_eq!(warnings, []);
    assert_eq!(format!("{gates:?}"), r#"{"PartialAdmission": false}"#);
}

#[test]
fn every_mistake_is_named_at_once() {
    assert_eq!(
        errors("Bogus=true,PartialAdmission,FlavorFungibility=maybe,TLSOptions=false"),
        [
            "missing bool value for PartialAdmission",
            "invalid value \"maybe\" of feature gate FlavorFungibility: expected true or false",
            "unrecognized feature gate: Bogus",
            "cannot set feature gate TLSOptions to false, feature is locked to true",
        ]
    );
}

#[test]
fn a_locked_gate_may_be_set_to_what_it_is() {
    assert_eq!(Gates::parse("TLSOptions=true").unwrap().0, Gates::default());
}

#[test]
fn removed_gates_are_warned_of() {
    assert_eq!(
        warnings("LendingLimit=true,HierarchicalCohorts=false,QueueVisibility=false"),
        [
            "feature gate LendingLimit was removed; it has no effect",
            "feature gate HierarchicalCohorts was removed: what it switches is always on",
            "feature gate QueueVisibility was removed; it has no effect",
        ]
    );
    let (_, warnings) = Gates::from_entries([("LocalQueueDefaulting", true)]).unwrap();
    assert_eq!(warnings, [GateWarning::Removed("LocalQueueDefaulting")]);
    assert!(REMOVED.is_sorted() && ALWAYS_ON.iter().all(|name| REMOVED.contains(name)));
    assert!(REMOVED.iter().all(|name| Gate::from_name(name).is_none()));
}

/// Of the gates that a configuration of Kueue 0.5 to 0.19 may name, none keeps the manager from starting.
#[test]
fn each_gate_of_an_older_release_is_known() {
    for (release, gates) in [
        ("0.5", "QueueVisibility ProvisioningACC FlavorFungibility PartialAdmission"),
        (
            "0.10",
            "MultiplePreemptions WorkloadResourceRequestsSummary AdmissionCheckValidationRules KeepQuotaForProvReqRetry",
        ),
        (
            "0.11",
            "TASProfileMostFreeCapacity TASProfileLeastFreeCapacity TASProfileMixed ExposeFlavorsInLocalQueue",
        ),
        (
            "0.14",
            "ManagedJobsNamespaceSelector LocalQueueDefaulting FlavorFungibilityImplicitPreferenceDefault SanitizePodSets",
        ),
        (
            "0.15",
            "MultiKueueAllowInsecureKubeconfigs PropagateBatchJobLabelsToWorkload DynamicResourceAllocation",
        ),
        (
            "0.16",
            "SkipFinalizersForPodsSuspendedByParent MultiKueueWaitForWorkloadAdmitted MultiKueueRedoAdmissionOnEvictionInWorker",
        ),
        (
            "0.17",
            "SchedulerLongRequeueInterval SchedulerTimestampPreemptionBuffer DRAExtendedResources HierarchicalCohorts",
        ),
    ] {
        let set: Vec<_> = gates.split(' ').map(|gate| (gate, true)).collect();
        assert!(Gates::from_entries(set).is_ok(), "{release}");
    }
}

#[test]
fn a_gate_that_is_asked_for_needs_its_parents() {
    assert_eq!(
        errors("FlavorFungibility=false,FlavorFungibilityPreserveScanProgress=true"),
        [
            "feature gate FlavorFungibilityPreserveScanProgress is enabled, but depends on FlavorFungibility which is \
             disabled"
        ]
    );
    assert_eq!(
        errors("ElasticJobsViaWorkloadSlices=false,ElasticJobsViaWorkloadSlicesWithTAS=true").len(),
        1
    );
    assert!(Gates::parse("ElasticJobsViaWorkloadSlicesWithTAS=true").is_ok());
}

#[test]
fn a_gate_that_is_on_by_default_goes_off_with_its_parents() {
    let (gates, warnings) = Gates::parse("TopologyAwareScheduling=false").unwrap();
    assert!(!gates.enabled(Gate::TASFailedNodeReplacement));
    assert!(!gates.enabled(Gate::TASFailedNodeReplacementFailFast));
    assert!(!gates.enabled(Gate::TASReplaceNodeOnPodTermination));
    assert!(!gates.enabled(Gate::HotswapSlices));
    assert_eq!(warnings.len(), 4);
}

#[test]
fn stages_set_what_has_no_entry_of_its_own() {
    let (gates, _) = Gates::parse("PriorityBoost=false,AllAlpha=true").unwrap();
    assert!(gates.enabled(Gate::ShortWorkloadNames));
    assert!(!gates.enabled(Gate::PriorityBoost));
    assert!(!gates.enabled(Gate::UnadmittedWorkloadsExplicitStatus), "a beta gate");
}

#[test]
fn gates_that_are_on_without_being_built_are_named_once() {
    let all_off =
        Gate::ALL.iter().filter(|gate| !gate.built()).fold(Gates::default(), |g, gate| g.with(*gate, false));
    assert_eq!(all_off.not_built(), None);
    let warning =
        all_off.with(Gate::MultiKueue, true).with(Gate::ConcurrentAdmission, true).not_built().unwrap();
    assert_eq!(
        warning.to_string(),
        "these feature gates are on, but what they switch is not built yet: MultiKueue, ConcurrentAdmission"
    );
}
