{{- define "longhaul.name" -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "longhaul.selector" -}}
app.kubernetes.io/name: longhaul
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "longhaul.isPostgres" -}}
{{- if eq .Values.store "postgres" -}}
yes
{{- else if ne .Values.store "sqlite" -}}
{{- fail "store must be postgres or sqlite" -}}
{{- end -}}
{{- end -}}
