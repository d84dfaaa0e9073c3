#include "tiers/nvme/slot_allocator.hpp"

#include <array>
#include <boost/test/unit_test.hpp>
#include <map>
#include <random>

#include "tests/support/step_cost.hpp"

namespace cenote::nvme {

namespace {

constexpr std::uint64_t kib = 1024;
constexpr std::uint64_t first_byte = 64 * kib;
constexpr std::uint64_t extent_bytes = 256 * kib;

/// What is used, kept the simple way: offset -> slot bytes.
class simple_space {
 public:
  explicit simple_space(std::uint64_t extents) : extents_(extents) {}

  [[nodiscard]] static std::uint64_t span(std::uint64_t slot) { return (slot + extent_bytes - 1) / extent_bytes; }
  [[nodiscard]] static std::uint64_t extent_of(std::uint64_t offset) { return (offset - first_byte) / extent_bytes; }

  /// The class of an extent, 0 when it is free.
  [[nodiscard]] std::uint64_t class_of(std::uint64_t extent) const {
    const auto after = used.lower_bound(first_byte + (extent + 1) * extent_bytes);
    if (after == used.begin()) return 0;
    const auto& [offset, slot] = *std::prev(after);
    return extent < extent_of(offset) + span(slot) ? slot : 0;
  }
  [[nodiscard]] bool can_hold(std::uint64_t offset, std::uint64_t slot) const {
    if (offset < first_byte || slot == 0 || slot % 4096 != 0) return false;
    const std::uint64_t extent = extent_of(offset);
    const std::uint64_t inside = (offset - first_byte) % extent_bytes;
    if (extent + span(slot) > extents_ || inside % slot != 0 || used.contains(offset)) return false;
    if (slot <= extent_bytes) {
      const std::uint64_t have = class_of(extent);
      return inside + slot <= extent_bytes && (have == 0 || have == slot);
    }
    for (std::uint64_t i = 0; i < span(slot); ++i) {
      if (class_of(extent + i) != 0) return false;
    }
    return inside == 0;
  }
  [[nodiscard]] std::uint64_t free_slots(std::uint64_t slot) const {
    simple_space copy = *this;
    std::uint64_t free = 0;
    const std::uint64_t step = slot <= extent_bytes ? slot : extent_bytes;
    for (std::uint64_t extent = 0; extent < extents_; ++extent) {
      for (std::uint64_t inside = 0; inside + step <= extent_bytes; inside += step) {
        const std::uint64_t offset = first_byte + extent * extent_bytes + inside;
        if (!copy.can_hold(offset, slot)) continue;
        copy.used[offset] = slot;
        ++free;
      }
    }
    return free;
  }
  [[nodiscard]] std::uint64_t used_bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& [offset, slot] : used) bytes += slot;
    return bytes;
  }
  [[nodiscard]] std::vector<std::uint64_t> slots_of(std::uint64_t extent) const {
    std::vector<std::uint64_t> found;
    for (const auto& [offset, slot] : used) {
      if (extent >= extent_of(offset) && extent < extent_of(offset) + span(slot)) found.push_back(offset);
    }
    return found;
  }
  /// The fewest used slots in an extent of another class.
  [[nodiscard]] std::optional<std::size_t> fewest(std::uint64_t except) const {
    std::optional<std::size_t> best;
    for (std::uint64_t extent = 0; extent < extents_; ++extent) {
      const std::uint64_t have = class_of(extent);
      if (have != 0 && have != except && (!best || slots_of(extent).size() < *best)) best = slots_of(extent).size();
    }
    return best;
  }

  std::map<std::uint64_t, std::uint64_t> used;

