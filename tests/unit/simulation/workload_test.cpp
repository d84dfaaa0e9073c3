#include "simulation/workload.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <string>
#include <unordered_set>

namespace cenote::simulation {

namespace {

bool same(const trace& one, const trace& other) {
  return std::ranges::equal(one.stream(), other.stream()) &&
         std::ranges::equal(one.requests(), other.requests(), [](const auto& a, const auto& b) {
           return a.count == b.count && a.tokens == b.tokens && a.time_ms == b.time_ms;
         });
}

/// The share of blocks that were there before, the bound of every policy.
double seen_before(const trace& trace) {
  return 1 - static_cast<double>(trace.distinct()) / static_cast<double>(trace.stream().size());
}

std::string refusal(std::string_view description) {
  const auto made = generate(description);
  BOOST_REQUIRE(!made.has_value());
  BOOST_TEST(to_string(made.error().code()) == "invalid_argument");
  return made.error().message();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(workload)

BOOST_AUTO_TEST_CASE(the_same_description_makes_the_same_trace_and_another_seed_another_one) {
  for (const workload_kind& kind : workload_kinds()) {
    const std::string name(kind.name);
    const auto one = generate(name + ":requests=300");
    BOOST_REQUIRE(one.has_value());
    BOOST_TEST(one->requests().size() == 300U);
    BOOST_TEST(same(*one, *generate(name + ":requests=300,seed=1")));
    BOOST_TEST(!same(*one, *generate(name + ":requests=300,seed=2")));
  }
}

BOOST_AUTO_TEST_CASE(every_parameter_can_be_given) {
  for (const workload_kind& kind : workload_kinds()) {
    std::string description = std::string(kind.name) + ":requests=50";
    for (const workload_parameter& each : kind.parameters) {
      BOOST_TEST(each.standard >= each.minimum);
      BOOST_TEST(each.standard <= each.maximum);
      if (each.name != "requests") description += "," + std::string(each.name) + "=1";
    }
    const auto made = generate(description);
    BOOST_REQUIRE_MESSAGE(made.has_value(), description);
    BOOST_TEST(made->requests().size() == 50U);
  }
}

BOOST_AUTO_TEST_CASE(each_request_is_a_chain_with_at_most_one_block_that_is_not_full) {
  for (const workload_kind& kind : workload_kinds()) {
    const auto made = generate(std::string(kind.name) + ":requests=1000");
    std::uint64_t last = 0;
    for (const trace::entry& each : made->requests()) {
      BOOST_REQUIRE(each.time_ms >= last);
      last = each.time_ms;
      BOOST_REQUIRE(each.count == (each.tokens + 511) / 512);
      const auto ids = made->ids(each);
      BOOST_REQUIRE(std::unordered_set<std::uint64_t>(ids.begin(), ids.end()).size() == ids.size());
    }
  }
}

BOOST_AUTO_TEST_CASE(agents_repeat_most_of_what_they_ask_and_scans_do_not) {
  BOOST_TEST(seen_before(*generate("agents")) > 0.8);
  BOOST_TEST(seen_before(*generate("agents:repeat=0,steps=1,system_tokens=0")) == 0);
  BOOST_TEST(seen_before(*generate("scans:scan_rate=20")) < seen_before(*generate("chat")));
}

BOOST_AUTO_TEST_CASE(what_makes_no_sense_is_refused_with_what_would) {
  BOOST_TEST(refusal("chats") == "unknown workload `chats`; known: chat, agents, scans, loop, rag, phases");
  BOOST_TEST(refusal("agents:thinks=3") ==
             "`thinks` is nothing that the workload `agents` depends on; known: requests, seed, agents, steps, think, "
             "repeat, systems, system_tokens, input_tokens, step_tokens");
  BOOST_TEST(refusal("agents:repeat=2") ==
             "`repeat=2`: right is repeat=N from 0 to 1 (share of requests that are their predecessor once more, to "
             "the token)");
  for (const char* const bad : {"chat:think", "chat:think=", "chat:think=3s", "chat:think=nan", "chat:rate=0"}) {
    BOOST_TEST(refusal(bad).contains("right is"), bad);
  }
  BOOST_TEST(refusal("chat:").contains("known:"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::simulation
