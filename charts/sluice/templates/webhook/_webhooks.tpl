{{/* Match condition: the object carries a queue name, as label or as annotation of the same key, now or before. */}}
{{- define "sluice.hasQueueName" -}}
(has(OBJECT.metadata.labels) && 'kueue.x-k8s.io/queue-name' in OBJECT.metadata.labels) || (has(OBJECT.metadata.annotations) && 'kueue.x-k8s.io/queue-name' in OBJECT.metadata.annotations)
{{- end }}
{{- define "sluice.queued" -}}
{{- $has := include "sluice.hasQueueName" . -}}
{{ replace "OBJECT" "object" $has }} || (oldObject != null && ({{ replace "OBJECT" "oldObject" $has }}))
{{- end }}

{{/* Match condition: the object has a label or an annotation of ours, now or before. */}}
{{- define "sluice.hasOurMarks" -}}
{{- $conditions := list }}
{{- range $object := list "object" "oldObject" }}
{{- range $map := list "labels" "annotations" }}
{{- $conditions = append $conditions (printf "(%s != null && has(%s.metadata.%s) && %s.metadata.%s.exists(key, key.contains('kueue.x-k8s.io/')))" $object $object $map $object $map) }}
{{- end }}
{{- end }}
{{- join " || " $conditions }}
{{- end }}

{{/* Match condition: another object suspends the pod, now or before. */}}
{{- define "sluice.suspendedByParent" -}}
{{- $conditions := list }}
{{- range $object := list "object" "oldObject" }}
{{- $conditions = append $conditions (printf "(%s != null && has(%s.metadata.annotations) && 'kueue.x-k8s.io/pod-suspending-parent' in %s.metadata.annotations)" $object $object $object) }}
{{- end }}
{{- join " || " $conditions }}
{{- end }}

{{/*
Namespaces whose jobs with a queue name the webhooks look at: all but the system's and our own. What names a queue is suspended from its creation,
also where managedJobsNamespaceSelector selects nothing: it gets no Workload there.
*/}}
{{- define "sluice.queuedNamespaces" -}}
matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: NotIn
    values: [{{ join ", " (list "kube-system" .Release.Namespace | uniq) }}]
{{- end }}

{{/*
Namespaces whose jobs are managed: managedJobsNamespaceSelector of the configuration, else all but the system's and our own.
*/}}
{{- define "sluice.jobNamespaces" -}}
{{- $config := fromYaml (include "sluice.config" .) -}}
{{- with $config.managedJobsNamespaceSelector -}}
{{- toYaml . -}}
{{- else -}}
{{- include "sluice.queuedNamespaces" . -}}
{{- end -}}
{{- end }}

{{/*
Namespaces whose pods, and objects that suspend pods, the webhooks look at: those whose jobs are managed, and never the system's and our own, whatever
the configuration selects. While the manager is stopped, these must be able to start pods: among them are its own.
*/}}
{{- define "sluice.podNamespaces" -}}
{{- $selector := fromYaml (include "sluice.jobNamespaces" .) -}}
{{- $ours := fromYaml (include "sluice.queuedNamespaces" .) -}}
{{- $expressions := $selector.matchExpressions | default list -}}
{{- range $ours.matchExpressions -}}
{{- if not (has . $expressions) -}}
{{- $expressions = append $expressions . -}}
{{- end -}}
{{- end -}}
{{- $_ := set $selector "matchExpressions" $expressions -}}
{{- toYaml $selector -}}
{{- end }}

{{/*
One entry for a kind of kueue.x-k8s.io. Takes root, type (mutate, validate), kind, resources, operations.
*/}}
{{- define "sluice.queueKindWebhook" -}}
- name: {{ trunc 1 .type }}{{ .kind }}.kb.io
  admissionReviewVersions: [v1]
  clientConfig: {{- include "sluice.clientConfig" (dict "root" .root "path" (printf "/%s-kueue-x-k8s-io-v1beta2-%s" .type .kind)) | nindent 4 }}
  failurePolicy: Fail
  sideEffects: None
  timeoutSeconds: {{ (.root.Values.webhooks).timeoutSeconds | default 5 }}
  {{- if eq .type "mutate" }}
  reinvocationPolicy: {{ (.root.Values.mutatingWebhook).reinvocationPolicy | default "Never" }}
  {{- end }}
  rules:
    - apiGroups: [kueue.x-k8s.io]
      apiVersions: [v1beta2]
      operations: {{ toJson .operations }}
      resources: {{ toJson .resources }}
{{- end }}

