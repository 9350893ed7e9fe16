//! Files of Go modules that belong to programs: the CustomResourceDefinitions of their kinds.

use super::{
    APP_WRAPPER, Companion, JOBSET_CRD, LWS, MPI_OPERATOR, RAY_OPERATOR, SPARK_OPERATOR, TRAINER,
    TRAINING_OPERATOR, Tool,
};

impl Tool {
    /// Files of Go modules that belong beside the program.
    pub(super) fn companions(self) -> &'static [Companion] {
        const fn training(source: &'static str, name: &'static str) -> Companion {
            Companion { module: TRAINING_OPERATOR, source, name }
        }
        const fn ray(source: &'static str, name: &'static str) -> Companion {
            Companion { module: RAY_OPERATOR, source, name }
        }
        const fn spark(source: &'static str, name: &'static str) -> Companion {
            Companion { module: SPARK_OPERATOR, source, name }
        }
        const fn trainer(source: &'static str, name: &'static str) -> Companion {
            Companion { module: TRAINER, source, name }
        }
        match self {
            Tool::JobSetController => &[Companion {
                module: "sigs.k8s.io/jobset",
                source: "config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml",
                name: JOBSET_CRD,
            }],
            Tool::KubeflowControllers => {
                const {
                    &[
                        training("manifests/base/crds/kubeflow.org_jaxjobs.yaml", "jaxjobs-crd.yaml"),
                        training("manifests/base/crds/kubeflow.org_paddlejobs.yaml", "paddlejobs-crd.yaml"),
                        training("manifests/base/crds/kubeflow.org_pytorchjobs.yaml", "pytorchjobs-crd.yaml"),
                        training("manifests/base/crds/kubeflow.org_tfjobs.yaml", "tfjobs-crd.yaml"),
                        training("manifests/base/crds/kubeflow.org_xgboostjobs.yaml", "xgboostjobs-crd.yaml"),
                        Companion {
                            module: MPI_OPERATOR,
                            source: "manifests/base/kubeflow.org_mpijobs.yaml",
                            name: "mpijobs-crd.yaml",
                        },
                    ]
                }
            }
            Tool::KubeRayOperator => {
                const {
                    &[
                        ray("config/crd/bases/ray.io_rayclusters.yaml", "rayclusters-crd.yaml"),
                        ray("config/crd/bases/ray.io_rayjobs.yaml", "rayjobs-crd.yaml"),
                        ray("config/crd/bases/ray.io_rayservices.yaml", "rayservices-crd.yaml"),
                    ]
                }
            }
            Tool::AppWrapperController => &[Companion {
                module: APP_WRAPPER,
                source: "config/crd/bases/workload.codeflare.dev_appwrappers.yaml",
                name: "appwrappers-crd.yaml",
            }],
            Tool::LwsControllers => &[Companion {
                module: LWS,
                source: "config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml",
                name: "leaderworkersets-crd.yaml",
            }],
            Tool::SparkOperator => {
                const {
                    &[
                        spark(
                            "config/crd/bases/sparkoperator.k8s.io_sparkapplications.yaml",
                            "sparkapplications-crd.yaml",
                        ),
                        spark(
                            "config/crd/bases/sparkoperator.k8s.io_scheduledsparkapplications.yaml",
                            "scheduledsparkapplications-crd.yaml",
                        ),
                        spark(
                            "config/crd/bases/sparkoperator.k8s.io_sparkconnects.yaml",
                            "sparkconnects-crd.yaml",
                        ),
                    ]
                }
            }
            Tool::TrainerControllers => {
                const {
                    &[
                        trainer(
                            "manifests/base/crds/trainer.kubeflow.org_clustertrainingruntimes.yaml",
                            "clusterruntimes-crd.yaml",
                        ),
                        trainer(
                            "manifests/base/crds/trainer.kubeflow.org_trainingruntimes.yaml",
                            "runtimes-crd.yaml",
                        ),
                        trainer(
                            "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml",
                            "trainjobs-crd.yaml",
                        ),
                    ]
                }
            }
            _ => &[],
        }
    }
}
