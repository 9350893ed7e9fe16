//! `kubectl kueue delete workload` with any owner references.

use super::*;

fn owner(version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid})
}

/// A Workload with this owner, in `team`.
fn workload(name: &str, owner: &Value) -> String {
    let template = json!({"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}});
    let workload = json!({
        "apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
        "metadata": {"name": name, "namespace": "team", "ownerReferences": [owner]},
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
    // Without controllers: Workloads outlive their owners.
    let plane = queues().await;
    let kubeconfig = plane.kubeconfig_path();
    apply(&plane, JOBS).await.unwrap();
    let get = async |args: &str| kubectl(&plane, &args.split(' ').collect::<Vec<_>>()).await.unwrap();
    let uid = get("get job first -n team -o jsonpath={.metadata.uid}").await;
    let namespace = get("get namespace other -o jsonpath={.metadata.uid}").await;
    let mut controller = owner("batch/v1", "Job", "first", &uid);
    controller["controller"] = json!(true);
    let workloads = [
        workload("flag", &owner("v1", "--raw=/api/v1/namespaces", "other", "u")),
        workload("lower", &owner("v1", "namespace", "other", "u")),
        workload("namespace", &owner("v1", "Namespace", "other", &namespace)),
        workload("replaced", &owner("batch/v1", "Job", "second", "of-another")),
        workload("limits", &owner("v1", "ResourceQuota", "limits", "u")),
        workload("slice-1", &controller),
        workload("slice-2", &controller),
    ];
    apply(&plane, &workloads.concat()).await.unwrap();

    // Unasked nothing goes, and the question lists what would.
    let (printed, said, code) = outcome(&kubeconfig, "delete wl slice-1 flag -n team").await;
    assert_eq!((printed.as_str(), code), ("", Some(1)), "{said}");
    assert!(
        said.contains("In namespace team:\n  Workload slice-1: deletes job.batch/first\nDo you"),
        "{said}"
    );
    let dry = outcome(&kubeconfig, "delete wl --all -n team --dry-run=server").await;
    assert_eq!(dry.0, "job.batch \"first\" deleted from team namespace (server dry run)\n", "{}", dry.1);
    let (document, ..) =
        outcome(&kubeconfig, "delete wl --all -n team --dry-run=client -o jsonpath={.kind}").await;
    assert_eq!(document, "Job");

    let (printed, said, code) = outcome(&kubeconfig, "delete wl --all=true -n team --yes=true").await;
    assert_eq!(printed, "job.batch \"first\" deleted from team namespace\n", "{said}");
    assert_eq!(said.matches("is not a job of the namespace").count(), 4, "{said}");
    assert!(said.contains("job.batch/second was replaced by another of its name"), "{said}");
    assert_eq!(code, Some(1), "{said}");
    assert_eq!(get("get namespace other -o jsonpath={.status.phase}").await, "Active");
    assert_eq!(get("get jobs -n team -o name").await, "job.batch/second\n");

    // A job that is gone is no error; one misspelt name is, and keeps nothing else from being deleted.
    let (printed, said, code) = outcome(&kubeconfig, "delete wl slice-2 -n team -y").await;
    assert_eq!((printed.as_str(), said.as_str(), code), ("", "job.batch/first is gone\n", Some(0)));
    let (printed, said, code) = outcome(&kubeconfig, "delete wl none replaced -n team -y").await;
    assert_eq!((printed.as_str(), code), ("", Some(1)), "{said}");
    assert!(
        said.starts_with("Error from server (NotFound): workloads.kueue.x-k8s.io \"none\" not found\n"),
        "{said}"
    );
    assert!(said.contains("job.batch/second was replaced"), "{said}");
    plane.stop();
}

#[tokio::test]
async fn a_workload_s_job_is_deleted_by_every_name_of_the_workload() {
    let plane = queues().await;
    let kubeconfig = plane.kubeconfig_path();
    apply(&plane, JOBS).await.unwrap();
    let mut workloads = String::new();
    for job in ["first", "second"] {
        let path = "jsonpath={.metadata.uid}";
        let uid = kubectl(&plane, &["get", "job", job, "-n", "team", "-o", path]).await.unwrap();
        workloads += &workload(&format!("of-{job}"), &owner("batch/v1", "Job", job, &uid));
    }
    apply(&plane, &workloads).await.unwrap();
    let listed = outcome(&kubeconfig, "list wl -n team -o name").await.0;
    let names: Vec<&str> = listed.lines().collect();
    assert_eq!(names, ["workload.kueue.x-k8s.io/of-first", "workload.kueue.x-k8s.io/of-second"]);
    // Without an answer nothing is deleted.
    let (printed, said, code) = outcome(&kubeconfig, &format!("delete {} -n team", names[0])).await;
    assert_eq!((printed.as_str(), code), ("", Some(1)), "{said}");
    let (printed, said, code) =
        outcome(&kubeconfig, &format!("delete {} -n team -o name -y", names.join(" "))).await;
    assert_eq!((printed.as_str(), code), ("job.batch/first\njob.batch/second\n", Some(0)), "{said}");
    assert_eq!(outcome(&kubeconfig, "list wl -n team -o name").await.0, listed);
    plane.stop();
}
