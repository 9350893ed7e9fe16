//! The admission webhooks, through their dispatcher: for each rule an object that is accepted and one that is refused, whose message is
//! a snapshot; then what the mutating ones fill in.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking, in its helpers too")]

use serde_json::{Value, json};
use sluice_api::gates::{Gate, Gates};
use sluice_api::webhooks::{AdmissionRequest, AdmissionResponse, AdmissionReview, WEBHOOKS, review};

fn ask(path: &str, operation: &str, object: Value, old: Option<Value>, gates: Gates) -> AdmissionResponse {
    let request = AdmissionRequest {
        uid: "u1".into(),
        operation: operation.into(),
        sub_resource: None,
        object: Some(object),
        old_object: old,
    };
    let sent = AdmissionReview {
        api_version: "admission.k8s.io/v1".into(),
        kind: "AdmissionReview".into(),
        request: Some(request),
        response: None,
    };
    let answered = review(path, sent, gates).expect("one of our paths");
    assert_eq!(answered.kind, "AdmissionReview");
    let response = answered.response.unwrap();
    assert_eq!(response.uid, "u1");
    response
}

/// Cases of one kind: a valid object, and what each case changes in it (RFC 7386).
struct Table {
    kind: &'static str,
    base: Value,
    gates: Gates,
    report: String,
}

impl Table {
    fn new(kind: &'static str, base: Value) -> Self {
        let mut base = base;
        base["apiVersion"] = "kueue.x-k8s.io/v1beta2".into();
        base["kind"] = kind.into();
        base["metadata"]["name"] = "x".into();
        let mut table = Self { kind, base, gates: Gates::default(), report: String::new() };
        assert_eq!(table.validate(&json!({}), None), None, "the base is valid");
        table
    }

    fn merged(&self, change: &Value) -> Value {
        let mut object = self.base.clone();
        merge(&mut object, change);
        object
    }

    fn validate(&mut self, new: &Value, old: Option<&Value>) -> Option<String> {
        let path = format!("/validate-kueue-x-k8s-io-v1beta2-{}", self.kind.to_lowercase());
        let operation = if old.is_some() { "UPDATE" } else { "CREATE" };
        let old = old.map(|old| self.merged(old));
        let response = ask(&path, operation, self.merged(new), old, self.gates);
        if response.allowed {
            assert!(response.status.is_none());
            return None;
        }
        let status = response.status.unwrap();
        assert_eq!((status.code, status.reason.as_str()), (403, "Forbidden"), "{}", status.message);
        Some(status.message)
    }

    fn create(&mut self, rule: &str, accepted: Value, refused: Value) {
        assert_eq!(self.validate(&accepted, None), None, "{rule}: should be accepted");
        self.refuse(rule, refused, None);
    }

    fn update(&mut self, rule: &str, old: Value, accepted: Value, refused: Value) {
        assert_eq!(self.validate(&accepted, Some(&old)), None, "{rule}: should be accepted");
        self.refuse(rule, refused, Some(old));
    }

    fn refuse(&mut self, rule: &str, refused: Value, old: Option<Value>) {
        let message = self.validate(&refused, old.as_ref());
        let message = message.unwrap_or_else(|| panic!("{rule}: should be refused"));
        self.report.push_str(&format!("{rule}\n    {message}\n"));
    }

    /// A rule that holds only with a gate, or only without one.
    fn gated(&mut self, gate: Gate, holds_when: bool, rule: &str, refused: Value, old: Option<Value>) {
        self.gates = Gates::default().with(gate, !holds_when);
        let lenient = self.validate(&refused, old.as_ref());
        assert_eq!(lenient, None, "{rule}: should be accepted with {}={}", gate.name(), !holds_when);
        self.gates = Gates::default().with(gate, holds_when);
        self.refuse(&format!("{rule} ({}={holds_when})", gate.name()), refused, old);
        self.gates = Gates::default();
    }
}

