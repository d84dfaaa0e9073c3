// Rows of extents: what a write session was granted, and the states of its blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "services/manager/index/checksum_runs.hpp"
#include "services/manager/index/key.hpp"
#include "services/manager/index/location.hpp"

namespace cenote::manager {

inline constexpr std::size_t most_extent_blocks = 65'536;

/// The name of an extent. Numbers are never used twice: the upper half is the epoch of the writer.
struct extent_name {
  std::uint64_t instance = 0;  ///< the instance's number
  std::uint64_t extent = 0;
  auto operator<=>(const extent_name&) const = default;
};

/// The row's name: its kind, and both numbers in big-endian order.
[[nodiscard]] std::string row_name(char kind, const extent_name& name);
/// Nothing if these bytes are no name of an extent.
[[nodiscard]] std::optional<extent_name> extent_of_row(std::string_view row);

/// A block whose parent is not the block at the position before.
struct parent_link {
  std::uint32_t position = 0;
  bool has_parent = false;  ///< else the block is the first of its request
  cache_key parent{};
};

/// A grant, as it is written when its session starts.
struct extent_grant {
  extent_name name{};
  std::uint64_t nonce = 0;       ///< the random half of the session's name
  std::int64_t deadline_ms = 0;  ///< of the session, Unix time
  std::uint32_t granted_at = 0;  ///< Unix seconds
  std::uint8_t storage = 0;
  std::vector<cache_key> keys{};       ///< by position, 1 to most_extent_blocks
  std::vector<std::uint64_t> specs{};  ///< a mask for all blocks, or one for each
  std::vector<parent_link> parents{};  ///< in ascending order of positions

  [[nodiscard]] std::uint64_t specs_at(std::size_t position) const noexcept {
    return specs.size() == 1 ? specs.front() : specs[position];
  }
};

/// The states of an extent's blocks, two bits each.
class state_mask {
 public:
  state_mask() = default;
  state_mask(std::size_t blocks, location_state state);

  [[nodiscard]] std::size_t size() const noexcept { return blocks_; }
  [[nodiscard]] location_state operator[](std::size_t position) const noexcept {
    return static_cast<location_state>((words_[position / per_word] >> shift(position)) & 3U);
  }
  void set(std::size_t position, location_state state) noexcept {
    std::uint64_t& word = words_[position / per_word];
    word = (word & ~(std::uint64_t{3} << shift(position))) | (static_cast<std::uint64_t>(state) << shift(position));
  }
  [[nodiscard]] static constexpr std::size_t words_of(std::size_t blocks) noexcept {
    return (blocks + per_word - 1) / per_word;
  }
  [[nodiscard]] std::span<const std::uint64_t> words() const noexcept { return words_; }
  /// False: not the words of so many blocks.
  [[nodiscard]] bool assign(std::size_t blocks, std::vector<std::uint64_t> words);

 private:
  static constexpr std::size_t per_word = 32;
  [[nodiscard]] static constexpr unsigned shift(std::size_t position) noexcept {
    return static_cast<unsigned>(position % per_word) * 2;
  }

  std::size_t blocks_ = 0;
  std::vector<std::uint64_t> words_;
};

/// The row that is written each time a block of an extent changes its state.
struct extent_states {
  std::uint32_t wrote_at = 0;     ///< Unix seconds of the finish; 0: the session is open
  std::uint64_t finish_mark = 0;  ///< checksum of the mask that the session was finished with
  state_mask states{};
  block_checksums checksums{};
};

/// Stands in the place of the states when no block is there any more, while the session's finish is remembered.
struct extent_finish {
  std::uint64_t nonce = 0;  ///< the random half of the session's name
  std::uint32_t wrote_at = 0;
  std::uint64_t finish_mark = 0;
  std::uint32_t blocks = 0;  ///< 1 to most_extent_blocks
};

[[nodiscard]] std::string grant_row(std::string_view row, const extent_grant& grant);
[[nodiscard]] std::string states_row(std::string_view row, const extent_states& states);
[[nodiscard]] std::string finish_row(std::string_view row, const extent_finish& finish);
/// Nothing if the row is damaged, or contradicts itself.
[[nodiscard]] std::optional<extent_grant> read_grant(std::string_view row, std::string_view value);
[[nodiscard]] std::optional<extent_states> read_states(std::string_view row, std::string_view value);
[[nodiscard]] std::optional<extent_finish> read_finish(std::string_view row, std::string_view value);

}  // namespace cenote::manager
