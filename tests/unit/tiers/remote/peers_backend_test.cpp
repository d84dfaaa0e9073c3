// A node that asks another one, which a test plays frame by frame, on a network in virtual time.
#include "tiers/remote/peers_backend.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/byte_io.hpp"
#include "core/checksum.hpp"
#include "core/stored_identity.hpp"
#include "tests/support/fake_network.hpp"
#include "tests/support/numbered_identity.hpp"
#include "tests/support/redis_server.hpp"

namespace {

using namespace cenote;
using namespace std::chrono_literals;
using peer::block_answer;
using peer::frame_type;
using remote::item_result;
using testing::fake_network;
using testing::fake_wire;

constexpr std::size_t block_bytes = 4096;

instance_spec some_spec() {
  instance_spec spec;
  spec.id = "model";
  spec.tokens_per_block = 16;
  spec.groups = {{"full", {{"kv", block_bytes}}}};
  return spec;
}

full_key key_of(std::uint64_t number) {
  std::vector<std::byte> bytes(16);
  std::memcpy(bytes.data(), &number, sizeof number);
  return full_key(bytes);
}

std::vector<std::byte> content_of(std::uint64_t number) {
  return std::vector<std::byte>(block_bytes, static_cast<std::byte>(number));
}

struct frame {
  frame_type type{};
  std::uint64_t request = 0;
  std::vector<std::byte> body;
};

/// The asker, and the other node's network. All blocks belong to the other node: this one's weight is 0.
struct world {
  world() {
    pool.join(&backend, nullptr);
    here_events.opened = [](peer::link_id, bool, const endpoint&) {};
    here_events.closed = [this](peer::link_id which, const error&) {
      pool.closed(which);
      pool.flush();
    };
    here_events.heard = [this](peer::link_id from, std::span<const std::byte> bytes) {
      const auto read = peer::decode_frame(bytes);
      pool.heard(from, read->type, read->request, read->body);
      pool.flush();
    };
    here_events.expects = [this](peer::link_id from, const peer::piece_header& head, std::size_t bytes) {
      return pool.expects(from, head, bytes);
    };
    here_events.landed = [this](peer::link_id from, const peer::piece_header& head, std::span<const std::byte> piece) {
      pool.landed(from, head, piece);
      pool.flush();
    };
    here_events.sent = [this](peer::link_id to, std::uint64_t token, const result<void>& how) {
      pool.sent(to, token, how.has_value());
      pool.flush();
    };
    here = std::make_shared<fake_network>(wire, "a", endpoint{"a", 1}, here_events);
    pool.use(here);
    start_other();
    connect();
    backend.bind(spec);
  }
  ~world() { here->stop(); }

  void start_other() {
    peer::network_events events;
    events.opened = [this](peer::link_id which, bool, const endpoint&) { there_link = which; };
    events.closed = [](peer::link_id, const error&) {};
    events.heard = [this](peer::link_id, std::span<const std::byte> bytes) {
      const auto read = peer::decode_frame(bytes);
      heard.push_back({read->type, read->request, {read->body.begin(), read->body.end()}});
    };
    events.expects = [this](peer::link_id, const peer::piece_header& head, std::size_t bytes) {
      auto& into = landed[head.token];
      into.resize(bytes);
      heads[head.token] = head;
      return std::span(into);
    };
    events.landed = [](peer::link_id, const peer::piece_header&, std::span<const std::byte>) {};
    events.sent = [](peer::link_id, std::uint64_t, const result<void>&) {};
    there = std::make_unique<fake_network>(wire, "b", endpoint{"b", 1}, events);
  }

  void connect() {
    here_link = here->dial({"b", 1});
    run(10ms);
    peer::ticket proof{};
    proof.fill(std::byte{1});
    there->await_blocks(there_link, proof);
    here->join_blocks(here_link, {"b", 1}, proof);
    cluster::pool_members now{.self = "a", .weight = 0, .born = {1}, .others = {}};
    now.others.push_back({.name = "b", .weight = 100, .link = here_link, .carries_blocks = true});
    pool.take_members(now);
    run(10ms);
  }

  void lose_b() {
    auto now = pool.members();
    b = now.others.front();
    now.others.erase(now.others.begin());
    now.silent = {"b"};
    pool.take_members(now);
  }
  void regain_b() {
    auto now = pool.members();
    now.others.push_back(b);
    now.silent.clear();
    pool.take_members(now);
  }

  void run(std::chrono::milliseconds how_long) { wire.run_until(wire.now() + how_long); }

  /// The next frame of that type that the other node has heard; runs until there is one.
  frame next(frame_type type) { return next_of(heard, type); }
  frame next_of(std::vector<frame>& of, frame_type type) {
    for (int i = 0; i < 100; ++i) {
      const auto found = std::ranges::find(of, type, &frame::type);
      if (found != of.end()) {
        frame one = std::move(*found);
        of.erase(found);
        return one;
      }
      run(1ms);
    }
    BOOST_FAIL("the frame does not come");
    return {};
  }
  void say(frame_type type, std::uint64_t request, std::span<const std::byte> body) {
    there->send(there_link, peer::encode_frame(type, request, {1}, body));
    run(5ms);
  }
  void accept_bind(std::uint64_t cleared = 0) {
    say(frame_type::bound, next(frame_type::bind).request, peer::encode(peer::bind_answer{9, cleared, {}}));
  }

  remote::block_name name(std::uint64_t number) const { return {identity_of(spec), 0, key_of(number)}; }
  void get(std::uint64_t number) {
    memory[number].assign(block_bytes, std::byte{0xee});
    backend.get({{.token = number, .name = name(number), .memory = memory[number]}});
    run(0ms);
  }
  void put(std::uint64_t number) {
    memory[number] = content_of(number);
    backend.put({{.token = number, .name = name(number), .memory = memory[number]}});
    run(0ms);
  }
  /// The wire's tokens of the blocks that a frame names, by key.
  static std::vector<std::uint64_t> tokens_in(const frame& of) {
    std::vector<std::uint64_t> all;
    const auto read = peer::decode_block_request(of.body);
    for (const auto& [token, key] : read->blocks) all.push_back(token);
    return all;
  }
  void send_block(std::uint64_t token, std::uint64_t number, bool is_right = true) {
    send_block_by(*there, there_link, token, number, is_right);
  }
  void send_block_by(fake_network& sender, peer::link_id link, std::uint64_t token, std::uint64_t number,
                     bool is_right = true) {
    sending[token] = content_of(number);
    peer::piece_header head;
    head.token = token;
    head.what = static_cast<std::uint16_t>(cluster::piece_kind::asked);
    head.checksum =
        bind_checksum(checksum_of(sending[token]), identity_of(spec), 0, key_of(number)) ^ (is_right ? 0 : 1);
    sender.send_block(link, head, sending[token]);
    run(5ms);
  }

  instance_spec spec = some_spec();
  fake_wire wire{1};
  cluster::pool pool{[this](cluster::pool::steady_time when) { wire.at(when, [this] { pool.advance(); }); },
                     [this] { return wire.now(); }};
  std::map<std::uint64_t, item_result> got, was_put;
  std::vector<bool> standing;
  remote::peers_backend backend{pool,
                                {.timeout = 2000ms, .settle = 60000ms, .window = 4 * block_bytes},
                                {.put =
                                     [this](const std::vector<remote::item_outcome>& all) {
                                       for (const auto& each : all)
                                         BOOST_TEST(was_put.emplace(each.token, each.what).second);
                                     },
                                 .got =
                                     [this](const std::vector<remote::item_outcome>& all) {
                                       for (const auto& each : all)
                                         BOOST_TEST(got.emplace(each.token, each.what).second);
                                     },
                                 .standing = [this](const result<void>& how) { standing.push_back(how.has_value()); }}};
  peer::network_events here_events;
  std::shared_ptr<fake_network> here;
  std::unique_ptr<fake_network> there;
  peer::link_id here_link = 0, there_link = 0;
  cluster::pool_member b;
  std::vector<frame> heard;
  std::map<std::uint64_t, std::vector<std::byte>> memory, landed, sending;
  std::map<std::uint64_t, peer::piece_header> heads;
};

/// Another node, to which no block belongs.
struct second_node {
  explicit second_node(world& shared) : all(shared) {
    peer::network_events events;
    events.opened = [this](peer::link_id which, bool, const endpoint&) { link = which; };
    events.closed = [](peer::link_id, const error&) {};
    events.heard = [this](peer::link_id, std::span<const std::byte> bytes) {
      const auto read = peer::decode_frame(bytes);
      heard.push_back({read->type, read->request, {read->body.begin(), read->body.end()}});
    };
    events.sent = [](peer::link_id, std::uint64_t, const result<void>&) {};
    network = std::make_unique<fake_network>(all.wire, "c", endpoint{"c", 1}, events);
    const peer::link_id here = all.here->dial({"c", 1});
    all.run(10ms);
    peer::ticket proof{};
    proof.fill(std::byte{2});
    network->await_blocks(link, proof);
    all.here->join_blocks(here, {"c", 1}, proof);
    cluster::pool_members now = all.pool.members();
    now.others.push_back({.name = "c", .weight = 0, .link = here, .carries_blocks = true});
    all.pool.take_members(now);
    all.run(10ms);
  }
  ~second_node() { network->stop(); }

