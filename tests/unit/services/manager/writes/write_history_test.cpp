// A long random history: after each step the journal gives the same state, and all that is counted is right.
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/services/manager/writes/write_world.hpp"

#include "tests/support/step_cost.hpp"

namespace cenote::manager::test {

using enum answer_code;
using namespace std::chrono_literals;

namespace {

constexpr std::uint64_t key_bound = 40;

/// Two instances of a group with quotas of all kinds, in three storages of two types.
class random_history {
 public:
  random_history() {
    world_.settings.write_timeout = 20s;
    BOOST_TEST_REQUIRE(world_.add_storage(threefs_json("t1")) == ok);
    BOOST_TEST_REQUIRE(world_.add_storage(storage_json("s3", 4, 9'000)) == ok);
    BOOST_TEST_REQUIRE(world_.update_group(values_) == ok);
    BOOST_TEST_REQUIRE(world_.add_instance(instance_json("j")) == ok);
    world_.reclaims = true;
  }

  void step() {
    switch (draw(16)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4: start(); break;
      case 5:
      case 6:
      case 7:
      case 8: finish(); break;
      case 9:
      case 10: remove(); break;
      case 11: trim(); break;
      case 12: world_.pass(std::chrono::milliseconds(draw(8'000))); break;
      case 13: switch_failures(); break;
      case 14: switch_storage(); break;
      default: change_world(); break;
    }
    (void)world_.run_round();
  }
  void check() {
    const auto second = world_.recovered_copy();
    BOOST_TEST_REQUIRE(picture_of(second->state) == picture_of(world_.live->state));
    check_counts(world_.live->state);
    check_counts(second->state);
    check_queued(*second);
    check_quotas(world_.live->state);
  }
  /// Everything is removed, and all storages work again.
  void end() {
    world_.log->let_work();
    for (const char* id : {"i", "j"}) BOOST_TEST(world_.trim({.instance = id}) == ok);
    world_.pass(2h);
    world_.settle();
    world_.settle();
    check();
    BOOST_TEST((world_.group().bytes.used == 0 && world_.live->sessions.size() == 0));
    BOOST_TEST(world_.has_registry_alone());
    // A history without any of these would show little.
    BOOST_TEST_MESSAGE(grants_ << ' ' << refusals_ << ' ' << ends_ << ' ' << world_.evictions);
    constexpr auto few = static_cast<std::uint64_t>(20 / cenote::testing::step_cost);
    BOOST_TEST((grants_ > 5 * few && refusals_ > few && ends_ > 5 * few && world_.evictions > few));
  }

 private:
  struct open_grant {
    std::string instance{};
    start_grant grant{};
  };

  std::uint64_t draw(std::uint64_t bound) { return random_() % bound; }
  std::string any_instance() { return draw(2) == 0 ? "i" : "j"; }
  std::vector<std::uint64_t> any_keys() {
    std::vector<std::uint64_t> keys(1 + draw(8));
    const std::uint64_t begin = draw(key_bound);
    for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = draw(4) == 0 ? draw(key_bound) : begin + i;
    return keys;
  }

  void start() {
    start_request request{.instance = any_instance(), .replicas = static_cast<std::int64_t>(draw(3))};
    const auto keys = any_keys();
    if (draw(2) == 0) {
      for (std::size_t i = 0; i < keys.size(); ++i) request.groups.emplace_back(std::vector{"a", "b", "ab"}[draw(3)]);
    }
    auto grant = world_.start(keys, request);
    if (grant) {
      grants_ += static_cast<std::size_t>(!grant->specs.empty());
      open_.push_back({.instance = request.instance, .grant = std::move(*grant)});
    } else {
      refusals_ += static_cast<std::size_t>(grant.error().code == reach_max_entity_capacity);
    }
  }
  void finish() {
    if (open_.empty()) return;
    const std::size_t place = draw(open_.size());
    const open_grant& chosen = open_[place];
    std::vector<bool> mask(chosen.grant.specs.size());
    for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = draw(4) != 0;
    (void)world_.finish(chosen.grant, bools(std::vector<bool>(mask.size() + 1)), chosen.instance);
    const answer_code code = world_.finish(chosen.grant, bools(mask), chosen.instance);
    BOOST_TEST((code == ok || code == session_not_found));
    ends_ += static_cast<std::size_t>(code == ok);
    if (code == ok) BOOST_TEST(world_.finish(chosen.grant, bools(mask), chosen.instance) == ok);
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(place));
  }
  void remove() {
    BOOST_TEST(world_.remove(any_keys(), first(static_cast<std::int64_t>(draw(2))), any_instance()) == ok);
  }
  void trim() {
    if (draw(4) != 0) return;
    const std::uint32_t now = unix_seconds();
    BOOST_TEST(world_.trim({.instance = any_instance(),
                            .scope = static_cast<trim_scope>(draw(3)),
                            .begin = now - static_cast<std::uint32_t>(draw(3)),
                            .end = now}) == ok);
  }
  void switch_failures() {
    world_.log->let_work();
    if (draw(2) == 0) world_.log->let_fail(std::vector{"s1", "s2", "s3", "t1"}[draw(4)]);
  }
  void switch_storage() {
    const std::string name = std::vector{"s1", "s2", "s3", "t1"}[draw(4)];
    const auto state = draw(3) == 0 ? storage_switch::disabled : storage_switch::enabled;
    BOOST_TEST(world_.change([&](const change_basis& basis) { return basis.settings.switch_storage(name, state); }) ==
               ok);
  }
  void change_world() {
    switch (draw(6)) {
      case 0: world_.recover(); break;
      case 1:
        values_.candidates = std::vector{R"("s3","t1","s1","s2")", R"("t1","s3")", R"("s1","s3")"}[draw(3)];
        values_.strategy =
            std::vector{"", R"(,"reclaim_policy":"POLICY_LFU")", R"(,"reclaim_policy_name":"fifo")"}[draw(3)];
        values_.is_paused = draw(4) == 0;
        BOOST_TEST(world_.update_group(values_) == ok);
        break;
      case 2:
        BOOST_TEST(world_.remove_instance("j") == ok);
        BOOST_TEST(world_.add_instance(instance_json("j")) == ok);
        break;
      case 3:
        BOOST_TEST(world_.change([](const change_basis& basis) {
          return basis.settings.remove_storage("s2", basis.use("s2"), change_force::drops_locations);
        }) == ok);
        BOOST_TEST(world_.add_storage(storage_json("s2", 1 + static_cast<std::uint32_t>(draw(3)))) == ok);
        break;
      default: world_.pass(1s); break;
    }
  }

  std::mt19937_64 random_{20'261'128};
  group_values values_{.candidates = R"("s3","t1","s1","s2")",
                       .capacity = 40 * 768,
                       .type_quotas = R"({"storage_type":"ST_3FS","capacity":8000})",
                       .max_keys = 30,
                       .level = 0.8,
                       .delay_ms = 1'500};
  write_world world_{{}, 4};
  std::vector<open_grant> open_;
  std::size_t grants_ = 0;
  std::size_t refusals_ = 0;  ///< for a quota
  std::size_t ends_ = 0;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(histories_of_a_writer)

BOOST_AUTO_TEST_CASE(after_each_of_many_random_steps_the_journal_gives_the_same_state) {
  random_history history;
  for (int i = 0; i < 2'000 / cenote::testing::step_cost; ++i) {
    BOOST_TEST_CONTEXT("step " << i) {
      history.step();
      history.check();
    }
  }
  history.end();
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::test
