// Messages in all their forms, and what is none.
#include "services/indexer/subscriber/wire_frames.hpp"

#include <boost/test/unit_test.hpp>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "transport/zmq/number_frame.hpp"

using namespace cenote;
using namespace cenote::indexer;

namespace {

constexpr std::uint64_t highest = std::numeric_limits<std::uint64_t>::max();

std::string number_bytes(std::uint64_t number) {
  const auto bytes = zmq::number_frame(number);
  return {bytes.data(), bytes.size()};
}

zmq::multipart_message message_of(const std::vector<std::string>& parts) {
  zmq::multipart_message message;
  for (const std::string& each : parts) {
    zmq::message_part& part = message.append();
    ::zmq_msg_init_size(part.get(), each.size());
    if (!each.empty()) std::memcpy(::zmq_msg_data(part.get()), each.data(), each.size());
  }
  return message;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(frames_on_the_wire)

BOOST_AUTO_TEST_CASE(numbers_are_big_endian) {
  BOOST_TEST(number_bytes(0x0102030405060708) == "\1\2\3\4\5\6\7\x8");
  BOOST_TEST(number_bytes(highest) == std::string(8, '\xff'));
}

BOOST_AUTO_TEST_CASE(a_live_batch_has_a_topic_a_number_and_a_payload) {
  const auto message = message_of({"kv@a@m", number_bytes(258), "payload"});
  const auto batch = live_batch_of(message);
  BOOST_REQUIRE(batch.has_value());
  BOOST_TEST(batch->topic == "kv@a@m");
  BOOST_TEST(batch->seq == 258U);
  BOOST_TEST(message.part(batch->payload).text() == "payload");
}

BOOST_AUTO_TEST_CASE(an_answer_has_a_topic_or_none) {
  const auto with = message_of({"", "kv@a@m", number_bytes(3), "payload"});
  BOOST_TEST(answer_of(with).value().topic == "kv@a@m");
  BOOST_TEST(answer_of(with).value().seq == 3U);
  const auto bare = message_of({"", number_bytes(4), "payload"});
  BOOST_TEST(!answer_of(bare).value().has_topic);
  BOOST_TEST(answer_of(bare).value().seq == 4U);
  BOOST_TEST(bare.part(answer_of(bare).value().payload).text() == "payload");
}

BOOST_AUTO_TEST_CASE(other_parts_are_no_batch) {
  const std::vector<std::vector<std::string>> wrong{
      {},
      {"kv@a@m"},
      {"kv@a@m", number_bytes(1)},
      {"kv@a@m", number_bytes(1), "payload", "more"},
      {"kv@a@m", "1", "payload"},
      {"kv@a@m", number_bytes(1) + "x", "payload"},
      {std::string(513, 't'), number_bytes(1), "payload"},
      std::vector<std::string>(20, number_bytes(1)),
  };
  for (const auto& parts : wrong) BOOST_TEST(!live_batch_of(message_of(parts)).has_value());
  const std::vector<std::vector<std::string>> wrong_answers{
      {},
      {"", number_bytes(1)},
      {"x", number_bytes(1), "payload"},
      {"", "1", "payload"},
      {"", std::string(513, 't'), number_bytes(1), "payload"},
      {"", "kv@a@m", "1", "payload"},
      {"", "kv@a@m", number_bytes(1), "payload", "more"},
  };
  for (const auto& parts : wrong_answers) BOOST_TEST(!answer_of(message_of(parts)).has_value());
}

BOOST_AUTO_TEST_CASE(a_replay_ends_with_the_highest_number_and_a_snapshot_with_nothing) {
  BOOST_TEST(is_end({.seq = highest}, 0, replay_kind::whole));
  BOOST_TEST(is_end({.seq = highest}, 0, replay_kind::snapshot));
  BOOST_TEST(!is_end({.seq = 5}, 0, replay_kind::check));
  BOOST_TEST(is_end({.seq = 5}, 0, replay_kind::snapshot));
  BOOST_TEST(!is_end({.seq = 5}, 1, replay_kind::snapshot));
}

BOOST_AUTO_TEST_CASE(requests_are_a_start_or_the_word_snapshot) {
  BOOST_TEST(request_of({.kind = replay_kind::check, .start = 7}) == number_bytes(7));
  BOOST_TEST(request_of({.kind = replay_kind::whole}) == number_bytes(0));
  BOOST_TEST(request_of({.kind = replay_kind::snapshot}) == "snapshot");
}

BOOST_AUTO_TEST_SUITE_END()
