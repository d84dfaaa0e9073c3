#include "tiers/nvme/store.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cerrno>
#include <cstdlib>
#include <ostream>

#include "core/checksum.hpp"
#include "tests/support/step_cost.hpp"
#include "tests/unit/tiers/nvme/store_fixture.hpp"

namespace cenote {

std::ostream& operator<<(std::ostream& out, transfer_result what) {
  constexpr std::array names{"done", "dropped", "missing", "failed"};
  return out << names[static_cast<std::size_t>(what)];
}

}  // namespace cenote

namespace cenote::nvme::store_test {

using namespace testing;
using enum transfer_result;

namespace {

tier_options with_paths(std::uint32_t paths) {
  tier_options options;
  options.store.paths = paths;
  return options;
}

tier_options with_room_for(std::uint64_t blocks) {
  tier_options options;
  options.max_blocks = blocks;
  return options;
}

/// Two slots.
tier_options with_large_blocks() {
  tier_options options;
  options.block_bytes = {{1, 2 * MiB}};
  return options;
}

/// Changes the bytes of a block on its path.
void damage(tier& tier, std::uint64_t n) {
  const auto [path, block] = tier.find(n);
  tier.paths[path].io->contents()[block->offset + block->bytes - 1] ^= std::byte{1};
}

/// `count` errors in a row for reads of a path's blocks, which are lost by that.
void fail_reads(tier& tier, std::uint32_t path, std::size_t count) {
  const auto blocks = tier.blocks_on(path, 100);
  BOOST_REQUIRE(blocks.size() > count);
  for (std::size_t i = 0; i < count; ++i) {
    tier.paths[path].io->fail_next(EIO, io_kind::read);
    BOOST_TEST(tier.read(blocks[i]) == failed);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(nvme_store)

BOOST_AUTO_TEST_CASE(a_written_block_is_read_back) {
  tier at;
  BOOST_TEST(!at.hinted(1));
  BOOST_TEST(at.write(1) == done);
  BOOST_TEST(at.hinted(1));
  BOOST_TEST(at.contains(1));
  BOOST_TEST(at.read(1) == done);
  const auto stored = *at.find(1).second;
  BOOST_TEST((stored.full == key_of(1)));
  BOOST_TEST(stored.bytes == 4 * KiB);
  BOOST_TEST(stored.offset >= path_file::data_offset);
  const auto all = at.store->status();
  BOOST_TEST(all.counters.written == 1U);
  BOOST_TEST(all.counters.written_bytes == 4 * KiB);
  BOOST_TEST(all.counters.read == 1U);
  BOOST_TEST(all.used == 4 * KiB);
  BOOST_TEST(all.bytes_in_flight == 0U);
}

BOOST_AUTO_TEST_CASE(a_key_that_was_never_written_is_missing) {
  tier at;
  at.write(1);
  BOOST_TEST(at.read(2) == missing);
  BOOST_TEST(at.read(1, 2) == missing);
  BOOST_TEST(at.store->status().counters.misses == 2U);
}

BOOST_AUTO_TEST_CASE(an_unknown_instance_has_no_blocks_and_gets_none) {
  tier at;
  transfer block{.instance = 7, .group = 0, .token = 1, .full = key_of(1), .key = short_key_of(1), .memory = {}};
  at.store->write({&block, 1}, wall_time_of(1));
  at.store->read({&block, 1}, wall_time_of(1));
  const auto outcomes = at.store->take_outcomes();
  BOOST_REQUIRE(outcomes.size() == 2U);
  BOOST_TEST(outcomes[0].what == dropped);
  BOOST_TEST(outcomes[1].what == missing);
  BOOST_TEST(at.clear(7) == 0U);
}

BOOST_AUTO_TEST_CASE(a_block_that_is_there_is_not_written_again) {
  tier at;
  at.write(1);
  BOOST_TEST(at.write(1) == done);
  BOOST_TEST(at.store->status().counters.written == 1U);
}

BOOST_AUTO_TEST_CASE(instances_with_one_key_have_two_blocks) {
  tier at;
  BOOST_TEST(at.write(1, 1) == done);
  BOOST_TEST(at.write(1, 2) == done);
  BOOST_TEST(at.read(1, 1) == done);
  BOOST_TEST(at.read(1, 2) == done);
  at.remove(1, 2);
  BOOST_TEST(at.read(1, 1) == done);
  BOOST_TEST(at.read(1, 2) == missing);
}

// ---- damage

BOOST_AUTO_TEST_CASE(damaged_bytes_fail_and_the_copy_is_dropped) {
  tier at;
  at.write(1);
  at.write(2);
  damage(at, 1);
  BOOST_TEST(at.read(1) == failed);
  BOOST_TEST(at.store->status().counters.checksum_errors == 1U);
  BOOST_TEST(at.store->status().counters.io_errors == 0U);
  BOOST_TEST(at.paths[0].catalog.size() == 1U);
  BOOST_TEST(!at.hinted(1));
  BOOST_TEST(at.was_lost(1));
  BOOST_TEST(!at.was_lost(2));
  BOOST_TEST(at.read(1) == missing);
  BOOST_TEST(at.read(2) == done);
  BOOST_TEST(at.write(1) == done);
  BOOST_TEST(at.read(1) == done);
}

BOOST_AUTO_TEST_CASE(a_checksum_that_came_with_a_block_is_the_one_that_it_is_checked_against) {
  tier at;
  std::vector<std::byte> bytes(at.options.block_bytes.at(1));
  fill(bytes, 1, 1);
  BOOST_TEST(at.write_summed(1, checksum_of(bytes)) == done);
  BOOST_TEST(at.write_summed(2, checksum_of(bytes)) == done);  // of another block
  at.restart();
  BOOST_TEST(at.read(1) == done);
  BOOST_TEST(at.read(2) == failed);
  BOOST_TEST(at.store->status().counters.checksum_errors == 1U);
  BOOST_TEST(!at.contains(2));
}

BOOST_AUTO_TEST_CASE(metadata_that_points_at_another_block_fails) {
  tier at;
  at.write(1);
  at.write(2);
  at.write(3);
  std::swap(at.find(1).second->offset, at.find(2).second->offset);
  at.restart();
  BOOST_TEST(at.refused == 0U);
  BOOST_TEST(at.read(1) == failed);
  BOOST_TEST(at.read(2) == failed);
  BOOST_TEST(at.read(3) == done);
  BOOST_TEST(at.store->status().counters.checksum_errors == 2U);
}

BOOST_AUTO_TEST_CASE(bytes_of_another_instance_do_not_pass) {
  tier at;
  at.write(1, 1);
  at.write(1, 2);
  std::swap(at.find(1, 1).second->offset, at.find(1, 2).second->offset);
  std::swap(at.find(1, 1).second->checksum, at.find(1, 2).second->checksum);
  at.restart();
  BOOST_TEST(at.read(1, 1) == failed);
  BOOST_TEST(at.read(1, 2) == failed);
}

BOOST_AUTO_TEST_CASE(a_block_of_another_length_than_asked_for_is_missing_and_can_be_written_anew) {
  tier at;
  at.write(1);
  at.find(1).second->bytes = 8 * KiB;
  at.restart();
  BOOST_TEST(at.refused == 0U);
  BOOST_TEST(at.read(1) == missing);
  BOOST_TEST(at.write(1) == done);
  BOOST_TEST(at.read(1) == done);
}

// ---- errors

BOOST_AUTO_TEST_CASE(a_failed_write_is_dropped_and_its_slot_is_free_again) {
  tier at;
  at.paths[0].io->fail_next(EIO);
  BOOST_TEST(at.write(1) == dropped);
  BOOST_TEST(!at.hinted(1));
  BOOST_TEST(at.store->status().used == 0U);
  BOOST_TEST(at.store->status().counters.io_errors == 1U);
  BOOST_TEST(at.store->status().paths[0].errors == 1U);
  BOOST_TEST(!at.store->status().paths[0].why.empty());
  BOOST_TEST(at.read(1) == missing);
  BOOST_TEST(at.write(1) == done);
  BOOST_TEST(at.find(1).second->offset == path_file::data_offset);
}

BOOST_AUTO_TEST_CASE(space_that_the_file_system_does_not_have_is_given_up) {
  tier at;
  const std::uint64_t capacity = at.store->status().capacity;
  at.paths[0].io->fail_next(ENOSPC);
  BOOST_TEST(at.write(1) == dropped);
  auto all = at.store->status();
  BOOST_TEST(all.capacity == capacity - 4 * KiB);
  BOOST_TEST(all.paths[0].bad_bytes == 4 * KiB);
  BOOST_TEST(all.used == 0U);
  BOOST_TEST(at.write(1) == done);
  BOOST_TEST(at.find(1).second->offset != path_file::data_offset);
  BOOST_TEST(at.store->status().used == 4 * KiB);
}

BOOST_AUTO_TEST_CASE(space_that_the_file_system_has_again_is_taken_back) {
  tier at;
  const std::uint64_t capacity = at.store->status().capacity;
  for (std::uint64_t n = 0; n < 4; ++n) {
    at.paths[0].io->fail_next(ENOSPC);
    BOOST_TEST(at.write(n) == dropped);
  }
  BOOST_TEST(at.store->status().paths[0].bad_bytes == 16 * KiB);
  at.tick();
  BOOST_TEST(at.store->status().paths[0].bad_bytes == 0U);
  BOOST_TEST(at.store->status().capacity == capacity);
  at.paths[0].io->fail_next(ENOSPC);
  BOOST_TEST(at.write(1) == dropped);
  BOOST_TEST(at.store->status().paths[0].bad_bytes == 4 * KiB, "there is still none");
  for (std::uint64_t n = 0; n < 10; ++n) BOOST_TEST(at.write(n) == done);
}

BOOST_AUTO_TEST_CASE(a_path_that_only_refuses_writes_is_read_and_does_not_come_and_go) {
  tier at;
  at.write(0);
  for (std::uint64_t n = 1; n < 20; ++n) {
    at.paths[0].io->fail_next(EIO, io_kind::write);
    BOOST_TEST(at.write(n) == dropped);
    BOOST_TEST((at.store->state_of(0) == path_state::serving));
  }
  BOOST_TEST(at.store->status().counters.io_errors == 19U);
  BOOST_TEST(!at.store->status().paths[0].takes_writes);
  BOOST_TEST(at.read(0) == done);
  BOOST_TEST(at.write(1) == done);
  BOOST_TEST(at.store->status().paths[0].takes_writes);
}

BOOST_AUTO_TEST_CASE(writes_go_to_the_path_that_takes_them_and_one_in_a_while_to_the_other) {
  tier at(with_paths(2));
  at.write(0);
  at.write(1);
  at.paths[0].io->fail_next(EROFS, io_kind::write);
  BOOST_TEST(at.write(2) == dropped);
  for (std::uint64_t n = 3; n < 40; ++n) {
    BOOST_TEST(at.write(n) == done);
    BOOST_TEST(at.find(n).first == 1U);
  }
  for (const std::uint64_t n : at.blocks_on(0, 100)) BOOST_TEST(at.read(n) == done);
  at.tick();
  at.paths[0].io->fail_next(EROFS, io_kind::write);
  std::uint64_t refused = 0;
  for (std::uint64_t n = 40; n < 60; ++n) refused += at.write(n) == done ? 0 : 1;
  BOOST_TEST(refused == 1U);
  at.tick();
  for (std::uint64_t n = 60; n < 80; ++n) BOOST_TEST(at.write(n) == done);
  BOOST_TEST(at.blocks_on(0, 100).size() >= 10U, "it takes writes again");
}

BOOST_AUTO_TEST_CASE(a_short_transfer_is_an_error) {
  tier at;
  at.paths[0].io->cut_next(io_kind::write);
  BOOST_TEST(at.write(1) == dropped);
  at.write(2);
  at.paths[0].io->cut_next(io_kind::read);
  BOOST_TEST(at.read(2) == failed);
  BOOST_TEST(at.store->status().counters.io_errors == 2U);
  BOOST_TEST(at.store->status().counters.checksum_errors == 0U);
  BOOST_TEST(at.store->status().used == 0U);
}

BOOST_AUTO_TEST_CASE(errors_in_a_row_retire_a_path_and_the_other_goes_on) {
  tier at(with_paths(2));
  for (std::uint64_t n = 0; n < 40; ++n) BOOST_TEST(at.write(n) == done);
  BOOST_TEST(at.blocks_on(1, 100).size() == 20U);
  fail_reads(at, 0, 4);
  BOOST_TEST((at.store->state_of(0) == path_state::retired));
  BOOST_TEST((at.store->state_of(1) == path_state::serving));
  const auto gone = at.blocks_on(0, 100);
  BOOST_TEST(gone.size() == 16U);
  for (const std::uint64_t n : gone) {
    BOOST_TEST(!at.hinted(n));
    BOOST_TEST(!at.contains(n));
    BOOST_TEST(at.was_lost(n));
    BOOST_TEST(at.read(n) == missing);
  }
  for (const std::uint64_t n : at.blocks_on(1, 100)) {
    BOOST_TEST(at.hinted(n));
    BOOST_TEST(!at.was_lost(n));
    BOOST_TEST(at.read(n) == done);
  }
  for (std::uint64_t n = 50; n < 60; ++n) {
    BOOST_TEST(at.write(n) == done);
    BOOST_TEST(at.find(n).first == 1U);
    BOOST_TEST(at.read(n) == done);
  }
}

BOOST_AUTO_TEST_CASE(errors_that_are_not_in_a_row_retire_nothing) {
  tier at;
  at.write(0);
  for (int i = 0; i < 20; ++i) {
    at.paths[0].io->fail_next(EIO, io_kind::write);
    BOOST_TEST(at.write(1) == dropped);
    BOOST_TEST(at.read(0) == done);
  }
  BOOST_TEST((at.store->state_of(0) == path_state::serving));
}

BOOST_AUTO_TEST_CASE(a_read_only_file_system_refuses_writes_and_is_read_all_the_same) {
  tier at;
  at.write(0);
  const std::uint64_t used = at.store->status().used;
  for (std::uint64_t n = 1; n < 20; ++n) {
    at.paths[0].io->fail_next(EROFS, io_kind::write);
    BOOST_TEST(at.write(n) == dropped);
  }
  BOOST_TEST((at.store->state_of(0) == path_state::serving));
  BOOST_TEST(at.store->status().counters.io_errors == 19U);
  BOOST_TEST(at.store->status().paths[0].errors == 19U);
  BOOST_TEST(at.store->status().used == used);
  BOOST_TEST(at.hinted(0));
  BOOST_TEST(at.read(0) == done);
  BOOST_TEST(at.write(1) == done);
}

BOOST_AUTO_TEST_CASE(a_retired_path_that_answers_a_probe_serves_its_blocks_again) {
  tier at(with_paths(2));
  for (std::uint64_t n = 0; n < 40; ++n) at.write(n);
  fail_reads(at, 0, 4);
  const auto gone = at.blocks_on(0, 100);
  at.paths[0].io->fail_next(EIO, io_kind::read);
  at.tick();
  at.tick();  // one probe at a time
  BOOST_TEST(at.paths[0].io->under_way() == 1U);
  at.settle();
  BOOST_TEST((at.store->state_of(0) == path_state::retired));
  at.tick();
  at.settle();
  BOOST_TEST((at.store->state_of(0) == path_state::serving));
  for (const std::uint64_t n : gone) {
    BOOST_TEST(at.hinted(n));
    BOOST_TEST(at.read(n) == done);
  }
}

BOOST_AUTO_TEST_CASE(a_block_of_a_retired_path_is_written_to_another_one) {
  tier at(with_paths(2));
  for (std::uint64_t n = 0; n < 40; ++n) at.write(n);
  fail_reads(at, 0, 4);
  const std::uint64_t n = at.blocks_on(0, 100).front();
  BOOST_TEST(at.write(n) == done);
  BOOST_TEST(at.find(n).first == 1U);
  BOOST_TEST(at.read(n) == done);
  at.tick();
  at.settle();
  BOOST_TEST(at.read(n) == done);
}

BOOST_AUTO_TEST_CASE(a_full_tier_evicts_where_it_serves_and_leaves_the_blocks_of_a_retired_path) {
  tier_options options = with_paths(2);
  options.max_blocks = 100;
  tier at(options);
  for (std::uint64_t n = 0; n < 200; ++n) BOOST_TEST(at.write(n) == done);
  fail_reads(at, 0, 4);
  const auto gone = at.blocks_on(0, 200);
  for (std::uint64_t n = 200; n < 400; ++n) BOOST_TEST(at.write(n) == done);
  BOOST_TEST((at.blocks_on(0, 200) == gone));
  at.tick();
  at.settle();
  for (const std::uint64_t n : gone) BOOST_TEST(at.read(n) == done);
  for (std::uint64_t n = 400; n < 600; ++n) BOOST_TEST(at.write(n) == done);
}

BOOST_AUTO_TEST_CASE(a_path_that_failed_in_service_is_not_served_any_more) {
  tier at;
  at.write(1);
  at.store->path_failed(0, "a fault");
  BOOST_TEST(!at.contains(1));
  BOOST_TEST(at.store->take_lost().size() == 1U);
  BOOST_TEST(at.read(1) == missing);
  at.store->tick(at.now);
  BOOST_TEST(at.store->take_requests().empty(), "and not probed");
  BOOST_TEST(at.store->status().paths[0].why == "a fault");
}

BOOST_AUTO_TEST_CASE(writes_that_end_on_a_retired_path_come_back_with_it) {
  tier at;
  for (std::uint64_t n = 0; n < 10; ++n) at.write(n);
  at.paths[0].io->hold_next(io_kind::write);
  const auto token = at.ask_write(50);
  fail_reads(at, 0, 4);
  BOOST_TEST(at.write(60) == dropped);
  at.release();
  BOOST_TEST(at.result_of(token).value() == done);
  BOOST_TEST(!at.hinted(50));
  at.tick();
  at.settle();
  BOOST_TEST(at.hinted(50));
  BOOST_TEST(at.read(50) == done);
}

// ---- space

BOOST_AUTO_TEST_CASE(room_is_made_in_the_order_of_use) {
  tier at(with_room_for(4));
  for (std::uint64_t n = 1; n <= 4; ++n) at.write(n);
  at.read(1);
  at.write(2);  // there already: used all the same
  BOOST_TEST(at.write(5) == done);
  BOOST_TEST(at.was_lost(3));
  BOOST_TEST(at.write(6) == done);
  BOOST_TEST(at.was_lost(4));
  BOOST_TEST(at.lost.size() == 2U);
  BOOST_TEST(!at.hinted(3));
  for (const std::uint64_t n : {1U, 2U, 5U, 6U}) BOOST_TEST(at.read(n) == done);
  BOOST_TEST(at.store->status().counters.evicted == 2U);
}

BOOST_AUTO_TEST_CASE(between_the_water_marks_the_oldest_of_all_sizes_go_ahead_of_need) {
  tier_options options;
  options.store.high_water = 0.75;
  options.store.low_water = 0.5;
  options.bytes = 8 * MiB;
  options.block_bytes = {{1, MiB}, {2, 512 * KiB}};
  tier at(options);
  for (std::uint64_t n = 0; n < 4; ++n) BOOST_TEST(at.write(n, 1) == done);
  for (std::uint64_t n = 0; n < 4; ++n) BOOST_TEST(at.write(n, 2) == done);
  BOOST_TEST(at.store->status().used == 6 * MiB);
  BOOST_TEST(at.lost.empty());
  BOOST_TEST(at.write(4, 2) == done);
  BOOST_TEST(at.store->status().used == 7 * MiB / 2);  // the block on its way counts
  for (std::uint64_t n = 0; n < 3; ++n) BOOST_TEST(at.read(n, 1) == missing);
  BOOST_TEST(at.read(3, 1) == done);
  for (std::uint64_t n = 0; n < 5; ++n) BOOST_TEST(at.read(n, 2) == done);
}

BOOST_AUTO_TEST_CASE(a_block_that_is_being_read_is_not_evicted) {
  tier at(with_room_for(2));
  at.write(1);
  at.write(2);
  at.paths[0].io->hold_next(io_kind::read);
  const auto token = at.ask_read(1);
  at.read(2);  // now the other one is the oldest
  BOOST_TEST(at.write(3) == done);
  BOOST_TEST(at.contains(1));
  BOOST_TEST(!at.contains(2));
  BOOST_TEST(at.write(4) == done);
  BOOST_TEST(at.contains(1));
  at.paths[0].io->hold_next(io_kind::read);
  const auto other = at.ask_read(4);
  BOOST_TEST(at.write(5) == dropped);  // all are being read
  at.release();
  BOOST_TEST(at.result_of(token).value() == done);
  BOOST_TEST(at.result_of(other).value() == done);
  BOOST_TEST(at.write(5) == done);
}

BOOST_AUTO_TEST_CASE(the_slot_of_a_removed_block_is_not_used_before_its_reads_end) {
  tier at(with_large_blocks());
  at.write(1);
  at.paths[0].io->hold_next(io_kind::read);
  at.paths[0].io->hold_next(io_kind::read);
  const auto first = at.ask_read(1);
  const auto second = at.ask_read(1);
  BOOST_TEST(at.remove(1) == 1U);
  BOOST_TEST(!at.hinted(1));
  BOOST_TEST(at.read(1) == missing);
  for (std::uint64_t n = 2; n < 5; ++n) BOOST_TEST(at.write(n) == done);  // in the other slot
  BOOST_TEST(at.store->status().blocks == 1U);
  BOOST_TEST(at.store->status().used == 4 * MiB);
  at.release();
  BOOST_TEST(at.result_of(first).value() == missing);
  BOOST_TEST(at.result_of(second).value() == missing);
  BOOST_TEST(at.store->status().used == 2 * MiB);
  BOOST_TEST(at.write(5) == done);
  BOOST_TEST(at.read(4) == done);
  BOOST_TEST(at.read(5) == done);
}

BOOST_AUTO_TEST_CASE(a_block_that_is_written_again_while_its_old_copy_is_read_is_right) {
  tier at(with_large_blocks());
  at.write(1);
  at.paths[0].io->hold_next(io_kind::read);
  const auto token = at.ask_read(1);
  at.remove(1);
  BOOST_TEST(at.write(1) == done);
  at.release();
  BOOST_TEST(at.result_of(token).value() == missing);
  BOOST_TEST(at.read(1) == done);
}

BOOST_AUTO_TEST_CASE(a_damaged_block_that_several_read_gives_its_slot_back_once) {
  tier at(with_large_blocks());
  at.write(1);
  damage(at, 1);
  const std::array tokens{at.ask_read(1), at.ask_read(1), at.ask_read(1)};
  at.settle();
  BOOST_TEST(at.result_of(tokens[0]).value() == failed);
  for (const auto token : tokens) BOOST_TEST(at.result_of(token).value() != done);
  BOOST_TEST(at.store->status().used == 0U);
  for (std::uint64_t n = 2; n < 5; ++n) BOOST_TEST(at.write(n) == done);
}

BOOST_AUTO_TEST_CASE(a_write_whose_key_is_removed_meanwhile_leaves_nothing) {
  tier at;
  at.paths[0].io->hold_next(io_kind::write);
  const auto token = at.ask_write(1);
  BOOST_TEST(at.remove(1) == 0U);
  BOOST_TEST(!at.result_of(token).has_value());  // its memory is still the engine's
  BOOST_TEST(at.write(1) == done);               // in another slot
  at.release();
  BOOST_TEST(at.result_of(token).value() == dropped);
  BOOST_TEST(at.read(1) == done);
  BOOST_TEST(at.store->status().used == 4 * KiB);
  at.remove(1);
  BOOST_TEST(at.paths[0].catalog.empty());
  BOOST_TEST(at.store->status().used == 0U);
}

BOOST_AUTO_TEST_CASE(two_writes_of_one_key_at_once_store_it_once) {
  tier at;
  const auto first = at.ask_write(1);
  const auto second = at.ask_write(1);
  at.settle();
  BOOST_TEST(at.result_of(first).value() == done);
  BOOST_TEST(at.result_of(second).value() == dropped);
  BOOST_TEST(at.store->status().blocks == 1U);
}

BOOST_AUTO_TEST_CASE(clear_forgets_one_instance_and_nothing_of_another) {
  tier at(with_paths(2));
  for (std::uint64_t n = 0; n < 20; ++n) {
    at.write(n, 1);
    at.write(n, 2);
  }
  at.paths[0].io->hold_next(io_kind::write);
  at.paths[1].io->hold_next(io_kind::write);
  const auto mine = at.ask_write(100, 1);
  const auto theirs = at.ask_write(101, 2);
  BOOST_TEST(at.clear(1) == 20U);
  at.release();
  BOOST_TEST(at.result_of(mine).value() == dropped);
  BOOST_TEST(at.result_of(theirs).value() == done);
  for (std::uint64_t n = 0; n < 20; ++n) {
    BOOST_TEST(at.read(n, 1) == missing);
    BOOST_TEST(!at.hinted(n, 1));
    BOOST_TEST(at.read(n, 2) == done);
  }
  at.restart();
  BOOST_TEST(at.store->status().blocks == 21U);
  BOOST_TEST(at.write(1, 1) == done);
}

BOOST_AUTO_TEST_CASE(clear_leaves_another_instances_write_of_a_key_that_was_removed_before) {
  tier at;
  at.paths[0].io->hold_next(io_kind::write);
  at.paths[0].io->hold_next(io_kind::write);
  at.ask_write(1, 1);
  at.remove(1, 1);
  const auto theirs = at.ask_write(1, 2);
  at.clear(1);
  const auto again = at.ask_write(1, 2);
  at.settle();
  at.release();
  BOOST_TEST(at.result_of(theirs).value() == done);
  BOOST_TEST(at.result_of(again).value() == dropped);
  BOOST_TEST(at.store->status().blocks == 1U);
  BOOST_TEST(at.remove(1, 2) == 1U);
  BOOST_TEST(at.store->status().blocks == 0U);
}

BOOST_AUTO_TEST_CASE(two_sizes_of_blocks_take_space_from_each_other) {
  tier_options options;
  options.bytes = 8 * MiB;
  options.block_bytes = {{1, MiB}, {2, 512 * KiB}};
  tier at(options);
  for (std::uint64_t n = 0; n < 8; ++n) BOOST_TEST(at.write(n, 1) == done);
  BOOST_TEST(at.store->status().used == 8 * MiB);
  BOOST_TEST(at.write(0, 2) == done);  // an extent of the other size goes
  BOOST_TEST(at.read(0, 2) == done);
  BOOST_TEST(at.store->status().blocks == 5U);
  BOOST_TEST(at.lost.size() == 4U);
  for (std::uint64_t n = 1; n < 8; ++n) BOOST_TEST(at.write(n, 2) == done);
  std::uint64_t left = 0;
  for (std::uint64_t n = 0; n < 8; ++n) left += at.read(n, 1) == done ? 1 : 0;
  BOOST_TEST(left == 4U);  // and are younger now than those of the smaller size
  BOOST_TEST(at.write(20, 1) == done);
  BOOST_TEST(at.lost.size() == 12U);
  BOOST_TEST(at.read(0, 2) == missing);
  BOOST_TEST(at.store->status().used == 5 * MiB);
}

BOOST_AUTO_TEST_CASE(an_extent_with_a_block_that_is_read_stays) {
  tier_options options;
  options.block_bytes = {{1, MiB}, {2, 512 * KiB}};
  tier at(options);
  for (std::uint64_t n = 0; n < 4; ++n) at.write(n, 1);
  at.paths[0].io->hold_next(io_kind::read);
  const auto token = at.ask_read(2, 1);
  BOOST_TEST(at.write(0, 2) == dropped);
  BOOST_TEST(at.store->status().blocks == 4U);
  at.release();
  BOOST_TEST(at.result_of(token).value() == done);
  BOOST_TEST(at.write(0, 2) == done);
}

// ---- policies

BOOST_AUTO_TEST_CASE(without_keep_copy_a_block_goes_when_it_was_read) {
  tier_options options;
  options.store.keep_copy = false;
  tier at(options);
  at.write(1);
  const auto first = at.ask_read(1);
  const auto second = at.ask_read(1);
  at.settle();
  BOOST_TEST(at.result_of(first).value() == done);
  BOOST_TEST(at.result_of(second).value() == done);
  BOOST_TEST(!at.contains(1));
  BOOST_TEST(!at.hinted(1));
  BOOST_TEST(at.paths[0].catalog.empty());
  BOOST_TEST(at.store->status().used == 0U);
  BOOST_TEST(at.lost.empty());
}

BOOST_AUTO_TEST_CASE(with_second_sight_a_block_is_written_when_it_comes_again) {
  tier_options options;
  options.store.second_sight = true;
  tier at(options);
  BOOST_TEST(at.write(1) == dropped);
  BOOST_TEST(at.store->status().counters.unadmitted == 1U);
  BOOST_TEST(at.store->status().counters.dropped == 0U);
  BOOST_TEST(at.write(2) == dropped);
  BOOST_TEST(at.write(1) == done);
  BOOST_TEST(at.read(1) == done);
}

// ---- starts

BOOST_AUTO_TEST_CASE(a_warm_start_serves_what_was_written) {
  tier at(with_paths(2));
  for (std::uint64_t n = 0; n < 100; ++n) at.write(n, 1 + n % 2);
  at.remove(4, 1);
  const std::uint64_t used = at.store->status().used;
  at.restart();
  BOOST_TEST(at.refused == 0U);
  BOOST_TEST(at.store->status().used == used);
  BOOST_TEST(at.store->status().counters.loaded == 99U);
  for (std::uint64_t n = 0; n < 100; ++n) {
    BOOST_TEST(at.hinted(n, 1 + n % 2) == (n != 4));
    BOOST_TEST(at.read(n, 1 + n % 2) == (n == 4 ? missing : done));
  }
  for (std::uint64_t n = 100; n < 200; ++n) BOOST_TEST(at.write(n) == done);  // over nothing: the fixture looks
}

BOOST_AUTO_TEST_CASE(records_that_do_not_fit_the_path_are_refused) {
  tier at;
  for (std::uint64_t n = 0; n < 8; ++n) at.write(n);
  const std::uint64_t end = path_file::data_offset + at.options.bytes;
  at.find(0).second->offset = at.find(1).second->offset;  // one of the two
  at.find(2).second->offset = 0;
  at.find(3).second->offset = end;
  at.find(4).second->offset += 512;
  at.find(5).second->bytes = end;
  at.find(6).second->full.bytes[0] ^= std::byte{1};
  at.restart();
  BOOST_TEST(at.refused == 6U);
  BOOST_TEST(at.store->status().blocks == 2U);
  BOOST_TEST(at.read(7) == done);
  for (std::uint64_t n = 2; n < 7; ++n) BOOST_TEST(at.read(n) == missing);
}

BOOST_AUTO_TEST_CASE(fields_that_do_not_go_together_are_no_block) {
  tier at;
  at.write(1);
  const stored_block good = *at.find(1).second;
  BOOST_TEST(adopted_from(good).has_value());
  const auto refuses = [&](auto change) {
    stored_block bad = good;
    change(bad);
    return !adopted_from(bad).has_value();
  };
  BOOST_TEST(refuses([](stored_block& bad) { bad.bytes = 0; }));
  BOOST_TEST(refuses([](stored_block& bad) { bad.bytes += 1; }));
  BOOST_TEST(refuses([](stored_block& bad) { bad.offset += 512; }));
  BOOST_TEST(refuses([](stored_block& bad) { bad.group = 1; }));
  BOOST_TEST(refuses([](stored_block& bad) { bad.key.lo ^= 1; }));
  BOOST_TEST(refuses([](stored_block& bad) { bad.full.size = 7; }));
  BOOST_TEST(refuses([](stored_block& bad) { bad.full.size = 65; }));
}

BOOST_AUTO_TEST_CASE(more_blocks_than_the_metadata_has_room_for_are_refused) {
  tier at;
  for (std::uint64_t n = 0; n < 10; ++n) at.write(n);
  at.options.max_blocks = 6;
  at.restart();
  BOOST_TEST(at.refused == 4U);
  BOOST_TEST(at.write(100) == done);
  BOOST_TEST(at.store->status().blocks == 6U);
}

BOOST_AUTO_TEST_CASE(blocks_of_an_instance_that_nobody_attached_to_wait_for_it) {
  tier at;
  at.write(1, 2);
  at.options.block_bytes = {{1, 4 * KiB}};
  at.restart();
  BOOST_TEST(at.store->status().blocks == 1U);
  BOOST_TEST(!at.contains(1, 2));
  at.store->bind(2, identity_of_instance(2), {});
  BOOST_TEST(at.contains(1, 2));
  at.options.block_bytes.emplace(2, 4 * KiB);
  BOOST_TEST(at.read(1, 2) == done);
}

BOOST_AUTO_TEST_CASE(what_an_instance_leaves_when_it_is_given_up_is_found_at_the_next_attach) {
  tier at;
  at.write(1);
  at.write(1, 2);
  at.store->unbind(1);
  BOOST_TEST(!at.contains(1));
  BOOST_TEST(at.contains(1, 2));
  BOOST_TEST(at.store->status().blocks == 2U);
  at.store->bind(9, identity_of_instance(1), {});
  BOOST_TEST(at.store->contains(9, short_key_of(1)));
  BOOST_TEST(!at.contains(1));  // the old number means nothing any more
  at.store->unbind(1);
  BOOST_TEST(at.store->contains(9, short_key_of(1)));
  BOOST_TEST(at.store->clear_identity(identity_of_instance(1)) == 1U);
}

/// The identities whose names go with this tick, from every path.
std::vector<instance_identity> names_that_go(tier& tier) {
  tier.journal = true;
  for (auto& path : tier.paths) path.log.clear();
  tier.tick();
  std::map<instance_identity, std::size_t> paths;
  for (const auto& path : tier.paths) {
    for (const catalog_change& each : path.log) {
      if (each.what == catalog_change::kind::erase_name) ++paths[each.block.instance];
    }
  }
  std::vector<instance_identity> gone;
  for (const auto& [identity, count] : paths) {
    BOOST_TEST(count == tier.paths.size());
    gone.push_back(identity);
  }
  BOOST_TEST((tier.store->take_nameless() == gone));
  return gone;
}

BOOST_AUTO_TEST_CASE(of_an_instance_that_leaves_nothing_the_name_goes_too) {
  tier at;
  at.write(1);
  at.store->unbind(1);
  at.store->unbind(2);
  BOOST_TEST((names_that_go(at) == std::vector{identity_of_instance(2)}));
  BOOST_TEST(names_that_go(at).empty());
}

BOOST_AUTO_TEST_CASE(with_the_last_block_that_an_instance_left_its_name_goes) {
  tier at;
  at.write(1);
  at.write(2);
  at.write(3, 2);
  at.store->unbind(1);
  BOOST_TEST(at.store->clear_identity(identity_of_instance(2)) == 1U);
  BOOST_TEST(names_that_go(at).empty(), "somebody is attached to the one, and the other has blocks");
  for (std::uint64_t n = 100; at.store->status().counters.evicted < 3; ++n) at.write(n, 2);
  BOOST_TEST((names_that_go(at) == std::vector{identity_of_instance(1)}));
}

BOOST_AUTO_TEST_CASE(whoever_attaches_before_keeps_the_name) {
  tier at;
  at.store->unbind(1);
  at.store->bind(9, identity_of_instance(1), {});
  BOOST_TEST(names_that_go(at).empty());
  at.store->note_name(identity_of_instance(1));
  at.store->note_name(4711_identity);  // the paths have its name, and nothing else
  BOOST_TEST((names_that_go(at) == std::vector{4711_identity}));
}

BOOST_AUTO_TEST_CASE(when_all_numbers_of_instances_hold_blocks_the_smallest_idle_ones_make_way_for_a_new_one) {
  store_options options;
  options.paths = 1;
  nvme::store store(options);
  constexpr std::uint64_t blocks = 70'000;
  store.open_path(0, path_file::data_offset, path_file::data_offset + blocks * sector_bytes, blocks);
  std::uint64_t place = 0;
  const auto adopt = [&](const instance_identity& owner, std::uint64_t n) {
    const std::uint64_t offset = path_file::data_offset + place++ * sector_bytes;
    return store.adopt(0, {.key = short_key_of(n), .offset = offset, .sectors = 1, .touch = wall_time_of(100)}, owner);
  };
  for (std::uint64_t n = 0; n < 100; ++n) BOOST_REQUIRE(adopt(1_identity, n));
  BOOST_REQUIRE(adopt(2_identity, 0));
  BOOST_REQUIRE(store.bind(2, 2_identity, {}));
  for (std::uint64_t n = 3; n < 65'536; ++n) BOOST_REQUIRE(adopt(numbered_identity(1'000'000 + n), n));
  BOOST_TEST(store.bind(3, 3_identity, {}));
  BOOST_TEST(store.contains(2, short_key_of(0)));  // attached, however small
  BOOST_REQUIRE(store.bind(1, 1_identity, {}));
  for (std::uint64_t n = 0; n < 100; ++n) BOOST_TEST(store.contains(1, short_key_of(n)));
  BOOST_TEST(store.status().counters.evicted == 256U);
}

BOOST_AUTO_TEST_CASE(when_all_numbers_of_instances_are_taken_those_that_hold_nothing_are_used_again) {
  tier at;
  at.write(1);
  constexpr instance_number last = 65'535;
  for (instance_number n = 3; n <= last; ++n) {  // the fixture has bound two
    BOOST_REQUIRE(at.store->bind(n, numbered_identity(1'000'000 + n), {}));
    if (n != last) at.store->unbind(n);
  }
  BOOST_REQUIRE(at.store->bind(last + 1, 7'777'777_identity, {}));  // before: number 0, whose blocks nobody sees
  at.options.block_bytes.emplace(last + 1, 4 * KiB);
  BOOST_TEST(at.read(1) == done);
  BOOST_TEST(!at.contains(1, last + 1));
  for (instance_number n = last + 2; n < last + 65'533; ++n)
    BOOST_REQUIRE(at.store->bind(n, numbered_identity(1'000'000 + n), {}));
  BOOST_TEST(!at.store->bind(last + 70'000, 1_identity, {}));  // all are in use
  BOOST_TEST(at.read(1) == done);
  at.store->unbind(last);
  BOOST_TEST(at.store->bind(last + 70'000, 1_identity, {}));
  BOOST_TEST(at.read(1) == done);
}

// ---- all together

BOOST_AUTO_TEST_CASE(random_work_never_uses_more_than_there_is_and_answers_everything_once) {
  for (std::uint64_t seed = 0;
       seed < (std::getenv("CENOTE_TEST_FULL") == nullptr ? 20U / cenote::testing::step_cost : 200U); ++seed) {
    BOOST_TEST_CONTEXT("seed " << seed) {
      std::mt19937_64 random(seed);
      tier_options options;
      options.store.paths = static_cast<std::uint32_t>(1 + seed % 3);
      options.store.keep_copy = seed % 5 != 0;
      options.store.second_sight = false;
      options.hints = seed % 4 == 0;
      if (seed % 2 == 0) options.max_blocks = 5 + random() % 30;
      options.block_bytes = {{1, 256 * KiB}, {2, seed % 2 == 0 ? 16 * KiB : 384 * KiB}};
      tier at(options);
      for (int life = 0; life < 3; ++life) {
        for (int step = 0; step < 400; ++step) random_step(at, random, 60, seed % 3 != 0);
        at.release();
        at.settle();
        at.release();
        BOOST_TEST(at.unanswered() == 0U);
        BOOST_TEST(at.store->status().bytes_in_flight == 0U);
        if (life % 2 == 0) {
          for (std::uint64_t n = 0; n < 5; ++n) at.ask_write(n);  // lost with the process
        }
        at.restart();
        BOOST_TEST(at.refused == 0U);
      }
      at.clear(1);
      at.clear(2);
      BOOST_TEST(at.store->status().used == 0U);
    }
  }
}

BOOST_AUTO_TEST_CASE(blocks_that_nobody_used_for_their_time_to_live_are_forgotten) {
  tier at;
  for (std::uint64_t n = 0; n < 4; ++n) BOOST_TEST((at.write(n) == transfer_result::done));
  BOOST_TEST((at.write(0, 2) == transfer_result::done));
  at.store->set_ttl(1, wall_seconds(60));
  at.now += wall_seconds(40);
  BOOST_TEST((at.read(2) == transfer_result::done));
  at.now += wall_seconds(40);
  at.tick();
  for (const std::uint64_t n : {0, 1, 3}) {
    BOOST_TEST(!at.contains(n));
    BOOST_TEST(!at.hinted(n));
  }
  BOOST_TEST(at.contains(2));  // used since
  BOOST_TEST(at.contains(0, 2));
  BOOST_TEST(at.store->status().counters.expired == 3U);
  BOOST_TEST(at.wrong == "");
}

BOOST_AUTO_TEST_CASE(another_policy_takes_over_what_the_tier_holds) {
  for (const std::string_view to : eviction::policy_names()) {
    tier at;
    for (std::uint64_t n = 0; n < 8; ++n) BOOST_TEST((at.write(n) == transfer_result::done));
    BOOST_TEST(at.store->set_policy(std::string(to)).has_value());
    for (std::uint64_t n = 0; n < 8; ++n) BOOST_TEST((at.read(n) == transfer_result::done));
    for (std::uint64_t n = 100; n < 2'000; ++n) BOOST_REQUIRE((at.write(n) == transfer_result::done));
    BOOST_TEST(at.store->status().counters.evicted > 0U);
    BOOST_TEST(at.wrong == "", to);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::nvme::store_test
