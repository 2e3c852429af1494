# Carillon · asyncapi_pages.py
# SPDX-License-Identifier: Apache-2.0
"""Renders an AsyncAPI document: an overview, and a page for each tag of channels."""

import json

from highlighting import code_block
from markup import join, tag
from openapi import part, table
from schemas import Schemas, code_words, prose
from sources import Page, relative

FOLDER = "api/messages"
LABELS = {"native": "Native sockets", "server-sent events": "Server-Sent Events", "signalr": "SignalR",
          "socket.io": "Socket.IO", "streams": "Streams", "webhooks": "Webhooks"}


class AsyncAPI:
    """An AsyncAPI document and its pages."""

    def __init__(self, document):
        self.document = document
        self.overview = Page(target=f"{FOLDER}/index.html", title="Messages", kind="api")
        self.pages = {}
        for each in document["info"]["tags"]:
            name = each["name"]
            label = LABELS.get(name, name.capitalize())
            target = f"{FOLDER}/{label.lower().replace(' ', '-').replace('.', '-')}.html"
            self.pages[name] = Page(target=target, label=label, title=label, kind="api")

    def channels(self, name):
        """Returns the channels with a tag, by key."""
        return {
            key: channel for key, channel in self.document["channels"].items()
            if name in [each["name"] for each in channel["tags"]]
        }

    def operations(self, channel):
        """Returns the operations of a channel."""
        reference = f"#/channels/{channel}"
        return [each for each in self.document["operations"].values() if each["channel"]["$ref"] == reference]

    def render(self, resolver):
        """Sets the HTML of all pages."""
        self.overview.html = self.overview_html(resolver)
        for name, page in self.pages.items():
            page.html = TagPage(self, name, page, resolver).html()

    def overview_html(self, resolver):
        info = self.document["info"]
        rows = []
        for each in info["tags"]:
            page = self.pages[each["name"]]
            link = tag("a", page.label, href=relative(self.overview.target, page.target))
            rows.append(tag("tr", tag("td", link), tag("td", prose(each["description"], self.overview, resolver))))
        return join(
            tag("h1", "Messages"), prose(info["description"], self.overview, resolver),
            table(["page", "about"], rows),
            [self.index(name, resolver) for name in self.pages],
            tag("h2", "The document"),
            tag("p", "This reference is made from ", tag("a", "the AsyncAPI document", href="asyncapi.yaml"),
                ", which generators of clients read as well."),
        )

    def index(self, name, resolver):
        """Returns the table of a tag's messages."""
        page = self.pages[name]
        rows = []
        for key in self.channels(name):
            for direction, messages in Directions(self, key).groups():
                for message_key, message in messages:
                    href = f"{relative(self.overview.target, page.target)}#{message_key}"
                    rows.append(tag("tr", tag("td", tag("a", code_words(message["title"]), href=href)),
                                    tag("td", direction), tag("td", code_words(message["summary"]))))
        return join(tag("h2", page.label), table(["message", "", "does"], rows))


class Directions:
    """The messages of a channel by direction, each once."""

    def __init__(self, api, channel):
        self.api = api
        self.channel = channel

    def groups(self):
        """Returns names of directions with their messages: key and message."""
        operations = self.api.operations(self.channel)
        sent = [each for operation in operations if operation["action"] == "send" for each in operation["messages"]]
        taken = [each for operation in operations if operation["action"] == "receive" for each in operation["messages"]]
        answers = [
            each for operation in operations for each in operation.get("reply", {}).get("messages", [])
            if each not in sent
        ]
        named = [("from Carillon", sent), ("to Carillon", taken), ("an answer", answers)]
        return [(name, self.distinct(messages)) for name, messages in named if messages]

    def distinct(self, references):
        found = {}
        for reference in references:
            key = reference["$ref"].rsplit("/", 1)[-1]
            found[key] = self.api.document["components"]["messages"][key]
        return list(found.items())

    def answers_to(self, key):
        """Returns the keys of the messages that answer a message."""
        reference = {"$ref": f"#/channels/{self.channel}/messages/{key}"}
        return [
            each["$ref"].rsplit("/", 1)[-1] for operation in self.api.operations(self.channel)
            if operation["action"] == "receive" and reference in operation["messages"]
            for each in operation.get("reply", {}).get("messages", [])
        ]


class TagPage:
    """The page of the channels with one tag."""

    HEADINGS = {"from Carillon": "Messages from Carillon", "to Carillon": "Messages to Carillon",
                "an answer": "Answers"}

    def __init__(self, api, name, page, resolver):
        self.api = api
        self.name = name
        self.page = page
        self.resolver = resolver
        self.schemas = Schemas(api.document, page, resolver)

    def html(self):
        channels = self.api.channels(self.name)
        is_only = len(channels) == 1
        return join(tag("h1", self.page.label),
                    [self.channel(key, channel, is_only) for key, channel in channels.items()])

    def channel(self, key, channel, is_only):
        """Returns a channel; if it is alone on its page, with a heading for each direction."""
        directions = Directions(self.api, key)
        head = join(self.address(channel), prose(channel["description"], self.page, self.resolver))
        connection = self.connection(key, channel)
        groups = directions.groups()
        if is_only:
            return join(head, tag("h2", "Connect") if connection else None, connection, [
                join(tag("h2", self.HEADINGS[name]), [self.message(*each, directions) for each in messages])
                for name, messages in groups
            ])
        messages = [self.message(*each, directions) for _, each_group in groups for each in each_group]
        return join(tag("h2", channel["title"], id=key), head, connection, messages)

    def address(self, channel):
        address = channel["address"]
        servers = [self.schemas.at(each["$ref"]) for each in channel["servers"]]
        protocols = ", ".join(server["protocol"] for server in servers)
        return tag("p", tag("span", protocols, class_="method"), " ",
                   tag("code", address or "the URL of your receiver"), class_="address")

    def connection(self, key, channel):
        """Returns parameters of the address, the query and the headers of the first request."""
        binding = channel.get("bindings", {}).get("ws", {})
        parts = [self.parameters(channel.get("parameters", {}))]
        for operation in self.api.operations(key):
            binding = {**operation.get("bindings", {}).get("http", {}), **binding}
        for name, words in (("query", "Query"), ("headers", "Headers")):
            if name in binding:
                parts.append(part(words, self.schemas.fields(binding[name])))
        return join(parts)

    def parameters(self, parameters):
        if not parameters:
            return None
        rows = [self.schemas.row(name, {"type": "string", **value}, True, 0, ()) for name, value in parameters.items()]
        return part("Address", tag("dl", rows, class_="fields"))

    def message(self, key, message, directions):
        answers = [
            tag("li", tag("a", code_words(self.api.document["components"]["messages"][each]["title"]), href=f"#{each}"))
            for each in directions.answers_to(key)
        ]
        return join(
            tag("h3", code_words(message["title"]), id=key),
            tag("p", code_words(message["summary"]), class_="summary"),
            prose(message["description"], self.page, self.resolver) if "description" in message else None,
            [self.example(each) for each in message["examples"]],
            part("Headers", self.schemas.fields(message["headers"]), level=4) if "headers" in message else None,
            part("Fields", self.schemas.fields(message["payload"]), level=4),
            part("Answered by", tag("ul", answers, class_="answers"), level=4) if answers else None,
        )

    def example(self, example):
        text = json.dumps(example["payload"], ensure_ascii=False)
        if len(text) > 88:
            text = json.dumps(example["payload"], ensure_ascii=False, indent=2)
        return code_block(text + "\n", "json")
