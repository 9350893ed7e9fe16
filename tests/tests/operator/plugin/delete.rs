//! `kubectl kueue delete workload` with any owner references.

use super::*;

fn owner(version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid})
}

/// A Workload with this owner.
fn workload(namespace: &str, name: &str, owner: &Value) -> String {
    let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}});
    let workload = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": [owner]},
        "spec": {"queueName": "main", "podSets": [{"name": "main", "count": 1, "template": template}]},
    });
    format!("{workload}\n---\n")
}

/// What a run printed, complained of, and how it ended.
async fn outcome(kubeconfig: &Path, line: &str) -> (String, String, Option<i32>) {
    let output = run(kubeconfig, &line.split(' ').collect::<Vec<_>>()).await;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code())
}

#[tokio::test]
async fn nothing_is_deleted_for_a_workload_but_the_objects_of_its_namespace_that_own_it() {
    let plane = queues(["owned", "owned-other"]).await;
    let kubeconfig = plane.kubeconfig_path();
    apply(plane, &JOBS.replace("TEAM", "owned")).await.unwrap();
    let get = async |args: &str| kubectl(plane, &args.split(' ').collect::<Vec<_>>()).await.unwrap();
    let uid = get("get job first -n owned -o jsonpath={.metadata.uid}").await;
    let namespace = get("get namespace owned-other -o jsonpath={.metadata.uid}").await;
    let mut controller = owner("batch/v1", "Job", "first", &uid);
    controller["controller"] = json!(true);
    let workloads = [
        workload("owned", "flag", &owner("v1", "--raw=/api/v1/namespaces", "owned-other", "u")),
        workload("owned", "lower", &owner("v1", "namespace", "owned-other", "u")),
        workload("owned", "namespace", &owner("v1", "Namespace", "owned-other", &namespace)),
        workload("owned", "replaced", &owner("batch/v1", "Job", "second", "of-another")),
        workload("owned", "limits", &owner("v1", "ResourceQuota", "limits", "u")),
        workload("owned", "slice-1", &controller),
        workload("owned", "slice-2", &controller),
    ];
    apply(plane, &workloads.concat()).await.unwrap();

    // Unasked nothing goes, and the question lists what would.
    let (printed, said, code) = outcome(&kubeconfig, "delete wl slice-1 flag -n owned").await;
    assert_eq!((printed.as_str(), code), ("", Some(1)), "{said}");
    assert!(
        said.contains("In namespace owned:\n  Workload slice-1: deletes job.batch/first\nDo you"),
        "{said}"
    );
    let dry = outcome(&kubeconfig, "delete wl --all -n owned --dry-run=server").await;
    assert_eq!(dry.0, "job.batch \"first\" deleted from owned namespace (server dry run)\n", "{}", dry.1);
    let (document, ..) =
        outcome(&kubeconfig, "delete wl --all -n owned --dry-run=client -o jsonpath={.kind}").await;
    assert_eq!(document, "Job");

    let (printed, said, code) = outcome(&kubeconfig, "delete wl --all=true -n owned --yes=true").await;
    assert_eq!(printed, "job.batch \"first\" deleted from owned namespace\n", "{said}");
    assert_eq!(said.matches("is not a job of the namespace").count(), 4, "{said}");
    assert!(said.contains("job.batch/second was replaced by another of its name"), "{said}");
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(get("get namespace owned-other -o jsonpath={.status.phase}").await, "Active");
    assert_eq!(get("get jobs -n owned -o name").await, "job.batch/second\n");

    // A job that is gone is no error; one misspelt name is, and keeps nothing else from being deleted.
    let (printed, said, code) = outcome(&kubeconfig, "delete wl slice-2 -n owned -y").await;
    assert_eq!((printed.as_str(), said.as_str(), code), ("", "job.batch/first is gone\n", Some(0)));
    let (printed, said, code) = outcome(&kubeconfig, "delete wl none replaced -n owned -y").await;
    assert_eq!((printed.as_str(), code), ("", Some(1)), "{said}");
    assert!(
        said.starts_with("Error from server (NotFound): workloads.kueue.x-k8s.io \"none\" not found\n"),
        "{said}"
    );
    assert!(said.contains("job.batch/second was replaced"), "{said}");
}

#[tokio::test]
async fn a_workload_s_job_is_deleted_by_every_name_of_the_workload() {
    let plane = queues(["of-owners", "of-owners-empty"]).await;
    let kubeconfig = plane.kubeconfig_path();
    apply(plane, &JOBS.replace("TEAM", "of-owners")).await.unwrap();
    let mut workloads = String::new();
    for job in ["first", "second"] {
        let path = "jsonpath={.metadata.uid}";
        let uid = kubectl(plane, &["get", "job", job, "-n", "of-owners", "-o", path]).await.unwrap();
        workloads += &workload("of-owners", &format!("of-{job}"), &owner("batch/v1", "Job", job, &uid));
    }
    apply(plane, &workloads).await.unwrap();
    let listed = outcome(&kubeconfig, "list wl -n of-owners -o name").await.0;
    let names: Vec<&str> = listed.lines().collect();
    assert_eq!(names, ["workload.kueue.x-k8s.io/of-first", "workload.kueue.x-k8s.io/of-second"]);
    // Without an answer nothing is deleted.
    let (printed, said, code) = outcome(&kubeconfig, &format!("delete {} -n of-owners", names[0])).await;
    assert_eq!((printed.as_str(), code), ("", Some(1)), "{said}");
    let (printed, said, code) =
        outcome(&kubeconfig, &format!("delete {} -n of-owners -o name -y", names.join(" "))).await;
    assert_eq!((printed.as_str(), code), ("job.batch/first\njob.batch/second\n", Some(0)), "{said}");
    assert_eq!(outcome(&kubeconfig, "list wl -n of-owners -o name").await.0, listed);
}
