// The lock is held for the queue and for copies of figures, never while the index changes.
#include "services/indexer/service/indexer_writer.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "config/logging.hpp"

namespace cenote::indexer {

void indexer_writer::open(publisher_id publisher, const publisher_identity& identity) {
  if (auto opened = payloads_.open(publisher, identity); !opened) {
    ++present_.refused_publishers;
    if (refused_.empty())
      log_warn(logger("indexer"), "a publisher finds no room in the index; it is tried again, as are others",
               {{"reason", opened.error().message()}});
    if (opened.error().code() == error_code::limit_exceeded) refused_.insert_or_assign(publisher, identity);
  }
}

batch_effect indexer_writer::apply(publisher_id publisher, std::string_view topic, const feed_apply& batch) {
  const auto begin = std::chrono::steady_clock::now();
  const batch_effect effect = payloads_.apply(publisher, topic, batch.payload.bytes);
  present_.apply_ns += static_cast<std::uint64_t>((std::chrono::steady_clock::now() - begin).count());
  return effect;
}

void indexer_writer::clear(publisher_id publisher, clear_reason /*reason*/) {
  payloads_.blocks().clear(publisher);
}

void indexer_writer::mark(publisher_id publisher, const feed_mark& mark) {
  payloads_.blocks().mark(publisher, {.is_hidden = !mark.is_in_answers, .is_degraded = mark.is_degraded});
}

void indexer_writer::close(publisher_id publisher) {
  payloads_.close(publisher);
  refused_.erase(publisher);
}

std::vector<publisher_id> indexer_writer::advance(feed_time now) {
  payloads_.set_clock(now);
  payloads_.blocks().set_expectation(std::chrono::milliseconds(expectation_.load(std::memory_order_relaxed)));
  run_tasks();
  payloads_.blocks().advance(now);
  payloads_.sweep();
  publish_figures(now);
  return find_room(now);
}

// A few a second: where one finds no room, others seldom do.
std::vector<publisher_id> indexer_writer::find_room(feed_time now) {
  constexpr std::size_t tries = 16;
  std::vector<publisher_id> found;
  if (refused_.empty() || now < next_try_) return found;
  next_try_ = now + std::chrono::seconds(1);
  auto next = refused_.lower_bound(next_refused_);
  std::size_t failures = 0;
  for (std::size_t left = refused_.size(); left != 0 && failures < tries && found.size() < tries; --left) {
    if (next == refused_.end()) next = refused_.begin();
    const auto& [publisher, identity] = *next++;
    if (!payloads_.blocks().open(publisher, identity)) {
      ++failures;
      continue;
    }
    payloads_.blocks().close(publisher);
    found.push_back(publisher);
  }
  next_refused_ = next == refused_.end() ? 0 : next->first;
  return found;
}

void indexer_writer::run_tasks() {
  std::vector<writer_task> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
    task_bytes_ = 0;
  }
  for (const writer_task& each : tasks) each(index_, payloads_.blocks());
}

void indexer_writer::publish_figures(feed_time now) {
  constexpr std::size_t few_publishers = 256;
  if (now >= next_sum_ || payloads_.size() <= few_publishers) {
    next_sum_ = now + std::chrono::seconds(1);
    present_.events = payloads_.counters();
  }
  present_.bad_batches = payloads_.bad_batches();
  present_.index = index_.figures();
  const std::lock_guard lock(mutex_);
  published_ = present_;
}

result<void> indexer_writer::post(writer_task action, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (tasks_.size() >= most_tasks || task_bytes_ + bytes > most_task_bytes) {
    return fail(error_code::limit_exceeded,
                std::to_string(tasks_.size()) + " requests wait for the index's writer; try again later");
  }
  tasks_.push_back(std::move(action));
  task_bytes_ += bytes;
  return {};
}

writer_figures indexer_writer::figures() const {
  const std::lock_guard lock(mutex_);
  return published_;
}

}  // namespace cenote::indexer
