// The way between a device's tier and DRAM, over a real store and the simulated device. The test carries out step by
// step what the guest asks of the store, and hands the device's events on when it likes.
#include "tiers/gpu/dram_guest.hpp"

#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>

#include "memory/instance_memory.hpp"
#include "memory/lower_hints.hpp"
#include "tests/support/wrapped_device.hpp"
#include "tests/unit/tiers/blocks/node_fixture.hpp"

namespace {

using namespace cenote;
using namespace cenote::blocks::testing;
using memory::completion;
using memory::completion_kind;
using memory::operation;
using memory::submission;
using steady_time = gpu::dram_guest::steady_time;

constexpr std::uint64_t part_bytes = 3000;  // not a whole number of pages, so that blocks are padded
constexpr std::uint64_t part_stride = 4096;
constexpr std::size_t places = 16;  // of blocks on the device
constexpr auto limit = std::chrono::seconds(60);

/// The block tier as the guest sees it: one order a step.
struct stepped_room final : cluster::guest_room {
  explicit stepped_room(node& of) : at(of) {}

  void open(const instance_spec& spec, then<result<cluster::guest_session_ptr>> done) override {
    add("open", [this, spec, done = std::move(done)] {
      ++opens;
      if (is_closed) return done(fail(error_code::limit_exceeded, "no more instances"));
      done(session_of(spec));
    });
  }
  void close(std::uint64_t session) override {
    add("close", [this, session] {
      ++closes;
      at.bury(session);
    });
  }
  void disconnect(std::uint64_t session) override {
    add("disconnect", [this, session] { at.tier->disconnect_session(session, at.now); });
  }
  void run(std::uint64_t session, std::vector<submission> entries, bool late,
           then<std::vector<completion>> done) override {
    const std::string name = name_of(entries.front().op);
    add(name, [this, session, entries = std::move(entries), late, done = std::move(done)]() mutable {
      if (late && on_late) {
        std::vector<completion> how(1);
        how.front().kind = completion_kind::done;
        how.front().value = on_late(entries);
        return done(how);
      }
      blocks::batch work;
      work.session = session;
      work.entries = std::move(entries);
      done(at.run(std::move(work)));
    });
  }
  void find_slabs(std::uint32_t instance, std::vector<std::uint32_t> which,
                  then<std::vector<memory::slab_place>> done) override {
    add("find", [this, instance, which = std::move(which), done = std::move(done)] {
      std::vector<memory::slab_place> found;
      for (const std::uint32_t each : which) {
        if (const auto place = at.tier->slab_place_of(instance, each)) found.push_back(*place);
      }
      done(found);
    });
  }

  void clear_node(then<result<std::uint64_t>> done) override {
    add("clear_node", [done = std::move(done)] { done(0); });
  }

  static std::string name_of(operation what) {
    switch (what) {
      case operation::reserve: return "reserve";
      case operation::finish: return "finish";
      case operation::release: return "release";
      case operation::remove: return "remove";
      case operation::clear: return "clear";
      case operation::touch: return "touch";
      case operation::prefetch: return "prefetch";
      case operation::locate: return "locate";
      default: return "other";
    }
  }
  void add(std::string name, std::function<void()> what) { orders.emplace_back(std::move(name), std::move(what)); }
  /// Carries one order out. False: there is none.
  bool step() {
    if (orders.empty()) return false;
    auto [name, what] = std::move(orders.front());
    orders.pop_front();
    carried.push_back(std::move(name));
    what();
    return true;
  }
  [[nodiscard]] bool awaits(const std::string& name) const {
    return std::ranges::any_of(orders, [&](const auto& each) { return each.first == name; });
  }

  cluster::guest_session_ptr session_of(const instance_spec& spec) {
    const auto known = at.tier->find_instance(spec).value();
    const blocks::instance_number number = known ? *known : at.add(spec);
    auto fds = *at.tier->descriptors(number);
    const std::uint64_t session = at.attach(number, 64);
    auto made = std::make_shared<cluster::guest_session>(
        *memory::open_index(std::move(fds.first)), *memory::open_versions(std::move(fds.second)), at.session(session));
    made->number = session;
    made->instance = number;
    return made;
  }

  node& at;
  std::deque<std::pair<std::string, std::function<void()>>> orders;
  std::vector<std::string> carried;  ///< names of those that were carried out
  /// Plays what is below DRAM: returns how many blocks it has brought up, or has.
  std::function<std::uint64_t(const std::vector<submission>&)> on_late;
  bool is_closed = false;
  int opens = 0, closes = 0;
};

/// Ends of the device's work, from its threads to the test's.
class event_queue {
 public:
  void push(std::function<void()> what) {
    const std::lock_guard lock(mutex_);
    all_.push_back(std::move(what));
    changed_.notify_all();
  }
  bool run_one(std::chrono::nanoseconds patience) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, patience, [&] { return !all_.empty(); })) return false;
    const auto what = std::move(all_.front());
    all_.pop_front();
    lock.unlock();
    what();
    return true;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> all_;
};

blocks::store_options dram_options(std::uint64_t capacity = 8 << 20) {
  blocks::store_options options = options_of(capacity, 1 << 20);
  options.high_water = 1.0;
  options.low_water = 1.0;
  options.has_listeners = true;
  return options;
}

