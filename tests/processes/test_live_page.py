"""The page /ui as a person's browser shows it: complete, readable at any width, and renewed by itself."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import blocks
import pytest
from browser import browse, measured
from conftest import StartNode
from node import KiB, Node, until
from test_metrics import fetch
from test_optimize_report import Reader

Attach = Callable[..., Any]

MEASURE = """
<script>
addEventListener("load", () => {
  const box = each => each.getBoundingClientRect();
  const cut = [...document.querySelectorAll("h1, h2, p, b, .cards span, td, th, figcaption")]
    .filter(each => !each.closest("div.wide") && box(each).right > innerWidth).map(each => each.textContent);
  const focused = [];
  for (const each of document.querySelectorAll("button, summary")) {
    each.focus();
    focused.push(document.activeElement === each);
  }
  const out = document.createElement("pre");
  out.id = "measured";
  out.textContent = JSON.stringify({
    width: innerWidth, page: document.documentElement.scrollWidth, cut, focused,
    plots: document.querySelectorAll("figure polyline, figure circle.dot").length,
    asked: performance.getEntriesByType("resource").map(each => each.name),
  });
  document.body.append(out);
});
</script>
</body>"""


@pytest.fixture
def busy(start_node: StartNode, attach: Attach, tmp_path: Path) -> Node:
    """A node with a disk, of whose tokens three quarters were found, and of whose backends none answers."""
    node = start_node(
        f"nvme.paths=[{tmp_path}/store]", "nvme.capacity=64MiB", 'remote.backends=["redis://127.0.0.1:1"]'
    )
    # Counted are differences: the first span begins at the worker's first look.
    until("hits are counted", lambda: "<figure" in look_up(node, attach))
    return node


def look_up(node: Node, attach: Attach) -> str:
    session = attach(node, "chat & <b>bold</b>", block=4 * KiB)
    keys = blocks.keys_of("a", 0, 40)
    session.put(keys[:30], blocks.contents_of(keys[:30], 4 * KiB))
    assert session.match(keys).resident == 30
    return fetch(node, "/ui")


def test_the_page_says_what_the_status_says(busy: Node) -> None:
    page = fetch(busy, "/ui")
    reader = Reader(page)
    assert reader.open == []
    assert not [name for name, _ in reader.attributes if name in {"src", "href"} or name.startswith("on")]
    assert page.count("<script") == 1
    status = busy.status()
    for name in ("dram", "nvme", "remote", "chat & <b>bold</b>"):
        assert name in reader.cells, reader.cells
    assert str(status["dram"]["blocks"]["present"]) in reader.cells
    assert re.search(r"<b>75\.0 % of [\d,]+ tokens that engines looked up in the last hour were here", page)
    assert '<p class="bad"><b>remote backend redis://127.0.0.1:1' in page
    assert str(len(status["sessions"])) in re.findall(r"<b>([\d,]+)</b><span>sessions</span>", page)


@pytest.mark.parametrize("width", [1280, 700])
def test_the_page_fits_the_window_and_goes_by_keyboard(busy: Node, tmp_path: Path, width: int) -> None:
    seen = measured(fetch(busy, "/ui"), MEASURE, tmp_path, f"--window-size={width},1200")
    assert seen["page"] <= seen["width"] <= width
    assert seen["cut"] == []
    assert len(seen["focused"]) >= 2
    assert all(seen["focused"])
    assert seen["plots"] > 0
    assert seen["asked"] == []


@contextmanager
def served(pages: list[tuple[int, str]]) -> Iterator[tuple[str, list[str]]]:
    """An address that gives these, one after the other and the last one again, and what was asked of it."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/ui":
                return self.send_error(404)
            code, text = pages[min(len(asked), len(pages) - 1)]
            asked.append(self.path)
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/ui", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def note_of(page: str) -> str:
    found = re.search(r'<p id="note"[^>]*>(.*?)</p>', page)
    assert found
    return found.group(1)


def test_the_page_renews_itself_and_says_when_the_node_does_not_answer(node: Node, tmp_path: Path) -> None:
    first = fetch(node, "/ui")
    second = first.replace("No engine is attached.", "The second look.")
    with served([(200, first), (200, second)]) as (address, asked):
        made = browse(address, tmp_path, "--virtual-time-budget=16000")
    assert len(asked) > 1
    assert "The second look." in made
    assert "No engine is attached." not in made
    assert note_of(made) == ""
    with served([(200, first), (503, "the node is too busy to answer\n")]) as (address, asked):
        made = browse(address, tmp_path, "--virtual-time-budget=16000")
    assert len(asked) > 1
    assert "No engine is attached." in made
    assert note_of(made) == "The node does not answer: the node is too busy to answer"


def test_a_paused_page_stays_as_it_is(node: Node, tmp_path: Path) -> None:
    first = fetch(node, "/ui").replace("</body>", "<script>pause.click()</script></body>")
    second = first.replace("No engine is attached.", "The second look.")
    with served([(200, first), (200, second)]) as (address, asked):
        made = browse(address, tmp_path, "--virtual-time-budget=16000")
    assert len(asked) == 1
    assert 'aria-pressed="true"' in made
    assert "The second look." not in made
