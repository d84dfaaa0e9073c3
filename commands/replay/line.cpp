#include "commands/replay/line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <span>
#include <system_error>

#include "simulation/formats/members.hpp"

namespace cenote {

// ---------------------------------------------------------------------------------------------- lines

namespace {

constexpr std::size_t first_size = std::size_t{1} << 18;  // stays in the cache

}  // namespace

line_reader::line_reader(byte_source& source, std::size_t longest)
    : from_(source), longest_(longest), bytes_(first_size + padding) {}

result<std::optional<std::string_view>> line_reader::next() {
  std::size_t seen = 0;
  while (true) {
    const std::string_view left(bytes_.data() + begin_, end_ - begin_);
    const std::size_t size = left.find('\n', seen);
    if (size != std::string_view::npos || ended_) {
      if (left.empty()) return std::nullopt;
      const std::string_view line = left.substr(0, size);
      begin_ = std::min(begin_ + line.size() + 1, end_);
      return line;
    }
    if (longest_ != 0 && left.size() > longest_) {
      return fail(error_code::limit_exceeded, fmt::format("the line has over {} bytes", longest_));
    }
    seen = left.size();
    if (auto ok = refill(); !ok) return std::unexpected(ok.error());
  }
}

result<void> line_reader::refill() {
  std::copy(bytes_.data() + begin_, bytes_.data() + end_, bytes_.data());
  end_ -= begin_;
  begin_ = 0;
  if (end_ + padding == bytes_.size()) bytes_.resize(end_ * 2 + padding);
  const auto got = from_.read(std::span(bytes_).subspan(end_, bytes_.size() - padding - end_));
  if (!got) return std::unexpected(got.error());
  end_ += *got;
  ended_ = *got == 0;
  return {};
}

// ---------------------------------------------------------------------------------------------- what stands in them

namespace {

constexpr std::size_t word_size = 8;
constexpr std::size_t surely_fit = 16;  // digits

/// Digits at the beginning of eight bytes, and their number.
struct digits {
  std::size_t count = 0;
  std::uint64_t value = 0;
};

digits digits_of(const char* text) noexcept {
  static_assert(std::endian::native == std::endian::little);
  std::uint64_t word = 0;
  std::memcpy(&word, text, sizeof word);
  word ^= 0x3030303030303030;
  const std::uint64_t others = ((word + 0x7676767676767676) | word) & 0x8080808080808080;
  const auto count = static_cast<std::size_t>(std::countr_zero(others)) / word_size;
  if (count == 0) return {};
  word <<= 64 - 8 * count;  // zeros in front
  word = word * 10 + (word >> 8);
  constexpr std::uint64_t pairs = 0x000000ff000000ff;
  word = ((word & pairs) * (100 + (1'000'000ULL << 32)) + ((word >> 16) & pairs) * (1 + (10'000ULL << 32))) >> 32;
  return {count, word};
}

class cursor {
 public:
  explicit cursor(std::string_view line) noexcept : next_(line.data()), end_(line.data() + line.size()) {}

  /// Takes `expected`, and what may stand around it.
  bool take(char expected) noexcept {
    skip_space();
    if (next_ == end_ || *next_ != expected) return false;
    ++next_;
    skip_space();
    return true;
  }

  /// A whole number as JSON has them, up to 64 bits.
  bool take(std::uint64_t& number) noexcept {
    constexpr std::array<std::uint64_t, word_size + 1> powers{1,       10,        100,        1'000,      10'000,
                                                              100'000, 1'000'000, 10'000'000, 100'000'000};
    const digits first = digits_of(next_);
    if (first.count == 0 || (*next_ == '0' && first.count > 1)) return false;
    number = first.value;
    std::size_t count = first.count;
    if (count == word_size) {
      if (next_ + word_size > end_) return false;
      const digits second = digits_of(next_ + word_size);
      number = number * powers[second.count] + second.value;
      count += second.count;
    }
    if (count == surely_fit) return take_long(number);
    next_ += count;
    return next_ <= end_;
  }

  /// A string in which every byte stands for itself.
  bool take(std::string_view& text) noexcept {
    if (next_ == end_ || *next_ != '"') return false;
    const char* const begin = ++next_;
    next_ = std::find_if(next_, end_, [](char c) { return c == '"' || c == '\\' || c < ' ' || c > '~'; });
    if (next_ == end_ || *next_ != '"') return false;
    text = {begin, next_++};
    return true;
  }

  [[nodiscard]] bool at_end() const noexcept { return next_ == end_; }
  [[nodiscard]] bool is_at(char c) const noexcept { return next_ != end_ && *next_ == c; }

 private:
  void skip_space() noexcept {
    while (next_ != end_ && (*next_ == ' ' || *next_ == '\t' || *next_ == '\r')) ++next_;
  }

  bool take_long(std::uint64_t& number) noexcept {
    const auto [behind, error] = std::from_chars(next_, end_, number);
    next_ = behind;
    return error == std::errc();
  }

  const char* next_;
  const char* end_;
};

bool take_list(cursor& cursor, huge_vector<std::uint64_t>& ids) {
  if (!cursor.take('[')) return false;
  if (cursor.take(']')) return true;
  do {
    std::uint64_t id = 0;
    if (!cursor.take(id)) return false;
    ids.push_back(id);
  } while (cursor.take(','));
  return cursor.take(']');
}

/// A member that nobody asks for.
bool skip_value(cursor& cursor) {
  std::uint64_t number = 0;
  std::string_view text;
  return cursor.is_at('"') ? cursor.take(text) : cursor.take(number);
}

}  // namespace

std::optional<usual_line> parse_usual_line(std::string_view line, huge_vector<std::uint64_t>& ids) {
  usual_line read;
  int timestamps = 0;
  int lengths = 0;
  int lists = 0;
  cursor at(line);
  if (!at.take('{')) return std::nullopt;
  do {
    std::string_view name;
    if (!at.take(name) || !at.take(':')) return std::nullopt;
    bool good = false;
    if (name == "timestamp") {
      good = ++timestamps == 1 && at.take(read.timestamp);
    } else if (name == "input_length") {
      good = ++lengths == 1 && at.take(read.input_length);
    } else if (name == "hash_ids") {
      good = ++lists == 1 && take_list(at, ids);
    } else {
      good = !formats::is_rare_name(name) && skip_value(at);
    }
    if (!good) return std::nullopt;
  } while (at.take(','));
  if (!at.take('}') || !at.at_end() || timestamps + lengths + lists != 3) return std::nullopt;
  return read;
}

}  // namespace cenote
