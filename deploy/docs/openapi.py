# Carillon · openapi.py
# SPDX-License-Identifier: Apache-2.0
"""Renders an OpenAPI document: an overview, a page for each tag, and a page of schemas."""

import json
import shlex

from jsonschema import Draft202012Validator

from highlighting import code_block
from markup import Markup, join, tag
from samples import PATH_VALUES, Samples
from schemas import Schemas, prose
from sources import Page, relative

METHODS = ("get", "post", "put", "patch", "delete")
SCOPES = {"service": "my-backend", "admin": "operator"}


class OpenAPI:
    """An OpenAPI document and the folder of its pages."""

    def __init__(self, document, folder, name, examples, faults):
        self.document = document
        self.folder = folder
        self.name = name
        self.examples = examples
        self.faults = faults
        self.overview = Page(target=f"{folder}/index.html", label="Overview", title=name, kind="api")
        self.tags = [each["name"] for each in document["tags"] if self.operations(each["name"])]
        self.pages = {
            name: Page(target=f"{folder}/{name}.html", label=title(self.described(name)), kind="api")
            for name in self.tags
        }
        self.schemas = Page(target=f"{folder}/schemas.html", label="Schemas", title="Schemas", kind="api")

    def described(self, name):
        """Returns the label of a tag: the first sentence of its description, or its name."""
        found = next(each for each in self.document["tags"] if each["name"] == name)
        return found.get("description", name).rstrip(".")

    def all_pages(self):
        """Returns the pages in their order in the navigation."""
        return [self.overview, *self.pages.values(), self.schemas]

    def operations(self, name):
        """Returns path, method and operation of each call with a tag."""
        return [
            (path, method, operation)
            for path, methods in self.document["paths"].items()
            for method, operation in methods.items()
            if method in METHODS and name in operation["tags"]
        ]

    def render(self, resolver):
        """Sets the HTML of all pages."""
        self.overview.html = OverviewPage(self, resolver).html()
        for name, page in self.pages.items():
            page.html = TagPage(self, name, page, resolver).html()
        self.schemas.html = SchemaPage(self, resolver).html()

    def operation_names(self):
        """Returns the ids of all operations."""
        return {operation["operationId"] for name in self.tags for _, _, operation in self.operations(name)}

    def schemas_on(self, page, resolver):
        """Returns the document's schemas for a page, with links to the page of schemas."""
        def address(name):
            return f"{relative(page.target, self.schemas.target)}#{name}"

        return Schemas(self.document, page, resolver, address)


def title(words):
    """Returns words with a capital first letter."""
    return words[:1].upper() + words[1:]


class OverviewPage:
    """The page that lists all calls."""

    def __init__(self, api, resolver):
        self.api = api
        self.resolver = resolver

    def html(self):
        info = self.api.document["info"]
        page = self.api.overview
        return join(
            tag("h1", self.api.name),
            prose(info["summary"], page, self.resolver),
            prose(info["description"], page, self.resolver),
            tag("h2", "Who calls"), self.security(),
            [self.group(name) for name in self.api.tags],
            tag("h2", "The document"),
            tag("p", "This reference is made from ", tag("a", "the OpenAPI document", href="openapi.json"),
                ", which generators of clients read as well."),
        )

    def security(self):
        rows = []
        for scheme in self.api.document["components"]["securitySchemes"].values():
            how = f"{scheme['name']} in the {scheme['in']}" if "name" in scheme else "Authorization: Bearer <jwt>"
            rows.append(tag("tr", tag("td", tag("code", how)),
                            tag("td", prose(scheme["description"], self.api.overview, self.resolver))))
        return table(["way", "meaning"], rows)

    def group(self, name):
        page = self.api.pages[name]
        rows = []
        for path, method, operation in self.api.operations(name):
            href = f"{relative(self.api.overview.target, page.target)}#{operation['operationId']}"
            call = tag("a", method_badge(method), " ", tag("code", breakable(path)), href=href, class_="call")
            rows.append(tag("tr", tag("td", call), tag("td", operation["summary"])))
        return join(tag("h2", page.label), table(["call", "does"], rows))


