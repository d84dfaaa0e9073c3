// The JSON form of messages: simdjson decides whether a text is JSON, the fields of the message what may stand there.
#include "transport/manager/message_json.hpp"

#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>

#include "transport/manager/message_fill.hpp"

namespace cenote::manager {

namespace {

std::unexpected<json_refusal> refuse_text(json_fault fault, std::string message) {
  return std::unexpected(
      json_refusal{.fault = fault, .cause = {.code = answer_code::invalid_argument, .message = std::move(message)}});
}

bool is_blank(std::string_view text) noexcept {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

/// The end of a text in quotes that begins at `place`.
std::size_t end_of_quotes(std::string_view text, std::size_t place) noexcept {
  for (++place; place < text.size() && text[place] != '"'; ++place) {
    if (text[place] == '\\') ++place;
  }
  return std::min(place + 1, text.size());
}

/// simdjson takes no whole number beyond 64 bits, nor a number that is none. The name before it stands for its place.
std::unexpected<json_refusal> refuse_number(std::string_view text) {
  std::string_view name, last_text;
  for (std::size_t place = 0; place < text.size();) {
    const char letter = text[place];
    if (letter == '"') {
      const std::size_t end = end_of_quotes(text, place);
      last_text = text.substr(place + 1, end - place - 2);
      place = end;
      continue;
    }
    if (letter == ':') name = last_text;
    const std::size_t end = std::min(text.find_first_not_of("+-.0123456789eE", place), text.size());
    double number = 0;
    const auto read = std::from_chars(text.data() + place, text.data() + end, number);
    const bool is_sound = read.ec == std::errc() && read.ptr == text.data() + end && std::abs(number) < 0x1p63;
    if (end > place && !is_sound && letter != 'e' && letter != 'E') break;
    place = std::max(end, place + 1);
  }
  return refuse_text(json_fault::malformed,
                     "body: " + std::string(name.substr(0, 64)) + ": a number that is too large, or is none");
}

/// A reader of JSON, which keeps its memory for texts that are not large.
class text_reader {
 public:
  std::expected<simdjson::dom::object, json_refusal> read(std::string_view text) {
    if (text.size() > longest_json) {
      return refuse_text(json_fault::malformed,
                         "body: " + std::to_string(text.size()) + " bytes, at most " + std::to_string(longest_json));
    }
    if (is_blank(text)) return refuse_text(json_fault::no_object, "body: empty; a JSON object is needed");
    if (parser_.allocate(text.size() + 1, deepest_json) != simdjson::SUCCESS) {
      return refuse_text(json_fault::malformed, "body: no memory to read it");
    }
    simdjson::dom::element root;
    if (const auto error = parser_.parse(text.data(), text.size()).get(root); error != simdjson::SUCCESS) {
      if (error == simdjson::NUMBER_ERROR) return refuse_number(text);
      return refuse_text(json_fault::malformed, std::string("body: not JSON: ") + simdjson::error_message(error));
    }
    simdjson::dom::object object;
    if (root.get(object) != simdjson::SUCCESS) {
      return refuse_text(json_fault::no_object, "body: a JSON object is needed");
    }
    return object;
  }

 private:
  simdjson::dom::parser parser_{longest_json + 1};
};

constexpr std::size_t small_text = std::size_t{1} << 20U;

std::expected<void, json_refusal> fill_from(text_reader& reader, std::string_view text,
                                            google::protobuf::Message& message) {
  const auto object = reader.read(text);
  if (!object) return std::unexpected(object.error());
  if (const std::string fault = fill_message(*object, message); !fault.empty()) {
    message.Clear();
    return refuse_text(json_fault::malformed, "body: " + fault);
  }
  return {};
}

}  // namespace

std::expected<void, json_refusal> read_json(std::string_view text, google::protobuf::Message& message) {
  message.Clear();
  if (text.size() > small_text) {
    text_reader reader;
    return fill_from(reader, text, message);
  }
  thread_local text_reader reader;
  return fill_from(reader, text, message);
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
