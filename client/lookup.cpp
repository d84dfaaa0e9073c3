#include "client/lookup.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "memory/fence.hpp"

namespace cenote::client {

namespace {

using memory::index_value;

// Keys a stage: enough misses in flight to hide memory, few enough for the first-level cache.
constexpr std::size_t stage_keys = 64;
// Prefetches that miss the TLB hold up what follows them, so they come in runs, with other work between the runs.
constexpr std::size_t run_keys = 8;
// A block that moves (compaction) is found again under its new place; more than this many moves in one lookup are a
// miss.
constexpr int move_attempts = 4;

/// Per-thread scratch of a batch: grows once, never on a warm path.
struct scratch {
  std::vector<candidate> candidates;
  std::vector<std::uint32_t> slots;
};

scratch& thread_scratch(std::size_t keys) {
  thread_local scratch mine;
  if (mine.candidates.size() < keys) {
    mine.candidates.resize(keys);
    mine.slots.resize(keys);
  }
  return mine;
}

/// Keys of a run, which the caller may have made long ago. Addresses past the end do no harm.
void prefetch_keys(key_batch keys, std::size_t first) noexcept {
  const auto* bytes = reinterpret_cast<const char*>(keys.data);
  for (std::size_t at = 0; at < run_keys * keys.width; at += 64) __builtin_prefetch(bytes + first * keys.width + at);
}

}  // namespace

/// Runs `visit(i, candidate, block_key)` over the keys in order until it returns false. Index lines of the next stage
/// and version lines of this one are on their way while the stage before is looked at.
template <class Visit>
void lookup::for_each_candidate(key_batch keys, std::uint32_t group, Visit&& visit) const noexcept {
  struct looked_for {
    block_key key;
    const memory::index_entry* home;
  };
  const auto table = index_.newest();
  std::array<std::array<looked_for, stage_keys>, 3> reduced;
  std::array<std::array<candidate, stage_keys>, 2> places;
  const std::size_t stages = (keys.count + stage_keys - 1) / stage_keys;
  const auto size_of = [&](std::size_t stage) { return std::min(stage_keys, keys.count - stage * stage_keys); };
  for (std::size_t step = 0; step < stages + 2; ++step) {
    if (step < stages) {
      const auto now = std::span(reduced[step % 3]).first(size_of(step));
      for (std::size_t i = 0; i < now.size(); i += run_keys) {
        const auto run = now.subspan(i, std::min(run_keys, now.size() - i));
        const std::size_t first = step * stage_keys + i;
        prefetch_keys(keys, first + stage_keys);
        std::array<block_key, run_keys> block_keys;
        reduce_keys(keys, first, group, std::span(block_keys).first(run.size()));
        for (std::size_t j = 0; j < run.size(); ++j) run[j] = {block_keys[j], table.home(block_keys[j])};
        for (const looked_for& each : run) memory::index_reader::prefetch(each.home);
      }
    }
    if (step >= 1 && step - 1 < stages) {
      const auto wanted = std::span(reduced[(step - 1) % 3]).first(size_of(step - 1));
      auto& found = places[(step - 1) % 2];
      const auto take = [&](std::size_t i, std::uint64_t value) {
        found[i] = resolve(value);
        if (found[i].found()) __builtin_prefetch(&versions_->entry(found[i].ordinal));
      };
      std::array<std::uint32_t, stage_keys> late;  // further from home: their lines come while others are looked at
      std::size_t lates = 0;
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        const std::uint64_t value = table.glance(wanted[i].home, wanted[i].key);
        if (value != index_value::empty) {
          take(i, value);
        } else {
          wanted[i].home = table.advance(wanted[i].home, 2);
          memory::index_reader::prefetch(wanted[i].home);
          late[lates++] = static_cast<std::uint32_t>(i);
        }
      }
      for (const std::uint32_t i : std::span(late).first(lates)) {
        const std::uint64_t value = table.glance(wanted[i].home, wanted[i].key);
        take(i, value != index_value::empty ? value : index_.find(wanted[i].key));
      }
    }
    if (step >= 2) {
      const std::size_t stage = step - 2;
      for (std::size_t i = 0; i < size_of(stage); ++i) {
        if (!visit(stage * stage_keys + i, places[stage % 2][i], reduced[stage % 3][i].key)) return;
      }
    }
  }
}

