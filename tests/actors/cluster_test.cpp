#include "actors/cluster.hpp"

#include <boost/test/unit_test.hpp>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/actors/actor_fixture.hpp"
#include "tests/support/fake_network.hpp"

namespace {

using namespace cenote;
using namespace std::chrono_literals;
using testing::fake_network;
using testing::fake_wire;

/// The answer to a request, when it is there.
struct answer {
  payload_ptr payload;
  std::string why;  ///< there is none
  [[nodiscard]] bool has_come() const { return payload != nullptr || !why.empty(); }
};

/// Nodes' actors on one wire, whose clock is theirs.
class wired_actors {
 public:
  /// `name`: the seed of all, behind which the addresses of all are; empty: each has those before it as its seeds.
  explicit wired_actors(const std::vector<std::string>& names = {"a", "b"}, const std::string& name = {})
      : system_(config_) {
    if (!name.empty()) name_ = {name, 7000};
    for (const std::string& each : names) start(each);
    pass(1s);
  }
  wired_actors(const wired_actors&) = delete;
  wired_actors& operator=(const wired_actors&) = delete;
  ~wired_actors() {
    for (auto& [name, each] : nodes_) caf::anon_send_exit(each.actor, caf::exit_reason::user_shutdown);
    nodes_.clear();
    scheduler().run();
  }

  void start(const std::string& name, bool begins = true) {
    node& made = nodes_[name];
    made.actor = system_.spawn<cluster_shell>([this](const std::string& why) { fatal = why; });
    const endpoint where{"host-of-" + name, ++port_};
    made.network = std::make_shared<fake_network>(wire_, name, where, events_of(made.actor));
    made.begin = {.network = made.network,
                  .why_not = {},
                  .self = {.name = name,
                           .version = "1",
                           .where = where,
                           .blocks_at = where,
                           .born = peer::incarnation::of(port_, 1)},
                  .options = {.cluster = "c"},
                  .clock = [this] { return wire_.now(); }};
    auto& options = made.begin.options;
    (name_ ? options.names : options.seeds) = name_ ? std::vector<endpoint>{*name_} : seeds_;
    seeds_.push_back(where);
    if (name_) wire_.names[name_->text()] = seeds_;
    if (begins) begin(name);
  }
  void begin(const std::string& name) { tell(name, nodes_[name].begin); }
  void tell(const std::string& name, const cluster_start& what) {
    caf::anon_send(nodes_[name].actor, begin_atom_v, std::make_shared<const cluster_start>(what));
  }
  /// All that happens in this time.
  void pass(std::chrono::milliseconds time) {
    for (auto left = time; left.count() >= 0; left -= 1ms) {
      for (bool has_moved = true; has_moved;) {
        has_moved = scheduler().run() > 0;
        wire_.run_until(wire_.now());
      }
      wire_.run_until(wire_.now() + 1ms);
      scheduler().advance_time(1ms);
    }
  }
  std::shared_ptr<answer> ping(const std::string& from, const std::string& to, std::size_t bytes = 64) {
    auto made = std::make_shared<answer>();
    auto payload = std::make_shared<const std::vector<std::byte>>(bytes, std::byte{5});
    system_.spawn([made, payload, to, whom = nodes_[from].actor](caf::event_based_actor* self) {
      self->request(whom, caf::infinite, ping_atom_v, to, payload)
          .then([made](const payload_ptr& back) { made->payload = back; },
                [made, self](const caf::error& why) { made->why = self->system().render(why); });
    });
    return made;
  }
  std::shared_ptr<const cluster_report> report(const std::string& of) {
    std::shared_ptr<const cluster_report> found;
    system_.spawn([&found, whom = nodes_[of].actor](caf::event_based_actor* self) {
      self->request(whom, caf::infinite, report_atom_v).then([&found](const tier_report_ptr& told) {
        found = std::dynamic_pointer_cast<const cluster_report>(told);
      });
    });
    scheduler().run();
    return found;
  }
  std::string state(const std::string& at, const std::string& of) {
    const auto all = report(at);
    for (const peer_report& each : all->peers) {
      if (each.name == of) return each.state;
    }
    return {};
  }
  outcome order(const std::string& at, partition_order what) {
    outcome said;
    system_.spawn([&said, whom = nodes_[at].actor,
                   what = std::make_shared<const partition_order>(std::move(what))](caf::event_based_actor* self) {
      self->request(whom, caf::infinite, partition_atom_v, what).then([&said](const outcome& how) { said = how; });
    });
    scheduler().run();
    return said;
  }
  void leave(const std::string& who) { caf::anon_send(nodes_[who].actor, leave_atom_v); }
  void end_actor(const std::string& who) {
    caf::anon_send_exit(nodes_[who].actor, caf::exit_reason::user_shutdown);
    nodes_.erase(who);
    scheduler().run();
  }
  std::weak_ptr<fake_network> network_of(const std::string& who) { return nodes_[who].network; }
  /// Its process is gone, and its kernel says so.
  void crash(const std::string& who) { wire_.crash(who, true); }
  fake_wire& wire() { return wire_; }