fn merge(target: &mut Value, change: &Value) {
    match (target, change) {
        (Value::Object(target), Value::Object(change)) => {
            for (key, value) in change {
                if value.is_null() {
                    target.remove(key);
                } else {
                    merge(target.entry(key).or_insert(Value::Null), value);
                }
            }
        }
        (target, change) => {
            // A change of an object that is not there yet makes it, without the fields that it takes away.
            *target = match change {
                Value::Object(_) => {
                    let mut made = json!({});
                    merge(&mut made, change);
                    made
                }
                other => other.clone(),
            };
        }
    }
}

fn quota(name: &str, nominal: &str) -> Value {
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

fn condition(kind: &str, status: &str) -> Value {
    json!({
        "type": kind, "status": status, "reason": "Because", "message": "m",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    })
}

fn template(container: Value) -> Value {
    let mut container = container;
    container["name"] = "c".into();
    json!({"spec": {"containers": [container]}})
}

fn pod_set(name: &str, extra: Value) -> Value {
    let mut pod_set = json!({"name": name, "count": 3, "template": template(json!({}))});
    merge(&mut pod_set, &extra);
    pod_set
}

fn pod_sets(list: Vec<Value>) -> Value {
    json!({"spec": {"podSets": list}})
}

fn admission() -> Value {
    json!({"clusterQueue": "cq", "podSetAssignments": [{
        "name": "main", "count": 3, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "3"},
    }]})
}

fn reserved() -> Value {
    json!({"status": {"conditions": [condition("QuotaReserved", "True")], "admission": admission()}})
}

/// A reserved workload with further changes.
fn and(change: Value) -> Value {
    let mut object = reserved();
    merge(&mut object, &change);
    object
}

fn assignment(change: Value) -> Value {
    let mut assigned = admission();
    merge(&mut assigned["podSetAssignments"][0], &change);
    and(json!({"status": {"admission": assigned}}))
}

fn workloads() -> Table {
    Table::new(
        "Workload",
        json!({"metadata": {"namespace": "ns"}, "spec": {"podSets": [pod_set("main", json!({}))]}}),
    )
}

