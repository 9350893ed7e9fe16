//! MPIJobs: refusals that only their controller makes, and how it counts workers.

use serde_json::{Value, json};
use sluice_api::gates::{Gate, Gates};
use sluice_api::job::JobKind;
use sluice_jobs::webhook::{Operation, mutate};

use crate::testing::kubeflow::{KINDS, job};
use crate::testing::{World, apply, prune};

const OFFSET: &str = "kueue.x-k8s.io/pod-index-offset";

/// Its controller would leave a job that runs as it is, and with it all pods that it has.
#[test]
fn what_its_controller_does_not_act_on_is_refused() {
    let (world, mpi) = (World::default(), JobKind::MPI_JOB);
    let kind = KINDS.into_iter().find(|(kind, ..)| *kind == mpi).unwrap();
    let of = |change: &dyn Fn(&mut Value)| {
        let mut object = job(kind);
        change(&mut object);
        object
    };
    let sound = of(&|_| {});
    let cases: [(&str, Value, &str); 14] = [
        ("/mpiReplicaSpecs/Launcher", Value::Null, "must have Launcher replica spec"),
        (
            "/mpiReplicaSpecs/Launcher/template/spec/containers",
            json!([]),
            "must define at least one container",
        ),
        // It gives them none itself.
        ("/mpiReplicaSpecs/Worker/replicas", Value::Null, "must be greater than or equal to 1"),
        ("/runPolicy/cleanPodPolicy", json!("Never"), "must be None, Running or All"),
        ("/runPolicy/cleanPodPolicy", json!(""), "must be None, Running or All"),
        ("/runPolicy/cleanPodPolicy", json!("none"), "must be None, Running or All"),
        ("/mpiReplicaSpecs/Launcher/replicas", json!(2), "must be 1"),
        ("/mpiReplicaSpecs/Launcher/replicas", json!(0), "must be 1"),
        ("/mpiReplicaSpecs/Worker/replicas", json!(0), "must be greater than or equal to 1"),
        ("/mpiReplicaSpecs/Worker/restartPolicy", json!("Always"), "must be Never or OnFailure"),
        ("/runPolicy/ttlSecondsAfterFinished", json!(-1), "must be greater than or equal to 0"),
        ("/runPolicy/activeDeadlineSeconds", json!(-1), "must be greater than or equal to 0"),
        ("/runPolicy/backoffLimit", json!(-1), "must be greater than or equal to 0"),
        ("/slotsPerWorker", json!(-1), "must be greater than or equal to 0"),
    ];
    for (path, value, why) in cases {
        let broken = of(&|object| {
            object["spec"]["runPolicy"]["backoffLimit"] = json!(1);
            for field in ["ttlSecondsAfterFinished", "activeDeadlineSeconds"] {
                object["spec"]["runPolicy"][field] = json!(1);
            }
            object["spec"]["slotsPerWorker"] = json!(1);
            *object.pointer_mut(&format!("/spec{path}")).unwrap() = value.clone();
            if value.is_null() {
                prune(object);
            }
        });
        let said = world.refusals(mpi, &broken, Some(&sound));
        assert!(said.contains(why), "{path}: {said:?}");
    }
    for name in ["m".repeat(60).as_str(), "m.n", "1m"] {
        let other = of(&|object| object["metadata"]["name"] = json!(name));
        let said = world.refusals(mpi, &other, None);
        assert!(said.contains("must be a DNS label that begins with a letter"), "{name}: {said:?}");
    }
    for policy in [json!("None"), json!("Running"), json!("All"), Value::Null] {
        let other = of(&|object| object["spec"]["runPolicy"]["cleanPodPolicy"] = policy.clone());
        assert_eq!(world.refusals(mpi, &other, Some(&sound)), "", "{policy}");
    }
}

/// It labels them 1 to N then.
#[test]
fn workers_are_counted_after_a_launcher_that_works_too() {
    let (world, mpi) = (World::default(), JobKind::MPI_JOB);
    let kind = KINDS.into_iter().find(|(kind, ..)| *kind == mpi).unwrap();
    let of = |works: Value, group: Option<&str>| {
        let mut object = job(kind);
        object["spec"]["runLauncherAsWorker"] = works;
        let group = json!({"annotations": {"kueue.x-k8s.io/podset-group-name": group}});
        object["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["metadata"] = group;
        prune(&mut object);
        object
    };
    let offsets = |object: &Value| {
        ["Launcher", "Worker"].map(|name| {
            let template = &object["spec"]["mpiReplicaSpecs"][name]["template"];
            template["metadata"]["annotations"][OFFSET].as_str().map(str::to_owned)
        })
    };
    let first = Some("1".to_owned());
    for (works, group, workers) in [
        (json!(true), None, first.clone()),
        (json!(true), Some("g"), None),
        (json!(false), None, None),
        (Value::Null, None, None),
    ] {
        let made = world.written(mpi, Operation::Create, &of(works.clone(), group));
        assert_eq!(offsets(&made), [None, workers], "{works} {group:?}");
    }
    let mut alone = of(json!(true), None);
    alone["spec"]["mpiReplicaSpecs"].as_object_mut().unwrap().remove("Worker");
    assert_eq!(offsets(&world.written(mpi, Operation::Create, &alone)), [None, None]);
    // A Workload of the job above it places its pods.
    let part = World { managed_owner: true, ..World::default() };
    assert_eq!(offsets(&part.written(mpi, Operation::Create, &of(json!(true), None))), [None, first]);
    let gates = Gates::default().with(Gate::TopologyAwareScheduling, false);
    let object = of(json!(true), None);
    let patch = world.with_gates(gates, |context| mutate(mpi, Operation::Create, &object, context));
    assert_eq!(offsets(&apply(&object, &patch).unwrap()), [None, None]);
    let mut free = object;
    free["metadata"].as_object_mut().unwrap().remove("labels");
    assert_eq!(offsets(&world.written(mpi, Operation::Create, &free)), [None, None], "it is in no queue");
}
