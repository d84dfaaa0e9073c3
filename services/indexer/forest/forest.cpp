#include "services/indexer/forest/forest.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

namespace cenote::indexer {

namespace {

constexpr std::uint32_t least_capacity = 16;  // blocks of a new run
constexpr std::size_t ahead = 16;             // names whose slots are loaded meanwhile

std::size_t checked_memory(std::size_t memory) {
  if (memory < forest::least_memory) throw std::bad_alloc();
  return memory;
}

}  // namespace

forest_options forest_options_for(std::size_t memory) noexcept {
  constexpr std::size_t least_members = 256;
  constexpr std::size_t member_bytes = 1024;  // of the memory for each rank of a pod that there may be
  constexpr std::size_t least_repeats = std::size_t{1} << 18;
  constexpr std::size_t repeat_bytes = 512;  // of the memory for each repeated store that there may be
  return {.memory = memory,
          .members = std::clamp(memory / member_bytes, least_members, holder_table::most_holders),
          .repeats = std::max(memory / repeat_bytes, least_repeats)};
}

forest::forest(const forest_options& options)
    : parts_(checked_memory(options.memory), options.members, options.seed),
      editor_(parts_, options.repeats),
      eviction_(parts_, editor_) {}

std::expected<std::size_t, store_refusal> forest::store(name_domain domain, block_number parent,
                                                        std::span<const std::uint64_t> keys,
                                                        std::span<const std::uint64_t> hashes, holder stored_by,
                                                        store_rule rule) noexcept {
  if (!hashes.empty() && hashes.size() != keys.size()) return std::unexpected(store_refusal::unequal_lengths);
  if (!parts_.holders.is_live(stored_by)) return std::unexpected(store_refusal::dead_holder);
  parts_.reclaim_some();
  position cursor;
  if (parent != no_block) {
    cursor.run = parts_.blocks.run_of(parent);
    if (cursor.run == no_run) return std::unexpected(store_refusal::unknown_parent);
    cursor.offset = parent - parts_.blocks.run(cursor.run).base + 1;
  }
  const auto known = count_known(domain, cursor, keys, hashes, rule);
  if (!known) return std::unexpected(store_refusal::name_conflict);
  const auto names = [&](std::size_t first, std::size_t count) {
    return hashes.empty() ? hashes : hashes.subspan(first, count);
  };
  const repeat_rule repeats = rule.step == 1 ? repeat_rule::by_medium : repeat_rule::counted;
  std::size_t done = 0;
  bool is_full = false;
  while (done < *known && !is_full) {
    const std::uint32_t count = pass_known(cursor, keys.subspan(done, *known - done));
    if (count == 0) break;  // memory for what is in front took it
    const position begin{cursor.run, cursor.offset - count};
    parts_.touch(parts_.blocks.run(cursor.run));
    is_full = !name_known(domain, begin, names(done, count)) || !add(begin, count, stored_by, repeats);
    if (!is_full) done += count;
  }
  while (done < keys.size() && !is_full) {
    const std::size_t count = append(domain, cursor, keys.subspan(done), names(done, keys.size() - done), stored_by);
    is_full = count == 0;
    done += count;
  }
  refused_ += keys.size() - done;
  eviction_.keep_ahead(cursor.run);
  return done;
}

std::uint32_t forest::pass_known(position& cursor, std::span<const std::uint64_t> keys) const noexcept {
  if (cursor.run != no_run) {
    const block_run& run = parts_.blocks.run(cursor.run);
    const auto most = static_cast<std::uint32_t>(std::min<std::size_t>(run.length - cursor.offset, keys.size()));
    const std::uint32_t count = most == 0 ? 0 : parts_.common(run.base + cursor.offset, keys.data(), most);
    cursor.offset += count;
    if (count > 0) return count;
  }
  const std::uint32_t head = parts_.find_head(keys.front());
  if (head == no_run) return 0;
  cursor = {head, 0};
  return pass_known(cursor, keys);
}

// The number of blocks that are known; none if the rule of names were broken.
std::optional<std::size_t> forest::count_known(name_domain domain, position cursor, std::span<const std::uint64_t> keys,
                                               std::span<const std::uint64_t> hashes, store_rule rule) const noexcept {
  std::size_t known = 0;
  while (known < keys.size()) {
    const std::uint32_t count = pass_known(cursor, keys.subspan(known));
    if (count == 0) break;
    const position begin{cursor.run, cursor.offset - count};
    if (!hashes.empty() && is_conflict(domain, begin, hashes.subspan(known, count), known, rule)) return std::nullopt;
    known += count;
  }
  if (hashes.empty()) return known;
  for (std::size_t i = known; i < std::min(known + ahead, hashes.size()); ++i) parts_.names.prefetch(hashes[i]);
  for (std::size_t i = known; i < hashes.size(); ++i) {
    if (i + ahead < hashes.size()) parts_.names.prefetch(hashes[i + ahead]);
    if (parts_.names.find(domain, hashes[i]) != no_block) return std::nullopt;
  }
  return known;
}

bool forest::is_conflict(name_domain domain, position begin, std::span<const std::uint64_t> hashes,
                         std::size_t first_key, store_rule rule) const noexcept {
  const block_run& run = parts_.blocks.run(begin.run);
  const block_number first = run.base + begin.offset;
  const std::uint64_t* const present = parts_.blocks.hashes(first);
  const bool is_domain = run.domain == domain;
  if (is_domain && std::memcmp(present, hashes.data(), hashes.size_bytes()) == 0) return false;
  for (std::uint32_t i = 0; i < hashes.size(); ++i) {
    if (is_domain && present[i] == hashes[i]) continue;
    const block_number known = parts_.names.find(domain, hashes[i]);
    if (known != no_block && known != first + i) return true;
    const bool is_other = is_domain && present[i] != unnamed() && known == no_block;
    const bool is_last = (first_key + i + 1) % rule.step == 0;
    if (is_other && is_last && rule.names == name_rule::one_name) return true;
  }
  return false;
}

bool forest::name_known(name_domain domain, position begin, std::span<const std::uint64_t> hashes) noexcept {
  if (hashes.empty()) return true;
  block_run& run = parts_.blocks.run(begin.run);
  if (run.domain != domain) sweep_names(begin.run);
  if (run.domain == no_domain) run.domain = domain;
  const block_number first = run.base + begin.offset;
  const std::uint64_t* const present = parts_.blocks.hashes(first);
  const bool is_domain = run.domain == domain;
  if (is_domain && std::memcmp(present, hashes.data(), hashes.size_bytes()) == 0) return true;
  for (std::uint32_t i = 0; i < hashes.size(); ++i) {
    if (is_domain && present[i] == hashes[i]) continue;
    if (parts_.names.find(domain, hashes[i]) == first + i) continue;
    const bool is_own = is_domain && present[i] == unnamed();
    const bool is_named =
        is_own ? parts_.names.add(first + i, hashes[i]) : parts_.names.add_extra(domain, first + i, hashes[i]);
    if (!is_named) return false;
  }
  return true;
}

bool forest::add(position begin, std::uint32_t count, holder added, repeat_rule repeats) noexcept {
  const std::uint32_t last = begin.offset + count;
  if (editor_.add(begin.run, begin.offset, last, added, repeats) != edit_result::out_of_memory) return true;
  constexpr std::size_t request = block_store::most_run * sizeof(holder_span);
  return eviction_.make_bytes(request, begin.run) &&
         editor_.add(begin.run, begin.offset, last, added, repeats) != edit_result::out_of_memory;
}

// Stores new blocks behind `at`, as many as one run takes.
std::size_t forest::append(name_domain domain, position& cursor, std::span<const std::uint64_t> keys,
                           std::span<const std::uint64_t> hashes, holder added) noexcept {
  const bool is_end = cursor.run != no_run && cursor.offset == parts_.blocks.run(cursor.run).length;
  bool is_room = false;
  if (is_end) {
    const block_run& run = parts_.blocks.run(cursor.run);
    run_record& record = parts_.blocks.record(cursor.run);
    if (record.capacity == run.length && record.capacity < block_store::most_run && !record.is_shortened) {
      const block_store::block_extent present{run.base, record.capacity};
      const auto request = static_cast<std::uint32_t>(std::min<std::size_t>(keys.size(), block_store::most_run));
      const std::uint32_t more = parts_.blocks.extend(present, request);
      if (more > 0) parts_.blocks.set_owner({run.base + record.capacity, more}, cursor.run);
      record.capacity = static_cast<std::uint16_t>(record.capacity + more);
    }
    is_room = record.capacity > run.length && (hashes.empty() || run.domain == domain || run.domain == no_domain);
  }
  if (!is_room && !begin_run(hashes.empty() ? no_domain : domain, cursor, keys.front(), keys.size())) return 0;
  block_run& run = parts_.blocks.run(cursor.run);
  if (!hashes.empty()) run.domain = domain;
  const std::size_t free = std::size_t{parts_.blocks.record(cursor.run).capacity} - run.length;
  const auto most = static_cast<std::uint32_t>(std::min(free, keys.size()));
  const block_number first = run.base + run.length;
  std::memcpy(parts_.blocks.keys(first), keys.data(), most * sizeof(std::uint64_t));
  std::uint32_t count = 0;
  for (; count < most; ++count) {
    *parts_.blocks.hashes(first + count) = unnamed();
    if (!hashes.empty() && !parts_.names.add(first + count, hashes[count])) break;
  }
  if (count == 0) {
    if (run.length == 0) eviction_.forget(cursor.run);
    return 0;
  }
  run.length = static_cast<std::uint16_t>(run.length + count);
  parts_.touch(run);
  const position begin = cursor;
  cursor.offset += count;
  if (add(begin, count, added, repeat_rule::by_medium)) return count;  // new blocks repeat none
  eviction_.offer(cursor.run);                                         // names without a holder
  return 0;
}

bool forest::begin_run(name_domain domain, position& cursor, std::uint64_t key, std::size_t request) noexcept {
  const bool is_end = cursor.run != no_run && cursor.offset == parts_.blocks.run(cursor.run).length;
  const std::uint32_t grown = is_end ? parts_.blocks.record(cursor.run).capacity * 3U / 2 : 0;
  const auto capacity = std::max({static_cast<std::uint32_t>(std::min<std::size_t>(request, block_store::most_run)),
                                  std::min(grown, block_store::most_run), least_capacity});
  const auto hash_of = [&](std::uint32_t run) { return spread(parts_.blocks.run(run).key, parts_.seed); };
  const auto prefetch = [&](std::uint32_t run) { __builtin_prefetch(&parts_.blocks.run(run)); };
  if (!parts_.heads.make_room(1, 0, hash_of, prefetch)) return false;
  auto extent = parts_.blocks.allocate(capacity);
  if (!extent && eviction_.make_room(capacity, cursor.run)) extent = parts_.blocks.allocate(capacity);
  if (!extent) return false;
  const auto number = parts_.blocks.add_run();
  if (!number) {
    parts_.blocks.release(*extent);
    return false;
  }
  run_record& record = parts_.blocks.record(*number);
  record.capacity = static_cast<std::uint16_t>(extent->capacity);
  block_run& run = parts_.blocks.run(*number);
  run.key = key;
  run.base = extent->base;
  run.length = 0;
  run.domain = domain;
  run.next.store(no_run, std::memory_order_relaxed);
  run.spans.store(0, std::memory_order_relaxed);
  *parts_.blocks.keys(extent->base) = key;
  parts_.blocks.set_owner(*extent, *number);
  if (cursor.run != no_run) {
    block_run& parent = parts_.blocks.run(cursor.run);
    record.parent = parent.base + cursor.offset - 1;
    ++parts_.blocks.record(cursor.run).children;
  }
  parts_.heads.insert(spread(key, parts_.seed), *number);
  if (is_end) parts_.blocks.run(cursor.run).next.store(*number, std::memory_order_release);
  cursor = {*number, 0};
  return true;
}

block_change forest::remove(name_domain domain, std::span<const std::uint64_t> hashes, holder removed) noexcept {
  constexpr std::size_t batch = 64;
  std::array<block_number, batch> blocks{};
  block_change sum;
  for (std::size_t cursor = 0; cursor < hashes.size(); cursor += batch) {
    const auto part = hashes.subspan(cursor, std::min(batch, hashes.size() - cursor));
    for (const std::uint64_t hash : part) parts_.names.prefetch(hash);
    for (const std::uint64_t hash : part) parts_.names.prefetch_block(hash);
    for (std::size_t i = 0; i < part.size(); ++i) blocks[i] = parts_.names.find(domain, part[i]);
    const block_change one = remove(std::span(blocks.data(), part.size()), removed);
    sum.blocks += one.blocks;
    sum.unknown += one.unknown;
  }
  return sum;
}

// Calls `change(run, first, last)` for blocks in a row, upwards or, as engines free them, downwards; it answers whether
// it could.
template <class Change>
block_change forest::change_stretches(std::span<const block_number> blocks, Change&& change) noexcept {
  block_change sum;
  for (std::size_t i = 0; i < blocks.size();) {
    const std::uint32_t run = blocks[i] == no_block ? no_run : parts_.blocks.run_of(blocks[i]);
    if (run == no_run) {
      ++sum.unknown;
      ++i;
      continue;
    }
    const block_number base = parts_.blocks.run(run).base;
    const block_number end = base + parts_.blocks.run(run).length;
    std::size_t next = i + 1;
    const bool is_down = next < blocks.size() && blocks[next] + 1 == blocks[i];
    const block_number step = is_down ? no_block : 1;
    while (next < blocks.size() && blocks[next] == blocks[next - 1] + step && blocks[next] >= base &&
           blocks[next] < end) {
      ++next;
    }
    const block_number low = std::min(blocks[i], blocks[next - 1]);
    const block_number high = std::max(blocks[i], blocks[next - 1]);
    (change(run, low - base, high - base + 1) ? sum.blocks : sum.unknown) += next - i;
    i = next;
  }
  return sum;
}

block_change forest::remove(std::span<const block_number> blocks, holder removed) noexcept {
  if (!parts_.holders.is_live(removed)) return {0, blocks.size()};
  parts_.reclaim_some();
  return change_stretches(blocks, [&](std::uint32_t run, std::uint32_t first, std::uint32_t last) {
    remove_stretch(run, first, last, removed);
    return true;
  });
}

block_change forest::hold(std::span<const block_number> blocks, holder stored_by, repeat_rule repeats) noexcept {
  if (!parts_.holders.is_live(stored_by)) return {0, blocks.size()};
  parts_.reclaim_some();
  return change_stretches(blocks, [&](std::uint32_t run, std::uint32_t first, std::uint32_t last) {
    parts_.touch(parts_.blocks.run(run));
    return add({run, first}, last - first, stored_by, repeats);
  });
}

void forest::remove_stretch(std::uint32_t run, std::uint32_t first, std::uint32_t last, holder removed) noexcept {
  edit_result done = editor_.remove(run, first, last, removed);
  if (done == edit_result::out_of_memory) {
    constexpr std::size_t request = block_store::most_run * sizeof(holder_span);
    if (eviction_.make_bytes(request, run)) done = editor_.remove(run, first, last, removed);
    if (done == edit_result::out_of_memory) editor_.drop(run, first);  // less is known, nothing is wrong
  }
  if (done == edit_result::same) return;
  holder_span single;
  const block_run& present = parts_.blocks.run(run);
  const auto spans = span_word(present.spans.load(std::memory_order_relaxed)).spans(single);
  if (spans.empty() || spans.back().end + block_store::granule <= present.length) eviction_.offer(run);
}

std::optional<name_domain> forest::begin_domain() {
  if (!free_domains_.empty()) {
    const name_domain domain = free_domains_.back();
    free_domains_.pop_back();
    return domain;
  }
  if (domain_bound_ == no_domain) return std::nullopt;
  return domain_bound_++;
}

bool forest::name(name_domain domain, block_number block, std::uint64_t hash) noexcept {
  const block_number known = parts_.names.find(domain, hash);
  if (known != no_block) return known == block;
  return parts_.blocks.run_of(block) != no_run && parts_.names.add_extra(domain, block, hash);
}

void forest::end_domain(name_domain domain) {
  free_domains_.reserve(std::size_t{domain_bound_});
  ended_domains_.push_back(domain);
}

bool forest::sweep(std::size_t runs) noexcept {
  if (!is_sweeping_) {
    swept_dead_ = parts_.holders.dead().size();
    swept_domains_ = ended_domains_.size();
    sweep_at_ = 0;
    is_sweeping_ = swept_dead_ > 0 || swept_domains_ > 0;
    if (!is_sweeping_) return true;
  }
  for (std::size_t i = 0; i < runs && sweep_at_ < parts_.blocks.run_bound(); ++i) {
    parts_.reclaim_some();
    sweep_run(sweep_at_++);
  }
  if (sweep_at_ < parts_.blocks.run_bound()) return false;
  is_sweeping_ = false;
  editor_.forget_dead();
  parts_.holders.retire_dead(swept_dead_);
  for (std::size_t i = 0; i < swept_domains_; ++i) {
    parts_.names.erase_extra(ended_domains_[i]);
    free_domains_.push_back(ended_domains_[i]);
  }
  ended_domains_.erase(ended_domains_.begin(), ended_domains_.begin() + static_cast<std::ptrdiff_t>(swept_domains_));
  parts_.reclaim();
  return parts_.holders.dead().empty() && ended_domains_.empty();
}

// Takes out the names that a run has in a domain that ended.
void forest::sweep_names(std::uint32_t run) noexcept {
  block_run& present = parts_.blocks.run(run);
  if (present.domain == no_domain || std::ranges::find(ended_domains_, present.domain) == ended_domains_.end()) return;
  for (std::uint32_t i = 0; i < present.length; ++i) {
    parts_.names.erase(present.base + i);
    *parts_.blocks.hashes(present.base + i) = unnamed();
  }
  present.domain = no_domain;
}

void forest::sweep_run(std::uint32_t run) noexcept {
  if (parts_.blocks.record(run).birth == 0) return;
  sweep_names(run);
  block_run& present = parts_.blocks.run(run);
  const auto dead_in = [&](set_number set) -> holder {
    set_word single;
    for (const set_word& word : parts_.sets.words(set, single)) {
      const std::uint64_t dead = word.bits & ~parts_.holders.live(word.plane, word.word);
      if (dead == 0) continue;
      return parts_.holders.holder_at(word.plane, word.word * 64U + static_cast<std::uint32_t>(std::countr_zero(dead)));
    }
    return 0;
  };
  for (std::size_t i = 0;;) {
    holder_span single;
    const auto spans = span_word(present.spans.load(std::memory_order_relaxed)).spans(single);
    if (i >= spans.size()) break;
    const holder dead = dead_in(spans[i].set);
    if (dead == 0) {
      ++i;
      continue;
    }
    i = 0;
    if (editor_.erase(run, dead) == edit_result::out_of_memory) editor_.drop(run, 0);
  }
  holder_span single;
  const auto spans = span_word(present.spans.load(std::memory_order_relaxed)).spans(single);
  if (spans.empty() || spans.back().end + block_store::granule <= present.length) eviction_.offer(run);
}

block_number forest::block_behind(block_number parent, std::uint64_t key) const noexcept {
  position cursor;
  if (parent != no_block) {
    cursor.run = parts_.blocks.run_of(parent);
    if (cursor.run == no_run) return no_block;
    cursor.offset = parent - parts_.blocks.run(cursor.run).base + 1;
  }
  if (pass_known(cursor, std::span(&key, 1)) == 0) return no_block;
  return parts_.blocks.run(cursor.run).base + cursor.offset - 1;
}

bool forest::is_held(block_number block, holder number) const noexcept {
  const std::uint32_t run = parts_.blocks.run_of(block);
  if (run == no_run || !parts_.holders.is_live(number)) return false;
  const std::uint32_t offset = block - parts_.blocks.run(run).base;
  holder_span single;
  for (const holder_span& span :
       span_word(parts_.blocks.run(run).spans.load(std::memory_order_relaxed)).spans(single)) {
    if (offset < span.end) return parts_.sets.contains(span.set, number);
  }
  return false;
}

std::optional<std::uint64_t> forest::key_of(block_number block) const noexcept {
  if (parts_.blocks.run_of(block) == no_run) return std::nullopt;
  return *parts_.blocks.keys(block);
}

void forest::dump(holder dumped, const std::function<void(const held_blocks&)>& visit) const {
  if (!parts_.holders.is_live(dumped)) return;
  std::vector<bool> is_done(parts_.blocks.run_bound());
  std::vector<std::uint32_t> path;
  const auto visit_run = [&](std::uint32_t number) {
    const block_run& run = parts_.blocks.run(number);
    holder_span single;
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    const auto flush = [&] {
      if (begin == end) return;
      const block_number parent = begin > 0 ? run.base + begin - 1 : parts_.blocks.record(number).parent;
      visit({parent == no_block ? std::nullopt : key_of(parent),
             {parts_.blocks.keys(run.base + begin), end - begin},
             {parts_.blocks.hashes(run.base + begin), end - begin},
             run.domain});
    };
    for (const holder_span& span : span_word(run.spans.load(std::memory_order_relaxed)).spans(single)) {
      if (parts_.sets.contains(span.set, dumped)) {
        end = span.end;
      } else {
        flush();
        begin = end = span.end;
      }
    }
    flush();
  };
  for (std::uint32_t i = 0; i < parts_.blocks.run_bound(); ++i) {
    for (std::uint32_t run = i; run != no_run && !is_done[run] && parts_.blocks.record(run).birth != 0;) {
      path.push_back(run);
      is_done[run] = true;
      run = parts_.blocks.run_of(parts_.blocks.record(run).parent);
    }
    for (; !path.empty(); path.pop_back()) visit_run(path.back());
  }
}

forest_figures forest::figures() const noexcept {
  return {.bytes = bytes(),
          .block_capacity = parts_.blocks.capacity(),
          .free_blocks = parts_.blocks.unused(),
          .runs = parts_.blocks.run_bound(),
          .sets = parts_.sets.size(),
          .repeats = editor_.repeats(),
          .repeats_refused = editor_.repeats_refused(),
          .evicted = eviction_.evicted(),
          .evicted_held = eviction_.evicted_held(),
          .refused = refused_};
}

}  // namespace cenote::indexer