struct world {
  explicit world(std::size_t ranks = 1, blocks::store_options options = dram_options(), bool asks_tiers = false,
                 std::uint64_t window = 1 << 20)
      : at(std::move(options)), room(at), whole(spec_of("model", part_bytes * ranks, ranks)) {
    guest = std::make_unique<gpu::dram_guest>(
        room, *sim,
        gpu::guest_hooks{.ended =
                             [this](const std::vector<transfer_outcome>& all) {
                               for (const transfer_outcome& each : all) {
                                 BOOST_TEST(!ended.contains(each.token), "token " << each.token << " ended twice");
                                 ended[each.token] = each.what;
                               }
                             },
                         .copy =
                             [this](gpu::copy_way way, std::span<const copy_run> runs,
                                    std::span<const std::span<std::byte>> slabs, gpu::copies::then then) {
                               copier->begin(way, runs, slabs,
                                             [this, then = std::move(then)](const gpu::copy_end& how) {
                                               events.push([this, then, how] {
                                                 sim->is_away |= goes_with_copy;
                                                 then(how);
                                               });
                                             });
                               ++copies;
                             },
                         .lost = [this](const std::string& why) { lost.push_back(why); },
                         .now = [this] { return now; }},
        gpu::guest_options{.device = "sim:0", .window = window, .asks_tiers = asks_tiers});
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const auto share = std::make_shared<const instance_share>(instance_share{whole, rank});
      guest->bind(number_of(rank), instance_on_device(*share, "sim:0").value(), share);
    }
  }
  ~world() {
    guest.reset();
    copier.reset();
    sim.reset();
    BOOST_TEST(at.broken_identity() == "");
  }

  static std::uint32_t number_of(std::uint32_t rank) { return 7 + rank; }

  /// Carries out all orders and copies, until nothing is left to do.
  void settle() {
    for (bool any = true; any;) {
      any = false;
      while (room.step()) any = true;
      if (copies > copies_ended) {
        BOOST_REQUIRE(events.run_one(limit));
        ++copies_ended;
        any = true;
      }
    }
  }
  /// … until an order of that name is the next one.
  void settle_until(const std::string& name) {
    while (room.orders.empty() || room.orders.front().first != name) {
      if (room.step()) continue;
      BOOST_REQUIRE_MESSAGE(copies > copies_ended, "nothing is left to do before " + name);
      BOOST_REQUIRE(events.run_one(limit));
      ++copies_ended;
    }
  }
  /// … until the device copies.
  void settle_until_copying() {
    const int before = copies;
    while (copies == before) BOOST_REQUIRE(room.step());
  }

  std::byte* place(std::size_t i) { return memory.mapping.get() + i * part_stride; }
  /// The device has that rank's part of a block at place `i`.
  void fill_place(std::size_t i, std::uint64_t key, std::uint32_t rank = 0) {
    std::vector<std::byte> all(whole.groups[0].block_bytes());
    fill(all.data(), all.size(), key_of(key));
    std::memcpy(place(i), all.data() + rank * part_bytes, part_bytes);
  }
  bool place_holds(std::size_t i, std::uint64_t key, std::uint32_t rank = 0) {
    std::vector<std::byte> all(whole.groups[0].block_bytes());
    fill(all.data(), all.size(), key_of(key));
    return std::memcmp(place(i), all.data() + rank * part_bytes, part_bytes) == 0;
  }
  transfer transfer_of(std::uint64_t token, std::size_t i, std::uint64_t key, std::uint32_t rank = 0) {
    transfer one;
    one.instance = number_of(rank);
    one.token = token;
    one.full = key_of(key);
    one.key = reduce_key(one.full.view(), 0);
    one.memory = {place(i), part_stride};
    return one;
  }
  void write(std::uint64_t token, std::size_t i, std::uint64_t key, std::uint32_t rank = 0) {
    fill_place(i, key, rank);
    const transfer one = transfer_of(token, i, key, rank);
    guest->write(std::span(&one, 1));
  }
  void fetch(std::uint64_t token, std::size_t i, std::uint64_t key, std::uint32_t rank = 0) {
    const transfer one = transfer_of(token, i, key, rank);
    guest->fetch(std::span(&one, 1));
  }
  /// With the first one the device goes.
  void fail_copies() { sim->fails_copies = goes_with_copy = true; }
  [[nodiscard]] bool has_ended(std::uint64_t token) const { return ended.contains(token); }
  [[nodiscard]] bool is(std::uint64_t token, transfer_result what) const {
    return has_ended(token) && ended.at(token) == what;
  }
  /// The removal of a key, as the device's tier (`instance` of it) or DRAM says it.
  static std::vector<blocks::removal> removal_of(std::uint32_t instance, std::uint64_t key) {
    blocks::removal one;
    one.instance = instance;
    one.keys = {reduce_key(key_of(key).view(), 0)};
    return {one};
  }
  static std::vector<blocks::removal> removal_of_all(std::uint32_t instance, std::string id = {}) {
    blocks::removal one;
    one.instance = instance;
    one.all = true;
    one.id = std::move(id);
    return {one};
  }
  void forget(const std::vector<blocks::removal>& what) {
    guest->forget(what, [this](result<std::uint64_t> how) { forgot.push_back(std::move(how)); });
  }
  std::vector<blocks::removal> stop_writing(const std::vector<blocks::removal>& what) {
    return guest->stop_writing(what, [this](result<std::uint64_t> how) { stopped.push_back(std::move(how)); });
  }
  /// An engine beside it, whose blocks are in DRAM alone.
  client& host() {
    if (!host_) {
      const auto known = at.tier->find_instance(whole).value();
      host_ = std::make_unique<client>(at, known ? *known : at.add(whole));
    }
    return *host_;
  }
  look read(std::uint64_t key) { return host().read(key_of(key)); }
  [[nodiscard]] std::uint64_t pins() const {
    std::uint64_t all = 0;
    for (const auto& each : at.status().sessions) all += each.pins;
    return all;
  }

  std::shared_ptr<cenote::testing::wrapped_device> sim = std::make_shared<cenote::testing::wrapped_device>();
  std::unique_ptr<gpu::copies> copier = std::make_unique<gpu::copies>(sim);
  device_memory memory = std::move(*sim->make(places * part_stride));
  node at;
  stepped_room room;
  event_queue events;
  instance_spec whole;
  steady_time now = steady_time(std::chrono::hours(1));
  std::map<std::uint64_t, transfer_result> ended;
  std::vector<std::string> lost;
  std::vector<result<std::uint64_t>> forgot, stopped;
  int copies = 0, copies_ended = 0;
  bool goes_with_copy = false;
  std::unique_ptr<gpu::dram_guest> guest;

 private:
  std::unique_ptr<client> host_;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(dram_guest)

