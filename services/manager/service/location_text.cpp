#include "services/manager/service/location_text.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <utility>

#include "core/json_writer.hpp"
#include "services/manager/index/checksum_runs.hpp"
#include "services/manager/writes/block_site.hpp"
#include "transport/manager/answer_code.hpp"

namespace cenote::manager {

namespace {

// Fields of CacheLocation and LocationSpec.
constexpr std::uint32_t type_field = 1, size_field = 2, specs_field = 3;
constexpr std::uint32_t name_field = 1, uri_field = 2;
constexpr std::uint32_t length_kind = 2;
constexpr std::size_t location_room = 128;  ///< of a location without its specs, in either form
constexpr std::uint32_t checksum_field = 100, word_kind = 1;
constexpr std::string_view checksum_begin = R"(","node_id":"","checksum":")";
constexpr std::string_view spec_end = R"("},)";
constexpr std::size_t most_reserved = std::size_t{1} << 24U;  ///< ahead, bytes: the other locations may be short
constexpr std::size_t longest_checksum = 20;                  ///< in either form
constexpr std::string_view location_end = R"(],"id":"","status":"","create_time":"0"})";

template <class Visit>
void each_spec(std::uint64_t specs, Visit&& visit) {
  for (; specs != 0; specs &= specs - 1) visit(static_cast<std::size_t>(std::countr_zero(specs)));
}

std::size_t count_of(std::span<const location_part> parts) noexcept {
  std::size_t count = 0;
  for (const location_part& part : parts) count += static_cast<std::size_t>(std::popcount(part.specs));
  return count;
}

storage_type type_of(std::span<const location_part> parts) noexcept {
  return parts.empty() || parts.front().texts == nullptr ? storage_type::unspecified : parts.front().texts->type();
}

char* write_text(std::string_view text, char* out) noexcept {
  std::memcpy(out, text.data(), text.size());
  return out + text.size();
}

char* write_varint(std::uint64_t value, char* out) noexcept {
  for (; value >= 0x80; value >>= 7U) *out++ = static_cast<char>(value | 0x80U);
  *out++ = static_cast<char>(value);
  return out;
}

/// A field with a length that is known once its content is written: two bytes are left for it, which is what most need.
class open_field {
 public:
  open_field(std::uint32_t field, char* out) noexcept : length_(write_varint(field << 3U | length_kind, out)) {}

  [[nodiscard]] char* begin() const noexcept { return length_ + reserved; }
  /// Writes the length; the end of the field, whose content ended at `end` and may move by some bytes.
  [[nodiscard]] char* close(const char* end) const noexcept {
    const auto size = static_cast<std::size_t>(end - begin());
    const std::size_t needed = size < 0x80 ? 1 : size < 0x4000 ? 2 : size < 0x20'0000 ? 3 : 4;
    if (needed != reserved) std::memmove(length_ + needed, begin(), size);
    (void)write_varint(size, length_);
    return length_ + needed + size;
  }

 private:
  static constexpr std::size_t reserved = 2;

  char* length_;
};

}  // namespace

std::uint64_t checksum_at(const std::uint64_t* checksums, std::size_t spec) noexcept {
  if (checksums == nullptr || (checksums[0] >> spec & 1U) == 0) return 0;
  return checksums[1 + checksum_rank(checksums[0], spec)];
}

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

storage_texts::storage_texts(const instance_terms& instance, const storage_terms& storage) : type_(storage.type) {
  specs_.reserve(instance.specs.size());
  for (const spec_terms& spec : instance.specs) {
    spec_text text{.uri = writer_of(storage, instance, spec)};
    append_field(name_field, spec.name, text.wire_name);
    text.json_begin = R"({"name":)";
    append_json_text(text.json_begin, spec.name);
    text.json_begin += R"(,"uri":")";
    const std::size_t frame =
        longest_checksum +
        std::max(text.wire_name.size() + 16, text.json_begin.size() + checksum_begin.size() + spec_end.size());
    longest_ = std::max(longest_, frame + text.uri.longest());
    specs_.push_back(std::move(text));
  }
}

location_list::location_list(answer_form form, std::uint32_t field, std::string_view name,
                             const instance_terms& instance, std::string& out)
    : form_(form), field_(field), instance_(instance), out_(out) {
  if (form == answer_form::wire) return;
  append_json_text(out_, name);
  out_ += ":[";
}

std::size_t location_list::room_of(std::span<const location_part> parts) noexcept {
  std::size_t room = location_room;
  for (const location_part& part : parts) {
    room += static_cast<std::size_t>(std::popcount(part.specs)) * part.texts->longest();
  }
  return room;
}

template <class Write>
void location_list::extend(std::size_t room, Write&& write) {
  const std::size_t size = out_.size();
  if (out_.capacity() < size + room) out_.reserve(std::max(2 * out_.capacity(), size + room));
  out_.resize_and_overwrite(size + room, [&](char* text, std::size_t /*bytes*/) noexcept {
    return static_cast<std::size_t>(write(text + size) - text);
  });
}

void location_list::add(std::span<const location_part> parts) {
  if (parts.size() == 1 && repeats_last(parts.front())) return repeat_last(parts.front());
  const std::size_t size = out_.size();
  ends_.clear();
  extend(room_of(parts),
         [&](char* out) { return form_ == answer_form::wire ? write_wire(parts, out) : write_json(parts, out); });
  if (reserve_count_ > 1) out_.reserve(size + std::min(reserve_count_ * (out_.size() - size + 1), most_reserved));
  reserve_count_ = 0;
  last_ = {};
  if (parts.size() == 1) last_ = {.part = parts.front(), .bytes = out_.size() - size};
  is_first_ = false;
}

