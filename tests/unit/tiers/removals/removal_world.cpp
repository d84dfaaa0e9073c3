#include "tests/unit/tiers/removals/removal_world.hpp"

#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <variant>

#include "core/calendar_clock.hpp"
#include "core/stored_identity.hpp"
#include "memory/instance_memory.hpp"
#include "transport/peer/block_messages.hpp"

namespace cenote::testing {

using namespace std::chrono_literals;
using blocks::testing::key_of;
using peer::frame_type;

namespace {

constexpr auto faults_for = 10s;
constexpr auto longest_absence = 5s;
constexpr std::chrono::minutes forget_after{1};  // of membership; an hour, where time is no concern
constexpr auto exile = forget_after + 10s;
constexpr auto exile_ends_after = 4s;
constexpr auto peace_for = 40s;  // longer than the longest pause of a dial, and the pause of two rounds, together
constexpr auto patience = 500ms;
constexpr std::uint64_t keys = 6;
constexpr std::uint64_t block_bytes = 4096;
constexpr std::uint32_t guest_pins = 64;

bool is_answer(frame_type type) {
  using enum frame_type;
  return type == bound || type == fetched || type == accept || type == stored || type == forgot;
}

blocks::store_options store_options_of_test() {
  auto options = blocks::testing::options_of(std::uint64_t{1} << 20U);
  options.edges.push_back({.ingest = ingest::all,
                           .write_window = 16 * block_bytes,
                           .read_window = 16 * block_bytes,
                           .hinted = false,
                           .late_offers = blocks::late_offers::lacking});
  return options;
}

boot_time boot_time_at(fake_wire::time_point time) {
  return boot_time(tenths_of(time.time_since_epoch()));
}

}  // namespace

std::string temporary_folder() {
  const std::filesystem::path memory = "/dev/shm";  // a file there is synced at once
  std::error_code ignored;
  const auto parent =
      std::filesystem::is_directory(memory, ignored) ? memory : std::filesystem::temp_directory_path(ignored);
  std::string path = (parent / "cenote-removals-XXXXXX").native();
  if (::mkdtemp(path.data()) == nullptr) std::abort();
  return path;
}

removal_figures& removal_figures::operator+=(const removal_figures& other) {
  done += other.done, pending += other.pending, fetched += other.fetched;
  repeated += other.repeated, restarts += other.restarts, hits += other.hits;
  absences += other.absences, write_offs += other.write_offs;
  return *this;
}

// ---------------------------------------------------------------------------------------------- a node

/// The links of one worker: frames about blocks may be lost, doubled or late, and rules left out.
class removal_world::chaotic_links final : public peer::network {
 public:
  chaotic_links(removal_world& world, worker& owner, peer::network& links)
      : world_(world), owner_(owner), network_(links) {}

  void look_up(const endpoint& name) override { network_.look_up(name); }
  peer::link_id dial(const endpoint& address) override { return network_.dial(address); }
  void send(peer::link_id link, std::vector<std::byte> frame) override { world_.send(owner_, link, std::move(frame)); }
  void join_blocks(peer::link_id target, const endpoint& address, const peer::ticket& proof) override {
    network_.join_blocks(target, address, proof);
  }
  void await_blocks(peer::link_id target, const peer::ticket& proof) override { network_.await_blocks(target, proof); }
  void send_block(peer::link_id link, const peer::piece_header& head, std::span<const std::byte> memory) override {
    network_.send_block(link, head, memory);
  }
  void close(peer::link_id target, error reason) override { network_.close(target, std::move(reason)); }
  void run(std::function<void()> message) override;
  [[nodiscard]] peer::oddities odd() const noexcept override { return {}; }
  void stop() noexcept override {}

 private:
  removal_world& world_;
  worker& owner_;
  peer::network& network_;
};

/// The guest's sessions at the block tier of its node, as actors/guest_room has them.
class removal_world::room final : public cluster::guest_room {
 public:
  room(removal_world& world, worker& home) : world_(world), owner_(home) {}

  void open(const instance_spec& spec, then<result<cluster::guest_session_ptr>> done) override;
  void close(std::uint64_t session) override;
  void disconnect(std::uint64_t session) override;
  void run(std::uint64_t session, std::vector<memory::submission> entries, bool is_late,
           then<std::vector<memory::completion>> done) override;
  void find_slabs(std::uint32_t instance, std::vector<std::uint32_t> target,
                  then<std::vector<memory::slab_place>> done) override;
  void clear_node(then<result<std::uint64_t>> done) override;

 private:
  removal_world& world_;
  worker& owner_;
};

struct removal_world::machine {
  std::string name;
  endpoint address;
  std::uint64_t weight = 1;
  std::uint64_t started_ms = 1, workers = 0, life = 0;
  std::unique_ptr<blocks::testing::node> memory;  ///< the keeper's
  blocks::instance_number instance = 0;
  std::unique_ptr<blocks::testing::client> engine;
  fake_wire::time_point busy_until{};  ///< its block tier has much to do
  bool is_away = false;                ///< it does not start before it comes back
  bool is_written_off = false;         ///< until peace: it may have what was removed, for itself alone
  std::unique_ptr<worker> now;         ///< null: there is none
};

struct removal_world::worker {
  worker(removal_world& world, machine& host_machine, remote::removal_book book);

