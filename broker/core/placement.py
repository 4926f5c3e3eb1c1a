"""Adaptive placement: a broker moves the links of its neighbourhood to where the traffic is (Migliavacca, Cugola 2007).

Every broker measures its traffic classes. Once per period it looks for a tree of itself and its neighbours that routes
this traffic at a lower cost. What the neighbourhood saves is exactly what the whole network saves. If that is enough,
the broker locks its neighbours, has them move one child after the other (see link_moves.py), and unlocks them.

A broker is locked by one other broker at a time, and whoever does not get all its locks at once gives them back and
tries again later, so nobody waits for a lock that another one waits with. A lock also ends after a while, in case the
broker that holds it has been killed. Locks keep the cost as computed; that the brokers always form a tree does not
depend on them, because link_moves.py takes care of it. What is sent here is of no use later, so nothing of it is stored
but the notices under way, and answers that come too late are recognised by the number of the attempt.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from brokerbed.broker.core.session import Session
from brokerbed.broker.core.subscriptions import Receivers
from brokerbed.broker.placement import plan
from brokerbed.broker.placement.config import PlacementConfig
from brokerbed.broker.placement.demand import Demand, Members
from brokerbed.broker.placement.search import Brokers, Costs, Link, Traffic, search, star
from brokerbed.broker.values import NS_PER_S

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker

Source = tuple[Session | None, Receivers]  # the neighbour from which messages came, or None, and who got them
Search = tuple[list[str], Traffic, Iterator[frozenset[Link]], frozenset[Link]]  # brokers, costs, search, best tree
ANSWER_NS = 10 * NS_PER_S  # for all neighbours to answer a request for their locks
STEP_NS = 60 * NS_PER_S  # for a child to arrive at its next parent, a restart of one of the brokers included
LOCK_NS = 300 * NS_PER_S  # after which a lock ends by itself: longer than the steps of most plans
SLICE_NS = 1_000  # between two iterations of the search, so that messages need not wait for all of them
LEAST_GAIN = 1e-9  # of the cost: less is rounding


class Plan:
    """How a neighbourhood becomes another tree. Brokers have numbers in it, and the one that made it has 0."""

    def __init__(self, number: int, names: list[str], parents: dict[int, int | None], tree: frozenset[Link]) -> None:
        self.number = number
        self.names = names
        self.parents = parents  # as they are now
        self.left = plan.steps(parents, tree)
        self.granted: set[str] = set()
        self.is_locked = False

    def path(self, begin: int, end: int, parents: plan.Parents) -> list[str]:
        return [self.names[it] for it in plan.path(parents, begin, end)]


class Placement:
    def __init__(self, broker: "Broker", config: PlacementConfig) -> None:
        self._broker = broker
        self._config = config
        self._demand: Demand[Source] = Demand(self._members_of)
        self._attempts = 0
        self._searching: Iterator[frozenset[Link]] | None = None
        self._plan: Plan | None = None
        self._locked_by: tuple[str, int] | None = None  # the broker that has locked this one, and its attempt
        self._moving: dict[str, Any] | None = None  # the step that this broker is making for another one
        self._handlers: dict[str, Callable[[dict[str, Any], int], None]] = {
            "lock": self._lock, "granted": self._granted, "denied": self._denied, "unlock": self._unlock,
            "move": self._move, "moved": self._moved, "unmoved": self._unmoved,
        }  # fmt: skip

    # -- measuring ------------------------------------------------------------------------------------------------

    def count(self, source: Session | None, receivers: Receivers, messages: int) -> None:
        """Messages have come from a client or a neighbour and are passed on to these receivers."""
        self._demand.count((source if source is not None and source.link is not None else None, receivers), messages)

    def _members_of(self, key: Source) -> Members:
        source, receivers = key
        own = self._broker.config.name
        sessions = [*receivers.plain, *(target.session for target in receivers.special)]
        members = {own if it.link is None else it.link.peer for it in sessions}
        members.add(own if source is None or source.link is None else source.link.peer)
        if receivers.groups:
            members.add(own)
        return frozenset(members)

    # -- the broker that looks for a cheaper tree -------------------------------------------------------------------

    def start(self, now_ns: int) -> None:
        """The broker has started. Brokers look for cheaper trees at different times."""
        self._demand.restart(now_ns)
        self._later(now_ns, self._config.period_ns + self._config.draw.randrange(self._config.period_ns))

    def links_changed(self, now_ns: int) -> None:
        """The broker has other neighbours than before."""
        self._demand.restart(now_ns)

    def _later(self, now_ns: int, delay_ns: int) -> None:
        self._broker.at(now_ns + delay_ns, _look, None)

    def look(self, now_ns: int) -> None:
        """Look for a cheaper tree, if the traffic has been measured for long enough."""
        config = self._config
        waits_ns = self._demand.since_ns + config.period_ns - now_ns
        if waits_ns > 0 or self._is_engaged:
            self._later(now_ns, max(waits_ns, config.draw.randrange(config.period_ns)))
            return
        self._later(now_ns, config.period_ns)
        names = self._neighbourhood()
        demands = self._demands(names)
        self._demand.restart(now_ns)
        if len(names) < 3 or not demands:
            return
        pairs = [(one, other) for other in range(len(names)) for one in range(other)]
        of_links = {(one, other): config.of_link(names[one], names[other]) for one, other in pairs}
        costs = Costs(of_links, [config.of_broker(name) for name in names])
        traffic = Traffic(costs, demands)
        found = search(traffic, star(len(names)), config.moves, config.iterations, config.tenure, config.draw)
        self._searching = found
        self.search_on((names, traffic, found, star(len(names))), now_ns)

    def _demands(self, names: list[str]) -> dict[Brokers, float]:
        number = {name: index for index, name in enumerate(names)}
        demands: dict[Brokers, float] = {}
        for members, count in self._demand.by_class(frozenset(names)).items():
            bits = sum(1 << number[name] for name in members if name in number)
            demands[bits] = demands.get(bits, 0.0) + count
        return demands

    def search_on(self, state: Search, now_ns: int) -> None:
        """One iteration of the search."""
        names, traffic, found, best = state
        if self._searching is not found:
            return
        tree = next(found, None)
        if tree is not None:
            self._broker.at(now_ns + SLICE_NS, _search_on, (names, traffic, found, tree))
            return
        self._searching = None
        before, now = traffic.cost(star(len(names))), traffic.cost(best)
        if before - now > max(self._config.gain, LEAST_GAIN) * before and names == self._neighbourhood():
            self._request_locks(names, best, now_ns)

    def _neighbourhood(self) -> list[str]:
        """This broker and its neighbours; its parent, if it has one, is number 1."""
        links = [session.link for session in self._broker.overlay.links()]
        return [self._broker.config.name, *(link.peer for link in links if link is not None)]

    @property
    def _is_engaged(self) -> bool:
        is_busy = self._plan is not None or self._locked_by is not None or self._searching is not None
        return is_busy or self._broker.overlay.link_moves.is_busy

    def _request_locks(self, names: list[str], tree: frozenset[Link], now_ns: int) -> None:
        if self._is_engaged or any(it.connection is None for it in self._broker.overlay.links()):
            return
        has_parent = self._broker.overlay.parent is not None
        parents: dict[int, int | None] = dict.fromkeys(range(1, len(names)), 0)
        parents[0] = None
        if has_parent:
            parents[0], parents[1] = 1, None
        self._attempts += 1
        made = self._plan = Plan(self._attempts, names, parents, tree)
        for name in names[1:]:
            self._send([name], now_ns, do="lock", by=names[0], attempt=made.number)
        self._broker.at(now_ns + ANSWER_NS, _answers_due, made)

    def _granted(self, content: dict[str, Any], now_ns: int) -> None:
        made = self._plan
        if made is None or made.number != content["attempt"] or made.is_locked:
            self._send([content["by"]], now_ns, do="unlock", by=self._broker.config.name, attempt=content["attempt"])
            return
        made.granted.add(content["by"])
        if len(made.granted) == len(made.names) - 1:
            made.is_locked = True
            self._step(made, now_ns)

    def _denied(self, content: dict[str, Any], now_ns: int) -> None:
        if self._plan is not None and self._plan.number == content["attempt"]:
            self.give_up(self._plan, now_ns)

    def give_up(self, made: Plan, now_ns: int) -> None:
        """Give the locks back: the plan is finished, or cannot be carried out."""
        if self._plan is not made:
            return
        self._plan = None
        for number, name in enumerate(made.names):
            if number and (made.is_locked or name in made.granted):
                path = made.path(0, number, made.parents)
                self._send(path, now_ns, do="unlock", by=made.names[0], attempt=made.number)

    def answers_due(self, made: Plan, now_ns: int) -> None:
        if not made.is_locked:
            self.give_up(made, now_ns)

    def _step(self, made: Plan, now_ns: int) -> None:
        """Have the next child moved, by its parent so far."""
        if not made.left:
            self.give_up(made, now_ns)
            return
        step = made.left[0]
        names, parents_then = made.names, plan.after(made.parents, [step])
        content: dict[str, Any] = {
            "do": "move", "child": names[step.child], "to": names[step.new], "attempt": made.number,
            "answer": made.path(step.old, 0, parents_then), "otherwise": made.path(step.old, 0, made.parents),
        }  # fmt: skip
        self._send(made.path(0, step.old, made.parents), now_ns, **content)
        self._broker.at(now_ns + STEP_NS, _step_due, (made, step))

    def step_due(self, made: Plan, step: plan.Step, now_ns: int) -> None:
        """A step takes too long. It may still come to its end, but the rest of the plan is given up."""
        if self._plan is made and made.left and made.left[0] is step:
            self.give_up(made, now_ns)

    def _moved(self, content: dict[str, Any], now_ns: int) -> None:
        made = self._plan
        if made is not None and made.number == content["attempt"] and made.left:
            made.parents = plan.after(made.parents, [made.left.pop(0)])
            self._step(made, now_ns)

    def _unmoved(self, content: dict[str, Any], now_ns: int) -> None:
        if self._plan is not None and self._plan.number == content["attempt"]:
            self.give_up(self._plan, now_ns)

    # -- its neighbours -------------------------------------------------------------------------------------------

    def _lock(self, content: dict[str, Any], now_ns: int) -> None:
        answer = "denied"
        if not self._is_engaged:
            answer, self._locked_by = "granted", (content["by"], content["attempt"])
            self._broker.at(now_ns + LOCK_NS, _lock_over, self._locked_by)
        own = self._broker.config.name
        self._send([content["by"]], now_ns, do=answer, by=own, attempt=content["attempt"])

    def _unlock(self, content: dict[str, Any], now_ns: int) -> None:
        self.lock_over((content["by"], content["attempt"]), now_ns)

    def lock_over(self, lock: tuple[str, int], now_ns: int) -> None:
        if self._locked_by == lock:
            self._locked_by = None
            self._demand.restart(now_ns)

    def _move(self, content: dict[str, Any], now_ns: int) -> None:
        """Move a child of this broker, and answer when it has arrived."""
        problem = self._broker.overlay.link_moves.begin(content["child"], content["to"], now_ns)
        if problem is not None:
            self._send(content["otherwise"], now_ns, do="unmoved", attempt=content["attempt"])
            return
        self._moving = content

    def move_ended(self, child: str, is_done: bool, now_ns: int) -> None:
        """A child has arrived at its next parent, or stays here."""
        content, self._moving = self._moving, None
        if content is not None and content["child"] == child:
            path = content["answer"] if is_done else content["otherwise"]
            self._send(path, now_ns, do="moved" if is_done else "unmoved", attempt=content["attempt"])

    # -- notices --------------------------------------------------------------------------------------------------

    def received(self, content: dict[str, Any], now_ns: int) -> None:
        if content["path"]:
            self._send(now_ns=now_ns, **content)
        else:
            self._handlers[content["do"]](content, now_ns)

    def _send(self, path: list[str], now_ns: int, **content: Any) -> None:
        """Send a notice over these brokers to the last of them. On the way it may find that a link is not there now."""
        if not path:
            self._handlers[content["do"]](content, now_ns)
            return
        session = self._broker.overlay.link_moves.neighbour(path[0])
        if session is not None:
            self._broker.overlay.link_moves.notify(session, now_ns, path=path[1:], **content)


def _look(broker: "Broker", _: None, now_ns: int) -> None:
    assert broker.placement is not None
    broker.placement.look(now_ns)


def _search_on(broker: "Broker", state: Search, now_ns: int) -> None:
    assert broker.placement is not None
    broker.placement.search_on(state, now_ns)


def _answers_due(broker: "Broker", made: Plan, now_ns: int) -> None:
    assert broker.placement is not None
    broker.placement.answers_due(made, now_ns)


def _step_due(broker: "Broker", of: tuple[Plan, plan.Step], now_ns: int) -> None:
    assert broker.placement is not None
    broker.placement.step_due(*of, now_ns)


def _lock_over(broker: "Broker", lock: tuple[str, int], now_ns: int) -> None:
    assert broker.placement is not None
    broker.placement.lock_over(lock, now_ns)
