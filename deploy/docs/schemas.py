# Carillon · schemas.py
# SPDX-License-Identifier: Apache-2.0
"""Shows JSON schemas as lists of fields, with references resolved."""

import json
import re
from html import escape

from markup import Markup, join, tag

# Objects nested deeper than this are links to their schema, or plain.
DEEPEST = 5
# Hide greater limits, which only state that there is one.
TELLING = 1_000_000_000
# The keywords that this file shows.
KEYWORDS = frozenset([
    "$ref", "type", "properties", "required", "additionalProperties", "minProperties", "maxProperties", "items",
    "additionalItems", "minItems", "maxItems", "enum", "const", "allOf", "anyOf", "oneOf", "not", "minLength",
    "maxLength", "pattern", "format", "minimum", "maximum", "default", "description", "contentMediaType",
])


def prose(text, page, resolver):
    """Returns a description as HTML: paragraphs, `code` and links to pages that it names."""
    paragraphs = []
    for part in re.split(r"\n\s*\n", text.strip()):
        html = resolver.mention(page, escape(" ".join(part.split()), quote=False))
        paragraphs.append(tag("p", Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", html))))
    return join(paragraphs)


def code_words(text):
    """Returns a title as HTML, with `code`."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False)))


class Schemas:
    """The schemas of one document, shown on one page.

    `address` gives the link to a named schema, or None if schemas have no page.
    """

    def __init__(self, document, page, resolver, address=lambda name: None):
        self.document = document
        self.page = page
        self.resolver = resolver
        self.address = address

    # References.

    def at(self, pointer):
        """Returns the target of a local reference such as `#/components/schemas/Job`."""
        value = self.document
        for part in pointer.removeprefix("#/").split("/"):
            value = value[part.replace("~1", "/").replace("~0", "~")]
        return value

    def resolve(self, schema):
        """Returns a schema with its references resolved, and the name of the last one."""
        name = None
        while isinstance(schema, dict) and "$ref" in schema:
            pointer = schema["$ref"]
            if re.fullmatch(r"#/components/schemas/[^/]+", pointer):
                name = pointer.rsplit("/", 1)[-1]
            rest = {key: value for key, value in schema.items() if key != "$ref"}
            schema = {**self.at(pointer), **rest}
        if not isinstance(schema, dict):
            return {}, name
        for keyword in schema:
            if keyword not in KEYWORDS and not keyword.startswith("x-"):
                self.resolver.faults.add(self.page.place, f"schemas.py does not show the keyword {keyword}")
        if "anyOf" in schema:
            schema = {**schema, "oneOf": schema["anyOf"]}
        return self.merged(schema) if "allOf" in schema else schema, name

    def merged(self, schema):
        """Returns one object for a schema and all parts of its `allOf`."""
        whole = {key: value for key, value in schema.items() if key != "allOf"}
        properties, required = dict(whole.get("properties", {})), list(whole.get("required", []))
        for part in schema["allOf"]:
            part, _ = self.resolve(part)
            properties.update(part.get("properties", {}))
            required += part.get("required", [])
        return {**whole, "type": "object", "properties": properties, "required": required}

    # Types and limits.

    def type_name(self, schema):
        """Returns a schema's type in words."""
        schema, name = self.resolve(schema)
        if "const" in schema:
            return json.dumps(schema["const"], ensure_ascii=False)
        if "oneOf" in schema and "type" not in schema:
            if self.has_structured_forms(schema):
                return "one of several forms"
            return " or ".join(map(self.type_name, schema["oneOf"]))
        kinds = schema.get("type", [])
        kinds = [kinds] if isinstance(kinds, str) else list(kinds)
        words = [self.kind_name(kind, schema, name) for kind in kinds if kind != "null"]
        if "null" in kinds:
            words.append("null")
        return " or ".join(words) or "any JSON"

    def has_structured_forms(self, schema):
        """Whether one of a schema's forms is an object, or an array of objects."""
        forms = [self.resolve(form)[0] for form in schema["oneOf"]]
        items = [self.resolve(form["items"])[0] for form in forms if isinstance(form.get("items"), dict)]
        return any("properties" in each for each in forms + items)

    def kind_name(self, kind, schema, name):
        if kind == "array" and isinstance(schema.get("items"), dict) and schema["items"]:
            return f"array of {self.type_name(schema['items'])}"
        if kind == "string" and schema.get("format") == "uuid":
            return "UUID"
        if kind == "string" and schema.get("format") == "date-time":
            return "RFC 3339 time"
        return name if kind == "object" and name else kind

    def limits(self, schema):
        """Returns the limits of a value in words, as HTML."""
        schema, _ = self.resolve(schema)
        found = []
        if "enum" in schema:
            values = [tag("code", json_text(value)) for value in schema["enum"]]
            found.append(join("one of ", Markup(", ".join(values))))
        if "enum" in schema.get("not", {}):
            values = [tag("code", json_text(value)) for value in schema["not"]["enum"]]
            found.append(join("none of ", Markup(", ".join(values))))
        found += [
            span(schema.get("minLength"), schema.get("maxLength"), "characters"),
            span(schema.get("minimum"), schema.get("maximum"), ""),
            span(schema.get("minItems"), schema.get("maxItems"), "items"),
            span(schema.get("minProperties"), schema.get("maxProperties"), "members"),
        ]
        if "pattern" in schema:
            found.append(join("matches ", tag("code", schema["pattern"])))
        if "default" in schema:
            found.append(join("default ", tag("code", json_text(schema["default"]))))
        found = [limit for limit in found if limit]
        return tag("p", Markup("; ".join(join(limit) for limit in found)), class_="limits") if found else None

    # Lists of fields.

    def fields(self, schema, depth=0, seen=()):
        """Returns the fields of a schema; None for a plain value."""
        schema, name = self.resolve(schema)
        if depth > DEEPEST or (name and name in seen):
            return None
        seen = (*seen, name) if name else seen
        if schema.get("properties"):
            return self.object_fields(schema, depth, seen)
        if isinstance(schema.get("additionalProperties"), dict):
            return self.listed([self.row("any other member", schema["additionalProperties"], False, depth, seen)])
        if isinstance(schema.get("items"), list):
            rows = [self.row(f"{place}.", item, False, depth, seen) for place, item in enumerate(schema["items"])]
            if isinstance(schema.get("additionalItems"), dict):
                rows.append(self.row("more", schema["additionalItems"], False, depth, seen))
            return self.listed(rows)
        if isinstance(schema.get("items"), dict):
            return self.fields(schema["items"], depth, seen)
        if "oneOf" in schema and self.has_structured_forms(schema):
            return self.choices(schema["oneOf"], depth, seen)
        return None

    def object_fields(self, schema, depth, seen):
        required = schema.get("required", [])
        rows = [
            self.row(key, value, key in required, depth, seen) for key, value in schema["properties"].items()
        ]
        if isinstance(schema.get("additionalProperties"), dict):
            rows.append(self.row("any other member", schema["additionalProperties"], False, depth, seen))
        alternatives = [each.get("required", []) for each in schema.get("oneOf", [])]
        names = [tag("code", names[0]) for names in alternatives if len(names) == 1]
        note = tag("p", "Exactly one of ", Markup(", ".join(names)), ".", class_="limits") if names else None
        return join(note, self.listed(rows))

    def choices(self, forms, depth, seen):
        """Returns the forms that a value may have."""
        shown = []
        for form in forms:
            inner = self.fields(form, depth + 1, seen)
            resolved, _ = self.resolve(form)
            name = self.type_name(form)
            label = name if name != "object" else join("with ", self.first_member(resolved))
            about = prose(resolved["description"], self.page, self.resolver) if "description" in resolved else None
            shown.append(tag("li", tag("p", label, class_="form"), about, inner or self.limits(form)))
        return tag("ul", shown, class_="forms")

    def first_member(self, schema):
        names = schema.get("required") or list(schema.get("properties", {}))
        return tag("code", names[0]) if names else "any members"

    def listed(self, rows):
        return tag("dl", rows, class_="fields")

    def row(self, key, value, is_required, depth, seen):
        """Returns a field with its type, description, limits and inner fields."""
        schema, name = self.resolve(value)
        is_place = key.endswith(".") or key in ("more", "any other member")
        term = tag(
            "dt",
            tag("span", key, class_="place") if is_place else tag("code", key), " ",
            tag("span", self.type_name(value), class_="type"), " ",
            tag("span", "required", class_="required") if is_required else None,
        )
        description = schema.get("description")
        inner = self.fields(value, depth + 1, seen)
        details = [
            prose(description, self.page, self.resolver) if description else None,
            self.limits(value), self.folded(inner, name, value),
        ]
        return tag("div", term, tag("dd", details) if any(details) else tag("dd"), class_="field")

    def folded(self, inner, name, value):
        """Returns inner fields that open on demand; a link instead where the fields are above."""
        item, item_name = self.resolve(self.resolve(value)[0].get("items", {})) if not name else ({}, name)
        href = self.address(item_name) if item_name else None
        if inner is None:
            return tag("p", tag("a", f"Members of {item_name}", href=href)) if href else None
        words = f"Members of {item_name}" if item_name else "Members"
        return tag("details", tag("summary", words), inner, data_quiet=bool(href))


def span(least, most, unit):
    """Returns a range in words; None if it says nothing."""
    most = None if most is not None and most > TELLING else most
    if least == 0 and (unit or most is None):
        least = None
    if least is None and most is None:
        return None
    if most is None:
        text = f"at least {least:,}"
    elif least is None:
        text = f"up to {most:,}"
    elif least == most:
        text, unit = f"{least:,}", unit if least != 1 else unit.removesuffix("s")
    else:
        text = f"{least:,} to {most:,}"
    return f"{text} {unit}".strip()


def json_text(value):
    """Returns a plain value as JSON writes it; texts without quotes unless they are empty."""
    if isinstance(value, str):
        return value or '""'
    return {None: "null", True: "true", False: "false"}.get(value, str(value))
