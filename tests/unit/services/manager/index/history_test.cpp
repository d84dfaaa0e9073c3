// A long random history of an index beside plain dictionaries.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "tests/unit/services/manager/index/index_world.hpp"

#include "tests/support/step_cost.hpp"

namespace cenote::manager::test {

BOOST_AUTO_TEST_SUITE(histories_of_an_index)

namespace {

constexpr std::uint64_t key_count = 150;
constexpr std::uint8_t storages = 6;
constexpr std::size_t extent_count = 40;

/// A key of the dictionary: locations by the extent's number in the table, its parent.
struct plain_key {
  std::map<std::uint32_t, location> places{};
  std::optional<std::uint64_t> parent{};
  std::uint64_t birth = 0;         ///< of this key, which may have been there before
  std::uint64_t parent_birth = 0;  ///< of its parent then
};

class history {
 public:
  void step() {
    const std::uint64_t key = draw(key_count);
    switch (draw(8)) {
      case 0: renew_extent(); break;
      case 1:
      case 2:
      case 3: add(key); break;
      case 4: change(key); break;
      case 5: erase(key); break;
      case 6: finish_extent(); break;
      default: read(); break;
    }
  }
  void check_writer_side() {
    BOOST_REQUIRE(w_.index.count() == plain_.size());
    for (const auto& [key, plain] : plain_) {
      const std::uint32_t record = w_.index.find({.low = key});
      BOOST_REQUIRE(record != no_record);
      BOOST_REQUIRE(w_.index.key_of(record).low == key);
      BOOST_REQUIRE(w_.index.parent_of(record) == (has_parent(plain) ? w_.record(*plain.parent) : no_record));
      BOOST_REQUIRE(w_.index.children_of(record) == children_of(key));
    }
  }

 private:
  std::uint64_t draw(std::uint64_t bound) { return random_() % bound; }
  std::uint64_t specs_of(const location& place) { return w_.index.sets().mask(place.set); }
  extent_info info_of(std::uint32_t extent) { return w_.index.extents().get(extent); }

  bool has_parent(const plain_key& plain) const {
    if (!plain.parent) return false;
    const auto parent = plain_.find(*plain.parent);
    return parent != plain_.end() && parent->second.birth == plain.parent_birth;
  }
  std::size_t children_of(std::uint64_t key) const {
    return static_cast<std::size_t>(std::ranges::count_if(
        plain_, [&](const auto& each) { return each.second.parent == key && has_parent(each.second); }));
  }

