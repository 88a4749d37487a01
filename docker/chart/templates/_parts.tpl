{{- define "labels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/part-of: enginebench
{{- end }}

{{- define "selector" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end }}

{{- define "pod" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  fsGroup: 10001
  seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
resources:
  requests: {{ toJson .resources }}
  limits: {{ toJson .resources }}
env: {{ toJson .env }}
{{- end }}

{{- define "monitor" -}}
podMetricsEndpoints:
  - port: {{ .port }}
    path: /metrics
    interval: 5s
    scrapeTimeout: 4s
    relabelings:
      - { targetLabel: job, replacement: {{ .job }} }
{{- end }}