// ---- there and back

BOOST_AUTO_TEST_CASE(a_block_that_was_written_to_dram_is_read_there_and_comes_back) {
  world all;
  all.write(1, 0, 100);
  BOOST_TEST(!all.has_ended(1));
  all.settle();
  BOOST_TEST(all.is(1, transfer_result::done));
  BOOST_TEST((all.read(100) == look::right));
  all.fetch(2, 1, 100);
  all.settle();
  BOOST_TEST(all.is(2, transfer_result::done));
  BOOST_TEST(all.place_holds(1, 100));
  BOOST_TEST(all.pins() == 0U);
  const auto counted = all.guest->counters();
  BOOST_TEST(counted.written == 1U);
  BOOST_TEST(counted.written_bytes == part_bytes);
  BOOST_TEST(counted.read == 1U);
  BOOST_TEST(counted.read_bytes == part_bytes);
  BOOST_TEST(counted.under_way == 0U);
}

BOOST_AUTO_TEST_CASE(a_block_of_a_device_goes_on_to_other_tiers_with_the_time_at_which_it_came_to_the_device) {
  blocks::store_options options = dram_options();
  options.edges.resize(1);
  options.edges[0].ingest = ingest::all;
  options.edges[0].write_window = 1 << 20;
  for (const tenths age : {tenths(0), tenths(70)}) {
    world all(1, options);
    all.fill_place(0, 100);
    transfer one = all.transfer_of(1, 0, 100);
    one.arrival = all.at.now - age;
    all.guest->write(std::span(&one, 1));
    all.settle();
    const auto down = all.at.tier->take_demotions(0);
    BOOST_REQUIRE(down.size() == 1U);
    BOOST_TEST((down[0].occasion == (age == tenths(0) ? write_occasion::arrival : write_occasion::later)));
    BOOST_TEST((down[0].arrival == one.arrival));
    all.at.tier->transferred(std::vector{transfer_outcome{.token = down[0].token}}, all.at.now);
  }
}

BOOST_AUTO_TEST_CASE(blocks_that_are_given_together_are_one_copy_each_way) {
  world all;
  std::vector<transfer> down, up;
  for (std::uint64_t n = 0; n < 4; ++n) {
    all.fill_place(n, 100 + n);
    down.push_back(all.transfer_of(1 + n, n, 100 + n));
    up.push_back(all.transfer_of(11 + n, 4 + n, 100 + n));
  }
  all.guest->write(down);
  all.settle();
  BOOST_TEST(all.copies == 1);
  all.guest->fetch(up);
  all.settle();
  BOOST_TEST(all.copies == 2);
  for (std::uint64_t n = 0; n < 4; ++n) {
    BOOST_TEST(all.is(1 + n, transfer_result::done));
    BOOST_TEST(all.is(11 + n, transfer_result::done));
    BOOST_TEST(all.place_holds(4 + n, 100 + n));
  }
}

BOOST_AUTO_TEST_CASE(a_block_is_in_dram_when_all_ranks_have_written_their_parts_and_not_before) {
  world all(2);
  all.write(1, 0, 100, 0);
  all.settle();
  BOOST_TEST(all.is(1, transfer_result::dropped));  // it is not safe there yet
  BOOST_TEST((all.read(100) == look::miss));
  all.write(2, 1, 100, 1);
  all.settle();
  BOOST_TEST(all.is(2, transfer_result::done));
  BOOST_TEST((all.read(100) == look::right));
  for (const std::uint32_t rank : {0U, 1U}) {
    all.fetch(10 + rank, 2 + rank, 100, rank);
    all.settle();
    BOOST_TEST(all.is(10 + rank, transfer_result::done));
    BOOST_TEST(all.place_holds(2 + rank, 100, rank));
  }
}

BOOST_AUTO_TEST_CASE(a_part_that_was_written_already_is_not_written_again_while_others_lack) {
  world all(2);
  all.write(1, 0, 100, 0);
  all.settle();
  all.write(2, 0, 100, 0);
  all.settle();
  BOOST_TEST(all.is(2, transfer_result::dropped));
  BOOST_TEST(all.copies == 1);
}

BOOST_AUTO_TEST_CASE(a_block_that_dram_has_is_not_copied) {
  world all;
  all.host().put(key_of(100));
  all.write(1, 0, 100);
  all.settle();
  BOOST_TEST(all.is(1, transfer_result::done));
  BOOST_TEST(all.copies == 0);
  BOOST_TEST(std::ranges::count(all.room.carried, "reserve") == 0);
  BOOST_TEST(all.guest->counters().present == 1U);
}