#[test]
fn workload_rules_of_the_spec() {
    let mut t = workloads();
    let reducible = |name| pod_set(name, json!({"minCount": 1}));
    t.create(
        "one pod set may use minCount",
        pod_sets(vec![reducible("a"), pod_set("b", json!({}))]),
        pod_sets(vec![reducible("a"), reducible("b")]),
    );
    let mut elastic = pod_sets(vec![reducible("main")]);
    elastic["metadata"] = json!({"annotations": {"kueue.x-k8s.io/elastic-job": "true"}});
    let gate = Gate::ElasticJobsViaWorkloadSlices;
    t.gated(gate, true, "minCount and elastic jobs exclude each other", elastic, None);
    let asks = |list: &str, resource: &str, amount: &str| {
        let container = json!({"resources": {list: {resource: amount}}});
        pod_sets(vec![pod_set("main", json!({"template": template(container)}))])
    };
    for list in ["requests", "limits"] {
        let rule = format!("{list} of containers do not name pods");
        t.create(&rule, asks(list, "cpu", "1"), asks(list, "pods", "1"));
    }
    let whole = |resource: &str| {
        let mut template = template(json!({}));
        template["spec"]["resources"] = json!({"requests": {resource: "1"}});
        pod_sets(vec![pod_set("main", json!({"template": template}))])
    };
    t.create("requests of whole pods do not name pods", whole("cpu"), whole("pods"));
    let init = |resource: &str| {
        let mut template = template(json!({}));
        template["spec"]["initContainers"] = json!([{"name": "i", "resources": {"limits": {resource: "1"}}}]);
        pod_sets(vec![pod_set("main", json!({"template": template}))])
    };
    t.create("limits of init containers do not name pods", init("cpu"), init("pods"));
    let gate = Gate::WorkloadValidateResourcesAreNonNegative;
    t.gated(gate, true, "requests are not negative", asks("requests", "cpu", "-1"), None);
    let metadata = |field: &str, key: &str| {
        let mut template = template(json!({}));
        template["metadata"] = json!({field: {key: "v"}});
        pod_sets(vec![pod_set("main", json!({"template": template}))])
    };
    for field in ["labels", "annotations"] {
        t.gated(
            Gate::WorkloadValidationForPodSetMetadata,
            true,
            &format!("{field} of pod sets are well formed"),
            metadata(field, "a b"),
            None,
        );
    }
    let slices = |request: Value| pod_sets(vec![pod_set("main", json!({"topologyRequest": request}))]);
    let gate = Gate::TASValidateWorkloadSliceSize;
    t.gated(gate, true, "a slice has a size", slices(json!({"podSetSliceRequiredTopology": "rack"})), None);
    t.gated(gate, true, "a slice has a level", slices(json!({"podSetSliceSize": 2})), None);
    let empty = slices(json!({"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 0}));
    t.gated(gate, true, "a slice is not empty", empty, None);
    let boost = |boost: &str| json!({"metadata": {"annotations": {"kueue.x-k8s.io/priority-boost": boost}}});
    t.gated(Gate::PriorityBoost, true, "a priority boost is a number", boost("high"), None);
    t.gates = Gates::default().with(Gate::PriorityBoost, true);
    assert_eq!(t.validate(&boost("-5"), None), None);
    insta::assert_snapshot!(t.report);
}

#[test]
fn workload_rules_of_the_status() {
    let mut t = workloads();
    t.create("a reservation is in the status", reserved(), and(json!({"status": {"admission": null}})));
    let broken = and(json!({"status": {"admission": null}}));
    assert_eq!(t.validate(&broken, Some(&broken)), None, "what was broken before is let through");
    t.create("assignments name pod sets", reserved(), assignment(json!({"name": "other"})));
    t.create(
        "usage is a multiple of the count",
        assignment(json!({"resourceUsage": {"cpu": "300m", "memory": "3Ki"}})),
        assignment(json!({"resourceUsage": {"cpu": "100m", "memory": "4Ki"}})),
    );
    let conditions = |list: Vec<Value>| json!({"status": {"conditions": list}});
    t.create(
        "conditions are well formed",
        conditions(vec![condition("A", "True"), condition("b.c/D", "Unknown")]),
        conditions(vec![condition("A", "true"), condition("A", "True"), condition("@", "False")]),
    );
    let mut unreasonable = condition("A", "True");
    unreasonable["reason"] = "".into();
    let mut odd = condition("B", "True");
    odd["reason"] = "no way".into();
    t.refuse("conditions have reasons", conditions(vec![unreasonable, odd]), None);
    let reclaimable =
        |name: &str, count: i32| json!({"status": {"reclaimablePods": [{"name": name, "count": count}]}});
    t.create("reclaimable pods name pod sets", reclaimable("main", 3), reclaimable("other", 1));
    t.create("not more pods are reclaimable than there are", reclaimable("main", 3), reclaimable("main", 4));
    let updates = |update: Value| json!({"status": {"admissionChecks": [check("Ready", update)]}});
    for (rule, refused) in [
        ("updates name pod sets", json!({"name": "other"})),
        ("updates have valid labels", json!({"name": "main", "labels": {"a b": "c"}})),
        ("updates have valid annotations", json!({"name": "main", "annotations": {"a b": "c"}})),
        ("updates have valid node selectors", json!({"name": "main", "nodeSelector": {"a": "c c"}})),
        ("updates have valid tolerations", json!({"name": "main", "tolerations": [{"operator": "Equal"}]})),
    ] {
        t.create(rule, updates(json!({"name": "main", "labels": {"a": "b"}})), updates(refused));
    }
    insta::assert_snapshot!(t.report);
}

fn check(state: &str, update: Value) -> Value {
    json!({
        "name": "check", "state": state, "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z",
        "podSetUpdates": [update],
    })
}

#[test]
fn workload_rules_of_updates() {
    let mut t = workloads();
    let resized = |count: i32| pod_sets(vec![pod_set("main", json!({"count": count}))]);
    assert_eq!(t.validate(&resized(5), Some(&json!({}))), None, "free before a reservation");
    t.update("pod sets are fixed while quota is reserved", reserved(), reserved(), and(resized(2)));
    let elastic = |count: i32| {
        let mut change = resized(count);
        change["metadata"] = json!({"annotations": {"kueue.x-k8s.io/elastic-job": "true"}});
        and(change)
    };
    t.update("an elastic job may shrink, not grow", elastic(3), elastic(2), elastic(4));
    t.gated(
        Gate::ElasticJobsViaWorkloadSlices,
        false,
        "an elastic job may not shrink without the gate",
        elastic(2),
        Some(elastic(3)),
    );
    let gated_by =
        |gates: &str| json!({"metadata": {"annotations": {"kueue.x-k8s.io/admission-gated-by": gates}}});
    t.update("gates can only be removed", gated_by("a,b"), gated_by("b"), gated_by("b, c"));
    t.gated(Gate::AdmissionGatedBy, true, "gates cannot be added", gated_by("a"), Some(json!({})));
    let reclaimable =
        |count: i32| and(json!({"status": {"reclaimablePods": [{"name": "main", "count": count}]}}));
    t.update("reclaimable pods do not become fewer", reclaimable(1), reclaimable(2), reclaimable(0));
    t.refuse("reclaimable pods do not vanish", reserved(), Some(reclaimable(1)));
    let evicted = json!({"status": {"conditions": [condition("QuotaReserved", "False")]}});
    assert_eq!(t.validate(&evicted, Some(&reclaimable(1))), None, "all is free with the reservation gone");
    let shrunk = |count: i32, reclaimable: i32| {
        let mut change = elastic(count);
        change["status"]["reclaimablePods"] = json!([{"name": "main", "count": reclaimable}]);
        change
    };
    assert_eq!(t.validate(&shrunk(1, 1), Some(&shrunk(3, 2))), None, "a slice that shrank gives back less");
    for (rule, change) in [
        ("the flavors of a reservation are fixed", json!({"flavors": {"cpu": "g"}})),
        ("the usage of a reservation is fixed", json!({"resourceUsage": {"cpu": "6"}})),
        ("the count of a reservation is fixed", json!({"count": 1})),
    ] {
        let later =
            json!({"topologyAssignment": {"levels": ["h"], "slices": []}, "delayedTopologyRequest": "Ready"});
        t.update(rule, reserved(), assignment(later), assignment(change));
    }
    let mut elsewhere = reserved();
    elsewhere["status"]["admission"]["clusterQueue"] = "other".into();
    t.refuse("the queue of a reservation is fixed", elsewhere, Some(reserved()));
    let mut fewer = reserved();
    fewer["status"]["admission"]["podSetAssignments"] = json!([]);
    t.refuse("the assignments of a reservation are fixed", fewer, Some(reserved()));
    let cluster = |name: &str| json!({"status": {"clusterName": name}});
    let nominated = json!({"status": {"nominatedClusterNames": ["a", "b"]}});
    t.update("a worker cluster was nominated", nominated.clone(), cluster("a"), cluster("c"));
    let mut replacement = cluster("c");
    replacement["metadata"] =
        json!({"annotations": {"kueue.x-k8s.io/workload-slice-replacement-for": "ns/old"}});
    assert_eq!(t.validate(&replacement, Some(&json!({}))), None, "a slice follows the one that it replaces");
    let checks = |state: &str, value: &str| {
        let update = json!({"name": "main", "labels": {"a": value}});
        json!({"status": {"admissionChecks": [check(state, update)]}})
    };
    t.update(
        "what a check adds is fixed while it is ready",
        checks("Ready", "x"),
        checks("Retry", "y"),
        checks("Ready", "y"),
    );
    insta::assert_snapshot!(t.report);
}

#[test]
fn an_object_that_cannot_be_read_is_a_bad_request() {
    let path = "/validate-kueue-x-k8s-io-v1beta2-workload";
    let response = ask(path, "CREATE", json!({"spec": {"podSets": 1}}), None, Gates::default());
    let status = response.status.unwrap();
    assert!(!response.allowed);
    assert_eq!(status.code, 400);
    assert!(status.message.starts_with("cannot read the object: "), "{}", status.message);
    let empty = review(path, AdmissionReview::default(), Gates::default()).unwrap().response.unwrap();
    assert_eq!((empty.allowed, empty.status.unwrap().code), (false, 400));
}

#[test]
fn other_paths_are_not_ours() {
    assert!(review("/mutate-batch-v1-job", AdmissionReview::default(), Gates::default()).is_none());
}

fn patch(path: &str, operation: &str, object: Value, gates: Gates) -> Value {
    let response = ask(path, operation, object, None, gates);
    assert!(response.allowed);
    match response.patch {
        Some(bytes) => {
            assert_eq!(response.patch_type.as_deref(), Some("JSONPatch"));
            serde_json::from_slice(&bytes.0).unwrap()
        }
        None => json!([]),
    }
}

#[test]
fn the_finalizer_is_added_on_creation() {
    for kind in ["clusterqueue", "resourceflavor"] {
        let path = format!("/mutate-kueue-x-k8s-io-v1beta2-{kind}");
        let ask = |operation, metadata: Value| {
            patch(&path, operation, json!({"metadata": metadata}), Gates::default())
        };
        let ours = "kueue.x-k8s.io/resource-in-use";
        assert_eq!(
            ask("CREATE", json!({})),
            json!([{"op": "add", "path": "/metadata/finalizers", "value": [ours]}])
        );
        assert_eq!(
            ask("CREATE", json!({"finalizers": ["x"]})),
            json!([{"op": "add", "path": "/metadata/finalizers/-", "value": ours}])
        );
        assert_eq!(ask("CREATE", json!({"finalizers": [ours]})), json!([]));
        assert_eq!(ask("UPDATE", json!({})), json!([]), "it must be possible to take it away");
    }
}

#[test]
fn covered_resources_are_filled_in() {
    let spec = json!({"spec": {"resourceGroups": [
        {"coveredResources": ["cpu"], "flavors": [{"name": "a", "resources": [quota("cpu", "1")]}]},
        {"flavors": [
            {"name": "b", "resources": [quota("google.com/tpu", "1"), quota("memory", "1")]},
            {"name": "c", "resources": [quota("google.com/tpu", "1"), quota("memory", "1")]},
        ]},
    ]}});
    let filled = json!([{
        "op": "add", "path": "/spec/resourceGroups/1/coveredResources", "value": ["google.com/tpu", "memory"],
    }]);
    for operation in ["CREATE", "UPDATE"] {
        let cohort =
            patch("/mutate-kueue-x-k8s-io-v1beta2-cohort", operation, spec.clone(), Gates::default());
        assert_eq!(cohort, filled);
    }
    let path = "/mutate-kueue-x-k8s-io-v1beta2-clusterqueue";
    assert_eq!(patch(path, "UPDATE", spec.clone(), Gates::default()), filled);
    assert_eq!(patch(path, "CREATE", spec, Gates::default())[1], filled[0]);
    let odd =
        json!({"spec": {"resourceGroups": [1, {"flavors": 2}, {"flavors": [{"resources": [{"name": 3}]}]}]}});
    assert_eq!(patch(path, "UPDATE", odd, Gates::default()), json!([]));
}

#[test]
fn min_count_goes_away_without_partial_admission() {
    let path = "/mutate-kueue-x-k8s-io-v1beta2-workload";
    let spec = pod_sets(vec![pod_set("a", json!({})), pod_set("b", json!({"minCount": 1}))]);
    assert_eq!(patch(path, "CREATE", spec.clone(), Gates::default()), json!([]));
    let off = Gates::default().with(Gate::PartialAdmission, false);
    assert_eq!(
        patch(path, "CREATE", spec, off),
        json!([{"op": "remove", "path": "/spec/podSets/1/minCount"}])
    );
}

#[test]
fn registrations_are_those_of_the_reference() {
    let lines: Vec<String> = WEBHOOKS
        .iter()
        .map(|w| format!("{} {} {} {}", w.name, w.path, w.operations.join(","), w.resources.join(",")))
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}
