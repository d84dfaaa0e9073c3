#include "tiers/eviction/miniatures.hpp"

#include <algorithm>

#include "tiers/eviction/registry.hpp"
#include "tiers/eviction/simulated_pool.hpp"

namespace cenote::eviction {

/// One pool while it serves a request.
class miniatures::one {
 public:
  one(miniatures& all, std::size_t which, std::uint32_t now) noexcept
      : all_(&all), of_(&all.pools_[which]), which_(which), now_(now) {}

  [[nodiscard]] bool holds(std::uint32_t block) const noexcept { return (all_->holdings_[block].holders & bit()) != 0; }
  void refresh(std::uint32_t block) const { of_->by->refresh(block, now_); }
  void use(std::uint32_t block) const {
    if (holds(block)) {
      of_->by->touch(block, now_);
      return;
    }
    const std::uint64_t id = all_->holdings_[block].id;
    if (all_->capacity_ == 0 || !of_->by->wants(id, now_)) return;
    if (of_->size >= all_->capacity_) all_->evict(which_, now_);
    of_->by->admit(block, id, now_);
    all_->holdings_[block].holders |= bit();
    ++of_->size;
  }

 private:
  [[nodiscard]] std::uint8_t bit() const noexcept { return static_cast<std::uint8_t>(1U << which_); }

  miniatures* all_;
  pool* of_;
  std::size_t which_;
  std::uint32_t now_;
};

std::size_t miniatures::candidate(std::string_view name) noexcept {
  const auto all = candidates();
  return static_cast<std::size_t>(std::ranges::find(all, name, &policy_info::name) - all.begin());
}

miniatures::miniatures() : pools_(candidates().size()), saved_(candidates().size()) {
  for (std::size_t each = 0; each < pools_.size(); ++each) {
    pools_[each].links = std::make_unique<block_links>();
    pools_[each].by = candidates()[each]->make(*pools_[each].links);
  }
}

void miniatures::resize(std::uint32_t capacity, std::uint32_t thinning) {
  capacity_ = capacity;
  for (const pool& each : pools_) {
    each.by->resize(capacity);
    each.by->thin(thinning);
  }
}

std::span<const std::uint32_t> miniatures::serve(std::span<const std::uint64_t> sample, const request& of,
                                                 std::uint32_t now) {
  request_.clear();
  for (const std::uint64_t id : sample) request_.push_back(number_of(id));
  for (pool& each : pools_) each.links->cover(static_cast<std::uint32_t>(holdings_.size()));
  const bool partial = of.partial && sample.back() == of.ids.back();
  const request sampled{.ids = sample, .resident = {}, .partial = partial, .whole = of.ids.first(of.full())};
  for (std::size_t which = 0; which < pools_.size(); ++which) saved_[which] = serve_one(which, sampled, now);
  release();
  return saved_;
}

void miniatures::teach(std::size_t candidate, policy& pupil) const {
  candidates()[candidate]->import_history(pupil, *pools_[candidate].by);
}

std::size_t miniatures::ghosts() const noexcept {
  std::size_t sum = 0;
  for (const pool& each : pools_) sum += each.by->ghosts();
  return sum;
}

std::uint32_t miniatures::number_of(std::uint64_t id) {
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

std::uint32_t miniatures::serve_one(std::size_t which, const request& sample, std::uint32_t now) {
  while (pools_[which].size > capacity_) evict(which, now);  // it became smaller
  const one in(*this, which, now);
  const auto missing = std::ranges::find_if_not(request_, [&](std::uint32_t block) { return in.holds(block); });
  const auto hits = static_cast<std::size_t>(missing - request_.begin());
  request known = sample;
  known.resident = std::span(request_).first(hits);
  policy& by = *pools_[which].by;
  by.begin(known, now);
  use_request(in, request_, hits, true, by.order());
  return static_cast<std::uint32_t>(hits);
}

void miniatures::evict(std::size_t which, std::uint32_t now) {
  pool& from = pools_[which];
  const std::uint32_t victim = *from.by->victim();
  holding& of = holdings_[victim];
  from.by->evict(victim, of.id, now);
  of.holders &= static_cast<std::uint8_t>(~(1U << which));
  if (of.holders == 0) dropped_.push_back(victim);
  --from.size;
}

/// Takes back the numbers that no pool holds any more.
void miniatures::release() {
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
