//! Jobs that the controller of another object made, where the kind of that object is none of jobs, such as a Flux MiniCluster: they go by the name of
//! that object, too.

use kube::Client;
use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_sim::Kind;
use sluice_sim::Manifest;

use crate::cluster::{self, collection};
use crate::list::Named;

/// A job that another object made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Its kind.
    pub kind: JobKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// The job of this kind, if the maker is its controller.
fn made(kind: JobKind, job: &Value, maker: &Named) -> Option<Made> {
    let text = |field: &str| job["metadata"][field].as_str().unwrap_or_default().to_owned();
    maker.controls(job).then(|| Made { kind, namespace: text("namespace"), name: text("name") })
}

/// The jobs that the maker made in a namespace, or in all of them. Kinds that are not installed, or that may not be listed, are left out.
///
/// # Errors
///
/// If the cluster cannot be reached.
pub async fn in_cluster(
    client: &Client,
    namespace: Option<&str>,
    maker: &Named,
) -> anyhow::Result<Vec<Made>> {
    let mut found = Vec::new();
    let with_templates = |kind: &JobKind| {
        let of = kind.integration();
        !of.of_pods && !of.pods_are_jobs
    };
    for kind in JobKind::ALL.into_iter().filter(with_templates) {
        let place = collection(Kind::Job(kind), namespace);
        match cluster::list(client, &place, "", |job| made(kind, &job, maker)).await {
            Ok(jobs) => found.extend(jobs),
            Err(error)
                if cluster::refusal(&error).is_some_and(|status| [403, 404].contains(&status.code)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// The first job in a namespace of manifests that the maker made.
pub fn in_manifests(objects: &[Manifest], namespace: &str, maker: &Named) -> Option<Made> {
    objects.iter().find_map(|manifest| match manifest.kind {
        Kind::Job(kind) => made(kind, &manifest.object, maker).filter(|made| made.namespace == namespace),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job(namespace: &str, name: &str, owner: &Value) -> Manifest {
        let metadata = json!({"namespace": namespace, "name": name, "ownerReferences": [owner]});
        let text = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}).to_string();
        let file = sluice_sim::File { name: "f".to_owned(), text, named: true };
        sluice_sim::Manifests::read(&[file]).unwrap().objects.remove(0)
    }

    #[test]
    fn a_job_goes_by_the_name_of_the_object_whose_controller_made_it() {
        let owner = |controls: bool| json!({"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "name": "lammps", "uid": "u", "controller": controls});
        let jobs = [
            job("a", "other", &owner(false)),
            job("b", "first", &owner(true)),
            job("a", "second", &owner(true)),
        ];
        for word in ["minicluster", "MiniClusters", "miniclusters.flux-framework.org"] {
            let maker = Named::parse(&format!("{word}/lammps")).unwrap();
            let found = in_manifests(&jobs, "a", &maker).unwrap();
            assert_eq!((found.kind, &*found.name), (JobKind::JOB, "second"), "{word}");
        }
        for other in ["minicluster/x", "cluster/lammps", "minicluster.example.com/lammps"] {
            assert_eq!(in_manifests(&jobs, "a", &Named::parse(other).unwrap()), None, "{other}");
        }
    }
}
