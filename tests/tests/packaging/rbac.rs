//! The chart's roles for people: the rights of each role, on which kinds, and into which roles it is aggregated. The rights of users with the
//! aggregated roles are tested with `kubectl auth can-i` in the chart's other tests.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::json;
use sluice_api::job::JobKind;
use sluice_testkit::kubectl::kubectl;
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::{ControlPlane, Setup, chart};
use sluice_tests::place::DEADLINE;

const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 4] = ["create", "delete", "patch", "update"];
const GATHERED: &str = "rbac.kueue.x-k8s.io/batch-";
const BUILT_IN: &str = "rbac.authorization.k8s.io/aggregate-to-";

/// A kind that has roles.
struct Kind {
    role: String,
    group: String,
    plural: String,
    /// Users of batch jobs may change them.
    job: bool,
}

fn kinds() -> Vec<Kind> {
    let own = sluice_api::crds().into_iter().map(|crd| {
        let (group, names) = (crd.spec.group, crd.spec.names);
        Kind { role: names.kind.to_lowercase(), group, plural: names.plural, job: false }
    });
    let job = |kind: JobKind| Kind {
        role: kind.kind().to_lowercase(),
        group: kind.group().to_owned(),
        plural: kind.plural().to_owned(),
        job: true,
    };
    own.chain(JobKind::ALL.map(job)).collect()
}

async fn may(
    client: &Client,
    user: &str,
    verb: &str,
    kind: &Kind,
    subresource: &str,
    namespace: &str,
) -> bool {
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let review = json!({
        "metadata": {},
        "spec": {"user": user, "resourceAttributes": {
            "verb": verb, "group": kind.group, "resource": kind.plural, "subresource": subresource, "namespace": namespace,
        }},
    });
    let review = serde_json::from_value(review).unwrap();
    reviews.create(&PostParams::default(), &review).await.unwrap().status.unwrap().allowed
}

async fn bind(client: &Client, role: &str, user: &str) {
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": {"name": user},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    });
    bindings.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
}

/// The roles that a role's labels gather it into.
async fn gathered(client: &Client, role: &str) -> Vec<String> {
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let labels = roles.get(role).await.unwrap().metadata.labels.unwrap();
    let short =
        |key: &String| [GATHERED, BUILT_IN].iter().find_map(|p| key.strip_prefix(p)).map(str::to_owned);
    labels.iter().filter(|(_, value)| *value == "true").filter_map(|(key, _)| short(key)).collect()
}

#[tokio::test]
async fn each_role_lets_one_do_what_its_name_says_and_no_more() {
    let plane = ControlPlane::builder().controller_manager(true).start().await.unwrap();
    let frameworks = json!({
        "integrations": {"frameworks": JobKind::ALL.map(JobKind::framework)},
        "featureGates": {"SparkApplicationIntegration": true},
    });
    let setup = Setup::new(&plane).unwrap().with(&frameworks);
    chart::install(&plane, setup, &json!({})).await.unwrap();
    let client = plane.client().await.unwrap();
    let kinds = kinds();
    for (kind, other) in kinds.iter().zip(kinds.iter().cycle().skip(1)) {
        for who in ["editor", "viewer"] {
            let (role, user) = (format!("kueue-{}-{who}-role", kind.role), format!("{}-{who}", kind.role));
            bind(&client, &role, &user).await;
            eventually("the binding to hold", DEADLINE, || async {
                Ok(progress(may(&client, &user, "get", kind, "", "").await, &user))
            })
            .await
            .unwrap();
            for verb in READ {
                assert!(may(&client, &user, verb, kind, "", "").await, "{user}: {verb}");
                assert!(!may(&client, &user, verb, other, "", "").await, "{user}: {verb} {}", other.plural);
            }
            for verb in WRITE {
                assert_eq!(may(&client, &user, verb, kind, "", "").await, who == "editor", "{user}: {verb}");
                assert!(!may(&client, &user, verb, kind, "status", "").await, "{user}: {verb} status");
            }
            let into = gathered(&client, &role).await;
            let has = |role: &str| into.iter().any(|into| into == role);
            assert!(has("admin"), "{role}: batch-admin may do everything: {into:?}");
            let open = kind.job || ["localqueue", "workload"].contains(&kind.role.as_str());
            let expected = if who == "editor" { kind.job } else { open };
            assert_eq!(has("user"), expected, "{role}: {into:?}");
            assert_eq!(has("view"), who == "viewer" && open, "{role}: {into:?}");
        }
    }

    // The manager records events, and reports a series by the API that lets the text change. It reads those about one Workload, to explain it.
    let manager = format!("system:serviceaccount:{}:{}", chart::NAMESPACE, chart::SERVICE_ACCOUNT);
    for (group, verb, allowed) in [
        ("events.k8s.io", "create", true),
        ("events.k8s.io", "patch", true),
        ("", "patch", true),
        ("", "create", false),
        ("", "list", true),
        ("", "watch", false),
        ("events.k8s.io", "delete", false),
    ] {
        let events =
            Kind { role: String::new(), group: group.to_owned(), plural: "events".to_owned(), job: false };
        let may = may(&client, &manager, verb, &events, "", "default").await;
        assert_eq!(may, allowed, "{verb} events of {group:?}");
    }

    // Bound in a namespace, the users' role holds there and nowhere else.
    plane.make_namespace("team").await.unwrap();
    let binding = [
        "create",
        "rolebinding",
        "users",
        "--clusterrole=kueue-batch-user-role",
        "--user=dora",
        "-n",
        "team",
    ];
    kubectl(&plane, &binding).await.unwrap();
    let jobs = kinds.iter().find(|kind| kind.role == "job").unwrap();
    eventually("the users' role to be gathered", DEADLINE, || async {
        Ok(progress(may(&client, "dora", "create", jobs, "", "team").await, "not yet"))
    })
    .await
    .unwrap();
    let workloads = kinds.iter().find(|kind| kind.role == "workload").unwrap();
    assert!(may(&client, "dora", "list", workloads, "", "team").await);
    for (verb, kind, subresource, namespace) in [
        ("create", jobs, "", "default"),
        ("list", workloads, "", "default"),
        ("patch", workloads, "", "team"),
        ("patch", workloads, "status", "team"),
        ("update", workloads, "status", "team"),
    ] {
        let allowed = may(&client, "dora", verb, kind, subresource, namespace).await;
        assert!(!allowed, "dora: {verb} {}/{subresource} in {namespace}", kind.plural);
    }
    plane.stop();
}
