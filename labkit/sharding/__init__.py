"""Model sharding: cut a model, run its stages as a pipeline, balance them, lose one and go on.

`Chain`, `profile` and `partition` say where to cut, `Pipeline` runs the stages; README.md argues the design.
"""

from labkit.sharding.balance import Balancing
from labkit.sharding.baselines import equal_count, parameter_balanced
from labkit.sharding.chain import Chain, Stage
from labkit.sharding.cluster import Cluster
from labkit.sharding.health import Health, PipelineSnapshot, StageSnapshot
from labkit.sharding.link import Link
from labkit.sharding.nursery import stop_fork_server
from labkit.sharding.onnx_graph import OnnxChain
from labkit.sharding.partition import partition
from labkit.sharding.patience import Patience
from labkit.sharding.pipeline import Pipeline
from labkit.sharding.plan import Plan, Prediction
from labkit.sharding.problem import Problem, Tied
from labkit.sharding.profile import Profile, profile
from labkit.sharding.recovery import Budget
from labkit.sharding.replan import Replan, Survivor
from labkit.sharding.sequence import Sequence
from labkit.sharding.state import Stateful

__all__ = [
    "Balancing",
    "Budget",
    "Chain",
    "Cluster",
    "Health",
    "Link",
    "OnnxChain",
    "Patience",
    "Pipeline",
    "PipelineSnapshot",
    "Plan",
    "Prediction",
    "Problem",
    "Profile",
    "Replan",
    "Sequence",
    "Stage",
    "StageSnapshot",
    "Stateful",
    "Survivor",
    "Tied",
    "equal_count",
    "parameter_balanced",
    "partition",
    "profile",
    "stop_fork_server",
]
