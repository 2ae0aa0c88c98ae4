"""The measuring rooms work where no notebook software is installed."""

import subprocess
import sys


def test_nothing_of_jupyter_plotly_pandas_or_pyarrow_is_imported():
    script = (
        "import sys\n"
        "import labkit.measure, labkit.workloads\n"
        "banned = {'IPython', 'ipywidgets', 'anywidget', 'ipykernel', 'plotly', 'pandas', 'pyarrow', 'scipy'}\n"
        "print(sorted(banned & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
