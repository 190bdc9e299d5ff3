"""What a pt2 archive (torch.export) would run. Its graph is JSON, and JSON is not harmless here.

torch evaluates two kinds of strings in that file as Python (guards, and symbolic sizes through sympy), and calls whatever the
graph's nodes name, including functions that are no tensor operators. MLflow's own check looks for pickles only. So: operators
from known namespaces, size expressions and guards made of arithmetic, and plain containers around the inputs; anything else
needs trust. Weights, constants and sample inputs may be pickles: those that build anything but tensors are named here too.
"""

from __future__ import annotations

import ast
import io
import json
import pickletools
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from audit.errors import ModelError
from audit.text import printable

_TARGET = re.compile(r"torch\.ops\.(?P<space>\w+)\.(?P<name>\w+)(\.\w+)?")
_SPACES = frozenset({"aten", "prims", "torchvision", "quantized", "quantized_decomposed"})
# from_file maps any path into memory, and creates it.
_REFUSED = frozenset({"from_file"})
_HIGHER_ORDER = frozenset(
    {"cond", "map_impl", "scan", "while_loop", "wrap_with_set_grad_enabled", "wrap_with_autocast", "invoke_subgraph"}
)
_SIZE_OPERATORS = "add and_ eq floordiv ge getitem gt le lshift lt mod mul ne neg or_ pos pow rshift sub truediv"
_PLAIN_TARGETS = frozenset(
    [f"_operator.{name}" for name in _SIZE_OPERATORS.split()]
    + [f"torch.sym_{name}" for name in ("int", "float", "max", "min", "not", "ite")]
    + ["torch._sym_sqrt", "math.trunc"]
)

_SYMPY = "Add And Eq Equality Float Ge GreaterThan Gt Integer Le LessThan Lt Max Min Mod Mul Ne Not Or Pow Rational"
_SYMPY_MORE = "StrictGreaterThan StrictLessThan Symbol Unequality ceiling floor"
_TORCH_SIZES = "CeilDiv CeilToInt CleanDiv FloatPow FloatTrueDiv FloorDiv FloorToInt Identity IntTrueDiv LShift ModularIndexing"
_TORCH_SIZES_MORE = "PowByNatural PythonMod RShift RoundDecimal RoundToInt ToFloat TruncToFloat TruncToInt Where"
_FUNCTIONS = frozenset(f"{_SYMPY} {_SYMPY_MORE} {_TORCH_SIZES} {_TORCH_SIZES_MORE}".split())
_METHODS = frozenset({"size", "stride", "storage_offset", "dim", "numel"})
_MATH = frozenset({"isnan", "inf", "trunc", "ceil", "floor"})
_ALLOWED_NODES = (
    *(ast.Expression, ast.BoolOp, ast.boolop, ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop, ast.Compare, ast.cmpop),
    *(ast.Call, ast.keyword, ast.Name, ast.Load, ast.Constant, ast.Subscript, ast.Attribute),
)
# The only strings: names of symbols and inputs, and the digits of Float('0.5').
_STRING = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|-?\d+(\.\d*)?(e[+-]?\d+)?")
_SYMBOL = re.compile(r"[a-z]+\d+")
_LONGEST_EXPRESSION = 20_000

_CONTAINERS = frozenset({None, "builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict"})
# What the pickle of a tensor, or of plain containers of tensors, is made of.
_TENSOR_PARTS = re.compile(
    r"torch\._utils _rebuild_(tensor_v2|parameter)|collections OrderedDict|torch(\.storage)? \w+Storage|torch (device|Size)"
    r"|torch\.serialization _get_layout"
)
# torch stores its archives unpacked. Much more than that is an archive made to fill the memory.
MOST_RATIO = 100
MOST_ENTRIES = 100_000
_RECORD = re.compile(
    r"(?P<root>[^/]+)/(archive_format|archive_version|byteorder|version|\.data/[\w.-]+|extra/.*|models/[^/]+\.json"
    r"|data/(weights|constants)/[\w.-]+|data/sample_inputs/[^/]+\.pt)"
)


