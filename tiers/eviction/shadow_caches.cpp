#include "tiers/eviction/shadow_caches.hpp"

#include <algorithm>
#include <cassert>

#include "tiers/eviction/registry.hpp"
#include "tiers/eviction/simulated_pool.hpp"

namespace cenote::eviction {

/// One pool while it serves a request.
class shadow_caches::serving_pool {
 public:
  serving_pool(shadow_caches& all, std::size_t which, std::uint32_t now) noexcept
      : all_(&all), pool_(&all.pools_[which]), which_(which), now_(now) {}

  [[nodiscard]] bool holds(std::uint32_t block) const noexcept { return (all_->holdings_[block].holders & bit()) != 0; }
  void refresh(std::uint32_t block) const { pool_->policy->refresh(block, now_); }
  void use(std::uint32_t block) const {
    if (holds(block)) {
      pool_->policy->touch(block, now_);
      return;
    }
    const std::uint64_t id = all_->holdings_[block].id;
    if (all_->capacity_ == 0 || !pool_->policy->should_admit(id, now_)) return;
    if (pool_->size >= all_->capacity_) all_->evict(which_, now_);
    pool_->policy->insert(block, id, now_);
    all_->holdings_[block].holders |= bit();
    ++pool_->size;
  }

 private:
  [[nodiscard]] std::uint16_t bit() const noexcept { return static_cast<std::uint16_t>(1U << which_); }

  shadow_caches* all_;
  pool* pool_;
  std::size_t which_;
  std::uint32_t now_;
};

std::size_t shadow_caches::candidate(std::string_view name) noexcept {
  const auto all = candidates();
  return static_cast<std::size_t>(std::ranges::find(all, name, &policy_info::name) - all.begin());
}

shadow_caches::shadow_caches() : shadow_caches(candidates()) {}

shadow_caches::shadow_caches(std::span<const policy_info* const> policies) : saved_(policies.size()) {
  assert(policies.size() <= most_policies);
  for (const policy_info* const row : policies) {
    pool& made = pools_.emplace_back();
    made.row = row;
    made.links = std::make_unique<block_links>();
    made.policy = row->make(*made.links);
  }
}

void shadow_caches::resize(std::uint32_t capacity, std::uint32_t thinning) {
  capacity_ = capacity;
  thinning_ = thinning;
  for (const pool& each : pools_) {
    each.policy->resize(capacity);
    each.policy->thin(thinning);
  }
}

std::span<const std::uint32_t> shadow_caches::serve(std::span<const std::uint64_t> sample, const request& asked,
                                                    std::uint32_t now) {
  request_.clear();
  for (const std::uint64_t id : sample) request_.push_back(number_of(id));
  for (pool& each : pools_) each.links->cover(static_cast<std::uint32_t>(holdings_.size()));
  const bool partial = asked.partial && sample.back() == asked.ids.back();
  request sampled{.ids = sample, .resident = {}, .partial = partial};
  sampled.turns = asked.turns;
  if (thinning_ > 1) sampled.whole = asked.whole.empty() ? asked.ids.first(asked.full()) : asked.whole;
  for (std::size_t which = 0; which < pools_.size(); ++which) saved_[which] = serve_one(which, sampled, now);
  release();
  return saved_;
}

void shadow_caches::export_history(std::size_t index, policy& successor) const {
  pools_[index].row->import_history(successor, *pools_[index].policy);
}

std::size_t shadow_caches::ghosts() const noexcept {
  std::size_t sum = 0;
  for (const pool& each : pools_) sum += each.policy->ghosts();
  return sum;
}

std::uint32_t shadow_caches::number_of(std::uint64_t id) {
  if (const std::uint32_t* const known = numbers_.find(id)) return *known;
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint32_t>(holdings_.size()));
    holdings_.emplace_back();
  }
  const std::uint32_t number = free_.back();
  free_.pop_back();
  holdings_[number] = {.id = id, .used = true};
  numbers_.push(id, number);
  return number;
}

std::uint32_t shadow_caches::serve_one(std::size_t which, const request& sample, std::uint32_t now) {
  while (pools_[which].size > capacity_) evict(which, now);  // it became smaller
  const serving_pool serving(*this, which, now);
  const auto missing = std::ranges::find_if_not(request_, [&](std::uint32_t block) { return serving.holds(block); });
  const auto hits = static_cast<std::size_t>(missing - request_.begin());
  request known = sample;
  known.resident = std::span(request_).first(hits);
  policy& policy = *pools_[which].policy;
  policy.begin_request(known, now);
  use_request(serving, request_, hits, true, policy.order());
  return static_cast<std::uint32_t>(hits);
}

void shadow_caches::evict(std::size_t which, std::uint32_t now) {
  pool& from = pools_[which];
  const std::uint32_t victim = *from.policy->victim();
  holding& of = holdings_[victim];
  from.policy->evict(victim, of.id, now);
  of.holders &= static_cast<std::uint16_t>(~(1U << which));
  if (of.holders == 0) dropped_.push_back(victim);
  --from.size;
}

/// Takes back the numbers that no pool holds any more.
void shadow_caches::release() {
  for (const std::uint32_t each : request_) {
    if (holdings_[each].holders == 0) dropped_.push_back(each);
  }
  for (const std::uint32_t each : dropped_) {
    holding& of = holdings_[each];
    if (of.holders != 0 || !of.used) continue;
    of.used = false;
    numbers_.take(of.id);
    free_.push_back(each);
  }
  dropped_.clear();
}

}  // namespace cenote::eviction
