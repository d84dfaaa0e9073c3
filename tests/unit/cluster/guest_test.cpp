// A node that serves others, over a block tier and a network that the test plays call by call.
#include "cluster/guest.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/byte_io.hpp"
#include "core/checksum.hpp"
#include "core/stored_identity.hpp"
#include "memory/instance_memory.hpp"
#include "memory/segment.hpp"
#include "tests/support/numbered_identity.hpp"

namespace {

using namespace cenote;
using memory::completion;
using memory::completion_kind;
using memory::operation;
using memory::submission;
using peer::block_answer;
using peer::frame_type;

constexpr std::size_t block_bytes = 4096;
constexpr std::uint32_t pins = 64;

instance_spec some_spec() {
  instance_spec spec;
  spec.id = "model";
  spec.tokens_per_block = 16;
  spec.groups = {{"full", {{"kv", block_bytes}}}};
  return spec;
}

std::vector<std::byte> encoded(const instance_spec& spec) {
  byte_writer writer;
  encode(writer, spec);
  return std::move(writer).take();
}

full_key key_of(std::uint64_t number) {
  std::vector<std::byte> bytes(16);
  std::memcpy(bytes.data(), &number, sizeof number);
  return full_key(bytes);
}

/// Keeps what is sent.
struct recording_network final : peer::network {
  struct frame {
    peer::link_id to = 0;
    frame_type type{};
    std::vector<std::byte> body;
  };
  void look_up(const endpoint&) override {}
  peer::link_id dial(const endpoint&) override { return 0; }
  void send(peer::link_id to, std::vector<std::byte> bytes) override {
    const auto read = peer::decode_frame(bytes);
    sent.push_back({to, read->type, {read->body.begin(), read->body.end()}});
  }
  void join_blocks(peer::link_id, const endpoint&, const peer::ticket&) override {}
  void await_blocks(peer::link_id, const peer::ticket&) override {}
  void send_block(peer::link_id, const peer::piece_header& head, std::span<const std::byte> memory) override {
    blocks.emplace_back(head, memory);
  }
  void close(peer::link_id which, error) override { closed.push_back(which); }
  void run(std::function<void()> what) override { what(); }
  [[nodiscard]] peer::oddities odd() const noexcept override { return {}; }
  void stop() noexcept override {}

  std::vector<frame> sent;
  std::vector<std::pair<peer::piece_header, std::span<const std::byte>>> blocks;
  std::vector<peer::link_id> closed;
};

/// Answers when the test says so.
struct slow_room final : cluster::guest_room {
  struct order {
    std::vector<submission> entries;
    then<std::vector<completion>> done;
  };
  void open(const instance_spec&, then<result<cluster::guest_session_ptr>> done) override {
    opens.push_back(std::move(done));
  }
  void close(std::uint64_t) override { ++closes; }
  void disconnect(std::uint64_t) override {}
  void run(std::uint64_t, std::vector<submission> entries, bool, then<std::vector<completion>> done) override {
    runs.push_back({std::move(entries), std::move(done)});
  }
  void find_slabs(std::uint32_t, std::vector<std::uint32_t>, then<std::vector<memory::slab_place>> done) override {
    finds.push_back(std::move(done));
  }
  void clear_node(then<result<std::uint64_t>> done) override { node_clears.push_back(std::move(done)); }

  std::deque<then<result<cluster::guest_session_ptr>>> opens;
  std::deque<order> runs;
  std::deque<then<std::vector<memory::slab_place>>> finds;
  std::vector<then<result<std::uint64_t>>> node_clears;
  int closes = 0;
};

/// Another identity, whose first number is so much greater.
instance_identity shifted(instance_identity identity, std::uint64_t step) {
  const std::uint64_t first = identity.spread() + step;
  std::memcpy(identity.bytes.data(), &first, sizeof first);
  return identity;
}

struct guest_world {
  explicit guest_world(std::uint64_t bytes = block_bytes) {
    spec.groups = {{"full", {{"kv", bytes}}}};
    identity = identity_of(spec);
    pool.join(nullptr, &guest);
    pool.use(network);
    take_members({"b"});
  }
  /// The others, whose links have the numbers from 7 on.
  void take_members(const std::vector<std::string>& names) {
    cluster::pool_members now{.self = "a", .weight = 1, .born = {1}, .others = {}};
    for (const std::string& name : names)
      now.others.push_back({.name = name, .weight = 1, .link = 7 + now.others.size(), .carries_blocks = true});
    pool.take_members(now);
  }

