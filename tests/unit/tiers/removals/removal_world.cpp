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
constexpr auto peace_for = 40s;  // longer than the longest pause of a dial, and the pause of two rounds, together
constexpr auto patience = 500ms;
constexpr std::uint64_t keys = 6;
constexpr std::uint64_t block_bytes = 4096;
constexpr std::uint32_t guest_pins = 64;

bool is_answer(frame_type type) {
  using enum frame_type;
  return type == bound || type == fetched || type == accept || type == stored || type == forgot;
}

std::string temporary_folder() {
  const std::filesystem::path memory = "/dev/shm";  // a file there is synced at once
  std::error_code ignored;
  const auto parent =
      std::filesystem::is_directory(memory, ignored) ? memory : std::filesystem::temp_directory_path(ignored);
  std::string path = (parent / "cenote-removals-XXXXXX").native();
  if (::mkdtemp(path.data()) == nullptr) std::abort();
  return path;
}

blocks::store_options store_options_of_test() {
  auto options = blocks::testing::options_of(std::uint64_t{1} << 20U);
  options.edges.push_back(
      {.ingest = ingest::all, .write_window = 16 * block_bytes, .read_window = 16 * block_bytes, .hinted = false});
  return options;
}

boot_time boot_time_at(fake_wire::time_point when) {
  return boot_time(tenths_of(when.time_since_epoch()));
}

}  // namespace

removal_figures& removal_figures::operator+=(const removal_figures& other) {
  done += other.done, pending += other.pending, fetched += other.fetched;
  repeated += other.repeated, restarts += other.restarts, found += other.found;
  return *this;
}

// ---------------------------------------------------------------------------------------------- what a node is

/// The links of one worker: frames about blocks may be lost, doubled or late, and rules left out.
class removal_world::chaotic_links final : public peer::network {
 public:
  chaotic_links(removal_world& world, worker& of, peer::network& under) : world_(world), of_(of), under_(under) {}

  peer::link_id dial(const endpoint& where) override { return under_.dial(where); }
  void send(peer::link_id to, std::vector<std::byte> frame) override { world_.send(of_, to, std::move(frame)); }
  void join_blocks(peer::link_id which, const endpoint& where, const peer::ticket& proof) override {
    under_.join_blocks(which, where, proof);
  }
  void await_blocks(peer::link_id which, const peer::ticket& proof) override { under_.await_blocks(which, proof); }
  void send_block(peer::link_id to, const peer::piece_header& head, std::span<const std::byte> memory) override {
    under_.send_block(to, head, memory);
  }
  void close(peer::link_id which, error why) override { under_.close(which, std::move(why)); }
  void run(std::function<void()> what) override;
  [[nodiscard]] peer::oddities odd() const noexcept override { return {}; }
  void stop() noexcept override {}

 private:
  removal_world& world_;
  worker& of_;
  peer::network& under_;
};

/// The guest's sessions at the block tier of its node, as actors/guest_room has them.
class removal_world::room final : public cluster::guest_room {
 public:
  room(removal_world& world, worker& of) : world_(world), of_(of) {}

  void open(const instance_spec& spec, then<result<cluster::guest_session_ptr>> done) override;
  void close(std::uint64_t session) override;
  void disconnect(std::uint64_t session) override;
  void run(std::uint64_t session, std::vector<memory::submission> entries, bool is_late,
           then<std::vector<memory::completion>> done) override;
  void find_slabs(std::uint32_t instance, std::vector<std::uint32_t> which,
                  then<std::vector<memory::slab_place>> done) override;

 private:
  removal_world& world_;
  worker& of_;
};

struct removal_world::machine {
  std::string name;
  endpoint where;
  std::uint64_t weight = 1;
  std::uint64_t started_ms = 1, workers = 0, life = 0;
  std::unique_ptr<blocks::testing::node> memory;  ///< the keeper's
  blocks::instance_number instance = 0;
  std::unique_ptr<blocks::testing::client> engine;
  fake_wire::time_point busy_until{};  ///< its block tier has much to do
  std::unique_ptr<worker> now;         ///< null: there is none
};

