// The thread that talks to a device's driver about DRAM's memory: a driver that does not return keeps nobody else.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "device/device.hpp"
#include "tiers/gpu/copies.hpp"

namespace cenote::gpu {

/// Begins a device's copies on a thread of its own. Thread-safe; nobody waits for the driver except where said.
class copy_thread final {
 public:
  static constexpr std::chrono::seconds patience{3};  ///< longer than copies' own

  copy_thread();
  copy_thread(const copy_thread&) = delete;
  copy_thread& operator=(const copy_thread&) = delete;
  /// As close().
  ~copy_thread() { close(); }

  /// From now on copies are this device's. `told` is called on the thread.
  void open(std::shared_ptr<device> on, copies::staged told = {});
  /// See copies::begin(). Before open() and after close() they are refused; slabs are registered when no copy
  /// waits to be begun.
  void begin(copy_way way, std::vector<copy_run> runs, std::vector<std::span<std::byte>> slabs,
             const copies::then& ended);
  /// See copies::forget(). Waits until the driver has let go of the memory, `patience` at most.
  void forget(std::span<std::byte> memory);
  /// Lets go of the device; of what was not begun yet nobody hears. Waits `patience` at most for a driver that does not
  /// return: then the thread stays behind with the device and the copy that it was given last.
  void close() noexcept;

 private:
  struct state;
  static void run(const std::shared_ptr<state>& shared);
  [[nodiscard]] bool post(std::function<void(state&)> task);

  std::shared_ptr<state> shared_;
  std::thread thread_;
};

}  // namespace cenote::gpu
