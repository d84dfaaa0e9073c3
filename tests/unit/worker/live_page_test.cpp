#include "worker/live_page.hpp"

#include <boost/test/unit_test.hpp>

#include "actors/cluster_report.hpp"
#include "actors/consensus_report.hpp"
#include "actors/tier_stack.hpp"

using namespace cenote;

namespace {

constexpr std::chrono::system_clock::time_point now(std::chrono::seconds(1'700'000'000));

node_facts idle_node() {
  node_facts facts;
  facts.report = std::make_shared<node_report>();
  facts.socket_path = "/run/cenote/cenote.sock";
  facts.report->dram.capacity = 1U << 30U;
  return facts;
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(live_pages)

BOOST_AUTO_TEST_CASE(an_idle_node_says_that_nobody_is_there_and_nothing_is_wrong) {
  const std::string page = live_page(idle_node(), {}, now);
  BOOST_TEST(has(page, "<b>No engine is attached.</b>"));
  BOOST_TEST(has(page, "<b>All tiers serve, and nothing was lost since the worker began.</b>"));
  BOOST_TEST(!has(page, "<p class=\"bad\"><b>"));
  BOOST_TEST(has(page, "2023-11-14 22:13:20 UTC"));
  BOOST_TEST(!has(page, "<figure>"));
}

BOOST_AUTO_TEST_CASE(what_is_wrong_is_said) {
  node_facts facts = idle_node();
  facts.figures.restarts = 3;
  facts.report->dram.counters.checksum_errors = 2;
  auto nvme = std::make_shared<tier_report>("nvme");
  report_part path{.list = "nvme.paths", .label = "path", .name = "/disk", .texts = {}, .figures = {}};
  path.texts = {{.path = "nvme.paths[].state", .value = std::string("retired"), .metric = "m", .help = "", .gauge = 0},
                {.path = "nvme.paths[].last_error", .value = std::string("Input/output <error>")}};
  nvme->parts.push_back(path);
  facts.report->lower.push_back(nvme);
  const std::string page = live_page(facts, {}, now);
  BOOST_TEST(has(page, "<b>nvme path /disk: retired: Input/output &lt;error&gt;.</b>"));
  BOOST_TEST(has(page, "<b>3 times the worker ended"));
  BOOST_TEST(has(page, "<b>2 blocks were dropped"));
  BOOST_TEST(!has(page, "All tiers serve"));
}

BOOST_AUTO_TEST_CASE(hits_of_the_last_hour_are_a_sentence_and_a_plot) {
  const std::vector<hit_span> hits{
      {.end = now - std::chrono::minutes(2), .looked_up = 0, .hits = 0, .lower_hits = 0},
      {.end = now - std::chrono::minutes(1), .looked_up = 100'000, .hits = 50'000, .lower_hits = 25'000},
      {.end = now, .looked_up = 100'000, .hits = 100'000, .lower_hits = 0}};
  const std::string page = live_page(idle_node(), hits, now);
  BOOST_TEST(has(
      page,
      "<b>87.5 % of 200,000 tokens that engines looked up in the last hour were here, 25,000 of them below DRAM.</b>"));
  BOOST_TEST(has(page, "<figcaption>Hits over the last hour</figcaption>"));
}

BOOST_AUTO_TEST_CASE(names_of_others_are_escaped_and_parts_with_an_owner_left_out) {
  node_facts facts = idle_node();
  facts.report->dram.instances.emplace_back().id = "<script>alert(1)</script>";
  facts.report->dram.accounts.emplace_back().name = "a\nb&c";
  auto groups = std::make_shared<tier_report>("groups");
  report_part secret{.list = "rank_groups", .label = "group", .name = "of-a-user", .texts = {}, .figures = {}};
  secret.owner = 1'000;
  secret.texts = {
      {.path = "rank_groups[].state", .value = std::string("broken"), .metric = "m", .help = "", .gauge = 0}};
  groups->parts.push_back(secret);
  facts.report->groups = groups;
  const std::string page = live_page(facts, {}, now);
  BOOST_TEST(has(page, "&lt;script&gt;alert(1)&lt;/script&gt;"));
  BOOST_TEST(has(page, "a\\nb&amp;c"));
  BOOST_TEST(!has(page, "of-a-user"));
}

BOOST_AUTO_TEST_CASE(long_lists_are_cut) {
  node_facts facts = idle_node();
  for (std::uint64_t i = 0; i < 20'000; ++i) facts.report->dram.instances.emplace_back().id = "i" + std::to_string(i);
  const std::string page = live_page(facts, {}, now);
  BOOST_TEST(has(page, "<td>i99</td>"));
  BOOST_TEST(!has(page, "<td>i100</td>"));
  BOOST_TEST(has(page, "<p>19,900 more are left out here.</p>"));
  BOOST_TEST(page.size() < 100'000U);
}

BOOST_AUTO_TEST_CASE(every_tier_there_may_be_has_a_place) {
  node_facts facts = idle_node();
  for (const lower_tier_kind& kind : lower_tier_kinds()) facts.report->lower.push_back(kind.example());
  facts.report->cluster = cluster_report::example();
  facts.report->groups = consensus_report::example();
  const std::string page = live_page(facts, {}, now);
  for (const tier_report_ptr& each : facts.report->lower)
    BOOST_TEST(has(page, "<td>" + each->name + "</td>"), each->name);
}

BOOST_AUTO_TEST_SUITE_END()
