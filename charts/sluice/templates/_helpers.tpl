{{/* Prefix of all names. Not the release's name, so that the names are those of Kueue's manifests. */}}
{{- define "sluice.fullname" -}}
{{- .Values.fullnameOverride | default .Values.nameOverride | default "kueue" | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "sluice.selectorLabels" -}}
app.kubernetes.io/name: {{ include "sluice.fullname" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
control-plane: controller-manager
{{- end }}

{{- define "sluice.labels" -}}
{{ include "sluice.selectorLabels" . }}
app.kubernetes.io/component: controller
app.kubernetes.io/part-of: sluice
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "sluice.serviceAccountName" -}}
{{ include "sluice.fullname" . }}-controller-manager
{{- end }}

{{/* Takes the keys of a map away whose value is null, as the manager reads them: a section that is written and empty is left out. Prints nothing. */}}
{{- define "sluice.withoutNulls" -}}
{{- range $key := keys . -}}
{{- $value := get $ $key -}}
{{- if kindIs "invalid" $value -}}
{{- $_ := unset $ $key -}}
{{- else if kindIs "map" $value -}}
{{- include "sluice.withoutNulls" $value -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/*
The effective Configuration as YAML: the text of managerConfig with what this release decides filled in. The templates read
it back with fromYaml, so that a port or a framework is said in one place.
*/}}
{{- define "sluice.config" -}}
{{- range list "controllerManager" "managerConfig" -}}
{{- if not (kindIs "map" (get $.Values .)) -}}
{{- fail (printf "%s: this section is missing in the values. Leave it out of your own values, so that the chart's defaults count; `helm upgrade` takes them with --reset-then-reuse-values in place of --reuse-values." .) -}}
{{- end -}}
{{- end -}}
{{- $config := fromYaml (.Values.managerConfig.controllerManagerConfigYaml | default "") -}}
{{- if hasKey $config "Error" -}}
{{- fail (printf "managerConfig.controllerManagerConfigYaml is not YAML: %s" $config.Error) -}}
{{- end -}}
{{- include "sluice.withoutNulls" $config -}}
{{- if ne ($config.kind | default "") "Configuration" -}}
{{- fail "managerConfig.controllerManagerConfigYaml must be of kind Configuration (config.kueue.x-k8s.io)" -}}
{{- end -}}
{{- if not $config.namespace -}}
{{- $_ := set $config "namespace" .Release.Namespace -}}
{{- end -}}
{{- $webhook := $config.webhook | default dict -}}
{{- $_ := set $webhook "port" ((.Values.webhooks).port | default $webhook.port | default 9443 | int) -}}
{{- $_ := set $config "webhook" $webhook -}}
{{- with .Values.managerConfig.declaredKinds -}}
{{- $integrations := $config.integrations | default dict -}}
{{- $_ := set $integrations "declared" (concat (dig "declared" list $integrations) .) -}}
{{- $_ := set $config "integrations" $integrations -}}
{{- end -}}
{{- if (.Values.journal).enabled -}}
{{- $journal := $config.journal | default dict -}}
{{- $_ := set $journal "directory" (include "sluice.journalFolder" .) -}}
{{- with .Values.journal.maxTotalSize }}{{- $_ := set $journal "maxTotalSize" (toString .) -}}{{- end -}}
{{- with .Values.journal.store }}{{- if .url -}}
{{- $store := $journal.store | default dict -}}
{{- $_ := set $store "url" .url -}}
{{- with .every }}{{- $_ := set $store "every" . -}}{{- end -}}
{{- with .endpoint }}{{- $_ := set $store "endpoint" . -}}{{- end -}}
{{- with .region }}{{- $_ := set $store "region" . -}}{{- end -}}
{{- if (.caSecret).name -}}
{{- $_ := set $store "caFile" (printf "%s/%s" (include "sluice.journalCaFolder" $) (.caSecret.key | default "ca.crt")) -}}
{{- end -}}
{{- $_ := set $journal "store" $store -}}
{{- end }}{{- end -}}
{{- $_ := set $config "journal" $journal -}}
{{- end -}}
{{- with (.Values.tracing).endpoint -}}
{{- $tracing := $config.tracing | default dict -}}
{{- $_ := set $tracing "endpoint" . -}}
{{- $_ := set $tracing "sampleRatio" (dig "sampleRatio" 1 $.Values.tracing | float64) -}}
{{- if ($.Values.tracing.caSecret).name -}}
{{- $_ := set $tracing "caFile" (printf "%s/ca/%s" (include "sluice.tracingFolder" $) ($.Values.tracing.caSecret.key | default "ca.crt")) -}}
{{- end -}}
{{- if ($.Values.tracing.headersSecret).name -}}
{{- $_ := set $tracing "headersFile" (printf "%s/headers/%s" (include "sluice.tracingFolder" $) ($.Values.tracing.headersSecret.key | default "headers")) -}}
{{- end -}}
{{- $_ := set $config "tracing" $tracing -}}
{{- end -}}
{{- $certs := $config.internalCertManagement | default dict -}}
{{- if not (hasKey $certs "enable") -}}
{{- $_ := set $certs "enable" true -}}
{{- end -}}
{{- if not $certs.webhookServiceName -}}
{{- $_ := set $certs "webhookServiceName" (printf "%s-webhook-service" (include "sluice.fullname" .)) -}}
{{- end -}}
{{- if not $certs.webhookSecretName -}}
{{- $_ := set $certs "webhookSecretName" (printf "%s-webhook-server-cert" (include "sluice.fullname" .)) -}}
{{- end -}}
{{- $_ := set $config "internalCertManagement" $certs -}}
{{- if (.Values.dashboard).enabled -}}
{{- $dashboard := $config.dashboard | default dict -}}
{{- $_ := set $dashboard "port" (.Values.dashboard.port | default 8090 | int) -}}
{{- $_ := set $config "dashboard" $dashboard -}}
{{- end -}}
{{- $gates := $config.featureGates | default dict -}}
{{- range .Values.controllerManager.featureGates -}}
{{- $_ := set $gates .name .enabled -}}
{{- end -}}
{{- if $gates -}}
{{- $_ := set $config "featureGates" $gates -}}
{{- end -}}
{{- toYaml $config -}}
{{- end }}

