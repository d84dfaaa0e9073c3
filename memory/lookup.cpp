#include "memory/lookup.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "memory/fence.hpp"

namespace cenote::memory {

namespace {

// Keys that are prefetched together: a prefetch that misses the TLB stalls the instructions behind it, so prefetches
// are issued in runs, with other work between the runs.
constexpr std::size_t run_keys = 8;
// Prefetch distances, in runs: enough cache misses in flight to hide memory's latency, few enough lines for the
// first-level cache.
constexpr std::size_t keys_ahead = 8;
constexpr std::size_t index_ahead = 3;
constexpr std::size_t version_ahead = 3;  // at least 2: a key outside its home slots is resolved one run later
// A block that is moved (compaction) while it is looked up is looked for again, at most so often; then it is a miss.
constexpr int move_attempts = 4;
// Keys that are pinned with one fence: few enough that their version lines, which are read before and after it, stay in
// the first-level cache.
constexpr std::size_t pin_batch = 64;
// Places of keys that a walk knows: of those that wait to be pinned, and of those that are looked for meanwhile.
constexpr std::size_t ring_keys = 128;
static_assert(ring_keys % pin_batch == 0 && ring_keys >= pin_batch + (index_ahead + version_ahead) * run_keys);
static_assert(pin_batch % run_keys == 0);
// A key outside its two home slots is looked for in so many more places of the newest table before the whole index.
constexpr int scanned_places = 30;

/// Prefetches the bytes of a run's keys, which may have left the cache since the caller made them. Addresses past the
/// end do no harm.
void prefetch_keys(key_batch keys, std::size_t first) noexcept {
  const auto* bytes = reinterpret_cast<const char*>(keys.data);
  for (std::size_t at = 0; at < run_keys * keys.width; at += 64) __builtin_prefetch(bytes + first * keys.width + at);
}

}  // namespace

/// A walk over keys in runs, as a software pipeline: while one run is visited, the version lines of the next runs and
/// the index lines of those after them are being prefetched. What it looks at is chosen without branches where either
/// way is likely.
class lookup::key_walk {
 public:
  key_walk(const lookup& owner, key_batch keys, std::uint32_t group) noexcept
      : owner_(owner),
        keys_(keys),
        group_(group),
        table_(owner.index_.newest()),
        versions_(owner.versions_->mapping()) {}

  /// Calls `visit(first, count)` for the runs in order until it returns false. candidates() and key_at() know that
  /// run's keys and the pin_batch before them.
  template <class Visit>
  void run(Visit&& visit) noexcept {
    const std::size_t runs = (keys_.count + run_keys - 1) / run_keys;
    for (std::size_t step = 0; step < runs + index_ahead + version_ahead; ++step) {
      if (step < runs) reduce(step * run_keys);
      if (step >= index_ahead && step - index_ahead <= runs) search_displaced();
      if (step >= index_ahead && step - index_ahead < runs) glance((step - index_ahead) * run_keys);
      if (step < index_ahead + version_ahead) continue;
      const std::size_t first = (step - index_ahead - version_ahead) * run_keys;
      if (!visit(first, size_at(first))) return;
    }
  }

  [[nodiscard]] std::span<candidate> candidates(std::size_t first, std::size_t count) noexcept {
    return std::span(candidates_).subspan(first % ring_keys, count);
  }
  [[nodiscard]] const block_key& key_at(std::size_t i) const noexcept { return block_keys_[i % ring_keys]; }