  cluster::guest_session_ptr make_session() {
    auto index = memory::open_index(*instance.index.file().read_only_descriptor());
    auto versions = memory::open_versions(*instance.versions.file().read_only_descriptor());
    return std::make_shared<cluster::guest_session>(std::move(*index), std::move(*versions),
                                                    memory::session_memory::create(session_segment, 1, pins));
  }
  void open_next() {
    const auto done = std::move(room.opens.front());
    room.opens.pop_front();
    done(make_session());
    pool.flush();
  }
  void answer_run(const std::vector<completion>& how) {
    const auto order = std::move(room.runs.front());
    room.runs.pop_front();
    order.done(how);
    pool.flush();
  }
  void answer_find(const std::vector<memory::slab_place>& found) {
    BOOST_REQUIRE(!room.finds.empty());
    const auto done = std::move(room.finds.front());
    room.finds.pop_front();
    done(found);
    pool.flush();
  }
  /// The block 0 of slab 1 is there, under that key.
  void publish(const full_key& key) {
    BOOST_REQUIRE(instance.versions.make_room(1, 5, 1).has_value());
    memory::slab_entry& entry = *instance.versions.slab(1);
    entry.first_version = 5;
    entry.count = 1;
    entry.stride = block_bytes;
    entry.state.store(static_cast<std::uint32_t>(memory::slab_state::live), std::memory_order_release);
    instance.versions.set_key(5, key);
    instance.versions.set_version(5, 2);
    BOOST_REQUIRE(instance.index.make_room_for(1).has_value());
    (void)instance.index.insert(reduce_key(key.view(), 0), memory::index_value::make(memory::block_ref(1, 0), 2));
  }
  static completion done_with(std::uint64_t value) {
    completion one;
    one.kind = completion_kind::done;
    one.value = value;
    return one;
  }
  void hear(frame_type type, std::span<const std::byte> body, peer::link_id link = 7) {
    pool.heard(link, type, 1, body);
    pool.flush();
  }
  /// Opens further instances for the node at the end of `link` until one is refused; how many.
  std::size_t open_all(peer::link_id link) {
    const std::size_t before = room.opens.size();
    std::size_t opened = 0;
    for (; room.opens.size() == before + opened && opened <= cluster::guest::most_instances; ++opened) {
      instance_spec own = spec;
      own.id = "model " + std::to_string(next_model++);
      hear(frame_type::bind, peer::encode(peer::bind_request{identity_of(own), 0, encoded(own)}), link);
    }
    return room.opens.size() - before;
  }
  void restrict_groups(std::map<std::string, std::string, std::less<>> tokens) {
    pool.rights.store(std::make_shared<const cluster::group_rights>(std::move(tokens)));
  }
  void ask_to_bind(std::uint64_t cleared, const std::optional<peer::proof>& right = {}) {
    hear(frame_type::bind, peer::encode(peer::bind_request{identity, cleared, encoded(spec), right}));
    if (!room.opens.empty()) open_next();
  }
  /// The handle of the instance, which the other node binds.
  std::uint32_t bind() {
    ask_to_bind(0);
    return peer::decode_bind_answer(last(frame_type::bound))->handle;
  }
  std::vector<std::byte> last(frame_type type) {
    const auto found =
        std::find_if(network->sent.rbegin(), network->sent.rend(), [&](const auto& each) { return each.type == type; });
    BOOST_REQUIRE((found != network->sent.rend()));
    return found->body;
  }
  /// What became of a block that is offered; none: it is being reserved.
  std::optional<block_answer> offer(std::uint32_t handle, std::uint64_t token, std::optional<std::uint64_t> cleared) {
    network->sent.clear();
    hear(frame_type::offer, peer::encode(peer::block_request{handle, 0, {{token, key_of(token)}}, cleared}));
    if (network->sent.empty()) return std::nullopt;
    return peer::decode_block_answers(last(frame_type::accept))->front().second;
  }
  /// Its last user stored here a moment before.
  void store_and_leave() {
    const std::uint32_t handle = bind();
    BOOST_TEST(!offer(handle, 1, 0));
    answer_run({});
    hear(frame_type::unbind, peer::encode(peer::unbind_request{handle}));
  }
  void clear_hosted(std::vector<std::string>& ends) {
    pool.clear_hosted(identity, [&](std::string why) { ends.push_back(std::move(why)); });
  }
  [[nodiscard]] bool clears() const {
    return !room.runs.empty() && room.runs.front().entries.front().op == operation::clear;
  }

  instance_spec spec = some_spec();
  std::uint64_t next_model = 0;
  instance_identity identity;
  memory::instance_memory instance = std::move(*memory::instance_memory::create("guest-test"));
  memory::segment session_segment =
      std::move(*memory::segment::create("guest-test", memory::session_memory::segment_bytes(pins)));
  std::shared_ptr<recording_network> network = std::make_shared<recording_network>();
  slow_room room;
  cluster::pool::steady_time time{};
  cluster::pool pool{[](cluster::pool::steady_time) {}, [this] { return time; }};
  cluster::guest guest{pool, room, {.window = 4 * block_bytes}};
};

}  // namespace

BOOST_AUTO_TEST_SUITE(guest)

BOOST_AUTO_TEST_CASE(
    a_node_that_does_not_know_the_token_of_a_group_is_given_no_handle_and_one_that_does_sees_the_home_s) {
  guest_world all;
  all.restrict_groups({{all.spec.paying_group(), "a token"}});
  const peer::ticket key = all.pool.member_on(7)->key;
  all.ask_to_bind(0);
  const auto refused = peer::decode_bind_answer(all.last(frame_type::bound));
  BOOST_TEST(refused->handle == 0U);
  BOOST_TEST(refused->why.find("token") != std::string::npos);
  BOOST_TEST(all.room.opens.empty());
  const auto rights = all.pool.rights.load();
  all.ask_to_bind(0, rights->proof_of(cluster::bind_side::asker, all.spec, key));
  const auto bound = peer::decode_bind_answer(all.last(frame_type::bound));
  BOOST_TEST(bound->handle != 0U);
  BOOST_TEST((bound->right == rights->proof_of(cluster::bind_side::home, all.spec, key)));
}

