{{- /*
Carillon · _helpers.tpl
SPDX-License-Identifier: Apache-2.0
*/ -}}

{{- /* The labels that Helm's conventions ask for. */ -}}
{{- define "carillon.labels" -}}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{- define "carillon.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- /* The entries of the settings' ConfigMap. */ -}}
{{- define "carillon.settings" -}}
{{- if .Values.settings.GATEWAY_TLS_CERT }}
{{- fail "settings.GATEWAY_TLS_CERT: the chart's probes and routes use plain HTTP; remove the setting, and let TLS end at the Ingress or the Gateway" }}
{{- end -}}
{{- range $name := list "GATEWAY_PORT" "METRICS_PORT" }}
{{- if get $.Values.settings $name }}
{{- fail (printf "settings.%s: the ports are fixed: 8080 and 9091; remove the setting" $name) }}
{{- end -}}
{{- end -}}
{{ toYaml (merge (dict) .Values.settings (dict "PUBLIC_URL" (printf "https://%s" .Values.host))) }}
{{- end }}

{{- /* The name of the catalog's ConfigMap. */ -}}
{{- define "carillon.catalog" -}}
{{ .Values.catalog.existingConfigMap | default "carillon-catalog" }}
{{- end }}

{{- /* The service account of the migration, which runs before that of the pods exists. */ -}}
{{- define "carillon.migrateAccount" -}}
{{ ternary "carillon-migrate" .Values.serviceAccount.name .Values.serviceAccount.create }}
{{- end }}