class TagPage:
    """The page of the calls with one tag."""

    def __init__(self, api, name, page, resolver):
        self.api = api
        self.name = name
        self.page = page
        self.resolver = resolver
        self.schemas = api.schemas_on(page, resolver)
        self.samples = Samples(self.schemas)

    def html(self):
        operations = [self.operation(*each) for each in self.api.operations(self.name)]
        return join(tag("h1", self.page.label), operations)

    def operation(self, path, method, operation):
        scope = operation.get("x-scope")
        is_open = operation.get("security") == []
        needs = f"scope {scope}" if scope else "no token" if is_open else None
        spoken = f"{method.upper()} {path}"
        return join(
            tag("h2", method_badge(method), " ", tag("code", breakable(path)), id=operation["operationId"],
                data_title=spoken, class_="call"),
            tag("p", operation["summary"], " " if needs else None, tag("span", needs, class_="pill") if needs else None,
                class_="summary"),
            prose(operation["description"], self.page, self.resolver) if "description" in operation else None,
            self.example(path, method, operation),
            self.parameters(operation), self.body(operation), self.answers(operation),
        )

    # The request.

    def example(self, path, method, operation):
        """Returns a call that the reader can run with the stack of `deploy/up`."""
        query = [*filter(None, [self.api.examples["queries"].get(operation["operationId"])])]
        headers = []
        for parameter in operation.get("parameters", []):
            name = parameter["name"]
            value = PATH_VALUES.get(name) or self.samples.value(parameter["schema"], name)
            if parameter["in"] == "path":
                path = path.replace(f"{{{name}}}", str(value))
            elif parameter["in"] == "query" and parameter["required"]:
                query.append(f"{name}={value}")
            elif parameter["required"]:
                headers.append(f'-H "{name}: {value}"')
        lines = ["curl -s" + ("" if method == "get" else f" -X {method.upper()}")
                 + f" \"$GATEWAY_URL{path}{'?' + '&'.join(query) if query else ''}\""]
        if operation.get("security") != []:
            scope = operation.get("x-scope")
            who = f"{SCOPES[scope]} --scope {scope}" if scope else "ada"
            lines.append(f"-H \"Authorization: Bearer $(gateway token --user {who})\"")
        lines += headers + self.example_body(operation)
        return code_block(" \\\n    ".join(lines) + "\n", "sh")

    def example_body(self, operation):
        """Returns the options of curl that send the body."""
        if "requestBody" not in operation:
            return []
        kind, content = next(iter(operation["requestBody"]["content"].items()))
        body = self.api.examples["bodies"].get(operation["operationId"])
        if body is None:
            if not operation["requestBody"]["required"]:
                return []
            body = self.samples.value(content["schema"], only_required=True)
        self.validate(operation["operationId"], body, content["schema"])
        if kind == "application/json":
            text = json.dumps(body, ensure_ascii=False)
            if len(text) > 72:
                text = json.dumps(body, ensure_ascii=False, indent=2)
            return ["-d " + shlex.quote(text)]
        return [f"-d {shlex.quote(f'{name}={value}')}" for name, value in body.items()]

    def validate(self, operation, body, schema):
        """Reports how an example breaks its own schema."""
        whole = {**schema, "components": self.api.document["components"]}
        for fault in Draft202012Validator(whole).iter_errors(body):
            self.api.faults.add("deploy/docs/examples.yaml", f"{operation}: {fault.message}")

    def parameters(self, operation):
        """Returns the parameters of path, query and headers."""
        rows = []
        for parameter in operation.get("parameters", []):
            schema = {**parameter["schema"], "description": parameter.get("description")}
            schema = {key: value for key, value in schema.items() if value is not None}
            row = self.schemas.row(parameter["name"], schema, parameter["required"], 0, ())
            rows.append(Markup(row.replace('<span class="type">', f'<span class="type">{parameter["in"]}, ', 1)))
        return part("Parameters", tag("dl", rows, class_="fields")) if rows else None

    def body(self, operation):
        body = operation.get("requestBody")
        if body is None:
            return None
        kinds = ", ".join(body["content"])
        schema = next(iter(body["content"].values()))["schema"]
        described = self.schemas.resolve(schema)[0].get("description")
        note = tag("p", kinds, "" if body["required"] else "; may be left out", class_="limits")
        return part("Body", note, prose(described, self.page, self.resolver) if described else None,
                    self.schemas.fields(schema))

    # The answers.

    def answers(self, operation):
        good, bad = [], []
        for status, answer in operation["responses"].items():
            answer = self.schemas.at(answer["$ref"]) if "$ref" in answer else answer
            (good if int(status) < 400 else bad).append((status, answer))
        rows = [tag("tr", tag("td", tag("code", status)), tag("td", answer["description"])) for status, answer in bad]
        # Nearly all calls have the same errors, so the search leaves them out.
        errors = tag("div", part("Errors", table(["status", "meaning"], rows)), data_quiet=True) if rows else None
        return join([self.answer(status, answer) for status, answer in good], errors)

    def answer(self, status, answer):
        """Returns an answer that is no error: its headers, its fields and a sample."""
        headers = [
            self.schemas.row(name, {**header["schema"], **({"description": header["description"]}
                             if "description" in header else {})}, False, 0, ())
            for name, header in answer.get("headers", {}).items()
        ]
        kind, content = next(iter(answer.get("content", {}).items()), (None, None))
        sample = None
        if kind and kind.endswith("json") and self.schemas.fields(content["schema"]):
            text = json.dumps(self.samples.value(content["schema"]), ensure_ascii=False, indent=2)
            sample = tag("details", tag("summary", "Sample"), code_block(text + "\n", "json"), data_quiet=True)
        return join(
            part(f"Answer {status}", tag("p", answer["description"])),
            tag("p", "Headers", class_="limits") if headers else None,
            tag("dl", headers, class_="fields") if headers else None,
            tag("p", self.kind_words(kind, content), class_="limits") if kind else None,
            self.schemas.fields(content["schema"]) if kind else None,
            sample,
        )

    def kind_words(self, kind, content):
        return f"{kind}: {self.schemas.type_name(content['schema'])}"


