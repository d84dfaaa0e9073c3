// A GPU, or threads that behave like one: memory that processes share, and copies and kernels in streams.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "core/error.hpp"
#include "core/unique_fd.hpp"
#include "device/paged_layout.hpp"

namespace cenote {

/// Work in order: what is given to a stream begins when all that it was given before has ended. Destroying a stream
/// waits for nothing; its work still ends. Thread-safe as the device is.
class stream {
 public:
  stream() = default;
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;
  virtual ~stream() = default;
  /// What the device's own library calls it; for device::outside().
  [[nodiscard]] virtual void* native() const noexcept = 0;
};
using stream_ref = std::shared_ptr<stream>;

/// A point in a stream. May be dropped at any time.
class event {
 public:
  event() = default;
  event(const event&) = delete;
  event& operator=(const event&) = delete;
  virtual ~event() = default;
};
using event_ref = std::shared_ptr<event>;

enum class event_state : std::uint8_t {
  pending,  ///< nothing that the stream was given before may be read or reused
  done,     ///< what the stream was given before has ended, and whoever saw `done` sees its bytes
  failed,   ///< for good: nobody knows what the work has written
};

enum class standing : std::uint8_t {
  ready,
  away,  ///< an error that only a new device (or process) mends: nothing is accepted, no event becomes done any more
};

/// Memory of a device. Unmapped when the last copy of `mapping` goes, before which all work with it must have ended;
/// freed when no process maps it and no descriptor is left.
struct device_memory {
  std::shared_ptr<std::byte> mapping;
  std::uint64_t bytes = 0;  ///< may be more than was asked for
  unique_fd descriptor;     ///< for device::map, here or in another process; of mapped memory: none

  [[nodiscard]] std::span<std::byte> span() const noexcept { return {mapping.get(), bytes}; }
};

/// `bytes` bytes at `from` go to `to`; each may be host or device memory.
struct copy_run {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::uint64_t bytes = 0;
};

/// Thread-safe; nothing waits for the device. What cannot be begun is refused at once; what fails later fails the
/// events that are recorded after it. Streams, events and memory may outlive their device. Host memory that is copied
/// from must not change, and what is copied to must not be looked at, before an event after the copy is `done`.
class device {
 public:
  device() = default;
  device(const device&) = delete;
  device& operator=(const device&) = delete;
  /// Ends what is under way or fails it. No callback is running or comes afterwards.
  virtual ~device() = default;

  /// A device by its name; faults for tests stand behind that of a simulated one: see core/device_spec.hpp. Errors:
  /// invalid_argument, unsupported: no driver, one that is too old, or no such GPU.
  [[nodiscard]] static result<std::unique_ptr<device>> open(std::string_view which);

  /// New memory, zeroed. Errors: no_space, unsupported, system, closed (away).
  [[nodiscard]] virtual result<device_memory> make(std::uint64_t bytes) = 0;
  /// Memory that some process made, of at least so many bytes. Errors as above.
  [[nodiscard]] virtual result<device_memory> map(unique_fd descriptor, std::uint64_t bytes) = 0;

  /// Lets the device reach host memory by itself. Refused (unsupported, limit_exceeded; invalid_argument where it
  /// overlaps what is registered): copies work nevertheless, through a stage.
  [[nodiscard]] virtual result<void> register_host(std::span<std::byte> memory) = 0;
  /// Exactly what was registered; anything else is ignored. All work with it must have ended.
  virtual void unregister_host(std::span<std::byte> memory) noexcept = 0;

  [[nodiscard]] virtual result<stream_ref> make_stream() = 0;
  /// An engine's own stream, which must outlive the reference.
  [[nodiscard]] virtual result<stream_ref> outside(void* native) = 0;

  /// In any order among themselves. Errors: closed (away), system.
  [[nodiscard]] virtual result<void> copy(const stream_ref& on, std::span<const copy_run> runs) = 0;
  /// moves.blocks[i] ← those layers of page moves.pages[i]. The tensors lie in device or registered memory. Errors:
  /// invalid_argument (see paged_layout::check), closed (away), system.
  [[nodiscard]] virtual result<void> gather(const stream_ref& on, const paged_layout& layout, const move_list& moves,
                                            layer_range layers) = 0;
  /// The other way round.
  [[nodiscard]] virtual result<void> scatter(const stream_ref& on, const paged_layout& layout, const move_list& moves,
                                             layer_range layers) = 0;

  /// The point after all that the stream was given. Errors: closed (away), system.
  [[nodiscard]] virtual result<event_ref> record(const stream_ref& on) = 0;
  /// What the stream is given from now on begins after the event. Of another stream of the same device.
  [[nodiscard]] virtual result<void> wait(const stream_ref& on, const event_ref& event) = 0;

  [[nodiscard]] virtual event_state look(const event_ref& event) = 0;
  /// Calls once, from a thread of the device, which must not be kept: with success when the event is done, with
  /// `system` when it failed, with `closed` when the device goes before either.
  virtual void when(const event_ref& event, std::function<void(result<void>)> call) = 0;

  [[nodiscard]] virtual standing state() const noexcept = 0;
};

/// Waits for the event; for tests and for threads that have nothing else to do. Errors: as when() says, and
/// deadline_exceeded.
[[nodiscard]] result<void> await(device& on, const event_ref& event, std::chrono::nanoseconds limit);

}  // namespace cenote
