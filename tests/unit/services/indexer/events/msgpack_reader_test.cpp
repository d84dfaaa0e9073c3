#include "services/indexer/events/msgpack_reader.hpp"

#include <boost/test/unit_test.hpp>

#include "tests/support/msgpack_writer.hpp"

namespace cenote::indexer {

namespace {

using test::msgpack_writer;

/// A value that is skipped, with another one behind it.
bool is_passed_whole(msgpack_writer value) {
  const std::size_t size = value.data().size();
  const auto bytes = value.integer(77).data();
  msgpack_reader reader(bytes);
  const bool is_passed = reader.skip();
  if (!is_passed || reader.position() != size || reader.integer()->bits != 77) return false;
  for (std::size_t cut = 0; cut < size; ++cut) {  // each beginning of it is none
    const auto part = std::span(bytes).first(cut);
    msgpack_reader short_reader(part);
    if (short_reader.skip() || short_reader.whole()) return false;
  }
  return true;
}

msgpack_integer integer_in(const msgpack_writer& value) {
  msgpack_reader reader(value.data());
  const auto number = reader.integer();
  BOOST_REQUIRE(number);
  BOOST_TEST(reader.remaining() == 0U);
  return *number;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(msgpack_readers)

BOOST_AUTO_TEST_CASE(integers_of_every_width_have_their_value) {
  BOOST_TEST(integer_in(msgpack_writer().raw({0x7f})).bits == 127U);
  BOOST_TEST(integer_in(msgpack_writer().wide(0xcc, 0xff, 1)).bits == 255U);
  BOOST_TEST(integer_in(msgpack_writer().wide(0xcd, 0x1234, 2)).bits == 0x1234U);
  BOOST_TEST(integer_in(msgpack_writer().wide(0xce, 0xfedcba98, 4)).bits == 0xfedcba98U);
  BOOST_TEST(integer_in(msgpack_writer().wide(0xcf, ~0ULL, 8)).bits == ~0ULL);
  BOOST_TEST(!integer_in(msgpack_writer().wide(0xcf, ~0ULL, 8)).negative);
  for (const msgpack_writer& minus_two :
       {msgpack_writer().raw({0xfe}), msgpack_writer().wide(0xd0, 0xfe, 1), msgpack_writer().wide(0xd1, 0xfffe, 2),
        msgpack_writer().wide(0xd2, 0xfffffffe, 4), msgpack_writer().wide(0xd3, ~1ULL, 8)}) {
    BOOST_TEST(integer_in(minus_two).bits == ~1ULL);
    BOOST_TEST(integer_in(minus_two).negative);
    BOOST_TEST(integer_in(minus_two).held_by<std::int32_t>().value() == -2);
    BOOST_TEST(!integer_in(minus_two).held_by<std::uint64_t>().has_value());
  }
  BOOST_TEST(!integer_in(msgpack_writer().wide(0xd1, 0x7fff, 2)).negative);
  BOOST_TEST(!integer_in(msgpack_writer().wide(0xce, 0x80000000, 4)).held_by<std::int32_t>().has_value());
}

BOOST_AUTO_TEST_CASE(words_take_32_bits_of_either_sign) {
  msgpack_writer made;
  made.integer(5).integer(200).integer(60'000).integer(150'000).raw({0xff}).wide(0xd2, 0x80000000, 4).wide(0xcf, 9, 8);
  made.integer(0xffff'ffff);
  std::vector<std::uint32_t> values(8);
  msgpack_reader reader(made.data());
  BOOST_TEST(reader.words(values));
  BOOST_TEST(values == (std::vector<std::uint32_t>{5, 200, 60'000, 150'000, 0xffff'ffff, 0x8000'0000, 9, 0xffff'ffff}),
             boost::test_tools::per_element());
  for (const msgpack_writer& other : {msgpack_writer().integer(1ULL << 32), msgpack_writer().wide(0xd3, ~0ULL << 32, 8),
                                      msgpack_writer().text("1"), msgpack_writer().nil(), msgpack_writer()}) {
    msgpack_reader others(other.data());
    BOOST_TEST(!others.words(std::span(values).first(1)));
  }
}

BOOST_AUTO_TEST_CASE(a_value_of_another_type_stays) {
  const auto bytes = msgpack_writer().text("text").data();
  msgpack_reader reader(bytes);
  BOOST_TEST(!reader.integer().has_value());
  BOOST_TEST(!reader.floating().has_value());
  BOOST_TEST(!reader.boolean().has_value());
  BOOST_TEST(!reader.bytes().has_value());
  BOOST_TEST(!reader.array().has_value());
  BOOST_TEST(!reader.map().has_value());
  BOOST_TEST(!reader.nil());
  BOOST_TEST(reader.whole());
  BOOST_TEST(reader.text().value() == "text");
  BOOST_TEST(!reader.text().has_value());  // the end
  BOOST_TEST(!reader.whole());
}

BOOST_AUTO_TEST_CASE(floating_point_numbers_have_their_value) {
  const auto bytes = msgpack_writer().floating(-1.25).wide(0xca, 0x3fa00000, 4).data();
  msgpack_reader reader(bytes);
  BOOST_TEST(reader.floating().value() == -1.25);
  BOOST_TEST(reader.floating().value() == 1.25);
}

BOOST_AUTO_TEST_CASE(every_form_is_passed_whole) {
  const std::vector<std::byte> run(300, std::byte{1});
  const auto with_run = [&](unsigned lead, unsigned width, std::size_t size) {
    msgpack_writer made;
    made.wide(lead, size, width);
    return made;
  };
  for (const unsigned lead : {0x00U, 0x7fU, 0xe0U, 0xffU, 0xc0U, 0xc2U, 0xc3U, 0x80U, 0x90U, 0xa0U}) {
    BOOST_TEST(is_passed_whole(msgpack_writer().raw({lead})), "lead " << lead);
  }
  for (unsigned lead = 0xca; lead <= 0xd3; ++lead) {  // numbers
    const unsigned width = lead == 0xca ? 4 : lead == 0xcb ? 8 : 1U << ((lead - 0xcc) & 3);
    BOOST_TEST(is_passed_whole(msgpack_writer().wide(lead, 1, width)), "lead " << lead);
  }
  for (unsigned i = 0; i < 3; ++i) {
    const std::size_t size = i == 0 ? 200 : 300;
    const auto part = std::span(run).first(size);
    BOOST_TEST(is_passed_whole(with_run(0xd9 + i, 1U << i, size).raw(part)));           // str
    BOOST_TEST(is_passed_whole(with_run(0xc4 + i, 1U << i, size).raw(part)));           // bin
    BOOST_TEST(is_passed_whole(with_run(0xc7 + i, 1U << i, size).raw({5}).raw(part)));  // ext: a type besides
  }
  for (unsigned i = 0; i < 5; ++i) {
    BOOST_TEST(is_passed_whole(msgpack_writer().raw({0xd4 + i, 5}).raw(std::span(run).first(std::size_t{1} << i))));
  }
  for (const unsigned lead : {0xdcU, 0xddU})
    BOOST_TEST(is_passed_whole(with_run(lead, lead == 0xdc ? 2 : 4, 300).raw(run)));
  for (const unsigned lead : {0xdeU, 0xdfU})
    BOOST_TEST(is_passed_whole(with_run(lead, lead == 0xde ? 2 : 4, 150).raw(run)));
  BOOST_TEST(is_passed_whole(msgpack_writer().array(2).map(1).text("k").array(1).nil().text("end")));
  const auto no_value = msgpack_writer().raw({0xc1}).data();
  msgpack_reader unused(no_value);
  BOOST_TEST(!unused.skip());
  BOOST_TEST(!unused.whole());
}

BOOST_AUTO_TEST_CASE(a_value_that_is_too_deep_is_passed_all_the_same) {
  msgpack_writer made;
  for (int i = 0; i < 100'000; ++i) made.array(2).nil();
  made.nil().integer(77);
  msgpack_reader reader(made.data());
  BOOST_TEST(!reader.skip());
  BOOST_TEST(reader.whole());
  BOOST_TEST(reader.integer().value().bits == 77U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::indexer
