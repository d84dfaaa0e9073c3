// How far `auto` stays behind the best of its candidates: whole traces, so not among the quick tests of policies.
#include "tiers/eviction/automatic.hpp"
#include "tests/support/folders.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

#include "simulation/workload.hpp"
#include "tests/support/packed_trace.hpp"
#include "tests/unit/tiers/eviction/automatic_runs.hpp"
#include "tiers/eviction/registry.hpp"

namespace cenote::eviction {

using simulation::generate;
using simulation::trace;

namespace {

trace load(const std::string& name) {
  return full(
      testing::load_packed_trace(testing::source_folder() / "tests/data/traces" / (std::string(name) + ".txt")));
}

/// In points of prefix-token hits: at most `regret` below the best candidate, at most `below_lru` below LRU; and few
/// switches.
void check_regret(const std::string& name, const trace& trace, std::vector<std::uint32_t> capacities, double regret,
                  double below_lru = 1.0) {
  for (const std::uint32_t capacity : selected(std::move(capacities))) {
    const outcome got = run_auto(trace, capacity);
    double best = 0;
    for (const policy_info* each : candidates()) best = std::max(best, percent(trace, each->name, capacity));
    BOOST_TEST_CONTEXT(name << ", " << capacity << " blocks: " << got.percent << ", at last " << got.status.policy) {
      BOOST_TEST(got.percent >= best - regret);
      BOOST_TEST(got.percent >= percent(trace, "lru", capacity) - below_lru);
      BOOST_TEST(got.status.switches <= 8U);
    }
  }
}

const std::vector<std::uint32_t> all_capacities{1'000, 2'000, 4'000, 8'000, 16'000, 250, 500, 32'000};
const std::vector<std::uint32_t> some_capacities{250, 1'000, 4'000, 16'000};

}  // namespace

BOOST_AUTO_TEST_SUITE(automatic_regret)

BOOST_AUTO_TEST_CASE(on_the_conversation_trace_it_is_near_the_best_candidate) {
  check_regret("conversation", load("conversation"), all_capacities, 0.8);
}

BOOST_AUTO_TEST_CASE(on_the_synthetic_trace_it_is_near_the_best_candidate) {
  check_regret("synthetic", load("synthetic"), all_capacities, 1.5);
}

BOOST_AUTO_TEST_CASE(where_time_stands_still_it_is_near_the_best_candidate) {
  check_regret("conversation", load("conversation").at_speed(0), some_capacities, 0.6);
  check_regret("chat", full(*generate("chat")).at_speed(0), some_capacities, 0.6);
}

BOOST_AUTO_TEST_CASE(on_generated_workloads_it_is_near_the_best_candidate) {
  for (const char* const kind :
       {"chat", "agents", "scans", "scans:seed=60,scan_rate=20,scan_tokens=6000,batch=60,pause=120", "rag",
        "rag:seed=3,zipf=1.1,corpus=5000", "phases", "phases:seed=9,phase=250", "loop:seed=3,documents=300"}) {
    check_regret(kind, full(*generate(kind)), some_capacities, 1.0);
  }
}

BOOST_AUTO_TEST_CASE(in_phases_of_five_hundred_requests_it_stays_near_lru_and_the_best_candidate) {
  for (const char* const kind :
       {"phases:seed=33,requests=2000", "phases:seed=37,requests=2000", "phases:seed=54,requests=2000",
        "phases:seed=63,requests=2000", "phases:seed=70,requests=2000", "phases:seed=8"}) {
    check_regret(kind, full(*generate(kind)), {250, 500, 1'000, 2'000}, 2.0, 1.1);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::eviction
