#include "client/channel.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "memory/fence.hpp"
#include "memory/group_terms.hpp"
#include "transport/local/doorbell.hpp"

namespace cenote::client {

namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr microseconds spin_time{20};  // about what a thread wake costs
constexpr microseconds full_ring_pause{50};
constexpr int touch_lock_attempts = 64;

void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // `yield` does nothing on cores without siblings
#else
  std::this_thread::yield();
#endif
}

/// Says where in its batch entry `i` is. Of its flags only the one of its checksum is the caller's.
void set_position(std::span<memory::submission> batch, std::size_t i) noexcept {
  memory::submission& entry = batch[i];
  entry.index = static_cast<std::uint32_t>(i);
  entry.flags &= memory::submission::flag_checksum;
  if (i + 1 == batch.size()) entry.flags |= memory::submission::flag_last;
}

std::unexpected<error> replaced() {
  return fail(error_code::closed, "a newer node replaced this session's memory; attach again");
}

std::unexpected<error> device_failed() {
  return fail(error_code::closed, "the device of this session failed; attach to host memory");
}

}  // namespace

channel::channel(memory::session_memory memory, unique_fd submit_bell, unique_fd complete_bell, connection& socket,
                 reservations& held, milliseconds check_interval)
    : memory_(memory),
      submit_bell_(std::move(submit_bell)),
      complete_bell_(std::move(complete_bell)),
      socket_(&socket),
      held_(&held),
      check_interval_(check_interval),
      rings_(memory),
      epoch_(memory.header().worker_epoch.load(std::memory_order_acquire)) {}

result<void> channel::check() const {
  // First of all: a child does not have the mappings that the rest looks at.
  if (process_.in_child()) {
    return fail(error_code::forked, "this session belongs to the parent process; attach again in the child");
  }
  if (stopped_.load(std::memory_order_relaxed)) return fail(error_code::closed, "the session is closed");
  if (has_ended_.load(std::memory_order_acquire)) {
    const std::lock_guard lock(end_mutex_);
    return std::unexpected(*ended_);
  }
  const auto& header = memory_.header();
  const auto phase = static_cast<memory::session_phase>(header.phase.load(std::memory_order_acquire));
  if (phase == memory::session_phase::active && header.segment.retired.load(std::memory_order_relaxed) == 0) return {};
  if (phase == memory::session_phase::killed) {
    return fail(error_code::session_killed, "the operator ended this session; attach again if that was a mistake");
  }
  if (phase == memory::session_phase::wrong_sums) return std::unexpected(memory::ended_by_node(memory_));
  if (phase == memory::session_phase::device_lost) return device_failed();
  if (phase == memory::session_phase::draining) return fail(error_code::not_running, "the node is shutting down");
  return replaced();
}

result<void> channel::still_valid() const {
  memory::load_fence();  // what was read, was read before this
  const auto& header = memory_.header();
  constexpr auto lost = static_cast<std::uint32_t>(memory::session_phase::device_lost);
  if (header.phase.load(std::memory_order_relaxed) == lost) return device_failed();
  return header.segment.retired.load(std::memory_order_relaxed) == 0 ? result<void>{} : replaced();
}

void channel::ring() const noexcept {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(submit_bell_.get(), &one, sizeof one));
}

error channel::late() const {
  if (away_.load(std::memory_order_relaxed)) return never_came();
  return {error_code::deadline_exceeded, "the node did not answer before the deadline"};
}

void channel::stop() noexcept {
  stopped_.store(true, std::memory_order_relaxed);
  arrived_.notify_all();
}

void channel::end(const error& why) {
  const std::lock_guard lock(end_mutex_);
  if (!ended_) ended_ = why;
  has_ended_.store(true, std::memory_order_release);
}

// ---------------------------------------------------------------------------------------------- submit

result<void> channel::prepare_to_submit(time_point until) {
  if (auto ok = check(); !ok) return ok;
  return epoch_changed() ? recover(until) : result<void>{};
}

