#include "tiers/nvme/uring_engine.hpp"

#include <liburing.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/checksum.hpp"
#include "core/unique_fd.hpp"
#include "tiers/nvme/request_queue.hpp"

namespace cenote::nvme {

namespace {

/// With room for so many operations and a wake-up.
result<void> begin_ring(io_uring& ring, std::size_t operations) {
  const auto entries = static_cast<unsigned>(operations) + 1;
  // Completions are worked on only when this thread asks for them; kernels before 6.1 do not know that.
  int failed = io_uring_queue_init(entries, &ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
  if (failed == -EINVAL) failed = io_uring_queue_init(entries, &ring, 0);
  if (failed == -EPERM || failed == -ENOSYS || failed == -EACCES) {
    return fail(error_code::unsupported, std::string("io_uring_setup: ") + std::strerror(-failed) +
                                             "; it needs kernel.io_uring_disabled=0 and a seccomp profile that has it");
  }
  if (failed < 0) return fail_errno(-failed, "io_uring_setup", "");
  return {};
}

constexpr unsigned most_depth = 1024;
constexpr unsigned most_attempts = 1000;                          // of one transfer that the kernel asks to try again
constexpr std::size_t most_parts = 16;                            // requests that go to the device as one
constexpr std::uint64_t small_bytes = std::uint64_t{256} << 10;   // smaller requests are joined,
constexpr std::uint64_t joined_bytes = std::uint64_t{1} << 20;    // up to this
constexpr std::uint64_t hashed_bytes = std::uint64_t{512} << 10;  // after so much hashing the device gets its work
constexpr std::size_t most_length = std::size_t{1} << 30;         // of one system call; the rest follows
constexpr std::uint64_t wake_tag = ~std::uint64_t{1};             // liburing keeps ~0 for itself

// A transfer at the device: requests that are neighbours in the file.
struct operation {
  io_kind kind = io_kind::read;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t moved = 0;
  unsigned attempts = 0;
  std::size_t count = 0;
  std::array<io_request, most_parts> parts;
  std::array<std::uint64_t, most_parts> checksums;
  std::array<iovec, most_parts> vectors;

  void add(const io_request& request) {
    if (count == 0) offset = request.offset;
    kind = request.kind;
    bytes += request.memory.size();
    checksums[count] = 0;
    parts[count++] = request;
  }

  [[nodiscard]] bool takes(const io_request& request) const {
    return count < most_parts && request.kind == kind && request.offset == offset + bytes &&
           parts[0].memory.size() < small_bytes && request.memory.size() < small_bytes &&
           bytes + request.memory.size() <= joined_bytes;
  }

  // Fills `vectors` with the memory that is still to be transferred; says how many there are.
  unsigned gather() {
    std::uint64_t skip = moved;
    unsigned used = 0;
    for (const io_request& part : std::span(parts.data(), count)) {
      const std::uint64_t skipped = std::min<std::uint64_t>(skip, part.memory.size());
      skip -= skipped;
      const auto rest = part.memory.subspan(skipped);
      if (rest.empty()) continue;
      if (used != 0 && static_cast<std::byte*>(vectors[used - 1].iov_base) + vectors[used - 1].iov_len == rest.data()) {
        vectors[used - 1].iov_len += rest.size();
      } else {
        vectors[used++] = {rest.data(), rest.size()};
      }
    }
    return used;
  }
};

// Which memory the ring has pinned. The table itself is the kernel's.
class pinned_memory {
 public:
  static constexpr unsigned places = 1U << 14;  // the most that the kernel takes

  // Where the table has room for `memory`; nothing when it is full or some of the memory is in it already.
  [[nodiscard]] std::optional<unsigned> add(std::span<std::byte> memory) {
    const auto first = reinterpret_cast<std::uintptr_t>(memory.data());
    const auto next = pieces_.lower_bound(first + memory.size());
    if (next != pieces_.begin() && std::prev(next)->second.end > first) return std::nullopt;
    const auto place = std::ranges::find(used_, false);
    if (place == used_.end()) return std::nullopt;
    *place = true;
    const auto index = static_cast<unsigned>(place - used_.begin());
    pieces_.emplace(first, piece{first + memory.size(), index});
    bytes_ += memory.size();
    return index;
  }

  // The place of a piece inside `memory`, which is free now; nothing when there is none (any more).
  [[nodiscard]] std::optional<unsigned> remove_one(std::span<std::byte> memory) {
    const auto first = reinterpret_cast<std::uintptr_t>(memory.data());
    const auto found = pieces_.lower_bound(first);
    if (found == pieces_.end() || found->second.end > first + memory.size()) return std::nullopt;
    const unsigned index = found->second.index;
    used_[index] = false;
    bytes_ -= found->second.end - found->first;
    pieces_.erase(found);
    return index;
  }

  // Thread-safe, unlike the rest.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

  // The place of the piece that `memory` lies in.
  [[nodiscard]] std::optional<unsigned> find(const iovec& memory) const {
    const auto first = reinterpret_cast<std::uintptr_t>(memory.iov_base);
    const auto after = pieces_.upper_bound(first);
    if (after == pieces_.begin() || std::prev(after)->second.end < first + memory.iov_len) return std::nullopt;
    return std::prev(after)->second.index;
  }

 private:
  struct piece {
    std::uintptr_t end;
    unsigned index;
  };
  std::map<std::uintptr_t, piece> pieces_;  // by their first address
  std::vector<bool> used_ = std::vector<bool>(places);
  std::atomic<std::uint64_t> bytes_ = 0;
};

}  // namespace

class uring_engine::loop {
 public:
  loop(const path_file& file, engine_options options, callback done)
      : descriptor_(file.descriptor()),
        file_bytes_(file.bytes()),
        done_(std::move(done)),
        on_exception_(std::move(options.on_exception)),
        operations_(std::clamp(options.queue_depth, 1U, most_depth)) {
    for (std::size_t i = operations_.size(); i-- > 0;) free_.push_back(i);
  }
  loop(const loop&) = delete;
  loop& operator=(const loop&) = delete;
  ~loop() { stop(); }