BOOST_AUTO_TEST_CASE(blocks_of_which_another_node_got_wrong_bytes_are_checked_a_batch_at_a_time) {
  guest_world all;
  const std::uint32_t handle = all.bind();
  const auto told = peer::encode(peer::block_request{handle, 0, {{2, key_of(1)}, {4, key_of(2)}}, {}});
  all.hear(frame_type::check, told);
  all.hear(frame_type::check, told);
  BOOST_REQUIRE(all.room.runs.size() == 1U);
  const auto& entries = all.room.runs.front().entries;
  BOOST_REQUIRE(entries.size() == 2U);
  BOOST_TEST((entries[0].op == operation::check));
  BOOST_TEST(entries[0].flags == 0U);
  BOOST_TEST(entries[1].flags == submission::flag_last);
  all.answer_run({guest_world::done_with(2)});
  all.hear(frame_type::check, told);
  BOOST_TEST(all.room.runs.size() == 1U);
  all.hear(frame_type::check, peer::encode(peer::block_request{handle + 1, 0, {{2, key_of(1)}}, {}}));
  all.hear(frame_type::check, peer::encode(peer::block_request{handle, 7, {{2, key_of(1)}}, {}}));
  BOOST_TEST(all.room.runs.size() == 1U);
  BOOST_TEST(all.network->closed.empty());
}

BOOST_AUTO_TEST_CASE(a_clear_that_this_node_hears_of_as_it_asks_is_carried_out_here_too) {
  guest_world all;
  all.pool.learn_cleared(all.identity, 100, encoded(all.spec));
  BOOST_REQUIRE_EQUAL(all.room.opens.size(), 1U);  // nobody else uses the instance here
  all.open_next();
  BOOST_REQUIRE(all.clears());
  BOOST_TEST(all.room.closes == 0);
  all.answer_run({guest_world::done_with(3)});
  BOOST_TEST(all.room.closes == 1);
  BOOST_TEST(all.pool.cleared(all.identity) == 100U);
  all.pool.learn_cleared(all.identity, 100, encoded(all.spec));
  BOOST_TEST(all.room.opens.empty());
}

BOOST_AUTO_TEST_CASE(a_clear_that_could_not_be_carried_out_is_not_known) {
  guest_world all;
  all.pool.learn_cleared(all.identity, 100, encoded(all.spec));
  all.room.opens.front()(fail(error_code::no_space, "no room"));
  all.room.opens.pop_front();
  all.pool.flush();
  BOOST_TEST(all.pool.cleared(all.identity) == 0U);
  (void)all.bind();
  all.pool.learn_cleared(all.identity, 100, encoded(all.spec));
  BOOST_REQUIRE(all.clears());
  all.answer_run({});
  BOOST_TEST(all.pool.cleared(all.identity) == 0U);
}

BOOST_AUTO_TEST_CASE(an_earlier_clear_is_known_still_when_a_later_one_could_not_be_carried_out) {
  guest_world all;
  all.ask_to_bind(50);
  all.answer_run({guest_world::done_with(0)});
  all.pool.learn_cleared(all.identity, 100, encoded(all.spec));
  all.answer_run({});
  BOOST_TEST(all.pool.cleared(all.identity) == 50U);
  BOOST_TEST((all.offer(1, 1, 49) == block_answer::outdated));
  all.pool.learn_cleared(all.identity, 100, encoded(all.spec));
  BOOST_TEST(all.clears());
}

BOOST_AUTO_TEST_CASE(a_share_of_the_instances_of_other_nodes_is_taken_by_no_other_node) {
  guest_world all;
  all.take_members({"b", "c", "d"});
  const std::size_t whole = cluster::guest::most_instances;
  BOOST_TEST(all.open_all(7) == whole / 2);
  BOOST_TEST(all.open_all(8) == whole / 4);
  BOOST_TEST(all.open_all(7) == 0U);
  BOOST_TEST(all.open_all(9) == whole / 8);
  BOOST_TEST(all.open_all(8) == 0U);
}

BOOST_AUTO_TEST_CASE(an_instance_is_opened_for_a_clear_also_where_others_use_as_many_as_they_may) {
  guest_world all;
  const std::size_t share = cluster::guest::most_instances / 2;  // the other half is for other nodes
  BOOST_TEST(all.open_all(7) == share);
  BOOST_REQUIRE_EQUAL(all.room.opens.size(), share);
  all.hear(frame_type::bind, peer::encode(peer::bind_request{all.identity, 0, encoded(all.spec)}));
  BOOST_TEST(peer::decode_bind_answer(all.last(frame_type::bound))->handle == 0U);
  all.pool.learn_cleared(all.identity, 100, encoded(all.spec));
  BOOST_REQUIRE_EQUAL(all.room.opens.size(), share + 1);
  std::swap(all.room.opens.front(), all.room.opens.back());
  all.open_next();
  BOOST_REQUIRE(all.clears());
  all.answer_run({guest_world::done_with(1)});
  BOOST_TEST(all.pool.carried_out(all.identity) == 100U);
  BOOST_TEST(all.room.closes == 1);
}

