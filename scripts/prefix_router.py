"""A router of some lines: each prompt goes to the pod that has most of it, by the scores of `cenote indexer`."""

from __future__ import annotations

import array
import json
import urllib.parse
import urllib.request
from collections.abc import Iterable
from typing import Any

PATIENCE = 2.0  # seconds for an answer; without one, prompts go to the pod with the least


class PrefixRouter:
    """Not thread-safe. `pods` may change between two prompts: only these get any."""

    def __init__(self, address: str, model: str, pods: Iterable[str]) -> None:
        """`address`: HOST:PORT of the indexer. `model`: the name under which the pods publish."""
        self._address = address
        self._model = model
        self.pods = set(pods)
        self._sent: dict[str, int] = {}  # tokens, by pod

    def choose(self, tokens: list[int]) -> str:
        """The pod with the highest score; among equals the one that was sent the fewest tokens so far. Notes there that
        the prompt is on its way, so that the next one like it follows, although no event has come yet."""
        answer = self._ask("scores", tokens, self.pods)
        scores = {each["pod"]: each["score"] for each in answer.get("scores", [])}
        pod = min(self.pods, key=lambda each: (-scores.get(each, 0.0), self._sent.get(each, 0), each))
        self._sent[pod] = self._sent.get(pod, 0) + len(tokens)
        self._ask("speculative", tokens, [pod])
        return pod

    def _ask(self, call: str, tokens: list[int], pods: Iterable[str]) -> dict[str, Any]:
        """Empty: there is no answer."""
        fields = {"model_name": self._model, "pod_identifiers": sorted(pods)}
        request = urllib.request.Request(
            f"http://{self._address}/v1/{call}?{urllib.parse.urlencode(fields, doseq=True)}",
            array.array("I", tokens).tobytes(),  # 32 bits each, little-endian on every machine that vLLM runs on
            {"Content-Type": "application/octet-stream"},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
                return dict(json.load(reply))
        except OSError:
            return {}