 private:
  std::uint64_t extents_;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(nvme_slot_allocator)

BOOST_AUTO_TEST_CASE(slots_in_a_row_are_neighbours) {
  slot_allocator space(first_byte, first_byte + 4 * extent_bytes, extent_bytes);
  for (std::uint64_t i = 0; i < 64; ++i) BOOST_TEST(space.allocate(16 * kib).value() == first_byte + i * 16 * kib);
  BOOST_TEST(!space.allocate(16 * kib).has_value());
  BOOST_TEST(space.used_bytes() == space.capacity_bytes());
  space.release(first_byte + 32 * kib);
  space.release(first_byte);
  BOOST_TEST(space.allocate(16 * kib).value() == first_byte);
}

BOOST_AUTO_TEST_CASE(an_extent_has_one_class_until_its_last_slot_goes) {
  slot_allocator space(first_byte, first_byte + extent_bytes, extent_bytes);
  const auto a = space.allocate(4 * kib);
  const auto b = space.allocate(4 * kib);
  BOOST_TEST(!space.allocate(8 * kib).has_value());
  BOOST_TEST(space.free_slots(8 * kib) == 0U);
  BOOST_TEST(space.emptiest_extent(8 * kib).value() == first_byte);
  BOOST_TEST(!space.emptiest_extent(4 * kib).has_value());
  BOOST_TEST((space.slots_of_extent(first_byte + 100 * kib) == std::vector{*a, *b}));
  space.release(*a);
  space.release(*b);
  BOOST_TEST(space.free_slots(8 * kib) == 32U);
  BOOST_TEST(space.allocate(8 * kib).has_value());
}

BOOST_AUTO_TEST_CASE(a_large_slot_takes_adjacent_extents) {
  slot_allocator space(first_byte, first_byte + 5 * extent_bytes, extent_bytes);
  const std::uint64_t large = 2 * extent_bytes + 4 * kib;
  const auto small = space.allocate(4 * kib);
  BOOST_TEST(space.free_slots(large) == 1U);
  BOOST_TEST(space.allocate(large).value() == first_byte + extent_bytes);
  BOOST_TEST(!space.allocate(large).has_value());
  BOOST_TEST((space.slots_of_extent(first_byte + 3 * extent_bytes) == std::vector{first_byte + extent_bytes}));
  space.release(first_byte + extent_bytes);
  space.release(*small);
  BOOST_TEST(space.used_bytes() == 0U);
  BOOST_TEST(space.allocate(large).value() == first_byte);
}

BOOST_AUTO_TEST_CASE(what_cannot_be_is_not_claimed) {
  slot_allocator space(first_byte, first_byte + 3 * extent_bytes + 4 * kib, extent_bytes);
  BOOST_TEST(space.capacity_bytes() == 3 * extent_bytes);
  BOOST_TEST(space.claim(first_byte + 24 * kib, 12 * kib));
  BOOST_TEST(!space.claim(first_byte + 24 * kib, 12 * kib));         // taken
  BOOST_TEST(!space.claim(first_byte + 16 * kib, 12 * kib));         // between two slots
  BOOST_TEST(!space.claim(first_byte + 21 * 12 * kib, 12 * kib));    // over the end of the extent
  BOOST_TEST(!space.claim(first_byte, 8 * kib));                     // of another class
  BOOST_TEST(!space.claim(first_byte - 12 * kib, 12 * kib));         // before the data
  BOOST_TEST(!space.claim(first_byte + 3 * extent_bytes, 4 * kib));  // in the rest
  BOOST_TEST(!space.claim(~std::uint64_t{0} - 4095, 4 * kib));       // far outside
  BOOST_TEST(!space.claim(first_byte + extent_bytes, 0));            // no class
  BOOST_TEST(!space.claim(first_byte + extent_bytes, 1000));         // no class
  BOOST_TEST(!space.claim(first_byte + extent_bytes, ~std::uint64_t{0} - 4095));
  BOOST_TEST(!space.claim(first_byte + 2 * extent_bytes, 2 * extent_bytes));  // over the end of the data
  BOOST_TEST(!space.claim(first_byte, 2 * extent_bytes));                     // over a used slot
  BOOST_TEST(space.claim(first_byte + extent_bytes, 2 * extent_bytes));
  BOOST_TEST(!space.allocate(8 * kib).has_value());
}

BOOST_AUTO_TEST_CASE(no_space_at_all) {
  slot_allocator space(first_byte, first_byte + extent_bytes - 1, extent_bytes);
  BOOST_TEST(space.capacity_bytes() == 0U);
  BOOST_TEST(!space.allocate(4 * kib).has_value());
  BOOST_TEST(space.free_slots(4 * kib) == 0U);
  BOOST_TEST(!space.emptiest_extent(0).has_value());
}

BOOST_AUTO_TEST_CASE(it_does_what_a_map_does) {
  constexpr std::uint64_t extents = 12;
  constexpr std::array classes{4 * kib, 12 * kib, 32 * kib, extent_bytes, extent_bytes + 4 * kib, 3 * extent_bytes};
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    std::mt19937_64 random(seed);
    slot_allocator space(first_byte, first_byte + extents * extent_bytes, extent_bytes);
    simple_space model(extents);
    for (int step = 0; step < 4'000 / cenote::testing::step_cost; ++step) {
      const std::uint64_t slot = classes[random() % classes.size()];
      const bool shrinking = step / 500 % 2 == 1;  // waves, so that extents change their class
      const auto what = random() % 10;
      if (what < (shrinking ? 2U : 6U)) {
        const auto offset = space.allocate(slot);
        BOOST_REQUIRE(offset.has_value() == (model.free_slots(slot) != 0));
        if (offset) BOOST_REQUIRE(model.can_hold(*offset, slot));
        if (offset) model.used[*offset] = slot;
      } else if (what < 8 && !model.used.empty()) {
        const auto victim = std::next(model.used.begin(), static_cast<std::ptrdiff_t>(random() % model.used.size()));
        space.release(victim->first);
        model.used.erase(victim);
      } else {
        const std::uint64_t offset = first_byte + random() % (extents * extent_bytes / 4096 + 2) * 4096;
        const bool fits = model.can_hold(offset, slot);
        BOOST_REQUIRE(space.claim(offset, slot) == fits);
        if (fits) model.used[offset] = slot;
      }
      BOOST_REQUIRE(space.used_bytes() == model.used_bytes());
      if (step % 16 != 0) continue;
      BOOST_REQUIRE(space.free_slots(slot) == model.free_slots(slot));
      const std::uint64_t extent = random() % extents;
      BOOST_REQUIRE((space.slots_of_extent(first_byte + extent * extent_bytes + 5) == model.slots_of(extent)));
      const auto emptiest = space.emptiest_extent(slot);
      BOOST_REQUIRE(emptiest.has_value() == model.fewest(slot).has_value());
      if (emptiest) BOOST_REQUIRE(space.slots_of_extent(*emptiest).size() == *model.fewest(slot));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::nvme
