// The parts that all of the index shares: memory, holders, sets, blocks, names and heads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "services/indexer/forest/block_store.hpp"
#include "services/indexer/forest/engine_names.hpp"
#include "services/indexer/forest/epochs.hpp"
#include "services/indexer/forest/holder_sets.hpp"
#include "services/indexer/forest/holder_table.hpp"
#include "services/indexer/forest/index_budget.hpp"
#include "services/indexer/forest/model_table.hpp"
#include "services/indexer/forest/node_links.hpp"
#include "services/indexer/forest/number_table.hpp"

namespace cenote::indexer {

struct forest_parts {
  /// Throws std::bad_alloc.
  forest_parts(std::size_t memory, std::size_t members, std::uint64_t secret);
  forest_parts(const forest_parts&) = delete;
  forest_parts& operator=(const forest_parts&) = delete;
  forest_parts(forest_parts&&) = delete;
  forest_parts& operator=(forest_parts&&) = delete;
  ~forest_parts();

  /// The run that begins with this key; no_run if there is none. Readers, too.
  [[nodiscard]] std::uint32_t find_head(std::uint64_t key) const noexcept {
    const std::uint32_t found =
        heads.find(spread(key, seed), [&](std::uint32_t number) { return blocks.run(number).key == key; });
    return found == number_table::no_number ? no_run : found;
  }
  /// Counts the leading ones of `count` keys that are those of the blocks from `first` on: keys are chained, so the
  /// last that is equal proves that all before it are equal. Readers, too.
  [[nodiscard]] std::uint32_t common(block_number first, const std::uint64_t* keys, std::uint32_t count) const noexcept;

  /// Marks a run as used now; a store only where the time is another. Readers, too.
  void touch(block_run& run) const noexcept {
    const std::uint32_t now = clock.load(std::memory_order_relaxed);
    if (run.last_use.load(std::memory_order_relaxed) != now) run.last_use.store(now, std::memory_order_relaxed);
  }

  /// The writer's: makes ready what readers have left behind.
  void reclaim() noexcept;
  void reclaim_some() noexcept {
    if (retired.size() >= 64 || retired.bytes() >= budget.limit() / 256) reclaim();
  }

  std::uint64_t seed;
  index_budget budget;
  retirement_list retired;
  holder_table holders;
  node_links links;
  model_table models;
  holder_sets sets;
  block_store blocks;
  engine_names names;
  number_table heads;
  std::atomic<std::uint32_t> clock{1};

 private:
  void reuse(const retired_thing& thing) noexcept;
};

inline std::uint32_t forest_parts::common(block_number first, const std::uint64_t* keys,
                                          std::uint32_t count) const noexcept {
  const std::uint64_t* const present = blocks.keys(first);
  if (count == 0 || present[count - 1] == keys[count - 1]) return count;
  std::uint32_t equal = 0;
  std::uint32_t other = count - 1;
  while (equal < other) {  // keys before `equal` are equal, the one at `other` is not
    const std::uint32_t middle = equal + (other - equal) / 2;
    if (present[middle] == keys[middle]) {
      equal = middle + 1;
    } else {
      other = middle;
    }
  }
  return equal;
}

}  // namespace cenote::indexer