  result<void> start();
  void submit(std::span<const io_request> batch);
  void stop() noexcept;
  // Runs `task` on the loop's thread and returns what it returned; false when the loop has ended.
  bool call(std::function<bool()> task);
  bool pin(std::span<std::byte> memory);
  void unpin(std::span<std::byte> memory);
  [[nodiscard]] std::uint64_t pinned_bytes() const noexcept { return pinned_.bytes(); }

 private:
  void run(std::promise<result<void>>& ready);
  result<void> set_up();
  void tear_down();
  bool work();
  bool take_inbox();
  bool end_if_idle();
  void cancel_waiting();
  void issue();
  void begin(std::size_t slot, const io_request& first, bool join);
  void prepare(std::size_t slot);
  void arm_wake();
  io_uring_sqe* next_sqe();
  void enter(unsigned wait_for);
  void reap();
  void transferred(std::size_t slot, int moved);
  void finish(std::size_t slot, int failed);
  bool try_alone(const operation& op) noexcept;
  void complete(const io_completion& ended, std::span<const std::byte> unhashed = {});
  void deliver();
  void signal();

  const int descriptor_;
  const std::uint64_t file_bytes_;
  const callback done_;
  const exception_callback on_exception_;
  unique_fd wake_;
  std::thread thread_;
  std::thread::id thread_id_;  // set before start() returns
  std::mutex stop_mutex_;

  std::mutex mutex_;  // the inbox
  request_queue arrived_;
  std::size_t arrivals_ = 0;  // since the loop looked
  std::vector<std::packaged_task<bool()>> tasks_;
  bool signalled_ = false;
  bool stopping_ = false;
  bool ended_ = false;