 private:
  [[nodiscard]] std::size_t size_at(std::size_t first) const noexcept {
    return std::min(run_keys, keys_.count - first);
  }
  void reduce(std::size_t first) noexcept {
    const std::size_t count = size_at(first);
    block_key* const block_keys = &block_keys_[first % ring_keys];
    const index_entry** const places = &places_[first % ring_keys];
    prefetch_keys(keys_, first + keys_ahead * run_keys);
    reduce_keys(keys_, first, group_, {block_keys, count});
    for (std::size_t i = 0; i < count; ++i) {
      places[i] = table_.home(block_keys[i]);
      index_reader::prefetch(places[i]);
    }
  }
  void glance(std::size_t first) noexcept {
    const std::size_t count = size_at(first);
    const std::size_t start = first % ring_keys;
    for (std::size_t i = start; i < start + count; ++i) {
      const std::uint64_t value = table_.glance(places_[i], block_keys_[i]);
      take(i, value);
      displaced_keys_[displaced_count_] = static_cast<std::uint32_t>(i);
      displaced_count_ += value == index_value::empty ? 1 : 0;
    }
  }
  void search_displaced() noexcept {
    for (const std::uint32_t i : std::span(displaced_keys_).first(displaced_count_)) {
      const std::uint64_t value = table_.scan(table_.advance(places_[i], 2), block_keys_[i], scanned_places);
      take(i, value != index_value::empty ? value : owner_.index_.find(block_keys_[i]));
    }
    displaced_count_ = 0;
  }
  [[gnu::always_inline]] void take(std::size_t i, std::uint64_t value) noexcept {
    const candidate place = owner_.resolve(versions_, value);
    candidates_[i] = place;
    const std::uint32_t mask = std::uint32_t{0} - static_cast<std::uint32_t>(place.found());
    __builtin_prefetch(versions_.entries + (place.version_index & mask));
  }

