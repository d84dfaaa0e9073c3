// What a session does with a device that reads and writes its blocks.
#include <utility>

#include "client/session.hpp"

namespace cenote::client {

result<void> session::use_device(std::shared_ptr<device> which) {
  const auto scope = enter();
  if (!scope) return std::unexpected(scope.error());
  {
    const std::lock_guard lock(device_mutex_);
    if (device_ == which) return {};
    if (device_) return fail(error_code::invalid_argument, "the session uses another device already");
    device_ = which;
  }
  // Whoever finds this process dead must know it before the device can write.
  memory_.header().device_writes.store(1, std::memory_order_seq_cst);
  slabs_.register_with(std::move(which), [this] { drop_retired_slabs(0); });
  return {};
}

result<void> session::check_device(const device_stream& where) {
  const std::lock_guard lock(device_mutex_);
  if (device_ && device_ == where.owner) return {};
  return fail(error_code::invalid_argument, device_ ? "the stream is of a device that this session does not use"
                                                    : "this session uses no device; say use_device first");
}

result<void> session::release_after(std::span<const std::uint32_t> slots, const device_stream& where) {
  const auto scope = enter();
  if (!scope) return std::unexpected(scope.error());
  if (auto ok = check_device(where); !ok) return ok;
  if (auto ok = check_held(slots); !ok) return ok;
  if (const std::size_t free = ending_.mark(slots); free != slots.size()) return ends_already(slots[free]);
  const auto begun = events_.after(where, device_events::runs_on::device_thread,
                                   [this, kept = std::vector(slots.begin(), slots.end())](const result<void>&) {
                                     end_pins(kept);  // whatever became of the reads: nothing reads any more
                                   });
  if (!begun) ending_.unmark(slots);
  return begun;
}

/// The marks go while the slots are still nobody else's, and the pins before them: whoever releases one of them
/// meanwhile finds it ending, or not held.
void session::end_pins(std::span<const std::uint32_t> slots) noexcept {
  for (const std::uint32_t slot : slots) memory_.pin(slot).store(0, std::memory_order_release);
  ending_.unmark(slots);
  lookup_.unpin_slots(slots);
}

result<void> session::commit_after(std::span<const reserved_block> blocks, const device_stream& where) {
  const auto scope = enter();
  if (!scope) return std::unexpected(scope.error());
  if (auto ok = check_device(where); !ok) return ok;
  return events_.after(where, device_events::runs_on::own_thread,
                       [this, kept = std::vector(blocks.begin(), blocks.end())](const result<void>& outcome) {
                         commit_written(kept, outcome);
                       });
}

/// On the events' thread. After a failure nobody knows what is written, or will be: the blocks stay reserved, and at
/// the end of the session the node sets them aside.
void session::commit_written(std::span<const reserved_block> blocks, const result<void>& outcome) {
  const result<std::uint64_t> stored =
      outcome ? finish_parts(blocks) : result<std::uint64_t>(std::unexpected(outcome.error()));
  const std::lock_guard lock(async_mutex_);
  note_async(stored);
}

}  // namespace cenote::client
