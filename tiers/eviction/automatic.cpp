#include "tiers/eviction/automatic.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "tiers/eviction/registry.hpp"

namespace cenote::eviction {

namespace {

constexpr std::uint32_t brought_at_once = 1'024;  // less than a millisecond
constexpr std::uint8_t most_uses = 255;           // all that its place has room for

/// The upper half of a product with this depends on all bits of the other number.
constexpr std::uint64_t spread = 0x9e3779b97f4a7c15ULL;  // 2^64 / golden ratio
constexpr std::uint64_t salt = 0x2545f4914f6cdd1dULL;    // or 0 would be in every sample
constexpr unsigned spread_bits = 32;

}  // namespace

automatic::automatic(block_links& links, const auto_options& options)
    : links_(&links),
      options_(options),
      contest_(candidates().size(), miniatures::candidate(options.start), options.half_life) {
  live_ = candidates()[contest_.champion()]->make(links);
}

void automatic::resize(std::uint32_t capacity) {
  capacity_ = capacity;
  live_->resize(capacity);
}

std::uint32_t automatic::begin(const request& of, std::uint32_t at) {
  if (!of.ids.empty()) clock_.tick(at);
  const std::uint32_t now = clock_.at(at);
  if (waits_ > 0) bring_some();
  watch(of, now);
  if (waits_ > 0) bring_resident(of);
  return live_->begin(of, now);
}

void automatic::resume(std::uint32_t standing, std::optional<std::uint32_t> parent) {
  const state* const before = parent ? blocks_.find(*parent) : nullptr;
  if (before != nullptr && before->where == place::waiting) bring(*parent);
  live_->resume(standing, parent);
}

/// Tail to head at least, so that a parent is never older than its child.
touch_order automatic::order() const noexcept {
  return std::max(live_->order(), touch_order::tail_first);
}

bool automatic::wants(std::uint64_t id, std::uint32_t now) {
  return live_->wants(id, clock_.at(now));
}

void automatic::admit(std::uint32_t block, std::uint64_t id, std::uint32_t at) {
  const std::uint32_t now = clock_.at(at);
  blocks_.make(block) = {.id = id, .turn = ++turns_, .touched = now, .uses = 1, .where = place::live};
  live_->admit(block, id, now);
  capacity_ = std::max(capacity_, size());
}

void automatic::touch(std::uint32_t block, std::uint32_t at) {
  state& of = renew(block, at);
  if (of.uses < most_uses) ++of.uses;
  live_->touch(block, of.touched);
}

void automatic::refresh(std::uint32_t block, std::uint32_t at) {
  live_->refresh(block, renew(block, at).touched);
}

void automatic::spare(std::uint32_t block, std::uint32_t at) {
  if (blocks_[block].where == place::waiting) bring(block);
  live_->spare(block, clock_.at(at));
}

void automatic::evict(std::uint32_t block, std::uint64_t id, std::uint32_t at) {
  if (blocks_[block].where == place::waiting) return forget(block);
  live_->evict(block, id, clock_.at(at));
  blocks_[block].where = place::nowhere;
}

void automatic::forget(std::uint32_t block) {
  if (blocks_[block].where == place::waiting) {
    --waits_;
  } else {
    live_->forget(block);
  }
  blocks_[block].where = place::nowhere;
}

std::optional<std::uint32_t> automatic::victim() {
  full_ = full_ || size() > 0;
  if (waits_ == 0) return live_->victim();
  while (is_stale(waiting_[oldest_])) ++oldest_;
  return waiting_[oldest_].block;
}

std::uint32_t automatic::size() const noexcept {
  return live_->size() + waits_;
}

std::size_t automatic::ghosts() const noexcept {
  return live_->ghosts() + miniatures_.ghosts();
}

auto_status automatic::status() const {
  auto_status now{.policy = candidates()[contest_.champion()]->name,
                  .switches = switches_,
                  .thinning = thinning_,
                  .requests = requests_,
                  .sampled = sampled_,
                  .leaving = waits_,
                  .scores = {}};
  for (std::size_t i = 0; i < candidates().size(); ++i) {
    now.scores.push_back({candidates()[i]->name, contest_.saved(i), contest_.lead(i) / bar_of(i)});
  }
  return now;
}

/// Thins the sample so far that the miniatures stay small. What they hold of blocks that are no more sampled goes with
/// time.
void automatic::fit_miniatures() {
  const std::uint32_t miniatures = capacity_ / options_.miniature + (capacity_ % options_.miniature != 0 ? 1 : 0);
  thinning_ = std::max(options_.thinning, std::bit_ceil(miniatures));
  const std::uint32_t capacity = std::max<std::uint32_t>(capacity_ / thinning_, 1);
  if (miniatures_.capacity() != capacity) miniatures_.resize(capacity, thinning_);
}

/// Lets the miniatures see what the sample has of the request.
void automatic::watch(const request& of, std::uint32_t now) {
  ++requests_;
  if (of.ids.empty() || capacity_ == 0) return;
  fit_miniatures();
  const std::uint32_t got = take_sample(of);
  if (sample_.empty()) return;
  ++sampled_;
  if (waits_ == 0) decide();  // before the miniatures know of this request, which the new policy is told of, too
  const auto saved = miniatures_.serve(sample_, of, now);
  if (full_) contest_.add(saved, got);  // until then who keeps most wins, and that says nothing of later
}

bool automatic::is_sampled(std::uint64_t id) const noexcept {
  return (((id + salt) * spread >> spread_bits) & (thinning_ - 1)) == 0;
}

/// How many of the sampled blocks are among those that lead the request and are here.
std::uint32_t automatic::take_sample(const request& of) {
  const auto take = [this](std::span<const std::uint64_t> ids) {
    for (const std::uint64_t id : ids) {
      if (is_sampled(id)) sample_.push_back(id);
    }
    return static_cast<std::uint32_t>(sample_.size());
  };
  sample_.clear();
  const std::size_t hits = std::min(of.resident.size(), of.ids.size());
  const std::uint32_t got = take(of.ids.first(hits));
  take(of.ids.subspan(hits));
  return got;
}

void automatic::decide() {
  std::array<double, contest::most> bars{};
  for (std::size_t each = 0; each < candidates().size(); ++each) bars[each] = bar_of(each);
  if (const auto winner = contest_.winner(std::span(bars).first(candidates().size()))) switch_to(*winner);
}

/// The lead that a candidate needs.
double automatic::bar_of(std::size_t candidate) const noexcept {
  return candidates()[candidate]->candidate == candidacy::order ? options_.lead_of_lists : options_.lead;
}

void automatic::switch_to(std::size_t candidate) {
  ++switches_;
  contest_.take_over(candidate);
  waiting_.clear();
  oldest_ = 0;
  for (std::uint32_t block = 0; block < blocks_.size(); ++block) {
    state& of = blocks_[block];
    if (of.where != place::live) continue;
    of.where = place::waiting;
    waiting_.push_back({of.turn, block});
  }
  std::ranges::sort(waiting_, {}, &waiting::turn);
  waits_ = static_cast<std::uint32_t>(waiting_.size());
  live_ = candidates()[candidate]->make(*links_);
  live_->resize(capacity_);
  miniatures_.teach(candidate, *live_);  // or it would have to learn first what won it the contest
}

bool automatic::is_stale(const waiting& each) const noexcept {
  const state& of = blocks_[each.block];
  return of.where != place::waiting || of.turn != each.turn;
}

/// Has the policy at work order a block that waited, as older than all that it has.
void automatic::bring(std::uint32_t block) {
  --waits_;
  state& of = blocks_[block];
  of.where = place::live;
  live_->inherit(block, of.id, of.touched, of.uses);
}

/// The block is the latest from now on, and in the care of the policy at work.
automatic::state& automatic::renew(std::uint32_t block, std::uint32_t at) {
  state& of = blocks_[block];
  if (of.where == place::waiting) bring(block);
  of.turn = ++turns_;
  of.touched = clock_.at(at);
  return of;
}

/// The policy at work shall know what the request finds; it is used next.
void automatic::bring_resident(const request& of) {
  for (const std::uint32_t block : of.resident) {
    const state* const here = blocks_.find(block);
    if (here != nullptr && here->where == place::waiting) bring(block);
  }
}

/// The youngest first.
void automatic::bring_some() {
  for (std::uint32_t i = 0; i < brought_at_once && waits_ > 0; ++i) {
    while (is_stale(waiting_.back())) waiting_.pop_back();
    bring(waiting_.back().block);
    waiting_.pop_back();
  }
  if (waits_ == 0) waiting_ = {};
}

}  // namespace cenote::eviction
