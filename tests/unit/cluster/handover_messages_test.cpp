#include "transport/peer/handover_messages.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <random>
#include <string>

#include "core/byte_io.hpp"
#include "tests/support/numbered_identity.hpp"

namespace cenote::peer::handover_messages_test {

namespace {

full_key key_of(std::size_t size, unsigned seed) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(seed + i);
  return full_key(bytes);
}

follow_request some_follow() {
  return {.request = {.identity = 11_identity, .group = 2, .text = std::string("r\0\xff", 3)},
          .position = 9,
          .patience_ms = 700};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(handover_messages)

BOOST_AUTO_TEST_CASE(what_is_encoded_is_read_again) {
  const auto follow = decode_follow_request(encode(some_follow()));
  BOOST_REQUIRE(follow);
  BOOST_TEST((follow->request == some_follow().request));
  BOOST_TEST(follow->position == 9U);
  BOOST_TEST(follow->patience_ms == 700U);
  for (const std::size_t width : {8UL, 33UL, 64UL}) {
    const handed_keys made{.first = 5, .is_over = width == 33, .keys = {key_of(width, 1), key_of(width, 9)}};
    const auto handed = decode_handed_keys(encode(made));
    BOOST_REQUIRE(handed);
    BOOST_TEST(handed->first == 5U);
    BOOST_TEST(handed->is_over == (width == 33));
    BOOST_TEST((handed->keys == made.keys));
  }
  const auto none = decode_handed_keys(encode(handed_keys{.first = 0, .is_over = true, .keys = {}}));
  BOOST_REQUIRE(none);
  BOOST_TEST(none->keys.empty());
  BOOST_TEST(none->is_over);
}

BOOST_AUTO_TEST_CASE(a_reason_is_read_again_and_is_an_end_without_one_to_an_earlier_version) {
  const auto bytes = encode(handed_keys{.first = 3, .keys = {key_of(16, 1)}, .code = error_code::limit_exceeded});
  const auto refused = decode_handed_keys(bytes);
  BOOST_REQUIRE(refused);
  BOOST_TEST((refused->code == error_code::limit_exceeded));
  BOOST_TEST(refused->is_over);
  BOOST_TEST(refused->keys.size() == 1U);
  const auto ended = encode(handed_keys{.first = 3, .is_over = true, .keys = {key_of(16, 1)}});
  BOOST_TEST((decode_handed_keys(ended)->code == error_code::ok));
  BOOST_REQUIRE_EQUAL(bytes.size(), ended.size() + 2);  // the code comes after all that there was before
  BOOST_TEST(((bytes[8] & std::byte{1}) == std::byte{1}));
  for (std::size_t size = 0; size < bytes.size(); ++size) BOOST_TEST(!decode_handed_keys(std::span(bytes).first(size)));
  for (const int code : {0, 255, static_cast<int>(error_code::session_killed)}) {  // none of a request
    auto later = bytes;
    later[later.size() - 2] = static_cast<std::byte>(code);
    BOOST_TEST((decode_handed_keys(later)->code == error_code::closed));
  }
}

BOOST_AUTO_TEST_CASE(most_keys_of_the_largest_width_fit_into_a_frame) {
  handed_keys made;
  made.keys.assign(handed_keys::most, key_of(64, 3));
  const auto bytes = encode(made);
  BOOST_TEST(bytes.size() < std::size_t{1} << 20);
  BOOST_TEST(decode_handed_keys(bytes).has_value());
}

BOOST_AUTO_TEST_CASE(names_that_are_empty_or_too_long_are_refused) {
  auto what = some_follow();
  what.request.text.assign(64, 'x');
  BOOST_TEST(decode_follow_request(encode(what)).has_value());
  what.request.text.assign(65, 'x');
  BOOST_TEST(!decode_follow_request(encode(what)));
  what.request.text.clear();
  BOOST_TEST(!decode_follow_request(encode(what)));
}

BOOST_AUTO_TEST_CASE(counts_and_widths_that_the_body_does_not_hold_are_refused) {
  const auto of = [](std::uint64_t first, std::uint32_t count, std::uint8_t width, std::size_t bytes) {
    byte_writer writer;
    writer.put(first);
    writer.put(std::uint8_t{0});
    writer.put(count);
    writer.put(width);
    writer.put_raw(std::vector<std::byte>(bytes));
    return decode_handed_keys(std::move(writer).take()).has_value();
  };
  BOOST_TEST(of(0, 2, 16, 32));
  BOOST_TEST(!of(0, 3, 16, 32));
  BOOST_TEST(!of(0, ~std::uint32_t{0}, 16, 32));
  BOOST_TEST(!of(0, 4097, 8, 40000));
  BOOST_TEST(!of(0, 1, 7, 64));
  BOOST_TEST(!of(0, 1, 65, 80));
  BOOST_TEST(!of(0, 1, 0, 64));
  BOOST_TEST(!of(~std::uint64_t{0}, 1, 16, 16));
}

BOOST_AUTO_TEST_CASE(what_is_cut_short_is_refused_and_what_is_altered_harms_nobody) {
  const auto follow = encode(some_follow());
  const auto handed = encode(handed_keys{.first = 1, .is_over = false, .keys = {key_of(32, 1), key_of(32, 2)}});
  for (std::size_t size = 0; size < follow.size(); ++size)
    BOOST_TEST(!decode_follow_request(std::span(follow).first(size)));
  for (std::size_t size = 0; size < handed.size(); ++size)
    BOOST_TEST(!decode_handed_keys(std::span(handed).first(size)));
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    auto bytes = i % 2 == 0 ? follow : handed;
    for (int each = 0; each < 3; ++each) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    bytes.resize(random() % (bytes.size() + 8));
    const auto one = decode_follow_request(bytes);
    BOOST_TEST((!one || (!one->request.text.empty() && one->request.text.size() <= 64)));
    const auto other = decode_handed_keys(bytes);
    BOOST_TEST((!other || other->keys.size() <= handed_keys::most));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::peer::handover_messages_test
