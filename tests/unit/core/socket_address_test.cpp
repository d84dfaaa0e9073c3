#include "core/socket_address.hpp"

#include <netinet/in.h>
#include <sys/un.h>

#include <boost/test/unit_test.hpp>
#include <future>
#include <stdexcept>

using namespace cenote;

BOOST_AUTO_TEST_SUITE(socket_addresses_of_names)

BOOST_AUTO_TEST_CASE(numbers_are_read_without_a_lookup_and_names_are_not_numbers) {
  const auto v4 = numeric_address({"127.0.0.1", 80});
  BOOST_REQUIRE(v4.has_value());
  BOOST_TEST(v4->where().text() == "127.0.0.1:80");
  BOOST_TEST(numeric_address({"::1", 80})->where().text() == "[::1]:80");
  for (const char* const name : {"localhost", "127.evil.example", "127.1", ""})
    BOOST_TEST(!numeric_address({name, 80}).has_value(), name);
}

BOOST_AUTO_TEST_CASE(loopback_and_what_means_every_address_are_told_by_their_numbers) {
  BOOST_TEST(numeric_address({"127.9.9.9", 0})->is_loopback());
  BOOST_TEST(numeric_address({"::1", 0})->is_loopback());
  BOOST_TEST(!numeric_address({"10.0.0.1", 0})->is_loopback());
  BOOST_TEST(numeric_address({"0.0.0.0", 0})->is_wildcard());
  BOOST_TEST(numeric_address({"::", 0})->is_wildcard());
  BOOST_TEST(!numeric_address({"127.0.0.1", 0})->is_wildcard());
  BOOST_TEST(!socket_address::of(sockaddr_un{.sun_family = AF_UNIX, .sun_path = {}}).is_loopback());
}

BOOST_AUTO_TEST_CASE(a_host_is_the_same_at_another_port) {
  const auto one = numeric_address({"10.0.0.1", 1});
  BOOST_TEST(one->is_same_host(*numeric_address({"10.0.0.1", 2})->get()));
  BOOST_TEST(!one->is_same_host(*numeric_address({"10.0.0.2", 1})->get()));
  BOOST_TEST(!one->is_same_host(*numeric_address({"::1", 1})->get()));
}

BOOST_AUTO_TEST_CASE(nodes_reach_each_other_by_the_first_ipv4_address_and_by_no_other) {
  const socket_addresses both{*numeric_address({"::1", 7000}), *numeric_address({"127.0.0.1", 7000}),
                              *numeric_address({"127.0.0.2", 7000})};
  BOOST_TEST(node_address_among("both.example", both)->where().text() == "127.0.0.1:7000");
  const auto none = node_address_among("six.example", std::span(both).first(1));
  BOOST_REQUIRE(!none);
  BOOST_TEST(none.error().message().starts_with("`six.example` is an IPv6 address, or has no other"));
  BOOST_TEST(node_address({"127.0.0.1", 1})->where().text() == "127.0.0.1:1");
  BOOST_TEST(!node_address({"::1", 1}).has_value());
}

BOOST_AUTO_TEST_CASE(a_lookup_that_throws_is_answered_with_an_error) {
  std::promise<result<socket_addresses>> told;
  const auto begun = look_up_later(
      {"h", 1}, [](const endpoint&) -> result<socket_addresses> { throw std::bad_alloc(); },
      [&](result<socket_addresses> found) { told.set_value(std::move(found)); });
  BOOST_REQUIRE(begun.has_value());
  BOOST_TEST(!told.get_future().get().has_value());
}

BOOST_AUTO_TEST_SUITE_END()
