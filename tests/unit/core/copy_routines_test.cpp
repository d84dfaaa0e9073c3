#include "core/copy_routines.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <set>
#include <vector>

namespace {

using namespace cenote;

constexpr std::size_t page = 4096;
constexpr std::size_t margin = 128;
constexpr std::byte blank{0x5a};

std::vector<std::byte> random_pattern(std::size_t size) {
  std::mt19937_64 random(31);
  std::vector<std::byte> bytes(size);
  for (std::byte& each : bytes) each = static_cast<std::byte>(random());
  return bytes;
}

/// Whether exactly `size` bytes at `target_shift` became those at `source_shift`.
bool copies_exactly(const copy_routine& routine, std::size_t size, std::size_t target_shift, std::size_t source_shift,
                    std::span<const std::byte> source, std::span<std::byte> target) {
  const auto used = target.first(size + target_shift + 2 * margin);
  std::ranges::fill(used, blank);
  routine.run(used.data() + margin + target_shift, source.data() + source_shift, size);
  const auto is_blank = [](std::byte each) { return each == blank; };
  return std::ranges::all_of(used.first(margin + target_shift), is_blank) &&
         std::memcmp(used.data() + margin + target_shift, source.data() + source_shift, size) == 0 &&
         std::ranges::all_of(used.subspan(margin + target_shift + size), is_blank);
}

/// Memory that ends where a page begins that nothing may touch.
class fenced_memory {
 public:
  explicit fenced_memory(std::size_t pages)
      : size_(pages * page),
        data_(static_cast<std::byte*>(
            ::mmap(nullptr, size_ + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    BOOST_REQUIRE(::mprotect(data_ + size_, page, PROT_NONE) == 0);
  }
  fenced_memory(const fenced_memory&) = delete;
  fenced_memory& operator=(const fenced_memory&) = delete;
  ~fenced_memory() { ::munmap(data_, size_ + page); }

  [[nodiscard]] std::span<std::byte> last(std::size_t bytes) const { return std::span(data_, size_).last(bytes); }

 private:
  std::size_t size_;
  std::byte* data_;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(copy_routines_suite)

BOOST_AUTO_TEST_CASE(memcpy_comes_first_and_no_two_routines_have_a_number_or_a_name) {
  const auto all = copy_routines();
  BOOST_REQUIRE(!all.empty());
  BOOST_TEST(all.front().number == memcpy_number);
  std::set<std::uint8_t> numbers;
  std::set<std::string> names;
  for (const copy_routine& each : all) {
    numbers.insert(each.number);
    names.insert(each.name);
    BOOST_TEST(&copy_routine_of(each.number) == &each);
  }
  BOOST_TEST(numbers.size() == all.size());
  BOOST_TEST(names.size() == all.size());
}

BOOST_AUTO_TEST_CASE(a_number_that_this_processor_does_not_have_is_memcpy) {
  std::set<std::uint8_t> known;
  for (const copy_routine& each : copy_routines()) known.insert(each.number);
  for (unsigned number = 0; number < 256; ++number) {
    const auto looked_up = static_cast<std::uint8_t>(number);
    if (!known.contains(looked_up)) BOOST_TEST(copy_routine_of(looked_up).number == memcpy_number);
  }
}

BOOST_AUTO_TEST_CASE(each_copies_exactly_the_bytes_at_all_sizes_shifts_and_tails) {
  const auto source = random_pattern(10 * page + 64);
  std::vector<std::byte> target(10 * page + 64 + 2 * margin);
  for (const copy_routine& routine : copy_routines()) {
    BOOST_TEST_CONTEXT(routine.name) {
      std::size_t wrong = 0;
      const auto check = [&](std::size_t size, std::size_t target_shift, std::size_t source_shift) {
        wrong += copies_exactly(routine, size, target_shift, source_shift, source, target) ? 0 : 1;
      };
      for (std::size_t size = 0; size < 320; ++size) check(size, size % 61, size % 64);
      for (std::size_t shift = 0; shift < 64; ++shift) {
        for (const std::size_t pages : {1, 2, 3, 4, 5, 8, 9}) {
          check(pages * page, shift, 63 - shift);
          check(pages * page + shift, 0, shift);
          check(pages * page - shift, shift, 0);
        }
      }
      BOOST_TEST(wrong == 0U);
    }
  }
}

BOOST_AUTO_TEST_CASE(none_reads_or_writes_behind_the_end) {
  const fenced_memory source(9);
  const fenced_memory target(9);
  const auto bytes = random_pattern(9 * page);
  std::ranges::copy(bytes, source.last(9 * page).begin());
  for (const copy_routine& routine : copy_routines()) {
    for (const std::size_t size :
         {std::size_t{1}, std::size_t{63}, page - 1, page, 2 * page + 100, 4 * page, 9 * page}) {
      routine.run(target.last(size).data(), source.last(size).data(), size);
      BOOST_TEST(std::ranges::equal(target.last(size), source.last(size)), routine.name << ", " << size << " bytes");
      std::ranges::fill(target.last(size), blank);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
