"""A value that lay on a host which is lost, or did not arrive in time."""

__all__ = ["Lost"]


class Lost(Exception):  # told to the controller, never to a user
    """The value of a job cannot be had; its microbatch has to begin anew."""
