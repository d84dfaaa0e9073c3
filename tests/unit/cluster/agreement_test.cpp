#include "cluster/agreement.hpp"

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>

#include "tests/unit/cluster/agreement_world.hpp"

using namespace cenote;
using testing::agreement_world;

namespace {

// Worlds that break without a rule are searched for without sanitizers, which see nothing else in them.
#ifdef __SANITIZE_ADDRESS__
constexpr std::uint64_t usual_worlds = 700;
constexpr bool agreement_rule_search = false;
#elif defined(__OPTIMIZE__)
constexpr bool agreement_rule_search = true;
constexpr std::uint64_t usual_worlds = 8000;
#else
constexpr bool agreement_rule_search = true;
constexpr std::uint64_t usual_worlds = 500;
#endif

std::uint64_t worlds() {
  if (const char* const asked = std::getenv("CENOTE_TEST_SEEDS")) return std::strtoull(asked, nullptr, 10);
  return std::getenv("CENOTE_TEST_FULL") == nullptr ? usual_worlds : 10000000;
}

/// The first seed with which something does not hold; 0: none of `most` seeds.
std::uint64_t first_broken(const cluster::agreement_rules& rules, std::uint64_t most, std::string* why = nullptr) {
  for (std::uint64_t seed = 1; seed <= most; ++seed) {
    if (auto failed = agreement_world(seed, {.rules = rules}).run()) {
      if (why != nullptr) *why = *failed;
      return seed;
    }
  }
  return 0;
}

/// `unit_cluster -- --seed N [--trace]`, or CENOTE_TEST_SEED=N, which always shows what happens.
struct one_world {
  std::optional<std::uint64_t> seed;
  bool shows = false;

  one_world() {
    const auto& suite = boost::unit_test::framework::master_test_suite();
    for (int i = 1; i < suite.argc; ++i) {
      if (std::string_view(suite.argv[i]) == "--trace") shows = true;
      if (std::string_view(suite.argv[i]) == "--seed" && i + 1 < suite.argc)
        seed = std::strtoull(suite.argv[i + 1], nullptr, 10);
    }
    if (const char* const one = std::getenv("CENOTE_TEST_SEED")) {
      seed = std::strtoull(one, nullptr, 10);
      shows = true;
    }
  }
};

void need_rule(bool cluster::agreement_rules::*rule, const char* name) {
  cluster::agreement_rules without;
  without.*rule = false;
  std::string why;
  const auto seed = first_broken(without, std::min<std::uint64_t>(worlds(), 10000), &why);
  BOOST_TEST(seed != 0U, name << " is not needed by any of the seeds");
  BOOST_TEST_MESSAGE(name << ": seed " << seed << ", " << why);
}

using namespace std::chrono_literals;
using answer_kind = cluster::rank_answer::kind;

/// Nodes that see each other, and hear at once what another one says, unless a test keeps it from them.
class few_nodes {
 public:
  using frame = cluster::agreement_frame;

  explicit few_nodes(std::initializer_list<std::string> names, cluster::agreement_options settings = {})
      : settings_(settings) {
    for (const std::string& each : names) start(each);
  }

  void start(const std::string& name, std::uint64_t worker = 1) {
    nodes_[name] = {peer::incarnation::of(1000, worker), {}};
    nodes_[name].object = std::make_unique<cluster::agreement>(name, nodes_[name].born, settings_, now);
    look();
  }
  void end(const std::string& name) {
    nodes_.erase(name);
    look();
  }
  /// Everybody sees who runs and is not `hidden`.
  void look() {
    for (auto& [name, each] : nodes_) {
      std::vector<cluster::live_node> live;
      for (const auto& [other, one] : nodes_) {
        if (other != name && !hidden.contains(name) && !hidden.contains(other)) live.push_back({other, one.born});
      }
      each.object->members_changed(live, now);
    }
    pass();
  }
  cluster::agreement& operator[](const std::string& name) { return *nodes_.at(name).object; }
  [[nodiscard]] peer::incarnation born(const std::string& name) const { return nodes_.at(name).born; }

  cluster::rank_id join(const std::string& at, std::uint32_t rank, std::uint32_t size,
                        const numbered_identity& shared = 7, const std::string& group = "g",
                        std::chrono::milliseconds timeout = 10s, const share_holder& owner = {}) {
    (*this)[at].join({++last_, group, shared, rank, size, timeout, owner}, now);
    pass();
    return last_;
  }
  void ask(const std::string& at, cluster::rank_id rank, std::uint64_t question, std::uint64_t length,
           std::chrono::milliseconds timeout = 1s) {
    (*this)[at].agree(rank, question, length, timeout, now);
    pass();
  }
  void leave(const std::string& at, cluster::rank_id rank) {
    (*this)[at].leave(rank, now);
    pass();
  }
  void tell(const std::string& from, const std::string& to, peer::frame_type type, std::span<const std::byte> body) {
    BOOST_TEST((*this)[to].heard(from, born(from), type, body, now).has_value());
    pass();
  }
  /// Time passes; a node whose time has come is called then.
  void run(std::chrono::milliseconds how_long) {
    const auto end = now + how_long;
    while (true) {
      auto next = end;
      for (const auto& [name, each] : nodes_) {
        if (!stopped.contains(name)) next = std::min(next, std::max(each.object->wake_at(), now + 1us));
      }
      now = next;
      for (auto& [name, each] : nodes_) {
        if (!stopped.contains(name)) each.object->advance(now);
      }
      pass();
      if (now >= end) return;
    }
  }
  void pass() {
    bool moves = true;
    for (int i = 0; moves && i < 1000; ++i) {
      moves = false;
      for (auto& [name, each] : nodes_) {
        if (stopped.contains(name)) continue;
        for (const cluster::rank_answer& one : each.object->take_answers()) heard[one.rank].push_back(one);
        for (const frame& one : each.object->take_frames()) moves |= carry(name, one);
        for (const cluster::rank_answer& one : each.object->take_answers()) heard[one.rank].push_back(one);
      }
    }
  }
  [[nodiscard]] const cluster::rank_answer& last_of(cluster::rank_id rank) { return heard.at(rank).back(); }
  [[nodiscard]] std::uint64_t length_of(cluster::rank_id rank, std::uint64_t question) {
    std::optional<std::uint64_t> length;
    for (const auto& each : heard[rank]) {
      if (each.what == answer_kind::decided && each.question == question) length = each.length;
    }
    BOOST_TEST(length.has_value(), "rank " << rank << " has no number for question " << question);
    return length.value_or(~std::uint64_t{0});
  }
  [[nodiscard]] bool is(cluster::rank_id rank, answer_kind what) {
    return !heard[rank].empty() && heard[rank].back().what == what;
  }

