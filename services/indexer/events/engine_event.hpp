// Events that engines and nodes publish about their blocks, in one form for all engines: small values, and ranges in
// the flat arrays of an event_batch.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/enum_names.hpp"
#include "services/indexer/keys/extra_keys.hpp"

namespace cenote::indexer {

enum class event_kind : std::uint8_t {
  stored,   ///< BlockStored
  removed,  ///< BlockRemoved
  cleared,  ///< AllBlocksCleared
};
CENOTE_ENUM_NAMES(event_kind, stored, removed, cleared);

/// Where a block lies.
enum class block_medium : std::uint8_t {
  gpu,             ///< also where an event names none
  cpu,             ///< CPU, CPU_PINNED, CPU_TIER1, CPU_TIER2
  disk,            ///< DISK
  shared_storage,  ///< SHARED_STORAGE
  object_store,    ///< OBJECT_STORE
  other,           ///< any other name
};
CENOTE_ENUM_NAMES(block_medium, gpu, cpu, disk, shared_storage, object_store, other);

/// The medium that engines call so, in lower case; none: any other name.
[[nodiscard]] constexpr std::optional<block_medium> medium_named(std::string_view name) noexcept {
  if (name == "gpu") return block_medium::gpu;
  if (name == "cpu" || name == "cpu_pinned" || name == "cpu_tier1" || name == "cpu_tier2") return block_medium::cpu;
  if (name == "disk") return block_medium::disk;
  if (name == "shared_storage") return block_medium::shared_storage;
  if (name == "object_store") return block_medium::object_store;
  return std::nullopt;
}

/// Attention of a cache group (vLLM's KVCacheSpecKind).
enum class attention_kind : std::uint8_t {
  unstated,  ///< not in the event: that of the group's other events, or of a model with one group
  full_attention,
  mla_attention,
  sink_full_attention,
  sliding_window,
  sliding_window_mla,
  other,  ///< mamba, chunked_local_attention, cross_attention, encoder_only_attention, and names that are new
};
CENOTE_ENUM_NAMES(attention_kind, unstated, full_attention, mla_attention, sink_full_attention, sliding_window,
                  sliding_window_mla, other);

/// The use of a group's blocks for a prompt.
enum class group_use : std::uint8_t {
  prefix,   ///< all blocks from the prompt's beginning on
  window,   ///< the blocks of the window before the end
  ignored,  ///< not indexed
};

[[nodiscard]] constexpr group_use use_of(attention_kind kind) noexcept {
  switch (kind) {
    case attention_kind::unstated:
    case attention_kind::full_attention:
    case attention_kind::mla_attention:
    case attention_kind::sink_full_attention: return group_use::prefix;
    case attention_kind::sliding_window:
    case attention_kind::sliding_window_mla: return group_use::window;
    case attention_kind::other: break;
  }
  return group_use::ignored;
}

/// One event. The ranges are of the arrays of its batch; event_batch has the views.
struct engine_event {
  event_kind kind = event_kind::stored;
  block_medium medium = block_medium::gpu;
  bool is_medium_named = false;  ///< false: the event names none
  attention_kind attention = attention_kind::unstated;
  std::uint32_t block_tokens = 0;       ///< tokens of an engine's block; 0 only without tokens
  std::uint32_t engine_tokens = 0;      ///< of the engine's block, where the index's has another size; 0: the same
  std::uint32_t window_tokens = 0;      ///< of a sliding window; 0: not in the event
  std::optional<std::int32_t> group;    ///< index of the cache group
  std::optional<std::uint64_t> parent;  ///< hash of the block before; none: a prompt's beginning
  array_range hashes;                   ///< in hashes, and in leading_hashes where those are kept
  array_range tokens;                   ///< empty: the event names known blocks
  array_range extra_keys;               ///< in extra_keys.blocks, one a hash; empty: no block has any
  array_range lora_name;                ///< in text; empty: the base model
  array_range medium_text;              ///< in text, lower case; empty unless medium is `other`

  /// Stored are some of the blocks of its tokens: those of a window, or of a group of a hybrid model.
  [[nodiscard]] bool is_sparse() const noexcept {
    return kind == event_kind::stored && !tokens.empty() && tokens.size != std::uint64_t{hashes.size} * block_tokens;
  }
};

}  // namespace cenote::indexer