  std::string fatal;

 private:
  struct node {
    cluster_actor actor;
    std::shared_ptr<fake_network> network;
    cluster_start begin;
  };
  struct config : testing::deterministic_config {
    config() { add_message_types<caf::id_block::cenote_cluster>(); }
  };

  static peer::network_events events_of(const cluster_actor& actor) {
    return link_events([weak = caf::actor_cast<caf::weak_actor_ptr>(actor)](link_event event) {
      if (const auto there = weak.lock())
        caf::anon_send(caf::actor_cast<cluster_actor>(there), link_atom_v,
                       link_event_ptr(std::make_shared<link_event>(std::move(event))));
    });
  }
  caf::scheduler::test_coordinator& scheduler() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system_.scheduler());
  }

  fake_wire wire_{1};
  config config_;
  caf::actor_system system_;
  std::map<std::string, node> nodes_;
  std::vector<endpoint> seeds_;
  std::optional<endpoint> name_;
  std::uint16_t port_ = 0;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(cluster_actors)

BOOST_AUTO_TEST_CASE(three_nodes_find_each_other_by_their_seeds_and_answer_each_other) {
  wired_actors nodes({"a", "b", "c"});
  for (const auto* from : {"a", "b", "c"}) {
    BOOST_TEST(nodes.report(from)->now.live == 3U);
    for (const auto* to : {"a", "b", "c"}) {
      if (from == to) continue;
      const auto back = nodes.ping(from, to, 100);
      nodes.pass(10ms);
      BOOST_REQUIRE_MESSAGE(back->payload, back->why);
      BOOST_TEST((*back->payload == std::vector<std::byte>(100, std::byte{5})));
    }
  }
  BOOST_TEST(nodes.fatal == "");
}

BOOST_AUTO_TEST_CASE(nodes_whose_only_seed_is_a_name_that_each_is_behind_itself_find_each_other) {
  wired_actors nodes({"a", "b", "c", "d"}, "pods.example");
  nodes.pass(6s);  // the name is looked up again
  for (const auto* each : {"a", "b", "c", "d"}) {
    BOOST_TEST(nodes.report(each)->now.live == 4U);
    BOOST_TEST(nodes.report(each)->peers.size() == 3U);
  }
}

