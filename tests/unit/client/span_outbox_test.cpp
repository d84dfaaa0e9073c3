#include "client/span_outbox.hpp"

#include <sys/socket.h>

#include <array>
#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <limits>

#include "core/unique_fd.hpp"
#include "transport/local/socket.hpp"

namespace cenote::client::span_outbox_test {

BOOST_AUTO_TEST_SUITE(outboxes_of_spans)

BOOST_AUTO_TEST_CASE(a_span_that_the_node_would_refuse_is_dropped_and_spoils_no_other) {
  std::array<int, 2> ends{};
  BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const unique_fd here(ends[0]);
  const unique_fd there(ends[1]);
  span_outbox outbox(here.get());
  local::trace_span good;
  good.parent.trace.fill(std::byte{1});
  good.parent.span.fill(std::byte{2});
  local::trace_span bad = good;
  bad.begin_ns = std::numeric_limits<std::uint64_t>::max();
  std::size_t spans = 0;
  std::uint32_t dropped = 0;
  for (const auto& each : {bad, good, local::trace_span(), good}) {
    outbox.add(each);
    const auto frame = local::try_receive_frame(there.get());
    BOOST_REQUIRE((frame && *frame));
    const auto batch = local::decode_spans((*frame)->payload);
    BOOST_REQUIRE(batch.has_value());
    spans += batch->spans.size();
    dropped += batch->dropped;
  }
  BOOST_TEST(spans == 2U);
  BOOST_TEST(dropped == 2U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::client::span_outbox_test
