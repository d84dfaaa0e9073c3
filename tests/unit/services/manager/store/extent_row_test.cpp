// Rows of extents: they come back as they were written, and damaged ones not at all.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "services/manager/store/extent_row.hpp"
#include "services/manager/store/journal.hpp"
#include "services/manager/store/row_seal.hpp"

namespace cenote::manager {

namespace {

const extent_name sample{.instance = 7, .extent = 0x0000'0001'0000'0002};
const std::string grant_name = row_name(static_cast<char>(row_kind::extent), sample);
const std::string states_name = row_name(static_cast<char>(row_kind::mask), sample);

bool same(const extent_grant& one, const extent_grant& other) {
  const auto same_link = [](const parent_link& a, const parent_link& b) {
    return a.position == b.position && a.has_parent == b.has_parent && a.parent == b.parent;
  };
  return one.name == other.name && one.nonce == other.nonce && one.deadline_ms == other.deadline_ms &&
         one.granted_at == other.granted_at && one.storage == other.storage && one.keys == other.keys &&
         one.specs == other.specs && std::ranges::equal(one.parents, other.parents, same_link);
}

extent_grant small_grant() {
  return {.name = sample,
          .nonce = 0x1122'3344'5566'7788,
          .deadline_ms = 1'700'000'000'123,
          .granted_at = 1'700'000'000,
          .storage = 254,
          .keys = {{.low = 1}, {.low = ~std::uint64_t{0}}, {.low = 3}},
          .specs = {5},
          .parents = {{.position = 0}, {.position = 2, .has_parent = true, .parent = {.low = 9, .high = 8}}}};
}

void check_round_trip(const extent_grant& grant) {
  const auto read = read_grant(grant_name, grant_row(grant_name, grant));
  BOOST_TEST_REQUIRE(read.has_value());
  BOOST_TEST(same(*read, grant));
}

extent_states some_states(std::size_t blocks) {
  extent_states states{.wrote_at = 77, .finish_mark = 0xabcd, .states = state_mask(blocks, location_state::writing)};
  for (std::size_t i = 0; i < blocks; ++i) states.states.set(i, static_cast<location_state>(i % 4));
  return states;
}

/// The promises to a reader.
void check_sound(const extent_grant& grant) {
  BOOST_TEST((!grant.keys.empty() && grant.keys.size() <= most_extent_blocks));
  BOOST_TEST((grant.specs.size() == 1 || grant.specs.size() == grant.keys.size()));
  for (std::size_t i = 0; i < grant.parents.size(); ++i) {
    BOOST_TEST(grant.parents[i].position < grant.keys.size());
    BOOST_TEST((i == 0 || grant.parents[i - 1].position < grant.parents[i].position));
  }
}

std::string content_of(const std::string& row) {
  return row.substr(seal_bytes);
}

std::string resealed(const std::string& row, const std::string& content) {
  return sealed(row, std::as_bytes(std::span(content)), 1);
}

/// Changes, cuts or lengthens a text.
std::string damaged(std::string text, std::mt19937_64& random) {
  const std::size_t hits = 1 + random() % 4;
  for (std::size_t i = 0; i < hits && !text.empty(); ++i) {
    switch (random() % 8) {
      case 0: text.resize(random() % text.size()); break;
      case 1: text.append(random() % 40, static_cast<char>(random())); break;
      case 2: text.erase(random() % text.size(), 1 + random() % 9); break;
      default: text[random() % text.size()] = static_cast<char>(random());
    }
  }
  return text;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(rows_of_extents)

BOOST_AUTO_TEST_CASE(names_of_rows_sort_by_instance_and_extent) {
  const auto row = [](std::uint64_t instance, std::uint64_t extent) {
    return row_name('e', {.instance = instance, .extent = extent});
  };
  BOOST_TEST((row(1, 0x100) < row(1, 0x101) && row(1, 0xff) < row(1, 0x100) && row(1, ~0ULL) < row(2, 0)));
  BOOST_TEST(row(1, 2).front() == 'e');
  const auto read = extent_of_row(grant_name);
  BOOST_TEST_REQUIRE(read.has_value());
  BOOST_TEST((*read == sample));
  BOOST_TEST(!extent_of_row("").has_value());
  BOOST_TEST(!extent_of_row(grant_name.substr(1)).has_value());
  BOOST_TEST(!extent_of_row(grant_name + "x").has_value());
}

BOOST_AUTO_TEST_CASE(grants_come_back_as_they_were) {
  check_round_trip(small_grant());
  extent_grant wide = small_grant();
  wide.keys[1].high = 1;
  check_round_trip(wide);
  extent_grant by_block = small_grant();
  by_block.specs = {1, 2, ~std::uint64_t{0}};
  check_round_trip(by_block);
  extent_grant single{.name = sample, .deadline_ms = -1, .keys = {{.low = 0}}, .specs = {1}};
  check_round_trip(single);
  extent_grant largest{.name = sample, .specs = {1}};
  for (std::uint64_t i = 0; i < most_extent_blocks; ++i) largest.keys.push_back({.low = i * 0x9e37'79b9, .high = i});
  check_round_trip(largest);
}

BOOST_AUTO_TEST_CASE(keys_of_64_bits_take_eight_bytes) {
  extent_grant grant{.name = sample, .keys = std::vector<cache_key>(1'000, cache_key{.low = 1}), .specs = {1}};
  const std::size_t narrow = grant_row(grant_name, grant).size();
  grant.keys[500].high = 1;
  BOOST_TEST(grant_row(grant_name, grant).size() == narrow + 8'000);
}

BOOST_AUTO_TEST_CASE(states_come_back_as_they_were) {
  for (const std::size_t blocks :
       {std::size_t{1}, std::size_t{31}, std::size_t{32}, std::size_t{33}, most_extent_blocks}) {
    const extent_states states = some_states(blocks);
    const auto read = read_states(states_name, states_row(states_name, states));
    BOOST_TEST_REQUIRE(read.has_value());
    BOOST_TEST((read->wrote_at == 77U && read->finish_mark == 0xabcdU && read->states.size() == blocks));
    BOOST_TEST(std::ranges::equal(read->states.words(), states.states.words()));
    for (std::size_t i = 0; i < std::min<std::size_t>(blocks, 200); ++i) {
      BOOST_TEST((read->states[i] == static_cast<location_state>(i % 4)));
    }
  }
}

BOOST_AUTO_TEST_CASE(checksums_come_back_with_the_states) {
  extent_states states = some_states(40);
  const std::string plain = states_row(states_name, states);
  states.checksums.specs = 0b101;
  for (std::uint64_t i = 0; i < 80; ++i) states.checksums.values.push_back(i * i);
  const std::string summed = states_row(states_name, states);
  BOOST_TEST(summed.size() == plain.size() + 8 * 81);
  const auto read = read_states(states_name, summed);
  BOOST_TEST_REQUIRE(read.has_value());
  BOOST_TEST((read->checksums == states.checksums && std::ranges::equal(read->states.words(), states.states.words())));
  BOOST_TEST(read_states(states_name, plain)->checksums.empty());
  states.checksums.values.pop_back();
  BOOST_TEST(!read_states(states_name, states_row(states_name, states)).has_value());
  states.checksums.values.resize(81);
  BOOST_TEST(!read_states(states_name, states_row(states_name, states)).has_value());
  states.checksums.specs = 0;
  BOOST_TEST(!read_states(states_name, states_row(states_name, states)).has_value());
}

BOOST_AUTO_TEST_CASE(a_mask_takes_the_words_of_its_blocks_alone) {
  state_mask mask(33, location_state::serving);
  BOOST_TEST((mask[0] == location_state::serving && mask[32] == location_state::serving));
  BOOST_TEST(!mask.assign(33, {0}));
  BOOST_TEST(!mask.assign(33, {0, 0, 0}));
  BOOST_TEST(mask.assign(64, {0, 1}));
  BOOST_TEST((mask[31] == location_state::none && mask[32] == location_state::writing));
}

BOOST_AUTO_TEST_CASE(rows_of_no_block_or_too_many_or_of_other_counts_are_refused) {
  extent_grant none = small_grant();
  none.keys.clear();
  none.parents.clear();
  BOOST_TEST(!read_grant(grant_name, grant_row(grant_name, none)).has_value());
  extent_grant many{.name = sample, .keys = std::vector<cache_key>(most_extent_blocks + 1), .specs = {1}};
  BOOST_TEST(!read_grant(grant_name, grant_row(grant_name, many)).has_value());
  extent_grant uneven = small_grant();
  uneven.specs = {1, 2};
  BOOST_TEST(!read_grant(grant_name, grant_row(grant_name, uneven)).has_value());
  extent_grant without_specs = small_grant();
  without_specs.specs.clear();
  BOOST_TEST(!read_grant(grant_name, grant_row(grant_name, without_specs)).has_value());
  for (const std::vector<parent_link>& parents :
       {std::vector<parent_link>{{.position = 3}}, std::vector<parent_link>{{.position = 1}, {.position = 1}},
        std::vector<parent_link>{{.position = 2}, {.position = 0}}, std::vector<parent_link>(4)}) {
    extent_grant grant = small_grant();
    grant.parents = parents;
    BOOST_TEST(!read_grant(grant_name, grant_row(grant_name, grant)).has_value());
  }
}

BOOST_AUTO_TEST_CASE(a_sound_seal_lets_no_other_form_of_a_grant_in) {
  constexpr std::size_t width_place = 21, keys_place = 38, link_flag_from_end = 17;
  extent_grant grant = small_grant();
  grant.keys[1].high = 1;
  const std::string content = content_of(grant_row(grant_name, grant));
  const auto is_taken = [&](std::size_t place, char value) {
    std::string other = content;
    other.at(place) = value;
    return read_grant(grant_name, resealed(grant_name, other)).has_value();
  };
  BOOST_TEST(is_taken(width_place, 1));
  BOOST_TEST(!is_taken(width_place, 2));
  BOOST_TEST(is_taken(keys_place + sizeof(cache_key) + 8, 2));
  BOOST_TEST(!is_taken(keys_place + sizeof(cache_key) + 8, 0));  // no key is wide then
  BOOST_TEST(is_taken(content.size() - link_flag_from_end, 1));
  BOOST_TEST(!is_taken(content.size() - link_flag_from_end, 2));
}

BOOST_AUTO_TEST_CASE(every_flipped_bit_and_every_cut_is_refused) {
  const std::string grant = grant_row(grant_name, small_grant());
  const std::string states = states_row(states_name, some_states(40));
  for (const std::string& row : {grant, states}) {
    const auto is_taken = [&](std::string_view value) {
      return read_grant(grant_name, value).has_value() || read_states(states_name, value).has_value();
    };
    BOOST_TEST(is_taken(row));
    for (std::size_t i = 0; i < row.size() * 8; ++i) {
      std::string flipped = row;
      flipped[i / 8] = static_cast<char>(static_cast<unsigned char>(flipped[i / 8]) ^ (1U << (i % 8)));
      BOOST_TEST(!is_taken(flipped), "bit " << i);
    }
    for (std::size_t size = 0; size < row.size(); ++size) BOOST_TEST(!is_taken(std::string_view(row).substr(0, size)));
    BOOST_TEST(!is_taken(row + '\0'));
  }
}

BOOST_AUTO_TEST_CASE(a_row_under_another_name_is_refused) {
  const std::string other = row_name('e', {.instance = 7, .extent = 3});
  BOOST_TEST(!read_grant(other, grant_row(grant_name, small_grant())).has_value());
  BOOST_TEST(!read_grant(grant_name, states_row(states_name, some_states(3))).has_value());
}

// A sound seal around content that is not: a writer of another make, or an attacker with the store in hand.
BOOST_AUTO_TEST_CASE(ten_thousand_damages_crash_nothing) {
  std::mt19937_64 random(20'261'128);
  extent_grant wide = small_grant();
  wide.keys[0].high = 4;
  wide.specs = {1, 2, 3};
  const std::vector<std::string> grants{grant_row(grant_name, small_grant()), grant_row(grant_name, wide)};
  const std::string states = states_row(states_name, some_states(70));
  std::size_t taken = 0;
  for (int i = 0; i < 10'000; ++i) {
    const std::string& grant = grants[static_cast<std::size_t>(i) % 2];
    BOOST_TEST(!read_grant(grant_name, damaged(grant, random) + "x").has_value());
    const auto read = read_grant(grant_name, resealed(grant_name, damaged(content_of(grant), random)));
    if (read) {
      check_sound(*read);
      ++taken;
    }
    const auto mask = read_states(states_name, resealed(states_name, damaged(content_of(states), random)));
    if (mask) BOOST_TEST(mask->states.words().size() == (mask->states.size() + 31) / 32);
  }
  BOOST_TEST(taken > 0U);  // else only the seal was tried
}

BOOST_AUTO_TEST_CASE(a_finish_comes_back_and_is_no_row_of_states) {
  const extent_finish finish{.nonce = ~std::uint64_t{7}, .wrote_at = 77, .finish_mark = 0xabcd, .blocks = 65'536};
  const std::string value = finish_row(states_name, finish);
  const auto read = read_finish(states_name, value);
  BOOST_TEST_REQUIRE(read.has_value());
  BOOST_TEST((read->nonce == finish.nonce && read->wrote_at == 77U && read->finish_mark == 0xabcdU));
  BOOST_TEST(read->blocks == 65'536U);
  BOOST_TEST(!read_states(states_name, value).has_value());
  BOOST_TEST(!read_finish(states_name, states_row(states_name, some_states(3))).has_value());
  BOOST_TEST(!read_finish(grant_name, value).has_value());
  for (const std::uint32_t blocks : {0U, 65'537U}) {
    BOOST_TEST(!read_finish(states_name, finish_row(states_name, {.nonce = 1, .blocks = blocks})).has_value());
  }
  for (std::size_t size = 0; size < value.size(); ++size) {
    BOOST_TEST(!read_finish(states_name, value.substr(0, size)).has_value());
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
