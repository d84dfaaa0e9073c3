#include "tiers/blocks/prefetch_holds.hpp"

#include <algorithm>

namespace cenote::blocks {

bool prefetch_holds::hold(std::uint64_t job, session_number session, std::uint32_t record, std::uint64_t stride,
                          std::uint64_t most) {
  const auto found = held_for_.find(record);
  if (found == held_for_.end()) {
    if (bytes_ + stride > most) return false;
    bytes_ += stride;
  } else if (std::ranges::find(found->second.jobs, job) != found->second.jobs.end()) {
    return true;
  }
  holders& held = held_for_[record];
  held.stride = stride;
  held.jobs.push_back(job);
  job_holds& mine = job_holds_[job];
  mine.by = session;
  mine.records.push_back(record);
  return true;
}

std::vector<std::uint32_t> prefetch_holds::let_go(std::uint64_t job) {
  std::vector<std::uint32_t> loose;
  const auto found = job_holds_.find(job);
  if (found == job_holds_.end()) return loose;
  for (const std::uint32_t record : found->second.records) {
    const auto held = held_for_.find(record);
    if (held == held_for_.end() || std::erase(held->second.jobs, job) == 0 || !held->second.jobs.empty()) continue;
    bytes_ -= held->second.stride;
    held_for_.erase(held);
    loose.push_back(record);
  }
  job_holds_.erase(found);
  return loose;
}

std::vector<std::uint32_t> prefetch_holds::let_go_all(session_number session) {
  std::vector<std::uint64_t> jobs;
  for (const auto& [job, held] : job_holds_) {
    if (held.by == session) jobs.push_back(job);
  }
  std::vector<std::uint32_t> loose;
  for (const std::uint64_t job : jobs) {
    const std::vector<std::uint32_t> more = let_go(job);
    loose.insert(loose.end(), more.begin(), more.end());
  }
  return loose;
}

void prefetch_holds::forget_holds(std::uint32_t record) noexcept {
  const auto found = held_for_.find(record);
  if (found == held_for_.end()) return;
  bytes_ -= found->second.stride;
  held_for_.erase(found);
}

}  // namespace cenote::blocks
