#include "services/indexer/http/body_reader.hpp"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/text.hpp"
#include "transport/http/query_text.hpp"
#include "transport/http/request_handler.hpp"

namespace cenote::indexer {

namespace {

namespace ondemand = simdjson::ondemand;

static_assert(http::http_request::body_padding >= simdjson::SIMDJSON_PADDING);
static_assert(std::endian::native == std::endian::little, "binary tokens are little-endian");

constexpr std::size_t large_body = std::size_t{1} << 20U;  ///< the memory of larger ones is not kept
constexpr std::size_t shown_text = 40;                     ///< bytes of a wrong value in an error's text
constexpr std::string_view token_range = "whole numbers from 0 to 4294967295";
constexpr std::string_view key_range = "whole numbers from 0 to 18446744073709551615, or such numbers as decimal text";

std::unexpected<error> refuse(std::string text) {
  return fail(error_code::invalid_argument, std::move(text));
}

std::unexpected<error> refuse_json(simdjson::error_code wrong) {
  if (wrong == simdjson::EMPTY) return refuse("the body is empty; a JSON object is to be in it");
  return refuse(std::string("the body is no JSON: ") + simdjson::error_message(wrong));
}

/// The value as it was sent, or its kind where that is long.
std::string text_of_value(ondemand::value value) {
  ondemand::json_type type = ondemand::json_type::null;
  if (value.type().get(type) != simdjson::SUCCESS) return "no JSON value";
  if (type == ondemand::json_type::array) return "a list";
  if (type == ondemand::json_type::object) return "an object";
  const std::string_view token = trimmed(value.raw_json_token());
  return printable(cut_text(token, shown_text)) + (token.size() > shown_text ? "…" : "");
}

/// The name of a field, or of an element of a list; its text is made for errors only.
struct field_name {
  std::string_view field{};
  std::optional<std::size_t> index{};
  std::string_view member{};

  [[nodiscard]] std::string text() const {
    std::string name(field);
    if (index) name += "[" + std::to_string(*index) + "]";
    return name.append(member);
  }
};

std::unexpected<error> refuse_value(const field_name& field, std::string_view right, ondemand::value value) {
  return refuse(field.text() + " is " + text_of_value(value) + "; right would be " + std::string(right));
}

/// Set once for each field, by its number.
class seen_fields {
 public:
  [[nodiscard]] result<void> add(unsigned number, std::string_view field) {
    if ((bits_ >> number & 1U) != 0) return refuse(std::string(field) + " is there twice");
    bits_ |= 1U << number;
    return {};
  }

