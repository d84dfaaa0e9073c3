// Spans as clients send them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "worker/trace_exporter/otlp_document.hpp"

namespace cenote::traces::testing {

inline local::trace_span prefetch_span() {
  local::trace_span made;
  made.parent.trace.fill(std::byte{0xab});
  made.parent.span.fill(std::byte{0xcd});
  made.parent.is_sampled = true;
  made.begin_ns = 1'700'000'000'000'000'001;
  made.length_ns = 12'345'678;
  made.blocks = 64;
  made.ready = 60;
  made.outcome = {.reason = 1, .resident = 7, .loaded = {50, 3, 0, 0}, .duration = std::chrono::microseconds(99)};
  return made;
}

inline std::shared_ptr<const span_origin> origin_of(std::string client = "engine") {
  return std::make_shared<span_origin>(
      span_origin{.session = 5, .client = std::move(client), .instance_group = "team", .tiers = {"nvme", "remote"}});
}

}  // namespace cenote::traces::testing
