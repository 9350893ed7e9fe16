//! The chart's objects for each job kind: none if its framework is off.

use serde_json::json;
use sluice_api::config::Configuration;
use sluice_api::job::JobKind;

use super::objects;

#[test]
fn each_kind_brings_rights_and_roles_only_where_its_framework_is_on() {
    for kind in JobKind::ALL {
        let gate = kind.integration().gate;
        let gate = gate.map(|gate| format!("featureGates: {{{}: true}}\n", gate.name())).unwrap_or_default();
        let frameworks = format!("integrations: {{frameworks: [{}]}}\n", kind.framework());
        let config =
            format!("apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n{gate}{frameworks}");
        let on = Configuration::parse(&config).unwrap().0.job_kinds();
        assert!(on.contains(&kind));
        let objects = objects(&[&format!("managerConfig.controllerManagerConfigYaml={config}")]);
        for one in JobKind::ALL {
            let (name, framework) = (one.kind().to_lowercase(), kind.framework());
            for (role, verb) in [("editor", "create"), ("viewer", "get")] {
                let role = objects.get(&format!("ClusterRole/kueue-{name}-{role}-role"));
                // Not for pods beside a kind that suspends its own: those that users make are not queued then.
                assert_eq!(role.is_some(), one == kind, "{framework}: {name}");
                let Some(role) = role else { continue };
                let granted = &role["rules"][0];
                assert_eq!(granted["apiGroups"], json!([one.group()]), "{name}");
                assert_eq!(granted["resources"], json!([one.plural()]), "{name}");
                assert!(granted["verbs"].as_array().unwrap().contains(&json!(verb)), "{name}");
                assert_eq!(role["metadata"]["labels"]["rbac.kueue.x-k8s.io/batch-user"], "true", "{name}");
            }
        }
        let rules = objects["ClusterRole/kueue-manager-role"]["rules"].as_array().unwrap();
        let may_be_read = |one: JobKind| {
            rules.iter().any(|rule| {
                let has = |field: &str, value: &str| rule[field].as_array().unwrap().contains(&json!(value));
                has("apiGroups", one.group()) && has("resources", one.plural()) && has("verbs", "watch")
            })
        };
        let needed = |one: JobKind| on.iter().any(|kind| *kind == one || kind.descendants().contains(&one));
        for one in JobKind::ALL.into_iter().filter(|one| !one.integration().built_into_kubernetes) {
            assert_eq!(may_be_read(one), needed(one), "{}: {one:?}", kind.framework());
        }
        // Of what only marks its pods, each a job, nothing is read.
        assert_eq!(may_be_read(kind), !kind.integration().pods_are_jobs, "{kind:?}");
    }
}
