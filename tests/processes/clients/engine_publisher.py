"""An EnginePublisher of indexer.py in a process of its own: commands and answers are lines as agent.py has them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from indexer import EnginePublisher, Router


class Commands:
    publisher: EnginePublisher

    def open(self, router: dict[str, Any] | None = None, **options: Any) -> None:
        self.publisher = EnginePublisher(**options, router=Router(**(router or {})))

    def store(self, tokens: list[int], **options: Any) -> None:
        self.publisher.store(tokens, **options)

    def cut(self, tokens: list[int], keep: int, **options: Any) -> None:
        self.publisher.cut(tokens, keep, **options)

    def clear(self) -> None:
        self.publisher.clear()

    def truth(self, tokens: list[int]) -> float:
        return self.publisher.truth(tokens)

    def next(self) -> int:
        return self.publisher.next


def main() -> None:
    commands = Commands()
    for line in sys.stdin:
        command = json.loads(line)
        try:
            reply = {"value": getattr(commands, command["command"])(**command["arguments"])}
        except Exception as why:
            reply = {"error": type(why).__name__, "code": "", "message": str(why), "stored": None}
        print(json.dumps(reply), flush=True)


main()