 private:
  unsigned bits_ = 0;
};

result<std::string_view> text_of(const field_name& field, ondemand::value value, std::size_t longest) {
  ondemand::json_type type = ondemand::json_type::null;
  std::string_view text;
  if (const auto wrong = value.type().get(type)) return refuse_json(wrong);
  if (type == ondemand::json_type::null) return text;
  if (type != ondemand::json_type::string) return refuse_value(field, "a text", value);
  if (const auto wrong = value.get_string().get(text)) return refuse_json(wrong);
  if (text.size() > longest) {
    return refuse(field.text() + " has " + std::to_string(text.size()) + " bytes; at most " + std::to_string(longest) +
                  " are allowed");
  }
  return text;
}

/// Calls `visit(index, value)` for each element of a list.
template <class Visit>
result<void> for_elements(std::string_view field, std::string_view right, ondemand::array list, std::size_t limit,
                          Visit&& visit) {
  std::size_t index = 0;
  for (auto element : list) {
    ondemand::value value;
    if (const auto wrong = std::move(element).get(value)) return refuse_json(wrong);
    if (index == limit) {
      return refuse(std::string(field) + " has more than " + std::to_string(limit) +
                    " elements; it is to be a list of " + std::string(right));
    }
    if (auto visited = visit(index, value); !visited) return visited;
    ++index;
  }
  return {};
}

template <class Visit>
result<void> for_elements(std::string_view field, std::string_view right, ondemand::value value, std::size_t limit,
                          Visit&& visit) {
  ondemand::json_type type = ondemand::json_type::null;
  ondemand::array list;
  if (const auto wrong = value.type().get(type)) return refuse_json(wrong);
  if (type != ondemand::json_type::array) return refuse_value({field}, "a list of " + std::string(right), value);
  if (const auto wrong = value.get_array().get(list)) return refuse_json(wrong);
  return for_elements(field, right, list, limit, std::forward<Visit>(visit));
}

bool read_decimal(std::string_view text, std::uint64_t& number) noexcept {
  const char* const end = text.data() + text.size();
  const auto [stop, wrong] = std::from_chars(text.data(), end, number);
  return wrong == std::errc{} && stop == end && !text.empty();
}

/// Takes the tokens of a list of plain numbers, in half the time of a walk over JSON values. False: it is something
/// else, and maybe wrong.
bool read_plain_tokens(std::string_view list, std::vector<std::uint32_t>& tokens) {
  const char* next = list.data();
  const char* const end = next + list.size();
  const auto skip_spaces = [&] {
    while (next != end && (*next == ' ' || *next == '\n' || *next == '\r' || *next == '\t')) ++next;
  };
  for (char separator = '['; next != end && *next == separator; separator = ',') {
    ++next;
    skip_spaces();
    const char* const digits = next;
    std::uint64_t token = 0;
    for (; next != end && *next >= '0' && *next <= '9' && next - digits < 10; ++next) {
      token = token * 10 + static_cast<std::uint64_t>(*next - '0');
    }
    const auto count = next - digits;
    if (count == 0 || (count > 1 && *digits == '0') || token > std::numeric_limits<std::uint32_t>::max()) return false;
    if (tokens.size() == body_reader::most_tokens) return false;
    tokens.push_back(static_cast<std::uint32_t>(token));
    skip_spaces();
  }
  if (next == end || *next != ']') return false;
  ++next;
  skip_spaces();
  return next == end;
}

/// From JSON values to lists of extra keys in their canonical form.
class extra_key_reader {
 public:
  explicit extra_key_reader(extra_key_table& table) noexcept : table_(table), writer_(table.bytes) {}

  /// The next block's entry: null, or its list.
  [[nodiscard]] result<void> add(std::size_t index, ondemand::value value) {
    const auto start = table_.bytes.size();
    bool is_null = false;
    if (const auto wrong = value.is_null().get(is_null)) return refuse_json(wrong);
    if (!is_null) {
      ondemand::json_type type = ondemand::json_type::null;
      if (const auto wrong = value.type().get(type)) return refuse_json(wrong);
      const field_name field{"extra_keys", index};
      if (type != ondemand::json_type::array) return refuse_value(field, "null or a list", value);
      if (auto written = write(field, value, extra_key_writer::most_levels); !written) return written;
    }
    table_.blocks.push_back(
        {static_cast<std::uint32_t>(start), static_cast<std::uint32_t>(table_.bytes.size() - start)});
    return {};
  }

 private:
  result<void> write(const field_name& field, ondemand::value value, unsigned levels) {
    ondemand::json_type type = ondemand::json_type::null;
    if (const auto wrong = value.type().get(type)) return refuse_json(wrong);
    switch (type) {
      case ondemand::json_type::array: return write_list(field, value, levels);
      case ondemand::json_type::object: return write_map(field, value, levels);
      case ondemand::json_type::number: return write_number(field, value);
      case ondemand::json_type::string: return write_text(value);
      case ondemand::json_type::boolean: return write_boolean(value);
      case ondemand::json_type::null: break;
    }
    bool is_null = false;
    if (const auto wrong = value.is_null().get(is_null)) return refuse_json(wrong);
    if (!is_null) return refuse_json(simdjson::N_ATOM_ERROR);
    writer_.null();
    return {};
  }

