"""Workers: each runs one system under load, in a process of its own, and answers JSON lines (see `protocol`).

A worker may run in the environment of a public peer, where labkit and its packages do not exist. So the files here
need Python's standard library and, inside functions, the one system that they are about; they import one another
relatively, because in a worker this folder is a package called `peers` (see `start`).
"""

__all__: list[str] = []
