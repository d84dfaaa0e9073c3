// What a session does with a device that reads and writes its blocks.
#include <utility>
#include <vector>

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
  maps_all_.store(true, std::memory_order_relaxed);
  slabs_.register_with(std::move(which), [this] { return look_after_slabs(); });
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

// ---------------------------------------------------------------------------------------------- blocks on a device

/// When the device has ended a copy that its call did not wait for. If nobody tells, the session's memory stays for
/// good.
void session::await_end(const event_ref& last, device_events::runs_on thread, device_events::task then) {
  unended_.fetch_add(1, std::memory_order_acq_rel);
  if (!last) return;
  static_cast<void>(
      events_.when(*copier_->owner(), last, thread, [this, then = std::move(then)](const result<void>& outcome) {
        then(outcome);
        unended_.fetch_sub(1, std::memory_order_acq_rel);
      }));
}

/// From host memory to blocks of this session. After a failure `give_back` is called once the device writes none of
/// them any more; blocks of which nobody knows that stay this session's until it has ended, and then the node sets them
/// aside.
result<void> session::write_to_home(std::span<const copy_run> runs, std::function<void()> give_back) {
  const copy_outcome copied = copier_->to_device(runs, deadline());
  if (copied.status) return {};
  if (!copied.begun) {
    give_back();
    return copied.status;
  }
  may_be_written_.fetch_add(1, std::memory_order_acq_rel);
  await_end(copied.last, device_events::runs_on::own_thread,
            [this, give_back = std::move(give_back)](const result<void>& outcome) {
              if (!outcome) return;
              give_back();
              may_be_written_.fetch_sub(1, std::memory_order_acq_rel);
            });
  return copied.status;
}

/// From pinned blocks to host memory. After a failure it has ended the pins, or left them to the end of the copy.
result<void> session::read_from_home(std::span<const copy_run> runs, std::span<const memory::pin> pinned) {
  const copy_outcome copied = copier_->from_device(runs, deadline());
  if (copied.status) return {};
  if (!copied.begun) {
    lookup_.unpin(pinned);
    return copied.status;
  }
  std::vector<std::uint32_t> slots;
  for (const memory::pin& each : pinned) slots.push_back(each.slot);
  static_cast<void>(ending_.mark(slots));  // nobody else knows them, but anybody may say a number
  await_end(copied.last, device_events::runs_on::device_thread,
            [this, slots](const result<void>&) { end_pins(slots); });
  return copied.status;
}

}  // namespace cenote::client
