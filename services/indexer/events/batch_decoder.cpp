#include "services/indexer/events/batch_decoder.hpp"

#include <string>

#include "services/indexer/events/event_adapter.hpp"
#include "services/indexer/events/event_decoder.hpp"

namespace cenote::indexer {

namespace {

/// The sizes of a batch's arrays, to which a bad event takes them back.
struct batch_sizes {
  explicit batch_sizes(const event_batch& batch) noexcept
      : hashes(batch.hashes.size()),
        leading_hashes(batch.leading_hashes.size()),
        tokens(batch.tokens.size()),
        lists(batch.extra_keys.blocks.size()),
        list_bytes(batch.extra_keys.bytes.size()),
        text(batch.text.size()) {}

  void restore(event_batch& batch) const noexcept {
    batch.hashes.resize(hashes);
    batch.leading_hashes.resize(leading_hashes);
    batch.tokens.resize(tokens);
    batch.extra_keys.blocks.resize(lists);
    batch.extra_keys.bytes.resize(list_bytes);
    batch.text.resize(text);
  }

  std::size_t hashes, leading_hashes, tokens, lists, list_bytes, text;
};

}  // namespace

result<void> batch_decoder::decode() {
  batch_.clear();
  if (payload_bytes_ > batch_limits::payload_bytes) {
    return fail(error_code::limit_exceeded, "a batch of " + std::to_string(payload_bytes_) + " bytes; the most are " +
                                                std::to_string(batch_limits::payload_bytes));
  }
  if (const auto elements = reader_.array()) {
    decode_array(*elements);
  } else if (const auto entries = reader_.map()) {
    decode_map(*entries);
  }
  if (is_over_limit_) {
    return fail(error_code::limit_exceeded, "a batch of more than " + std::to_string(batch_limits::blocks) +
                                                " blocks or events, or " + std::to_string(batch_limits::tokens) +
                                                " tokens");
  }
  const auto place = [this] {
    return " at byte " + std::to_string(reader_.position()) + " of " + std::to_string(payload_bytes_);
  };
  if (!reader_.whole()) return fail(error_code::malformed, "a batch is cut, or no MessagePack," + place());
  if (!has_events_) return fail(error_code::malformed, "no batch of events: [ts, [event, …], …] would be one");
  if (reader_.remaining() > 0) return fail(error_code::malformed, "a batch ends" + place() + ", before its payload");
  return {};
}

void batch_decoder::decode_array(std::uint32_t elements) {
  if (elements < 2) return;
  decode_timestamp();
  decode_events();
  if (!has_events_) return;
  if (elements > 2) decode_rank();
  for (std::uint32_t i = 3; i < elements && reader_.whole(); ++i) reader_.skip();
}

void batch_decoder::decode_map(std::uint32_t entries) {
  for (; entries > 0 && reader_.whole() && !is_over_limit_; --entries) {
    const auto name = reader_.text();
    if (!name) reader_.skip();
    if (name == "ts") {
      decode_timestamp();
    } else if (name == "events" && !has_events_) {
      decode_events();
      if (!has_events_) return;
    } else if (name == "data_parallel_rank" || name == "attn_dp_rank") {
      decode_rank();
    } else {
      reader_.skip();
    }
  }
}

void batch_decoder::decode_timestamp() noexcept {
  if (const auto seconds = reader_.floating()) {
    batch_.timestamp = *seconds;
  } else if (const auto number = reader_.integer()) {
    batch_.timestamp = number->negative ? 0 : static_cast<double>(number->bits);
  } else {
    reader_.skip();
  }
}

void batch_decoder::decode_rank() noexcept {
  if (const auto number = reader_.integer()) {
    batch_.dp_rank = number->held_by<std::uint32_t>().value_or(0);
  } else {
    reader_.skip();
  }
}

void batch_decoder::decode_events() {
  const auto count = reader_.array();
  if (!count) return;
  has_events_ = true;
  is_over_limit_ = *count > batch_limits::events;
  for (std::uint32_t i = 0; i < *count && reader_.whole() && !is_over_limit_; ++i) decode_event();
}

void batch_decoder::decode_event() {
  const std::size_t start = reader_.position();
  const batch_sizes before(batch_);
  event_decoder decoder(reader_, format_, batch_);
  const event_verdict fault = decoder.decode();
  is_over_limit_ = decoder.is_over_limit();
  if (is_over_limit_ || !reader_.whole()) return;
  if (!fault) {
    batch_.events.push_back(decoder.event());
    return;
  }
  before.restore(batch_);
  ++batch_.faults[static_cast<std::size_t>(*fault)];
  if (*fault != event_fault::unknown_tag && decoder.kind() != event_kind::stored) ++batch_.unread_removals;
  reader_.rewind(start);
  reader_.skip();
}

}  // namespace cenote::indexer
