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

std::vector<std::uint32_t> partition(const simulation::trace& trace, std::uint32_t engines, partition_mode mode,
                                     std::span<const std::uint32_t> node_of) {
  const std::uint32_t nodes = node_of.empty() ? 1 : std::ranges::max(node_of) + 1;
  std::vector<std::uint32_t> engine_of;
  std::vector<owner> owners(trace.distinct());
  std::vector<std::uint64_t> load(std::size_t{nodes} * engines, 0);
  std::vector<std::uint32_t> dealt(nodes, 0);
  for (const auto& request : trace.requests()) {
    const auto blocks = trace.blocks(request);
    const std::uint32_t node = node_of.empty() ? 0 : node_of[engine_of.size()];
    const std::uint32_t first = node * engines;
    std::size_t shared = 0;
    while (shared < blocks.size() && owners[blocks[shared]].engine != nobody) ++shared;
    const owner last = shared == 0 ? owner{} : owners[blocks[shared - 1]];
    std::uint32_t engine = first + dealt[node]++ % engines;
    if (mode == partition_mode::conversation) {
      const bool here = last.engine >= first && last.engine < first + engines;
      const auto loads = std::span(load).subspan(first, engines);
      const auto least = std::ranges::min_element(loads) - loads.begin();
      engine = here && shared * 2 >= last.length ? last.engine : first + static_cast<std::uint32_t>(least);
    }
    for (const std::uint32_t block : blocks) owners[block] = {engine, blocks.size()};
    load[engine] += blocks.size();
    engine_of.push_back(engine);
  }
  return engine_of;
}

}  // namespace cenote::replay
