"""The implementation of `Scope`: child tasks with an owner, cancelled newest first.

`asyncio.TaskGroup` keeps its children in a set and cancels them in address order, which no seed can
replay, and it wraps a single error into a group. Here the children are in spawn order, and the
first error is raised itself, with the others as notes. It works on any loop, so the simulated
runtime uses it too.
"""

import asyncio
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


class TaskScope:
    """A scope as in `ports.Tasks.scope`. Use it once. All children end before it does."""

    def __init__(self, name: str) -> None:
        self._name = name
        # Unlike a set, a dict iterates in spawn order. Finished children are removed at once.
        self._children: dict[asyncio.Task[Any], None] = {}
        self._errors: list[tuple[str, BaseException]] = []  # (task, error), in order
        self._parent: asyncio.Task[Any] | None = None
        self._in_body = False
        self._interrupted_body = False  # the scope cancelled the parent because a child failed
        self._cancelled = False  # new children are cancelled at once
        self._idle: asyncio.Future[None] | None = None
        self._left = False

    async def __aenter__(self) -> "TaskScope":
        assert self._parent is None, f"scope {self._name}: entered twice"
        self._parent = asyncio.current_task()
        assert self._parent is not None, f"scope {self._name}: entered outside a task"
        self._in_body = True
        return self

    def spawn(self, work: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
        """Start a child task named "<scope>/<name>"."""
        if self._parent is None or self._left:
            work.close()
            raise AssertionError(
                f"scope {self._name}: spawn of {name} before its start or after its end"
            )
        loop = asyncio.get_running_loop()
        task = loop.create_task(work, name=f"{self._name}/{name}")
        self._children[task] = None
        task.add_done_callback(self._on_child_done)
        if self._cancelled:
            task.cancel()
        return task

    def cancel(self) -> None:
        """Cancel every child, newest first. The body of the scope continues."""
        self._cancelled = True
        for task in reversed(list(self._children)):
            task.cancel()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self._in_body = False
        cancellation = self._sort_body_error(error)
        if error is not None:
            self.cancel()
        late = await self._wait_children()
        self._left = True
        if not self._errors:
            if late is not None:
                raise late
            # only the scope's own cancellation of the body is suppressed
            return cancellation is None
        _, first = self._errors[0]
        for task_name, other in self._errors[1:]:
            first.add_note(f"also failed: {task_name}: {type(other).__name__}: {other}")
        if first is error:
            return False
        raise first

    def _sort_body_error(self, error: BaseException | None) -> asyncio.CancelledError | None:
        """Record the body's error. Return a cancellation from outside the scope."""
        assert self._parent is not None, "left before entered"
        remaining = self._parent.uncancel() if self._interrupted_body else 0
        if isinstance(error, asyncio.CancelledError):
            ours_alone = self._interrupted_body and remaining == 0
            return None if ours_alone else error
        if error is not None:
            self._errors.append((f"{self._name} (body)", error))
        return None

    async def _wait_children(self) -> asyncio.CancelledError | None:
        """Wait for all children. Return the last cancellation from outside, which was passed to
        them."""
        cancellation: asyncio.CancelledError | None = None
        while self._children:
            self._idle = asyncio.get_running_loop().create_future()
            try:
                await self._idle
            except asyncio.CancelledError as outside:
                cancellation = outside
                self.cancel()
            finally:
                self._idle = None
        return cancellation

    def _on_child_done(self, task: asyncio.Task[Any]) -> None:
        del self._children[task]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._errors.append((task.get_name(), error))
            if len(self._errors) == 1:
                self._on_first_error()
        if not self._children and self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    def _on_first_error(self) -> None:
        self.cancel()
        if self._in_body and not self._interrupted_body:
            assert self._parent is not None, f"scope {self._name}: child without a parent"
            self._interrupted_body = True
            self._parent.cancel()
