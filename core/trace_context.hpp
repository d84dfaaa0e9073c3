// The trace of a request, as W3C Trace Context has it.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace cenote {

struct trace_context {
  std::array<std::byte, 16> trace{};
  std::array<std::byte, 8> span{};  ///< the parent of what is done for the request
  bool is_sampled = false;          ///< the trace is recorded

  bool operator==(const trace_context&) const = default;
};

/// False: it names no trace, or no parent.
[[nodiscard]] bool is_valid(const trace_context& context) noexcept;

/// Reads a `traceparent`, "00-<32 hex digits>-<16>-<2>", or one of a later version that begins so. Nothing: it is
/// anything else, and the request has no trace. Thread-safe.
[[nodiscard]] std::optional<trace_context> parse_traceparent(std::string_view text) noexcept;

}  // namespace cenote
