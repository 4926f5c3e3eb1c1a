"""The log and small tables about the scenarios as DataFrames, for all runs of a run directory at once."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import pairwise, product
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from brokerbed.analysis.moved_runs import trees_of
from brokerbed.analysis.runs import STORED, Finished, Run
from brokerbed.analysis.transforms.exchanges import ANSWERED, ASKED, REPLIED, SERVED
from brokerbed.analysis.windows import NOT_COMPARED, Interval, batch_seconds
from brokerbed.log.record import CLIENTS
from brokerbed.scenario import Algorithm, Publisher, Scenario, Subscriber, is_wildcard, matches
from brokerbed.topics import merged_filter

BINS = 128  # per run, by which rows are joined with the interval of their time
DDL = {"int8": "tinyint", "int16": "smallint", "int32": "int", "int64": "bigint", "string": "string", "bool": "boolean"}
FEW_RUNS = 4  # each has a scan of its own; more would make plans too long
_STORED_DDL = ", ".join(f"{field.name} {DDL[str(field.type)]}" for field in STORED)


@dataclass(frozen=True)
class Frames:
    spark: SparkSession
    finished: Finished

    @cached_property
    def logged(self) -> DataFrame:
        """Every row of every log, with its run, its broker, and what of its run the transforms need."""
        return self._in_few if len(self.finished.runs) <= FEW_RUNS else self._in_many

    @cached_property
    def _in_few(self) -> DataFrame:
        """A scan for each run, which takes the broker from the path of the file at no cost."""
        parts = []
        for run in self.finished.runs:
            log = f"file:{_escaped(str((run.folder / 'log').resolve()))}"
            rows = self.spark.read.schema(f"{_STORED_DDL}, broker string").parquet(log)
            numbered = {
                "run": F.lit(run.number),
                "bin_ns": F.lit(bin_ns_of(run)).cast("long"),
                "input": F.lit(input_of(run)),
            }
            parts.append(rows.withColumns(numbered))
        return reduce(DataFrame.unionByName, parts)

    @cached_property
    def _in_many(self) -> DataFrame:
        """One scan of all runs, in which each row finds its run and broker by the name of its file."""
        folders = [f"file:{_escaped(str((run.folder / 'log').resolve()))}" for run in self.finished.runs]
        rows = self.spark.read.schema(_STORED_DDL).option("recursiveFileLookup", "true").parquet(*folders)
        run_of_file = {
            part.file.resolve(): (run.number, part.broker, bin_ns_of(run), input_of(run))
            for run in self.finished.runs
            for part in run.parts
        }
        files = []
        for uri in rows.inputFiles():
            path = uri.removeprefix("file://")
            files.append((f"file:{path}", *run_of_file[Path(unquote(path))]))
        table = self.table(files, "file_path string, run int, broker string, bin_ns bigint, input string")
        return rows.select("*", "_metadata.file_path").join(F.broadcast(table), "file_path").drop("file_path")

    @cached_property
    def events(self) -> DataFrame:
        """The rows that brokers logged."""
        return self.logged.where(F.col("broker") != CLIENTS)

    @cached_property
    def clients(self) -> DataFrame:
        return self.logged.where(F.col("broker") == CLIENTS)

    def table(self, rows: Sequence[tuple[Any, ...]], ddl: str) -> DataFrame:
        """A DataFrame from a few rows."""
        names = [column.split()[0] for column in ddl.split(", ")]
        columns = list(zip(*rows, strict=True)) or [()] * len(names)
        kinds = [_ARROW[column.split()[1]] for column in ddl.split(", ")]
        arrays = [pa.array(list(column), kind) for column, kind in zip(columns, kinds, strict=True)]
        return self.spark.createDataFrame(pa.table(arrays, names=names))

    def intervals(self, intervals: dict[int, list[Interval]]) -> DataFrame:
        """The intervals of analysis/windows.py, with a row for each bin that an interval overlaps."""
        rows = []
        for run in self.finished.runs:
            bin_ns, run_intervals = bin_ns_of(run), intervals[run.number]
            lengths_s = batch_seconds(run_intervals).tolist()
            for number, interval in enumerate(run_intervals):
                bins = range(max(-1, interval.begin_ns // bin_ns), max(-1, (interval.end_ns - 1) // bin_ns) + 1)
                seconds = 0.0 if interval.batch == NOT_COMPARED else lengths_s[interval.batch]
                limits = number, interval.begin_ns, interval.end_ns, interval.batch, seconds
                rows += [(run.number, run.point, bin_, *limits) for bin_ in bins]
        return self.table(
            rows,
            "run int, point int, bin bigint, interval int, begin_ns bigint, end_ns bigint, batch int, seconds double",
        )

    @cached_property
    def peers(self) -> DataFrame:
        """Every copy of every peer, and of every stream of messages that a peer sends."""
        rows = [
            (run.number, peer_id, base, copy, comes_and_goes)
            for run in self.finished.runs
            for copy in range(run.scenario.copies)
            for peer_id, (base, comes_and_goes) in _peers_of(run.scenario, copy).items()
        ]
        return self.table(rows, "run int, id string, base string, copy int, comes_and_goes boolean")

    @cached_property
    def audiences(self) -> DataFrame:
        """The receivers of each stream of messages, copy by copy."""
        audiences: dict[tuple[int, str], list[str]] = {}
        for run in self.finished.runs:
            for stream, receiver in run.scenario.pairs():
                for publisher, subscriber in _copies(run.scenario, stream, receiver):
                    audiences.setdefault((run.number, publisher), []).append(subscriber)
        rows = [(*key, subscribers) for key, subscribers in audiences.items()]
        return self.table(rows, "run int, publisher string, subscribers array<string>")

    @cached_property
    def hops(self) -> DataFrame:
        """The brokers on the path of each pair, and to whom each of them forwards the message."""
        rows: dict[tuple[int, str, str, int, str, str], None] = {}
        for number, publisher, subscriber, path in self._ways():
            following = [f"{here}>{there}" for here, there in pairwise(path)]
            for hop, (broker, next_) in enumerate(zip(path, [*following, subscriber], strict=True)):
                rows[number, publisher, subscriber, hop, broker, next_] = None
        names = "run int, publisher string, subscriber string, hop int, broker string, next string"
        return self.table(list(rows), names)

    @cached_property
    def links_move(self) -> bool:
        """Whether any link moved in any run."""
        return any(run.moves for run in self.finished.runs)

    @cached_property
    def peers_roam(self) -> bool:
        """Whether any peer roams in any run."""
        return any(
            peer.roams for run in self.finished.runs for peer in (*run.scenario.publishers, *run.scenario.subscribers)
        )

    @cached_property
    def roaming_subscribers(self) -> DataFrame:
        rows = [
            (run.number, run.scenario.copy_of(peer, copy).id, peer.id, copy)
            for run in self.finished.runs
            for peer in run.scenario.subscribers
            for copy in range(run.scenario.copies if peer.roams else 0)
        ]
        return self.table(rows, "run int, id string, base string, copy int")

    def _ways(self) -> Iterable[tuple[int, str, str, tuple[str, ...]]]:
        """Each pair with the path between its brokers. If links or peers move, it has a path for every tree that there
        was and every two brokers at which the peers were."""
        for run in self.finished.runs:
            scenario = run.scenario
            trees = trees_of(run)
            for stream, receiver in scenario.pairs():
                paths = {
                    tuple(tree.names[place] for place in tree.path(*ends)): None
                    for tree in trees
                    for ends in product(stream.places, receiver.places)
                }
                for ids in _copies(scenario, stream, receiver):
                    yield from ((run.number, *ids, path) for path in paths)

    @cached_property
    def exchange_roles(self) -> DataFrame | None:
        """What the rows of transforms/passages.py are for requests and their answers; None if no run has requests."""
        rows = []
        for run in self.finished.runs:
            scenario = run.scenario
            for asks, serves in scenario.exchanges():
                for copy in range(scenario.copies):
                    requester, responder = scenario.copy_of(asks, copy).id, scenario.copy_of(serves, copy).id
                    answers = scenario.copy_of(serves.answers_to(asks), copy).id
                    exchange = run.number, asks.id, serves.id, copy
                    rows += [
                        (*exchange, requester, requester, ASKED),
                        (*exchange, requester, responder, SERVED),
                        (*exchange, answers, answers, REPLIED),
                        (*exchange, answers, requester, ANSWERED),
                    ]
        names = "run int, requester string, responder string, copy int, origin string, client string, role string"
        return self.table(rows, names) if rows else None

    @cached_property
    def queues(self) -> DataFrame:
        """The outputs of brokers that take time: sessions of peers, and links with a service demand."""
        rows = []
        for run in self.finished.runs:
            scenario = run.scenario
            for peer in scenario.subscribers:
                if peer.session_service is not None or peer.is_intermittent:
                    ids = [scenario.copy_of(peer, copy).id for copy in range(scenario.copies)]
                    rows += [(run.number, client, "session", peer.id) for client in ids]
            if scenario.service.link is not None:
                for ends in scenario.tree.links:
                    rows += [
                        (run.number, ">".join(direction), "link", ">".join(direction))
                        for direction in (ends, ends[::-1])
                    ]
        return self.table(rows, "run int, client string, stage string, at string")

    @cached_property
    def always_links(self) -> list[tuple[int, str, str]]:
        """The links to which a broker sends everything: up to the root, and without stored entries everywhere."""
        rows = []
        for run in self.finished.runs:
            algorithm = run.scenario.algorithm
            for child, parent in run.scenario.tree.links:
                if algorithm.climbs or not algorithm.stores_entries:
                    rows.append((run.number, child, f"{child}>{parent}"))
                if not algorithm.stores_entries:
                    rows.append((run.number, parent, f"{parent}>{child}"))
        return rows

    @cached_property
    def always(self) -> DataFrame:
        return self.table(self.always_links, "run int, broker string, client string")

    @cached_property
    def subtrees(self) -> DataFrame:
        """The links above each broker, by their lower end, in runs with links whose notifications may be unwanted."""
        rows = []
        for run in self.finished.runs:
            if not _may_be_unwanted(run.scenario.algorithm):
                continue
            parents = dict(run.scenario.tree.links)
            for broker in parents:
                child: str | None = broker
                while child in parents:
                    rows.append((run.number, broker, child))
                    child = parents[child]
        return self.table(rows, "run int, broker string, child string")

    @cached_property
    def suspect_events(self) -> DataFrame | None:
        """The rows that brokers logged in runs with such links; None if there are no such runs."""
        runs = [run.number for run in self.finished.runs if _may_be_unwanted(run.scenario.algorithm)]
        return self.events.where(F.col("run").isin(*runs)) if runs else None

    @cached_property
    def suspect_links(self) -> DataFrame:
        """The directions of links on which notifications may cross that nobody below the link wants."""
        rows = []
        for run in self.finished.runs:
            algorithm, media = run.scenario.algorithm, run.scenario.media
            for child, parent in run.scenario.tree.links if _may_be_unwanted(algorithm) else ():
                if child not in media:
                    rows.append((run.number, f"{child}>{parent}", child, True))
                if algorithm.merges and parent not in media:
                    rows.append((run.number, f"{parent}>{child}", child, False))
        return self.table(rows, "run int, client string, child string, is_up boolean")

    @cached_property
    def bandwidths(self) -> DataFrame | None:
        """The directions of links with a bandwidth; None if there are none."""
        rows = [
            (run.number, ">".join(ends), link.bandwidth)
            for run in self.finished.runs
            for link in run.scenario.links
            if link.bandwidth is not None
            for ends in (link.between, link.between[::-1])
        ]
        return self.table(rows, "run int, client string, bandwidth double") if rows else None

    @cached_property
    def wildcards(self) -> DataFrame | None:
        """Wildcard filters and the topics of the experiment that each matches; None if there are no such filters."""
        rows: dict[tuple[int, str], list[str]] = {}
        for run in self.finished.runs:
            scenario = run.scenario
            copies = range(scenario.copies)
            filters = [scenario.copy_of(peer, copy).topic for peer in scenario.receivers for copy in copies]
            filters += scenario.filters_of_parts
            others = [scenario.copy_of(stream, copy).topic for stream in scenario.streams for copy in copies]
            others += scenario.topics_of_parts
            groups = range(scenario.groups or 0) if scenario.subscriptions.wide is not None else ()
            wildcards = dict.fromkeys([*filter(is_wildcard, filters), *map(scenario.group_filter, groups)])
            if scenario.algorithm.merges:
                classes = [scenario.class_topic(number) for number in range(scenario.groups or 1)]
                merged = map(merged_filter, (*classes, *filters, *others))
                wildcards |= dict.fromkeys(it for it in merged if it is not None)
            for wildcard in wildcards:
                topics = [scenario.class_topic(number) for number in scenario.classes_matching(wildcard)]
                topics += [topic for topic in others if matches(wildcard, topic)]
                rows[run.number, wildcard] = list(dict.fromkeys(topics))
        if not rows:
            return None
        matched = [(*key, topics) for key, topics in rows.items()]
        return self.table(matched, "run int, filter string, topics array<string>")


_ARROW = {
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "array<string>": pa.list_(pa.string()),
    "boolean": pa.bool_(),
}


def input_of(run: Run) -> str:
    """The event at which a broker routes a message: when it is received, or after the service at the input."""
    return "received" if run.scenario.service.broker_in is None else "served"


def _may_be_unwanted(algorithm: Algorithm) -> bool:
    """Whether notifications always climb, and go down as stored entries say."""
    return algorithm.stores_entries and algorithm.climbs


def bin_ns_of(run: Run) -> int:
    return max(1, -(-run.measured_ns[1] // BINS))


def _peers_of(scenario: Scenario, copy: int) -> dict[str, tuple[str, bool]]:
    """By id: the id of the peer in the scenario, and whether it comes and goes."""
    streams = {scenario.copy_of(it, copy).id: (it.sender, it.is_intermittent) for it in scenario.streams}
    return streams | {scenario.copy_of(it, copy).id: (it.id, it.is_intermittent) for it in scenario.receivers}


def _copies(scenario: Scenario, stream: Publisher, receiver: Subscriber) -> Iterator[tuple[str, str]]:
    """The ids of both peers, copy by copy."""
    return ((scenario.copy_of(stream, copy).id, scenario.copy_of(receiver, copy).id) for copy in range(scenario.copies))


def _escaped(path: str) -> str:
    """The path with wildcard characters escaped, as Spark takes paths for patterns."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", path)
