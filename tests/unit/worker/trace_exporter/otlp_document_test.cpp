// Spans in JSON; tests/processes/test_request_spans.py reads them by OpenTelemetry's own definitions.
#include "worker/trace_exporter/otlp_document.hpp"

#include <boost/test/unit_test.hpp>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/unit/worker/trace_exporter/example_spans.hpp"

namespace cenote::traces::otlp_document_test {

namespace {

using nlohmann::json;
using testing::origin_of;
using testing::prefetch_span;

const resource_texts resource{{"service.name", "cenote"}, {"host.name", "a\"b"}};

json document_of(const local::trace_span& span, std::string client = "engine") {
  const exported_span one{origin_of(std::move(client)), {std::byte{1}}, span};
  return json::parse(otlp_document(resource, std::span(&one, 1)));
}

json span_in(const json& document) {
  return document.at("resourceSpans").at(0).at("scopeSpans").at(0).at("spans").at(0);
}

/// Name -> the text of the value.
std::map<std::string, std::string> attributes_of(const json& owner) {
  std::map<std::string, std::string> found;
  for (const json& each : owner.at("attributes")) {
    BOOST_TEST(each.at("value").size() == 1U);
    found.emplace(each.at("key"), each.at("value").front().get<std::string>());
  }
  return found;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(otlp_documents)

BOOST_AUTO_TEST_CASE(a_prefetch_says_when_it_was_and_what_came_from_where) {
  const json document = document_of(prefetch_span());
  const auto node = attributes_of(document.at("resourceSpans").at(0).at("resource"));
  BOOST_TEST(node.at("service.name") == "cenote");
  BOOST_TEST(node.at("host.name") == "a\"b");
  const json span = span_in(document);
  BOOST_TEST(span.at("traceId") == "abababababababababababababababab");
  BOOST_TEST(span.at("spanId") == "0100000000000000");
  BOOST_TEST(span.at("parentSpanId") == "cdcdcdcdcdcdcdcd");
  BOOST_TEST(span.at("name") == "cenote.prefetch");
  BOOST_TEST(span.at("kind") == 1);
  BOOST_TEST(span.at("startTimeUnixNano") == "1700000000000000001");
  BOOST_TEST(span.at("endTimeUnixNano") == "1700000000012345679");
  BOOST_TEST(!span.contains("status"));
  const std::map<std::string, std::string> expected{
      {"cenote.session", "5"},           {"cenote.client", "engine"},
      {"cenote.instance_group", "team"}, {"cenote.group", "0"},
      {"cenote.blocks.asked", "64"},     {"cenote.blocks.ready", "60"},
      {"cenote.blocks.resident", "7"},   {"cenote.prefetch.ended", "complete"},
      {"cenote.prefetch.node_us", "99"}, {"cenote.blocks.from.nvme", "50"},
      {"cenote.blocks.from.remote", "3"}};
  BOOST_TEST((attributes_of(span) == expected));
}

BOOST_AUTO_TEST_CASE(a_load_says_its_blocks_and_bytes) {
  local::trace_span load = prefetch_span();
  load.kind = local::span_kind::load;
  load.bytes = std::uint64_t{1} << 60;
  const json span = span_in(document_of(load));
  BOOST_TEST(span.at("name") == "cenote.load");
  const auto said = attributes_of(span);
  BOOST_TEST(said.at("cenote.bytes") == "1152921504606846976");
  BOOST_TEST(said.at("cenote.blocks.loaded") == "60");
  BOOST_TEST(!said.contains("cenote.prefetch.ended"));
}

BOOST_AUTO_TEST_CASE(a_prefetch_without_an_answer_says_why) {
  local::trace_span span = prefetch_span();
  span.end = local::span_end::refused;
  span.code = error_code::limit_exceeded;
  BOOST_TEST(span_in(document_of(span)).at("status") == (json{{"message", "limit_exceeded"}, {"code", 2}}));
  span.code = static_cast<error_code>(60'000);  // a client may send any number
  BOOST_TEST(span_in(document_of(span)).at("status").at("code") == 2);
  span.end = local::span_end::worker_replaced;
  BOOST_TEST(span_in(document_of(span)).at("status").at("message") == "the node's worker was replaced");
  span.end = local::span_end::cancelled;
  BOOST_TEST(!span_in(document_of(span)).contains("status"));
  BOOST_TEST(attributes_of(span_in(document_of(span))).at("cenote.prefetch.ended") == "cancelled");
  BOOST_TEST(!attributes_of(span_in(document_of(span))).contains("cenote.blocks.from.nvme"));
  span.end = local::span_end::answered;
  span.outcome.reason = 255;  // of nothing that this build knows
  BOOST_TEST(!attributes_of(span_in(document_of(span))).contains("cenote.prefetch.ended"));
}

BOOST_AUTO_TEST_CASE(texts_of_clients_are_cut_and_cannot_break_out) {
  for (const std::string& client : {std::string("\"}],\"x\":[{\"y\":\"\n\0\x7f", 18), std::string(1 << 20, 'x'),
                                    std::string("\xff\xfe\xc3"), std::string(63, 'x') + "\xc3\xa4"}) {
    const json document = document_of(prefetch_span(), client);  // throws where it is no JSON
    const std::string said = attributes_of(span_in(document)).at("cenote.client");
    BOOST_TEST(said.size() <= 3 * most_text_bytes);
    BOOST_TEST(document.dump().size() < 4'096U);
  }
}

BOOST_AUTO_TEST_CASE(a_collector_may_reject_some) {
  BOOST_TEST(rejected_spans(R"({"partialSuccess":{"rejectedSpans":"3","errorMessage":"no"}})") == 3U);
  BOOST_TEST(rejected_spans(R"({"partialSuccess":{"rejectedSpans":4}})") == 4U);
  for (const std::string_view body :
       {"", "{}", "null", "[]", "<html>", R"({"partialSuccess":{}})", R"({"partialSuccess":[1]})",
        R"({"partialSuccess":{"rejectedSpans":-1}})", R"({"partialSuccess":{"rejectedSpans":"x"}})",
        R"({"partialSuccess":{"rejectedSpans":{}}})"}) {
    BOOST_TEST(rejected_spans(body) == 0U, body);
  }
  BOOST_TEST(rejected_spans(std::string(60'000, '[')) == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::traces::otlp_document_test
