#include "tests/unit/tiers/removals/redis_world.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <filesystem>
#include <iostream>

#include "core/stored_identity.hpp"
#include "core/unique_fd.hpp"
#include "tests/unit/tiers/blocks/node_fixture.hpp"
#include "tests/unit/tiers/remote/redis_values.hpp"
#include "tests/unit/tiers/removals/removal_world.hpp"
#include "tiers/remote/redis_servers.hpp"
#include "tiers/remote/store.hpp"
#include "tiers/remote/value.hpp"

namespace cenote::testing {

using namespace std::chrono_literals;
using blocks::testing::key_of;
using remote::redis_words;

namespace {

constexpr auto redis_faults_for = 10s;
constexpr auto redis_peace_for = 30s;  // longer than the pause of two rounds and the longest back-off, together
constexpr auto redis_patience = 400ms;
constexpr auto redis_absence = 3s;
constexpr auto stale_drop_lag = 50ms;  // from a removal to the same one under another epoch
constexpr std::uint64_t redis_keys = 5;
constexpr std::size_t value_bytes = 64;
constexpr std::uint32_t model_number = 1;  // of the instance, at the block tier

/// Of a key of a block, "prefix:identity:epoch:key".
struct value_place {
  std::string epoch, block;
};

std::optional<value_place> place_in(const std::string& key) {
  const auto last = key.rfind(':');
  const auto before = key.rfind(':', last - 1);
  if (last == std::string::npos || before == std::string::npos || key.ends_with(":epoch") || key.ends_with(":removals"))
    return std::nullopt;
  return value_place{key.substr(before + 1, last - before - 1), key.substr(last + 1)};
}

/// Of a removal, not of a look.
bool makes_stamp(const redis_words& words) {
  return words[0] == "EVAL" && words[3].ends_with(":removals") && words[1].contains("'DEL'");
}

std::array<std::uint64_t, 2> words_in(std::string_view bytes) {
  std::array<std::uint64_t, 2> words{};
  std::memcpy(words.data(), bytes.data(), sizeof words);
  return words;
}

}  // namespace

redis_world_figures& redis_world_figures::operator+=(const redis_world_figures& other) {
  done += other.done, pending += other.pending, fetched += other.fetched;
  repeated += other.repeated, restarts += other.restarts, failovers += other.failovers;
  made_up += other.made_up;
  return *this;
}

// ---------------------------------------------------------------------------------------------- the server

/// Carries out the commands of each connection in their order, each some time after it came, and answers later still.
class redis_world::server {
 public:
  explicit server(redis_world& world) : world_(world) {}

  void listen(const std::string& node, const std::string& path) {
    doors_[node].path = path;
    if (!is_down_) open(doors_[node]);
  }
  /// Takes what the node's sockets have.
  void pump(const std::string& node);
  /// Without a word: commands that came are carried out or not, and nothing is answered.
  void go_down();
  void come_back();
  void freeze(time_point end) { frozen_until_ = std::max(frozen_until_, end); }
  /// The answers of one connection are lost, and it ends.
  void cut_one();
  /// A copy becomes the primary.
  void fail_over();
  void take_copy() { replica_ = values_; }
  void empty() { values_ = replica_ = {}; }

  [[nodiscard]] bool is_down() const noexcept { return is_down_; }
  [[nodiscard]] std::string epoch() const;
  /// Copies that a node gets which goes by the server's epoch, by key.
  [[nodiscard]] std::map<std::uint64_t, std::uint64_t> copies() const;

 private:
  struct connection {
    std::string node;
    unique_fd socket;
    std::string unread{};
    std::deque<redis_words> waiting{};
    time_point last_in{}, last_out{};
    bool is_behind_look = false;  ///< there was a look since the greeting or the last put
    std::map<std::string, std::pair<std::string, time_point>> drops{};  ///< by block: epoch, time
  };
  struct door {
    std::string path;
    unique_fd socket{};
  };

  static void open(door& closed);
  [[nodiscard]] time_point next_time(time_point& last);
  void take(std::uint64_t number, connection& client);
  void carry_out(std::uint64_t number);
  void end(std::uint64_t number, bool is_carried_out);
  [[nodiscard]] std::string run(connection& client, const redis_words& words);
  [[nodiscard]] bool is_left_out(connection& client, const redis_words& words);

