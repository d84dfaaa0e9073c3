// Spans of sampled requests: how long prefetches and loads took.
#include <chrono>

#include "client/session.hpp"

namespace cenote::client {

namespace {

std::uint64_t nanoseconds_since_1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace

bool session::wants_spans() const noexcept {
  return memory_.header().wants_spans.load(std::memory_order_relaxed) != 0;
}

void session::begin_span(prefetch_ticket& ticket, const prefetch_options& options) const {
  if (!options.trace || !options.trace->is_sampled || !wants_spans()) return;
  ticket.trace = trace_start{*options.trace, nanoseconds_since_1970(), std::chrono::steady_clock::now()};
}

/// `ticket.length` is what is known of it. A later call for the same ticket does nothing.
void session::end_span(prefetch_ticket& ticket, local::span_end end, const memory::completion* answer) {
  if (!ticket.trace) return;
  const trace_start start = *std::exchange(ticket.trace, std::nullopt);
  if (!wants_spans()) return spans_.forget();  // another worker is there, without a collector
  const auto took = std::chrono::steady_clock::now() - start.began;
  local::trace_span made{.parent = start.parent,
                         .kind = local::span_kind::prefetch,
                         .end = end,
                         .group = ticket.group,
                         .begin_ns = start.at_ns,
                         .length_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(took).count()),
                         .blocks = ticket.batch().count,
                         .ready = ticket.length};
  if (answer != nullptr && end == local::span_end::answered) made.outcome = memory::prefetch_outcome::unpack(*answer);
  if (answer != nullptr && end == local::span_end::refused) made.code = static_cast<error_code>(answer->code);
  spans_.add(made);
}

result<void> session::trace_load(const traced_load& load) {
  const auto scope = enter();
  if (!scope) return std::unexpected(scope.error());
  if (load.end_ns < load.begin_ns) return fail(error_code::invalid_argument, "a load ends before it begins");
  if (!load.parent.is_sampled || !is_valid(load.parent) || !wants_spans()) return {};
  local::trace_span made{.parent = load.parent,
                         .kind = local::span_kind::load,
                         .begin_ns = load.begin_ns,
                         .length_ns = load.end_ns - load.begin_ns,
                         .blocks = load.blocks,
                         .ready = load.loaded,
                         .bytes = load.bytes};
  if (!local::is_sane(made)) return fail(error_code::invalid_argument, "a number of a load is too large");
  spans_.add(made);
  return {};
}

}  // namespace cenote::client
