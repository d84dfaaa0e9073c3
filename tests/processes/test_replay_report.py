"""The replay's pages in a browser: every plot is drawn, and nothing is asked for from outside."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from browser import measured
from node import node_environment, run_cenote

SMALL = ("--block-bytes", "4KiB", "--limit", "150")
CHAT = ("--generate", "chat:seed=5", *SMALL)

# What a browser made of the page, as text in the page.
MEASURE = """
<script>
addEventListener("load", () => {
  const plots = [...document.querySelectorAll("figure")].map(figure => ({
    title: figure.querySelector("figcaption").textContent,
    lines: [...figure.querySelectorAll("polyline")].map(line => line.getTotalLength()),
    dots: [...figure.querySelectorAll("circle.dot")].map(dot => dot.getBoundingClientRect().width),
    hovers: figure.querySelectorAll("circle.hover title").length,
    rows: figure.querySelectorAll("details tr").length,
    labels: [...figure.querySelectorAll("svg text")].map(text => {
      const box = text.getBoundingClientRect();
      return {text: text.textContent, left: box.left, right: box.right, top: box.top, bottom: box.bottom};
    }),
    left: figure.querySelector("svg").getBoundingClientRect().left,
    width: figure.querySelector("svg").getBoundingClientRect().width,
  }));
  const asked = performance.getEntriesByType("resource").map(each => each.name);
  const out = document.createElement("pre");
  out.id = "measured";
  out.textContent = JSON.stringify({plots, asked});
  document.body.append(out);
});
</script>
</body>"""


def drawn(page: Path, home: Path) -> dict[str, Any]:
    options = ("--window-size=900,1200", "--host-resolver-rules=MAP * ~NOTFOUND")
    return measured(page.read_text(), MEASURE, home, *options)


def are_apart(one: dict[str, Any], other: dict[str, Any]) -> bool:
    near = 1  # lines of a text touch
    beside = one["right"] <= other["left"] or other["right"] <= one["left"]
    return bool(beside or one["bottom"] <= other["top"] + near or other["bottom"] <= one["top"] + near)


def check_drawn(page: Path, home: Path, *titles: str) -> None:
    seen = drawn(page, home)
    assert seen["asked"] == []
    assert [each["title"] for each in seen["plots"]] == list(titles)
    for plot in seen["plots"]:
        assert plot["width"] > 300, plot["title"]
        assert any(length > 50 for length in plot["lines"]) or any(width > 0 for width in plot["dots"]), plot["title"]
        assert plot["hovers"] > 0, plot["title"]
        assert plot["rows"] > 1, plot["title"]
        for label in plot["labels"]:
            assert plot["left"] <= label["left"], label
            assert label["right"] <= plot["left"] + plot["width"], label
        for one, other in itertools.combinations(plot["labels"], 2):
            assert are_apart(one, other), f"{plot['title']}: {one['text']} and {other['text']} run into each other"


def embedded(page: Path) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found
    return json.loads(found.group(1))


def replay(page: Path | None, *arguments: str | Path, cwd: Path) -> str:
    report = () if page is None else ("--report", page)
    ended = run_cenote("replay", *arguments, *report, env=node_environment() | {"TMPDIR": str(cwd)})
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("r")


@pytest.fixture(scope="module")
def outcomes(home: Path) -> list[Path]:
    """Two replays, of which the first wrote a page."""
    paths = []
    for name, page in (("one", home / "one.html"), ("two", None)):
        # paced, or a busy disk may have taken nothing when it is asked
        tiers = ("--dram", "1MiB", "--nvme", "64MiB", "--policy", "auto", "--prefill-rate", "5000", "--speed", "60x")
        paths.append(home / f"{name}.json")
        paths[-1].write_text(replay(page, *CHAT, *tiers, "--json", cwd=home))
    return paths


def test_each_plot_of_a_replay_is_drawn(outcomes: list[Path], home: Path) -> None:
    check_drawn(
        home / "one.html",
        home,
        "Hit ratio over time, by tier",
        "Hit ratio by capacity, simulated, with the offline bound",
        "Time of a request, computing 5000 tokens a second",
        "Bytes moved between engines and tiers",
        "Use of the tiers",
        "The policy at work",
        "The disk as the node sees it",
        "Prefetches that the gate stopped, and its probes",
        "Loading from below DRAM against computing",
        "Latency of a request's steps",
    )


def test_the_page_has_its_data_and_says_where_it_comes_from(outcomes: list[Path], home: Path) -> None:
    said = json.loads(outcomes[0].read_text())
    assert embedded(home / "one.html") == said
    assert said["from"]["seed"] == "5"
    assert "--generate chat:seed=5" in said["from"]["command"]
    assert len(said["curves"]["hit_ratio"]["belady"]) == len(said["curves"]["capacities"])
    assert said["timeline"][-1]["hit_tokens"] == said["prefix_tokens"]
    assert sum(each["hit_tokens"] for each in said["engine_ends"]) == said["prefix_tokens"]
    text = (home / "one.html").read_text()
    most = max(ratio for curve in said["curves"]["hit_ratio"].values() for ratio in curve)
    hits = said["prefix_tokens"] / said["tokens"]
    assert (
        f"<b>{100 * hits:.1f} % of the tokens were hits. No capacity and no policy has more than {100 * most:.1f} %"
        in text
    )
    assert said["from"]["version"] in text
    assert text.count("<h2>Tiers</h2>") == text.count("<h2>Engines</h2>") == 1


def test_the_gate_is_told(outcomes: list[Path], home: Path) -> None:
    said = json.loads(outcomes[0].read_text())
    gate = said["node"]["gate"]
    assert gate["compared"] > 0
    assert gate["recompute_s"] >= gate["saved_s"] >= 0
    assert gate["recompute_s"] > 0
    assert said["timeline"][-1]["gate"] == gate
    text = (home / "one.html").read_text()
    assert f"{gate['cannot_win']} could not win, {gate['cut']} cut; {gate['probes']} probes" in text
    assert "disk, as measured" in text


def test_a_request_has_a_compute_time(outcomes: list[Path]) -> None:
    said = json.loads(outcomes[0].read_text())
    computed = (said["tokens"] - said["prefix_tokens"]) / 5000
    assert said["prefill_tokens_per_s"] == 5000
    assert computed <= said["request_seconds"]["with_lower_tiers"] <= computed + 60
    without = (said["tokens"] - said["prefix_tokens_dram"]) / 5000
    assert without <= said["request_seconds"]["dram_only"] <= without + 60
    assert said["latency_us"]["with_computing"]["count"] == said["requests"]


def test_replays_are_compared(outcomes: list[Path], home: Path) -> None:
    page = home / "compared.html"
    table = replay(page, "compare", *outcomes, cwd=home)
    assert re.search(r"FIGURE +one +two", table)
    assert "hit ratio" in table
    assert sorted(embedded(page)) == ["one", "two"]
    check_drawn(
        page,
        home,
        "Hit ratio since the start",
        "Time of a request, with computing",
        "Time of a load",
        "Wait for blocks from below DRAM",
        "Read from NVMe since the start",
    )


def test_files_of_one_name_are_told_apart(outcomes: list[Path], home: Path) -> None:
    other = home / "other"
    other.mkdir()
    copy = shutil.copy(outcomes[0], other)
    page = home / "same.html"
    replay(page, "compare", outcomes[0], copy, copy, cwd=home)
    assert list(embedded(page)) == [str(outcomes[0]), str(copy), f"{copy} (2)"]


def test_compare_runs_nothing(outcomes: list[Path]) -> None:
    ended = run_cenote("replay", "--limit", "5", "compare", *outcomes)
    assert ended.returncode == 2
    assert "--limit means nothing before compare" in ended.stderr


def test_what_is_no_outcome_is_not_compared(outcomes: list[Path], home: Path) -> None:
    other = home / "other.json"
    other.write_text("{}")
    ended = run_cenote("replay", "compare", outcomes[0], other)
    assert ended.returncode == 1
    assert "other.json is no outcome of a replay" in ended.stderr


@pytest.mark.parametrize(
    ("tiers", "title"),
    [
        (("--capacity-sweep", "10:1k:1.3x"), "Hit ratio by capacity"),
        (("--tiers", "dram=100,nvme=1000", "--order", "rev"), "Hit ratio by upper policy"),
    ],
)
def test_a_simulation_has_a_page_too(tiers: tuple[str, ...], title: str, home: Path) -> None:
    page = home / "simulated.html"
    policies = "lru,fifo,lfu,clock,sieve,s3fifo,arc,2q,mq,tblru,auto,mq+partial,tblru+partial"
    replay(page, *CHAT, "--simulate", *tiers, "--policies", policies, cwd=home)
    assert embedded(page)[0]["policy"] == "lru"
    check_drawn(page, home, title)


def test_the_measure_notices_a_page_that_asks_outside(home: Path) -> None:
    page = home / "asks.html"
    page.write_text('<html><body><img src="http://127.0.0.1:9/x.png"></body></html>')
    assert drawn(page, home)["asked"] == ["http://127.0.0.1:9/x.png"]
