#include "transport/local/trace_spans.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/byte_io.hpp"

namespace cenote::local {

namespace {

void put(byte_writer& out, const trace_span& span) {
  out.put_raw(span.parent.trace);
  out.put_raw(span.parent.span);
  out.put(std::to_underlying(span.kind));
  out.put(std::to_underlying(span.end));
  out.put(std::to_underlying(span.code));
  out.put(span.group);
  for (const std::uint64_t word : {span.begin_ns, span.length_ns, span.blocks, span.ready, span.bytes}) out.put(word);
  out.put(span.outcome.reason);
  out.put(span.outcome.resident);
  for (const std::uint16_t blocks : span.outcome.loaded) out.put(blocks);
  out.put(static_cast<std::int64_t>(span.outcome.duration.count()));
}

trace_span get(byte_reader& input) {
  trace_span made;
  made.parent = {.trace = input.get_array<16>(), .span = input.get_array<8>(), .is_sampled = true};
  made.kind = static_cast<span_kind>(input.get<std::uint8_t>());
  made.end = static_cast<span_end>(input.get<std::uint8_t>());
  made.code = static_cast<error_code>(input.get<std::uint16_t>());
  made.group = input.get<std::uint32_t>();
  for (std::uint64_t* const word : {&made.begin_ns, &made.length_ns, &made.blocks, &made.ready, &made.bytes})
    *word = input.get<std::uint64_t>();
  made.outcome.reason = input.get<std::uint8_t>();
  made.outcome.resident = input.get<std::uint32_t>();
  for (std::uint16_t& blocks : made.outcome.loaded) blocks = input.get<std::uint16_t>();
  made.outcome.duration = std::chrono::microseconds(input.get<std::int64_t>());
  return made;
}

}  // namespace

// Refuses numbers beyond the signed range, which a collector could read as others.
bool is_sane(const trace_span& span) noexcept {
  constexpr std::uint64_t latest = std::numeric_limits<std::int64_t>::max();
  const bool is_known = span.kind == span_kind::prefetch || span.kind == span_kind::load;
  const bool has_time = span.begin_ns <= latest && span.length_ns <= latest - span.begin_ns;
  const bool has_counts = span.blocks <= latest && span.ready <= latest && span.bytes <= latest;
  return is_known && span.end <= span_end::refused && is_valid(span.parent) && has_time && has_counts &&
         span.outcome.duration.count() >= 0;
}

std::vector<std::byte> encode(const span_batch& batch) {
  byte_writer out;
  out.put(batch.dropped);
  out.put(static_cast<std::uint32_t>(batch.spans.size()));
  for (const trace_span& one : batch.spans) put(out, one);
  return std::move(out).take();
}

result<span_batch> decode_spans(std::span<const std::byte> payload) {
  byte_reader input(payload);
  // A frame's word alone may not set a counter of the node's to anything.
  span_batch made{.spans = {}, .dropped = std::min(input.get<std::uint32_t>(), span_batch::largest_dropped)};
  const auto count = input.get<std::uint32_t>();
  if (count > span_batch::capacity) return fail(error_code::malformed, "a frame has too many spans");
  made.spans.reserve(count);
  for (std::uint32_t i = 0; i < count && input.ok(); ++i) {
    made.spans.push_back(get(input));
    if (input.ok() && !is_sane(made.spans.back())) return fail(error_code::malformed, "a span makes no sense");
  }
  if (!input.ok() || input.remaining() != 0) return fail(error_code::malformed, "a frame of spans has another length");
  return made;
}

}  // namespace cenote::local
