// The lock is held for queues and pointers only, never while a socket or the sink is at work.
#include "services/indexer/subscriber/subscriber.hpp"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <utility>

#include "config/logging.hpp"
#include "core/text.hpp"
#include "services/indexer/subscriber/publisher_loop.hpp"

namespace cenote::indexer {

namespace {

constexpr int table_share = 16;  // a table takes no more of the thread's time than one part in so many
constexpr std::chrono::milliseconds idle_table_pause{2'000};  // between two that differ in times only

// Processor time of this thread: on a busy machine the time of a clock would keep tables old for long.
std::chrono::nanoseconds thread_time() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

result<std::unique_ptr<subscriber>> subscriber::start(const subscriber_options& options, batch_sink& sink) {
  unique_fd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return fail_errno("eventfd");
  auto loop = publisher_loop::make(options, sink, wake.get());
  if (!loop) return std::unexpected(loop.error());
  std::unique_ptr<subscriber> made(new subscriber(options, std::move(wake)));
  made->bound_endpoints_ = (*loop)->bound_endpoints();
  made->thread_ = std::thread([owner = made.get(), work = std::move(*loop)]() mutable { owner->run(std::move(work)); });
  return made;
}

subscriber::subscriber(const subscriber_options& options, unique_fd wake) : options_(options), wake_(std::move(wake)) {}

subscriber::~subscriber() {
  stop();
}

void subscriber::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  signal();
  if (thread_.joinable()) thread_.join();
}

result<void> subscriber::add(const publisher_options& settings) {
  if (auto checked = check_publisher(settings); !checked) return checked;
  return enqueue({.name = settings.name, .settings = std::make_unique<publisher_options>(settings)});
}

result<void> subscriber::remove(std::string_view name) {
  return enqueue({.name = std::string(name), .settings = nullptr});
}

result<void> subscriber::enqueue(publisher_change change) {
  {
    const std::lock_guard lock(mutex_);
    const std::string shown = "publisher `" + printable(cut_text(change.name, publisher_limits::name_bytes)) + "`";
    const auto present = settings_.find(change.name);
    if (is_stopping_) return fail(error_code::closed, "the indexer stops; " + shown + " stays as it is");
    if (change.settings && present != settings_.end()) {
      return fail(error_code::invalid_argument,
                  "there is a " + shown + " already, at " + present->second.endpoint + "; remove it before");
    }
    if (!change.settings && present == settings_.end())
      return fail(error_code::invalid_argument, "there is no " + shown + " that was configured or added");
    if (change.settings && settings_.size() >= options_.feeds.publishers) {
      return fail(error_code::limit_exceeded, "there are " + std::to_string(settings_.size()) +
                                                  " publishers, and there may be no more: remove some that are gone");
    }
    if (changes_.size() >= options_.waiting_commands) {
      return fail(error_code::limit_exceeded,
                  std::to_string(changes_.size()) + " changes of publishers wait to be carried out; try again later");
    }
    if (change.settings) {
      settings_.emplace(change.name, *change.settings);
    } else {
      settings_.erase(present);
    }
    changes_.push_back(std::move(change));
  }
  signal();
  return {};
}

std::shared_ptr<const publisher_table> subscriber::publishers() const {
  const std::lock_guard lock(mutex_);
  return table_;
}

std::size_t subscriber::configured() const {
  const std::lock_guard lock(mutex_);
  return settings_.size();
}

void subscriber::signal() const noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof(one));  // full: it is readable already
}

// ---------------------------------------------------------------------------------------------- the thread

void subscriber::run(std::unique_ptr<publisher_loop> loop) {
  ::pthread_setname_np(::pthread_self(), "cenote-events");
  for (;;) {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto cleared = ::read(wake_.get(), &count, sizeof(count));
    {
      const std::lock_guard lock(mutex_);
      if (is_stopping_) return;
    }
    carry_out(*loop);
    loop->round(is_stopping_);
    publish(*loop);
  }
}

void subscriber::carry_out(publisher_loop& loop) {
  std::vector<publisher_change> changes;
  {
    const std::lock_guard lock(mutex_);
    changes.swap(changes_);
  }
  for (const publisher_change& each : changes) {
    if (!each.settings) {
      loop.remove(each.name);
    } else if (auto added = loop.add(*each.settings); !added) {
      log_warn(logger("indexer"), "a publisher cannot be followed",
               {{"publisher", printable(each.name)}, {"reason", added.error().describe()}});
      const std::lock_guard lock(mutex_);
      const auto present = settings_.find(each.name);
      if (present != settings_.end() && present->second == *each.settings) settings_.erase(present);
    }
  }
}

void subscriber::publish(const publisher_loop& loop) {
  const feed_time now = std::chrono::steady_clock::now();
  if (now < next_table_ || (loop.turns() == table_turns_ && now < next_idle_table_)) return;
  table_turns_ = loop.turns();
  const std::chrono::nanoseconds begin = thread_time();
  auto made = std::make_shared<const publisher_table>(loop.table());
  const std::chrono::nanoseconds cost = thread_time() - begin;
  next_table_ = now + std::max<feed_time::duration>(options_.table_pause, table_share * cost);
  next_idle_table_ = now + std::max<feed_time::duration>(idle_table_pause, table_share * table_share * cost);
  const std::lock_guard lock(mutex_);
  table_.swap(made);
}

}  // namespace cenote::indexer
