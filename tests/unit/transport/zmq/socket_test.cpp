// Sockets, their limits, and the events of their connections.
#include "transport/zmq/socket.hpp"

#include <array>
#include <boost/test/unit_test.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/event_publisher.hpp"
#include "transport/zmq/monitor.hpp"

using namespace cenote;
using namespace cenote::zmq;

namespace {

/// A bound subscriber with a monitor.
struct watched_subscriber {
  message_context context = message_context::make(64).value();
  message_socket socket;
  socket_monitor monitor;
  std::string endpoint;

  explicit watched_subscriber(const message_socket_options& options = {})
      : socket(message_socket::open(context, socket_kind::subscriber, options).value()),
        monitor(socket_monitor::open(context, socket).value()) {
    BOOST_REQUIRE(socket.subscribe(""));
    BOOST_REQUIRE(socket.bind("tcp://127.0.0.1:*"));
    endpoint = socket.bound_endpoint().value();
  }
  connection_event event() {
    std::optional<connection_event> found;
    test::wait_until([&] { return (found = monitor.next()).has_value(); });
    return *found;
  }
  void receive(multipart_message& message, test::event_publisher& publisher) {
    test::wait_until([&] { return socket.receive(message).value(); }, [&] { publisher.serve(); });
  }
  test::event_publisher publisher() {
    test::event_publisher made({.endpoint = endpoint, .replay = "", .connects = true});
    multipart_message message;  // a socket subscribes at its new peers when it is used
    test::wait_until([&] { return !socket.receive(message).value() && made.subscriptions() == 1; },
                     [&] { made.serve(); });
    return made;
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(sockets_of_zmq)

BOOST_AUTO_TEST_CASE(what_is_no_endpoint_is_refused_in_words) {
  const auto context = message_context::make(16).value();
  auto socket = message_socket::open(context, socket_kind::subscriber).value();
  for (const char* const text : {"", "127.0.0.1:5557", "carrier://pigeon", "tcp://127.0.0.1"}) {
    const auto bound = socket.bind(text), connected = socket.connect(text);
    BOOST_TEST(!bound.has_value());
    BOOST_REQUIRE(!connected.has_value());
    BOOST_TEST((connected.error().code() == error_code::invalid_argument));
    BOOST_TEST(connected.error().message().find("tcp://HOST:PORT") != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(a_port_that_is_taken_is_named) {
  const watched_subscriber first;
  const auto context = message_context::make(16).value();
  auto socket = message_socket::open(context, socket_kind::subscriber).value();
  const auto bound = socket.bind(first.endpoint);
  BOOST_REQUIRE(!bound.has_value());
  BOOST_TEST(bound.error().message().find(first.endpoint) != std::string::npos);
}

BOOST_AUTO_TEST_CASE(sockets_above_the_contexts_bound_are_refused) {
  const auto context = message_context::make(4).value();
  std::vector<message_socket> sockets;
  for (int i = 0; i < 10; ++i) {
    auto made = message_socket::open(context, socket_kind::subscriber);
    if (made) {
      sockets.push_back(std::move(*made));
    } else {
      BOOST_TEST((made.error().code() == error_code::limit_exceeded));
    }
  }
  BOOST_TEST(sockets.size() == 4U);
}

BOOST_AUTO_TEST_CASE(nothing_is_sent_when_there_is_no_peer) {
  const auto context = message_context::make(4).value();
  auto socket = message_socket::open(context, socket_kind::dealer).value();
  const auto sent = socket.send(std::array<std::string_view, 1>{"question"});
  BOOST_REQUIRE(!sent.has_value());
  BOOST_TEST((sent.error().code() == error_code::limit_exceeded));
}

BOOST_AUTO_TEST_CASE(a_monitor_sees_the_very_connection_go_by_which_messages_came) {
  watched_subscriber subscriber;
  std::optional<test::event_publisher> one(subscriber.publisher()), other(subscriber.publisher());
  for (int i = 0; i < 2; ++i) BOOST_TEST((subscriber.event().change == connection_change::ready));
  multipart_message message;
  one->publish("one");
  subscriber.receive(message, *one);
  const auto connection = message.part(0).connection();
  other->publish("other");
  subscriber.receive(message, *other);
  const auto other_connection = message.part(0).connection();
  BOOST_REQUIRE(connection.has_value());
  BOOST_REQUIRE(other_connection.has_value());
  BOOST_TEST(*connection != *other_connection);
  other.reset();
  const auto event = subscriber.event();
  BOOST_TEST((event.change == connection_change::gone));
  BOOST_TEST(event.connection == *other_connection);
  one.reset();
  BOOST_TEST(subscriber.event().connection == *connection);
}

BOOST_AUTO_TEST_CASE(a_part_above_the_bound_ends_its_connection_and_no_other) {
  message_socket_options options;
  options.message_bytes = 1000;
  watched_subscriber subscriber(options);
  auto honest = subscriber.publisher(), hostile = subscriber.publisher();
  for (int i = 0; i < 2; ++i) BOOST_TEST((subscriber.event().change == connection_change::ready));
  hostile.publish(std::string(1001, 'x'));
  const auto gone = subscriber.event();
  BOOST_TEST((gone.change == connection_change::gone));
  honest.publish(std::string(1000, 'x'));
  multipart_message message;
  subscriber.receive(message, honest);
  BOOST_TEST(message.part(2).size() == 1000U);
}

BOOST_AUTO_TEST_SUITE_END()
