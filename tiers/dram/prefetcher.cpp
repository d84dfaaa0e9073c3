#include "tiers/dram/prefetcher.hpp"

#include <algorithm>

namespace cenote::dram {

void prefetcher::add(prefetch_wish wish, coarse_time now) {
  job made;
  made.end = wish.keys.size();
  made.wish = std::move(wish);
  made.deadline = now + patience_;
  jobs_.push_back(std::move(made));
}

void prefetcher::settle(std::span<const transfer_outcome> ended) {
  for (job& each : jobs_) {
    for (const transfer_outcome& outcome : ended) each.awaited.erase(outcome.token);
  }
}

bool prefetcher::start_loads(job& of, store& in, coarse_time now) {
  for (; of.next < of.end; ++of.next) {
    const load_answer answer = in.load(of.wish.instance, of.wish.group, of.wish.keys[of.next], now);
    switch (answer.state) {
      case load_state::present: break;
      case load_state::loading: of.awaited.insert(answer.token); break;
      case load_state::wait: return false;
      case load_state::absent:
      case load_state::busy:
      case load_state::no_space: of.end = of.next; return true;
    }
  }
  return true;
}

prefetch_answer prefetcher::answer(const job& done, const store& in) {
  const auto absent = std::ranges::find_if_not(
      done.wish.keys, [&](const full_key& key) { return in.is_present(done.wish.instance, done.wish.group, key); });
  prefetch_answer said{.session = done.wish.session, .completion = {}};
  said.completion.request = done.wish.request;
  said.completion.kind = memory::completion_kind::done;
  said.completion.value = static_cast<std::uint64_t>(absent - done.wish.keys.begin());
  return said;
}

std::vector<prefetch_answer> prefetcher::advance(store& in, coarse_time now) {
  std::vector<prefetch_answer> answers;
  bool room = true;
  for (job& each : jobs_) {
    room = room && start_loads(each, in, now);
    const bool done = each.next >= each.end && each.awaited.empty();
    if (!done && each.deadline > now) continue;
    answers.push_back(answer(each, in));
    each.wish.keys.clear();
  }
  std::erase_if(jobs_, [](const job& each) { return each.wish.keys.empty(); });
  return answers;
}

void prefetcher::forget(session_number session) {
  std::erase_if(jobs_, [&](const job& each) { return each.wish.session == session; });
}

}  // namespace cenote::dram
