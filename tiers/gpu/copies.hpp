// Copies between a device and slabs of DRAM.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>

#include "device/device.hpp"

namespace cenote::gpu {

enum class copy_way : std::uint8_t { down, up };  ///< to DRAM, from DRAM

enum class copy_end : std::uint8_t {
  done,     ///< its bytes are there
  failed,   ///< it has ended; nobody knows what it has written
  refused,  ///< nothing was begun
  unknown,  ///< it may go on, and its end will not be heard of
};

/// Begins copies, a stream for each way, and has the device know the slabs that they read and write. Belongs to one
/// thread, which a driver may keep: see copy_thread.hpp.
class copies final {
 public:
  /// Called once, on a thread of the device or within begin().
  using then = std::function<void(copy_end)>;

  explicit copies(std::shared_ptr<device> on) : device_(std::move(on)) {}
  copies(const copies&) = delete;
  copies& operator=(const copies&) = delete;
  ~copies();

  /// `slabs`: memory of DRAM that the runs lie in. A device that does not take it copies through a stage.
  void begin(copy_way way, std::span<const copy_run> runs, std::span<const std::span<std::byte>> slabs, then ended);
  /// What lies in `memory` goes: nothing copies there any more.
  void forget(std::span<std::byte> memory) noexcept;

 private:
  void use(std::span<std::byte> slab);
  void unregister(std::span<std::byte> slab, bool is_registered) noexcept;

  struct known_slab {
    std::size_t bytes = 0;
    bool is_registered = false;
  };

  std::shared_ptr<device> device_;
  stream_ref down_, up_;  ///< made when they are needed
  std::map<std::byte*, known_slab> slabs_;
};

}  // namespace cenote::gpu
