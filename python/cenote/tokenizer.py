"""Tokens of texts for `cenote indexer`, and for llm-d: a process behind a Unix socket. See docs/indexer.md, "Text".

cenote-tokenizer --socket /run/cenote/tokenizer.sock --directory ~/.cache/huggingface/hub
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

try:
    from ._tokenizer.calls import Calls
    from ._tokenizer.loaded import LoadedTokenizers
    from ._tokenizer.places import Places
    from ._tokenizer.server import Server, SocketTaken, wait_for_end
except ModuleNotFoundError as why:
    raise ImportError(f"cenote.tokenizer needs the extra: pip install cenote[tokenizer] ({why})") from why

_log = logging.getLogger("cenote.tokenizer")


def _model(text: str) -> tuple[str, Path]:
    name, equals, path = text.rpartition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"`{text}` is no NAME=PATH; right would be Qwen/Qwen3-32B=/models/qwen3")
    return name, Path(path).expanduser()


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65_536:
        raise argparse.ArgumentTypeError(f"`{text}` is no number from 1 to 65,536")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cenote-tokenizer", description="Tokens of texts, behind a Unix socket.")
    add = parser.add_argument
    add("--socket", type=Path, required=True, metavar="PATH", help="where it answers, as gRPC")
    add("--model", type=_model, action="append", default=[], metavar="NAME=PATH", help="a folder or tokenizer.json")
    add("--directory", type=Path, action="append", default=[], metavar="PATH", help="with models, in either layout")
    add("--hub", action="store_true", help="download models that are nowhere")
    add("--cache", type=_count, default=16, metavar="N", help="tokenizers that stay loaded (16)")
    add("--workers", type=_count, default=2, metavar="N", help="texts at once (2)")
    add("--waiting", type=_count, default=64, metavar="N", help="further texts that wait (64); others are refused")
    add("--trust-request-templates", action="store_true", help="let requests bring chat templates: they are programs")
    add("--parent-pid", type=int, metavar="PID", help="end when this parent has ended")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    places = Places(dict(options.model), [each.expanduser() for each in options.directory], options.hub)
    calls = Calls(LoadedTokenizers(places, options.cache), trust_request_templates=options.trust_request_templates)
    try:
        server = Server(options.socket, calls, workers=options.workers, waiting=options.waiting)
    except (SocketTaken, OSError) as why:
        print(f"cenote-tokenizer: {why}", file=sys.stderr)
        return 1
    wait_for_end(options.parent_pid, ready=lambda: _log.info("answers at %s", options.socket))
    server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
