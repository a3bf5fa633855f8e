"""The text of a public header: its comments, and the statements they stand at.

A comment directly above a statement belongs to it, one behind it on the same line as well. A statement without a
comment directly below another one shares the comment of that one. `/* Title ---- */` starts a section; any other
comment is text between the declarations.
"""
import dataclasses
import re

COMMENT = re.compile(r"/\*.*?\*/", re.S)
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
SECTION = re.compile(r"^(.*?) -{4,}$")
CONDITIONAL = re.compile(r"\s*#\s*(if|ifdef|ifndef|else|elif|endif|undef|include)\b")


@dataclasses.dataclass
class Comment:
    first: int  # lines, from 1
    last: int
    text: str
    stands_alone: bool  # nothing else is on its first line


@dataclasses.dataclass
class Statement:
    first: int
    last: int
    leading: Comment = None
    trailing: Comment = None


def clean(comment):
    """The text of a comment without its frame; relative indentation stays."""
    lines = re.sub(r"^/\*\*?|\*/$", "", comment).split("\n")
    lines[1:] = [re.sub(r"^\s*\*( |$)", "", line) if re.match(r"\s*\*( |$)", line) else line.strip() for line in lines[1:]]
    lines[0] = lines[0].strip()
    return "\n".join(line.rstrip() for line in lines).strip("\n").rstrip()


def blank(match):
    """As many spaces; lines, also continued ones, stay as they are."""
    return re.sub(r"(?!\\\n)[^\n]", " ", match.group())


class Header:
    def __init__(self, path):
        self.path = path
        source = path.read_text()
        self.lines = source.split("\n")
        self.comments = [self._comment(source, match) for match in COMMENT.finditer(source)]
        self.code = STRING.sub(blank, COMMENT.sub(blank, source)).split("\n")
        self.role = self.comments[1].text if len(self.comments) > 1 else ""
        self.statements = self.attach(self._split(), self.comments[2:])

    @staticmethod
    def _comment(source, match):
        first = source.count("\n", 0, match.start()) + 1
        last = first + match.group().count("\n")
        before = source[source.rfind("\n", 0, match.start()) + 1:match.start()]
        return Comment(first, last, clean(match.group()), not before.strip())

    def _split(self):
        """The statements outside of all braces; a directive of the preprocessor is one."""
        statements, start, depth, has_body = [], None, 0, False
        continued = False
        for number, line in enumerate(self.code, 1):
            if continued or (start is None and line.lstrip().startswith("#")):
                if not continued and not CONDITIONAL.match(line):
                    statements.append(Statement(number, number))
                elif continued and statements and statements[-1].last == number - 1:
                    statements[-1].last = number
                continued = line.endswith("\\")
                continue
            if line.lstrip().startswith("#"):
                continued = line.endswith("\\")
                continue
            if start is None and re.fullmatch(r"\s*WEIR_(BEGIN|END)_DECLS\s*", line):
                continue
            for character in line:
                if character.isspace():
                    continue
                if start is None:
                    start, has_body = number, False
                depth += (character in "{(") - (character in "})")
                if character == "{" and depth == 1:
                    opened = "\n".join(self.code[start - 1:number])
                    has_body = not re.match(r"\s*(typedef|struct|union|enum)\b", opened)
                if depth == 0 and (character == ";" or (character == "}" and has_body)):
                    statements.append(Statement(start, number))
                    start = None
            if start == number and depth == 0 and re.fullmatch(r"[A-Z_]+\(.*\)\s*", line):
                statements.append(Statement(number, number))  # a macro that declares
                start = None
        return statements

    def attach(self, statements, comments):
        """Gives each statement its comments."""
        for statement in statements:
            for comment in comments:
                if comment.stands_alone and comment.last < statement.first and self._touch(comment.last, statement.first):
                    statement.leading = comment
                elif not comment.stands_alone and comment.first == statement.last:
                    statement.trailing = comment
        return statements

    def _touch(self, last, first):
        """Whether only conditionals are between two lines."""
        return all(CONDITIONAL.match(line) for line in self.code[last:first - 1])

    def code_of(self, statement):
        return "\n".join(self.code[statement.first - 1:statement.last])

    def source_of(self, statement):
        return "\n".join(self.lines[statement.first - 1:statement.last])

    def follows(self, statement, previous):
        """Whether a statement is directly below another one, without a comment of its own."""
        return statement.leading is None and self._touch(previous.last, statement.first)

    def parts(self, first, last, separator):
        """The statements inside the braces of a struct or enum that spans the lines first to last; those of an unnamed union
        in it as well."""
        parts, start, depth = [], None, 0
        for number in range(first, last + 1):
            for character in self.code[number - 1]:
                depth += (character == "{") - (character == "}")
                if character in "{}":
                    if start and depth == 0:  # the last constant needs no comma
                        parts.append(Statement(start, start))
                    start = None
                elif depth > 0 and not character.isspace():
                    start = start or number
                    if character == separator:
                        parts.append(Statement(start, number))
                        start = None
            if self.code[number - 1].lstrip().startswith("#"):
                start = None
        inside = [comment for comment in self.comments if first <= comment.first and comment.last <= last]
        return self.attach(parts, inside)

    def texts(self):
        """Comments that belong to no statement, with True for those that start a section."""
        taken = {id(comment) for statement in self.statements for comment in (statement.leading, statement.trailing)}
        for comment in self.comments[2:]:
            inside = any(statement.first <= comment.first <= statement.last for statement in self.statements)
            section = SECTION.match(comment.text)
            if section:
                yield comment, section.group(1)
            elif id(comment) not in taken and not inside:
                yield comment, None