BOOST_AUTO_TEST_CASE(a_clear_comes_after_one_whose_number_is_the_greatest_there_is) {
  guest_world all;
  const std::uint64_t greatest = ~std::uint64_t{0};
  all.ask_to_bind(greatest);
  BOOST_REQUIRE(all.clears());
  all.answer_run({guest_world::done_with(0)});
  const std::uint64_t first = all.pool.cleared(all.identity);
  BOOST_TEST(first != 0U);
  BOOST_TEST(all.pool.carried_out(all.identity) == first);
  const std::uint64_t second = all.pool.next_clear(all.identity);
  BOOST_TEST(second > first);
  BOOST_TEST((all.offer(1, 1, first) == block_answer::outdated));
  all.hear(frame_type::forget, peer::encode(peer::forget_request{all.identity, greatest, {}}));
  BOOST_REQUIRE(all.clears());
  all.answer_run({guest_world::done_with(0)});
  const std::uint64_t third = all.pool.cleared(all.identity);
  BOOST_TEST(third > second);
  all.hear(frame_type::forget, peer::encode(peer::forget_request{all.identity, 50, {}}));  // of a clock that is right
  BOOST_REQUIRE(all.clears());
  BOOST_TEST(all.pool.cleared(all.identity) > third);
}

BOOST_AUTO_TEST_CASE(a_clear_by_a_node_whose_clock_is_behind_is_a_clear) {
  guest_world all;
  all.ask_to_bind(100);
  BOOST_REQUIRE(all.clears());
  all.answer_run({guest_world::done_with(0)});
  all.hear(frame_type::forget, peer::encode(peer::forget_request{all.identity, 50, {}}));
  BOOST_REQUIRE(all.clears());
  all.answer_run({guest_world::done_with(4)});
  BOOST_TEST(peer::decode_forget_answer(all.last(frame_type::forgot))->removed == 4U);
  BOOST_TEST(all.pool.cleared(all.identity) > 100U);  // who was away hears of it, too
}

BOOST_AUTO_TEST_CASE(a_block_whose_put_began_before_a_clear_is_not_taken_after_it) {
  guest_world all;
  const std::uint32_t handle = all.bind();
  BOOST_TEST(!all.offer(handle, 1, 0));
  all.answer_run({});
  all.hear(frame_type::forget, peer::encode(peer::forget_request{all.identity, 100, {}}));
  BOOST_REQUIRE(all.clears());
  BOOST_TEST((all.offer(handle, 3, 0) == block_answer::outdated));  // from now on, not from the clear's end on
  all.answer_run({guest_world::done_with(0)});
  BOOST_TEST((all.offer(handle, 3, 99) == block_answer::outdated));
  BOOST_TEST(all.room.runs.empty());
  BOOST_TEST(!all.offer(handle, 3, 100));
  BOOST_TEST(!all.offer(handle, 5, std::nullopt));  // of a version that does not say
  BOOST_TEST(all.room.runs.size() == 2U);
}

BOOST_AUTO_TEST_CASE(a_fetch_that_names_a_clear_which_is_not_carried_out_here_finds_nothing_and_has_it_carried_out) {
  guest_world all;
  const std::uint32_t handle = all.bind();
  all.publish(key_of(2));
  all.hear(frame_type::fetch, peer::encode(peer::block_request{handle, 0, {{2, key_of(2)}}, 100}));
  BOOST_TEST((peer::decode_block_answers(all.last(frame_type::fetched))->front().second == block_answer::missing));
  BOOST_REQUIRE(all.clears());
  all.hear(frame_type::locate, peer::encode(peer::locate_request{handle, 0, {key_of(2)}, 100}));
  BOOST_TEST((peer::decode_locate_answer(all.last(frame_type::located))->held == std::vector{false}));
  BOOST_TEST(all.room.runs.size() == 1U);  // once
  all.answer_run({guest_world::done_with(1)});
  all.hear(frame_type::locate, peer::encode(peer::locate_request{handle, 0, {key_of(2)}, 100}));
  BOOST_TEST((peer::decode_locate_answer(all.last(frame_type::located))->held == std::vector{true}));  // stored since
}

BOOST_AUTO_TEST_CASE(a_key_is_not_served_while_it_is_removed_nor_for_a_moment_after) {
  guest_world all;
  const std::uint32_t handle = all.bind();
  all.publish(key_of(2));
  const block_key key = reduce_key(key_of(2).view(), 0);
  all.hear(frame_type::forget, peer::encode(peer::forget_request{all.identity, 0, {key}}));
  const auto fetch = [&](std::uint64_t token) {
    all.network->sent.clear();
    all.hear(frame_type::fetch, peer::encode(peer::block_request{handle, 0, {{token, key_of(2)}}}));
    return !all.network->sent.empty();  // else it waits for the slab's place
  };
  BOOST_TEST(fetch(2));
  BOOST_TEST((peer::decode_block_answers(all.last(frame_type::fetched))->front().second == block_answer::missing));
  all.time += std::chrono::minutes(1);  // the tier takes its time
  BOOST_TEST(fetch(4));
  all.answer_run({guest_world::done_with(1)});
  BOOST_TEST(fetch(6));
  all.time += cluster::guest_options{}.removal_lag;
  BOOST_TEST(!fetch(8));
}

