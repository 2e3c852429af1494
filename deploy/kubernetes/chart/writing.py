# Carillon · writing.py
# SPDX-License-Identifier: Apache-2.0
"""Writes YAML with Helm template expressions."""

from dataclasses import dataclass
from typing import Any

import yaml


@dataclass(frozen=True)
class Expression:
    """A scalar that a template computes."""
    text: str


@dataclass(frozen=True)
class Block:
    """A mapping or list that a template writes. `yields_text` if the expression gives YAML."""
    text: str
    yields_text: bool = False


@dataclass(frozen=True)
class With:
    """A mapping or list from a value; its key is absent if the value is empty."""
    text: str


@dataclass(frozen=True)
class If:
    """A value whose key is absent unless the condition holds."""
    condition: str
    value: Any


@dataclass(frozen=True)
class More:
    """Further members of a mapping (as a key) or a list (as an item), from an expression."""
    text: str
    yields_text: bool = False


def scalar(value):
    """Returns a scalar as YAML on one line."""
    if isinstance(value, Expression):
        return f"{{{{ {value.text} }}}}"
    text = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    return text.removesuffix("...\n").strip()


def nested(value, indent):
    """Returns an expression that writes YAML with an indent, on a new line."""
    text = value.text if value.yields_text else f"toYaml {value.text}"
    return f"{{{{- {text} | nindent {indent} }}}}"


def more(value, indent):
    """Returns the lines that add members to a mapping or a list."""
    pad = " " * indent
    if value.yields_text:
        return [pad + nested(value, indent)]
    return [
        f"{pad}{{{{- with {value.text} }}}}", f"{pad}{{{{- toYaml . | nindent {indent} }}}}",
        f"{pad}{{{{- end }}}}",
    ]


def entry(key, value, indent):
    """Returns the lines of a member of a mapping."""
    pad = " " * indent
    if isinstance(value, If):
        return [f"{pad}{{{{- if {value.condition} }}}}", *entry(key, value.value, indent), f"{pad}{{{{- end }}}}"]
    if isinstance(value, With):
        return [
            f"{pad}{{{{- with {value.text} }}}}", f"{pad}{key}: {nested(Block('.'), indent + 2)}",
            f"{pad}{{{{- end }}}}",
        ]
    if isinstance(value, Block):
        return [f"{pad}{key}: {nested(value, indent + 2)}"]
    if isinstance(value, (dict, list)) and value:
        return [f"{pad}{key}:", *lines(value, indent + 2)]
    if isinstance(value, str) and "\n" in value:
        return [f"{pad}{key}: |", *(f"{pad}  {line}".rstrip() for line in value.splitlines())]
    return [f"{pad}{key}: {scalar(value)}"]


def lines(value, indent=0):
    """Returns the lines of a mapping or list."""
    result = []
    for item in value:
        if isinstance(item, More):
            result += more(item, indent)
        elif isinstance(value, dict):
            result += entry(scalar(item), value[item], indent)
        elif isinstance(item, (dict, list)):
            first, *rest = lines(item, indent + 2)
            if "{{- " in first and ": " not in first.split("{{-")[0]:
                raise SystemExit(f"a list's item cannot begin with {first.strip()}")
            result += [f"{' ' * indent}- {first.lstrip()}", *rest]
        else:
            result.append(f"{' ' * indent}- {scalar(item)}")
    return result