/// Called with mutex_ held.
request_ptr channel::make_request() {
  auto made = std::make_shared<request>();
  do {
    made->number = next_request_++;
  } while (made->number == 0 || requests_.contains(made->number));
  requests_.emplace(made->number, made);
  return made;
}

result<request_ptr> channel::submit(std::span<memory::submission> batch, time_point until) {
  if (auto ok = prepare_to_submit(until); !ok) return std::unexpected(ok.error());
  std::unique_lock lock(submit_mutex_);
  send_orphans();
  if (auto ok = wait_for_room(lock, batch.size(), until); !ok) return std::unexpected(ok.error());
  request_ptr made;
  {
    const std::lock_guard inner(mutex_);
    made = make_request();
    if (batch.front().op == memory::operation::reserve) {
      made->answers.resize(batch.size());
      made->reserves = true;
      made->parts = batch.front().argument;
    } else if (batch.front().op == memory::operation::follow) {
      made->answers.resize(memory::handed_keys::most * memory::handed_keys::pieces_of(max_key_bytes));
    }
  }
  for (std::size_t i = 0; i < batch.size(); ++i) {
    batch[i].request = made->number;
    set_position(batch, i);
    rings_.push(batch[i]);
  }
  if (rings_.publish() && rings_.claim_wake()) ring();
  return made;
}

result<std::vector<request_ptr>> channel::submit_each(std::span<memory::submission> entries, time_point until) {
  if (auto ok = prepare_to_submit(until); !ok) return std::unexpected(ok.error());
  std::unique_lock lock(submit_mutex_);
  send_orphans();
  if (auto ok = wait_for_room(lock, entries.size(), until); !ok) return std::unexpected(ok.error());
  std::vector<request_ptr> made;
  made.reserve(entries.size());
  {
    const std::lock_guard inner(mutex_);
    for (memory::submission& entry : entries) {
      made.push_back(make_request());
      entry.request = made.back()->number;
    }
  }
  for (memory::submission& entry : entries) {
    set_position(std::span(&entry, 1), 0);
    rings_.push(entry);
  }
  if (rings_.publish() && rings_.claim_wake()) ring();
  return made;
}

/// `lock` holds submit_mutex_, also afterwards, but not while anybody waits: one with little time does not wait for one
/// with much. One after the other, so that who wants many places gets them.
result<void> channel::wait_for_room(std::unique_lock<std::mutex>& lock, std::size_t places, time_point until) {
  if (want_room_ == 0 && has_room(places)) return {};
  static_cast<void>(rings_.publish());  // what was pushed before: a place that nobody shows is never free again
  ring();                               // it may be full of touch records that nobody rang for
  ++want_room_;
  lock.unlock();
  const std::unique_lock<deadline_mutex> turn(room_turn_, until);
  result<void> status = turn.owns_lock() ? result<void>{} : std::unexpected(late());
  auto look_at_socket = steady_clock::now();
  lock.lock();
  while (status && !has_room(places)) {
    if (rings_.publish() && rings_.claim_wake()) ring();  // late words that were pushed
    lock.unlock();
    status = look_for_room(look_at_socket, until);
    lock.lock();
  }
  --want_room_;
  return status;
}

/// Behind the late words: a join must not overtake the word that its rank has left. These go one by one as places come
/// free, for more may wait than the ring has. Called with submit_mutex_ held.
bool channel::has_room(std::size_t places) {
  const std::lock_guard lock(mutex_);
  send_late_words();
  return late_words_.empty() && rings_.room() >= places;
}

result<void> channel::look_for_room(time_point& look_at_socket, time_point until) {
  drain();  // the worker may be waiting for room in the completion ring
  if (auto ok = check(); !ok) return ok;
  const auto now = steady_clock::now();
  if (now >= until) return std::unexpected(late());
  if (now >= look_at_socket) {
    if (auto ok = recover(until); !ok) return ok;
    look_at_socket = now + milliseconds{10};
  }
  std::this_thread::sleep_for(full_ring_pause);
  return {};
}

