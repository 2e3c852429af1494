# Carillon · asyncapi_frames.py
# SPDX-License-Identifier: Apache-2.0
#
# usage: asyncapi_frames.py ASYNCAPI FRAMES
#
# Checks messages of the gateway in the native dialect, one JSON object a line, against their
# schemas in docs/asyncapi.yaml: each has all required members, and none that its schema lacks.
# Prints the types that it has seen, or the faults.

import json
import sys

import jsonschema_rs
import yaml


def close(schema):
    """Makes the schemas refuse members that they do not name."""
    for value in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(value, (dict, list)):
            close(value)
    if isinstance(schema, dict) and "properties" in schema:
        schema["additionalProperties"] = False


with open(sys.argv[1], encoding="utf-8") as file:
    components = yaml.safe_load(file)["components"]
schemas = {name: message["payload"] for name, message in components["messages"].items() if "payload" in message}
close([components["schemas"], schemas])
with open(sys.argv[2], encoding="utf-8") as file:
    frames = [json.loads(line) for line in file]
faults = []
for frame in frames:
    schema = {**schemas[frame["type"]], "components": components}
    errors = jsonschema_rs.Draft7Validator(schema, validate_formats=True).iter_errors(frame)
    faults += [f"{frame['type']} {error.instance_path}: {error.message}" for error in errors]
print(*faults or sorted({frame["type"] for frame in frames}), sep="\n")
sys.exit(bool(faults))
