# Carillon · test_chart.py
# SPDX-License-Identifier: Apache-2.0
"""Tests of the chart, which Helm itself renders. `deploy/test` runs them, with the package
helm-python-sdk of Tests/Programs/requirements.txt:

.build/clients/bin/python -B -m unittest discover deploy/kubernetes/chart
"""

import copy
import re
import tempfile
import unittest

import helm_python as helm
import yaml

import build
from manifests import EXTRAS, SIZES, find, identify, kustomize
from templates import templates
from values import VALUES
from writing import lines

CHART = build.ROOT / build.CHART
SWITCHES = {
    "catalog.existingConfigMap": {"ConfigMap/carillon-catalog"},
    "gateway.autoscaling.enabled": {"HorizontalPodAutoscaler/carillon-gateway"},
    "httpRoute.enabled": {"HTTPRoute/carillon"},
    "ingress.enabled": {"Ingress/carillon"},
    "keda.enabled": {"ScaledObject/carillon-dispatcher"},
    "migrate.enabled": {
        "ConfigMap/carillon-migrate", "Job/carillon-migrate", "NetworkPolicy/carillon-migrate",
        "ServiceAccount/carillon-migrate",
    },
    "networkPolicy.enabled": {
        "NetworkPolicy/carillon-dispatcher", "NetworkPolicy/carillon-gateway", "NetworkPolicy/carillon-migrate",
    },
    "podMonitor.enabled": {"PodMonitor/carillon-dispatcher", "PodMonitor/carillon-gateway"},
    "serviceAccount.create": {"ServiceAccount/carillon", "ServiceAccount/carillon-migrate"},
}
FULL = {switch: True for switch in SWITCHES if switch != "catalog.existingConfigMap"}
BARE = {switch: False for switch in FULL}


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
    """Refuses a mapping that has a key twice."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key) for key, _ in node.value]
        if len(set(keys)) != len(keys):
            raise yaml.YAMLError(f"a key is there twice: {keys}")
        return super().construct_mapping(node, deep)


def write(values):
    """Returns the manifests that Helm renders with these values."""
    with helm.Chart.load(CHART) as chart:
        files = chart.render(values, name="carillon", namespace="carillon")
    return [text for name, text in files.items() if not name.endswith(".txt")]


def render(pairs=None, values=None):
    """Returns the objects of the chart with these values: by dotted names, or a whole mapping."""
    texts = write(values or build.nest((pairs or {}).items()))
    return identify([item for text in texts for item in yaml.load_all(text, Loader) if item])


def size_values(size):
    """Returns the values of a size."""
    return yaml.safe_load((CHART / f"values-{size}.yaml").read_text(encoding="utf-8"))


class ChartTests(unittest.TestCase):
    """The chart and the manifests."""
    maxDiff = 4_000

    def without_helm(self, objects):
        """Returns the objects as in the manifests: without Helm's labels, annotations and hooks."""
        objects = copy.deepcopy(objects)
        for item in objects.values():
            pod = item.get("spec", {}).get("template", {}).get("metadata", {})
            for metadata in (item["metadata"], pod):
                for part in ("labels", "annotations"):
                    metadata[part] = {
                        key: text for key, text in metadata.get(part, {}).items()
                        if not key.startswith(("helm.sh/", "checksum/"))
                        and key not in ("app.kubernetes.io/instance", "app.kubernetes.io/managed-by")
                    }
                    if not metadata[part]:
                        del metadata[part]
        for kind, original in [("ServiceAccount", "carillon"), ("ConfigMap", "carillon-settings")]:
            hook = objects.pop(f"{kind}/carillon-migrate")
            hook["metadata"]["name"] = original
            self.assertEqual(hook, objects[f"{kind}/{original}"])
        pod = find(objects, "Job/carillon-migrate:spec.template.spec")
        pod["serviceAccountName"] = "carillon"
        pod["containers"][0]["envFrom"][0]["configMapRef"]["name"] = "carillon-settings"
        return objects

    def assert_same(self, rendered, manifests):
        """Compares object by object."""
        rendered = self.without_helm(rendered)
        self.assertEqual(sorted(rendered), sorted(manifests))
        for name, item in manifests.items():
            self.assertEqual(rendered[name], item, name)

    def test_is_what_the_manifests_give(self):
        files = build.build()
        for path, text in files.items():
            kept = (build.ROOT / path).read_text(encoding="utf-8") if (build.ROOT / path).exists() else ""
            self.assertEqual(kept, text, f"{path} is stale; run /usr/bin/python3 -B deploy/kubernetes/chart/build.py")
        made = {path.name for path in files if path.parent.name == "templates"}
        kept = {path.name for path in (CHART / "templates").glob("*.yaml")}
        self.assertEqual(kept, made)

    def test_default_values_equal_the_manifests(self):
        self.assert_same(render(), kustomize())

    def test_each_size_equals_its_component(self):
        for size in SIZES:
            with self.subTest(size):
                self.assert_same(render(values=size_values(size)), kustomize(components=[f"sizes/{size}"]))

    def test_all_switches_on_equal_all_folders(self):
        manifests = kustomize(resources=EXTRAS)
        # The manifests ask you to remove the line.
        del manifests["Deployment/carillon-dispatcher"]["spec"]["replicas"]
        self.assert_same(render(FULL), manifests)

    def test_each_switch_adds_and_removes_its_objects_only(self):
        for switch, names in SWITCHES.items():
            with self.subTest(switch):
                if switch in FULL:
                    more, fewer = render(FULL), render(FULL | {switch: False})
                    self.assertLessEqual(set(render(BARE | {switch: True})) - set(render(BARE)), names)
                else:
                    more, fewer = render(FULL), render(FULL | {switch: "types"})
                self.assertEqual(set(more) - set(fewer), names)
                self.assertLessEqual(set(fewer), set(more))
        for item in render(BARE).values():
            self.assertTrue(item["apiVersion"] and item["kind"])

    def test_every_value_changes_something(self):
        samples = {"boolean": True, "integer": 7, "object": {"a": "b"}, "array": [{"name": "a"}]}
        defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
        for value in VALUES:
            kinds = value.schema["type"]
            sample = samples.get(kinds if isinstance(kinds, str) else kinds[0], "changed")
            sample = {"image.digest": f"sha256:{'0' * 64}", "image.pullPolicy": "Always"}.get(value.name, sample)
            default = defaults
            for key in value.name.split("."):
                default = default[key]
            sample = not default if default in (True, False) and kinds == "boolean" else sample
            with self.subTest(value.name):
                bases = [(build.nest(base.items()), build.nest((base | {value.name: sample}).items()))
                         for base in (FULL, BARE)]
                self.assertTrue(any(write(one) != write(other) for one, other in bases))

    def test_values_arrive(self):
        objects = render({
            "host": "a.example.com", "image.digest": f"sha256:{'1' * 64}", "image.pullSecrets": [{"name": "registry"}],
            "settings": {"LOG_LEVEL": "debug", "INBOX_DAYS": "30"}, "existingSecret": "mine",
            "gateway.extraEnv": [{"name": "A", "value": "1"}], "gateway.autoscaling.enabled": False,
            "gateway.replicas": 5, "dispatcher.tolerations": [{"key": "b", "operator": "Exists"}],
            "migrate.nodeSelector": {"c": "d"}, "networkPolicy.extraEgress": [{"ports": [{"port": 7000}]}],
            "serviceAccount.annotations": {"e": "f"}, "ingress.annotations": {"g": "h"}, "ingress.tlsSecret": "",
        })
        settings = objects["ConfigMap/carillon-settings"]["data"]
        self.assertEqual(settings["PUBLIC_URL"], "https://a.example.com")
        self.assertEqual((settings["LOG_LEVEL"], settings["INBOX_DAYS"]), ("debug", "30"))
        self.assertEqual(settings["LOG_FORMAT"], "json")
        for name in ("Deployment/carillon-gateway", "Deployment/carillon-dispatcher", "Job/carillon-migrate"):
            pod = find(objects, f"{name}:spec.template.spec")
            [container] = pod["containers"]
            self.assertEqual(container["image"], f"registry.example.com/carillon@sha256:{'1' * 64}")
            self.assertEqual(container["envFrom"][1], {"secretRef": {"name": "mine"}})
            self.assertEqual(pod["imagePullSecrets"], [{"name": "registry"}])
        gateway = objects["Deployment/carillon-gateway"]["spec"]
        self.assertEqual(gateway["replicas"], 5)
        self.assertEqual(gateway["template"]["spec"]["containers"][0]["env"], [{"name": "A", "value": "1"}])
        dispatcher = find(objects, "Deployment/carillon-dispatcher:spec.template.spec")
        self.assertEqual(dispatcher["tolerations"], [{"key": "b", "operator": "Exists"}])
        self.assertEqual(find(objects, "Job/carillon-migrate:spec.template.spec.nodeSelector"), {"c": "d"})
        for name in ("gateway", "dispatcher", "migrate"):
            self.assertIn({"ports": [{"port": 7000}]}, find(objects, f"NetworkPolicy/carillon-{name}:spec.egress"))
        for name in ("carillon", "carillon-migrate"):
            self.assertEqual(find(objects, f"ServiceAccount/{name}:metadata")["annotations"]["e"], "f")
        ingress = objects["Ingress/carillon"]
        self.assertEqual(ingress["spec"]["rules"][0]["host"], "a.example.com")
        self.assertNotIn("tls", ingress["spec"])
        self.assertEqual(ingress["metadata"]["annotations"]["g"], "h")
        self.assertIn("nginx.ingress.kubernetes.io/affinity", ingress["metadata"]["annotations"])

    def test_every_pod_has_the_keys_and_only_its_own_variables(self):
        objects = render({"providerKeysSecret": "mine"})
        for name in ("Deployment/carillon-gateway", "Deployment/carillon-dispatcher", "Job/carillon-migrate"):
            with self.subTest(name):
                pod = find(objects, f"{name}:spec.template.spec")
                [volume] = [volume for volume in pod["volumes"] if volume["name"] == "keys"]
                self.assertEqual((volume["secret"]["secretName"], volume["secret"]["optional"]), ("mine", True))
                mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
                self.assertEqual(mounts["keys"], "/etc/carillon/keys")
                # A Service named `gateway` would set GATEWAY_PORT.
                self.assertIs(pod["enableServiceLinks"], False)

    def test_own_egress_rules_keep_the_ports_of_the_stores(self):
        objects = render(values=size_values("one") | {"networkPolicy": {"extraEgress": [{"ports": [{"port": 7000}]}]}})
        for name in ("gateway", "dispatcher", "migrate"):
            rules = find(objects, f"NetworkPolicy/carillon-{name}:spec.egress")
            ports = {port["port"] for rule in rules if "to" not in rule for port in rule["ports"]}
            self.assertEqual(ports, {5432, 6379, 7000, 26379})

    def test_a_removed_setting_is_gone_and_an_own_public_url_stays(self):
        data = render({"settings": {"ALLOWED_ORIGINS": None, "PUBLIC_URL": "https://b"}})["ConfigMap/carillon-settings"]
        self.assertNotIn("ALLOWED_ORIGINS", data["data"])
        self.assertEqual(data["data"]["PUBLIC_URL"], "https://b")

    def test_new_settings_and_types_roll_the_pods(self):
        def annotations(pairs):
            return find(render(pairs), "Deployment/carillon-gateway:spec.template.metadata.annotations")

        default = annotations({})
        changed = annotations({"settings": {"LOG_LEVEL": "debug"}})
        self.assertNotEqual(changed["checksum/settings"], default["checksum/settings"])
        self.assertEqual(changed["checksum/catalog"], default["checksum/catalog"])
        changed = annotations({"catalog.types": "types: {}"})
        self.assertNotEqual(changed["checksum/catalog"], default["checksum/catalog"])
        self.assertNotIn("checksum/catalog", annotations({"catalog.existingConfigMap": "types"}))

    def test_the_types_are_text_and_no_template(self):
        text = "  # {{ .Values.host }}\n  types:\n    a: {title: 'Hello {{vars.name}}'}\n\n"
        self.assertEqual(
            render({"catalog.types": text})["ConfigMap/carillon-catalog"]["data"], {"types.yaml": text})

    def test_the_migration_runs_before_the_rest_exists(self):
        objects = render({"serviceAccount.name": "own"})
        pod = find(objects, "Job/carillon-migrate:spec.template.spec")
        self.assertEqual(pod["serviceAccountName"], "carillon-migrate")
        needed = ["Job", "ConfigMap", "ServiceAccount", "NetworkPolicy"]
        for kind in needed:
            annotations = objects[f"{kind}/carillon-migrate"]["metadata"]["annotations"]
            self.assertEqual(annotations["helm.sh/hook"], "pre-install,pre-upgrade")
            weight = annotations.get("helm.sh/hook-weight", "0")
            self.assertEqual(weight, "0" if kind == "Job" else "-5")
        hooks = [name for name, item in objects.items() if "helm.sh/hook" in item["metadata"].get("annotations", {})]
        self.assertEqual(len(hooks), len(needed))
        existing = render({"serviceAccount.name": "own", "serviceAccount.create": False})
        self.assertEqual(find(existing, "Job/carillon-migrate:spec.template.spec.serviceAccountName"), "own")

    def test_the_schema_refuses_wrong_values(self):
        for wrong in (
            {"gatway.replicas": 2}, {"gateway.replicas": 0}, {"gateway.replicas": "2"},
            {"settings": {"INBOX_DAYS": 30}}, {"image.digest": "sha256:1"}, {"image.pullPolicy": "Sometimes"}, {"catalog.types": {"a": {}}},
            {"ingress.enabled": "yes"}, {"existingSecret": ""}, {"gateway.maxSurge": "many"},
            {"image.pullSecrets": ["registry"]},
        ):
            with self.subTest(wrong), self.assertRaises(helm.HelmValuesError):
                render(wrong)
        render({"gateway.maxSurge": "25%", "global": {"a": 1}})

    def test_tls_of_the_pods_is_refused(self):
        with self.assertRaisesRegex(helm.HelmRenderError, "let TLS end at the Ingress"):
            render({"settings": {"GATEWAY_TLS_CERT": "/etc/carillon/keys/tls.crt"}})
        render({"settings": {"GATEWAY_TLS_CERT": ""}})

    def test_other_ports_are_refused(self):
        for name in ("GATEWAY_PORT", "METRICS_PORT"):
            with self.subTest(name):
                with self.assertRaisesRegex(helm.HelmRenderError, f"settings.{name}: the ports are fixed"):
                    render({"settings": {name: "9000"}})
                render({"settings": {name: ""}})

    def test_the_example_of_the_page_renders(self):
        page = (build.ROOT / build.PAGE).read_text(encoding="utf-8")
        example = re.search(r"```yaml\n(.*?)```", page.split("### Helm\n")[1], re.DOTALL)
        objects = render(values=yaml.safe_load(example[1]))
        self.assertIn("HTTPRoute/carillon", objects)
        self.assertNotIn("Ingress/carillon", objects)

    def test_helm_lint_is_content(self):
        for values in [None, build.nest(FULL.items()), build.nest(BARE.items()), *map(size_values, SIZES)]:
            report = helm.lint(CHART, values, strict=True)
            self.assertEqual(report["errors"], [])
            self.assertEqual([found["error"] for found in report["messages"]], ["icon is recommended"])

    def test_a_package_has_the_sizes(self):
        with tempfile.TemporaryDirectory() as folder:
            with helm.Chart.load(helm.package(CHART, destination=folder)) as chart:
                names = {file["name"] for file in chart.files}
        self.assertEqual({f"values-{size}.yaml" for size in SIZES}, {name for name in names if "values-" in name})


class GeneratorTests(unittest.TestCase):
    """The generator refuses manifests with unknown parts."""

    def test_a_new_object_needs_a_template(self):
        objects = kustomize(resources=EXTRAS)
        objects["Service/new"] = copy.deepcopy(objects["Service/carillon-gateway"])
        with self.assertRaisesRegex(SystemExit, "Service/new"):
            templates(objects)

    def test_a_value_needs_its_place(self):
        objects = kustomize(resources=EXTRAS)
        del objects["Ingress/carillon"]["spec"]["tls"]
        with self.assertRaisesRegex(SystemExit, "Ingress/carillon:spec.tls"):
            templates(objects)

    def test_written_yaml_reads_back(self):
        value = {
            "a": "2", "b": [{"c": [], "d": {}}, {"e": [1, "x: y"]}], "f": "line\n\n  more\n", "g": None, "on": "off",
        }
        self.assertEqual(yaml.safe_load("\n".join(lines(value)) + "\n"), value)


if __name__ == "__main__":
    unittest.main()
