"""The public declarations, from Doxygen's XML."""
import dataclasses
import re
import xml.etree.ElementTree as ElementTree


@dataclasses.dataclass
class Declaration:
    kind: str  # a directive of Sphinx's domain for C
    name: str
    signature: str
    header: str
    line: int
    value: str = ""
    members: list = dataclasses.field(default_factory=list)

    @property
    def is_forward(self):
        """An incomplete type: another header may define the struct."""
        return self.kind == "type" and bool(re.fullmatch(rf"(struct|union|enum) {self.name} {self.name}", self.signature))

    def complete(self):
        """Makes the entry of an incomplete type one of the type itself."""
        if self.is_forward:
            self.kind, self.signature = self.signature.split()[0], self.name

    def is_in(self, code):
        """Whether a statement of a header declares it."""
        name = re.escape(self.name)
        patterns = {"function": rf"^(?!#)[^{{(]*\b{name}\s*\(", "macro": rf"^\s*#\s*define {name}\b",
                    "type": rf"^typedef\b.*(\b{name};|\(\*{name}\))", "var": rf"\bextern\b.*\b{name}\b.*;",
                    "struct": rf"\bstruct\b[^;{{]*\b{name} {{", "union": rf"\bunion {name} {{", "enum": rf"\benum {name} {{"}
        if self.kind == "enum" and not self.name:
            return code.startswith("enum {") and bool(re.search(rf"\b{self.members[0].name}\b", code))
        return re.search(patterns[self.kind], code, re.S) is not None

    def is_in_part(self, code):
        """Whether it is a field or constant of that part of a struct or enum."""
        name = re.escape(self.name)
        if self.kind == "enumerator":
            return re.match(rf"\s*{name}\b", code) is not None
        if "(*" in code:
            return re.search(rf"\(\*{name}\)", code) is not None
        return re.search(rf"\b{name}\s*(\[[^;]*|:[^;]*)?[,;]", code) is not None


def text_of(element):
    return re.sub(r"\s+", " ", "".join(element.itertext())).strip() if element is not None else ""


def tidy(text):
    text = re.sub(r"\w+::@", "@union", text)
    text = re.sub(r"\b(static|inline|extern)\b", "", text)
    text = re.sub(r"(?<=[\w)])\(\*", " (*", text)
    text = re.sub(r"\s+", " ", text).strip()
    return re.sub(r"\* (?=[\w(*)])", "*", text)


def place(element):
    location = element.find("location")
    file = location.get("declfile") or location.get("file")
    line = int(location.get("declline") or location.get("line"))
    return file.rsplit("/", 1)[-1], line


def read_member(member, kind):
    name = member.findtext("name")
    type_text = text_of(member.find("type"))
    arguments = text_of(member.find("argsstring"))
    if member.find("bitfield") is not None:
        arguments += f" : {text_of(member.find('bitfield'))}"
    header, line = place(member)
    return Declaration(kind, name, tidy(f"{type_text} {name}{arguments}"), header, line)


def read_macro(member):
    declaration = read_member(member, "macro")
    parameters = [text_of(parameter.find("defname")) for parameter in member.findall("param")]
    declaration.signature = declaration.name + (f"({', '.join(parameters)})" if member.find("param") is not None else "")
    declaration.value = "" if parameters else member.findtext("initializer") or ""
    return declaration


def read_enum(member):
    declaration = read_member(member, "enum")
    if declaration.name.startswith("@"):
        declaration.name = ""
    declaration.signature = declaration.name
    for value in member.findall("enumvalue"):
        initial = text_of(value.find("initializer"))
        declaration.members.append(Declaration("enumerator", value.findtext("name"), value.findtext("name"),
                                               declaration.header, 0, value=initial.lstrip("= ")))
    return declaration


READERS = {"function": lambda member: read_member(member, "function"), "variable": lambda member: read_member(member, "var"),
           "typedef": lambda member: read_member(member, "type"), "define": read_macro, "enum": read_enum}


def read_compound(compound):
    """A struct or union, or the members of a file."""
    kind = compound.get("kind")
    if kind in ("struct", "union"):
        name = compound.findtext("compoundname")
        header, line = place(compound)
        members = [read_member(member, "member") for member in compound.iter("memberdef")
                   if not member.findtext("name").startswith("@")]  # an unnamed union: its fields follow
        yield Declaration(kind, name, name, header, line, members=members)
    elif kind == "file":
        for member in compound.iter("memberdef"):
            yield READERS[member.get("kind")](member)


def read(folder):
    """All that a user may name."""
    found = []
    for path in sorted(folder.glob("*.xml")):
        for compound in ElementTree.parse(path).iter("compounddef"):
            found += read_compound(compound)
    public = [declaration for declaration in found
              if re.match(r"(weir|WEIR)_(?!_)", declaration.name) and not declaration.name.endswith("_H")
              and "." not in declaration.name and "::" not in declaration.name]
    public += [declaration for declaration in found if declaration.kind == "enum" and not declaration.name
               and any(re.match(r"WEIR_(?!_)", member.name) for member in declaration.members)]
    return public