def code_in(path: Path) -> tuple[str, ...]:
    """Say what loading the archive would run besides tensor operators, in words.

    Raises:
        ModelError: the file is no archive, unpacks to far more than it is, or its graph is not JSON.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            _check_size(archive, path)
            names = [info.filename for info in archive.infolist() if not info.is_dir()]
            if twice := [name for name, count in Counter(names).items() if count > 1]:
                return (f"{path.name} holds {printable(twice[0], 80)} twice, so that readers may see different content",)
            if strange := [name for name in names if not _RECORD.fullmatch(name) or ".." in name.split("/")]:
                return (f"{path.name} holds {printable(strange[0], 80)}, which is no part of a plain exported program",)
            graphs = {name: json.loads(archive.read(name)) for name in names if "/models/" in name}
            pickled = tuple(_pickled(archive, names, path.name))
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError):
        raise ModelError(f"{path.name} is not a pt2 archive (torch.export), or is damaged; log the model again") from None
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise ModelError(f"the graph inside {path.name} is not readable; log the model again") from None
    if not graphs:
        raise ModelError(f"{path.name} holds no exported program; log the model again")
    found = dict.fromkeys(reason for graph in graphs.values() for reason in _reasons(graph))
    return (*pickled, *tuple(found)[:5])


def _check_size(archive: zipfile.ZipFile, path: Path) -> None:
    entries, packed = archive.infolist(), path.stat().st_size
    unpacked = sum(info.file_size for info in entries)
    if len(entries) > MOST_ENTRIES:
        raise ModelError(f"{path.name} has {len(entries)} entries, more than any exported program; log the model again")
    if unpacked > MOST_RATIO * packed:
        raise ModelError(
            f"{path.name} has {packed / 1e6:.3g} MB and would unpack to {unpacked / 1e6:.3g} MB, as no exported program does; "
            "log the model again"
        )


def _pickled(archive: zipfile.ZipFile, names: list[str], file: str) -> Iterator[str]:
    """Name the records that would be unpickled and build something else than tensors."""
    described = {name: json.loads(archive.read(name)) for name in names if name.endswith("_config.json")}
    raw, unpickled = set[str](), set[str]()
    for name, content in described.items():
        for entry in content["config"].values():
            # Only these two are read as plain bytes, and one record may be named by several entries.
            plain = entry["use_pickle"] is False and entry["path_name"].startswith(("weight_", "tensor_"))
            (raw if plain else unpickled).add(f"{name.rpartition('/')[0]}/{entry['path_name']}")
    raw -= unpickled
    for name in names:
        if re.search(r"/data/(weights|constants|sample_inputs)/", name) and name not in described and name not in raw:
            try:
                named = _globals(archive.read(name))
            except (ValueError, zipfile.BadZipFile):
                named = {"an object that cannot be looked into"}
            if foreign := sorted(each for each in named if not _TENSOR_PARTS.fullmatch(each)):
                yield f"the pickle {printable(name.partition('/')[2], 80)} in {file}, which builds {printable(foreign[0], 80)}"


def _globals(content: bytes) -> set[str]:
    """What the pickle in a file that torch.save wrote would call, as `module name`, without loading it."""
    found: set[str] = set()
    with zipfile.ZipFile(io.BytesIO(content)) as inner:
        pickles = [name for name in inner.namelist() if name.endswith(".pkl")]
        # A second one (constants.pkl) makes it a TorchScript archive, which holds code.
        if (
            len(pickles) != 1
            or not pickles[0].endswith("/data.pkl")
            or inner.getinfo(pickles[0]).file_size > MOST_RATIO * max(len(content), 1 << 20)
        ):
            raise ValueError("not what torch.save writes")
        strings: list[str] = []
        for opcode, argument, _ in pickletools.genops(inner.read(pickles[0])):
            if opcode.name in ("GLOBAL", "INST"):
                found.add(str(argument))
            elif opcode.name == "STACK_GLOBAL":
                # Its operands are on the stack; what is not plainly two strings is refused.
                found.add(" ".join(strings[-2:]) if len(strings) >= 2 else "an unknown name")
                strings = []
            elif opcode.name.startswith("EXT"):
                found.add("an unknown name")
            elif "UNICODE" in opcode.name or "STRING" in opcode.name:
                strings.append(str(argument))
            elif opcode.name not in ("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"):
                strings = []
    return found


def _reasons(value: object) -> Iterator[str]:
    if isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _reasons(item)
    elif isinstance(value, dict):
        for key, item in cast("dict[str, object]", value).items():
            if key == "target" and not _known_target(item):
                yield f"its graph calls {printable(str(item), 80)}, which is not a known tensor operator"
            elif key == "expr_str" and not _is_arithmetic(item):
                yield f"a size in its graph is the Python expression {printable(str(item), 80)!r}"
            elif key == "guards_code":
                guards = cast("list[object]", item) if isinstance(item, list) else [item]
                yield from (f"a guard is the Python expression {printable(str(g), 80)!r}" for g in guards if not _is_arithmetic(g))
            elif key in ("in_spec", "out_spec") and isinstance(item, str) and not _plain_containers(item):
                yield "its inputs or outputs are containers of other Python classes"
            yield from _reasons(item)


def _known_target(target: object) -> bool:
    if not isinstance(target, str):
        return False
    if match := _TARGET.fullmatch(target):
        if match["space"] == "higher_order":
            return match["name"] in _HIGHER_ORDER
        return match["space"] in _SPACES and match["name"] not in _REFUSED and not match["name"].startswith("__")
    return target in _PLAIN_TARGETS


def _is_arithmetic(text: object) -> bool:
    """Whether a string is arithmetic over symbols and sizes: no other call, attribute, name or string."""
    if not isinstance(text, str) or len(text) > _LONGEST_EXPRESSION:
        return False
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return all(_allowed(node) for node in ast.walk(tree)) and "\n" not in text


def _allowed(node: ast.AST) -> bool:
    if not isinstance(node, _ALLOWED_NODES):
        return False
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) or (isinstance(node.value, str) and _STRING.fullmatch(node.value) is not None)
    if isinstance(node, ast.Name):
        return node.id in _FUNCTIONS or node.id in ("L", "math", "inf", "args") or _SYMBOL.fullmatch(node.id) is not None
    if isinstance(node, ast.Attribute):
        return node.attr in _METHODS or (isinstance(node.value, ast.Name) and node.value.id == "math" and node.attr in _MATH)
    if isinstance(node, ast.Call):
        # Elsewhere than in Symbol('s77') and Float('0.5'), sympy would parse a string, and so evaluate it.
        called = node.func.id if isinstance(node.func, ast.Name) else ""
        arguments = (*node.args, *(keyword.value for keyword in node.keywords))
        strings = any(isinstance(argument, ast.Constant) and isinstance(argument.value, str) for argument in arguments)
        return (isinstance(node.func, ast.Attribute) or called in _FUNCTIONS) and (called in ("Symbol", "Float") or not strings)
    return True


def _plain_containers(text: str) -> bool:
    def plain(node: object) -> bool:
        if not isinstance(node, dict):
            return False
        spec = cast("dict[str, object]", node)
        children = spec.get("children_spec", [])
        return (
            spec.get("type") in _CONTAINERS
            and _plain_context(spec.get("context"))
            and isinstance(children, list)
            and all(plain(child) for child in cast("list[object]", children))
        )

    try:
        parsed = json.loads(text) if text else [1, {"type": None, "context": None, "children_spec": []}]
    except (ValueError, RecursionError):
        return False
    return isinstance(parsed, list) and len(cast("list[object]", parsed)) == 2 and plain(parsed[1])


def _plain_context(context: object) -> bool:
    """Whether a container's context is a JSON string of keys; an object in it would name a class to import."""
    if context is None:
        return True
    try:
        keys = json.loads(context) if isinstance(context, str) else context
    except (ValueError, RecursionError):
        return False
    return keys is None or (isinstance(keys, list) and all(isinstance(key, str | int) for key in cast("list[object]", keys)))
