// Decodes one payload into a batch; the inside of event_adapter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/error.hpp"
#include "services/indexer/events/event_batch.hpp"
#include "services/indexer/events/event_format.hpp"
#include "services/indexer/events/msgpack_reader.hpp"

namespace cenote::indexer {

/// Lives for one payload. Not thread-safe.
class batch_decoder {
 public:
  batch_decoder(std::span<const std::byte> payload, const event_format& format, event_batch& batch) noexcept
      : payload_bytes_(payload.size()), reader_(payload), format_(format), batch_(batch) {}

  /// Replaces the batch. After a failure its contents are any.
  [[nodiscard]] result<void> decode();

 private:
  void decode_array(std::uint32_t elements);
  void decode_map(std::uint32_t entries);
  void decode_timestamp() noexcept;
  void decode_rank() noexcept;
  void decode_events();
  void decode_event();

  std::size_t payload_bytes_;
  msgpack_reader reader_;
  const event_format& format_;
  event_batch& batch_;
  bool has_events_ = false;
  bool is_over_limit_ = false;
};

}  // namespace cenote::indexer
