// Extra keys of blocks: everything besides its tokens that a block's content depends on (images, salts, prompt
// embeddings), a list a block, in one canonical form, so that equal lists are equal bytes whatever wire they came on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace cenote::indexer {

/// A run of elements of a flat array.
struct array_range {
  std::uint32_t first = 0;
  std::uint32_t size = 0;

  [[nodiscard]] bool empty() const noexcept { return size == 0; }
  friend bool operator==(const array_range&, const array_range&) = default;
};

/// Lists of extra keys of consecutive blocks. Valid as long as the arrays that it points into do not change.
struct extra_key_view {
  std::span<const std::byte> bytes;
  std::span<const array_range> blocks;  ///< one a block, in bytes; an empty one: none. Empty: no block has any

  /// The list of a block, empty without one. `block` is in [0, blocks.size()), or `blocks` is empty.
  [[nodiscard]] std::span<const std::byte> list(std::size_t block) const noexcept {
    return blocks.empty() ? bytes.first(0) : bytes.subspan(blocks[block].first, blocks[block].size);
  }
};

/// The owner of such lists; reused, it allocates only to grow.
struct extra_key_table {
  std::vector<std::byte> bytes;
  std::vector<array_range> blocks;

  void clear() noexcept {
    bytes.clear();
    blocks.clear();
  }
  [[nodiscard]] extra_key_view view() const noexcept { return {bytes, blocks}; }
  /// The blocks of a range only.
  [[nodiscard]] extra_key_view view(array_range part) const noexcept {
    return {bytes, std::span(blocks).subspan(part.first, part.size)};
  }
};

/// The places of a map's entries while it is written.
class map_order {
 public:
  static constexpr std::size_t most_entries = 32;

  /// Moves the entry that begins at `start` and ends `bytes` to its place among those before. False if the map is full.
  [[nodiscard]] bool place(std::vector<std::byte>& bytes, std::size_t start);

 private:
  std::array<std::size_t, most_entries> starts_{};
  std::size_t count_ = 0;
};

/// Appends values in canonical CBOR: shortest integers, lengths and floating-point numbers (RFC 8949, section 4.2.1),
/// the entries of maps by length of their keys, then by bytes (RFC 7049, section 3.9), as llm-d's Go library writes
/// them. Not thread-safe.
class extra_key_writer {
 public:
  /// Levels of lists and maps in a list of extra keys, itself included: in an event it is the fifth of eight.
  static constexpr unsigned most_levels = 4;

  explicit extra_key_writer(std::vector<std::byte>& bytes) noexcept : bytes_(bytes) {}

  void null();
  void boolean(bool value);
  void unsigned_integer(std::uint64_t value);
  void integer(std::int64_t value);
  void number(double value);
  void text(std::string_view value);
  void byte_text(std::span<const std::byte> value);
  /// The head of a list; its elements follow.
  void list(std::uint64_t elements);
  /// The head of a map; its entries follow, each one placed by map_order.
  void map(std::uint64_t entries);

 private:
  void put(const void* data, std::size_t size);

  std::vector<std::byte>& bytes_;
};

/// The elements of a list in canonical form, without its head.
struct extra_key_elements {
  std::uint64_t count = 0;
  std::span<const std::byte> bytes;
};

/// The elements of `list` but for a leading text that is `lora_name`: vLLM repeats the adapter's name in each block's
/// list, and the space of the keys has it already. Bytes that are no whole list have no elements.
[[nodiscard]] extra_key_elements elements_of(std::span<const std::byte> list, std::string_view lora_name) noexcept;

/// Bytes of the item at the start of `bytes`; 0 if it is not whole, or has more than most_levels levels.
[[nodiscard]] std::size_t item_size(std::span<const std::byte> bytes,
                                    unsigned levels = extra_key_writer::most_levels) noexcept;

/// Appends the next block's list to `table`: one text.
void append_text_list(extra_key_table& table, std::string_view text);

/// Appends `text` to the list of a block in [0, table.blocks.size()), as the salt of a question is appended to its
/// first block's. The list's old bytes stay behind, unused.
void append_to_list(extra_key_table& table, std::size_t block, std::string_view text);

}  // namespace cenote::indexer
