// The JSON form of messages: simdjson decides whether a text is JSON, protobuf whether it is the message.
#include "transport/manager/message_json.hpp"

#include <google/protobuf/descriptor.h>
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

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

const FieldDescriptor* field_named(const Descriptor& type, const std::string& name) {
  if (const auto* field = type.FindFieldByName(name)) return field;
  for (int i = 0; i < type.field_count(); ++i) {
    if (type.field(i)->json_name() == name) return type.field(i);
  }
  return nullptr;
}

std::expected<void, json_refusal> check_fields(const Descriptor& type, simdjson::dom::object object,
                                               const std::string& path);

std::expected<void, json_refusal> check_value(const FieldDescriptor& field, simdjson::dom::element value,
                                              const std::string& path) {
  if (value.is_array()) return refuse_text(json_fault::malformed, "body: " + path + ": must not be a list");
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && value.is_object()) {
    return check_fields(*field.message_type(), value, path);
  }
  if (std::string_view name; field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM && !value.get(name)) {
    if (field.enum_type()->FindValueByName(std::string(name)) == nullptr) {
      return refuse_text(json_fault::malformed,
                         "body: " + path + ": no " + field.enum_type()->name() + " is called " + std::string(name));
    }
  }
  return {};
}

std::expected<void, json_refusal> check_list(const FieldDescriptor& field, simdjson::dom::element value,
                                             const std::string& path) {
  if (value.is_null()) return {};
  simdjson::dom::array list;
  if (value.get(list) != simdjson::SUCCESS) {
    return refuse_text(json_fault::malformed, "body: " + path + ": must be a list");
  }
  for (std::size_t i = 0; const auto item : list) {
    const std::size_t index = i++;
    if (!item.is_array() && !item.is_object() && !item.is_string()) continue;
    if (auto checked = check_value(field, item, path + "[" + std::to_string(index) + "]"); !checked) return checked;
  }
  return {};
}

// Refuses what protobuf's reader would take: lists in lists, values for lists, and names of no enumerator.
std::expected<void, json_refusal> check_fields(const Descriptor& type, simdjson::dom::object object,
                                               const std::string& path) {
  for (const auto [key, value] : object) {
    const auto* field = field_named(type, std::string(key));
    if (field == nullptr || field->is_map()) continue;
    const std::string place = path.empty() ? field->name() : path + "." + field->name();
    auto checked = field->is_repeated() ? check_list(*field, value, place) : check_value(*field, value, place);
    if (!checked) return checked;
  }
  return {};
}

// protobuf's reader alone would take single quotes, names without quotes and more that other readers refuse.
std::expected<void, json_refusal> check_object(std::string_view text, const Descriptor& type) {
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
  simdjson::dom::object object;
  if (root.get(object) != simdjson::SUCCESS) {
    return refuse_text(json_fault::no_object, "body: a JSON object is needed");
  }
  return check_fields(type, object, {});
}

}  // namespace

std::expected<void, json_refusal> read_json(std::string_view text, google::protobuf::Message& message) {
  message.Clear();
  if (auto checked = check_object(text, *message.GetDescriptor()); !checked) return checked;
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
