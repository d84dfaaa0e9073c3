#include "transport/local/attach.hpp"

#include <boost/test/unit_test.hpp>

#include "transport/local/frame.hpp"

namespace cenote::local::attach_test {

namespace {

attach_request request_on(std::string device, std::uint32_t part) {
  attach_request made;
  made.spec.id = "test";
  made.spec.tokens_per_block = 16;
  made.spec.groups.push_back({.name = "default", .parts = {{"rank0", 4096}, {"rank1", 4096}}});
  made.max_pins = 8;
  made.token = "secret";
  made.client_name = "engine";
  made.call = 7;
  made.device = std::move(device);
  made.part = part;
  return made;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(attach_frames)

BOOST_AUTO_TEST_CASE(an_attach_says_the_device_and_the_part) {
  const auto got = decode_attach(encode(request_on("sim:0", 1), protocol_minor), protocol_minor);
  BOOST_REQUIRE(got);
  BOOST_TEST(got->device == "sim:0");
  BOOST_TEST(got->part == 1U);
  BOOST_TEST(got->call == 7U);
  BOOST_TEST(got->client_name == "engine");
  BOOST_TEST(got->spec.groups.front().parts.size() == 2U);
}

BOOST_AUTO_TEST_CASE(older_clients_attach_to_host_memory) {
  for (std::uint16_t minor = 0; minor < 8; ++minor) {
    const auto got = decode_attach(encode(request_on("sim:0", 1), minor), minor);
    BOOST_REQUIRE(got);
    BOOST_TEST(got->device.empty());
    BOOST_TEST(got->part == 0U);
    BOOST_TEST(got->token == "secret");
  }
}

BOOST_AUTO_TEST_CASE(an_attach_that_ends_before_its_part_or_names_a_device_in_no_words_is_refused) {
  auto payload = encode(request_on("sim:0", 1), 8);
  payload.pop_back();
  BOOST_TEST(!decode_attach(payload, 8).has_value());
  BOOST_TEST(!decode_attach(encode(request_on("sim\n0", 1), 8), 8).has_value());
  BOOST_TEST(!decode_attach(encode(request_on(std::string(1000, 'x'), 1), 8), 8).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::local::attach_test
