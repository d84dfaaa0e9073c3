// The JSON form of messages: simdjson decides whether a text is JSON, protobuf whether it is the message.
#include "transport/manager/message_json.hpp"

#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>
#include <simdjson.h>

#include <string>

namespace cenote::manager {

namespace {

std::unexpected<json_refusal> refuse_text(json_fault fault, std::string message) {
  return std::unexpected(
      json_refusal{.fault = fault, .cause = {.code = answer_code::invalid_argument, .message = std::move(message)}});
}

bool is_blank(std::string_view text) noexcept {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// protobuf's reader alone would take single quotes, names without quotes and more that other readers refuse.
std::expected<void, json_refusal> check_object(std::string_view text) {
  if (text.size() > longest_json) {
    return refuse_text(json_fault::malformed,
                       "body: " + std::to_string(text.size()) + " bytes, at most " + std::to_string(longest_json));
  }
  if (is_blank(text)) return refuse_text(json_fault::no_object, "body: empty; a JSON object is needed");
  simdjson::dom::parser parser(longest_json + 1);
  if (parser.allocate(text.size() + 1, deepest_json) != simdjson::SUCCESS) {
    return refuse_text(json_fault::malformed, "body: no memory to read it");
  }
  const simdjson::padded_string padded(text);
  simdjson::dom::element root;
  if (const auto error = parser.parse(padded).get(root); error != simdjson::SUCCESS) {
    return refuse_text(json_fault::malformed, std::string("body: not JSON: ") + simdjson::error_message(error));
  }
  if (!root.is_object()) return refuse_text(json_fault::no_object, "body: a JSON object is needed");
  return {};
}

}  // namespace

std::expected<void, json_refusal> read_json(std::string_view text, google::protobuf::Message& message) {
  message.Clear();
  if (auto checked = check_object(text); !checked) return checked;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const google::protobuf::StringPiece piece(text.data(), text.size());
  const auto status = google::protobuf::util::JsonStringToMessage(piece, &message, options);
  if (!status.ok()) {
    message.Clear();
    return refuse_text(json_fault::malformed, "body: " + std::string(status.message()));
  }
  return {};
}

void write_json(const google::protobuf::Message& message, std::string& out) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string text;
  if (google::protobuf::util::MessageToJsonString(message, &text, options).ok()) {
    out += text;
  } else {
    out += "{}";  // a text that is not UTF-8, which no reader of messages lets in
  }
}

}  // namespace cenote::manager
