# Carillon · markdown_pages.py
# SPDX-License-Identifier: Apache-2.0
"""Turns Markdown into HTML.

The pages are written for GitHub. Where Python-Markdown would read a line differently, the page has a
fault, so that both show the same.
"""

import re

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor

from highlighting import code_block, is_known

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\s*$")
ITEM = re.compile(r"^(?P<indent> *)(?:[-*+]|\d+[.)]) ")
# On GitHub, an ordered list ends a paragraph only if it begins with 1.
FIRST_ITEM = re.compile(r"^ *(?:[-*+]|1[.)]) ")
# A comment on its own lines.
COMMENT = re.compile(r"^<!--.*?-->\n?", re.DOTALL | re.MULTILINE)


class CodeBlocks(Preprocessor):
    """Replaces fenced code by coloured blocks, and drops comments, which are for the tests."""

    def run(self, lines):
        kept, code, language = [], None, ""
        for line in lines:
            fence = FENCE.match(line)
            if code is None and fence:
                code, language = [], fence["language"]
            elif code is None:
                kept.append(line)
            elif fence:
                block = code_block("\n".join(code) + "\n", language)
                kept += ["", self.md.htmlStash.store(block), ""]
                code = None
            else:
                code.append(line)
        return COMMENT.sub("", "\n".join(kept)).split("\n")


class CodeBlockExtension(Extension):
    """Registers `CodeBlocks` before Python-Markdown looks for HTML."""

    def extendMarkdown(self, md):
        md.preprocessors.register(CodeBlocks(md), "code_blocks", 25)


def convert(text):
    """Returns the HTML of a page."""
    markdown = Markdown(extensions=["tables", "sane_lists", CodeBlockExtension()])
    return markdown.convert(text)


def check(source, text, faults):
    """Reports lines that Python-Markdown and GitHub parse differently."""
    in_code, before = False, ""
    for number, line in enumerate(text.split("\n"), 1):
        place = f"{source}:{number}"
        fence = FENCE.match(line)
        if fence:
            if fence["indent"]:
                faults.add(place, "a fenced block is indented; begin it in the first column")
            elif not in_code and not is_known(fence["language"]):
                faults.add(place, f"Pygments does not know the language {fence['language']}; name another")
            in_code = not in_code
        elif not in_code:
            check_line(place, line, before, faults)
        before = line
    if in_code:
        faults.add(source, "a fenced block has no end")


def check_line(place, line, before, faults):
    """Reports the faults of a line of prose after the line `before`."""
    item = ITEM.match(line)
    follows_text = before.strip() and not before.startswith(("#", "<!--", "```"))
    if item and len(item["indent"]) % 4:
        faults.add(place, "a nested list is not indented by four spaces")
    elif FIRST_ITEM.match(line) and follows_text and not ITEM.match(before) and not before.startswith(" "):
        faults.add(place, "a list needs an empty line before it")
    if line.startswith("|") and follows_text and not before.startswith("|"):
        faults.add(place, "a table needs an empty line before it")
    if re.match(r"^ {1,3}\S", line) and not item and not before.strip():
        faults.add(place, "a paragraph of a list item is not indented by four spaces")
