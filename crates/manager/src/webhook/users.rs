//! Recognizes the controllers of Kubernetes among the users of requests.

use serde::Deserialize;

/// The users that remove references to deleted objects, or clean up a namespace that is being deleted. The chart's policy `no-orphans` has the same
/// ones.
const COLLECTORS: [&str; 3] = [
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:serviceaccount:kube-system:namespace-controller",
    "system:kube-controller-manager",
];
/// The prefix of Kubernetes' own names, which no tenant has except service accounts.
const SYSTEM: &str = "system:";
const SERVICE_ACCOUNTS: &str = "system:serviceaccount:";
/// The namespace of Kubernetes' own controllers: that of Jobs makes pods, adopts them, and releases them.
const CONTROLLERS: &str = "system:serviceaccount:kube-system:";
/// The name of requests without a user.
const ANONYMOUS: &str = "system:anonymous";
/// May do everything: an administrator, and on small clusters the controllers, too.
const MASTERS: &str = "system:masters";

/// The user of a request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    /// The user's name: `system:serviceaccount:<namespace>:<name>` for a service account.
    pub username: String,
    /// The groups that the user is in.
    pub groups: Vec<String>,
}

impl UserInfo {
    /// Whether this user removes references to deleted objects.
    pub fn collects(&self) -> bool {
        COLLECTORS.contains(&self.username.as_str())
    }

    /// Whether this is one of Kubernetes' own controllers.
    pub fn is_of_kubernetes(&self) -> bool {
        self.username.starts_with(CONTROLLERS)
    }

    /// Whether this is one of Kubernetes' own controllers. or may be: distributions differ in what they call them.
    pub fn is_controller(&self) -> bool {
        let name = self.username.as_str();
        let named_by_kubernetes =
            name.starts_with(SYSTEM) && !name.starts_with(SERVICE_ACCOUNTS) && name != ANONYMOUS;
        named_by_kubernetes || self.is_of_kubernetes() || self.groups.iter().any(|group| group == MASTERS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_distinguished_from_tenants() {
        let is_controller = |name: &str, groups: &[&str]| {
            let groups = groups.iter().map(|group| (*group).to_owned()).collect();
            UserInfo { username: name.to_owned(), groups }.is_controller()
        };
        for name in [
            "system:serviceaccount:kube-system:job-controller",
            "system:kube-controller-manager",
            "system:k3s-controller",
        ] {
            assert!(is_controller(name, &["system:authenticated"]), "{name}");
        }
        assert!(is_controller("admin", &["system:masters"]));
        for name in ["jane", "system:serviceaccount:team:default", "system:anonymous", ""] {
            assert!(!is_controller(name, &["system:authenticated", "masters"]), "{name}");
        }
    }
}
