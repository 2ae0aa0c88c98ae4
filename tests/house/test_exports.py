"""`__all__` says what is public: complete, true and sorted, in every module."""

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "labkit").rglob("*.py"))


def exported(tree):
    """The names of a literal `__all__`, or None if there is none."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
                return ast.literal_eval(node.value)
    return None


def defined(tree):
    """The public classes and functions that a module defines at its top; a command belongs to its `app` instead."""
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = [node for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")]
    return {node.name for node in nodes if not any(ast.unparse(by).startswith("app.") for by in node.decorator_list)}


def rank(name):
    """Constants, then classes, then the rest: the order that ruff's RUF022 keeps."""
    constant = len(name) > 1 and name.isupper()
    return (0 if constant else 1 if name[0].isupper() else 2, name)


def faults(text):
    tree = ast.parse(text)
    names = exported(tree)
    if names is None:
        return ["there is no __all__"]
    missing = sorted(defined(tree) - set(names))
    order = list(names) in (sorted(names), sorted(names, key=rank))
    return [f"{name} is public but not in __all__" for name in missing] + ([] if order else ["__all__ is not sorted"])


def test_the_modules_were_found():
    assert len(FILES) > 30


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_all_that_is_public_is_exported_in_order(file):
    assert faults(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_all_that_is_exported_exists(file):
    parts = file.relative_to(ROOT).with_suffix("").parts
    module = importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("def f(): ...", "there is no __all__"),
        ("__all__ = ['f']\ndef f(): ...\nclass C: ...", "C is public but not in __all__"),
        ("__all__ = ['g', 'f']\ndef f(): ...\nasync def g(): ...", "__all__ is not sorted"),
    ],
)
def test_the_rule_finds_a_fault(text, fault):
    assert faults(text) == [fault]


def test_the_rule_lets_private_and_imported_names_be():
    assert (
        faults("from a import b\n__all__ = ['LIMIT', 'C', 'f']\nLIMIT = 1\nclass C: ...\ndef f(): ...\ndef _g(): ...")
        == []
    )
