// Of the planner: chains that are not known yet when they are asked for, since another engine makes them meanwhile.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "tiers/prefetch/planner.hpp"

namespace cenote::prefetch {

using memory::completion;
using memory::completion_kind;
using memory::handed_keys;

/// It is never compared with recomputing: whoever follows a request has decided to wait for it.
void planner::begin_follow(request incoming, time_point now) {
  const auto same = [&](const auto& each) {
    return each.second.session == incoming.session && each.second.chain == incoming.chain;
  };
  if (incoming.chain == 0 || std::ranges::any_of(jobs_, same) || std::ranges::any_of(held_, same))
    return refuse(incoming, error_code::invalid_argument);
  if (open_prefetches_of(incoming.session) >= max_session_prefetches)
    return refuse(incoming, error_code::limit_exceeded);
  ++counts_.started;
  ++counts_.follows;
  end_speculation();
  prefetch_job made;
  made.number = next_job_++;
  made.session = incoming.session;
  made.request = incoming.number;
  made.chain = incoming.chain;
  made.instance = incoming.instance;
  made.group = incoming.group;
  made.stride = incoming.stride;
  made.hold = true;
  made.stoppable = true;
  made.keys = std::make_shared<const std::vector<full_key>>();
  made.deadline = now + std::min(incoming.patience, options_.limit);
  made.follow = following{.asked = key_question{.request = incoming.number, .position = 0}};
  for (edge_number edge = 0; edge < max_edges; ++edge) {
    if (incoming.asks[edge]) made.follow->edge = edge;  // the last tier that is asked
  }
  orders_.push_back({.number = made.number,
                     .request = std::move(incoming.followed),
                     .node = std::move(incoming.node),
                     .patience = made.deadline - now,
                     .holder = std::move(incoming.holder)});
  jobs_.emplace(made.number, std::move(made));
}

bool planner::waits_for_more(const prefetch_job& job) noexcept {
  return job.follow && job.follow->is_open && job.end == job.keys->size();
}

/// As fits_key_limits(), of a chain that grows.
bool planner::fits_grown(const prefetch_job& job, std::size_t more) const {
  return job.keys->size() + more <= max_chain && fits_limits(keys_of(job.session), job.session, more);
}

void planner::on_news(handover::news news, time_point /*now*/) {
  prefetch_job* const job = find(news.number);
  if (job == nullptr || job->finishing || !job->follow || !waits_for_more(*job)) return;
  const std::size_t before = job->keys->size();
  if (news.first != before && !news.keys.empty()) return;  // of another order
  if (!fits_grown(*job, news.keys.size())) {
    job->follow->is_open = false;
    job->end_reason = reason::budget;
    return;
  }
  if (!news.keys.empty()) {
    auto grown = std::make_shared<std::vector<full_key>>();
    grown->reserve(before + news.keys.size());
    grown->insert(grown->end(), job->keys->begin(), job->keys->end());
    grown->insert(grown->end(), news.keys.begin(), news.keys.end());
    job->keys = std::move(grown);
    job->places.resize(job->keys->size(), {place::far, static_cast<std::uint8_t>(job->follow->edge)});
    job->named.resize(job->keys->size());
    job->end = job->keys->size();
    truncate_at(*job, job->end, job->end_reason);  // counts what is left to load
    counts_.wanted += news.keys.size();
  }
  job->follow->from = news.from;
  job->follow->code = news.code;
  if (news.code != error_code::ok) job->end_reason = reason::absent;
  if (news.is_over) job->follow->is_open = false;
}

void planner::end_order(const prefetch_job& job) {
  if (job.follow) orders_.push_back({.number = job.number, .ends = true});
}

/// The client asks for keys that it does not know yet.
void planner::on_question(const request& incoming) {
  const auto is_it = [&](const auto& each) {
    return each.second.session == incoming.session && each.second.chain == incoming.chain;
  };
  const key_question asked{.request = incoming.number, .position = incoming.position};
  if (const auto job = std::ranges::find_if(jobs_, is_it);
      job != jobs_.end() && job->second.follow && !job->second.follow->asked) {
    job->second.follow->asked = asked;
  } else if (const auto held = std::ranges::find_if(held_, is_it);
             held != held_.end() && held->second.code != error_code::ok) {
    fail_question(incoming.session, incoming.number, held->second.code);
    release_hold(held->first);
  } else if (held != held_.end() && held->second.keys) {
    tell_keys(incoming.session, asked, *held->second.keys, held->second.length, true);
  } else {
    refuse(incoming, error_code::invalid_argument);
  }
}

/// Of keys before `end`; `is_over`: there will be no more than those.
void planner::tell_keys(std::uint64_t session, const key_question& asked, const std::vector<full_key>& keys,
                        std::size_t end, bool is_over) {
  const std::size_t first = std::min(asked.position, end);
  const std::size_t count = std::min(end - first, handed_keys::most);
  std::size_t width = 0;
  completion made;
  made.request = asked.request;
  for (std::size_t i = first; i < first + count; ++i) {
    width = keys[i].size;
    made.kind = completion_kind::handed;
    for (std::size_t at = 0; at < width; at += handed_keys::piece_bytes, ++made.index) {
      const std::size_t bytes = std::min(handed_keys::piece_bytes, width - at);
      std::array<std::uint64_t, 2> words{};
      std::memcpy(words.data(), keys[i].bytes.data() + at, bytes);
      made.block = words[0];
      made.value = words[1];
      answers_.push_back({.session = session, .completion = made});
    }
  }
  answer last{.session = session, .completion = {}};
  last.completion.request = asked.request;
  last.completion.kind = completion_kind::done;
  last.completion.value = count;
  last.completion.grant_version = static_cast<std::uint32_t>(width);
  last.completion.block = is_over && first + count == end ? end + 1 : 0;
  answers_.push_back(last);
}

/// Of chains that grew.
void planner::answer_questions() {
  for (auto& [number, each] : jobs_) {
    if (!each.follow || !each.follow->asked || each.finishing || each.prefix <= each.follow->asked->position) continue;
    const key_question asked = *std::exchange(each.follow->asked, std::nullopt);
    tell_keys(each.session, asked, *each.keys, each.prefix, false);
  }
}

void planner::end_follow(std::map<std::uint64_t, prefetch_job>::iterator which, std::size_t length, time_point now) {
  const prefetch_job& done = which->second;
  ++counts_.finished;
  ++counts_.by_reason[static_cast<std::size_t>(done.end_reason)];
  counts_.followed += length;
  if (done.follow->asked && done.follow->code != error_code::ok) {
    fail_question(done.session, done.follow->asked->request, done.follow->code);
  } else if (done.follow->asked) {
    tell_keys(done.session, *done.follow->asked, *done.keys, length, true);
  }
  const bool has_heard = done.follow->code != error_code::ok && done.follow->asked;
  if (done.hold && !has_heard) {  // why it failed is the answer to its next question
    held_.emplace(done.number, held_job{done.session, done.chain, done.instance, done.charged, now + options_.claim,
                                        done.keys, length, done.follow->code});
  } else {
    commands_.push_back({.what = command::kind::release, .job = done.number, .session = done.session, .keys = {}});
    refund(done.instance, done.charged);
  }
  jobs_.erase(which);
}

}  // namespace cenote::prefetch
