{{/* Written by `cargo xtask manifests` from the registry of job kinds. */}}
{{/* The job kinds, as a YAML map framework → facts. A framework that managerConfig lists and that is not here gets no webhook and
no right; the manager refuses it, or, in Kueue's default list, relies on the policy of notBuiltKinds. */}}
{{- define "sluice.jobKinds" -}}
batch/job: {name: job, group: batch, version: v1, resource: jobs, parts: "", confirmsStops: true}
jobset.x-k8s.io/jobset: {name: jobset, group: jobset.x-k8s.io, version: v1alpha2, resource: jobsets, parts: "batch/job", confirmsStops: false}
{{- end }}

{{/* The frameworks of Kueue that are not built. */}}
{{- define "sluice.knownNotBuilt" -}}
deployment: {group: apps, resource: deployments}
kubeflow.org/jaxjob: {group: kubeflow.org, resource: jaxjobs}
kubeflow.org/mpijob: {group: kubeflow.org, resource: mpijobs}
kubeflow.org/paddlejob: {group: kubeflow.org, resource: paddlejobs}
kubeflow.org/pytorchjob: {group: kubeflow.org, resource: pytorchjobs}
kubeflow.org/tfjob: {group: kubeflow.org, resource: tfjobs}
kubeflow.org/xgboostjob: {group: kubeflow.org, resource: xgboostjobs}
leaderworkerset.x-k8s.io/leaderworkerset: {group: leaderworkerset.x-k8s.io, resource: leaderworkersets}
pod: {group: "", resource: pods}
ray.io/raycluster: {group: ray.io, resource: rayclusters}
ray.io/rayjob: {group: ray.io, resource: rayjobs}
ray.io/rayservice: {group: ray.io, resource: rayservices}
sparkoperator.k8s.io/sparkapplication: {group: sparkoperator.k8s.io, resource: sparkapplications}
statefulset: {group: apps, resource: statefulsets}
trainer.kubeflow.org/trainjob: {group: trainer.kubeflow.org, resource: trainjobs}
workload.codeflare.dev/appwrapper: {group: workload.codeflare.dev, resource: appwrappers}
{{- end }}