class SchemaPage:
    """The page of all named schemas."""

    def __init__(self, api, resolver):
        self.api = api
        self.resolver = resolver
        self.schemas = api.schemas_on(api.schemas, resolver)

    def html(self):
        named = self.api.document["components"]["schemas"]
        return join(tag("h1", "Schemas"), tag("p", "The objects that calls and answers share."),
                    [self.schema(name, schema) for name, schema in named.items()])

    def schema(self, name, schema):
        described = schema.get("description")
        return join(
            tag("h2", tag("code", name), id=name, data_title=name),
            prose(described, self.api.schemas, self.resolver) if described else None,
            self.schemas.fields(schema) or tag("p", self.schemas.type_name(schema), class_="limits"),
        )


def part(name, *children, level=3):
    """Returns a part of a call or a message, with a small title that contents leave out."""
    return join(tag(f"h{level}", name, class_="part", data_quiet=True), children)


def table(heads, rows):
    """Returns a table."""
    head = tag("thead", tag("tr", [tag("th", each, scope="col") for each in heads]))
    return tag("table", head, tag("tbody", rows))


def method_badge(method):
    return tag("span", method.upper(), class_=f"method {method}")


def breakable(path):
    """Returns a path that may break before each slash."""
    return join([join(tag("wbr") if index else None, f"/{each}") for index, each in enumerate(path.split("/")[1:])])
