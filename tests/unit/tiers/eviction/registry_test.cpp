#include "tiers/eviction/registry.hpp"
#include "tests/support/folders.hpp"

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

namespace cenote::eviction {

namespace {

const std::filesystem::path page_path = cenote::testing::source_folder() / "docs/policies.md";

std::string_view name_of(policy_use use) {
  switch (use) {
    case policy_use::tiers: return "every tier";
    case policy_use::requests: return "DRAM";
    case policy_use::replays: return "simulations";
  }
  return "?";
}

bool is_among(std::string_view choices, std::string_view name) {
  return ("|" + std::string(choices) + "|").find("|" + std::string(name) + "|") != std::string::npos;
}

/// The table of docs/policies.md.
std::string documented() {
  std::string table =
      "| name | policy | source | remembers of a block | for | candidate of `auto` |\n"
      "| --- | --- | --- | --- | --- | --- |\n";
  for (const policy_info& each : policies()) {
    table.append("| `").append(each.name).append("` | ").append(each.summary).append(" | ");
    table.append(each.source).append(" | ").append(each.memory).append(" | ").append(name_of(each.use));
    table.append(each.candidate == candidacy::none ? " |  |\n" : " | yes |\n");
  }
  table +=
      "| `random` | of ten blocks that are drawn, the one whose last use is the oldest | Redis' approximated LRU; "
      "Tair's "
      "`random_lru` | 12 bytes | simulations |  |\n";
  return table + "| `belady` | the offline bound, order `fwd` | Belady 1966 |  | simulations |  |\n";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(policy_registry)

BOOST_AUTO_TEST_CASE(each_name_stands_once_and_makes_its_policy) {
  std::set<std::string_view> seen;
  block_links links;
  for (const policy_info& each : policies()) {
    BOOST_TEST(seen.insert(each.name).second, each.name);
    BOOST_TEST(!each.summary.empty(), each.name);
    BOOST_REQUIRE_MESSAGE(each.make(links) != nullptr, each.name);
    BOOST_TEST(find_policy(each.name) == &each);
  }
  BOOST_TEST(find_policy("belady") == nullptr);
}

BOOST_AUTO_TEST_CASE(what_follows_requests_is_offered_only_where_there_are_some) {
  block_links links;
  for (const policy_info& each : policies()) {
    if (each.use == policy_use::replays) continue;
    BOOST_TEST(each.make(links)->follows_requests() == (each.use == policy_use::requests), each.name);
  }
  for (const policy_info& each : policies()) {
    BOOST_TEST(is_among(choices_of_blocks(), each.name) == (each.use == policy_use::tiers), each.name);
    BOOST_TEST(is_among(choices_of_requests(), each.name) == (each.use != policy_use::replays), each.name);
  }
}

BOOST_AUTO_TEST_CASE(a_candidate_hands_what_it_found_out_to_another_one_of_its_kind) {
  block_links links;
  for (const policy_info* each : candidates()) {
    const auto from = each->make(links);
    const auto into = each->make(links);
    each->import_history(*into, *from);
    BOOST_TEST(into->size() == 0U, each->name);
  }
}

BOOST_AUTO_TEST_CASE(the_table_of_the_documentation_is_written_from_the_registry) {
  std::ifstream file(page_path);
  const std::string page{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::size_t begin = page.find("| name | policy |");
  const std::size_t end = page.find("\n\n", begin) + 1;
  BOOST_REQUIRE(begin != std::string::npos);
  const std::string now = page.substr(0, begin) + documented() + page.substr(end);
  if (std::getenv("CENOTE_TEST_WRITE_DOCS") != nullptr) {
    std::ofstream(page_path) << now;
    return;
  }
  BOOST_TEST((page == now), "docs/policies.md is out of date; run this test with CENOTE_TEST_WRITE_DOCS=1");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::eviction