BOOST_AUTO_TEST_CASE(a_removal_takes_back_what_is_on_its_way_here) {
  guest_world all;
  const std::uint32_t handle = all.bind();
  BOOST_TEST(!all.offer(handle, 1, 0));
  BOOST_TEST(!all.offer(handle, 3, 0));
  completion reserved;
  reserved.kind = completion_kind::reserved;
  reserved.block = memory::block_ref(1, 0).bits;
  all.answer_run({reserved});
  const std::vector keys{reduce_key(key_of(1).view(), 0), reduce_key(key_of(3).view(), 0)};
  all.hear(frame_type::forget, peer::encode(peer::forget_request{all.identity, 0, keys}));
  const auto lost = [&](std::uint64_t token) {
    return std::ranges::any_of(all.network->sent, [&](const auto& frame) {
      return frame.type == frame_type::stored &&
             peer::decode_block_answers(frame.body)->front() == std::pair(token, block_answer::lost);
    });
  };
  BOOST_TEST(lost(1));  // which waits for its slab's place
  BOOST_TEST(lost(3));  // which is being reserved
  all.answer_run({reserved});
  BOOST_TEST((peer::decode_block_answers(all.last(frame_type::accept))->front().second == block_answer::full));
  std::size_t given_back = 0;
  for (const auto& order : all.room.runs) {
    for (const submission& each : order.entries) given_back += each.op == operation::release ? 1U : 0U;
  }
  BOOST_TEST(given_back == 2U);
}

BOOST_AUTO_TEST_CASE(a_block_is_turned_down_while_its_key_is_removed) {
  guest_world all;
  const auto handle = all.bind();
  const auto key = reduce_key(key_of(1).view(), 0);
  all.pool.removals.begin(all.identity, std::span(&key, 1), all.time);
  BOOST_TEST((all.offer(handle, 1, 0) == block_answer::full));
  BOOST_TEST(!all.offer(handle, 2, 0));  // it is reserved
}

BOOST_AUTO_TEST_CASE(what_others_stored_here_meanwhile_goes_with_this_node_s_own_removal_of_the_key) {
  guest_world all;
  const auto handle = all.bind();
  const auto key = reduce_key(key_of(1).view(), 0);
  std::vector<std::string> ends;
  const auto remove_hosted = [&] {
    all.pool.remove_hosted(all.identity, {key}, [&](std::string why) { ends.push_back(std::move(why)); });
  };
  remove_hosted();
  BOOST_TEST(ends.size() == 1U);  // there is nothing to remove
  BOOST_TEST(all.room.runs.empty());
  BOOST_TEST(!all.offer(handle, 1, 0));
  remove_hosted();
  BOOST_TEST(ends.size() == 1U);
  BOOST_REQUIRE_EQUAL(all.room.runs.size(), 2U);
  BOOST_TEST((all.room.runs.back().entries.front().op == operation::remove));
  all.answer_run({});
  all.answer_run({guest_world::done_with(1)});
  BOOST_TEST((ends == std::vector<std::string>{"", ""}));
}

BOOST_AUTO_TEST_CASE(an_instance_that_nobody_has_bound_here_is_opened_for_a_removal_and_closed_again) {
  guest_world all;
  const std::vector keys{reduce_key(key_of(1).view(), 0)};
  all.hear(frame_type::forget, peer::encode(peer::forget_request{all.identity, 0, keys}));
  BOOST_TEST(!peer::decode_forget_answer(all.last(frame_type::forgot))->why.empty());  // no spec: nothing can be opened
  all.hear(frame_type::forget, peer::encode(peer::forget_request{all.identity, 0, keys, encoded(all.spec)}));
  BOOST_REQUIRE_EQUAL(all.room.opens.size(), 1U);
  all.network->sent.clear();
  all.open_next();
  BOOST_REQUIRE_EQUAL(all.room.runs.size(), 1U);
  BOOST_TEST(all.room.closes == 0);
  all.answer_run({guest_world::done_with(1)});
  BOOST_TEST(peer::decode_forget_answer(all.last(frame_type::forgot))->removed == 1U);
  BOOST_TEST(all.room.closes == 1);
}

BOOST_AUTO_TEST_CASE(an_instance_that_cannot_be_opened_for_a_removal_is_said) {
  guest_world all;
  const std::vector keys{reduce_key(key_of(1).view(), 0)};
  all.hear(frame_type::forget, peer::encode(peer::forget_request{all.identity, 0, keys, encoded(all.spec)}));
  all.room.opens.front()(fail(error_code::spec_mismatch, "another spec"));
  BOOST_TEST(peer::decode_forget_answer(all.last(frame_type::forgot))->why == "another spec");
}

BOOST_AUTO_TEST_CASE(what_others_stored_here_before_they_heard_of_a_clear_goes_with_it) {
  guest_world all;
  BOOST_TEST(!all.offer(all.bind(), 1, 0));
  all.answer_run({});
  std::vector<std::string> ends;
  const std::uint64_t number = all.pool.next_clear(all.identity);
  all.clear_hosted(ends);
  BOOST_REQUIRE(all.clears());
  BOOST_TEST(all.pool.carried_out(all.identity) < number);
  BOOST_TEST(ends.empty());
  all.answer_run({guest_world::done_with(1)});
  BOOST_TEST(all.pool.carried_out(all.identity) == number);
  all.clear_hosted(ends);
  all.answer_run({});
  BOOST_REQUIRE_EQUAL(ends.size(), 2U);
  BOOST_TEST(ends[0].empty());
  BOOST_TEST(!ends[1].empty());  // the block tier did not say that it is gone
}

