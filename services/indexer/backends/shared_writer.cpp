#include "services/indexer/backends/shared_writer.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include "config/logging.hpp"
#include "core/checksum.hpp"
#include "services/indexer/backends/index_commands.hpp"

namespace cenote::indexer {

namespace {

constexpr std::size_t task_bytes = 512;  // of an entry of the queue, beside its batch

}  // namespace

result<std::unique_ptr<shared_writer>> shared_writer::start(redis::server_access access, const token_processor& keys,
                                                            const shared_placer_options& options, shared_facts& facts,
                                                            shared_counters& counters) {
  auto line = shared_line::make(std::move(access), facts, counters);
  if (!line) return std::unexpected(line.error());
  std::unique_ptr<shared_writer> made(new shared_writer(std::move(*line), keys, options, facts, counters));
  try {
    made->begin();
  } catch (const std::system_error& failure) {
    return fail(error_code::system, std::string("no thread for the shared index: ") + failure.what());
  }
  return made;
}

shared_writer::shared_writer(std::unique_ptr<shared_line> line, const token_processor& keys,
                             const shared_placer_options& options, shared_facts& facts, shared_counters& counters)
    : facts_(facts), counters_(counters), line_(std::move(line)), placer_(keys, *line_, options) {}

void shared_writer::begin() {
  thread_ = std::thread([this] { run(); });
}

shared_writer::~shared_writer() {
  stop();
}

void shared_writer::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    arrival_.notify_all();
  }
  line_->stop();
  if (thread_.joinable()) thread_.join();
}

// ---------------------------------------------------------------------------------------------- the subscriber's
// thread

void shared_writer::open(publisher_id publisher, const publisher_identity& identity) {
  auto& added = publishers_
                    .insert_or_assign(publisher,
                                      writer_publisher{.identity = identity, .adapter = event_adapter(identity.engine)})
                    .first->second;
  if (!enqueue({.kind = task_kind::open, .publisher = publisher, .identity = identity})) added.is_lost = true;
  has_marks_changed_ = true;
}

batch_effect shared_writer::apply(publisher_id publisher, std::string_view topic, const feed_apply& batch) {
  const auto found = publishers_.find(publisher);
  if (found == publishers_.end()) return {};
  writer_publisher& target = found->second;
  const bool is_first = std::exchange(target.is_new, false);
  if (target.is_lost) {
    ++counters_.dropped_batches;
    return {};
  }
  const auto begin = std::chrono::steady_clock::now();
  write_task added{.kind = task_kind::batch, .publisher = publisher};
  const bool is_read = target.adapter.parse(topic, batch.payload.bytes, added.batch).has_value();
  batch_effect effect{.is_unread = !is_read || added.batch.unread_removals > 0};
  const bool is_cleared = std::ranges::any_of(
      added.batch.events, [](const engine_event& event) { return event.kind == event_kind::cleared; });
  effect.is_all_cleared = is_cleared && target.identity.clear == clear_scope::all;
  // The first batch of a life has number 0; in a snapshot each has it.
  if (is_first && batch.seq == 0 && batch.source != batch_source::snapshot) {
    added.life = checksum_of(batch.payload.bytes);
  }
  added.bytes = bytes_of(added.batch);
  {
    const std::lock_guard lock(mutex_);
    if (!is_read) ++figures_.bad_batches;
    figures_.apply_ns += static_cast<std::uint64_t>((std::chrono::steady_clock::now() - begin).count());
    effect.is_parent_unknown = orphans_.erase(publisher) > 0;
  }
  if (is_read && !enqueue(std::move(added))) {
    ++counters_.dropped_batches;
    lose(target);
  }
  return effect;
}

std::size_t shared_writer::bytes_of(const event_batch& batch) noexcept {
  return batch.events.capacity() * sizeof(engine_event) + batch.hashes.capacity() * sizeof(std::uint64_t) +
         batch.leading_hashes.capacity() * sizeof(std::uint64_t) + batch.tokens.capacity() * sizeof(std::uint32_t) +
         batch.extra_keys.bytes.capacity() + batch.extra_keys.blocks.capacity() * sizeof(array_range) +
         batch.text.capacity();
}

