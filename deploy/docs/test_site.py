# Carillon · test_site.py
# SPDX-License-Identifier: Apache-2.0
"""Tests of the generator. Run them with: /usr/bin/python3 -B -m unittest discover deploy/docs"""

import tempfile
import unittest
from pathlib import Path

import yaml

import asyncapi
import site_check
from anchors import Anchors
from faults import Faults
from links import Resolver
from markdown_pages import check, convert
from navigation import read_groups
from rewriting import Reader
from schemas import Schemas
from sources import ASYNCAPI, Page, find_pages, relative, resolve

ROOT = Path(__file__).resolve().parent.parent.parent


class Checkout(unittest.TestCase):
    """A test with a small checkout."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name, "root")
        self.out = Path(folder.name, "site")
        self.out.mkdir()
        self.faults = Faults()

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def read(self, source):
        """Returns the HTML of a page after its links are resolved and checked."""
        pages = find_pages(self.root)
        resolver = Resolver(self.root, self.out, pages, self.faults)
        done = {}
        for page in pages:
            page.html = convert((self.root / page.source).read_text(encoding="utf-8"))
            done[page.source] = Reader(page, resolver).read()
        resolver.check_fragments()
        return done[source]


class AnchorTests(unittest.TestCase):
    def test_anchors_are_those_of_github(self):
        anchors = Anchors()
        titles = ["Send to users", "`gateway token`", "Gateway: people in", "Order and gaps", "Socket.IO",
                  "4. Proof of receipt, then push", "`one`: 100,000 sockets", "Limits", "Limits", "Größe_x"]
        self.assertEqual(
            [anchors.claim(title.replace("`", "")) for title in titles],
            ["send-to-users", "gateway-token", "gateway-people-in", "order-and-gaps", "socketio",
             "4-proof-of-receipt-then-push", "one-100000-sockets", "limits", "limits-1", "größe_x"])


class PathTests(unittest.TestCase):
    def test_paths_between_pages(self):
        self.assertEqual(relative("clients/ios.html", "providers.html"), "../providers.html")
        self.assertEqual(relative("clients/ios.html", "clients/index.html"), "index.html")
        self.assertEqual(relative("index.html", "api/rest/jobs.html"), "api/rest/jobs.html")
        self.assertEqual(resolve("docs/clients/ios.md", "../rest.md"), "docs/rest.md")
        self.assertIsNone(resolve("README.md", "../elsewhere.md"))


class LinkTests(Checkout):
    def test_links_lead_to_pages_and_anchors_of_the_site(self):
        self.write("docs/one.md", "# One\n\n[two](two/README.md#the-end) [folder](two) [here](#one)\n")
        self.write("docs/two/README.md", "# Two\n\n## The end\n")
        html = self.read("docs/one.md")
        self.assertIn('href="two/index.html#the-end"', html)
        self.assertIn('href="two/index.html"', html)
        self.assertEqual(list(self.faults), [])

    def test_broken_links_anchors_and_pictures_are_faults(self):
        self.write("docs/one.md", "# One\n\n[a](no.md) [b](#no) ![c](no.png)\n")
        self.read("docs/one.md")
        self.assertEqual(len(list(self.faults)), 3, list(self.faults))

    def test_source_files_stay_text_and_examples_are_shown(self):
        self.write("docs/one.md", "# One\n\n[`A`](../Sources/A.swift) [`b`](../examples/b.sql)\n")
        self.write("Sources/A.swift", "")
        self.write("examples/b.sql", "SELECT 1;\n")
        html = self.read("docs/one.md")
        self.assertNotIn("A.swift", html)
        self.assertIn('href="files/examples/b.sql.html"', html)


class MarkdownTests(unittest.TestCase):
    def faults(self, text):
        faults = Faults()
        check("page.md", text, faults)
        return list(faults)

    def test_lines_that_github_reads_otherwise_are_faults(self):
        for text in ["text\n- item", "- item\n  - nested", "text\n| a |\n| --- |", "```klingon\n```", "```sh\n",
                     "  ```\n```"]:
            self.assertEqual(len(self.faults(text)), 1, text)
        for text in ["text\n\n- item\n  goes on\n- item", "of\n16) and", "```sh\n- x\n```", "| a |\n| --- |\n| b |"]:
            self.assertEqual(self.faults(text), [], text)

    def test_comments_for_the_tests_do_not_show(self):
        html = convert("# A\n\n<!-- run: prints \"x\" -->\n```sh\necho '<!-- kept -->'\n```\n")
        self.assertNotIn("prints", html)
        self.assertIn("kept", html)


class NavigationTests(unittest.TestCase):
    def test_a_page_that_no_table_lists_is_a_fault(self):
        pages = [Page("a.html", "docs/a.md"), Page("b.html", "docs/b.md")]
        faults = Faults()
        groups = read_groups("## Start\n\n| page | about |\n| --- | --- |\n| [a](a.md) | it |\n", pages, None, faults)
        self.assertEqual([(group.name, group.pages[0].label) for group in groups], [("Start", "A")])
        self.assertEqual(list(faults), ["docs/b.md: is missing in the tables of docs/README.md"])


class SchemaTests(unittest.TestCase):
    def test_types_and_limits_in_words(self):
        document = {"components": {"schemas": {"Thing": {"type": "object", "properties": {"a": {"type": "string"}}}}}}
        schemas = Schemas(document, Page("x.html"), None)
        self.assertEqual(schemas.type_name({"type": ["string", "null"], "format": "uuid"}), "UUID or null")
        self.assertEqual(
            schemas.type_name({"type": "array", "items": {"$ref": "#/components/schemas/Thing"}}), "array of Thing")
        self.assertEqual(schemas.type_name({"oneOf": [{"const": False}, {"type": "null"}]}), "false or null")
        self.assertIn("1 to 1,000 items", schemas.limits({"type": "array", "minItems": 1, "maxItems": 1000}))


class AsyncAPITests(unittest.TestCase):
    def faults(self, change):
        document = yaml.safe_load((ROOT / ASYNCAPI).read_text(encoding="utf-8"))
        change(document)
        faults = Faults()
        asyncapi.Checker(document, ASYNCAPI, faults).check()
        return list(faults)

    def test_the_document_is_valid(self):
        self.assertEqual(self.faults(lambda document: None), [])

    def test_faults_are_found(self):
        def reference(document):
            document["operations"]["takeJobs"]["channel"]["$ref"] = "#/channels/nothing"

        def member(document):
            document["channels"]["jobs"]["adress"] = "x"

        def example(document):
            document["components"]["messages"]["welcome"]["examples"][0]["payload"]["version"] = "one"

        def unused(document):
            del document["operations"]["takeFocus"]

        for change in (reference, member, example, unused):
            self.assertEqual(len(self.faults(change)), 1, change.__name__)

    def test_only_messages_with_changes_have_a_version_to_resume_from(self):
        document = yaml.safe_load((ROOT / ASYNCAPI).read_text(encoding="utf-8"))
        shared = {"$ref": "#/components/schemas/version"}
        messages = document["components"]["messages"].items()
        found = {name for name, message in messages if message["payload"].get("properties", {}).get("version") == shared}
        self.assertEqual(found, {"sync", "notification", "read", "deleted"})


class SiteCheckTests(Checkout):
    def test_a_finished_site_may_not_break_its_policy(self):
        page = '<p style="color: red" id="x"></p><p id="x"></p><script>1</script><a href="b.html"></a>'
        (self.out / "a.html").write_text(page)
        site_check.check(self.out, self.faults)
        self.assertEqual(len(list(self.faults)), 4, list(self.faults))


if __name__ == "__main__":
    unittest.main()