bool lookup::is_present(candidate place, const block_key& reduced, std::span<const std::byte> key) const noexcept {
  for (int attempt = 0; place.found() && attempt < move_attempts; ++attempt) {
    const std::uint64_t version = versions_->version(place.ordinal);
    if (index_value::matches(place.value, version) && versions_->key_equals(place.ordinal, key)) {
      memory::load_fence();
      if (versions_->version(place.ordinal) == version) return true;
    }
    const candidate again = resolve(index_.find(reduced));
    if (again.value == place.value) return false;
    place = again;
  }
  return false;
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

std::size_t lookup::count_reachable(key_batch keys, std::uint32_t group, std::size_t from) const noexcept {
  if (hints_.none()) return from;
  std::size_t end = from;
  for (; end < keys.count; ++end) {
    const block_key reduced = reduce_key(keys[end], group);
    if (!hints_.contains(reduced) && !is_present(resolve(index_.find(reduced)), reduced, keys[end])) break;
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

std::size_t lookup::locate_prefix(key_batch keys, std::uint32_t group, std::span<candidate> out) const noexcept {
  std::size_t prefix = 0;
  for_each_candidate(keys, group, [&](std::size_t i, const candidate& place, const block_key&) {
    if (!place.found()) return false;
    out[i] = place;
    prefix = i + 1;
    return true;
  });
  return prefix;
}

void lookup::raise_high_water(std::uint32_t slots) const noexcept {
  auto& word = session_.header().pin_high_water;
  std::uint64_t now = word.load(std::memory_order_relaxed);
  while (now < slots && !word.compare_exchange_weak(now, slots, std::memory_order_release, std::memory_order_relaxed)) {
  }
}

/// True when the pinned block is the key's. Follows a block that moved: pin the new place, fence, look again.
bool lookup::verify_pinned(candidate& place, std::span<const std::byte> key, std::uint32_t group,
                           std::uint32_t slot) const noexcept {
  if (holds(place, key)) return true;
  const block_key reduced = reduce_key(key, group);
  for (int attempt = 0; attempt < move_attempts; ++attempt) {
    const candidate again = resolve(index_.find(reduced));
    if (!again.found() || again.value == place.value) return false;
    place = again;
    session_.pin(slot).store(index_value::ref(place.value).bits, std::memory_order_relaxed);
    memory::full_fence();
    if (holds(place, key)) return true;
  }
  return false;
}

result<std::size_t> lookup::pin_prefix(key_batch keys, std::uint32_t group, std::span<pin> out) const {
  scratch& work = thread_scratch(keys.count);
  const std::size_t located = locate_prefix(keys, group, work.candidates);
  if (located == 0) return 0;
  const std::size_t slots = slots_->take(std::span(work.slots).first(located));
  if (slots != 0) raise_high_water(work.slots[slots - 1] + 1);
  for (std::size_t i = 0; i < slots; ++i) {
    session_.pin(work.slots[i]).store(index_value::ref(work.candidates[i].value).bits, std::memory_order_relaxed);
  }
  memory::full_fence();  // pairs with the owner's, between its odd versions and its scan of the pins

  std::size_t held = 0;
  for (; held < slots && verify_pinned(work.candidates[held], keys[held], group, work.slots[held]); ++held) {
    out[held] = {index_value::ref(work.candidates[held].value), work.slots[held]};
  }
  if (held < slots) {
    unpin_slots(std::span(work.slots).subspan(held, slots - held));
    return held;
  }
  if (slots < located && is_present(work.candidates[held], reduce_key(keys[held], group), keys[held])) {
    unpin_slots(std::span(work.slots).first(slots));
    return fail(error_code::pin_limit, "more than " + std::to_string(held) +
                                           " resident blocks are asked for, but only " + std::to_string(slots) +
                                           " of this session's " + std::to_string(slots_->total()) +
                                           " pins are free; release blocks, or attach with a larger max_pins");
  }
  return held;
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

}  // namespace cenote::client
