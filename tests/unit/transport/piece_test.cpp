#include "transport/ucx/piece.hpp"

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <random>

namespace {

using namespace cenote;

std::vector<std::byte> some_bytes(std::size_t count, unsigned seed) {
  std::vector<std::byte> made(count);
  std::mt19937 random(seed);
  for (std::byte& each : made) each = static_cast<std::byte>(random());
  return made;
}

/// Three pieces, one of them empty, and their bytes in a row.
struct message {
  std::vector<std::byte> data = some_bytes(1000, 1);
  std::vector<ucx::piece> pieces{
      {{.token = 1, .offset = 0, .total = 700, .checksum = 3, .handle = 4, .what = 5, .flags = 0},
       std::span(data).first(700)},
      {{.token = ~0ULL, .offset = ~0ULL, .total = ~0ULL, .checksum = ~0ULL, .handle = ~0U, .what = 9, .flags = 8}, {}},
      {{.token = 2, .offset = 4096, .total = 8192, .checksum = 0, .handle = 0, .what = 0, .flags = 0},
       std::span(data).subspan(700)}};
  std::vector<std::byte> header = ucx::encode(pieces);
};

void flip(std::vector<std::byte>& of, std::size_t at) {
  of[at] ^= std::byte{1};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(pieces)

BOOST_AUTO_TEST_CASE(the_pieces_of_a_message_come_back_each_with_its_own_bytes) {
  const message sent;
  const auto read = ucx::decode_pieces(sent.header, sent.data);
  BOOST_REQUIRE(read.size() == sent.pieces.size());
  for (std::size_t i = 0; i < read.size(); ++i) {
    BOOST_TEST((read[i].head == sent.pieces[i].head));
    BOOST_TEST(std::ranges::equal(read[i].bytes, sent.pieces[i].bytes));
  }
}

BOOST_AUTO_TEST_CASE(a_message_with_fewer_or_more_bytes_than_its_pieces_have_is_refused) {
  const message sent;
  BOOST_TEST(ucx::decode_pieces(sent.header, std::span(sent.data).first(999)).empty());
  BOOST_TEST(ucx::decode_pieces(sent.header, {}).empty());
  const auto longer = some_bytes(1001, 1);
  BOOST_TEST(ucx::decode_pieces(sent.header, longer).empty());
}

BOOST_AUTO_TEST_CASE(a_header_of_another_size_magic_version_or_number_of_pieces_is_refused) {
  const message sent;
  for (std::size_t size = 0; size < sent.header.size(); ++size)
    BOOST_TEST(ucx::decode_pieces(std::span(sent.header).first(size), sent.data).empty());
  for (std::size_t at = 0; at < 8; ++at) {
    auto other = sent.header;
    flip(other, at);
    BOOST_TEST(ucx::decode_pieces(other, sent.data).empty());
  }
  BOOST_TEST(ucx::decode_pieces(ucx::encode(std::span<const ucx::piece>()), {}).empty());
}

BOOST_AUTO_TEST_CASE(no_header_makes_a_piece_reach_beyond_the_message) {
  const message sent;
  std::mt19937 random(7);
  for (int round = 0; round < 20'000; ++round) {
    auto header = sent.header;
    for (unsigned i = 0; i < 1 + random() % 4; ++i) header[random() % header.size()] = static_cast<std::byte>(random());
    std::size_t bytes = 0;
    for (const ucx::piece& each : ucx::decode_pieces(header, sent.data)) {
      BOOST_REQUIRE((each.bytes.empty() || each.bytes.data() >= sent.data.data()));
      bytes += each.bytes.size();
    }
    BOOST_REQUIRE((bytes == 0 || bytes == sent.data.size()));
  }
}

BOOST_AUTO_TEST_CASE(a_ticket_comes_back_and_is_refused_with_a_byte_changed_in_front_or_missing) {
  peer::ticket proof{};
  proof.fill(std::byte{7});
  auto sent = ucx::encode(proof);
  BOOST_TEST((ucx::decode_ticket(sent) == proof));
  BOOST_TEST(!ucx::decode_ticket(std::span(sent).first(sent.size() - 1)));
  for (std::size_t at = 0; at < 8; ++at) {
    flip(sent, at);
    BOOST_TEST(!ucx::decode_ticket(sent));
    flip(sent, at);
  }
}

BOOST_AUTO_TEST_SUITE_END()
