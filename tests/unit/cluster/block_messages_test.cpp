#include "transport/peer/block_messages.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <functional>
#include <random>

#include "tests/support/numbered_identity.hpp"

namespace {

using namespace cenote;
using namespace cenote::peer;

full_key key_of(std::size_t size, unsigned seed) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(seed + i);
  return full_key(bytes);
}

/// Every message, and what reads it.
struct sample {
  std::vector<std::byte> bytes;
  std::function<bool(std::span<const std::byte>)> reads;
};

std::vector<sample> samples() {
  const auto reader = [](auto decode) {
    return [decode](std::span<const std::byte> bytes) { return decode(bytes).has_value(); };
  };
  return {
      {encode(bind_request{1_identity, 2, std::vector<std::byte>(100)}), reader(decode_bind_request)},
      {encode(bind_answer{1, 2, "why"}), reader(decode_bind_answer)},
      {encode(unbind_request{1}), reader(decode_unbind_request)},
      {encode(locate_request{1, 2, {key_of(32, 1), key_of(32, 2)}}), reader(decode_locate_request)},
      {encode(locate_answer{std::vector<bool>(77, true)}), reader(decode_locate_answer)},
      {encode(block_request{1, 2, {{3, key_of(16, 1)}, {4, key_of(16, 2)}}}), reader(decode_block_request)},
      {encode(block_answers{{3, block_answer::send}, {4, block_answer::full}}), reader(decode_block_answers)},
      {encode(elsewhere_answer{"n2", {3, 4}}), reader(decode_elsewhere_answer)},
      {encode(forget_request{1_identity, 2, {{3, 4}, {5, 6}}}), reader(decode_forget_request)},
      {encode(forget_answer{1, "why"}), reader(decode_forget_answer)},
      {encode(write_off_notice{{{"b", 5}, {"c", 6}}, {}}), reader(decode_write_off_notice)},
  };
}

}  // namespace

BOOST_AUTO_TEST_SUITE(block_messages)

BOOST_AUTO_TEST_CASE(what_is_encoded_is_read_again) {
  const auto bind = decode_bind_request(encode(bind_request{11_identity, 12, std::vector<std::byte>(5, std::byte{9})}));
  BOOST_REQUIRE(bind);
  BOOST_TEST(bind->identity == 11_identity);
  BOOST_TEST(bind->cleared == 12U);
  BOOST_TEST((bind->spec == std::vector<std::byte>(5, std::byte{9})));
  const auto bound = decode_bind_answer(encode(bind_answer{1, 2, "no"}));
  BOOST_REQUIRE(bound);
  BOOST_TEST(bound->handle == 1U);
  BOOST_TEST(bound->cleared == 2U);
  BOOST_TEST(bound->why == "no");
  BOOST_TEST(!bind->right.has_value());
  BOOST_TEST(!bound->right.has_value());
  proof right{};
  right.fill(std::byte{3});
  BOOST_TEST((decode_bind_request(encode(bind_request{11_identity, 12, {}, right}))->right == right));
  BOOST_TEST((decode_bind_answer(encode(bind_answer{1, 2, "", right}))->right == right));
  const auto locate = decode_locate_request(encode(locate_request{1, 2, {key_of(64, 1), key_of(64, 3)}}));
  BOOST_REQUIRE(locate);
  BOOST_TEST(!locate->cleared);
  BOOST_TEST((decode_locate_request(encode(locate_request{1, 2, {key_of(64, 1)}, 7}))->cleared == 7U));
  BOOST_TEST((locate->keys == std::vector{key_of(64, 1), key_of(64, 3)}));
  locate_answer held;
  for (unsigned i = 0; i < 19; ++i) held.held.push_back(i % 3 == 0);
  const auto located = decode_locate_answer(encode(held));
  BOOST_REQUIRE(located);
  BOOST_TEST((located->held == held.held));
  const auto fetch = decode_block_request(encode(block_request{7, 8, {{3, key_of(8, 1)}, {4, key_of(8, 2)}}}));
  BOOST_REQUIRE(fetch);
  BOOST_TEST(fetch->handle == 7U);
  BOOST_TEST(fetch->group == 8U);
  BOOST_TEST((fetch->blocks == block_request{7, 8, {{3, key_of(8, 1)}, {4, key_of(8, 2)}}}.blocks));
  BOOST_TEST(!fetch->cleared);
  const auto offer = decode_block_request(encode(block_request{7, 8, {{3, key_of(8, 1)}}, 0}));
  BOOST_REQUIRE(offer);
  BOOST_TEST((offer->cleared == 0U));
  const block_answers answers{{3, block_answer::stored}, {4, block_answer::wrong}};
  const auto answered = decode_block_answers(encode(answers));
  BOOST_REQUIRE(answered);
  BOOST_TEST((*answered == answers));
  const auto forget = decode_forget_request(encode(forget_request{1_identity, 2, {{3, 4}}}));
  BOOST_REQUIRE(forget);
  BOOST_TEST((forget->keys == std::vector<block_key>{{3, 4}}));
  BOOST_TEST(forget->spec.empty());
  const std::vector<std::byte> spec(5, std::byte{9});
  BOOST_TEST((decode_forget_request(encode(forget_request{1_identity, 2, {{3, 4}}, spec}))->spec == spec));
  const auto forgot = decode_forget_answer(encode(forget_answer{5, ""}));
  BOOST_REQUIRE(forgot);
  BOOST_TEST(forgot->removed == 5U);
  const auto notice = decode_write_off_notice(encode(write_off_notice{{{"b", 5}}, {3, 4}}));
  BOOST_REQUIRE(notice);
  BOOST_TEST((notice->nodes.front() == std::pair(std::string("b"), std::uint64_t{5})));
  BOOST_TEST((notice->closed == std::vector<std::uint64_t>{3, 4}));
}

BOOST_AUTO_TEST_CASE(a_body_that_was_cut_is_refused_and_one_that_grew_is_not) {
  for (const sample& each : samples()) {
    for (std::size_t size = 0; size < each.bytes.size(); ++size)
      BOOST_TEST(!each.reads(std::span(each.bytes).first(size)));
    auto longer = each.bytes;
    longer.resize(longer.size() + 9);
    BOOST_TEST(each.reads(longer));
  }
}

BOOST_AUTO_TEST_CASE(counts_and_widths_that_cannot_be_are_refused) {
  auto locate = encode(locate_request{1, 2, {key_of(32, 1)}});
  constexpr std::size_t count_at = 8;
  constexpr std::size_t width_at = 12;
  for (const int width : {0, 7, 65, 255}) {
    auto bad = locate;
    bad[width_at] = static_cast<std::byte>(width);
    BOOST_TEST(!decode_locate_request(bad));
  }
  for (const int count : {2, 255}) {
    auto bad = locate;
    bad[count_at] = static_cast<std::byte>(count);
    BOOST_TEST(!decode_locate_request(bad));
  }
  locate[count_at + 3] = std::byte{0xff};
  BOOST_TEST(!decode_locate_request(locate));
}

BOOST_AUTO_TEST_CASE(no_body_however_altered_is_read_beyond_its_end) {
  std::mt19937 random(5);
  for (const sample& each : samples()) {
    for (int round = 0; round < 5000; ++round) {
      auto bytes = each.bytes;
      for (unsigned flips = random() % 4 + 1; flips > 0; --flips)
        bytes[random() % bytes.size()] = static_cast<std::byte>(random());
      bytes.resize(random() % (bytes.size() + 1));
      (void)each.reads(bytes);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
