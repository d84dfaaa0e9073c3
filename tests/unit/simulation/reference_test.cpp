// Every row of tests/data/reference, and the rows that are only known rounded.
#include <array>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "simulation/tier_simulation.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/packed_trace.hpp"

namespace cenote::simulation {

namespace {

const std::string data = testing::source_folder() / "tests/data";

const trace& load(const std::string& name) {
  static std::map<std::string, trace> loaded;
  const auto found = loaded.find(name);
  if (found != loaded.end()) return found->second;
  return loaded.emplace(name, testing::load_packed_trace(data + "/traces/" + name + ".txt")).first->second;
}

/// Sanitizers see the same code at a tenth of the speed: some capacities are enough there.
bool is_selected(std::uint32_t capacity) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return std::getenv("CENOTE_TEST_FULL") != nullptr || capacity == 1'000 || capacity == 16'000;
#else
  return capacity > 0;
#endif
}

struct reference_row {
  std::string policy;
  std::string order;
  std::uint32_t capacity = 0;
  replay_sums sums;
};

std::vector<reference_row> read_rows(const std::string& name) {
  const std::map<std::string, std::string> names{{"FIFO", "fifo"},   {"LRU", "lru"},     {"LFU", "lfu"},
                                                 {"CLOCK", "clock"}, {"SIEVE", "sieve"}, {"S3FIFO", "s3fifo"},
                                                 {"ARC", "arc"},     {"2Q", "2q"},       {"BELADY", "belady"}};
  std::ifstream file(data + "/reference/policies_" + name + ".csv");
  std::vector<reference_row> rows;
  std::string text;
  std::getline(file, text);
  if (text.ends_with('\r')) text.pop_back();
  BOOST_REQUIRE(text ==
                "trace,policy,order,capacity,stream_hits,prefix_hits,prefix_tokens,blocks,tokens,inserts,evictions");
  while (std::getline(file, text)) {
    std::istringstream line(text);
    std::string of;
    std::string policy;
    reference_row row;
    std::getline(line, of, ',');
    std::getline(line, policy, ',');
    std::getline(line, row.order, ',');
    row.policy = names.at(policy);
    const auto number = [&](auto& into) {
      line >> into;
      line.ignore(1, ',');
    };
    number(row.capacity);
    number(row.sums.stream_hits);
    number(row.sums.prefix_hits);
    number(row.sums.prefix_tokens);
    number(row.sums.blocks);
    number(row.sums.tokens);
    number(row.sums.inserts);
    number(row.sums.evictions);
    BOOST_REQUIRE(of == name);
    rows.push_back(row);
  }
  return rows;
}

void check_rows(const std::string& name) {
  const auto rows = read_rows(name);
  BOOST_TEST(rows.size() == 153U);
  for (const reference_row& row : rows) {
    if (!is_selected(row.capacity)) continue;
    const auto order = row.order == "fwd" ? replay_order::forward : replay_order::reverse;
    const auto sums = simulate(load(name), row.policy, row.capacity, order);
    BOOST_REQUIRE(sums.has_value());
    BOOST_TEST_CONTEXT(name << " " << row.policy << " " << row.order << " " << row.capacity) {
      BOOST_TEST(sums->stream_hits == row.sums.stream_hits);
      BOOST_TEST(sums->prefix_hits == row.sums.prefix_hits);
      BOOST_TEST(sums->prefix_tokens == row.sums.prefix_tokens);
      BOOST_TEST(sums->blocks == row.sums.blocks);
      BOOST_TEST(sums->tokens == row.sums.tokens);
      BOOST_TEST(sums->inserts == row.sums.inserts);
      BOOST_TEST(sums->evictions == row.sums.evictions);
    }
  }
}

/// Prefix-token hits, %, at 1,000, 4,000, 8,000 and 16,000 blocks, and the mean of these and 2,000.
using rounded_row = std::array<double, 5>;

void check_rounded(const std::string& name, std::string_view policy, const rounded_row& expected, double within) {
  constexpr std::array<std::uint32_t, 5> capacities{1'000, 4'000, 8'000, 16'000, 2'000};
  double sum = 0;
  for (std::size_t i = 0; i < capacities.size(); ++i) {
    const auto sums = simulate(load(name), policy, capacities[i], replay_order::forward);
    const double percent = sums->hit_ratio() * 100;
    sum += percent;
    if (i + 1 == capacities.size()) continue;
    BOOST_TEST(std::abs(percent - expected[i]) <= within,
               name << " " << policy << " " << capacities[i] << ": " << percent << ", expected " << expected[i]);
  }
  const double mean = sum / static_cast<double>(capacities.size());
  BOOST_TEST(std::abs(mean - expected[4]) <= within,
             name << " " << policy << " mean: " << mean << ", expected " << expected[4]);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(reference)

BOOST_AUTO_TEST_CASE(the_conversation_rows_are_met_to_the_block) {
  check_rows("conversation");
}

BOOST_AUTO_TEST_CASE(the_synthetic_rows_are_met_to_the_block) {
  check_rows("synthetic");
}

BOOST_AUTO_TEST_CASE(the_rounded_rows_of_mq_are_met) {
  check_rounded("conversation", "mq", {8.13, 15.17, 21.08, 28.96, 16.94}, 0.01);
  check_rounded("synthetic", "mq", {8.84, 25.57, 40.44, 56.01, 29.40}, 0.01);
}

BOOST_AUTO_TEST_CASE(the_rounded_rows_of_tblru_are_met) {
  check_rounded("conversation", "tblru", {7.76, 15.11, 21.19, 28.65, 16.73}, 0.25);
  check_rounded("synthetic", "tblru", {10.35, 28.20, 41.01, 55.84, 30.58}, 0.25);
}

BOOST_AUTO_TEST_CASE(the_rows_of_two_tiers_are_met) {
  struct tier_row {
    cenote::ingest ingest;
    bool keep_copy;
    double percent;
    double written;
  };
  constexpr std::array rows{tier_row{ingest::all, true, 21.6, 227'506}, tier_row{ingest::evicted, true, 22.2, 225'040},
                            tier_row{ingest::evicted, false, 22.6, 274'653}, tier_row{ingest::hot, true, 5.5, 651}};
  for (const tier_row& row : rows) {
    const auto sums =
        simulate(load("conversation"),
                 tier_stack{.upper_capacity = 1'000,
                            .lower = {{.capacity = 10'000, .ingest = row.ingest, .keep_copy = row.keep_copy}}},
                 replay_order::reverse);
    BOOST_TEST(std::abs(sums->all.hit_ratio() * 100 - row.percent) <= 0.1);
    BOOST_TEST(std::abs(static_cast<double>(sums->lower[0].written) / row.written - 1) <= 0.003);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::simulation
