#include "worker/publisher/snapshot_desk.hpp"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

namespace cenote::publishing {

bool snapshot_desk::ask(const std::string& peer, std::string topic, event_time now) {
  const auto is_same = [&](const snapshot_peer& each) { return each.name == peer; };
  std::erase_if(waiting_, is_same);
  if (active_) std::erase_if(active_->peers, is_same);
  if (waiting_.size() >= most_asking_peers) return false;
  waiting_.push_back({peer, std::move(topic), 0, now});
  return true;
}

void snapshot_desk::begin(event_time now) {
  if (active_ || waiting_.empty()) return;
  running_snapshot begun;
  begun.reader = next_reader_++;
  begun.peers = std::exchange(waiting_, {});
  for (snapshot_peer& each : begun.peers) each.heard_at = now;
  active_ = std::move(begun);
}

std::optional<change_reader> snapshot_desk::reader_of(event_medium medium) const {
  if (!active_ || active_->is_through[index_of(medium)] || active_->frames.size() >= most_frames) return std::nullopt;
  return active_->reader;
}

std::vector<change_reader> snapshot_desk::take_closed(event_medium medium) {
  return std::exchange(closed_[index_of(medium)], {});
}

void snapshot_desk::take_live(event_medium medium, const change_run& run, const event_rows& rows, double timestamp) {
  if (!active_ || active_->has_ended || !active_->is_through[index_of(medium)]) return;
  add_frames(medium, run, rows, timestamp);
  if (active_ && active_->frames.size() > 4 * most_frames) fail();  // the peers are too slow for what goes on here
}

void snapshot_desk::take(event_medium medium, change_reader reader, const change_run& run, const event_rows& rows,
                         double timestamp) {
  if (!active_ || active_->reader != reader || active_->is_through[index_of(medium)]) return;
  const bool had_begun = std::exchange(active_->has_begun[index_of(medium)], true);
  if (had_begun && run.begins_anew) return fail();
  add_frames(medium, run, rows, timestamp);
  if (!active_ || !run.is_complete) return;
  active_->is_through[index_of(medium)] = true;
  close_reader(medium);
  finish(rows);
}

void snapshot_desk::add_frames(event_medium medium, const change_run& run, const event_rows& rows, double timestamp) {
  std::map<shared_text, event_batcher> batchers;
  if (!rows.translate(medium, run.changes, batchers)) return fail();
  for (auto& [topic, each] : batchers) {
    for (std::string& payload : each.take(timestamp))
      active_->frames.push_back({topic, 0, std::make_shared<const std::string>(std::move(payload))});
  }
}

void snapshot_desk::close_reader(event_medium medium) {
  closed_[index_of(medium)].push_back(active_->reader);
}

/// The number of an end is that of the first live batch which is not in the snapshot.
void snapshot_desk::finish(const event_rows& rows) {
  const auto& through = active_->is_through;
  if (!std::all_of(through.begin(), through.begin() + static_cast<std::ptrdiff_t>(media_), std::identity())) return;
  const auto all = rows.rows();
  for (const auto& [topic, next] : all) active_->frames.push_back({topic, next, nullptr});
  std::set<std::string> unknown;
  for (const snapshot_peer& each : active_->peers) {
    const auto is_its = [&](const auto& row) { return each.topic.empty() || *row.first == each.topic; };
    if (std::ranges::none_of(all, is_its)) unknown.insert(each.topic);
  }
  for (const std::string& each : unknown)
    active_->frames.push_back({std::make_shared<const std::string>(each), 0, nullptr, true});
  active_->has_ended = true;
}

void snapshot_desk::fail() {
  if (!active_) return;
  for (std::size_t medium = 0; medium < media_; ++medium) {
    if (!active_->is_through[medium]) close_reader(static_cast<event_medium>(medium));
  }
  active_.reset();
}

bool snapshot_desk::step(const frame_sender& send, event_time now) {
  if (!active_) return false;
  std::erase_if(active_->peers, [&](snapshot_peer& each) { return !serve(each, *active_, send, now); });
  const std::size_t frames = active_->frames.size();
  if (active_->peers.empty()) {
    active_->has_ended ? active_.reset() : fail();
    return false;
  }
  if (std::ranges::any_of(active_->peers, [&](const snapshot_peer& each) { return each.next < frames; })) return true;
  if (active_->has_ended) {
    active_.reset();
    return false;
  }
  active_->frames.clear();
  for (snapshot_peer& each : active_->peers) each.next = 0;
  return false;
}

/// False: it is to be let go.
bool snapshot_desk::serve(snapshot_peer& peer, const running_snapshot& snapshot, const frame_sender& send,
                          event_time now) {
  for (std::size_t sent = 0; peer.next < snapshot.frames.size() && sent < frames_a_turn; ++peer.next) {
    const snapshot_frame& each = snapshot.frames[peer.next];
    const bool is_wanted = *each.topic == peer.topic || (peer.topic.empty() && !each.is_for_asker);
    if (!is_wanted) continue;
    const auto delivery = send(peer.name, *each.topic, each.seq, each.payload ? std::string_view(*each.payload) : "");
    if (delivery == frame_delivery::gone) return false;
    if (delivery == frame_delivery::full) return now - peer.heard_at < asking_patience;
    peer.heard_at = now;
    ++sent;
  }
  // Of a peer for which nothing waits nothing can be known.
  if (peer.next == snapshot.frames.size()) peer.heard_at = now;
  return true;
}

}  // namespace cenote::publishing
