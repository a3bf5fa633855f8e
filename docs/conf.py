"""Sphinx, for the manual that tools/docs assembles in build/docs/source."""
import os
import pathlib
import re

from sphinx import addnodes
from sphinx.domains.c import CObject

project = "weir"
header = pathlib.Path(os.environ["WEIR_ROOT"], "include/weir/version.h").read_text()
version = release = ".".join(re.findall(r"define WEIR_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header))
copyright = "the weir authors, MIT licence"  # noqa: A001

extensions = ["myst_parser"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]
exclude_patterns = []
primary_domain = "c"
highlight_language = "none"
toc_object_entries_show_parents = "hide"

# Every name of weir's that is mentioned must exist; the C library has no page here.
nitpicky = True
nitpick_ignore = [("c:identifier", "weir_decoder_pass")]  # incomplete for users
nitpick_ignore_regex = [("c:.*", "(?!weir|WEIR).*")]

html_theme = "furo"
html_title = f"weir {version}"
html_static_path = ["_static"]
html_css_files = ["weir.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "tango"
pygments_dark_style = "native"


def list_entries():
    """Has the contents of a page list its declarations, as newer versions of Sphinx do by themselves."""
    def parts(self, signature):
        return (signature.next_node(addnodes.desc_name).astext(),)

    def name(self, signature):
        return signature["_toc_parts"][0] if self.objtype not in ("member", "enumerator") else ""

    CObject._object_hierarchy_parts = parts
    CObject._toc_entry_name = name


def mend_theme(app, exception):
    """Debian's furo has its script and its style in parts: without a bundle the script does not load, and without the
    colours for the system's choice of a dark theme half of a page is light."""
    static = pathlib.Path(app.outdir, "_static")
    script, style = static / "scripts/furo.js", static / "styles/furo.css"
    if exception or not script.exists():
        return
    part = 'import Gumshoe from "./gumshoe-patched.js";'
    if part in script.read_text():
        bundle = script.read_text().replace(part, (static / "scripts/gumshoe-patched.js").read_text())
        script.write_text(bundle)
    if "prefers-color-scheme" not in style.read_text():
        dark = re.search(r'body\[data-theme="dark"\] \{([^}]*)\}', style.read_text()).group(1)
        with style.open("a") as out:
            out.write(f'@media screen and (prefers-color-scheme: dark) {{ body:not([data-theme="light"]) {{{dark}}} }}\n')


def setup(app):
    list_entries()
    app.connect("build-finished", mend_theme)
