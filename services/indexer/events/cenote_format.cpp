// A node of Cenote: vLLM's maps. Hashes are whole keys of the engines, as bytes; events have no tokens.
#include <array>

#include "services/indexer/events/event_format.hpp"

namespace cenote::indexer {

namespace {

using enum event_field;

constexpr std::array cenote_stored{block_hashes, parent, tokens, block_size, lora_id, medium};
constexpr std::array cenote_removed{block_hashes, medium};

}  // namespace

const event_format cenote_format{.engine = event_engine::cenote,
                                 .stored_order = cenote_stored,
                                 .removed_order = cenote_removed,
                                 .has_leading_hashes = true,
                                 .cleared = clear_scope::all};

}  // namespace cenote::indexer