{{/*
The entries for a job kind: one for jobs with a queue name, which must succeed, and one for jobs without, which must never
block, of managed namespaces. Takes root, type, job (name, group, version, resource, ofPods, suspendsPods, impliedPods), operations.
*/}}
{{- define "sluice.jobKindWebhooks" -}}
{{- $path := printf "/%s-%s-%s-%s" .type (replace "." "-" .job.group) .job.version (.job.path | default .job.name) -}}
{{- $queued := include "sluice.queued" . -}}
{{- if .job.ofPods -}}
{{- /* What another object suspends would run without these: its queue may be known to that object alone. */ -}}
{{- $queued = printf "%s || %s" $queued (include "sluice.suspendedByParent" .) -}}
{{- end -}}
{{- $entries := list (dict "suffix" "" "policy" "Fail" "seconds" ((.root.Values.webhooks).timeoutSeconds | default 5) "condition" "has-queue-name" "expression" $queued "namespaces" "sluice.queuedNamespaces") -}}
{{- if and (dig "jobsWithoutQueueName" true (.root.Values.webhooks | default dict)) (not .job.impliedPods) -}}
{{- $entries = append $entries (dict "suffix" "-without-queue" "policy" "Ignore" "seconds" 2 "condition" "has-no-queue-name" "expression" (printf "!(%s)" $queued) "namespaces" "sluice.jobNamespaces") -}}
{{- end -}}
{{- $context := . -}}
{{- range $entries }}
- name: {{ trunc 1 $context.type }}{{ $context.job.name }}{{ .suffix }}.kb.io
  admissionReviewVersions: [v1]
  clientConfig: {{- include "sluice.clientConfig" (dict "root" $context.root "path" $path) | nindent 4 }}
  failurePolicy: {{ .policy }}
  sideEffects: None
  timeoutSeconds: {{ .seconds }}
  {{- if eq $context.type "mutate" }}
  reinvocationPolicy: {{ ($context.root.Values.mutatingWebhook).reinvocationPolicy | default "Never" }}
  {{- end }}
  namespaceSelector: {{- include (or $context.job.ofPods $context.job.suspendsPods | ternary "sluice.podNamespaces" .namespaces) $context.root | nindent 4 }}
  matchConditions:
    - name: {{ .condition }}
      expression: {{ .expression | quote }}
    # Nothing keeps the manager from stopping a job: neither its own bounds nor a webhook that is late.
    - name: is-not-the-managers-own-write
      expression: {{ printf "request.userInfo.username != 'system:serviceaccount:%s:%s'" $context.root.Release.Namespace (include "sluice.serviceAccountName" $context.root | trim) | quote }}
    {{- if and .suffix $context.job.ofPods (eq $context.type "validate") }}
    # Most pods are none of ours.
    - name: has-labels-or-annotations-of-ours
      expression: {{ include "sluice.hasOurMarks" $ | quote }}
    {{- end }}
    {{- if $context.job.impliedPods }}
    # Pods that nothing suspends are not queued.
    - name: is-suspended-by-its-parent
      expression: {{ include "sluice.suspendedByParent" $ | quote }}
    {{- end }}
  rules:
    - apiGroups: [{{ $context.job.group | default "\"\"" }}]
      apiVersions: [{{ $context.job.version }}]
      operations: {{ toJson $context.operations }}
      resources: [{{ $context.job.resource }}]
{{- end }}
{{- end }}

{{/*
The entry for pods of started JobSets that are to keep off some nodes: they say so in an annotation. It never blocks.
*/}}
{{- define "sluice.podWebhook" -}}
- name: mpod-node-affinity.kb.io
  admissionReviewVersions: [v1]
  clientConfig: {{- include "sluice.clientConfig" (dict "root" . "path" "/mutate--v1-pod") | nindent 4 }}
  failurePolicy: Ignore
  sideEffects: None
  timeoutSeconds: 2
  reinvocationPolicy: Never
  namespaceSelector: {{- include "sluice.jobNamespaces" . | nindent 4 }}
  matchConditions:
    - name: asks-for-node-affinity
      expression: "has(object.metadata.annotations) && 'sluice.dev/node-affinity' in object.metadata.annotations"
  rules:
    - apiGroups: [""]
      apiVersions: [v1]
      operations: ["CREATE"]
      resources: [pods]
{{- end }}
