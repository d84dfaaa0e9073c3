// Publishers that cost little beside an indexer which asks them: a batch of a block each, as vLLM publishes while it
// decodes, made once and sent on request.
//   replay_publishers serve COUNT BATCHES MODEL TOKENS   prints the ports of events and of replays, a publisher a line,
//                                                        and "ready"; answers until its input ends
//   replay_publishers read BATCHES AT_ONCE PORT...       asks for all replays, AT_ONCE at a time, and looks at nothing;
//                                                        prints the seconds that it took
// Publisher n has prompts of its number modulo `prompt_sets`: prompt p are the tokens [p, p + 1) * chain * TOKENS.
#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/msgpack_writer.hpp"
#include "transport/zmq/number_frame.hpp"
#include "transport/zmq/poller.hpp"
#include "transport/zmq/socket.hpp"

namespace {

using cenote::result;
using namespace cenote::zmq;

constexpr std::size_t chain = 100;  // blocks of a prompt
constexpr std::size_t prompt_sets = 10;
constexpr std::uint64_t end_number = ~std::uint64_t{0};
constexpr std::chrono::milliseconds longest_wait{60'000};
constexpr message_socket_options unbounded{.receive_messages = 0, .send_messages = 0};

[[noreturn]] void die(const std::string& reason) {
  std::fprintf(stderr, "replay_publishers: %s\n", reason.c_str());
  std::exit(1);
}

template <class T>
T checked(result<T> value) {
  if (!value) die(value.error().describe());
  if constexpr (!std::is_void_v<T>) return std::move(*value);
}

std::uint64_t number_of(std::string_view text) {
  std::uint64_t number = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), number).ptr != text.data() + text.size())
    die("no number: " + std::string(text));
  return number;
}

std::string_view text_of(std::span<const char> bytes) {
  return {bytes.data(), bytes.size()};
}

// ---------------------------------------------------------------------------------------------- publishers

struct batch_shape {
  std::size_t batches = 0;
  std::string_view model{};
  std::size_t tokens = 0;  ///< of a block
};

