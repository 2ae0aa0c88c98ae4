"""Engines are taken into services and onto bare GPU machines, where no Jupyter is."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Names as they are imported: PIL is pillow.
ABSENT = [
    *("IPython", "anywidget", "ipykernel", "ipywidgets", "jupyter_client", "jupyter_core", "jupyterlab", "traitlets"),
    *("nbformat", "papermill", "plotly", "pyarrow", "psutil", "rich", "typer"),
    *("PIL", "safetensors", "skimage", "sklearn", "tokenizers", "transformers", "huggingface_hub"),
]

CODE = """
import importlib, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

ABSENT = set(sys.argv[2:])
sys.meta_path.insert(0, Absent())
try:
    import ipywidgets
except ModuleNotFoundError:
    importlib.import_module(sys.argv[1])
    print("imported", len(ABSENT & set(sys.modules)))
"""

ENGINES = ("batching", "sharding", "serving", "kernels")
ROOMS = ["labkit", *(f"labkit.{name}" for name in ("errors", "devices", "records", "engine"))]
ROOMS += [f"labkit.{name}" for name in ENGINES if (ROOT / "labkit" / name / "__init__.py").exists()]


def test_there_is_an_engine_to_look_at():
    assert "labkit.batching" in ROOMS


@pytest.mark.parametrize("module", ROOMS)
def test_it_imports_without_jupyter_and_without_what_only_models_and_labs_need(module):
    done = subprocess.run([sys.executable, "-c", CODE, module, *ABSENT], capture_output=True, text=True, timeout=100)
    assert done.stdout == "imported 0\n", done.stderr


def test_labkit_itself_loads_nothing_heavy():
    code = "import sys, labkit; print(sorted({'torch', 'numpy', 'numba'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.stdout == "[]\n", done.stderr


def test_the_command_says_which_extra_is_missing():
    code = CODE.replace("importlib.import_module(sys.argv[1])", "from labkit.__main__ import main; main()")
    done = subprocess.run([sys.executable, "-c", code, "labkit", *ABSENT], capture_output=True, text=True, timeout=100)
    assert done.returncode == 1
    assert "pip install 'labkit[lab]'" in done.stderr
    assert "Traceback" not in done.stderr
