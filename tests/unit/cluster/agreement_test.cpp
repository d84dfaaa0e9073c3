#include "cluster/agreement.hpp"

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>

#include "tests/unit/cluster/agreement_world.hpp"

using namespace cenote;
using testing::agreement_world;

namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr std::uint64_t usual_worlds = 2000;
#elif defined(__OPTIMIZE__)
constexpr std::uint64_t usual_worlds = 100000;
#else
constexpr std::uint64_t usual_worlds = 1000;
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

}  // namespace

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

BOOST_AUTO_TEST_CASE(each_rule_is_needed) {
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
  need_rule(&rules::speaks_for_all, "speaks_for_all");
  need_rule(&rules::trusts_only_coordinator, "trusts_only_coordinator");
  need_rule(&rules::rejoining_ends_epoch, "rejoining_ends_epoch");
  need_rule(&rules::counts_gaps, "counts_gaps");
}

BOOST_AUTO_TEST_SUITE_END()