  redis_world& world_;
  remote::redis_values values_, replica_;
  std::map<std::string, door> doors_;  ///< by node
  std::map<std::uint64_t, connection> connections_;
  std::uint64_t next_ = 1;
  time_point frozen_until_{};
  std::uint64_t run_ = 1;  ///< of its process
  bool is_down_ = false;
};

void redis_world::server::open(door& closed) {
  ::unlink(closed.path.c_str());
  closed.socket = unique_fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  closed.path.copy(static_cast<char*>(address.sun_path), sizeof(address.sun_path) - 1);
  const auto* const generic = reinterpret_cast<const sockaddr*>(&address);
  if (::bind(closed.socket.get(), generic, sizeof address) != 0 || ::listen(closed.socket.get(), 16) != 0) std::abort();
}

redis_world::time_point redis_world::server::next_time(time_point& last) {
  const auto lag = std::chrono::microseconds(world_.wire_.number(world_.wire_.chance() < 0.1 ? 60'000 : 500));
  last = std::max(world_.wire_.now() + lag, last + 1ns);
  return last;
}

void redis_world::server::pump(const std::string& node) {
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, each] : connections_) {
    if (each.node == node) numbers.push_back(number);
  }
  for (const std::uint64_t each : numbers) take(each, connections_.at(each));
  while (!is_down_) {
    unique_fd accepted(::accept4(doors_.at(node).socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!accepted) return;
    auto& made = connections_[next_] = {.node = node, .socket = std::move(accepted)};
    take(next_++, made);
  }
}

void redis_world::server::take(std::uint64_t number, connection& client) {
  std::array<char, 1 << 16> some{};
  for (;;) {
    const ssize_t n = ::recv(client.socket.get(), some.data(), some.size(), 0);
    if (n < 0) break;
    if (n == 0) return end(number, world_.wire_.chance() < 0.5);
    client.unread.append(some.data(), static_cast<std::size_t>(n));
  }
  while (auto words = remote::take_redis_command(client.unread)) {
    const redis_words put{"SETNX", words->back()};
    const auto is_put = [&](const redis_words& each) { return each[0] == put[0] && each[1] == put[1]; };
    if (!world_.options_.rules.follows_puts && words->front() == "DEL" && std::ranges::any_of(client.waiting, is_put)) {
      (void)values_.answer(*words);
      *words = {"DEL", ""};
    }
    client.waiting.push_back(std::move(*words));
    world_.wire_.at(next_time(client.last_in), [this, number] { carry_out(number); });
  }
}

void redis_world::server::carry_out(std::uint64_t number) {
  const auto found = connections_.find(number);
  if (found == connections_.end() || found->second.waiting.empty()) return;
  if (world_.wire_.now() < frozen_until_) return world_.wire_.at(frozen_until_, [this, number] { carry_out(number); });
  connection& client = found->second;
  const redis_words words = std::move(client.waiting.front());
  client.waiting.pop_front();
  const std::string reply = run(client, words);
  world_.wire_.at(next_time(client.last_out), [this, number, reply] {
    const auto still = connections_.find(number);
    if (still == connections_.end()) return;
    if (::send(still->second.socket.get(), reply.data(), reply.size(), MSG_NOSIGNAL) < 0) return;
    world_.wake(still->second.node);
  });
}

std::string redis_world::server::run(connection& client, const redis_words& words) {
  const bool is_left = is_left_out(client, words);
  const bool is_look = words[0] == "GET" && words[1].ends_with(":epoch");
  if (is_look || words[0] == "SET" || words[0] == "SETNX") client.is_behind_look = is_look;
  if (is_left) return ":0\r\n";
  if (words[0] == "INFO") return remote::bulk("# Server\r\nrun_id:" + std::to_string(run_) + "\r\nuptime:1\r\n");
  if (words[0] == "DEL") (void)replica_.answer(words);
  if (makes_stamp(words) && !world_.options_.rules.makes_stamps) return remote::bulk(values_.values[words[3]]);
  const std::string before = words[0] == "EVAL" ? epoch() : "";
  const std::string reply = values_.answer(words);
  if (words[0] == "EVAL" && before != epoch()) world_.show(client.node + " makes the epoch " + epoch());
  if (words[0] == "SETNX" || words[0] == "DEL") {
    const auto place = place_in(words[1]);
    world_.show("server: " + client.node + " " + words[0] + " " + (place ? place->epoch + " " + place->block : "") +
                reply.substr(0, 2) +
                (words[0] == "SETNX"
                     ? " copy " + std::to_string(words_in(words[2].substr(remote::value_header_bytes))[0])
                     : ""));
  }
  if (words[0] == "SETNX" || words[0] == "EVAL") world_.check_server();
  return reply;
}

/// A command that the rules which are left out would not have sent.
bool redis_world::server::is_left_out(connection& client, const redis_words& words) {
  if (words[0] != "DEL") return false;
  const auto place = place_in(words[1]);
  if (!place) return false;
  const auto now = world_.wire_.now();
  const auto earlier = client.drops.find(place->block);
  const bool is_again = earlier != client.drops.end() && earlier->second.first != place->epoch &&
                        now - earlier->second.second < stale_drop_lag;
  client.drops[place->block] = {place->epoch, now};
  return (is_again && !world_.options_.rules.repeats_stale_drops) ||
         (!client.is_behind_look && !world_.options_.rules.follows_puts);
}

void redis_world::server::end(std::uint64_t number, bool is_carried_out) {
  auto ended = connections_.extract(number);
  connection& over = ended.mapped();
  std::size_t count = is_carried_out ? over.waiting.size() : world_.wire_.number(over.waiting.size() + 1);
  for (; count > 0; --count) {
    const redis_words words = std::move(over.waiting.front());
    over.waiting.pop_front();
    (void)run(over, words);
  }
  world_.wake(over.node);
}

void redis_world::server::go_down() {
  is_down_ = true;
  for (auto& [node, each] : doors_) {
    each.socket.reset();
    ::unlink(each.path.c_str());
  }
  while (!connections_.empty()) end(connections_.begin()->first, world_.wire_.chance() < 0.3);
}

void redis_world::server::come_back() {
  if (!std::exchange(is_down_, false)) return;
  ++run_;
  for (auto& [node, each] : doors_) open(each);
}

void redis_world::server::cut_one() {
  if (connections_.empty()) return;
  auto which = connections_.begin();
  std::advance(which, world_.wire_.number(connections_.size()));
  end(which->first, true);
}

void redis_world::server::fail_over() {
  while (!connections_.empty()) end(connections_.begin()->first, world_.wire_.chance() < 0.5);
  values_ = replica_;
  ++run_;
}

std::string redis_world::server::epoch() const {
  for (const auto& [key, value] : values_.values) {
    if (key.ends_with(":epoch")) return value.substr(0, 16);
  }
  return {};
}

std::map<std::uint64_t, std::uint64_t> redis_world::server::copies() const {
  std::map<std::uint64_t, std::uint64_t> found;
  const std::string now = epoch();
  for (const auto& [key, value] : values_.values) {
    const auto place = place_in(key);
    if (!place || place->epoch != now || value.size() < remote::value_header_bytes + value_bytes) continue;
    const auto words = words_in(std::string_view(value).substr(remote::value_header_bytes));
    found[words[1]] = words[0];
  }
  return found;
}

// ---------------------------------------------------------------------------------------------- nodes

struct redis_world::machine {
  std::string name;
  std::uint64_t life = 0;
  /// A block in memory.
  struct held_copy {
    std::uint64_t number = 0;
    boot_time arrival{};
    bool is_sent = false;  ///< to the server, as it came
  };
  std::map<std::uint64_t, held_copy> memory{};  ///< by key
  std::unique_ptr<worker> now{};                ///< null: there is none
  time_point drives_at = time_point::max();
};

struct redis_world::worker {
  worker(redis_world& world, machine& home, const remote::redis_options& options, std::deque<remote::epoch_book> books,
         remote::removal_book book);

  /// A block on its way there or here.
  struct flight {
    std::uint64_t key = 0;
    bool is_up = false;
    bool is_late = false;  ///< down: not as it came
    boot_time start{};
    std::array<std::byte, value_bytes> bytes{};
  };

  machine& host;
  const std::uint64_t life;
  std::map<std::uint64_t, std::unique_ptr<flight>> flights{};  ///< by token
  remote::store tier{1};
  time_point to_backend{}, to_tier{};  ///< arrival of the last message
  bool is_away = true;
  std::map<std::uint64_t, std::uint64_t> missed{};  ///< copies, by key
  const remote::backend::events events;
  remote::redis_servers servers;
};

redis_world::worker::worker(redis_world& world, machine& home, const remote::redis_options& options,
                            std::deque<remote::epoch_book> books, remote::removal_book book)
    : host(home),
      life(home.life),
      events({.put =
                  [&world, this](const std::vector<remote::item_outcome>& all) {
                    world.post(*this, to_tier, [&world, all](worker& node) {
                      node.tier.answered(0, remote::call::kind::put, all, world.wire_.now());
                      world.flush(node);
                    });
                  },
              .got =
                  [&world, this](const std::vector<remote::item_outcome>& all) {
                    world.post(*this, to_tier, [&world, all](worker& node) {
                      node.tier.answered(0, remote::call::kind::get, all, world.wire_.now());
                      world.flush(node);
                    });
                  },
              .standing =
                  [&world, this](const result<void>& outcome) {
                    world.post(*this, to_tier, [&world, outcome](worker& node) {
                      node.tier.set_standing(0, outcome);
                      world.take_standing(node, outcome.has_value());
                    });
                  },
              .cleared =
                  [&world, this](instance_identity) {
                    world.post(*this, to_tier, [&world](worker& node) { world.take_clear(node); });
                  }}),
      servers(
          options, events, std::move(books), std::move(book), [] {}, world.wire_.now()) {}

redis_world::redis_world(std::uint64_t seed, redis_world_options choices)
    : wire_(seed), options_(choices), start_(wire_.now()), has_one_clock_(seed % 2 != 0), folder_(temporary_folder()) {
  spec_ = blocks::testing::spec_of("model", value_bytes);
  server_ = std::make_unique<server>(*this);
  const auto count = 2 + wire_.number(2);
  for (std::uint64_t i = 0; i < count; ++i) {
    auto& made = *machines_.emplace_back(std::make_unique<machine>());
    made.name = std::string(1, static_cast<char>('a' + i));
    server_->listen(made.name, folder_ + "/" + made.name + ".sock");
  }
  for (const auto& each : machines_) start(*each);
}

redis_world::~redis_world() {
  for (const auto& each : machines_) each->now.reset();
  server_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void redis_world::show(const std::string& message) {
  if (options_.shows)
    std::cerr << std::chrono::duration<double, std::milli>(wire_.now() - start_).count() << " ms: " << message << '\n';
}

void redis_world::fail(const std::string& message) {
  if (!failure_) failure_ = std::to_string((wire_.now() - start_) / 1ms) + " ms: " + message;
  show("WRONG: " + message);
}

/// In virtual time, too: epochs are made of it. In half of the worlds no two machines have the same.
std::uint64_t redis_world::calendar(const machine& target) const {
  constexpr std::uint64_t some_day = 1'700'000'000'000'000'000;
  const std::uint64_t lead = has_one_clock_ ? 0 : 700'000'000;
  return some_day + static_cast<std::uint64_t>(target.name.front() - 'a') * lead +
         static_cast<std::uint64_t>(std::chrono::nanoseconds(wire_.now() - start_).count());
}

/// The machine's clock, which no node sets.
boot_time redis_world::boot() const {
  return boot_time_of(1'000) + tenths_of(wire_.now() - start_);
}

/// Its sockets have something.
void redis_world::wake(const std::string& node) {
  for (const auto& each : machines_) {
    if (each->name == node) drive_later(*each, wire_.now());
  }
}

void redis_world::start(machine& target) {
  if (target.now) return;
  show(target.name + " starts");
  remote::redis_options settings;
  settings.url = *redis::parse_server_url("unix://" + folder_ + "/" + target.name + ".sock");
  settings.state = folder_ + "/" + target.name;
  settings.timeout = redis_patience;
  settings.calendar = [this, &target] { return calendar(target); };
  settings.first_back_off = 100ms;
  settings.last_back_off = 1s;
  auto books = remote::open_epoch_books(settings);
  if (!books) return fail(books.error().describe());
  const auto file = settings.state / "removals";
  if (!options_.rules.keeps_book) std::filesystem::remove(file);
  auto book = remote::removal_book::open(file, calendar(target));
  if (!book) return fail(book.error().describe());
  ++target.life;
  target.now = std::make_unique<worker>(*this, target, settings, std::move(*books), std::move(*book));
  target.now->tier.bind(model_number, spec_, true);
  drive(target);
}

/// Its memory and its files stay.
void redis_world::kill(machine& target, bool is_farewell) {
  if (!target.now) return;
  show(target.name + (is_farewell ? " stops" : " is killed"));
  if (is_farewell) {
    target.now->servers.stop(wire_.now());
    target.now->servers.deliver(wire_.now());
    target.now->servers.answer_removals();
  }
  figures_.repeated += target.now->servers.figures().repeated;
  for (order& each : orders_) each.is_forgotten |= each.is_lost && !each.is_clear && each.name == target.name;
  target.now.reset();
  server_->pump(target.name);
  ++figures_.restarts;
}

/// To another thread, behind what was sent there before.
void redis_world::post(worker& home, time_point& last, action message) {
  const auto hop = std::chrono::microseconds(wire_.number(wire_.chance() < 0.05 ? 20'000 : 200));
  last = std::max(wire_.now() + hop, last + 1ns);
  wire_.at(last, [this, &target = home.host, life = home.life, message = std::move(message)] {
    if (!target.now || target.now->life != life) return;
    message(*target.now);
    check(target);
  });
}

/// A turn of the thread of the connections, and of those that follow at once.
void redis_world::drive(machine& target) {
  target.drives_at = time_point::max();
  if (!target.now) return;
  auto& servers = target.now->servers;
  std::vector<pollfd> polled;
  for (int turns = 0; turns < 100; ++turns) {
    servers.turn(wire_.now());
    servers.deliver(wire_.now());
    servers.answer_removals();
    polled.clear();
    servers.watch(polled);
    if (::poll(polled.data(), polled.size(), 0) <= 0) break;
    servers.serve(polled, wire_.now());
  }
  server_->pump(target.name);
  drive_later(target, std::max(servers.next_turn(), wire_.now() + 1ms));
}

void redis_world::drive_later(machine& target, time_point time) {
  if (target.drives_at <= time) return;
  target.drives_at = time;
  wire_.at(time, [this, &target, time] {
    if (target.drives_at == time) drive(target);
  });
}

// ---------------------------------------------------------------------------------------------- the remote tier

void redis_world::call(worker& home, action message) {
  post(home, home.to_backend, [this, message = std::move(message)](worker& node) {
    message(node);
    drive(node.host);
  });
}

void redis_world::flush(worker& home) {
  for (remote::call& each : home.tier.take_calls()) {
    const auto kind = each.what == remote::call::kind::get ? remote::request_kind::get : remote::request_kind::put;
    call(home, [this, kind, items = std::move(each.items), begun = wire_.now()](worker& node) mutable {
      node.servers.begin_items(kind, items, begun, wire_.now());
    });
  }
  for (const remote::late_removal& each : home.tier.take_late()) {
    call(home, [this, each, begun = wire_.now()](worker& node) {
      node.servers.drop(
          each.identity, {each.key}, [](const auto&) {}, begun, wire_.now());
    });
  }
  for (const transfer_outcome& each : home.tier.take_outcomes()) {
    const auto ended = home.flights.extract(each.token);
    if (ended.empty() || each.what != transfer_result::done) continue;
    if (ended.mapped()->is_late) ++figures_.made_up;
    if (!ended.mapped()->is_up) continue;
    const auto& over = *ended.mapped();
    const auto words = words_in({reinterpret_cast<const char*>(over.bytes.data()), value_bytes});
    ++figures_.fetched;
    show(home.host.name + " gets " + std::to_string(over.key) + " as " + std::to_string(words[0]));
    if (words[1] != over.key) fail(home.host.name + " gets another block");
    home.host.memory.try_emplace(over.key, machine::held_copy{words[0], over.start, true});
  }
}

void redis_world::take_standing(worker& home, bool stands) {
  show(home.host.name + (stands ? ": the server answers" : ": the server is away"));
  home.is_away = !stands;
  if (!stands) return;
  call(home, [this](worker& node) { node.servers.look_for_clear(identity_of(spec_)); });
  constexpr int tries = 4;
  for (int i = 0; i < tries; ++i) {
    const auto pause = 300ms * i;
    wire_.at(wire_.now() + pause + 1ms, [this, &target = home.host, life = home.life] {
      if (target.now && target.now->life == life) offer_missed(*target.now);
    });
  }
}

void redis_world::offer_missed(worker& home) {
  for (const auto& [key, number] : home.missed) {
    const auto found = home.host.memory.find(key);
    if (home.is_away || found == home.host.memory.end() || found->second.number != number) continue;
    send_put(home.host, key, write_occasion::catch_up);
  }
}

void redis_world::take_clear(worker& home) {
  show(home.host.name + " clears what another node cleared");
  if (options_.rules.clears_above) {
    home.host.memory.clear();
    home.tier.forget(model_number, {});
  }
  flush(home);
  call(home, [this](worker& node) { node.servers.end_clear_above(identity_of(spec_), {}, wire_.now()); });
}

// ---------------------------------------------------------------------------------------------- the engine

void redis_world::work(machine& target) {
  if (!target.now) return;
  const std::uint64_t key = wire_.number(redis_keys);
  const double draw = wire_.chance();
  if (draw < 0.3) {
    put(target, key);
    if (wire_.chance() < 0.4) remove_later(target, key);
  } else if (draw < 0.66) {
    get(target, key);
  } else if (draw < 0.7) {
    locate(target);
  } else if (draw < 0.83) {  // its place is needed
    evict(target, key);
  } else if (draw < 0.975) {
    remove(target, {key});
  } else {
    remove(target, {});
  }
}

/// When what became of its put is not known, or no longer.
void redis_world::remove_later(machine& target, std::uint64_t key) {
  wire_.at(wire_.now() + redis_patience - 20ms + std::chrono::milliseconds(wire_.number(100)), [this, &target, key] {
    if (target.now) remove(target, {key});
  });
}

/// A copy that the server may lack is put before it goes.
void redis_world::evict(machine& target, std::uint64_t key) {
  if (!target.memory.contains(key)) return;
  if (wire_.chance() < 0.7) send_put(target, key, write_occasion::later);
  target.memory.erase(key);
}

/// Sometimes nothing is put as it comes: a window is full, or the tier takes what leaves alone.
void redis_world::put(machine& target, std::uint64_t key) {
  if (target.memory.contains(key)) return;
  const std::uint64_t number = copies_.size() + 1;
  copies_[number] = {.key = key, .owner = target.name};
  const bool is_sent = !target.now->is_away && wire_.chance() < 0.8;
  target.memory[key] = {number, boot(), is_sent};
  show(target.name + " stores " + std::to_string(key) + " as " + std::to_string(number));
  if (target.now->is_away) target.now->missed[key] = number;
  if (is_sent) send_put(target, key, write_occasion::arrival);
}

void redis_world::send_put(machine& target, std::uint64_t key, write_occasion occasion) {
  const machine::held_copy& held = target.memory.at(key);
  if (occasion != write_occasion::arrival)
    show(target.name + " offers " + std::to_string(key) + " as " + std::to_string(held.number));
  const std::uint64_t token = next_token_++;
  auto& made = *(target.now->flights[token] = std::make_unique<worker::flight>());
  made.key = key;
  made.is_late = occasion != write_occasion::arrival;
  const std::array words{held.number, key};
  std::memcpy(made.bytes.data(), words.data(), sizeof words);
  const transfer whole{.instance = model_number,
                       .token = token,
                       .full = key_of(key),
                       .key = reduce_key(key_of(key).view(), 0),
                       .memory = made.bytes,
                       .occasion = options_.rules.names_arrival ? occasion : write_occasion::arrival,
                       .arrival = held.arrival};
  target.now->tier.put(std::span(&whole, 1), {.steady = wire_.now(), .boot = boot()});
  flush(*target.now);
}

void redis_world::get(machine& target, std::uint64_t key) {
  if (target.memory.contains(key)) return;
  const std::uint64_t token = next_token_++;
  auto& made = *(target.now->flights[token] = std::make_unique<worker::flight>());
  made.key = key;
  made.is_up = true;
  made.start = boot();
  const transfer whole{.instance = model_number,
                       .token = token,
                       .full = key_of(key),
                       .key = reduce_key(key_of(key).view(), 0),
                       .memory = made.bytes};
  target.now->tier.get(std::span(&whole, 1), wire_.now());
  flush(*target.now);
}

void redis_world::locate(machine& target) {
  std::vector<remote::block_name> names;
  for (std::uint64_t key = 0; key < redis_keys; ++key)
    names.push_back({.identity = identity_of(spec_), .group = 0, .full = key_of(key)});
  call(*target.now, [this, names, begun = wire_.now()](worker& node) {
    node.servers.locate(
        names, [](const auto&) {}, begun, begun + 100ms, wire_.now());
  });
}

/// No keys: all of the instance.
void redis_world::remove(machine& target, const std::vector<std::uint64_t>& target_keys) {
  const std::size_t number = orders_.size();
  order& made = orders_.emplace_back();
  made.name = target.name;
  made.life = target.life;
  made.is_clear = target_keys.empty();
  const auto is_meant = [&](std::uint64_t key) {
    return target_keys.empty() || std::ranges::find(target_keys, key) != target_keys.end();
  };
  for (const auto& [key, number_of] : server_->copies()) {
    if (is_meant(key)) made.copies.insert(number_of);
  }
  for (const auto& each : machines_) {  // a put that is under way comes before the removal, or behind it
    for (const auto& [key, held] : each->memory) {
      if (!is_meant(key)) continue;
      if (each.get() == &target) made.copies.insert(held.number);
      if (made.is_clear) made.memory.insert(held.number);
      if (!held.is_sent) made.unsent.insert(held.number);
    }
  }
  for (const auto& [name, each] : copies_) {
    if (each.owner == target.name && is_meant(each.key)) made.copies.insert(name);
  }
  show(target.name + (made.is_clear ? " clears" : " removes " + std::to_string(target_keys.front())) + ", " +
       std::to_string(number));
  std::erase_if(target.memory, [&](const auto& each) { return is_meant(each.first); });
  std::vector<block_key> names;
  for (const std::uint64_t each : target_keys) names.push_back(reduce_key(key_of(each).view(), 0));
  target.now->tier.forget(model_number, names);
  flush(*target.now);
  const auto answer = [this, number, &target, life = target.life](const auto& outcome) {
    if (!target.now || target.now->life != life) return;
    const std::string reason = outcome ? "" : outcome.error().message();
    post(*target.now, target.now->to_tier, [this, number, reason](worker&) { take_answer(number, reason); });
  };
  call(*target.now, [this, names, answer, begun = wire_.now()](worker& node) {
    const auto identity = identity_of(spec_);
    if (names.empty())
      node.servers.clear({identity}, false, answer, begun, wire_.now());
    else
      node.servers.drop(identity, names, answer, begun, wire_.now());
  });
}

void redis_world::take_answer(std::size_t number, const std::string& reason) {
  order& home = orders_[number];
  home.is_answered = true;
  ++(reason.empty() ? figures_.done : figures_.pending);
  show(std::to_string(number) + " is " + (reason.empty() ? "done" : "pending: " + reason));
  for (const std::uint64_t each : home.copies) {
    copy& removed = copies_.at(each);
    removed.gone_at.insert(home.name);
    removed.is_gone |= reason.empty() && !home.is_reverted && !removed.is_exposed;
    removed.is_cleared |= home.is_clear;
  }
  for (const std::uint64_t each : home.memory) copies_.at(each).is_cleared = true;
  const bool reaches_server = reason.empty() && !home.is_reverted;
  for (const std::uint64_t each : home.unsent)
    copies_.at(each).is_gone |= reaches_server && !copies_.at(each).is_exposed;
  check_all();
}

// ---------------------------------------------------------------------------------------------- faults and checks

void redis_world::fault() {
  const double draw = wire_.chance();
  const auto absence = std::chrono::milliseconds(wire_.number(redis_absence / 1ms));
  machine& one = any();
  if (draw < 0.3) {
    kill(one, wire_.chance() < 0.3);
    wire_.at(wire_.now() + absence / 3, [this, &one] { start(one); });
  } else if (draw < 0.45) {
    show("the server goes away");
    server_->go_down();
    if (wire_.chance() < 0.1) {
      server_->empty();
      note_loss();
    }
    if (wire_.chance() < 0.6) {
      wire_.at(wire_.now() + absence / 2, [this, &one] { kill(one, false); });
      wire_.at(wire_.now() + absence * 2 / 3, [this, &one] { start(one); });
    }
    wire_.at(wire_.now() + absence, [this] { server_->come_back(); });
  } else if (draw < 0.65) {
    show("the server stands still for " + std::to_string(absence / 3ms) + " ms");
    server_->freeze(wire_.now() + absence / 3);
    if (wire_.chance() < 0.5) wire_.at(wire_.now() + absence / 4, [this] { server_->cut_one(); });
  } else if (draw < 0.75) {
    show("a connection is cut");
    server_->cut_one();
  } else if (draw < 0.85) {
    server_->take_copy();
  } else {
    fail_over();
  }
}

/// A block that a node missed to put may come to a server that has lost memory although it was removed there, until the
/// node comes that asked for it. A removal that was confirmed is known to that node's worker alone.
void redis_world::note_loss() {
  for (const auto& each : machines_) {
    for (const auto& [key, held] : each->memory) copies_.at(held.number).is_exposed = true;
    if (!each->now) continue;
    for (const auto& [token, flight] : each->now->flights) {
      if (flight->is_late)
        copies_.at(words_in({reinterpret_cast<const char*>(flight->bytes.data()), value_bytes})[0]).is_exposed = true;
    }
  }
  for (auto& [number, each] : copies_) each.is_gone = each.is_gone && !each.is_exposed;
  for (order& each : orders_) {
    each.is_lost = true;
    const auto home = std::ranges::find(machines_, each.name, [](const auto& node) { return node->name; });
    each.is_forgotten |= !each.is_clear && (!(*home)->now || (*home)->life != each.life);
  }
}

/// The epochs that it forgets are known to nodes alone: until one of those comes, the others find what was removed.
void redis_world::fail_over() {
  const std::string before = server_->epoch();
  server_->fail_over();
  ++figures_.failovers;
  note_loss();
  show("a copy of the server takes over, from epoch " + before + " to " + server_->epoch());
  if (server_->epoch() >= before) return;
  for (auto& [number, each] : copies_) each.is_gone = false;
  for (order& each : orders_) each.is_reverted = true;
}

std::optional<std::string> redis_world::run() {
  const auto peace = start_ + redis_faults_for;
  for (auto time = start_ + 100ms; time < peace; time += std::chrono::milliseconds(wire_.number(60)))
    wire_.at(time, [this] { work(any()); });
  for (auto time = start_ + 500ms; time < peace; time += std::chrono::milliseconds(100 + wire_.number(1200)))
    wire_.at(time, [this] { fault(); });
  for (auto time = start_ + 50ms; time < peace; time += std::chrono::milliseconds(100 + wire_.number(2000)))
    wire_.at(time, [this] { server_->take_copy(); });
  wire_.run_until(peace + redis_absence);
  show("peace");
  wire_.run_until(peace + redis_absence + redis_peace_for);
  check_peace();
  return failure_;
}

void redis_world::check(const machine& target) {
  for (const auto& [key, held] : target.memory) {
    const std::uint64_t number = held.number;
    if (copies_.at(number).gone_at.contains(target.name))
      fail(target.name + " finds " + std::to_string(number) + ", which it removed");
  }
}

void redis_world::check_server() {
  for (const auto& [key, number] : server_->copies()) {
    if (copies_.at(number).is_gone) fail("the server has " + std::to_string(number) + ", which is removed");
  }
}

void redis_world::check_all() {
  for (const auto& each : machines_) check(*each);
  check_server();
}

/// Each node has asked the server about the instance since the last fault: what was cleared is gone everywhere.
void redis_world::check_peace() {
  for (const auto& each : machines_) {
    if (!each->now) return fail(each->name + " was not started again");
  }
  for (const std::uint64_t round : {1, 2}) {  // what one node knows is at the server before all ask once more
    for (const auto& each : machines_) {
      put(*each, redis_keys + round);
      for (std::uint64_t key = 0; key < redis_keys; ++key) get(*each, key);
    }
    wire_.run_until(wire_.now() + 5s);
  }
  for (const order& order_of : orders_) {
    if (!order_of.is_answered || order_of.is_forgotten) continue;  // its worker has died
    for (const auto* all : {&order_of.copies, &order_of.unsent}) {
      for (const std::uint64_t one : *all) copies_.at(one).is_gone = true;
    }
  }
  check_all();
  for (const auto& each : machines_) {
    const auto counted = each->now->servers.figures();
    figures_.repeated += counted.repeated;
    if (counted.unconfirmed != 0)
      fail(each->name + " waits for " + std::to_string(counted.unconfirmed) + " removals in peace");
    for (const auto& [key, held] : each->memory) {
      if (copies_.at(held.number).is_cleared)
        fail(each->name + " has " + std::to_string(held.number) + ", which is cleared");
    }
  }
}

}  // namespace cenote::testing
