"""From the text of a comment to reStructuredText: paragraphs, lists, indented blocks, `code`, and links to declared names."""
import re
import textwrap

ROLES = {"function": "c:func", "macro": "c:macro", "type": "c:type", "struct": "c:struct", "union": "c:union",
         "enum": "c:enum", "enumerator": "c:enumerator", "var": "c:data"}
NAME = r"\b(?:weir|WEIR)_\w+"
TOKEN = re.compile(rf"(?P<code>`[^`]+`)|(?P<header><weir/(?P<page>\w+)\.h>)|(?P<name>{NAME})(?P<call>\(\))?|"
                   r"(?P<constant>-E[A-Z][A-Z0-9]+\b|\bNULL\b|\b[A-Za-z]\w*_\w*[A-Za-z]\w*\b)")
ITEM = re.compile(r"(- |\d+\. )")


class Markup:
    """`kinds` has the kind of each name that can be linked, `environment` the variables that weir reads; `report` gets
    the names that do not exist."""

    def __init__(self, kinds, headers, environment, report):
        self.kinds, self.headers, self.environment, self.report = kinds, headers, environment, report

    def render(self, text, *place):
        """A comment; `place`, file and line, is for reports."""
        return "\n\n".join(self._block(block, place) for block in self._blocks(text))

    def inline(self, text, *place):
        out, at = "", 0
        for match in TOKEN.finditer(text):
            # Markup ends at a space, seen or not.
            out += escape(text[at:match.start()])
            out += ("" if out[-1:] in ("", " ", "(") else "\\ ") + self._token(match, *place)
            at = match.end()
            out += "" if text[at:at + 1] in ("", " ", ".", ",", ";", ":", ")") else "\\ "
        return out + escape(text[at:])

    def link_names(self, text):
        """For a page written in Markdown: links the names that stand alone in `code`."""
        def link(match):
            name = match.group(1)
            return f"{{{ROLES[self.kinds[name]]}}}`{name}`" if name in self.kinds else match.group()
        parts = re.split(r"(^```.*?^```\s*?$)", text, flags=re.S | re.M)
        parts[::2] = [re.sub(rf"(?<![`\[])`({NAME})(?:\(\))?`(?![`\]])", link, part) for part in parts[::2]]
        return "".join(parts)

    def _token(self, match, *place):
        if match["code"]:
            name = match["code"].strip("`").removesuffix("()")
            return self._link(name) if name in self.kinds else f"`{match['code']}`"
        if match["header"]:
            if match["page"] not in self.headers:
                self.report(*place, f"there is no header {match['header']}")
            return f":doc:`weir/{match['page']}.h </reference/{match['page']}>`"
        if match["constant"]:
            return f"``{match['constant']}``"
        name = match["name"]
        if name in self.kinds:
            return self._link(name)
        if not name.endswith("_") and name not in self.environment:
            self.report(*place, f"{name} is declared nowhere")
        return f"``{name}``"

    def _link(self, name):
        return f":{ROLES[self.kinds[name]]}:`{name}`"

    def _block(self, lines, place):
        if lines[0].startswith(" "):
            body = textwrap.dedent("\n".join(lines))
            language = "c" if re.search(r"[;{]$", body, re.M) else "text"
            return listing(language, body)
        return self.inline(" ".join(line.strip() for line in lines), *place)

    @staticmethod
    def _blocks(text):
        """The lines of each paragraph, list item or indented block."""
        blocks, in_item, gap = [], False, False
        for line in text.split("\n"):
            if not line:
                gap = True
                continue
            indented = line.startswith("  ")
            if blocks and indented and blocks[-1][0].startswith(" "):
                blocks[-1] += [""] * gap + [line]
            elif ITEM.match(line) or gap or not blocks or (indented and not in_item) or \
                    (not indented and blocks[-1][0].startswith(" ")):
                blocks.append([line])
                in_item = bool(ITEM.match(line))
            else:
                blocks[-1].append(line)
            gap = False
        return blocks


def escape(text):
    return re.sub(r"([\\*`|_])", r"\\\1", text)


def indent(text):
    return textwrap.indent(text, "   ")


def listing(language, text):
    return f".. code-block:: {language}\n\n{indent(text)}"