  // The thread's own.
  io_uring ring_{};
  bool file_registered_ = false;
  bool can_pin_ = false;
  pinned_memory pinned_;
  request_queue waiting_;
  request_queue alone_;  // parts of a transfer that failed: each is tried without its neighbours
  std::vector<operation> operations_;
  std::vector<std::size_t> free_;
  std::uint64_t wake_count_ = 0;
  std::vector<io_completion> completions_;
  std::vector<std::span<const std::byte>> unhashed_;  // beside completions_: what was read, where a checksum is due
  std::size_t delivered_ = 0;                         // of completions_
  std::size_t outstanding_ = 0;                       // requests that were not delivered
};

// ------------------------------------------------------------------------------------------- other threads

result<void> uring_engine::loop::start() {
  wake_.reset(::eventfd(0, EFD_CLOEXEC));
  if (!wake_) return fail_errno("eventfd");
  std::promise<result<void>> ready;
  auto outcome = ready.get_future();
  try {
    thread_ = std::thread([&] { run(ready); });
  } catch (const std::system_error& failed) {
    return fail(error_code::system, std::string("start a thread for transfers: ") + failed.what());
  }
  return outcome.get();
}

void uring_engine::loop::submit(std::span<const io_request> batch) {
  const std::lock_guard lock(mutex_);
  if (ended_) return;
  arrived_.push(batch);
  arrivals_ += batch.size();
  signal();
}

void uring_engine::loop::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    if (!ended_ && wake_) signal();
  }
  const std::lock_guard lock(stop_mutex_);
  if (thread_.joinable()) thread_.join();
}

bool uring_engine::loop::call(std::function<bool()> task) {
  if (std::this_thread::get_id() == thread_id_) return task();
  std::packaged_task<bool()> packed(std::move(task));
  auto answer = packed.get_future();
  {
    const std::lock_guard lock(mutex_);
    if (ended_) return false;
    tasks_.push_back(std::move(packed));
    signal();
  }
  return answer.get();
}

// Under the mutex. The loop looks at the inbox before it sleeps, and needs no signal from itself.
void uring_engine::loop::signal() {
  if (signalled_ || std::this_thread::get_id() == thread_id_) return;
  const std::uint64_t one = 1;
  signalled_ = ::write(wake_.get(), &one, sizeof one) == sizeof one;
}

// -------------------------------------------------------------------------------------------- set up

