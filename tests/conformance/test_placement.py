"""Links move to where the traffic is, on every ground, and faults follow them."""

from tests.conformance.runs import Play, everything_arrived

HEAD = """
scenario: 1
name: placed
topology: {tree: line, brokers: 3}
routing: peer
placement: {period: 5s, gain: 1%}
publishers: [{id: p, broker: b0, topic: t, rate: 20/s}]
subscribers: [{id: s, broker: b2, topic: t}]
"""


def test_a_link_moves_to_where_the_traffic_is_and_faults_follow(play: Play) -> None:
    """In the line b0 - b1 - b2, messages from b0 to b2 cost 5, and 3 over a direct link.

    So b2 gets the parent b0, and b1 becomes a leaf below b2, where it costs nothing. Later this link is cut and its
    child killed, which remembers its parent. The link that there was between b0 and b1 is not cut: it has moved.
    """
    text = HEAD + (
        "clock: {warmup: 1s, measure: 49s, speedup: 2}\n"
        "faults:\n"
        "  - {at: 26s, cut: [b0, b2], for: 3s}\n"
        "  - {at: 30s, cut: [b0, b1], for: 1s}\n"
        "  - {at: 34s, crash: b2, for: 2s}\n"
    )
    done = play(text)
    (moved,) = done.events("b2", "link_moved")
    assert (moved["client"], moved["topic"]) == ("b2>b0", "b1")
    assert [it["client"] for it in done.events("b1", "link_moved")] == ["b1>b2"]
    assert moved["time_ns"] / 1e9 < 26
    everything_arrived(done)
    struck, seen, healed, over = done.fault_times_s("cut b2-b0")
    assert 26 <= struck <= seen <= healed <= over
    assert [it["client"] for it in done.clients if it["event"] == "fault"] == ["cut b2-b0", "crash b2"]
    passed = [it["time_ns"] / 1e9 for it in done.clients if it["event"] == "processed"]
    assert not any(seen + 0.5 < time_s < healed for time_s in passed)
    assert any(it["time_ns"] / 1e9 > 40 for it in done.events("b0", "sent", "b0>b2"))  # b2 has come back to it
