"""Adaptive placement: a broker moves the links of its neighbourhood to where the traffic is (Migliavacca, Cugola 2007).

Every broker measures its traffic classes. Once per period it looks for a tree of itself and its neighbours that routes
this traffic at a lower cost. What the neighbourhood saves is exactly what the whole network saves. If there is none, it
asks one neighbour for a report and looks for a tree of both with their neighbours, which the paper does not do. If the
saving is enough, it locks all of these brokers, has one child after the other moved (see link_moves.py), and unlocks
them.

A broker is locked by one other broker at a time, and whoever does not get all its locks at once gives them back and
tries again later, so nobody waits for a lock that another one waits with. If the broker that holds a lock is killed,
the lock ends when that broker has started again, or after a while. Locks keep the cost as computed; that the brokers
always form a tree does not depend on them, because link_moves.py takes care of it. What is sent here is of no use
later, so nothing of it is stored but the notices under way, and answers that come too late are recognised by their
attempt.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from brokerbed.broker.core.session import Session
from brokerbed.broker.core.subscriptions import Receivers
from brokerbed.broker.placement import plan
from brokerbed.broker.placement.config import PlacementConfig
from brokerbed.broker.placement.demand import Demand, Members
from brokerbed.broker.placement.search import Costs, Link, Traffic, search
from brokerbed.broker.placement.view import Report, View, joint_view, own_view
from brokerbed.broker.values import NS_PER_S

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker

ANSWER_NS = 10 * NS_PER_S  # for neighbours to answer a request for a report or for their locks
STEP_NS = 60 * NS_PER_S  # for a child to arrive at its next parent, a restart of one of the brokers included
LOCK_NS = 300 * NS_PER_S  # after which a lock ends by itself: longer than the steps of most plans
RESTART_NS = 10 * NS_PER_S  # for the links of a broker that has started to be connected
SLICE_NS = 1_000  # between two iterations of the search, so that messages need not wait for all of them
LEAST_GAIN = 1e-9  # of the cost: less is rounding


class Search:
    """A search for a cheaper tree that goes on step by step."""

    def __init__(self, view: View, config: PlacementConfig) -> None:
        self.view, self.best = view, view.tree
        names = view.names
        pairs = [(one, other) for other in range(len(names)) for one in range(other)]
        of_links = {(one, other): config.of_link(names[one], names[other]) for one, other in pairs}
        self._traffic = Traffic(Costs(of_links, [config.of_broker(name) for name in names]), view.demands)
        self._trees: Iterator[frozenset[Link]] = search(
            self._traffic, view.tree, config.moves, config.iterations, config.tenure, config.draw
        )

    def is_over(self) -> bool:
        """Make one iteration; returns whether there are no more."""
        tree = next(self._trees, None)
        self.best = tree or self.best
        return tree is None

    @property
    def gain(self) -> float:
        """The part of its cost that the best tree saves."""
        before = self._traffic.cost(self.view.tree)
        return (before - self._traffic.cost(self.best)) / before if before else 0.0


class Plan:
    """How the brokers of a view become another tree."""

    def __init__(self, attempt: str, view: View, tree: frozenset[Link], now_ns: int) -> None:
        self.attempt = attempt
        self.last_step_ns = now_ns + LOCK_NS - STEP_NS  # a later step might end after the locks
        self.view = view
        self.names = view.names
        self.parents = view.parents  # as they are now
        self.left = plan.steps(view.parents, tree)
        self.granted: set[str] = set()
        self.is_locked = False

    def path(self, begin: int, end: int, parents: plan.Parents | None = None) -> list[str]:
        return [self.names[it] for it in plan.path(parents or self.parents, begin, end)]


class Placement:
    def __init__(self, broker: "Broker", config: PlacementConfig) -> None:
        self._broker = broker
        self._config = config
        self._demand: Demand[Session | None, Receivers] = Demand(self._members_of)
        self.count = self._demand.count  # source: the neighbour from which messages come, or None for clients
        self._report: Report | None = None  # of the last whole period; None: the neighbours have changed since
        self._attempts = 0
        self._searching: Search | None = None
        self._asked: str | None = None  # the neighbour whose report is on its way
        self._plan: Plan | None = None
        self._locked_by: tuple[str, str] | None = None  # the broker that has locked this one, and its attempt
        self._moving: dict[str, Any] | None = None  # the step that this broker is making for another one
        self._handlers: dict[str, Callable[[dict[str, Any], int], None]] = {
            "report": self._asked_for_report, "reported": self._reported, "lock": self._lock, "granted": self._granted,
            "denied": self._denied, "unlock": self._unlock, "move": self._move, "moved": self._moved,
            "unmoved": self._unmoved, "restarted": self._restarted,
        }  # fmt: skip

    # -- measuring ------------------------------------------------------------------------------------------------

    def _members_of(self, source: Session | None, receivers: Receivers) -> Members:
        own = self._broker.config.name
        sessions = [*receivers.plain, *(target.session for target in receivers.special)]
        members = {own if it.link is None else it.link.peer for it in sessions}
        members.add(own if source is None or source.link is None else source.link.peer)
        if receivers.groups:
            members.add(own)
        return frozenset(members)

    def start(self, now_ns: int) -> None:
        """The broker has started. Brokers look for cheaper trees at different times."""
        self._demand.restart(now_ns)
        self._later(now_ns, 0)
        self._broker.at(now_ns + RESTART_NS, _after_restart, None)

    def after_restart(self, now_ns: int) -> None:
        """Have the locks ended that this broker may have held when it was killed."""
        own = self._broker.config
        self._restart_known(own.name, own.incarnation, now_ns)

    def links_changed(self, now_ns: int) -> None:
        """The broker has other neighbours than before, or others have."""
        self._demand.restart(now_ns)
        self._report = None

    def _measured(self, now_ns: int) -> View:
        """What the broker has seen in the period that ends now."""
        overlay, seconds = self._broker.overlay, (now_ns - self._demand.since_ns) / NS_PER_S
        names = [session.link.peer for session in overlay.links() if session.link is not None]
        parent = "" if overlay.parent is None else names[0]
        flows = {flow: (members, count / seconds) for flow, (members, count) in self._demand.by_flow().items()}
        own = self._broker.config.name
        report = self._report = Report(own, parent, tuple(names[1:] if parent else names), flows)
        by_class = self._demand.by_class(frozenset((own, *names)))
        self._demand.restart(now_ns)
        return own_view(report, {members: count / seconds for members, count in by_class.items()})

    # -- the broker that looks for a cheaper tree -------------------------------------------------------------------

    def _later(self, now_ns: int, waits_ns: int) -> None:
        """Look again after this time, or a period, and some more: neighbours must not always look at the same time."""
        period_ns = self._config.period_ns
        more_ns = self._config.draw.randrange(max(1, period_ns // 2))
        self._broker.at(now_ns + (waits_ns or period_ns) + more_ns, _look, None)

    def look(self, now_ns: int) -> None:
        """Look for a cheaper tree, if the traffic has been measured for long enough."""
        config = self._config
        waits_ns = self._demand.since_ns + config.period_ns - now_ns
        if waits_ns > 0:
            self._later(now_ns, waits_ns)
            return
        self._later(now_ns, 0)
        view = self._measured(now_ns)
        if not self._is_engaged and view.demands:
            self._search(view, now_ns)

    def _search(self, view: View, now_ns: int) -> None:
        self._searching = Search(view, self._config)
        self.search_on(self._searching, now_ns)

    def search_on(self, searching: Search, now_ns: int) -> None:
        """One iteration of the search. If the neighbourhood has no cheaper tree, one with a neighbour's may have."""
        if self._searching is not searching:
            return
        if not searching.is_over():
            self._broker.at(now_ns + SLICE_NS, _search_on, searching)
            return
        self._searching = None
        if searching.gain > LEAST_GAIN and searching.gain >= self._config.gain - LEAST_GAIN:
            self._request_locks(searching.view, searching.best, now_ns)
        elif len(searching.view.known) == 1 and len(searching.view.names) > 1 and self._report and self._report.flows:
            self._asked = searching.view.names[1 + self._config.draw.randrange(len(searching.view.names) - 1)]
            self._send([self._asked], now_ns, do="report", by=self._broker.config.name)

    def _reported(self, content: dict[str, Any], now_ns: int) -> None:
        own, neighbour = self._report, Report.read(content)
        if own is None or neighbour.name != self._asked or self._is_engaged:
            return
        self._asked = None
        if neighbour.flows and neighbour.name in own.neighbours and own.name in neighbour.neighbours:
            view = joint_view(own, neighbour)
            if view.demands:
                self._search(view, now_ns)

    @property
    def _is_engaged(self) -> bool:
        is_busy = self._plan is not None or self._locked_by is not None or self._searching is not None
        return is_busy or self._broker.overlay.link_moves.is_busy

    def _request_locks(self, view: View, tree: frozenset[Link], now_ns: int) -> None:
        own = self._report
        if self._is_engaged or own is None or view.known[own.name] != own.neighbours:
            return
        self._attempts += 1
        attempt = f"{self._broker.config.incarnation}/{self._attempts}"
        made = self._plan = Plan(attempt, view, tree, now_ns)
        for number, name in enumerate(made.names):
            if number:
                way, back = made.path(0, number), made.path(number, 0)
                self._send(
                    way, now_ns, do="lock", by=made.names[0], attempt=made.attempt, name=name, way=way, back=back
                )
        self._broker.at(now_ns + ANSWER_NS, _answers_due, made)

    def _granted(self, content: dict[str, Any], now_ns: int) -> None:
        made, name = self._plan, content["name"]
        if made is None or made.attempt != content["attempt"] or made.is_locked:
            own = self._broker.config.name
            self._send(content["way"], now_ns, do="unlock", by=own, attempt=content["attempt"])
            return
        made.granted.add(name)
        if made.view.known.get(name, tuple(content["neighbours"])) != tuple(content["neighbours"]):
            self.give_up(made, now_ns)  # the tree there is not as it was
        elif len(made.granted) == len(made.names) - 1:
            made.is_locked = True
            self._step(made, now_ns)

    def _denied(self, content: dict[str, Any], now_ns: int) -> None:
        if self._plan is not None and self._plan.attempt == content["attempt"]:
            self.give_up(self._plan, now_ns)

    def give_up(self, made: Plan, now_ns: int) -> None:
        """Give the locks back: the plan is finished, or cannot be carried out."""
        if self._plan is not made:
            return
        self._plan = None
        for number, name in enumerate(made.names):
            if number and (made.is_locked or name in made.granted):
                self._send(made.path(0, number), now_ns, do="unlock", by=made.names[0], attempt=made.attempt)

    def answers_due(self, made: Plan, now_ns: int) -> None:
        if not made.is_locked:
            self.give_up(made, now_ns)

    def _step(self, made: Plan, now_ns: int) -> None:
        """Have the next child moved, by its parent so far."""
        if not made.left or now_ns > made.last_step_ns:
            self.give_up(made, now_ns)
            return
        step, names = made.left[0], made.names
        content: dict[str, Any] = {
            "do": "move", "child": names[step.child], "to": names[step.new], "attempt": made.attempt,
            "answer": made.path(step.old, 0, plan.after(made.parents, [step])), "otherwise": made.path(step.old, 0),
        }  # fmt: skip
        self._send(made.path(0, step.old), now_ns, **content)
        self._broker.at(now_ns + STEP_NS, _step_due, (made, step))

    def step_due(self, made: Plan, step: plan.Step, now_ns: int) -> None:
        """A step takes too long. It may still come to its end, but the rest of the plan is given up."""
        if self._plan is made and made.left and made.left[0] is step:
            self.give_up(made, now_ns)

    def _moved(self, content: dict[str, Any], now_ns: int) -> None:
        made = self._plan
        if made is not None and made.attempt == content["attempt"] and made.left:
            made.parents = plan.after(made.parents, [made.left.pop(0)])
            self._step(made, now_ns)

    def _unmoved(self, content: dict[str, Any], now_ns: int) -> None:
        if self._plan is not None and self._plan.attempt == content["attempt"]:
            self.give_up(self._plan, now_ns)

    # -- its neighbours -------------------------------------------------------------------------------------------

    def _asked_for_report(self, content: dict[str, Any], now_ns: int) -> None:
        if self._report is not None:
            self._send([content["by"]], now_ns, do="reported", **self._report.written())

    def _lock(self, content: dict[str, Any], now_ns: int) -> None:
        answer = "denied"
        links = self._broker.overlay.links()
        if not self._is_engaged and all(session.connection is not None for session in links):
            answer, self._locked_by = "granted", (content["by"], content["attempt"])
            self._broker.at(now_ns + LOCK_NS, _lock_over, self._locked_by)
        self._send(
            content["back"], now_ns, do=answer, attempt=content["attempt"], name=content["name"], way=content["way"],
            neighbours=[session.link.peer for session in links if session.link is not None],
        )  # fmt: skip

    def _unlock(self, content: dict[str, Any], now_ns: int) -> None:
        self.lock_over((content["by"], content["attempt"]), now_ns)

    def _restarted(self, content: dict[str, Any], now_ns: int) -> None:
        """Brokers with locks of one broker are linked with one another, so those that have one pass this on."""
        lock, name, incarnation = self._locked_by, content["by"], content["incarnation"]
        if lock is not None and lock[0] == name and not lock[1].startswith(incarnation + "/"):
            self.lock_over(lock, now_ns)
            self._restart_known(name, incarnation, now_ns)

    def _restart_known(self, name: str, incarnation: str, now_ns: int) -> None:
        for session in self._broker.overlay.links():
            if session.link is not None:
                self._send([session.link.peer], now_ns, do="restarted", by=name, incarnation=incarnation)

    def lock_over(self, lock: tuple[str, str], now_ns: int) -> None:
        if self._locked_by == lock:
            self._locked_by = None
            self.links_changed(now_ns)

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


def _after_restart(broker: "Broker", _: None, now_ns: int) -> None:
    assert broker.placement is not None
    broker.placement.after_restart(now_ns)


def _search_on(broker: "Broker", searching: Search, now_ns: int) -> None:
    assert broker.placement is not None
    broker.placement.search_on(searching, now_ns)


def _answers_due(broker: "Broker", made: Plan, now_ns: int) -> None:
    assert broker.placement is not None
    broker.placement.answers_due(made, now_ns)


def _step_due(broker: "Broker", of: tuple[Plan, plan.Step], now_ns: int) -> None:
    assert broker.placement is not None
    broker.placement.step_due(*of, now_ns)


def _lock_over(broker: "Broker", lock: tuple[str, str], now_ns: int) -> None:
    assert broker.placement is not None
    broker.placement.lock_over(lock, now_ns)
