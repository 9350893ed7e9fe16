//! Other users' objects that cannot be simulated: they are left out, counted, and not named.

use sluice_sim::Packed;

use super::*;

/// A JobSet of another team, with `pod_sets` pod sets, as it was read.
fn jobset(pod_sets: usize) -> Value {
    let template = json!({"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}}});
    let set = |number: usize| json!({"name": format!("s{number}"), "template": template});
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": "secret-set", "namespace": "b", "uid": "secret-uid", "labels": {"kueue.x-k8s.io/queue-name": "other"}},
        "spec": {"suspend": true, "replicatedJobs": (0..pod_sets).map(set).collect::<Vec<_>>()},
    })
}

/// A Job that was made before there was a rule against its label.
fn old_job() -> Value {
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "secret-job", "namespace": "b", "uid": "old-uid", "labels": {
            "kueue.x-k8s.io/queue-name": "other", "kueue.x-k8s.io/max-exec-time-seconds": "x"}},
        "spec": {"suspend": true, "parallelism": 1, "completions": 1,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    })
}

fn with(manifests: &mut Manifests, kind: JobKind, object: Value) {
    let source = Source { file: kind.plural().to_owned(), document: 3 };
    manifests.objects.push(Manifest { source, kind: Kind::Job(kind), object });
}

/// A team's queue beside ours, and a job of ours that waits: another of ours holds most of the quota.
fn world() -> String {
    let other = LOCAL_QUEUE.replace("name: main, namespace: a", "name: other, namespace: b");
    let first = JOB
        .replace("name: mine", "name: first")
        .replace("parallelism: 4\n  completions: 4", "parallelism: 8\n  completions: 8");
    [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &other, &first, JOB].concat()
}

#[test]
fn an_unreadable_job_of_another_team_is_left_out_and_not_named() {
    let simulation = cluster(&world());
    let (subject, account) = asked_about(&simulation, "mine");
    let name = account.as_ref().unwrap().workload.name.clone();
    let answers = |more: &[(JobKind, Value)]| {
        let mut manifests = as_read(&simulation);
        manifests.subject = Some(subject.clone());
        for (kind, object) in more {
            with(&mut manifests, *kind, object.clone());
        }
        let at = SignedDuration::ZERO;
        let question = Question { at, live: account.as_ref(), decides: true, ..question(&manifests, &name) };
        let change = json!({"spec": {"parallelism": 2}});
        (question.answer().unwrap(), question.what_if(&change).unwrap())
    };
    let (usual, usual_change) = answers(&[]);
    assert!(!usual.incomplete && usual.not_played == 0, "{}", usual.text());
    assert!(!usual.remedies.is_empty() && usual.forecast.is_some(), "{}", usual.text());
    let (beside, change) = answers(&[(JobKind::JOB_SET, jobset(19))]);
    assert_eq!((beside.not_played, change.not_played), (1, 1));
    assert!(change.after.starts_now && !change.before.starts_now, "{}", change.text());
    let said = "1 object(s) around the job cannot be simulated, and are left out\n";
    for text in [beside.text() + &beside.json(), change.text() + &change.json()] {
        assert!(text.contains(said) && !text.contains("secret"), "{text}");
    }
    assert_eq!(Explained { not_played: 0, ..beside }, usual);
    assert_eq!((change.before, change.after), (usual_change.before, usual_change.after));
    // One that breaks a rule for new ones is played.
    let (beside, _) = answers(&[(JobKind::JOB, old_job())]);
    assert!(!beside.incomplete && beside.not_played == 0, "{}", beside.text());
}

#[test]
fn what_was_read_and_cannot_be_played_is_distinguished_from_mistakes_in_files() {
    let mut manifests = as_read(&cluster(&world()));
    let well = manifests.objects.len();
    with(&mut manifests, JobKind::JOB_SET, jobset(19));
    with(&mut manifests, JobKind::JOB, old_job());
    let none = BTreeMap::new();
    let one = sluice_sim::prepare(&manifests, &none, options()).unwrap();
    let other = Packed::of(&manifests).prepare(options()).unwrap();
    for left_out in [one.left_out(), other.left_out()] {
        assert_eq!(left_out.count, 1, "{left_out:?}");
        assert!(left_out.first[0].to_string().contains("too many pod sets: 19"), "{left_out:?}");
    }
    // The same in a file is a mistake, which is named.
    for manifest in &mut manifests.objects[well..] {
        manifest.object["metadata"]["uid"].take();
    }
    let wrong = sluice_sim::prepare(&manifests, &none, options()).unwrap_err();
    assert_eq!(wrong.len(), 2, "{wrong:?}");
}
