// Readers without locks: what the writer unlinks waits until every reader that may know it has left.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "services/indexer/forest/index_budget.hpp"

namespace cenote::indexer {

/// Epoch-based reclamation (Fraser, "Practical lock-freedom", 2004). A reader publishes the epoch that it entered; a
/// thing that was unlinked in epoch e may be used again when no reader is in e or an earlier one.
class epoch_table {
 public:
  static constexpr std::size_t most_readers = 128;

  /// A place for one reading thread; none if all are taken. Any thread.
  [[nodiscard]] std::optional<std::size_t> claim() noexcept;
  void give_back(std::size_t place) noexcept { places_[place].is_taken.store(false, std::memory_order_release); }

  /// Keeps all that is loaded from now to leave(). Only the thread that has the place; not nested.
  void enter(std::size_t place) noexcept {
    places_[place].entered.store(current_.load(std::memory_order_acquire), std::memory_order_seq_cst);
    fence();
  }
  void leave(std::size_t place) noexcept { places_[place].entered.store(0, std::memory_order_release); }

  /// The writer's: the epoch in which something is unlinked now.
  [[nodiscard]] std::uint64_t current() const noexcept { return current_.load(std::memory_order_relaxed); }
  /// The writer's: begins an epoch. What was unlinked before the one that is returned is known to no reader.
  [[nodiscard]] std::uint64_t advance() noexcept;

 private:
  struct alignas(64) reader_place {
    std::atomic<std::uint64_t> entered{0};  ///< 0: outside
    std::atomic<bool> is_taken{false};
  };

  /// Orders the reader's mark before its loads, and the writer's unlinking before its look at the marks.
  void fence() noexcept {
#ifdef CENOTE_TSAN  // gcc's ThreadSanitizer knows no fences
    word_.fetch_add(1, std::memory_order_seq_cst);
#else
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
  }

  std::atomic<std::uint64_t> current_{1};
  std::atomic<std::size_t> most_taken_{0};
  std::atomic<unsigned> word_{0};
  std::array<reader_place, most_readers> places_;
};

/// Kinds of things that are unlinked.
enum class retired_kind : std::uint8_t { memory, extent, run, set, holder, member };

struct retired_thing {
  std::uint64_t epoch = 0;
  void* memory = nullptr;
  std::size_t bytes = 0;
  std::uint32_t number = 0;
  std::uint16_t extra = 0;  ///< of an extent: its blocks
  retired_kind kind = retired_kind::memory;
};

/// Things in the order in which they were unlinked. The writer's alone.
class retirement_list {
 public:
  explicit retirement_list(index_budget& budget) : budget_(budget), things_(budget_allocator<retired_thing>(budget)) {
    things_.reserve(512);
  }

  /// Keeps the thing until readers have left. Where the budget has no room to keep more, waits for them.
  void add(retired_kind kind, std::uint32_t number, void* memory = nullptr, std::size_t bytes = 0) noexcept {
    add({epochs_.current(), memory, bytes, number, 0, kind});
  }
  void add_extent(std::uint32_t base, std::uint32_t count) noexcept {
    add({epochs_.current(), nullptr, 0, base, static_cast<std::uint16_t>(count), retired_kind::extent});
  }
  void add_memory(void* memory, std::size_t bytes) noexcept {
    if (memory != nullptr) add(retired_kind::memory, 0, memory, bytes);
  }
  /// Looks at the readers anew and hands what they left to `reuse`.
  void reclaim() noexcept;
  /// Gives readers time to leave, and reclaims.
  void wait() noexcept;
  /// Hands all that is left to `reuse`: no reader is left.
  void end() noexcept;
  /// The function that takes things back. It may add others.
  void set_reuse(void* owner, void (*reuse)(void* owner, const retired_thing& thing) noexcept) noexcept {
    owner_ = owner;
    reuse_ = reuse;
  }

  [[nodiscard]] std::size_t size() const noexcept { return things_.size() - first_; }
  /// Bytes of memory that waits.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// Blocks of extents that wait.
  [[nodiscard]] std::size_t blocks() const noexcept { return blocks_; }
  [[nodiscard]] epoch_table& epochs() noexcept { return epochs_; }
  [[nodiscard]] index_budget& budget() noexcept { return budget_; }

 private:
  void add(const retired_thing& thing) noexcept;
  [[nodiscard]] std::optional<retired_thing> take() noexcept;

  index_budget& budget_;
  epoch_table epochs_;
  void* owner_ = nullptr;
  void (*reuse_)(void* owner, const retired_thing& thing) noexcept = nullptr;
  std::uint64_t safe_ = 0;
  std::size_t first_ = 0;
  std::size_t bytes_ = 0;
  std::size_t blocks_ = 0;
  unsigned idle_waits_ = 0;  ///< that gave nothing back
  std::vector<retired_thing, budget_allocator<retired_thing>> things_;
};

}  // namespace cenote::indexer
