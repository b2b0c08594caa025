{{- define "deepprof.name" -}}
{{ .Release.Name }}-deepprof
{{- end -}}

{{- define "deepprof.selector" -}}
app.kubernetes.io/name: deepprof
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "deepprof.labels" -}}
{{ include "deepprof.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: deepprof-{{ .Chart.Version }}
{{- end -}}

{{- define "deepprof.socket" -}}
{{- if .Values.socket.hostPath -}}
unix:/run/deepprof/deepprof.sock
{{- else -}}
unix:/run/deepprof/own/deepprof.sock
{{- end -}}
{{- end -}}