BOOST_AUTO_TEST_CASE(a_block_that_came_to_dram_while_it_was_reserved_is_not_copied) {
  world all;
  all.room.step();
  all.write(1, 0, 100);
  all.settle_until("reserve");
  all.host().put(key_of(100));
  all.settle();
  BOOST_TEST(all.is(1, transfer_result::done));
  BOOST_TEST(all.copies == 0);
}

BOOST_AUTO_TEST_CASE(a_block_that_somebody_else_stored_while_it_was_copied_is_there) {
  world all;
  all.write(1, 0, 100);
  all.settle_until("finish");
  all.host().put(key_of(100));
  all.settle();
  BOOST_TEST(all.is(1, transfer_result::done));
  BOOST_TEST((all.read(100) == look::right));
}

BOOST_AUTO_TEST_CASE(a_block_that_is_nowhere_is_missing) {
  world all;
  all.fetch(1, 0, 100);
  all.settle();
  BOOST_TEST(all.is(1, transfer_result::missing));
  BOOST_TEST(all.copies == 0);
}

BOOST_AUTO_TEST_CASE(a_read_by_a_device_is_one_to_the_policies_of_dram) {
  world all;
  all.host().put(key_of(100));
  all.fetch(1, 0, 100);
  all.settle();
  BOOST_TEST(std::ranges::count(all.room.carried, "touch") == 1);
}

BOOST_AUTO_TEST_CASE(a_block_that_is_being_copied_to_a_device_is_pinned) {
  world all;
  all.host().put(key_of(100));
  all.fetch(1, 0, 100);
  all.settle_until_copying();
  ++all.at.now;
  all.at.tier->tick(all.at.now);
  BOOST_TEST(all.pins() == 1U);
  BOOST_TEST(all.host().remove(key_of(100)).value == 1U);
  BOOST_TEST(all.at.status().zombie == 1U);
  all.settle();
  BOOST_TEST(all.is(1, transfer_result::done));
  all.at.tier->tick(all.at.now);
  BOOST_TEST(all.at.status().zombie == 0U);
}

// ---- space

BOOST_AUTO_TEST_CASE(without_space_in_dram_a_block_is_dropped) {
  world all;
  all.at.memory_is_short = true;
  all.write(1, 0, 100);
  all.settle();
  BOOST_TEST(all.is(1, transfer_result::dropped));
  BOOST_TEST(all.copies == 0);
  BOOST_TEST(all.at.status().pending == 0U);
  all.at.memory_is_short = false;
  all.at.now = all.at.now + tenths(100);
  all.at.tier->tick(all.at.now);
  all.write(2, 0, 100);
  all.settle();
  BOOST_TEST(all.is(2, transfer_result::done));
}

BOOST_AUTO_TEST_CASE(no_more_than_the_window_is_reserved_at_once_and_the_rest_follows) {
  world all(1, dram_options(), false, 2 * part_stride);
  std::vector<transfer> down;
  for (std::uint64_t n = 0; n < 5; ++n) {
    all.fill_place(n, 100 + n);
    down.push_back(all.transfer_of(1 + n, n, 100 + n));
  }
  all.guest->write(down);
  std::uint64_t most = 0;
  while (all.ended.size() < 5) {
    if (all.room.step()) {
      most = std::max(most, all.at.status().pending);
    } else {
      BOOST_REQUIRE(all.events.run_one(limit));
    }
  }
  BOOST_TEST(most == 2U);
  for (std::uint64_t n = 0; n < 5; ++n) BOOST_TEST((all.read(100 + n) == look::right));
}

BOOST_AUTO_TEST_CASE(a_block_that_is_larger_than_the_window_is_written_all_the_same) {
  world all(1, dram_options(), false, 1);
  all.write(1, 0, 100);
  all.write(2, 1, 101);
  all.settle();
  BOOST_TEST(all.is(1, transfer_result::done));
  BOOST_TEST(all.is(2, transfer_result::done));
}

// ---- removals

BOOST_AUTO_TEST_CASE(a_removal_ends_a_write_that_waits_for_the_instance) {
  world all;
  all.write(1, 0, 100);
  all.forget(world::removal_of(world::number_of(0), 100));
  BOOST_TEST(all.is(1, transfer_result::dropped));
  BOOST_TEST(all.forgot.empty());  // DRAM has not been asked
  all.settle();
  BOOST_REQUIRE(all.forgot.size() == 1U);
  BOOST_TEST(all.forgot[0].has_value());
  BOOST_TEST(all.copies == 0);
  BOOST_TEST((all.read(100) == look::miss));
}

