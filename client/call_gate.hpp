// A gate in front of one object: counts the calls that use it, and admits further ones or does not. One word, no lock.
//
//   empty ──reserve()──► filled ──open()──► open ──end()──► ended
//     ▲                                                       │ the last call leaves
//     └───────────────── renew(): next generation ◄───────── filled
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

namespace cenote::client {

/// Belongs to memory that is never freed, so that a call on a thing that is gone reads nothing else. A call with an old
/// generation is counted for a moment, and refused.
class call_gate {
 public:
  /// Takes an empty gate; its generation.
  [[nodiscard]] std::optional<std::uint32_t> reserve() noexcept {
    std::uint64_t before = word_.load(std::memory_order_relaxed);
    if (state_of(before) != state::empty) return std::nullopt;
    if (!word_.compare_exchange_strong(before, before + one_state, std::memory_order_acquire)) return std::nullopt;
    return generation_of(before);
  }

  /// Admits calls. Once after each reserve().
  void open() noexcept { word_.fetch_add(one_state, std::memory_order_release); }

  /// The answer to a call. `last`: it is not admitted, and as in leave() it was the last one.
  enum class gate_answer : std::uint8_t { admitted, refused, last };

  /// Admits one call, which must leave(). Sequentially consistent: a close sees the call, or the call sees the close.
  [[nodiscard]] gate_answer enter(std::uint32_t generation) noexcept {
    const std::uint64_t before = word_.fetch_add(1, std::memory_order_seq_cst);
    if (generation_of(before) == generation && state_of(before) == state::open) return gate_answer::admitted;
    return leave() ? gate_answer::last : gate_answer::refused;
  }

  /// Admits no call from now on; false: another call did that before. The caller is within a call.
  [[nodiscard]] bool end() noexcept {
    return state_of(word_.fetch_or(one_state, std::memory_order_seq_cst)) == state::open;
  }

  /// True: this call was the last one of what has ended. It frees that, and then calls renew().
  [[nodiscard]] bool leave() noexcept {
    std::uint64_t now = word_.fetch_sub(1, std::memory_order_acq_rel) - 1;
    if (state_of(now) != state::ended || calls_of(now) != 0) return false;
    return word_.compare_exchange_strong(now, now - one_state * 2, std::memory_order_acq_rel);
  }

  /// Makes the gate empty, for what comes with the next generation.
  void renew() noexcept { word_.fetch_add(one_generation - one_state, std::memory_order_release); }

  /// Calls that are under way.
  [[nodiscard]] std::uint32_t calls() const noexcept { return calls_of(word_.load(std::memory_order_seq_cst)); }

 private:
  enum class state : std::uint8_t { empty, filled, open, ended };
  static constexpr std::uint64_t one_state = std::uint64_t{1} << 30;
  static constexpr std::uint64_t one_generation = std::uint64_t{1} << 32;
  static state state_of(std::uint64_t word) noexcept { return static_cast<state>(word / one_state % 4); }
  static std::uint32_t calls_of(std::uint64_t word) noexcept { return static_cast<std::uint32_t>(word % one_state); }
  static std::uint32_t generation_of(std::uint64_t word) noexcept { return static_cast<std::uint32_t>(word >> 32); }

  std::atomic<std::uint64_t> word_{0};  ///< generation: 32 bits, state: 2, calls: 30
};

}  // namespace cenote::client
