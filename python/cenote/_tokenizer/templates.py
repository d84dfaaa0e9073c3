"""Chat templates, rendered as Hugging Face's transformers renders them: jinja2 in a sandbox, the same names in it."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

_MOST_CONFIG = 16 << 20  # bytes of a file beside the tokenizer
_SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class BadTemplate(Exception):
    """A template that cannot be rendered, or files that cannot be read; the message may go to a client."""


class _Generation(Extension):
    """`{% generation %}`: marks what the model has written. For tokens it is as if it were not there."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)


def _raise(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _environment() -> ImmutableSandboxedEnvironment:
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    made.filters["tojson"] = _json  # jinja2's own escapes what HTML must not have
    made.globals["raise_exception"] = _raise
    made.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    return made


def _read_text(path: Path) -> str | None:
    """None: there is no such file."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_CONFIG + 1)
    except FileNotFoundError:
        return None
    except OSError as why:
        raise BadTemplate(f"{path.name} cannot be read: {why.strerror}") from why
    if len(data) > _MOST_CONFIG:
        raise BadTemplate(f"{path.name} has more than {_MOST_CONFIG} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as why:
        raise BadTemplate(f"{path.name} is no UTF-8") from why


def _read_object(path: Path) -> dict[str, Any]:
    """Empty: there is no such file."""
    text = _read_text(path)
    try:
        found = {} if text is None else json.loads(text)
    except (ValueError, RecursionError) as why:
        raise BadTemplate(f"{path.name} is no JSON: {why}") from why
    if not isinstance(found, dict):
        raise BadTemplate(f"{path.name} is no object of JSON")
    return found


def _default_of(template: Any) -> str | None:
    """Of a list of templates with names, the one that is called `default`."""
    if isinstance(template, list):
        named = [each.get("template") for each in template if isinstance(each, dict) and each.get("name") == "default"]
        template = named[0] if named else None
    return template if isinstance(template, str) else None


class ChatTemplate:
    """The chat template of a model and the texts of its special tokens.

    Parameters
    ----------
    folder : Path
        It has `tokenizer_config.json` and, with newer models, `chat_template.jinja`. Raises BadTemplate.
    """

    def __init__(self, folder: Path) -> None:
        config = _read_object(folder / "tokenizer_config.json")
        self._tokens = self._special_tokens(config, _read_object(folder / "special_tokens_map.json"))
        self._environment = _environment()
        source = _read_text(folder / "chat_template.jinja")
        if source is None:
            source = _default_of(_read_object(folder / "chat_template.json").get("chat_template"))
        self._template = self._compile(_default_of(config.get("chat_template")) if source is None else source)

    @staticmethod
    def _special_tokens(config: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, str]:
        found = {}
        for name in _SPECIAL_TOKENS:
            token = config.get(name, named.get(name))
            if isinstance(token, Mapping):
                token = token.get("content")
            if isinstance(token, str):
                found[name] = token
        return found

    def _compile(self, source: str | None) -> jinja2.Template | None:
        try:
            return None if source is None else self._environment.from_string(source)
        except (jinja2.TemplateError, RecursionError) as why:
            raise BadTemplate(f"the chat template makes no sense: {why}") from why

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        options: Mapping[str, Any],
        *,
        source: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
    ) -> str:
        """The prompt of a conversation. Raises BadTemplate.

        Parameters
        ----------
        messages : sequence of mapping
            `role` and `content`.
        tools : sequence of mapping, optional
        options : mapping
            Further names for the template.
        source : str, optional
            A template in place of the model's.
        """
        template = self._template if source is None else self._compile(source)
        if template is None:
            raise BadTemplate("the model has no chat template; right would be one in the request, or a plain prompt")
        if add_generation_prompt and continue_final_message:
            raise BadTemplate("add_generation_prompt and continue_final_message exclude each other")
        names = {**self._tokens, "documents": None, **options}
        names |= {"messages": messages, "tools": tools, "add_generation_prompt": add_generation_prompt}
        try:
            prompt = template.render(names)
        except Exception as why:  # a template is a program: it may fail in any way
            raise BadTemplate(f"the chat template fails: {why}") from why
        return _open_end(prompt, messages) if continue_final_message else prompt


def _open_end(prompt: str, messages: Sequence[Mapping[str, Any]]) -> str:
    """The prompt up to the end of its last message, as the template has written that: it may strip blanks."""
    final = str(messages[-1]["content"]) if messages else ""
    start = prompt.rfind(final.strip()) if final.strip() else -1
    if start < 0:
        raise BadTemplate("the chat template does not show the final message, which cannot be continued then")
    end = start + len(final.lstrip())
    return prompt[:end] if prompt[start:end] == final.lstrip() else prompt[: start + len(final.strip())]
