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

/// Constants that bound a table or a number of things, as the code writes them, most_…, max_…: the files of each.
std::map<std::string, std::set<std::string>> bounds_in(const std::vector<testing::source_file>& sources) {
  static const std::regex declaration(
      R"((?:std::size_t|std::u?int\d+_t|unsigned|int|rlim_t|std::ptrdiff_t) ((?:most|max)_\w+) ?= ?)");
  std::map<std::string, std::set<std::string>> found;
  for (const auto& [path, text] : sources) {
    for (std::sregex_iterator one(text.begin(), text.end(), declaration), end; one != end; ++one)
      found[(*one)[1]].insert(path);
  }
  return found;
}

/// Bounds of one thing of one client, or of nothing that clients fill: why no share is needed. By name, and by file
/// where several have the name: a further one needs a reason of its own.
const std::map<std::string, std::string> without_share{
    {"max_backends", "set by the configuration"},
    {"max_blocks tiers/nvme/devices.hpp", "of one path, which quotas share"},
    {"max_blocks tiers/nvme/store.hpp", "of one path, which quotas share"},
    {"max_blocks_per_slab", "a layout"},
    {"max_buckets", "a layout"},
    {"max_bytes tiers/nvme/catalog.hpp", "of one path's file"},
    {"max_bytes tiers/nvme/removal_set.hpp", "of one path's file"},
    {"max_chain", "of one request"},
    {"max_entries", "of the keeper: sessions, instances and slabs, which have shares"},
    {"max_entry_fds", "of one entry"},
    {"max_entry_meta", "of one entry"},
    {"max_extent", "of one path"},
    {"max_frame", "of one frame"},
    {"max_frame_fds", "of one frame"},
    {"max_grants", "of one session; bytes by limits.reserve_share"},
    {"max_held", "blocks of one session"},
    {"max_payload", "of one frame"},
    {"max_pin_slots", "of one session"},
    {"max_pins", "of one session"},
    {"max_probes", "steps of one look"},
    {"max_rank_group_name", "bytes of one name"},
    {"max_ranks", "of one group"},
    {"max_records memory/block_record.hpp", "blocks, which quotas share"},
    {"max_records tiers/nvme/removal_set.hpp", "of one path: an instance in place of its keys"},
    {"max_request_bytes", "of one request"},
    {"max_session_keys", "of one session"},
    {"max_session_lookups", "of one session"},
    {"max_session_prefetches", "of one session"},
    {"max_slabs", "a layout"},
    {"max_slabs_a_query", "of one question"},
    {"max_text", "of one frame"},
    {"max_text_bytes", "of one value"},
    {"max_value_bytes", "of one value"},
    {"max_version_entries", "blocks of one instance, which quotas share"},
    {"most_accepts", "steps of one turn"},
    {"most_answer_bytes transport/http/request_client.cpp", "of one answer"},
    {"most_answer_bytes worker/trace_exporter/trace_exporter.cpp", "of one answer"},
    {"most_answered", "blocks of one answer to an administrator, of whom one records"},
    {"most_asking_peers", "connections: a silent one goes after two seconds"},
    {"most_attempts", "steps of one turn"},
    {"most_blocks actors/live_curves.hpp", "of a figure: requests that find no room are counted"},
    {"most_blocks tiers/blocks/open_chains.hpp", "of one session"},
    {"most_book_bytes", "of one file"},
    {"most_chains", "of one session"},
    {"most_changes tiers/blocks/types.hpp", "of one reader, which begins anew"},
    {"most_changes tiers/nvme/store.hpp", "of one reader, which begins anew"},
    {"most_cleared", "numbers of clears: the oldest goes"},
    {"most_clears", "of one epoch: the oldest goes"},
    {"most_closed", "links that are over: the oldest goes"},
    {"most_contacts", "other nodes"},
    {"most_credentials_bytes", "of one file"},
    {"most_databases", "set by the configuration"},
    {"most_depth", "of one path"},
    {"most_device_tiers", "set by the configuration"},
    {"most_dials", "other nodes"},
    {"most_elements", "of one reply"},
    {"most_engines", "the oldest goes"},
    {"most_entries", "instances, which have shares: the oldest goes"},
    {"most_entry_bytes", "of one entry"},
    {"most_failures_at_start", "workers"},
    {"most_forced_cost", "steps of a tenth of a second"},
    {"most_forced_looks", "steps of a tenth of a second"},
    {"most_frame_bytes", "of one frame"},
    {"most_frame_questions", "of one frame"},
    {"most_frames", "of one snapshot"},
    {"most_greetings", "other nodes"},
    {"most_group_ranks", "of one group"},
    {"most_hashes", "of one batch"},
    {"most_header_line", "of one server"},
    {"most_idle_topics", "rows of models without an instance"},
    {"most_in_a_row", "answers of one place"},
    {"most_in_batch", "steps of one turn"},
    {"most_instances tiers/nvme/store.cpp", "instances with blocks on one path: the idle ones with the fewest go"},
    {"most_instances tiers/remote/redis_lane.cpp",
     "instances, which have shares: what is known of idle ones is asked for again"},
    {"most_instances tiers/remote/removal_stamps.hpp",
     "instances, which have shares: what was missed is not put later"},
    {"most_keys cluster/recent_removals.hpp", "the instance with most counts as a whole"},
    {"most_keys tiers/remote/kept_removals.hpp", "the oldest of the instance with most goes"},
    {"most_keys tiers/remote/removal_book.hpp", "the instance with most is cleared"},
    {"most_keys transport/peer/block_messages.hpp", "of one message"},
    {"most_labels", "series of metrics: all further ones are one"},
    {"most_lanes", "threads of one group"},
    {"most_left", "steps of one turn"},
    {"most_length", "of one request"},
    {"most_lent", "bytes, each node within a window of its own"},
    {"most_links", "other nodes: who connects has shown the secret"},
    {"most_looked_at", "steps of one turn"},
    {"most_looks", "steps of one turn"},
    {"most_lookups tiers/blocks/session_lookups.hpp", "a number of a figure, no memory"},
    {"most_lookups transport/ucx/network.cpp", "names of other nodes"},
    {"most_members", "other nodes"},
    {"most_messages_under_way", "of one link"},
    {"most_missed_blocks", "blocks that are offered later: the oldest goes"},
    {"most_name_bytes", "of one name of a host"},
    {"most_named", "ranks in one text"},
    {"most_names actors/remote_tier.hpp", "instances that can be cleared: the oldest unused one goes"},
    {"most_names cluster/pool.cpp", "names of other nodes"},
    {"most_news_keys", "of one message"},
    {"most_nodes", "other nodes"},
    {"most_numbers cluster/write_offs.hpp", "of write-offs that are over: the oldest goes"},
    {"most_numbers transport/ucx/socket_numbers.cpp", "connections of other nodes"},
    {"most_of_instance", "of one instance"},
    {"most_of_link", "orders of one other node"},
    {"most_open", "questions of one group"},
    {"most_open_questions", "of one rank"},
    {"most_opened", "of other nodes, those that a removal opened among them"},
    {"most_orders",
     "removals: the instance with most is cleared; without one the oldest of the largest group goes, and is counted"},
    {"most_owed", "answers of one session"},
    {"most_parts tiers/nvme/uring_engine.cpp", "of one block"},
    {"most_parts transport/ucx/channel.hpp", "of one message"},
    {"most_patience", "a time"},
    {"most_pieces actors/tier_options.cpp", "set by the limit of open files"},
    {"most_pieces tiers/blocks/reserve.hpp", "set by the limit of open files"},
    {"most_prefix_bytes", "of the configuration"},
    {"most_processes", "of one driver"},
    {"most_queued", "fetches of one other node"},
    {"most_rank_groups", "of one session"},
    {"most_redis_value_bytes", "of one value"},
    {"most_refusal_bytes", "of one answer"},
    {"most_refusals", "other nodes: the oldest goes"},
    {"most_refusals_logged", "lines of a log"},
    {"most_registered", "slabs of one path"},
    {"most_remembered", "decisions of one group"},
    {"most_removals_bytes", "of one file"},
    {"most_replicas", "set by the configuration"},
    {"most_reply_bytes tiers/remote/redis_request.hpp", "of one server"},
    {"most_reply_bytes transport/redis/waiting_client.hpp", "of one server"},
    {"most_requests actors/peer.hpp", "of an operator's measurement"},
    {"most_resident", "a number of a figure, no memory"},
    {"most_rounds", "steps of one turn"},
    {"most_run_bytes", "of one round"},
    {"most_run_commands", "of one round"},
    {"most_runs", "of one transfer"},
    {"most_s", "a time"},
    {"most_servers", "set by the configuration"},
    {"most_shown", "bytes of one text"},
    {"most_spare", "of one session"},
    {"most_spec_bytes", "bytes, of which the instance group with most gives way"},
    {"most_specs", "instances, which have shares: the oldest unused one goes"},
    {"most_strangers", "other nodes: who connects has shown the secret, and a silent one goes after two seconds"},
    {"most_stuck", "steps of one turn"},
    {"most_text_bytes", "of one value"},
    {"most_threads", "of the machine"},
    {"most_told", "what a policy is told"},
    {"most_tries", "of one block"},
    {"most_unheard actors/dram_tier.cpp", "ends of sessions that the keeper has not heard"},
    {"most_unheard cluster/agreement_options.hpp", "decisions of one group"},
    {"most_unheard transport/local/doorbell.cpp", "bytes of one session"},
    {"most_units", "of one launch"},
    {"most_unsent_bytes", "of one server"},
    {"most_vain_pools", "steps of one turn"},
    {"most_value_bytes", "of one value"},
    {"most_waiting actors/request_recording.hpp", "requests of a recording: the rest is counted"},
    {"most_waiting tiers/blocks/sum_checks.hpp",
     "checks, of which an instance has few: a report that finds no room comes again"},
    {"most_waiting_bytes", "of one link"},
    {"most_waiting_frames", "of one link"},
    {"most_watched", "instances with estimates: one without them loses nothing else"},
    {"most_window", "of one server"},
    {"most_workers", "a number of a frame"},
    {"most_write_offs", "other nodes: the oldest goes"},
    {"most_wrong", "of one session"},
};

