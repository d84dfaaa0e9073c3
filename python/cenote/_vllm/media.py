"""Media in vLLM's block hashes: pictures, sounds and videos, by a digest of their content or by a name of the client's.

A name holds within one engine; blocks in a node are shared by all engines, and stay. A request with named media is not
cached. vLLM hashes a name together with processor settings, and then it looks like a digest: so names are marked where
requests come in, in vLLM's front end, which imports the connector to make its configuration and its metrics.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import re
from collections.abc import Iterable
from typing import Any

logger = logging.getLogger("cenote")

_DIGEST = re.compile(r"[0-9a-f]{64}|[0-9a-f]{128}")  # of blake3 and sha256; of sha512
_NAMED = "named:"


def have_digests(features: Iterable[Any]) -> bool:
    """Whether the identifiers of a request's media are digests of their content."""
    return all(_DIGEST.fullmatch(each.identifier) for each in features)


def mark_names() -> None:
    """Marks identifiers that are made of names in this process from now on. Can be called any number of times."""
    try:
        from vllm.multimodal import hasher
        from vllm.multimodal.processing.inputs import ProcessorInputs

        if hasattr(ProcessorInputs.get_mm_hashes, "marks_names"):
            return
        hash_kwargs = hasher.MultiModalHasher.hash_kwargs.__func__
        ProcessorInputs.get_mm_hashes = _marking(ProcessorInputs.get_mm_hashes)
        hasher.MultiModalHasher.hash_kwargs = classmethod(_keeping_marks(hash_kwargs))
        hasher._get_image_id_bytes = lambda image: None  # a name, too, which stands in a picture's metadata
    except (ImportError, AttributeError) as why:
        logger.warning("names of media that look like digests will not be noticed: %s", str(why))


def _marking(method: Any) -> Any:
    @functools.wraps(method)
    def get_mm_hashes(self: Any, *arguments: Any, **options: Any) -> Any:
        named = {
            modality: [None if name is None else f"{_NAMED}{name}" for name in names]
            for modality, names in (self.mm_uuid_items or {}).items()
        }
        return method(dataclasses.replace(self, mm_uuid_items=named), *arguments, **options)

    get_mm_hashes.marks_names = True  # type: ignore[attr-defined]
    return get_mm_hashes


def _keeping_marks(method: Any) -> Any:
    @functools.wraps(method)
    def hash_kwargs(cls: Any, *arguments: Any, **options: Any) -> str:
        found = str(method(cls, *arguments, **options))
        is_named = any(isinstance(each, str) and each.startswith(_NAMED) for each in options.values())
        return f"{_NAMED}{found}" if is_named else found

    return hash_kwargs
