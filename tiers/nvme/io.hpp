// Transfers between memory and one path of the NVMe tier: what the engines, the fake of the tests and the store agree
// on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "core/error.hpp"
#include "tiers/steps.hpp"

namespace cenote::nvme {

/// Offsets, lengths and addresses of transfers are multiples of this: what O_DIRECT asks for on every device in use.
inline constexpr std::uint64_t sector_bytes = 4096;

enum class io_kind : std::uint8_t { read, write };

/// One transfer. Its memory belongs to the engine until its completion came, also when the process that asked is gone.
struct io_request {
  io_kind kind = io_kind::read;
  std::uint64_t offset = 0;  ///< bytes from the start of the path's data file
  std::span<std::byte> memory;
  std::uint64_t tag = 0;  ///< comes back with the completion
  bool checksum = true;   ///< take the XXH3-64 of `memory`: before it is written, after it was read
};

/// The whole of `memory` was transferred, or `error` says why not: a short transfer is never a success.
struct io_completion {
  std::uint64_t tag = 0;
  int error = 0;               ///< 0, or errno: EIO, ENOSPC, ECANCELED after stop()
  std::uint64_t checksum = 0;  ///< when asked for and without error
};

struct engine_options {
  unsigned queue_depth = 32;  ///< transfers at the device at a time, at least 1
  /// Of an exception on a thread of the engine, the callback's among them. It goes on; no completion is lost, and what
  /// the callback threw at comes again.
  exception_callback on_exception = {};
  /// The reason for threads where io_uring was to be tried first.
  std::function<void(const error&)> on_refusal = {};
};

/// Moves blocks to and from one path. Every request gets exactly one completion, in any order; reads go before writes
/// that still wait. Completions come in batches on a thread of the engine, and the callback must not block.
class io_engine {
 public:
  using callback = std::function<void(std::span<const io_completion>)>;

  io_engine() = default;
  io_engine(const io_engine&) = delete;
  io_engine& operator=(const io_engine&) = delete;
  virtual ~io_engine() = default;

  /// Thread-safe; never blocks and never fails: what is wrong with a request is said by its completion. The caller
  /// bounds the bytes in flight.
  virtual void submit(std::span<const io_request> batch) = 0;
  /// Says that transfers will come from and go to `memory`, which an engine may use to make them cheaper; false when it
  /// does not, which harms nothing. Takes up to 0.3 s a GiB, in which no transfer may start. Thread-safe.
  virtual bool register_memory(std::span<std::byte> memory) {
    (void)memory;
    return false;
  }
  /// Undoes register_memory of all that lies inside `memory`: to be called before the memory goes. Transfers under way
  /// are not disturbed. Thread-safe.
  virtual void unregister_memory(std::span<std::byte> memory) { (void)memory; }
  /// Thread-safe.
  [[nodiscard]] virtual std::uint64_t registered_bytes() const noexcept { return 0; }
  /// Cancels what has not reached the device, waits for the rest, and returns when no callback comes any more.
  virtual void stop() noexcept = 0;
  /// How it talks to the device ("io_uring"), for logs and status. Thread-safe.
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
};

}  // namespace cenote::nvme
