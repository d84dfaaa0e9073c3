// Handles of the C ABI: numbers in the shape of pointers. A call looks its handle up here and keeps the object while it
// runs; the object of a freed handle goes when the last call has left it. The table itself is never freed, so that a
// call on an old handle, up to the end of the process, is an error and touches no memory of the object.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "client/call_gate.hpp"
#include "client/fork_guard.hpp"
#include "core/error.hpp"

namespace cenote::client {

enum class handle_kind : std::uint8_t {
  session = 1,
  prefetch,
  rank_group,
  device,
  stream,
  event,
  indexer,
  indexer_reader
};

/// The object behind a handle. It belongs to the process that made it.
struct handle_object {
  handle_object() = default;
  handle_object(const handle_object&) = delete;
  handle_object& operator=(const handle_object&) = delete;
  virtual ~handle_object() = default;

  fork_guard process;
};

/// Where the table keeps one object.
struct alignas(64) handle_place {
  call_gate gate;
  std::unique_ptr<handle_object> object;  ///< of a gate that is open or has ended
};

/// Thread-safe, without a lock: also in the child of a fork.
class handle_table {
 public:
  /// The one of the process.
  static handle_table& instance() noexcept;

  struct reserved_handle {
    handle_place* place = nullptr;
    std::uintptr_t handle = 0;
  };
  /// An empty place, for publish(). Errors: limit_exceeded.
  result<reserved_handle> reserve(handle_kind kind);
  /// Lets the handle stand for `object`.
  static void publish(const reserved_handle& reserved, std::unique_ptr<handle_object> object) noexcept;

  /// The place of a handle for the time of a call, which ends with leave(); null: see refusal().
  handle_place* enter(std::uintptr_t handle, handle_kind kind) noexcept {
    const std::uintptr_t slot = handle >> slot_shift & slot_mask;
    if ((handle & kind_mask) != static_cast<std::uintptr_t>(kind) || slot >= chunk_places * chunks_.size()) {
      return nullptr;
    }
    chunk* const found = chunks_[slot / chunk_places].load(std::memory_order_acquire);
    if (found == nullptr) return nullptr;
    handle_place& place = (*found)[slot % chunk_places];
    const auto outcome = place.gate.enter(static_cast<std::uint32_t>(handle >> generation_shift));
    if (outcome == call_gate::gate_answer::admitted) [[likely]]
      return &place;
    if (outcome == call_gate::gate_answer::last) remove(place);
    return nullptr;
  }
  static void leave(handle_place& place) noexcept {
    if (place.gate.leave()) remove(place);
  }
  /// The reason for which enter() gave no place. Errors: closed: the handle was freed; invalid_argument: it is none of
  /// this kind.
  [[nodiscard]] static error refusal(std::uintptr_t handle, handle_kind kind);

 private:
  static constexpr std::size_t chunk_places = 256;
  using chunk = std::array<handle_place, chunk_places>;
  // A handle: generation << 32 | slot << 4 | kind. Zero, the null pointer, is none.
  static constexpr unsigned generation_shift = 32;
  static constexpr unsigned slot_shift = 4;
  static constexpr std::uintptr_t kind_mask = 15;
  static constexpr std::uintptr_t slot_mask = (std::uintptr_t{1} << 28) - 1;

  static void remove(handle_place& place) noexcept;
  chunk& chunk_at(std::size_t number);

  std::array<std::atomic<chunk*>, 4096> chunks_{};
  std::atomic<std::uint32_t> first_{0};  ///< slot with which the search for an empty one begins
};

static_assert(sizeof(std::uintptr_t) == sizeof(std::uint64_t));

}  // namespace cenote::client
