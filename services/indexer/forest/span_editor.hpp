// Changes of the holders of a run's blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <unordered_map>

#include "services/indexer/forest/forest_parts.hpp"

namespace cenote::indexer {

/// The end of a change.
enum class edit_result : std::uint8_t { same, changed, out_of_memory };

/// Stores of a block that its holder has.
enum class repeat_rule : std::uint8_t {
  by_medium,  ///< the GPU's change nothing, others want a further removal
  counted,    ///< all want one
};

/// Makes the next spans of a run out of the present ones and publishes them in one store. The writer's alone.
class span_editor {
 public:
  /// Stores beyond the first are remembered for at most `repeats` blocks and holders.
  span_editor(forest_parts& parts, std::size_t repeats);

  /// Blocks [first, last) of the run have the holder from now on. A block that it has is remembered as stored once more
  /// where such stores are counted.
  [[nodiscard]] edit_result add(std::uint32_t run, std::uint32_t first, std::uint32_t last, holder added,
                                repeat_rule repeats = repeat_rule::by_medium) noexcept;
  /// The blocks have it no more; where counted stores were repeated, once less.
  [[nodiscard]] edit_result remove(std::uint32_t run, std::uint32_t first, std::uint32_t last, holder removed) noexcept;
  /// The holder goes from all blocks of the run, however often it was stored.
  [[nodiscard]] edit_result erase(std::uint32_t run, holder removed) noexcept;
  /// All holders go from `first` on, and from the block of the second span at the latest if memory is out; counted as
  /// dropped by memory.
  void drop(std::uint32_t run, std::uint32_t first) noexcept;

  /// Forgets repeated stores by dead holders.
  void forget_dead() noexcept;
  /// Forgets repeated stores of blocks [first, last).
  void forget_repeats(std::span<const holder_span> spans, block_number base, std::uint32_t first) noexcept;

  [[nodiscard]] std::size_t repeats() const noexcept { return repeats_.size(); }
  /// Repeated stores for which there was no room: one removal ends them.
  [[nodiscard]] std::uint64_t repeats_refused() const noexcept { return repeats_refused_; }

 private:
  enum class change_kind : std::uint8_t { sum, difference };
  using repeat_table = std::unordered_map<std::uint64_t, std::uint32_t, std::hash<std::uint64_t>, std::equal_to<>,
                                          budget_allocator<std::pair<const std::uint64_t, std::uint32_t>>>;

  [[nodiscard]] bool may_repeat(holder_kind kind) const noexcept { return has_gpu_repeats_ || is_counted(kind); }
  [[nodiscard]] edit_result change(std::uint32_t run, std::uint32_t first, std::uint32_t last, holder changed,
                                   change_kind kind) noexcept;
  [[nodiscard]] bool change_span(holder_span span, std::uint32_t begin, holder changed, change_kind kind) noexcept;
  [[nodiscard]] bool publish(block_run& run, std::span<const holder_span> old, std::size_t low,
                             std::size_t high) noexcept;
  void push(std::uint32_t end, set_number set) noexcept;
  void settle() noexcept;
  void repeat(block_number block, holder number) noexcept;
  [[nodiscard]] bool end_repeat(block_number block, holder number) noexcept;
  void count_dropped(std::span<const holder_span> spans, std::uint32_t first) noexcept;

  forest_parts& parts_;
  std::size_t most_repeats_;
  repeat_table repeats_;  ///< by block and holder: stores beyond the first
  std::uint64_t repeats_refused_ = 0;
  bool has_gpu_repeats_ = false;                                 ///< or had some
  std::array<holder_span, block_store::most_run + 2> edited_{};  ///< in place of the spans that change
  std::size_t count_ = 0;
  std::uint32_t gained_ = 0;  ///< blocks that change
};

}  // namespace cenote::indexer
