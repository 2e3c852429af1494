# Carillon · site_check.py
# SPDX-License-Identifier: Apache-2.0
"""Checks a finished site: links, anchors, ids, and that nothing needs a looser policy."""

from html.parser import HTMLParser
from posixpath import dirname, join as join_path, normpath
from urllib.parse import unquote


class PageCheck(HTMLParser):
    """Collects the ids and the links of a page."""

    def __init__(self, path, faults):
        super().__init__()
        self.path = path
        self.faults = faults
        self.ids = set()
        self.links = []

    def handle_starttag(self, name, pairs):
        values = dict(pairs)
        if "id" in values:
            if values["id"] in self.ids:
                self.faults.add(self.path, f"two elements have the id {values['id']}")
            self.ids.add(values["id"])
        for attribute in values:
            if attribute == "style" or attribute.startswith("on"):
                self.faults.add(self.path, f"<{name}> has the attribute {attribute}, which the policy forbids")
        if name == "style" or (name == "script" and "src" not in values):
            self.faults.add(self.path, f"an inline <{name}>, which the policy forbids")
        if name == "img" and "alt" not in values:
            self.faults.add(self.path, f"the picture {values.get('src')} has no alt")
        for attribute in ("href", "src"):
            if attribute in values and ":" not in values[attribute].split("/")[0]:
                self.links.append(values[attribute])


def check(out, faults):
    """Reports every fault of the site in a folder."""
    pages = {}
    for file in sorted(out.rglob("*.html")):
        path = file.relative_to(out).as_posix()
        pages[path] = PageCheck(path, faults)
        pages[path].feed(file.read_text(encoding="utf-8"))
    for path, page in pages.items():
        for link in page.links:
            file, _, fragment = unquote(link).partition("#")
            target = normpath(join_path(dirname(path), file)) if file else path
            if not (out / target).is_file():
                faults.add(path, f"the link {link} leads to no file")
            elif fragment and target in pages and fragment not in pages[target].ids:
                faults.add(path, f"the link {link} leads to no anchor")
    return len(pages), sum(len(page.links) for page in pages.values())
