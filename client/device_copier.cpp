#include "client/device_copier.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <utility>

#include "core/bulk_copy.hpp"

namespace cenote::client {

namespace {

constexpr std::size_t at_a_time = 2;
constexpr std::size_t most_stages = 16;  // those that a device never gave back among them

using host_memory = std::unique_ptr<std::byte, void (*)(std::byte*)>;

result<host_memory> new_host_memory() {
  constexpr std::uint64_t bytes = device_copier::stage_bytes;
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return fail_errno("mmap", "a stage for copies to a device");
  // Else the first write after a fork would move a page away from what the device knows.
  ::madvise(at, bytes, MADV_DONTFORK);
  return host_memory(static_cast<std::byte*>(at),
                     [](std::byte* first) { ::munmap(first, device_copier::stage_bytes); });
}

/// Cuts runs in pieces.
class cutter {
 public:
  explicit cutter(std::span<const copy_run> runs) noexcept : runs_(runs) { skip_empty(); }
  [[nodiscard]] bool at_end() const noexcept { return runs_.empty(); }
  /// At most so many bytes, more than 0.
  [[nodiscard]] copy_run next(std::uint64_t most) noexcept {
    const copy_run& run = runs_.front();
    const copy_run piece{run.to + done_, run.from + done_, std::min(most, run.bytes - done_)};
    done_ += piece.bytes;
    skip_empty();
    return piece;
  }

 private:
  void skip_empty() noexcept {
    while (!runs_.empty() && done_ == runs_.front().bytes) {
      runs_ = runs_.subspan(1);
      done_ = 0;
    }
  }

