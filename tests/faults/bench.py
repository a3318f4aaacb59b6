"""One round: load, a fault in the middle of it, and then what each side says of every message."""

from __future__ import annotations

import itertools
import math
import shutil
import tempfile
import time
import uuid
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.account import Account, Traces, silence, with_ends
from tests.faults.books import disagreements
from tests.faults.brokers import DEAD_LETTERS
from tests.faults.cases import CASES
from tests.faults.process import Consumer
from tests.faults.scene import Scene
from tests.faults.settings import MARK, Plan, Task, Way
from tests.faults.workload import PACE, BenchError, Producer
from tests.integration.broker_support import eventually
from tests.integration.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from jmsx_broker.local import LocalBroker
    from tests.faults.brokers import Stable
    from tests.faults.cases import Case


def run_case(
    name: str,
    stable: Stable,
    chance: Random,
    *,
    rounds: int,
    size: int,
    keep: Path | None = None,
) -> Account:
    """
    The account of `rounds` rounds of `size` messages; what failed leaves its journal and logs in `keep`.

    Raises BenchError when a round has no end.
    """
    account = Account(name)
    for _ in range(rounds):
        account = account.add(_run_round(name, stable, chance, size, keep))
    return account


def _run_round(name: str, stable: Stable, chance: Random, size: int, keep: Path | None) -> Traces:
    case = CASES[name]
    with ExitStack() as stack:
        scene = set_up(
            stack, stable, chance, case.plan, size=size, brokers=case.brokers, aside=case.aside
        )
        scene.consumer.wait_count(max(1, int(size * chance.uniform(0.1, 0.5))), 60)
        case.fault(scene)
        lifted = time.monotonic()
        scene.producer.join(120)
        until = math.inf
        if case.afterwards is not None:
            until = time.monotonic()
            case.afterwards(scene)
        scene.settle()
        scene.consumer.stop()
        traces = look(scene, lifted)
        traces = replace(traces, until=until)
        traces = replace(traces, broken=[*scene.broken, *_broken(case, scene, traces)])
        if keep is not None and Account(name).add(traces).failed:
            keep_books(scene, keep / f"{name}-{scene.task.queue}", lifted)
        return traces


def set_up(
    stack: ExitStack,
    stable: Stable,
    chance: Random,
    plan: Plan,
    *,
    size: int,
    brokers: int = 1,
    aside: bool = False,
    pace: float = PACE,
) -> Scene:
    """
    A scene with consumers that are subscribed, and a producer that has begun to send `size` messages and more.

    `aside`: the producer goes round the proxy; `pace`: seconds between two messages. Raises BenchError if a consumer
    does not come up.
    """
    taken = stable.take(brokers)
    name = f"jmsx.faults.{uuid.uuid4().hex[:10]}"
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="jmsx-faults-")))
    urls = tuple(broker.tls_url if stable.tls else broker.url for broker in taken)
    proxies = [stack.enter_context(Proxy(url)) for url in urls]
    trust = _trust(taken, folder) if stable.tls else None
    way = Way(tuple(proxy.url for proxy in proxies), trust)
    task = Task(plan=plan, way=way, queue=name, folder=folder)
    consumers = [stack.enter_context(Consumer(task, number)) for number in range(plan.processes)]
    await_consumers(taken[0], consumers)
    bodies = _messages(name, size, plan)
    return Scene(
        task=task,
        chance=chance,
        tls=stable.tls,
        marked=[body for body in bodies if MARK in body],
        brokers=taken,
        proxies=proxies,
        consumers=consumers,
        producer=Producer(
            Way(urls, trust) if aside else way, name, bodies, groups=plan.groups, pace=pace
        ),
    )


def _messages(name: str, size: int, plan: Plan) -> list[str]:
    """The bodies of a round, the marked ones spread evenly, and those of different marks in turns."""
    turns = [[f"{MARK}{word}"] * count for word, count in plan.marks.items()]
    marks = [mark for turn in itertools.zip_longest(*turns) for mark in turn if mark is not None]
    places = {size * (turn + 1) // (len(marks) + 1): mark for turn, mark in enumerate(marks)}
    return [f"{name}/{number}{places.get(number, '')}" for number in range(size)]


def await_consumers(
    broker: LocalBroker, consumers: Sequence[Consumer], seconds: float = 30.0
) -> None:
    """
    Wait until all have subscribed; raises BenchError after `seconds`.

    A slow start of the program would leave no load for the fault, or look like one that does nothing more.
    """
    task = consumers[0].task
    wanted = task.plan.subscriptions
    if not eventually(lambda: broker.statistics(task.queue).consumer_count >= wanted, seconds):
        told = "\n".join(each.stacks() for each in consumers)
        raise BenchError(f"not all consumers subscribed within {seconds:g} s: {told}")


def look(scene: Scene, lifted: float) -> Traces:
    """What is to be seen when the consumer is gone."""
    task, brokers = scene.task, scene.brokers
    stranded = sum(_stranded(broker, task.queue) for broker in brokers)
    ends = task.ends.read_text("utf-8").splitlines() if task.ends.exists() else []
    return Traces(
        sent=scene.producer.sent,
        unconfirmed=scene.producer.unconfirmed,
        deliveries=with_ends(scene.consumer.read(), ends),
        left=set(_bodies(brokers, task.queue)),
        stranded=stranded,
        dead=dead_letters(scene),
        lifted=lifted,
        outputs=_bodies(brokers, task.output) if task.plan.forwards else None,
    )


def dead_letters(scene: Scene) -> list[str]:
    """The bodies of the round's dead letters, wherever they lie."""
    return [
        body
        for dlq in (*DEAD_LETTERS, scene.task.dlq)
        for body in _bodies(scene.brokers, dlq)
        if body.startswith(f"{scene.task.queue}/")
    ]


def keep_books(scene: Scene, folder: Path, lifted: float) -> None:
    """Leave the evidence of a round in `folder`."""
    shutil.copytree(scene.task.folder, folder)
    for number, broker in enumerate(scene.brokers):
        shutil.copy(broker.log, folder / f"broker{number}.log")
    folder.joinpath("lifted").write_text(f"{lifted}\n", "utf-8")


def _trust(brokers: Sequence[LocalBroker], folder: Path) -> str:
    """A file with the authorities of all these brokers."""
    bundle = folder / "authorities.pem"
    authorities = (Path(broker.certificates.authority).read_bytes() for broker in brokers)
    bundle.write_bytes(b"".join(authorities))
    return str(bundle)


def _broken(case: Case, scene: Scene, traces: Traces) -> list[str]:
    broken = [
        *case.promises(scene, traces),
        *disagreements(scene.task, traces, scene.producer.keys),
    ]
    took = silence(traces)
    if took > case.recovery:
        broken.append(f"{took:.1f} s without a delivery, not {case.recovery:g} s at the most")
    return broken


def _stranded(broker: LocalBroker, queue: str) -> int:
    """
    Messages that are in delivery though their queue has no consumer, once the broker's counts have come to rest.

    Acknowledgements without a receipt are counted late, and links that froze are noticed late. A new start of the
    broker is what sets them free.
    """
    eventually(lambda: broker.statistics(queue).size == 0, 8)
    told = broker.statistics(queue)
    if told.consumer_count or not told.inflight_count:
        return 0
    broker.stop()
    broker.start()
    return told.inflight_count


def _bodies(brokers: Sequence[LocalBroker], queue: str) -> list[str]:
    return [message.body.decode() for broker in brokers for message in broker.browse(queue)]
