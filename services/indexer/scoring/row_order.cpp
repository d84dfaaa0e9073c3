#include "services/indexer/scoring/row_order.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

namespace cenote::indexer {

namespace {

constexpr std::size_t few_rows = 96;  // which comparisons sort as fast
constexpr unsigned byte_bits = 8;
constexpr unsigned word_bits = 64;

// Eight bytes as a number that compares as they do; a shorter text ends in zeros.
std::uint64_t head_of(std::string_view text) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, text.data(), std::min(text.size(), sizeof(word)));
  return std::endian::native == std::endian::little ? __builtin_bswap64(word) : word;
}

std::size_t common_length(std::string_view one, std::string_view other, std::size_t limit) noexcept {
  limit = std::min({limit, one.size(), other.size()});
  if (std::memcmp(one.data(), other.data(), limit) == 0) return limit;
  return static_cast<std::size_t>(
      std::mismatch(one.begin(), one.begin() + static_cast<std::ptrdiff_t>(limit), other.begin()).first - one.begin());
}

}  // namespace

void row_order::add(double score, std::string_view name) {
  // The bits of positive numbers compare as the numbers do.
  rows_.push_back({0, ~std::bit_cast<std::uint64_t>(score), static_cast<std::uint32_t>(rows_.size())});
  names_.push_back(name);
}

std::span<const std::uint32_t> row_order::sorted() {
  write_heads();
  if (rows_.size() <= few_rows) {
    std::ranges::sort(rows_, [](const ordered_row& one, const ordered_row& other) {
      return is_before(one, other) || (!is_before(other, one) && one.number < other.number);
    });
  } else {
    sort_by_bytes();
  }
  sort_equal();
  numbers_.clear();
  for (const ordered_row& row : rows_) numbers_.push_back(row.number);
  return numbers_;
}

void row_order::write_heads() noexcept {
  if (rows_.empty()) return;
  std::size_t common = names_.front().size();
  for (const std::string_view name : names_) common = common_length(names_.front(), name, common);
  for (std::size_t i = 0; i < rows_.size(); ++i) rows_[i].name = head_of(names_[i].substr(common));
}

void row_order::sort_by_bytes() {
  std::uint64_t names = 0;
  std::uint64_t scores = 0;
  for (const ordered_row& row : rows_) {
    names |= row.name ^ rows_.front().name;
    scores |= row.score ^ rows_.front().score;
  }
  moved_.resize(rows_.size());
  sort_by(&ordered_row::name, names);
  sort_by(&ordered_row::score, scores);
}

// By a word's bytes from the lowest on, each time keeping the order so far.
void row_order::sort_by(std::uint64_t ordered_row::*word, std::uint64_t differences) {
  constexpr std::uint64_t byte = 0xff;
  for (unsigned shift = 0; shift < word_bits; shift += byte_bits) {
    if (((differences >> shift) & byte) == 0) continue;
    std::array<std::uint32_t, byte + 1> places{};
    for (const ordered_row& row : rows_) ++places[(row.*word >> shift) & byte];
    std::uint32_t next = 0;
    for (std::uint32_t& place : places) next += std::exchange(place, next);
    for (const ordered_row& row : rows_) moved_[places[(row.*word >> shift) & byte]++] = row;
    rows_.swap(moved_);
  }
}

// Rows whose words are equal, by their whole names.
void row_order::sort_equal() noexcept {
  for (auto first = rows_.begin(); first != rows_.end();) {
    const auto last =
        std::find_if(first + 1, rows_.end(), [&](const ordered_row& row) { return is_before(*first, row); });
    if (last - first > 1) {
      std::sort(first, last, [&](const ordered_row& one, const ordered_row& other) {
        const int order = names_[one.number].compare(names_[other.number]);
        return order != 0 ? order < 0 : one.number < other.number;
      });
    }
    first = last;
  }
}

}  // namespace cenote::indexer