  std::chrono::steady_clock::time_point now{std::chrono::hours(1)};
  std::map<cluster::rank_id, std::vector<cluster::rank_answer>> heard;
  std::set<std::string> hidden;   ///< not seen by others, who are told by look()
  std::set<std::string> stopped;  ///< stand still: hear nothing and say nothing
  std::function<bool(const std::string& from, const frame&)> drops = [](const auto&, const auto&) { return false; };
  std::vector<frame> carried;

 private:
  struct node {
    peer::incarnation born{};
    std::unique_ptr<cluster::agreement> object{};
  };
  bool carry(const std::string& from, const frame& what) {
    carried.push_back(what);
    if (drops(from, what)) return true;
    for (auto& [name, each] : nodes_) {
      if (name == from || (!what.to.empty() && what.to != name) || stopped.contains(name)) continue;
      if (hidden.contains(name) || hidden.contains(from)) continue;
      BOOST_TEST(each.object->heard(from, nodes_.at(from).born, what.type, what.body, now).has_value());
    }
    return true;
  }

  cluster::agreement_options settings_;
  std::map<std::string, node> nodes_;
  cluster::rank_id last_ = 0;
};

/// Ranks 0 and 1 at a, 2 and 3 at b; in.
struct two_by_two : few_nodes {
  explicit two_by_two(cluster::agreement_options settings = {}) : few_nodes({"a", "b"}, settings) {
    for (std::uint32_t i = 0; i < 4; ++i) ranks[i] = join(at(i), i, 4);
    run(500ms);
    for (const auto each : ranks) BOOST_TEST(is(each, answer_kind::formed));
  }
  static std::string at(std::uint32_t rank) { return rank < 2 ? "a" : "b"; }
  void ask_of(std::uint32_t rank, std::uint64_t question, std::uint64_t length) {
    ask(at(rank), ranks[rank], question, length);
  }
  void all_ask(std::uint64_t question, std::uint64_t least) {
    for (std::uint32_t i = 0; i < 4; ++i) ask_of(i, question, least + i);
  }
  /// The ranks there are enough for a 0.
  void decide_0_at_a(std::uint64_t question) {
    for (const std::uint32_t rank : {0U, 1U}) ask_of(rank, question, 0);
  }
  [[nodiscard]] static std::optional<peer::decided_lengths> decisions_of(const frame& what) {
    if (what.type != peer::frame_type::group_says) return std::nullopt;
    const auto says = peer::decode_group_saying(what.body);
    const auto* const decided = says ? std::get_if<peer::decided_lengths>(&*says) : nullptr;
    return decided == nullptr ? std::nullopt : std::optional(*decided);
  }
  [[nodiscard]] bool all_are(answer_kind what) {
    return std::ranges::all_of(ranks, [&](const auto each) { return is(each, what); });
  }
  std::array<cluster::rank_id, 4> ranks{};
};

}  // namespace

BOOST_AUTO_TEST_SUITE(agreement_of_ranks)

BOOST_AUTO_TEST_CASE(ranks_of_one_node_agree_without_a_frame) {
  few_nodes nodes{"a", "b"};
  const auto first = nodes.join("a", 0, 2);
  const auto second = nodes.join("a", 1, 2);
  BOOST_TEST(nodes.is(first, answer_kind::formed));
  BOOST_TEST(nodes.is(second, answer_kind::formed));
  nodes.ask("a", first, 1, 30);
  nodes.ask("a", second, 1, 20);
  BOOST_TEST(nodes.length_of(first, 1) == 20U);
  BOOST_TEST(nodes.length_of(second, 1) == 20U);
  BOOST_TEST(nodes.carried.empty());
}

BOOST_AUTO_TEST_CASE(groups_that_keep_to_a_node_may_have_one_name_on_two) {
  few_nodes nodes{"a", "b"};
  const auto at_a = nodes.join("a", 0, 1);
  const auto at_b = nodes.join("b", 0, 1, 8);
  nodes.run(3s);
  nodes.ask("a", at_a, 1, 5);
  nodes.ask("b", at_b, 1, 6);
  BOOST_TEST(nodes.length_of(at_a, 1) == 5U);
  BOOST_TEST(nodes.length_of(at_b, 1) == 6U);
}

BOOST_AUTO_TEST_CASE(ranks_of_two_nodes_hear_the_least) {
  two_by_two nodes;
  nodes.all_ask(1, 100);
  for (const auto each : nodes.ranks) BOOST_TEST(nodes.length_of(each, 1) == 100U);
  BOOST_TEST(nodes.last_of(nodes.ranks[3]).question == 1U);
  nodes.ask_of(3, 2, 7);
  nodes.ask_of(2, 2, 9);
  nodes.ask_of(1, 2, 8);
  nodes.ask_of(0, 2, 11);
  for (const auto each : nodes.ranks) BOOST_TEST(nodes.length_of(each, 2) == 7U);
}

BOOST_AUTO_TEST_CASE(ranks_may_ask_in_different_orders) {
  two_by_two nodes;
  for (const std::uint64_t question : {3, 1, 2}) {
    nodes.ask_of(0, question, 10 * question);
    nodes.ask_of(3, 4 - question, 10 * (4 - question) + 1);
  }
  for (const std::uint64_t question : {2, 3, 1}) {
    nodes.ask_of(1, question, 10 * question + 2);
    nodes.ask_of(2, question, 10 * question + 3);
  }
  for (const auto each : nodes.ranks) {
    for (const std::uint64_t question : {1, 2, 3}) BOOST_TEST(nodes.length_of(each, question) == 10 * question);
  }
}

BOOST_AUTO_TEST_CASE(a_rank_that_does_not_ask_makes_it_0_and_hears_0_when_it_does) {
  two_by_two nodes;
  for (std::uint32_t i = 0; i < 3; ++i) nodes.ask_of(i, 1, 50);
  nodes.run(350ms);
  BOOST_TEST(nodes.is(nodes.ranks[0], answer_kind::formed));
  nodes.run(100ms);
  for (std::uint32_t i = 0; i < 3; ++i) BOOST_TEST(nodes.length_of(nodes.ranks[i], 1) == 0U);
  nodes.ask_of(3, 1, 50);
  BOOST_TEST(nodes.length_of(nodes.ranks[3], 1) == 0U);
  nodes.all_ask(2, 60);
  BOOST_TEST(nodes.length_of(nodes.ranks[3], 2) == 60U);
}

