#include "device/copy_costs.hpp"

#include <boost/test/unit_test.hpp>

namespace cenote {

namespace {

constexpr std::uint64_t kib = 1024;

/// Blocks of keys and values of one layer, `run` bytes each, apart from each other.
copy_work page_runs(std::uint64_t blocks, std::uint64_t run) {
  return {blocks * 2 * run, 2 * blocks, 2 * blocks};
}
/// The same as rows of a stage, so many at one distance from each other.
copy_work stage_rows(std::uint64_t blocks, std::uint64_t run, std::uint64_t neighbours) {
  return {blocks * 2 * run, blocks, blocks / neighbours};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(copy_costs_of_pages)

BOOST_AUTO_TEST_CASE(a_batch_is_named_in_less_time_than_a_call_for_each_run) {
  BOOST_TEST(batches_pay(usual_copy_costs, page_runs(512, 32 * kib)));
  BOOST_TEST(!batches_pay(usual_copy_costs, stage_rows(512, 32 * kib, 32)));
  copy_costs older = usual_copy_costs;
  older.batched_row = 0;
  BOOST_TEST(!batches_pay(older, page_runs(512, 32 * kib)));
}

BOOST_AUTO_TEST_CASE(rows_in_few_calls_are_named_by_calls_and_rows_in_many_by_a_batch) {
  BOOST_TEST(!batches_pay(usual_copy_costs, stage_rows(512, 128 * kib, 32)));
  BOOST_TEST(batches_pay(usual_copy_costs, stage_rows(512, 128 * kib, 4)));  // a call costs the copy engine time, too
  BOOST_TEST(batches_pay(usual_copy_costs, stage_rows(512, 128 * kib, 2)));
}

BOOST_AUTO_TEST_CASE(runs_of_an_engines_page_pass_through_the_stage) {
  for (const std::uint64_t run : {16 * kib, 32 * kib, 64 * kib}) {
    BOOST_TEST((cheapest_way(usual_copy_costs, page_runs(512, run), stage_rows(512, run, 32)) == page_way::staged));
  }
}

BOOST_AUTO_TEST_CASE(long_runs_need_no_stage) {
  BOOST_TEST(
      (cheapest_way(usual_copy_costs, page_runs(64, 512 * kib), stage_rows(64, 512 * kib, 4)) == page_way::direct));
  BOOST_TEST((cheapest_way(usual_copy_costs, page_runs(64, 512 * kib), {}) == page_way::direct));
}

BOOST_AUTO_TEST_CASE(a_kernel_moves_what_copy_engines_would_take_much_longer_for) {
  BOOST_TEST((cheapest_way(usual_copy_costs, page_runs(512, kib), stage_rows(512, kib, 1)) == page_way::kernel));
  BOOST_TEST((cheapest_way(usual_copy_costs, page_runs(512, 4 * kib), {}) == page_way::kernel));
}

BOOST_AUTO_TEST_CASE(without_kernels_nothing_is_theirs) {
  copy_costs costs = usual_copy_costs;
  costs.kernel_byte = 0;
  BOOST_TEST((cheapest_way(costs, page_runs(512, kib), {}) == page_way::direct));
}

BOOST_AUTO_TEST_CASE(a_gpu_whose_copies_cost_more_takes_kernels_for_longer_runs) {
  copy_costs costs = usual_copy_costs;
  costs.row = 20'000;
  BOOST_TEST((cheapest_way(costs, page_runs(512, 32 * kib), stage_rows(512, 32 * kib, 32)) == page_way::kernel));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote
