"""What ends a run when it knows enough, as grounds see it. The analysis has the one that there is."""

from typing import Any, Protocol


class Pacer(Protocol):
    """Ends a run when it knows enough, and finds its warm-up. It reads the raw logs that the run is writing."""

    @property
    def begin_ns(self) -> int:
        """The model time at which the measured time begins, as far as is known."""

    @property
    def next_ns(self) -> int | None:
        """The model time of the next look; None if there is none before the end."""

    def is_over(self, now_ns: int, start_ns: int | None, is_final: bool = False) -> bool:
        """Whether the run may end. `start_ns` as in Played. After the final look all logs are complete."""

    def as_json(self) -> dict[str, Any]:
        """What run.json says about it."""
