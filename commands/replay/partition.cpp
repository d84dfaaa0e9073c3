#include "commands/replay/partition.hpp"

#include <algorithm>

namespace cenote::replay {

namespace {

constexpr std::uint32_t nobody = ~std::uint32_t{0};

/// The request that last had a block, and how long it was.
struct owner {
  std::uint32_t engine = nobody;
  std::size_t length = 0;
};

}  // namespace

std::vector<std::uint32_t> partition(const simulation::trace& trace, std::uint32_t engines, partition_mode mode) {
  std::vector<std::uint32_t> engine_of;
  std::vector<owner> owners(trace.distinct());
  std::vector<std::uint64_t> load(engines, 0);
  for (const auto& request : trace.requests()) {
    const auto blocks = trace.blocks(request);
    std::size_t shared = 0;
    while (shared < blocks.size() && owners[blocks[shared]].engine != nobody) ++shared;
    const owner last = shared == 0 ? owner{} : owners[blocks[shared - 1]];
    std::uint32_t engine = static_cast<std::uint32_t>(engine_of.size() % engines);
    if (mode == partition_mode::conversation) {
      engine = shared > 0 && shared * 2 >= last.length
                   ? last.engine
                   : static_cast<std::uint32_t>(std::ranges::min_element(load) - load.begin());
    }
    for (const std::uint32_t block : blocks) owners[block] = {engine, blocks.size()};
    load[engine] += blocks.size();
    engine_of.push_back(engine);
  }
  return engine_of;
}

}  // namespace cenote::replay
