//! The flags of `create clusterqueue`, and the resulting spec.

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::{Map, Value, json};
use sluice_quantity::Quantity;
use sluice_sim::Kind;

use super::Making;
use crate::complete;

/// `kubectl kueue create clusterqueue`.
#[derive(Clone, Debug, Default, Args)]
pub struct QueueArgs {
    /// Which.
    #[command(flatten)]
    pub making: Making,
    /// The Cohort of the ClusterQueue
    #[arg(long, value_name = "NAME", add = complete::names(Kind::Cohort))]
    pub cohort: Option<String>,
    /// The queueing strategy
    #[arg(long, value_name = "STRATEGY", value_parser = ["BestEffortFIFO", "StrictFIFO"])]
    pub queuing_strategy: Option<String>,
    /// Labels of the namespaces that may use the ClusterQueue: k=v,…; without this flag all may
    #[arg(long, value_name = "LABELS")]
    pub namespace_selector: Option<String>,
    /// Which Workloads of its Cohort the ClusterQueue may preempt to get its quota back
    #[arg(long, value_name = "POLICY", value_parser = ["Never", "LowerPriority", "Any"])]
    pub reclaim_within_cohort: Option<String>,
    /// Which Workloads of its own the ClusterQueue may preempt
    #[arg(long, value_name = "POLICY", value_parser = ["Never", "LowerPriority", "LowerOrNewerEqualPriority"])]
    pub preemption_within_cluster_queue: Option<String>,
    /// Nominal quota: FLAVOR:cpu=1;memory=1Gi,FLAVOR:… (may be repeated)
    #[arg(long, value_name = "QUOTA", add = complete::flavors_of_quota())]
    pub nominal_quota: Vec<String>,
    /// The most that may be borrowed, written like the nominal quota
    #[arg(long, value_name = "QUOTA", add = complete::flavors_of_quota())]
    pub borrowing_limit: Vec<String>,
    /// The most that may be lent, written like the nominal quota
    #[arg(long, value_name = "QUOTA", add = complete::flavors_of_quota())]
    pub lending_limit: Vec<String>,
}

/// Flavors in the order named, each with its resources in the order named.
type Amounts = Vec<(String, Vec<(String, String)>)>;

/// Reads `FLAVOR:cpu=1;memory=1Gi,FLAVOR:…`.
fn amounts(flag: &str, texts: &[String]) -> anyhow::Result<Amounts> {
    let mut all: Amounts = Vec::new();
    for part in texts.iter().flat_map(|text| text.split(',')).filter(|part| !part.is_empty()) {
        let wrong = || format!("--{flag}: expected FLAVOR:RESOURCE=QUANTITY;…, found {part}");
        let (flavor, resources) = part.split_once(':').with_context(wrong)?;
        if flavor.is_empty() || all.iter().any(|(known, _)| known == flavor) {
            bail!("{}", wrong());
        }
        let mut own = Vec::new();
        for resource in resources.split(';').filter(|r| !r.is_empty()) {
            let (name, quantity) = resource.split_once('=').with_context(wrong)?;
            Quantity::parse(quantity).map_err(|error| anyhow::anyhow!("{}: {error}", wrong()))?;
            own.push((name.to_owned(), quantity.to_owned()));
        }
        if own.is_empty() {
            bail!("{}", wrong());
        }
        all.push((flavor.to_owned(), own));
    }
    Ok(all)
}

fn find<'a>(amounts: &'a Amounts, flavor: &str, resource: &str) -> Option<&'a str> {
    let (_, resources) = amounts.iter().find(|(name, _)| name == flavor)?;
    resources.iter().find(|(name, _)| name == resource).map(|(_, quantity)| quantity.as_str())
}

/// Resources of a flavor that may be borrowed and have no nominal quota get one of 0.
fn only_borrowed(nominal: &mut Amounts, flavor: &str, borrowed: &[(String, String)]) {
    let at = nominal.iter().position(|(name, _)| name == flavor).unwrap_or_else(|| {
        nominal.push((flavor.to_owned(), Vec::new()));
        nominal.len() - 1
    });
    let own = &mut nominal[at].1;
    for (resource, _) in borrowed {
        if !own.iter().any(|(name, _)| name == resource) {
            own.push((resource.clone(), "0".to_owned()));
        }
    }
}