  frame next(frame_type type) { return all.next_of(heard, type); }
  void say(frame_type type, std::uint64_t request, std::span<const std::byte> body) {
    network->send(link, peer::encode_frame(type, request, {1}, body));
    all.run(5ms);
  }
  void accept_bind() {
    say(frame_type::bound, next(frame_type::bind).request, peer::encode(peer::bind_answer{4, 0, {}}));
  }
  void send_block(std::uint64_t token, std::uint64_t number) { all.send_block_by(*network, link, token, number); }

  world& all;
  std::unique_ptr<fake_network> network;
  peer::link_id link = 0;
  std::vector<frame> heard;
};

/// A worker after the first one, with what that left in the book.
struct later_worker {
  later_worker(world& shared, remote::removal_book book)
      : all(shared),
        backend(all.pool, {},
                {.put = [](const std::vector<remote::item_outcome>&) {},
                 .got = [](const std::vector<remote::item_outcome>&) {},
                 .standing = [](const result<void>&) {}},
                std::move(book)) {
    all.pool.join(&backend, nullptr);
  }
  ~later_worker() {
    backend.stop();
    all.pool.join(&all.backend, nullptr);
  }
  void remove(std::uint64_t number) {
    removed.reset();
    backend.drop(identity_of(all.spec), {all.name(number).key()}, [this](result<std::uint64_t> how) { removed = how; });
    all.run(5ms);
  }

