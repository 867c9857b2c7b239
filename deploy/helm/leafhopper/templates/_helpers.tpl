{{/* The names of the objects: RELEASE-leafhopper, or RELEASE where that says it already. */}}
{{- define "leafhopper.fullname" -}}
{{- if contains "leafhopper" .Release.Name -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-leafhopper" .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "leafhopper.selector" -}}
app.kubernetes.io/name: leafhopper
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "leafhopper.labels" -}}
{{ include "leafhopper.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* One job for each database: the alerts count instances by it. */}}
{{- define "leafhopper.job" -}}
leafhopper-{{ .Release.Namespace }}-{{ .Release.Name }}
{{- end -}}

{{- define "leafhopper.image" -}}
{{ required "image.repository: where you have pushed the image" .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "leafhopper.grace" -}}
{{ add (int .Values.shutdownGraceSeconds) 25 }}
{{- end -}}

{{/* The configuration. What users write is TOML as it stands: expressions of leaves are in braces, too. */}}
{{- define "leafhopper.config" -}}
[database]
url = { file = "/run/secrets/leafhopper/database/url" }
{{- if .Values.database.directKey }}
direct_url = { file = "/run/secrets/leafhopper/database/direct_url" }
{{- end }}
pool_size = {{ int .Values.database.poolSize }}

[listen]
address = "0.0.0.0:{{ int .Values.listen.port }}"
{{- if .Values.listen.tokenSecret }}
admin_token = { file = "/run/secrets/leafhopper/token/token" }
{{- end }}
{{- $name := include "leafhopper.fullname" . }}
{{- $hosts := list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s.%s.svc.cluster.local" $name .Release.Namespace) }}
hosts = {{ concat $hosts .Values.listen.hosts | toJson }}
show_bodies = {{ .Values.listen.showBodies }}

[dispatch]
shutdown_grace = "{{ int .Values.shutdownGraceSeconds }}s"
state_dir = "/var/lib/leafhopper"
{{- with .Values.dispatch }}
{{ trim . }}
{{- end }}
{{- with .Values.leaves }}

{{ trim . }}
{{- end }}
{{ end -}}

{{- define "leafhopper.securityContext" -}}
allowPrivilegeEscalation: false
capabilities: { drop: [ALL] }
readOnlyRootFilesystem: true
runAsGroup: 65532
runAsNonRoot: true
runAsUser: 65532
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{/* A probe of the listener. */}}
{{- define "leafhopper.probe" -}}
httpGet: { path: {{ .path }}, port: leafhopper }
timeoutSeconds: 5
{{- end -}}

{{/* The container, without what depends on how it is run. Liveness is of the loops alone: a database that is away restarts
nothing. */}}
{{- define "leafhopper.container" -}}
name: leafhopper
image: {{ include "leafhopper.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [run]
env:
  - { name: LEAFHOPPER_LOG_LEVEL, value: {{ .Values.logLevel | quote }} }
  {{- with .Values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
ports:
  - { name: leafhopper, containerPort: {{ int .Values.listen.port }} }
startupProbe:
  {{- include "leafhopper.probe" (dict "path" "/livez") | nindent 2 }}
  periodSeconds: 1
  failureThreshold: 30
livenessProbe:
  {{- include "leafhopper.probe" (dict "path" "/livez") | nindent 2 }}
  periodSeconds: 10
  failureThreshold: 3
resources:
  {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  {{- include "leafhopper.securityContext" . | nindent 2 }}
volumeMounts:
  - { name: leafhopper-config, mountPath: /etc/leafhopper, readOnly: true }
  - { name: leafhopper-state, mountPath: /var/lib/leafhopper }
  - { name: leafhopper-database, mountPath: /run/secrets/leafhopper/database, readOnly: true }
  {{- if .Values.listen.tokenSecret }}
  - { name: leafhopper-token, mountPath: /run/secrets/leafhopper/token, readOnly: true }
  {{- end }}
  {{- range .Values.secrets }}
  - { name: {{ printf "leafhopper-secret-%s" .name }}, mountPath: {{ printf "/run/secrets/leafhopper/%s" .name }}, readOnly: true }
  {{- end }}
{{- end -}}

{{- define "leafhopper.volumes" -}}
- name: leafhopper-config
  configMap: { name: {{ include "leafhopper.fullname" . }} }
# It outlives a container that crashes, so that its successor need not wait for the lease.
- name: leafhopper-state
  emptyDir: {}
- name: leafhopper-database
  secret:
    secretName: {{ required "database.secret: the Secret with the url of the database" .Values.database.secret }}
    defaultMode: 0444
    items:
      - { key: {{ .Values.database.key }}, path: url }
      {{- with .Values.database.directKey }}
      - { key: {{ . }}, path: direct_url }
      {{- end }}
{{- with .Values.listen.tokenSecret }}
- name: leafhopper-token
  secret:
    secretName: {{ . }}
    defaultMode: 0444
    items:
      - { key: {{ $.Values.listen.tokenKey }}, path: token }
{{- end }}
{{- range .Values.secrets }}
- name: {{ printf "leafhopper-secret-%s" .name }}
  secret: { secretName: {{ .secret }}, defaultMode: 0444 }
{{- end }}
{{- end -}}

{{/* For another chart: an entry of its initContainers. It starts before the app and stops after it. It has no readiness:
the app writes its rows whether the sidecar works or not. */}}
{{- define "leafhopper.sidecar" -}}
- restartPolicy: Always
  {{- include "leafhopper.container" . | nindent 2 }}
{{- end -}}

{{- define "leafhopper.sidecar.volumes" -}}
{{ include "leafhopper.volumes" . }}
{{- end -}}

{{/* For another chart: an annotation of the pods, so that they are replaced when the configuration changes. */}}
{{- define "leafhopper.checksum" -}}
checksum/leafhopper: {{ include "leafhopper.config" . | sha256sum }}
{{- end -}}
