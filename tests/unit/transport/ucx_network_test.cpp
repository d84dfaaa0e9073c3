// Links over UCX between networks of this process.
#include <boost/test/unit_test.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <ranges>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/unique_fd.hpp"
#include "tests/unit/transport/station.hpp"
#include "transport/ucx/network.hpp"

namespace {

using namespace cenote;
using testing::station;

std::vector<std::byte> bytes_of(const std::string& text) {
  std::vector<std::byte> all(text.size());
  std::memcpy(all.data(), text.data(), text.size());
  return all;
}

std::vector<std::byte> pattern(std::size_t size, unsigned seed) {
  std::vector<std::byte> all(size);
  for (std::size_t i = 0; i < size; ++i) all[i] = static_cast<std::byte>((i * 2654435761U + seed) >> 11U);
  return all;
}

/// Waits until it has heard that many; false: it has not within 20 s.
bool hears_strange_messages(const peer::network& which, std::uint64_t count) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (which.odd().strange_messages < count && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  return which.odd().strange_messages == count;
}

bool hears_strangers(const peer::network& network, std::uint64_t count) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (network.odd().strangers < count && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  return network.odd().strangers == count;
}

/// Of this process, over TCP.
std::set<std::uint16_t> listening_ports() {
  std::set<std::uint16_t> found;
  for (int number = 0; number < 65536; ++number) {
    int listens = 0;
    socklen_t size = sizeof listens;
    sockaddr_in at{};
    socklen_t bytes = sizeof at;
    if (::getsockopt(number, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) continue;
    if (::getsockname(number, reinterpret_cast<sockaddr*>(&at), &bytes) == 0 && at.sin_family == AF_INET)
      found.insert(ntohs(at.sin_port));
  }
  return found;
}

/// Connects, sends the text, and closes.
void say_once(std::uint16_t port, const std::string& text) {
  const unique_fd made(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  BOOST_REQUIRE(::connect(made.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
  (void)::sendto(made.get(), text.data(), text.size(), MSG_NOSIGNAL, nullptr, 0);
}

/// Two stations with a link, which carries blocks.
struct pair_of_stations {
  pair_of_stations() {
    at_a = a.net->dial(b.net->where());
    BOOST_REQUIRE(a.wait([&] { return !a.dialled.empty(); }));
    BOOST_REQUIRE(b.wait([&] { return !b.accepted.empty(); }));
    at_b = b.accepted.front();
    peer::ticket proof{};
    proof.fill(std::byte{7});
    b.net->await_blocks(at_b, proof);
    a.net->join_blocks(at_a, b.net->blocks_at(), proof);
    BOOST_REQUIRE(a.wait([&] { return !a.carrying.empty(); }));
    BOOST_REQUIRE(b.wait([&] { return !b.carrying.empty(); }));
  }

  station a, b;
  peer::link_id at_a = 0, at_b = 0;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(ucx_network)

BOOST_AUTO_TEST_CASE(frames_arrive_whole_and_in_order_on_both_sides) {
  station a, b;
  const auto at_a = a.net->dial(b.net->where());
  BOOST_REQUIRE(b.wait([&] { return !b.accepted.empty(); }));
  const auto at_b = b.accepted.front();
  constexpr int frames = 2000;
  for (int i = 0; i < frames; ++i) {
    a.net->send(at_a, bytes_of("a" + std::to_string(i)));
    b.net->send(at_b, bytes_of("b" + std::string(static_cast<std::size_t>(i), '.') + std::to_string(i)));
    if (i % 500 == 499) {
      const auto so_far = static_cast<std::size_t>(i) + 1;
      BOOST_REQUIRE(a.wait([&] { return a.heard[at_a].size() == so_far; }));
      BOOST_REQUIRE(b.wait([&] { return b.heard[at_b].size() == so_far; }));
    }
  }
  for (std::size_t i = 0; i < frames; ++i) {
    BOOST_TEST(b.heard[at_b][i] == "a" + std::to_string(i));
    BOOST_TEST(a.heard[at_a][i] == "b" + std::string(i, '.') + std::to_string(i));
  }
}

BOOST_AUTO_TEST_CASE(the_longest_frame_arrives_and_a_longer_one_closes_the_link) {
  station a, b;
  const auto at_a = a.net->dial(b.net->where());
  a.net->send(at_a, std::vector<std::byte>(peer::network::most_frame_bytes, std::byte{3}));
  BOOST_REQUIRE(b.wait([&] { return !b.accepted.empty() && b.heard[b.accepted.front()].size() == 1; }));
  BOOST_TEST(b.heard[b.accepted.front()].front().size() == peer::network::most_frame_bytes);
  a.net->send(at_a, std::vector<std::byte>(peer::network::most_frame_bytes + 1));
  BOOST_REQUIRE(a.wait([&] { return !a.closed.empty(); }));
  BOOST_REQUIRE(b.wait([&] { return !b.closed.empty(); }));
  BOOST_TEST(b.heard[b.accepted.front()].size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_name_is_answered_with_its_addresses_of_ipv4_and_its_port_or_with_a_reason) {
  station a;
  a.net->look_up({"localhost", 7});
  a.net->look_up({"nobody.invalid", 7});
  a.net->look_up({"::1", 7});
  BOOST_REQUIRE(a.wait([&] { return a.addresses.size() == 3; }));
  const auto& local = a.addresses.at("localhost:7");
  BOOST_REQUIRE(local.has_value());
  BOOST_TEST(std::ranges::count(*local, std::string("127.0.0.1:7"), &endpoint::text) > 0);
  BOOST_TEST(
      std::ranges::all_of(*local, [](const endpoint& each) { return each.host.find(':') == std::string::npos; }));
  BOOST_TEST(a.addresses.at("nobody.invalid:7").error().message().find("nobody.invalid") != std::string::npos);
  BOOST_TEST((a.addresses.at(endpoint{"::1", 7}.text()).error().code() == error_code::unsupported));
}

BOOST_AUTO_TEST_CASE(a_dial_that_nobody_answers_is_closed_and_says_why) {
  endpoint nobody;
  {
    const station gone;
    nobody = gone.net->where();
  }
  station a;
  const auto which = a.net->dial(nobody);
  BOOST_REQUIRE(a.wait([&] { return !a.closed.empty(); }));
  BOOST_TEST(a.closed.front().first == which);
  BOOST_TEST_MESSAGE(a.closed.front().second.describe());
  BOOST_TEST(a.dialled.empty());
}

BOOST_AUTO_TEST_CASE(a_name_that_does_not_exist_closes_the_dial) {
  station a;
  const auto which = a.net->dial({"no-such-host.invalid", 7000});
  BOOST_REQUIRE(a.wait([&] { return !a.closed.empty(); }));
  BOOST_TEST(a.closed.front().first == which);
  BOOST_TEST(a.closed.front().second.message().find("no-such-host.invalid") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(blocks_of_any_size_arrive_as_they_were_sent_in_both_directions) {
  pair_of_stations nodes;
  const std::vector<std::size_t> sizes{
      0, 1, 64 << 10, 512 << 10, (768 << 10) - 1, 768 << 10, (768 << 10) + 1, (5 << 20) + 77};
  std::vector<std::vector<std::byte>> all;
  for (std::size_t i = 0; i < sizes.size(); ++i) all.push_back(pattern(sizes[i], static_cast<unsigned>(i)));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    nodes.a.net->send_block(nodes.at_a, {.token = i}, all[i]);
    nodes.b.net->send_block(nodes.at_b, {.token = i}, all[i]);
  }
  for (station* const each : {&nodes.a, &nodes.b}) {
    BOOST_REQUIRE(each->wait([&] {
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        if (each->landed[i] != sizes[i] || each->pieces[i] == 0) return false;
      }
      return each->sent.size() == sizes.size();
    }));
    for (std::size_t i = 0; i < sizes.size(); ++i) BOOST_TEST((each->blocks[i] == all[i]));
    for (const auto& [token, is_sent] : each->sent) BOOST_TEST(is_sent);
  }
}

BOOST_AUTO_TEST_CASE(many_small_blocks_sent_at_once_arrive_each_as_it_was) {
  pair_of_stations nodes;
  constexpr std::size_t count = 1000;
  std::vector<std::vector<std::byte>> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(pattern(i * 7919 % 70'000, static_cast<unsigned>(i)));
  for (std::size_t i = 0; i < count; ++i) nodes.a.net->send_block(nodes.at_a, {.token = i}, all[i]);
  BOOST_REQUIRE(nodes.b.wait([&] {
    return std::ranges::all_of(std::views::iota(0U, count), [&](std::size_t i) {
      return nodes.b.landed[i] == all[i].size() && nodes.b.pieces[i] > 0;
    });
  }));
  for (std::size_t i = 0; i < count; ++i) BOOST_TEST((nodes.b.blocks[i] == all[i]));
  BOOST_REQUIRE(nodes.a.wait([&] { return nodes.a.sent.size() == count; }));
  for (const auto& [token, is_sent] : nodes.a.sent) BOOST_TEST(is_sent);
}

BOOST_AUTO_TEST_CASE(what_is_run_on_the_networks_thread_is_run_there_while_it_lives) {
  std::atomic<bool> has_run{false};
  {
    station a;
    std::mutex mutex;
    std::condition_variable changed;
    std::thread::id where;
    a.net->run([&] {
      const std::lock_guard lock(mutex);
      where = std::this_thread::get_id();
      changed.notify_all();
    });
    std::unique_lock lock(mutex);
    BOOST_TEST(changed.wait_for(lock, std::chrono::seconds(60), [&] { return where != std::thread::id(); }));
    BOOST_TEST((where != std::this_thread::get_id()));
    lock.unlock();
    a.net->stop();
    a.net->run([&] { has_run = true; });
  }
  BOOST_TEST(!has_run);
}

BOOST_AUTO_TEST_CASE(what_a_stop_drops_may_speak_to_the_network_as_it_ends) {
  station a;
  int run = 0;
  int ended = 0;
  for (int i = 0; i < 500; ++i) {  // slow ones, so that the network drops most of them
    const std::shared_ptr<void> held(nullptr, [&, net = a.net.get()](void*) {
      net->run([] {});
      ++ended;
    });
    a.net->run([&run, held] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      ++run;
    });
  }
  a.net->stop();
  BOOST_TEST(run < 500);
  BOOST_TEST(ended == 500);
}

BOOST_AUTO_TEST_CASE(a_piece_that_nobody_expects_is_thrown_away_and_the_link_goes_on) {
  pair_of_stations nodes;
  nodes.b.throws_away = true;
  const auto block = pattern(1 << 20, 1);
  nodes.a.net->send_block(nodes.at_a, {.token = 1}, block);
  BOOST_REQUIRE(nodes.a.wait([&] { return nodes.a.sent.size() == 1; }));
  nodes.a.net->send(nodes.at_a, bytes_of("still here"));
  BOOST_REQUIRE(nodes.b.wait([&] { return nodes.b.heard[nodes.at_b].size() == 1; }));
  BOOST_TEST(nodes.b.landed.empty());
}

BOOST_AUTO_TEST_CASE(who_takes_one_port_for_the_other_is_not_understood_and_harms_nobody) {
  station a, b;
  const auto frames_to_blocks = a.net->dial(b.net->blocks_at());
  a.net->send(frames_to_blocks, bytes_of("a greeting"));
  BOOST_TEST(hears_strange_messages(*b.net, 1));
  const auto blocks_to_frames = a.net->dial(b.net->where());
  a.net->join_blocks(blocks_to_frames, b.net->where(), peer::ticket{});
  BOOST_TEST(hears_strange_messages(*b.net, 2));
  BOOST_TEST(a.carrying.empty());
  BOOST_TEST(b.heard.empty());
}

BOOST_AUTO_TEST_CASE(no_byte_of_a_stranger_reaches_ucx_on_any_port_and_links_go_on) {
  pair_of_stations nodes;
  const std::vector<std::string> texts{"",
                                       std::string(9, '\0'),
                                       std::string(4096, '\0'),
                                       std::string(4096, '\xff'),
                                       std::string("\xc8") + std::string(15, '\0') + std::string(300, 'x'),
                                       "GET / HTTP/1.1\r\n\r\n"};
  const auto ports = listening_ports();
  BOOST_TEST(ports.size() == 8U);  // of each station: links, blocks, and two of UCX's own
  const auto before = nodes.b.net->odd().strangers;
  for (const std::uint16_t port : ports) {
    for (const std::string& text : texts) say_once(port, text);
  }
  BOOST_TEST(hears_strangers(*nodes.b.net, before + ports.size() * texts.size()));
  nodes.a.net->send(nodes.at_a, bytes_of("still here"));
  BOOST_REQUIRE(nodes.b.wait([&] { return nodes.b.heard[nodes.at_b].size() == 1; }));
  const auto block = pattern(1 << 20, 1);
  nodes.a.net->send_block(nodes.at_a, {.token = 1}, block);
  BOOST_REQUIRE(nodes.b.wait([&] { return nodes.b.landed[1] == block.size(); }));
}

BOOST_AUTO_TEST_CASE(a_link_without_the_right_ticket_never_carries_blocks) {
  station a, b;
  const auto at_a = a.net->dial(b.net->where());
  BOOST_REQUIRE(b.wait([&] { return !b.accepted.empty(); }));
  peer::ticket right{}, wrong{};
  right.fill(std::byte{1});
  wrong.fill(std::byte{2});
  b.net->await_blocks(b.accepted.front(), right);
  a.net->join_blocks(at_a, b.net->blocks_at(), wrong);
  BOOST_REQUIRE(a.wait([&] { return !a.closed.empty(); }));  // its other half was closed after a while
  BOOST_TEST(a.carrying.empty());
  BOOST_TEST(b.carrying.empty());
  const auto block = pattern(100, 1);
  a.net->send_block(at_a, {.token = 5}, block);
  BOOST_REQUIRE(a.wait([&] { return a.sent.size() == 1; }));
  BOOST_TEST(!a.sent.front().second);
}

BOOST_AUTO_TEST_CASE(a_link_whose_connection_for_blocks_nobody_answers_is_closed_and_says_why) {
  const unique_fd silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));  // as a firewall is, but for the handshake
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof at;
  BOOST_REQUIRE(::bind(silent.get(), reinterpret_cast<const sockaddr*>(&at), bytes) == 0);
  BOOST_REQUIRE(::listen(silent.get(), 8) == 0);
  BOOST_REQUIRE(::getsockname(silent.get(), reinterpret_cast<sockaddr*>(&at), &bytes) == 0);
  station a, b;
  const auto at_a = a.net->dial(b.net->where());
  BOOST_REQUIRE(b.wait([&] { return !b.accepted.empty(); }));
  a.net->join_blocks(at_a, {"127.0.0.1", ntohs(at.sin_port)}, peer::ticket{});
  BOOST_REQUIRE(a.wait([&] { return a.has_closed(at_a); }));
  BOOST_TEST(a.closed.front().second.message().find("cluster.ports") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_link_that_closes_gives_all_memory_back_first_and_says_so_once) {
  pair_of_stations nodes;
  const auto block = pattern(8 << 20, 9);
  constexpr std::size_t blocks = 20;
  for (std::size_t i = 0; i < blocks; ++i) nodes.a.net->send_block(nodes.at_a, {.token = i}, block);
  nodes.a.net->close(nodes.at_a, error(error_code::closed, "enough"));
  nodes.a.net->close(nodes.at_a, error(error_code::closed, "twice"));
  BOOST_REQUIRE(nodes.a.wait([&] { return !nodes.a.closed.empty(); }));
  BOOST_TEST(nodes.a.closed.front().second.message() == "enough");
  BOOST_TEST(nodes.a.sent.size() == blocks);
  BOOST_REQUIRE(nodes.b.wait([&] { return !nodes.b.closed.empty(); }));
  nodes.a.net->stop();
  nodes.b.net->stop();
  BOOST_TEST(nodes.a.closed.size() == 1U);
  BOOST_TEST(nodes.b.closed.size() == 1U);
}

BOOST_AUTO_TEST_CASE(links_that_open_while_another_one_closes_are_heard) {
  const auto block = pattern(8 << 20, 9);
  for (int round = 0; round < 12; ++round) {
    pair_of_stations nodes;
    for (std::size_t i = 0; i < 20; ++i) nodes.a.net->send_block(nodes.at_a, {.token = i}, block);
    std::vector<peer::link_id> more;
    for (int i = 0; i < 10; ++i) more.push_back(nodes.b.net->dial(nodes.a.net->where()));
    for (const auto each : more) nodes.b.net->send(each, bytes_of("here I am"));
    std::this_thread::sleep_for(std::chrono::microseconds(round * 200));
    nodes.a.net->close(nodes.at_a, error(error_code::closed, "enough"));
    for (int i = 0; i < 10; ++i) more.push_back(nodes.b.net->dial(nodes.a.net->where()));
    for (std::size_t i = 10; i < 20; ++i) nodes.b.net->send(more[i], bytes_of("here I am"));
    BOOST_REQUIRE(nodes.a.wait([&] { return nodes.a.heard.size() == more.size(); }));
  }
}

BOOST_AUTO_TEST_CASE(what_was_said_right_before_a_stop_is_heard_unless_the_other_side_is_late) {
  constexpr int rounds = 50;
  int heard = 0;
  for (int round = 0; round < rounds; ++round) {
    pair_of_stations nodes;
    nodes.a.net->send(nodes.at_a, bytes_of("farewell"));
    nodes.a.net->stop();
    BOOST_REQUIRE(nodes.b.wait([&] { return !nodes.b.closed.empty(); }));
    heard += nodes.b.heard[nodes.at_b].size() == 1U ? 1 : 0;
  }
  BOOST_TEST(heard >= rounds * 9 / 10);  // on a busy machine one is lost now and then
}

BOOST_AUTO_TEST_CASE(a_network_that_stops_closes_its_links) {
  pair_of_stations nodes;
  nodes.a.net->stop();
  BOOST_TEST(nodes.a.closed.size() == 1U);
  BOOST_REQUIRE(nodes.b.wait([&] { return !nodes.b.closed.empty(); }));
  BOOST_TEST_MESSAGE(nodes.b.closed.front().second.describe());
}

BOOST_AUTO_TEST_CASE(an_address_in_use_is_refused_with_its_name) {
  const station first;
  const auto variables = ucx::environment_of(first.net->where(), {}, {});
  auto second = ucx::start_network({.listen = first.net->where(), .variables = *variables}, {});
  BOOST_REQUIRE(!second);
  BOOST_TEST(second.error().message().find(first.net->where().text()) != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
