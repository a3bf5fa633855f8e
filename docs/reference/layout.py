"""What stands on the page of each header, in the order of the header: sections, text, and entries of declarations."""
import dataclasses

import declarations
import header


@dataclasses.dataclass
class Section:
    line: int
    title: str


@dataclasses.dataclass
class Text:
    line: int
    text: str


@dataclasses.dataclass
class Entry:
    """Declarations of one kind that share their comment."""
    line: int
    statement: header.Statement
    comment: header.Comment
    declarations: list


@dataclasses.dataclass
class Internal:
    """A statement that declares nothing for users; a text before it is not for them, either."""
    line: int


@dataclasses.dataclass
class Occurrence:
    header: str
    statement: header.Statement
    comment: header.Comment
    declaration: declarations.Declaration

    @property
    def rank(self):
        """Which of several declarations of one name has the entry: a definition, or else the one with a comment of its own,
        or else the one in the header of that name."""
        own = self.statement.leading or self.statement.trailing
        return (self.declaration.is_forward, self.comment is None, own is None, self.declaration.name != f"weir_{self.header}")


def effective_comments(text):
    """Each statement with its comment, or that of the one directly above it."""
    previous, comment = None, None
    for statement in text.statements:
        own = statement.leading or statement.trailing
        if own is not None or previous is None or not text.follows(statement, previous):
            comment = own
        previous = statement
        yield statement, comment


def find_occurrences(headers, public):
    """The declarations of each name with their statements. Doxygen's line is right unless a long macro was before it."""
    occurrences = {}
    for name, text in headers.items():
        commented = [(statement, comment, text.code_of(statement)) for statement, comment in effective_comments(text)]
        for declaration in public:
            if declaration.header != f"{name}.h":
                continue
            places = [(one, comment) for one, comment, code in commented if declaration.is_in(code)] or \
                     [(one, comment) for one, comment, _ in commented if one.first <= declaration.line <= one.last]
            if not places:
                raise LookupError(f"{declaration.header} has no statement for {declaration.name}")
            found = Occurrence(name, *places[0], declaration)
            occurrences.setdefault(declaration.name or id(declaration), []).append(found)
    return occurrences


def lay_out(headers, public):
    """The items of each header's page."""
    pages = {name: [] for name in headers}
    occurrences = find_occurrences(headers, public).values()
    chosen = [min(same, key=lambda one: one.rank) for same in occurrences]
    declaring = {(one.header, one.statement.first) for same in occurrences for one in same}
    for one in chosen:
        one.declaration.complete()
    for one in sorted(chosen, key=lambda one: (one.statement.first, one.declaration.line)):
        page = pages[one.header]
        if page and page[-1].comment is one.comment and one.comment is not None and \
                page[-1].declarations[0].kind == one.declaration.kind:
            page[-1].declarations.append(one.declaration)
        else:
            page.append(Entry(one.statement.first, one.statement, one.comment, [one.declaration]))
    for name, text in headers.items():
        pages[name] += [Internal(one.first) for one in text.statements if (name, one.first) not in declaring]
        pages[name] += [Section(comment.first, title) if title else Text(comment.first, comment.text)
                        for comment, title in text.texts()]
        pages[name] = prune(sorted(pages[name], key=lambda item: item.line))
    return pages


def prune(items):
    """Without sections that have no entry, and texts about internals."""
    kept, section = [], None
    for at, item in enumerate(items):
        if isinstance(item, Section):
            section = item
        elif isinstance(item, Entry) or (isinstance(item, Text) and introduces(items[at + 1:])):
            kept += [section] if section else []
            kept.append(item)
            section = None
    return kept


def introduces(following):
    return isinstance(next((item for item in following if isinstance(item, (Entry, Internal))), None), Entry)
