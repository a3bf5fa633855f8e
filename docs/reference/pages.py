"""Writes the reference: a page for each public header, one for each topic, and the page that leads to them.

A problem in the headers (a declaration without a comment, a name that does not exist) is reported like a compiler's error.
"""
import re

import declarations
import header
import layout
import markup

INDEX = """One page for each public header, by topic. Functions, types and macros stand in the order of the header; the
:ref:`index <genindex>` has all of them by name.
"""


def read_topics(path):
    lines = [line for line in path.read_text().split("\n") if line and not line.startswith("#")]
    return {topic: names.split() for topic, names in (line.split(":") for line in lines)}


def read_environment(root):
    """The variables that weir reads."""
    sources = "".join(path.read_text() for path in (root / "src").rglob("*.c"))
    return set(re.findall(r'(?:getenv\(|weir_env_words \w+ = \{\s*)"(\w+)"', sources))


def heading(title, line):
    return f"{title}\n{line * len(title)}"


def toctree(pages):
    return "\n".join([".. toctree::", "   :hidden:", "", *(f"   {page}" for page in pages), ""])


class Reference:
    def __init__(self, root, xml):
        self.root, self.problems, self.topic_pages = root, [], []
        self.headers = {path.stem: header.Header(path) for path in sorted((root / "include/weir").glob("*.h"))}
        self.topics = self._topics(root / "docs/reference/topics")
        public = declarations.read(xml)
        self.pages = layout.lay_out(self.headers, public)
        self.markup = markup.Markup(self._kinds(), self.headers, read_environment(root), self.report)

    def report(self, path, line, problem):
        self.problems.append(f"{path.relative_to(self.root)}:{line}: {problem}")

    def _topics(self, path):
        topics = read_topics(path)
        listed = [name for names in topics.values() for name in names]
        for name in sorted(set(self.headers) - set(listed)):
            self.report(path, 1, f"{name}.h has no topic")
        for name in sorted(set(listed) - set(self.headers)):
            self.report(path, 1, f"{name}.h does not exist")
        return {topic: [name for name in names if name in self.headers] for topic, names in topics.items()}

    def _kinds(self):
        kinds = {}
        for items in self.pages.values():
            for entry in items:
                for declaration in getattr(entry, "declarations", []):
                    kinds[declaration.name] = declaration.kind
                    if declaration.kind == "enum":
                        kinds.update({member.name: "enumerator" for member in declaration.members})
        return kinds

    def write(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        index = [heading("Reference", "="), INDEX]
        for topic, names in self.topics.items():
            page = re.sub(r"\W+", "-", "topic-" + topic.lower())
            rows = "\n".join(f":doc:`{name}.h <{name}>`\n   {self._role(name)}\n" for name in names)
            (folder / f"{page}.rst").write_text("\n".join([heading(topic, "="), "", rows, toctree(names)]))
            index.append(f"{heading(topic, '-')}\n\n{rows}")
            self.topic_pages.append(page)
        (folder / "index.rst").write_text("\n".join(index))
        for name in self.headers:
            (folder / f"{name}.rst").write_text(self._page(name))

    def _role(self, name):
        """The first paragraph of a header."""
        text = self.headers[name]
        return self.markup.inline(" ".join(text.role.split("\n\n")[0].split()), text.path, 2)

    def _page(self, name):
        text = self.headers[name]
        out = [heading(f"{name}.h", "="), self.markup.render(text.role, text.path, 2),
               markup.listing("c", f"#include <weir/{name}.h>")]
        for item in self.pages[name]:
            if isinstance(item, layout.Section):
                out.append(heading(self.markup.inline(item.title, text.path, item.line), "-"))
            elif isinstance(item, layout.Text):
                out.append(self.markup.render(item.text, text.path, item.line))
            else:
                out.append(self._entry(text, item))
        return "\n\n".join(out) + "\n"

    def _entry(self, text, entry):
        if entry.comment is None:
            for declaration in entry.declarations:
                self.report(text.path, entry.line, f"{declaration.name or 'an enum'} has no comment")
        body = [self._comment(text, entry.comment)]
        for declaration in entry.declarations:
            if declaration.kind in ("struct", "union"):
                body.append(self._members(text, entry, declaration, ";"))
            elif declaration.kind == "enum":
                body.append(self._members(text, entry, declaration, ","))
            elif declaration.value and len(entry.declarations) == 1:
                body.append(f"Value: ``{declaration.value}``")
            elif declaration.signature.endswith("(X)"):
                body.append(markup.listing("c", re.sub(r"\s*\\$", "", text.source_of(entry.statement), flags=re.M)))
        if not entry.declarations[0].name:
            return "\n\n".join(body)  # an enum that is only its constants
        return directive(entry.declarations[0].kind, [one.signature for one in entry.declarations], body)

    def _comment(self, text, comment):
        return self.markup.render(comment.text, text.path, comment.first) if comment else ""

    def _members(self, text, entry, declaration, separator):
        """The fields of a struct or the constants of an enum, those of one statement together."""
        out, seen = [], set()
        parts = text.parts(entry.statement.first, entry.statement.last, separator)
        for part in parts:
            members = [one for one in declaration.members if one.is_in_part(text.code_of(part)) and one.name not in seen]
            if not members:
                continue
            seen.update(one.name for one in members)
            body = [self._comment(text, part.trailing)]
            if part.leading is not None and self._is_alone(text, part, parts):
                body.insert(0, self._comment(text, part.leading))
            elif part.leading is not None:
                out.append(self._comment(text, part.leading))
            out.append(directive(members[0].kind, [one.signature for one in members], body))
        return "\n\n".join(out + self._made_by_macro(text, [one for one in declaration.members if one.name not in seen]))

    @staticmethod
    def _made_by_macro(text, members):
        """Constants of a table, X(NAME, number, "text")."""
        explained = dict(re.findall(r'X\((\w+), [^,]+, "([^"]*)"\)', "\n".join(text.lines)))
        out = [directive(one.kind, [one.signature], [f"``{one.value}``: {markup.escape(explained[one.name])}"])
               for one in members if one.name in explained]
        others = [one for one in members if one.name not in explained]
        return out + ([directive(others[0].kind, [one.signature for one in others], [])] if others else [])

    @staticmethod
    def _is_alone(text, part, parts):
        """Whether the comment above a field is for that one only, and not for those below it as well."""
        following = next((one for one in parts if one.first > part.last), None)
        return following is None or not text.follows(following, part)


def directive(kind, signatures, body):
    head = f".. c:{kind}:: " + ("\n" + " " * 12).join(signatures)
    return "\n\n".join([head, *(markup.indent(part) for part in body if part)])
