//! Which Deployments are managers: those of other operators may have the same label.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Container;

/// The label of the Deployment, under any name.
pub(crate) const MANAGER_LABEL: &str = "control-plane=controller-manager";
/// The namespace of the manager, unless another is given.
pub(crate) const NAMESPACE: &str = "kueue-system";
/// The name of the manager's container.
const CONTAINER: &str = "manager";

/// A manager in a Deployment.
#[derive(Debug)]
pub(crate) struct Deployed<'a> {
    /// The name of the Deployment.
    pub name: &'a str,
    /// The manager's container.
    pub container: &'a Container,
    /// Whether it is Sluice's, and not Kueue's.
    pub is_sluice: bool,
}

impl<'a> Deployed<'a> {
    /// The manager of a Deployment; nothing if it is another operator's.
    pub(crate) fn of(deployment: &'a Deployment) -> Option<Self> {
        let name = deployment.metadata.name.as_deref().unwrap_or_default();
        let containers = &deployment.spec.as_ref()?.template.spec.as_ref()?.containers;
        let container =
            containers.iter().find(|container| container.name == CONTAINER).or(containers.first())?;
        let words = || container.command.iter().chain(&container.args).flatten();
        // Kueue's binary is /manager; Sluice's takes `manager` as its first word.
        let is_sluice = words().any(|word| word == "manager");
        let image = container.image.as_deref().unwrap_or_default();
        let labels = deployment.metadata.labels.as_ref();
        let label = labels.and_then(|labels| labels.get("app.kubernetes.io/name"));
        let named = [name, image, label.map_or("", String::as_str)];
        let is_manager = is_sluice || named.iter().any(|text| text.contains("kueue"));
        is_manager.then_some(Self { name, container, is_sluice })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_manager_is_known_beside_other_operators_and_sidecars() {
        let image = |name: &str, containers: Value| {
            let deployment = json!({"metadata": {"name": name},
                "spec": {"selector": {}, "template": {"spec": {"containers": containers}}}});
            let deployment: Deployment = serde_json::from_value(deployment).unwrap();
            let found = Deployed::of(&deployment);
            found.map(|found| (found.container.image.clone().unwrap(), found.is_sluice))
        };
        let sidecar = || json!({"name": "proxy", "image": "mesh"});
        let sluice = json!([sidecar(), {"name": "manager", "image": "a", "args": ["manager"]}]);
        assert_eq!(image("queues", sluice), Some(("a".to_owned(), true)));
        let kueue = json!([{"name": "manager", "image": "b", "command": ["/manager"]}, sidecar()]);
        assert_eq!(image("kueue-controller-manager", kueue.clone()), Some(("b".to_owned(), false)));
        assert_eq!(image("jobset-controller-manager", kueue), None);
        assert_eq!(image("empty", json!([])), None);
    }
}