bool location_list::repeats_last(const location_part& part) const noexcept {
  const location_part& last = last_.part;
  const bool has_checksums = last.checksums != nullptr || part.checksums != nullptr;
  if (last_.bytes == 0 || has_checksums || part.texts != last.texts || part.specs != last.specs ||
      part.block.extent != last.block.extent) {
    return false;
  }
  return part.texts->differ_in_digits(last.block.position, part.block.position);
}

void location_list::repeat_last(const location_part& part) {
  const bool needs_comma = form_ == answer_form::json && out_[out_.size() - last_.bytes] != ',';
  extend(last_.bytes + 1, [&](char* out) {
    const char* const last = out - last_.bytes;
    if (needs_comma) *out++ = ',';
    std::memcpy(out, last, last_.bytes);
    out += last_.bytes;
    std::size_t place = 0;
    each_spec(part.specs, [&](std::size_t spec) {
      (*part.texts)[spec].uri.write_digits(part.block.position, out - ends_[place++]);
    });
    return out;
  });
  if (needs_comma) ++last_.bytes;
  last_.part = part;
}

char* location_list::write_wire(std::span<const location_part> parts, char* out) noexcept {
  const open_field location(field_, out);
  out = location.begin();
  const auto number = [&](std::uint32_t field, std::uint64_t value) {
    if (value != 0) out = write_varint(value, write_varint(field << 3U, out));
  };
  number(type_field, static_cast<std::uint64_t>(type_of(parts)));
  number(size_field, count_of(parts));
  for (const location_part& part : parts) {
    each_spec(part.specs, [&](std::size_t number_of_spec) {
      const auto& text = (*part.texts)[number_of_spec];
      const open_field spec(specs_field, out);
      const open_field uri(uri_field, write_text(text.wire_name, spec.begin()));
      out = uri.close(text.uri.write(part.block, uri.begin()));
      if (const std::uint64_t checksum = checksum_at(part.checksums, number_of_spec); checksum != 0) {
        out = write_varint(checksum_field << 3U | word_kind, out);
        std::memcpy(out, &checksum, sizeof checksum);  // little-endian, as this machine
        out += sizeof checksum;
      }
      out = spec.close(out);
      ends_.push_back(static_cast<std::size_t>(out - location.begin()));
    });
  }
  // The address is the last of its spec, and the location may move as it is closed.
  const auto size = static_cast<std::size_t>(out - location.begin());
  for (std::size_t& each : ends_) each = size - each;
  return location.close(out);
}

char* location_list::write_json(std::span<const location_part> parts, char* out) noexcept {
  const char* const begin = out;
  if (!is_first_) *out++ = ',';
  out = write_text(R"({"type":")", out);
  out = write_text(name_of(type_of(parts)), out);
  out = write_text(R"(","spec_size":)", out);
  out = std::to_chars(out, out + 4, count_of(parts)).ptr;
  out = write_text(R"(,"location_specs":[)", out);
  const char* const first = out;
  for (const location_part& part : parts) {
    each_spec(part.specs, [&](std::size_t number_of_spec) {
      const auto& text = (*part.texts)[number_of_spec];
      out = text.uri.write(part.block, write_text(text.json_begin, out));
      ends_.push_back(static_cast<std::size_t>(out - begin));
      out = write_text(checksum_begin, out);
      out = std::to_chars(out, out + longest_checksum, checksum_at(part.checksums, number_of_spec)).ptr;
      out = write_text(spec_end, out);
    });
  }
  if (out != first) --out;  // the last comma
  out = write_text(location_end, out);
  const auto size = static_cast<std::size_t>(out - begin);
  for (std::size_t& each : ends_) each = size - each;
  return out;
}

void location_list::add_absent(std::uint64_t specs, std::size_t count) {
  if (count == 0) return;
  last_ = {};
  std::string entry;
  if (form_ == answer_form::wire) {
    std::string location;
    append_field(size_field, static_cast<std::uint64_t>(std::popcount(specs)), location);
    each_spec(specs, [&](std::size_t spec) {
      std::string name;
      append_field(name_field, instance_.specs[spec].name, name);
      append_field(specs_field, name, location);
    });
    append_field(field_, location, entry);
  } else {
    entry =
        R"({"type":"ST_UNSPECIFIED","spec_size":)" + std::to_string(std::popcount(specs)) + R"(,"location_specs":[)";
    each_spec(specs, [&](std::size_t spec) {
      entry += R"({"name":)";
      append_json_text(entry, instance_.specs[spec].name);
      entry += R"(,"uri":")";
      entry += checksum_begin;
      entry += '0';
      entry += spec_end;
    });
    if (specs != 0) entry.pop_back();
    entry += location_end;
    if (!is_first_) out_ += ',';
    entry += ',';
  }
  out_.reserve(out_.size() + count * entry.size());
  for (std::size_t i = 0; i < count; ++i) out_ += entry;
  if (form_ == answer_form::json) out_.pop_back();
  is_first_ = false;
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
  append_json_text(out, message);
  out += R"(},"request_id":)";
  append_json_text(out, request_id);
  out += R"(,"tracer_result":"","leader":""},)";
}

void append_end(answer_form form, std::string& out) {
  if (form == answer_form::wire) return;
  if (out.ends_with(',')) out.pop_back();
  out += '}';
}

}  // namespace cenote::manager
