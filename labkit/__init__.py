"""labkit: a laboratory for inference acceleration.

The package holds real engines (`labkit.batching`) and what is needed to drive, measure and judge them. Importing
`labkit` itself loads nothing heavy; import the room that you need.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
