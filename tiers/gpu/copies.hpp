// Copies between a device and slabs of DRAM.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "device/device.hpp"

namespace cenote::gpu {

enum class copy_way : std::uint8_t { down, up };  ///< to DRAM, from DRAM

/// What became of a copy.
struct copy_end {
  enum class kind : std::uint8_t {
    done,     ///< its bytes are there
    failed,   ///< it has ended; nobody knows what it has written
    refused,  ///< nothing was begun
    unknown,  ///< it may go on, and its end will not be heard of
  };
  kind how = kind::done;
  std::string why{};  ///< not done: what the device says
};

/// Begins copies, a stream for each way, and has the device know the slabs that they read and write. Belongs to one
/// thread, which a driver may keep: see copy_thread.hpp.
class copies final {
 public:
  /// Called once, on a thread of the device or within begin().
  using then = std::function<void(copy_end)>;
  /// Called once: the device did not take some host memory; copies go through its driver's stage there.
  using staged = std::function<void(const error&)>;

  static constexpr std::chrono::seconds patience{1};  ///< at the end, for each stream

  explicit copies(std::shared_ptr<device> on, staged told = {}) : device_(std::move(on)), staged_(std::move(told)) {}
  copies(const copies&) = delete;
  copies& operator=(const copies&) = delete;
  /// Waits for what is under way, `patience` at most; slabs that the device may still use stay registered.
  ~copies();

  /// `slabs`: memory of DRAM that the runs lie in; it is the device's to know from now on.
  void begin(copy_way way, std::span<const copy_run> runs, std::span<const std::span<std::byte>> slabs, then ended);
  /// Registers one slab that is not yet, which takes a driver a fifth of a second a GiB. False: there is none.
  bool register_one();
  [[nodiscard]] bool has_unregistered() const noexcept { return !unregistered_.empty(); }
  /// What lies in `memory` goes: nothing copies there any more.
  void forget(std::span<std::byte> memory) noexcept;

 private:
  struct known_slab {
    std::size_t bytes = 0;
    bool is_registered = false;
  };

  [[nodiscard]] bool are_idle();

  std::shared_ptr<device> device_;
  staged staged_;
  stream_ref down_, up_;  ///< made when they are needed
  std::map<std::byte*, known_slab> slabs_;
  std::deque<std::byte*> unregistered_;  ///< of those
};

}  // namespace cenote::gpu
