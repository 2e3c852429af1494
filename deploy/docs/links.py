# Carillon · links.py
# SPDX-License-Identifier: Apache-2.0
"""Resolves the links of pages: to other pages, to copies of files, or to nothing."""

import re
import shutil
import struct

from sources import ASYNCAPI, relative, resolve, target_of

EXTERNAL = re.compile(r"^[a-z][a-z+.-]*:")
# Files below these folders get a page of their own when a page links to them.
SHOWN_FOLDERS = ("deploy/", "examples/")
SHOWN_FILES = ("LICENSE",)
# A page of the docs that a description of the API names.
MENTION = re.compile(r"\bdocs/([\w/-]+)\.md(#[\w-]+)?")


class Resolver:
    """Resolves links and copies what they need."""

    def __init__(self, root, out, pages, faults, repository=None):
        self.root = root
        self.out = out
        self.faults = faults
        self.repository = repository
        self.pages = {page.source: page for page in pages if page.source}
        # The files to show, by path; the value is the page that shows the file.
        self.shown = {}
        # Fragments to check when all anchors are known: page, target page, fragment.
        self.fragments = []
        self.copied = set()

    # Links.

    def link(self, page, values):
        """Returns a link's attributes; None if the site cannot follow it."""
        href = values.get("href")
        if href is None:
            return values
        if EXTERNAL.match(href):
            return {**values, "rel": "noopener"}
        if page.source is None:
            return values
        path, _, fragment = href.partition("#")
        if not path:
            self.fragments.append((page, page, fragment))
            return values
        return self.link_to_file(page, values, resolve(page.source, path), fragment)

    def link_to_file(self, page, values, path, fragment):
        """Returns the attributes of a link to a file of the checkout."""
        if path is None or not (self.root / path).exists():
            self.faults.add(page.place, f"the link {values['href']} leads to no file")
            return None
        readme = f"{path}/README.md".lstrip("/")
        if readme in self.pages and path not in ("", "docs"):
            path = readme
        if path in self.pages:
            target = self.pages[path]
            if fragment:
                self.fragments.append((page, target, fragment))
            return self.to(page, values, target.target, fragment)
        if path == ASYNCAPI:
            return self.to(page, values, "api/messages/index.html")
        if (self.root / path).is_file() and (path.startswith(SHOWN_FOLDERS) or path in SHOWN_FILES):
            self.shown[path] = f"files/{path}.html"
            return self.to(page, values, self.shown[path])
        if self.repository:
            return {**values, "href": f"{self.repository}/{path}", "rel": "noopener"}
        return None

    def to(self, page, values, target, fragment=""):
        """Returns the attributes of a link to another file of the site."""
        return {**values, "href": relative(page.target, target) + (f"#{fragment}" if fragment else "")}

    def check_fragments(self):
        """Reports links to headings that their page does not have."""
        for page, target, fragment in self.fragments:
            if fragment not in target.anchors:
                self.faults.add(page.place, f"the link to #{fragment} matches no heading of {target.place}")

    # Pictures.

    def image(self, page, values):
        """Returns a picture's attributes, and copies the picture."""
        source = values.get("src", "")
        if page.source is None:
            return values
        path = resolve(page.source, source)
        if EXTERNAL.match(source) or path is None or not (self.root / path).is_file():
            self.faults.add(page.place, f"the picture {source} is no file of the checkout")
            return values
        target = f"images/{path.rsplit('/', 1)[-1]}"
        self.copy(path, target)
        size = {} if "width" in values else picture_size(self.root / path)
        return {**values, "src": relative(page.target, target), "loading": "lazy", **size}

    def copy(self, path, target):
        """Copies a file of the checkout to the site, once."""
        if target not in self.copied:
            (self.out / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.root / path, self.out / target)
            self.copied.add(target)

    # Descriptions of the API.

    def mention(self, page, text):
        """Returns the HTML of a description, with links to the pages that it names."""

        def replace(match):
            source = f"docs/{match[1]}.md"
            if source not in self.pages:
                self.faults.add(page.place, f"a description names {source}, which is no page")
                return match[0]
            fragment = match[2] or ""
            if fragment:
                self.fragments.append((page, self.pages[source], fragment[1:]))
            name = self.pages[source].label or source
            return f'<a href="{relative(page.target, target_of(source))}{fragment}">{name}</a>'

        return MENTION.sub(replace, text)


def picture_size(path):
    """Returns the width and height of a PNG file; nothing for other files."""
    head = path.read_bytes()[:24]
    if head[:8] != b"\x89PNG\r\n\x1a\n":
        return {}
    width, height = struct.unpack(">II", head[16:24])
    return {"width": width, "height": height}
