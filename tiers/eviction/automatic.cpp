#include "tiers/eviction/automatic.hpp"

#include <algorithm>
#include <array>
#include <bit>

namespace cenote::eviction {

namespace {

constexpr std::uint32_t brought_at_once = 4'096;  // less than a millisecond
constexpr std::uint8_t most_uses = 255;           // all that its place has room for

/// The upper half of a product with this depends on all bits of the other number.
constexpr std::uint64_t spread = 0x9e3779b97f4a7c15ULL;  // 2^64 / golden ratio
constexpr std::uint64_t salt = 0x2545f4914f6cdd1dULL;    // or 0 would be in every sample
constexpr unsigned spread_bits = 32;

}  // namespace

automatic::automatic(block_links& links, const auto_options& options)
    : links_(&links),
      options_(options),
      contest_(miniatures::candidates.size(), miniatures::candidate(options.start), options.window) {
  live_ = miniatures::make(contest_.champion(), links);
}

void automatic::resize(std::uint32_t capacity) {
  capacity_ = capacity;
  live_->resize(capacity);
}

std::uint32_t automatic::begin(const request& of, std::uint32_t now) {
  if (leaving_) bring_some(now);
  watch(of, now);
  refused_.reset();
  if (full_ && of.partial && !of.ids.empty() && !miniatures::admits_partial(contest_.champion()))
    refused_ = of.ids.back();
  return live_->begin({.ids = of.ids, .resident = of.resident.first(leading(of)), .partial = of.partial}, now);
}

void automatic::resume(std::uint32_t standing, std::optional<std::uint32_t> parent) {
  refused_.reset();
  const state* const before = parent ? blocks_.find(*parent) : nullptr;
  const bool known = before != nullptr && before->owner == side_;
  live_->resume(standing, known ? parent : std::nullopt);
}

/// Tail to head at least, so that a parent is never older than its child.
touch_order automatic::order() const noexcept {
  return std::max(live_->order(), touch_order::tail_first);
}

bool automatic::wants(std::uint64_t id, std::uint32_t now) {
  return refused_ != id && live_->wants(id, now);
}

void automatic::admit(std::uint32_t block, std::uint64_t id, std::uint32_t now) {
  blocks_.make(block) = {.id = id, .touched = now, .uses = 1, .owner = side_};
  live_->admit(block, id, now);
  capacity_ = std::max(capacity_, size());
}

void automatic::touch(std::uint32_t block, std::uint32_t now) {
  state& of = blocks_[block];
  of.touched = now;
  if (of.uses < most_uses) ++of.uses;
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
  auto_status now{.policy = miniatures::candidates[contest_.champion()],
                  .switches = switches_,
                  .thinning = thinning_,
                  .requests = requests_,
                  .sampled = sampled_,
                  .leaving = leaving_ ? leaving_->size() : 0};
  for (std::size_t i = 0; i < now.scores.size(); ++i) {
    const double height = contest_.height(i, bar_of(i));
    now.scores[i] = {miniatures::candidates[i], contest_.saved(i) / 2, height > 0 ? contest_.lead(i) / height : 0};
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

/// Thins the sample so far that the miniatures stay small. What they hold of blocks that are no more sampled goes with
/// time.
void automatic::fit_miniatures() {
  const bool small = capacity_ <= 4 * options_.miniature_of_small;
  const std::uint32_t most = small ? options_.miniature_of_small : options_.miniature;
  const std::uint32_t thinning = std::bit_ceil((capacity_ + most - 1) / most);
  for (; thinning_ < thinning; thinning_ *= 2) contest_.halve();
  thinning_ = thinning;
  const std::uint32_t capacity = std::max<std::uint32_t>(capacity_ / thinning_, 1);
  if (miniatures_.capacity() != capacity) miniatures_.resize(capacity, thinning_);
}

/// Lets the miniatures see what the sample has of the request.
void automatic::watch(const request& of, std::uint32_t now) {
  ++requests_;
  if (of.ids.empty() || capacity_ == 0) return;
  fit_miniatures();
  take_sample(of);
  if (sample_.empty()) return;
  ++sampled_;
  const bool partial = of.partial && sample_.back() == of.ids.back();
  const auto saved = miniatures_.serve(sample_, partial, now);
  if (!full_) return;  // who keeps most wins then, and that says nothing of later
  contest_.add(saved);
  if (!leaving_) decide();
}

void automatic::take_sample(const request& of) {
  sample_.clear();
  for (const std::uint64_t id : of.ids) {
    if ((((id + salt) * spread >> spread_bits) & (thinning_ - 1)) == 0) sample_.push_back(id);
  }
}

void automatic::decide() {
  std::array<contest::bar, miniatures::candidates.size()> bars{};
  for (std::size_t each = 0; each < bars.size(); ++each) bars[each] = bar_of(each);
  if (const auto winner = contest_.winner(bars)) switch_to(*winner);
}

/// In halves of a block, as what is saved.
contest::bar automatic::bar_of(std::size_t candidate) const noexcept {
  if (miniatures::are_one(candidate, contest_.champion())) return {.chance = options_.chance_of_partial};
  const bool lru = miniatures::candidates[candidate] == "lru";
  const double cost = lru ? options_.cost_of_lru : options_.cost;
  return {.price = 2 * cost * miniatures_.capacity(), .chance = lru ? options_.chance_of_lru : options_.chance};
}

void automatic::switch_to(std::size_t candidate) {
  ++switches_;
  const bool moves = !miniatures::are_one(candidate, contest_.champion());
  contest_.take_over(candidate);
  if (!moves) return;
  leaving_ = std::move(live_);
  live_ = miniatures::make(candidate, *links_);
  live_->resize(capacity_);
  miniatures_.teach(candidate, *live_);  // or it would have to learn first what won it the contest
  side_ ^= 1;
  brought_until_ = 0;
}

/// Hands `block` from the policy before to the one at work.
void automatic::bring(std::uint32_t block, std::uint32_t now) {
  leaving_->forget(block);
  state& of = blocks_[block];
  of.owner = side_;
  live_->inherit(block, of.id, now, of.uses);
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
