//! The rules for SparkApplications that the webhook checks.

use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_jobs::observe;

use crate::spark::tests::{changed, spark};
use crate::testing::World;

const KIND: JobKind = JobKind::SPARK_APPLICATION;

/// What the webhook says of an application that is made, or changed from `old`.
fn refused(object: &Value, old: Option<&Value>) -> String {
    World::default().refusals(KIND, object, old)
}

#[test]
fn the_rules_name_the_field_and_hold_only_what_changed() {
    let good = spark();
    assert_eq!(refused(&good, None), "");
    let bad = changed(|spec| {
        spec["mode"] = json!("client");
        spec["dynamicAllocation"] = json!({"enabled": true});
    });
    let reported = "[spec.mode: Invalid value: \"client\": only Cluster mode is supported for a kueue managed job, \
                spec.dynamicAllocation.enabled: Invalid value: true: a kueue managed job can use dynamicAllocation only when the \
                ElasticJobsViaWorkloadSlices feature gate is on and the job is an elastic job]";
    assert_eq!(refused(&bad, None), reported);
    assert_eq!(refused(&bad, Some(&good)), reported);
    assert_eq!(refused(&bad, Some(&bad)), "", "it broke them before");
    let odd = changed(|spec| spec["executor"]["memory"] = json!("much"));
    let amount = "spec.executor.memory: Invalid value: \"much\" is not a quantity";
    let of_odd = [None, Some(&good), Some(&odd)].map(|old| refused(&odd, old));
    assert_eq!(of_odd, [amount, amount, ""]);
    let mut free = bad.clone();
    free["metadata"]["labels"] = json!({});
    assert_eq!(refused(&free, None), "", "it is not managed");
    assert_eq!(refused(&bad, Some(&free)), reported, "it is managed from now on");
}

/// The webhook of the operator adds node selectors to the pods that have its labels only.
#[test]
fn labels_of_the_operator_are_its_own() {
    const LAUNCHED: &str = "sparkoperator.k8s.io/launched-by-spark-operator";
    const NAME: &str = "sparkoperator.k8s.io/app-name";
    let good = spark();
    for (place, field) in
        [("/metadata", "metadata"), ("/spec/driver", "spec.driver"), ("/spec/executor", "spec.executor")]
    {
        for (key, right, wrong) in [(LAUNCHED, "true", "false"), (NAME, "pi", "other")] {
            let with = |value: &str| {
                let mut object = spark();
                object.pointer_mut(place).unwrap()["labels"][key] = json!(value);
                object["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = json!("user-queue");
                object
            };
            let reported = "the label is the operator's: without it the operator would not apply the admitted node selectors and tolerations";
            let invalid = observe(KIND, &with(wrong)).invalid;
            assert_eq!(invalid, Some(format!("{field}.labels[{key}]: {reported}")));
            let refused = refused(&with(wrong), Some(&good));
            assert_eq!(refused, format!("{field}.labels[{key}]: Forbidden: {reported}"));
            assert_eq!(observe(KIND, &with(right)).invalid, None);
        }
    }
}

/// The operator takes any change of a spec for the wish to run it again, without a suspension in between.
#[test]
fn one_that_ended_keeps_its_spec() {
    for state in ["COMPLETED", "FAILED"] {
        let mut ended = spark();
        ended["status"] = json!({"applicationState": {"state": state}});
        let mut more = ended.clone();
        more["spec"]["executor"]["instances"] = json!(50);
        let reported = "spec: Forbidden: the application has ended, and the operator would run it again";
        assert_eq!(refused(&more, Some(&ended)), reported, "{state}");
        let mut resumed = ended.clone();
        resumed["spec"]["suspend"] = json!(false);
        resumed["metadata"]["labels"]["other"] = json!("x");
        assert_eq!(refused(&resumed, Some(&ended)), "", "{state}");
        for object in [&mut more, &mut ended] {
            object["metadata"]["labels"] = json!({});
        }
        assert_eq!(refused(&more, Some(&ended)), "", "it is not managed");
    }
    let waits = spark();
    let more = changed(|spec| spec["executor"]["instances"] = json!(50));
    assert_eq!(refused(&more, Some(&waits)), "");
}