bool shared_writer::enqueue(write_task added) {
  added.bytes += task_bytes;
  const std::lock_guard lock(mutex_);
  if (waiting_.size() >= most_waiting_tasks || waiting_bytes_ + added.bytes > most_waiting_bytes) {
    // One that is larger than the queue goes alone.
    if (!waiting_.empty()) return false;
  }
  waiting_bytes_ += added.bytes;
  counters_.waiting_bytes = waiting_bytes_;
  waiting_.push_back(std::move(added));
  arrival_.notify_one();
  return true;
}

void shared_writer::clear(publisher_id publisher, clear_reason reason) {
  const auto found = publishers_.find(publisher);
  if (found == publishers_.end() || found->second.is_lost) return;
  const std::string& pod = found->second.identity.pod;
  // Other reasons, and events that clear, come again in each replay: asking the others would never end.
  if (reason == clear_reason::restart) {
    found->second.is_new = true;
    lose_others(publisher, pod);
  }
  if (!enqueue({.kind = task_kind::clear, .publisher = publisher, .pod = pod})) lose(found->second);
}

void shared_writer::mark(publisher_id publisher, const feed_mark& mark) {
  const auto found = publishers_.find(publisher);
  if (found == publishers_.end()) return;
  found->second.mark = mark;
  has_marks_changed_ = true;
}

void shared_writer::close(publisher_id publisher) {
  const auto found = publishers_.find(publisher);
  if (found == publishers_.end()) return;
  const bool is_rebuilt = found->second.is_lost;
  write_task added{.kind = task_kind::close,
                   .publisher = publisher,
                   .pod = found->second.identity.pod,
                   .reach = shared_line::clear_reach::own_keys};
  if (!is_rebuilt) lose_others(publisher, added.pod);
  publishers_.erase(found);
  has_marks_changed_ = true;
  if (!enqueue(std::move(added))) ++counters_.dropped_batches;
  const std::lock_guard lock(mutex_);
  orphans_.erase(publisher);
  reborn_.erase(publisher);
}

// Entries are of a pod, not of its publishers: what is cleared for one is asked for anew from the others.
void shared_writer::lose_others(publisher_id publisher, std::string_view pod) {
  for (auto& [number, other] : publishers_) {
    if (number != publisher && other.identity.pod == pod && other.identity.kind != publisher_kind::node) lose(other);
  }
}

void shared_writer::lose(writer_publisher& publisher) {
  publisher.is_lost = true;
  has_marks_changed_ = true;
}

void shared_writer::take_reports() {
  if (const std::uint64_t present = line_->data_set(); present != data_set_) {
    data_set_ = present;
    for (auto& [number, publisher] : publishers_) lose(publisher);
    rebuilt_.clear();
  }
  std::set<publisher_id> reborn;
  {
    const std::lock_guard lock(mutex_);
    reborn.swap(reborn_);
  }
  for (const publisher_id each : reborn) {
    if (const auto found = publishers_.find(each); found != publishers_.end()) {
      lose_others(each, found->second.identity.pod);
    }
  }
}

std::vector<publisher_id> shared_writer::advance(feed_time now) {
  constexpr auto rebuild_pause = std::chrono::seconds(10);  // of a pod, whatever happens to its publishers
  take_reports();
  if (std::exchange(has_marks_changed_, false)) publish_marks();
  std::vector<publisher_id> lost;
  if (!counters_.is_serving || counters_.waiting_bytes > most_waiting_bytes / 2) return lost;
  std::erase_if(rebuilt_, [&](const auto& entry) { return now - entry.second >= rebuild_pause; });
  std::set<std::string_view> pods;
  for (const auto& [number, publisher] : publishers_) {
    const std::string& pod = publisher.identity.pod;
    if (publisher.is_lost && !rebuilt_.contains(pod)) pods.insert(pod);
  }
  for (auto& [number, publisher] : publishers_) {
    if (!pods.contains(publisher.identity.pod)) continue;
    publisher.is_lost = true;  // all of a pod begin anew together, each behind the same clear
    lost.push_back(number);
    ++counters_.rebuilt_publishers;
  }
  for (const std::string_view pod : pods) rebuilt_.emplace(pod, now);
  return lost;
}

