// A node's network and nothing else, in a process of its own that a test can stop or kill.
//   network_peer serve                          prints where it is, sends blocks to whoever asks for them
//   network_peer fetch WHERE BLOCKS_AT SIZE     dials, asks for four blocks of SIZE bytes again and again, checks each
//   network_peer later                          says to whoever dials it that it speaks the next version of the
//   protocol network_peer later WHERE                    dials, says so there, and prints what it heard
// A frame of 32 bytes names the ticket of the sender's connection for blocks, one of 8 the size of the blocks wanted.
// Status 3: wrong bytes arrived.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "config/cluster_rules.hpp"
#include "tests/support/network_peer.hpp"
#include "transport/peer/messages.hpp"
#include "transport/ucx/network.hpp"

namespace {

using namespace cenote;

constexpr std::uint64_t blocks_a_request = 4;
constexpr int wrong_bytes = 3;

struct node {
  std::unique_ptr<ucx::network> net;
  std::vector<std::byte> memory;  ///< of blocks that are sent
  std::map<std::uint64_t, std::vector<std::byte>> incoming;
  std::map<std::uint64_t, std::uint64_t> landed;
  std::uint64_t size = 0;
  std::uint64_t whole = 0;
  bool is_later = false;  ///< of the next version
};

std::vector<std::byte> frame_of_next_version() {
  auto frame = peer::encode_frame(peer::frame_type::hello, 0, {1}, {});
  frame[4] = std::byte{peer::frame_major + 1};
  return frame;
}

void print_frame(std::span<const std::byte> bytes) {
  const auto frame = peer::decode_frame(bytes);
  const auto refused = frame ? peer::decode_refuse(frame->body) : std::unexpected(frame.error());
  std::printf("%s\n", refused ? refused->text.c_str() : "something else");
  std::fflush(stdout);
}

void serve(node& self, peer::link_id to, std::span<const std::byte> request) {
  std::uint64_t size = 0;
  std::memcpy(&size, request.data(), std::min(request.size(), sizeof size));
  if (self.memory.size() != size) self.memory = testing::block_pattern(size);
  for (std::uint64_t i = 0; i < blocks_a_request; ++i) self.net->send_block(to, {.token = i}, self.memory);
}

void ask(node& self, peer::link_id from) {
  std::vector<std::byte> request(sizeof self.size);
  std::memcpy(request.data(), &self.size, sizeof self.size);
  self.net->send(from, std::move(request));
}

void take(node& self, peer::link_id from, const peer::piece_header& head, std::size_t bytes) {
  if ((self.landed[head.token] += bytes) < head.total) return;
  if (self.incoming[head.token] != testing::block_pattern(head.total)) std::_Exit(wrong_bytes);
  self.landed[head.token] = 0;
  if (++self.whole % blocks_a_request == 0) ask(self, from);
}

result<void> start(node& self) {
  const endpoint here{"127.0.0.1", 0};
  auto variables = ucx::environment_of(here, {}, {});
  if (!variables) return std::unexpected(variables.error());
  peer::network_events events;
  events.opened = [&](peer::link_id which, bool, const endpoint&) {
    if (self.is_later) self.net->send(which, frame_of_next_version());
  };
  events.closed = [](peer::link_id, const error&) {};
  events.heard = [&](peer::link_id from, std::span<const std::byte> frame) {
    if (self.is_later) return print_frame(frame);
    if (const auto proof = testing::ticket_in(frame)) return self.net->await_blocks(from, *proof);
    serve(self, from, frame);
  };
  events.carries_blocks = [&](peer::link_id which) {
    if (self.size != 0) ask(self, which);
  };
  events.expects = [&](peer::link_id, const peer::piece_header& head, std::size_t bytes) {
    auto& memory = self.incoming[head.token];
    memory.resize(head.total);
    return std::span(memory).subspan(head.offset, bytes);
  };
  events.landed = [&](peer::link_id from, const peer::piece_header& head, std::span<const std::byte> piece) {
    take(self, from, head, piece.size());
  };
  events.sent = [](peer::link_id, std::uint64_t, const result<void>&) {};
  peer::secret shared;
  if (self.is_later) {  // it speaks to nodes, which have their user's secret
    auto secret = config::cluster_secret({});
    if (!secret) return std::unexpected(secret.error());
    shared = peer::secret(std::move(*secret));
  }
  auto made = ucx::start_network({.listen = here, .shared = std::move(shared), .variables = std::move(*variables)},
                                 std::move(events));
  if (!made) return std::unexpected(made.error());
  self.net = std::move(*made);
  return {};
}

}  // namespace

int main(int count, char** words) {
  const std::vector<std::string> arguments(words + 1, words + count);
  node self;
  self.is_later = !arguments.empty() && arguments[0] == "later";
  if (const auto started = start(self); !started) {
    std::fprintf(stderr, "network_peer: %s\n", started.error().describe().c_str());
    return 1;
  }
  if (arguments.size() == 4 && arguments[0] == "fetch") {
    self.size = std::strtoull(arguments[3].c_str(), nullptr, 10);
    const auto which = self.net->dial(*parse_endpoint(arguments[1]));
    const auto proof = testing::new_ticket();
    self.net->send(which, testing::frame_of(proof));
    self.net->join_blocks(which, *parse_endpoint(arguments[2]), proof);
  }
  if (arguments.size() == 2 && self.is_later) (void)self.net->dial(*parse_endpoint(arguments[1]));
  std::printf("%s %s\n", self.net->where().text().c_str(), self.net->blocks_at().text().c_str());
  std::fflush(stdout);
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) > 0) {
  }
  self.net->stop();
  return 0;
}
