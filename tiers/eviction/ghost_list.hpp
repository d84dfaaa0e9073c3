// Identities of blocks that are gone, in the order in which they went.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

namespace cenote::eviction {

struct no_note {};

/// A bounded queue of identities that finds each in O(1), with a note on each. The oldest one makes room for a new one.
/// Memory follows the number of ghosts, never the number of blocks ever seen. Not thread-safe.
template <class Note = no_note>
class ghost_list {
 public:
  struct ghost {
    std::uint64_t id = 0;
    [[no_unique_address]] Note note{};
  };

  /// At most `n` from now on; the oldest ones above it go.
  void bound(std::size_t n) {
    bound_ = n;
    while (size_ > bound_) drop_oldest();
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

  /// The note on `id`; null when there is none. Ends with the next change.
  [[nodiscard]] const Note* find(std::uint64_t id) const noexcept {
    if (size_ == 0) return nullptr;
    const std::uint32_t found = slots_[slot_of(id)].node;
    return found == none ? nullptr : &nodes_[found].what.note;
  }
  [[nodiscard]] Note* find(std::uint64_t id) noexcept {
    return const_cast<Note*>(static_cast<const ghost_list&>(*this).find(id));
  }
  /// The oldest one; null when empty. Ends with the next change.
  [[nodiscard]] const ghost* oldest() const noexcept { return size_ == 0 ? nullptr : &nodes_[oldest_].what; }

  /// Adds `id` as the newest. Two blocks may have one identity, which is a hash: then the note is the later one's.
  void push(std::uint64_t id, Note note = {}) {
    if (bound_ == 0) return;
    take(id);
    if (size_ >= bound_) drop_oldest();
    if ((size_ + 1) * 2 > slots_.size()) grow();
    const std::uint32_t added = take_node();
    nodes_[added] = {{id, std::move(note)}, newest_, none};
    (newest_ == none ? oldest_ : nodes_[newest_].newer) = added;
    newest_ = added;
    slots_[slot_of(id)] = {added, tag_of(id)};
    ++size_;
  }
  /// Takes `id` out, if it is there.
  std::optional<Note> take(std::uint64_t id) {
    if (size_ == 0) return std::nullopt;
    const std::size_t slot = slot_of(id);
    if (slots_[slot].node == none) return std::nullopt;
    Note note = std::move(nodes_[slots_[slot].node].what.note);
    erase(slot);
    return note;
  }
  void drop_oldest() {
    if (size_ > 0) erase(slot_of(nodes_[oldest_].what.id));
  }

 private:
  static constexpr std::uint32_t none = ~std::uint32_t{0};
  static constexpr std::size_t first_slots = 16;
  static constexpr unsigned tag_bits = 32;
  static constexpr std::uint64_t spread = 0x9e3779b97f4a7c15ULL;  // 2^64 / golden ratio

  struct node {
    ghost what;
    std::uint32_t older = none;
    std::uint32_t newer = none;
  };

  /// A place in the table, with the upper half of the spread identity: which place is its own, and most of what tells
  /// it from others, so that nodes are seldom looked at.
  struct place {
    std::uint32_t node = none;
    std::uint32_t tag = 0;
  };

  [[nodiscard]] static std::uint32_t tag_of(std::uint64_t id) noexcept {
    return static_cast<std::uint32_t>((id * spread) >> tag_bits);
  }
  [[nodiscard]] std::size_t home_of(std::uint32_t tag) const noexcept { return tag >> shift_; }
  /// Where `id` is, or would be.
  [[nodiscard]] std::size_t slot_of(std::uint64_t id) const noexcept {
    const std::uint32_t tag = tag_of(id);
    std::size_t slot = home_of(tag);
    while (slots_[slot].node != none && (slots_[slot].tag != tag || nodes_[slots_[slot].node].what.id != id)) {
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return slot;
  }
  [[nodiscard]] std::uint32_t take_node() {
    if (free_ != none) return std::exchange(free_, nodes_[free_].newer);
    nodes_.emplace_back();
    return static_cast<std::uint32_t>(nodes_.size() - 1);
  }
  void erase(std::size_t slot) {
    const std::uint32_t gone = slots_[slot].node;
    node& of = nodes_[gone];
    (of.older == none ? oldest_ : nodes_[of.older].newer) = of.newer;
    (of.newer == none ? newest_ : nodes_[of.newer].older) = of.older;
    of.newer = std::exchange(free_, gone);
    --size_;
    close_gap(slot);
  }
  /// Moves what lies behind an emptied slot forward, so that no search ends too early.
  void close_gap(std::size_t gap) noexcept {
    const std::size_t mask = slots_.size() - 1;
    for (std::size_t slot = (gap + 1) & mask; slots_[slot].node != none; slot = (slot + 1) & mask) {
      const std::size_t home = home_of(slots_[slot].tag);
      if (((slot - home) & mask) < ((slot - gap) & mask)) continue;
      slots_[gap] = slots_[slot];
      gap = slot;
    }
    slots_[gap] = {};
  }
  void grow() {
    const std::size_t count = slots_.empty() ? first_slots : slots_.size() * 2;
    slots_.assign(count, {});
    shift_ = tag_bits - static_cast<unsigned>(std::countr_zero(count));
    for (std::uint32_t each = oldest_; each != none; each = nodes_[each].newer)
      slots_[slot_of(nodes_[each].what.id)] = {each, tag_of(nodes_[each].what.id)};
  }

  std::size_t bound_ = std::numeric_limits<std::size_t>::max();
  std::size_t size_ = 0;
  unsigned shift_ = 0;
  std::uint32_t oldest_ = none;
  std::uint32_t newest_ = none;
  std::uint32_t free_ = none;
  std::vector<node> nodes_;
  std::vector<place> slots_;
};

}  // namespace cenote::eviction