  [[nodiscard]] static std::unexpected<error> refuse_depth(const field_name& field) {
    return refuse(field.text() + " is deeper than the " + std::to_string(extra_key_writer::most_levels) +
                  " levels of lists and objects that are allowed");
  }

  result<void> write_list(const field_name& field, ondemand::value value, unsigned levels) {
    if (levels == 0) return refuse_depth(field);
    ondemand::array list;
    std::size_t count = 0;
    if (const auto wrong = value.get_array().get(list)) return refuse_json(wrong);
    if (const auto wrong = list.count_elements().get(count)) return refuse_json(wrong);
    writer_.list(count);
    for (auto element : list) {
      ondemand::value each;
      if (const auto wrong = std::move(element).get(each)) return refuse_json(wrong);
      if (auto written = write(field, each, levels - 1); !written) return written;
    }
    return {};
  }

  result<void> write_map(const field_name& field, ondemand::value value, unsigned levels) {
    if (levels == 0) return refuse_depth(field);
    ondemand::object object;
    std::size_t count = 0;
    if (const auto wrong = value.get_object().get(object)) return refuse_json(wrong);
    if (const auto wrong = object.count_fields().get(count)) return refuse_json(wrong);
    if (count > map_order::most_entries) {
      return refuse(field.text() + " has an object of more than " + std::to_string(map_order::most_entries) +
                    " fields");
    }
    const std::size_t head = table_.bytes.size();
    writer_.map(count);
    map_order order;
    for (auto entry : object) {
      std::string_view name;
      ondemand::value each;
      if (const auto wrong = entry.unescaped_key().get(name)) return refuse_json(wrong);
      if (const auto wrong = entry.value().get(each)) return refuse_json(wrong);
      if (count == 1 && name == "bytes") return write_bytes(field, each, head);
      const std::size_t start = table_.bytes.size();
      writer_.text(name);
      if (auto written = write(field, each, levels - 1); !written) return written;
      if (!order.place(table_.bytes, start)) return refuse(field.text() + " has an object that is too large");
    }
    return {};
  }

  /// {"bytes": "00ff"} stands for bytes, which JSON lacks; its map was begun at `head`.
  result<void> write_bytes(const field_name& field, ondemand::value value, std::size_t head) {
    constexpr std::string_view right = "hexadecimal text, two digits a byte";
    const field_name name{field.field, field.index, ".bytes"};
    ondemand::json_type type = ondemand::json_type::null;
    std::string_view digits;
    if (const auto wrong = value.type().get(type)) return refuse_json(wrong);
    if (type != ondemand::json_type::string) return refuse_value(name, right, value);
    if (const auto wrong = value.get_string().get(digits)) return refuse_json(wrong);
    if (digits.size() % 2 != 0) return refuse(name.text() + " is no " + std::string(right));
    std::vector<std::byte> bytes(digits.size() / 2);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      unsigned char number = 0;
      const char* const pair = digits.data() + 2 * i;
      const auto [stop, wrong] = std::from_chars(pair, pair + 2, number, 16);
      if (wrong != std::errc{} || stop != pair + 2) return refuse(name.text() + " is no " + std::string(right));
      bytes[i] = static_cast<std::byte>(number);
    }
    table_.bytes.resize(head);
    writer_.byte_text(bytes);
    return {};
  }

  result<void> write_number(const field_name& field, ondemand::value value) {
    ondemand::number number;
    if (value.get_number().get(number) != simdjson::SUCCESS) {
      return refuse_value(field, "numbers of at most 64 bits", value);
    }
    switch (number.get_number_type()) {
      case ondemand::number_type::unsigned_integer: writer_.unsigned_integer(number.get_uint64()); break;
      case ondemand::number_type::signed_integer: writer_.integer(number.get_int64()); break;
      case ondemand::number_type::floating_point_number: writer_.number(number.get_double()); break;
    }
    return {};
  }

