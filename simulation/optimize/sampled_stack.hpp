// LRU's stack of which only some blocks are there: a fixed number at most, each with the number of those on top of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace cenote::simulation {

/// The blocks that one in the stack stands for.
enum class stack_part : std::uint8_t {
  exact,    ///< itself
  sampled,  ///< so many as the sample leaves out for each that it takes
};

/// Blocks by key, the one that was used last on top. Memory is taken once: 50 to 60 bytes for each that fits. A step
/// is O(log the blocks that fit), renumbering included. Not thread-safe.
class sampled_stack {
 public:
  struct depth {
    std::uint32_t exact = 0;
    std::uint32_t sampled = 0;
  };

  /// `blocks`, 1 to 2^30, is how many blocks fit.
  explicit sampled_stack(std::size_t blocks);

  /// Begins the next request: blocks that are put on top from here on are of it.
  void begin_request() noexcept { begin_ = next_; }
  [[nodiscard]] std::optional<std::uint32_t> find(std::uint64_t key) const noexcept;
  [[nodiscard]] stack_part part(std::uint32_t entry) const noexcept { return entries_[entry].part; }
  /// The blocks on top of it, without what the present request has put there.
  [[nodiscard]] depth depth_of(std::uint32_t entry) const noexcept;
  /// A block that is not there, on top. There is room.
  std::uint32_t push(std::uint64_t key, stack_part part);
  void raise(std::uint32_t entry);
  void set_part(std::uint32_t entry, stack_part part);
  void erase(std::uint32_t entry);
  /// Erases the sampled blocks for which `drops`(key, depth in the whole stack) is true.
  template <class Predicate>
  void erase_sampled(const Predicate& drops) {
    depth top;
    for (std::size_t slot = next_; slot-- > 0;) {
      if (slots_[slot] == no_entry) continue;
      const std::uint32_t number = slots_[slot];
      const stack_part part = entries_[number].part;
      if (part == stack_part::sampled && drops(entries_[number].key, top)) erase(number);
      ++(part == stack_part::exact ? top.exact : top.sampled);
    }
  }
  [[nodiscard]] std::size_t exact() const noexcept { return exact_; }
  [[nodiscard]] std::size_t sampled() const noexcept { return size_ - exact_; }
  [[nodiscard]] std::size_t bytes() const noexcept;

 private:
  static constexpr std::uint32_t no_entry = 0xffff'ffff;
  struct stacked {
    std::uint64_t key = 0;
    std::uint32_t slot = 0;
    stack_part part = stack_part::sampled;
  };

  [[nodiscard]] std::size_t home_of(std::uint64_t key) const noexcept;
  [[nodiscard]] std::size_t place_of(std::uint64_t key) const noexcept;
  void close_gap(std::size_t gap) noexcept;
  void take_slot(std::uint32_t number);
  void renumber();
  void count(std::size_t slot, std::uint64_t amount) noexcept;
  [[nodiscard]] std::uint64_t sum_before(std::size_t slot) const noexcept;

  std::vector<stacked> entries_;
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> places_;  ///< entries by key: open addressing, at most half full
  std::vector<std::uint32_t> slots_;   ///< entries by the time of their last use; twice as many as fit
  /// A Fenwick tree over the slots: sampled blocks in the lower half of each number, exact ones in the upper one (P. M.
  /// Fenwick, "A new data structure for cumulative frequency tables", Software: Practice and Experience 24(3), 1994).
  std::vector<std::uint64_t> tree_;
  std::size_t next_ = 0;   ///< the next free slot
  std::size_t begin_ = 0;  ///< the first slot of the present request
  std::size_t size_ = 0;
  std::size_t exact_ = 0;
};

}  // namespace cenote::simulation