struct removal_world::worker {
  worker(removal_world& world, machine& its, remote::removal_book book);

  machine& of;
  const std::uint64_t life;
  std::shared_ptr<fake_network> network;
  std::shared_ptr<chaotic_links> links;
  std::optional<cluster::membership> members;
  std::set<peer::link_id> carrying{};
  std::uint64_t alarm = 0;
  cluster::pool pool;
  room sessions;
  cluster::guest guest;
  std::set<std::uint64_t> guests{};  ///< sessions
  remote::peers_backend backend;
  remote::store tier{1};
  std::map<std::uint64_t, forgetting> removals{};  ///< of the remote tier, by number
  std::uint64_t next_removal = 1;
  /// By sender and receiver: what the network hears goes through the actor of the cluster.
  mailbox to_cluster, guest_to_blocks, network_to_remote, blocks_to_remote, remote_to_blocks;
  /// Without repeats_to_all: what other nodes have confirmed, and the requests that will.
  std::set<std::string> confirmed{};
  std::map<std::uint64_t, std::string> asked{};
};

removal_world::worker::worker(removal_world& world, machine& its, remote::removal_book book)
    : of(its),
      life(its.life),
      network(std::make_shared<fake_network>(world.wire_, its.name, its.where, world.events_of(*this))),
      links(std::make_shared<chaotic_links>(world, *this, *network)),
      pool(
          [&world, &its, number = its.life](cluster::pool::steady_time when) {
            world.wire_.at(
                when,
                [&its, number] {
                  if (its.now && its.now->life == number) its.now->pool.advance();
                },
                its.name);
          },
          [&world] { return world.wire_.now(); }),
      sessions(world, *this),
      guest(pool, sessions, {.window = 2 * block_bytes, .removal_lag = world.peers_.timeout}),
      backend(pool, world.peers_,
              {.put =
                   [&world, this](const std::vector<remote::item_outcome>& all) {
                     world.post(*this, network_to_remote, [&world, all](worker& me) {
                       me.tier.answered(0, remote::call::kind::put, all, world.wire_.now());
                       world.flush_remote(me);
                     });
                   },
               .got =
                   [&world, this](const std::vector<remote::item_outcome>& all) {
                     world.post(*this, network_to_remote, [&world, all](worker& me) {
                       me.tier.answered(0, remote::call::kind::get, all, world.wire_.now());
                       world.flush_remote(me);
                     });
                   },
               .standing =
                   [&world, this](const result<void>& how) {
                     world.post(*this, network_to_remote, [&world, how](worker& me) {
                       me.tier.set_standing(0, how);
                       if (how) me.backend.bind(world.spec_);
                       const bool stands = how.has_value();
                       world.post(me, me.remote_to_blocks, [&world, stands](worker& same) {
                         same.of.memory->tier->set_standing(0, stands);
                         world.flush_blocks(same);
                       });
                     });
                   }},
              std::move(book)) {
  pool.join(&backend, &guest);
  pool.use(links);
}

void removal_world::chaotic_links::run(std::function<void()> what) {
  under_.run([&world = world_, &its = of_.of, life = of_.life, what = std::move(what)] {
    what();
    if (!world.options_.rules.keeps_removed_keys && its.now && its.now->life == life) its.now->pool.removals = {};
  });
}

// ---------------------------------------------------------------------------------------------- the guest's sessions

void removal_world::room::open(const instance_spec&, then<result<cluster::guest_session_ptr>> done) {
  world_.post(of_, of_.guest_to_blocks, [this, done = std::move(done)](worker& me) {
    blocks::testing::node& memory = *me.of.memory;
    const auto number = memory.attach(me.of.instance, guest_pins);
    me.guests.insert(number);
    auto fds = memory.tier->descriptors(me.of.instance);
    auto index = memory::open_index(std::move(fds->first));
    auto versions = memory::open_versions(std::move(fds->second));
    auto session =
        std::make_shared<cluster::guest_session>(std::move(*index), std::move(*versions), memory.session(number));
    session->number = number;
    session->instance = me.of.instance;
    world_.run_on_network(me, [done, session](worker&) { done(session); });
  });
}