  result<void> write_text(ondemand::value value) {
    std::string_view text;
    if (const auto wrong = value.get_string().get(text)) return refuse_json(wrong);
    writer_.text(text);
    return {};
  }

  result<void> write_boolean(ondemand::value value) {
    bool is_true = false;
    if (const auto wrong = value.get_bool().get(is_true)) return refuse_json(wrong);
    writer_.boolean(is_true);
    return {};
  }

  extra_key_table& table_;
  extra_key_writer writer_;
};

/// Fields of a question in the order of their numbers.
enum class question_field : unsigned {
  model_name,
  token_ids,
  prompt,
  block_keys,
  pod_identifiers,
  lora_name,
  cache_salt,
  extra_keys,
  ttl_s,
};
constexpr std::array<std::string_view, 9> question_fields{"model_name", "token_ids",       "prompt",
                                                          "block_keys", "pod_identifiers", "lora_name",
                                                          "cache_salt", "extra_keys",      "ttl_s"};

}  // namespace

struct body_reader::memory {
  ondemand::parser json;
  ondemand::parser query_json;
  std::vector<std::uint32_t> tokens;
  std::vector<std::uint64_t> block_keys;
  std::vector<std::string_view> pods;
  extra_key_table extra_keys;
  std::string decoded;
  std::string query_text;
  std::size_t last_size = 0;

  void clear() {
    tokens.clear();
    block_keys.clear();
    pods.clear();
    extra_keys.clear();
    decoded.clear();
  }

  [[nodiscard]] result<void> read_field(unsigned number, ondemand::value value, question_body& body,
                                        std::string_view& salt);
  [[nodiscard]] result<void> read_tokens(ondemand::value value);
  [[nodiscard]] result<void> read_keys(ondemand::value value);
  [[nodiscard]] result<void> read_pods(ondemand::value value);
  [[nodiscard]] result<void> read_ttl(ondemand::value value, question_body& body);
  [[nodiscard]] result<void> add_pod(const field_name& field, std::string_view name);
  [[nodiscard]] result<void> read_query(std::string_view query, question_body& body, std::string_view& salt);
  [[nodiscard]] result<void> read_query_field(unsigned number, std::string_view value, question_body& body,
                                              std::string_view& salt);
  [[nodiscard]] result<void> read_query_keys(std::string_view text);
  void finish(question_body& body, std::string_view salt);

  /// Calls `visit(name, value)` for the fields of the object that the body is.
  template <class Visit>
  [[nodiscard]] result<void> for_fields(std::span<const std::byte> body, Visit&& visit);
};

template <class Visit>
result<void> body_reader::memory::for_fields(std::span<const std::byte> body, Visit&& visit) {
  ondemand::document document;
  ondemand::object object;
  const auto* const text = reinterpret_cast<const char*>(body.data());
  const simdjson::padded_string_view padded(text, body.size(), body.size() + http::http_request::body_padding);
  if (const auto wrong = json.iterate(padded).get(document)) return refuse_json(wrong);
  if (const auto wrong = document.get_object().get(object)) {
    if (wrong != simdjson::INCORRECT_TYPE) return refuse_json(wrong);
    return refuse("the body is no JSON object");
  }
  for (auto field : object) {
    std::string_view name;
    ondemand::value value;
    if (const auto wrong = field.unescaped_key().get(name)) return refuse_json(wrong);
    if (const auto wrong = field.value().get(value)) return refuse_json(wrong);
    if (auto visited = visit(name, value); !visited) return visited;
  }
  if (document.current_location().error() != simdjson::OUT_OF_BOUNDS) {
    return refuse("the body has more behind its JSON object");
  }
  return {};
}

