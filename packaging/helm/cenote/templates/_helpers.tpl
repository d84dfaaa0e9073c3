{{- define "cenote.name" -}}
{{- if contains "cenote" .Release.Name -}}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}{{ printf "%s-cenote" (.Release.Name | trunc 43 | trimSuffix "-") }}
{{- end -}}
{{- end -}}

{{/* What the selectors of one component are; .component is `node` or `manager`. */}}
{{- define "cenote.selector" -}}
app.kubernetes.io/name: cenote
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "cenote.labels" -}}
{{ include "cenote.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{- define "cenote.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end -}}

{{/* Seconds from SIGTERM on after which the kubelet kills the node: at least node.drain_timeout + node.flush_timeout + 2 s. */}}
{{- define "cenote.stopLimit" -}}
{{ max (int .Values.terminationGracePeriodSeconds) (add ((.Values.node | default dict).drainTimeoutSeconds | default 5) ((.Values.node | default dict).flushTimeoutSeconds | default 20) 2) }}
{{- end -}}

{{- define "cenote.unprivileged" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "cenote.small" -}}
requests: {cpu: 10m, memory: 16Mi}
limits: {memory: 64Mi}
{{- end -}}

{{- define "cenote.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .Values.user }}
runAsGroup: {{ .Values.user }}
fsGroup: {{ .Values.user }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}
