# Carillon · build.py
# SPDX-License-Identifier: Apache-2.0
"""Makes the documentation site. `deploy/site` runs it; see `deploy/site --help`."""

import argparse
import gzip
import json
import shutil
import sys
from pathlib import Path

import yaml

import asyncapi
import site_check
from asyncapi_pages import AsyncAPI
from faults import Faults
from highlighting import SUFFIXES, code_block
from layout import Layout
from links import Resolver
from markdown_pages import check, convert
from markup import join, tag
from navigation import Group, insert_after, read_groups
from openapi import OpenAPI
from rewriting import Reader
from search_index import script
from sources import ASYNCAPI, INDEX, Page, find_pages, read

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ICON = "Sources/Gateway/HTTP/Web/Resources/icon.svg"
PAGE_STYLE = "Sources/Gateway/HTTP/Web/Resources/page.css"
MARK = ".carillon-site"


def palette(style):
    """Returns the rule of a style that holds its colours and other values."""
    return style[style.index(":root {"):style.index("}") + 1] + "\n"


class Site:
    """The site of a checkout while it is made."""

    def __init__(self, root, out, repository=None):
        self.root = root
        self.out = out
        self.faults = Faults()
        self.pages = find_pages(root)
        self.resolver = Resolver(root, out, self.pages, self.faults, repository)
        self.examples = yaml.safe_load(read(HERE, "examples.yaml"))
        self.groups = []

    def build(self, rest, compatibility):
        """Makes all pages. The arguments are OpenAPI documents."""
        for page in self.pages:
            text = read(self.root, page.source)
            check(page.source, text, self.faults)
            page.html = convert(text)
        messages = self.messages()
        apis = [
            OpenAPI(rest, "api/rest", "REST, call by call", self.examples, self.faults),
            OpenAPI(compatibility, "api/compatibility", "Paths of other systems", self.examples, self.faults),
        ]
        named = {*self.examples["bodies"], *self.examples["queries"]}
        for operation in named.difference(*(api.operation_names() for api in apis)):
            self.faults.add("deploy/docs/examples.yaml", f"no document has the operation {operation}")
        self.groups = read_groups(read(self.root, INDEX), self.pages, messages.overview, self.faults)
        self.place(messages, apis)
        messages.render(self.resolver)
        for api in apis:
            api.render(self.resolver)
        self.write_pages()
        self.write_assets(rest, compatibility)

    def messages(self):
        """Returns the pages of the AsyncAPI document, which it checks first."""
        document = yaml.safe_load(read(self.root, ASYNCAPI))
        asyncapi.Checker(document, ASYNCAPI, self.faults).check()
        self.stop_if_faulty()
        return AsyncAPI(document)

    def place(self, messages, apis):
        """Puts the rendered pages into groups after the reference."""
        rendered = [Group(api.name, pages=api.all_pages()) for api in apis]
        rendered.insert(1, Group("Messages", pages=list(messages.pages.values())))
        insert_after(self.groups, messages.overview, *rendered)
        for group in rendered:
            for page in group.pages:
                page.group = group.name
        for page in self.all_pages():
            page.title = page.title or page.label

    def all_pages(self):
        return [page for group in self.groups for page in group.pages]

    # Writing.

    def write_pages(self):
        """Resolves links, then frames and writes every page."""
        contents = [(page, Reader(page, self.resolver).read()) for page in self.all_pages()]
        shown = [self.shown_file(path, target) for path, target in sorted(self.resolver.shown.items())]
        self.resolver.check_fragments()
        layout = Layout(self.groups, self.version())
        for page, content in contents + shown:
            self.write(page.target, layout.frame(page, content))

    def shown_file(self, path, target):
        """Returns a page that shows a file of the checkout."""
        language = SUFFIXES.get(Path(path).suffix, "")
        page = Page(target=target, source=path, title=path, kind="file")
        return page, join(tag("h1", path), code_block(read(self.root, path), language))

    def version(self):
        """Returns the newest release of the changelog; empty before the first one."""
        lines = read(self.root, "CHANGELOG.md").split("\n")
        names = [line[3:].split()[0].strip("[]") for line in lines if line.startswith("## ")]
        return next((name for name in names if name[:1].isdigit()), "")

    def write_assets(self, rest, compatibility):
        """Writes styles, scripts, the search index and the documents of the APIs."""
        for file in (HERE / "assets").iterdir():
            self.write(f"assets/{file.name}", file.read_text(encoding="utf-8"))
        self.write("assets/palette.css", palette(read(self.root, PAGE_STYLE)))
        self.resolver.copy(ICON, "assets/icon.svg")
        self.resolver.copy(ASYNCAPI, "api/messages/asyncapi.yaml")
        self.write("assets/search-index.js", script(self.groups))
        for folder, document in (("rest", rest), ("compatibility", compatibility)):
            self.write(f"api/{folder}/openapi.json", json.dumps(document, ensure_ascii=False, indent=1) + "\n")

    def write(self, target, text):
        path = self.out / target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    # Reporting.

    def stop_if_faulty(self):
        """Ends the program with every fault."""
        if self.faults:
            for fault in self.faults:
                print(f"site: {fault}", file=sys.stderr)
            sys.exit(1)

    def report(self):
        """Prints the size of the site."""
        pages, links = site_check.check(self.out, self.faults)
        self.stop_if_faulty()
        total = sum(file.stat().st_size for file in self.out.rglob("*") if file.is_file())
        found = (self.out / "assets/search-index.js").read_bytes()
        sections = sum(len(page.sections) for page in self.all_pages())
        print(f"    {pages} pages, {links} links, {total / 1e6:.1f} MB")
        print(f"    search: {sections} sections, {len(found) / 1e3:.0f} KB ({len(gzip.compress(found)) / 1e3:.0f} KB"
              " compressed)")


def empty(out):
    """Removes an earlier site; refuses a folder that holds anything else."""
    if out.exists() and any(out.iterdir()) and not (out / MARK).exists():
        sys.exit(f"site: {out} holds other files; give --out a new or an empty folder")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / MARK).touch()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--openapi", type=Path, required=True)
    parser.add_argument("--compatibility", type=Path, required=True)
    parser.add_argument("--repository")
    options = parser.parse_args()
    empty(options.out)
    site = Site(ROOT, options.out, options.repository)
    site.build(json.loads(options.openapi.read_text()), json.loads(options.compatibility.read_text()))
    site.report()


if __name__ == "__main__":
    main()
