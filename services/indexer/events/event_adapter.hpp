// From what publishers send (topic and MessagePack payload) to an event_batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/error.hpp"
#include "services/indexer/events/event_batch.hpp"
#include "services/indexer/events/event_format.hpp"
#include "services/indexer/events/event_topic.hpp"

namespace cenote::indexer {

/// Bounds of a batch; one that exceeds them is refused whole.
struct batch_limits {
  static constexpr std::size_t payload_bytes = std::size_t{64} << 20;
  static constexpr std::size_t blocks = std::size_t{1} << 20;  ///< hashes, and lists of extra keys
  static constexpr std::size_t events = std::size_t{1} << 20;
  static constexpr std::size_t tokens = std::size_t{1} << 24;
  static constexpr std::size_t name_bytes = 256;  ///< of an adapter, a medium or a salt; an event with more is bad
};

/// Decodes batches of one kind of publisher. Immutable, hence thread-safe; a batch belongs to one thread.
///
/// A payload is `[ts, [event, …], dp_rank, …]` of two or more elements, or a map of `ts`, `events` and
/// `data_parallel_rank`; an event is `[tag, field, …]` or a map with "type". Fields and elements that are unknown are
/// passed; an event of an unknown kind, or one that makes no sense, is counted in the batch and costs only itself.
class event_adapter {
 public:
  explicit event_adapter(event_engine engine) noexcept : engine_(engine) {}

  /// The worker of a pod's batches is this modulo their number: FNV-1a of 32 bits, so that each pod's stay in order.
  [[nodiscard]] static std::uint32_t sharding_key(std::string_view pod) noexcept;

  /// The media that AllBlocksCleared empties for publishers of this topic.
  [[nodiscard]] clear_scope cleared_by(std::string_view topic) const noexcept;

  /// Fills `batch`; gives the pod and model in the topic, which publishers' settings may replace. Fails with malformed
  /// if the payload is cut, has bytes behind it or is no batch, and with limit_exceeded; `batch` is empty then.
  /// Decoding into the same batch again allocates only to grow.
  [[nodiscard]] result<event_topic> parse(std::string_view topic, std::span<const std::byte> payload,
                                          event_batch& batch) const;

 private:
  [[nodiscard]] const event_format& format_of(const event_topic& topic) const noexcept;

  event_engine engine_;
};

}  // namespace cenote::indexer