BOOST_AUTO_TEST_CASE(what_a_node_stored_here_that_left_just_before_this_one_heard_of_its_own_clear_goes_with_it) {
  guest_world all;
  all.store_and_leave();
  BOOST_REQUIRE(all.room.closes == 1);
  std::vector<std::string> ends;
  const auto clear = [&] {
    (void)all.pool.next_clear(all.identity);
    all.clear_hosted(ends);
    all.pool.flush();
  };
  clear();
  BOOST_REQUIRE_EQUAL(all.room.opens.size(), 1U);
  BOOST_TEST(all.pool.carried_out(all.identity) == 0U);
  all.open_next();
  BOOST_REQUIRE(all.clears());
  BOOST_TEST(ends.empty());
  all.answer_run({guest_world::done_with(1)});
  BOOST_TEST(all.pool.carried_out(all.identity) == all.pool.cleared(all.identity));
  BOOST_TEST(ends == std::vector<std::string>{""}, boost::test_tools::per_element());
  BOOST_TEST(all.room.closes == 2);
  clear();
  all.room.opens.front()(fail(error_code::no_space, "no room"));
  all.room.opens.pop_front();
  BOOST_REQUIRE_EQUAL(ends.size(), 2U);
  BOOST_TEST(ends[1] == "no room");
  all.time += cluster::guest::clear_lag;
  clear();
  BOOST_TEST(all.room.opens.empty());
  BOOST_TEST(ends.size() == 3U);
}

