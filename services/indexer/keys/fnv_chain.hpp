// llm-d's keys of blocks, exactly (llm-d-kv-cache, pkg/kvcache/kvblock/token_processor.go): FNV-1a of 64 bits over the
// canonical CBOR of [parent, tokens, extra]. A chain begins at [FNV-1a of the seed, null, model].
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "services/indexer/keys/extra_keys.hpp"

namespace cenote::indexer {

/// FNV-1a of 64 bits, going on from `state`. Thread-safe.
inline constexpr std::uint64_t fnv64_basis = 0xcbf2'9ce4'8422'2325;
[[nodiscard]] std::uint64_t fnv64(std::span<const std::byte> bytes, std::uint64_t state = fnv64_basis) noexcept;
[[nodiscard]] inline std::uint64_t fnv64(std::string_view text, std::uint64_t state = fnv64_basis) noexcept {
  return fnv64(std::as_bytes(std::span(text)), state);
}

/// FNV-1a of 32 bits, which spreads pods over workers. Thread-safe.
[[nodiscard]] std::uint32_t fnv32(std::string_view text) noexcept;

/// A chain of one seed. Immutable, hence thread-safe; nothing here allocates or fails.
class fnv_chain {
 public:
  explicit fnv_chain(std::string_view seed) noexcept : initial_(fnv64(seed)) {}

  /// The hash of the seed alone.
  [[nodiscard]] std::uint64_t initial() const noexcept { return initial_; }
  /// The parent of a prompt's first block; `model` is the LoRA adapter's name where there is one.
  [[nodiscard]] std::uint64_t root(std::string_view model) const noexcept;

  /// The hash of a block whose extra value is this CBOR item; an empty one is null.
  [[nodiscard]] static std::uint64_t key(std::uint64_t parent, std::span<const std::uint32_t> tokens,
                                         std::span<const std::byte> extra = {}) noexcept;
  /// The same with null in the place of tokens.
  [[nodiscard]] static std::uint64_t key_without_tokens(std::uint64_t parent,
                                                        std::span<const std::byte> extra) noexcept;
  /// The hash of a block with extra keys as llm-d takes them from events: texts, and the text that begins a nested
  /// list, become [{"Hash": text}, …]; anything else is left out, and without any the value is null.
  [[nodiscard]] static std::uint64_t key(std::uint64_t parent, std::span<const std::uint32_t> tokens,
                                         extra_key_elements extra) noexcept;

 private:
  std::uint64_t initial_;
};

}  // namespace cenote::indexer
