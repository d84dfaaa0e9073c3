// The thread of the Redis backend: takes calls, polls the connections, has answers given.
#include "tiers/remote/redis_backend.hpp"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <span>
#include <system_error>
#include <utility>

namespace cenote::remote {

namespace {

steady_time steady_now() {
  return std::chrono::steady_clock::now();
}

}  // namespace

result<std::unique_ptr<redis_backend>> redis_backend::open(const redis_options& options, events told,
                                                           removal_book removals) {
  if (options.url.servers.empty()) return fail(error_code::invalid_argument, "a Redis backend has no server");
  if (options.timeout <= std::chrono::milliseconds(0)) {
    return fail(error_code::invalid_argument, "the timeout of a Redis backend must be above 0 ms");
  }
  if (!options.credentials.empty()) {
    if (auto read = redis::read_credentials(options.credentials, options.url.user); !read) {
      return std::unexpected(read.error());
    }
  }
  if (auto made = redis::make_stream(options.url.tls, options.url.servers.front().place.host); !made) {
    return std::unexpected(made.error());
  }
  auto books = open_epoch_books(options);
  if (!books) return std::unexpected(books.error());
  unique_fd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return fail_errno("eventfd");
  std::unique_ptr<redis_backend> made(
      new redis_backend(options, std::move(told), std::move(*books), std::move(removals), std::move(wake)));
  try {
    made->thread_ = std::thread([self = made.get()] { self->run(); });
  } catch (const std::system_error& thrown) {
    return fail(error_code::system, std::string("start a thread for a Redis backend: ") + thrown.what());
  }
  return made;
}

redis_backend::redis_backend(const redis_options& options, events told, std::deque<epoch_book> books,
                             removal_book removals, unique_fd wake_descriptor)
    : name_(options.url.name()),
      told_(std::move(told)),
      wake_(std::move(wake_descriptor)),
      servers_(
          options, told_, std::move(books), std::move(removals), [this] { wake(); }, steady_now()) {
  publish_figures();  // removals of an earlier worker count before the thread has had its first turn
}

redis_backend::~redis_backend() {
  stop();
}

void redis_backend::look_for_clear(instance_identity identity) {
  enter([this, identity](steady_time) { servers_.look_for_clear(identity); });
}

void redis_backend::unbind(instance_identity identity) {
  enter([this, identity](steady_time) { servers_.end_stamps(identity); });
}

void redis_backend::clear_above_ended(instance_identity identity, const result<void>& outcome) {
  enter([this, identity, outcome](steady_time now) { servers_.end_clear_above(identity, outcome, now); });
}

void redis_backend::put(std::vector<item> batch) {
  enter([this, batch = std::move(batch), begun = steady_now()](steady_time now) mutable {
    servers_.begin_items(request_kind::put, batch, begun, now);
  });
}

void redis_backend::get(std::vector<item> batch) {
  enter([this, batch = std::move(batch), begun = steady_now()](steady_time now) mutable {
    servers_.begin_items(request_kind::get, batch, begun, now);
  });
}

void redis_backend::locate(std::vector<block_name> keys, std::chrono::milliseconds patience,
                           std::function<void(presence)> answer) {
  enter([this, keys = std::move(keys), answer = std::move(answer), begun = steady_now(), patience](steady_time now) {
    servers_.locate(keys, answer, begun, begun + patience, now);
  });
}

void redis_backend::drop(instance_identity identity, std::vector<block_key> keys,
                         std::function<void(result<std::uint64_t>)> answer) {
  enter([this, identity, keys = std::move(keys), answer = std::move(answer), begun = steady_now()](steady_time now) {
    servers_.drop(identity, keys, answer, begun, now);
  });
}

void redis_backend::clear(instance_identity identity, std::function<void(result<void>)> answer) {
  enter_clear({identity}, false, std::move(answer));
}

void redis_backend::clear_all(std::vector<instance_identity> identities, std::function<void(result<void>)> answer) {
  enter_clear(std::move(identities), true, std::move(answer));
}

void redis_backend::enter_clear(std::vector<instance_identity> identities, bool with_known,
                                std::function<void(result<void>)> answer) {
  enter([this, identities = std::move(identities), with_known, answer = std::move(answer),
         begun = steady_now()](steady_time now) { servers_.clear(identities, with_known, answer, begun, now); });
}

void redis_backend::count_unconfirmed(instance_identity identity, std::function<void(unconfirmed_removals)> answer) {
  enter([this, identity, answer = std::move(answer)](steady_time) { answer(servers_.count_unconfirmed(identity)); });
}

removal_figures redis_backend::removals() const {
  const std::lock_guard lock(counts_mutex_);
  return figures_;
}

redis_counts redis_backend::counts() const {
  const std::lock_guard lock(counts_mutex_);
  return counts_;
}

void redis_backend::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
}

void redis_backend::enter(call what) {
  {
    const std::lock_guard lock(mutex_);
    if (is_stopping_) return;
    inbox_.push_back(std::move(what));
  }
  wake();
}

void redis_backend::wake() noexcept {
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof(one));
}

void redis_backend::run() {
  ::pthread_setname_np(::pthread_self(), "cenote-redis");
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  run_steps([this] { return turn(); }, told_.on_exception);
}

bool redis_backend::turn() {
  bool is_stopping = false;
  const auto now = steady_now();
  if (is_at_work_) servers_.end_lost(now);
  is_at_work_ = true;
  servers_.ask_for_clears(now);  // what was found since, before what was asked for earlier ends
  make_calls(now);               // that an exception left
  {
    const std::lock_guard lock(mutex_);
    calls_.swap(inbox_);
    is_stopping = is_stopping_;
  }
  make_calls(now);
  servers_.turn(now);
  if (is_stopping) servers_.stop(now);
  is_at_work_ = false;
  publish_figures();  // a caller may read them once it is answered
  servers_.deliver(now);
  publish_figures();
  servers_.answer_removals();
  if (is_stopping) return false;
  is_at_work_ = true;
  wait(steady_now());
  is_at_work_ = false;
  return true;
}

void redis_backend::publish_figures() {
  const auto figures = servers_.figures();
  const std::lock_guard lock(counts_mutex_);
  counts_ = servers_.counts();
  figures_ = figures;
}

void redis_backend::make_calls(steady_time now) {
  for (; !calls_.empty(); calls_.pop_front()) calls_.front()(now);
}

void redis_backend::wait(steady_time now) {
  polled_.clear();
  polled_.push_back({.fd = wake_.get(), .events = POLLIN, .revents = 0});
  servers_.watch(polled_);
  const auto next = std::min(now + std::chrono::seconds(1), servers_.next_turn());
  const auto patience = std::chrono::ceil<std::chrono::milliseconds>(std::max(next - now, steady_time::duration(0)));
  if (::poll(polled_.data(), polled_.size(), static_cast<int>(patience.count())) <= 0) return;
  if (polled_.front().revents != 0) {
    std::uint64_t rings = 0;
    (void)!::read(wake_.get(), &rings, sizeof(rings));
  }
  servers_.serve(std::span<const pollfd>(polled_).subspan(1), steady_now());
}

}  // namespace cenote::remote
