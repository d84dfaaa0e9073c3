// The index's memory: what a further pod of the same prompts takes, what holes take, and how soon a clear gives it
// back.
#include <chrono>
#include <random>
#include <string>
#include <thread>

#include "commands/bench/indexer_parts.hpp"

namespace cenote::bench::indexer_memory_bench {

namespace {

using namespace indexer;

constexpr std::uint64_t prompts = 1000;
constexpr std::size_t all_blocks = prompts * chain_length;
constexpr std::size_t further_pods = 99;
constexpr std::size_t index_memory = std::size_t{128} << 20;
constexpr std::size_t full_memory = std::size_t{36} << 20;  // for little more than the blocks
constexpr std::chrono::milliseconds beat{100};              // the service sweeps as often
constexpr std::size_t swept_runs = 65'536;                  // and as far

forest_options options_of(std::size_t memory) {
  return {.memory = memory, .members = 4096, .seed = 1};
}

/// Stores prompts [first, first + count); the seconds that it took, without making them.
double store_prompts(forest& index, std::uint64_t first, std::uint64_t count, holder stored_by) {
  std::array<std::uint64_t, chain_length> keys{};
  std::array<std::uint64_t, chain_length> hashes{};
  double seconds = 0;
  for (std::uint64_t prompt = first; prompt < first + count; ++prompt) {
    write_prompt(prompt, keys, hashes);
    const stopwatch time;
    (void)store_prompt(index, keys, hashes, stored_by);
    seconds += time.seconds();
  }
  index.reclaim();
  return seconds;
}

void measure_shared(report& out) {
  forest index(options_of(index_memory));
  const std::size_t empty = index.bytes();
  (void)store_prompts(index, 0, prompts, *index.holders().open({.pod = "pod"}));
  const std::size_t alone = index.bytes();
  for (std::size_t i = 0; i < further_pods; ++i) {
    (void)store_prompts(index, 0, prompts, *index.holders().open({.pod = "pod" + std::to_string(i)}));
  }
  out.add({.bench = "indexer",
           .name = "memory of each of 99 further pods with the same 1 M blocks",
           .value = static_cast<double>(index.bytes() - alone) / static_cast<double>(further_pods * all_blocks),
           .unit = "bytes/block",
           .limit = static_cast<double>(alone - empty) / static_cast<double>(all_blocks),
           .promise = {bound::kind::value_at_most, 0.1}});
}

void measure_holes(report& out) {
  forest index(options_of(index_memory));
  const std::size_t empty = index.bytes();
  const holder number = *index.holders().open({.pod = "pod"});
  (void)store_prompts(index, 0, prompts, number);
  const std::size_t whole = index.bytes();
  constexpr std::size_t hole_share = 50;
  std::mt19937_64 random(5);
  std::size_t removed = 0;
  while (removed < all_blocks / hole_share) {
    const std::uint64_t name = hash_at(random() % prompts, random() % chain_length);
    if (!index.is_held(index.block_of(0, name), number)) continue;
    index.remove(0, std::span(&name, 1), number);
    ++removed;
  }
  index.reclaim();
  const auto blocks = static_cast<double>(all_blocks);
  out.add({.bench = "indexer",
           .name = "memory with 2 % holes at random, 1 M blocks",
           .value = static_cast<double>(index.bytes() - empty) / (blocks - static_cast<double>(removed)),
           .unit = "bytes/block",
           .limit = static_cast<double>(whole - empty) / blocks,
           .promise = {bound::kind::value_at_most, 30}});
}

/// A pod with a million blocks is cleared in an index that has room for few others, and swept as often as the service
/// does it: from then on another pod's blocks find that room.
result<void> measure_clear(report& out) {
  forest index(options_of(full_memory));
  const holder cleared = *index.holders().open({.pod = "cleared"});
  const holder other = *index.holders().open({.pod = "other"});
  constexpr std::uint64_t others = 100;
  const double fresh = store_prompts(index, 0, prompts, cleared);
  (void)store_prompts(index, prompts, others, other);
  index.reclaim();
  const auto full = index.figures();
  const stopwatch time;
  index.clear(cleared);
  double swept = 0;
  for (bool is_done = false; !is_done;) {
    std::this_thread::sleep_for(beat);
    const stopwatch sweep_time;
    is_done = index.sweep(swept_runs);
    index.reclaim();
    swept += sweep_time.seconds();
  }
  const double until_swept = time.seconds();
  const double again = store_prompts(index, prompts + others, prompts, other);
  const auto after = index.figures();
  if (after.evicted_held != full.evicted_held || index.holders().blocks(other) != (prompts + others) * chain_length) {
    return fail(error_code::internal, "another pod's blocks did not find the room of the cleared ones");
  }
  out.add(
      {.bench = "indexer",
       .name = "from the clear of a pod with 1 M blocks until others have their memory, beside the time of the sweep",
       .value = until_swept,
       .unit = "s",
       .limit = swept,
       .promise = {bound::kind::value_at_most, 2}});
  out.add({.bench = "indexer",
           .name = "store of 1 M blocks into the memory of a cleared pod, against a new index",
           .value = static_cast<double>(all_blocks) / again / 1e6,
           .unit = "M blocks/s",
           .limit = static_cast<double>(all_blocks) / fresh / 1e6,
           .promise = {}});
  return {};
}

}  // namespace

result<void> run(report& out) {
  measure_shared(out);
  measure_holes(out);
  return measure_clear(out);
}

}  // namespace cenote::bench::indexer_memory_bench
