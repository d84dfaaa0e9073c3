// vLLM (vllm/distributed/kv_events.py): arrays until June 2026, since then maps.
#include <array>

#include "services/indexer/events/event_format.hpp"

namespace cenote::indexer {

namespace {

using enum event_field;

constexpr std::array vllm_stored{block_hashes, parent,     tokens, block_size, lora_id, medium,
                                 lora_name,    extra_keys, group,  attention,  window};
constexpr std::array vllm_removed{block_hashes, medium, group};

}  // namespace

const event_format vllm_format{.engine = event_engine::vllm,
                               .stored_order = vllm_stored,
                               .removed_order = vllm_removed,
                               .has_leading_hashes = false,
                               .cleared = clear_scope::gpu};

}  // namespace cenote::indexer
