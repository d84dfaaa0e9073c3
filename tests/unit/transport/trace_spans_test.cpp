// Frames of spans: what a client sends, and what a hostile one does.
#include "transport/local/trace_spans.hpp"

#include <boost/test/unit_test.hpp>

#include <limits>
#include <random>

#include "transport/local/frame.hpp"

namespace cenote::local::trace_spans_test {

namespace {

trace_span example() {
  trace_span made;
  made.parent.trace.fill(std::byte{0xab});
  made.parent.span.fill(std::byte{0xcd});
  made.parent.is_sampled = true;
  made.kind = span_kind::prefetch;
  made.end = span_end::refused;
  made.code = error_code::limit_exceeded;
  made.group = 3;
  made.begin_ns = 1'700'000'000'000'000'001;
  made.length_ns = 12'345'678;
  made.blocks = 64;
  made.ready = 60;
  made.bytes = std::uint64_t{1} << 40;
  made.outcome = {.reason = 5, .resident = 7, .loaded = {1, 2, 3, 65535}, .duration = std::chrono::microseconds(99)};
  return made;
}

bool is_refused(const trace_span& span) {
  const auto got = decode_spans(encode(span_batch{.spans = {span}}));
  return !got && got.error().code() == error_code::malformed;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(frames_of_spans)

BOOST_AUTO_TEST_CASE(spans_arrive_as_they_were_sent) {
  trace_span load = example();
  load.kind = span_kind::load;
  load.end = span_end::answered;
  const auto got = decode_spans(encode(span_batch{.spans = {example(), load}, .dropped = 4}));
  BOOST_REQUIRE(got);
  BOOST_TEST(got->dropped == 4U);
  BOOST_REQUIRE(got->spans.size() == 2U);
  const trace_span &first = got->spans[0], sent = example();
  BOOST_TEST((first.parent == sent.parent));
  BOOST_TEST((first.kind == sent.kind && first.end == sent.end && first.code == sent.code));
  BOOST_TEST(first.group == sent.group);
  BOOST_TEST(first.begin_ns == sent.begin_ns);
  BOOST_TEST(first.length_ns == sent.length_ns);
  BOOST_TEST((first.blocks == sent.blocks && first.ready == sent.ready && first.bytes == sent.bytes));
  BOOST_TEST((first.outcome.reason == 5 && first.outcome.resident == 7U && first.outcome.duration.count() == 99));
  BOOST_TEST(first.outcome.loaded == sent.outcome.loaded);
  BOOST_TEST((got->spans[1].kind == span_kind::load));
}

BOOST_AUTO_TEST_CASE(a_count_that_no_client_reaches_is_cut) {
  for (const std::uint32_t dropped : {65'536U, 65'537U, ~0U}) {
    const auto got = decode_spans(encode(span_batch{.spans = {}, .dropped = dropped}));
    BOOST_REQUIRE(got);
    BOOST_TEST(got->dropped == 65'536U);
  }
}

BOOST_AUTO_TEST_CASE(the_longest_batch_fits_a_frame) {
  const auto bytes = encode(span_batch{.spans = std::vector<trace_span>(span_batch::capacity, example())});
  BOOST_TEST(bytes.size() < max_frame - sizeof(frame_header));
  BOOST_TEST(decode_spans(bytes).has_value());
}

BOOST_AUTO_TEST_CASE(a_span_that_makes_no_sense_is_refused) {
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  const auto changed = [](auto change) {
    trace_span made = example();
    change(made);
    return made;
  };
  BOOST_TEST(!is_refused(example()));
  BOOST_TEST(is_refused(changed([](auto& each) { each.kind = span_kind{0}; })));
  BOOST_TEST(is_refused(changed([](auto& each) { each.kind = span_kind{3}; })));
  BOOST_TEST(is_refused(changed([](auto& each) { each.end = span_end{4}; })));
  BOOST_TEST(is_refused(changed([](auto& each) { each.parent.trace = {}; })));
  BOOST_TEST(is_refused(changed([](auto& each) { each.parent.span = {}; })));
  BOOST_TEST(is_refused(changed([](auto& each) { each.length_ns = most - each.begin_ns + 1; })));
  BOOST_TEST(is_refused(changed([](auto& each) { each.begin_ns = most; })));
  BOOST_TEST(is_refused(changed([](auto& each) { each.blocks = most; })));
  BOOST_TEST(is_refused(changed([](auto& each) { each.outcome.duration = std::chrono::microseconds(-1); })));
}

BOOST_AUTO_TEST_CASE(a_frame_of_another_length_is_refused) {
  auto bytes = encode(span_batch{.spans = {example(), example()}});
  for (std::size_t size = 0; size < bytes.size(); ++size) BOOST_TEST(!decode_spans(std::span(bytes).first(size)), size);
  bytes.push_back(std::byte{0});
  BOOST_TEST(!decode_spans(bytes));
  const auto many = encode(span_batch{.spans = std::vector<trace_span>(span_batch::capacity + 1, example())});
  BOOST_TEST(!decode_spans(many));
}

BOOST_AUTO_TEST_CASE(random_bytes_are_refused_or_make_sense) {
  std::mt19937_64 numbers(11);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same in every run
  const auto good = encode(span_batch{.spans = {example(), example()}});
  for (int i = 0; i < 20'000; ++i) {
    auto bytes = good;
    for (int k = 0; k < 4; ++k) bytes[numbers() % bytes.size()] = static_cast<std::byte>(numbers());
    const auto got = decode_spans(bytes);
    if (!got) continue;
    for (const trace_span& each : got->spans) {
      BOOST_REQUIRE(is_valid(each.parent));
      BOOST_REQUIRE(each.begin_ns + each.length_ns >= each.begin_ns);
    }
  }
}

BOOST_AUTO_TEST_CASE(an_outcome_travels_in_the_answer_of_a_prefetch) {
  const memory::prefetch_outcome sent{
      .reason = 6, .resident = 65'536, .loaded = {0, 65'535, 1, 2}, .duration = std::chrono::seconds(60)};
  memory::completion answer;
  answer.value = 12;
  sent.pack(answer);
  const auto got = memory::prefetch_outcome::unpack(answer);
  BOOST_TEST((got.reason == 6 && got.resident == 65'536U && got.duration == sent.duration));
  BOOST_TEST(got.loaded == sent.loaded);
  BOOST_TEST(answer.value == 12U);
  memory::prefetch_outcome{.reason = 1, .resident = ~0U, .duration = std::chrono::hours(24)}.pack(answer);
  const auto cut = memory::prefetch_outcome::unpack(answer);
  BOOST_TEST((cut.reason == 1 && cut.resident == 0xff'ffffU && cut.duration.count() == 0xffff'ffff));
  BOOST_TEST(memory::prefetch_outcome::unpack(memory::completion()).reason == 0);  // of an older worker
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::local::trace_spans_test
