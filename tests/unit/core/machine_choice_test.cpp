#include "core/machine_choice.hpp"

#include <boost/test/unit_test.hpp>

#include <thread>
#include <vector>

#include "core/bulk_copy.hpp"
#include "core/checksum.hpp"
#include "core/copy_routines.hpp"
#include "core/running_checksum.hpp"

namespace {

using namespace cenote;

/// Leaves the process with the choice of one that nothing was handed to.
struct choice_fixture {
  choice_fixture() = default;
  choice_fixture(const choice_fixture&) = delete;
  choice_fixture& operator=(const choice_fixture&) = delete;
  ~choice_fixture() {
    use_choice(words_of({.copies = {copy_choice{memcpy_number, 0}, copy_choice{memcpy_number, 0}},
                         .hashed_copy = memcpy_number,
                         .checksum = checksum_variants().back().number}));
  }
};

std::vector<std::byte> counted_bytes(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
  return bytes;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(machine_choice_suite, choice_fixture)

BOOST_AUTO_TEST_CASE(a_choice_survives_its_words) {
  const machine_choice choice{
      .copies = {copy_choice{37, 1U << 17}, copy_choice{2, 0xffffffff}}, .hashed_copy = 18, .checksum = 3};
  BOOST_TEST((choice_in(words_of(choice)) == choice));
  BOOST_TEST((choice_in({}) == machine_choice{}));
  BOOST_TEST((words_of({}) == choice_words{}));
}

BOOST_AUTO_TEST_CASE(a_word_of_0_leaves_what_there_is) {
  const choice_words chosen = words_of({.copies = {copy_choice{2, 100}, copy_choice{1, 200}}, .checksum = 1});
  use_choice(chosen);
  use_choice({});
  BOOST_TEST((words_in_use() == chosen));
  use_choice({0, chosen[0], 0});
  BOOST_TEST((words_in_use() == choice_words{chosen[0], chosen[0], chosen[2]}));
}

BOOST_AUTO_TEST_CASE(copies_and_sums_are_right_whatever_the_words_say) {
  const auto source = counted_bytes(100'000);
  const std::uint64_t sum = checksum_of(source);
  for (unsigned number = 0; number < 256; ++number) {
    const std::uint64_t word = number | (std::uint64_t{number} << 8) | (std::uint64_t{4096} << 32);
    use_choice({word, word, word});
    for (const std::size_t size : {std::size_t{1000}, source.size()}) {
      std::vector<std::byte> target(size);
      bulk_copy(target.data(), source.data(), size, copy_direction::from_blocks);
      BOOST_TEST(std::equal(target.begin(), target.end(), source.begin()));
      std::vector<std::byte> piece(size);
      bulk_copy_piece(piece.data(), source.data(), size, copy_direction::to_blocks);
      BOOST_TEST(std::equal(piece.begin(), piece.end(), source.begin()));
    }
    std::vector<std::byte> target(source.size());
    running_checksum running;
    running.copy(target.data(), source);
    BOOST_TEST(target == source);
    BOOST_TEST(running.value() == sum);
    BOOST_TEST(checksum_of(source) == sum);
  }
}

BOOST_AUTO_TEST_CASE(the_checksum_is_taken_by_what_is_chosen) {
  for (const checksum_variant& each : checksum_variants()) {
    use_choice(words_of({.checksum = each.number}));
    BOOST_TEST(checksum_instructions() == each.name);
  }
}

BOOST_AUTO_TEST_CASE(a_choice_may_change_beside_copies) {
  const auto source = counted_bytes(50'000);
  std::atomic<bool> is_over{false};
  const std::jthread chooser([&] {
    for (std::uint8_t number = 0; !is_over; ++number)
      use_choice(words_of({.copies = {copy_choice{number, number}, {}}}));
  });
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::byte> target(source.size());
    bulk_copy(target.data(), source.data(), source.size(), copy_direction::from_blocks);
    if (target != source) BOOST_ERROR("other bytes");
  }
  is_over = true;
}

BOOST_AUTO_TEST_SUITE_END()