/// Those of post_later(), as far as there is room. Called with submit_mutex_ and mutex_ held.
void channel::send_late_words() {
  if (late_words_.empty()) return;
  const std::size_t n = std::min(late_words_.size(), static_cast<std::size_t>(rings_.room()));
  for (memory::submission& each : std::span(late_words_).first(n)) {
    set_position(std::span(&each, 1), 0);
    rings_.push(each);  // request number 0: nobody waits for the answer
  }
  late_words_.erase(late_words_.begin(), late_words_.begin() + static_cast<std::ptrdiff_t>(n));
}

/// Gives back what arrived for requests that nobody waits for. Called with submit_mutex_ held.
void channel::send_orphans() {
  std::vector<memory::submission> batch;
  {
    const std::lock_guard lock(mutex_);
    if (orphans_.empty()) return;
    const std::size_t n = std::min({orphans_.size(), max_batch, static_cast<std::size_t>(rings_.room())});
    batch.assign(orphans_.end() - static_cast<std::ptrdiff_t>(n), orphans_.end());
    orphans_.resize(orphans_.size() - n);
  }
  for (std::size_t i = 0; i < batch.size(); ++i) {
    set_position(batch, i);
    held_->remove(memory::block_ref::from_bits(batch[i].block), batch[i].grant_version, batch[i].argument);
    rings_.push(batch[i]);  // request number 0: nobody waits for the answer
  }
}

void channel::touch(std::span<memory::submission> batch) noexcept {
  std::unique_lock lock(submit_mutex_, std::try_to_lock);
  for (int i = 0; !lock.owns_lock() && i < touch_lock_attempts; ++i) {
    relax();
    static_cast<void>(lock.try_lock());
  }
  if (!lock.owns_lock() || want_room_ != 0 || rings_.room() < batch.size()) {
    memory_.header().touches_dropped.fetch_add(batch.size(), std::memory_order_relaxed);
    if (lock.owns_lock()) ring();
    return;
  }
  for (std::size_t i = 0; i < batch.size(); ++i) {
    set_position(batch, i);
    rings_.push(batch[i]);
  }
  const bool sleeps = rings_.publish();
  if (sleeps && rings_.room() < memory::session_memory::submissions / 2 && rings_.claim_wake()) ring();
}

// ---------------------------------------------------------------------------------------------- wait

result<memory::completion> channel::call(std::span<memory::submission> batch, time_point until) {
  auto made = submit(batch, until);
  if (!made) return std::unexpected(made.error());
  return wait(**made, until);
}

result<void> channel::post(std::span<memory::submission> batch, time_point until) {
  auto made = submit(batch, until);
  if (!made) return std::unexpected(made.error());
  forget(**made);
  return {};
}

/// Until it is ready, the deadline is over, or the session is. `lock` holds mutex_.
void channel::wait_until_ready(std::unique_lock<std::mutex>& lock, const ready_test& is_ready, time_point until,
                               result<void>& status) {
  while (!is_ready() && status && steady_clock::now() < until) {
    if (reaping_) {
      arrived_.wait_until(lock, std::min(until, steady_clock::now() + check_interval_));
      status = check();
      continue;
    }
    reaping_ = true;
    lock.unlock();
    reap(is_ready, until, status);
    lock.lock();
    reaping_ = false;
    arrived_.notify_all();
  }
}

result<memory::completion> channel::wait(request& which, time_point until) {
  result<void> status;
  std::unique_lock lock(mutex_);
  wait_until_ready(
      lock, [&which] { return which.done; }, until, status);
  if (!which.done) {
    abandon(which);
    return std::unexpected(status ? late() : status.error());
  }
  requests_.erase(which.number);
  if (which.outcome.code == static_cast<std::uint16_t>(error_code::session_killed)) {
    if (auto ok = check(); !ok) return std::unexpected(ok.error());  // with the reason
  }
  return which.outcome;
}

