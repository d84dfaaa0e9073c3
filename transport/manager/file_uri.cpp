// Addresses of blocks, written digit by digit behind texts that are made once.
#include "transport/manager/file_uri.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include "core/checksum.hpp"

namespace cenote::manager {

namespace {

constexpr std::size_t longest_digits = 10;  // of 32 bits
constexpr std::size_t extent_digits = 16;
constexpr std::size_t longest_plain_encoding = 200;
constexpr std::size_t shortened_begin = 180;
constexpr std::string_view block_field = "?blkid=";
constexpr std::string_view hex_digits = "0123456789abcdef";
constexpr std::string_view upper_hex_digits = "0123456789ABCDEF";

constexpr bool is_word(unsigned char c) noexcept {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

void append_escape(unsigned char c, std::string& out) {
  out += '%';
  out += upper_hex_digits[c >> 4U];
  out += upper_hex_digits[c & 15U];
}

// The two digits of each byte.
constexpr auto digit_pairs = [] {
  std::array<std::array<char, 2>, 256> pairs{};
  for (std::size_t i = 0; i < pairs.size(); ++i) pairs[i] = {hex_digits[i >> 4U], hex_digits[i & 15U]};
  return pairs;
}();

char* write_hex(std::uint64_t value, char* out) noexcept {
  for (std::size_t i = extent_digits; i > 0; value >>= 8U) {
    i -= 2;
    std::memcpy(out + i, digit_pairs[value & 0xffU].data(), 2);
  }
  return out + extent_digits;
}

char* write_text(std::string_view text, char* out) noexcept {
  std::memcpy(out, text.data(), text.size());
  return out + text.size();
}

char* write_number(std::uint32_t value, char* out) noexcept {
  return std::to_chars(out, out + longest_digits, value).ptr;
}

unsigned width_of(std::uint32_t number) noexcept {
  unsigned width = 1;
  for (; number >= 10; number /= 10) ++width;
  return width;
}

void append_hash(std::string_view name, std::string& out) {
  std::array<char, 2 * extent_digits> digits{};
  write_hex(checksum_of(name.data(), name.size(), 0), digits.data());
  write_hex(checksum_of(name.data(), name.size(), 1), digits.data() + extent_digits);
  out.append(digits.data(), digits.size());
}

std::string scheme_of(storage_type type) {
  const storage_kind* const kind = find_kind(type);
  return std::string(kind != nullptr ? kind->scheme : "") + "://";
}

}  // namespace

void append_path_name(std::string_view name, std::string& out) {
  const std::size_t begin = out.size();
  std::size_t cut = begin;  // the last place where the text may be cut
  for (const char each : name) {
    const auto c = static_cast<unsigned char>(each);
    if (is_word(c)) {
      out += each;
    } else {
      append_escape(c, out);
    }
    if (out.size() - begin <= shortened_begin) cut = out.size();
  }
  if (name.empty()) out += '~';
  if (out.size() - begin <= longest_plain_encoding) return;
  out.resize(cut);
  out += '~';
  append_hash(name, out);
}

void append_authority(std::string_view name, std::string& out) {
  for (const char each : name) {
    const auto c = static_cast<unsigned char>(each);
    if (is_word(c) || each == '.' || each == '~') {
      out += each;
    } else {
      append_escape(c, out);
    }
  }
}

uri_writer::uri_writer(const uri_place& place)
    : form_(form_of(place.type)),
      prefix_(scheme_of(place.type)),
      tail_((form_ == storage_form::files ? "&size=" : "?size=") + std::to_string(place.spec_bytes)),
      spec_bytes_(place.spec_bytes),
      blocks_per_file_(std::max<std::uint32_t>(place.blocks_per_file, 1)) {
  append_authority(place.storage, prefix_);
  if (form_ == storage_form::files) prefix_ += place.root;
  prefix_ += '/';
  append_path_name(place.instance, instance_);
  instance_ += '/';
  prefix_ += instance_;
  spec_ = "/";
  append_path_name(place.spec, spec_);
  if (form_ != storage_form::files) spec_ += '/';
  if (form_ == storage_form::plugin) prefix_.append(spec_, 1);
}

std::size_t uri_writer::longest() const noexcept {
  constexpr std::size_t separators = 1 + block_field.size();
  const std::size_t place = form_ == storage_form::plugin ? 2 * extent_digits : spec_.size() + 2 * longest_digits;
  return prefix_.size() + extent_digits + place + separators + tail_.size();
}

char* uri_writer::write_place(std::uint64_t extent, std::uint32_t position, char* out) const noexcept {
  out = write_text(spec_, write_hex(extent, out));
  if (form_ == storage_form::values) return write_number(position, out);
  if (const std::uint32_t file = position / blocks_per_file_; file != 0) {
    *out++ = '.';
    out = write_number(file, out);
  }
  return out;
}

char* uri_writer::write(const block_address& block, char* out) const noexcept {
  out = write_text(prefix_, out);
  if (form_ == storage_form::plugin) {
    if (block.key_high != 0) out = write_hex(block.key_high, out);
    out = write_hex(block.key_low, out);
    *out++ = '-';
    return write_text(tail_, write_hex(block.extent, out));
  }
  out = write_place(block.extent, block.position, out);
  if (form_ == storage_form::files) out = write_number(block.position % blocks_per_file_, write_text(block_field, out));
  return write_text(tail_, out);
}

bool uri_writer::differ_in_digits(std::uint32_t first, std::uint32_t second) const noexcept {
  if (form_ == storage_form::plugin) return false;
  if (has_number_of_file()) return first != 0 && second != 0 && width_of(first) == width_of(second);
  if (form_ == storage_form::values) return width_of(first) == width_of(second);
  return first / blocks_per_file_ == second / blocks_per_file_ &&
         width_of(first % blocks_per_file_) == width_of(second % blocks_per_file_);
}

void uri_writer::write_digits(std::uint32_t position, char* end) const noexcept {
  std::uint32_t number = position;
  end -= tail_.size();
  if (has_number_of_file()) {
    end -= block_field.size() + 1;  // of a file with one block, whose number is 0
  } else if (form_ == storage_form::files) {
    number %= blocks_per_file_;
  }
  do {
    *--end = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number != 0);
}

void uri_writer::append(const block_address& block, std::string& out) const {
  const std::size_t begin = out.size();
  out.resize(begin + longest());
  out.resize(static_cast<std::size_t>(write(block, out.data() + begin) - out.data()));
}

std::string uri_writer::key(std::uint64_t extent, std::uint32_t position) const {
  std::string text = instance_;
  text.resize(instance_.size() + longest());
  text.resize(static_cast<std::size_t>(write_place(extent, position, text.data() + instance_.size()) - text.data()));
  return text;
}

file_range uri_writer::part(std::uint64_t extent, std::uint32_t position) const {
  return {.path = key(extent, position), .offset = position % blocks_per_file_ * spec_bytes_, .bytes = spec_bytes_};
}

std::string uri_writer::folder(std::uint64_t extent) const {
  std::string text = instance_;
  text.resize(instance_.size() + extent_digits);
  write_hex(extent, text.data() + instance_.size());
  return text;
}

}  // namespace cenote::manager
