// Changes of the NVMe tier: a list kept from them is what can be found, in every case.
#include <boost/test/unit_test.hpp>
#include <cerrno>

#include "tests/unit/tiers/block_changes/change_list.hpp"
#include "tests/unit/tiers/nvme/store_fixture.hpp"

namespace cenote::nvme::changes_test {

using namespace testing;
using cenote::testing::change_list;

namespace {

constexpr std::uint64_t most_keys = 400;

tier_options with_keys(std::uint32_t paths = 1, std::size_t most_changes = block_changes::usual_waiting) {
  tier_options options;
  options.store.paths = paths;
  options.store.keeps_keys = true;
  options.store.most_changes = most_changes;
  options.block_bytes = {{1, 32 * KiB}, {2, 32 * KiB}};  // 128 on a path
  return options;
}

class listed final : public block_listing {
 public:
  explicit listed(const nvme::store& store) : store_(store) {}
  block_place list(block_place first, std::size_t steps, std::vector<tier_change>& blocks) const override {
    return store_.list(first, steps, blocks);
  }
  [[nodiscard]] std::optional<change_subject> subject_of(std::uint32_t instance) const override {
    return change_subject{instance, "model", 1};
  }

 private:
  const nvme::store& store_;
};

struct world {
  explicit world(tier_options options = with_keys()) : disk(std::move(options)) {}

  bool read(std::size_t steps) { return list.read(disk.store->changes(), listed(*disk.store), steps); }
  [[nodiscard]] std::set<change_list::name> names() const {
    std::set<change_list::name> all;
    for (const auto& [instance, bytes] : disk.options.block_bytes) {
      for (std::uint64_t n = 0; n < most_keys; ++n) {
        if (disk.contains(n, instance)) all.insert(change_list::name_of(instance, 0, key_of(n)));
      }
    }
    return all;
  }
  void check() {
    list.read_all(disk.store->changes(), listed(*disk.store));
    BOOST_REQUIRE_EQUAL(list.wrong, "");
    BOOST_REQUIRE(list.blocks == names());
    BOOST_REQUIRE_EQUAL(disk.wrong, "");
  }

  tier disk;
  change_list list;
};

void work_at_random(world& subject, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (int step = 0; step < 3'000; ++step) {
    random_step(subject.disk, random, most_keys, true);
    if (random() % 400 == 0) subject.disk.clear(1 + static_cast<instance_number>(random() % 2));
    if (random() % 800 == 0) subject.disk.store->clear_all();
    if (random() % 16 == 0) BOOST_REQUIRE(subject.read(random() % 40));
    if (step % 97 == 0) subject.check();
  }
  subject.check();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nvme_changes)

BOOST_AUTO_TEST_CASE(after_random_work_with_faults_a_list_of_changes_is_what_can_be_found) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    world of(with_keys(2));
    work_at_random(of, seed);
    BOOST_TEST(of.list.beginnings == 1U);
    BOOST_TEST(of.list.changes > 100U);
  }
}

BOOST_AUTO_TEST_CASE(so_it_is_after_changes_were_lost_again_and_again) {
  for (std::uint64_t seed = 10; seed < 14; ++seed) {
    world of(with_keys(2, 3));
    work_at_random(of, seed);
    BOOST_TEST(of.list.beginnings > 3U);
  }
}

BOOST_AUTO_TEST_CASE(a_reader_of_the_next_worker_finds_what_the_catalogs_have) {
  world of;
  for (std::uint64_t n = 0; n < 50; ++n) (void)of.disk.write(n);
  of.check();
  const auto before = of.list.blocks;
  BOOST_TEST(before.size() == 50U);
  of.disk.restart();
  of.list = {};
  of.check();
  BOOST_TEST((of.list.blocks == before));
}

BOOST_AUTO_TEST_CASE(a_clear_and_an_unbinding_are_one_change_each) {
  world of;
  for (std::uint64_t n = 0; n < 20; ++n) (void)of.disk.write(n);
  for (std::uint64_t n = 0; n < 20; ++n) (void)of.disk.write(n, 2);
  of.check();
  const std::uint64_t before = of.list.changes;
  of.disk.clear(1);
  of.check();
  BOOST_TEST(of.list.changes == before + 1);
  of.disk.store->unbind(2);
  of.list.read_all(of.disk.store->changes(), listed(*of.disk.store));
  BOOST_TEST(of.list.changes == before + 2);
  BOOST_TEST(of.list.blocks.empty());
}

BOOST_AUTO_TEST_CASE(blocks_of_an_instance_that_is_bound_again_come_back_under_its_new_number) {
  world of;
  (void)of.disk.write(1);
  of.check();
  BOOST_TEST(of.disk.store->bind(9, identity_of_instance(1), {}));  // before the old number was given up
  of.disk.store->unbind(1);
  of.list.read_all(of.disk.store->changes(), listed(*of.disk.store));
  BOOST_TEST(of.list.wrong == "");
  BOOST_TEST((of.list.blocks == std::set{change_list::name_of(9, 0, key_of(1))}));
}

BOOST_AUTO_TEST_CASE(what_a_failing_path_has_goes_and_comes_back_with_it) {
  world of;
  for (std::uint64_t n = 0; n < 20; ++n) (void)of.disk.write(n);
  of.check();
  for (std::uint64_t n = 0; n < 4; ++n) {
    of.disk.paths[0].io->fail_next(EIO, io_kind::read);
    (void)of.disk.read(n);
  }
  BOOST_TEST((of.disk.store->state_of(0) == path_state::retired));
  of.check();
  BOOST_TEST(of.list.blocks.empty());
  for (int i = 0; i < 4; ++i) {
    of.disk.tick();
    of.disk.settle();
  }
  BOOST_TEST((of.disk.store->state_of(0) == path_state::serving));
  of.check();
  BOOST_TEST(of.list.blocks.size() == 16U);
}

BOOST_AUTO_TEST_CASE(without_keys_nothing_is_named) {
  world of{tier_options{}};
  (void)of.disk.write(1);
  of.list.read_all(of.disk.store->changes(), listed(*of.disk.store));
  BOOST_TEST(of.list.blocks.empty());
  BOOST_TEST(of.list.is_complete);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::nvme::changes_test
