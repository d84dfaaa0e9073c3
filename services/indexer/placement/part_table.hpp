// Parts of canonical blocks: the blocks of an engine whose blocks are shorter than those of the index.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "services/indexer/forest/index_budget.hpp"

namespace cenote::indexer {

using part_number = std::uint32_t;
constexpr part_number no_part = 0xffff'ffff;

/// The place of a part: a rank, a medium and a cache group of its publisher, by number.
using part_place = std::uint8_t;

enum class part_refusal : std::uint8_t {
  conflict,  ///< its hash is another part's
  bounds,    ///< too many parts, or too many that go on behind one
  memory,    ///< the index's memory is out
};

/// An engine's block as an event has it.
struct part_facts {
  std::uint64_t hash = 0;
  std::optional<std::uint64_t> parent;      ///< hash of the block before
  part_number before = no_part;             ///< the part before within the canonical block; none: it is the first
  std::span<const std::uint32_t> tokens;    ///< part_tokens() of them
  std::span<const std::byte> extra_keys{};  ///< its list; empty: none
};

/// The part of some facts.
struct obtained_part {
  part_number number = no_part;
  bool is_new = false;
  std::optional<part_refusal> refusal;  ///< there is none then
};

/// The engine's blocks of one publisher, for one adapter and one size: canonical blocks are paths of `parts` of them. A
/// canonical block is complete in a place while all of its parts are there; parts that nothing holds stay as names
/// until they are many. Memory is the index's, some 150 bytes a part of 16 tokens. Not thread-safe.
class part_table {
 public:
  static constexpr std::size_t most_parts = std::size_t{1} << 20;
  static constexpr std::size_t most_branches = 1024;  ///< parts that go on behind one
  static constexpr unsigned most_places = 16;

  part_table(std::uint32_t part_tokens, std::uint32_t parts, index_budget& budget);

  [[nodiscard]] std::uint32_t part_tokens() const noexcept { return part_tokens_; }
  [[nodiscard]] std::uint32_t parts() const noexcept { return parts_; }
  [[nodiscard]] bool empty() const noexcept { return names_.empty(); }

  /// The part of a hash; no_part: it is unknown.
  [[nodiscard]] part_number find(std::uint64_t hash) const noexcept;
  [[nodiscard]] bool is_last(part_number part) const noexcept { return slots_[part].position + 1U == parts_; }
  /// The part of these facts, a new one if there is none.
  [[nodiscard]] obtained_part obtain(const part_facts& facts) noexcept;

  [[nodiscard]] bool is_held(part_number part, part_place place) const noexcept {
    return ((slots_[part].places >> place) & 1U) != 0;
  }
  /// The part is in the place from now on; appends the last parts of canonical blocks that are complete by that.
  void hold(part_number part, part_place place, std::vector<part_number>& completed);
  /// It is there no more; appends the last parts of canonical blocks that were complete until then.
  void release(part_number part, part_place place, std::vector<part_number>& broken);
  /// Nothing is in the place any more.
  void clear(part_place place) noexcept;
  /// Makes room: parts that nothing holds go if they are many. Numbers of parts end.
  void trim() noexcept;

  [[nodiscard]] bool is_complete(part_number last, part_place place) const noexcept;
  [[nodiscard]] std::uint64_t hash_of(part_number part) const noexcept { return slots_[part].hash; }
  /// The hash of the block before the canonical block of a last part.
  [[nodiscard]] std::optional<std::uint64_t> parent_of(part_number last) const noexcept;
  /// Calls `visit(tokens, list)` for each part of the canonical block of a last part, in order.
  template <class Visit>
  void visit_path(part_number last, Visit&& visit) const {
    if (slots_[last].before != no_part) visit_path(slots_[last].before, visit);
    visit(tokens_of(last), list_of(last));
  }

 private:
  struct part_slot {
    std::uint64_t hash = 0;
    std::uint64_t parent = 0;
    part_number before = no_part;
    part_number first_branch = no_part;  ///< of a free slot the next free one
    part_number next_branch = no_part;
    std::uint16_t places = 0;
    std::uint16_t branches = 0;
    std::uint16_t position = 0;
    bool has_parent = false;
    bool is_free = false;
  };
  template <class T>
  using budget_vector = std::vector<T, budget_allocator<T>>;
  template <class Value>
  using budget_map = std::unordered_map<std::uint64_t, Value, std::hash<std::uint64_t>, std::equal_to<>,
                                        budget_allocator<std::pair<const std::uint64_t, Value>>>;

  [[nodiscard]] std::span<const std::uint32_t> tokens_of(part_number part) const noexcept {
    return std::span(tokens_).subspan(std::size_t{part} * part_tokens_, part_tokens_);
  }
  [[nodiscard]] std::span<const std::byte> list_of(part_number part) const noexcept;
  [[nodiscard]] bool is_same(part_number part, const part_facts& facts) const noexcept;
  [[nodiscard]] bool is_path_held(part_number part, part_place place) const noexcept;
  [[nodiscard]] part_number take_slot();
  [[nodiscard]] part_number add(const part_facts& facts);
  void append_last(part_number part, part_place place, std::vector<part_number>& ends) const;
  void erase(part_number part) noexcept;
  void unlink(part_number part) noexcept;

  std::uint32_t part_tokens_, parts_;
  budget_map<part_number> names_;
  budget_vector<part_slot> slots_;
  budget_vector<std::uint32_t> tokens_;
  budget_map<budget_vector<std::byte>> lists_;  ///< by part
  part_number first_free_ = no_part;
  std::size_t released_ = 0;  ///< releases and clears since the last trim: as many parts at most that nothing holds
};

}  // namespace cenote::indexer
