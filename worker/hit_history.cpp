#include "worker/hit_history.hpp"

namespace cenote {

namespace {

void add(hit_span& sum, const hit_span& span) {
  sum.end = span.end;
  sum.looked_up += span.looked_up;
  sum.hits += span.hits;
  sum.lower_hits += span.lower_hits;
}

/// The growth since `earlier`; all of it where the counters began again.
hit_span difference(const hit_span& now, const hit_span& earlier) {
  const bool is_new =
      now.looked_up < earlier.looked_up || now.hits < earlier.hits || now.lower_hits < earlier.lower_hits;
  if (is_new) return now;
  return {.end = now.end,
          .looked_up = now.looked_up - earlier.looked_up,
          .hits = now.hits - earlier.hits,
          .lower_hits = now.lower_hits - earlier.lower_hits};
}

}  // namespace

hit_span sum_of(std::span<const hit_span> spans) {
  hit_span sum;
  for (const hit_span& each : spans) add(sum, each);
  return sum;
}

hit_history::instance_counts hit_history::counts_of(const blocks::instance_status& instance) {
  return {.questions = {.end = {},
                        .looked_up = instance.match_tokens,
                        .hits = instance.match_resident_tokens,
                        .lower_hits = instance.match_lower_tokens},
          .reads = {.end = {}, .looked_up = instance.read_tokens, .hits = instance.read_resident_tokens}};
}

hit_span hit_history::open_span(std::span<const blocks::instance_status> instances, clock::time_point now) const {
  hit_span sum;
  for (const blocks::instance_status& each : instances) {
    const instance_counts all = counts_of(each);
    const auto before = last_.find(each.id);
    const instance_counts then = before == last_.end() ? instance_counts() : before->second;
    const bool asks = all.questions.looked_up > 0;
    add(sum, asks ? difference(all.questions, then.questions) : difference(all.reads, then.reads));
  }
  sum.end = now;
  return sum;
}

void hit_history::end_span(std::span<const blocks::instance_status> instances, clock::time_point now) {
  if (is_begun_) spans_.push_back(open_span(instances, now));
  if (spans_.size() > span_count) spans_.pop_front();
  is_begun_ = true;
  last_.clear();
  for (const blocks::instance_status& each : instances) last_.insert_or_assign(each.id, counts_of(each));
}

std::vector<hit_span> hit_history::spans(std::span<const blocks::instance_status> instances,
                                         clock::time_point now) const {
  std::vector<hit_span> all(spans_.begin(), spans_.end());
  if (is_begun_) all.push_back(open_span(instances, now));
  return all;
}

}  // namespace cenote
