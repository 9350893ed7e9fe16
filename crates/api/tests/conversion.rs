//! Conversion between the versions: each rule by example, then properties over documents made from the schemas.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

mod arbitrary;

use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_api::conversion::{ConversionRequest, ConversionReview, Version, answer_review, convert};

fn object(version: &str, kind: &str, mut body: Value) -> Value {
    body["apiVersion"] = format!("kueue.x-k8s.io/{version}").into();
    body["kind"] = kind.into();
    body["metadata"] = json!({"name": "x", "labels": {"cohort": "kept"}});
    body
}

/// Converts and compares, apart from what both objects always have.
fn check(kind: &str, from: &str, body: Value, to: Version, expected: Value) {
    let mut converted = object(from, kind, body);
    convert(&mut converted, to).unwrap();
    let version = to.api_version().rsplit('/').next().unwrap();
    pretty(&converted, &object(version, kind, expected));
}

fn pretty(actual: &Value, expected: &Value) {
    assert!(actual == expected, "got {actual:#}\nwant {expected:#}");
}

fn up(kind: &str, body: Value, expected: Value) {
    check(kind, "v1beta1", body, Version::V1beta2, expected);
}

fn down(kind: &str, body: Value, expected: Value) {
    check(kind, "v1beta2", body, Version::V1beta1, expected);
}

fn both(kind: &str, v1beta1: &Value, v1beta2: &Value) {
    up(kind, v1beta1.clone(), v1beta2.clone());
    down(kind, v1beta2.clone(), v1beta1.clone());
}

#[test]
fn cohort_is_renamed() {
    both("ClusterQueue", &json!({"spec": {"cohort": "a"}}), &json!({"spec": {"cohortName": "a"}}));
}

