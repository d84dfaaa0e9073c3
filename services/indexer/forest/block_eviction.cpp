#include "services/indexer/forest/block_eviction.hpp"

#include <algorithm>
#include <new>

namespace cenote::indexer {

namespace {

// Where the last block with a holder ends.
std::uint32_t held_end(const block_run& run) noexcept {
  holder_span single;
  const auto spans = span_word(run.spans.load(std::memory_order_relaxed)).spans(single);
  return spans.empty() ? 0 : spans.back().end;
}

}  // namespace

block_eviction::block_eviction(forest_parts& parts, span_editor& editor)
    : parts_(parts), editor_(editor), offered_(budget_allocator<std::uint32_t>(parts.budget)) {}

void block_eviction::offer(std::uint32_t run) noexcept {
  run_record& record = parts_.blocks.record(run);
  if (record.is_queued || record.children > 0) return;
  try {
    if (first_offered_ > offered_.size() / 2) {
      offered_.erase(offered_.begin(), offered_.begin() + static_cast<std::ptrdiff_t>(first_offered_));
      first_offered_ = 0;
    }
    offered_.push_back(run);
    record.is_queued = true;
  } catch (const std::bad_alloc&) {  // the search for the oldest finds it, too
  }
}

bool block_eviction::make_room(std::uint32_t request, std::uint32_t spared) noexcept {
  is_full_ = true;
  std::uint32_t evicted = 0;
  parts_.reclaim();
  while (parts_.blocks.unused() < request && evicted < request * 2 + block_store::most_run) {
    // Enough was forgotten, and a reader keeps it: more would empty the index, and be kept as well.
    if (parts_.blocks.unused() + parts_.retired.blocks() >= request) {
      parts_.retired.wait();
      continue;
    }
    const std::uint32_t count = forget_one(spared);
    if (count == 0) break;
    evicted += count;
    parts_.reclaim();
  }
  while (parts_.blocks.unused() == 0 && parts_.retired.blocks() > 0) parts_.retired.wait();
  return parts_.blocks.unused() > 0;
}

bool block_eviction::make_bytes(std::size_t bytes, std::uint32_t spared) noexcept {
  constexpr std::size_t slack = 8192;  // what an allocator adds
  const auto has_room = [&](std::size_t kept) {
    return parts_.budget.used() - kept + bytes + slack <= parts_.budget.limit();
  };
  parts_.reclaim();
  for (int i = 0; i < 64 && !has_room(parts_.retired.bytes()) && forget_one(spared) > 0; ++i) parts_.reclaim();
  if (!has_room(parts_.retired.bytes())) return false;
  while (!has_room(0) && parts_.retired.bytes() > 0) parts_.retired.wait();
  return has_room(0);
}

void block_eviction::keep_ahead(std::uint32_t spared) noexcept {
  if (!is_full_) return;
  const std::size_t request = std::min<std::size_t>(parts_.blocks.capacity() / 64, 16'384);
  if (parts_.blocks.unused() >= request || parts_.retired.size() > 256) return;
  (void)forget_one(spared);
}

std::uint32_t block_eviction::forget_one(std::uint32_t spared) noexcept {
  while (first_offered_ < offered_.size()) {
    const std::uint32_t run = offered_[first_offered_++];
    run_record& record = parts_.blocks.record(run);
    record.is_queued = false;
    if (record.birth == 0 || run == spared) continue;
    const std::uint32_t count = forget_offered(run);
    if (count > 0) return count;
  }
  for (int tries = 0; tries < 2; ++tries) {
    while (candidate_count_ > 0) {
      const eviction_candidate oldest = candidates_[--candidate_count_];
      const run_record& record = parts_.blocks.record(oldest.run);
      const bool is_same = record.birth == oldest.birth && record.children == 0 && oldest.run != spared;
      const std::uint32_t last_use = parts_.blocks.run(oldest.run).last_use.load(std::memory_order_relaxed);
      if (is_same && (last_use == oldest.last_use || oldest.last_use == 0)) return forget_run(oldest.run);
    }
    // A window may have no run without children: the others come next.
    const std::uint32_t windows = parts_.blocks.run_bound() / window + 1;
    for (std::uint32_t i = 0; i < windows && candidate_count_ == 0; ++i) find_candidates(spared);
  }
  return 0;
}

std::uint32_t block_eviction::forget_offered(std::uint32_t run) noexcept {
  const block_run& present = parts_.blocks.run(run);
  const run_record& record = parts_.blocks.record(run);
  if (record.children > 0) return 0;
  const std::uint32_t end = held_end(present);
  if (end == 0) return forget_run(run);
  const std::uint32_t kept = block_store::whole_granules(end);
  if (kept >= record.capacity) return 0;
  const std::uint32_t count = record.capacity - kept;
  shorten(run, std::min<std::uint32_t>(kept, present.length));
  return count;
}

void block_eviction::shorten(std::uint32_t run, std::uint32_t length) noexcept {
  block_run& present = parts_.blocks.run(run);
  run_record& record = parts_.blocks.record(run);
  forget_names(run, length);
  evicted_ += present.length - length;
  present.length = static_cast<std::uint16_t>(length);
  const std::uint32_t kept = block_store::whole_granules(length);
  parts_.retired.add_extent(present.base + kept, record.capacity - kept);
  record.capacity = static_cast<std::uint16_t>(kept);
  record.is_shortened = true;
}

std::uint32_t block_eviction::forget_run(std::uint32_t run) noexcept {
  block_run& present = parts_.blocks.run(run);
  run_record& record = parts_.blocks.record(run);
  const std::uint32_t count = record.capacity;
  evicted_ += present.length;
  evicted_held_ += held_end(present);
  parts_.heads.erase(spread(present.key, parts_.seed), run);
  forget_names(run, 0);
  editor_.drop(run, 0);
  if (const std::uint32_t parent = parts_.blocks.run_of(record.parent); parent != no_run) {
    block_run& above = parts_.blocks.run(parent);
    run_record& above_record = parts_.blocks.record(parent);
    if (above.next.load(std::memory_order_relaxed) == run) above.next.store(no_run, std::memory_order_release);
    if (--above_record.children == 0) {
      const std::uint32_t above_use = above.last_use.load(std::memory_order_relaxed);
      if (held_end(above) < above.length) offer(parent);
      const bool is_older = above_use <= present.last_use.load(std::memory_order_relaxed);
      if (is_older && candidate_count_ < most_candidates) {
        candidates_[candidate_count_++] = {above_use, parent, above_record.birth};
      }
    }
  }
  record.birth = 0;
  present.length = 0;
  parts_.retired.add_extent(present.base, record.capacity);
  parts_.retired.add(retired_kind::run, run);
  return count;
}

void block_eviction::forget_names(std::uint32_t run, std::uint32_t first) noexcept {
  const block_run& present = parts_.blocks.run(run);
  constexpr std::uint32_t ahead = 16;
  for (std::uint32_t i = first; i < present.length; ++i) {
    if (i + ahead < present.length) parts_.names.prefetch(*parts_.blocks.hashes(present.base + i + ahead));
    parts_.names.erase(present.base + i);
  }
}

void block_eviction::find_candidates(std::uint32_t spared) noexcept {
  const std::uint32_t bound = parts_.blocks.run_bound();
  const std::uint32_t count = std::min(bound, window);
  const std::size_t most = std::clamp<std::size_t>(count / 64, 1, most_candidates);
  const auto is_younger = [](const eviction_candidate& one, const eviction_candidate& other) {
    return one.last_use < other.last_use;
  };
  auto* const begin = candidates_.data();
  candidate_count_ = 0;
  for (std::uint32_t i = 0; i < count; ++i, ++hand_) {
    if (hand_ >= bound) hand_ = 0;
    const run_record& record = parts_.blocks.record(hand_);
    if (record.birth == 0 || record.children > 0 || hand_ == spared) continue;
    const block_run& run = parts_.blocks.run(hand_);
    const bool is_held = !span_word(run.spans.load(std::memory_order_relaxed)).is_empty();
    const eviction_candidate found{is_held ? run.last_use.load(std::memory_order_relaxed) : 0, hand_, record.birth};
    if (candidate_count_ == most) {
      if (found.last_use >= begin->last_use) continue;
      std::pop_heap(begin, begin + candidate_count_--, is_younger);
    }
    begin[candidate_count_++] = found;
    std::push_heap(begin, begin + candidate_count_, is_younger);
  }
  std::sort(begin, begin + candidate_count_, is_later);
}

}  // namespace cenote::indexer
