# Carillon · templates.py
# SPDX-License-Identifier: Apache-2.0
"""Turns the objects of the manifests into templates."""

from manifests import find, put
from values import DISPATCHER, GATEWAY, INGRESS, KEDA, MIGRATE, POD, ROUTE, SCALER, VALUES
from writing import Block, Expression, If, More, With, lines

# The objects of each template.
FILES = {
    "serviceaccount.yaml": ["ServiceAccount/carillon"],
    "settings.yaml": ["ConfigMap/carillon-settings"],
    "catalog.yaml": ["ConfigMap/carillon-catalog"],
    "migrate.yaml": [
        "ServiceAccount/carillon-migrate", "ConfigMap/carillon-migrate", "NetworkPolicy/carillon-migrate", MIGRATE,
    ],
    "gateway.yaml": [GATEWAY, "Service/carillon-gateway", "PodDisruptionBudget/carillon-gateway", SCALER],
    "dispatcher.yaml": [DISPATCHER, "PodDisruptionBudget/carillon-dispatcher", KEDA],
    "networkpolicy.yaml": ["NetworkPolicy/carillon-gateway", "NetworkPolicy/carillon-dispatcher"],
    "ingress.yaml": [INGRESS],
    "httproute.yaml": [ROUTE],
    "podmonitor.yaml": ["PodMonitor/carillon-gateway", "PodMonitor/carillon-dispatcher"],
}
# The conditions of objects that are optional.
CONDITIONS = {
    "ServiceAccount/carillon": ".Values.serviceAccount.create",
    "ConfigMap/carillon-catalog": "not .Values.catalog.existingConfigMap",
    "ServiceAccount/carillon-migrate": "and .Values.migrate.enabled .Values.serviceAccount.create",
    "ConfigMap/carillon-migrate": ".Values.migrate.enabled",
    "NetworkPolicy/carillon-migrate": "and .Values.migrate.enabled .Values.networkPolicy.enabled",
    MIGRATE: ".Values.migrate.enabled",
    SCALER: ".Values.gateway.autoscaling.enabled",
    KEDA: ".Values.keda.enabled",
    INGRESS: ".Values.ingress.enabled",
    ROUTE: ".Values.httpRoute.enabled",
    **{name: ".Values.networkPolicy.enabled" for name in FILES["networkpolicy.yaml"]},
    **{name: ".Values.podMonitor.enabled" for name in FILES["podmonitor.yaml"]},
}
SETTINGS = Block('include "carillon.settings" .', yields_text=True)


def insert_pod(objects, where, name):
    """Adds to a pod the values that have no place in the manifests."""
    container = f"{where}:{POD}.containers.0"
    put(objects, f"{container}.image", Expression('include "carillon.image" . | quote'))
    find(objects, container)["env"] = With(f".Values.{name}.extraEnv")
    pod = find(objects, f"{where}:{POD}")
    pod["imagePullSecrets"] = With(".Values.image.pullSecrets")
    for key in ("nodeSelector", "tolerations", "affinity"):
        pod[key] = With(f".Values.{name}.{key}")


def insert_service(objects, where, name):
    """Adds to a Deployment the values that have no place in the manifests."""
    insert_pod(objects, where, name)
    put(objects, f"{where}:{POD}.serviceAccountName", Expression(".Values.serviceAccount.name | quote"))
    put(objects, f"{where}:{POD}.volumes.0.configMap.name", Expression('include "carillon.catalog" . | quote'))
    # Changed settings or types restart the pods.
    find(objects, f"{where}:spec.template.metadata")["annotations"] = {
        "checksum/settings": Expression('include "carillon.settings" . | sha256sum'),
        "checksum/catalog": If(
            "not .Values.catalog.existingConfigMap", Expression(".Values.catalog.types | sha256sum")),
    }


