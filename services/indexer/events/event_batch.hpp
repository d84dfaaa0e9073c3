// A decoded batch of events: flat arrays that are used again, so that decoding allocates only to grow.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

#include "core/enum_names.hpp"
#include "services/indexer/events/engine_event.hpp"
#include "services/indexer/keys/extra_keys.hpp"

namespace cenote::indexer {

/// The reason for which an event was passed over; its names are those of metrics.
enum class event_fault : std::uint8_t {
  unknown_tag,  ///< an event of a kind that is not indexed: no fault of the publisher
  form,         ///< neither an array nor a map, or too few fields
  tag,          ///< no tag, or one that is no text
  hashes,       ///< no block hashes, or one that is neither an integer nor bytes
  parent,
  tokens,
  block_size,  ///< no integer in [1, 2^31), where there are tokens
  medium,
  lora,
  extra_keys,  ///< not one list a block
  group,       ///< index, attention or window of the cache group
  depth,       ///< more than eight levels
};
CENOTE_ENUM_NAMES(event_fault, unknown_tag, form, tag, hashes, parent, tokens, block_size, medium, lora, extra_keys,
                  group, depth);

/// Plain data, filled by an event_adapter. Views are valid until it is filled again. Not thread-safe while it is
/// filled.
struct event_batch {
  double timestamp = 0;       ///< seconds since 1970 by the publisher's clock; 0: not in the batch
  std::uint32_t dp_rank = 0;  ///< data-parallel rank whose blocks these are
  std::vector<engine_event> events;

  std::vector<std::uint64_t> hashes;  ///< integers in two's complement; of bytes the last eight, big endian
  /// Of bytes the first eight, big endian: SGLang's hashes, where `hashes` are vLLM's. As long as `hashes` for the
  /// batches of nodes, whose keys are of either engine; empty for those of engines.
  std::vector<std::uint64_t> leading_hashes;
  std::vector<std::uint32_t> tokens;
  extra_key_table extra_keys;
  std::vector<char> text;

  std::array<std::uint32_t, enum_size<event_fault>> faults{};  ///< events passed over, by event_fault
  std::uint32_t unread_removals = 0;  ///< of those, events that were removals, or may have been

  /// Empties all, keeps the memory.
  void clear() noexcept {
    timestamp = 0;
    dp_rank = 0;
    events.clear();
    hashes.clear();
    leading_hashes.clear();
    tokens.clear();
    extra_keys.clear();
    text.clear();
    faults = {};
    unread_removals = 0;
  }

  /// Gives the memory of a large batch back, which else is kept for the next.
  void trim() noexcept {
    constexpr std::size_t most_kept = std::size_t{1} << 20;  // elements of an array
    if (tokens.capacity() > most_kept || hashes.capacity() > most_kept) *this = {};
  }

  [[nodiscard]] std::span<const std::uint64_t> hashes_of(const engine_event& event) const noexcept {
    return std::span(hashes).subspan(event.hashes.first, event.hashes.size);
  }
  /// Empty unless leading hashes are kept.
  [[nodiscard]] std::span<const std::uint64_t> leading_hashes_of(const engine_event& event) const noexcept {
    const std::span all(leading_hashes);
    return all.empty() ? all : all.subspan(event.hashes.first, event.hashes.size);
  }
  [[nodiscard]] std::span<const std::uint32_t> tokens_of(const engine_event& event) const noexcept {
    return std::span(tokens).subspan(event.tokens.first, event.tokens.size);
  }
  [[nodiscard]] extra_key_view extra_keys_of(const engine_event& event) const noexcept {
    return extra_keys.view(event.extra_keys);
  }
  [[nodiscard]] std::string_view lora_name_of(const engine_event& event) const noexcept {
    return text_in(event.lora_name);
  }
  /// The medium's name in lower case, known or not.
  [[nodiscard]] std::string_view medium_of(const engine_event& event) const noexcept {
    return event.medium == block_medium::other ? text_in(event.medium_text) : name_of(event.medium);
  }

  [[nodiscard]] std::uint32_t faults_of(event_fault kind) const noexcept {
    return faults[static_cast<std::size_t>(kind)];
  }
  /// Events whose kind is unknown.
  [[nodiscard]] std::uint32_t unknown_events() const noexcept { return faults_of(event_fault::unknown_tag); }
  /// Events of known kinds that make no sense.
  [[nodiscard]] std::uint32_t bad_events() const noexcept {
    return std::accumulate(faults.begin(), faults.end(), 0U) - unknown_events();
  }

 private:
  [[nodiscard]] std::string_view text_in(array_range range) const noexcept {
    return {text.data() + range.first, range.size};
  }
};

}  // namespace cenote::indexer
