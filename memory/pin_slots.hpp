// The numbers of a session's free pin slots. Pins are hazard pointers (Michael 2004).
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace cenote::memory {

/// Hands out slot numbers, low ones first, so that the owner's scan stays short. Thread-safe.
class pin_slots {
 public:
  explicit pin_slots(std::uint32_t count);

  /// Takes up to out.size() slots, all or as many as are free; returns how many.
  std::size_t take(std::span<std::uint32_t> out) noexcept;
  /// Gives slots back. Their words in session memory are clear by now.
  void give_back(std::span<const std::uint32_t> slots) noexcept;

  [[nodiscard]] std::uint32_t total() const noexcept { return count_; }
  [[nodiscard]] std::uint32_t in_use() const noexcept;
  /// One more than the highest slot ever handed out.
  [[nodiscard]] std::uint32_t high_water() const noexcept;

 private:
  mutable std::mutex mutex_;
  std::vector<std::uint64_t> free_;  ///< one bit a slot
  std::size_t first_word_ = 0;       ///< no free slot in a word before this one
  std::uint32_t count_;
  std::uint32_t used_ = 0;
  std::uint32_t high_water_ = 0;
};

}  // namespace cenote::memory
