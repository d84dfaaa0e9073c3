#include "tiers/eviction/automatic.hpp"

#include <algorithm>
#include <limits>

namespace cenote::eviction {

namespace {

constexpr std::uint32_t brought_at_once = 4'096;  // less than a millisecond

/// Of equal identities, always the same; spread evenly over all 64 bits (the end of splitmix64).
std::uint64_t spread(std::uint64_t id) noexcept {
  id = (id ^ (id >> 30)) * 0xbf58476d1ce4e5b9ULL;
  id = (id ^ (id >> 27)) * 0x94d049bb133111ebULL;
  return id ^ (id >> 31);
}

}  // namespace

automatic::automatic(block_links& links, const auto_options& options)
    : links_(&links),
      options_(options),
      contest_(miniatures::candidates.size(), options.window, options.large),
      champion_(miniatures::candidate(options.start)) {
  live_ = miniatures::make(champion_, links);
}

void automatic::resize(std::uint32_t capacity) {
  capacity_ = capacity;
  live_->resize(capacity);
}

std::uint32_t automatic::begin(const request& of, std::uint32_t now) {
  if (leaving_) bring_some(now);
  watch(of, now);
  refused_.reset();
  if (full_ && of.partial && !of.ids.empty() && !miniatures::admits_partial(champion_)) refused_ = of.ids.back();
  return live_->begin({.ids = of.ids, .resident = of.resident.first(leading(of)), .partial = of.partial}, now);
}

void automatic::resume(std::uint32_t standing, std::optional<std::uint32_t> parent) {
  refused_.reset();
  const state* const before = parent ? blocks_.find(*parent) : nullptr;
  const bool known = before != nullptr && before->owner == side_;
  live_->resume(standing, known ? parent : std::nullopt);
}

bool automatic::wants(std::uint64_t id, std::uint32_t now) {
  return refused_ != id && live_->wants(id, now);
}

void automatic::admit(std::uint32_t block, std::uint64_t id, std::uint32_t now) {
  blocks_.make(block) = {.id = id, .touched = now, .owner = side_};
  live_->admit(block, id, now);
  capacity_ = std::max(capacity_, size());
}

void automatic::touch(std::uint32_t block, std::uint32_t now) {
  blocks_[block].touched = now;
  if (is_leaving(block)) {
    bring(block, now);  // which is a use for the one that gets it
  } else {
    live_->touch(block, now);
  }
}

void automatic::refresh(std::uint32_t block, std::uint32_t now) {
  blocks_[block].touched = now;
  if (is_leaving(block)) {
    bring(block, now);
  } else {
    live_->refresh(block, now);
  }
}

void automatic::spare(std::uint32_t block, std::uint32_t now) {
  if (is_leaving(block)) bring(block, now);
  live_->spare(block, now);
}

void automatic::evict(std::uint32_t block, std::uint64_t id, std::uint32_t now) {
  (is_leaving(block) ? leaving_ : live_)->evict(block, id, now);
  blocks_[block].owner = nobody;
}

void automatic::forget(std::uint32_t block) {
  (is_leaving(block) ? leaving_ : live_)->forget(block);
  blocks_[block].owner = nobody;
}

std::optional<std::uint32_t> automatic::victim() {
  full_ = full_ || size() > 0;
  if (leaving_ && leaving_->size() > 0) return leaving_->victim();
  return live_->victim();
}

std::uint32_t automatic::size() const noexcept {
  return live_->size() + (leaving_ ? leaving_->size() : 0);
}

std::size_t automatic::ghosts() const noexcept {
  return live_->ghosts() + (leaving_ ? leaving_->ghosts() : 0) + miniatures_.ghosts();
}

auto_status automatic::status() const noexcept {
  auto_status now{.policy = miniatures::candidates[champion_],
                  .switches = switches_,
                  .thinning = thinning_,
                  .requests = requests_,
                  .sampled = sampled_,
                  .leaving = leaving_ ? leaving_->size() : 0};
  for (std::size_t i = 0; i < now.scores.size(); ++i) {
    now.scores[i] = {miniatures::candidates[i], contest_.saved(i) / 2, contest_.certainty(i, champion_)};
  }
  return now;
}

/// How many leading blocks the policy at work orders itself: it knows nothing of others.
std::size_t automatic::leading(const request& of) const noexcept {
  const auto unknown = std::ranges::find_if(of.resident, [&](std::uint32_t block) {
    const state* const here = blocks_.find(block);
    return here == nullptr || here->owner != side_;
  });
  return static_cast<std::size_t>(unknown - of.resident.begin());
}

/// Thins the sample so far that the miniatures stay small: by what the pool holds, as a pool that has room for more is
/// learnt from sooner. What they hold of requests that are no more sampled goes with time.
void automatic::fit_miniatures() {
  std::uint32_t thinning = thinning_;
  while (size() / thinning > options_.miniature) thinning *= 2;
  while (thinning > 1 && size() / thinning < options_.miniature / 4) thinning /= 2;
  for (; thinning_ < thinning; thinning_ *= 2) contest_.age();  // a request counts for twice as many from here on
  thinning_ = thinning;
  const std::uint32_t capacity = std::max<std::uint32_t>(capacity_ / thinning_, 1);
  if (miniatures_.capacity() != capacity) miniatures_.resize(capacity, thinning_);
}

/// Lets the miniatures see the request, if it is one of the sample.
void automatic::watch(const request& of, std::uint32_t now) {
  ++requests_;
  if (of.ids.empty() || capacity_ == 0) return;
  fit_miniatures();
  // A common beginning is in every sample and would take a larger share of a miniature than of the pool.
  const std::size_t own = thinning_ == 1 ? 0 : beginnings_.length(of);
  if (spread(of.ids[own]) % thinning_ != 0) return;
  ++sampled_;
  const auto saved = miniatures_.serve(of.ids.subspan(own), of.partial, now);
  if (!full_) return;  // who keeps most wins then, and that says nothing of later
  contest_.add(saved);
  if (!leaving_) decide();
}

void automatic::decide() {
  const bool settled = sampled_ - sampled_at_switch_ >= options_.patience;
  std::array<contest::bar, miniatures::candidates.size()> bars{};
  for (std::size_t each = 0; each < bars.size(); ++each) {
    const bool lru = miniatures::candidates[each] == "lru";
    const double blocks = (lru ? options_.cost_of_lru : options_.cost) * miniatures_.capacity();
    contest::bar& bar = bars[each];
    if (miniatures::are_one(each, champion_)) {
      bar.certainty = bar.certainty_of_large = options_.certainty_of_partial;
      continue;
    }
    bar.price = settled ? 2 * blocks : std::numeric_limits<double>::infinity();
    bar.certainty = lru ? options_.certainty_of_lru : options_.certainty;
    bar.certainty_of_large = std::min(bar.certainty, options_.certainty_of_large);
  }
  if (const auto winner = contest_.winner_over(champion_, bars)) switch_to(*winner);
}

void automatic::switch_to(std::size_t candidate) {
  ++switches_;
  sampled_at_switch_ = sampled_;
  if (miniatures::are_one(candidate, champion_)) {
    champion_ = candidate;
    return;
  }
  leaving_ = std::move(live_);
  live_ = miniatures::make(candidate, *links_);
  live_->resize(capacity_);
  side_ ^= 1;
  champion_ = candidate;
  brought_until_ = 0;
}

/// Hands `block` from the policy before to the one at work.
void automatic::bring(std::uint32_t block, std::uint32_t now) {
  leaving_->forget(block);
  blocks_[block].owner = side_;
  live_->admit(block, blocks_[block].id, now);
}

void automatic::bring_some(std::uint32_t now) {
  for (std::uint32_t i = 0; i < brought_at_once && leaving_->size() > 0; ++i) {
    const std::uint32_t block = *leaving_->victim();
    brought_until_ = std::max(brought_until_, blocks_[block].touched);
    live_->begin({}, now);  // or it would be taken for a part of the present request
    bring(block, brought_until_);
  }
  if (leaving_->size() == 0) leaving_.reset();
}

}  // namespace cenote::eviction
