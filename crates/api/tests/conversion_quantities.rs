//! Quantities in converted objects.

use serde_json::{Value, json};
use sluice_api::conversion::{Version, convert};

#[test]
fn quantities_that_were_written_as_numbers_are_read_as_strings_in_the_other_version() {
    let quotas = |nominal: Value, borrowing: Value| {
        json!([{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [
            {"name": "cpu", "nominalQuota": nominal, "borrowingLimit": borrowing}]}]}])
    };
    let container = |cpu: Value| json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
    let pod = |cpu: Value, memory: Value| {
        json!({"spec": {"containers": [container(cpu.clone())], "initContainers": [container(cpu)],
            "overhead": {"memory": memory}, "priority": 7}})
    };
    let rows = [
        (
            "ClusterQueue",
            json!({"resourceGroups": quotas(json!(3), json!(0.5)), "fairSharing": {"weight": 2}}),
            json!({"resourceGroups": quotas(json!("3"), json!("0.5")), "fairSharing": {"weight": "2"}}),
        ),
        (
            "Cohort",
            json!({"resourceGroups": quotas(json!(3), json!("500m"))}),
            json!({"resourceGroups": quotas(json!("3"), json!("500m"))}),
        ),
        ("LocalQueue", json!({"fairSharing": {"weight": 2}}), json!({"fairSharing": {"weight": "2"}})),
        (
            "Workload",
            json!({"podSets": [{"name": "main", "count": 3, "template": pod(json!(1), json!(1024))}]}),
            json!({"podSets": [{"name": "main", "count": 3, "template": pod(json!("1"), json!("1024"))}]}),
        ),
    ];
    for (kind, written, read) in rows {
        for (from, to) in [(Version::V1beta2, Version::V1beta1), (Version::V1beta1, Version::V1beta2)] {
            let mut object = json!({"apiVersion": from.api_version(), "kind": kind, "spec": written});
            convert(&mut object, to).unwrap();
            for (field, value) in read.as_object().unwrap() {
                assert_eq!(object["spec"][field], *value, "{kind} to {to}");
            }
        }
    }
}