BOOST_AUTO_TEST_CASE(a_rank_that_asks_twice_keeps_its_first_proposal_and_hears_one_answer) {
  two_by_two nodes;
  nodes.ask_of(0, 1, 50);
  nodes.ask_of(0, 1, 10);
  nodes.ask_of(0, 1, 90);
  for (std::uint32_t i = 1; i < 4; ++i) nodes.ask_of(i, 1, 70);
  BOOST_TEST(nodes.length_of(nodes.ranks[0], 1) == 50U);
  BOOST_TEST(nodes.heard[nodes.ranks[0]].size() == 2U);
  nodes.ask_of(0, 1, 3);
  BOOST_TEST(nodes.length_of(nodes.ranks[0], 1) == 50U);
  BOOST_TEST(nodes.heard[nodes.ranks[0]].size() == 3U);
}

BOOST_AUTO_TEST_CASE(questions_that_come_together_go_in_one_frame) {
  two_by_two nodes;
  for (std::uint64_t question = 1; question <= 100; ++question) {
    nodes.ask_of(0, question, 5);
    nodes.ask_of(1, question, 6);
    nodes["b"].agree(nodes.ranks[2], question, 7, 1s, nodes.now);
    nodes["b"].agree(nodes.ranks[3], question, 8, 1s, nodes.now);
    nodes.stopped = {"b"};
  }
  nodes.carried.clear();
  nodes.stopped.clear();
  nodes.pass();
  for (const auto each : nodes.ranks) BOOST_TEST(nodes.length_of(each, 100) == 5U);
  BOOST_TEST(nodes.carried.size() == 3U);  // what b proposes, what a decides, and b's acknowledgement
}

BOOST_AUTO_TEST_CASE(a_question_that_was_forgotten_is_refused_and_has_no_other_answer) {
  cluster::agreement_options settings;
  settings.most_remembered = 4;
  two_by_two nodes(settings);
  for (std::uint64_t question = 10; question < 20; ++question) nodes.all_ask(question, 5);
  for (const std::uint64_t old : {10, 15, 3}) {
    for (const std::uint32_t rank : {0U, 3U}) {
      nodes.ask_of(rank, old, 99);
      BOOST_TEST(nodes.is(nodes.ranks[rank], answer_kind::refused));
      BOOST_TEST((nodes.last_of(nodes.ranks[rank]).code == error_code::limit_exceeded));
      BOOST_TEST(nodes.last_of(nodes.ranks[rank]).why.find("too old") != std::string::npos);
    }
  }
  nodes.ask_of(3, 16, 99);
  BOOST_TEST(nodes.length_of(nodes.ranks[3], 16) == 5U);
  nodes.all_ask(1000000, 8);  // a jump passes nothing over but what it forgets
  nodes.all_ask(20, 8);
  BOOST_TEST(nodes.length_of(nodes.ranks[3], 20) == 8U);
}

BOOST_AUTO_TEST_CASE(a_question_that_only_the_coordinator_has_forgotten_is_refused_by_it) {
  cluster::agreement_options settings;
  settings.most_remembered = 2;
  two_by_two nodes(settings);
  nodes.drops = [](const std::string& from, const auto&) { return from == "b"; };
  for (std::uint32_t i = 2; i < 4; ++i) nodes.ask_of(i, 1, 5);  // is lost on its way
  for (std::uint64_t question = 2; question < 6; ++question) {
    nodes.ask_of(0, question, 0);
    nodes.ask_of(1, question, 0);
  }
  nodes.drops = [](const auto&, const auto&) { return false; };
  nodes.run(300ms);
  BOOST_TEST(nodes.is(nodes.ranks[2], answer_kind::refused));
  BOOST_TEST((nodes.last_of(nodes.ranks[2]).code == error_code::limit_exceeded));
  BOOST_TEST(nodes.is(nodes.ranks[3], answer_kind::refused));
}

BOOST_AUTO_TEST_CASE(a_question_that_was_passed_over_is_refused_also_while_decisions_are_on_their_way) {
  cluster::agreement_options settings;
  settings.most_remembered = 2;
  two_by_two nodes(settings);
  nodes.drops = [](const auto&, const auto&) { return true; };
  for (std::uint32_t i = 2; i < 4; ++i) nodes.ask_of(i, 1, 5);
  for (std::uint64_t question = 2; question < 6; ++question) nodes.decide_0_at_a(question);
  // From now on b is heard, and has never heard of the last decisions when it speaks.
  nodes.drops = [](const auto&, const few_nodes::frame& what) {
    const auto decided = two_by_two::decisions_of(what);
    return decided && decided->too_old.empty();
  };
  nodes.run(300ms);
  for (const std::uint32_t rank : {2U, 3U}) {
    BOOST_TEST(nodes.is(nodes.ranks[rank], answer_kind::refused));
    BOOST_TEST((nodes.last_of(nodes.ranks[rank]).code == error_code::limit_exceeded));
  }
  nodes.drops = [](const auto&, const auto&) { return false; };
  nodes.run(2s);
  nodes.all_ask(6, 9);
  for (const auto each : nodes.ranks) BOOST_TEST(nodes.length_of(each, 6) == 9U);
}

BOOST_AUTO_TEST_CASE(a_decision_that_is_on_its_way_is_heard_although_it_is_forgotten_meanwhile) {
  cluster::agreement_options settings;
  settings.most_remembered = 2;
  two_by_two nodes(settings);
  nodes.drops = [](const std::string& from, const auto&) { return from == "a"; };
  for (std::uint64_t question = 1; question < 6; ++question) nodes.decide_0_at_a(question);  // none arrives at b
  nodes.drops = [](const auto&, const few_nodes::frame& what) {
    const auto decided = two_by_two::decisions_of(what);
    return decided && !decided->decisions.empty();
  };
  for (const std::uint32_t rank : {2U, 3U}) nodes.ask_of(rank, 1, 5);
  nodes.run(50ms);
  nodes.drops = [](const auto&, const auto&) { return false; };
  nodes.run(200ms);
  for (const std::uint32_t rank : {2U, 3U}) {
    BOOST_TEST(nodes.length_of(nodes.ranks[rank], 1) == 0U);
    BOOST_TEST(nodes.heard[nodes.ranks[rank]].size() == 2U);  // that it is in, and the number
  }
}