  machine& host;
  const std::uint64_t life;
  std::shared_ptr<fake_network> network;
  std::shared_ptr<chaotic_links> links;
  std::optional<cluster::membership> members;
  std::set<peer::link_id> carrying{};
  std::uint64_t alarm = 0, followed = 0;  ///< revision of the members that the pool knows
  cluster::pool pool;
  room sessions;
  cluster::guest guest;
  std::set<std::uint64_t> guests{};  ///< sessions
  remote::peers_backend backend;
  remote::store tier{1};
  std::map<std::uint64_t, forgetting> removals{};  ///< of the remote tier, by number
  std::uint64_t next_removal = 1;
  /// By sender and receiver: frames go through the actor of the cluster.
  mailbox to_cluster, guest_to_blocks, network_to_remote, blocks_to_remote, remote_to_blocks;
  /// Without repeats_to_all: what other nodes have confirmed, and the requests that will.
  std::set<std::string> confirmed{};
  std::map<std::uint64_t, std::string> requests{};
};

removal_world::worker::worker(removal_world& world, machine& host_machine, remote::removal_book book)
    : host(host_machine),
      life(host_machine.life),
      network(
          std::make_shared<fake_network>(world.wire_, host_machine.name, host_machine.address, world.events_of(*this))),
      links(std::make_shared<chaotic_links>(world, *this, *network)),
      pool(
          [&world, &host_machine, number = host_machine.life](cluster::pool::steady_time time) {
            world.wire_.at(
                time,
                [&host_machine, number] {
                  if (host_machine.now && host_machine.now->life == number) host_machine.now->pool.advance();
                },
                host_machine.name);
          },
          [&world] { return world.wire_.now(); }),
      sessions(world, *this),
      guest(pool, sessions,
            {.window = 2 * block_bytes,
             .removal_lag = world.options_.rules.keeps_lag ? cluster::guest_options::lag_of(world.peers_.timeout)
                                                           : std::chrono::milliseconds(0)}),
      backend(pool, world.peers_,
              {.put =
                   [&world, this](const std::vector<remote::item_outcome>& all) {
                     world.post(*this, network_to_remote, [&world, all](worker& node) {
                       node.tier.answered(0, remote::call::kind::put, all, world.wire_.now());
                       world.flush_remote(node);
                     });
                   },
               .got =
                   [&world, this](const std::vector<remote::item_outcome>& all) {
                     world.post(*this, network_to_remote, [&world, all](worker& node) {
                       node.tier.answered(0, remote::call::kind::get, all, world.wire_.now());
                       world.flush_remote(node);
                     });
                   },
               .standing =
                   [&world, this](const result<void>& outcome) {
                     world.post(*this, network_to_remote, [&world, outcome](worker& node) {
                       node.tier.set_standing(0, outcome);
                       if (outcome) node.backend.bind(world.spec_);
                       const bool stands = outcome.has_value();
                       world.post(node, node.remote_to_blocks, [&world, stands](worker& same) {
                         same.host.memory->tier->set_standing(0, stands);
                         if (stands && world.catches_up_) (void)same.host.memory->tier->begin_catching_up(0);
                         world.flush_blocks(same);
                       });
                     });
                   }},
              std::move(book)) {
  pool.join(&backend, &guest);
  pool.use(links);
}

void removal_world::chaotic_links::run(std::function<void()> message) {
  network_.run([&world = world_, &host_machine = owner_.host, life = owner_.life, message = std::move(message)] {
    message();
    if (!world.options_.rules.keeps_removed_keys && host_machine.now && host_machine.now->life == life)
      host_machine.now->pool.removals = {};
  });
}

// ---------------------------------------------------------------------------------------------- the guest's sessions

void removal_world::room::open(const instance_spec&, then<result<cluster::guest_session_ptr>> done) {
  world_.post(owner_, owner_.guest_to_blocks, [this, done = std::move(done)](worker& node) {
    blocks::testing::node& memory = *node.host.memory;
    const auto number = memory.attach(node.host.instance, guest_pins);
    node.guests.insert(number);
    auto fds = memory.tier->descriptors(node.host.instance);
    auto index = memory::open_index(std::move(fds->first));
    auto versions = memory::open_versions(std::move(fds->second));
    auto session =
        std::make_shared<cluster::guest_session>(std::move(*index), std::move(*versions), memory.session(number));
    session->number = number;
    session->instance = node.host.instance;
    world_.run_on_network(node, [done, session](worker&) { done(session); });
  });
}

void removal_world::room::close(std::uint64_t session) {
  world_.post(owner_, owner_.guest_to_blocks, [session](worker& node) {
    if (node.guests.erase(session) != 0) node.host.memory->bury(session);
  });
}

void removal_world::room::disconnect(std::uint64_t session) {
  world_.post(owner_, owner_.guest_to_blocks, [this, session](worker& node) {
    node.host.memory->tier->disconnect_session(session, node.host.memory->now);
  });
}

void removal_world::room::run(std::uint64_t session, std::vector<memory::submission> entries, bool,
                              then<std::vector<memory::completion>> done) {
  world_.post(owner_, owner_.guest_to_blocks,
              [this, session, entries = std::move(entries), done = std::move(done)](worker& node) {
                blocks::batch batch;
                batch.session = session;
                batch.is_guest = true;
                batch.entries = entries;
                blocks::testing::node& memory = *node.host.memory;
                while (memory.tier->run(batch, memory.now) == blocks::progress::waits_for_memory) {
                  if (!memory.pump()) memory.tier->give_up(batch, memory.now);
                }
                world_.flush_blocks(node);
                const auto answers = std::make_shared<std::vector<memory::completion>>(std::move(batch.completions));
                const auto finish = [this, &node, done, answers](const std::string& reason) {
                  if (!reason.empty()) answers->clear();
                  world_.run_on_network(node, [done, answers](worker&) { done(*answers); });
                };
                if (batch.removals.empty()) return finish({});
                world_.forget(node, std::move(batch.removals), true, finish);
                batch.removing.reset();
              });
}

void removal_world::room::find_slabs(std::uint32_t instance, std::vector<std::uint32_t> target,
                                     then<std::vector<memory::slab_place>> done) {
  world_.post(owner_, owner_.guest_to_blocks,
              [this, instance, target = std::move(target), done = std::move(done)](worker& node) {
                std::vector<memory::slab_place> found;
                for (const std::uint32_t index : target) {
                  if (const auto place = node.host.memory->tier->slab_place_of(instance, index))
                    found.push_back(*place);
                }
                world_.run_on_network(node, [done, found](worker&) { done(found); });
              });
}

/// As actors/dram_tier does it, where a disk takes its time.
void removal_world::room::clear_node(then<result<std::uint64_t>> done) {
  const auto time = world_.wire_.now() + std::chrono::milliseconds(world_.fates_() % 2000);
  world_.wire_.at(
      time,
      [this, &host_machine = owner_.host, life = owner_.life, done = std::move(done)] {
        if (!host_machine.now || host_machine.now->life != life) return;
        world_.post(owner_, owner_.guest_to_blocks, [this, done](worker& node) { world_.clear_all(node, done); });
      },
      owner_.host.name);
}

void removal_world::clear_all(worker& home, const std::function<void(result<std::uint64_t>)>& done) {
  show(home.host.name + " clears itself");
  if (!options_.rules.clears_returned) return run_on_network(home, [done](worker&) { done(0); });
  flush_blocks(home);
  const std::uint64_t count = home.host.memory->tier->clear_all(home.host.memory->now);
  const auto finish = [this, &home, done, count](const std::string& reason) {
    run_on_network(home, [done, count, reason](worker&) {
      done(reason.empty() ? result<std::uint64_t>(count) : cenote::fail(error_code::internal, reason));
    });
  };
  forget(home, {{.instance = home.host.instance, .all = true, .keys = {}}}, true, finish);
}

// ---------------------------------------------------------------------------------------------- the world

removal_world::removal_world(std::uint64_t seed, removal_options options)
    : wire_(seed), fates_(~seed), options_(options), start_(wire_.now()), folder_(temporary_folder()) {
  spec_ = blocks::testing::spec_of("model", block_bytes);
  peers_ = {.timeout = patience,
            .settle = wire_.chance() < 0.5 ? std::chrono::milliseconds(1000) : std::chrono::milliseconds(60'000),
            .window = 2 * block_bytes,
            .replicas = wire_.chance() < 0.3 ? std::size_t{2} : std::size_t{1}};
  const auto count = 2 + wire_.number(3);
  for (std::uint64_t i = 0; i < count; ++i) add_machine(std::string(1, static_cast<char>('a' + i)));
}

removal_world::~removal_world() {
  for (const auto& each : machines_) kill(*each, false);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void removal_world::add_machine(const std::string& name) {
  auto& made = *machines_.emplace_back(std::make_unique<machine>());
  made.name = name;
  made.address = {"10.0.0." + std::to_string(machines_.size()), 7000};
  made.started_ms = 1000 + wire_.number(1'000'000);
  made.memory = std::make_unique<blocks::testing::node>(store_options_of_test());
  made.memory->now = boot_time_at(wire_.now());
  made.instance = made.memory->add(spec_);
  made.engine = std::make_unique<blocks::testing::client>(*made.memory, made.instance);
  (void)made.memory->tier->take_bindings();
  start(made);
}

void removal_world::show(const std::string& message) {
  if (options_.shows)
    std::cerr << std::chrono::duration<double, std::milli>(wire_.now() - start_).count() << " ms: " << message << '\n';
}

void removal_world::fail(const std::string& message) {
  if (!failure_) failure_ = std::to_string((wire_.now() - start_) / 1ms) + " ms: " + message;
  show("WRONG: " + message);
}

void removal_world::start(machine& target) {
  if (target.now || target.is_away) return;
  show(target.name + " starts");
  const std::string file = folder_ + "/" + target.name;
  if (!options_.rules.keeps_book) std::filesystem::remove(file);
  auto book = remote::removal_book::open(file, calendar_ns());
  if (!book) return fail(book.error().describe());
  if (!options_.rules.keeps_names && is_long_after_) {
    const auto nodes = book->nodes();
    for (const auto& [name, known] : nodes) book->forget_node(name);
  }
  ++target.life;
  target.now = std::make_unique<worker>(*this, target, std::move(*book));
  worker& made = *target.now;
  cluster::membership_options options;
  options.cluster = "test";
  options.seeds = {{"10.0.0.1", 7000}, {"10.0.0.2", 7000}};
  options.forget_after = forget_after;
  options.jitter_seed = wire_.number(1U << 30U);
  made.members.emplace(cluster::identity{.name = target.name,
                                         .where = target.address,
                                         .blocks_at = target.address,
                                         .born = peer::incarnation::of(target.started_ms, ++target.workers),
                                         .weight = target.weight},
                       options, wire_.now());
  connect_tier(made);
  made.members->advance(wire_.now());
  carry_out(made);
  tick(made);
  check(target);
}

/// Its blocks and its file stay.
void removal_world::kill(machine& target, bool is_closing_links) {
  if (!target.now) return;
  wire_.crash(target.name, is_closing_links);
  for (const std::uint64_t each : target.now->guests) target.memory->sessions.erase(each);
  target.now->network->stop();
  target.now.reset();
}

void removal_world::post(worker& home, mailbox& box, action message) {
  const auto hop = std::chrono::microseconds(wire_.number(wire_.chance() < 0.05 ? 20'000 : 200));
  auto time = wire_.now() + hop;
  if (home.host.busy_until > wire_.now() && &box == &home.guest_to_blocks)
    time += std::chrono::milliseconds(wire_.number(1500));
  box.last = time = std::max(time, box.last + 1ns);
  wire_.at(
      time,
      [this, &host_machine = home.host, life = home.life, message = std::move(message)] {
        if (!host_machine.now || host_machine.now->life != life) return;
        host_machine.memory->now = boot_time_at(wire_.now());
        message(*host_machine.now);
        if (host_machine.now) check(host_machine);
      },
      home.host.name);
}

void removal_world::run_on_network(worker& home, action message) {
  home.links->run([&host_machine = home.host, life = home.life, message = std::move(message)] {
    if (!host_machine.now || host_machine.now->life != life) return;
    message(*host_machine.now);
    host_machine.now->pool.flush();
  });
}

// ---------------------------------------------------------------------------------------------- links and members

peer::network_events removal_world::events_of(worker& home) {
  peer::network_events events;
  events.opened = [this, &home](peer::link_id link, bool is_dialled, const endpoint&) {
    post(home, home.to_cluster, [this, link, is_dialled](worker& node) {
      node.members->opened(link, is_dialled, wire_.now());
      carry_out(node);
    });
  };
  events.closed = [this, &home](peer::link_id link, const error& reason) {
    home.pool.closed(link);
    home.pool.flush();
    post(home, home.to_cluster, [this, link, reason](worker& node) {
      node.carrying.erase(link);
      node.members->closed(link, reason, wire_.now());
      carry_out(node);
    });
  };
  events.heard = [this, &home](peer::link_id link, std::span<const std::byte> bytes) {
    post(home, home.to_cluster, [this, link, frame = std::vector<std::byte>(bytes.begin(), bytes.end())](worker& node) {
      hear(node, link, frame);
    });
  };
  events.carries_blocks = [this, &home](peer::link_id target) {
    post(home, home.to_cluster, [this, target](worker& node) {
      node.carrying.insert(target);
      tell_pool(node);
    });
  };
  events.expects = [&home](peer::link_id link, const peer::piece_header& head, std::size_t bytes) {
    return home.pool.expects(link, head, bytes);
  };
  events.landed = [&home](peer::link_id link, const peer::piece_header& head, std::span<const std::byte> piece) {
    home.pool.landed(link, head, piece);
    home.pool.flush();
  };
  events.sent = [&home](peer::link_id link, std::uint64_t token, const result<void>& outcome) {
    home.pool.sent(link, token, outcome.has_value());
    home.pool.flush();
  };
  return events;
}

void removal_world::hear(worker& home, peer::link_id link, const std::vector<std::byte>& frame) {
  const auto other = home.members->heard(link, frame, wire_.now());
  if (!other || other->frame.type < frame_type::bind) return carry_out(home);
  carry_out(home);
  run_on_network(home, [this, link, type = other->frame.type, request = other->frame.request,
                        body =
                            std::vector<std::byte>(other->frame.body.begin(), other->frame.body.end())](worker& node) {
    if (const auto asked = node.requests.find(request); type == frame_type::forgot && asked != node.requests.end()) {
      const auto answer = peer::decode_forget_answer(body);
      if (answer && answer->why.empty()) node.confirmed.insert(asked->second);
      node.requests.erase(asked);
    }
    if (type == frame_type::forget && !options_.rules.revokes_deliveries) {
      if (const auto removal = peer::decode_forget_request(body); removal && removal->cleared == 0)
        return remove_stored(node, link, request, *removal);
    }
    node.pool.heard(link, type, request, body);
  });
}

/// As the guest does it, but that blocks on their way here are left alone.
void removal_world::remove_stored(worker& home, peer::link_id link, std::uint64_t request,
                                  const peer::forget_request& removal) {
  home.pool.removals.begin(removal.identity, removal.keys, wire_.now());
  const auto answer = [this, link, request, removal](worker& node, const std::string& reason) {
    const auto end = wire_.now() + cluster::guest_options::lag_of(peers_.timeout);
    node.pool.removals.end(removal.identity, removal.keys, end, wire_.now());
    node.pool.send(link, frame_type::forgot, request, peer::encode(peer::forget_answer{0, reason}));
  };
  post(home, home.guest_to_blocks, [this, answer, keys = removal.keys](worker& node) {
    blocks::batch batch;
    batch.session = node.host.engine->number;
    batch.is_guest = true;
    for (const block_key& each : keys) {
      auto& entry = batch.entries.emplace_back(node.host.engine->entry_of(memory::operation::remove, full_key{}));
      std::memcpy(entry.key, &each, sizeof each);
      entry.key_size = sizeof each;
      entry.flags |= memory::submission::flag_reduced;
    }
    batch.entries.back().flags |= memory::submission::flag_last;
    while (node.host.memory->tier->run(batch, node.host.memory->now) == blocks::progress::more) {
    }
    forget(node, std::move(batch.removals), true, [this, &node, answer](const std::string& reason) {
      run_on_network(node, [answer, reason](worker& same) { answer(same, reason); });
    });
    batch.removing.reset();
  });
}

void removal_world::carry_out(worker& home) {
  for (cluster::saying& each : home.members->take_sayings()) {
    if (auto* dial = std::get_if<cluster::dial_saying>(&each)) {
      home.members->dialling(dial->where, home.network->dial(dial->where));
    } else if (auto* say = std::get_if<cluster::frame_saying>(&each)) {
      home.network->send(say->to, std::move(say->frame));
    } else if (auto* shut = std::get_if<cluster::close_saying>(&each)) {
      home.network->close(shut->which, shut->why);
    } else if (auto* join = std::get_if<cluster::join_saying>(&each)) {
      home.network->join_blocks(join->which, join->where, join->proof);
    } else if (auto* wait = std::get_if<cluster::await_saying>(&each)) {
      home.network->await_blocks(wait->which, wait->proof);
    }
  }
  (void)home.members->take_news();
  if (std::exchange(home.followed, home.members->revision()) != home.members->revision()) tell_pool(home);
  set_alarm(home);
}

/// As the actor of the cluster does.
void removal_world::tell_pool(worker& home) {
  cluster::pool_members now{
      .self = home.host.name, .weight = home.host.weight, .born = home.members->self().born, .others = {}};
  for (const cluster::peer_row& each : home.members->peers()) {
    if (each.who.name.empty()) continue;
    if (each.state == cluster::peer_state::suspect || each.state == cluster::peer_state::gone)
      now.silent.push_back(each.who.name);
    if (each.state == cluster::peer_state::left) {
      now.stopped.push_back(each.who.name);
      if (each.who.has_drained()) now.drained.push_back(each.who.name);
    }
    if (each.state != cluster::peer_state::live) continue;
    cluster::pool_member one{.name = each.who.name, .weight = each.who.weight, .link = each.link};
    one.key = home.members->key_of(each.link);
    one.carries_blocks = home.carrying.contains(each.link);
    now.others.push_back(std::move(one));
  }
  run_on_network(home, [now](worker& node) { node.pool.take_members(now); });
}

void removal_world::set_alarm(worker& home) {
  wire_.at(
      home.members->wake_at(),
      [this, &host_machine = home.host, life = home.life, number = ++home.alarm] {
        if (!host_machine.now || host_machine.now->life != life || host_machine.now->alarm != number) return;
        host_machine.now->members->advance(wire_.now());
        carry_out(*host_machine.now);
      },
      home.host.name);
}

/// Leaves rules out, and lets links be worse than they are.
void removal_world::send(worker& home, peer::link_id link, std::vector<std::byte> frame) {
  const auto read = peer::decode_frame(frame);
  const frame_type type = read->type;
  const bool is_question = type == frame_type::fetch || type == frame_type::fetch_here;
  const bool is_offer = type == frame_type::offer;
  if ((is_question && !options_.rules.names_clears) || (is_offer && !options_.rules.offers_name_clears)) {
    auto asked = peer::decode_block_request(read->body);
    asked->cleared.reset();
    frame = peer::encode_frame(type, read->request, home.members->self().born, peer::encode(*asked));
  }
  if (type == frame_type::write_off && is_left_out(home, link, *read)) return;
  if (type == frame_type::forget && !options_.rules.repeats_to_all) {
    const auto asked = peer::decode_forget_request(read->body);
    std::string name = home.members->name_on(link) + " " + std::to_string(asked->cleared);
    for (const block_key& each : asked->keys) name += " " + std::to_string(each.lo);
    if (home.confirmed.contains(name)) {
      return run_on_network(home, [link, request = read->request](worker& node) {
        node.pool.heard(link, frame_type::forgot, request, peer::encode(peer::forget_answer{}));
      });
    }
    home.requests[read->request] = name;
  }
  if (options_.shows)
    show(home.host.name + " to " + home.members->name_on(link) + ": frame " + std::to_string(static_cast<int>(type)) +
         ", " + std::to_string(read->request));
  pass_on(home, link, frame);
  if (is_peace_) return;
  if (wire_.chance() < 0.02) pass_on(home, link, frame);
  if (wire_.chance() >= 0.02) return;
  wire_.at(
      wire_.now() + std::chrono::milliseconds(wire_.number(3000)),
      [this, &host_machine = home.host, life = home.life, link, frame] {
        if (host_machine.now && host_machine.now->life == life) host_machine.now->network->send(link, frame);
      },
      home.host.name);
}

/// Of a write-off: it goes to the node itself alone, or counts as over at once.
bool removal_world::is_left_out(worker& home, peer::link_id link, const peer::frame_view& notice) {
  if (!options_.rules.awaits_clears && notice.request != 0) {
    run_on_network(home, [link, request = notice.request](worker& node) {
      node.pool.heard(link, frame_type::forgot, request, peer::encode(peer::forget_answer{}));
    });
  }
  return !options_.rules.spreads_write_offs && notice.request == 0;
}

void removal_world::pass_on(worker& home, peer::link_id link, const std::vector<std::byte>& frame) {
  const bool is_lost = !is_peace_ && is_answer(peer::decode_frame(frame)->type) && wire_.chance() < 0.02;
  if (!is_lost) home.network->send(link, frame);
}

// ---------------------------------------------------------------------------------------------- the tiers of a node

void removal_world::connect_tier(worker& home) {
  home.tier.bind(home.host.instance, spec_, true);
  home.backend.bind(spec_);
  home.host.memory->tier->set_standing(0, false);
  home.host.memory->tier->release_loading(0);
  flush_blocks(home);
}

/// Decisions go to the remote tier in their order.
void removal_world::flush_blocks(worker& home) {
  (void)home.host.memory->pump();
  while (home.host.memory->tier->hand_on(home.host.memory->now)) {
  }
  (void)home.host.memory->tier->end_handing_on(false);
  if (auto down = home.host.memory->tier->take_demotions(0); !down.empty()) {
    post(home, home.blocks_to_remote, [this, down = std::move(down)](worker& node) {
      node.tier.put(down, {.steady = wire_.now(), .boot = {}});
      flush_remote(node);
    });
  }
  if (auto up = home.host.memory->tier->take_loads(0); !up.empty()) {
    post(home, home.blocks_to_remote, [this, up = std::move(up)](worker& node) {
      node.tier.get(up, wire_.now());
      flush_remote(node);
    });
  }
}

void removal_world::flush_remote(worker& home) {
  for (remote::call& each : home.tier.take_calls()) {
    if (each.what == remote::call::kind::get)
      home.backend.get(std::move(each.items));
    else
      home.backend.put(std::move(each.items));
  }
  for (const remote::late_removal& each : home.tier.take_late()) {
    home.backend.drop(each.identity, {each.key}, [](const result<std::uint64_t>&) {});
  }
  auto outcomes = home.tier.take_outcomes();
  if (outcomes.empty()) return;
  post(home, home.remote_to_blocks, [this, outcomes = std::move(outcomes)](worker& node) {
    for (const transfer_outcome& each : outcomes) figures_.fetched += each.what == transfer_result::done ? 1 : 0;
    (void)node.host.memory->tier->transferred(outcomes, node.host.memory->now);
    flush_blocks(node);
  });
}

/// `is_on_its_way`: another node asks all others.
void removal_world::forget(worker& home, std::vector<blocks::removal> removals, bool is_on_its_way,
                           std::function<void(const std::string&)> finish) {
  flush_blocks(home);
  post(home, home.blocks_to_remote, [=, this](worker& node) {
    const std::uint64_t number = node.next_removal++;
    node.removals[number].finish = finish;
    const auto end = [this, &host_machine = node.host, life = node.life, number](const std::string& reason) {
      if (!host_machine.now || host_machine.now->life != life) return;
      post(*host_machine.now, host_machine.now->network_to_remote,
           [this, number, reason](worker& same) { end_part(same, number, reason); });
    };
    for (const blocks::removal& each : removals) {
      node.tier.forget(each.instance, each.all ? std::vector<block_key>() : each.keys);
      if (is_on_its_way) continue;
      ++node.removals[number].open;
      const instance_identity identity = identity_of(spec_);
      if (each.all) {
        node.backend.clear(identity,
                           [end](const result<void>& outcome) { end(outcome ? "" : outcome.error().message()); });
      } else {
        node.backend.drop(identity, each.keys, [end](const result<std::uint64_t>& outcome) {
          end(outcome ? "" : outcome.error().message());
        });
      }
    }
    end_part(node, number, {});
  });
}

void removal_world::end_part(worker& home, std::uint64_t number, const std::string& reason) {
  const auto found = home.removals.find(number);
  if (found == home.removals.end()) return;
  if (!reason.empty()) found->second.reason = reason;
  if (--found->second.open != 0) return;
  post(home, home.remote_to_blocks,
       [finish = std::move(found->second.finish), reason = found->second.reason](worker&) { finish(reason); });
  home.removals.erase(found);
}

void removal_world::tick(worker& home) {
  wire_.at(
      wire_.now() + 500ms,
      [this, &host_machine = home.host, life = home.life] {
        if (!host_machine.now || host_machine.now->life != life) return;
        host_machine.memory->now = boot_time_at(wire_.now());
        host_machine.memory->tier->tick(host_machine.memory->now);
        flush_blocks(*host_machine.now);
        check(host_machine);
        tick(*host_machine.now);
      },
      home.host.name);
}

// ---------------------------------------------------------------------------------------------- the engine

void removal_world::work(machine& target) {
  if (!target.now || wire_.frozen_until(target.name) > wire_.now()) return;
  target.memory->now = boot_time_at(wire_.now());
  const std::uint64_t key = wire_.number(keys);
  const double draw = wire_.chance();
  if (draw < 0.3) {
    put(*target.now, key);
  } else if (draw < 0.75) {
    get(*target.now, key);
  } else if (draw < 0.85) {  // its place is needed
    const block_key name = reduce_key(key_of(key).view(), 0);
    (void)target.memory->tier->forget_keys(target.instance, std::span(&name, 1), target.memory->now);
  } else if (draw < 0.97) {
    remove(*target.now, {key});
  } else {
    remove(*target.now, {});
  }
}

void removal_world::put(worker& home, std::uint64_t key) {
  blocks::testing::client& engine = *home.host.engine;
  const auto place = engine.obtain();
  if (!place) return;
  const std::uint64_t number = copies_.size() + 1;
  const std::array words{number, key};
  std::memcpy(home.host.memory->bytes(home.host.instance, place->ref), words.data(), sizeof words);
  const auto stored = engine.ask({engine.commit_of(*place, key_of(key))});
  if (stored.value == 1) {
    copies_[number].key = key;
    show(home.host.name + " stores " + std::to_string(key) + " as " + std::to_string(number));
  }
  flush_blocks(home);
}

void removal_world::get(worker& home, std::uint64_t key) {
  if (find(home.host, key)) return;
  (void)home.host.memory->tier->load(home.host.instance, 0, key_of(key), home.host.memory->now);
  flush_blocks(home);
}

/// No keys: all of the instance.
void removal_world::remove(worker& home, const std::vector<std::uint64_t>& target) {
  const std::size_t number = orders_.size();
  order& made = orders_.emplace_back();
  made.name = home.host.name;
  for (const auto& [name, each] : copies_) {
    if (target.empty() || std::ranges::find(target, each.key) != target.end()) made.copies.insert(name);
  }
  show(home.host.name + (target.empty() ? " clears" : " removes " + std::to_string(target.front())) + ", " +
       std::to_string(number));
  blocks::batch batch;
  batch.session = home.host.engine->number;
  if (target.empty()) batch.entries.push_back(home.host.engine->entry_of(memory::operation::clear, full_key{}));
  for (const std::uint64_t each : target)
    batch.entries.push_back(home.host.engine->entry_of(memory::operation::remove, key_of(each)));
  batch.entries.back().flags |= memory::submission::flag_last;
  while (home.host.memory->tier->run(batch, home.host.memory->now) == blocks::progress::more) {
  }
  forget(home, std::move(batch.removals), false,
         [this, number](const std::string& reason) { take_answer(number, reason); });
  batch.removing.reset();
}

void removal_world::take_answer(std::size_t number, const std::string& reason) {
  order& home = orders_[number];
  home.is_answered = true;
  ++(reason.empty() ? figures_.done : figures_.pending);
  show(std::to_string(number) + " is " + (reason.empty() ? "done" : "pending: " + reason));
  for (const std::uint64_t each : home.copies) {
    if (reason.empty())
      copies_.at(each).is_gone = true;
    else
      copies_.at(each).gone_at.insert(home.name);
  }
  check_all();
}

// ---------------------------------------------------------------------------------------------- faults and checks

void removal_world::fault() {
  machine& one = any();
  machine& other = any();
  const double draw = wire_.chance();
  if (draw < 0.3 && one.now) {
    const bool is_closing_links = wire_.chance() < 0.6;
    show(one.name + (is_closing_links ? " is killed" : "'s machine is gone"));
    kill(one, is_closing_links);
    ++figures_.restarts;
    if (wire_.chance() < 0.3) one.started_ms += 1 + wire_.number(100'000), one.workers = 0;
    wire_.at(wire_.now() + std::chrono::milliseconds(wire_.number(longest_absence / 1ms)), [this, &one] {
      if (!one.now && !one.is_away) come_back(one);
    });
    if (fates_() % 8 != 0) return;
    wire_.at(wire_.now() + std::chrono::milliseconds(fates_() % 4000), [this, &one] {
      if (!one.now && !is_peace_) write_off(one);
    });
  } else if (draw < 0.5) {
    const auto time = std::chrono::milliseconds(wire_.number(wire_.chance() < 0.3 ? longest_absence / 1ms : 1500));
    show(one.name + " stands still for " + std::to_string(time / 1ms) + " ms");
    wire_.freeze(one.name, wire_.now() + time);
  } else if (draw < 0.8 && &one != &other) {
    show(one.name + " is cut off from " + other.name);
    wire_.cut(one.name, other.name);
    if (wire_.chance() < 0.5) wire_.cut(other.name, one.name);
    wire_.at(wire_.now() + std::chrono::milliseconds(wire_.number(6000)), [this] { wire_.heal(); });
  } else if (draw < 0.95) {
    one.busy_until = wire_.now() + std::chrono::milliseconds(wire_.number(3000));
    show(one.name + " is busy");
  } else {
    wire_.habit.spread = std::chrono::microseconds(wire_.number(20'000));
  }
}

/// A node stops, or is gone, and stays away until membership has forgotten it; the others go on removing, some of them
/// as later workers. Then it comes back with all that it had.
void removal_world::stay_away() {
  machine& absent = any();
  const bool is_written_off = fates_() % 2 == 0;
  ++figures_.absences;
  wire_.heal();
  if (absent.now && is_written_off) {
    for (std::uint64_t key = 0; key < keys; ++key) put(*absent.now, key);
  }
  if (absent.now && wire_.chance() < 0.5) {
    show(absent.name + " leaves");
    absent.now->members->leave(wire_.now());
    carry_out(*absent.now);
    wire_.run_until(wire_.now() + 50ms);
  }
  show(absent.name + " stays away");
  absent.is_away = true;
  kill(absent, wire_.chance() < 0.6);
  wire_.run_until(wire_.now() + exile);
  is_long_after_ = true;
  for (const auto& each : machines_) {
    if (each.get() == &absent || !each->now || wire_.chance() < 0.5) continue;
    kill(*each, true);
    come_back(*each);
  }
  const auto end = wire_.now() + exile_ends_after;
  for (auto time = wire_.now() + 1s; time < end; time += std::chrono::milliseconds(wire_.number(200)))
    wire_.at(time, [this] { work(any()); });
  if (is_written_off) wire_.at(wire_.now() + std::chrono::milliseconds(fates_() % 3000), [&] { write_off(absent); });
  wire_.run_until(end);
  absent.is_away = false;
  if (wire_.chance() < 0.5) absent.started_ms += 1 + wire_.number(100'000), absent.workers = 0;
  catches_up_ = is_written_off && fates_() % 2 == 0;
  come_back(absent);
  if (is_written_off) work_with_returned();
}

/// An operator's word, at some node that is there; then some of what there was is removed.
void removal_world::write_off(machine& absent) {
  machine* const home = any_present();
  if (home == nullptr) return;
  run_on_network(*home->now, [this, &absent](worker& node) {
    const auto written = node.pool.write_off(absent.name);
    show(node.host.name + (written ? " writes off " : " cannot write off ") + absent.name);
    if (!written) return;
    absent.is_written_off = true;
    ++figures_.write_offs;
  });
  for (std::uint64_t key = 0; key < keys; ++key) {
    wire_.at(wire_.now() + std::chrono::milliseconds(fates_() % 2000), [this, key] {
      machine* const remover = any_present();
      if (remover != nullptr && fates_() % 2 == 0) remove(*remover->now, {key});
    });
  }
}

/// Null: there is none.
removal_world::machine* removal_world::any_present() {
  std::vector<machine*> present;
  for (const auto& each : machines_) {
    if (each->now) present.push_back(each.get());
  }
  return present.empty() ? nullptr : present[fates_() % present.size()];
}

/// The others want blocks again, while the one that was written off clears its own.
void removal_world::work_with_returned() {
  const auto end = wire_.now() + 4s;
  for (auto time = wire_.now(); time < end; time += std::chrono::milliseconds(fates_() % 100)) {
    wire_.at(time, [this] {
      if (machine* const reader = any_present()) get(*reader->now, fates_() % keys);
    });
  }
  wire_.run_until(end);
}

void removal_world::come_back(machine& target) {
  target.memory->now = boot_time_at(wire_.now());
  (void)target.memory->restart();
  start(target);
}

std::optional<std::string> removal_world::run() {
  const auto peace = start_ + faults_for;
  for (auto time = start_ + 500ms; time < peace; time += std::chrono::milliseconds(wire_.number(100)))
    wire_.at(time, [this] { work(any()); });
  for (auto time = start_ + 1s; time < peace; time += std::chrono::milliseconds(200 + wire_.number(2000)))
    wire_.at(time, [this] { fault(); });
  wire_.run_until(peace);
  if (wire_.chance() < 0.3) stay_away();
  show("peace");
  is_peace_ = true;
  wire_.heal();
  wire_.habit = {};
  wire_.run_until(wire_.now() + longest_absence + peace_for);
  check_peace();
  return failure_;
}

/// The copy that an engine finds.
std::optional<std::uint64_t> removal_world::find(machine& target, std::uint64_t key) {
  const auto slot = target.engine->pin(key_of(key));
  if (!slot) return std::nullopt;
  std::array<std::uint64_t, 2> words{};
  std::memcpy(words.data(), target.engine->pinned_bytes(*slot), sizeof words);
  target.engine->unpin(*slot);
  if (words[1] != key) fail(target.name + " finds another block under " + std::to_string(key));
  return words[0];
}

void removal_world::check(machine& target) {
  for (std::uint64_t key = 0; key < keys && !failure_; ++key) {
    const auto found = find(target, key);
    if (!found) {
      last_look_.erase({target.name, key});
      continue;
    }
    const copy& home = copies_.at(*found);
    if (home.is_gone && !target.is_written_off)
      fail(target.name + " finds " + std::to_string(*found) + ", which is removed");
    if (options_.shows && last_look_[{target.name, key}] != *found)
      show(target.name + " has " + std::to_string(key) + " as " + std::to_string(*found));
    last_look_[{target.name, key}] = *found;
    if (home.gone_at.contains(target.name))
      fail(target.name + " finds " + std::to_string(*found) + ", which it removed");
  }
}

void removal_world::check_all() {
  for (const auto& each : machines_) {
    if (each->now) check(*each);
  }
}

void removal_world::check_peace() {
  for (const order& each : orders_) {
    if (!each.is_answered) continue;  // its worker has died
    for (const std::uint64_t one : each.copies) copies_.at(one).is_gone = true;
  }
  for (const auto& each : machines_) each->is_written_off = false;
  check_all();
  for (const auto& each : machines_) {
    if (!each->now) return fail(each->name + " was not started again");
    each->memory->now = boot_time_at(wire_.now());
    for (std::uint64_t key = 0; key < keys; ++key) get(*each->now, key);
  }
  wire_.run_until(wire_.now() + 5s);
  check_all();
  for (const auto& each : machines_) {
    const auto counters = each->now->pool.copy_counters();
    figures_.repeated += counters.repeated_removals;
    for (std::uint64_t key = 0; key < keys; ++key) figures_.hits += find(*each, key) ? 1 : 0;
    if (counters.unconfirmed != 0)
      fail(each->name + " waits for " + std::to_string(counters.unconfirmed) + " removals in peace");
    if (counters.write_offs != 0) fail(each->name + " waits for the clear of a node in peace");
  }
}

}  // namespace cenote::testing
