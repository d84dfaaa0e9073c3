#include "tiers/eviction/automatic.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "core/key_sample.hpp"
#include "tiers/eviction/registry.hpp"

namespace cenote::eviction {

namespace {

constexpr std::uint32_t brought_at_once = 1'024;  // less than a millisecond
constexpr std::uint8_t most_counted_uses = 255;   // all that its place has room for

constexpr std::uint64_t salt = 0x2545f4914f6cdd1dULL;  // or 0 would be in every sample

}  // namespace

automatic::automatic(block_links& links, const auto_options& options)
    : links_(&links),
      options_(options),
      selector_(candidates().size(), shadow_caches::candidate(options.start), options.half_life) {
  active_ = candidates()[selector_.active()]->make(links);
}

void automatic::resize(std::uint32_t capacity) {
  capacity_ = capacity;
  active_->resize(capacity);
}

std::uint32_t automatic::begin_request(const request& request, std::uint32_t time) {
  if (!request.ids.empty()) clock_.tick(time);
  const std::uint32_t now = clock_.at(time);
  if (waits_ > 0) bring_some();
  watch(request, now);
  if (waits_ > 0) bring_resident(request);
  partial_.reset();
  if (!full_ && request.partial && !request.ids.empty()) partial_ = request.ids.back();
  return active_->begin_request(request, now);
}

void automatic::resume_request(std::uint32_t request_context, std::optional<std::uint32_t> parent) {
  const state* const before = parent ? blocks_.find(*parent) : nullptr;
  if (before != nullptr && before->where == place::waiting) bring(*parent);
  partial_.reset();
  active_->resume_request(request_context, parent);
}

/// Tail to head at least, so that a parent is never older than its child.
touch_order automatic::order() const noexcept {
  return std::max(active_->order(), touch_order::tail_first);
}

bool automatic::should_admit(std::uint64_t id, std::uint32_t now) {
  if (partial_ == id) return false;  // the room that is left is for blocks that longer requests find, too
  return active_->should_admit(id, clock_.at(now));
}

void automatic::insert(std::uint32_t block, std::uint64_t id, std::uint32_t time) {
  const std::uint32_t now = clock_.at(time);
  state& entry = blocks_.make(block);
  entry.turn = next_turn(now) & turn_mask;
  entry.where = place::live;
  entry.uses = 1;
  active_->insert(block, id, now);
  capacity_ = std::max(capacity_, size());
}

void automatic::touch(std::uint32_t block, std::uint32_t time) {
  const std::uint32_t now = clock_.at(time);
  state& entry = renew(block, now);
  if (entry.uses < most_counted_uses) ++entry.uses;
  active_->touch(block, now);
}

void automatic::refresh(std::uint32_t block, std::uint32_t time) {
  const std::uint32_t now = clock_.at(time);
  renew(block, now);
  active_->refresh(block, now);
}

void automatic::skip_victim(std::uint32_t block, std::uint32_t time) {
  if (blocks_[block].where == place::waiting) bring(block);
  active_->skip_victim(block, clock_.at(time));
}

void automatic::evict(std::uint32_t block, std::uint64_t id, std::uint32_t time) {
  if (blocks_[block].where == place::waiting) return forget(block);
  active_->evict(block, id, clock_.at(time));
  blocks_[block].where = place::nowhere;
}

void automatic::forget(std::uint32_t block) {
  if (blocks_[block].where == place::waiting) {
    --waits_;
  } else {
    active_->forget(block);
  }
  blocks_[block].where = place::nowhere;
}

std::optional<std::uint32_t> automatic::victim() {
  full_ = full_ || size() > 0;
  if (waits_ == 0) return active_->victim();
  while (is_stale(waiting_[oldest_])) ++oldest_;
  return waiting_[oldest_].block;
}

std::uint32_t automatic::size() const noexcept {
  return active_->size() + waits_;
}

std::size_t automatic::ghosts() const noexcept {
  return active_->ghosts() + shadow_caches_.ghosts();
}

auto_status automatic::status() const {
  auto_status now{.policy = candidates()[selector_.active()]->name,
                  .switches = switches_,
                  .thinning = thinning_,
                  .requests = requests_,
                  .sampled = sampled_,
                  .leaving = waits_,
                  .scores = {}};
  for (std::size_t i = 0; i < candidates().size(); ++i) {
    now.scores.push_back({candidates()[i]->name, selector_.saved(i), selector_.lead(i) / switch_threshold(i).lead});
  }
  return now;
}

/// Thins the sample so far that the shadow caches stay small. What they hold of blocks that are no more sampled goes
/// with time.
void automatic::fit_shadow_caches() {
  const std::uint32_t shadow_caches =
      capacity_ / options_.shadow_blocks + (capacity_ % options_.shadow_blocks != 0 ? 1 : 0);
  thinning_ = std::max(options_.thinning, std::bit_ceil(shadow_caches));
  const std::uint32_t capacity = std::max<std::uint32_t>(capacity_ / thinning_, 1);
  if (shadow_caches_.capacity() != capacity) shadow_caches_.resize(capacity, thinning_);
}

/// Lets the shadow caches see what the sample has of the request.
void automatic::watch(const request& request, std::uint32_t now) {
  ++requests_;
  if (request.ids.empty() || capacity_ == 0) return;
  fit_shadow_caches();
  const std::uint32_t got = take_sample(request);
  if (sample_.empty()) return;
  ++sampled_;
  if (waits_ == 0) decide();  // before the shadow caches know of this request, which the new policy is told of, too
  const auto saved = shadow_caches_.serve(sample_, request, now);
  if (full_) selector_.add(saved, got);  // until then who keeps most wins, and that says nothing of later
}

bool automatic::is_sampled(std::uint64_t id) const noexcept {
  return (sample_place(id, salt) & (thinning_ - 1)) == 0;
}

/// How many of the sampled blocks are among those that lead the request and are here.
std::uint32_t automatic::take_sample(const request& request) {
  const auto take = [this](std::span<const std::uint64_t> ids) {
    for (const std::uint64_t id : ids) {
      if (is_sampled(id)) sample_.push_back(id);
    }
    return static_cast<std::uint32_t>(sample_.size());
  };
  sample_.clear();
  const std::size_t hits = std::min(request.resident.size(), request.ids.size());
  const std::uint32_t got = take(request.ids.first(hits));
  take(request.ids.subspan(hits));
  return got;
}

void automatic::decide() {
  std::array<policy_selector::threshold, policy_selector::most> thresholds{};
  for (std::size_t each = 0; each < candidates().size(); ++each) thresholds[each] = switch_threshold(each);
  if (const auto winner = selector_.winner(std::span(thresholds).first(candidates().size()))) switch_to(*winner);
}

/// The leads that a candidate needs. What it starts with was chosen without evidence: a policy that sees sessions go on
/// needs less against it.
policy_selector::threshold automatic::switch_threshold(std::size_t candidate) const noexcept {
  if (candidates()[candidate]->candidate != candidacy::order) return {.lead = options_.lead};
  const bool is_first = switches_ == 0 && shadow_caches_.sees_sessions(candidate);
  const bool is_start = candidates()[candidate]->name == options_.start;
  return {.lead = is_first ? std::min(options_.lead_of_sessions, options_.lead_of_lists) : options_.lead_of_lists,
          .recent_lead = is_start ? options_.recent_lead_of_start : options_.recent_lead_of_lists};
}

void automatic::switch_to(const policy_selector::choice& successor) {
  ++switches_;
  const std::size_t candidate = successor.candidate;
  selector_.take_over(successor);
  waiting_.clear();
  oldest_ = 0;
  blocks_.visit_all([this](std::uint32_t block, state& entry) {
    if (entry.where != place::live) return;
    entry.where = place::waiting;
    waiting_.push_back({turn_of(entry), block});
  });
  std::ranges::sort(waiting_, {}, &waiting::turn);
  waits_ = static_cast<std::uint32_t>(waiting_.size());
  active_ = candidates()[candidate]->make(*links_);
  active_->resize(capacity_);
  shadow_caches_.export_history(candidate, *active_);  // or it would have to learn first what it was chosen for
}

bool automatic::is_stale(const waiting& entry) const noexcept {
  return blocks_[entry.block].where != place::waiting;
}

/// Has the policy at work order a block that waited, as older than all that it has.
void automatic::bring(std::uint32_t block) {
  --waits_;
  state& entry = blocks_[block];
  entry.where = place::live;
  active_->insert_with_history(block, times_.time_of(turn_of(entry)), entry.uses);
}

std::uint64_t automatic::next_turn(std::uint32_t now) {
  times_.note(++turns_, now);
  return turns_;
}

/// The turn of the block's last use: the latest one with its low bits, so that only a block that was not used while
/// 2^38 others were is taken for a younger one.
std::uint64_t automatic::turn_of(const state& entry) const noexcept {
  return turns_ - ((turns_ - entry.turn) & turn_mask);
}

/// The block is the latest from now on, and in the care of the policy at work.
automatic::state& automatic::renew(std::uint32_t block, std::uint32_t now) {
  state& entry = blocks_[block];
  if (entry.where == place::waiting) bring(block);
  entry.turn = next_turn(now) & turn_mask;
  return entry;
}

/// The policy at work shall know what the request finds; it is used next.
void automatic::bring_resident(const request& request) {
  for (const std::uint32_t block : request.resident) {
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