result<void> body_reader::memory::read_tokens(ondemand::value value) {
  ondemand::json_type type = ondemand::json_type::null;
  ondemand::array list;
  std::string_view text;
  if (const auto wrong = value.type().get(type)) return refuse_json(wrong);
  if (type != ondemand::json_type::array) {
    return refuse_value({"token_ids"}, "a list of " + std::string(token_range), value);
  }
  if (const auto wrong = value.get_array().get(list)) return refuse_json(wrong);
  if (const auto wrong = list.raw_json().get(text)) return refuse_json(wrong);
  if (read_plain_tokens(text, tokens)) return {};
  tokens.clear();
  if (const auto wrong = list.reset().error()) return refuse_json(wrong);
  return for_elements(
      "token_ids", token_range, list, most_tokens, [&](std::size_t index, ondemand::value element) -> result<void> {
        std::uint64_t token = 0;
        if (element.get_uint64().get(token) != simdjson::SUCCESS || token > std::numeric_limits<std::uint32_t>::max()) {
          return refuse_value({"token_ids", index}, token_range, element);
        }
        tokens.push_back(static_cast<std::uint32_t>(token));
        return {};
      });
}

result<void> body_reader::memory::read_keys(ondemand::value value) {
  const auto add = [&](std::size_t index, ondemand::value element) -> result<void> {
    ondemand::json_type type = ondemand::json_type::null;
    if (const auto wrong = element.type().get(type)) return refuse_json(wrong);
    std::uint64_t key = 0;
    if (type == ondemand::json_type::string) {
      std::string_view text;
      if (const auto wrong = element.get_string().get(text)) return refuse_json(wrong);
      if (!read_decimal(text, key)) {
        return refuse(field_name{"block_keys", index}.text() + " is \"" + printable(cut_text(text, shown_text)) +
                      "\"; right would be " + std::string(key_range));
      }
    } else if (element.get_uint64().get(key) != simdjson::SUCCESS) {
      return refuse_value({"block_keys", index}, key_range, element);
    }
    block_keys.push_back(key);
    return {};
  };
  return for_elements("block_keys", key_range, value, most_keys, add);
}

result<void> body_reader::memory::add_pod(const field_name& field, std::string_view name) {
  if (name.empty()) return refuse(field.text() + " is empty; right would be the name of a pod");
  pods.push_back(name);
  return {};
}

result<void> body_reader::memory::read_pods(ondemand::value value) {
  return for_elements("pod_identifiers", "names of pods", value, most_pods,
                      [&](std::size_t index, ondemand::value element) -> result<void> {
                        const field_name field{"pod_identifiers", index};
                        const auto name = text_of(field, element, longest_name);
                        if (!name) return std::unexpected(name.error());
                        return add_pod(field, *name);
                      });
}

result<void> body_reader::memory::read_ttl(ondemand::value value, question_body& body) {
  double seconds = 0;
  if (value.get_double().get(seconds) != simdjson::SUCCESS || !(seconds > 0 && seconds <= double{longest_ttl_s})) {
    return refuse_value({"ttl_s"}, "a number of seconds above 0, at most " + std::to_string(longest_ttl_s), value);
  }
  body.ttl = std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(seconds * 1000)));
  return {};
}

result<void> body_reader::memory::read_field(unsigned number, ondemand::value value, question_body& body,
                                             std::string_view& salt) {
  const auto take_text = [&](std::string_view& target, std::size_t longest) -> result<void> {
    const auto text = text_of({question_fields[number]}, value, longest);
    if (!text) return std::unexpected(text.error());
    target = *text;
    return {};
  };
  switch (static_cast<question_field>(number)) {
    case question_field::model_name: return take_text(body.question.model, longest_name);
    case question_field::lora_name: return take_text(body.question.lora_name, longest_name);
    case question_field::cache_salt: return take_text(salt, longest_name);
    case question_field::prompt:
      body.prompt.emplace();
      return take_text(*body.prompt, std::numeric_limits<std::size_t>::max());
    case question_field::token_ids: body.has_tokens = true; return read_tokens(value);
    case question_field::block_keys: body.has_block_keys = true; return read_keys(value);
    case question_field::pod_identifiers: return read_pods(value);
    case question_field::ttl_s: return read_ttl(value, body);
    case question_field::extra_keys: break;
  }
  extra_key_reader lists(extra_keys);
  return for_elements("extra_keys", "null or a list for each block", value, most_tokens,
                      [&](std::size_t index, ondemand::value element) { return lists.add(index, element); });
}

