// The order of an answer's rows: best first, then by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace cenote::indexer {

/// Sorts rows without a look at most names: by eight bytes of each behind what all of them begin with. Many rows are
/// sorted byte by byte, and only by bytes that differ, since most pods of an answer have the same score. Memory is used
/// again; not thread-safe.
class row_order {
 public:
  void clear() noexcept {
    rows_.clear();
    names_.clear();
  }
  /// The next row, numbered from 0; a score is positive. The name lives until sorted(). Throws std::bad_alloc.
  void add(double score, std::string_view name);
  /// The numbers of the rows in their order; equal ones keep theirs. Until the next call. Throws std::bad_alloc.
  [[nodiscard]] std::span<const std::uint32_t> sorted();

 private:
  /// A row by two words that are smaller for what comes first.
  struct ordered_row {
    std::uint64_t name = 0;
    std::uint64_t score = 0;
    std::uint32_t number = 0;
  };
  [[nodiscard]] static bool is_before(const ordered_row& one, const ordered_row& other) noexcept {
    return one.score != other.score ? one.score < other.score : one.name < other.name;
  }

  void write_heads() noexcept;
  void sort_by_bytes();
  void sort_by(std::uint64_t ordered_row::*word, std::uint64_t differences);
  void sort_equal() noexcept;

  std::vector<std::string_view> names_;
  std::vector<ordered_row> rows_, moved_;
  std::vector<std::uint32_t> numbers_;
};

}  // namespace cenote::indexer