BOOST_AUTO_TEST_CASE(who_acknowledges_what_it_was_not_sent_is_not_believed) {
  two_by_two nodes;
  nodes.leave("b", nodes.ranks[3]);
  for (std::uint32_t i = 0; i < 4; ++i) {
    nodes.leave(two_by_two::at(i), nodes.ranks[i]);
    nodes.ranks[i] = nodes.join(two_by_two::at(i), i, 4);
    nodes.drops = [](const std::string& from, const few_nodes::frame& what) {
      return from == "b" && what.type == peer::frame_type::propose_lengths;  // that the epoch began is not confirmed
    };
  }
  nodes.run(300ms);
  BOOST_REQUIRE(nodes.all_are(answer_kind::formed));
  const auto epoch = nodes.last_of(nodes.ranks[0]).epoch;
  for (std::uint64_t question = 1; question < 4; ++question) nodes.decide_0_at_a(question);
  const auto stray = nodes["a"].counters().stray_frames;
  nodes.tell("b", "a", peer::frame_type::propose_lengths,
             peer::encode(peer::propose_lengths{{"g"}, epoch, 3, false, "", {{7, 5, 1000000000}}}));
  BOOST_TEST(nodes["a"].counters().stray_frames == stray + 1);
  nodes.drops = [](const auto&, const auto&) { return false; };
  nodes.run(300ms);
  for (std::uint64_t question = 1; question < 4; ++question) {
    nodes.ask_of(3, question, 9);
    BOOST_TEST(nodes.length_of(nodes.ranks[3], question) == 0U);
  }
  nodes.all_ask(7, 8);
  for (const auto each : nodes.ranks) BOOST_TEST(nodes.length_of(each, 7) == 8U);
}

BOOST_AUTO_TEST_CASE(a_loss_is_for_good_also_for_a_rank_that_has_its_number) {
  two_by_two nodes;
  nodes.all_ask(1, 9);
  nodes.ask_of(2, 2, 9);
  nodes.leave("a", nodes.ranks[1]);
  BOOST_TEST(nodes.is(nodes.ranks[2], answer_kind::lost));
  BOOST_TEST(nodes.last_of(nodes.ranks[2]).why.find("rank 1 left") != std::string::npos);
  BOOST_TEST(nodes.heard[nodes.ranks[3]].size() == 2U);  // it is not told before it asks
  for (const std::uint32_t rank : {0U, 2U, 3U}) {
    for (const std::uint64_t question : {1, 2, 3}) {
      nodes.ask_of(rank, question, 9);
      BOOST_TEST(nodes.is(nodes.ranks[rank], answer_kind::lost));
      BOOST_TEST(nodes.last_of(nodes.ranks[rank]).question == question);
    }
  }
  nodes.ask("a", nodes.ranks[1], 1, 9);  // of a rank that left
  BOOST_TEST(nodes.is(nodes.ranks[1], answer_kind::lost));
}

BOOST_AUTO_TEST_CASE(a_new_epoch_needs_all_ranks_anew) {
  two_by_two nodes;
  const auto first = nodes.last_of(nodes.ranks[0]).epoch;
  nodes.leave("b", nodes.ranks[3]);
  nodes.ranks[3] = nodes.join("b", 3, 4);
  for (std::uint32_t i = 0; i < 3; ++i) {
    nodes.run(1s);
    BOOST_TEST(nodes.heard[nodes.ranks[3]].empty());
    nodes.leave(two_by_two::at(i), nodes.ranks[i]);
    nodes.ranks[i] = nodes.join(two_by_two::at(i), i, 4);
  }
  nodes.run(500ms);
  BOOST_TEST(nodes.all_are(answer_kind::formed));
  BOOST_TEST((first < nodes.last_of(nodes.ranks[0]).epoch));
  nodes.all_ask(1, 4);  // numbers of questions begin anew
  BOOST_TEST(nodes.length_of(nodes.ranks[2], 1) == 4U);
}

BOOST_AUTO_TEST_CASE(a_rank_may_join_in_the_place_of_its_lost_one_without_leaving) {
  two_by_two nodes;
  nodes.leave("a", nodes.ranks[0]);
  const auto old = nodes.ranks;
  for (std::uint32_t i = 0; i < 4; ++i) nodes.ranks[i] = nodes.join(two_by_two::at(i), i, 4);
  nodes.run(500ms);
  BOOST_TEST(nodes.all_are(answer_kind::formed));
  nodes.ask("b", old[2], 1, 4);
  BOOST_TEST(nodes.is(old[2], answer_kind::lost));
}

BOOST_AUTO_TEST_CASE(an_answer_that_does_not_come_in_time_ends_the_epoch) {
  two_by_two nodes;
  nodes.drops = [](const auto&, const auto&) { return true; };
  nodes.ask_of(2, 1, 9);
  nodes.ask_of(3, 1, 9);
  nodes.run(850ms);
  BOOST_TEST(nodes.is(nodes.ranks[2], answer_kind::formed));
  nodes.run(100ms);
  BOOST_TEST(nodes.is(nodes.ranks[2], answer_kind::lost));
  BOOST_TEST(nodes.is(nodes.ranks[3], answer_kind::lost));
  nodes.drops = [](const auto&, const auto&) { return false; };
  nodes.run(300ms);
  nodes.ask_of(0, 5, 9);
  BOOST_TEST(nodes.is(nodes.ranks[0], answer_kind::lost));
}

BOOST_AUTO_TEST_CASE(a_node_that_stood_still_ends_in_time_when_it_goes_on) {
  two_by_two nodes;
  for (std::uint32_t i = 0; i < 4; ++i) nodes.ask_of(i, 1, 9);
  nodes.ask_of(2, 2, 9);
  nodes.stopped = {"b"};
  nodes.ask_of(0, 2, 9);
  nodes.ask_of(1, 2, 9);
  nodes.run(5s);
  BOOST_TEST(nodes.length_of(nodes.ranks[0], 2) == 0U);
  nodes.stopped.clear();
  nodes["b"].advance(nodes.now);
  nodes.run(1s);
  const auto& late = nodes.last_of(nodes.ranks[2]);
  BOOST_TEST(late.question == 2U);
  BOOST_TEST((late.what == answer_kind::lost || late.length == 0));
}