/// The payload of a set's batch.
std::string payload_of(const batch_shape& shape, std::size_t set, std::size_t batch) {
  const std::size_t first_token = (set * shape.batches + batch) * shape.tokens;
  const std::uint64_t name = (std::uint64_t{set * shape.batches + batch} << 20) + 1;
  cenote::test::msgpack_writer text;
  text.array(3).floating(1).array(1).map(7);
  text.text("type").text("BlockStored").text("block_hashes").integers({name}).text("parent_block_hash");
  if (batch % chain == 0) {
    text.nil();
  } else {
    text.integer(name - (std::uint64_t{1} << 20));
  }
  text.text("token_ids").array(shape.tokens);
  for (std::size_t i = 0; i < shape.tokens; ++i) text.integer(first_token + i);
  text.text("block_size").integer(shape.tokens).text("lora_id").nil().text("medium").text("GPU").integer(0);
  const auto& bytes = text.data();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

struct publisher {
  std::string topic{};
  const std::vector<std::string>* ring = nullptr;
  message_socket events;
  message_socket replays;
  std::optional<descriptor_watch> watch{};
};

/// All batches from the number that a request names; a peer that goes away meanwhile gets no more.
void answer(publisher& source, multipart_message& request) {
  const std::string client(request.part(0).text());
  const auto begin = number_in(request.part(2).text());
  const auto send = [&](std::uint64_t number, std::string_view payload) {
    const auto frame = number_frame(number);
    const std::array<std::string_view, 5> parts{client, {}, source.topic, text_of(frame), payload};
    return source.replays.send(parts).has_value();
  };
  for (std::size_t i = begin.value_or(source.ring->size()); i < source.ring->size(); ++i) {
    if (!send(i, (*source.ring)[i])) return;
  }
  (void)send(end_number, {});
}

std::string_view port_of(std::string_view endpoint) {
  return endpoint.substr(endpoint.rfind(':') + 1);
}

void serve(std::size_t count, const batch_shape& shape) {
  std::vector<std::vector<std::string>> rings(prompt_sets);
  for (std::size_t set = 0; set < rings.size(); ++set) {
    for (std::size_t i = 0; i < shape.batches; ++i) rings[set].push_back(payload_of(shape, set, i));
  }
  const auto context = checked(message_context::make(2 * count + 16));
  auto poller = checked(descriptor_poller::make());
  std::list<publisher> all;
  std::vector<publisher*> by_token;
  for (std::size_t i = 0; i < count; ++i) {
    publisher& made = all.emplace_back(
        publisher{"kv@pod" + std::to_string(i) + "@" + std::string(shape.model), &rings[i % prompt_sets],
                  checked(message_socket::open(context, socket_kind::publisher)),
                  checked(message_socket::open(context, socket_kind::router, unbounded))});
    checked(made.events.bind("tcp://127.0.0.1:*"));
    checked(made.replays.bind("tcp://127.0.0.1:*"));
    made.watch.emplace(checked(poller.add(checked(made.replays.descriptor()), i)));
    by_token.push_back(&made);
    const std::string events = checked(made.events.bound_endpoint());
    const std::string replays = checked(made.replays.bound_endpoint());
    std::printf("%s %s\n", port_of(events).data(), port_of(replays).data());
  }
  std::printf("ready\n");
  std::fflush(stdout);
  const auto input = checked(poller.add(STDIN_FILENO, count));
  multipart_message request;
  const auto answer_all = [&](publisher& source) {
    while (checked(source.replays.receive(request))) {
      if (request.size() >= 3) answer(source, request);
    }
  };
  for (publisher& each : all) answer_all(each);  // a socket that was bound may have input and not be ready
  for (;;) {
    for (const descriptor_poller::token each : poller.wait(longest_wait)) {
      if (each == count) return;
      answer_all(*by_token[each]);
    }
  }
}

// ---------------------------------------------------------------------------------------------- the plain reader

struct open_replay {
  message_socket line;
  descriptor_watch watch;
};

void read_all(std::size_t batches, std::size_t at_once, std::span<char* const> ports) {
  const auto context = checked(message_context::make(ports.size() + 16));
  auto poller = checked(descriptor_poller::make());
  std::vector<std::optional<open_replay>> lines(ports.size());
  std::vector<descriptor_poller::token> ready;  // and those that were just asked: they may have input and not be ready
  std::size_t asked = 0;
  const auto ask = [&] {
    if (asked == ports.size()) return;
    auto line = checked(message_socket::open(context, socket_kind::dealer, unbounded));
    checked(line.connect("tcp://127.0.0.1:" + std::string(ports[asked])));
    const auto first = number_frame(0);
    const std::array<std::string_view, 2> parts{std::string_view(), text_of(first)};
    checked(line.send(parts));
    auto watch = checked(poller.add(checked(line.descriptor()), asked));
    lines[asked].emplace(open_replay{std::move(line), std::move(watch)});
    ready.push_back(asked++);
  };
  const auto begin = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < at_once; ++i) ask();
  std::size_t received = 0;
  multipart_message message;
  for (std::size_t ended = 0; ended < ports.size();) {
    for (std::size_t i = 0; i < ready.size(); ++i) {
      const descriptor_poller::token each = ready[i];
      while (lines[each] && checked(lines[each]->line.receive(message))) {
        if (message.size() < 3 || number_in(message.part(2).text()) != end_number) {
          ++received;
          continue;
        }
        lines[each].reset();
        ++ended;
        ask();
      }
    }
    if (ended == ports.size()) break;
    ready = poller.wait(longest_wait);
    if (ready.empty()) die("no answer in a minute");
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  if (received != batches * ports.size()) die("batches are missing");
  std::printf("%.6f\n", seconds.count());
}

}  // namespace

int main(int count, char** words) {
  const std::span<char*> all(words, static_cast<std::size_t>(count));
  const std::string_view mode = count > 1 ? all[1] : "";
  if (mode == "serve" && count == 6) {
    serve(number_of(all[2]), {.batches = number_of(all[3]), .model = all[4], .tokens = number_of(all[5])});
  } else if (mode == "read" && count > 4) {
    read_all(number_of(all[2]), number_of(all[3]), all.subspan(4));
  } else {
    die("serve COUNT BATCHES MODEL TOKENS, or read BATCHES AT_ONCE PORT...");
  }
  return 0;
}
