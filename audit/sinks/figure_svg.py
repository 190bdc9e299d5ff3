"""From a matplotlib figure to inline SVG that follows the report: one class per colour role, a title first, no outside styles.

WeasyPrint reads neither page CSS nor `style` inside inline SVG reliably, so every colour and font becomes an attribute; a browser
recolours the same nodes for dark mode through the classes `f-<role>` (fill) and `s-<role>` (stroke).
"""

from __future__ import annotations

import io
import re
import warnings
from xml.etree import ElementTree

from markupsafe import Markup
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

INK, MUTED, RULE, SUBJECT, OTHER, PAPER = "#1b2026", "#56606b", "#dde1e6", "#0a5c9e", "#6f7a86", "#ffffff"
ROLES = {INK: "ink", MUTED: "mut", RULE: "rule", SUBJECT: "subj", OTHER: "oth", PAPER: "paper"}
FONT = "IBM Plex Sans, sans-serif"
_SVG = "{http://www.w3.org/2000/svg}"
_FONT_SHORTHAND = re.compile(r"(?:(?:italic|oblique)\s+)?(?:(?P<weight>\d{3}|bold)\s+)?(?P<size>[\d.]+)px\s")
_DROPPED = {"font-family", "font-style", "font-stretch", "stroke-linejoin", "font-variant"}
_GEOMETRY = ("d", "x", "y", "x1", "x2", "y1", "y2", "width", "height", "points", "transform")


def inline_svg(figure: Figure, *, key: str, alt: str) -> Markup:
    """The figure as one `<svg>` element, to be set into HTML as it is.

    Args:
        figure: what matplotlib drew, in units of 1/72 inch.
        key: a prefix that keeps its ids apart from those of other figures on the page.
        alt: what the figure shows, read aloud instead of it.
    """
    buffer = io.StringIO()
    with warnings.catch_warnings():
        # matplotlib measures text with its own font; a script that font lacks is still set by the reader's.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from", category=UserWarning)
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None})  # type: ignore[no-untyped-call]
    text = buffer.getvalue()
    root = ElementTree.fromstring(text[text.index("<svg") :])
    _drop_metadata(root)
    for element in root.iter():
        _prefix_ids(element, key)
        _style_to_attributes(element, key)
        if element is not root:
            _round(element)
        _classify(element)
    for name in ("width", "height"):
        root.attrib.pop(name, None)
    title = ElementTree.Element(f"{_SVG}title")
    title.text = alt
    root.insert(0, title)
    root.set("role", "img")
    root.set("aria-label", alt)
    # HTML knows no prefixes: one default namespace on the root, plain names below it.
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
    root.set("xmlns", _SVG[1:-1])
    markup = ElementTree.tostring(root, encoding="unicode")
    return Markup(re.sub(r"\s*\n\s*", "\n", markup))


def _drop_metadata(root: ElementTree.Element) -> None:
    for parent in list(root.iter()):
        for child in list(parent):
            only_style = child.tag == f"{_SVG}defs" and all(item.tag == f"{_SVG}style" for item in child)
            if child.tag == f"{_SVG}metadata" or only_style:
                parent.remove(child)


def _prefix_ids(element: ElementTree.Element, key: str) -> None:
    for name, value in list(element.attrib.items()):
        if name == "id":
            if element.tag == f"{_SVG}g":
                del element.attrib[name]
            else:
                element.set(name, f"{key}-{value}")
        elif name.endswith("href") and value.startswith("#"):
            # The namespaced form would need a declared prefix; the plain one is SVG 2 and understood everywhere.
            del element.attrib[name]
            element.set("href", f"#{key}-{value[1:]}")
        elif "url(#" in value and name != "style":
            element.set(name, value.replace("url(#", f"url(#{key}-"))


def _style_to_attributes(element: ElementTree.Element, key: str) -> None:
    for declaration in element.attrib.pop("style", "").split(";"):
        name, _, value = (part.strip() for part in declaration.partition(":"))
        if name == "font":
            shorthand = _FONT_SHORTHAND.match(value)
            if shorthand is not None:
                element.set("font-size", shorthand["size"])
                # matplotlib's own font has no 600; the report's has no 700.
                if shorthand["weight"] in {"700", "bold"}:
                    element.set("font-weight", "600")
        elif name == "font-weight":
            element.set(name, "600" if value in {"700", "bold"} else "400")
        elif name and name not in _DROPPED:
            element.set(name, value.replace("url(#", f"url(#{key}-"))
    if element.tag == f"{_SVG}text":
        element.set("font-family", FONT)
        if element.get("fill") is None:
            element.set("fill", INK)


def _round(element: ElementTree.Element) -> None:
    for name in _GEOMETRY:
        if name in element.attrib:
            element.set(name, re.sub(r"(\d+\.\d{2})\d+", r"\1", element.attrib[name]).strip())


def _classify(element: ElementTree.Element) -> None:
    classes = [f"{name[0]}-{ROLES[colour]}" for name in ("fill", "stroke") if (colour := element.get(name, "").lower()) in ROLES]
    if classes:
        element.set("class", " ".join(classes))