BOOST_AUTO_TEST_CASE(a_node_that_was_started_again_ends_its_epochs) {
  two_by_two nodes;
  nodes.start("b", 2);
  nodes.ask_of(0, 1, 9);
  BOOST_TEST(nodes.is(nodes.ranks[0], answer_kind::lost));
  BOOST_TEST(nodes.last_of(nodes.ranks[0]).why.find("node b was started again") != std::string::npos);
  nodes.ask_of(2, 1, 9);  // its session lives on
  BOOST_TEST(nodes.is(nodes.ranks[2], answer_kind::lost));
}

BOOST_AUTO_TEST_CASE(a_coordinator_that_was_started_again_begins_another_epoch) {
  two_by_two nodes;
  const auto first = nodes.last_of(nodes.ranks[0]).epoch;
  nodes.start("a", 2);
  nodes.ask_of(3, 1, 9);
  BOOST_TEST(nodes.is(nodes.ranks[3], answer_kind::lost));
  for (std::uint32_t i = 0; i < 4; ++i) nodes.ranks[i] = nodes.join(two_by_two::at(i), i, 4);
  nodes.run(500ms);
  BOOST_TEST(nodes.all_are(answer_kind::formed));
  BOOST_TEST((first < nodes.last_of(nodes.ranks[0]).epoch));
}

BOOST_AUTO_TEST_CASE(frames_of_an_earlier_life_of_a_node_are_nothing) {
  two_by_two nodes;
  const auto epoch = nodes.last_of(nodes.ranks[0]).epoch;
  const auto body = peer::encode(peer::lost_epoch{{"g"}, epoch, true, "no"});
  BOOST_TEST(
      nodes["b"].heard("a", peer::incarnation::of(999, 1), peer::frame_type::group_says, body, nodes.now).has_value());
  nodes.all_ask(1, 3);
  BOOST_TEST(nodes.length_of(nodes.ranks[3], 1) == 3U);
  BOOST_TEST(nodes["b"].counters().stray_frames == 1U);
}

BOOST_AUTO_TEST_CASE(a_node_may_be_away_for_a_moment_and_not_for_longer) {
  two_by_two nodes;
  nodes.hidden = {"b"};
  nodes.look();
  nodes.run(1s);
  nodes.hidden.clear();
  nodes.look();
  nodes.all_ask(1, 3);
  BOOST_TEST(nodes.length_of(nodes.ranks[3], 1) == 3U);
  nodes.hidden = {"b"};
  nodes.look();
  nodes.run(2100ms);
  nodes.ask_of(0, 2, 3);
  BOOST_TEST(nodes.is(nodes.ranks[0], answer_kind::lost));
  nodes.ask_of(3, 2, 3);
  BOOST_TEST(nodes.is(nodes.ranks[3], answer_kind::lost));
}

BOOST_AUTO_TEST_CASE(rank_0_may_come_again_on_another_node) {
  two_by_two nodes;
  nodes.leave("a", nodes.ranks[0]);
  nodes.ranks[0] = nodes.join("b", 0, 4);
  for (std::uint32_t i = 1; i < 4; ++i) nodes.ranks[i] = nodes.join(two_by_two::at(i), i, 4);
  nodes.run(500ms);
  BOOST_TEST(nodes.all_are(answer_kind::formed));
  BOOST_TEST(nodes.last_of(nodes.ranks[1]).coordinator == "b");
}

