# Carillon · asyncapi.py
# SPDX-License-Identifier: Apache-2.0
"""Checks an AsyncAPI 3.0 document: its structure, its references and its examples."""

from jsonschema import Draft7Validator
from jsonschema.exceptions import SchemaError

from schemas import KEYWORDS

# Kinds of values. A tuple is a container and the kind of its items; other names are keys of
# `OBJECTS`.
TEXT, FLAG, ANY, SCHEMA, REFERENCE = "text", "flag", "any", "schema", "reference"


def map_of(kind):
    return ("map", kind)


def list_of(kind):
    return ("list", kind)


# For each object of the specification: its required members, and the kind of every member.
OBJECTS = {
    "document": (["asyncapi", "info"], {
        "asyncapi": TEXT, "id": TEXT, "info": "info", "defaultContentType": TEXT, "servers": map_of("server"),
        "channels": map_of("channel"), "operations": map_of("operation"), "components": "components"}),
    "info": (["title", "version"], {
        "title": TEXT, "version": TEXT, "description": TEXT, "termsOfService": TEXT, "contact": ANY,
        "license": "license", "tags": list_of("tag"), "externalDocs": "docs"}),
    "license": (["name"], {"name": TEXT, "url": TEXT}),
    "tag": (["name"], {"name": TEXT, "description": TEXT, "externalDocs": "docs"}),
    "docs": (["url"], {"url": TEXT, "description": TEXT}),
    "server": (["host", "protocol"], {
        "host": TEXT, "protocol": TEXT, "protocolVersion": TEXT, "pathname": TEXT, "description": TEXT, "title": TEXT,
        "summary": TEXT, "variables": ANY, "security": list_of(REFERENCE), "tags": list_of("tag"),
        "externalDocs": "docs", "bindings": ANY}),
    "channel": ([], {
        "address": ANY, "messages": map_of("message"), "title": TEXT, "summary": TEXT, "description": TEXT,
        "servers": list_of(REFERENCE), "parameters": map_of("parameter"), "tags": list_of("tag"),
        "externalDocs": "docs", "bindings": "channel bindings"}),
    "channel bindings": ([], {"ws": "ws binding"}),
    "ws binding": ([], {"method": TEXT, "query": SCHEMA, "headers": SCHEMA, "bindingVersion": TEXT}),
    "parameter": ([], {"enum": list_of(TEXT), "default": TEXT, "description": TEXT, "examples": list_of(TEXT),
                       "location": TEXT}),
    "operation": (["action", "channel"], {
        "action": TEXT, "channel": REFERENCE, "title": TEXT, "summary": TEXT, "description": TEXT,
        "security": list_of(REFERENCE), "tags": list_of("tag"), "externalDocs": "docs",
        "bindings": "operation bindings", "messages": list_of(REFERENCE), "reply": "reply"}),
    "operation bindings": ([], {"http": "http binding"}),
    "http binding": ([], {"method": TEXT, "query": SCHEMA, "bindingVersion": TEXT}),
    "reply": ([], {"address": ANY, "channel": REFERENCE, "messages": list_of(REFERENCE)}),
    "message": ([], {
        "headers": SCHEMA, "payload": SCHEMA, "correlationId": ANY, "contentType": TEXT, "name": TEXT, "title": TEXT,
        "summary": TEXT, "description": TEXT, "tags": list_of("tag"), "externalDocs": "docs", "bindings": ANY,
        "examples": list_of("example")}),
    "example": ([], {"headers": ANY, "payload": ANY, "name": TEXT, "summary": TEXT}),
    "components": ([], {"messages": map_of("message"), "schemas": map_of(SCHEMA),
                        "securitySchemes": map_of("security scheme")}),
    "security scheme": (["type"], {
        "type": TEXT, "description": TEXT, "name": TEXT, "in": TEXT, "scheme": TEXT, "bearerFormat": TEXT}),
}


