#include "tiers/blocks/reserve.hpp"

#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <utility>

namespace cenote::blocks {

namespace {

using phase = populate_status::phase;

constexpr std::uint64_t step_bytes = std::uint64_t{2} << 20;  // a huge page; others may map memory in between
constexpr int niceness = 10;                                  // beside clients that compute
constexpr std::chrono::seconds retry{1};

}  // namespace

std::string_view name_of(phase phase) noexcept {
  switch (phase) {
    case phase::off: return "off";
    case phase::going_on: return "populating";
    case phase::short_of_memory: return "short of memory";
    case phase::failed: return "failed";
    case phase::done: return "done";
  }
  return "";
}

reserve::reserve(reserve_options options) : options_(std::move(options)) {}

reserve::~reserve() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void reserve::start(std::vector<piece> held) {
  for (piece& each : held) {
    next_id_ = std::max(next_id_, each.id + 1);
    ready_.push_back(std::move(each));
  }
  begun_ = std::chrono::steady_clock::now();
  thread_ = std::thread([this] { run(); });
}

std::optional<spare_memory> reserve::take(std::uint64_t bytes, std::uint64_t huge_bytes) {
  std::optional<piece> found;
  {
    const std::lock_guard lock(mutex_);
    slab_bytes_ += bytes;
    const bool fits =
        !ready_.empty() && (!ready_.front().memory.huge || huge_bytes <= ready_.front().memory.memory.size());
    if (fits) {
      found = std::move(ready_.front());
      ready_.pop_front();
    }
  }
  wake_.notify_all();
  if (!found) return std::nullopt;
  // Before it is a slab: memory that is both could be given out twice.
  if (options_.drop) options_.drop(found->id);
  return std::move(found->memory);
}

void reserve::slab_found(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  slab_bytes_ += bytes;
}

void reserve::slab_gone(std::uint64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    slab_bytes_ -= std::min(slab_bytes_, bytes);
  }
  wake_.notify_all();
}

populate_status reserve::status() const {
  const std::lock_guard lock(mutex_);
  return look();
}

populate_status reserve::look() const {
  populate_status found;
  found.at = phase_ == phase::done && has_room() ? phase::going_on : phase_;
  found.ready = ready_bytes();
  found.bytes = slab_bytes_ + found.ready + touched_;
  const std::uint64_t left = options_.capacity - std::min(options_.capacity, slab_bytes_);
  const std::uint64_t most = std::min<std::uint64_t>(left / options_.piece, options_.most_pieces) * options_.piece;
  found.total = std::max(found.bytes, slab_bytes_ + most);
  return found;
}

bool reserve::has_room() const noexcept {
  return ready_.size() < options_.most_pieces && slab_bytes_ + ready_bytes() + options_.piece <= options_.capacity;
}

bool reserve::is_over() const noexcept {
  const std::uint64_t held = ready_bytes() + (making_.memory ? options_.piece : 0);
  return held > 0 && slab_bytes_ + held > options_.capacity;
}

void reserve::run() {
  ::pthread_setname_np(::pthread_self(), "cenote-populate");
  ::setpriority(PRIO_PROCESS, 0, niceness);  // of this thread alone
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    try {
      turn(lock);
    } catch (const std::exception& thrown) {
      if (!lock.owns_lock()) lock.lock();
      enter(lock, phase::failed, thrown.what());
    }
  }
}

void reserve::turn(std::unique_lock<std::mutex>& lock) {
  if (is_over()) {
    shrink(lock);
  } else if (phase_ == phase::failed) {
    wake_.wait(lock, [&] { return stopping_ || is_over(); });
  } else if (!making_.memory && !has_room()) {
    enter(lock, phase::done);
    wake_.wait(lock, [&] { return stopping_ || is_over() || has_room(); });
  } else {
    grow(lock);
  }
}

/// Slabs took what was meant for it.
void reserve::shrink(std::unique_lock<std::mutex>& lock) {
  std::optional<piece> last;
  if (making_.memory) {
    touched_ = 0;
  } else {
    last = std::move(ready_.back());
    ready_.pop_back();
  }
  lock.unlock();  // to give memory back takes time
  making_ = {};
  if (last && options_.drop) options_.drop(last->id);
  last.reset();
  lock.lock();
}

void reserve::grow(std::unique_lock<std::mutex>& lock) {
  const std::uint64_t offset = touched_;
  lock.unlock();
  auto went = step(offset);
  lock.lock();
  if (!went) {
    enter(lock, phase::failed, went.error().describe());
    return;
  }
  if (!*went) {
    enter(lock, phase::short_of_memory, "too little memory is left");
    wake_.wait_for(lock, retry, [&] { return stopping_ || is_over(); });
    return;
  }
  enter(lock, phase::going_on);
  const std::uint64_t bytes = making_.memory.size();
  touched_ = std::min(offset + step_bytes, bytes);
  if (touched_ < bytes) return;
  lock.unlock();
  auto kept = finish();
  lock.lock();
  if (!kept) enter(lock, phase::failed, kept.error().describe());
}

/// The next bytes of the piece in the making. False: there is no memory for them now.
result<bool> reserve::step(std::uint64_t offset) {
  if (options_.room && options_.room() < step_bytes) return false;
  if (!making_.memory) {
    auto made = make_spare_memory(options_.piece, options_.huge_pages, options_.numa_node);
    if (!made) return std::unexpected(made.error());
    making_ = std::move(*made);
  }
  const std::uint64_t bytes = std::min(step_bytes, making_.memory.size() - offset);
  if (making_.memory.populate(offset, bytes, memory::access::read_write)) return true;
  if (errno == EINVAL) return fail(error_code::unsupported, "this kernel cannot populate memory: Linux 5.14 is needed");
  return false;
}

result<void> reserve::finish() {
  spare_memory done = std::exchange(making_, {});
  const std::uint64_t id = next_id_++;
  const auto kept = options_.keep ? options_.keep(id, done.memory.fd()) : result<void>();
  const std::lock_guard lock(mutex_);
  touched_ = 0;
  if (!kept) return kept;
  ready_.push_back({id, std::move(done)});
  return {};
}

/// Says what is new.
void reserve::enter(std::unique_lock<std::mutex>& lock, phase next, std::string reason) {
  phase_ = next;
  const bool again = next == phase::going_on && said_;  // a slab's worth of memory, or as much as there is just now
  if (said_ == next || again || !options_.report) return;
  said_ = next;
  populate_report said{look(), std::chrono::steady_clock::now() - begun_, std::move(reason)};
  lock.unlock();
  options_.report(said);
  lock.lock();
}

}  // namespace cenote::blocks
