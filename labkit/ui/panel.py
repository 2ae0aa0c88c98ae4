"""A lab with controls, buttons and charts, in one call: `Panel(...).show()`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from threading import Event, Lock, RLock
from typing import Any, Generic, TypeVar

from labkit.errors import LabkitError, UnknownName, require, require_known
from labkit.labs import Dials, Note, Point
from labkit.ui.chart import Chart
from labkit.ui.controls import Control
from labkit.ui.curves import Curves
from labkit.ui.headless import run_inline
from labkit.ui.job import Failure, Job
from labkit.ui.mode import mode
from labkit.ui.screen import put
from labkit.ui.view import View

__all__ = ["Panel"]

Settings = TypeVar("Settings")
Items = Iterable[Point | Note]

JOIN_S = 10.0

_PANELS: dict[str, Panel[Any]] = {}
_REGISTRY = Lock()


class Panel(Generic[Settings]):
    """Runs `run(settings, stop)` live or headless and draws its points on `charts`.

    `settings` is a frozen dataclass with the defaults; each of `controls` names one of its fields. With `follows` the
    lab is called as `run(dials, stop)` and sees a control that is changed while it runs; otherwise a change counts
    from the next run. `numbers` says by name or pattern which series' newest values are told as text.

    `key` names the panel's place in the notebook: a panel made again under the same key (a cell that is run again)
    closes the old one and waits for its thread. Every method is safe from any thread.

    Raises `SettingError` for a control that names no field or whose default is outside its limits.

    >>> import dataclasses
    >>> Goal = dataclasses.make_dataclass("Goal", [("slo_ms", float, 100.0)], frozen=True)
    >>> lab = lambda goal, stop: (Point("p99", second, 41.0) for second in range(3))
    >>> panel = Panel("doc", lab, settings=Goal(), charts=[Chart("Latency", "time (s)", "latency (ms)")])
    >>> panel.press("run")
    >>> panel.wait(timeout_s=5.0)
    >>> panel.curves.points
    3
    >>> panel.close()
    True
    """

    def __init__(
        self,
        key: str,
        run: Callable[[Settings, Event], Items] | Callable[[Dials[Settings], Event], Items],
        *,
        settings: Settings,
        controls: Iterable[Control] = (),
        charts: Iterable[Chart] = (),
        title: str = "",
        numbers: tuple[str, ...] = ("*",),
        follows: bool = False,
    ) -> None:
        self.key, self.title = key, title
        self._run: Callable[[Any, Event], Items] = run
        self._dials = Dials(settings)
        self._controls, self._charts = tuple(controls), tuple(charts)
        self._told = Chart("numbers", "x", "y", series=numbers)
        self._follows = follows
        self._lock = RLock()
        self._view: View | None = None
        self._job: Job | None = None
        self._closed = False
        self.curves = Curves()
        self.error = ""
        self._check(settings)
        with _REGISTRY:
            old, _PANELS[key] = _PANELS.get(key), self
        if old is not None:
            old.close()

    def show(self) -> None:
        """Live: display the widgets and return at once. Headless: run the lab here and show one static figure."""
        if mode() == "live":
            put(self.view.root)
            return
        settings = self._dials.get()
        items = self._run(Dials(settings) if self._follows else settings, Event())
        self.curves = run_inline(self.title, items, self._charts, settings)

    @property
    def view(self) -> View:
        """The panel's widgets, made when they are first asked for."""
        with self._lock:
            require(not self._closed, f"The panel {self.key!r} is closed", "Run its cell again.")
            if self._view is None:
                settings = self._dials.get()
                self._view = View(self.title, self._controls, self._charts, settings, self._clicked, self._turned)
                self._view.say("Ready")
            return self._view

    def press(self, button: str) -> None:
        """Do what a click on `"run"` or `"stop"` does; unlike a click it raises what goes wrong."""
        actions = {"run": self._start, "stop": self._stop}
        require_known("button", button, actions)
        with self._lock:
            actions[button]()

    def turn(self, **values: Any) -> None:
        """Set controls by the names of their settings, as a person would."""
        for name, value in values.items():
            require_known("control", name, self.view.controls)
            self.view.controls[name].value = value

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait for the run to end; raises `LabkitError` when it failed or did not end within `timeout_s`."""
        job = self._job
        if job is None:
            return
        if not job.join(timeout_s):
            raise LabkitError(f"The run did not end within {timeout_s} s", "Press Stop, or wait longer.")
        if job.failure:
            raise LabkitError(job.failure.message, "`panel.error` holds the traceback.")

    async def finished(self) -> None:
        """`await panel.finished()` in a cell waits for the run while buttons keep working."""
        await asyncio.to_thread(self.wait)

    def close(self) -> bool:
        """Stop, wait for the thread and remove the widgets; whether the thread has ended (it has ten seconds)."""
        with self._lock:
            self._closed, view, job = True, self._view, self._job
            self._view = None
        with _REGISTRY:
            if _PANELS.get(self.key) is self:
                del _PANELS[self.key]
        if job is not None:
            job.stop()
        if view is not None:
            view.close()
        # Not under the lock: the thread needs it for its last, empty frame.
        return job is None or job.join(JOIN_S)

    def _check(self, settings: Settings) -> None:
        for control in self._controls:
            if not hasattr(settings, control.name):
                known = [name for name in dir(settings) if not name.startswith("_")]
                raise UnknownName.among("setting", control.name, known)

    def _start(self) -> None:
        if self._job is not None and not self._job.ended:
            return  # a second click that was on its way already
        view = self.view
        self._apply(view)
        settings = self._dials if self._follows else self._dials.get()
        job = Job(lambda stop: self._run(settings, stop), lambda: self._draw(job), Curves(self._charts))
        self._job, self.curves, self.error = job, job.curves, ""
        view.enable(run=False, stop=True)
        view.say("Running")
        view.recall(())
        job.start()

    def _stop(self) -> None:
        if self._job is not None and not self._job.ended:
            self._job.stop()
            self.view.enable(run=False, stop=False)
            self.view.say("Stopping")

    def _clicked(self, button: str) -> None:
        self._shown(lambda: self.press(button))

    def _turned(self) -> None:
        self._shown(lambda: self._apply(self.view))

    def _shown(self, action: Callable[[], None]) -> None:
        """A callback's exception would vanish in a log that nobody reads; show it where the person looks."""
        with self._lock:
            try:
                if not self._closed:
                    action()
            except Exception as error:
                failure = Failure.of(error)
                self.error = failure.trace
                self.view.alert(failure)

    def _apply(self, view: View) -> None:
        """Make the settings what the controls show."""
        now: Any = self._dials.get()  # a dataclass, which a type variable cannot say
        self._dials.set(replace(now, **view.values()))
        view.chart.update(self.curves.snapshot(), self._dials.get())
        if self._job is not None and self._job.state == "running":
            view.say("Running" if self._follows else "Running; the change counts from the next run")
        elif self.error:
            self.error = ""
            view.say("Ready")

    def _draw(self, job: Job) -> int:
        """Bring the view up to date with `job`; returns the bytes of numbers sent."""
        with self._lock:
            view = self._view
            if view is None or job is not self._job:
                return 0
            view.tell({name: value for name, value in job.curves.newest().items() if self._told.takes(name)})
            self._report(view, job)
            return view.chart.update(job.curves.snapshot(), self._dials.get())

    def _report(self, view: View, job: Job) -> None:
        if job.state == "failed" and job.failure:
            self.error = job.failure.trace
            view.alert(job.failure)
        elif job.state == "running":
            if job.curves.note:
                view.say(job.curves.note)
        elif job.ended:
            view.say(f"{'Done' if job.state == 'done' else 'Stopped'}: {job.curves.points} points")
        if job.ended:
            view.recall(job.curves.notes())
            view.enable(run=True, stop=False)