result<std::optional<memory::completion>> channel::watch(request& which, time_point until) {
  drain();
  result<void> status;
  std::unique_lock lock(mutex_);
  wait_until_ready(
      lock, [&which] { return which.done; }, until, status);
  if (which.done) {
    requests_.erase(which.number);
    return which.outcome;
  }
  if (!status) return std::unexpected(status.error());
  return std::nullopt;
}

result<void> channel::watch_any(std::span<const request_ptr> open, time_point until) {
  drain();
  result<void> status;
  std::unique_lock lock(mutex_);
  wait_until_ready(
      lock, [open] { return std::ranges::any_of(open, [](const request_ptr& each) { return each->done; }); }, until,
      status);
  return status;
}

std::vector<request_ptr> channel::take_done(std::vector<request_ptr>& open, std::size_t most) {
  drain();
  std::vector<request_ptr> done;
  const std::lock_guard lock(mutex_);
  std::erase_if(open, [&](request_ptr& each) {
    if (!each->done || done.size() == most) return false;
    requests_.erase(each->number);
    done.push_back(std::move(each));
    return true;
  });
  return done;
}

void channel::forget(request& which) {
  const std::lock_guard lock(mutex_);
  if (which.done) {
    requests_.erase(which.number);
  } else {
    abandon(which);
  }
}

/// Called with mutex_ held. What was reserved so far goes back at once, the rest when it arrives; of what reserves
/// nothing no answer matters, and none may come: a worker that is replaced takes questions that it has read with it.
void channel::abandon(request& which) {
  which.abandoned = true;
  for (const memory::completion& answer : which.answers) orphan(answer, which.parts);
  which.answers.clear();
  if (!which.reserves) requests_.erase(which.number);
}

/// Reaps for all until it is ready, the deadline is over, or the session is.
void channel::reap(const ready_test& is_ready, time_point until, result<void>& status) {
  while (status && !is_so(is_ready) && steady_clock::now() < until) {
    if (drain() || spin()) continue;
    status = check();
    if (status) status = sleep(is_ready, until);
  }
}

bool channel::is_so(const ready_test& is_ready) {
  const std::lock_guard lock(mutex_);
  return is_ready();
}

/// Looks for completions for a moment before anybody sleeps.
bool channel::spin() {
  if (!spins_.worth_it()) return false;
  const auto end = steady_clock::now() + spin_time;
  bool came = false;
  do {
    for (int i = 0; i < 8; ++i) relax();
    came = drain();
  } while (!came && steady_clock::now() < end);
  spins_.note(came);
  return came;
}

/// Poll timeout until `deadline`, at most check_interval_; at least 1 ms, so that it is never a busy loop.
int channel::poll_timeout(time_point deadline) const {
  const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now());
  return static_cast<int>(std::clamp(left, milliseconds{1}, check_interval_).count());
}

result<void> channel::sleep(const ready_test& is_ready, time_point until) {
  if (!rings_.arm()) return {};
  if (is_so(is_ready)) {  // by another thread that took the answer off the ring before we armed: nobody rings for it
    rings_.disarm();
    return {};
  }
  std::array<pollfd, 2> entries{pollfd{complete_bell_.get(), POLLIN, 0}, pollfd{socket_->descriptor(), 0, 0}};
  static_cast<void>(::poll(entries.data(), entries.size(), poll_timeout(until)));
  rings_.disarm();
  if ((entries[0].revents & POLLIN) != 0) {
    local::hear_doorbell(complete_bell_.get());
  }
  if (entries[1].revents != 0 || epoch_changed()) return recover(until);
  return {};
}

/// Takes what has arrived. Any thread may do so.
bool channel::drain() {
  const auto& header = memory_.header();
  if (header.complete_head.load(std::memory_order_relaxed) == header.complete_tail.load(std::memory_order_acquire)) {
    return false;
  }
  const std::lock_guard lock(mutex_);
  bool any = false;
  while (const auto entry = rings_.pop()) {
    any = true;
    deliver(*entry);
  }
  if (any) arrived_.notify_all();
  return any;
}