impl QueueArgs {
    /// The spec that the flags stand for.
    ///
    /// # Errors
    ///
    /// If the namespace selector or a quota is not of the form of its flag, a quantity cannot be read, a flavor is named twice, or what may
    /// be lent has no nominal quota.
    pub fn spec(&self) -> anyhow::Result<Value> {
        let mut spec = Map::new();
        spec.insert("namespaceSelector".to_owned(), self.selector()?);
        if let Some(cohort) = &self.cohort {
            spec.insert("cohortName".to_owned(), json!(cohort));
        }
        if let Some(strategy) = &self.queuing_strategy {
            spec.insert("queueingStrategy".to_owned(), json!(strategy));
        }
        let mut preemption = Map::new();
        if let Some(policy) = &self.reclaim_within_cohort {
            preemption.insert("reclaimWithinCohort".to_owned(), json!(policy));
        }
        if let Some(policy) = &self.preemption_within_cluster_queue {
            preemption.insert("withinClusterQueue".to_owned(), json!(policy));
        }
        if !preemption.is_empty() {
            spec.insert("preemption".to_owned(), Value::Object(preemption));
        }
        let groups = self.groups()?;
        if !groups.is_empty() {
            spec.insert("resourceGroups".to_owned(), Value::Array(groups));
        }
        Ok(Value::Object(spec))
    }

    fn selector(&self) -> anyhow::Result<Value> {
        let mut labels = Map::new();
        for pair in self.namespace_selector.iter().flat_map(|text| text.split(',')) {
            let wrong = || format!("--namespace-selector: expected KEY=VALUE,…, found {pair}");
            let (key, value) = pair.split_once('=').with_context(wrong)?;
            labels.insert(key.to_owned(), json!(value));
        }
        Ok(if labels.is_empty() { json!({}) } else { json!({"matchLabels": labels}) })
    }