void removal_world::room::close(std::uint64_t session) {
  world_.post(of_, of_.guest_to_blocks, [session](worker& me) {
    if (me.guests.erase(session) != 0) me.of.memory->bury(session);
  });
}

void removal_world::room::disconnect(std::uint64_t session) {
  world_.post(of_, of_.guest_to_blocks,
              [this, session](worker& me) { me.of.memory->tier->disconnect_session(session, me.of.memory->now); });
}

void removal_world::room::run(std::uint64_t session, std::vector<memory::submission> entries, bool,
                              then<std::vector<memory::completion>> done) {
  world_.post(of_, of_.guest_to_blocks,
              [this, session, entries = std::move(entries), done = std::move(done)](worker& me) {
                blocks::batch batch;
                batch.session = session;
                batch.is_guest = true;
                batch.entries = entries;
                blocks::testing::node& memory = *me.of.memory;
                while (memory.tier->run(batch, memory.now) == blocks::progress::waits_for_memory) {
                  if (!memory.pump()) memory.tier->give_up(batch, memory.now);
                }
                world_.flush_blocks(me);
                const auto answers = std::make_shared<std::vector<memory::completion>>(std::move(batch.completions));
                const auto finish = [this, &me, done, answers](const std::string& why) {
                  if (!why.empty()) answers->clear();
                  world_.run_on_network(me, [done, answers](worker&) { done(*answers); });
                };
                if (batch.removals.empty()) return finish({});
                world_.forget(me, std::move(batch.removals), true, finish);
                batch.removing.reset();
              });
}

void removal_world::room::find_slabs(std::uint32_t instance, std::vector<std::uint32_t> which,
                                     then<std::vector<memory::slab_place>> done) {
  world_.post(of_, of_.guest_to_blocks, [this, instance, which = std::move(which), done = std::move(done)](worker& me) {
    std::vector<memory::slab_place> found;
    for (const std::uint32_t index : which) {
      if (const auto place = me.of.memory->tier->slab_place_of(instance, index)) found.push_back(*place);
    }
    world_.run_on_network(me, [done, found](worker&) { done(found); });
  });
}

// ---------------------------------------------------------------------------------------------- the world

removal_world::removal_world(std::uint64_t seed, removal_options options)
    : wire_(seed), options_(options), begun_(wire_.now()), folder_(temporary_folder()) {
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
  made.where = {"10.0.0." + std::to_string(machines_.size()), 7000};
  made.started_ms = 1000 + wire_.number(1'000'000);
  made.memory = std::make_unique<blocks::testing::node>(store_options_of_test());
  made.memory->now = boot_time_at(wire_.now());
  made.instance = made.memory->add(spec_);
  made.engine = std::make_unique<blocks::testing::client>(*made.memory, made.instance);
  (void)made.memory->tier->take_bindings();
  start(made);
}

void removal_world::show(const std::string& what) {
  if (options_.shows)
    std::cerr << std::chrono::duration<double, std::milli>(wire_.now() - begun_).count() << " ms: " << what << '\n';
}

void removal_world::fail(const std::string& what) {
  if (!failure_) failure_ = std::to_string((wire_.now() - begun_) / 1ms) + " ms: " + what;
  show("WRONG: " + what);
}

void removal_world::start(machine& which) {
  if (which.now) return;
  show(which.name + " starts");
  const std::string file = folder_ + "/" + which.name;
  if (!options_.rules.keeps_book) std::filesystem::remove(file);
  auto book = remote::removal_book::open(file, calendar_ns());
  if (!book) return fail(book.error().describe());
  ++which.life;
  which.now = std::make_unique<worker>(*this, which, std::move(*book));
  worker& made = *which.now;
  cluster::membership_options options;
  options.cluster = "test";
  options.seeds = {{"10.0.0.1", 7000}, {"10.0.0.2", 7000}};
  options.jitter_seed = wire_.number(1U << 30U);
  made.members.emplace(cluster::identity{.name = which.name,
                                         .where = which.where,
                                         .blocks_at = which.where,
                                         .born = peer::incarnation::of(which.started_ms, ++which.workers),
                                         .weight = which.weight},
                       options, wire_.now());
  connect_tier(made);
  made.members->advance(wire_.now());
  carry_out(made);
  tick(made);
  check(which);
}

