# Carillon · values.py
# SPDX-License-Identifier: Apache-2.0
"""The values of the chart: their names, defaults, rules and meanings."""

from dataclasses import dataclass, field
from typing import Any

from manifests import find
from writing import Block, Expression

GATEWAY = "Deployment/carillon-gateway"
DISPATCHER = "Deployment/carillon-dispatcher"
MIGRATE = "Job/carillon-migrate"
SCALER = "HorizontalPodAutoscaler/carillon-gateway"
KEDA = "ScaledObject/carillon-dispatcher"
INGRESS = "Ingress/carillon"
ROUTE = "HTTPRoute/carillon"
POD = "spec.template.spec"

# The schemas of values (JSON Schema).
SWITCH = {"type": "boolean"}
COUNT = {"type": "integer", "minimum": 1}
BUDGET = {"type": ["integer", "string"], "pattern": "^[0-9]+%$"}
TEXT = {"type": "string"}
NAME = {"type": "string", "minLength": 1}
MAP = {"type": "object"}
LIST = {"type": "array", "items": {"type": "object"}}
STRINGS = {"type": "object", "additionalProperties": {"type": "string"}}


@dataclass(frozen=True)
class Value:
    """A value of the chart.

    With `at`, the manifests have the default, and templates put the value there. Otherwise
    `default` is the default, or a function that computes it from the objects.
    """
    name: str
    schema: dict
    meaning: str
    at: list = field(default_factory=list)
    default: Any = None
    # The cell of the table in docs/deploying.md, for a default that is too long for it.
    shown: str | None = None

    def of(self, objects):
        """Returns the value in these objects; None if they do not have it."""
        if self.at:
            return find(objects, self.at[0])
        return self.default(objects) if callable(self.default) else self.default

    @property
    def expression(self):
        """The template expression for the value."""
        path = f".Values.{self.name}"
        kind = self.schema["type"]
        if kind in ("object", "array"):
            return Block(path)
        return Expression(f"{path} | quote" if kind == "string" else path)


def pods(name, where, what):
    """Returns the values that each kind of pod has."""
    return [
        Value(f"{name}.resources", MAP, f"requests and limits of {what}",
              at=[f"{where}:{POD}.containers.0.resources"], shown="see `values.yaml`"),
        Value(f"{name}.extraEnv", LIST, f"further variables of {what}, as in a pod's `env`", default=[]),
        Value(f"{name}.nodeSelector", MAP, f"labels that a node for {what} must have", default={}),
        Value(f"{name}.tolerations", LIST, f"taints that {what} tolerates", default=[]),
        Value(f"{name}.affinity", MAP, f"affinity of {what}", default={}),
    ]


def rollout(name, where, what):
    """Returns the values of a service's rollouts."""
    return [
        Value(f"{name}.maxSurge", BUDGET, f"new {what}s that a rollout starts at once",
              at=[f"{where}:spec.strategy.rollingUpdate.maxSurge"]),
        Value(f"{name}.maxUnavailable", BUDGET, f"{what}s that may be evicted at once",
              at=[f"PodDisruptionBudget/carillon-{name}:spec.maxUnavailable"]),
    ]


def settings(objects):
    """Returns the settings of the manifests, without `PUBLIC_URL`, which the chart derives."""
    found = dict(find(objects, "ConfigMap/carillon-settings:data"))
    if found.pop("PUBLIC_URL") != f"https://{find(objects, f'{INGRESS}:spec.rules.0.host')}":
        raise SystemExit("settings.yaml: PUBLIC_URL is not the ingress's host with https://")
    return found


def image(objects):
    """Returns the repository and the tag of the image."""
    name = find(objects, f"{GATEWAY}:{POD}.containers.0.image")
    repository, _, tag = name.rpartition(":")
    if not repository or "@" in name or "/" in tag:
        raise SystemExit(f"kustomization.yaml: {name} has no tag, from which the chart takes its version")
    return repository, tag