{{/*
`helm upgrade --reuse-values` brings the values of the release before, without the keys that are new since: sections that a release may lack are
read with parentheses, as (.Values.journal).enabled.
*/}}

{{/* Where the docs say what to do about an alert: the page in this repository, and its address where the book is served. */}}
{{- define "sluice.runbook" -}}
{{- $page := printf "troubleshooting/alerts%%s#%s" (lower (index . 1)) -}}
runbook: docs/{{ printf $page ".md" }}
{{- with (((index . 0).Values.metrics).prometheusRule).runbookUrl }}
runbook_url: {{ printf "%s/%s" (trimSuffix "/" .) (printf $page ".html") }}
{{- end }}
{{- end }}

{{/* Where the journal's volume is mounted. */}}
{{- define "sluice.journalFolder" -}}
/var/lib/sluice/journal
{{- end }}

{{/* Where the CA of the journal's object store is mounted. */}}
{{- define "sluice.journalCaFolder" -}}
/var/run/sluice/journal-store
{{- end }}

{{/* The Secret with that CA, if there is one. */}}
{{- define "sluice.journalCaSecret" -}}
{{- if and (.Values.journal).enabled ((.Values.journal).store).url -}}{{ (.Values.journal.store.caSecret).name }}{{- end -}}
{{- end }}

{{/* Where the Secrets of traces are mounted. */}}
{{- define "sluice.tracingFolder" -}}
/var/run/sluice/tracing
{{- end }}

{{/* The Secrets that traces take, as JSON: the folder below sluice.tracingFolder, and the Secret. */}}
{{- define "sluice.tracingSecrets" -}}
{{- $secrets := dict -}}
{{- with .Values.tracing -}}
{{- if and .endpoint (.caSecret).name -}}
{{- $_ := set $secrets "ca" .caSecret.name -}}
{{- end -}}
{{- if and .endpoint (.headersSecret).name -}}
{{- $_ := set $secrets "headers" .headersSecret.name -}}
{{- end -}}
{{- end -}}
{{- toJson $secrets -}}
{{- end }}

{{/* The port of a bind address like ":8443"; empty for "0". */}}
{{- define "sluice.port" -}}
{{- if ne (toString .) "0" -}}
{{- regexFind "[0-9]+$" (toString .) -}}
{{- end -}}
{{- end }}

{{/* The lease of the leader. */}}
{{- define "sluice.leaseName" -}}
{{- $config := fromYaml (include "sluice.config" .) -}}
{{- dig "leaderElection" "resourceName" "" $config | default "c1f6bfd2.kueue.x-k8s.io" -}}
{{- end }}

{{- define "sluice.healthPort" -}}
{{- $config := fromYaml (include "sluice.config" .) -}}
{{- include "sluice.port" (dig "health" "healthProbeBindAddress" "" $config | toString | default ":8081") -}}
{{- end }}

{{- define "sluice.metricsPort" -}}
{{- $config := fromYaml (include "sluice.config" .) -}}
{{- include "sluice.port" (dig "metrics" "bindAddress" "" $config | toString | default ":8443") -}}
{{- end }}

{{/*
Whether a feature gate is on, as text: by its own entry, else by that of its stage, else by its default. The argument is a list of the root, the
gate's name, the name for its stage (AllAlpha, AllBeta) and its default.
*/}}
{{- define "sluice.gate" -}}
{{- $gates := dig "featureGates" dict (fromYaml (include "sluice.config" (index . 0))) -}}
{{- if dig (index . 1) (dig (index . 2) (index . 3) $gates) $gates -}}
true
{{- end -}}
{{- end }}

{{/* The port of the aggregated APIs; empty when the gate VisibilityOnDemand switches them off. */}}
{{- define "sluice.visibilityPort" -}}
{{- $config := fromYaml (include "sluice.config" .) -}}
{{- if include "sluice.gate" (list . "VisibilityOnDemand" "AllBeta" true) -}}
{{- dig "visibilityServer" "bindPort" 8082 $config -}}
{{- end -}}
{{- end }}

