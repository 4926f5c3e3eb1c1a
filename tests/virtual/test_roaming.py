"""Sessions that follow their clients while links are cut and brokers are killed: nothing is lost, doubled or reordered.

`make roaming-campaign` plays more schedules.
"""

from tests.virtual.roaming import RoamingTrial, draw_roaming

SCHEDULES = 60
MOVES_PER_SCHEDULE_MIN = 2  # sessions that left a broker, on average


def test_random_schedules_with_faults_end_well() -> None:
    left = 0
    for seed in range(SCHEDULES):
        trial = RoamingTrial(draw_roaming(seed))
        assert trial.run() == [], seed
        left += trial.sessions_left
    assert left > SCHEDULES * MOVES_PER_SCHEDULE_MIN