  std::span<const copy_run> runs_;
  std::uint64_t done_ = 0;  // of the first
};

}  // namespace

struct device_copier::stage {
  host_memory memory;
  bool is_registered = false;
  bool is_flying = false;   ///< the call under way has not landed it yet
  bool is_lent = false;     ///< the device may use it
  event_ref returned = {};  ///< lent: comes when it does not any more; none: nobody will tell
};

/// What is copied through one stage at a time.
struct device_copier::flight {
  stage* through = nullptr;
  std::vector<copy_run> pieces = {};  ///< as the caller sees them, in the stage back to back
  event_ref ended = {};
};

device_copier::device_copier(std::shared_ptr<device> owner) : owner_(std::move(owner)) {}

device_copier::~device_copier() {
  for (auto& each : stages_) {
    if (each->is_lent && each->returned && owner_->look(each->returned) == event_state::done) each->is_lent = false;
    if (each->is_lent) {
      static_cast<void>(each->memory.release());
    } else if (each->is_registered) {
      owner_->unregister_host({each->memory.get(), stage_bytes});
    }
  }
}

result<void> device_copier::check() const {
  if (owner_->state() == standing::ready) return {};
  return fail(error_code::closed, "the device of this session failed; attach to host memory");
}

error device_copier::reason(const error& why) const {
  if (const auto ready = check(); !ready) return ready.error();
  if (why.code() == error_code::deadline_exceeded) {
    return {why.code(), "the device did not end a copy before the deadline; nobody knows what it has written"};
  }
  return why.in("a copy by the device");
}

/// One that the device does not use. What it never gave back stays as it is: there is only so much of that.
result<device_copier::stage*> device_copier::idle_stage() {
  for (const auto& each : stages_) {
    if (each->is_flying) continue;  // the device may be done with it, but nobody has taken what it brought
    if (each->is_lent && each->returned && owner_->look(each->returned) == event_state::done) each->is_lent = false;
    if (!each->is_lent) return each.get();
  }
  if (stages_.size() == most_stages) {
    return fail(error_code::limit_exceeded, "the device gave back none of the memory that copies to it go through");
  }
  auto memory = new_host_memory();
  if (!memory) return std::unexpected(memory.error());
  stage& made = *stages_.emplace_back(std::make_unique<stage>(stage{.memory = std::move(*memory)}));
  made.is_registered = owner_->register_host({made.memory.get(), stage_bytes}).has_value();
  return &made;
}

/// Gives a batch to the device. `so_far.begun` when it may have taken some of it.
result<void> device_copier::launch(flight& batch, direction way, copy_outcome& so_far) {
  stage& through = *batch.through;
  std::vector<copy_run> runs;
  runs.reserve(batch.pieces.size());
  std::byte* at = through.memory.get();
  for (const copy_run& piece : batch.pieces) {
    if (way == direction::to_device) {
      bulk_copy(at, piece.from, piece.bytes, copy_direction::to_blocks);
      runs.push_back({piece.to, at, piece.bytes});
    } else {
      runs.push_back({at, piece.from, piece.bytes});
    }
    at += piece.bytes;
  }
  if (auto ok = check(); !ok) return ok;
  // Of several runs a device may have begun the first before it refuses: its stream tells when that has ended.
  so_far.begun = true;
  so_far.last.reset();
  through.is_lent = true;
  through.returned.reset();
  const auto copied = owner_->copy(stream_, runs);
  auto event = owner_->record(stream_);
  if (!event) return std::unexpected(event.error());
  batch.ended = *event;
  through.returned = *event;
  so_far.last = std::move(*event);
  return copied;
}

/// Who closes the session does not wait for a device that hangs.
result<void> device_copier::await_batch(const event_ref& ended, time_point until) const {
  constexpr std::chrono::milliseconds look_around{50};
  for (;;) {
    const auto left = std::max<std::chrono::nanoseconds>(until - std::chrono::steady_clock::now(), {});
    const auto done = await(*owner_, ended, std::min<std::chrono::nanoseconds>(left, look_around));
    if (done || done.error().code() != error_code::deadline_exceeded || left <= look_around) return done;
    if (is_stopped_.load(std::memory_order_acquire)) return fail(error_code::closed, "the session is closed");
  }
}

/// Waits for a batch, and takes what it has brought.
result<void> device_copier::land(flight& batch, direction way, time_point until) {
  stage& through = *batch.through;
  if (auto done = await_batch(batch.ended, until); !done) return done;
  through.is_lent = false;
  if (way == direction::to_device) return {};
  const std::byte* at = through.memory.get();
  for (const copy_run& piece : batch.pieces) {
    bulk_copy(piece.to, at, piece.bytes, copy_direction::from_blocks);
    at += piece.bytes;
  }
  return {};
}

copy_outcome device_copier::copy(std::span<const copy_run> runs, direction way, time_point until) {
  const std::unique_lock<deadline_mutex> turn(turn_, until);
  if (is_stopped_.load(std::memory_order_acquire)) return {fail(error_code::closed, "the session is closed")};
  if (!turn.owns_lock()) {
    return {fail(error_code::deadline_exceeded, "another call of this session copied until the deadline")};
  }
  if (auto ok = check(); !ok) return {ok};
  if (!stream_) {
    auto made = owner_->make_stream();
    if (!made) return {std::unexpected(reason(made.error()))};
    stream_ = std::move(*made);
  }
  copy_outcome so_far;
  std::deque<flight> under_way;
  try {
    fly(runs, way, until, under_way, so_far);
  } catch (const std::bad_alloc&) {  // what was begun is known all the same
    so_far.status = fail(error_code::system, "no memory for a copy by the device");
  }
  for (const flight& each : under_way) each.through->is_flying = false;  // given up: free when the device says so
  if (!so_far.status) so_far.status = std::unexpected(reason(so_far.status.error()));
  return so_far;
}

/// Two batches are under way at a time; each is landed in its turn.
void device_copier::fly(std::span<const copy_run> runs, direction way, time_point until, std::deque<flight>& under_way,
                        copy_outcome& so_far) {
  const auto land_first = [&] {
    so_far.status = land(under_way.front(), way, until);
    under_way.front().through->is_flying = false;
    under_way.pop_front();
  };
  for (cutter rest(runs); so_far.status && !rest.at_end();) {
    if (under_way.size() == at_a_time) land_first();
    if (!so_far.status) return;
    const auto through = idle_stage();
    if (!through) {
      so_far.status = std::unexpected(through.error());
      return;
    }
    flight& batch = under_way.emplace_back(flight{.through = *through});
    batch.through->is_flying = true;
    for (std::uint64_t room = stage_bytes; room != 0 && !rest.at_end(); room -= batch.pieces.back().bytes) {
      batch.pieces.push_back(rest.next(room));
    }
    so_far.status = launch(batch, way, so_far);
  }
  while (so_far.status && !under_way.empty()) land_first();
}

copy_outcome device_copier::to_device(std::span<const copy_run> runs, time_point until) {
  return copy(runs, direction::to_device, until);
}

copy_outcome device_copier::from_device(std::span<const copy_run> runs, time_point until) {
  return copy(runs, direction::from_device, until);
}

}  // namespace cenote::client
