//! Amounts of resources in thousandths of a core, bytes, or pieces; as numbers and as Kubernetes writes them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use sluice_api::slim::{Container, PodTemplate};
use sluice_engine::Name;
use sluice_quantity::{Amount, CPU, Quantity, amount_of, quantity_of};

/// Amounts by resource.
pub type Amounts = BTreeMap<Name, i64>;

/// The amount of a quantity; 0 if it cannot be read.
pub fn amount(resource: &str, text: &Text) -> i64 {
    Quantity::parse(&text.0).map_or(0, |quantity| amount_of(resource, &quantity).get())
}

/// The amount as people write it, such as `1500m` or `2Gi`.
pub fn shown(resource: &str, amount: i64) -> String {
    quantity_of(resource, Amount(amount)).to_string()
}

/// The amount in the resource's unit: cores, bytes or pieces.
#[expect(clippy::cast_precision_loss, reason = "for the length of a bar")]
pub fn units(resource: &str, amount: i64) -> f64 {
    if resource == CPU { amount as f64 / 1000.0 } else { amount as f64 }
}

/// A list as people write it.
pub fn all_shown(amounts: &Amounts) -> BTreeMap<&str, String> {
    amounts.iter().map(|(resource, amount)| (&**resource, shown(resource, *amount))).collect()
}

/// Adds a list, multiplied.
pub fn add(sum: &mut Amounts, other: &Amounts, times: i64) {
    for (resource, amount) in other {
        let entry = sum.entry(Name::clone(resource)).or_default();
        *entry = entry.saturating_add(amount.saturating_mul(times));
    }
}

/// A resource list.
pub fn list(list: &BTreeMap<String, Text>) -> Amounts {
    list.iter().map(|(resource, text)| (Name::from(resource.as_str()), amount(resource, text))).collect()
}

/// The requests of one pod, without the defaults that a namespace or RuntimeClass adds.
pub fn of_pod(template: &PodTemplate) -> Amounts {
    let of = |container: &Container| {
        let mut requests = list(&container.resources.limits);
        requests.extend(list(&container.resources.requests));
        requests
    };
    let (mut total, mut sidecars, mut most) = (Amounts::new(), Amounts::new(), Amounts::new());
    for container in &template.init_containers {
        let mut now = of(container);
        if container.sidecar {
            add(&mut sidecars, &now, 1);
            now.clone_from(&sidecars);
        } else {
            add(&mut now, &sidecars, 1);
        }
        raise(&mut most, &now);
    }
    add(&mut total, &sidecars, 1);
    for container in &template.containers {
        add(&mut total, &of(container), 1);
    }
    raise(&mut total, &most);
    total.extend(list(&template.resources.requests));
    add(&mut total, &list(&template.overhead), 1);
    total
}

fn raise(most: &mut Amounts, other: &Amounts) {
    for (resource, amount) in other {
        let entry = most.entry(Name::clone(resource)).or_insert(*amount);
        *entry = (*entry).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn amounts_are_numbers_and_quantities() {
        let text = |text: &str| Text(text.to_owned());
        assert_eq!((amount("cpu", &text("1500m")), amount("memory", &text("2Gi"))), (1500, 2 << 30));
        assert_eq!(amount("nvidia.com/gpu", &text("no quantity")), 0);
        assert_eq!((shown("cpu", 1500), shown("memory", 2 << 30)), ("1500m".to_owned(), "2Gi".to_owned()));
        assert!(
            (units("cpu", 1500) - 1.5).abs() < f64::EPSILON && (units("gpu", 3) - 3.0).abs() < f64::EPSILON
        );
    }

    #[test]
    fn a_pod_asks_for_its_containers_or_its_largest_init_container_and_overhead() {
        let requests = |cpu: &str| json!({"requests": {"cpu": cpu}});
        let template = json!({"spec": {
            "overhead": {"cpu": "1m"},
            "initContainers": [
                {"name": "sidecar", "restartPolicy": "Always", "resources": requests("100m")},
                {"name": "init", "resources": requests("3")},
            ],
            "containers": [{"name": "a", "resources": requests("1")}, {"name": "b", "resources": {"limits": {"cpu": "1"}}}],
        }});
        let full: k8s_openapi::api::core::v1::PodTemplateSpec = serde_json::from_value(template).unwrap();
        assert_eq!(of_pod(&PodTemplate::from(full)), Amounts::from([("cpu".into(), 3101)]));
    }

    #[test]
    fn sums_that_are_too_large_stop_at_the_largest() {
        let mut sum = Amounts::from([("gpu".into(), i64::MAX - 1)]);
        add(&mut sum, &Amounts::from([("gpu".into(), i64::MAX / 2)]), 5);
        assert_eq!(sum["gpu"], i64::MAX);
    }
}