void uring_engine::loop::run(std::promise<result<void>>& ready) {
  ::pthread_setname_np(::pthread_self(), "cenote-nvme");
  thread_id_ = std::this_thread::get_id();
  result<void> up;
  try {
    up = set_up();
  } catch (const std::exception& thrown) {
    up = fail(error_code::internal, thrown.what());
  }
  const bool works = up.has_value();
  if (!works) {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ready.set_value(std::move(up));
  if (!works) return;
  run_steps([this] { return work(); }, on_exception_);
  tear_down();
}

result<void> uring_engine::loop::set_up() {
  if (auto begun = begin_ring(ring_, operations_.size()); !begun) return begun;
  file_registered_ = io_uring_register_files(&ring_, &descriptor_, 1) == 0;
  can_pin_ = io_uring_register_buffers_sparse(&ring_, pinned_memory::places) == 0;
  arm_wake();
  return {};
}

void uring_engine::loop::tear_down() {
  // The ring itself goes away some time later, and would keep the file open and locked until then.
  if (file_registered_) io_uring_unregister_files(&ring_);
  io_uring_queue_exit(&ring_);
}

bool uring_engine::loop::pin(std::span<std::byte> memory) {
  if (!can_pin_ || memory.empty() || memory.size() > most_registered) return false;
  const auto place = pinned_.add(memory);
  if (!place) return false;
  const iovec vector{memory.data(), memory.size()};
  const __u64 tag = 0;
  const bool taken = io_uring_register_buffers_update_tag(&ring_, *place, &vector, &tag, 1) == 1;
  if (!taken) (void)pinned_.remove_one(memory);
  return taken;
}

void uring_engine::loop::unpin(std::span<std::byte> memory) {
  while (const auto place = pinned_.remove_one(memory)) {
    const iovec nothing{};
    const __u64 tag = 0;
    (void)io_uring_register_buffers_update_tag(&ring_, *place, &nothing, &tag, 1);
  }
}

// --------------------------------------------------------------------------------------------- the loop

// One turn; false after the last.
bool uring_engine::loop::work() {
  const bool stopping = take_inbox();
  if (stopping) cancel_waiting();
  issue();
  if (!completions_.empty()) {
    enter(0);  // the device works while the checksums are taken
    deliver();
    return true;  // the callback may have submitted more
  }
  if (stopping && free_.size() == operations_.size() && end_if_idle()) return false;
  enter(1);
  reap();
  return true;
}

bool uring_engine::loop::take_inbox() {
  std::vector<std::packaged_task<bool()>> tasks;
  bool stopping = false;
  {
    const std::lock_guard lock(mutex_);
    // From here on a request needs no more memory to be answered.
    const std::size_t room = delivered_ + outstanding_ + arrivals_;
    if (completions_.capacity() < room) completions_.reserve(2 * room);
    if (unhashed_.capacity() < room) unhashed_.reserve(2 * room);
    outstanding_ += std::exchange(arrivals_, 0);
    waiting_.append(arrived_);
    tasks.swap(tasks_);
    stopping = stopping_;
  }
  for (auto& task : tasks) task();
  return stopping;
}

bool uring_engine::loop::end_if_idle() {
  const std::lock_guard lock(mutex_);
  ended_ = arrived_.empty() && tasks_.empty();
  return ended_;
}

void uring_engine::loop::cancel_waiting() {
  waiting_.append(alone_);
  while (const auto next = waiting_.pop()) complete({.tag = next->tag, .error = ECANCELED});
}

void uring_engine::loop::issue() {
  std::uint64_t hashed = 0;
  while (!free_.empty()) {
    auto next = alone_.pop();
    const bool join = !next;
    if (!next) next = waiting_.pop();
    if (!next) return;
    if (const int refused = refusal_of(*next, file_bytes_); refused != 0) {
      complete({.tag = next->tag, .error = refused});
      continue;
    }
    const std::size_t slot = free_.back();
    free_.pop_back();
    begin(slot, *next, join);
    operation& op = operations_[slot];
    for (std::size_t i = 0; i < op.count && op.kind == io_kind::write; ++i) {
      if (!op.parts[i].checksum) continue;
      op.checksums[i] = checksum_of(op.parts[i].memory);
      hashed += op.parts[i].memory.size();
    }
    prepare(slot);
    if (hashed >= hashed_bytes) {
      enter(0);
      hashed = 0;
    }
  }
}

void uring_engine::loop::begin(std::size_t slot, const io_request& first, bool join) {
  operation& op = operations_[slot];
  op.bytes = op.moved = op.count = 0;
  op.attempts = 0;
  op.add(first);
  while (join) {
    const io_request* next = waiting_.front();
    if (next == nullptr || !op.takes(*next) || refusal_of(*next, file_bytes_) != 0) return;
    op.add(*waiting_.pop());
  }
}

void uring_engine::loop::prepare(std::size_t slot) {
  operation& op = operations_[slot];
  const unsigned count = op.gather();
  const iovec& first = op.vectors[0];
  const auto length = static_cast<unsigned>(std::min(first.iov_len, most_length));
  const std::uint64_t offset = op.offset + op.moved;
  const int file = file_registered_ ? 0 : descriptor_;
  const auto pinned = count == 1 ? pinned_.find(first) : std::nullopt;
  io_uring_sqe* sqe = next_sqe();
  if (op.kind == io_kind::read) {
    if (count > 1) {
      io_uring_prep_readv(sqe, file, op.vectors.data(), count, offset);
    } else if (pinned) {
      io_uring_prep_read_fixed(sqe, file, first.iov_base, length, offset, static_cast<int>(*pinned));
    } else {
      io_uring_prep_read(sqe, file, first.iov_base, length, offset);
    }
  } else if (count > 1) {
    io_uring_prep_writev(sqe, file, op.vectors.data(), count, offset);
  } else if (pinned) {
    io_uring_prep_write_fixed(sqe, file, first.iov_base, length, offset, static_cast<int>(*pinned));
  } else {
    io_uring_prep_write(sqe, file, first.iov_base, length, offset);
  }
  if (file_registered_) io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
  io_uring_sqe_set_data64(sqe, slot);
}

void uring_engine::loop::arm_wake() {
  io_uring_sqe* sqe = next_sqe();
  io_uring_prep_read(sqe, wake_.get(), &wake_count_, sizeof wake_count_, 0);
  io_uring_sqe_set_data64(sqe, wake_tag);
}

io_uring_sqe* uring_engine::loop::next_sqe() {
  io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
  while (sqe == nullptr) {
    enter(0);
    sqe = io_uring_get_sqe(&ring_);
  }
  return sqe;
}

void uring_engine::loop::enter(unsigned wait_for) {
  const int done = wait_for == 0 ? io_uring_submit(&ring_) : io_uring_submit_and_wait(&ring_, wait_for);
  if (done >= 0 || done == -EINTR || done == -EAGAIN || done == -EBUSY) return;
  // Nobody else has this ring: a bug. Blocks whose transfers are unknown must not be used by anyone.
  std::terminate();
}

void uring_engine::loop::reap() {
  io_uring_cqe* next = nullptr;
  while (io_uring_peek_cqe(&ring_, &next) == 0) {
    const std::uint64_t tag = next->user_data;
    const int moved = next->res;
    io_uring_cqe_seen(&ring_, next);
    if (tag != wake_tag) {
      transferred(tag, moved);
      continue;
    }
    {
      const std::lock_guard lock(mutex_);
      signalled_ = false;
    }
    arm_wake();
  }
}

void uring_engine::loop::transferred(std::size_t slot, int moved) {
  operation& op = operations_[slot];
  const bool interrupted = moved == -EINTR || moved == -EAGAIN;
  op.moved += static_cast<std::uint64_t>(std::max(moved, 0));
  if (interrupted ? ++op.attempts < most_attempts : moved > 0 && op.moved < op.bytes) return prepare(slot);
  finish(slot, moved == 0 ? EIO : std::max(-moved, 0));
}

void uring_engine::loop::finish(std::size_t slot, int failed) {
  const operation& op = operations_[slot];
  free_.push_back(slot);
  // The neighbours of a bad sector may be fine.
  if (failed != 0 && op.count > 1 && try_alone(op)) return;
  for (std::size_t i = 0; i < op.count; ++i) {
    const io_request& part = op.parts[i];
    const bool hash = failed == 0 && part.checksum && part.kind == io_kind::read;
    complete({.tag = part.tag, .error = failed, .checksum = failed == 0 ? op.checksums[i] : 0},
             hash ? part.memory : std::span<std::byte>());
  }
}

// False when there is no memory for it: then they fail together.
bool uring_engine::loop::try_alone(const operation& op) noexcept {
  try {
    request_queue parts;
    parts.push({op.parts.data(), op.count});
    alone_.append(parts);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void uring_engine::loop::complete(const io_completion& ended, std::span<const std::byte> unhashed) {
  completions_.push_back(ended);
  unhashed_.push_back(unhashed);
}

// Some of the completions: whoever waits for one should not wait for the checksums of all.
void uring_engine::loop::deliver() {
  std::uint64_t hashed = 0;
  std::size_t end = delivered_;
  for (; end < completions_.size() && hashed < hashed_bytes; ++end) {
    if (unhashed_[end].empty()) continue;
    completions_[end].checksum = checksum_of(unhashed_[end]);
    hashed += unhashed_[end].size();
  }
  done_(std::span(completions_).subspan(delivered_, end - delivered_));
  outstanding_ -= end - delivered_;
  delivered_ = end;
  if (delivered_ < completions_.size()) return;
  completions_.clear();
  unhashed_.clear();
  delivered_ = 0;
}

// ------------------------------------------------------------------------------------------ the engine

result<void> uring_engine::check(unsigned queue_depth) {
  io_uring ring{};
  auto begun = begin_ring(ring, std::clamp(queue_depth, 1U, most_depth));
  if (begun) io_uring_queue_exit(&ring);
  return begun;
}

result<std::unique_ptr<uring_engine>> uring_engine::create(const path_file& file, const engine_options& options,
                                                           callback done) {
  auto fresh = std::make_unique<loop>(file, options, std::move(done));
  if (auto started = fresh->start(); !started) return std::unexpected(started.error());
  return std::unique_ptr<uring_engine>(new uring_engine(std::move(fresh)));
}

uring_engine::uring_engine(std::unique_ptr<loop> started) : loop_(std::move(started)) {}

uring_engine::~uring_engine() = default;

void uring_engine::submit(std::span<const io_request> batch) {
  loop_->submit(batch);
}

void uring_engine::stop() noexcept {
  loop_->stop();
}

bool uring_engine::register_memory(std::span<std::byte> memory) {
  return loop_->call([this, memory] { return loop_->pin(memory); });
}

std::uint64_t uring_engine::registered_bytes() const noexcept {
  return loop_->pinned_bytes();
}

void uring_engine::unregister_memory(std::span<std::byte> memory) {
  loop_->call([this, memory] {
    loop_->unpin(memory);
    return true;
  });
}

}  // namespace cenote::nvme
