//! A waiting job runs where its user allows it: its Workload follows changes of that, and is otherwise not written.

use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_engine::{Kind, ObjectRef, Purpose};

use crate::kueues::{changes, empty, example};
use crate::model::{Api, Cluster, condition};

/// The flavors `a` and `b`, of which the second has room, with a label each.
fn two_flavors() -> Cluster {
    let mut c = empty("0");
    for name in ["a", "b"] {
        c.api.flavor(name, &[("pool", name)]);
    }
    quota(&mut c, "0", "100");
    c
}

fn quota(c: &mut Cluster, a: &str, b: &str) {
    let of = |name: &str, cpu: &str| {
        let resources =
            json!([{"name": "cpu", "nominalQuota": cpu}, {"name": "memory", "nominalQuota": "100Gi"}]);
        json!({"name": name, "resources": resources})
    };
    let groups = json!([{"coveredResources": ["cpu", "memory"], "flavors": [of("a", a), of("b", b)]}]);
    c.api.cluster_queue("cq", "a", "0", &json!({"resourceGroups": groups}));
}

/// The job beside the adapter of a kind, with this in each pod template: the metadata's annotations and the spec.
fn placed(kind: JobKind, annotations: &Value, spec: &Value) -> Value {
    let mut object = example(kind);
    let pointers: Vec<_> =
        sluice_jobs::pod_groups(kind, &object).into_iter().map(|group| group.pointer).collect();
    for pointer in pointers {
        let Some(template) = object.pointer_mut(&pointer).filter(|template| template["spec"].is_object())
        else {
            continue;
        };
        json_patch::merge(template, &json!({"metadata": {"annotations": annotations}, "spec": spec}));
    }
    object["metadata"]["generation"] = json!(1);
    object
}

fn in_pool(kind: JobKind, pool: &str) -> Value {
    placed(kind, &json!({}), &json!({"nodeSelector": {"pool": pool}}))
}

/// Its user writes the job again.
fn rewrite(c: &mut Cluster, object: &Value) {
    let kind = c.api.job("sample").view.job.kind;
    let next = sluice_jobs::observe(kind, object);
    c.api.edit_job("sample", |job| {
        let known = std::mem::replace(&mut job.view, next);
        (job.view.job.uid, job.view.created) = (known.job.uid, known.created);
        job.view.generation = known.generation + 1;
    });
    c.settle();
}

const KINDS: [JobKind; 3] = [JobKind::JOB, JobKind::JOB_SET, JobKind::PYTORCH_JOB];

fn selectors(c: &Cluster) -> Vec<String> {
    let sets = c.api.job("sample").view.pod_sets.iter();
    sets.map(|set| format!("{:?}", set.scheduling.node_selector)).collect()
}

/// A job of a kind that may only go to a pool.
type Place<'a> = &'a dyn Fn(JobKind, &str) -> Value;