std::optional<memory::completion> channel::poll(request& which) {
  drain();
  const std::lock_guard lock(mutex_);
  if (!which.done) return std::nullopt;
  requests_.erase(which.number);
  return which.outcome;
}

/// Called with mutex_ held. A restarted worker may answer twice: the later answer counts, the earlier goes back.
void channel::deliver(const memory::completion& entry) {
  const auto found = requests_.find(entry.request);
  const bool final = entry.kind == memory::completion_kind::done;
  if (found == requests_.end() || found->second->done) {
    if (!final) orphan(entry, entry.value);
    return;
  }
  request& which = *found->second;
  if (entry.kind == memory::completion_kind::text) return memory::refusal_text::append(which.text, entry);
  if (!final) {
    if (which.abandoned || entry.index >= which.answers.size()) return orphan(entry, which.parts);
    if (entry.kind == memory::completion_kind::reserved) {
      held_->add(memory::block_ref::from_bits(entry.block), entry.grant_version, which.parts);
    }
    memory::completion& place = which.answers[entry.index];
    if (place.block != entry.block || place.grant_version != entry.grant_version) orphan(place, which.parts);
    place = entry;
    return;
  }
  which.outcome = entry;
  which.done = true;
  if (which.abandoned) requests_.erase(found);
}

void channel::release_later(std::span<const memory::submission> releases) {
  const std::lock_guard lock(mutex_);
  orphans_.insert(orphans_.end(), releases.begin(), releases.end());
}

void channel::post_later(const memory::submission& word) {
  const std::lock_guard lock(mutex_);
  late_words_.push_back(word);
  late_words_.back().request = 0;
}

/// Called with mutex_ held: a block that was reserved for nobody is given back with the next batch.
void channel::orphan(const memory::completion& entry, std::uint64_t parts) {
  if (entry.kind != memory::completion_kind::reserved) return;
  memory::submission release;
  release.op = memory::operation::release;
  release.block = entry.block;
  release.grant_version = entry.grant_version;
  release.argument = parts;
  orphans_.push_back(release);
}

// ---------------------------------------------------------------------------------------------- restart

bool channel::epoch_changed() const noexcept {
  return memory_.header().worker_epoch.load(std::memory_order_acquire) != epoch_.load(std::memory_order_relaxed);
}

/// What a dead worker still reserved for us counts as held: all of its answers are taken first, and none is between the
/// ring and the list, as another thread that reaps would have it.
held_list channel::list_held() {
  held_list held;
  held.epoch = memory_.header().worker_epoch.load(std::memory_order_acquire);
  const std::lock_guard lock(mutex_);
  while (const auto entry = rings_.pop()) deliver(*entry);
  arrived_.notify_all();
  held_->list(held.blocks);
  return held;
}

result<void> channel::recover(time_point until) {
  const std::unique_lock<deadline_mutex> lock(recover_mutex_, until);
  if (!lock.owns_lock()) return std::unexpected(never_came());
  if (!epoch_changed() && !socket_->hung_up()) return {};  // another thread was faster, or all is well
  if (auto ok = check(); !ok) return ok;
  away_.store(true, std::memory_order_relaxed);
  held_list held;
  do {  // a worker that began after the list was made wants a new one
    held = list_held();
    if (auto ok = socket_->reattach(held, until, stopped_); !ok) {
      const error_code code = ok.error().code();
      const bool may_come_back = code == error_code::node_restarting || code == error_code::deadline_exceeded ||
                                 code == error_code::not_running;
      if (!may_come_back) end(ok.error());
      return ok;
    }
  } while (held.epoch != memory_.header().worker_epoch.load(std::memory_order_acquire));
  epoch_.store(held.epoch, std::memory_order_relaxed);
  away_.store(false, std::memory_order_relaxed);
  reattaches_.fetch_add(1, std::memory_order_relaxed);
  ring();  // whatever was pushed meanwhile
  return {};
}

}  // namespace cenote::client
