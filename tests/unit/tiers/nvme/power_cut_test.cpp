// What a power cut leaves on the paths is served right, or not at all.
#include <boost/test/unit_test.hpp>
#include <cstdlib>

#include "tests/unit/tiers/nvme/store_fixture.hpp"

#include "tests/support/step_cost.hpp"

namespace cenote::nvme {

using namespace testing;

BOOST_AUTO_TEST_SUITE(power_cuts)

BOOST_AUTO_TEST_CASE(after_a_power_cut_a_block_is_right_or_not_there) {
  const std::uint64_t seeds = std::getenv("CENOTE_TEST_FULL") == nullptr ? 80 / cenote::testing::step_cost : 1000;
  std::uint64_t right = 0;
  std::uint64_t missing = 0;
  std::uint64_t failed = 0;
  std::uint64_t never_read = 0;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    BOOST_TEST_CONTEXT("seed " << seed) {
      std::mt19937_64 random(seed);
      tier_options options;
      options.store.paths = static_cast<std::uint32_t>(1 + seed % 2);
      options.max_blocks = 4 + random() % 20;  // few, so that slots are used again and again
      options.block_bytes = {{1, 16 * KiB}, {2, seed % 3 == 0 ? 8 * KiB : 16 * KiB}};
      options.hints = false;
      tier at(options);
      at.journal = true;
      constexpr std::uint64_t keys = 30;
      for (int cuts = 0; cuts < 2; ++cuts) {
        for (std::uint64_t step = 50 + random() % 250; step > 0; --step) random_step(at, random, keys, seed % 4 == 0);
        at.journal = cuts == 0;
        at.cut_power(random);
        if (cuts == 0 && seed % 2 == 0) continue;  // one more life over what the first left
        for (const instance_number instance : {1U, 2U}) {
          for (std::uint64_t n = 0; n < keys; ++n) {
            switch (at.read(n, instance)) {  // the fixture compares the bytes
              case transfer_result::done: ++right; break;
              case transfer_result::missing: ++missing; break;
              case transfer_result::failed: ++failed; break;
              case transfer_result::altered:
              case transfer_result::dropped: ++never_read; break;
            }
          }
        }
        break;
      }
    }
  }
  BOOST_TEST_MESSAGE(right << " right, " << missing << " missing, " << failed << " failed");
  BOOST_TEST(never_read == 0U);
  BOOST_TEST(right > seeds);
  BOOST_TEST(failed > seeds / 10);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::nvme
