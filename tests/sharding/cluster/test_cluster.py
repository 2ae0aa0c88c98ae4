"""What needs no cluster: settings, and a machine without Ray."""

import subprocess
import sys

import pytest

from labkit.errors import SettingError, UnknownName
from labkit.sharding.cluster import Cluster
from labkit.sharding.pipeline import Pipeline

WITHOUT_RAY = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "ray":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

import labkit.sharding
from labkit.errors import Unavailable
assert "ray" not in sys.modules
sys.meta_path.insert(0, Absent())
try:
    labkit.sharding.Pipeline([abs], carrier="ray")
except Unavailable as error:
    print(error)
"""


def test_the_sharding_engine_does_not_import_ray_and_says_how_to_get_it():
    done = subprocess.run([sys.executable, "-c", WITHOUT_RAY], capture_output=True, text=True, timeout=100)
    assert "pip install 'labkit[cluster]'" in done.stdout, done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize(
    "settings", [{"cpus": 0}, {"gpus": -1}, {"edges": "mpi"}, {"start_s": 0}, {"read_s": -1.0}], ids=str
)
def test_settings_outside_their_limits_are_refused(settings):
    with pytest.raises(SettingError, match=next(iter(settings))):
        Cluster(**settings)


def test_a_carrier_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(UnknownName, match="ray"):
        Pipeline([abs], carrier="rai")


def test_a_large_value_has_more_time_to_arrive():
    assert Cluster(read_s=1.0).limit_s(500_000_000) > 10 * Cluster(read_s=1.0).limit_s(0)
