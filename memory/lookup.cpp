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
constexpr std::size_t ring_keys = 64;
static_assert(ring_keys % run_keys == 0 && ring_keys / run_keys > index_ahead + version_ahead);
// A block that is moved (compaction) while it is looked up is looked for again, at most so often; then it is a miss.
constexpr int move_attempts = 4;
// Keys that are pinned with one fence: few enough that their version lines, which are read before and after it, stay in
// the first-level cache.
constexpr std::size_t pin_batch = 64;

/// Prefetches the bytes of a run's keys, which may have left the cache since the caller made them. Addresses past the
/// end do no harm.
void prefetch_keys(key_batch keys, std::size_t first) noexcept {
  const auto* bytes = reinterpret_cast<const char*>(keys.data);
  for (std::size_t at = 0; at < run_keys * keys.width; at += 64) __builtin_prefetch(bytes + first * keys.width + at);
}

}  // namespace

/// Calls `visit(i, candidate, block_key)` for the keys in order until it returns false. A software pipeline over runs
/// of keys: while one run is visited, the version lines of the next runs and the index lines of those after them are
/// being prefetched.
template <class Visit>
void lookup::for_each_candidate(key_batch keys, std::uint32_t group, Visit&& visit) const noexcept {
  struct search {
    block_key key;
    const index_entry* place;
    candidate found;
  };
  const auto table = index_.newest();
  std::array<search, ring_keys> ring;
  std::array<std::uint32_t, run_keys> displaced;  // not in their two home slots: looked at again with the next run
  std::size_t displaced_count = 0;
  const std::size_t runs = (keys.count + run_keys - 1) / run_keys;
  const auto run_at = [&](std::size_t run) {
    return std::span(ring).subspan(run * run_keys % ring_keys, std::min(run_keys, keys.count - run * run_keys));
  };
  const auto take = [&](search& each, std::uint64_t value) {
    each.found = resolve(value);
    if (each.found.found()) __builtin_prefetch(&versions_->entry(each.found.version_index));
  };
  for (std::size_t step = 0; step < runs + index_ahead + version_ahead; ++step) {
    if (step < runs) {
      const auto run = run_at(step);
      prefetch_keys(keys, (step + keys_ahead) * run_keys);
      std::array<block_key, run_keys> block_keys;
      reduce_keys(keys, step * run_keys, group, std::span(block_keys).first(run.size()));
      for (std::size_t i = 0; i < run.size(); ++i) {
        run[i].key = block_keys[i];
        run[i].place = table.home(block_keys[i]);
        index_reader::prefetch(run[i].place);
      }
    }
    if (step >= index_ahead && step - index_ahead <= runs) {
      for (const std::uint32_t i : std::span(displaced).first(displaced_count)) {
        const std::uint64_t value = table.glance(ring[i].place, ring[i].key);
        take(ring[i], value != index_value::empty ? value : index_.find(ring[i].key));
      }
      displaced_count = 0;
    }
    if (step >= index_ahead && step - index_ahead < runs) {
      const auto run = run_at(step - index_ahead);
      for (search& each : run) {
        const std::uint64_t value = table.glance(each.place, each.key);
        if (value != index_value::empty) {
          take(each, value);
        } else {
          each.place = table.advance(each.place, 2);
          index_reader::prefetch(each.place);
          displaced[displaced_count++] = static_cast<std::uint32_t>(&each - ring.data());
        }
      }
    }
    if (step >= index_ahead + version_ahead) {
      const std::size_t first = (step - index_ahead - version_ahead) * run_keys;
      const auto run = run_at(first / run_keys);
      for (std::size_t i = 0; i < run.size(); ++i) {
        if (!visit(first + i, run[i].found, run[i].key)) return;
      }
    }
  }
}

bool lookup::is_present(candidate place, const block_key& reduced, std::span<const std::byte> key) const noexcept {
  for (int attempt = 0; place.found() && attempt < move_attempts; ++attempt) {
    const std::uint64_t version = versions_->version(place.version_index);
    if (index_value::matches(place.value, version) && versions_->key_equals(place.version_index, key)) {
      load_fence();
      if (versions_->version(place.version_index) == version) return true;
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
  for_each_candidate(keys, group, [&](std::size_t i, const candidate& place, const block_key& reduced) {
    if (!is_present(place, reduced, keys[i])) return false;
    prefix = i + 1;
    return true;
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

void lookup::add_lower(key_batch keys, std::uint32_t group, std::span<std::uint8_t> reachable) const noexcept {
  if (hints_.none()) return;
  for (std::size_t i = 0; i < keys.count; ++i) {
    if (reachable[i] == 0 && hints_.contains(reduce_key(keys[i], group))) reachable[i] = 1;
  }
}

void lookup::find_each(key_batch keys, std::uint32_t group, std::span<std::uint8_t> present) const noexcept {
  for_each_candidate(keys, group, [&](std::size_t i, const candidate& place, const block_key& reduced) {
    present[i] = is_present(place, reduced, keys[i]) ? 1 : 0;
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
    if (holds(place, key)) return true;
  }
  return false;
}

lookup::pin_outcome lookup::pin_located(std::span<candidate> located, key_batch keys, std::size_t first,
                                        std::uint32_t group, std::span<pin> out) const noexcept {
  std::array<std::uint32_t, pin_batch> numbers;
  const auto slots = std::span(numbers).first(slots_->take(std::span(numbers).first(located.size())));
  if (slots.empty()) return {0, true};
  raise_high_water(slots.back() + 1);
  for (std::size_t i = 0; i < slots.size(); ++i) {
    session_.pin(slots[i]).store(index_value::ref(located[i].value).bits, std::memory_order_relaxed);
  }
  full_fence();  // pairs with the owner's between making versions odd and scanning the pins

  std::size_t held = 0;
  for (; held < slots.size(); ++held) {
    const auto key = keys[first + held];
    if (!holds(located[held], key) && !pin_moved(located[held], key, group, slots[held])) break;
    out[first + held] = {index_value::ref(located[held].value), slots[held]};
  }
  unpin_slots(slots.subspan(held));
  return {held, held == slots.size() && held < located.size()};
}

result<std::size_t> lookup::pin_prefix(key_batch keys, std::uint32_t group, std::span<pin> out) const {
  std::array<candidate, pin_batch> located;
  std::size_t waiting = 0;  // located and not pinned yet
  std::size_t held = 0;
  pin_outcome last;
  const auto pin_waiting = [&] {
    last = pin_located(std::span(located).first(waiting), keys, held, group, out);
    held += last.held;
    return last.held == std::exchange(waiting, 0);
  };
  for_each_candidate(keys, group, [&](std::size_t, const candidate& place, const block_key&) {
    if (!place.found()) return false;
    located[waiting++] = place;
    return waiting < pin_batch || pin_waiting();
  });
  if (waiting != 0) pin_waiting();
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
