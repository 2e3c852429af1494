# Carillon · markup.py
# SPDX-License-Identifier: Apache-2.0
"""Builds HTML. Text is escaped unless it is `Markup`."""

from html import escape

VOID = frozenset(["br", "hr", "img", "input", "link", "meta", "wbr"])


class Markup(str):
    """HTML that needs no escaping."""


def join(*children):
    """Returns the children as one piece of HTML; `None` adds nothing, and lists are flattened."""
    parts = []
    for child in children:
        if isinstance(child, Markup):
            parts.append(child)
        elif isinstance(child, (list, tuple)):
            parts.append(join(*child))
        elif child is not None:
            parts.append(escape(str(child), quote=False))
    return Markup("".join(parts))


def attributes(values):
    """Returns attributes as they stand in a tag. `None` and False leave one out."""
    written = []
    for name, value in values:
        if value is None or value is False:
            continue
        written.append(f" {name}" if value is True else f' {name}="{escape(str(value))}"')
    return "".join(written)


def tag(name, /, *children, **values):
    """Returns an element. A trailing underscore and inner ones of a keyword become hyphens."""
    named = [(key.rstrip("_").replace("_", "-"), value) for key, value in values.items()]
    opening = f"<{name}{attributes(named)}>"
    if name in VOID:
        return Markup(opening)
    return Markup(f"{opening}{join(*children)}</{name}>")
