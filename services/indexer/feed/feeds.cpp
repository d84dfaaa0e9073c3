// Two orders of the feeds, by their next alarm and by the time since which they want a replay.
#include "services/indexer/feed/feeds.hpp"

#include <algorithm>
#include <string>

namespace cenote::indexer {

result<publisher_id> feeds::obtain(std::string_view name, const feed_options& options) {
  if (const auto present = find(name)) return *present;
  if (name.empty() || name.size() > options_.name_bytes) {
    ++counters_.refused_names;
    return fail(error_code::invalid_argument, "a publisher's name has " + std::to_string(name.size()) +
                                                  " bytes; it may have 1 to " + std::to_string(options_.name_bytes));
  }
  if (entries_.size() >= options_.publishers) {
    ++counters_.refused_publishers;
    return fail(error_code::limit_exceeded, "there are " + std::to_string(options_.publishers) +
                                                " publishers, and there may be no more: delete some that are gone");
  }
  const publisher_id made = next_++;
  entries_.try_emplace(made, name, options, &total_);
  ids_.emplace(name, made);
  return made;
}

std::optional<publisher_id> feeds::find(std::string_view name) const {
  const auto found = ids_.find(name);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

void feeds::erase(publisher_id publisher) {
  const auto found = entries_.find(publisher);
  if (found == entries_.end()) return;
  withdraw(publisher, found->second);
  ids_.erase(found->second.name);
  entries_.erase(found);
  std::erase_if(commands_, [publisher](const publisher_command& each) { return each.publisher == publisher; });
}

void feeds::advance(feed_time now) {
  std::vector<publisher_id> due;
  for (auto next = alarms_.begin(); next != alarms_.end() && next->first <= now; ++next) due.push_back(next->second);
  for (const publisher_id each : due) {
    followed_publisher& changed = entries_.at(each);
    changed.batches.advance(now);
    refresh(each, changed, now);
  }
  grant(now);
}

feed_time feeds::wake_at() const noexcept {
  const feed_time alarm = alarms_.empty() ? feed_time::max() : alarms_.begin()->first;
  const auto first_of = [](const schedule& turns, bool is_free) {
    return is_free && !turns.empty() ? turns.begin()->first : feed_time::max();
  };
  return std::min({alarm, first_of(turns_, replays_ < options_.replays),
                   first_of(doubtful_turns_, doubtful_replays_ < options_.doubtful_replays)});
}

std::vector<publisher_command> feeds::take_commands() {
  return std::exchange(commands_, {});
}

const feed* feeds::feed_of(publisher_id publisher) const noexcept {
  const auto found = entries_.find(publisher);
  return found == entries_.end() ? nullptr : &found->second.batches;
}

std::string_view feeds::name_of(publisher_id publisher) const noexcept {
  const auto found = entries_.find(publisher);
  return found == entries_.end() ? std::string_view() : std::string_view(found->second.name);
}

std::vector<publisher_id> feeds::publishers() const {
  std::vector<publisher_id> all;
  all.reserve(entries_.size());
  for (const auto& [publisher, each] : entries_) all.push_back(publisher);
  return all;
}

void feeds::withdraw(publisher_id publisher, followed_publisher& target) {
  if (target.alarm != feed_time::max()) alarms_.erase({target.alarm, publisher});
  if (target.turn != feed_time::max()) (target.is_doubtful ? doubtful_turns_ : turns_).erase({target.turn, publisher});
  if (target.is_replaying) --count_of(target);
  unready_ -= target.is_unready ? 1 : 0;
}

std::size_t& feeds::count_of(const followed_publisher& replaying) noexcept {
  if (replaying.is_slow) return slow_replays_;
  return replaying.is_doubtful ? doubtful_replays_ : replays_;
}

void feeds::refresh(publisher_id publisher, followed_publisher& changed, feed_time now) {
  withdraw(publisher, changed);
  changed.alarm = changed.batches.wake_at();
  changed.turn = changed.batches.replay_at();
  changed.is_replaying = changed.batches.is_replaying();
  changed.is_doubtful = changed.batches.is_doubtful();
  changed.is_unready = !changed.batches.is_ready() && changed.batches.mark().state == publisher_state::replaying;
  if (changed.turn != feed_time::max())
    (changed.is_doubtful ? doubtful_turns_ : turns_).emplace(changed.turn, publisher);
  if (!changed.is_replaying)
    changed.turn_end = feed_time::max();
  else if (changed.turn_end == feed_time::max())
    changed.turn_end = now + options_.turn;
  changed.is_slow = changed.turn_end <= now && slow_replays_ < options_.slow_replays;
  if (changed.is_replaying) ++count_of(changed);
  if (changed.turn_end > now) changed.alarm = std::min(changed.alarm, changed.turn_end);
  if (changed.alarm != feed_time::max()) alarms_.emplace(changed.alarm, publisher);
  unready_ += changed.is_unready ? 1 : 0;
  for (feed_command& each : changed.batches.take_commands()) commands_.push_back({publisher, std::move(each)});
}

// Publishers that did not answer the last time have turns of their own, so that they take none of others; one whose
// answer is slow gives its turn up and goes on.
void feeds::grant(feed_time now) {
  grant(turns_, replays_, options_.replays, now);
  grant(doubtful_turns_, doubtful_replays_, options_.doubtful_replays, now);
}

void feeds::grant(schedule& turns, std::size_t& running, std::size_t bound, feed_time now) {
  while (running < bound && !turns.empty() && turns.begin()->first <= now) {
    const publisher_id next = turns.begin()->second;
    followed_publisher& chosen = entries_.at(next);
    chosen.batches.begin_replay(now);
    refresh(next, chosen, now);
  }
}

}  // namespace cenote::indexer
