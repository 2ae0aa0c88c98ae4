"""Who may import whom. The order of the rooms is that of the design; these tests keep it so."""

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FLOORS = {
    1: ("errors", "devices", "records", "engine"),
    2: ("models", "kernels"),
    3: ("batching", "sharding", "serving"),
    4: ("workloads", "measure"),
    5: ("advise", "monitor", "labs"),
    6: ("ui", "report", "teach", "bench"),
    7: ("cli",),
    8: ("__main__",),
}
FLOOR = {room: floor for floor, rooms in FLOORS.items() for room in rooms}
SIDEWAYS = {("models", "kernels"), ("measure", "workloads"), ("report", "ui")}
WIDGETS = {"ipywidgets", "anywidget", "IPython"}
WITH_WIDGETS = {"ui", "report", "teach"}


@dataclass(frozen=True)
class Import:
    """`line` of `file`, in `room`, imports the module `name`."""

    file: str
    line: int
    room: str
    name: str

    @property
    def allowed(self):
        if self.name.partition(".")[0] in WIDGETS:
            return self.room in WITH_WIDGETS
        target = self.name.split(".")
        if target[0] != "labkit" or len(target) == 1 or target[1] not in FLOOR:
            return True  # another package, or labkit itself (its version)
        here, there = FLOOR[self.room], FLOOR[target[1]]
        below = there < here or here == there == 1
        return target[1] == self.room or below or (self.room, target[1]) in SIDEWAYS


def imports(root):
    """Every import in the package under `root`, wherever it stands in its file."""
    for file in sorted((root / "labkit").rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        room = "errors" if parts == ("labkit", "__init__") else parts[1]  # labkit itself is held to the lowest floor
        package = parts[:-1]
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            for name in names(node, package):
                yield Import(str(file.relative_to(root)), node.lineno, room, name)


def names(node, package):
    """The full names of the modules that an import may load; `from a import b` may load a.b."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = package[: len(package) - node.level + 1] if node.level else ()
        module = ".".join([*base, *([node.module] if node.module else [])])
        return [f"{module}.{alias.name}" for alias in node.names]
    return []


def test_every_folder_and_file_of_the_package_has_a_floor():
    rooms = {
        path.stem for path in (ROOT / "labkit").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert {"errors", "devices", "records", "engine", "batching"} <= rooms
    assert rooms - {"__init__"} - set(FLOOR) == set()


def test_nothing_imports_upwards_or_sideways():
    found = list(imports(ROOT))
    assert len(found) > 100
    assert [use for use in found if not use.allowed] == []


@pytest.fixture
def bad_house(tmp_path):
    """A small house with every kind of wrong import, and with right ones beside them."""
    files = {
        "__init__.py": "import labkit.devices\n",
        "errors.py": "from labkit.ui import Panel\n",
        "engine.py": "from labkit.records import Recorder\nfrom labkit import __version__\nimport torch\n",
        "batching/__init__.py": "from labkit.batching import queue\nfrom . import queue\nfrom .queue import Queue\n",
        "batching/queue.py": "from labkit.sharding import plan\ndef late():\n    from ..measure import metrics\n",
        "batching/deep/x.py": "from ...ui import Panel\nfrom ... import cli\nfrom ..queue import Queue\n",
        "labs/x.py": "import labkit.ui.panel\nimport labkit.measure\nimport IPython.display\n",
        "measure/x.py": "from labkit import workloads, labs\n",
        "workloads/x.py": "from labkit.measure import drive\n",
        "ui/x.py": "import anywidget\nfrom labkit.report import run\nfrom labkit.teach import check\n",
        "report/x.py": "from labkit.ui import figure\nfrom IPython.display import display\n",
        "cli.py": "from labkit.bench import run\n",
    }
    for name, text in files.items():
        file = tmp_path / "labkit" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_the_rule_finds_exactly_the_wrong_imports(bad_house):
    wrong = {(use.file.removeprefix("labkit/"), use.line, use.name) for use in imports(bad_house) if not use.allowed}
    assert wrong == {
        ("errors.py", 1, "labkit.ui.Panel"),
        ("batching/queue.py", 1, "labkit.sharding.plan"),
        ("batching/queue.py", 3, "labkit.measure.metrics"),
        ("batching/deep/x.py", 1, "labkit.ui.Panel"),
        ("batching/deep/x.py", 2, "labkit.cli"),
        ("labs/x.py", 1, "labkit.ui.panel"),
        ("labs/x.py", 3, "IPython.display"),
        ("measure/x.py", 1, "labkit.labs"),
        ("workloads/x.py", 1, "labkit.measure.drive"),
        ("ui/x.py", 2, "labkit.report.run"),
        ("ui/x.py", 3, "labkit.teach.check"),
    }
