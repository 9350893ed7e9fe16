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
    /// Whether it is over.
    pub finished: bool,
}

impl Made {
    /// What a user asks for.
    fn word(&self) -> String {
        format!("{}/{}", self.kind.kind().to_ascii_lowercase(), self.name)
    }
}

/// The job of this kind, if the maker is its controller.
fn made(kind: JobKind, job: &Value, maker: &Named) -> Option<Made> {
    let text = |field: &str| job["metadata"][field].as_str().unwrap_or_default().to_owned();
    maker.controls(job).then(|| Made {
        kind,
        namespace: text("namespace"),
        name: text("name"),
        finished: sluice_jobs::finished(kind, job).is_some(),
    })
}

/// The job that is meant by its maker: the one that is not over.
///
/// # Errors
///
/// If several are not over, or all of several are.
pub fn the_one(mut jobs: Vec<Made>) -> anyhow::Result<Option<Made>> {
    if jobs.len() > 1 && jobs.iter().any(|job| !job.finished) {
        jobs.retain(|job| !job.finished);
    }
    if jobs.len() > 1 {
        let names: Vec<_> = jobs.iter().map(Made::word).collect();
        anyhow::bail!("it made several jobs: ask for one of {}", names.join(", "));
    }
    Ok(jobs.pop())
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

/// The jobs in a namespace of manifests that the maker made. An object that says nothing of its namespace is in `default`.
pub fn in_manifests(objects: &[Manifest], namespace: &str, maker: &Named) -> Vec<Made> {
    let is_there = |made: &Made| match made.namespace.as_str() {
        "" => namespace == "default",
        own => own == namespace,
    };
    let made = |manifest: &Manifest| match manifest.kind {
        Kind::Job(kind) => made(kind, &manifest.object, maker).filter(is_there),
        _ => None,
    };
    objects.iter().filter_map(made).collect()
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
            let found = the_one(in_manifests(&jobs, "a", &maker)).unwrap().unwrap();
            assert_eq!((found.kind, &*found.name), (JobKind::JOB, "second"), "{word}");
        }
        for other in ["minicluster/x", "cluster/lammps", "minicluster.example.com/lammps"] {
            assert_eq!(in_manifests(&jobs, "a", &Named::parse(other).unwrap()), [], "{other}");
        }
    }

    #[test]
    fn a_mini_cluster_of_a_file_goes_by_its_own_name() {
        let of = |metadata: Value| {
            let spec = json!({"containers": [{"image": "i"}]});
            let cluster = json!({"apiVersion": "flux-framework.org/v1alpha2", "kind": "MiniCluster", "metadata": metadata, "spec": spec});
            let file = sluice_sim::File { name: "f".to_owned(), text: cluster.to_string(), named: true };
            let objects = sluice_sim::Manifests::read(&[file]).unwrap().objects;
            let namespace = metadata["namespace"].as_str().unwrap_or("default").to_owned();
            let maker = Named::parse("minicluster/lammps").unwrap();
            the_one(in_manifests(&objects, &namespace, &maker)).unwrap()
        };
        for metadata in [
            json!({"name": "lammps", "namespace": "a"}),
            json!({"name": "lammps", "namespace": "a", "uid": "u"}),
            json!({"name": "lammps"}),
        ] {
            let made = of(metadata.clone()).unwrap();
            assert_eq!((made.kind, &*made.name), (JobKind::JOB, "lammps"), "{metadata}");
        }
        assert_eq!(of(json!({"name": "other", "namespace": "a"})), None);
    }

    #[test]
    fn of_several_jobs_the_one_that_is_not_over_is_meant() {
        let job = |name: &str, finished| Made {
            kind: JobKind::JOB,
            namespace: "a".to_owned(),
            name: name.to_owned(),
            finished,
        };
        let meant = |jobs: &[Made]| the_one(jobs.to_vec()).map(|job| job.map(|job| job.name));
        assert_eq!(meant(&[job("1", true), job("2", true), job("3", false)]).unwrap().as_deref(), Some("3"));
        assert_eq!(meant(&[job("1", true)]).unwrap().as_deref(), Some("1"));
        assert_eq!(meant(&[]).unwrap(), None);
        for finished in [true, false] {
            let error = meant(&[job("1", finished), job("2", finished)]).unwrap_err().to_string();
            assert_eq!(error, "it made several jobs: ask for one of job/1, job/2");
        }
    }
}