VALUES = [
    Value("host", NAME, "the gateways' host name, as clients see it; sets `PUBLIC_URL`",
          at=[f"{INGRESS}:spec.rules.0.host", f"{ROUTE}:spec.hostnames.0"]),
    Value("image.repository", NAME, "the image, without its tag", default=lambda objects: image(objects)[0]),
    Value("image.tag", TEXT, "the image's tag; empty for the chart's `appVersion`", default=""),
    Value("image.digest", {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
          "pins the image by `sha256:…`; then the tag is ignored", default=""),
    Value("image.pullPolicy", {"type": "string", "enum": ["Always", "IfNotPresent", "Never"]},
          "the pull policy of the image", at=[
              f"{where}:{POD}.containers.0.imagePullPolicy" for where in (GATEWAY, DISPATCHER, MIGRATE)
          ]),
    Value("image.pullSecrets", LIST, "secrets for the registry, each as `{name: …}`", default=[]),
    Value("existingSecret", NAME, "the secret with `REDIS_URL`, `DATABASE_URL` and `AUTH_JWT_SECRET`",
          at=[f"{where}:{POD}.containers.0.envFrom.1.secretRef.name" for where in (GATEWAY, DISPATCHER, MIGRATE)]),
    Value("providerKeysSecret", NAME,
          "an optional secret with the files of `/etc/carillon/keys`; `settings` names them",
          at=[f"{GATEWAY}:{POD}.volumes.1.secret.secretName", f"{DISPATCHER}:{POD}.volumes.1.secret.secretName",
              f"{MIGRATE}:{POD}.volumes.0.secret.secretName"]),
    Value("settings", STRINGS,
          "[settings](configuration.md) that are not secret, merged with the defaults; quote numbers",
          default=settings, shown="see `values.yaml`"),
    Value("catalog.types", NAME, "the text of a [catalog](catalog.md) file; replaces the example",
          default=lambda objects: objects["ConfigMap/carillon-catalog"]["data"]["types.yaml"], shown="an example"),
    Value("catalog.existingConfigMap", TEXT, "a ConfigMap with the files of a catalog, in place of `types`",
          default=""),
    Value("gateway.replicas", COUNT, "the number of gateways without autoscaling",
          default=lambda objects: find(objects, f"{SCALER}:spec.minReplicas")),
    Value("gateway.autoscaling.enabled", SWITCH, "lets a HorizontalPodAutoscaler set the number of gateways",
          default=True),
    Value("gateway.autoscaling.minReplicas", COUNT, "the minimum number of gateways",
          at=[f"{SCALER}:spec.minReplicas"]),
    Value("gateway.autoscaling.maxReplicas", COUNT, "the maximum number of gateways",
          at=[f"{SCALER}:spec.maxReplicas"]),
    Value("gateway.autoscaling.cpu", COUNT, "average CPU above which more gateways start, in percent of the request",
          at=[f"{SCALER}:spec.metrics.0.resource.target.averageUtilization"]),
    Value("gateway.autoscaling.memory", COUNT,
          "average memory above which more gateways start, in percent of the request",
          at=[f"{SCALER}:spec.metrics.1.resource.target.averageUtilization"]),
    *rollout("gateway", GATEWAY, "gateway"),
    *pods("gateway", GATEWAY, "a gateway"),
    Value("dispatcher.replicas", COUNT, "the number of dispatchers without KEDA",
          default=lambda objects: find(objects, f"{DISPATCHER}:spec.replicas")
          or find(objects, f"{KEDA}:spec.minReplicaCount")),
    *rollout("dispatcher", DISPATCHER, "dispatcher"),
    *pods("dispatcher", DISPATCHER, "a dispatcher"),
    Value("keda.enabled", SWITCH, "lets KEDA set the number of dispatchers",
          default=lambda objects: KEDA in objects),
    Value("keda.minReplicas", COUNT, "the minimum number of dispatchers; two, so that one may fail",
          at=[f"{KEDA}:spec.minReplicaCount"]),
    Value("keda.maxReplicas", COUNT, "the maximum number of dispatchers", at=[f"{KEDA}:spec.maxReplicaCount"]),
    Value("keda.fallbackReplicas", COUNT, "the number of dispatchers while Prometheus does not answer",
          at=[f"{KEDA}:spec.fallback.replicas"]),
    Value("keda.prometheus", NAME, "the Prometheus that scrapes the gateways",
          at=[f"{KEDA}:spec.triggers.{trigger}.metadata.serverAddress" for trigger in range(3)]),
    Value("migrate.enabled", SWITCH,
          "runs a job that migrates the database before the pods start; if off, the pods migrate it", default=True),
    *pods("migrate", MIGRATE, "the migration job"),
    Value("ingress.enabled", SWITCH, "makes an Ingress",
          default=lambda objects: INGRESS in objects),
    Value("ingress.className", TEXT, "the class of the Ingress; empty for the cluster's default",
          at=[f"{INGRESS}:spec.ingressClassName"]),
    Value("ingress.tlsSecret", TEXT, "the secret with the certificate of `host`; empty for an Ingress without TLS",
          at=[f"{INGRESS}:spec.tls.0.secretName"]),
    Value("ingress.annotations", STRINGS, "annotations of the Ingress, merged with the defaults for ingress-nginx",
          at=[f"{INGRESS}:metadata.annotations"], shown="see `values.yaml`"),
    Value("httpRoute.enabled", SWITCH, "makes an HTTPRoute, for the Gateway API",
          default=lambda objects: ROUTE in objects),
    Value("httpRoute.parentRefs", LIST, "the Gateways of the HTTPRoute",
          at=[f"{ROUTE}:spec.parentRefs"], shown="see `values.yaml`"),
    Value("httpRoute.sessionPersistence", MAP,
          "keeps a client's polling on one node; needs the API's experimental channel", default={}),
    Value("networkPolicy.enabled", SWITCH, "makes policies that limit connections to and from pods",
          default=lambda objects: "NetworkPolicy/carillon-gateway" in objects),
    Value("networkPolicy.extraEgress", LIST, "further egress rules of all pods, such as to a Redis on another port",
          default=[]),
    Value("podMonitor.enabled", SWITCH, "makes PodMonitors, for the Prometheus operator",
          default=lambda objects: "PodMonitor/carillon-gateway" in objects),
    Value("podMonitor.labels", STRINGS, "labels of the PodMonitors, by which your Prometheus selects them", default={}),
    Value("serviceAccount.create", SWITCH, "makes the service account; if off, `name` must exist", default=True),
    Value("serviceAccount.name", NAME, "the service account of all pods",
          at=["ServiceAccount/carillon:metadata.name"]),
    Value("serviceAccount.annotations", STRINGS, "annotations of the service account", default={}),
]