  world& all;
  std::optional<result<std::uint64_t>> removed;
  remote::peers_backend backend;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(peers_backend)

BOOST_AUTO_TEST_CASE(homes_that_come_back_may_take_what_they_could_not_and_that_is_told_once) {
  world all;
  all.run(3s);
  for (int i = 0; i < 2; ++i) {
    all.lose_b();
    all.regain_b();
  }
  const std::size_t told = all.standing.size();
  BOOST_TEST(all.standing.back());
  all.run(1s);
  BOOST_TEST(all.standing.size() == told);
  all.run(2s);
  BOOST_TEST(all.standing.size() == told + 1);
  BOOST_TEST(all.standing.back());
  all.run(30s);
  BOOST_TEST(all.standing.size() == told + 1);
}

BOOST_AUTO_TEST_CASE(a_block_is_asked_for_once_its_instance_is_bound_and_lands_where_it_is_wanted) {
  world all;
  BOOST_TEST((all.standing == std::vector{true}));
  all.get(1);
  all.run(5ms);
  BOOST_TEST((std::ranges::find(all.heard, frame_type::fetch, &frame::type) == all.heard.end()));
  all.accept_bind();
  const auto tokens = world::tokens_in(all.next(frame_type::fetch));
  BOOST_REQUIRE(tokens.size() == 1U);
  all.send_block(tokens[0], 1);
  BOOST_TEST((all.got == std::map<std::uint64_t, item_result>{{1, item_result::done}}));
  BOOST_TEST((all.memory[1] == content_of(1)));
}

BOOST_AUTO_TEST_CASE(wrong_bytes_of_one_instance_are_refused_and_counted_and_its_node_is_asked_on) {
  world all;
  all.get(1);
  all.accept_bind();
  for (std::uint64_t number = 1; number <= 4 * redis::breaker::most_in_a_row; ++number) {
    if (number > 1) all.get(number);
    all.send_block(world::tokens_in(all.next(frame_type::fetch))[0], number, false);
    BOOST_TEST((all.got[number] == item_result::wrong));
  }
  BOOST_TEST(all.pool.counters.wrong == 4 * redis::breaker::most_in_a_row);
  all.get(101);
  all.send_block(world::tokens_in(all.next(frame_type::fetch))[0], 101);
  BOOST_TEST((all.got[101] == item_result::done));
}

BOOST_AUTO_TEST_CASE(a_node_that_sent_wrong_bytes_is_told_of_which_block) {
  world all;
  all.get(1);
  all.accept_bind();
  all.send_block(world::tokens_in(all.next(frame_type::fetch))[0], 1, false);
  const auto told = peer::decode_block_request(all.next(frame_type::check).body);
  BOOST_REQUIRE(told.has_value());
  BOOST_TEST(told->handle == 9U);
  BOOST_REQUIRE(told->blocks.size() == 1U);
  BOOST_TEST((told->blocks[0].second == key_of(1)));
}

BOOST_AUTO_TEST_CASE(a_put_of_which_its_home_got_other_bytes_is_wrong) {
  world all;
  all.put(1);
  all.accept_bind();
  const frame offer = all.next(frame_type::offer);
  const std::uint64_t token = world::tokens_in(offer)[0];
  all.say(frame_type::accept, offer.request, peer::encode(peer::block_answers{{token, block_answer::send}}));
  all.say(frame_type::stored, 0, peer::encode(peer::block_answers{{token, block_answer::wrong}}));
  BOOST_TEST((all.was_put == std::map<std::uint64_t, item_result>{{1, item_result::wrong}}));
}

BOOST_AUTO_TEST_CASE(wrong_bytes_of_many_instances_and_right_ones_of_none_open_the_breaker_of_their_node) {
  world all;
  const auto get_wrong = [&](std::uint64_t number) {
    all.spec.id = "model " + std::to_string(number % 4);
    all.backend.bind(all.spec);
    all.get(number);
    if (number < 4) all.accept_bind();
    all.send_block(world::tokens_in(all.next(frame_type::fetch))[0], number, false);
    BOOST_TEST((all.got[number] == item_result::wrong));
  };
  for (std::uint64_t number = 0; number < 3 + redis::breaker::most_in_a_row; ++number) get_wrong(number);
  all.get(100);
  BOOST_TEST((all.got[100] == item_result::refused));  // it is not asked any more
  all.run(1100ms);
  all.get(101);
  all.send_block(world::tokens_in(all.next(frame_type::fetch))[0], 101);
  BOOST_TEST((all.got[101] == item_result::done));
  get_wrong(200);
  all.get(102);
  all.send_block(world::tokens_in(all.next(frame_type::fetch))[0], 102);
  BOOST_TEST((all.got[102] == item_result::done));
}

BOOST_AUTO_TEST_CASE(a_node_that_does_not_answer_costs_the_time_out_and_what_it_sends_later_lands_nowhere) {
  world all;
  all.get(1);
  all.accept_bind();
  const auto tokens = world::tokens_in(all.next(frame_type::fetch));
  all.run(1900ms);
  BOOST_TEST(all.got.empty());
  all.run(200ms);
  BOOST_TEST((all.got[1] == item_result::refused));
  all.memory[1].assign(block_bytes, std::byte{0x55});  // somebody else's by now
  all.send_block(tokens[0], 1);
  BOOST_TEST((all.memory[1] == std::vector<std::byte>(block_bytes, std::byte{0x55})));
}

BOOST_AUTO_TEST_CASE(a_node_that_does_not_even_bind_costs_the_time_out) {
  world all;
  all.get(1);
  all.put(2);
  std::optional<remote::presence> found;
  all.backend.locate({all.name(1)}, 50ms, [&](remote::presence said) { found = std::move(said); });
  all.run(60ms);
  BOOST_REQUIRE(found);
  BOOST_TEST(!found->is_complete);
  all.run(2100ms);
  BOOST_TEST((all.got[1] == item_result::refused));
  BOOST_TEST((all.was_put[2] == item_result::refused));
}

BOOST_AUTO_TEST_CASE(no_more_is_asked_for_than_the_window_holds) {
  world all;
  std::vector<remote::item> items;
  for (std::uint64_t number = 0; number < 10; ++number) {
    all.memory[number].resize(block_bytes);
    items.push_back({.token = number, .name = all.name(number), .memory = all.memory[number]});
  }
  all.backend.get(std::move(items));
  all.accept_bind();
  auto tokens = world::tokens_in(all.next(frame_type::fetch));
  BOOST_TEST(tokens.size() == 4U);
  all.run(50ms);
  BOOST_TEST(all.heard.empty());
  all.say(frame_type::fetched, 0, peer::encode(peer::block_answers{{tokens[0], block_answer::missing}}));
  BOOST_TEST(world::tokens_in(all.next(frame_type::fetch)).size() == 1U);
  BOOST_TEST((all.got[0] == item_result::missing));
}

BOOST_AUTO_TEST_CASE(a_link_that_closes_ends_all_that_was_asked_on_it) {
  world all;
  all.get(1);
  all.put(2);
  all.accept_bind();
  (void)all.next(frame_type::fetch);
  (void)all.next(frame_type::offer);
  std::optional<remote::presence> found;
  all.backend.locate({all.name(1)}, 1000ms, [&](remote::presence said) { found = std::move(said); });
  std::optional<result<std::uint64_t>> dropped;
  all.backend.drop(identity_of(all.spec), {all.name(1).key()}, [&](result<std::uint64_t> how) { dropped = how; });
  (void)all.next(frame_type::locate);
  (void)all.next(frame_type::forget);
  all.there->stop();
  all.run(10ms);
  BOOST_TEST((all.got[1] == item_result::refused));
  BOOST_TEST((all.was_put[2] == item_result::refused));
  BOOST_REQUIRE(found);
  BOOST_TEST(!found->is_complete);
  all.run(250ms);
  BOOST_REQUIRE(dropped);
  BOOST_TEST(!dropped->has_value());
  BOOST_TEST((all.standing == std::vector{true, false}));
}

BOOST_AUTO_TEST_CASE(an_offered_block_is_sent_when_it_is_wanted_and_done_when_it_is_stored) {
  world all;
  all.put(1);
  all.put(2);
  all.put(3);
  all.accept_bind();
  const auto offered = all.next(frame_type::offer);
  const auto tokens = world::tokens_in(offered);
  BOOST_REQUIRE(tokens.size() == 3U);
  all.say(frame_type::accept, offered.request,
          peer::encode(peer::block_answers{
              {tokens[0], block_answer::send}, {tokens[1], block_answer::have}, {tokens[2], block_answer::full}}));
  BOOST_TEST((all.was_put == std::map<std::uint64_t, item_result>{{2, item_result::done}, {3, item_result::full}}));
  BOOST_TEST((all.landed[tokens[0]] == content_of(1)));
  BOOST_TEST(all.heads[tokens[0]].checksum ==
             bind_checksum(checksum_of(content_of(1)), identity_of(all.spec), 0, key_of(1)));
  all.say(frame_type::stored, 0, peer::encode(peer::block_answers{{tokens[0], block_answer::stored}}));
  BOOST_TEST((all.was_put[1] == item_result::done));
}

BOOST_AUTO_TEST_CASE(an_offer_names_the_clear_that_was_carried_out_when_its_put_began) {
  world all;
  all.put(1);
  all.backend.clear(identity_of(all.spec), [](const result<void>&) {});
  all.run(0ms);
  const std::uint64_t number = all.pool.cleared(identity_of(all.spec));
  BOOST_REQUIRE(number != 0U);
  all.put(2);
  all.accept_bind();
  const auto old = all.next(frame_type::offer), current = all.next(frame_type::offer);
  BOOST_TEST((peer::decode_block_request(old.body)->cleared == 0U));
  BOOST_TEST((peer::decode_block_request(current.body)->cleared == number));
  BOOST_TEST(world::tokens_in(old).size() == 1U);
  all.pool.note_cleared(identity_of(all.spec), number + 1);  // heard of, and not carried out yet
  all.put(3);
  BOOST_TEST((peer::decode_block_request(all.next(frame_type::offer).body)->cleared == number));
}

BOOST_AUTO_TEST_CASE(a_node_that_knows_of_a_later_clear_is_asked_to_bind_again_and_tells_of_it) {
  world all;
  all.put(1);
  all.accept_bind();
  const auto offered = all.next(frame_type::offer);
  all.say(frame_type::accept, offered.request,
          peer::encode(peer::block_answers{{world::tokens_in(offered)[0], block_answer::outdated}}));
  BOOST_TEST((all.was_put == std::map<std::uint64_t, item_result>{{1, item_result::full}}));
  BOOST_TEST(all.landed.empty());
  all.put(2);
  all.accept_bind();
  BOOST_TEST(world::tokens_in(all.next(frame_type::offer)).size() == 1U);
}

BOOST_AUTO_TEST_CASE(an_instance_that_is_refused_is_neither_asked_for_nor_offered) {
  world all;
  all.get(1);
  all.put(2);
  all.say(frame_type::bound, all.next(frame_type::bind).request, peer::encode(peer::bind_answer{0, 0, "another spec"}));
  BOOST_TEST((all.got[1] == item_result::missing));
  BOOST_TEST((all.was_put[2] == item_result::full));
  all.get(3);
  BOOST_TEST((all.got[3] == item_result::missing));  // nor is it bound again at once
  all.run(61000ms);
  all.get(4);
  all.accept_bind();
  all.send_block(world::tokens_in(all.next(frame_type::fetch))[0], 4);
  BOOST_TEST((all.got[4] == item_result::done));
}

BOOST_AUTO_TEST_CASE(what_is_asked_before_the_spec_is_known_does_not_spoil_what_comes_after) {
  world all;
  auto other = some_spec();
  other.id = "later";
  const instance_identity identity = identity_of(other);
  std::optional<result<void>> cleared;
  all.backend.clear(identity, [&](result<void> how) { cleared = how; });
  all.say(frame_type::forgot, all.next(frame_type::forget).request, peer::encode(peer::forget_answer{0, {}}));
  BOOST_TEST(cleared.has_value());
  all.backend.bind(other);
  std::optional<remote::presence> found;
  all.backend.locate({{identity, 0, key_of(1)}}, 1000ms, [&](remote::presence said) { found = std::move(said); });
  all.accept_bind();
  all.say(frame_type::located, all.next(frame_type::locate).request, peer::encode(peer::locate_answer{{true}}));
  BOOST_REQUIRE(found);
  BOOST_TEST((found->held == std::vector{true}));
}

BOOST_AUTO_TEST_CASE(a_block_that_belongs_here_is_not_offered) {
  world all;
  cluster::pool_members now{.self = "a", .weight = 100, .born = {1}, .others = {}};
  now.others.push_back({.name = "b", .weight = 0, .link = all.here_link, .carries_blocks = true});
  all.pool.take_members(now);
  all.put(1);
  BOOST_TEST((all.was_put[1] == item_result::own));
  // … but asked for where it belonged before.
  all.get(1);
  all.accept_bind();
  all.send_block(world::tokens_in(all.next(frame_type::fetch))[0], 1);
  BOOST_TEST((all.got[1] == item_result::done));
  all.run(61000ms);
  all.get(2);
  BOOST_TEST((all.got[2] == item_result::refused));  // that was long ago
}

BOOST_AUTO_TEST_CASE(a_question_names_each_key_at_its_home_and_is_answered_in_order) {
  world all;
  std::optional<remote::presence> found;
  all.backend.locate({all.name(1), all.name(2), all.name(3)}, 1000ms,
                     [&](remote::presence said) { found = std::move(said); });
  all.accept_bind();
  const auto asked = all.next(frame_type::locate);
  BOOST_TEST(peer::decode_locate_request(asked.body)->keys.size() == 3U);
  all.say(frame_type::located, asked.request, peer::encode(peer::locate_answer{{true, false, true}}));
  BOOST_REQUIRE(found);
  BOOST_TEST(found->is_complete);
  BOOST_TEST((found->held == std::vector{true, false, true}));
}

BOOST_AUTO_TEST_CASE(a_removal_is_told_to_the_others_and_answered_when_they_have) {
  world all;
  std::optional<result<std::uint64_t>> dropped;
  all.backend.drop(identity_of(all.spec), {all.name(1).key()}, [&](result<std::uint64_t> how) { dropped = how; });
  const auto asked = all.next(frame_type::forget);
  BOOST_TEST((peer::decode_forget_request(asked.body)->keys == std::vector{all.name(1).key()}));
  byte_writer text;
  encode(text, all.spec);
  BOOST_TEST((peer::decode_forget_request(asked.body)->spec == std::move(text).take()));  // no link has bound it there
  all.say(frame_type::forgot, asked.request, peer::encode(peer::forget_answer{1, {}}));
  BOOST_REQUIRE(dropped);
  BOOST_TEST(dropped->value() == 1U);
  std::optional<result<void>> cleared;
  all.backend.clear(identity_of(all.spec), [&](result<void> how) { cleared = how; });
  const auto second = all.next(frame_type::forget);
  BOOST_TEST(peer::decode_forget_request(second.body)->cleared > 0U);
  all.run(2100ms);
  BOOST_REQUIRE(cleared);
  BOOST_TEST(!cleared->has_value());  // nobody confirmed it
}

BOOST_AUTO_TEST_CASE(a_bind_that_was_never_answered_is_asked_again_and_what_it_answers_is_used) {
  world all;
  all.get(1);
  (void)all.next(frame_type::bind);
  all.run(2100ms);
  BOOST_REQUIRE(all.got.at(1) == item_result::refused);
  all.get(2);
  all.accept_bind();
  const auto tokens = world::tokens_in(all.next(frame_type::fetch));
  BOOST_REQUIRE_EQUAL(tokens.size(), 1);
  all.send_block(tokens[0], 2);
  BOOST_TEST((all.got.at(2) == item_result::done));
}

BOOST_AUTO_TEST_CASE(an_instance_that_is_not_bound_yet_keeps_no_other_one_waiting) {
  world all;
  instance_spec other = some_spec();
  other.id = "another";
  all.backend.bind(other);
  all.memory[1].resize(block_bytes);
  all.backend.get({{.token = 1, .name = {identity_of(other), 0, key_of(1)}, .memory = all.memory[1]}});
  all.run(0ms);
  (void)all.next(frame_type::bind);  // the node takes its time over it
  all.get(2);
  all.accept_bind();
  const auto tokens = world::tokens_in(all.next(frame_type::fetch));
  BOOST_REQUIRE_EQUAL(tokens.size(), 1);
  all.send_block(tokens[0], 2);
  BOOST_TEST((all.got.at(2) == item_result::done));
}

BOOST_AUTO_TEST_CASE(an_instance_that_is_not_used_for_long_is_given_back_and_bound_again_when_it_is) {
  world all;
  all.get(1);
  all.accept_bind();
  all.send_block(world::tokens_in(all.next(frame_type::fetch))[0], 1);
  all.run(9min);
  all.get(2);
  all.send_block(world::tokens_in(all.next(frame_type::fetch))[0], 2);
  all.run(9min);
  BOOST_TEST(std::ranges::count(all.heard, frame_type::unbind, &frame::type) == 0);
  all.run(10min);
  BOOST_TEST(peer::decode_unbind_request(all.next(frame_type::unbind).body)->handle == 9U);
  all.get(3);
  all.accept_bind();
  all.send_block(world::tokens_in(all.next(frame_type::fetch))[0], 3);
  BOOST_TEST((all.got.at(3) == item_result::done));
}

BOOST_AUTO_TEST_CASE(instances_that_are_used_no_more_make_room_for_others) {
  world all;
  all.backend.unbind(identity_of(all.spec));
  for (int i = 0; i < 4096; ++i) {
    instance_spec other = some_spec();
    other.id = "model " + std::to_string(i);
    all.backend.bind(other);
    if (i != 4095) continue;
    all.memory[1].resize(block_bytes);
    all.backend.get({{.token = 1, .name = {identity_of(other), 0, key_of(1)}, .memory = all.memory[1]}});
  }
  all.run(0ms);
  all.accept_bind();
  (void)all.next(frame_type::fetch);
}

BOOST_AUTO_TEST_CASE(a_long_removal_is_told_in_several_frames_and_done_when_each_is_confirmed) {
  world all;
  std::optional<result<std::uint64_t>> removed;
  std::vector<block_key> keys(peer::most_keys + 1);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = {i, i};
  all.backend.drop(identity_of(all.spec), keys, [&](result<std::uint64_t> how) { removed = how; });
  const frame first = all.next(frame_type::forget), second = all.next(frame_type::forget);
  BOOST_TEST(peer::decode_forget_request(first.body)->keys.size() == peer::most_keys);
  BOOST_TEST(peer::decode_forget_request(second.body)->keys.size() == 1U);
  all.say(frame_type::forgot, first.request, peer::encode(peer::forget_answer{7, {}}));
  BOOST_TEST(!removed);
  all.say(frame_type::forgot, second.request, peer::encode(peer::forget_answer{1, {}}));
  BOOST_REQUIRE(removed);
  BOOST_TEST(removed->value() == 8U);
}

BOOST_AUTO_TEST_CASE(a_node_that_refuses_to_bind_an_instance_is_told_of_a_removal_all_the_same) {
  world all;
  all.get(1);
  all.say(frame_type::bound, all.next(frame_type::bind).request, peer::encode(peer::bind_answer{0, 0, "another spec"}));
  std::optional<result<std::uint64_t>> removed;
  all.backend.drop(identity_of(all.spec), {all.name(1).key()}, [&](result<std::uint64_t> how) { removed = how; });
  const frame asked = all.next(frame_type::forget);
  all.say(frame_type::forgot, asked.request, peer::encode(peer::forget_answer{0, "another spec"}));
  all.run(250ms);
  BOOST_REQUIRE(removed);
  BOOST_REQUIRE(!removed->has_value());
  BOOST_TEST((removed->error().code() == error_code::removal_pending));
}

BOOST_AUTO_TEST_CASE(a_removal_that_a_silent_node_did_not_hear_of_is_pending_and_names_it) {
  world all;
  cluster::pool_members now = all.pool.members();
  now.others.clear();
  now.silent = {"b"};
  all.pool.take_members(now);
  std::optional<result<void>> cleared;
  all.backend.clear(identity_of(all.spec), [&](result<void> how) { cleared = how; });
  all.run(250ms);
  BOOST_REQUIRE(cleared);
  BOOST_REQUIRE(!cleared->has_value());
  BOOST_TEST((cleared->error().code() == error_code::removal_pending));
  BOOST_TEST(cleared->error().message() == "not confirmed by b; 1 removals wait");
  BOOST_TEST(all.pool.counters.unconfirmed == 1U);
}

BOOST_AUTO_TEST_CASE(a_removal_is_sent_again_to_all_when_a_node_is_back_that_had_not_confirmed_it) {
  world all;
  second_node third(all);
  auto now = all.pool.members();
  const auto b = now.others.front();
  now.others.erase(now.others.begin());
  now.silent = {"b"};
  all.pool.take_members(now);
  std::optional<result<std::uint64_t>> removed;
  all.backend.drop(identity_of(all.spec), {all.name(1).key()}, [&](result<std::uint64_t> how) { removed = how; });
  third.say(frame_type::forgot, third.next(frame_type::forget).request, peer::encode(peer::forget_answer{1, {}}));
  all.run(1min);
  BOOST_REQUIRE(removed);
  BOOST_TEST(!removed->has_value());
  all.memory[2].assign(block_bytes, std::byte{0});
  all.backend.get({{.token = 2, .name = all.name(1), .memory = all.memory[2]}});
  all.run(5ms);
  BOOST_TEST((all.got.at(2) == item_result::missing));  // as long as it is pending

  now.others.push_back(b);
  now.silent.clear();
  all.pool.take_members(now);
  const frame again = all.next(frame_type::forget), beside = third.next(frame_type::forget);
  BOOST_TEST((peer::decode_forget_request(again.body)->keys == std::vector{all.name(1).key()}));
  all.say(frame_type::forgot, again.request, peer::encode(peer::forget_answer{1, {}}));
  BOOST_TEST(all.pool.counters.unconfirmed == 1U);
  third.say(frame_type::forgot, beside.request, peer::encode(peer::forget_answer{0, {}}));
  BOOST_TEST(all.pool.counters.unconfirmed == 0U);
  BOOST_TEST(all.pool.counters.repeated_removals == 1U);
}

BOOST_AUTO_TEST_CASE(
    a_removal_waits_no_more_for_a_node_that_is_written_off_and_is_then_confirmed_once_more_by_the_rest) {
  world all;
  second_node third(all);
  all.lose_b();
  std::optional<result<std::uint64_t>> removed;
  all.backend.drop(identity_of(all.spec), {all.name(1).key()}, [&](result<std::uint64_t> how) { removed = how; });
  third.say(frame_type::forgot, third.next(frame_type::forget).request, peer::encode(peer::forget_answer{1, {}}));
  all.run(250ms);  // it is answered when the book has it
  BOOST_REQUIRE(removed);
  BOOST_TEST(!removed->has_value());

  BOOST_TEST(all.pool.write_off("b").value() == 1U);
  all.run(5ms);
  BOOST_TEST(all.pool.counters.write_offs == 1U);
  const auto notice = peer::decode_write_off_notice(third.next(frame_type::write_off).body);
  BOOST_REQUIRE(notice);
  BOOST_TEST(notice->nodes.front().first == "b");
  BOOST_TEST(all.pool.counters.unconfirmed == 1U);  // the others may have got a block of it since
  third.say(frame_type::forgot, third.next(frame_type::forget).request, peer::encode(peer::forget_answer{0, {}}));
  BOOST_TEST(all.pool.counters.unconfirmed == 0U);

  removed.reset();
  all.backend.drop(identity_of(all.spec), {all.name(2).key()}, [&](result<std::uint64_t> how) { removed = how; });
  third.say(frame_type::forgot, third.next(frame_type::forget).request, peer::encode(peer::forget_answer{0, {}}));
  BOOST_REQUIRE(removed);
  BOOST_TEST(removed->has_value());
}

BOOST_AUTO_TEST_CASE(
    a_node_that_comes_back_after_it_was_written_off_is_asked_for_nothing_before_it_has_cleared_its_blocks) {
  world all;
  all.lose_b();
  BOOST_REQUIRE(all.pool.write_off("b"));
  all.regain_b();
  const frame order = all.next(frame_type::write_off);
  BOOST_TEST(peer::decode_write_off_notice(order.body)->nodes.front().first == "b");
  const frame clears = order.request != 0 ? order : all.next(frame_type::write_off);
  all.get(1);
  BOOST_TEST((all.got.at(1) == item_result::refused));

  all.say(frame_type::forgot, clears.request, peer::encode(peer::forget_answer{0, "its disk is busy"}));
  all.get(2);
  BOOST_TEST((all.got.at(2) == item_result::refused));
  all.run(11s);  // it is asked again
  const frame again = all.next(frame_type::write_off);
  all.say(frame_type::forgot, again.request, peer::encode(peer::forget_answer{3, {}}));
  BOOST_TEST(all.pool.counters.write_offs == 0U);
  all.get(3);
  all.accept_bind();
  all.send_block(world::tokens_in(all.next(frame_type::fetch))[0], 3);
  BOOST_TEST((all.got.at(3) == item_result::done));
}

BOOST_AUTO_TEST_CASE(a_removal_waits_for_a_node_that_is_back_from_a_write_off) {
  world all;
  all.lose_b();
  BOOST_REQUIRE(all.pool.write_off("b"));
  all.regain_b();
  std::optional<result<std::uint64_t>> removed;
  all.backend.drop(identity_of(all.spec), {all.name(1).key()}, [&](result<std::uint64_t> how) { removed = how; });
  const frame asked = all.next(frame_type::forget);
  BOOST_TEST(!removed);
  all.say(frame_type::forgot, asked.request, peer::encode(peer::forget_answer{0, "busy"}));
  all.run(250ms);
  BOOST_REQUIRE(removed);
  BOOST_TEST(!removed->has_value());
  BOOST_TEST(all.pool.counters.unconfirmed == 1U);
}

BOOST_AUTO_TEST_CASE(a_removal_waits_for_a_node_that_was_met_since_its_write_off_and_went_unheard) {
  world all;
  all.lose_b();
  BOOST_REQUIRE(all.pool.write_off("b"));
  all.regain_b();
  (void)all.next(frame_type::write_off);  // it may clear its blocks, and have others before it removes this one
  all.lose_b();
  std::optional<result<std::uint64_t>> removed;
  all.backend.drop(identity_of(all.spec), {all.name(1).key()}, [&](result<std::uint64_t> how) { removed = how; });
  all.run(250ms);
  BOOST_REQUIRE(removed);
  BOOST_TEST(!removed->has_value());
  BOOST_TEST(all.pool.counters.unconfirmed == 1U);

  const auto number = all.pool.departures.number_of("b");
  BOOST_TEST(all.pool.write_off("b").value() == 1U);
  all.run(5ms);
  BOOST_TEST(all.pool.departures.number_of("b") > number);  // it clears its blocks once more
  BOOST_TEST(all.pool.counters.unconfirmed == 0U);
}

BOOST_AUTO_TEST_CASE(a_removal_waits_for_a_node_that_has_come_back_to_another_one) {
  world all;
  all.lose_b();
  BOOST_REQUIRE(all.pool.write_off("b"));
  second_node third(all);
  all.backend.drop(identity_of(all.spec), {all.name(1).key()}, [](const result<std::uint64_t>&) {});
  const frame asked = third.next(frame_type::forget);
  all.pool.learn_return(all.pool.departures.number_of("b"));
  third.say(frame_type::forgot, asked.request, peer::encode(peer::forget_answer{0, {}}));
  BOOST_TEST(all.pool.counters.unconfirmed == 1U);  // also of one that had begun
  all.backend.drop(identity_of(all.spec), {all.name(2).key()}, [](const result<std::uint64_t>&) {});
  third.say(frame_type::forgot, third.next(frame_type::forget).request, peer::encode(peer::forget_answer{0, {}}));
  BOOST_TEST(all.pool.counters.unconfirmed == 2U);
}

BOOST_AUTO_TEST_CASE(a_put_that_began_before_this_node_cleared_itself_is_not_offered_after_that) {
  world all;
  all.put(1);
  ++all.pool.counters.own_clears;
  all.accept_bind();
  all.run(0ms);
  BOOST_TEST((all.was_put.at(1) == item_result::refused));
  all.put(2);
  BOOST_TEST(world::tokens_in(all.next(frame_type::offer)).size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_node_that_is_unknown_or_live_or_this_one_is_not_written_off) {
  world all;
  for (const auto& [name, reason] : std::map<std::string, std::string>{
           {"a", "`a` is this node itself"},
           {"b", "node `b` is live: stop it first"},
           {"z", "no node `z` is known here; `cenote status` lists those that removals wait for"}}) {
    const auto refused = all.pool.write_off(name);
    BOOST_REQUIRE(!refused);
    BOOST_TEST((refused.error().code() == error_code::invalid_argument));
    BOOST_TEST(refused.error().message() == reason);
  }
  BOOST_TEST(all.pool.departures.record().nodes.empty());
}

BOOST_AUTO_TEST_CASE(a_write_off_that_another_node_knows_holds_here_too_and_ends_what_is_under_way_with_the_node) {
  world all;
  all.get(1);
  all.accept_bind();
  (void)all.next(frame_type::fetch);
  all.pool.learn_write_off("b", 5);
  all.run(10ms);
  BOOST_TEST((all.got.at(1) == item_result::refused));  // the link is closed
  all.pool.learn_write_off("c", 5);
  BOOST_TEST(all.pool.counters.write_offs == 2U);
}

BOOST_AUTO_TEST_CASE(a_write_off_is_known_to_the_next_worker) {
  const test::scratch_folder folder;
  world all;
  remote::peers_backend::events ignored{.put = [](const std::vector<remote::item_outcome>&) {},
                                        .got = [](const std::vector<remote::item_outcome>&) {},
                                        .standing = [](const result<void>&) {}};
  {
    remote::peers_backend first{all.pool, {}, ignored, remote::removal_book::open(folder / "book", 1).value()};
    all.pool.join(&first, nullptr);
    all.lose_b();
    BOOST_REQUIRE(all.pool.write_off("b"));
    first.stop();
  }
  all.pool.departures.restore({});
  remote::peers_backend second{all.pool, {}, ignored, remote::removal_book::open(folder / "book", 1).value()};
  BOOST_TEST(all.pool.departures.has("b"));
  all.pool.join(&all.backend, nullptr);
}

BOOST_AUTO_TEST_CASE(a_book_that_could_not_be_written_is_written_when_it_can_be_and_each_failure_is_counted) {
  const test::scratch_folder folder;
  const std::filesystem::path place = folder / "state";
  std::filesystem::create_directory(place);
  world all;
  std::vector<std::string> events;
  remote::peers_backend kept{
      all.pool,
      {},
      {.put = [](const std::vector<remote::item_outcome>&) {},
       .got = [](const std::vector<remote::item_outcome>&) {},
       .standing = [](const result<void>&) {},
       .notice = [&](const std::string& event, const std::string&, const std::string&) { events.push_back(event); }},
      remote::removal_book::open(place / "book", 1).value()};
  all.pool.join(&kept, nullptr);
  all.lose_b();
  std::filesystem::remove_all(place);
  kept.drop(identity_of(all.spec), {all.name(1).key()}, [](const result<std::uint64_t>&) {});
  all.run(25s);
  BOOST_TEST(all.pool.counters.failed_saves == 3U);
  BOOST_TEST(events.size() == 1U);
  std::filesystem::create_directory(place);
  all.run(11s);
  BOOST_TEST(all.pool.counters.failed_saves == 3U);
  BOOST_TEST(events.size() == 2U);
  BOOST_TEST(remote::removal_book::open(place / "book", 1)->orders().size() == 1U);
  kept.stop();
  all.pool.join(&all.backend, nullptr);
}

BOOST_AUTO_TEST_CASE(a_removal_waits_no_more_for_a_node_that_was_drained_and_left_and_that_one_is_written_off) {
  world all;
  all.lose_b();
  all.backend.drop(identity_of(all.spec), {all.name(1).key()}, [](const result<std::uint64_t>&) {});
  all.run(5ms);
  BOOST_TEST(all.pool.counters.unconfirmed == 1U);
  auto now = all.pool.members();
  now.silent.clear();
  now.stopped = {"b"};
  all.pool.take_members(now);
  BOOST_TEST(all.pool.counters.unconfirmed == 1U);  // it may come back with a disk
  now.drained = {"b"};
  all.pool.take_members(now);
  all.run(250ms);
  BOOST_TEST(all.pool.counters.unconfirmed == 0U);
  BOOST_TEST(all.pool.departures.has("b"));
}

BOOST_AUTO_TEST_CASE(a_removal_of_an_earlier_worker_is_sent_again_and_its_keys_are_not_fetched_until_then) {
  world all;
  remote::removal_book book;
  book.add({.identity = identity_of(all.spec), .keys = {all.name(1).key()}, .nodes = {"b"}});
  std::vector<item_result> got;
  remote::peers_backend next{all.pool,
                             {},
                             {.put = [](const std::vector<remote::item_outcome>&) {},
                              .got =
                                  [&](const std::vector<remote::item_outcome>& outcomes) {
                                    for (const auto& each : outcomes) got.push_back(each.what);
                                  },
                              .standing = [](const result<void>&) {}},
                             std::move(book)};
  all.pool.join(&next, nullptr);
  all.memory[1].assign(block_bytes, std::byte{0});
  next.get({{.token = 1, .name = all.name(1), .memory = all.memory[1]}});
  all.run(0ms);
  BOOST_TEST((got == std::vector{item_result::missing}));
  all.pool.take_members(all.pool.members());
  all.say(frame_type::forgot, all.next(frame_type::forget).request, peer::encode(peer::forget_answer{1, {}}));
  BOOST_TEST(all.pool.counters.unconfirmed == 0U);
  next.stop();
  all.pool.join(&all.backend, nullptr);
}

BOOST_AUTO_TEST_CASE(an_instance_that_only_an_earlier_worker_used_is_cleared_at_other_nodes_by_its_spec) {
  const test::scratch_folder folder;
  world all;
  {
    later_worker first(all, std::move(*remote::removal_book::open(folder / "book", 1)));
    first.backend.bind(all.spec);
    all.run(250ms);
  }
  later_worker second(all, std::move(*remote::removal_book::open(folder / "book", 1)));
  all.pool.take_members(all.pool.members());
  BOOST_REQUIRE_EQUAL(second.backend.earlier_instances().size(), 1U);
  BOOST_TEST((second.backend.earlier_instances().front() == all.spec));
  second.backend.clear_all({identity_of(all.spec)}, [](const result<void>&) {});
  const auto order = peer::decode_forget_request(all.next(frame_type::forget).body);
  BOOST_TEST((order->identity == identity_of(all.spec)));
  BOOST_TEST(!order->spec.empty());
}

BOOST_AUTO_TEST_CASE(removals_beyond_what_is_kept_become_a_clear_of_their_instance_that_a_node_hears_when_it_is_back) {
  world all;
  all.lose_b();
  instance_spec other = some_spec();
  other.id = "another tenant's";
  all.backend.bind(other);
  all.backend.drop(identity_of(other), {all.name(1).key()}, [](const result<std::uint64_t>&) {});
  for (std::uint64_t i = 0; i <= remote::removal_book::most_orders; ++i)
    all.backend.drop(identity_of(all.spec), {block_key{i, 1}}, [](const result<std::uint64_t>&) {});
  all.run(250ms);
  BOOST_TEST(all.pool.counters.dropped_removals == 0U);
  all.regain_b();
  std::map<instance_identity, std::uint64_t> heard;  // numbers of clears
  for (int i = 0; i < 2; ++i) {
    const auto order = peer::decode_forget_request(all.next(frame_type::forget).body);
    heard[order->identity] = std::max(heard[order->identity], order->cleared);
  }
  BOOST_TEST(heard.at(identity_of(other)) == 0U);
  BOOST_TEST(heard.at(identity_of(all.spec)) == all.pool.cleared(identity_of(all.spec)));
  BOOST_TEST(all.pool.carried_out(identity_of(all.spec)) == all.pool.cleared(identity_of(all.spec)));
}

BOOST_AUTO_TEST_CASE(a_removal_is_pending_until_all_nodes_were_met_that_an_earlier_worker_knew_however_long_ago) {
  world all;
  remote::removal_book book;
  book.note_here("b");
  book.note_away("c");
  later_worker next(all, std::move(book));
  all.pool.take_members(all.pool.members());
  all.run(24h);
  next.remove(1);
  all.say(frame_type::forgot, all.next(frame_type::forget).request, peer::encode(peer::forget_answer{1, {}}));
  all.run(250ms);
  BOOST_REQUIRE(next.removed);
  BOOST_REQUIRE(!next.removed->has_value());
  BOOST_TEST(next.removed->error().message() == "not confirmed by c; 1 removals wait");

  second_node third(all);  // it is back
  for (auto* const frames : {&all.heard, &third.heard}) {
    const auto again = peer::decode_forget_request(all.next_of(*frames, frame_type::forget).body);
    BOOST_TEST((again->keys == std::vector{all.name(1).key()}));
  }
}

BOOST_AUTO_TEST_CASE(a_node_that_left_undrained_is_waited_for_after_membership_has_forgotten_it) {
  world all;
  auto now = all.pool.members();
  now.others.clear();
  now.stopped = {"b"};
  all.pool.take_members(now);
  now.stopped.clear();
  all.pool.take_members(now);
  std::optional<result<std::uint64_t>> removed;
  all.backend.drop(identity_of(all.spec), {all.name(1).key()}, [&](result<std::uint64_t> how) { removed = how; });
  all.run(250ms);
  BOOST_REQUIRE(removed);
  BOOST_TEST(!removed->has_value());
  const auto awaited = all.pool.awaited_snapshot.load();
  BOOST_REQUIRE_EQUAL(awaited->size(), 1U);
  BOOST_TEST(awaited->front().name == "b");
  BOOST_TEST(awaited->front().removals == 1U);
  BOOST_TEST(!awaited->front().is_here);
  BOOST_TEST(all.pool.counters.awaited_nodes == 1U);
  BOOST_TEST(all.pool.write_off("b").value() == 1U);
  all.run(250ms);
  BOOST_TEST(all.pool.counters.unconfirmed == 0U);
  BOOST_TEST(all.pool.awaited_snapshot.load()->empty());
}

BOOST_AUTO_TEST_CASE(a_node_that_left_drained_is_written_off_by_the_first_removal_after_it_also_of_a_later_worker) {
  const test::scratch_folder folder;
  world all;
  {
    later_worker first(all, std::move(*remote::removal_book::open(folder / "book", 1)));
    all.pool.take_members(all.pool.members());
    all.run(250ms);
    auto now = all.pool.members();
    now.others.clear();
    now.stopped = now.drained = {"b"};
    all.pool.take_members(now);
    all.run(250ms);
    BOOST_TEST(all.pool.departures.record().nodes.empty());
    BOOST_TEST(all.pool.awaited_snapshot.load()->empty());
  }
  later_worker second(all, std::move(*remote::removal_book::open(folder / "book", 1)));
  all.pool.take_members({.self = "a", .weight = 0, .born = {1}, .others = {}});
  second.remove(1);
  BOOST_REQUIRE(second.removed);
  BOOST_TEST(second.removed->has_value());
  BOOST_TEST(all.pool.departures.has("b"));
}

BOOST_AUTO_TEST_CASE(a_node_beyond_the_bound_of_names_is_written_off_and_counted) {
  world all;
  remote::removal_book book;
  for (std::size_t i = 0; i < remote::removal_book::most_nodes; ++i) book.note_away("node " + std::to_string(i));
  later_worker next(all, std::move(book));
  all.pool.take_members(all.pool.members());  // b is one more
  BOOST_TEST(all.pool.counters.excess_nodes == 1U);
  BOOST_TEST(all.pool.departures.record().nodes.size() == 1U);
  BOOST_TEST(all.pool.departures.has("node 0"));
}

BOOST_AUTO_TEST_CASE(a_node_that_nothing_is_known_of_clears_its_blocks_first_once_write_offs_were_forgotten) {
  world all;
  later_worker next(all, {});
  all.pool.departures.restore({.is_incomplete = true});
  all.pool.take_members(all.pool.members());
  BOOST_TEST(all.pool.departures.has("b"));
  frame asked = all.next(frame_type::write_off);
  while (asked.request == 0) asked = all.next(frame_type::write_off);
  all.say(frame_type::forgot, asked.request, peer::encode(peer::forget_answer{0, {}}));
  BOOST_TEST(!all.pool.departures.has("b"));
  all.pool.take_members(all.pool.members());
  BOOST_TEST(!all.pool.departures.has("b"));
}

BOOST_AUTO_TEST_CASE(a_removal_before_there_is_a_network_is_pending_and_kept_and_sent_when_there_is_one) {
  const test::scratch_folder folder;
  world all;
  cluster::pool pool{[](cluster::pool::steady_time) {}, [&] { return all.wire.now(); }};
  remote::removal_book book = std::move(*remote::removal_book::open(folder / "book", 1));
  book.note_away("b");
  remote::peers_backend backend{pool,
                                {},
                                {.put = [](const std::vector<remote::item_outcome>&) {},
                                 .got = [](const std::vector<remote::item_outcome>&) {},
                                 .standing = [](const result<void>&) {}},
                                std::move(book)};
  pool.join(&backend, nullptr);
  std::vector<std::string> answers;
  backend.bind(all.spec);
  backend.drop(identity_of(all.spec), {all.name(1).key()},
               [&](const result<std::uint64_t>& how) { answers.push_back(how ? "" : how.error().message()); });
  backend.clear(identity_of(some_spec()),
                [&](const result<void>& how) { answers.push_back(how ? "" : how.error().message()); });
  BOOST_TEST(answers.empty());
  pool.advance_early();
  all.run(1s);
  pool.advance_early();
  BOOST_TEST((answers ==
              std::vector<std::string>{"not confirmed by b; 1 removals wait", "not confirmed by b; 1 removals wait"}));
  const auto kept = remote::removal_book::open(folder / "book", 1);
  BOOST_REQUIRE_EQUAL(kept->orders().size(), 1U);  // the clear covers the keys
  BOOST_TEST(!kept->orders().begin()->second.spec.empty());

  pool.use(all.here);
  pool.take_members(all.pool.members());
  const auto order = peer::decode_forget_request(all.next(frame_type::forget).body);
  BOOST_TEST(order->cleared != 0U);
  all.run(1s);
  backend.stop();
}

BOOST_AUTO_TEST_CASE(a_removal_is_pending_while_the_link_of_a_node_carries_no_blocks_yet_or_closed_a_moment_ago) {
  world all;
  auto now = all.pool.members();
  now.others.front().carries_blocks = false;
  all.pool.take_members(now);
  later_worker next(all, {});
  all.pool.take_members(now);
  next.remove(1);
  all.run(250ms);
  BOOST_REQUIRE(next.removed);
  BOOST_TEST(!next.removed->has_value());
  all.pool.closed(all.here_link);
  next.remove(2);
  all.run(250ms);
  BOOST_REQUIRE(next.removed);
  BOOST_TEST(!next.removed->has_value());
}

BOOST_AUTO_TEST_CASE(a_removal_is_answered_as_pending_when_the_file_has_it) {
  world all;
  const test::scratch_folder folder;
  const std::filesystem::path file = folder / "book";
  later_worker next(all, std::move(*remote::removal_book::open(file, 1)));
  auto now = all.pool.members();
  now.others.clear();
  now.silent = {"b"};
  all.pool.take_members(now);
  for (std::uint64_t number = 1; number <= 3; ++number) {
    next.remove(number);
    for (int i = 0; i < 100 && !next.removed; ++i) all.run(10ms);
    BOOST_REQUIRE(next.removed);
    const auto written = remote::removal_book::open(file, 1);
    BOOST_TEST(written->orders().size() == number);
  }
}

BOOST_AUTO_TEST_CASE(a_removal_is_not_answered_before_what_others_store_here_is_gone) {
  struct slow_guest final : cluster::pool_half {
    void members_changed() override {}
    void heard(peer::link_id, frame_type, std::uint64_t, std::span<const std::byte>) override {}
    [[nodiscard]] peer::landing expects(peer::link_id, const peer::piece_header&, std::size_t) override { return {}; }
    void landed(peer::link_id, const peer::piece_header&, std::span<const std::byte>) override {}
    void sent(peer::link_id, std::uint64_t, bool) override {}
    void closed(peer::link_id) override {}
    void remove_hosted(instance_identity, const std::vector<block_key>&,
                       std::function<void(std::string)> then) override {
      end = std::move(then);
    }
    void flush() override {}
    void advance(std::chrono::steady_clock::time_point) override {}
    std::function<void(std::string)> end;
  };
  world all;
  slow_guest guest;
  all.pool.join(nullptr, &guest);
  std::optional<result<std::uint64_t>> removed;
  all.backend.drop(identity_of(all.spec), {all.name(1).key()}, [&](result<std::uint64_t> how) { removed = how; });
  all.say(frame_type::forgot, all.next(frame_type::forget).request, peer::encode(peer::forget_answer{1, {}}));
  all.run(10s);
  BOOST_TEST(!removed);
  guest.end({});
  BOOST_REQUIRE(removed);
  BOOST_TEST(removed->has_value());
}

BOOST_AUTO_TEST_CASE(a_removal_that_a_node_fails_to_carry_out_is_sent_again_after_a_while) {
  world all;
  all.backend.drop(identity_of(all.spec), {all.name(1).key()}, [](const result<std::uint64_t>&) {});
  all.say(frame_type::forgot, all.next(frame_type::forget).request, peer::encode(peer::forget_answer{0, "it is busy"}));
  BOOST_TEST(all.pool.counters.unconfirmed == 1U);
  all.run(11s);
  all.say(frame_type::forgot, all.next(frame_type::forget).request, peer::encode(peer::forget_answer{1, {}}));
  BOOST_TEST(all.pool.counters.unconfirmed == 0U);
}

BOOST_AUTO_TEST_CASE(a_key_is_not_fetched_from_a_node_that_may_not_have_heard_of_its_removal) {
  world all;
  all.get(1);
  all.accept_bind();
  all.send_block(world::tokens_in(all.next(frame_type::fetch))[0], 1);
  all.backend.drop(identity_of(all.spec), {all.name(1).key()}, [](const result<std::uint64_t>&) {});
  const frame asked = all.next(frame_type::forget);
  all.memory[2].assign(block_bytes, std::byte{0});
  all.backend.get({{.token = 2, .name = all.name(1), .memory = all.memory[2]}});
  all.run(5ms);
  BOOST_TEST((all.got.at(2) == item_result::missing));
  all.say(frame_type::forgot, asked.request, peer::encode(peer::forget_answer{1, {}}));
  all.backend.get({{.token = 3, .name = all.name(1), .memory = all.memory[2]}});
  all.run(5ms);
  BOOST_TEST((all.got.at(3) == item_result::missing));  // it may reach others later
  all.run(2100ms);
  all.backend.get({{.token = 4, .name = all.name(1), .memory = all.memory[2]}});
  all.run(5ms);
  (void)all.next(frame_type::fetch);
}

BOOST_AUTO_TEST_CASE(a_question_and_a_fetch_name_the_last_clear_that_was_heard_of) {
  world all;
  all.pool.note_cleared(identity_of(all.spec), 70);
  all.get(1);
  all.accept_bind();
  BOOST_TEST((peer::decode_block_request(all.next(frame_type::fetch).body)->cleared == 70U));
  all.backend.locate({all.name(2)}, 1000ms, [](remote::presence) {});
  BOOST_TEST((peer::decode_locate_request(all.next(frame_type::locate).body)->cleared == 70U));
}

BOOST_AUTO_TEST_CASE(a_put_whose_bytes_went_out_and_that_nobody_answered_may_be_there) {
  world all;
  all.put(1);
  all.accept_bind();
  const frame offered = all.next(frame_type::offer);
  all.say(frame_type::accept, offered.request,
          peer::encode(peer::block_answers{{world::tokens_in(offered)[0], block_answer::send}}));
  all.run(2100ms);
  BOOST_TEST((all.was_put.at(1) == item_result::unknown));
}

BOOST_AUTO_TEST_CASE(keys_of_two_widths_in_one_question_are_asked_for_as_they_are) {
  world all;
  std::optional<remote::presence> answer;
  const std::vector<std::byte> narrow(8, std::byte{7});
  std::vector<remote::block_name> keys{all.name(1), {identity_of(all.spec), 0, full_key(narrow)}, all.name(2)};
  all.backend.locate(keys, 50ms, [&](remote::presence how) { answer = std::move(how); });
  all.run(0ms);
  all.accept_bind();
  for (int i = 0; i < 2; ++i) {
    const frame asked = all.next(frame_type::locate);
    const auto read = peer::decode_locate_request(asked.body);
    BOOST_REQUIRE(read);
    for (const full_key& each : read->keys) BOOST_TEST((each == keys[1].full || each.size == 16));
    std::vector<bool> held;
    for (const full_key& each : read->keys) held.push_back(each == keys[0].full || each == keys[1].full);
    all.say(frame_type::located, asked.request, peer::encode(peer::locate_answer{held}));
  }
  BOOST_REQUIRE(answer);
  BOOST_TEST(answer->is_complete);
  BOOST_TEST((answer->held == std::vector<bool>{true, true, false}));
}

BOOST_AUTO_TEST_CASE(garbage_about_blocks_closes_the_link) {
  world all;
  all.get(1);
  all.accept_bind();
  (void)all.next(frame_type::fetch);
  all.say(frame_type::fetched, 0, std::vector<std::byte>(3));
  BOOST_TEST((all.got[1] == item_result::refused));
}

BOOST_AUTO_TEST_CASE(a_home_that_names_a_node_that_is_not_there_is_asked_again_and_must_not_name_another) {
  world all;
  all.get(1);
  all.accept_bind();
  const auto tokens = world::tokens_in(all.next(frame_type::fetch));
  all.say(frame_type::elsewhere, 0, peer::encode(peer::elsewhere_answer{"nobody", tokens}));
  const auto again = world::tokens_in(all.next(frame_type::fetch_here));
  BOOST_TEST((again == tokens));
  all.send_block(tokens[0], 1);
  BOOST_TEST((all.got[1] == item_result::done));
}

BOOST_AUTO_TEST_CASE(a_home_that_names_another_node_again_and_again_is_left) {
  world all;
  all.get(1);
  all.accept_bind();
  const auto tokens = world::tokens_in(all.next(frame_type::fetch));
  all.say(frame_type::elsewhere, 0, peer::encode(peer::elsewhere_answer{"nobody", tokens}));
  (void)all.next(frame_type::fetch_here);
  all.say(frame_type::elsewhere, 0, peer::encode(peer::elsewhere_answer{"nobody", tokens}));
  BOOST_TEST((all.got[1] == item_result::refused));
}

BOOST_AUTO_TEST_CASE(a_node_that_a_home_names_is_asked_once_and_then_the_home_again) {
  world all;
  second_node other(all);
  for (std::uint64_t number = 1; number <= 2; ++number) all.get(number);
  all.accept_bind();
  const auto tokens = world::tokens_in(all.next(frame_type::fetch));
  BOOST_REQUIRE(tokens.size() == 2U);
  all.say(frame_type::elsewhere, 0, peer::encode(peer::elsewhere_answer{"c", tokens}));
  other.accept_bind();
  BOOST_TEST((world::tokens_in(other.next(frame_type::fetch_here)) == tokens));
  other.send_block(tokens[0], 1);
  BOOST_TEST((all.got[1] == item_result::done));
  BOOST_TEST((all.memory[1] == content_of(1)));
  other.say(frame_type::fetched, 0, peer::encode(peer::block_answers{{tokens[1], block_answer::missing}}));
  BOOST_TEST((world::tokens_in(all.next(frame_type::fetch_here)) == std::vector{tokens[1]}));
  all.send_block(tokens[1], 2);
  BOOST_TEST((all.got[2] == item_result::done));
}

BOOST_AUTO_TEST_CASE(a_named_node_that_goes_away_costs_nothing_but_the_way_back) {
  world all;
  second_node other(all);
  all.get(1);
  all.accept_bind();
  const auto tokens = world::tokens_in(all.next(frame_type::fetch));
  all.say(frame_type::elsewhere, 0, peer::encode(peer::elsewhere_answer{"c", tokens}));
  other.accept_bind();
  (void)other.next(frame_type::fetch_here);
  other.network->stop();
  all.run(10ms);
  BOOST_TEST((world::tokens_in(all.next(frame_type::fetch_here)) == tokens));
  all.send_block(tokens[0], 1);
  BOOST_TEST((all.got[1] == item_result::done));
}

BOOST_AUTO_TEST_SUITE_END()
