"""Every way to get a scenario wrong: one sentence that names the line, the key and what is allowed there."""

from pathlib import Path

import pytest

from brokerbed import shipped
from brokerbed.scenario import ScenarioError, load

HEAD = "scenario: 1\nname: x\nclock: {measure: 100s}\n"  # lines 1 to 3
TREE = HEAD + "topology: {tree: line, brokers: 3}\n"  # line 4
PEERS = TREE + "publishers:\n  - {id: p, broker: b0, topic: t, rate: 1/s}\n"  # lines 5 and 6
REQUESTS = (
    TREE + "requesters:\n  - {id: q, broker: b1, topic: ask, rate: 1/s}\n"  # lines 5 and 6
    "responders:\n  - {id: r, broker: b2, topic: ask}\n"
)

MOVING = TREE + "routing: peer\n"  # line 5
LINKS_MOVE = "placement: {period: 1s}\n"
SPREADING = "spreading: {coefficient: 0.5, rate: 1/s, types: 2, redraw: 5s}\n"
MISTAKES = {
    # the file as a whole
    "empty": ("", 1, "", "the file is empty"),
    "only a comment": ("# nothing\n", 1, "", "the file is empty"),
    "a list": ("- 1\n", 1, "", "a scenario is a mapping"),
    "a word": ("hello", 1, "", "a scenario is a mapping"),
    "broken yaml": (HEAD + "topology: [1\n", 5, "", "not valid YAML"),
    "a tab": (HEAD + "topology:\n\ttree: line\n", 5, "", "not valid YAML"),
    "a control character": (HEAD + "# \x07\n", 4, "", "not valid YAML"),
    "two documents": (TREE + "---\nscenario: 1\n", 5, "", "second YAML document"),
    "a tag": (HEAD + "topology: !!python/object:os.system {}\n", 4, "", "tags like"),
    "an unknown anchor": (HEAD + "topology: *tree\n", 4, "", "undefined|refers to no complete value"),
    "a recursive anchor": (HEAD + "topology: &t {tree: *t}\n", 4, "", "refers to no complete value"),
    "a key given twice": (TREE + "seed: 1\nseed: 2\n", 6, "seed", "given before"),
    "a list as key": (TREE + "[a]: 1\n", 5, "", "a key must be a plain word"),
    # keys
    "unknown key": (TREE + "clases: 3\n", 5, "clases", "unknown key; did you mean classes?"),
    "unknown inner key": (HEAD + "topology: {tree: line, broker: 3}\n", 4, "topology.broker", "did you mean brokers?"),
    "unknown key far from any": (TREE + "xyzzy: 1\n", 5, "xyzzy", "known are scenario, name"),
    "scenario missing": ("name: x\nclock: {measure: 1s}\ntopology: {tree: line, brokers: 1}\n", 1, "scenario", "is required: say `scenario: 1`"),
    "topology missing": (HEAD, 1, "topology", "is required, as in `topology: {tree: "),
    "clock without measure": ("scenario: 1\nname: x\nclock: {}\ntopology: {tree: line, brokers: 1}", 3, "clock.measure", "req"),
    "wrong version": (TREE.replace("scenario: 1", "scenario: 2"), 1, "scenario", "must be 1, not 2"),
    "version as truth": (TREE.replace("scenario: 1", "scenario: true"), 1, "scenario", "must be 1, not True"),
    "name with a slash": (TREE.replace("name: x", "name: a/b"), 2, "name", "must be a name"),
    "name missing": (TREE.replace("name: x", "name:"), 2, "name", "is required"),
    "broker called as the clients' log": (
        HEAD + "topology:\n  tree: explicit\n  parents:\n    b0: null\n    clients: b0\n", 8, "topology.parents.clients",
        "no broker can be called clients; the log of the testbed's own clients has that name",
    ),
    "spreading without redraw": (TREE + "spreading: {coefficient: 0.5, rate: 1/s, types: 2}\n", 5, "spreading.redraw", "is required"),
    "spreading coefficient above 1": (TREE + SPREADING.replace("0.5", "1.5"), 5, "spreading.coefficient", "less than or equal to 1"),
    "negative spreading coefficient": (TREE + SPREADING.replace("0.5", "-0.5"), 5, "spreading.coefficient", "greater than or equal to 0"),
    "spreading coefficient as text": (TREE + SPREADING.replace("0.5", "half"), 5, "spreading.coefficient", "number"),
    "spreading without a rate": (TREE + SPREADING.replace("1/s", "0/s"), 5, "spreading.rate", "must be"),
    "spreading rate without a unit": (TREE + SPREADING.replace("1/s", "1"), 5, "spreading.rate", "must be a rate like"),
    "spreading without types": (TREE + SPREADING.replace("types: 2", "types: 0"), 5, "spreading.types", "greater than or equal to 1"),
    "too many types": (TREE + SPREADING.replace("types: 2", "types: 400000"), 5, "spreading.types", "makes 1200000 topics at 3 brokers"),
    "endless redraws": (TREE + SPREADING.replace("5s", "0s"), 5, "spreading.redraw", "must be longer than 0"),
    "spreading qos": (TREE + SPREADING.replace("5s", "5s, qos: 3"), 5, "spreading.qos", "0, 1 or 2"),
    "unknown key of spreading": (TREE + SPREADING.replace("types", "typs"), 5, "spreading.typs", "did you mean types?"),
    "spreading with classes": (TREE + SPREADING + "classes: 3\n", 5, "spreading", "spreading and classes do not go together"),
    "spreading with subscriptions": (TREE + SPREADING + "subscriptions: {mean_active: 1, lifetime: {mean: 1s}}\n", 5, "spreading", "spreading and subscriptions do not go together"),
    "spreading with publications": (TREE + SPREADING + "publications: {rate: 1/s}\n", 5, "spreading", "spreading and publications do not go together"),
    "tolerance of links": (TREE + "tolerance: {link: much}\n", 5, "tolerance.link", "must be a percentage"),
    # units and numbers
    "bad unit": (TREE.replace("100s", "100sec"), 3, "clock.measure", "must be a duration like 60s"),
    "no unit": (TREE.replace("100s", "100"), 3, "clock.measure", "must be a duration like 60s"),
    "only a unit": (TREE.replace("100s", "s"), 3, "clock.measure", "must be a duration like 60s"),
    "negative duration": (TREE.replace("100s", "-1s"), 3, "clock.measure", "must not be negative"),
    "zero measuring time": (TREE.replace("100s", "0s"), 3, "clock.measure", "must be longer than 0"),
    "endless measuring time": (TREE.replace("100s", "1e99h"), 3, "clock.measure", "less than 146 years"),
    "negative rate": (TREE + "publications: {rate: -1/s}\n", 5, "publications.rate", "must not be negative, not -1/s"),
    "rate without unit": (TREE + "publications: {rate: 3}\n", 5, "publications.rate", "must be a rate like 3/s"),
    "absurd rate": (TREE + "publications: {rate: 1e300/s}\n", 5, "publications.rate", "must be at most 1e\\+09/s"),
    "zero lifetime": (TREE + "subscriptions: {mean_active: 1, lifetime: {mean: 0s}}", 5, "subscriptions.lifetime.mean", "longer than 0"),
    "no lifetime": (TREE + "subscriptions: {mean_active: 1}\n", 5, "subscriptions.lifetime", "is required"),
    "negative subscriptions": (TREE + "subscriptions: {mean_active: -1, lifetime: {mean: 1s}}", 5, "subscriptions.mean_active", "greater than or equal to 0, not -1"),
    "infinite subscriptions": (TREE + "subscriptions: {mean_active: .inf, lifetime: {mean: 1s}}", 5, "subscriptions.mean_active", "must be"),
    "nan": (TREE + "subscriptions: {mean_active: .nan, lifetime: {mean: 1s}}", 5, "subscriptions.mean_active", "must be a finite number"),
    "classes as text": (TREE + "classes: many\n", 5, "classes", "must be a whole number, not many"),
    "classes as truth": (TREE + "classes: true\n", 5, "classes", "must be a whole number, not True"),
    "half a class": (TREE + "classes: 1.5\n", 5, "classes", "must be a whole number, not 1.5"),
    "no classes": (TREE + "classes: 0\n", 5, "classes", "greater than or equal to 1, not 0"),
    "huge integer": (TREE + "seed: " + "9" * 5000 + "\n", 5, "seed", "must be"),
    "zero speedup": (TREE.replace("100s", "100s, speedup: 0"), 3, "clock.speedup", "greater than 0"),
    "tolerance above all": (TREE + "tolerance: 100%\n", 5, "tolerance", "less than 100%"),
    "tolerance in words": (TREE + "tolerance: low\n", 5, "tolerance", "a percentage like 2%"),
    "bad qos": (TREE + "publications: {qos: 3}\n", 5, "publications.qos", "must be 0, 1 or 2, not 3"),
    "size without unit": (TREE + "limits: {bytes: lots}\n", 5, "limits.bytes", "must be a size like 64MB"),
    "bad policy": (TREE + "limits: {policy: drop-newest}\n", 5, "limits.policy", "must be 'drop-oldest' or 'reject'"),
    "bad routing": (TREE + "routing: covered\n", 5, "routing", "must be flooding, simple, .* or peer-advertisement, not covered"),
    "routing without an algorithm": (TREE + "routing: {threshold: 3}\n", 5, "routing.algorithm", "is required, as in routing: {algorithm: merging"),
    "bad routing, long form": (TREE + "routing:\n  algorithm: covered\n", 6, "routing.algorithm", "must be flooding, simple, .* not covered"),
    "a parameter that the algorithm does not have": (TREE + "routing:\n  algorithm: covering\n  threshold: 3\n", 7, "routing.threshold", "covering routing has no parameter threshold; it has none"),
    "a misspelt parameter": (TREE + "routing: {algorithm: merging, treshold: 3}\n", 5, "routing.treshold", "merging routing has no parameter treshold; it has threshold"),
    "threshold of one": (TREE + "routing: {algorithm: merging, threshold: 1}\n", 5, "routing.threshold", "at least 2, not 1"),
    "threshold in words": (TREE + "routing: {algorithm: merging, threshold: two}\n", 5, "routing.threshold", "whole number of at least 2, not two"),
    "routing as a list": (TREE + "routing: [identity]\n", 5, "routing", "must be flooding, simple"),
    "more groups than classes": (TREE + "classes: {count: 3, groups: 4}\n", 5, "classes.groups", "at most the number of classes \\(3\\), not 4"),
    "no groups": (TREE + "classes: {count: 3, groups: 0}\n", 5, "classes.groups", "or equal to 1, not 0"),
    "classes with an unknown key": (TREE + "classes: {cuont: 3}\n", 5, "classes.cuont", "did you mean count?"),
    "wide without groups": (TREE + "classes: 9\nsubscriptions:\n  lifetime: {mean: 1s}\n  wide: {mean_active: 3}\n", 8, "subscriptions.wide", "needs groups of classes"),
    "wide without lifetime": (TREE + "classes: {count: 9, groups: 3}\nsubscriptions: {wide: {mean_active: 3}}\n", 6, "subscriptions.lifetime", "is required"),
    "wide without a number": (TREE + "classes: {count: 9, groups: 3}\nsubscriptions: {lifetime: {mean: 1s}, wide: {}}\n", 6, "subscriptions.wide.mean_active", "is required"),
    "sources without rate": (TREE + "publications:\n  sources: {on: {mean: 1s}, off: {mean: 1s}}\n", 6, "publications.sources", "sources need a rate"),
    "places of publications without rate": (TREE + "publications:\n  where: leaves\n  at: [{broker: b1, class: 0, rate: 1/s}]\n", 6, "publications.where", "where needs a rate"),
    "places without spread subscriptions": (TREE + "subscriptions:\n  where: [b1]\n  lifetime: {mean: 1s}\n", 6, "subscriptions.where", "where needs subscriptions"),
    "sources that never go": (TREE + "publications: {rate: 1/s, sources: {on: {mean: 1s}}}\n", 5, "publications.sources.off", "is required"),
    "population with mean_active": (TREE + "subscriptions:\n  mean_active: 3\n  population: {size: 3, on: {mean: 1s}, off: {mean: 1s}}\n", 7, "subscriptions.population", "population and mean_active exclude each other"),
    "population in words": (TREE + "subscriptions: {population: {size: few, on: {mean: 1s}, off: {mean: 1s}}}\n", 5, "subscriptions.population.size", "whole number|valid integer"),
    "negative population": (TREE + "subscriptions: {population: {size: -1, on: {mean: 1s}, off: {mean: 1s}}}\n", 5, "subscriptions.population.size", "or equal to 0, not -1"),
    "population that is never off": (TREE + "subscriptions: {population: {size: 3, on: {mean: 1s}}}\n", 5, "subscriptions.population.off", "is required"),
    "population as a number": (TREE + "subscriptions: {population: 3}\n", 5, "subscriptions.population", "must be a mapping like {size: 8"),
    "population here without periods": (TREE + "subscriptions: {at: [{broker: b1, class: 0, population: {size: 3}}]}\n", 5, "subscriptions.at", "the population at b1 needs on and off"),
    "population here that arrives": (TREE + "subscriptions: {at: [{broker: b1, class: 0, arrival_rate: 1/s, population: {size: 3, on: {mean: 1s}, off: {mean: 1s}}}]}\n", 5, "subscriptions.at.0.arrival_rate", "population and arrival_rate exclude each other"),
    "neither rate nor population": (TREE + "subscriptions: {lifetime: {mean: 1s}, at: [{broker: b1, class: 0}]}\n", 5, "subscriptions.at.0.arrival_rate", "is required"),
    "static with where": (TREE + "subscriptions: {where: leaves, static: {count: 1, place: best}}\n", 5, "subscriptions.static", "static and where exclude each other"),
    "static with mean_active": (TREE + "subscriptions: {mean_active: 1, static: {count: 1, place: best}}\n", 5, "subscriptions.static", "static and mean_active exclude each other"),
    "static with population": (TREE + "subscriptions: {population: {size: 3, on: {mean: 1s}, off: {mean: 1s}}, static: {count: 1, place: best}}\n", 5, "subscriptions.static", "static and population exclude each other"),
    "more than all leaves": (TREE + "subscriptions:\n  static:\n    place: worst\n    count: 2\n", 8, "subscriptions.static.count", "at most the number of leaves \\(1\\), not 2"),
    "no place": (TREE + "subscriptions: {static: {count: 1}}\n", 5, "subscriptions.static.place", "is required"),
    "another place": (TREE + "subscriptions: {static: {count: 1, place: left}}\n", 5, "subscriptions.static.place", "'best', 'worst' or 'random', not left"),
    "nobody is placed": (TREE + "subscriptions: {static: {count: 0, place: best}}\n", 5, "subscriptions.static.count", "or equal to 1, not 0"),
    "the best place drawn": (TREE + "subscriptions: {static: {count: 1, place: best, redraw: 1s}}\n", 5, "subscriptions.static.redraw", "redraw goes with place: random"),
    "redraw without a unit": (TREE + "subscriptions: {static: {count: 1, place: random, redraw: 3}}\n", 5, "subscriptions.static.redraw", "must be a duration"),
    "roam for ever": (TREE + "subscriptions: {mean_active: 1, lifetime: {mean: 1s}, roam: 1}\n", 5, "subscriptions.roam", "less than 100%"),
    "roam in words": (TREE + "subscriptions: {mean_active: 1, lifetime: {mean: 1s}, roam: often}\n", 5, "subscriptions.roam", "must be a percentage"),
    "roam with population": (TREE + "subscriptions: {population: {size: 3, on: {mean: 1s}, off: {mean: 1s}}, roam: 0.5}\n", 5, "subscriptions.roam", "roam and population exclude each other"),
    "roam with static": (TREE + "subscriptions: {static: {count: 1, place: best}, roam: 0.5}\n", 5, "subscriptions.roam", "roam and static exclude each other"),
    "roam with a population here": (TREE + "subscriptions: {roam: 0.5, lifetime: {mean: 1s}, at: [{broker: b1, class: 0, population: {size: 1, on: {mean: 1s}, off: {mean: 1s}}}]}\n", 5, "subscriptions.roam", "roam and a population \\(at b1\\) exclude each other"),
    "roam without arrivals": (TREE + "subscriptions: {roam: 0.5}\n", 5, "subscriptions.roam", "roam needs subscriptions that arrive"),
    "nowhere to roam": (TREE + "subscriptions: {mean_active: 1, lifetime: {mean: 1s}, roam: 0.5, where: [b1]}\n", 5, "subscriptions.roam", "at least two brokers"),
    "media in words": (TREE + "media: b0\n", 5, "media", "must be a list"),
    "a medium that is no broker": (TREE + "media: [b0, b9]\n", 5, "media.1", "no broker b9"),
    "a medium twice": (TREE + "media: [b0, b0]\n", 5, "media.1", "b0 was given before"),
    "costs of one link only": (TREE + "costs: 3\n", 5, "costs", "must be a mapping like {link: 1, links: {b1-b3: 4}"),
    "a cost below zero": (TREE + "costs: {link: -1}\n", 5, "costs.link", "greater than or equal to 0, not -1"),
    "a cost in words": (TREE + "costs: {brokers: {b1: much}}\n", 5, "costs.brokers.b1", "number"),
    "the cost of no broker": (TREE + "costs: {brokers: {b7: 1}}\n", 5, "costs.brokers.b7", "no broker b7"),
    "the cost of no pair": (TREE + "costs: {links: {b1: 1}}\n", 5, "costs.links.b1", "names of two brokers, joined by a dash"),
    "a cost between a broker and itself": (TREE + "costs: {links: {b1-b1: 1}}\n", 5, "costs.links.b1-b1", "names of two brokers"),
    "a cost twice": (TREE + "costs:\n  links:\n    b1-b2: 1\n    b2-b1: 1\n", 8, "costs.links.b2-b1", "b1 and b2 was given before"),
    "costs of a pair that can be read in two ways": (
        HEAD + "topology:\n  tree: explicit\n  parents:\n    a: null\n    a-b: a\n    b-c: a\n    c: a\n"
        "costs: {links: {a-b-c: 1}}\n", 11, "costs.links.a-b-c", "a and b-c or a-b and c; rename a broker",
    ),
    "placement without a period": (MOVING + "placement: {}\n", 6, "placement.period", "is required"),
    "placement in a word": (MOVING + "placement: yes\n", 6, "placement", "must be a mapping like {period: 60s}"),
    "placement all the time": (MOVING + "placement: {period: 0s}\n", 6, "placement.period", "must be longer than 0"),
    "placement without a break": (MOVING + "placement: {period: 1us}\n", 6, "placement.period", "must be at least 10ms"),
    "placement without a unit": (MOVING + "placement: {period: 60}\n", 6, "placement.period", "must be a duration like 60s"),
    "no candidates": (MOVING + "placement: {period: 1s, moves: 0}\n", 6, "placement.moves", "greater than or equal to 1"),
    "half an iteration": (MOVING + "placement: {period: 1s, iterations: 0.5}\n", 6, "placement.iterations", "must be a whole number"),
    "tenure in words": (MOVING + "placement: {period: 1s, tenure: long}\n", 6, "placement.tenure", "must be a whole number"),
    "a gain of everything": (MOVING + "placement: {period: 1s, gain: 100%}\n", 6, "placement.gain", "at least 0% and less than 100%"),
    "a loss as gain": (MOVING + "placement: {period: 1s, gain: -5%}\n", 6, "placement.gain", "must not be negative"),
    "a weight below zero": (MOVING + "placement: {period: 1s, alpha: -1}\n", 6, "placement.alpha", "greater than or equal to 0"),
    "a weight in words": (MOVING + "placement: {period: 1s, beta: heavy}\n", 6, "placement.beta", "number"),
    "an unknown key of placement": (MOVING + "placement: {periode: 1s}\n", 6, "placement.periode", "did you mean period?"),
    "placement under routing with a root": (
        TREE + "placement: {period: 1s}\n", 5, "placement",
        "placement needs routing under which links can move: peer or peer-advertisement, not identity",
    ),
    "placement of brokers that forget": (
        MOVING + "placement: {period: 1s}\ndurability: memory\nfaults: [{at: 5s, crash: b1, for: 1s}]\n", 6, "placement",
        "placement does not go with durability: memory if faults kill brokers",
    ),
    "placement of a workload by distance": (
        MOVING + LINKS_MOVE + SPREADING, 6, "placement", "placement does not go with spreading, whose workload depends on the tree",
    ),
    "a link from a broker to itself": (MOVING + LINKS_MOVE + "links: [{between: [b1, b1], bandwidth: 1kbit/s}]\n", 7, "links.0.between", "must name two brokers, not b1 twice"),
    "a link to no broker": (MOVING + LINKS_MOVE + "links: [{between: [b1, b7], bandwidth: 1kbit/s}]\n", 7, "links.0.between", "no broker b7"),
    "a cut of a broker from itself": (MOVING + LINKS_MOVE + "faults: [{at: 5s, cut: [b2, b2], for: 1s}]\n", 7, "faults.0.cut", "must name two brokers, not b2 twice"),
    "a cut of no link where links stay": (MOVING + "faults: [{at: 5s, cut: [b0, b2], for: 1s}]\n", 6, "faults.0.cut", "there is no link between b0 and b2"),
    "nowhere": (TREE + "subscriptions: {mean_active: 1, lifetime: {mean: 1s}, where: []}\n", 5, "subscriptions.where", "must be all, leaves, or a list of brokers"),
    "where in other words": (TREE + "publications: {rate: 1/s, where: root}\n", 5, "publications.where", "must be all, leaves, or a list of brokers like .*, not root"),
    "where no broker is": (TREE + "publications:\n  rate: 1/s\n  where:\n  - b1\n  - b7\n", 9, "publications.where.1", "no broker b7; brokers are b0, b1, b2"),
    "twice the same place": (TREE + "publications: {rate: 1/s, where: [b1, b1]}\n", 5, "publications.where.1", "b1 was given before"),
    "a law that is none": (TREE + "refresh: 1s\nservice: {link: 3ms}\n", 6, "service.link", "must be a mapping like {mean: 60s"),
    "unknown law": (TREE + "service: {link: {mean: 3ms, law: pareto}}\n", 5, "service.link.law", "must be 'exponential'"),
    "cv of an exponential": (TREE + "service: {link: {mean: 3ms, cv: 2}}\n", 5, "service.link.cv", "lognormal only"),
    # topologies
    "no tree": (HEAD + "topology: {brokers: 3}\n", 4, "topology.tree", "levels, regular, line, star or explicit"),
    "unknown tree": (HEAD + "topology:\n  tree: ring\n", 5, "topology.tree", "or explicit, not ring"),
    "topology as a word": (HEAD + "topology: line\n", 4, "topology", "must be a mapping like {tree: levels"),
    "no width": (HEAD + "topology: {tree: levels, brokers: 3}\n", 4, "topology.width", "is required"),
    "no brokers": (HEAD + "topology: {tree: line, brokers: 0}\n", 4, "topology.brokers", "or equal to 1"),
    "too many brokers": (HEAD + "topology: {tree: line, brokers: 100001}\n", 4, "topology.brokers", "or equal to 100000"),
    "too bushy": (HEAD + "topology: {tree: regular, arity: 10, depth: 10}\n", 4, "topology", "more than 100000 brokers"),
    "cycle": (HEAD + "topology:\n  tree: explicit\n  parents:\n    a: null\n    b: c\n    c: b\n", 8, "topology.parents.b", "circle: b -> c -> b"),
    "two roots": (HEAD + "topology: {tree: explicit, parents: {a: null, b: null}}", 4, "topology.parents.b", "two roots, a and b"),
    "no root": (HEAD + "topology: {tree: explicit, parents: {a: b, b: a}}\n", 4, "topology", "no broker is the root"),
    "own parent": (HEAD + "topology: {tree: explicit, parents: {a: null, b: b}}\n", 4, "topology.parents.b", "circle: b -> b"),
    "unknown parent": (HEAD + "topology: {tree: explicit, parents: {a: null, b: z}}\n", 4, "topology.parents.b", "the parent z is no broker"),
    "parents as a list": (HEAD + "topology: {tree: explicit, parents: [a]}\n", 4, "topology.parents", "map every broker"),
    "broker name": (HEAD + "topology: {tree: explicit, parents: {a>b: null}}\n", 4, "topology.parents.a>b", "no broker name"),
    # references
    "unknown broker of a peer": (PEERS.replace("b0", "b9"), 6, "publishers.0.broker", "no broker b9; brokers are b0, b1, b2"),
    "unknown broker of a rate": (TREE + "publications: {at: [{broker: c, class: 0, rate: 1/s}]}", 5, "publications.at.0.broker", "no broker c"),
    "unknown class": (TREE + "publications: {at: [{broker: b0, class: 1, rate: 1/s}]}", 5, "publications.at.0.class", "classes are 0 to 0"),
    "a rate given twice": (TREE + "publications:\n  at:\n    - &a {broker: b0, class: 0, rate: 1/s}\n    - *a\n", 8, "publications.at.1", "given before"),
    "same id twice": (PEERS + "subscribers:\n  - {id: p, broker: b0, topic: t}\n", 8, "subscribers.0.id", "id p was given before"),
    "on without off": (TREE + "subscribers: [{id: s, broker: b0, topic: t, on: {mean: 1s}}]\n", 5, "subscribers.0.on", "on and off go together"),
    "publish to a wildcard": (PEERS.replace("topic: t", "topic: a/#"), 6, "publishers.0.topic", "no wildcards"),
    "malformed filter": (TREE + "subscribers: [{id: s, broker: b0, topic: a#}]\n", 5, "subscribers.0.topic", "whole last level"),
    "system topic": (PEERS.replace("topic: t", "topic: $SYS/x"), 6, "publishers.0.topic", "begin with \\$"),
    "zero rate of a publisher": (PEERS.replace("1/s", "0/s"), 6, "publishers.0.rate", "must be more than 0"),
    "expiry without a unit": (PEERS.replace("1/s", "1/s, expiry: 20"), 6, "publishers.0.expiry", "must be a duration like 60s, 62.5ms, 5min .*, not 20"),
    "messages that are born dead": (PEERS.replace("1/s", "1/s, expiry: 0s"), 6, "publishers.0.expiry", "must be longer than 0"),
    "unknown law of an expiry": (PEERS.replace("1/s", "1/s, expiry: {mean: 1s, law: normal}"), 6, "publishers.0.expiry.law", "must be 'exponential', 'deterministic'"),
    "expiry of a subscriber": (PEERS.replace("publishers", "subscribers").replace("rate: 1/s", "expiry: 1s"), 6, "subscribers.0.expiry", "unknown key"),
    "copies on classes": (PEERS.replace("topic: t", "topic: class/0000") + "copies: 2\n", 6, "publishers.0.topic", "topics of their own"),
    "requester without a rate": (TREE + "requesters: [{id: q, broker: b0, topic: t}]\n", 5, "requesters.0.rate", "is required"),
    "requester at no broker": (REQUESTS.replace("b1", "b9"), 6, "requesters.0.broker", "no broker b9"),
    "requests to a wildcard": (REQUESTS.replace("topic: ask, rate", "topic: ask/+, rate"), 6, "requesters.0.topic", "no wildcards"),
    "requests to the own answers": (REQUESTS.replace("topic: ask, rate", "topic: reply/q, rate"), 6, "requesters.0.topic", "answers to q come to reply/q"),
    "requester that comes and goes": (REQUESTS.replace("1/s", "1/s, on: {mean: 1s}"), 6, "requesters.0.on", "unknown key"),
    "bad rate of a requester": (REQUESTS.replace("1/s", "fast"), 6, "requesters.0.rate", "a rate like 3/s"),
    "bad QoS of a requester": (REQUESTS.replace("1/s", "1/s, qos: 3"), 6, "requesters.0.qos", "must be 0, 1 or 2"),
    "id of a requester twice": (REQUESTS.replace("id: r", "id: q"), 8, "responders.0.id", "id q was given before"),
    "bad id of a requester": (REQUESTS.replace("id: q", "id: a/b"), 6, "requesters.0.id", "must be a name"),
    "requesters as a mapping": (TREE + "requesters: {id: q}\n", 5, "requesters", "must be a list"),
    "responder at no broker": (REQUESTS.replace("b2", "b9"), 8, "responders.0.broker", "no broker b9"),
    "responder with a rate": (REQUESTS.replace("topic: ask}", "topic: ask, rate: 1/s}"), 8, "responders.0.rate", "unknown key"),
    "bad service of a responder": (REQUESTS.replace("topic: ask}", "topic: ask, service: 1s}"), 8, "responders.0.service", "must be a mapping"),
    "bad filter of a responder": (REQUESTS.replace("topic: ask}", "topic: a#}"), 8, "responders.0.topic", "whole last level"),
    "bad QoS of a responder": (REQUESTS.replace("topic: ask}", "topic: ask, qos: x}"), 8, "responders.0.qos", "must be 0, 1 or 2"),
    "system topic of a responder": (REQUESTS.replace("topic: ask}", "topic: $SYS/x}"), 8, "responders.0.topic", "begin with \\$"),
    "peers as a mapping": (TREE + "publishers: {id: p}\n", 5, "publishers", "must be a list"),
    # faults and links
    "fault without a verb": (TREE + "faults: [{at: 1s, for: 1s}]\n", 5, "faults.0", "exactly one of crash, cut"),
    "fault with two verbs": (TREE + "faults: [{at: 1s, crash: b0, pause: b1, for: 1s}]\n", 5, "faults.0", "exactly one of"),
    "fault at no time": (TREE + "faults: [{crash: b0, for: 1s}]\n", 5, "faults.0", "either at a time"),
    "fault that never ends": (TREE + "faults: [{at: 1s, crash: b0}]\n", 5, "faults.0.for", "is required"),
    "fault after the end": (TREE + "faults: [{at: 100s, crash: b0, for: 1s}]\n", 5, "faults.0.at", "after the end of the run"),
    "crash of nobody": (TREE + "faults: [{at: 1s, crash: b7, for: 1s}]\n", 5, "faults.0.crash", "no broker b7"),
    "cut of no link": (TREE + "faults: [{at: 1s, cut: [b0, b2], for: 1s}]\n", 5, "faults.0.cut", "no link between b0 and b2"),
    "cut of one end": (TREE + "faults: [{at: 1s, cut: b0, for: 1s}]\n", 5, "faults.0.cut", "two ends of a link"),
    "way without cut": (TREE + "faults: [{at: 1s, crash: b0, way: b0>b1, for: 1s}]\n", 5, "faults.0.way", "cut of a named link"),
    "wrong way": (TREE + "faults: [{at: 1s, cut: [b0, b1], way: b1>b2, for: 1s}]\n", 5, "faults.0.way", "must be b0>b1 or b1>b0"),
    "disconnect of nobody": (TREE + "faults: [{at: 1s, disconnect: any, for: 1s}]\n", 5, "faults.0.disconnect", "no peers"),
    "disconnect of a stranger": (PEERS + "faults: [{at: 1s, disconnect: q, for: 1s}]\n", 7, "faults.0.disconnect", "no peer q"),
    "any link of one broker": (HEAD + "topology: {tree: line, brokers: 1}\nfaults: [{at: 1s, cut: any, for: 1s}]", 5, "faults.0.cut", "no link to cut"),
    "link without anything": (TREE + "links: [{between: [b0, b1]}]\n", 5, "links.0", "a delay or a bandwidth"),
    "link twice": (TREE + "links:\n  - {between: [b0, b1], delay: {mean: 1s}}\n  - {between: [b1, b0], bandwidth: 1kbit/s}\n", 7, "links.1.between", "given before"),
    "bad bandwidth": (TREE + "links: [{between: [b0, b1], bandwidth: 64kb}]\n", 5, "links.0.bandwidth", "like 64kbit/s"),
    # sweeps
    "sweep over nothing": (TREE + "sweep: {}\n", 5, "sweep", "must map dotted keys"),
    "sweep of a word": (TREE + "sweep: seed\n", 5, "sweep", "must map dotted keys"),
    "sweep value no list": (TREE + "sweep: {seed: 3}\n", 5, "sweep.seed", "must be a list of values"),
    "sweep value empty": (TREE + "sweep: {seed: []}\n", 5, "sweep.seed", "must be a list of values"),
    "sweep point no mapping": (TREE + "sweep: [3]\n", 5, "sweep", "each point must be a mapping"),
    "clock with until and measure": (TREE.replace("{measure", "{until: 1%, measure"), 3, "clock.until", "do not go together"),
    "clock with a word for the warm-up": (TREE.replace("{measure", "{warmup: soon, measure"), 3, "clock.warmup", "must be a duration"),
    "clock with until alone": (TREE.replace("measure: 100s", "until: 1%"), 3, "clock.until", "needs a longest time"),
    "clock with at_most alone": (TREE.replace("measure", "at_most: 1h, measure"), 3, "clock.at_most", "goes with until"),
    "clock until nothing is uncertain": (TREE.replace("measure: 100s", "until: 0%, at_most: 1h"), 3, "clock.until", "must be more than 0%"),
    "clock until a word": (TREE.replace("measure: 100s", "until: soon, at_most: 1h"), 3, "clock.until", "must be a percentage"),
    "pair of runs of unknown length": (
        TREE.replace("measure: 100s", "until: 1%, at_most: 1h") + "pair: {routing: [identity, peer]}\n",
        5, "pair", "needs a fixed clock.warmup and clock.measure",
    ),
    "pair of three": (TREE + "pair: {routing: [identity, peer, simple]}\n", 5, "pair", "one key with two values"),
    "pair of two keys": (TREE + "pair: {routing: [identity, peer], classes: [1, 2]}\n", 5, "pair", "one key with two values"),
    "pair of the same": (TREE + "pair: {routing: [peer, peer]}\n", 5, "pair", "the two values are the same, peer"),
    "pair of seeds": (TREE + "pair: {seed: [1, 2]}\n", 5, "pair.seed", "the same random numbers"),
    "pair and sweep": (TREE + "sweep: {classes: [1, 2]}\npair: {routing: [identity, peer]}\n", 6, "pair", "pair and sweep do not go together"),
    "sweep of the name": (TREE + "sweep: {name: [a, b]}\n", 5, "sweep.name", "cannot be swept"),
    "sweep of an unknown key": (TREE + "sweep: {sed: [1]}\n", 5, "sed", "did you mean seed?"),
    "sweep below a value": (TREE + "sweep: {clock.measure.x: [1]}\n", 5, "sweep.clock.measure.x", "below a plain value"),
    "sweep of an unknown peer": (PEERS + "sweep: {publishers.q.rate: [1/s]}\n", 7, "sweep.publishers.q.rate", "there is no entry q; there are p, or by position 0"),
    "sweep of a peer where there are none": (TREE + "sweep: {publishers.q.rate: [1/s]}\n", 5, "sweep.publishers.q.rate", "there are no publishers in this file"),
    "sweep of an unknown position": (TREE + "faults: [{at: 1s, crash: b0, for: 1s}]\nsweep: {faults.1.at: [2s]}\n", 6, "sweep.faults.1.at", "there is no entry 1; by position there are 0"),
    "sweep to a bad value": (TREE + "sweep:\n  topology.brokers: [3,\n    0]\n", 7, "topology.brokers", "or equal to 1, not 0"),
    "sweep too large": (TREE + f"sweep: {{seed: {list(range(200))}, classes: {list(range(1, 102))}}}\n", 5, "sweep", "has 20200 points"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake(mistake: str, tmp_path: Path) -> None:
    text, line, key, message = MISTAKES[mistake]
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(ScenarioError, match=message) as error:
        load(file)
    first = error.value.problems[0]
    assert (first.line, first.key) == (line, key)
    assert "\n" not in str(first)
    assert str(error.value).startswith(f"{file}:{line}: {key}")


def test_mistakes_are_reported_together_up_to_a_limit(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(
        HEAD + "topology: {tree: line, brokers: 0}\nclasses: 0\nseed: -1\ncopies: 0\npayload: -1\nrouting: x\n"
    )
    with pytest.raises(ScenarioError) as error:
        load(file)
    assert len(error.value.problems) == 6
    assert str(error.value).splitlines()[-1] == f"{file}: and 1 more problem"


def test_missing_file_folder_and_unreadable_names(tmp_path: Path) -> None:
    for path, message in [
        (tmp_path / "none.yaml", "no such file"),
        (tmp_path, "this is a folder"),
        (tmp_path / ("x" * 300), "cannot be read"),
        (tmp_path / "a\0b", "cannot be read"),
    ]:
        with pytest.raises(ScenarioError, match=message) as error:
            load(path)
        assert str(error.value).startswith(f"{path}: "), "there is no line to name"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("quikstart", "did you mean quickstart?"),
        ("quikstart.yaml", "did you mean quickstart?"),
        ("fig3", "did you mean muehl2009/fig3?"),
        ("nothing/like/it", "`brokerbed scenarios` lists the shipped ones"),
    ],
)
def test_name_that_is_no_file_and_no_shipped_scenario_is_answered_with_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(ScenarioError) as error:
        shipped.find(name)
    assert str(error.value) == f"{name}: there is no such file or shipped scenario; {hint}"


def test_not_utf8_names_the_line(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(b"scenario: 1\nname: \xff\xfe\n")
    with pytest.raises(ScenarioError, match="not UTF-8") as error:
        load(file)
    assert error.value.problems[0].line == 2


def test_alias_bombs_are_defused(tmp_path: Path) -> None:
    wide = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
    wide += "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30))
    deep = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 5000))
    file = tmp_path / "bomb.yaml"
    for bomb, message in (
        (wide, "expands to more than"),
        (deep, "nested more than"),
        ("[" * 100_000, "nested more than"),
    ):
        file.write_text(bomb)
        with pytest.raises(ScenarioError, match=message):
            load(file)
