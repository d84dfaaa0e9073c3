#include "services/indexer/forest/span_editor.hpp"

#include <bit>
#include <new>
#include <utility>

namespace cenote::indexer {

namespace {

std::uint64_t repeat_key(block_number block, holder number) noexcept {
  return (std::uint64_t{block} << 32) | number;
}

template <class Visit>
void for_holders(const forest_parts& parts, std::span<const set_word> words, Visit&& visit) {
  for (const set_word& word : words) {
    for (std::uint64_t bits = word.bits; bits != 0; bits &= bits - 1) {
      const auto bit = static_cast<std::uint32_t>(std::countr_zero(bits));
      visit(parts.holders.holder_at(word.plane, word.word * 64U + bit), word.kind);
    }
  }
}

}  // namespace

span_editor::span_editor(forest_parts& parts, std::size_t repeats)
    : parts_(parts),
      most_repeats_(repeats),
      repeats_(budget_allocator<std::pair<const std::uint64_t, std::uint32_t>>(parts.budget)) {}

edit_result span_editor::add(std::uint32_t run, std::uint32_t first, std::uint32_t last, holder added,
                             repeat_rule repeats) noexcept {
  const bool is_medium_counted = is_counted(parts_.holders.place(added).kind);
  if (!is_medium_counted && repeats == repeat_rule::by_medium) return change(run, first, last, added, change_kind::sum);
  holder_span single;
  const block_run& present = parts_.blocks.run(run);
  std::array<std::uint64_t, block_store::most_run / 64> stored{};
  std::uint32_t begin = 0;
  for (const holder_span& span : span_word(present.spans.load(std::memory_order_relaxed)).spans(single)) {
    if (parts_.sets.contains(span.set, added)) {
      for (std::uint32_t i = std::max(begin, first); i < std::min(span.end, last); ++i) {
        stored[i / 64] |= std::uint64_t{1} << (i % 64);
      }
    }
    begin = span.end;
  }
  const edit_result done = change(run, first, last, added, change_kind::sum);
  if (done == edit_result::out_of_memory) return done;
  for (std::uint32_t i = first; i < last; ++i) {
    if (((stored[i / 64] >> (i % 64)) & 1) == 0) continue;
    has_gpu_repeats_ = has_gpu_repeats_ || !is_medium_counted;
    repeat(present.base + i, added);
  }
  return done;
}

edit_result span_editor::remove(std::uint32_t run, std::uint32_t first, std::uint32_t last, holder removed) noexcept {
  if (repeats_.empty() || !may_repeat(parts_.holders.place(removed).kind)) {
    return change(run, first, last, removed, change_kind::difference);
  }
  const block_number base = parts_.blocks.run(run).base;
  edit_result sum = edit_result::same;
  for (std::uint32_t i = first; i < last;) {
    if (end_repeat(base + i, removed)) {
      ++i;
      continue;
    }
    std::uint32_t end = i + 1;
    while (end < last && !repeats_.contains(repeat_key(base + end, removed))) ++end;
    const edit_result done = change(run, i, end, removed, change_kind::difference);
    if (done == edit_result::out_of_memory) return done;
    if (done == edit_result::changed) sum = done;
    i = end;
  }
  return sum;
}

edit_result span_editor::erase(std::uint32_t run, holder removed) noexcept {
  return change(run, 0, parts_.blocks.run(run).length, removed, change_kind::difference);
}

edit_result span_editor::change(std::uint32_t run, std::uint32_t first, std::uint32_t last, holder changed,
                                change_kind kind) noexcept {
  block_run& present = parts_.blocks.run(run);
  const span_word word(present.spans.load(std::memory_order_relaxed));
  holder_span single;
  const auto old = word.spans(single);
  count_ = 0;
  gained_ = 0;
  // Only the spans that change, and those beside them, which may become one with them.
  const auto ends_at = [&](std::uint32_t block) {
    const auto found = std::ranges::lower_bound(old, block, {}, &holder_span::end);
    return static_cast<std::size_t>(found - old.begin());
  };
  const std::size_t low = std::max<std::size_t>(ends_at(first + 1), 1) - 1;
  const std::size_t high = std::min(ends_at(last) + 2, old.size());
  std::uint32_t begin = low == 0 ? 0 : old[low - 1].end;
  for (const holder_span& span : old.subspan(low, high - low)) {
    if (begin < first) push(std::min(first, span.end), span.set);
    const holder_span part{std::min(span.end, last), span.set};
    const std::uint32_t part_begin = std::max(begin, first);
    if (part_begin < part.end && !change_span(part, part_begin, changed, kind)) return edit_result::out_of_memory;
    if (span.end > last) push(span.end, span.set);
    begin = span.end;
  }
  if (kind == change_kind::sum && begin < last) {
    if (begin < first) push(first, 0);
    if (!change_span({last, 0}, std::max(begin, first), changed, kind)) return edit_result::out_of_memory;
  }
  while (high == old.size() && count_ > 0 && edited_[count_ - 1].set == 0) --count_;
  if (gained_ == 0) return edit_result::same;
  if (!publish(present, old, low, high)) return edit_result::out_of_memory;
  parts_.retired.add_memory(word.memory(), word.bytes());
  if (parts_.holders.is_live(changed)) {
    const auto count = static_cast<std::int64_t>(gained_);
    parts_.holders.add_blocks(changed, kind == change_kind::sum ? count : -count);
  }
  return edit_result::changed;
}

bool span_editor::change_span(holder_span span, std::uint32_t begin, holder changed, change_kind kind) noexcept {
  const set_number set =
      kind == change_kind::sum ? parts_.sets.sum(span.set, changed) : parts_.sets.difference(span.set, changed);
  if (set == holder_sets::no_set) {
    settle();
    return false;
  }
  if (set != span.set) gained_ += span.end - begin;
  push(span.end, set);
  return true;
}

void span_editor::push(std::uint32_t end, set_number set) noexcept {
  if (count_ > 0 && edited_[count_ - 1].set == set) {
    edited_[count_ - 1].end = end;
  } else {
    edited_[count_++] = {end, set};
  }
}

bool span_editor::publish(block_run& run, std::span<const holder_span> old, std::size_t low,
                          std::size_t high) noexcept {
  const std::span<const holder_span> edited(edited_.data(), count_);
  const std::size_t size = low + edited.size() + (old.size() - high);
  span_word word;
  if (size == 1) word = span_word::single(!edited.empty() ? edited.front() : low > 0 ? old.front() : old.back());
  if (size > 1) {
    void* const memory = parts_.budget.allocate(size * sizeof(holder_span));
    if (memory == nullptr) {
      settle();
      return false;
    }
    auto* const copy = static_cast<holder_span*>(memory);
    std::ranges::copy(old.first(low), copy);
    std::ranges::copy(edited, copy + low);
    std::ranges::copy(old.subspan(high), copy + low + edited.size());
    word = span_word::array(copy, size);
  }
  for (const holder_span& span : edited) parts_.sets.acquire(span.set);
  run.spans.store(word.word(), std::memory_order_release);
  for (const holder_span& span : old.subspan(low, high - low)) parts_.sets.release(span.set);
  return true;
}

void span_editor::settle() noexcept {
  for (std::size_t i = 0; i < count_; ++i) parts_.sets.settle(edited_[i].set);
}

void span_editor::drop(std::uint32_t run, std::uint32_t first) noexcept {
  block_run& present = parts_.blocks.run(run);
  const span_word word(present.spans.load(std::memory_order_relaxed));
  holder_span single;
  const auto old = word.spans(single);
  if (old.empty()) return;
  const auto keep = [&](std::uint32_t end) {
    count_ = 0;
    for (const holder_span& span : old) {
      if (count_ == 0 || edited_[count_ - 1].end < end) push(std::min(span.end, end), span.set);
    }
    while (count_ > 0 && (end == 0 || edited_[count_ - 1].set == 0)) --count_;
  };
  std::uint32_t end = first;
  keep(end);
  if (!publish(present, old, 0, old.size())) {
    end = std::min(old.front().end, first);
    keep(end);
    (void)publish(present, old, 0, old.size());  // one span needs no memory
  }
  count_dropped(old, end);
  forget_repeats(old, present.base, end);
  parts_.retired.add_memory(word.memory(), word.bytes());
}

void span_editor::count_dropped(std::span<const holder_span> spans, std::uint32_t first) noexcept {
  std::uint32_t begin = 0;
  for (const holder_span& span : spans) {
    const std::uint32_t from = std::max(begin, first);
    begin = span.end;
    if (from >= span.end) continue;
    set_word single;
    for_holders(parts_, parts_.sets.words(span.set, single), [&](holder number, holder_kind) {
      if (!parts_.holders.is_live(number)) return;
      parts_.holders.add_blocks(number, -static_cast<std::int64_t>(span.end - from));
      parts_.holders.add_dropped(number, span.end - from);
    });
  }
}

void span_editor::repeat(block_number block, holder number) noexcept {
  const std::uint64_t key = repeat_key(block, number);
  try {
    const auto found = repeats_.find(key);
    if (found != repeats_.end()) {
      ++found->second;
    } else if (repeats_.size() < most_repeats_) {
      repeats_.emplace(key, 1);
    } else {
      ++repeats_refused_;
    }
  } catch (const std::bad_alloc&) {
    ++repeats_refused_;
  }
}

bool span_editor::end_repeat(block_number block, holder number) noexcept {
  const auto found = repeats_.find(repeat_key(block, number));
  if (found == repeats_.end()) return false;
  if (--found->second == 0) repeats_.erase(found);
  return true;
}

void span_editor::forget_dead() noexcept {
  std::erase_if(repeats_, [&](const auto& entry) {
    return !parts_.holders.is_live(static_cast<holder>(entry.first & 0xffff'ffffU));
  });
}

void span_editor::forget_repeats(std::span<const holder_span> spans, block_number base, std::uint32_t first) noexcept {
  if (repeats_.empty()) return;
  std::uint32_t begin = 0;
  for (const holder_span& span : spans) {
    set_word single;
    for_holders(parts_, parts_.sets.words(span.set, single), [&](holder number, holder_kind kind) {
      if (!may_repeat(kind)) return;
      for (std::uint32_t i = std::max(begin, first); i < span.end; ++i) repeats_.erase(repeat_key(base + i, number));
    });
    begin = span.end;
  }
}

}  // namespace cenote::indexer