void body_reader::memory::finish(question_body& body, std::string_view salt) {
  if (!salt.empty()) {
    if (extra_keys.blocks.empty()) {
      append_text_list(extra_keys, salt);
    } else {
      append_to_list(extra_keys, 0, salt);
    }
  }
  body.question.tokens = tokens;
  body.question.block_keys = block_keys;
  body.question.pods = pods;
  body.question.extra_keys = extra_keys.view();
}

result<void> body_reader::memory::read_query_keys(std::string_view text) {
  query_text.assign(text);
  query_text.reserve(text.size() + simdjson::SIMDJSON_PADDING);
  ondemand::document document;
  ondemand::array list;
  const simdjson::padded_string_view padded(query_text.data(), query_text.size(), query_text.capacity());
  if (query_json.iterate(padded).get(document) != simdjson::SUCCESS ||
      document.get_array().get(list) != simdjson::SUCCESS) {
    return refuse("extra_keys in the query is no JSON list");
  }
  extra_key_reader lists(extra_keys);
  return for_elements("extra_keys", "null or a list for each block", list, most_tokens,
                      [&](std::size_t index, ondemand::value element) { return lists.add(index, element); });
}

result<void> body_reader::memory::read_query_field(unsigned number, std::string_view value, question_body& body,
                                                   std::string_view& salt) {
  const std::string_view field = question_fields[number];
  const auto kind = static_cast<question_field>(number);
  if (kind == question_field::extra_keys) return read_query_keys(value);
  if (value.size() > longest_name) {
    return refuse(std::string(field) + " has " + std::to_string(value.size()) + " bytes; at most " +
                  std::to_string(longest_name) + " are allowed");
  }
  if (kind == question_field::pod_identifiers) return add_pod({field}, value);
  if (kind == question_field::model_name) {
    body.question.model = value;
  } else if (kind == question_field::lora_name) {
    body.question.lora_name = value;
  } else if (kind == question_field::cache_salt) {
    salt = value;
  } else {
    return refuse(std::string(field) + " cannot be in the query; the body has the tokens");
  }
  return {};
}

result<void> body_reader::memory::read_query(std::string_view query, question_body& body, std::string_view& salt) {
  decoded.reserve(query.size());  // so that views of it stay valid
  seen_fields seen;
  while (const auto field = http::cut_query_field(query)) {
    const auto found = std::ranges::find(question_fields, field->name);
    if (found == question_fields.end()) continue;
    const auto number = static_cast<unsigned>(found - question_fields.begin());
    if (static_cast<question_field>(number) != question_field::pod_identifiers) {
      if (auto added = seen.add(number, *found); !added) return added;
    }
    const std::size_t start = decoded.size();
    if (!http::append_decoded_query(decoded, field->value)) {
      return refuse(std::string(*found) + " in the query has a '%' without two hexadecimal digits");
    }
    const auto value = std::string_view(decoded).substr(start);
    if (auto taken = read_query_field(number, value, body, salt); !taken) return taken;
  }
  return {};
}

body_reader::body_reader() : memory_(std::make_unique<memory>()) {}

body_reader::~body_reader() = default;

void body_reader::begin(std::size_t size) {
  if (memory_->last_size > large_body) memory_ = std::make_unique<memory>();
  memory_->last_size = size;
  memory_->clear();
}

