# Carillon · samples.py
# SPDX-License-Identifier: Apache-2.0
"""Makes sample values from JSON schemas, for the examples of calls and answers."""

# The values of fields with these names; others follow from their type.
NAMED = {
    "user": "ada", "user_id": "ada", "users": ["ada", "ben"], "topic": "news", "org": "shop", "app": "default",
    "type": "payment_received", "title": "Payment received", "body": "€ 40 from Ben", "data": {"invoice": "i9"},
    "category": "payments", "entity_type": "invoice", "entity_id": "9", "url": "/invoices/9", "image": None,
    "collapse_key": None, "lane": "normal", "stream": "carillon:jobs", "entry": "1795690583072-0",
    "job_entry": "carillon:jobs/1795690583072-0", "node": "gateway-1", "email": "ada@example.com",
    "zone": "Europe/Berlin", "locale": "en", "start": "22:00", "end": "07:00", "cron": "0 9 * * MON-FRI",
    "until": "2026-12-01T08:00:00.000Z", "token": "phone-1", "device_id": "phone-of-ada", "X-Device-Token": "phone-1",
    "version": 42, "next_version": 42, "unread": 1, "total": 12, "cursor": None, "next_cursor": None, "reset": False,
    "held_back": None, "read_at": None,
}
PATH_VALUES = {"user": "ada", "topic": "news", "key": "17"}
FORMATS = {"uuid": "01a2177f-7f90-8000-80fc-c21643b07f8e", "date-time": "2026-11-20T10:00:00.000Z"}
DEEPEST = 6


class Samples:
    """Makes samples for the schemas of one document."""

    def __init__(self, schemas):
        self.schemas = schemas

    def value(self, schema, name="", depth=0, only_required=False):
        """Returns a value that the schema accepts."""
        schema, _ = self.schemas.resolve(schema)
        if "const" in schema:
            return schema["const"]
        if name in NAMED and self.fits(NAMED[name], schema):
            return NAMED[name]
        if "enum" in schema:
            return schema["enum"][0]
        if schema.get("oneOf") and "properties" not in schema:
            return self.value(schema["oneOf"][0], name, depth, only_required)
        kinds = schema.get("type", "object" if "properties" in schema else "string")
        kind = kinds if isinstance(kinds, str) else kinds[0]
        return self.of_kind(kind, schema, name, depth, only_required)

    def of_kind(self, kind, schema, name, depth, only_required):
        if kind == "object":
            return self.object(schema, depth, only_required)
        if kind == "array":
            items = schema.get("items")
            if depth > DEEPEST or not isinstance(items, dict) or not items:
                return []
            return [self.value(items, name, depth + 1, only_required)] * max(1, schema.get("minItems", 1))
        if kind in ("integer", "number"):
            return schema.get("default", max(schema.get("minimum", 1), 0) or 1)
        if kind == "boolean":
            return schema.get("default", True)
        if kind == "null":
            return None
        return FORMATS.get(schema.get("format")) or schema.get("default") or name.replace("_", " ") or "text"

    def object(self, schema, depth, only_required):
        required = schema.get("required", [])
        members = {}
        for key, value in schema.get("properties", {}).items():
            if depth > DEEPEST or (only_required and key not in required):
                continue
            members[key] = self.value(value, key, depth + 1, only_required)
        return members

    def fits(self, value, schema):
        """Whether a value is of a schema's type and among its choices."""
        kinds = schema.get("type", [])
        kinds = [kinds] if isinstance(kinds, str) else kinds
        kind = {str: "string", bool: "boolean", int: "integer", list: "array", dict: "object", type(None): "null"}
        if kind[type(value)] not in kinds or schema.get("format") == "uuid":
            return False
        return value in schema["enum"] if "enum" in schema else len(str(value)) <= schema.get("maxLength", 9999)