def insert_migration(objects):
    """Makes the migration a hook.

    It runs before the chart's other objects exist, so it has its own settings and service account.
    """
    insert_pod(objects, MIGRATE, "migrate")
    put(objects, f"{MIGRATE}:{POD}.serviceAccountName", Expression('include "carillon.migrateAccount" . | quote'))
    put(objects, f"{MIGRATE}:{POD}.containers.0.envFrom.0.configMapRef.name", "carillon-migrate")
    for kind, original in [("ServiceAccount", "carillon"), ("ConfigMap", "carillon-settings")]:
        source = objects[f"{kind}/{original}"]
        objects[f"{kind}/carillon-migrate"] = source | {
            "metadata": {"name": "carillon-migrate", "labels": dict(source["metadata"]["labels"])},
        }
    for name in FILES["migrate.yaml"]:
        hook = {"helm.sh/hook": "pre-install,pre-upgrade"}
        if name == MIGRATE:
            # You can read its log until its TTL removes it.
            hook["helm.sh/hook-delete-policy"] = "before-hook-creation"
        else:
            hook["helm.sh/hook-weight"] = "-5"
            hook["helm.sh/hook-delete-policy"] = "before-hook-creation,hook-succeeded"
        objects[name]["metadata"]["annotations"] = hook
    find(objects, "ServiceAccount/carillon-migrate:metadata")["annotations"][
        More(".Values.serviceAccount.annotations")] = None


def insert(objects):
    """Replaces the parts of objects that come from values by expressions."""
    put(objects, "ConfigMap/carillon-settings:data", SETTINGS)
    put(objects, "ConfigMap/carillon-catalog:data", Block('(dict "types.yaml" .Values.catalog.types)'))
    insert_service(objects, GATEWAY, "gateway")
    insert_service(objects, DISPATCHER, "dispatcher")
    insert_migration(objects)
    for value in VALUES:
        for place in value.at:
            put(objects, place, value.expression)

    find(objects, "ServiceAccount/carillon:metadata")["annotations"] = With(".Values.serviceAccount.annotations")
    deployment = find(objects, f"{GATEWAY}:spec")
    deployment["replicas"] = If("not .Values.gateway.autoscaling.enabled", Expression(".Values.gateway.replicas"))
    deployment = find(objects, f"{DISPATCHER}:spec")
    deployment["replicas"] = If("not .Values.keda.enabled", Expression(".Values.dispatcher.replicas"))
    ingress = find(objects, f"{INGRESS}:spec")
    put(objects, f"{INGRESS}:spec.tls.0.hosts.0", Expression(".Values.host | quote"))
    ingress["tls"] = If(".Values.ingress.tlsSecret", ingress["tls"])
    ingress["ingressClassName"] = If(".Values.ingress.className", ingress["ingressClassName"])
    [sockets] = [rule for rule in find(objects, f"{ROUTE}:spec.rules") if "timeouts" in rule]
    sockets["sessionPersistence"] = With(".Values.httpRoute.sessionPersistence")
    for name, item in objects.items():
        if name.startswith("NetworkPolicy/"):
            item["spec"]["egress"].append(More(".Values.networkPolicy.extraEgress"))
        labels = item["metadata"]["labels"]
        labels[More('include "carillon.labels" .', yields_text=True)] = None
        if name.startswith("PodMonitor/"):
            labels[More(".Values.podMonitor.labels")] = None


def write(file, objects):
    """Returns the text of a template."""
    text = [
        "{{- /*", f"Carillon · {file}", "SPDX-License-Identifier: Apache-2.0", "",
        "Made by deploy/kubernetes/chart/build.py, so do not edit it: change deploy/kubernetes.", "*/ -}}",
    ]
    for name in FILES[file]:
        condition = CONDITIONS.get(name)
        if condition:
            text.append(f"{{{{- if {condition} }}}}")
        text += ["---", *lines(objects[name])]
        if condition:
            text.append("{{- end }}")
    return "\n".join(text) + "\n"


def templates(objects):
    """Returns the templates of the objects, by file. Changes the objects."""
    insert(objects)
    names = [name for file in FILES.values() for name in file]
    for name in objects:
        if name not in names:
            raise SystemExit(f"{name} of deploy/kubernetes is in no template; add it to templates.py")
    return {file: write(file, objects) for file in FILES}