BOOST_AUTO_TEST_CASE(two_ranks_of_one_number_on_a_node_are_refused) {
  few_nodes nodes{"a"};
  nodes.join("a", 1, 2);
  const auto second = nodes.join("a", 1, 2);
  BOOST_TEST(nodes.is(second, answer_kind::refused));
  BOOST_TEST((nodes.last_of(second).code == error_code::invalid_argument));
  BOOST_TEST(nodes.last_of(second).why.find("rank 1") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(two_ranks_of_one_number_on_two_nodes_are_refused_unless_one_goes_soon) {
  few_nodes nodes{"a", "b", "c"};
  nodes.join("a", 0, 3);
  const auto there = nodes.join("b", 1, 3);
  nodes.run(200ms);
  auto second = nodes.join("c", 1, 3);
  nodes.run(3s);
  BOOST_TEST(nodes.is(second, answer_kind::refused));
  BOOST_TEST(nodes.last_of(second).why.find("is at node b") != std::string::npos);
  second = nodes.join("c", 1, 3);
  nodes.run(1s);
  BOOST_TEST(nodes.heard[second].empty());
  nodes.leave("b", there);
  nodes.join("b", 2, 3);
  nodes.run(500ms);
  BOOST_TEST(nodes.is(second, answer_kind::formed));
}

BOOST_AUTO_TEST_CASE(of_two_nodes_with_rank_0_the_larger_name_is_refused) {
  few_nodes nodes{"a", "b"};
  const auto here = nodes.join("a", 0, 2);
  const auto there = nodes.join("b", 0, 2);
  nodes.run(3s);
  BOOST_TEST(nodes.heard[here].empty());
  BOOST_TEST(nodes.is(there, answer_kind::refused));
  BOOST_TEST(nodes.last_of(there).why.find("at node a") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(ranks_that_differ_are_refused_and_it_is_said_in_what) {
  few_nodes nodes{"a", "b"};
  nodes.join("a", 0, 4);
  const auto refused_with = [&](const std::string& at, std::uint32_t size, const numbered_identity& shared,
                                const std::string& word) {
    const auto rank = nodes.join(at, 2, size, shared);
    nodes.run(500ms);
    BOOST_TEST(nodes.is(rank, answer_kind::refused));
    BOOST_TEST((nodes.last_of(rank).code == error_code::spec_mismatch));
    BOOST_TEST(nodes.last_of(rank).why.find(word) != std::string::npos, nodes.last_of(rank).why);
  };
  for (const char* at : {"a", "b"}) {
    refused_with(at, 8, 7, "4 ranks, not 8");
    refused_with(at, 4, 8, "another model");
  }
}

BOOST_AUTO_TEST_CASE(what_can_never_be_is_refused_at_once) {
  few_nodes nodes{"a"};
  const auto refused = [&](const cluster::rank_join& what) {
    nodes["a"].join(what, nodes.now);
    nodes.pass();
    return nodes.is(what.id, answer_kind::refused) && !nodes.last_of(what.id).why.empty();
  };
  BOOST_TEST(refused({101, "", 7_identity, 0, 2, 1s}));
  BOOST_TEST(refused({102, std::string(129, 'x'), 7_identity, 0, 2, 1s}));
  BOOST_TEST(refused({103, "a\nb", 7_identity, 0, 2, 1s}));
  BOOST_TEST(refused({104, "g", 7_identity, 2, 2, 1s}));
  BOOST_TEST(refused({105, "g", 7_identity, 0, 0, 1s}));
  BOOST_TEST(refused({106, "g", 7_identity, 0, 257, 1s}));
  BOOST_TEST(!refused({107, "g", 7_identity, 0, 256, 1s}));
  BOOST_TEST(refused({107, "h", 7_identity, 0, 1, 1s}));  // its id is in use
  nodes.ask("a", 107, 1, 1);
  BOOST_TEST(nodes.is(107, answer_kind::refused));  // it is not in yet
}

BOOST_AUTO_TEST_CASE(who_is_missing_is_named_when_a_group_does_not_form) {
  few_nodes nodes{"a", "b"};
  const auto first = nodes.join("a", 0, 4, 7, "g", 1000ms);
  const auto third = nodes.join("b", 2, 4, 7, "g", 1000ms);
  const auto alone = nodes.join("b", 2, 4, 7, "h", 1000ms);
  nodes.run(880ms);
  BOOST_TEST(nodes.heard.empty());
  nodes.run(50ms);
  BOOST_TEST((nodes.last_of(first).code == error_code::deadline_exceeded));
  BOOST_TEST(nodes.last_of(first).why.find("ranks 1, 3 of 4") != std::string::npos, nodes.last_of(first).why);
  BOOST_TEST(nodes.last_of(third).why.find("node a") != std::string::npos);
  BOOST_TEST(nodes.last_of(alone).why.find("no node has its rank 0") != std::string::npos);
  nodes.run(1s);
  BOOST_TEST((nodes["b"].wake_at() == std::chrono::steady_clock::time_point::max()));
  BOOST_TEST(nodes["b"].report().empty());
}

BOOST_AUTO_TEST_CASE(a_join_that_was_overtaken_by_a_later_one_is_nothing) {
  few_nodes nodes{"a", "b"};
  const auto first = nodes.join("a", 0, 2);
  const auto old = peer::encode(peer::join_group{{"g"}, 7_identity, 2, 5, {{1, 5}}});
  const auto gone = peer::encode(peer::join_group{{"g"}, 7_identity, 2, 6, {}});
  nodes.tell("b", "a", peer::frame_type::join_group, peer::encode(peer::join_group{{"g"}, 7_identity, 2, 7, {{0, 7}}}));
  nodes.tell("b", "a", peer::frame_type::join_group, gone);
  BOOST_TEST(nodes.heard[first].empty());
  nodes.tell("b", "a", peer::frame_type::join_group, old);
  nodes.run(300ms);
  BOOST_TEST(!nodes.is(first, answer_kind::lost));
}

BOOST_AUTO_TEST_CASE(a_rank_that_leaves_hears_nothing_any_more) {
  two_by_two nodes;
  nodes.ask_of(0, 1, 9);
  nodes.leave("a", nodes.ranks[0]);
  nodes.run(2s);
  BOOST_TEST(nodes.heard[nodes.ranks[0]].size() == 1U);
  nodes.leave("a", nodes.ranks[0]);  // again: nothing
  for (std::uint32_t i = 1; i < 4; ++i) nodes.leave(two_by_two::at(i), nodes.ranks[i]);
  nodes.run(10s);
  for (const char* each : {"a", "b"}) {
    BOOST_TEST(nodes[each].report().empty());
    BOOST_TEST((nodes[each].wake_at() == std::chrono::steady_clock::time_point::max()));
  }
}

BOOST_AUTO_TEST_CASE(only_the_coordinator_decides_and_ends) {
  few_nodes nodes{"a", "b", "c"};
  const auto first = nodes.join("a", 0, 2);
  const auto second = nodes.join("b", 1, 2);
  nodes.run(500ms);
  const auto epoch = nodes.last_of(first).epoch;
  nodes.ask("b", second, 1, 9);
  const auto number = peer::encode(peer::decided_lengths{{"g"}, epoch, 1, {{1, 777}}, {1}});
  nodes.tell("c", "b", peer::frame_type::group_says, number);
  nodes.tell("c", "b", peer::frame_type::group_says, peer::encode(peer::lost_epoch{{"g"}, epoch, true, "no"}));
  nodes.tell("c", "a", peer::frame_type::propose_lengths,
             peer::encode(peer::propose_lengths{{"g"}, epoch, 0, true, "no", {{1, 1, 1000000000}}}));
  nodes.tell("b", "a", peer::frame_type::group_says, number);
  BOOST_TEST(nodes.is(second, answer_kind::formed));
  nodes.ask("a", first, 1, 12);
  BOOST_TEST(nodes.length_of(second, 1) == 9U);
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_is_ignored) {
  two_by_two nodes;
  const auto epoch = nodes.last_of(nodes.ranks[0]).epoch;
  const peer::group_epoch other{epoch.coordinator, epoch.number + 1};
  const auto most = ~std::uint64_t{0};
  using peer::frame_type;
  nodes.tell("b", "a", frame_type::propose_lengths,
             peer::encode(peer::propose_lengths{{"g"}, epoch, most, false, "", {}}));
  nodes.tell("b", "a", frame_type::propose_lengths,
             peer::encode(peer::propose_lengths{{"g"}, other, 0, true, "no", {}}));
  nodes.tell("b", "a", frame_type::propose_lengths,
             peer::encode(peer::propose_lengths{{"h"}, epoch, 0, true, "no", {}}));
  nodes.tell("a", "b", frame_type::group_says, peer::encode(peer::decided_lengths{{"g"}, other, 1, {{1, 5}}, {}}));
  nodes.tell("a", "b", frame_type::group_says, peer::encode(peer::decided_lengths{{"h"}, epoch, 1, {{1, 5}}, {}}));
  nodes.tell("a", "b", frame_type::group_says, peer::encode(peer::lost_epoch{{"g"}, other, true, "no"}));
  nodes.tell("a", "b", frame_type::group_formed, peer::encode(peer::group_formed{{"h"}, epoch, {}}));
  nodes.tell("a", "b", frame_type::group_here, peer::encode(peer::group_here{{"h"}, true}));
  nodes.tell("b", "a", frame_type::join_group, peer::encode(peer::join_group{{"h"}, 7_identity, 4, 1, {{0, 1}}}));
  nodes.tell("b", "a", static_cast<frame_type>(46), {});
  nodes.all_ask(1, 3);
  for (const auto each : nodes.ranks) BOOST_TEST(nodes.length_of(each, 1) == 3U);
  BOOST_TEST(nodes["a"].report().size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_frame_that_makes_no_sense_is_said_to_be_malformed) {
  few_nodes nodes{"a", "b"};
  const std::array<std::byte, 3> body{};
  for (const auto type :
       {peer::frame_type::seek_group, peer::frame_type::join_group, peer::frame_type::group_formed,
        peer::frame_type::propose_lengths, peer::frame_type::group_says, peer::frame_type::group_here}) {
    const auto heard = nodes["a"].heard("b", nodes.born("b"), type, body, nodes.now);
    BOOST_TEST((!heard && heard.error().code() == error_code::malformed));
  }
}

BOOST_AUTO_TEST_CASE(after_frames_however_altered_ranks_can_join_anew_and_agree) {
  two_by_two nodes;
  for (std::uint64_t question = 1; question < 5; ++question) nodes.all_ask(question, 9);
  nodes.ask_of(0, 9, 9);
  nodes.leave("b", nodes.ranks[3]);
  nodes.ranks[3] = nodes.join("b", 3, 4);
  const auto frames = nodes.carried;
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    auto what = frames[random() % frames.size()];
    for (auto flips = random() % 3; flips > 0; --flips)
      what.body[random() % what.body.size()] = static_cast<std::byte>(random());
    const std::string to = i % 2 == 0 ? "a" : "b";
    const std::string from = i % 2 == 0 ? "b" : "a";
    (void)nodes[to].heard(from, nodes.born(from), what.type, what.body, nodes.now);
    if (i % 100 == 0) nodes.run(1ms);
  }
  nodes.start("b", 2);  // what it said of itself is over
  for (std::uint32_t i = 0; i < 4; ++i) {
    nodes.leave(two_by_two::at(i), nodes.ranks[i]);
    nodes.ranks[i] = nodes.join(two_by_two::at(i), i, 4);
  }
  nodes.run(3s);
  BOOST_TEST(nodes.all_are(answer_kind::formed));
  nodes.all_ask(1, 4);
  for (const auto each : nodes.ranks) BOOST_TEST(nodes.length_of(each, 1) == 4U);
}

BOOST_AUTO_TEST_CASE(numbers_of_groups_ranks_and_questions_are_bounded) {
  cluster::agreement_options settings;
  settings.most_groups = 8;
  settings.most_ranks = 12;
  settings.most_open = 5;
  few_nodes nodes({"a"}, settings);
  const auto rank = nodes.join("a", 0, 2);
  nodes.join("a", 1, 2);
  nodes.join("a", 0, 2, 7, "h");
  const auto no_rank = nodes.join("a", 1, 2, 7, "h");
  BOOST_TEST((nodes.last_of(no_rank).code == error_code::limit_exceeded));
  for (std::uint64_t question = 1; question <= 6; ++question) nodes.ask("a", rank, question, 9);
  BOOST_TEST((nodes.last_of(rank).code == error_code::limit_exceeded));
  BOOST_TEST(nodes.last_of(rank).question == 6U);
  BOOST_TEST(nodes["a"].report().front().open == 5U);
  nodes.run(1s);
  for (std::uint64_t question = 1; question <= 5; ++question) BOOST_TEST(nodes.length_of(rank, question) == 0U);
}

BOOST_AUTO_TEST_CASE(a_name_of_another_user_or_instance_group_is_another_group) {
  const share_holder mine{.uid = 1000, .group = "team"};
  for (const std::string at : {"a", "b"}) {
    for (const share_holder& stranger : {share_holder{1001, "team"}, share_holder{1000, "other"}}) {
      few_nodes nodes{"a", "b"};
      const auto first = nodes.join("a", 0, 2, 7, "g", 10s, mine);
      const auto strange = nodes.join(at, 1, 2, 8, "g", 10s, stranger);
      nodes.run(1s);
      BOOST_TEST(!nodes.is(first, answer_kind::formed));
      BOOST_TEST(nodes.heard[strange].empty());
      const auto second = nodes.join("b", 1, 2, 7, "g", 10s, mine);
      nodes.run(1s);
      BOOST_TEST(nodes.is(first, answer_kind::formed));
      BOOST_TEST(nodes.is(second, answer_kind::formed));
      const auto other = nodes.join("a", 0, 2, 8, "g", 10s, stranger);
      nodes.run(1s);
      BOOST_TEST(nodes.is(other, answer_kind::formed));
      nodes.ask("a", first, 1, 31);
      nodes.ask("b", second, 1, 40);
      nodes.ask("a", other, 1, 3);
      nodes.ask(at, strange, 1, 5);
      nodes.run(1s);
      BOOST_TEST(nodes.length_of(first, 1) == 31U);
      BOOST_TEST(nodes.length_of(second, 1) == 31U);
      BOOST_TEST(nodes.length_of(strange, 1) == 3U);
      BOOST_TEST(nodes["a"].report().size() == 2U);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_user_and_an_instance_group_leave_groups_and_ranks_to_others) {
  few_nodes nodes({"a"});
  const auto take_all = [&](const share_holder& owner) {
    std::size_t formed = 0;
    for (;; ++formed) {
      const auto rank = nodes.join("a", 0, 1, 7, "g" + std::to_string(formed), 10s, owner);
      if (nodes.last_of(rank).what == answer_kind::formed) continue;
      BOOST_TEST((nodes.last_of(rank).code == error_code::limit_exceeded));
      return formed;
    }
  };
  BOOST_TEST(take_all({1000, "team"}) == 64U);
  BOOST_TEST(take_all({1000, "other"}) == 32U);
  BOOST_TEST(take_all({1001, "team"}) == 40U);
  few_nodes full({"a"});
  std::uint32_t joined = 0;
  for (std::uint32_t i = 0; i < 4096; ++i) {
    const auto rank = full.join("a", i % 256, 256, 7, "g" + std::to_string(i / 256), 10s, {1000, {}});
    joined += !full.is(rank, answer_kind::refused) ? 1 : 0;
  }
  BOOST_TEST(joined == 1024U);
  const auto other = full.join("a", 0, 1, 7, "mine", 10s, {1001, {}});
  BOOST_TEST(full.is(other, answer_kind::formed));
  full.leave("a", other);
  BOOST_TEST(full.is(full.join("a", 0, 1, 7, "mine", 10s, {1001, {}}), answer_kind::formed));
}

BOOST_AUTO_TEST_CASE(a_group_of_256_ranks_fits_into_frames) {
  few_nodes nodes{"a", "b", "c", "d"};
  std::vector<cluster::rank_id> ranks;
  for (std::uint32_t i = 0; i < 256; ++i)
    ranks.push_back(nodes.join(std::string(1, static_cast<char>('a' + i % 4)), i, 256, 7, std::string(128, 'g')));
  nodes.run(500ms);
  for (std::uint32_t i = 0; i < 256; ++i)
    nodes.ask(std::string(1, static_cast<char>('a' + i % 4)), ranks[i], 1, 500 - i);
  for (const auto each : ranks) BOOST_TEST(nodes.length_of(each, 1) == 245U);
  for (const auto& each : nodes.carried) BOOST_TEST(each.body.size() < std::size_t{1} << 20);
  const auto rows = nodes["c"].report();
  BOOST_REQUIRE(rows.size() == 1U);
  BOOST_TEST(rows.front().ranks.size() == 256U);
  BOOST_TEST((rows.front().state == cluster::group_state::formed));
  BOOST_TEST(rows.front().coordinator == "a");
  BOOST_TEST(rows.front().ranks[7].node == "d");
}

BOOST_AUTO_TEST_CASE(who_does_not_acknowledge_decisions_ends_the_epoch) {
  cluster::agreement_options settings;
  settings.most_unheard = 8;
  two_by_two nodes(settings);
  nodes.drops = [](const auto& from, const auto&) { return from == "b"; };
  for (std::uint64_t question = 1; question <= 9; ++question) {
    nodes.ask_of(0, question, 0);
    nodes.ask_of(1, question, 0);
  }
  nodes.run(150ms);
  nodes.ask_of(0, 10, 0);
  BOOST_TEST(nodes.is(nodes.ranks[0], answer_kind::lost));
  BOOST_TEST(nodes.last_of(nodes.ranks[0]).why.find("does not acknowledge") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(what_ranks_share_is_not_what_is_a_ranks_own) {
  instance_spec one;
  one.id = "engine";
  one.model = "m";
  one.dtype = "bf16";
  one.layout = "l";
  one.tokens_per_block = 16;
  one.hash_scheme = "h";
  one.groups = {{"full", {{"rank0", 4096}}}};
  auto other = one;
  other.id = "engine of another node";
  other.instance_group = "who pays";
  other.groups = {{"full", {{"rank1", 8192}}}, {"window", {{"rank1", 4096}}}};
  BOOST_TEST(cluster::shared_identity_of(one) == cluster::shared_identity_of(other));
  for (std::string instance_spec::*field : {&instance_spec::model, &instance_spec::dtype, &instance_spec::layout,
                                            &instance_spec::hash_scheme, &instance_spec::fingerprint}) {
    auto changed = one;
    changed.*field += "x";
    BOOST_TEST(cluster::shared_identity_of(one) != cluster::shared_identity_of(changed));
  }
  other.tokens_per_block = 32;
  BOOST_TEST(cluster::shared_identity_of(one) != cluster::shared_identity_of(other));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(agreement_in_worlds)

BOOST_AUTO_TEST_CASE(whatever_happens_no_two_ranks_hear_different_numbers) {
  const one_world one;
  if (one.seed) {
    const auto failed = agreement_world(*one.seed, {.rules = {}, .shows = one.shows}).run();
    BOOST_TEST(!failed, failed.value_or(""));
    return;
  }
  std::string why;
  const auto seed = first_broken({}, worlds(), &why);
  BOOST_TEST(seed == 0U, "CENOTE_TEST_SEED=" << seed << " shows it: " << why);
}

BOOST_AUTO_TEST_CASE(each_rule_is_needed, *boost::unit_test::enable_if<agreement_rule_search>()) {
  using rules = cluster::agreement_rules;
  need_rule(&rules::checks_incarnations, "checks_incarnations");
  need_rule(&rules::epochs_name_a_life, "epochs_name_a_life");
  need_rule(&rules::decides_once, "decides_once");
  need_rule(&rules::lost_is_sticky, "lost_is_sticky");
  need_rule(&rules::waits_for_coordinator, "waits_for_coordinator");
  need_rule(&rules::sends_again, "sends_again");
  need_rule(&rules::keeps_first_proposal, "keeps_first_proposal");
  need_rule(&rules::missing_is_zero, "missing_is_zero");
  need_rule(&rules::remembers_decisions, "remembers_decisions");
  need_rule(&rules::refuses_forgotten, "refuses_forgotten");
  need_rule(&rules::speaks_for_all, "speaks_for_all");
  need_rule(&rules::trusts_only_coordinator, "trusts_only_coordinator");
  need_rule(&rules::counts_gaps, "counts_gaps");
}

/// Worlds in which a rule that few worlds need is needed; what they show is said by what fails without it.
BOOST_AUTO_TEST_CASE(worlds_that_need_a_rare_rule_hold_with_it) {
  using rules = cluster::agreement_rules;
  struct rare {
    bool rules::*rule;
    std::uint64_t seed;
    const char* what;
  };
  for (const rare& each :
       {rare{&rules::checks_incarnations, 145, "two lives of"}, rare{&rules::decides_once, 24, "another rank heard"},
        rare{&rules::trusts_only_coordinator, 16, "hears 7777"}}) {
    rules without;
    without.*each.rule = false;
    const auto failed = agreement_world(each.seed, {.rules = without}).run();
    BOOST_TEST((failed && failed->find(each.what) != std::string::npos), failed.value_or("nothing failed"));
    const auto held = agreement_world(each.seed, {.rules = {}}).run();
    BOOST_TEST(!held, held.value_or(""));
  }
}

BOOST_AUTO_TEST_SUITE_END()
