"""What this machine has to compute with: devices, their memory, their measured ceilings, and who may use them now.

Needs torch and numpy alone. Accelerators are found through `torch.accelerator`; the CPU is always there, always last.

>>> attached()[-1].id
'cpu'
"""

from labkit.devices.allocator import keep_freed_memory
from labkit.devices.attached import Device, attached, best, find, synchronize
from labkit.devices.ceilings import Ceilings, ceilings
from labkit.devices.computing import start_computing
from labkit.devices.folders import cache_dir
from labkit.devices.lease import Lease, lease
from labkit.devices.memory import memory_free_bytes
from labkit.devices.release import release
from labkit.devices.versions import Versions, versions

__all__ = [
    "Ceilings",
    "Device",
    "Lease",
    "Versions",
    "attached",
    "best",
    "cache_dir",
    "ceilings",
    "find",
    "keep_freed_memory",
    "lease",
    "memory_free_bytes",
    "release",
    "start_computing",
    "synchronize",
    "versions",
]
