#include "services/indexer/grpc/pod_watch.hpp"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <new>
#include <utility>

namespace cenote::indexer {

namespace {

constexpr std::chrono::milliseconds look_pause{1000};
constexpr std::chrono::milliseconds send_pause{20};           ///< while some watcher does not have all yet
constexpr std::size_t message_bytes = std::size_t{1} << 20U;  ///< about; clients take 4 MiB

}  // namespace

pod_watch::pod_watch(std::unique_ptr<indexer_calls> calls) : calls_(std::move(calls)) {
  thread_ = std::thread([this] { run(); });
}

void pod_watch::add(std::shared_ptr<rpc::open_call> call) {
  {
    const std::lock_guard lock(mutex_);
    if (is_stopping_) return call->refuse(rpc::call_status::unavailable, "the indexer stops");
    if (count_ >= most_watchers) {
      return call->refuse(rpc::call_status::resource_exhausted,
                          std::to_string(count_) + " clients watch the pods already; there may be no more");
    }
    ++count_;
    arrived_.push_back(std::move(call));
  }
  wake_.notify_one();
}

void pod_watch::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void pod_watch::run() {
  ::pthread_setname_np(::pthread_self(), "cenote-watch");
  auto next_look = std::chrono::steady_clock::now();
  auto next_send = std::chrono::steady_clock::time_point::max();
  while (wait(watchers_.empty() ? std::chrono::steady_clock::time_point::max() : std::min(next_look, next_send))) {
    const auto now = std::chrono::steady_clock::now();
    const bool is_due = now >= next_look || std::ranges::any_of(watchers_, &pod_watcher::is_new);
    if (is_due) next_look = now + look_pause;
    try {
      if (is_due) look();
      next_send = send_changes() ? now + send_pause : std::chrono::steady_clock::time_point::max();
    } catch (const std::bad_alloc&) {
      next_send = next_look;  // there may be memory then
    }
  }
  for (const pod_watcher& each : watchers_) each.call->refuse(rpc::call_status::unavailable, "the indexer stops");
  watchers_.clear();
}

bool pod_watch::wait(std::chrono::steady_clock::time_point due) {
  std::unique_lock lock(mutex_);
  const auto is_due = [this] { return is_stopping_ || !arrived_.empty(); };
  if (due == std::chrono::steady_clock::time_point::max()) {
    wake_.wait(lock, is_due);
  } else {
    wake_.wait_until(lock, due, is_due);
  }
  for (auto& call : arrived_) watchers_.push_back({.call = std::move(call)});
  arrived_.clear();
  std::erase_if(watchers_, [](const pod_watcher& each) { return each.call->is_over(); });
  count_ = watchers_.size();
  return !is_stopping_;
}

void pod_watch::look() {
  ++looks_;
  const auto visited = calls_->pods([this](const pod_status& status) {
    const auto place = rows_
                           .try_emplace({std::string(status.pod), status.dp_rank, std::string(status.model),
                                         std::string(status.publisher)})
                           .first;
    place->second.look = looks_;
    set(place, {.state = std::string(status.state),
                .last_seq = status.last_seq,
                .blocks = status.blocks,
                .gaps = status.gaps,
                .replayed = status.replayed,
                .behind_s = status.behind_s});
  });
  if (!visited) return;
  for (auto place = rows_.begin(); place != rows_.end(); ++place) {
    if (place->second.look != looks_ && !place->second.state.is_removed) set(place, {.is_removed = true});
  }
  forget_removed();
}

void pod_watch::set(row_map::iterator place, row_state state) {
  pod_row& changed = place->second;
  if (changed.change != 0 && changed.state == state) return;
  changes_.erase(changed.change);
  changed.state = std::move(state);
  changed.change = ++last_change_;
  changes_.emplace(changed.change, place);
}

// A removed row stays until all watchers have been sent its end.
void pod_watch::forget_removed() {
  std::uint64_t sent = last_change_;
  for (const pod_watcher& each : watchers_) {
    if (!each.is_new) sent = std::min(sent, each.sent);
  }
  for (auto change = changes_.begin(); change != changes_.end() && change->first <= sent;) {
    const auto place = change->second;
    if (place->second.state.is_removed) {
      change = changes_.erase(change);
      rows_.erase(place);
    } else {
      ++change;
    }
  }
}

bool pod_watch::send_changes() {
  for (pod_watcher& each : watchers_) send_to(each);
  return std::ranges::any_of(watchers_,
                             [this](const pod_watcher& each) { return each.is_new || each.sent < last_change_; });
}

void pod_watch::send_to(pod_watcher& target) {
  if (target.call->is_sending() || (!target.is_new && target.sent == last_change_)) return;
  std::uint64_t last = target.sent;
  if (!target.call->send(message_for(target, last))) return;
  target.sent = last;
  target.is_new = false;
}

std::string pod_watch::message_for(const pod_watcher& target, std::uint64_t& last) const {
  messages::WatchPodsResponse response;
  std::size_t bytes = 0;
  last = last_change_;
  for (auto change = changes_.upper_bound(target.sent); change != changes_.end(); ++change) {
    const auto& [name, current] = *change->second;
    messages::PodState& entry = *(current.state.is_removed ? response.add_removed() : response.add_pods());
    const auto& [pod, rank, model, publisher] = name;
    entry.set_pod(pod);
    entry.set_dp_rank(rank);
    entry.set_model(model);
    entry.set_publisher(publisher);
    if (!current.state.is_removed) write_state(current.state, entry);
    bytes += entry.ByteSizeLong();
    if (bytes < message_bytes) continue;
    last = change->first;
    break;
  }
  return response.SerializeAsString();
}

void pod_watch::write_state(const row_state& state, messages::PodState& entry) const {
  entry.set_state(state.state);
  if (state.last_seq) entry.set_last_seq(*state.last_seq);
  for (std::size_t medium = 0; medium < most_media; ++medium) {
    if (state.blocks[medium] == 0) continue;
    (*entry.mutable_blocks())[std::string(calls_->medium_name(static_cast<medium_number>(medium)))] =
        state.blocks[medium];
  }
  entry.set_gaps(state.gaps);
  entry.set_replayed(state.replayed);
  entry.set_behind_s(state.behind_s);
}

}  // namespace cenote::indexer