#[test]
fn a_waiting_job_that_is_sent_to_another_flavor_starts_there() {
    let affinity = |pool: &str| {
        let terms = json!([{"matchExpressions": [{"key": "pool", "operator": "In", "values": [pool]}]}]);
        let required =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        json!({"affinity": {"nodeAffinity": required}})
    };
    let places: [Place<'_>; 2] = [&in_pool, &|kind, pool| placed(kind, &json!({}), &affinity(pool))];
    for kind in KINDS {
        for of in places {
            for next in ["b", ""] {
                let mut c = two_flavors();
                c.api.add_job(sluice_jobs::observe(kind, &of(kind, "a")));
                c.settle();
                assert!(c.api.job("sample").view.suspended, "{kind:?}: there is no room in a");
                let anywhere = placed(kind, &json!({}), &json!({}));
                rewrite(&mut c, &if next.is_empty() { anywhere } else { of(kind, next) });
                assert_eq!(c.notes("UpdatedWorkload").len(), 1, "{kind:?}");
                let workload = c.workload("sample");
                assert_eq!(condition(&workload, "Admitted"), "True", "{kind:?}");
                assert_eq!(condition(&workload, "Finished"), "", "{kind:?}");
                assert!(!c.api.job("sample").view.suspended, "{kind:?}");
                assert!(
                    selectors(&c).iter().all(|own| own == r#"{"pool": "b"}"#),
                    "{kind:?}: {:?}",
                    selectors(&c)
                );
            }
        }
    }
}

/// Its quota may be of no use to it: it waits for a check, or its start is about to be sent.
#[test]
fn a_job_that_is_sent_elsewhere_before_its_start_comes_is_queued_again() {
    for kind in KINDS {
        for checked in [true, false] {
            let mut c = two_flavors();
            quota(&mut c, "100", "100");
            if checked {
                c.api.active_check("wait");
                let checks = json!({"admissionChecks": [{"name": "wait"}]});
                let queue = ObjectRef::cluster(Kind::ClusterQueue, "cq");
                c.api.edit(&queue, &json!({"spec": {"admissionChecksStrategy": checks}}));
            } else {
                c.slow = Some(Purpose::StartJob);
            }
            c.api.add_job(sluice_jobs::observe(kind, &in_pool(kind, "a")));
            c.settle();
            let flavor = |c: &Cluster| {
                let admission = c.workload("sample").status.unwrap().admission.unwrap();
                admission.pod_set_assignments[0].flavors["cpu"].clone()
            };
            assert_eq!(flavor(&c), "a");
            rewrite(&mut c, &in_pool(kind, "b"));
            c.release();
            c.advance(60);
            assert_eq!(flavor(&c), "b", "{kind:?}");
            assert_eq!(condition(&c.workload("sample"), "Finished"), "", "{kind:?}");
            assert_eq!(c.api.job("sample").view.suspended, checked, "{kind:?}");
        }
    }
}

#[test]
fn a_waiting_job_that_asks_for_another_place_in_the_topology_has_a_workload_that_says_so() {
    for kind in KINDS {
        let mut c = two_flavors();
        quota(&mut c, "0", "0");
        let asks = |level: &str| {
            placed(kind, &json!({"kueue.x-k8s.io/podset-required-topology": level}), &json!({}))
        };
        c.api.add_job(sluice_jobs::observe(kind, &asks("rack")));
        c.settle();
        let asked = |c: &Cluster| {
            let sets = c.workload("sample").spec.pod_sets;
            sets[0].topology_request.as_ref().and_then(|request| request.required.clone())
        };
        assert_eq!(asked(&c).as_deref(), Some("rack"), "{kind:?}");
        rewrite(&mut c, &asks("block"));
        assert_eq!(asked(&c).as_deref(), Some("block"), "{kind:?}");
        rewrite(&mut c, &placed(kind, &json!({}), &json!({})));
        assert_eq!(asked(&c), None, "{kind:?}");
    }
}

/// Whatever its templates say, with what may be left out and what is empty.
#[test]
fn the_workload_of_a_job_that_does_not_change_is_never_updated() {
    let terms = json!([{"matchExpressions": [{"key": "pool", "operator": "Exists", "values": []}], "matchFields": []}]);
    let affinity = json!({
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
            "preferredDuringSchedulingIgnoredDuringExecution": [],
        },
        "podAffinity": {},
    });
    let spec = json!({"nodeSelector": {"pool": "b"}, "affinity": affinity,
        "tolerations": [{"key": "k", "operator": "Exists"}, {"key": "", "operator": "Exists", "value": ""}]});
    let annotations = json!({
        "kueue.x-k8s.io/podset-preferred-topology": "rack", "kueue.x-k8s.io/podset-group-name": "g"});
    let own = |kind: &JobKind| !kind.integration().of_pods && !kind.integration().suspends_pods;
    for kind in JobKind::ALL.into_iter().filter(own) {
        for annotations in [&json!({}), &annotations] {
            let mut c = two_flavors();
            c.api.add_job(sluice_jobs::observe(kind, &placed(kind, annotations, &spec)));
            c.settle();
            let made = c.api.workloads().remove(0).spec;
            // It waits, runs, waits again, and meets other managers meanwhile.
            for room in ["0", "100", "0", "100"] {
                let policy = if room == "0" { "HoldAndDrain" } else { "None" };
                quota(&mut c, "0", room);
                let queue = ObjectRef::cluster(Kind::ClusterQueue, "cq");
                c.api.edit(&queue, &json!({"spec": {"stopPolicy": policy}}));
                c.advance(60);
                c.restart();
                c.advance(60);
            }
            assert_eq!(c.api.workloads().len(), 1, "{kind:?}");
            let now = c.api.workloads().remove(0).spec;
            assert_eq!(now, made, "{kind:?}");
            let reported = changes(&c, 0, &[]);
            assert_eq!(reported, [Purpose::CreateWorkload], "{kind:?}");
        }
    }
}

#[test]
fn a_prebuilt_workload_says_for_itself_where_its_pods_may_go() {
    let mut c = two_flavors();
    let mut model = two_flavors();
    model.api.add_job(sluice_jobs::observe(JobKind::JOB, &in_pool(JobKind::JOB, "a")));
    model.settle();
    let spec = model.api.workloads().remove(0).spec;
    c.api.put(Kind::Workload, json!({"metadata": {"name": "mine", "namespace": "team-a"}, "spec": spec}));
    let mut object = in_pool(JobKind::JOB, "b");
    object["metadata"]["labels"]["kueue.x-k8s.io/prebuilt-workload-name"] = json!("mine");
    c.api.add_job(sluice_jobs::observe(JobKind::JOB, &object));
    c.settle();
    let workload = c.api.workloads().remove(0);
    assert_eq!(condition(&workload, "Finished"), "", "it is not out of sync");
    assert_eq!(
        workload.spec.pod_sets[0].template.spec.as_ref().unwrap().node_selector.as_ref().unwrap()["pool"],
        "a"
    );
}

/// Where what a start gave was not taken back, what the job says of nodes is the manager's word.
#[test]
fn what_a_start_left_in_a_job_is_not_taken_for_its_users_wish() {
    let mut c = two_flavors();
    c.api.add_job(sluice_jobs::observe(
        JobKind::PYTORCH_JOB,
        &placed(JobKind::PYTORCH_JOB, &json!({}), &json!({})),
    ));
    c.settle();
    assert!(!c.api.job("sample").view.suspended);
    let reference = Api::workload_ref(&c.workload("sample"));
    let started = c.api.job("sample").view.pod_sets.clone();
    c.api.edit(&reference, &json!({"spec": {"active": false}}));
    c.advance(60);
    assert_eq!(condition(&c.workload("sample"), "QuotaReserved"), "False");
    assert!(selectors(&c).iter().all(|own| own == "{}"), "it is restored");
    c.api.edit_job("sample", |job| job.view.pod_sets = started);
    c.advance(60);
    assert!(selectors(&c).iter().all(|own| own == r#"{"pool": "b"}"#), "as if that had failed");
    let made = c.workload("sample").spec.pod_sets[0].template.spec.clone().unwrap();
    assert_eq!(made.node_selector, None);
}
