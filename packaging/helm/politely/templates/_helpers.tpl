{{/* What selects the pods. */}}
{{- define "politely.labels" -}}
app.kubernetes.io/name: politely
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "politely.name" -}}
{{ contains "politely" .Release.Name | ternary .Release.Name (printf "%s-politely" .Release.Name) | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* Not empty: there may be more than one pod. */}}
{{- define "politely.several" -}}
{{ if or (kindIs "invalid" .Values.replicas) (gt (int .Values.replicas) 1) }}yes{{ end }}
{{- end }}

{{/* Values that would be impolite, or work for no client. */}}
{{- define "politely.check" -}}
{{- $fleet := or .Values.fleet.url .Values.fleet.secret .Values.config.fleet }}
{{- $several := include "politely.several" . }}
{{- if not (has .Values.mode (list "service" "sidecar")) }}{{ fail "mode is service or sidecar" }}{{ end }}
{{- if and $several (not $fleet) }}
{{- fail "replicas: several pods without a fleet would each ask a site as often as its crawl-delay allows one: set fleet.url or fleet.secret" }}
{{- end }}
{{- if and (or $several (eq .Values.mode "sidecar")) (not .Values.ca.secret) }}
{{- fail "ca.secret: all pods need the same certificate authority: kubectl create secret tls politely-ca --cert=tls.crt --key=tls.key" }}
{{- end }}
{{- if and $several .Values.state.claim }}{{ fail "state.claim: pods cannot share one state" }}{{ end }}
{{- if and .Values.metrics.podMonitor (not .Values.admin.tokenSecret) }}
{{- fail "metrics.podMonitor: set admin.tokenSecret, or the metrics are on the pods' loopback alone" }}
{{- end }}
{{- if and (eq .Values.mode "sidecar") (not .Values.crawler.containers) }}{{ fail "crawler.containers: a sidecar needs a crawler" }}{{ end }}
{{- end }}

{{/* politely.yaml */}}
{{- define "politely.config" -}}
{{- $address := printf "%s:3128" (eq .Values.mode "sidecar" | ternary "127.0.0.1" "0.0.0.0") }}
{{- $config := dict "log" (dict "format" "json" "access" "stdout") "listen" (list (dict "address" $address)) }}
{{- if eq .Values.mode "service" }}{{ $_ := set $config "access" (dict "clients" .Values.clients) }}{{ end }}
{{- $fleet := dict }}
{{- with .Values.fleet.url }}{{ $_ := set $fleet "url" . }}{{ end }}
{{- /* So that each pod knows its part of a pace when it has never reached the server. */}}
{{- if gt (int .Values.replicas) 1 }}{{ $_ := set $fleet "instances" (int .Values.replicas) }}{{ end }}
{{- if and $fleet (not (kindIs "string" .Values.config.fleet)) }}{{ $_ := set $config "fleet" $fleet }}{{ end }}
{{- if .Values.ca.secret }}
{{- $_ := set $config "intercept" (dict "ca" (dict "certificate" "credential:tls.crt" "key" "credential:tls.key")) }}
{{- end }}
{{- if .Values.admin.tokenSecret }}
{{- $_ := set $config "admin" (dict "address" "0.0.0.0:3129" "token_file" "credential:token") }}
{{- end }}
{{- toYaml (mergeOverwrite $config (deepCopy .Values.config)) }}
{{- end }}

{{- define "politely.container" -}}
name: politely
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
args: [serve, --config, /etc/politely/politely.yaml]
env:
  # The image has a value, which would override the file.
  - { name: POLITELY_LISTEN, value: "" }
  - { name: CREDENTIALS_DIRECTORY, value: /run/credentials }
  {{- with .Values.fleet.secret }}
  - name: POLITELY_FLEET
    valueFrom: { secretKeyRef: { name: {{ . }}, key: {{ $.Values.fleet.key }} } }
  {{- end }}
{{- if or (eq .Values.mode "service") .Values.admin.tokenSecret }}
ports:
  {{- if eq .Values.mode "service" }}
  - { name: proxy, containerPort: 3128 }
  {{- end }}
  {{- if .Values.admin.tokenSecret }}
  - { name: admin, containerPort: 3129 }
  {{- end }}
{{- end }}
startupProbe:
  exec: { command: [politely, status] }
  periodSeconds: 1
  timeoutSeconds: 5
  failureThreshold: 30
livenessProbe:
  exec: { command: [politely, status] }
  timeoutSeconds: 5
{{- if eq .Values.mode "service" }}
readinessProbe:
  exec: { command: [politely, status, --ready] }
  timeoutSeconds: 5
{{- end }}
resources: {{- toYaml .Values.resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
volumeMounts:
  - { name: politely-configuration, mountPath: /etc/politely, readOnly: true }
  - { name: politely-credentials, mountPath: /run/credentials, readOnly: true }
  - { name: politely-state, mountPath: /var/lib/politely }
  - { name: politely-tmp, mountPath: /tmp }
  {{- with .Values.volumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{- define "politely.volumes" -}}
- name: politely-configuration
  configMap: { name: {{ include "politely.name" . }} }
- name: politely-credentials
  {{- if or .Values.ca.secret .Values.admin.tokenSecret }}
  projected:
    defaultMode: 0440
    sources:
      {{- with .Values.ca.secret }}
      - secret: { name: {{ . }} }
      {{- end }}
      {{- with .Values.admin.tokenSecret }}
      - secret: { name: {{ . }}, items: [{ key: token, path: token }] }
      {{- end }}
  {{- else }}
  emptyDir: {}
  {{- end }}
- name: politely-state
  {{- if .Values.state.claim }}
  persistentVolumeClaim: { claimName: {{ .Values.state.claim }} }
  {{- else }}
  emptyDir: { sizeLimit: {{ .Values.state.size }} }
  {{- end }}
- name: politely-tmp
  emptyDir: { medium: Memory, sizeLimit: 16Mi }
{{- with .Values.volumes }}
{{ toYaml . }}
{{- end }}
{{- if eq .Values.mode "sidecar" }}
# The certificate without its key.
- name: politely-certificate
  secret:
    secretName: {{ .Values.ca.secret }}
    items: [{ key: tls.crt, path: tls.crt }]
{{- end }}
{{- end }}

{{/* The crawler's containers, told of the proxy. What they set themselves counts. */}}
{{- define "politely.crawlers" -}}
{{- $variables := list }}
{{- range list "http_proxy" "https_proxy" }}
{{- $variables = append $variables (dict "name" . "value" "http://127.0.0.1:3128") }}
{{- end }}
{{- range list "SSL_CERT_FILE" "CURL_CA_BUNDLE" "REQUESTS_CA_BUNDLE" "NODE_EXTRA_CA_CERTS" }}
{{- $variables = append $variables (dict "name" . "value" "/etc/politely-ca/tls.crt") }}
{{- end }}
{{- $mount := dict "name" "politely-certificate" "mountPath" "/etc/politely-ca" "readOnly" true }}
{{- $containers := list }}
{{- range .Values.crawler.containers }}
{{- $container := deepCopy . }}
{{- $own := list }}
{{- range $container.env }}{{ $own = append $own .name }}{{ end }}
{{- $env := $container.env | default list }}
{{- range $variables }}{{ if not (has .name $own) }}{{ $env = append $env . }}{{ end }}{{ end }}
{{- $_ := set $container "env" $env }}
{{- $_ := set $container "volumeMounts" (append ($container.volumeMounts | default list) $mount) }}
{{- $containers = append $containers $container }}
{{- end }}
{{- toYaml $containers }}
{{- end }}
