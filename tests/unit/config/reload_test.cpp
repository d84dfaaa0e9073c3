// Readers of settings that a reload may change: the new value reaches each of them.
#include <boost/test/unit_test.hpp>

#include <map>
#include <regex>
#include <string>

#include "config/schema.hpp"
#include "tests/support/product_sources.hpp"

namespace cenote::config::reload_test {

namespace {

struct reader {
  std::ptrdiff_t reads = 0;
  std::string_view way;  ///< of the new value to what was made of the old one
};

/// Places that read a setting which a reload may change.
const std::map<std::string, reader> readers{
    {"actors/cluster_host.cpp", {2, "worker::reload()"}},
    {"actors/dram_tier.cpp", {10, "dram_tier::reload()"}},
    {"actors/nvme_stack.cpp", {4, "nvme_tier::reload() sets policy and times to live"}},
    {"actors/nvme_tier.cpp", {5, "nvme_tier::reload()"}},
    {"actors/prefetch.cpp", {1, "the reload of the planner itself"}},
    {"actors/remote_stack.cpp", {1, "the reload of remote_tier"}},
    {"actors/remote_tier.cpp", {3, "its own reload"}},
    {"actors/tier_options.cpp", {38, "what asks it: dram_tier::reload(), the planner's, nvme_tier's"}},
    {"commands/services/indexer.cpp", {2, "the log: set_levels(); indexer_process::reload() has the rest"}},
    {"commands/services/manager.cpp", {2, "the log: set_levels(); all else needs a restart"}},
    {"commands/node.cpp", {4, "the keeper, which is handed what the worker accepted; set_levels()"}},
    {"commands/replay/real.cpp", {1, "nothing: a replay has one configuration"}},
    {"worker/access.cpp", {3, "nothing is kept: it is given what holds now"}},
    {"worker/attachments.cpp", {2, "nothing is kept: current_config"}},
    {"worker/device_host.cpp", {1, "a device is opened once; the node's actor tells it what was reloaded since"}},
    {"worker/recovery.cpp", {2, "a tier is opened once: dram_tier::reload()"}},
    {"worker/server.cpp", {2, "nothing is kept: current_config"}},
    {"worker/status_json.cpp", {3, "nothing is kept: current_config"}},
    {"worker/stop_limit.cpp", {1, "nothing is kept: a check of a machine has one configuration"}},
    {"worker/worker.cpp", {11, "worker::reload(); the pool, where guests and hand-overs look each time"}},
};

/// A key as code reads it: a member of the configuration, or what makes several keys of a section into options.
std::regex read_of_reloadable() {
  std::string members;
  for (const key_schema& key : all_keys()) {
    if (!key.reloadable || key.name.contains('<')) continue;
    members += (members.empty() ? "" : "|") + std::regex_replace(std::string(key.name), std::regex("\\."), "\\.");
  }
  return std::regex("(?:\\.|->)(?:" + members +
                    ")\\b|config\\w*(?:\\.|->)groups\\b|"
                    "\\b(?:group_options_of|limit_options_of|life_options_of|prefetch_options_of|store_options_of|"
                    "nvme_ttls_of|group_rights_of|groups_kept_here|tell_groups|stop_time)\\(");
}

std::ptrdiff_t reads_in(const std::string& text, const std::regex& read) {
  return std::distance(std::sregex_iterator(text.begin(), text.end(), read), std::sregex_iterator());
}

}  // namespace

BOOST_AUTO_TEST_SUITE(reloads)

/// Finds a read that was added: a reload has to reach what is made of it, by the way that `readers` names.
BOOST_AUTO_TEST_CASE(a_reload_reaches_every_reader_of_a_setting_that_it_may_change,
                     *boost::unit_test::enable_if<testing::reads_sources>()) {
  const std::regex read = read_of_reloadable();
  for (const auto& [path, text] : testing::product_sources({"actors", "commands", "keeper", "worker"})) {
    if (path.ends_with(".hpp") || path.ends_with("/cluster.cpp")) continue;
    const auto known = readers.find(path);
    BOOST_TEST(reads_in(text, read) == (known == readers.end() ? 0 : known->second.reads), path);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::config::reload_test