BOOST_AUTO_TEST_CASE(a_request_to_nobody_or_too_long_a_one_ends_at_once_with_a_reason) {
  wired_actors nodes;
  const auto nobody = nodes.ping("a", "z");
  const auto long_one = nodes.ping("a", "b", peer::longest_payload + 1);
  nodes.pass(0ms);
  BOOST_TEST(nobody->why.find("no such node") != std::string::npos);
  BOOST_TEST(long_one->why.find("too long") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_request_whose_answer_is_lost_ends_after_its_limit_and_is_counted) {
  wired_actors nodes;
  nodes.order("a", {.other = "b", .drops_sent = false, .drops_heard = true});
  const auto lost = nodes.ping("a", "b");
  nodes.pass(300ms);
  BOOST_TEST(!lost->has_come());
  nodes.pass(peer_proxy::request_limit);
  BOOST_TEST(lost->has_come());
  BOOST_TEST(lost->payload == nullptr);
  BOOST_TEST(nodes.report("a")->traffic.overdue == 1U);
  BOOST_TEST(nodes.report("a")->traffic.cut > 0U);
}

BOOST_AUTO_TEST_CASE(requests_end_with_the_link_that_they_went_out_by) {
  wired_actors nodes;
  nodes.wire().freeze("b", nodes.wire().now() + 1h);
  std::vector<std::shared_ptr<answer>> asked;
  for (int i = 0; i < 3; ++i) asked.push_back(nodes.ping("a", "b"));
  nodes.pass(50ms);
  for (const auto& each : asked) BOOST_TEST(!each->has_come());
  nodes.crash("b");
  nodes.pass(50ms);
  for (const auto& each : asked) BOOST_TEST(each->has_come());
  BOOST_TEST(nodes.state("a", "b") == "gone");
  const auto later = nodes.ping("a", "b");
  nodes.pass(0ms);
  BOOST_TEST(later->why.find("not there") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(more_requests_than_may_wait_are_refused_and_the_others_go_on) {
  wired_actors nodes;
  nodes.wire().freeze("b", nodes.wire().now() + 100ms);
  std::vector<std::shared_ptr<answer>> asked;
  for (std::size_t i = 0; i < peer_proxy::most_requests + 1; ++i) asked.push_back(nodes.ping("a", "b"));
  nodes.pass(10ms);
  BOOST_TEST(asked.back()->why.find("too many requests") != std::string::npos);
  asked.pop_back();
  nodes.pass(200ms);
  for (const auto& each : asked) BOOST_REQUIRE_MESSAGE(each->payload, each->why);
}

BOOST_AUTO_TEST_CASE(a_partition_is_noticed_by_both_sides_and_heals) {
  wired_actors nodes;
  nodes.order("a", {.other = "b", .drops_sent = true, .drops_heard = true});
  nodes.pass(900ms);
  BOOST_TEST(nodes.state("a", "b") == "suspect");
  BOOST_TEST(nodes.state("b", "a") == "suspect");
  nodes.pass(5s);
  BOOST_TEST(nodes.state("a", "b") != "live");
  BOOST_TEST(nodes.report("a")->now.live == 1U);
  nodes.order("a", {});
  nodes.pass(5s);
  BOOST_TEST(nodes.state("a", "b") == "live");
  BOOST_TEST(nodes.state("b", "a") == "live");
}

BOOST_AUTO_TEST_CASE(a_node_cannot_be_cut_off_from_itself_nor_before_it_has_a_network) {
  wired_actors nodes({"a"});
  nodes.start("late", false);
  const partition_order from_a{.other = "a", .drops_sent = true, .drops_heard = true};
  BOOST_TEST((nodes.order("late", from_a).code == error_code::closed));
  BOOST_TEST((nodes.order("a", from_a).code == error_code::invalid_argument));
  nodes.begin("late");
  nodes.pass(1s);
  BOOST_TEST(nodes.state("a", "late") == "live");
}

BOOST_AUTO_TEST_CASE(what_is_heard_before_a_node_begins_is_not_lost) {
  wired_actors nodes(std::vector<std::string>{});
  nodes.start("late", false);
  nodes.start("b");
  nodes.pass(100ms);  // b dials it and greets
  BOOST_TEST(nodes.state("b", "late") != "live");
  nodes.begin("late");
  nodes.pass(100ms);
  BOOST_TEST(nodes.state("b", "late") == "live");
  BOOST_TEST(nodes.state("late", "b") == "live");
}

BOOST_AUTO_TEST_CASE(a_node_without_a_network_yet_says_who_it_is_and_why) {
  wired_actors nodes(std::vector<std::string>{});
  nodes.start("a", false);
  cluster_start waits;
  waits.self.name = "a";
  waits.why_not = "the address is in use";
  nodes.tell("a", waits);
  BOOST_TEST(nodes.report("a")->self == "a");
  BOOST_TEST(nodes.report("a")->address.find("the address is in use") != std::string::npos);
  nodes.begin("a");
  nodes.pass(0ms);
  BOOST_TEST(nodes.report("a")->address == "host-of-a:1");
}

BOOST_AUTO_TEST_CASE(a_node_that_leaves_is_not_missed) {
  wired_actors nodes;
  nodes.leave("b");
  nodes.pass(100ms);
  BOOST_TEST(nodes.state("a", "b") == "left");
  BOOST_TEST(nodes.report("a")->membership.suspected == 0U);
}

BOOST_AUTO_TEST_CASE(bytes_are_counted_for_those_who_have_proved_their_name) {
  wired_actors nodes;
  const auto before = nodes.report("a")->peers.at(0).figures;
  const auto back = nodes.ping("a", "b", 4000);
  nodes.pass(5ms);
  BOOST_TEST(back->payload != nullptr);
  const auto after = nodes.report("a")->peers.at(0).figures;
  BOOST_TEST(after.sent_bytes >= before.sent_bytes + 4000);
  BOOST_TEST(after.heard_bytes >= before.heard_bytes + 4000);
  BOOST_TEST(nodes.report("a")->traffic.requests == 1U);
}

BOOST_AUTO_TEST_CASE(with_the_clusters_actor_end_those_of_its_peers_their_requests_and_its_network) {
  wired_actors nodes;
  nodes.wire().freeze("b", nodes.wire().now() + 1h);
  const auto asked = nodes.ping("a", "b");
  nodes.pass(10ms);
  const auto network = nodes.network_of("a");
  nodes.end_actor("a");
  BOOST_TEST(asked->has_come());
  BOOST_TEST(network.expired());
}

BOOST_AUTO_TEST_SUITE_END()