#[test]
fn checks_by_name_become_rules_for_all_flavors() {
    up(
        "ClusterQueue",
        json!({"spec": {"admissionChecks": ["a", "b"]}}),
        json!({"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"name": "b"}]}}}),
    );
}

#[test]
fn checks_come_back_as_strategy() {
    let spec = json!({"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "a", "onFlavors": ["f"]}]}}});
    both("ClusterQueue", &spec, &spec);
}

#[test]
fn rules_of_the_same_check_are_joined() {
    up(
        "ClusterQueue",
        json!({"spec": {"admissionChecksStrategy": {"admissionChecks": [
            {"name": "a", "onFlavors": ["f"]},
            {"name": "b", "onFlavors": ["f", "f"]},
            {"name": "a"},
            {"name": "b", "onFlavors": ["g"]},
        ]}}}),
        json!({"spec": {"admissionChecksStrategy": {"admissionChecks": [
            {"name": "a"}, {"name": "b", "onFlavors": ["f", "g"]},
        ]}}}),
    );
}

/// `kubectl apply` sends what changed in the manifest: the strategy that its first names became is still there.
#[test]
fn checks_by_name_replace_the_strategy() {
    let rules = json!([{"name": "a", "onFlavors": ["f"]}]);
    let spec = json!({"spec": {"admissionChecksStrategy": {"admissionChecks": rules}}});
    let mut queue = object("v1beta1", "ClusterQueue", spec);
    for (names, stored) in [
        (json!([]), rules),
        (json!(["a", "c", "c"]), json!([{"name": "a"}, {"name": "c"}])),
        (json!(["b"]), json!([{"name": "b"}])),
    ] {
        queue["spec"]["admissionChecks"] = names;
        convert(&mut queue, Version::V1beta2).unwrap();
        assert_eq!(queue["spec"], json!({"admissionChecksStrategy": {"admissionChecks": stored}}));
        convert(&mut queue, Version::V1beta1).unwrap();
    }
}

#[test]
fn a_strategy_without_rules_goes_away() {
    up("ClusterQueue", json!({"spec": {"admissionChecksStrategy": {}}}), json!({"spec": {}}));
    up(
        "ClusterQueue",
        json!({"spec": {"admissionChecksStrategy": {"admissionChecks": []}, "admissionChecks": []}}),
        json!({"spec": {}}),
    );
}

#[test]
fn old_names_of_the_policies_are_mapped_and_never_mapped_back() {
    let new = json!({"spec": {"flavorFungibility": {
        "whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch",
    }}});
    up(
        "ClusterQueue",
        json!({"spec": {"flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}}}),
        new.clone(),
    );
    both("ClusterQueue", &new, &new);
    let next = json!({"spec": {"flavorFungibility": {
        "whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor",
    }}});
    both("ClusterQueue", &next, &next);
}

#[test]
fn dead_status_of_a_cluster_queue_is_dropped() {
    up(
        "ClusterQueue",
        json!({"status": {
            "pendingWorkloadsStatus": {"lastChangeTime": "2026-01-01T00:00:00Z"},
            "flavorsReservation": [],
            "flavorsUsage": [{"name": "f", "resources": []}],
            "fairSharing": {"weightedShare": 1, "admissionFairSharingStatus": {"consumedResources": {}}},
        }}),
        json!({"status": {
            "flavorsUsage": [{"name": "f", "resources": []}],
            "fairSharing": {"weightedShare": 1},
        }}),
    );
}

#[test]
fn v1beta1_always_has_the_flavors_of_a_cluster_queue() {
    down(
        "ClusterQueue",
        json!({"status": {"pendingWorkloads": 1}}),
        json!({"status": {"pendingWorkloads": 1, "flavorsReservation": [], "flavorsUsage": []}}),
    );
}

#[test]
fn concurrent_admission_is_lost_in_v1beta1() {
    down(
        "ClusterQueue",
        json!({"spec": {"concurrentAdmissionPolicy": {"migration": {"mode": "RetainFirstAdmission"}}}}),
        json!({"spec": {}}),
    );
}

#[test]
fn usage_of_a_local_queue_is_renamed_and_its_flavors_are_dropped() {
    both(
        "LocalQueue",
        &json!({"spec": {"clusterQueue": "c"}, "status": {"flavorUsage": [{"name": "f", "resources": []}]}}),
        &json!({"spec": {"clusterQueue": "c"}, "status": {"flavorsUsage": [{"name": "f", "resources": []}]}}),
    );
    up("LocalQueue", json!({"status": {"flavors": [{"name": "f"}]}}), json!({"status": {}}));
    let share = json!({"status": {"fairSharing": {"weightedShare": 1, "admissionFairSharingStatus": {
        "consumedResources": {"cpu": "1"}, "lastUpdate": "2026-01-01T00:00:00Z",
    }}}});
    both("LocalQueue", &share, &share);
}

#[test]
fn a_cohort_keeps_only_its_share() {
    up(
        "Cohort",
        json!({"spec": {"parentName": "p"}, "status": {"fairSharing": {"weightedShare": 1, "admissionFairSharingStatus": {}}}}),
        json!({"spec": {"parentName": "p"}, "status": {"fairSharing": {"weightedShare": 1}}}),
    );
}

#[test]
fn a_worker_clusters_credentials_move_into_the_source() {
    both(
        "MultiKueueCluster",
        &json!({"spec": {"kubeConfig": {"location": "s", "locationType": "Secret"}}}),
        &json!({"spec": {"clusterSource": {"kubeConfig": {"location": "s", "locationType": "Secret"}}}}),
    );
    both(
        "MultiKueueCluster",
        &json!({"spec": {
            "kubeConfig": {"location": "", "locationType": "Secret"},
            "clusterProfileRef": {"name": "p"},
        }}),
        &json!({"spec": {"clusterSource": {"clusterProfileRef": {"name": "p"}}}}),
    );
}

#[test]
fn priority_class_is_split_in_v1beta1() {
    for (source, group, kind) in [
        ("kueue.x-k8s.io/workloadpriorityclass", "kueue.x-k8s.io", "WorkloadPriorityClass"),
        ("scheduling.k8s.io/priorityclass", "scheduling.k8s.io", "PriorityClass"),
    ] {
        both(
            "Workload",
            &json!({"spec": {
                "podSets": [], "priority": 1, "priorityClassName": "high", "priorityClassSource": source,
            }}),
            &json!({"spec": {"priority": 1, "priorityClassRef": {"group": group, "kind": kind, "name": "high"}}}),
        );
    }
    both("Workload", &json!({"spec": {"podSets": [], "priorityClassSource": ""}}), &json!({"spec": {}}));
}

#[test]
fn a_priority_class_without_source_is_lost() {
    up(
        "Workload",
        json!({"spec": {"priorityClassName": "high", "priorityClassSource": ""}}),
        json!({"spec": {}}),
    );
    up("Workload", json!({"spec": {"priorityClassName": "high"}}), json!({"spec": {}}));
}

#[test]
fn the_misspelt_field_is_spelt_right_in_v1beta2() {
    both(
        "Workload",
        &json!({"status": {"accumulatedPastExexcutionTimeSeconds": 7}}),
        &json!({"status": {"accumulatedPastExecutionTimeSeconds": 7}}),
    );
}

#[test]
fn what_v1beta1_does_not_know_of_a_workload_is_dropped() {
    down(
        "Workload",
        json!({
            "spec": {
                "preemptionGates": [{"name": "g"}],
                "podSets": [{"name": "main", "topologyRequest": {
                    "required": "rack",
                    "podsetSliceRequiredTopologyConstraints": [{"topology": "rack", "size": 2}],
                }}],
            },
            "status": {"preemptionGates": [{"name": "g"}]},
        }),
        json!({
            "spec": {
                "priorityClassSource": "",
                "podSets": [{"name": "main", "topologyRequest": {"required": "rack"}}],
            },
            "status": {},
        }),
    );
}

#[test]
fn a_topology_assignment_is_compressed_by_columns() {
    let with = |assignment: Value| {
        json!({"status": {"admission": {"clusterQueue": "c", "podSetAssignments": [
            {"name": "other"}, {"name": "main", "topologyAssignment": assignment},
        ]}}})
    };
    both(
        "Workload",
        &with(json!({
            "levels": ["block", "rack"],
            "domains": [
                {"values": ["b1", "r-1-x"], "count": 2},
                {"values": ["b1", "r-2-x"], "count": 2},
                {"values": ["b1", "r-13-x"], "count": 1},
            ],
        })),
        &with(json!({
            "levels": ["block", "rack"],
            "slices": [{
                "domainCount": 3,
                "valuesPerLevel": [
                    {"universal": "b1"},
                    {"individual": {"prefix": "r-", "suffix": "-x", "roots": ["1", "2", "13"]}},
                ],
                "podCounts": {"individual": [2, 2, 1]},
            }],
        })),
    );
    both(
        "Workload",
        &with(json!({"levels": ["rack"], "domains": []})),
        &with(json!({"levels": ["rack"], "slices": []})),
    );
}

#[test]
fn objects_of_the_wanted_version_stay_as_they_are() {
    let odd = object("v1beta2", "ClusterQueue", json!({"spec": {"cohort": "unknown field"}}));
    let mut converted = odd.clone();
    convert(&mut converted, Version::V1beta2).unwrap();
    assert_eq!(converted, odd);
}

#[test]
fn kinds_of_one_shape_change_their_version_only() {
    let spec = json!({"spec": {"cohort": "a field of no meaning here"}});
    for kind in
        ["ResourceFlavor", "Topology", "AdmissionCheck", "ProvisioningRequestConfig", "MultiKueueConfig"]
    {
        both(kind, &spec, &spec);
    }
    let class = json!({"value": 3, "description": "d"});
    both("WorkloadPriorityClass", &class, &class);
}

fn review(objects: Vec<Value>, to: &str) -> ConversionReview {
    ConversionReview {
        api_version: "apiextensions.k8s.io/v1".into(),
        kind: "ConversionReview".into(),
        request: Some(ConversionRequest { uid: "u1".into(), desired_api_version: to.into(), objects }),
    }
}

fn answer(review: ConversionReview) -> Value {
    serde_json::from_slice(&answer_review(review).unwrap()).unwrap()
}

#[test]
fn a_review_is_answered_in_order() {
    let objects = vec![
        object("v1beta1", "ClusterQueue", json!({"spec": {"cohort": "a"}})),
        object("v1beta2", "ClusterQueue", json!({"spec": {"cohortName": "b"}})),
    ];
    let answer = answer(review(objects, "kueue.x-k8s.io/v1beta2"));
    assert_eq!((&answer["kind"], answer.get("request")), (&json!("ConversionReview"), None));
    let response = &answer["response"];
    assert_eq!(response["uid"], "u1");
    assert_eq!(response["result"], json!({"status": "Success"}));
    let names: Vec<&Value> =
        response["convertedObjects"].as_array().unwrap().iter().map(|o| &o["spec"]["cohortName"]).collect();
    assert_eq!(names, ["a", "b"]);
}

/// Kubernetes 1.36 sends an empty response along, in which the list is null.
#[test]
fn a_review_as_the_api_server_sends_it_is_read() {
    let body = r#"{
        "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
        "request": {"uid": "u1", "desiredAPIVersion": "kueue.x-k8s.io/v1beta2", "objects": [
            {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Cohort", "metadata": {"name": "c"}}
        ]},
        "response": {"uid": "", "convertedObjects": null, "result": {"metadata": {}}}
    }"#;
    let answer = answer(serde_json::from_str(body).unwrap());
    assert_eq!(answer["response"]["result"]["status"], "Success");
    assert_eq!(answer["response"]["convertedObjects"][0]["apiVersion"], "kueue.x-k8s.io/v1beta2");
}

#[test]
fn a_bad_object_fails_the_review_and_is_named() {
    let broken = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"namespace": "ns", "name": "wl"},
        "status": {"admission": {"podSetAssignments": [{"topologyAssignment": {
            "levels": ["a", "b"],
            "slices": [{"domainCount": 1, "valuesPerLevel": [{"universal": "x"}], "podCounts": {"universal": 1}}],
        }}]}},
    });
    let other = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}});
    let messages: Vec<String> = [
        review(vec![object("v1beta2", "Cohort", json!({})), broken], "kueue.x-k8s.io/v1beta1"),
        review(vec![other], "kueue.x-k8s.io/v1beta1"),
        review(vec![json!(1)], "kueue.x-k8s.io/v1beta1"),
        review(vec![], "kueue.x-k8s.io/v1"),
        ConversionReview::default(),
    ]
    .into_iter()
    .map(|review| {
        let answer = answer(review);
        assert_eq!(answer["response"]["result"]["status"], "Failure");
        assert_eq!(answer["response"]["convertedObjects"], json!([]));
        answer["response"]["result"]["message"].as_str().unwrap().to_owned()
    })
    .collect();
    insta::assert_snapshot!(messages.join("\n"), @r#"
    cannot convert Workload ns/wl to kueue.x-k8s.io/v1beta1: status.admission.podSetAssignments[0].topologyAssignment: slice 0: valuesPerLevel must have the same number of items as levels
    cannot convert Job j to kueue.x-k8s.io/v1beta1: apiVersion "batch/v1" is not a version of kueue.x-k8s.io
    cannot convert object number 0 of the request to kueue.x-k8s.io/v1beta1: not an object
    cannot convert to "kueue.x-k8s.io/v1"
    the review has no request
    "#);
}

/// A Workload with these topology assignments: of as many equal domains each as `domain_counts` says.
fn assigned(domain_counts: &[i32], value: &str) -> Value {
    let assignments: Vec<Value> = domain_counts
        .iter()
        .map(|count| {
            json!({"name": "main", "topologyAssignment": {"levels": ["a"], "slices": [{
                "domainCount": count, "valuesPerLevel": [{"universal": value}], "podCounts": {"universal": 1},
            }]}})
        })
        .collect();
    object("v1beta2", "Workload", json!({"status": {"admission": {"podSetAssignments": assignments}}}))
}

#[test]
fn assignments_that_would_expand_without_bound_are_refused() {
    for counts in [&[8_000_000][..], &[100_001], &[50_000, 50_001], &[2_000_000_000, i32::MAX]] {
        let mut bomb = assigned(counts, "x");
        let refused = "the assignments of the object have more than 100000 domains";
        let answer = answer(review(vec![bomb.clone()], "kueue.x-k8s.io/v1beta1"));
        let message = answer["response"]["result"]["message"].as_str().unwrap();
        assert!(message.starts_with("cannot convert Workload"), "{message}");
        assert!(message.ends_with(refused), "{message}");
        let error = convert(&mut bomb, Version::V1beta1).unwrap_err().to_string();
        assert!(error.ends_with(refused), "{error}");
    }
    let rows: Vec<Value> = (0..100_001).map(|_| json!({"values": ["x"], "count": 1})).collect();
    let assignment = json!({"levels": ["a"], "domains": rows});
    let mut many = object(
        "v1beta1",
        "Workload",
        json!({"status": {"admission": {"podSetAssignments": [{"topologyAssignment": assignment}]}}}),
    );
    assert!(convert(&mut many, Version::V1beta2).is_err());
}

#[test]
fn an_answer_expands_assignments_as_the_conversion_of_the_object_does() {
    let workload = assigned(&[3, 0, 2], "x");
    let mut alone = workload.clone();
    convert(&mut alone, Version::V1beta1).unwrap();
    let odd = [
        json!({"status": {"admission": {"podSetAssignments": {"topologyAssignment": null}}}}),
        json!({"status": {"admission": {"podSetAssignments": [{"topologyAssignment": null}, 1, []]}}}),
        json!({"status": {"admission": {"topologyAssignment": {"levels": 1}}}}),
        json!({"status": [{"admission": {"podSetAssignments": 1}}]}),
    ];
    for object in odd.into_iter().map(|odd| object("v1beta2", "Workload", odd)).chain([workload]) {
        let mut alone = object.clone();
        convert(&mut alone, Version::V1beta1).unwrap();
        let answer = answer(review(vec![object], "kueue.x-k8s.io/v1beta1"));
        pretty(&answer["response"]["convertedObjects"][0], &alone);
    }
    assert_eq!(
        alone["status"]["admission"]["podSetAssignments"][2]["topologyAssignment"]["domains"],
        json!([{"values": ["x"], "count": 1}, {"values": ["x"], "count": 1}])
    );
}

#[test]
fn an_answer_that_would_be_too_large_is_a_failure_and_never_built() {
    let workload = assigned(&[100_000], &"x".repeat(63));
    let one = answer(review(vec![workload.clone()], "kueue.x-k8s.io/v1beta1"));
    assert_eq!(one["response"]["result"]["status"], "Success");
    let three = answer(review(vec![workload; 3], "kueue.x-k8s.io/v1beta1"));
    assert_eq!(three["response"]["result"]["message"], "the converted objects are larger than 24 MiB");
    assert_eq!(three["response"]["convertedObjects"], json!([]));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn from_v1beta1_and_back_is_the_identity(seed: u64) {
        for kind in arbitrary::KINDS {
            let mut original = arbitrary::document(kind, "v1beta1", seed);
            arbitrary::forget_what_v1beta2_drops(&mut original);
            let mut there = original.clone();
            convert(&mut there, Version::V1beta2).unwrap();
            arbitrary::assert_conforms(&there);
            convert(&mut there, Version::V1beta1).unwrap();
            pretty(&there, &original);
        }
    }

    #[test]
    fn from_v1beta2_and_back_is_the_identity_but_for_the_losses(seed: u64) {
        for kind in arbitrary::KINDS {
            let mut original = arbitrary::document(kind, "v1beta2", seed);
            arbitrary::forget_what_v1beta1_drops(&mut original);
            let mut there = original.clone();
            convert(&mut there, Version::V1beta1).unwrap();
            arbitrary::assert_conforms(&there);
            convert(&mut there, Version::V1beta2).unwrap();
            pretty(&there, &original);
        }
    }

    #[test]
    fn no_document_makes_conversion_panic(seed: u64, at: prop::sample::Index, graft in arbitrary::json()) {
        for kind in arbitrary::KINDS {
            for (from, to) in [("v1beta1", Version::V1beta2), ("v1beta2", Version::V1beta1)] {
                let mut document = arbitrary::document(kind, from, seed);
                arbitrary::replace_somewhere(&mut document, at, &graft);
                let _ = convert(&mut document, to);
            }
        }
    }
}
