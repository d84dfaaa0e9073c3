"""docs/service-metrics.md names every metric of a manager and an indexer; CENOTE_TEST_WRITE_DOCS=1 writes it."""

from __future__ import annotations

import os
from pathlib import Path

from exposition import Family, families_of
from indexer import Herd, prompt, settings_of, until_right
from kubernetes import ApiServer
from manager import Manager
from node import ROOT, free_ports, until
from redis import Redis

PAGE = ROOT / "docs" / "service-metrics.md"
HEADING = "| metric | kind | labels | what it is |\n| --- | --- | --- | --- |\n"


def row_of(family: Family) -> str:
    return f"| `{family.name}` | {family.kind} | {family.labels} | {family.summary} |\n"


def compare(title: str, *pages: str) -> None:
    """The table below a heading of the document, by name, and the families of pages."""
    rows = {row_of(family) for page in pages for family in families_of(page)}
    table = HEADING + "".join(sorted(rows))
    before, _, rest = PAGE.read_text().partition(f"\n## {title}\n")
    text, mark, after = rest.partition("\n## ")
    introduction = text[: text.find("|")]
    if os.environ.get("CENOTE_TEST_WRITE_DOCS"):
        PAGE.write_text(f"{before}\n## {title}\n{introduction}{table}{mark}{after}")
    else:
        assert text == introduction + table, "run this test with CENOTE_TEST_WRITE_DOCS=1"


def test_the_document_names_every_metric_of_a_manager(tmp_path: Path) -> None:
    quota = {"capacity": 1 << 30, "quota_config": [{"storage_type": "ST_NFS", "capacity": 1 << 30}]}
    with Manager(tmp_path / "manager") as manager:
        manager.add_instance("i", quota=quota, storage={"capacity": 1 << 30})
        manager.write("i", [1, 2])
        assert all(manager.locations("i", [1, 2]))

        def page() -> str:
            return manager.ask(manager.admin, "GET", "/metrics").body.decode()

        until("the writer has counted the instance", lambda: 'cenote_manager_instance_keys{instance="i"' in page())
        compare("Manager", page())


def test_the_document_names_every_metric_of_an_indexer(
    herd: Herd, api: ApiServer, redis: Redis, tmp_path: Path
) -> None:
    """One with its index in memory, and one on a server. A tokenizer is named, and not there."""
    ports = free_ports(2)
    publisher = herd.publisher("a")
    shared = ("index.backend=redis", f"index.url={redis.url}", "index.key=fnv64_cbor")
    others = (
        "discovery.kubernetes.selector=serves=yes",
        f"discovery.kubernetes.server={api.url}",
        f"discovery.kubernetes.port={ports[0]}",
        f"discovery.kubernetes.replay_port={ports[1]}",
        f"tokenizer.socket={tmp_path / 'tokenizer.sock'}",
    )
    indexers = [herd.indexer(*settings_of(publisher), *more) for more in (others, shared)]
    publisher.store(prompt(1, 8))
    for each in indexers:
        until_right(each, [publisher], [prompt(1, 8)], exact=True)

    def pages() -> list[str]:
        return [each.ask("GET", "/metrics").text for each in indexers]

    until("a page shows publishers and blocks", lambda: all(name in pages()[0] for name in ("_behind_s", "_blocks{")))
    compare("Indexer", *pages())
