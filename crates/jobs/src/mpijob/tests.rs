//! MPIJobs: refusals that only their controller makes.

use serde_json::{Value, json};
use sluice_api::job::JobKind;

use crate::testing::World;
use crate::testing::kubeflow::{KINDS, job};

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
    let cases: [(&str, Value, &str); 8] = [
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
        });
        let said = world.refusals(mpi, &broken, Some(&sound));
        assert!(said.contains(why), "{path}: {said:?}");
    }
    let long = of(&|object| object["metadata"]["name"] = json!("m".repeat(60)));
    assert!(world.refusals(mpi, &long, None).contains("must be a DNS label"));
}
