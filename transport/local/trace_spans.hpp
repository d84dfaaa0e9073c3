// Payload of the frame `spans`: how long prefetches and loads of sampled requests took, as a client saw it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/error.hpp"
#include "core/trace_context.hpp"
#include "memory/prefetch_outcome.hpp"

namespace cenote::local {

enum class span_kind : std::uint8_t { prefetch = 1, load = 2 };

enum class span_end : std::uint8_t {
  answered = 0,         ///< with an `outcome`
  cancelled = 1,        ///< by the client, before the answer
  worker_replaced = 2,  ///< the worker that was asked answers no more
  refused = 3,          ///< with a `code`
};

struct trace_span {
  trace_context parent{};
  span_kind kind = span_kind::prefetch;
  span_end end = span_end::answered;
  error_code code = error_code::ok;
  std::uint32_t group = 0;      ///< of the spec; prefetch
  std::uint64_t begin_ns = 0;   ///< since 1970
  std::uint64_t length_ns = 0;  ///< at the client
  std::uint64_t blocks = 0;     ///< in all
  std::uint64_t ready = 0;      ///< prefetch: blocks of the prefix that were in place at its end; load: blocks loaded
  std::uint64_t bytes = 0;      ///< load
  memory::prefetch_outcome outcome{};  ///< prefetch
};

/// Spans of one frame.
struct span_batch {
  std::vector<trace_span> spans;
  std::uint32_t dropped = 0;  ///< by the client since its last frame, for want of room or because they make no sense

  static constexpr std::size_t capacity = 256;
  static constexpr std::uint32_t largest_dropped = 65'536;
};

/// False: the node refuses it, with all others of its frame.
[[nodiscard]] bool is_sane(const trace_span& span) noexcept;

[[nodiscard]] std::vector<std::byte> encode(const span_batch& batch);
/// Of `dropped` no more than largest_dropped counts. Errors: malformed.
[[nodiscard]] result<span_batch> decode_spans(std::span<const std::byte> payload);

}  // namespace cenote::local