    /// Flavors with the same resources, in any order, are one group. A resource that can only be borrowed has no nominal quota.
    fn groups(&self) -> anyhow::Result<Vec<Value>> {
        let mut nominal = amounts("nominal-quota", &self.nominal_quota)?;
        let borrowing = amounts("borrowing-limit", &self.borrowing_limit)?;
        let lending = amounts("lending-limit", &self.lending_limit)?;
        for (flavor, resources) in &lending {
            if let Some((resource, _)) = resources.iter().find(|(r, _)| find(&nominal, flavor, r).is_none()) {
                bail!("--lending-limit: {resource} of flavor {flavor} has no --nominal-quota");
            }
        }
        for (flavor, resources) in &borrowing {
            only_borrowed(&mut nominal, flavor, resources);
        }
        let mut groups: Vec<(Vec<String>, Vec<Value>)> = Vec::new();
        for (flavor, resources) in &mut nominal {
            let is_covered = |covered: &[String]| {
                covered.len() == resources.len() && resources.iter().all(|(name, _)| covered.contains(name))
            };
            let group = groups.iter().position(|(covered, _)| is_covered(covered));
            if let Some(group) = group {
                // Each flavor of a group has its resources in the order of the group.
                let covered = &groups[group].0;
                resources.sort_by_key(|(name, _)| covered.iter().position(|covered| covered == name));
            }
            let quota = |(name, quantity): &(String, String)| {
                let mut quota = json!({"name": name, "nominalQuota": quantity});
                for (field, limits) in [("borrowingLimit", &borrowing), ("lendingLimit", &lending)] {
                    if let Some(limit) = find(limits, flavor, name) {
                        quota[field] = json!(limit);
                    }
                }
                quota
            };
            let quotas: Vec<Value> = resources.iter().map(quota).collect();
            let flavor = json!({"name": flavor, "resources": quotas});
            if let Some(group) = group {
                groups[group].1.push(flavor);
            } else {
                let covered = resources.iter().map(|(name, _)| name.clone()).collect();
                groups.push((covered, vec![flavor]));
            }
        }
        let group = |(covered, flavors)| json!({"coveredResources": covered, "flavors": flavors});
        Ok(groups.into_iter().map(group).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flavors_of_the_same_resources_share_a_group() {
        let args = QueueArgs {
            nominal_quota: vec![
                "spot:cpu=1;memory=1Gi,reserved:cpu=2;memory=2Gi".to_owned(),
                "gpus:gpu=4".to_owned(),
            ],
            borrowing_limit: vec!["spot:cpu=3".to_owned()],
            cohort: Some("all".to_owned()),
            namespace_selector: Some("a=b".to_owned()),
            ..QueueArgs::default()
        };
        let spec = args.spec().unwrap();
        assert_eq!(spec["cohortName"], "all");
        assert_eq!(spec["namespaceSelector"], json!({"matchLabels": {"a": "b"}}));
        let groups = spec["resourceGroups"].as_array().unwrap();
        assert_eq!((groups.len(), groups[0]["flavors"].as_array().unwrap().len()), (2, 2));
        assert_eq!(
            groups[0]["flavors"][0]["resources"][0],
            json!({"name": "cpu", "nominalQuota": "1", "borrowingLimit": "3"})
        );
    }

    #[test]
    fn the_order_in_which_resources_are_named_makes_no_other_group() {
        let args = QueueArgs {
            nominal_quota: vec!["a:cpu=1;memory=1Gi,b:memory=2Gi;cpu=2,c:cpu=3".to_owned()],
            ..QueueArgs::default()
        };
        let quota = |name: &str, amount: &str| json!({"name": name, "nominalQuota": amount});
        let flavor = |name: &str, quotas: Vec<Value>| json!({"name": name, "resources": quotas});
        assert_eq!(
            args.spec().unwrap()["resourceGroups"],
            json!([
                {"coveredResources": ["cpu", "memory"], "flavors": [
                    flavor("a", vec![quota("cpu", "1"), quota("memory", "1Gi")]),
                    flavor("b", vec![quota("cpu", "2"), quota("memory", "2Gi")]),
                ]},
                {"coveredResources": ["cpu"], "flavors": [flavor("c", vec![quota("cpu", "3")])]},
            ])
        );
    }

    #[test]
    fn what_may_only_be_borrowed_has_a_nominal_quota_of_0() {
        let args = QueueArgs {
            nominal_quota: vec!["a:cpu=1".to_owned()],
            borrowing_limit: vec!["a:memory=1Gi,b:cpu=2;memory=2Gi".to_owned()],
            ..QueueArgs::default()
        };
        let borrowed =
            |name: &str, limit: &str| json!({"name": name, "nominalQuota": "0", "borrowingLimit": limit});
        assert_eq!(
            args.spec().unwrap()["resourceGroups"],
            json!([{"coveredResources": ["cpu", "memory"], "flavors": [
                {"name": "a", "resources": [{"name": "cpu", "nominalQuota": "1"}, borrowed("memory", "1Gi")]},
                {"name": "b", "resources": [borrowed("cpu", "2"), borrowed("memory", "2Gi")]},
            ]}])
        );
    }

    #[test]
    fn mistakes_name_the_flag() {
        for wrong in ["spot", "spot:", "spot:cpu", "spot:cpu=many", ":cpu=1", "a:cpu=1,a:cpu=2"] {
            let args = QueueArgs { nominal_quota: vec![wrong.to_owned()], ..QueueArgs::default() };
            let error = args.spec().unwrap_err().to_string();
            assert!(error.starts_with("--nominal-quota: "), "{wrong}: {error}");
        }
        let args = QueueArgs { lending_limit: vec!["spot:cpu=1".to_owned()], ..QueueArgs::default() };
        assert!(args.spec().unwrap_err().to_string().contains("no --nominal-quota"));
    }
}