BOOST_AUTO_TEST_CASE(a_clear_of_what_nobody_stored_here_lately_is_not_carried_out_twice) {
  guest_world all;
  std::vector<std::string> ends;
  const auto clear = [&] {
    (void)all.pool.next_clear(all.identity);
    all.clear_hosted(ends);
    BOOST_TEST(all.pool.carried_out(all.identity) == all.pool.cleared(all.identity));
  };
  const std::uint32_t handle = all.bind();
  clear();
  BOOST_TEST(!all.offer(handle, 1, all.pool.cleared(all.identity)));
  all.answer_run({});
  all.time += cluster::guest::clear_lag;
  clear();
  BOOST_TEST(all.room.runs.empty());
  BOOST_TEST(ends == (std::vector<std::string>{"", ""}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_clear_while_another_node_binds_the_instance_is_over_when_it_is_open_and_cleared) {
  guest_world all;
  all.store_and_leave();
  all.network->sent.clear();
  all.hear(frame_type::bind, peer::encode(peer::bind_request{all.identity, 0, encoded(all.spec)}));
  std::vector<std::string> ends;
  (void)all.pool.next_clear(all.identity);
  all.clear_hosted(ends);
  BOOST_TEST(ends.empty());
  all.open_next();
  BOOST_REQUIRE(all.clears());
  BOOST_TEST(all.network->sent.empty());
  all.answer_run({guest_world::done_with(0)});
  BOOST_TEST(ends.size() == 1U);
  BOOST_TEST(peer::decode_bind_answer(all.last(frame_type::bound))->cleared == all.pool.cleared(all.identity));
}

BOOST_AUTO_TEST_CASE(a_clear_that_is_not_remembered_is_told_as_one_of_each_instance_of_its_remainder_that_is_not) {
  guest_world all;
  const auto other = [&](std::uint64_t number) { return shifted(all.identity, cluster::pool::most_cleared * number); };
  all.pool.note_cleared(all.identity, 100);
  for (std::uint64_t i = 1; i <= cluster::pool::most_cleared; ++i) all.pool.note_cleared(other(i), 100 + i);
  BOOST_TEST(all.pool.cleared(all.identity) == 0U);
  BOOST_TEST(all.pool.told_cleared(other(1)) == 101U);
  BOOST_TEST(all.pool.told_cleared(other(cluster::pool::most_cleared + 1)) == 100U);
  BOOST_TEST(all.pool.told_cleared(shifted(all.identity, 1)) == 0U);  // one of the others
  all.ask_to_bind(0);
  BOOST_TEST(peer::decode_bind_answer(all.last(frame_type::bound))->cleared == 100U);
  BOOST_TEST((all.offer(1, 1, 0) == block_answer::outdated));
  BOOST_TEST(!all.offer(1, 3, 100));
  BOOST_TEST(all.pool.next_clear(all.identity) > 100U);
}

BOOST_AUTO_TEST_CASE(what_is_told_of_an_instance_does_not_fall_when_it_is_remembered_again) {
  guest_world all;
  for (std::uint64_t i = 0; i <= cluster::pool::most_cleared; ++i)
    all.pool.note_cleared(shifted(all.identity, cluster::pool::most_cleared * i), 100 + i);
  BOOST_REQUIRE_EQUAL(all.pool.told_cleared(all.identity), 100U);
  all.pool.note_cleared(all.identity, 50);  // the next one is forgotten for it
  BOOST_TEST(all.pool.told_cleared(all.identity) == 101U);
}

BOOST_AUTO_TEST_CASE(
    two_instances_of_which_one_is_forgotten_for_the_other_are_cleared_once_for_each_that_is_forgotten) {
  guest_world all;
  struct used {
    instance_spec spec;
    std::uint64_t known = 0;  // the asker's
    std::uint32_t handle = 0;
    int clears = 0;
  };
  std::array<used, 2> both{used{.spec = all.spec}, used{.spec = all.spec}};
  both[1].spec.id = "other";
  std::uint64_t number = 0;
  const auto clear_others = [&](std::size_t how_many) {  // of the remainders of both, by turns
    for (std::size_t i = 0; i < how_many; ++i, ++number)
      all.pool.note_cleared(shifted(identity_of(both[number % 2].spec), (number + 1) * cluster::pool::most_cleared),
                            100 + number);
  };
  const auto bind = [&](used& one) {
    all.hear(frame_type::bind, peer::encode(peer::bind_request{identity_of(one.spec), one.known, encoded(one.spec)}));
    if (!all.room.opens.empty()) all.open_next();
    for (; !all.room.runs.empty(); all.answer_run({guest_world::done_with(0)})) one.clears += all.clears() ? 1 : 0;
    const auto answer = peer::decode_bind_answer(all.last(frame_type::bound));
    one.handle = answer->handle;
    one.known = std::max(one.known, answer->cleared);
  };
  clear_others(cluster::pool::most_cleared + 2);
  for (used& one : both) bind(one);
  clear_others(2);
  std::uint64_t token = 1;
  for (int round = 0; round < 10; ++round) {
    for (used& one : both) {
      const auto how = all.offer(one.handle, token += 2, one.known);
      all.room.runs.clear();
      if (how == block_answer::outdated) bind(one);
      BOOST_TEST((round == 0 || how != block_answer::outdated));
    }
  }
  for (const used& one : both) BOOST_TEST(one.clears <= 1);
}

BOOST_AUTO_TEST_CASE(a_fetch_that_waits_for_what_is_not_taken_is_answered_at_its_time) {
  guest_world all;
  const std::uint32_t handle = all.bind();
  all.publish(key_of(2));
  peer::block_request asked{.handle = handle, .group = 0, .blocks = {}};
  for (std::uint64_t token = 2; token <= 10; token += 2) asked.blocks.emplace_back(token, key_of(2));
  all.hear(frame_type::fetch, peer::encode(asked));  // the window holds four, which nobody takes
  asked.blocks = {{12, key_of(2)}};
  all.hear(frame_type::fetch, peer::encode(asked));
  all.network->sent.clear();
  all.time += cluster::guest::fetch_limit - std::chrono::milliseconds(1);
  all.pool.advance();
  BOOST_TEST(all.network->sent.empty());
  all.time += std::chrono::milliseconds(1);
  all.pool.advance();
  const peer::block_answers missing{{10, block_answer::missing}, {12, block_answer::missing}};
  BOOST_TEST((peer::decode_block_answers(all.last(frame_type::fetched)).value() == missing));
}

BOOST_AUTO_TEST_CASE(a_group_that_is_kept_here_from_now_on_is_served_no_more_until_it_may_leave_again) {
  guest_world all;
  const std::uint32_t handle = all.bind();
  const auto takes = [&](std::uint64_t token) {
    all.hear(frame_type::offer, peer::encode(peer::block_request{handle, 0, {{token, key_of(token)}}}));
    return !std::exchange(all.room.runs, {}).empty();
  };
  BOOST_TEST(takes(1));
  all.pool.kept_here.store(
      std::make_shared<const cluster::group_names>(cluster::group_names{std::string(all.spec.paying_group())}));
  BOOST_TEST(!takes(3));
  all.pool.kept_here.store(std::make_shared<const cluster::group_names>());
  BOOST_TEST(takes(5));
}

BOOST_AUTO_TEST_CASE(a_node_that_was_written_off_clears_all_of_its_blocks_once_and_confirms_it_to_each_that_asks) {
  guest_world all;
  const auto order = peer::encode(peer::write_off_notice{{{"a", 5}, {"z", 6}}, {}});
  all.hear(frame_type::write_off, order);
  all.hear(frame_type::write_off, order);
  BOOST_REQUIRE_EQUAL(all.room.node_clears.size(), 1U);
  all.room.node_clears[0](fail(error_code::removal_pending, "a path is away"));
  BOOST_TEST(!peer::decode_forget_answer(all.last(frame_type::forgot))->why.empty());
  BOOST_TEST(all.network->sent.size() == 2U);

  all.hear(frame_type::write_off, order);
  BOOST_REQUIRE_EQUAL(all.room.node_clears.size(), 2U);
  all.room.node_clears[1](7);
  BOOST_TEST(peer::decode_forget_answer(all.last(frame_type::forgot))->removed == 7U);
  all.hear(frame_type::write_off, order);
  BOOST_TEST(all.room.node_clears.size() == 2U);
  BOOST_TEST(peer::decode_forget_answer(all.last(frame_type::forgot))->why.empty());
  BOOST_TEST(all.network->sent.size() == 4U);
  BOOST_TEST(all.pool.departures.has("z"));
  BOOST_TEST(!all.pool.departures.has("a"));
}

BOOST_AUTO_TEST_CASE(ends_of_write_offs_are_believed_ahead_of_their_numbers_but_not_that_of_this_node) {
  guest_world all;
  all.hear(frame_type::write_off, peer::encode(peer::write_off_notice{{{"a", 5}, {"z", 6}}, {5, 6, 7}}));
  BOOST_TEST(!all.pool.departures.has("z"));
  BOOST_TEST(all.pool.departures.is_closed(6));
  BOOST_TEST(all.pool.departures.is_closed(7));  // also one that was not known here
  BOOST_TEST(all.room.node_clears.size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_node_that_was_written_off_stores_nothing_here_before_it_has_cleared_its_blocks) {
  guest_world all;
  const std::uint32_t handle = all.bind();
  all.pool.learn_write_off("b", 5);
  BOOST_TEST((all.offer(handle, 1, 0) == block_answer::full));
  all.pool.departures.close("b", 5);
  BOOST_TEST(!all.offer(handle, 3, 0));
}

BOOST_AUTO_TEST_CASE(an_instance_that_is_given_back_is_closed) {
  guest_world all;
  const std::uint32_t handle = all.bind();
  all.hear(frame_type::unbind, peer::encode(peer::unbind_request{handle + 1}));
  BOOST_TEST(all.room.closes == 0);
  all.hear(frame_type::unbind, peer::encode(peer::unbind_request{handle}));
  BOOST_TEST(all.room.closes == 1);
  BOOST_TEST(all.bind() != handle);
}

BOOST_AUTO_TEST_CASE(the_kept_sum_of_a_block_with_padding_is_not_that_of_what_is_sent) {
  guest_world all(block_bytes - 96);
  const std::uint32_t handle = all.bind();
  std::vector<std::byte> memory(block_bytes, std::byte{3});
  std::vector<memory::block_record> records(1);
  records[0].checksum_or_writers.store(checksum_of(memory.data(), block_bytes - 96));
  records[0].flags = memory::block_record::flag_checksum;
  all.publish(key_of(2));
  all.hear(frame_type::fetch, peer::encode(peer::block_request{handle, 0, {{2, key_of(2)}}}));
  all.answer_find(
      {{.index = 1, .count = 1, .stride = block_bytes, .memory = memory.data(), .records = records.data()}});
  BOOST_REQUIRE_EQUAL(all.network->blocks.size(), 1U);
  BOOST_TEST(all.network->blocks[0].second.size() == block_bytes);
  BOOST_TEST(all.network->blocks[0].first.checksum == bind_checksum(checksum_of(memory), all.identity, 0, key_of(2)));
  all.pool.sent(7, 2, true);
}

BOOST_AUTO_TEST_CASE(the_sum_of_what_came_is_not_kept_for_a_block_with_padding) {
  for (const std::uint64_t padding : {0, 96}) {
    guest_world all(block_bytes - padding);
    const std::uint32_t handle = all.bind();
    std::vector<std::byte> memory(block_bytes);
    const std::vector<std::byte> sent(block_bytes, std::byte{3});
    all.hear(frame_type::offer, peer::encode(peer::block_request{handle, 0, {{1, key_of(1)}}}));
    completion reserved;
    reserved.kind = completion_kind::reserved;
    reserved.block = memory::block_ref(1, 0).bits;
    all.answer_run({reserved});
    all.answer_find({{.index = 1, .count = 1, .stride = block_bytes, .memory = memory.data(), .records = nullptr}});
    peer::piece_header head;
    head.token = 1;
    head.what = static_cast<std::uint16_t>(cluster::piece_kind::offered);
    head.total = block_bytes;
    head.checksum = bind_checksum(checksum_of(sent), all.identity, 0, key_of(1));
    const peer::landing to = all.pool.expects(7, head, block_bytes);
    BOOST_REQUIRE_EQUAL(to.place.size(), block_bytes);
    std::ranges::copy(sent, to.place.begin());
    all.pool.landed(7, head, to.place);
    all.pool.flush();
    BOOST_REQUIRE_EQUAL(all.room.runs.size(), 1U);
    const submission& finish = all.room.runs[0].entries[0];
    BOOST_TEST((finish.op == operation::finish));
    BOOST_TEST(((finish.flags & submission::flag_checksum) != 0) == (padding == 0));
  }
}

BOOST_AUTO_TEST_CASE(a_piece_of_nothing_does_not_fill_a_block) {
  guest_world all;
  const std::uint32_t handle = all.bind();
  all.hear(frame_type::offer, peer::encode(peer::block_request{handle, 0, {{1, key_of(1)}}}));
  completion reserved;
  reserved.kind = completion_kind::reserved;
  reserved.block = memory::block_ref(1, 0).bits;
  all.answer_run({reserved});
  BOOST_REQUIRE_EQUAL(all.room.finds.size(), 1U);  // nobody knows yet where it lies
  peer::piece_header head;
  head.token = 1;
  head.what = static_cast<std::uint16_t>(cluster::piece_kind::offered);
  head.total = block_bytes;
  head.checksum = bind_checksum(checksum_of(std::span<const std::byte>()), all.identity, 0, key_of(1));
  BOOST_TEST(all.pool.expects(7, head, 0).place.empty());
  all.pool.landed(7, head, {});
  all.pool.flush();
  BOOST_TEST(all.room.runs.empty());
}

BOOST_AUTO_TEST_SUITE_END()
