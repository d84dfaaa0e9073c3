// Decodes one event of a payload; the inside of event_adapter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "services/indexer/events/event_batch.hpp"
#include "services/indexer/events/event_format.hpp"
#include "services/indexer/events/extra_key_transcoder.hpp"
#include "services/indexer/events/msgpack_reader.hpp"

namespace cenote::indexer {

/// Appends the arrays of one event to a batch. Lives for one event. Not thread-safe.
class event_decoder {
 public:
  event_decoder(msgpack_reader& reader, const event_format& format, event_batch& batch) noexcept
      : reader_(reader), format_(format), batch_(batch) {}

  /// Reads the next value. After a fault the reader is anywhere in the event, and the batch's arrays may have grown.
  [[nodiscard]] event_verdict decode();

  [[nodiscard]] const engine_event& event() const noexcept { return event_; }
  /// The event's kind, as far as it was read.
  [[nodiscard]] std::optional<event_kind> kind() const noexcept { return kind_; }
  /// True if the batch would have exceeded one of batch_limits; then decode() gave a fault, too.
  [[nodiscard]] bool is_over_limit() const noexcept { return is_over_limit_; }

 private:
  [[nodiscard]] event_verdict decode_array(std::uint32_t elements);
  [[nodiscard]] event_verdict decode_map(std::uint32_t entries);
  [[nodiscard]] event_verdict decode_tag();
  [[nodiscard]] event_verdict decode_field(event_field field);
  [[nodiscard]] event_verdict pass() noexcept;
  /// Checks that hold between fields.
  [[nodiscard]] event_verdict finish();
  [[nodiscard]] event_verdict finish_extra_keys();
  void keep_salt();

  [[nodiscard]] event_verdict decode_hashes();
  [[nodiscard]] event_verdict decode_parent();
  [[nodiscard]] event_verdict decode_tokens();
  [[nodiscard]] event_verdict decode_token_count(std::uint32_t& target, event_fault fault) noexcept;
  [[nodiscard]] event_verdict decode_medium();
  [[nodiscard]] event_verdict decode_lora_name();
  [[nodiscard]] event_verdict decode_lora_id();
  [[nodiscard]] event_verdict decode_extra_keys();
  [[nodiscard]] event_verdict decode_group();
  [[nodiscard]] event_verdict decode_attention();
  [[nodiscard]] event_verdict decode_salt();
  [[nodiscard]] event_verdict decode_metadata(std::uint32_t entries);

  /// False, and the batch is over its limit, if `size` more than `present` exceed `limit`.
  [[nodiscard]] bool fits(std::size_t present, std::size_t size, std::size_t limit) noexcept;

  msgpack_reader& reader_;
  const event_format& format_;
  event_batch& batch_;
  engine_event event_;
  std::optional<event_kind> kind_;
  std::string_view cache_salt_;
  std::uint64_t lora_id_ = 0;  ///< 0: none
  bool has_hashes_ = false;
  bool is_over_limit_ = false;
};

}  // namespace cenote::indexer
