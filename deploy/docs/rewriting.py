# Carillon · rewriting.py
# SPDX-License-Identifier: Apache-2.0
"""Reads a page's HTML: gives headings their anchors, resolves links, and takes the text for search."""

import re
from html import escape
from html.parser import HTMLParser

from anchors import Anchors
from markup import VOID, Markup, attributes, tag
from sources import Section

HEADINGS = {"h1": 1, "h2": 2, "h3": 3, "h4": 4}
# Elements whose end separates words.
BLOCKS = frozenset(["p", "li", "td", "th", "tr", "pre", "div", "dt", "dd", "summary", *HEADINGS])
EMPTY_HEADER = re.compile(r"<th[^>]*></th>")
# Classes that the search skips, because they repeat everywhere; `data-quiet` does the same.
UNSEARCHED = frozenset(["type", "required", "limits", "part"])
WORD = re.compile(r"\w[\w.:/{}-]*\w|\w")


class Heading:
    """A heading that is still open."""

    def __init__(self, values, place):
        self.values = values
        # The length of the output before its content.
        self.place = place
        self.text = []


class Reader(HTMLParser):
    """Reads one page, once.

    `resolver` has the methods `link` and `image`, which return the attributes of a link or a picture,
    or None for a link that the site cannot follow.
    """

    def __init__(self, page, resolver):
        super().__init__(convert_charrefs=True)
        self.page = page
        self.resolver = resolver
        self.anchors = Anchors()
        self.out = []
        self.heading = None
        self.dropped = []
        self.code_depth = 0
        # The name of the element whose text the search leaves out, and how deep it is nested.
        self.silence = ["", 0]
        self.words = set()
        self.section = None

    def read(self):
        """Returns the page's HTML as it goes to the site, and sets the page's sections."""
        self.page.sections = []
        self.start_section("", self.page.title, 1)
        self.feed(EMPTY_HEADER.sub("<td></td>", self.page.html))
        self.close()
        for section in self.page.sections:
            section.prose = " ".join(section.prose.split())
        return Markup("".join(self.out))

    def start_section(self, anchor, heading, level):
        self.section = Section(anchor, heading, level)
        self.page.sections.append(self.section)
        self.words = set()

    # Tags.

    def handle_starttag(self, name, pairs):
        values = [(key, value if value is not None else True) for key, value in pairs if key != "style"]
        self.note_silence(name, dict(values))
        if name == "a":
            values = self.resolver.link(self.page, dict(values))
            self.dropped.append(values is None)
            if values is None:
                return
            values = values.items()
        elif name == "img":
            values = self.resolver.image(self.page, dict(values)).items()
        elif name in HEADINGS and "data-quiet" not in dict(values):
            self.heading = Heading(dict(values), len(self.out))
            return
        elif name == "table":
            self.out.append('<div class="table">')
        elif name == "pre":
            self.code_depth += 1
        self.out.append(f"<{name}{attributes(pair for pair in values if pair[0] != 'data-quiet')}>")

    def note_silence(self, name, values):
        """Tracks the nesting of elements that the search skips."""
        if self.silence[1]:
            self.silence[1] += name == self.silence[0]
        elif name not in VOID and ("data-quiet" in values or values.get("class") in UNSEARCHED):
            self.silence = [name, 1]

    def handle_startendtag(self, name, pairs):
        self.handle_starttag(name, pairs)

    def handle_endtag(self, name):
        if self.silence[1] and name == self.silence[0]:
            self.silence[1] -= 1
        if name in BLOCKS and self.heading is None:
            self.section.prose += " "
        if name == "a" and self.dropped and self.dropped.pop():
            return
        if name in HEADINGS and self.heading:
            self.end_heading(name)
        elif name not in VOID:
            self.out.append(f"</{name}>")
        if name == "table":
            self.out.append("</div>")
        elif name == "pre":
            self.code_depth -= 1

    def end_heading(self, name):
        """Writes a heading with its anchor, and begins its section."""
        heading, self.heading = self.heading, None
        text = " ".join("".join(heading.text).split())
        content = Markup("".join(self.out[heading.place:]))
        del self.out[heading.place:]
        if name == "h1":
            anchor = self.anchors.claim(text)
            self.page.anchors.add(anchor)
            self.section.heading = self.page.title = text
            self.out.append(tag("h1", content, id=anchor))
            return
        anchor = heading.values.get("id") or self.anchors.claim(text)
        self.page.anchors.add(anchor)
        self.start_section(anchor, heading.values.get("data-title") or text, HEADINGS[name])
        link = tag("a", "#", class_="anchor", href=f"#{anchor}", aria_label=f"Link to: {text}")
        self.out.append(tag(name, content, link, id=anchor, class_=heading.values.get("class")))

    # Text.

    def handle_data(self, data):
        self.out.append(escape(data, quote=False))
        if self.heading is not None:
            self.heading.text.append(data)
        elif self.silence[1]:
            return
        elif self.code_depth:
            self.take_code(data)
        else:
            self.section.prose += data

    def take_code(self, data):
        """Adds the words of code that the section does not have yet."""
        for word in WORD.findall(data):
            if word not in self.words:
                self.words.add(word)
                self.section.code += f"{word} "
