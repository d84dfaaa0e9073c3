"""Ranks of a group get one number for each question, or hear that the group is lost, whatever becomes of any."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Callable, Sequence
from typing import Any

import cenote
import pytest
import wire
from clients.lengths import length_of
from conftest import StartAgent, StartNode
from node import FULL, LIMIT, PATIENCE, Agent, AgentError, Node, run_cenote, until

from cluster import Cluster, kill_node

pytestmark = pytest.mark.sanitizer

Attach = Callable[..., Any]
HASTY = 1.0 * PATIENCE  # seconds of a question, where a test waits for one to be given up
GROUP = "replica-7"


@pytest.fixture
def cluster(start_node: StartNode) -> Cluster:
    return Cluster(start_node)


def attach_ranks(start_agent: StartAgent, nodes: Sequence[Node], each: int) -> list[Agent]:
    """`each` ranks on every node, by rank; they have not joined."""
    agents = [start_agent(node) for node in nodes for _ in range(each)]
    for agent in agents:
        agent.send("attach", instance="i", block=4096)
    for agent in agents:
        agent.answer()
    return agents


def join_all(ranks: Sequence[Agent], timeout: float = LIMIT) -> None:
    for rank, agent in enumerate(ranks):
        agent.send("join_group", group=GROUP, rank=rank, size=len(ranks), timeout=timeout, wait=LIMIT)
    for agent in ranks:
        agent.answer()


def start_all(ranks: Sequence[Agent], first: int = 0) -> None:
    for agent in ranks:
        agent.call("start_asking", group=GROUP, first=first)


def progress(agent: Agent, beyond: int = 20) -> bool:
    """Questions above 0 that a rank has an answer to."""
    return sum(1 for _, length in agent.call("asker_report")["answers"] if length) > beyond


def stop_all(ranks: Sequence[Agent]) -> list[dict[str, Any]]:
    last = ranks[0].call("hold_asking")
    for agent in reversed(ranks):  # the one that holds is the last to hear it: until then none is beyond that question
        agent.call("end_asking_with", last=last)
    reports = [agent.call("end_asking", limit=90) for agent in ranks]
    check(reports, len(ranks))
    return reports


def check(reports: Sequence[dict[str, Any]], size: int) -> None:
    """One number for each question, the least of all or 0."""
    by_question: dict[int, set[int]] = {}
    for report in reports:
        for question, length in report["answers"]:
            by_question.setdefault(question, set()).add(length)
    for question, lengths in by_question.items():
        assert len(lengths) == 1, f"question {question} has the answers {lengths}"
        assert lengths <= {0, min(length_of(question, rank) for rank in range(size))}, question


def all_lost(reports: Sequence[dict[str, Any]]) -> None:
    assert [report["error"] for report in reports] == ["group_lost"] * len(reports)


def until_lost(ranks: Sequence[Agent]) -> None:
    """A node that is gone takes a group with it after a grace of two seconds."""
    until("all are told", lambda: all(agent.call("asker_report")["error"] for agent in ranks))


def join_again_and_ask(ranks: Sequence[Agent], first: int) -> None:
    join_all(ranks)
    start_all(ranks, first)
    for agent in ranks:
        until("answers above 0 come again", lambda agent=agent: progress(agent, 5))
    reports = stop_all(ranks)
    assert {report["error"] for report in reports} <= {None, "group_lost"}


def groups_of(node: Node) -> list[dict[str, Any]]:
    return list(node.status().get("rank_groups", []))


# ---- one node


def test_ranks_of_one_node_agree_without_a_cluster(node: Node, start_agent: StartAgent) -> None:
    ranks = attach_ranks(start_agent, [node], 4)
    join_all(ranks)
    for question in range(3):
        for rank, agent in enumerate(ranks):
            agent.send("agree", group=GROUP, question=question, length=length_of(question, rank))
        least = min(length_of(question, rank) for rank in range(4))
        assert [agent.answer() for agent in ranks] == [least] * 4
    (row,) = groups_of(node)
    assert (row["name"], row["state"], row["size"], row["here"]) == (GROUP, "formed", 4, 4)
    assert (row["coordinator"], row["decided"], row["zeros"]) == ("local", 3, 0)
    said = run_cenote("status", "--socket", node.socket).stdout
    assert "GROUPS OF RANKS" in said and GROUP in said
    assert "1 of 1 formed, 4 ranks here" in run_cenote("top", "--once", "--socket", node.socket).stdout


def test_questions_in_batches_are_agreed_in_order_or_out_of_it(node: Node, start_agent: StartAgent) -> None:
    ranks = attach_ranks(start_agent, [node], 3)
    join_all(ranks)
    for agent in ranks:
        agent.send("agree_many", group=GROUP, first=0, count=5000)
    answers = [agent.answer() for agent in ranks]
    assert answers[0] == answers[1] == answers[2]
    assert answers[0] == [[q, min(length_of(q, rank) for rank in range(3))] for q in range(5000)]


def test_a_rank_that_is_killed_breaks_the_group_and_a_new_one_joins(node: Node, start_agent: StartAgent) -> None:
    ranks = attach_ranks(start_agent, [node], 3)
    join_all(ranks)
    start_all(ranks)
    until("they agree", lambda: all(progress(agent) for agent in ranks))
    ranks[1].kill()
    until_lost([ranks[0], ranks[2]])
    reports = [ranks[i].call("stop_asking", limit=90) for i in (0, 2)]
    check(reports, 3)
    all_lost(reports)
    assert all("rank 1" in report["why"] for report in reports), reports
    ranks[1] = attach_ranks(start_agent, [node], 1)[0]
    join_again_and_ask(ranks, 10_000_000)


def test_a_rank_that_stands_still_makes_it_0_and_then_goes_on(node: Node, start_agent: StartAgent) -> None:
    ranks = attach_ranks(start_agent, [node], 3)
    join_all(ranks, timeout=4 * HASTY)
    start_all(ranks)
    until("they agree", lambda: all(progress(agent) for agent in ranks))
    ranks[2].pause()
    before = len(ranks[0].call("asker_report")["answers"])
    until("0 comes", lambda: 0 in [n for _, n in ranks[0].call("asker_report")["answers"][before:]])
    ranks[2].resume()
    for agent in ranks:
        agent.call("stop_asking", limit=90)
    reports = [agent.call("asker_report") for agent in ranks]
    check(reports, 3)
    assert reports[2]["error"] in (None, "group_lost")  # lost: it stood still for longer than a question may take


def test_a_worker_that_is_killed_takes_its_groups_along(node: Node, start_agent: StartAgent) -> None:
    ranks = attach_ranks(start_agent, [node], 3)
    for round_ in range(5 if FULL else 2):
        join_all(ranks)
        start_all(ranks, round_ * 1_000_000)
        until("they agree", lambda: all(progress(agent) for agent in ranks))
        node.restart_worker()
        until_lost(ranks)
        all_lost(stop_all(ranks))
    join_again_and_ask(ranks, 10_000_000)


def test_a_session_that_ends_or_is_killed_leaves_its_groups(node: Node, start_agent: StartAgent) -> None:
    ranks = attach_ranks(start_agent, [node], 2)
    join_all(ranks)
    ranks[1].call("close")
    with pytest.raises(AgentError) as lost:
        ranks[0].call("agree", group=GROUP, question=1, length=1)
    assert lost.value.code == "group_lost"
    ranks[0].call("leave_group", group=GROUP)
    until("the group is gone", lambda: not groups_of(node))


def test_a_node_that_stops_ends_what_is_open(start_node: StartNode, start_agent: StartAgent) -> None:
    node = start_node()
    ranks = attach_ranks(start_agent, [node], 2)
    join_all(ranks)
    ranks[0].send("timed", what="agree", group=GROUP, question=1, length=1)
    until("the question is open", lambda: groups_of(node)[0]["open"] == 1)
    assert node.stop() == 0
    said = ranks[0].answer()
    assert said["code"] in ("not_running", "group_lost", "closed"), said


def test_ranks_that_do_not_fit_are_told_why(node: Node, attach: Attach) -> None:
    session = attach(node, "i")
    with pytest.raises(cenote.InvalidArgument, match="ranks count from 0"):
        session.join_group("g", 2, 2)

    def is_told_who_is_missing() -> bool:
        with pytest.raises(cenote.DeadlineExceeded) as late:
            session.join_group("g", 0, 2, wait=0.2)
        return "1" in str(late.value)  # or the node said nothing in time

    until("it is told which rank is missing", is_told_who_is_missing)
    other = attach(node, "j", spec={"model": "another"})
    found: list[BaseException] = []

    def wait_for_other() -> None:
        try:
            session.join_group("h", 0, 2, wait=LIMIT).leave()
        except cenote.CenoteError as why:
            found.append(why)

    waiting = threading.Thread(target=wait_for_other)
    waiting.start()
    until("rank 0 waits", lambda: any(row["name"] == "h" for row in groups_of(node)))
    with pytest.raises(cenote.SpecMismatch, match="model"):
        other.join_group("h", 1, 2, wait=LIMIT)
    with pytest.raises(cenote.SpecMismatch, match="2 ranks"):
        attach(node, "i").join_group("h", 1, 3, wait=LIMIT)
    right = attach(node, "i").join_group("h", 1, 2, wait=LIMIT)
    waiting.join(LIMIT)
    right.leave()
    assert not found


def test_a_group_is_used_like_a_file(node: Node, attach: Attach) -> None:
    session = attach(node, "i")
    with session.join_group("alone", 0, 1) as group:
        assert group.agree(1, 12) == 12
        group.agree_start([2, 3], [5, 6])
        got: dict[int, int] = {}
        while len(got) < 2:
            got |= group.agree_poll(1.0)
        assert got == {2: 5, 3: 6}
        assert group.agree_poll() == {}
        with pytest.raises(cenote.InvalidArgument):
            group.agree(-1, 1)
        with pytest.raises(cenote.InvalidArgument):
            group.agree_start([1, 2], [1])
        child = os.fork()
        if child == 0:
            try:
                group.agree(9, 9)
            except cenote.Forked:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
    with pytest.raises(cenote.Closed):
        group.agree(4, 4)
    until("it has left", lambda: not groups_of(node))


def test_raw_entries_that_make_no_sense_are_refused_each_in_words(node: Node, attach: Attach) -> None:
    raw = wire.RawSession.attach(node.socket, "i", {"full": {"kv": 4096}})
    session = attach(node, "other")

    def asked(operation: int, **fields: Any) -> tuple[int, str]:
        request = raw.submit(operation, parent=fields.pop("parent", raw.epoch), **fields)
        words, code = b"", -1

        def answered() -> bool:
            nonlocal words, code
            for each in raw.take():
                assert each.request == request
                if each.kind == 6:
                    words += each.block.to_bytes(8, "little") + each.value.to_bytes(8, "little")
                else:
                    code = each.code
            return code >= 0

        until("an answer", answered)
        return code, words.rstrip(b"\0").decode()

    def ranks(rank: int, size: int) -> int:
        return rank | size << 32

    code, why = asked(wire.AGREE, grant_version=5)
    assert code == 1 and "no rank of this session has that handle" in why
    code, why = asked(wire.JOIN, key=b"", argument=ranks(0, 1), grant_version=1)
    assert code == 1 and "1 to 64 bytes" in why
    code, why = asked(wire.JOIN, key=b"g", argument=ranks(3, 2), grant_version=2)
    assert code == 1 and "no rank 3" in why
    code, why = asked(wire.JOIN, key=b"g", argument=ranks(0, 0), grant_version=2)
    assert code == 1 and "not 0" in why
    code, why = asked(wire.JOIN, key=b"\xff\xfe", argument=ranks(0, 1), grant_version=2)
    assert code == 1 and why
    code, why = asked(wire.JOIN, key=b"g", argument=ranks(0, 1), grant_version=0)
    assert code == 1 and "handle" in why
    assert asked(wire.JOIN, key=b"g", argument=ranks(0, 1), grant_version=3, want=10**10)[0] == 0
    assert asked(wire.AGREE, grant_version=3, block=1, argument=7, want=10**9)[0] == 0
    assert asked(wire.AGREE, grant_version=3, parent=raw.epoch + 1)[0] == 23
    assert asked(wire.LEAVE, grant_version=77)[0] == 0
    # A flood is held back, not heard of by others, and answered to the end.
    sent = 0
    while sent < wire.SUBMISSIONS and raw.word(wire.SUBMIT_TAIL) - raw.word(wire.SUBMIT_HEAD) < wire.SUBMISSIONS:
        raw.submit(wire.AGREE, grant_version=3, parent=raw.epoch, block=100 + sent, argument=1, want=10**9)
        sent += 1
    with session.join_group("quiet", 0, 1, LIMIT) as group:
        assert group.agree(1, 5) == 5
    answers = 0

    def all_answered() -> bool:
        nonlocal answers
        answers += sum(1 for each in raw.take() if each.kind == 1)
        return answers == sent

    until("every entry has one answer", all_answered)
    raw.close()
    until("its rank has left", lambda: not groups_of(node))


# ---- several nodes


def test_ranks_on_two_nodes_agree(cluster: Cluster, start_agent: StartAgent) -> None:
    nodes = cluster.form(2)
    ranks = attach_ranks(start_agent, nodes, 2)
    join_all(ranks)
    start_all(ranks)
    until("they agree", lambda: all(progress(agent) for agent in ranks))
    rows = [groups_of(node)[0] for node in nodes]
    assert [(row["state"], row["coordinator"], row["here"]) for row in rows] == [("formed", "a", 2)] * 2
    assert rows[1]["ranks"] == "0 1 (a), 2 3 (b)"
    assert rows[0]["epoch"] == rows[1]["epoch"]
    reports = stop_all(ranks)
    assert {report["error"] for report in reports} == {None}
    for agent in ranks:
        agent.send("agree_many", group=GROUP, first=10_000_000, count=2000)
    answers = [agent.answer() for agent in ranks]
    assert all(each == answers[0] for each in answers)


@pytest.mark.parametrize("whose", ["coordinator", "other"])
def test_a_worker_of_a_node_that_is_killed_breaks_the_group_everywhere(
    cluster: Cluster, start_agent: StartAgent, whose: str
) -> None:
    nodes = cluster.form(2)
    ranks = attach_ranks(start_agent, nodes, 2)
    join_all(ranks)
    start_all(ranks)
    until("they agree", lambda: all(progress(agent) for agent in ranks))
    nodes[0 if whose == "coordinator" else 1].restart_worker()
    until_lost(ranks)
    all_lost(stop_all(ranks))
    cluster.all_live()
    join_again_and_ask(ranks, 10_000_000)


def test_a_node_that_is_killed_breaks_the_group_for_the_others(cluster: Cluster, start_agent: StartAgent) -> None:
    nodes = cluster.form(3)
    ranks = attach_ranks(start_agent, nodes, 2)
    join_all(ranks)
    start_all(ranks)
    until("they agree", lambda: all(progress(agent) for agent in ranks))
    kill_node(nodes[2])
    until_lost(ranks)
    reports = stop_all(ranks)
    all_lost(reports[:4])
    assert all(report["error"] for report in reports[4:]), "they hear that their node is gone, or that the group is"
    for agent in ranks[4:]:
        agent.kill()
    ranks = [*ranks[:4], *attach_ranks(start_agent, [nodes[1]], 2)]
    join_again_and_ask(ranks, 10_000_000)


def test_a_rank_of_another_node_that_is_killed_breaks_the_group(cluster: Cluster, start_agent: StartAgent) -> None:
    nodes = cluster.form(2)
    ranks = attach_ranks(start_agent, nodes, 2)
    join_all(ranks)
    start_all(ranks)
    until("they agree", lambda: all(progress(agent) for agent in ranks))
    ranks[3].kill()
    until_lost(ranks[:3])
    reports = [agent.call("stop_asking", limit=90) for agent in ranks[:3]]
    check(reports, 4)
    all_lost(reports)
    ranks[3] = attach_ranks(start_agent, [nodes[1]], 1)[0]
    join_again_and_ask(ranks, 10_000_000)


@pytest.mark.parametrize("whose", ["coordinator", "other"])
def test_a_worker_that_stands_still_lets_nobody_hang(cluster: Cluster, start_agent: StartAgent, whose: str) -> None:
    nodes = cluster.form(2)
    ranks = attach_ranks(start_agent, nodes, 2)
    join_all(ranks, timeout=HASTY)
    start_all(ranks)
    until("they agree", lambda: all(progress(agent) for agent in ranks))
    with nodes[0 if whose == "coordinator" else 1].worker_stopped():
        until_lost(ranks)
    all_lost(stop_all(ranks))
    cluster.all_live()
    join_again_and_ask(ranks, 10_000_000)


@pytest.mark.parametrize("direction", ["both", "one"])
def test_nodes_that_are_cut_off_from_each_other_never_give_two_numbers(
    cluster: Cluster, start_agent: StartAgent, direction: str
) -> None:
    a, b = cluster.form(2)
    ranks = attach_ranks(start_agent, [a, b], 2)
    join_all(ranks, timeout=HASTY)
    start_all(ranks)
    until("they agree", lambda: all(progress(agent) for agent in ranks))
    assert run_cenote("debug", "partition", "a", "b", direction, "--socket", a.socket).returncode == 0
    until_lost(ranks)
    assert run_cenote("debug", "heal", "--socket", a.socket).returncode == 0
    all_lost(stop_all(ranks))
    cluster.all_live()
    join_again_and_ask(ranks, 10_000_000)


def test_a_short_cut_is_survived_or_lost_by_all_alike(cluster: Cluster, start_agent: StartAgent) -> None:
    a, b = cluster.form(2)
    ranks = attach_ranks(start_agent, [a, b], 2)
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    for round_ in range(10 if FULL else 3):
        join_all(ranks, timeout=HASTY)
        start_all(ranks, round_ * 1_000_000)
        until("they agree", lambda: all(progress(agent) for agent in ranks))
        assert (
            run_cenote("debug", "partition", "a", "b", dice.choice(["one", "both"]), "--socket", a.socket).returncode
            == 0
        )
        assert run_cenote("debug", "heal", "--socket", a.socket).returncode == 0
        before = [len(agent.call("asker_report")["answers"]) for agent in ranks]
        until(
            "they go on, or are lost",
            lambda before=before: all(
                said["error"] or len(said["answers"]) > count
                for said, count in zip([agent.call("asker_report") for agent in ranks], before, strict=True)
            ),
        )
        stop_all(ranks)
        for agent in ranks:
            agent.call("leave_group", group=GROUP)
        cluster.all_live()


def test_metrics_have_a_series_a_group(start_node: StartNode, attach: Attach) -> None:
    node = start_node()
    session = attach(node, "i")
    with session.join_group("g", 0, 1) as group:
        for question in range(5):
            group.agree(question, 1)
        (row,) = groups_of(node)
        assert (row["decided"], row["lost"]) == (5, 0)
        assert node.status()["consensus"]["ranks"] == 1
        assert json.dumps(node.status()["consensus"]["counters"])


def test_a_killed_session_leaves(start_node: StartNode, start_agent: StartAgent) -> None:
    node = start_node()
    ranks = attach_ranks(start_agent, [node], 2)
    join_all(ranks)
    number = ranks[1].call("stats")["session"]
    assert run_cenote("session", "kill", str(number), "--socket", node.socket).returncode == 0
    with pytest.raises(AgentError) as lost:
        ranks[0].call("agree", group=GROUP, question=1, length=1)
    assert lost.value.code == "group_lost"
