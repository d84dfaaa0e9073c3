// Keys of a prompt's blocks: each one a hash over the key before, the block's tokens and its extra keys, so that equal
// keys mean equal prefixes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/enum_names.hpp"
#include "core/error.hpp"
#include "services/indexer/keys/extra_keys.hpp"
#include "services/indexer/keys/fnv_chain.hpp"

namespace cenote::indexer {

/// The hash of a chain (`index.key`).
enum class key_chain : std::uint8_t {
  xxh3,        ///< XXH3-64 of the tokens as little-endian words, seeded with the parent's key
  fnv64_cbor,  ///< llm-d's, see fnv_chain.hpp; for an index that is shared with it
};
CENOTE_ENUM_NAMES(key_chain, xxh3, fnv64_cbor);

/// Blocks that can be equal: of one adapter, else of one model, and of one size. Valid as long as the names are.
struct key_space {
  std::string_view model;
  std::string_view lora_name;      ///< empty: the base model
  std::uint32_t block_tokens = 0;  ///< tokens a block

  [[nodiscard]] std::string_view name() const noexcept { return lora_name.empty() ? model : lora_name; }
};

/// Tokens of one chain and where they begin.
struct token_run {
  std::span<const std::uint32_t> tokens;
  extra_key_view extra_keys;            ///< one list for each whole block of `tokens`; without blocks: none has any
  std::optional<std::uint64_t> parent;  ///< key of the block before; none: a prompt's beginning
};

/// The keys of one chain and seed. Immutable, hence thread-safe.
class token_processor {
 public:
  /// With `xxh3` the seed is any text, a random one makes keys that others cannot aim at; with `fnv64_cbor` it is
  /// llm-d's hashSeed.
  token_processor(key_chain chain, std::string_view seed) noexcept;

  /// With `xxh3` and no seed a random one: keys that cannot be aimed at.
  [[nodiscard]] static token_processor seeded(key_chain chain, std::string_view seed);

  [[nodiscard]] key_chain chain() const noexcept { return chain_; }

  /// The parent of the first blocks of a space.
  [[nodiscard]] std::uint64_t root_of(const key_space& space) const noexcept;

  /// Replaces `keys` by the keys of all whole blocks; tokens behind the last one have no key. Allocates nothing but the
  /// growth of `keys`. Fails with invalid_argument if block_tokens is 0, or if there are lists of extra keys and not as
  /// many as whole blocks.
  [[nodiscard]] result<void> keys_of(const token_run& run, const key_space& space,
                                     std::vector<std::uint64_t>& keys) const;

  /// Writes the first keys, as many as there are whole blocks and places, and gives their number: for readers that look
  /// at a group of keys before they pay for the next. Nothing is written if block_tokens is 0; blocks behind the last
  /// list have no extra keys. Never allocates.
  std::size_t write_keys(const token_run& run, const key_space& space, std::span<std::uint64_t> keys) const noexcept;

 private:
  key_chain chain_;
  std::uint64_t seed_;  ///< of xxh3
  fnv_chain fnv_;
};

}  // namespace cenote::indexer
