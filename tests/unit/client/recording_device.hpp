// A simulated device that remembers what was registered, and waits or refuses when a test wants it.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "tests/support/wrapped_sim.hpp"

namespace cenote::testing {

class recording_device final : public wrapped_sim {
 public:
  result<void> register_host(std::span<std::byte> memory) override {
    wait_while(holds_registration_);
    const std::lock_guard lock(mutex_);
    if (++calls_ == refused_) return fail(error_code::unsupported, "refused");
    pieces_.push_back(memory);
    return wrapped_sim::register_host(memory);
  }
  /// Reads the memory: it must be mapped still.
  void unregister_host(std::span<std::byte> memory) noexcept override {
    wait_while(holds_unregistration_);
    static_cast<void>(*static_cast<const volatile std::byte*>(memory.data()));
    wrapped_sim::unregister_host(memory);
  }

  /// The `number`-th registration is refused, counted from the first one.
  void refuse(std::uint32_t number) {
    const std::lock_guard lock(mutex_);
    refused_ = number;
  }
  void hold_registration() noexcept { holds_registration_.store(true); }
  void hold_unregistration() noexcept { holds_unregistration_.store(true); }
  /// Until a call waits.
  void await_held() const noexcept { waits_.wait(false); }
  void let_go() noexcept {
    for (auto* each : {&holds_registration_, &holds_unregistration_}) {
      each->store(false);
      each->notify_all();
    }
  }
  [[nodiscard]] std::vector<std::span<std::byte>> pieces() const {
    const std::lock_guard lock(mutex_);
    return pieces_;
  }

 private:
  void wait_while(const std::atomic<bool>& holds) noexcept {
    if (!holds.load()) return;
    waits_.store(true);
    waits_.notify_all();
    holds.wait(true);
  }

  mutable std::mutex mutex_;
  std::vector<std::span<std::byte>> pieces_;  ///< in the order of registration
  std::uint32_t calls_ = 0;
  std::uint32_t refused_ = 0;
  std::atomic<bool> holds_registration_{false};
  std::atomic<bool> holds_unregistration_{false};
  std::atomic<bool> waits_{false};
};

}  // namespace cenote::testing
