use super::*;
use serde_json::json;

fn taken(page: &Value, most: usize, budget: &Budget) -> (Part, Option<Stop>) {
    let mut part = Part::default();
    let bytes = page.to_string().into_bytes();
    let stop = take(&bytes, most, budget, Some, &mut part).err();
    (part, stop)
}

#[test]
fn no_more_is_kept_than_the_budget_has_however_small_the_parts_are() {
    // A hundred thousand maps of one entry are half a megabyte of text, and sixty in memory.
    let small = json!({"metadata": {"name": "a"}, "spec": vec![json!({"a": 0}); 100_000]});
    let budget = Budget::new(1 << 20);
    let (part, stop) = taken(&json!({"items": [small]}), 10, &budget);
    assert!(part.found.is_empty() && matches!(stop, Some(Stop::Spent)));
    let object = json!({"metadata": {"name": "a"}});
    let (part, stop) = taken(&json!({"items": vec![object.clone(); 10_000]}), 100_000, &budget);
    assert!(matches!(stop, Some(Stop::Spent)));
    let bytes: usize = part.found.iter().map(|one| VALUE + weight(one)).sum();
    assert!(bytes <= 1 << 20 && bytes > (1 << 20) - 2_000, "{bytes}");
    // Another list of the same answer has what is left.
    let (part, _) = taken(&json!({"items": [object]}), 1, &budget.clone());
    assert!(part.found.is_empty() && budget.left() < 2_000);
}

#[test]
fn what_is_not_kept_costs_nothing_and_what_is_kept_is_counted() {
    let named = |name: &str| {
        json!({"metadata": {"name": name, "managedFields": [{"x": {}}],
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "own": "1"}}})
    };
    let page =
        json!({"metadata": {"continue": "t"}, "items": [named("other"), named("a"), named("b"), named("c")]});
    let (budget, mut part) = (Budget::new(1 << 20), Part::default());
    let own = |object: Value| (object["metadata"]["name"] != "other").then_some(object);
    let stop = take(page.to_string().as_bytes(), 2, &budget, own, &mut part).err();
    assert!(matches!(stop, Some(Stop::Most)));
    assert_eq!(part.found[0], json!({"metadata": {"name": "a", "annotations": {"own": "1"}}}));
    assert_eq!(part.found.len(), 2);
    assert_eq!((1 << 20) - budget.left(), part.found.iter().map(|one| VALUE + weight(one)).sum::<usize>());
}

#[test]
fn an_object_of_any_depth_does_not_hide_those_behind_it() {
    for levels in [200, 10_000] {
        let [begin, end] = [r#"{"a":"#, "}"].map(|part| part.repeat(levels));
        let page = format!(
            r#"{{"items":[{{"metadata":{{"name":"a"}},"spec":{begin}1{end}}},{{"metadata":{{"name":"b"}}}}]}}"#
        );
        let (budget, mut part) = (Budget::new(1 << 20), Part::default());
        let stop = take(page.as_bytes(), 10, &budget, Some, &mut part).err();
        assert!(stop.is_none(), "{levels}");
        let names: Vec<_> = part.found.iter().map(|object| &object["metadata"]["name"]).collect();
        assert_eq!(names, ["a", "b"]);
    }
}

#[test]
fn an_answer_may_be_empty_or_none() {
    let budget = Budget::new(1 << 20);
    for page in [json!({"items": null}), json!({}), json!({"items": [], "metadata": {"continue": ""}})] {
        let (part, stop) = taken(&page, 10, &budget);
        assert!(part.found.is_empty() && stop.is_none(), "{page}");
    }
    assert!(matches!(taken(&json!([]), 10, &budget).1, Some(Stop::Form(_))));
    assert!(matches!(taken(&json!({"items": {}}), 10, &budget).1, Some(Stop::Form(_))));
}
