{{/* Written by `cargo xtask manifests` from the registry of job kinds. */}}
{{/* The job kinds, as a YAML map framework → facts. A framework that managerConfig lists and that is not here gets no webhook and
no right; the manager refuses it, or, in Kueue's default list, relies on the policy of notBuiltKinds. */}}
{{- define "sluice.jobKinds" -}}
batch/job: {name: job, group: batch, version: v1, resource: jobs, parts: [], changesParts: false, confirmsStops: true, ofPods: false, suspendsPods: false, podsAreJobs: false}
deployment: {name: deployment, group: apps, version: v1, resource: deployments, parts: [], changesParts: false, confirmsStops: false, ofPods: false, suspendsPods: true, podsAreJobs: true}
jobset.x-k8s.io/jobset: {name: jobset, group: jobset.x-k8s.io, version: v1alpha2, resource: jobsets, parts: ["batch/job"], changesParts: false, confirmsStops: false, ofPods: false, suspendsPods: false, podsAreJobs: false}
kubeflow.org/jaxjob: {name: jaxjob, group: kubeflow.org, version: v1, resource: jaxjobs, parts: [], changesParts: false, confirmsStops: false, ofPods: false, suspendsPods: false, podsAreJobs: false}
kubeflow.org/mpijob: {name: mpijob, group: kubeflow.org, version: v2beta1, resource: mpijobs, parts: ["batch/job"], changesParts: true, confirmsStops: false, ofPods: false, suspendsPods: false, podsAreJobs: false}
kubeflow.org/paddlejob: {name: paddlejob, group: kubeflow.org, version: v1, resource: paddlejobs, parts: [], changesParts: false, confirmsStops: false, ofPods: false, suspendsPods: false, podsAreJobs: false}
kubeflow.org/pytorchjob: {name: pytorchjob, group: kubeflow.org, version: v1, resource: pytorchjobs, parts: [], changesParts: false, confirmsStops: false, ofPods: false, suspendsPods: false, podsAreJobs: false}
kubeflow.org/tfjob: {name: tfjob, group: kubeflow.org, version: v1, resource: tfjobs, parts: [], changesParts: false, confirmsStops: false, ofPods: false, suspendsPods: false, podsAreJobs: false}
kubeflow.org/xgboostjob: {name: xgboostjob, group: kubeflow.org, version: v1, resource: xgboostjobs, parts: [], changesParts: false, confirmsStops: false, ofPods: false, suspendsPods: false, podsAreJobs: false}
pod: {name: pod, group: "", version: v1, resource: pods, parts: [], changesParts: false, confirmsStops: false, ofPods: true, suspendsPods: false, podsAreJobs: false}
ray.io/raycluster: {name: raycluster, group: ray.io, version: v1, resource: rayclusters, parts: [], changesParts: false, confirmsStops: false, ofPods: false, suspendsPods: false, podsAreJobs: false}
ray.io/rayjob: {name: rayjob, group: ray.io, version: v1, resource: rayjobs, parts: ["ray.io/raycluster", "batch/job"], changesParts: true, confirmsStops: false, ofPods: false, suspendsPods: false, podsAreJobs: false}
ray.io/rayservice: {name: rayservice, group: ray.io, version: v1, resource: rayservices, parts: ["ray.io/raycluster"], changesParts: true, confirmsStops: false, ofPods: false, suspendsPods: false, podsAreJobs: false}
statefulset: {name: statefulset, group: apps, version: v1, resource: statefulsets, parts: [], changesParts: false, confirmsStops: false, ofPods: false, suspendsPods: true, podsAreJobs: false}
workload.codeflare.dev/appwrapper: {name: appwrapper, group: workload.codeflare.dev, version: v1beta2, resource: appwrappers, parts: [], changesParts: false, confirmsStops: false, ofPods: false, suspendsPods: false, podsAreJobs: false}
{{- end }}

{{/* The frameworks of Kueue that are not built. */}}
{{- define "sluice.knownNotBuilt" -}}
leaderworkerset.x-k8s.io/leaderworkerset: {group: leaderworkerset.x-k8s.io, resource: leaderworkersets}
sparkoperator.k8s.io/sparkapplication: {group: sparkoperator.k8s.io, resource: sparkapplications}
trainer.kubeflow.org/trainjob: {group: trainer.kubeflow.org, resource: trainjobs}
{{- end }}