result<question_body> body_reader::read_question(std::span<const std::byte> body) {
  begin(body.size());
  question_body read;
  std::string_view salt;
  seen_fields seen;
  const auto visited = memory_->for_fields(body, [&](std::string_view name, ondemand::value value) -> result<void> {
    const auto found = std::ranges::find(question_fields, name);
    if (found == question_fields.end()) return {};
    const auto number = static_cast<unsigned>(found - question_fields.begin());
    if (auto added = seen.add(number, *found); !added) return added;
    bool is_null = false;
    if (const auto wrong = value.is_null().get(is_null)) return refuse_json(wrong);
    if (is_null) return {};  // as if it were not there
    return memory_->read_field(number, value, read, salt);
  });
  if (!visited) return std::unexpected(visited.error());
  memory_->finish(read, salt);
  return read;
}

result<question_body> body_reader::read_binary_question(std::span<const std::byte> body, std::string_view query) {
  begin(body.size());
  if (body.size() % sizeof(std::uint32_t) != 0) {
    return refuse("the body has " + std::to_string(body.size()) + " bytes; tokens are 4 bytes each, little-endian");
  }
  const std::size_t count = body.size() / sizeof(std::uint32_t);
  if (count > most_tokens) {
    return refuse("the body has " + std::to_string(count) + " tokens; at most " + std::to_string(most_tokens) +
                  " are allowed");
  }
  question_body read;
  std::string_view salt;
  if (const auto fields = memory_->read_query(query, read, salt); !fields) return std::unexpected(fields.error());
  memory_->tokens.resize(count);
  if (count > 0) std::memcpy(memory_->tokens.data(), body.data(), body.size());
  read.has_tokens = true;
  memory_->finish(read, salt);
  return read;
}

result<publisher_settings> body_reader::read_publisher(std::span<const std::byte> body) {
  begin(body.size());
  publisher_settings read;
  constexpr std::array<std::pair<std::string_view, std::string_view publisher_settings::*>, 7> members{
      {{"name", &publisher_settings::name},
       {"endpoint", &publisher_settings::endpoint},
       {"replay", &publisher_settings::replay},
       {"pod", &publisher_settings::pod},
       {"model", &publisher_settings::model},
       {"node", &publisher_settings::node},
       {"engine", &publisher_settings::engine}}};
  seen_fields seen;
  const auto visited = memory_->for_fields(body, [&](std::string_view name, ondemand::value value) -> result<void> {
    for (unsigned number = 0; number < members.size(); ++number) {
      const auto& [field, member] = members[number];
      if (field != name) continue;
      if (auto added = seen.add(number, field); !added) return added;
      const bool is_address = field == "endpoint" || field == "replay";
      const auto text = text_of({field}, value, is_address ? longest_endpoint : longest_name);
      if (!text) return std::unexpected(text.error());
      read.*member = *text;
    }
    return {};
  });
  if (!visited) return std::unexpected(visited.error());
  if (read.name.empty()) return refuse("name is missing; a publisher has a name");
  if (read.endpoint.empty()) return refuse("endpoint is missing; right would be one as tcp://10.0.0.7:5557");
  return read;
}

result<clear_body> body_reader::read_clear(std::span<const std::byte> body) {
  begin(body.size());
  clear_body read;
  seen_fields seen;
  const auto visited = memory_->for_fields(body, [&](std::string_view name, ondemand::value value) -> result<void> {
    if (name != "pod" && name != "medium") return {};
    const bool is_pod = name == "pod";
    if (auto added = seen.add(is_pod ? 0 : 1, name); !added) return added;
    const auto text = text_of({name}, value, longest_name);
    if (!text) return std::unexpected(text.error());
    (is_pod ? read.pod : read.medium) = *text;
    return {};
  });
  if (!visited) return std::unexpected(visited.error());
  if (read.pod.empty()) return refuse("pod is missing; right would be the name of the pod to clear");
  return read;
}

}  // namespace cenote::indexer