  void renew_extent() {
    if (extents_.size() == extent_count) {
      const std::size_t i = draw(extents_.size());
      for (const auto& [key, plain] : plain_) {
        if (plain.places.contains(extents_[i])) return;
      }
      w_.index.extents().erase(extents_[i]);
      extents_.erase(extents_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    extents_.push_back(w_.extent(static_cast<std::uint8_t>(draw(storages)), 0));
  }
  void finish_extent() {
    if (!extents_.empty()) {
      w_.index.extents().set_wrote_at(extents_[draw(extents_.size())], static_cast<std::uint32_t>(1 + draw(1000)));
    }
    w_.order.rank[draw(storages)] = draw(4) == 0 ? read_order::unusable : static_cast<std::uint8_t>(draw(4));
  }
  void add(std::uint64_t key) {
    if (extents_.empty()) return;
    const location place{.extent = extents_[draw(extents_.size())],
                         .position = static_cast<std::uint16_t>(draw(65'536)),
                         .state = static_cast<location_state>(1 + draw(3)),
                         .set = w_.index.sets().number_of(1 + draw(31)).value()};
    if (!plain_.contains(key)) {
      plain_key plain{.birth = ++births_};
      const std::uint64_t parent = draw(key_count);
      const bool is_parent_there = plain_.contains(parent);
      if (is_parent_there) plain.parent = parent;
      if (is_parent_there) plain.parent_birth = plain_[parent].birth;
      w_.index.add({.low = key}, w_.index.find({.low = parent}));
      plain_[key] = plain;
    }
    const bool is_new = plain_[key].places.emplace(place.extent, place).second;
    BOOST_REQUIRE(w_.index.add_location(w_.record(key), place) == is_new);
  }
  /// An extent in which the key has a location, most often.
  std::uint32_t draw_extent(std::uint64_t key) {
    const auto plain = plain_.find(key);
    if (plain == plain_.end() || draw(10) == 0) return extents_.empty() ? 0 : extents_[draw(extents_.size())];
    return std::next(plain->second.places.begin(), static_cast<std::ptrdiff_t>(draw(plain->second.places.size())))
        ->first;
  }
  change_outcome expect(std::uint64_t key, std::uint32_t extent, location_state expected) {
    const auto plain = plain_.find(key);
    if (plain == plain_.end()) return change_outcome::not_found;
    const auto place = plain->second.places.find(extent);
    if (place == plain->second.places.end()) return change_outcome::not_found;
    return place->second.state == expected ? change_outcome::changed : change_outcome::mismatch;
  }
  void change(std::uint64_t key) {
    const std::uint32_t extent = draw_extent(key);
    const auto expected = static_cast<location_state>(1 + draw(3));
    const auto next = static_cast<location_state>(1 + draw(3));
    const change_outcome outcome = expect(key, extent, expected);
    BOOST_REQUIRE((w_.index.change_state(w_.index.find({.low = key}), extent, expected, next) == outcome));
    if (outcome == change_outcome::changed) plain_[key].places[extent].state = next;
  }
  void erase(std::uint64_t key) {
    const std::uint32_t extent = draw_extent(key);
    const auto expected = static_cast<location_state>(1 + draw(3));
    const change_outcome outcome = expect(key, extent, expected);
    bool is_key_gone = false;
    if (outcome == change_outcome::changed) {
      plain_[key].places.erase(extent);
      is_key_gone = plain_[key].places.empty();
      if (is_key_gone) plain_.erase(key);
    }
    BOOST_REQUIRE((w_.index.erase_location(w_.index.find({.low = key}), extent, expected) ==
                   erase_outcome{.outcome = outcome, .is_key_gone = is_key_gone}));
  }

  /// The specs that locations in storages up to a rank serve.
  std::uint64_t served(std::uint64_t key, unsigned most_rank) {
    std::uint64_t specs = 0;
    const auto plain = plain_.find(key);
    if (plain == plain_.end()) return 0;
    for (const auto& [extent, place] : plain->second.places) {
      const std::uint8_t rank = w_.order.rank[info_of(extent).storage];
      if (place.state == serving && rank <= most_rank && rank != read_order::unusable) specs |= specs_of(place);
    }
    return specs;
  }
  void check_part(std::uint64_t key, const found_part& part) {
    const auto& places = plain_.at(key).places;
    BOOST_REQUIRE(std::ranges::count_if(places, [&](const auto& entry) {
                    const extent_info info = info_of(entry.first);
                    return info.number == part.extent && info.storage == part.storage &&
                           info.wrote_at == part.wrote_at && entry.second.position == part.position &&
                           entry.second.state == serving && (part.specs & ~specs_of(entry.second)) == 0;
                  }) == 1);
  }
  /// Parts by rank, each with something of its own, and up to each rank all that there is.
  void check_entry(std::uint64_t key, const found_key& entry) {
    std::uint64_t specs = 0;
    unsigned rank = 0;
    for (const found_part& part : std::span(w_.answer.parts).subspan(entry.first_part, entry.parts)) {
      check_part(key, part);
      BOOST_REQUIRE((part.specs != 0 && (part.specs & specs) == 0));
      const unsigned part_rank = w_.order.rank[part.storage];
      if (part_rank > rank) BOOST_REQUIRE(specs == served(key, part_rank - 1));
      BOOST_REQUIRE(part_rank >= rank);
      rank = part_rank;
      specs |= part.specs;
    }
    BOOST_REQUIRE(specs == served(key, 254));
    BOOST_REQUIRE(entry.record == (specs == 0 ? no_record : w_.record(key)));
  }
  void check_entries(std::uint64_t first) {
    for (std::size_t i = 0; i < w_.answer.keys.size(); ++i) check_entry(first + i, w_.answer.keys[i]);
  }
  void read() {
    const std::uint64_t first = draw(key_count);
    const std::vector<cache_key> keys = row(first, draw(key_count - first + 10));
    w_.index.read_each(keys, w_.order, w_.answer);
    BOOST_REQUIRE(w_.answer.keys.size() == keys.size());
    check_entries(first);
    read_prefix(first, keys);
    read_window(first, keys);
    read_states(first, keys);
  }
  void read_prefix(std::uint64_t first, const std::vector<cache_key>& keys) {
    const prefix_rule rule{.all = random_() & random_() & random_() & 31, .last = random_() & random_() & 31};
    std::size_t hits = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const std::uint64_t specs = served(first + i, 254);
      if (specs == 0 || (specs & rule.all) != rule.all) break;
      if ((specs & rule.last) == rule.last) hits = i + 1;
    }
    BOOST_REQUIRE(w_.match(keys, rule) == hits);
    check_entries(first);
  }
  void read_window(std::uint64_t first, const std::vector<cache_key>& keys) {
    const std::size_t window = 1 + draw(4);
    std::optional<std::size_t> begin;
    for (std::size_t i = 0, present = 0; i < keys.size(); ++i) {
      present = served(first + i, 254) == 0 ? 0 : present + 1;
      if (present >= window) begin = i + 1 - window;
    }
    BOOST_REQUIRE((w_.index.match_window(keys, window, w_.order, w_.answer) == begin));
    BOOST_REQUIRE(w_.answer.keys.size() == (begin ? window : 0));
    if (begin) check_entries(first + *begin);
  }
  void read_states(std::uint64_t first, const std::vector<cache_key>& keys) {
    std::vector<key_state> states;
    w_.index.read_states(keys, states);
    std::vector<key_state> expected;
    for (std::uint32_t i = 0; i < keys.size(); ++i) {
      if (!plain_.contains(first + i)) continue;
      for (const auto& [extent, place] : plain_[first + i].places) {
        const extent_info info = info_of(extent);
        expected.push_back({.key = i,
                            .state = place.state,
                            .storage = info.storage,
                            .position = place.position,
                            .extent = info.number,
                            .specs = specs_of(place),
                            .wrote_at = info.wrote_at});
      }
    }
    const auto order = [](const key_state& each) { return std::pair(each.key, each.extent); };
    BOOST_REQUIRE(std::ranges::is_sorted(states, {}, &key_state::key));
    std::ranges::sort(states, {}, order);
    std::ranges::sort(expected, {}, order);
    BOOST_REQUIRE((states == expected));
  }

  index_world w_{};
  std::mt19937_64 random_{23};
  std::map<std::uint64_t, plain_key> plain_{};
  std::vector<std::uint32_t> extents_{};
  std::uint64_t births_ = 0;
};

}  // namespace

BOOST_AUTO_TEST_CASE(all_reads_of_a_random_history_are_those_of_a_dictionary) {
  history all;
  for (int i = 0; i < 100'000 / cenote::testing::step_cost; ++i) {
    all.step();
    if (i % 500 == 0) all.check_writer_side();
  }
  all.check_writer_side();
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::test
