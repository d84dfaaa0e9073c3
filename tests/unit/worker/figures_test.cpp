#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "actors/consensus_report.hpp"
#include "actors/nvme_report.hpp"
#include "actors/tier_stack.hpp"
#include "tests/support/folders.hpp"
#include "worker/metrics_document.hpp"
#include "worker/metrics_text.hpp"
#include "worker/status_json.hpp"

using namespace cenote;
using nlohmann::json;

namespace {

/// A node with one instance, group, session and path, whose figures are all different.
node_facts busy_node() {
  node_facts facts;
  facts.report = std::make_shared<node_report>();
  auto nvme = std::make_shared<nvme_report>();
  nvme->paths.emplace_back();
  nvme->store.paths.emplace_back();
  std::uint64_t next = 1;
  const auto fill = [&next]<class Report>(Report& report) {
    for (const figure<Report>& row : figure_table<Report>::rows) {
      std::visit([&](auto member) { report.*member = static_cast<std::decay_t<decltype(report.*member)>>(next++); },
                 row.value);
    }
  };
  fill(facts.figures);
  fill(facts.server);
  fill(facts.populated);
  fill(facts.report->dram);
  fill(facts.report->dram.counters);
  fill(facts.report->dram.instances.emplace_back());
  fill(facts.report->dram.accounts.emplace_back());
  fill(facts.report->dram.sessions.emplace_back());
  auto& session = facts.report->sessions.emplace_back();
  auto resources = std::make_shared<session_resources>();
  resources->pin_slots = 16;
  BOOST_REQUIRE(make_session(*resources).has_value());
  session.session = std::move(resources);
  fill(session);
  fill(nvme->store);
  fill(nvme->store.counters);
  fill(*nvme);
  fill(nvme->store.paths.front());
  fill(nvme->paths.front());
  fill(static_cast<prefetch::status&>(facts.report->prefetch));
  nvme->describe();
  facts.report->lower.push_back(std::move(nvme));
  return facts;
}

/// Calls `see(row)` with each row of a figure, also of the tiers below.
void for_each_row(auto&& see) {
  for_each_figure_table([&](const auto& rows) {
    for (const auto& row : rows) see(row);
  });
  for (const lower_tier_kind& kind : lower_tier_kinds()) {
    const tier_report_ptr tier = kind.example();
    for (const figure_value& row : tier->gauges) see(row);
    for (const figure_value& row : tier->counters) see(row);
    for (const report_part& part : tier->parts) {
      for (const figure_value& row : part.figures) see(row);
    }
  }
}

/// The member at "instances[].blocks" of the first instance.
json at_path(json object, std::string path) {
  while (!path.empty()) {
    const auto dot = path.find('.');
    std::string name = path.substr(0, dot);
    path = dot == std::string::npos ? "" : path.substr(dot + 1);
    const bool is_list = name.ends_with("[]");
    if (is_list) name.resize(name.size() - 2);
    object = json(is_list ? object.at(name).at(0) : object.at(name));
  }
  return object;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(figures)

BOOST_AUTO_TEST_CASE(no_two_rows_share_a_place_in_status_or_a_sample_of_metrics) {
  std::set<std::string> paths;
  std::set<std::string> samples;
  for_each_row([&](const auto& row) {
    BOOST_TEST((!row.path.empty() || !row.metric.empty()));
    BOOST_TEST(!row.help.empty(), row.path);
    BOOST_TEST(row.help.find('|') == std::string_view::npos, row.path << ": a bar would break the page's table");
    if (!row.path.empty()) BOOST_TEST(paths.insert(std::string(row.path)).second, row.path);
    if (!row.metric.empty())
      BOOST_TEST(samples.insert(std::string(row.metric) + "/" + std::string(row.label.value)).second, row.metric);
  });
}

BOOST_AUTO_TEST_CASE(a_metric_s_name_says_its_kind_and_its_unit) {
  for_each_row([](const auto& row) {
    if (row.metric.empty()) return;
    std::string_view name = row.metric;
    BOOST_TEST(name.ends_with("_total") == (row.kind == figure_kind::counter), name);
    if (name.ends_with("_total")) name.remove_suffix(6);
    BOOST_TEST(name.ends_with("_bytes") == (row.unit == "bytes"), name);
    BOOST_TEST(name.ends_with("_seconds") == (row.unit == "seconds"), name);
  });
}

BOOST_AUTO_TEST_CASE(status_and_metrics_have_every_figure_with_its_value) {
  const node_facts facts = busy_node();
  const json status = json::parse(status_json(facts));
  const std::string metrics = metrics_text(facts);
  double next = 1;
  const auto expect = [&]<class Report>(const Report& /*of*/) {
    for (const figure<Report>& row : figure_table<Report>::rows) {
      if (!row.path.empty())
        BOOST_TEST(at_path(status, std::string(row.path)).template get<double>() == next, row.path);
      const auto at = row.metric.empty() ? std::string::npos : metrics.find("\n" + std::string(row.metric));
      BOOST_TEST((at == std::string::npos) == row.metric.empty(), row.metric);
      ++next;
    }
  };
  expect(facts.figures);
  expect(facts.server);
  expect(facts.populated);
  expect(facts.report->dram);
  expect(facts.report->dram.counters);
  expect(facts.report->dram.instances.front());
  expect(facts.report->dram.accounts.front());
  expect(facts.report->dram.sessions.front());
  expect(facts.report->sessions.front());
  const auto nvme = std::dynamic_pointer_cast<const nvme_report>(facts.report->lower.front());
  expect(nvme->store);
  expect(nvme->store.counters);
  expect(*nvme);
  expect(nvme->store.paths.front());
  expect(nvme->paths.front());
  expect(static_cast<const prefetch::status&>(facts.report->prefetch));
}

BOOST_AUTO_TEST_CASE(a_tier_that_nobody_here_knows_is_shown_by_what_its_report_says) {
  node_facts facts = busy_node();
  auto tier = std::make_shared<tier_report>("tape");
  tier->gauges = {{.path = "tape.blocks",
                   .metric = "cenote_tape_blocks",
                   .kind = figure_kind::gauge,
                   .unit = "blocks",
                   .help = "Blocks on tape.",
                   .value = std::uint64_t{7}}};
  tier->counters = {{.path = "tape.counters.wound",
                     .metric = "cenote_tape_wound_total",
                     .kind = figure_kind::counter,
                     .unit = "times",
                     .help = "Times that a tape was wound.",
                     .value = std::uint64_t{9},
                     .label = {"way", "back"}}};
  tier->times = {{.path = "tape.reads",
                  .metric = "cenote_tape_read_seconds",
                  .help = "How long a read took.",
                  .of = {},
                  .label = {"what", "read"}}};
  tier->parts = {{.list = "tape.reels", .label = "reel", .name = "A", .texts = {}, .figures = {}},
                 {.list = "tape.reels", .label = "reel", .name = "B", .texts = {}, .figures = {}}};
  tier->parts[1].texts = {{.path = "tape.reels[].state",
                           .value = std::string("torn"),
                           .metric = "cenote_tape_reel_turning",
                           .help = "1 when it turns.",
                           .gauge = 1.0}};
  facts.report->lower.push_back(std::move(tier));
  const json status = json::parse(status_json(facts));
  BOOST_TEST(status["tape"]["blocks"] == 7);
  BOOST_TEST(status["tape"]["counters"]["wound"] == 9);
  BOOST_TEST(status["tape"]["reads"]["count"] == 0);
  BOOST_TEST(status["tape"]["reels"].size() == 2U);
  BOOST_TEST(status["tape"]["reels"][1]["state"] == "torn");
  const std::string metrics = metrics_text(facts);
  for (const std::string line :
       {"cenote_tape_blocks 7", "cenote_tape_wound_total{way=\"back\"} 9",
        "cenote_tape_read_seconds_count{what=\"read\"} 0", "cenote_tape_reel_turning{reel=\"B\"} 1"}) {
    BOOST_TEST(metrics.find("\n" + line) != std::string::npos, line);
  }
}

BOOST_AUTO_TEST_CASE(what_a_user_has_named_is_shown_to_that_user_and_to_operators) {
  node_facts facts = busy_node();
  auto tier = std::make_shared<tier_report>("tape");
  for (const std::uint32_t uid : {7U, 8U}) {
    report_part one{.list = "tape.reels", .label = "reel", .name = std::to_string(uid), .texts = {}, .figures = {}};
    one.texts = {{.path = "tape.reels[].name", .value = one.name}};
    one.owner = uid;
    tier->parts.push_back(std::move(one));
  }
  tier->parts.push_back({.list = "tape.reels", .label = "reel", .name = "all", .texts = {}, .figures = {}});
  facts.report->lower.push_back(std::move(tier));
  BOOST_TEST(json::parse(status_json(facts))["tape"]["reels"].size() == 3U);
  const json seen = json::parse(status_json(facts, status_reader::user(8)))["tape"]["reels"];
  BOOST_TEST(seen.size() == 2U);
  BOOST_TEST(seen[0]["name"] == "8");
  BOOST_TEST(json::parse(status_json(facts, status_reader::user(9)))["tape"]["reels"].size() == 1U);
  BOOST_TEST(json::parse(status_json(facts, status_reader::stranger()))["tape"]["reels"].size() == 1U);
}

BOOST_AUTO_TEST_CASE(metrics_have_the_sum_of_what_users_have_named_and_none_of_the_names) {
  node_facts facts = busy_node();
  auto made = std::make_shared<consensus_report>();
  for (const std::string name : {"mine", "yours", "theirs"}) {
    rank_group_report& one = made->groups.emplace_back();
    one.group.name.text = name;
    one.label = name == "theirs" ? "other" : "team";
    one.group.state = cluster::group_state::formed;
    one.figures.size = 2;
    one.figures.decided = 5;
  }
  made->describe();
  facts.report->groups = made;
  const std::string metrics = metrics_text(facts);
  BOOST_TEST(metrics.contains("\ncenote_rank_group_formed{instance_group=\"team\"} 2\n"));
  BOOST_TEST(metrics.contains("\ncenote_rank_group_size{instance_group=\"team\"} 4\n"));
  BOOST_TEST(metrics.contains("\ncenote_rank_group_size{instance_group=\"other\"} 2\n"));
  for (const std::string word : {"\"mine\"", "\"yours\"", "\"theirs\"", "cenote_rank_group_decided"})
    BOOST_TEST(!metrics.contains(word), word);
}

BOOST_AUTO_TEST_CASE(the_documentation_is_written_from_the_tables) {
  std::ifstream file(cenote::testing::source_folder() / "docs/metrics.md");
  const std::string page{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (std::getenv("CENOTE_TEST_WRITE_DOCS") != nullptr) {
    std::ofstream(cenote::testing::source_folder() / "docs/metrics.md") << document_metrics();
    return;
  }
  BOOST_TEST((page == document_metrics()),
             "docs/metrics.md is out of date; run this test with CENOTE_TEST_WRITE_DOCS=1");
}

BOOST_AUTO_TEST_SUITE_END()
