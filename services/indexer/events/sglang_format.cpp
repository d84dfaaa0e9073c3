// SGLang (sglang/srt/disaggregation/kv_events.py): arrays, for a time with a map of metadata behind the medium, later
// vLLM's maps with a field cache_salt. A block's hash is the first eight bytes of a digest, as a signed integer.
#include <array>

#include "services/indexer/events/event_format.hpp"

namespace cenote::indexer {

namespace {

using enum event_field;

constexpr std::array sglang_stored{block_hashes, parent, tokens, block_size, lora_id, medium, metadata};
constexpr std::array sglang_removed{block_hashes, medium};

}  // namespace

const event_format sglang_format{.engine = event_engine::sglang,
                                 .stored_order = sglang_stored,
                                 .removed_order = sglang_removed,
                                 .has_leading_hashes = false,
                                 .cleared = clear_scope::all};

}  // namespace cenote::indexer