/// What it does not lose is its blocks and its file.
void removal_world::kill(machine& which, bool is_closing_links) {
  if (!which.now) return;
  wire_.crash(which.name, is_closing_links);
  for (const std::uint64_t each : which.now->guests) which.memory->sessions.erase(each);
  which.now->network->stop();
  which.now.reset();
}

void removal_world::post(worker& of, mailbox& by, action what) {
  const auto hop = std::chrono::microseconds(wire_.number(wire_.chance() < 0.05 ? 20'000 : 200));
  auto when = wire_.now() + hop;
  if (of.of.busy_until > wire_.now() && &by == &of.guest_to_blocks)
    when += std::chrono::milliseconds(wire_.number(1500));
  by.last = when = std::max(when, by.last + 1ns);
  wire_.at(
      when,
      [this, &its = of.of, life = of.life, what = std::move(what)] {
        if (!its.now || its.now->life != life) return;
        its.memory->now = boot_time_at(wire_.now());
        what(*its.now);
        if (its.now) check(its);
      },
      of.of.name);
}

void removal_world::run_on_network(worker& of, action what) {
  of.links->run([&its = of.of, life = of.life, what = std::move(what)] {
    if (!its.now || its.now->life != life) return;
    what(*its.now);
    its.now->pool.flush();
  });
}

// ---------------------------------------------------------------------------------------------- links and members

peer::network_events removal_world::events_of(worker& of) {
  peer::network_events events;
  events.opened = [this, &of](peer::link_id link, bool is_dialled, const endpoint&) {
    post(of, of.to_cluster, [this, link, is_dialled](worker& me) {
      me.members->opened(link, is_dialled, wire_.now());
      carry_out(me);
    });
  };
  events.closed = [this, &of](peer::link_id link, const error& why) {
    of.pool.closed(link);
    of.pool.flush();
    post(of, of.to_cluster, [this, link, why](worker& me) {
      me.carrying.erase(link);
      me.members->closed(link, why, wire_.now());
      carry_out(me);
    });
  };
  events.heard = [this, &of](peer::link_id from, std::span<const std::byte> bytes) {
    post(of, of.to_cluster, [this, from, frame = std::vector<std::byte>(bytes.begin(), bytes.end())](worker& me) {
      hear(me, from, frame);
    });
  };
  events.carries_blocks = [this, &of](peer::link_id which) {
    post(of, of.to_cluster, [this, which](worker& me) {
      me.carrying.insert(which);
      tell_pool(me);
    });
  };
  events.expects = [&of](peer::link_id from, const peer::piece_header& head, std::size_t bytes) {
    return of.pool.expects(from, head, bytes);
  };
  events.landed = [&of](peer::link_id from, const peer::piece_header& head, std::span<const std::byte> piece) {
    of.pool.landed(from, head, piece);
    of.pool.flush();
  };
  events.sent = [&of](peer::link_id to, std::uint64_t token, const result<void>& how) {
    of.pool.sent(to, token, how.has_value());
    of.pool.flush();
  };
  return events;
}

void removal_world::hear(worker& of, peer::link_id link, const std::vector<std::byte>& frame) {
  const auto other = of.members->heard(link, frame, wire_.now());
  if (!other || other->frame.type < frame_type::bind) return carry_out(of);
  carry_out(of);
  run_on_network(of, [this, link, type = other->frame.type, request = other->frame.request,
                      body = std::vector<std::byte>(other->frame.body.begin(), other->frame.body.end())](worker& me) {
    if (const auto asked = me.asked.find(request); type == frame_type::forgot && asked != me.asked.end()) {
      const auto answer = peer::decode_forget_answer(body);
      if (answer && answer->why.empty()) me.confirmed.insert(asked->second);
      me.asked.erase(asked);
    }
    me.pool.heard(link, type, request, body);
  });
}

void removal_world::carry_out(worker& of) {
  for (cluster::saying& each : of.members->take_sayings()) {
    if (auto* dial = std::get_if<cluster::dial_saying>(&each)) {
      of.members->dialling(dial->where, of.network->dial(dial->where));
    } else if (auto* say = std::get_if<cluster::frame_saying>(&each)) {
      of.network->send(say->to, std::move(say->frame));
    } else if (auto* shut = std::get_if<cluster::close_saying>(&each)) {
      of.network->close(shut->which, shut->why);
    } else if (auto* join = std::get_if<cluster::join_saying>(&each)) {
      of.network->join_blocks(join->which, join->where, join->proof);
    } else if (auto* wait = std::get_if<cluster::await_saying>(&each)) {
      of.network->await_blocks(wait->which, wait->proof);
    }
  }
  if (!of.members->take_news().empty()) tell_pool(of);
  set_alarm(of);
}

/// As the actor of the cluster does.
void removal_world::tell_pool(worker& of) {
  cluster::pool_members now{.self = of.of.name, .weight = of.of.weight, .born = of.members->self().born, .others = {}};
  for (const cluster::peer_row& each : of.members->peers()) {
    if (each.who.name.empty()) continue;
    if (each.state == cluster::peer_state::suspect || each.state == cluster::peer_state::gone)
      now.silent.push_back(each.who.name);
    if (each.state != cluster::peer_state::live) continue;
    cluster::pool_member one{.name = each.who.name, .weight = each.who.weight, .link = each.link};
    one.key = of.members->key_of(each.link);
    one.carries_blocks = of.carrying.contains(each.link);
    now.others.push_back(std::move(one));
  }
  run_on_network(of, [now](worker& me) { me.pool.take_members(now); });
}

void removal_world::set_alarm(worker& of) {
  wire_.at(
      of.members->wake_at(),
      [this, &its = of.of, life = of.life, number = ++of.alarm] {
        if (!its.now || its.now->life != life || its.now->alarm != number) return;
        its.now->members->advance(wire_.now());
        carry_out(*its.now);
      },
      of.of.name);
}

/// Leaves rules out, and lets links be worse than they are.
void removal_world::send(worker& of, peer::link_id to, std::vector<std::byte> frame) {
  const auto read = peer::decode_frame(frame);
  const frame_type type = read->type;
  const bool is_question = type == frame_type::fetch || type == frame_type::fetch_here;
  if (is_question && !options_.rules.names_clears) {
    auto asked = peer::decode_block_request(read->body);
    asked->cleared.reset();
    frame = peer::encode_frame(type, read->request, of.members->self().born, peer::encode(*asked));
  }
  if (type == frame_type::forget && !options_.rules.repeats_to_all) {
    const auto asked = peer::decode_forget_request(read->body);
    std::string name = of.members->name_on(to) + " " + std::to_string(asked->cleared);
    for (const block_key& each : asked->keys) name += " " + std::to_string(each.lo);
    if (of.confirmed.contains(name)) {
      return run_on_network(of, [to, request = read->request](worker& me) {
        me.pool.heard(to, frame_type::forgot, request, peer::encode(peer::forget_answer{}));
      });
    }
    of.asked[read->request] = name;
  }
  if (options_.shows)
    show(of.of.name + " to " + of.members->name_on(to) + ": frame " + std::to_string(static_cast<int>(type)) + ", " +
         std::to_string(read->request));
  pass_on(of, to, frame);
  if (is_peace_) return;
  if (wire_.chance() < 0.02) pass_on(of, to, frame);
  if (wire_.chance() >= 0.02) return;
  wire_.at(
      wire_.now() + std::chrono::milliseconds(wire_.number(3000)),
      [this, &its = of.of, life = of.life, to, frame] {
        if (its.now && its.now->life == life) its.now->network->send(to, frame);
      },
      of.of.name);
}

void removal_world::pass_on(worker& of, peer::link_id to, const std::vector<std::byte>& frame) {
  const bool is_lost = !is_peace_ && is_answer(peer::decode_frame(frame)->type) && wire_.chance() < 0.02;
  if (!is_lost) of.network->send(to, frame);
}

// ---------------------------------------------------------------------------------------------- the tiers of a node

void removal_world::connect_tier(worker& of) {
  of.tier.bind(of.of.instance, spec_, true);
  of.backend.bind(spec_);
  of.of.memory->tier->set_standing(0, false);
  of.of.memory->tier->release_loading(0);
  flush_blocks(of);
}

/// What was decided goes to the remote tier, in the order in which it was.
void removal_world::flush_blocks(worker& of) {
  (void)of.of.memory->pump();
  if (auto down = of.of.memory->tier->take_demotions(0); !down.empty()) {
    post(of, of.blocks_to_remote, [this, down = std::move(down)](worker& me) {
      me.tier.put(down, wire_.now());
      flush_remote(me);
    });
  }
  if (auto up = of.of.memory->tier->take_loads(0); !up.empty()) {
    post(of, of.blocks_to_remote, [this, up = std::move(up)](worker& me) {
      me.tier.get(up, wire_.now());
      flush_remote(me);
    });
  }
}

void removal_world::flush_remote(worker& of) {
  for (remote::call& each : of.tier.take_calls()) {
    if (each.what == remote::call::kind::get)
      of.backend.get(std::move(each.items));
    else
      of.backend.put(std::move(each.items));
  }
  for (const remote::late_removal& each : of.tier.take_late()) {
    of.backend.drop(each.identity, {each.key}, [](const result<std::uint64_t>&) {});
  }
  auto outcomes = of.tier.take_outcomes();
  if (outcomes.empty()) return;
  post(of, of.remote_to_blocks, [this, outcomes = std::move(outcomes)](worker& me) {
    for (const transfer_outcome& each : outcomes) figures_.fetched += each.what == transfer_result::done ? 1 : 0;
    (void)me.of.memory->tier->transferred(outcomes, me.of.memory->now);
    flush_blocks(me);
  });
}

/// `is_on_its_way`: another node tells all others.
void removal_world::forget(worker& of, std::vector<blocks::removal> removals, bool is_on_its_way,
                           std::function<void(const std::string&)> finish) {
  flush_blocks(of);
  post(of, of.blocks_to_remote, [=, this](worker& me) {
    const std::uint64_t number = me.next_removal++;
    me.removals[number].finish = finish;
    const auto end = [this, &its = me.of, life = me.life, number](const std::string& why) {
      if (!its.now || its.now->life != life) return;
      post(*its.now, its.now->network_to_remote, [this, number, why](worker& same) { end_part(same, number, why); });
    };
    for (const blocks::removal& each : removals) {
      me.tier.forget(each.instance, each.all ? std::vector<block_key>() : each.keys);
      if (is_on_its_way) continue;
      ++me.removals[number].open;
      const std::uint64_t identity = identity_of(spec_);
      if (each.all) {
        me.backend.clear(identity, [end](const result<void>& how) { end(how ? "" : how.error().message()); });
      } else {
        me.backend.drop(identity, each.keys,
                        [end](const result<std::uint64_t>& how) { end(how ? "" : how.error().message()); });
      }
    }
    end_part(me, number, {});
  });
}

void removal_world::end_part(worker& of, std::uint64_t number, const std::string& why) {
  const auto found = of.removals.find(number);
  if (found == of.removals.end()) return;
  if (!why.empty()) found->second.why = why;
  if (--found->second.open != 0) return;
  post(of, of.remote_to_blocks,
       [finish = std::move(found->second.finish), reason = found->second.why](worker&) { finish(reason); });
  of.removals.erase(found);
}

void removal_world::tick(worker& of) {
  wire_.at(
      wire_.now() + 500ms,
      [this, &its = of.of, life = of.life] {
        if (!its.now || its.now->life != life) return;
        its.memory->now = boot_time_at(wire_.now());
        its.memory->tier->tick(its.memory->now);
        flush_blocks(*its.now);
        check(its);
        tick(*its.now);
      },
      of.of.name);
}

// ---------------------------------------------------------------------------------------------- the engine

void removal_world::work(machine& which) {
  if (!which.now || wire_.frozen_until(which.name) > wire_.now()) return;
  which.memory->now = boot_time_at(wire_.now());
  const std::uint64_t key = wire_.number(keys);
  const double what = wire_.chance();
  if (what < 0.3) {
    put(*which.now, key);
  } else if (what < 0.75) {
    get(*which.now, key);
  } else if (what < 0.85) {  // its place is needed
    const block_key name = reduce_key(key_of(key).view(), 0);
    (void)which.memory->tier->forget_keys(which.instance, std::span(&name, 1), which.memory->now);
  } else if (what < 0.97) {
    remove(*which.now, {key});
  } else {
    remove(*which.now, {});
  }
}

void removal_world::put(worker& of, std::uint64_t key) {
  blocks::testing::client& engine = *of.of.engine;
  const auto place = engine.obtain();
  if (!place) return;
  const std::uint64_t number = copies_.size() + 1;
  const std::array words{number, key};
  std::memcpy(of.of.memory->bytes(of.of.instance, place->ref), words.data(), sizeof words);
  const auto stored = engine.ask({engine.commit_of(*place, key_of(key))});
  if (stored.value == 1) {
    copies_[number].key = key;
    show(of.of.name + " stores " + std::to_string(key) + " as " + std::to_string(number));
  }
  flush_blocks(of);
}

void removal_world::get(worker& of, std::uint64_t key) {
  if (find(of.of, key)) return;
  (void)of.of.memory->tier->load(of.of.instance, 0, key_of(key), of.of.memory->now);
  flush_blocks(of);
}

/// No keys: all of the instance.
void removal_world::remove(worker& of, const std::vector<std::uint64_t>& which) {
  const std::size_t number = orders_.size();
  order& made = orders_.emplace_back();
  made.name = of.of.name;
  for (const auto& [name, each] : copies_) {
    if (which.empty() || std::ranges::find(which, each.key) != which.end()) made.copies.insert(name);
  }
  show(of.of.name + (which.empty() ? " clears" : " removes " + std::to_string(which.front())) + ", " +
       std::to_string(number));
  blocks::batch batch;
  batch.session = of.of.engine->number;
  if (which.empty()) batch.entries.push_back(of.of.engine->entry_of(memory::operation::clear, full_key{}));
  for (const std::uint64_t each : which)
    batch.entries.push_back(of.of.engine->entry_of(memory::operation::remove, key_of(each)));
  batch.entries.back().flags |= memory::submission::flag_last;
  while (of.of.memory->tier->run(batch, of.of.memory->now) == blocks::progress::more) {
  }
  forget(of, std::move(batch.removals), false, [this, number](const std::string& why) { take_answer(number, why); });
  batch.removing.reset();
}

void removal_world::take_answer(std::size_t number, const std::string& why) {
  order& of = orders_[number];
  of.is_answered = true;
  ++(why.empty() ? figures_.done : figures_.pending);
  show(std::to_string(number) + " is " + (why.empty() ? "done" : "pending: " + why));
  for (const std::uint64_t each : of.copies) {
    if (why.empty())
      copies_.at(each).is_gone = true;
    else
      copies_.at(each).gone_at.insert(of.name);
  }
  check_all();
}

// ---------------------------------------------------------------------------------------------- faults and checks

void removal_world::fault() {
  machine& one = any();
  machine& other = any();
  const double what = wire_.chance();
  if (what < 0.3 && one.now) {
    const bool is_closing_links = wire_.chance() < 0.6;
    show(one.name + (is_closing_links ? " is killed" : "'s machine is gone"));
    kill(one, is_closing_links);
    ++figures_.restarts;
    if (wire_.chance() < 0.3) one.started_ms += 1 + wire_.number(100'000), one.workers = 0;
    wire_.at(wire_.now() + std::chrono::milliseconds(wire_.number(longest_absence / 1ms)), [this, &one] {
      if (one.now) return;
      one.memory->now = boot_time_at(wire_.now());
      (void)one.memory->restart();
      start(one);
    });
  } else if (what < 0.5) {
    const auto time = std::chrono::milliseconds(wire_.number(wire_.chance() < 0.3 ? longest_absence / 1ms : 1500));
    show(one.name + " stands still for " + std::to_string(time / 1ms) + " ms");
    wire_.freeze(one.name, wire_.now() + time);
  } else if (what < 0.8 && &one != &other) {
    show(one.name + " is cut off from " + other.name);
    wire_.cut(one.name, other.name);
    if (wire_.chance() < 0.5) wire_.cut(other.name, one.name);
    wire_.at(wire_.now() + std::chrono::milliseconds(wire_.number(6000)), [this] { wire_.heal(); });
  } else if (what < 0.95) {
    one.busy_until = wire_.now() + std::chrono::milliseconds(wire_.number(3000));
    show(one.name + " is busy");
  } else {
    wire_.habit.spread = std::chrono::microseconds(wire_.number(20'000));
  }
}

std::optional<std::string> removal_world::run() {
  const auto peace = begun_ + faults_for;
  for (auto when = begun_ + 500ms; when < peace; when += std::chrono::milliseconds(wire_.number(100)))
    wire_.at(when, [this] { work(any()); });
  for (auto when = begun_ + 1s; when < peace; when += std::chrono::milliseconds(200 + wire_.number(2000)))
    wire_.at(when, [this] { fault(); });
  wire_.run_until(peace);
  show("peace");
  is_peace_ = true;
  wire_.heal();
  wire_.habit = {};
  wire_.run_until(peace + longest_absence + peace_for);
  check_peace();
  return failure_;
}

/// The copy that an engine finds.
std::optional<std::uint64_t> removal_world::find(machine& which, std::uint64_t key) {
  const auto slot = which.engine->pin(key_of(key));
  if (!slot) return std::nullopt;
  std::array<std::uint64_t, 2> words{};
  std::memcpy(words.data(), which.engine->pinned_bytes(*slot), sizeof words);
  which.engine->unpin(*slot);
  if (words[1] != key) fail(which.name + " finds another block under " + std::to_string(key));
  return words[0];
}

void removal_world::check(machine& which) {
  for (std::uint64_t key = 0; key < keys && !failure_; ++key) {
    const auto found = find(which, key);
    if (!found) {
      seen_.erase({which.name, key});
      continue;
    }
    const copy& of = copies_.at(*found);
    if (of.is_gone) fail(which.name + " finds " + std::to_string(*found) + ", which is removed");
    if (options_.shows && seen_[{which.name, key}] != *found)
      show(which.name + " has " + std::to_string(key) + " as " + std::to_string(*found));
    seen_[{which.name, key}] = *found;
    if (of.gone_at.contains(which.name)) fail(which.name + " finds " + std::to_string(*found) + ", which it removed");
  }
}

void removal_world::check_all() {
  for (const auto& each : machines_) {
    if (each->now) check(*each);
  }
}

void removal_world::check_peace() {
  for (const order& each : orders_) {
    if (!each.is_answered) continue;  // who asked has died
    for (const std::uint64_t one : each.copies) copies_.at(one).is_gone = true;
  }
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
    for (std::uint64_t key = 0; key < keys; ++key) figures_.found += find(*each, key) ? 1 : 0;
    if (counters.unconfirmed != 0)
      fail(each->name + " waits for " + std::to_string(counters.unconfirmed) + " removals in peace");
  }
}

}  // namespace cenote::testing
