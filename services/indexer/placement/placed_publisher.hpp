// The writer's facts about one publisher: its holders, domains and cache groups.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "services/indexer/events/engine_event.hpp"
#include "services/indexer/events/event_topic.hpp"
#include "services/indexer/forest/forest.hpp"
#include "services/indexer/placement/block_resizer.hpp"
#include "services/indexer/placement/name_domains.hpp"
#include "services/indexer/placement/pending_names.hpp"
#include "services/indexer/placement/placement_counters.hpp"
#include "services/indexer/placement/publisher_identity.hpp"

namespace cenote::indexer {

/// A holder that a publisher has opened.
struct opened_holder {
  std::uint16_t rank = 0;
  holder_kind kind = 0;
  holder number = 0;
};

/// A cache group that a publisher's events have named.
struct cache_group {
  std::optional<std::int32_t> index;
  group_use use = group_use::prefix;
  slot_number slot = 0;
  std::uint32_t block_tokens = 0;  ///< 0: no event has named it yet
};

struct placed_publisher;

/// Publishers of one model on one machine.
struct machine_publishers {
  placed_publisher* node = nullptr;
  std::vector<placed_publisher*> engines;
};

struct placed_publisher {
  placed_publisher(const publisher_identity& facts, model_number number, index_budget& budget,
                   const resize_rules& rules, budget_share& parts_memory)
      : identity(facts),
        model(number),
        pending(budget),
        resizer(rules, is_node() ? publisher_kind::node : publisher_kind::engine, facts.clear, parts_memory) {}

  publisher_identity identity;
  model_number model;
  std::vector<std::uint16_t> ranks;  ///< data-parallel ranks that its batches have named
  std::vector<opened_holder> holders;
  std::vector<adapter_domains> domains;
  std::vector<cache_group> groups;
  std::uint32_t slots = 0;                 ///< of the groups, a bit each
  std::uint32_t step = 1;                  ///< blocks into which a block of its engine is cut
  std::vector<std::uint32_t> block_sizes;  ///< tokens a block, of which the model counts this publisher as a user
  member_mark mark;
  bool has_dropped = false;       ///< memory took blocks that it has, or had no room for them
  name_domain names = no_domain;  ///< a node's own names for blocks
  pending_names pending;          ///< a node's, for which there are no blocks yet
  block_resizer resizer;
  placement_counters counters;

  machine_publishers* machine = nullptr;  ///< null: its machine has no name

  [[nodiscard]] bool is_node() const noexcept { return indexer::is_node(identity.pod); }
};

}  // namespace cenote::indexer
