"""Every message with which the source refuses or warns, as a pattern: `python -m tests.docs.messages` lists them."""

import ast
import functools
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pamc
import pamc.errors

PACKAGE = Path(pamc.__file__).parent
HOLE = "…"


@dataclass(frozen=True)
class Message:
    """One place in the source: the class, the text with … for what varies, the module and the line."""

    error: str
    text: str
    module: str
    line: int


@functools.cache
def messages():
    """Return the messages of all errors and warnings of pamc, in the order of the source."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        known = _texts_by_name(tree)
        module = str(path.relative_to(PACKAGE))
        for node in ast.walk(tree):
            for error, text in _told(node, known):
                if text.strip(f"{HOLE} .:,"):
                    found.append(Message(error, text, module, node.lineno))
    return found


def _texts_by_name(tree):
    """Return the texts that names of a module stand for: what is assigned to them, what such functions return."""
    known = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.NamedExpr):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    known.setdefault(target.id, []).append(node.value)
        elif isinstance(node, ast.FunctionDef):
            returned = [part.value for part in ast.walk(node) if isinstance(part, ast.Return) and part.value]
            known.setdefault(node.name, []).extend(returned)
    return {name: [_text(value) for value in values] for name, values in known.items()}


def _told(node, known):
    """Return the (class, text) of a call that makes an error, or warns; nothing for all other nodes."""
    if not isinstance(node, ast.Call) or not node.args:
        return []
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", None)
    first = node.args[0]
    if name == "_warn":
        return [("DataWarning", _text(first))]
    if name == "UnknownNameError":
        return [(name, f"unknown {_text(first)} {HOLE}: allowed are {HOLE}")]
    if name == "warn" and len(node.args) > 1:
        name = _name(node.args[1])
    elif name not in CLASSES:
        return []
    called = first.func if isinstance(first, ast.Call) else first
    texts = known.get(called.id, []) if isinstance(called, ast.Name) else [_text(first)]
    return [(name, text) for text in texts]


def _name(node):
    return node.id if isinstance(node, ast.Name) else HOLE


def _text(node):
    """Return the text of an expression as far as it is written out."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = node.value
    elif isinstance(node, ast.JoinedStr):
        text = "".join(_text(part) for part in node.values)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        text = _text(node.left) + _text(node.right)
    else:
        text = HOLE
    return re.sub(f"{HOLE}(\\s*{HOLE})+", HOLE, " ".join(text.split()) if " " in text else text)


def _all_classes():
    def below(kind):
        return {kind.__name__}.union(*(below(sub) for sub in kind.__subclasses__()))

    import pamc.distributed.group

    return below(pamc.errors.PamcError) | below(pamc.errors.PamcWarning)


CLASSES = _all_classes()

if __name__ == "__main__":
    for message in messages():
        sys.stdout.write(f"{message.error}\t{message.module}:{message.line}\t{message.text}\n")
