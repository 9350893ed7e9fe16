{{/* Written by `cargo xtask manifests` from the registry of job kinds. */}}
{{/* The job kinds, as a YAML map framework → facts. A framework that managerConfig lists and that is not here gets no webhook and
no right; the manager refuses it. */}}
{{- define "sluice.jobKinds" -}}
batch/job: {name: job, group: batch, version: v1, resource: jobs, parts: [], changesParts: false, confirmsStops: true, ofPods: false, suspendsPods: false, podsAreJobs: false, templates: []}
deployment: {name: deployment, group: apps, version: v1, resource: deployments, parts: [], changesParts: false, confirmsStops: false, ofPods: false, suspendsPods: true, podsAreJobs: true, templates: []}
jobset.x-k8s.io/jobset: {name: jobset, group: jobset.x-k8s.io, version: v1alpha2, resource: jobsets, parts: ["batch/job"], changesParts: false, confirmsStops: true, ofPods: false, suspendsPods: false, podsAreJobs: false, templates: []}
kubeflow.org/jaxjob: {name: jaxjob, group: kubeflow.org, version: v1, resource: jaxjobs, parts: [], changesParts: false, confirmsStops: false, ofPods: false, suspendsPods: false, podsAreJobs: false, templates: []}
kubeflow.org/mpijob: {name: mpijob, group: kubeflow.org, version: v2beta1, resource: mpijobs, parts: ["batch/job"], changesParts: true, confirmsStops: false, ofPods: false, suspendsPods: false, podsAreJobs: false, templates: []}
kubeflow.org/paddlejob: {name: paddlejob, group: kubeflow.org, version: v1, resource: paddlejobs, parts: [], changesParts: false, confirmsStops: false, ofPods: false, suspendsPods: false, podsAreJobs: false, templates: []}
kubeflow.org/pytorchjob: {name: pytorchjob, group: kubeflow.org, version: v1, resource: pytorchjobs, parts: [], changesParts: false, confirmsStops: false, ofPods: false, suspendsPods: false, podsAreJobs: false, templates: []}
kubeflow.org/tfjob: {name: tfjob, group: kubeflow.org, version: v1, resource: tfjobs, parts: [], changesParts: false, confirmsStops: false, ofPods: false, suspendsPods: false, podsAreJobs: false, templates: []}
kubeflow.org/xgboostjob: {name: xgboostjob, group: kubeflow.org, version: v1, resource: xgboostjobs, parts: [], changesParts: false, confirmsStops: false, ofPods: false, suspendsPods: false, podsAreJobs: false, templates: []}
leaderworkerset.x-k8s.io/leaderworkerset: {name: leaderworkerset, group: leaderworkerset.x-k8s.io, version: v1, resource: leaderworkersets, parts: [], changesParts: false, confirmsStops: false, ofPods: false, suspendsPods: true, podsAreJobs: false, templates: []}
pod: {name: pod, group: "", version: v1, resource: pods, parts: [], changesParts: false, confirmsStops: false, ofPods: true, suspendsPods: false, podsAreJobs: false, templates: []}
ray.io/raycluster: {name: raycluster, group: ray.io, version: v1, resource: rayclusters, parts: [], changesParts: false, confirmsStops: false, ofPods: false, suspendsPods: false, podsAreJobs: false, templates: []}
ray.io/rayjob: {name: rayjob, group: ray.io, version: v1, resource: rayjobs, parts: ["ray.io/raycluster", "batch/job"], changesParts: true, confirmsStops: false, ofPods: false, suspendsPods: false, podsAreJobs: false, templates: []}
ray.io/rayservice: {name: rayservice, group: ray.io, version: v1, resource: rayservices, parts: ["ray.io/raycluster"], changesParts: true, confirmsStops: false, ofPods: false, suspendsPods: false, podsAreJobs: false, templates: []}
sparkoperator.k8s.io/sparkapplication: {name: sparkapplication, group: sparkoperator.k8s.io, version: v1beta2, resource: sparkapplications, parts: [], changesParts: false, confirmsStops: false, ofPods: false, suspendsPods: false, podsAreJobs: false, templates: []}
statefulset: {name: statefulset, group: apps, version: v1, resource: statefulsets, parts: [], changesParts: false, confirmsStops: false, ofPods: false, suspendsPods: true, podsAreJobs: false, templates: []}
trainer.kubeflow.org/trainjob: {name: trainjob, group: trainer.kubeflow.org, version: v1alpha1, resource: trainjobs, parts: ["jobset.x-k8s.io/jobset", "batch/job"], changesParts: false, confirmsStops: false, ofPods: false, suspendsPods: false, podsAreJobs: false, templates: [{group: trainer.kubeflow.org, resource: clustertrainingruntimes}, {group: trainer.kubeflow.org, resource: trainingruntimes}]}
workload.codeflare.dev/appwrapper: {name: appwrapper, group: workload.codeflare.dev, version: v1beta2, resource: appwrappers, parts: [], changesParts: false, confirmsStops: false, ofPods: false, suspendsPods: false, podsAreJobs: false, templates: []}
{{- end }}
