#include "worker/publisher/replay_desk.hpp"

#include <algorithm>
#include <limits>

namespace cenote::publishing {

namespace {

constexpr std::uint64_t end_of_replay = std::numeric_limits<std::uint64_t>::max();

}  // namespace

bool replay_desk::ask(const std::string& peer, std::string topic, std::uint64_t start, const event_rows& rows,
                      event_time now) {
  std::erase_if(jobs_, [&](const replay_job& each) { return each.peer == peer; });
  if (jobs_.size() >= most_asking_peers) return false;
  jobs_.push_back({peer, std::move(topic), start, rows.ring().first(), now});
  return true;
}

bool replay_desk::step(const event_rows& rows, const frame_sender& send, event_time now) {
  std::erase_if(jobs_, [&](replay_job& each) { return advance(each, rows, send, now) == replay_progress::ended; });
  return !jobs_.empty();
}

replay_desk::replay_progress replay_desk::advance(replay_job& job, const event_rows& rows, const frame_sender& send,
                                                  event_time now) {
  const event_ring& ring = rows.ring();
  job.place = std::max(job.place, ring.first());  // what left meanwhile is a hole, which the subscriber sees
  const auto take = [&](frame_delivery delivery) {
    if (delivery == frame_delivery::done) job.heard_at = now;
    return delivery;
  };
  const auto after = [&](frame_delivery delivery) {
    return delivery == frame_delivery::gone || now - job.heard_at >= asking_patience ? replay_progress::ended
                                                                                     : replay_progress::going_on;
  };
  for (std::size_t sent = 0; job.place < ring.end(); ++job.place) {
    const numbered_batch& each = ring.batch_at(job.place);
    if (!each.topic || each.seq < job.start || (!job.topic.empty() && *each.topic != job.topic)) continue;
    if (sent == frames_a_turn) return replay_progress::going_on;
    const auto delivery = take(send(job.peer, *each.topic, each.seq, *each.payload));
    if (delivery != frame_delivery::done) return after(delivery);
    ++sent;
  }
  const auto known = rows.rows();
  const std::string only = job.topic.empty() && known.size() == 1 ? *known.front().first : job.topic;
  const auto delivery = take(send(job.peer, only, end_of_replay, {}));
  return delivery == frame_delivery::done ? replay_progress::ended : after(delivery);
}

}  // namespace cenote::publishing
