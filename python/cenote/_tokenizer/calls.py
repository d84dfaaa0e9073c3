"""The calls of the service, each from a request to its answer: what goes wrong is an answer, too."""

from __future__ import annotations

import itertools
import json
import logging
import os
from typing import Any

from . import messages
from .loaded import BadTokenizer, LoadedTokenizers
from .places import UnknownModel
from .templates import BadTemplate

_log = logging.getLogger("cenote.tokenizer")

MOST_INPUT = 16 << 20  # bytes of a text
_LONGEST_WORDS = 1024  # characters of an error's message


class BadRequest(Exception):
    """A request that makes no sense; the message goes to its client."""


class Calls:
    """Answers requests; any thread may ask.

    Parameters
    ----------
    loaded : LoadedTokenizers
    trust_request_templates : bool
        Whether a request may bring a chat template. Such a template can take any amount of time and memory.
    """

    def __init__(self, loaded: LoadedTokenizers, *, trust_request_templates: bool) -> None:
        self._loaded = loaded
        self._trust_request_templates = trust_request_templates
        self._numbers = itertools.count(1)

    def answer(self, method: str, request: Any) -> Any:
        """The answer of a method of messages.METHODS."""
        reply = messages.CLASSES[f"{method}Response"]
        handler = {
            "Tokenize": self._tokenize,
            "InitializeTokenizer": self._initialize,
            "RenderChatCompletion": self._render_chat,
            "RenderCompletion": self._render_completion,
        }[method]
        try:
            return reply(success=True, **handler(request))
        except (UnknownModel, BadTokenizer, BadTemplate, BadRequest) as why:
            return reply(success=False, error_message=str(why)[:_LONGEST_WORDS])
        except Exception:
            _log.exception("%s of model %r fails", method, request.model_name)
            return reply(success=False, error_message="the tokenizer fails; its log has more")

    def _tokenize(self, request: Any) -> dict[str, Any]:
        encoding = self._encode(request.model_name, request.input, request.add_special_tokens)
        return {"input_ids": encoding.ids, "offset_pairs": itertools.chain.from_iterable(encoding.offsets)}

    def _initialize(self, request: Any) -> dict[str, Any]:
        self._loaded.find(request.model_name)
        return {}

    def _render_completion(self, request: Any) -> dict[str, Any]:
        encoding = self._encode(request.model_name, request.prompt, True)
        return {"token_ids": encoding.ids, "request_id": self._request_id()}

    def _render_chat(self, request: Any) -> dict[str, Any]:
        if request.ByteSize() > MOST_INPUT:
            raise BadRequest(f"a conversation has at most {MOST_INPUT} bytes")
        if request.chat_template and not self._trust_request_templates:
            raise BadRequest("chat_template is not allowed: that needs --trust-request-templates")
        prompt = self._loaded.find(request.model_name).template.render(
            [_message(each) for each in request.messages],
            [_tool(each) for each in request.tools] or None,
            _object(request.chat_template_kwargs, "chat_template_kwargs") if request.chat_template_kwargs else {},
            source=request.chat_template or None,
            add_generation_prompt=request.add_generation_prompt,
            continue_final_message=request.continue_final_message,
        )
        # The template has written the special tokens that a prompt begins with.
        encoding = self._encode(request.model_name, prompt, False)
        return {"token_ids": encoding.ids, "request_id": self._request_id()}

    def _encode(self, model: str, text: str, add_special_tokens: bool) -> Any:
        if len(text) > MOST_INPUT or len(text.encode()) > MOST_INPUT:
            raise BadRequest(f"a text has at most {MOST_INPUT} bytes")
        return self._loaded.find(model).encode(text, add_special_tokens=add_special_tokens)

    def _request_id(self) -> str:
        return f"{os.getpid()}-{next(self._numbers)}"


def _object(text: str, name: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as why:
        raise BadRequest(f"{name} is no JSON: {why}") from why
    if not isinstance(found, dict):
        raise BadRequest(f"{name} is no object of JSON")
    return found


def _message(message: Any) -> dict[str, Any]:
    """For a template. Parts of text become lines of one text, as vLLM joins them."""
    strange = [each.type for each in message.content_parts if each.type != "text"]
    if strange:
        raise BadRequest(f"content_parts has a part `{strange[0][:64]}`; only text has tokens without the engine")
    parts = [each.text for each in message.content_parts]
    return {"role": message.role, "content": message.content if message.HasField("content") else "\n".join(parts)}


def _tool(tool: Any) -> dict[str, Any]:
    """As OpenAI's API has it; vLLM shows a template null for what is not there, except `strict`."""
    given = tool.function
    function: dict[str, Any] = {
        "name": given.name,
        "description": given.description if given.HasField("description") else None,
        "parameters": _object(given.parameters_json, "parameters_json") if given.parameters_json else None,
    }
    if given.HasField("strict"):
        function["strict"] = given.strict
    return {"type": tool.type or "function", "function": function}
