// Many descriptors at once, those of message sockets among them.
#include "transport/zmq/poller.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <optional>
#include <string_view>
#include <utility>

#include "core/unique_fd.hpp"
#include "tests/support/event_publisher.hpp"
#include "transport/zmq/socket.hpp"

using namespace cenote;
using namespace cenote::zmq;
using namespace std::chrono_literals;

BOOST_AUTO_TEST_SUITE(poller_of_zmq)

BOOST_AUTO_TEST_CASE(a_socket_is_ready_when_a_message_came_and_not_after_it_is_read) {
  const auto context = message_context::make(16).value();
  auto receiver = message_socket::open(context, socket_kind::pair).value();
  auto sender = message_socket::open(context, socket_kind::pair).value();
  BOOST_REQUIRE(receiver.bind("inproc://ready"));
  BOOST_REQUIRE(sender.connect("inproc://ready"));
  auto poller = descriptor_poller::make().value();
  const auto watch = poller.add(receiver.descriptor().value(), 7).value();
  multipart_message message;
  while (receiver.receive(message).value()) {
  }
  BOOST_TEST(poller.wait(0ms).empty());
  BOOST_REQUIRE(sender.send(std::array<std::string_view, 1>{"news"}));
  BOOST_TEST((poller.wait(10s) == std::vector<descriptor_poller::token>{7}));
  BOOST_TEST(receiver.receive(message).value());
  while (receiver.receive(message).value()) {
  }
  BOOST_TEST(poller.wait(0ms).empty());
}

BOOST_AUTO_TEST_CASE(an_eventfd_wakes_it_and_a_watch_that_ended_does_not) {
  auto poller = descriptor_poller::make().value();
  const unique_fd one(::eventfd(1, EFD_NONBLOCK)), other(::eventfd(1, EFD_NONBLOCK));
  auto first = poller.add(one.get(), 1);
  BOOST_REQUIRE(first.has_value());
  {
    const auto second = poller.add(other.get(), 2).value();
    auto ready = poller.wait(10s);
    std::ranges::sort(ready);
    BOOST_TEST((ready == std::vector<descriptor_poller::token>{1, 2}));
  }
  BOOST_TEST((poller.wait(10s) == std::vector<descriptor_poller::token>{1}));
  BOOST_TEST(!poller.add(one.get(), 3).has_value());
}

BOOST_AUTO_TEST_SUITE_END()