/// Of the rows whose constant has the name of others: where it stands.
const std::map<std::string, std::string> files_of_shares{
    {"most_instances", "cluster/guest.hpp"},
    {"most_keys", "tiers/blocks/published.hpp"},
    {"most_requests", "tiers/blocks/published.hpp"},
};

/// Configuration that bounds what clients take, and has no row: what bounds it for each user and instance group.
const std::map<std::string, std::string> keys_without_share{
    {"nvme.write_window", "users, groups and instances share it: blocks::window_shares"},
    {"nvme.read_window", "users, groups and instances load in turns: prefetch::load_turns"},
    {"remote.write_window", "users, groups and instances share it: blocks::window_shares"},
    {"remote.read_window", "users, groups and instances load in turns: prefetch::load_turns"},
    {"remote.peer_window", "of one other node: what users may have under way in all has passed the other windows"},
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

std::string key_of(const std::string& name, const std::string& file, const std::set<std::string>& files) {
  return files.size() == 1 ? name : name + ' ' + file;
}

/// Bounds that have neither a share nor a reason, as keys of `without_share`.
std::set<std::string> unshared(const std::map<std::string, std::set<std::string>>& bounds) {
  std::set<std::string> shared;
  for (const node_bound_row& row : node_bound_table) shared.insert(std::string(row.place));
  std::set<std::string> lacking;
  for (const auto& [name, files] : bounds) {
    for (const std::string& file : files) {
      const auto place = files_of_shares.find(name);
      const bool is_place = place == files_of_shares.end() ? files.size() == 1 : place->second == file;
      const std::string key = key_of(name, file, files);
      if (!(shared.contains(name) && is_place) && !without_share.contains(key)) lacking.insert(key);
    }
  }
  return lacking;
}

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
  const auto bounds = bounds_in(
      testing::product_sources({"actors", "cluster", "device", "keeper", "memory", "tiers/blocks", "tiers/gpu",
                                "tiers/nvme", "tiers/prefetch", "tiers/remote", "transport/http", "transport/local",
                                "transport/peer", "transport/redis", "transport/ucx", "transport/zmq", "worker"}));
  for (const std::string& each : unshared(bounds)) BOOST_ERROR(each + " has no share");
  std::set<std::string> keys;
  for (const auto& [name, files] : bounds) {
    for (const std::string& file : files) keys.insert(key_of(name, file, files));
  }
  for (const auto& [key, reason] : without_share) BOOST_TEST(keys.contains(key), key << " is nowhere");
  const std::string limits = text_of(cenote::testing::source_folder() / "config/schema.cpp");
  for (const node_bound_row& row : node_bound_table) {
    if (row.place.find('.') != std::string::npos)
      BOOST_TEST(limits.find('"' + std::string(row.place) + '"') != std::string::npos, row.place);
  }
}

BOOST_AUTO_TEST_CASE(a_bound_with_the_name_of_another_one_needs_a_share_or_a_reason_of_its_own) {
  const std::string line = "constexpr std::size_t most_depth = 4;\nconstexpr std::size_t most_groups = 4;\n";
  BOOST_TEST(unshared(bounds_in({{"cluster/a.hpp", line}})).empty());
  BOOST_TEST((unshared(bounds_in({{"cluster/a.hpp", line}, {"cluster/b.hpp", line}})) ==
              std::set<std::string>{"most_depth cluster/a.hpp", "most_depth cluster/b.hpp", "most_groups cluster/a.hpp",
                                    "most_groups cluster/b.hpp"}));
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
  static const std::regex key(
      R"re(\.name = "((?:gpu|instances|limits|session)\.\w+|node\.max_\w+|(?:nvme|remote)\.\w+_window)")re");
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
