//! ClusterQueue, Cohort, ResourceFlavor.

use json_patch::merge;
use serde_json::{Value, json};
use sluice_api::gates::{Gate, Gates};

use crate::table::Table;

pub fn quota(name: &str, nominal: &str) -> Value {
    json!({"name": name, "nominalQuota": nominal})
}

fn group(resources: &[&str], flavors: &[&str]) -> Value {
    let quotas: Vec<Value> = resources.iter().map(|r| quota(r, "1")).collect();
    let flavors: Vec<Value> = flavors.iter().map(|f| json!({"name": f, "resources": quotas})).collect();
    json!({"coveredResources": resources, "flavors": flavors})
}

fn groups(groups: Vec<Value>) -> Value {
    json!({"spec": {"resourceGroups": groups}})
}

fn one_quota(quota: Value) -> Value {
    groups(vec![json!({"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [quota]}]})])
}

fn many(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}{n}")).collect()
}

#[test]
fn cluster_queue_rules() {
    let base =
        json!({"metadata": {}, "spec": {"cohortName": "c", "resourceGroups": [group(&["cpu"], &["f"])]}});
    let mut t = Table::new("ClusterQueue", base);
    t.create(
        "a resource belongs to one group",
        groups(vec![group(&["cpu"], &["f"]), group(&["memory"], &["g"])]),
        groups(vec![group(&["cpu"], &["f"]), group(&["cpu"], &["g"])]),
    );
    t.create(
        "a flavor belongs to one group",
        groups(vec![group(&["cpu", "memory"], &["f", "g"])]),
        groups(vec![group(&["cpu"], &["f"]), group(&["memory"], &["f"])]),
    );
    t.create(
        "resource names are qualified names",
        groups(vec![group(&["google.com/tpu"], &["f"])]),
        groups(vec![group(&["@tpu"], &["f"])]),
    );
    let swapped = json!({"coveredResources": ["cpu", "memory"], "flavors": [
        {"name": "f", "resources": [quota("memory", "1"), quota("cpu", "1")]},
    ]});
    t.create(
        "resources stand in the order of coveredResources",
        groups(vec![group(&["cpu", "memory"], &["f"])]),
        groups(vec![swapped]),
    );
    let short = json!({"coveredResources": ["cpu", "memory"], "flavors": [
        {"name": "f", "resources": [quota("cpu", "1")]},
    ]});
    t.create(
        "a flavor has a quota for each covered resource",
        groups(vec![group(&["cpu", "memory"], &["f"])]),
        groups(vec![short]),
    );
    t.create("nominalQuota is not negative", one_quota(quota("cpu", "0")), one_quota(quota("cpu", "-1")));
    let limit = |field: &str, nominal: &str, limit: &str| {
        let mut quota = quota("cpu", nominal);
        quota[field] = limit.into();
        one_quota(quota)
    };
    t.create(
        "borrowingLimit is not negative",
        limit("borrowingLimit", "1", "0"),
        limit("borrowingLimit", "1", "-1"),
    );
    t.create(
        "lendingLimit is not negative",
        limit("lendingLimit", "1", "0"),
        limit("lendingLimit", "1", "-1"),
    );
    t.create(
        "lendingLimit is at most the nominal quota",
        limit("lendingLimit", "1", "1000m"),
        limit("lendingLimit", "1", "1001m"),
    );
    for field in ["borrowingLimit", "lendingLimit"] {
        let mut alone = limit(field, "1", "1");
        let accepted = alone.clone();
        alone["spec"]["cohortName"] = Value::Null;
        t.create(&format!("{field} needs a cohort"), accepted, alone);
    }
    let wide = |flavors: usize, resources: usize| {
        let (flavors, resources) = (many("f", flavors), many("r", resources));
        let text = |v: &[String]| -> Vec<String> { v.to_vec() };
        group(
            &text(&resources).iter().map(String::as_str).collect::<Vec<_>>(),
            &text(&flavors).iter().map(String::as_str).collect::<Vec<_>>(),
        )
    };
    t.create("a group has at most 512 quotas", groups(vec![wide(16, 32)]), groups(vec![wide(27, 19)]));
    let spread = |count: usize, per_group: usize, by_flavor: bool| {
        let names = many("n", count);
        let list: Vec<Value> = names
            .chunks(per_group)
            .enumerate()
            .map(|(index, chunk)| {
                let names: Vec<&str> = chunk.iter().map(String::as_str).collect();
                let single = format!("single{index}");
                if by_flavor { group(&[&single], &names) } else { group(&names, &[&single]) }
            })
            .collect();
        groups(list)
    };
    t.create("at most 256 flavors", spread(256, 64, true), spread(257, 64, true));
    t.create("at most 256 resources", spread(256, 64, false), spread(257, 64, false));
    t.create(
        "the namespace selector is well formed",
        json!({"spec": {"namespaceSelector": {"matchLabels": {"a/b": "c"}, "matchExpressions": [
            {"key": "k", "operator": "In", "values": ["v"]}, {"key": "k", "operator": "Exists"},
        ]}}}),
        json!({"spec": {"namespaceSelector": {"matchLabels": {"-a": "c c"}, "matchExpressions": [
            {"key": "k", "operator": "In"}, {"key": "k", "operator": "Exists", "values": ["v"]},
            {"key": "k/k/k", "operator": "Near", "values": ["-"]},
        ]}}}),
    );
    t.create(
        "borrowing by preemption needs reclaiming",
        json!({"spec": {"preemption": {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}}}),
        json!({"spec": {"preemption": {"borrowWithinCohort": {"policy": "LowerPriority"}}}}),
    );
    t.create(
        "a preference needs both to try the next flavor",
        json!({"spec": {"flavorFungibility": {
            "whenCanBorrow": "TryNextFlavor", "preference": "PreemptionOverBorrowing",
        }}}),
        json!({"spec": {"flavorFungibility": {"preference": "PreemptionOverBorrowing"}}}),
    );
    let weight = |weight: &str| json!({"spec": {"fairSharing": {"weight": weight}}});
    t.create("a weight is not negative", weight("0"), weight("-1"));
    t.create("a weight is not too small to divide by", weight("2n"), weight("1n"));
    let rules = |flavor: &str| {
        json!({"spec": {"admissionChecksStrategy": {"admissionChecks": [
            {"name": "all"}, {"name": "some", "onFlavors": [flavor]},
        ]}}})
    };
    t.create("onFlavors names flavors of the queue", rules("f"), rules("g"));
    let mut legacy = rules("g");
    t.update("what onFlavors named before may stay", legacy.clone(), weighted(&legacy), rules("h"));
    legacy["spec"]["stopPolicy"] = "Hold".into();
    t.gated(
        Gate::RejectUpdatesToCQWithInvalidOnFlavors,
        true,
        "unless the gate rejects it",
        legacy,
        Some(rules("g")),
    );
    concurrent_admission(&mut t);
    insta::assert_snapshot!(t.report);
}

fn weighted(change: &Value) -> Value {
    let mut change = change.clone();
    change["spec"]["fairSharing"] = json!({"weight": 2});
    change
}

fn concurrent_admission(t: &mut Table) {
    let policy = |mode: &str, constraints: Value| {
        let mut policy = json!({"migration": {"mode": mode}});
        if !constraints.is_null() {
            policy["migration"]["constraints"] = constraints;
        }
        json!({"spec": {"concurrentAdmissionPolicy": policy}})
    };
    let plain = policy("TryPreferredFlavors", Value::Null);
    t.update(
        "concurrentAdmissionPolicy is immutable",
        plain.clone(),
        weighted(&plain),
        policy("RetainFirstAdmission", Value::Null),
    );
    t.refuse("concurrentAdmissionPolicy cannot be added", plain.clone(), Some(json!({})));
    let with = |extra: Value| {
        let mut change = plain.clone();
        merge(&mut change, &extra);
        change
    };
    let gate = Gate::ConcurrentAdmission;
    let strict = with(json!({"spec": {"queueingStrategy": "StrictFIFO"}}));
    t.gated(gate, true, "concurrent admission is for BestEffortFIFO", strict, None);
    let two = with(groups(vec![group(&["cpu"], &["f"]), group(&["memory"], &["g"])]));
    t.gated(gate, true, "concurrent admission is for one resource group", two, None);
    let names = many("f", 17);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let wide = with(groups(vec![group(&["cpu"], &names)]));
    t.gated(gate, true, "concurrent admission is for at most 16 flavors", wide, None);
    let constrained = policy("RetainFirstAdmission", json!({"lastAcceptableFlavorName": "f"}));
    t.gated(gate, true, "constraints are for TryPreferredFlavors", constrained, None);
    let unknown = policy("TryPreferredFlavors", json!({"lastAcceptableFlavorName": "g"}));
    t.gated(gate, true, "the last acceptable flavor is one of the queue's", unknown, None);
    t.gates = Gates::default().with(gate, true);
    let good = policy("TryPreferredFlavors", json!({"lastAcceptableFlavorName": "f"}));
    assert_eq!(t.validate(&good, None), None);
    t.gates = Gates::default();
}

#[test]
fn cohort_rules() {
    let mut t = Table::new("Cohort", json!({"metadata": {}, "spec": {"parentName": "p"}}));
    let limited = |limit: &str, parent: Value| {
        let mut quota = quota("cpu", "1");
        quota[limit] = "2".into();
        let mut change = one_quota(quota);
        change["spec"]["parentName"] = parent;
        change
    };
    for limit in ["borrowingLimit", "lendingLimit"] {
        let rule = format!("{limit} needs a parent, and may exceed the nominal quota");
        t.create(&rule, limited(limit, "p".into()), limited(limit, Value::Null));
    }
    t.create(
        "a flavor belongs to one group",
        groups(vec![group(&["cpu"], &["f"])]),
        groups(vec![group(&["cpu"], &["f"]), group(&["memory"], &["f"])]),
    );
    let weight = |weight: &str| json!({"spec": {"fairSharing": {"weight": weight}}});
    t.create("a weight is not negative", weight("0"), weight("-1"));
    insta::assert_snapshot!(t.report);
}

#[test]
fn resource_flavor_rules() {
    let mut t = Table::new("ResourceFlavor", json!({"metadata": {}}));
    let labels = |key: &str, value: &str| json!({"spec": {"nodeLabels": {key: value}}});
    t.create("label keys are qualified names", labels("a.b/c", "v"), labels("a b", "v"));
    t.create("label values are label values", labels("a", ""), labels("a", "v v"));
    let taints = |list: Value| json!({"spec": {"nodeTaints": list}});
    let taint = |key: &str, value: &str, effect: &str| json!({"key": key, "value": value, "effect": effect});
    t.create(
        "taint keys are qualified names",
        taints(json!([taint("a", "v", "NoSchedule")])),
        taints(json!([taint("@", "v", "NoSchedule")])),
    );
    t.create(
        "taint values are label values",
        taints(json!([taint("a", "", "NoSchedule")])),
        taints(json!([taint("a", "@", "NoSchedule")])),
    );
    t.create(
        "taints are unique by key and effect",
        taints(json!([taint("a", "v", "NoSchedule"), taint("a", "v", "NoExecute")])),
        taints(json!([taint("a", "v", "NoSchedule"), taint("a", "w", "NoSchedule")])),
    );
    t.create(
        "taint effects are known",
        taints(json!([taint("a", "v", "PreferNoSchedule")])),
        taints(json!([taint("a", "v", "Never")])),
    );
    let tolerations = |toleration: Value| json!({"spec": {"tolerations": [toleration]}});
    for (rule, accepted, refused) in [
        (
            "toleration keys are qualified names",
            json!({"key": "a", "operator": "Exists"}),
            json!({"key": "@", "operator": "Exists"}),
        ),
        ("no key is for Exists", json!({"operator": "Exists"}), json!({"operator": "Equal"})),
        (
            "seconds are for NoExecute",
            json!({"key": "a", "effect": "NoExecute", "tolerationSeconds": 1}),
            json!({"key": "a", "effect": "NoSchedule", "tolerationSeconds": 1}),
        ),
        (
            "Exists has no value",
            json!({"key": "a", "operator": "Exists"}),
            json!({"key": "a", "operator": "Exists", "value": "v"}),
        ),
        ("operators are known", json!({"key": "a"}), json!({"key": "a", "operator": "Gt"})),
        ("effects are known", json!({"key": "a", "effect": ""}), json!({"key": "a", "effect": "Never"})),
    ] {
        t.create(rule, tolerations(accepted), tolerations(refused));
    }
    let legacy = labels("a b", "v");
    let metadata = json!({"metadata": {"labels": {"x": "y"}}, "spec": legacy["spec"]});
    let worse = json!({"spec": {"nodeLabels": {"a b": "v", "c d": "v"}}});
    t.update("what is not touched is not checked again", legacy, metadata, worse);
    insta::assert_snapshot!(t.report);
}
