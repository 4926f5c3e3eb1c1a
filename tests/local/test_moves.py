"""Links that move in a tree of seven brokers under load, in short; `make moves-campaign` does it at length."""

from pathlib import Path

from tests.local.moves import SEVEN, MovesRun, load_plan


def test_moves_and_a_kill_under_load_lose_nothing(tmp_path: Path) -> None:
    """The ledger of the load judges: nothing is lost at QoS 1 and 2, doubled at QoS 2 or out of order."""
    run = MovesRun(load_plan(moves=4, kills=1, rate_per_s=300, is_finished=True), tmp_path)
    result = run.execute()
    assert not result.violations, "\n".join(map(str, result.violations))
    assert len(run.begun) >= 5
    assert result.kills == 1
    assert run.links_moved >= 2  # those that a kill or another move prevented leave the tree as it was
    assert result.delivered == result.owed > 300
    assert run.final_tree is not None
    assert run.final_tree.keys() == SEVEN.keys() - {"a"}