{{/* The port of the dashboard; empty while it is off. */}}
{{- define "sluice.dashboardPort" -}}
{{- $config := fromYaml (include "sluice.config" .) -}}
{{- with dig "dashboard" "port" 0 $config -}}
{{- . -}}
{{- end -}}
{{- end }}

{{- define "sluice.webhookPort" -}}
{{- $config := fromYaml (include "sluice.config" .) -}}
{{- $config.webhook.port -}}
{{- end }}

{{/*
The enabled job kinds: those of jobKinds that integrations.frameworks lists, batch/job when it lists none, and those that integrations.declared
declares. Kinds of different groups may have the same name. Kinds that suspend pods imply pods, but only those that they suspend (impliedPods).
*/}}
{{- define "sluice.enabledJobKinds" -}}
{{- $config := fromYaml (include "sluice.config" .) -}}
{{- $frameworks := dig "integrations" "frameworks" list $config | default (list "batch/job") -}}
{{- $kinds := fromYaml (include "sluice.jobKinds" .) -}}
{{- $enabled := dict -}}
{{- range $framework, $kind := $kinds -}}
{{- if has $framework $frameworks -}}
{{- $_ := set $enabled $framework $kind -}}
{{- end -}}
{{- end -}}
{{- range dig "integrations" "declared" list $config -}}
{{- $name := lower .kind -}}
{{- $facts := dict "name" (printf "%s-%s" $name (replace "." "-" .group)) "path" $name "group" .group "version" .version -}}
{{- $facts = merge $facts (dict "resource" (.plural | default (printf "%ss" $name)) "parts" list "changesParts" false "confirmsStops" false "ofPods" false "suspendsPods" (dig "suspend" "gatesPods" false .) "podsAreJobs" false "templates" list) -}}
{{- $_ := set $enabled (printf "%s/%s" .group $name) $facts -}}
{{- end -}}
{{- $listed := keys $enabled -}}
{{- range $listed -}}
{{- if (get $enabled .).suspendsPods -}}
{{- range $framework, $kind := $kinds -}}
{{- if and $kind.ofPods (not (has $framework $listed)) -}}
{{- $_ := set $enabled $framework (merge (dict "impliedPods" true) $kind) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $enabled -}}
{{- end }}

{{/*
The kinds in integrations.externalFrameworks, as a YAML map entry → API group and resource. A CRD whose plural is not the usual one is named in
managerConfig.externalPlurals.
*/}}
{{- define "sluice.externalKinds" -}}
{{- $config := fromYaml (include "sluice.config" .) -}}
{{- $plurals := .Values.managerConfig.externalPlurals | default dict -}}
{{- $kinds := dict -}}
{{- range $entry := dig "integrations" "externalFrameworks" list $config -}}
{{- $parts := splitn "." 3 $entry -}}
{{- $name := lower $parts._0 -}}
{{- $usual := printf "%ss" $name -}}
{{- if hasSuffix "s" $name -}}
{{- $usual = printf "%ses" $name -}}
{{- else if hasSuffix "y" $name -}}
{{- $usual = printf "%sies" (trimSuffix "y" $name) -}}
{{- end -}}
{{- $_ := set $kinds $entry (dict "group" $parts._2 "resource" (get $plurals $entry | default $usual)) -}}
{{- end -}}
{{- toYaml $kinds -}}
{{- end }}

{{- define "sluice.image" -}}
{{- $image := .Values.controllerManager.manager.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/*
The port of a Service, as a list of one: its number and its target are the chart's, the entry in its values may name it, and may say its node port and
its appProtocol. The argument: given (the list in the values), name, port, target.
*/}}
{{- define "sluice.servicePorts" -}}
{{- $given := dict -}}
{{- range .given -}}
{{- $given = pick . "name" "nodePort" "appProtocol" -}}
{{- end -}}
{{- toYaml (list (merge $given (dict "name" .name "port" .port "protocol" "TCP" "targetPort" .target))) -}}
{{- end }}

{{- define "sluice.metricsServicePorts" -}}
{{- include "sluice.servicePorts" (dict "given" (.Values.metricsService).ports "name" "https" "port" 8443 "target" "metrics") -}}
{{- end }}

{{- define "sluice.ipFamilies" -}}
{{- if (.).enabled }}
ipFamilies: {{ toJson .ipFamilies }}
ipFamilyPolicy: {{ .ipFamilyPolicy }}
{{- end }}
{{- end }}

{{/* How the API server reaches a webhook path: by URL or by Service. Never with a caBundle: that is the manager's. */}}
{{- define "sluice.clientConfig" -}}
{{- $root := .root -}}
{{- if ($root.Values.webhooks).urlBase -}}
url: {{ trimSuffix "/" ($root.Values.webhooks).urlBase }}{{ .path }}
{{- else -}}
{{- $config := fromYaml (include "sluice.config" $root) -}}
service:
  name: {{ $config.internalCertManagement.webhookServiceName }}
  namespace: {{ $root.Release.Namespace }}
  path: {{ .path }}
  port: 443
{{- end -}}
{{- end }}
