# Carillon · manifests.py
# SPDX-License-Identifier: Apache-2.0
"""The objects that `kubectl kustomize` makes from deploy/kubernetes."""

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import yaml

MANIFESTS = Path(__file__).resolve().parent.parent
SIZES = ["one", "cluster", "fleet"]
# The folders that deploy/kubernetes does not include.
EXTRAS = ["httproute", "keda", "monitoring"]


def identify(objects):
    """Returns objects by kind and name, such as `Service/carillon-gateway`."""
    named = {f"{item['kind']}/{item['metadata']['name']}": item for item in objects}
    if len(named) != len(objects):
        raise SystemExit("two objects have the same kind and name")
    return named


def arrange(value):
    """Returns a value with sorted keys, because their order depends on the version of kubectl."""
    if isinstance(value, list):
        return [arrange(item) for item in value]
    if not isinstance(value, dict):
        return value
    first = ["apiVersion", "kind", "name"]
    keys = sorted(value, key=lambda key: (first.index(key) if key in first else len(first), key))
    return {key: arrange(value[key]) for key in keys}


def kustomize(components=(), resources=()):
    """Returns the objects of deploy/kubernetes with these components and resources.

    The name of the catalog's ConfigMap comes without the hash that kustomize appends.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "kubernetes")
        shutil.copytree(MANIFESTS, copy)
        file = copy / "kustomization.yaml"
        settings = yaml.safe_load(file.read_text(encoding="utf-8"))
        settings["resources"] += resources
        settings["components"] = list(components)
        file.write_text(yaml.safe_dump(settings), encoding="utf-8")
        done = subprocess.run(["kubectl", "kustomize", copy], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"kubectl kustomize: {done.stderr}")
    text = re.sub(r"\bcarillon-catalog-[a-z0-9]{10}\b", "carillon-catalog", done.stdout)
    return identify([arrange(item) for item in yaml.safe_load_all(text)])


def find(objects, place):
    """Returns the value at a place such as `Ingress/carillon:spec.rules.0.host`, or None."""
    name, path = place.split(":")
    value = objects.get(name)
    for key in path.split("."):
        if isinstance(value, list):
            value = value[int(key)] if int(key) < len(value) else None
        else:
            value = (value or {}).get(key)
    return value


def put(objects, place, value):
    """Replaces the value at a place, which must exist."""
    if find(objects, place) is None:
        raise SystemExit(f"deploy/kubernetes has nothing at {place}")
    name, path = place.split(":")
    *parents, last = path.split(".")
    parent = objects[name]
    for key in parents:
        parent = parent[int(key) if isinstance(parent, list) else key]
    parent[int(last) if isinstance(parent, list) else last] = value
