// Bounds that all clients fill together: each has a share, in numbers and in the source.
#include "core/shared_bound.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/folders.hpp"
#include "tests/support/product_sources.hpp"

namespace cenote::shared_bound_test {

namespace {

/// Takes until it is refused.
std::uint64_t take_all(shared_bound& bound, const share_holder& holder) {
  std::uint64_t taken = 0;
  for (; !bound.refusal(holder); ++taken) bound.take(holder);
  return taken;
}

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// Constants that bound a table or a number of things, as the code writes them: most_…, max_….
std::map<std::string, std::string> bounds_in_source() {
  static const std::regex declaration(R"((?:std::size_t|std::u?int\d+_t|unsigned|int) ((?:most|max)_\w+) ?= ?)");
  std::map<std::string, std::string> found;
  for (const auto& [path, text] : testing::product_sources(
           {"actors", "cluster", "device", "keeper", "memory", "tiers/blocks", "tiers/gpu", "tiers/nvme",
            "tiers/prefetch", "tiers/remote", "transport/local", "transport/redis", "worker"})) {
    for (std::sregex_iterator one(text.begin(), text.end(), declaration), end; one != end; ++one)
      found.emplace((*one)[1], path);
  }
  return found;
}

/// Bounds of one thing of one client, or of nothing that clients fill: why no share is needed.
const std::map<std::string, std::string> without_share{
    {"most_open", "questions of one group"},
    {"most_remembered", "decisions of one group"},
    {"most_unheard", "decisions of one group; ends of sessions that the keeper has not heard"},
    {"most_rank_groups", "of one session"},
    {"most_open_questions", "of one rank"},
    {"most_owed", "answers of one session"},
    {"most_named", "ranks in one text"},
    {"most_of_link", "orders of one other node"},
    {"most_waiting",
     "checks, of which an instance has few: a report that finds no room comes again; requests of a recording: "
     "the rest is counted"},
    {"most_of_instance", "of one instance"},
    {"most_wrong", "of one session"},
    {"most_queued", "fetches of one other node"},
    {"most_left", "steps of one turn"},
    {"most_lent", "bytes, each node within a window of its own"},
    {"most_opened", "of other nodes, those that a removal opened among them"},
    {"most_cleared", "numbers of clears: the oldest goes"},
    {"most_clears", "of one epoch: the oldest goes"},
    {"most_closed", "links that are over: the oldest goes"},
    {"most_names", "names of nodes, or of instances that can be cleared: the oldest goes"},
    {"most_contacts", "other nodes"},
    {"most_dials", "other nodes"},
    {"most_greetings", "other nodes"},
    {"most_write_offs", "other nodes: the oldest goes"},
    {"most_numbers", "of write-offs that are over: the oldest goes"},
    {"most_refusals", "other nodes: the oldest goes"},
    {"most_refusals_logged", "lines of a log"},
    {"most_labels", "series of metrics: all further ones are one"},
    {"most_requests", "of an operator's measurement"},
    {"most_device_tiers", "set by the configuration"},
    {"most_news_keys", "of one message"},
    {"most_spare", "of one session"},
    {"most_chains", "of one session"},
    {"most_of_session", "of one session"},
    {"most_blocks", "of one session"},
    {"most_missed_blocks", "blocks that are offered later: the oldest goes"},
    {"most_tries", "of one block"},
    {"most_looked_at", "steps of one turn"},
    {"most_looks", "steps of one turn"},
    {"most_vain_pools", "steps of one turn"},
    {"most_stuck", "steps of one turn"},
    {"most_forced_looks", "steps of a tenth of a second"},
    {"most_forced_cost", "steps of a tenth of a second"},
    {"most_pieces", "set by the limit of open files"},
    {"most_patience", "a time"},
    {"most_told", "what a policy is told"},
    {"most_engines", "the oldest goes"},
    {"most_text_bytes", "of one value"},
    {"most_s", "a time"},
    {"max_text_bytes", "of one value"},
    {"max_session_lookups", "of one session"},
    {"max_session_prefetches", "of one session"},
    {"max_session_keys", "of one session"},
    {"max_chain", "of one request"},
    {"max_grants", "of one session; bytes by limits.reserve_share"},
    {"max_pins", "of one session"},
    {"most_lookups", "a number of a figure, no memory"},
    {"most_answered", "blocks of one answer to an administrator, of whom one records"},
    {"most_watched", "instances with estimates: one without them loses nothing else"},
    {"max_pin_slots", "of one session"},
    {"max_ranks", "of one group"},
    {"max_rank_group_name", "bytes of one name"},
    {"max_probes", "steps of one look"},
    {"max_records", "blocks, which quotas share"},
    {"max_version_entries", "blocks of one instance, which quotas share"},
    {"max_blocks_per_slab", "a layout"},
    {"max_slabs", "a layout"},
    {"max_buckets", "a layout"},
    {"max_backends", "set by the configuration"},
    {"most_servers", "set by the configuration"},
    {"most_databases", "set by the configuration"},
    {"most_replicas", "set by the configuration"},
    {"most_credentials_bytes", "of one file"},
    {"most_prefix_bytes", "of the configuration"},
    {"most_book_bytes", "of one file"},
    {"most_entry_bytes", "of one entry"},
    {"most_removals_bytes", "of one file"},
    {"max_value_bytes", "of one value"},
    {"max_bytes", "of one path's file"},
    {"max_blocks", "of one path, which quotas share"},
    {"max_records", "blocks, which quotas share; of removals: an instance in place of its keys"},
    {"max_extent", "of one path"},
    {"max_entries", "of the keeper: sessions, instances and slabs, which have shares"},
    {"max_entry_fds", "of one entry"},
    {"max_entry_meta", "of one entry"},
    {"max_frame", "of one frame"},
    {"max_frame_fds", "of one frame"},
    {"max_held", "blocks of one session"},
    {"max_payload", "of one frame"},
    {"max_slabs_a_query", "of one question"},
    {"max_text", "of one frame"},
    {"most_asking_peers", "connections: a silent one goes after two seconds"},
    {"most_answer_bytes", "of one answer"},
    {"most_attempts", "steps of one turn"},
    {"most_changes", "of one reader, which begins anew"},
    {"most_depth", "of one path"},
    {"most_elements", "of one reply"},
    {"most_entries", "instances, which have shares: the oldest goes"},
    {"most_failures_at_start", "workers"},
    {"most_frames", "of one snapshot"},
    {"most_hashes", "of one batch"},
    {"most_header_line", "of one server"},
    {"most_idle_topics", "rows of models without an instance"},
    {"most_in_a_row", "answers of one place"},
    {"most_in_batch", "steps of one turn"},
    {"most_lanes", "threads of one group"},
    {"most_length", "of one request"},
    {"most_name_bytes", "of one name of a host"},
    {"most_nodes", "other nodes"},
    {"most_orders", "removals: the oldest goes, and is counted"},
    {"most_parts", "of one block"},
    {"most_processes", "of one driver"},
    {"most_redis_value_bytes", "of one value"},
    {"most_registered", "slabs of one path"},
    {"most_reply_bytes", "of one server"},
    {"most_resident", "a number of a figure, no memory"},
    {"most_rounds", "steps of one turn"},
    {"most_run_bytes", "of one round"},
    {"most_run_commands", "of one round"},
    {"most_runs", "of one transfer"},
    {"most_shown", "bytes of one text"},
    {"most_specs", "instances, which have shares: the oldest unused one goes"},
    {"most_threads", "of the machine"},
    {"most_unsent_bytes", "of one server"},
    {"most_units", "of one launch"},
    {"most_value_bytes", "of one value"},
    {"most_window", "of one server"},
};

/// Configuration that bounds what clients take, and has no row: what bounds it for each user and instance group.
const std::map<std::string, std::string> keys_without_share{
    {"session.max_pins", "of one session"},
    {"session.max_grants", "of one session"},
    {"session.reserve_timeout", "a time"},
    {"gpu.devices", "names"},
    {"gpu.backend", "a kind"},
    {"gpu.capacity", "blank blocks: as dram.capacity; blocks: quotas"},
    {"gpu.ingest", "a choice"},
    {"gpu.policy", "a choice"},
    {"gpu.high_water", "of the capacity"},
    {"gpu.low_water", "of the capacity"},
    {"gpu.quarantine", "a time; what is set aside is blank"},
    {"instances.idle", "a time"},
    {"limits.sessions_per_uid", "of one user"},
    {"limits.connections_per_uid", "of one user"},
    {"limits.instances_per_uid", "of one user"},
    {"limits.descriptors_in_flight", "of one user"},
    {"limits.reserve_share", "of one user, beside the share of blank blocks"},
    {"limits.keep_share", "accounts: keep_quota, user_keep_share"},
    {"limits.pin_share", "of one user: pin_shares"},
    {"limits.group_quota", "of one group"},
    {"limits.open_groups", "a choice"},
    {"limits.user_quota", "of one user"},
    {"limits.user_keep_share", "of one user"},
};

/// The states of a block's memory, and the bound of each for a user and instance group; a row's name, or other words.
const std::map<std::string, std::string> bounds_of_states{
    {"free", "nobody has it"},         {"granted", "blank blocks"}, {"pending", "blank blocks"},
    {"quarantined", "blank blocks"},   {"present", "quotas"},       {"zombie", "pins: limits.pin_share"},
    {"loading", "keys of prefetches"},
};

/// The enumerators of `name`, as a source has them.
std::vector<std::string> enumerators(const std::string& file, const std::string& name) {
  const std::string text = text_of(cenote::testing::source_folder() / file);
  const std::size_t begin = text.find("enum class " + name + " ");
  const std::string body = text.substr(begin, text.find("};", begin) - begin);
  static const std::regex enumerator(R"(\n  (\w+) = \d+,)");
  std::vector<std::string> all;
  for (std::sregex_iterator one(body.begin(), body.end(), enumerator), end; one != end; ++one) all.push_back((*one)[1]);
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(shared_bounds)

BOOST_AUTO_TEST_CASE(no_user_and_no_instance_group_fills_any_bound_of_the_node) {
  for (const node_bound_row& row : node_bound_table) {
    const std::uint64_t total = row.total != 0 ? row.total : 256;
    const share_usage alone{.all = total / 2, .user = total / 2, .group = total / 2};
    BOOST_TEST(share_refusal(row.bound, total, alone, {.uid = 1}).has_value(), row.things);
    const share_usage others{.all = total / 2, .user = 0, .group = 0};
    BOOST_TEST(!share_refusal(row.bound, total, others, {.uid = 2}), row.things);
    if (row.share == share_kind::user) continue;
    shared_bound bound(row.bound, total);
    BOOST_TEST(take_all(bound, {1, "a"}) == total / 4);
    BOOST_TEST(take_all(bound, {1, "b"}) == total / 8);
    BOOST_TEST(take_all(bound, {2, "a"}) > 0U);
    BOOST_TEST(take_all(bound, {share_holder::other_node, "n1"}) > 0U);
    BOOST_TEST(take_all(bound, {share_holder::other_node, "n2"}) > 0U);
  }
}

BOOST_AUTO_TEST_CASE(what_is_given_back_may_be_taken_again) {
  shared_bound bound(node_bound::ranks, 64);
  const auto taken = take_all(bound, {1, "a"});
  bound.give_back({1, "a"}, taken);
  BOOST_TEST(bound.total_taken() == 0U);
  BOOST_TEST(take_all(bound, {1, "b"}) == taken);
}

BOOST_AUTO_TEST_CASE(a_refusal_says_of_whom_and_of_what) {
  shared_bound bound(node_bound::ranks, 8);
  take_all(bound, {1, "a"});
  const auto of_group = bound.refusal({1, "a"});
  BOOST_REQUIRE(of_group);
  BOOST_TEST((of_group->code() == error_code::limit_exceeded));
  BOOST_TEST(
      of_group->message() ==
      "instance group `a` of uid 1 has 2 of the 4 ranks in groups that the user may have, and must leave as many "
      "to the user's other groups");
  take_all(bound, {1, "b"});
  take_all(bound, {1, "c"});
  BOOST_TEST(bound.refusal({1, "d"})->message() ==
             "uid 1 has 4 of the 8 ranks in groups that there may be, and must leave as many to others");
}

/// A bound that is added without a share is found here: give it a row in node_bound_table, and ask shared_bound or
/// share_refusal(); or add to `without_share` why clients do not fill it together.
BOOST_AUTO_TEST_CASE(every_bound_in_the_source_has_a_share_or_a_reason,
                     *boost::unit_test::enable_if<testing::reads_sources>()) {
  std::set<std::string> shared;
  for (const node_bound_row& row : node_bound_table) shared.insert(std::string(row.place));
  for (const auto& [name, file] : bounds_in_source())
    BOOST_TEST((shared.contains(name) || without_share.contains(name)), name << " in " << file << " has no share");
  const std::string limits = text_of(cenote::testing::source_folder() / "config/schema.cpp");
  for (const auto& place : shared) {
    if (place.find('.') != std::string::npos) BOOST_TEST(limits.find('"' + place + '"') != std::string::npos, place);
  }
}

/// Memory that clients hold has a state, whether or not a constant bounds it.
BOOST_AUTO_TEST_CASE(every_state_of_memory_that_clients_hold_has_a_share_or_a_reason) {
  const auto states = enumerators("memory/block_record.hpp", "block_state");
  BOOST_TEST(states.size() == bounds_of_states.size());
  for (const std::string& each : states) BOOST_TEST(bounds_of_states.contains(each), each << " has no share");
  for (const auto& [name, bound] : bounds_of_states) {
    const bool is_row = std::ranges::find(node_bound_table, bound, &node_bound_row::things) != node_bound_table.end();
    BOOST_TEST((is_row || !bound.starts_with("blank")), name);
  }
}

BOOST_AUTO_TEST_CASE(every_key_that_bounds_what_clients_take_has_a_share_or_a_reason) {
  static const std::regex key(R"re(\.name = "((?:gpu|instances|limits|session)\.\w+|node\.max_\w+)")re");
  const std::string schema = text_of(cenote::testing::source_folder() / "config/schema.cpp");
  std::set<std::string> shared;
  for (const node_bound_row& row : node_bound_table) shared.insert(std::string(row.place));
  std::size_t found = 0;
  for (std::sregex_iterator one(schema.begin(), schema.end(), key), end; one != end; ++one, ++found)
    BOOST_TEST((shared.contains((*one)[1]) || keys_without_share.contains((*one)[1])), (*one)[1] << " has no share");
  BOOST_TEST(found > keys_without_share.size());
}

BOOST_AUTO_TEST_CASE(nothing_but_this_asks_for_a_fair_share) {
  for (const auto& [path, text] :
       testing::product_sources({"actors", "client", "cluster", "keeper", "memory", "tiers", "transport", "worker"})) {
    BOOST_TEST(text.find("fair_share(") == std::string::npos,
               path << " asks for one: share_refusal() and user_share() say what it is of");
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::shared_bound_test