  const lookup& owner_;
  key_batch keys_;
  std::uint32_t group_;
  index_reader::table_view table_;
  version_table::mapped_part versions_;
  std::size_t displaced_count_ = 0;
  std::array<std::uint32_t, run_keys + 1> displaced_keys_;  ///< not in their two home slots: searched with the next run
  std::array<block_key, ring_keys> block_keys_;
  std::array<const index_entry*, ring_keys> places_;
  std::array<candidate, ring_keys> candidates_;
};

bool lookup::is_present(candidate place, const block_key& reduced, std::span<const std::byte> key) const noexcept {
  for (int attempt = 0; place.found() && attempt < move_attempts; ++attempt) {
    const version_entry& entry = versions_->entry(place.version_index);
    const std::uint64_t version = entry.version.load(std::memory_order_acquire);
    if (index_value::matches(place.value, version) && versions_->key_equals(entry, place.version_index, key)) {
      load_fence();
      if (entry.version.load(std::memory_order_acquire) == version) return true;
    }
    const candidate again = resolve(index_.find(reduced));
    if (again.value == place.value) return false;
    place = again;
  }
  return false;
}

bool lookup::is_present(const block_key& reduced, std::span<const std::byte> key) const noexcept {
  return is_present(resolve(index_.find(reduced)), reduced, key);
}

std::size_t lookup::count_prefix(key_batch keys, std::uint32_t group) const noexcept {
  std::size_t prefix = 0;
  key_walk all(*this, keys, group);
  all.run([&](std::size_t first, std::size_t count) {
    const auto places = all.candidates(first, count);
    std::size_t length = 0;
    while (length < count && is_present(places[length], all.key_at(first + length), keys[first + length])) ++length;
    prefix = first + length;
    return length == count;
  });
  return prefix;
}

std::size_t lookup::count_reachable(key_batch keys, std::uint32_t group, std::size_t first) const noexcept {
  if (hints_.none()) return first;
  std::size_t end = first;
  for (; end < keys.count; ++end) {
    const block_key reduced = reduce_key(keys[end], group);
    if (!hints_.contains(reduced) && !is_present(reduced, keys[end])) break;
  }
  return end;
}

std::size_t lookup::add_lower(key_batch keys, std::uint32_t group, std::span<std::uint8_t> reachable) const noexcept {
  std::size_t added = 0;
  if (hints_.none()) return added;
  for (std::size_t i = 0; i < keys.count; ++i) {
    if (reachable[i] != 0 || !hints_.contains(reduce_key(keys[i], group))) continue;
    reachable[i] = 1;
    ++added;
  }
  return added;
}

void lookup::find_each(key_batch keys, std::uint32_t group, std::span<std::uint8_t> present) const noexcept {
  key_walk all(*this, keys, group);
  all.run([&](std::size_t first, std::size_t count) {
    const auto places = all.candidates(first, count);
    for (std::size_t i = 0; i < count; ++i) {
      present[first + i] = is_present(places[i], all.key_at(first + i), keys[first + i]) ? 1 : 0;
    }
    return true;
  });
}

void lookup::raise_high_water(std::uint32_t slots) const noexcept {
  auto& word = session_.header().pin_high_water;
  std::uint64_t now = word.load(std::memory_order_relaxed);
  while (now < slots && !word.compare_exchange_weak(now, slots, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

/// Follows a block that was moved between its lookup and its pin: pins the new place, fences, and checks the key again.
bool lookup::pin_moved(candidate& place, std::span<const std::byte> key, std::uint32_t group,
                       std::uint32_t slot) const noexcept {
  const block_key reduced = reduce_key(key, group);
  for (int attempt = 0; attempt < move_attempts; ++attempt) {
    const candidate again = resolve(index_.find(reduced));
    if (!again.found() || again.value == place.value) return false;
    place = again;
    session_.pin(slot).store(index_value::ref(place.value).bits, std::memory_order_relaxed);
    full_fence();
    if (holds(versions_->entry(place.version_index), place, key)) return true;
  }
  return false;
}

lookup::pin_outcome lookup::pin_located(std::span<candidate> located, key_batch keys, std::size_t first,
                                        std::uint32_t group, std::span<pin> out) const noexcept {
  std::array<std::uint32_t, pin_batch> numbers;
  const auto slots = std::span(numbers).first(slots_->take(std::span(numbers).first(located.size())));
  if (slots.empty()) return {0, true};
  raise_high_water(slots.back() + 1);
  std::atomic<std::uint64_t>* const pins = &session_.pin(0);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    pins[slots[i]].store(index_value::ref(located[i].value).bits, std::memory_order_relaxed);
  }
  full_fence();  // pairs with the owner's between making versions odd and scanning the pins

  const version_entry* const entries = versions_->mapping().entries;
  std::size_t held = 0;
  for (; held < slots.size(); ++held) {
    const auto key = keys[first + held];
    if (!holds(entries[located[held].version_index], located[held], key) &&
        !pin_moved(located[held], key, group, slots[held]))
      break;
    out[first + held] = {index_value::ref(located[held].value), slots[held]};
  }
  unpin_slots(slots.subspan(held));
  return {held, held == slots.size() && held < located.size()};
}

result<std::size_t> lookup::pin_prefix(key_batch keys, std::uint32_t group, std::span<pin> out) const {
  key_walk all(*this, keys, group);
  std::size_t prefix = 0;  // keys with a place; the first `held` are pinned
  std::size_t held = 0;
  pin_outcome last;
  const auto pin_waiting = [&] {
    last = pin_located(all.candidates(held, prefix - held), keys, held, group, out);
    held += last.held;
    return std::exchange(prefix, held) == held;
  };
  all.run([&](std::size_t first, std::size_t count) {
    const auto places = all.candidates(first, count);
    const auto end = std::ranges::find_if_not(places, &candidate::found);
    prefix += static_cast<std::size_t>(end - places.begin());
    return end == places.end() && (prefix - held < pin_batch || pin_waiting());
  });
  if (prefix != held) pin_waiting();
  if (!last.out_of_slots || !is_present(reduce_key(keys[held], group), keys[held])) return held;

  unpin(out.first(held));
  return fail(error_code::pin_limit, "more than " + std::to_string(held) + " resident blocks are asked for, but only " +
                                         std::to_string(held) + " of this session's " +
                                         std::to_string(slots_->total()) +
                                         " pins are free; release blocks, or attach with a larger max_pins");
}

void lookup::unpin_slots(std::span<const std::uint32_t> slots) const noexcept {
  if (slots.empty()) return;
  for (const std::uint32_t slot : slots) session_.pin(slot).store(0, std::memory_order_release);
  slots_->give_back(slots);
}

void lookup::unpin(std::span<const pin> pins) const noexcept {
  std::array<std::uint32_t, 256> numbers;
  while (!pins.empty()) {
    const std::size_t n = std::min(pins.size(), numbers.size());
    for (std::size_t i = 0; i < n; ++i) numbers[i] = pins[i].slot;
    unpin_slots(std::span(numbers).first(n));
    pins = pins.subspan(n);
  }
}

}  // namespace cenote::memory
