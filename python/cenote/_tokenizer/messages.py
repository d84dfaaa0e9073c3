"""The messages of `services/indexer/text/tokenization.proto`, made at import.

Code that protoc generates runs only with its own and the next major version of protobuf; descriptors run with all.
"""

from __future__ import annotations

import re
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "tokenization"
SERVICE = f"{PACKAGE}.TokenizationService"

_MESSAGES = {
    "TokenizeRequest": "string input = 1; string model_name = 2; bool add_special_tokens = 3",
    "TokenizeResponse": "repeated uint32 input_ids = 1; bool success = 2; string error_message = 3;"
    " repeated uint32 offset_pairs = 4",
    "InitializeTokenizerRequest": "string model_name = 1; bool enable_thinking = 2; bool add_generation_prompt = 3",
    "InitializeTokenizerResponse": "bool success = 1; string error_message = 2",
    "ContentPart": "string type = 1; optional string text = 2",
    "ChatMessage": "string role = 1; optional string content = 2; repeated ContentPart content_parts = 3",
    "FunctionDefinition": "string name = 1; optional string description = 2; optional string parameters_json = 3;"
    " optional bool strict = 4",
    "ChatCompletionTool": "string type = 1; FunctionDefinition function = 2",
    "RenderChatCompletionRequest": "string model_name = 1; repeated ChatMessage messages = 2;"
    " repeated ChatCompletionTool tools = 3; string chat_template = 4; bool add_generation_prompt = 5;"
    " bool continue_final_message = 6; optional string chat_template_kwargs = 7",
    "RenderChatCompletionResponse": "string request_id = 1; repeated uint32 token_ids = 2; bool success = 4;"
    " string error_message = 5",
    "RenderCompletionRequest": "string model_name = 1; string prompt = 2",
    "RenderCompletionResponse": "string request_id = 1; repeated uint32 token_ids = 2; bool success = 3;"
    " string error_message = 4",
}
METHODS = ("Tokenize", "InitializeTokenizer", "RenderChatCompletion", "RenderCompletion")

_FIELD = re.compile(r"(?:(optional|repeated) )?(\w+) (\w+) = (\d+)")


def _add_field(message: Any, text: str) -> None:
    match = _FIELD.fullmatch(text.strip())
    assert match, text
    label, kind, name, number = match.groups()
    field = message.field.add(name=name, number=int(number), json_name=re.sub("_(.)", lambda m: m[1].upper(), name))
    field.label = field.LABEL_REPEATED if label == "repeated" else field.LABEL_OPTIONAL
    if kind in _MESSAGES:
        field.type, field.type_name = field.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    else:
        field.type = getattr(field, f"TYPE_{kind.upper()}")
    if label == "optional":  # whether it is there is known by a oneof of its own
        field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{name}")


def file_descriptor() -> Any:
    """The file as protoc would describe it."""
    file = descriptor_pb2.FileDescriptorProto(name="tokenization.proto", package=PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for each in fields.split(";"):
            _add_field(message, each)
    service = file.service.add(name=SERVICE.rpartition(".")[2])
    for name in METHODS:
        service.method.add(name=name, input_type=f".{PACKAGE}.{name}Request", output_type=f".{PACKAGE}.{name}Response")
    return file


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()  # of its own: llm-d's file of the same names may be loaded beside it
    pool.AddSerializedFile(file_descriptor().SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in _MESSAGES
    }


CLASSES = _classes()
TokenizeRequest = CLASSES["TokenizeRequest"]
TokenizeResponse = CLASSES["TokenizeResponse"]
InitializeTokenizerRequest = CLASSES["InitializeTokenizerRequest"]
InitializeTokenizerResponse = CLASSES["InitializeTokenizerResponse"]
RenderChatCompletionRequest = CLASSES["RenderChatCompletionRequest"]
RenderChatCompletionResponse = CLASSES["RenderChatCompletionResponse"]
RenderCompletionRequest = CLASSES["RenderCompletionRequest"]
RenderCompletionResponse = CLASSES["RenderCompletionResponse"]
