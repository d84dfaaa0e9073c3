// Copies between the caller's host memory and blocks on a device, for put and get.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "client/deadline_mutex.hpp"
#include "core/error.hpp"
#include "device/device.hpp"

namespace cenote::client {

/// What became of a copy. Without success and `begun`, nobody knows what the device has written, or still will.
struct copy_outcome {
  result<void> status;
  bool begun = false;
  event_ref last{};  ///< begun: comes after all of it; none: no event tells when it has ended
};

/// The device reads and writes a stage of the copier's own and never the caller's memory: a call that gives up leaves
/// nothing that could change it later. Thread-safe; one copy at a time. What the device may still use of the stage when
/// the copier goes is leaked.
class device_copier {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  static constexpr std::uint64_t stage_bytes = std::uint64_t{4} << 20;  ///< one copy's at a time; two are under way

  explicit device_copier(std::shared_ptr<device> owner);
  device_copier(const device_copier&) = delete;
  device_copier& operator=(const device_copier&) = delete;
  ~device_copier();

  /// Each run from host memory to the device. Success: written. Errors: deadline_exceeded, closed (the device is away),
  /// limit_exceeded (it still has all stages that there may be), system.
  [[nodiscard]] copy_outcome to_device(std::span<const copy_run> runs, time_point until);
  /// Each run from the device to host memory, which is written by this call alone. Errors as above; then some of the
  /// host memory may be written.
  [[nodiscard]] copy_outcome from_device(std::span<const copy_run> runs, time_point until);

  /// Calls that wait, and later ones, end with `closed`. Thread-safe.
  void stop() noexcept { is_stopped_.store(true, std::memory_order_release); }

  [[nodiscard]] const std::shared_ptr<device>& owner() const noexcept { return owner_; }
  /// Why nothing is possible any more, once the device is away: closed.
  [[nodiscard]] result<void> check() const;

 private:
  struct stage;
  struct flight;
  enum class direction : bool { to_device, from_device };

  copy_outcome copy(std::span<const copy_run> runs, direction way, time_point until);
  void fly(std::span<const copy_run> runs, direction way, time_point until, std::deque<flight>& under_way,
           copy_outcome& so_far);
  result<stage*> idle_stage();
  result<void> launch(flight& batch, direction way, copy_outcome& so_far);
  [[nodiscard]] result<void> await_batch(const event_ref& ended, time_point until) const;
  result<void> land(flight& batch, direction way, time_point until);
  [[nodiscard]] error reason(const error& why) const;

  std::shared_ptr<device> owner_;
  std::atomic<bool> is_stopped_{false};
  deadline_mutex turn_;  ///< all below
  stream_ref stream_;
  std::vector<std::unique_ptr<stage>> stages_;
};

}  // namespace cenote::client