void shared_writer::publish_marks() {
  std::map<std::string, fact_sheet::name_set, std::less<>> degraded;
  fact_sheet::name_set hidden, visible;
  for (const auto& [number, publisher] : publishers_) {
    const publisher_identity& of = publisher.identity;
    (publisher.mark.is_in_answers ? visible : hidden).insert(of.pod);
    if (publisher.mark.is_degraded || publisher.is_lost) degraded[of.model].insert(of.pod);
  }
  std::erase_if(hidden, [&](const std::string& pod) { return visible.contains(pod); });
  facts_.set_marks(std::move(degraded), std::move(hidden));
}

result<void> shared_writer::clear_pod(std::string_view pod, std::string_view tier, std::function<void()> done) {
  write_task added{.kind = task_kind::clear,
                   .pod = std::string(pod),
                   .tier = std::string(tier),
                   .reach = shared_line::clear_reach::all_keys,
                   .done = std::move(done)};
  if (enqueue(std::move(added))) return {};
  return fail(error_code::limit_exceeded, "too much waits for the shared index; try again later");
}

shared_figures shared_writer::figures() const {
  const std::lock_guard lock(mutex_);
  return figures_;
}

// ---------------------------------------------------------------------------------------------- the writer's thread

void shared_writer::run() {
  constexpr std::chrono::milliseconds longest_wait{200};
  std::unique_lock lock(mutex_);
  while (!is_stopping_) {
    if (waiting_.empty()) {
      lock.unlock();
      line_->flush();
      line_->look();
      lock.lock();
      arrival_.wait_for(lock, longest_wait, [this] { return is_stopping_ || !waiting_.empty(); });
      continue;
    }
    write_task next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    carry_out(next);
    const std::size_t bytes = next.bytes;
    next = {};
    lock.lock();
    waiting_bytes_ -= bytes;
    counters_.waiting_bytes = waiting_bytes_;
    figures_.events = placer_.counters();
  }
}

void shared_writer::carry_out(write_task& next) {
  switch (next.kind) {
    case task_kind::open: placer_.open(next.publisher, next.identity); break;
    case task_kind::batch: {
      const publisher_identity* const publisher = placer_.find(next.publisher);
      if (publisher == nullptr) return;
      if (next.life) check_life(next, *publisher);
      if (!placer_.apply(next.publisher, next.batch)) return;
      const std::lock_guard lock(mutex_);
      orphans_.insert(next.publisher);
      break;
    }
    case task_kind::close:
      placer_.close(next.publisher);
      empty_pod(next.pod, next.tier, next.reach);
      break;
    case task_kind::clear:
      empty_pod(next.pod, next.tier, next.reach);
      if (next.done) next.done();
      break;
  }
}

/// Takes the pod's entries from the server, and with them what stands for parts of blocks here.
void shared_writer::empty_pod(std::string_view pod, std::string_view tier, shared_line::clear_reach reach) {
  placer_.clear(pod, tier);
  line_->clear(pod, tier, reach);
}

/// Entries of an earlier life of an engine, which ended while no indexer ran.
void shared_writer::check_life(const write_task& next, const publisher_identity& publisher) {
  const std::string key = shared_keys::life_key(publisher.pod, publisher.model, next.batch.dp_rank);
  const std::string present = std::to_string(*next.life);
  const auto earlier = line_->replace(key, present);
  if (!earlier || *earlier == present) return;
  empty_pod(publisher.pod, {}, shared_line::clear_reach::own_keys);
  const std::lock_guard lock(mutex_);
  reborn_.insert(next.publisher);
}

}  // namespace cenote::indexer
