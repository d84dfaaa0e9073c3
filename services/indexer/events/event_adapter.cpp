#include "services/indexer/events/event_adapter.hpp"

#include <array>

#include "services/indexer/events/batch_decoder.hpp"
#include "services/indexer/keys/fnv_chain.hpp"

namespace cenote::indexer {

namespace {

constexpr std::array formats{&vllm_format, &sglang_format, &cenote_format};

}  // namespace

const event_format& event_adapter::format_of(const event_topic& topic) const noexcept {
  if (engine_ == event_engine::automatic) return is_node(topic.pod) ? cenote_format : vllm_format;
  for (const event_format* each : formats) {
    if (each->engine == engine_) return *each;
  }
  return vllm_format;
}

std::uint32_t event_adapter::sharding_key(std::string_view pod) noexcept {
  return fnv32(pod);
}

clear_scope event_adapter::cleared_by(std::string_view topic) const noexcept {
  return format_of(parse_topic(topic)).cleared;
}

result<event_topic> event_adapter::parse(std::string_view topic, std::span<const std::byte> payload,
                                         event_batch& batch) const {
  const event_topic parts = parse_topic(topic);
  if (auto decoded = batch_decoder(payload, format_of(parts), batch).decode(); !decoded) {
    batch.clear();
    return std::unexpected(std::move(decoded).error());
  }
  return parts;
}

}  // namespace cenote::indexer
