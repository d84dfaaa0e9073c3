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
  for (const char* folder : {"actors", "cluster", "memory", "tiers/blocks", "tiers/prefetch", "worker"}) {
    for (const auto& each :
         std::filesystem::recursive_directory_iterator(std::filesystem::path(CENOTE_SOURCE_DIR) / folder)) {
      if (each.path().extension() != ".hpp" && each.path().extension() != ".cpp") continue;
      const std::string text = text_of(each.path());
      for (std::sregex_iterator one(text.begin(), text.end(), declaration), end; one != end; ++one)
        found.emplace((*one)[1], each.path().filename());
    }
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
    {"most_queued", "fetches of one other node"},
    {"most_left", "steps of one turn"},
    {"most_lent", "bytes, each node within a window of its own"},
    {"most_opened", "of other nodes, those that a removal opened among them"},
    {"most_cleared", "numbers of clears: the oldest goes"},
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
    {"max_pin_slots", "of one session"},
    {"max_ranks", "of one group"},
    {"max_rank_group_name", "bytes of one name"},
    {"max_probes", "steps of one look"},
    {"max_records", "blocks, which quotas share"},
    {"max_version_entries", "blocks of one instance, which quotas share"},
    {"max_blocks_per_slab", "a layout"},
    {"max_slabs", "a layout"},
    {"max_buckets", "a layout"},
};

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
BOOST_AUTO_TEST_CASE(every_bound_in_the_source_has_a_share_or_a_reason) {
  std::set<std::string> shared;
  for (const node_bound_row& row : node_bound_table) shared.insert(std::string(row.place));
  for (const auto& [name, file] : bounds_in_source())
    BOOST_TEST((shared.contains(name) || without_share.contains(name)), name << " in " << file << " has no share");
  const std::string limits = text_of(std::filesystem::path(CENOTE_SOURCE_DIR) / "config/schema.cpp");
  for (const auto& place : shared) {
    if (place.find('.') != std::string::npos) BOOST_TEST(limits.find('"' + place + '"') != std::string::npos, place);
  }
}

BOOST_AUTO_TEST_CASE(nothing_but_this_asks_for_a_fair_share) {
  for (const char* folder : {"actors", "client", "cluster", "keeper", "memory", "tiers", "transport", "worker"}) {
    for (const auto& each :
         std::filesystem::recursive_directory_iterator(std::filesystem::path(CENOTE_SOURCE_DIR) / folder)) {
      if (each.path().extension() != ".hpp" && each.path().extension() != ".cpp") continue;
      BOOST_TEST(text_of(each.path()).find("fair_share(") == std::string::npos,
                 each.path().filename() << " asks for one: share_refusal() and user_share() say what it is of");
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::shared_bound_test