namespace {

/// A removal by the device's tier, when a write's next order is `stage`: nothing of it is in DRAM, nothing is held.
void remove_before(const std::string& stage) {
  world all;
  all.write(1, 0, 100);
  all.write(2, 1, 101);
  all.settle_until(stage);
  all.forget(world::removal_of(world::number_of(0), 100));
  BOOST_TEST(all.forgot.empty());
  BOOST_TEST(all.room.awaits("remove") == (stage != "finish"));  // behind the finish, whatever the order of answers
  all.settle();
  BOOST_TEST(all.is(1, transfer_result::dropped));
  BOOST_TEST(all.is(2, transfer_result::done));
  BOOST_REQUIRE(all.forgot.size() == 1U);
  BOOST_TEST(all.forgot[0].has_value());
  BOOST_TEST((all.read(100) == look::miss));
  BOOST_TEST((all.read(101) == look::right));
  const auto status = all.at.status();
  BOOST_TEST(status.pending == 0U);
  BOOST_TEST(status.quarantined == 0U);
  BOOST_TEST(all.guest->counters().under_way == 0U);
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_removal_undoes_a_write_that_is_being_reserved) {
  remove_before("reserve");
}

BOOST_AUTO_TEST_CASE(a_removal_undoes_a_write_whose_place_is_not_known_yet) {
  remove_before("find");
}

BOOST_AUTO_TEST_CASE(a_removal_undoes_a_write_that_is_being_finished) {
  remove_before("finish");
}

BOOST_AUTO_TEST_CASE(a_removal_undoes_a_write_that_the_device_copies_and_its_memory_is_held_until_the_copy_ends) {
  world all;
  all.write(1, 0, 100);
  all.settle_until_copying();
  all.forget(world::removal_of(world::number_of(0), 100));
  while (all.room.step()) continue;
  BOOST_REQUIRE(all.forgot.size() == 1U);  // it waits for no copy
  BOOST_TEST(!all.has_ended(1));           // the device reads its memory
  BOOST_TEST(all.at.status().pending == 1U);
  all.settle();
  BOOST_TEST(all.is(1, transfer_result::dropped));
  BOOST_TEST(all.at.status().pending == 0U);
  BOOST_TEST(std::ranges::count(all.room.carried, "finish") == 0);
  BOOST_TEST((all.read(100) == look::miss));
}

BOOST_AUTO_TEST_CASE(a_removal_by_the_devices_tier_removes_what_dram_has) {
  world all;
  all.write(1, 0, 100);
  all.settle();
  all.forget(world::removal_of(world::number_of(0), 100));
  all.settle();
  BOOST_REQUIRE(all.forgot.size() == 1U);
  BOOST_TEST(all.forgot[0].value() == 1U);
  BOOST_TEST((all.read(100) == look::miss));
}

BOOST_AUTO_TEST_CASE(a_clear_by_the_devices_tier_clears_the_instance_in_dram) {
  for (const bool by_number : {true, false}) {
    world all;
    all.write(1, 0, 100);
    all.settle();
    all.host().put(key_of(101));
    all.forget(by_number ? world::removal_of_all(world::number_of(0)) : world::removal_of_all(0));
    all.settle();
    BOOST_REQUIRE(all.forgot.size() == 1U);
    BOOST_TEST(all.forgot[0].value() == 2U);
    BOOST_TEST((all.read(100) == look::miss));
  }
}

BOOST_AUTO_TEST_CASE(a_clear_by_name_means_the_name_in_dram_and_the_one_on_the_device) {
  for (const std::string name : {"model", "model@sim:0"}) {
    world all;
    all.write(1, 0, 100);
    all.settle();
    all.forget(world::removal_of_all(0, name));
    all.settle();
    BOOST_REQUIRE(all.forgot.size() == 1U);
    BOOST_TEST(all.forgot[0].value() == 1U);
  }
  world all;
  all.forget(world::removal_of_all(0, "other"));
  BOOST_REQUIRE(all.forgot.size() == 1U);
  BOOST_TEST((all.forgot[0].error().code() == error_code::invalid_argument));
}

BOOST_AUTO_TEST_CASE(a_removal_that_goes_on_elsewhere_ends_what_is_on_its_way_and_nothing_else) {
  world all;
  all.write(1, 0, 100);
  all.settle();
  all.write(2, 1, 101);
  all.settle_until("find");
  auto what = world::removal_of_all(world::number_of(0));
  what[0].on_its_way = true;
  all.forget(what);
  all.settle();
  BOOST_TEST(all.forgot.size() == 1U);
  BOOST_TEST((all.read(100) == look::right));
  BOOST_TEST((all.read(101) == look::miss));
}

BOOST_AUTO_TEST_CASE(a_removal_that_dram_does_not_answer_is_an_error_in_time) {
  world all;
  all.write(1, 0, 100);
  all.settle();
  all.forget(world::removal_of(world::number_of(0), 100));
  all.now += gpu::dram_guest::forget_limit;
  all.guest->advance(all.now);
  BOOST_REQUIRE(all.forgot.size() == 1U);
  BOOST_TEST((all.forgot[0].error().code() == error_code::removal_pending));
  all.settle();
  BOOST_TEST(all.forgot.size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_removal_of_an_instance_that_dram_refuses_is_an_error) {
  world all;
  all.room.is_closed = true;
  all.settle();
  all.forget(world::removal_of(world::number_of(0), 100));
  BOOST_REQUIRE(all.forgot.size() == 1U);
  BOOST_TEST((all.forgot[0].error().code() == error_code::removal_pending));
}

BOOST_AUTO_TEST_CASE(what_dram_removes_is_named_by_the_numbers_of_the_devices_tier_of_all_ranks) {
  world all(2);
  all.settle();
  const std::uint32_t in_dram = all.host().in;
  auto here = all.stop_writing(world::removal_of(in_dram, 100));
  BOOST_REQUIRE(here.size() == 2U);
  for (const std::uint32_t rank : {0U, 1U}) {
    BOOST_TEST(here[rank].instance == world::number_of(rank));
    BOOST_TEST((here[rank].keys == world::removal_of(0, 100)[0].keys));
    BOOST_TEST(!here[rank].all);
  }
  BOOST_TEST(all.stop_writing(world::removal_of(in_dram + 1, 100)).empty());
  BOOST_TEST(all.stop_writing(world::removal_of_all(0)).size() == 2U);
  BOOST_TEST(all.stop_writing(world::removal_of_all(0, "model")).size() == 2U);
  BOOST_TEST(all.stop_writing(world::removal_of_all(0, "other")).empty());
  BOOST_TEST(all.stopped.size() == 5U);
}

BOOST_AUTO_TEST_CASE(what_dram_removes_while_the_instance_is_being_opened_may_be_any) {
  world all;
  all.write(1, 0, 100);
  BOOST_TEST(all.stop_writing(world::removal_of(99, 100)).size() == 1U);
  BOOST_TEST(all.is(1, transfer_result::dropped));
}

BOOST_AUTO_TEST_CASE(what_dram_removes_is_not_written_to_it_whatever_was_under_way) {
  for (const std::string stage : {"reserve", "find", "finish"}) {
    world all;
    all.write(1, 0, 100);
    all.settle_until(stage);
    all.host().remove(key_of(100));
    (void)all.stop_writing(world::removal_of(all.host().in, 100));
    all.settle();
    BOOST_TEST(all.stopped.size() == 1U);
    BOOST_TEST(all.is(1, transfer_result::dropped), stage);
    BOOST_TEST((all.read(100) == look::miss), stage);
    BOOST_TEST(all.at.status().pending == 0U);
  }
}

BOOST_AUTO_TEST_CASE(a_removal_by_dram_is_answered_when_what_was_finished_behind_it_has_gone_again) {
  world all;
  all.write(1, 0, 100);
  all.settle_until("finish");
  all.host().remove(key_of(100));
  (void)all.stop_writing(world::removal_of(all.host().in, 100));
  BOOST_TEST(all.room.step());  // finish
  BOOST_TEST(all.stopped.empty());
  BOOST_TEST((all.read(100) == look::right));
  all.settle();
  BOOST_TEST(all.stopped.size() == 1U);
  BOOST_TEST((all.read(100) == look::miss));
}

BOOST_AUTO_TEST_CASE(what_dram_removes_is_not_written_to_it_by_an_instance_that_was_given_up) {
  world all;
  all.write(1, 0, 100);
  all.settle_until_copying();
  all.guest->unbind(world::number_of(0));
  BOOST_TEST(all.stop_writing(world::removal_of(all.host().in, 100)).empty());
  all.settle();
  BOOST_TEST(all.is(1, transfer_result::dropped));
  BOOST_TEST((all.read(100) == look::miss));
}

// ---- a device that fails

BOOST_AUTO_TEST_CASE(a_copy_to_dram_that_fails_leaves_no_block_there) {
  world all;
  all.fail_copies();
  all.write(1, 0, 100);
  all.settle();
  BOOST_TEST(all.is(1, transfer_result::failed));
  BOOST_TEST((all.read(100) == look::miss));
  BOOST_TEST(all.at.status().quarantined == 1U);  // its place is not used again
  BOOST_TEST(all.lost.size() == 1U);
  BOOST_TEST(std::ranges::count(all.room.carried, "finish") == 0);
  BOOST_TEST(std::ranges::count(all.room.carried, "release") == 0);
}

BOOST_AUTO_TEST_CASE(a_copy_from_dram_that_fails_is_no_read) {
  world all;
  all.host().put(key_of(100));
  all.fail_copies();
  all.fetch(1, 0, 100);
  all.settle();
  BOOST_TEST(!all.is(1, transfer_result::failed));  // the device may still write there: nobody is given the memory
  BOOST_TEST(!all.is(1, transfer_result::done));
  BOOST_TEST(all.lost.size() == 1U);
  BOOST_TEST(all.guest->counters().read == 0U);
}

BOOST_AUTO_TEST_CASE(a_copy_that_fails_without_the_device_leaves_its_place_free) {
  world all;
  all.sim->fails_copies = true;
  all.write(1, 0, 100);
  all.host().put(key_of(101));
  all.fetch(2, 1, 101);
  all.settle();
  BOOST_TEST(all.is(1, transfer_result::failed));
  BOOST_TEST(all.is(2, transfer_result::failed));
  BOOST_TEST((all.read(100) == look::miss));
  BOOST_TEST(all.lost.empty());
  BOOST_TEST(all.at.status().pending == 0U);
  ++all.at.now;
  all.at.tier->tick(all.at.now);
  BOOST_TEST(all.pins() == 0U);
}

BOOST_AUTO_TEST_CASE(a_copy_that_was_refused_may_have_begun_and_is_waited_for) {
  world all;
  all.sim->refuses_copies = true;
  all.write(1, 0, 100);
  all.settle_until_copying();
  while (all.room.step()) continue;
  BOOST_TEST(!all.has_ended(1));
  BOOST_TEST(all.at.status().pending == 1U);
  all.settle();
  BOOST_TEST(all.is(1, transfer_result::failed));
  BOOST_TEST(all.at.status().pending == 0U);
  BOOST_TEST(all.lost.empty());
}

BOOST_AUTO_TEST_CASE(a_copy_whose_end_cannot_be_asked_for_never_ends) {
  world all;
  all.host().put(key_of(101));
  all.sim->refuses_events = true;
  all.write(1, 0, 100);
  all.settle();
  BOOST_TEST(all.lost.size() == 1U);
  BOOST_TEST(!all.has_ended(1));
  BOOST_TEST(all.at.status().quarantined == 1U);
  all.now += std::chrono::hours(1);
  all.guest->advance(all.now);
  BOOST_TEST(!all.has_ended(1));
  all.fetch(2, 1, 101);
  BOOST_TEST(all.is(2, transfer_result::missing));
}

BOOST_AUTO_TEST_CASE(a_device_that_is_lost_is_given_nothing_and_still_forgets) {
  world all;
  all.host().put(key_of(100));
  all.fail_copies();
  all.write(1, 0, 101);
  all.settle();
  BOOST_TEST(all.guest->is_lost());
  const int before = all.copies;
  all.write(2, 1, 102);
  all.fetch(3, 2, 100);
  std::optional<key_answer> found;
  key_query asked;
  asked.instance = world::number_of(0);
  asked.keys = {key_of(100)};
  all.guest->locate(asked, [&](key_answer held) { found = std::move(held); });
  BOOST_TEST(all.is(2, transfer_result::dropped));
  BOOST_TEST(all.is(3, transfer_result::missing));
  BOOST_REQUIRE(found);
  BOOST_TEST((found->held == std::vector<bool>{false}));
  all.forget(world::removal_of(world::number_of(0), 100));
  all.settle();
  BOOST_REQUIRE(all.forgot.size() == 1U);
  BOOST_TEST(all.forgot[0].value() == 1U);
  BOOST_TEST(all.copies == before);
  BOOST_TEST(all.lost.size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_device_that_failed_by_itself_is_lost_with_the_next_look) {
  world all;
  all.settle();
  all.sim->is_away = true;
  all.guest->advance(all.now);
  BOOST_TEST(all.lost.size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_write_whose_end_is_never_heard_of_never_ends_and_its_place_is_not_used_again) {
  world all;
  all.settle();
  all.sim->sim.lose_next_event();
  all.write(1, 0, 100);
  all.settle_until_copying();
  all.now += gpu::dram_guest::transfer_limit;
  all.guest->advance(all.now);
  BOOST_TEST(all.lost.size() == 1U);
  all.guest->unbind(world::number_of(0));
  all.now += std::chrono::hours(1);
  all.guest->advance(all.now);
  while (all.room.step()) continue;
  BOOST_TEST(!all.has_ended(1));
  BOOST_TEST(all.at.status().quarantined == 1U);
  BOOST_TEST(all.room.closes == 0);
  BOOST_TEST((all.read(100) == look::miss));
  all.host().put(key_of(100));  // in other memory
  BOOST_TEST((all.read(100) == look::right));
}

BOOST_AUTO_TEST_CASE(a_read_whose_end_is_never_heard_of_never_ends_and_stays_pinned) {
  world all;
  all.host().put(key_of(100));
  all.settle();
  all.sim->sim.lose_next_event();
  all.fetch(1, 0, 100);
  all.settle_until_copying();
  all.now += gpu::dram_guest::transfer_limit;
  all.guest->advance(all.now);
  BOOST_TEST(all.lost.size() == 1U);
  while (all.room.step()) continue;
  BOOST_TEST(!all.has_ended(1));
  ++all.at.now;
  all.at.tier->tick(all.at.now);
  BOOST_TEST(all.pins() == 1U);
}

BOOST_AUTO_TEST_CASE(a_write_that_has_ended_in_time_is_not_overdue) {
  world all;
  all.write(1, 0, 100);
  all.settle_until_copying();
  all.now += gpu::dram_guest::transfer_limit - std::chrono::milliseconds(1);
  all.guest->advance(all.now);
  all.settle();
  BOOST_TEST(all.lost.empty());
  BOOST_TEST(all.is(1, transfer_result::done));
}

// ---- a DRAM tier that does not answer

BOOST_AUTO_TEST_CASE(a_write_that_dram_does_not_answer_is_dropped_in_time_and_its_reservation_given_back) {
  for (const std::string stage : {"open", "reserve", "find", "finish"}) {
    world all;
    all.write(1, 0, 100);
    all.settle_until(stage);
    all.now += gpu::dram_guest::transfer_limit;
    all.guest->advance(all.now);
    BOOST_TEST(all.is(1, transfer_result::dropped), stage);
    all.settle();
    BOOST_TEST(all.at.status().pending == 0U, stage);
    if (stage != "finish") BOOST_TEST(all.copies == 0, stage);  // its memory is somebody else's by now
    BOOST_TEST(all.lost.empty());
  }
}

BOOST_AUTO_TEST_CASE(a_fetch_that_dram_does_not_answer_is_missing_in_time_and_not_pinned) {
  for (const std::string stage : {"open", "find", "prefetch"}) {
    world all(1, dram_options(), true);
    all.room.on_late = [](const auto&) { return 0; };
    if (stage != "prefetch") all.host().put(key_of(100));
    all.fetch(1, 0, 100);
    all.settle_until(stage);
    all.now += gpu::dram_guest::transfer_limit;
    all.guest->advance(all.now);
    BOOST_TEST(all.is(1, transfer_result::missing), stage);
    all.settle();
    BOOST_TEST(all.copies == 0);
    BOOST_TEST(all.pins() == 0U);
  }
}

// ---- below DRAM

BOOST_AUTO_TEST_CASE(what_a_tier_below_dram_has_comes_up_first) {
  auto options = dram_options();
  options.edges = {{.write_window = 1 << 20, .read_window = 1 << 20}};
  world all(1, options);
  all.settle();
  auto bindings = all.at.tier->take_bindings();
  BOOST_REQUIRE(bindings.size() == 1U);
  auto hints = std::move(*memory::hint_writer::open(std::move(bindings[0].index), 10'000));
  hints.add(reduce_key(key_of(100).view(), 0));
  all.guest->unbind(world::number_of(0));  // the session that was there before the hints
  const auto share = std::make_shared<const instance_share>(instance_share{all.whole, 0});
  all.guest->bind(world::number_of(0), instance_on_device(*share, "sim:0").value(), share);
  all.room.on_late = [&](const std::vector<submission>& entries) {
    BOOST_TEST(entries.size() == 1U);  // not the other one, which is nowhere
    return all.host().put(key_of(100)).value;
  };
  const std::vector<transfer> up{all.transfer_of(1, 0, 100), all.transfer_of(2, 1, 101)};
  all.guest->fetch(up);
  all.settle();
  BOOST_TEST(all.is(1, transfer_result::done));
  BOOST_TEST(all.place_holds(0, 100));
  BOOST_TEST(all.is(2, transfer_result::missing));
  BOOST_TEST(all.guest->counters().brought_up == 1U);
}

BOOST_AUTO_TEST_CASE(what_does_not_come_up_is_missing_and_not_sought_twice) {
  world all(1, dram_options(), true);
  int asked = 0;
  all.room.on_late = [&](const auto&) { return ++asked, 0; };
  all.fetch(1, 0, 100);
  all.settle();
  BOOST_TEST(all.is(1, transfer_result::missing));
  BOOST_TEST(asked == 1);
}

// ---- questions

BOOST_AUTO_TEST_CASE(what_dram_has_is_found_and_the_rest_where_tiers_below_have_to_be_asked) {
  for (const bool asks : {false, true}) {
    world all(1, dram_options(), asks);
    all.room.on_late = [&](const std::vector<submission>& entries) {
      BOOST_TEST((entries.front().op == operation::locate));
      BOOST_TEST(entries.size() == 3U);
      BOOST_TEST(entries.back().argument == 1'000'000'000U);
      return 2;
    };
    all.host().put(key_of(100));
    std::optional<key_answer> found;
    key_query asked;
    asked.instance = world::number_of(0);
    asked.keys = {key_of(100), key_of(101), key_of(102), key_of(103)};
    asked.patience = std::chrono::seconds(1);
    all.guest->locate(asked, [&](key_answer held) { found = std::move(held); });
    all.settle();
    BOOST_REQUIRE(found);
    BOOST_TEST((found->held == std::vector<bool>{true, asks, asks, false}));
  }
}

BOOST_AUTO_TEST_CASE(a_question_that_dram_does_not_answer_is_answered_in_time_by_what_is_known) {
  world all(1, dram_options(), true);
  all.host().put(key_of(100));
  std::optional<key_answer> found;
  key_query asked;
  asked.instance = world::number_of(0);
  asked.keys = {key_of(100), key_of(101)};
  asked.patience = std::chrono::seconds(1);
  all.guest->locate(asked, [&](key_answer held) { found = std::move(held); });
  all.settle_until("locate");
  all.now += asked.patience;
  all.guest->advance(all.now);
  BOOST_TEST(!found);
  all.now += gpu::dram_guest::grace;
  all.guest->advance(all.now);
  BOOST_REQUIRE(found);
  BOOST_TEST((found->held == std::vector<bool>{true, false}));
}

// ---- instances

BOOST_AUTO_TEST_CASE(nothing_is_written_or_found_of_an_instance_that_is_not_bound) {
  world all;
  all.settle();
  all.guest->unbind(world::number_of(0));
  all.write(1, 0, 100);
  all.fetch(2, 1, 100);
  BOOST_TEST(all.is(1, transfer_result::dropped));
  BOOST_TEST(all.is(2, transfer_result::missing));
  all.settle();
  BOOST_TEST(all.room.closes == 1);
}

BOOST_AUTO_TEST_CASE(an_instance_that_is_no_share_of_one_has_nothing_to_do_with_dram) {
  world all;
  all.settle();
  all.guest->bind(world::number_of(0), spec_of("alone"), nullptr);
  all.write(1, 0, 100);
  BOOST_TEST(all.is(1, transfer_result::dropped));
}

BOOST_AUTO_TEST_CASE(the_session_of_an_instance_that_is_given_up_ends_when_its_copies_have) {
  world all;
  all.write(1, 0, 100);
  all.settle_until_copying();
  all.guest->unbind(world::number_of(0));
  while (all.room.step()) continue;
  BOOST_TEST(all.room.closes == 0);
  all.settle();
  all.guest->advance(all.now);
  all.settle();
  BOOST_TEST(all.is(1, transfer_result::done));
  BOOST_TEST(all.room.closes == 1);
  BOOST_TEST((all.read(100) == look::right));
}

BOOST_AUTO_TEST_CASE(an_instance_that_dram_refuses_is_tried_again_a_second_later) {
  world all;
  all.room.is_closed = true;
  all.write(1, 0, 100);
  all.fetch(2, 1, 100);
  all.settle();
  BOOST_TEST(all.is(1, transfer_result::dropped));
  BOOST_TEST(all.is(2, transfer_result::missing));
  all.room.is_closed = false;
  all.write(3, 0, 100);
  BOOST_TEST(all.is(3, transfer_result::dropped));
  BOOST_TEST(all.room.opens == 1);
  all.now += gpu::dram_guest::open_again;
  all.write(4, 0, 100);
  all.settle();
  BOOST_TEST(all.is(4, transfer_result::done));
  BOOST_TEST(all.room.opens == 2);
}

BOOST_AUTO_TEST_SUITE_END()
