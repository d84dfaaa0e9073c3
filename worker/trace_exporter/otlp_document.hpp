// Spans as OTLP has them in JSON.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/local/trace_spans.hpp"

namespace cenote::traces {

/// The client of some spans, with its own texts.
struct span_origin {
  std::uint64_t session = 0;
  std::string client;
  std::string instance_group;
  std::vector<std::string_view> tiers;  ///< below its blocks, by edge
};

struct exported_span {
  std::shared_ptr<const span_origin> origin;  ///< never null
  std::array<std::byte, 8> id{};
  local::trace_span measured;
};

/// Attributes of the node, by name.
using resource_texts = std::vector<std::pair<std::string_view, std::string>>;

/// The body of an ExportTraceServiceRequest. Texts are cut at `most_text_bytes`.
inline constexpr std::size_t most_text_bytes = 64;
[[nodiscard]] std::string otlp_document(const resource_texts& resource, std::span<const exported_span> spans);

/// Spans that the collector did not take although its answer is a success; 0 for a body without that number.
[[nodiscard]] std::uint64_t rejected_spans(std::string_view answer);

}  // namespace cenote::traces
