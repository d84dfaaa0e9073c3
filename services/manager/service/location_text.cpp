#include "services/manager/service/location_text.hpp"

#include <array>
#include <bit>
#include <charconv>

#include "transport/manager/answer_code.hpp"

namespace cenote::manager {

namespace {

// Fields of CacheLocation and LocationSpec.
constexpr std::uint32_t type_field = 1, size_field = 2, specs_field = 3, id_field = 4, status_field = 5, time_field = 6;
constexpr std::uint32_t name_field = 1, uri_field = 2;
constexpr std::uint32_t length_kind = 2;

template <class Visit>
void each_spec(std::uint64_t specs, Visit&& visit) {
  for (; specs != 0; specs &= specs - 1) visit(static_cast<std::size_t>(std::countr_zero(specs)));
}

void append_number(std::int64_t number, std::string& out) {
  std::array<char, 24> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  out.append(digits.data(), end);
}

std::size_t count_of(std::span<const location_part> parts) noexcept {
  std::size_t count = 0;
  for (const location_part& part : parts) count += static_cast<std::size_t>(std::popcount(part.specs));
  return count;
}

storage_type type_of(std::span<const location_part> parts) noexcept {
  return parts.empty() || parts.front().texts == nullptr ? storage_type::unspecified : parts.front().texts->type();
}

}  // namespace

void append_varint(std::uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7U) out += static_cast<char>(value | 0x80U);
  out += static_cast<char>(value);
}

void append_field(std::uint32_t field, std::string_view bytes, std::string& out) {
  append_varint(field << 3U | length_kind, out);
  append_varint(bytes.size(), out);
  out += bytes;
}

void append_field(std::uint32_t field, std::uint64_t value, std::string& out) {
  if (value == 0) return;
  append_varint(field << 3U, out);
  append_varint(value, out);
}

void append_json_text(std::string_view text, std::string& out) {
  out += '"';
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if (letter == '"' || letter == '\\') {
      out += '\\';
      out += letter;
    } else if (byte < 0x20 || byte == 0x7f || letter == '<' || letter == '>') {
      out += "\\u00";
      out += "0123456789abcdef"[byte >> 4U];
      out += "0123456789abcdef"[byte & 15U];
    } else {
      out += letter;
    }
  }
  out += '"';
}

storage_texts::storage_texts(const instance_terms& instance, const storage_terms& storage) : type_(storage.type) {
  specs_.reserve(instance.specs.size());
  for (const spec_terms& spec : instance.specs) {
    spec_text text{.uri = uri_writer({.type = storage.type,
                                      .storage = storage.name,
                                      .root = storage.root,
                                      .blocks_per_file = storage.blocks_per_file,
                                      .instance = instance.id,
                                      .spec = spec.name,
                                      .spec_bytes = spec.bytes})};
    append_field(name_field, spec.name, text.wire_name);
    text.json_begin = R"({"name":)";
    append_json_text(spec.name, text.json_begin);
    text.json_begin += R"(,"uri":")";
    specs_.push_back(std::move(text));
  }
}

location_list::location_list(answer_form form, std::uint32_t field, std::string_view name,
                             const instance_terms& instance, std::string& out)
    : form_(form), field_(field), instance_(instance), out_(out) {
  if (form == answer_form::wire) return;
  append_json_text(name, out_);
  out_ += ":[";
}

void location_list::add(std::span<const location_part> parts, const location_facts& facts) {
  if (form_ == answer_form::wire) {
    add_wire(parts, facts);
  } else {
    add_json(parts, facts);
  }
}

void location_list::add_wire(std::span<const location_part> parts, const location_facts& facts) {
  location_.clear();
  append_field(type_field, static_cast<std::uint64_t>(type_of(parts)), location_);
  append_field(size_field, count_of(parts), location_);
  for (const location_part& part : parts) {
    each_spec(part.specs, [&](std::size_t spec) {
      spec_.clear();
      if (part.texts == nullptr) {
        append_field(name_field, instance_.specs[spec].name, spec_);
      } else {
        const auto& text = (*part.texts)[spec];
        uri_.clear();
        text.uri.append(part.extent, part.position, uri_);
        spec_ += text.wire_name;
        append_field(uri_field, uri_, spec_);
      }
      append_field(specs_field, spec_, location_);
    });
  }
  if (!facts.id.empty()) append_field(id_field, facts.id, location_);
  if (!facts.status.empty()) append_field(status_field, facts.status, location_);
  append_field(time_field, static_cast<std::uint64_t>(facts.create_time), location_);
  append_field(field_, location_, out_);
}

void location_list::add_json(std::span<const location_part> parts, const location_facts& facts) {
  if (!is_first_) out_ += ',';
  is_first_ = false;
  out_ += R"({"type":")";
  out_ += name_of(type_of(parts));
  out_ += R"(","spec_size":)";
  append_number(static_cast<std::int64_t>(count_of(parts)), out_);
  out_ += R"(,"location_specs":[)";
  bool is_first_spec = true;
  for (const location_part& part : parts) {
    each_spec(part.specs, [&](std::size_t spec) {
      if (!is_first_spec) out_ += ',';
      is_first_spec = false;
      if (part.texts == nullptr) {
        out_ += R"({"name":)";
        append_json_text(instance_.specs[spec].name, out_);
        out_ += R"(,"uri":")";
      } else {
        const auto& text = (*part.texts)[spec];
        out_ += text.json_begin;
        text.uri.append(part.extent, part.position, out_);
      }
      out_ += R"(","node_id":"","checksum":"0"})";
    });
  }
  out_ += R"(],"id":)";
  append_json_text(facts.id, out_);
  out_ += R"(,"status":)";
  append_json_text(facts.status, out_);
  out_ += R"(,"create_time":")";
  append_number(facts.create_time, out_);
  out_ += R"("})";
}

void location_list::end() {
  if (form_ == answer_form::json) out_ += ']';
}

void append_header(answer_form form, std::uint16_t code, std::string_view message, std::string_view request_id,
                   std::string& out) {
  if (form == answer_form::wire) {
    std::string status, header;
    append_field(1, std::uint64_t{code}, status);
    if (!message.empty()) append_field(2, message, status);
    append_field(1, status, header);
    if (!request_id.empty()) append_field(2, request_id, header);
    append_field(1, header, out);
    return;
  }
  out += R"({"header":{"status":{"code":")";
  out += name_of(static_cast<answer_code>(code));
  out += R"(","message":)";
  append_json_text(message, out);
  out += R"(},"request_id":)";
  append_json_text(request_id, out);
  out += R"(,"tracer_result":"","leader":""},)";
}

void append_end(answer_form form, std::string& out) {
  if (form == answer_form::wire) return;
  if (out.ends_with(',')) out.pop_back();
  out += '}';
}

}  // namespace cenote::manager
