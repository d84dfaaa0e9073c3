#include "transport/peer/messages.hpp"

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <random>

#include "transport/peer/frame.hpp"
#include "transport/peer/handshake.hpp"

using namespace cenote;
using namespace cenote::peer;

namespace {

greeting some_greeting() {
  return {.cluster = "test",
          .name = "node-1",
          .version = "0.1.0",
          .where = {"10.0.0.1", 7000},
          .blocks_at = {"10.0.0.1", 7001},
          .born = incarnation::of(1234, 5),
          .once = new_nonce(),
          .features = 3,
          .weight = 1 << 30,
          .has_secret = true};
}

/// The bodies of all messages.
std::vector<std::vector<std::byte>> some_bodies() {
  return {encode(some_greeting()),
          encode_challenge({}, encode(some_greeting())),
          encode(welcome{}),
          encode(refuse{refusal::name_taken, "another node"}),
          encode(beat{1, 2, 3, 4}),
          encode(view{{{"a", {"h", 1}, incarnation::of(1, 1)}, {"b", {"host", 2}, incarnation::of(2, 2)}}})};
}

/// All decoders; none may crash or believe a length. How many of them took it.
int decode_all(std::span<const std::byte> body) {
  return int{decode_hello(body).has_value()} + int{decode_challenge(body).has_value()} +
         int{decode_welcome(body).has_value()} + int{decode_refuse(body).has_value()} +
         int{decode_beat(body).has_value()} + int{decode_view(body).has_value()} + int{decode_frame(body).has_value()};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(messages)

BOOST_AUTO_TEST_CASE(a_greeting_arrives_as_it_was_sent) {
  const greeting sent = some_greeting();
  const auto got = decode_hello(encode(sent));
  BOOST_REQUIRE(got.has_value());
  BOOST_TEST(got->who.cluster == sent.cluster);
  BOOST_TEST(got->who.name == sent.name);
  BOOST_TEST(got->who.where.text() == sent.where.text());
  BOOST_TEST(got->who.blocks_at.text() == sent.blocks_at.text());
  BOOST_TEST((got->who.born == sent.born));
  BOOST_TEST((got->who.once == sent.once));
  BOOST_TEST(got->who.weight == sent.weight);
  BOOST_TEST(got->who.has_secret);
}

BOOST_AUTO_TEST_CASE(more_at_the_end_is_a_later_versions_and_less_is_refused) {
  auto body = encode(some_greeting());
  for (std::size_t kept = 0; kept < body.size(); ++kept)
    BOOST_TEST(!decode_hello(std::span(body).first(kept)).has_value(), kept);
  body.push_back(std::byte{9});
  BOOST_TEST(decode_hello(body).has_value());
}

BOOST_AUTO_TEST_CASE(names_that_would_steer_a_terminal_or_are_too_long_are_refused) {
  for (const std::string& wrong : {std::string(), std::string("a b"), std::string("\x1b[2J"), std::string(65, 'a')}) {
    greeting sent = some_greeting();
    sent.name = wrong;
    BOOST_TEST(!decode_hello(encode(sent)).has_value());
  }
}

BOOST_AUTO_TEST_CASE(a_view_that_lies_about_its_length_is_refused_before_anything_is_allocated) {
  std::vector<std::byte> body(4, std::byte{0xff});
  BOOST_TEST(!decode_view(body).has_value());
  body.resize(1 << 20, std::byte{0});
  BOOST_TEST(!decode_view(body).has_value());
}

BOOST_AUTO_TEST_CASE(a_frame_says_what_is_wrong_with_it) {
  const auto frame = encode_frame(frame_type::beat, 7, incarnation::of(1, 2), encode(beat{}));
  const auto got = decode_frame(frame);
  BOOST_REQUIRE(got.has_value());
  BOOST_TEST(got->request == 7U);
  BOOST_TEST(got->body.size() == frame.size() - frame_header_bytes);
  for (std::size_t at = 0; at < frame.size(); ++at) {
    auto changed = frame;
    changed[at] ^= std::byte{1};
    if (at != 5) BOOST_TEST(!decode_frame(changed).has_value(), at);
    BOOST_TEST(!decode_frame(std::span(frame).first(at)).has_value(), at);
  }
  auto newer = frame;
  newer[4] = std::byte{frame_major + 1};
  BOOST_TEST((decode_frame(newer).error().code() == error_code::protocol_mismatch));
  BOOST_TEST(decode_frame(newer).error().message().find("version " + std::to_string(frame_major + 1)) !=
             std::string::npos);
}

BOOST_AUTO_TEST_CASE(random_bytes_and_changed_messages_harm_nobody) {
  std::mt19937_64 random(1);
  const auto bodies = some_bodies();
  const int rounds = std::getenv("CENOTE_TEST_FULL") == nullptr ? 100000 : 1000000;
  int taken = 0;
  for (int i = 0; i < rounds; ++i) {
    auto body = bodies[random() % bodies.size()];
    for (auto changes = random() % 4; changes > 0 && !body.empty(); --changes)
      body[random() % body.size()] = static_cast<std::byte>(random());
    if (random() % 4 == 0) body.resize(random() % (body.size() + 8));
    taken += decode_all(body);
    taken += decode_all(encode_frame(static_cast<frame_type>(random() % 12), random(), {}, body));
  }
  BOOST_TEST(taken > rounds);  // the frames at least, whose check is right
}

BOOST_AUTO_TEST_CASE(incarnations_are_ordered_by_start_and_then_by_worker) {
  BOOST_TEST((incarnation::of(1, 2) < incarnation::of(1, 3)));
  BOOST_TEST((incarnation::of(1, 99) < incarnation::of(2, 1)));
  BOOST_TEST((incarnation::of(1, std::uint64_t{1} << 40) < incarnation::of(2, 1)));
  BOOST_TEST(incarnation::of(1790000000000, 3).started_ms() == 1790000000000U);
}

BOOST_AUTO_TEST_CASE(a_proof_needs_the_secret_both_greetings_and_the_right_side) {
  const std::vector<std::byte> one(32, std::byte{1}), other(32, std::byte{2});
  const auto a = encode(some_greeting());
  const auto b = encode(some_greeting());
  const auto right = agree(secret(one), a, b);
  BOOST_TEST(are_equal(right.of_listener, agree(secret(one), a, b).of_listener));
  BOOST_TEST(!are_equal(right.of_listener, agree(secret(other), a, b).of_listener));
  BOOST_TEST(!are_equal(right.of_listener, agree(secret(), a, b).of_listener));
  BOOST_TEST(!are_equal(right.of_listener, agree(secret(one), b, a).of_listener));
  BOOST_TEST(!are_equal(right.of_listener, right.of_dialler));
  BOOST_TEST(!are_equal(right.of_dialler, right.for_blocks));
}

BOOST_AUTO_TEST_SUITE_END()
