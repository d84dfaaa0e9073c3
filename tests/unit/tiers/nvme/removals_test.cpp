// Removals that could not be written down: in bounded memory, in the log of a path, and in the memory of a keeper.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <random>

#include "tests/unit/tiers/nvme/catalog_fixture.hpp"
#include "tiers/nvme/pending_removals.hpp"

namespace cenote::nvme {

using namespace testing;

namespace {

removal_set keys(const numbered_identity& instance, std::uint64_t first, std::uint64_t count) {
  removal_set made;
  for (std::uint64_t i = first; i < first + count; ++i) made.add(instance, block_of(instance, i).key);
  return made;
}

struct file_of_a_log {
  explicit file_of_a_log(const scratch_directory& directory)
      : name((directory.path() / "log").string()), fd(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    BOOST_REQUIRE(::ftruncate(fd.get(), 4096 + removal_log::bytes) == 0);
  }
  [[nodiscard]] removal_log log(std::uint64_t owner = store_id) const { return {fd.get(), 4096, owner}; }
  std::string name;
  unique_fd fd;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(nvme_removals)

BOOST_AUTO_TEST_CASE(a_set_holds_keys_instances_and_everything) {
  removal_set set = keys(1, 0, 10);
  set.add_instance(numbered_identity(2));
  BOOST_TEST(set.size() == 11U);
  BOOST_TEST(set.contains(numbered_identity(1), block_of(1, 3).key));
  BOOST_TEST(!set.contains(numbered_identity(1), block_of(1, 10).key));
  BOOST_TEST(!set.contains(numbered_identity(3), block_of(1, 3).key));
  BOOST_TEST(set.contains(numbered_identity(2), block_of(2, 99).key));
  set.add(numbered_identity(2), block_of(2, 1).key);
  set.add_instance(numbered_identity(1));
  BOOST_TEST(set.size() == 2U);
  set.add_everything();
  set.add(numbered_identity(7), block_of(7, 1).key);
  BOOST_TEST(set.size() == 1U);
  BOOST_TEST(set.contains(numbered_identity(3), block_of(1, 3).key));
}

BOOST_AUTO_TEST_CASE(too_many_keys_become_their_instance_and_too_many_instances_everything) {
  removal_set set = keys(1, 0, 10);
  set.add(keys(2, 0, removal_set::max_records));
  BOOST_TEST(set.size() == 11U);
  BOOST_TEST(set.contains(numbered_identity(2), block_of(2, removal_set::max_records + 7).key));
  BOOST_TEST(!set.contains(numbered_identity(1), block_of(1, 10).key));
  removal_set many;
  for (std::uint64_t i = 1; i <= removal_set::max_records; ++i) many.add_instance(numbered_identity(i));
  BOOST_TEST(!many.contains(numbered_identity(0), block_of(0, 1).key));
  many.add(numbered_identity(0), block_of(0, 1).key);
  BOOST_TEST(many.contains(numbered_identity(removal_set::max_records + 9), block_of(0, 2).key));
  BOOST_TEST(many.size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_whole_instance_goes_without_its_name) {
  const scratch_directory at;
  auto held = open_catalog(at);
  const instance_identity one = identity_of(spec_of("one"));
  BOOST_REQUIRE(held.put_instance(spec_of("one")).has_value());
  BOOST_REQUIRE(held.apply(std::vector{put(block_of(one, 1))}));
  BOOST_REQUIRE(held.apply(keys(one, 0, removal_set::max_records + 1).changes()));
  BOOST_TEST(contents_of(held).empty());
  BOOST_TEST(held.instances()->size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_name_stands_for_all_instances_that_are_called_so) {
  const scratch_directory at;
  auto held = open_catalog(at);
  auto other = spec_of("one");
  other.model = "another";
  std::vector<std::pair<instance_identity, instance_spec>> called;
  for (const instance_spec& spec : {spec_of("one"), other, spec_of("two")}) {
    called.emplace_back(identity_of(spec), spec);
    BOOST_REQUIRE(held.put_instance(spec).has_value());
    BOOST_REQUIRE(held.apply(std::vector{put(block_of(identity_of(spec), 1))}));
  }
  removal_set set;
  set.add_name("one");
  set.add_name("one");
  BOOST_TEST(set.size() == 1U);
  const auto again = removal_set::decode(set.encode());
  BOOST_REQUIRE(again.has_value());
  auto resolved = *again;
  resolved.resolve(called);
  for (std::size_t i = 0; i < 3; ++i) {
    BOOST_TEST(resolved.contains(called[i].first, block_of(called[i].first, 1).key) == (i < 2));
  }
  BOOST_REQUIRE(held.apply(again->changes()));
  const auto left = contents_of(held);
  BOOST_TEST(left.size() == 1U);
  BOOST_TEST(left.begin()->first.first == called[2].first);
}

BOOST_AUTO_TEST_CASE(a_set_comes_back_from_its_bytes_and_no_other_bytes_pass) {
  removal_set set = keys(1, 0, 300);
  set.add_instance(numbered_identity(2));
  const auto bytes = set.encode();
  const auto again = removal_set::decode(bytes);
  BOOST_REQUIRE(again.has_value());
  BOOST_TEST(again->size() == set.size());
  BOOST_TEST((again->encode().size() == bytes.size()));
  for (std::uint64_t i = 0; i < 300; ++i) BOOST_REQUIRE(again->contains(numbered_identity(1), block_of(1, i).key));
  BOOST_TEST(again->contains(numbered_identity(2), block_of(9, 9).key));
  BOOST_TEST(!removal_set::decode(std::span(bytes).first(bytes.size() - 1)).has_value());
  BOOST_TEST(!removal_set::decode({}).has_value());
  removal_set all;
  all.add_everything();
  BOOST_TEST(removal_set::decode(all.encode())->contains(numbered_identity(5), block_of(5, 5).key));
}

BOOST_AUTO_TEST_CASE(a_log_gives_back_the_last_set_that_was_stored) {
  const scratch_directory at;
  const file_of_a_log file(at);
  auto log = file.log();
  BOOST_TEST(log.load()->empty());
  for (std::uint64_t count = 1; count <= 5; ++count) {
    BOOST_REQUIRE(log.store(keys(1, 0, count * 1000)));
    BOOST_TEST(file.log().load()->size() == count * 1000);
  }
  BOOST_TEST(file.log(store_id + 1).load()->empty(), "the set of another store is none of ours");
  auto next = file.log();
  BOOST_REQUIRE(next.load().has_value());
  BOOST_REQUIRE(next.store({}));
  BOOST_TEST(file.log().load()->empty());
}

BOOST_AUTO_TEST_CASE(a_store_that_is_cut_short_leaves_the_set_of_before) {
  const scratch_directory at;
  const file_of_a_log file(at);
  auto log = file.log();
  BOOST_REQUIRE(log.store(keys(1, 0, 2000)));
  BOOST_REQUIRE(log.store(keys(1, 0, 3000)));
  const std::array<std::byte, 512> torn{};
  BOOST_REQUIRE(::pwrite(file.fd.get(), torn.data(), torn.size(), 4096 + 8192) == 512);  // the second went to place 0
  BOOST_TEST(file.log().load()->size() == 2000U);
}

BOOST_AUTO_TEST_CASE(a_log_on_a_file_that_cannot_be_written_says_so) {
  const scratch_directory at;
  const file_of_a_log file(at);
  const unique_fd reading(::open(file.name.c_str(), O_RDONLY | O_CLOEXEC));
  removal_log log(reading.get(), 4096, store_id);
  BOOST_TEST((log.store(keys(1, 0, 1)).error().code() == error_code::system));
}

BOOST_AUTO_TEST_CASE(what_is_pending_outlives_its_process_until_it_is_settled) {
  auto kept = memory::segment::create("kept", pending_removals::kept_bytes);
  BOOST_REQUIRE(kept.has_value());
  const auto next_of = [&] {
    auto memory = memory::segment::map(std::move(*kept->fd().duplicate()), pending_removals::kept_bytes,
                                       memory::access::read_write);
    BOOST_REQUIRE(memory.has_value());
    return pending_removals(std::move(*memory), 9);
  };
  {
    auto first = next_of();
    first.add(keys(1, 0, 3));
  }
  {
    auto second = next_of();
    BOOST_TEST(second.size() == 3U);
    const auto seen = second.look();
    second.add(keys(1, 3, 1));
    second.settle(seen.version);
    BOOST_TEST(second.size() == 4U, "more came since");
  }
  auto third = next_of();
  BOOST_TEST(third.size() == 4U);
  third.settle(third.look().version);
  BOOST_TEST(third.size() == 0U);
  BOOST_TEST(next_of().size() == 0U);
}

BOOST_AUTO_TEST_CASE(a_mark_gives_back_the_sequence_of_its_owner) {
  const scratch_directory at;
  const file_of_a_log file(at);
  const sequence_mark mark(file.fd.get(), 4096, store_id);
  BOOST_TEST(mark.load().value() == 0U);
  BOOST_REQUIRE(mark.store(4711));
  BOOST_TEST(mark.load().value() == 4711U);
  BOOST_TEST(sequence_mark(file.fd.get(), 4096, store_id + 1).load().value() == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::nvme
