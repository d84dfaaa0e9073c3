// The differences between the events of engines, a row each. A new engine is a source with a row, its declaration here,
// and its place in the table of event_adapter.cpp.
#pragma once

#include <cstdint>
#include <span>

#include "core/enum_names.hpp"

namespace cenote::indexer {

/// A publisher's engine (`events.engine`, `publishers.<name>.engine`).
enum class event_engine : std::uint8_t {
  automatic,  ///< a node by its topic, else any engine: arrays in vLLM's order
  vllm,
  sglang,
  cenote,  ///< a node of Cenote
};
CENOTE_ENUM_NAMES(event_engine, automatic, vllm, sglang, cenote);

/// Everything that AllBlocksCleared empties, unless `publishers.<name>.clear` is set.
enum class clear_scope : std::uint8_t {
  gpu,  ///< the engine's GPU pool
  all,  ///< all media
};
CENOTE_ENUM_NAMES(clear_scope, gpu, all);

/// A field of an event.
enum class event_field : std::uint8_t {
  block_hashes,
  parent,
  tokens,
  block_size,
  lora_id,
  medium,
  lora_name,
  extra_keys,
  group,
  attention,
  window,
  cache_salt,
  metadata,  ///< a map with a cache_salt
  skipped,
};

struct event_format {
  event_engine engine;
  std::span<const event_field> stored_order;   ///< BlockStored as an array, behind the tag; what comes later is skipped
  std::span<const event_field> removed_order;  ///< BlockRemoved
  bool has_leading_hashes;                     ///< event_batch::leading_hashes is filled
  clear_scope cleared;
};

extern const event_format vllm_format;
extern const event_format sglang_format;
extern const event_format cenote_format;

}  // namespace cenote::indexer
