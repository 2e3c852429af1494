# Carillon · build.py
# SPDX-License-Identifier: Apache-2.0
"""Makes the Helm chart in deploy/helm from deploy/kubernetes, and the table of its values in
docs/deploying.md. Needs kubectl and Debian's python3-yaml: /usr/bin/python3 -B build.py

The kustomize manifests are the source, because kubectl applies them unchanged and tests read them.
The chart is in the repository, so that Helm can install a checkout; a test fails if it is outdated.
"""

import json
import textwrap
from pathlib import Path

from manifests import EXTRAS, SIZES, kustomize
from templates import templates
from values import VALUES, image
from writing import entry, lines

ROOT = Path(__file__).resolve().parents[3]
CHART = Path("deploy/helm")
PAGE = Path("docs/deploying.md")
TABLE = "| value | default | meaning |"
MADE = "Made by deploy/kubernetes/chart/build.py, so do not edit it"


def comment(text, indent=0):
    """Returns lines of a YAML comment that fit in 100 columns."""
    pad = " " * indent + "# "
    return textwrap.wrap(text, 100, initial_indent=pad, subsequent_indent=pad)


def header(file, text):
    """Returns the first lines of a YAML file."""
    return [f"# Carillon · {file}", "# SPDX-License-Identifier: Apache-2.0", "#", *comment(text), ""]


def nest(pairs):
    """Returns a tree of mappings for pairs of a dotted name and a leaf."""
    tree = {}
    for name, leaf in pairs:
        *parents, last = name.split(".")
        folder = tree
        for parent in parents:
            folder = folder.setdefault(parent, {})
        folder[last] = leaf
    return tree


def plain_text(markdown):
    """Replaces links by their texts."""
    parts = markdown.split("](")
    return "".join(part.split(")", 1)[-1] if index else part for index, part in enumerate(parts)).replace("[", "")


def chart_yaml(version):
    """Returns Chart.yaml."""
    return "\n".join(header("Chart.yaml", f"{MADE}.") + lines({
        "apiVersion": "v2",
        "name": "carillon",
        "description": "A self-hosted notification system",
        "type": "application",
        "version": version,
        "appVersion": version,
        "kubeVersion": ">=1.23.0-0",
    })) + "\n"


def values_yaml(defaults):
    """Returns values.yaml, with the meaning of each value above it."""
    def write(tree, indent):
        for key, item in tree.items():
            if isinstance(item, dict):
                yield " " * indent + f"{key}:"
                yield from write(item, indent + 2)
            else:
                meaning = plain_text(item.meaning)
                yield from comment(f"{meaning[0].upper()}{meaning[1:]}.", indent)
                yield from entry(key, defaults[item.name], indent)
            if not indent:
                yield ""

    text = header("values.yaml", f"{MADE}: give your own values with --values or --set.")
    text += write(nest((value.name, value) for value in VALUES), 0)
    return "\n".join(text).rstrip() + "\n"


def size_yaml(size, objects, defaults):
    """Returns the values of a size that differ from the defaults."""
    found = [(value.name, value.of(objects)) for value in VALUES]
    tree = nest((name, value) for name, value in found if value is not None and value != defaults[name])
    # Helm merges maps with the defaults, so write only the members that differ.
    tree["settings"] = {
        key: text for key, text in tree["settings"].items() if defaults["settings"].get(key) != text
    }
    reasons = f"The reasons are in deploy/kubernetes/sizes/{size} and docs/fleet.md."
    text = header(f"values-{size}.yaml", f"{MADE}. {reasons}")
    return "\n".join(text + lines(tree)) + "\n"


def schema_json():
    """Returns values.schema.json, which refuses unknown values."""
    def close(tree):
        return {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                key: close(item) if isinstance(item, dict) else item.schema | {"description": plain_text(item.meaning)}
                for key, item in tree.items()
            },
        }

    schema = close(nest((value.name, value) for value in VALUES))
    # Helm passes `global` to subcharts.
    schema["properties"]["global"] = {"type": "object"}
    schema = {"$schema": "http://json-schema.org/draft-07/schema#"} | schema
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def table(defaults):
    """Returns the lines of the table of values."""
    rows = [TABLE, "| --- | --- | --- |"]
    for value in VALUES:
        default = defaults[value.name]
        shown = value.shown or ("–" if default in ("", [], {}) else f"`{json.dumps(default).strip(chr(34))}`")
        rows.append(f"| `{value.name}` | {shown} | {value.meaning} |")
    return rows


def page_with(rows):
    """Returns the page with these rows as its table of values."""
    text = (ROOT / PAGE).read_text(encoding="utf-8").split("\n")
    if text.count(TABLE) != 1:
        raise SystemExit(f"{PAGE} needs exactly one table that begins with {TABLE}")
    start = text.index(TABLE)
    end = next(index for index in range(start, len(text)) if not text[index].startswith("|"))
    return "\n".join(text[:start] + rows + text[end:])


def build():
    """Returns the texts of all generated files, by path."""
    plain = kustomize()
    everything = kustomize(resources=EXTRAS)
    defaults = {}
    for value in VALUES:
        default = value.of(plain)
        defaults[value.name] = value.of(everything) if default is None else default
    files = {
        CHART / "Chart.yaml": chart_yaml(image(plain)[1]),
        CHART / "values.yaml": values_yaml(defaults),
        CHART / "values.schema.json": schema_json(),
        PAGE: page_with(table(defaults)),
    }
    for size in SIZES:
        objects = kustomize(components=[f"sizes/{size}"])
        files[CHART / f"values-{size}.yaml"] = size_yaml(size, objects, defaults)
    for name, text in templates(everything).items():
        files[CHART / "templates" / name] = text
    return files


def main():
    """Writes the files that changed."""
    for path, text in build().items():
        file = ROOT / path
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            print(path)


if __name__ == "__main__":
    main()
