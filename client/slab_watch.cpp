#include "client/slab_watch.hpp"

#include <sys/resource.h>

#include <algorithm>

#include "memory/block_ref.hpp"

namespace cenote::client {

namespace {

/// So many numbers in a row may belong to slabs that could not be made.
constexpr std::uint32_t longest_gap = 1024;
constexpr std::chrono::seconds pause_of_queries{1};

/// Each mapped slab has a descriptor; the others are the engine's.
std::size_t most_slabs() noexcept {
  rlimit open_files{};
  ::getrlimit(RLIMIT_NOFILE, &open_files);
  return static_cast<std::size_t>(open_files.rlim_cur / 2);
}

}  // namespace

memory::slab_state slab_watch::state_of(std::uint32_t index) const noexcept {
  const memory::slab_entry* entry = index < memory::block_ref::max_slabs ? versions_->slab(index) : nullptr;
  if (entry == nullptr) return memory::slab_state::none;
  return static_cast<memory::slab_state>(entry->state.load(std::memory_order_acquire));
}

void slab_watch::find_range() noexcept {
  latest_ = std::max(latest_, slabs_->latest());
  for (std::uint32_t index = latest_ + 1; index <= latest_ + longest_gap; ++index) {
    if (state_of(index) != memory::slab_state::none) latest_ = index;
  }
  const auto is_over = [&](std::uint32_t index) {
    const auto state = state_of(index);
    return state == memory::slab_state::retired || (state == memory::slab_state::none && latest_ - index > longest_gap);
  };
  while (oldest_ < latest_ && is_over(oldest_)) ++oldest_;
}

std::vector<std::uint32_t> slab_watch::not_queried(std::size_t limit) const {
  std::vector<std::uint32_t> found;
  for (std::uint32_t index = latest_; index >= oldest_ && found.size() < limit; --index) {
    if (state_of(index) != memory::slab_state::live || slabs_->find(index) != nullptr) continue;
    if (std::ranges::find(queried_, index) == queried_.end()) found.push_back(index);
  }
  return found;
}

std::vector<std::uint32_t> slab_watch::unmapped(std::size_t limit, std::chrono::steady_clock::time_point now) {
  if (slabs_->size() >= most_slabs()) return {};
  find_range();
  auto found = not_queried(limit);
  if (found.empty() && !queried_.empty() && now >= next_round_) {
    queried_.clear();
    found = not_queried(limit);
  }
  if (queried_.empty()) next_round_ = now + pause_of_queries;
  queried_.insert(queried_.end(), found.begin(), found.end());
  return found;
}

}  // namespace cenote::client