class Checker:
    """Checks one document and reports its faults."""

    def __init__(self, document, place, faults):
        self.document = document
        self.place = place
        self.faults = faults

    def check(self):
        before = len(self.faults.found)
        self.value(self.document, "document", "")
        if not str(self.document.get("asyncapi", "")).startswith("3.0."):
            self.fault("/asyncapi", "must be 3.0")
        # Check references first, because the other checks follow them.
        if len(self.faults.found) == before:
            self.operations()
            self.messages()

    def fault(self, path, text):
        self.faults.add(self.place, f"{path or '/'}: {text}")

    # Structure.

    def value(self, value, kind, path):
        """Reports how a value differs from its kind."""
        if isinstance(kind, tuple):
            return self.container(value, kind, path)
        if kind == TEXT and not isinstance(value, str):
            self.fault(path, "must be a text")
        elif kind == REFERENCE:
            self.reference(value, path)
        elif kind == SCHEMA:
            self.schema(value, path)
        elif kind in OBJECTS:
            self.object(value, kind, path)

    def container(self, value, kind, path):
        container, inner = kind
        if not isinstance(value, dict if container == "map" else list):
            return self.fault(path, f"must be a {container}")
        for key, each in value.items() if container == "map" else enumerate(value):
            self.value(each, inner, f"{path}/{key}")

    def object(self, value, kind, path):
        required, members = OBJECTS[kind]
        if not isinstance(value, dict):
            return self.fault(path, "must be an object")
        if "$ref" in value:
            return self.reference(value, path)
        for name in required:
            if name not in value:
                self.fault(path, f"{name} is missing")
        for name, each in value.items():
            if name in members:
                self.value(each, members[name], f"{path}/{name}")
            elif not name.startswith("x-"):
                self.fault(path, f"{name} is no member of a {kind}")

    def reference(self, value, path):
        if not isinstance(value, dict) or list(value) != ["$ref"]:
            self.fault(path, "must be a reference")
        elif self.at(value["$ref"]) is None:
            self.fault(path, f"{value['$ref']} leads nowhere")

    def at(self, pointer):
        """Returns the target of a local reference, or None."""
        value = self.document
        for part in pointer.removeprefix("#/").split("/"):
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def schema(self, value, path):
        """Reports keywords that the specification or the renderer does not know."""
        try:
            Draft7Validator.check_schema(value)
        except SchemaError as fault:
            return self.fault(path, fault.message)
        if not isinstance(value, dict):
            return None
        for name in value:
            if name not in KEYWORDS:
                self.fault(path, f"{name} is no keyword that the site can show")
        if "$ref" in value and self.at(value["$ref"]) is None:
            self.fault(path, f"{value['$ref']} leads nowhere")
        for name, inner in self.inner_schemas(value):
            self.schema(inner, f"{path}/{name}")
        return None

    def inner_schemas(self, schema):
        """Yields the schemas inside a schema with their paths."""
        for name, inner in schema.get("properties", {}).items():
            yield f"properties/{name}", inner
        for name in ("items", "additionalItems", "additionalProperties", "not"):
            if isinstance(schema.get(name), dict):
                yield name, schema[name]
        for name in ("oneOf", "items"):
            if isinstance(schema.get(name), list):
                yield from ((f"{name}/{index}", each) for index, each in enumerate(schema[name]))

    # Meaning.

    def operations(self):
        """Reports operations with messages of other channels, and messages without an operation."""
        used = set()
        for name, operation in self.document["operations"].items():
            path = f"/operations/{name}"
            if operation["action"] not in ("send", "receive"):
                self.fault(path, "action must be send or receive")
            for part in (operation, operation.get("reply", {})):
                channel = part.get("channel", {}).get("$ref", "")
                for message in part.get("messages", []):
                    used.add(message["$ref"])
                    if not message["$ref"].startswith(f"{channel}/messages/"):
                        self.fault(path, f"{message['$ref']} is no message of {channel}")
        for channel, value in self.document["channels"].items():
            for message in value.get("messages", {}):
                if f"#/channels/{channel}/messages/{message}" not in used:
                    self.fault(f"/channels/{channel}/messages/{message}", "no operation has this message")

    def messages(self):
        """Reports messages without a channel, and examples that break their schema."""
        channels = self.document["channels"].values()
        placed = {each["$ref"] for channel in channels for each in channel.get("messages", {}).values()}
        for name, message in self.document["components"]["messages"].items():
            path = f"/components/messages/{name}"
            if f"#{path}" not in placed:
                self.fault(path, "no channel has this message")
            if not message.get("examples"):
                self.fault(path, "an example is missing")
            for example in message.get("examples", []):
                for part in ("payload", "headers"):
                    if part in message:
                        self.example(message[part], example.get(part), f"{path}/examples")

    def example(self, schema, value, path):
        whole = {**schema, "components": self.document["components"]}
        if "$ref" in schema:
            whole = {"allOf": [schema], "components": self.document["components"]}
        for fault in Draft7Validator(whole).iter_errors(value):
            self.fault(path, fault.message)
