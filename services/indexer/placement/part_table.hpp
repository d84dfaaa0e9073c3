// Parts of canonical blocks: the blocks of an engine whose blocks are shorter than those of the index.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "services/indexer/forest/budget_share.hpp"

namespace cenote::indexer {

using part_number = std::uint32_t;
constexpr part_number no_part = 0xffff'ffff;

/// The place of a part: a rank, a medium and a cache group of its publisher, by number.
using part_place = std::uint8_t;

/// The adapter of a part, by number.
using part_adapter = std::uint16_t;

enum class part_refusal : std::uint8_t {
  conflict,  ///< its hash is another part's
  bounds,    ///< too many parts, or too many that go on behind one; a list that is too long
  memory,    ///< the memory of parts is out
};

/// An engine's block as an event has it.
struct part_facts {
  std::uint64_t hash = 0;
  part_adapter adapter = 0;
  std::optional<std::uint64_t> parent;      ///< hash of the block before
  part_number predecessor = no_part;        ///< the part before within the canonical block; none: it is the first
  std::span<const std::uint32_t> tokens;    ///< part_tokens() of them
  std::span<const std::byte> extra_keys{};  ///< its list; empty: none
};

/// The part of some facts.
struct obtained_part {
  part_number number = no_part;
  bool is_new = false;
  std::optional<part_refusal> refusal;  ///< there is none then
};

/// The engine's blocks of one publisher and one size: blocks of the index are paths of `parts` of them. One is complete
/// in a place while all of its parts are there. Parts that nothing holds stay as names until they are many. Memory is
/// the index's, some 150 bytes a part of 16 tokens. Not thread-safe.
class part_table {
 public:
  static constexpr std::size_t most_parts = std::size_t{1} << 20;
  static constexpr std::size_t most_branches = 1024;  ///< parts that go on behind one
  static constexpr std::size_t most_list = 1024;      ///< bytes of a part's extra keys
  static constexpr unsigned most_places = 16;

  part_table(std::uint32_t part_tokens, std::uint32_t parts, budget_share& memory);

  [[nodiscard]] std::uint32_t part_tokens() const noexcept { return part_tokens_; }
  [[nodiscard]] std::uint32_t parts() const noexcept { return parts_; }

  /// The part of a hash; no_part: it is unknown.
  [[nodiscard]] part_number find(std::uint64_t hash) const noexcept;
  [[nodiscard]] bool is_last(part_number part) const noexcept { return slots_[part].position + 1U == parts_; }
  /// The part of these facts, a new one if there is none.
  [[nodiscard]] obtained_part obtain(const part_facts& facts) noexcept;

  [[nodiscard]] bool is_held(part_number part, part_place place) const noexcept {
    const part_slot& slot = slots_[part];
    return ((slot.places >> place) & 1U) != 0 && slot.stamp >= cleared_[place];
  }
  /// The part is in the place from now on; appends the last parts of the index's blocks that are complete by that. The
  /// answer is the work of it: parts that were looked at.
  std::size_t hold(part_number part, part_place place, std::vector<part_number>& completed);
  /// It is there no more; appends the last parts of blocks that were complete until then.
  void release(part_number part, part_place place, std::vector<part_number>& broken);
  /// Nothing is in the place any more. O(1).
  void clear(part_place place) noexcept;
  /// Makes room: parts that nothing holds go if they are many. Numbers of parts end.
  void trim() noexcept;

  [[nodiscard]] bool is_complete(part_number last, part_place place) const noexcept;
  [[nodiscard]] std::uint64_t hash_of(part_number part) const noexcept { return slots_[part].hash; }
  [[nodiscard]] part_adapter adapter_of(part_number part) const noexcept { return slots_[part].adapter; }
  /// The hash of the block before the index's block of a last part.
  [[nodiscard]] std::optional<std::uint64_t> parent_of(part_number last) const noexcept;
  /// Calls `visit(tokens, list)` for each part of the block of a last part, in order.
  template <class Visit>
  void visit_path(part_number last, Visit&& visit) const {
    if (slots_[last].predecessor != no_part) visit_path(slots_[last].predecessor, visit);
    visit(tokens_of(last), list_of(last));
  }

 private:
  struct part_slot {
    std::uint64_t hash = 0;
    std::uint64_t parent = 0;
    std::uint64_t stamp = 0;  ///< clears when `places` was written
    part_number predecessor = no_part;
    part_number first_branch = no_part;  ///< of a free slot the next free one
    part_number next_branch = no_part;
    std::uint16_t places = 0;
    std::uint16_t branches = 0;
    std::uint16_t position = 0;
    part_adapter adapter = 0;
    bool has_parent = false;
    bool is_free = false;
  };
  template <class T>
  using share_vector = std::vector<T, share_allocator<T>>;
  template <class Value>
  using share_map = std::unordered_map<std::uint64_t, Value, std::hash<std::uint64_t>, std::equal_to<>,
                                       share_allocator<std::pair<const std::uint64_t, Value>>>;

  [[nodiscard]] std::span<const std::uint32_t> tokens_of(part_number part) const noexcept {
    return std::span(tokens_).subspan(std::size_t{part} * part_tokens_, part_tokens_);
  }
  [[nodiscard]] std::span<const std::byte> list_of(part_number part) const noexcept;
  [[nodiscard]] bool is_same(part_number part, const part_facts& facts) const noexcept;
  [[nodiscard]] bool is_path_held(part_number part, part_place place) const noexcept;
  [[nodiscard]] part_number take_slot();
  [[nodiscard]] part_number add(const part_facts& facts);
  [[nodiscard]] std::uint16_t present_places(const part_slot& slot) const noexcept;
  std::size_t append_last(part_number part, part_place place, std::vector<part_number>& ends) const;
  void erase(part_number part) noexcept;
  void unlink(part_number part) noexcept;

  std::uint32_t part_tokens_, parts_;
  share_map<part_number> names_;
  share_vector<part_slot> slots_;
  share_vector<std::uint32_t> tokens_;
  share_map<share_vector<std::byte>> lists_;  ///< by part
  part_number first_free_ = no_part;
  std::array<std::uint64_t, most_places> cleared_{};    ///< the clear that emptied a place last, by number
  std::array<std::size_t, most_places> populations_{};  ///< parts in a place
  std::uint64_t clears_ = 0;
  std::size_t released_ = 0;  ///< parts that left a place since the last trim: so many at most that nothing holds
};

}  // namespace cenote::indexer
